//! Distributions of times.

use doorbell_core::units::Span;
use hdrhistogram::Histogram;
use serde::Serialize;

/// Times kept one by one; up to here every percentile is exact, as closed forms need it.
const EXACT: usize = 1 << 16;

/// Collects times: exactly at first, in a histogram of three digits when there are many.
#[derive(Debug)]
pub struct LatencyRecorder {
    exact: Vec<u64>,
    histogram: Option<Histogram<u64>>,
    count: u64,
    sum: u128,
    min: u64,
    max: u64,
}

impl Default for LatencyRecorder {
    fn default() -> Self {
        Self::new()
    }
}

impl LatencyRecorder {
    /// Nothing recorded.
    pub const fn new() -> Self {
        Self { exact: Vec::new(), histogram: None, count: 0, sum: 0, min: u64::MAX, max: 0 }
    }

    /// Adds one time.
    pub fn record(&mut self, span: Span) {
        let ps = span.as_ps();
        self.count += 1;
        self.sum += u128::from(ps);
        self.min = self.min.min(ps);
        self.max = self.max.max(ps);
        match &mut self.histogram {
            Some(histogram) => histogram.saturating_record(ps),
            None if self.exact.len() < EXACT => self.exact.push(ps),
            None => {
                let mut histogram = new_histogram();
                for earlier in self.exact.drain(..) {
                    histogram.saturating_record(earlier);
                }
                histogram.saturating_record(ps);
                self.histogram = Some(histogram);
                self.exact = Vec::new();
            }
        }
    }

    /// Adds all times of `other`.
    pub fn merge(&mut self, other: &Self) {
        match &other.histogram {
            None => other.exact.iter().for_each(|ps| self.record(Span::from_ps(*ps))),
            Some(theirs) => {
                let mut mine = self.histogram.take().unwrap_or_else(new_histogram);
                for earlier in std::mem::take(&mut self.exact) {
                    mine.saturating_record(earlier);
                }
                mine.add(theirs).expect("both have the same bounds");
                self.histogram = Some(mine);
                self.count += other.count;
                self.sum += other.sum;
                self.min = self.min.min(other.min);
                self.max = self.max.max(other.max);
            }
        }
    }

    /// The distribution in figures; `None` when nothing was recorded.
    pub fn summary(&self) -> Option<LatencySummary> {
        if self.count == 0 {
            return None;
        }
        let mut sorted = self.exact.clone();
        sorted.sort_unstable();
        let at = |per_million: u64| match &self.histogram {
            None => sorted[rank(self.count, per_million)],
            Some(h) => h.value_at_quantile(per_million as f64 / 1e6).clamp(self.min, self.max),
        };
        Some(LatencySummary {
            count: self.count,
            min: self.min,
            mean: (self.sum / u128::from(self.count)) as u64,
            p50: at(500_000),
            p90: at(900_000),
            p99: at(990_000),
            p999: at(999_000),
            max: self.max,
        })
    }
}

/// Index of the smallest value that at least this share of all values does not exceed.
fn rank(count: u64, per_million: u64) -> usize {
    let nth = (u128::from(count) * u128::from(per_million)).div_ceil(1_000_000).max(1);
    nth as usize - 1
}

/// One picosecond to 1.8 · 10¹⁹; three digits.
fn new_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, u64::MAX / 2, 3).expect("constant bounds are valid")
}

/// A distribution of times, in picoseconds.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize)]
pub struct LatencySummary {
    /// How many.
    pub count: u64,
    /// Shortest.
    pub min: u64,
    /// Mean, rounded down.
    pub mean: u64,
    /// Median.
    pub p50: u64,
    /// 90 % are not longer.
    pub p90: u64,
    /// 99 % are not longer.
    pub p99: u64,
    /// 99.9 % are not longer.
    pub p999: u64,
    /// Longest.
    pub max: u64,
}

impl LatencySummary {
    /// The names of the figures, as in `latency.p99`.
    pub const FIGURES: [&'static str; 8] =
        ["count", "min", "mean", "p50", "p90", "p99", "p999", "max"];

    /// A figure by its name.
    pub fn figure(&self, name: &str) -> Option<u64> {
        Some(match name {
            "count" => self.count,
            "min" => self.min,
            "mean" => self.mean,
            "p50" => self.p50,
            "p90" => self.p90,
            "p99" => self.p99,
            "p999" => self.p999,
            "max" => self.max,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorder(times: impl IntoIterator<Item = u64>) -> LatencyRecorder {
        let mut r = LatencyRecorder::new();
        times.into_iter().for_each(|t| r.record(Span::from_ps(t)));
        r
    }

    #[test]
    fn few_times_are_exact() {
        assert_eq!(recorder([]).summary(), None);
        let s = recorder([7]).summary().unwrap();
        assert_eq!((s.min, s.p50, s.p999, s.max, s.mean), (7, 7, 7, 7, 7));
        let s = recorder((1..=1000).rev().map(|n| n * 1_000_003)).summary().unwrap();
        assert_eq!((s.p50, s.p90), (500 * 1_000_003, 900 * 1_000_003));
        assert_eq!((s.p99, s.p999, s.count), (990 * 1_000_003, 999 * 1_000_003, 1000));
    }

    #[test]
    fn many_times_keep_three_digits_and_exact_ends() {
        let times = || (1..=2 * EXACT as u64).map(|n| n * 1_000_003);
        let s = recorder(times()).summary().unwrap();
        let want = EXACT as u64 * 1_000_003;
        assert!(s.p50.abs_diff(want) * 1000 <= want, "{} {want}", s.p50);
        assert_eq!((s.min, s.max), (1_000_003, 2 * EXACT as u64 * 1_000_003));
        assert_eq!(s.count, 2 * EXACT as u64);
    }

    #[test]
    fn merging_is_recording() {
        let n = EXACT as u64;
        for (a, b) in [(3, 4), (n, 1), (1, n), (n + 1, 5), (5, n + 1), (n + 1, n + 1)] {
            let mut merged = recorder(1..=a);
            merged.merge(&recorder(1..=b));
            let all = recorder((1..=a).chain(1..=b));
            assert_eq!(merged.summary(), all.summary(), "{a} {b}");
        }
    }
}
