//! The receiving side of a node's port: its buffer, and whom to give room back to.

use doorbell_core::units::{BitRate, Span, Time};

use super::event::{DropCause, Drops, FabricEvent, Tally};
use crate::engine::{Class, Out};
use crate::wire::{NodeId, PortId};

/// The receiving side of a port.
#[derive(Clone, Debug)]
pub struct Ingress {
    pub(super) peer: NodeId,
    pub(super) peer_port: PortId,
    pub(super) rate: BitRate,
    pub(super) propagation: Span,
    /// Largest packet that the link takes, in bytes on the wire.
    pub(super) max_packet_bytes: u32,
    /// Size of the buffer in bytes, `None` when this side never pushes back.
    pub(super) buffer: Option<u64>,
    pub(super) occupied: u64,
    pub(super) received: Tally,
    /// Packets that faults took from the link just before it ended here.
    pub(super) lost: Drops,
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
    pub const fn lost(&self) -> &Drops {
        &self.lost
    }

    /// Packets that faults added on the link that ends here.
    pub const fn copied(&self) -> Tally {
        self.copied
    }

    /// A fault takes a packet from the link. The credit that the sender spent comes back: on
    /// InfiniBand links the sender's total of blocks, which every flow-control packet carries,
    /// tells the receiver of those that it never saw.
    pub(super) fn lose(
        &mut self,
        now: Time,
        cause: DropCause,
        wire_bytes: u32,
        out: &mut Out<FabricEvent>,
    ) {
        self.lost.add(cause, wire_bytes);
        if self.buffer.is_some() {
            self.credit(now, wire_bytes, out);
        }
    }

    /// A fault adds a copy of a packet, for which the sender has spent no credit.
    pub(super) fn copy(&mut self, wire_bytes: u32) {
        self.copied.add(wire_bytes);
        if self.buffer.is_some() {
            self.owed += u64::from(wire_bytes);
        }
    }

    pub(super) fn arrived(&mut self, wire_bytes: u32) {
        self.received.add(wire_bytes);
        if let Some(buffer) = self.buffer {
            self.occupied += u64::from(wire_bytes);
            // The sender checked its credits; both must come to the same result.
            assert!(self.occupied <= buffer + self.owed, "a lossless buffer overflows");
        }
    }

    /// The packet's last bit leaves the buffer at `end`; the sender hears of it one propagation
    /// delay later.
    pub(super) fn give_back(&mut self, end: Time, wire_bytes: u32, out: &mut Out<FabricEvent>) {
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

    fn credit(&self, end: Time, bytes: u32, out: &mut Out<FabricEvent>) {
        if bytes > 0 {
            let ev = FabricEvent::Credit { node: self.peer, port: self.peer_port, bytes };
            out.at(end + self.propagation, Class::Release, ev);
        }
    }
}
