//! A member's connections to others, for policies in which a group works together: the objects,
//! the exchange of endpoints, what completions say, and the last word.

mod channel;
#[cfg(test)]
pub(super) mod player;
#[cfg(test)]
mod rig;
mod signs;
mod tag;

pub(super) use channel::{Class, Wiring, Word, wiring_of};
pub(super) use signs::Waits;
pub(super) use tag::{Tag, read_id, read_of};

use alloc::vec;
use alloc::vec::Vec;

use crate::policy::Batcher;
use crate::policy::aggregate::{AggregateError, Progress};
use crate::transport::{
    Completion, Completions, Contents, Control, CqId, Data, DestroyError, Mr, PdId, QpId, QpInit,
    QpSize, RecvQueue, RecvWr, Remote, Ring, SendOp, SendWr, SrqId, Transport, WaitSet,
};
use crate::units::{Span, Time};
use crate::verbs::{QpType, SendFlags};

use channel::{Channel, RIGHTS, announce, is_ready, link, publish, word_key};
use signs::Signs;
use tag::Kind;

/// Completions taken by one poll. Higher: fewer calls; a burst is handled later.
const POLL_BATCH: usize = 64;

/// A number that those share who have the same words: FNV-1a over them, enough to notice a slip.
pub(super) fn fingerprint(words: impl IntoIterator<Item = u64>) -> u64 {
    let fold = |h: u64, word: u64| (h ^ word).wrapping_mul(0x0100_0000_01B3);
    words.into_iter().fold(0xCBF2_9CE4_8422_2325, fold)
}

/// How far the set-up is.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Opening {
    /// So many connections are up.
    Linking(usize),
    /// All are; peers were told.
    Announced,
    /// All peers take messages.
    Open,
}

/// What the connections of a member share.
pub(super) struct Shared {
    /// Bytes of the region.
    pub bytes: u64,
    /// Whether it has bytes, or only a length.
    pub contents: Contents,
    /// Entries of the completion queue: everything that can be outstanding at once.
    pub cq: u32,
    /// Receives of the shared queue.
    pub srq: u32,
    /// Connections that will be added, at most.
    pub connections: u32,
    /// The members at the other ends, each once, in the order in which they are told.
    pub peers: Vec<u32>,
}

/// One end of a connection, before it is there.
pub(super) struct End {
    /// The member at the other end.
    pub member: u32,
    pub class: Class,
    /// Messages of the policy that may be under way.
    pub depth: u32,
    /// Elements of the longest scatter list.
    pub sges: u32,
    /// Where what the peer may write or read begins in the region.
    pub offset: u64,
}

/// What a completion says.
pub(super) enum Heard {
    /// A work request is done.
    Sent { wr_id: u64 },
    /// A message has come over this connection into the receive of this id, so many bytes long.
    Chunk { channel: usize, wr_id: u64, tag: Tag, len: u32 },
}

/// The connections of one member.
#[derive(Clone, Debug)]
pub(super) struct Mesh {
    wiring: Wiring,
    /// Own rank.
    pub rank: u32,
    fingerprint: u64,
    pd: PdId,
    pub mr: Mr,
    pub cq: CqId,
    pub srq: SrqId,
    /// In the order in which they were added.
    pub channels: Vec<Channel>,
    /// Connection by index of the QP's handle.
    by_qp: Vec<u32>,
    /// Ranks of the peers, in the order in which they are told.
    peers: Vec<u32>,
    /// Each rank of them with its place there, by rank.
    by_rank: Vec<(u32, u32)>,
    signs: Signs,
    opening: Opening,
    opened: Time,
    /// When completions were taken last.
    polled_at: Time,
    polled: Completions,
    failed: Option<AggregateError>,
}

impl Mesh {
    /// Creates what the connections share.
    pub fn open<T: Control>(
        t: &mut T,
        wiring: Wiring,
        fingerprint: u64,
        shared: Shared,
    ) -> Result<Self, AggregateError> {
        let Shared { bytes, contents, cq, srq, connections, mut peers } = shared;
        peers.iter_mut().for_each(|p| *p += wiring.first_rank);
        let mut by_rank: Vec<_> = peers.iter().copied().zip(0..).collect();
        by_rank.sort_unstable();
        let pd = t.create_pd()?;
        let mr = t.alloc_mr(pd, bytes, wiring.memory, RIGHTS, contents)?;
        let (cq, srq) = (t.create_cq(cq)?, t.create_srq(pd, srq)?);
        let signs = Signs::open(t, pd, wiring.memory, (peers.len(), connections))?;
        Ok(Self {
            wiring,
            rank: t.rank(),
            fingerprint,
            pd,
            mr,
            cq,
            srq,
            channels: vec![],
            by_qp: vec![],
            peers,
            by_rank,
            signs,
            opening: Opening::Linking(0),
            opened: t.now(),
            polled_at: t.now(),
            polled: Completions::with_capacity(POLL_BATCH),
            failed: None,
        })
    }

