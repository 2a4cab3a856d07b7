//! DCQCN, the congestion control of RoCEv2 (`protocol.md` §7.4): the sender's part.
//!
//! A flow has no limiter until its first CNP. From then on it has a current rate Rc, a target Rt
//! and α, the share of marked time. A CNP cuts Rc by α/2; a timer and a byte counter bring it back
//! in three phases: fast recovery halves the way to Rt, additive and hyper increase move Rt on. At
//! the line rate the limiter is gone, and what it knew with it.
//!
//! **Two readings of the cut.** The paper and the vendor cut when a CNP comes, at most once per
//! period. The HPCC simulator and its descendants look once per period, on a clock that the first
//! CNP starts, whether one has come since, and cut then: the first cut comes a period late
//! ([`Dcqcn::cut_on_clock`]). Their flows keep the limiter, and with it α, for life
//! ([`Dcqcn::keep_limiter`]). [`Dcqcn::HPCC`] has both.
//!
//! **Width.** Rates are whole bits per second. α is an integer of [`AlphaBits`] bits that stands
//! for α / 2^bits; its updates round towards the end that α moves to, 0 or all ones, so that it
//! gets there. Rc is rounded up in recovery, so that it reaches Rt.

use std::cmp::Ordering;

use doorbell_core::units::{BitRate, Span, Time};

use super::{CcEvent, CongestionControl, mul_div};

/// Width of α.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum AlphaBits {
    /// 10, as the scale of the vendor's parameters has it.
    Ten,
    /// 16: a gain of 1/256 still moves α where 10 bits would move it by whole 1/1024.
    Sixteen,
}

impl AlphaBits {
    const fn bits(self) -> u32 {
        match self {
            Self::Ten => 10,
            Self::Sixteen => 16,
        }
    }

    const fn full(self) -> u32 {
        (1 << self.bits()) - 1
    }
}

/// Parameters, by their names in mlxconfig and debugfs.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Dcqcn {
    /// Step of Rt in additive increase. Twice of it: flows come back faster and collide harder.
    pub rpg_ai_rate: BitRate,
    /// Step of Rt in hyper increase.
    pub rpg_hai_rate: BitRate,
    /// A cut takes α / 2^gd of the rate, α counted in 1/1024: 11 is half of α. 10 to 15; one more
    /// halves each cut.
    pub rpg_gd: u8,
    /// Least share of the rate that a cut leaves, percent. 50 never binds with `rpg_gd` 11.
    pub rpg_min_dec_fac: u8,
    /// Rate below which no cut goes.
    pub rpg_min_rate: BitRate,
    /// Rate at which the limiter ends; `None`: the line rate.
    pub rpg_max_rate: Option<BitRate>,
    /// Rate that the first CNP sets, in place of a cut; `None`: it cuts.
    pub rate_to_set_on_first_cnp: Option<BitRate>,
    /// F, steps of fast recovery. Twice of it: a flow stays longer near the rate before the cut.
    pub rpg_threshold: u32,
    /// Time between two steps of the timer. Twice of it: recovery takes twice as long.
    pub rpg_time_reset: Span,
    /// Bytes between two steps of the byte counter. `None`: there is no counter, and the timer's
    /// steps alone choose the phase: F of fast recovery, one additive, then hyper.
    pub rpg_byte_reset: Option<u64>,
    /// α of a new limiter, 0 to 1023 for 0 to 1.
    pub initial_alpha_value: u16,
    /// Share of the old α that an update keeps, in 1/1024: 1019 is a gain of 5/1024, 1020 one of
    /// 1/256.
    pub dce_tcp_g: u16,
    /// Time between two updates of α.
    pub dce_tcp_rtt: Span,
    /// Least time between two cuts. A CNP within it cuts at its end.
    pub rate_reduce_monitor_period: Span,
    /// Every cut sets Rt to Rc.
    pub clamp_tgt_rate: bool,
    /// A cut sets Rt to Rc if the timer has made a step since the last one.
    pub clamp_tgt_rate_after_time_inc: bool,
    /// Cuts are made at the ends of periods, counted from the first CNP, in which a CNP has come,
    /// and not by the CNP itself. On: an overload that all flows begin at once goes on for a period
    /// at full rate, and its queue keeps the link busy while all of them have cut too deep.
    pub cut_on_clock: bool,
    /// The limiter stays at the line rate, and α with it. On: the next CNP after a recovery cuts by
    /// the α of then; off: by `initial_alpha_value`, half of the rate.
    pub keep_limiter: bool,
    /// Width of α.
    pub alpha_bits: AlphaBits,
}

