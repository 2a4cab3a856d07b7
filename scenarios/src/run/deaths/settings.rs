//! When it would have died under other settings, by the one rule [`time_to_retry_exc`], and the
//! smallest settings that would have lasted.

use doorbell_core::units::Span;
use doorbell_core::verbs::{AckTimeout, RetryCnt, WcStatus};
use doorbell_sim::rc::{AckTimeoutMode, Interval, TimeoutMode, time_to_retry_exc};
use serde::Serialize;

use super::super::early::code_above;
use super::super::faults::ToCome;
use super::facts::Facts;
use super::rnr;
use super::verdict::Need;
use super::words::{at, interval, since_nak, time};

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

/// The table: timeout codes around the actual one, `retry_cnt` 1, 3, 7 and the actual one. Where
/// there is no timer, that, and the codes from the least that is longer than an answer takes.
pub(super) fn table(f: &Facts, need: Option<Need>) -> Vec<OtherSetting> {
    if !applies(f) || f.died_of_nak() || matches!(need, Some(Need::PathMtu(_))) {
        return Vec::new();
    }
    let (code, retries) = (f.attr.timeout.code(), f.attr.retry_cnt.code());
    // One mode ignores the code.
    let around = if matches!(f.mode, TimeoutMode::Adaptive { .. }) { 0 } else { AROUND };
    let codes: Vec<u8> = match code {
        0 => {
            let from = least_code(f).map_or(1, AckTimeout::code);
            [0].into_iter().chain(from..=(from + 2 * around).min(AckTimeout::MAX_CODE)).collect()
        }
        _ => (code.saturating_sub(around).max(1)..=(code + around).min(AckTimeout::MAX_CODE))
            .collect(),
    };
    let counts = (0..=RetryCnt::MAX_CODE).filter(|n| [1, 3, 7, retries].contains(n));
    let counts: Vec<u8> = counts.collect();
    codes
        .into_iter()
        .flat_map(|timeout| counts.iter().map(move |&retry_cnt| (timeout, retry_cnt)))
        .map(|(timeout, retry_cnt)| {
            let end = dies(f, timeout, retry_cnt);
            let dies_after_ps = end.map(|i| (i.least.as_ps(), i.most.as_ps()));
            OtherSetting { timeout, retry_cnt, dies_after_ps }
        })
        .collect()
}

/// Whether no answer in time was what decided, or is what it waits for.
fn applies(f: &Facts) -> bool {
    f.status() == Some(WcStatus::RetryExcErr) || awaits(f)
}

/// Whether it waits for an answer that it asked for, and that no receive holds back.
fn awaits(f: &Facts) -> bool {
    let awaited = f.standing.is_some_and(|s| s.una != s.next);
    f.has_stalled() && awaited && f.asked && !f.waits_for_receive()
}

