//! The two ends of a way: requesters with their tags, targets with their latencies and order.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use doorbell_core::units::{Span, Time};

use super::account::RequesterAccount;
use super::config::{NodeKind, PcieConfig, TlpFormat};
use crate::engine::NoiseTable;

/// A place as requester of reads; a socket has no tags.
#[derive(Debug)]
pub(super) struct Requester {
    pub tags: u32,
    pub all_tags: u32,
    pub bytes: u32,
    /// Most requests of one burst: a quarter of all, so that the pipe does not run empty
    /// between two bursts.
    pub burst_requests: u32,
    pub queue: VecDeque<u32>,
    pub account: RequesterAccount,
}

/// Latencies of a place as target.
#[derive(Debug)]
pub(super) struct Terminal {
    /// Request at the place to its order point.
    pub root: Span,
    /// Order point to first data: cached, and added when not.
    pub read: Span,
    pub miss: Span,
    /// Last bit of a write to visible.
    pub write: Span,
    /// A core's store to the root port.
    pub mmio: Span,
    pub noise: Option<NoiseTable>,
}

/// Order of what a device sends to memory: writes become visible in the order in which they left
/// it, reads wait for the writes before them.
#[derive(Debug, Default)]
pub(super) struct Commit {
    /// Writes that have left the device.
    pub departed: u64,
    /// Writes that are visible, with all before them.
    pub committed: u64,
    /// Numbers of those beyond that are visible too: they carried relaxed ordering.
    pub ahead: BTreeSet<u64>,
    /// Reads that wait for so many writes, fewest first.
    pub waiting_reads: VecDeque<(u64, u32)>,
    /// Writes that would be visible before an earlier one, by their number.
    pub parked: BTreeMap<u64, u32>,
}

impl Commit {
    /// Write number `n` is visible.
    pub fn reached(&mut self, n: u64) {
        if n != self.committed {
            self.ahead.insert(n);
            return;
        }
        self.committed += 1;
        while self.ahead.remove(&self.committed) {
            self.committed += 1;
        }
    }
}

/// Times of one way.
#[derive(Debug, Default)]
pub(super) struct Order {
    /// No later write is visible earlier.
    pub visible: Time,
    /// Writes that wait for the target's memory, and when the last of them has it.
    pub draining: u32,
    pub drained_at: Time,
}

impl Requester {
    pub fn new(cfg: &PcieConfig, place: usize) -> Self {
        let node = place.checked_sub(cfg.sockets.len()).map(|i| cfg.nodes[i].kind);
        let (tags, bytes) = match node {
            Some(NodeKind::Endpoint(e)) => (e.read_tags, e.read_bytes),
            _ => (0, 0),
        };
        // No more than half of any link's credits, so that no burst waits for more than there
        // are.
        let credits = cfg.nodes.iter().map(|n| n.link.credits.nonposted_headers).min();
        let most = tags.min(credits.unwrap_or(1).saturating_mul(2)) / 4;
        Self {
            tags,
            all_tags: tags,
            bytes,
            burst_requests: most.clamp(1, 64),
            queue: VecDeque::new(),
            account: RequesterAccount::default(),
        }
    }

    /// Longest burst of a read.
    pub fn burst_bytes(&self, format: &TlpFormat) -> u32 {
        self.burst_requests * format.max_read_request
    }
}

impl Terminal {
    pub fn new(cfg: &PcieConfig, place: usize) -> Self {
        if let Some(socket) = cfg.sockets.get(place) {
            return Self {
                root: socket.root_latency,
                read: socket.llc_read,
                miss: socket.dram_extra,
                write: socket.write_commit,
                mmio: socket.mmio_latency,
                noise: socket.noise.clone(),
            };
        }
        let (read, write) = match cfg.nodes[place - cfg.sockets.len()].kind {
            NodeKind::Endpoint(e) => (e.read_latency, e.write_latency),
            NodeKind::Switch { .. } => (Span::ZERO, Span::ZERO),
        };
        let none = Span::ZERO;
        Self { root: none, read, miss: none, write, mmio: none, noise: None }
    }
}
