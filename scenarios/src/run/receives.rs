//! Receive memory, shared receive queues, and the end of queue pairs, as metrics and notes.

use std::collections::BTreeMap;

use doorbell_core::units::{Span, Time};
use doorbell_sim::host::Host;
use doorbell_sim::nic::{LostCompletions, Nic, NicQp};
use doorbell_sim::world::World;

use super::deaths::{plural, qp_name};
use super::early;
use super::programs::{Placed, Role};
use super::{ExitKind, Metric, Note, NoteKind, Outcome, Point};
use crate::format::{ALL_QPS, Program, ProgramKind, Scenario, Step, StepEvent};
use crate::quantity::Unit;
use crate::workloads::{LogEntry, Outcome as Logged, Results};

/// Memory that receives take, how empty the shared queues became, and whom that hit.
pub(super) fn metrics(world: &World, all: &[(&Placed, &Results)], out: &mut Outcome) {
    let mut wasted: BTreeMap<u32, u64> = BTreeMap::new();
    for (p, r) in all.iter().filter(|(p, _)| p.role == Role::Peer) {
        *wasted.entry(p.host).or_default() += r.wasted_bytes;
    }
    let mut put = |name: String, m: Metric| out.metrics.insert(name, m);
    let (mut bytes, mut wqes, mut hit, mut left) = (0, 0, 0, 0);
    let mut low: Option<u32> = None;
    for (h, host) in (0..).zip(world.hosts()) {
        // The peaks of several NICs need not be at one time: what has to be there for each.
        let posted = host.nics().map(Nic::posted_receives);
        let (peak_bytes, peak_wqes) =
            posted.fold((0, 0), |(b, n), p| (b + p.peak_bytes, n + p.peak_wqes));
        bytes += peak_bytes;
        wqes += peak_wqes;
        if peak_wqes > 0 {
            put(format!("host{h}.receive_memory"), Metric::bytes(peak_bytes));
            put(format!("host{h}.receives_posted"), Metric::count(peak_wqes));
            let n = wasted.get(&h).copied().unwrap_or(0);
            put(format!("host{h}.receive_waste"), Metric::bytes(n));
        }
        hit += host.qps().filter(|(_, q)| q.hw_counters().rnr_nak_received > 0).count() as u64;
        for (i, srq) in (0..).zip(host.nics().flat_map(Nic::srqs).map(|(_, srq)| srq)) {
            let fill = srq.low_water.min(srq.len());
            low = Some(low.map_or(fill, |l| l.min(fill)));
            left += u64::from(srq.len());
            put(format!("host{h}.srq{i}.low"), Metric::count(fill.into()));
        }
    }
    put("receive_memory".into(), Metric::bytes(bytes));
    put("receives_posted".into(), Metric::count(wqes));
    put("receive_waste".into(), Metric::bytes(wasted.values().sum()));
    put("rnr_qps_hit".into(), Metric::count(hit));
    if let Some(low) = low {
        put("srq_low".into(), Metric::count(low.into()));
        put("srq_left".into(), Metric::count(left));
        let seen = all.iter().map(|(_, r)| r.srq_limits).sum();
        put("srq_limit_events".into(), Metric::count(seen));
    }
}

/// What scripts that did not end wait for, one line for each: the step, and the condition that
/// never became true.
pub(super) fn unmet(point: &Point, all: &[(&Placed, &Results)]) -> Vec<String> {
    let line = |(p, r): &(&Placed, &Results)| {
        let line = r.waits_at?;
        let step = point.scenario.program[p.program].steps.get(line as usize)?;
        let came = |e: &&LogEntry| e.line == line && matches!(e.outcome, Logged::Completed(_));
        let came = r.log.iter().filter(came).count();
        let why = condition(point, step, came)?;
        Some(format!("program {} stands at step {line} `{step}`: {why}", p.program))
    };
    all.iter().filter_map(line).collect()
}

