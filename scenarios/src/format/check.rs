//! Contradictions: settings that are fine alone and impossible together or on this hardware.

use doorbell_core::units::{Bytes, Span};
use doorbell_core::verbs::QpAttrMask;
use serde_json::Value as Json;

use super::check_aggregate::check_aggregate;
use super::check_all_to_all::check_all_to_all;
use super::check_congestion::check_congestion;
use super::check_faults::check_faults;
use super::check_flows::{check_flows, check_list};
use super::check_groups::check_queue_keys;
use super::check_hosts::{OTHER_NIC, check_hosts, no_such_nic};
use super::check_initiator::check_initiator;
use super::check_kinds::{check_kind_limits, has_use};
use super::check_lanes::check_entries;
use super::check_link::check_link;
use super::check_srq::{check_receiver, check_srq};
use super::check_switch::check_switch;
use super::check_topology::check_topology;
use super::check_transfer::check_transfer;
use super::qp::MTUS;
use super::{
    ALL_QPS, Memory, Op, Payload, Poll, Program, ProgramKind, QpKind, Right, Scenario, StateStep,
    Step, StepEvent, StepState, TopologyKind,
};
use crate::input::{InputError, Node, Path};
use crate::profile::Profile;
use crate::quantity::Unit;

/// What is wrong, at which path, and what to do.
pub(super) struct Problem {
    path: String,
    message: String,
    /// The other place of a contradiction, whose line the message ends with.
    other: Option<String>,
    help: String,
}

impl Problem {
    /// With its places in the file.
    fn placed(self, tree: &Node) -> InputError {
        let place = |path: &str| Path::parse(path).ok().and_then(|p| p.origin(tree).cloned());
        let mut message = self.message;
        if let Some(other) = self.other {
            let line = place(&other).map(|o| format!(" (line {})", o.line_column().0));
            message += &format!(", `{other}`{}", line.unwrap_or_default());
        }
        let at = place(&self.path);
        let error = InputError::new(message).at_opt(at.as_ref()).at(&tree.origin);
        if self.help.is_empty() { error } else { error.help(self.help) }
    }
}

pub(super) type Checked = Result<(), Problem>;

pub(super) fn refuse(path: impl Into<String>, message: String, help: impl Into<String>) -> Checked {
    Err(Problem { path: path.into(), message, other: None, help: help.into() })
}

/// As [`refuse`], of two places that contradict each other.
pub(super) fn refuse_both(
    (path, other): (String, String),
    message: String,
    help: impl Into<String>,
) -> Checked {
    Err(Problem { path, message, other: Some(other), help: help.into() })
}

/// Refuses scenarios that cannot be run as they stand.
pub(crate) fn check(s: &Scenario, profile: &Profile, tree: &Node) -> Result<(), InputError> {
    let programs = || {
        s.program.iter().enumerate().try_for_each(|(index, program)| {
            let given = Given::new(index, program);
            check_program(s, profile, program, &given)
        })
    };
    let all = check_claim(s)
        .and_then(|()| check_queue_keys(s))
        .and_then(|()| check_link(s, profile))
        .and_then(|()| check_topology(s, profile))
        .and_then(|()| check_switch(s, profile))
        .and_then(|()| check_qp(s, profile))
        .and_then(|()| check_names(s))
        .and_then(|()| check_rights(s))
        .and_then(|()| programs())
        .and_then(|()| check_congestion(s, profile))
        .and_then(|()| check_srq(s, profile))
        .and_then(|()| check_faults(s, profile))
        .and_then(|()| check_record(s));
    all.map_err(|problem| problem.placed(tree))
}

/// Refuses lists of flows, which have been read by now, that do not go with the rest.
pub(super) fn check_lists(s: &Scenario, profile: &Profile, tree: &Node) -> Result<(), InputError> {
    let list = |(index, p): (usize, &Program)| match &p.flows {
        Some(flows) => check_list(s, profile, flows, |key| format!("program.{index}.{key}")),
        None => Ok(()),
    };
    let all = s.program.iter().enumerate().try_for_each(list);
    all.map_err(|problem| problem.placed(tree))
}

/// Which keys of a program differ from their defaults, to tell a default from a wish. A default
/// that is written out is no wish: the expanded configuration of a report must read back.
pub(super) struct Given {
    index: usize,
    program: Json,
    default: Json,
}

