//! From the faults of a file to a plan of the simulator, and what came of them.

use doorbell_core::units::{Ratio, Span, Time};
use doorbell_core::verbs::{Psn, Qpn};
use doorbell_sim::fabric::End;
use doorbell_sim::fault::{
    self as sim, Chance, DEFAULT_REORDER_LIMIT, DoorbellPart, FaultPlan, Hold, HostAction,
    HostFault, LinkEnd, LinkName, Matcher, PacketFault, PacketVerdict, Reboot, What, Window,
};
use doorbell_sim::wire::{HostId, NodeId, PortId};
use doorbell_sim::world::World;

use super::{Exit, ExitKind, FaultRow, Metric, Note, NoteKind, Outcome, RunError};
use crate::format::check_faults::opcode_of;
use crate::format::{Fault, FaultKind, FaultPart, Scenario};
use crate::quantity::Count;

/// Lets the faults of the scenario happen in the world.
pub(super) fn arm(s: &Scenario, world: &mut World) -> Result<(), RunError> {
    let plan = FaultPlan { faults: s.fault.iter().map(fault).collect() };
    world.set_faults(&plan).map_err(|e| RunError::BadInput {
        path: "fault".into(),
        message: e.to_string(),
        help: "change the fault, or the topology".into(),
    })
}

fn fault(f: &Fault) -> sim::Fault {
    sim::Fault {
        id: f.id.clone(),
        what: match (f.switch, host_action(f)) {
            (Some(n), _) => What::Reboot(Reboot { switch: n.value() as u32, window: window(f) }),
            (None, Some(action)) => {
                let nic = f.nic.map(|n| n.value() as u16);
                What::Host(HostFault { host: host(f.host), nic, window: window(f), action })
            }
            (None, None) => What::Packets(PacketFault {
                matcher: matcher(f),
                chance: chance(f),
                verdict: verdict(f),
            }),
        },
        budget: f.budget.map(Count::value),
        maybe: f.maybe,
    }
}

fn host(host: Option<Count<0, 8191>>) -> HostId {
    HostId(host.map_or(0, |h| h.value() as u32))
}

fn time(span: Span) -> Time {
    Time::ZERO + span
}

fn window(f: &Fault) -> Window {
    Window {
        after: f.after.map_or(Time::ZERO, |t| time(t.0)),
        before: f.before.map_or(Time::MAX, |t| time(t.0)),
    }
}

fn qpn(n: Option<Count<0, 0xFF_FFFF>>) -> Option<Qpn> {
    n.map(|n| Qpn::new(n.value() as u32))
}

fn matcher(f: &Fault) -> Matcher {
    let host = |h: Option<Count<0, 8191>>| h.map(|h| HostId(h.value() as u32));
    Matcher {
        link: f.link.as_ref().and_then(|l| l.parse().ok()),
        from: f.from.as_ref().and_then(|e| e.parse().ok()),
        source: host(f.source),
        dest: host(f.dest),
        source_qp: qpn(f.source_qp),
        dest_qp: qpn(f.dest_qp),
        psn: f.psn.map(|p| Psn::new(p.value() as u32)),
        opcode: f.opcode.as_deref().and_then(opcode_of),
        class: f.class.map(|c| c.packets()),
        round: f.round.map(|r| r.value() as u32),
        nth: f.nth.map(Count::value),
        window: window(f),
    }
}

/// Whether a packet fault is for all that a link carries while it is open.
fn takes_all(f: &Fault) -> bool {
    let Matcher { link, from, window, .. } = matcher(f);
    let of_link = Matcher { link, from, window, ..Matcher::default() };
    matcher(f) == of_link && chance(f) == Chance::Always && f.budget.is_none()
}

fn chance(f: &Fault) -> Chance {
    match (f.chance, f.burst) {
        (Some(p), _) if p.0 == Ratio::ONE => Chance::Always,
        (Some(p), _) => Chance::Ratio(p.0),
        (None, Some(b)) => Chance::Burst(sim::Burst {
            enter: b.enter.0,
            leave: b.leave.0,
            bad: b.bad.0,
            good: b.good.0,
        }),
        (None, None) => Chance::Always,
    }
}

