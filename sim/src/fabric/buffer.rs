//! The shared buffer of a switch, as accounts of bytes. It knows no packet, no port and no time.

use doorbell_core::units::Ratio;

/// How the shared part of a buffer is divided.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Sharing {
    /// A queue may hold `alpha` times what is free (Choudhury and Hahne, "Dynamic queue length
    /// thresholds", 1998). Higher: one port may take more, and less is left for a burst at another.
    /// With n queues that would all take more, each gets alpha / (1 + n·alpha) of the whole.
    Dynamic {
        /// At least above 0.
        alpha: Ratio,
    },
    /// Every queue may hold its equal part and no more.
    Static,
}

/// When the sender of an input queue is paused.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum PauseAt {
    /// When the queue would pass its share of the buffer; it goes on when it is `hysteresis` bytes
    /// below.
    Share {
        /// Bytes between pause and resume. Less: more pause frames.
        hysteresis: u64,
    },
    /// At fixed numbers, whatever is free.
    Fixed {
        /// Bytes that the queue may reach.
        xoff: u64,
        /// Bytes at which the sender may go on, at most `xoff`.
        xon: u64,
    },
}

/// Sizes of a shared buffer, in bytes on the wire.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BufferSizes {
    /// All of it.
    pub total: u64,
    /// For each input queue alone.
    pub reserved: u64,
    /// Headroom of each input queue: port by port, and class by class in it.
    pub headroom: Vec<u64>,
    /// Division of what is neither reserved nor headroom.
    pub sharing: Sharing,
    /// When a lossless queue is full.
    pub pause_at: PauseAt,
    /// Classes per port.
    pub classes: usize,
}

impl BufferSizes {
    /// Most bytes that may ever wait in a class for one output, if it is alone: where the dynamic
    /// threshold meets the queue. A lossy class fills its output's share; of a lossless class every
    /// input may fill its own, and its headroom. Without anything to share, the whole buffer.
    pub(super) fn largest_queue(&self, class: usize, lossless: bool) -> u64 {
        let queues = self.headroom.len() as u64;
        let reserved = self.reserved.saturating_mul(queues);
        let kept = self.headroom.iter().fold(reserved, |sum, h| sum.saturating_add(*h));
        let Some(pool) = self.total.checked_sub(kept).filter(|pool| *pool > 0) else {
            return self.total;
        };
        let inputs = queues / self.classes as u64;
        let own = self.reserved.saturating_mul(inputs);
        // n queues that each hold alpha times what they leave free.
        let dynamic = |alpha: Ratio, n: u64, pool: u64| {
            let (num, den) = (u128::from(alpha.num) * u128::from(n), u128::from(alpha.den));
            (u128::from(pool) * num / (den + num)) as u64
        };
        if !lossless {
            let share = match self.sharing {
                Sharing::Static => pool / queues,
                // What lies in reserved parts is not taken from the pool.
                Sharing::Dynamic { alpha } => dynamic(alpha, 1, pool + own),
            };
            return share.min(pool + own);
        }
        let shared = match (self.pause_at, self.sharing) {
            (PauseAt::Fixed { xoff, .. }, _) => xoff.saturating_mul(inputs).min(pool),
            (_, Sharing::Static) => pool / queues * inputs,
            (_, Sharing::Dynamic { alpha }) => dynamic(alpha, inputs, pool),
        };
        let headroom = self.headroom.iter().skip(class).step_by(self.classes);
        headroom.fold(shared + own, |sum, h| sum.saturating_add(*h))
    }
}

/// Why a packet finds no room.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum NoRoom {
    /// Its output queue has its share. Lossy classes.
    Output,
    /// Its input queue has its share, and the headroom is used up.
    Input,
}

/// What an input queue holds, by the part of the buffer.
#[derive(Copy, Clone, Default, Debug)]
struct Input {
    /// In the reserved and the shared part.
    bytes: u64,
    headroom: u64,
}

