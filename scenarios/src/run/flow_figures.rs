//! Times of flows, against those of the same flows in an idle network.
//!
//! *Completion time* (FCT): from the start that was planned to the moment at which the host that
//! posted sees its last completion, the acknowledgement's way included. *Placed*: when its last
//! byte lay in the destination's memory.
//!
//! *Alone*: what the bytes with their headers take over the links that the flow's own queue pairs
//! use, and the way of the acknowledgement (of a READ: of its request) in an idle network, exact
//! within one packet. Where switches choose by load, that is all ways together. Hosts are not in
//! it. In a ring each step begins with what the step before brings from the neighbour.
//!
//! *Victim*: flows that meet at the source or at the destination of a flow share that host's link,
//! and n of them can take n times as long. A flow that takes more than twice as long as that was
//! held up elsewhere: by traffic for other hosts, or by losses or the control of its rate.

use std::collections::BTreeMap;

use doorbell_core::units::{Ratio, Span, Time};
use doorbell_sim::nic::{Nic, Sender};
use doorbell_sim::wire::{HostId, PortId};
use doorbell_sim::world::World;
use serde::Serialize;

mod alone;
mod victims;

pub(super) use alone::message_bytes;

use super::flows::flows;
use super::programs::{Placed, epoch};
use super::{LatencyRecorder, Metric, Outcome, Point};
use crate::format::ProgramKind;
use crate::workloads::Results;
use alone::Pairs;

/// Flows that a report lists.
const MAX_ROWS: usize = 10_000;

/// Slowdown per flow that shares an end, beyond which a flow is a victim.
const VICTIM: u64 = 2;

/// A part per million.
const PPM: u128 = 1_000_000;

/// Upper bounds of the classes of sizes, in bytes.
const BUCKETS: [u64; 5] = [1_000, 10_000, 100_000, 1_000_000, 10_000_000];

/// One flow.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct FlowRow {
    /// Name of its program.
    pub program: String,
    /// Its number there.
    pub flow: u32,
    /// Host that has the bytes.
    pub src: u32,
    /// Host that gets them.
    pub dst: u32,
    /// How many.
    pub bytes: u64,
    /// When it started, on the clock of flows.
    pub start_ps: u64,
    /// From its start to its completion; `None`: it is not complete.
    pub fct_ps: Option<u64>,
    /// From its start to the placement of its last byte, if it is complete.
    pub placed_ps: Option<u64>,
    /// Its time in an idle network.
    pub alone_ps: u64,
    /// The quotient of both, in parts per million.
    pub slowdown_ppm: Option<u64>,
    /// Most flows, itself included, that were there while it was and had its source or its
    /// destination.
    pub share: u64,
    /// Whether it was slowed down though its ends were free.
    pub victim: bool,
    /// Packets of its queue pairs that the network lost, at switches and on links, those sent again
    /// and acknowledgements included.
    pub lost: u64,
}

/// Flows of one program and one class of sizes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct BucketRow {
    /// Name of the program; empty: all.
    pub program: String,
    /// Sizes of the class are larger.
    pub above: u64,
    /// Largest size of the class; `None`: any.
    pub up_to: Option<u64>,
    /// Complete flows.
    pub flows: u64,
    /// Completion time: half, 95 %, 99 % and all are not longer.
    pub fct_ps: [u64; 4],
    /// Slowdown in parts per million, likewise.
    pub slowdown_ppm: [u64; 4],
}

/// What a report says of flows.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct FlowReport {
    /// The first flows, program by program.
    pub flows: Vec<FlowRow>,
    /// Flows that are not listed.
    pub left_out: u64,
    /// Distributions.
    pub buckets: Vec<BucketRow>,
}

