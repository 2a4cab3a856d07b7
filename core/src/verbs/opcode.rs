//! Opcodes: of packets (BTH), of work requests, of work completions.

use core::fmt;

use super::{QpType, UnknownCode};

mod wr;

pub use wr::{WcOpcode, WrOpcode};

/// Transport service of a packet: the upper three bits of the BTH opcode.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Service {
    /// Reliable Connection, 0x00.
    Rc,
    /// Unreliable Connection, 0x20.
    Uc,
    /// Reliable Datagram, 0x40: obsolete, no device implements it.
    Rd,
    /// Unreliable Datagram, 0x60.
    Ud,
    /// Congestion notification, 0x80.
    Cnp,
    /// Extended Reliable Connection, 0xA0.
    Xrc,
}

impl Service {
    /// The first opcode of the service.
    pub const fn base(self) -> u8 {
        match self {
            Self::Rc => 0x00,
            Self::Uc => 0x20,
            Self::Rd => 0x40,
            Self::Ud => 0x60,
            Self::Cnp => 0x80,
            Self::Xrc => 0xA0,
        }
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rc => "RC",
            Self::Uc => "UC",
            Self::Rd => "RD",
            Self::Ud => "UD",
            Self::Cnp => "CNP",
            Self::Xrc => "XRC",
        })
    }
}

/// How many payload bytes a packet may carry (P = path MTU).
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum PayloadRule {
    /// None.
    Empty,
    /// Exactly P: first and middle packets.
    Full,
    /// 1 ..= P: last packets.
    OneToMtu,
    /// 0 ..= P: only packets.
    ZeroToMtu,
    /// Exactly this many: 8 of ATOMIC WRITE, 16 zero bytes of a CNP.
    Exact(u8),
}

impl PayloadRule {
    /// Whether `len` bytes are legal at path MTU `mtu_bytes`.
    pub const fn allows(self, len: u32, mtu_bytes: u32) -> bool {
        match self {
            Self::Empty => len == 0,
            Self::Full => len == mtu_bytes,
            Self::OneToMtu => len >= 1 && len <= mtu_bytes,
            Self::ZeroToMtu => len <= mtu_bytes,
            Self::Exact(n) => len == n as u32,
        }
    }
}

macro_rules! operations {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $text:literal, $starts:literal,
        $ends:literal, $payload:expr;)*) => {
        /// What a packet does, whatever the service that carries it. The value is the lower five
        /// bits of the BTH opcode, save that of `Cnp`, which has two.
        #[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum Operation { $($(#[$doc])* $name = $code,)* }

        impl Operation {
            /// All.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// First or only packet of a message or of a response.
            pub const fn starts_message(self) -> bool {
                match self { $(Self::$name => $starts,)* }
            }

            /// Last or only packet of a message or of a response.
            pub const fn ends_message(self) -> bool {
                match self { $(Self::$name => $ends,)* }
            }

            /// Legal payload lengths.
            pub const fn payload(self) -> PayloadRule {
                match self { $(Self::$name => $payload,)* }
            }
        }

        impl fmt::Display for Operation {
            /// The words that Wireshark uses.
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Self::$name => $text,)* })
            }
        }
    };
}

