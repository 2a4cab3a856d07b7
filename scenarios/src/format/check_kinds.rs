//! Contradictions of one kind of program: keys without a use, and what the kind cannot do.

use doorbell_core::units::Bytes;

use super::check::{Checked, refuse};
use super::check_lanes::check_lanes;
use super::{Fallback, Initiator, Op, Payload, PeerPoll, Program, ProgramKind, Receives, Scenario};
use crate::quantity::Unit;
use crate::workloads::payload::HEADER_BYTES;

const PRODUCE: [&str; 4] = ["per_round", "work", "proxy_work", "slots"];

/// Keys of programs that post by lanes.
const LANES: [&str; 4] = ["lanes", "spread", "pace", "burst"];

/// Keys of one pair of programs, which flows between many hosts have not.
const FLOWS_HAVE_NOT: [&str; 34] = [
    "peer_nic",
    "entropy",
    "initiator",
    "fallback",
    "gpu",
    "numa",
    "threads",
    "share_qp",
    "bypass",
    "iterations",
    "warmup",
    "window",
    "batch",
    "batch_delay",
    "interval",
    "start_spread",
    "signal_every",
    "inline",
    "ring",
    "fence",
    "poll",
    "peer_poll",
    "poll_batch",
    "poll_interval",
    "payload",
    "memory",
    "peer_memory",
    "access",
    "peer_access",
    "receives",
    "handshake",
    "repost_batch",
    "repost_time",
    "steps",
];

/// Keys of one pair of programs, which an aggregation has not; an exchange has `payload`.
const AGGREGATE_HAS_NOT: [&str; 32] = [
    "peer",
    "peer_nic",
    "entropy",
    "threads",
    "qps",
    "share_qp",
    "bypass",
    "fallback",
    "warmup",
    "window",
    "batch",
    "batch_delay",
    "start_spread",
    "signal_every",
    "inline",
    "ring",
    "ring_by",
    "fence",
    "peer_poll",
    "poll_batch",
    "poll_interval",
    "payload",
    "peer_memory",
    "access",
    "peer_access",
    "receives",
    "handshake",
    "peer_poll_interval",
    "repost_batch",
    "repost_time",
    "steps",
    "flows",
];

/// Keys about verbs that a transfer decides by itself.
const TRANSFER_HAS_NOT: [&str; 25] = [
    "initiator",
    "qps",
    "share_qp",
    "op",
    "batch",
    "batch_delay",
    "interval",
    "signal_every",
    "inline",
    "ring",
    "ring_by",
    "fence",
    "poll_batch",
    "poll_interval",
    "payload",
    "access",
    "peer_access",
    "receives",
    "handshake",
    "peer_poll_interval",
    "repost_batch",
    "repost_time",
    "steps",
    "flows",
    "aggregate",
];

/// Keys that have no use in a kind of program.
pub(super) fn unused_keys(kind: ProgramKind) -> Vec<&'static str> {
    const LOOP: [&str; 13] = [
        "op",
        "size",
        "iterations",
        "warmup",
        "window",
        "batch",
        "batch_delay",
        "interval",
        "signal_every",
        "inline",
        "ring",
        "poll_batch",
        "poll_interval",
    ];
    let mut keys = match kind {
        ProgramKind::Script => LOOP.to_vec(),
        ProgramKind::Latency => vec!["window", "batch", "batch_delay", "poll_interval", "steps"],
        ProgramKind::PingPong => {
            vec![
                "window",
                "batch",
                "batch_delay",
                "interval",
                "poll_interval",
                "handshake",
                "steps",
            ]
        }
        ProgramKind::Bandwidth | ProgramKind::MessageRate => vec!["steps"],
        ProgramKind::Flows => FLOWS_HAVE_NOT.to_vec(),
        ProgramKind::Aggregate => AGGREGATE_HAS_NOT.to_vec(),
        ProgramKind::AllToAll => {
            let not = AGGREGATE_HAS_NOT.into_iter().filter(|key| *key != "payload");
            not.chain(["op"]).collect()
        }
        ProgramKind::Transfer => TRANSFER_HAS_NOT.to_vec(),
        ProgramKind::Produce => {
            vec!["warmup", "window", "batch", "batch_delay", "poll_batch", "handshake", "steps"]
        }
    };
    if kind != ProgramKind::Flows {
        keys.push("flows");
    }
    if kind != ProgramKind::Aggregate {
        keys.push("aggregate");
    }
    if kind != ProgramKind::AllToAll {
        keys.push("all_to_all");
    }
    if kind != ProgramKind::Transfer {
        keys.push("transfer");
    }
    if kind != ProgramKind::Produce {
        keys.extend(PRODUCE);
    }
    if !matches!(kind, ProgramKind::Bandwidth | ProgramKind::MessageRate) {
        keys.extend(LANES);
        keys.push("tuner");
    }
    keys
}

