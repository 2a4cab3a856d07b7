//! The receiving side of a node's port: its buffer, and whom to give room back to.

use doorbell_core::units::{BitRate, Span, Time};

use super::event::{FabricEvent, Tally};
use crate::engine::{Class, Out};
use crate::wire::{NodeId, PortId};

/// The receiving side of a port.
#[derive(Clone, Debug)]
pub struct Ingress {
    pub(super) peer: NodeId,
    pub(super) peer_port: PortId,
    pub(super) rate: BitRate,
    pub(super) propagation: Span,
    /// Size of the buffer in bytes, `None` when this side never pushes back.
    pub(super) buffer: Option<u64>,
    pub(super) occupied: u64,
    pub(super) received: Tally,
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

    pub(super) fn arrived(&mut self, wire_bytes: u32) {
        self.received.add(wire_bytes);
        if let Some(buffer) = self.buffer {
            self.occupied += u64::from(wire_bytes);
            // The sender checked its credits; both must come to the same result.
            assert!(self.occupied <= buffer, "a lossless buffer overflows");
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
        let ev = FabricEvent::Credit { node: self.peer, port: self.peer_port, bytes: wire_bytes };
        out.at(end + self.propagation, Class::Release, ev);
    }
}
