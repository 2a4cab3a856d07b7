//! A host's side of the network: its transmit ports and its receive buffers.

use doorbell_core::units::Time;

use super::egress::{EgressPort, Queued, Started};
use super::event::{Delivery, DropCause, Dropped, Drops, FabricEvent, Outcome, Tally};
use super::ingress::Ingress;
use crate::engine::{Out, Slab};
use crate::wire::{HostId, NodeId, Packet, PacketId, PortId};

/// The transmit queue has no room for the packet; it stays the caller's.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct TxQueueFull;

impl core::fmt::Display for TxQueueFull {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "the transmit queue is full; ask for TxReady and send again")
    }
}

impl std::error::Error for TxQueueFull {}

/// One port of a host.
#[derive(Clone, Debug)]
pub(super) struct HostPort {
    pub egress: EgressPort,
    pub ingress: Ingress,
    /// Packets stay in the receive buffer until the NIC has done with them.
    pub held: bool,
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
    /// Traffic class of each service level.
    pub(super) class_of_sl: [u8; 16],
    pub(super) class_count: usize,
    pub(super) sent: Tally,
    pub(super) delivered: Tally,
    /// A packet that had waited and whose transmission the last event began.
    pub(super) started: Option<Started>,
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

    /// Handles an event of this node.
    pub fn on_event(
        &mut self,
        now: Time,
        ev: FabricEvent,
        packets: &Slab<Packet>,
        out: &mut Out<FabricEvent>,
    ) -> Outcome {
        match ev {
            FabricEvent::Arrive { port, packet, wire_bytes, .. } => {
                // Only a buffer that is divided asks whose part it is.
                let divided = self.ports[port.index()].ingress.is_divided();
                let class = if divided { self.class_of(packets[packet.0].sl) } else { 0 };
                let p = &mut self.ports[port.index()];
                p.ingress.arrived(wire_bytes, class);
                p.ingress.tell(now, p.egress.free_at(), class, out);
                if wire_bytes > p.ingress.max_packet_bytes {
                    p.ingress.give_back(now, (wire_bytes, class), out);
                    let cause = DropCause::Oversize;
                    self.dropped.add(cause, wire_bytes);
                    let node = self.id;
                    return Outcome::Dropped(Dropped { node, port, packet, wire_bytes, cause });
                }
                if !p.held {
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
            FabricEvent::FlowControl { port, lane, fccl, .. } => {
                let egress = &mut self.ports[port.index()].egress;
                self.started = egress.on_flow_control(now, (lane, fccl), out);
                self.tell_ready(port)
            }
            FabricEvent::Freed { port, lane, wire_bytes, .. } => {
                let p = &mut self.ports[port.index()];
                p.ingress.freed(now, p.egress.free_at(), (wire_bytes, lane), out);
                Outcome::Nothing
            }
            FabricEvent::FlowControlDue { port, lane, .. } => {
                let p = &mut self.ports[port.index()];
                p.ingress.refresh(now, p.egress.free_at(), lane, out);
                Outcome::Nothing
            }
            FabricEvent::Stored { .. } => unreachable!("hosts take whole packets"),
            FabricEvent::Refresh { .. } => unreachable!("hosts take every packet"),
        }
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
