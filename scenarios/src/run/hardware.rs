//! From a hardware profile to the configuration of a simulated host.

use doorbell_core::units::{BitRate, Ratio, Span, Time};
use doorbell_core::verbs::{Mtu, PKey};
use doorbell_sim::engine::NoiseTable;
use doorbell_sim::host::{HostConfig, InitiatorCosts, RegistrationCosts};
use doorbell_sim::memory::PagingCosts;
use doorbell_sim::nic::{AtomicConfig, NicConfig, NicLimits, RcConfig, VendorCodes};
use doorbell_sim::pcie::{
    Credits, Generation, InterconnectConfig, NodeKind, PcieConfig, PeerConfig, RelaxedOrdering,
    RelaxedScope, SocketConfig, TlpFormat,
};
use doorbell_sim::rc::{AckPolicy, AckReqLast, Recovery, SelectiveRepeat, TimeoutMode};
use doorbell_sim::wire::Encapsulation;

use super::places::Places;
use super::rules;
use crate::format::NicPlace;
use crate::profile::{
    AckAsk, AckMode, LinkKind, MemoryModel, Nic, Profile, Quantiles, RecoveryKind, RelaxedKind,
    TimeoutKind, VendorKind,
};

/// A rate that limits nothing.
pub(super) const FAST: BitRate = BitRate::gbps(1_000_000);

/// The host that a profile describes, with one NIC. `noise` off: every noise table is left out.
pub fn host(p: &Profile, noise: bool) -> HostConfig {
    host_with(p, noise, &[NicPlace::default()])
}

/// As [`host`], with a NIC at each of the `places`, at least one.
pub fn host_with(p: &Profile, noise: bool, places: &[NicPlace]) -> HostConfig {
    let (pcie, Places { nics: nic_nodes, gpus: gpu_nodes, .. }) = pcie(p, noise, places);
    HostConfig {
        pcie,
        nic_nodes,
        gpu_nodes,
        numa_nodes: p.memory.sockets as u8,
        nic: nic(&p.nic),
        rc: rc(p),
        cpu: cpu(p, noise),
        gpu: gpu(p, noise),
        paging: PagingCosts {
            fault: p.nic.page_fault,
            page: p.nic.page_fault_page,
            page_bytes: p.memory.page.0,
            keep: (p.memory.page_keep > Span::ZERO).then_some(p.memory.page_keep),
        },
        llc: p.memory.ddio,
        instant: false,
    }
}

/// The same host with every cost, latency and limit of cores, PCIe, memory and NIC taken away, for
/// studies of the network alone.
pub fn ideal_host(p: &Profile, places: &[NicPlace]) -> HostConfig {
    let mut h = host_with(p, false, places);
    h.instant = true;
    h.paging = PagingCosts { keep: h.paging.keep, ..PagingCosts::default() };
    for costs in [&mut h.cpu, &mut h.gpu] {
        *costs = free();
    }
    let n = &mut h.nic;
    for span in [
        &mut n.doorbell,
        &mut n.doorbell_latency,
        &mut n.pu_wqe,
        &mut n.pu_gather,
        &mut n.pu_read,
        &mut n.pu_packet,
        &mut n.pu_response,
        &mut n.rx_packet,
        &mut n.rx_recv,
        &mut n.rx_device,
        &mut n.pipeline_latency,
        &mut n.ack_latency,
        &mut n.completion_latency,
        &mut n.atomic.unit,
    ] {
        *span = Span::ZERO;
    }
    (n.qp_cache, n.wqe_cache, n.wqe_window, n.wqe_fetches) = (1 << 20, 1 << 20, 1 << 20, 1 << 20);
    n.clock.clear();
    for socket in &mut h.pcie.sockets {
        socket.root_latency = Span::ZERO;
        socket.llc_read = Span::ZERO;
        socket.dram_extra = Span::ZERO;
        socket.write_commit = Span::ZERO;
        socket.mmio_latency = Span::ZERO;
        socket.dram_rate = FAST;
    }
    h.pcie.peer = PeerConfig::default();
    h.pcie.relaxed = RelaxedOrdering::default();
    h.pcie.interconnect.latency = Span::ZERO;
    h.pcie.interconnect.rate = FAST;
    for node in &mut h.pcie.nodes {
        node.link.generation = Generation::Gen6;
        node.link.width = 16;
        node.link.latency = Span::ZERO;
        node.link.credits = Credits::UNLIMITED;
        match &mut node.kind {
            NodeKind::Switch { latency } => *latency = Span::ZERO,
            NodeKind::Endpoint(e) => {
                (e.read_latency, e.write_latency) = (Span::ZERO, Span::ZERO);
                (e.read_tags, e.read_bytes) = (1 << 20, 1 << 30);
                (e.memory_rate, e.kernel_rate) = (FAST, FAST);
            }
        }
    }
    h
}

