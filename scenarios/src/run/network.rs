//! From the topology of a file and a hardware profile to the simulator's network.

use std::collections::{BTreeMap, BTreeSet};

use doorbell_core::units::{Bytes, Span, Time};
use doorbell_sim::fabric::{
    BLOCK_BYTES, Buffering, ConfigError, CreditConfig, EcnException as SimException, End, Fabric,
    FabricConfig, FatTree, Forwarding, HashSeed, LeafSpine, Link, LinkConfig, MAX_CREDIT,
    Noise as FabricNoise, PROPAGATION_PER_MM, Rails, ReceiveBuffer, Routing, ShapeError,
    StaticRoute, SwitchConfig,
};
use doorbell_sim::wire::{HostId, PortId};

use doorbell_sim::host::MAX_NICS;

use super::hardware::encapsulation;
use super::switches;
use crate::format::{
    Credits, EcnException, HashMode, HostModel, MAX_LINKS, Noise, RoutingMode, Scenario, Switch,
    SwitchMode, Topology, TopologyKind, TopologyLink, TopologyRoute,
};
use crate::profile::{ForwardMode, LinkKind, Profile};
use crate::quantity::{Count, Length, Positive};

/// What is wrong, at which path of the file, and what to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Wrong {
    pub path: String,
    pub message: String,
    pub help: String,
}

impl Wrong {
    fn new(key: impl AsRef<str>, message: String, help: impl Into<String>) -> Self {
        Self { path: format!("topology.{}", key.as_ref()), message, help: help.into() }
    }

    fn shape(e: ShapeError) -> Self {
        let help = match e {
            ShapeError::OddPorts { k: 1 } => "write k = 2".to_owned(),
            ShapeError::OddPorts { k } => format!("write k = {} or k = {}", k - 1, k + 1),
            ShapeError::PartGroup { .. } => "leave it out for one group of all servers".to_owned(),
            ShapeError::Zero { .. } | ShapeError::TooManyHosts { .. } => {
                "change the number".to_owned()
            }
        };
        Self::new(e.key(), e.to_string(), help)
    }
}

/// How switches choose among equally short ways: without a word, links of Ethernet by hash, and
/// InfiniBand by a table.
pub(super) fn routing_mode(t: &Topology, profile: &Profile) -> RoutingMode {
    t.routing.unwrap_or(usual_routing(profile))
}

/// The choice without a word.
pub(super) fn usual_routing(profile: &Profile) -> RoutingMode {
    match profile.port.link {
        LinkKind::RoceV2 => RoutingMode::Ecmp,
        LinkKind::InfiniBand => RoutingMode::Destination,
    }
}

/// The network that the topology describes, without noise. What it leaves open is the profile's.
///
/// # Errors
/// [`Wrong`] with the place.
pub(crate) fn network(
    t: &Topology,
    switch: &Switch,
    profile: &Profile,
) -> Result<FabricConfig, Wrong> {
    let parts = Parts { t, switch, profile };
    let nics = t.nics_each();
    let mut c = match t.kind {
        TopologyKind::BackToBack => {
            FabricConfig::back_to_back(parts.link(false)).with_host_links(nics)
        }
        TopologyKind::Switch => {
            let hosts = t.hosts.value() as u32;
            FabricConfig::single_switch(hosts, parts.link(false), parts.switch())
                .with_host_links(nics)
        }
        TopologyKind::LeafSpine => {
            parts.leaf_spine().config().map_err(Wrong::shape)?.with_host_links(nics)
        }
        TopologyKind::FatTree => parts.fat_tree().config().map_err(Wrong::shape)?,
        TopologyKind::RailOptimised => parts.rails().config().map_err(Wrong::shape)?,
        TopologyKind::Explicit => parts.explicit()?,
    };
    let framing = profile.port.framing.0 as u32;
    let largest = encapsulation(profile).largest_sent(profile.port.max_mtu.0 as u32) + framing;
    // The simulator's own bound is that of real headers.
    c.max_packet_bytes = c.max_packet_bytes.max(largest);
    c.largest_sent = Some(largest);
    c.routing = parts.routing();
    c.classes = switches::classes(switch, t.switch_mode());
    for (index, e) in switch.exception.iter().enumerate() {
        c.ecn_exceptions.extend(exceptions(index, e, &c)?);
    }
    if let Some(credits) = &t.credits {
        parts.set_credits(credits, &mut c);
    }
    c = match t.node.map(|n| n.value() as u32) {
        Some(n) if (c.hosts.len() as u32).is_multiple_of(n) => {
            c.with_nodes(n, profile.gpu.node_rate, profile.gpu.node_latency)
        }
        // The check says what is wrong with it.
        _ => c,
    };
    parts.set_receive(&mut c);
    Ok(c)
}