/// Adds the figures of all programs that have flows.
pub(super) fn collect(
    point: &Point,
    world: &World,
    all: &[(&Placed, &Results)],
    out: &mut Outcome,
) {
    let (mut rows, mut first) = (Vec::new(), BTreeMap::new());
    for (index, p) in point.scenario.program.iter().enumerate() {
        if p.kind == ProgramKind::Flows {
            first.insert(index, rows.len());
            program_rows(point, world, index, all, &mut rows);
        }
    }
    if rows.is_empty() {
        return;
    }
    mark_victims(&mut rows, clock(point, world.now()));
    let mut report = FlowReport::default();
    group("", &rows.iter().collect::<Vec<_>>(), &mut report, out);
    let mut named: BTreeMap<&str, Vec<&FlowRow>> = BTreeMap::new();
    for row in rows.iter().filter(|r| !r.program.is_empty()) {
        named.entry(&row.program).or_default().push(row);
    }
    for (name, rows) in named {
        group(name, &rows, &mut report, out);
    }
    hops(world, out);
    victims::note(world, &rows, &first, all, out);
    report.left_out = rows.len().saturating_sub(MAX_ROWS) as u64;
    rows.truncate(MAX_ROWS);
    report.flows = rows;
    out.flows = Some(report);
}

/// A moment on the clock of flows.
fn clock(point: &Point, at: Time) -> u64 {
    let zero = epoch(point.profile.port.bootstrap_latency);
    at.as_ps().saturating_sub(zero.as_ps())
}

fn program_rows(
    point: &Point,
    world: &World,
    index: usize,
    all: &[(&Placed, &Results)],
    rows: &mut Vec<FlowRow>,
) {
    let Ok(list) = flows(point, index) else { return };
    let mut ends = vec![None; list.len()];
    for (_, results) in all.iter().filter(|(p, _)| p.program == index) {
        for time in &results.flows.posted {
            ends[time.flow as usize] = time.end;
        }
    }
    let pairs = Pairs::of(world, &list, index, all);
    let alone = alone::times(point, world, index, &list, &pairs);
    let placed = |p: &Pairs<'_>| p.at_destination().map(|q| q.last_placed).max();
    let lost = lost(world, index, all, list.len());
    let placed: Vec<Time> = pairs.iter().map(|p| placed(p).unwrap_or(Time::ZERO)).collect();
    let name = &point.scenario.program[index].name;
    let zero = epoch(point.profile.port.bootstrap_latency);
    for (flow, f) in (0u32..).zip(&list) {
        let (end, start) = (ends[flow as usize], zero + f.start);
        let alone = alone[flow as usize].as_ps().max(1);
        let fct = end.map(|end| end.since(start).as_ps());
        let slowdown = |ps: u64| (u128::from(ps) * PPM / u128::from(alone)) as u64;
        rows.push(FlowRow {
            program: name.clone(),
            flow,
            src: f.src,
            dst: f.dst,
            bytes: f.bytes,
            start_ps: f.start.as_ps(),
            fct_ps: fct,
            placed_ps: fct.map(|_| placed[flow as usize].as_ps().saturating_sub(start.as_ps())),
            alone_ps: alone,
            slowdown_ppm: fct.map(slowdown),
            share: 1,
            victim: false,
            lost: lost[flow as usize],
        });
    }
}

/// Packets that the network lost, flow by flow of a program.
fn lost(world: &World, index: usize, all: &[(&Placed, &Results)], flows: usize) -> Vec<u64> {
    let mut lost = vec![0; flows];
    for (p, results) in all.iter().filter(|(p, _)| p.program == index) {
        for (flow, qpn) in &results.flows.qps {
            let Some(qp) = Nic::qp_index(*qpn) else { continue };
            let sender = Sender { host: HostId(p.host), port: PortId(p.nic.into()), qp };
            lost[*flow as usize] += world.lost_of(sender).map(|l| l.packets).sum::<u64>();
        }
    }
    lost
}

/// Starts and ends of the flows of one host, each sorted.
#[derive(Default)]
struct Presence {
    starts: Vec<u64>,
    ends: Vec<u64>,
}

impl Presence {
    /// How many were there at some moment between `from` and `to`.
    fn between(&self, from: u64, to: u64) -> u64 {
        let begun = self.starts.partition_point(|s| *s < to);
        let over = self.ends.partition_point(|e| *e <= from);
        begun.saturating_sub(over) as u64
    }
}

