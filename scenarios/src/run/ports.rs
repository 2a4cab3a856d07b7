//! Ports of the network: what each sent, held, waited for and dropped.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use doorbell_core::units::{Span, Time};
use doorbell_sim::fabric::{DropCause, Drops, Fabric, MAX_CLASSES, Tally};
use doorbell_sim::wire::{NodeId, PortId};
use doorbell_sim::world::{World, port_name};
use serde::Serialize;

use super::{Metric, Outcome};

/// Ports that are kept, those with drops and waits before those that were busy.
pub const MAX_NETWORK_PORTS: usize = 1024;

/// An output port of a host or a switch, with the link behind it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct NetworkPort {
    /// `switch0.port3`, `host1.port0`; for drops that belong to no port, `switch0`.
    pub name: String,
    /// The port at the other end of its link; empty for a whole switch.
    pub to: String,
    /// Rate of the link, bits per second.
    pub rate_bps: u64,
    /// Packets sent.
    pub packets: u64,
    /// Their bytes on the wire.
    pub bytes: u64,
    /// Time spent sending.
    pub busy_ps: u64,
    /// Time of the run.
    pub of_ps: u64,
    /// Most bytes in its queue.
    pub queue_max: u64,
    /// Time for which a packet waited, the link was free, and the far end had no room or had paused
    /// it; absent where the far end never pushes back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub starved_ps: Option<u64>,
    /// Packets that got an ECN mark here.
    pub marks: u64,
    /// Pause frames sent because an input was full.
    pub pause_frames: u64,
    /// Time for which some class was paused here; of each class its own is in `classes`.
    pub paused_ps: u64,
    /// Packets dropped, by cause, for want of room at this output.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub drops: BTreeMap<&'static str, u64>,
    /// Packets of the opposite direction that were dropped, by cause: on the link that ends here,
    /// and for want of room at the input of this port.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub drops_coming_in: BTreeMap<&'static str, u64>,
    /// By traffic class, where there are several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<PortClass>,
}

/// What a port has done in one of several traffic classes.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct PortClass {
    /// Packets sent.
    pub packets: u64,
    /// Their bytes on the wire.
    pub bytes: u64,
    /// Most bytes that waited, without the packet being sent.
    pub queue_max: u64,
    /// Packets that got an ECN mark.
    pub marks: u64,
    /// Pause frames sent because the input queue of the class was full.
    pub pause_frames: u64,
    /// Time for which the class was paused here.
    pub paused_ps: u64,
    /// Packets dropped for want of room, at the output or at the input of this port, or by a
    /// reboot.
    pub drops: u64,
}

impl PortClass {
    const FIGURES: [&'static str; 7] =
        ["packets", "bytes", "queue_max", "marks", "pause_frames", "paused", "drops"];

    fn figure(&self, name: &str) -> Option<Metric> {
        Some(match name {
            "packets" => Metric::count(self.packets),
            "bytes" => Metric::bytes(self.bytes),
            "queue_max" => Metric::bytes(self.queue_max),
            "marks" => Metric::count(self.marks),
            "pause_frames" => Metric::count(self.pause_frames),
            "paused" => Metric::time(Span::from_ps(self.paused_ps)),
            "drops" => Metric::count(self.drops),
            _ => return None,
        })
    }

    /// What a port has done in `class`; `None` where there is one class, or no such class.
    fn of(world: &World, node: NodeId, port: PortId, class: u8) -> Option<Self> {
        let (fabric, now) = (world.fabric(), world.now());
        let egress = fabric.egress_of(node, port);
        let (own, pauses) = (egress.class_counters(class)?, egress.pauses(now, class));
        Some(Self {
            packets: own.sent.packets,
            bytes: own.sent.bytes,
            queue_max: own.max_waiting_bytes,
            marks: egress.marked(class),
            pause_frames: pauses.xoff_sent,
            paused_ps: pauses.paused.as_ps(),
            drops: own.dropped.packets + overflowed(fabric, node, port, class).packets,
        })
    }

    /// Both ports together; of the queues the longer one.
    fn plus(self, other: Self) -> Self {
        Self {
            packets: self.packets + other.packets,
            bytes: self.bytes + other.bytes,
            queue_max: self.queue_max.max(other.queue_max),
            marks: self.marks + other.marks,
            pause_frames: self.pause_frames + other.pause_frames,
            paused_ps: self.paused_ps + other.paused_ps,
            drops: self.drops + other.drops,
        }
    }
}

/// Packets of a class that the input of a port of a switch had no room for.
fn overflowed(fabric: &Fabric, node: NodeId, port: PortId, class: u8) -> Tally {
    let switch = node.index().checked_sub(fabric.hosts().len());
    switch.map_or(Tally::default(), |s| fabric.switches()[s].overflowed(port, class))
}

/// The traffic classes of the network: `classN.FIGURE` over all its ports, of queues the longest.
/// Where there is one class, its figures are those of the network.
fn class_metrics(world: &World, out: &mut Outcome) {
    for class in 0..MAX_CLASSES as u8 {
        let ports = world.fabric().ports();
        let each = ports.filter_map(|(node, port)| PortClass::of(world, node, port, class));
        let Some(sum) = each.reduce(PortClass::plus) else { return };
        for figure in PortClass::FIGURES {
            let metric = sum.figure(figure).expect("a figure of the list");
            out.metrics.insert(format!("class{class}.{figure}"), metric);
        }
    }
}

impl NetworkPort {
    const FIGURES: [&'static str; 9] = [
        "bytes",
        "packets",
        "busy",
        "queue_max",
        "starved",
        "marks",
        "pause_frames",
        "paused",
        "drops",
    ];

