//! The frames of `protocol.md` §1.4, in both directions.

use core::net::Ipv4Addr;

use doorbell_core::verbs::{CreditCode, Msn, NakCode, Opcode, Rkey, RnrTimer, Syndrome};

use super::*;

fn bytes(hex: &str) -> Vec<u8> {
    let digit = |c: u8| (c as char).to_digit(16).expect("a hexadecimal digit") as u8;
    hex.as_bytes().chunks(2).map(|p| digit(p[0]) << 4 | digit(p[1])).collect()
}

#[track_caller]
fn both_ways(hex: &str, outer: &Outer, desc: &PacketDesc, payload: &[u8]) {
    let golden = bytes(hex);
    assert_eq!(decode(&golden), Ok(Decoded { outer: *outer, desc: *desc, payload }));
    let ours = frame(outer, desc, payload);
    let first = ours.iter().zip(&golden).position(|(a, b)| a != b);
    assert_eq!(ours, golden, "first difference at {first:?}");
}

fn reth(va: u64, rkey: u32, dma_len: u32) -> Ext {
    Ext::Reth { va, rkey: Rkey(rkey), dma_len }
}

fn aeth(syndrome: Syndrome) -> Ext {
    Ext::Aeth { syndrome, msn: Msn::new(5) }
}

/// Captured from a ConnectX-4 Lx: TOS, source port 0 and MigReq 0 as that NIC sends them.
#[test]
fn cnp() {
    let outer = Outer {
        eth: Ethernet {
            dst: Mac([0xE4, 0x1D, 0x2D, 0xAB, 0x2B, 0xC2]),
            src: Mac([0x7C, 0xFE, 0x90, 0x64, 0x3B, 0x32]),
            vlan: None,
        },
        ip: Ip::V4 {
            traffic_class: 0xC2,
            id: 0x718C,
            dont_fragment: true,
            ttl: 64,
            src: Ipv4Addr::new(10, 0, 17, 1),
            dst: Ipv4Addr::new(10, 0, 18, 1),
        },
        udp: Udp { source: 0, checksum: UdpChecksum::None },
        bth: BthBits { mig_req: false, becn: true, ..BthBits::default() },
    };
    let hex = "e41d2dab2bc27cfe90643b32080045c2003c718c4000401191610a0011010a001201000012b700280000\
               8100ffff40000118000000000000000000000000000000000000000082fd002a";
    let d = desc(Opcode::CnpRoceV2, (0x118, 0), 16, Ext::None);
    both_ways(hex, &outer, &d, &[0; 16]);
    // Where no payload is at hand, a CNP has its 16 zeros all the same.
    let mut ours = Vec::new();
    encode(&outer, &d, None, &mut ours).unwrap();
    assert_eq!(ours, bytes(hex));
}

/// Published with its IPv4 fields; the Ethernet header is ours, which no CRC here covers.
#[test]
fn uc_send_only() {
    let here = Ipv4Addr::new(192, 168, 0, 7);
    let mut o = outer();
    o.ip =
        Ip::V4 { traffic_class: 1, id: 1144, dont_fragment: true, ttl: 64, src: here, dst: here };
    o.udp = Udp { source: 49_152, checksum: UdpChecksum::Valid };
    let payload = bytes("4630818be28935d90e9a95505401be885e50");
    let d = desc(Opcode::UcSendOnly, (211, 13_571_856), 18, Ext::None);
    let frame = there_and_back(&o, &d, &payload);
    assert_eq!(frame[24..26], [0xB4, 0xD5], "the published header checksum");
    assert_eq!(frame[40..42], [0xAC, 0xA2], "and that of UDP");
    assert_eq!(frame[frame.len() - 6..], bytes("000078f353f3"), "pad and ICRC");
}