impl ProgramKind {
    /// The word in files.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::PingPong => "ping-pong",
            Self::Bandwidth => "bandwidth",
            Self::MessageRate => "message-rate",
            Self::Script => "script",
            Self::Produce => "produce",
            Self::Flows => "flows",
            Self::Aggregate => "aggregate",
            Self::AllToAll => "all-to-all",
            Self::Transfer => "transfer",
        }
    }

    /// Why a key of another kind has no use in this one.
    pub(super) fn remedy(self, key: &str) -> &'static str {
        match self {
            _ if LANES.contains(&key) => "only `bandwidth` and `message-rate` post by lanes",
            Self::Script => "a script says such things in its `steps`",
            Self::Flows => "hosts of flows post each flow when it starts: leave it out",
            Self::Aggregate => "the table `aggregate` and [qp] say how: leave it out",
            Self::AllToAll => "the table `all_to_all` and [qp] say how: leave it out",
            _ if key == "all_to_all" => "write `kind = \"all-to-all\"` for it",
            Self::Transfer => "the table `transfer` says how: leave it out",
            _ if key == "transfer" => "write `kind = \"transfer\"` for it",
            _ if key == "aggregate" => "write `kind = \"aggregate\"` for it",
            _ if key == "tuner" => {
                "only `bandwidth` and `message-rate` have one; see `doorbell tune`"
            }
            _ if key == "flows" => "write `kind = \"flows\"` for it",
            _ if key == "handshake" => "its two sides come up together; a script has it",
            _ if key == "steps" => "write `kind = \"script\"` for steps",
            Self::Produce => "a producer posts what is ready, when it is ready",
            _ if PRODUCE.contains(&key) => "write `kind = \"produce\"` for messages in rounds",
            _ => "it has one message at a time; `bandwidth` and `message-rate` have more",
        }
    }
}

/// What a kind of program cannot do.
pub(super) fn check_kind_limits(
    s: &Scenario,
    p: &Program,
    path: impl Fn(&str) -> String,
) -> Checked {
    let rate = matches!(p.kind, ProgramKind::Bandwidth | ProgramKind::MessageRate);
    if p.share_qp && !rate {
        let text = format!("`share_qp` in `{}`", p.kind.word());
        return refuse(path("share_qp"), text, "only `bandwidth` and `message-rate` share");
    }
    if p.initiator == Initiator::CpuProxy && p.kind != ProgramKind::Produce {
        let text = format!("`initiator = \"cpu-proxy\"` in `{}`", p.kind.word());
        return refuse(path("initiator"), text, "only `produce` has a proxy");
    }
    check_peer_poll(p, &path)?;
    if rate {
        check_rate(s, p, &path)?;
        check_lanes(s, p, &path)?;
    }
    match p.kind {
        ProgramKind::PingPong => check_ping_pong(p, path),
        ProgramKind::Produce => check_produce(s, p, path),
        _ => Ok(()),
    }
}

/// Only a responder waits for events, and only a script's sends are solicited.
fn check_peer_poll(p: &Program, path: &impl Fn(&str) -> String) -> Checked {
    let own = p.kind == ProgramKind::PingPong
        || p.kind == ProgramKind::Produce && p.payload == Payload::Data;
    if own && p.peer_poll != PeerPoll::Busy {
        let text = format!("`peer_poll` in `{}`", p.kind.word());
        return refuse(path("peer_poll"), text, "its peer polls: leave it out");
    }
    if p.peer_poll == PeerPoll::Solicited && p.kind != ProgramKind::Script {
        let text = format!("`{}` posts nothing that is solicited", p.kind.word());
        let help = "write `peer_poll = \"event\"`, or a script with `post … solicited`";
        return refuse(path("peer_poll"), text, help);
    }
    Ok(())
}

