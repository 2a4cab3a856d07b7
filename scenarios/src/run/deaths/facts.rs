//! What is known of a queue pair that died or stalled: from its own side, from the peer's, and of
//! its packets on the way. Gathered at the end of the run.

use std::collections::BTreeMap;

use doorbell_core::transport::QpAttr;
use doorbell_core::units::{Span, Time};
use doorbell_core::verbs::{Opcode, QpState, QpType, Qpn, WcStatus, WrOpcode};
use doorbell_sim::fabric::{Hop, time_alone};
use doorbell_sim::host::StallReason;
use doorbell_sim::memory::MemoryError;
use doorbell_sim::nic::{CompletionQueue, Nic, NicQp, Sender, Why};
use doorbell_sim::rc::{
    AckTimeoutMode, HwCounters, RecoverCause, Requester, RetrySeven, Stall, Standing, TimeoutMode,
};
use doorbell_sim::wire::HostId;
use doorbell_sim::world::World;

use super::super::Point;
use super::super::early::{Early, early, longest_answer};
use super::super::faults::{
    HostTrouble, ToCome, dead_since, device_fault, stopping_fault, to_come, troubles,
};
use super::super::waiting;
use super::fates::{Fates, Pair, Split, Ways};
use super::small_link::{self, SmallLink};
use crate::format::{FaultKind, Scenario};

/// How a queue pair came to be in this list.
#[derive(Clone, Debug)]
pub(super) enum How {
    /// It is in ERR (UC and UD: SQE).
    Died { at: Time, why: Why, status: Option<WcStatus> },
    /// It waits at the end of a run that could not go on.
    Stalled { unrung: u32, waiting: u32, blocked: Option<Stall>, silent: bool },
}

impl How {
    /// Why it died, if it did.
    const fn why(&self) -> Option<Why> {
        match self {
            Self::Died { why, .. } => Some(*why),
            Self::Stalled { .. } => None,
        }
    }

    /// The status with which it died, if that is its own and not of a flush.
    fn status(&self) -> Option<WcStatus> {
        match self {
            Self::Died { status, .. } => status.filter(|s| *s != WcStatus::WrFlushErr),
            Self::Stalled { .. } => None,
        }
    }
}

/// A work request.
#[derive(Copy, Clone, Debug)]
pub(super) struct Work {
    pub wr_id: Option<u64>,
    pub op: WrOpcode,
    pub bytes: u32,
}

/// The queue pair that the packets were for.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    pub host: u32,
    /// Since when its host is dead, if it is.
    pub dead_since: Option<Time>,
    pub qpn: Qpn,
    /// `None`: there is none with this number.
    pub qp: Option<PeerQp>,
    /// The queue pair that takes this one for its peer, if it is another.
    pub counterpart: Option<(u32, Qpn)>,
}

