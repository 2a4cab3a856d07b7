//! The NIC: what happens between a doorbell and a completion queue entry.
//!
//! The stages of a send, each a resource with its own time: doorbell unit → QP context → WQE fetch
//! over PCIe (skipped by BlueFlame) → processing unit → payload fetch (skipped by inline data) →
//! transmit port. Of a receive: receive unit → receive WQE → payload write → CQE write → ACK. Of an
//! ACK: receive unit → CQE write. The room holds no protocol: packets are described by
//! [`rc`](crate::rc); and no memory or link: those are [`memory`](crate::memory) and
//! [`pcie`](crate::pcie).
//!
//! | File | Stage |
//! |---|---|
//! | `doorbell.rs` | doorbell unit, QP context, WQE fetch, staleness |
//! | `ready.rs` | QPs with work, in turn, by what of the port they wait for |
//! | `transmit.rs` | processing units, payload fetch, order, transmit port |
//! | `receive.rs` | receive units, receive WQEs, payload writes, ATOMICs |
//! | `complete.rs` | completions, errors, flush |
//! | `congestion.rs` | pace of flows, CNPs |
//! | `control.rs` | creation and states of QPs, CQs, SRQs |
//! | `faults.rs` | what planned faults do to a NIC |
//! | `retry.rs` | timers of QPs, packets kept beyond a gap, counters |
//! | `sight.rs` | the order in which payload becomes visible |
//! | `check.rs` | whether a packet belongs to a connection of this port |
//! | `overtaken.rs` | completions that overtake their payload |
//! | `paging.rs` | accesses to pages on demand that are not there |
//! | `answers.rs` | which transmission an answer answers |
//! | `postmortem.rs` | what is kept for the question why a QP died |

mod answers;
mod cache;
mod check;
mod complete;
mod config;
mod congestion;
mod control;
mod doorbell;
mod env;
mod faults;
mod node;
mod overtaken;
mod owed;
mod paging;
mod postmortem;
mod qp;
mod queues;
mod ready;
mod receive;
mod recv_queue;
mod regions;
mod retry;
mod room;
mod sight;
mod transmit;
mod vendor;
mod wqe;

use std::collections::{BTreeMap, VecDeque};

use doorbell_core::units::{BitRate, Ratio, Span, Time};
use doorbell_core::verbs::{AsyncEventKind, Qpn};

pub use answers::AnswerWaits;
pub use cache::Cache;
pub use complete::NicAsync;
pub use config::{AtomicConfig, NicConfig, NicLimits, RcConfig};
pub use control::QpRequest;
pub use doorbell::subject;
pub use env::{Env, NicEvent, Traced, Wake};
pub(crate) use node::NODE_PORT;
pub use overtaken::Overtaken;
pub use owed::LostCompletions;
pub use postmortem::{Death, Dropped, Episode, Refused, Sender, Why};
pub(crate) use postmortem::{PsnLog, Within};
pub use qp::{FIRST_QPN, NicQp, QpStats};
pub use queues::{CompletionQueue, Cqe, CqeKind, SendQueue, completion};
pub use recv_queue::{PostedReceives, RecvQueue};
pub use vendor::VendorCodes;
pub use wqe::{InlineBytes, Landing, RqWqe, SqSlot, UdTarget, WQEBB, Wqe, WqeData, wqe_bytes};

use crate::engine::{Busy, SimRng, Slab};
use crate::pcie::{Done, NodeId};
use crate::rc::{HwCounters, PacketDesc, ReadJob, Reason};
use crate::wire::{HostId, PacketId, PortId};
use congestion::Pace;
use env::{QP_BITS, Tag};
use paging::Held;
use postmortem::Drops;
use ready::Ready;
use receive::{AtomicJob, RxWrite};
use recv_queue::Turn;
use room::ReceiveRoom;

/// What a processing unit works on.
#[derive(Debug)]
struct Running {
    qp: u32,
    life: u32,
    desc: PacketDesc,
    /// The READ that the packet answers; `None`: it is a request.
    read: Option<ReadJob>,
    reason: Option<Reason>,
}

/// A send processing unit.
#[derive(Debug, Default)]
struct Pu {
    busy: Busy,
    /// QPs with work, in turn.
    ready: Ready,
    running: Option<Running>,
    /// Its place among those that wait for room at the port, if it does.
    waits: Option<u64>,
}

