//! What is known of a queue pair that died or stalled: from its own side, from the peer's, and of
//! its packets on the way. Gathered at the end of the run.

use doorbell_core::transport::QpAttr;
use doorbell_core::units::{Ratio, Span, Time};
use doorbell_core::verbs::{Opcode, QpState, QpType, Qpn, WcStatus, WrOpcode};
use doorbell_sim::fabric::{DropCause, time_alone};
use doorbell_sim::host::StallReason;
use doorbell_sim::memory::MemoryError;
use doorbell_sim::nic::{Dropped, Episode, Nic, NicQp, Refused, Sender, Why};
use doorbell_sim::rc::{HwCounters, RetrySeven, Stall, Standing, TimeoutMode};
use doorbell_sim::wire::HostId;
use doorbell_sim::world::{LossPlace, Lost, World};

use super::super::Point;
use super::super::faults::{HostTrouble, ToCome, device_fault, to_come, troubles};
use super::small_link::{self, SmallLink};
use crate::format::{Fault, Scenario};

/// How a queue pair came to be in this list.
#[derive(Clone, Debug)]
pub(super) enum How {
    /// It is in ERR (UC and UD: SQE).
    Died { at: Time, why: Why, status: Option<WcStatus> },
    /// It waits at the end of a run that could not go on.
    Stalled { unrung: u32, waiting: u32, blocked: Option<Stall>, silent: bool },
}

/// A work request.
#[derive(Copy, Clone, Debug)]
pub(super) struct Work {
    pub wr_id: Option<u64>,
    pub op: WrOpcode,
    pub bytes: u32,
}

/// Packets that the network lost.
#[derive(Clone, Debug)]
pub(super) struct Loss {
    /// `link 0→1` and such.
    pub place: String,
    /// The fault that took them.
    pub fault: Option<LossFault>,
    pub cause: DropCause,
    pub packets: u64,
    pub first: Time,
    pub last: Time,
    /// There may have been more, before the first one.
    pub at_least: bool,
}

/// What is known of a fault that takes packets.
#[derive(Clone, Debug)]
pub(super) struct LossFault {
    pub id: String,
    /// When it ends, if it takes every packet and does.
    pub end: Option<Time>,
    /// The chance of each packet, if it takes some of them by a chance that the file names.
    pub chance: Option<Ratio>,
}

/// Where packets of one kind went.
#[derive(Clone, Debug, Default)]
pub(super) struct Fates {
    pub lost: Vec<Loss>,
    /// Dropped at the port of a host.
    pub dropped: Vec<(u32, Dropped)>,
}

/// The queue pair that the packets were for.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    pub host: u32,
    pub host_dead: bool,
    pub qpn: Qpn,
    /// `None`: there is none with this number.
    pub qp: Option<PeerQp>,
    /// The queue pair that takes this one for its peer, if it is another.
    pub counterpart: Option<(u32, Qpn)>,
}

/// What the peer's queue pair was and saw.
#[derive(Clone, Debug)]
pub(super) struct PeerQp {
    pub state: QpState,
    pub death: Option<(Time, Why, Option<WcStatus>)>,
    pub memory: Option<MemoryError>,
    pub attr: QpAttr,
    pub dest_host: u32,
    pub accepts_since: Option<Time>,
    pub expected_psn: Option<u32>,
    pub requests: u64,
    pub last_request: Option<Time>,
    /// Receives at the end of the run,
    pub receives: u32,
    /// and when it last refused a packet for want of one.
    pub fill_at_rnr: Option<u32>,
    /// After what time it repeats a sequence NAK, if it does.
    pub nak_repeat: Option<Span>,
    pub counters: HwCounters,
}

/// All of it.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    pub host: u32,
    pub qpn: Qpn,
    pub ty: QpType,
    pub state: QpState,
    pub how: How,
    pub work: Option<Work>,
    /// The vendor's code of the completion that ended it; 0 without one.
    pub vendor_err: u32,
    /// What is wrong with the memory of a work request, where that is the cause.
    pub memory: Option<MemoryError>,
    pub attr: QpAttr,
    pub mode: TimeoutMode,
    pub seven: RetrySeven,
    pub standing: Option<Standing>,
    pub acknowledged: Option<Time>,
    pub counters: HwCounters,
    pub requests: Fates,
    pub answers: Fates,
    /// Packets of the peer to this one, and of this one, that are still on their way.
    pub answers_under_way: u64,
    pub requests_under_way: u64,
    pub peer: Peer,
    /// Host faults that were open at either side while it failed.
    pub troubles: Vec<HostTrouble>,
    /// Faults that have not had their way yet, and may meet a transmission of other settings.
    pub to_come: Vec<ToCome>,
    /// The fault that made the device give this queue pair up.
    pub device_fault: Option<String>,
    pub small_link: Option<SmallLink>,
    /// What a packet and its answer take over the links alone, at least.
    pub round_trip: Span,
    /// End of the run.
    pub end: Time,
}

