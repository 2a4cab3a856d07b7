//! The timeline of single messages, from the recorder's stages.

use doorbell_core::units::Time;
use doorbell_sim::engine::observe::StageRecord;
use doorbell_sim::world::World;

use super::programs::{Placed, Role};
use super::{Point, TimelineRow};

/// Rows of the first measured messages of each sending program.
pub fn rows(point: &Point, world: &World, placed: &[Placed]) -> Vec<TimelineRow> {
    let wanted = point.scenario.record.timeline_messages.value();
    let mut rows = Vec::new();
    for p in placed.iter().filter(|p| p.role == Role::Sender) {
        let warm_up = point.scenario.program[p.program].warmup.value();
        // The lowest queue pair of the host that has stages is the program's first.
        let records = world.timeline().records();
        let host = |r: &StageRecord| r.subject >> 44 == u64::from(p.host);
        let Some(qp) = records.iter().filter(|r| host(r)).map(|r| r.subject >> 24).min() else {
            continue;
        };
        for message in warm_up..warm_up + wanted {
            let subject = qp << 24 | message & 0xff_ffff;
            let mut stages: Vec<&StageRecord> =
                records.iter().filter(|r| r.subject == subject).collect();
            stages.sort_by_key(|r| (r.start, r.end));
            message_rows(message - warm_up, &stages, &mut rows);
        }
        // One program is what a person can read.
        break;
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
        if let Some((before, at)) = reached
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
        (_, a) if a.starts_with("CQE") => ("acknowledgement: peer NIC, wire, NIC", "wire"),
        (b, _) if b.starts_with("ring") => ("MMIO store leaves the core", "core"),
        (_, "poll") => ("until the next poll", "core"),
        _ => ("waiting", "nic"),
    }
}
