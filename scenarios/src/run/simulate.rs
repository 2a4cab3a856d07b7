//! The simulator as a [`Runner`].

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use doorbell_core::policy::aggregate::AggregateError;
use doorbell_core::policy::initiator::ProxyError;
use doorbell_core::transport::CreateError;
use doorbell_core::units::{Span, Time};
use doorbell_core::verbs::{Opcode, QpState, RetryCnt, RnrRetry};
use doorbell_sim::capture::CaptureSink;
use doorbell_sim::fabric::{ConfigError, DropCause, FabricConfig};
use doorbell_sim::fault::FaultUse;
use doorbell_sim::host::{Host, HostConfig, InitiatorStats, StallReason};
use doorbell_sim::nic::{Nic, NicQp, WQEBB};
use doorbell_sim::wire::{HostId, PortId};
use doorbell_sim::world::{BuildError, Due, Recorder, RunEnd, SwitchPortUse, World, WorldConfig};

use super::figures::{Member, by_name, group_metrics};
use super::mistakes::mistake;
use super::port_counters::port_counters;
use super::programs::{Placed, Role, place};
use super::{
    Direction, Exit, ExitKind, LatencyRecorder, Metric, Note, NoteKind, Outcome, PcieBytes, Point,
    ResourceUse, RunError, Runner, hardware, network,
};
use super::{
    congestion, credits, deaths, drops, early, effective, exchanges, fallback, faults, fetches,
    flow_figures, head_of_line, limits, moves, pauses, ports, receives, series, slow_nic, sums,
    switches, tap, targets, timeline, tuning, waiting, watch,
};
use crate::format::{HostModel, NicPlace, Noise, Op, Program, ProgramKind, QpKind, Scenario};
use crate::report::PcapNg;
use crate::workloads::{Failure, Results};

/// Stages that the timeline recorder keeps: enough for the warm-up of any scenario that asks for
/// one message.
const TIMELINE_STAGES: usize = 1 << 16;

/// Share of its time from which a resource counts as the limit, in parts per million.
const LIMITING_PPM: u128 = 800_000;

/// Output ports of switches that are resources, each with its name. Networks up to this size have
/// them all.
const MAX_SWITCH_PORTS: usize = 256;

/// Runs points on the simulator.
#[derive(Copy, Clone, Debug, Default)]
pub struct Simulator;

impl Runner for Simulator {
    fn run(&self, point: &Point) -> Result<Outcome, RunError> {
        simulate(point, build(config(point)?)?, None).0
    }

    fn run_captured(
        &self,
        point: &Point,
        out: Box<dyn Write>,
    ) -> Result<(Outcome, io::Result<()>), RunError> {
        let world = build(config(point)?)?;
        let (outcome, written) = simulate(point, world, Some(Box::new(PcapNg::new(out))));
        Ok((outcome?, written))
    }
}

/// Runs points on the simulator, in worlds that the caller has changed: a congestion control of
/// one's own, a host that is unlike the others, a network that no key describes.
#[derive(Copy, Clone, Debug, Default)]
pub struct SimulatorWith<F>(pub F);

impl<F: Fn(&mut WorldConfig)> Runner for SimulatorWith<F> {
    fn run(&self, point: &Point) -> Result<Outcome, RunError> {
        let mut config = config(point)?;
        (self.0)(&mut config);
        simulate(point, build(config)?, None).0
    }
}

/// Runs a point in its world, which is captured if there is a sink for it; the second result is how
/// that went.
fn simulate(
    point: &Point,
    mut world: World,
    sink: Option<Box<dyn CaptureSink>>,
) -> (Result<Outcome, RunError>, io::Result<()>) {
    let taps = tap::start(&point.scenario.record, sink, &mut world);
    let placed = match place(point, &mut world) {
        Ok(placed) => placed,
        Err(error) => return (Err(error), Ok(())),
    };
    if let Err(error) = faults::arm(&point.scenario, &mut world) {
        return (Err(error), Ok(()));
    }
    series::start(&point.scenario.record, &mut world);
    world.bound_events(point.scenario.run.events.value());
    let end = world.run(Time::ZERO + point.scenario.run.limit.0);
    let written = world.end_capture();
    let recorder = world.end_series();
    let mut outcome = collect(point, &world, &placed, &end, recorder.as_ref());
    if let (Some(taps), Ok(outcome)) = (taps, &mut outcome) {
        taps.report(outcome);
    }
    (outcome, written)
}

