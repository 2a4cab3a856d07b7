//! A run: islands, the fabric between them, the programs on them, and its end.

mod due;
mod endless;
mod faults;
mod postmortem;
mod report;
mod series;
mod watch;

use std::io;

use doorbell_core::units::{Span, Time};
use doorbell_core::verbs::Mtu;

pub use due::Due;
use faults::Faults;
use postmortem::Losses;
pub use postmortem::{LossPlace, Lost};
pub use report::{LinkUse, ResourceUse, RunReport, SwitchPortUse};
pub use series::{
    MAX_NUMBERS, Quantity, Recorder, Selection, SeriesConfig, SeriesUnit, Track, port_name,
};

use crate::capture::{Capture, CaptureSink};
use crate::engine::{ComponentId, Engine, EngineError, Out, Popped, Slab, Timeline, TraceHash};
use crate::event::{Event, HostEvent};
use crate::fabric::{
    ConfigError, Deadlock, Dropped, Fabric, FabricConfig, FabricEvent, HostNode, Outcome,
};
use crate::host::{Host, HostConfig, InitiatorConfig, MAX_NICS, Shared, SimProgram, StallReason};
use crate::nic::{Nic, NicEvent};
use crate::pcie::PcieConfigError;
use crate::wire::{HostId, Packet, PacketId, Packets};

/// What a run is made of.
#[derive(Clone, Debug)]
pub struct WorldConfig {
    /// Seed of every random stream and of the order of ties.
    pub seed: u64,
    /// Hosts, by number.
    pub hosts: Vec<HostConfig>,
    /// Network between them.
    pub fabric: FabricConfig,
    /// Largest path MTU of the ports.
    pub mtu: Mtu,
    /// One-way latency of the out-of-band network.
    pub bootstrap_latency: Span,
    /// Stages that the timeline keeps; 0: none.
    pub timeline: usize,
}

/// A configuration that cannot be built.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BuildError {
    /// In the fabric.
    Fabric(ConfigError),
    /// In a PCIe tree.
    Pcie(PcieConfigError),
    /// A host has not as many NICs as links; or none, or too many.
    Nics {
        /// The host.
        host: u32,
        /// Its NICs.
        nics: usize,
        /// Its links.
        links: usize,
    },
    /// A host of a node has several NICs.
    NicsInNode {
        /// The host.
        host: u32,
        /// Its NICs.
        nics: usize,
    },
}

impl std::fmt::Display for BuildError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Fabric(e) => e.fmt(f),
            Self::Pcie(e) => e.fmt(f),
            Self::Nics { host, nics, links } => write!(
                f,
                "host {host} has {nics} NICs and {links} links; each NIC needs one, and a host has \
                 1 to {MAX_NICS} NICs"
            ),
            Self::NicsInNode { host, nics } => write!(
                f,
                "host {host} of a node has {nics} NICs; a host with a link into its node has one: \
                 make a host of each"
            ),
        }
    }
}

impl std::error::Error for BuildError {}

/// How a run ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RunEnd {
    /// Every program is done and nothing is under way.
    Done,
    /// Nothing more will happen, and some program is not done.
    NoProgress(Vec<StallReason>),
    /// The time limit has come.
    TimeLimit,
    /// So many events have been handled, see [`World::bound_events`].
    EventLimit(u64),
    /// Time does not move on.
    Livelock(EngineError),
    /// Switches hold each other back in a circle.
    Deadlock(Deadlock),
}

/// A simulated world.
#[derive(Debug)]
pub struct World {
    hosts: Vec<Host>,
    shared: Shared,
    /// Time of the last event that changed something.
    reached: Time,
    /// Events that changed nothing: announcements of the end of a program that nobody waited for,
    /// and what a fault plan watches for in vain.
    unheard: u64,
    /// Events after which a run is not continued.
    most_events: u64,
    /// Searches for storms and deadlocks.
    searches: u64,
    /// Only timers are pending, and all of them were overtaken: there is no need to look again at
    /// every QP with each of them.
    nothing_due: bool,
    /// Timers that found something due while packets were under way.
    timers_due: u64,
    /// Hosts beyond the first that waited for the end of a program and heard of it by one event.
    retold: u64,
    /// Planned faults, if there are any.
    faults: Option<Box<Faults>>,
    /// Packets that the network lost, by sender.
    losses: Losses,
    /// The next search for pause storms and deadlocks is pending.
    watching: bool,
    /// What had been used when the last message of the set-up arrived: before the first doorbell.
    set_up: Option<RunReport>,
    /// Recorder of numbers over time, if there is one.
    series: Option<Box<Recorder>>,
    /// When it takes its next point; [`Time::MAX`] without one.
    point_at: Time,
    /// How many of the next events have been [looked at](Self::look_ahead).
    looked_at: usize,
}

