//! The key that orders events, and nothing else that could.

/// A component: whatever schedules events and has a name. Its index enters the order of equal
/// events, so a world adds its components in an order that depends on the configuration alone.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ComponentId(pub u32);

/// What happens first among events of one instant; a lower class goes first.
///
/// The order is that of causes: a fault applies to whatever happens at its instant, and a slot
/// that comes back can be taken by a packet that arrives at the same picosecond.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Class {
    /// Faults and configuration changes.
    Fault = 0,
    /// A slot, credit, tag or buffer comes back.
    Release = 1,
    /// A packet or TLP arrives.
    Arrival = 2,
    /// A stage is done.
    Stage = 3,
    /// A timer expires.
    Timer = 4,
    /// A program steps.
    Program = 5,
    /// An observation instant: sees the state after everything else of that instant.
    Observer = 6,
}

impl Class {
    /// Every class, first to last.
    pub const ALL: [Self; 7] = [
        Self::Fault,
        Self::Release,
        Self::Arrival,
        Self::Stage,
        Self::Timer,
        Self::Program,
        Self::Observer,
    ];
}

/// Bits of the word below the time: class, origin, the origin's counter, and the periodic mark.
/// The mark is last and counters differ, so it never decides an order.
const COUNTER_SHIFT: u32 = 1;
const ORIGIN_SHIFT: u32 = 39;
const CLASS_SHIFT: u32 = 61;

/// Components that one engine can hold: 2²², four million.
pub const MAX_COMPONENTS: u32 = 1 << (CLASS_SHIFT - ORIGIN_SHIFT);
/// Events that one component can schedule in one run: 2³⁸, 2.7 · 10¹¹.
pub const MAX_EVENTS_PER_COMPONENT: u64 = 1 << (ORIGIN_SHIFT - COUNTER_SHIFT);

/// The packed key (time, class, origin, origin's counter, periodic mark): 16 bytes, since the
/// queue compares and moves nothing else.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Key {
    /// Picoseconds.
    pub(crate) time: u64,
    rest: u64,
}

impl Key {
    /// Packs a key. The caller guards the limits ([`MAX_COMPONENTS`] and
    /// [`MAX_EVENTS_PER_COMPONENT`]).
    pub(crate) fn new(
        time: u64,
        class: Class,
        origin: ComponentId,
        counter: u64,
        periodic: bool,
    ) -> Self {
        debug_assert!(origin.0 < MAX_COMPONENTS && counter < MAX_EVENTS_PER_COMPONENT);
        let rest = (class as u64) << CLASS_SHIFT
            | u64::from(origin.0) << ORIGIN_SHIFT
            | counter << COUNTER_SHIFT
            | u64::from(periodic);
        Self { time, rest }
    }

    pub(crate) fn class(self) -> Class {
        Class::ALL[(self.rest >> CLASS_SHIFT) as usize]
    }

    pub(crate) fn origin(self) -> ComponentId {
        ComponentId((self.rest >> ORIGIN_SHIFT) as u32 & (MAX_COMPONENTS - 1))
    }

    #[cfg(test)]
    pub(crate) fn counter(self) -> u64 {
        (self.rest >> COUNTER_SHIFT) & (MAX_EVENTS_PER_COMPONENT - 1)
    }

    pub(crate) fn is_periodic(self) -> bool {
        self.rest & 1 == 1
    }

    /// Whether `self` comes before `other`: by time, class, tie, origin, counter.
    #[inline]
    pub(crate) fn before(self, other: Self, seed: u64) -> bool {
        if self.time != other.time {
            return self.time < other.time;
        }
        self.before_at_one_instant(other, seed)
    }

    /// The key in its order, with the tie computed.
    #[inline]
    pub(crate) fn order(self, seed: u64) -> Order {
        let class = self.rest >> CLASS_SHIFT << CLASS_SHIFT;
        let class_and_tie = class | tie(seed, self.time, self.origin());
        Order { time: self.time, class_and_tie, rest: self.rest }
    }

