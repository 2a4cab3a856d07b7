//! Send and completion queues, as the host and the NIC share them.

use std::collections::VecDeque;

use doorbell_core::transport::{Completion, WorkQueue};
use doorbell_core::units::Time;
use doorbell_core::verbs::{Rkey, WcOpcode, WcStatus};

use super::wqe::{Landing, SqSlot, Wqe};
use crate::memory::RegionKind;
use crate::rc::SlotReclaim;

/// A send queue: a ring of WQEs, indices free-running and compared modulo 2³².
///
/// The host keeps `used` and `used_blocks`, at its own clock; everything else is the device's.
/// Indices go on over a RESET, so that what was under way before it names no slot of the new life.
#[derive(Debug, Default)]
pub struct SendQueue {
    /// When a slot comes back.
    reclaim: SlotReclaim,
    /// WQEs from `tail` to `prod`.
    slots: VecDeque<SqSlot>,
    /// Oldest WQE whose slot has not come back.
    tail: u32,
    /// End of what a polled completion has told of. `tail` is never behind it, and beyond it only
    /// where slots come back on completion.
    told: u32,
    /// CQEs of WQEs whose slots are back that nobody has polled.
    unpolled: u32,
    /// End of what the host has posted.
    prod: u32,
    /// End of what a doorbell has announced.
    pub announced: u32,
    /// End of what the NIC has asked for.
    pub requested: u32,
    /// End of what the NIC has read.
    pub fetched: u32,
    /// End of what a processing unit has started.
    pub started: u32,
    /// Fetches under way.
    pub fetches: u32,
    /// Slots taken, staged ones included.
    pub used: u32,
    /// 64-byte blocks taken, staged ones included.
    pub used_blocks: u32,
    /// Most WQEs that were posted and of which no completion that was polled had told.
    pub most_untold: u32,
    /// What the ring's slots held before, for initiators whose stores may come late.
    history: VecDeque<Wqe>,
    history_len: usize,
}

impl SendQueue {
    /// An empty queue. `history`: ring slots whose former content can still be read.
    pub fn new(history: u32, reclaim: SlotReclaim) -> Self {
        Self { history_len: history as usize, reclaim, ..Self::default() }
    }

    /// End of what was posted.
    pub const fn prod(&self) -> u32 {
        self.prod
    }

    /// Oldest slot in use.
    pub const fn tail(&self) -> u32 {
        self.tail
    }

    /// Posts a WQE; its slot was reserved before.
    pub fn push(&mut self, wqe: Wqe, landing: impl Into<Landing>) -> u32 {
        let index = self.prod;
        self.slots.push_back(SqSlot {
            wqe,
            landing: landing.into(),
            executed: None,
            torn: false,
            fetched: false,
            carried: false,
        });
        self.prod = index.wrapping_add(1);
        self.most_untold = self.most_untold.max(self.untold());
        index
    }

    /// The slot of `index`, if it is in use.
    pub fn slot(&self, index: u32) -> Option<&SqSlot> {
        self.slots.get(index.wrapping_sub(self.tail) as usize)
    }

    /// The slot of `index`, if it is in use.
    pub fn slot_mut(&mut self, index: u32) -> Option<&mut SqSlot> {
        self.slots.get_mut(index.wrapping_sub(self.tail) as usize)
    }

    /// What the ring slot of `index` held before, `depth` WQEs ago.
    pub fn former(&self, index: u32, depth: u32) -> Wqe {
        let old = index.wrapping_sub(depth);
        if let Some(slot) = self.slot(old) {
            return slot.wqe.clone();
        }
        let back = self.tail.wrapping_sub(old) as usize;
        match self.history.len().checked_sub(back) {
            Some(i) if back > 0 => self.history[i].clone(),
            _ => Wqe::EMPTY,
        }
    }

    /// A completion of the WQE at `index` was polled: returns how many WQEs it tells of, that one
    /// included. Their slots are back now, if they were not before.
    pub fn retire(&mut self, index: u32) -> u32 {
        let told = index.wrapping_add(1);
        let n = told.wrapping_sub(self.told);
        if n > self.prod.wrapping_sub(self.told) {
            return 0;
        }
        self.told = told;
        match self.reclaim {
            SlotReclaim::OnPoll => self.give_back(index, true),
            SlotReclaim::OnCompletion => self.unpolled = self.unpolled.saturating_sub(1),
        }
        n
    }

    /// The WQEs up to `index` are done, and `cqes` of them made a completion. `counted`: they are
    /// among those that the host counts as used, and not of a life that it has left by a RESET.
    pub fn complete(&mut self, index: u32, cqes: u32, counted: bool) {
        if self.reclaim == SlotReclaim::OnCompletion {
            self.unpolled += cqes;
            self.give_back(index, counted);
        }
    }