fn free() -> InitiatorCosts {
    let none = Span::ZERO;
    InitiatorCosts {
        post_wqe: none,
        lanes: 1,
        post_block: none,
        post_sge: none,
        inline_rate: FAST,
        remote_memory: none,
        ring: none,
        ring_fences: false,
        doorbell: none,
        blueflame_line: none,
        remote_mmio: none,
        lock: none,
        lock_transfer: none,
        contention: none,
        ticket: none,
        recv_call: none,
        recv_wqe: none,
        poll_call: none,
        poll_found: none,
        poll_cqe: none,
        step: none,
        fence_device: none,
        fence_system: none,
        load: none,
        load_own: none,
        store: none,
        copy: none,
        copy_rate: FAST,
        reduce_rate: FAST,
        copy_launch: none,
        kernel_launch: none,
        register: RegistrationCosts::FREE,
        register_gpu: RegistrationCosts::FREE,
        wc_buffers: u32::MAX,
        store_delay: None,
        wqe_pieces: 1,
        interrupt: none,
        interrupt_work: none,
        jitter: None,
    }
}

/// Largest path MTU of the port.
pub fn max_mtu(p: &Profile) -> Mtu {
    Mtu::from_bytes(p.port.max_mtu.0 as u32).expect("the profile was checked")
}

fn noise_table(q: &Quantiles, on: bool) -> Option<NoiseTable> {
    let points: Vec<(u32, Span)> = q.0.clone();
    (on && !points.is_empty()).then(|| NoiseTable::new(&points).expect("the profile was checked"))
}

/// Stores that lag by anything up to `lag`, all lengths alike likely.
fn store_delay(model: MemoryModel, lag: Span) -> Option<NoiseTable> {
    let even = vec![(0, Span::ZERO), (1_000_000, lag)];
    (model == MemoryModel::Weak && lag > Span::ZERO)
        .then(|| NoiseTable::new(&even).expect("two rising points"))
}

fn cpu(p: &Profile, noise: bool) -> InitiatorCosts {
    let c = &p.cpu;
    InitiatorCosts {
        post_wqe: c.wqe_build,
        lanes: 1,
        post_block: c.wqe_per_block,
        post_sge: c.wqe_per_sge,
        inline_rate: c.inline_rate,
        remote_memory: c.numa_memory,
        ring: c.post_call + c.fence + c.dbr_store,
        // Its own fence is what `memory_model = "weak"` takes away.
        ring_fences: false,
        doorbell: c.mmio_doorbell,
        blueflame_line: c.blueflame_block,
        remote_mmio: c.numa_mmio,
        lock: c.lock,
        lock_transfer: c.lock_handoff,
        contention: Span::ZERO,
        // An atomic of its own line costs what the lock's does.
        ticket: c.lock,
        recv_call: c.post_recv_call,
        recv_wqe: c.post_recv,
        poll_call: c.poll_miss,
        poll_found: c.poll_hit,
        poll_cqe: c.poll_per_cqe,
        step: c.step,
        fence_device: c.fence,
        fence_system: c.fence,
        load: c.load,
        load_own: c.load,
        store: c.store,
        copy: c.copy,
        copy_rate: c.copy_rate,
        reduce_rate: c.reduce_rate,
        copy_launch: p.gpu.copy_launch,
        kernel_launch: p.gpu.kernel_launch,
        register: RegistrationCosts {
            call: c.register_call,
            page: c.register_page,
            page_bytes: p.memory.page.0,
        },
        register_gpu: RegistrationCosts {
            call: p.gpu.register_call,
            page: p.gpu.register_page,
            page_bytes: p.gpu.page.0,
        },
        wc_buffers: c.wc_buffers as u32,
        store_delay: store_delay(c.memory_model, c.store_lag),
        wqe_pieces: 1,
        interrupt: c.interrupt,
        interrupt_work: c.interrupt_work,
        jitter: noise_table(&c.jitter, noise),
    }
}

