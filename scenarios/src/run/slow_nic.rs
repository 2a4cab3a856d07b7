//! NICs whose receive buffer is full: what keeps them from taking what comes.
//!
//! A link that knows pauses or credits holds the senders back, and the notes of those
//! (`paused-by-host`, `credit-starvation`) say so. Over an idealised link nobody else notices, and
//! one that can hold nobody back drops: those are named here.

use doorbell_core::units::{Span, Time};
use doorbell_sim::fabric::Fabric;
use doorbell_sim::nic::{Nic, RECV_FETCH};
use doorbell_sim::wire::{NodeId, PortId};
use doorbell_sim::world::{World, port_name};

use super::bottleneck::{nic_at, percent};
use super::deaths::plural;
use super::drops::made_lossless;
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
        text += ". Its link can hold nobody back, and no switch marks what is full there: ";
        let lossy = s.switch.class.iter().position(|c| c.lossless == Some(false));
        let class = lossy.unwrap_or_default() as u8;
        let lossless = made_lossless(s, class);
        text += &format!("make the class lossless ({lossless}), and senders wait instead");
        (kind, count) = (NoteKind::Warning, dropped);
        // What is sent again for it keeps the senders as busy.
        let at = (NodeId(host), nic.port());
        let saturated = |r: &&ResourceUse| percent(r.busy, r.of) >= BUSY_PERCENT;
        if let Some(r) = busiest(at, out).filter(saturated) {
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
    let full = nic_at(world, at).map_or(Span::ZERO, |nic| nic.receive_buffer_full(world.now()));
    // One that was over long before is not what the buffer waited for.
    if let Some(fault) = outage(s, world, peer).filter(|f| f.lasted * 2 >= full) {
        return format!("that is fault `{}` ({})", fault.id, fault.kind.word());
    }
    let found = busiest(at, out);
    let saturated = found.filter(|r| percent(r.busy, r.of) >= BUSY_PERCENT);
    if let Some(r) = saturated {
        return format!(
            "{} behind it was busy for {} % of the time: {}. A larger `nic.rx_buffer` takes bursts",
            r.name,
            percent(r.busy, r.of),
            faster(&r.name),
        );
    }
    let burst = "raise `nic.rx_buffer`, if it is a burst that fills it";
    match found.filter(|r| r.busy >= full) {
        Some(r) => format!(
            "{} behind it was busy for {}, which may be all that time: {}; or {burst}",
            r.name,
            Metric::time(r.busy).text(),
            faster(&r.name),
        ),
        None => format!(
            "nothing behind it was busy for so long: {burst}, or let a packet stay there for less \
             time, where its writes wait for PCIe credits or for another socket"
        ),
    }
}

/// What makes a resource less busy.
fn faster(name: &str) -> &'static str {
    match name {
        name if name.ends_with(RECV_FETCH) => "see the note `receive-fetch`",
        name if name.contains("PCIe gpu") => "raise `gpu.width` or `pcie.generation`",
        name if name.contains("PCIe") => "raise `pcie.generation` or `pcie.width`",
        name if name.contains("memory") => "raise the memory's bandwidth, or move fewer bytes",
        name if name.contains("lock bucket") => "send fewer atomics, or to other addresses",
        name if name.contains("atomic") => "send fewer atomics",
        name if name.contains("receive unit") => {
            "send fewer and larger packets (`qp.mtu`), or over more queue pairs"
        }
        _ => "send fewer and larger packets (`qp.mtu`)",
    }
}

/// The busiest resource on the way from a port of a host to memory of the host or of a GPU.
fn busiest((node, port): (NodeId, PortId), out: &Outcome) -> Option<&ResourceUse> {
    let host = format!("host{}.", node.0);
    let (own, number) = (format!("nic{}: ", port.0), format!("PCIe nic{} ", port.0));
    let on_the_way = |r: &&ResourceUse| {
        r.name.strip_prefix(&host).is_some_and(|name| {
            let to_host = name.starts_with("PCIe nic ") || name.starts_with(&number);
            let pcie = to_host && name.ends_with(" up");
            let gpu = name.starts_with("PCIe gpu") && name.ends_with(" down");
            let name = name.strip_prefix(&own).unwrap_or(name);
            let nic = name.starts_with("nic receive") || name.starts_with("nic atomic");
            pcie || gpu || nic || name.starts_with("memory of")
        })
    };
    let found = out.resources.iter().filter(on_the_way);
    found.max_by_key(|r| (percent(r.busy, r.of), std::cmp::Reverse(&r.name)))
}
