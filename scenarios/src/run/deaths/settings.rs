//! When it would have died under other settings, by the one rule [`time_to_retry_exc`], and the
//! smallest settings that would have lasted.

use doorbell_core::units::{Span, Time};
use doorbell_core::verbs::{AckTimeout, RetryCnt, RnrTimer, WcStatus};
use doorbell_sim::rc::{AckTimeoutMode, Interval, RecoverCause, TimeoutMode, time_to_retry_exc};
use serde::Serialize;

use super::super::faults::ToCome;
use super::facts::Facts;
use super::verdict::Need;
use super::words::{at, gap, interval, since_nak, time};

/// One setting, and after which time without an answer a queue pair dies with it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct OtherSetting {
    /// `timeout`.
    pub timeout: u8,
    /// `retry_cnt`.
    pub retry_cnt: u8,
    /// Least and greatest time in picoseconds; `None`: it never dies.
    pub dies_after_ps: Option<(u64, u64)>,
}

/// Codes around the actual one.
const AROUND: u8 = 2;

/// The table: timeout codes around the actual one, `retry_cnt` 1, 3, 7 and the actual one.
pub(super) fn table(f: &Facts, need: Option<Need>) -> Vec<OtherSetting> {
    if !applies(f) || f.died_of_nak() || matches!(need, Some(Need::PathMtu(_))) {
        return Vec::new();
    }
    let (code, retries) = (f.attr.timeout.code(), f.attr.retry_cnt.code());
    // One mode ignores the code.
    let around = if matches!(f.mode, TimeoutMode::Adaptive { .. }) { 0 } else { AROUND };
    let from = code.saturating_sub(around).max(1);
    let codes = from..=(code + around).min(AckTimeout::MAX_CODE);
    let counts = (0..=RetryCnt::MAX_CODE).filter(|n| [1, 3, 7, retries].contains(n));
    let counts: Vec<u8> = counts.collect();
    codes
        .flat_map(|timeout| counts.iter().map(move |&retry_cnt| (timeout, retry_cnt)))
        .map(|(timeout, retry_cnt)| {
            let end = dies(f, timeout, retry_cnt);
            let dies_after_ps = end.map(|i| (i.least.as_ps(), i.most.as_ps()));
            OtherSetting { timeout, retry_cnt, dies_after_ps }
        })
        .collect()
}

/// Whether no answer in time was what decided.
fn applies(f: &Facts) -> bool {
    f.status() == Some(WcStatus::RetryExcErr)
}

fn dies(f: &Facts, timeout: u8, retry_cnt: u8) -> Option<Interval> {
    let (timeout, retry_cnt) = (AckTimeout::new(timeout)?, RetryCnt::new(retry_cnt)?);
    time_to_retry_exc(&f.mode, timeout, retry_cnt, f.seven)
}

/// When the row of expiries that killed it would have ended: what of `retry_cnt` was used before
/// the row began is gone.
fn row_ends(f: &Facts, timeout: u8, retry_cnt: u8) -> Option<Interval> {
    dies(f, timeout, retry_cnt)?;
    let spent = f.standing.map_or(0, |s| s.spent);
    let left = u32::from(retry_cnt).checked_sub(spent).and_then(|n| u8::try_from(n).ok());
    match left {
        Some(left) => dies(f, timeout, left),
        None => Some(Interval::exactly(Span::ZERO)),
    }
}

