//! What the fabric asks to be woken for, and what it answers.

use doorbell_core::units::Span;

use crate::wire::{HostId, NodeId, PacketId, PortId};

/// An event of one node of the fabric. The owner hands it back at its time.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum FabricEvent {
    /// A packet has come in: at a host with its last bit, at a switch when it may enter the
    /// queue of its output port.
    Arrive {
        /// Where.
        node: NodeId,
        /// The port it came in by.
        port: PortId,
        /// The packet.
        packet: PacketId,
        /// Its size on the wire.
        wire_bytes: u32,
    },
    /// The last bit of a packet that a cut-through switch must store, because its output port is
    /// faster than its input port.
    Stored {
        /// Where.
        node: NodeId,
        /// The port it came in by.
        port: PortId,
        /// The output port that was chosen when its first bits came.
        to: PortId,
        /// The packet.
        packet: PacketId,
        /// Bytes on the wire; an MTU has 4096 at most.
        wire_bytes: u16,
    },
    /// A port has sent its last bit and a packet waits.
    PortFree {
        /// Where.
        node: NodeId,
        /// Which output port.
        port: PortId,
    },
    /// The far end of a link has room again.
    Credit {
        /// Who may send more.
        node: NodeId,
        /// By which output port.
        port: PortId,
        /// How much more, in bytes on the wire.
        bytes: u32,
    },
    /// A pause frame takes effect at an output port.
    Pause {
        /// Who is paused.
        node: NodeId,
        /// By which output port.
        port: PortId,
        /// Which class.
        class: u8,
        /// For how long, in quanta; 0: not any more.
        quanta: u16,
    },
    /// The time of a pause is over.
    PauseEnd {
        /// Who was paused.
        node: NodeId,
        /// By which output port.
        port: PortId,
        /// Which class.
        class: u8,
    },
    /// A pause that was sent needs a new one if it shall last.
    Refresh {
        /// Who pauses.
        node: NodeId,
        /// The sender at the far end of this port.
        port: PortId,
        /// Which class.
        class: u8,
    },
    /// A packet has left the buffer behind an input port of an InfiniBand link, and the return
    /// delay has passed.
    Freed {
        /// Where.
        node: NodeId,
        /// Which input port.
        port: PortId,
        /// Of which virtual lane.
        lane: u8,
        /// Its size on the wire.
        wire_bytes: u32,
        /// For how long there had been packets of the lane when its last bit left, in units of the
        /// lane, modulo 2^32: a record that decides nothing.
        busy: u32,
    },
    /// A flow-control packet of an InfiniBand link has come.
    FlowControl {
        /// Who may send more.
        node: NodeId,
        /// By which output port.
        port: PortId,
        /// On which virtual lane.
        lane: u8,
        /// Up to which total of blocks, modulo 4096.
        fccl: u16,
        /// For how long there had been packets of the lane when the last one left, as above.
        busy: u32,
    },
    /// The next regular flow-control packet, which comes behind packets that were lost on the cable
    /// and counts them.
    FlowControlDue {
        /// Where.
        node: NodeId,
        /// At which input port.
        port: PortId,
        /// Of which virtual lane.
        lane: u8,
    },
}

impl FabricEvent {
    /// The node that the event belongs to; the island of that node handles it.
    pub const fn node(self) -> NodeId {
        match self {
            Self::Arrive { node, .. }
            | Self::Stored { node, .. }
            | Self::PortFree { node, .. }
            | Self::Credit { node, .. }
            | Self::Pause { node, .. }
            | Self::PauseEnd { node, .. }
            | Self::Freed { node, .. }
            | Self::FlowControl { node, .. }
            | Self::FlowControlDue { node, .. }
            | Self::Refresh { node, .. } => node,
        }
    }
}

impl FabricEvent {
    /// Whether a packet that waited may begin to leave by it.
    pub(crate) const fn may_start(self) -> bool {
        !matches!(self, Self::Arrive { .. })
    }
}

/// A packet that has reached its host. It is the caller's again.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Delivery {
    /// The host.
    pub host: HostId,
    /// The port it came in by.
    pub port: PortId,
    /// The packet.
    pub packet: PacketId,
    /// Its size on the wire.
    pub wire_bytes: u32,
}

/// A packet that was dropped. It is the caller's again.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Dropped {
    /// Where.
    pub node: NodeId,
    /// For [`DropCause::TailDrop`] the output port that was full, else the input port.
    pub port: PortId,
    /// The packet.
    pub packet: PacketId,
    /// Its size on the wire.
    pub wire_bytes: u32,
    /// Why.
    pub cause: DropCause,
}

/// Why a packet was dropped.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum DropCause {
    /// The queue of the output port had no room for the whole packet.
    TailDrop,
    /// The switch has no route to the destination.
    NoRoute,
    /// A planned fault took it from the link.
    Fault,
    /// The link was down, by a planned fault.
    LinkDown,
    /// The host at one end of the link was dead, by a planned fault.
    PeerDead,
    /// It is larger than the link takes that it came by or should leave by.
    Oversize,
    /// The input queue of its class had no room, headroom included, in the shared buffer.
    IngressOverflow,
    /// It was in a switch that a planned fault rebooted, or on a link of it.
    SwitchReboot,
}

