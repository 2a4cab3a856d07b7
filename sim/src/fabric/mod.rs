//! Links, egress ports and switches.
//!
//! The fabric is sans-IO: it is told the time and an event, and it answers with an [`Outcome`] and
//! with events in an [`Out`] list. Each node (a host's ports, or a switch) is a struct of its own
//! and speaks to other nodes only by events that are at least a link's propagation delay ahead, so
//! a run may be split between nodes. The one thing they share is the arena of packets: a switch
//! reads there where a packet goes, and marks those that it holds itself.
//!
//! A hop of an uncontested packet costs one event, its arrival. A packet that waits adds the
//! wake-up of its port. Credit of an idealised lossless link costs an event only where the sender
//! waits for it, see [`Fabric::expect`]; on InfiniBand it costs two per packet: the buffer is free,
//! the sender hears of it.

mod balance;
mod buffer;
mod build;
mod choice;
mod classes;
mod config;
mod credits;
mod deadlock;
mod ecn;
mod egress;
mod event;
mod headroom;
mod host;
mod ingress;
mod lanes;
mod line;
mod link;
mod mmu;
mod noise;
mod pfc;
mod queues;
mod room;
mod routes;
mod schedule;
mod shape;
mod switch;
#[cfg(test)]
mod tests;
mod way;

use doorbell_core::units::Time;

pub use balance::{Balance, Imbalance};
pub use buffer::{Buffer, BufferSizes, NoRoom, PauseAt, Sharing};
pub use classes::{ClassConfig, Classes, MAX_CLASSES};
pub use config::{
    Buffering, ConfigError, DEFAULT_MAX_PACKET_BYTES, EcnException, End, FabricConfig, Forwarding,
    HashSeed, HostConfig, LinkConfig, Noise, ReceiveBuffer, Routing, StaticRoute, SwitchConfig,
};
pub use credits::{BLOCK_BYTES, CreditReceiver, CreditSender, MAX_CREDIT, blocks};
pub use deadlock::{Deadlock, HeldBy, Waiting};
pub use ecn::{EcnConfig, EcnError, MarkAt};
pub use egress::EgressPort;
pub use event::{
    ClassCounters, Delivery, DropCause, Dropped, Drops, FabricEvent, Outcome, PortCounters, Tally,
};
pub use headroom::PortHeadroom;
pub use host::{HostNode, PauseReason, TxQueueFull};
pub use ingress::Ingress;
pub use lanes::{CreditConfig, Starvation};
pub use line::Serve;
pub use link::{Link, PROPAGATION_PER_MM};
pub use pfc::{
    Headroom, HeadroomOf, PAUSE_FRAME_BYTES, PauseCounters, SharedConfig, StormAction, Watchdog,
    headroom, standard_reaction,
};
pub use routes::RouteTable;
pub use schedule::{Schedule, Service};
pub use shape::{FatTree, LeafSpine, Rails, ShapeError};
pub use switch::SwitchNode;
pub use way::{Hop, Turn, time_alone, times_alone};

use crate::engine::{Class, Out};
use crate::wire::{HostId, NodeId, PacketId, Packets, PortId};

/// A network: the ports of all hosts, the switches and the links between them.
///
/// ```
/// use doorbell_core::units::{BitRate, Span, Time};
/// use doorbell_sim::engine::Out;
/// use doorbell_sim::fabric::{Fabric, FabricConfig, Link, Outcome};
/// use doorbell_sim::wire::{HostId, PacketId, Packets, PortId};
///
/// // Two hosts, three metres of cable, one packet of 1082 bytes on the wire.
/// let link = Link::with_length_mm(BitRate::gbps(100), 3_000);
/// let mut fabric = Fabric::new(&FabricConfig::back_to_back(link), 1)?;
/// let mut out = Out::new();
/// fabric.send(Time::ZERO, (HostId(0), PortId(0)), PacketId(0), 1_082, 0, &mut out)?;
///
/// // The owner brings each event back at its time; here there is one, the arrival.
/// let (at, _, event) = out.as_slice()[0];
/// assert_eq!(at, Time::ZERO + Span::from_ps(1_082 * 80) + Span::from_ns(15));
/// let outcome = fabric.on_event(at, event, &mut Packets::new(), &mut out);
/// assert!(matches!(outcome, Outcome::Delivered(d) if d.host == HostId(1)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Fabric {
    hosts: Vec<HostNode>,
    switches: Vec<SwitchNode>,
}

impl Fabric {
    /// Builds the network. `seed` names the random streams of the noise.
    ///
    /// # Errors
    /// [`ConfigError`] with the place, before anything is built.
    pub fn new(config: &FabricConfig, seed: u64) -> Result<Self, ConfigError> {
        let (hosts, switches) = build::build(config, seed)?;
        Ok(Self { hosts, switches })
    }

    /// The hosts, by [`HostId`].
    pub fn hosts(&self) -> &[HostNode] {
        &self.hosts
    }

