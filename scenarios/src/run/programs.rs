//! From the programs of a scenario file to programs on initiators.

mod aggregate;
mod all_to_all;
mod config;
mod flows;
mod lanes;
mod needs;
mod script;
mod sparse;
mod transfer;

pub(crate) use aggregate::{has_one_group, plan_of};
pub(crate) use flows::{FlowShape, epoch, flow_shape};
pub(crate) use sparse::sparse_of;

use std::borrow::Cow;

use doorbell_core::transport::{Initiator, MemKind};
use doorbell_core::units::{Span, Time};
use doorbell_sim::engine::SimRng;
use doorbell_sim::host::{InitiatorConfig, PollMode};
use doorbell_sim::wire::HostId;
use doorbell_sim::world::World;

use super::{Point, RunError};
use crate::format::{self, Program, ProgramKind, Scenario, SrqShare};
use crate::workloads::{Proxy, Results, Sharing, Workload};

/// What a program does for the scenario's program.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Role {
    /// It makes the messages, and what it measures counts.
    Sender,
    /// It posts for senders.
    Proxy,
    /// It is the other side.
    Peer,
}

/// A program that was put on an initiator.
#[derive(Copy, Clone, Debug)]
pub struct Placed {
    /// Index of the scenario's program.
    pub program: usize,
    /// Its rank.
    pub rank: u32,
    /// Host.
    pub host: u32,
    /// NIC that it uses.
    pub nic: u8,
    /// What it is.
    pub role: Role,
}

impl Placed {
    /// What it measured.
    pub fn results<'w>(&self, world: &'w World) -> Option<&'w Results> {
        world.program::<Workload>(self.rank).map(Workload::results)
    }
}

/// A program with its initiator, ready to run on any back end.
#[derive(Clone, Debug)]
pub struct Planned {
    /// What it is for.
    pub placed: Placed,
    /// Who runs it, and how it waits.
    pub on: InitiatorConfig,
    /// The program.
    pub what: Workload,
}

/// Whose time rounds of several hosts follow.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Clock {
    /// One for all hosts, as in the simulator: all begin at the same instant.
    Common,
    /// Each host its own, as on hardware: who is connected begins.
    #[cfg_attr(not(feature = "hw"), expect(dead_code, reason = "only hardware has them"))]
    OfEach,
}

/// Decides which programs a point has, rank by rank. Peers have `deadline` to find each other.
///
/// # Errors
/// What the profile cannot give.
pub fn plan(point: &Point, deadline: Span, clock: Clock) -> Result<Vec<Planned>, RunError> {
    let point = &with_fallback(point);
    let mut planner = Planner {
        point,
        deadline,
        clock,
        cores: vec![0; point.scenario.topology.hosts.value() as usize],
        blocks: vec![0; point.scenario.topology.hosts.value() as usize],
        planned: Vec::new(),
        there: vec![0; point.scenario.topology.hosts.value() as usize],
        groups: Vec::new(),
    };
    planner.groups = groups(&point.scenario);
    for (index, program) in point.scenario.program.iter().enumerate() {
        planner.program(index, program)?;
    }
    planner.shared_peers()?;
    Ok(planner.planned)
}

/// The point as it is run: a core posts where the device takes no doorbell of a GPU, and the
/// program names that as its fallback. Without one the scenario was refused.
fn with_fallback(point: &Point) -> Cow<'_, Point> {
    let mut point = Cow::Borrowed(point);
    for i in 0..point.scenario.program.len() {
        if let Some(who) = point.scenario.program[i].falls_back(&point.profile) {
            point.to_mut().scenario.program[i].initiator = who;
        }
    }
    point
}

/// Senders whose messages are taken from one shared receive queue by one program.
#[derive(Debug)]
struct Group {
    /// Host and NIC of the receiver.
    at: (u32, u8),
    /// The one program that has it, if programs share none.
    program: Option<usize>,
    /// Rank of the receiver.
    rank: u32,
    /// Index of the program, and rank of each sender.
    senders: Vec<(usize, u32)>,
}

