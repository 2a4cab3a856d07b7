//! The invariant CRC: what no switch may change on the way.

use crc32fast::Hasher;

use super::{ICRC_BYTES, UDP_BYTES};

/// Bytes of ones in front, where native InfiniBand has its LRH.
const LRH: [u8; 8] = [0xFF; 8];

/// Most bytes of IP and UDP header and of the BTH up to its byte 4.
const MASKED: usize = 40 + UDP_BYTES + 5;

/// ICRC of a packet, as the number whose bytes follow the packet, the lowest first.
///
/// `packet` begins with the IP header, whose version says what is masked, and ends with the last
/// pad byte. Counted as ones: TOS, TTL and header checksum of IPv4; traffic class, flow label and
/// hop limit of IPv6; the UDP checksum; byte 4 of the BTH with its congestion bits
/// (`protocol.md` §1.4).
///
/// # Panics
/// When the packet ends before byte 5 of its BTH.
pub fn icrc(packet: &[u8]) -> u32 {
    let v4 = packet[0] >> 4 == 4;
    let ip = if v4 { 20 } else { 40 };
    let len = ip + UDP_BYTES + 5;
    let mut head = [0; MASKED];
    let head = &mut head[..len];
    head.copy_from_slice(&packet[..len]);
    if v4 {
        for at in [1, 8, 10, 11] {
            head[at] = 0xFF;
        }
    } else {
        head[0] |= 0x0F;
        head[1..4].fill(0xFF);
        head[7] = 0xFF;
    }
    head[ip + 6..ip + 8].fill(0xFF);
    head[ip + UDP_BYTES + 4] = 0xFF;
    let mut crc = Hasher::new();
    crc.update(&LRH);
    crc.update(head);
    crc.update(&packet[len..]);
    crc.finalize()
}

/// ICRC of a packet of native InfiniBand without GRH, from its LRH to its last pad byte. Counted as
/// ones: the virtual lane and byte 4 of the BTH (`protocol.md` §1.4).
///
/// # Panics
/// When the packet ends before byte 5 of its BTH.
pub fn icrc_ib(packet: &[u8]) -> u32 {
    let mut head = [0; LRH.len() + 5];
    let len = head.len();
    head.copy_from_slice(&packet[..len]);
    head[0] |= 0xF0;
    head[LRH.len() + 4] = 0xFF;
    let mut crc = Hasher::new();
    crc.update(&head);
    crc.update(&packet[len..]);
    crc.finalize()
}

/// The variant CRC of a packet of native InfiniBand, over everything before it, from the LRH to the
/// ICRC: x^16 + x^12 + x^3 + x + 1, the lowest bit of a byte first, from ones, inverted
/// (`protocol.md` §1.4). The lower byte follows the packet first.
pub fn vcrc(packet: &[u8]) -> u16 {
    let next =
        |crc: u16, byte: &u8| crc >> 8 ^ VCRC_OF_BYTE[usize::from((crc ^ u16::from(*byte)) & 0xFF)];
    !packet.iter().fold(0xFFFF, next)
}

/// The polynomial 0x100B, its highest power in the lowest bit.
const VCRC_REFLECTED: u16 = 0xD008;

/// What each value of a byte does to the sum.
const VCRC_OF_BYTE: [u16; 256] = {
    let mut table = [0; 256];
    let mut i = 0;
    while i < table.len() {
        let (mut crc, mut bit) = (i as u16, 0);
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ VCRC_REFLECTED } else { crc >> 1 };
            bit += 1;
        }
        table[i] = crc;
        i += 1;
    }
    table
};

/// The bytes of an ICRC as they stand in a frame.
pub(super) const fn to_bytes(icrc: u32) -> [u8; ICRC_BYTES] {
    icrc.to_le_bytes()
}

/// The Internet checksum of `parts`, each of an even length save the last.
pub(super) fn internet_checksum(parts: &[&[u8]]) -> u16 {
    let mut sum = 0_u64;
    for part in parts {
        for pair in part.chunks(2) {
            let low = pair.get(1).copied().unwrap_or(0);
            sum += u64::from(u16::from_be_bytes([pair[0], low]));
        }
    }
    while sum > 0xFFFF {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    !(sum as u16)
}

/// UDP checksum of a datagram whose IP header is `ip`; the bytes of the checksum itself count as
/// zeros. Never 0, which would mean "none".
pub(super) fn udp_checksum(ip: &[u8], datagram: &[u8]) -> u16 {
    let addresses = if ip[0] >> 4 == 4 { &ip[12..20] } else { &ip[8..40] };
    // Length and protocol of the pseudo header are narrower on IPv4; the sum is the same.
    let length = (datagram.len() as u32).to_be_bytes();
    let protocol = [0, super::PROTOCOL_UDP];
    let (head, rest) = datagram.split_at(6);
    match internet_checksum(&[addresses, &length, &protocol, head, &rest[2..]]) {
        0 => 0xFFFF,
        sum => sum,
    }
}