fn config(point: &Point) -> Result<WorldConfig, RunError> {
    let s = &point.scenario;
    let bad =
        |w: network::Wrong| RunError::BadInput { path: w.path, message: w.message, help: w.help };
    let fabric = network::network_of(s, &point.profile).map_err(bad)?;
    let hosts = hosts(point, &fabric);
    Ok(WorldConfig {
        seed: point.seed,
        hosts,
        fabric,
        mtu: hardware::max_mtu(&point.profile),
        bootstrap_latency: point.profile.port.bootstrap_latency,
        timeline: if s.record.timeline { TIMELINE_STAGES } else { 0 },
    })
}

fn build(config: WorldConfig) -> Result<World, RunError> {
    World::new(&config).map_err(|e| {
        let least = match &e {
            BuildError::Fabric(ConfigError::BufferTooSmall { node, needed, .. }) => {
                network::least_buffer(&config.fabric, *node, (*needed).into())
            }
            _ => None,
        };
        let (path, help) = match least {
            Some(bytes) => ("topology.buffer", format!("at least {bytes}B")),
            None => ("topology", "change the topology or the profile".to_owned()),
        };
        RunError::BadInput { path: path.into(), message: e.to_string(), help }
    })
}

/// The hosts of a network, each with a NIC at every link.
fn hosts(point: &Point, fabric: &FabricConfig) -> Vec<HostConfig> {
    let (s, profile) = (&point.scenario, &point.profile);
    let make = |nics: usize| {
        let mut places = s.topology.nic.clone();
        places.resize(nics, NicPlace::default());
        let mut host = match s.run.host {
            HostModel::Full => hardware::host_with(profile, s.run.noise == Noise::On, &places),
            HostModel::Ideal => hardware::ideal_host(profile, &places),
        };
        host.rc.congestion = congestion::settings(&s.congestion);
        if s.run.host == HostModel::Ideal {
            // An ideal host has nothing between its scheduler and the wire. What is scheduled ahead
            // goes out in the order of posting and at the port's rate: the queue pairs of a host
            // would not take turns, nor keep to the rates of a control.
            host.nic.tx_buffer =
                host.rc.wire_bytes(Opcode::RcRdmaWriteOnlyImm, s.qp.mtu.0.0 as u32);
        }
        host.nic.pkeys = s.topology.pkeys.iter().map(|key| key.0).collect();
        host
    };
    let mut made: BTreeMap<usize, HostConfig> = BTreeMap::new();
    let counts = network::nic_counts(fabric);
    counts.into_iter().map(|n| made.entry(n).or_insert_with(|| make(n)).clone()).collect()
}

/// What an instance of a program does, as messages have it.
const fn role_word(role: Role) -> &'static str {
    match role {
        Role::Sender => "requester",
        Role::Proxy => "proxy",
        Role::Peer => "responder",
    }
}

/// What a program's failure means for the run.
fn failure(placed: &Placed, f: &Failure) -> Option<RunError> {
    let path = |field: &str| format!("program.{}{field}", placed.program);
    let bad = |field: &str, help: &str| {
        Some(RunError::BadInput {
            path: path(field),
            message: f.to_string(),
            help: help.to_owned(),
        })
    };
    match f {
        Failure::Create(CreateError::Limit { field: "max_qp" | "max_cq", .. }) => {
            let help = "fewer `qps`, `threads` or programs, or raise the limit of the profile \
                        under [settings]: \"nic.max_qp\", \"nic.max_cq\"";
            bad("", help)
        }
        Failure::Create(_) => {
            bad("", "ask for less in [qp], or raise the limit of the profile under [settings]")
        }
        Failure::Stage(_) | Failure::Modify(_) | Failure::Memory(_) | Failure::Config(_) => {
            bad("", "change the program so that the verbs allow it")
        }
        Failure::Proxy(ProxyError::Cq(_)) => bad("", "raise `qp.cq_depth`, or leave it out"),
        Failure::PostRecv(_) => bad("", "post fewer receives at a time, or raise `qp.rq_depth`"),
        Failure::Aggregate(
            AggregateError::Create(_)
            | AggregateError::Config(_)
            | AggregateError::Memory(_)
            | AggregateError::Modify(_),
        ) => bad("", "change the program so that the verbs allow it"),
        Failure::OwnRegion { .. } | Failure::PeerRegion { .. } => bad(".size", "smaller messages"),
        _ => None,
    }
}

