//! Extended headers: which ones an opcode has, their bytes, and back.

use doorbell_core::verbs::{Msn, Opcode, QKey, Qpn, Rkey, Service, Syndrome};

use super::error::{DecodeError, Field};
use crate::rc::Ext;

/// Whether descriptors of this opcode exist.
pub(super) const fn supported(opcode: Opcode) -> bool {
    !matches!(opcode.service(), Service::Rd | Service::Xrc) && !opcode.has_feth()
}

/// Whether `ext` is what belongs to `opcode`, which is supported.
pub(super) const fn belongs(opcode: Opcode, ext: &Ext) -> bool {
    let imm = opcode.has_imm();
    match ext {
        Ext::None => opcode.header_bytes() == 12,
        Ext::Reth { .. } => opcode.has_reth() && !imm,
        Ext::RethImm { .. } => opcode.has_reth() && imm,
        Ext::Imm(_) => imm && !opcode.has_reth() && !opcode.has_deth(),
        Ext::Invalidate(_) => opcode.has_ieth(),
        Ext::Atomic { .. } => opcode.has_atomic_eth(),
        Ext::Aeth { .. } => opcode.has_aeth() && !opcode.has_atomic_ack_eth(),
        // No header of the specification: there are no bytes for it.
        Ext::Sack { .. } => false,
        Ext::AtomicAck { .. } => opcode.has_atomic_ack_eth(),
        Ext::Deth { .. } => opcode.has_deth() && !imm,
        Ext::DethImm { .. } => opcode.has_deth() && imm,
    }
}

fn put_reth(out: &mut Vec<u8>, va: u64, rkey: Rkey, dma_len: u32) {
    out.extend_from_slice(&va.to_be_bytes());
    out.extend_from_slice(&rkey.0.to_be_bytes());
    out.extend_from_slice(&dma_len.to_be_bytes());
}

fn put_aeth(out: &mut Vec<u8>, syndrome: Syndrome, msn: Msn) {
    let word = u32::from(syndrome.encode()) << 24 | msn.value();
    out.extend_from_slice(&word.to_be_bytes());
}

fn put_deth(out: &mut Vec<u8>, qkey: QKey, src: Qpn) {
    out.extend_from_slice(&qkey.0.to_be_bytes());
    out.extend_from_slice(&src.value().to_be_bytes());
}

/// Appends the extended headers.
pub(super) fn put(out: &mut Vec<u8>, ext: &Ext) {
    match *ext {
        Ext::None | Ext::Sack { .. } => {}
        Ext::Reth { va, rkey, dma_len } => put_reth(out, va, rkey, dma_len),
        Ext::RethImm { va, rkey, dma_len, imm } => {
            put_reth(out, va, rkey, dma_len);
            out.extend_from_slice(&imm.to_be_bytes());
        }
        Ext::Imm(imm) => out.extend_from_slice(&imm.to_be_bytes()),
        Ext::Invalidate(rkey) => out.extend_from_slice(&rkey.0.to_be_bytes()),
        Ext::Atomic { va, rkey, swap_add, compare } => {
            out.extend_from_slice(&va.to_be_bytes());
            out.extend_from_slice(&rkey.0.to_be_bytes());
            out.extend_from_slice(&swap_add.to_be_bytes());
            out.extend_from_slice(&compare.to_be_bytes());
        }
        Ext::Aeth { syndrome, msn } => put_aeth(out, syndrome, msn),
        Ext::AtomicAck { syndrome, msn, orig } => {
            put_aeth(out, syndrome, msn);
            out.extend_from_slice(&orig.to_be_bytes());
        }
        Ext::Deth { qkey, src } => put_deth(out, qkey, src),
        Ext::DethImm { qkey, src, imm } => {
            put_deth(out, qkey, src);
            out.extend_from_slice(&imm.to_be_bytes());
        }
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) << 32 | u64::from(u32_at(bytes, at + 4))
}

/// Reads the extended headers of a supported opcode. `bytes` are as many as it has; they begin at
/// `offset` of the frame.
pub(super) fn get(opcode: Opcode, bytes: &[u8], offset: usize) -> Result<Ext, DecodeError> {
    let key = |at| Rkey(u32_at(bytes, at));
    let imm = opcode.has_imm();
    Ok(if opcode.has_deth() {
        let (qkey, src) = (QKey(u32_at(bytes, 0)), Qpn::new(u32_at(bytes, 4)));
        if bytes[4] != 0 {
            let (field, got) = (Field::DethReserved, bytes[4].into());
            return Err(DecodeError::Value { offset: offset + 4, field, expected: 0, got });
        }
        if imm {
            Ext::DethImm { qkey, src, imm: u32_at(bytes, 8) }
        } else {
            Ext::Deth { qkey, src }
        }
    } else if opcode.has_reth() {
        let (va, rkey, dma_len) = (u64_at(bytes, 0), key(8), u32_at(bytes, 12));
        if imm {
            Ext::RethImm { va, rkey, dma_len, imm: u32_at(bytes, 16) }
        } else {
            Ext::Reth { va, rkey, dma_len }
        }
    } else if opcode.has_atomic_eth() {
        let (swap_add, compare) = (u64_at(bytes, 12), u64_at(bytes, 20));
        Ext::Atomic { va: u64_at(bytes, 0), rkey: key(8), swap_add, compare }
    } else if opcode.has_aeth() {
        let (syndrome, msn) = (Syndrome::decode(bytes[0]), Msn::new(u32_at(bytes, 0)));
        if opcode.has_atomic_ack_eth() {
            Ext::AtomicAck { syndrome, msn, orig: u64_at(bytes, 4) }
        } else {
            Ext::Aeth { syndrome, msn }
        }
    } else if imm {
        Ext::Imm(u32_at(bytes, 0))
    } else if opcode.has_ieth() {
        Ext::Invalidate(key(0))
    } else {
        Ext::None
    })
}
