//! What ports suffered for lack of link credit: the alarm of an InfiniBand network.

use doorbell_core::units::Span;
use doorbell_sim::fabric::Starvation;
use doorbell_sim::wire::{NodeId, PortId};
use doorbell_sim::world::{World, port_name};

use super::{Metric, Note, NoteKind, Outcome};
use crate::quantity::Unit;

/// Share of the run, in percent, from which a starving lane is named.
const ALARM_PERCENT: u64 = 10;

/// Lanes that are named, the worst first.
const NAMED: usize = 8;

/// A lane of an output port.
struct Lane {
    at: (NodeId, PortId),
    lane: u8,
    suffered: Starvation,
}

/// Metrics of credit starvation; networks without credits have none.
pub(super) fn starvation(world: &World, out: &mut Outcome) {
    let (fabric, now) = (world.fabric(), world.now());
    let mut lanes = Vec::new();
    for (node, port) in fabric.ports() {
        let egress = fabric.egress_of(node, port);
        let suffered = (0..egress.lanes()).filter_map(|l| Some((l, egress.starvation(now, l)?)));
        lanes.extend(suffered.map(|(lane, suffered)| Lane { at: (node, port), lane, suffered }));
    }
    let Some(least) = lanes.iter().map(|l| l.suffered.least).min() else { return };
    let all = lanes.iter().fold(Span::ZERO, |sum, l| sum + l.suffered.starved);
    let waits = lanes.iter().map(|l| l.suffered.times).sum();
    lanes.sort_by_key(|l| std::cmp::Reverse(l.suffered.starved));
    let worst = lanes[0].suffered.starved;
    let mut put = |name: &str, m| out.metrics.insert(name.to_owned(), m);
    put("credits_least", Metric::count(least.into()));
    put("credit_waits", Metric::count(waits));
    put("credit_starved", Metric::time(all));
    put("credit_starved_worst", Metric::time(worst));
    let run = now.as_ps().max(1);
    for l in lanes.into_iter().take(NAMED) {
        let starved = l.suffered.starved;
        let percent = (u128::from(starved.as_ps()) * 100 / u128::from(run)) as u64;
        if percent < ALARM_PERCENT {
            break;
        }
        let text = format!(
            "{}, VL {}: packets waited {} for link credit, {percent} % of the run. Raise \
             `topology.credits.blocks`, lower `return_delay`, or look at what holds the far end",
            port_name(fabric, l.at.0, l.at.1),
            l.lane,
            starved.print()
        );
        let (name, count) = ("credit-starvation".to_owned(), l.suffered.times);
        out.notes.push(Note { kind: NoteKind::Warning, name, text, count });
    }
}