fn collect(
    point: &Point,
    world: &World,
    placed: &[Placed],
    end: &RunEnd,
    recorder: Option<&Recorder>,
) -> Result<Outcome, RunError> {
    let mut out = Outcome {
        trace_hash: world.trace_hash().to_string(),
        sim_time: world.now().since(Time::ZERO),
        events: world.events(),
        ..Outcome::default()
    };
    let failures = failures(point, world, placed)?;
    let all: Vec<(&Placed, &Results)> =
        placed.iter().filter_map(|p| Some((p, p.results(world)?))).collect();
    let limit = point.scenario.run.limit.0;
    out.exit = exit(end, &failures, (world, &point.scenario, limit), &receives::unmet(point, &all));
    let (first, last) = program_metrics(point, world, &all, &mut out);
    flow_figures::collect(point, world, &all, &mut out);
    let members = || all.iter().map(|(p, r)| (p.program, (p.role, *r)));
    sums::collect(point, members(), &mut out);
    sums::one_group(point, &mut out);
    sums::byte_bounds(point, world, &mut out);
    exchanges::collect(point, members(), &mut out);
    tuning::collect(point, &all, &mut out);
    host_metrics(world, &mut out);
    queue_metrics(world, &mut out);
    moves::moves(world, &all, &mut out);
    moves::cpu_time(world, &all, &mut out);
    receives::metrics(world, &all, &mut out);
    congestion::metrics(world, &mut out);
    switch_links(world, &mut out);
    resources(world, busy_until(world, last).since(first), &mut out);
    let starving = credits::starvation(point, world, &mut out);
    oversize(world, &mut out);
    switches::collect(point, world, &mut out);
    early::collect(point, world, &mut out);
    drops::collect(point, world, &mut out);
    slow_nic::collect(&point.scenario, world, &mut out);
    credits::limiting(world, starving, LIMITING_PPM, last.since(first), &mut out);
    unreliable(point, world, &all, (first, last), &mut out);
    oracles(world, &mut out);
    fallback::collect(point, &mut out);
    limits::collect(world, point, &all, last.since(first), &mut out);
    head_of_line::collect(&point.scenario, world, &all, &mut out);
    pauses::collect(&point.scenario, world, last.since(first), &mut out);
    receives::lost_completions(world, &mut out);
    receives::cq_rule(&point.scenario, &mut out);
    faults::collect(world, &mut out);
    deaths::collect(world, point, *end != RunEnd::Done, &mut out);
    waiting::collect(world, &mut out);
    limits::timers(world, first, &mut out);
    limits::send_queue(point, &all, last.since(first), &mut out);
    fetches::collect(world, point, last.since(first), &mut out);
    watch::collect(world, &point.scenario, &mut out);
    targets::collect(&point.scenario, world, &mut out);
    ports::collect(world, &mut out);
    let table = |r| series::collect(point, r, placed, world);
    out.series = recorder.map(table).transpose()?;
    out.effective = effective::values(point, world, placed);
    if point.scenario.record.timeline {
        draw_timeline(point, world, placed, &mut out);
    }
    Ok(out)
}

/// What went wrong in the programs, a line for each.
///
/// # Errors
/// What is a mistake of the file.
fn failures(point: &Point, world: &World, placed: &[Placed]) -> Result<Vec<String>, RunError> {
    let mut failures = Vec::new();
    for p in placed {
        let results = p.results(world);
        if let Some(error) = results.and_then(|r| mistake(point, world, p, r)) {
            return Err(error);
        }
        if let Some(f) = results.and_then(|r| r.failure.as_ref()) {
            if let Some(error) = failure(p, f) {
                return Err(error);
            }
            failures.push(format!("{}: {f}", who(p)));
        }
        if let Some(wrong) = results.and_then(Results::wrong_rounds) {
            failures.push(format!("{}: {wrong}", who(p)));
        }
    }
    Ok(failures)
}

/// A program in words.
fn who(p: &Placed) -> String {
    let (program, rank, role, host) = (p.program, p.rank, role_word(p.role), p.host);
    format!("program {program} (rank {rank}, {role} on host {host})")
}

fn draw_timeline(point: &Point, world: &World, placed: &[Placed], out: &mut Outcome) {
    out.timeline = Some(timeline::rows(point, world, placed));
    let mut wire = LatencyRecorder::new();
    timeline::ready_to_wire(world, placed).iter().for_each(|s| wire.record(*s));
    if let Some(summary) = wire.summary() {
        out.latencies.insert("wire".into(), summary);
    }
}

