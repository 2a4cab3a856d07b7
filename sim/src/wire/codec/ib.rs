//! Packets of native InfiniBand inside one subnet as bytes: LRH, BTH, extended headers, payload,
//! pad, ICRC, VCRC.
//!
//! As strict as [`decode`](super::decode): what [`decode_ib`] accepts, [`encode_ib`] gives back
//! byte for byte.

use super::decode::{Reader, array, base_header, payload, u16_at, value};
use super::encode::{check_desc, put_bth};
use super::error::{DecodeError, EncodeError, Field};
use super::icrc::{icrc_ib, to_bytes, vcrc};
use super::ip::BthBits;
use super::{ICRC_BYTES, headers};
use crate::rc::PacketDesc;

/// Bytes of a local route header.
pub const LRH_BYTES: usize = 8;

/// Bytes of the variant CRC.
pub const VCRC_BYTES: usize = 2;

/// Link next header: IBA transport, local; the BTH follows.
const LNH_LOCAL: u8 = 2;

/// Local route header; its length is computed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Lrh {
    /// Virtual lane of the link, 4 bits. A switch may change it; the ICRC does not cover it.
    pub vl: u8,
    /// Service level, 4 bits.
    pub sl: u8,
    /// Destination LID.
    pub dlid: u16,
    /// Source LID.
    pub slid: u16,
}

impl Lrh {
    /// Largest virtual lane and service level.
    pub const MAX: u8 = 15;
}

/// What stands around the descriptor in a packet of native InfiniBand.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct IbOuter {
    /// Local route header.
    pub lrh: Lrh,
    /// Rest of the BTH.
    pub bth: BthBits,
}

/// A packet of native InfiniBand, read.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct IbDecoded<'a> {
    /// What is no part of the descriptor.
    pub outer: IbOuter,
    /// The descriptor; its fields that do not travel (`wqe`, `offset`) are 0.
    pub desc: PacketDesc,
    /// The payload without pad.
    pub payload: &'a [u8],
}

/// Writes a packet from LRH to VCRC into `out`, whose former content goes: as many bytes as
/// [`wire_bytes`](crate::wire::wire_bytes) says. `payload` is as for [`encode`](super::encode).
///
/// # Errors
/// See [`EncodeError`]; then `out` is empty.
pub fn encode_ib(
    outer: &IbOuter,
    desc: &PacketDesc,
    payload: Option<&[u8]>,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    out.clear();
    check_desc(desc, payload)?;
    let Lrh { vl, sl, dlid, slid } = outer.lrh;
    for (field, got) in [(Field::Vl, vl), (Field::Sl, sl)] {
        if got > Lrh::MAX {
            let (got, max) = (got.into(), Lrh::MAX.into());
            return Err(EncodeError::TooWide { field, got, max });
        }
    }
    let pad = desc.len.wrapping_neg() % 4;
    let transport = (desc.opcode.header_bytes() + desc.len + pad) as usize;
    let words = (LRH_BYTES + transport + ICRC_BYTES) / 4;
    out.extend_from_slice(&[vl << 4, sl << 4 | LNH_LOCAL]);
    out.extend_from_slice(&dlid.to_be_bytes());
    out.extend_from_slice(&(words as u16).to_be_bytes());
    out.extend_from_slice(&slid.to_be_bytes());
    put_bth(out, &outer.bth, desc, pad as u8);
    headers::put(out, &desc.ext);
    out.extend_from_slice(payload.unwrap_or_default());
    out.resize(LRH_BYTES + transport, 0);
    let icrc = icrc_ib(out);
    out.extend_from_slice(&to_bytes(icrc));
    close(out);
    Ok(())
}

/// Appends the VCRC of a packet that ends with its ICRC.
pub(crate) fn close(out: &mut Vec<u8>) {
    let vcrc = vcrc(out);
    out.extend_from_slice(&vcrc.to_le_bytes());
}

/// Reads a packet that begins with its LRH and ends with its VCRC.
///
/// # Errors
/// The first thing that is wrong, from the outside in; the CRCs come last, the VCRC after the ICRC.
pub fn decode_ib(packet: &[u8]) -> Result<IbDecoded<'_>, DecodeError> {
    let mut r = Reader { frame: packet, at: 0, end: packet.len() };
    let b = r.take(LRH_BYTES, Field::Lrh)?;
    value(0, Field::LinkVersion, 0, (b[0] & 15).into())?;
    value(1, Field::LrhReserved, 0, (b[1] >> 2 & 3).into())?;
    value(1, Field::NextHeader, LNH_LOCAL.into(), (b[1] & 3).into())?;
    value(4, Field::LrhReserved, 0, (b[4] >> 3).into())?;
    let all = usize::from(u16_at(b, 4)) * 4;
    let left = packet.len();
    let Some(needed) = all.checked_sub(LRH_BYTES).filter(|_| left >= all + VCRC_BYTES) else {
        let (part, needed) = (Field::PacketLength, all.max(LRH_BYTES) + VCRC_BYTES);
        return Err(DecodeError::Truncated { offset: 4, part, needed, left });
    };
    if left > all + VCRC_BYTES {
        let offset = all + VCRC_BYTES;
        return Err(DecodeError::Trailer { offset, extra: left - offset });
    }
    r.limit(needed)?;
    let lrh = Lrh { vl: b[0] >> 4, sl: b[1] >> 4, dlid: u16_at(b, 2), slid: u16_at(b, 6) };
    let (bth, pad, mut desc) = base_header(&mut r)?;
    let header = desc.opcode.header_bytes() as usize - super::BTH_BYTES;
    let at = r.at;
    desc.ext = headers::get(desc.opcode, r.take(header, Field::Extended)?, at)?;
    let payload = payload(&mut r, LRH_BYTES, pad)?;
    desc.len = payload.len() as u32;
    let offset = all - ICRC_BYTES;
    let (expected, got) = (icrc_ib(&packet[..offset]), u32::from_le_bytes(array(packet, offset)));
    if got != expected {
        return Err(DecodeError::Icrc { offset, expected, got });
    }
    let (expected, got) = (vcrc(&packet[..all]), u16::from_le_bytes(array(packet, all)));
    if got != expected {
        return Err(DecodeError::Vcrc { offset: all, expected, got });
    }
    Ok(IbDecoded { outer: IbOuter { lrh, bth }, desc, payload })
}