/// The groups of a scenario, in the order of their first programs. Their receivers have the last
/// ranks.
fn groups(s: &Scenario) -> Vec<Group> {
    let Some(srq) = &s.srq else { return vec![] };
    let mut groups: Vec<Group> = vec![];
    let mut ranks = 0;
    for (index, p) in s.program.iter().enumerate() {
        let hosts = p.hosts.value() as u32;
        let senders = hosts * p.threads.value() as u32;
        if p.initiator == format::Initiator::CpuProxy {
            ranks += senders + 2;
            continue;
        }
        if !(p.peer_receives() && p.has_responder()) {
            ranks += senders + if p.share_qp { hosts } else { senders };
            continue;
        }
        ranks += senders;
        let at = (p.peer.value() as u32, p.nic_of_peer());
        let program = (srq.share == SrqShare::Program).then_some(index);
        if !groups.iter().any(|g| g.at == at && g.program == program) {
            groups.push(Group { at, program, rank: 0, senders: vec![] });
        }
    }
    (ranks..).zip(&mut groups).for_each(|(rank, g)| g.rank = rank);
    groups
}

/// How long simulated peers may take to find each other.
const DEADLINE: Span = Span::from_ms(1000);

/// Puts all programs of a point on initiators of a world.
///
/// # Errors
/// What the profile cannot give.
pub fn place(point: &Point, world: &mut World) -> Result<Vec<Placed>, RunError> {
    let mut streams: Vec<SimRng> = (0..point.scenario.program.len())
        .map(|i| SimRng::stream(point.seed, &format!("program {i}"), "start"))
        .collect();
    let add = |p: Planned| {
        let spread = point.scenario.program[p.placed.program].start_spread;
        let late = match (spread, p.placed.role) {
            (Some(spread), Role::Sender) => {
                Span::from_ps(streams[p.placed.program].below(spread.0.as_ps()))
            }
            _ => Span::ZERO,
        };
        let rank = world.add_program(HostId(p.placed.host), p.on, Time::ZERO + late, p.what);
        debug_assert_eq!(rank, p.placed.rank);
        p.placed
    };
    Ok(plan(point, DEADLINE, Clock::Common)?.into_iter().map(add).collect())
}

/// Initiators of a host that a handle can name.
const MAX_INITIATORS: usize = 128;

struct Planner<'a> {
    point: &'a Point,
    deadline: Span,
    clock: Clock,
    /// Cores used, by host.
    cores: Vec<u16>,
    /// GPU blocks used, by host.
    blocks: Vec<u16>,
    planned: Vec<Planned>,
    /// Programs on each host.
    there: Vec<usize>,
    /// Shared receive queues.
    groups: Vec<Group>,
}

fn bad(index: usize, field: &str, message: impl Into<String>, help: &str) -> RunError {
    RunError::BadInput {
        path: format!("program.{index}.{field}"),
        message: message.into(),
        help: help.to_owned(),
    }
}