operations! {
    /// First packet of a SEND of several; takes the receive WQE.
    SendFirst = 0x00, "Send First", true, false, PayloadRule::Full;
    /// Middle packet of a SEND.
    SendMiddle = 0x01, "Send Middle", false, false, PayloadRule::Full;
    /// Last packet of a SEND.
    SendLast = 0x02, "Send Last", false, true, PayloadRule::OneToMtu;
    /// Last packet of a SEND, with immediate data.
    SendLastImm = 0x03, "Send Last Immediate", false, true, PayloadRule::OneToMtu;
    /// SEND of one packet.
    SendOnly = 0x04, "Send Only", true, true, PayloadRule::ZeroToMtu;
    /// SEND of one packet, with immediate data.
    SendOnlyImm = 0x05, "Send Only Immediate", true, true, PayloadRule::ZeroToMtu;
    /// First packet of a WRITE; its RETH covers the whole message.
    RdmaWriteFirst = 0x06, "RDMA Write First", true, false, PayloadRule::Full;
    /// Middle packet of a WRITE.
    RdmaWriteMiddle = 0x07, "RDMA Write Middle", false, false, PayloadRule::Full;
    /// Last packet of a WRITE.
    RdmaWriteLast = 0x08, "RDMA Write Last", false, true, PayloadRule::OneToMtu;
    /// Last packet of a WRITE with immediate data; takes a receive WQE.
    RdmaWriteLastImm = 0x09, "RDMA Write Last Immediate", false, true, PayloadRule::OneToMtu;
    /// WRITE of one packet.
    RdmaWriteOnly = 0x0A, "RDMA Write Only", true, true, PayloadRule::ZeroToMtu;
    /// WRITE of one packet with immediate data; takes a receive WQE.
    RdmaWriteOnlyImm = 0x0B, "RDMA Write Only Immediate", true, true, PayloadRule::ZeroToMtu;
    /// READ request: one packet, but as many PSNs as its response has packets.
    RdmaReadRequest = 0x0C, "RDMA Read Request", true, true, PayloadRule::Empty;
    /// First packet of a READ response of several.
    RdmaReadResponseFirst = 0x0D, "RDMA Read Response First", true, false, PayloadRule::Full;
    /// Middle packet of a READ response; the only response without AETH.
    RdmaReadResponseMiddle = 0x0E, "RDMA Read Response Middle", false, false, PayloadRule::Full;
    /// Last packet of a READ response.
    RdmaReadResponseLast = 0x0F, "RDMA Read Response Last", false, true, PayloadRule::OneToMtu;
    /// READ response of one packet; also answers FLUSH and ATOMIC WRITE, with length 0.
    RdmaReadResponseOnly = 0x10, "RDMA Read Response Only", true, true, PayloadRule::ZeroToMtu;
    /// ACK, NAK or RNR NAK, as the AETH says.
    Acknowledge = 0x11, "Acknowledge", true, true, PayloadRule::Empty;
    /// Answer to an ATOMIC: the old value.
    AtomicAcknowledge = 0x12, "Atomic Acknowledge", true, true, PayloadRule::Empty;
    /// ATOMIC compare and swap.
    CompareSwap = 0x13, "Compare Swap", true, true, PayloadRule::Empty;
    /// ATOMIC fetch and add.
    FetchAdd = 0x14, "Fetch Add", true, true, PayloadRule::Empty;
    /// Last packet of a SEND that invalidates an R_Key of the receiver.
    SendLastInvalidate = 0x16, "Send Last Invalidate", false, true, PayloadRule::OneToMtu;
    /// SEND of one packet that invalidates an R_Key of the receiver.
    SendOnlyInvalidate = 0x17, "Send Only Invalidate", true, true, PayloadRule::ZeroToMtu;
    /// Makes earlier WRITEs visible or persistent.
    Flush = 0x1C, "Flush", true, true, PayloadRule::Empty;
    /// WRITE of 8 bytes, atomic.
    AtomicWrite = 0x1D, "Atomic Write", true, true, PayloadRule::Exact(8);
    /// Resynchronisation of Reliable Datagram.
    Resync = 0x15, "Resync", true, true, PayloadRule::Empty;
    /// Congestion notification: not acknowledged, uses no PSN.
    Cnp = 0x1F, "CNP", true, true, PayloadRule::Exact(16);
}

impl Operation {
    /// A packet of a SEND, with or without immediate data or invalidation.
    pub const fn is_send(self) -> bool {
        use Operation as O;
        matches!(self, O::SendFirst | O::SendMiddle | O::SendLast | O::SendLastImm)
            || matches!(self, O::SendOnly | O::SendOnlyImm)
            || matches!(self, O::SendLastInvalidate | O::SendOnlyInvalidate)
    }

