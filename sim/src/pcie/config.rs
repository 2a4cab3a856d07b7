//! Parameters of a host's PCIe tree: plain values, units in the field's type or name.

use doorbell_core::units::{BitRate, Span};

use super::{Cause, NodeId};
use crate::engine::NoiseTable;

/// Everything that [`PcieTree::new`](super::PcieTree::new) needs.
#[derive(Clone, Debug)]
pub struct PcieConfig {
    /// Byte overheads and cutting rules of TLPs, the same on every link of the tree.
    pub format: TlpFormat,
    /// The sockets (NUMA nodes) of the host, at least one; socket `i` is [`NodeId`] `i`.
    pub sockets: Vec<SocketConfig>,
    /// What connects two sockets. Unused with one socket.
    pub interconnect: InterconnectConfig,
    /// What root complexes forward between devices.
    pub peer: PeerConfig,
    /// Which writes of devices need not become visible in their order.
    pub relaxed: RelaxedOrdering,
    /// Switches and endpoints. Entry `i` is `NodeId(sockets.len() + i)`; a parent comes before
    /// its children.
    pub nodes: Vec<NodeConfig>,
}

/// Rates at which a root complex forwards TLPs from one device to another, in each direction, their
/// headers included (published rates are of payload). Hosts forward them slower than their own
/// memory takes them. Devices below one switch meet there and
/// are not limited; a rate that no link reaches limits nobody.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct PeerConfig {
    /// Between devices of one socket. Lower: GPUDirect through the root complex is slower.
    pub same: BitRate,
    /// Between devices of different sockets.
    pub across: BitRate,
}

impl Default for PeerConfig {
    /// No limit.
    fn default() -> Self {
        let fast = BitRate::gbps(1_000_000);
        Self { same: fast, across: fast }
    }
}

/// The attribute of TLPs that lets a posted write become visible before earlier ones of the same
/// device. Whatever does not carry it, CQEs and reads among them, stays behind all that was sent
/// before: a completion still says that the data is there, and only who polls memory can see less.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct RelaxedOrdering {
    /// What carries it.
    pub scope: RelaxedScope,
    /// A write that carries it is visible up to so much later than it would be alone, drawn evenly:
    /// its lines are asked for at once, and each comes when it comes. 0: only writes that wait for
    /// DRAM or another socket are passed. Longer: they are seen in another order more often.
    pub spread: Span,
}

/// What carries the attribute [`RelaxedOrdering`].
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub enum RelaxedScope {
    /// Nothing: all writes of a device become visible in their order.
    #[default]
    None,
    /// Writes of payload.
    Payload,
    /// And both halves of an ATOMIC, as where the adapter leaves it to the root complex as a PCIe
    /// AtomicOp: such a request may pass earlier writes, which no RC responder may let happen.
    PayloadAndAtomics,
}

impl RelaxedScope {
    /// Whether TLPs of this cause carry it.
    pub(super) const fn takes(self, cause: Cause) -> bool {
        match self {
            Self::None => false,
            Self::Payload => matches!(cause, Cause::PayloadWrite),
            Self::PayloadAndAtomics => matches!(cause, Cause::PayloadWrite | Cause::Atomic),
        }
    }
}

/// Sizes of TLPs and the rules by which transfers are cut into them.
///
/// Payloads count in bytes and are not padded to double words: the published byte formulas
/// that this is checked against do not pad either.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct TlpFormat {
    /// Bytes around the payload of a memory write (framing, sequence number, header, LCRC).
    /// 24 with a 64-bit address (protocol 6.5); 26 in Kalia et al. ATC'16.
    pub write_header: u32,
    /// Bytes of a memory read request. 24 (protocol 6.5); 26 in Kalia et al.
    pub read_header: u32,
    /// Bytes around the payload of a completion with data. 20 (protocol 6.5); 22 in Kalia et al.
    pub completion_header: u32,
    /// MPS, largest payload of a write or of a completion, bytes: a power of two, 128 to 4096.
    /// Larger: less overhead; a TLP holds a link longer.
    pub max_payload: u32,
    /// MRRS, largest read request, bytes: a power of two, 64 to 4096. Smaller: more requests
    /// and more tags for a transfer.
    pub max_read_request: u32,
    /// RCB, a completion that does not end its request ends at a multiple of this, bytes: 64 or
    /// 128.
    pub read_completion_boundary: u32,
    /// Largest completion that the host builds out of consecutive lines (C_rc of Kalia et al.),
    /// bytes; at least RCB, used up to MPS. 128 for Kalia's hosts, MPS elsewhere.
    pub completion_combine: u32,
    /// Bytes of acknowledgement and flow-control DLLPs that a link sends *against* every
    /// `dllp_interval` bytes of TLPs. Neugebauer et al.: 16 per 203 (x8) or 168 (x16). 0: none.
    pub dllp_bytes: u32,
    /// See [`dllp_bytes`](Self::dllp_bytes); more than 0.
    pub dllp_interval: u32,
    /// Bytes of clock-compensation (SKIP) symbols after every `skip_interval` bytes of a link.
    /// Neugebauer et al.: 4 per 1538. 0: none.
    pub skip_bytes: u32,
    /// See [`skip_bytes`](Self::skip_bytes); more than 0.
    pub skip_interval: u32,
}

