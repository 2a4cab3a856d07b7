//! GIDs: the table of a port, and which entry to use.
//!
//! On Ethernet an entry is one address of a netdev in one RoCE version, in an order that depends
//! on when addresses came and went. So an entry is chosen by type and address; the same index means
//! something else on the next machine, or after the next reboot.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use serde::{Serialize, Serializer};

/// Largest index that an address vector can name: `sgid_index` is one byte.
pub const MAX_INDEX: u32 = 255;

/// Entries that a message shows before it says how many more there are.
const SHOWN: usize = 8;

/// Link layer of a port.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinkLayer {
    /// InfiniBand: peers are addressed by LID.
    #[serde(rename = "infiniband")]
    InfiniBand,
    /// Ethernet: peers are addressed by GID.
    Ethernet,
}

impl fmt::Display for LinkLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InfiniBand => "InfiniBand",
            Self::Ethernet => "Ethernet",
        })
    }
}

/// Type of a GID.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum GidType {
    /// InfiniBand.
    Ib,
    /// RoCE version 1: an Ethernet type of its own, not routable.
    #[serde(rename = "roce-v1")]
    RoceV1,
    /// RoCE version 2: UDP over IPv4 or IPv6.
    #[serde(rename = "roce-v2")]
    RoceV2,
}

impl fmt::Display for GidType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ib => "IB",
            Self::RoceV1 => "RoCE v1",
            Self::RoceV2 => "RoCE v2",
        })
    }
}

/// An entry of a port's GID table.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Gid {
    /// Index in the table.
    pub index: u32,
    /// The 16 bytes in network order; serialised as an IPv6 address.
    #[serde(rename = "address", serialize_with = "as_address")]
    pub raw: [u8; 16],
    /// Type.
    #[serde(rename = "type")]
    pub ty: GidType,
}

fn as_address<S: Serializer>(raw: &[u8; 16], to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&Ipv6Addr::from(*raw))
}

impl Gid {
    /// The address.
    pub fn address(&self) -> Ipv6Addr {
        Ipv6Addr::from(self.raw)
    }

    /// How well it serves RoCEv2, best first; `None`: not at all.
    fn rank(&self) -> Option<u8> {
        let a = self.address();
        if self.ty != GidType::RoceV2 || a.is_unspecified() {
            return None;
        }
        Some(match a {
            // Routers and people know it.
            a if a.to_ipv4_mapped().is_some() => 0,
            // Only within one link.
            a if a.is_unicast_link_local() => 2,
            _ => 1,
        })
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.index, self.address(), self.ty)
    }
}

/// Which entry of the table to use.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum GidChoice {
    /// On Ethernet the first RoCEv2 entry with an IPv4 address, else with a global IPv6 address,
    /// else with a link-local one. On InfiniBand entry 0.
    #[default]
    Auto,
    /// The entry with this address; on Ethernet the one of type RoCEv2.
    Address(IpAddr),
    /// This entry; on Ethernet it must be of type RoCEv2.
    Index(u32),
}

/// Why no entry could be chosen. All of them show what is there.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum GidError {
    /// Nothing in the table is RoCEv2.
    #[error(
        "no RoCEv2 GID; there {}; give the netdev an address (`ip addr add`, `ip link set up`), \
         and the device RoCE mode v2",
        Listed(.there)
    )]
    NoRoceV2 {
        /// The table.
        there: Vec<Gid>,
    },
    /// No entry has that address.
    #[error("no GID with the address {address}; there {}", Listed(.there))]
    NoSuchAddress {
        /// What was asked for, as a GID shows it.
        address: Ipv6Addr,
        /// The table.
        there: Vec<Gid>,
    },
    /// The table has no valid entry with that index.
    #[error("no GID with index {index}; there {}", Listed(.there))]
    NoSuchIndex {
        /// What was asked for.
        index: u32,
        /// The table.
        there: Vec<Gid>,
    },
    /// The entry exists, but verbs cannot name it.
    #[error(
        "GID {index} has an index above {MAX_INDEX}, which verbs cannot name (one byte); there {}; \
         take another entry, or remove addresses from the netdev",
        Listed(.there)
    )]
    IndexTooHigh {
        /// The entry.
        index: u32,
        /// The table.
        there: Vec<Gid>,
    },
    /// The entry exists, but is no RoCEv2 one.
    #[error(
        "GID {index} is of type {ty}, RoCEv2 is needed; there {}; leave the choice out, or name \
         an address",
        Listed(.there)
    )]
    WrongType {
        /// The entry asked for.
        index: u32,
        /// Its type.
        ty: GidType,
        /// The table.
        there: Vec<Gid>,
    },
}

