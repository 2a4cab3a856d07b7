//! One member of a sum of sparse vectors.

use alloc::vec;
use alloc::vec::Vec;

use super::{Form, SparseError, TopK, add_to, adding_bytes, choosing_bytes, message_bytes};
use crate::policy::aggregate::{AggregateError, ConfigError, Progress};
use crate::policy::alltoall::{AllToAll, AllToAllConfig, AllToAllStats, Exchange, Route, Schedule};
use crate::transport::{Control, DestroyError, MemKind, Range, Reduce, Transport};

/// Configuration of a [`SparseSum`]. All members need the same.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct SparseConfig {
    /// How the messages travel.
    pub exchange: AllToAllConfig,
    /// Element and arithmetic.
    pub op: Reduce,
    /// Elements of the vector.
    pub elements: u64,
    /// Elements that a member sends in a round, at most; see [`TopK::new`].
    pub entries: u32,
}

impl SparseConfig {
    /// Bytes that each member sends to each other one in a round: those of the longest message,
    /// since who gets it cannot know a shorter length. Where fewer elements than `entries` are not
    /// zero, the rest is zeros.
    ///
    /// # Errors
    /// As [`TopK::new`].
    pub fn message_bytes(&self) -> Result<usize, SparseError> {
        message_bytes(self.op, self.elements, self.entries)
    }

    /// What goes where: everybody's message to everybody else, in pieces of at most `chunk` bytes.
    /// By [`Route::TwoHop`] each crosses to each place of `place_of` once.
    ///
    /// # Errors
    /// Fewer than two members; as [`TopK::new`].
    pub fn schedule(
        &self,
        place_of: &[u32],
        route: Route,
        chunk: u32,
    ) -> Result<Schedule, ConfigError> {
        let bytes = self.message_bytes()? as u64;
        let mut exchange = Exchange::new(place_of, route)?;
        let all: Vec<u32> = (0..place_of.len() as u32).collect();
        for from in 0..all.len() as u32 {
            exchange.token(from, &all, bytes)?;
        }
        Ok(Schedule::new(&exchange, chunk))
    }
}

/// What a member has sent of its own, and added of others. Counters saturate.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct SparseStats {
    /// Messages in the sparse form: one per round, whoever gets it.
    pub sparse: u64,
    /// Messages in the dense form.
    pub dense: u64,
    /// Elements in them.
    pub entries: u64,
    /// Messages of others that it has added.
    pub added: u64,
    /// Bytes of the elements in those.
    pub added_bytes: u64,
}

/// One member: it sends its largest elements to all others and adds everybody's, its own included,
/// in the order of the ranks.
///
/// Use it as an [`AllToAll`]: [`SparseSum::open`], [`SparseSum::connect`] until it is complete;
/// then per round [`SparseSum::begin`], and [`SparseSum::step`] until it is complete. Then
/// [`SparseSum::sum`] is the sum of what all members have *sent*, with the same bits at each of
/// them; what they have kept comes with later rounds. It ends as an exchange does: in bounded time,
/// with that or with an error that names a member. Choosing and adding work on variables, and the
/// transport is told how many bytes they move ([`Transport::touch`]); so does the first message
/// leave only when all is chosen.
#[derive(Clone, Debug)]
pub struct SparseSum {
    op: Reduce,
    first_rank: u32,
    /// Whose memory works.
    memory: MemKind,
    top: TopK,
    exchange: AllToAll,
    /// Of each member, where its message comes to lie in the inbox; the own one does not move.
    from: Vec<Option<u64>>,
    /// The own message, and one that is looked at.
    own: Vec<u8>,
    other: Vec<u8>,
    sum: Vec<u8>,
    /// The sum of the round that was begun last is not there yet.
    open: bool,
    failed: Option<AggregateError>,
    stats: SparseStats,
}

impl SparseSum {
    /// Creates the objects of this member and publishes its endpoints. `schedule` is that of
    /// [`SparseConfig::schedule`], the same for all.
    ///
    /// # Errors
    /// Settings that cannot be, or another schedule; what the back end refuses.
    pub fn open<T: Control>(
        t: &mut T,
        config: SparseConfig,
        schedule: &Schedule,
    ) -> Result<Self, AggregateError> {
        let top = TopK::new(config.op, config.elements, config.entries)
            .map_err(|e| AggregateError::Config(e.into()))?;
        let me = config.exchange.member(t.rank(), schedule.members())?;
        let (got, need) = (schedule.outbox_bytes(me), top.max_bytes());
        if got != need as u64 {
            let wrong = SparseError::Length { got: got as usize, need };
            return Err(AggregateError::Config(wrong.into()));
        }
        let mut from = vec![None; schedule.members() as usize];
        schedule.arrivals(me).iter().for_each(|a| from[a.from as usize] = Some(a.inbox));
        Ok(Self {
            op: config.op,
            first_rank: config.exchange.first_rank,
            memory: config.exchange.memory,
            exchange: AllToAll::open(t, config.exchange, schedule)?,
            from,
            own: vec![0; need],
            other: vec![0; need],
            sum: vec![0; top.residual().len()],
            top,
            open: false,
            failed: None,
            stats: SparseStats::default(),
        })
    }