impl Given {
    fn new(index: usize, program: &Program) -> Self {
        let default = Program { name: program.name.clone(), ..Program::of_kind(program.kind) };
        let json = |p: &Program| serde_json::to_value(p).unwrap_or_default();
        Self { index, program: json(program), default: json(&default) }
    }

    pub(super) fn path(&self, key: &str) -> String {
        format!("program.{}.{key}", self.index)
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.program.get(key) != self.default.get(key)
    }

    /// All of them, in the order of the alphabet. One whose default is nothing is not written out.
    fn keys(&self) -> impl Iterator<Item = &str> {
        let written = self.program.as_object().into_iter().flat_map(|keys| keys.keys());
        written.map(String::as_str).filter(|key| self.has(key))
    }
}

/// A claim is settled as a whole or not at all.
fn check_claim(s: &Scenario) -> Checked {
    let (claim, finding) = (!s.claim.is_empty(), !s.finding.trim().is_empty());
    if s.verdict.is_some() != finding {
        let help = "a claim that is settled has both, the word and the figure";
        return refuse("verdict", "`verdict` and `finding` belong together".to_owned(), help);
    }
    if finding && !claim {
        let text = "a `finding` about no claim".to_owned();
        return refuse("finding", text, "name the `claim`, or say it in the title");
    }
    Ok(())
}

/// What is recorded over time.
fn check_record(s: &Scenario) -> Checked {
    let r = &s.record;
    let points = r.series_points.value();
    if !points.is_multiple_of(2) {
        let text = format!("`series_points` is {points}, and pairs of points are merged");
        let help = format!("write {} or {}", points - 1, points + 1);
        return refuse("record.series_points", text, help);
    }
    if r.series.is_none() && !r.series_of.is_empty() {
        let text = "`series_of` without `series`".to_owned();
        return refuse("record.series_of", text, "say how often: series = \"10us\"");
    }
    match r.series_of.iter().position(|name| name.trim().is_empty()) {
        Some(i) => {
            let help = "write \"switch0.port*\", \"host3\" or \"queues\"";
            refuse(format!("record.series_of.{i}"), "an empty name".to_owned(), help)
        }
        None => Ok(()),
    }
}

fn check_qp(s: &Scenario, profile: &Profile) -> Checked {
    let (qp, nic) = (&s.qp, &profile.nic);
    let mtu = qp.mtu.0;
    if !MTUS.contains(&mtu.0) {
        let text = format!("{} is no path MTU", mtu.print());
        return refuse("qp.mtu", text, "one of 256B, 512B, 1KiB, 2KiB, 4KiB");
    }
    let limits = [
        ("mtu", mtu.0, "port.max_mtu", profile.port.max_mtu.0),
        ("sq_depth", qp.sq_depth.value(), "nic.max_sq_depth", nic.max_sq_depth),
        ("rq_depth", qp.rq_depth.value(), "nic.max_rq_depth", nic.max_rq_depth),
        ("cq_depth", qp.cq_depth.map_or(0, |d| d.value()), "nic.max_cq_depth", nic.max_cq_depth),
        ("max_inline", qp.max_inline.0.0, "nic.max_inline", nic.max_inline.0),
        ("max_send_sge", qp.max_send_sge.value(), "nic.max_sge", nic.max_sge),
        ("max_rd_atomic", qp.max_rd_atomic.value(), "nic.max_rd_atomic", nic.max_rd_atomic),
        (
            "max_dest_rd_atomic",
            qp.max_dest_rd_atomic.value(),
            "nic.max_rd_atomic",
            nic.max_rd_atomic,
        ),
    ];
    for (key, asked, parameter, limit) in limits {
        if asked > limit {
            let text = format!(
                "`qp.{key}` is {asked}, and profile \"{}\" allows at most {limit}",
                profile.name
            );
            let help = format!("lower it, or raise the profile's `{parameter}` in [settings]");
            return refuse(format!("qp.{key}"), text, help);
        }
    }
    Ok(())
}

/// A part of the names of results.
pub(super) fn check_name(name: &str, path: &str) -> Checked {
    let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
    if name.chars().all(good) {
        return Ok(());
    }
    let text = format!("\"{name}\" is no name for results");
    refuse(path, text, "use a to z, 0 to 9, `-` and `_`")
}