/// The accounts.
#[derive(Clone, Debug)]
pub struct Buffer {
    sizes: BufferSizes,
    /// Bytes to share.
    pool: u64,
    /// Of them in use.
    shared: u64,
    inputs: Vec<Input>,
    outputs: Vec<u64>,
    /// Most bytes in use at once.
    peak: u64,
}

impl Buffer {
    /// An empty buffer; `None` when reserved parts and headroom leave nothing to share.
    pub fn new(sizes: BufferSizes) -> Option<Self> {
        let queues = sizes.headroom.len();
        let reserved = sizes.reserved.checked_mul(queues as u64)?;
        let kept = sizes.headroom.iter().try_fold(reserved, |sum, h| sum.checked_add(*h))?;
        let pool = sizes.total.checked_sub(kept).filter(|pool| *pool > 0)?;
        let (inputs, outputs) = (vec![Input::default(); queues], vec![0; queues]);
        Some(Self { sizes, pool, shared: 0, inputs, outputs, peak: 0 })
    }

    /// Index of the queue of a class at a port.
    const fn at(&self, (port, class): (usize, u8)) -> usize {
        port * self.sizes.classes + class as usize
    }

    /// Bytes to share: all of it, less headroom and reserved parts.
    pub const fn to_share(&self) -> u64 {
        self.pool
    }

    /// Bytes in use.
    pub fn used(&self) -> u64 {
        self.inputs.iter().map(|q| q.bytes + q.headroom).sum()
    }

    /// Most bytes that were in use at once.
    pub const fn peak(&self) -> u64 {
        self.peak
    }

    /// Bytes of an input queue: without its headroom, and in it.
    pub fn input(&self, queue: (usize, u8)) -> (u64, u64) {
        let q = self.inputs[self.at(queue)];
        (q.bytes, q.headroom)
    }

    /// Bytes for an output queue.
    pub fn output(&self, queue: (usize, u8)) -> u64 {
        self.outputs[self.at(queue)]
    }

    /// Most bytes that one queue may take of the pool now.
    pub fn share(&self) -> u64 {
        self.share_beside(self.shared)
    }

    /// The same, with so many bytes of the pool in use.
    fn share_beside(&self, in_use: u64) -> u64 {
        let free = self.pool - in_use;
        match self.sizes.sharing {
            Sharing::Static => self.pool / self.inputs.len() as u64,
            Sharing::Dynamic { alpha } => {
                let share = u128::from(free) * u128::from(alpha.num) / u128::from(alpha.den);
                u64::try_from(share).unwrap_or(u64::MAX)
            }
        }
    }

    /// Bytes of an input queue that are in the shared part.
    const fn shared_of(&self, q: Input) -> u64 {
        q.bytes.saturating_sub(self.sizes.reserved)
    }

    /// Bytes that a lossless input queue may take of the pool before its sender is paused.
    fn limit(&self) -> u64 {
        match self.sizes.pause_at {
            PauseAt::Share { .. } => self.share(),
            PauseAt::Fixed { xoff, .. } => xoff,
        }
    }

    /// Takes a packet from `input` to `output`. Only a lossless class may use headroom.
    ///
    /// # Errors
    /// [`NoRoom`]; nothing has changed then.
    pub fn admit(
        &mut self,
        input: (usize, u8),
        output: (usize, u8),
        bytes: u64,
        lossless: bool,
    ) -> Result<(), NoRoom> {
        let (i, o) = (self.at(input), self.at(output));
        let mut q = self.inputs[i];
        let before = self.shared_of(q);
        q.bytes += bytes;
        let more = self.shared_of(q) - before;
        let fits = more <= self.pool - self.shared;
        let within = if lossless {
            more == 0 || before + more <= self.limit()
        } else {
            self.outputs[o] + bytes <= self.share()
        };
        if fits && within {
            self.shared += more;
        } else if !lossless {
            return Err(NoRoom::Output);
        } else {
            q = self.inputs[i];
            q.headroom += bytes;
            if q.headroom > self.sizes.headroom[i] {
                return Err(NoRoom::Input);
            }
        }
        self.inputs[i] = q;
        self.outputs[o] += bytes;
        self.peak = self.peak.max(self.used());
        Ok(())
    }

