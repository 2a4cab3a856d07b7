//! What became of the packets of a queue pair that did not arrive.

use doorbell_core::units::{Ratio, Time};
use doorbell_sim::fabric::DropCause;
use doorbell_sim::nic::{Dropped, Episode, Refused, Sender};
use doorbell_sim::world::{LossPlace, Lost, World};

use crate::format::{Fault, Scenario};

/// Packets that the network lost.
#[derive(Clone, Debug)]
pub(super) struct Loss {
    /// `link 0→1` and such.
    pub place: String,
    /// The fault that took them.
    pub fault: Option<LossFault>,
    pub cause: DropCause,
    pub packets: u64,
    pub first: Time,
    pub last: Time,
    /// There may have been more, before the first one.
    pub at_least: bool,
}

/// What is known of a fault that takes packets.
#[derive(Clone, Debug)]
pub(super) struct LossFault {
    pub id: String,
    /// When it ends, if it takes every packet and does.
    pub end: Option<Time>,
    /// The chance of each packet, if it takes some of them by a chance that the file names.
    pub chance: Option<Ratio>,
}

/// Where packets of one kind went.
#[derive(Clone, Debug, Default)]
pub(super) struct Fates {
    pub lost: Vec<Loss>,
    /// Dropped at the port of a host.
    pub dropped: Vec<(u32, Dropped)>,
}

impl Fates {
    /// Of the packets of an episode; without one of all.
    pub(super) fn of(
        world: &World,
        s: &Scenario,
        (from, request): (Sender, bool),
        episode: Option<Episode>,
    ) -> Self {
        let hosts = world.hosts().len();
        let name = |node: usize| match node.checked_sub(hosts) {
            None => format!("host {node}"),
            Some(switch) => format!("switch {switch}"),
        };
        let loss = |l: Lost| {
            let (place, fault) = match l.place {
                LossPlace::Switch { node, .. } => {
                    let place = format!("at {}", name(node.index()));
                    let reboot = (l.cause == DropCause::SwitchReboot)
                        .then(|| reboot_of(s, node.index() - hosts, l.first))
                        .flatten();
                    (place, reboot.map(loss_fault))
                }
                LossPlace::Link { into, fault } => {
                    let fault = fault.and_then(|f| s.fault.get(f as usize));
                    (format!("on the link into {}", name(into.index())), fault.map(loss_fault))
                }
            };
            let (cause, packets) = (l.cause, l.packets);
            let (first, last, at_least) = (l.first, l.last, l.at_least);
            Loss { place, fault, cause, packets, first, last, at_least }
        };
        let lost: Vec<Lost> = match episode {
            Some(e) => world.lost_within(from, |_| e).collect(),
            None => world.lost_of(from).copied().collect(),
        };
        let lost = lost.into_iter().filter(|l| l.request == request).map(loss).collect();
        let mut dropped = Vec::new();
        for (h, host) in (0..).zip(world.hosts()) {
            let of: Vec<Dropped> = match episode {
                Some(e) => host.nics().flat_map(|n| n.dropped_within(from, |_| e)).collect(),
                None => host.nics().flat_map(|n| n.dropped_of(from)).copied().collect(),
            };
            dropped.extend(of.into_iter().filter(|d| d.request == request).map(|d| (h, d)));
        }
        Self { lost, dropped }
    }

    /// Whether nothing was lost or refused.
    pub fn is_empty(&self) -> bool {
        self.lost.is_empty() && self.refused().next().is_none()
    }

    /// Packets that the network lost.
    pub fn packets_lost(&self) -> u64 {
        self.lost.iter().map(|l| l.packets).sum()
    }

    /// Packets dropped at ports, those aside that the transport has no use for.
    pub fn refused(&self) -> impl Iterator<Item = &(u32, Dropped)> {
        self.dropped.iter().filter(|(_, d)| !matches!(d.why, Refused::Transport(_)))
    }
}

/// The reboot of a switch that was going on then.
fn reboot_of(s: &Scenario, switch: usize, then: Time) -> Option<&Fault> {
    let its = |f: &&Fault| f.switch.is_some_and(|n| n.value() as usize == switch);
    let begun = |f: &&Fault| f.after.is_none_or(|t| Time::ZERO + t.0 <= then);
    s.fault.iter().filter(its).rfind(begun)
}

fn loss_fault(f: &Fault) -> LossFault {
    LossFault { id: f.id.clone(), end: end_of(f), chance: f.chance.map(|c| c.0) }
}

/// When a fault that takes every packet ends; one that takes some of them has no such end.
fn end_of(f: &Fault) -> Option<Time> {
    let some = f.chance.is_some() || f.burst.is_some() || f.budget.is_some();
    let counted = f.nth.is_some() || f.round.is_some();
    f.before.as_ref().filter(|_| !some && !counted).map(|b| Time::ZERO + b.0)
}