/// The switches, or the port, of an entry of `[[switch.exception]]`.
fn exceptions(
    index: usize,
    e: &EcnException,
    c: &FabricConfig,
) -> Result<impl Iterator<Item = SimException> + use<>, Wrong> {
    let wrong = |message: String, help: &str| {
        let path = format!("switch.exception.{index}.at");
        Err(Wrong { path, message, help: help.to_owned() })
    };
    let (name, port) = match e.at.rsplit_once(".port") {
        Some((name, port)) => (name, Some(port.parse::<u16>().ok())),
        None => (e.at.as_str(), None),
    };
    let named = nodes(name).filter(|n| !n.host && port.is_none_or(|p| p.is_some()));
    let Some(n) = named.filter(|n| port.is_none() || n.first == n.last) else {
        let help = "write \"switch0\", \"switch0..3\" or \"switch0.port1\"";
        return wrong(format!("\"{}\" names no switch", e.at), help);
    };
    let switches = c.switches.len();
    if n.last as usize >= switches {
        let text = format!("there is no switch{}: the network has {switches}", n.last);
        return wrong(text, "name another, counted from 0");
    }
    let here = End::Switch(n.first);
    let ports = c.links.iter().filter(|l| l.a == here || l.b == here).count();
    let port = port.flatten();
    if let Some(p) = port.filter(|p| usize::from(*p) >= ports) {
        let text = format!("there is no port {p} at switch{}, which has {ports}", n.first);
        return wrong(text, "name another, counted from 0");
    }
    let (port, ecn) = (port.map(PortId), e.ecn.as_ref().map(switches::ecn));
    Ok((n.first..=n.last).map(move |switch| SimException { switch, port, ecn }))
}

/// The network of a scenario, with its noise.
///
/// # Errors
/// [`Wrong`] with the place.
pub(crate) fn network_of(s: &Scenario, profile: &Profile) -> Result<FabricConfig, Wrong> {
    let mut fabric = network(&s.topology, &s.switch, profile)?;
    fabric.noise = match s.run.noise {
        Noise::On => FabricNoise::Packets(profile.port.switch_noise),
        Noise::Off => FabricNoise::Off,
    };
    if s.run.host == HostModel::Ideal && s.fault.is_empty() {
        // A NIC without time has room for all that comes: nobody ever waits for it.
        let waits = |r: ReceiveBuffer| matches!(r, ReceiveBuffer::Lossless { .. });
        fabric
            .hosts
            .iter_mut()
            .filter(|h| waits(h.receive))
            .for_each(|h| h.receive = ReceiveBuffer::Unlimited);
    }
    Ok(fabric)
}

/// Bytes of the largest packet of the profile, as a link counts them for credit.
pub(crate) fn largest_of_link(profile: &Profile) -> u32 {
    encapsulation(profile).largest_packet(profile.port.max_mtu.0 as u32)
}

/// The least `topology.buffer` that takes a packet of `needed` bytes at a node, if it is that key
/// that says how large the buffer there is. Lanes of credits have equal parts of it, in blocks.
pub(crate) fn least_buffer(c: &FabricConfig, node: End, needed: u64) -> Option<u64> {
    match (c.switches.first()?.buffering, node) {
        (Buffering::Credits { .. }, _) => {
            let blocks = (needed - u64::from(c.credits.framing_bytes)).div_ceil(BLOCK_BYTES.into());
            Some(blocks * u64::from(BLOCK_BYTES) * c.classes.each.len() as u64)
        }
        (_, End::Switch(_)) => Some(needed),
        (_, End::Host(_)) => None,
    }
}