    /// All drops, of both directions.
    pub fn dropped(&self) -> u64 {
        self.drops.values().chain(self.drops_coming_in.values()).sum()
    }

    fn dropped_for(&self, cause: &str) -> u64 {
        [&self.drops, &self.drops_coming_in].into_iter().filter_map(|of| of.get(cause)).sum()
    }

    /// Share of the run for which it was sending.
    pub fn busy(&self) -> Metric {
        Metric::ratio(self.busy_ps, self.of_ps)
    }

    fn figure(&self, name: &str) -> Option<Metric> {
        let time = |ps| Metric::time(Span::from_ps(ps));
        if let Some((class, figure)) = name.strip_prefix("class").and_then(|n| n.split_once('.')) {
            return self.classes.get(class.parse::<usize>().ok()?)?.figure(figure);
        }
        if let Some(cause) = name.strip_prefix("drops.") {
            let known = DropCause::ALL.iter().any(|c| c.name() == cause);
            return known.then(|| Metric::count(self.dropped_for(cause)));
        }
        Some(match name {
            "bytes" => Metric::bytes(self.bytes),
            "packets" => Metric::count(self.packets),
            "busy" => self.busy(),
            "queue_max" => Metric::bytes(self.queue_max),
            "starved" => time(self.starved_ps.unwrap_or(0)),
            "marks" => Metric::count(self.marks),
            "pause_frames" => Metric::count(self.pause_frames),
            "paused" => time(self.paused_ps),
            "drops" => Metric::count(self.dropped()),
            _ => return None,
        })
    }
}

/// `NAME.FIGURE`, such as `switch0.port3.queue_max`.
pub(super) fn find(ports: &[NetworkPort], name: &str) -> Option<Metric> {
    let fits = |p: &&NetworkPort| name.strip_prefix(&p.name).is_some_and(|r| r.starts_with('.'));
    let port = ports.iter().filter(fits).max_by_key(|p| p.name.len())?;
    port.figure(&name[port.name.len() + 1..])
}

/// Names of figures for "did you mean".
pub(super) fn names(ports: &[NetworkPort]) -> impl Iterator<Item = String> {
    let of_class = |p: &NetworkPort, class: usize| {
        let name = p.name.clone();
        PortClass::FIGURES.map(move |f| format!("port.{name}.class{class}.{f}"))
    };
    let whole = |p: &NetworkPort| {
        let name = p.name.clone();
        NetworkPort::FIGURES.map(move |f| format!("port.{name}.{f}"))
    };
    ports.iter().flat_map(move |p| {
        whole(p).into_iter().chain((0..p.classes.len()).flat_map(move |c| of_class(p, c)))
    })
}

/// Fills in the ports of a run.
pub(super) fn collect(world: &World, out: &mut Outcome) {
    let fabric = world.fabric();
    let mut all: Vec<NetworkPort> =
        fabric.ports().map(|(node, port)| network_port(world, node, port)).collect();
    let hosts = fabric.hosts().iter().enumerate().map(|(i, h)| (format!("host{i}"), h.refused()));
    let switches = fabric.switches().iter().enumerate();
    let switches = switches.map(|(i, s)| (format!("switch{i}"), s.refused()));
    for (name, refused) in hosts.chain(switches) {
        let mut drops = by_cause(refused);
        // Those are at the input port.
        drops.remove(DropCause::IngressOverflow.name());
        if !drops.is_empty() {
            all.push(NetworkPort { name, drops, ..NetworkPort::default() });
        }
    }
    all.sort_by_key(|p| Reverse((p.dropped(), p.starved_ps, p.busy_ps)));
    all.truncate(MAX_NETWORK_PORTS);
    out.network_ports = all;
    class_metrics(world, out);
}

fn network_port(world: &World, node: NodeId, port: PortId) -> NetworkPort {
    let (fabric, now) = (world.fabric(), world.now());
    let egress = fabric.egress_of(node, port);
    let counters = egress.counters(now);
    let (peer, peer_port) = egress.peer();
    let every = 0..MAX_CLASSES as u8;
    let pauses: Vec<_> = every.clone().map(|c| egress.pauses(now, c)).collect();
    let overflow: u64 = every.clone().map(|c| overflowed(fabric, node, port, c).packets).sum();
    let mut drops_coming_in = by_cause(fabric.ingress_of(node, port).lost());
    if overflow > 0 {
        drops_coming_in.insert(DropCause::IngressOverflow.name(), overflow);
    }
    NetworkPort {
        name: port_name(fabric, node, port),
        to: port_name(fabric, peer, peer_port),
        rate_bps: egress.rate().as_bps(),
        packets: counters.sent.packets,
        bytes: counters.sent.bytes,
        busy_ps: egress.busy(now).as_ps(),
        of_ps: now.since(Time::ZERO).as_ps(),
        queue_max: counters.max_queue_bytes,
        starved_ps: egress.pushes_back().then(|| counters.blocked.as_ps()),
        marks: counters.marked,
        pause_frames: pauses.iter().map(|p| p.xoff_sent).sum(),
        paused_ps: egress.paused(now).as_ps(),
        drops: by_cause(&counters.dropped),
        drops_coming_in,
        classes: every.map_while(|class| PortClass::of(world, node, port, class)).collect(),
    }
}

fn by_cause(drops: &Drops) -> BTreeMap<&'static str, u64> {
    let causes = DropCause::ALL.into_iter().map(|c| (c.name(), drops.of(c).packets));
    causes.filter(|(_, n)| *n > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_name_is_the_port_that_is_meant() {
        let port = |name: &str, bytes, drops: &[(&'static str, u64)]| NetworkPort {
            name: name.into(),
            bytes,
            drops: drops.iter().copied().collect(),
            ..NetworkPort::default()
        };
        let all = [
            port("switch0", 0, &[("no_route", 2)]),
            NetworkPort {
                drops_coming_in: [("link_down", 1), ("tail_drop", 2)].into(),
                ..port("switch0.port1", 7, &[("tail_drop", 1)])
            },
            port("switch0.port11", 8, &[]),
        ];
        let found = |name: &str| find(&all, name).map(|m| m.number());
        assert_eq!(found("switch0.port1.bytes"), Some(7.0));
        assert_eq!(found("switch0.port11.bytes"), Some(8.0));
        assert_eq!(found("switch0.port1.drops"), Some(4.0));
        assert_eq!(found("switch0.port1.drops.tail_drop"), Some(3.0));
        assert_eq!(found("switch0.port1.drops.oversize"), Some(0.0), "known, and none");
        assert_eq!(found("switch0.drops.no_route"), Some(2.0));
        assert_eq!(found("switch0.port1.drops.tail"), None, "a slip is not zero");
        assert_eq!((found("switch0.port2.bytes"), found("switch0.port1")), (None, None));
        for name in names(&all) {
            assert!(find(&all, name.strip_prefix("port.").unwrap()).is_some(), "{name}");
        }
    }
}
