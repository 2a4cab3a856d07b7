//! Quantities with their units in the type: time, sizes, rates, ratios.
//!
//! All of them are integers. A simulated decision never depends on a float, because float
//! results differ between libraries and compilers and a run would no longer repeat bit for bit.

use core::fmt;
use core::ops::{Add, AddAssign, Mul, Sub};

/// Picoseconds in one second.
pub const PS_PER_S: u64 = 1_000_000_000_000;

/// A point in time, in picoseconds since the start of the run (simulator) or since an arbitrary
/// epoch (hardware). A `u64` of picoseconds lasts 213 days.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(u64);

/// A length of time in picoseconds. One byte at 400 Gb/s is 20 ps.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Span(u64);

impl Time {
    /// The start of the run.
    pub const ZERO: Self = Self(0);
    /// Later than every event.
    pub const MAX: Self = Self(u64::MAX);

    /// `ps` picoseconds after the start.
    pub const fn from_ps(ps: u64) -> Self {
        Self(ps)
    }

    /// Picoseconds since the start.
    pub const fn as_ps(self) -> u64 {
        self.0
    }

    /// Time since `earlier`, zero when `earlier` is later.
    pub const fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl Span {
    /// No time.
    pub const ZERO: Self = Self(0);
    /// The longest span.
    pub const MAX: Self = Self(u64::MAX);

    /// `ps` picoseconds.
    pub const fn from_ps(ps: u64) -> Self {
        Self(ps)
    }

    /// `ns` nanoseconds; saturates.
    pub const fn from_ns(ns: u64) -> Self {
        Self(ns.saturating_mul(1_000))
    }

    /// `us` microseconds; saturates.
    pub const fn from_us(us: u64) -> Self {
        Self(us.saturating_mul(1_000_000))
    }

    /// `ms` milliseconds; saturates.
    pub const fn from_ms(ms: u64) -> Self {
        Self(ms.saturating_mul(1_000_000_000))
    }

    /// Picoseconds.
    pub const fn as_ps(self) -> u64 {
        self.0
    }

    /// `self * ratio`, rounded up; saturates.
    pub const fn scaled(self, ratio: Ratio) -> Self {
        let v = (self.0 as u128 * ratio.num as u128).div_ceil(ratio.den as u128);
        Self(if v > u64::MAX as u128 { u64::MAX } else { v as u64 })
    }

    /// Difference, zero when `other` is longer.
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Add<Span> for Time {
    type Output = Time;
    /// Saturates at [`Time::MAX`], "never".
    fn add(self, s: Span) -> Time {
        Time(self.0.saturating_add(s.0))
    }
}

impl AddAssign<Span> for Time {
    fn add_assign(&mut self, s: Span) {
        *self = *self + s;
    }
}

impl Add for Span {
    type Output = Span;
    fn add(self, s: Span) -> Span {
        Span(self.0.saturating_add(s.0))
    }
}

impl AddAssign for Span {
    fn add_assign(&mut self, s: Span) {
        *self = *self + s;
    }
}

impl Sub for Span {
    type Output = Span;
    /// # Panics
    /// When `s` is longer than `self`: a negative span is a modelling error.
    fn sub(self, s: Span) -> Span {
        Span(self.0.checked_sub(s.0).expect("negative span"))
    }
}

impl Mul<u64> for Span {
    type Output = Span;
    fn mul(self, n: u64) -> Span {
        Span(self.0.saturating_mul(n))
    }
}

fn write_ps(ps: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let (div, unit) = match ps {
        0..1_000 => return write!(f, "{ps} ps"),
        1_000..1_000_000 => (1_000, "ns"),
        1_000_000..1_000_000_000 => (1_000_000, "us"),
        1_000_000_000..PS_PER_S => (1_000_000_000, "ms"),
        _ => (PS_PER_S, "s"),
    };
    let thousandths = (ps % div) / (div / 1_000);
    if thousandths == 0 && ps.is_multiple_of(div) {
        write!(f, "{} {unit}", ps / div)
    } else {
        write!(f, "{}.{thousandths:03} {unit}", ps / div)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_ps(self.0, f)
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_ps(self.0, f)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_ps(self.0, f)
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_ps(self.0, f)
    }
}

/// A number of bytes.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Bytes(pub u64);

/// A rate in bits per second. Zero is not representable: a resource that does not move has no
/// rate, it has a fault.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BitRate(u64);

impl BitRate {
    /// `bps` bits per second; `None` for zero.
    pub const fn new(bps: u64) -> Option<Self> {
        if bps == 0 { None } else { Some(Self(bps)) }
    }

    /// `gbps` gigabits per second.
    ///
    /// # Panics
    /// When `gbps` is zero.
    pub const fn gbps(gbps: u64) -> Self {
        assert!(gbps > 0, "a rate of zero");
        Self(gbps * 1_000_000_000)
    }

    /// Bits per second.
    pub const fn as_bps(self) -> u64 {
        self.0
    }

    /// Time that `bytes` take, rounded up to a picosecond.
    ///
    /// bytes · 8 · 10¹² passes the range of `u64` at 2.3 MB, hence the wide product.
    /// Where packets follow each other use [`Serialiser`], which carries the remainder.
    pub const fn time_for(self, bytes: u64) -> Span {
        let ps = (bytes as u128 * 8 * PS_PER_S as u128).div_ceil(self.0 as u128);
        Span(if ps > u64::MAX as u128 { u64::MAX } else { ps as u64 })
    }
}

/// Serialisation times of consecutive packets at one rate, without drift.
///
/// A packet of n bytes rarely takes a whole number of picoseconds. Each packet is rounded up and
/// the excess is taken off the next one, so that a long train takes the exact time.
#[derive(Copy, Clone, Debug)]
pub struct Serialiser {
    rate: BitRate,
    /// Excess time already granted, in units of 1/`rate` ps.
    excess: u64,
    /// Time of a byte where it is a whole number of picoseconds, as at 100, 200 and 400 Gb/s, so
    /// that no packet needs a division there; else 0.
    per_byte: u64,
}

impl Serialiser {
    /// A serialiser at `rate`.
    pub const fn new(rate: BitRate) -> Self {
        let byte = 8 * PS_PER_S;
        let whole = rate.0 > 0 && byte.is_multiple_of(rate.0);
        Self { rate, excess: 0, per_byte: if whole { byte / rate.0 } else { 0 } }
    }

    /// The rate.
    pub const fn rate(&self) -> BitRate {
        self.rate
    }

    /// Changes the rate; the carried remainder is dropped (less than one picosecond).
    pub const fn set_rate(&mut self, rate: BitRate) {
        *self = Self::new(rate);
    }

    /// Time for the next `bytes`.
    pub fn next(&mut self, bytes: u64) -> Span {
        let rate = self.rate.0;
        if bytes < 2_000_000 {
            if self.per_byte > 0 {
                return Span(bytes * self.per_byte);
            }
            let want = bytes * 8 * PS_PER_S;
            let need = want.saturating_sub(self.excess);
            let ps = need.div_ceil(rate);
            self.excess = ps * rate + self.excess - want;
            return Span(ps);
        }
        let want = bytes as u128 * 8 * PS_PER_S as u128;
        let need = want.saturating_sub(self.excess as u128);
        let ps = need.div_ceil(rate as u128);
        self.excess = (ps * rate as u128 + self.excess as u128 - want) as u64;
        Span(ps as u64)
    }
}

/// An exact fraction `num / den`, `den > 0`.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Ratio {
    /// Numerator.
    pub num: u64,
    /// Denominator, never zero.
    pub den: u64,
}

impl Ratio {
    /// One.
    pub const ONE: Self = Self { num: 1, den: 1 };

