//! What came of each step of a script, as metrics: `step.N.count`, `step.N.result`, `step.N.time`,
//! and completions by status as counters.

use doorbell_core::transport::{
    Completion, ModifyError, PostRecvCause, RingCause, RingError, StageError, WorkQueue,
};
use doorbell_core::units::Time;
use doorbell_core::verbs::{TransitionError, WcStatus};

use super::{Metric, Note, NoteKind, Outcome};
use crate::workloads::{Outcome as Logged, Results};

/// What a line of the log says: how many things, and how it ended.
fn summary(outcome: &Logged) -> Option<(u64, &'static str)> {
    Some(match outcome {
        Logged::Completed(_) => return None,
        Logged::Staged(n, refusal) => ((*n).into(), refusal.map_or("ok", stage_word)),
        Logged::Rang(Ok(rung)) => (rung.wqes.into(), "ok"),
        Logged::Rang(Err(RingError { posted, cause, .. })) => ((*posted).into(), ring_word(*cause)),
        Logged::Unstaged(n) | Logged::Polled(n) => ((*n).into(), "ok"),
        Logged::PeerPosted(n, state) => ((*n).into(), state.map_or("ok", |_| "bad-state")),
        Logged::TimedOut(n) => ((*n).into(), "timed-out"),
        Logged::Waited | Logged::Fenced | Logged::Stored | Logged::Deregistered => (0, "ok"),
        Logged::Loaded(value) => (*value, "ok"),
        Logged::PostedRecv(n, cause) => ((*n).into(), cause.map_or("ok", recv_word)),
        Logged::Modified(Ok(unstaged)) => ((*unstaged).into(), "ok"),
        Logged::Modified(Err(e)) => (0, modify_word(e)),
        Logged::PeerModified(done) => (0, if *done { "ok" } else { "refused" }),
        Logged::Happened(_) | Logged::Destroyed(true) => (1, "ok"),
        Logged::Drained(n) => ((*n).into(), "ok"),
        Logged::Destroyed(false) => (0, "bad-handle"),
    })
}

const fn stage_word(e: StageError) -> &'static str {
    match e {
        StageError::SqFull => "sq-full",
        StageError::StagedFull => "staged-full",
        StageError::InlineTooLong { .. } => "inline-too-long",
        StageError::TooManySge { .. } => "too-many-sge",
        StageError::BadState { .. } => "bad-state",
        StageError::TooLong { .. } => "too-long",
        StageError::BadHandle => "bad-handle",
        StageError::Unsupported(_) => "unsupported",
    }
}

const fn ring_word(cause: RingCause) -> &'static str {
    match cause {
        RingCause::Full => "full",
        RingCause::BadState(_) => "bad-state",
        RingCause::BadHandle => "bad-handle",
        RingCause::Indeterminate => "indeterminate",
        RingCause::Os(_) => "os",
    }
}

const fn recv_word(cause: PostRecvCause) -> &'static str {
    match cause {
        PostRecvCause::Full => "full",
        PostRecvCause::BadState(_) => "bad-state",
        PostRecvCause::UsesSrq => "uses-srq",
        _ => "refused",
    }
}

const fn modify_word(e: &ModifyError) -> &'static str {
    match e {
        ModifyError::Transition(TransitionError::MissingAttributes { .. }) => "missing-attributes",
        ModifyError::Transition(TransitionError::ForbiddenAttributes { .. }) => {
            "forbidden-attributes"
        }
        ModifyError::Transition(_) => "no-such-transition",
        _ => "refused",
    }
}

/// A completion status in the words of `ibv_wc_status`.
fn status_name(status: WcStatus) -> String {
    let mut name = String::new();
    for c in format!("{status:?}").chars() {
        if c.is_ascii_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(c.to_ascii_lowercase());
    }
    name
}

/// Slots of a send queue that a completion gives back.
const fn given_back(c: &Completion) -> u64 {
    match *c {
        Completion::Send { retired, .. }
        | Completion::Error { retired, queue: WorkQueue::Send, .. } => retired as u64,
        _ => 0,
    }
}

/// Why a post was refused, with the limit, and what `ibv_post_send` or `ibv_post_recv` return then
/// (`protocol.md` §5.2). `held`: sends of the program whose completion was not polled.
fn refusal(outcome: &Logged, held: u64) -> String {
    const ERRNO: &str = "ENOMEM (errno 12) on mlx5";
    match outcome {
        Logged::Staged(_, Some(e @ StageError::SqFull)) => {
            format!(": {e}; {held} sends are posted and not polled; {ERRNO}")
        }
        Logged::Staged(
            _,
            Some(e @ (StageError::InlineTooLong { .. } | StageError::TooManySge { .. })),
        ) => format!(": {e}; {ERRNO}"),
        Logged::Staged(_, Some(e)) => format!(": {e}"),
        Logged::PostedRecv(_, Some(PostRecvCause::Full)) => {
            format!(": the receive queue is full (`qp.rq_depth`, `srq.depth`); {ERRNO}")
        }
        _ => String::new(),
    }
}