    /// A packet of a WRITE, with or without immediate data. ATOMIC WRITE is not one.
    pub const fn is_rdma_write(self) -> bool {
        use Operation as O;
        matches!(self, O::RdmaWriteFirst | O::RdmaWriteMiddle | O::RdmaWriteLast)
            || matches!(self, O::RdmaWriteLastImm | O::RdmaWriteOnly | O::RdmaWriteOnlyImm)
    }

    /// A packet of a READ response.
    pub const fn is_read_response(self) -> bool {
        use Operation as O;
        matches!(self, O::RdmaReadResponseFirst | O::RdmaReadResponseMiddle)
            || matches!(self, O::RdmaReadResponseLast | O::RdmaReadResponseOnly)
    }

    /// A compare-and-swap or fetch-and-add request.
    pub const fn is_atomic(self) -> bool {
        matches!(self, Self::CompareSwap | Self::FetchAdd)
    }

    /// Goes from responder to requester.
    pub const fn is_response(self) -> bool {
        self.is_read_response() || matches!(self, Self::Acknowledge | Self::AtomicAcknowledge)
    }

    /// Goes from requester to responder. A CNP is neither request nor response.
    pub const fn is_request(self) -> bool {
        !self.is_response() && !matches!(self, Self::Cnp)
    }

    /// Carries immediate data.
    pub const fn has_imm(self) -> bool {
        use Operation as O;
        matches!(self, O::SendLastImm | O::SendOnlyImm | O::RdmaWriteLastImm | O::RdmaWriteOnlyImm)
    }

    /// Carries an R_Key to invalidate.
    pub const fn has_ieth(self) -> bool {
        matches!(self, Self::SendLastInvalidate | Self::SendOnlyInvalidate)
    }

    /// Carries VA, R_Key and DMA length.
    pub const fn has_reth(self) -> bool {
        use Operation as O;
        matches!(self, O::RdmaWriteFirst | O::RdmaWriteOnly | O::RdmaWriteOnlyImm)
            || matches!(self, O::RdmaReadRequest | O::Flush | O::AtomicWrite)
    }

    /// Carries syndrome and MSN.
    pub const fn has_aeth(self) -> bool {
        self.is_response() && !matches!(self, Self::RdmaReadResponseMiddle)
    }

    /// Takes a receive WQE: the first packet of a SEND, the last of a WRITE with immediate.
    pub const fn consumes_recv(self) -> bool {
        (self.is_send() && self.starts_message())
            || matches!(self, Self::RdmaWriteLastImm | Self::RdmaWriteOnlyImm)
    }
}

macro_rules! opcodes {
    ($($name:ident = $code:literal, $service:ident, $op:ident;)*) => {
        /// Opcode of the base transport header: service and operation.
        ///
        /// Sources: Linux `include/rdma/ib_pack.h`, rxe, Wireshark `packet-infiniband.c`; the CNP
        /// code of RoCEv2 from captured frames (IBTA and the kernel give 0x80, which native
        /// InfiniBand uses). 0x15 is reserved, 0xC0 and above belong to manufacturers.
        ///
        /// ```
        /// use doorbell_core::verbs::{Opcode, Service};
        /// let op = Opcode::try_from(0x0A).unwrap();
        /// assert_eq!(op, Opcode::RcRdmaWriteOnly);
        /// assert_eq!(op.service(), Service::Rc);
        /// assert_eq!(op.header_bytes(), 12 + 16);
        /// ```
        #[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum Opcode {
            $(
                #[doc = concat!("`", stringify!($op), "` of ", stringify!($service), ".")]
                $name = $code,
            )*
        }

        impl Opcode {
            /// All that are defined, in the order of the values.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The transport service.
            pub const fn service(self) -> Service {
                match self { $(Self::$name => Service::$service,)* }
            }

            /// What the packet does.
            #[inline]
            pub const fn operation(self) -> Operation {
                match self { $(Self::$name => Operation::$op,)* }
            }
        }

        impl TryFrom<u8> for Opcode {
            type Error = UnknownCode;
            fn try_from(v: u8) -> Result<Self, UnknownCode> {
                match v {
                    $($code => Ok(Self::$name),)*
                    _ => Err(UnknownCode { space: "BTH opcode", code: v.into() }),
                }
            }
        }
    };
}

