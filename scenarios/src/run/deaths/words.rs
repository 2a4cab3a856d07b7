//! Words of the explanations.

use doorbell_core::units::{Bytes, Span, Time};
use doorbell_core::verbs::{Qpn, WcStatus};
use doorbell_sim::nic::{Dropped, Refused};
use doorbell_sim::rc::{
    AckTimeoutMode, DropReason, Interval, RecoverCause, TimeoutMode, time_to_retry_exc,
};

use super::facts::{Facts, Fates, How, Loss};
use crate::quantity::Unit;
use crate::run::Metric;

/// A time as people read it.
pub(super) fn time(span: Span) -> String {
    Metric::time(span).text()
}

/// From `earlier` to `later`; nothing if it is not later.
pub(super) fn gap(later: Time, earlier: Time) -> Span {
    if later > earlier { later.since(earlier) } else { Span::ZERO }
}

pub(super) fn interval(i: Interval) -> String {
    match i.least == i.most {
        true => time(i.least),
        false => format!("{} to {}", time(i.least), time(i.most)),
    }
}

/// `1 packet`, `2 packets`.
pub(super) fn plural(n: u64, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

pub(super) fn qp_name(host: u32, qpn: Qpn) -> String {
    format!("host {host} QP {}", qpn.value())
}

/// First line: who, how, on which work request.
pub(super) fn headline(f: &Facts) -> String {
    let ty = format!("{:?}", f.ty).to_ascii_uppercase();
    let who = format!("{} ({ty}, {})", qp_name(f.host, f.qpn), f.state);
    let work = f.work.map_or(String::new(), |w| {
        let id = w.wr_id.map_or(String::new(), |id| format!(" WR {id},"));
        format!(" on{id} {} of {}", w.op.as_str_name(), Bytes(w.bytes.into()).print())
    });
    match f.how {
        How::Died { at, status, .. } => {
            let at = time(gap(at, Time::ZERO));
            let status = status.filter(|s| *s != WcStatus::WrFlushErr);
            let status = status.map_or(String::new(), |s| {
                format!(" with status {} ({})", s as u32, s.as_str_name())
            });
            format!("{who} died at {at}{status}{work}")
        }
        How::Stalled { .. } => format!("{who} waits at the end of the run{work}"),
    }
}

/// Which timer decided, requested and effective.
pub(super) fn timer(f: &Facts) -> String {
    if let Some(RecoverCause::Rnr(code)) = f.standing.and_then(|s| s.last_cause) {
        return format!("RNR timer of the peer, code {code}");
    }
    let code = f.attr.timeout;
    let Some(t) = code.duration() else { return "ack timeout 0: no timer".to_owned() };
    let mode = match &f.mode {
        TimeoutMode::Fixed { .. } => String::new(),
        TimeoutMode::Floor { min } => format!(" (floor {})", time(*min)),
        TimeoutMode::Adaptive { first, most } => {
            format!(" (adaptive, {} doubling up to {})", time(*first), time(*most))
        }
        TimeoutMode::Custom(_) => " (a mode of its own)".to_owned(),
    };
    let first = f.mode.interval(code, 0).map_or("none".to_owned(), interval);
    format!("ack timeout {}: T = {}, first expiry after {first}{mode}", code.code(), time(t))
}

/// When a queue pair that waits for an answer will have waited long enough.
fn still_to_die(f: &Facts) -> Option<String> {
    f.standing.filter(|s| s.una != s.next)?;
    let end = time_to_retry_exc(&f.mode, f.attr.timeout, f.attr.retry_cnt, f.seven)?;
    Some(format!("without an answer it dies {} after the first transmission", interval(end)))
}

fn expiries(n: u32) -> String {
    if n == 1 { "it expired once".to_owned() } else { format!("it expired {n} times") }
}

/// What this side shows: what a user could see on a cluster, with the counter to look at.
pub(super) fn own_side(f: &Facts) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(s) = f.standing {
        if s.una != s.next {
            lines.push(timer(f));
            lines.push(format!(
                "since the last progress: {}, {} of retry_cnt {} used, {} of rnr_retry {} used",
                expiries(s.expired),
                s.retries,
                f.attr.retry_cnt.code(),
                s.rnr_retries,
                f.attr.rnr_retry.code(),
            ));
        }
        let progress = match f.acknowledged {
            Some(t) => format!("last acknowledged at {}", time(gap(t, Time::ZERO))),
            None => "nothing was ever acknowledged".to_owned(),
        };
        let (una, next) = (s.una.value(), s.next.value());
        lines.push(match una == next {
            true => format!("next PSN {next:#x}, nothing awaited; {progress}"),
            false => format!("oldest unacknowledged PSN {una:#x}, next {next:#x}; {progress}"),
        });
    }
    if let How::Stalled { unrung, waiting, blocked, .. } = f.how {
        let blocked = blocked.map_or(String::new(), |b| format!("; sending waits: {b:?}"));
        lines.push(format!("not rung {unrung}, announced and not started {waiting}{blocked}"));
        lines.extend(still_to_die(f));
    }
    let counters: Vec<String> =
        f.counters.iter().filter(|(_, n)| *n > 0).map(|(name, n)| format!("{name} {n}")).collect();
    if !counters.is_empty() {
        lines.push(format!("counters: {}", counters.join(", ")));
    }
    lines
}

