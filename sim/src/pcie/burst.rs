//! What is under way in the tree.

use doorbell_core::units::{Span, Time};

use super::route::Route;
use super::station::{Flow, Need};
use super::{Cause, Kind, Transaction};

pub(super) const NONE: u32 = u32::MAX;

/// TLPs of one transaction that travel together.
#[derive(Debug)]
pub(super) struct Burst {
    pub tag: u64,
    pub submitted: Time,
    pub started: Time,
    /// No earlier can the last bit leave the next station.
    pub tail: Time,
    /// From the first to the last request of the burst, at the target.
    pub lag: Span,
    /// Request: from the target's order point to the first data.
    pub access: Span,
    /// Writes of the same device that must be visible before.
    pub after: u64,
    pub len: u32,
    /// Bytes on a link.
    pub wire: u32,
    pub tlps: u32,
    /// Requests sent for it, hence tags.
    pub requests: u32,
    /// The transaction that it is part of, [`NONE`] if it is all of it.
    pub whole: u32,
    pub route: Route,
    pub hop: u8,
    /// Offset in its 4-KiB page.
    pub offset: u16,
    pub from: u16,
    pub to: u16,
    pub flow: Flow,
    pub kind: Kind,
    pub cause: Cause,
    /// Goes through the target's memory (not its cache).
    pub uses_memory: bool,
    /// Has waited for the target's memory.
    pub drained: bool,
    /// Carries relaxed ordering.
    pub relaxed: bool,
    /// Has waited for earlier writes to other memory.
    pub parked: bool,
}

impl Burst {
    /// Bytes between sockets, where each TLP takes `per_tlp` beyond its payload.
    pub const fn cross_wire(&self, per_tlp: u32) -> u32 {
        let payload = match self.flow {
            Flow::Request => 0,
            Flow::Posted | Flow::Completion => self.len,
        };
        payload + self.tlps * per_tlp
    }

    /// What it takes from a receiver's buffers.
    pub const fn need(&self) -> Need {
        match self.flow {
            Flow::Posted => Need { headers: self.tlps, data: self.len.div_ceil(16) },
            Flow::Request => Need { headers: self.tlps, data: 0 },
            Flow::Completion => Need { headers: 0, data: 0 },
        }
    }
}

/// A transaction of several bursts, or one that waits for tags.
#[derive(Debug)]
pub(super) struct Whole {
    pub transaction: Transaction,
    pub submitted: Time,
    pub started: Time,
    /// Bytes of which no burst was made yet.
    pub left: u32,
    pub bursts: u32,
}