impl World {
    /// Builds the world.
    ///
    /// # Errors
    /// See [`BuildError`].
    pub fn new(cfg: &WorldConfig) -> Result<Self, BuildError> {
        let mut engine = Engine::new(cfg.seed);
        let mut fabric = Fabric::new(&cfg.fabric, cfg.seed).map_err(BuildError::Fabric)?;
        fabric.let_nics_keep();
        let mut hosts = Vec::with_capacity(cfg.hosts.len());
        for (i, host) in cfg.hosts.iter().enumerate() {
            let nics = host.nic_nodes.len();
            let links = fabric.hosts().get(i).map_or(0, HostNode::nics);
            if nics != links || !(1..=MAX_NICS).contains(&nics) {
                return Err(BuildError::Nics { host: i as u32, nics, links });
            }
            let in_node = cfg.fabric.node_hosts > 0;
            if in_node && nics > 1 {
                return Err(BuildError::NicsInNode { host: i as u32, nics });
            }
            let host = Host::new(host, HostId(i as u32), cfg.mtu, &mut engine);
            let mut host = host.map_err(BuildError::Pcie)?;
            if in_node {
                host.join_node(cfg.fabric.node_hosts);
            }
            hosts.push(host);
        }
        let mut port_ids = Vec::new();
        for i in 0..fabric.hosts().len() {
            port_ids.push(engine.add_component(&format!("host{i}/port")));
        }
        for i in 0..fabric.switches().len() {
            port_ids.push(engine.add_component(&format!("switch{i}")));
        }
        let timeline = match cfg.timeline {
            0 => Timeline::disabled(),
            n => Timeline::with_capacity(n),
        };
        Ok(Self {
            shared: Shared {
                engine,
                packets: Packets::new(),
                fabric,
                port_ids,
                traced: Vec::new(),
                fabric_out: Out::new(),
                messages: Slab::new(),
                bootstrap_latency: cfg.bootstrap_latency,
                ranks: Vec::new(),
                ended: Vec::new(),
                timeline,
                capture: None,
                hosts: cfg.hosts.len() as u32,
            },
            hosts,
            reached: Time::ZERO,
            unheard: 0,
            most_events: u64::MAX,
            searches: 0,
            nothing_due: false,
            timers_due: 0,
            retold: 0,
            faults: None,
            losses: Losses::default(),
            watching: false,
            set_up: None,
            series: None,
            point_at: Time::MAX,
            looked_at: 0,
        })
    }

    /// Adds a program on an initiator of `host`; it steps first at `start`. Programs are ranked in
    /// the order in which they are added.
    pub fn add_program<P: SimProgram>(
        &mut self,
        host: HostId,
        on: InitiatorConfig,
        start: Time,
        program: P,
    ) -> u32 {
        let rank = self.shared.size();
        self.shared.ranks.push(host);
        self.shared.ended.push(false);
        let engine = &mut self.shared.engine;
        self.hosts[host.index()].add_program(on, rank, Box::new(program), start, engine);
        rank
    }

    /// Records from now on what a capture on each port would show.
    pub fn capture_to(&mut self, sink: Box<dyn CaptureSink>) {
        let encapsulations =
            self.hosts.iter().map(|h| h.nic(0).rc_config().encapsulation).collect();
        let capture = Capture::new(sink, &self.shared.fabric, encapsulations);
        self.shared.capture = Some(Box::new(capture));
    }

    /// Ends the recording of packets, if there is one.
    ///
    /// # Errors
    /// The first error of the sink.
    pub fn end_capture(&mut self) -> io::Result<()> {
        self.shared.capture.take().map_or(Ok(()), |mut capture| capture.finish())
    }

    /// Ends runs with [`RunEnd::EventLimit`] once so many events have been handled; without it
    /// there is no such limit. Time passes in work as well as in waiting: senders that repeat
    /// nearly everything in vain come to no time limit while anybody waits.
    pub const fn bound_events(&mut self, most: u64) {
        self.most_events = most;
    }