fn verdict(f: &Fault) -> PacketVerdict {
    match f.kind {
        FaultKind::LinkDown => PacketVerdict::LinkDown,
        FaultKind::Delay => PacketVerdict::Delay(f.delay.map(|d| d.0).unwrap_or_default()),
        FaultKind::Duplicate => PacketVerdict::Duplicate(f.copies.map_or(1, |c| c.value() as u32)),
        FaultKind::Reorder => PacketVerdict::Reorder {
            behind: f.behind.map_or(1, |b| b.value() as u32),
            within: f.within.map_or(DEFAULT_REORDER_LIMIT, |w| w.0),
        },
        FaultKind::Corrupt => PacketVerdict::Corrupt,
        FaultKind::Hold => PacketVerdict::Hold(match (&f.until, &f.released_by) {
            (Some(until), _) => Hold::Until(time(until.0)),
            (None, Some(other)) => Hold::ReleasedBy(other.clone()),
            (None, None) => Hold::Released,
        }),
        _ => PacketVerdict::Drop,
    }
}

fn host_action(f: &Fault) -> Option<HostAction> {
    Some(match f.kind {
        FaultKind::PeerDead => HostAction::PeerDead,
        FaultKind::QpError => HostAction::QpError { qp: qpn(f.qp)? },
        FaultKind::ProgramStall => {
            HostAction::ProgramStall { rank: f.rank.map(|r| r.value() as u32) }
        }
        FaultKind::NicStall => HostAction::NicStall,
        FaultKind::CqNotPolled => HostAction::CqNotPolled { cq: f.cq.map(|c| c.value() as u32) },
        FaultKind::Rnr => HostAction::Rnr { qp: qpn(f.qp) },
        FaultKind::PauseStorm => HostAction::PauseStorm { sl: f.sl.map(|sl| sl.value() as u8) },
        FaultKind::BadDoorbell => HostAction::BadDoorbell {
            qp: qpn(f.qp),
            part: match f.part {
                Some(FaultPart::Blueflame) => DoorbellPart::Blueflame,
                Some(FaultPart::Record) | None => DoorbellPart::Record,
            },
            nth: f.nth.map(Count::value),
            stop_after: f.stop_after.map(|n| n.value() as u32),
        },
        _ => return None,
    })
}

/// A planned fault that makes a host slow, or packets late, and was open in a time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct HostTrouble {
    pub id: String,
    pub kind: FaultKind,
    /// The host; `None`: it is about packets on the way.
    pub host: Option<u32>,
    pub from: Time,
    /// `None`: it never ends.
    pub to: Option<Time>,
}

/// The faults at these hosts, and those that make packets late, that were open between two times
/// and had fired by the second one.
pub(super) fn troubles(
    s: &Scenario,
    world: &World,
    hosts: &[u32],
    (began, at): (Time, Time),
) -> Vec<HostTrouble> {
    let by_then = |u: &sim::FaultUse| u.fired > 0 && u.first.is_none_or(|first| first <= at);
    let fired: Vec<bool> = world.fault_uses().iter().map(by_then).collect();
    let trouble = |(i, f): (usize, &Fault)| {
        use FaultKind::{CqNotPolled, Delay, Hold, NicStall, PauseStorm, ProgramStall, Rnr};
        // Pauses spread: they hold up packets of hosts that are not at the ends of the link.
        let (at_host, anywhere) = match f.kind {
            ProgramStall | NicStall | CqNotPolled | Rnr => (Some(host(f.host).0), false),
            PauseStorm => (Some(host(f.host).0), true),
            Delay | Hold => (None, true),
            _ => return None,
        };
        let w = window(f);
        // What is held comes when it is let go, whenever the last packet was caught.
        let let_go = f.until.as_ref().filter(|_| f.kind == Hold).map(|until| time(until.0));
        let to = let_go.or((w.before != Time::MAX).then_some(w.before));
        let open = w.after <= at && to.is_none_or(|to| to > began);
        let near = anywhere || at_host.is_some_and(|h| hosts.contains(&h));
        let here = near && fired.get(i) == Some(&true);
        let (id, kind) = (f.id.clone(), f.kind);
        (open && here).then_some(HostTrouble { id, kind, host: at_host, from: w.after, to })
    };
    s.fault.iter().enumerate().filter_map(trouble).collect()
}