/// What the peer's queue pair was and saw.
#[derive(Clone, Debug)]
pub(super) struct PeerQp {
    /// At the end of the run.
    pub state: QpState,
    /// How it came to ERR, if it was there before the death of this one.
    pub death: Option<(Time, Why, Option<WcStatus>)>,
    pub memory: Option<MemoryError>,
    pub attr: QpAttr,
    pub dest_host: u32,
    pub accepts_since: Option<Time>,
    pub reset_at: Option<Time>,
    pub expected_psn: Option<u32>,
    pub requests: u64,
    pub last_request: Option<Time>,
    /// Receives at the end of the run,
    pub receives: u32,
    /// and when it last refused a packet for want of one.
    pub fill_at_rnr: Option<u32>,
    /// Packets that it refused because of a page fault.
    pub page_fault_naks: u64,
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
    /// Whether an answer was asked for that has not come: else no timer runs.
    pub asked: bool,
    /// When the last packet left that asked for an answer,
    pub left: Time,
    /// and when the next timer expires, of one that lives.
    pub due: Option<Time>,
    /// Whether packets of a message that has begun were never given to the NIC's port.
    pub amid_message: bool,
    /// What its packets in the network wait for, if none of the ports there sends.
    pub stands: Option<String>,
    pub acknowledged: Option<Time>,
    pub counters: HwCounters,
    /// What became of packets in time to have a part in the death,
    pub requests: Fates,
    pub answers: Fates,
    /// and what came too late for that.
    pub late_requests: Fates,
    pub late_answers: Fates,
    /// Packets of the peer to this one, and of this one, that are still on their way.
    pub answers_under_way: u64,
    pub requests_under_way: u64,
    pub peer: Peer,
    /// Host faults that were open at either side while it failed.
    pub troubles: Vec<HostTrouble>,
    /// Faults that have not had their way yet, and may meet a transmission of other settings.
    pub to_come: Vec<ToCome>,
    /// The fault that made the device give this queue pair up, or stop, and its kind.
    pub device_fault: Option<(String, FaultKind)>,
    /// What shows that its ack timer is too early, if something does.
    pub early: Option<Early>,
    /// The longest time that an ack timer would have had to run for an answer, in all of the run.
    pub longest_answer: Span,
    /// Entries of the completion queue that overran, where that was it.
    pub overran: Option<u32>,
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

    /// The first transmission since the last progress or NAK: expiries count from there. Without a
    /// timer nothing is sent again, and it is the only one.
    pub fn row(&self) -> Time {
        if self.attr.timeout.code() == 0 {
            return self.left;
        }
        self.standing.map_or(Time::ZERO, |s| s.resumed)
    }

    /// When it died; the end of the run if it stalled.
    pub fn at(&self) -> Time {
        match self.how {
            How::Died { at, .. } => at,
            How::Stalled { .. } => self.end,
        }
    }

    /// Whether it waits, and has not died.
    pub const fn has_stalled(&self) -> bool {
        matches!(self.how, How::Stalled { .. })
    }

    /// Whether packets of it, or answers to them, did not arrive.
    pub fn hurt(&self) -> bool {
        !self.requests.is_empty() || !self.answers.is_empty()
    }

    pub fn status(&self) -> Option<WcStatus> {
        match self.how {
            How::Died { status, .. } => status,
            How::Stalled { .. } => None,
        }
    }

    /// Whether the peer's host was dead before this one died.
    pub fn host_dead(&self) -> bool {
        self.peer.dead_since.is_some_and(|t| t <= self.at())
    }