    /// Runs until every program is done and nothing is under way, until nothing can happen any
    /// more, until `limit`, or until so many events as are allowed.
    pub fn run(&mut self, limit: Time) -> RunEnd {
        self.arm_faults();
        self.arm_watch();
        loop {
            if self.only_faults_left() {
                return self.ended(limit);
            }
            if self.shared.engine.events() >= self.most_events {
                return RunEnd::EventLimit(self.most_events);
            }
            let (now, class, event) = match self.shared.engine.pop_by(limit) {
                Ok(Popped::Next(next)) => next,
                Ok(Popped::Later) => return self.cut_off(limit),
                Ok(Popped::Nothing) => return self.ended(limit),
                Err(e) => return RunEnd::Livelock(e),
            };
            self.looked_at = self.looked_at.saturating_sub(1);
            if self.looked_at == 0 {
                self.look_ahead();
            }
            match event {
                Event::Fabric(ev) => {
                    if self.on_network(now, ev) {
                        return self.no_progress();
                    }
                }
                Event::Watch => {
                    if let Some(deadlock) = self.watch(now) {
                        return RunEnd::Deadlock(deadlock);
                    }
                }
                event if is_timer(&event) && self.retries_for_ever(now, &event) => {
                    self.unheard += 1;
                    return self.ended(limit);
                }
                event if self.comes(now, class, event) => {
                    if now > self.point_at {
                        self.points_before(now, &event);
                    }
                    let unheard = self.unheard;
                    self.dispatch(now, event);
                    // What was heard may have set a deadline.
                    self.nothing_due &= self.unheard > unheard;
                    if self.stopped_by(event)
                        || is_idle(&self.hosts, &event) && self.only_polls_left()
                    {
                        return self.no_progress();
                    }
                }
                _ => self.unheard += 1,
            }
        }
    }

    /// Reads what the next events will read of their packets. Where many are under way none of it
    /// is in a cache when its event comes, and memory answers many questions in the time of one.
    /// Decides nothing.
    fn look_ahead(&mut self) {
        let Shared { engine, packets, .. } = &self.shared;
        let (mut events, mut read) = (0, 0);
        for event in engine.at_hand().take(LOOK_AHEAD) {
            events += 1;
            let Event::Fabric(FabricEvent::Arrive { node, packet, .. }) = *event else { continue };
            let at_host = node.index() < self.hosts.len();
            read ^= packets.glance(packet.0, at_host);
        }
        std::hint::black_box(read);
        self.looked_at = events;
    }

    /// Whether the island of an event has found that its programs cannot go on. An event changes
    /// its own island only; all are asked where a planned fault is not of one.
    fn stopped_by(&self, event: Event) -> bool {
        let host = match event {
            Event::Host(host, _) | Event::Bootstrap { host, .. } => host.index(),
            Event::Fabric(ev) => ev.node().index(),
            Event::Watch => return false,
            Event::Ended { .. } | Event::Fault(_) => {
                return self.hosts.iter().any(|h| h.fault().is_some());
            }
        };
        self.hosts.get(host).is_some_and(|h| h.fault().is_some())
    }

    /// The limit has come. Deadlines that were overtaken may still be pending; they mean nothing,
    /// and a world that has nothing else had come to its end before.
    fn cut_off(&mut self, limit: Time) -> RunEnd {
        self.come_to_rest(limit);
        let looks: usize = self.hosts.iter().map(Host::vain_looks).sum();
        let stood = self.shared.engine.pending() == self.idle_events() + looks;
        // What a fault keeps beyond the limit, and nobody waits for, is no reason to wait longer.
        let kept = self.kept_packets();
        if self.is_over_but_for(|packet| kept.contains(&packet)) {
            return RunEnd::Done;
        }
        if stood && self.vain_retries().is_some() { self.ended(limit) } else { RunEnd::TimeLimit }
    }

    /// Credit that nobody waits for is no event, but the network is not at rest before it has come.
    fn come_to_rest(&mut self, limit: Time) {
        if let Some(last) = self.shared.fabric.last_expected(limit) {
            self.reached = self.reached.max(last);
        }
    }

    /// Whether every program is done and nothing is under way. Packets that a dead host has, or
    /// that are for one, do not count.
    fn is_over(&self) -> bool {
        self.is_over_but_for(|_| false)
    }

    /// As [`is_over`](Self::is_over), packets aside that `kept` is true of.
    fn is_over_but_for(&self, kept: impl Fn(u32) -> bool) -> bool {
        let gone = |h: HostId| self.hosts[h.index()].is_dead();
        let mut packets = self.shared.packets.iter();
        let lost = packets.all(|(id, p)| gone(p.src) || gone(p.dst) || kept(id));
        lost && self.hosts.iter().all(Host::quiet)
    }

