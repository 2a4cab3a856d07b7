//! Two-hop aggregation: many vectors become one sum.
//!
//! Members contribute a vector each. In a [`Plan`] everybody sends to an aggregator near by, the
//! aggregators send what they have summed to a root, and the sum comes back on the same way: links
//! between groups carry one vector per group, not one per member. The same state machine runs
//! direct plans (one hop), rings, and two levels (groups, then a ring over them), for comparison.
//!
//! # How it works
//!
//! The vector is cut into [`Chunks`], dealt to the lanes of the plan. Every lane is a tree. A
//! member adds its children's contributions to its own chunk, in place, sends the chunk to its
//! parent when all have come, and has the sum written back into the same place. So hops overlap:
//! while one chunk is on the second hop, later ones are being added and are on the first.
//!
//! A member starts a chunk when the sum of the chunk `window` before it (of the same lane) is here.
//! The sum contains its own contribution, so every buffer that the earlier chunk has used anywhere
//! is free again: that one rule bounds all buffers, and no credit message is needed. It also bounds
//! how far neighbours differ: no member can be more than one round ahead of another.
//!
//! | | Contribution | Buffers of the parent |
//! |---|---|---|
//! | [`Method::Send`] | SEND with immediate | a pool behind a shared receive queue |
//! | [`Method::Write`] | WRITE with immediate | `window` slots per child and lane |
//! | [`Method::Read`] | SEND without payload, then a READ by the parent | the same slots |
//!
//! Sums always come by WRITE with immediate, over a queue pair of their own: a pool that is too
//! small can make contributions wait, never sums, so it cannot stop the flow for good.
//!
//! # What it promises
//!
//! - [`Progress::Complete`] means: the region holds the complete sum of the round, every member's
//!   vector in it exactly once, and no work request names the region any more. (With
//!   `broadcast = false` that is so at the roots, each for its lanes. The others know that the sum
//!   is complete, and their own region means nothing.)
//! - Otherwise a step returns an [`AggregateError`] that names a member and a cause, at the latest
//!   when the program steps at the deadline that [`Progress::Wait`] has named, which is never later
//!   than `round_deadline` after [`Aggregate::begin`]. There is no partial sum: the region means
//!   nothing then, and every later call returns the same error. Only where
//!   [`Aggregate::has_sum`] says so it holds the complete sum, and what is missing is that
//!   somebody confirms what it has got of it.
//! - Integers, and floats in [`Order::Fixed`], have the same bits on every back end.
//!
//! Members may end differently: if an aggregator dies after it has sent the sum to some of its
//! members and before it has to the others, the first have the sum and the others an error. Nothing
//! that ends in bounded time can exclude that. Who gives up tells its neighbours, so that an error
//! spreads faster than the deadlines; a member that has its sum by then keeps it.
//!
//! All that end with an error name the one that is gone, a host that died or a program that stopped
//! on a host that lives, once all are connected and if `round_deadline` is three chunk deadlines or
//! more: who waits for others itself says so to those who may wait for it (a WRITE of 8 bytes every
//! quarter of `chunk_deadline`, and none in a round that takes less), and is not taken for the
//! cause. Of two that are gone either may be named. With a [`AggregateConfig::pool`] a parent
//! without a receive may be taken for gone.
//!
//! # Going on without a member
//!
//! An error ends an aggregation for good. Survivors that want to go on open another one by
//! [`Plan::without`] the member that the error names ([`AggregateError::culprit`]) and
//! [`AggregateConfig::after`] the rounds that are complete, and close the failed one when the new
//! one is connected: its last words tell neighbours whom it names, and would be lost with its queue
//! pairs. A member that had its sum before the error spread is a round ahead of one that had not:
//! when all are connected, [`Aggregate::first_round`] says with which round all go on, the lowest
//! that anybody has not complete. They fill their vectors for that round again, since the region
//! means nothing; who was ahead has a second sum of it, which takes the place of the first. The
//! new one's sums are those of the survivors, and [`Aggregate::absent`] says whom they lack: a sum
//! is never partial without a word.
//!
//! Going on fails, with a named error after `connect_deadline` at the latest, where
//!
//! - a member has completed its last round and ended without an error while others lack the sum:
//!   nobody can tell that from a second death ([`AggregateError::NoPeer`], or a bootstrap that says
//!   it has ended). One that has the sum and an error can still connect, and help the others;
//! - members do not agree on who is gone ([`AggregateError::Mismatch`]): two have died, or the
//!   connection of two that live is lost and each names the other.
//!
//! # Use
//!
//! [`Aggregate::open`], [`Aggregate::connect`] until it is complete; then per round: fill
//! [`Aggregate::vector`], [`Aggregate::begin`], [`Aggregate::step`] until it is complete.
//!
//! ```
//! use doorbell_core::ideal::{Ideal, Step, run};
//! use doorbell_core::policy::aggregate::*;
//! use doorbell_core::transport::*;
//!
//! /// One member. It contributes one number, its rank plus one.
//! struct Member {
//!     plan: Plan,
//!     state: Option<Aggregate>,
//!     running: bool,
//!     sum: u64,
//! }
//!
//! impl Member {
//!     fn go_on<T: Control>(&mut self, t: &mut T) -> Result<Option<Next>, AggregateError> {
//!         let config =
//!             AggregateConfig { bytes: 8, op: Reduce::SumI64, ..AggregateConfig::default() };
//!         let state = match &mut self.state {
//!             Some(state) => state,
//!             None => self.state.insert(Aggregate::open(t, config, &self.plan)?),
//!         };
//!         if !self.running {
//!             if let Some(next) = state.connect(t)?.next() {
//!                 return Ok(Some(next));
//!             }
//!             let own = u64::from(t.rank()) + 1;
//!             t.store_u64(state.vector(), own)?;
//!             state.begin(t.now())?;
//!             self.running = true;
//!         }
//!         let next = state.step(t)?.next();
//!         if next.is_none() {
//!             self.sum = t.load_u64(state.vector())?;
//!         }
//!         Ok(next)
//!     }
//! }
//!
//! impl Program for Member {
//!     fn step<T: Control>(&mut self, t: &mut T) -> Next {
//!         self.go_on(t).expect("nothing goes wrong here").unwrap_or(Next::Done)
//!     }
//! }
//!
//! // Two racks of two; the first of each sums for its rack.
//! let plan = Plan::two_hop(&Group::by_place(&[0, 0, 1, 1], 8, 1), 1).unwrap();
//! let member = |_| Member { plan: plan.clone(), state: None, running: false, sum: 0 };
//! let mut members: Vec<Member> = (0..4).map(member).collect();
//! let mut steps: Vec<&mut dyn Step> = members.iter_mut().map(|m| m as &mut dyn Step).collect();
//! run(&mut Ideal::new(4), &mut steps).unwrap();
//! assert!(members.iter().all(|m| m.sum == 1 + 2 + 3 + 4));
//! ```

