//! Native InfiniBand: there and back, both CRCs against a plain reckoning, both sides of each
//! limit.

use doorbell_core::verbs::{Msn, Opcode, PKey, Rkey, Syndrome};

use super::super::*;
use super::{asks, desc};
use crate::rc::{Ext, PacketDesc};
use crate::wire::{Encapsulation, wire_bytes};

fn outer() -> IbOuter {
    let bth = BthBits { fecn: true, ..BthBits::default() };
    IbOuter { lrh: Lrh { vl: 3, sl: 9, dlid: 0x0102, slid: 0xBFFF }, bth }
}

fn packet(d: &PacketDesc, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    encode_ib(&outer(), d, Some(payload), &mut out).unwrap();
    out
}

fn write(len: u32) -> PacketDesc {
    let ext = Ext::Reth { va: 0x1122_3344_5566_7788, rkey: Rkey(0xAABB_CCDD), dma_len: len };
    asks(desc(Opcode::RcRdmaWriteOnly, (0x11, 3), len, ext))
}

/// Bit by bit, the highest power in the highest bit and every byte turned round.
fn plain_crc<const BITS: u32>(polynomial: u64, bytes: &[u8]) -> u64 {
    let top = 1u64 << (BITS - 1);
    let mask = top | (top - 1);
    let mut crc = mask;
    for byte in bytes {
        for bit in 0..8 {
            let fed = u64::from(byte >> bit & 1) << (BITS - 1);
            let out = (crc ^ fed) & top != 0;
            crc = (crc << 1 & mask) ^ if out { polynomial } else { 0 };
        }
    }
    (0..BITS).map(|i| (!crc >> i & 1) << (BITS - 1 - i)).sum()
}

#[test]
fn a_write_bit_by_bit() {
    let p = packet(&write(5), b"hello");
    let head = [0x30, 0x92, 0x01, 0x02, 0x00, 12, 0xBF, 0xFF];
    assert_eq!(p[..8], head, "VL 3, SL 9, LNH 2, twelve words");
    assert_eq!(p[8..12], [0x0A, 0x70, 0xFF, 0xFF], "WRITE Only, MigReq, three pad bytes");
    assert_eq!(p[12], 0x80, "FECN");
    assert_eq!(p.len(), 8 + 12 + 16 + 8 + 4 + 2);
    // The ICRC sees ones for the VL and for the byte of FECN and BECN.
    let mut masked = p[..44].to_vec();
    masked[0] |= 0xF0;
    masked[12] = 0xFF;
    let icrc = plain_crc::<32>(0x04C1_1DB7, &masked) as u32;
    assert_eq!(p[44..48], icrc.to_le_bytes());
    let vcrc = plain_crc::<16>(0x100B, &p[..48]) as u16;
    assert_eq!(p[48..], vcrc.to_le_bytes());
}

#[test]
fn what_a_switch_may_change_leaves_the_icrc() {
    let d = write(8);
    let mut other = Vec::new();
    let bth = BthBits { becn: true, ..BthBits::default() };
    let changed = IbOuter { lrh: Lrh { vl: 0, ..outer().lrh }, bth };
    encode_ib(&changed, &d, Some(&[7; 8]), &mut other).unwrap();
    let p = packet(&d, &[7; 8]);
    let icrc = |p: &[u8]| p[p.len() - 6..p.len() - 2].to_vec();
    assert_eq!(icrc(&p), icrc(&other));
    assert_ne!(p[p.len() - 2..], other[p.len() - 2..], "the VCRC covers both");
}

#[test]
fn there_and_back_at_every_length_and_size_as_counted() {
    let ack = Ext::Aeth { syndrome: Syndrome::decode(0x1F), msn: Msn::new(5) };
    let mut all = vec![desc(Opcode::RcAcknowledge, (0xFF_FFFF, 0xFF_FFFF), 0, ack)];
    for len in [0, 1, 2, 3, 4, 255, 4095, 4096] {
        all.push(write(len));
        all.push(desc(Opcode::UcSendOnly, (1, 0), len, Ext::None));
    }
    for d in all {
        let bytes: Vec<u8> = (0..d.len).map(|i| i as u8).collect();
        let p = packet(&d, &bytes);
        let want = IbDecoded { outer: outer(), desc: d, payload: &bytes };
        assert_eq!(decode_ib(&p), Ok(want));
        assert_eq!(p.len() as u32, wire_bytes(Encapsulation::IbLocal, d.opcode, d.len));
    }
}

#[test]
fn a_field_of_four_bits_takes_15_and_not_16() {
    let d = write(4);
    for (vl, sl, field) in [(16, 0, Field::Vl), (0, 16, Field::Sl)] {
        let outer = |vl, sl| IbOuter { lrh: Lrh { vl, sl, dlid: 1, slid: 2 }, ..outer() };
        let mut out = vec![1];
        assert_eq!(encode_ib(&outer(15, 15), &d, None, &mut out), Ok(()));
        let e = encode_ib(&outer(vl, sl), &d, None, &mut out);
        assert_eq!(e, Err(EncodeError::TooWide { field, got: 16, max: 15 }));
        assert!(out.is_empty());
    }
}

/// Each bit of a packet is looked at by someone.
#[test]
fn every_flipped_bit_is_noticed() {
    let good = packet(&write(5), b"hello");
    for bit in 0..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert!(decode_ib(&bad).is_err(), "bit {bit}");
    }
    for len in 0..good.len() {
        assert!(decode_ib(&good[..len]).is_err(), "{len} bytes");
    }
    let longer = [&good[..], &[0]].concat();
    let e = DecodeError::Trailer { offset: good.len(), extra: 1 };
    assert_eq!(decode_ib(&longer), Err(e));
}

#[test]
fn which_crc_is_wrong_is_said() {
    let mut p = packet(&write(5), b"hello");
    *p.last_mut().unwrap() ^= 0x80;
    assert!(matches!(decode_ib(&p), Err(DecodeError::Vcrc { offset: 48, .. })));
    p[45] ^= 1;
    assert!(matches!(decode_ib(&p), Err(DecodeError::Icrc { offset: 44, .. })));
    let bth = BthBits { pkey: PKey(0x8001), ..BthBits::default() };
    let mut other = Vec::new();
    encode_ib(&IbOuter { bth, ..outer() }, &write(0), None, &mut other).unwrap();
    assert_eq!(decode_ib(&other).unwrap().outer.bth.pkey, PKey(0x8001));
}
