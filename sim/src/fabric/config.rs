//! The description that a fabric is built from: nodes, links, and helpers for the usual shapes.

use core::fmt;

use doorbell_core::units::{BitRate, Ratio, Span};

use super::classes::{Classes, MAX_CLASSES};
use super::ecn::{EcnConfig, EcnError};
use super::lanes::CreditConfig;
use super::link::Link;
use super::pfc::SharedConfig;
use crate::wire::{HostId, PortId};

/// Largest packet of an MTU of 4096 bytes, with room for every header: RoCEv2 on IPv6 with a
/// WRITE Only with Immediate takes 4218 bytes.
pub const DEFAULT_MAX_PACKET_BYTES: u32 = 4224;

/// One end of a link. The ports of a node are numbered in the order in which links name it.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum End {
    /// A host, by its index.
    Host(u32),
    /// A switch, by its index among the switches.
    Switch(u32),
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(i) => write!(f, "host {i}"),
            Self::Switch(i) => write!(f, "switch {i}"),
        }
    }
}

/// What a host does with packets that arrive.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub enum ReceiveBuffer {
    /// Takes every packet; what finds the NIC's own buffer full waits here, and holds back nobody
    /// but on links with pauses.
    #[default]
    Unlimited,
    /// Takes every packet, and what finds the NIC's own buffer full is dropped: a link that can
    /// hold nobody back. Where it knows pauses, lossless classes are paused instead, and what still
    /// comes is kept.
    Lossy,
    /// Pushes back when `bytes` are in use, per port. Smaller: the sender waits for room more
    /// often; it keeps the line busy with at least rate times round trip plus two packets.
    Lossless {
        /// Size of the buffer, bytes on the wire.
        bytes: u64,
        /// A packet stays in the buffer until the NIC says so ([`rx_done`]); else it leaves with
        /// its delivery.
        ///
        /// [`rx_done`]: super::Fabric::rx_done
        held: bool,
    },
    /// Credits of InfiniBand: room for so many blocks of 64 bytes per port and virtual lane; a
    /// packet leaves it with its delivery. Fewer: the link idles while it waits for credit.
    Credits {
        /// Room, in blocks. More than 2048 are never granted at once.
        blocks: u32,
    },
}

/// A host's side of the network.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct HostConfig {
    /// Most bytes that each transmit port holds, `None` without limit. A full port refuses the
    /// packet, it does not drop it.
    pub tx_queue_bytes: Option<u64>,
    /// What each port does with packets that arrive.
    pub receive: ReceiveBuffer,
}

/// When a switch begins to send a packet.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Forwarding {
    /// As soon as it has the header, if the output port is not faster than the input port; from
    /// a slower to a faster port it stores the packet first, as real ones do.
    CutThrough,
    /// When it has the last bit.
    StoreAndForward,
}

/// What a switch does when a port cannot send as fast as packets arrive for it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Buffering {
    /// Each output port holds `port_bytes` and drops what does not fit as a whole.
    TailDrop {
        /// Bytes on the wire per output port, the packet being sent included. More: fewer drops,
        /// more delay.
        port_bytes: u64,
    },
    /// Each input port has room for `port_bytes`; its sender waits for room and nothing is lost.
    /// Room comes back when the packet's last bit has left the switch, one propagation delay
    /// later at the sender.
    Lossless {
        /// Bytes on the wire per input port. Less: links idle while they wait for room.
        port_bytes: u64,
    },
    /// One buffer for all ports. Lossless classes are paused by priority flow control, the others
    /// drop. A packet is in the buffer from its arrival until its transmission begins.
    Shared(SharedConfig),
    /// Credits of InfiniBand: each input port has room for so many blocks of 64 bytes per virtual
    /// lane. Nothing is lost. When credit comes back says [`FabricConfig::credits`].
    Credits {
        /// Room, in blocks. More than 2048 are never granted at once.
        blocks: u32,
    },
}

/// A switch.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct SwitchConfig {
    /// When it begins to send a packet.
    pub forwarding: Forwarding,
    /// From first bit in to first bit out (cut-through) or from last bit in to first bit out
    /// (store and forward), with an idle output port. The time to read the header is included.
    pub transit: Span,
    /// What it does with packets that wait.
    pub buffering: Buffering,
}

impl Default for SwitchConfig {
    /// Cut-through in 90 ns (R-LAT-001), 5.2 MB per output port with tail drop (C-INC-001).
    fn default() -> Self {
        Self {
            forwarding: Forwarding::CutThrough,
            transit: Span::from_ns(90),
            buffering: Buffering::TailDrop { port_bytes: 5_200_000 },
        }
    }
}