/// The condition of a step that waits, when it was not met.
fn condition(point: &Point, step: &Step, came: usize) -> Option<String> {
    let rc = &point.profile.rc;
    let because = |on: bool, parameter: &str| match on {
        true => String::new(),
        false => format!("; on this device it never does (`{parameter}`)"),
    };
    Some(match step {
        Step::AwaitEvent { event, .. } => {
            let last = *event == StepEvent::LastWqe;
            let why = because(rc.last_wqe_event || !last, "rc.last_wqe_event");
            format!("the event {} has not come{why}", event.kind().as_str_name())
        }
        Step::AwaitSlots { count, .. } => {
            let qp = &point.scenario.qp;
            let depth = qp.max_rd_atomic.value().min(qp.max_dest_rd_atomic.value());
            match u64::from(*count) > depth {
                true if depth == 0 => "the queue pair may have no READ or atomic outstanding \
                                       (max_rd_atomic 0), so one that is posted fails; raise \
                                       `qp.max_rd_atomic` and `qp.max_dest_rd_atomic`"
                    .to_owned(),
                true => format!(
                    "the request can never be admitted: it needs {count} READ slots at once, and \
                     the queue pair has {depth} (max_rd_atomic); post it, the NIC holds back what \
                     is too many"
                ),
                false => format!("{count} of {depth} READ slots were never free at once"),
            }
        }
        Step::Drain { .. } => {
            let why = because(rc.flush_late_sends, "rc.flush_late_sends");
            format!("the marker has not been flushed, the drain is stuck{why}")
        }
        Step::Wait { count: Some(n) } => {
            let flushes = rc.flush_receives || came as u32 >= *n;
            let why = match flushes {
                true => "",
                false => "; this device flushes no receives (`rc.flush_receives`)",
            };
            format!("{came} of {n} completions have come{why}")
        }
        _ => return None,
    })
}

/// The most messages that the peers of these queue pairs of a host had posted and not seen done,
/// each at its own worst moment: as many may be on their way to a receive queue.
pub(super) fn on_way<'q>(
    world: &World,
    host: u32,
    qps: impl IntoIterator<Item = &'q NicQp>,
) -> u64 {
    let peers = qps.into_iter().filter_map(|q| early::peer_of(world, host, q));
    peers.map(|p| u64::from(p.sq.most_untold)).sum()
}

/// How many receives would have been enough for a queue of `depth` that ran dry: what was out at
/// once, all of its own and those that senders had posted, where that is less than the `taken` ones
/// of the whole run.
pub(super) fn enough(taken: u64, depth: u64, on_way: u64) -> String {
    let once = depth + on_way;
    let few = match on_way > 0 && once < taken {
        true => format!(
            "; {once} hold what was out at once here, {depth} taken and not posted again and \
             {on_way} that senders had posted and not seen complete, though without refusals more \
             may come in that time"
        ),
        false => String::new(),
    };
    format!(
        "{few}; {taken} are enough however fast they come, since that many are taken in all: fewer \
         will do if the receiver keeps up"
    )
}

/// Name of the note about completions that came before their payload.
pub(super) const OVERTAKEN: &str = "completion-before-payload";

/// Completions that came into memory before the payload that they tell of.
pub(super) fn overtaken(world: &World, out: &mut Outcome) {
    let nics = || world.hosts().iter().flat_map(Host::nics).map(|n| &n.overtaken);
    let count = nics().map(|o| o.completions).sum();
    let longest = nics().map(|o| o.longest).max().unwrap_or(Span::ZERO);
    if count > 0 {
        let text = format!(
            "completions that came into memory before their payload, by up to {}: the CQE goes to \
             another memory than the payload, and PCIe orders writes on one way only. Before the \
             payload is read, push it there: READ its last byte back through the same NIC, which \
             pushes the writes ahead of it, or flush (cuFlushGPUDirectRDMAWrites), or keep the \
             completion queue in the memory of the same GPU",
            longest.print()
        );
        let (kind, name) = (NoteKind::Warning, OVERTAKEN.to_owned());
        out.notes.push(Note { kind, name, text, count });
    }
}

/// Completions that went with their queue pairs. A run that could not go on names them first: who
/// waits for one of them waits for ever.
pub(super) fn lost_completions(world: &World, out: &mut Outcome) {
    let count = world.hosts().iter().flat_map(Host::nics).map(|n| n.stats.completions_lost).sum();
    out.oracles.push("completions-lost".to_owned());
    if count == 0 {
        return;
    }
    let all = (0..).zip(world.hosts()).flat_map(|(h, host)| {
        let lost = host.nics().flat_map(Nic::lost_completions);
        lost.map(move |l| lost_words(h, l))
    });
    let all: Vec<String> = all.take(MAX_LOST).collect();
    let named = all.join("; ");
    let text = format!(
        "completions that were owed when their queue pair was destroyed or reset: {named}. Nobody \
         learns what became of these work requests: poll them first, or move the queue pair to \
         ERR, post a marker and go on when the marker has been flushed"
    );
    let (kind, name) = (NoteKind::Warning, "completions-lost".to_owned());
    out.notes.push(Note { kind, name, text, count });
    if out.exit.kind == ExitKind::NoProgress {
        let lines = all.iter().map(|l| format!("{l}: who waits for one of them waits for ever\n"));
        out.exit.reason = lines.collect::<String>() + &out.exit.reason;
    }
}

/// Queue pairs whose lost completions are named; the rest is counted.
const MAX_LOST: usize = 4;

