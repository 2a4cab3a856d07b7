//! Every member has bytes for every other one: AllToAll by counts, and tokens for experts.
//!
//! By [`Route::Direct`] each goes from the one that has it to the one that is to have it. By
//! [`Route::TwoHop`] all that a member has for a place (a node) goes to one member there in one
//! piece, the relay, which passes on what is for its neighbours. That is fewer messages between
//! places, by the number of members of a place, and fewer bytes where several members of a place
//! are to have the same ([`Exchange::token`]); it costs a second hop inside.
//!
//! # How it works
//!
//! An [`Exchange`] says who has what for whom; a [`Schedule`] lays it out once: all that one member
//! writes to another one is a stream of pieces, whose place in the receiver's inbox is fixed. So
//! there is nothing to allocate, no matching, no credit: a message is a WRITE with immediate of one
//! or several pieces (the immediate says which), and a relay passes a piece on when what it is
//! made of has come. Its messages are put together from what lies in several places of its inbox
//! by their scatter list, up to [`AllToAllConfig::gather`] pieces or a chunk of bytes.
//!
//! Where several members have parts of a sum for one ([`Exchange::sum`]: a token's experts, for
//! the member whose token it is), relays add what comes from their place, in place, and pass the
//! sum on, so that it crosses once; the member itself adds what is left. What relays wait for waits
//! for nothing: it goes first, in messages of its own, so relays cannot wait for each other.
//!
//! There are two inboxes, used in turn. Every stream has one against it (of a single empty
//! message, if there is nothing to say), so who has completed a round knows that all its peers
//! have begun it, and so do not look at the inbox of the round before it any more: that is the
//! one to which the next round goes.
//!
//! # What it promises
//!
//! - [`Progress::Complete`] means: all that is for this member is in [`AllToAll::inbox`], each
//!   byte once, and no work request names outbox or inbox any more.
//! - Otherwise a step returns an [`AggregateError`] that names a member and a cause, at the latest
//!   when the program steps at the deadline that [`Progress::Wait`] has named, never later than
//!   `hop_deadline` times the hops, and one more, after [`AllToAll::begin`]. What is in the inbox
//!   then means nothing, and every later call returns the same error.
//!
//! Members may end differently: who has all that is for it is done, though another one may miss
//! something of a member that died. All that end with an error name the one that is gone, a host
//! that died or a program that stopped on a host that lives: who waits for others itself says so
//! to those who may wait for it (a WRITE of 8 bytes every quarter of `hop_deadline`, and none in a
//! round that takes less), and is not taken for the cause. Once all are connected that is so of one
//! that is gone; of two, either may be named.
//!
//! # Use
//!
//! [`AllToAll::open`], [`AllToAll::connect`] until it is complete; then per round: fill
//! [`AllToAll::outbox`], [`AllToAll::begin`], [`AllToAll::step`] until it is complete, and read
//! [`AllToAll::inbox`], where [`Schedule::arrivals`] says what is where. What a member has for
//! itself does not move. [`RoundTrip`] has two exchanges take turns: tokens go to their experts,
//! and the sums of what those make of them come back.

mod add;
mod config;
mod open;
mod plan;
mod schedule;
mod sums;
#[cfg(test)]
mod tests;
mod trip;

pub use crate::policy::aggregate::{AggregateError, Needs, Progress};
pub use config::AllToAllConfig;
pub use plan::{Exchange, ExchangeError, Part, Route, Slice, Traffic};
pub use schedule::{Arrival, Schedule};
pub use sums::Total;
pub use trip::RoundTrip;

use alloc::vec::Vec;
use core::cmp::Ordering;

use add::Add;

use crate::policy::aggregate::Place;
use crate::policy::mesh::{Mesh, Tag, Waits};
use crate::transport::{
    Control, Data, DestroyError, Range, RecvQueue, SendOp, SendWr, Sge, Transport, WaitSet,
};
use crate::units::{Span, Time};
use crate::verbs::SendFlags;

/// What a member has done. Counters saturate.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct AllToAllStats {
    /// Rounds that are complete.
    pub rounds: u64,
    /// Messages that it has sent.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Messages of them with something that others had sent here, or a sum of that.
    pub passed: u64,
    /// Their bytes.
    pub passed_bytes: u64,
    /// Bytes of operands that it has added to others.
    pub added_bytes: u64,
}