/// A link between two nodes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct LinkConfig {
    /// One end.
    pub a: End,
    /// The other end.
    pub b: End,
    /// The cable.
    pub link: Link,
}

/// Bounded random delay at every input of a switch; the order of an input is kept.
///
/// Without it two senders in step stay in step for ever, and one of them loses every contested
/// slot of a full queue.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub enum Noise {
    /// None: closed forms hold to the picosecond.
    Off,
    /// Below the time of one packet of the largest size.
    #[default]
    OnePacket,
    /// Below this time.
    UpTo(Span),
    /// Below so many times the time of one packet of the largest size, at each link's rate.
    Packets(Ratio),
}

/// A route that replaces the computed one.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct StaticRoute {
    /// At this switch
    pub switch: u32,
    /// packets to this host
    pub host: HostId,
    /// and this port of it
    pub host_port: PortId,
    /// leave by this port of the switch.
    pub out: PortId,
}

/// A switch, or a port of it, that marks otherwise than its class says.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct EcnException {
    /// The switch.
    pub switch: u32,
    /// Its only port; `None`: all.
    pub port: Option<PortId>,
    /// The curve in the place of that of every class that is marked; `None`: it marks nothing.
    pub ecn: Option<EcnConfig>,
}

impl EcnException {
    /// Whether it is about this port.
    pub fn is_of(&self, switch: u32, port: PortId) -> bool {
        self.switch == switch && self.port.is_none_or(|only| only == port)
    }
}

/// How a switch chooses among output ports that lead to a destination by equally short ways.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub enum Routing {
    /// By the destination alone, as a table by LID does: the n-th host takes the n-th way, modulo
    /// their number. Everything for a host port meets on one way.
    #[default]
    Destination,
    /// By a hash over the five-tuple of RoCEv2: source and destination address, protocol, source
    /// and destination port of UDP. The packets of a QP keep to one way, and in order.
    Ecmp(HashSeed),
    /// For each packet the output with the fewest bytes in its queue; a hash over the five-tuple
    /// and the PSN decides between equals. Packets of a flow overtake each other.
    Adaptive,
}

/// What a switch mixes into its hash.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub enum HashSeed {
    /// A number of its own, which the seed of the run changes.
    #[default]
    PerSwitch,
    /// The same for every switch and every run. Flows that one switch sent the same way are sent
    /// the same way by the next switch too: most of its outputs stay idle (polarisation).
    Same,
}

/// A whole network.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FabricConfig {
    /// The hosts.
    pub hosts: Vec<HostConfig>,
    /// The switches.
    pub switches: Vec<SwitchConfig>,
    /// The links.
    pub links: Vec<LinkConfig>,
    /// Choice among equally short ways.
    pub routing: Routing,
    /// Routes that differ from the shortest path, whatever the routing is.
    pub routes: Vec<StaticRoute>,
    /// Size on the wire of the largest packet: no buffer may be smaller, and it bounds
    /// [`Noise::OnePacket`].
    pub max_packet_bytes: u32,
    /// Size on the wire of the largest packet that hosts send, where that is known and not
    /// [`max_packet_bytes`](Self::max_packet_bytes): headroom by formula is for two of those, and
    /// the share of a lossy class has to hold one. Larger: less is left to share.
    pub largest_sent: Option<u32>,
    /// Noise at the inputs of switches.
    pub noise: Noise,
    /// Traffic classes of every port.
    pub classes: Classes,
    /// Switches that mark otherwise. Of several about one port the last one counts.
    pub ecn_exceptions: Vec<EcnException>,
    /// How credits come back on links to nodes with [`Buffering::Credits`] or
    /// [`ReceiveBuffer::Credits`].
    pub credits: CreditConfig,
    /// Hosts of a node, which reach each other by links of their own; 0: there are no nodes. See
    /// [`FabricConfig::with_nodes`].
    pub node_hosts: u32,
}

impl FabricConfig {
    /// The largest packet that a link carries, in bytes on the wire.
    pub(super) fn largest_on(&self, link: &Link) -> u32 {
        self.largest_sent.unwrap_or(self.max_packet_bytes).min(link.limit())
    }

    /// Two hosts and a cable.
    pub fn back_to_back(link: Link) -> Self {
        Self::of(2, Vec::new(), vec![LinkConfig { a: End::Host(0), b: End::Host(1), link }])
    }

    /// `hosts` hosts at one switch, each by the same kind of link; host `h` at port `h`.
    pub fn single_switch(hosts: u32, link: Link, switch: SwitchConfig) -> Self {
        let links =
            (0..hosts).map(|h| LinkConfig { a: End::Host(h), b: End::Switch(0), link }).collect();
        Self::of(hosts, vec![switch], links)
    }