const fn mbps(n: u64) -> BitRate {
    BitRate::new(n * 1_000_000).expect("not zero")
}

impl Dcqcn {
    /// The algorithm of the paper with the parameters of the simulators that came with later ones:
    /// gain 1/256, timers of 55 us, a cut per 50 us, F 5, no byte counter, α of 16 bits.
    pub const PAPER: Self = Self {
        rpg_ai_rate: mbps(40),
        rpg_hai_rate: mbps(400),
        rpg_gd: 11,
        rpg_min_dec_fac: 50,
        rpg_min_rate: mbps(100),
        rpg_max_rate: None,
        rate_to_set_on_first_cnp: None,
        rpg_threshold: 5,
        rpg_time_reset: Span::from_us(55),
        rpg_byte_reset: None,
        initial_alpha_value: 1023,
        dce_tcp_g: 1020,
        dce_tcp_rtt: Span::from_us(55),
        rate_reduce_monitor_period: Span::from_us(50),
        clamp_tgt_rate: false,
        clamp_tgt_rate_after_time_inc: true,
        cut_on_clock: false,
        keep_limiter: false,
        alpha_bits: AlphaBits::Sixteen,
    };

    /// The same parameters in the algorithm of the HPCC paper's simulator (`rdma-hw.cc`) and of
    /// those that descend from it. Its receiver is [`Notification::HPCC`](super::Notification).
    pub const HPCC: Self = Self { cut_on_clock: true, keep_limiter: true, ..Self::PAPER };

    /// The defaults of ConnectX in the vendor's new documents. What the byte counter counts is
    /// disputed (`protocol.md` §10 row 16); here it is bytes.
    pub const VENDOR: Self = Self {
        rpg_ai_rate: mbps(5),
        rpg_hai_rate: mbps(50),
        rpg_min_rate: mbps(1),
        rpg_threshold: 1,
        rpg_time_reset: Span::from_us(300),
        rpg_byte_reset: Some(32_767),
        dce_tcp_g: 1019,
        dce_tcp_rtt: Span::from_us(1),
        rate_reduce_monitor_period: Span::from_us(4),
        alpha_bits: AlphaBits::Ten,
        ..Self::PAPER
    };

    /// A flow on a port of this rate.
    ///
    /// # Panics
    /// When `rpg_gd` is not in 10..=15, `dce_tcp_g` not below 1024, or a timer, the byte counter or
    /// the period of cuts on a clock is 0.
    pub fn build(&self, line: BitRate) -> DcqcnFlow {
        assert!((10..=15).contains(&self.rpg_gd), "rpg_gd {} is not in 10..=15", self.rpg_gd);
        assert!(self.dce_tcp_g < 1024, "dce_tcp_g {} is not below 1024", self.dce_tcp_g);
        let (rtt, reset) = (self.dce_tcp_rtt, self.rpg_time_reset);
        assert!(rtt > Span::ZERO && reset > Span::ZERO, "timers of 0 never end");
        assert!(self.rpg_byte_reset != Some(0), "rpg_byte_reset of 0 bytes; None is no counter");
        let period = self.rate_reduce_monitor_period;
        assert!(!self.cut_on_clock || period > Span::ZERO, "a clock of 0 never moves on");
        let most = self.rpg_max_rate.map_or(line, |max| max.min(line));
        DcqcnFlow { cfg: *self, most: most.as_bps(), limiter: None }
    }

