//! Words of the explanations.

use doorbell_core::units::{Bytes, Span, Time};
use doorbell_core::verbs::{QpType, Qpn, RetryCnt, WcStatus};
use doorbell_sim::fabric::DropCause;
use doorbell_sim::nic::{Dropped, Refused};
use doorbell_sim::rc::{
    AckTimeoutMode, BadRequest, DropReason, Interval, RecoverCause, RetrySeven, Stall, TimeoutMode,
    time_to_retry_exc,
};
use doorbell_sim::wire::{HostId, PortId};

use super::facts::{Facts, How, PeerQp};
use super::fates::{Fates, Loss, LossFault};
use super::silence::pkey_words;
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

/// A point in time, counted from the start of the run.
pub(super) fn at(t: Time) -> String {
    time(gap(t, Time::ZERO))
}

/// `at 1 us`, or `from 1 us to 2 us` where both read differently.
pub(super) fn between(first: Time, last: Time) -> String {
    let (first, last) = (at(first), at(last));
    if first == last { format!("at {first}") } else { format!("from {first} to {last}") }
}

pub(super) fn interval(i: Interval) -> String {
    match i.least == i.most {
        true => time(i.least),
        false => format!("{} to {}", time(i.least), time(i.most)),
    }
}

/// `1 packet`, `2 packets`.
pub(in crate::run) fn plural(n: u64, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

/// A number of packets, or the least that it may be.
pub(super) fn least(at_least: bool, count: String) -> String {
    if at_least { format!("at least {count}") } else { count }
}

pub(in crate::run) fn qp_name(host: u32, qpn: Qpn) -> String {
    format!("host {host} QP {}", qpn.value())
}

/// A port of a host; the first one is that of hosts that have no other.
pub(super) fn port_name((host, port): (HostId, PortId)) -> String {
    match port.0 {
        0 => format!("host {}", host.0),
        nic => format!("host {}, NIC {nic}", host.0),
    }
}

/// First line: who, how, on which work request.
pub(super) fn headline(f: &Facts) -> String {
    let who = format!("{} ({}, {})", qp_name(f.host, f.qpn), f.ty, f.state);
    let work = f.work.map_or(String::new(), |w| {
        let id = w.wr_id.map_or(String::new(), |id| format!(" WR {id},"));
        format!(" on{id} {} of {}", w.op.as_str_name(), Bytes(w.bytes.into()).print())
    });
    match f.how {
        How::Died { at, status, .. } => {
            let at = time(gap(at, Time::ZERO));
            let status = status.filter(|s| *s != WcStatus::WrFlushErr);
            let status = status.map_or(String::new(), |s| {
                let vendor = match f.vendor_err {
                    0 => String::new(),
                    code => format!(", vendor error {code:#x},"),
                };
                format!(" with status {} ({}){vendor}", s as u32, s.as_str_name())
            });
            format!("{who} died at {at}{status}{work}")
        }
        How::Stalled { .. } => format!("{who} waits at the end of the run{work}"),
    }
}

/// Behind "the first transmission", where its expiries count from a NAK on.
pub(super) fn since_nak(f: &Facts) -> &'static str {
    let rnr = f.standing.is_some_and(|s| s.rnr_retries > 0);
    let timer = f.attr.timeout.code() != 0;
    if rnr || timer && f.row() > f.since() { " since the last NAK" } else { "" }
}

/// Which timer decided, requested and effective.
pub(super) fn timer(f: &Facts) -> String {
    if f.died_of_nak() {
        return "no timer decided: a packet was told to be missing, and no retry was left".into();
    }
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
        TimeoutMode::Ticks { tick } => format!(" (whole ticks of {})", time(*tick)),
        TimeoutMode::Custom(_) => " (a mode of its own)".to_owned(),
    };
    let first = f.mode.interval(code, 0).map_or("none".to_owned(), interval);
    format!("ack timeout {}: T = {}, first expiry after {first}{mode}", code.code(), time(t))
}