fn check_names(s: &Scenario) -> Checked {
    if s.program.is_empty() {
        return refuse("program", "there is no program".to_owned(), "add a [[program]]");
    }
    for (i, program) in s.program.iter().enumerate() {
        let name = &program.name;
        let path = format!("program.{i}.name");
        check_name(name, &path)?;
        if name.is_empty() && s.program.len() > 1 {
            let text = format!("program {i} has no name");
            return refuse(path, text, "with several programs each needs a `name` for its results");
        }
        if s.program[..i].iter().any(|p| p.name == *name) {
            return refuse(path, format!("two programs are called \"{name}\""), "");
        }
    }
    Ok(())
}

fn check_program(s: &Scenario, profile: &Profile, p: &Program, given: &Given) -> Checked {
    check_kind(p, given)?;
    let path = |key: &str| given.path(key);
    match p.kind {
        ProgramKind::Flows => check_flows(s, profile, p, path),
        ProgramKind::Aggregate => {
            check_initiator(profile, p, given)?;
            check_aggregate(s, profile, p, path)
        }
        ProgramKind::AllToAll => {
            check_initiator(profile, p, given)?;
            check_all_to_all(s, profile, p, path)
        }
        _ => check_pair(s, profile, p, given),
    }
}

/// A program that posts, on one host or several, and one that answers.
fn check_pair(s: &Scenario, profile: &Profile, p: &Program, given: &Given) -> Checked {
    let hosts = s.topology.hosts.value();
    for (key, host) in [("host", p.host.value()), ("peer", p.peer.value())] {
        if host >= hosts {
            let text =
                format!("`{key}` is {host}, and there are {hosts} hosts, 0 to {}", hosts - 1);
            return refuse(given.path(key), text, "raise `topology.hosts` or name another host");
        }
    }
    // Over a switch a host's own packets come back to it.
    if p.host.value() == p.peer.value() && s.topology.kind == TopologyKind::BackToBack {
        let text = format!("`host` and `peer` are both {}", p.host.value());
        let help = "name two hosts, or write `topology.kind = \"switch\"` to loop back over it";
        return refuse(given.path("peer"), text, help);
    }
    check_hosts(s, p, |key| given.path(key))?;
    check_nic(s, profile, p, given)?;
    check_receiver(p, |key| given.has(key), |key| given.path(key))?;
    check_kind_limits(s, p, |key| given.path(key))?;
    check_queues(s, profile, p, given)?;
    check_initiator(profile, p, given)?;
    if p.kind == ProgramKind::Script {
        return check_script(s, profile, p, given);
    }
    if p.kind == ProgramKind::Transfer {
        return check_transfer(s, p, |key| given.path(key));
    }
    if p.op == Op::SendInv {
        let text = "`send-inv` in a loop would invalidate the same key each time".to_owned();
        return refuse(given.path("op"), text, "write it as a step of a script");
    }
    check_op(s, p.op, p.size.0, &given.path("op"), &given.path("size"))?;
    check_depth(s, p.op, &given.path("op"))?;
    check_inline(s, p, given)
}

/// The NICs of a program: every host that it names has them, and over a cable they are at both
/// ends of the same one.
fn check_nic(s: &Scenario, profile: &Profile, p: &Program, given: &Given) -> Checked {
    let (t, nic, peer) = (&s.topology, p.nic.value(), u64::from(p.nic_of_peer()));
    let posts = (p.host.value()..p.host.value() + p.hosts.value()).map(|h| ("nic", nic, h));
    for (key, nic, host) in posts.chain([("peer_nic", peer, p.peer.value())]) {
        if let Some(text) = no_such_nic(t, profile, nic, [host].into_iter()) {
            let key = if given.has(key) { key } else { "nic" };
            return refuse(given.path(key), text, OTHER_NIC);
        }
    }
    if t.kind == TopologyKind::BackToBack && nic != peer {
        let text = format!("NIC {nic} and NIC {peer} are at the ends of different cables");
        let help = "leave `peer_nic` out, or write `kind = \"switch\"`";
        return refuse(given.path("peer_nic"), text, help);
    }
    Ok(())
}

