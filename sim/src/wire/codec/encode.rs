//! From a descriptor to the bytes of its frame.

use super::error::{EncodeError, Field};
use super::headers;
use super::icrc::{icrc, internet_checksum, to_bytes, udp_checksum};
use super::ip::{BthBits, Ip, Outer, UdpChecksum};
use super::{
    ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_VLAN, ICRC_BYTES, MAX_PAYLOAD, MIN_FRAME,
    PROTOCOL_UDP, UDP_BYTES, UDP_PORT,
};
use crate::rc::PacketDesc;

/// Writes the frame of a packet into `out`, whose former content goes.
///
/// `payload` is `None` for a virtual region, whose bytes nobody knows: zeros stand for them. A
/// frame below 60 bytes is padded. The wire adds preamble, FCS and gap: 24 bytes, so that the
/// frame is [`wire_bytes`](crate::wire::wire_bytes) less 24.
///
/// # Errors
/// See [`EncodeError`]; then `out` is empty.
pub fn encode(
    outer: &Outer,
    desc: &PacketDesc,
    payload: Option<&[u8]>,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    out.clear();
    check(outer, desc, payload)?;
    let pad = desc.len.wrapping_neg() % 4;
    let transport = desc.opcode.header_bytes() + desc.len + pad;
    let udp_len = UDP_BYTES + transport as usize + ICRC_BYTES;
    put_ethernet(out, outer);
    let ip_at = out.len();
    put_ip(out, &outer.ip, udp_len as u16);
    let udp_at = out.len();
    out.extend_from_slice(&outer.udp.source.to_be_bytes());
    out.extend_from_slice(&UDP_PORT.to_be_bytes());
    out.extend_from_slice(&(udp_len as u16).to_be_bytes());
    out.extend_from_slice(&[0; 2]);
    put_bth(out, &outer.bth, desc, pad as u8);
    headers::put(out, &desc.ext);
    let payload_at = out.len();
    out.extend_from_slice(payload.unwrap_or_default());
    out.resize(payload_at + (desc.len + pad) as usize, 0);
    let icrc = icrc(&out[ip_at..]);
    out.extend_from_slice(&to_bytes(icrc));
    let checksum = match outer.udp.checksum {
        UdpChecksum::None => 0,
        UdpChecksum::Valid => udp_checksum(&out[ip_at..udp_at], &out[udp_at..]),
        UdpChecksum::Other(sum) => sum,
    };
    out[udp_at + 6..udp_at + 8].copy_from_slice(&checksum.to_be_bytes());
    if out.len() < MIN_FRAME {
        out.resize(MIN_FRAME, 0);
    }
    Ok(())
}

/// What every encapsulation asks of a descriptor and its payload.
pub(super) fn check_desc(desc: &PacketDesc, payload: Option<&[u8]>) -> Result<(), EncodeError> {
    let opcode = desc.opcode;
    if !headers::supported(opcode) {
        return Err(EncodeError::Unsupported { opcode });
    }
    if !headers::belongs(opcode, &desc.ext) {
        return Err(EncodeError::Header { opcode });
    }
    if desc.len > MAX_PAYLOAD {
        return Err(EncodeError::Payload { got: desc.len });
    }
    if let Some(given) = payload.map(<[u8]>::len)
        && given != desc.len as usize
    {
        return Err(EncodeError::PayloadLength { described: desc.len, given });
    }
    Ok(())
}

fn check(outer: &Outer, desc: &PacketDesc, payload: Option<&[u8]>) -> Result<(), EncodeError> {
    check_desc(desc, payload)?;
    if let Ip::V6 { flow_label: got, .. } = outer.ip
        && got > Ip::MAX_FLOW_LABEL
    {
        let (field, max) = (Field::FlowLabel, Ip::MAX_FLOW_LABEL);
        return Err(EncodeError::TooWide { field, got, max });
    }
    Ok(())
}

fn put_ethernet(out: &mut Vec<u8>, outer: &Outer) {
    out.extend_from_slice(&outer.eth.dst.0);
    out.extend_from_slice(&outer.eth.src.0);
    if let Some(tag) = outer.eth.vlan {
        out.extend_from_slice(&ETHERTYPE_VLAN.to_be_bytes());
        out.extend_from_slice(&tag.to_be_bytes());
    }
    let ethertype = match outer.ip {
        Ip::V4 { .. } => ETHERTYPE_IPV4,
        Ip::V6 { .. } => ETHERTYPE_IPV6,
    };
    out.extend_from_slice(&ethertype.to_be_bytes());
}

fn put_ip(out: &mut Vec<u8>, ip: &Ip, udp_len: u16) {
    let at = out.len();
    match *ip {
        Ip::V4 { traffic_class, id, dont_fragment, ttl, src, dst } => {
            out.extend_from_slice(&[0x45, traffic_class]);
            out.extend_from_slice(&(udp_len + 20).to_be_bytes());
            out.extend_from_slice(&id.to_be_bytes());
            let flags = if dont_fragment { 0x40 } else { 0 };
            out.extend_from_slice(&[flags, 0, ttl, PROTOCOL_UDP, 0, 0]);
            out.extend_from_slice(&src.octets());
            out.extend_from_slice(&dst.octets());
            let sum = internet_checksum(&[&out[at..]]);
            out[at + 10..at + 12].copy_from_slice(&sum.to_be_bytes());
        }
        Ip::V6 { traffic_class, flow_label, hop_limit, src, dst } => {
            let word = 6 << 28 | u32::from(traffic_class) << 20 | flow_label;
            out.extend_from_slice(&word.to_be_bytes());
            out.extend_from_slice(&udp_len.to_be_bytes());
            out.extend_from_slice(&[PROTOCOL_UDP, hop_limit]);
            out.extend_from_slice(&src.octets());
            out.extend_from_slice(&dst.octets());
        }
    }
}

pub(super) fn put_bth(out: &mut Vec<u8>, b: &BthBits, desc: &PacketDesc, pad: u8) {
    let bit = |set: bool, mask: u8| if set { mask } else { 0 };
    out.push(desc.opcode.value());
    out.push(bit(desc.solicited, 0x80) | bit(b.mig_req, 0x40) | pad << 4);
    out.extend_from_slice(&b.pkey.0.to_be_bytes());
    let congestion = bit(b.fecn, 0x80) | bit(b.becn, 0x40);
    let word = u32::from(congestion) << 24 | desc.dest.value();
    out.extend_from_slice(&word.to_be_bytes());
    let word = u32::from(bit(desc.ack_req, 0x80)) << 24 | desc.psn.value();
    out.extend_from_slice(&word.to_be_bytes());
}
