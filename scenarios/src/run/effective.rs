//! What was asked for against what is in effect.

use doorbell_core::transport::QpCaps;
use doorbell_core::units::Bytes;
use doorbell_core::verbs::{AckTimeout, RetryCnt};
use doorbell_sim::rc::{AckTimeoutMode, Interval, TimeoutMode, time_to_retry_exc};
use doorbell_sim::world::World;

use super::programs::{Placed, Role};
use super::switches;
use super::{Effective, Point};
use crate::format::{Initiator, ProgramKind, QpKind, TopologyKind};
use crate::quantity::Unit;
use crate::workloads::Results;

/// Every setting that a reader may believe to be in effect as written, and is not, or is granted
/// in another form.
pub fn values(point: &Point, world: &World, placed: &[Placed]) -> Vec<Effective> {
    let mut out = Vec::new();
    network(point, world, &mut out);
    switches::effective(point, world, &mut out);
    let sender = placed.iter().find(|p| p.role == Role::Sender);
    let results = sender.and_then(|p| p.results(world));
    if let Some(caps) = results.and_then(|r| r.granted) {
        granted(point, &caps, &mut out);
    }
    fallbacks(point, &mut out);
    if let (Some(p), Some(r)) = (sender, results) {
        rings(point, world, p, r, &mut out);
    }
    recovery(point, world, &mut out);
    out
}

/// Why a core posts for a GPU.
pub(super) const FALLBACK: &str =
    "`fallback`: the device takes no doorbell of a GPU (`nic.gpu_doorbell`)";

pub(super) fn row(name: &str, requested: String, effective: String, reason: &str) -> Effective {
    Effective { name: name.into(), requested, effective, reason: reason.into() }
}

/// What a shape of several switches comes to.
fn network(point: &Point, world: &World, out: &mut Vec<Effective>) {
    let (t, fabric) = (&point.scenario.topology, world.fabric());
    if fabric.switches().len() < 2 {
        return;
    }
    let hosts = fabric.hosts().len();
    let ports: usize = fabric.switches().iter().map(|s| s.ports()).sum();
    let cables: usize = fabric.hosts().iter().map(|h| h.ports()).sum();
    let nics = if cables == hosts { String::new() } else { format!(" with {cables} NICs in all") };
    let counts = format!(
        "{hosts} hosts{nics}, {} switches, {} links",
        fabric.switches().len(),
        (ports + cables) / 2
    );
    let reason = match t.kind {
        TopologyKind::RailOptimised => "NIC n of each host is at leaf n of its group",
        _ => "",
    };
    out.push(row("topology.kind", t.kind.word().to_owned(), counts, reason));
}

fn granted(point: &Point, caps: &QpCaps, out: &mut Vec<Effective>) {
    let qp = &point.scenario.qp;
    let depth = caps.sq_blocks.map_or(String::new(), |b| format!(" in {b} blocks of 64 B"));
    let reason =
        "each WQE has room for its scatter list and inline bytes; the ring is a power of two";
    out.push(row(
        "qp.sq_depth",
        qp.sq_depth.value().to_string(),
        format!("{}{depth}", caps.max_send_wr),
        reason,
    ));
    let inline = Bytes(caps.max_inline.into()).print();
    out.push(row("qp.max_inline", qp.max_inline.0.print(), inline, ""));
    let (asked, peer) = (qp.max_rd_atomic.value(), qp.max_dest_rd_atomic.value());
    if asked > peer {
        let reason = "the peer takes no more: qp.max_dest_rd_atomic";
        out.push(row("qp.max_rd_atomic", asked.to_string(), peer.to_string(), reason));
    }
}

/// GPUs in whose place a core posts.
fn fallbacks(point: &Point, out: &mut Vec<Effective>) {
    let all = point.scenario.program.iter();
    for (p, who) in all.filter_map(|p| Some((p, p.falls_back(&point.profile)?))) {
        let name = if p.name.is_empty() { "program" } else { &p.name };
        let name = format!("{name}.initiator");
        out.push(row(&name, "gpu".into(), who.word().into(), FALLBACK));
    }
}

/// How the first program's rings reached the NIC.
fn rings(point: &Point, world: &World, p: &Placed, r: &Results, out: &mut Vec<Effective>) {
    let program = &point.scenario.program[p.program];
    if program.kind == ProgramKind::Script || r.rings == 0 {
        return;
    }
    let stats = world.hosts()[p.host as usize].nic(p.nic.into()).stats;
    let (bf, all) = (stats.blueflames, stats.blueflames + stats.doorbells);
    let requested = program.ring.word();
    let effective = format!("{bf} of {all} by BlueFlame");
    let reason = match program.initiator {
        Initiator::Gpu if program.falls_back(&point.profile).is_none() => {
            "GPU blocks store doorbells only"
        }
        _ => "BlueFlame carries exactly one WQE that fits its buffer",
    };
    out.push(row("program.ring", requested.into(), effective, if bf < all { reason } else { "" }));
}

/// What the device makes of the attributes of recovery.
fn recovery(point: &Point, world: &World, out: &mut Vec<Effective>) {
    let (qp, Some(host)) = (&point.scenario.qp, world.hosts().first()) else { return };
    // Unreliable services have no timer and try nothing again.
    if qp.kind != QpKind::Rc {
        return;
    }
    let rc = host.nic(0).rc_config();
    let code = |n: u64| u8::try_from(n).unwrap_or(u8::MAX);
    let timeout = AckTimeout::new(code(qp.timeout.value())).expect("checked when loaded");
    let retry_cnt = RetryCnt::new(code(qp.retry_cnt.value())).expect("checked when loaded");
    let span = |i: Interval| match i.least == i.most {
        true => i.least.print(),
        false => format!("{} to {}", i.least.print(), i.most.print()),
    };
    let first = rc.timeout_mode.interval(timeout, 0);
    let first = first.map_or("no timer".into(), |i| format!("resends after {}", span(i)));
    let requested = qp.timeout.value().to_string();
    let why = match rc.timeout_mode {
        TimeoutMode::Adaptive { .. } => {
            "`rc.timeout_mode` adaptive ignores the code, save that 0 is no timer"
        }
        _ => "4.096 us * 2^timeout, as `rc.timeout_mode` has it",
    };
    out.push(row("qp.timeout", requested, first, why));
    let end = time_to_retry_exc(&rc.timeout_mode, timeout, retry_cnt, rc.rules.retry_seven);
    let end = end.map_or("never gives up".into(), |i| format!("RETRY_EXC_ERR after {}", span(i)));
    let reason = "the sum of retry_cnt + 1 timers, with a peer that never answers";
    out.push(row("qp.retry_cnt", retry_cnt.to_string(), end, reason));
}
