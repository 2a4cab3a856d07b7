//! NICs whose receive buffer is full: what keeps them from taking what comes.
//!
//! A link that knows pauses or credits holds the senders back, and the notes of those
//! (`paused-by-host`, `credit-starvation`) say so. Over an idealised link nobody else notices, and
//! one that can hold nobody back drops: those are named here.

use doorbell_core::units::Time;
use doorbell_sim::fabric::Fabric;
use doorbell_sim::nic::{Nic, RECV_FETCH};
use doorbell_sim::wire::{NodeId, PortId};
use doorbell_sim::world::{World, port_name};

use super::bottleneck::percent;
use super::deaths::plural;
use super::faults::outage;
use super::{Metric, Note, NoteKind, Outcome, ResourceUse};
use crate::format::Scenario;

/// Name of the note.
const NAME: &str = "receive-buffer-full";

/// Share of the run, in percent, for which the buffer must have been full to be worth a note where
/// nothing was lost.
const FULL_PERCENT: u64 = 10;

/// Share of its time, in percent, from which a resource is what a full buffer waits for.
const BUSY_PERCENT: u64 = 90;

/// Names the NIC that dropped most, or else the one whose buffer was full longest. To be asked when
/// the resources are there.
pub(super) fn collect(s: &Scenario, world: &World, out: &mut Outcome) {
    out.oracles.push(NAME.to_owned());
    let (now, fabric) = (world.now(), world.fabric());
    let run = now.since(Time::ZERO);
    let all = (0..).zip(world.hosts()).flat_map(|(h, host)| host.nics().map(move |nic| (h, nic)));
    let worth = |(h, nic): &(u32, &Nic)| {
        let full = percent(nic.receive_buffer_full(now), run) >= FULL_PERCENT;
        nic.stats.rx_discards > 0 || full && nic.stats.rx_buffer_waits > 0 && !told(fabric, *h, nic)
    };
    let all: Vec<_> = all.filter(worth).collect();
    let worst = |(h, nic): &&(u32, &Nic)| {
        (nic.stats.rx_discards, nic.receive_buffer_full(now), std::cmp::Reverse((*h, nic.port())))
    };
    let Some((host, nic)) = all.iter().max_by_key(worst).copied() else { return };
    let dropped: u64 = all.iter().map(|(_, nic)| nic.stats.rx_discards).sum();
    let by = port_name(fabric, NodeId(host), nic.port());
    let did = match nic.stats.rx_discards {
        0 => format!("kept {} in front of it", plural(nic.stats.rx_buffer_waits, "packet")),
        n => format!("dropped {} (`rx_discards`)", plural(n, "packet")),
    };
    let more = match all.len() - 1 {
        0 => String::new(),
        1 => ", and 1 other NIC is like it".to_owned(),
        n => format!(", and {n} other NICs are like it"),
    };
    let mut text = format!(
        "{by} {did}{more}: its receive buffer ({}) was full for {}, {} % of the run; {}",
        Metric::bytes(u64::from(nic.config().rx_buffer)).text(),
        Metric::time(nic.receive_buffer_full(now)).text(),
        percent(nic.receive_buffer_full(now), run),
        cure(s, world, (NodeId(host), nic.port()), out),
    );
    let (mut kind, mut count) = (NoteKind::Info, nic.stats.rx_buffer_waits);
    if dropped > 0 {
        text += ". Its link can hold nobody back, and no switch marks what is full there: \
                 `topology.switch = \"pfc\"` (with `switch.buffer` in place of `topology.buffer`) \
                 or `link = \"ib\"` makes senders wait instead";
        (kind, count) = (NoteKind::Warning, dropped);
        // What is sent again for it keeps the senders as busy.
        if let Some(r) = busiest(host, out) {
            out.limiting = Some(r.name.clone());
        }
    }
    out.notes.push(Note { kind, name: NAME.to_owned(), text, count });
}

/// Whether another note tells of a full buffer: its link knows pauses, or credits.
fn told(fabric: &Fabric, host: u32, nic: &Nic) -> bool {
    let egress = fabric.egress_of(NodeId(host), nic.port());
    egress.knows_pauses() || egress.lanes() > 0
}

/// What keeps the NIC at a port of a host from taking what comes, and what helps.
pub(super) fn cure(s: &Scenario, world: &World, at: (NodeId, PortId), out: &Outcome) -> String {
    let (node, port) = at;
    let peer = world.fabric().egress_of(node, port).peer();
    if let Some(fault) = outage(s, world, peer) {
        return format!("that is fault `{}` ({})", fault.id, fault.kind.word());
    }
    let Some(r) = busiest(node.0, out) else {
        return "nothing behind it was busy all the time, so what fills it is a burst, or the time \
                that a packet stays there: raise `nic.rx_buffer`"
            .to_owned();
    };
    let raise = match &r.name {
        name if name.ends_with(RECV_FETCH) => "see the note `receive-fetch`",
        name if name.contains("PCIe") => "raise `pcie.generation` or `pcie.width`",
        name if name.contains("memory") => "raise the memory's bandwidth, or move fewer bytes",
        name if name.contains("atomic") => "send fewer atomics, or to other addresses",
        _ => "send fewer and larger packets (`qp.mtu`), or over more queue pairs",
    };
    format!(
        "{} behind it was busy for {} % of the time: {raise}. A larger `nic.rx_buffer` takes \
         bursts and no more",
        r.name,
        percent(r.busy, r.of),
    )
}

/// The resource on the way from a host's port to its memory that had no time left.
fn busiest(host: u32, out: &Outcome) -> Option<&ResourceUse> {
    let host = format!("host{host}.");
    let on_the_way = |r: &&ResourceUse| {
        r.name.strip_prefix(&host).is_some_and(|name| {
            let pcie = name.starts_with("PCIe") && name.ends_with(" up");
            let nic = name.contains("nic receive") || name.contains("nic atomic");
            pcie || nic || name.starts_with("memory of")
        })
    };
    let found = out.resources.iter().filter(on_the_way).max_by_key(|r| percent(r.busy, r.of));
    found.filter(|r| percent(r.busy, r.of) >= BUSY_PERCENT)
}