impl Facts {
    /// The first transmission of what was never answered, since the last progress.
    pub fn since(&self) -> Time {
        self.standing.map_or(Time::ZERO, |s| s.began)
    }

    /// When it died; the end of the run if it stalled.
    pub fn at(&self) -> Time {
        match self.how {
            How::Died { at, .. } => at,
            How::Stalled { .. } => self.end,
        }
    }

    pub fn status(&self) -> Option<WcStatus> {
        match self.how {
            How::Died { status, .. } => status,
            How::Stalled { .. } => None,
        }
    }

    /// Whether the peer has executed the oldest packet that this side has no answer to.
    pub fn executed(&self) -> bool {
        let (Some(s), Some(q)) = (self.standing, &self.peer.qp) else { return false };
        let past = |expected: u32| {
            let ahead = |to: u32| to.wrapping_sub(s.una.value()) & 0xFF_FFFF;
            (1..=ahead(s.next.value())).contains(&ahead(expected))
        };
        self.mutual() && q.expected_psn.is_some_and(past)
    }

    /// Whether RNR NAKs were the last that it heard.
    pub fn waits_for_receive(&self) -> bool {
        let rnr = |s: &Standing| {
            matches!(s.last_cause, Some(doorbell_sim::rc::RecoverCause::Rnr(_)))
                && s.rnr_retries > 0
                && s.expired == 0
        };
        let How::Stalled { blocked, .. } = self.how else { return false };
        blocked == Some(Stall::Rnr) || self.standing.as_ref().is_some_and(rnr)
    }

    /// Whether the peer's queue pair takes this one for its peer as well.
    pub fn mutual(&self) -> bool {
        let back = |q: &PeerQp| q.attr.dest_qpn == self.qpn && q.dest_host == self.host;
        self.peer.qp.as_ref().is_some_and(back)
    }
}

impl Fates {
    /// Of the packets of an episode; without one of all.
    fn of(
        world: &World,
        s: &Scenario,
        (from, request): (Sender, bool),
        episode: Option<Episode>,
    ) -> Self {
        let hosts = world.hosts().len();
        let name = |node: usize| match node.checked_sub(hosts) {
            None => format!("host {node}"),
            Some(switch) => format!("switch {switch}"),
        };
        let loss = |l: Lost| {
            let (place, fault) = match l.place {
                LossPlace::Switch { node, .. } => {
                    let place = format!("at {}", name(node.index()));
                    let reboot = (l.cause == DropCause::SwitchReboot)
                        .then(|| reboot_of(s, node.index() - hosts, l.first))
                        .flatten();
                    (place, reboot.map(loss_fault))
                }
                LossPlace::Link { into, fault } => {
                    let fault = fault.and_then(|f| s.fault.get(f as usize));
                    (format!("on the link into {}", name(into.index())), fault.map(loss_fault))
                }
            };
            let (cause, packets) = (l.cause, l.packets);
            let (first, last, at_least) = (l.first, l.last, l.at_least);
            Loss { place, fault, cause, packets, first, last, at_least }
        };
        let lost: Vec<Lost> = match episode {
            Some(e) => world.lost_within(from, e).collect(),
            None => world.lost_of(from).copied().collect(),
        };
        let lost = lost.into_iter().filter(|l| l.request == request).map(loss).collect();
        let mut dropped = Vec::new();
        for (h, host) in (0..).zip(world.hosts()) {
            let of: Vec<Dropped> = match episode {
                Some(e) => host.nics().flat_map(|n| n.dropped_within(from, e)).collect(),
                None => host.nics().flat_map(|n| n.dropped_of(from)).copied().collect(),
            };
            dropped.extend(of.into_iter().filter(|d| d.request == request).map(|d| (h, d)));
        }
        Self { lost, dropped }
    }

    /// Packets that the network lost.
    pub fn packets_lost(&self) -> u64 {
        self.lost.iter().map(|l| l.packets).sum()
    }

