//! Send, receive and completion queues, as the host and the NIC share them.

use std::collections::{BTreeSet, VecDeque};

use doorbell_core::transport::{Completion, Sge, WorkQueue};
use doorbell_core::units::{Span, Time};
use doorbell_core::verbs::{Lkey, Rkey, WcOpcode, WcStatus};

use super::wqe::{Landing, RqWqe, SqSlot, Wqe};
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

/// Receives that are posted and not taken, over all queues of a NIC: memory that is set aside.
#[derive(Copy, Clone, Default, PartialEq, Eq, Debug)]
pub struct PostedReceives {
    /// Receives.
    pub wqes: u64,
    /// Bytes of their buffers.
    pub bytes: u64,
    /// Most receives at a time.
    pub peak_wqes: u64,
    /// Most bytes at a time.
    pub peak_bytes: u64,
}

impl PostedReceives {
    /// A buffer was posted.
    pub fn add(&mut self, wqe: &RqWqe) {
        self.wqes += 1;
        self.bytes += u64::from(wqe.sge.len);
        self.peak_wqes = self.peak_wqes.max(self.wqes);
        self.peak_bytes = self.peak_bytes.max(self.bytes);
    }

    /// A buffer was taken by a message, flushed, or went with its queue.
    pub fn remove(&mut self, wqe: &RqWqe) {
        debug_assert!(self.wqes > 0 && self.bytes >= u64::from(wqe.sge.len));
        self.wqes -= 1;
        self.bytes -= u64::from(wqe.sge.len);
    }
}

/// Place in the order in which the receive units of a NIC were done with packets.
pub type Turn = u64;

/// A receive queue or shared receive queue.
#[derive(Debug, Default)]
pub struct RecvQueue {
    /// Posted receives, oldest first.
    wqes: VecDeque<RqWqe>,
    /// How many of the oldest the NIC has read.
    pub fetched: u32,
    /// Reads under way of the receives behind those, in their order.
    reads: VecDeque<RecvRead>,
    /// Receives that they read.
    reading: u32,
    /// Number of the next read.
    next_read: u32,
    /// Most that may be posted.
    depth: u32,
    /// Posted so far.
    posted: u64,
    /// Receives whose posting has been called for and not taken effect.
    coming: u32,
    /// Receives that the host counts as posted: those that came and those that will.
    held: u32,
    /// Limit at which an event is due; 0: not armed.
    pub limit: u32,
    /// Fewest receives left after one was taken.
    pub low_water: u32,
    /// What is posted is hidden from the NIC, by a planned fault.
    pub withheld: bool,
    /// Queue pairs whose oldest packet waits until a receive is read, in the order in which these
    /// packets came.
    waiting: BTreeSet<(Turn, u32)>,
    /// Since when a packet waits for a receive to be read.
    starved_since: Option<Time>,
    /// Reads that have ended,
    pub fetches: u64,
    /// the receives that they read,
    pub fetched_wqes: u64,
    /// and the time of all of them.
    pub fetch_time: Span,
    /// Time in which a packet waited for a receive that was posted and not read.
    pub starved: Span,
}

/// A read of receive WQEs.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct RecvRead {
    number: u32,
    wqes: u32,
    ended: bool,
}

/// How a NIC reads receive WQEs.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct RecvFetch {
    /// WQEs of a read at most, at least 1.
    pub most: u32,
    /// WQEs that a queue in use has on the chip or on their way before it stops reading; 0: it
    /// reads when a message needs one.
    pub ahead: u32,
}

impl RecvQueue {
    /// An empty queue for `depth` receives.
    pub fn new(depth: u32) -> Self {
        Self { depth, low_water: u32::MAX, ..Self::default() }
    }

    /// Receives posted and not taken.
    pub fn len(&self) -> u32 {
        self.wqes.len() as u32
    }

    /// Whether a packet with this turn that needs a receive has to wait: one is posted, and none is
    /// read, or another came earlier.
    pub fn holds_back(&self, turn: Turn) -> bool {
        let earlier = || self.waiting.first().is_some_and(|(first, _)| *first < turn);
        !self.is_empty() && (self.fetched == 0 || earlier())
    }

    /// The oldest packet of `qp` waits.
    pub fn wait(&mut self, now: Time, turn: Turn, qp: u32) {
        self.waiting.insert((turn, qp));
        self.starved_since.get_or_insert(now);
    }

    /// Starts a read that a waiting packet needs, if none is under way; returns its number and its
    /// WQEs, which are those posted by now.
    pub fn read_needed(&mut self, how: RecvFetch) -> Option<(u32, u32)> {
        (self.fetched == 0 && self.reads.is_empty()).then(|| self.read(how.most))?
    }