    /// The ports of a host.
    pub fn host_mut(&mut self, host: HostId) -> &mut HostNode {
        &mut self.hosts[host.index()]
    }

    /// The switches; switch `i` is node `hosts().len() + i`.
    pub fn switches(&self) -> &[SwitchNode] {
        &self.switches
    }

    /// The nodes one by one, for an owner that keeps each in its own island.
    pub fn into_nodes(self) -> (Vec<HostNode>, Vec<SwitchNode>) {
        (self.hosts, self.switches)
    }

    /// Everything that was dropped: at switches, at hosts, and on links by faults.
    pub fn dropped(&self) -> Drops {
        let at_nodes = self.switches.iter().map(SwitchNode::dropped);
        let at_nodes = at_nodes.chain(self.hosts.iter().map(|h| h.dropped));
        let at_hosts = self.hosts.iter().flat_map(|h| h.ports.iter().map(|p| *p.ingress.lost));
        let before = self.switches.iter().flat_map(|s| s.ports.iter().map(|p| *p.ingress.lost));
        at_nodes.chain(at_hosts).chain(before).fold(Drops::default(), |sum, d| sum.plus(&d))
    }

    /// The transmit side of a host's port.
    pub fn tx_port(&self, host: HostId, port: PortId) -> &EgressPort {
        self.hosts[host.index()].egress(port)
    }

    /// A host gives a packet of a service level to the network by one of its ports.
    ///
    /// # Errors
    /// As [`HostNode::send`].
    ///
    /// # Panics
    /// As [`HostNode::send`].
    pub fn send(
        &mut self,
        now: Time,
        (host, port): (HostId, PortId),
        packet: PacketId,
        wire_bytes: u32,
        sl: u8,
        out: &mut Out<FabricEvent>,
    ) -> Result<Option<Time>, TxQueueFull> {
        self.hosts[host.index()].send(now, port, packet, wire_bytes, sl, out)
    }

    /// As [`HostNode::arm_tx_ready`].
    pub fn arm_tx_ready(&mut self, host: HostId, port: PortId, waiting_bytes: u64) -> bool {
        self.hosts[host.index()].arm_tx_ready(port, waiting_bytes)
    }

    /// As [`HostNode::rx_done`].
    pub fn rx_done(
        &mut self,
        now: Time,
        host: HostId,
        port: PortId,
        wire_bytes: u32,
        out: &mut Out<FabricEvent>,
    ) {
        self.hosts[host.index()].rx_done(now, port, wire_bytes, out);
    }

    /// A fault takes a packet of a service level from a link, just before it arrives at `port` of
    /// `node`. The packet is the caller's.
    pub fn lose(
        &mut self,
        now: Time,
        (node, port): (NodeId, PortId),
        cause: DropCause,
        (wire_bytes, sl): (u32, u8),
        out: &mut Out<FabricEvent>,
    ) {
        let class = self.hosts[0].class_of(sl);
        self.ingress_mut(node, port).lose(now, cause, (wire_bytes, class), out);
    }

    /// A fault adds a copy of a packet of a service level to a link; the caller brings its arrival
    /// at `port` of `node`.
    pub fn copy(&mut self, (node, port): (NodeId, PortId), (wire_bytes, sl): (u32, u8)) {
        let class = self.hosts[0].class_of(sl);
        self.ingress_mut(node, port).copy(wire_bytes, class);
    }

    /// A fault takes a switch down: what is in its buffers is lost, and belongs to the caller. The
    /// ports at the other ends of its links forget its pauses. What comes by a link of it while it
    /// is down, the caller [loses](Self::lose).
    pub fn switch_down(
        &mut self,
        now: Time,
        switch: usize,
        out: &mut Out<FabricEvent>,
    ) -> Vec<Dropped> {
        let lost = self.switches[switch].go_down(now, out);
        self.peers_forget(now, switch, out);
        lost
    }

    /// The fault is over. A switch that several faults keep down comes up with the last.
    pub fn switch_up(&mut self, now: Time, switch: usize, out: &mut Out<FabricEvent>) {
        self.switches[switch].come_up();
        self.peers_forget(now, switch, out);
    }

    /// The links of a switch come up anew: what it has paused at their other ends goes on, as if by
    /// a frame.
    fn peers_forget(&self, now: Time, switch: usize, out: &mut Out<FabricEvent>) {
        let s = &self.switches[switch];
        for (node, port) in s.ports.iter().map(|p| p.egress.peer()) {
            let far = self.egress_of(node, port);
            for class in (0..MAX_CLASSES as u8).filter(|class| far.is_paused(*class)) {
                let ev = FabricEvent::Pause { node, port, class, quanta: 0 };
                out.at(now, Class::Release, ev);
            }
        }
    }