#[test]
fn rc_sends_and_writes() {
    both_ways(
        "02000000000202000000000108004502003c00004000401126ad0a0000010a000002c12312b700280000\
         0440ffff0000001180000001000102030405060708090a0b0c0d0e0fcd818d16",
        &outer(),
        &asks(desc(Opcode::RcSendOnly, (0x11, 1), 16, Ext::None)),
        &core::array::from_fn::<u8, 16, _>(|i| i as u8),
    );
    let write = asks(desc(Opcode::RcRdmaWriteOnly, (0x11, 2), 8, Ext::None));
    let write = PacketDesc { ext: reth(0x1122_3344_5566_7788, 0xAABB_CCDD, 8), ..write };
    both_ways(
        "02000000000202000000000108004502004400004000401126a50a0000010a000002c12312b700300000\
         0a40ffff00000011800000021122334455667788aabbccdd000000084142434445464748634b28d7",
        &outer(),
        &write,
        b"ABCDEFGH",
    );
    both_ways(
        "02000000000202000000000186dd602123450030114020010db8000000000000000000000001\
         20010db8000000000000000000000002c12312b7003024410a40ffff00000011800000021122334455667788\
         aabbccdd000000084142434445464748c332c46b",
        &outer_v6(),
        &write,
        b"ABCDEFGH",
    );
    let ext = Ext::RethImm { va: 0x1000, rkey: Rkey(0x55), dma_len: 5, imm: 0x0102_0304 };
    both_ways(
        "02000000000202000000000108004502004800004000401126a10a0000010a000002c12312b700340000\
         0b70ffff000000118000000300000000000010000000005500000005010203046162636465000000\
         66ddd71f",
        &outer(),
        &asks(desc(Opcode::RcRdmaWriteOnlyImm, (0x11, 3), 5, ext)),
        b"abcde",
    );
}

#[test]
fn rc_reads_and_atomics() {
    both_ways(
        "02000000000202000000000108004502003c00004000401126ad0a0000010a000002c12312b700280000\
         0c40ffff00000011800000040000000000001000000000550000200085c9208f",
        &outer(),
        &asks(desc(Opcode::RcRdmaReadRequest, (0x11, 4), 0, reth(0x1000, 0x55, 8192))),
        &[],
    );
    let ack = Syndrome::Ack { credit: CreditCode::NO_LIMIT };
    let answer = Ext::Aeth { syndrome: ack, msn: Msn::new(4) };
    both_ways(
        "02000000000202000000000108004502003800004000401126b10a0000010a000002c12312b700240000\
         1040ffff00000012000000041f0000043132333435363738abb27dd6",
        &outer(),
        &desc(Opcode::RcRdmaReadResponseOnly, (0x12, 4), 8, answer),
        b"12345678",
    );
    let add = Ext::Atomic { va: 0x1000, rkey: Rkey(0x55), swap_add: 1, compare: 0 };
    both_ways(
        "02000000000202000000000108004502004800004000401126a10a0000010a000002c12312b700340000\
         1440ffff000000118000000c00000000000010000000005500000000000000010000000000000000\
         457f1bf2",
        &outer(),
        &asks(desc(Opcode::RcFetchAdd, (0x11, 12), 0, add)),
        &[],
    );
    let old = Ext::AtomicAck { syndrome: ack, msn: Msn::new(5), orig: 41 };
    both_ways(
        "02000000000202000000000108004502003800004000401126b10a0000010a000002c12312b700240000\
         1240ffff000000120000000c1f000005000000000000002920244eff",
        &outer(),
        &desc(Opcode::RcAtomicAcknowledge, (0x12, 12), 0, old),
        &[],
    );
}

#[test]
fn rc_acknowledges() {
    let ack = |psn, syndrome| desc(Opcode::RcAcknowledge, (0x12, psn), 0, aeth(syndrome));
    both_ways(
        "02000000000202000000000108004502003000004000401126b90a0000010a000002c12312b7001c0000\
         1140ffff000000120000000c1f000005b53290f4",
        &outer(),
        &ack(12, Syndrome::Ack { credit: CreditCode::NO_LIMIT }),
        &[],
    );
    both_ways(
        "02000000000202000000000108004502003000004000401126b90a0000010a000002c12312b7001c0000\
         1140ffff000000120000000d2c0000054a4c6e2b",
        &outer(),
        &ack(13, Syndrome::RnrNak { timer: RnrTimer::new(12).unwrap() }),
        &[],
    );
    both_ways(
        "02000000000202000000000108004502003000004000401126b90a0000010a000002c12312b7001c0000\
         1140ffff000000120000000d60000005cfabacfa",
        &outer(),
        &ack(13, Syndrome::Nak { code: NakCode::PsnSequenceError }),
        &[],
    );
}