    /// The same network with `nics` cables in the place of each cable of a host: as many ports,
    /// side by side. Port `n` of a host is at the end of the `n`-th.
    pub fn with_host_links(mut self, nics: u32) -> Self {
        let of_host = |e: End| matches!(e, End::Host(_));
        let times = |l: &LinkConfig| if of_host(l.a) || of_host(l.b) { nics } else { 1 };
        let cables = self.links.iter().flat_map(|l| (0..times(l)).map(|_| *l));
        self.links = cables.collect();
        self
    }

    /// The same network, with a further link at each host into its node, to the other ones of
    /// `hosts` in a row, a multiple of which there are. The links meet in a switch for each node,
    /// behind all others, that never holds anybody back. From a host to another one of its node it
    /// takes `latency`, at least 1 ps and rounded up to an even number of them, and the bytes at
    /// `rate`.
    ///
    /// # Panics
    /// When the hosts make no whole nodes of at least two.
    pub fn with_nodes(mut self, hosts: u32, rate: BitRate, latency: Span) -> Self {
        let count = self.hosts.len() as u32;
        assert!(hosts > 1 && count.is_multiple_of(hosts), "nodes of {hosts} hosts of {count}");
        self.node_hosts = hosts;
        let half = Span::from_ps(latency.as_ps().div_ceil(2));
        let first = self.switches.len() as u32;
        // What may come while a sender hears that there is room, many times over.
        let port_bytes = 1 << 40;
        let node = SwitchConfig {
            forwarding: Forwarding::CutThrough,
            transit: Span::ZERO,
            buffering: Buffering::Lossless { port_bytes },
        };
        self.switches.extend((0..count / hosts).map(|_| node));
        self.links.extend((0..count).map(|host| LinkConfig {
            a: End::Host(host),
            b: End::Switch(first + host / hosts),
            link: Link::new(rate, half),
        }));
        self
    }

    /// Hosts and switches by their numbers, and the links between them; everything else as by
    /// default.
    pub fn of(hosts: u32, switches: Vec<SwitchConfig>, links: Vec<LinkConfig>) -> Self {
        Self {
            hosts: vec![HostConfig::default(); hosts as usize],
            switches,
            links,
            routing: Routing::default(),
            routes: Vec::new(),
            max_packet_bytes: DEFAULT_MAX_PACKET_BYTES,
            largest_sent: None,
            noise: Noise::default(),
            classes: Classes::default(),
            ecn_exceptions: Vec::new(),
            credits: CreditConfig::default(),
            node_hosts: 0,
        }
    }
}

/// Why no fabric can be built from a [`FabricConfig`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ConfigError {
    /// A network without hosts.
    NoHosts,
    /// The largest packet has no bytes.
    NoPacketSize,
    /// A link without delay; `link` is its index.
    ZeroDelay {
        /// Index of the link.
        link: usize,
    },
    /// A link names a node that does not exist.
    UnknownNode {
        /// Index of the link.
        link: usize,
        /// The node.
        end: End,
    },
    /// A link from a node to itself.
    SelfLink {
        /// Index of the link.
        link: usize,
    },
    /// More links at one node than ports can be numbered.
    TooManyPorts {
        /// The node.
        node: End,
    },
    /// More hosts and switches than nodes can be numbered.
    TooManyNodes,
    /// A host without a link.
    Unconnected {
        /// The host.
        host: u32,
    },
    /// No path between two hosts.
    Unreachable {
        /// One host.
        from: u32,
        /// The other.
        to: u32,
    },
    /// A buffer or queue that the largest packet does not fit in: it would never be sent.
    BufferTooSmall {
        /// The node.
        node: End,
        /// The size given.
        bytes: u64,
        /// The largest packet.
        needed: u32,
    },
    /// Changes of the return delay of credits whose times do not rise.
    CreditChanges {
        /// Index of the change that is not later than the one before.
        change: usize,
    },
    /// No class, or more than [`MAX_CLASSES`].
    ClassCount {
        /// How many.
        classes: usize,
    },
    /// A service level that belongs to a class that does not exist.
    NoSuchClass {
        /// The service level.
        sl: u8,
        /// The class.
        class: u8,
    },
    /// A class of weight 0, which would never send.
    NoWeight {
        /// The class.
        class: u8,
    },
    /// Reserved parts and headroom take the whole shared buffer.
    NothingShared {
        /// The switch.
        node: End,
        /// Its buffer.
        total: u64,
        /// What is taken from it.
        taken: u64,
    },
    /// A lossy queue, alone in the buffer, that the largest packet does not fit in: all would be
    /// dropped.
    ShareTooSmall {
        /// The switch.
        node: End,
        /// The class.
        class: u8,
        /// Most that its queue may hold.
        share: u64,
        /// The largest packet.
        needed: u32,
    },
    /// Resume above pause.
    XonAboveXoff {
        /// The switch.
        node: End,
        /// Resume.
        xon: u64,
        /// Pause.
        xoff: u64,
    },
    /// A threshold above what the switch has to share: it never pauses before it drops.
    XoffAboveBuffer {
        /// The switch.
        node: End,
        /// The threshold.
        xoff: u64,
        /// What there is to share.
        pool: u64,
    },
    /// A pause of no time, or a share of nothing.
    ZeroPause {
        /// The switch.
        node: End,
    },
    /// ECN marking that makes no sense.
    Ecn {
        /// The class.
        class: u8,
        /// The first switch whose queues are too small for it, if it is that.
        switch: Option<u32>,
        /// What is wrong.
        error: EcnError,
    },
    /// An exception of ECN marking about a switch or port that does not exist.
    BadException {
        /// Index of the exception.
        exception: usize,
    },
    /// A curve of an exception that makes no sense.
    EcnException {
        /// Index of the exception.
        exception: usize,
        /// What is wrong.
        error: EcnError,
    },
    /// A static route that names a switch, host or port that does not exist.
    BadRoute {
        /// Index of the route.
        route: usize,
    },
    /// Static routes by which packets to this host port never arrive.
    RouteMisses {
        /// The switch from which they go astray.
        switch: u32,
        /// The destination.
        host: HostId,
        /// Its port.
        host_port: PortId,
    },
}

