//! The island: dispatch of events, wake-ups, steps.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use doorbell_core::transport::{DeviceCaps, Initiator, Mr, Next, WaitSet};
use doorbell_core::units::{Span, Time};
use doorbell_core::verbs::{Mtu, Qpn};

use super::config::{HostConfig, InitiatorConfig, InitiatorCosts, PollMode};
use super::copies::Copies;
use super::device::{Device, MAX_NICS};
use super::initiator::{
    Activity, Cause, Handles, InitiatorState, InitiatorStats, LocalQp, StoreBuffer, first_look,
};
use super::program::{CallBudgetSpent, SimProgram};
use super::stall::StallReason;
use super::transport::SimTransport;
use crate::capture::Capture;
use crate::engine::{Class, ComponentId, Engine, Out, SimRng, Slab, Timeline};
use crate::event::{Event, HostEvent};
use crate::fabric::{Fabric, FabricEvent};
use crate::memory::{MemoryEvent, PagingStats, RegionId, RegionTable};
use crate::nic::{CompletionQueue, Env, Nic, NicEvent, NicQp, Traced, Wake};
use crate::pcie::{Cause as PcieCause, Done, NodeId, PcieConfigError, PcieEvent, PcieTree};
use crate::wire::{HostId, Packet, PacketId, Packets, PortId};

/// Steps in a row that found, posted, stored and computed nothing, after which a program counts as
/// stuck: it turns, and nothing comes of it. On its own deadlines it is stuck only if nobody else
/// does anything either.
const IDLE_STEP_LIMIT: u32 = 1_000_000;

/// Every how many of its idle polls a program beyond that limit makes the world look whether
/// anything else goes on. Higher: a run in which nothing does ends later; lower: longer runs.
const IDLE_CHECK: u32 = 1_024;

/// Looks in a row that found nothing, after which a program that looks at times of its own is said
/// to do so in vain: at the limit of the run, when all else rests, and in its reasons. Higher: a
/// program that looks seldom is told to raise the limit, though nothing will come.
const VAIN_LOOKS: u32 = 100;

impl InitiatorState {
    /// Whether it looks again and again, and nothing is there.
    pub fn looks_in_vain(&self) -> bool {
        self.idle_polls >= VAIN_LOOKS
    }
}

/// What all islands use. Nothing here is decided by one island for another.
#[derive(Debug)]
pub struct Shared {
    /// Event queue.
    pub engine: Engine<Event>,
    /// Packets in flight.
    pub packets: Packets,
    /// Network.
    pub fabric: Fabric,
    /// Component of each host's port.
    pub port_ids: Vec<ComponentId>,
    /// Reused list: what NICs have traced in this event.
    pub traced: Vec<(ComponentId, Traced)>,
    /// Reused list.
    pub fabric_out: Out<FabricEvent>,
    /// Messages of the out-of-band network: sender's rank, key, bytes, hosts still to reach.
    pub messages: Slab<(u32, u64, Box<[u8]>, u32)>,
    /// One-way latency of the out-of-band network.
    pub bootstrap_latency: Span,
    /// Host of each program of the run, by rank.
    pub ranks: Vec<HostId>,
    /// Of which programs, by rank, it is known everywhere that they have ended.
    pub ended: Vec<bool>,
    /// Hosts in the run.
    pub hosts: u32,
    /// Recorder of single messages.
    pub timeline: Timeline,
    /// Recorder of packets.
    pub capture: Option<Box<Capture>>,
}

impl Shared {
    /// Programs in the run.
    pub fn size(&self) -> u32 {
        self.ranks.len() as u32
    }

    /// Hands to the engine what the fabric wants to happen and has to hear of; the recorder of
    /// packets sees it first.
    #[inline]
    pub fn schedule_fabric(&mut self, origin: ComponentId) {
        if !self.fabric_out.is_empty() {
            self.schedule_wanted(origin);
        }
    }

    #[inline(never)]
    fn schedule_wanted(&mut self, origin: ComponentId) {
        if let Some(capture) = &mut self.capture {
            capture.transmissions(&self.fabric_out, &self.fabric, &self.packets);
        }
        let now = self.engine.now();
        self.fabric_out.take_each(|at, class, ev| {
            if !self.fabric.expect(now, at, ev) {
                self.engine.schedule(origin, at, class, Event::Fabric(ev));
            }
        });
    }
}

/// The lock of a shared QP.
#[derive(Debug, Default)]
pub(super) struct QpLock {
    pub holder: Option<u16>,
    pub last: Option<u16>,
    pub waiting: VecDeque<u16>,
    /// Submitting in order: slots taken, slots announced, and who waits to announce which.
    pub reserved: u32,
    pub ready: u32,
    pub in_order: BTreeMap<u32, u16>,
    pub contended: u64,
    pub waited: Span,
    pub taken: u64,
    /// Doorbells in a row that were left to the next holder.
    pub left: u32,
    /// Time for which it was held, or on its way from one holder to the next.
    pub busy: Span,
    /// When it was last taken, the way to the holder included.
    pub since: Time,
}

