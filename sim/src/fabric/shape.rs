//! Networks of several switches from a few numbers.
//!
//! | Shape | Order of hosts | Order of switches |
//! |---|---|---|
//! | [`LeafSpine`] | leaf by leaf | leaves, spines |
//! | [`FatTree`] | pod by pod, edge switch by edge switch | edges, aggregations, cores |
//! | [`Rails`] | server by server | leaves by group and rail, spines |
//!
//! The ports of a switch that lead down come first.
//!
//! All ways in them go up and then down, so lossless switches cannot wait for each other in a
//! circle.

use core::fmt;

use super::config::{End, FabricConfig, LinkConfig, SwitchConfig};
use super::link::Link;

/// Two tiers: every leaf is joined with every spine.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct LeafSpine {
    /// Switches with hosts.
    pub leaves: u32,
    /// Hosts at each leaf: host `h` is at leaf `h / hosts_per_leaf`.
    pub hosts_per_leaf: u32,
    /// Switches without hosts.
    pub spines: u32,
    /// Cables between a leaf and a spine.
    pub links_per_pair: u32,
    /// Cable of a host.
    pub host_link: Link,
    /// Cable between leaf and spine.
    pub spine_link: Link,
    /// Every switch.
    pub switch: SwitchConfig,
}

/// Three tiers of switches with `k` ports: `k` pods of `k / 2` edge and `k / 2` aggregation
/// switches, `(k / 2)²` cores, `k³ / 4` hosts.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct FatTree {
    /// Ports of a switch; even.
    pub k: u32,
    /// Cable of a host.
    pub host_link: Link,
    /// Cable between switches.
    pub switch_link: Link,
    /// Every switch.
    pub switch: SwitchConfig,
}

/// A network for servers of several NICs: NIC `n` of each server of a group is at the group's leaf
/// `n`, its rail, and every leaf is joined with every spine. Neighbours in a group that use NICs of
/// the same number are one switch apart.
///
/// A server is a host of `nics` ports, and NIC `n` is its port `n`.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Rails {
    /// Servers.
    pub servers: u32,
    /// NICs of a server.
    pub nics: u32,
    /// Servers of a group: hosts at a leaf.
    pub servers_per_leaf: u32,
    /// Switches without hosts.
    pub spines: u32,
    /// Cables between a leaf and a spine.
    pub links_per_pair: u32,
    /// Cable of a NIC.
    pub host_link: Link,
    /// Cable between leaf and spine.
    pub spine_link: Link,
    /// Every switch.
    pub switch: SwitchConfig,
}

/// Numbers that make no network. `key` is the name of the field.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ShapeError {
    /// Nothing of something.
    Zero {
        /// Of what.
        key: &'static str,
    },
    /// A fat tree has half of a switch's ports up and half down.
    OddPorts {
        /// The number given.
        k: u32,
    },
    /// Servers that fill no whole number of groups.
    PartGroup {
        /// Servers.
        servers: u32,
        /// Servers of a group.
        servers_per_leaf: u32,
    },
    /// More hosts than can be numbered.
    TooManyHosts {
        /// The field that is too large.
        key: &'static str,
    },
}

impl ShapeError {
    /// The field to change.
    pub const fn key(&self) -> &'static str {
        match self {
            Self::Zero { key } | Self::TooManyHosts { key } => key,
            Self::OddPorts { .. } => "k",
            Self::PartGroup { .. } => "servers_per_leaf",
        }
    }
}

impl fmt::Display for ShapeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Zero { key } => write!(f, "`{key}` is 0; at least 1 is needed"),
            Self::OddPorts { k } => {
                write!(f, "`k` is {k}, and half of a switch's ports go up: it must be even")
            }
            Self::PartGroup { servers, servers_per_leaf } => write!(
                f,
                "{servers} servers make no whole groups of {servers_per_leaf}: \
                 `servers_per_leaf` must divide `servers`"
            ),
            Self::TooManyHosts { key } => write!(f, "with this `{key}` there are over 2^32 hosts"),
        }
    }
}

impl std::error::Error for ShapeError {}

/// Most ports of a fat tree's switch that are numbered with 16 bits.
const MAX_K: u32 = 1 << 10;