/// When a queue pair that waits for an answer will have waited long enough.
fn still_to_die(f: &Facts) -> Option<String> {
    f.standing.filter(|s| s.una != s.next)?;
    if f.waits_for_receive() {
        let code = f.attr.rnr_retry.code();
        return Some(match code {
            RNR_FOREVER => "without a receive it dies never: rnr_retry 7 is without limit".into(),
            _ => format!("without a receive it dies after {code} tries more than the first"),
        });
    }
    if !f.asked && (f.amid_message || f.stands.is_some()) {
        return Some("no ACK was asked for so far: no timer runs".to_owned());
    }
    if !f.asked {
        return Some("no ACK was asked for: no timer runs, and it dies never".to_owned());
    }
    let end = time_to_retry_exc(&f.mode, f.attr.timeout, f.attr.retry_cnt, f.seven)?;
    Some(format!("without an answer it dies {} after the first transmission", interval(end)))
}

/// The code of `rnr_retry` without limit.
const RNR_FOREVER: u8 = 7;

fn rnr_used(used: u32, code: u8) -> String {
    match code {
        RNR_FOREVER => "rnr_retry 7 is without limit".to_owned(),
        _ => format!("{used} of rnr_retry {code} used"),
    }
}

fn retries_used(f: &Facts, used: u32) -> String {
    match (f.attr.retry_cnt.code(), f.seven) {
        (RetryCnt::MAX_CODE, RetrySeven::Infinite) => "retry_cnt 7 is without limit".to_owned(),
        (code, _) => format!("{used} of retry_cnt {code} used"),
    }
}

/// What keeps a requester from sending.
const fn stall_words(s: Stall) -> &'static str {
    match s {
        Stall::Empty => "nothing is left to send",
        Stall::Drained => "the queue pair is in SQD",
        Stall::Window => "too many packets are unacknowledged",
        Stall::RdAtomic => "max_rd_atomic READs and atomics are unanswered",
        Stall::Fence => "a fence waits for an earlier READ or atomic",
        Stall::Doomed => "the next work request cannot be executed",
        Stall::Rnr => "the RNR timer runs",
        Stall::NakReaction => "a NAK is being reacted to",
        Stall::Credits => "no end-to-end credit",
    }
}

fn expiries(n: u32) -> String {
    let times = if n == 1 { "once".to_owned() } else { format!("{n} times") };
    format!("the ack timer expired {times}")
}

