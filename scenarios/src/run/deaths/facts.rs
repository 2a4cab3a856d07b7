//! What is known of a queue pair that died or stalled: from its own side, from the peer's, and of
//! its packets on the way. Gathered at the end of the run.

use doorbell_core::transport::QpAttr;
use doorbell_core::units::Time;
use doorbell_core::verbs::{QpState, QpType, Qpn, WcStatus, WrOpcode};
use doorbell_sim::fabric::DropCause;
use doorbell_sim::host::StallReason;
use doorbell_sim::memory::MemoryError;
use doorbell_sim::nic::{Dropped, Nic, NicQp, Refused, Sender, Why};
use doorbell_sim::rc::{HwCounters, RetrySeven, Stall, Standing, TimeoutMode};
use doorbell_sim::wire::HostId;
use doorbell_sim::world::{LossPlace, World};

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
    /// Id of the fault that took them, and when it ends, if it does.
    pub fault: Option<(String, Option<Time>)>,
    pub cause: DropCause,
    pub packets: u64,
    pub first: Time,
    pub last: Time,
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
    pub receives: u32,
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
    /// End of the run.
    pub end: Time,
}

impl Facts {
    /// From when on packets count: the first transmission of what was never answered.
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

    /// Whether the peer's queue pair takes this one for its peer as well.
    pub fn mutual(&self) -> bool {
        let back = |q: &PeerQp| q.attr.dest_qpn == self.qpn && q.dest_host == self.host;
        self.peer.qp.as_ref().is_some_and(back)
    }
}

impl Fates {
    fn of(world: &World, s: &Scenario, from: Sender, request: bool) -> Self {
        let hosts = world.hosts().len();
        let name = |node: usize| match node.checked_sub(hosts) {
            None => format!("host {node}"),
            Some(switch) => format!("switch {switch}"),
        };
        let loss = |l: &doorbell_sim::world::Lost| {
            let (place, fault) = match l.place {
                LossPlace::Switch { node, .. } => (format!("at {}", name(node.index())), None),
                LossPlace::Link { into, fault } => {
                    let fault = fault.and_then(|f| s.fault.get(f as usize));
                    let fault = fault.map(|f| (f.id.clone(), end_of(f)));
                    (format!("on the link into {}", name(into.index())), fault)
                }
            };
            let (cause, packets) = (l.cause, l.packets);
            Loss { place, fault, cause, packets, first: l.first, last: l.last }
        };
        let lost = world.lost_of(from).iter().filter(|l| l.request == request).map(loss);
        let dropped = world.hosts().iter().enumerate().flat_map(|(h, host)| {
            let of = host.nic().dropped_of(from).iter().filter(|d| d.request == request);
            of.map(move |d| (h as u32, *d))
        });
        Self { lost: lost.collect(), dropped: dropped.collect() }
    }

    /// Packets lost by the network from `since` on.
    pub fn lost_since(&self, since: Time) -> impl Iterator<Item = &Loss> {
        self.lost.iter().filter(move |l| l.last >= since)
    }

    /// Packets dropped at ports from `since` on, those aside that the transport has no use for.
    pub fn refused_since(&self, since: Time) -> impl Iterator<Item = &(u32, Dropped)> {
        let useless = |d: &Dropped| matches!(d.why, Refused::Transport(_));
        self.dropped.iter().filter(move |(_, d)| d.last >= since && !useless(d))
    }
}

/// When a fault that takes every packet ends; one that takes some of them has no such end.
fn end_of(f: &Fault) -> Option<Time> {
    let some = f.chance.is_some() || f.burst.is_some() || f.budget.is_some();
    let counted = f.nth.is_some() || f.round.is_some();
    f.before.as_ref().filter(|_| !some && !counted).map(|b| Time::ZERO + b.0)
}

/// The facts of every queue pair that died, and with `stalled` of every one that waits.
pub(super) fn gather(world: &World, s: &Scenario, stalled: bool) -> Vec<Facts> {
    let mut all = Vec::new();
    for (h, host) in world.hosts().iter().enumerate() {
        let mut reasons = Vec::new();
        if stalled {
            host.stall_reasons(&mut reasons);
        }
        for (index, q) in host.nic().qps() {
            let how = match &q.death {
                Some(d) => {
                    let status = d.ended.map(|e| e.status);
                    Some(How::Died { at: d.at, why: d.why, status })
                }
                None if stalled && !host.is_dead() => waits(q, &reasons),
                None => None,
            };
            if let Some(how) = how {
                all.push(facts(world, s, h as u32, (index, q), how));
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

fn facts(world: &World, s: &Scenario, host: u32, (index, q): (u32, &NicQp), how: How) -> Facts {
    let nic = world.hosts()[host as usize].nic();
    let me = Sender { host: HostId(host), qp: index };
    let them = Nic::qp_index(q.attr.dest_qpn).map(|qp| Sender { host: q.peer, qp });
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
    Facts {
        host,
        qpn: q.qpn,
        ty: q.ty,
        state: q.state,
        how,
        work: oldest.map(|(wqe, op, bytes)| Work { wr_id: wr_id(wqe), op, bytes }),
        memory: q.death.as_ref().and_then(|d| d.memory),
        attr: q.attr,
        mode: rc.timeout_mode.clone(),
        seven: rc.rules.retry_seven,
        standing,
        acknowledged: q.acknowledged,
        counters: q.hw_counters(),
        requests: Fates::of(world, s, me, true),
        answers: them.map(|them| Fates::of(world, s, them, false)).unwrap_or_default(),
        answers_under_way: them.map_or(0, |them| world.under_way_of(them)),
        requests_under_way: world.under_way_of(me),
        peer: peer(world, host, q),
        end: world.now(),
    }
}

fn peer(world: &World, host: u32, q: &NicQp) -> Peer {
    let there = &world.hosts()[q.peer.index()];
    let index = Nic::qp_index(q.attr.dest_qpn);
    let found = index.and_then(|i| Some((i, there.nic().qp(i)?)));
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
        receives: p.srq.and_then(|srq| there.nic().srq(srq)).unwrap_or(&p.rq).len(),
        counters: p.hw_counters(),
    });
    let takes_us = |p: &NicQp| p.peer.0 == host && p.attr.dest_qpn == q.qpn;
    let elsewhere = || {
        world.hosts().iter().enumerate().find_map(|(h, other)| {
            let (_, p) = other.nic().qps().find(|(_, p)| p.responder.is_some() && takes_us(p))?;
            Some((h as u32, p.qpn))
        })
    };
    let mutual = found.is_some_and(|(_, p)| takes_us(p));
    let counterpart = if mutual { None } else { elsewhere() };
    Peer { host: q.peer.0, host_dead: there.is_dead(), qpn: q.attr.dest_qpn, qp, counterpart }
}
