//! Ack timers that expire before answers that did come.
//!
//! Of each answer the model knows which transmission it answers. One that comes after an expiry,
//! and answers what had been sent before it, shows that the timer was too early: nothing was lost.
//! Copies that the peer got show nothing alone, since the answer may have been lost; nor does the
//! time that answers of other queue pairs take.

use doorbell_core::units::{Span, Time};
use doorbell_core::verbs::{AckTimeout, QpType};
use doorbell_sim::nic::{Nic, NicQp};
use doorbell_sim::rc::{AckTimeoutMode, TimeoutMode};
use doorbell_sim::world::World;

use super::deaths::{plural, qp_name, trouble_words};
use super::faults::troubles;
use super::{Metric, Note, NoteKind, Outcome, Point};

/// Name of the note.
pub(super) const NAME: &str = "timer-short";

/// A queue pair whose timer is too early.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Early {
    /// The least time for which it waits.
    pub waits: Span,
    /// Expiries before an answer that came.
    pub expiries: u64,
    /// The worst of them: when the timer was started, and when the answer came.
    pub worst: (Time, Time),
    /// Packets that it sent again and that the peer had.
    pub needless: u64,
}

impl Early {
    /// For how long the timer would have had to run in the worst case.
    pub fn needed(&self) -> Span {
        self.worst.1.since(self.worst.0)
    }
}

/// The queue pair that this one sends to, if that takes this one for its peer.
pub(super) fn peer_of<'w>(world: &'w World, host: u32, q: &NicQp) -> Option<&'w NicQp> {
    let there = world.hosts()[q.peer.index()].nic(q.peer_port.index());
    let p = there.own_qp_index(q.attr.dest_qpn).and_then(|i| there.qp(i))?;
    let port = Nic::port_of(q.qpn);
    ((p.peer.0, p.peer_port, p.attr.dest_qpn) == (host, port, q.qpn)).then_some(p)
}

/// The longest time that the ack timer of any queue pair ran until an answer came, or would have
/// had to run where it expired before: `qp.timeout` is one for all.
pub(super) fn longest_answer(world: &World) -> Span {
    let qps = world.hosts().iter().flat_map(|h| h.qps()).map(|(_, q)| q);
    qps.map(|q| q.waits.longest).max().unwrap_or(Span::ZERO)
}

/// The lowest code whose timer never expires within `answers`; `None`: no code is.
pub(super) fn code_above(mode: &TimeoutMode, answers: Span) -> Option<AckTimeout> {
    let longer = |t: &AckTimeout| mode.interval(*t, 0).is_some_and(|i| i.least > answers);
    // Code 0 is no timer at all: a loss would never be noticed.
    (1..=AckTimeout::MAX_CODE).filter_map(AckTimeout::new).find(longer)
}

/// What shows that the timer of a queue pair is too early, if something does.
pub(super) fn early(world: &World, host: u32, q: &NicQp) -> Option<Early> {
    let (expiries, worst) = (q.waits.early, q.waits.worst_early?);
    let waits = mode_of(world, host, q).interval(q.attr.timeout, 0)?.least;
    let needless = peer_of(world, host, q).map_or(0, |p| p.stats.needless_resends);
    Some(Early { waits, expiries, worst, needless })
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
        Some(code) => format!(
            "raise `qp.timeout` to {}, the least that is longer than any answer took here. No \
             bound: less may do once nothing is sent for nothing, and more is needed where a queue \
             still grew",
            code.code()
        ),
        None => "no code of `qp.timeout` is as long: keep less in flight".to_owned(),
    }
}

/// Notes the queue pair whose timer was too early most often. Before the notes about full queues:
/// what an early timer adds to a queue is not to be cured by a larger one.
pub(super) fn collect(point: &Point, world: &World, out: &mut Outcome) {
    out.oracles.push(NAME.to_owned());
    let mut worst: Option<(Early, u32, &NicQp)> = None;
    let (mut qps, mut expiries) = (0_u64, 0);
    for (h, host) in (0..).zip(world.hosts()) {
        for (_, q) in host.qps().filter(|(_, q)| q.ty == QpType::Rc) {
            let Some(e) = early(world, h, q) else { continue };
            qps += 1;
            expiries += e.expiries;
            if worst.is_none_or(|(most, ..)| e.expiries > most.expiries) {
                worst = Some((e, h, q));
            }
        }
    }
    let Some((e, h, q)) = worst else { return };
    let others = match qps - 1 {
        0 => String::new(),
        1 => ", and 1 more queue pair is like it".to_owned(),
        n => format!(", and {n} more queue pairs are like it"),
    };
    let again = match e.needless {
        0 => String::new(),
        n => format!(", and sent {} again that the peer had", plural(n, "packet")),
    };
    let times = if e.expiries == 1 { "once".to_owned() } else { format!("{} times", e.expiries) };
    let text = format!(
        "the ack timer of {} expires after {} (`qp.timeout` {}), and answers came up to {} after \
         it was started: it expired {times} for nothing{again}{others}{}; {}",
        qp_name(h, q.qpn),
        Metric::time(e.waits).text(),
        q.attr.timeout.code(),
        Metric::time(e.needed()).text(),
        trouble_words(&troubles(&point.scenario, world, &[h, q.peer.0], e.worst)),
        advice(mode_of(world, h, q), longest_answer(world))
    );
    let name = NAME.to_owned();
    out.notes.push(Note { kind: NoteKind::Warning, name, text, count: expiries });
}