/// The resource that the receive queue is whose receives were being read for the longest time: one
/// fetch at a time, and only while a packet waits for it.
pub const RECV_FETCH: &str = "nic receive WQE fetch (busiest queue)";

/// Counters of the device.
#[derive(Copy, Clone, Default, Debug)]
pub struct NicStats {
    /// 8-byte doorbells.
    pub doorbells: u64,
    /// BlueFlame writes.
    pub blueflames: u64,
    /// WQE fetches over PCIe.
    pub wqe_fetches: u64,
    /// 64-byte blocks that they read, those read again included.
    pub wqe_blocks: u64,
    /// WQEs executed.
    pub wqes: u64,
    /// WQEs read again because they had left the cache.
    pub wqe_refetches: u64,
    /// QP contexts read over PCIe.
    pub context_reads: u64,
    /// CQEs that landed in their queue; one that finds no free entry is none.
    pub cqes: u64,
    /// Data and control packets sent.
    pub tx_packets: u64,
    /// Of these, acknowledgements.
    pub tx_acks: u64,
    /// Packets received.
    pub rx_packets: u64,
    /// Packets that waited in front of the port because PCIe did not drain the receive buffer.
    pub rx_buffer_waits: u64,
    /// Packets beyond a gap that were written to memory when they came.
    pub placed_on_arrival: u64,
    /// Messages whose end was visible in memory before bytes of an earlier one of the same QP. A
    /// program that polls memory for the one reads what was there before the other.
    pub seen_early: u64,
    /// Packets dropped without an answer, each counted once among the eight causes that follow. Not
    /// among them are those with a wrong ICRC, nor datagrams and UC packets of which a receive
    /// completion with an error tells.
    pub rx_dropped: u64,
    /// Of these, those for a QP that does not exist,
    pub rx_unknown_qp: u64,
    /// for one of another service,
    pub rx_wrong_service: u64,
    /// of another partition (`ibv_query_port` has this counter),
    pub bad_pkey_cntr: u64,
    /// from another host than the one that the QP is connected to,
    pub rx_wrong_address: u64,
    /// for a QP in RESET, INIT or ERR, or that came to it while they waited,
    pub rx_wrong_state: u64,
    /// with another Q_Key (`ibv_query_port` has this counter),
    pub qkey_viol_cntr: u64,
    /// those that found the receive buffer full, on a link that can hold nobody back
    /// (`rx_discards_phy` of drivers),
    pub rx_discards: u64,
    /// and those that the transport has no use for: an answer to nothing that is awaited, or a
    /// datagram or UC packet without a receive, of a message whose beginning is lost, or with a
    /// remote key that does not fit.
    pub rx_unused: u64,
    /// Payload bytes sent.
    pub tx_payload: u64,
    /// Payload bytes received and placed.
    pub rx_payload: u64,
    /// Completion queues that overran.
    pub cq_overruns: u64,
    /// Packets with a wrong ICRC.
    pub rx_icrc_encapsulated: u64,
    /// Times that a planned fault took the link of the port down, or the switch at its other end.
    pub link_downed: u64,
    /// Doorbells that the doorbell unit found damaged.
    pub doorbell_check_errors: u64,
    /// Work requests that named a region when it was deregistered.
    pub regions_in_use: u64,
    /// WQEs that destroyed QPs had been given.
    pub posted_by_gone: u64,
    /// Completions of QPs that were destroyed or reset, which their program was owed and never saw.
    pub completions_lost: u64,
    /// Times that a QP with work stepped aside until its rate let it send.
    pub paced: u64,
    /// Rate cuts of flows that are gone,
    pub rate_cuts: u64,
    /// and the lowest rate that one of them had.
    pub lowest_rate: Option<BitRate>,
    /// How round trip times of flows that are gone moved about their target.
    pub swings: Option<crate::cc::Swings>,
}

