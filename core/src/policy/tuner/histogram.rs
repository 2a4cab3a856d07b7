//! A histogram of times with a fixed number of counts.

use crate::units::Span;

/// Buckets of one power of two, as a shift.
const SHIFT: u32 = 4;
const PER_OCTAVE: usize = 1 << SHIFT;
/// Those below 2^[`SHIFT`] have a bucket for each picosecond.
const BUCKETS: usize = (64 - SHIFT as usize + 1) * PER_OCTAVE;

/// How many times lay where: 16 buckets for each power of two, so that a quantile is at most 1/16
/// above the true one, at any size. It takes 4 KB and no allocation; a record is a shift and an
/// increment. Counts saturate.
///
/// ```
/// use doorbell_core::policy::tuner::Histogram;
/// use doorbell_core::units::Span;
///
/// let mut h = Histogram::default();
/// (1..=100).for_each(|us| h.record(Span::from_us(us)));
/// let p99 = h.quantile(99, 100).unwrap();
/// assert!(p99 >= Span::from_us(99) && p99 <= Span::from_us(106));
/// ```
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: [u32; BUCKETS],
    total: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: [0; BUCKETS], total: 0 }
    }
}

/// The bucket of a value, and the largest value of a bucket.
const fn bucket(value: u64) -> usize {
    if value < PER_OCTAVE as u64 {
        return value as usize;
    }
    let octave = value.ilog2() - SHIFT;
    let within = (value >> octave) as usize - PER_OCTAVE;
    (octave as usize + 1) * PER_OCTAVE + within
}

const fn largest(bucket: usize) -> u64 {
    if bucket < PER_OCTAVE {
        return bucket as u64;
    }
    let octave = bucket / PER_OCTAVE - 1;
    let first = ((PER_OCTAVE + bucket % PER_OCTAVE) as u64) << octave;
    first + ((1 << octave) - 1)
}

impl Histogram {
    /// Counts one time.
    #[inline]
    pub const fn record(&mut self, time: Span) {
        let count = &mut self.counts[bucket(time.as_ps())];
        *count = count.saturating_add(1);
        self.total += 1;
    }

    /// Times that were counted.
    pub const fn total(&self) -> u64 {
        self.total
    }

    /// The least bound that `num` of `den` times do not exceed, at most 1/16 too high. `None` when
    /// nothing was counted.
    ///
    /// # Panics
    /// Unless `num` is at most `den`, and `den` not 0: there is no such part.
    pub fn quantile(&self, num: u32, den: u32) -> Option<Span> {
        assert!(den > 0 && num <= den, "{num}/{den} is no part of a whole");
        let rank = (u128::from(self.total) * u128::from(num)).div_ceil(den.into());
        let mut before = 0;
        let at = self.counts.iter().position(|count| {
            before += u128::from(*count);
            before >= rank.max(1)
        })?;
        Some(Span::from_ps(largest(at)))
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.counts.fill(0);
        self.total = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    #[test]
    fn buckets_join_without_gap_up_to_the_last() {
        for b in 1..BUCKETS {
            assert_eq!(bucket(largest(b - 1) + 1), b, "the first value behind {}", b - 1);
            assert_eq!(bucket(largest(b)), b);
        }
        assert_eq!((largest(BUCKETS - 1), bucket(u64::MAX)), (u64::MAX, BUCKETS - 1));
    }

    #[test]
    fn nothing_has_no_quantile_and_one_is_all_of_them() {
        let mut h = Histogram::default();
        assert_eq!((h.quantile(1, 2), h.total()), (None, 0));
        h.record(Span::from_ps(7));
        assert_eq!([0, 1, 2].map(|n| h.quantile(n, 2)), [Some(Span::from_ps(7)); 3]);
        h.clear();
        assert_eq!((h.quantile(1, 2), h.total()), (None, 0));
    }

    #[test]
    #[should_panic(expected = "3/2 is no part")]
    fn more_than_all_is_refused() {
        Histogram::default().quantile(3, 2);
    }

    proptest! {
        /// Never below the true quantile, and at most a sixteenth above it.
        #[test]
        fn a_quantile_is_close(
            mut times in prop::collection::vec(0..u64::MAX / 32, 1..200),
            shift in 0..56u32, percent in 0..=100u32,
        ) {
            times.iter_mut().for_each(|t| *t >>= shift);
            let mut h = Histogram::default();
            times.iter().for_each(|t| h.record(Span::from_ps(*t)));
            let mut sorted: Vec<u64> = times;
            sorted.sort_unstable();
            let rank = (sorted.len() * percent as usize).div_ceil(100).max(1);
            let exact = sorted[rank - 1];
            let found = h.quantile(percent, 100).unwrap().as_ps();
            prop_assert!(found >= exact && found - exact <= exact / 16, "{found} for {exact}");
        }
    }
}
