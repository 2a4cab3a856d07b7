//! When the requester gives up waiting for an ACK: the ack timer's interval, and the one rule for
//! the time until `RETRY_EXC_ERR`.

use std::fmt::Debug;
use std::sync::Arc;

use doorbell_core::units::{Ratio, Span};
use doorbell_core::verbs::{AckTimeout, RetryCnt, RnrTimer};

use super::rules::RetrySeven;

/// The least and the greatest interval of a timer. The engine draws between them, evenly.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Interval {
    /// Least.
    pub least: Span,
    /// Greatest.
    pub most: Span,
}

impl Interval {
    /// Always the same.
    pub const fn exactly(span: Span) -> Self {
        Self { least: span, most: span }
    }
}

/// What a device makes of the attribute `timeout`. Anybody may write one
/// ([`TimeoutMode::Custom`]); it is shared by all QPs of a NIC and keeps no state.
pub trait AckTimeoutMode: Debug + Send + Sync {
    /// Interval of the timer that is armed when it has expired `expired` times since the last
    /// progress. `None`: no timer. It must be more than zero.
    fn interval(&self, timeout: AckTimeout, expired: u32) -> Option<Interval>;

    /// How long the device waits after an RNR NAK that carries this code: at least the code's time.
    fn rnr_wait(&self, timer: RnrTimer) -> Span {
        timer.duration()
    }
}

/// The intervals of the ack timer (`protocol.md` §2.5, §9, §10 row 17).
#[derive(Clone, Debug)]
pub enum TimeoutMode {
    /// A multiple of T = 4.096 us · 2^timeout, drawn between two ratios at each start. The
    /// specification allows T to 4T (recalled). `timeout` 0: no timer.
    Fixed {
        /// Least multiple of T.
        least: Ratio,
        /// Greatest.
        most: Ratio,
    },
    /// T, but not less than a floor: small values of `timeout` have no effect. ConnectX-2 was
    /// reported with about 500 ms, ConnectX-6 Dx resends every 0.5 s at `timeout` 14.
    Floor {
        /// The floor. Twice of it: a lost last packet costs twice the time.
        min: Span,
    },
    /// Adaptive retransmission as on ConnectX: starts at `first`, doubles with each expiry up to
    /// `most`, and ignores `timeout` (save that 0 is no timer).
    Adaptive {
        /// First interval.
        first: Span,
        /// Largest interval.
        most: Span,
    },
    /// T rounded up to whole ticks of the clock that drives the device's timers, and so never less
    /// than one; the wait after an RNR NAK as well. Software does so: rxe counts in jiffies of the
    /// kernel (`protocol.md` §9).
    Ticks {
        /// One tick, more than zero. Twice of it: waits far shorter take twice the time.
        tick: Span,
    },
    /// Somebody else's.
    Custom(Arc<dyn AckTimeoutMode>),
}

impl TimeoutMode {
    /// Exactly T.
    pub const T: Self = Self::Fixed { least: Ratio::ONE, most: Ratio::ONE };
}

impl AckTimeoutMode for TimeoutMode {
    fn interval(&self, timeout: AckTimeout, expired: u32) -> Option<Interval> {
        let t = timeout.duration()? * if mutant!(AckTimeoutDoubled) { 2 } else { 1 };
        match self {
            Self::Fixed { least, most } if least == most => {
                Some(Interval::exactly(t.scaled(*least)))
            }
            Self::Fixed { least, most } => {
                Some(Interval { least: t.scaled(*least), most: t.scaled(*most) })
            }
            Self::Floor { min } => Some(Interval::exactly(t.max(*min))),
            Self::Adaptive { first, most } => {
                let factor = 1_u64
                    .checked_shl(if mutant!(NoBackoff) { 0 } else { expired.min(62) })
                    .unwrap_or(u64::MAX);
                let ps = first.as_ps().saturating_mul(factor);
                Some(Interval::exactly(Span::from_ps(ps).min(*most)))
            }
            Self::Ticks { tick } => Some(Interval::exactly(whole_ticks(t, *tick))),
            Self::Custom(mode) => mode.interval(timeout, expired),
        }
    }

