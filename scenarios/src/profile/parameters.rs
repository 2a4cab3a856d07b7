//! The list of hardware parameters. To add one, add it here and to the profiles.
//!
//! A parameter describes a mechanism, with one value for all loads; where a measured figure is
//! the sum of several mechanisms it is a row of the calibration, not a parameter.

use std::collections::BTreeMap;

use doorbell_core::units::{BitRate, Bytes, Ratio, Span};

use super::check::{at_least, one_of, positive, short, size_of, size_within, within};
use super::param::{AckAsk, AckMode, ForwardMode, LinkKind, MemoryModel, Param, Quantiles};
use super::table::{Entries, ParameterInfo, Provenance, parameters, take};
use crate::input::InputError;
use crate::quantity::Frequency;

parameters! {
    /// What a CPU core pays to post, ring and poll.
    cpu Cpu {
        /// Entering and leaving the post call, per call.
        post_call: Span => [short],
        /// Writing the fixed part of a WQE. Higher: fewer messages per core.
        wqe_build: Span => [short],
        /// Writing each further 64-byte block of a WQE.
        wqe_per_block: Span => [short],
        /// Rate of copying payload into a WQE (inline) or between buffers.
        copy_rate: BitRate,
        /// Taking and leaving a lock that nobody holds.
        lock: Span => [short],
        /// Handing a contended lock to the next core: the cache line crosses.
        lock_handoff: Span => [short],
        /// A store fence between WQE, doorbell record and doorbell.
        fence: Span => [short],
        /// Storing the doorbell record.
        dbr_store: Span => [short],
        /// The 8-byte doorbell store to the device, as the core sees it.
        mmio_doorbell: Span => [short],
        /// Copying 64 bytes into a write-combining buffer.
        wc_copy_block: Span => [short],
        /// Flushing a write-combining buffer of 64 bytes.
        wc_flush_block: Span => [short],
        /// Write-combining buffers of a core. Fewer: a burst of BlueFlame writes waits earlier.
        wc_buffers: u64 => [at_least(1)],
        /// Largest burst that the write-combining page takes, both halves together.
        wc_bytes: Bytes => [size_within(64, 4096)],
        /// A poll that finds nothing.
        poll_miss: Span => [short],
        /// A poll that finds a completion, per call.
        poll_hit: Span => [short],
        /// Each completion that a poll returns.
        poll_per_cqe: Span => [short],
        /// Posting a receive.
        post_recv: Span => [short],
        /// Arming a CQ for an event.
        arm: Span => [short],
        /// From the completion event to the woken thread polling.
        interrupt: Span,
        /// Added to a store to a device on the other socket.
        numa_mmio: Span => [short],
        /// Added to an access to memory on the other socket.
        numa_memory: Span => [short],
        /// Order in which stores become visible to the device.
        memory_model: MemoryModel,
        /// Longest time that a store may lag a later one without a fence (weak order only).
        store_lag: Span => [short],
        /// Random time added to a step of a program.
        jitter: Quantiles,
    }

    /// The PCIe path between root complex and NIC.
    pcie Pcie {
        /// Generation, 1 to 6.
        generation: u64 => [within(1, 6)],
        /// Lanes. Half the lanes: half the rate.
        width: u64 => [one_of(&[1, 2, 4, 8, 16])],
        /// Bytes around the payload of a memory write.
        write_header: Bytes => [size_within(12, 64)],
        /// Bytes of a memory read request.
        read_header: Bytes => [size_within(12, 64)],
        /// Bytes around the payload of a completion with data.
        completion_header: Bytes => [size_within(12, 64)],
        /// Largest payload of a write or completion (MPS). Larger: less overhead.
        mps: Bytes => [size_of(&[128, 256, 512, 1024, 2048, 4096])],
        /// Largest read request (MRRS). Smaller: more requests and tags per transfer.
        mrrs: Bytes => [size_of(&[64, 128, 256, 512, 1024, 2048, 4096])],
        /// Read completion boundary (RCB).
        rcb: Bytes => [size_of(&[64, 128])],
        /// Largest completion that the host builds from consecutive lines (C_rc).
        c_rc: Bytes => [size_of(&[64, 128, 256, 512, 1024, 2048, 4096])],
        /// Acknowledgement and flow-control DLLP bytes per `dllp_interval` of TLPs. 0: none.
        dllp_bytes: Bytes => [size_within(0, 64)],
        /// TLP bytes between DLLPs.
        dllp_interval: Bytes => [positive],
        /// Clock-compensation bytes per `skip_interval`. 0: none.
        skip_bytes: Bytes => [size_within(0, 64)],
        /// Bytes between clock compensations.
        skip_interval: Bytes => [positive],
        /// One way over a link, last bit sent to last bit accepted.
        link_latency: Span => [positive, short],
        /// Switches between root port and NIC.
        switches: u64 => [within(0, 4)],
        /// First bit in to first bit out of a PCIe switch.
        switch_latency: Span => [short],
        /// Root port to memory system.
        root_latency: Span => [short],
        /// A core's store to the root port.
        mmio_latency: Span => [short],
        /// Reads that the NIC may have outstanding (tags). Fewer: small reads are slower.
        read_tags: u64 => [at_least(1)],
        /// Read bytes that the NIC may have outstanding.
        read_buffer: Bytes => [positive],
        /// Posted writes that a receiver holds.
        posted_credits: u64 => [at_least(1)],
        /// Posted payload that a receiver holds, in units of 16 bytes.
        posted_data_credits: u64 => [at_least(1)],
        /// Read requests that a receiver holds.
        nonposted_credits: u64 => [at_least(1)],
    }

    /// Host memory.
    memory Memory {
        /// Order point to data of a read that hits the last-level cache.
        llc_read: Span => [short],
        /// Added when the line is in DRAM.
        dram_extra: Span => [short],
        /// Order point to a written line visible to cores.
        write_commit: Span => [short],
        /// Bandwidth of one socket's memory, shared by CPU, DMA and reductions.
        bandwidth: BitRate,
        /// Whether DMA writes go to the last-level cache (DDIO) and cost no bandwidth.
        ddio: bool,
        /// Sockets.
        sockets: u64 => [within(1, 8)],
        /// Added one way to what crosses sockets.
        interconnect_latency: Span => [short],
        /// Rate between two sockets, per direction.
        interconnect_rate: BitRate,
        /// Random time added to a DMA read.
        read_noise: Quantiles,
    }

    /// The network adapter.
    nic Nic {
        /// Clock at which the service times below hold; another clock scales them.
        clock: Frequency => [positive],
        /// Handling a doorbell. Its inverse bounds doorbells per second.
        doorbell: Span => [short],
        /// Doorbells that wait before the host is held off.
        doorbell_queue: u64 => [at_least(1)],
        /// WQEs that are fetched with one read when a batch is announced.
        wqe_prefetch: u64 => [at_least(1)],
        /// Processing units. One QP uses one at a time.
        pu_count: u64 => [within(1, 4096)],
        /// A WQE in a processing unit. Its inverse bounds the message rate of one QP.
        pu_wqe: Span => [short],
        /// Each packet of a message in a processing unit.
        pu_packet: Span => [short],
        /// An arriving packet in a receive unit.
        rx_packet: Span => [short],
        /// From the last byte of the payload in the NIC to the wire.
        tx_latency: Span => [short],
        /// From the wire to the receive unit.
        rx_latency: Span => [short],
        /// Building an ACK.
        ack: Span => [short],
        /// Executing an atomic, in series.
        atomic: Span => [short],
        /// QP contexts in the cache. More active QPs than this: contexts are fetched.
        qp_cache: u64 => [at_least(1)],
        /// Bytes that a QP context fetch reads.
        qp_context: Bytes => [positive],
        /// WQEs in the cache. More outstanding than this: they are fetched again.
        wqe_cache: u64 => [at_least(1)],
        /// Size of a completion.
        cqe: Bytes => [size_of(&[32, 64, 128])],
        /// Largest inline payload granted.
        max_inline: Bytes,
        /// Largest BlueFlame write, one half of the register. 0: no BlueFlame.
        bf_bytes: Bytes => [size_of(&[0, 64, 128, 256, 512, 1024])],
        /// QPs that can be made.
        max_qp: u64 => [at_least(2)],
        /// Deepest send queue, in WQEs.
        max_sq_depth: u64 => [at_least(1)],
        /// Deepest receive queue, in WQEs.
        max_rq_depth: u64 => [at_least(1)],
        /// Deepest completion queue.
        max_cq_depth: u64 => [at_least(1)],
        /// READ and atomic requests outstanding per QP.
        max_rd_atomic: u64 => [within(0, 255)],
        /// Scatter-gather elements per WQE.
        max_sge: u64 => [at_least(1)],
        /// Memory bandwidth that reads of GPU memory by the NIC get.
        gpu_read_rate: BitRate,
    }

    /// A GPU as initiator and as memory.
    gpu Gpu {
        /// Starting a kernel.
        kernel_launch: Span,
        /// Building a WQE by one thread.
        wqe_build: Span,
        /// A system-scope fence.
        fence: Span,
        /// A store to host memory or to the doorbell, as the thread sees it.
        store: Span,
        /// A store from the GPU to the NIC's doorbell, one way.
        doorbell_latency: Span,
        /// A load from host memory.
        host_load: Span,
        /// An atomic in device memory.
        atomic: Span,
        /// A poll of a completion in device memory.
        poll: Span,
        /// Blocks that run at a time.
        blocks: u64 => [at_least(1)],
        /// Reading device memory by a PCIe peer: request to first data.
        peer_read: Span,
        /// Writing device memory by a PCIe peer: last bit to visible.
        peer_write: Span,
        /// Bandwidth of device memory.
        bandwidth: BitRate,
        /// Order in which stores become visible to the NIC.
        memory_model: MemoryModel,
        /// Longest time that a store may lag a later one without a fence (weak order only).
        store_lag: Span => [short],
    }

    /// The network port, its cable and the switch it plugs into.
    port Port {
        /// Link layer and encapsulation.
        link: LinkKind,
        /// Rate of the port.
        rate: BitRate,
        /// Largest path MTU.
        max_mtu: Bytes => [size_of(&[256, 512, 1024, 2048, 4096])],
        /// Propagation of a cable.
        propagation: Span => [positive],
        /// Transit of a switch with an idle output.
        switch_latency: Span => [short],
        /// How a switch forwards.
        switch_forwarding: ForwardMode,
        /// Buffer of a switch per port.
        switch_buffer: Bytes => [size_within(4224, 1 << 40)],
        /// Packets that a NIC takes before it pushes back, in bytes.
        receive_buffer: Bytes => [size_within(4224, 1 << 40)],
    }

    /// Points of the reliable connection on which implementations differ.
    rc Rc {
        /// Unacknowledged packets at which a requester pauses.
        max_outstanding_packets: u64 => [within(1, 8_388_608)],
        /// Packets after which an ACK is asked for. 0: never for this reason.
        ack_every: u64 => [within(0, 8_388_608)],
        /// Which messages ask with their last packet.
        ack_ask: AckAsk,
        /// When a responder acknowledges.
        ack_mode: AckMode,
        /// Requests for an ACK that are answered together.
        ack_coalesce: u64 => [at_least(1)],
        /// Longest time that an ACK is held back.
        ack_delay: Span,
        /// How much later than its nominal time an ack timeout may fire.
        timeout_slack: Ratio,
    }
}
