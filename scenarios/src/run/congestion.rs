//! Congestion control: from the keys of a file to the NICs' settings, and what came of it.

use std::sync::Arc;

use doorbell_core::units::{BitRate, Ratio, Span};
use doorbell_sim::cc::{
    CnpScope, Congestion as Settings, Control, Dcqcn, FlowScope, Ibcc, Integral, Notification,
    Swings, Timely,
};
use doorbell_sim::wire::HostId;
use doorbell_sim::world::World;

use super::{Metric, MetricUnit, MetricValue, Outcome};
use crate::format::{CnpScopeKind, Congestion, ControlKind, ParameterSet, RateScope};

/// Last index of the table of gaps where the file says none, and its timer: 127 entries of
/// 1.024 us · 150, as tutorials of the subnet manager have it.
const CCT_LIMIT: u16 = 127;
const CCTI_TIMER: u16 = 150;

/// What the keys of the table come to.
pub(crate) trait Keys {
    fn dcqcn(&self) -> Dcqcn;
    fn timely(&self) -> Timely;
    fn ibcc(&self) -> Ibcc;
    fn integral(&self) -> Integral;
    fn notification(&self) -> Option<Notification>;
}

/// A share as a number of 1/1024, rounded.
fn in_1024(r: Ratio) -> u16 {
    let n = (u128::from(r.num) * 1024 + u128::from(r.den) / 2) / u128::from(r.den);
    n.min(1024) as u16
}

impl Keys for Congestion {
    fn dcqcn(&self) -> Dcqcn {
        let d = match self.parameters.unwrap_or_default() {
            ParameterSet::Paper => Dcqcn::PAPER,
            ParameterSet::Hpcc => Dcqcn::HPCC,
            ParameterSet::Vendor => Dcqcn::VENDOR,
        };
        let rate =
            |key: Option<crate::quantity::Positive<BitRate>>, default| key.map_or(default, |r| r.0);
        let time =
            |key: Option<crate::quantity::Positive<Span>>, default| key.map_or(default, |t| t.0);
        Dcqcn {
            rpg_ai_rate: rate(self.rpg_ai_rate, d.rpg_ai_rate),
            rpg_hai_rate: rate(self.rpg_hai_rate, d.rpg_hai_rate),
            rpg_gd: self.rpg_gd.map_or(d.rpg_gd, |n| n.value() as u8),
            rpg_min_dec_fac: self.rpg_min_dec_fac.map_or(d.rpg_min_dec_fac, |n| n.value() as u8),
            rpg_min_rate: rate(self.rpg_min_rate, d.rpg_min_rate),
            rpg_max_rate: self.rpg_max_rate.map(|r| r.0).or(d.rpg_max_rate),
            rate_to_set_on_first_cnp: self
                .rate_to_set_on_first_cnp
                .map(|r| r.0)
                .or(d.rate_to_set_on_first_cnp),
            rpg_threshold: self.rpg_threshold.map_or(d.rpg_threshold, |n| n.value() as u32),
            rpg_time_reset: time(self.rpg_time_reset, d.rpg_time_reset),
            rpg_byte_reset: match self.rpg_byte_reset {
                Some(bytes) => Some(bytes.0.0).filter(|bytes| *bytes > 0),
                None => d.rpg_byte_reset,
            },
            initial_alpha_value: self
                .initial_alpha_value
                .map_or(d.initial_alpha_value, |n| n.value() as u16),
            dce_tcp_g: self.dce_tcp_g.map_or(d.dce_tcp_g, |n| n.value() as u16),
            dce_tcp_rtt: time(self.dce_tcp_rtt, d.dce_tcp_rtt),
            rate_reduce_monitor_period: self
                .rate_reduce_monitor_period
                .map_or(d.rate_reduce_monitor_period, |t| t.0),
            clamp_tgt_rate: self.clamp_tgt_rate.unwrap_or(d.clamp_tgt_rate),
            clamp_tgt_rate_after_time_inc: self
                .clamp_tgt_rate_after_time_inc
                .unwrap_or(d.clamp_tgt_rate_after_time_inc),
            cut_on_clock: self.cut_on_clock.unwrap_or(d.cut_on_clock),
            keep_limiter: self.keep_limiter.unwrap_or(d.keep_limiter),
            alpha_bits: d.alpha_bits,
        }
    }

    fn timely(&self) -> Timely {
        let d = Timely::PAPER;
        Timely {
            t_low: self.t_low.map_or(d.t_low, |t| t.0),
            t_high: self.t_high.map_or(d.t_high, |t| t.0),
            add_step: self.add_step.map_or(d.add_step, |r| r.0),
            beta: self.beta.map_or(d.beta, |r| in_1024(r.0)),
            ewma: self.ewma.map_or(d.ewma, |r| in_1024(r.0)),
            min_rtt: self.min_rtt.map_or(d.min_rtt, |t| t.0),
            hai_threshold: self.hai_threshold.map_or(d.hai_threshold, |n| n.value() as u32),
            segment: self.segment.map_or(d.segment, |b| b.0.0),
            min_rate: self.min_rate.map_or(d.min_rate, |r| r.0),
        }
    }