/// A window smaller than what one ring or one completion covers would never be filled.
fn check_rate(s: &Scenario, p: &Program, path: &impl Fn(&str) -> String) -> Checked {
    let depth = s.qp.sq_depth.value();
    let window = p.window.map_or(depth, |w| w.value());
    let keys = [("batch", p.batch.value()), ("signal_every", p.signal_every.value())];
    if let Some((key, n)) = keys.into_iter().find(|(_, n)| *n > window) {
        let limit = if window < depth { "`window`" } else { "`qp.sq_depth`" };
        let text = format!("`{key}` is {n}, and {limit} is {window}");
        return refuse(path(key), text, format!("at most {window}, or raise {limit}"));
    }
    if p.tuner.is_some() && p.share_qp {
        let text = "`tuner` with `share_qp`: there are no latencies per message to go by";
        return refuse(path("tuner"), text.to_owned(), "leave one of them out");
    }
    Ok(())
}

fn check_ping_pong(p: &Program, path: impl Fn(&str) -> String) -> Checked {
    if !matches!(p.op, Op::Send | Op::Write) {
        let text = format!("`ping-pong` has no `{}`", p.op.word());
        return refuse(path("op"), text, "write `op = \"send\"` or `op = \"write\"`");
    }
    if p.op == Op::Write && p.size.0 == Bytes(0) {
        let text = "the peer sees a WRITE by its last byte, and there is none".to_owned();
        return refuse(path("size"), text, "a size of at least 1B, or `op = \"send\"`");
    }
    if p.receives != Receives::Refill {
        let text = "`receives` has no use in `ping-pong`".to_owned();
        return refuse(path("receives"), text, "each side posts the receive that it waits for");
    }
    Ok(())
}

/// Producers that one proxy watches at most.
const MAX_PRODUCERS: u64 = doorbell_core::transport::MAX_WAIT_WATCHES as u64 - 1;

fn check_produce(s: &Scenario, p: &Program, path: impl Fn(&str) -> String) -> Checked {
    let (size, header) = (p.size.0, HEADER_BYTES as u64);
    if p.op == Op::Read || p.op.is_atomic() {
        let text = format!("`{}` brings the peer no message", p.op.word());
        return refuse(path("op"), text, "only sends and writes do");
    }
    if p.payload == Payload::Data && size.0 < header {
        let text = format!("{} is too short for a message that is checked", size.print());
        let help = format!("at least {header}B, or `payload = \"virtual\"`");
        return refuse(path("size"), text, help);
    }
    let depth = s.qp.sq_depth.value();
    let slots = p.slots.map_or(depth, |n| n.value());
    let round = p.per_round.value();
    for (key, most) in [("slots", slots), ("qp.sq_depth", depth)] {
        if round > most {
            let text = format!("`per_round` is {round}, and `{key}` is {most}");
            return refuse(path("per_round"), text, "lower it, or raise the other");
        }
    }
    if !p.iterations.value().is_multiple_of(round) {
        let text = format!("{} messages are no whole rounds of {round}", p.iterations.value());
        return refuse(path("iterations"), text, "a multiple of `per_round`");
    }
    if p.signal_every.value() > slots.min(depth) {
        let text = "`signal_every` is more than can be outstanding".to_owned();
        return refuse(path("signal_every"), text, "at most `slots` and `qp.sq_depth`");
    }
    if p.initiator != Initiator::CpuProxy && p.fallback != Fallback::CpuProxy {
        return Ok(());
    }
    if p.threads.value() > MAX_PRODUCERS {
        let text = format!("a proxy for {} producers", p.threads.value());
        let help = format!("at most {MAX_PRODUCERS}; write several programs for more");
        return refuse(path("threads"), text, help);
    }
    if p.inline.is_some_and(|i| i.0 > Bytes(0)) {
        let text = "`inline` through a proxy".to_owned();
        return refuse(path("inline"), text, "the proxy never reads the payload: leave it out");
    }
    Ok(())
}