opcodes! {
    RcSendFirst = 0x00, Rc, SendFirst;
    RcSendMiddle = 0x01, Rc, SendMiddle;
    RcSendLast = 0x02, Rc, SendLast;
    RcSendLastImm = 0x03, Rc, SendLastImm;
    RcSendOnly = 0x04, Rc, SendOnly;
    RcSendOnlyImm = 0x05, Rc, SendOnlyImm;
    RcRdmaWriteFirst = 0x06, Rc, RdmaWriteFirst;
    RcRdmaWriteMiddle = 0x07, Rc, RdmaWriteMiddle;
    RcRdmaWriteLast = 0x08, Rc, RdmaWriteLast;
    RcRdmaWriteLastImm = 0x09, Rc, RdmaWriteLastImm;
    RcRdmaWriteOnly = 0x0A, Rc, RdmaWriteOnly;
    RcRdmaWriteOnlyImm = 0x0B, Rc, RdmaWriteOnlyImm;
    RcRdmaReadRequest = 0x0C, Rc, RdmaReadRequest;
    RcRdmaReadResponseFirst = 0x0D, Rc, RdmaReadResponseFirst;
    RcRdmaReadResponseMiddle = 0x0E, Rc, RdmaReadResponseMiddle;
    RcRdmaReadResponseLast = 0x0F, Rc, RdmaReadResponseLast;
    RcRdmaReadResponseOnly = 0x10, Rc, RdmaReadResponseOnly;
    RcAcknowledge = 0x11, Rc, Acknowledge;
    RcAtomicAcknowledge = 0x12, Rc, AtomicAcknowledge;
    RcCompareSwap = 0x13, Rc, CompareSwap;
    RcFetchAdd = 0x14, Rc, FetchAdd;
    RcSendLastInvalidate = 0x16, Rc, SendLastInvalidate;
    RcSendOnlyInvalidate = 0x17, Rc, SendOnlyInvalidate;
    RcFlush = 0x1C, Rc, Flush;
    RcAtomicWrite = 0x1D, Rc, AtomicWrite;
    UcSendFirst = 0x20, Uc, SendFirst;
    UcSendMiddle = 0x21, Uc, SendMiddle;
    UcSendLast = 0x22, Uc, SendLast;
    UcSendLastImm = 0x23, Uc, SendLastImm;
    UcSendOnly = 0x24, Uc, SendOnly;
    UcSendOnlyImm = 0x25, Uc, SendOnlyImm;
    UcRdmaWriteFirst = 0x26, Uc, RdmaWriteFirst;
    UcRdmaWriteMiddle = 0x27, Uc, RdmaWriteMiddle;
    UcRdmaWriteLast = 0x28, Uc, RdmaWriteLast;
    UcRdmaWriteLastImm = 0x29, Uc, RdmaWriteLastImm;
    UcRdmaWriteOnly = 0x2A, Uc, RdmaWriteOnly;
    UcRdmaWriteOnlyImm = 0x2B, Uc, RdmaWriteOnlyImm;
    RdSendFirst = 0x40, Rd, SendFirst;
    RdSendMiddle = 0x41, Rd, SendMiddle;
    RdSendLast = 0x42, Rd, SendLast;
    RdSendLastImm = 0x43, Rd, SendLastImm;
    RdSendOnly = 0x44, Rd, SendOnly;
    RdSendOnlyImm = 0x45, Rd, SendOnlyImm;
    RdRdmaWriteFirst = 0x46, Rd, RdmaWriteFirst;
    RdRdmaWriteMiddle = 0x47, Rd, RdmaWriteMiddle;
    RdRdmaWriteLast = 0x48, Rd, RdmaWriteLast;
    RdRdmaWriteLastImm = 0x49, Rd, RdmaWriteLastImm;
    RdRdmaWriteOnly = 0x4A, Rd, RdmaWriteOnly;
    RdRdmaWriteOnlyImm = 0x4B, Rd, RdmaWriteOnlyImm;
    RdRdmaReadRequest = 0x4C, Rd, RdmaReadRequest;
    RdRdmaReadResponseFirst = 0x4D, Rd, RdmaReadResponseFirst;
    RdRdmaReadResponseMiddle = 0x4E, Rd, RdmaReadResponseMiddle;
    RdRdmaReadResponseLast = 0x4F, Rd, RdmaReadResponseLast;
    RdRdmaReadResponseOnly = 0x50, Rd, RdmaReadResponseOnly;
    RdAcknowledge = 0x51, Rd, Acknowledge;
    RdAtomicAcknowledge = 0x52, Rd, AtomicAcknowledge;
    RdCompareSwap = 0x53, Rd, CompareSwap;
    RdFetchAdd = 0x54, Rd, FetchAdd;
    RdResync = 0x55, Rd, Resync;
    UdSendOnly = 0x64, Ud, SendOnly;
    UdSendOnlyImm = 0x65, Ud, SendOnlyImm;
    CnpInfiniband = 0x80, Cnp, Cnp;
    CnpRoceV2 = 0x81, Cnp, Cnp;
    XrcSendFirst = 0xA0, Xrc, SendFirst;
    XrcSendMiddle = 0xA1, Xrc, SendMiddle;
    XrcSendLast = 0xA2, Xrc, SendLast;
    XrcSendLastImm = 0xA3, Xrc, SendLastImm;
    XrcSendOnly = 0xA4, Xrc, SendOnly;
    XrcSendOnlyImm = 0xA5, Xrc, SendOnlyImm;
    XrcRdmaWriteFirst = 0xA6, Xrc, RdmaWriteFirst;
    XrcRdmaWriteMiddle = 0xA7, Xrc, RdmaWriteMiddle;
    XrcRdmaWriteLast = 0xA8, Xrc, RdmaWriteLast;
    XrcRdmaWriteLastImm = 0xA9, Xrc, RdmaWriteLastImm;
    XrcRdmaWriteOnly = 0xAA, Xrc, RdmaWriteOnly;
    XrcRdmaWriteOnlyImm = 0xAB, Xrc, RdmaWriteOnlyImm;
    XrcRdmaReadRequest = 0xAC, Xrc, RdmaReadRequest;
    XrcRdmaReadResponseFirst = 0xAD, Xrc, RdmaReadResponseFirst;
    XrcRdmaReadResponseMiddle = 0xAE, Xrc, RdmaReadResponseMiddle;
    XrcRdmaReadResponseLast = 0xAF, Xrc, RdmaReadResponseLast;
    XrcRdmaReadResponseOnly = 0xB0, Xrc, RdmaReadResponseOnly;
    XrcAcknowledge = 0xB1, Xrc, Acknowledge;
    XrcAtomicAcknowledge = 0xB2, Xrc, AtomicAcknowledge;
    XrcCompareSwap = 0xB3, Xrc, CompareSwap;
    XrcFetchAdd = 0xB4, Xrc, FetchAdd;
    XrcSendLastInvalidate = 0xB6, Xrc, SendLastInvalidate;
    XrcSendOnlyInvalidate = 0xB7, Xrc, SendOnlyInvalidate;
}

