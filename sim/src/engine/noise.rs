//! Noise of stage latencies as integer tables.

use std::fmt;

use doorbell_core::units::Span;

use super::rng::SimRng;

/// Quantiles are numerators over this: parts per million.
pub const QUANTILE_ONE: u32 = 1_000_000;

/// The inverse of a distribution function: for each quantile a time, linear in between.
///
/// Real stages never take a constant time, and exact lockstep is an artefact that decides who
/// loses a packet; a table in the hardware profile says what was measured. All arithmetic is in
/// integers, so a draw is the same everywhere. Rounds down to a picosecond.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NoiseTable {
    /// First quantile 0, last [`QUANTILE_ONE`], strictly increasing; spans never decrease.
    points: Box<[(u32, Span)]>,
}

/// Why a list of points is not a distribution.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum NoiseTableError {
    /// The first point is not quantile 0. A minimum is a statement about the hardware that the
    /// table has to make itself.
    NoMinimum,
    /// The last point is not quantile 1,000,000: a maximum is needed as well.
    NoMaximum,
    /// The quantile of the point `index` is not above the one before.
    QuantileOrder {
        /// Position in the list, from 0.
        index: usize,
    },
    /// The time of the point `index` is below the one before: an inverse of a distribution
    /// function never falls.
    SpanOrder {
        /// Position in the list, from 0.
        index: usize,
    },
}

impl fmt::Display for NoiseTableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoMinimum => write!(f, "the first point must be quantile 0"),
            Self::NoMaximum => write!(f, "the last point must be quantile {QUANTILE_ONE}"),
            Self::QuantileOrder { index } => {
                write!(f, "point {index}: its quantile must be above the one before")
            }
            Self::SpanOrder { index } => {
                write!(f, "point {index}: its time must not be below the one before")
            }
        }
    }
}

impl std::error::Error for NoiseTableError {}

impl NoiseTable {
    /// A table from (quantile in parts per million, time), from quantile 0 to 1,000,000.
    ///
    /// # Errors
    /// The first rule that the list breaks, see [`NoiseTableError`].
    pub fn new(points: &[(u32, Span)]) -> Result<Self, NoiseTableError> {
        if points.first().is_none_or(|p| p.0 != 0) {
            return Err(NoiseTableError::NoMinimum);
        }
        for (i, pair) in points.windows(2).enumerate() {
            if pair[1].0 <= pair[0].0 {
                return Err(NoiseTableError::QuantileOrder { index: i + 1 });
            }
            if pair[1].1 < pair[0].1 {
                return Err(NoiseTableError::SpanOrder { index: i + 1 });
            }
        }
        if points.last().is_none_or(|p| p.0 != QUANTILE_ONE) {
            return Err(NoiseTableError::NoMaximum);
        }
        Ok(Self { points: points.into() })
    }

    /// Always `span`: no noise, no draw.
    pub fn constant(span: Span) -> Self {
        Self { points: [(0, span), (QUANTILE_ONE, span)].into() }
    }

    /// Whether every draw gives the same time. Such a table draws nothing, so that switching
    /// noise off costs nothing and closed forms hold exactly.
    pub fn is_constant(&self) -> bool {
        self.min() == self.max()
    }

    /// The shortest time.
    pub fn min(&self) -> Span {
        self.points[0].1
    }

    /// The longest time.
    pub fn max(&self) -> Span {
        self.points[self.points.len() - 1].1
    }

    /// The time at quantile `q` parts per million; 500,000 is the median. Above 1,000,000: the
    /// longest time.
    pub fn quantile(&self, q: u32) -> Span {
        let upper = self.points.partition_point(|p| p.0 <= q);
        let (q0, s0) = self.points[upper - 1];
        let Some(&(q1, s1)) = self.points.get(upper) else { return s0 };
        let rise = (s1 - s0).as_ps();
        let (part, whole) = (u64::from(q - q0), u64::from(q1 - q0));
        let above = match rise.checked_mul(part) {
            Some(product) => product / whole,
            // Over 18 seconds between two points: wide, and the quotient is below `rise`.
            None => (u128::from(rise) * u128::from(part) / u128::from(whole)) as u64,
        };
        s0 + Span::from_ps(above)
    }

