//! Numbers of the transport: sequence numbers, queue pair numbers, keys.

use core::fmt;

const MASK24: u32 = 0x00FF_FFFF;

/// `a - b` in 24-bit arithmetic, sign extended: -2^23 ..= 2^23 - 1.
const fn diff24(a: u32, b: u32) -> i32 {
    (a.wrapping_sub(b) << 8) as i32 >> 8
}

/// Packet sequence number: 24 bits, wraps.
///
/// It has no `Ord`: of two PSNs the later one is known only relative to a window, see
/// [`diff`](Psn::diff). A requester keeps at most 2^23 PSNs unacknowledged, otherwise old and
/// new look alike. Source: BTH layout, rxe `psn_compare`.
///
/// ```
/// use doorbell_core::verbs::Psn;
/// let last = Psn::new(0xFF_FFFF);
/// assert_eq!(last.next(), Psn::ZERO);
/// assert!(last.is_before(Psn::ZERO));
/// ```
#[derive(Copy, Clone, PartialEq, Eq, Hash, Default)]
pub struct Psn(u32);

impl Psn {
    /// PSN 0.
    pub const ZERO: Self = Self(0);
    /// PSN 2^24 - 1, followed by 0.
    pub const MAX: Self = Self(MASK24);
    /// Half of the number space, 2^23: from a given PSN, as many numbers lie behind as ahead.
    pub const HALF_SPACE: u32 = 1 << 23;

    /// The low 24 bits of `v`, as the device uses `rq_psn` and `sq_psn`.
    pub const fn new(v: u32) -> Self {
        Self(v & MASK24)
    }

    /// `v`, or `None` when it needs more than 24 bits.
    pub const fn try_new(v: u32) -> Option<Self> {
        if v > MASK24 { None } else { Some(Self(v)) }
    }

    /// The number, 0 ..= 2^24 - 1.
    pub const fn value(self) -> u32 {
        self.0
    }

    /// The PSN `n` packets later, modulo 2^24.
    pub const fn add(self, n: u32) -> Self {
        Self::new(self.0.wrapping_add(n))
    }

    /// The PSN `n` packets earlier, modulo 2^24.
    pub const fn back(self, n: u32) -> Self {
        Self::new(self.0.wrapping_sub(n))
    }

    /// The following PSN.
    pub const fn next(self) -> Self {
        self.add(1)
    }

    /// The preceding PSN: the ACK of a duplicate carries the one before the expected.
    pub const fn prev(self) -> Self {
        self.back(1)
    }

    /// Signed distance `self - other`: negative when `self` is one of the 2^23 numbers before
    /// `other` (a duplicate, when `other` is expected), else 0 ..= 2^23 - 1.
    pub const fn diff(self, other: Self) -> i32 {
        diff24(self.0, other.0)
    }

    /// Whether [`diff`](Psn::diff) is negative.
    ///
    /// Two PSNs exactly 2^23 apart are each "before" the other; no legal window contains both.
    pub const fn is_before(self, other: Self) -> bool {
        self.diff(other) < 0
    }
}

impl fmt::Display for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Debug for Psn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Psn({})", self.0)
    }
}

/// Bytes in front of the payload in the receive buffer of a datagram: the area of the GRH, always
/// there, whether a GRH came or not (`protocol.md` §1.3, §5.2). A receive of UD has so many more.
pub const GRH_BYTES: u32 = 40;

/// Lowest UDP source port of RoCEv2 senders; the range ends at 65535 (Linux
/// `IB_ROCE_UDP_ENCAP_VALID_PORT_MIN`).
pub const UDP_SOURCE_PORT_MIN: u16 = 0xC000;

/// Flow label of an address vector, 20 bits: all that a sender can say about the path of a queue
/// pair, since RoCEv2 folds it into the UDP source port, the one field of the five-tuple that is
/// free. 0 leaves the choice to the device, which takes the queue pair numbers or nothing at all.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Default, Debug)]
pub struct FlowLabel(u32);

impl FlowLabel {
    /// The device's choice.
    pub const ZERO: Self = Self(0);
    /// The largest label, 2^20 - 1.
    pub const MAX: Self = Self(0xF_FFFF);
    /// Labels from 1 up to this one have UDP source ports that all differ: fourteen bits remain of
    /// twenty, and the upper six are folded onto them.
    pub const MAX_DISTINCT: u32 = 0x3FFF;

    /// `v`, or `None` when it needs more than 20 bits.
    pub const fn new(v: u32) -> Option<Self> {
        if v > Self::MAX.0 { None } else { Some(Self(v)) }
    }

    /// The number, 0 ..= 2^20 - 1.
    pub const fn value(self) -> u32 {
        self.0
    }

