//! TIMELY: a rate by the gradient of the round trip time, without marks.
//!
//! After each segment the newest round trip time R decides (Mittal et al., SIGCOMM'15, in our
//! words): below `t_low` the rate rises by δ; above `t_high` it falls by the factor
//! 1 - β (1 - t_high / R); between them the smoothed change of R per segment, in units of the least
//! round trip time, decides: not above zero it rises by δ, by five times that after five such
//! segments in a row; above zero it falls by 1 - β · gradient.
//!
//! **Width.** The smoothed change is a signed number of picoseconds. Gradients and factors are
//! fractions of 2^16.
//!
//! It needs ACKs: with one per message only, a long message is one segment. The responses of a READ
//! are limited at the responder, who gets no ACKs for them, so TIMELY does nothing for READs.

use doorbell_core::units::{BitRate, Span, Time};

use super::{CcEvent, CongestionControl, mul_div};

/// Parameters.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Timely {
    /// Round trip time below which the rate rises whatever the gradient is. Higher: longer queues.
    pub t_low: Span,
    /// Round trip time above which the rate falls whatever the gradient is.
    pub t_high: Span,
    /// δ, the step up.
    pub add_step: BitRate,
    /// β in 1/1024. Higher: deeper cuts.
    pub beta: u16,
    /// Weight of a new change in the smoothed one, in 1/1024.
    pub ewma: u16,
    /// Round trip time without a queue: the gradient's unit.
    pub min_rtt: Span,
    /// Segments of falling round trip times after which steps are five times as large.
    pub hai_threshold: u32,
    /// Payload bytes acknowledged between two decisions: the segment. Twice of it: half as many
    /// decisions.
    pub segment: u64,
    /// Rate below which no cut goes.
    pub min_rate: BitRate,
}

/// Factor of steps in a row of falling round trip times.
const HAI_FACTOR: u64 = 5;

/// 1 in gradients and factors.
const ONE: u64 = 1 << 16;

impl Timely {
    /// As in the paper, for 10 Gb/s and round trips of 20 us: thresholds of 50 and 500 us, steps
    /// of 10 Mb/s, β 0.8, weight 0.875, segments of 16 KB (the paper: 16 to 64).
    pub const PAPER: Self = Self {
        t_low: Span::from_us(50),
        t_high: Span::from_us(500),
        add_step: BitRate::new(10_000_000).expect("not zero"),
        beta: 819,
        ewma: 896,
        min_rtt: Span::from_us(20),
        hai_threshold: 5,
        segment: 16_000,
        min_rate: BitRate::new(10_000_000).expect("not zero"),
    };

    /// A flow on a port of this rate, which it begins with.
    ///
    /// # Panics
    /// When `min_rtt` is zero, or `t_low` above `t_high`.
    pub fn build(&self, line: BitRate) -> TimelyFlow {
        assert!(self.min_rtt > Span::ZERO, "min_rtt 0; the path's round trip time");
        assert!(self.t_low <= self.t_high, "t_low above t_high");
        let line = line.as_bps();
        TimelyFlow { cfg: *self, line, rate: line, acked: 0, last: None, change: 0, falling: 0 }
    }
}

/// One flow under TIMELY.
#[derive(Clone, Debug)]
pub struct TimelyFlow {
    cfg: Timely,
    line: u64,
    rate: u64,
    /// Bytes since the last decision.
    acked: u64,
    /// Round trip time at the last decision.
    last: Option<Span>,
    /// Smoothed change, ps per segment.
    change: i64,
    /// Segments in a row whose gradient was not above zero.
    falling: u32,
}

impl TimelyFlow {
    fn decide(&mut self, rtt: Span) {
        let Some(last) = self.last.replace(rtt) else { return };
        let c = &self.cfg;
        let weight = i64::from(c.ewma.min(1024));
        let diff = rtt.as_ps().cast_signed().wrapping_sub(last.as_ps().cast_signed());
        let mixed = i128::from(self.change) * i128::from(1024 - weight)
            + i128::from(diff) * i128::from(weight);
        self.change = (mixed / 1024) as i64;
        let gradient = mul_div(self.change.max(0).cast_unsigned(), ONE, c.min_rtt.as_ps()).min(ONE);
        let add = c.add_step.as_bps();
        let beta = u64::from(c.beta.min(1024));
        if rtt < c.t_low {
            self.falling = 0;
            self.rate += add;
        } else if rtt > c.t_high {
            self.falling = 0;
            let excess = ONE - mul_div(ONE, c.t_high.as_ps(), rtt.as_ps());
            self.rate -= mul_div(self.rate, beta * excess, 1024 * ONE);
        } else if self.change <= 0 {
            self.falling += 1;
            let times = if self.falling >= c.hai_threshold { HAI_FACTOR } else { 1 };
            self.rate += add * times;
        } else {
            self.falling = 0;
            self.rate -= mul_div(self.rate, beta * gradient, 1024 * ONE);
        }
        self.rate = self.rate.max(c.min_rate.as_bps()).min(self.line);
    }
}