mod agree;
mod chunks;
mod config;
mod error;
mod hop;
mod open;
mod plan;
mod receive;
mod reduce;
pub mod sparse;
#[cfg(test)]
mod tests;

pub use chunks::{Chunks, MAX_CHUNKS, Place};
pub use config::{AggregateConfig, ConfigError, Method};
pub use error::AggregateError;
pub use plan::{Group, Inside, Load, MAX_LANES, Plan, PlanError};
pub use reduce::{Order, Tally};

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use agree::Agreement;

use crate::policy::mesh::{Class, Mesh, Waits};
use crate::transport::{Control, DestroyError, Next, Range, RecvWr, Transport, WaitSet};
use crate::units::{Span, Time};

/// What a step has come to.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Progress {
    /// There is more to do at once.
    Again,
    /// Step again when a source is ready, at the latest at the deadline.
    Wait {
        /// Sources.
        on: WaitSet,
        /// Deadline.
        until: Time,
    },
    /// Done: all are connected, or the sum is here.
    Complete,
}

impl Progress {
    /// What a program that does nothing else returns from its step; `None` when it is complete.
    pub fn next(self) -> Option<Next> {
        match self {
            Self::Again => Some(Next::Again),
            Self::Wait { on, until } => Some(Next::Wait { on, until: Some(until) }),
            Self::Complete => None,
        }
    }
}

