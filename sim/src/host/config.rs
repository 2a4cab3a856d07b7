//! Parameters of a host: its initiators' costs and its devices.

use doorbell_core::transport::Initiator;
use doorbell_core::units::{BitRate, Span};

use crate::engine::NoiseTable;
use crate::memory::PagingCosts;
use crate::nic::{NicConfig, RcConfig};
use crate::pcie::{NodeId, PcieConfig};

/// What the calls cost an initiator, a CPU core or a GPU block. Times are of the initiator itself;
/// what happens beyond it (PCIe, NIC) is modelled there.
#[derive(Clone, Debug)]
pub struct InitiatorCosts {
    /// Building a WQE of one 64-byte block.
    pub post_wqe: Span,
    /// WQEs that are built at the same time, by as many threads: of so many in a row in front of a
    /// ring only the first takes time.
    pub lanes: u32,
    /// Each further 64-byte block.
    pub post_block: Span,
    /// Each scatter/gather element after the first.
    pub post_sge: Span,
    /// Rate of copying inline payload into the WQE.
    pub inline_rate: BitRate,
    /// More per WQE block, completion or 8-byte access when the memory is another socket's.
    pub remote_memory: Span,
    /// Ordering before the doorbell and storing the doorbell record.
    pub ring: Span,
    /// Whether that ordering holds towards the NIC: a ring then does what a fence towards every
    /// observer does. Without it, an initiator with a `store_delay` has to fence by itself.
    pub ring_fences: bool,
    /// The 8-byte doorbell store with the flush that follows.
    pub doorbell: Span,
    /// Each 64-byte line of a BlueFlame write.
    pub blueflame_line: Span,
    /// More per ring when the NIC belongs to another socket.
    pub remote_mmio: Span,
    /// Taking and giving back an uncontended lock.
    pub lock: Span,
    /// More when another initiator held the lock last, or announced the slots before: the cache
    /// line moves.
    pub lock_transfer: Span,
    /// More for each further initiator that waits for the same lock or turn: their attempts queue
    /// up at the same word.
    pub contention: Span,
    /// Taking slots of a shared QP and moving its ready index, when posters submit in order.
    pub ticket: Span,
    /// A call that posts receives.
    pub recv_call: Span,
    /// Each receive posted.
    pub recv_wqe: Span,
    /// A poll that finds nothing, or the fixed part of one that does.
    pub poll_call: Span,
    /// More for a poll that finds something.
    pub poll_found: Span,
    /// Each completion polled.
    pub poll_cqe: Span,
    /// The loop around a step.
    pub step: Span,
    /// A fence towards the own device.
    pub fence_device: Span,
    /// A fence towards every observer.
    pub fence_system: Span,
    /// A load of 8 bytes of host memory.
    pub load: Span,
    /// A load of 8 bytes of the initiator's own device.
    pub load_own: Span,
    /// A store of 8 bytes.
    pub store: Span,
    /// Fixed part of a copy.
    pub copy: Span,
    /// Rate of a copy.
    pub copy_rate: BitRate,
    /// Rate of a reduction, by bytes of one operand.
    pub reduce_rate: BitRate,
    /// Asking the driver for a copy by a GPU's engine, until the engine begins.
    pub copy_launch: Span,
    /// Starting a kernel of a GPU and noticing its end, without what it does.
    pub kernel_launch: Span,
    /// Registering host memory.
    pub register: RegistrationCosts,
    /// Registering a GPU's memory.
    pub register_gpu: RegistrationCosts,
    /// MMIO writes (lines) that may be on their way to the device; more make the initiator wait.
    pub wc_buffers: u32,
    /// How late a store that no fence follows becomes visible to the NIC. `None`: at once, as on
    /// an x86 core, whose stores are ordered and whose doorbell is a later store.
    pub store_delay: Option<NoiseTable>,
    /// Pieces of a WQE that become visible each by itself, without a fence. 1: all at once.
    pub wqe_pieces: u32,
    /// From a CQE in memory to the woken program, in event mode.
    pub interrupt: Span,
    /// Core time of an interrupt.
    pub interrupt_work: Span,
    /// Delay that hits a step now and then (timer ticks, other work). `None`: never.
    pub jitter: Option<NoiseTable>,
}

/// What it costs to register a region: the call, and each page that is pinned and written into the
/// NIC's translation table.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct RegistrationCosts {
    /// The call.
    pub call: Span,
    /// Each page that the region touches.
    pub page: Span,
    /// Bytes of a page, at least 1. Larger: fewer pages to pin.
    pub page_bytes: u64,
}

impl RegistrationCosts {
    /// Registration takes no time.
    pub const FREE: Self = Self { call: Span::ZERO, page: Span::ZERO, page_bytes: 4096 };

    /// Time to register `bytes` that begin on a page.
    pub fn time(&self, bytes: u64) -> Span {
        self.call + self.page * bytes.div_ceil(self.page_bytes)
    }
}

impl InitiatorCosts {
    /// Whether the NIC sees the stores before a ring when it sees the ring.
    pub const fn ring_orders(&self) -> bool {
        self.store_delay.is_none() || self.ring_fences
    }
}

/// How a program waits.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum PollMode {
    /// It polls without a pause.
    #[default]
    Busy,
    /// It arms an event and sleeps.
    Event,
}

/// An initiator of a host.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct InitiatorConfig {
    /// Who.
    pub who: Initiator,
    /// How its program waits.
    pub poll: PollMode,
    /// NIC that its handle has opened, from 0: what is made by it belongs to that NIC.
    pub nic: u8,
}

/// A host.
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// PCIe tree with the NICs and the GPUs.
    pub pcie: PcieConfig,
    /// Places of the NICs in the tree: 1 to [`MAX_NICS`](super::MAX_NICS). NIC `n` has port `n` of
    /// the host. More NICs share cores, memory and what they have in common of the tree.
    pub nic_nodes: Vec<NodeId>,
    /// Places of the GPUs in the tree.
    pub gpu_nodes: Vec<NodeId>,
    /// Number of NUMA nodes.
    pub numa_nodes: u8,
    /// Each NIC.
    pub nic: NicConfig,
    /// Transport settings.
    pub rc: RcConfig,
    /// Costs of a CPU core.
    pub cpu: InitiatorCosts,
    /// Costs of a GPU block.
    pub gpu: InitiatorCosts,
    /// What page faults of regions with pages on demand cost.
    pub paging: PagingCosts,
    /// Whether DMA hits the last-level cache (DDIO).
    pub llc: bool,
    /// PCIe and memory take no time and have no limits, whatever their parameters say, and stages
    /// of the NIC that take none are no events: an ideal host, for studies of the network.
    pub instant: bool,
}