    /// The peer's queue pair, unless its present life began after this one had died.
    pub fn peer_then(&self) -> Option<&PeerQp> {
        let later = |t: Option<Time>| t.is_some_and(|t| t > self.at());
        self.peer.qp.as_ref().filter(|q| !later(q.accepts_since) && !later(q.reset_at))
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

    /// Whether RNR NAKs are all that keeps it: they were the last that it heard, or nothing was
    /// lost.
    pub fn waits_for_receive(&self) -> bool {
        let (How::Stalled { blocked, .. }, Some(s)) = (&self.how, self.standing) else {
            return false;
        };
        let last = matches!(s.last_cause, Some(RecoverCause::Rnr(_))) && s.expired == 0;
        let unhurt = self.requests.is_empty() && self.answers.is_empty() && !self.executed();
        *blocked == Some(Stall::Rnr) || s.rnr_retries > 0 && (last || unhurt)
    }

    /// Whether RNR NAKs come for what it waits for: then an answer is no progress.
    pub fn gets_rnr_naks(&self) -> bool {
        let theirs = || self.peer.qp.as_ref().is_some_and(|q| q.counters.rnr_nak_sent > 0);
        self.standing.is_some_and(|s| s.rnr_retries > 0) || theirs() && !self.executed()
    }

    /// Whether it died when something was told to be missing, and not of an expiry.
    pub fn died_of_nak(&self) -> bool {
        use RecoverCause::{ImpliedNak, ReadGap, SequenceNak};
        let cause = self.standing.and_then(|s| s.last_cause);
        let naks = matches!(cause, Some(SequenceNak | ImpliedNak | ReadGap));
        naks && self.status() == Some(WcStatus::RetryExcErr)
    }

    /// Whether the peer's queue pair takes this one for its peer as well.
    pub fn mutual(&self) -> bool {
        let back = |q: &PeerQp| q.attr.dest_qpn == self.qpn && q.dest_host == self.host;
        self.peer.qp.as_ref().is_some_and(back)
    }
}

/// The facts of every queue pair that died, and with `stalled` of every one that waits.
pub(super) fn gather(world: &World, point: &Point, stalled: bool) -> Vec<Facts> {
    let mut all = Vec::new();
    let all_qps = OfAll { under_way: world.under_way(), longest_answer: longest_answer(world) };
    let mut standing = if stalled { waiting::waits(world) } else { BTreeMap::new() };
    for (h, host) in world.hosts().iter().enumerate() {
        let mut reasons = Vec::new();
        if stalled {
            host.stall_reasons(&mut reasons);
        }
        let posted = Posted::by_qp(&reasons);
        for (index, q) in host.qps() {
            let how = match &q.death {
                Some(d) => {
                    let status = d.ended.map(|e| e.status);
                    Some(How::Died { at: d.at, why: d.why, status })
                }
                None if stalled && !host.is_dead() => waits(q, posted.get(&q.qpn)),
                None => None,
            };
            if let Some(how) = how {
                let wait = standing.remove(&(h as u32, q.qpn.value())).filter(|w| w.stands);
                let stands = wait.map(|w| w.why);
                all.push(Facts {
                    stands,
                    ..facts(world, point, (h as u32, index, q), how, &all_qps)
                });
            }
        }
    }
    all
}

/// What is asked of all queue pairs together, once.
struct OfAll {
    /// See [`World::under_way`].
    under_way: BTreeMap<(Sender, bool), u64>,
    longest_answer: Span,
}

impl OfAll {
    fn under_way_of(&self, from: Sender, request: bool) -> u64 {
        self.under_way.get(&(from, request)).copied().unwrap_or(0)
    }
}

/// What stands in the way of the work requests of a queue pair at its host.
#[derive(Copy, Clone, Default)]
struct Posted {
    /// WQEs that are staged and not rung.
    staged: u32,
    /// None of them gives a completion.
    silent: bool,
}

impl Posted {
    /// By queue pair, since a host may have thousands.
    fn by_qp(reasons: &[StallReason]) -> BTreeMap<Qpn, Self> {
        let mut all: BTreeMap<Qpn, Self> = BTreeMap::new();
        for r in reasons {
            match r {
                StallReason::UnrungWqes { qpn, staged, .. } => {
                    all.entry(*qpn).or_default().staged = *staged;
                }
                StallReason::NothingSignalled { qpn, .. }
                | StallReason::FullUnsignalled { qpn, .. } => {
                    all.entry(*qpn).or_default().silent = true;
                }
                _ => {}
            }
        }
        all
    }
}

/// What a queue pair that has not died waits for, if it does.
fn waits(q: &NicQp, posted: Option<&Posted>) -> Option<How> {
    let Posted { staged, silent } = posted.copied().unwrap_or_default();
    let unrung = staged + q.sq.unannounced();
    let waiting = q.sq.announced.wrapping_sub(q.sq.started);
    let idle = unrung == 0 && waiting == 0 && !q.has_awaited_answers() && !silent;
    let blocked = q.requester.as_ref().and_then(|r| r.blocked_by());
    (!idle).then_some(How::Stalled { unrung, waiting, blocked, silent })
}

/// The oldest work request without an answer.
fn oldest_work(q: &NicQp) -> Option<Work> {
    let oldest = match &q.death {
        Some(d) => d.ended.and_then(|e| e.oldest),
        None => q.requester.as_ref().and_then(|r| r.oldest()),
    };
    let wr_id = |wqe| match &q.death {
        Some(d) => d.wr_id,
        None => q.sq.slot(wqe).map(|slot| slot.wqe.wr_id),
    };
    oldest.map(|(wqe, op, bytes)| Work { wr_id: wr_id(wqe), op, bytes })
}

/// The facts of a queue pair of a host with this index.
fn facts(
    world: &World,
    point: &Point,
    (host, index, q): (u32, u32, &NicQp),
    how: How,
    of_all: &OfAll,
) -> Facts {
    let s = &point.scenario;
    let port = Nic::port_of(q.qpn);
    let nic = world.hosts()[host as usize].nic(port.index());
    let me = Sender { host: HostId(host), port, qp: index };
    let there = world.hosts()[q.peer.index()].nic(q.peer_port.index());
    let them = there.own_qp_index(q.attr.dest_qpn);
    let them = them.map(|qp| Sender { host: q.peer, port: q.peer_port, qp });
    let ended = q.death.as_ref().and_then(|d| d.ended);
    let standing = ended.map(|e| e.standing).or_else(|| q.requester.as_ref().map(|r| r.standing()));
    let (rc, status, why) = (nic.rc_config(), how.status(), how.why());
    let began = standing.map_or(Time::ZERO, |s| s.began);
    let died = q.death.as_ref().map(|d| d.at);
    let at = died.unwrap_or(world.now());
    let split = split(world, s, (me, them), (q, standing, died));
    let ([requests, answers], [late_requests, late_answers]) = (split.before, split.late);
    Facts {
        host,
        qpn: q.qpn,
        ty: q.ty,
        state: q.state,
        how,
        work: oldest_work(q),
        vendor_err: status.map_or(0, |s| nic.config().vendor_codes.code(s, true)),
        memory: q.death.as_ref().and_then(|d| d.memory),
        attr: q.attr,
        mode: rc.timeout_mode.clone(),
        seven: rc.rules.retry_seven,
        standing,
        asked: q.requester.as_ref().is_some_and(Requester::awaits_response),
        left: q.requester.as_ref().map_or(Time::ZERO, Requester::last_departure),
        due: q.requester.as_ref().and_then(Requester::next_deadline),
        amid_message: q.requester.as_ref().is_some_and(Requester::amid_message),
        stands: None,
        acknowledged: q.acknowledged,
        counters: q.hw_counters(),
        requests,
        answers,
        late_requests,
        late_answers,
        answers_under_way: them.map_or(0, |them| of_all.under_way_of(them, false)),
        requests_under_way: of_all.under_way_of(me, true),
        peer: peer(world, s, (host, q), at),
        // A run may end at its limit while a fault puts all events off: it has fired after the
        // last one that came.
        troubles: troubles(s, world, &[host, q.peer.0], (began, died.unwrap_or(Time::MAX))),
        to_come: to_come(s, world, &[host, q.peer.0]),
        device_fault: fault_of_device(s, world, (host, q, at), why),
        early: early(world, host, q),
        longest_answer: of_all.longest_answer,
        overran: match why {
            Some(Why::CqOverrun(cq)) => nic.cq(cq).map(CompletionQueue::depth),
            _ => None,
        },
        small_link: small_link::of(world, point, host, q),
        round_trip: round_trip(world, host, q),
        end: world.now(),
    }
}

/// The fault that made the NIC give the queue pair up, or stop.
fn fault_of_device(
    s: &Scenario,
    world: &World,
    (host, q, at): (u32, &NicQp, Time),
    why: Option<Why>,
) -> Option<(String, FaultKind)> {
    match why {
        Some(Why::Stopped { threshold, .. }) => stopping_fault(s, world, (host, threshold), at),
        _ => device_fault(s, world, (host, q.qpn.value()), at),
    }
}

/// What became of the packets of a queue pair and its peer.
fn split(
    world: &World,
    scenario: &Scenario,
    (me, them): (Sender, Option<Sender>),
    (q, standing, died): (&NicQp, Option<Standing>, Option<Time>),
) -> Split {
    let rc = world.hosts()[me.host.index()].nic(me.port.index()).rc_config();
    // Half of the timer's least interval: packets wait in queues, some longer than others.
    let timer = rc.timeout_mode.interval(q.attr.timeout, 0);
    let pair = Pair {
        world,
        scenario,
        me,
        them,
        ways: ways(world, me.host.0, q),
        ack_bytes: rc.wire_bytes(Opcode::RcAcknowledge, 0).into(),
        apart: timer.map_or(Span::ZERO, |i| Span::from_ps(i.least.as_ps() / 2)),
    };
    let since = q.accepts_since.unwrap_or(Time::ZERO);
    pair.split(standing.map(|s| (s.una, s.next)), since, died)
}

/// The ways of a queue pair and its peer, each side's by its own source port. No links where there
/// is no way.
fn ways(world: &World, host: u32, q: &NicQp) -> Ways {
    let (here, there) = ((HostId(host), Nic::port_of(q.qpn)), (q.peer, q.peer_port));
    let nic = world.hosts()[q.peer.index()].nic(q.peer_port.index());
    let peer = nic.own_qp_index(q.attr.dest_qpn).and_then(|i| nic.qp(i));
    let way = |from, to, q: Option<&NicQp>| {
        world.fabric().way(from, to, q.map_or(0, |q| q.udp_source_port)).unwrap_or_default()
    };
    Ways { there: way(here, there, Some(q)), back: way(there, here, peer) }
}

/// What a full packet of a queue pair and its ACK take over the links of their ways, when nobody
/// else is there. What hosts add is not in it.
pub(in crate::run) fn round_trip(world: &World, host: u32, q: &NicQp) -> Span {
    let rc = world.hosts()[host as usize].nic(Nic::port_of(q.qpn).index()).rc_config();
    let packet = rc.wire_bytes(Opcode::RcRdmaWriteMiddle, rc.payload_of(q.attr.path_mtu));
    let ack = rc.wire_bytes(Opcode::RcAcknowledge, 0);
    let over = |way: &[Hop], bytes: u32| time_alone(way, bytes.into(), bytes.into());
    let ways = ways(world, host, q);
    over(&ways.there, packet) + over(&ways.back, ack)
}

/// The peer, as far as it matters at the time of the death.
fn peer(world: &World, s: &Scenario, (host, q): (u32, &NicQp), at: Time) -> Peer {
    let there = &world.hosts()[q.peer.index()];
    let nic = there.nic(q.peer_port.index());
    let index = nic.own_qp_index(q.attr.dest_qpn);
    let found = index.and_then(|i| Some((i, nic.qp(i)?)));
    let death = |p: &'_ NicQp| p.death.as_deref().filter(|d| d.at <= at).cloned();
    let qp = found.map(|(_, p)| PeerQp {
        state: p.state,
        death: death(p).map(|d| (d.at, d.why, d.ended.map(|e| e.status))),
        memory: death(p).and_then(|d| d.memory),
        attr: p.attr,
        dest_host: p.peer.0,
        accepts_since: p.accepts_since,
        reset_at: p.reset_at,
        expected_psn: p.responder.as_ref().map(|r| r.expected_psn().value()),
        requests: p.stats.rx_requests,
        last_request: p.last_request,
        receives: p.srq.and_then(|srq| nic.srq(srq)).unwrap_or(&p.rq).len(),
        fill_at_rnr: p.fill_at_rnr,
        page_fault_naks: p.stats.page_fault_naks,
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
    let dead_since = there.is_dead().then(|| dead_since(s, world, q.peer.0)).flatten();
    Peer { host: q.peer.0, dead_since, qpn: q.attr.dest_qpn, qp, counterpart }
}
