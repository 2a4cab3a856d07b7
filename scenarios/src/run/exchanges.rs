//! Figures of exchanges.

use doorbell_core::policy::alltoall::Traffic;
use doorbell_core::units::Time;

use super::figures::{Member, by_name};
use super::{Metric, Outcome, Point};
use crate::workloads::Exchanged;

/// Adds the figures of all exchanges of a run. Members come with the index of their program.
pub(crate) fn collect<'a>(
    point: &Point,
    all: impl Iterator<Item = (usize, Member<'a>)>,
    out: &mut Outcome,
) {
    let ours = all.filter(|(_, (_, r))| r.exchanged.is_some());
    for (prefix, group) in by_name(point, ours) {
        counts(&prefix, &group, out);
    }
}

fn counts(prefix: &str, group: &[Member<'_>], out: &mut Outcome) {
    let done = || group.iter().filter_map(|(_, r)| r.exchanged.as_ref());
    let sum = |f: fn(&Exchanged) -> u64| -> u64 { done().map(f).sum() };
    let (mut planned, mut back) = (Traffic::default(), Traffic::default());
    let tokens = sum(|d| d.share.tokens);
    for d in done() {
        planned += d.share.traffic;
        back += d.share.back;
    }
    let failed = group.iter().filter(|(_, r)| r.failure.is_some()).count() as u64;
    let mut put = |name: &str, m| out.metrics.insert(format!("{prefix}{name}"), m);
    let ends = group.iter().filter(|(_, r)| r.failure.is_some()).filter_map(|(_, r)| r.last);
    if let Some(last) = ends.max() {
        put("last_failure", Metric::time(last.since(Time::ZERO)));
    }
    put("exchanges", Metric::count(sum(|d| d.complete)));
    put("exchanges_wrong", Metric::count(sum(|d| d.wrong)));
    put("members_failed", Metric::count(failed));
    put("sent_messages", Metric::count(sum(|d| d.sent)));
    put("passed_messages", Metric::count(sum(|d| d.passed)));
    put("passed_bytes", Metric::bytes(sum(|d| d.passed_bytes)));
    let combines = back != Traffic::default();
    let both = std::iter::once(("", planned)).chain(combines.then_some(("combine_", back)));
    for (way, t) in both {
        put(&format!("{way}between_messages"), Metric::count(t.between));
        put(&format!("{way}between_bytes"), Metric::bytes(t.between_bytes));
        put(&format!("{way}inside_messages"), Metric::count(t.inside));
        put(&format!("{way}inside_bytes"), Metric::bytes(t.inside_bytes));
    }
    if tokens > 0 {
        put("between_per_token", Metric::ratio(planned.between, tokens));
        put("inside_per_token", Metric::ratio(planned.inside, tokens));
    }
    if !combines {
        return;
    }
    put("combined", Metric::count(sum(|d| d.combined)));
    put("combined_wrong", Metric::count(sum(|d| d.combined_wrong)));
    put("added_bytes", Metric::bytes(sum(|d| d.added_bytes)));
    put("combine_between_per_token", Metric::ratio(back.between, tokens));
}
