//! Credits of an InfiniBand link, for one virtual lane of one direction.
//!
//! The receiver tells the sender, in flow-control packets, how far it may count: FCCL. The sender
//! counts the blocks that it has sent since the link came up: FCTBS. Both are 12 bits wide and
//! wrap. A flow-control packet also carries the FCTBS of its sender for the other direction, by
//! which the far end learns of blocks that never came: without that, every packet lost on the cable
//! would take its credit with it for ever (`protocol.md` §7.1).
//!
//! Both states are pure: they know neither time nor link. The order of a link is what makes them
//! safe: a flow-control packet arrives behind every packet that its FCTBS counts.

/// Unit of credit, bytes.
pub const BLOCK_BYTES: u32 = 64;

/// Most blocks that a receiver grants ahead, 128 KiB per virtual lane.
pub const MAX_CREDIT: u16 = 2048;

/// Counters have 12 bits.
const MASK: u16 = 0xFFF;

/// Blocks of a packet of so many bytes, from the LRH to the VCRC.
///
/// # Panics
/// When it has none, or more than [`MAX_CREDIT`] blocks: no grant could ever cover it.
pub const fn blocks(bytes: u32) -> u16 {
    let blocks = bytes.div_ceil(BLOCK_BYTES);
    assert!(1 <= blocks && blocks <= MAX_CREDIT as u32, "no packet of a link");
    blocks as u16
}

/// The sending end. A link that comes up grants nothing before the first flow-control packet.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct CreditSender {
    fctbs: u16,
    fccl: u16,
}

impl CreditSender {
    /// Total of the blocks sent, modulo 4096; what its flow-control packets carry.
    pub const fn fctbs(&self) -> u16 {
        self.fctbs
    }

    /// Blocks that may still be sent, 0 to [`MAX_CREDIT`].
    pub const fn credits(&self) -> u16 {
        let ahead = self.fccl.wrapping_sub(self.fctbs) & MASK;
        if ahead <= MAX_CREDIT { ahead } else { 0 }
    }

    /// Whether a packet of `blocks` may go: the limit is not passed by it, modulo 4096.
    pub const fn may_send(&self, blocks: u16) -> bool {
        let after = self.fctbs.wrapping_add(blocks);
        blocks <= MAX_CREDIT && self.fccl.wrapping_sub(after) & MASK <= MAX_CREDIT
    }

    /// A packet of `blocks` goes.
    ///
    /// # Panics
    /// When it may not.
    pub const fn sent(&mut self, blocks: u16) {
        assert!(self.may_send(blocks), "a packet without credit");
        self.fctbs = self.fctbs.wrapping_add(blocks) & MASK;
    }

    /// The receiver says how far to go. True when that is farther than before: a repetition says
    /// nothing new.
    pub const fn limit(&mut self, fccl: u16) -> bool {
        let new = self.fccl != fccl & MASK;
        self.fccl = fccl & MASK;
        new
    }
}

/// The receiving end and its buffer.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct CreditReceiver {
    /// Adjusted blocks received, modulo 4096.
    abr: u16,
    buffer: u32,
    used: u32,
    /// Blocks of copies, whose room is no part of the buffer.
    copies: u32,
}

impl CreditReceiver {
    /// A receiver with room for `buffer` blocks. More than [`MAX_CREDIT`] are never granted at
    /// once; a larger buffer still helps, since it goes on granting while it fills.
    pub const fn new(buffer: u32) -> Self {
        Self { abr: 0, buffer, used: 0, copies: 0 }
    }

    /// Blocks in use.
    pub const fn used(&self) -> u32 {
        self.used
    }

    /// Room, in blocks.
    pub const fn buffer(&self) -> u32 {
        self.buffer
    }

    /// Adjusted blocks received, modulo 4096: what came, and what is known to be lost.
    pub const fn abr(&self) -> u16 {
        self.abr
    }

    /// How far the sender may count, modulo 4096.
    pub const fn fccl(&self) -> u16 {
        let free = self.buffer + self.copies - self.used;
        let ahead = if free < MAX_CREDIT as u32 { free as u16 } else { MAX_CREDIT };
        self.abr.wrapping_add(ahead) & MASK
    }

    /// A packet of `blocks` has come.
    ///
    /// # Panics
    /// When there is no room: its sender had no credit for it.
    pub const fn received(&mut self, blocks: u16) {
        let room = self.buffer + self.copies;
        assert!(self.used + blocks as u32 <= room, "a packet beyond the credit");
        self.used += blocks as u32;
        self.abr = self.abr.wrapping_add(blocks) & MASK;
    }

    /// A packet of `blocks` has left the buffer.
    ///
    /// # Panics
    /// When fewer are in use.
    pub const fn freed(&mut self, blocks: u16) {
        let left = self.used.checked_sub(blocks as u32);
        self.used = left.expect("more blocks leave the buffer than came");
        // What leaves pays for copies first.
        self.copies = self.copies.saturating_sub(blocks as u32);
    }