/// A host.
#[derive(Debug)]
pub struct Host {
    pub(super) id: HostId,
    pub(super) name: String,
    pub(super) cfg: HostConfig,
    pub(super) devices: Vec<Device>,
    pub(super) pcie: PcieTree,
    pub(super) pcie_out: Out<PcieEvent>,
    pub(super) memory_out: Out<MemoryEvent>,
    pub(super) regions: RegionTable,
    pub(super) pcie_id: ComponentId,
    pub(super) wakes: Vec<Wake>,
    pub(super) copies: Copies,
    pub(super) initiators: Vec<InitiatorState>,
    /// Stores of all initiators that are visible to their authors only.
    pub(super) late_stores: u32,
    /// By NIC and QP.
    pub(super) locks: BTreeMap<(u8, u32), QpLock>,
    /// Objects offered to the other initiators: (owner's rank, key). A QP is of one NIC.
    pub(super) shared_qps: BTreeMap<(u32, u64), (u8, u32)>,
    pub(super) shared_mrs: BTreeMap<(u32, u64), (Mr, RegionId)>,
    pub(super) bootstrap: BTreeMap<(u32, u64), Box<[u8]>>,
    pub(super) caps: DeviceCaps,
    pub(super) next_pd: u32,
    pub(super) next_psn: SimRng,
    /// What ended the run early.
    pub(super) fault: Option<StallReason>,
    /// Gone, by a planned fault.
    pub(super) dead: bool,
    /// Stages of NICs that are due in the present call, in order; only of an instant host.
    pub(super) due: VecDeque<(u8, NicEvent)>,
    /// Stages are events even where they take no time.
    pub(super) stages_apart: bool,
}

impl Host {
    /// Builds the island of host `id`.
    ///
    /// # Errors
    /// A PCIe tree that cannot be.
    ///
    /// # Panics
    /// With no NIC, or more than [`MAX_NICS`].
    pub fn new(
        cfg: &HostConfig,
        id: HostId,
        mtu: Mtu,
        engine: &mut Engine<Event>,
    ) -> Result<Self, PcieConfigError> {
        let name = format!("host{}", id.0);
        let seed = engine.seed();
        let l = cfg.nic.limits;
        let count = cfg.nic_nodes.len();
        assert!((1..=MAX_NICS).contains(&count), "a host of {count} NICs");
        let mut pcie = PcieTree::new(&cfg.pcie, seed, &name)?;
        if cfg.instant {
            pcie.make_instant();
        }
        // Further NICs come last, so that they move the number of nobody else.
        let mut devices = vec![Device::new(cfg, (id, 0), &pcie, &name, engine)];
        let pcie_id = engine.add_component(&format!("{name}/pcie"));
        devices.extend((1..count).map(|n| Device::new(cfg, (id, n), &pcie, &name, engine)));
        Ok(Self {
            pcie,
            devices,
            pcie_out: Out::new(),
            memory_out: Out::new(),
            regions: RegionTable::with_paging(cfg.paging),
            pcie_id,
            wakes: Vec::new(),
            copies: Copies::default(),
            initiators: Vec::new(),
            late_stores: 0,
            locks: BTreeMap::new(),
            shared_qps: BTreeMap::new(),
            shared_mrs: BTreeMap::new(),
            bootstrap: BTreeMap::new(),
            caps: DeviceCaps {
                max_qp: l.max_qp,
                max_qp_wr: l.max_qp_wr,
                max_sge: l.max_sge,
                max_cq: l.max_cq,
                max_cqe: l.max_cqe,
                max_srq_wr: l.max_qp_wr,
                max_mr: 1 << 24,
                max_rd_atomic: l.max_rd_atomic,
                max_dest_rd_atomic: l.max_rd_atomic,
                max_inline: l.max_inline,
                gpu_doorbell: cfg.nic.gpu_doorbell,
                max_msg_bytes: l.max_msg_bytes,
                active_mtu: mtu,
            },
            next_pd: 0,
            next_psn: SimRng::stream(seed, &name, "initial-psn"),
            fault: None,
            dead: false,
            due: VecDeque::new(),
            stages_apart: false,
            cfg: cfg.clone(),
            name,
            id,
        })
    }