    /// Whether the device chooses.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// The UDP source port that Linux makes of it, 49152 ..= 65535
    /// (`rdma_flow_label_to_udp_sport`).
    pub const fn udp_source_port(self) -> u16 {
        let folded = (self.0 & Self::MAX_DISTINCT) ^ (self.0 >> 14);
        folded as u16 | UDP_SOURCE_PORT_MIN
    }
}

/// Message sequence number: the responder's 24-bit count of completed request messages, 0 when
/// the QP leaves RESET, returned in every AETH.
///
/// The requester's SSN and the credit limit LSN live in the same number space and use this type.
/// Source: AETH layout, Linux hfi1 `rc.c`.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Default)]
pub struct Msn(u32);

impl Msn {
    /// MSN 0.
    pub const ZERO: Self = Self(0);

    /// The low 24 bits of `v`.
    pub const fn new(v: u32) -> Self {
        Self(v & MASK24)
    }

    /// `v`, or `None` when it needs more than 24 bits.
    pub const fn try_new(v: u32) -> Option<Self> {
        if v > MASK24 { None } else { Some(Self(v)) }
    }

    /// The number, 0 ..= 2^24 - 1.
    pub const fn value(self) -> u32 {
        self.0
    }

    /// `n` messages later, modulo 2^24. LSN = MSN + credits.
    pub const fn add(self, n: u32) -> Self {
        Self::new(self.0.wrapping_add(n))
    }

    /// One message later.
    pub const fn next(self) -> Self {
        self.add(1)
    }

    /// Signed distance `self - other`, -2^23 ..= 2^23 - 1.
    pub const fn diff(self, other: Self) -> i32 {
        diff24(self.0, other.0)
    }
}

impl fmt::Display for Msn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Debug for Msn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Msn({})", self.0)
    }
}

/// Queue pair number, 24 bits: the BTH's destination QP. 0 and 1 are the management QPs of
/// every port.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Qpn(u32);

impl Qpn {
    /// QP 0, subnet management.
    pub const SMI: Self = Self(0);
    /// QP 1, general services: connection management runs over it.
    pub const GSI: Self = Self(1);

    /// The low 24 bits of `v`, as the wire carries them.
    pub const fn new(v: u32) -> Self {
        Self(v & MASK24)
    }

    /// `v`, or `None` when it needs more than 24 bits.
    pub const fn try_new(v: u32) -> Option<Self> {
        if v > MASK24 { None } else { Some(Self(v)) }
    }

    /// The number, 0 ..= 2^24 - 1.
    pub const fn value(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Qpn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Debug for Qpn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Qpn({})", self.0)
    }
}

macro_rules! key32 {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub u32);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:#010x}", self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:#010x})"), self.0)
            }
        }
    };
}

key32! {
    /// Local key of a memory region: names it in the SGEs of this host's work requests. Checked
    /// when the WQE is executed, not when it is posted.
    Lkey
}
key32! {
    /// Remote key of a memory region or window: travels in RETH and AtomicETH and is checked by
    /// the responder.
    Rkey
}
key32! {
    /// Queue key of a datagram QP: travels in DETH; a mismatch is a silent drop.
    QKey
}

/// Partition key: 15 bits that name the partition, and the membership bit.
///
/// Raising bit 15 turns a limited member into a full one. Two limited members may not talk.
/// Source: BTH layout; the matching rule is recalled from IBTA.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PKey(pub u16);

impl PKey {
    /// Full member of the default partition, 0xFFFF.
    pub const DEFAULT: Self = Self(0xFFFF);
    /// The membership bit.
    pub const FULL_MEMBER: u16 = 0x8000;

    /// Whether bit 15 is set.
    pub const fn is_full_member(self) -> bool {
        self.0 & Self::FULL_MEMBER != 0
    }

    /// The low 15 bits.
    pub const fn partition(self) -> u16 {
        self.0 & !Self::FULL_MEMBER
    }

    /// Whether a packet with this key may reach a QP with key `other`: the same partition, and
    /// not both limited members. A mismatch is a silent drop and a counter.
    pub const fn matches(self, other: Self) -> bool {
        self.partition() == other.partition() && (self.is_full_member() || other.is_full_member())
    }
}

impl Default for PKey {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl fmt::Display for PKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#06x}", self.0)
    }
}