    fn rnr_wait(&self, timer: RnrTimer) -> Span {
        match self {
            Self::Ticks { tick } => whole_ticks(timer.duration(), *tick),
            Self::Custom(mode) => mode.rnr_wait(timer),
            _ => timer.duration(),
        }
    }
}

/// The least number of whole ticks that is no shorter.
fn whole_ticks(span: Span, tick: Span) -> Span {
    tick * span.as_ps().div_ceil(tick.as_ps())
}

/// Least and greatest time from the first transmission of a packet that is never answered to
/// `RETRY_EXC_ERR`. `None`: it never comes, because there is no timer, or because `retry_cnt` 7
/// is without end.
///
/// The rule: the timer starts when the packet's last bit has left. Each of the first `retry_cnt`
/// expiries sends the packet again, which starts it anew; the next one ends the QP. So it is the
/// sum of `retry_cnt` + 1 intervals: (`retry_cnt` + 1) · T for [`TimeoutMode::T`]. The time that a
/// retransmission takes to its own last bit comes on top.
///
/// ```
/// use doorbell_core::units::Span;
/// use doorbell_core::verbs::{AckTimeout, RetryCnt};
/// use doorbell_sim::rc::{Interval, RetrySeven, TimeoutMode, time_to_retry_exc};
///
/// let (timeout, retry_cnt) = (AckTimeout::new(14).unwrap(), RetryCnt::new(7).unwrap());
/// let fixed = time_to_retry_exc(&TimeoutMode::T, timeout, retry_cnt, RetrySeven::Seven);
/// assert_eq!(fixed, Some(Interval::exactly(Span::from_ps(8 * 67_108_864_000))));
/// // ConnectX-6 Dx: 3.5 to 3.8 s were seen.
/// let floor = TimeoutMode::Floor { min: Span::from_ms(500) };
/// let vendor = time_to_retry_exc(&floor, timeout, retry_cnt, RetrySeven::Seven);
/// assert_eq!(vendor, Some(Interval::exactly(Span::from_ms(4000))));
/// ```
pub fn time_to_retry_exc(
    mode: &TimeoutMode,
    timeout: AckTimeout,
    retry_cnt: RetryCnt,
    seven: RetrySeven,
) -> Option<Interval> {
    let retries = retry_limit(retry_cnt, seven)?;
    let mut sum = Interval::exactly(Span::ZERO);
    for expired in 0..=retries {
        let one = mode.interval(timeout, expired)?;
        sum = Interval { least: sum.least + one.least, most: sum.most + one.most };
    }
    Some(sum)
}

/// Retries before the end; `None`: there is no end.
pub(super) const fn retry_limit(retry_cnt: RetryCnt, seven: RetrySeven) -> Option<u32> {
    match seven {
        RetrySeven::Infinite if retry_cnt.code() == RetryCnt::MAX_CODE => None,
        _ => Some(retry_cnt.retries()),
    }
}

/// The draw of an interval: a stream of its own for each QP, so that no QP shifts another's.
#[derive(Clone, Debug)]
pub(super) struct Draw(u64);