    /// Gives back every slot up to and including `index`.
    fn give_back(&mut self, index: u32, counted: bool) {
        let n = index.wrapping_sub(self.tail).wrapping_add(1);
        if n as usize > self.slots.len() {
            return;
        }
        for _ in 0..n {
            let slot = self.slots.pop_front().expect("counted");
            if counted {
                self.used = self.used.saturating_sub(1);
                self.used_blocks = self.used_blocks.saturating_sub(u32::from(slot.wqe.blocks));
            }
            if self.history_len > 0 {
                if self.history.len() == self.history_len {
                    self.history.pop_front();
                }
                self.history.push_back(slot.wqe);
            }
        }
        self.tail = index.wrapping_add(1);
    }

    /// Whether a WQE in use was signalled, or a completion waits to be polled.
    pub fn any_signalled(&self) -> bool {
        let signalled = doorbell_core::verbs::SendFlags::SIGNALED;
        self.unpolled > 0 || self.slots.iter().any(|s| s.wqe.flags.contains(signalled))
    }

    /// CQEs of WQEs whose slots are back that nobody has polled.
    pub const fn unpolled(&self) -> u32 {
        self.unpolled
    }

    /// WQEs posted of which no completion that was polled has told.
    pub const fn untold(&self) -> u32 {
        self.prod.wrapping_sub(self.told)
    }

    /// WQEs on the chip, or on their way to it, that no processing unit has started.
    pub const fn ahead(&self) -> u32 {
        self.requested.wrapping_sub(self.started)
    }

    /// WQEs posted and not announced by any doorbell.
    pub const fn unannounced(&self) -> u32 {
        self.prod.wrapping_sub(self.announced)
    }

    /// Forgets every WQE (RESET). What the host has taken since it asked for that stays taken.
    pub fn reset(&mut self) {
        self.slots.clear();
        self.history.clear();
        self.unpolled = 0;
        let end = self.prod;
        self.tail = end;
        self.told = end;
        self.announced = end;
        self.requested = end;
        self.fetched = end;
        self.started = end;
    }
}

/// What a CQE says.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum CqeKind {
    /// The send WQE at `index` succeeded.
    Send {
        /// Free-running send-queue index.
        index: u32,
        /// What completed.
        op: WcOpcode,
        /// Bytes.
        len: u32,
    },
    /// A receive completed.
    Recv {
        /// What completed.
        op: WcOpcode,
        /// Bytes.
        len: u32,
        /// Immediate data.
        imm: Option<u32>,
        /// Key that was invalidated.
        invalidated: Option<Rkey>,
    },
    /// A WQE failed.
    Error {
        /// Which queue.
        queue: WorkQueue,
        /// Send-queue index; 0 for receives.
        index: u32,
        /// Why.
        status: WcStatus,
    },
}

/// A completion queue entry as the NIC writes it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Cqe {
    /// NIC index of the QP.
    pub qp: u32,
    /// Life of the QP in which it was made.
    pub life: u32,
    /// Of the work request.
    pub wr_id: u64,
    /// The rest.
    pub kind: CqeKind,
    /// Whether it counts for solicited-only notification.
    pub solicited: bool,
    /// Code of the vendor; 0 without an error.
    pub vendor_err: u32,
    /// When it became visible.
    pub landed: Time,
    /// Payload writes of its half of the QP that the NIC had issued before it, modulo 2³².
    pub follows: u32,
}

impl Cqe {
    /// Whether it wakes a program that waits for solicited completions only: a solicited receive,
    /// or any error (protocol.md §5.3).
    const fn is_urgent(&self) -> bool {
        self.solicited || matches!(self.kind, CqeKind::Error { .. })
    }

    /// Whether it is about a receive.
    pub const fn is_receive(&self) -> bool {
        match self.kind {
            CqeKind::Send { .. } => false,
            CqeKind::Recv { .. } => true,
            CqeKind::Error { queue, .. } => matches!(queue, WorkQueue::Recv),
        }
    }
}

/// A completion queue.
#[derive(Debug)]
pub struct CompletionQueue {
    entries: VecDeque<Cqe>,
    /// How many of them wake a program that waits for solicited completions only.
    urgent: u32,
    depth: u32,
    /// Overrun: the queue is lost.
    pub lost: bool,
    /// CQEs that landed.
    pub landed: u64,
    /// Initiator that polls it.
    pub owner: u16,
    /// Memory that the NIC writes its entries to.
    pub space: RegionKind,
    /// Most entries that waited at a time.
    pub high_water: u32,
    /// Polls find nothing, by a planned fault.
    hidden: bool,
    /// Polls that would have found an entry, and entries that would have woken a program.
    missed: u64,
}