    /// Creates a queue pair and publishes its endpoint.
    pub fn add<T: Control>(&mut self, t: &mut T, end: &End) -> Result<(), AggregateError> {
        let (max_send_wr, max_recv_wr) = end.class.depths(end.depth);
        let qp = t.create_qp(&QpInit {
            ty: QpType::Rc,
            pd: self.pd,
            send_cq: self.cq,
            recv_cq: self.cq,
            srq: end.class.shares_receives().then_some(self.srq),
            size: QpSize { max_send_wr, max_recv_wr, max_send_sge: end.sges, max_inline: 0 },
            sq_sig_all: true,
            queue_memory: self.wiring.queue_memory,
        })?;
        let channel = Channel {
            peer: self.wiring.first_rank + end.member,
            class: end.class,
            qp,
            batcher: Batcher::new(self.wiring.batch, qp, &t.qp_caps(qp)?),
            remote: Remote::default(),
            sign: Remote::default(),
            depth: end.depth,
            outstanding: 0,
            since: Time::ZERO,
            taken: 0,
        };
        let memory = Remote { addr: self.mr.addr + end.offset, rkey: self.mr.rkey };
        let sign = self.signs.place_of(self.peer(channel.peer));
        publish(t, &self.wiring, &channel, (memory, sign), self.fingerprint)?;
        let index = qp.index() as usize;
        self.by_qp.resize(self.by_qp.len().max(index + 1), u32::MAX);
        self.by_qp[index] = self.channels.len() as u32;
        self.channels.push(channel);
        Ok(())
    }

    /// Connects to the peers as they appear.
    ///
    /// An error ends it, and those who are connected are told: they may have begun, and would take
    /// this member for the cause.
    pub fn connect<T: Control>(&mut self, t: &mut T) -> Result<Progress, AggregateError> {
        self.check()?;
        let end = self.go_on(t);
        if let Err(e) = end {
            self.fail(t, e);
        }
        end
    }

    /// An error ends it before the first round, and nobody is told.
    pub const fn end(&mut self, why: AggregateError) {
        self.failed = Some(why);
    }

    fn go_on<T: Control>(&mut self, t: &mut T) -> Result<Progress, AggregateError> {
        while let Opening::Linking(n) = self.opening {
            let Some(channel) = self.channels.get_mut(n) else {
                self.post_first(t)?;
                self.peers.iter().for_each(|peer| announce(t, &self.wiring, *peer));
                self.opening = Opening::Announced;
                break;
            };
            if !link(t, &self.wiring, channel, self.fingerprint)? {
                let rank = channel.peer;
                return self.wait_for(t, rank);
            }
            self.opening = Opening::Linking(n + 1);
        }
        if self.opening == Opening::Announced {
            for &peer in &self.peers {
                if !is_ready(t, &self.wiring, peer)? {
                    return self.wait_for(t, peer);
                }
            }
            self.opening = Opening::Open;
        }
        Ok(Progress::Complete)
    }

    /// Waits for what a rank has to publish, up to the deadline of the set-up.
    pub fn wait_for<T: Transport>(&self, t: &T, rank: u32) -> Result<Progress, AggregateError> {
        let until = self.opened + self.wiring.connect_deadline;
        if t.now() >= until {
            return Err(AggregateError::NoPeer { rank });
        }
        Ok(Progress::Wait { on: WaitSet::BOOTSTRAP, until })
    }

    /// Receives of the queue pairs that have their own: one for a last word, from either end, and
    /// those for sums. Those of the shared queue are there since it is.
    fn post_first<T: Transport>(&self, t: &mut T) -> Result<(), AggregateError> {
        for c in self.channels.iter().filter(|c| !c.class.shares_receives()) {
            let (_, count) = c.class.depths(c.depth);
            let receives = vec![self.receive_of_nothing(); count as usize];
            t.post_recv(RecvQueue::Qp(c.qp), &receives)?;
        }
        Ok(())
    }

    /// Tells a rank a number.
    pub fn tell<T: Control>(&self, t: &mut T, rank: u32, word: Word, number: u64) {
        t.publish_to(rank, word_key(self.wiring.key, word, rank), &number.to_be_bytes());
    }

