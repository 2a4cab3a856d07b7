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
