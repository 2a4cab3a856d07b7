//! Configuration of a tuner, and what is wrong with one.

use core::fmt;

use super::Knob;
use crate::units::Span;

/// Most windows for one judgement.
pub const MAX_WINDOWS: usize = 9;
/// Most steps of a [`Tuner`](super::Tuner).
pub const MAX_STEPS: u16 = 4096;

/// Configuration of a [`Tuner`](super::Tuner).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct TunerConfig {
    /// What the 99th percentile of the latency may be. With it, the most bytes per second within
    /// it are sought; where nothing keeps it, the shortest latency. Without it, the most bytes per
    /// second, and at the same rate the shortest latency.
    pub budget: Option<Span>,
    /// Windows for one judgement, 1 to [`MAX_WINDOWS`], of which the medians count. More: slower,
    /// and harder to mislead.
    pub windows: u8,
    /// Windows after a change that do not count, since what was under way was handed over before
    /// it.
    pub skip: u8,
    /// By how much a step must better the rate or the latency to be kept, in percent, 1 to 50.
    /// Higher: fewer steps for nothing; above what one step can give, none is kept. It should be
    /// above the noise of the medians.
    pub gain_percent: u8,
    /// By how much the rate, the size of messages or the 99th percentile must change, in percent,
    /// for the load to count as another, after which everything may be tried again; 5 to 200.
    /// Lower: quicker to tune anew. Noise of ±`n` % of the medians never does so while (100 + n) /
    /// (100 - n) is less than 1 + this; a histogram adds 6 %.
    pub load_change_percent: u8,
    /// Most steps in all, those that were taken back included; 2 to [`MAX_STEPS`]. Then the tuner
    /// stands still.
    pub max_steps: u16,
}

impl Default for TunerConfig {
    /// No budget; three windows after one that does not count; 3 % to keep a step; 40 % for another
    /// load, which noise of ±16 % is not; 256 steps.
    fn default() -> Self {
        Self {
            budget: None,
            windows: 3,
            skip: 1,
            gain_percent: 3,
            load_change_percent: 40,
            max_steps: 256,
        }
    }
}

/// Why there is no such [`Tuner`](super::Tuner).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum TunerError {
    /// There is nothing to turn.
    NoKnobs,
    /// A knob was given twice.
    Twice {
        /// Which.
        knob: Knob,
    },
    /// A number of the configuration is out of its range.
    OutOfRange {
        /// Which.
        field: &'static str,
        /// What it is.
        got: u16,
        /// The least that it may be.
        min: u16,
        /// The most that it may be.
        max: u16,
    },
}

impl fmt::Display for TunerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoKnobs => f.write_str("a tuner needs at least one knob"),
            Self::Twice { knob } => {
                write!(f, "`{}` was given twice: leave one out", knob.word())
            }
            Self::OutOfRange { field, got, min, max } => {
                write!(f, "`{field}` is {got}, it may be {min} to {max}")
            }
        }
    }
}

impl core::error::Error for TunerError {}

impl TunerConfig {
    /// Whether all numbers are in their ranges.
    pub(super) fn check(&self) -> Result<(), TunerError> {
        let Self { budget: _, windows, skip: _, gain_percent, load_change_percent, max_steps } =
            *self;
        let within = |field, got: u16, min, max| match got >= min && got <= max {
            true => Ok(()),
            false => Err(TunerError::OutOfRange { field, got, min, max }),
        };
        within("windows", windows.into(), 1, MAX_WINDOWS as u16)?;
        within("gain_percent", gain_percent.into(), 1, 50)?;
        within("load_change_percent", load_change_percent.into(), 5, 200)?;
        within("max_steps", max_steps, 2, MAX_STEPS)
    }
}