impl Planner<'_> {
    /// Rank of the next program.
    fn next(&self) -> u32 {
        self.planned.len() as u32
    }

    fn program(&mut self, index: usize, p: &Program) -> Result<(), RunError> {
        if p.kind == ProgramKind::Flows {
            return self.flows(index, p);
        }
        if p.kind == ProgramKind::Aggregate {
            return self.aggregate(index, p);
        }
        if p.kind == ProgramKind::AllToAll {
            return self.all_to_all(index, p);
        }
        if p.kind == ProgramKind::Transfer {
            return self.transfer(index, p);
        }
        if p.initiator == format::Initiator::CpuProxy {
            return self.proxied(index, p);
        }
        let (threads, hosts) = (p.threads.value() as u32, p.hosts.value() as u32);
        let (nic, peer) = (p.nic.value() as u8, (p.peer.value() as u32, p.nic_of_peer()));
        let group = self.group_of(index, p);
        // Senders first, then one peer for each that has queue pairs of its own.
        let first = self.next();
        let answered = if p.share_qp { 1 } else { threads };
        for h in 0..hosts {
            let (host, base) = (p.host.value() as u32 + h, first + h * threads);
            for t in 0..threads {
                let on = self.initiator(index, p, (host, nic))?;
                let own = first + hosts * threads + h * answered + if p.share_qp { 0 } else { t };
                let to = group.map_or(own, |g| self.groups[g].rank);
                let sharing = match (p.share_qp && threads > 1, t) {
                    (false, _) => Sharing::Own,
                    (true, 0) => Sharing::Owner { sharers: (base + 1..base + threads).collect() },
                    (true, _) => Sharing::Attached { owner: base },
                };
                let bypass = u64::from(t) + p.bypass.value() >= p.threads.value();
                let sender = self.sender(index, p, to, (sharing, bypass))?;
                self.add((index, host, Role::Sender), on, sender)?;
            }
        }
        for (h, t) in (0..hosts).flat_map(|h| (0..answered).map(move |t| (h, t))) {
            let sender = first + h * threads + t;
            if let Some(g) = group {
                self.groups[g].senders.push((index, sender));
                continue;
            }
            // Half of a round trip is half of two like ways: the other side is the same kind.
            let on = match p.kind {
                ProgramKind::PingPong => self.initiator(index, p, peer)?,
                _ => self.core(peer, None, peer_poll_mode(p)),
            };
            let answer = self.peer(index, p, sender, 1)?;
            self.add((index, peer.0, Role::Peer), on, answer)?;
        }
        Ok(())
    }

    /// The group whose receiver takes the messages of a program.
    fn group_of(&self, index: usize, p: &Program) -> Option<usize> {
        if !(p.peer_receives() && p.has_responder()) {
            return None;
        }
        let at = (p.peer.value() as u32, p.nic_of_peer());
        let takes = |g: &Group| g.at == at && g.program.is_none_or(|i| i == index);
        self.groups.iter().position(takes)
    }

    /// The receivers of shared queues.
    fn shared_peers(&mut self) -> Result<(), RunError> {
        for g in std::mem::take(&mut self.groups) {
            debug_assert_eq!(g.rank, self.next());
            let what = self.shared_responder(&g.senders)?;
            let on = self.core(g.at, None, PollMode::Busy);
            self.add((g.senders[0].0, g.at.0, Role::Peer), on, what)?;
        }
        Ok(())
    }

    /// GPU blocks that produce, a core that posts for all of them, and the peer.
    fn proxied(&mut self, index: usize, p: &Program) -> Result<(), RunError> {
        let threads = p.threads.value() as u32;
        let host = (p.host.value() as u32, p.nic.value() as u8);
        let peer = (p.peer.value() as u32, p.nic_of_peer());
        let producers: Vec<u32> = (self.next()..self.next() + threads).collect();
        let proxy = self.next() + threads;
        for source in 0..threads {
            let on = self.block(index, host)?;
            let producer = self.producer_of(index, p, proxy, source as u16)?;
            self.add((index, host.0, Role::Sender), on, producer.into())?;
        }
        let numa = self.numa(index, p)?;
        let on = self.core(host, Some(numa), poll_mode(p));
        let config = self.proxy(index, p, proxy + 1, producers)?;
        self.add((index, host.0, Role::Proxy), on, Proxy::new(config).into())?;
        let on = self.core(peer, None, PollMode::Busy);
        let answer = self.peer(index, p, proxy, threads)?;
        self.add((index, peer.0, Role::Peer), on, answer)
    }

    fn add(
        &mut self,
        (program, host, role): (usize, u32, Role),
        on: InitiatorConfig,
        what: Workload,
    ) -> Result<(), RunError> {
        let there = &mut self.there[host as usize];
        if *there == MAX_INITIATORS {
            let text = format!("more than {MAX_INITIATORS} cores and GPU blocks on host {host}");
            let help = "a handle names no more: lower `threads`, or use another host";
            return Err(bad(program, "threads", text, help));
        }
        *there += 1;
        let placed = Placed { program, rank: self.next(), host, nic: on.nic, role };
        self.planned.push(Planned { placed, on, what });
        Ok(())
    }

    /// A core that uses a NIC, on a socket of its own or on the NIC's.
    fn core(
        &mut self,
        (host, nic): (u32, u8),
        numa: Option<u8>,
        poll: PollMode,
    ) -> InitiatorConfig {
        let numa = numa.unwrap_or_else(|| self.near(nic));
        let core = self.cores[host as usize];
        self.cores[host as usize] += 1;
        InitiatorConfig { who: Initiator::Cpu { core, numa }, poll, nic }
    }

    fn block(&mut self, index: usize, (host, nic): (u32, u8)) -> Result<InitiatorConfig, RunError> {
        if self.point.profile.gpu.count == 0 {
            let help = "name a profile with a GPU, or set \"gpu.count\"";
            return Err(bad(index, "initiator", "the profile has no GPU", help));
        }
        let block = self.blocks[host as usize];
        self.blocks[host as usize] += 1;
        let gpu = self.gpu(index);
        let who = Initiator::GpuBlock { gpu, block };
        Ok(InitiatorConfig { who, poll: PollMode::Busy, nic })
    }

    fn initiator(
        &mut self,
        index: usize,
        p: &Program,
        at: (u32, u8),
    ) -> Result<InitiatorConfig, RunError> {
        match p.initiator {
            format::Initiator::Gpu => self.block(index, at),
            format::Initiator::Cpu | format::Initiator::CpuProxy => {
                let numa = self.numa(index, p)?;
                Ok(self.core(at, Some(numa), poll_mode(p)))
            }
        }
    }

    /// The GPU of a program.
    fn gpu(&self, index: usize) -> u8 {
        self.point.scenario.program[index].gpu.value() as u8
    }

    /// Socket of a NIC.
    fn near(&self, nic: u8) -> u8 {
        self.point.scenario.topology.nic_numa(nic)
    }

    /// Another socket than that of a NIC.
    fn far(&self, nic: u8) -> u8 {
        u8::from(self.near(nic) == 0)
    }

    fn numa(&self, index: usize, p: &Program) -> Result<u8, RunError> {
        let nic = p.nic.value() as u8;
        match p.numa {
            format::Numa::Local => Ok(self.near(nic)),
            format::Numa::Remote if self.point.profile.memory.sockets < 2 => {
                let help = "leave `numa` out, or set \"memory.sockets\" = 2";
                Err(bad(index, "numa", "the profile has one socket", help))
            }
            format::Numa::Remote => Ok(self.far(nic)),
        }
    }

    /// Memory of a host, seen from a NIC.
    fn memory(
        &self,
        index: usize,
        field: &str,
        (nic, m): (u8, format::Memory),
    ) -> Result<MemKind, RunError> {
        match m {
            format::Memory::Host => Ok(MemKind::Host { numa: self.near(nic) }),
            format::Memory::HostRemote if self.point.profile.memory.sockets < 2 => {
                let help = "use \"host\", or set \"memory.sockets\" = 2";
                Err(bad(index, field, "the profile has one socket", help))
            }
            format::Memory::HostRemote => Ok(MemKind::Host { numa: self.far(nic) }),
            format::Memory::Gpu if self.point.profile.gpu.count == 0 => {
                let help = "use \"host\", or name a profile with a GPU";
                Err(bad(index, field, "the profile has no GPU", help))
            }
            format::Memory::Gpu => Ok(MemKind::Gpu { gpu: self.gpu(index) }),
        }
    }
}

fn poll_mode(p: &Program) -> PollMode {
    match p.poll {
        format::Poll::Busy => PollMode::Busy,
        format::Poll::Event => PollMode::Event,
    }
}

fn peer_poll_mode(p: &Program) -> PollMode {
    match p.peer_poll {
        format::PeerPoll::Busy => PollMode::Busy,
        format::PeerPoll::Event | format::PeerPoll::Solicited => PollMode::Event,
    }
}