impl CompletionQueue {
    /// Entries that it has.
    pub const fn depth(&self) -> u32 {
        self.depth
    }

    /// An empty queue of `depth` entries in `space`, polled by `owner`.
    pub const fn new(depth: u32, owner: u16, space: RegionKind) -> Self {
        Self {
            entries: VecDeque::new(),
            urgent: 0,
            depth,
            lost: false,
            landed: 0,
            owner,
            space,
            high_water: 0,
            hidden: false,
            missed: 0,
        }
    }

    /// A CQE lands. False: it found no free entry, and the queue is lost.
    pub fn land(&mut self, cqe: Cqe) -> bool {
        if self.lost || self.entries.len() as u32 >= self.depth {
            self.lost = true;
            return false;
        }
        self.landed += 1;
        self.urgent += u32::from(cqe.is_urgent());
        self.entries.push_back(cqe);
        self.high_water = self.high_water.max(self.entries.len() as u32);
        true
    }

    /// The oldest entry that landed no later than `by`.
    pub fn poll(&mut self, by: Time) -> Option<Cqe> {
        if self.hidden {
            self.missed += u64::from(self.oldest().is_some_and(|t| t <= by));
            return None;
        }
        let cqe = self.entries.pop_front_if(|e| e.landed <= by)?;
        self.urgent -= u32::from(cqe.is_urgent());
        Some(cqe)
    }

    /// Whether a program that waits for solicited completions only has something to see.
    pub const fn is_urgent(&self) -> bool {
        !self.hidden && self.has_urgent()
    }

    /// Whether an entry waits for such a program, hidden or not.
    pub const fn has_urgent(&self) -> bool {
        self.urgent > 0
    }

    /// When the oldest entry landed.
    pub fn oldest(&self) -> Option<Time> {
        self.entries.front().map(|e| e.landed)
    }

    /// Entries that wait.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether a poll would find none.
    pub fn is_empty(&self) -> bool {
        self.hidden || self.entries.is_empty()
    }

    /// Hides what lands from polls, or shows it again.
    pub const fn hide(&mut self, hidden: bool) {
        self.hidden = hidden;
    }

    /// Whether polls find nothing, whatever lands. A queue that is lost says so all the same: its
    /// event reaches the program by another way.
    pub const fn is_hidden(&self) -> bool {
        self.hidden && !self.lost
    }

    /// An entry would have woken a program if it were not hidden.
    pub const fn miss(&mut self) {
        self.missed += 1;
    }

    /// Polls that missed an entry while it was hidden, and entries that woke nobody for that.
    pub const fn missed(&self) -> u64 {
        self.missed
    }

    /// Drops the entries of a QP that was reset or destroyed.
    pub fn forget(&mut self, qp: u32) {
        self.entries.retain(|e| e.qp != qp);
        self.urgent = self.entries.iter().filter(|e| e.is_urgent()).count() as u32;
    }

    /// Entries of receives of a QP that nobody has polled.
    pub fn receives_of(&self, qp: u32) -> u64 {
        self.entries.iter().filter(|e| e.qp == qp && e.is_receive()).count() as u64
    }
}