    /// Up with a CNP in the period, down without one.
    fn update(&self, alpha: u32, marked: bool) -> u32 {
        let (g, full) = (u32::from(self.dce_tcp_g), self.alpha_bits.full());
        if marked {
            let step = ((full + 1 - alpha) * (1024 - g)).div_ceil(1024);
            full.min(alpha + step)
        } else {
            alpha * g / 1024
        }
    }
}

/// What a flow has from its first CNP until it is back at the line rate.
#[derive(Copy, Clone, Debug)]
struct Limiter {
    current: u64,
    target: u64,
    alpha: u32,
    /// Beginning of the running period of α, and whether a CNP has come in it.
    alpha_since: Time,
    marked: bool,
    /// T and B.
    time_steps: u32,
    byte_steps: u32,
    /// Bytes since the last step of the byte counter.
    bytes: u64,
    /// Next step of the timer.
    step_at: Time,
    /// When the next cut may be, or on a clock an end of a period, and whether a CNP waits for it.
    cut_from: Time,
    cut_owed: bool,
}

/// One flow under DCQCN.
#[derive(Clone, Debug)]
pub struct DcqcnFlow {
    cfg: Dcqcn,
    /// Where the limiter ends.
    most: u64,
    limiter: Option<Limiter>,
}

impl DcqcnFlow {
    /// Target rate; `None` without a limiter.
    pub fn target(&self) -> Option<BitRate> {
        self.limiter.and_then(|l| BitRate::new(l.target))
    }

    /// α at the last update, in units of 2^-bits; `None` without a limiter.
    pub fn alpha(&self) -> Option<u32> {
        self.limiter.map(|l| l.alpha)
    }

    fn on_cnp(&mut self, now: Time) {
        let Some(l) = &mut self.limiter else { return self.first_cnp(now) };
        // α's period may have ended long ago: its updates are made when somebody looks.
        settle(&self.cfg, l, now);
        l.marked = true;
        if self.cfg.cut_on_clock && !l.cut_owed && now >= l.cut_from {
            // Ends of periods without a CNP pass unseen.
            let period = self.cfg.rate_reduce_monitor_period.as_ps();
            let passed = now.since(l.cut_from).as_ps() / period + 1;
            l.cut_from += Span::from_ps(passed * period);
        }
        l.cut_owed = true;
        if now >= l.cut_from {
            self.cut(now);
        }
    }

    fn first_cnp(&mut self, now: Time) {
        let cfg = &self.cfg;
        let cut_from = now + cfg.rate_reduce_monitor_period;
        // The timer starts with the first cut.
        let timer_from = if cfg.cut_on_clock { cut_from } else { now };
        let preset = cfg.rate_to_set_on_first_cnp.map(|r| r.as_bps().min(self.most));
        let start = preset.unwrap_or(self.most);
        let full = cfg.alpha_bits.full();
        let alpha = u32::from(cfg.initial_alpha_value.min(1023)) * full / 1023;
        self.limiter = Some(Limiter {
            current: start,
            target: start,
            alpha,
            alpha_since: now,
            marked: false,
            time_steps: 0,
            byte_steps: 0,
            bytes: 0,
            step_at: timer_from + cfg.rpg_time_reset,
            cut_from,
            cut_owed: cfg.cut_on_clock,
        });
        if preset.is_none() && !cfg.cut_on_clock {
            self.cut(now);
        }
    }

    fn cut(&mut self, now: Time) {
        let cfg = &self.cfg;
        let Some(l) = &mut self.limiter else { return };
        settle(cfg, l, now);
        let after_step = cfg.clamp_tgt_rate_after_time_inc && l.time_steps > 0;
        if cfg.clamp_tgt_rate || after_step {
            l.target = l.current;
        }
        // `rpg_gd` is for an α of 10 bits.
        let shift = u32::from(cfg.rpg_gd) - 10 + cfg.alpha_bits.bits();
        let loss = mul_div(l.current, l.alpha.into(), 1 << shift);
        let floor = mul_div(l.current, cfg.rpg_min_dec_fac.into(), 100);
        let least = cfg.rpg_min_rate.as_bps().min(self.most);
        l.current = (l.current - loss).max(floor).max(least);
        l.target = l.target.max(l.current);
        (l.time_steps, l.byte_steps, l.bytes) = (0, 0, 0);
        l.step_at = now + cfg.rpg_time_reset;
        l.cut_from = now + cfg.rate_reduce_monitor_period;
        l.cut_owed = false;
    }