/// The NIC of a host.
#[derive(Debug)]
pub struct Nic {
    cfg: NicConfig,
    rc: RcConfig,
    host: HostId,
    /// Number of the NIC, which is its port of the host.
    port: PortId,
    node: NodeId,
    /// NUMA node of its slot, where its own tables are in host memory.
    numa: u8,
    qps: Vec<Option<Box<NicQp>>>,
    cqs: Vec<Option<CompletionQueue>>,
    cqs_destroyed: u32,
    srqs: Vec<Option<RecvQueue>>,
    posted: PostedReceives,
    doorbell: Busy,
    pus: Vec<Pu>,
    rx_device: Busy,
    rx: Vec<Busy>,
    atomic_unit: Busy,
    /// ATOMICs that wait for their bucket, by bucket; an entry exists while one is at work.
    buckets: BTreeMap<u32, VecDeque<u32>>,
    /// For each bucket since when it is locked, or was last, and how long in all.
    bucket_held: BTreeMap<u32, (Time, Span)>,
    atomics: Slab<AtomicJob>,
    /// ATOMICs whose bucket was let go before their word was changed, in order.
    atomic_order: VecDeque<u32>,
    rx_writes: Slab<RxWrite>,
    /// Packets whose payload waits for pages.
    held: Slab<Held>,
    /// Payload of a queue pair may become visible in another order than it was sent.
    orderless: bool,
    /// Hosts of the node that this one is in; 0: none.
    node_hosts: u32,
    /// The receive buffer.
    rx_room: ReceiveRoom,
    /// Packets that the receive units are done with, which is the turn of the last one.
    rx_turn: Turn,
    /// Packets that the receive buffer has no room for, in order.
    rx_held: VecDeque<(PacketId, bool)>,
    cqes: Slab<(u32, Cqe)>,
    /// Receive WQE fetches under way: queue and count.
    contexts: Cache,
    wqe_cache: Cache,
    /// Bytes from the start of a packet at a processing unit to its start at the port.
    tx_bytes: u32,
    /// Traffic classes that had no room when a processing unit looked last, a bit each.
    tx_full: u32,
    /// Processing units that wait for room, the one that has waited longest first, each with its
    /// place: one that has started since waits no more, or behind the others.
    tx_waiting: VecDeque<(u16, u64)>,
    /// Places given so far.
    tx_places: u64,
    /// Index into the clock's steps.
    clock_step: usize,
    /// When the last CQE, and at each receive unit the last packet, leaves its latency stage.
    last_cqe: Time,
    last_rx: Vec<Time>,
    scratch: Vec<u8>,
    /// Asynchronous events that nobody has taken, with the initiator that they are for.
    events: Vec<(u16, NicAsync)>,
    /// How many there were of each kind.
    raised: [u64; AsyncEventKind::ALL.len()],
    /// Whose receives are withheld by a planned fault; `None`: everybody's.
    withheld: Vec<Option<u32>>,
    /// Which completion queues no poll finds anything in, likewise.
    hidden: Vec<Option<u32>>,
    lost_completions: Vec<LostCompletions>,
    /// Damaged doorbells have stopped it.
    stopped: bool,
    /// Timer events that have been scheduled and have not come.
    timers: u32,
    /// Names the draws of the QPs' ack timers.
    timer_seed: u64,
    /// Counters of QPs that were destroyed.
    gone: HwCounters,
    /// Packets that were dropped here, by sender.
    drops: Drops,
    /// Flows under congestion control, and those that a service level shares.
    flows: Slab<Pace>,
    shared_flows: BTreeMap<u8, u32>,
    /// When the next CNP may leave, by destination; `None`: of the port.
    cnp_from: BTreeMap<Option<(HostId, PortId)>, Time>,
    /// Counters.
    pub stats: NicStats,
    /// Completions that came before their payload.
    pub overtaken: Overtaken,
}