/// What the peer and the network saw: what no counter of this side shows.
pub(super) fn other_side(f: &Facts) -> Vec<String> {
    let mut lines = Vec::new();
    let p = &f.peer;
    let name = qp_name(p.host, p.qpn);
    let dead = if p.host_dead { ", on a dead host" } else { "" };
    match &p.qp {
        None => lines.push(format!("{name} does not exist{dead}")),
        Some(q) => {
            let psn = q.expected_psn.map_or(String::new(), |n| format!(", expects PSN {n:#x}"));
            lines.push(format!(
                "{name} is {}{dead}{psn}; took {}, {} posted",
                q.state,
                plural(q.requests, "request"),
                plural(q.receives.into(), "receive"),
            ));
            let seen = [
                ("out_of_sequence", q.counters.out_of_sequence),
                ("duplicate_request", q.counters.duplicate_request),
                ("rnr_nak_sent", q.counters.rnr_nak_sent),
                ("resp_remote_access_errors", q.counters.resp_remote_access_errors),
            ];
            let seen: Vec<String> =
                seen.iter().filter(|(_, n)| *n > 0).map(|(s, n)| format!("{s} {n}")).collect();
            if !seen.is_empty() {
                lines.push(format!("its counters: {}", seen.join(", ")));
            }
        }
    }
    fates("requests", &f.requests, &mut lines);
    fates("answers", &f.answers, &mut lines);
    lines
}

fn fates(what: &str, fates: &Fates, lines: &mut Vec<String>) {
    for (host, d) in &fates.dropped {
        let times = span_of(d.packets, d.first, d.last);
        let counter = counter_of(d).map_or(String::new(), |c| format!(" ({c})"));
        lines.push(format!("{what} dropped at host {host}: {times}, {}{counter}", refusal(d)));
    }
    for Loss { place, fault, cause, packets, first, last } in &fates.lost {
        let by = fault.as_ref().map_or(String::new(), |(id, _)| format!(", fault `{id}`"));
        let times = span_of(*packets, *first, *last);
        lines.push(format!("{what} lost {place}: {times}, {}{by}", cause.name()));
    }
}

fn span_of(packets: u64, first: Time, last: Time) -> String {
    let at = |t: Time| time(gap(t, Time::ZERO));
    match packets {
        1 => format!("1 at {}", at(first)),
        n => format!("{n} from {} to {}", at(first), at(last)),
    }
}

/// Why, with the fields of the first packet.
fn refusal(d: &Dropped) -> String {
    match d.why {
        Refused::Icrc => "wrong ICRC".to_owned(),
        Refused::UnknownQp(qpn) => format!("dest QPN {:#x} unknown", qpn.value()),
        Refused::Service { packet, qp } => format!("{packet:?} packet for {qp:?} QP"),
        Refused::PKey { sent, expected } => format!("P_Key {sent}, expected {expected}"),
        Refused::Address { from, expected } => {
            format!("from host {}, expected host {}", from.0, expected.0)
        }
        Refused::State(state) => format!("QP in {state}"),
        Refused::QKey { sent, expected } => {
            format!("Q_Key {:#x}, expected {:#x}", sent.0, expected.0)
        }
        Refused::Transport(DropReason::Stale) => "nothing that is awaited".to_owned(),
        Refused::Transport(why) => format!("no use for it ({why:?})"),
    }
}

/// The port's counter that moved.
const fn counter_of(d: &Dropped) -> Option<&'static str> {
    Some(match d.why {
        Refused::Icrc => "rx_icrc_encapsulated",
        Refused::UnknownQp(_) => "rx_unknown_qp",
        Refused::Service { .. } => "rx_wrong_service",
        Refused::PKey { .. } => "bad_pkey_cntr",
        Refused::Address { .. } => "rx_wrong_address",
        Refused::State(_) => "rx_wrong_state",
        Refused::QKey { .. } => "qkey_viol_cntr",
        Refused::Transport(_) => return None,
    })
}
