//! What kills no queue pair and goes wrong all the same, as notes; and the exit's reason in the
//! words of the verdicts.

use std::collections::BTreeMap;

use doorbell_core::units::Span;
use doorbell_core::verbs::{QpType, Qpn};
use doorbell_sim::host::StallReason;
use doorbell_sim::nic::{Nic, NicQp, RecvQueue};
use doorbell_sim::wire::PortId;
use doorbell_sim::world::World;

use super::facts::round_trip;
use super::words::{plural, qp_name, time};
use super::{Places, QpRow};
use crate::format::{Receives, Scenario};
use crate::run::{ExitKind, Note, NoteKind, Outcome, receives};

/// Notes of one kind in full; the rest is counted.
const MAX_NOTES: usize = 4;

/// A warning for each, or their number behind the first ones.
pub(super) fn warn(out: &mut Outcome, name: &str, all: Vec<(String, u64)>) {
    out.oracles.push(name.to_owned());
    let rest: u64 = all.iter().skip(MAX_NOTES).map(|(_, n)| n).sum();
    let more = all.len().saturating_sub(MAX_NOTES);
    let mut add = |text, count| {
        let name = name.to_owned();
        out.notes.push(Note { kind: NoteKind::Warning, name, text, count });
    };
    all.into_iter().take(MAX_NOTES).for_each(|(text, n)| add(text, n));
    if more > 0 {
        add(format!("and {more} more of the kind"), rest);
    }
}

/// Packets that `p` took for duplicates of an earlier life of `q`, which was reset after `p` began
/// to take its packets: they were sent for the first time, and nothing of them was executed.
fn of_an_earlier_life(q: &NicQp, p: &NicQp) -> u64 {
    let left = q.reset_at.filter(|t| p.accepts_since.is_some_and(|since| since < *t));
    let taken = left.and_then(|left| p.fresh_duplicates.filter(|(_, last)| *last > left));
    taken.map_or(0, |(n, _)| n)
}

/// Connections that live though the two sides do not agree about the first PSN, or about the life
/// that it belongs to: the peer takes packets for duplicates, and acknowledges what it never
/// executes.
pub(super) fn psn_mismatch(world: &World, out: &mut Outcome) {
    let mut count = 0;
    for (h, host) in world.hosts().iter().enumerate() {
        for (_, q) in host.qps() {
            let there = world.hosts()[q.peer.index()].nic(q.peer_port.index());
            let p = there.own_qp_index(q.attr.dest_qpn).and_then(|i| there.qp(i));
            let mutual = |p: &&NicQp| p.peer.0 == h as u32 && p.attr.dest_qpn == q.qpn;
            let Some(p) = p.filter(mutual).filter(|_| q.acknowledged.is_some()) else { continue };
            let behind = q.attr.sq_psn.diff(p.attr.rq_psn) < 0;
            if q.ty == QpType::Rc && p.responder.is_some() {
                count += if behind {
                    p.hw_counters().duplicate_request
                } else {
                    of_an_earlier_life(q, p)
                };
            }
        }
    }
    if count > 0 {
        let text = "packets were taken for duplicates because the two sides do not agree about \
                    the first PSN, or one of them was reset and the other was not: they were \
                    acknowledged and never executed, and their work requests may have completed \
                    with success";
        let (name, text) = ("psn-mismatch".to_owned(), text.to_owned());
        out.notes.push(Note { kind: NoteKind::Warning, name, text, count });
    }
}

/// Sequence NAKs that are repeated before what they ask for can have come: each makes the requester
/// go back and takes one of its retries.
pub(super) fn naks_too_soon(world: &World, out: &mut Outcome) {
    out.oracles.push("nak-repeat-short".to_owned());
    let mut worst: Option<(Span, Span, u32, &NicQp)> = None;
    let mut count = 0;
    for (h, host) in (0..).zip(world.hosts()) {
        for (_, q) in host.qps().filter(|(_, q)| q.ty == QpType::Rc && q.requester.is_some()) {
            let there = world.hosts()[q.peer.index()].nic(q.peer_port.index());
            let Some(repeat) = there.rc_config().nak_repeat else { continue };
            let takes = round_trip(world, h, q);
            if repeat >= takes {
                continue;
            }
            count += 1;
            if worst.is_none_or(|(_, most, ..)| takes > most) {
                worst = Some((repeat, takes, h, q));
            }
        }
    }
    let Some((repeat, takes, h, q)) = worst else { return };
    let text = format!(
        "`rc.nak_repeat` is {}, and what is sent again from {} to host {} takes {} at least to \
         come: one loss is told several times, each time all behind it is sent again, and more \
         repetitions than `qp.retry_cnt` ({}) end the queue pair; raise it above the round trip, \
         or set it to 0ns",
        time(repeat),
        qp_name(h, q.qpn),
        q.peer.0,
        time(takes),
        q.attr.retry_cnt
    );
    let name = "nak-repeat-short".to_owned();
    out.notes.push(Note { kind: NoteKind::Warning, name, text, count });
}