    /// A packet leaves. Headroom is freed first, so that it is there for the next burst.
    ///
    /// # Panics
    /// When more leaves than came: the accounts and the queues differ.
    pub fn release(&mut self, input: (usize, u8), output: (usize, u8), bytes: u64) {
        let (i, o) = (self.at(input), self.at(output));
        let q = self.inputs[i];
        let headroom = bytes.min(q.headroom);
        let rest = q.bytes.checked_sub(bytes - headroom).expect("more bytes leave than came");
        let after = Input { bytes: rest, headroom: q.headroom - headroom };
        self.shared -= self.shared_of(q) - self.shared_of(after);
        self.inputs[i] = after;
        self.outputs[o] = self.outputs[o].checked_sub(bytes).expect("more bytes leave than came");
    }

    /// Whether the sender of a lossless input queue must stop.
    pub fn must_pause(&self, input: (usize, u8)) -> bool {
        let q = self.inputs[self.at(input)];
        q.headroom > 0 || self.shared_of(q) > 0 && self.shared_of(q) >= self.limit()
    }

    /// Lets the sender of a paused input queue go on, if its share has room for all that the queue
    /// holds by now: what lies in the headroom is counted in the share from then on, so that the
    /// headroom is free for the next pause. What raises the share may be packets of other inputs;
    /// those of this one may be stuck. With something in its headroom there must be room for a
    /// whole headroom more: the sender would be paused again at once, and who is let go early by a
    /// little is let go at the cost of its neighbours.
    pub fn resume(&mut self, input: (usize, u8)) -> bool {
        let i = self.at(input);
        let q = self.inputs[i];
        let booked = Input { bytes: q.bytes + q.headroom, headroom: 0 };
        let shared = self.shared_of(booked);
        let in_use = self.shared + (shared - self.shared_of(q));
        let spare = if q.headroom > 0 { self.sizes.headroom[i] } else { 0 };
        if in_use.saturating_add(spare) > self.pool {
            return false;
        }
        let low = match self.sizes.pause_at {
            PauseAt::Share { hysteresis } => {
                let room = hysteresis.saturating_add(spare);
                shared.saturating_add(room) <= self.share_beside(in_use)
            }
            PauseAt::Fixed { xon, .. } => shared <= xon,
        };
        if shared > 0 && !low {
            return false;
        }
        self.inputs[i] = booked;
        self.shared = in_use;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use proptest::prelude::*;

    fn sizes(ports: usize) -> BufferSizes {
        BufferSizes {
            total: 100_000,
            reserved: 0,
            headroom: vec![5_000; ports],
            sharing: Sharing::Dynamic { alpha: Ratio { num: 1, den: 1 } },
            pause_at: PauseAt::Share { hysteresis: 1_000 },
            classes: 1,
        }
    }

    /// What is said of the largest queue is what fills it: of a lossy class byte by byte, of a
    /// lossless one from all inputs until each has used its headroom.
    #[test]
    fn the_largest_queue_is_the_one_that_can_be_filled() {
        let dynamic = |num, den| Sharing::Dynamic { alpha: Ratio { num, den } };
        let fixed = PauseAt::Fixed { xoff: 7_000, xon: 1 };
        let share = PauseAt::Share { hysteresis: 0 };
        for sharing in [dynamic(1, 16), dynamic(1, 1), dynamic(8, 1), Sharing::Static] {
            for (pause_at, reserved) in [(share, 0), (share, 1_000), (fixed, 0), (fixed, 1_000)] {
                let sizes = BufferSizes { sharing, pause_at, reserved, ..sizes(4) };
                for lossless in [false, true] {
                    let mut b = Buffer::new(sizes.clone()).expect("room");
                    let mut full = false;
                    while !full {
                        full = true;
                        for input in 0..4 {
                            full &= b.admit((input, 0), (0, 0), 1, lossless).is_err();
                        }
                    }
                    let (held, most) = (b.output((0, 0)), sizes.largest_queue(0, lossless));
                    assert!(held <= most + 4, "{held} of {most}: {sizes:?}, {lossless}");
                    assert!(held + 20 >= most, "{held} of {most}: {sizes:?}, {lossless}");
                }
            }
        }
        let nothing = BufferSizes { total: 20_000, ..sizes(4) };
        assert_eq!(nothing.largest_queue(0, true), 20_000);
    }

    /// A lossy class in an empty buffer stops where q = alpha · (pool - q).
    #[test]
    fn a_dynamic_threshold_ends_at_its_fixed_point() {
        for (num, den, full) in [(1, 1, 40_000), (1, 16, 4_705), (4, 1, 64_000)] {
            let sharing = Sharing::Dynamic { alpha: Ratio { num, den } };
            let mut b = Buffer::new(BufferSizes { sharing, ..sizes(4) }).expect("room");
            let mut taken = 0u64;
            while b.admit((0, 0), (1, 0), 1, false).is_ok() {
                taken += 1;
            }
            let exact = 80_000 * num / (num + den);
            assert_eq!(taken, full);
            assert!(taken.abs_diff(exact) <= 1, "alpha {num}/{den}: {taken}, not {exact}");
            assert_eq!(b.admit((0, 0), (1, 0), 1, false), Err(NoRoom::Output));
        }
    }

    /// n queues that all take more get alpha / (1 + n·alpha) each.
    #[test]
    fn equal_queues_get_equal_shares() {
        let mut b = Buffer::new(sizes(4)).expect("room");
        for _ in 0..80_000 {
            for port in 0..4 {
                let _ = b.admit((port, 0), (port, 0), 1, false);
            }
        }
        for port in 0..4 {
            assert!(b.output((port, 0)).abs_diff(80_000 / 5) <= 4, "{}", b.output((port, 0)));
        }
        let mut b =
            Buffer::new(BufferSizes { sharing: Sharing::Static, ..sizes(4) }).expect("room");
        while b.admit((0, 0), (2, 0), 1, false).is_ok() {}
        assert_eq!(b.output((2, 0)), 20_000, "a quarter and no more, though all else is free");
    }

    #[test]
    fn a_lossless_queue_pauses_uses_its_headroom_and_resumes_below() {
        let pause_at = PauseAt::Fixed { xoff: 10_000, xon: 8_000 };
        let mut b = Buffer::new(BufferSizes { pause_at, ..sizes(2) }).expect("room");
        let (input, output) = ((0, 0), (1, 0));
        b.admit(input, output, 9_999, true).expect("below xoff");
        assert!(!b.must_pause(input));
        b.admit(input, output, 1, true).expect("at xoff");
        assert!(b.must_pause(input) && !b.resume(input));
        b.admit(input, output, 5_000, true).expect("all of the headroom");
        assert_eq!(b.input(input), (10_000, 5_000));
        assert_eq!(b.admit(input, output, 1, true), Err(NoRoom::Input));
        b.release(input, output, 6_999);
        assert_eq!(b.input(input), (8_001, 0), "headroom first");
        assert!(!b.resume(input));
        b.release(input, output, 1);
        assert!(b.resume(input));
        assert_eq!((b.used(), b.peak()), (8_000, 15_000));
    }

    /// A queue that is stuck was paused because others had filled the pool. They leave, and its
    /// share is many times what it holds: its sender goes on, and its headroom is free again.
    #[test]
    fn a_stuck_queue_resumes_when_others_give_the_pool_back() {
        let mut b = Buffer::new(sizes(4)).expect("room");
        let (stuck, burst) = (((0, 0), (1, 0)), ((2, 0), (3, 0)));
        b.admit(stuck.0, stuck.1, 10_000, true).expect("nobody else is there");
        for _ in 0..35 {
            b.admit(burst.0, burst.1, 1_000, true).expect("below (90,000 - 10,000) / 2");
        }
        for _ in 0..3 {
            b.admit(burst.0, burst.1, 1_000, true).expect("its headroom");
        }
        while b.input(stuck.0).1 < 4_000 {
            b.admit(stuck.0, stuck.1, 1_000, true).expect("its share, then its headroom");
        }
        let held = b.input(stuck.0);
        assert!(b.must_pause(stuck.0) && !b.resume(stuck.0));
        assert_eq!(b.input(stuck.0), held, "nothing has changed");
        // Its share is what is free: it resumes when that is all it holds, its headroom of 5,000
        // and 1,000 more.
        let all = held.0 + held.1;
        while !b.resume(stuck.0) {
            b.release(burst.0, burst.1, 1_000);
        }
        assert_eq!(b.input(stuck.0), (all, 0));
        assert!(!b.must_pause(stuck.0));
        assert!(b.share() >= all + 6_000 && b.share() < all + 7_000, "{} {all}", b.share());
        b.release(stuck.0, stuck.1, all);
        assert_eq!(b.input(stuck.0), (0, 0));
    }

    #[test]
    fn nothing_to_share_is_no_buffer() {
        let total = |total| Buffer::new(BufferSizes { total, reserved: 1_000, ..sizes(2) });
        assert!(total(12_000).is_none() && total(12_001).is_some());
        assert!(Buffer::new(BufferSizes { reserved: u64::MAX, ..sizes(2) }).is_none());
    }

    #[test]
    #[should_panic(expected = "more bytes leave than came")]
    fn bytes_that_never_came_cannot_leave() {
        Buffer::new(sizes(2)).expect("room").release((0, 0), (1, 0), 1);
    }

    proptest! {
        /// The accounts are those of the packets inside, and no part passes its size.
        #[test]
        fn accounts_are_those_of_the_packets(
            steps in prop::collection::vec(
                (0usize..3, 0u8..2, 0usize..3, 1u64..9_000, any::<bool>()),
                1..300,
            ),
            fixed in any::<bool>(), reserved in 0u64..3_000,
        ) {
            let pause_at = if fixed {
                PauseAt::Fixed { xoff: 12_000, xon: 4_000 }
            } else {
                PauseAt::Share { hysteresis: 2_000 }
            };
            let s = BufferSizes {
                headroom: vec![5_000; 6], classes: 2, pause_at, reserved, ..sizes(6)
            };
            let mut b = Buffer::new(s).expect("room");
            let mut inside = std::collections::VecDeque::new();
            for (from, class, to, bytes, leave) in steps {
                if leave && let Some((i, o, n)) = inside.pop_front() {
                    b.release(i, o, n);
                }
                let (i, o) = ((from, class), (to, class));
                let before = (b.used(), b.input(i));
                match b.admit(i, o, bytes, class == 1) {
                    Ok(()) => inside.push_back((i, o, bytes)),
                    Err(_) => prop_assert_eq!((b.used(), b.input(i)), before),
                }
                prop_assert_eq!(b.used(), inside.iter().map(|(.., n)| n).sum::<u64>());
                prop_assert!(b.used() <= 100_000 && b.shared <= b.pool);
                prop_assert!(b.inputs.iter().all(|q| q.headroom <= 5_000));
                let shared: u64 = b.inputs.iter().map(|q| b.shared_of(*q)).sum();
                prop_assert_eq!(b.shared, shared);
                let (used, room) = (b.used(), b.pool - b.shared);
                if b.resume(i) {
                    prop_assert!(b.input(i).1 == 0 && !b.must_pause(i));
                    prop_assert!(b.used() == used && b.pool - b.shared <= room);
                }
            }
            while let Some((i, o, n)) = inside.pop_front() {
                b.release(i, o, n);
            }
            prop_assert_eq!((b.used(), b.shared, b.outputs.iter().sum::<u64>()), (0, 0, 0));
        }
    }
}