    /// Connects to the others as they appear.
    ///
    /// # Errors
    /// As [`AllToAll::connect`].
    pub fn connect<T: Control>(&mut self, t: &mut T) -> Result<Progress, AggregateError> {
        self.exchange.connect(t)
    }

    /// Starts a round: chooses what of this vector and of the residual is sent. What is not stays.
    ///
    /// # Errors
    /// [`AggregateError::Busy`] while a round is under way; a vector of another length; the error
    /// that ended an earlier round. Nothing was chosen then.
    pub fn begin<T: Transport>(&mut self, t: &mut T, vector: &[u8]) -> Result<(), AggregateError> {
        if let Some(e) = self.failed {
            return Err(e);
        }
        if self.open {
            return Err(AggregateError::Busy);
        }
        let need = self.top.residual().len();
        if vector.len() != need {
            let wrong = SparseError::Length { got: vector.len(), need };
            return Err(AggregateError::Config(wrong.into()));
        }
        self.exchange.begin(t.now())?;
        let sent = self.top.send(vector, &mut self.own);
        let (form, used) = sent.expect("both lengths are those of the settings");
        self.own[used..].fill(0);
        t.touch(self.memory, choosing_bytes(self.op, self.top.elements.into(), form));
        t.copy_in(self.exchange.outbox(), &self.own)?;
        self.open = true;
        let (of_form, entries) = match form {
            Form::Dense => (&mut self.stats.dense, self.top.elements),
            Form::Sparse(entries) => (&mut self.stats.sparse, entries),
        };
        *of_form = of_form.saturating_add(1);
        self.stats.entries = self.stats.entries.saturating_add(entries.into());
        Ok(())
    }

    /// Goes as far as possible. With the last message all are added.
    ///
    /// # Errors
    /// What ends the round, and every round after it.
    pub fn step<T: Transport>(&mut self, t: &mut T) -> Result<Progress, AggregateError> {
        if let Some(e) = self.failed {
            return Err(e);
        }
        let progress = self.exchange.step(t).inspect_err(|e| self.failed = Some(*e))?;
        if progress == Progress::Complete && self.open {
            self.add_all(t).inspect_err(|e| self.failed = Some(*e))?;
            self.open = false;
        }
        Ok(progress)
    }

    fn add_all<T: Transport>(&mut self, t: &mut T) -> Result<(), AggregateError> {
        self.sum.fill(0);
        t.touch(self.memory, self.sum.len() as u64);
        let inbox = self.exchange.inbox();
        let len = self.other.len() as u64;
        for (member, from) in (0..).zip(&self.from) {
            let wire = match from {
                None => &self.own,
                Some(at) => {
                    let at = Range { offset: inbox.offset + at, len, ..inbox };
                    t.copy_out(at, &mut self.other)?;
                    &self.other
                }
            };
            let form = add_to(self.op, &mut self.sum, wire).map_err(|cause| {
                AggregateError::Sparse { rank: self.first_rank + member, cause }
            })?;
            t.touch(self.memory, adding_bytes(self.op, self.top.elements.into(), form));
            if from.is_some() {
                let entries = match form {
                    Form::Dense => self.top.elements,
                    Form::Sparse(entries) => entries,
                };
                let bytes = u64::from(entries) * self.op.element_bytes();
                self.stats.added = self.stats.added.saturating_add(1);
                self.stats.added_bytes = self.stats.added_bytes.saturating_add(bytes);
            }
        }
        Ok(())
    }

    /// The sum of the last round that is complete, as bytes of its elements.
    pub fn sum(&self) -> &[u8] {
        &self.sum
    }

    /// What this member has not sent yet.
    pub fn residual(&self) -> &[u8] {
        self.top.residual()
    }

    /// What it has sent of its own.
    pub fn stats(&self) -> SparseStats {
        self.stats
    }

    /// Messages and bytes that it has sent, also what it has passed on.
    pub fn traffic(&self) -> AllToAllStats {
        self.exchange.stats()
    }

    /// Destroys the objects.
    ///
    /// # Errors
    /// A queue that somebody else uses too.
    pub fn close<T: Control>(self, t: &mut T) -> Result<(), DestroyError> {
        self.exchange.close(t)
    }
}

#[cfg(test)]
mod tests;
