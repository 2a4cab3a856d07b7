//! From a configuration to nodes: checks first, then wiring.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use doorbell_core::units::{BitRate, Span, Time};

use super::buffer::{Buffer, BufferSizes, PauseAt, Sharing};
use super::choice::Choice;
use super::classes::{ClassConfig, Classes, MAX_CLASSES};
use super::config::{
    Buffering, ConfigError, EcnException, End, FabricConfig, Forwarding, Noise, ReceiveBuffer,
    SwitchConfig,
};
use super::credits::BLOCK_BYTES;
use super::ecn::{EcnConfig, Marking};
use super::egress::{EgressPort, Wiring};
use super::event::{Drops, Tally};
use super::host::{HostNode, HostPort};
use super::ingress::Ingress;
use super::lanes::{CreditConfig, Receivers, Senders};
use super::line::Serve;
use super::link::Link;
use super::mmu::{Mmu, Pausing};
use super::noise::IngressNoise;
use super::pfc::{Headroom, HeadroomOf, PortPauses, SharedConfig, headroom, standard_reaction};
use super::queues::Queues;
use super::routes;
use super::schedule::{Schedule, Service};
use super::switch::{SwitchNode, SwitchPort};
use crate::engine::SimRng;
use crate::wire::{HostId, NodeId, PortId};

/// What is at the other end of a port.
#[derive(Copy, Clone, Debug)]
pub(super) struct Plug {
    pub peer: End,
    pub peer_port: PortId,
    pub link: Link,
}

/// The ports of every node.
pub(super) struct Graph {
    pub hosts: Vec<Vec<Plug>>,
    pub switches: Vec<Vec<Plug>>,
}

impl Graph {
    pub fn of(c: &FabricConfig) -> Result<Self, ConfigError> {
        let mut g = Self {
            hosts: vec![Vec::new(); c.hosts.len()],
            switches: vec![Vec::new(); c.switches.len()],
        };
        for (link, l) in c.links.iter().enumerate() {
            for end in [l.a, l.b] {
                if g.ports(end).is_none() {
                    return Err(ConfigError::UnknownNode { link, end });
                }
            }
            if l.a == l.b {
                return Err(ConfigError::SelfLink { link });
            }
            if l.link.propagation == Span::ZERO {
                return Err(ConfigError::ZeroDelay { link });
            }
            let (a_port, b_port) = (g.next_port(l.a)?, g.next_port(l.b)?);
            g.plug(l.a, Plug { peer: l.b, peer_port: b_port, link: l.link });
            g.plug(l.b, Plug { peer: l.a, peer_port: a_port, link: l.link });
        }
        Ok(g)
    }

    fn ports(&self, end: End) -> Option<&Vec<Plug>> {
        match end {
            End::Host(i) => self.hosts.get(i as usize),
            End::Switch(i) => self.switches.get(i as usize),
        }
    }

    fn plug(&mut self, end: End, plug: Plug) {
        match end {
            End::Host(i) => self.hosts[i as usize].push(plug),
            End::Switch(i) => self.switches[i as usize].push(plug),
        }
    }

    /// The number of the next port. The highest one is kept free: tables use it for "none".
    fn next_port(&self, node: End) -> Result<PortId, ConfigError> {
        match u16::try_from(self.ports(node).map_or(0, Vec::len)) {
            Ok(p) if p < u16::MAX => Ok(PortId(p)),
            _ => Err(ConfigError::TooManyPorts { node }),
        }
    }

    /// Host ports at a switch, with the switch's own port.
    pub fn attached(&self, switch: usize) -> Vec<(HostId, PortId, PortId)> {
        let ports = self.switches[switch].iter().enumerate();
        ports
            .filter_map(|(i, p)| match p.peer {
                End::Host(h) => Some((HostId(h), p.peer_port, PortId(i as u16))),
                End::Switch(_) => None,
            })
            .collect()
    }

    /// Switches next to a switch, with the port that leads there.
    pub fn switch_neighbours(&self, switch: usize) -> impl Iterator<Item = (usize, PortId)> {
        self.switches[switch].iter().enumerate().filter_map(|(i, p)| match p.peer {
            End::Host(_) => None,
            End::Switch(s) => Some((s as usize, PortId(i as u16))),
        })
    }
}

