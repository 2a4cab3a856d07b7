//! A host's side of the network: its transmit ports and its receive buffers.

use std::collections::VecDeque;

use doorbell_core::units::Time;

use super::egress::{EgressPort, Queued, Started};
use super::event::{Delivery, DropCause, Dropped, Drops, FabricEvent, Outcome, Tally};
use super::ingress::Ingress;
use super::mmu::Pausing;
use crate::engine::Out;
use crate::wire::{HostId, NodeId, PacketId, Packets, PortId};

/// The transmit queue has no room for the packet; it stays the caller's.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct TxQueueFull;

impl core::fmt::Display for TxQueueFull {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "the transmit queue is full; ask for TxReady and send again")
    }
}

impl std::error::Error for TxQueueFull {}

/// Why a host pauses the sender of its link.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum PauseReason {
    /// The receive buffer of its NIC is full.
    Full,
    /// A fault: the NIC storms.
    Storm,
}

/// One port of a host.
#[derive(Clone, Debug)]
pub(super) struct HostPort {
    pub egress: EgressPort,
    pub ingress: Ingress,
    /// Pauses of the far end.
    pub pausing: Pausing,
    /// Classes that are to be paused, by [`PauseReason`].
    pub reasons: [u8; 2],
    /// Packets stay in the receive buffer until the NIC has done with them.
    pub held: bool,
    /// The NIC drops what it has no room for, unless its class is paused.
    pub lossy: bool,
    /// Packets that the NIC has kept in the receive buffer, bytes on the wire and class.
    pub kept: VecDeque<(u32, u8)>,
    /// The NIC wants to know when at most so many bytes wait.
    pub ready_at_bytes: Option<u64>,
}

/// All ports of one host. It shares nothing with other nodes.
#[derive(Clone, Debug)]
pub struct HostNode {
    pub(super) id: NodeId,
    pub(super) host: HostId,
    pub(super) max_packet_bytes: u32,
    pub(super) ports: Vec<HostPort>,
    /// Those that are a NIC's: the first ones.
    pub(super) nics: usize,
    /// Traffic class of each service level.
    pub(super) class_of_sl: [u8; 16],
    pub(super) class_count: usize,
    pub(super) sent: Tally,
    pub(super) delivered: Tally,
    /// A packet that had waited and whose transmission the last event began.
    pub(super) started: Option<Started>,
    /// A packet that has just been delivered, in a receive buffer that its sender waits for: port,
    /// bytes on the wire, class. The NIC may [keep](Self::keep) it there.
    pub(super) arrived: Option<(PortId, u32, u8)>,
    /// A NIC decides when packets leave the receive buffers, and [`settle`](Self::settle) comes
    /// behind each delivery.
    pub(super) nic_keeps: bool,
    /// Packets that were larger than their link takes.
    pub(super) dropped: Drops,
}

impl HostNode {
    /// The node's id.
    pub const fn id(&self) -> NodeId {
        self.id
    }

    /// Number of ports.
    pub fn ports(&self) -> usize {
        self.ports.len()
    }

    /// Number of ports that are a NIC's: all, or all but the last one, which leads into the host's
    /// node.
    pub const fn nics(&self) -> usize {
        self.nics
    }

    /// The transmit side of a port.
    pub fn egress(&self, port: PortId) -> &EgressPort {
        &self.ports[port.index()].egress
    }

    /// The receiving side of a port.
    pub fn ingress(&self, port: PortId) -> &Ingress {
        &self.ports[port.index()].ingress
    }

    /// Packets that this host gave to the network.
    pub const fn sent(&self) -> Tally {
        self.sent
    }

    /// Packets that the network gave to this host.
    pub const fn delivered(&self) -> Tally {
        self.delivered
    }

    /// Packets that were larger than the link that they came by takes.
    pub const fn refused(&self) -> &Drops {
        &self.dropped
    }

    /// Number of traffic classes.
    pub const fn classes(&self) -> usize {
        self.class_count
    }

    /// Traffic class of a service level.
    pub const fn class_of(&self, sl: u8) -> u8 {
        self.class_of_sl[(sl & 15) as usize]
    }

    /// Puts a packet into the transmit queue of `port`. `wire_bytes` is the size of the packet on
    /// the wire and stays the same on all its way; `sl` is its service level. Gives when its
    /// last bit leaves, or `None` when it has to wait for others or for room at the far end; then
    /// `take_started` tells.
    ///
    /// # Errors
    /// [`TxQueueFull`] when the port has a limit and the packet would pass it.
    ///
    /// # Panics
    /// When the packet has no bytes or is larger than the largest packet of the configuration:
    /// no buffer is checked to hold it.
    pub fn send(
        &mut self,
        now: Time,
        port: PortId,
        packet: PacketId,
        wire_bytes: u32,
        sl: u8,
        out: &mut Out<FabricEvent>,
    ) -> Result<Option<Time>, TxQueueFull> {
        assert!(
            (1..=self.max_packet_bytes).contains(&wire_bytes),
            "a packet of {wire_bytes} bytes where the largest has {}",
            self.max_packet_bytes
        );
        let class = self.class_of(sl);
        let item = Queued { packet, wire_bytes, ingress: PortId(u16::MAX), class };
        let egress = &mut self.ports[port.index()].egress;
        let started = egress.enqueue(now, item, out).map_err(|_| TxQueueFull)?;
        self.sent.add(wire_bytes);
        Ok(started.map(|s| s.end))
    }