/// Turns a CQE into what the program sees.
pub fn completion(cqe: &Cqe, qp: doorbell_core::transport::QpId, retired: u32) -> Completion {
    let wr_id = cqe.wr_id;
    match cqe.kind {
        CqeKind::Send { op, len, .. } => Completion::Send { wr_id, qp, op, len, retired },
        CqeKind::Recv { op, len, imm, invalidated } => {
            Completion::Recv { wr_id, qp, op, len, imm, invalidated }
        }
        CqeKind::Error { queue, status, .. } => {
            let vendor_err = cqe.vendor_err;
            Completion::Error { wr_id, qp, queue, status, vendor_err, retired }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wqe(id: u64) -> Wqe {
        Wqe { wr_id: id, ..Wqe::EMPTY }
    }

    #[test]
    fn one_completion_retires_all_before_it() {
        let mut q = SendQueue::new(0, SlotReclaim::OnPoll);
        for i in 0..5 {
            q.used += 1;
            q.used_blocks += 1;
            assert_eq!(q.push(wqe(i), Time::ZERO), i as u32);
        }
        assert_eq!(q.retire(2), 3);
        assert_eq!((q.used, q.used_blocks, q.tail()), (2, 2, 3));
        assert_eq!((q.untold(), q.most_untold), (2, 5));
        assert_eq!(q.retire(2), 0, "a second completion for the same slot retires nothing");
        assert_eq!(q.slot(3).unwrap().wqe.wr_id, 3);
        assert!(q.slot(2).is_none());
    }

    #[test]
    fn a_slot_comes_back_by_poll_or_by_completion_and_a_poll_tells_of_the_same() {
        for (reclaim, used) in [(SlotReclaim::OnPoll, 4), (SlotReclaim::OnCompletion, 1)] {
            let mut q = SendQueue::new(0, reclaim);
            for i in 0..4 {
                q.used += 1;
                q.used_blocks += 1;
                q.push(wqe(i), Time::ZERO);
            }
            q.complete(1, 0, true);
            q.complete(2, 1, true);
            assert_eq!((q.used, q.used_blocks, q.untold()), (used, used, 4));
            assert_eq!(q.any_signalled(), reclaim == SlotReclaim::OnCompletion, "its CQE waits");
            assert_eq!(q.retire(2), 3, "the CQE tells of all before it");
            assert_eq!((q.used, q.untold(), q.any_signalled()), (1, 1, false));
            assert_eq!(q.retire(2), 0);
            // The host has asked for a RESET and staged two WQEs of its new life.
            q.used = 2;
            q.complete(3, 1, false);
            assert_eq!(q.used, 2, "of a life that is over for the host");
            q.reset();
            assert_eq!((q.used, q.untold(), q.unpolled()), (2, 0, 0));
        }
    }

    #[test]
    fn the_former_content_of_a_ring_slot() {
        let mut q = SendQueue::new(4, SlotReclaim::OnPoll);
        assert_eq!(q.former(0, 4), Wqe::EMPTY, "a slot that was never written");
        for i in 0..4 {
            q.used += 1;
            q.used_blocks += 1;
            q.push(wqe(100 + i), Time::ZERO);
        }
        assert_eq!(q.former(4, 4).wr_id, 100, "still in use");
        q.retire(1);
        assert_eq!(q.former(4, 4).wr_id, 100);
        assert_eq!(q.former(5, 4).wr_id, 101);
        assert_eq!(q.former(6, 4).wr_id, 102);
    }

    #[test]
    fn indices_go_on_over_a_reset() {
        let mut q = SendQueue::new(2, SlotReclaim::OnPoll);
        for i in 0..3 {
            q.used += 1;
            q.push(wqe(i), Time::ZERO);
        }
        // The host counts from zero at its call, and has staged one WQE of the new life by the
        // time at which the device empties the queue.
        q.used = 1;
        q.reset();
        assert_eq!((q.used, q.prod(), q.tail(), q.unannounced()), (1, 3, 3, 0));
        assert!((0..5).all(|i| q.slot(i).is_none()), "no slot of either life");
        assert_eq!(q.former(3, 2), Wqe::EMPTY, "nor what the ring held before");
        assert_eq!(q.push(wqe(9), Time::ZERO), 3);
        assert_eq!(q.retire(1), 0, "an old completion retires nothing");
        assert_eq!((q.retire(3), q.used), (1, 0));
    }

    #[test]
    fn solicited_receives_and_errors_are_urgent() {
        let e = |qp, solicited, error| Cqe {
            qp,
            life: 0,
            wr_id: 0,
            kind: match error {
                true => {
                    let (queue, status) = (WorkQueue::Recv, WcStatus::WrFlushErr);
                    CqeKind::Error { queue, index: 0, status }
                }
                false => {
                    let (op, len) = (WcOpcode::Recv, 0);
                    CqeKind::Recv { op, len, imm: None, invalidated: None }
                }
            },
            solicited,
            vendor_err: 0,
            landed: Time::ZERO,
            follows: 0,
        };
        let mut cq = CompletionQueue::new(8, 0, RegionKind::Host { numa: 0 });
        for (cqe, urgent) in
            [(e(0, false, false), false), (e(1, true, false), true), (e(0, false, true), true)]
        {
            assert!(cq.land(cqe));
            assert_eq!(cq.is_urgent(), urgent);
        }
        cq.poll(Time::ZERO);
        cq.forget(1);
        assert!(cq.is_urgent(), "the error is left");
        cq.hide(true);
        assert!(!cq.is_urgent());
        cq.hide(false);
        cq.poll(Time::ZERO);
        assert!(!cq.is_urgent() && cq.is_empty());
    }

    #[test]
    fn overrun_at_the_exact_entry() {
        let e = |landed| Cqe {
            qp: 0,
            life: 0,
            wr_id: 0,
            kind: CqeKind::Send { index: 0, op: WcOpcode::RdmaWrite, len: 0 },
            solicited: false,
            vendor_err: 0,
            landed: Time::from_ps(landed),
            follows: 0,
        };
        let mut cq = CompletionQueue::new(2, 0, RegionKind::Host { numa: 0 });
        assert!(cq.land(e(5)));
        assert!(cq.land(e(6)));
        assert_eq!(cq.poll(Time::from_ps(4)), None, "not landed yet");
        assert!(!cq.land(e(7)));
        assert!(cq.lost);
    }
}
