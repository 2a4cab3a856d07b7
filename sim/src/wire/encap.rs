//! Wire size of a packet per encapsulation.
//!
//! A packet is outer headers, BTH and its extension headers, payload, pad to four bytes, ICRC and
//! the link's own trailer. On Ethernet the preamble and the gap between frames count as well,
//! because they take time on the link like any other byte.

use doorbell_core::verbs::{Opcode, Service};

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
const GRH: u32 = doorbell_core::verbs::GRH_BYTES;
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

    /// Largest packet on a link of this MTU, in bytes on the wire.
    ///
    /// An Ethernet MTU (1500, 4200, 9000) counts what stands between the Ethernet header and the
    /// FCS, IP header and ICRC included. That of native InfiniBand, and of headers that are a
    /// mere number, counts the payload; the model allows every such packet the longest headers.
    pub const fn largest_packet(self, mtu: u32) -> u32 {
        match self {
            Self::RoceV2Ipv4 | Self::RoceV2Ipv6 | Self::RoceV1 => ETH + mtu,
            Self::RoceV2Ipv4Vlan => ETH + VLAN_TAG + mtu,
            Self::IbLocal | Self::IbGlobal => self.outer_bytes() + LONGEST_HEADERS + mtu,
            Self::Custom { header_bytes } => header_bytes as u32 + mtu,
        }
    }

    /// Largest packet that a queue pair of this path MTU sends, in bytes on the wire: a full
    /// payload behind the longest headers that a packet with payload has in RC, UC and UD.
    pub const fn largest_sent(self, mtu: u32) -> u32 {
        frame_bytes(self, LONGEST_WITH_PAYLOAD, mtu)
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

/// Header bytes per opcode, since the vocabulary adds them up header by header and this is asked
/// for every packet.
const HEADER_BYTES: [u8; 256] = {
    let mut table = [0; 256];
    let mut i = 0;
    while i < Opcode::ALL.len() {
        let op = Opcode::ALL[i];
        table[op as usize] = op.header_bytes() as u8;
        i += 1;
    }
    table
};

/// BTH and extension headers of the opcode that has most.
const LONGEST_HEADERS: u32 = {
    let (mut i, mut most) = (0, 0);
    while i < HEADER_BYTES.len() {
        if HEADER_BYTES[i] > most {
            most = HEADER_BYTES[i];
        }
        i += 1;
    }
    most as u32
};

/// BTH and extension headers of the opcode with payload that has most, of the services that are
/// modelled: WRITE Only with immediate data.
const LONGEST_WITH_PAYLOAD: u32 = {
    let (mut i, mut most) = (0, 0);
    while i < Opcode::ALL.len() {
        let op = Opcode::ALL[i];
        let ours = matches!(op.service(), Service::Rc | Service::Uc | Service::Ud);
        if ours && op.has_payload() && op.header_bytes() > most {
            most = op.header_bytes();
        }
        i += 1;
    }
    most
};

/// Bytes on the wire of a packet with `opcode` and `payload` bytes of payload. The 16 zero bytes
/// of a CNP count as payload.
pub const fn wire_bytes(encap: Encapsulation, opcode: Opcode, payload: u32) -> u32 {
    frame_bytes(encap, HEADER_BYTES[opcode as usize] as u32, payload)
}

#[cfg(test)]
mod tests {
    use super::*;
    use Encapsulation::*;

    const ENCAPS: [Encapsulation; 6] =
        [RoceV2Ipv4, RoceV2Ipv4Vlan, RoceV2Ipv6, RoceV1, IbLocal, IbGlobal];

    /// The first table of protocol.md 1.6: operations, a payload they may have, overheads in the
    /// order of `ENCAPS`.
    fn overheads() -> Vec<(Vec<Opcode>, u32, [u32; 6])> {
        use Opcode::*;
        vec![
            (
                vec![
                    RcSendFirst,
                    RcSendMiddle,
                    RcSendLast,
                    RcSendOnly,
                    RcRdmaWriteMiddle,
                    RcRdmaWriteLast,
                    RcRdmaReadResponseMiddle,
                ],
                1024,
                [82, 86, 102, 94, 26, 66],
            ),
            (
                vec![RcRdmaReadResponseFirst, RcRdmaReadResponseLast, RcRdmaReadResponseOnly],
                1024,
                [86, 90, 106, 98, 30, 70],
            ),
            (vec![RcRdmaWriteFirst, RcRdmaWriteOnly], 1024, [98, 102, 118, 110, 42, 82]),
            (vec![RcRdmaReadRequest], 0, [98, 102, 118, 110, 42, 82]),
            (vec![RcRdmaWriteOnlyImm], 1024, [102, 106, 122, 114, 46, 86]),
            (vec![RcAcknowledge], 0, [86, 90, 106, 98, 30, 70]),
            (vec![RcCompareSwap, RcFetchAdd], 0, [110, 114, 130, 122, 54, 94]),
            (vec![RcAtomicAcknowledge], 0, [94, 98, 114, 106, 38, 78]),
        ]
    }

    #[test]
    fn overhead_table() {
        for (ops, payload, want) in overheads() {
            for op in ops {
                for (encap, want) in ENCAPS.into_iter().zip(want) {
                    let got = wire_bytes(encap, op, payload) - payload;
                    assert_eq!(got, want, "{op:?} {encap:?}");
                }
            }
        }
    }

    #[test]
    fn the_largest_packet_is_a_write_with_immediate_data() {
        for encap in ENCAPS.into_iter().chain([Custom { header_bytes: 38 }]) {
            let want = wire_bytes(encap, Opcode::RcRdmaWriteOnlyImm, 4096);
            assert_eq!(encap.largest_sent(4096), want, "{encap:?}");
        }
        assert_eq!(RoceV2Ipv6.largest_sent(4096), 4_218);
    }

    #[test]
    fn cnp_row_counts_its_zero_bytes_as_overhead() {
        for (encap, want) in ENCAPS.into_iter().zip([98, 102, 118, 110, 42, 82]) {
            assert_eq!(wire_bytes(encap, Opcode::CnpRoceV2, 16), want);
            assert_eq!(wire_bytes(encap, Opcode::CnpInfiniband, 16), want);
        }
    }

    /// Hundredths of a percent, rounded to the nearest.
    fn efficiency(encap: Encapsulation, op: Opcode, payload: u32) -> u32 {
        let wire = wire_bytes(encap, op, payload);
        (payload * 10_000 * 2 + wire) / (wire * 2)
    }

    #[test]
    fn efficiency_table() {
        use Opcode::*;
        let middle = [7574, 8620, 9259, 9615, 9804];
        let response = [7485, 8562, 9225, 9597, 9794];
        let only_imm = [7151, 8339, 9094, 9526, 9757];
        let rows = [
            (RoceV2Ipv4, RcRdmaWriteMiddle, middle),
            (RoceV2Ipv4, RcRdmaReadResponseFirst, response),
            (RoceV2Ipv4, RcRdmaReadResponseLast, response),
            (RoceV2Ipv4, RcRdmaReadResponseOnly, response),
            (RoceV2Ipv4Vlan, RcRdmaWriteMiddle, response),
            (RoceV2Ipv4, RcRdmaWriteOnly, [7232, 8393, 9127, 9543, 9766]),
            (RoceV2Ipv4, RcRdmaWriteOnlyImm, only_imm),
            (RoceV2Ipv6, RcRdmaWriteMiddle, only_imm),
            (RoceV2Ipv6, RcRdmaWriteOnly, [6845, 8127, 8967, 9455, 9720]),
            (RoceV1, RcRdmaWriteMiddle, [7314, 8449, 9159, 9561, 9776]),
            (IbLocal, RcRdmaWriteMiddle, [9078, 9517, 9752, 9875, 9937]),
            (IbLocal, RcRdmaWriteOnly, [8591, 9242, 9606, 9799, 9899]),
            (IbGlobal, RcRdmaWriteMiddle, [7950, 8858, 9394, 9688, 9841]),
        ];
        for (encap, op, want) in rows {
            for (mtu, want) in [256, 512, 1024, 2048, 4096].into_iter().zip(want) {
                assert_eq!(efficiency(encap, op, mtu), want, "{op:?} {encap:?} {mtu}");
            }
        }
    }

    #[test]
    fn one_mebibyte_at_400_gbps() {
        let want = [(256, 3030), (512, 3448), (1024, 3703), (2048, 3846), (4096, 3921)];
        for (mtu, tenths_of_gbps) in want {
            let len: u64 = 1 << 20;
            let n = len / mtu;
            let mtu = mtu as u32;
            let first = wire_bytes(RoceV2Ipv4, Opcode::RcRdmaWriteFirst, mtu);
            let middle = wire_bytes(RoceV2Ipv4, Opcode::RcRdmaWriteMiddle, mtu);
            let last = wire_bytes(RoceV2Ipv4, Opcode::RcRdmaWriteLast, mtu);
            let wire = u64::from(first) + (n - 2) * u64::from(middle) + u64::from(last);
            assert_eq!((len * 4000 * 2 + wire) / (wire * 2), tenths_of_gbps, "MTU {mtu}");
        }
    }

    #[test]
    fn payload_is_padded_to_four_bytes() {
        for (payload, padded) in [(1, 4), (3, 4), (4, 4), (5, 8), (4095, 4096), (4096, 4096)] {
            assert_eq!(wire_bytes(IbLocal, Opcode::RcSendOnly, payload), 26 + padded);
        }
    }

    #[test]
    fn minimum_frame_pads_only_the_empty_send_on_untagged_ipv4() {
        let empty = |encap| wire_bytes(encap, Opcode::RcSendOnly, 0);
        assert_eq!(empty(RoceV2Ipv4), 84, "58 bytes before the FCS become 60");
        assert_eq!(wire_bytes(RoceV2Ipv4, Opcode::RcSendOnly, 1), 86, "62 bytes stay");
        assert_eq!(empty(RoceV2Ipv4Vlan), 86, "the tag takes it over the minimum");
        assert_eq!(empty(RoceV2Ipv6), 102);
        assert_eq!(empty(RoceV1), 94);
        assert_eq!(empty(IbLocal), 26, "no minimum on InfiniBand");
        let padded = Opcode::ALL.iter().filter(|op| {
            wire_bytes(RoceV2Ipv4, **op, 0) != RoceV2Ipv4.outer_bytes() + op.header_bytes()
        });
        assert!(padded.into_iter().all(|op| op.header_bytes() == 12), "BTH alone, no payload");
    }

    #[test]
    fn custom_adds_its_bytes_to_every_packet() {
        let c = Custom { header_bytes: 38 };
        assert_eq!(wire_bytes(c, Opcode::RcRdmaWriteFirst, 1000), 1038);
        assert_eq!(wire_bytes(c, Opcode::RcRdmaWriteMiddle, 1001), 1039, "no pad");
        assert_eq!(wire_bytes(c, Opcode::RcAcknowledge, 0), 38, "no minimum");
    }

    /// An Ethernet of MTU 1500 takes a path MTU of 1024 with every header, and 4096 on none below
    /// 4136: 20 + 8 + 12 + 4096 + 4 bytes lie between Ethernet header and FCS of a SEND.
    #[test]
    fn an_ethernet_mtu_counts_from_the_ip_header_to_the_icrc() {
        let send = |payload| wire_bytes(RoceV2Ipv4, Opcode::RcSendMiddle, payload);
        assert!(
            wire_bytes(RoceV2Ipv6, Opcode::RcRdmaWriteOnlyImm, 1024)
                <= RoceV2Ipv6.largest_packet(1500)
        );
        assert!(send(2048) > RoceV2Ipv4.largest_packet(1500));
        assert_eq!(send(4096), RoceV2Ipv4.largest_packet(20 + 8 + 12 + 4096 + 4));
        let tagged = wire_bytes(RoceV2Ipv4Vlan, Opcode::RcSendMiddle, 4096);
        assert_eq!(tagged, RoceV2Ipv4Vlan.largest_packet(4140), "the tag is no part of the MTU");
    }

    #[test]
    fn an_infiniband_mtu_counts_the_payload() {
        for encap in [IbLocal, IbGlobal, Custom { header_bytes: 38 }] {
            for opcode in Opcode::ALL {
                assert!(wire_bytes(encap, *opcode, 1024) <= encap.largest_packet(1024));
            }
            assert!(wire_bytes(encap, Opcode::RcSendMiddle, 2048) > encap.largest_packet(1024));
        }
    }
}
