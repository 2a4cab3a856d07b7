//! Hosts, links and switches.

use doorbell_core::units::{BitRate, Bytes, Span};
use doorbell_core::verbs::PKey;
use schemars::JsonSchema;
use serde::de::{Deserializer, Error as _};
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};

use super::Credits;
use crate::profile::Profile;
use crate::quantity::{Count, Length, Positive};
use crate::run::network::hosts_of_shape;
use doorbell_sim::host::MAX_NICS;

/// Most hosts of a network.
pub(crate) const MAX_HOSTS: u64 = 8192;

/// Most links of a network, cables side by side counted each. A network of so many takes about a
/// gigabyte and some seconds before it begins.
pub(crate) const MAX_LINKS: u64 = 1 << 18;

/// Hosts and what is between them.
///
/// Nodes are called `host0`, `host1`, … and `switch0`, `switch1`, …, in every shape, in faults and
/// in reports. In a shape of several tiers they are numbered tier by tier, that of the hosts first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Topology {
    /// The shape of the network.
    pub kind: TopologyKind,
    /// Hosts. A cable has two; shapes that count their hosts by other keys need none.
    pub hosts: Count<1, MAX_HOSTS>,
    /// Rate of every link, bits per second; without it the profile's port rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Positive<BitRate>>,
    /// Rate of links between switches; without it that of every link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub switch_rate: Option<Positive<BitRate>>,
    /// Propagation of every link; without it the profile's. At least a picosecond. Longer: more
    /// bytes are on the way before a pause, a credit or a mark is heard of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub propagation: Option<Positive<Span>>,
    /// Length of every link, at 5 ns per metre; without it `propagation`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub length: Option<Positive<Length>>,
    /// MTU of every link. On RoCE that of Ethernet, IP header and ICRC included (`1500B`); on
    /// InfiniBand the payload. Larger packets are dropped (`oversize`). Without it none is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<Positive<Bytes>>,
    /// What the switch does when an output is busy and its buffer full; without it `lossless`, or
    /// what `link` brings along.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub switch: Option<SwitchMode>,
    /// Buffer of the switch per port; without it the profile's. Less: drops, or waits for room,
    /// begin earlier; more: longer queues.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub buffer: Option<Positive<Bytes>>,
    /// Credits of InfiniBand links, with `link = "ib"`; without it as many as the buffer has room
    /// for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credits: Option<Credits>,
    /// P_Key table of every port, which `pkey` of a script's `state init` points into: 16 bits such
    /// as `"0x8001"`, bit 15 for full members. Two queue pairs whose entries name different
    /// partitions drop each other's packets.
    #[serde(default = "default_pkeys", skip_serializing_if = "is_default_pkeys")]
    pub pkeys: Vec<PKeyText>,
    /// How switches choose among equally short ways; without it `ecmp` on RoCE, `destination` on
    /// InfiniBand.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub routing: Option<RoutingMode>,
    /// What switches mix into the hash of `ecmp`; without it a number of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash_seed: Option<HashMode>,
    /// `leaf-spine`: switches with hosts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leaves: Option<Count<1, MAX_HOSTS>>,
    /// `leaf-spine`: hosts at each leaf. Host `h` is at leaf `h / hosts_per_leaf`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hosts_per_leaf: Option<Count<1, MAX_HOSTS>>,
    /// `leaf-spine` and `rail-optimised`: switches without hosts. Fewer: oversubscription.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spines: Option<Count<1, MAX_HOSTS>>,
    /// `leaf-spine` and `rail-optimised`: cables between a leaf and a spine; without it 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub links_per_pair: Option<Count<1, 1024>>,
    /// `fat-tree`: ports of a switch, even. There are k³ / 4 hosts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub k: Option<Count<1, 1024>>,
    /// `rail-optimised`: servers, which are the hosts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub servers: Option<Count<1, MAX_HOSTS>>,
    /// NICs of each host; without it 1. Each has a link of its own: beside the others in most
    /// shapes; in `rail-optimised` NIC `n` at leaf `n` of the group (its rail). In `explicit` each
    /// link of a host is a NIC's, in the order of the list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nics: Option<Count<1, { MAX_NICS as u64 }>>,
    /// Places of the NICs in each host, from NIC 0 on; those that are not listed are as a single
    /// NIC is.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nic: Vec<NicPlace>,
    /// `rail-optimised`: servers whose NICs share leaves; without it all servers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub servers_per_leaf: Option<Count<1, MAX_HOSTS>>,
    /// `switch`, `leaf-spine`, `fat-tree`: hosts of a node, such as 8 GPUs with a NIC each. Hosts
    /// `0` to `node - 1` are the first one. Connected queue pairs between them take a link of the
    /// host into its node (`gpu.node_rate`, `gpu.node_latency`) in the place of NIC units, PCIe and
    /// network. It ends at a switch of the node, numbered behind all others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<Count<2, 1024>>,
    /// `explicit`: number of switches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub switches: Option<Count<1, MAX_HOSTS>>,
    /// `explicit`: the links.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub link: Vec<TopologyLink>,
    /// `explicit`: routes that differ from the shortest way, whatever the routing is.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub route: Vec<TopologyRoute>,
}