impl CongestionControl for TimelyFlow {
    fn on_event(&mut self, _now: Time, event: CcEvent) {
        let CcEvent::Ack { bytes, rtt, .. } = event else { return };
        self.acked = self.acked.saturating_add(bytes);
        if let Some(rtt) = rtt
            && (self.acked >= self.cfg.segment || self.last.is_none())
        {
            self.acked = 0;
            self.decide(rtt);
        }
    }

    fn rate(&self) -> Option<BitRate> {
        if self.rate < self.line { BitRate::new(self.rate) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: u64 = 10_000_000_000;
    const STEP: u64 = 10_000_000;

    /// A flow that has seen `rtt` once, at half the line.
    fn flow(rtt: u64) -> TimelyFlow {
        let mut f = Timely::PAPER.build(BitRate::gbps(10));
        f.rate = LINE / 2;
        f.decide(Span::from_us(rtt));
        assert_eq!(f.rate, LINE / 2, "one sample has no gradient");
        f
    }

    fn after(f: &mut TimelyFlow, rtt: u64) -> u64 {
        f.decide(Span::from_us(rtt));
        f.rate
    }

    #[test]
    fn below_t_low_it_rises_and_at_t_low_the_gradient_decides() {
        assert_eq!(after(&mut flow(10), 49), LINE / 2 + STEP, "rises though the time grows");
        assert!(after(&mut flow(10), 50) < LINE / 2);
    }

    #[test]
    fn above_t_high_it_falls_by_the_share_above_and_at_t_high_the_gradient_decides() {
        // 1 - β (1 - 500 / 1000) = 1 - 819 / 2048, though the time falls.
        let want = LINE / 2 - LINE / 2 * 819 / 2048;
        assert_eq!(after(&mut flow(2000), 1000), want);
        assert_eq!(after(&mut flow(2000), 500), LINE / 2 + STEP);
    }

    #[test]
    fn between_them_a_rising_time_cuts_by_beta_times_the_gradient() {
        // 8 us more, of which 7 count, of 20 us: 0.35; 1 - 0.8 · 0.35 = 0.72.
        let rate = after(&mut flow(100), 108);
        assert!(rate.abs_diff(LINE / 2 * 72 / 100) < LINE / 10_000, "{rate}");
        // A gradient above one counts as one.
        let rate = after(&mut flow(100), 400);
        assert_eq!(rate, LINE / 2 - LINE / 2 * 819 / 1024);
    }

    #[test]
    fn from_the_fifth_falling_time_on_steps_are_five_times_as_large() {
        let mut f = flow(400);
        let mut want = LINE / 2;
        for (n, rtt) in [(1, 390), (1, 380), (1, 370), (1, 360), (5, 350), (5, 340)] {
            want += n * STEP;
            assert_eq!(after(&mut f, rtt), want);
        }
    }

    #[test]
    fn a_decision_takes_a_segment_and_a_sample() {
        let mut f = flow(100);
        let ack = |bytes, rtt| CcEvent::Ack { bytes, rtt, ecn: false };
        let rtt = Some(Span::from_us(20));
        f.on_event(Time::ZERO, ack(15_999, rtt));
        assert_eq!(f.rate, LINE / 2);
        f.on_event(Time::ZERO, ack(1, None));
        assert_eq!(f.rate, LINE / 2);
        f.on_event(Time::ZERO, ack(0, rtt));
        assert_eq!(f.rate, LINE / 2 + STEP);
    }

    #[test]
    fn the_rate_stays_between_its_ends() {
        let mut f = flow(100);
        for _ in 0..10_000 {
            after(&mut f, 20);
        }
        assert_eq!((f.rate, f.rate()), (LINE, None));
        for _ in 0..100 {
            after(&mut f, 100_000);
        }
        assert_eq!(f.rate(), BitRate::new(10_000_000));
    }
}
