//! A switch with output queues.

use doorbell_core::units::Time;
use doorbell_core::verbs::Psn;

use super::buffer::Buffer;
use super::choice::Choice;
use super::classes::MAX_CLASSES;
use super::ecn::MarkAt;
use super::egress::{EgressPort, Queued, Started};
use super::event::{DropCause, Dropped, Drops, FabricEvent, Outcome, Tally};
use super::ingress::Ingress;
use super::mmu::Mmu;
use super::routes::RouteTable;
use crate::engine::{Class, Out};
use crate::wire::{Head, HostId, NodeId, PacketId, Packets, PortId};

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
    /// Traffic class of each service level.
    pub(super) class_of_sl: [u8; 16],
    /// Whether some output port marks packets.
    pub(super) marks: bool,
    /// The shared buffer, where there is one.
    pub(super) mmu: Option<Box<Mmu>>,
    /// Packets that a cut-through switch is storing.
    pub(super) storing: Tally,
    /// Drops that belong to no output port.
    pub(super) dropped: Drops,
    /// Faults that keep it down now.
    pub(super) down: u32,
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
        packets: &mut Packets,
        out: &mut Out<FabricEvent>,
    ) -> Outcome {
        match ev {
            FabricEvent::Arrive { port, packet, wire_bytes, .. } => {
                self.arrive(now, (port, packet, wire_bytes), packets, out)
            }
            FabricEvent::Stored { port, to, packet, wire_bytes, .. } => {
                let (wire_bytes, sl) = (u32::from(wire_bytes), packets.head(packet.0).sl);
                self.storing.remove(wire_bytes);
                let class = self.class_of_sl[usize::from(sl & 15)];
                let item = Queued { packet, wire_bytes, ingress: port, class };
                if self.is_down() {
                    self.leaves(now, item, to, out);
                    return self.refuse_late(item, to);
                }
                self.forward(now, item, to, packets, out)
            }
            FabricEvent::PortFree { port, .. } => {
                let started = self.ports[port.index()].egress.on_free(now, out);
                self.left(now, started, port, packets, out);
                Outcome::Nothing
            }
            _ => {
                self.on_flow_control(now, ev, packets, out);
                Outcome::Nothing
            }
        }
    }

    /// Pauses and credits, which say who may send.
    fn on_flow_control(
        &mut self,
        now: Time,
        ev: FabricEvent,
        packets: &mut Packets,
        out: &mut Out<FabricEvent>,
    ) {
        let (port, started) = match ev {
            FabricEvent::Pause { .. } if self.is_down() => return,
            FabricEvent::Pause { port, class, quanta, .. } => {
                let egress = &mut self.ports[port.index()].egress;
                (port, egress.on_pause(now, class, quanta, out))
            }
            FabricEvent::PauseEnd { port, class, .. } => {
                (port, self.ports[port.index()].egress.on_pause_end(now, class, out))
            }
            FabricEvent::Refresh { port, class, .. } => {
                let reverse = &mut self.ports[port.index()].egress;
                if let Some(mmu) = &mut self.mmu {
                    mmu.refresh(now, (self.id, port, class), reverse, out);
                }
                return;
            }
            FabricEvent::Credit { port, bytes, .. } => {
                (port, self.ports[port.index()].egress.on_credit(now, bytes, out))
            }
            FabricEvent::FlowControl { port, lane, fccl, busy, .. } => {
                let egress = &mut self.ports[port.index()].egress;
                (port, egress.on_flow_control(now, lane, (fccl, busy), out))
            }
            FabricEvent::Freed { port, lane, wire_bytes, busy, .. } => {
                let SwitchPort { ingress, egress } = &mut self.ports[port.index()];
                return ingress.freed(now, egress.free_at(), lane, (wire_bytes, busy), out);
            }
            FabricEvent::FlowControlDue { port, lane, .. } => {
                let SwitchPort { ingress, egress } = &mut self.ports[port.index()];
                return ingress.refresh(now, egress.free_at(), lane, out);
            }
            FabricEvent::Arrive { .. }
            | FabricEvent::Stored { .. }
            | FabricEvent::PortFree { .. } => unreachable!("packets are no flow control"),
        };
        self.left(now, started, port, packets, out);
    }

    /// A packet has come in.
    fn arrive(
        &mut self,
        now: Time,
        (port, packet, wire_bytes): (PortId, PacketId, u32),
        packets: &mut Packets,
        out: &mut Out<FabricEvent>,
    ) -> Outcome {
        let head = packets.head(packet.0);
        let class = self.class_of_sl[usize::from(head.sl & 15)];
        let SwitchPort { ingress, egress } = &mut self.ports[port.index()];
        ingress.arrived(wire_bytes, class);
        ingress.tell(now, egress.free_at(), class, out);
        let small = wire_bytes <= ingress.max_packet_bytes;
        let item = Queued { packet, wire_bytes, ingress: port, class };
        let psn = || packets[packet.0].desc.psn;
        let Some(to) = self.route(now, head, psn) else {
            return self.refuse(now, item, DropCause::NoRoute, out);
        };
        if !small || !self.ports[to.index()].egress.takes(wire_bytes) {
            return self.refuse(now, item, DropCause::Oversize, out);
        }
        if let Some(refused) = self.admit(now, item, to, out) {
            return refused;
        }
        if self.cut_through && self.is_faster(to, port) {
            self.store(now, item, to, out);
            return Outcome::Nothing;
        }
        self.forward(now, item, to, packets, out)
    }

    fn route(&self, now: Time, head: &Head, psn: impl FnOnce() -> Psn) -> Option<PortId> {
        match self.routes.ways(head.dst, head.dst_port) {
            [] => None,
            [only] => Some(*only),
            ways => {
                let load = |port: PortId| self.ports[port.index()].egress.queue_bytes(now);
                Some(self.choice.among(ways, head, psn, load))
            }
        }
    }

    /// Where all packets of a flow leave, and among how many ways; `None` without a route, and
    /// where it depends on the load.
    pub(super) fn turn(&self, to: (HostId, PortId), tuple: u64) -> Option<(PortId, usize)> {
        let ways = self.routes.ways(to.0, to.1);
        let port = match ways {
            [] => None,
            [only] => Some(*only),
            ways => self.choice.of_flow(ways, to.0.index() + to.1.index(), tuple),
        };
        Some((port?, ways.len()))
    }

    /// Where packets of a flow may leave: the one way of its rule, or all where it goes by load.
    pub(super) fn outputs(&self, to: (HostId, PortId), tuple: u64) -> &[PortId] {
        let ways = self.routes.ways(to.0, to.1);
        let own = self.turn(to, tuple).and_then(|(port, _)| ways.iter().find(|w| **w == port));
        own.map_or(ways, std::slice::from_ref)
    }

    fn is_faster(&self, output: PortId, input: PortId) -> bool {
        self.ports[output.index()].egress.rate().as_bps()
            > self.ports[input.index()].ingress.rate.as_bps()
    }

    /// Waits for the last bit. Noise may have moved packets together, hence the bound by the
    /// last bit before: a short packet must not overtake a long one.
    fn store(&mut self, now: Time, item: Queued, to: PortId, out: &mut Out<FabricEvent>) {
        let Queued { packet, wire_bytes, ingress: port, .. } = item;
        self.storing.add(wire_bytes);
        let input = &mut self.ports[port.index()].ingress;
        let last_bit = now + input.rate.time_for(u64::from(wire_bytes));
        input.last_stored = last_bit.max(input.last_stored);
        let wire_bytes = u16::try_from(wire_bytes).expect("no MTU has 64 KiB");
        let ev = FabricEvent::Stored { node: self.id, port, to, packet, wire_bytes };
        out.at(input.last_stored, Class::Arrival, ev);
    }

    fn forward(
        &mut self,
        now: Time,
        item: Queued,
        to: PortId,
        packets: &mut Packets,
        out: &mut Out<FabricEvent>,
    ) -> Outcome {
        let egress = &mut self.ports[to.index()].egress;
        let before = self.marks.then(|| egress.waiting_bytes_of(item.class));
        match egress.enqueue(now, item, out) {
            Ok(started) => {
                if let Some(before) = before {
                    let ecn = &mut packets[item.packet.0].ecn;
                    egress.mark(MarkAt::Enqueue, item.class, before, ecn);
                }
                self.ports[item.ingress.index()].ingress.queued(now, item.class);
                self.left(now, started, to, packets, out);
                Outcome::Nothing
            }
            Err(_) => {
                let Queued { packet, wire_bytes, .. } = item;
                let cause = DropCause::TailDrop;
                egress.count_drop(cause, &item);
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
        let Queued { packet, wire_bytes, ingress: port, class } = item;
        self.dropped.add(cause, wire_bytes);
        self.ports[port.index()].ingress.give_back(now, (wire_bytes, class), out);
        Outcome::Dropped(Dropped { node: self.id, port, packet, wire_bytes, cause })
    }

    /// A packet has begun to leave by `port`.
    fn left(
        &mut self,
        now: Time,
        started: Option<Started>,
        port: PortId,
        packets: &mut Packets,
        out: &mut Out<FabricEvent>,
    ) {
        if let Some(Started { item, end }) = started {
            if self.marks {
                let egress = &mut self.ports[port.index()].egress;
                let behind = egress.waiting_bytes_of(item.class);
                egress.mark(MarkAt::Dequeue, item.class, behind, &mut packets[item.packet.0].ecn);
            }
            let input = &mut self.ports[item.ingress.index()].ingress;
            input.leaves_queue(now, end, item.class);
            input.give_back(end, (item.wire_bytes, item.class), out);
            if let Some(mmu) = &mut self.mmu {
                mmu.release(item, port);
                self.resume(now, out);
            }
        }
    }

    /// Lets every paused sender go on that may: what leaves from one input raises the share of all.
    fn resume(&mut self, now: Time, out: &mut Out<FabricEvent>) {
        let Some(mmu) = self.mmu.as_mut().filter(|mmu| mmu.pausing > 0) else { return };
        for (port, p) in (0..).map(PortId).zip(&mut self.ports) {
            let paused = mmu.inputs[port.index()].now;
            for class in (0..MAX_CLASSES as u8).filter(|class| paused >> class & 1 == 1) {
                mmu.resume_if_room(now, (port, class), &mut p.egress, out);
            }
        }
    }

    /// Whether a fault keeps the switch down.
    pub const fn is_down(&self) -> bool {
        self.down > 0
    }

    /// Its buffers are lost, and its ports forget what they were told and what they told. Gives
    /// what waited in them. The credit of what is lost goes back: a link that comes up begins with
    /// all of it.
    pub(super) fn go_down(&mut self, now: Time, out: &mut Out<FabricEvent>) -> Vec<Dropped> {
        self.down += 1;
        let mut lost = Vec::new();
        for port in (0..self.ports.len() as u16).map(PortId) {
            let items = self.ports[port.index()].egress.clear(now, DropCause::SwitchReboot);
            for item in items {
                let input = &mut self.ports[item.ingress.index()].ingress;
                input.leaves_queue(now, now, item.class);
                self.leaves(now, item, port, out);
                lost.push(self.lost(item, port));
            }
        }
        for p in &mut self.ports {
            let started = p.egress.forget_pauses(now, out);
            debug_assert!(started.is_none(), "nothing waits");
        }
        if let Some(mmu) = &mut self.mmu {
            mmu.inputs.iter_mut().for_each(|input| input.now = 0);
            mmu.pausing = 0;
        }
        lost
    }

    /// One fault less keeps it down.
    pub(super) const fn come_up(&mut self) {
        self.down = self.down.checked_sub(1).expect("it was down");
    }

    /// A packet that was to leave by `port` leaves the buffers unsent.
    fn leaves(&mut self, now: Time, item: Queued, port: PortId, out: &mut Out<FabricEvent>) {
        let input = &mut self.ports[item.ingress.index()].ingress;
        input.give_back(now, (item.wire_bytes, item.class), out);
        if let Some(mmu) = &mut self.mmu {
            mmu.release(item, port);
        }
    }

    /// A packet that was being stored when the switch went down.
    fn refuse_late(&mut self, item: Queued, port: PortId) -> Outcome {
        self.ports[port.index()].egress.count_drop(DropCause::SwitchReboot, &item);
        Outcome::Dropped(self.lost(item, port))
    }

    const fn lost(&self, item: Queued, port: PortId) -> Dropped {
        let Queued { packet, wire_bytes, .. } = item;
        Dropped { node: self.id, port, packet, wire_bytes, cause: DropCause::SwitchReboot }
    }

    /// Takes a packet into the shared buffer, if there is one; gives its loss if there is no room.
    fn admit(
        &mut self,
        now: Time,
        item: Queued,
        to: PortId,
        out: &mut Out<FabricEvent>,
    ) -> Option<Outcome> {
        let mmu = self.mmu.as_mut()?;
        let Queued { packet, wire_bytes, ingress, class } = item;
        match mmu.admit(item, to) {
            Ok(()) => {
                let reverse = &mut self.ports[ingress.index()].egress;
                mmu.pause_if_full(now, (self.id, ingress, class), false, reverse, out);
                None
            }
            Err(DropCause::TailDrop) => {
                let (node, port, cause) = (self.id, to, DropCause::TailDrop);
                self.ports[to.index()].egress.count_drop(cause, &item);
                Some(Outcome::Dropped(Dropped { node, port, packet, wire_bytes, cause }))
            }
            Err(cause) => {
                let reverse = &mut self.ports[ingress.index()].egress;
                mmu.pause_if_full(now, (self.id, ingress, class), true, reverse, out);
                Some(self.refuse(now, item, cause, out))
            }
        }
    }

    /// The watchdog looks at all output ports.
    pub(super) fn watch(&mut self, now: Time, packets: &mut Packets, out: &mut Out<FabricEvent>) {
        let Some(watchdog) = self.mmu.as_ref().and_then(|m| m.watchdog) else { return };
        for port in 0..self.ports.len() {
            let started = self.ports[port].egress.watch(now, &watchdog, out);
            self.left(now, started, PortId(port as u16), packets, out);
        }
    }

    /// The accounts of the shared buffer, where there is one.
    pub fn buffer(&self) -> Option<&Buffer> {
        self.mmu.as_ref().map(|m| &m.buffer)
    }

    /// Packets of a class that an input port dropped because its queue and its headroom were full.
    /// They are among those that the switch [`refused`](Self::refused).
    pub fn overflowed(&self, port: PortId, class: u8) -> Tally {
        let overflowed = |m: &Mmu| m.inputs[port.index()].overflowed[usize::from(class)];
        self.mmu.as_deref().map_or(Tally::default(), overflowed)
    }

    /// Classes in which an input port pauses its sender, a bit each; 0 without a shared buffer.
    pub fn may_pause(&self, port: PortId) -> u8 {
        self.mmu.as_ref().map_or(0, |m| m.inputs[port.index()].able)
    }

    /// Whether an input queue pauses its sender.
    pub fn is_pausing(&self, port: PortId, class: u8) -> bool {
        self.mmu.as_ref().is_some_and(|m| m.inputs[port.index()].now >> class & 1 == 1)
    }

    /// Whether an input port lets its pauses end by themselves.
    pub(super) fn lets_lapse(&self, port: PortId) -> bool {
        self.mmu.as_ref().is_some_and(|m| m.inputs[port.index()].lapse)
    }

    /// Whether a timer of pauses has been overtaken: it will change nothing.
    pub(super) fn is_overtaken(&self, now: Time, ev: FabricEvent) -> bool {
        match ev {
            FabricEvent::PauseEnd { port, class, .. } => {
                self.ports[port.index()].egress.pause_goes_on(now, class)
            }
            FabricEvent::Refresh { port, class, .. } => {
                !self.mmu.as_ref().is_some_and(|m| m.is_due(now, port, class))
            }
            _ => false,
        }
    }
}