    /// One time: the quantile at a uniform draw from 0 to 1,000,000, both included.
    pub fn draw(&self, rng: &mut SimRng) -> Span {
        if self.is_constant() {
            return self.min();
        }
        self.quantile(rng.below(u64::from(QUANTILE_ONE) + 1) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn table(points: &[(u32, u64)]) -> Result<NoiseTable, NoiseTableError> {
        let points: Vec<_> = points.iter().map(|&(q, ps)| (q, Span::from_ps(ps))).collect();
        NoiseTable::new(&points)
    }

    #[test]
    fn each_rule_has_its_error() {
        use NoiseTableError as E;
        assert_eq!(table(&[]), Err(E::NoMinimum));
        assert_eq!(table(&[(1, 5), (QUANTILE_ONE, 9)]), Err(E::NoMinimum));
        assert_eq!(table(&[(0, 5)]), Err(E::NoMaximum));
        assert_eq!(table(&[(0, 5), (QUANTILE_ONE - 1, 9)]), Err(E::NoMaximum));
        assert_eq!(table(&[(0, 5), (QUANTILE_ONE + 1, 9)]), Err(E::NoMaximum));
        let twice = [(0, 5), (500_000, 6), (500_000, 7), (QUANTILE_ONE, 9)];
        assert_eq!(table(&twice), Err(E::QuantileOrder { index: 2 }));
        let falls = [(0, 5), (500_000, 4), (QUANTILE_ONE, 9)];
        assert_eq!(table(&falls), Err(E::SpanOrder { index: 1 }));
        assert!(table(&[(0, 5), (500_000, 5), (QUANTILE_ONE, 5)]).is_ok());
        assert!(E::SpanOrder { index: 1 }.to_string().contains("point 1"));
    }

    #[test]
    fn linear_between_the_points_and_rounded_down() {
        let t = table(&[(0, 100), (500_000, 200), (990_000, 200), (QUANTILE_ONE, 1_200)]).unwrap();
        for (q, ps) in [
            (0, 100),
            (4_999, 100),
            (5_000, 101),
            (250_000, 150),
            (499_999, 199),
            (500_000, 200),
            (700_000, 200),
            (990_000, 200),
            (995_000, 700),
            (999_999, 1_199),
            (QUANTILE_ONE, 1_200),
            (u32::MAX, 1_200),
        ] {
            assert_eq!(t.quantile(q), Span::from_ps(ps), "{q}");
        }
        assert_eq!((t.min(), t.max()), (Span::from_ps(100), Span::from_ps(1_200)));
    }

    /// rise · part passes u64 between these two.
    #[test]
    fn wide_tables_do_not_overflow() {
        let limit = u64::MAX / 500_000;
        for top in [limit, limit + 1, u64::MAX] {
            let t = table(&[(0, 0), (QUANTILE_ONE, top)]).unwrap();
            assert_eq!(t.quantile(500_000), Span::from_ps(top / 2));
            assert_eq!(t.quantile(QUANTILE_ONE), Span::from_ps(top));
        }
    }

    #[test]
    fn a_constant_table_draws_nothing() {
        let flat = table(&[(0, 7), (300_000, 7), (QUANTILE_ONE, 7)]).unwrap();
        let mut rng = SimRng::stream(1, "test", "noise");
        let mut untouched = rng.clone();
        for t in [NoiseTable::constant(Span::from_ps(7)), flat] {
            assert!(t.is_constant());
            assert_eq!(t.draw(&mut rng), Span::from_ps(7));
        }
        assert_eq!(rng.next_u64(), untouched.next_u64());
        let t = table(&[(0, 7), (QUANTILE_ONE, 8)]).unwrap();
        assert!(!t.is_constant());
        t.draw(&mut rng);
        assert_ne!(rng.next_u64(), untouched.next_u64());
    }

    /// Uniform between 1,000 and 3,000 for half of the draws, 10,000 and above for 1 %.
    #[test]
    fn draws_follow_the_table() {
        let points = [(0, 1_000), (500_000, 3_000), (990_000, 10_000), (QUANTILE_ONE, 20_000)];
        let t = table(&points).unwrap();
        let mut rng = SimRng::stream(1, "test", "draws");
        let draws: Vec<u64> = (0..100_000).map(|_| t.draw(&mut rng).as_ps()).collect();
        let up_to = |ps| draws.iter().filter(|&&d| d <= ps).count();
        assert!(draws.iter().all(|d| (1_000..=20_000).contains(d)));
        // Five standard deviations each.
        assert!(up_to(2_000).abs_diff(25_000) < 685, "{}", up_to(2_000));
        assert!(up_to(3_000).abs_diff(50_000) < 791, "{}", up_to(3_000));
        assert!(up_to(10_000).abs_diff(99_000) < 158, "{}", up_to(10_000));
    }

    proptest! {
        #[test]
        fn quantiles_never_fall_and_stay_inside(
            mut inner in prop::collection::btree_map(1u32..QUANTILE_ONE, any::<u64>(), 0..6),
            ends: (u64, u64),
            mut asked in prop::collection::vec(0u32..=QUANTILE_ONE, 2..20),
        ) {
            inner.insert(0, ends.0);
            inner.insert(QUANTILE_ONE, ends.1);
            let mut spans: Vec<u64> = inner.values().copied().collect();
            spans.sort_unstable();
            let points: Vec<_> = inner.keys().copied().zip(spans).collect();
            let t = table(&points).unwrap();
            for &(q, ps) in &points {
                prop_assert_eq!(t.quantile(q), Span::from_ps(ps));
            }
            asked.sort_unstable();
            let got: Vec<Span> = asked.iter().map(|&q| t.quantile(q)).collect();
            prop_assert!(got.is_sorted());
            prop_assert!(got.iter().all(|&s| t.min() <= s && s <= t.max()));
        }
    }
}