/// Hosts and switches, checked and wired.
pub(super) fn build(
    c: &FabricConfig,
    seed: u64,
) -> Result<(Vec<HostNode>, Vec<SwitchNode>), ConfigError> {
    if u32::try_from(c.hosts.len() + c.switches.len()).is_err() {
        return Err(ConfigError::TooManyNodes);
    }
    let g = Graph::of(c)?;
    check_sizes(c)?;
    check_classes(c, &g)?;
    check_exceptions(c, &g)?;
    check_reachable(&g)?;
    check_shared(c, &g)?;
    check_shares(c, &g)?;
    let tables = routes::tables(c, &g)?;
    let b = Builder { c, g: &g, seed, credits: Arc::new(c.credits.clone()) };
    let hosts = (0..c.hosts.len()).map(|i| b.host(i)).collect();
    let switches = tables.into_iter().enumerate().map(|(i, t)| b.switch(i, t)).collect();
    Ok((hosts, switches))
}

fn check_sizes(c: &FabricConfig) -> Result<(), ConfigError> {
    if c.hosts.is_empty() {
        return Err(ConfigError::NoHosts);
    }
    let needed = c.max_packet_bytes;
    if needed == 0 {
        return Err(ConfigError::NoPacketSize);
    }
    let fits = |node, bytes| {
        if bytes < u64::from(needed) {
            return Err(ConfigError::BufferTooSmall { node, bytes, needed });
        }
        Ok(())
    };
    // Delimiters take no credit.
    let framing = u64::from(c.credits.framing_bytes);
    let takes = |node, blocks| fits(node, bytes_of(blocks) + framing);
    for (i, h) in c.hosts.iter().enumerate() {
        let node = End::Host(i as u32);
        if let Some(bytes) = h.tx_queue_bytes {
            fits(node, bytes)?;
        }
        match h.receive {
            ReceiveBuffer::Lossless { bytes, .. } => fits(node, bytes)?,
            ReceiveBuffer::Credits { blocks } => takes(node, blocks)?,
            ReceiveBuffer::Unlimited | ReceiveBuffer::Lossy => {}
        }
    }
    for (i, s) in c.switches.iter().enumerate() {
        let node = End::Switch(i as u32);
        match s.buffering {
            Buffering::TailDrop { port_bytes: bytes }
            | Buffering::Lossless { port_bytes: bytes }
            | Buffering::Shared(SharedConfig { total_bytes: bytes, .. }) => fits(node, bytes)?,
            Buffering::Credits { blocks } => takes(node, blocks)?,
        }
    }
    let changes = &c.credits.changes;
    match (1..changes.len()).find(|i| changes[*i].0 <= changes[i - 1].0) {
        Some(change) => Err(ConfigError::CreditChanges { change }),
        None => Ok(()),
    }
}

/// Bytes of a buffer of blocks; what is between two blocks is its last packet's.
const fn bytes_of(blocks: u32) -> u64 {
    blocks as u64 * BLOCK_BYTES as u64
}

/// Most bytes that may wait in a class for an output port of a switch.
fn largest_queue(c: &FabricConfig, plugs: &[Plug], switch: &SwitchConfig, class: usize) -> u64 {
    let ports = plugs.len() as u64;
    match switch.buffering {
        Buffering::TailDrop { port_bytes } => port_bytes,
        Buffering::Lossless { port_bytes } => port_bytes.saturating_mul(ports),
        Buffering::Shared(shared) => {
            let lossless = c.classes.each[class].lossless;
            sizes(c, plugs, switch, &shared).largest_queue(class, lossless)
        }
        Buffering::Credits { blocks } => bytes_of(blocks).saturating_mul(ports),
    }
}

/// Most that noise delays a packet at the input of a switch.
fn noise_bound(c: &FabricConfig, rate: BitRate) -> Span {
    let packet = rate.time_for(u64::from(c.max_packet_bytes));
    match c.noise {
        Noise::Off => Span::ZERO,
        Noise::OnePacket => packet,
        Noise::UpTo(bound) => bound,
        Noise::Packets(times) => packet.scaled(times),
    }
}

fn reaction(shared: &SharedConfig, rate: BitRate) -> Span {
    shared.reaction.unwrap_or_else(|| standard_reaction(rate))
}

