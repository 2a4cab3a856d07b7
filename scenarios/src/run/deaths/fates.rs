//! What became of the packets of a queue pair that did not arrive.

use doorbell_core::units::{Ratio, Span, Time};
use doorbell_core::verbs::Psn;
use doorbell_sim::fabric::{DropCause, End, Hop, time_alone};
use doorbell_sim::nic::{Dropped, Episode, Refused, Sender};
use doorbell_sim::wire::NodeId;
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
    /// Transmissions that they are of.
    pub rounds: u64,
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

/// A queue pair and its peer.
pub(super) struct Pair<'a> {
    pub world: &'a World,
    pub scenario: &'a Scenario,
    pub me: Sender,
    pub them: Option<Sender>,
    pub ways: Ways,
    /// An ACK on the wire.
    pub ack_bytes: u64,
    /// Least time between two transmissions of one packet.
    pub apart: Span,
}

/// The links that the packets of a queue pair take to its peer, and those of the peer's back.
pub(super) struct Ways {
    pub there: Vec<Hop>,
    pub back: Vec<Hop>,
}

impl Ways {
    /// The least time until an answer of so many bytes to a packet would have come that got as far
    /// as this node: over links alone. Where switches choose by load, and the node is not known to
    /// be on the way, it is too little.
    fn rest(&self, request: bool, node: NodeId, bytes: u64) -> Span {
        let over = |hops: &[Hop]| time_alone(hops, bytes, bytes);
        let behind = |way: &[Hop]| {
            let at = way.iter().skip(1).position(|hop| hop.from.0 == node);
            at.map_or(Span::ZERO, |before| over(&way[before + 1..]))
        };
        if request { behind(&self.there) + over(&self.back) } else { behind(&self.back) }
    }
}

/// What became of the requests and the answers of a queue pair,
#[derive(Debug, Default)]
pub(super) struct Split {
    /// in time to have a part in its death,
    pub before: [Fates; 2],
    /// and too late.
    pub late: [Fates; 2],
}

impl Pair<'_> {
    /// Of the packets with PSNs from `first` to before `end` that this side waits for, or waited
    /// for when it died; without PSNs of all.
    pub fn split(&self, psns: Option<(Psn, Psn)>, since: Time, died: Option<Time>) -> Split {
        let Some((first, end)) = psns else {
            return Split { before: [true, false].map(|r| self.of(r, None)), ..Split::default() };
        };
        // To one that waits nothing comes too late.
        let died = died.unwrap_or(Time::MAX);
        let apart = self.apart;
        let episode = |since, until| Episode { since, until, first, end, apart };
        // An answer that came after the death shows that it takes too long: then what had no time
        // to be answered is no cause either, lost or not.
        let after = self.of(false, Some(&|_| episode(died, Time::MAX)));
        let slow = after.refused().next().is_some();
        let until = |rest: Span| match slow {
            true => since.max(Time::from_ps(died.as_ps().saturating_sub(rest.as_ps()))),
            false => died,
        };
        let before = |rest| episode(since, until(rest));
        let late = |rest| episode(until(rest), Time::MAX);
        Split {
            before: [true, false].map(|request| self.of(request, Some(&before))),
            late: [true, false].map(|request| self.of(request, Some(&late))),
        }
    }

    /// Of the requests, or of the answers, that are asked about by the least time until an answer
    /// would have come; or of all.
    fn of(&self, request: bool, asked: Option<&dyn Fn(Span) -> Episode>) -> Fates {
        let from = if request { Some(self.me) } else { self.them };
        from.map(|from| self.of_sender(from, request, asked)).unwrap_or_default()
    }

    fn of_sender(
        &self,
        from: Sender,
        request: bool,
        asked: Option<&dyn Fn(Span) -> Episode>,
    ) -> Fates {
        let (world, s) = (self.world, self.scenario);
        let lost: Vec<Lost> = match asked {
            Some(asked) => {
                let rest = |l: &Lost| self.ways.rest(request, l.place.node(), self.ack_bytes);
                world.lost_within(from, |l| asked(rest(l))).collect()
            }
            None => world.lost_of(from).copied().collect(),
        };
        let lost = lost.into_iter().filter(|l| l.request == request);
        let lost = lost.map(|l| loss(world, s, l)).collect();
        let mut dropped = Vec::new();
        for (h, host) in (0..).zip(world.hosts()) {
            let of: Vec<Dropped> = match asked {
                Some(asked) => {
                    let rest = self.ways.rest(request, NodeId(h), self.ack_bytes);
                    host.nics().flat_map(|n| n.dropped_within(from, |_| asked(rest))).collect()
                }
                None => host.nics().flat_map(|n| n.dropped_of(from)).copied().collect(),
            };
            dropped.extend(of.into_iter().filter(|d| d.request == request).map(|d| (h, d)));
        }
        Fates { lost, dropped }
    }
}