/// Packets that the fabric dropped, as the first lines of what went wrong.
fn losses(world: &World) -> String {
    let mut text = String::new();
    for (i, switch) in world.fabric().switches().iter().enumerate() {
        for cause in DropCause::ALL {
            let n = switch.dropped().of(cause).packets;
            if n > 0 {
                text += &format!(
                    "switch {i} dropped {} ({})\n",
                    deaths::plural(n, "packet"),
                    cause.name()
                );
            }
        }
    }
    let lost = world.fabric().dropped();
    let planned =
        [DropCause::Fault, DropCause::LinkDown, DropCause::PeerDead, DropCause::SwitchReboot];
    for cause in planned {
        let n = lost.of(cause).packets;
        if n > 0 {
            text += &format!(
                "planned faults took {} from links ({})\n",
                deaths::plural(n, "packet"),
                cause.name()
            );
        }
    }
    text
}

/// What raising the limit of the run brings: the time at which something happens again, if the run
/// stood still when it was cut off.
fn raise_limit(world: &World, limit: Span) -> String {
    let still = |at: Time| at.since(world.now()).as_ps() > limit.as_ps() / STILL;
    let Some((at, due)) = world.next_due().filter(|(at, _)| *at > world.now() && still(*at)) else {
        return "; raise run.limit or ask for less".to_owned();
    };
    let what = match due {
        Due::Fault => ", when a planned fault begins or ends".to_owned(),
        Due::Timer { host, qpn, rnr: true } => {
            format!(", when {} tries again what found no receive", deaths::qp_name(host, qpn))
        }
        Due::Timer { host, qpn, rnr: false } => {
            format!(", when the timer of {} expires", deaths::qp_name(host, qpn))
        }
        Due::Program { rank } => format!(", when program {rank} goes on"),
        Due::Other => String::new(),
    };
    let at = Metric::time(at.since(Time::ZERO)).text();
    format!("; nothing happens before {at}{what}: raise run.limit above that, or ask for less")
}

/// A run stands still if nothing happens for this part of its limit.
const STILL: u64 = 20;

/// Packets that faults still keep at the limit, a line for each fault.
fn still_held(world: &World) -> String {
    let uses = world.fault_uses().into_iter().filter(|u| u.held > 0);
    let line =
        |u: FaultUse| format!("\nfault \"{}\" ({}) still holds {} packets", u.id, u.kind, u.held);
    uses.map(line).collect()
}

/// QPs that were refused for want of a receive more often than any `rnr_retry` with a limit allows,
/// a line for each.
fn refused(world: &World) -> String {
    let qps = (0..).zip(world.hosts()).flat_map(|(host, h)| h.qps().map(move |(_, q)| (host, q)));
    let most = u32::from(RnrRetry::MAX_CODE);
    let refused = qps.filter_map(|(host, q)| {
        let s = q.requester.as_ref().filter(|r| r.refused_without_limit())?.standing();
        (s.rnr_retries > most).then_some((host, q, s.rnr_retries))
    });
    let line = |(host, q, n): (u32, &NicQp, u32)| {
        format!(
            "\n{} was told {n} times since its last progress that host {}, QP {} has no receive, \
             and rnr_retry {most} is without limit: post receives before it sends",
            deaths::qp_name(host, q.qpn),
            q.peer.0,
            q.attr.dest_qpn.value()
        )
    };
    refused.map(line).collect()
}

/// QPs that have resent more often than any `retry_cnt` with a limit allows, a line for each.
fn resending(world: &World) -> String {
    let qps = (0..).zip(world.hosts()).flat_map(|(host, h)| h.qps().map(move |(_, q)| (host, q)));
    let retries =
        |(host, q): (u32, &NicQp)| Some((host, q.qpn, q.requester.as_ref()?.standing().retries));
    let endless = qps.filter_map(retries).filter(|(.., n)| *n > RetryCnt::MAX_CODE.into());
    let line = |(host, qpn, n)| {
        format!(
            "\n{} has resent {n} times since its last progress, and retry_cnt {} is without \
             limit in this profile: while nothing answers it does so for ever, whatever run.limit \
             and run.events are",
            deaths::qp_name(host, qpn),
            RetryCnt::MAX_CODE
        )
    };
    endless.map(line).collect()
}