/// What has to be there before bytes of the inbox can go on.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Need {
    /// So many pieces of a peer.
    Pieces(u32, u32),
    /// The sum of this addition.
    Addition(u32),
}

/// Bytes that are sent together, resolved for this member.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Out {
    len: u32,
    /// Offset in the outbox, or in the inbox.
    at: u64,
    /// Offset in what goes to the peer.
    to: u64,
    /// For the inbox: what it waits for.
    needs: Option<Need>,
}

/// A peer: what goes to it, and what comes from it, in each round.
#[derive(Clone, Debug)]
struct Peer {
    /// Whether something of what it sends is passed on here.
    passed_on: bool,
    out: Vec<Out>,
    /// Distance of its two inboxes.
    stride: u64,
    /// Lengths of the pieces that come from it.
    lens: Vec<u32>,
    /// Pieces sent in this round, and pieces that have come since the first round.
    sent: usize,
    arrived: u64,
}

/// One member. See the module.
#[derive(Clone, Debug)]
pub struct AllToAll {
    config: AllToAllConfig,
    /// Its region holds the outbox, then the two inboxes.
    mesh: Mesh,
    chunk: u32,
    /// Whether a message has only what waits for others, or only what does not.
    apart: bool,
    hops: u32,
    outbox_bytes: u64,
    inbox_bytes: u64,
    /// Where the first inbox begins, and the distance of both.
    inboxes: u64,
    stride: u64,
    /// Those at the other ends of the connections, in the same order.
    peers: Vec<Peer>,
    /// What it adds in a round, and the first of these that may not be done.
    adds: Vec<Add>,
    first_add: usize,
    rounds: u64,
    began: Time,
    /// Elements of the message that is being made.
    sges: Vec<Sge>,
    /// Receives that have to be posted again.
    taken: u32,
    stats: AllToAllStats,
}

impl AllToAll {
    /// What this member has for others: fill it before a round. During a round it belongs to the
    /// transport.
    pub fn outbox(&self) -> Range {
        self.mesh.mr.range(0, self.outbox_bytes).expect("the region begins with it")
    }

    /// What comes in the round that was begun last: read it before the next one begins.
    pub fn inbox(&self) -> Range {
        let at = self.inbox_of(self.rounds.saturating_sub(1));
        self.mesh.mr.range(at, self.inbox_bytes).expect("the region has two")
    }

    const fn inbox_of(&self, round: u64) -> u64 {
        self.inboxes + (round % 2) * self.stride
    }

    /// What it has done.
    pub fn stats(&self) -> AllToAllStats {
        self.stats
    }

    /// How often it has rung for what it has sent.
    pub fn rings(&self) -> u64 {
        self.mesh.rings()
    }

    /// Starts a round with what the outbox holds. Nothing is sent before the next step.
    ///
    /// # Errors
    /// [`AggregateError::Busy`] while a round is under way; the error that ended an earlier one.
    pub fn begin(&mut self, now: Time) -> Result<(), AggregateError> {
        self.mesh.check()?;
        if !self.mesh.is_open() || !self.is_complete() {
            return Err(AggregateError::Busy);
        }
        self.rounds += 1;
        self.began = now;
        self.peers.iter_mut().for_each(|p| p.sent = 0);
        self.adds.iter_mut().for_each(|a| a.next = 0);
        self.first_add = 0;
        Ok(())
    }

    /// Goes as far as possible: takes what has come, sends what may go.
    ///
    /// # Errors
    /// What ends the round, and every round after it.
    pub fn step<T: Transport>(&mut self, t: &mut T) -> Result<Progress, AggregateError> {
        self.mesh.check()?;
        let end = self.advance(t).map_err(|e| self.excuse(e));
        end.inspect_err(|e| self.mesh.fail(t, *e))
    }

