//! The ends of every field's range.

use doorbell_core::verbs::{CreditCode, Msn, NakCode, PKey, QKey, Rkey, RnrTimer, Syndrome};

use super::super::{DecodeError, Ecn, EncodeError, Field, MAX_PAYLOAD, MIN_FRAME, icrc};
use super::*;
use crate::wire::{Encapsulation, wire_bytes};

const SEND: (Opcode, Ext) = (Opcode::RcSendOnly, Ext::None);

fn send(dest_psn: (u32, u32), len: u32) -> PacketDesc {
    desc(SEND.0, dest_psn, len, SEND.1)
}

#[test]
fn twenty_four_bits_of_psn_and_qpn() {
    for (dest, psn) in [(0, 0), (1, 0x80_0000), (0xFF_FFFE, 1), (0xFF_FFFF, 0xFF_FFFF)] {
        for ack_req in [false, true] {
            let d = PacketDesc { ack_req, ..send((dest, psn), 4) };
            there_and_back(&outer(), &d, b"abcd");
        }
    }
}

#[test]
fn every_bit_of_the_base_header_has_its_place() {
    let plain = frame(&outer(), &send((0x12_3456, 0x65_4321), 4), b"abcd");
    let bth = |o: &Outer, d: &PacketDesc| frame(o, d, b"abcd")[42..54].to_vec();
    let with = |f: fn(&mut Outer, &mut PacketDesc)| {
        let (mut o, mut d) = (outer(), send((0x12_3456, 0x65_4321), 4));
        f(&mut o, &mut d);
        there_and_back(&o, &d, b"abcd");
        bth(&o, &d)
    };
    let golden = [0x04, 0x40, 0xFF, 0xFF, 0, 0x12, 0x34, 0x56, 0, 0x65, 0x43, 0x21];
    assert_eq!(plain[42..54], golden);
    let differs = |f, at: usize, byte: u8| {
        let mut want = golden;
        want[at] = byte;
        assert_eq!(with(f), want);
    };
    differs(|_, d| d.solicited = true, 1, 0xC0);
    differs(|o, _| o.bth.mig_req = false, 1, 0);
    differs(|o, _| o.bth.fecn = true, 4, 0x80);
    differs(|o, _| o.bth.becn = true, 4, 0x40);
    differs(|_, d| d.ack_req = true, 8, 0x80);
    differs(|o, _| o.bth.pkey = PKey(0x7FFF), 2, 0x7F);
}

#[test]
fn payload_from_nothing_to_the_largest_mtu() {
    for len in [0, 1, 2, 3, 4, 5, 255, 256, 257, 4095, MAX_PAYLOAD] {
        let payload: Vec<u8> = (0..len).map(|i| i as u8 | 1).collect();
        let f = there_and_back(&outer(), &send((1, 1), len), &payload);
        let wire = wire_bytes(Encapsulation::RoceV2Ipv4, SEND.0, len);
        assert_eq!(f.len() as u32 + 24, wire, "preamble, FCS and gap are not in the frame");
        let mut virtual_payload = Vec::new();
        encode(&outer(), &send((1, 1), len), None, &mut virtual_payload).unwrap();
        assert_eq!(virtual_payload, frame(&outer(), &send((1, 1), len), &vec![0; len as usize]));
    }
    let got = MAX_PAYLOAD + 1;
    let mut out = vec![1];
    let e = encode(&outer(), &send((1, 1), got), None, &mut out);
    assert_eq!((e, out), (Err(EncodeError::Payload { got }), vec![]));
}

#[test]
fn frames_of_every_encapsulation_have_the_size_that_the_model_counts() {
    let tagged = Outer { eth: Ethernet { vlan: Some(0xFFFF), ..outer().eth }, ..outer() };
    let all = [
        (Encapsulation::RoceV2Ipv4, outer()),
        (Encapsulation::RoceV2Ipv4Vlan, tagged),
        (Encapsulation::RoceV2Ipv6, outer_v6()),
    ];
    for (encap, o) in all {
        for len in [0, 1, 4, 1000] {
            let f = there_and_back(&o, &send((1, 1), len), &vec![7; len as usize]);
            assert_eq!(f.len() as u32 + 24, wire_bytes(encap, SEND.0, len), "{encap:?} {len}");
        }
    }
}

#[test]
fn the_shortest_frame_is_padded_and_taken_unpadded_too() {
    let d = send((1, 1), 0);
    let f = frame(&outer(), &d, &[]);
    assert_eq!(f.len(), MIN_FRAME);
    assert_eq!(f[58..], [0, 0]);
    assert_eq!(decode(&f[..58]).unwrap().desc, d);
    assert_eq!(decode(&f[..59]).unwrap().desc, d);
    let mut long = f.clone();
    long.push(0);
    assert_eq!(decode(&long), Err(DecodeError::Trailer { offset: 60, extra: 1 }));
    let mut dirty = f;
    dirty[59] = 9;
    let (field, expected) = (Field::Trailer, 0);
    assert_eq!(decode(&dirty), Err(DecodeError::Value { offset: 59, field, expected, got: 9 }));
}

