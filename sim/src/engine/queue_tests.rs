//! The queue against a list that is sorted in full.

use proptest::prelude::*;

use super::super::key::{Class, ComponentId, Key, tie};
use super::Queue;

/// The reference: no structure, the whole key compared, the tie included.
struct Reference {
    seed: u64,
    entries: Vec<(Key, u32)>,
}

impl Reference {
    fn pop(&mut self) -> Option<(Key, u32)> {
        let mut best = 0;
        for i in 1..self.entries.len() {
            if self.order(i) < self.order(best) {
                best = i;
            }
        }
        (!self.entries.is_empty()).then(|| self.entries.swap_remove(best))
    }

    fn order(&self, i: usize) -> (u64, Class, u64, u32, u64) {
        let key = self.entries[i].0;
        (
            key.time,
            key.class(),
            tie(self.seed, key.time, key.origin()),
            key.origin().0,
            key.counter(),
        )
    }
}

/// Both queues, fed alike.
struct Pair {
    queue: Queue<u32>,
    reference: Reference,
    counters: [u64; 8],
    now: u64,
    event: u32,
}

impl Pair {
    fn new(seed: u64) -> Self {
        let reference = Reference { seed, entries: Vec::new() };
        Self { queue: Queue::new(seed), reference, counters: [0; 8], now: 0, event: 0 }
    }

    fn push(&mut self, delay: u64, class: u8, origin: u8) {
        let counter = &mut self.counters[origin as usize % 8];
        let origin = ComponentId(u32::from(origin) % 8);
        let time = self.now.saturating_add(delay);
        let class = Class::ALL[class as usize % 7];
        let key = Key::new(time, class, origin, *counter, delay % 2 == 1);
        *counter += 1;
        self.event += 1;
        self.queue.push(key, self.event);
        self.reference.entries.push((key, self.event));
    }

    /// Whether there was one.
    fn pop(&mut self) -> bool {
        let expected = self.reference.pop();
        assert_eq!(self.queue.peek(), expected.map(|e| e.0));
        let time = expected.map(|(key, _)| key.time);
        assert_eq!(self.queue.comes_by(time.unwrap_or(0)), time.map(|_| true));
        let before = time.and_then(|t| t.checked_sub(1));
        assert_eq!(before.and_then(|t| self.queue.comes_by(t)), before.map(|_| false));
        let popped = self.queue.pop();
        assert_eq!(popped, expected);
        assert_eq!(self.queue.len(), self.reference.entries.len());
        if let Some((key, _)) = popped {
            assert!(key.time >= self.now);
            self.now = key.time;
        }
        popped.is_some()
    }
}

#[derive(Clone, Debug)]
enum Op {
    Push {
        delay: u64,
        class: u8,
        origin: u8,
    },
    /// Many at one instant, from all origins.
    Burst {
        delay: u64,
        count: u8,
    },
    Pop(u8),
}

fn delay() -> impl Strategy<Value = u64> {
    prop_oneof![
        3 => Just(0),
        3 => 0u64..8,
        3 => 0u64..200,
        3 => 0u64..5_000,
        3 => 0u64..2_000_000,
        // Around the borders of the wheel's digits, and the end of time.
        2 => (0u32..64, 0u64..3).prop_map(|(bit, d)| (1u64 << bit).saturating_sub(1) + d),
        1 => any::<u64>(),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (delay(), any::<u8>(), any::<u8>())
            .prop_map(|(delay, class, origin)| Op::Push { delay, class, origin }),
        1 => (delay(), 30u8..140).prop_map(|(delay, count)| Op::Burst { delay, count }),
        4 => (1u8..4).prop_map(Op::Pop),
        1 => (30u8..200).prop_map(Op::Pop),
    ]
}

fn run(seed: u64, ops: &[Op]) {
    let mut pair = Pair::new(seed);
    for op in ops {
        match *op {
            Op::Push { delay, class, origin } => pair.push(delay, class, origin),
            Op::Burst { delay, count } => {
                for i in 0..count {
                    pair.push(delay, i / 16, i);
                }
            }
            Op::Pop(count) => {
                for _ in 0..count {
                    pair.pop();
                }
            }
        }
    }
    while pair.pop() {}
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]
    #[test]
    fn pops_in_the_order_of_the_reference(
        seed in any::<u64>(),
        ops in prop::collection::vec(op(), 0..200),
    ) {
        run(seed, &ops);
    }

    /// A handler that schedules while the queue is being drained: each event popped pushes up
    /// to two others, also at its own instant and in an earlier class.
    #[test]
    fn scheduling_while_popping(
        seed in any::<u64>(),
        steps in prop::collection::vec((delay(), any::<u8>(), any::<u8>(), 0u8..3), 1..400),
    ) {
        let mut pair = Pair::new(seed);
        pair.push(0, 2, 0);
        for &(delay, class, origin, count) in &steps {
            for i in 0..count {
                pair.push(delay * u64::from(i != 1), class.wrapping_add(i), origin);
            }
            pair.pop();
        }
        while pair.pop() {}
    }

    /// Timers are cancelled by a generation: re-armed far more often than they expire, so most
    /// of what is pending is stale and far away while all of the work is near.
    #[test]
    fn cancelled_by_generation(
        seed in any::<u64>(),
        work in prop::collection::vec(0u64..300, 1..600),
    ) {
        let mut pair = Pair::new(seed);
        for &delay in &work {
            pair.push(delay, 2, delay as u8);
            pair.push(50_000, 4, delay as u8);
            pair.pop();
        }
        while pair.pop() {}
    }
}

/// Time passes slowly below a near that was loaded wide: it must give back.
#[test]
fn a_wide_near_that_fills_up() {
    let mut pair = Pair::new(7);
    pair.push(1 << 40, 4, 0);
    pair.push((1 << 40) + (1 << 29), 4, 0);
    pair.pop();
    for i in 0..2_000u64 {
        pair.push(i * 7_919 % 100_000, 3, i as u8);
        if i % 3 == 0 {
            pair.pop();
        }
        // Otherwise it would be no more than a heap.
        assert!(pair.queue.near.len() - pair.queue.first <= super::NEAR_MAX);
        assert_eq!(pair.queue.crowd.peek(), None);
    }
    while pair.pop() {}
}

/// More events at one picosecond than near holds, and more of them while they are popped.
#[test]
fn a_crowd_at_one_instant() {
    for before in [super::NEAR_MAX - 1, super::NEAR_MAX, super::NEAR_MAX + 1, 500] {
        let mut pair = Pair::new(3);
        for i in 0..before {
            pair.push(1_000, (i % 7) as u8, i as u8);
        }
        for i in 0..1_000 {
            pair.pop();
            pair.push(u64::from(i % 5 == 0), i as u8, (i / 3) as u8);
            pair.push(0, (i / 2) as u8, i as u8);
        }
        while pair.pop() {}
    }
}

#[test]
fn the_ends_of_time() {
    let mut pair = Pair::new(0);
    assert!(!pair.pop());
    pair.push(u64::MAX, 0, 0);
    pair.push(0, 6, 1);
    pair.push(u64::MAX - 1, 6, 1);
    while pair.pop() {}
    pair.push(0, 0, 0);
    assert!(pair.pop() && !pair.pop());
}
