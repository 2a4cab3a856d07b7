//! An integral controller on the deviation of the round trip time.
//!
//! No device has it; it is here for the question how the gain of a closed loop has to fit the
//! round trip time. Its one state is F, the bytes that the flow wants in flight. With each sample R
//! of the round trip time, dt after the last one,
//!
//! F += gain · dt · F · (target - R) / target
//!
//! and the flow may have F bytes in flight, paced at F / R. So the rate integrates the deviation,
//! and the queue itself acts at once: R grows with it and slows the pace.
//!
//! F stays below line rate · R. A flow that has come so far is held back by nothing: it has no
//! pace, and no window either. R is that of the packets which ask for an ACK, and the others wait
//! for theirs until one of these has its own, so that line rate · R in flight would not fill the
//! line.
//!
//! **Why not a rate that integrates the deviation alone.** A queue is itself the integral of the
//! rate. Two integrators in a loop with a delay have no gain at which they come to rest.
//!
//! **The gain's unit** is 1/s: with a deviation of the whole target, F changes by the share
//! gain · t in a time t that is short. When the network is loaded, R is F of all flows over the
//! bottleneck's rate, one round trip ago, so that the loop is an integrator with a delay
//! T = target: gain / s · e^(-sT). It is damped without overshoot up to gain · T = 1/e = 0.37,
//! rings beyond, and oscillates for ever from gain · T = π/2 on. 1 / (2π T) is 0.16 of a target:
//! calm, and 2.3 times slower than the fastest without overshoot.
//!
//! **Width.** F is a multiple of 2^-16 byte.

use doorbell_core::units::{BitRate, PS_PER_S, Span, Time};

use super::{CcEvent, CongestionControl, Swings, mul_div};

/// Parameters.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Integral {
    /// Gain in 1/s. Higher: faster, until it oscillates.
    pub gain: u64,
    /// Round trip time to hold: that of the empty path plus the queue that is wanted, as a time.
    pub target: Span,
    /// Rate to begin with; `None`: the line rate.
    pub start: Option<BitRate>,
    /// Rate below which it does not go.
    pub min_rate: BitRate,
}

/// 1 byte of F.
const BYTE: u64 = 1 << 16;

impl Integral {
    /// A flow on a port of this rate.
    ///
    /// # Panics
    /// When the target is zero.
    pub fn build(&self, line: BitRate) -> IntegralFlow {
        assert!(self.target > Span::ZERO, "target 0; a little more than the empty path's time");
        let start = self.start.map_or(line, |s| s.min(line));
        let flight = in_flight(start.as_bps(), self.target);
        IntegralFlow {
            cfg: *self,
            line: line.as_bps(),
            flight,
            rtt: self.target,
            sampled: None,
            swings: Swings::default(),
        }
    }
}

/// F at a rate and a round trip time.
const fn in_flight(bps: u64, rtt: Span) -> u64 {
    mul_div(bps, rtt.as_ps() * (BYTE / 8), PS_PER_S)
}

/// One flow under the integrator.
#[derive(Clone, Debug)]
pub struct IntegralFlow {
    cfg: Integral,
    line: u64,
    /// F, in 2^-16 bytes.
    flight: u64,
    /// The last sample.
    rtt: Span,
    sampled: Option<Time>,
    swings: Swings,
}

impl IntegralFlow {
    fn on_sample(&mut self, now: Time, rtt: Span) {
        self.swings.sample(now, rtt, self.cfg.target);
        let since = self.sampled.replace(now).map_or(Span::ZERO, |last| now.since(last));
        let target = self.cfg.target.as_ps();
        // Integration over more than a target's time would be of a deviation that is gone.
        let dt = since.as_ps().min(target);
        let off = rtt.as_ps().abs_diff(target).min(target);
        let gained = mul_div(mul_div(self.flight, self.cfg.gain, PS_PER_S / 1000), dt, 1000);
        let change = mul_div(gained, off, target);
        self.flight = if rtt.as_ps() <= target {
            self.flight.saturating_add(change)
        } else {
            self.flight.saturating_sub(change)
        };
        // No more than the port can bring under way: it would take as long to come down again.
        let (least, most) = (in_flight(self.cfg.min_rate.as_bps(), rtt), in_flight(self.line, rtt));
        self.flight = self.flight.max(least).min(most.max(least));
        self.rtt = rtt;
    }

    const fn fills_the_line(&self) -> bool {
        self.flight >= in_flight(self.line, self.rtt)
    }
}

impl CongestionControl for IntegralFlow {
    fn on_event(&mut self, now: Time, event: CcEvent) {
        if let CcEvent::Ack { rtt: Some(rtt), .. } = event {
            self.on_sample(now, rtt);
        }
    }