#[test]
fn every_syndrome() {
    let all = (0..=255).map(Syndrome::decode);
    for syndrome in all {
        let ext = Ext::Aeth { syndrome, msn: Msn::new(0xFF_FFFF) };
        let f = there_and_back(&outer(), &desc(Opcode::RcAcknowledge, (2, 3), 0, ext), &[]);
        assert_eq!(f[54..58], [syndrome.encode(), 0xFF, 0xFF, 0xFF]);
    }
    let known = [
        (Syndrome::Ack { credit: CreditCode::new(0).unwrap() }, 0x00),
        (Syndrome::Ack { credit: CreditCode::NO_LIMIT }, 0x1F),
        (Syndrome::RnrNak { timer: RnrTimer::new(0).unwrap() }, 0x20),
        (Syndrome::RnrNak { timer: RnrTimer::new(31).unwrap() }, 0x3F),
        (Syndrome::Nak { code: NakCode::PsnSequenceError }, 0x60),
        (Syndrome::Nak { code: NakCode::InvalidRdRequest }, 0x64),
    ];
    for (syndrome, byte) in known {
        assert_eq!(syndrome.encode(), byte);
    }
}

#[test]
fn extended_headers_with_every_bit_set() {
    let (va, orig, msn) = (u64::MAX, u64::MAX, Msn::new(0xFF_FFFF));
    let syndrome = Syndrome::Reserved { byte: 0xFF };
    let (rkey, qkey, src) = (Rkey(u32::MAX), QKey(u32::MAX), Qpn::new(0xFF_FFFF));
    let (dma_len, imm) = (u32::MAX, u32::MAX);
    let cases = [
        (Opcode::RcRdmaWriteFirst, Ext::Reth { va, rkey, dma_len }, 256),
        (Opcode::RcAtomicWrite, Ext::Reth { va, rkey, dma_len }, 8),
        (Opcode::UcRdmaWriteOnlyImm, Ext::RethImm { va, rkey, dma_len, imm }, 3),
        (Opcode::RcSendLastImm, Ext::Imm(imm), 1),
        (Opcode::RcSendOnlyInvalidate, Ext::Invalidate(rkey), 0),
        (Opcode::RcCompareSwap, Ext::Atomic { va, rkey, swap_add: va, compare: va }, 0),
        (Opcode::RcRdmaReadResponseLast, Ext::Aeth { syndrome, msn }, 5),
        (Opcode::RcAtomicAcknowledge, Ext::AtomicAck { syndrome, msn, orig }, 0),
        (Opcode::UdSendOnly, Ext::Deth { qkey, src }, 2),
        (Opcode::UdSendOnlyImm, Ext::DethImm { qkey, src, imm }, 2),
    ];
    for (opcode, ext, len) in cases {
        let d = desc(opcode, (2, 3), len, ext);
        let f = there_and_back(&outer(), &d, &vec![1; len as usize]);
        let (from, to) = (54, 42 + opcode.header_bytes() as usize);
        let reserved = if opcode.has_deth() { Some(58) } else { None };
        for (at, byte) in f.iter().enumerate().take(to).skip(from) {
            let want = if Some(at) == reserved { 0 } else { 0xFF };
            assert_eq!(*byte, want, "{opcode:?}, byte {at}");
        }
    }
}

#[test]
fn addresses_tags_and_labels_at_both_ends() {
    for vlan in [None, Some(0), Some(0xFFFF)] {
        let eth = Ethernet { dst: Mac([0xFF; 6]), src: Mac([0; 6]), vlan };
        for o in [outer(), outer_v6()] {
            there_and_back(&Outer { eth, ..o }, &send((1, 1), 4), b"abcd");
        }
    }
    for source in [0, 0xC000, 0xFFFF] {
        for checksum in [UdpChecksum::None, UdpChecksum::Valid, UdpChecksum::Other(1)] {
            let udp = Udp { source, checksum };
            for o in [outer(), outer_v6()] {
                there_and_back(&Outer { udp, ..o }, &send((1, 1), 4), b"abcd");
            }
        }
    }
    let labelled = |label| {
        let Ip::V6 { src, dst, .. } = outer_v6().ip else { unreachable!("it is IPv6") };
        let ip = Ip::V6 { traffic_class: 0xFF, flow_label: label, hop_limit: 0xFF, src, dst };
        Outer { ip, ..outer_v6() }
    };
    for label in [0, Ip::MAX_FLOW_LABEL] {
        there_and_back(&labelled(label), &send((1, 1), 4), b"abcd");
    }
    let (field, max) = (Field::FlowLabel, Ip::MAX_FLOW_LABEL);
    let e = encode(&labelled(max + 1), &send((1, 1), 4), None, &mut Vec::new());
    assert_eq!(e, Err(EncodeError::TooWide { field, got: max + 1, max }));
}

#[test]
fn what_may_change_on_the_way_is_not_in_the_icrc() {
    for (o, free) in [
        (outer(), vec![15, 22, 24, 25, 40, 41, 46]),
        (outer_v6(), vec![14, 15, 16, 17, 21, 60, 61, 66]),
    ] {
        let f = frame(&o, &send((1, 1), 4), b"abcd");
        let end = f.len() - 4;
        let sum = icrc(&f[14..end]);
        let mut moves = Vec::new();
        for at in 14..end {
            let mut g = f.clone();
            g[at] ^= 0x0F;
            if icrc(&g[14..end]) == sum {
                moves.push(at);
            }
        }
        assert_eq!(moves, free, "{:?}", o.ip);
    }
    assert_eq!(Ecn::Ce.set(0xC2), 0xC3);
    assert_eq!(Ecn::of(0xC2), Ecn::Ect0);
    for ecn in [Ecn::NotEct, Ecn::Ect1, Ecn::Ect0, Ecn::Ce] {
        assert_eq!(Ecn::of(ecn.set(0xFC)), ecn);
        assert_eq!(ecn.set(0xFF) & 0xFC, 0xFC);
    }
}