/// What the headroom of a switch's input depends on.
pub(super) fn headroom_of(
    c: &FabricConfig,
    switch: &SwitchConfig,
    shared: &SharedConfig,
    link: &Link,
) -> HeadroomOf {
    let max_packet_bytes = c.largest_on(link);
    let stored = match switch.forwarding {
        Forwarding::CutThrough => Span::ZERO,
        Forwarding::StoreAndForward => link.rate.time_for(u64::from(max_packet_bytes)),
    };
    HeadroomOf {
        rate: link.rate,
        propagation: link.propagation,
        reaction: reaction(shared, link.rate),
        pipeline: switch.transit + noise_bound(c, link.rate) + stored,
        max_packet_bytes,
        classes: c.classes.each.iter().filter(|class| class.lossless).count() as u32,
    }
}

fn sizes(
    c: &FabricConfig,
    plugs: &[Plug],
    switch: &SwitchConfig,
    shared: &SharedConfig,
) -> BufferSizes {
    let SharedConfig { total_bytes, sharing, reserved_bytes, pause_at, .. } = *shared;
    let of = |plug: &Plug, class: &ClassConfig| match shared.headroom {
        _ if !class.lossless || !plug.link.pfc => 0,
        Headroom::Bytes(bytes) => bytes,
        Headroom::Formula => headroom(&headroom_of(c, switch, shared, &plug.link)),
    };
    let each = &c.classes.each;
    BufferSizes {
        total: total_bytes,
        reserved: reserved_bytes,
        headroom: plugs.iter().flat_map(|p| each.iter().map(move |k| of(p, k))).collect(),
        sharing,
        pause_at,
        classes: each.len(),
    }
}

fn check_shared(c: &FabricConfig, g: &Graph) -> Result<(), ConfigError> {
    for (i, (switch, plugs)) in c.switches.iter().zip(&g.switches).enumerate() {
        let Buffering::Shared(shared) = &switch.buffering else { continue };
        let node = End::Switch(i as u32);
        let nothing = match shared.sharing {
            Sharing::Dynamic { alpha } => alpha.num == 0,
            Sharing::Static => false,
        };
        if shared.quanta == 0 || nothing {
            return Err(ConfigError::ZeroPause { node });
        }
        let sizes = sizes(c, plugs, switch, shared);
        let total = sizes.total;
        let headroom = sizes.headroom.iter().fold(0u64, |sum, h| sum.saturating_add(*h));
        let reserved = sizes.reserved.saturating_mul(sizes.headroom.len() as u64);
        let taken = headroom.saturating_add(reserved);
        if taken >= total {
            return Err(ConfigError::NothingShared { node, total, taken });
        }
        if let PauseAt::Fixed { xoff, xon } = shared.pause_at {
            if xon > xoff {
                return Err(ConfigError::XonAboveXoff { node, xon, xoff });
            }
            let pool = total - taken;
            if xoff > pool {
                return Err(ConfigError::XoffAboveBuffer { node, xoff, pool });
            }
        }
    }
    Ok(())
}

/// Whether the largest packet fits in a queue that has the buffer for itself: of classes that drop
/// at their output, and of lossless ones that come by a link without pauses.
fn check_shares(c: &FabricConfig, g: &Graph) -> Result<(), ConfigError> {
    for (i, (switch, plugs)) in c.switches.iter().zip(&g.switches).enumerate() {
        let Buffering::Shared(shared) = &switch.buffering else { continue };
        let sizes = sizes(c, plugs, switch, shared);
        let deaf = plugs.iter().any(|plug| !plug.link.pfc);
        let needed = plugs.iter().map(|plug| c.largest_on(&plug.link)).max().unwrap_or(0);
        for (class, config) in (0..).zip(&c.classes.each) {
            let share = sizes.largest_queue(usize::from(class), false);
            if (deaf || !config.lossless) && share < u64::from(needed) {
                let node = End::Switch(i as u32);
                return Err(ConfigError::ShareTooSmall { node, class, share, needed });
            }
        }
    }
    Ok(())
}

fn check_classes(c: &FabricConfig, g: &Graph) -> Result<(), ConfigError> {
    let Classes { each, of_sl } = &c.classes;
    if !(1..=MAX_CLASSES).contains(&each.len()) {
        return Err(ConfigError::ClassCount { classes: each.len() });
    }
    for (sl, class) in (0..).zip(of_sl) {
        if usize::from(*class) >= each.len() {
            return Err(ConfigError::NoSuchClass { sl, class: *class });
        }
    }
    for (class, config) in (0..).zip(each) {
        if config.service == Service::Weighted(0) {
            return Err(ConfigError::NoWeight { class });
        }
        if let Some(ecn) = &config.ecn {
            check_curve(c, g, class, ecn)?;
        }
    }
    Ok(())
}

