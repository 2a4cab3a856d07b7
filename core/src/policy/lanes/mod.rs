//! Lanes: queue pairs per message class, per peer and per core, striped and paced.

mod config;
mod error;
mod member;
#[cfg(test)]
mod tests;

pub use config::{FlowLabels, LaneConfig, LaneQp, LanesConfig, MAX_LANE_QPS, Spread};
pub use error::{LaneError, LaneRingError, LanesError};

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use crate::transport::{Completion, QpCaps, QpId, SendOp, SendWr, StageError, Transport};
use crate::units::Time;

use super::{
    BatchStats, CqBudget, CqShare, Cue, InlineChoice, PaceConfig, Pacer, PushError, Pushed, Sender,
};
use member::Member;

/// Where a message goes.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct To {
    /// The lane.
    pub lane: u32,
    /// The peer.
    pub peer: u32,
    /// The flow, for [`Spread::Ordered`]; of no meaning to the others.
    pub flow: u64,
}

/// How a message went.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Sent {
    /// The queue pair that took it.
    pub qp: QpId,
    /// What else the push did on that queue pair.
    pub pushed: Pushed,
}

/// What a completion told.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Told {
    /// The lane,
    pub lane: u32,
    /// the peer, and
    pub peer: u32,
    /// the place in the stripe of the queue pair.
    pub member: u32,
    /// Work requests that it is the first to tell of, in the order of their pushes on that queue
    /// pair.
    pub retired: u32,
}

/// The stripes of one lane on this core.
#[derive(Debug)]
struct Lane {
    /// The core that has it, where that is another one.
    elsewhere: Option<u32>,
    spread: Spread,
    /// First of its members, and how many there are for each peer.
    first: usize,
    qps: usize,
    inline: InlineChoice,
    /// For each peer, the member whose turn it is.
    turn: Box<[u32]>,
    pacer: Option<Pacer>,
    /// For each peer; none without a pace.
    peer_pacers: Box<[Pacer]>,
}

/// The lanes of one core: for each class of messages and each peer a stripe of queue pairs.
///
/// Each queue pair has a [`Sender`], which does all of the accounting; this decides which of them
/// takes a message, and when its pace lets it go.
///
/// # Order
///
/// - On one queue pair work requests are executed in the order of the pushes, and completions come
///   in that order.
/// - So are those of one flow in a lane with [`Spread::Ordered`], towards one peer, since they all
///   go by one queue pair.
/// - Across a stripe with another spread nothing is promised, not even between two messages of one
///   flow; nor are lanes, peers or cores in any order among each other. A message that must come
///   behind another one, a flag behind its data say, belongs on the same queue pair, or is pushed
///   when the other has completed.
///
/// # Queue pairs
///
/// [`LanesConfig::qps`] lists what has to be created, with service levels and flow labels for the
/// address vectors; for connected services, since a datagram names its destination itself. A queue
/// pair that fails is reported by its completions, and by each push that meets it
/// ([`LaneError::Push`] names it): the others go on.
#[derive(Debug)]
pub struct Lanes {
    peers: u32,
    lanes: Box<[Lane]>,
    members: Box<[Member]>,
    /// Member by the index of the queue pair's handle.
    by_qp: Box<[u32]>,
    /// Members that may hold something.
    holding: Vec<u32>,
}

/// No member.
const NOBODY: u32 = u32::MAX;

impl Lanes {
    /// The lanes of `core`, on the queue pairs of [`LanesConfig::qps`] in that order, with what was
    /// granted to each. Takes from `budget` an entry for each work request that may be outstanding.
    /// Buckets are full at `now`.
    ///
    /// # Errors
    /// See [`LanesError`]; the budget is as before.
    pub fn new(
        config: &LanesConfig<'_>,
        core: u32,
        qps: &[(QpId, QpCaps)],
        budget: &mut CqBudget,
        now: Time,
    ) -> Result<Self, LanesError> {
        config.check(core)?;
        let (got, need) = (qps.len() as u32, config.qps(core).count() as u32);
        if got != need {
            return Err(LanesError::Qps { got, need });
        }
        let by_qp = by_handle(qps)?;
        let mut members = Vec::with_capacity(qps.len());
        for (plan, (qp, caps)) in config.qps(core).zip(qps) {
            let lane = &config.lanes[plan.lane as usize];
            let wished = lane.sender.window.max_wrs;
            let entries = if wished == 0 { caps.max_send_wr } else { wished.min(caps.max_send_wr) };
            match budget.take(entries) {
                Ok(share) => {
                    let sender = Sender::new(lane.sender, *qp, caps, share);
                    let by_bytes = lane.spread == Spread::LeastBytes;
                    members.push(Member::new(
                        sender,
                        (plan.lane, plan.peer, plan.member),
                        by_bytes,
                    ));
                }
                Err(e) => {
                    members.into_iter().for_each(|m| budget.give_back(m.sender.into_share()));
                    return Err(LanesError::Cq(e));
                }
            }
        }
        let mut first = 0;
        let lanes = config.lanes.iter().map(|l| {
            let here = l.core.is_none_or(|c| c == core);
            let count = if here { l.qps as usize * config.peers as usize } else { 0 };
            let caps = &qps[first..first + count];
            let lane = Lane::new(l, config.peers, here, first, caps, now);
            first += count;
            lane
        });
        let lanes = lanes.collect();
        let holding = Vec::with_capacity(members.len());
        Ok(Self { peers: config.peers, lanes, members: members.into(), by_qp, holding })
    }