/// Counts who shares an end with whom, and names those that were slow all the same.
fn mark_victims(rows: &mut [FlowRow], now: u64) {
    let end = |r: &FlowRow| r.fct_ps.map_or(now, |fct| r.start_ps + fct);
    let mut hosts: BTreeMap<(bool, u32), Presence> = BTreeMap::new();
    for r in rows.iter() {
        for key in [(true, r.src), (false, r.dst)] {
            let presence = hosts.entry(key).or_default();
            presence.starts.push(r.start_ps);
            presence.ends.push(end(r));
        }
    }
    for presence in hosts.values_mut() {
        presence.starts.sort_unstable();
        presence.ends.sort_unstable();
    }
    for r in rows {
        let at = |key| hosts[&key].between(r.start_ps, end(r));
        r.share = at((true, r.src)).max(at((false, r.dst))).max(1);
        let bound = r.share.saturating_mul(VICTIM * PPM as u64);
        r.victim = r.slowdown_ppm.is_some_and(|s| s > bound);
    }
}

/// The smallest values that half, 95 %, 99 % and all do not exceed.
fn percentiles(mut values: Vec<u64>) -> [u64; 4] {
    values.sort_unstable();
    [50, 95, 99, 100].map(|p| values[(values.len() * p).div_ceil(100).max(1) - 1])
}

fn bucket(
    program: &str,
    (above, up_to): (u64, Option<u64>),
    rows: &[&FlowRow],
) -> Option<BucketRow> {
    let fct: Vec<u64> = rows.iter().filter_map(|r| r.fct_ps).collect();
    let slowdown: Vec<u64> = rows.iter().filter_map(|r| r.slowdown_ppm).collect();
    (!fct.is_empty()).then(|| BucketRow {
        program: program.to_owned(),
        above,
        up_to,
        flows: fct.len() as u64,
        fct_ps: percentiles(fct),
        slowdown_ppm: percentiles(slowdown),
    })
}

/// Metrics and distributions of a group.
fn group(program: &str, rows: &[&FlowRow], report: &mut FlowReport, out: &mut Outcome) {
    let prefix = if program.is_empty() { String::new() } else { format!("{program}.") };
    let mut put = |name: &str, m| out.metrics.insert(format!("{prefix}{name}"), m);
    put("flows", Metric::count(rows.len() as u64));
    let unfinished = rows.iter().filter(|r| r.fct_ps.is_none()).count();
    put("flows_unfinished", Metric::count(unfinished as u64));
    put("victims", Metric::count(rows.iter().filter(|r| r.victim).count() as u64));
    let Some(all) = bucket(program, (0, None), rows) else { return };
    for (i, name) in ["p50", "p95", "p99", "max"].into_iter().enumerate() {
        put(&format!("fct_{name}"), Metric::time(Span::from_ps(all.fct_ps[i])));
        let slowdown = Metric::ratio(all.slowdown_ppm[i], PPM as u64);
        put(&format!("slowdown_{name}"), slowdown);
    }
    let done = || rows.iter().filter_map(|r| Some((r, r.fct_ps?)));
    let last = done().map(|(r, fct)| r.start_ps + fct).max().unwrap_or(0);
    let placed = rows.iter().filter_map(|r| Some(r.start_ps + r.placed_ps?)).max().unwrap_or(0);
    let first = rows.iter().map(|r| r.start_ps).min().unwrap_or(0);
    put("last_completion", Metric::time(Span::from_ps(last)));
    put("last_placed", Metric::time(Span::from_ps(placed)));
    let bytes = done().map(|(r, _)| r.bytes).sum();
    put("goodput", Metric::rate(bytes, Span::from_ps(last - first)));
    let jain = jain(done().map(|(r, fct)| rate(r.bytes, fct)));
    put("jain", Metric::ratio(jain.num, jain.den));
    let mut recorder = LatencyRecorder::new();
    done().for_each(|(_, fct)| recorder.record(Span::from_ps(fct)));
    if let Some(summary) = recorder.summary() {
        out.latencies.insert(format!("{prefix}fct"), summary);
    }
    report.buckets.push(all);
    let bounds = BUCKETS.map(Some).into_iter().chain([None]);
    let mut from = 0;
    for up_to in bounds {
        let most = up_to.unwrap_or(u64::MAX);
        let inside: Vec<&FlowRow> =
            rows.iter().filter(|r| r.bytes > from && r.bytes <= most).copied().collect();
        // A class that has all says nothing new.
        if inside.len() < rows.len() {
            report.buckets.extend(bucket(program, (from, up_to), &inside));
        }
        from = most;
    }
}