    /// The number that a rank tells this one, if it has.
    pub fn told<T: Control>(
        &self,
        t: &mut T,
        rank: u32,
        word: Word,
    ) -> Result<Option<u64>, AggregateError> {
        let mut bytes = [0; 8];
        match t.lookup(rank, word_key(self.wiring.key, word, self.rank), &mut bytes)? {
            None => Ok(None),
            Some(8) => Ok(Some(u64::from_be_bytes(bytes))),
            Some(_) => Err(AggregateError::Mismatch { rank }),
        }
    }

    /// Which of its peers a rank is.
    fn peer(&self, rank: u32) -> usize {
        let at = self.by_rank.binary_search_by_key(&rank, |(r, _)| *r);
        self.by_rank[at.expect("connections lead to peers")].1 as usize
    }

    /// Sends a probe to every peer that has not been heard for `after` since `began` and owes no
    /// confirmation, and looks for what they have sent; when the next one is due. A probe takes no
    /// receive and no program at the other end: what it asks is whether the host is there. To those
    /// who may wait for this member while it waits for others itself it is a sign of that, so that
    /// they do not take it for the cause.
    pub fn probe<T: Transport>(
        &mut self,
        t: &mut T,
        (now, began): (Time, Time),
        after: Span,
        waits: Waits,
    ) -> Result<Option<Time>, AggregateError> {
        let mut next: Option<Time> = None;
        let idle = |(_, c): &(usize, &mut Channel)| c.outstanding == 0;
        for (at, c) in self.channels.iter_mut().enumerate().filter(idle) {
            let due = c.since.max(began) + after;
            if now < due {
                next = Some(next.map_or(due, |n| n.min(due)));
                continue;
            }
            if !c.has_room(t) {
                continue;
            }
            let sign = match waits.beside(c.peer) {
                true => Some(self.signs.next(t, at)?),
                false => None,
            };
            let (op, data) = (SendOp::Write(c.sign), Data::Sge(sign.as_slice()));
            c.push(t, now, &SendWr { wr_id: 0, op, data, flags: SendFlags::SIGNALED, dest: None })?;
            c.flush(t)?;
        }
        Ok(next)
    }

    /// Takes signs of peers, at most once in `after`; when to look again.
    pub fn look<T: Transport>(
        &mut self,
        t: &mut T,
        (now, began): (Time, Time),
        after: Span,
    ) -> Result<Time, AggregateError> {
        self.signs.look(t, (now, began), after)
    }

    /// When the peer of a connection said last that it waits for others, as far as was seen.
    pub fn said(&self, channel: usize) -> Time {
        self.signs.said(self.peer(self.channels[channel].peer))
    }

    /// The connection whose peer has been silent longest about what was sent to it, and since
    /// when, of those that `counts`. A confirmation takes no program at the other end, so who does
    /// not give it is gone, whatever else is missing.
    pub fn silent(&self, counts: impl Fn(Class) -> bool) -> Option<(Time, usize)> {
        let open = |(_, c): &(usize, &Channel)| c.outstanding > 0 && counts(c.class);
        let open = self.channels.iter().enumerate().filter(open);
        open.map(|(at, c)| (c.since, at)).min()
    }

    /// Those whose confirmation is missing since `before`, of the connections that `counts`, and
    /// the others that it `waits` for.
    pub fn owed(&self, waits: Waits, before: Time, counts: impl Fn(Class) -> bool) -> Waits {
        let owes = |c: &&Channel| c.outstanding > 0 && c.since <= before && counts(c.class);
        self.channels.iter().filter(owes).fold(waits, |waits, c| waits.and(c.peer))
    }

    /// A receive for a message whose bytes, if any, go elsewhere.
    pub fn receive_of_nothing(&self) -> RecvWr {
        RecvWr { wr_id: 0, sge: self.mr.sge(0, 0).expect("no bytes") }
    }

    /// Whether all peers take messages.
    pub fn is_open(&self) -> bool {
        self.opening == Opening::Open
    }

    /// The error that has ended it, if one has.
    pub const fn check(&self) -> Result<(), AggregateError> {
        match self.failed {
            Some(e) => Err(e),
            None => Ok(()),
        }
    }

    /// Takes completions; how many. [`Mesh::hear`] says what they are.
    pub fn poll<T: Transport>(&mut self, t: &mut T) -> Result<usize, AggregateError> {
        self.polled.clear();
        self.polled_at = t.now();
        t.poll_cq(self.cq, &mut self.polled)?;
        Ok(self.polled.as_slice().len())
    }

    /// Whether the last poll may have left completions behind.
    pub fn has_more(&self) -> bool {
        self.polled.is_full()
    }

