//! The receiving side of a node's port: its buffer, and whom to give room back to.

use doorbell_core::units::{BitRate, Span, Time};

use super::event::{DropCause, Drops, FabricEvent, Tally};
use super::lanes::Receivers;
use crate::engine::{Class, Out};
use crate::wire::{NodeId, PortId};

/// The receiving side of a port.
#[derive(Clone, Debug)]
pub struct Ingress {
    pub(super) node: NodeId,
    pub(super) port: PortId,
    pub(super) peer: NodeId,
    pub(super) peer_port: PortId,
    pub(super) rate: BitRate,
    pub(super) propagation: Span,
    /// Largest packet that the link takes, in bytes on the wire.
    pub(super) max_packet_bytes: u32,
    /// Size of the buffer in bytes, `None` when this side never pushes back.
    pub(super) buffer: Option<u64>,
    /// Buffers of an InfiniBand link, which has no `buffer`.
    pub(super) lanes: Option<Box<Receivers>>,
    pub(super) occupied: u64,
    pub(super) received: Tally,
    /// Packets that faults took from the link just before it ended here. Boxed: two cache lines
    /// that hardly any packet touches.
    pub(super) lost: Box<Drops>,
    /// Packets that a host dropped because they were larger than the link takes.
    pub(super) refused: Tally,
    /// Packets that a fault added to those that were sent.
    pub(super) copied: Tally,
    /// Bytes of copies whose room nobody granted: what leaves the buffer pays for them before it
    /// gives credit back.
    pub(super) owed: u64,
    /// Last bit of the last packet that a cut-through switch had to store.
    pub(super) last_stored: Time,
}

impl Ingress {
    /// Packets that have arrived here.
    pub const fn received(&self) -> Tally {
        self.received
    }

    /// Bytes of the buffer in use; zero when this side never pushes back.
    pub const fn occupied_bytes(&self) -> u64 {
        self.occupied
    }

    /// Packets that faults took from the link that ends here.
    pub fn lost(&self) -> &Drops {
        &self.lost
    }

    /// Packets that arrived and were larger than the link takes, at a host; a switch has them among
    /// its drops.
    pub const fn refused(&self) -> Tally {
        self.refused
    }

    /// Packets that faults added on the link that ends here.
    pub const fn copied(&self) -> Tally {
        self.copied
    }

    /// Blocks of the buffers of an InfiniBand link in use, whose credit has not gone back; zero on
    /// other links.
    pub fn occupied_blocks(&self) -> u64 {
        self.lanes.as_ref().map_or(0, |l| l.used())
    }

    /// Room for packets of each virtual lane, in blocks; `None` on other links.
    pub fn lane_room(&self) -> Option<u32> {
        self.lanes.as_ref().map(|l| l.room())
    }

    /// Whether the sender of the link waits for room here.
    pub(super) const fn pushes_back(&self) -> bool {
        self.buffer.is_some() || self.lanes.is_some()
    }

    /// Whether the buffer has a part for each virtual lane.
    pub(super) const fn is_divided(&self) -> bool {
        self.lanes.is_some()
    }

    /// A fault takes a packet from the link. The credit that the sender spent comes back: on
    /// InfiniBand links the sender's total of blocks, which every flow-control packet carries,
    /// tells the receiver of those that it never saw.
    pub(super) fn lose(
        &mut self,
        now: Time,
        cause: DropCause,
        (wire_bytes, class): (u32, u8),
        out: &mut Out<FabricEvent>,
    ) {
        self.lost.add(cause, wire_bytes);
        if self.buffer.is_some() {
            self.credit(now, wire_bytes, out);
        }
        if let Some(lanes) = &mut self.lanes
            && let Some(at) = lanes.lost(now, self.rate, class, wire_bytes)
        {
            let (node, port, lane) = (self.node, self.port, class);
            out.at(at, Class::Timer, FabricEvent::FlowControlDue { node, port, lane });
        }
    }

    /// A fault adds a copy of a packet, for which the sender has spent no credit.
    pub(super) fn copy(&mut self, wire_bytes: u32, class: u8) {
        self.copied.add(wire_bytes);
        if let Some(lanes) = &mut self.lanes {
            lanes.copied(class, wire_bytes);
        }
        if self.buffer.is_some() {
            self.owed += u64::from(wire_bytes);
        }
    }