/// Header lengths in bytes.
mod len {
    pub const BTH: u8 = 12;
    /// RDETH and XRCETH alike.
    pub const RDETH: u8 = 4;
    pub const DETH: u8 = 8;
    pub const RETH: u8 = 16;
    pub const ATOMIC_ETH: u8 = 28;
    pub const AETH: u8 = 4;
    pub const ATOMIC_ACK_ETH: u8 = 8;
    pub const IMM_DT: u8 = 4;
    pub const IETH: u8 = 4;
    pub const FETH: u8 = 4;
}

impl Opcode {
    /// The byte in the BTH.
    pub const fn value(self) -> u8 {
        self as u8
    }

    /// The opcode of `op` on `service`; `None` where there is none, and for `Cnp`, of which
    /// there are two.
    pub fn of(service: Service, op: Operation) -> Option<Self> {
        let known = Self::try_from(service.base() | op as u8).ok()?;
        (known.operation() == op).then_some(known)
    }

    /// From requester to responder. A CNP is neither request nor response.
    pub const fn is_request(self) -> bool {
        self.operation().is_request()
    }

    /// From responder to requester.
    pub const fn is_response(self) -> bool {
        self.operation().is_response()
    }

    /// First or only packet.
    pub const fn starts_message(self) -> bool {
        self.operation().starts_message()
    }