impl Draw {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn between(&mut self, interval: Interval) -> Span {
        let Interval { least, most } = interval;
        if least >= most {
            return least;
        }
        let width = (most - least).as_ps() + 1;
        // splitmix64; the bias of the modulus is below 2^-20 for any width up to hours.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let wide = u128::from(z ^ (z >> 31)) * u128::from(width);
        least + Span::from_ps((wide >> 64) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Span = Span::from_ms;

    fn code(c: u8) -> AckTimeout {
        AckTimeout::new(c).unwrap()
    }

    #[test]
    fn t_to_4t_is_drawn_from_the_whole_range_and_nothing_else() {
        let four = Ratio::new(4, 1).unwrap();
        let mode = TimeoutMode::Fixed { least: Ratio::ONE, most: four };
        let t = code(1).duration().unwrap();
        let interval = mode.interval(code(1), 0).unwrap();
        assert_eq!(interval, Interval { least: t, most: t * 4 });
        let mut draw = Draw::new(7);
        let draws: Vec<_> = (0..1000).map(|_| draw.between(interval)).collect();
        assert!(draws.iter().all(|d| (t..=t * 4).contains(d)));
        for quarter in 0..3 {
            let (from, to) = (t * (quarter + 1), t * (quarter + 2));
            let n = draws.iter().filter(|d| (from..to).contains(d)).count();
            assert!((270..400).contains(&n), "{n} of 1000 in {from} to {to}");
        }
        assert_eq!(Draw::new(7).between(interval), draws[0]);
        assert_eq!(Draw::new(1).between(Interval::exactly(t)), t);
    }

    #[test]
    fn the_floor_holds_up_to_the_code_that_passes_it() {
        let mode = TimeoutMode::Floor { min: MS(500) };
        for c in 1..=16 {
            assert_eq!(mode.interval(code(c), 3), Some(Interval::exactly(MS(500))), "{c}");
        }
        assert_eq!(mode.interval(code(17), 0).unwrap().least, code(17).duration().unwrap());
    }

    #[test]
    fn ticks_round_up_and_never_to_less_than_one() {
        let tick = MS(4);
        let mode = TimeoutMode::Ticks { tick };
        // 4.096 us * 2^9 and 2^10: 2.1 ms are one tick, 4.19 ms are two; 67.1 ms are 17.
        for (c, ticks) in [(1, 1), (9, 1), (10, 2), (14, 17)] {
            assert_eq!(mode.interval(code(c), 7), Some(Interval::exactly(tick * ticks)), "{c}");
        }
        let rnr = |code| mode.rnr_wait(RnrTimer::new(code).unwrap());
        // 0.01 ms; 3.84 and 5.12 ms; 655.36 ms.
        assert_eq!([1, 17, 18, 0].map(rnr), [4, 4, 8, 656].map(MS));
        let whole = TimeoutMode::Ticks { tick: code(3).duration().unwrap() };
        assert_eq!(whole.interval(code(3), 0).unwrap().most, code(3).duration().unwrap());
        let other = TimeoutMode::Custom(Arc::new(mode));
        assert_eq!(other.rnr_wait(RnrTimer::new(1).unwrap()), tick);
        assert_eq!(TimeoutMode::T.rnr_wait(RnrTimer::new(1).unwrap()), Span::from_us(10));
    }

    #[test]
    fn adaptive_doubles_and_stops_doubling() {
        let mode = TimeoutMode::Adaptive { first: MS(4), most: MS(100) };
        let all: Vec<_> = (0..7).map(|n| mode.interval(code(14), n).unwrap().least).collect();
        assert_eq!(all, [4, 8, 16, 32, 64, 100, 100].map(MS));
        assert_eq!(mode.interval(code(1), u32::MAX).unwrap().least, MS(100));
    }

    #[test]
    fn code_0_is_no_timer_in_any_mode() {
        let modes = [
            TimeoutMode::T,
            TimeoutMode::Floor { min: MS(1) },
            TimeoutMode::Adaptive { first: MS(1), most: MS(9) },
            TimeoutMode::Ticks { tick: MS(4) },
        ];
        for mode in modes {
            assert_eq!(mode.interval(code(0), 0), None, "{mode:?}");
            let never =
                time_to_retry_exc(&mode, code(0), RetryCnt::new(0).unwrap(), RetrySeven::Seven);
            assert_eq!(never, None);
        }
    }

    #[test]
    fn the_time_to_the_end_sums_one_interval_more_than_retries() {
        for n in 0..=7 {
            let retry_cnt = RetryCnt::new(n).unwrap();
            let t = code(8).duration().unwrap();
            let fixed = time_to_retry_exc(&TimeoutMode::T, code(8), retry_cnt, RetrySeven::Seven);
            assert_eq!(fixed, Some(Interval::exactly(t * (u64::from(n) + 1))));
            let mode = TimeoutMode::Adaptive { first: MS(1), most: MS(1000) };
            let adaptive = time_to_retry_exc(&mode, code(8), retry_cnt, RetrySeven::Seven);
            assert_eq!(adaptive, Some(Interval::exactly(MS((2 << n) - 1))));
            let rxe = time_to_retry_exc(&TimeoutMode::T, code(8), retry_cnt, RetrySeven::Infinite);
            assert_eq!(rxe.is_none(), n == 7);
        }
    }
}
