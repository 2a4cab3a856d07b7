//! Lanes of a program, from its keys.

use doorbell_core::policy::lanes::{LaneConfig, Spread};
use doorbell_core::policy::{
    BatchConfig, BatchMode, InlineConfig, PaceConfig, SenderConfig, WindowConfig,
};
use doorbell_core::units::{Bytes, Span};
use doorbell_core::verbs::ServiceLevel;

use super::Planner;
use super::config::ring;
use crate::format::{self, Lane, Program};
use crate::workloads::{Arrivals, LaneTraffic, Shape};

impl Planner<'_> {
    /// The lanes that a program posts by, none where it has none.
    pub(super) fn lanes(&self, p: &Program) -> Vec<LaneTraffic> {
        p.all_lanes().iter().map(|l| self.lane(p, l)).collect()
    }

    fn lane(&self, p: &Program, l: &Lane) -> LaneTraffic {
        let qp = &self.point.scenario.qp;
        let size = l.size.unwrap_or(p.size).0;
        let shape = Shape { size: size.0 as u32, ..self.shape(p) };
        // A program's own `inline` may be above what one of its lanes asks for.
        let inline = l.inline.or(p.inline).map_or(qp.max_inline.0, |i| i.0).0 as u32;
        let inline = if p.op.takes_inline() { inline } else { 0 };
        let batch = BatchConfig {
            mode: match l.batch_mode.or(p.batch_mode).unwrap_or_default() {
                format::BatchMode::Fixed => BatchMode::Fixed,
                format::BatchMode::Adaptive => BatchMode::ADAPTIVE,
            },
            max_wrs: l.batch.unwrap_or(p.batch).value() as u32,
            max_bytes: l.batch_bytes.or(p.batch_bytes).map_or(Bytes(u64::MAX), |b| b.0),
            // Without a delay a batch waits until it is full, as it does without lanes.
            max_delay: l.batch_delay.or(p.batch_delay).map_or(Span::MAX, |d| d.0),
            ring: ring(p.ring),
            ..BatchConfig::default()
        };
        let window = WindowConfig {
            max_wrs: l.window.map_or(self.window(p), |w| w.value() as u32),
            signal_every: l.signal_every.unwrap_or(p.signal_every).value() as u32,
        };
        let burst = l.burst.map_or(shape.bytes().max(1).into(), |b| b.0.0);
        let sl = l.sl.or(p.sl).unwrap_or(qp.sl).value() as u8;
        let lane = LaneConfig {
            qps: l.qps.unwrap_or(p.qps).value() as u32,
            core: None,
            spread: match l.spread.or(p.spread).unwrap_or_default() {
                format::Spread::Ordered => Spread::Ordered,
                format::Spread::RoundRobin => Spread::RoundRobin,
                format::Spread::LeastBytes => Spread::LeastBytes,
            },
            sender: SenderConfig { batch, window, signal_last: false },
            inline: InlineConfig { lone_bytes: inline, batched_bytes: inline },
            sl: ServiceLevel::new(sl).expect("checked"),
            pace: l.pace.map(|r| PaceConfig::of(r.0, Bytes(burst))),
            peer_pace: l.peer_pace.map(|r| PaceConfig::of(r.0, Bytes(burst))),
        };
        let warm_up = p.warmup.value();
        LaneTraffic {
            name: l.name.clone(),
            lane,
            shape: Shape { inline: inline > 0, ..shape },
            messages: l.iterations.unwrap_or(p.iterations).value() + warm_up,
            warm_up,
            arrivals: l
                .interval
                .or(p.interval)
                .map_or(Arrivals::Saturate, |i| Arrivals::Every(i.0)),
            flows: l.flows.value(),
        }
    }
}