    /// The transmit side of a port of any node.
    pub fn egress_of(&self, node: NodeId, port: PortId) -> &EgressPort {
        match node.index().checked_sub(self.hosts.len()) {
            None => self.hosts[node.index()].egress(port),
            Some(s) => self.switches[s].egress(port),
        }
    }

    /// What a virtual lane of a port has suffered for lack of credit up to `now`; `None` when its
    /// link is no InfiniBand link.
    pub fn starvation(
        &self,
        now: Time,
        (node, port): (NodeId, PortId),
        lane: u8,
    ) -> Option<Starvation> {
        let egress = self.egress_of(node, port);
        let (peer, at) = egress.peer();
        let far = match peer.index().checked_sub(self.hosts.len()) {
            None => self.hosts[peer.index()].ingress(at),
            Some(s) => self.switches[s].ingress(at),
        };
        egress.starvation(now, lane, far.busy(now, lane))
    }

    /// Which host or switch a node is, as links name it.
    pub fn end(&self, node: NodeId) -> End {
        match node.index().checked_sub(self.hosts.len()) {
            None => End::Host(node.0),
            Some(switch) => End::Switch(switch as u32),
        }
    }

    /// The receiving side of a port of any node.
    pub fn ingress_of(&self, node: NodeId, port: PortId) -> &Ingress {
        match node.index().checked_sub(self.hosts.len()) {
            None => self.hosts[node.index()].ingress(port),
            Some(s) => self.switches[s].ingress(port),
        }
    }

    /// Every port: those of the hosts, then those of the switches.
    pub fn ports(&self) -> impl Iterator<Item = (NodeId, PortId)> {
        let hosts = self.hosts.iter().map(|h| (h.id(), h.ports()));
        let all = hosts.chain(self.switches.iter().map(|s| (s.id(), s.ports())));
        all.flat_map(|(node, n)| (0..n as u16).map(move |port| (node, PortId(port))))
    }

    /// Most bytes in the queue of a port since this was last asked. For a recorder: it changes
    /// nothing that the network goes by.
    pub(crate) fn take_peak(&mut self, now: Time, node: NodeId, port: PortId) -> u64 {
        self.egress_mut(node, port).take_peak(now)
    }

    fn egress_mut(&mut self, node: NodeId, port: PortId) -> &mut EgressPort {
        match node.index().checked_sub(self.hosts.len()) {
            None => &mut self.hosts[node.index()].ports[port.index()].egress,
            Some(s) => &mut self.switches[s].ports[port.index()].egress,
        }
    }

    fn ingress_mut(&mut self, node: NodeId, port: PortId) -> &mut Ingress {
        match node.index().checked_sub(self.hosts.len()) {
            None => &mut self.hosts[node.index()].ports[port.index()].ingress,
            Some(s) => &mut self.switches[s].ports[port.index()].ingress,
        }
    }

    /// Whether an event is a timer of pauses that has been overtaken: it will change nothing, and
    /// need not come.
    pub fn is_overtaken(&self, now: Time, ev: FabricEvent) -> bool {
        match ev {
            FabricEvent::PauseEnd { node, .. } | FabricEvent::Refresh { node, .. } => {
                match node.index().checked_sub(self.hosts.len()) {
                    None => self.hosts[node.index()].is_overtaken(now, ev),
                    Some(s) => self.switches[s].is_overtaken(now, ev),
                }
            }
            _ => false,
        }
    }

    /// Looks at an event that a node asks for now. True: it need not come, since it brings a port
    /// credit that it does not wait for; the port has noted when. An owner that brings every event
    /// gets the same run.
    #[inline]
    pub fn expect(&mut self, now: Time, at: Time, ev: FabricEvent) -> bool {
        match ev {
            FabricEvent::Credit { node, port, bytes } => {
                self.egress_mut(node, port).expect_credit(now, at, bytes)
            }
            _ => false,
        }
    }

    /// From now on the NIC of each host decides when packets leave the buffers of its ports.
    pub(crate) fn let_nics_keep(&mut self) {
        self.hosts.iter_mut().for_each(|h| h.nic_keeps = true);
    }

    /// When the last credit up to `limit` comes that was [expected](Self::expect) and that no port
    /// has looked at yet: what happens last in a network that comes to rest.
    pub fn last_expected(&self, limit: Time) -> Option<Time> {
        let ports = self.ports().map(|(node, port)| self.egress_of(node, port));
        ports.filter_map(|p| p.last_quiet_credit(limit)).max()
    }

    /// Handles one event at its time.
    pub fn on_event(
        &mut self,
        now: Time,
        ev: FabricEvent,
        packets: &mut Packets,
        out: &mut Out<FabricEvent>,
    ) -> Outcome {
        let NodeId(node) = ev.node();
        match (node as usize).checked_sub(self.hosts.len()) {
            None => self.hosts[node as usize].on_event(now, ev, packets, out),
            Some(s) => self.switches[s].on_event(now, ev, packets, out),
        }
    }
}