/// Throughput in kilobits per second.
fn rate(bytes: u64, ps: u64) -> u64 {
    (u128::from(bytes) * 8_000_000_000 / u128::from(ps.max(1))) as u64
}

/// Jain's index: (sum of x)^2 / (n x sum of x^2), 1 when all are equal, 1 / n when one has all.
/// Jain, Chiu, Hawe, DEC-TR-301, 1984.
fn jain(rates: impl Iterator<Item = u64>) -> Ratio {
    let (mut n, mut sum, mut squares) = (0u128, 0u128, 0u128);
    for x in rates {
        n += 1;
        sum += u128::from(x);
        squares += u128::from(x) * u128::from(x);
    }
    // A million flows of 1 Tb/s still fit: 2^20 x 2^20 x (2^30)^2. Halves of both keep their order,
    // so that the index is never above 1.
    let (mut above, mut below) = (sum * sum, (n * squares).max(1));
    while above.max(below) > u128::from(u64::MAX) {
        (above, below) = (above / 2, below / 2);
    }
    Ratio::new(above as u64, below as u64).unwrap_or(Ratio::ONE)
}

/// Packets over links, each link counted.
fn hops(world: &World, out: &mut Outcome) {
    let (fabric, now) = (world.fabric(), world.now());
    let sent = |(node, port)| fabric.egress_of(node, port).counters(now).sent.packets;
    let hops = fabric.ports().map(sent).sum();
    out.metrics.insert("wire_hops".into(), Metric::count(hops));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quantity::Unit;

    fn row(src: u32, dst: u32, start_ps: u64, fct_ps: u64, slowdown_ppm: u64) -> FlowRow {
        FlowRow {
            program: String::new(),
            flow: 0,
            src,
            dst,
            bytes: 1,
            start_ps,
            fct_ps: Some(fct_ps),
            placed_ps: None,
            alone_ps: 1,
            slowdown_ppm: Some(slowdown_ppm),
            share: 0,
            victim: false,
            lost: 0,
        }
    }

    #[test]
    fn jain_is_one_for_equals_and_one_of_n_for_one() {
        let index = |rates: &[u64]| jain(rates.iter().copied()).magnitude();
        assert!((index(&[5; 7]) - 1.0).abs() < 1e-9);
        assert!((index(&[400_000_000, 0, 0, 0]) - 0.25).abs() < 1e-6);
        assert!((index(&[3_000_000, 1_000_000]) - 0.8).abs() < 1e-6);
        let nearly = [12_401_826, 12_401_827, 12_401_829, 12_401_831];
        assert!(index(&nearly) <= 1.0 && index(&nearly) > 0.999_999_9, "{}", index(&nearly));
        let most = vec![1 << 30; 1 << 20];
        assert!((index(&most) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn percentiles_are_the_nearest_ranks() {
        assert_eq!(percentiles(vec![7]), [7; 4]);
        assert_eq!(percentiles((1..=200).rev().collect()), [100, 190, 198, 200]);
        assert_eq!(percentiles((1..=101).collect()), [51, 96, 100, 101]);
    }

    /// Flows that only touch in time share nothing; a victim is slower than twice its share.
    #[test]
    fn victims_are_slower_than_twice_their_share() {
        let mut rows = [
            row(0, 9, 0, 100, 4_000_001),
            row(1, 9, 99, 10, 4_000_000),
            row(2, 9, 109, 10, 2_000_001),
            row(2, 8, 300, 10, 2_000_000),
        ];
        mark_victims(&mut rows, 0);
        assert_eq!(rows.each_ref().map(|r| r.share), [2, 2, 1, 1]);
        assert_eq!(rows.each_ref().map(|r| r.victim), [true, false, true, false]);
    }
}