/// Adds the metrics of one script. `prefix` is the program's name with a point, or nothing.
pub(super) fn script_metrics(prefix: &str, results: &Results, out: &mut Outcome) {
    let began = results.first.unwrap_or(Time::ZERO);
    // Sends that are in a queue: staged, and not given back by a completion that was polled.
    let mut held = 0_u64;
    for entry in &results.log {
        match &entry.outcome {
            Logged::Staged(n, _) => held += u64::from(*n),
            Logged::Unstaged(n) => held = held.saturating_sub((*n).into()),
            Logged::Completed(c) => held = held.saturating_sub(given_back(c)),
            _ => {}
        }
        let step = format!("{prefix}step.{}", entry.line);
        if let Some((count, word)) = summary(&entry.outcome) {
            out.metrics.insert(format!("{step}.count"), Metric::count(count));
            out.metrics.insert(format!("{step}.time"), Metric::time(entry.at.since(began)));
            out.words.insert(format!("{step}.result"), word.to_owned());
            if word != "ok" {
                let why = refusal(&entry.outcome, held);
                let text = format!("`{step}` ended with {word} after {count}{why}");
                let (kind, name) = (NoteKind::Warning, "step-refused".to_owned());
                out.notes.push(Note { kind, name, text, count: 1 });
            }
        }
    }
    status_metrics(&format!("{prefix}wc_"), &[results], out);
    out.words.insert(format!("{prefix}statuses"), results.statuses.to_string());
    out.words.insert(format!("{prefix}wr_ids"), results.statuses.wr_ids());
}

/// What the peers of scripts saw: statuses of their receives.
pub(super) fn peer_metrics(prefix: &str, peers: &[&Results], out: &mut Outcome) {
    status_metrics(&format!("{prefix}peer_wc_"), peers, out);
    let seen: Vec<_> = peers.iter().map(|r| r.statuses.to_string()).collect();
    out.words.insert(format!("{prefix}peer_statuses"), seen.join("; "));
}

fn status_metrics(prefix: &str, of: &[&Results], out: &mut Outcome) {
    for (status, n) in of.iter().flat_map(|r| r.statuses.counts()) {
        let name = format!("{prefix}{}", status_name(status));
        *out.counters.entry(name).or_default() += n;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::{LogEntry, Statuses};
    use doorbell_core::units::Span;

    #[test]
    fn steps_are_counted_and_refusals_named() {
        let at = |ns| Time::ZERO + Span::from_ns(ns);
        let entry = |at, line, outcome| LogEntry { at, line, outcome };
        let flushed = Completion::Error {
            wr_id: 1,
            qp: doorbell_core::transport::QpId::new(0, 0, 0),
            queue: doorbell_core::transport::WorkQueue::Send,
            status: WcStatus::WrFlushErr,
            vendor_err: 0,
            retired: 1,
        };
        let mut statuses = Statuses::default();
        statuses.add(&flushed);
        let results = Results {
            statuses,
            first: Some(at(10)),
            log: vec![
                entry(at(30), 0, Logged::Staged(16, Some(StageError::SqFull))),
                entry(at(40), 1, Logged::Completed(flushed)),
                entry(at(45), 1, Logged::Polled(1)),
            ],
            ..Results::default()
        };
        let mut out = Outcome::default();
        script_metrics("a.", &results, &mut out);
        assert_eq!(out.metrics["a.step.0.count"], Metric::count(16));
        assert_eq!(out.metrics["a.step.0.time"], Metric::time(Span::from_ns(20)));
        assert_eq!(out.words["a.step.0.result"], "sq-full");
        let told = "`a.step.0` ended with sq-full after 16: send queue full: poll a completion, \
                    then retry; 16 sends are posted and not polled; ENOMEM (errno 12) on mlx5";
        assert_eq!(out.notes[0].text, told);
        let inline = Logged::Staged(0, Some(StageError::InlineTooLong { got: 65, max: 64 }));
        let told = ": 65 inline bytes, 64 were granted at creation; ENOMEM (errno 12) on mlx5";
        assert_eq!(refusal(&inline, 0), told);
        assert_eq!(refusal(&Logged::TimedOut(3), 0), "");
        assert_eq!(out.metrics["a.step.1.count"], Metric::count(1));
        assert_eq!(out.counters["a.wc_wr_flush_err"], 1);
        assert_eq!(out.words["a.statuses"], "5");
        assert_eq!(out.words["a.wr_ids"], "1");
        peer_metrics("a.", &[&results, &Results::default()], &mut out);
        assert_eq!(out.counters["a.peer_wc_wr_flush_err"], 1);
        assert_eq!(out.words["a.peer_statuses"], "5; ");
    }
}
