//! The timeline of single messages, from the recorder's stages.

use doorbell_core::units::Time;
use doorbell_sim::engine::observe::StageRecord;
use doorbell_sim::world::World;

use super::programs::{Placed, Role};
use super::{Point, TimelineRow};

/// Rows of the first measured messages of the first sending program.
pub fn rows(point: &Point, world: &World, placed: &[Placed]) -> Vec<TimelineRow> {
    let wanted = point.scenario.record.timeline_messages.value();
    let mut rows = Vec::new();
    let Some(p) = placed.iter().find(|p| p.role == Role::Sender) else { return rows };
    let warm_up = point.scenario.program[p.program].warmup.value();
    // The lowest queue pair of the host that has stages is the program's first.
    let records = world.timeline().records();
    let host = |r: &StageRecord| r.subject >> 44 == u64::from(p.host);
    let Some(qp) = records.iter().filter(|r| host(r)).map(|r| r.subject >> 24).min() else {
        return rows;
    };
    for message in warm_up..warm_up + wanted {
        let subject = qp << 24 | message & 0xff_ffff;
        let mut stages: Vec<&StageRecord> =
            records.iter().filter(|r| r.subject == subject).collect();
        stages.sort_by_key(|r| (r.start, r.end));
        message_rows(message - warm_up, &stages, &mut rows);
    }
    rows
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