    /// Packets dropped at ports, those aside that the transport has no use for.
    pub fn refused(&self) -> impl Iterator<Item = &(u32, Dropped)> {
        self.dropped.iter().filter(|(_, d)| !matches!(d.why, Refused::Transport(_)))
    }
}

/// The reboot of a switch that was going on then.
fn reboot_of(s: &Scenario, switch: usize, then: Time) -> Option<&Fault> {
    let its = |f: &&Fault| f.switch.is_some_and(|n| n.value() as usize == switch);
    let begun = |f: &&Fault| f.after.is_none_or(|t| Time::ZERO + t.0 <= then);
    s.fault.iter().filter(its).rfind(begun)
}

fn loss_fault(f: &Fault) -> LossFault {
    LossFault { id: f.id.clone(), end: end_of(f), chance: f.chance.map(|c| c.0) }
}

/// When a fault that takes every packet ends; one that takes some of them has no such end.
fn end_of(f: &Fault) -> Option<Time> {
    let some = f.chance.is_some() || f.burst.is_some() || f.budget.is_some();
    let counted = f.nth.is_some() || f.round.is_some();
    f.before.as_ref().filter(|_| !some && !counted).map(|b| Time::ZERO + b.0)
}

/// The facts of every queue pair that died, and with `stalled` of every one that waits.
pub(super) fn gather(world: &World, point: &Point, stalled: bool) -> Vec<Facts> {
    let mut all = Vec::new();
    for (h, host) in world.hosts().iter().enumerate() {
        let mut reasons = Vec::new();
        if stalled {
            host.stall_reasons(&mut reasons);
        }
        for (index, q) in host.qps() {
            let how = match &q.death {
                Some(d) => {
                    let status = d.ended.map(|e| e.status);
                    Some(How::Died { at: d.at, why: d.why, status })
                }
                None if stalled && !host.is_dead() => waits(q, &reasons),
                None => None,
            };
            if let Some(how) = how {
                all.push(facts(world, point, h as u32, (index, q), how));
            }
        }
    }
    all
}

/// What a queue pair that has not died waits for, if it does.
fn waits(q: &NicQp, reasons: &[StallReason]) -> Option<How> {
    let staged = reasons.iter().find_map(|r| match r {
        StallReason::UnrungWqes { qpn, staged, .. } if *qpn == q.qpn => Some(*staged),
        _ => None,
    });
    let silent = reasons.iter().any(|r| match r {
        StallReason::NothingSignalled { qpn, .. } | StallReason::FullUnsignalled { qpn, .. } => {
            *qpn == q.qpn
        }
        _ => false,
    });
    let unrung = staged.unwrap_or(0) + q.sq.unannounced();
    let waiting = q.sq.announced.wrapping_sub(q.sq.started);
    let idle = unrung == 0 && waiting == 0 && !q.has_awaited_answers() && !silent;
    let blocked = q.requester.as_ref().and_then(|r| r.blocked_by());
    (!idle).then_some(How::Stalled { unrung, waiting, blocked, silent })
}

