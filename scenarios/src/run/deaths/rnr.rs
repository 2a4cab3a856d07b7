//! When it would have died for want of a receive under other settings, and what would have waited
//! for one.
//!
//! The rule: each of the first `rnr_retry` RNR NAKs makes the requester wait for the receiver's
//! `min_rnr_timer`, and the next one ends the queue pair. So it is `rnr_retry` times the timer from
//! the first NAK to the last (`protocol.md` §2.6), and never with `rnr_retry` 7.

use doorbell_core::units::{Span, Time};
use doorbell_core::verbs::{RnrRetry, RnrTimer, WcStatus};
use doorbell_sim::rc::{AckTimeoutMode, RecoverCause};
use serde::Serialize;

use super::facts::{Facts, How};
use super::words::{at, gap};

/// One setting of both sides, and after which time without a receive a queue pair dies with it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct OtherRnrSetting {
    /// `min_rnr_timer` of the receiver.
    pub min_rnr_timer: u8,
    /// `rnr_retry` of the sender.
    pub rnr_retry: u8,
    /// Time in picoseconds from the first RNR NAK to the last, all waits together; the ways of what
    /// is sent again and of the NAKs come on top. `None`: it never dies.
    pub dies_after_ps: Option<u64>,
}

/// Timers around the actual one, in the order of their times.
const AROUND: usize = 2;

/// The table: the next shorter and longer timers, `rnr_retry` 1, 3, 6, 7 and the actual one.
pub(super) fn table(f: &Facts) -> Vec<OtherRnrSetting> {
    let refused = f.status() == Some(WcStatus::RnrRetryExcErr);
    let Some(actual) = timer(f).filter(|_| refused || f.waits_for_receive()) else {
        return Vec::new();
    };
    let mut timers: Vec<RnrTimer> = RnrTimer::all().collect();
    timers.sort_by_key(|t| t.duration());
    let here = timers.iter().position(|t| *t == actual).expect("all of them are here");
    let near = &timers[here.saturating_sub(AROUND)..(here + AROUND + 1).min(timers.len())];
    let own = f.attr.rnr_retry.code();
    let counts = RnrRetry::all().filter(|n| [1, 3, 6, 7, own].contains(&n.code()));
    let counts: Vec<RnrRetry> = counts.collect();
    let row = |(timer, rnr_retry): (RnrTimer, RnrRetry)| OtherRnrSetting {
        min_rnr_timer: timer.code(),
        rnr_retry: rnr_retry.code(),
        dies_after_ps: dies(f, timer, rnr_retry).map(Span::as_ps),
    };
    near.iter().flat_map(|t| counts.iter().map(|n| row((*t, *n)))).collect()
}

/// From the first RNR NAK to the one that ends the queue pair, at least; `None`: none does.
fn dies(f: &Facts, timer: RnrTimer, rnr_retry: RnrRetry) -> Option<Span> {
    rnr_retry.retries().map(|n| f.mode.rnr_wait(timer) * u64::from(n))
}

/// The shortest timer for which this device waits for `least` or longer.
fn shortest_of(f: &Facts, least: Span) -> Option<RnrTimer> {
    let long = |t: &RnrTimer| f.mode.rnr_wait(*t) >= least;
    RnrTimer::all().filter(long).min_by_key(|t| t.duration())
}

/// The receiver's timer, as its last NAK had it.
fn timer(f: &Facts) -> Option<RnrTimer> {
    match f.standing?.last_cause {
        Some(RecoverCause::Rnr(timer)) => Some(timer),
        _ => f.peer.qp.as_ref().map(|q| q.attr.min_rnr_timer),
    }
}

/// What would have waited for a receive that may be there after `from`. The tries are spaced by the
/// timer at least, so `n` more of them, or longer ones, outlast what is left.
pub(super) fn receive(f: &Facts, from: Option<Time>) -> String {
    const FOREVER: &str = "rnr_retry 7 goes on without limit";
    let used = f.standing.map_or(0, |s| s.rnr_retries);
    let (Some(end), Some(timer)) = (from, timer(f)) else {
        return format!("{FOREVER}; post receives before the peer sends");
    };
    let (left, each) = (gap(end, f.at()).as_ps(), f.mode.rnr_wait(timer).as_ps());
    let stalled = matches!(f.how, How::Stalled { .. });
    let limit = f.attr.rnr_retry.retries();
    // The last try was at the death; of one that waits, the next one comes within a timer.
    let more = u64::from(used) + left / each.max(1) + 1 + u64::from(stalled);
    let head = format!("a try after {} may find a receive: ", at(end));
    let lasts = limit.is_none_or(|n| more <= u64::from(n));
    if let Some(due) = f.due.filter(|_| stalled && lasts) {
        let own = f.attr.rnr_retry;
        let next = format!("the next try is at {}, after the end of the run", at(due));
        return format!("{head}rnr_retry {own} lasts until then ({next}); raise `run.limit`");
    }
    let mut ways = Vec::new();
    // As many tries as it has, each so much longer.
    let tries = u64::from(limit.unwrap_or(used));
    let all = u64::from(used) * each + left;
    let longer = all.checked_div(tries).map(|each| Span::from_ps(each + 1));
    if let Some(t) = longer.and_then(|least| shortest_of(f, least)) {
        ways.push(format!("min_rnr_timer {t}"));
    }
    if more < 7 {
        ways.push(format!("rnr_retry {more}"));
    }
    ways.push(FOREVER.to_owned());
    format!("{head}{}", ways.join(", or "))
}