fn check_kind(p: &Program, given: &Given) -> Checked {
    if let Some(key) = given.keys().find(|key| !has_use(p.kind, key)) {
        let text = format!("`{key}` has no use in `{}`", p.kind.word());
        return refuse(given.path(key), text, p.kind.remedy(key));
    }
    if p.kind == ProgramKind::Script && p.steps.is_empty() {
        let help = "write for example steps = [\"post write 16B\", \"ring\", \"wait\"]";
        return refuse(given.path("steps"), "a script without `steps`".to_owned(), help);
    }
    let batch = |own: Option<_>| own.unwrap_or(p.batch).value();
    let fills = p.lanes.iter().map(|l| batch(l.batch)).max().unwrap_or(batch(None));
    if p.batch_delay.is_some() && fills == 1 {
        let text = "`batch_delay` waits for a batch to fill, and `batch` is 1".to_owned();
        return refuse(given.path("batch_delay"), text, "raise `batch`, or leave the delay out");
    }
    if p.poll_interval.is_some() && p.poll == Poll::Event {
        let text = "`poll_interval` with `poll = \"event\"`".to_owned();
        return refuse(given.path("poll_interval"), text, "an event needs no polling: name one");
    }
    Ok(())
}

fn check_queues(s: &Scenario, profile: &Profile, p: &Program, given: &Given) -> Checked {
    let depth = s.qp.sq_depth.value();
    // A request waits for its reply in no slot of the send queue.
    let window = p.window.filter(|_| p.kind != ProgramKind::RequestReply);
    for (key, value) in [("window", window.map(|w| w.value())), ("batch", Some(p.batch.value()))] {
        if let Some(value) = value.filter(|v| *v > depth) {
            let text = format!("`{key}` is {value}, and `qp.sq_depth` is {depth}");
            return refuse(given.path(key), text, "lower it, or raise the depth");
        }
    }
    let threads = if p.share_qp { 1 } else { p.threads.value() };
    let qps = p.all_qps() * threads;
    if qps > profile.nic.max_qp {
        let text = format!("{qps} queue pairs, and the profile allows {}", profile.nic.max_qp);
        return refuse(given.path("qps"), text, "lower `qps` or `threads`");
    }
    check_entries(s, profile, p, given)
}

/// Largest message of the InfiniBand architecture.
const MAX_MESSAGE: u64 = 1 << 31;

pub(super) fn check_op(
    s: &Scenario,
    op: Op,
    size: Bytes,
    op_path: &str,
    size_path: &str,
) -> Checked {
    let word = op.word();
    if op.is_atomic() && size != Bytes(8) {
        let text = format!("`{word}` has 8 bytes, not {}", size.print());
        return refuse(size_path, text, "leave `size` out");
    }
    if size.0 > MAX_MESSAGE {
        let text = format!("{} is more than the largest message, 2GiB", size.print());
        return refuse(size_path, text, "send several messages");
    }
    let needs_rc = op == Op::Read || op.is_atomic();
    let allowed = match s.qp.kind {
        QpKind::Rc => true,
        // The wire has no UC SEND with Invalidate.
        QpKind::Uc => !needs_rc && op != Op::SendInv,
        QpKind::Ud => matches!(op, Op::Send | Op::SendImm),
    };
    if !allowed {
        let service = match s.qp.kind {
            QpKind::Uc => "UC",
            _ => "UD",
        };
        let text = format!("a {service} queue pair has no `{word}`");
        return refuse(op_path, text, "write `type = \"RC\"` in [qp]");
    }
    if s.qp.kind == QpKind::Ud && size.0 > s.qp.mtu.0.0 {
        let text = format!("{} does not fit one packet, and UD has only one", size.print());
        return refuse(size_path, text, "at most `qp.mtu`");
    }
    Ok(())
}

/// Programs that only RC carries; `what` is the subject with its verb, as in "flows are".
pub(super) fn check_reliable(s: &Scenario, what: &str) -> Checked {
    match s.qp.kind {
        QpKind::Rc => Ok(()),
        QpKind::Uc | QpKind::Ud => {
            let text = format!("{what} between RC queue pairs");
            refuse("qp.type", text, "write `type = \"RC\"` in [qp]")
        }
    }
}

/// READs and atomics need a depth, unless it is to be shown what becomes of them without.
fn check_depth(s: &Scenario, op: Op, path: &str) -> Checked {
    let depth = s.qp.max_rd_atomic.value().min(s.qp.max_dest_rd_atomic.value());
    if depth == 0 && (op == Op::Read || op.is_atomic()) {
        let text = format!("`{}` with no READ or atomic allowed outstanding", op.word());
        let help = "raise `qp.max_rd_atomic` and `qp.max_dest_rd_atomic`, or post it with `anyway` \
                    in a script";
        return refuse(path, text, help);
    }
    Ok(())
}