/// Which switch a message is about, if one.
fn at(switch: &Option<u32>) -> String {
    switch.map_or(String::new(), |switch| format!(" at switch {switch}"))
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoHosts => write!(f, "a network without hosts"),
            Self::NoPacketSize => write!(f, "the largest packet has a size of zero"),
            Self::ZeroDelay { link } => {
                write!(f, "link {link} has no delay; give it a length or at least 1 ps")
            }
            Self::UnknownNode { link, end } => {
                write!(f, "link {link} ends at {end}, which does not exist")
            }
            Self::SelfLink { link } => write!(f, "link {link} joins a node with itself"),
            Self::TooManyPorts { node } => write!(f, "{node} has more than 65535 ports"),
            Self::TooManyNodes => write!(f, "more than 2^32 nodes"),
            Self::Unconnected { host } => write!(f, "host {host} has no link"),
            Self::Unreachable { from, to } => write!(f, "no path from host {from} to host {to}"),
            Self::BufferTooSmall { node, bytes, needed } => write!(
                f,
                "a buffer of {bytes} bytes at {node} never takes the largest packet, which has \
                 {needed} bytes on the wire"
            ),
            Self::CreditChanges { change } => {
                write!(f, "change {change} of the return delay is not later than the one before")
            }
            Self::ClassCount { classes } => {
                write!(f, "{classes} traffic classes: give 1 to {MAX_CLASSES}")
            }
            Self::NoSuchClass { sl, class } => {
                write!(f, "service level {sl} is in class {class}, which does not exist")
            }
            Self::NoWeight { class } => {
                write!(f, "class {class} has the weight 0 and never sends; give it at least 1")
            }
            Self::NothingShared { node, total, taken } => write!(
                f,
                "{node} has a buffer of {total} bytes, and headroom and reserved parts take \
                 {taken}: give it more, or less headroom"
            ),
            Self::ShareTooSmall { node, class, share, needed } => write!(
                f,
                "a queue of class {class} at {node} may hold {share} bytes at most, and never \
                 takes the largest packet, which has {needed} bytes on the wire"
            ),
            Self::XonAboveXoff { node, xon, xoff } => {
                write!(f, "{node} resumes at {xon} bytes (xon), above its xoff of {xoff}")
            }
            Self::XoffAboveBuffer { node, xoff, pool } => write!(
                f,
                "{node} pauses at {xoff} bytes (xoff), but has only {pool} to share: lower xoff"
            ),
            Self::ZeroPause { node } => {
                write!(f, "{node} pauses for no time or shares nothing: quanta, alpha at least 1")
            }
            Self::Ecn { class, switch, error } => write!(f, "class {class}{}: {error}", at(switch)),
            Self::BadException { exception } => {
                write!(f, "ECN exception {exception} names a switch or port that does not exist")
            }
            Self::EcnException { exception, error } => {
                write!(f, "ECN exception {exception}: {error}")
            }
            Self::BadRoute { route } => {
                write!(f, "static route {route} names a switch, host or port that does not exist")
            }
            Self::RouteMisses { switch, host, host_port } => write!(
                f,
                "with the static routes given, packets at switch {switch} never reach \
                 {host_port} of {host}"
            ),
        }
    }
}

impl std::error::Error for ConfigError {}
