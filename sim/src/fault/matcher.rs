//! Which packets a fault is about.

use doorbell_core::units::Time;
use doorbell_core::verbs::{Opcode, Operation, Psn, Qpn, Syndrome};

use super::name::{LinkEnd, LinkName};
use crate::nic::Nic;
use crate::rc::{Ext, PacketDesc};
use crate::wire::{HostId, Packet};

/// A time from `after` to just before `before`.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Window {
    /// First instant.
    pub after: Time,
    /// First instant that does not belong to it; [`Time::MAX`]: it does not end.
    pub before: Time,
}

impl Window {
    /// The whole run.
    pub const ALWAYS: Self = Self { after: Time::ZERO, before: Time::MAX };

    /// Whether `now` lies in it.
    pub fn holds(&self, now: Time) -> bool {
        self.after <= now && now < self.before
    }
}

impl Default for Window {
    fn default() -> Self {
        Self::ALWAYS
    }
}

/// Operation classes: opcodes that one speaks of together.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum PacketClass {
    /// Everything that a requester sends.
    Request,
    /// Everything that a responder sends.
    Response,
    /// SEND.
    Send,
    /// WRITE.
    Write,
    /// READ request.
    ReadRequest,
    /// READ response.
    ReadResponse,
    /// COMPARE SWAP and FETCH ADD requests.
    Atomic,
    /// Answer to an ATOMIC.
    AtomicAck,
    /// Positive acknowledgement.
    Ack,
    /// NAK: sequence error, or a refusal.
    Nak,
    /// RNR NAK.
    RnrNak,
}

impl PacketClass {
    /// All.
    pub const ALL: [Self; 11] = [
        Self::Request,
        Self::Response,
        Self::Send,
        Self::Write,
        Self::ReadRequest,
        Self::ReadResponse,
        Self::Atomic,
        Self::AtomicAck,
        Self::Ack,
        Self::Nak,
        Self::RnrNak,
    ];

    /// The word in files and reports.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Response => "response",
            Self::Send => "send",
            Self::Write => "write",
            Self::ReadRequest => "read-request",
            Self::ReadResponse => "read-response",
            Self::Atomic => "atomic",
            Self::AtomicAck => "atomic-ack",
            Self::Ack => "ack",
            Self::Nak => "nak",
            Self::RnrNak => "rnr-nak",
        }
    }

    /// Whether a packet of this opcode can belong to the class.
    pub const fn takes(self, opcode: Opcode) -> bool {
        let op = opcode.operation();
        match self {
            Self::Request => op.is_request(),
            Self::Response => op.is_response(),
            Self::Send => op.is_send(),
            Self::Write => op.is_rdma_write(),
            Self::ReadRequest => matches!(op, Operation::RdmaReadRequest),
            Self::ReadResponse => op.is_read_response(),
            Self::Atomic => op.is_atomic(),
            Self::AtomicAck => matches!(op, Operation::AtomicAcknowledge),
            Self::Ack | Self::Nak | Self::RnrNak => matches!(op, Operation::Acknowledge),
        }
    }

    /// Whether the packet belongs to the class.
    pub const fn holds(self, desc: &PacketDesc) -> bool {
        if !self.takes(desc.opcode) {
            return false;
        }
        let syndrome = match desc.ext {
            Ext::Aeth { syndrome, .. } => syndrome,
            _ => return !matches!(self, Self::Ack | Self::Nak | Self::RnrNak),
        };
        match self {
            Self::Ack => matches!(syndrome, Syndrome::Ack { .. }),
            Self::Nak => matches!(syndrome, Syndrome::Nak { .. } | Syndrome::Reserved { .. }),
            Self::RnrNak => matches!(syndrome, Syndrome::RnrNak { .. }),
            _ => true,
        }
    }
}

/// The word of an opcode in files: `rc-rdma-write-only`. CNP has two values in use, which the
/// number tells apart.
pub fn opcode_word(opcode: Opcode) -> String {
    if matches!(opcode.operation(), Operation::Cnp) {
        return format!("cnp-{:#04x}", opcode.value());
    }
    opcode.to_string().to_ascii_lowercase().replace(' ', "-")
}

/// Which packets. An absent field matches every packet; all given ones must hold.
///
/// `nth` counts the packets for which all other fields hold, over all links that are meant.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct Matcher {
    /// At the end of this link.
    pub link: Option<LinkName>,
    /// Sent into the link by this node.
    pub from: Option<LinkEnd>,
    /// Made by this host.
    pub source: Option<HostId>,
    /// For this host.
    pub dest: Option<HostId>,
    /// Made by this QP of the source.
    pub source_qp: Option<Qpn>,
    /// For this QP of the destination.
    pub dest_qp: Option<Qpn>,
    /// With this packet sequence number.
    pub psn: Option<Psn>,
    /// With this opcode.
    pub opcode: Option<Opcode>,
    /// Of this class.
    pub class: Option<PacketClass>,
    /// The n-th time that this PSN of this flow is seen at the end of this link: 1 is the first
    /// transmission, 2 the first retransmission.
    pub round: Option<u32>,
    /// Only the n-th packet that matches, counted from 1.
    pub nth: Option<u64>,
    /// Packets that arrive in this time.
    pub window: Window,
}

impl Matcher {
    /// Whether the packet's own fields and the time match; link, round and number are not asked.
    pub fn fits(&self, now: Time, p: &Packet) -> bool {
        fn is<T: PartialEq>(wanted: Option<T>, found: T) -> bool {
            wanted.is_none_or(|w| w == found)
        }
        self.window.holds(now)
            && is(self.source, p.src)
            && is(self.dest, p.dst)
            && is(self.source_qp, source_qpn(p))
            && is(self.dest_qp, p.desc.dest)
            && is(self.psn, p.desc.psn)
            && is(self.opcode, p.desc.opcode)
            && self.class.is_none_or(|c| c.holds(&p.desc))
    }
}

/// Number of the QP that made the packet. It does not travel; the packet knows the QP's index.
pub(super) fn source_qpn(p: &Packet) -> Qpn {
    Nic::qpn(p.src_port, p.src_qp)
}