    /// `num / den`; `None` when `den` is zero.
    pub const fn new(num: u64, den: u64) -> Option<Self> {
        if den == 0 { None } else { Some(Self { num, den }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_at_400_gbps_is_20_ps() {
        assert_eq!(BitRate::gbps(400).time_for(1), Span::from_ps(20));
    }

    #[test]
    fn bytes_times_ps_overflow_is_wide_on_both_sides() {
        let r = BitRate::gbps(100);
        for bytes in [2_305_843, 2_305_844, 1 << 31, 1 << 40] {
            assert_eq!(r.time_for(bytes).as_ps(), bytes * 80);
        }
    }

    #[test]
    fn a_train_of_packets_does_not_drift() {
        let rate = BitRate::new(54_500_000_000).unwrap();
        let mut s = Serialiser::new(rate);
        let total: u64 = (0..10_000).map(|_| s.next(1_057).as_ps()).sum();
        assert_eq!(total, rate.time_for(1_057 * 10_000).as_ps());
        let mut big = Serialiser::new(rate);
        let total: u64 = (0..7).map(|_| big.next(3_000_001).as_ps()).sum();
        assert_eq!(total, rate.time_for(3_000_001 * 7).as_ps());
    }

    #[test]
    fn time_prints_in_the_unit_that_fits() {
        use std::string::ToString;
        assert_eq!(Span::from_ps(20).to_string(), "20 ps");
        assert_eq!(Span::from_ns(1_500).to_string(), "1.500 us");
        assert_eq!(Span::from_us(655_360).to_string(), "655.360 ms");
        assert_eq!(Span::from_ms(3_000).to_string(), "3 s");
    }

    #[test]
    fn scaling_rounds_up_and_saturates() {
        let r = Ratio::new(3, 2).unwrap();
        assert_eq!(Span::from_ps(3).scaled(r), Span::from_ps(5));
        assert_eq!(Span::MAX.scaled(r), Span::MAX);
    }
}