    /// Out of line: most comparisons end at the time, and the tie costs two multiplications.
    #[inline(never)]
    fn before_at_one_instant(self, other: Self, seed: u64) -> bool {
        let same_class = (self.rest ^ other.rest) >> CLASS_SHIFT == 0;
        let same_origin = (self.rest ^ other.rest) >> ORIGIN_SHIFT == 0;
        if same_class && !same_origin {
            let mine = tie(seed, self.time, self.origin());
            let others = tie(seed, other.time, other.origin());
            if mine != others {
                return mine < others;
            }
        }
        self.rest < other.rest
    }
}

/// A key whose order is that of its numbers: (time, class and tie, origin and counter). Half as
/// large again as [`Key`]; for entries that are compared often.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Order {
    time: u64,
    class_and_tie: u64,
    rest: u64,
}

impl Order {
    #[inline]
    pub(crate) fn time(self) -> u64 {
        self.time
    }

    /// The key that it is of.
    #[inline]
    pub(crate) fn key(self) -> Key {
        Key { time: self.time, rest: self.rest }
    }
}

/// Who goes first among equal events of different origins at one instant.
///
/// With a fixed order the same one of two equal senders would lose every contested slot. The tie
/// is a function of (seed, time, origin), never of what was inserted first. It has as many bits
/// as fit below the class; origins that tie even so go by their ids.
pub(crate) fn tie(seed: u64, time: u64, origin: ComponentId) -> u64 {
    let at = seed.wrapping_add(time.wrapping_mul(0xd1b5_4a32_d192_ed03));
    mix64(at ^ u64::from(origin.0).wrapping_mul(0x9e37_79b9_7f4a_7c15)) >> (64 - CLASS_SHIFT)
}

/// The finaliser of SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number
/// generators", OOPSLA 2014): a bijection on 64 bits in which each input bit flips about half
/// of the output bits.
pub(crate) const fn mix64(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn packing_keeps_both_ends_of_every_field() {
        for class in Class::ALL {
            for origin in [0, 1, MAX_COMPONENTS - 1] {
                for counter in [0, 1, MAX_EVENTS_PER_COMPONENT - 1] {
                    for periodic in [false, true] {
                        let key = Key::new(9, class, ComponentId(origin), counter, periodic);
                        assert_eq!(key.class(), class);
                        assert_eq!(key.origin(), ComponentId(origin));
                        assert_eq!(key.counter(), counter);
                        assert_eq!(key.is_periodic(), periodic);
                    }
                }
            }
        }
    }

    #[test]
    fn classes_are_numbered_as_they_are_ordered() {
        for (i, class) in Class::ALL.into_iter().enumerate() {
            assert_eq!(class as usize, i);
        }
        assert!(Class::ALL.is_sorted());
    }

    #[test]
    fn the_tie_has_the_bits_below_the_class() {
        let all = (0..64).fold((0, u64::MAX), |(or, and), i| {
            let t = tie(1, i, ComponentId(i as u32));
            (or | t, and & t)
        });
        assert_eq!(all, ((1 << CLASS_SHIFT) - 1, 0));
    }

    proptest! {
        /// The comparison that computes ties late and the one that computes them early agree,
        /// and both follow the definition.
        #[test]
        fn both_comparisons_follow_the_definition(
            seed: u64,
            a in (0u64..3, 0usize..7, 0u32..5, 0u64..5),
            b in (0u64..3, 0usize..7, 0u32..5, 0u64..5),
        ) {
            let key = |x: (u64, usize, u32, u64)| {
                Key::new(x.0, Class::ALL[x.1], ComponentId(x.2), x.3, x.3.is_multiple_of(2))
            };
            let full = |x: (u64, usize, u32, u64)| {
                (x.0, x.1, tie(seed, x.0, ComponentId(x.2)), x.2, x.3)
            };
            prop_assert_eq!(key(a).before(key(b), seed), full(a) < full(b));
            prop_assert_eq!(key(a).order(seed) < key(b).order(seed), full(a) < full(b));
        }
    }
}