/// The curve of a class, at each switch that has no other: queues differ with the ports.
fn check_curve(c: &FabricConfig, g: &Graph, class: u8, ecn: &EcnConfig) -> Result<(), ConfigError> {
    let wrong = |switch, error| ConfigError::Ecn { class, switch, error };
    ecn.check(u64::MAX).map_err(|error| wrong(None, error))?;
    for (s, (switch, plugs)) in (0..).zip(c.switches.iter().zip(&g.switches)) {
        let other = c.ecn_exceptions.iter().any(|e| e.switch == s && e.port.is_none());
        let room = largest_queue(c, plugs, switch, usize::from(class));
        if !other {
            ecn.check(room).map_err(|error| wrong(Some(s), error))?;
        }
    }
    Ok(())
}

fn check_exceptions(c: &FabricConfig, g: &Graph) -> Result<(), ConfigError> {
    for (exception, e) in c.ecn_exceptions.iter().enumerate() {
        let at = e.switch as usize;
        let (Some(switch), Some(plugs)) = (c.switches.get(at), g.switches.get(at)) else {
            return Err(ConfigError::BadException { exception });
        };
        if e.port.is_some_and(|port| port.index() >= plugs.len()) {
            return Err(ConfigError::BadException { exception });
        }
        let Some(ecn) = &e.ecn else { continue };
        let marked = (0..).zip(&c.classes.each).filter(|(_, class)| class.ecn.is_some());
        let room = marked.map(|(class, _)| largest_queue(c, plugs, switch, class)).min();
        ecn.check(room.unwrap_or(u64::MAX))
            .map_err(|error| ConfigError::EcnException { exception, error })?;
    }
    Ok(())
}

/// Every host reaches every other by some pair of their ports. Hosts do not forward, so two ports
/// of a host may belong to networks that are separate otherwise.
fn check_reachable(g: &Graph) -> Result<(), ConfigError> {
    let part = parts(g);
    let mut kinds: Vec<(BTreeSet<usize>, usize)> = Vec::new();
    for (host, plugs) in g.hosts.iter().enumerate() {
        if plugs.is_empty() {
            return Err(ConfigError::Unconnected { host: host as u32 });
        }
        let mine = plugs.iter().enumerate().map(|(p, plug)| match plug.peer {
            End::Switch(s) => part[s as usize],
            // A cable between hosts is a network of its own, named by its lower end.
            End::Host(h) => {
                let here = (host, p);
                let there = (h as usize, plug.peer_port.index());
                let (low, port) = here.min(there);
                g.switches.len() + (low << 16) + port
            }
        });
        let mine = mine.collect::<BTreeSet<_>>();
        if !kinds.iter().any(|(k, _)| *k == mine) {
            kinds.push((mine, host));
        }
    }
    for (i, (a, from)) in kinds.iter().enumerate() {
        for (b, to) in &kinds[i + 1..] {
            if a.is_disjoint(b) {
                return Err(ConfigError::Unreachable { from: *from as u32, to: *to as u32 });
            }
        }
    }
    Ok(())
}

/// For each switch, the lowest switch that it is connected with.
fn parts(g: &Graph) -> Vec<usize> {
    let mut part = vec![usize::MAX; g.switches.len()];
    for first in 0..part.len() {
        if part[first] != usize::MAX {
            continue;
        }
        part[first] = first;
        let mut todo = vec![first];
        while let Some(s) = todo.pop() {
            for (n, _) in g.switch_neighbours(s) {
                if part[n] == usize::MAX {
                    part[n] = first;
                    todo.push(n);
                }
            }
        }
    }
    part
}

struct Builder<'a> {
    c: &'a FabricConfig,
    g: &'a Graph,
    seed: u64,
    credits: Arc<CreditConfig>,
}

