//! Receives, shared or not: what contradicts itself.

use super::check::{Checked, refuse};
use super::{
    Initiator, Payload, Program, ProgramKind, Receives, Scenario, SrqRepostBy, SrqShare, Step,
};
use crate::profile::Profile;

/// Keys of the core that receives.
const RECEIVER: [&str; 3] = ["peer_poll_interval", "repost_batch", "repost_time"];

impl Program {
    /// Whether its messages take receives of the peer.
    pub fn peer_receives(&self) -> bool {
        match self.kind {
            ProgramKind::Script => self.steps.iter().any(|s| match s {
                Step::Post(post) => post.op.takes_receive(),
                Step::Recv { own, .. } => !own,
                _ => false,
            }),
            _ => self.op.takes_receive(),
        }
    }

    /// Whether the other side is a program that serves any number of queue pairs, and not one
    /// that measures or checks.
    pub fn has_responder(&self) -> bool {
        match self.kind {
            ProgramKind::PingPong | ProgramKind::RequestReply => false,
            ProgramKind::Produce => {
                self.payload == Payload::Virtual && self.initiator != Initiator::CpuProxy
            }
            _ => true,
        }
    }
}

/// Refuses an SRQ that cannot be, or that nobody uses.
pub(super) fn check_srq(s: &Scenario, profile: &Profile) -> Checked {
    let Some(srq) = &s.srq else { return Ok(()) };
    let depth = srq.depth.map_or(s.qp.rq_depth.value(), |d| d.value());
    let most = profile.nic.max_rq_depth.min(profile.nic.max_sq_depth);
    if depth > most {
        let text = format!(
            "`srq.depth` is {depth}, and profile \"{}\" allows at most {most}",
            profile.name
        );
        let help = "lower it, or raise the profile's `nic.max_rq_depth` and `nic.max_sq_depth`";
        return refuse("srq.depth", text, help);
    }
    let limit = srq.limit.value();
    if limit >= depth {
        let text = format!("`srq.limit` is {limit}, and the queue holds {depth} receives");
        return refuse("srq.limit", text, format!("at most {}, or raise `srq.depth`", depth - 1));
    }
    if srq.repost == SrqRepostBy::Limit && limit == 0 {
        let text = "`repost = \"limit\"`, and no limit event ever comes".to_owned();
        return refuse("srq.repost", text, "set `srq.limit`, or write `repost = \"batch\"`");
    }
    let own = |p: &Program| p.kind == ProgramKind::Script;
    if !s.program.iter().any(|p| p.peer_receives() || own(p)) {
        let text = "a shared receive queue, and no program takes receives".to_owned();
        return refuse("srq", text, "write `op = \"send\"` or \"write-imm\", or leave [srq] out");
    }
    for (i, p) in s.program.iter().enumerate().filter(|(_, p)| p.peer_receives()) {
        check_user(i, p, srq.share)?;
    }
    if srq.share == SrqShare::Host { check_sharers(s) } else { Ok(()) }
}

fn check_user(i: usize, p: &Program, share: SrqShare) -> Checked {
    let path = |key: &str| format!("program.{i}.{key}");
    if p.receives == Receives::None {
        let text = "`receives = \"none\"` with a shared receive queue".to_owned();
        return refuse(path("receives"), text, "leave it or [srq] out");
    }
    if p.has_responder() {
        return Ok(());
    }
    let alone = p.threads.value() * p.hosts.value() == 1 || p.initiator == Initiator::CpuProxy;
    if share == SrqShare::Program && alone {
        return Ok(());
    }
    let text = format!("the receivers of `{}` share no queue with others", p.kind.word());
    let help = "write `share = \"program\"` in [srq] and one thread; `message-rate` shares";
    refuse(path(if share == SrqShare::Host { "kind" } else { "threads" }), text, help)
}

/// Whether messages of both come to one NIC.
fn same_receiver(p: &Program, q: &Program) -> bool {
    (p.peer, p.nic_of_peer()) == (q.peer, q.nic_of_peer())
}

/// One core serves all that share: it has one pace and one kind of memory.
fn check_sharers(s: &Scenario) -> Checked {
    let sharers = || s.program.iter().enumerate().filter(|(_, p)| p.peer_receives());
    for (i, p) in sharers() {
        let Some((first, q)) = sharers().find(|(_, q)| same_receiver(p, q)) else { continue };
        let same = [
            ("peer_poll_interval", p.peer_poll_interval == q.peer_poll_interval),
            ("repost_batch", p.repost_batch == q.repost_batch),
            ("repost_time", p.repost_time == q.repost_time),
            ("receives", p.receives == q.receives),
            ("payload", p.payload == q.payload),
            ("peer_memory", p.peer_memory == q.peer_memory),
        ];
        if let Some((key, _)) = same.into_iter().find(|(_, same)| !same) {
            let host = p.peer.value();
            let text = format!(
                "programs {first} and {i} share the receive queue of host {host} and differ in \
                 `{key}`"
            );
            let help = "give both the same, or write `share = \"program\"` in [srq]";
            return refuse(format!("program.{i}.{key}"), text, help);
        }
    }
    Ok(())
}

/// Keys of a receiver that does not receive, or that goes by other rules.
pub(super) fn check_receiver(
    p: &Program,
    has: impl Fn(&str) -> bool,
    path: impl Fn(&str) -> String,
) -> Checked {
    let Some(key) = RECEIVER.into_iter().find(|k| has(k)) else { return Ok(()) };
    if !p.has_responder() && p.kind != ProgramKind::RequestReply {
        let text = format!("`{key}` has no use in `{}`", p.kind.word());
        return refuse(path(key), text, "its other side posts each receive again at once");
    }
    if !p.peer_receives() {
        let text = format!("`{key}`, and the peer receives nothing");
        return refuse(path(key), text, "write `op = \"send\"` or \"write-imm\", or leave it out");
    }
    Ok(())
}
