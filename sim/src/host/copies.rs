//! Copies from region to region: by a core through its caches, or by a GPU's copy engine.
//!
//! A core that copies within host memory moves each byte twice through the memory, read and write.
//! Between host memory and a GPU's, and between two GPUs, the engine of a GPU makes DMA over the
//! PCIe tree: its bytes share links, switches and sockets with those of the NICs. The caller waits
//! until the last byte is visible. The engine's own memory is no bottleneck and is not charged.

use std::collections::VecDeque;

use doorbell_core::transport::{MemError, Range};
use doorbell_core::units::{BitRate, Span, Time};

use super::initiator::{Cause, Effect, StoreBytes};
use super::island::{Host, Shared};
use super::transport::SimTransport;
use crate::memory::{MemoryPlace, RegionId, RegionKind};
use crate::pcie::{Cause as PcieCause, Done, Kind, NodeId, PAGE, Target, Transaction};

/// DMA transactions of one copy under way. Fewer: the engine does not fill its link; more: what
/// shares a link with it waits longer. 16 pages cover 64 GB/s over a microsecond.
const PIECES: u32 = 16;

/// A copy by an engine: who makes the DMA, of which kind, with whom, and how much.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct EngineCopy {
    /// The GPU.
    pub engine: NodeId,
    /// Write: from its memory; read: into it.
    pub kind: Kind,
    /// The other memory.
    pub with: RegionKind,
    /// Bytes, at least 1.
    pub bytes: u64,
}

/// A copy that an engine works on.
#[derive(Copy, Clone, Debug)]
pub(super) struct Running {
    initiator: u16,
    copy: EngineCopy,
    /// Bytes of transactions that were submitted, and that have ended.
    submitted: u64,
    ended: u64,
}

/// Copies of all engines of a host, those of one GPU in order.
#[derive(Debug, Default)]
pub(super) struct Copies(VecDeque<Running>);

impl Copies {
    /// Whether no engine works.
    pub fn is_idle(&self) -> bool {
        self.0.is_empty()
    }
}

/// Who moves the bytes of a copy.
enum Mover {
    /// The initiator, within the memory of a place.
    Initiator(MemoryPlace),
    /// A GPU's engine.
    Engine(NodeId, Kind, RegionKind),
}

/// Who copies between two memories.
fn mover(from: RegionKind, to: RegionKind) -> Mover {
    match (from, to) {
        (RegionKind::Gpu { node }, other) if from != to => {
            Mover::Engine(NodeId(node), Kind::Write, other)
        }
        (other, RegionKind::Gpu { node }) if from != to => {
            Mover::Engine(NodeId(node), Kind::Read, other)
        }
        _ => Mover::Initiator(to.place()),
    }
}

impl SimTransport<'_> {
    pub(super) fn copy_between(&mut self, to: Range, from: Range) -> Result<(), MemError> {
        self.call();
        let (a, b) = (self.address(to)?, self.address(from)?);
        if to.len != from.len {
            return Err(MemError::LengthMismatch { range: to.len, buffer: from.len });
        }
        let bare = self.is_virtual(b.0);
        if self.is_virtual(a.0) != bare {
            return Err(MemError::Virtual);
        }
        let bytes = match bare {
            true => None,
            false => {
                let mut bytes = vec![0; from.len as usize];
                self.observe(b, &mut bytes)?;
                Some(StoreBytes::Many(bytes.into()))
            }
        };
        let (kind_to, kind_from) = (self.kind_of(a.0)?, self.kind_of(b.0)?);
        self.move_bytes(kind_from, kind_to, to.len);
        if let Some(bytes) = bytes {
            self.effect(Effect::Store { region: a.0, addr: a.1, bytes });
        }
        Ok(())
    }

    pub(super) fn kind_of(&self, region: RegionId) -> Result<RegionKind, MemError> {
        self.host.regions.get(region).map(|r| r.kind).ok_or(MemError::BadHandle)
    }

    fn move_bytes(&mut self, from: RegionKind, to: RegionKind, bytes: u64) {
        match mover(from, to) {
            Mover::Initiator(place) => {
                self.count_copy(bytes);
                let rate = self.costs().copy_rate;
                self.work_on(place, bytes, rate, 2);
            }
            Mover::Engine(engine, kind, with) => {
                let stats = &mut self.init_mut().stats;
                stats.copies += 1;
                stats.engine_bytes += bytes;
                // A block moves its bytes by itself; a core asks the driver.
                let launch = if self.is_gpu() { Span::ZERO } else { self.costs().copy_launch };
                self.spend(launch);
                if bytes > 0 {
                    let copy = EngineCopy { engine, kind, with, bytes };
                    self.effect(Effect::EngineCopy(copy));
                }
            }
        }
    }

    /// Time of a copy or reduction of `bytes` at `rate` that moves `factor` times as many through
    /// the memory of a place. A bulk one shares the bandwidth with everybody else and may take
    /// longer.
    pub(super) fn work_on(&mut self, place: MemoryPlace, bytes: u64, rate: BitRate, factor: u64) {
        let solo = rate.time_for(bytes);
        if bytes >= super::transport::BULK_COPY {
            let limit = BitRate::new(rate.as_bps().saturating_mul(factor)).unwrap_or(rate);
            self.effect(Effect::Memory { place, bytes: bytes * factor, limit, solo });
        }
        let fixed = self.costs().copy;
        self.spend(fixed + solo);
    }
}

impl Host {
    /// Queues a copy of a blocked initiator with its engine.
    pub(super) fn start_copy(&mut self, now: Time, initiator: u16, copy: EngineCopy) {
        let busy = self.copies.0.iter().any(|r| r.copy.engine == copy.engine);
        self.copies.0.push_back(Running { initiator, copy, submitted: 0, ended: 0 });
        if !busy {
            self.feed(now, self.copies.0.len() - 1);
        }
    }

    /// Submits what a copy may have under way.
    fn feed(&mut self, now: Time, at: usize) {
        let llc = self.cfg.llc;
        loop {
            let r = &mut self.copies.0[at];
            let left = r.copy.bytes - r.submitted;
            if left == 0 || r.submitted - r.ended >= u64::from(PIECES * PAGE) {
                return;
            }
            let bytes = left.min(u64::from(PAGE)) as u32;
            let target = match r.copy.with {
                RegionKind::Host { numa } => Target::HostMemory { numa, llc },
                RegionKind::Gpu { node } => Target::Node(NodeId(node)),
            };
            r.submitted += u64::from(bytes);
            let (kind, from, cause) = (r.copy.kind, r.copy.engine, PcieCause::Copy);
            let t = Transaction { kind, from, target, bytes, addr: 0, cause, tag: 0 };
            self.pcie.submit(now, t, &mut self.pcie_out);
        }
    }

    /// A transaction of an engine has ended: more of the copy, or its end and the next one.
    pub(super) fn copy_moved(&mut self, s: &mut Shared, now: Time, done: &Done) {
        let its = |r: &Running| r.copy.engine == done.device;
        let at = self.copies.0.iter().position(its).expect("only copies have engines at work");
        let r = &mut self.copies.0[at];
        r.ended += u64::from(done.bytes);
        if r.ended < r.copy.bytes {
            return self.feed(now, at);
        }
        let who = r.initiator;
        self.copies.0.remove(at);
        if let Some(next) = self.copies.0.iter().position(its) {
            self.feed(now, next);
        }
        self.resume(s, who, Cause::Copy, now);
    }
}