    /// Adds a program on an initiator; it steps first at `start`.
    ///
    /// # Panics
    /// When the host has no such NIC.
    pub fn add_program(
        &mut self,
        cfg: InitiatorConfig,
        rank: u32,
        program: Box<dyn SimProgram>,
        start: Time,
        engine: &mut Engine<Event>,
    ) {
        let index = self.initiators.len() as u16;
        let there = usize::from(cfg.nic) < self.devices.len();
        assert!(there, "NIC {} of {}, which has {}", cfg.nic, self.name, self.devices.len());
        let (kind, node, numa) = match cfg.who {
            Initiator::Cpu { core, numa } => (format!("core{core}"), NodeId(numa.into()), numa),
            Initiator::GpuBlock { gpu, block } => (
                format!("gpu{gpu}.block{block}"),
                self.cfg.gpu_nodes[usize::from(gpu)],
                self.pcie.socket_of(self.cfg.gpu_nodes[usize::from(gpu)]),
            ),
        };
        // Two programs on one core are two components all the same.
        let name = format!("{}/{kind}/rank{rank}", self.name);
        let id = engine.add_component(&name);
        let seed = engine.seed();
        let costs = self.costs_of(cfg.who);
        let stream = |used: bool, purpose| used.then(|| SimRng::stream(seed, &name, purpose));
        self.initiators.push(InitiatorState {
            id,
            who: cfg.who,
            nic: cfg.nic,
            poll: cfg.poll,
            node,
            numa,
            rank,
            program: Some(program),
            handles: Handles::default(),
            effects: VecDeque::new(),
            delay: Span::ZERO,
            activity: Activity::Scheduled,
            generation: 0,
            pending_steps: 1,
            will_step: true,
            changed: WaitSet::EMPTY,
            mmio_lines: 0,
            leaves_doorbell: false,
            ticket: 0,
            store_rng: stream(costs.store_delay.is_some(), "store-delay"),
            jitter_rng: stream(costs.jitter.is_some(), "jitter"),
            store_buffer: StoreBuffer::default(),
            stats: InitiatorStats::default(),
            barren: 0,
            idle_steps: 0,
            idle_polls: 0,
            idle: false,
            idle_since: Time::ZERO,
            bootstrap_seen: false,
        });
        let ev = HostEvent::Step { initiator: index, generation: 0 };
        engine.schedule(id, start, Class::Program, Event::Host(self.id, ev));
    }

    /// The NIC that an initiator's handle is of.
    pub(super) fn nic_of(&self, initiator: usize) -> &Nic {
        self.nic(self.initiators[initiator].nic.into())
    }

    pub(super) fn costs_of(&self, who: Initiator) -> &InitiatorCosts {
        match who {
            Initiator::Cpu { .. } => &self.cfg.cpu,
            Initiator::GpuBlock { .. } => &self.cfg.gpu,
        }
    }

    /// A NIC, from 0.
    ///
    /// # Panics
    /// When the host has not so many.
    pub fn nic(&self, n: usize) -> &Nic {
        &self.devices[n].nic
    }

    /// The NICs.
    pub fn nics(&self) -> impl Iterator<Item = &Nic> {
        self.devices.iter().map(|d| &d.nic)
    }

    /// All QPs with their indices, NIC by NIC.
    pub fn qps(&self) -> impl Iterator<Item = (u32, &NicQp)> {
        self.nics().flat_map(Nic::qps)
    }

    /// Page faults of regions with pages on demand.
    pub const fn page_faults(&self) -> PagingStats {
        self.regions.faults()
    }

    /// The PCIe tree.
    pub const fn pcie(&self) -> &PcieTree {
        &self.pcie
    }

    /// The configuration.
    pub const fn config(&self) -> &HostConfig {
        &self.cfg
    }

    /// Who runs the program of each initiator, its rank, and what it spent.
    pub fn initiators(&self) -> impl Iterator<Item = (Initiator, u32, &InitiatorStats)> {
        self.initiators.iter().map(|i| (i.who, i.rank, &i.stats))
    }

    /// The program with `rank`.
    pub fn program(&self, rank: u32) -> Option<&dyn SimProgram> {
        self.initiators.iter().find(|i| i.rank == rank)?.program.as_deref()
    }

    /// WQEs that are staged and not rung.
    pub fn unrung(&self) -> u64 {
        let staged = |i: &InitiatorState| {
            i.handles.qps.0.iter().flatten().map(|l| l.staged.len() as u64).sum::<u64>()
        };
        self.initiators.iter().map(staged).sum()
    }

    /// Lock waits of shared QPs: contended acquisitions and time waited.
    pub fn lock_waits(&self) -> (u64, Span) {
        let sum = |(n, t), l: &QpLock| (n + l.contended, t + l.waited);
        self.locks.values().fold((0, Span::ZERO), sum)
    }

    /// Locks of shared QPs for the report: QP, busy time, times taken, time waited.
    pub fn locks(&self) -> impl Iterator<Item = (Qpn, Span, u64, Span)> {
        self.locks.iter().filter_map(|((nic, qp), l)| {
            let qpn = self.nic((*nic).into()).qp(*qp)?.qpn;
            Some((qpn, l.busy, l.taken, l.waited))
        })
    }