fn check_inline(s: &Scenario, p: &Program, given: &Given) -> Checked {
    let Some(inline) = p.inline.map(|i| i.0) else {
        return Ok(());
    };
    check_granted(s, inline, &given.path("inline"))?;
    if !p.op.takes_inline() && inline.0 > 0 {
        let text = format!("`{}` cannot be inline", p.op.word());
        return refuse(given.path("inline"), text, "only writes and sends can");
    }
    Ok(())
}

/// No more goes inline than the queue pairs grant.
pub(super) fn check_granted(s: &Scenario, inline: Bytes, path: &str) -> Checked {
    let granted = s.qp.max_inline.0;
    if inline <= granted {
        return Ok(());
    }
    let text =
        format!("`inline` is {}, and `qp.max_inline` grants {}", inline.print(), granted.print());
    refuse(path, text, "lower it, or raise `qp.max_inline`")
}

fn check_script(s: &Scenario, profile: &Profile, p: &Program, given: &Given) -> Checked {
    let qps = p.qps.value();
    for (i, step) in p.steps.iter().enumerate() {
        let path = given.path(&format!("steps.{i}"));
        let qp = match step {
            Step::Post(post) => {
                // The verbs list SEND with Invalidate for UC, of which the wire has none.
                let none = post.op.is_atomic() && post.size != Bytes(8)
                    || post.op == Op::SendInv && s.qp.kind == QpKind::Uc;
                if !post.anyway || none {
                    check_op(s, post.op, post.size, &path, &path)?;
                    check_depth(s, post.op, &path)?;
                }
                let granted = s.qp.max_inline.0;
                if post.inline && post.size.0 > granted.0 && !post.anyway {
                    let text = format!(
                        "{} inline, and `qp.max_inline` grants {}",
                        post.size.print(),
                        granted.print()
                    );
                    return refuse(path, text, "send less, or raise `qp.max_inline`");
                }
                let elements = s.qp.max_send_sge.value();
                if u64::from(post.sge) > elements && !post.anyway {
                    let text =
                        format!("{} elements, and `qp.max_send_sge` grants {elements}", post.sge);
                    return refuse(path, text, "gather from fewer, or raise `qp.max_send_sge`");
                }
                post.qp
            }
            Step::State(state) => {
                check_state(s, state, &path)?;
                state.qp
            }
            Step::Recv { count, own, qp, .. } => {
                if !own {
                    check_receives(s, *count, &path)?;
                }
                *qp
            }
            Step::Ring { qp, .. } => *qp,
            Step::Destroy { qp } | Step::Drain { qp, .. } | Step::AwaitSlots { qp, .. } => *qp,
            Step::AwaitEvent { event, qp, .. } => {
                check_event(s, *event, &path)?;
                check_drained(p, i, *event, *qp, &path)?;
                *qp
            }
            Step::Load { .. } | Step::Store { .. } if p.payload == Payload::Virtual => {
                let text = "a load or store of memory without contents".to_owned();
                return refuse(path, text, "set `payload = \"data\"`");
            }
            Step::Dereg { after: Some(after), .. } => {
                check_dereg(profile, *after, path.clone())?;
                0
            }
            Step::Dereg { after: None, .. } => 0,
            Step::Poll { .. } | Step::Wait { .. } | Step::Compute { .. } => 0,
            Step::Fence | Step::Load { .. } | Step::Store { .. } => 0,
        };
        if qp != ALL_QPS && u64::from(qp) >= qps {
            let text = format!("queue pair {qp}, and the program has {qps}, counted from 0");
            return refuse(path, text, "raise the program's `qps`");
        }
    }
    Ok(())
}

/// What a step `state` names has to be there.
fn check_state(s: &Scenario, state: &StateStep, path: &str) -> Checked {
    let (hosts, pkeys) = (s.topology.hosts.value(), s.topology.pkeys.len() as u64);
    if let Some(host) = state.set.gid.filter(|h| u64::from(*h) >= hosts) {
        let text = format!("`gid=host{host}`, and there are {hosts} hosts, 0 to {}", hosts - 1);
        return refuse(path, text, "raise `topology.hosts` or name another host");
    }
    if let Some(n) = state.set.pkey.filter(|n| u64::from(*n) >= pkeys && !state.anyway) {
        let text = format!("`pkey={n}`, and `topology.pkeys` has {pkeys} entries, from 0");
        return refuse(path, text, "name one of them, or write the table longer");
    }
    Ok(())
}