fn at_least_one(numbers: &[(&'static str, u32)]) -> Result<(), ShapeError> {
    match numbers.iter().find(|(_, n)| *n == 0) {
        Some((key, _)) => Err(ShapeError::Zero { key }),
        None => Ok(()),
    }
}

fn product(numbers: &[(&'static str, u32)]) -> Result<u32, ShapeError> {
    numbers.iter().try_fold(1u32, |product, &(key, n)| {
        product.checked_mul(n).ok_or(ShapeError::TooManyHosts { key })
    })
}

const fn join(a: End, b: u32, link: Link) -> LinkConfig {
    LinkConfig { a, b: End::Switch(b), link }
}

impl LeafSpine {
    /// Number of hosts.
    ///
    /// # Errors
    /// [`ShapeError`].
    pub fn hosts(&self) -> Result<u32, ShapeError> {
        let Self { leaves, hosts_per_leaf, spines, links_per_pair, .. } = *self;
        let hosts = [("leaves", leaves), ("hosts_per_leaf", hosts_per_leaf)];
        at_least_one(&hosts)?;
        at_least_one(&[("spines", spines), ("links_per_pair", links_per_pair)])?;
        product(&hosts)
    }

    /// The network.
    ///
    /// # Errors
    /// [`ShapeError`].
    pub fn config(&self) -> Result<FabricConfig, ShapeError> {
        let hosts = self.hosts()?;
        let per = self.hosts_per_leaf;
        Ok(self.wired(hosts, (0..hosts).map(|host| (host, host / per))))
    }

    /// With a cable for each pair of a host and a leaf.
    fn wired(&self, hosts: u32, cables: impl Iterator<Item = (u32, u32)>) -> FabricConfig {
        let Self { leaves, spines, links_per_pair, host_link, spine_link, switch, .. } = *self;
        let mut links: Vec<_> =
            cables.map(|(h, leaf)| join(End::Host(h), leaf, host_link)).collect();
        for from in 0..leaves {
            for spine in 0..spines {
                let cable = join(End::Switch(from), leaves + spine, spine_link);
                links.extend((0..links_per_pair).map(|_| cable));
            }
        }
        FabricConfig::of(hosts, vec![switch; (leaves + spines) as usize], links)
    }
}

impl FatTree {
    /// Number of hosts.
    ///
    /// # Errors
    /// [`ShapeError`].
    pub fn hosts(&self) -> Result<u32, ShapeError> {
        let k = self.k;
        at_least_one(&[("k", k)])?;
        if !k.is_multiple_of(2) {
            return Err(ShapeError::OddPorts { k });
        }
        if k > MAX_K {
            return Err(ShapeError::TooManyHosts { key: "k" });
        }
        Ok(k * k * k / 4)
    }

    /// The network.
    ///
    /// # Errors
    /// [`ShapeError`].
    pub fn config(&self) -> Result<FabricConfig, ShapeError> {
        let hosts = self.hosts()?;
        let Self { k, host_link, switch_link, switch } = *self;
        let half = k / 2;
        let (edges, cores) = (k * half, half * half);
        let mut links: Vec<_> =
            (0..hosts).map(|h| join(End::Host(h), h / half, host_link)).collect();
        for edge in 0..edges {
            let first = edges + edge / half * half;
            let up = (first..first + half).map(|a| join(End::Switch(edge), a, switch_link));
            links.extend(up);
        }
        for aggregation in 0..edges {
            let first = 2 * edges + aggregation % half * half;
            let from = End::Switch(edges + aggregation);
            links.extend((first..first + half).map(|core| join(from, core, switch_link)));
        }
        Ok(FabricConfig::of(hosts, vec![switch; (2 * edges + cores) as usize], links))
    }
}

impl Rails {
    /// Number of hosts: the servers.
    ///
    /// # Errors
    /// [`ShapeError`].
    pub fn hosts(&self) -> Result<u32, ShapeError> {
        let Self { servers, nics, servers_per_leaf, spines, links_per_pair, .. } = *self;
        at_least_one(&[("servers", servers), ("nics", nics)])?;
        at_least_one(&[("servers_per_leaf", servers_per_leaf), ("spines", spines)])?;
        at_least_one(&[("links_per_pair", links_per_pair)])?;
        if !servers.is_multiple_of(servers_per_leaf) {
            return Err(ShapeError::PartGroup { servers, servers_per_leaf });
        }
        product(&[("servers", servers), ("nics", nics)])?;
        Ok(servers)
    }

    /// The network.
    ///
    /// # Errors
    /// [`ShapeError`].
    pub fn config(&self) -> Result<FabricConfig, ShapeError> {
        let hosts = self.hosts()?;
        let Self { servers, nics, servers_per_leaf, .. } = *self;
        let tiers = LeafSpine {
            leaves: servers / servers_per_leaf * nics,
            hosts_per_leaf: servers_per_leaf,
            spines: self.spines,
            links_per_pair: self.links_per_pair,
            host_link: self.host_link,
            spine_link: self.spine_link,
            switch: self.switch,
        };
        let rails = |host| {
            let first = host / servers_per_leaf * nics;
            (first..first + nics).map(move |leaf| (host, leaf))
        };
        Ok(tiers.wired(hosts, (0..hosts).flat_map(rails)))
    }
}