    /// Whether every program is done; those of a dead host are.
    pub fn done(&self) -> bool {
        self.dead || self.initiators.iter().all(|i| matches!(i.activity, Activity::Done(_)))
    }

    /// Events pending that can change nothing by themselves: steps that were overtaken, and
    /// timers of the NIC, whether overtaken or not.
    pub fn idle_events(&self) -> usize {
        let overtaken = |i: &InitiatorState| i.pending_steps - u32::from(i.will_step);
        let steps: u32 = self.initiators.iter().map(overtaken).sum();
        (steps + self.nics().map(Nic::pending_timers).sum::<u32>()) as usize
    }

    /// Steps pending of programs that wait for a time, and have so often found nothing to do that
    /// they will find nothing at the next one, unless somebody else does something.
    pub fn idle_polls(&self) -> usize {
        let polls = |i: &&InitiatorState| i.will_step && i.idle_polls > IDLE_STEP_LIMIT;
        self.initiators.iter().filter(polls).count()
    }

    /// Steps pending that nothing has overtaken.
    pub fn steps_to_come(&self) -> usize {
        self.initiators.iter().filter(|i| i.will_step).count()
    }

    /// Programs that will step, by rank, and until when those wait that wait for a time. None that
    /// look again and again in vain.
    pub fn will_act(&self) -> impl Iterator<Item = (u32, Option<Time>)> {
        let will = self.initiators.iter().filter(|i| i.will_step && !i.looks_in_vain());
        will.map(|i| match i.activity {
            Activity::Waiting { until, .. } => (i.rank, until),
            _ => (i.rank, None),
        })
    }

    /// Steps pending of programs that look at times of their own and have found nothing often.
    pub fn vain_looks(&self) -> usize {
        self.initiators.iter().filter(|i| i.will_step && i.looks_in_vain()).count()
    }

    /// Whether no program will do anything by itself: each waits for what others bring, or has
    /// ended, which `told` is true of once everybody knows; and nothing of what they have done is
    /// still to take place.
    pub fn rests(&self, told: impl Fn(u32) -> bool) -> bool {
        let rests = |i: &InitiatorState| match i.activity {
            Activity::Waiting { .. } => !i.will_step || i.idle_polls > IDLE_STEP_LIMIT,
            Activity::Done(_) => told(i.rank),
            _ => false,
        };
        let idle = |i: &InitiatorState| rests(i) && i.effects.is_empty();
        self.late_stores == 0 && self.copies.is_idle() && self.initiators.iter().all(idle)
    }

    /// Whether a program has found nothing to do so often that it is worth asking whether
    /// anybody else will do something. Asked once in `IDLE_CHECK` steps: it looks at every QP.
    pub fn polls_idly(&self, initiator: u16) -> bool {
        let idle = self.initiators[usize::from(initiator)].idle_polls;
        idle > IDLE_STEP_LIMIT && idle.is_multiple_of(IDLE_CHECK)
    }

    /// Whether every program is done and nothing is under way in the host.
    pub fn quiet(&self) -> bool {
        self.dead || self.done() && self.pcie.in_flight() == 0 && self.nics().all(Nic::quiet)
    }

    /// What ended the run early, if something did.
    pub const fn fault(&self) -> Option<&StallReason> {
        self.fault.as_ref()
    }

    /// The host asks for a RESET of a QP: its slots are the host's again, but for those that are
    /// staged by other sharers.
    pub(super) fn give_back(&mut self, (nic, qp): (u8, u32)) {
        let staged = |i: &InitiatorState| {
            let its = |l: &&LocalQp| i.nic == nic && l.qp == qp;
            let of_qp = i.handles.qps.0.iter().flatten().filter(its);
            of_qp.map(|l| l.staged.iter().skip(l.ringing as usize)).fold((0, 0), |(n, b), wqes| {
                wqes.fold((n, b), |(n, b), (w, _)| (n + 1, b + u32::from(w.blocks)))
            })
        };
        let (used, blocks) =
            self.initiators.iter().map(staged).fold((0, 0), |(n, b), (m, c)| (n + m, b + c));
        if let Some(q) = self.devices[usize::from(nic)].nic.qp_mut(qp) {
            q.host_life += 1;
            q.sq.used = used;
            q.sq.used_blocks = blocks;
            q.rq.give_back_room();
        }
    }