impl Nic {
    /// The NIC number `port` of a host, at `node` of its PCIe tree, on the
    /// socket `numa`. `name` names its random streams.
    pub fn new(
        cfg: &NicConfig,
        rc: &RcConfig,
        (host, port): (HostId, PortId),
        (node, numa): (NodeId, u8),
        seed: u64,
        name: &str,
    ) -> Self {
        let context_rng = SimRng::stream(seed, name, "qp-context-cache");
        let wqe_rng = SimRng::stream(seed, name, "wqe-cache");
        Self {
            contexts: Cache::new(cfg.qp_cache, context_rng),
            wqe_cache: Cache::new(cfg.wqe_cache, wqe_rng),
            pus: (0..cfg.pu_count).map(|_| Pu::default()).collect(),
            rx: vec![Busy::new(); usize::from(cfg.rx_count)],
            cfg: cfg.clone(),
            rc: rc.clone(),
            host,
            port,
            node,
            numa,
            qps: Vec::new(),
            cqs: Vec::new(),
            cqs_destroyed: 0,
            srqs: Vec::new(),
            posted: PostedReceives::default(),
            doorbell: Busy::new(),
            rx_device: Busy::new(),
            atomic_unit: Busy::new(),
            buckets: BTreeMap::new(),
            bucket_held: BTreeMap::new(),
            atomics: Slab::new(),
            atomic_order: VecDeque::new(),
            rx_writes: Slab::new(),
            held: Slab::new(),
            orderless: rc.place_on_arrival,
            node_hosts: 0,
            rx_room: ReceiveRoom::new(cfg.rx_buffer),
            rx_turn: 0,
            rx_held: VecDeque::new(),
            cqes: Slab::new(),
            tx_bytes: 0,
            tx_full: 0,
            tx_waiting: VecDeque::new(),
            tx_places: 0,
            clock_step: 0,
            last_cqe: Time::ZERO,
            last_rx: vec![Time::ZERO; usize::from(cfg.rx_count)],
            scratch: Vec::new(),
            events: Vec::new(),
            raised: [0; AsyncEventKind::ALL.len()],
            withheld: Vec::new(),
            hidden: Vec::new(),
            lost_completions: Vec::new(),
            stopped: false,
            timers: 0,
            timer_seed: SimRng::stream(seed, name, "ack-timeout").next_u64(),
            gone: HwCounters::default(),
            drops: Drops::default(),
            flows: Slab::new(),
            shared_flows: BTreeMap::new(),
            cnp_from: BTreeMap::new(),
            stats: NicStats::default(),
            overtaken: Overtaken::default(),
        }
    }

    /// Asynchronous events raised so far, by kind.
    pub fn async_events(&self) -> impl Iterator<Item = (AsyncEventKind, u64)> {
        AsyncEventKind::ALL.iter().copied().zip(self.raised)
    }

    /// Completion queues.
    pub fn completion_queues(&self) -> impl Iterator<Item = &CompletionQueue> {
        self.cqs.iter().flatten()
    }

    /// Parameters.
    pub const fn config(&self) -> &NicConfig {
        &self.cfg
    }

    /// Transport settings.
    pub const fn rc_config(&self) -> &RcConfig {
        &self.rc
    }

    /// The QP at `index`.
    pub fn qp(&self, index: u32) -> Option<&NicQp> {
        self.qps.get(index as usize)?.as_deref()
    }

    /// The QP at `index`.
    pub fn qp_mut(&mut self, index: u32) -> Option<&mut NicQp> {
        self.qps.get_mut(index as usize)?.as_deref_mut()
    }

    /// All QPs with their indices.
    pub fn qps(&self) -> impl Iterator<Item = (u32, &NicQp)> {
        self.qps.iter().enumerate().filter_map(|(i, q)| Some((i as u32, q.as_deref()?)))
    }

    /// WQEs posted so far in all send queues, those included that are gone.
    pub fn wqes_posted(&self) -> u64 {
        let there = self.qps().map(|(_, q)| u64::from(q.sq.prod()));
        self.stats.posted_by_gone + there.sum::<u64>()
    }

    /// Queue pairs made so far, those included that are gone; their indices are below.
    pub fn qps_made(&self) -> u32 {
        self.qps.len() as u32
    }

    /// The completion queue at `index`.
    pub fn cq(&self, index: u32) -> Option<&CompletionQueue> {
        self.cqs.get(index as usize)?.as_ref()
    }

    /// The completion queue at `index`.
    pub fn cq_mut(&mut self, index: u32) -> Option<&mut CompletionQueue> {
        self.cqs.get_mut(index as usize)?.as_mut()
    }

    /// The shared receive queue at `index`.
    pub fn srq(&self, index: u32) -> Option<&RecvQueue> {
        self.srqs.get(index as usize)?.as_ref()
    }

    /// The shared receive queue at `index`.
    pub fn srq_mut(&mut self, index: u32) -> Option<&mut RecvQueue> {
        self.srqs.get_mut(index as usize)?.as_mut()
    }

    /// The shared receive queues with their indices.
    pub fn srqs(&self) -> impl Iterator<Item = (u32, &RecvQueue)> {
        self.srqs.iter().enumerate().filter_map(|(i, q)| Some((i as u32, q.as_ref()?)))
    }