/// A fault that kept the far end of a link from taking packets.
pub(super) struct Outage {
    pub id: String,
    pub kind: FaultKind,
    /// So much of the run.
    pub lasted: Span,
}

/// Of a fault's window the part that lies between two times.
fn overlap(w: Window, (from, to): (Time, Time)) -> Span {
    w.before.min(to).since(w.after.max(from))
}

/// The longest time for which a fault kept the far end of an output port from taking packets: the
/// link or the node behind it was down, or stood still.
pub(super) fn outage(s: &Scenario, world: &World, from: (NodeId, PortId)) -> Option<Outage> {
    let uses = world.fault_uses();
    let all = s.fault.iter().zip(&uses).filter(|(f, u)| u.fired > 0 && stops(f, world, from));
    let outage = |(f, _): (&Fault, _)| {
        let lasted = overlap(window(f), (Time::ZERO, world.now()));
        Outage { id: f.id.clone(), kind: f.kind, lasted }
    };
    all.map(outage).max_by_key(|o| o.lasted)
}

/// A transfer as faults may meet it.
pub(super) struct Transfer<'a> {
    /// Its source, and the destination where that has to do something for it.
    pub hosts: &'a [u32],
    /// Output ports on the ways of its packets and of their answers.
    pub ways: &'a [(NodeId, PortId)],
    /// From its start to its end.
    pub lived: (Time, Time),
}

/// The fault that held up a transfer for longest while it was there: on its ways, or at its ends. A
/// delay holds up as long as it delays, each way.
pub(super) fn held_up(s: &Scenario, world: &World, t: &Transfer<'_>) -> Option<Outage> {
    use FaultKind::{CqNotPolled, Delay, Hold, ProgramStall, Rnr};
    let uses = world.fault_uses();
    let outage = |(f, _): (&Fault, _)| {
        let w = window(f);
        let crosses = |meets: &dyn Fn((NodeId, PortId)) -> bool| t.ways.iter().any(|p| meets(*p));
        let on_link = |at| matches_link(f, world, at);
        let lasted = match f.kind {
            ProgramStall | CqNotPolled | Rnr => {
                t.hosts.contains(&host(f.host).0).then(|| overlap(w, t.lived))
            }
            // Late there, and late back.
            Delay => {
                let times = t.ways.iter().filter(|p| on_link(**p)).count() as u64;
                let late = f.delay.map_or(Span::ZERO, |d| d.0) * times;
                (times > 0).then(|| overlap(w, t.lived).min(late))
            }
            Hold => {
                let before = f.until.as_ref().map_or(w.before, |until| time(until.0));
                crosses(&on_link).then(|| overlap(Window { before, ..w }, t.lived))
            }
            _ => crosses(&|at| stops(f, world, at)).then(|| overlap(w, t.lived)),
        };
        Some(Outage { id: f.id.clone(), kind: f.kind, lasted: lasted? })
    };
    let all = s.fault.iter().zip(&uses).filter(|(_, used)| used.fired > 0);
    all.filter_map(outage).max_by_key(|o| o.lasted)
}