/// A P_Key, written as `"0x8001"`.
#[derive(Copy, Clone, PartialEq, Eq, Debug, JsonSchema)]
pub struct PKeyText(#[schemars(with = "String")] pub PKey);

impl Serialize for PKeyText {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for PKeyText {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        let digits = text.strip_prefix("0x").filter(|t| (1..=4).contains(&t.len()));
        let key = digits.and_then(|t| u16::from_str_radix(t, 16).ok());
        let wrong = || {
            let help = "16 bits such as \"0x8001\"";
            D::Error::custom(format_args!("\"{text}\" is no P_Key\n{help}"))
        };
        key.map(|key| Self(PKey(key))).ok_or_else(wrong)
    }
}

/// The default partition alone.
fn default_pkeys() -> Vec<PKeyText> {
    vec![PKeyText(PKey::DEFAULT)]
}

fn is_default_pkeys(keys: &[PKeyText]) -> bool {
    keys == default_pkeys()
}

/// Links of an explicit network. What a link does not say it has from the topology.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TopologyLink {
    /// Both ends: `host0-switch0`; or many links at once: `host0..7-switch0` joins hosts 0 to 7
    /// with switch 0, `switch0..3-switch4..5` each of four switches with each of two.
    pub between: String,
    /// Cables side by side; without it 1.
    #[serde(default)]
    pub count: Count<1, 1024>,
    /// Rate; without it that of the topology.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Positive<BitRate>>,
    /// Propagation; without it that of the topology.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub propagation: Option<Positive<Span>>,
    /// Length instead of the propagation, at 5 ns per metre; without it that of the topology.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub length: Option<Positive<Length>>,
    /// MTU; without it that of the topology.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<Positive<Bytes>>,
    /// Whether its ports know pause frames, with `switch = "pfc"`; without it yes. `false` is a
    /// port that was forgotten: a lossless class drops there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pfc: Option<bool>,
}

/// A static route of a switch. Routes that lead in a circle for one destination are refused; routes
/// of several destinations may need each other's links in a circle, and can then deadlock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TopologyRoute {
    /// The switch: `switch0`.
    pub at: String,
    /// Packets for these hosts, at whatever NIC: `host3`, `host4..7`.
    pub to: String,
    /// Leave for this node next to it: `switch1`. Of several cables the first is taken.
    pub via: String,
}

impl Default for Topology {
    fn default() -> Self {
        Self {
            kind: TopologyKind::default(),
            hosts: Count::of(2),
            rate: None,
            switch_rate: None,
            propagation: None,
            length: None,
            mtu: None,
            switch: None,
            buffer: None,
            credits: None,
            pkeys: default_pkeys(),
            routing: None,
            hash_seed: None,
            leaves: None,
            hosts_per_leaf: None,
            spines: None,
            links_per_pair: None,
            k: None,
            servers: None,
            nics: None,
            nic: Vec::new(),
            servers_per_leaf: None,
            node: None,
            switches: None,
            link: Vec::new(),
            route: Vec::new(),
        }
    }
}

/// Shape of the network.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TopologyKind {
    /// Two hosts and a cable.
    #[default]
    BackToBack,
    /// Every host on one switch.
    Switch,
    /// Two tiers: every leaf joined with every spine.
    LeafSpine,
    /// Three tiers of switches with `k` ports.
    FatTree,
    /// Two tiers, with a leaf for the NICs of one number of all servers of a group.
    RailOptimised,
    /// The links of `[[topology.link]]`.
    Explicit,
}