/// Hosts of a shape that counts them by other keys than `hosts`; `None` for the others.
///
/// # Errors
/// [`Wrong`] with the place.
pub(crate) fn hosts_of_shape(t: &Topology, profile: &Profile) -> Result<Option<u64>, Wrong> {
    let switch = &Switch::default();
    let parts = Parts { t, switch, profile };
    let hosts = match t.kind {
        TopologyKind::BackToBack | TopologyKind::Switch | TopologyKind::Explicit => {
            return Ok(None);
        }
        TopologyKind::LeafSpine => parts.leaf_spine().hosts(),
        TopologyKind::FatTree => parts.fat_tree().hosts(),
        TopologyKind::RailOptimised => parts.rails().hosts(),
    };
    hosts.map(|n| Some(u64::from(n))).map_err(Wrong::shape)
}

/// Refuses a network of more links than [`MAX_LINKS`], before one of them is made. `hosts`: those
/// of the shape.
///
/// # Errors
/// [`Wrong`] with the place.
pub(crate) fn check_link_count(t: &Topology, hosts: u64) -> Result<(), Wrong> {
    let nics = hosts * u64::from(t.nics_each());
    let most = format!("at most {MAX_LINKS} are possible");
    if t.kind == TopologyKind::Explicit {
        let mut links = 0;
        for (index, l) in t.link.iter().enumerate() {
            let ends = l.between.split_once('-').and_then(|(a, b)| Some((nodes(a)?, nodes(b)?)));
            let count = |n: Nodes| u64::from(n.last - n.first) + 1;
            let pairs = ends.map_or(0, |(a, b)| count(a).saturating_mul(count(b)));
            links = pairs.saturating_mul(l.count.value()).saturating_add(links);
            if links > MAX_LINKS {
                let text = format!("with these there are {links} links, and {most}");
                let key = format!("link.{index}.between");
                return Err(Wrong::new(key, text, "join fewer nodes, or lower `count`"));
            }
        }
        return Ok(());
    }
    let leaves = match t.kind {
        TopologyKind::RailOptimised => {
            let groups = t.servers_per_leaf.map_or(1, |n| hosts.div_ceil(n.value()));
            groups * u64::from(t.nics_each())
        }
        _ => number(t.leaves).into(),
    };
    let spines = u64::from(number(t.spines));
    let each = t.links_per_pair.unwrap_or_default().value();
    let links = match t.kind {
        TopologyKind::FatTree => 3 * nics,
        _ => leaves * spines * each + nics,
    };
    if links <= MAX_LINKS {
        return Ok(());
    }
    let (word, room) = (t.kind.word(), (MAX_LINKS - nics) / leaves);
    let text = format!("this `{word}` has {links} links, and {most}");
    let key = if spines > room || each == 1 { "spines" } else { "links_per_pair" };
    let help =
        format!("with {leaves} leaves, `spines` times `links_per_pair` may be {room} at most");
    Err(Wrong::new(key, text, help))
}

/// NICs of each host: one at each of its links.
pub(crate) fn nic_counts(c: &FabricConfig) -> Vec<usize> {
    let mut counts = vec![0; c.hosts.len()];
    for end in c.links.iter().flat_map(|l| [l.a, l.b]) {
        if let End::Host(host) = end {
            counts[host as usize] += 1;
        }
    }
    if c.node_hosts > 0 {
        // The last link of each leads into its node.
        counts.iter_mut().for_each(|n| *n -= 1);
    }
    counts
}

/// NICs of each host of a topology; nothing where it makes no network.
pub(crate) fn nics_listed(t: &Topology, profile: &Profile) -> Vec<usize> {
    network(t, &Switch::default(), profile).map(|c| nic_counts(&c)).unwrap_or_default()
}