    /// A step of the timer or of the byte counter, which has been counted.
    fn increase(&mut self) {
        let cfg = &self.cfg;
        let Some(l) = &mut self.limiter else { return };
        let f = cfg.rpg_threshold;
        let (t, b) = (l.time_steps, l.byte_steps);
        let phase = match cfg.rpg_byte_reset {
            None => t.cmp(&(f + 1)),
            Some(_) if t.max(b) < f => Ordering::Less,
            Some(_) if t.min(b) < f => Ordering::Equal,
            Some(_) => Ordering::Greater,
        };
        let step = match phase {
            Ordering::Less => 0,
            Ordering::Equal => cfg.rpg_ai_rate.as_bps(),
            Ordering::Greater => cfg.rpg_hai_rate.as_bps(),
        };
        l.target = l.target.saturating_add(step).min(self.most);
        l.current += (l.target - l.current).div_ceil(2);
        if l.current >= self.most && !cfg.keep_limiter {
            self.limiter = None;
        }
    }

    fn on_sent(&mut self, bytes: u32) {
        let Some(reset) = self.cfg.rpg_byte_reset else { return };
        let Some(l) = &mut self.limiter else { return };
        l.bytes += u64::from(bytes);
        while let Some(l) = self.limiter.as_mut().filter(|l| l.bytes >= reset) {
            l.bytes -= reset;
            l.byte_steps = l.byte_steps.saturating_add(1);
            self.increase();
        }
    }

    fn on_timer(&mut self, now: Time) {
        if self.limiter.is_some_and(|l| l.cut_owed && now >= l.cut_from) {
            // The cut starts the timer anew: a step that is due now is not made.
            return self.cut(now);
        }
        let Some(l) = self.limiter.as_mut().filter(|l| now >= l.step_at) else { return };
        l.step_at = now + self.cfg.rpg_time_reset;
        l.time_steps = l.time_steps.saturating_add(1);
        self.increase();
    }
}

/// Makes the updates of α whose time has come.
fn settle(cfg: &Dcqcn, l: &mut Limiter, now: Time) {
    let period = cfg.dce_tcp_rtt.as_ps();
    let mut due = now.since(l.alpha_since).as_ps() / period;
    l.alpha_since += Span::from_ps(due * period);
    while due > 0 && (l.marked || l.alpha > 0) {
        l.alpha = cfg.update(l.alpha, std::mem::take(&mut l.marked));
        due -= 1;
    }
}

impl CongestionControl for DcqcnFlow {
    fn on_event(&mut self, now: Time, event: CcEvent) {
        match event {
            CcEvent::Sent { bytes } => self.on_sent(bytes),
            CcEvent::Cnp | CcEvent::Ack { ecn: true, .. } => self.on_cnp(now),
            CcEvent::Timer => self.on_timer(now),
            CcEvent::Ack { .. } | CcEvent::Nak | CcEvent::Timeout => {}
        }
    }

    fn rate(&self) -> Option<BitRate> {
        self.limiter.and_then(|l| BitRate::new(l.current))
    }

    fn next_deadline(&self) -> Option<Time> {
        let l = self.limiter.as_ref()?;
        // At the end of all increase a step changes nothing that the next cut does not reset.
        let step = (l.current < self.most).then_some(l.step_at);
        let cut = l.cut_owed.then_some(l.cut_from);
        step.into_iter().chain(cut).min()
    }