/// A table in a message.
struct Listed<'a>(&'a [Gid]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.len() {
            0 => return f.write_str("is none at all"),
            1 => f.write_str("is ")?,
            _ => f.write_str("are ")?,
        }
        for (i, gid) in self.0.iter().take(SHOWN).enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            write!(f, "{comma}{gid}")?;
        }
        match self.0.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

/// Chooses from the valid entries of a port, which are in the order of their indices.
///
/// # Errors
/// See [`GidError`].
pub fn choose(layer: LinkLayer, choice: GidChoice, table: &[Gid]) -> Result<Gid, GidError> {
    let there = || table.to_vec();
    let fits = |gid: &Gid| match layer {
        LinkLayer::InfiniBand => !gid.address().is_unspecified(),
        LinkLayer::Ethernet => gid.rank().is_some(),
    };
    let (found, missing) = match (choice, layer) {
        (GidChoice::Auto, LinkLayer::Ethernet) => {
            let best = table
                .iter()
                .filter(|g| fits(g))
                .min_by_key(|g| (g.index > MAX_INDEX, g.rank(), g.index));
            (best, GidError::NoRoceV2 { there: there() })
        }
        (GidChoice::Auto, LinkLayer::InfiniBand) => {
            return choose(layer, GidChoice::Index(0), table);
        }
        (GidChoice::Index(index), _) => {
            let found = table.iter().find(|g| g.index == index);
            (found, GidError::NoSuchIndex { index, there: there() })
        }
        (GidChoice::Address(address), _) => {
            let address = match address {
                IpAddr::V4(a) => a.to_ipv6_mapped(),
                IpAddr::V6(a) => a,
            };
            // The same address is there once per RoCE version.
            let of_address = || table.iter().filter(|g| g.address() == address);
            let found = of_address().find(|g| fits(g)).or_else(|| of_address().next());
            (found, GidError::NoSuchAddress { address, there: there() })
        }
    };
    match found {
        Some(gid) if gid.index > MAX_INDEX => {
            Err(GidError::IndexTooHigh { index: gid.index, there: there() })
        }
        Some(gid) if fits(gid) => Ok(gid.clone()),
        Some(gid) if layer == LinkLayer::Ethernet && gid.ty != GidType::RoceV2 => {
            Err(GidError::WrongType { index: gid.index, ty: gid.ty, there: there() })
        }
        _ => Err(missing),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: &str = "fe80::1";
    const V4: &str = "::ffff:10.0.0.1";
    const GLOBAL: &str = "2001:db8::1";

    /// Entries 0, 1, … of these addresses and types.
    fn table(entries: &[(&str, GidType)]) -> Vec<Gid> {
        let gid = |(index, (a, ty)): (u32, &(&str, GidType))| {
            let raw = a.parse::<Ipv6Addr>().unwrap().octets();
            Gid { index, raw, ty: *ty }
        };
        (0..).zip(entries).map(gid).collect()
    }

    fn on_ethernet(choice: GidChoice, entries: &[(&str, GidType)]) -> Result<u32, GidError> {
        choose(LinkLayer::Ethernet, choice, &table(entries)).map(|g| g.index)
    }

    use GidType::{Ib, RoceV1, RoceV2};

    #[test]
    fn ipv4_before_global_before_link_local_wherever_they_stand() {
        let all = [(LOCAL, RoceV1), (LOCAL, RoceV2), (GLOBAL, RoceV2), (V4, RoceV1), (V4, RoceV2)];
        assert_eq!(on_ethernet(GidChoice::Auto, &all), Ok(4));
        assert_eq!(on_ethernet(GidChoice::Auto, &all[..4]), Ok(2));
        assert_eq!(on_ethernet(GidChoice::Auto, &all[..2]), Ok(1));
        let reversed: Vec<_> = all.into_iter().rev().collect();
        assert_eq!(on_ethernet(GidChoice::Auto, &reversed), Ok(0));
        assert_eq!(on_ethernet(GidChoice::Auto, &[(V4, RoceV2), (V4, RoceV2)]), Ok(0), "the first");
    }

    #[test]
    fn without_roce_v2_the_table_is_shown() {
        let error = on_ethernet(GidChoice::Auto, &[(LOCAL, RoceV1), ("::", RoceV2)]).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("no RoCEv2 GID; there are 0 fe80::1 RoCE v1, 1 ::"), "{text}");
        assert!(text.contains("ip addr add"), "{text}");
        let text = on_ethernet(GidChoice::Auto, &[]).unwrap_err().to_string();
        assert!(text.contains("there is none at all"), "{text}");
    }

    #[test]
    fn by_address_means_the_roce_v2_entry() {
        let choice = |a: &str| GidChoice::Address(a.parse().unwrap());
        let both = [(LOCAL, RoceV1), (V4, RoceV1), (V4, RoceV2)];
        assert_eq!(on_ethernet(choice("10.0.0.1"), &both), Ok(2));
        assert_eq!(on_ethernet(choice(V4), &both), Ok(2));
        let error = on_ethernet(choice("10.0.0.1"), &both[..2]).unwrap_err();
        assert!(matches!(error, GidError::WrongType { index: 1, ty: RoceV1, .. }), "{error}");
        let error = on_ethernet(choice("10.0.0.2"), &both).unwrap_err();
        assert!(
            error.to_string().starts_with("no GID with the address ::ffff:10.0.0.2; there are")
        );
    }

    #[test]
    fn by_index_must_be_roce_v2_on_ethernet_only() {
        let both = [(LOCAL, RoceV1), (LOCAL, RoceV2)];
        assert_eq!(on_ethernet(GidChoice::Index(1), &both), Ok(1));
        let error = on_ethernet(GidChoice::Index(0), &both).unwrap_err();
        assert!(error.to_string().starts_with("GID 0 is of type RoCE v1, RoCEv2 is needed"));
        let error = on_ethernet(GidChoice::Index(2), &both).unwrap_err();
        assert!(error.to_string().starts_with("no GID with index 2; there are 0 fe80::1"));
        let ib = table(&[(LOCAL, Ib), (GLOBAL, Ib)]);
        let index = |choice| choose(LinkLayer::InfiniBand, choice, &ib).map(|g| g.index);
        assert_eq!(index(GidChoice::Auto), Ok(0), "on InfiniBand the index means the same always");
        assert_eq!(index(GidChoice::Index(1)), Ok(1));
        assert_eq!(index(GidChoice::Address(GLOBAL.parse().unwrap())), Ok(1));
        assert!(matches!(index(GidChoice::Index(2)), Err(GidError::NoSuchIndex { index: 2, .. })));
    }

    #[test]
    fn long_tables_are_cut() {
        let nine = [(LOCAL, RoceV1); SHOWN + 1];
        let text = on_ethernet(GidChoice::Auto, &nine).unwrap_err().to_string();
        assert!(text.contains("7 fe80::1 RoCE v1 and 1 more;"), "{text}");
        let text = on_ethernet(GidChoice::Auto, &nine[1..]).unwrap_err().to_string();
        assert!(text.contains("7 fe80::1 RoCE v1;"), "{text}");
    }
}
