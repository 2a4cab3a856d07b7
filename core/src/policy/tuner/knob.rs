//! What a tuner turns, and the values that it may have.

use core::fmt;

/// Most values of a [`Ladder`].
pub const MAX_VALUES: usize = 32;

/// When a change of a [`Knob`] takes effect.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum When {
    /// At once: the program's own affair.
    Now,
    /// With the next queue pair: it is fixed when one is made or brought to RTS.
    NextQp,
    /// With the next plan of an aggregation or exchange: all members must have the same, so none
    /// can turn it alone.
    NextPlan,
}

impl When {
    /// As reports say it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Now => "now",
            Self::NextQp => "at the next QP",
            Self::NextPlan => "at the next plan",
        }
    }
}

/// A setting that a [`Tuner`](super::Tuner) may turn.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Knob {
    /// [`BatchConfig::max_wrs`](crate::policy::BatchConfig::max_wrs), in work requests.
    MaxWrs,
    /// [`BatchConfig::max_delay`](crate::policy::BatchConfig::max_delay), in picoseconds.
    MaxDelay,
    /// Every how many work requests one is signalled.
    SignalEvery,
    /// Rate at which a lane or a destination is fed, in bits per second: what
    /// [`Lanes::set_pace`](crate::policy::lanes::Lanes::set_pace) takes. While CNPs, sequence NAKs
    /// or timeouts come it is only lowered.
    Pace,
    /// Bytes of a chunk of an aggregation or exchange
    /// ([`AggregateConfig::chunk`](crate::policy::aggregate::AggregateConfig::chunk)).
    ChunkBytes,
    /// ACK timeout, as its code (1 to 31; one more doubles it). Code 0, no timer, is none to try.
    Timeout,
    /// Retries after a loss (0 to 7).
    RetryCnt,
    /// Least time that the peer's RNR NAK asks for, as its code. Code 0 is the longest of all, so
    /// on a [`Ladder`] it stands last.
    RnrTimer,
    /// Receives that are posted.
    RecvDepth,
    /// Slots of the send queue.
    SendDepth,
    /// Bytes up to which a payload goes inline.
    Inline,
}

impl Knob {
    /// When a change takes effect.
    pub const fn when(self) -> When {
        match self {
            Self::MaxWrs | Self::MaxDelay | Self::SignalEvery | Self::Pace => When::Now,
            Self::ChunkBytes => When::NextPlan,
            Self::Timeout | Self::RetryCnt | Self::RnrTimer => When::NextQp,
            Self::RecvDepth | Self::SendDepth | Self::Inline => When::NextQp,
        }
    }

    /// As reports call it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::MaxWrs => "max_wrs",
            Self::MaxDelay => "max_delay",
            Self::SignalEvery => "signal_every",
            Self::Pace => "pace",
            Self::ChunkBytes => "chunk",
            Self::Timeout => "timeout",
            Self::RetryCnt => "retry_cnt",
            Self::RnrTimer => "min_rnr_timer",
            Self::RecvDepth => "recv_depth",
            Self::SendDepth => "send_depth",
            Self::Inline => "inline",
        }
    }
}

/// Why there is no such [`Ladder`].
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum LadderError {
    /// It has no value.
    Empty,
    /// It has more than [`MAX_VALUES`].
    TooLong {
        /// Values that were given.
        got: usize,
    },
    /// A value stands on it twice.
    Twice {
        /// The value.
        value: u64,
    },
    /// The value to begin with is none of its values.
    NotOn {
        /// The value.
        value: u64,
    },
}

impl fmt::Display for LadderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("a ladder needs at least one value"),
            Self::TooLong { got } => {
                write!(f, "{got} values are more than {MAX_VALUES}: leave some out")
            }
            Self::Twice { value } => write!(f, "{value} stands on the ladder twice"),
            Self::NotOn { value } => {
                write!(f, "{value}, to begin with, is none of the ladder's values: add it")
            }
        }
    }
}

impl core::error::Error for LadderError {}

/// The values that a knob may have, in the order of their effect: a step is from one to its
/// neighbour. Finer: more steps, each of which must pay; too fine, and no single one does.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Ladder {
    values: [u64; MAX_VALUES],
    len: usize,
    at: usize,
}

impl Ladder {
    /// These values, and the one to begin with.
    ///
    /// # Errors
    /// See [`LadderError`].
    pub fn of(values: &[u64], start: u64) -> Result<Self, LadderError> {
        if values.is_empty() {
            return Err(LadderError::Empty);
        }
        if values.len() > MAX_VALUES {
            return Err(LadderError::TooLong { got: values.len() });
        }
        let mut own = [0; MAX_VALUES];
        for (i, value) in values.iter().enumerate() {
            if values[..i].contains(value) {
                return Err(LadderError::Twice { value: *value });
            }
            own[i] = *value;
        }
        let at = values.iter().position(|v| *v == start);
        let at = at.ok_or(LadderError::NotOn { value: start })?;
        Ok(Self { values: own, len: values.len(), at })
    }

