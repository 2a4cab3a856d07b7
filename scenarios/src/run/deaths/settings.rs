//! When it would have died under other settings, by the one rule [`time_to_retry_exc`], and the
//! smallest settings that would have lasted.

use doorbell_core::units::Span;
use doorbell_core::verbs::{AckTimeout, RetryCnt, WcStatus};
use doorbell_sim::rc::{AckTimeoutMode, time_to_retry_exc};
use serde::Serialize;

use super::facts::Facts;
use super::verdict::Need;
use super::words::{interval, time};

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
pub(super) fn table(f: &Facts) -> Vec<OtherSetting> {
    if !applies(f) {
        return Vec::new();
    }
    let (code, retries) = (f.attr.timeout.code(), f.attr.retry_cnt.code());
    let from = code.saturating_sub(AROUND).max(1);
    let codes = from..=(code + AROUND).min(AckTimeout::MAX_CODE);
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

/// Whether the ack timer decided.
fn applies(f: &Facts) -> bool {
    f.status() == Some(WcStatus::RetryExcErr)
}

fn dies(f: &Facts, timeout: u8, retry_cnt: u8) -> Option<doorbell_sim::rc::Interval> {
    let (timeout, retry_cnt) = (AckTimeout::new(timeout)?, RetryCnt::new(retry_cnt)?);
    time_to_retry_exc(&f.mode, timeout, retry_cnt, f.seven)
}

/// Whether a queue pair with these settings lives, whatever its timer draws.
fn lasts(f: &Facts, need: Need, timeout: u8, retry_cnt: u8) -> bool {
    let Some(end) = dies(f, timeout, retry_cnt) else { return true };
    match need {
        Need::Never => false,
        Need::Answer(after) => end.least > after,
        // The last transmission is one interval before the end.
        Need::Transmission(after) => {
            let code = AckTimeout::new(timeout).expect("a code");
            let last = f.mode.interval(code, retry_cnt.into());
            let before = end.least.as_ps() - last.map_or(0, |i| i.least.as_ps());
            Span::from_ps(before) > after
        }
    }
}

/// What would have lasted, in words; nothing where the model does not know how long it took.
pub(super) fn remedy(f: &Facts, need: Option<Need>) -> Vec<String> {
    let Some(need) = need.filter(|_| applies(f)) else { return Vec::new() };
    let (code, retries) = (f.attr.timeout.code(), f.attr.retry_cnt.code());
    let what = match need {
        Need::Never => {
            let text = "no timeout and no retry_cnt would have helped";
            return vec![text.to_owned()];
        }
        Need::Answer(after) => format!("the answer took {}", time(after)),
        Need::Transmission(after) => {
            format!("a transmission after {} would have got through", time(after))
        }
    };
    let by_timeout = (1..=AckTimeout::MAX_CODE).find(|&t| lasts(f, need, t, retries));
    let by_count = (0..=RetryCnt::MAX_CODE).find(|&n| lasts(f, need, code, n));
    let lived = |what: &str, n: u8, end: Option<doorbell_sim::rc::Interval>| {
        let end = end.map_or("never dies".to_owned(), |i| format!("dies after {}", interval(i)));
        format!("{what} {n} ({end})")
    };
    let mut ways = Vec::new();
    if let Some(t) = by_timeout {
        ways.push(lived("timeout", t, dies(f, t, retries)));
    }
    if let Some(n) = by_count {
        ways.push(lived("retry_cnt", n, dies(f, code, n)));
    }
    let ways = match ways.is_empty() {
        true => "nothing short of no timer at all".to_owned(),
        false => ways.join(", or "),
    };
    vec![format!("{what}; the least that would have lasted: {ways}")]
}
