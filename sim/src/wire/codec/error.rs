//! Why bytes are no frame, and why a descriptor has none.

use core::fmt;

use doorbell_core::verbs::Opcode;

macro_rules! fields {
    ($($(#[$doc:meta])* $name:ident, $text:literal;)*) => {
        /// A header, or a field that has one legal value here.
        #[derive(Copy, Clone, PartialEq, Eq, Debug)]
        pub enum Field { $($(#[$doc])* $name,)* }

        impl fmt::Display for Field {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Self::$name => $text,)* })
            }
        }
    };
}

fields! {
    /// Ethernet header.
    Ethernet, "the Ethernet header";
    /// 802.1Q tag.
    Vlan, "the 802.1Q tag";
    /// IPv4 header.
    Ipv4, "the IPv4 header";
    /// IPv6 header.
    Ipv6, "the IPv6 header";
    /// UDP header.
    Udp, "the UDP header";
    /// Base transport header.
    Bth, "the BTH";
    /// Extended headers of the opcode.
    Extended, "the extended headers";
    /// The bytes that the IP header promises.
    Datagram, "the datagram";
    /// IP version, 4 or 6 as the ethertype says.
    IpVersion, "IP version";
    /// Length of the IPv4 header in words, 5: no options.
    HeaderLength, "IPv4 header length";
    /// Reserved and more-fragments bit and offset of IPv4, 0.
    Fragment, "IPv4 fragment bits";
    /// Protocol or next header, 17.
    Protocol, "IP protocol";
    /// UDP destination port, 4791.
    UdpPort, "UDP destination port";
    /// UDP length: what the IP header leaves for it.
    UdpLength, "UDP length";
    /// TVer of the BTH, 0.
    TransportVersion, "TVer";
    /// Bits 5 to 0 of byte 4 of the BTH, 0.
    BthReserved6, "the reserved bits behind BECN";
    /// Bits 6 to 0 of byte 8 of the BTH, 0.
    BthReserved7, "the reserved bits behind AckReq";
    /// Byte 4 of the DETH, 0.
    DethReserved, "the reserved byte of the DETH";
    /// PadCnt: it takes payload and pad to a multiple of four bytes, and is no more than these.
    PadCount, "PadCnt";
    /// A pad byte, 0.
    Pad, "a pad byte";
    /// A byte behind the datagram, 0: it takes the frame to Ethernet's minimum.
    Trailer, "a byte behind the datagram";
    /// Local route header of InfiniBand.
    Lrh, "the LRH";
    /// LVer of the LRH, 0.
    LinkVersion, "LVer";
    /// Bits 3 and 2 of byte 1 and bits 7 to 3 of byte 4 of the LRH, 0.
    LrhReserved, "the reserved bits of the LRH";
    /// LNH of the LRH, 2: the BTH follows.
    NextHeader, "LNH";
    /// PktLen of the LRH: the packet without its VCRC.
    PacketLength, "the packet of this PktLen";
    /// A virtual lane, 4 bits.
    Vl, "virtual lane";
    /// A service level, 4 bits.
    Sl, "service level";
    /// A flow label, 20 bits.
    FlowLabel, "flow label";
}

/// Why bytes are no RoCEv2 frame, or no packet of native InfiniBand. Offsets count bytes from the
/// first of the frame.
///
/// Checks go from the outside in, and the ICRC comes last: [`DecodeError::Icrc`] means that
/// everything else is right.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum DecodeError {
    /// The frame, or the datagram, ends too early.
    Truncated {
        /// Where `part` begins.
        offset: usize,
        /// What does not fit.
        part: Field,
        /// Bytes that it takes.
        needed: usize,
        /// Bytes that are left.
        left: usize,
    },
    /// Neither IPv4 nor IPv6, or a second tag.
    EtherType {
        /// Where.
        offset: usize,
        /// The number there; 0x0800 and 0x86DD are known.
        got: u16,
    },
    /// A field has another value than the one that is legal here.
    Value {
        /// Where.
        offset: usize,
        /// Which.
        field: Field,
        /// The legal value.
        expected: u32,
        /// The value there.
        got: u32,
    },
    /// The checksum of the IPv4 header is wrong.
    IpChecksum {
        /// Where.
        offset: usize,
        /// The sum of the header.
        expected: u16,
        /// The number there.
        got: u16,
    },
    /// No opcode of any service.
    Opcode {
        /// Where.
        offset: usize,
        /// The number there.
        got: u8,
    },
    /// An opcode that has no descriptor: FLUSH, Reliable Datagram, XRC.
    Unsupported {
        /// Where.
        offset: usize,
        /// Which.
        opcode: Opcode,
    },
    /// More payload than the largest path MTU.
    Payload {
        /// Where the payload begins.
        offset: usize,
        /// Its bytes, of which 4096 are legal.
        got: usize,
    },
    /// Bytes behind the datagram that Ethernet's minimum does not ask for; an FCS, for instance.
    Trailer {
        /// Where they begin.
        offset: usize,
        /// How many.
        extra: usize,
    },
    /// Everything is right but the ICRC: the packet was damaged on the way.
    Icrc {
        /// Where.
        offset: usize,
        /// The ICRC of the packet.
        expected: u32,
        /// The number there.
        got: u32,
    },
    /// Everything is right but the VCRC of native InfiniBand: damaged on its last link.
    Vcrc {
        /// Where.
        offset: usize,
        /// The VCRC of the packet.
        expected: u16,
        /// The number there.
        got: u16,
    },
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Truncated { offset, part, needed, left } => {
                write!(f, "byte {offset}: {part} takes {needed} bytes, {left} are left")
            }
            Self::EtherType { offset, got } => {
                write!(f, "byte {offset}: ethertype {got:#06x} is neither IPv4 nor IPv6")
            }
            Self::Value { offset, field, expected, got } => {
                write!(f, "byte {offset}: {field} is {got}, expected {expected}")
            }
            Self::IpChecksum { offset, expected, got } => {
                write!(f, "byte {offset}: IPv4 checksum {got:#06x}, expected {expected:#06x}")
            }
            Self::Opcode { offset, got } => write!(f, "byte {offset}: unknown opcode {got:#04x}"),
            Self::Unsupported { offset, opcode } => {
                write!(f, "byte {offset}: {opcode:?} is not supported")
            }
            Self::Payload { offset, got } => {
                let max = super::MAX_PAYLOAD;
                write!(f, "byte {offset}: {got} bytes of payload, at most {max} are legal")
            }
            Self::Trailer { offset, extra } => {
                write!(f, "byte {offset}: {extra} bytes behind the datagram; cut off the FCS")
            }
            Self::Icrc { offset, expected, got } => {
                write!(f, "byte {offset}: ICRC {got:#010x}, expected {expected:#010x}")
            }
            Self::Vcrc { offset, expected, got } => {
                write!(f, "byte {offset}: VCRC {got:#06x}, expected {expected:#06x}")
            }
        }
    }
}

