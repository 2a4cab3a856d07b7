//! What travels around the transport headers and is no part of a packet's descriptor.

use core::fmt;
use core::net::{Ipv4Addr, Ipv6Addr};

use doorbell_core::verbs::PKey;

/// Ethernet address.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Mac(pub [u8; 6]);

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, byte) in self.0.iter().enumerate() {
            let colon = if i == 0 { "" } else { ":" };
            write!(f, "{colon}{byte:02x}")?;
        }
        Ok(())
    }
}

/// Ethernet header.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Ethernet {
    /// Destination address.
    pub dst: Mac,
    /// Source address.
    pub src: Mac,
    /// Tag control of an 802.1Q tag: priority in bits 15 to 13, drop eligible in bit 12, VLAN in
    /// bits 11 to 0. `None`: untagged.
    pub vlan: Option<u16>,
}

/// The two ECN bits of a traffic class.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Ecn {
    /// The sender does not take part; a congested switch drops instead of marking.
    NotEct = 0,
    /// Takes part.
    Ect1 = 1,
    /// Takes part; what most senders write.
    Ect0 = 2,
    /// Congestion experienced: set by a switch.
    Ce = 3,
}

impl Ecn {
    /// The bits of a traffic class or TOS byte.
    pub const fn of(traffic_class: u8) -> Self {
        match traffic_class & 3 {
            0 => Self::NotEct,
            1 => Self::Ect1,
            2 => Self::Ect0,
            _ => Self::Ce,
        }
    }

    /// `traffic_class` with these bits.
    pub const fn set(self, traffic_class: u8) -> u8 {
        traffic_class & !3 | self as u8
    }
}

/// IP header. Lengths and the checksum of IPv4 are computed; IPv4 has no options, IPv6 no
/// extension headers, and nothing is a fragment.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Ip {
    /// IPv4.
    V4 {
        /// Type of service: DSCP in bits 7 to 2, [`Ecn`] below.
        traffic_class: u8,
        /// Identification, 0 from many senders.
        id: u16,
        /// Do not fragment; RoCEv2 senders set it.
        dont_fragment: bool,
        /// Time to live.
        ttl: u8,
        /// Source address.
        src: Ipv4Addr,
        /// Destination address.
        dst: Ipv4Addr,
    },
    /// IPv6.
    V6 {
        /// As in IPv4.
        traffic_class: u8,
        /// Flow label, 20 bits.
        flow_label: u32,
        /// Hop limit.
        hop_limit: u8,
        /// Source address.
        src: Ipv6Addr,
        /// Destination address.
        dst: Ipv6Addr,
    },
}

impl Ip {
    /// Largest flow label.
    pub const MAX_FLOW_LABEL: u32 = 0xF_FFFF;

    /// Bytes of the header.
    pub const fn bytes(&self) -> usize {
        match self {
            Self::V4 { .. } => 20,
            Self::V6 { .. } => 40,
        }
    }

    /// DSCP and ECN.
    pub const fn traffic_class(&self) -> u8 {
        match self {
            Self::V4 { traffic_class, .. } | Self::V6 { traffic_class, .. } => *traffic_class,
        }
    }
}

/// Checksum of the UDP header. The ICRC does not cover it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum UdpChecksum {
    /// 0: none. What senders write on IPv4, and on IPv6 too though IPv6 forbids it.
    None,
    /// The true one.
    Valid,
    /// Any other number: of a sender that leaves the rest to its NIC, or damaged.
    Other(u16),
}

/// UDP header; the destination port is [`UDP_PORT`](super::UDP_PORT).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Udp {
    /// Source port: the entropy of the path choice.
    pub source: u16,
    /// Checksum.
    pub checksum: UdpChecksum,
}

/// What the BTH says beyond the descriptor.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct BthBits {
    /// Partition key.
    pub pkey: PKey,
    /// Migrated: set without path migration, save by some (CNPs of ConnectX-4 have 0).
    pub mig_req: bool,
    /// Forward congestion notification. RoCEv2 marks in the IP header instead.
    pub fecn: bool,
    /// Backward congestion notification: set in CNPs.
    pub becn: bool,
}

impl Default for BthBits {
    /// Default partition, full member, migrated, no congestion.
    fn default() -> Self {
        Self { pkey: PKey::DEFAULT, mig_req: true, fecn: false, becn: false }
    }
}

/// Everything in a frame that is neither descriptor nor payload and cannot be computed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Outer {
    /// Ethernet header.
    pub eth: Ethernet,
    /// IP header.
    pub ip: Ip,
    /// UDP header.
    pub udp: Udp,
    /// Rest of the BTH.
    pub bth: BthBits,
}
