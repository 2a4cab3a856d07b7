//! Wire size of a packet per encapsulation.
//!
//! A packet is outer headers, BTH and its extension headers, payload, pad to four bytes, ICRC and
//! the link's own trailer. On Ethernet the preamble and the gap between frames count as well,
//! because they take time on the link like any other byte.

/// What stands around the BTH on the wire.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Encapsulation {
    /// RoCEv2 over untagged Ethernet and IPv4.
    RoceV2Ipv4,
    /// RoCEv2 over Ethernet with one 802.1Q tag and IPv4; PFC by priority needs the tag.
    RoceV2Ipv4Vlan,
    /// RoCEv2 over untagged Ethernet and IPv6.
    RoceV2Ipv6,
    /// RoCEv1: a GRH directly after the Ethernet header.
    RoceV1,
    /// Native InfiniBand inside one subnet: LRH only.
    IbLocal,
    /// Native InfiniBand with a GRH.
    IbGlobal,
    /// A fixed number of bytes added to every payload, whatever the packet is: no pad, no minimum
    /// frame, no extension headers. For comparison with simulators that count so.
    Custom {
        /// Bytes added to each payload.
        header_bytes: u16,
    },
}

const ETH_PREAMBLE: u32 = 8;
const ETH_HEADER: u32 = 14;
const ETH_FCS: u32 = 4;
const ETH_IFG: u32 = 12;
const ETH: u32 = ETH_PREAMBLE + ETH_HEADER + ETH_FCS + ETH_IFG;
/// Shortest frame before its FCS.
const ETH_MIN: u32 = 60;
const VLAN_TAG: u32 = 4;
const IPV4: u32 = 20;
const IPV6: u32 = 40;
const UDP: u32 = 8;
const GRH: u32 = 40;
const LRH: u32 = 8;
const ICRC: u32 = 4;
const VCRC: u32 = 2;

impl Encapsulation {
    /// Bytes around BTH, extension headers, payload and pad.
    pub const fn outer_bytes(self) -> u32 {
        match self {
            Self::RoceV2Ipv4 => ETH + IPV4 + UDP + ICRC,
            Self::RoceV2Ipv4Vlan => ETH + VLAN_TAG + IPV4 + UDP + ICRC,
            Self::RoceV2Ipv6 => ETH + IPV6 + UDP + ICRC,
            Self::RoceV1 => ETH + GRH + ICRC,
            Self::IbLocal => LRH + ICRC + VCRC,
            Self::IbGlobal => LRH + GRH + ICRC + VCRC,
            Self::Custom { header_bytes } => header_bytes as u32,
        }
    }

    /// Fewest bytes that a packet takes: the padded minimum frame of Ethernet, else none.
    ///
    /// A tagged frame has the same minimum as an untagged one: a sender need not pad for the tag.
    pub const fn min_bytes(self) -> u32 {
        match self {
            Self::RoceV2Ipv4 | Self::RoceV2Ipv4Vlan | Self::RoceV2Ipv6 | Self::RoceV1 => {
                ETH_MIN + ETH_PREAMBLE + ETH_FCS + ETH_IFG
            }
            Self::IbLocal | Self::IbGlobal | Self::Custom { .. } => 0,
        }
    }
}

/// Bytes on the wire of a packet with `header_bytes` of BTH and extension headers and `payload`
/// bytes of payload.
pub const fn frame_bytes(encap: Encapsulation, header_bytes: u32, payload: u32) -> u32 {
    if let Encapsulation::Custom { header_bytes } = encap {
        return header_bytes as u32 + payload;
    }
    let bytes = encap.outer_bytes() + header_bytes + payload.next_multiple_of(4);
    let min = encap.min_bytes();
    if bytes < min { min } else { bytes }
}