    /// A NIC and its surroundings, for a call at `now`.
    pub(super) fn split<'a>(
        &'a mut self,
        s: &'a mut Shared,
        now: Time,
        nic: u8,
    ) -> (&'a mut Nic, Env<'a>) {
        let Device { nic, out, id } = &mut self.devices[usize::from(nic)];
        let env = Env {
            now,
            out,
            pcie: &mut self.pcie,
            pcie_out: &mut self.pcie_out,
            regions: &mut self.regions,
            packets: &mut s.packets,
            port: s.fabric.host_mut(self.id),
            fabric_out: &mut s.fabric_out,
            wakes: &mut self.wakes,
            traced: &mut s.traced,
            id: *id,
            llc: self.cfg.llc,
            timeline: &mut s.timeline,
        };
        (nic, env)
    }

    /// Whether an event that has come will find that it was overtaken: a timer with nothing due, a
    /// step for which something else came first.
    pub(crate) fn is_overtaken(&self, now: Time, ev: HostEvent) -> bool {
        match ev {
            HostEvent::Nic { nic, ev: NicEvent::Timer(qp) } => {
                !self.nic(usize::from(nic)).timer_is_due(now, qp)
            }
            HostEvent::Step { initiator, generation } => {
                self.initiators[usize::from(initiator)].generation != generation
            }
            _ => false,
        }
    }

    /// An event of a dead host: it does not take place, and is pending no more.
    pub fn forget(&mut self, ev: HostEvent) {
        match ev {
            HostEvent::Step { initiator, generation } => {
                let init = &mut self.initiators[usize::from(initiator)];
                init.pending_steps -= 1;
                init.will_step &= init.generation != generation;
            }
            HostEvent::Nic { nic, ev: NicEvent::Timer(_) } => {
                self.devices[usize::from(nic)].nic.forget_timer();
            }
            _ => {}
        }
    }

    /// Handles an event of this island. False: a wake-up or a timer that
    /// was overtaken.
    pub fn on_event(&mut self, s: &mut Shared, now: Time, ev: HostEvent) -> bool {
        match ev {
            HostEvent::Pcie(ev) => self.on_pcie(s, now, ev),
            HostEvent::Nic { nic, ev } => {
                if !self.on_nic(s, now, nic, ev) {
                    // An overtaken timer may have set itself anew.
                    self.flush(s);
                    return false;
                }
            }
            HostEvent::Step { initiator, generation } => {
                let init = &mut self.initiators[usize::from(initiator)];
                init.pending_steps -= 1;
                if init.generation != generation {
                    return false;
                }
                init.will_step = false;
                self.step(s, now, initiator);
            }
            HostEvent::Memory(ev) => self.on_memory(s, now, ev),
            HostEvent::Effect { initiator } => self.run_effects(s, now, initiator),
            HostEvent::StoreVisible { initiator, entry } => {
                self.store_visible(initiator, entry);
            }
        }
        self.settle(s, now);
        true
    }

    /// After each call of a room: what it wants to happen is scheduled, who waits is woken.
    pub(super) fn settle(&mut self, s: &mut Shared, now: Time) {
        self.flush(s);
        self.wake_all(s, now);
    }

    /// Hands what the rooms of the island want to happen to the engine.
    fn flush(&mut self, s: &mut Shared) {
        if self.cfg.instant || self.pcie.has_ended() {
            self.follow_up(s);
        }
        let host = self.id;
        for (nic, d) in (0..).zip(&mut self.devices) {
            let event = |ev| Event::Host(host, HostEvent::Nic { nic, ev });
            s.engine.schedule_all(d.id, &mut d.out, event);
        }
        for &(id, (kind, a, b)) in &s.traced {
            s.engine.trace(id, kind, a, b);
        }
        s.traced.clear();
        // Both are empty most of the time, and always on an instant host.
        if !self.pcie_out.is_empty() {
            let pcie = |ev| Event::Host(host, HostEvent::Pcie(ev));
            s.engine.schedule_all(self.pcie_id, &mut self.pcie_out, pcie);
        }
        if !self.memory_out.is_empty() {
            let memory = |ev| Event::Host(host, HostEvent::Memory(ev));
            s.engine.schedule_all(self.pcie_id, &mut self.memory_out, memory);
        }
        let port = s.port_ids[host.index()];
        s.schedule_fabric(port);
    }

    fn on_pcie(&mut self, s: &mut Shared, now: Time, ev: PcieEvent) {
        let done = self.pcie.on_event(now, ev, &mut self.pcie_out);
        while let Some(read) = self.pcie.take_at_memory() {
            self.at_memory(s, now, read);
        }
        if let Some(done) = done {
            self.transaction_ended(s, now, &done);
        }
    }

    /// A transaction of a NIC, or an MMIO write to one, has ended.
    pub(super) fn transaction_ended(&mut self, s: &mut Shared, now: Time, done: &Done) {
        if done.cause == PcieCause::Copy {
            return self.copy_moved(s, now, done);
        }
        let nic = self.nic_at(done.device);
        let (nic, mut env) = self.split(s, now, nic);
        nic.on_done(&mut env, done);
        if let Some((initiator, lines)) = Nic::doorbell_of(done) {
            self.mmio_done(s, now, initiator, lines);
        }
    }

    fn on_memory(&mut self, s: &mut Shared, now: Time, ev: MemoryEvent) {
        let done = self.pcie.memory_mut().on_event(now, ev, &mut self.memory_out);
        if let Some(done) = done {
            self.resume(s, done.tag as u16, Cause::Memory, now);
        }
    }

    /// The NIC at a place of the PCIe tree.
    pub(super) fn nic_at(&self, node: NodeId) -> u8 {
        self.nic_here(node).expect("only NICs are rung, and ask for something but copies")
    }

    /// The same, where a GPU may be there.
    pub(super) fn nic_here(&self, node: NodeId) -> Option<u8> {
        self.devices.iter().position(|d| d.nic.node() == node).map(|at| at as u8)
    }

    fn on_nic(&mut self, s: &mut Shared, now: Time, nic: u8, ev: NicEvent) -> bool {
        let (nic, mut env) = self.split(s, now, nic);
        nic.on_event(&mut env, ev)
    }

    /// The host is one of a node of so many, with a link into it behind that of its only NIC.
    pub(crate) fn join_node(&mut self, hosts: u32) {
        debug_assert_eq!(self.devices.len(), 1);
        self.devices[0].nic.join_node(hosts);
    }

    /// The NIC that takes what comes by a port: the only one that of the node, too.
    pub(super) fn nic_of_port(&self, port: PortId) -> u8 {
        port.0.min(self.devices.len() as u16 - 1) as u8
    }

    /// A packet is at a port.
    pub fn on_packet(&mut self, s: &mut Shared, now: Time, port: PortId, packet: PacketId) {
        let nic = self.nic_of_port(port);
        let (nic, mut env) = self.split(s, now, nic);
        nic.on_arrival(&mut env, packet);
        self.settle(s, now);
    }

    /// A packet that waited in the port leaves; its last bit at `left`.
    pub fn on_departure(&mut self, s: &mut Shared, now: Time, packet: PacketId, left: Time) {
        let Packet { desc, src_port, .. } = &s.packets[packet.0];
        if !self.dead && Nic::hears_departure(desc) {
            let nic = src_port.0 as u8;
            let (nic, mut env) = self.split(s, now, nic);
            nic.on_departure(&mut env, packet, left);
            self.flush(s);
        }
    }

    /// A port has room.
    pub fn on_tx_ready(&mut self, s: &mut Shared, now: Time, port: PortId) {
        let (nic, mut env) = self.split(s, now, port.0 as u8);
        nic.on_tx_ready(&mut env);
        self.settle(s, now);
    }

    /// A message of the out-of-band network.
    pub fn on_bootstrap(&mut self, s: &mut Shared, now: Time, from: u32, key: u64, bytes: &[u8]) {
        self.bootstrap.insert((from, key), bytes.into());
        self.wake_bootstrap(s, now);
    }

    /// A program has ended, and this host has heard of it. False: nobody waited.
    pub fn on_ended(&mut self, s: &mut Shared, now: Time) -> bool {
        let waits = |i: &InitiatorState| {
            let Activity::Waiting { on, .. } = i.activity else { return false };
            on.intersects(WaitSet::BOOTSTRAP)
        };
        let noticed = self.initiators.iter().any(waits);
        self.wake_bootstrap(s, now);
        noticed
    }

    pub(super) fn wake_bootstrap(&mut self, s: &mut Shared, now: Time) {
        for i in 0..self.initiators.len() {
            self.initiators[i].bootstrap_seen = true;
            self.wake(s, now, i as u16, WaitSet::BOOTSTRAP);
        }
    }

    // ---- waking ------------------------------------------------------------------------------

    fn wake_all(&mut self, s: &mut Shared, now: Time) {
        while let Some(w) = self.wakes.pop() {
            match w {
                Wake::Cq { nic, cq } => {
                    self.wake_cq(s, now, (nic, cq));
                }
                Wake::Async(owner) => self.wake(s, now, owner, WaitSet::EVENTS),
                Wake::Memory { addr, len } => self.wake_watchers(s, now, addr, len),
            }
        }
    }

    pub(super) fn wake_watchers(&mut self, s: &mut Shared, now: Time, addr: u64, len: u64) {
        for i in 0..self.initiators.len() {
            let mut set = WaitSet::EMPTY;
            for (j, w) in self.initiators[i].handles.watches.0.iter().enumerate() {
                if let Some(w) = w
                    && addr < w.addr + w.len
                    && w.addr < addr + len
                    && let Some(bit) = WaitSet::watch_index(j as u32)
                {
                    set = set.or(bit);
                }
            }
            if !set.is_empty() {
                let init = &mut self.initiators[i];
                init.changed = init.changed.or(set);
                self.wake(s, now, i as u16, set);
            }
        }
    }

    /// An entry has landed in a completion queue, or is shown again, or the queue is lost.
    fn wake_cq(&mut self, s: &mut Shared, now: Time, (nic, cq): (u8, u32)) {
        let Some(q) = self.devices[usize::from(nic)].nic.cq_mut(cq) else { return };
        let init = &self.initiators[usize::from(q.owner)];
        let index = init.handles.cqs.0.iter().position(|c| *c == Some(cq)).map(|i| i as u32);
        let Some((index, any)) = index.and_then(|i| Some((i, WaitSet::cq_index(i)?))) else {
            return;
        };
        let Activity::Waiting { on, .. } = init.activity else { return };
        let set = if (q.has_urgent() || q.lost) && on.only_solicited(index) { on } else { any };
        if !q.is_hidden() {
            let owner = q.owner;
            self.wake(s, now, owner, set);
        } else if on.intersects(set) {
            q.miss();
        }
    }

    /// A source of `set` has become ready now.
    fn wake(&mut self, s: &mut Shared, now: Time, initiator: u16, set: WaitSet) {
        let init = &self.initiators[usize::from(initiator)];
        let Activity::Waiting { on, since, .. } = init.activity else { return };
        if !on.intersects(set) {
            return;
        }
        let at = self.notice_time(initiator, now, since, on);
        self.schedule_step(s, initiator, at);
    }

    /// When a program that waits since `since` notices what became ready at `ready`: by the first
    /// look that sees it, or after an interrupt.
    fn notice_time(&mut self, initiator: u16, ready: Time, since: Time, on: WaitSet) -> Time {
        let init = &mut self.initiators[usize::from(initiator)];
        let who = init.who;
        let poll = init.poll;
        if ready <= since {
            return since;
        }
        let costs = self.costs_of(who);
        match poll {
            PollMode::Event => {
                let (interrupt, work) = (costs.interrupt, costs.interrupt_work);
                let init = &mut self.initiators[usize::from(initiator)];
                init.stats.interrupts += 1;
                init.stats.interrupt_work += work;
                init.stats.work += work;
                ready + interrupt
            }
            PollMode::Busy => {
                let polls = costs.poll_call * on.cq_indices().count() as u64;
                let watches = &self.initiators[usize::from(initiator)].handles.watches;
                let looks = on.watch_indices().filter_map(|w| watches.get(w)).map(|w| w.look);
                let look = looks.fold(polls, |sum, look| sum + look);
                let look = if look == Span::ZERO { costs.poll_call } else { look };
                let at = first_look(ready, since, look, costs.step);
                self.initiators[usize::from(initiator)].stats.spin += at.since(since);
                at
            }
        }
    }

    pub(super) fn schedule_step(&mut self, s: &mut Shared, initiator: u16, at: Time) {
        let host = self.id;
        let init = &mut self.initiators[usize::from(initiator)];
        init.generation = init.generation.wrapping_add(1);
        init.activity = Activity::Scheduled;
        (init.pending_steps, init.will_step) = (init.pending_steps + 1, true);
        let ev = HostEvent::Step { initiator, generation: init.generation };
        s.engine.schedule(init.id, at, Class::Program, Event::Host(host, ev));
    }

    // ---- stepping ----------------------------------------------------------------------------

    /// A program that polls busily looks at the clock too until the time comes that it waits for:
    /// nothing else has woken it.
    fn waited_in_vain(&mut self, i: usize, now: Time) {
        let init = &mut self.initiators[i];
        if let (Activity::Waiting { since, .. }, PollMode::Busy) = (&init.activity, init.poll) {
            init.stats.spin += now.since(*since);
        }
    }

    fn step(&mut self, s: &mut Shared, now: Time, initiator: u16) {
        let i = usize::from(initiator);
        self.waited_in_vain(i, now);
        let mut program = self.initiators[i].program.take().expect("a program that steps");
        self.initiators[i].changed = WaitSet::EMPTY;
        self.initiators[i].bootstrap_seen = false;
        self.initiators[i].delay = Span::ZERO;
        self.initiators[i].stats.steps += 1;
        let jitter = self.draw_jitter(i);
        let mut t = SimTransport::new(self, s, initiator, now, jitter);
        let next = catch_unwind(AssertUnwindSafe(|| program.step_on(&mut t)));
        let (end, active) = (t.local(), t.active());
        let acts_at = program.will_act_at();
        self.initiators[i].program = Some(program);
        let next = match next {
            Ok(next) => next,
            Err(cause) if cause.is::<CallBudgetSpent>() => {
                self.fault.get_or_insert(StallReason::CallBudget { rank: self.initiators[i].rank });
                Next::Done
            }
            Err(cause) => resume_unwind(cause),
        };
        self.initiators[i].stats.work += end.since(now);
        self.watch_progress(i, next, end, (active, acts_at));
        self.initiators[i].activity = Activity::Acting { next, end };
        if self.initiators[i].effects.is_empty() {
            self.finish_step(s, now, initiator);
        } else {
            self.schedule_effect(s, now, initiator);
        }
    }

    fn draw_jitter(&mut self, i: usize) -> Span {
        let who = self.initiators[i].who;
        let table = match who {
            Initiator::Cpu { .. } => &self.cfg.cpu.jitter,
            Initiator::GpuBlock { .. } => &self.cfg.gpu.jitter,
        };
        match (table, &mut self.initiators[i].jitter_rng) {
            (Some(table), Some(rng)) => table.draw(rng),
            _ => Span::ZERO,
        }
    }

    /// Finds programs that turn without doing anything. One that waits for a time turns no faster
    /// than it says; whether it waits in vain is a question about the whole world, unless it says
    /// when it will act by itself. `did`: whether it did anything, and when it will.
    fn watch_progress(&mut self, i: usize, next: Next, end: Time, did: (bool, Option<Time>)) {
        let (active, acts_at) = did;
        let acts = acts_at.is_some_and(|at| at > end);
        let rank = self.initiators[i].rank;
        let ready = match next {
            Next::Wait { on, .. } => self.ready_cq(i, on),
            _ => None,
        };
        let init = &mut self.initiators[i];
        init.idle = !active && !acts;
        let timed = matches!(next, Next::Wait { until: Some(until), .. } if until > end);
        (init.idle_steps, init.idle_polls) = match (active, timed) {
            (true, _) => (0, 0),
            (false, true) if acts => (0, 0),
            (false, true) => (0, init.idle_polls.saturating_add(1)),
            (false, false) => (init.idle_steps + 1, init.idle_polls),
        };
        init.barren = if active || ready.is_none() { 0 } else { init.barren + 1 };
        if init.idle_steps > IDLE_STEP_LIMIT {
            self.fault.get_or_insert(StallReason::IdleSteps { rank });
        } else if init.barren >= 3 {
            let cq = ready.expect("barren only with a ready queue");
            self.fault.get_or_insert(StallReason::Barren { rank, cq });
        }
    }

    /// Index of a completion queue in `on` that has entries.
    pub(super) fn ready_cq(&self, i: usize, on: WaitSet) -> Option<u32> {
        let nic = self.nic_of(i);
        on.cq_indices().find(|&c| {
            let cq = self.initiators[i].handles.cqs.get(c);
            let ready = |q: &CompletionQueue| match on.only_solicited(c) {
                true => q.is_urgent(),
                false => !q.is_empty(),
            };
            cq.and_then(|&c| nic.cq(c)).is_some_and(|q| ready(q) || q.lost)
        })
    }

    /// Every effect of the step has taken place: what comes next?
    pub(super) fn finish_step(&mut self, s: &mut Shared, now: Time, initiator: u16) {
        let i = usize::from(initiator);
        let Activity::Acting { next, end } = self.initiators[i].activity else { return };
        let end = (end + self.initiators[i].delay).max(now);
        match next {
            Next::Done => {
                self.initiators[i].activity = Activity::Done(end);
                self.announce_end(s, end, initiator);
            }
            Next::Again => {
                let cost = self.costs_of(self.initiators[i].who).step;
                let at = (end + cost).max(now + Span::from_ps(1));
                self.schedule_step(s, initiator, at);
            }
            Next::Wait { on, until } => {
                let init = &mut self.initiators[i];
                init.activity = Activity::Waiting { on, until, since: end };
                init.idle_since = if init.idle { init.idle_since } else { end };
                let ready = self.ready_cq(i, on).is_some()
                    || self.initiators[i].changed.intersects(on)
                    || on.intersects(WaitSet::EVENTS) && self.nic_of(i).has_async(initiator)
                    || on.intersects(WaitSet::BOOTSTRAP) && self.initiators[i].bootstrap_seen;
                if ready {
                    let at = end.max(now + Span::from_ps(1));
                    self.schedule_step(s, initiator, at);
                } else if let Some(until) = until {
                    self.schedule_deadline(s, initiator, until.max(end).max(now));
                }
            }
        }
    }

    /// A deadline keeps the initiator waiting: an earlier wake-up makes a newer generation.
    fn schedule_deadline(&mut self, s: &mut Shared, initiator: u16, at: Time) {
        let host = self.id;
        let init = &mut self.initiators[usize::from(initiator)];
        init.generation = init.generation.wrapping_add(1);
        (init.pending_steps, init.will_step) = (init.pending_steps + 1, true);
        let ev = HostEvent::Step { initiator, generation: init.generation };
        s.engine.schedule(init.id, at, Class::Program, Event::Host(host, ev));
    }
}
