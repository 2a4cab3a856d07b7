//! From a port whose packets are held back to the one that is the reason.
//!
//! A port *works* while it sends or is held back by its far end. What holds a port back behind a
//! switch is an output of that switch that works all the time that the port does: its link is the
//! limit, or it is held back in turn. Where no output behind the switch does, nothing is full
//! there, and what is missing is room at the far end itself: its credit is too little or late.
//!
//! Sums over a run cannot tell the two apart where a flow works for a part of it. Lanes of
//! InfiniBand links have more: the part of their wait in which the far end had nothing of them
//! ([`Starvation::late`]).

use std::collections::{BTreeMap, BTreeSet};

use doorbell_core::units::{Span, Time};
use doorbell_sim::fabric::{Starvation, SwitchNode};
use doorbell_sim::nic::{Nic, NicQp};
use doorbell_sim::wire::{HostId, NodeId, PortId};
use doorbell_sim::world::{World, port_name};

/// An output port of a host or switch.
pub(super) type Port = (NodeId, PortId);

/// Links that a reason is followed over.
const MAX_STEPS: usize = 32;

/// Share of a port's work, in percent, from which that of a port behind it explains it. Both see
/// the same packets a way apart, so they are equal but for the beginning and the end.
const EXPLAINS_PERCENT: u64 = 95;

/// A port before which packets waited for less than one of so many parts of the most that they
/// waited before another has no queue worth the name.
const QUEUE_SHARE: u64 = 10;

/// A port that is held back for less than one of so many parts of its work is followed no further.
const HELD_SHARE: u64 = 10;

/// Of a lane's wait the part in which the far end had nothing of it, in percent of the run, from
/// which it is worth to say so, whatever else held it back: so much more credit is worth at most.
const LATE_PERCENT: u64 = 10;

/// What holds a port back.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Reason {
    /// The link behind this port: it works all the time, and mostly sends.
    Link(Port),
    /// The far end of this port has too little room, or says too late that it has.
    Room(Port),
}

/// The output ports that the packets of queue pairs take, one after the other, by traffic class.
pub(super) struct Ways {
    next: BTreeMap<(Port, u8), BTreeSet<Port>>,
}

/// The traffic class, or virtual lane, of a queue pair of `host`.
pub(super) fn class_of(world: &World, host: usize, q: &NicQp) -> u8 {
    world.fabric().hosts()[host].class_of(q.attr.path.sl.code())
}

/// The output ports on the way of what a queue pair of `host` sends, of datagrams of the last one;
/// it ends where a switch chooses by load.
pub(super) fn way_of(world: &World, host: usize, q: &NicQp) -> Vec<Port> {
    let fabric = world.fabric();
    let from = (HostId(host as u32), Nic::port_of(q.qpn));
    let switches = fabric.hosts().len();
    let connection = (q.peer, q.peer_port, q.udp_source_port);
    let (peer, peer_port, source) = q.stats.last_datagram.unwrap_or(connection);
    let turns = fabric.turns(from, (peer, peer_port), source);
    let turns = turns.iter().map(|t| (NodeId((switches + t.switch as usize) as u32), t.port));
    std::iter::once((NodeId(host as u32), from.1)).chain(turns).collect()
}

impl Ways {
    /// Those of all queue pairs that are connected.
    pub fn of(world: &World) -> Self {
        let mut next: BTreeMap<(Port, u8), BTreeSet<Port>> = BTreeMap::new();
        for (h, host) in world.hosts().iter().enumerate() {
            for (_, q) in host.qps().filter(|(_, q)| q.stats.rx_payload > 0 || q.sq.prod() > 0) {
                let class = class_of(world, h, q);
                for pair in way_of(world, h, q).windows(2) {
                    next.entry((pair[0], class)).or_default().insert(pair[1]);
                }
            }
        }
        Self { next }
    }

    /// The outputs behind a port that leads to a switch; where it chooses by load, all of it.
    fn behind(&self, switch: &SwitchNode, port: Port, class: u8) -> Vec<Port> {
        match self.next.get(&(port, class)) {
            Some(next) => next.iter().copied().collect(),
            None => (0..switch.ports() as u16).map(|p| (switch.id(), PortId(p))).collect(),
        }
    }

    /// What holds a port back in a traffic class, or virtual lane, in which it stands.
    pub fn reason(&self, world: &World, port: Port, class: u8) -> Reason {
        let behind = self.busiest_behind(world, port, class);
        let next = match starved(world, port, Some(class)) {
            Some(s) if is_late(world, &s) => None,
            Some(_) => behind,
            // Whatever the port sent meanwhile: what works as long as it stood.
            None => behind.filter(|next| lasted(world, *next, stood(world, port, class))),
        };
        self.follow(world, (port, class), next)
    }

    /// From `port` over `next`, which holds it back, to the last of those that hold each other
    /// back.
    fn follow(&self, world: &World, (port, class): (Port, u8), mut next: Option<Port>) -> Reason {
        let (mut here, mut seen) = (port, BTreeSet::from([port]));
        while seen.len() < MAX_STEPS
            && let Some(at) = next
        {
            let (sends, held) = parts(world, at);
            let free = held * HELD_SHARE < sends + held;
            here = at;
            if free || !seen.insert(at) {
                break;
            }
            if starved(world, at, None).is_some_and(|s| is_late(world, &s)) {
                return Reason::Room(at);
            }
            next = self.explains(world, at, class);
        }
        match here != port && !is_held(world, here) {
            true => Reason::Link(here),
            false => Reason::Room(here),
        }
    }

