//! Pacing: a token bucket that says when the next message may go.

use core::fmt;

use crate::units::{BitRate, Bytes, PS_PER_S, Ratio, Time};

#[cfg(test)]
mod tests;

/// Rate and burst of a [`Pacer`].
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct PaceConfig {
    /// Bytes per second, as a fraction: 50 Gb/s are 50·10⁹ / 8. Higher: messages leave sooner, and
    /// more of them meet what others send. It is payload, as messages are measured; headers come
    /// on top. `num` from 1, `den` up to [`MAX_DEN`](PaceConfig::MAX_DEN).
    pub rate: Ratio,
    /// Bytes that may go at once after a pause, from 1 to [`MAX_BURST`](PaceConfig::MAX_BURST).
    /// Higher: bursts pass unhindered, and the queues in front of a receiver must hold them.
    /// Lower than a message: that message goes alone when the bucket is full, and the next one
    /// waits until it is paid for.
    pub burst: Bytes,
}

impl PaceConfig {
    /// Largest burst, 1 TiB: with this and [`MAX_DEN`](PaceConfig::MAX_DEN) no product passes 128
    /// bits.
    pub const MAX_BURST: Bytes = Bytes(1 << 40);
    /// Largest denominator of the rate.
    pub const MAX_DEN: u64 = u32::MAX as u64;

    /// A rate in bits per second.
    pub const fn of(rate: BitRate, burst: Bytes) -> Self {
        Self { rate: Ratio { num: rate.as_bps(), den: 8 }, burst }
    }

    /// Whether it can be kept.
    ///
    /// # Errors
    /// See [`PaceError`].
    pub const fn check(&self) -> Result<(), PaceError> {
        let Self { rate: Ratio { num, den }, burst } = *self;
        if num == 0 {
            return Err(PaceError::NoRate);
        }
        if den == 0 || den > Self::MAX_DEN {
            return Err(PaceError::Denominator { got: den });
        }
        if burst.0 == 0 || burst.0 > Self::MAX_BURST.0 {
            return Err(PaceError::Burst { got: burst });
        }
        Ok(())
    }
}

/// A [`PaceConfig`] that cannot be kept.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum PaceError {
    /// A rate of zero: nothing would ever go.
    NoRate,
    /// A denominator outside of 1 to [`PaceConfig::MAX_DEN`].
    Denominator {
        /// What was given.
        got: u64,
    },
    /// A burst outside of 1 byte to [`PaceConfig::MAX_BURST`].
    Burst {
        /// What was given.
        got: Bytes,
    },
}

impl fmt::Display for PaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRate => f.write_str("a pace of 0 B/s lets nothing go: leave the pace out"),
            Self::Denominator { got } => {
                let max = PaceConfig::MAX_DEN;
                write!(f, "the pace has {got} as its denominator: reduce the fraction, 1 to {max}")
            }
            Self::Burst { got: Bytes(got) } => {
                let max = PaceConfig::MAX_BURST.0;
                write!(f, "a burst of {got} B: give 1 B to {max} B, better a few messages")
            }
        }
    }
}

impl core::error::Error for PaceError {}

/// A token bucket: full at first, it loses the bytes of each message and gains them back at its
/// rate. A message may go when the bucket holds it, or when it is full.
///
/// What it promises, if whoever asks keeps to [`ready`](Pacer::ready):
///
/// - From any message to any later one, both counted, no more goes than burst + rate · (time +
///   1 ps), or the last message instead of the burst where that is longer.
/// - Who always has a message and sends each at the time that it names sends as much as that, less
///   a message: what the clock of whole picoseconds makes a message wait too long is not lost but
///   the next one's gain, so nothing drifts in hours.
/// - No message waits without need: a picosecond earlier it would have been too early.
///
/// Tokens are counted in units of which a byte has `den` · 10¹² and a picosecond brings `num`, so
/// the arithmetic is exact. Nobody sleeps here: wait until the time with the wait of the program.
///
/// ```
/// use doorbell_core::policy::{PaceConfig, Pacer};
/// use doorbell_core::units::{BitRate, Bytes, Span, Time};
///
/// let config = PaceConfig::of(BitRate::gbps(50), Bytes(8192));
/// let mut pacer = Pacer::new(config, Time::ZERO).unwrap();
/// for _ in 0..2 {
///     assert_eq!(pacer.take(Time::ZERO, 4096), Ok(()));
/// }
/// let next = pacer.take(Time::ZERO, 4096).unwrap_err();
/// assert_eq!(next, Time::ZERO + Span::from_ps(655_360), "4096 B at 50 Gb/s");
/// assert_eq!(pacer.take(next, 4096), Ok(()));
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pacer {
    config: PaceConfig,
    /// Units that the bucket gains in a picosecond.
    gain: u128,
    /// Units of a byte.
    byte: u128,
    /// Units of the full bucket.
    room: u128,
    /// Units that it lacked at `at`, and `slack` more. More than `room` after a message that is
    /// longer than it.
    missing: u128,
    at: Time,
}