/// How many NICs a host of the topology has; none where it makes no network.
pub(crate) fn nics_of_hosts(t: &Topology, profile: &Profile) -> impl Fn(u64) -> usize {
    let listed = (t.kind == TopologyKind::Explicit).then(|| nics_listed(t, profile));
    let each = t.nics_each() as usize;
    move |host| listed.as_ref().map_or(each, |l| l.get(host as usize).copied().unwrap_or(0))
}

/// Whether an explicit network hangs together.
///
/// # Errors
/// [`Wrong`] with the place.
pub(crate) fn check_explicit(c: &FabricConfig) -> Result<(), Wrong> {
    let linked: BTreeSet<End> = c.links.iter().flat_map(|l| [l.a, l.b]).collect();
    let alone = (0..c.switches.len() as u32).find(|s| !linked.contains(&End::Switch(*s)));
    if let Some(switch) = alone {
        let text = format!("switch {switch} has no link");
        let help = format!("join it: between = \"switch{switch}-switch0\"; or lower `switches`");
        return Err(Wrong::new("switches", text, help));
    }
    let Err(e) = Fabric::new(c, 0) else { return Ok(()) };
    let (key, help) = match e {
        ConfigError::Unconnected { host } => {
            ("hosts", format!("join it: between = \"host{host}-switch0\"; or lower `hosts`"))
        }
        ConfigError::Unreachable { .. } => {
            ("link", "add a link that joins the parts of the network".to_owned())
        }
        ConfigError::BufferTooSmall { .. } => ("buffer", "raise it".to_owned()),
        ConfigError::RouteMisses { host, .. } => {
            ("route", format!("lead every switch's packets for host {} there", host.0))
        }
        // Said of `[switch]`, with the places there.
        ConfigError::NothingShared { .. }
        | ConfigError::ShareTooSmall { .. }
        | ConfigError::XonAboveXoff { .. }
        | ConfigError::XoffAboveBuffer { .. }
        | ConfigError::Ecn { .. }
        | ConfigError::EcnException { .. } => return Ok(()),
        _ => ("link", "change the links".to_owned()),
    };
    Err(Wrong::new(key, e.to_string(), help))
}

struct Parts<'a> {
    t: &'a Topology,
    switch: &'a Switch,
    profile: &'a Profile,
}

fn number<const MAX: u64>(n: Option<Count<1, MAX>>) -> u32 {
    n.map_or(0, |n| n.value() as u32)
}

fn propagation(
    length: Option<Positive<Length>>,
    propagation: Option<Positive<Span>>,
) -> Option<Span> {
    let by_length = |l: Positive<Length>| PROPAGATION_PER_MM * l.0.0;
    propagation.map(|p| p.0).or(length.map(by_length))
}