/// Whether a fault of packets is about what an output port sends into its link.
fn matches_link(f: &Fault, world: &World, from: (NodeId, PortId)) -> bool {
    let fabric = world.fabric();
    let to = fabric.egress_of(from.0, from.1).peer();
    let is = |e: LinkEnd, (node, port)| e.is(fabric.end(node), port);
    let m = matcher(f);
    let both = |l: LinkName| is(l.a, from) && is(l.b, to) || is(l.a, to) && is(l.b, from);
    m.link.is_none_or(both) && m.from.is_none_or(|e| is(e, from))
}

/// Whether a fault keeps the far end of an output port from taking packets.
fn stops(f: &Fault, world: &World, from: (NodeId, PortId)) -> bool {
    let fabric = world.fabric();
    let to = fabric.egress_of(from.0, from.1).peer();
    let link = || matches_link(f, world, from);
    match f.kind {
        FaultKind::LinkDown => link(),
        FaultKind::SwitchReboot => {
            f.switch.is_some_and(|n| End::Switch(n.value() as u32) == fabric.end(to.0))
        }
        FaultKind::PeerDead | FaultKind::NicStall | FaultKind::PauseStorm => {
            let nic = f.nic.is_none_or(|n| n.value() as u16 == to.1.0);
            nic && f.host.is_some_and(|h| End::Host(h.value() as u32) == fabric.end(to.0))
        }
        // A drop that takes all that comes is a partition of one direction.
        FaultKind::Drop => takes_all(f) && link(),
        _ => false,
    }
}

/// A planned fault that may still hit packets of a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ToCome {
    pub id: String,
    pub kind: FaultKind,
    pub from: Time,
    /// `None`: it never ends.
    pub to: Option<Time>,
}

/// The faults that can keep a packet between these hosts from being answered, save for those that
/// have fired as often as they may. Whether a packet takes the way that a fault is about is not
/// asked.
pub(super) fn to_come(s: &Scenario, world: &World, hosts: &[u32]) -> Vec<ToCome> {
    let uses = world.fault_uses();
    let fault = |(f, used): (&Fault, &sim::FaultUse)| {
        use FaultKind::{BadDoorbell, CqNotPolled, Duplicate, NicStall, PeerDead, ProgramStall};
        use FaultKind::{QpError, Rnr};
        let (here, lasts) = match f.kind {
            Duplicate | ProgramStall | CqNotPolled | BadDoorbell => (false, false),
            PeerDead | QpError => (hosts.contains(&host(f.host).0), true),
            NicStall | Rnr => (hosts.contains(&host(f.host).0), false),
            _ => (true, false),
        };
        let spent = f.budget.is_some_and(|b| used.fired >= b.value());
        let spent = spent || f.nth.is_some() && used.fired > 0;
        let w = window(f);
        let to = (w.before != Time::MAX && !lasts).then_some(w.before);
        let (id, kind, from) = (f.id.clone(), f.kind, w.after);
        (here && !spent).then_some(ToCome { id, kind, from, to })
    };
    s.fault.iter().zip(&uses).filter_map(fault).collect()
}

/// Faults that killed a host, a line each: what a program missed may have been to come from there.
pub(super) fn dead_hosts(s: &Scenario, world: &World) -> String {
    let uses = world.fault_uses();
    let line = |(f, used): (&Fault, &sim::FaultUse)| {
        let first = used.first.filter(|_| f.kind == FaultKind::PeerDead)?;
        let h = host(f.host);
        let silent = world.hosts()[h.index()].nics().all(|nic| nic.stats.tx_packets == 0);
        Some(format!(
            "\nfault \"{}\" ({}) killed host {} at {}{}",
            used.id,
            used.kind,
            h.0,
            Metric::time(first.since(Time::ZERO)).text(),
            if silent { ", before it had sent any packet" } else { "" }
        ))
    };
    s.fault.iter().zip(&uses).filter_map(line).collect()
}

/// Since when a host is dead, if a fault killed it.
pub(super) fn dead_since(s: &Scenario, world: &World, at_host: u32) -> Option<Time> {
    let uses = world.fault_uses();
    let of = |(f, used): (&Fault, &sim::FaultUse)| {
        used.first.filter(|_| f.kind == FaultKind::PeerDead && host(f.host).0 == at_host)
    };
    s.fault.iter().zip(&uses).filter_map(of).min()
}