fn facts(world: &World, point: &Point, host: u32, (index, q): (u32, &NicQp), how: How) -> Facts {
    let s = &point.scenario;
    let port = Nic::port_of(q.qpn);
    let nic = world.hosts()[host as usize].nic(port.index());
    let me = Sender { host: HostId(host), port, qp: index };
    let there = world.hosts()[q.peer.index()].nic(q.peer_port.index());
    let them = there.own_qp_index(q.attr.dest_qpn);
    let them = them.map(|qp| Sender { host: q.peer, port: q.peer_port, qp });
    let ended = q.death.as_ref().and_then(|d| d.ended);
    let standing = ended.map(|e| e.standing).or_else(|| q.requester.as_ref().map(|r| r.standing()));
    let oldest = match &q.death {
        Some(_) => ended.and_then(|e| e.oldest),
        None => q.requester.as_ref().and_then(|r| r.oldest()),
    };
    let wr_id = |wqe| match &q.death {
        Some(d) => d.wr_id,
        None => q.sq.slot(wqe).map(|slot| slot.wqe.wr_id),
    };
    let rc = nic.rc_config();
    let since = q.accepts_since.unwrap_or(Time::ZERO);
    let episode = standing.map(|s| Episode { since, first: s.una, end: s.next });
    let status = match how {
        How::Died { status, .. } => status.filter(|s| *s != WcStatus::WrFlushErr),
        How::Stalled { .. } => None,
    };
    let began = standing.map_or(Time::ZERO, |s| s.began);
    let at = q.death.as_ref().map_or(world.now(), |d| d.at);
    let fates = |from, request| Fates::of(world, s, (from, request), episode);
    Facts {
        host,
        qpn: q.qpn,
        ty: q.ty,
        state: q.state,
        how,
        work: oldest.map(|(wqe, op, bytes)| Work { wr_id: wr_id(wqe), op, bytes }),
        vendor_err: status.map_or(0, |s| nic.config().vendor_codes.code(s, true)),
        memory: q.death.as_ref().and_then(|d| d.memory),
        attr: q.attr,
        mode: rc.timeout_mode.clone(),
        seven: rc.rules.retry_seven,
        standing,
        acknowledged: q.acknowledged,
        counters: q.hw_counters(),
        requests: fates(me, true),
        answers: them.map(|them| fates(them, false)).unwrap_or_default(),
        answers_under_way: them.map_or(0, |them| world.under_way_of(them)),
        requests_under_way: world.under_way_of(me),
        peer: peer(world, host, q),
        troubles: troubles(s, world, &[host, q.peer.0], (began, at)),
        to_come: to_come(s, world, &[host, q.peer.0]),
        device_fault: device_fault(s, world, (host, q.qpn.value()), at),
        small_link: small_link::of(world, point, host, q),
        round_trip: round_trip(world, host, q),
        end: world.now(),
    }
}

/// What a full packet of a queue pair and its ACK take over the links of their ways, when nobody
/// else is there. What hosts add is not in it.
pub(super) fn round_trip(world: &World, host: u32, q: &NicQp) -> Span {
    let (fabric, here) = (world.fabric(), (HostId(host), Nic::port_of(q.qpn)));
    let there = (q.peer, q.peer_port);
    let rc = world.hosts()[host as usize].nic(here.1.index()).rc_config();
    let packet = rc.wire_bytes(Opcode::RcRdmaWriteMiddle, rc.payload_of(q.attr.path_mtu));
    let ack = rc.wire_bytes(Opcode::RcAcknowledge, 0);
    let over = |from, to, q: Option<&NicQp>, bytes: u32| {
        let way = fabric.way(from, to, q.map_or(0, |q| q.udp_source_port)).unwrap_or_default();
        time_alone(&way, bytes.into(), bytes.into())
    };
    let nic = world.hosts()[q.peer.index()].nic(q.peer_port.index());
    let peer = nic.own_qp_index(q.attr.dest_qpn).and_then(|i| nic.qp(i));
    over(here, there, Some(q), packet) + over(there, here, peer, ack)
}

fn peer(world: &World, host: u32, q: &NicQp) -> Peer {
    let there = &world.hosts()[q.peer.index()];
    let nic = there.nic(q.peer_port.index());
    let index = nic.own_qp_index(q.attr.dest_qpn);
    let found = index.and_then(|i| Some((i, nic.qp(i)?)));
    let qp = found.map(|(_, p)| PeerQp {
        state: p.state,
        death: p.death.as_ref().map(|d| (d.at, d.why, d.ended.map(|e| e.status))),
        memory: p.death.as_ref().and_then(|d| d.memory),
        attr: p.attr,
        dest_host: p.peer.0,
        accepts_since: p.accepts_since,
        expected_psn: p.responder.as_ref().map(|r| r.expected_psn().value()),
        requests: p.stats.rx_requests,
        last_request: p.last_request,
        receives: p.srq.and_then(|srq| nic.srq(srq)).unwrap_or(&p.rq).len(),
        fill_at_rnr: p.fill_at_rnr,
        nak_repeat: nic.rc_config().nak_repeat,
        counters: p.hw_counters(),
    });
    let takes_us = |p: &NicQp| p.peer.0 == host && p.attr.dest_qpn == q.qpn;
    let elsewhere = || {
        world.hosts().iter().enumerate().find_map(|(h, other)| {
            let (_, p) = other.qps().find(|(_, p)| p.responder.is_some() && takes_us(p))?;
            Some((h as u32, p.qpn))
        })
    };
    let mutual = found.is_some_and(|(_, p)| takes_us(p));
    let counterpart = if mutual { None } else { elsewhere() };
    Peer { host: q.peer.0, host_dead: there.is_dead(), qpn: q.attr.dest_qpn, qp, counterpart }
}