impl Parts<'_> {
    /// The link of a host, or one between switches.
    fn link(&self, between_switches: bool) -> Link {
        let (t, port) = (self.t, &self.profile.port);
        let rate = t.switch_rate.filter(|_| between_switches).or(t.rate);
        let delay = propagation(t.length, t.propagation).unwrap_or(port.propagation);
        self.with_mtu(Link::new(rate.map_or(port.rate, |r| r.0), delay), t.mtu)
    }

    fn with_mtu(&self, link: Link, mtu: Option<Positive<Bytes>>) -> Link {
        let Some(mtu) = mtu else { return link };
        let mtu = u32::try_from(mtu.0.0).unwrap_or(u32::MAX / 2).min(u32::MAX / 2);
        let framing = self.profile.port.framing.0 as u32;
        link.up_to(encapsulation(self.profile).largest_packet(mtu) + framing)
    }

    fn switch(&self) -> SwitchConfig {
        let (t, port) = (self.t, &self.profile.port);
        let port_bytes = t.buffer.as_ref().map_or(port.switch_buffer.0, |b| b.0.0);
        SwitchConfig {
            forwarding: match port.switch_forwarding {
                ForwardMode::CutThrough => Forwarding::CutThrough,
                ForwardMode::StoreAndForward => Forwarding::StoreAndForward,
            },
            transit: port.switch_latency,
            buffering: match t.switch_mode() {
                SwitchMode::Lossless => Buffering::Lossless { port_bytes },
                SwitchMode::TailDrop => Buffering::TailDrop { port_bytes },
                SwitchMode::Pfc => Buffering::Shared(switches::shared(self.switch)),
                // How many is known with the number of lanes: `set_credits`.
                SwitchMode::Credits => Buffering::Credits { blocks: 0 },
            },
        }
    }

    /// What hosts do with packets that their NICs have no room for. On idealised links they wait in
    /// a buffer like that of a switch's input, and at least in one that never limits a NIC which
    /// takes what comes: a link's loop and two packets.
    fn set_receive(&self, c: &mut FabricConfig) {
        let receive = match self.t.switch_mode() {
            // A cable has credits without a switch.
            _ if self.t.credits.is_some() => return,
            SwitchMode::Credits => return,
            SwitchMode::TailDrop | SwitchMode::Pfc => ReceiveBuffer::Lossy,
            SwitchMode::Lossless => {
                let of_host =
                    |l: &&LinkConfig| [l.a, l.b].iter().any(|e| matches!(e, End::Host(_)));
                let in_loop = |l: &LinkConfig| {
                    let there_and_back = u128::from(l.link.propagation.as_ps()) * 2;
                    let bits = u128::from(l.link.rate.as_bps()) * there_and_back;
                    u64::try_from(bits / 8_000_000_000_000).unwrap_or(u64::MAX / 4)
                };
                let least = c.links.iter().filter(of_host).map(in_loop).max().unwrap_or(0);
                let least = least + 2 * u64::from(c.max_packet_bytes);
                let own =
                    self.t.buffer.as_ref().map_or(self.profile.port.switch_buffer.0, |b| b.0.0);
                ReceiveBuffer::Lossless { bytes: own.max(least), held: false }
            }
        };
        c.hosts.iter_mut().for_each(|h| h.receive = receive);
    }

    /// Link credits of every port and lane of `c`, whose nodes and classes are known.
    fn set_credits(&self, credits: &Credits, c: &mut FabricConfig) {
        let port = &self.profile.port;
        let buffer = self.t.buffer.as_ref().map_or(port.switch_buffer.0, |b| b.0.0);
        let share = buffer / u64::from(BLOCK_BYTES) / c.classes.each.len() as u64;
        let usual = share.min(MAX_CREDIT.into());
        let blocks = credits.blocks.map_or(usual, |b| b.value()) as u32;
        let host_blocks = credits.host_blocks.map_or(blocks, |b| b.value() as u32);
        for switch in &mut c.switches {
            switch.buffering = Buffering::Credits { blocks };
        }
        for host in &mut c.hosts {
            host.receive = ReceiveBuffer::Credits { blocks: host_blocks };
        }
        let framing_bytes = port.framing.0 as u32;
        c.max_packet_bytes = largest_of_link(self.profile) + framing_bytes;
        c.credits = CreditConfig {
            return_delay: credits.return_delay.as_ref().map_or(Span::ZERO, |d| d.0),
            changes: credits
                .change
                .iter()
                .map(|change| (Time::ZERO + change.at.0, change.return_delay.0))
                .collect(),
            packet_bytes: credits.flow_control.as_ref().map_or(0, |b| b.0.0 as u32),
            framing_bytes,
        };
    }

    fn routing(&self) -> Routing {
        match routing_mode(self.t, self.profile) {
            RoutingMode::Destination => Routing::Destination,
            RoutingMode::Adaptive => Routing::Adaptive,
            RoutingMode::Ecmp => Routing::Ecmp(match self.t.hash_seed.unwrap_or_default() {
                HashMode::PerSwitch => HashSeed::PerSwitch,
                HashMode::Same => HashSeed::Same,
            }),
        }
    }

    fn leaf_spine(&self) -> LeafSpine {
        LeafSpine {
            leaves: number(self.t.leaves),
            hosts_per_leaf: number(self.t.hosts_per_leaf),
            spines: number(self.t.spines),
            links_per_pair: self.t.links_per_pair.unwrap_or_default().value() as u32,
            host_link: self.link(false),
            spine_link: self.link(true),
            switch: self.switch(),
        }
    }

    fn fat_tree(&self) -> FatTree {
        FatTree {
            k: number(self.t.k),
            host_link: self.link(false),
            switch_link: self.link(true),
            switch: self.switch(),
        }
    }

    fn rails(&self) -> Rails {
        Rails {
            servers: number(self.t.servers),
            nics: self.t.nics_each(),
            servers_per_leaf: number(self.t.servers_per_leaf.or(self.t.servers)),
            spines: number(self.t.spines),
            links_per_pair: self.t.links_per_pair.unwrap_or_default().value() as u32,
            host_link: self.link(false),
            spine_link: self.link(true),
            switch: self.switch(),
        }
    }

    fn explicit(&self) -> Result<FabricConfig, Wrong> {
        let hosts = self.t.hosts.value() as u32;
        let mut joined = Joined { first: BTreeMap::new(), nics: BTreeMap::new() };
        let mut links = Vec::new();
        for (index, l) in self.t.link.iter().enumerate() {
            let (from, to) = self.ends(index, l)?;
            for (a, b) in from.all().flat_map(|a| to.all().map(move |b| (a, b))) {
                joined.add(index, l, a, b)?;
                let cable = LinkConfig { a, b, link: self.explicit_link(l, a, b) };
                links.extend((0..l.count.value()).map(|_| cable));
            }
        }
        let switches = vec![self.switch(); number(self.t.switches) as usize];
        let mut c = FabricConfig::of(hosts, switches, links);
        let mut led = BTreeMap::new();
        for (index, r) in self.t.route.iter().enumerate() {
            let routes = self.routes(index, r, &c)?;
            let key = |r: &StaticRoute| (r.switch, r.host, r.host_port);
            let other = |r: &StaticRoute| led.get(&key(r)).filter(|(out, _)| *out != r.out);
            if let Some((host, (_, before))) = routes.iter().find_map(|r| Some((r.host, other(r)?)))
            {
                let text = format!(
                    "route {before} leads packets for host{} at {} another way already",
                    host.0, r.at
                );
                let help = "name each host in one route of a switch";
                return Err(Wrong::new(format!("route.{index}.to"), text, help));
            }
            led.extend(routes.iter().map(|r| (key(r), (r.out, index))));
            c.routes.extend(routes);
        }
        Ok(c)
    }

    /// The static routes of an entry of the list.
    fn routes(
        &self,
        index: usize,
        r: &TopologyRoute,
        c: &FabricConfig,
    ) -> Result<Vec<StaticRoute>, Wrong> {
        let wrong = |key: &str, text: String, help: &str| {
            Err(Wrong::new(format!("route.{index}.{key}"), text, help))
        };
        let one = |text: &str| nodes(text).filter(|n| n.first == n.last);
        let switches = number(self.t.switches);
        let Some(at) = one(&r.at).filter(|n| !n.host && n.first < switches) else {
            return wrong("at", format!("\"{}\" names no switch", r.at), "write \"switch0\"");
        };
        let hosts = self.t.hosts.value();
        let Some(to) = nodes(&r.to).filter(|n| n.host && u64::from(n.last) < hosts) else {
            let help = "write \"host0\", or \"host0..3\" for several";
            return wrong("to", format!("\"{}\" names no hosts", r.to), help);
        };
        let here = End::Switch(at.first);
        let via = one(&r.via).and_then(|n| n.all().next());
        let mine = c.links.iter().filter(|l| l.a == here || l.b == here);
        let mut ports = (0..).map(PortId).zip(mine);
        let out = ports.find(|(_, l)| via == Some(if l.a == here { l.b } else { l.a }));
        let Some((out, _)) = out else {
            let text = format!("no link joins {here} and \"{}\"", r.via);
            return wrong("via", text, "name a node at the other end of one of its links");
        };
        let counts = nic_counts(c);
        let ends = (to.first..=to.last).flat_map(|h| {
            (0..counts[h as usize] as u16).map(move |port| (HostId(h), PortId(port)))
        });
        let switch = at.first;
        let route = |(host, host_port)| StaticRoute { switch, host, host_port, out };
        Ok(ends.map(route).collect())
    }

    fn explicit_link(&self, l: &TopologyLink, a: End, b: End) -> Link {
        let usual = self.link(matches!((a, b), (End::Switch(_), End::Switch(_))));
        let link = Link {
            rate: l.rate.map_or(usual.rate, |r| r.0),
            propagation: propagation(l.length, l.propagation).unwrap_or(usual.propagation),
            pfc: l.pfc.unwrap_or(true),
            ..usual
        };
        self.with_mtu(link, l.mtu)
    }

    /// The nodes at both ends of links.
    fn ends(&self, index: usize, l: &TopologyLink) -> Result<(Nodes, Nodes), Wrong> {
        let key = format!("link.{index}.between");
        let parsed = l.between.split_once('-').and_then(|(a, b)| Some((nodes(a)?, nodes(b)?)));
        let Some(ends) = parsed else {
            let text = format!("\"{}\" names no link", l.between);
            let help = "write \"host0-switch0\", or \"host0..7-switch0\" for several";
            return Err(Wrong::new(key, text, help));
        };
        for n in [ends.0, ends.1] {
            let (known, word, raise) = match n.host {
                true => (self.t.hosts.value(), "host", "hosts"),
                false => (number(self.t.switches).into(), "switch", "switches"),
            };
            if u64::from(n.last) >= known {
                let text = format!("there is no {word}{}: `{raise}` is {known}", n.last);
                let help = format!("raise `topology.{raise}`, or name another");
                return Err(Wrong::new(key, text, help));
            }
        }
        Ok(ends)
    }
}