/// The peer has to hear of it before.
fn check_dereg(profile: &Profile, after: Span, path: String) -> Checked {
    let way = profile.port.bootstrap_latency;
    if after > way {
        return Ok(());
    }
    let text = format!(
        "the peer would hear of it {} after the step, and is to do it after {}",
        way.print(),
        after.print()
    );
    let help = format!("more than {}, or lower \"port.bootstrap_latency\"", way.print());
    refuse(path, text, help)
}

/// A right to write from afar needs the right to write here; and queue pairs have no local rights.
fn check_rights(s: &Scenario) -> Checked {
    let remote = [Right::RemoteWrite, Right::RemoteAtomic];
    for (i, p) in s.program.iter().enumerate() {
        for (key, rights) in [("access", &p.access), ("peer_access", &p.peer_access)] {
            let Some(rights) = rights else { continue };
            let writes = rights.iter().any(|right| remote.contains(right));
            let memory = if key == "access" { p.memory } else { p.peer_memory };
            if rights.contains(&Right::OnDemand) && memory == Memory::Gpu {
                let text = "pages on demand of a GPU's memory".to_owned();
                return refuse(format!("program.{i}.{key}"), text, "only host memory has them");
            }
            if writes && !rights.contains(&Right::LocalWrite) {
                let text = "the verbs register no such region: a peer may not write where the \
                            host's own NIC may not"
                    .to_owned();
                return refuse(format!("program.{i}.{key}"), text, "add \"local-write\"");
            }
        }
    }
    if s.qp.access.as_ref().is_some_and(|rights| rights.contains(&Right::OnDemand)) {
        let text = "a queue pair has no pages".to_owned();
        return refuse("qp.access", text, "write it under a program's `access`");
    }
    if s.qp.access.as_ref().is_some_and(|rights| rights.contains(&Right::LocalWrite)) {
        let text = "a queue pair grants its peer nothing by `local-write`".to_owned();
        return refuse("qp.access", text, "leave it out; regions have it, under `access`");
    }
    Ok(())
}

/// A peer that can post no more of them ends, and with it the run.
fn check_receives(s: &Scenario, count: u32, path: &str) -> Checked {
    let (key, depth) = match s.srq.as_ref().and_then(|srq| srq.depth) {
        Some(depth) => ("srq.depth", depth.value()),
        None => ("qp.rq_depth", s.qp.rq_depth.value()),
    };
    if u64::from(count) <= depth {
        return Ok(());
    }
    let text = format!("{count} receives, and the peer's queue takes {depth} (`{key}`)");
    refuse(path, text, format!("post fewer at a time, or raise `{key}`"))
}

/// The event of a drained send queue comes to who asks for it.
fn check_drained(p: &Program, i: usize, event: StepEvent, of: u32, path: &str) -> Checked {
    let asks = |step: &Step| match step {
        Step::State(s) => {
            let with = s.set.with.contains(QpAttrMask::EN_SQD_ASYNC_NOTIFY);
            s.state == StepState::Sqd && s.qp == of && !s.peer && with
        }
        _ => false,
    };
    if event != StepEvent::SqDrained || p.steps[..i].iter().any(asks) {
        return Ok(());
    }
    let text = "no step before asks for the event `sq-drained`, so it never comes".to_owned();
    refuse(path, text, "write \"state sqd with=en_sqd_async_notify\"")
}

/// Events that cannot come.
fn check_event(s: &Scenario, event: StepEvent, path: &str) -> Checked {
    let (text, help) = match (event, &s.srq) {
        (StepEvent::LastWqe, None) => {
            ("a queue pair without an SRQ raises no last-WQE event", "add [srq], or use `drain`")
        }
        (StepEvent::SrqLimit, None) => ("a limit event without an SRQ", "add [srq]"),
        (StepEvent::SrqLimit, Some(srq)) if srq.limit.value() == 0 => {
            ("the limit of the SRQ is not armed", "set `srq.limit`")
        }
        _ => return Ok(()),
    };
    refuse(path, text.to_owned(), help)
}
