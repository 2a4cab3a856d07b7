//! What the NIC is handed with every call, and what it schedules.

use doorbell_core::units::Time;

use crate::engine::{Class, ComponentId, Out, Timeline};
use crate::fabric::{FabricEvent, HostNode};
use crate::memory::{RegionKind, RegionTable};
use crate::pcie::{Cause, Kind, NodeId, PcieEvent, PcieTree, Target, Transaction};
use crate::wire::{PacketId, Packets, PortId};

/// An event of a NIC.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum NicEvent {
    /// The doorbell unit has taken a doorbell.
    Doorbell {
        /// The QP.
        qp: u32,
        /// Producer index that it announced.
        prod: u32,
        /// Whether it carried the WQE.
        blueflame: bool,
    },
    /// A processing unit is done with a packet.
    Pu(u16),
    /// A receive unit is done with a packet.
    Rx(PacketId),
    /// Responses of a QP are due.
    Respond(u32),
    /// A CQE may be written.
    Cqe(u32),
    /// The atomic unit is done with an ATOMIC.
    Atomic(u32),
    /// A timer of a QP may have expired.
    Timer(u32),
    /// The time of a flow's next packet may have come.
    Pace(u32),
    /// A CNP is ready for the port.
    Cnp(PacketId),
    /// Pages that the payload of a packet waited for are there.
    PageIn(u32),
}

/// Something that a program may wait for has happened.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Wake {
    /// A CQE landed.
    Cq {
        /// The NIC,
        nic: u8,
        /// and the index of the queue in it.
        cq: u32,
    },
    /// Bytes of host or GPU memory changed.
    Memory {
        /// First address.
        addr: u64,
        /// Bytes.
        len: u64,
    },
    /// An asynchronous event for an initiator.
    Async(u16),
}

/// What happened, for the trace hash: kind and two logical ids.
pub type Traced = (u32, u64, u64);

/// The NIC's surroundings during one call. It schedules nothing by itself: what it wants to happen
/// is left in the lists, which the island empties when the call is over.
#[derive(Debug)]
pub struct Env<'a> {
    /// Now.
    pub now: Time,
    /// The NIC's events.
    pub out: &'a mut Out<NicEvent>,
    /// PCIe tree of the host.
    pub pcie: &'a mut PcieTree,
    /// The tree's events.
    pub pcie_out: &'a mut Out<PcieEvent>,
    /// Registered memory.
    pub regions: &'a mut RegionTable,
    /// All packets.
    pub packets: &'a mut Packets,
    /// The host's ports.
    pub port: &'a mut HostNode,
    /// The ports' events.
    pub fabric_out: &'a mut Out<FabricEvent>,
    /// What happened that somebody may wait for.
    pub wakes: &'a mut Vec<Wake>,
    /// What happened, for the trace hash.
    pub traced: &'a mut Vec<(ComponentId, Traced)>,
    /// The NIC, for these.
    pub id: ComponentId,
    /// Whether DMA to host memory hits the last-level cache.
    pub llc: bool,
    /// Recorder of single messages.
    pub timeline: &'a mut Timeline,
}

impl Env<'_> {
    /// Schedules an event of the NIC.
    pub fn at(&mut self, t: Time, class: Class, ev: NicEvent) {
        self.out.at(t, class, ev);
    }

    /// Starts a PCIe transaction.
    pub fn submit(&mut self, t: Transaction) {
        self.pcie.submit(self.now, t, self.pcie_out);
    }

    /// PCIe target of a memory.
    pub const fn target(&self, space: RegionKind) -> Target {
        match space {
            RegionKind::Host { numa } => Target::HostMemory { numa, llc: self.llc },
            RegionKind::Gpu { node } => Target::Node(NodeId(node)),
        }
    }

    /// A DMA by the NIC at `node`.
    #[expect(clippy::too_many_arguments, reason = "one argument per field of the transaction")]
    pub fn dma(
        &mut self,
        node: NodeId,
        kind: Kind,
        space: RegionKind,
        addr: u64,
        bytes: u32,
        cause: Cause,
        tag: u64,
    ) {
        let target = self.target(space);
        self.submit(Transaction { kind, from: node, target, bytes, addr, cause, tag });
    }

    /// Hands a packet to a port of the host; it takes `wire_bytes` there. Gives when its last bit
    /// leaves; `None`: it waits.
    pub fn transmit(&mut self, packet: PacketId, wire_bytes: u32, by: PortId) -> Option<Time> {
        let sl = self.packets[packet.0].sl;
        let sent = self.port.send(self.now, by, packet, wire_bytes, sl, self.fabric_out);
        sent.expect("the port of a NIC has no limit of its own")
    }

    /// Folds what happened into the trace hash.
    pub fn trace(&mut self, kind: u32, a: u64, b: u64) {
        self.traced.push((self.id, (kind, a, b)));
    }
}

