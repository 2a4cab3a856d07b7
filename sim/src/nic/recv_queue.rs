//! Receive queues, as the host and the NIC share them, and what the NIC has read of them.

use std::collections::{BTreeSet, VecDeque};

use doorbell_core::transport::Sge;
use doorbell_core::units::{Span, Time};
use doorbell_core::verbs::Lkey;

use super::wqe::RqWqe;

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

#[cfg(test)]
mod tests {
    use super::*;

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
}