/// Generation of a link: transfer rate and encoding.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Generation {
    /// 2.5 GT/s, 8b/10b.
    Gen1,
    /// 5 GT/s, 8b/10b.
    Gen2,
    /// 8 GT/s, 128b/130b.
    Gen3,
    /// 16 GT/s, 128b/130b.
    Gen4,
    /// 32 GT/s, 128b/130b.
    Gen5,
    /// 64 GT/s, 242 of 256 bytes of a FLIT (Neugebauer et al., model).
    Gen6,
}

/// One link, both directions alike.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct LinkConfig {
    /// Generation trained to; one lower halves the rate, and nothing else tells.
    pub generation: Generation,
    /// Lanes trained to: 1, 2, 4, 8 or 16. Half the lanes, half the rate.
    pub width: u8,
    /// One way, from the last bit sent to the last bit accepted: PHY, data link layer, trace.
    /// Some tens of nanoseconds. Higher: every read pays twice.
    pub latency: Span,
    /// Buffers that the receiver of either direction offers.
    pub credits: Credits,
}

/// Flow-control credits of one receiver. Completions are always accepted: a requester keeps
/// room for them before it asks (`read_bytes` of [`EndpointConfig`]).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Credits {
    /// Posted TLPs (memory writes) held at a time, at least 1. Fewer: writes wait earlier when
    /// memory drains slowly.
    pub posted_headers: u32,
    /// Posted payload held at a time, in units of 16 bytes; at least one MPS.
    pub posted_data: u32,
    /// Read requests held at a time, at least 1.
    pub nonposted_headers: u32,
}

impl Credits {
    /// No limit.
    pub const UNLIMITED: Self =
        Self { posted_headers: u32::MAX, posted_data: u32::MAX, nonposted_headers: u32::MAX };
}

/// A socket: root complex, last-level cache, memory.
#[derive(Clone, Debug)]
pub struct SocketConfig {
    /// Root complex, from the last bit of a TLP at the root port to the memory system, and from
    /// one root port to another for peer-to-peer TLPs. Some tens of nanoseconds.
    pub root_latency: Span,
    /// From the memory system's order point to the data of a read, line in the LLC. 150 to
    /// 250 ns. Higher: WQE and payload fetches take longer, and the same tags carry less.
    pub llc_read: Span,
    /// Added to `llc_read` when the line is in DRAM (C-PCIE-036: 40 ns).
    pub dram_extra: Span,
    /// From the memory system's order point until written data is visible to cores and to
    /// later reads of the same device (C-PCIE-033: about 110 ns). Higher: CQEs are seen later,
    /// and a read right behind a write waits longer.
    pub write_commit: Span,
    /// From a core's store leaving the core to the root port. 0 saves one event per MMIO write.
    pub mmio_latency: Span,
    /// DRAM of this socket, shared by DMA that misses the LLC, cores and reductions. A channel
    /// of DDR4-3200 has 205 Gb/s at most.
    pub dram_rate: BitRate,
    /// Added to the latency of each read of this socket's memory. `None`: no noise, no draw.
    pub noise: Option<NoiseTable>,
}

/// The path between two sockets.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct InterconnectConfig {
    /// Added one way to everything that crosses; a read crosses twice (C-NUMA-001: 107 ns in
    /// all).
    pub latency: Span,
    /// Rate per direction and pair of sockets. Lower than a device's link: remote memory is
    /// slower also for large transfers.
    pub rate: BitRate,
    /// Bytes that each crossing TLP occupies beyond its payload.
    pub request_bytes: u32,
}

/// A switch or an endpoint with the link to its parent.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// Name for reports.
    pub name: String,
    /// A socket or a switch that stands before this entry.
    pub parent: NodeId,
    /// The link to the parent.
    pub link: LinkConfig,
    /// What it is.
    pub kind: NodeKind,
}

/// What stands in the tree.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum NodeKind {
    /// A switch that forwards a TLP `latency` after its first bit came (cut-through).
    Switch {
        /// First bit in to first bit out. Typical 100 to 150 ns.
        latency: Span,
    },
    /// A device.
    Endpoint(EndpointConfig),
}

