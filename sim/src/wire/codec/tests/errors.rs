//! What is wrong is named, with its place.

use doorbell_core::verbs::Rkey;

use super::super::{DecodeError, EncodeError, Field};
use super::*;

fn sample() -> Vec<u8> {
    frame(&outer(), &desc(Opcode::RcSendOnly, (1, 1), 5, Ext::None), b"hello")
}

fn with(at: usize, byte: u8) -> Vec<u8> {
    let mut f = sample();
    f[at] = byte;
    f
}

/// As `with`, and the IPv4 checksum is right again.
fn in_ip(at: usize, byte: u8) -> Vec<u8> {
    let mut f = with(at, byte);
    f[24..26].fill(0);
    let sum = super::super::icrc::internet_checksum(&[&f[14..34]]);
    f[24..26].copy_from_slice(&sum.to_be_bytes());
    f
}

#[track_caller]
fn is(frame: &[u8], offset: usize, field: Field, expected: u32, got: u32) {
    assert_eq!(decode(frame), Err(DecodeError::Value { offset, field, expected, got }));
}

#[test]
fn constants_of_the_headers() {
    is(&in_ip(14, 0x65), 14, Field::IpVersion, 4, 6);
    is(&in_ip(14, 0x46), 14, Field::HeaderLength, 5, 6);
    is(&in_ip(20, 0x60), 20, Field::Fragment, 0, 0x2000);
    is(&in_ip(21, 1), 20, Field::Fragment, 0, 1);
    is(&in_ip(23, 6), 23, Field::Protocol, 17, 6);
    is(&with(37, 0xB8), 36, Field::UdpPort, 4791, 4792);
    is(&with(39, 0x21), 38, Field::UdpLength, 32, 33);
    is(&with(43, 0x71), 43, Field::TransportVersion, 0, 1);
    is(&with(46, 0x20), 46, Field::BthReserved6, 0, 0x20);
    is(&with(50, 0x01), 50, Field::BthReserved7, 0, 1);
    is(&with(61, 5), 61, Field::Pad, 0, 5);
    let v6 = frame(&outer_v6(), &desc(Opcode::RcSendOnly, (1, 1), 0, Ext::None), &[]);
    let mut other = v6.clone();
    other[20] = 0;
    is(&other, 20, Field::Protocol, 17, 0);
    other = v6;
    other[14] = 0x40;
    is(&other, 14, Field::IpVersion, 6, 4);
}

#[test]
fn ethertypes_checksums_and_opcodes() {
    let arp = DecodeError::EtherType { offset: 12, got: 0x0806 };
    assert_eq!(decode(&with(13, 6)), Err(arp));
    let eth = Ethernet { vlan: Some(3), ..outer().eth };
    let d = desc(Opcode::RcSendOnly, (1, 1), 0, Ext::None);
    let mut twice = frame(&Outer { eth, ..outer() }, &d, &[]);
    twice[16..18].copy_from_slice(&[0x81, 0]);
    assert_eq!(decode(&twice), Err(DecodeError::EtherType { offset: 16, got: 0x8100 }));

    let good = u16::from_be_bytes([sample()[24], sample()[25]]);
    let bad = with(25, sample()[25] ^ 1);
    let e = DecodeError::IpChecksum { offset: 24, expected: good, got: good ^ 1 };
    assert_eq!(decode(&bad), Err(e));
    assert_eq!(decode(&with(42, 0x15)), Err(DecodeError::Opcode { offset: 42, got: 0x15 }));
    assert_eq!(decode(&with(42, 0xE0)), Err(DecodeError::Opcode { offset: 42, got: 0xE0 }));
    for opcode in [Opcode::RcFlush, Opcode::RdSendOnly, Opcode::XrcSendOnly] {
        let e = DecodeError::Unsupported { offset: 42, opcode };
        assert_eq!(decode(&with(42, opcode.value())), Err(e));
        let e = encode(&outer(), &PacketDesc { opcode, ..d }, None, &mut Vec::new());
        assert_eq!(e, Err(EncodeError::Unsupported { opcode }));
    }
}

#[test]
fn a_damaged_packet_is_told_from_a_malformed_one() {
    let f = sample();
    let at = f.len() - 4;
    let expected = u32::from_le_bytes([f[at], f[at + 1], f[at + 2], f[at + 3]]);
    let got = expected ^ 0x8000_0000;
    let e = DecodeError::Icrc { offset: at, expected, got };
    assert_eq!(decode(&with(at + 3, f[at + 3] ^ 0x80)), Err(e), "the last byte is the highest");
    // Any bit of what the ICRC covers and no other rule constrains.
    for at in [35, 44, 47, 49, 53, 54, 58] {
        let damaged = with(at, f[at] ^ 0x10);
        let error = decode(&damaged);
        assert!(matches!(error, Err(DecodeError::Icrc { .. })), "byte {at}: {error:?}");
    }
}