    /// A fault has made a copy of a packet of `blocks`, which is about to come: nobody granted its
    /// room, and its sender does not count it.
    pub const fn copied(&mut self, blocks: u16) {
        self.copies += blocks as u32;
        self.abr = self.abr.wrapping_sub(blocks) & MASK;
    }

    /// The sender's total, as a flow-control packet brings it behind everything that it counts:
    /// what is missing was lost, and its credit is given again. Gives the blocks that were missing.
    pub const fn total_sent(&mut self, fctbs: u16) -> u16 {
        let lost = fctbs.wrapping_sub(self.abr) & MASK;
        self.abr = fctbs & MASK;
        lost
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    /// A sender that the receiver of `buffer` blocks has told its first limit.
    fn link(buffer: u32) -> (CreditSender, CreditReceiver) {
        let (mut s, r) = (CreditSender::default(), CreditReceiver::new(buffer));
        s.limit(r.fccl());
        (s, r)
    }

    #[test]
    fn a_block_is_begun_by_its_first_byte() {
        for (bytes, n) in [(1, 1), (64, 1), (65, 2), (128, 2), (4122, 65), (131_072, 2048)] {
            assert_eq!(blocks(bytes), n, "{bytes} bytes");
        }
    }

    #[test]
    #[should_panic(expected = "no packet of a link")]
    fn a_packet_larger_than_the_largest_credit() {
        blocks(131_073);
    }

    #[test]
    #[should_panic(expected = "no packet of a link")]
    fn a_packet_without_bytes() {
        blocks(0);
    }

    #[test]
    fn nothing_goes_before_the_first_limit() {
        let s = CreditSender::default();
        assert!(!s.may_send(1));
        assert_eq!(s.credits(), 0);
    }

    #[test]
    fn the_last_block_goes_and_one_more_does_not() {
        for buffer in [1, 2, 65, 2047, 2048] {
            let (mut s, _) = link(buffer);
            let all = buffer as u16;
            assert_eq!(s.credits(), all);
            assert!(s.may_send(all) && !s.may_send(all + 1), "{buffer}");
            s.sent(all);
            assert!(!s.may_send(1) && s.credits() == 0, "{buffer}");
        }
    }

    #[test]
    fn no_more_than_2048_blocks_are_granted_ahead() {
        let (mut s, mut r) = link(5_000);
        assert_eq!(s.credits(), 2048);
        s.sent(2048);
        r.received(2048);
        assert!(s.limit(r.fccl()), "a large buffer grants on while it fills");
        assert_eq!(s.credits(), 2048);
        s.sent(2048);
        r.received(2048);
        s.limit(r.fccl());
        assert_eq!(s.credits(), 5_000 - 4_096);
    }

    #[test]
    #[should_panic(expected = "a packet without credit")]
    fn a_sender_stays_within_its_limit() {
        link(3).0.sent(4);
    }

    #[test]
    #[should_panic(expected = "a packet beyond the credit")]
    fn a_receiver_holds_its_sender_to_the_limit() {
        CreditReceiver::new(3).received(4);
    }

    #[test]
    #[should_panic(expected = "more blocks leave the buffer than came")]
    fn a_block_leaves_once() {
        let mut r = CreditReceiver::new(3);
        r.received(2);
        r.freed(3);
    }

    #[test]
    fn a_lost_packet_takes_its_credit_until_the_next_total() {
        let (mut s, mut r) = link(100);
        s.sent(65);
        assert!(!s.limit(r.fccl()), "the receiver knows of nothing");
        assert_eq!(s.credits(), 35);
        assert_eq!(r.total_sent(s.fctbs()), 65);
        assert!(s.limit(r.fccl()));
        assert_eq!(s.credits(), 100);
        assert_eq!(r.total_sent(s.fctbs()), 0, "once");
    }

    #[test]
    fn a_copy_gives_and_takes_no_credit() {
        let (mut s, mut r) = link(10);
        s.sent(4);
        r.received(4);
        r.copied(4);
        r.received(4);
        s.sent(6);
        r.received(6);
        assert_eq!((s.credits(), r.used(), r.fccl()), (0, 14, 10));
        for (freed, fccl) in [(4, 10), (6, 16), (4, 20)] {
            r.freed(freed);
            assert_eq!(r.fccl(), fccl);
        }
        assert_eq!(r.total_sent(s.fctbs()), 0, "nothing was lost");
    }

    /// One step of a link that loses.
    #[derive(Copy, Clone, Debug)]
    enum Step {
        /// Send a packet of so many blocks, if that is allowed; lose it on the way, or not.
        Packet(u16, bool),
        /// The sender's flow-control packet, lost or not.
        Total(bool),
        /// The receiver's flow-control packet, lost or not.
        Limit(bool),
        /// The receiver is done with its oldest packet.
        Free,
        /// What is first on the cable arrives, in one direction and in the other.
        Deliver,
        Hear,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (1u16..=66, prop::bool::weighted(0.2)).prop_map(|(n, lost)| Step::Packet(n, lost)),
            1 => prop::bool::weighted(0.5).prop_map(Step::Total),
            3 => prop::bool::weighted(0.5).prop_map(Step::Limit),
            3 => Just(Step::Free),
            4 => Just(Step::Deliver),
            3 => Just(Step::Hear),
        ]
    }