impl TopologyKind {
    /// The word of the file.
    pub const fn word(self) -> &'static str {
        match self {
            Self::BackToBack => "back-to-back",
            Self::Switch => "switch",
            Self::LeafSpine => "leaf-spine",
            Self::FatTree => "fat-tree",
            Self::RailOptimised => "rail-optimised",
            Self::Explicit => "explicit",
        }
    }

    /// Keys that a shape of this kind must have.
    pub(crate) const fn needed(self) -> &'static [&'static str] {
        match self {
            Self::BackToBack | Self::Switch => &[],
            Self::LeafSpine => &["leaves", "hosts_per_leaf", "spines"],
            Self::FatTree => &["k"],
            Self::RailOptimised => &["servers", "nics", "spines"],
            Self::Explicit => &["link"],
        }
    }

    /// Keys that have a use in this kind, beside those of every kind.
    pub(crate) const fn more_keys(self) -> &'static [&'static str] {
        match self {
            Self::BackToBack => &["nics"],
            Self::Switch => &["switch", "buffer", "nics", "node"],
            Self::LeafSpine => &[
                "switch",
                "buffer",
                "routing",
                "hash_seed",
                "switch_rate",
                "links_per_pair",
                "nics",
                "node",
            ],
            Self::RailOptimised => &[
                "switch",
                "buffer",
                "routing",
                "hash_seed",
                "switch_rate",
                "links_per_pair",
                "servers_per_leaf",
            ],
            Self::FatTree => &["switch", "buffer", "routing", "hash_seed", "switch_rate", "node"],
            Self::Explicit => {
                &["switch", "buffer", "routing", "hash_seed", "switch_rate", "switches", "route"]
            }
        }
    }
}

/// Where a NIC is in each host.
///
/// Without a switch it hangs on a root port of its own, behind as many switches as the profile's
/// `pcie.switches` says. All links have the profile's generation and width.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NicPlace {
    /// Socket of its root port.
    pub numa: Count<0, 7>,
    /// PCIe switch that it is below; without it one of its own, as the profile has them. NICs that
    /// name the same number share its link to the root port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pcie_switch: Option<Count<0, 15>>,
    /// GPUs beside it: below the same switch, or without one on the same socket.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<Count<0, 63>>,
}

/// What a switch does with a packet that finds its output buffer full.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SwitchMode {
    /// It makes the sender wait; nothing is lost.
    #[default]
    Lossless,
    /// It drops the packet.
    TailDrop,
    /// Its ports share one buffer, of which lossless classes pause their senders by priority flow
    /// control. See `[switch]`.
    Pfc,
    /// Link credits of InfiniBand, in blocks of 64 bytes per virtual lane; nothing is lost.
    Credits,
}

/// How a switch chooses among output ports that lead to the destination by equally short ways.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RoutingMode {
    /// By a hash over the RoCEv2 five-tuple: a queue pair keeps to one way.
    Ecmp,
    /// By the destination: everything for a host comes by one way.
    Destination,
    /// For each packet the output with the shortest queue. Packets overtake each other, which the
    /// reliable connection takes for loss.
    Adaptive,
}

impl RoutingMode {
    /// The word in files.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Ecmp => "ecmp",
            Self::Destination => "destination",
            Self::Adaptive => "adaptive",
        }
    }
}

/// What switches mix into their hash.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum HashMode {
    /// A number of their own, which the seed of the run changes.
    #[default]
    PerSwitch,
    /// Nothing: all switches and all runs hash alike (polarisation).
    Same,
}

impl Topology {
    /// What the switch does with a packet that finds its output buffer full.
    pub fn switch_mode(&self) -> SwitchMode {
        self.switch.unwrap_or_default()
    }

    /// NICs of a host, in shapes that give all hosts the same number.
    pub(crate) fn nics_each(&self) -> u32 {
        self.nics.map_or(1, |n| n.value() as u32)
    }

    /// Socket of a NIC.
    pub(crate) fn nic_numa(&self, nic: u8) -> u8 {
        self.nic.get(usize::from(nic)).map_or(0, |place| place.numa.value() as u8)
    }

    /// Sets the number of hosts where the shape gives it and the file does not. What is wrong with
    /// the shape stays for the check to say.
    pub(super) fn count_hosts(&mut self, profile: &Profile) {
        if let Ok(Some(hosts)) = hosts_of_shape(self, profile)
            && let Some(hosts) = Count::new(hosts)
        {
            self.hosts = hosts;
        }
    }
}