#[test]
fn a_frame_that_is_cut_short_says_where() {
    let f = sample();
    let parts = [
        (0, 0, Field::Ethernet, 14),
        (13, 0, Field::Ethernet, 14),
        (14, 14, Field::Ipv4, 20),
        (33, 14, Field::Ipv4, 20),
        (34, 34, Field::Datagram, 32),
        (f.len() - 1, 34, Field::Datagram, 32),
    ];
    for (len, offset, part, needed) in parts {
        let left = len - offset;
        let e = DecodeError::Truncated { offset, part, needed, left };
        assert_eq!(decode(&f[..len]), Err(e), "{len} bytes");
    }
    assert!(decode(&f).is_ok());
    // The same inside a datagram that is as short as its header says.
    let inside = |udp: u16| {
        let mut g = in_ip(17, (20 + udp) as u8);
        g[38..40].copy_from_slice(&udp.to_be_bytes());
        g.truncate(60.max(34 + usize::from(udp)));
        decode(&g).unwrap_err()
    };
    let cut = |offset, part, needed, left| DecodeError::Truncated { offset, part, needed, left };
    assert_eq!(inside(7), cut(34, Field::Udp, 8, 7));
    assert_eq!(inside(19), cut(42, Field::Bth, 12, 11));
    assert_eq!(inside(23), cut(54, Field::Datagram, 4, 3));
    assert_eq!(inside(25), cut(54, Field::Datagram, 8, 5));
    let pad = DecodeError::Value { offset: 43, field: Field::PadCount, expected: 0, got: 3 };
    assert_eq!(inside(24), pad, "no payload to pad");
    let e = DecodeError::Truncated { offset: 14, part: Field::Ipv4, needed: 20, left: 19 };
    assert_eq!(decode(&in_ip(17, 19)), Err(e));
}

#[test]
fn extended_headers_are_whole_and_their_reserved_byte_is_zero() {
    let ext = Ext::Deth { qkey: doorbell_core::verbs::QKey(1), src: Qpn::new(2) };
    let mut f = frame(&outer(), &desc(Opcode::UdSendOnly, (1, 1), 4, ext), b"abcd");
    f[58] = 7;
    is(&f, 58, Field::DethReserved, 0, 7);
    let mut f = frame(&outer(), &desc(Opcode::RcSendOnly, (1, 1), 8, Ext::None), b"abcdefgh");
    f[42] = Opcode::RcRdmaWriteOnly.value();
    let e = DecodeError::Truncated { offset: 54, part: Field::Extended, needed: 16, left: 12 };
    assert_eq!(decode(&f), Err(e));
}

#[test]
fn more_than_the_largest_mtu() {
    let len = 4096_usize;
    let d = desc(Opcode::RcSendOnly, (1, 1), len as u32, Ext::None);
    let mut f = frame(&outer(), &d, &vec![1; len]);
    assert!(decode(&f).is_ok());
    let udp = u16::from_be_bytes([f[38], f[39]]) + 4;
    f[38..40].copy_from_slice(&udp.to_be_bytes());
    f[16..18].copy_from_slice(&(udp + 20).to_be_bytes());
    f[24..26].fill(0);
    let sum = super::super::icrc::internet_checksum(&[&f[14..34]]);
    f[24..26].copy_from_slice(&sum.to_be_bytes());
    f.extend_from_slice(&[0; 4]);
    assert_eq!(decode(&f), Err(DecodeError::Payload { offset: 54, got: 4100 }));
}

#[test]
fn descriptors_without_a_frame() {
    let encode = |d: &PacketDesc, p: Option<&[u8]>| encode(&outer(), d, p, &mut Vec::new());
    let d = desc(Opcode::RcSendOnly, (1, 1), 4, Ext::None);
    assert_eq!(encode(&d, Some(b"abcd")), Ok(()));
    let e = EncodeError::PayloadLength { described: 4, given: 3 };
    assert_eq!(encode(&d, Some(b"abc")), Err(e));
    let other = PacketDesc { ext: Ext::Invalidate(Rkey(1)), ..d };
    assert_eq!(encode(&other, None), Err(EncodeError::Header { opcode: d.opcode }));
    for opcode in [Opcode::RcSendOnlyImm, Opcode::RcRdmaWriteOnly, Opcode::RcAcknowledge] {
        let e = encode(&PacketDesc { opcode, ..d }, None);
        assert_eq!(e, Err(EncodeError::Header { opcode }));
    }
}

#[test]
fn errors_print_place_and_expectation() {
    let text = |f: &[u8]| decode(f).unwrap_err().to_string();
    assert_eq!(text(&with(37, 0xB8)), "byte 36: UDP destination port is 4792, expected 4791");
    assert_eq!(text(&sample()[..20]), "byte 14: the IPv4 header takes 20 bytes, 6 are left");
    assert_eq!(text(&with(42, 0x1C)), "byte 42: RcFlush is not supported");
}