    #[inline]
    pub(super) fn arrived(&mut self, wire_bytes: u32, class: u8) {
        self.received.add(wire_bytes);
        if let Some(lanes) = &mut self.lanes {
            lanes.arrived(class, wire_bytes);
        }
        if let Some(buffer) = self.buffer {
            self.occupied += u64::from(wire_bytes);
            // The sender checked its credits; both must come to the same result.
            assert!(self.occupied <= buffer + self.owed, "a lossless buffer overflows");
        }
    }

    /// The packet's last bit leaves the buffer at `end`; the sender hears of it one propagation
    /// delay later, on InfiniBand when the return delay has passed as well.
    pub(super) fn give_back(
        &mut self,
        end: Time,
        (wire_bytes, class): (u32, u8),
        out: &mut Out<FabricEvent>,
    ) {
        if let Some(lanes) = &self.lanes {
            let (node, port, lane) = (self.node, self.port, class);
            let busy = lanes.busy(end, lane);
            let freed = FabricEvent::Freed { node, port, lane, wire_bytes, busy };
            out.at(lanes.returned_at(end), Class::Release, freed);
        }
        if self.buffer.is_none() {
            return;
        }
        self.occupied = self
            .occupied
            .checked_sub(u64::from(wire_bytes))
            .expect("more bytes leave the buffer than came");
        let pays = u64::from(wire_bytes).min(self.owed);
        self.owed -= pays;
        self.credit(end, wire_bytes - pays as u32, out);
    }

    /// The buffer of a lane is free again by so many bytes, and the sender may hear of it. What
    /// the port itself sends ends at `free_at`.
    pub(super) fn freed(
        &mut self,
        now: Time,
        free_at: Time,
        lane: u8,
        (wire_bytes, busy): (u32, u32),
        out: &mut Out<FabricEvent>,
    ) {
        self.lanes_mut().freed(lane, wire_bytes, busy);
        self.tell(now, free_at, lane, out);
    }

    /// The sender has told how much it has sent.
    pub(super) fn refresh(
        &mut self,
        now: Time,
        free_at: Time,
        lane: u8,
        out: &mut Out<FabricEvent>,
    ) {
        self.lanes_mut().refresh(lane);
        self.tell(now, free_at, lane, out);
    }

    /// Sends a flow-control packet if the limit of a lane has changed.
    #[inline]
    pub(super) fn tell(&mut self, now: Time, free_at: Time, lane: u8, out: &mut Out<FabricEvent>) {
        let Some(lanes) = &mut self.lanes else { return };
        if let Some((fccl, busy)) = lanes.news(lane) {
            let at = lanes.departs_at(now, free_at, self.rate) + self.propagation;
            let (node, port) = (self.peer, self.peer_port);
            out.at(at, Class::Release, FabricEvent::FlowControl { node, port, lane, fccl, busy });
        }
    }

    /// A packet that came in here waits for an output, be it for no time.
    #[inline]
    pub(super) fn queued(&mut self, now: Time, lane: u8) {
        if let Some(lanes) = &mut self.lanes {
            lanes.queued(now, lane);
        }
    }

    /// A packet that came in here waits no more; its last bit is gone at `end`.
    #[inline]
    pub(super) fn leaves_queue(&mut self, now: Time, end: Time, lane: u8) {
        if let Some(lanes) = &mut self.lanes {
            lanes.leaves_queue(now, end, lane);
        }
    }

    /// For how long packets of a lane that came in here have waited or been leaving, as
    /// flow-control packets have it.
    pub(super) fn busy(&self, now: Time, lane: u8) -> u32 {
        self.lanes.as_ref().map_or(0, |lanes| lanes.busy(now, lane))
    }

    fn lanes_mut(&mut self) -> &mut Receivers {
        self.lanes.as_mut().expect("only InfiniBand links ask for this event")
    }

    fn credit(&self, end: Time, bytes: u32, out: &mut Out<FabricEvent>) {
        if bytes > 0 {
            let ev = FabricEvent::Credit { node: self.peer, port: self.peer_port, bytes };
            out.at(end + self.propagation, Class::Release, ev);
        }
    }
}