    fn ibcc(&self) -> Ibcc {
        let last = self.ccti_limit.map_or(CCT_LIMIT, |n| n.value() as u16);
        Ibcc {
            cct: Ibcc::table(self.cct_shift.map_or(0, |n| n.value() as u8), last + 1),
            ccti_increase: self.ccti_increase.map_or(1, |n| n.value() as u16),
            ccti_timer: self.ccti_timer.map_or(CCTI_TIMER, |n| n.value() as u16),
            ccti_min: self.ccti_min.map_or(0, |n| n.value() as u16),
            trigger_threshold: u16::MAX,
            scope: match self.scope {
                Some(RateScope::Sl) => FlowScope::Sl,
                Some(RateScope::Qp) | None => FlowScope::Qp,
            },
        }
    }

    fn integral(&self) -> Integral {
        Integral {
            gain: self.gain.map_or(1, |g| g.0.0),
            target: self.target.map_or(Span::from_us(1), |t| t.0),
            start: self.start_rate.map(|r| r.0),
            min_rate: self.min_rate.map_or(Timely::PAPER.min_rate, |r| r.0),
        }
    }

    fn notification(&self) -> Option<Notification> {
        let d = match (self.control, self.parameters) {
            (ControlKind::Dcqcn, Some(ParameterSet::Vendor)) => Notification::VENDOR,
            (ControlKind::Dcqcn, Some(ParameterSet::Hpcc)) => Notification::HPCC,
            (ControlKind::Dcqcn, _) => Notification::PAPER,
            (ControlKind::Ibcc, _) => Notification::INFINIBAND,
            _ => return None,
        };
        let scope = |kind| match kind {
            CnpScopeKind::Qp => CnpScope::Qp,
            CnpScopeKind::Destination => CnpScope::Destination,
            CnpScopeKind::Port => CnpScope::Port,
        };
        Some(Notification {
            min_time_between_cnps: self
                .min_time_between_cnps
                .map_or(d.min_time_between_cnps, |t| t.0),
            scope: self.cnp_scope.map_or(d.scope, scope),
            delay: self.cnp_delay.map_or(d.delay, |t| t.0),
            sl: self.cnp_sl.map(|n| n.value() as u8).or(d.sl),
            with_nak: self.cnp_with_nak.unwrap_or(d.with_nak),
            becn_in_acks: self.becn_in_acks.unwrap_or(d.becn_in_acks),
        })
    }
}

/// The settings of every NIC.
pub(crate) fn settings(c: &Congestion) -> Settings {
    let control = match c.control {
        ControlKind::None => Control::None,
        ControlKind::Dcqcn => Control::Dcqcn(c.dcqcn()),
        ControlKind::Timely => Control::Timely(c.timely()),
        ControlKind::Ibcc => Control::Ibcc(Arc::new(c.ibcc())),
        ControlKind::Integral => Control::Integral(c.integral()),
    };
    let dcqcn = c.control == ControlKind::Dcqcn;
    Settings { control, notify: c.notification(), keep_gap: c.keep_gap.unwrap_or(dcqcn) }
}

/// The control that slows senders down on links of this kind, as files write it.
pub(super) fn advised(c: &Congestion, world: &World) -> &'static str {
    if c.control != ControlKind::None {
        return "`[congestion]` came too late for them";
    }
    let fabric = world.fabric();
    match fabric.ports().any(|(node, port)| fabric.egress_of(node, port).lanes() > 0) {
        true => "`congestion.control = \"ibcc\"` with `[switch.ecn]`",
        false => "`congestion.control = \"dcqcn\"` with `[switch.ecn]`",
    }
}

/// What became of the rates: how often one was cut, the lowest of all, and how often a queue pair
/// had to wait for its own; and of the round trip time that a control holds at a target.
pub(super) fn metrics(world: &World, out: &mut Outcome) {
    let (mut cuts, mut paced, mut lowest) = (0, 0, None::<BitRate>);
    let mut swings = None::<Swings>;
    for (h, host) in world.hosts().iter().enumerate() {
        for nic in host.nics() {
            if matches!(nic.rc_config().congestion.control, Control::None) {
                continue;
            }
            let line = world.fabric().tx_port(HostId(h as u32), nic.port()).rate();
            let (n, low) = nic.rates();
            swings = swings.into_iter().chain(nic.swings()).reduce(Swings::and);
            cuts += n;
            paced += nic.stats.paced;
            let low = low.unwrap_or(line);
            lowest = Some(lowest.map_or(low, |l| l.min(low)));
        }
    }
    let Some(lowest) = lowest else { return };
    let value = MetricValue::Integer(lowest.as_bps());
    out.metrics.insert("rate_min".into(), Metric { value, unit: MetricUnit::Rate });
    out.metrics.insert("rate_cuts".into(), Metric::count(cuts));
    out.metrics.insert("rate_waits".into(), Metric::count(paced));
    let Some(swings) = swings else { return };
    out.metrics.insert("rtt_swings".into(), Metric::count(swings.periods()));
    let times = [("rtt_deviation", swings.deviation()), ("rtt_period", swings.period())];
    for (name, span) in times {
        out.metrics.extend(span.map(|span| (name.into(), Metric::time(span))));
    }
}