fn gpu(p: &Profile, noise: bool) -> InitiatorCosts {
    let g = &p.gpu;
    InitiatorCosts {
        post_wqe: g.wqe_build + g.atomic * g.wqe_atomics,
        lanes: g.lanes as u32,
        post_block: Span::ZERO,
        post_sge: Span::ZERO,
        inline_rate: FAST,
        // There and back.
        remote_memory: p.memory.interconnect_latency * 2,
        ring: g.dbr_store + g.atomic * g.ring_atomics + g.fence_system * g.ring_fences,
        ring_fences: g.ring_fences > 0,
        doorbell: g.doorbell,
        // A GPU stores doorbells only.
        blueflame_line: g.doorbell,
        remote_mmio: Span::ZERO,
        // One to take it, one to give it back.
        lock: g.atomic * 2,
        lock_transfer: g.lock_handoff,
        contention: g.lock_contention,
        // Reserving and publishing are among the atomics of a WQE.
        ticket: Span::ZERO,
        recv_call: g.store,
        recv_wqe: g.store,
        poll_call: g.poll,
        poll_found: g.atomic * g.poll_atomics + g.fence_system * g.poll_fences,
        poll_cqe: g.poll_per_cqe,
        step: g.step,
        fence_device: g.fence_device,
        fence_system: g.fence_system,
        load: g.load,
        // A poll is a load of device memory.
        load_own: g.poll,
        store: g.store,
        copy: Span::ZERO,
        copy_rate: g.copy_rate,
        reduce_rate: g.reduce_rate,
        copy_launch: Span::ZERO,
        kernel_launch: Span::ZERO,
        // A kernel registers nothing: its host did so before.
        register: RegistrationCosts::FREE,
        register_gpu: RegistrationCosts::FREE,
        wc_buffers: u32::MAX,
        store_delay: store_delay(g.memory_model, g.store_lag),
        wqe_pieces: g.wqe_pieces as u32,
        // A block does not sleep: event mode is a poll for it.
        interrupt: g.poll,
        interrupt_work: Span::ZERO,
        jitter: noise_table(&g.jitter, noise),
    }
}

fn nic(n: &Nic) -> NicConfig {
    NicConfig {
        gpu_doorbell: n.gpu_doorbell,
        pkeys: vec![PKey::DEFAULT],
        doorbell: n.doorbell,
        doorbell_line: n.doorbell_line,
        doorbell_latency: n.doorbell_latency,
        wqe_fetch_blocks: n.wqe_fetch_blocks as u32,
        wqe_fetches: n.wqe_fetches.min(u32::MAX.into()) as u32,
        wqe_window: n.wqe_window.min(u32::MAX.into()) as u32,
        pu_count: n.pu_count as u16,
        pu_wqe: n.pu_wqe,
        pu_fetched: n.pu_fetched,
        pu_gather: n.pu_gather,
        pu_read: n.pu_read,
        pu_packet: n.pu_packet,
        pu_response: n.pu_response,
        rx_count: n.rx_count as u16,
        rx_packet: n.rx_packet,
        rx_recv: n.rx_recv,
        rx_write: n.rx_write,
        rx_device: n.rx_device,
        pipeline_latency: n.pipeline_latency,
        ack_latency: n.ack_latency,
        completion_latency: n.completion_latency,
        tx_buffer: n.tx_buffer.0 as u32,
        rx_buffer: n.rx_buffer.0 as u32,
        cqe_bytes: n.cqe.0 as u32,
        rq_wqe_bytes: n.rq_wqe.0 as u32,
        rq_fetch: n.rq_fetch as u32,
        rq_ahead: n.rq_ahead as u32,
        qp_cache: n.qp_cache.min(u32::MAX.into()) as u32,
        qp_context_bytes: n.qp_context.0 as u32,
        wqe_cache: n.wqe_cache.min(u32::MAX.into()) as u32,
        bf_bytes: n.bf_bytes.0 as u32,
        prefer_bf: n.prefer_bf,
        vendor_codes: match n.vendor_codes {
            VendorKind::None => VendorCodes::None,
            VendorKind::Mlx5 => VendorCodes::Mlx5,
        },
        atomic: AtomicConfig {
            buckets: n.atomic_buckets as u32,
            unit: n.atomic_unit,
            hold_over_pcie: n.atomic_holds,
        },
        limits: NicLimits {
            max_qp: n.max_qp.min(1 << 18) as u32,
            max_qp_wr: n.max_sq_depth.min(n.max_rq_depth).min(1 << 20) as u32,
            max_sge: n.max_sge.min(64) as u32,
            max_cq: n.max_cq.min(1 << 18) as u32,
            max_cqe: n.max_cq_depth.min(u32::MAX.into()) as u32,
            max_inline: n.max_inline.0.min(1024) as u32,
            max_rd_atomic: n.max_rd_atomic as u8,
            max_msg_bytes: 1 << 30,
        },
        clock: n.clock.0.iter().map(|(at, r)| (Time::ZERO + *at, *r)).collect(),
    }
}

/// Payload of a full packet on a path of `mtu`.
pub fn packet_payload(p: &Profile, mtu: Mtu) -> u32 {
    rc(p).payload_of(mtu)
}

/// What stands around a packet on the profile's links.
pub fn encapsulation(p: &Profile) -> Encapsulation {
    if p.port.header_bytes.0 > 0 {
        return Encapsulation::Custom { header_bytes: p.port.header_bytes.0 as u16 };
    }
    match p.port.link {
        LinkKind::InfiniBand => Encapsulation::IbLocal,
        LinkKind::RoceV2 => Encapsulation::RoceV2Ipv4,
    }
}