/// What is joined already, and by which entry of the list.
struct Joined {
    first: BTreeMap<(End, End), usize>,
    /// Links of each host.
    nics: BTreeMap<u32, u64>,
}

impl Joined {
    fn add(&mut self, index: usize, l: &TopologyLink, a: End, b: End) -> Result<(), Wrong> {
        let wrong = |text, help: &str| Err(Wrong::new(format!("link.{index}.between"), text, help));
        let name = |e: End| e.to_string();
        if a == b {
            return wrong(format!("a link from {} to itself", name(a)), "name two nodes");
        }
        if let Some(before) = self.first.insert((a.min(b), a.max(b)), index) {
            let text = format!("{} and {} are joined by link {before} already", name(a), name(b));
            return wrong(text, "for cables side by side write `count = 2` there");
        }
        for end in [a, b] {
            let End::Host(h) = end else { continue };
            let nics = self.nics.entry(h).or_default();
            *nics += l.count.value();
            if *nics > MAX_NICS as u64 {
                let text =
                    format!("host {h} has {nics} links, each a NIC's, and at most {MAX_NICS}");
                return wrong(text, "give it fewer links");
            }
        }
        Ok(())
    }
}

/// Nodes of one kind, in a row.
#[derive(Copy, Clone)]
struct Nodes {
    host: bool,
    first: u32,
    last: u32,
}

impl Nodes {
    fn all(self) -> impl Iterator<Item = End> + Clone {
        let Self { host, first, last } = self;
        (first..=last).map(move |n| if host { End::Host(n) } else { End::Switch(n) })
    }
}

/// `host3`, `switch0..7`.
fn nodes(text: &str) -> Option<Nodes> {
    let (host, numbers) = match text.strip_prefix("host") {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix("switch")?),
    };
    let plain = |n: &str| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit());
    let number = |n: &str| n.parse::<u32>().ok().filter(|_| plain(n));
    let (first, last) = match numbers.split_once("..") {
        Some((first, last)) => (number(first)?, number(last)?),
        None => (number(numbers)?, number(numbers)?),
    };
    (first <= last).then_some(Nodes { host, first, last })
}