impl std::error::Error for DecodeError {}

/// Why a descriptor has no frame.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum EncodeError {
    /// The extended header is not the one that belongs to the opcode.
    Header {
        /// The opcode.
        opcode: Opcode,
    },
    /// FLUSH, Reliable Datagram, XRC.
    Unsupported {
        /// The opcode.
        opcode: Opcode,
    },
    /// The payload has another length than the descriptor says.
    PayloadLength {
        /// Bytes of the descriptor.
        described: u32,
        /// Bytes that were given.
        given: usize,
    },
    /// More payload than the largest path MTU.
    Payload {
        /// Bytes, of which 4096 are legal.
        got: u32,
    },
    /// A number needs more bits than its field has.
    TooWide {
        /// Which.
        field: Field,
        /// The number.
        got: u32,
        /// The largest that fits.
        max: u32,
    },
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Header { opcode } => {
                write!(f, "the extended header is not that of {opcode:?}")
            }
            Self::Unsupported { opcode } => write!(f, "{opcode:?} is not supported"),
            Self::PayloadLength { described, given } => {
                write!(f, "{given} bytes of payload where the descriptor says {described}")
            }
            Self::Payload { got } => {
                write!(f, "{got} bytes of payload, at most {} are legal", super::MAX_PAYLOAD)
            }
            Self::TooWide { field, got, max } => write!(f, "{field} is {got}, at most {max} fits"),
        }
    }
}

impl std::error::Error for EncodeError {}