/// What this side shows: what a user could see on a cluster, with the counter to look at.
pub(super) fn own_side(f: &Facts) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(s) = f.standing {
        if s.una != s.next {
            lines.push(timer(f));
            lines.push(format!(
                "since the last progress: {}, {}, {}",
                expiries(s.expired),
                retries_used(f, s.retries),
                rnr_used(s.rnr_retries, f.attr.rnr_retry.code()),
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
        let blocked =
            blocked.map_or(String::new(), |b| format!("; sending waits: {}", stall_words(b)));
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
    let dead = if p.dead_since.is_some() { ", on a dead host" } else { "" };
    match &p.qp {
        // Every datagram has a destination of its own.
        _ if f.ty == QpType::Ud => {}
        None => lines.push(format!("{name} does not exist{dead}")),
        Some(q) => {
            let psn = q.expected_psn.map_or(String::new(), |n| format!(", expects PSN {n:#x}"));
            lines.push(format!(
                "{name} is {}{dead}{psn}; took {}, {}",
                q.state,
                plural(q.requests, "request packet"),
                receives(f, q),
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
    let after = ", too late to matter";
    fates("request packets", (&f.requests, ""), &mut lines);
    fates("answers", (&f.answers, ""), &mut lines);
    fates("request packets", (&f.late_requests, after), &mut lines);
    fates("answers", (&f.late_answers, after), &mut lines);
    lines
}

/// Receives of the peer: when it last refused for want of one, if it did, else at the end.
fn receives(f: &Facts, q: &PeerQp) -> String {
    match q.fill_at_rnr.filter(|_| f.status() == Some(WcStatus::RnrRetryExcErr)) {
        Some(n) => format!("{} posted at the last try", plural(n.into(), "receive")),
        None => format!("{} posted at the end of the run", plural(q.receives.into(), "receive")),
    }
}

fn fates(what: &str, (fates, then): (&Fates, &str), lines: &mut Vec<String>) {
    for (host, d) in &fates.dropped {
        let times = span_of((d.packets, d.at_least), d.first, d.last);
        let why = refused_word(&d.why);
        let counter = counter_of(d);
        lines.push(format!("{what} dropped at host {host}: {times}, {why} ({counter}){then}"));
    }
    for Loss { place, fault, cause, packets, first, last, at_least, .. } in &fates.lost {
        let times = span_of((*packets, *at_least), *first, *last);
        lines.push(format!("{what} lost {place}: {times}, {}{then}", by(*cause, fault)));
    }
}

/// What took packets: the cause, and the fault behind it.
fn by(cause: DropCause, fault: &Option<LossFault>) -> String {
    let fault = fault.as_ref().map_or(String::new(), |l| format!(", fault `{}`", l.id));
    format!("{}{fault}", cause.name())
}

/// Where packets were lost, when and by what.
pub(super) fn lost_line(l: &Loss) -> String {
    format!("lost {} {}, {}", l.place, between(l.first, l.last), by(l.cause, &l.fault))
}

fn span_of((packets, at_least): (u64, bool), first: Time, last: Time) -> String {
    format!("{} {}", least(at_least, packets.to_string()), between(first, last))
}

/// Why, with the fields of the first packet.
pub(super) fn refused_word(why: &Refused) -> String {
    match *why {
        Refused::Icrc => "wrong ICRC".to_owned(),
        Refused::UnknownQp(qpn) => format!("dest QPN {:#x} unknown", qpn.value()),
        Refused::Service { packet, qp } => format!("{packet} packet for {qp} QP"),
        Refused::PKey { sent, expected } => pkey_words(sent, expected),
        Refused::Address { from, expected } => {
            format!("from {}, expected {}", port_name(from), port_name(expected))
        }
        Refused::State(state) => format!("QP in {state}"),
        Refused::QKey { sent, expected } => {
            format!("Q_Key {:#x}, expected {:#x}", sent.0, expected.0)
        }
        Refused::NoRoom => "the receive buffer of the NIC was full".to_owned(),
        Refused::Transport(why) => reason_words(why).to_owned(),
        Refused::Request(why) => why.to_string(),
    }
}

/// Why the transport has no use for a packet.
const fn reason_words(why: DropReason) -> &'static str {
    match why {
        DropReason::Opcode => "an operation that this kind of queue pair has not",
        DropReason::Header => "a header that is not that of its operation",
        DropReason::QpState => "the queue pair is in ERR",
        DropReason::Stale => "nothing that is awaited",
        DropReason::Syndrome => "a NAK without a meaning",
        DropReason::QKey => "another Q_Key",
        DropReason::NoReceive => "no receive was posted",
        DropReason::Sequence => "what precedes it in its message is missing: lost, or overtaken",
        DropReason::Access => "an operation that the access flags forbid",
        DropReason::Length => "an illegal length",
    }
}

/// The port's counter that moved.
pub(super) const fn counter_of(d: &Dropped) -> &'static str {
    match d.why {
        Refused::Icrc => "rx_icrc_encapsulated",
        Refused::UnknownQp(_) => "rx_unknown_qp",
        Refused::Service { .. } => "rx_wrong_service",
        Refused::PKey { .. } => "bad_pkey_cntr",
        Refused::Address { .. } => "rx_wrong_address",
        Refused::State(_) => "rx_wrong_state",
        Refused::QKey { .. } => "qkey_viol_cntr",
        Refused::NoRoom => "rx_discards",
        Refused::Transport(_) => "rx_unused",
        Refused::Request(BadRequest::ShortReceive) => "resp_local_length_error",
        Refused::Request(BadRequest::LocalMemory) => "resp_cqe_error",
        Refused::Request(_) => "rx_unused",
    }
}
