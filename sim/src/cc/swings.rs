//! How far and how fast a measured time swings about the value that a control holds it at.

use doorbell_core::units::{Span, Time};

/// A swing counts when the time comes to 1/16 of the target above it after it was so far below:
/// less is the grain of single packets.
const BAND: u64 = 16;

/// Deviation and period of a round trip time about its target.
#[derive(Copy, Clone, Default, PartialEq, Eq, Debug)]
pub struct Swings {
    samples: u64,
    /// Sum of all distances from the target, picoseconds.
    off: u64,
    /// On which side it was last; `None` before it left the band.
    above: Option<bool>,
    /// When it last rose through the band.
    rose: Option<Time>,
    /// Times from one rise to the next: how many, and their sum.
    periods: u64,
    time: Span,
}

impl Swings {
    /// A round trip time `rtt` was seen, with this target.
    pub fn sample(&mut self, now: Time, rtt: Span, target: Span) {
        let off = rtt.as_ps().abs_diff(target.as_ps());
        self.samples += 1;
        self.off = self.off.saturating_add(off);
        if off < target.as_ps() / BAND {
            return;
        }
        let above = rtt > target;
        let rises = self.above.replace(above) == Some(false) && above;
        if rises && let Some(before) = self.rose.replace(now) {
            self.periods += 1;
            self.time += now.since(before);
        }
    }

    /// Both together, for another flow's.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            samples: self.samples + other.samples,
            off: self.off.saturating_add(other.off),
            above: None,
            rose: None,
            periods: self.periods + other.periods,
            time: self.time + other.time,
        }
    }

    /// Mean distance from the target, over all samples; `None` without any.
    pub fn deviation(&self) -> Option<Span> {
        self.off.checked_div(self.samples).map(Span::from_ps)
    }

    /// Mean time from one rise above the target to the next; `None` before the second rise.
    pub fn period(&self) -> Option<Span> {
        self.time.as_ps().checked_div(self.periods).map(Span::from_ps)
    }

    /// Such times that were seen.
    pub const fn periods(&self) -> u64 {
        self.periods
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: Span = Span::from_us(16);

    fn run(times: &[u64]) -> Swings {
        let mut s = Swings::default();
        for (i, ns) in times.iter().enumerate() {
            let now = Time::ZERO + Span::from_us(10) * i as u64;
            s.sample(now, Span::from_ns(*ns), TARGET);
        }
        s
    }

    #[test]
    fn a_swing_is_from_rise_to_rise_through_the_band() {
        assert_eq!((Swings::default().deviation(), Swings::default().period()), (None, None));
        // The band ends at 15 and at 17 us; both ends belong to the outside.
        let s = run(&[15_000, 17_000, 15_000, 16_000, 17_000]);
        assert_eq!((s.periods(), s.period()), (1, Some(Span::from_us(30))));
        for inside in [[15_001, 17_000, 15_001, 17_000], [15_000, 16_999, 15_000, 16_999]] {
            assert_eq!(run(&inside).periods(), 0, "{inside:?}");
        }
        let s = run(&[15_000, 17_000, 15_000, 17_000, 15_000, 17_000]);
        assert_eq!((s.periods(), s.period()), (2, Some(Span::from_us(20))));
    }

    #[test]
    fn the_deviation_is_the_mean_distance_and_flows_add_up() {
        let (a, b) = (run(&[15_000, 17_000, 16_000]), run(&[26_000]));
        assert_eq!(a.deviation(), Some(Span::from_ps(666_666)));
        assert_eq!(a.and(b).deviation(), Some(Span::from_us(3)));
        let two = run(&[15_000, 17_000, 15_000, 17_000]);
        assert_eq!(two.and(two).period(), two.period());
        assert_eq!(two.and(two).periods(), 2);
    }
}
