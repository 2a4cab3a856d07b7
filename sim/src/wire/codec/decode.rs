//! From the bytes of a frame to its descriptor.

use core::net::{Ipv4Addr, Ipv6Addr};

use doorbell_core::verbs::{Opcode, PKey, Psn, Qpn};

use super::error::{DecodeError, Field};
use super::headers;
use super::icrc::{icrc, internet_checksum, to_bytes, udp_checksum};
use super::ip::{BthBits, Ethernet, Ip, Mac, Outer, Udp, UdpChecksum};
use super::{
    BTH_BYTES, ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_VLAN, ICRC_BYTES, MAX_PAYLOAD, MIN_FRAME,
    PROTOCOL_UDP, UDP_BYTES, UDP_PORT,
};
use crate::rc::PacketDesc;

/// A frame, read.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Decoded<'a> {
    /// Addresses and what else is no part of the descriptor.
    pub outer: Outer,
    /// The descriptor; its fields that do not travel (`wqe`, `offset`) are 0.
    pub desc: PacketDesc,
    /// The payload without pad.
    pub payload: &'a [u8],
}

/// Reads a frame that begins with its Ethernet header and has no FCS.
///
/// # Errors
/// The first thing that is wrong, from the outside in; see [`DecodeError`].
pub fn decode(frame: &[u8]) -> Result<Decoded<'_>, DecodeError> {
    let mut r = Reader { frame, at: 0, end: frame.len() };
    let (eth, ethertype) = ethernet(&mut r)?;
    let ip_at = r.at;
    let ip = match ethertype {
        ETHERTYPE_IPV4 => ipv4(&mut r)?,
        _ => ipv6(&mut r)?,
    };
    let udp = udp(&mut r, ip_at)?;
    let bth_at = r.at;
    let (bth, pad, mut desc) = base_header(&mut r)?;
    let header = desc.opcode.header_bytes() as usize - BTH_BYTES;
    let at = r.at;
    desc.ext = headers::get(desc.opcode, r.take(header, Field::Extended)?, at)?;
    let payload = payload(&mut r, bth_at, pad)?;
    desc.len = payload.len() as u32;
    trailer(frame, r.end)?;
    let offset = r.end - ICRC_BYTES;
    let (expected, stored) = (icrc(&frame[ip_at..offset]), &frame[offset..r.end]);
    if to_bytes(expected) != *stored {
        let got = u32::from_le_bytes([stored[0], stored[1], stored[2], stored[3]]);
        return Err(DecodeError::Icrc { offset, expected, got });
    }
    Ok(Decoded { outer: Outer { eth, ip, udp, bth }, desc, payload })
}

/// Where the decoder stands. Nothing is read at or beyond `end`.
pub(super) struct Reader<'a> {
    pub frame: &'a [u8],
    pub at: usize,
    pub end: usize,
}

impl<'a> Reader<'a> {
    pub fn take(&mut self, needed: usize, part: Field) -> Result<&'a [u8], DecodeError> {
        let (offset, left) = (self.at, self.end - self.at);
        if left < needed {
            return Err(DecodeError::Truncated { offset, part, needed, left });
        }
        self.at += needed;
        Ok(&self.frame[offset..self.at])
    }

    /// A header promises this many bytes behind itself: the end of the datagram.
    pub fn limit(&mut self, len: usize) -> Result<(), DecodeError> {
        let (offset, part, left) = (self.at, Field::Datagram, self.end - self.at);
        if left < len {
            return Err(DecodeError::Truncated { offset, part, needed: len, left });
        }
        self.end = offset + len;
        Ok(())
    }
}