/// Receive queues that ran dry: each refusal costs the sender an RNR timer.
/// `ended`: every program has done all that it was to do, so as many receives were taken as any
/// other depth would have to serve. A batch that is posted again as a whole is named where it holds
/// back half of a queue or more.
pub(super) fn receives_too_few(world: &World, s: &Scenario, ended: bool, out: &mut Outcome) {
    let by_steps = s.program.iter().all(|p| p.receives == Receives::None);
    let mut all = Vec::new();
    // Steps post one by one what they post, whatever there is room for.
    let rq = (!by_steps).then_some("qp.rq_depth");
    let batches = s.program.iter().filter(|p| p.peer_receives()).map(|p| p.repost_batch.value());
    let batch = batches.max().unwrap_or(1);
    let taken =
        |q: &RecvQueue, on_way: u64| ended.then(|| (q.posted() - u64::from(q.len()), on_way));
    for (h, host) in (0..).zip(world.hosts()) {
        let mut shared: BTreeMap<(PortId, u32), u64> = BTreeMap::new();
        for (_, q) in host.qps() {
            let naks = q.hw_counters().rnr_nak_sent.saturating_sub(q.stats.page_fault_naks);
            // What a planned fault withholds was posted.
            let dry = naks > 0 && q.fill_at_rnr.unwrap_or(0) == 0;
            match q.srq {
                _ if !dry => {}
                Some(srq) => *shared.entry((Nic::port_of(q.qpn), srq)).or_default() += naks,
                None => {
                    let name = format!("the receive queue of {}", qp_name(h, q.qpn));
                    let enough = taken(&q.rq, receives::on_way(world, h, [q]));
                    all.push((dry_text(&name, &q.rq, enough, (rq, batch), naks), naks));
                }
            }
        }
        for ((port, srq), naks) in shared {
            let Some(queue) = host.nic(port.index()).srq(srq) else { continue };
            let of = |q: &&NicQp| q.srq == Some(srq) && Nic::port_of(q.qpn) == port;
            let sharers = host.qps().map(|(_, q)| q).filter(of);
            let enough = taken(queue, receives::on_way(world, h, sharers));
            let name = format!("SRQ {srq} of host {h}");
            all.push((dry_text(&name, queue, enough, (Some("srq.depth"), batch), naks), naks));
        }
    }
    warn(out, "receives-too-few", all);
}

fn dry_text(
    name: &str,
    queue: &RecvQueue,
    enough: Option<(u64, u64)>,
    (setting, batch): (Option<&str>, u64),
    naks: u64,
) -> String {
    let depth = queue.depth();
    if queue.posted() == 0 {
        return format!(
            "{name} was empty all the time: {} sent, and no receive was ever posted; post \
             receives: a script does by `recv`, and its peer without `receives = \"none\"`",
            plural(naks, "RNR NAK")
        );
    }
    let naks = plural(naks, "RNR NAK");
    let Some(setting) = setting else {
        return format!(
            "{name} ran dry: {naks} sent, lowest fill 0; post receives sooner, or more of them: \
             steps post them (`recv`)"
        );
    };
    let bound = match enough {
        Some((n, on_way)) if n > u64::from(depth) => receives::enough(n, depth.into(), on_way),
        _ => String::new(),
    };
    let batch = batch.min(depth.into());
    let held = match batch > 1 && batch * 2 >= u64::from(depth) {
        true => format!(
            ", or in smaller batches (up to {batch} wait for theirs: `repost_batch`, beside which \
             no depth helps for sure)"
        ),
        false => String::new(),
    };
    format!(
        "{name} ran dry: {naks} sent, lowest fill 0 of {depth}; post receives faster, or more of \
         them (`{setting}`){held}{bound}"
    )
}

/// Puts the verdicts in the place of what the exit's reason says of the same queue pairs.
pub(super) fn explain_exit(world: &World, places: &Places, out: &mut Outcome) {
    if out.exit.kind != ExitKind::NoProgress {
        return;
    }
    let mut reasons = Vec::new();
    world.hosts().iter().for_each(|h| h.stall_reasons(&mut reasons));
    let verdict = |qps: &[QpRow], host: u32, qpn: Qpn| {
        let row = &qps[*places.get(&(host, qpn.value()))?];
        let d = row.death.as_ref()?;
        Some(format!("host {host}, QP {} [{}]: {}", row.qpn, d.cause, d.verdict))
    };
    for reason in &reasons {
        let (host, qpn) = match *reason {
            StallReason::Unanswered { host, qpn, .. }
            | StallReason::QpInError { host, qpn }
            | StallReason::ResendsWithoutEnd { host, qpn, .. } => (host, qpn),
            _ => continue,
        };
        if let Some(mut text) = verdict(&out.qps, host, qpn) {
            let said = reason.to_string();
            // That it never ends is no matter of what happened to its packets.
            if matches!(reason, StallReason::ResendsWithoutEnd { .. }) {
                text = format!("{said}\n{text}");
            }
            out.exit.reason = out.exit.reason.replace(&said, &text);
        }
    }
}
