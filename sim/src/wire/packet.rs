//! A packet in flight.

use core::fmt;
use core::num::NonZeroU32;

use doorbell_core::verbs::PKey;

use super::codec::Ecn;
use super::id::{HostId, PortId};
use crate::rc::{PacketDesc, Reason};

/// Payloads up to this size are kept inside the packet; longer ones on the heap. Holds inline
/// words, immediates and atomics, and keeps [`Payload`] at 16 bytes.
pub const SMALL_PAYLOAD: usize = 14;

/// The payload bytes that a packet carries.
///
/// The length is in the packet's descriptor; here are only the bytes, and only where a region is
/// real. A packet from a virtual region takes the same time on the wire and carries nothing.
#[derive(Clone, PartialEq, Eq, Default)]
pub enum Payload {
    /// The packet has no payload.
    #[default]
    None,
    /// The payload comes from a virtual region: it has a length and no bytes.
    Lengths,
    /// Few bytes.
    Small {
        /// How many of `bytes` count.
        len: u8,
        /// The bytes, zero from `len` on.
        bytes: [u8; SMALL_PAYLOAD],
    },
    /// Many bytes. Boxed twice, so that a packet without them is the smaller.
    Heap(Box<Box<[u8]>>),
}

impl Payload {
    /// A copy of `data`; allocates only above [`SMALL_PAYLOAD`] bytes.
    pub fn copy_from(data: &[u8]) -> Self {
        if data.is_empty() {
            return Self::None;
        }
        if data.len() > SMALL_PAYLOAD {
            return Self::Heap(Box::new(data.into()));
        }
        let mut bytes = [0; SMALL_PAYLOAD];
        bytes[..data.len()].copy_from_slice(data);
        Self::Small { len: data.len() as u8, bytes }
    }

    /// The bytes: `None` for a virtual region, empty without payload.
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::None => Some(&[]),
            Self::Lengths => None,
            Self::Small { len, bytes } => Some(&bytes[..usize::from(*len)]),
            Self::Heap(bytes) => Some(bytes),
        }
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.bytes() {
            None => write!(f, "virtual"),
            Some(b) => write!(f, "{} bytes", b.len()),
        }
    }
}

/// A packet. It lives in the run's arena from its transmission to its arrival or its loss.
#[derive(Clone, Debug)]
pub struct Packet {
    /// The sending host,
    pub src: HostId,
    /// and its port.
    pub src_port: PortId,
    /// The destination,
    pub dst: HostId,
    /// and its port.
    pub dst_port: PortId,
    /// UDP source port of RoCEv2, the entropy of the path choice; native InfiniBand: unused.
    pub udp_source_port: u16,
    /// Sending QP as its NIC numbers it; for records only, it does not travel.
    pub src_qp: u32,
    /// Service level of the sending QP, 0 to 15: it chooses the traffic class on Ethernet, the
    /// virtual lane on InfiniBand.
    pub sl: u8,
    /// ECN field of the IP header; on InfiniBand [`Ecn::Ce`] stands for FECN. A switch marks it.
    pub ecn: Ecn,
    /// BECN of the BTH: in CNPs, and in ACKs that tell of a mark.
    pub becn: bool,
    /// BTH partition key: that of the sending QP.
    pub pkey: PKey,
    /// Transport headers, and where the payload came from.
    pub desc: PacketDesc,
    /// The payload bytes.
    pub payload: Payload,
    /// What hardly any packet has. Boxed: a network holds up to millions of them.
    pub remark: Option<Box<Remark>>,
}

/// What is worth a word about a packet and does not travel with it.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct Remark {
    /// Why it was sent.
    pub reason: Option<Reason>,
    /// Number in the plan, from 1, of the fault that damaged it on its way: its ICRC is wrong.
    pub corrupt: Option<NonZeroU32>,
    /// Whether a fault made it, as a copy of another one.
    pub copied: bool,
    /// Of a response: the request that the peer took last had been sent again, so the time from its
    /// first departure on is no time that an answer takes.
    pub of_resend: bool,
}