    fn ended(&mut self, limit: Time) -> RunEnd {
        self.come_to_rest(limit);
        if self.hosts.iter().all(Host::done) { RunEnd::Done } else { self.no_progress() }
    }

    /// Events pending that can change nothing by themselves.
    fn idle_events(&self) -> usize {
        let watch = usize::from(self.watching);
        self.hosts.iter().map(Host::idle_events).sum::<usize>() + watch
    }

    /// Whether nothing can happen any more but that programs look again and again, each having
    /// looked often, at what nobody changes.
    fn only_polls_left(&self) -> bool {
        let polls: usize = self.hosts.iter().map(Host::idle_polls).sum();
        self.shared.engine.pending() == self.idle_events() + polls && self.vain_retries().is_some()
    }

    fn no_progress(&self) -> RunEnd {
        let mut reasons = Vec::new();
        for host in &self.hosts {
            host.stall_reasons(&mut reasons);
        }
        reasons.sort_by_key(StallReason::rank_of_cause);
        RunEnd::NoProgress(reasons)
    }

    fn dispatch(&mut self, now: Time, event: Event) {
        let s = &mut self.shared;
        if let Some(capture) = &mut s.capture {
            capture.advance(now);
        }
        match event {
            Event::Host(host, ev) => {
                if !self.hosts[host.index()].on_event(s, now, ev) {
                    self.unheard += u64::from(is_timer(&event));
                    return;
                }
            }
            Event::Bootstrap { host, message } => {
                let (from, key, bytes, left) = &mut s.messages[message];
                let (from, key, bytes) = (*from, *key, bytes.clone());
                *left -= 1;
                if *left == 0 {
                    s.messages.remove(message);
                }
                // Asked only then: it looks at every NIC.
                let rung = |n: &Nic| n.stats.doorbells + n.stats.blueflames > 0;
                let setting_up =
                    s.messages.is_empty() && !self.hosts.iter().flat_map(Host::nics).any(rung);
                self.hosts[host.index()].on_bootstrap(s, now, from, key, &bytes);
                if setting_up {
                    self.set_up = Some(self.report());
                }
            }
            Event::Ended { rank } => {
                s.ended[rank as usize] = true;
                let heard = self.hosts.iter_mut().map(|h| u64::from(h.on_ended(s, now))).sum();
                match heard {
                    0 => {
                        self.unheard += 1;
                        return;
                    }
                    // Each host that was told counts.
                    n => self.retold += n - 1,
                }
            }
            Event::Fabric(_) | Event::Watch => unreachable!("the loop of the run takes them"),
            Event::Fault(ev) => {
                if !self.on_fault(now, ev) {
                    self.unheard += 1;
                    return;
                }
            }
        }
        self.reached = now;
    }

    /// An event of the network: most are, and they are handled without asking what the others are
    /// asked. True: it has stopped the host whose port it is of.
    fn on_network(&mut self, now: Time, ev: FabricEvent) -> bool {
        if now > self.point_at {
            self.points_before(now, &Event::Fabric(ev));
        }
        let s = &mut self.shared;
        if let Some(capture) = &mut s.capture {
            capture.advance(now);
        }
        let pauses = matches!(ev, FabricEvent::Refresh { .. } | FabricEvent::PauseEnd { .. });
        // An overtaken one means nothing, and a host may go on pausing when there is nothing left
        // to pause.
        if pauses && (s.fabric.is_overtaken(now, ev) || self.is_over()) {
            self.unheard += 1;
            return false;
        }
        self.on_fabric(now, ev);
        self.reached = now;
        // What was heard may have set a deadline.
        self.nothing_due = false;
        self.stopped_by(Event::Fabric(ev))
    }

    fn on_fabric(&mut self, now: Time, ev: FabricEvent) {
        match self.faults {
            Some(_) => self.on_faulty_fabric(now, ev),
            None => self.pass(now, ev),
        }
    }