    #[derive(Copy, Clone, Debug)]
    enum Item {
        Packet(u16, bool),
        Total(u16, bool),
    }

    /// Two ends and the two directions of the cable between them, both in order.
    struct Pair {
        sender: CreditSender,
        receiver: CreditReceiver,
        there: VecDeque<Item>,
        back: VecDeque<(u16, bool)>,
        held: VecDeque<u16>,
        /// Blocks sent, without a modulus.
        sent: u64,
    }

    impl Pair {
        fn new(buffer: u32, first: u16) -> Self {
            let (mut sender, mut receiver) = link(buffer);
            // A link that has been up for a while: the counters stand anywhere.
            (sender.fctbs, receiver.abr) = (first, first);
            sender.limit(receiver.fccl());
            let (there, back, held) = (VecDeque::new(), VecDeque::new(), VecDeque::new());
            Self { sender, receiver, there, back, held, sent: 0 }
        }

        fn step(&mut self, step: Step) {
            match step {
                Step::Packet(n, lost) => {
                    if self.sender.may_send(n) {
                        self.sender.sent(n);
                        self.sent += u64::from(n);
                        self.there.push_back(Item::Packet(n, lost));
                    }
                }
                Step::Total(lost) => self.there.push_back(Item::Total(self.sender.fctbs(), lost)),
                Step::Limit(lost) => self.back.push_back((self.receiver.fccl(), lost)),
                Step::Free => {
                    if let Some(n) = self.held.pop_front() {
                        self.receiver.freed(n);
                    }
                }
                // A packet beyond the room would panic in `received`.
                Step::Deliver => match self.there.pop_front() {
                    Some(Item::Packet(n, false)) => {
                        self.receiver.received(n);
                        self.held.push_back(n);
                    }
                    Some(Item::Total(fctbs, false)) => {
                        self.receiver.total_sent(fctbs);
                    }
                    _ => {}
                },
                Step::Hear => {
                    if let Some((fccl, false)) = self.back.pop_front() {
                        self.sender.limit(fccl);
                    }
                }
            }
        }

        /// Everything arrives, then one flow-control packet each way does.
        fn settle(&mut self) {
            while !self.there.is_empty() {
                self.step(Step::Deliver);
            }
            self.back.clear();
            for n in std::mem::take(&mut self.held) {
                self.receiver.freed(n);
            }
            for step in [Step::Total(false), Step::Deliver, Step::Limit(false), Step::Hear] {
                self.step(step);
            }
        }
    }

    proptest! {
        /// Whatever is lost, the sender never has more credit than there is room beyond what is on
        /// the cable, and one flow-control packet each way brings all of it back.
        #[test]
        fn credit_is_never_more_than_room_and_never_leaks_for_ever(
            buffer in prop_oneof![66u32..=300, 1_900u32..=2_200, Just(5_000u32)],
            first in prop_oneof![Just(0u16), 3_900u16..=4_095, 0u16..=4_095],
            steps in prop::collection::vec(step(), 1..600),
        ) {
            let mut p = Pair::new(buffer, first);
            for s in steps {
                p.step(s);
                let on_cable: u32 = p.there.iter().map(|i| match i {
                    Item::Packet(n, false) => u32::from(*n),
                    _ => 0,
                }).sum();
                let room = buffer - p.receiver.used();
                let credit = u32::from(p.sender.credits());
                prop_assert!(credit + on_cable <= room, "{credit} + {on_cable} > {room}");
                prop_assert_eq!(u64::from(p.sender.fctbs()), (u64::from(first) + p.sent) % 4096);
            }
            p.settle();
            prop_assert_eq!(u32::from(p.sender.credits()), buffer.min(MAX_CREDIT.into()));
        }
    }

    /// The counters pass their modulus many times and nothing changes.
    #[test]
    fn counters_wrap() {
        let (mut s, mut r) = link(130);
        for i in 0..1_000u32 {
            assert!(s.may_send(65) && s.may_send(130) && !s.may_send(131), "packet {i}");
            s.sent(65);
            r.received(65);
            assert_eq!(s.credits(), 65);
            r.freed(65);
            assert!(s.limit(r.fccl()));
        }
        assert_eq!(u32::from(s.fctbs()), 65 * 1_000 % 4_096);
    }
}