/// The least code whose timer is longer than any answer took, or where none came under a timer,
/// than the links alone take.
fn least_code(f: &Facts) -> Option<AckTimeout> {
    code_above(&f.mode, f.longest_answer.max(f.round_trip))
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

/// How long after the first transmission a timer has sent again, at the latest, what gets through
/// when it is sent after `after`; nothing if that takes more retries than there are.
fn goes_on(f: &Facts, timeout: u8, after: Span) -> Option<Span> {
    let code = AckTimeout::new(timeout)?;
    let mut sum = Interval::exactly(Span::ZERO);
    for expired in 0..RetryCnt::MAX_CODE {
        let one = f.mode.interval(code, expired.into())?;
        sum = Interval { least: sum.least + one.least, most: sum.most + one.most };
        if sum.least > after {
            return Some(sum.most);
        }
    }
    None
}

/// Whether it stays as it is with one retry more.
const fn outlives_retries(need: Need) -> bool {
    use Need::{LongTimer, NakRepeat, Never, PathMtu};
    matches!(need, Never | PathMtu(_) | NakRepeat(_) | LongTimer(_))
}

/// What would have lasted, in words; nothing where the model does not know how long it took.
pub(super) fn remedy(f: &Facts, need: Option<Need>) -> Vec<String> {
    if f.died_of_nak() && !need.is_some_and(outlives_retries) {
        return vec![one_more(f)];
    }
    let timerless = awaits(f) && f.attr.timeout.code() == 0;
    let Some(need) = need else { return lost_for_once(f, timerless).into_iter().collect() };
    let retries = f.attr.retry_cnt.code();
    let what = match need {
        Need::Receive(from) => return vec![rnr::receive(f, from)],
        _ if !applies(f) => return Vec::new(),
        Need::Never => return vec!["no timeout and no retry_cnt would have helped".to_owned()],
        Need::PathMtu(path) => {
            let path = path.map_or("that the link takes".to_owned(), |m| format!("<= {m} B"));
            return vec![format!("path MTU {path}; no timeout would have helped")];
        }
        Need::Chance(_) if timerless => return vec![any_timer(f)],
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
        Need::Answer { after, .. } if f.has_stalled() => {
            format!("an answer may come {} after the first transmission", time(after))
        }
        Need::Answer { after, .. } => format!("the answer took {}", time(after)),
        Need::NoExpiry(after) => {
            format!("an answer takes {}, and an RNR NAK gives no retry back", time(after))
        }
        Need::LongTimer(after) if retries == 0 => {
            format!("answers came up to {} after an ack timer was started", time(after))
        }
        Need::LongTimer(after) => format!(
            "answers came up to {} after an ack timer was started, and what an expiry before that \
             sends again makes them slower",
            time(after)
        ),
        Need::Transmission(after) => {
            let (then, since) = (at(f.row() + after), since_nak(f));
            let after = time(after);
            let would = if f.has_stalled() { "gets" } else { "would have got" };
            format!("a transmission after {then}, {after} after the first{since}, {would} through")
        }
    };
    vec![format!("{what}; {}", least_that_lasts(f, need, timerless))]
}

/// The least of each setting that is sure to last, each with its end.
fn least_that_lasts(f: &Facts, need: Need, timerless: bool) -> String {
    let (code, retries) = (f.attr.timeout.code(), f.attr.retry_cnt.code());
    // Without a timer an answer may come, and nothing is sent again.
    let resends = matches!(need, Need::Transmission(_));
    if awaits(f) && !(timerless && resends) && lasts(f, need, code, retries) {
        let due = f.due.map_or(String::new(), |t| format!(" (its timer expires at {})", at(t)));
        return format!("its own settings last until then{due}: raise `run.limit`");
    }
    let by_timeout = (1..=AckTimeout::MAX_CODE).find(|&t| lasts(f, need, t, retries));
    let by_count = (0..=RetryCnt::MAX_CODE).find(|&n| !timerless && lasts(f, need, code, n));
    // No number of retries keeps a timer from expiring.
    let anew = matches!(need, Need::NoExpiry(_) | Need::LongTimer(_));
    let ends = |t, n| if anew { dies(f, t, n) } else { row_ends(f, t, n) };
    let by_timeout = by_timeout.map(|t| ("timeout", t, ends(t, retries)));
    let by_count = by_count.filter(|_| !anew).map(|n| ("retry_cnt", n, ends(code, n)));
    let all: Vec<_> = by_timeout.into_iter().chain(by_count).collect();
    let lived = |(what, n, end): &(&str, u8, Option<Interval>)| {
        let end = end.map_or("never dies".to_owned(), |i| format!("dies after {}", interval(i)));
        let timeout = if *what == "timeout" { *n } else { code };
        let on = match need {
            Need::Transmission(after) if f.has_stalled() => goes_on(f, timeout, after),
            _ => None,
        };
        let on = on.map_or(String::new(), |t| format!("goes on by {}, ", at(f.row() + t)));
        format!("{what} {n} ({on}{end})")
    };
    let ways = match all.is_empty() {
        // What is sent again by a timer comes through by no other means.
        true if resends => {
            let both = |t: &u8| lasts(f, need, *t, RetryCnt::MAX_CODE);
            match (1..=AckTimeout::MAX_CODE).find(both) {
                Some(t) => format!("timeout {t} with retry_cnt {}", RetryCnt::MAX_CODE),
                None => "no timeout with any retry_cnt".to_owned(),
            }
        }
        true => "nothing short of no timer at all".to_owned(),
        false => {
            let ends: Vec<_> = all.iter().map(|(_, _, end)| *end).collect();
            all.iter().map(lived).collect::<Vec<_>>().join(", or ") + &unless(f, need, &ends)
        }
    };
    let (least, more) = bound(need);
    format!("{least}: {ways}{more}")
}

/// What comes of a loss of which nobody knows how long it lasts, where a queue pair waits.
fn lost_for_once(f: &Facts, timerless: bool) -> Option<String> {
    let words = "its timer sends again what was lost";
    match f.due {
        _ if !awaits(f) || !f.hurt() => None,
        _ if timerless => Some(any_timer(f)),
        Some(due) => Some(format!("{words} at {}: raise `run.limit`, or lower `timeout`", at(due))),
        None => None,
    }
}

/// What any timer would have done about something that was lost without one.
fn any_timer(f: &Facts) -> String {
    let Some(least) = least_code(f) else { return "any timer sends again what was lost".into() };
    let first = f.mode.interval(least, 0).map_or("none".to_owned(), interval);
    let end = dies(f, least.code(), f.attr.retry_cnt.code());
    let end = end.map_or("never dies".to_owned(), |i| format!("dies after {}", interval(i)));
    let than = match f.longest_answer > f.round_trip {
        true => format!("any answer took, {}", time(f.longest_answer)),
        false => format!("the links alone take, {}", time(f.round_trip)),
    };
    format!(
        "any timer sends again what was lost; timeout {} is the least that is longer than {than}: \
         it sends again after {first}, and without an answer {end}",
        least.code()
    )
}

/// How sure it is: nobody can promise that no queue will be longer than it was.
const fn bound(need: Need) -> (&'static str, &'static str) {
    match need {
        Need::LongTimer(_) => ("at least", GROWS),
        _ => ("the least that is sure to last", ""),
    }
}

/// Why a time that passed in queues is no bound.
const GROWS: &str = ", and more if the queue on the way still grew: a timer longer than any queue \
                     never fires";

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
