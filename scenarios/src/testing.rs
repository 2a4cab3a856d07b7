//! A runner for tests of this crate: outcomes that are a formula of the point.

use std::path::PathBuf;

use doorbell_core::units::Span;

use crate::format::expand::{Expanded, expand};
use crate::format::load::{Loaded, Overrides, load};
use crate::input::{InputError, Source};
use crate::profile::Profiles;
use crate::run::{
    Direction, Exit, ExitKind, LatencyRecorder, Metric, Outcome, PcieBytes, Point, ResourceUse,
    Run, RunError, Runner, TimelineRow, run_points,
};

/// Reads `text` as `t.toml` with `--set` values.
pub(crate) fn loaded(text: &str, set: &[&str]) -> Result<Loaded, InputError> {
    let set = set.iter().map(|s| (*s).to_owned()).collect();
    load(Source::new("t.toml", text), PathBuf::from("/nowhere"), &Overrides { set, seed: None })
}

/// Reads and expands.
pub(crate) fn expanded(text: &str, set: &[&str]) -> Result<Vec<Expanded>, InputError> {
    let loaded = loaded(text, set)?;
    expand(&loaded, &mut Profiles::beside(&loaded.directory))
}

/// The file is good.
#[track_caller]
pub(crate) fn accepted(text: &str) {
    if let Err(e) = expanded(text, &[]) {
        panic!("{e}: {:?}\n{text}", e.remedy());
    }
}

/// The file is refused with these words in message and remedy.
#[track_caller]
pub(crate) fn refused(text: &str, message: &str, help: &str) {
    let e = expanded(text, &[]).err().unwrap_or_else(|| panic!("accepted:\n{text}"));
    assert!(e.to_string().contains(message), "{e}");
    assert!(e.remedy().unwrap_or("").contains(help), "{:?}", e.remedy());
}

/// Runs all points on the formula.
pub(crate) fn runs(text: &str, set: &[&str]) -> Vec<Run> {
    let points = expanded(text, set).unwrap_or_else(|e| panic!("{e}: {:?}", e.remedy()));
    run_points(&Formula, &points, |_| {}).unwrap_or_else(|e| panic!("{e}"))
}

/// A made-up machine, simple enough to predict: posting costs 100 ns per batch and 10 ns per
/// message, latency is 1 us + 1 ns per byte, and 0.5 us less with BlueFlame up to 256 bytes.
pub(crate) struct Formula;

impl Runner for Formula {
    fn run(&self, point: &Point) -> Result<Outcome, RunError> {
        let p = &point.scenario.program[0];
        if p.name == "refuse" {
            return Err(RunError::BadInput {
                path: "program.0.size".to_owned(),
                message: "refused".to_owned(),
                help: "call it otherwise".to_owned(),
            });
        }
        let (size, batch, n) = (p.size.0.0, p.batch.value(), p.iterations.value());
        let blueflame = p.ring == crate::format::RingMode::Blueflame;
        let saved = if blueflame && size <= 256 { 500 } else { 0 };
        let extra = if blueflame && size > 256 { 300 } else { 0 };
        let time = Span::from_ns(1_000 + size - saved + extra);
        let mut latency = LatencyRecorder::new();
        (0..n).for_each(|_| latency.record(time));
        let duration = Span::from_ns(n.div_ceil(batch) * 100 + n * 10);
        let doorbells = n.div_ceil(batch);
        let mut outcome = Outcome {
            limiting: Some("host0.core0".to_owned()),
            trace_hash: format!("{:016x}", point.seed ^ (size << 20) ^ (batch << 40)),
            sim_time: duration,
            events: n * 10,
            ..Outcome::default()
        };
        outcome.metrics.insert("throughput".into(), Metric::rate(n * size, duration));
        outcome.metrics.insert("message_rate".into(), Metric::per_second(n, duration));
        outcome.metrics.insert("doorbells".into(), Metric::count(doorbells));
        outcome.metrics.insert("mmio_writes".into(), Metric::count(doorbells));
        outcome.counters.insert("rnr_nak_retry_err".into(), 0);
        outcome.latencies.insert("latency".into(), latency.summary().unwrap());
        outcome.pcie.push(PcieBytes {
            link: "host0.nic0".into(),
            direction: Direction::Down,
            cause: "doorbell".into(),
            bytes: doorbells * 32,
            tlps: doorbells,
        });
        for (name, busy) in
            [("host0.nic0.pu", duration.as_ps() / 3), ("host0.core0", duration.as_ps())]
        {
            let (name, busy) = (name.to_owned(), Span::from_ps(busy));
            let waited = Span::ZERO;
            outcome.resources.push(ResourceUse { name, busy, of: duration, served: n, waited });
        }
        if point.scenario.record.timeline {
            let row = |step: &str, component: &str, start, end| TimelineRow {
                message: 0,
                step: step.to_owned(),
                component: component.to_owned(),
                start: Span::from_ns(start),
                end: Span::from_ns(end),
            };
            outcome.timeline = Some(vec![
                row("WQE build", "host0.core0", 0, 20),
                row("doorbell", "host0.core0", 20, 60),
                row("wire", "wire", 60, 1_000),
            ]);
        }
        if p.name == "stall" {
            let reason = "QP 1: 12 WQEs posted after the last ring".to_owned();
            outcome.exit = Exit { kind: ExitKind::NoProgress, reason };
        }
        Ok(outcome)
    }
}