/// What one member needs of its device and memory.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Needs {
    /// Bytes of its region.
    pub bytes: u64,
    /// Entries of its completion queue: all that can be outstanding at once.
    pub completions: u32,
    /// Receives of its shared queue.
    pub receives: u32,
}

/// What a member has done. Counters saturate.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct AggregateStats {
    /// Rounds that are complete, with one that an error has ended after the sum was here.
    pub rounds: u64,
    /// Contributions of children that it has added.
    pub added: u64,
    /// Their bytes.
    pub added_bytes: u64,
    /// Chunks and announcements that it has sent, both ways.
    pub sent: u64,
    /// READs that it has posted.
    pub reads: u64,
}

/// A child of a lane.
#[derive(Clone, Debug)]
struct Child {
    /// Its connection.
    channel: usize,
    /// Place of its first slot, in slots; those of the lane follow.
    slot: u64,
    /// Messages that have come: contributions, or announcements of them.
    heard: u64,
    /// READs that were posted.
    read: u64,
    /// Buffers of the pool that hold contributions, oldest first.
    held: VecDeque<u32>,
}

/// To whom sums go, and how many have gone.
#[derive(Clone, Debug)]
struct Sink {
    channel: usize,
    passed: u64,
}

/// One lane. Numbers count chunks of the lane since the first round.
#[derive(Clone, Debug)]
struct Lane {
    /// Connection to the parent, and place of our slots there, in slots.
    parent: Option<(usize, u64)>,
    /// Connection to the source.
    source: Option<usize>,
    sinks: Vec<Sink>,
    children: Vec<Child>,
    tally: Tally,
    /// Chunks that have gone to the parent.
    sent: u64,
    /// Chunks whose sum is here.
    done: u64,
    /// When the last one came, or the round began.
    since: Time,
    patience: Patience,
}

/// How often the deadline of a chunk a member waits. Who stands closer to a member that is missing
/// gives up first, and names it; the others hear of it before they would blame the messenger.
#[derive(Copy, Clone, Debug)]
struct Patience {
    /// For a contribution: hops below.
    below: u32,
    /// For the sum: hops of contributions to the root, and of the sum to here.
    above: u32,
}

/// One member. See the module.
#[derive(Clone, Debug)]
pub struct Aggregate {
    config: AggregateConfig,
    /// Its region holds the vector, then the buffers.
    mesh: Mesh,
    /// Ranks without a part in it.
    absent: Vec<u32>,
    cut: Chunks,
    /// `window`, no more than a lane has chunks.
    window: u64,
    /// Where the buffers begin, and the distance of two of them.
    buffers: u64,
    stride: u64,
    lanes: Vec<Lane>,
    agreement: Agreement,
    /// Rounds begun, and the start of the last one.
    rounds: u64,
    began: Time,
    /// Lane that is looked at first for something to add.
    turn: usize,
    /// Receives for contributions that have to be posted again.
    free: Vec<RecvWr>,
    /// Announced chunks that were not read yet: lane and child, oldest first.
    pulls: VecDeque<(u32, u32)>,
    reading: u32,
    stats: AggregateStats,
}

impl Aggregate {
    /// The vector in memory: fill it before a round, read it after. In between it belongs to the
    /// transport.
    pub fn vector(&self) -> Range {
        self.mesh.mr.range(0, self.cut.bytes()).expect("the region begins with it")
    }

    /// The cut of the vector.
    pub fn cut(&self) -> &Chunks {
        &self.cut
    }

    /// Ranks that its sums lack: those that the plan goes on without.
    pub fn absent(&self) -> &[u32] {
        &self.absent
    }

    /// Number of its first round, once all are connected: that of the settings, or, of members
    /// that go on without others, the lowest that one of them has. Fill the vector for that one.
    pub const fn first_round(&self) -> u64 {
        self.agreement.first_round()
    }

    /// What it has done.
    pub fn stats(&self) -> AggregateStats {
        self.stats
    }

    /// How often it has rung for what it has sent.
    pub fn rings(&self) -> u64 {
        self.mesh.rings()
    }