fn exit(
    end: &RunEnd,
    failures: &[String],
    (world, scenario, limit): (&World, &Scenario, Span),
    unmet: &[String],
) -> Exit {
    let dead = faults::dead_hosts(scenario, world);
    let no_progress = |reasons: &[StallReason]| {
        let stalls = reasons.iter().map(StallReason::to_string);
        // Nothing happens any more: what waits for each other now does so for ever.
        let circle = world.fabric().deadlock(world.now(), Span::ZERO, &BTreeSet::new());
        let circle = circle.iter().map(ToString::to_string);
        let lines: Vec<_> = circle.chain(unmet.iter().cloned()).chain(stalls).collect();
        losses(world) + &lines.join("\n") + &dead
    };
    match end {
        _ if !failures.is_empty() => {
            let reason = failures.join("\n") + &dead;
            Exit { kind: ExitKind::Violation, reason }
        }
        RunEnd::Done => Exit::default(),
        RunEnd::NoProgress(reasons) => {
            Exit { kind: ExitKind::NoProgress, reason: no_progress(reasons) }
        }
        RunEnd::TimeLimit => {
            let endless = resending(world);
            // To raise it helps what has an end.
            let raise = if endless.is_empty() { raise_limit(world, limit) } else { String::new() };
            let reason = format!(
                "the time limit of the run was reached (`run.limit`, {}; the last event was at \
                 {}){raise}{}{endless}{}{dead}",
                Metric::time(limit).text(),
                Metric::time(world.now().since(Time::ZERO)).text(),
                still_held(world),
                refused(world)
            );
            Exit { kind: ExitKind::NoProgress, reason }
        }
        RunEnd::EventLimit(most) => {
            let mut more = resending(world);
            if more.is_empty() {
                more = ": raise run.events, or ask for less. Packets that are sent again and \
                        again do that"
                    .to_owned();
            }
            more += &refused(world);
            let what = format!("{most} events were handled and the run had not ended{more}");
            Exit { kind: ExitKind::NoProgress, reason: losses(world) + &what }
        }
        RunEnd::Deadlock(d) => {
            Exit { kind: ExitKind::NoProgress, reason: losses(world) + &d.to_string() }
        }
        RunEnd::Livelock(e) => Exit { kind: ExitKind::NoProgress, reason: e.to_string() },
    }
}