    /// The packet that had waited and whose transmission the last event of this node began, and
    /// when its last bit leaves.
    pub(crate) fn take_started(&mut self) -> Option<(PacketId, Time)> {
        self.started.take().map(|s| (s.item.packet, s.end))
    }

    /// Asks for one [`Outcome::TxReady`] when at most `waiting_bytes` wait at `port`, the packet
    /// being sent not counted. True when that is so already; then nothing will come.
    pub fn arm_tx_ready(&mut self, port: PortId, waiting_bytes: u64) -> bool {
        let p = &mut self.ports[port.index()];
        let ready = p.egress.waiting_bytes() <= waiting_bytes;
        p.ready_at_bytes = (!ready).then_some(waiting_bytes);
        ready
    }

    /// The NIC has taken a delivered packet out of the receive buffer of `port`. Only for
    /// buffers whose packets are held.
    pub fn rx_done(
        &mut self,
        now: Time,
        port: PortId,
        wire_bytes: u32,
        out: &mut Out<FabricEvent>,
    ) {
        let p = &mut self.ports[port.index()];
        assert!(p.held, "the receive buffer gives room back by itself");
        // Buffers whose packets are held are not divided into lanes.
        p.ingress.give_back(now, (wire_bytes, 0), out);
    }

    /// What a packet of this service level meets where the NIC has no room for it: true, it waits
    /// in front of the NIC, and the link holds back its sender as well as it can; false, it is
    /// dropped.
    pub fn waits_for_room(&self, port: PortId, sl: u8) -> bool {
        let p = &self.ports[port.index()];
        !p.lossy || p.pausing.able >> self.class_of(sl) & 1 == 1
    }

    /// The NIC has no room for the packet that has just been delivered, which stays in the receive
    /// buffer of its port until the NIC [takes](Self::take_kept) it: its sender gets no credit for
    /// it. False: nobody waits for room of that port.
    pub(crate) fn keep(&mut self, now: Time) -> bool {
        let Some((port, wire_bytes, class)) = self.arrived.take() else { return false };
        let p = &mut self.ports[port.index()];
        p.ingress.queued(now, class);
        p.kept.push_back((wire_bytes, class));
        true
    }

    /// The NIC takes the first packet that it had kept in the receive buffer of a port.
    pub(crate) fn take_kept(&mut self, now: Time, port: PortId, out: &mut Out<FabricEvent>) {
        let HostPort { kept, ingress, .. } = &mut self.ports[port.index()];
        let (wire_bytes, class) = kept.pop_front().expect("the NIC has kept it");
        ingress.leaves_queue(now, now, class);
        ingress.give_back(now, (wire_bytes, class), out);
    }

    /// What was delivered leaves the receive buffer, unless the NIC has kept it, or nobody waits
    /// for room of its port. True: there may be something to hear of.
    pub(crate) fn settle(&mut self, now: Time, out: &mut Out<FabricEvent>) -> bool {
        let Some((port, wire_bytes, class)) = self.arrived.take() else { return false };
        self.ports[port.index()].ingress.give_back(now, (wire_bytes, class), out);
        true
    }

    /// Whether the port pauses the sender of its link for a reason, in any class.
    pub fn is_pausing(&self, port: PortId, reason: PauseReason) -> bool {
        self.ports[port.index()].reasons[reason as usize] != 0
    }

    /// Classes whose sender the port may pause, a bit each: lossless ones, on a link that knows
    /// pauses.
    pub fn may_pause(&self, port: PortId) -> u8 {
        self.ports[port.index()].pausing.able
    }

    /// Pauses the sender of the link in these classes, a bit each, for a reason, and in no others:
    /// the pause of a class lasts, and is renewed, until no reason is left. Classes that may not
    /// pause are passed over.
    pub fn pause(
        &mut self,
        now: Time,
        port: PortId,
        reason: PauseReason,
        classes: u8,
        out: &mut Out<FabricEvent>,
    ) {
        let node = self.id;
        let HostPort { pausing, reasons, egress, .. } = &mut self.ports[port.index()];
        reasons[reason as usize] = classes & pausing.able;
        let wanted = reasons[0] | reasons[1];
        let changed = wanted ^ pausing.now;
        for class in (0..8).filter(|class| changed >> class & 1 == 1) {
            if wanted >> class & 1 == 1 {
                pausing.begin(now, (node, port, class), egress, out);
            } else {
                pausing.end(now, class, egress, out);
            }
        }
    }

    /// The receive buffer of the NIC has no room for a packet of this service level: pauses its
    /// class too.
    pub fn pause_full(&mut self, now: Time, port: PortId, sl: u8, out: &mut Out<FabricEvent>) {
        let paused = self.ports[port.index()].reasons[PauseReason::Full as usize];
        self.pause(now, port, PauseReason::Full, paused | 1 << self.class_of(sl), out);
    }

