//! Contradictions of one kind of program: keys without a use, and what the kind cannot do.

use doorbell_core::units::Bytes;

use super::check::{Checked, refuse};
use super::check_lanes::check_lanes;
use super::{
    Fallback, Initiator, Memory, Op, Payload, PeerPoll, Program, ProgramKind, QpKind, Receives,
    Scenario,
};
use crate::quantity::Unit;
use crate::workloads::payload::HEADER_BYTES;

/// Keys of every kind.
const ALWAYS: &[&str] = &["kind", "name", "host", "hosts", "nic", "sl"];

/// Keys of one pair of programs: where its two sides are, and how each waits.
const SIDES: &[&str] = &[
    "peer",
    "peer_nic",
    "gpu",
    "numa",
    "threads",
    "start_spread",
    "poll",
    "peer_poll",
    "memory",
    "peer_memory",
    "entropy",
];

/// Keys about verbs, of pairs that leave them to the file.
const VERBS: &[&str] = &[
    "initiator",
    "fallback",
    "qps",
    "share_qp",
    "bypass",
    "ring_by",
    "fence",
    "payload",
    "access",
    "peer_access",
    "receives",
    "peer_poll_interval",
    "repost_batch",
    "repost_time",
];

/// Keys of messages that are all the same.
const MESSAGES: &[&str] = &["op", "size", "iterations", "signal_every", "inline", "ring"];

/// Keys of a loop that measures behind a warm-up.
const LOOP: &[&str] = &["warmup", "poll_batch"];

/// Keys of many messages outstanding.
const MANY: &[&str] = &["window", "batch", "batch_delay", "interval", "poll_interval", "tuner"];

/// Keys of programs that post by lanes.
const LANES: &[&str] = &["lanes", "spread", "pace", "burst", "batch_mode", "batch_bytes"];

/// Keys of messages that become ready in rounds.
const PRODUCE: &[&str] = &["per_round", "work", "proxy_work", "slots"];

/// Keys of members that meet in rounds, each on a host of its own.
const MEMBERS: &[&str] =
    &["initiator", "fallback", "gpu", "numa", "size", "iterations", "interval", "poll", "memory"];

/// The keys that a kind has beside those of every kind.
const fn keys(kind: ProgramKind) -> &'static [&'static [&'static str]] {
    match kind {
        ProgramKind::Latency => &[SIDES, VERBS, MESSAGES, LOOP, &["interval", "handshake"]],
        ProgramKind::PingPong => &[SIDES, VERBS, MESSAGES, LOOP],
        ProgramKind::RequestReply => &[SIDES, VERBS, MESSAGES, LOOP, &["window", "reply_size"]],
        ProgramKind::Bandwidth | ProgramKind::MessageRate => {
            &[SIDES, VERBS, MESSAGES, LOOP, MANY, LANES, &["handshake"]]
        }
        ProgramKind::Script => &[SIDES, VERBS, &["handshake", "steps"]],
        ProgramKind::Produce => &[SIDES, VERBS, MESSAGES, PRODUCE, &["interval", "poll_interval"]],
        ProgramKind::Flows => &[&["peer", "qps", "op", "size", "flows"]],
        ProgramKind::Aggregate => &[MEMBERS, &["op", "aggregate"]],
        ProgramKind::AllToAll => &[MEMBERS, &["payload", "all_to_all"]],
        ProgramKind::Transfer => &[SIDES, &["size", "iterations", "warmup", "window", "transfer"]],
    }
}

/// Whether a key has a use in a kind of program.
pub(super) fn has_use(kind: ProgramKind, key: &str) -> bool {
    ALWAYS.contains(&key) || keys(kind).iter().any(|keys| keys.contains(&key))
}

impl ProgramKind {
    /// The word in files.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::PingPong => "ping-pong",
            Self::RequestReply => "request-reply",
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