    /// What goes inline in a lane; `None` for a lane that is not there.
    pub fn inline(&self, lane: u32) -> Option<InlineChoice> {
        self.lanes.get(lane as usize).map(|l| l.inline)
    }

    /// The senders of a stripe, by their places: what they have outstanding, and what they rang.
    /// Empty for one that is not there.
    pub fn stripe(&self, lane: u32, peer: u32) -> impl Iterator<Item = &Sender> {
        self.range(lane, peer).map_or(&[][..], |r| &self.members[r]).iter().map(|m| &m.sender)
    }

    /// What was rung on all queue pairs of a lane.
    pub fn stats(&self, lane: u32) -> BatchStats {
        let mut sum = BatchStats::default();
        let its = self.members.iter().filter(|m| m.lane == lane);
        its.for_each(|m| sum += m.sender.stats());
        sum
    }

    /// When the pace lets a message of `bytes` go, if nothing goes before; `now` where there is no
    /// pace.
    pub fn ready(&self, now: Time, to: To, bytes: u64) -> Time {
        let Some(lane) = self.lanes.get(to.lane as usize) else { return now };
        let peer = lane.peer_pacers.get(to.peer as usize);
        let ready = |p: &Pacer| p.ready(now, bytes);
        lane.pacer.iter().chain(peer).map(ready).max().unwrap_or(now)
    }

    /// Stages a message on a queue pair of its stripe, and rings when it is time. One that has to
    /// wait for its pace rings for what its lane holds: else a batch would go at once what the pace
    /// has spread, and no more than its burst may.
    ///
    /// # Errors
    /// See [`LaneError`]. `Paced` and `Full` are back-pressure.
    #[inline]
    pub fn push(
        &mut self,
        t: &mut impl Transport,
        now: Time,
        to: To,
        wr: &SendWr<'_>,
        cue: Cue,
    ) -> Result<Sent, LaneError> {
        let Some(stripe) = self.range(to.lane, to.peer) else { return Err(self.nowhere(to)) };
        let bytes = wr.data.len();
        let paced = self.lanes[to.lane as usize].is_paced();
        if paced {
            let until = self.ready(now, to, bytes);
            if until > now {
                self.ring_lane(t, to.lane).map_err(LaneError::Ring)?;
                return Err(LaneError::Paced { until });
            }
        }
        let Some(place) = self.choose(to, stripe.clone(), wr) else {
            return Err(self.full(t, to, stripe));
        };
        let at = stripe.start + place;
        let m = &mut self.members[at];
        let qp = m.sender.qp();
        let pushed = m.sender.push(t, now, wr, cue);
        let staged = matches!(pushed, Ok(_) | Err(PushError::Ring { staged: true, .. }));
        if staged {
            m.staged(bytes);
        }
        m.follow();
        if m.sender.held() > 0 && !m.listed {
            m.listed = true;
            self.holding.push(at as u32);
        }
        if staged {
            let lane = &mut self.lanes[to.lane as usize];
            if lane.qps > 1 {
                let next = place + 1;
                lane.turn[to.peer as usize] = if next == lane.qps { 0 } else { next as u32 };
            }
            if paced {
                let peer = lane.peer_pacers.get_mut(to.peer as usize);
                lane.pacer.iter_mut().chain(peer).for_each(|p| p.sent(now, bytes));
            }
        }
        pushed.map(|pushed| Sent { qp, pushed }).map_err(|error| LaneError::Push { qp, error })
    }

