//! Queues of the back end that does nothing.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec;

use crate::transport::{
    Completion, PollError, QpCaps, QpId, RecvWr, SendWr, StageError, WorkQueue,
};
use crate::verbs::{SendFlags, WcOpcode, WcStatus, WrOpcode};

/// A WQE in the ring.
#[derive(Copy, Clone, Debug)]
struct Slot {
    wr_id: u64,
    len: u32,
    op: WrOpcode,
    blocks: u8,
    signaled: bool,
}

const EMPTY: Slot = Slot { wr_id: 0, len: 0, op: WrOpcode::Send, blocks: 0, signaled: false };

/// A send queue: free-running positions, freed <= done <= rung <= staged.
#[derive(Clone, Debug)]
pub(super) struct Sq {
    pub(super) caps: QpCaps,
    slots: Box<[Slot]>,
    blocks: u32,
    failed: bool,
    /// Slots that nobody will ever give back.
    leaked: u32,
    freed: u32,
    /// Done WQEs that a completion has told of, polled or not.
    told: u32,
    done: u32,
    rung: u32,
    staged: u32,
}

impl Sq {
    pub(super) fn new(caps: QpCaps) -> Self {
        let len = caps.max_send_wr.next_power_of_two() as usize;
        Self {
            caps,
            slots: vec![EMPTY; len].into(),
            blocks: 0,
            failed: false,
            leaked: 0,
            freed: 0,
            told: 0,
            done: 0,
            rung: 0,
            staged: 0,
        }
    }

    fn slot(&self, position: u32) -> Slot {
        self.slots[position as usize & (self.slots.len() - 1)]
    }

    #[inline]
    pub(super) fn used(&self) -> u32 {
        self.staged.wrapping_sub(self.freed) + self.leaked
    }

    #[inline]
    pub(super) fn free(&self) -> u32 {
        self.caps.max_send_wr - self.used()
    }

    #[inline]
    pub(super) fn failed(&self) -> bool {
        self.failed
    }

    pub(super) fn outstanding(&self) -> u32 {
        self.rung.wrapping_sub(self.done)
    }

    pub(super) fn staged_count(&self) -> u32 {
        self.staged.wrapping_sub(self.rung)
    }

    pub(super) fn staged(&self) -> impl Iterator<Item = u64> {
        (0..self.staged_count()).map(|i| self.slot(self.rung.wrapping_add(i)).wr_id)
    }

    #[inline]
    pub(super) fn stage(&mut self, wr: &SendWr<'_>) -> Result<(), StageError> {
        if self.failed {
            return Err(super::FAILED);
        }
        let blocks = if self.caps.sq_blocks.is_some() { wr.blocks() } else { 1 };
        if self.free() == 0 || self.caps.sq_blocks.is_some_and(|max| self.blocks + blocks > max) {
            return Err(StageError::SqFull);
        }
        if self.staged_count() >= self.caps.max_staged {
            return Err(StageError::StagedFull);
        }
        let at = self.staged as usize & (self.slots.len() - 1);
        self.slots[at] = Slot {
            wr_id: wr.wr_id,
            len: wr.data.len() as u32,
            op: wr.op.opcode(),
            blocks: blocks as u8,
            signaled: wr.flags.contains(SendFlags::SIGNALED),
        };
        self.blocks += blocks;
        self.staged = self.staged.wrapping_add(1);
        Ok(())
    }

    /// The `wqes` oldest staged ones are with the device, the rest is forgotten: how many.
    #[inline]
    pub(super) fn ring(&mut self, wqes: u32) -> u32 {
        self.rung = self.rung.wrapping_add(wqes);
        let rest = self.staged_count();
        for i in 0..rest {
            self.blocks -= u32::from(self.slot(self.rung.wrapping_add(i)).blocks);
        }
        self.staged = self.rung;
        rest
    }

    /// Slots of WQEs of which nobody can tell.
    pub(super) fn leak(&mut self, wqes: u32) {
        self.leaked += wqes;
    }

    pub(super) fn complete(&mut self, n: u32, qp: QpId, cq: &mut Cq) {
        for _ in 0..n.min(self.outstanding()) {
            let slot = self.slot(self.done);
            self.done = self.done.wrapping_add(1);
            if !slot.signaled {
                continue;
            }
            let retired = self.done.wrapping_sub(self.told);
            self.told = self.done;
            let (wr_id, len) = (slot.wr_id, slot.len);
            let op = slot.op.wc_opcode().unwrap_or(WcOpcode::Send);
            cq.push(Completion::Send { wr_id, qp, op, len, retired });
        }
    }

    pub(super) fn fail(&mut self, first: WcStatus, qp: QpId, cq: &mut Cq) {
        self.failed = true;
        let mut status = first;
        for _ in 0..self.outstanding() {
            let slot = self.slot(self.done);
            self.done = self.done.wrapping_add(1);
            let retired = self.done.wrapping_sub(self.told);
            self.told = self.done;
            let (wr_id, queue, vendor_err) = (slot.wr_id, WorkQueue::Send, 0);
            cq.push(Completion::Error { wr_id, qp, queue, status, vendor_err, retired });
            status = WcStatus::WrFlushErr;
        }
    }

    /// A completion was polled that is the first to tell of `n` WQEs.
    #[inline]
    pub(super) fn retire(&mut self, n: u32) {
        for i in 0..n {
            self.blocks -= u32::from(self.slot(self.freed.wrapping_add(i)).blocks);
        }
        self.freed = self.freed.wrapping_add(n);
    }
}

/// A receive queue.
#[derive(Clone, Debug)]
pub(super) struct Rq {
    wrs: VecDeque<RecvWr>,
    depth: u32,
}

impl Rq {
    pub(super) fn new(depth: u32) -> Self {
        Self { wrs: VecDeque::with_capacity(depth as usize), depth }
    }

    pub(super) fn posted(&self) -> u32 {
        self.wrs.len() as u32
    }

    pub(super) fn post(&mut self, wr: RecvWr) -> bool {
        let fits = self.posted() < self.depth;
        if fits {
            self.wrs.push_back(wr);
        }
        fits
    }

    pub(super) fn take(&mut self) -> Option<RecvWr> {
        self.wrs.pop_front()
    }
}

/// The completion queue.
#[derive(Clone, Debug)]
pub(super) struct Cq {
    entries: VecDeque<Completion>,
    depth: u32,
    pub(super) lost: bool,
}

impl Cq {
    pub(super) fn new(depth: u32) -> Self {
        Self { entries: VecDeque::with_capacity(depth as usize), depth, lost: false }
    }

    #[inline]
    pub(super) fn push(&mut self, c: Completion) {
        if self.entries.len() as u32 == self.depth {
            self.lost = true;
        } else {
            self.entries.push_back(c);
        }
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Result<Option<Completion>, PollError> {
        if self.lost { Err(PollError::CqLost) } else { Ok(self.entries.pop_front()) }
    }
}