/// Metrics of the programs; returns when the senders began and ended.
fn program_metrics(
    point: &Point,
    world: &World,
    all: &[(&Placed, &Results)],
    out: &mut Outcome,
) -> (Time, Time) {
    let senders = || all.iter().filter(|(p, _)| p.role == Role::Sender).map(|(_, r)| r);
    let first = senders().filter_map(|r| r.first).min().unwrap_or(Time::ZERO);
    let last = senders().filter_map(|r| r.last).max().unwrap_or(world.now());
    let stats: BTreeMap<u32, InitiatorStats> = world
        .hosts()
        .iter()
        .flat_map(|h| h.initiators())
        .map(|(_, rank, stats)| (rank, *stats))
        .collect();
    let members = all.iter().map(|(p, results)| {
        let spent = (p.role, stats.get(&p.rank).copied().unwrap_or_default());
        (p.program, ((p.role, *results), spent))
    });
    for (prefix, group) in by_name(point, members) {
        let (members, spent): (Vec<Member<'_>>, Vec<(Role, InitiatorStats)>) =
            group.into_iter().unzip();
        post_metrics(&prefix, &spent, out);
        group_metrics(&prefix, &members, out);
    }
    (first, last)
}

/// What posting and polling cost those who post.
fn post_metrics(prefix: &str, group: &[(Role, InitiatorStats)], out: &mut Outcome) {
    let mut put = |name: &str, m| out.metrics.insert(format!("{prefix}{name}"), m);
    let stats = || group.iter().filter(|(role, _)| *role != Role::Peer).map(|(_, s)| s);
    let count = |f: fn(&InitiatorStats) -> u64| stats().map(f).sum::<u64>();
    let time = |f: fn(&InitiatorStats) -> Span| stats().map(f).fold(Span::ZERO, |a, b| a + b);
    let (posted, rings) = (count(|s| s.wqes), count(|s| s.rings));
    let post = time(|s| s.post);
    put("post_cost", Metric::time(Span::from_ps(post.as_ps() / posted.max(1))));
    put("wqes_per_ring", Metric::ratio(posted, rings));
    put("blocked", Metric::time(time(|s| s.blocked)));
    put("polls", Metric::count(count(|s| s.polls)));
    put("polls_empty", Metric::count(count(|s| s.empty_polls)));
}

/// All NICs.
fn nics(world: &World) -> impl Iterator<Item = &Nic> {
    world.hosts().iter().flat_map(Host::nics)
}

fn host_metrics(world: &World, out: &mut Outcome) {
    let mut sum = |name: &str, n: u64| *out.counters.entry(name.to_owned()).or_default() += n;
    let (mut doorbells, mut blueflames, mut wqes, mut wire) = (0, 0, 0, 0);
    let (mut posted, mut unrung) = (0, 0);
    let (mut steps, mut interrupts) = (0u64, 0);
    let (mut lock_waits, mut lock_waited) = (0, Span::ZERO);
    for (h, host) in world.hosts().iter().enumerate() {
        for nic in host.nics() {
            let s = nic.stats;
            doorbells += s.doorbells;
            blueflames += s.blueflames;
            wqes += s.wqes;
            posted += nic.wqes_posted();
            port_counters(world, HostId(h as u32), nic).for_each(|(name, n)| sum(name, n));
            sum("wqe_fetches", s.wqe_fetches);
            sum("wqe_refetches", s.wqe_refetches);
            sum("wqe_blocks_fetched", s.wqe_blocks);
            sum("qp_context_reads", s.context_reads);
            sum("cqes", s.cqes);
            sum("tx_packets", s.tx_packets);
            sum("tx_acks", s.tx_acks);
            sum("rx_packets", s.rx_packets);
            let port = world.fabric().tx_port(HostId(h as u32), nic.port());
            wire += port.counters(world.now()).sent.bytes;
        }
        unrung += host.unrung();
        for (_, _, i) in host.initiators() {
            steps += i.steps;
            interrupts += i.interrupts;
        }
        let (n, t) = host.lock_waits();
        lock_waits += n;
        lock_waited += t;
    }
    let dropped = world.fabric().dropped();
    for cause in DropCause::ALL {
        sum(cause.name(), dropped.of(cause).packets);
    }
    let mut put = |name: &str, m| out.metrics.insert(name.to_owned(), m);
    put("doorbells", Metric::count(doorbells + blueflames));
    put("blueflames", Metric::count(blueflames));
    put("mmio_writes", Metric::count(doorbells + blueflames));
    put("wqes_posted", Metric::count(posted));
    put("wqes_executed", Metric::count(wqes));
    put("wqes_unrung", Metric::count(unrung));
    put("wire_bytes", Metric::bytes(wire));
    put("interrupts", Metric::count(interrupts));
    put("program_steps", Metric::count(steps));
    put("lock_waits", Metric::count(lock_waits));
    put("lock_waited", Metric::time(lock_waited));
}

/// How traffic spreads over links between switches, each direction counted by itself. Networks
/// without such links have no such metrics.
fn switch_links(world: &World, out: &mut Outcome) {
    let fabric = world.fabric();
    let hosts = fabric.hosts().len();
    let ports = fabric.switches().iter().flat_map(|s| {
        (0..s.ports() as u16).map(|p| s.egress(PortId(p))).filter(|e| e.peer().0.index() >= hosts)
    });
    let sent: Vec<u64> = ports.map(|e| e.counters(world.now()).sent.bytes).collect();
    let Some(most) = sent.iter().max() else { return };
    let used = sent.iter().filter(|bytes| **bytes > 0).count() as u64;
    let mut put = |name: &str, m| out.metrics.insert(name.to_owned(), m);
    put("switch_links", Metric::count(sent.len() as u64));
    put("switch_links_used", Metric::count(used));
    put("switch_link_bytes_max", Metric::bytes(*most));
}

/// Names the cause where small messages pass and large ones time out.
fn oversize(world: &World, out: &mut Outcome) {
    let count = world.fabric().dropped().of(DropCause::Oversize).packets;
    if count > 0 {
        let text = "packets that were larger than the MTU of a link on their way: nobody tells the \
                    sender, and only what fits passes. Lower `qp.mtu`, or raise the link's `mtu`";
        let (name, text) = ("oversize".to_owned(), text.to_owned());
        out.notes.push(Note { kind: NoteKind::Warning, name, text, count });
    }
}

/// States and fills of queues, and asynchronous events.
fn queue_metrics(world: &World, out: &mut Outcome) {
    let mut sum = |name: &str, n: u64| *out.counters.entry(name.to_owned()).or_default() += n;
    let (mut in_error, mut cq_fill, mut reads, mut rings) = (0, 0, 0, 0);
    for (h, host) in world.hosts().iter().enumerate() {
        let mut here = 0;
        for (_, q) in host.qps() {
            in_error += u64::from(q.state == QpState::Err);
            reads = reads.max(q.stats.rd_atomic_peak.into());
            here += u64::from(q.caps.sq_blocks.unwrap_or(0)) * u64::from(WQEBB);
        }
        rings += here;
        out.metrics.insert(format!("host{h}.sq_memory"), Metric::bytes(here));
        for (kind, n) in host.nics().flat_map(Nic::async_events) {
            sum(&format!("async_{}", kind.as_str_name().to_ascii_lowercase()), n);
        }
        let queues = host.nics().flat_map(Nic::completion_queues);
        let fill = queues.map(|q| q.high_water).max();
        cq_fill = cq_fill.max(fill.unwrap_or(0).into());
    }
    let mut put = |name: &str, n| out.metrics.insert(name.to_owned(), Metric::count(n));
    put("qps_in_error", in_error);
    put("cq_fill_max", cq_fill);
    put("rd_atomic_max", reads);
    out.metrics.insert("sq_memory".to_owned(), Metric::bytes(rings));
}

/// End of the time in which resources could have been busy. What a queue pair sends again until it
/// dies comes after the last message that was measured.
fn busy_until(world: &World, last: Time) -> Time {
    let dead = |host: &Host| host.qps().any(|(_, q)| q.state == QpState::Err);
    if world.hosts().iter().any(dead) { world.now().max(last) } else { last }
}

/// Output ports of switches that carried something; of large networks, the busiest.
fn switch_ports(mut ports: Vec<SwitchPortUse>, of: Span, out: &mut Outcome) {
    ports.retain(|p| p.served > 0);
    ports.sort_by_key(|p| (Reverse(p.busy), p.switch, p.port));
    for p in ports.into_iter().take(MAX_SWITCH_PORTS) {
        let SwitchPortUse { busy, served, waited, .. } = p;
        let (name, of) = (limits::port_name(&p), of.max(busy));
        out.resources.push(ResourceUse { name, busy, of, served, waited });
    }
}

fn resources(world: &World, duration: Span, out: &mut Outcome) {
    let report = world.report_after_set_up();
    switch_ports(report.switch_ports, duration, out);
    for r in report.resources {
        // What is sent or received behind the last completion that was measured keeps a resource
        // busy beyond the measured time: all of it, and no more.
        let of = (duration * u64::from(r.units.max(1))).max(r.busy);
        let name = format!("host{}.{}", r.host, r.name);
        let (served, waited) = (r.served, r.waited);
        out.resources.push(ResourceUse { name, busy: r.busy, of, served, waited });
    }
    let key = |r: &ResourceUse| {
        let of = u128::from(r.of.as_ps()).max(1);
        u128::from(r.busy.as_ps()) * 1_000_000 / of
    };
    out.resources.sort_by(|a, b| key(b).cmp(&key(a)).then_with(|| a.name.cmp(&b.name)));
    let busiest = out.resources.first().filter(|r| key(r) >= LIMITING_PPM);
    out.limiting = busiest.map(|r| r.name.clone());
    for l in report.links {
        out.pcie.push(PcieBytes {
            link: format!("host{}.{}", l.host, l.link),
            direction: if l.down { Direction::Down } else { Direction::Up },
            cause: l.cause.name().to_owned(),
            bytes: l.bytes,
            tlps: l.tlps,
        });
    }
}

/// Unreliable services: what arrived, not what was sent, is the throughput; and losses are said.
fn unreliable(
    point: &Point,
    world: &World,
    all: &[(&Placed, &Results)],
    (first, last): (Time, Time),
    out: &mut Outcome,
) {
    let delivered = nics(world).map(|n| n.stats.rx_payload).sum::<u64>();
    out.metrics.insert("delivered_bytes".into(), Metric::bytes(delivered));
    if point.scenario.qp.kind == QpKind::Rc {
        return;
    }
    // The last bytes arrive after the sender has seen its last completion.
    let arrived = nics(world).map(Nic::last_progress).max();
    let span = arrived.unwrap_or(last).max(last).since(first);
    out.metrics.insert("throughput".into(), Metric::rate(delivered, span));
    let lost: u64 = DropCause::ALL
        .map(DropCause::name)
        .into_iter()
        .chain(["rx_dropped", "rx_icrc_encapsulated"])
        .filter_map(|name| out.counters.get(name))
        .sum();
    let messages = messages_lost(point, all);
    let found = out.counters.entry("messages_lost".to_owned()).or_default();
    *found = messages.max(*found);
    if lost > 0 {
        let of = match *found {
            0 => String::new(),
            n => format!(
                "{n} messages that their senders saw complete did not come (counter \
                 `messages_lost`): "
            ),
        };
        let text = format!(
            "{of}packets were sent and not delivered: an unreliable service tells nobody; \
             `messages` and `message_rate` count what was sent, `throughput` and \
             `delivered_bytes` what arrived"
        );
        let name = "lost-packets".to_owned();
        out.notes.push(Note { kind: NoteKind::Warning, name, text, count: lost });
    }
}

/// Messages of an unreliable service that their senders saw complete and no receive tells of, also
/// where the receiver died before it could count. WRITEs tell nobody, and a script's receiver may
/// end before its sender: of them nothing is known.
fn messages_lost(point: &Point, all: &[(&Placed, &Results)]) -> u64 {
    let counts = |p: &Program| {
        use ProgramKind::{Bandwidth, Latency, MessageRate, Produce, RequestReply};
        let takes = matches!(p.op, Op::Send | Op::SendImm | Op::SendInv | Op::WriteImm);
        let kind = matches!(p.kind, Bandwidth | Latency | MessageRate | Produce | RequestReply);
        takes && kind
    };
    // A receiver of several programs tells of all of them.
    if !point.scenario.program.iter().all(counts) {
        return 0;
    }
    let sum = |role: Role, of: fn(&Results) -> u64| -> u64 {
        all.iter().filter(|(p, _)| p.role == role).map(|(_, r)| of(r)).sum()
    };
    let came = sum(Role::Peer, |r| r.received - r.data.repeated);
    sum(Role::Sender, |r| r.messages).saturating_sub(came)
}

/// Findings of the oracles that watch every run.
fn oracles(world: &World, out: &mut Outcome) {
    let (mut unordered, mut stale, mut stale_payloads, mut in_use) = (0, 0, 0, 0);
    let mut torn = 0;
    for host in world.hosts() {
        in_use += host.nics().map(|n| n.stats.regions_in_use).sum::<u64>();
        for (_, q) in host.qps() {
            unordered += q.stats.unordered_rings;
            stale += q.stats.stale_wqes;
            torn += q.stats.torn_wqes;
            stale_payloads += q.stats.stale_payloads;
        }
    }
    out.metrics.insert("unordered_rings".into(), Metric::count(unordered));
    out.metrics.insert("stale_wqes".into(), Metric::count(stale));
    out.metrics.insert("torn_wqes".into(), Metric::count(torn));
    let mut note = |name: &str, count: u64, text: &str| {
        if count > 0 {
            let (name, text) = (name.to_owned(), text.to_owned());
            out.notes.push(Note { kind: NoteKind::Warning, name, text, count });
        }
    };
    note(
        "unordered-ring",
        unordered,
        "rings whose WQE stores the initiator had not ordered before the doorbell: fence before \
         ringing, or the NIC may read stale WQEs",
    );
    note("stale-wqe", stale, "WQEs that the NIC read before the initiator's stores had landed");
    note(
        "torn-wqe",
        torn,
        "WQEs of which the NIC read a part before the rest had landed: each ends with \
         LOC_QP_OP_ERR",
    );
    note("stale-payload", stale_payloads, "payload that the NIC read before it was stored");
    note(
        "region-in-use",
        in_use,
        "work requests that named a region when it was deregistered: wait for their completions \
         first, or they end with an error",
    );
    let watching = [
        "unordered-ring",
        "stale-wqe",
        "torn-wqe",
        "stale-payload",
        "region-in-use",
        "byte-balance",
        "data-errors",
        "psn-mismatch",
        receives::OVERTAKEN,
    ];
    out.oracles.extend(watching.map(str::to_owned));
    receives::overtaken(world, out);
    if let Err(e) = world.fabric().balance() {
        let (name, text) = ("byte-balance".to_owned(), e.to_string());
        out.notes.push(Note { kind: NoteKind::Violation, name, text, count: 1 });
        out.exit = Exit { kind: ExitKind::Violation, reason: "bytes are not conserved".into() };
    }
}
