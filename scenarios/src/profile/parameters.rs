//! The list of hardware parameters. To add one, add it here and to the profiles.
//!
//! A parameter describes a mechanism, with one value for all loads; where a measured figure is
//! the sum of several mechanisms it is a row of the calibration, not a parameter.

use std::collections::BTreeMap;

use doorbell_core::units::{BitRate, Bytes, Ratio, Span};

use super::check::{at_least, one_of, positive, short, size_of, size_within, up_to, within};
use super::param::{
    AckAsk, AckMode, ClockSteps, ForwardMode, LinkKind, MemoryModel, Param, Quantiles, ReclaimKind,
    RecoveryKind, RelaxedKind, RuleSet, TimeoutKind, VendorKind,
};
use super::rows::{
    BadInvalidateKind, DuplicateAckKind, DuplicateReadKind, FenceKind, LimitedWqeKind,
    NakDuringRnrKind, RetrySevenKind, SequenceNakKind,
};
use super::table::{Entries, ParameterInfo, Provenance, parameters, take};
use crate::input::InputError;

parameters! {
    /// What a CPU core pays to post, ring and poll.
    cpu Cpu {
        /// Entering and leaving the post call, per ring.
        post_call: Span => [short],
        /// Writing the fixed part of a WQE, its first 64-byte block. Higher: fewer messages per
        /// core.
        wqe_build: Span => [short],
        /// Writing each further 64-byte block of a WQE.
        wqe_per_block: Span => [short],
        /// Each scatter/gather element after the first.
        wqe_per_sge: Span => [short],
        /// Rate of copying inline payload into a WQE.
        inline_rate: BitRate,
        /// Taking and leaving a lock that nobody holds.
        lock: Span => [short],
        /// Handing a contended lock to the next core: the cache line crosses.
        lock_handoff: Span => [short],
        /// A store fence between WQE, doorbell record and doorbell.
        fence: Span => [short],
        /// Storing the doorbell record.
        dbr_store: Span => [short],
        /// The 8-byte doorbell store to the device, flush included, as the core sees it.
        mmio_doorbell: Span => [short],
        /// Copying 64 bytes into a write-combining buffer and flushing it.
        blueflame_block: Span => [short],
        /// MMIO writes of a core, in 64-byte lines, on their way to the device. Fewer: a burst of
        /// doorbells or BlueFlame writes makes the core wait earlier.
        wc_buffers: u64 => [at_least(1)],
        /// A poll that finds nothing.
        poll_miss: Span => [short],
        /// Added when a poll finds completions.
        poll_hit: Span => [short],
        /// Each completion that a poll returns.
        poll_per_cqe: Span => [short],
        /// The program's loop around its calls, per step.
        step: Span => [short],
        /// A call that posts receives.
        post_recv_call: Span => [short],
        /// Each receive posted.
        post_recv: Span => [short],
        /// From the completion to the woken thread polling, in event mode.
        interrupt: Span => [short],
        /// Core time of an interrupt: handler, wake-up, arming the queue again.
        interrupt_work: Span => [short],
        /// Added to a ring when the NIC is on the other socket.
        numa_mmio: Span => [short],
        /// Added per WQE block, completion or load in memory of the other socket.
        numa_memory: Span => [short],
        /// An 8-byte load that misses the core's caches.
        load: Span => [short],
        /// An 8-byte store.
        store: Span => [short],
        /// Fixed part of a copy or reduction.
        copy: Span => [short],
        /// Rate of a copy by one core.
        copy_rate: BitRate,
        /// Rate of a reduction by one core, in bytes of one operand.
        reduce_rate: BitRate,
        /// Registering a region behind a program's first ring: the call, pages aside. Higher: a
        /// pool, or a copy into one, pays for longer messages.
        register_call: Span => [short],
        /// Each page of `memory.page` that a region has: pinning it, and its entry in the NIC's
        /// table.
        register_page: Span => [short],
        /// Order in which stores become visible to the device.
        memory_model: MemoryModel,
        /// Longest time that a store may lag without a fence (weak order only).
        store_lag: Span => [short],
        /// Random time added to a step of a program (timer ticks, other work of the core).
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
        /// Root port to memory system, and between root ports.
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
        /// What a root complex forwards between two devices of its socket, in each direction.
        /// Lower: GPUDirect that does not stay below one PCIe switch is slower.
        peer_rate: BitRate,
        /// The same between devices of two sockets.
        peer_rate_across: BitRate,
        /// What of an adapter carries the attribute relaxed ordering: such a write may be seen
        /// before earlier ones. CQEs never carry it, so completions tell the truth all the same.
        relaxed_ordering: RelaxedKind,
    }

    /// Host memory.
    memory Memory {
        /// Order point to data of a read that hits the last-level cache.
        llc_read: Span => [short],
        /// Added when the line is in DRAM.
        dram_extra: Span => [short],
        /// Order point to a written line visible to cores.
        write_commit: Span => [short],
        /// Relaxed ordering: a write is visible up to so much later than alone, drawn evenly.
        /// Longer: seen in another order more often. 0: only what waits for DRAM or a socket is
        /// passed.
        relaxed_spread: Span => [short],
        /// Bandwidth of one socket's memory, shared by CPU, DMA and reductions.
        bandwidth: BitRate,
        /// Pages of registered host memory: 4KiB, or 2MiB of huge pages. Larger: fewer to pin.
        page: Bytes => [size_of(&[4096, 65536, 2 << 20, 1 << 30])],
        /// How long after its fault a page on demand leaves the NIC's table again, as the host
        /// unmaps pages. 0: it stays. Shorter: more accesses fault.
        page_keep: Span,
        /// Whether DMA hits the last-level cache (DDIO) and costs no memory bandwidth.
        ddio: bool,
        /// Sockets.
        sockets: u64 => [within(1, 8)],
        /// Added one way to what crosses sockets.
        interconnect_latency: Span => [short],
        /// Rate between two sockets, per direction.
        interconnect_rate: BitRate,
        /// Bytes that a TLP takes between sockets beyond its payload.
        interconnect_header: Bytes => [size_within(0, 256)],
        /// Random time added to a DMA read.
        read_noise: Quantiles,
    }

    /// The network adapter. The first socket is the NIC's.
    nic Nic {
        /// The doorbell unit, per doorbell. Its inverse bounds doorbells per second.
        doorbell: Span => [short],
        /// Added per 64-byte line after the first of a BlueFlame write. Bounds the lines per
        /// second of all cores together.
        doorbell_line: Span => [short],
        /// From the doorbell unit to the WQE fetch or, with BlueFlame, to the processing unit.
        doorbell_latency: Span => [short],
        /// 64-byte blocks that one WQE fetch reads at most. Higher: fewer reads per batch.
        wqe_fetch_blocks: u64 => [within(1, 64)],
        /// WQE fetches of one QP under way. Higher: deeper prefetch.
        wqe_fetches: u64 => [at_least(1)],
        /// WQEs of one QP on the chip and not yet started, at most. Those beyond it that BlueFlame
        /// carries are fetched later like any other.
        wqe_window: u64 => [at_least(1)],
        /// Processing units. One QP uses one.
        pu_count: u64 => [within(1, 4096)],
        /// A unit's time per WQE. Bounds the message rate of one QP.
        pu_wqe: Span => [short],
        /// Added when the WQE was fetched over PCIe and not carried by BlueFlame.
        pu_fetched: Span => [short],
        /// Added when the payload is gathered by DMA and not inline.
        pu_gather: Span => [short],
        /// Added for a READ or ATOMIC.
        pu_read: Span => [short],
        /// A unit's time per packet, the first one included.
        pu_packet: Span => [short],
        /// A unit's time per READ response packet.
        pu_response: Span => [short],
        /// Receive units. One QP uses one.
        rx_count: u64 => [within(1, 4096)],
        /// A receive unit's time per packet.
        rx_packet: Span => [short],
        /// Added for a packet that takes a receive.
        rx_recv: Span => [short],
        /// Added for a packet that makes two writes to memory, payload and completion.
        rx_write: Span => [short],
        /// Least distance of packets that the device receives.
        rx_device: Span => [short],
        /// Both NICs' pipelines, processing unit to wire and wire to receive unit's result.
        pipeline_latency: Span => [short],
        /// From accepting a request to its ACK or response at the port or processing unit.
        ack_latency: Span => [short],
        /// From the ACK or last response, or the last payload, to the CQE write.
        completion_latency: Span => [short],
        /// Bytes between memory and wire. Lower: the wire starves behind slow memory.
        tx_buffer: Bytes => [size_within(8192, 1 << 30)],
        /// Bytes between wire and memory, those included that wait for a receive WQE or behind an
        /// atomic. Lower: what comes in bursts waits in front of the port, which pauses its link
        /// where it can.
        rx_buffer: Bytes => [size_within(8192, 1 << 30)],
        /// Size of a completion.
        cqe: Bytes => [size_of(&[32, 64, 128])],
        /// Size of a receive WQE.
        rq_wqe: Bytes => [size_within(16, 1024)],
        /// Receive WQEs that one fetch reads. Higher: fewer PCIe reads.
        rq_fetch: u64 => [within(1, 1024)],
        /// Receive WQEs of a queue in use that are on the chip or on their way; below it the next
        /// fetch starts. Double, and a queue gives twice as many in the time of a PCIe read. 0: a
        /// fetch starts when a message needs a receive and none is left.
        rq_ahead: u64 => [within(0, 1024)],
        /// QP contexts in the cache. More active QPs than this: contexts are fetched.
        qp_cache: u64 => [at_least(1)],
        /// Bytes that a QP context fetch reads.
        qp_context: Bytes => [positive],
        /// READ and ATOMIC WQEs in the cache. More outstanding than this: they are fetched again.
        wqe_cache: u64 => [at_least(1)],
        /// Largest BlueFlame write, one half of the register. 0: no BlueFlame.
        bf_bytes: Bytes => [size_of(&[0, 64, 128, 256, 512, 1024])],
        /// Whether BlueFlame is used also for WQEs that are not inline.
        prefer_bf: bool,
        /// Vendor codes of completions in error: none, or those that are published of mlx5.
        vendor_codes: VendorKind,
        /// Lock buckets of the atomic unit, by the low bits of the byte address. 1: all ATOMICs
        /// queue.
        atomic_buckets: u64 => [within(1, 1 << 20)],
        /// The atomic unit's time per ATOMIC.
        atomic_unit: Span => [short],
        /// Whether a bucket stays locked while the old value is read over PCIe.
        atomic_holds: bool,
        /// Serving a page fault of a region with pages on demand (`access = ["on-demand", ...]`),
        /// pages aside. Higher: the tail of latencies is longer, unless the wait of an RNR NAK is.
        page_fault: Span => [short],
        /// Each page of such a fault.
        page_fault_page: Span => [short],
        /// Clock over time: "2ms 3/2" makes all NIC stages 1.5 times as long from 2 ms on. No
        /// public figure of thermal throttling is known: synthetic.
        clock: ClockSteps,
        /// Largest inline payload granted.
        max_inline: Bytes,
        /// Whether a GPU may hold queue pairs and ring by itself. false: a core has to post for it.
        gpu_doorbell: bool,
        /// QPs that can be made.
        max_qp: u64 => [at_least(2)],
        /// Completion queues that can be made.
        max_cq: u64 => [at_least(1)],
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
    }

    /// What the kernel's TCP costs a core, beside copies (`cpu.copy_rate`) and interrupts
    /// (`cpu.interrupt_work`).
    kernel Kernel {
        /// A call that sends or receives, without the copy.
        syscall: Span => [short],
        /// Waking a thread that sleeps in a call, and switching to it.
        context_switch: Span => [short],
        /// Sending one segment through the stack: a packet, or with TSO as much as a segment holds.
        tx_segment: Span => [short],
        /// Receiving one segment through the stack: a packet, or what GRO has put together.
        rx_segment: Span => [short],
        /// Each packet received, whether GRO puts it into a segment with others or not.
        rx_packet: Span => [short],
    }

    /// A GPU as initiator and as memory.
    gpu Gpu {
        /// GPUs of a host.
        count: u64 => [within(0, 16)],
        /// Socket of the GPU, 0 is the NIC's.
        socket: u64 => [within(0, 7)],
        /// Lanes of the GPU's link.
        width: u64 => [one_of(&[1, 2, 4, 8, 16])],
        /// Building a WQE by one thread.
        wqe_build: Span => [short],
        /// WQEs that threads of a block build at the same time, under the same atomics. 1: one
        /// after the other.
        lanes: u64 => [within(1, 1024)],
        /// An atomic operation on device memory.
        atomic: Span => [short],
        /// Atomics per WQE: reserving its slot, publishing it in order.
        wqe_atomics: u64 => [within(0, 64)],
        /// Pieces in which an unfenced WQE becomes visible to the NIC. 1: all of it or nothing;
        /// more: the NIC may read a part, which asks for nothing that it can do.
        wqe_pieces: u64 => [within(1, 4)],
        /// Handing a lock, or the turn of posters that submit in order, to another block.
        lock_handoff: Span => [short],
        /// More for each further block that waits for it: their atomics queue up at one word.
        lock_contention: Span => [short],
        /// Atomics per ring beside those of its WQEs: the lock, the producer index.
        ring_atomics: u64 => [within(0, 64)],
        /// System-scope fences that a ring makes by itself. 0: the program has to fence, or the NIC
        /// may read stale WQEs.
        ring_fences: u64 => [within(0, 64)],
        /// Storing the doorbell record and electing who rings.
        dbr_store: Span => [short],
        /// The doorbell store, as the thread sees it.
        doorbell: Span => [short],
        /// A device-scope fence.
        fence_device: Span => [short],
        /// A system-scope fence.
        fence_system: Span => [short],
        /// A store to host memory, as the thread sees it.
        store: Span => [short],
        /// A load from host memory of the GPU's socket.
        load: Span => [short],
        /// A poll of a completion queue.
        poll: Span => [short],
        /// Each completion that a poll returns.
        poll_per_cqe: Span => [short],
        /// Atomics of a poll that finds something: what a library keeps of the queue's state.
        poll_atomics: u64 => [within(0, 64)],
        /// System-scope fences of a poll that finds something.
        poll_fences: u64 => [within(0, 64)],
        /// The program's loop around its calls, per step.
        step: Span => [short],
        /// Rate of a copy by one block.
        copy_rate: BitRate,
        /// Rate of a reduction by one block, in bytes of one operand.
        reduce_rate: BitRate,
        /// From a core's call for a copy between device and host memory to its first byte. Higher:
        /// staging pays for larger messages only.
        copy_launch: Span => [short],
        /// A core that has a kernel add for it: from the call to its seeing the end, without the
        /// adding. Higher: adding on the GPU pays for larger chunks only.
        kernel_launch: Span => [short],
        /// Registering device memory behind a program's first ring: the call, pages aside.
        register_call: Span => [short],
        /// Each page of `gpu.page` of such a region.
        register_page: Span => [short],
        /// Pages of device memory.
        page: Bytes => [size_of(&[4096, 65536, 2 << 20])],
        /// Reading device memory by a PCIe peer: request to first data.
        peer_read: Span => [short],
        /// Writing device memory by a PCIe peer: last bit to visible.
        peer_write: Span => [short],
        /// Bandwidth of device memory towards PCIe, and for copies and reductions of single blocks.
        bandwidth: BitRate,
        /// Rate of the link of a host into its node, one direction (`topology.node`). Lower: what a
        /// relay passes on takes longer than its way over the network saves.
        node_rate: BitRate,
        /// From a host to another one of its node, beyond the time of the bytes. Higher: a second
        /// hop inside the node costs small messages more.
        node_latency: Span => [positive],
        /// Bandwidth of device memory towards kernels that use the whole GPU: two reads and one
        /// write of each byte that is added. Lower: kernels that add take longer.
        kernel_bandwidth: BitRate,
        /// Order in which stores become visible to the NIC.
        memory_model: MemoryModel,
        /// Longest time that a store may lag without a fence (weak order only).
        store_lag: Span => [short],
        /// Random time added to a step.
        jitter: Quantiles,
    }

    /// The network port, its cable and the switch it plugs into.
    port Port {
        /// Link layer and encapsulation.
        link: LinkKind,
        /// Rate of the port.
        rate: BitRate,
        /// Bytes around every packet beyond headers and CRCs: delimiters and their padding. Higher:
        /// fewer small packets per second.
        framing: Bytes => [size_within(0, 256)],
        /// Bytes added to each payload in place of all real headers, minimum frames and pads; 0:
        /// the real ones. For comparison with simulators that count so.
        header_bytes: Bytes => [size_within(0, 256)],
        /// Largest path MTU.
        max_mtu: Bytes => [size_of(&[256, 512, 1024, 2048, 4096])],
        /// Propagation of a cable.
        propagation: Span => [positive],
        /// Transit of a switch with an idle output.
        switch_latency: Span => [short],
        /// How a switch forwards.
        switch_forwarding: ForwardMode,
        /// Random delay of a packet at a switch, at most so many times the time of the largest
        /// packet. 0: senders in step stay in step.
        switch_noise: Ratio,
        /// Buffer of a switch per port.
        switch_buffer: Bytes => [size_within(8448, 1 << 40)],
        /// One way of the out-of-band network.
        bootstrap_latency: Span => [positive],
    }

    /// Points of the reliable connection on which implementations differ.
    rc Rc {
        /// Unacknowledged packets at which a requester pauses.
        max_outstanding_packets: u64 => [within(1, 8_388_608)],
        /// Payload of a full packet; 0: the path MTU, as in all adapters. Lower: more packets. For
        /// comparison with simulators whose packets are no path MTU; at most `qp.mtu` counts.
        packet_payload: Bytes => [size_within(0, 4096)],
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
        /// What becomes of the attribute `timeout`, T.
        timeout_mode: TimeoutKind,
        /// Fixed: the timer is drawn between T and so many times T. Higher: losses that only a
        /// timeout finds cost more.
        timeout_most: u64 => [within(1, 4)],
        /// Floor: the least timer. Adaptive: the first. Higher: as above, and fewer packets are
        /// resent for nothing.
        timeout_least: Span => [positive],
        /// Adaptive: the timer doubles up to this.
        timeout_ceiling: Span => [positive],
        /// Ticks: T and the wait after an RNR NAK are rounded up to whole ones of these, so neither
        /// is ever less than one. Higher: short waits take longer, and losses cost more.
        timer_tick: Span => [positive],
        /// From a sequence NAK to the first packet that is sent again. Higher: a loss costs more.
        nak_reaction: Span => [short],
        /// From a response that implies a NAK, one beyond a gap or beyond an unanswered READ or
        /// ATOMIC, to the first request that is made again. Higher: a loss among READs costs more.
        implied_nak_reaction: Span => [up_to(Span::from_ms(1000))],
        /// From a sequence NAK to its repetition by a packet that finds the same gap. 0: one
        /// NAK per gap. A retransmission that is lost too no longer waits for the ack timer. Lower
        /// than the round trip: the requester goes back several times for one loss; lower than a
        /// `retry_cnt`-th of it: the queue pair dies of one loss.
        nak_repeat: Span => [short],
        /// What goes out again after a loss: all from it on, or only what is missing.
        recovery: RecoveryKind,
        /// Selective repeat: packets in flight at most, and kept by the peer beyond a gap. The
        /// path's bandwidth times its round trip fills it. Lower: the sender waits for ACKs.
        /// Higher: longer queues, as each packet is sent though earlier ones are on the way. As
        /// many as one message has, or fewer: nothing behind its last packet tells of a loss of
        /// that, or of its ACK, so the ack timer has to find it.
        recovery_cap: u64 => [within(1, 8_388_607)],
        /// Selective repeat: a whole WRITE beyond a gap is written to memory when it comes, as
        /// adapters do whose packets may take several ways. Who polls memory may see it before
        /// earlier ones.
        place_on_arrival: bool,
        /// Whose choices are made where implementations differ and the parameters from here to
        /// `bad_invalidate` leave them to it.
        rules: RuleSet,
        /// What `retry_cnt` 7 means: seven retries, or retries without end, with which a dead peer
        /// is never reported.
        retry_seven: RetrySevenKind,
        /// What a sequence NAK does to the retry counters: `progress`, what it acknowledges
        /// reloads them before it uses a retry; `uses-retry`, a few losses in a row end the queue
        /// pair though data moves; `reloads`, sequence NAKs alone never end it.
        sequence_nak: SequenceNakKind,
        /// What a work request with the fence flag waits for: earlier READs and atomics, or
        /// everything earlier, which costs a round trip behind a SEND or WRITE.
        fence: FenceKind,
        /// The answer to a packet behind one that got an RNR NAK. A requester that waits for the
        /// RNR timer ignores it.
        nak_during_rnr: NakDuringRnrKind,
        /// Which duplicates of SEND and WRITE are acknowledged again: all, or those that ask for
        /// it, with fewer ACKs after a retransmission.
        duplicate_ack: DuplicateAckKind,
        /// Which duplicates of a READ are executed again: those of a part of the remembered READ,
        /// or only those that also end where it ends.
        duplicate_read: DuplicateReadKind,
        /// How much of the one work request beyond the end-to-end credits is sent: its first
        /// packet, or all of it.
        limited_wqe: LimitedWqeKind,
        /// What becomes of a SEND that invalidates a key that does not exist or is of another
        /// protection domain: it is refused, or completes as a plain SEND.
        bad_invalidate: BadInvalidateKind,
        /// End-to-end credits: acknowledgements say how many receives are free, and the requester
        /// sends no more messages that take one, but one beyond them. An empty queue makes it wait
        /// for an acknowledgement instead of RNR NAKs. Off, as in all adapters known: code 31.
        credits: bool,
        /// When the slot of a send WQE comes back: when a completion of it or of a later one is
        /// polled, or when it is done. The latter never blocks a sender that signals nothing, and
        /// never keeps one that does not poll from overrunning its completion queue.
        slot_reclaim: ReclaimKind,
        /// Whether a queue pair with an SRQ that has gone to ERR says by an event that it takes no
        /// more receives. Without it, whoever waits for the event waits for ever.
        last_wqe_event: bool,
        /// Whether sends posted to a queue pair that is in ERR are flushed. Without it a drain
        /// marker is taken and never completes.
        flush_late_sends: bool,
        /// Whether receives posted on a queue pair of its own are flushed in ERR. Without it,
        /// whoever counts them waits for ever.
        flush_receives: bool,
    }

    /// DMA engines of a device that measures its own PCIe path, as pcie-bench does on the NFP6000.
    /// Adapters do not use them.
    bench Bench {
        /// A thread's command to the PCIe unit.
        issue: Span => [short],
        /// Completion to the thread that waits for it.
        notify: Span => [short],
        /// Descriptor queue of the engines; commands avoid it.
        queue: Span => [short],
        /// Read engine, per descriptor.
        read_op: Span => [short],
        /// Write engine, per descriptor. Bounds small writes per second.
        write_op: Span => [short],
        /// Data mover between PCIe and the device's memory, per operation. One per direction.
        mover_op: Span => [short],
        /// Its rate: the slope of latency over size, and the ceiling of bandwidth.
        mover_rate: BitRate,
        /// Port of the device's memory, shared by both movers, per operation.
        port_op: Span => [short],
        /// Its rate: the ceiling of reads and writes together.
        port_rate: BitRate,
        /// Threads with one operation each.
        threads: u64 => [within(1, 4096)],
        /// Bytes of the host's memory that operations go through, one after the other.
        window: Bytes => [size_within(4096, 1 << 30)],
    }
}