    /// The output behind a port that works all the time that the port does, if there is one.
    fn explains(&self, world: &World, port: Port, class: u8) -> Option<Port> {
        self.busiest_behind(world, port, class)
            .filter(|next| lasted(world, *next, work(world, port)))
    }

    /// The output behind a port that works most; `None` where a host is behind it.
    fn busiest_behind(&self, world: &World, port: Port, class: u8) -> Option<Port> {
        let fabric = world.fabric();
        let (peer, _) = fabric.egress_of(port.0, port.1).peer();
        let switch = peer.index().checked_sub(fabric.hosts().len())?;
        let outputs = self.behind(&fabric.switches()[switch], port, class).into_iter();
        outputs.max_by_key(|p| (work(world, *p), *p))
    }
}

/// What a lane of a port, or all of them, suffered for lack of credit; `None` if it did not.
fn starved(world: &World, port: Port, lane: Option<u8>) -> Option<Starvation> {
    let (fabric, now) = (world.fabric(), world.now());
    let lanes = 0..fabric.egress_of(port.0, port.1).lanes();
    let lanes = lanes.filter(|l| lane.is_none_or(|only| only == *l));
    let sum = |a: Starvation, b: Starvation| Starvation {
        times: a.times + b.times,
        starved: a.starved + b.starved,
        late: a.late + b.late,
        least: a.least.min(b.least),
    };
    let all = lanes.filter_map(|l| fabric.starvation(now, port, l)).reduce(sum);
    all.filter(|s| s.starved > Span::ZERO)
}

/// Whether more credit would have been of use: for most of the time that a lane waited, or for a
/// good part of the run, nothing of it was behind the far end.
fn is_late(world: &World, s: &Starvation) -> bool {
    let (late, run) = (u128::from(s.late.as_ps()), u128::from(world.now().as_ps()));
    late * 2 > u128::from(s.starved.as_ps()) || late * 100 >= run * u128::from(LATE_PERCENT)
}

/// The NIC at a port of a host; none at a switch.
pub(super) fn nic_at(world: &World, (node, port): Port) -> Option<&Nic> {
    world.hosts().get(node.index())?.nics().nth(port.index())
}

/// Time for which a port sent, and for which it was held back by its far end.
fn parts(world: &World, (node, port): Port) -> (Span, Span) {
    let (egress, now) = (world.fabric().egress_of(node, port), world.now());
    (egress.busy(now), egress.counters(now).blocked)
}

/// Time for which packets of a class stood before a port because its far end held them back.
pub(super) fn stood(world: &World, (node, port): Port, class: u8) -> Span {
    let (fabric, now) = (world.fabric(), world.now());
    let egress = fabric.egress_of(node, port);
    if let Some(lane) = fabric.starvation(now, (node, port), class) {
        return lane.starved;
    }
    // Where there are several classes, the port may send of others meanwhile.
    match egress.knows_pauses() && egress.class_counters(class).is_some() {
        true => egress.pauses(now, class).paused,
        false => egress.counters(now).blocked,
    }
}

/// Time for which a port sent, whatever the class, or stood in this one.
pub(super) fn work_in(world: &World, port: Port, class: u8) -> Span {
    let (sends, _) = parts(world, port);
    (sends + stood(world, port, class)).min(world.now().since(Time::ZERO))
}

/// Time for which a port worked.
pub(super) fn work(world: &World, port: Port) -> Span {
    let (sends, held) = parts(world, port);
    sends + held
}

/// A part of a time in whole percent.
pub(super) fn percent(part: Span, of: Span) -> u64 {
    (u128::from(part.as_ps()) * 100 / u128::from(of.as_ps().max(1))) as u64
}

/// Whether a port worked for as long as `time`, but for the beginning and the end.
pub(super) fn lasted(world: &World, port: Port, time: Span) -> bool {
    u128::from(work(world, port).as_ps()) * 100
        >= u128::from(time.as_ps()) * u128::from(EXPLAINS_PERCENT)
}

/// The one of these ports that works most for a class. Of those that work alike, the last one
/// before which packets wait: a link behind the bottleneck is as busy, and has no queue.
pub(super) fn busiest(world: &World, ports: &[Port], class: u8) -> Option<Port> {
    let work = |p: Port| work_in(world, p, class);
    let most = ports.iter().map(|p| work(*p)).max()?.max(Span::from_ps(1));
    let mut alike = ports.iter().filter(|p| percent(work(**p), most) >= EXPLAINS_PERCENT);
    let waited =
        |(node, port): Port| world.fabric().egress_of(node, port).counters(world.now()).waited;
    let longest = alike.clone().map(|p| waited(*p)).max()?;
    let queued = |p: &&Port| waited(**p).as_ps() >= longest.as_ps() / QUEUE_SHARE;
    alike.rfind(queued).copied()
}

/// Whether a port stands in a class for longer than it sends.
pub(super) fn stands(world: &World, port: Port, class: u8) -> bool {
    let (sends, _) = parts(world, port);
    stood(world, port, class) > sends
}

/// Whether a port is held back for longer than it sends.
fn is_held(world: &World, port: Port) -> bool {
    let (sends, held) = parts(world, port);
    held > sends
}

/// A port and its far end, with the share of the run for which it sent.
pub(super) fn name(world: &World, (node, port): Port) -> String {
    let (fabric, now) = (world.fabric(), world.now());
    let egress = fabric.egress_of(node, port);
    let (peer, peer_port) = egress.peer();
    format!(
        "{} to {}, which sent for {} % of the run",
        port_name(fabric, node, port),
        port_name(fabric, peer, peer_port),
        percent(egress.busy(now), now.since(Time::ZERO))
    )
}