    fn advance<T: Transport>(&mut self, t: &mut T) -> Result<Progress, AggregateError> {
        let now = t.now();
        self.receive(t)?;
        self.send_all(t, now)?;
        let added = self.add_one(t)?;
        if added {
            self.send_all(t, now)?;
        }
        if self.is_complete() {
            self.stats.rounds = self.rounds;
            return Ok(Progress::Complete);
        }
        let after = Span::from_ps(self.config.hop_deadline.as_ps() / 4);
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

    fn send_all<T: Transport>(&mut self, t: &mut T, now: Time) -> Result<(), AggregateError> {
        for peer in 0..self.peers.len() {
            self.send(t, now, peer)?;
        }
        Ok(())
    }

    /// Everything has come and has gone, all is added, and no work request names the memory any
    /// more.
    fn is_complete(&self) -> bool {
        let round = self.rounds;
        let all_sent = |p: &Peer| round == 0 || p.sent == p.out.len();
        let all = self.peers.iter().all(|p| p.missing(round) == 0 && all_sent(p));
        all && (round == 0 || self.has_added()) && self.mesh.is_idle()
    }

    /// Sends what may go to a peer, and rings.
    fn send<T: Transport>(
        &mut self,
        t: &mut T,
        now: Time,
        peer: usize,
    ) -> Result<(), AggregateError> {
        loop {
            let channel = &self.mesh.channels[peer];
            let busy = channel.outstanding >= self.config.window || !channel.has_room(t);
            if busy || self.rounds == 0 || !self.gather(peer) {
                break;
            }
            self.push(t, now, peer)?;
        }
        self.mesh.channels[peer].flush(t)
    }

    /// Puts the next message for a peer together, in `sges`; whether there is one to send now.
    fn gather(&mut self, peer: usize) -> bool {
        self.sges.clear();
        let p = &self.peers[peer];
        let mut bytes = 0;
        let waits = p.out.get(p.sent).is_some_and(|first| first.needs.is_some());
        for out in &p.out[p.sent..] {
            let full = self.sges.len() == self.config.gather as usize;
            // What others wait for does not wait for others.
            if full
                || (self.apart && out.needs.is_some() != waits)
                || (bytes > 0 && bytes + u64::from(out.len) > u64::from(self.chunk))
            {
                return true;
            }
            if !self.is_here(out) {
                // What is ready waits for more: it would cost a message of its own.
                return false;
            }
            let from = match out.needs {
                None => out.at,
                Some(_) => self.inbox_of(self.rounds - 1) + out.at,
            };
            self.sges.push(self.mesh.mr.sge(from, out.len).expect("pieces lie in the region"));
            bytes += u64::from(out.len);
        }
        !self.sges.is_empty()
    }

    /// Whether all that a piece is made of has come.
    fn is_here(&self, out: &Out) -> bool {
        match out.needs {
            None => true,
            Some(Need::Pieces(peer, count)) => self.peers[peer as usize].has(self.rounds, count),
            Some(Need::Addition(n)) => self.adds[n as usize].is_done(),
        }
    }

    /// Sends what was gathered.
    fn push<T: Transport>(
        &mut self,
        t: &mut T,
        now: Time,
        peer: usize,
    ) -> Result<(), AggregateError> {
        let round = self.rounds - 1;
        let (p, channel) = (&mut self.peers[peer], &mut self.mesh.channels[peer]);
        let imm = Tag::of(Place { round, chunk: p.sent as u32 }).encode();
        let to = channel.remote_at(p.out[p.sent].to + (round % 2) * p.stride);
        let count = self.sges.len();
        let passed = p.out[p.sent..p.sent + count].iter().any(|o| o.needs.is_some());
        let bytes: u64 = self.sges.iter().map(|s| u64::from(s.len)).sum();
        if bytes == 0 {
            self.sges.clear();
        }
        let op = SendOp::WriteImm(to, imm);
        let data = Data::Sge(&self.sges);
        let wr = SendWr { wr_id: 0, op, data, flags: SendFlags::SIGNALED, dest: None };
        channel.push(t, now, &wr)?;
        p.sent += count;
        self.stats.count(bytes, passed);
        Ok(())
    }

    /// Posts receives that were taken.
    fn post_taken<T: Transport>(&mut self, t: &mut T) -> Result<(), AggregateError> {
        while self.taken > 0 {
            let nothing = [self.mesh.receive_of_nothing(); 16];
            let count = self.taken.min(16);
            t.post_recv(RecvQueue::Srq(self.mesh.srq), &nothing[..count as usize])?;
            self.taken -= count;
        }
        Ok(())
    }

    /// The next deadline, if none has passed.
    fn check_deadlines(&self, now: Time) -> Result<Time, AggregateError> {
        let hop = self.config.hop_deadline;
        let last = self.began + hop * (u64::from(self.hops) + 1);
        let all = 0..self.peers.len();
        let late = all.filter(|at| self.peers[*at].missing(self.rounds) > 0);
        let of = |at| (self.began + hop * self.patience(at)).max(self.mesh.said(at) + hop);
        let late = late.map(|at| (of(at).min(last), at)).min();
        // Its host gives no sign, whatever else is missing.
        let silent = self.mesh.silent(|_| true);
        let silent = silent.map(|(since, at)| ((since + hop).min(last), at));
        let first = [silent, late].into_iter().flatten().min_by_key(|(until, _)| *until);
        // With nobody to wait for it is the adding here that is late.
        let (until, at) = first.map_or((last, None), |(until, at)| (until, Some(at)));
        if now < until {
            return Ok(until);
        }
        let (rank, chunk) = match at {
            Some(at) => (self.mesh.channels[at].peer, self.peers[at].next_piece()),
            None => (self.mesh.rank, self.first_add as u32),
        };
        Err(AggregateError::Late { rank, chunk, round: self.rounds - 1 })
    }

    /// From whom something is missing, or for long a confirmation.
    fn waits(&self, before: Time) -> Waits {
        let all = self.peers.iter().zip(&self.mesh.channels);
        let late = all.filter(|(p, _)| p.missing(self.rounds) > 0);
        let waits = late.fold(Waits::ForNobody, |waits, (_, c)| waits.and(c.peer));
        self.mesh.owed(waits, before, |_| true)
    }

    /// An error as it is here, where a peer may take this member for the cause.
    fn excuse(&self, e: AggregateError) -> AggregateError {
        let late = |at: &usize| self.peers[*at].missing(self.rounds) > 0;
        let waits = (0..self.peers.len()).filter(late).map(|at| (self.began, at));
        self.mesh.excuse(e, self.config.hop_deadline, waits)
    }

    /// Hops for which a peer is waited for, if it does not say that it waits itself. A relay gives
    /// up before those that wait for what it would pass on, and names the cause; all have a hop
    /// more at the most, in which they hear of that.
    fn patience(&self, at: usize) -> u64 {
        match self.peers[at].passed_on {
            true => 1,
            false => self.hops.into(),
        }
    }

    /// Destroys the objects. Peers that still send get errors.
    ///
    /// # Errors
    /// A queue that somebody else uses too.
    pub fn close<T: Control>(self, t: &mut T) -> Result<(), DestroyError> {
        self.mesh.close(t)
    }
}

impl AllToAllStats {
    fn count(&mut self, bytes: u64, passed: bool) {
        self.sent = self.sent.saturating_add(1);
        self.sent_bytes = self.sent_bytes.saturating_add(bytes);
        if passed {
            self.passed = self.passed.saturating_add(1);
            self.passed_bytes = self.passed_bytes.saturating_add(bytes);
        }
    }
}

impl Peer {
    /// Pieces of the first `rounds` rounds that have not come.
    fn missing(&self, rounds: u64) -> u64 {
        (rounds * self.lens.len() as u64).saturating_sub(self.arrived)
    }