    /// The host is dead: what its NIC had kept in front of it is gone, as is all that still comes.
    /// InfiniBand's credit is not given back: nobody is there to say so.
    pub(crate) fn forget_kept(&mut self, now: Time, out: &mut Out<FabricEvent>) {
        for port in (0..self.ports.len() as u16).map(PortId) {
            let p = &self.ports[port.index()];
            let kept = if p.ingress.is_divided() { 0 } else { p.kept.len() };
            (0..kept).for_each(|_| self.take_kept(now, port, out));
        }
    }

    /// The host is dead: it renews no pause, and begins none.
    pub(crate) fn silence(&mut self) {
        for p in &mut self.ports {
            (p.pausing, p.reasons) = (Pausing::default(), [0; 2]);
        }
    }

    /// Whether a timer of pauses has been overtaken: it will change nothing.
    pub(super) fn is_overtaken(&self, now: Time, ev: FabricEvent) -> bool {
        match ev {
            FabricEvent::PauseEnd { port, class, .. } => {
                self.egress(port).pause_goes_on(now, class)
            }
            FabricEvent::Refresh { port, class, .. } => {
                !self.ports[port.index()].pausing.is_due(now, class)
            }
            _ => false,
        }
    }

    /// Handles an event of this node.
    pub fn on_event(
        &mut self,
        now: Time,
        ev: FabricEvent,
        packets: &Packets,
        out: &mut Out<FabricEvent>,
    ) -> Outcome {
        match ev {
            FabricEvent::Arrive { port, packet, wire_bytes, .. } => {
                // Only a buffer that is divided asks whose part it is.
                let divided = self.ports[port.index()].ingress.is_divided();
                let class = if divided { self.class_of(packets.head(packet.0).sl) } else { 0 };
                let p = &mut self.ports[port.index()];
                p.ingress.arrived(wire_bytes, class);
                p.ingress.tell(now, p.egress.free_at(), class, out);
                if wire_bytes > p.ingress.max_packet_bytes {
                    p.ingress.give_back(now, (wire_bytes, class), out);
                    let (node, cause) = (self.id, DropCause::Oversize);
                    self.dropped.add(cause, wire_bytes);
                    p.ingress.refused.add(wire_bytes);
                    return Outcome::Dropped(Dropped { node, port, packet, wire_bytes, cause });
                }
                if self.nic_keeps {
                    self.arrived = p.ingress.pushes_back().then_some((port, wire_bytes, class));
                } else if !p.held {
                    p.ingress.give_back(now, (wire_bytes, class), out);
                }
                self.delivered.add(wire_bytes);
                Outcome::Delivered(Delivery { host: self.host, port, packet, wire_bytes })
            }
            FabricEvent::PortFree { port, .. } => {
                self.started = self.ports[port.index()].egress.on_free(now, out);
                self.tell_ready(port)
            }
            FabricEvent::Credit { port, bytes, .. } => {
                self.started = self.ports[port.index()].egress.on_credit(now, bytes, out);
                self.tell_ready(port)
            }
            FabricEvent::Pause { port, class, quanta, .. } => {
                let egress = &mut self.ports[port.index()].egress;
                self.started = egress.on_pause(now, class, quanta, out);
                self.tell_ready(port)
            }
            FabricEvent::PauseEnd { port, class, .. } => {
                let egress = &mut self.ports[port.index()].egress;
                self.started = egress.on_pause_end(now, class, out);
                self.tell_ready(port)
            }
            FabricEvent::FlowControl { port, lane, fccl, busy, .. } => {
                let egress = &mut self.ports[port.index()].egress;
                self.started = egress.on_flow_control(now, lane, (fccl, busy), out);
                self.tell_ready(port)
            }
            FabricEvent::Freed { port, lane, wire_bytes, busy, .. } => {
                let p = &mut self.ports[port.index()];
                p.ingress.freed(now, p.egress.free_at(), lane, (wire_bytes, busy), out);
                Outcome::Nothing
            }
            FabricEvent::FlowControlDue { port, lane, .. } => {
                let p = &mut self.ports[port.index()];
                p.ingress.refresh(now, p.egress.free_at(), lane, out);
                Outcome::Nothing
            }
            FabricEvent::Stored { .. } => unreachable!("hosts take whole packets"),
            FabricEvent::Refresh { port, class, .. } => {
                self.refresh(now, port, class, out);
                Outcome::Nothing
            }
        }
    }

    /// Renews the pause of a class, if it is still wanted.
    fn refresh(&mut self, now: Time, port: PortId, class: u8, out: &mut Out<FabricEvent>) {
        let HostPort { pausing, egress, .. } = &mut self.ports[port.index()];
        pausing.refresh(now, (self.id, port, class), egress, out);
    }

    fn tell_ready(&mut self, port: PortId) -> Outcome {
        let p = &mut self.ports[port.index()];
        match p.ready_at_bytes {
            Some(limit) if p.egress.waiting_bytes() <= limit => {
                p.ready_at_bytes = None;
                Outcome::TxReady { host: self.host, port }
            }
            _ => Outcome::Nothing,
        }
    }
}