/// The fault that made a NIC give up a queue pair at this time.
pub(super) fn device_fault(
    s: &Scenario,
    world: &World,
    (at_host, number): (u32, u32),
    at: Time,
) -> Option<(String, FaultKind)> {
    let uses = world.fault_uses();
    let its = |f: &Fault| qpn(f.qp).is_none_or(|q| q.value() == number);
    let of = |kind: FaultKind, its: &dyn Fn(&Fault) -> bool| {
        let mut all = s.fault.iter().zip(&uses);
        let found = all.find(|(f, used)| {
            let begun = used.first.is_some_and(|first| first <= at);
            f.kind == kind && host(f.host).0 == at_host && used.fired > 0 && begun && its(f)
        });
        found.map(|(f, _)| (f.id.clone(), f.kind))
    };
    of(FaultKind::QpError, &its).or_else(|| of(FaultKind::BadDoorbell, &its))
}

/// The fault whose damaged doorbell reached this threshold and stopped a NIC of the host at this
/// time: of those with the threshold the one that fired last.
pub(super) fn stopping_fault(
    s: &Scenario,
    world: &World,
    (at_host, threshold): (u32, u32),
    at: Time,
) -> Option<(String, FaultKind)> {
    let uses = world.fault_uses();
    let its = |f: &Fault| {
        let of = f.stop_after.as_ref().is_some_and(|n| n.value() == u64::from(threshold));
        f.kind == FaultKind::BadDoorbell && host(f.host).0 == at_host && of
    };
    let fired = s.fault.iter().zip(&uses).filter(|(f, used)| {
        its(f) && used.fired > 0 && used.first.is_some_and(|first| first <= at)
    });
    let last = fired.max_by_key(|(_, used)| used.first);
    last.map(|(f, _)| (f.id.clone(), f.kind))
}

/// What came of the faults. One that never fired fails a run that is good otherwise.
pub(super) fn collect(world: &World, out: &mut Outcome) {
    let mut silent = Vec::new();
    for u in world.fault_uses() {
        if u.fired == 0 && !u.maybe {
            silent.push(format!("fault \"{}\" ({}) never fired: {}", u.id, u.kind, why(&u)));
        }
        if u.left_out > 0 {
            let text = format!(
                "fault \"{}\" made {} copies less than it should: so many packets were under way \
                 that more would have filled the memory; lower `copies`, or give it a `budget`",
                u.id, u.left_out
            );
            let name = "copies-left-out".to_owned();
            out.notes.push(Note { kind: NoteKind::Warning, name, text, count: u.left_out });
        }
        out.faults.push(FaultRow {
            id: u.id,
            kind: u.kind.to_owned(),
            matched: u.matched,
            fired: u.fired,
            budget: u.budget,
            first: u.first.map(|t| t.since(Time::ZERO)),
            held: u.held,
            maybe: u.maybe,
            synthetic: u.synthetic,
        });
    }
    if silent.is_empty() {
        return;
    }
    let (count, text) = (silent.len() as u64, silent.join("\n"));
    if out.exit.kind == ExitKind::Ok {
        let text = format!("{text}\nchange its conditions, or write maybe = true");
        out.exit = Exit { kind: ExitKind::FaultNotFired, reason: text };
    } else {
        let name = "fault-not-fired".to_owned();
        out.notes.push(Note { kind: NoteKind::Warning, name, text, count });
    }
}

fn why(u: &sim::FaultUse) -> String {
    match (u.matched, &u.decided_by) {
        (0, _) => "nothing matched".to_owned(),
        (n, Some(by)) => format!(
            "{n} matched, and fault \"{by}\", which stands before it in the file, decided about \
             what it would have taken"
        ),
        (n, None) => format!("{n} matched, and neither number nor chance chose one"),
    }
}