/// What a queue pair took with it.
fn lost_words(host: u32, l: &LostCompletions) -> String {
    let kinds = [(l.sends, "send"), (l.receives, "receive")];
    let kinds: Vec<_> = kinds.iter().filter(|(n, _)| *n > 0).map(|(n, k)| plural(*n, k)).collect();
    format!(
        "{} was {} at {} and took completions of {} with it",
        qp_name(host, l.qpn),
        if l.destroyed { "destroyed" } else { "reset" },
        Metric::time(l.at.since(Time::ZERO)).text(),
        kinds.join(" and ")
    )
}

/// The rule for the depth of completion queues, where the file names one: what can complete into
/// one and is not polled stays within it. At the sender that is signalled sends, over all queue
/// pairs of the queue, and at the receiver the receives.
pub(super) fn cq_rule(s: &Scenario, out: &mut Outcome) {
    let Some(depth) = s.qp.cq_depth.as_ref().map(|d| d.value()) else { return };
    for p in s.program.iter().filter(|p| p.kind == ProgramKind::Script) {
        if let Some(most) = unpolled(s, p).filter(|most| *most > depth) {
            let name = if p.name.is_empty() { p.kind.word() } else { p.name.as_str() };
            let text = format!("{name}: up to {most} signalled sends posted and not polled");
            out.notes.push(cq_note(&text, most, depth, "the completion queue"));
        }
    }
    for p in s.program.iter().filter(|p| is_dealt(p)) {
        let qps = p.qps.value();
        let name = if p.name.is_empty() { p.kind.word() } else { p.name.as_str() };
        let signalled = signalled(s, p);
        let text = format!(
            "{name}: {qps} queue pairs x {signalled} signalled sends outstanding + 0 receives, \
             which complete elsewhere"
        );
        out.notes.push(cq_note(&text, qps * signalled, depth, "the completion queue"));
        if !p.op.takes_receive() {
            continue;
        }
        let (posted, sum) = match &s.srq {
            Some(srq) => {
                let n = srq.depth.map_or(s.qp.rq_depth.value(), |d| d.value());
                (format!("{n} receives of the shared queue"), n)
            }
            None => {
                let n = s.qp.rq_depth.value().min(each(p));
                (format!("{qps} queue pairs x {n} receives"), qps * n)
            }
        };
        let text = format!("{name}, at the receiver: {posted} posted or not polled");
        out.notes.push(cq_note(&text, sum, depth, "its completion queue"));
    }
    out.oracles.extend(CQ_RULE.map(str::to_owned));
}

fn cq_note(what: &str, sum: u64, depth: u64, queue: &str) -> Note {
    let (kind, name, holds) = match sum <= depth {
        true => (NoteKind::Info, CQ_RULE[0], "<="),
        false => (NoteKind::Warning, CQ_RULE[1], ">"),
    };
    let text = format!("{what} = {sum} {holds} {depth} entries of {queue}");
    Note { kind, name: name.to_owned(), text, count: 1 }
}

/// Names of the notes about the depth of completion queues: it is enough, it is not.
const CQ_RULE: [&str; 2] = ["cq-room", "cq-too-small"];

/// The most signalled sends that a script has posted and not polled at any time, if it posts any.
fn unpolled(s: &Scenario, p: &Program) -> Option<u64> {
    let (mut now, mut most) = (0_u64, 0);
    for step in &p.steps {
        match step {
            Step::Post(post) if post.signaled || s.qp.sig_all => {
                let qps = if post.qp == ALL_QPS { p.qps.value() } else { 1 };
                now += u64::from(post.count) * qps;
            }
            Step::Poll { max } => now = now.saturating_sub((*max).into()),
            Step::Wait { count: Some(n) } => now = now.saturating_sub((*n).into()),
            Step::Wait { count: None } => now = 0,
            _ => {}
        }
        most = most.max(now);
    }
    (most > 0).then_some(most)
}

/// Whether the program deals messages to its queue pairs in turn.
const fn is_dealt(p: &Program) -> bool {
    matches!(p.kind, ProgramKind::Bandwidth | ProgramKind::MessageRate | ProgramKind::RequestReply)
}

/// Most messages of a queue pair of the program.
fn each(p: &Program) -> u64 {
    (p.iterations.value() + p.warmup.value()).div_ceil(p.qps.value())
}

/// Signalled sends that a queue pair of the program can have outstanding.
fn signalled(s: &Scenario, p: &Program) -> u64 {
    let window = p.window.map_or(s.qp.sq_depth.value(), |w| w.value());
    // The last one of each queue pair is signalled.
    let every = if s.qp.sig_all { 1 } else { p.signal_every.value() };
    window.min(each(p)).div_ceil(every)
}