impl fmt::Debug for PKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PKey({:#06x})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    const LAST: u32 = (1 << 24) - 1;

    #[test]
    fn twenty_four_bits_on_both_sides_of_the_limit() {
        assert_eq!(Psn::new(LAST), Psn::MAX);
        assert_eq!(Psn::new(LAST + 1), Psn::ZERO);
        assert_eq!(Psn::try_new(LAST), Some(Psn::MAX));
        assert_eq!(Psn::try_new(LAST + 1), None);
        assert_eq!(Msn::new(LAST + 2).value(), 1);
        assert_eq!(Msn::try_new(LAST).map(Msn::value), Some(LAST));
        assert_eq!(Msn::try_new(LAST + 1), None);
        assert_eq!(Qpn::new(0xAB00_0011).value(), 0x11);
        assert_eq!(Qpn::try_new(LAST).map(Qpn::value), Some(LAST));
        assert_eq!(Qpn::try_new(LAST + 1), None);
    }

    #[test]
    fn flow_labels_have_twenty_bits_and_fourteen_that_count() {
        let of = |v| FlowLabel::new(v).map(FlowLabel::udp_source_port);
        assert_eq!([of(0), of(1), of(0x3FFF)], [Some(0xC000), Some(0xC001), Some(0xFFFF)]);
        assert_eq!([of(0x4000), of(0x4001)], [Some(0xC001), Some(0xC000)], "folded");
        assert_eq!([of(0xF_FFFF), of(0x10_0000)], [Some(0xFFC0), None]);
        assert!(FlowLabel::ZERO.is_zero() && !FlowLabel::MAX.is_zero());
        let mut ports: std::vec::Vec<u16> = (1..=FlowLabel::MAX_DISTINCT).filter_map(of).collect();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), FlowLabel::MAX_DISTINCT as usize);
    }

    #[test]
    fn psn_wraps_in_both_directions() {
        assert_eq!(Psn::MAX.next(), Psn::ZERO);
        assert_eq!(Psn::ZERO.prev(), Psn::MAX);
        assert_eq!(Psn::ZERO.add(1 << 24), Psn::ZERO);
        assert_eq!(Psn::new(5).add(u32::MAX), Psn::new(4));
        assert_eq!(Psn::new(5).back(6), Psn::MAX);
        assert_eq!(Psn::new(LAST - 2).add(5), Psn::new(2));
        assert_eq!(Msn::new(LAST).next(), Msn::ZERO);
        assert_eq!(Msn::new(LAST).add(32_768).value(), 32_767);
    }

    /// At the edge of the half window the sign flips, wherever the window lies.
    #[test]
    fn psn_half_window_on_both_sides() {
        let half = Psn::HALF_SPACE;
        for base in [0, 1, half - 1, half, half + 1, LAST - 1, LAST] {
            let e = Psn::new(base);
            let cases = [
                (0, 0, false),
                (1, 1, false),
                (half - 1, half as i32 - 1, false),
                (half, -(half as i32), true),
                (half + 1, -(half as i32) + 1, true),
                (LAST, -1, true),
            ];
            for (ahead, diff, before) in cases {
                let p = e.add(ahead);
                assert_eq!(p.diff(e), diff, "base {base} ahead {ahead}");
                assert_eq!(p.is_before(e), before, "base {base} ahead {ahead}");
            }
            assert!(e.back(half).is_before(e) && e.is_before(e.back(half)));
            assert!(!e.back(half + 1).is_before(e));
        }
        assert_eq!(Msn::ZERO.diff(Msn::new(LAST)), 1);
        assert_eq!(Msn::new(LAST).diff(Msn::ZERO), -1);
    }

    #[test]
    fn partition_keys_match_unless_both_are_limited() {
        let full = PKey(0x8001);
        let limited = PKey(0x0001);
        assert!(full.matches(full) && full.matches(limited) && limited.matches(full));
        assert!(!limited.matches(limited));
        assert!(!full.matches(PKey(0x8002)) && !full.matches(PKey(0x0002)));
        assert!(PKey::default().is_full_member());
        assert_eq!(PKey::DEFAULT.partition(), 0x7FFF);
    }

    #[test]
    fn numbers_print_decimal_and_keys_hexadecimal() {
        assert_eq!(Psn::new(17).to_string(), "17");
        assert_eq!(Qpn::new(17).to_string(), "17");
        assert_eq!(Msn::new(17).to_string(), "17");
        assert_eq!(Rkey(0x55).to_string(), "0x00000055");
        assert_eq!(std::format!("{:?}", Lkey(1)), "Lkey(0x00000001)");
        assert_eq!(std::format!("{:?}", QKey(1)), "QKey(0x00000001)");
        assert_eq!(PKey::DEFAULT.to_string(), "0xffff");
        assert_eq!(std::format!("{:?} {:?}", Psn::ZERO, Qpn::GSI), "Psn(0) Qpn(1)");
    }
}
