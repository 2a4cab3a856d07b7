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

    /// Who goes first among events of one instant and class, see [`tie`].
    #[inline]
    pub(crate) fn tie(self, seed: u64) -> u64 {
        tie(seed, self.time, self.origin())
    }

    /// [`before`](Self::before) with both ties at hand.
    #[inline]
    pub(crate) fn before_with_ties(self, tie: u64, other: Self, other_tie: u64) -> bool {
        let class = self.rest >> CLASS_SHIFT;
        let other_class = other.rest >> CLASS_SHIFT;
        (self.time, class, tie, self.rest) < (other.time, other_class, other_tie, other.rest)
    }

    /// Out of line: most comparisons end at the time, and the tie costs two multiplications.
    #[inline(never)]
    fn before_at_one_instant(self, other: Self, seed: u64) -> bool {
        let same_class = (self.rest ^ other.rest) >> CLASS_SHIFT == 0;
        let same_origin = (self.rest ^ other.rest) >> ORIGIN_SHIFT == 0;
        if same_class && !same_origin {
            // The tie of two different origins is never equal, see `tie`.
            return self.tie(seed) < other.tie(seed);
        }
        self.rest < other.rest
    }
}

/// Who goes first among equal events of different origins at one instant.
///
/// With a fixed order the same one of two equal senders would lose every contested slot. The tie
/// is a function of (seed, time, origin), never of what was inserted first. For one (seed, time)
/// every step below maps different origins to different values (odd factor, exclusive or, a
/// mixer that can be undone), so two origins never tie.
fn tie(seed: u64, time: u64, origin: ComponentId) -> u64 {
    let at = seed.wrapping_add(time.wrapping_mul(0xd1b5_4a32_d192_ed03));
    mix64(at ^ u64::from(origin.0).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// The finaliser of SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number
/// generators", OOPSLA 2014): a bijection on 64 bits in which each input bit flips about half
/// of the output bits.
pub(crate) const fn mix64(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