impl DropCause {
    /// Every cause, in the order of the tables that are indexed by cause.
    pub const ALL: [Self; 8] = [
        Self::TailDrop,
        Self::NoRoute,
        Self::Fault,
        Self::LinkDown,
        Self::PeerDead,
        Self::Oversize,
        Self::IngressOverflow,
        Self::SwitchReboot,
    ];

    /// The name that reports use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TailDrop => "tail_drop",
            Self::NoRoute => "no_route",
            Self::Fault => "fault_drop",
            Self::LinkDown => "link_down",
            Self::PeerDead => "peer_dead",
            Self::Oversize => "oversize",
            Self::IngressOverflow => "ingress_overflow",
            Self::SwitchReboot => "switch_reboot",
        }
    }
}

/// The answer to one event.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[must_use = "a delivered or dropped packet belongs to the caller"]
pub enum Outcome {
    /// Nothing that concerns anyone outside the fabric.
    Nothing,
    /// A packet has reached its host.
    Delivered(Delivery),
    /// A packet is lost.
    Dropped(Dropped),
    /// A host's transmit port for which this was asked takes packets again.
    TxReady {
        /// The host.
        host: HostId,
        /// Its port.
        port: PortId,
    },
}

/// Packets and the bytes they take on the wire.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct Tally {
    /// Packets.
    pub packets: u64,
    /// Bytes on the wire.
    pub bytes: u64,
}

impl Tally {
    /// Counts one packet.
    pub const fn add(&mut self, wire_bytes: u32) {
        self.packets += 1;
        self.bytes += wire_bytes as u64;
    }

    /// Takes one packet off.
    ///
    /// # Panics
    /// When it was not counted before.
    pub const fn remove(&mut self, wire_bytes: u32) {
        self.packets = self.packets.checked_sub(1).expect("a packet that never came");
        self.bytes = self.bytes.checked_sub(wire_bytes as u64).expect("bytes that never came");
    }

    /// The sum of both.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self { packets: self.packets + other.packets, bytes: self.bytes + other.bytes }
    }

    /// The difference, `None` when `other` is larger.
    #[must_use]
    pub const fn checked_minus(self, other: Self) -> Option<Self> {
        match (self.packets.checked_sub(other.packets), self.bytes.checked_sub(other.bytes)) {
            (Some(packets), Some(bytes)) => Some(Self { packets, bytes }),
            _ => None,
        }
    }
}

/// Drops by cause.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct Drops([Tally; DropCause::ALL.len()]);

impl Drops {
    /// Counts one packet.
    pub const fn add(&mut self, cause: DropCause, wire_bytes: u32) {
        self.0[cause as usize].add(wire_bytes);
    }

    /// Drops of one cause.
    pub const fn of(&self, cause: DropCause) -> Tally {
        self.0[cause as usize]
    }

    /// Drops of every cause together.
    pub fn total(&self) -> Tally {
        self.0.iter().fold(Tally::default(), |sum, t| sum.plus(*t))
    }

    /// Cause by cause, the sum of both.
    #[must_use]
    pub fn plus(mut self, other: &Self) -> Self {
        for (a, b) in self.0.iter_mut().zip(&other.0) {
            *a = a.plus(*b);
        }
        self
    }
}

/// What one output port has done in one of several traffic classes.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct ClassCounters {
    /// Packets whose transmission has begun.
    pub sent: Tally,
    /// Packets dropped here, for want of room or by a reboot.
    pub dropped: Tally,
    /// Most bytes that waited at once, without the packet being sent.
    pub max_waiting_bytes: u64,
}

/// What one output port has done so far.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct PortCounters {
    /// Packets whose transmission has begun.
    pub sent: Tally,
    /// Packets that found no room, by cause.
    pub dropped: Drops,
    /// Most bytes that were in the queue at once, the packet being sent included.
    pub max_queue_bytes: u64,
    /// Time spent sending.
    pub busy: Span,
    /// Time during which a packet waited, the port was free and the far end had no room.
    pub blocked: Span,
    /// Time for which packets waited in the queue, summed over them, for their turn or for room at
    /// the far end.
    pub waited: Span,
    /// Packets that got an ECN mark.
    pub marked: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_stays_small() {
        assert_eq!(core::mem::size_of::<FabricEvent>(), 16);
    }

    #[test]
    fn causes_index_their_own_counter() {
        let mut d = Drops::default();
        for (i, c) in DropCause::ALL.into_iter().enumerate() {
            assert_eq!(c as usize, i);
            d.add(c, 100);
            assert_eq!(d.of(c), Tally { packets: 1, bytes: 100 });
        }
        let n = DropCause::ALL.len() as u64;
        assert_eq!(d.total(), Tally { packets: n, bytes: 100 * n });
    }
}
