//! The PCIe tree of a host: TLP bytes, links, switches, tags, credits, DMA and MMIO.
//!
//! Sans-IO: [`PcieTree::submit`] and [`PcieTree::on_event`] answer with events in an
//! [`Out`](crate::engine::Out) list, and `on_event` returns a [`Done`] when a transaction has
//! ended.
//!
//! Simplified: one virtual channel, each link direction a FIFO; completions are accepted without
//! credits, since a requester keeps room for them; a returned credit is known at once; payloads
//! are not padded to double words; relaxed ordering has its effect at the root complex only, on the
//! links everything keeps its order. Absent: IOMMU, ECRC, replay after link errors, reads by cores.

mod account;
pub mod bench;
mod burst;
mod config;
mod ends;
mod instant;
mod route;
mod station;
#[cfg(test)]
mod tests;
mod tlp;
mod tree;
mod unloaded;

pub use account::{CauseAccount, Direction, LinkAccount, RequesterAccount};

pub use config::{
    Credits, EndpointConfig, Generation, InterconnectConfig, LinkConfig, NodeConfig, NodeKind,
    PcieConfig, PcieConfigError, PeerConfig, RelaxedOrdering, RelaxedScope, SocketConfig,
    TlpFormat,
};
use doorbell_core::units::Time;
pub use tlp::{Cut, MMIO_LINE, PAGE, to_page_end};
pub use tree::PcieTree;

/// A place in the tree. Sockets come first (socket `i` is `NodeId(i)`), then the entries of
/// [`PcieConfig::nodes`] in order.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId(pub u16);

/// Why bytes cross the PCIe; the key of the accounts.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Cause {
    /// 8-byte doorbell.
    Doorbell,
    /// WQE written by MMIO in 64-byte lines.
    BlueFlame,
    /// Send WQE read by the NIC.
    WqeFetch,
    /// Payload read by the NIC.
    PayloadRead,
    /// Payload written by the NIC.
    PayloadWrite,
    /// Completion queue entry.
    Cqe,
    /// Receive WQE read by the NIC.
    RecvWqeFetch,
    /// QP context and other state read after a cache miss.
    QpContext,
    /// Read and write of an atomic.
    Atomic,
    /// Bytes that a GPU's copy engine moves.
    Copy,
    /// Everything else.
    Other,
}

impl Cause {
    /// All causes in the order of the accounts.
    pub const ALL: [Self; 11] = [
        Self::Doorbell,
        Self::BlueFlame,
        Self::WqeFetch,
        Self::PayloadRead,
        Self::PayloadWrite,
        Self::Cqe,
        Self::RecvWqeFetch,
        Self::QpContext,
        Self::Atomic,
        Self::Copy,
        Self::Other,
    ];

    /// Name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Doorbell => "doorbell",
            Self::BlueFlame => "blueflame",
            Self::WqeFetch => "wqe-fetch",
            Self::PayloadRead => "payload-read",
            Self::PayloadWrite => "payload-write",
            Self::Cqe => "cqe",
            Self::RecvWqeFetch => "recv-wqe-fetch",
            Self::QpContext => "qp-context",
            Self::Atomic => "atomic",
            Self::Copy => "copy",
            Self::Other => "other",
        }
    }
}

/// Kind of a transaction.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// Memory read: requests to the target, completions with data back.
    Read,
    /// Memory write (posted) by a device.
    Write,
    /// Write by a core or a GPU to a device's registers: posted TLPs of at most 64 bytes.
    Mmio,
}

/// Where a transaction goes.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Target {
    /// Memory of a socket.
    HostMemory {
        /// The socket.
        numa: u8,
        /// The lines are in the last-level cache (or will be allocated there by a write): no
        /// DRAM latency and no DRAM bandwidth.
        llc: bool,
    },
    /// Memory or registers of a device.
    Node(NodeId),
}

/// One DMA or MMIO transfer.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Transaction {
    /// Kind.
    pub kind: Kind,
    /// Requester: a device, or a socket for MMIO by its cores.
    pub from: NodeId,
    /// Target.
    pub target: Target,
    /// Length, at least 1.
    pub bytes: u32,
    /// Address; only its place within 4 KiB matters (TLPs cross no 4-KiB line, completions are
    /// cut at aligned places).
    pub addr: u64,
    /// For the accounts.
    pub cause: Cause,
    /// Returned to the caller untouched.
    pub tag: u64,
}

impl Transaction {
    /// Whether it goes through the memory of its target, not its cache or its registers.
    const fn uses_memory(&self) -> bool {
        match self.target {
            Target::HostMemory { llc, .. } => !llc,
            Target::Node(_) => !matches!(self.kind, Kind::Mmio),
        }
    }
}

/// The end of a transaction. A write ends when its data is visible in memory, a read when the
/// last completion is at the requester, MMIO when the last TLP is at the device.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Done {
    /// The device: that which asked, or that which an MMIO write is for.
    pub device: NodeId,
    /// The caller's tag.
    pub tag: u64,
    /// Kind.
    pub kind: Kind,
    /// Cause.
    pub cause: Cause,
    /// Length.
    pub bytes: u32,
    /// When it was submitted.
    pub submitted: Time,
    /// When its first TLP began to leave the requester.
    pub started: Time,
    /// Now.
    pub finished: Time,
}

/// An event of the tree, to be handed back to [`PcieTree::on_event`]. The number names a burst
/// in the tree's arena.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum PcieEvent {
    /// The head of a burst stands before its next station.
    Hop(u32),
    /// The first data of a read is there.
    Ready(u32),
    /// A burst is complete at its destination: completions at the requester, a write visible.
    Deliver(u32),
}
