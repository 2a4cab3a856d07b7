//! The memory management of a switch with a shared buffer: which packet finds room, and whose
//! sender is paused.

use doorbell_core::units::{Span, Time};

use super::buffer::{Buffer, NoRoom};
use super::classes::MAX_CLASSES;
use super::egress::{EgressPort, Queued};
use super::event::{DropCause, FabricEvent, Tally};
use super::pfc::{Watchdog, pause_time};
use crate::engine::{Class, Out};
use crate::wire::{NodeId, PortId};

/// Which classes of an input port pause their sender, a bit each.
#[derive(Copy, Clone, Default, Debug)]
pub(super) struct Pausing {
    /// Classes that may: lossless, on a link that knows pauses.
    pub able: u8,
    /// Classes that do.
    pub now: u8,
    /// When the pause of each class is to be renewed.
    pub due: [Time; MAX_CLASSES],
    /// Pause time of a frame, in quanta.
    pub quanta: u16,
    /// Whether a pause is not renewed.
    pub lapse: bool,
    /// Packets that found neither room nor headroom, by class.
    pub overflowed: [Tally; MAX_CLASSES],
}

impl Pausing {
    /// The sender of a class has to stop; `reverse` is the output of the port.
    pub fn begin(
        &mut self,
        now: Time,
        at: (NodeId, PortId, u8),
        reverse: &mut EgressPort,
        out: &mut Out<FabricEvent>,
    ) {
        self.now |= 1 << at.2;
        self.send(now, at, reverse, out);
    }

    /// It may go on.
    pub fn end(
        &mut self,
        now: Time,
        class: u8,
        reverse: &mut EgressPort,
        out: &mut Out<FabricEvent>,
    ) {
        self.now &= !(1 << class);
        reverse.send_pause(now, class, 0, out);
    }

    /// Whether a pause is to be renewed now: it still holds, and did not end and begin anew since.
    pub fn is_due(&self, now: Time, class: u8) -> bool {
        self.now >> class & 1 == 1 && self.due[usize::from(class)] == now
    }

    /// Renews a pause that is due.
    pub fn refresh(
        &mut self,
        now: Time,
        at: (NodeId, PortId, u8),
        reverse: &mut EgressPort,
        out: &mut Out<FabricEvent>,
    ) {
        if self.is_due(now, at.2) {
            self.send(now, at, reverse, out);
        }
    }

    fn send(
        &mut self,
        now: Time,
        (node, port, class): (NodeId, PortId, u8),
        reverse: &mut EgressPort,
        out: &mut Out<FabricEvent>,
    ) {
        reverse.send_pause(now, class, self.quanta, out);
        if !self.lapse {
            // Half of the time is left for the frame to wait for its turn and to arrive.
            let half = Span::from_ps(pause_time(reverse.rate(), self.quanta).as_ps() / 2);
            self.due[usize::from(class)] = now + half;
            out.at(now + half, Class::Timer, FabricEvent::Refresh { node, port, class });
        }
    }
}

/// The shared buffer of a switch at work.
#[derive(Clone, Debug)]
pub(super) struct Mmu {
    pub buffer: Buffer,
    pub inputs: Vec<Pausing>,
    /// Input queues that pause their senders.
    pub pausing: u32,
    pub watchdog: Option<Watchdog>,
}

impl Mmu {
    /// Takes a packet into the buffer.
    pub fn admit(&mut self, item: Queued, to: PortId) -> Result<(), DropCause> {
        let Queued { wire_bytes, ingress, class, .. } = item;
        let able = self.inputs[ingress.index()].able >> class & 1 == 1;
        let (input, output) = ((ingress.index(), class), (to.index(), class));
        self.buffer.admit(input, output, wire_bytes.into(), able).map_err(|full| match full {
            NoRoom::Output => DropCause::TailDrop,
            NoRoom::Input => {
                self.inputs[ingress.index()].overflowed[usize::from(class)].add(wire_bytes);
                DropCause::IngressOverflow
            }
        })
    }

    /// Pauses the sender of an input queue if it is full, or has just been `refused` a packet while
    /// it holds others, whose departure will let it go on; `reverse` is the output of that port.
    pub fn pause_if_full(
        &mut self,
        now: Time,
        (node, port, class): (NodeId, PortId, u8),
        refused: bool,
        reverse: &mut EgressPort,
        out: &mut Out<FabricEvent>,
    ) {
        let state = &mut self.inputs[port.index()];
        let bit = 1 << class;
        if state.able & bit == 0 || state.now & bit != 0 {
            return;
        }
        let queue = (port.index(), class);
        let holds = self.buffer.input(queue) != (0, 0);
        if self.buffer.must_pause(queue) || refused && holds {
            state.begin(now, (node, port, class), reverse, out);
            self.pausing += 1;
        }
    }

    /// Whether the pause of an input queue is to be renewed now.
    pub fn is_due(&self, now: Time, port: PortId, class: u8) -> bool {
        self.inputs[port.index()].is_due(now, class)
    }

    /// Renews a pause that is due.
    pub fn refresh(
        &mut self,
        now: Time,
        at: (NodeId, PortId, u8),
        reverse: &mut EgressPort,
        out: &mut Out<FabricEvent>,
    ) {
        self.inputs[at.1.index()].refresh(now, at, reverse, out);
    }

    /// A packet leaves the buffer.
    pub fn release(&mut self, item: Queued, by: PortId) {
        let Queued { wire_bytes, ingress, class, .. } = item;
        self.buffer.release((ingress.index(), class), (by.index(), class), wire_bytes.into());
    }

    /// Lets the sender of an input queue go on if there is room.
    pub fn resume_if_room(
        &mut self,
        now: Time,
        (port, class): (PortId, u8),
        reverse: &mut EgressPort,
        out: &mut Out<FabricEvent>,
    ) {
        let state = &mut self.inputs[port.index()];
        let bit = 1 << class;
        if state.now & bit != 0 && self.buffer.resume((port.index(), class)) {
            state.end(now, class, reverse, out);
            self.pausing -= 1;
        }
    }
}