/// A device as requester and as target.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct EndpointConfig {
    /// Read requests outstanding at a time (tags), at least 1; devices have 32 to 768. The rate
    /// of small reads is at most `tags / round trip`.
    pub read_tags: u32,
    /// Bytes of read data outstanding at a time (completion buffer); at least MRRS. The
    /// throughput of large reads is at most `bytes / round trip`.
    pub read_bytes: u32,
    /// Own memory read by a peer (GPU memory): request at the device to first data. GPUs are
    /// slower here than host memory.
    pub read_latency: Span,
    /// Own memory written by a peer: last bit at the device to visible.
    pub write_latency: Span,
    /// Rate of the device's memory for peers, and for the copies and reductions of single blocks.
    pub memory_rate: BitRate,
    /// Rate of the device's memory for kernels that use all of it. What peers move is a few per
    /// cent of it and takes nothing from it here.
    pub kernel_rate: BitRate,
}

/// Why a [`PcieConfig`] describes no tree.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum PcieConfigError {
    /// No socket.
    NoSocket,
    /// More than 256 sockets, or more than 4096 sockets and nodes together.
    TooManyNodes,
    /// A TLP size is not a power of two in its range, or an interval is zero.
    Format {
        /// The field.
        field: &'static str,
    },
    /// The parent of node `index` is an endpoint, or stands behind the node.
    Parent {
        /// Position in [`PcieConfig::nodes`].
        index: usize,
    },
    /// The width of the link of node `index` is not 1, 2, 4, 8 or 16.
    Width {
        /// Position in [`PcieConfig::nodes`].
        index: usize,
    },
    /// The credits of the link of node `index` do not suffice for one TLP of MPS.
    Credits {
        /// Position in [`PcieConfig::nodes`].
        index: usize,
    },
    /// Endpoint `index` has no read tag, or a completion buffer below MRRS.
    Reads {
        /// Position in [`PcieConfig::nodes`].
        index: usize,
    },
}

impl std::fmt::Display for PcieConfigError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoSocket => write!(f, "a host needs at least one socket"),
            Self::TooManyNodes => {
                write!(f, "more than 256 sockets, or 4096 sockets and PCIe nodes")
            }
            Self::Format { field } => write!(
                f,
                "TLP format: `{field}` must be a power of two in its range (an interval: not 0)"
            ),
            Self::Parent { index } => {
                write!(f, "PCIe node {index}: its parent must be a socket or an earlier switch")
            }
            Self::Width { index } => {
                write!(f, "PCIe node {index}: the width must be 1, 2, 4, 8 or 16 lanes")
            }
            Self::Credits { index } => {
                write!(f, "PCIe node {index}: the credits must suffice for one TLP of MPS bytes")
            }
            Self::Reads { index } => write!(
                f,
                "PCIe node {index}: needs at least one read tag and a completion buffer of MRRS"
            ),
        }
    }
}

impl std::error::Error for PcieConfigError {}

impl PcieConfig {
    /// Whether this describes a tree.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn validate(&self) -> Result<(), PcieConfigError> {
        if self.sockets.is_empty() {
            return Err(PcieConfigError::NoSocket);
        }
        if self.sockets.len() > 256 || self.sockets.len() + self.nodes.len() > 4096 {
            return Err(PcieConfigError::TooManyNodes);
        }
        self.format.validate()?;
        for (index, node) in self.nodes.iter().enumerate() {
            let parent = usize::from(node.parent.0);
            let is_root = parent < self.sockets.len();
            let above = (!is_root).then(|| self.nodes.get(parent - self.sockets.len()));
            let is_switch =
                above.flatten().is_some_and(|n| matches!(n.kind, NodeKind::Switch { .. }));
            if !is_root && (!is_switch || parent >= self.sockets.len() + index) {
                return Err(PcieConfigError::Parent { index });
            }
            if !matches!(node.link.width, 1 | 2 | 4 | 8 | 16) {
                return Err(PcieConfigError::Width { index });
            }
            let Credits { posted_headers, posted_data, nonposted_headers } = node.link.credits;
            let needed = self.format.max_payload.div_ceil(16);
            if posted_headers == 0 || nonposted_headers == 0 || posted_data < needed {
                return Err(PcieConfigError::Credits { index });
            }
            if let NodeKind::Endpoint(e) = node.kind
                && (e.read_tags == 0 || e.read_bytes < self.format.max_read_request)
            {
                return Err(PcieConfigError::Reads { index });
            }
        }
        Ok(())
    }
}

impl TlpFormat {
    fn validate(&self) -> Result<(), PcieConfigError> {
        let sizes = [
            ("max_payload", self.max_payload, 128),
            ("max_read_request", self.max_read_request, 64),
            ("read_completion_boundary", self.read_completion_boundary, 64),
            ("completion_combine", self.completion_combine, self.read_completion_boundary),
        ];
        for (field, size, least) in sizes {
            if !size.is_power_of_two() || size < least || size > 4096 {
                return Err(PcieConfigError::Format { field });
            }
        }
        for (field, interval) in
            [("dllp_interval", self.dllp_interval), ("skip_interval", self.skip_interval)]
        {
            if interval == 0 {
                return Err(PcieConfigError::Format { field });
            }
        }
        Ok(())
    }
}