impl Builder<'_> {
    fn id(&self, end: End) -> NodeId {
        match end {
            End::Host(i) => NodeId(i),
            End::Switch(i) => NodeId(self.c.hosts.len() as u32 + i),
        }
    }

    fn host(&self, i: usize) -> HostNode {
        let end = End::Host(i as u32);
        let config = &self.c.hosts[i];
        let held = matches!(config.receive, ReceiveBuffer::Lossless { held: true, .. });
        let ports = self.g.hosts[i].iter().enumerate().map(|(p, plug)| HostPort {
            egress: self.egress(end, p, plug, config.tx_queue_bytes),
            ingress: self.ingress(end, p, plug),
            pausing: self.shared(plug.peer).map(|far| self.pausing(plug, &far)).unwrap_or_default(),
            reasons: [0; 2],
            held,
            kept: VecDeque::new(),
            lossy: config.receive == ReceiveBuffer::Lossy,
            ready_at_bytes: None,
        });
        HostNode {
            id: self.id(end),
            host: HostId(i as u32),
            max_packet_bytes: self.c.max_packet_bytes,
            ports: ports.collect(),
            nics: self.g.hosts[i].len().saturating_sub(usize::from(self.c.node_hosts > 0)),
            class_of_sl: self.c.classes.of_sl,
            class_count: self.c.classes.each.len(),
            sent: Tally::default(),
            delivered: Tally::default(),
            started: None,
            arrived: None,
            nic_keeps: false,
            dropped: Drops::default(),
        }
    }

    fn switch(&self, i: usize, routes: routes::RouteTable) -> SwitchNode {
        let end = End::Switch(i as u32);
        let config = &self.c.switches[i];
        let limit = match config.buffering {
            Buffering::TailDrop { port_bytes } => Some(port_bytes),
            Buffering::Lossless { .. } | Buffering::Shared(_) | Buffering::Credits { .. } => None,
        };
        let mmu = match config.buffering {
            Buffering::Shared(shared) => self.mmu(i, &shared).map(Box::new),
            _ => None,
        };
        let ports = self.g.switches[i].iter().enumerate().map(|(p, plug)| SwitchPort {
            egress: self.egress(end, p, plug, limit),
            ingress: self.ingress(end, p, plug),
        });
        SwitchNode {
            id: self.id(end),
            cut_through: config.forwarding == Forwarding::CutThrough,
            ports: ports.collect(),
            routes,
            mmu,
            choice: Choice::of(self.c.routing, self.seed, i),
            class_of_sl: self.c.classes.of_sl,
            marks: self.c.classes.each.iter().any(|c| c.ecn.is_some()),
            storing: Tally::default(),
            dropped: Drops::default(),
            down: 0,
        }
    }

    /// Room of the buffer behind each input port of a node.
    fn input_buffer(&self, end: End) -> Option<u64> {
        match end {
            End::Host(i) => match self.c.hosts[i as usize].receive {
                ReceiveBuffer::Unlimited | ReceiveBuffer::Lossy | ReceiveBuffer::Credits { .. } => {
                    None
                }
                ReceiveBuffer::Lossless { bytes, .. } => Some(bytes),
            },
            End::Switch(i) => match self.c.switches[i as usize].buffering {
                Buffering::TailDrop { .. } | Buffering::Shared(_) | Buffering::Credits { .. } => {
                    None
                }
                Buffering::Lossless { port_bytes } => Some(port_bytes),
            },
        }
    }

    /// Blocks of the buffer behind each input port and lane of a node with credits.
    fn input_blocks(&self, end: End) -> Option<u32> {
        match end {
            End::Host(i) => match self.c.hosts[i as usize].receive {
                ReceiveBuffer::Credits { blocks } => Some(blocks),
                _ => None,
            },
            End::Switch(i) => match self.c.switches[i as usize].buffering {
                Buffering::Credits { blocks } => Some(blocks),
                _ => None,
            },
        }
    }

    fn senders(&self, peer: End) -> Option<Box<Senders>> {
        let lanes = self.c.classes.each.len();
        let blocks = self.input_blocks(peer)?;
        Some(Box::new(Senders::new(self.credits.clone(), lanes, blocks)))
    }

    fn receivers(&self, end: End) -> Option<Box<Receivers>> {
        let lanes = self.c.classes.each.len();
        let blocks = self.input_blocks(end)?;
        Some(Box::new(Receivers::new(self.credits.clone(), lanes, blocks)))
    }

    fn egress(&self, end: End, port: usize, plug: &Plug, limit: Option<u64>) -> EgressPort {
        let (head, transit) = match plug.peer {
            End::Host(_) => (false, Span::ZERO),
            End::Switch(s) => {
                let s = &self.c.switches[s as usize];
                (s.forwarding == Forwarding::CutThrough, s.transit)
            }
        };
        let wiring = Wiring {
            node: self.id(end),
            port: PortId(port as u16),
            peer: self.id(plug.peer),
            peer_port: plug.peer_port,
            rate: plug.link.rate,
            propagation: plug.link.propagation,
            max_packet_bytes: plug.link.limit(),
            head,
            transit,
            noise: self.noise(plug),
            credits: self.input_buffer(plug.peer),
            lanes: self.senders(plug.peer),
            limit,
            marking: self.marking(end, port),
            pauses: self.pauses(end, plug),
        };
        EgressPort::new(wiring, self.queues(end))
    }

    fn queues(&self, end: End) -> Queues {
        let each = &self.c.classes.each;
        let serve = self.shared(end).map_or(Serve::Arrival, |shared| shared.serve);
        if each.len() == 1 {
            return Queues::one(serve);
        }
        let services: Vec<_> = each.iter().map(|c| c.service).collect();
        Queues::many(each.len(), Schedule::new(&services, self.c.max_packet_bytes), serve)
    }

    /// Whether a node takes part in priority flow control.
    fn shared(&self, end: End) -> Option<SharedConfig> {
        match end {
            End::Switch(s) => match self.c.switches[s as usize].buffering {
                Buffering::Shared(shared) => Some(shared),
                _ => None,
            },
            End::Host(_) => None,
        }
    }

    /// Pause frames of an output port: those that it obeys are the far end's, those that it sends
    /// its own. A host obeys those of its switch, and sends such as its switch does.
    fn pauses(&self, end: End, plug: &Plug) -> Option<Box<PortPauses>> {
        let (own, far) = (self.shared(end), self.shared(plug.peer));
        if !plug.link.pfc || own.is_none() && far.is_none() {
            return None;
        }
        let reaction = own.or(far).map_or(Span::ZERO, |own| reaction(&own, plug.link.rate));
        Some(Box::new(PortPauses { reaction, ..PortPauses::default() }))
    }

    /// Pauses of the sender at the other end of a link.
    fn pausing(&self, plug: &Plug, shared: &SharedConfig) -> Pausing {
        let able = |(class, c): (usize, &ClassConfig)| u8::from(c.lossless) << class;
        let able = self.c.classes.each.iter().enumerate().map(able).sum::<u8>();
        let SharedConfig { quanta, lapse, .. } = *shared;
        Pausing { able: if plug.link.pfc { able } else { 0 }, quanta, lapse, ..Pausing::default() }
    }

    fn mmu(&self, switch: usize, shared: &SharedConfig) -> Option<Mmu> {
        let plugs = &self.g.switches[switch];
        Some(Mmu {
            buffer: Buffer::new(sizes(self.c, plugs, &self.c.switches[switch], shared))?,
            inputs: plugs.iter().map(|plug| self.pausing(plug, shared)).collect(),
            pausing: 0,
            watchdog: shared.watchdog,
        })
    }

    /// Of a switch's output port, with a random stream of its own.
    fn marking(&self, end: End, port: usize) -> Option<Box<Marking>> {
        let End::Switch(s) = end else { return None };
        let own = |e: &&EcnException| e.is_of(s, PortId(port as u16));
        let curve = |class: &ClassConfig| match self.c.ecn_exceptions.iter().rev().find(own) {
            Some(e) => class.ecn.and(e.ecn),
            None => class.ecn,
        };
        let curves = self.c.classes.each.iter().map(curve).collect();
        let rng = SimRng::stream(self.seed, &format!("switch{s}.port{port}"), "ecn");
        Marking::new(curves, rng).map(Box::new)
    }

    fn ingress(&self, end: End, port: usize, plug: &Plug) -> Ingress {
        Ingress {
            node: self.id(end),
            port: PortId(port as u16),
            peer: self.id(plug.peer),
            peer_port: plug.peer_port,
            rate: plug.link.rate,
            propagation: plug.link.propagation,
            max_packet_bytes: plug.link.limit(),
            buffer: self.input_buffer(end),
            lanes: self.receivers(end),
            occupied: 0,
            received: Tally::default(),
            lost: Box::default(),
            refused: Tally::default(),
            copied: Tally::default(),
            owed: 0,
            last_stored: Time::ZERO,
        }
    }

    /// Named after the input of the switch to which it belongs, so a host more elsewhere moves
    /// no draw.
    fn noise(&self, plug: &Plug) -> Option<Box<IngressNoise>> {
        let End::Switch(s) = plug.peer else { return None };
        let bound = noise_bound(self.c, plug.link.rate);
        let component = format!("switch{s}.port{}", plug.peer_port.0);
        let rng = SimRng::stream(self.seed, &component, "ingress_noise");
        IngressNoise::new(rng, bound).map(Box::new)
    }
}