    /// Gives a lane other paces, from `now` on; what was sent before still counts where there was a
    /// pace before. A pace that the lane had not begins with a full bucket, and one for each peer
    /// takes memory.
    ///
    /// # Errors
    /// [`LaneError::NoSuchLane`], [`LaneError::Pace`]; nothing changed.
    pub fn set_pace(
        &mut self,
        lane: u32,
        pace: Option<PaceConfig>,
        peer_pace: Option<PaceConfig>,
        now: Time,
    ) -> Result<(), LaneError> {
        let (lanes, peers) = (self.lanes.len() as u32, self.peers as usize);
        let Some(l) = self.lanes.get_mut(lane as usize) else {
            return Err(LaneError::NoSuchLane { got: lane, lanes });
        };
        for config in [pace, peer_pace].iter().flatten() {
            config.check().map_err(|error| LaneError::Pace { lane, error })?;
        }
        let full = |config| Pacer::new(config, now).expect("checked");
        let turned = |p: &mut Pacer, config| p.set(config, now).expect("checked");
        match (&mut l.pacer, pace) {
            (Some(p), Some(config)) => turned(p, config),
            (p, pace) => *p = pace.map(full),
        }
        let had = !l.peer_pacers.is_empty();
        match peer_pace {
            Some(config) if had => l.peer_pacers.iter_mut().for_each(|p| turned(p, config)),
            Some(_) if l.elsewhere.is_some() => {}
            config => l.peer_pacers = config.map_or(Vec::new(), |c| vec![full(c); peers]).into(),
        }
        Ok(())
    }

    /// When [`tick`](Lanes::tick) has to be called; `None` while nothing is held.
    pub fn deadline(&self) -> Option<Time> {
        self.holding.iter().filter_map(|i| self.members[*i as usize].sender.deadline()).min()
    }

    /// Rings on each queue pair whose oldest WQE is due. Gives the time of the next call, if one is
    /// needed.
    ///
    /// # Errors
    /// The first ring that failed, of the queue pair that is named; call again for the others.
    pub fn tick(
        &mut self,
        t: &mut impl Transport,
        now: Time,
    ) -> Result<Option<Time>, LaneRingError> {
        let mut at = 0;
        while let Some(&i) = self.holding.get(at) {
            let m = &mut self.members[i as usize];
            let ticked = m.sender.tick(t, now);
            m.follow();
            if m.sender.held() == 0 {
                m.listed = false;
                self.holding.swap_remove(at);
            } else {
                at += 1;
            }
            if let Err(error) = ticked {
                return Err(LaneRingError { qp: self.members[i as usize].sender.qp(), error });
            }
        }
        Ok(self.deadline())
    }

    /// Rings for everything that is held.
    ///
    /// # Errors
    /// As of [`tick`](Lanes::tick).
    pub fn flush(&mut self, t: &mut impl Transport) -> Result<(), LaneRingError> {
        while let Some(i) = self.holding.pop() {
            let m = &mut self.members[i as usize];
            m.listed = false;
            let flushed = m.sender.flush(t);
            m.follow();
            flushed.map_err(|error| LaneRingError { qp: m.sender.qp(), error })?;
        }
        Ok(())
    }

    /// Rings for everything that a lane holds.
    #[cold]
    fn ring_lane(&mut self, t: &mut impl Transport, lane: u32) -> Result<(), LaneRingError> {
        for i in &self.holding {
            let m = &mut self.members[*i as usize];
            if m.lane == lane && m.sender.held() > 0 {
                let flushed = m.sender.flush(t);
                m.follow();
                flushed.map_err(|error| LaneRingError { qp: m.sender.qp(), error })?;
            }
        }
        Ok(())
    }

    /// Sees to it that completions tell of everything that a lane has outstanding, as at the end of
    /// its messages: [`Sender::confirm`] on each of its queue pairs. Without it a lane that signals
    /// now and then may never hear of the last messages of a queue pair. No pace holds it up.
    ///
    /// # Errors
    /// [`LaneError::NoSuchLane`]; [`LaneError::Push`] names the queue pair. `Full`: call again when
    /// completions were handed over. Those that were served before an error need no other call, and
    /// get none.
    pub fn confirm(
        &mut self,
        t: &mut impl Transport,
        now: Time,
        lane: u32,
        op: SendOp,
    ) -> Result<(), LaneError> {
        if lane as usize >= self.lanes.len() {
            return Err(LaneError::NoSuchLane { got: lane, lanes: self.lanes.len() as u32 });
        }
        for m in self.members.iter_mut().filter(|m| m.lane == lane) {
            let confirmed = m.sender.confirm(t, now, op);
            if matches!(confirmed, Ok(true) | Err(PushError::Ring { staged: true, .. })) {
                m.staged(0);
            }
            m.follow();
            match confirmed {
                Ok(_) => {}
                Err(PushError::Refused(StageError::SqFull)) => return Err(LaneError::Full),
                Err(error) => return Err(LaneError::Push { qp: m.sender.qp(), error }),
            }
        }
        Ok(())
    }

    /// Takes note of a completion that was polled at `now`; `None` for one of another queue.
    #[inline]
    pub fn completion(&mut self, c: &Completion, now: Time) -> Option<Told> {
        let (Completion::Send { qp, .. } | Completion::Error { qp, .. }) = *c else { return None };
        let member = *self.by_qp.get(qp.index() as usize)?;
        let m = self.members.get_mut(member as usize).filter(|m| m.sender.qp() == qp)?;
        let retired = m.sender.completion(c, now);
        m.follow();
        Some(Told { lane: m.lane, peer: m.peer, member: m.place, retired })
    }

