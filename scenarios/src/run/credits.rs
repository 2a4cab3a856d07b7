//! What ports suffered for lack of link credit: the alarm of an InfiniBand network.

use doorbell_core::units::Span;
use doorbell_sim::fabric::{EgressPort, Starvation};
use doorbell_sim::wire::PortId;
use doorbell_sim::world::World;

use super::{Metric, Note, NoteKind, Outcome};
use crate::quantity::Unit;

/// Share of the run, in percent, from which a starving lane is named.
const ALARM_PERCENT: u64 = 10;

/// Lanes that are named, the worst first.
const NAMED: usize = 8;

/// A lane of an output port.
struct Lane {
    port: String,
    lane: u8,
    suffered: Starvation,
}

fn of_port(world: &World, port: &str, egress: &EgressPort, out: &mut Vec<Lane>) {
    for lane in 0..egress.lanes() {
        if let Some(suffered) = egress.starvation(world.now(), lane) {
            out.push(Lane { port: port.to_owned(), lane, suffered });
        }
    }
}

/// Metrics of credit starvation; networks without credits have none.
pub(super) fn starvation(world: &World, out: &mut Outcome) {
    let mut lanes = Vec::new();
    for (h, host) in world.fabric().hosts().iter().enumerate() {
        for p in 0..host.ports() as u16 {
            of_port(world, &format!("host{h}.port {p}"), host.egress(PortId(p)), &mut lanes);
        }
    }
    for (s, switch) in world.fabric().switches().iter().enumerate() {
        for p in 0..switch.ports() as u16 {
            of_port(world, &format!("switch{s}.port {p}"), switch.egress(PortId(p)), &mut lanes);
        }
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
    let run = world.now().as_ps().max(1);
    for l in lanes.into_iter().take(NAMED) {
        let starved = l.suffered.starved;
        let percent = (u128::from(starved.as_ps()) * 100 / u128::from(run)) as u64;
        if percent < ALARM_PERCENT {
            break;
        }
        let text = format!(
            "{}, VL {}: packets waited {} for link credit, {percent} % of the run. Raise \
             `topology.credits.blocks`, lower `return_delay`, or look at what holds the far end",
            l.port,
            l.lane,
            starved.print()
        );
        let (name, count) = ("credit-starvation".to_owned(), l.suffered.times);
        out.notes.push(Note { kind: NoteKind::Warning, name, text, count });
    }
}