    fn samples_rtt(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: BitRate = BitRate::gbps(100);

    fn at(us: u64) -> Time {
        Time::ZERO + Span::from_us(us)
    }

    /// Runs the timer up to `until`; gives the steps made.
    fn run(flow: &mut DcqcnFlow, until: Time) -> u32 {
        let mut steps = 0;
        while let Some(due) = flow.next_deadline().filter(|d| *d <= until) {
            flow.on_event(due, CcEvent::Timer);
            assert!(flow.next_deadline().is_none_or(|next| next > due));
            steps += 1;
        }
        steps
    }

    fn bps(flow: &DcqcnFlow) -> u64 {
        flow.rate().map_or(LINE.as_bps(), BitRate::as_bps)
    }

    #[test]
    fn a_cut_takes_half_of_alpha() {
        for (bits, full) in [(AlphaBits::Ten, 1023), (AlphaBits::Sixteen, 65_535)] {
            let cfg = Dcqcn { alpha_bits: bits, rpg_min_dec_fac: 1, ..Dcqcn::PAPER };
            for (initial, gd) in [(1023, 11), (512, 11), (0, 11), (1023, 10), (1023, 12)] {
                let initial_alpha_value = initial;
                let cfg = Dcqcn { initial_alpha_value, rpg_gd: gd, ..cfg };
                let mut flow = cfg.build(LINE);
                assert_eq!(flow.rate(), None, "no limiter before the first CNP");
                flow.on_event(at(1), CcEvent::Cnp);
                let alpha = u64::from(initial) * full / 1023;
                assert_eq!(u64::from(flow.alpha().unwrap()), alpha);
                // 1 - (α / 2^bits) · 2^(10 - gd), or a hundredth, which `min_dec_fac` keeps.
                let loss = (u128::from(LINE.as_bps()) * u128::from(alpha)
                    / ((u128::from(full) + 1) << (gd - 10))) as u64;
                let want = (LINE.as_bps() - loss).max(LINE.as_bps() / 100);
                assert_eq!(bps(&flow), want, "{bits:?} {initial} {gd}");
            }
        }
    }

    #[test]
    fn min_dec_fac_and_min_rate_are_floors() {
        let mut flow = Dcqcn { rpg_min_dec_fac: 80, ..Dcqcn::PAPER }.build(LINE);
        flow.on_event(at(0), CcEvent::Cnp);
        assert_eq!(bps(&flow), 80_000_000_000, "α/2 would leave 50 %");
        let mut flow = Dcqcn::PAPER.build(LINE);
        for i in 0..40 {
            flow.on_event(at(i * 50), CcEvent::Cnp);
        }
        assert_eq!(bps(&flow), 100_000_000);
    }

    #[test]
    fn alpha_follows_its_closed_form_and_reaches_both_ends() {
        let cfg = Dcqcn::PAPER;
        let mut flow = cfg.build(LINE);
        flow.on_event(at(0), CcEvent::Cnp);
        // Without CNPs α = (255/256)^n: after 177 periods a half.
        let (mut alpha, mut ideal) = (65_535, 65_535.0);
        for _ in 0..177 {
            alpha = cfg.update(alpha, false);
            ideal *= 255.0 / 256.0;
        }
        assert!((f64::from(alpha) - ideal).abs() < 128.0, "{alpha} {ideal}");
        assert!(alpha.abs_diff(1 << 15) < 400, "{alpha}");
        for bits in [AlphaBits::Ten, AlphaBits::Sixteen] {
            let cfg = Dcqcn { alpha_bits: bits, ..cfg };
            let (mut down, mut up) = (bits.full(), 0);
            for _ in 0..5000 {
                down = cfg.update(down, false);
                up = cfg.update(up, true);
            }
            assert_eq!((down, up), (0, bits.full()), "{bits:?} has no dead zone");
        }
    }

    #[test]
    fn late_updates_of_alpha_are_those_in_time() {
        let mut flow = Dcqcn::PAPER.build(LINE);
        flow.on_event(at(0), CcEvent::Cnp);
        flow.on_event(at(10), CcEvent::Cnp);
        // Cut at 50; at 300 five periods of 55 have ended, the first of them with a CNP.
        run(&mut flow, at(299));
        flow.on_event(at(300), CcEvent::Cnp);
        let mut want = Dcqcn::PAPER.update(65_535, true);
        for _ in 0..4 {
            want = Dcqcn::PAPER.update(want, false);
        }
        assert_eq!(flow.alpha(), Some(want));
    }

    #[test]
    fn cuts_keep_their_distance_and_none_is_lost() {
        let mut flow = Dcqcn::PAPER.build(LINE);
        flow.on_event(at(0), CcEvent::Cnp);
        let first = bps(&flow);
        flow.on_event(at(49), CcEvent::Cnp);
        assert_eq!(bps(&flow), first);
        assert_eq!(flow.next_deadline(), Some(at(50)));
        flow.on_event(at(50), CcEvent::Timer);
        assert!(bps(&flow) < first * 51 / 100);
        assert_eq!(flow.next_deadline(), Some(at(105)), "the timer starts anew");
    }

    #[test]
    fn five_halvings_of_the_way_then_one_small_step_then_large_ones() {
        let cfg = Dcqcn { clamp_tgt_rate: true, ..Dcqcn::PAPER };
        let mut flow = cfg.build(LINE);
        for us in (0..=500).step_by(50) {
            flow.on_event(at(us), CcEvent::Cnp);
        }
        let (low, target) = (bps(&flow), flow.target().unwrap().as_bps());
        for step in 1..=5 {
            flow.on_event(at(500 + 55 * step), CcEvent::Timer);
            assert_eq!(flow.target().unwrap().as_bps(), target, "step {step}");
            let gap = target - bps(&flow);
            assert!(gap.abs_diff((target - low) >> step) <= 1, "step {step}");
        }
        for (step, more) in [(6, 40), (7, 440), (8, 840)] {
            flow.on_event(at(500 + 55 * step), CcEvent::Timer);
            let moved = flow.target().unwrap().as_bps() - target;
            assert_eq!(moved, more * 1_000_000, "step {step}");
        }
    }

    #[test]
    fn the_target_is_clamped_after_a_step_of_the_timer_only() {
        let mut flow = Dcqcn::PAPER.build(LINE);
        flow.on_event(at(0), CcEvent::Cnp);
        flow.on_event(at(50), CcEvent::Cnp);
        assert_eq!(flow.target(), Some(LINE), "no step of the timer since the last cut");
        flow.on_event(at(105), CcEvent::Timer);
        let before = bps(&flow);
        flow.on_event(at(110), CcEvent::Cnp);
        assert_eq!(flow.target().unwrap().as_bps(), before);
    }

    #[test]
    fn at_the_line_rate_the_limiter_is_gone_after_the_logarithm_of_the_way() {
        let mut flow = Dcqcn::PAPER.build(LINE);
        flow.on_event(at(0), CcEvent::Cnp);
        // Rt stays at the line: each step halves what is missing, 50 Gb/s, rounded down to 0.
        let missing = LINE.as_bps() - bps(&flow);
        let steps = run(&mut flow, Time::MAX);
        assert_eq!(steps, 64 - missing.leading_zeros());
        assert_eq!((flow.rate(), flow.next_deadline()), (None, None));
        flow.on_event(at(9000), CcEvent::Cnp);
        assert_eq!(flow.alpha(), Some(65_535), "it begins anew");
    }

    #[test]
    fn on_a_clock_the_first_cut_comes_a_period_late_and_only_after_cnps() {
        let mut flow = Dcqcn::HPCC.build(LINE);
        flow.on_event(at(7), CcEvent::Cnp);
        assert_eq!((flow.rate(), flow.next_deadline()), (Some(LINE), Some(at(57))));
        assert_eq!(run(&mut flow, at(57)), 1);
        assert_eq!(bps(&flow).div_ceil(1_000_000), 50_001);
        assert_eq!(flow.next_deadline(), Some(at(112)), "no CNP, no cut: the timer steps");
        run(&mut flow, at(112));
        assert_eq!(bps(&flow).div_ceil(1_000_000), 75_001);
        // The period from 107 to 157 has begun; the CNP of 120 counts at its end.
        flow.on_event(at(120), CcEvent::Cnp);
        assert_eq!(flow.next_deadline(), Some(at(157)));
        run(&mut flow, at(157));
        assert!(bps(&flow) < 38_000_000_000);
        // At an end of a period the CNP is of the next one.
        flow.on_event(at(207), CcEvent::Cnp);
        run(&mut flow, at(256));
        assert!(bps(&flow) > 38_000_000_000, "the step of 212");
        run(&mut flow, at(257));
        assert!(bps(&flow) < 38_000_000_000);
    }

    #[test]
    fn a_preset_on_a_clock_waits_for_the_first_cut_before_it_rises() {
        let preset = BitRate::new(7_000_000_000);
        let mut flow = Dcqcn { rate_to_set_on_first_cnp: preset, ..Dcqcn::HPCC }.build(LINE);
        flow.on_event(at(0), CcEvent::Cnp);
        assert_eq!((flow.rate(), flow.next_deadline()), (preset, Some(at(50))));
        run(&mut flow, at(50));
        assert_eq!(bps(&flow).div_ceil(100_000), 35_001);
        assert_eq!(flow.next_deadline(), Some(at(105)));
    }

    #[test]
    fn a_kept_limiter_remembers_alpha_and_asks_for_nothing() {
        for (keep, alpha) in [(true, 32_768), (false, 65_535)] {
            let mut flow = Dcqcn { keep_limiter: keep, ..Dcqcn::PAPER }.build(LINE);
            flow.on_event(at(0), CcEvent::Cnp);
            run(&mut flow, Time::MAX);
            assert_eq!((bps(&flow), flow.next_deadline()), (LINE.as_bps(), None));
            // 177 periods without a CNP halve α.
            flow.on_event(at(177 * 55), CcEvent::Cnp);
            assert!(flow.alpha().unwrap().abs_diff(alpha) < 400, "{keep}: {:?}", flow.alpha());
        }
    }

    #[test]
    #[should_panic(expected = "a clock of 0 never moves on")]
    fn a_clock_needs_a_period() {
        let _ = Dcqcn { rate_reduce_monitor_period: Span::ZERO, ..Dcqcn::HPCC }.build(LINE);
    }

    #[test]
    fn the_byte_counter_counts_wire_bytes_and_hyper_needs_both() {
        let mut flow = Dcqcn { clamp_tgt_rate: true, ..Dcqcn::VENDOR }.build(LINE);
        flow.on_event(at(0), CcEvent::Cnp);
        flow.on_event(at(10), CcEvent::Cnp);
        let target = flow.target().unwrap().as_bps();
        let moved = |flow: &DcqcnFlow| flow.target().unwrap().as_bps() - target;
        flow.on_event(at(11), CcEvent::Sent { bytes: 32_766 });
        assert_eq!(moved(&flow), 0);
        flow.on_event(at(11), CcEvent::Sent { bytes: 1 });
        assert_eq!(moved(&flow), 5_000_000, "F is 1: B 1, T 0 is additive");
        flow.on_event(at(310), CcEvent::Timer);
        assert_eq!(moved(&flow), 55_000_000, "both have stepped: hyper");
    }

    #[test]
    fn a_preset_takes_the_place_of_the_first_cut() {
        let preset = BitRate::new(7_000_000_000);
        let mut flow = Dcqcn { rate_to_set_on_first_cnp: preset, ..Dcqcn::PAPER }.build(LINE);
        flow.on_event(at(0), CcEvent::Cnp);
        assert_eq!((flow.rate(), flow.target()), (preset, preset));
        flow.on_event(at(49), CcEvent::Cnp);
        assert_eq!(flow.rate(), preset);
        flow.on_event(at(50), CcEvent::Timer);
        assert_eq!(bps(&flow).div_ceil(100_000), 35_001);
    }
}