    /// Whether so many pieces of the last of so many rounds have come.
    fn has(&self, rounds: u64, count: u32) -> bool {
        self.arrived >= (rounds - 1) * self.lens.len() as u64 + u64::from(count)
    }

    /// Number of the piece that is due, in its round.
    fn next_piece(&self) -> u32 {
        (self.arrived % self.lens.len() as u64) as u32
    }

    /// A message of one or several pieces has come from a rank, where `rounds` have begun here.
    fn arrive(
        &mut self,
        (rank, tag): (u32, Tag),
        len: u32,
        rounds: u64,
    ) -> Result<(), AggregateError> {
        let chunk = tag.chunk;
        let each = self.lens.len() as u64;
        let due = Place { round: self.arrived / each, chunk: self.next_piece() };
        match tag.against(due) {
            Ordering::Less => return Err(AggregateError::Duplicate { rank, chunk }),
            Ordering::Greater => return Err(AggregateError::OutOfTurn { rank, chunk }),
            // A peer that is more than a round ahead has overwritten what is still read here.
            Ordering::Equal if due.round > rounds => {
                return Err(AggregateError::OutOfTurn { rank, chunk });
            }
            Ordering::Equal => {}
        }
        let (mut pieces, mut got) = (0, 0);
        for piece in &self.lens[due.chunk as usize..] {
            if pieces > 0 && got >= len {
                break;
            }
            (pieces, got) = (pieces + 1, got + piece);
        }
        if got != len {
            return Err(AggregateError::WrongLength { rank, chunk, got: len, need: got });
        }
        self.arrived += pieces;
        Ok(())
    }
}