    /// Whether the sum of the round is here, though peers may not have confirmed what they got of
    /// it. So it is after an error too: the region holds the sum until the member is closed. At a
    /// member without the sum: whether it knows that it is complete.
    pub fn has_sum(&self) -> bool {
        (0..self.lanes.len()).all(|lane| self.lanes[lane].done == self.limit(lane))
    }

    /// Starts a round with what the vector holds. Nothing is sent before the next step.
    ///
    /// # Errors
    /// [`AggregateError::Busy`] while a round is under way; the error that ended an earlier one.
    pub fn begin(&mut self, now: Time) -> Result<(), AggregateError> {
        self.mesh.check()?;
        if !self.mesh.is_open() || !self.agreement.is_done() || !self.is_complete() {
            return Err(AggregateError::Busy);
        }
        self.rounds += 1;
        self.began = now;
        self.lanes.iter_mut().for_each(|l| l.since = now);
        Ok(())
    }

    /// Goes as far as possible: takes what has come, sends what may go, adds one contribution.
    ///
    /// # Errors
    /// What ends the round, and every round after it.
    pub fn step<T: Transport>(&mut self, t: &mut T) -> Result<Progress, AggregateError> {
        self.mesh.check()?;
        let end = self.advance(t).map_err(|e| self.excuse(e));
        end.inspect_err(|e| {
            if self.has_sum() {
                self.stats.rounds = self.rounds;
            }
            self.mesh.fail(t, *e);
        })
    }

    fn advance<T: Transport>(&mut self, t: &mut T) -> Result<Progress, AggregateError> {
        let now = t.now();
        self.receive(t, now)?;
        // Sums and reads first: others wait for them, and adding takes time.
        self.send(t, now)?;
        let added = self.add_one(t)?;
        if added {
            self.send(t, now)?;
        }
        if self.is_complete() {
            self.stats.rounds = self.rounds;
            return Ok(Progress::Complete);
        }
        let after = Span::from_ps(self.config.chunk_deadline.as_ps() / 4);
        let look = self.mesh.look(t, (now, self.began), after)?;
        let until = self.check_deadlines(now)?.min(look);
        let waits = self.waits(Time::from_ps(now.as_ps().saturating_sub(after.as_ps())));
        let probe = self.mesh.probe(t, (now, self.began), after, waits)?;
        let until = probe.map_or(until, |probe| probe.min(until));
        match added || self.mesh.has_more() {
            true => Ok(Progress::Again),
            false => Ok(Progress::Wait { on: WaitSet::cq(self.mesh.cq), until }),
        }
    }

    /// Chunks of a lane that belong to rounds which have begun.
    fn limit(&self, lane: usize) -> u64 {
        self.rounds * self.cut.of_lane(lane as u32)
    }

    /// Everything has come, was passed on, and no work request names the memory any more.
    fn is_complete(&self) -> bool {
        let passed = |l: &Lane| l.sinks.iter().all(|s| s.passed == l.done);
        self.has_sum() && self.lanes.iter().all(passed) && self.mesh.is_idle()
    }

    /// The next deadline, if none has passed.
    fn check_deadlines(&self, now: Time) -> Result<Time, AggregateError> {
        let of_round = self.began + self.config.round_deadline;
        let open = (0..self.lanes.len()).filter(|i| self.lanes[*i].done < self.limit(*i));
        let first = open.map(|i| (self.deadline_of(i), i)).min();
        let until = first.map_or(of_round, |(of_chunk, _)| of_chunk.min(of_round));
        let silent = self.mesh.silent(|class| self.confirms(class));
        let of_peer = silent.map(|(since, at)| (since + self.config.chunk_deadline, at));
        let until = of_peer.map_or(until, |(of_peer, _)| of_peer.min(until));
        if now < until {
            return Ok(until);
        }
        // Silence is the better reason: it is the peer's own.
        let silent = of_peer.filter(|(of_peer, _)| *of_peer <= now || first.is_none());
        Err(match (silent, first) {
            (Some((_, channel)), _) => self.unconfirmed(channel),
            (None, Some((_, lane))) => self.late(lane),
            (None, None) => self.unfinished(),
        })
    }

    /// Whether peers of a class confirm what they get without a program's help.
    fn confirms(&self, class: Class) -> bool {
        class != Class::ToParent || self.config.pool.is_none()
    }