    /// Starts a read ahead of need, if fewer are on the chip or on their way than `how` keeps
    /// there. It reads as many as one read can, unless the chip has none left: parts of a line
    /// would cost a read each.
    pub fn read_ahead(&mut self, how: RecvFetch) -> Option<(u32, u32)> {
        let known = self.fetched + self.reading;
        let whole = self.len() - known >= how.most || known == 0;
        (known < how.ahead && whole && !self.is_empty()).then(|| self.read(how.most))?
    }

    /// Starts a read of up to `most` of those posted that are not read.
    fn read(&mut self, most: u32) -> Option<(u32, u32)> {
        let wqes = (self.len() - self.fetched - self.reading).min(most);
        let number = self.next_read;
        if wqes == 0 {
            return None;
        }
        self.next_read = number.wrapping_add(1);
        self.reading += wqes;
        self.reads.push_back(RecvRead { number, wqes, ended: false });
        Some((number, wqes))
    }

    /// A read has ended, `took` after its start. What it read is there once all earlier ones have
    /// ended. False: it was of receives that are gone.
    pub fn read_ended(&mut self, now: Time, number: u32, took: Span) -> bool {
        let Some(read) = self.reads.iter_mut().find(|r| r.number == number) else { return false };
        read.ended = true;
        self.fetches += 1;
        self.fetched_wqes += u64::from(read.wqes);
        self.fetch_time += took;
        while let Some(read) = self.reads.pop_front_if(|r| r.ended) {
            self.reading -= read.wqes;
            self.fetched += read.wqes;
        }
        debug_assert!(self.fetched + self.reading <= self.len());
        if self.fetched > 0 {
            self.ends_starving(now);
        }
        true
    }

    /// Those whose turn came were served or refused, and the others wait for the next read.
    pub fn still_waits(&mut self, now: Time) {
        if self.waiting.is_empty() {
            self.ends_starving(now);
        } else {
            self.starved_since.get_or_insert(now);
        }
    }

    /// What is on its way is of no use to anybody.
    fn forget_reads(&mut self) {
        self.reads.clear();
        self.reading = 0;
        self.starved_since = None;
    }

    /// The queue pair whose packet is next, if there is something to decide about it: a receive
    /// has been read, or there is none and it is refused.
    pub fn next_served(&mut self) -> Option<u32> {
        let ready = self.fetched > 0 || self.is_empty();
        ready.then(|| self.waiting.pop_first())?.map(|(_, qp)| qp)
    }

    /// Queue pairs that wait, the first in turn first.
    pub fn waiting(&self) -> impl Iterator<Item = u32> {
        self.waiting.iter().map(|(_, qp)| *qp)
    }

    /// That packet waits no more.
    pub fn forget(&mut self, now: Time, turn: Turn, qp: u32) {
        if self.waiting.remove(&(turn, qp)) && self.waiting.is_empty() {
            self.ends_starving(now);
        }
    }

    fn ends_starving(&mut self, now: Time) {
        if let Some(since) = self.starved_since.take() {
            self.starved += now.since(since);
        }
    }

    /// How many of them name the region of `lkey`.
    pub fn naming(&self, lkey: Lkey) -> u64 {
        self.wqes.iter().filter(|w| w.sge.lkey == lkey).count() as u64
    }

    /// Whether the NIC sees none that is posted.
    pub fn is_empty(&self) -> bool {
        self.withheld || self.wqes.is_empty()
    }

    /// Most that may be posted.
    pub const fn depth(&self) -> u32 {
        self.depth
    }

    /// Posted since creation.
    pub const fn posted(&self) -> u64 {
        self.posted
    }

    /// Receives posted, those included whose posting has not taken effect.
    pub const fn reserved(&self) -> u32 {
        self.held
    }

    /// Keeps room for `n` receives that will be posted at a later local clock.
    pub fn reserve(&mut self, n: u32) {
        self.coming += n;
        self.held += n;
    }

    /// The host has asked for a RESET: all room is its own again.
    pub const fn give_back_room(&mut self) {
        self.held = 0;
    }

    /// Forgets every receive (RESET); those posted after the call are still to come.
    pub fn reset(&mut self, posted: &mut PostedReceives) {
        self.wqes.drain(..).for_each(|w| posted.remove(&w));
        self.fetched = 0;
        self.forget_reads();
        self.held = self.coming;
    }

    /// Posts a receive; room was reserved before.
    pub fn push(&mut self, wqe: RqWqe) {
        self.posted += 1;
        self.coming = self.coming.saturating_sub(1);
        self.wqes.push_back(wqe);
    }

    /// Where the message goes that takes the next receive.
    pub fn next_sge(&self) -> Option<Sge> {
        self.wqes.front().map(|wqe| wqe.sge)
    }