/// Kinds of trace records of a NIC. Values are part of the trace hash.
pub mod kind {
    /// Doorbell: QP, producer index.
    pub const DOORBELL: u32 = 1;
    /// WQE executed: QP, index.
    pub const WQE: u32 = 2;
    /// Packet sent: QP and opcode, PSN.
    pub const TX: u32 = 3;
    /// Packet received: QP and opcode, PSN.
    pub const RX: u32 = 4;
    /// CQE landed: QP, wr_id.
    pub const CQE: u32 = 5;
    /// Payload landed in memory: address, length.
    pub const PLACED: u32 = 6;
    /// QP state changed: QP, state.
    pub const STATE: u32 = 7;
    /// Stale WQE executed: QP, index.
    pub const STALE: u32 = 8;
    /// A timer of a QP expired: QP, PSN that has to go out.
    pub const TIMER: u32 = 9;
}

/// What a PCIe transaction of the NIC was for, packed into its tag.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Tag {
    Doorbell { qp: u32, prod: u32, blueflame: bool, initiator: u8 },
    Wqe { qp: u32, first: u32, count: u8 },
    Context { qp: u32 },
    Payload { qp: u32, seq: u32, response: bool },
    RxWrite(u32),
    Cqe(u32),
    RecvFetch { queue: u32, srq: bool, number: u32 },
    AtomicRead(u32),
    AtomicWrite(u32),
    WqeRefetch { qp: u32 },
}

/// Bits of a QP index in a tag.
pub(super) const QP_BITS: u32 = 20;

impl Tag {
    pub fn pack(self) -> u64 {
        let t = |kind: u64, small: u64, qp: u32, low: u32| {
            debug_assert!(qp < 1 << QP_BITS);
            kind << 60 | small << 52 | u64::from(qp) << 32 | u64::from(low)
        };
        match self {
            Self::Doorbell { qp, prod, blueflame, initiator } => {
                t(0, u64::from(blueflame) | u64::from(initiator) << 1, qp, prod)
            }
            Self::Wqe { qp, first, count } => t(1, u64::from(count), qp, first),
            Self::Context { qp } => t(2, 0, qp, 0),
            Self::Payload { qp, seq, response } => t(3, u64::from(response), qp, seq),
            Self::RxWrite(id) => t(4, 0, 0, id),
            Self::Cqe(id) => t(5, 0, 0, id),
            Self::RecvFetch { queue, srq, number } => t(6, u64::from(srq), queue, number),
            Self::AtomicRead(id) => t(7, 0, 0, id),
            Self::AtomicWrite(id) => t(8, 0, 0, id),
            Self::WqeRefetch { qp } => t(9, 0, qp, 0),
        }
    }

    pub fn unpack(tag: u64) -> Self {
        let small = (tag >> 52) as u8;
        let qp = (tag >> 32) as u32 & ((1 << QP_BITS) - 1);
        let low = tag as u32;
        match tag >> 60 {
            0 => Self::Doorbell { qp, prod: low, blueflame: small & 1 == 1, initiator: small >> 1 },
            1 => Self::Wqe { qp, first: low, count: small },
            2 => Self::Context { qp },
            3 => Self::Payload { qp, seq: low, response: small == 1 },
            4 => Self::RxWrite(low),
            5 => Self::Cqe(low),
            6 => Self::RecvFetch { queue: qp, srq: small == 1, number: low },
            7 => Self::AtomicRead(low),
            8 => Self::AtomicWrite(low),
            9 => Self::WqeRefetch { qp },
            other => unreachable!("tag kind {other}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_come_back() {
        let qp = (1 << QP_BITS) - 1;
        for tag in [
            Tag::Doorbell { qp, prod: u32::MAX, blueflame: true, initiator: 127 },
            Tag::Doorbell { qp: 0, prod: 1, blueflame: false, initiator: 1 },
            Tag::Wqe { qp, first: u32::MAX, count: 255 },
            Tag::Context { qp },
            Tag::Payload { qp, seq: u32::MAX, response: true },
            Tag::RxWrite(u32::MAX),
            Tag::Cqe(7),
            Tag::RecvFetch { queue: qp, srq: true, number: u32::MAX },
            Tag::AtomicRead(1),
            Tag::AtomicWrite(2),
            Tag::WqeRefetch { qp },
        ] {
            assert_eq!(Tag::unpack(tag.pack()), tag);
        }
    }

    #[test]
    fn events_stay_small() {
        assert!(size_of::<NicEvent>() <= 12, "{}", size_of::<NicEvent>());
    }
}