/// Whether a queue pair with these settings lives, whatever its timer draws.
fn lasts(f: &Facts, need: Need, timeout: u8, retry_cnt: u8) -> bool {
    let Some(end) = row_ends(f, timeout, retry_cnt) else { return true };
    let code = AckTimeout::new(timeout).expect("a code");
    let tries = u32::from(retry_cnt).saturating_sub(f.standing.map_or(0, |s| s.spent));
    match need {
        Need::Never | Need::PathMtu(_) | Need::Chance(_) => false,
        Need::Receive(_) | Need::NakRepeat(_) => false,
        // It may be the one after those that had none.
        Need::Answer { after, lost } => {
            let before = u32::try_from(lost).unwrap_or(u32::MAX).min(tries);
            let before = (0..before).filter_map(|i| f.mode.interval(code, i));
            let before: u64 = before.map(|i| i.most.as_ps()).sum();
            end.least.as_ps() > before.saturating_add(after.as_ps())
        }
        Need::NoExpiry(after) | Need::LongTimer(after) => {
            f.mode.interval(code, 0).is_none_or(|i| i.least > after)
        }
        // The last transmission is one interval before the end.
        Need::Transmission(after) => {
            let last = f.mode.interval(code, tries);
            let before =
                end.least.as_ps() - last.map_or(0, |i| i.least.as_ps().min(end.least.as_ps()));
            Span::from_ps(before) > after
        }
    }
}

/// What would have lasted, in words; nothing where the model does not know how long it took.
pub(super) fn remedy(f: &Facts, need: Option<Need>) -> Vec<String> {
    if f.died_of_nak() && !matches!(need, Some(Need::Never | Need::PathMtu(_) | Need::NakRepeat(_)))
    {
        return vec![one_more(f)];
    }
    let Some(need) = need else { return Vec::new() };
    let (code, retries) = (f.attr.timeout.code(), f.attr.retry_cnt.code());
    let what = match need {
        Need::Receive(from) => return vec![receive(f, from)],
        _ if !applies(f) => return Vec::new(),
        Need::Never => return vec!["no timeout and no retry_cnt would have helped".to_owned()],
        Need::PathMtu(path) => {
            let path = path.map_or("that the link takes".to_owned(), |m| format!("<= {m} B"));
            return vec![format!("path MTU {path}; no timeout would have helped")];
        }
        Need::Chance(c) => {
            let more = match retries {
                RetryCnt::MAX_CODE => "retry_cnt 7 is the most".to_owned(),
                n => format!("retry_cnt above {n} makes it less likely that all tries fail"),
            };
            let (num, den) = (c.num, c.den);
            return vec![format!("each packet is lost with chance {num}/{den}: {more}")];
        }
        Need::NakRepeat(least) => {
            let text = "raise rc.nak_repeat above the round trip, of which links alone take";
            return vec![format!("{text} {}, or set it to 0ns", time(least))];
        }
        Need::Answer { after, .. } => format!("the answer took {}", time(after)),
        Need::NoExpiry(after) => {
            format!("an answer takes {}, and an RNR NAK gives no retry back", time(after))
        }
        Need::LongTimer(after) => format!(
            "answers on this way took up to {} in this run, and each expiry before that makes them \
             slower",
            time(after)
        ),
        Need::Transmission(after) => {
            let (then, since) = (at(f.row() + after), since_nak(f));
            let after = time(after);
            format!(
                "a transmission after {then}, {after} after the first{since}, would have got \
                 through"
            )
        }
    };
    let by_timeout = (1..=AckTimeout::MAX_CODE).find(|&t| lasts(f, need, t, retries));
    let by_count = (0..=RetryCnt::MAX_CODE).find(|&n| lasts(f, need, code, n));
    // No number of retries keeps a timer from expiring.
    let anew = matches!(need, Need::NoExpiry(_) | Need::LongTimer(_));
    let ends = |t, n| if anew { dies(f, t, n) } else { row_ends(f, t, n) };
    let by_timeout = by_timeout.map(|t| ("timeout", t, ends(t, retries)));
    let by_count = by_count.filter(|_| !anew).map(|n| ("retry_cnt", n, ends(code, n)));
    let all: Vec<_> = by_timeout.into_iter().chain(by_count).collect();
    let lived = |(what, n, end): &(&str, u8, Option<Interval>)| {
        let end = end.map_or("never dies".to_owned(), |i| format!("dies after {}", interval(i)));
        format!("{what} {n} ({end})")
    };
    let ways = match all.is_empty() {
        true => "nothing short of no timer at all".to_owned(),
        false => {
            let ends: Vec<_> = all.iter().map(|(_, _, end)| *end).collect();
            all.iter().map(lived).collect::<Vec<_>>().join(", or ") + &unless(f, need, &ends)
        }
    };
    let (least, more) = bound(f, need);
    vec![format!("{what}; {least}: {ways}{more}")]
}