    /// Time for which the receive buffer was full, so that packets waited in front of the port, or
    /// found no room.
    #[must_use]
    pub fn receive_buffer_full(&self, now: Time) -> Span {
        self.rx_room.full(now)
    }

    /// Receives posted in all queues of this NIC, now and at most.
    pub const fn posted_receives(&self) -> PostedReceives {
        self.posted
    }

    /// Number of the NIC in its host, which is that of its port.
    pub const fn port(&self) -> PortId {
        self.port
    }

    /// As [`port`](Self::port), as short as events have it.
    const fn number(&self) -> u8 {
        self.port.0 as u8
    }

    /// Place in the PCIe tree.
    pub const fn node(&self) -> NodeId {
        self.node
    }

    /// Number of the QP with an index in the NIC `port`: no two NICs of a host give the same one,
    /// so host and number name a QP.
    pub const fn qpn(port: PortId, index: u32) -> Qpn {
        Qpn::new((port.0 as u32) << QP_BITS | (index + FIRST_QPN))
    }

    /// The NIC that gives a number, of the host that it is a number of.
    pub const fn port_of(qpn: Qpn) -> PortId {
        PortId((qpn.value() >> QP_BITS) as u16)
    }

    /// Index of the QP with number `qpn` in its NIC, whether it exists or not.
    pub const fn qp_index(qpn: Qpn) -> Option<u32> {
        (qpn.value() & ((1 << QP_BITS) - 1)).checked_sub(FIRST_QPN)
    }

    /// As [`qp_index`](Self::qp_index); `None` for a number of another NIC.
    pub fn own_qp_index(&self, qpn: Qpn) -> Option<u32> {
        Self::qp_index(qpn).filter(|_| Self::port_of(qpn) == self.port)
    }

    /// Time of a stage of the NIC's own clock domain at `now`.
    fn clocked(&mut self, now: Time, span: Span) -> Span {
        if self.cfg.clock.is_empty() {
            return span;
        }
        while let Some((from, _)) = self.cfg.clock.get(self.clock_step)
            && *from <= now
        {
            self.clock_step += 1;
        }
        match self.clock_step.checked_sub(1) {
            Some(step) => span.scaled(self.cfg.clock[step].1),
            None => span.scaled(Ratio::ONE),
        }
    }

    /// The stages for the report: name, busy time, units, things served, time waited.
    pub fn resources(&self) -> Vec<(&'static str, Span, u32, u64, Span)> {
        let most = |name, units: &mut dyn Iterator<Item = &Busy>| {
            let b = units.max_by_key(|b| b.busy()).copied().unwrap_or_default();
            (name, b.busy(), 1, b.jobs(), b.waited())
        };
        let units = |name, units: &mut dyn Iterator<Item = &Busy>, count| {
            units.fold((name, Span::ZERO, count, 0, Span::ZERO), |(n, t, c, jobs, w), b| {
                (n, t + b.busy(), c, jobs + b.jobs(), w + b.waited())
            })
        };
        // Behind these are those of the way into a node, which are nobody's time.
        let (pu_count, rx_count) = (self.cfg.pu_count, self.cfg.rx_count);
        let pus = || self.pus[..usize::from(pu_count)].iter().map(|p| &p.busy);
        let mut rx = self.rx[..usize::from(rx_count)].iter();
        let bucket = self.bucket_held.values().map(|(_, held)| *held).max().unwrap_or_default();
        let queues = self.qps().map(|(_, q)| &q.rq).chain(self.srqs().map(|(_, srq)| srq));
        // Reads are under way ahead of need: what counts is the time in which messages waited.
        let fetched = queues.max_by_key(|rq| rq.starved);
        let (fetching, fetches) = fetched.map_or((Span::ZERO, 0), |rq| (rq.starved, rq.fetches));
        vec![
            most("nic doorbell unit", &mut std::iter::once(&self.doorbell)),
            most("nic processing unit (busiest)", &mut pus()),
            units("nic processing units (all)", &mut pus(), pu_count.into()),
            most("nic receive device", &mut std::iter::once(&self.rx_device)),
            most("nic receive unit (busiest)", &mut rx),
            (RECV_FETCH, fetching, 1, fetches, Span::ZERO),
            most("nic atomic unit", &mut std::iter::once(&self.atomic_unit)),
            ("nic atomic lock bucket (busiest)", bucket, 1, self.atomic_unit.jobs(), Span::ZERO),
        ]
    }