fn rc(p: &Profile) -> RcConfig {
    let ack_req_last = match p.rc.ack_ask {
        AckAsk::Always => AckReqLast::EveryMessage,
        AckAsk::Signalled => AckReqLast::Signalled,
    };
    let ack = match p.rc.ack_mode {
        AckMode::Each => AckPolicy::EachRequest,
        AckMode::Coalesce => AckPolicy::Coalesce {
            every: p.rc.ack_coalesce.min(u32::MAX.into()) as u32,
            delay: p.rc.ack_delay,
        },
    };
    let window = p.rc.max_outstanding_packets as u32;
    let ask = (p.rc.ack_every as u32, ack_req_last);
    let timeout_mode = match p.rc.timeout_mode {
        TimeoutKind::Fixed => TimeoutMode::Fixed {
            least: Ratio::ONE,
            most: Ratio::new(p.rc.timeout_most, 1).expect("not zero"),
        },
        TimeoutKind::Floor => TimeoutMode::Floor { min: p.rc.timeout_least },
        TimeoutKind::Adaptive => {
            TimeoutMode::Adaptive { first: p.rc.timeout_least, most: p.rc.timeout_ceiling }
        }
        TimeoutKind::Ticks => TimeoutMode::Ticks { tick: p.rc.timer_tick },
    };
    let recovery = match p.rc.recovery {
        RecoveryKind::GoBackN => Recovery::GoBackN,
        RecoveryKind::SelectiveRepeat => {
            // A peer that keeps as many as can be in flight never drops what came early.
            let cap = p.rc.recovery_cap as u32;
            Recovery::SelectiveRepeat(SelectiveRepeat { hold: cap, cap })
        }
    };
    RcConfig {
        packet_payload: p.rc.packet_payload.0 as u32,
        framing: p.port.framing.0 as u32,
        timeout_mode,
        nak_reaction: p.rc.nak_reaction,
        implied_nak_reaction: p.rc.implied_nak_reaction,
        nak_repeat: (p.rc.nak_repeat > Span::ZERO).then_some(p.rc.nak_repeat),
        recovery,
        place_on_arrival: p.rc.place_on_arrival,
        rules: rules::rules(&p.rc),
        ..RcConfig::new(window, ask, ack, encapsulation(p))
    }
}

fn pcie(p: &Profile, noise: bool, places: &[NicPlace]) -> (PcieConfig, Places) {
    let c = &p.pcie;
    let bytes = |b: doorbell_core::units::Bytes| b.0 as u32;
    let mut at = Places::new(p);
    at.fill(p, places);
    let nodes = std::mem::take(&mut at.nodes);
    let socket = SocketConfig {
        root_latency: c.root_latency,
        llc_read: p.memory.llc_read,
        dram_extra: p.memory.dram_extra,
        write_commit: p.memory.write_commit,
        mmio_latency: c.mmio_latency,
        dram_rate: p.memory.bandwidth,
        noise: noise_table(&p.memory.read_noise, noise),
    };
    let config = PcieConfig {
        format: TlpFormat {
            write_header: bytes(c.write_header),
            read_header: bytes(c.read_header),
            completion_header: bytes(c.completion_header),
            max_payload: bytes(c.mps),
            max_read_request: bytes(c.mrrs),
            read_completion_boundary: bytes(c.rcb),
            completion_combine: bytes(c.c_rc),
            dllp_bytes: bytes(c.dllp_bytes),
            dllp_interval: bytes(c.dllp_interval),
            skip_bytes: bytes(c.skip_bytes),
            skip_interval: bytes(c.skip_interval),
        },
        sockets: vec![socket; p.memory.sockets as usize],
        interconnect: InterconnectConfig {
            latency: p.memory.interconnect_latency,
            rate: p.memory.interconnect_rate,
            request_bytes: bytes(p.memory.interconnect_header),
        },
        peer: PeerConfig { same: c.peer_rate, across: c.peer_rate_across },
        relaxed: RelaxedOrdering {
            scope: match c.relaxed_ordering {
                RelaxedKind::Off => RelaxedScope::None,
                RelaxedKind::Payload => RelaxedScope::Payload,
                RelaxedKind::PayloadAndAtomics => RelaxedScope::PayloadAndAtomics,
            },
            spread: p.memory.relaxed_spread,
        },
        nodes,
    };
    (config, at)
}

/// The generation of a profile's number, 1 to 6.
pub fn generation(n: u64) -> Generation {
    match n {
        1 => Generation::Gen1,
        2 => Generation::Gen2,
        3 => Generation::Gen3,
        4 => Generation::Gen4,
        5 => Generation::Gen5,
        _ => Generation::Gen6,
    }
}
