//! Mistakes of a script that the verbs refuse, as bad input at the step that made them.
//!
//! Queues that are full are no mistakes: scripts show back-pressure. A post in the wrong state, a
//! transition that does not exist, and a buffer of another protection domain are.

use doorbell_core::transport::{Completion, ModifyError, PostRecvCause, StageError, WorkQueue};
use doorbell_core::verbs::{QpState, WcStatus};
use doorbell_sim::world::World;

use super::programs::Placed;
use super::{Point, RunError};
use crate::format::{PostStep, Step};
use crate::workloads::{Failure, LogEntry, Outcome, Results};

/// The first mistake in what a script did, if there is one.
pub(super) fn mistake(
    point: &Point,
    world: &World,
    placed: &Placed,
    results: &Results,
) -> Option<RunError> {
    let steps = &point.scenario.program[placed.program].steps;
    refused_step(point, placed, results).or_else(|| {
        let line = foreign(steps, world, placed, results).filter(|line| !meant(steps, *line))?;
        let Step::Post(PostStep { pd, .. }) = steps.get(line as usize)? else { return None };
        let status = WcStatus::LocProtErr;
        let message = format!(
            "the buffer belongs to protection domain {pd} and the queue pair to 0, so the work \
             request ends with \"{status}\" and the queue pair in ERR"
        );
        Some(at(placed, line, message, "write pd=0, or leave it out".to_owned()))
    })
}

/// Whether the file says that a step is to be tried although it will be refused.
fn meant(steps: &[Step], line: u32) -> bool {
    match steps.get(line as usize) {
        Some(Step::Post(post)) => post.anyway,
        Some(Step::State(state)) => state.anyway,
        Some(Step::Recv { anyway, .. }) => *anyway,
        _ => false,
    }
}

/// The first step of a script that the verbs refused and that the file does not mean so, whatever
/// the back end.
pub(crate) fn refused_step(point: &Point, placed: &Placed, results: &Results) -> Option<RunError> {
    let steps = &point.scenario.program[placed.program].steps;
    let refused = results.log.iter().filter(|entry| !meant(steps, entry.line)).find_map(|entry| {
        let (message, help) = refusal(&entry.outcome)?;
        Some(at(placed, entry.line, message, help))
    });
    refused.or_else(|| ended(placed, results))
}

/// The step at which a script ended because it could not be done at all.
fn ended(placed: &Placed, results: &Results) -> Option<RunError> {
    use Failure::{Config, Memory, Modify, OwnRegion, Stage};
    let (line, f) = (results.waits_at?, results.failure?);
    let help = match f {
        OwnRegion { .. } => "smaller messages",
        Stage(_) | Modify(_) | Memory(_) | Config(_) => {
            "change the step so that the verbs allow it"
        }
        _ => return None,
    };
    Some(at(placed, line, f.to_string(), help.to_owned()))
}

fn at(placed: &Placed, line: u32, message: String, help: String) -> RunError {
    let path = format!("program.{}.steps.{line}", placed.program);
    RunError::BadInput { path, message, help }
}

/// Message and remedy of a refusal that is a mistake.
fn refusal(outcome: &Outcome) -> Option<(String, String)> {
    const STATES: &str = "write `state rts` before it; a queue pair goes from reset to init, rtr \
                          and rts";
    Some(match outcome {
        Outcome::Staged(_, Some(StageError::SqFull | StageError::StagedFull)) => return None,
        Outcome::Staged(_, Some(e @ StageError::BadState { .. })) => {
            (e.to_string(), STATES.to_owned())
        }
        Outcome::Staged(_, Some(e)) => {
            (e.to_string(), "change the step so that the queue pair allows it".to_owned())
        }
        Outcome::PostedRecv(_, Some(PostRecvCause::BadState(state))) => {
            let message = format!("QP is {state}; posting a receive needs INIT");
            (message, "write `state init` before it, or try it with `anyway`".to_owned())
        }
        Outcome::PeerPosted(_, Some(state)) => (
            format!("the peer's QP is {state}; posting a receive needs INIT"),
            "write `state init peer` before it".to_owned(),
        ),
        Outcome::PeerModified(false) => (
            "the verbs refuse the transition of the peer's queue pair".to_owned(),
            "states follow each other: reset, init, rtr, rts; and no value beyond the device's"
                .to_owned(),
        ),
        Outcome::Modified(Err(e)) => {
            let help = match e {
                ModifyError::Transition(_) => {
                    "states follow each other: reset, init, rtr, rts, and sqd from rts; reset and \
                     err from everywhere"
                }
                _ => "change the attribute in [qp]",
            };
            (e.to_string(), help.to_owned())
        }
        _ => return None,
    })
}

/// The step whose work request failed because of its protection domain.
fn foreign(steps: &[Step], world: &World, placed: &Placed, results: &Results) -> Option<u32> {
    let domain = |line: u32| match steps.get(line as usize) {
        Some(Step::Post(PostStep { pd, .. })) => *pd,
        _ => 0,
    };
    let is_foreign = |line: &u32| domain(*line) != 0;
    let failed = results.log.iter().find_map(|entry| match entry.outcome {
        Outcome::Completed(Completion::Error {
            wr_id,
            queue: WorkQueue::Send,
            status: WcStatus::LocProtErr,
            ..
        }) => line_of(&results.log, wr_id),
        _ => None,
    });
    // A script that ends without a poll has not seen the completion; the queue pair tells.
    let lost = || {
        let host = &world.hosts()[placed.host as usize];
        let in_error = host.qps().any(|(_, q)| q.state == QpState::Err);
        let posted = results
            .log
            .iter()
            .find(|e| is_foreign(&e.line) && matches!(e.outcome, Outcome::Staged(1.., _)));
        posted.filter(|_| in_error).map(|e| e.line)
    };
    failed.filter(is_foreign).or_else(lost)
}

/// The step that staged message `wr_id`: messages are numbered in the order of staging.
fn line_of(log: &[LogEntry], wr_id: u64) -> Option<u32> {
    let mut staged = 0;
    log.iter().find_map(|entry| {
        let Outcome::Staged(n, _) = entry.outcome else { return None };
        staged += u64::from(n);
        (wr_id < staged).then_some(entry.line)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use doorbell_core::units::Time;

    #[test]
    fn messages_belong_to_the_step_that_staged_them() {
        let entry = |line, n| LogEntry { at: Time::ZERO, line, outcome: Outcome::Staged(n, None) };
        let log = [entry(0, 2), entry(3, 0), entry(4, 1)];
        let lines: Vec<_> = (0..4).map(|wr_id| line_of(&log, wr_id)).collect();
        assert_eq!(lines, [Some(0), Some(0), Some(4), None]);
    }

    #[test]
    fn full_queues_are_no_mistakes() {
        for e in [StageError::SqFull, StageError::StagedFull] {
            assert_eq!(refusal(&Outcome::Staged(3, Some(e))), None);
        }
        let wrong = StageError::BadState { state: QpState::Init };
        let (message, help) = refusal(&Outcome::Staged(0, Some(wrong))).unwrap();
        assert_eq!(message, "QP is INIT; posting a send needs RTS");
        assert!(help.contains("state rts"));
    }
}