/// A loss with the name of its place and what is known of its fault.
fn loss(world: &World, s: &Scenario, l: Lost) -> Loss {
    let fabric = world.fabric();
    let (place, fault) = match l.place {
        LossPlace::Switch { node, .. } => {
            let end = fabric.end(node);
            let reboot =
                (l.cause == DropCause::SwitchReboot).then(|| reboot_of(s, end, l.first)).flatten();
            (format!("at {end}"), reboot.map(loss_fault))
        }
        LossPlace::Link { into, fault } => {
            let fault = fault.and_then(|f| s.fault.get(f as usize));
            (format!("on the link into {}", fabric.end(into)), fault.map(loss_fault))
        }
    };
    let (cause, packets, rounds) = (l.cause, l.packets, l.rounds);
    let (first, last, at_least) = (l.first, l.last, l.at_least);
    Loss { place, fault, cause, packets, rounds, first, last, at_least }
}

/// All that a queue pair sent and that did not arrive, in all of the run.
pub(super) fn fates_of(world: &World, s: &Scenario, from: Sender) -> Fates {
    let dropped = (0..).zip(world.hosts()).flat_map(|(h, host)| {
        host.nics().flat_map(move |n| n.dropped_of(from)).map(move |d| (h, *d))
    });
    let lost = world.lost_of(from).map(|l| loss(world, s, *l)).collect();
    Fates { lost, dropped: dropped.collect() }
}

impl Fates {
    /// Whether nothing was lost or refused.
    pub fn is_empty(&self) -> bool {
        self.lost.is_empty() && self.refused().next().is_none()
    }

    /// Packets that the network lost.
    pub fn packets_lost(&self) -> u64 {
        self.lost.iter().map(|l| l.packets).sum()
    }

    /// Transmissions of which packets were lost,
    pub fn rounds_lost(&self) -> u64 {
        self.lost.iter().map(|l| l.rounds).sum()
    }

    /// and of which packets were refused.
    pub fn rounds_refused(&self) -> u64 {
        self.refused().map(|(_, d)| d.rounds).sum()
    }

    /// What took packets of the most transmissions in the network,
    pub fn most_lost(&self) -> Option<&Loss> {
        self.lost.iter().max_by_key(|l| (l.rounds, l.packets))
    }

    /// and at the port of a host.
    pub fn most_refused(&self) -> Option<&(u32, Dropped)> {
        self.refused().max_by_key(|(_, d)| (d.rounds, d.packets))
    }

    /// Packets dropped at ports, those aside that the transport has no use for.
    pub fn refused(&self) -> impl Iterator<Item = &(u32, Dropped)> {
        self.dropped.iter().filter(|(_, d)| !matches!(d.why, Refused::Transport(_)))
    }
}

/// The reboot of a switch that was going on then.
fn reboot_of(s: &Scenario, switch: End, then: Time) -> Option<&Fault> {
    let its = |f: &&Fault| f.switch.is_some_and(|n| End::Switch(n.value() as u32) == switch);
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

#[cfg(test)]
mod tests {
    use doorbell_core::units::BitRate;
    use doorbell_sim::fabric::{
        Fabric, FabricConfig, HashSeed, Link, LinkConfig, Routing, SwitchConfig,
    };
    use doorbell_sim::wire::{HostId, PortId};

    use super::*;

    /// Requests go by one of two switches and answers by the other: what a packet has before it is
    /// behind the node that it got to, on the way of its own direction.
    #[test]
    fn the_rest_of_a_way_is_behind_the_node_on_it() {
        let cable = |a, b| LinkConfig { a, b, link: Link::new(BitRate::gbps(100), LINK) };
        let (h, w) = (End::Host, End::Switch);
        let links = [(h(0), w(0)), (h(1), w(3)), (w(0), w(1)), (w(0), w(2)), (w(1), w(3))];
        let links = links.into_iter().chain([(w(2), w(3))]).map(|(a, b)| cable(a, b)).collect();
        let switch = SwitchConfig { transit: Span::ZERO, ..SwitchConfig::default() };
        let routing = Routing::Ecmp(HashSeed::PerSwitch);
        let config = FabricConfig { routing, ..FabricConfig::of(2, vec![switch; 4], links) };
        let fabric = Fabric::new(&config, 1).unwrap();
        let node = |switch: u32| NodeId(2 + switch);
        let by = |from, to, middle: u32| {
            let ways = (0xC000..0xC040).filter_map(|port| {
                fabric.way((HostId(from), PortId(0)), (HostId(to), PortId(0)), port)
            });
            ways.into_iter().find(|way| way[2].from.0 == node(middle)).expect("both are taken")
        };
        let ways = Ways { there: by(0, 1, 1), back: by(1, 0, 2) };
        let rest = |request, node| ways.rest(request, node, 1).as_ps() / LINK.as_ps();
        // Four links there, four back; a byte adds less than one.
        assert_eq!([0, 1, 3].map(|s| rest(true, node(s))), [3 + 4, 2 + 4, 1 + 4]);
        assert_eq!([3, 2, 0].map(|s| rest(false, node(s))), [3, 2, 1]);
        assert_eq!((rest(true, NodeId(1)), rest(false, NodeId(0))), (4, 0), "it has arrived");
        assert_eq!((rest(true, node(2)), rest(false, node(1))), (4, 0), "on the other's way");
    }

    const LINK: Span = Span::from_us(1);
}
