//! Frames published by others, both sides of every limit, and round trips.

mod errors;
mod golden;
mod ib;
mod limits;
mod round_trip;

use core::net::{Ipv4Addr, Ipv6Addr};

use doorbell_core::verbs::{Opcode, Psn, Qpn};

use super::{BthBits, Decoded, Ethernet, Ip, Mac, Outer, Udp, UdpChecksum, decode, encode};
use crate::rc::{Ext, PacketDesc};

/// 10.0.0.1 to 10.0.0.2, as in most golden frames.
fn outer() -> Outer {
    Outer {
        eth: Ethernet { dst: Mac([2, 0, 0, 0, 0, 2]), src: Mac([2, 0, 0, 0, 0, 1]), vlan: None },
        ip: Ip::V4 {
            traffic_class: 2,
            id: 0,
            dont_fragment: true,
            ttl: 64,
            src: Ipv4Addr::new(10, 0, 0, 1),
            dst: Ipv4Addr::new(10, 0, 0, 2),
        },
        udp: Udp { source: 0xC123, checksum: UdpChecksum::None },
        bth: BthBits::default(),
    }
}

fn outer_v6() -> Outer {
    let address = |last| Ipv6Addr::new(0x2001, 0xDB8, 0, 0, 0, 0, 0, last);
    let ip = Ip::V6 {
        traffic_class: 2,
        flow_label: 0x1_2345,
        hop_limit: 64,
        src: address(1),
        dst: address(2),
    };
    Outer { ip, udp: Udp { source: 0xC123, checksum: UdpChecksum::Valid }, ..outer() }
}

fn desc(opcode: Opcode, (dest, psn): (u32, u32), len: u32, ext: Ext) -> PacketDesc {
    PacketDesc {
        opcode,
        psn: Psn::new(psn),
        dest: Qpn::new(dest),
        ack_req: false,
        solicited: false,
        wqe: 0,
        offset: 0,
        len,
        ext,
    }
}

fn asks(d: PacketDesc) -> PacketDesc {
    PacketDesc { ack_req: true, ..d }
}

fn frame(outer: &Outer, desc: &PacketDesc, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    encode(outer, desc, Some(payload), &mut out).unwrap();
    out
}

/// Encodes, decodes, and compares; gives the frame.
#[track_caller]
fn there_and_back(outer: &Outer, desc: &PacketDesc, payload: &[u8]) -> Vec<u8> {
    let frame = frame(outer, desc, payload);
    assert_eq!(decode(&frame), Ok(Decoded { outer: *outer, desc: *desc, payload }));
    frame
}
