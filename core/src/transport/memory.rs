//! Memory regions as programs see them.
//!
//! Registered memory is never behind a Rust reference: the NIC may write it at any moment, and a
//! `&[u8]` over it would be undefined behaviour on hardware. Bytes move through
//! [`Transport::copy_in`](super::Transport::copy_in) and its neighbours, specified as relaxed
//! per-byte atomics.

use super::handles::MrId;
use crate::verbs::{Lkey, Rkey};

/// Where memory is.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum MemKind {
    /// Host memory on a NUMA node.
    Host {
        /// NUMA node, from 0.
        numa: u8,
    },
    /// Memory of a GPU of this host.
    Gpu {
        /// GPU of this host, from 0.
        gpu: u8,
    },
}

/// Whether a region carries bytes.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub enum Contents {
    /// Bytes are real and move at the modelled instant. Hardware has only this.
    #[default]
    Data,
    /// Only lengths, for scale. Reading such a region is an error; hardware answers `Unsupported`.
    Virtual,
}

/// A registered memory region. Plain data.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Mr {
    /// The handle.
    pub id: MrId,
    /// First address.
    pub addr: u64,
    /// Length in bytes.
    pub len: u64,
    /// Key for local access.
    pub lkey: Lkey,
    /// Key for remote access.
    pub rkey: Rkey,
    /// Where it is.
    pub kind: MemKind,
}

/// Scatter/gather element with the layout of `ibv_sge`.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct Sge {
    /// First address.
    pub addr: u64,
    /// Length in bytes.
    pub len: u32,
    /// Key of the region.
    pub lkey: Lkey,
}

/// A part of a memory region, for access by the program itself.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Range {
    /// The region.
    pub mr: MrId,
    /// Offset of the first byte from the start of the region.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
}

impl Mr {
    /// The element for `len` bytes at `offset`; `None` when they do not lie in the region.
    pub fn sge(&self, offset: u64, len: u32) -> Option<Sge> {
        (offset.checked_add(u64::from(len))? <= self.len).then(|| Sge {
            addr: self.addr + offset,
            len,
            lkey: self.lkey,
        })
    }

    /// The range of `len` bytes at `offset`; `None` when they do not lie in the region.
    pub fn range(&self, offset: u64, len: u64) -> Option<Range> {
        (offset.checked_add(len)? <= self.len).then_some(Range { mr: self.id, offset, len })
    }
}