    /// When the oldest chunk of a lane has to be complete.
    fn deadline_of(&self, lane: usize) -> Time {
        let l = &self.lanes[lane];
        let times = match l.tally.missing(l.done) {
            Some(_) => l.patience.below,
            None => l.patience.above,
        };
        // Who has contributed nothing to this round may still be in the last one, where another
        // lane keeps it: it is given time to say so.
        let more = u32::from(self.lanes.len() > 1 && self.is_first(lane));
        let (chunk, round) = (self.config.chunk_deadline, self.config.round_deadline);
        // Who is next to the cause gives up while the others still have time to hear of it.
        let in_time = (self.began + round.saturating_sub(chunk)).max(l.since + chunk);
        let until = (l.since + chunk * u64::from(times + more)).min(in_time);
        // Who waits for others itself is not the cause.
        let said = self.waited(lane).map(|channel| self.mesh.said(channel));
        said.map_or(until, |said| until.max(said + chunk))
    }

    /// Connection to who keeps the oldest chunk of a lane back; `None` for the own adding.
    fn waited(&self, lane: usize) -> Option<usize> {
        let l = &self.lanes[lane];
        let child = l.tally.missing(l.done).map(|child| l.children[child].channel);
        child.or(l.source).or(l.parent.map(|(channel, _)| channel))
    }

    /// Who keeps something back, or for long a confirmation.
    fn waits(&self, before: Time) -> Waits {
        let open = (0..self.lanes.len()).filter(|i| self.lanes[*i].done < self.limit(*i));
        let channels = open.filter_map(|lane| self.waited(lane));
        let waits = |waits: Waits, c: usize| waits.and(self.mesh.channels[c].peer);
        let waits = channels.fold(Waits::ForNobody, waits);
        self.mesh.owed(waits, before, |class| self.confirms(class))
    }

    /// An error as it is here, where a peer may take this member for the cause.
    fn excuse(&self, e: AggregateError) -> AggregateError {
        let open = (0..self.lanes.len()).filter(|i| self.lanes[*i].done < self.limit(*i));
        let waits = open.filter_map(|lane| Some((self.lanes[lane].since, self.waited(lane)?)));
        self.mesh.excuse(e, self.config.chunk_deadline, waits)
    }

    /// Whether the oldest chunk of a lane is the first one of a round that follows another one.
    fn is_first(&self, lane: usize) -> bool {
        self.rounds > 1 && self.lanes[lane].done + self.cut.of_lane(lane as u32) == self.limit(lane)
    }

    /// Who keeps the oldest chunk of a lane back.
    fn late(&self, lane: usize) -> AggregateError {
        let l = &self.lanes[lane];
        let place = self.cut.at(lane as u32, l.done);
        // At a root to which all have contributed it is the adding that is late, and nobody else.
        let waited = self.waited(lane).map(|channel| self.mesh.channels[channel].peer);
        let rank = waited.unwrap_or(self.mesh.rank);
        AggregateError::Late { rank, chunk: place.chunk, round: place.round }
    }

    /// Who has not confirmed what was sent to it: its way here may be fine, the way there is not.
    fn unconfirmed(&self, channel: usize) -> AggregateError {
        let rank = self.mesh.channels[channel].peer;
        // The oldest chunk of all that is not complete; in the end the last one.
        let open = (0..self.lanes.len()).filter(|lane| self.lanes[*lane].done < self.limit(*lane));
        let open = open.map(|lane| self.cut.at(lane as u32, self.lanes[lane].done).chunk).min();
        let (chunk, round) = (open.unwrap_or(self.cut.count() - 1), self.rounds - 1);
        AggregateError::Late { rank, chunk, round }
    }

    /// The round is at its end, and what is missing are confirmations that may take their time.
    fn unfinished(&self) -> AggregateError {
        let open = self.mesh.channels.iter().position(|c| c.outstanding > 0);
        self.unconfirmed(open.expect("a round without sums to pass on is complete"))
    }

    /// Destroys the objects. Peers that still send get errors.
    ///
    /// # Errors
    /// A queue that somebody else uses too.
    pub fn close<T: Control>(self, t: &mut T) -> Result<(), DestroyError> {
        self.mesh.close(t)
    }
}
