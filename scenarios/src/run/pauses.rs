//! Ports that stood paused by a host: its NIC did not take what it got.
//!
//! What pauses of switches come to is told by those who waited for them (`victim-flows`,
//! `head-of-line`), with the link that was full. Behind a host there is no link to blame.

use doorbell_core::units::{Span, Time};
use doorbell_sim::fabric::{End, MAX_CLASSES};
use doorbell_sim::world::{World, port_name};

use super::bottleneck::{Port, percent, stood};
use super::faults::{Outage, outage};
use super::{Metric, Note, NoteKind, Outcome, slow_nic};
use crate::format::{FaultKind, Scenario};

/// Name of the note.
const NAME: &str = "paused-by-host";

/// Share of the run, in percent, for which a port must have stood to be worth a note.
const STOOD_PERCENT: u64 = 10;

/// Share of the measured time, in percent, from which the pauses are what limits: with less, a
/// sender was free for most of it.
const LIMITS_PERCENT: u64 = 50;

/// Names the port of a switch that stood longest because a host paused it. `duration`: the measured
/// time.
pub(super) fn collect(s: &Scenario, world: &World, duration: Span, out: &mut Outcome) {
    out.oracles.push(NAME.to_owned());
    let fabric = world.fabric();
    let by_host = |(node, port): &Port| {
        let egress = fabric.egress_of(*node, *port);
        egress.knows_pauses() && matches!(fabric.end(egress.peer().0), End::Host(_))
    };
    let waited = |at: Port| fabric.egress_of(at.0, at.1).counters(world.now()).max_queue_bytes > 0;
    let longest = |at: Port| {
        let classes = 0..MAX_CLASSES as u8;
        classes.map(|class| stood(world, at, class)).max().unwrap_or(Span::ZERO)
    };
    let run = world.now().since(Time::ZERO);
    let all = fabric.ports().filter(by_host).filter(|at| waited(*at));
    let mut all: Vec<_> = all.map(|at| (longest(at), at)).collect();
    all.retain(|(stood, _)| percent(*stood, run) >= STOOD_PERCENT);
    let Some((worst, at)) = all.iter().copied().max_by_key(|(t, at)| (*t, std::cmp::Reverse(*at)))
    else {
        return;
    };
    let (peer, peer_port) = fabric.egress_of(at.0, at.1).peer();
    let by = port_name(fabric, peer, peer_port);
    let storm = |o: &Outage| o.kind == FaultKind::PauseStorm && o.lasted * 2 >= worst;
    let why = match outage(s, world, at).filter(storm) {
        Some(f) => format!("fault `{}` ({}) pauses it, though it has room", f.id, f.kind.word()),
        None => {
            let cure = slow_nic::cure(s, world, (peer, peer_port), out);
            format!("its NIC had no room for what it got: {cure}")
        }
    };
    let more = match all.len() - 1 {
        0 => String::new(),
        1 => ", and 1 other port by its host".to_owned(),
        n => format!(", and {n} other ports by their hosts"),
    };
    let text = format!(
        "{} stood paused by {by} for {}, {} % of the run{more}, since {why}. Senders can \
         only wait",
        port_name(fabric, at.0, at.1),
        Metric::time(worst).text(),
        percent(worst, run),
    );
    let (name, count) = (NAME.to_owned(), all.len() as u64);
    out.notes.push(Note { kind: NoteKind::Info, name, text, count });
    if out.limiting.is_none() && percent(worst, duration) >= LIMITS_PERCENT {
        out.limiting = Some(format!("pauses of {by}"));
    }
}
