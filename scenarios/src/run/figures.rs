//! Figures of programs, the same for every back end that ran them.

use std::collections::BTreeMap;

use doorbell_core::units::Time;

use super::programs::Role;
use super::steps::{peer_metrics, script_metrics};
use super::{LatencyRecorder, Metric, Note, NoteKind, Outcome, Point};
use crate::workloads::{Results, Window};

/// A program of a group: what it is for, and what it measured.
pub(crate) type Member<'a> = (Role, &'a Results);

/// Groups whose figures are given together, by the prefix of their names: all programs under no
/// prefix, and those of each scenario program that has a name under `name.`. `members` come with
/// the index of their scenario program.
pub(crate) fn by_name<T: Copy>(
    point: &Point,
    members: impl IntoIterator<Item = (usize, T)>,
) -> BTreeMap<String, Vec<T>> {
    let mut groups: BTreeMap<String, Vec<T>> = BTreeMap::new();
    for (program, member) in members {
        groups.entry(String::new()).or_default().push(member);
        let name = &point.scenario.program[program].name;
        if !name.is_empty() {
            groups.entry(format!("{name}.")).or_default().push(member);
        }
    }
    groups
}

/// Adds the figures of a group, under names that begin with `prefix`.
pub(crate) fn group_metrics(prefix: &str, group: &[Member<'_>], out: &mut Outcome) {
    let mut put = |name: &str, m| out.metrics.insert(format!("{prefix}{name}"), m);
    let of =
        |role: Role| group.iter().filter(move |(r, _)| *r == role).map(|(_, results)| *results);
    let mut windows: Vec<_> = of(Role::Sender).filter_map(|r| r.window).collect();
    if windows.is_empty() {
        // Transfers measure their pace where the messages end.
        windows.extend(of(Role::Peer).filter_map(|r| r.window));
    }
    pace(&windows, &mut put);
    let sum = |role, f: fn(&Results) -> u64| of(role).map(f).sum::<u64>();
    put("messages", Metric::count(sum(Role::Sender, |r| r.messages)));
    put("payload_bytes", Metric::bytes(sum(Role::Sender, |r| r.bytes)));
    let rings = sum(Role::Sender, |r| r.rings) + sum(Role::Proxy, |r| r.rings);
    put("rings", Metric::count(rings));
    let received = sum(Role::Peer, |r| r.received);
    put("received", Metric::count(received));
    let takers = || of(Role::Peer).filter(|r| r.received > 0);
    let (first, last): (Option<Time>, Option<Time>) =
        (takers().filter_map(|r| r.first).min(), takers().filter_map(|r| r.last).max());
    if let (Some(first), Some(last)) = (first, last) {
        put("receive_rate", Metric::per_second(received, last.since(first)));
    }
    let data_errors = sum(Role::Peer, |r| r.data.wrong() + r.data.missing);
    put("data_errors", Metric::count(data_errors));
    if data_errors > 0 && prefix.is_empty() {
        let (wrong, never) =
            (sum(Role::Peer, |r| r.data.wrong()), sum(Role::Peer, |r| r.data.missing));
        let unordered = of(Role::Peer).any(|r| r.data.unordered);
        let text = data_errors_text(wrong, never, unordered);
        let name = "data-errors".to_owned();
        out.notes.push(Note { kind: NoteKind::Warning, name, text, count: data_errors });
    }
    let mut found =
        |name: &str, n| *out.counters.entry(format!("{prefix}{name}")).or_default() += n;
    found("messages_corrupt", sum(Role::Peer, |r| r.data.corrupt));
    found("messages_stale", sum(Role::Peer, |r| r.data.stale));
    found("messages_early", sum(Role::Peer, |r| r.data.early));
    found("messages_missing", sum(Role::Peer, |r| r.data.missing));
    found("messages_lost", sum(Role::Peer, |r| r.data.lost));
    found("messages_incomplete", sum(Role::Peer, |r| r.data.incomplete));
    found("messages_repeated", sum(Role::Peer, |r| r.data.repeated));
    found("messages_unsent", sum(Role::Peer, |r| r.data.unsent));
    for results in of(Role::Sender).filter(|r| !r.log.is_empty()) {
        script_metrics(prefix, results, out);
    }
    if of(Role::Sender).any(|r| !r.log.is_empty()) {
        peer_metrics(prefix, &of(Role::Peer).collect::<Vec<_>>(), out);
    }
    lane_metrics(prefix, &of(Role::Sender).collect::<Vec<_>>(), out);
    for (name, role) in [("latency", Role::Sender), ("delivery", Role::Peer)] {
        latencies(format!("{prefix}{name}"), of(role), out);
    }
}

/// What a warning of data errors says; of fences only where one is missing.
fn data_errors_text(wrong: u64, never: u64, unordered: bool) -> String {
    let fence = match unordered {
        true => {
            "a doorbell does not wait for stores that no fence orders before it, so the NIC reads \
             old bytes (fence before ringing); "
        }
        false => "",
    };
    format!(
        "{wrong} messages came wrong, and {never} never though their senders saw them complete \
         with success: {fence}a buffer that changes before its completion goes out changed; and a \
         WRITE to a place that the peer has not read yet takes away what lies there (more \
         `slots`, or wait for its answer)"
    )
}

/// How fast messages went in windows that are looked at together.
fn pace<R>(windows: &[Window], put: &mut impl FnMut(&str, Metric) -> R) {
    let from = windows.iter().map(|w| w.from).min();
    let to = windows.iter().map(|w| w.to).max();
    if let (Some(from), Some(to)) = (from, to) {
        let duration = to.since(from);
        let messages = windows.iter().map(|w| w.messages).sum();
        let bytes = windows.iter().map(|w| w.bytes).sum();
        put("duration", Metric::time(duration));
        put("throughput", Metric::rate(bytes, duration));
        put("message_rate", Metric::per_second(messages, duration));
    }
}

/// Adds the distribution of the latencies of all of them, if there are any.
fn latencies<'a>(name: String, of: impl Iterator<Item = &'a Results>, out: &mut Outcome) {
    let mut recorder = LatencyRecorder::new();
    of.flat_map(|r| &r.latencies).for_each(|l| recorder.record(*l));
    if let Some(summary) = recorder.summary() {
        out.latencies.insert(name, summary);
    }
}

/// Adds the figures of each lane, of all senders together.
fn lane_metrics(prefix: &str, senders: &[&Results], out: &mut Outcome) {
    let mut lanes: BTreeMap<&str, Vec<&Results>> = BTreeMap::new();
    for (name, results) in senders.iter().flat_map(|r| &r.lanes) {
        lanes.entry(name).or_default().push(results);
    }
    for (name, of) in lanes {
        let prefix = format!("{prefix}lane.{name}.");
        let mut put = |name: &str, m| out.metrics.insert(format!("{prefix}{name}"), m);
        pace(&of.iter().filter_map(|r| r.window).collect::<Vec<_>>(), &mut put);
        put("messages", Metric::count(of.iter().map(|r| r.messages).sum()));
        put("rings", Metric::count(of.iter().map(|r| r.rings).sum()));
        latencies(format!("{prefix}latency"), of.into_iter(), out);
    }
}