    /// Takes the oldest receive that the NIC has read.
    pub fn take(&mut self) -> Option<RqWqe> {
        if self.fetched == 0 {
            return None;
        }
        self.fetched -= 1;
        let wqe = self.wqes.pop_front();
        self.held = self.held.saturating_sub(1);
        self.low_water = self.low_water.min(self.len());
        wqe
    }

    /// Takes the oldest receive whether read or not, to flush it.
    pub fn flush_one(&mut self) -> Option<RqWqe> {
        self.forget_reads();
        self.fetched = self.fetched.saturating_sub(1);
        let wqe = self.wqes.pop_front();
        self.held = self.held.saturating_sub(u32::from(wqe.is_some()));
        wqe
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
    fn the_oldest_packet_that_waits_has_the_receive_that_was_read() {
        let mut q = RecvQueue::new(4);
        assert!(!q.holds_back(1), "nothing is posted: it is refused, and waits for nothing");
        (0..2).for_each(|wr_id| q.push(RqWqe { wr_id, sge: Default::default() }));
        assert!(q.holds_back(1), "nothing is read");
        [(7, 1), (5, 2), (6, 3)].into_iter().for_each(|(turn, qp)| q.wait(Time::ZERO, turn, qp));
        assert_eq!(q.next_served(), None);
        read(&mut q, 1);
        assert_eq!(q.next_served(), Some(2));
        assert!(!q.holds_back(5), "its turn");
        assert!(q.holds_back(7), "6 came earlier");
        q.take();
        assert_eq!(q.next_served(), None, "the next one is not read");
        q.forget(Time::ZERO, 6, 3);
        assert!(q.waiting().eq([1]));
        q.flush_one();
        assert_eq!(q.next_served(), Some(1), "it is refused");
    }

    #[test]
    fn a_receive_is_taken_only_after_it_was_read() {
        let mut q = RecvQueue::new(4);
        q.push(RqWqe { wr_id: 1, sge: Default::default() });
        assert!(q.take().is_none());
        read(&mut q, 1);
        assert_eq!(q.take().unwrap().wr_id, 1);
        assert_eq!(q.low_water, 0);
    }

    /// Reads `n` receives at once.
    fn read(q: &mut RecvQueue, n: u32) {
        let (number, wqes) = q.read_needed(RecvFetch { most: n, ahead: 0 }).expect("posted");
        assert_eq!(wqes, n);
        assert!(q.read_ended(Time::ZERO, number, Span::ZERO));
    }

    fn posted(n: u64) -> RecvQueue {
        let mut q = RecvQueue::new(64);
        (0..n).for_each(|wr_id| q.push(RqWqe { wr_id, sge: Default::default() }));
        q
    }

    #[test]
    fn the_next_read_starts_below_the_low_mark_and_not_at_it() {
        let how = RecvFetch { most: 4, ahead: 8 };
        let mut q = posted(40);
        assert_eq!(q.read_needed(how), Some((0, 4)), "a cold queue: what the message needs");
        assert_eq!(q.read_needed(how), None, "it is on its way");
        assert!(q.read_ended(Time::ZERO, 0, Span::ZERO));
        q.take();
        // Three are left, then seven and eleven with those on their way.
        assert_eq!(q.read_ahead(how), Some((1, 4)));
        assert_eq!(q.read_ahead(how), Some((2, 4)));
        assert_eq!(q.read_ahead(how), None);
        (0..3).for_each(|_| assert!(q.take().is_some()));
        assert!(q.take().is_none(), "eight are on their way");
        assert_eq!(q.read_ahead(how), None, "and that is the mark");
        assert!(q.read_ended(Time::ZERO, 1, Span::ZERO));
        q.take();
        assert_eq!(q.read_ahead(how), Some((3, 4)), "one below it");
        // Without a mark nothing is read ahead, be it that none is left.
        let mut q = posted(8);
        read(&mut q, 1);
        q.take();
        let never = RecvFetch { most: 4, ahead: 0 };
        assert_eq!(q.read_ahead(never), None);
        assert_eq!(q.read_ahead(RecvFetch { ahead: 1, ..never }), Some((1, 4)));
    }

    #[test]
    fn parts_of_a_line_are_read_when_the_chip_has_none_left() {
        let how = RecvFetch { most: 4, ahead: 8 };
        for (n, next) in [(7, None), (8, Some((1, 4)))] {
            let mut q = posted(n);
            read(&mut q, 4);
            q.take();
            assert_eq!(q.read_ahead(how), next, "{n}");
        }
        let mut q = posted(6);
        read(&mut q, 4);
        (0..4).for_each(|_| assert!(q.take().is_some()));
        assert_eq!(q.read_ahead(how), Some((1, 2)));
        q.withheld = true;
        assert!(q.read_ended(Time::ZERO, 1, Span::ZERO));
        q.push(RqWqe { wr_id: 9, sge: Default::default() });
        q.fetched = 0;
        assert_eq!(q.read_ahead(how), None, "hidden");
    }

    #[test]
    fn a_read_sees_what_was_posted_when_it_began() {
        let how = RecvFetch { most: 4, ahead: 8 };
        let mut q = posted(1);
        assert_eq!(q.read_needed(how), Some((0, 1)));
        (1..4).for_each(|wr_id| q.push(RqWqe { wr_id, sge: Default::default() }));
        assert!(q.read_ended(Time::ZERO, 0, Span::ZERO));
        assert_eq!((q.fetched, q.len()), (1, 4));
        assert!(q.take().is_some() && q.take().is_none());
    }

    #[test]
    fn reads_count_in_the_order_in_which_they_began() {
        let how = RecvFetch { most: 2, ahead: 6 };
        let mut q = posted(6);
        read(&mut q, 1);
        assert_eq!((q.read_ahead(how), q.read_ahead(how)), (Some((1, 2)), Some((2, 2))));
        q.take();
        assert!(q.read_ended(Time::ZERO, 2, Span::from_ns(5)));
        assert_eq!(q.fetched, 0, "the one before it has not ended");
        assert!(q.read_ended(Time::ZERO, 1, Span::from_ns(9)));
        assert_eq!((q.fetched, q.fetches, q.fetched_wqes), (4, 3, 5));
        assert_eq!(q.fetch_time, Span::from_ns(14));
    }

    #[test]
    fn a_read_of_receives_that_are_gone_reads_nothing() {
        let gone = |empty: &dyn Fn(&mut RecvQueue)| {
            let mut q = posted(4);
            let how = RecvFetch { most: 4, ahead: 8 };
            q.wait(Time::ZERO, 1, 7);
            assert_eq!(q.read_needed(how), Some((0, 4)));
            empty(&mut q);
            q.forget(Time::ZERO, 1, 7);
            (4..8).for_each(|wr_id| q.push(RqWqe { wr_id, sge: Default::default() }));
            assert!(!q.read_ended(Time::from_ps(9), 0, Span::ZERO));
            assert_eq!((q.fetched, q.fetches, q.starved), (0, 0, Span::ZERO));
            assert_eq!(q.read_needed(how), Some((1, 4)), "it is read anew");
            assert!(q.read_ended(Time::from_ps(9), 1, Span::ZERO));
            assert_eq!(q.take().unwrap().wr_id, 4);
        };
        gone(&|q| q.reset(&mut PostedReceives { wqes: 4, ..PostedReceives::default() }));
        gone(&|q| while q.flush_one().is_some() {});
    }

    #[test]
    fn time_in_which_packets_wait_is_counted_until_a_receive_is_read() {
        let how = RecvFetch { most: 1, ahead: 0 };
        let at = Time::from_ps;
        let mut q = posted(2);
        q.wait(at(10), 1, 1);
        q.wait(at(12), 2, 2);
        q.read_needed(how).unwrap();
        assert!(q.read_ended(at(30), 0, Span::from_ps(20)));
        assert_eq!((q.next_served(), q.starved), (Some(1), Span::from_ps(20)));
        q.take();
        q.still_waits(at(31));
        q.read_needed(how).unwrap();
        assert!(q.read_ended(at(51), 1, Span::from_ps(20)));
        assert_eq!((q.next_served(), q.starved), (Some(2), Span::from_ps(40)));
        // A third one comes, finds none posted when its turn is there, and is refused.
        q.wait(at(52), 3, 3);
        q.take();
        assert_eq!(q.next_served(), Some(3));
        q.still_waits(at(52));
        q.push(RqWqe { wr_id: 2, sge: Default::default() });
        q.read_needed(how).unwrap();
        assert!(q.read_ended(at(90), 2, Span::from_ps(20)));
        assert_eq!(q.starved, Span::from_ps(40), "nobody waited");
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
    fn a_reset_keeps_room_for_receives_that_are_still_to_come() {
        let mut q = RecvQueue::new(4);
        q.reserve(4);
        (0..4).for_each(|wr_id| q.push(RqWqe { wr_id, sge: Default::default() }));
        assert_eq!((q.len(), q.reserved()), (4, 4));
        q.give_back_room();
        assert_eq!(q.reserved(), 0);
        q.reserve(3);
        read(&mut q, 1);
        q.take();
        let mut posted = PostedReceives { wqes: 3, peak_wqes: 4, ..PostedReceives::default() };
        q.reset(&mut posted);
        assert_eq!((q.len(), q.reserved(), q.fetched), (0, 3, 0));
        assert_eq!((posted.wqes, posted.peak_wqes), (0, 4));
        (0..3).for_each(|wr_id| q.push(RqWqe { wr_id, sge: Default::default() }));
        assert_eq!((q.len(), q.reserved()), (3, 3));
        assert!(q.flush_one().is_some());
        assert_eq!(q.reserved(), 2);
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