/// How sure it is: nobody can promise that no queue will be longer than it was.
fn bound(f: &Facts, need: Need) -> (&'static str, &'static str) {
    match need {
        Need::LongTimer(_) => ("at least", GROWS),
        Need::Answer { after, .. } if waits_in_queues(f, after) => ("at least", GROWS),
        _ => ("the least that is sure to last", ""),
    }
}

/// Why a time that passed in queues is no bound.
const GROWS: &str = ", and more if the queue on the way still grew: a timer longer than any queue \
                     never fires";

/// Whether an answer that took so long waited in queues for most of it: no fault made it late, and
/// links alone take less than half of the time.
fn waits_in_queues(f: &Facts, after: Span) -> bool {
    f.troubles.is_empty() && after > f.round_trip * 2
}

/// What would have come of one retry more, where a NAK used the last one.
fn one_more(f: &Facts) -> String {
    match f.attr.retry_cnt.code() {
        RetryCnt::MAX_CODE => "a NAK used the last retry, and retry_cnt 7 is the most".to_owned(),
        n => format!(
            "a NAK used the last retry: with retry_cnt {} what was missing would have been sent \
             once more",
            n + 1
        ),
    }
}

/// Faults that may meet the transmissions that other settings would make: what these would have
/// come to was not tried.
fn unless(f: &Facts, need: Need, ends: &[Option<Interval>]) -> String {
    /// Faults that are named.
    const MOST: usize = 3;
    let Need::Transmission(after) = need else { return String::new() };
    let latest = |most: Span, end: &Option<Interval>| end.map(|i| i.most.max(most));
    let last = ends.iter().try_fold(Span::ZERO, latest);
    let meets = |t: &&ToCome| {
        let begins = last.is_none_or(|last| t.from < f.row() + last);
        begins && t.to.is_none_or(|to| to > f.row() + after)
    };
    let named = |t: &ToCome| {
        let to = t.to.map_or("on".to_owned(), |to| format!("to {}", at(to)));
        format!("fault `{}` ({}, from {} {to})", t.id, t.kind.word(), at(t.from))
    };
    let all: Vec<String> = f.to_come.iter().filter(meets).map(named).collect();
    let more = match all.len().saturating_sub(MOST) {
        0 => String::new(),
        n => format!(" or {n} more"),
    };
    match all.is_empty() {
        true => String::new(),
        false => {
            let some = all[..all.len().min(MOST)].join(" or ");
            format!(", unless {some}{more} meets it too, which was not tried")
        }
    }
}

/// What would have waited for a receive. The tries were spaced by the timer at least, so `n` more
/// of them, or longer ones, outlast what was left from the death on.
fn receive(f: &Facts, from: Option<Time>) -> String {
    const FOREVER: &str = "rnr_retry 7 goes on without limit";
    let used = f.standing.map_or(0, |s| s.rnr_retries);
    let timer = f.standing.and_then(|s| match s.last_cause {
        Some(RecoverCause::Rnr(timer)) => Some(timer),
        _ => None,
    });
    let (Some(end), Some(timer)) = (from, timer) else {
        return format!("{FOREVER}; post receives before the peer sends");
    };
    let (left, each) = (gap(end, f.at()).as_ps(), timer.duration().as_ps());
    let mut ways = Vec::new();
    let longer = left.checked_div(used.into()).map(|more| Span::from_ps(each + more + 1));
    if let Some(t) = longer.and_then(RnrTimer::at_least) {
        ways.push(format!("min_rnr_timer {t}"));
    }
    let more = u64::from(used) + left / each.max(1) + 1;
    if more < 7 {
        ways.push(format!("rnr_retry {more}"));
    }
    ways.push(FOREVER.to_owned());
    format!("a try after {} may find a receive: {}", at(end), ways.join(", or "))
}