    /// The fabric handles an event, and what it answers goes where it belongs.
    fn pass(&mut self, now: Time, ev: FabricEvent) {
        let s = &mut self.shared;
        let outcome = s.fabric.on_event(now, ev, &mut s.packets, &mut s.fabric_out);
        let id = s.port_ids[ev.node().index()];
        s.schedule_fabric(id);
        if ev.may_start()
            && let Some(host) = self.hosts.get_mut(ev.node().index())
            && let Some((packet, left)) = s.fabric.host_mut(HostId(ev.node().0)).take_started()
        {
            host.on_departure(s, now, packet, left);
        }
        match outcome {
            Outcome::Nothing => {}
            Outcome::Delivered(d) => {
                if let Some(capture) = &mut s.capture {
                    capture.received(now, d.host, d.port, &s.packets[d.packet.0]);
                }
                let host = &mut self.hosts[d.host.index()];
                if s.packets[d.packet.0].corrupt().is_some() {
                    host.corrupt_packet(s, d.port, d.packet);
                } else {
                    host.on_packet(s, now, d.port, d.packet);
                }
                if s.fabric.host_mut(d.host).settle(now, &mut s.fabric_out) {
                    s.schedule_fabric(id);
                }
            }
            Outcome::Dropped(d) => self.dropped(now, id, d),
            Outcome::TxReady { host, port } => {
                if !self.hosts[host.index()].is_dead() {
                    self.hosts[host.index()].on_tx_ready(s, now, port);
                }
            }
        }
    }

    /// The node `id` has dropped a packet.
    fn dropped(&mut self, now: Time, id: ComponentId, d: Dropped) {
        let s = &mut self.shared;
        s.engine.trace(id, DROPPED, u64::from(d.port.0), u64::from(d.wire_bytes));
        let PacketId(packet) = d.packet;
        let packet = s.packets.remove(packet);
        let place = LossPlace::Switch { node: d.node, port: d.port };
        self.losses.add(now, &packet, place, d.cause);
        if let Some(capture) = &mut s.capture {
            capture.dropped(now, &d, &packet);
        }
    }

    /// Time of the last event that changed something: overtaken deadlines do not count.
    pub const fn now(&self) -> Time {
        self.reached
    }

    /// Events handled. An announcement that nobody waited for is none: a run that is cut between
    /// the end of the last program and its announcement has the same number. Neither is a timer
    /// that found nothing due, nor what a fault plan adds to the queue without an effect.
    pub fn events(&self) -> u64 {
        self.shared.engine.events() + self.retold - self.unheard
    }

    /// Searches so far for pause storms and deadlocks, which are no events: the time that they
    /// take grows with the network.
    pub const fn searches(&self) -> u64 {
        self.searches
    }

    /// Hash of everything that happened.
    pub fn trace_hash(&self) -> TraceHash {
        self.shared.engine.trace_hash()
    }

    /// What is still under way, by name and number; empty when everything that was started has
    /// ended. Something that stays here after the end of a run is lost, not late.
    pub fn left_over(&self) -> Vec<(String, u64)> {
        let mut left = vec![("packets".to_owned(), self.shared.packets.len() as u64)];
        for (i, host) in self.hosts.iter().enumerate() {
            let host_left = [
                ("PCIe transactions", host.pcie().in_flight() as u64),
                ("NIC jobs", host.nics().map(Nic::in_flight).sum()),
            ];
            left.extend(host_left.map(|(name, n)| (format!("host {i}: {name}"), n)));
        }
        left.retain(|(_, n)| *n > 0);
        left
    }

    /// The recorder of single messages.
    pub fn timeline(&self) -> &Timeline {
        &self.shared.timeline
    }

    /// The hosts.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// The network.
    pub fn fabric(&self) -> &Fabric {
        &self.shared.fabric
    }

    /// A packet that is under way.
    pub fn packet(&self, PacketId(id): PacketId) -> Option<&Packet> {
        self.shared.packets.get(id)
    }

    /// The program with `rank`, if it is a `P`.
    pub fn program<P: SimProgram>(&self, rank: u32) -> Option<&P> {
        let program: &dyn SimProgram = self.hosts.iter().find_map(|h| h.program(rank))?;
        program.as_any().downcast_ref()
    }
}

/// Whether it is a timer of a NIC.
const fn is_timer(event: &Event) -> bool {
    matches!(event, Event::Host(_, HostEvent::Nic { ev: NicEvent::Timer(_), .. }))
}

/// Whether it is the step of a program that has looked often and found nothing, and it is time to
/// ask whether anything can still come.
fn is_idle(hosts: &[Host], event: &Event) -> bool {
    match *event {
        Event::Host(host, HostEvent::Step { initiator, .. }) => {
            hosts[host.index()].polls_idly(initiator)
        }
        _ => false,
    }
}

/// Events that are looked at together before they come. More: more at once, and the first of what
/// was read may be out of the nearest cache again.
const LOOK_AHEAD: usize = 16;

/// Trace kind of a packet that a port dropped: port, wire bytes.
const DROPPED: u32 = 64;
