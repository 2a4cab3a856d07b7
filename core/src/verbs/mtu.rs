//! Path MTU.

use core::fmt;

use super::UnknownCode;

/// Longest message of RC, UC: 2^31 bytes. Source: IBTA (recalled), `max_msg_sz` of real ports.
pub const MAX_MESSAGE_BYTES: u32 = 1 << 31;

/// Path MTU: the payload of a full packet; headers come on top. Raising it lowers the header
/// share of the wire and the packet rate, and makes one packet hold a port for longer.
/// The value is that of `enum ibv_mtu`.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Mtu {
    /// 256 bytes.
    B256 = 1,
    /// 512 bytes.
    B512 = 2,
    /// 1024 bytes: what a 1500-byte Ethernet MTU leaves.
    B1024 = 3,
    /// 2048 bytes.
    B2048 = 4,
    /// 4096 bytes: the largest, needs an Ethernet MTU of about 4200.
    B4096 = 5,
}

impl Mtu {
    /// All, smallest first.
    pub const ALL: [Self; 5] = [Self::B256, Self::B512, Self::B1024, Self::B2048, Self::B4096];

    /// Payload bytes of a full packet.
    pub const fn bytes(self) -> u32 {
        128 << self as u32
    }

    /// The value of `enum ibv_mtu`, 1 ..= 5.
    pub const fn value(self) -> u8 {
        self as u8
    }

    /// The MTU of exactly `bytes`.
    pub const fn from_bytes(bytes: u32) -> Option<Self> {
        match bytes {
            256 => Some(Self::B256),
            512 => Some(Self::B512),
            1024 => Some(Self::B1024),
            2048 => Some(Self::B2048),
            4096 => Some(Self::B4096),
            _ => None,
        }
    }

    /// The largest MTU of at most `bytes` of payload; `None` below 256. rxe calls it with the
    /// netdev MTU less 80.
    pub const fn largest_within(bytes: u32) -> Option<Self> {
        match bytes {
            0..256 => None,
            256..512 => Some(Self::B256),
            512..1024 => Some(Self::B512),
            1024..2048 => Some(Self::B1024),
            2048..4096 => Some(Self::B2048),
            _ => Some(Self::B4096),
        }
    }

    /// Packets of a message of `len` bytes, `max(1, ceil(len / MTU))`; as many PSNs as it uses.
    /// For a READ these are the response packets.
    pub const fn packets_for(self, len: u32) -> u32 {
        if len == 0 { 1 } else { len.div_ceil(self.bytes()) }
    }
}

impl TryFrom<u8> for Mtu {
    type Error = UnknownCode;
    fn try_from(v: u8) -> Result<Self, UnknownCode> {
        let known = Self::ALL.into_iter().find(|m| m.value() == v);
        known.ok_or(UnknownCode { space: "path MTU", code: v.into() })
    }
}

impl fmt::Display for Mtu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_bytes() {
        let expect = [(1, 256), (2, 512), (3, 1024), (4, 2048), (5, 4096)];
        for (mtu, (value, bytes)) in Mtu::ALL.into_iter().zip(expect) {
            assert_eq!((mtu.value(), mtu.bytes()), (value, bytes));
            assert_eq!(Mtu::try_from(value), Ok(mtu));
            assert_eq!(Mtu::from_bytes(bytes), Some(mtu));
            assert_eq!(Mtu::from_bytes(bytes - 1), None);
            assert_eq!(Mtu::from_bytes(bytes + 1), None);
            assert_eq!(Mtu::largest_within(bytes), Some(mtu));
            assert!(Mtu::largest_within(bytes - 1) < Some(mtu));
            assert_eq!(std::format!("{mtu}"), std::format!("{bytes}"));
        }
        assert_eq!(Mtu::try_from(0), Err(UnknownCode { space: "path MTU", code: 0 }));
        assert_eq!(Mtu::try_from(6), Err(UnknownCode { space: "path MTU", code: 6 }));
    }

    /// rxe: netdev MTU less 80.
    #[test]
    fn ethernet_mtu_leaves_these() {
        assert_eq!(Mtu::largest_within(1500 - 80), Some(Mtu::B1024));
        assert_eq!(Mtu::largest_within(4176 - 80), Some(Mtu::B4096));
        assert_eq!(Mtu::largest_within(4175 - 80), Some(Mtu::B2048));
        assert_eq!(Mtu::largest_within(u32::MAX), Some(Mtu::B4096));
        assert_eq!(Mtu::largest_within(255), None);
    }

    #[test]
    fn packets_on_both_sides_of_each_multiple() {
        for mtu in Mtu::ALL {
            let b = mtu.bytes();
            assert_eq!(mtu.packets_for(0), 1);
            assert_eq!(mtu.packets_for(1), 1);
            for k in [1, 2, 3, 1000] {
                assert_eq!(mtu.packets_for(k * b - 1), k);
                assert_eq!(mtu.packets_for(k * b), k);
                assert_eq!(mtu.packets_for(k * b + 1), k + 1);
            }
        }
        // The longest message uses at most the half PSN space.
        assert_eq!(Mtu::B256.packets_for(MAX_MESSAGE_BYTES), 1 << 23);
        assert_eq!(Mtu::B4096.packets_for(u32::MAX), 1 << 20);
    }
}