    /// All whole numbers of a range, at most [`MAX_VALUES`] of them. `None` for more, or if `start`
    /// is not among them.
    pub fn steps(range: core::ops::RangeInclusive<u64>, start: u64) -> Option<Self> {
        let (first, len) = (*range.start(), range.end().checked_sub(*range.start())? + 1);
        if len > MAX_VALUES as u64 || !range.contains(&start) {
            return None;
        }
        let len = len as usize;
        let mut values = [0; MAX_VALUES];
        values[..len].iter_mut().zip(first..).for_each(|(value, n)| *value = n);
        Some(Self { values, len, at: (start - first) as usize })
    }

    /// `start`, whatever the range, with its halves down to `from` and its doubles up to `to`; at
    /// most 15 halves, and at most [`MAX_VALUES`] in all.
    pub fn doubling(from: u64, to: u64, start: u64) -> Self {
        let mut lowest = start;
        for _ in 1..MAX_VALUES / 2 {
            if lowest / 2 >= from.max(1) && lowest.is_multiple_of(2) {
                lowest /= 2;
            }
        }
        let (mut values, mut len, mut at) = ([0; MAX_VALUES], 0, 0);
        let mut value = Some(lowest);
        while let Some(v) = value.filter(|v| (*v <= to || *v == start) && len < MAX_VALUES) {
            values[len] = v;
            at = if v == start { len } else { at };
            len += 1;
            value = v.checked_mul(2).filter(|_| v > 0);
        }
        Self { values, len, at }
    }

    /// The values.
    pub fn values(&self) -> &[u64] {
        &self.values[..self.len]
    }

    /// The value now.
    pub const fn value(&self) -> u64 {
        self.values[self.at]
    }

    /// Its place.
    pub(super) const fn at(&self) -> usize {
        self.at
    }

    /// Another place.
    pub(super) fn go(&mut self, at: usize) {
        assert!(at < self.len, "a place on the ladder");
        self.at = at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ladder_has_its_values_once_and_one_to_begin_with() {
        let l = Ladder::of(&[1, 31, 0], 31).unwrap();
        assert_eq!((l.values(), l.value(), l.at()), (&[1, 31, 0][..], 31, 1));
        let many = core::array::from_fn::<u64, { MAX_VALUES + 1 }, _>(|i| i as u64);
        assert!(Ladder::of(&many[..MAX_VALUES], 0).is_ok());
        for (values, start, error) in [
            (&[][..], 0, LadderError::Empty),
            (&many[..], 0, LadderError::TooLong { got: MAX_VALUES + 1 }),
            (&[2, 4, 2][..], 4, LadderError::Twice { value: 2 }),
            (&[2, 4][..], 3, LadderError::NotOn { value: 3 }),
        ] {
            assert_eq!(Ladder::of(values, start), Err(error));
        }
    }

    #[test]
    fn steps_are_all_numbers_of_a_range() {
        let l = Ladder::steps(0..=7, 3).unwrap();
        assert_eq!((l.values(), l.value()), (&[0, 1, 2, 3, 4, 5, 6, 7][..], 3));
        assert!(Ladder::steps(1..=MAX_VALUES as u64, 1).is_some());
        assert!(Ladder::steps(0..=MAX_VALUES as u64, 1).is_none(), "too many");
        assert!(Ladder::steps(1..=31, 0).is_none() && Ladder::steps(1..=31, 32).is_none());
        #[expect(clippy::reversed_empty_ranges, reason = "an empty range has no place")]
        let empty = Ladder::steps(5..=4, 5);
        assert!(empty.is_none());
    }

    #[test]
    fn doubling_goes_both_ways_from_the_start_within_the_range() {
        assert_eq!(Ladder::doubling(1, 16, 4).values(), [1, 2, 4, 8, 16]);
        assert_eq!(Ladder::doubling(2, 15, 4).values(), [2, 4, 8]);
        assert_eq!(Ladder::doubling(1, 24, 6).values(), [3, 6, 12, 24], "whole numbers only");
        assert_eq!(Ladder::doubling(8, 16, 4).values(), [4, 8, 16]);
        assert_eq!(Ladder::doubling(1, 2, 4).values(), [1, 2, 4]);
        assert_eq!(Ladder::doubling(0, 9, 0).values(), [0]);
        let wide = Ladder::doubling(1, u64::MAX, 1);
        assert_eq!((wide.values().len(), wide.value()), (MAX_VALUES, 1));
        let high = Ladder::doubling(1, u64::MAX, 1 << 63);
        assert_eq!((high.values()[0], high.value()), (1 << 48, 1 << 63));
    }
}