impl Remark {
    /// The remark of a packet that was sent for a reason, or answers what was sent again.
    pub fn because(reason: Option<Reason>, of_resend: bool) -> Option<Box<Self>> {
        let any = reason.is_some() || of_resend;
        any.then(|| Box::new(Self { reason, of_resend, ..Self::default() }))
    }
}

impl Packet {
    /// See [`Remark::reason`].
    pub fn reason(&self) -> Option<Reason> {
        self.remark.as_ref()?.reason
    }

    /// See [`Remark::corrupt`].
    pub fn corrupt(&self) -> Option<NonZeroU32> {
        self.remark.as_ref()?.corrupt
    }

    /// See [`Remark::copied`].
    pub fn copied(&self) -> bool {
        self.remark.as_ref().is_some_and(|remark| remark.copied)
    }

    /// A packet between two ports.
    ///
    /// # Panics
    /// When the payload has bytes and their number is not the descriptor's.
    pub fn new(
        (src, src_port): (HostId, PortId),
        (dst, dst_port): (HostId, PortId),
        desc: PacketDesc,
        payload: Payload,
        udp_source_port: u16,
    ) -> Self {
        if let Some(bytes) = payload.bytes() {
            assert_eq!(bytes.len(), desc.len as usize, "payload of another length");
        }
        Self {
            src,
            src_port,
            dst,
            dst_port,
            udp_source_port,
            src_qp: 0,
            sl: 0,
            ecn: Ecn::Ect0,
            becn: false,
            pkey: PKey::DEFAULT,
            desc,
            payload,
            remark: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use doorbell_core::verbs::{Opcode, Psn, Qpn};

    use crate::rc::Ext;

    #[test]
    fn packets_stay_small() {
        assert_eq!(core::mem::size_of::<Payload>(), 16);
        assert!(core::mem::size_of::<Packet>() <= 104, "a network holds millions");
    }

    fn packet(len: u32, payload: Payload) -> Packet {
        let desc = PacketDesc {
            opcode: Opcode::RcSendOnly,
            psn: Psn::new(1),
            dest: Qpn::new(2),
            ack_req: true,
            solicited: false,
            wqe: 0,
            offset: 0,
            len,
            ext: Ext::None,
        };
        let (from, to) = ((HostId(0), PortId(1)), (HostId(2), PortId(3)));
        Packet::new(from, to, desc, payload, 0xC000)
    }

    #[test]
    fn a_packet_knows_its_way() {
        let p = packet(5, Payload::copy_from(b"hello"));
        assert_eq!(
            (p.src, p.src_port, p.dst, p.dst_port),
            (HostId(0), PortId(1), HostId(2), PortId(3))
        );
    }

    #[test]
    #[should_panic(expected = "payload of another length")]
    fn payload_and_descriptor_agree_on_the_length() {
        packet(6, Payload::copy_from(b"hello"));
    }

    #[test]
    fn payload_moves_to_the_heap_above_its_limit() {
        let data: Vec<u8> = (0..=SMALL_PAYLOAD as u8).collect();
        let small = Payload::copy_from(&data[..SMALL_PAYLOAD]);
        assert!(matches!(small, Payload::Small { len, .. } if usize::from(len) == SMALL_PAYLOAD));
        assert_eq!(small.bytes(), Some(&data[..SMALL_PAYLOAD]));
        let heap = Payload::copy_from(&data);
        assert!(matches!(heap, Payload::Heap(_)));
        assert_eq!(heap.bytes(), Some(&data[..]));
    }

    #[test]
    fn no_payload_is_not_a_virtual_one() {
        assert_eq!(Payload::copy_from(&[]), Payload::None);
        assert_eq!(Payload::None.bytes(), Some(&[][..]));
        assert_eq!(Payload::Lengths.bytes(), None);
    }
}