    /// Whether its hosts are members of a group, with a program on each.
    pub(crate) const fn is_group(self) -> bool {
        matches!(self, Self::Aggregate | Self::AllToAll)
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
            _ if key == "reply_size" => "write `kind = \"request-reply\"` for it",
            _ if key == "steps" => "write `kind = \"script\"` for steps",
            Self::RequestReply => "it posts what is due and has no pace of its own: leave it out",
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
    check_peer_poll(p, &path)?;
    if rate {
        check_rate(s, p, &path)?;
        check_lanes(s, p, &path)?;
    }
    match p.kind {
        ProgramKind::PingPong => check_ping_pong(p, path),
        ProgramKind::RequestReply => check_requests(s, p, path),
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

fn check_requests(s: &Scenario, p: &Program, path: impl Fn(&str) -> String) -> Checked {
    if p.op != Op::Send {
        let text = format!("`request-reply` by `{}`", p.op.word());
        return refuse(path("op"), text, "write `op = \"send\"`");
    }
    if p.receives != Receives::Refill {
        let text = "`receives` has no use in `request-reply`".to_owned();
        return refuse(path("receives"), text, "each side posts its receives again");
    }
    if p.payload == Payload::Data {
        check_answers(p, &path)?;
    }
    let mtu = s.qp.mtu.0;
    let reply = p.reply_size.filter(|r| s.qp.kind == QpKind::Ud && r.0 > mtu);
    if let Some(reply) = reply {
        let (got, mtu) = (reply.0.print(), mtu.print());
        let text = format!("a datagram of {got}, and `qp.mtu` is {mtu}");
        return refuse(path("reply_size"), text, "at most `qp.mtu`");
    }
    if s.srq.as_ref().is_some_and(|srq| srq.limit.value() > 0) {
        let text = "`srq.limit` with `request-reply`".to_owned();
        return refuse("srq.limit", text, "it posts by `repost_batch`: leave it out");
    }
    let depth = s.qp.sq_depth.value();
    if p.signal_every.value() > depth {
        let text =
            format!("`signal_every` is {}, and `qp.sq_depth` {depth}", p.signal_every.value());
        return refuse(path("signal_every"), text, format!("at most {depth}"));
    }
    Ok(())
}

/// Requests and replies that are checked where they come.
fn check_answers(p: &Program, path: &impl Fn(&str) -> String) -> Checked {
    let reply = p.reply_size.map_or(p.size.0, |r| r.0);
    for (key, size) in [("size", p.size.0), ("reply_size", reply)] {
        if let Some((text, help)) = too_short(size) {
            return refuse(path(key), text, help);
        }
    }
    let by_gpu = p.initiator == Initiator::Gpu;
    let (keys, who) = match (by_gpu == (p.memory == Memory::Gpu), p.peer_memory) {
        (true, Memory::Host | Memory::HostRemote) => return Ok(()),
        (true, Memory::Gpu) => ("peer_memory", "the peer, a core,"),
        (false, _) if by_gpu => ("memory", "a GPU"),
        (false, _) => ("memory", "a core"),
    };
    let text = format!("{who} polls, and the bytes are on another way when it is told");
    let help = "keep the messages where the poller is, or write `payload = \"virtual\"`";
    refuse(path(keys), text, help)
}

/// Why a message has no room for what a check needs, and the remedy.
fn too_short(size: Bytes) -> Option<(String, String)> {
    let header = HEADER_BYTES as u64;
    let text = || format!("{} is too short for a message that is checked", size.print());
    let help = || format!("at least {header}B, or `payload = \"virtual\"`");
    (size.0 < header).then(|| (text(), help()))
}

/// Producers that one proxy watches at most.
const MAX_PRODUCERS: u64 = doorbell_core::transport::MAX_WAIT_WATCHES as u64 - 1;

fn check_produce(s: &Scenario, p: &Program, path: impl Fn(&str) -> String) -> Checked {
    if p.op == Op::Read || p.op.is_atomic() {
        let text = format!("`{}` brings the peer no message", p.op.word());
        return refuse(path("op"), text, "only sends and writes do");
    }
    if let Some((text, help)) = too_short(p.size.0).filter(|_| p.payload == Payload::Data) {
        return refuse(path("size"), text, help);
    }
    let depth = s.qp.sq_depth.value();
    let slots = p.slots.map_or(depth, |n| n.value());
    let round = p.per_round.value();
    // A proxy posts what fits, and the rest when completions have made room.
    let all_at_once = p.initiator != Initiator::CpuProxy;
    for (key, most, counts) in [("slots", slots, true), ("qp.sq_depth", depth, all_at_once)] {
        if counts && round > most {
            let text = format!("`per_round` is {round}, and `{key}` is {most}");
            return refuse(path("per_round"), text, "lower it, or raise the other");
        }
    }
    if p.qps.value() > 1 {
        let text = format!("{} queue pairs of a producer", p.qps.value());
        return refuse(path("qps"), text, "it posts on one: raise `threads`, or leave it out");
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const KINDS: [ProgramKind; 11] = [
        ProgramKind::Latency,
        ProgramKind::PingPong,
        ProgramKind::RequestReply,
        ProgramKind::Bandwidth,
        ProgramKind::MessageRate,
        ProgramKind::Script,
        ProgramKind::Produce,
        ProgramKind::Flows,
        ProgramKind::Aggregate,
        ProgramKind::AllToAll,
        ProgramKind::Transfer,
    ];

    /// A key that is in no list would be refused everywhere, and one that is misspelt in a list
    /// refused where it has a use.
    #[test]
    fn the_keys_of_all_kinds_are_those_of_a_program() {
        let schema = serde_json::to_value(schemars::schema_for!(Program)).unwrap();
        let of_program: BTreeSet<&str> =
            schema["properties"].as_object().unwrap().keys().map(String::as_str).collect();
        let lists = KINDS.iter().flat_map(|kind| keys(*kind)).chain([&ALWAYS]);
        let listed: BTreeSet<&str> = lists.flat_map(|keys| keys.iter().copied()).collect();
        assert_eq!(listed, of_program);
    }
}