    /// Ends them, as after their queue pairs were reset or destroyed: gives back their shares of
    /// the completion queue, for [`CqBudget::give_back`].
    pub fn into_shares(self) -> impl Iterator<Item = CqShare> {
        Vec::from(self.members).into_iter().map(|m| m.sender.into_share())
    }

    /// Members of a stripe.
    #[inline]
    fn range(&self, lane: u32, peer: u32) -> Option<core::ops::Range<usize>> {
        let lane = self.lanes.get(lane as usize)?;
        if lane.elsewhere.is_some() || peer >= self.peers {
            return None;
        }
        let first = lane.first + peer as usize * lane.qps;
        Some(first..first + lane.qps)
    }

    #[cold]
    fn nowhere(&self, To { lane, peer, .. }: To) -> LaneError {
        match self.lanes.get(lane as usize) {
            None => LaneError::NoSuchLane { got: lane, lanes: self.lanes.len() as u32 },
            Some(l) => match l.elsewhere {
                Some(core) if peer < self.peers => LaneError::OtherCore { lane, core },
                _ => LaneError::NoSuchPeer { got: peer, peers: self.peers },
            },
        }
    }

    /// The place in the stripe of the queue pair that takes it; `None` when those that may are
    /// full.
    #[inline]
    fn choose(&self, to: To, stripe: core::ops::Range<usize>, wr: &SendWr<'_>) -> Option<usize> {
        let lane = &self.lanes[to.lane as usize];
        let members = &self.members[stripe];
        let fits = |i: &usize| members[*i].sender.fits(wr);
        if let [only] = members {
            return only.sender.fits(wr).then_some(0);
        }
        let (n, turn) = (members.len(), lane.turn[to.peer as usize] as usize);
        let mut in_turn = (turn..n).chain(0..turn).filter(fits);
        match lane.spread {
            Spread::Ordered => Some((to.flow % n as u64) as usize).filter(fits),
            Spread::RoundRobin => in_turn.next(),
            Spread::LeastBytes => in_turn.min_by_key(|i| members[*i].bytes()),
        }
    }

    /// What is held by those that could take it goes where it alone keeps them full.
    #[cold]
    fn full(
        &mut self,
        t: &mut impl Transport,
        to: To,
        stripe: core::ops::Range<usize>,
    ) -> LaneError {
        let own = stripe.start + (to.flow % stripe.len() as u64) as usize;
        let ordered = self.lanes[to.lane as usize].spread == Spread::Ordered;
        for m in &mut self.members[if ordered { own..own + 1 } else { stripe }] {
            let rang = m.sender.make_room(t);
            m.follow();
            if let Err(error) = rang {
                return LaneError::Ring(LaneRingError { qp: m.sender.qp(), error });
            }
        }
        LaneError::Full
    }
}

impl Lane {
    /// Whether it has a pace.
    #[inline]
    fn is_paced(&self) -> bool {
        self.pacer.is_some() || !self.peer_pacers.is_empty()
    }

    /// A lane whose members begin at `first`, with what was granted to them.
    fn new(
        l: &LaneConfig,
        peers: u32,
        here: bool,
        first: usize,
        granted: &[(QpId, QpCaps)],
        now: Time,
    ) -> Self {
        // A message's form is chosen before its queue pair is: what all of them take.
        let least = granted.iter().min_by_key(|(_, caps)| caps.max_inline);
        let inline = least.map(|(_, caps)| InlineChoice::new(l.inline, caps)).unwrap_or_default();
        let pacer = |c| Pacer::new(c, now).expect("checked");
        let buckets = if here { peers as usize } else { 0 };
        Self {
            elsewhere: l.core.filter(|_| !here),
            spread: l.spread,
            first,
            qps: l.qps as usize,
            inline,
            turn: vec![0; buckets].into(),
            pacer: l.pace.map(pacer),
            peer_pacers: l.peer_pace.map_or(Vec::new(), |c| vec![pacer(c); buckets]).into(),
        }
    }
}

/// Places of queue pairs in the list, by the index of their handles.
fn by_handle(qps: &[(QpId, QpCaps)]) -> Result<Box<[u32]>, LanesError> {
    let most = qps.iter().map(|(qp, _)| qp.index() as usize + 1).max().unwrap_or(0);
    let mut by_qp = vec![NOBODY; most];
    for (at, (qp, _)) in (0..).zip(qps) {
        let slot = &mut by_qp[qp.index() as usize];
        if *slot != NOBODY {
            return Err(LanesError::Twice { at });
        }
        *slot = at;
    }
    Ok(by_qp.into())
}
