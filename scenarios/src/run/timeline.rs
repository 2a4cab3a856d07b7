//! The timeline of single messages, from the recorder's stages.

use std::collections::BTreeMap;

use doorbell_core::units::{Span, Time};
use doorbell_sim::engine::observe::StageRecord;
use doorbell_sim::nic::subject;
use doorbell_sim::wire::{HostId, PortId};
use doorbell_sim::world::World;

use super::programs::{Placed, Role};
use super::{Metric, Point, TimelineRow};

/// Rows of the first measured messages of the first sending program.
pub fn rows(point: &Point, world: &World, placed: &[Placed]) -> Vec<TimelineRow> {
    let wanted = point.scenario.record.timeline_messages.value();
    let mut rows = Vec::new();
    let Some(p) = placed.iter().find(|p| p.role == Role::Sender) else { return rows };
    let warm_up = point.scenario.program[p.program].warmup.value();
    let records = world.timeline().records();
    let program = placed.iter().filter(|q| q.program == p.program && q.role != Role::Peer);
    let Some(qp) = program.flat_map(|q| queue_pairs(world, q)).next() else {
        return rows;
    };
    for message in warm_up..warm_up + wanted {
        let subject = subject_of(p, qp, message as u32);
        let mut stages: Vec<&StageRecord> =
            records.iter().filter(|r| r.subject == subject).collect();
        stages.sort_by_key(|r| (r.start, r.end));
        message_rows(message - warm_up, &stages, &mut rows);
    }
    rows
}

/// Times from "ready" to the start of the first packet on the wire, of all messages that producers
/// made and the timeline holds. A producer that shares a queue pair with others is left out: its
/// messages cannot be told from theirs.
pub fn ready_to_wire(world: &World, placed: &[Placed]) -> Vec<Span> {
    let mut starts: BTreeMap<u64, Time> = BTreeMap::new();
    for r in world.timeline().records().iter().filter(|r| r.stage.starts_with("port")) {
        let start = starts.entry(r.subject).or_insert(r.start);
        *start = r.start.min(*start);
    }
    let mut spans = Vec::new();
    for group in placed.chunk_by(|a, b| a.program == b.program) {
        let of = |role: Role| group.iter().filter(move |p| p.role == role);
        let by_proxy = of(Role::Proxy).next().map(|p| queue_pairs(world, p));
        let producers: Vec<&Placed> = of(Role::Sender).collect();
        for (i, p) in producers.iter().enumerate() {
            let qp = match &by_proxy {
                Some(qps) if qps.len() < producers.len() => None,
                Some(qps) => qps.get(i).copied(),
                None => queue_pairs(world, p).first().copied(),
            };
            let (Some(qp), Some(results)) = (qp, p.results(world)) else { continue };
            for (n, ready) in (0_u32..).zip(&results.ready) {
                let wire = starts.get(&subject_of(p, qp, n));
                spans.extend(wire.filter(|w| *w >= ready).map(|w| w.since(*ready)));
            }
        }
    }
    spans
}

/// How the recorder names a message of a program.
fn subject_of(p: &Placed, qp: u32, n: u32) -> u64 {
    subject(HostId(p.host), PortId(p.nic.into()), qp, n)
}

/// Queue pairs that a program has made, in order.
fn queue_pairs(world: &World, p: &Placed) -> Vec<u32> {
    let host = &world.hosts()[p.host as usize];
    let owner = host.initiators().position(|(_, rank, _)| rank == p.rank);
    host.nic(p.nic.into())
        .qps()
        .filter(|(_, q)| Some(usize::from(q.owner)) == owner)
        .map(|(i, _)| i)
        .collect()
}

/// Stages of one message in order, with the ways between them named.
fn message_rows(message: u64, stages: &[&StageRecord], rows: &mut Vec<TimelineRow>) {
    let Some(first) = stages.first() else { return };
    let zero = first.start;
    let mut push = |step: &str, component: &str, start: Time, end: Time| {
        rows.push(TimelineRow {
            message,
            step: step.to_owned(),
            component: component.to_owned(),
            start: start.since(zero),
            end: end.since(zero),
        });
    };
    let mut reached: Option<(&StageRecord, Time)> = None;
    for stage in stages {
        if stage.stage.starts_with("CQE")
            && let Some(accepted) = acknowledged_from(stages)
        {
            // The ACK leaves while the payload is still on its way to memory.
            push("acknowledgement: peer NIC, wire, NIC", "wire", accepted, stage.start);
        } else if let Some((before, at)) = reached
            && stage.start > at
        {
            let (step, component) = between(before.stage, stage.stage);
            push(step, component, at, stage.start);
        }
        let (step, component) = split(stage.stage);
        push(step, component, stage.start, stage.end);
        if reached.is_none_or(|(_, at)| stage.end >= at) {
            reached = Some((stage, stage.end));
        }
    }
}

/// When the peer accepted the message, if an ACK completes it: a READ's payload comes back first.
fn acknowledged_from(stages: &[&StageRecord]) -> Option<Time> {
    let accepted = stages.iter().rev().find(|s| s.stage.starts_with("peer"))?.end;
    let placed = stages.iter().find(|s| s.stage.starts_with("payload write"));
    placed.is_none_or(|p| p.start <= accepted).then_some(accepted)
}

