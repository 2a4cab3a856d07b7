//! Ack timers that expire before answers can have come.
//!
//! Two things show it together: the peer took requests that it had taken before, sent again by the
//! timer; and answers on the same way took longer than the timer waits. The first alone may be a
//! lost answer, the second alone many messages in flight, of which each answer starts the timer
//! anew.

use std::collections::BTreeMap;

use doorbell_core::units::Span;
use doorbell_core::verbs::{AckTimeout, QpType};
use doorbell_sim::nic::{Nic, NicQp};
use doorbell_sim::rc::{AckTimeoutMode, TimeoutMode};
use doorbell_sim::world::World;

use super::deaths::qp_name;
use super::{Metric, Note, NoteKind, Outcome};

/// Name of the note.
pub(super) const NAME: &str = "timer-short";

/// A queue pair whose timer is too early.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Early {
    /// The least time for which it waits.
    pub waits: Span,
    /// The longest that an answer took on its way.
    pub answers: Span,
    /// Packets that it sent again and that the peer had.
    pub needless: u64,
}

/// The queue pair that this one sends to, if that takes this one for its peer.
pub(super) fn peer_of<'w>(world: &'w World, host: u32, q: &NicQp) -> Option<&'w NicQp> {
    let there = world.hosts()[q.peer.index()].nic(q.peer_port.index());
    let p = there.own_qp_index(q.attr.dest_qpn).and_then(|i| there.qp(i))?;
    let port = Nic::port_of(q.qpn);
    ((p.peer.0, p.peer_port, p.attr.dest_qpn) == (host, port, q.qpn)).then_some(p)
}

/// The longest time that an answer took, of all queue pairs that send to the same port as this one:
/// their packets wait in the same queue, where one waits.
pub(super) fn longest_answer(world: &World, q: &NicQp) -> Span {
    let qps = world.hosts().iter().flat_map(|h| h.qps()).map(|(_, other)| other);
    let there = |other: &&NicQp| (other.peer, other.peer_port) == (q.peer, q.peer_port);
    qps.filter(there).map(|other| other.stats.longest_answer).max().unwrap_or(Span::ZERO)
}

/// The lowest code whose timer never expires within `answers`; `None`: no code is.
pub(super) fn code_above(mode: &TimeoutMode, answers: Span) -> Option<AckTimeout> {
    let longer = |t: &AckTimeout| mode.interval(*t, 0).is_some_and(|i| i.least > answers);
    // Code 0 is no timer at all: a loss would never be noticed.
    (1..=AckTimeout::MAX_CODE).filter_map(AckTimeout::new).find(longer)
}

/// Whether the timer of a queue pair is too early. `answers`: the longest time that one takes.
pub(super) fn early(world: &World, host: u32, q: &NicQp, answers: Span) -> Option<Early> {
    let needless = peer_of(world, host, q)?.stats.needless_resends;
    let waits = mode_of(world, host, q).interval(q.attr.timeout, 0)?.least;
    (needless > 0 && answers >= waits).then_some(Early { waits, answers, needless })
}

pub(super) fn mode_of<'w>(world: &'w World, host: u32, q: &NicQp) -> &'w TimeoutMode {
    &world.hosts()[host as usize].nic(Nic::port_of(q.qpn).index()).rc_config().timeout_mode
}

/// What to turn so that the timer is no longer too early.
pub(super) fn advice(mode: &TimeoutMode, answers: Span) -> String {
    match code_above(mode, answers) {
        _ if matches!(mode, TimeoutMode::Adaptive { .. }) => {
            "this device's timer ignores `qp.timeout` (`rc.timeout_mode`): keep less in flight"
                .to_owned()
        }
        Some(code) => format!("raise `qp.timeout` to {} at least", code.code()),
        None => "no code of `qp.timeout` is as long: keep less in flight".to_owned(),
    }
}

/// Notes the queue pair whose timer sent most again for nothing. Before the notes about full
/// queues: what an early timer adds to a queue is not to be cured by a larger one.
pub(super) fn collect(world: &World, out: &mut Outcome) {
    out.oracles.push(NAME.to_owned());
    let all = || world.hosts().iter().flat_map(|h| h.qps()).map(|(_, q)| q);
    if all().all(|q| q.stats.needless_resends == 0) {
        return;
    }
    let mut longest: BTreeMap<_, Span> = BTreeMap::new();
    for q in all() {
        let answers = longest.entry((q.peer, q.peer_port)).or_default();
        *answers = q.stats.longest_answer.max(*answers);
    }
    let mut worst: Option<(Early, u32, &NicQp)> = None;
    let (mut qps, mut needless) = (0_u64, 0);
    for (h, host) in (0..).zip(world.hosts()) {
        for (_, q) in host.qps().filter(|(_, q)| q.ty == QpType::Rc) {
            let answers = longest[&(q.peer, q.peer_port)];
            let Some(e) = early(world, h, q, answers) else { continue };
            qps += 1;
            needless += e.needless;
            if worst.is_none_or(|(most, ..)| e.needless > most.needless) {
                worst = Some((e, h, q));
            }
        }
    }
    let Some((e, h, q)) = worst else { return };
    let others = match qps - 1 {
        0 => String::new(),
        n => format!(", and {n} more queue pairs are like it"),
    };
    let text = format!(
        "the ack timer of {} expires after {} (`qp.timeout` {}), and answers on its way take up to \
         {}: {} packets were sent again that the peer had{others}; {}",
        qp_name(h, q.qpn),
        Metric::time(e.waits).text(),
        q.attr.timeout.code(),
        Metric::time(e.answers).text(),
        e.needless,
        advice(mode_of(world, h, q), e.answers)
    );
    let name = NAME.to_owned();
    out.notes.push(Note { kind: NoteKind::Warning, name, text, count: needless });
}