pub(super) fn value(
    offset: usize,
    field: Field,
    expected: u32,
    got: u32,
) -> Result<(), DecodeError> {
    if got == expected {
        return Ok(());
    }
    Err(DecodeError::Value { offset, field, expected, got })
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

pub(super) fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

fn ethernet(r: &mut Reader<'_>) -> Result<(Ethernet, u16), DecodeError> {
    let b = r.take(14, Field::Ethernet)?;
    let (dst, src) = (Mac(array(b, 0)), Mac(array(b, 6)));
    let (mut offset, mut ethertype, mut vlan) = (12, u16_at(b, 12), None);
    if ethertype == ETHERTYPE_VLAN {
        let b = r.take(4, Field::Vlan)?;
        vlan = Some(u16_at(b, 0));
        (offset, ethertype) = (16, u16_at(b, 2));
    }
    if !matches!(ethertype, ETHERTYPE_IPV4 | ETHERTYPE_IPV6) {
        return Err(DecodeError::EtherType { offset, got: ethertype });
    }
    Ok((Ethernet { dst, src, vlan }, ethertype))
}

fn ipv4(r: &mut Reader<'_>) -> Result<Ip, DecodeError> {
    let at = r.at;
    let b = r.take(20, Field::Ipv4)?;
    value(at, Field::IpVersion, 4, (b[0] >> 4).into())?;
    value(at, Field::HeaderLength, 5, (b[0] & 15).into())?;
    let (expected, got) = (internet_checksum(&[&b[..10], &b[12..]]), u16_at(b, 10));
    if got != expected {
        return Err(DecodeError::IpChecksum { offset: at + 10, expected, got });
    }
    value(at + 6, Field::Fragment, 0, (u16_at(b, 6) & !0x4000).into())?;
    value(at + 9, Field::Protocol, PROTOCOL_UDP.into(), b[9].into())?;
    let len = usize::from(u16_at(b, 2));
    let Some(len) = len.checked_sub(20) else {
        let (part, needed) = (Field::Ipv4, 20);
        return Err(DecodeError::Truncated { offset: at, part, needed, left: len });
    };
    r.limit(len)?;
    Ok(Ip::V4 {
        traffic_class: b[1],
        id: u16_at(b, 4),
        dont_fragment: b[6] & 0x40 != 0,
        ttl: b[8],
        src: Ipv4Addr::from(array::<4>(b, 12)),
        dst: Ipv4Addr::from(array::<4>(b, 16)),
    })
}

fn ipv6(r: &mut Reader<'_>) -> Result<Ip, DecodeError> {
    let at = r.at;
    let b = r.take(40, Field::Ipv6)?;
    value(at, Field::IpVersion, 6, (b[0] >> 4).into())?;
    value(at + 6, Field::Protocol, PROTOCOL_UDP.into(), b[6].into())?;
    r.limit(u16_at(b, 4).into())?;
    let word = u32::from_be_bytes(array(b, 0));
    Ok(Ip::V6 {
        traffic_class: (word >> 20) as u8,
        flow_label: word & Ip::MAX_FLOW_LABEL,
        hop_limit: b[7],
        src: Ipv6Addr::from(array::<16>(b, 8)),
        dst: Ipv6Addr::from(array::<16>(b, 24)),
    })
}

/// The UDP header; `ip_at` is where the IP header begins, whose addresses its checksum covers.
fn udp(r: &mut Reader<'_>, ip_at: usize) -> Result<Udp, DecodeError> {
    let at = r.at;
    let datagram = &r.frame[at..r.end];
    let b = r.take(UDP_BYTES, Field::Udp)?;
    value(at + 2, Field::UdpPort, UDP_PORT.into(), u16_at(b, 2).into())?;
    value(at + 4, Field::UdpLength, datagram.len() as u32, u16_at(b, 4).into())?;
    let checksum = match u16_at(b, 6) {
        0 => UdpChecksum::None,
        sum if sum == udp_checksum(&r.frame[ip_at..at], datagram) => UdpChecksum::Valid,
        sum => UdpChecksum::Other(sum),
    };
    Ok(Udp { source: u16_at(b, 0), checksum })
}

/// The BTH: what is no part of the descriptor, the pad count, and the descriptor without extended
/// header and length.
pub(super) fn base_header(r: &mut Reader<'_>) -> Result<(BthBits, usize, PacketDesc), DecodeError> {
    let at = r.at;
    let b = r.take(BTH_BYTES, Field::Bth)?;
    let opcode =
        Opcode::try_from(b[0]).map_err(|_| DecodeError::Opcode { offset: at, got: b[0] })?;
    if !headers::supported(opcode) {
        return Err(DecodeError::Unsupported { offset: at, opcode });
    }
    value(at + 1, Field::TransportVersion, 0, (b[1] & 0x0F).into())?;
    value(at + 4, Field::BthReserved6, 0, (b[4] & 0x3F).into())?;
    value(at + 8, Field::BthReserved7, 0, (b[8] & 0x7F).into())?;
    let bits = BthBits {
        pkey: PKey(u16_at(b, 2)),
        mig_req: b[1] & 0x40 != 0,
        fecn: b[4] & 0x80 != 0,
        becn: b[4] & 0x40 != 0,
    };
    let desc = PacketDesc {
        opcode,
        psn: Psn::new(u32::from_be_bytes(array(b, 8))),
        dest: Qpn::new(u32::from_be_bytes(array(b, 4))),
        ack_req: b[8] & 0x80 != 0,
        solicited: b[1] & 0x80 != 0,
        wqe: 0,
        offset: 0,
        len: 0,
        ext: crate::rc::Ext::None,
    };
    Ok((bits, usize::from(b[1] >> 4 & 3), desc))
}

/// The payload, without the pad and the ICRC behind it.
pub(super) fn payload<'a>(
    r: &mut Reader<'a>,
    bth_at: usize,
    pad: usize,
) -> Result<&'a [u8], DecodeError> {
    let offset = r.at;
    let left = r.end - offset;
    let Some(padded) = left.checked_sub(ICRC_BYTES) else {
        let part = Field::Datagram;
        return Err(DecodeError::Truncated { offset, part, needed: ICRC_BYTES, left });
    };
    // Payload and pad are whole words, so that of the payload's length only one pad is right.
    let whole = padded.next_multiple_of(4);
    if whole != padded {
        let (part, needed) = (Field::Datagram, whole + ICRC_BYTES);
        return Err(DecodeError::Truncated { offset, part, needed, left });
    }
    let Some(len) = padded.checked_sub(pad) else {
        return Err(DecodeError::Value {
            offset: bth_at + 1,
            field: Field::PadCount,
            expected: 0,
            got: pad as u32,
        });
    };
    if len > MAX_PAYLOAD as usize {
        return Err(DecodeError::Payload { offset, got: len });
    }
    let bytes = r.take(len, Field::Datagram)?;
    for (i, byte) in r.take(pad, Field::Datagram)?.iter().enumerate() {
        value(offset + len + i, Field::Pad, 0, (*byte).into())?;
    }
    Ok(bytes)
}

/// Behind the datagram is nothing but what takes a frame to Ethernet's minimum.
fn trailer(frame: &[u8], end: usize) -> Result<(), DecodeError> {
    let offset = end.max(MIN_FRAME);
    if frame.len() > offset {
        return Err(DecodeError::Trailer { offset, extra: frame.len() - offset });
    }
    for (i, byte) in frame.iter().enumerate().skip(end) {
        value(i, Field::Trailer, 0, (*byte).into())?;
    }
    Ok(())
}
