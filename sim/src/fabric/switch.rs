//! A switch with output queues.

use doorbell_core::units::Time;

use super::choice::Choice;
use super::egress::{EgressPort, Queued, Started};
use super::event::{DropCause, Dropped, Drops, FabricEvent, Outcome, Tally};
use super::ingress::Ingress;
use super::routes::RouteTable;
use crate::engine::{Class, Out, Slab};
use crate::wire::{NodeId, Packet, PortId};

/// One port of a switch.
#[derive(Clone, Debug)]
pub(super) struct SwitchPort {
    pub egress: EgressPort,
    pub ingress: Ingress,
}

/// One switch. It shares nothing with other nodes.
#[derive(Clone, Debug)]
pub struct SwitchNode {
    pub(super) id: NodeId,
    pub(super) cut_through: bool,
    pub(super) ports: Vec<SwitchPort>,
    pub(super) routes: RouteTable,
    pub(super) choice: Choice,
    /// Packets that a cut-through switch is storing.
    pub(super) storing: Tally,
    /// Drops that belong to no output port.
    pub(super) dropped: Drops,
}

impl SwitchNode {
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

    /// The routes.
    pub const fn routes(&self) -> &RouteTable {
        &self.routes
    }

    /// Everything this switch has dropped.
    pub fn dropped(&self) -> Drops {
        self.ports.iter().fold(self.dropped, |sum, p| sum.plus(p.egress.dropped()))
    }

    /// Packets that it refused before they had an output port, or for their size.
    pub const fn refused(&self) -> &Drops {
        &self.dropped
    }

    /// Handles an event of this node.
    pub fn on_event(
        &mut self,
        now: Time,
        ev: FabricEvent,
        packets: &mut Slab<Packet>,
        out: &mut Out<FabricEvent>,
    ) -> Outcome {
        match ev {
            FabricEvent::Arrive { port, packet, wire_bytes, .. } => {
                let input = &mut self.ports[port.index()].ingress;
                input.arrived(wire_bytes);
                let small = wire_bytes <= input.max_packet_bytes;
                let item = Queued { packet, wire_bytes, ingress: port };
                let Some(to) = self.route(now, &packets[packet.0]) else {
                    return self.refuse(now, item, DropCause::NoRoute, out);
                };
                if !small || !self.ports[to.index()].egress.takes(wire_bytes) {
                    return self.refuse(now, item, DropCause::Oversize, out);
                }
                if self.cut_through && self.is_faster(to, port) {
                    self.store(now, item, to, out);
                    return Outcome::Nothing;
                }
                self.forward(now, item, to, out)
            }
            FabricEvent::Stored { port, to, packet, .. } => {
                let wire_bytes = packets[packet.0].wire_bytes;
                self.storing.remove(wire_bytes);
                let item = Queued { packet, wire_bytes, ingress: port };
                self.forward(now, item, to, out)
            }
            FabricEvent::PortFree { port, .. } => {
                let started = self.ports[port.index()].egress.on_free(now, out);
                self.left(started, out);
                Outcome::Nothing
            }
            FabricEvent::Credit { port, bytes, .. } => {
                let started = self.ports[port.index()].egress.on_credit(now, bytes, out);
                self.left(started, out);
                Outcome::Nothing
            }
        }
    }

    fn route(&self, now: Time, p: &Packet) -> Option<PortId> {
        match self.routes.ways(p.dst, p.dst_port) {
            [] => None,
            [only] => Some(*only),
            ways => {
                let load = |port: PortId| self.ports[port.index()].egress.queue_bytes(now);
                Some(self.choice.among(ways, p, load))
            }
        }
    }

    fn is_faster(&self, output: PortId, input: PortId) -> bool {
        self.ports[output.index()].egress.rate().as_bps()
            > self.ports[input.index()].ingress.rate.as_bps()
    }

    /// Waits for the last bit. Noise may have moved packets together, hence the bound by the
    /// last bit before: a short packet must not overtake a long one.
    fn store(&mut self, now: Time, item: Queued, to: PortId, out: &mut Out<FabricEvent>) {
        let Queued { packet, wire_bytes, ingress: port } = item;
        self.storing.add(wire_bytes);
        let input = &mut self.ports[port.index()].ingress;
        let last_bit = now + input.rate.time_for(u64::from(wire_bytes));
        input.last_stored = last_bit.max(input.last_stored);
        let ev = FabricEvent::Stored { node: self.id, port, to, packet };
        out.at(input.last_stored, Class::Arrival, ev);
    }

    fn forward(
        &mut self,
        now: Time,
        item: Queued,
        to: PortId,
        out: &mut Out<FabricEvent>,
    ) -> Outcome {
        let egress = &mut self.ports[to.index()].egress;
        match egress.enqueue(now, item, out) {
            Ok(started) => {
                self.left(started, out);
                Outcome::Nothing
            }
            Err(_) => {
                let Queued { packet, wire_bytes, .. } = item;
                let cause = DropCause::TailDrop;
                egress.count_drop(cause, wire_bytes);
                Outcome::Dropped(Dropped { node: self.id, port: to, packet, wire_bytes, cause })
            }
        }
    }

    /// Drops a packet that may not enter any queue.
    fn refuse(
        &mut self,
        now: Time,
        item: Queued,
        cause: DropCause,
        out: &mut Out<FabricEvent>,
    ) -> Outcome {
        let Queued { packet, wire_bytes, ingress: port } = item;
        self.dropped.add(cause, wire_bytes);
        self.ports[port.index()].ingress.give_back(now, wire_bytes, out);
        Outcome::Dropped(Dropped { node: self.id, port, packet, wire_bytes, cause })
    }

    fn left(&mut self, started: Option<Started>, out: &mut Out<FabricEvent>) {
        if let Some(Started { item, end }) = started {
            let input = &mut self.ports[item.ingress.index()].ingress;
            input.give_back(end, item.wire_bytes, out);
        }
    }
}