impl Pacer {
    /// A full bucket, at `now`.
    ///
    /// # Errors
    /// See [`PaceError`].
    pub const fn new(config: PaceConfig, now: Time) -> Result<Self, PaceError> {
        if let Err(e) = config.check() {
            return Err(e);
        }
        let byte = config.rate.den as u128 * PS_PER_S as u128;
        let room = config.burst.0 as u128 * byte;
        let gain = config.rate.num as u128;
        Ok(Self { config, gain, byte, room, missing: gain - 1, at: now })
    }

    /// What it keeps to.
    pub const fn config(&self) -> PaceConfig {
        self.config
    }

    /// When a message of `bytes` may go, if nothing goes before: `now`, or later.
    #[inline]
    pub const fn ready(&self, now: Time, bytes: u64) -> Time {
        // A message that the bucket never holds goes when it is full.
        let allowed = self.slack() + self.room.saturating_sub(self.cost(bytes));
        let wait = self.missing_at(now).saturating_sub(allowed).div_ceil(self.gain);
        let wait = if wait > u64::MAX as u128 { u64::MAX } else { wait as u64 };
        Time::from_ps(now.as_ps().saturating_add(wait))
    }

    /// A message of `bytes` went at `now`. One that goes before its time is counted all the same,
    /// and those behind it wait the longer.
    #[inline]
    pub const fn sent(&mut self, now: Time, bytes: u64) {
        self.settle(now);
        self.missing = self.missing.saturating_add(self.cost(bytes));
    }

    /// Both at once: counts the message if it may go now.
    ///
    /// # Errors
    /// When it may go; nothing was counted.
    #[inline]
    pub const fn take(&mut self, now: Time, bytes: u64) -> Result<(), Time> {
        let ready = self.ready(now, bytes);
        if ready.as_ps() > now.as_ps() {
            return Err(ready);
        }
        self.sent(now, bytes);
        Ok(())
    }

    /// Keeps to another rate and burst from `now` on. What the bucket lacks it still lacks.
    ///
    /// # Errors
    /// See [`PaceError`]; nothing changed.
    pub const fn set(&mut self, config: PaceConfig, now: Time) -> Result<(), PaceError> {
        let mut new = match Self::new(config, now) {
            Ok(new) => new,
            Err(e) => return Err(e),
        };
        self.settle(now);
        // Whole bytes first: the product of all would pass 128 bits.
        let lacks = self.missing.saturating_sub(self.slack());
        let (whole, rest) = (lacks / self.byte, lacks % self.byte);
        let (from, to) = (self.config.rate.den as u128, config.rate.den as u128);
        let rest = (rest * to).div_ceil(from);
        new.missing = whole.saturating_mul(new.byte).saturating_add(rest + new.slack());
        new.at = self.at;
        *self = new;
        Ok(())
    }

    /// What a full bucket still takes: less than a picosecond brings. A message goes at a whole
    /// picosecond, and what came between the moment that it could have gone and then must not be
    /// lost.
    #[inline]
    const fn slack(&self) -> u128 {
        self.gain - 1
    }

    #[inline]
    const fn cost(&self, bytes: u64) -> u128 {
        self.byte.saturating_mul(bytes as u128)
    }

    /// The product of two 64-bit numbers always fits.
    #[inline]
    const fn missing_at(&self, now: Time) -> u128 {
        let gained = self.gain * now.since(self.at).as_ps() as u128;
        self.missing.saturating_sub(gained)
    }

    /// A clock that goes back, as lower bounds do, gains nothing twice.
    #[inline]
    const fn settle(&mut self, now: Time) {
        self.missing = self.missing_at(now);
        if now.as_ps() > self.at.as_ps() {
            self.at = now;
        }
    }
}