    /// Last or only packet.
    pub const fn ends_message(self) -> bool {
        self.operation().ends_message()
    }

    /// Legal payload lengths.
    pub const fn payload(self) -> PayloadRule {
        self.operation().payload()
    }

    /// Whether bytes may follow the headers.
    pub const fn has_payload(self) -> bool {
        !matches!(self.payload(), PayloadRule::Empty)
    }

    /// RDETH: every packet of Reliable Datagram.
    pub const fn has_rdeth(self) -> bool {
        matches!(self.service(), Service::Rd)
    }

    /// XRCETH, the SRQ number: requests of XRC.
    pub const fn has_xrceth(self) -> bool {
        matches!(self.service(), Service::Xrc) && self.is_request()
    }

    /// DETH, Q_Key and source QP: UD, and requests of RD.
    pub const fn has_deth(self) -> bool {
        matches!(self.service(), Service::Ud | Service::Rd) && self.is_request()
    }

    /// RETH.
    pub const fn has_reth(self) -> bool {
        self.operation().has_reth()
    }

    /// AtomicETH: address, key and operands.
    pub const fn has_atomic_eth(self) -> bool {
        self.operation().is_atomic()
    }

    /// AETH.
    pub const fn has_aeth(self) -> bool {
        self.operation().has_aeth()
    }

    /// AtomicAckETH, the old value.
    pub const fn has_atomic_ack_eth(self) -> bool {
        matches!(self.operation(), Operation::AtomicAcknowledge)
    }

    /// Immediate data.
    pub const fn has_imm(self) -> bool {
        self.operation().has_imm()
    }

    /// IETH, the R_Key to invalidate.
    pub const fn has_ieth(self) -> bool {
        self.operation().has_ieth()
    }

    /// FETH, the placement asked of a FLUSH.
    pub const fn has_feth(self) -> bool {
        matches!(self.operation(), Operation::Flush)
    }

    /// Whether the packet takes a receive WQE.
    pub const fn consumes_recv(self) -> bool {
        self.operation().consumes_recv()
    }

    /// Bytes of the transport headers, BTH included; payload, pad and CRCs are not. The 16 zero
    /// bytes of a CNP count as payload.
    pub const fn header_bytes(self) -> u32 {
        HEADER_BYTES[self as usize] as u32
    }

    const fn sum_of_headers(self) -> u8 {
        let mut n = len::BTH;
        if self.has_rdeth() || self.has_xrceth() {
            n += len::RDETH;
        }
        if self.has_deth() {
            n += len::DETH;
        }
        if self.has_feth() {
            n += len::FETH;
        }
        if self.has_reth() {
            n += len::RETH;
        }
        if self.has_atomic_eth() {
            n += len::ATOMIC_ETH;
        }
        if self.has_aeth() {
            n += len::AETH;
        }
        if self.has_atomic_ack_eth() {
            n += len::ATOMIC_ACK_ETH;
        }
        if self.has_imm() {
            n += len::IMM_DT;
        }
        if self.has_ieth() {
            n += len::IETH;
        }
        n
    }
}

/// Header bytes by opcode: looked up once or more for every packet.
const HEADER_BYTES: [u8; 256] = {
    let mut table = [0; 256];
    let mut i = 0;
    while i < Opcode::ALL.len() {
        table[Opcode::ALL[i] as usize] = Opcode::ALL[i].sum_of_headers();
        i += 1;
    }
    table
};

impl fmt::Display for Opcode {
    /// As Wireshark prints it: `RC RDMA Write Only`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.operation() {
            Operation::Cnp => f.write_str("CNP"),
            op => write!(f, "{} {op}", self.service()),
        }
    }
}

#[cfg(test)]
mod tests;