    /// What the `n`th completion of the last poll says.
    pub fn hear(&mut self, n: usize) -> Result<Heard, AggregateError> {
        match self.polled.as_slice()[n] {
            Completion::Send { wr_id, qp, retired, .. } => {
                let channel = self.channel_of(qp)?;
                let c = &mut self.channels[channel];
                (c.outstanding, c.since) = (c.outstanding - retired, self.polled_at);
                Ok(Heard::Sent { wr_id })
            }
            Completion::Recv { wr_id, qp, len, imm, .. } => {
                let channel = self.channel_of(qp)?;
                self.channels[channel].since = self.polled_at;
                let rank = self.channels[channel].peer;
                let tag = imm.and_then(Tag::decode).ok_or(AggregateError::Stray { rank })?;
                match tag.kind {
                    Kind::Chunk => Ok(Heard::Chunk { channel, wr_id, tag, len }),
                    Kind::GaveUp => {
                        let because = self.wiring.first_rank + tag.chunk;
                        Err(AggregateError::GaveUp { rank, because })
                    }
                }
            }
            Completion::Error { qp, status, .. } => {
                let rank = self.channels[self.channel_of(qp)?].peer;
                Err(AggregateError::Lost { rank, status })
            }
        }
    }

    /// What an error says here. One that accuses this member, which lives, is because of whom it
    /// `waits` for itself, where it has for an eighth of a deadline. Else it stays as it was told:
    /// who tells has not failed, and all others hear the same from it. `waits`: since when for
    /// whom.
    pub fn excuse(
        &self,
        e: AggregateError,
        deadline: Span,
        waits: impl Iterator<Item = (Time, usize)>,
    ) -> AggregateError {
        match e {
            AggregateError::GaveUp { rank, because } if because == self.rank => {
                let long = |at: Time| self.polled_at.since(at) * 8 >= deadline;
                let since = |(at, c): (Time, usize)| (at.max(self.said(c)), self.channels[c].peer);
                let others = waits.map(since).filter(|(at, peer)| *peer != rank && long(*at));
                let because = others.min().map_or(self.rank, |(_, peer)| peer);
                AggregateError::GaveUp { rank, because }
            }
            other => other,
        }
    }

    fn channel_of(&self, qp: QpId) -> Result<usize, AggregateError> {
        let channel = self.by_qp.get(qp.index() as usize).map(|c| *c as usize);
        channel.filter(|c| *c < self.channels.len()).ok_or(AggregateError::BadHandle)
    }

    /// Rings for what was sent, last words apart.
    pub fn rings(&self) -> u64 {
        self.channels.iter().fold(0, |n: u64, c| n.saturating_add(c.batcher.stats().rings))
    }

    /// Whether no work request names the region any more.
    pub fn is_idle(&self) -> bool {
        self.channels.iter().all(|c| c.outstanding == 0)
    }

    /// An error ends it: tells all at the other ends that nothing more will come, those that wait
    /// for this member and those that do not, since they may wait for the one that is named. What
    /// cannot be told is noticed at the deadline.
    pub fn fail<T: Transport>(&mut self, t: &mut T, why: AggregateError) {
        self.failed = Some(why);
        let because = why.culprit().unwrap_or(self.rank) - self.wiring.first_rank;
        let op = SendOp::SendImm(Tag::gave_up(because).encode());
        let (data, flags) = (Data::Sge(&[]), SendFlags::SIGNALED);
        let wr = SendWr { wr_id: 0, op, data, flags, dest: None };
        let linked = match self.opening {
            Opening::Linking(n) => n,
            Opening::Announced | Opening::Open => self.channels.len(),
        };
        for c in &mut self.channels[..linked] {
            // Of a round that has failed nothing leaves any more.
            t.unstage(c.qp);
            c.batcher.forget();
            if t.stage(c.qp, &wr).is_ok() {
                // Outside of the batcher, which counts what was sent: so its fence is due here.
                c.batcher.fence(t);
                let _lost_with_the_connection = t.ring(c.qp, Ring::Auto);
            }
        }
    }

    /// Destroys the objects. Peers that still send get errors.
    pub fn close<T: Control>(self, t: &mut T) -> Result<(), DestroyError> {
        for c in &self.channels {
            let _already_gone = t.destroy_qp(c.qp);
        }
        t.destroy_srq(self.srq)?;
        t.destroy_cq(self.cq)?;
        let _already_gone = t.dereg_mr(self.mr.id);
        self.signs.close(t);
        t.dealloc_pd(self.pd)
    }
}