    /// Whether no stage has anything under way.
    pub fn quiet(&self) -> bool {
        self.cqes.is_empty()
            && self.atomics.is_empty()
            && self.rx_writes.is_empty()
            && self.pus.iter().all(|p| p.running.is_none() && p.ready.is_empty())
    }

    /// Hits and misses of the QP-context cache and of the WQE cache.
    pub const fn cache_counts(&self) -> [(u64, u64); 2] {
        [self.contexts.counts(), self.wqe_cache.counts()]
    }

    /// Writes, completions and ATOMICs under way, and bytes between memory and wire: 0 when
    /// everything has ended.
    pub fn in_flight(&self) -> u64 {
        let jobs = self.rx_writes.len() + self.cqes.len() + self.atomics.len();
        jobs as u64 + u64::from(self.tx_bytes)
    }

    /// Handles an event of this NIC. False: a timer that was overtaken, and nothing happened.
    pub fn on_event(&mut self, env: &mut Env<'_>, ev: NicEvent) -> bool {
        match ev {
            NicEvent::Timer(qp) => return self.on_timer(env, qp),
            NicEvent::Pace(flow) => return self.on_pace(env, flow),
            NicEvent::Cnp(packet) => self.send_cnp(env, packet),
            NicEvent::Doorbell { qp, prod, blueflame } => {
                self.on_doorbell(env, qp, prod, blueflame)
            }
            NicEvent::Pu(pu) => self.on_pu(env, pu),
            NicEvent::Rx(packet) => self.rx_done(env, packet),
            NicEvent::Respond(qp) => self.on_respond(env, qp),
            NicEvent::Cqe(id) => self.on_cqe(env, id),
            NicEvent::Atomic(id) => self.on_atomic(env, id),
            NicEvent::PageIn(id) => self.on_page_in(env, id),
        }
        true
    }

    /// The initiator of an MMIO write that has arrived, and its 64-byte lines.
    pub fn doorbell_of(done: &Done) -> Option<(u16, u32)> {
        match Tag::unpack(done.tag) {
            Tag::Doorbell { initiator, .. } => Some((initiator.into(), done.bytes.div_ceil(WQEBB))),
            _ => None,
        }
    }

    /// A read of this NIC has reached memory: its bytes are those of this instant.
    pub fn on_memory(&mut self, env: &mut Env<'_>, tag: u64) {
        match Tag::unpack(tag) {
            Tag::Wqe { qp, first, count } => self.wqes_at_memory(env, qp, first, count),
            Tag::Payload { qp, seq, response } => self.payload_at_memory(env, (qp, seq, response)),
            Tag::AtomicRead(id) => self.atomic_at_memory(env, id),
            _ => {}
        }
    }

    /// A PCIe transaction of this NIC, or an MMIO write to it, has ended.
    pub fn on_done(&mut self, env: &mut Env<'_>, done: &Done) {
        let submitted = done.submitted;
        match Tag::unpack(done.tag) {
            Tag::Doorbell { qp, prod, blueflame, .. } => {
                let index = prod.wrapping_sub(1);
                self.record(env, qp, index, "doorbell (PCIe MMIO write)", submitted, env.now);
                let lines = done.bytes.div_ceil(WQEBB);
                self.doorbell_arrived(env, (qp, prod, blueflame), lines);
            }
            Tag::Wqe { qp, first, count } => self.wqes_fetched(env, (qp, first, count), submitted),
            Tag::Context { qp } => self.context_arrived(env, qp),
            Tag::Payload { qp, seq, response } => {
                self.payload_fetched(env, (qp, seq, response), submitted);
            }
            Tag::RxWrite(id) => self.rx_written(env, id),
            Tag::Cqe(id) => self.cqe_landed(env, id),
            Tag::RecvFetch { queue, srq, number } => {
                self.recv_fetched(env, (queue, srq, number), submitted);
            }
            Tag::AtomicRead(id) => self.atomic_read(env, id),
            Tag::AtomicWrite(id) => self.atomic_written(env, id),
            Tag::WqeRefetch { qp } => self.wqe_refetched(env, qp),
        }
    }
}