/// Name and place of a stage: "step (place)" or the whole name on the NIC.
fn split(stage: &str) -> (&str, &str) {
    match stage.split_once(" (") {
        Some((step, place)) => (step, place.trim_end_matches(')')),
        None => (stage, "nic"),
    }
}

/// What happens between two stages that are recorded.
fn between(before: &str, after: &str) -> (&'static str, &'static str) {
    match (before, after) {
        (b, _) if b.starts_with("port") => ("propagation", "wire"),
        (b, a) if b.starts_with("peer NIC") && a.starts_with("payload write") => {
            ("response: peer's memory read, wire, NIC", "wire")
        }
        (b, _) if b.starts_with("ring") => ("MMIO store leaves the core", "core"),
        (_, a) if a.starts_with("poll") => ("until the next poll", "core"),
        _ => ("waiting", "nic"),
    }
}

/// Names of steps in metrics.
const STEPS: [&str; 16] = [
    "wqe-build",
    "ring",
    "mmio-store-leaves-the-core",
    "doorbell",
    "nic-doorbell-unit",
    "wqe-fetch",
    "nic-processing-unit",
    "payload-fetch",
    "port",
    "propagation",
    "peer-nic-receive-unit",
    "payload-write",
    "response",
    "acknowledgement",
    "cqe-write",
    "poll",
];

const FIGURES: [&str; 4] = ["start", "end", "duration", "count"];

/// The name of a row in metrics: what stands before a colon, in small letters with hyphens.
fn slug(step: &str) -> String {
    let short = step.split(':').next().unwrap_or_default();
    short.to_ascii_lowercase().replace(' ', "-")
}

/// A figure of a step of the first message. A step that did not happen took no time, zero times.
pub(super) fn figure(rows: &[TimelineRow], step: &str, figure: &str) -> Option<Metric> {
    let message = rows.first()?.message;
    let of_step = rows.iter().filter(|r| r.message == message && slug(&r.step) == step);
    let of_step: Vec<&TimelineRow> = of_step.collect();
    if of_step.is_empty() && !STEPS.contains(&step) {
        return None;
    }
    let start = of_step.iter().map(|r| r.start).min();
    let end = of_step.iter().map(|r| r.end).max();
    match figure {
        "count" => Some(Metric::count(of_step.len() as u64)),
        "start" => start.map(Metric::time),
        "end" => end.map(Metric::time),
        "duration" => {
            let of = |r: &&TimelineRow| r.end.saturating_sub(r.start);
            Some(Metric::time(of_step.iter().map(of).fold(Span::ZERO, |a, b| a + b)))
        }
        _ => None,
    }
}

/// Names of all figures.
pub(super) fn names() -> impl Iterator<Item = String> {
    STEPS.iter().flat_map(|s| FIGURES.iter().map(move |f| format!("timeline.{s}.{f}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage(stage: &'static str, start: u64, end: u64) -> StageRecord {
        let at = |ns| Time::ZERO + Span::from_ns(ns);
        StageRecord { subject: 1, stage, start: at(start), end: at(end), detail: 0 }
    }

    fn rows(stages: &[StageRecord]) -> Vec<TimelineRow> {
        let stages: Vec<&StageRecord> = stages.iter().collect();
        let mut rows = Vec::new();
        message_rows(0, &stages, &mut rows);
        rows
    }

    #[test]
    fn the_acknowledgement_does_not_wait_for_the_write_at_the_peer() {
        let rows = rows(&[
            stage("WQE build (core)", 100, 130),
            stage("peer NIC receive unit", 130, 400),
            stage("payload write (PCIe)", 400, 700),
            stage("CQE write (PCIe)", 800, 900),
        ]);
        let ns = |step, f| figure(&rows, step, f);
        assert_eq!(ns("acknowledgement", "start"), Some(Metric::time(Span::from_ns(300))));
        assert_eq!(ns("acknowledgement", "duration"), Some(Metric::time(Span::from_ns(400))));
        assert_eq!(ns("payload-write", "end"), Some(Metric::time(Span::from_ns(600))));
        assert_eq!(ns("cqe-write", "count"), Some(Metric::count(1)));
        assert_eq!(ns("payload-fetch", "count"), Some(Metric::count(0)));
        assert_eq!(ns("payload-fetch", "duration"), Some(Metric::time(Span::ZERO)));
        assert_eq!((ns("payload-fetch", "start"), ns("payload-fech", "count")), (None, None));
        assert_eq!(ns("poll", "middle"), None);
    }

    #[test]
    fn a_read_waits_for_its_response() {
        let rows = rows(&[
            stage("peer NIC receive unit", 100, 400),
            stage("payload write (PCIe)", 700, 800),
            stage("CQE write (PCIe)", 820, 900),
        ]);
        let found = figure(&rows, "response", "duration");
        assert_eq!(found, Some(Metric::time(Span::from_ns(300))));
    }
}