    fn rate(&self) -> Option<BitRate> {
        if self.fills_the_line() {
            return None;
        }
        let bps = mul_div(self.flight, 8 * PS_PER_S / BYTE, self.rtt.as_ps().max(1));
        BitRate::new(bps.max(1))
    }

    fn window(&self) -> Option<u64> {
        (!self.fills_the_line()).then_some(self.flight / BYTE)
    }

    fn swings(&self) -> Option<Swings> {
        Some(self.swings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: Span = Span::from_us(10);

    fn cfg(gain: u64) -> Integral {
        let (start, min_rate) = (BitRate::new(1_000_000_000), BitRate::new(1_000_000).unwrap());
        Integral { gain, target: TARGET, start, min_rate }
    }

    fn sample(flow: &mut IntegralFlow, now: Time, rtt: Span) {
        flow.on_event(now, CcEvent::Ack { bytes: 1000, rtt: Some(rtt), ecn: false });
    }

    #[test]
    fn a_constant_deviation_is_integrated_at_the_gain() {
        // A deviation of half the target at gain 10^4 /s: F grows by e^(5000 t), e^0.5 in 100 us.
        for (rtt, factor) in [(5, 1.648_72), (15, 0.606_53), (10, 1.0)] {
            let mut flow = cfg(10_000).build(BitRate::gbps(100));
            let before = flow.window().unwrap() as f64;
            assert_eq!(before, 1250.0, "1 Gb/s for 10 us");
            for step in 0..=1000 {
                sample(&mut flow, Time::ZERO + Span::from_ns(100 * step), Span::from_us(rtt));
            }
            let got = flow.window().unwrap() as f64 / before;
            assert!((got - factor).abs() < 0.002, "{rtt}: {got}");
            let rate = flow.rate().unwrap().as_bps() as f64;
            let want = flow.window().unwrap() as f64 * 8e6 / rtt as f64;
            assert!((rate / want - 1.0).abs() < 0.001, "{rate} {want}");
        }
    }

    /// Follows F over the loop of the module's docs: a bottleneck of 10 Gb/s whose round trip time
    /// is F over its rate, seen a target's time late. Gives the largest F beyond the balance and
    /// the last distance from it, both as shares.
    fn step_response(gain: u64) -> (f64, f64) {
        let mut flow = cfg(gain).build(BitRate::gbps(100));
        flow.flight = 8_000 * BYTE;
        let balance = 12_500.0;
        let mut seen = std::collections::VecDeque::from(vec![flow.flight; 100]);
        let (mut over, mut last) = (0.0_f64, 0.0);
        for step in 0..4000 {
            let late = seen.pop_front().unwrap();
            let rtt = Span::from_ps(mul_div(late, 800, BYTE));
            sample(&mut flow, Time::ZERO + Span::from_ns(100 * step), rtt);
            seen.push_back(flow.flight);
            last = flow.flight as f64 / BYTE as f64 / balance - 1.0;
            over = over.max(last);
        }
        (over, last)
    }

    #[test]
    fn the_loop_is_calm_up_to_1_over_e_and_never_rests_beyond_half_pi() {
        let per_target = |x: f64| (x * 1e5) as u64;
        // 1 / (2π T) = 15,915 /s for 10 us.
        for gain in [per_target(0.159), per_target(0.36)] {
            let (over, last) = step_response(gain);
            assert!(over < 0.001 && last.abs() < 0.001, "{gain}: {over} {last}");
        }
        let (over, last) = step_response(per_target(1.0));
        assert!(over > 0.1 && last.abs() < 0.01, "it rings: {over} {last}");
        let (over, _) = step_response(per_target(1.7));
        assert!(over > 0.3, "it oscillates: {over}");
    }

    #[test]
    fn it_stays_between_its_ends() {
        let mut flow = cfg(1_000_000).build(BitRate::gbps(100));
        for us in 0..1000 {
            sample(&mut flow, Time::ZERO + Span::from_us(us), Span::from_us(5));
        }
        assert_eq!((flow.rate(), flow.window()), (None, None), "the line's");
        sample(&mut flow, Time::ZERO + Span::from_ms(1), Span::from_us(10));
        assert_eq!(flow.window(), Some(62_500), "the line's, for 5 us");
        for us in 1000..2000 {
            sample(&mut flow, Time::ZERO + Span::from_us(us), Span::from_us(50));
        }
        assert!(flow.rate().unwrap().as_bps().abs_diff(1_000_000) <= 2, "1 Mb/s");
    }
}
