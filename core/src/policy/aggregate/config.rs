//! What an aggregation is made of, and what cannot be.

use core::fmt;

use super::chunks::{Chunks, MAX_CHUNKS};
use super::plan::Plan;
use super::reduce::Order;
use super::sparse::SparseError;
use crate::policy::BatchConfig;
use crate::policy::alltoall::ExchangeError;
use crate::policy::mesh::{Wiring, fingerprint, wiring_of};
use crate::transport::{MemKind, QpAttr, Reduce};
use crate::units::Span;
use crate::verbs::Mtu;

/// How a contribution reaches the one that adds it.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub enum Method {
    /// Push by SEND into the parent's shared receive queue: any child takes any buffer, so a pool
    /// that is smaller than what all could send serves children of different pace.
    Send,
    /// Push by WRITE with immediate into slots that belong to the child: no buffer can be missing.
    #[default]
    Write,
    /// Pull by READ: the child announces the chunk, the parent reads it when it wants to, no more
    /// than [`AggregateConfig::reads`] at a time. Costs a round trip, spares the parent's link the
    /// burst.
    Read,
}

/// Configuration of an [`Aggregate`](super::Aggregate). All members need the same, save for the
/// kinds of memory and the deadlines.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct AggregateConfig {
    /// Bytes of the vector, a multiple of the element.
    pub bytes: u64,
    /// Element and arithmetic.
    pub op: Reduce,
    /// In which order contributions are added.
    pub order: Order,
    /// How contributions go up.
    pub method: Method,
    /// Whether every member gets the sum (AllReduce), or only the root of each lane (Reduce);
    /// the others are told that it is complete.
    pub broadcast: bool,
    /// Bytes of a chunk, a multiple of 8. Smaller: hops overlap better, and each chunk costs its
    /// messages and polls. Default 64 KiB: 1.3 us of a 400 Gb/s link, about a round trip.
    pub chunk: u32,
    /// Chunks of a lane that a member may have under way, from its contribution to the sum. It
    /// bounds the buffers: `window` chunks for each child and lane. To keep a link busy it takes
    /// the way up and down in chunk times. More costs time at a root with members of its own: they
    /// fill its link with a window first, and the other groups' first chunks wait behind it
    /// (`scenarios/library/two_hop_byte_bound.toml`). Beyond the chunks of a lane it has no effect.
    pub window: u32,
    /// Receives for contributions by SEND; `None`: as many as all children may send, so that none
    /// is ever missing. Fewer, with [`Order::Arrival`] only: less memory, and a burst meets RNR
    /// NAKs, each of which costs the child `min_rnr_timer`.
    pub pool: Option<u32>,
    /// READs that a member has outstanding in all. Fewer: smaller bursts on its link; it takes
    /// enough for a round trip. Default 16.
    pub reads: u32,
    /// How long the oldest chunk of a lane may take for each hop, from the start of the round or
    /// from the sum before it: in two hops an aggregator waits so long for its members, the root
    /// twice as long for its aggregators, an aggregator three times as long for the sum, a member
    /// four times. So the one that is next to the cause gives up first and can name it. Once more
    /// where who owes a chunk may itself wait for another way or lane: where sums come another way
    /// than contributions go, and for the first chunk of a later round in several lanes. In any
    /// case a member gives up one of them before the end of the round, so that the others hear it.
    ///
    /// For so long after a member has said that it waits for others itself it is not given up for a
    /// chunk that it owes.
    ///
    /// A peer that has confirmed nothing for one chunk deadline of what was sent to it is given up
    /// too, and one that has not been heard for a quarter of one is sent a probe: so a dead host is
    /// named by its neighbours after 1.25 chunk deadlines at the latest, since confirming takes no
    /// program. (With a [`Self::pool`] parents confirm contributions when they have a receive, and
    /// those do not count.) It has to cover what members begin one after the other.
    pub chunk_deadline: Span,
    /// How long a round may take. No member knows less at its end than the sum or an error.
    pub round_deadline: Span,
    /// How long the members may take to find each other. With [`Self::round_deadline`] it bounds
    /// going on without a member: who does not find the others in so long has
    /// [`AggregateError::NoPeer`](super::AggregateError::NoPeer).
    pub connect_deadline: Span,
    /// Where vector and buffers are.
    pub memory: MemKind,
    /// Where the work queues are.
    pub queue_memory: MemKind,
    /// Time-outs, retries and the other attributes of the queue pairs. Rights, state, PSNs, QPN,
    /// path and path MTU are filled in. A dead peer is noticed by its silence after about
    /// `timeout` times `retry_cnt`, or at the deadline of the chunk, whichever comes first.
    pub attr: QpAttr,
    /// Path MTU; `None`: the smaller one of both ports.
    pub path_mtu: Option<Mtu>,
    /// How work requests for one peer are rung together.
    pub batch: BatchConfig,
    /// Rank of member 0; the others follow.
    pub first_rank: u32,
    /// First of the bootstrap keys that it uses, `key` to `key + 2^35`.
    pub key: u64,
    /// Number of its first round, for members that go on after an error ([`Self::after`]). Those
    /// that go on without a member agree on the lowest that anybody has
    /// ([`Aggregate::first_round`](super::Aggregate::first_round)), which is at most one less;
    /// others that stand at different rounds must not add them up, and do not connect.
    pub first_round: u64,
}

impl Default for AggregateConfig {
    /// AllReduce of 1 MiB of `f32` in fixed order by WRITE, 64 KiB chunks, 8 of them under way,
    /// 100 ms for a chunk, 1 s for a round and for the exchange of endpoints.
    fn default() -> Self {
        let host = MemKind::Host { numa: 0 };
        Self {
            bytes: 1 << 20,
            op: Reduce::SumF32,
            order: Order::default(),
            method: Method::default(),
            broadcast: true,
            chunk: 64 << 10,
            window: 8,
            pool: None,
            reads: 16,
            chunk_deadline: Span::from_ms(100),
            round_deadline: Span::from_ms(1000),
            connect_deadline: Span::from_ms(1000),
            memory: host,
            queue_memory: host,
            attr: QpAttr { max_rd_atomic: 16, max_dest_rd_atomic: 16, ..QpAttr::default() },
            path_mtu: None,
            batch: BatchConfig { max_delay: Span::from_ms(1), ..BatchConfig::default() },
            first_rank: 0,
            key: 0x61 << 56,
            first_round: 0,
        }
    }
}

/// Settings that contradict each other or the plan.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ConfigError {
    /// The vector is empty or no whole number of elements.
    Bytes {
        /// Bytes of the vector.
        bytes: u64,
        /// Bytes of an element.
        element: u64,
    },
    /// A chunk is empty or no multiple of 8 bytes.
    Chunk {
        /// Bytes of a chunk.
        got: u32,
    },
    /// So many chunks cannot be numbered.
    Chunks {
        /// Their number.
        got: u64,
    },
    /// Nothing may be under way.
    Window,
    /// The pool is empty, or too small for a fixed order, in which early contributions keep their
    /// buffers.
    Pool {
        /// What was asked for.
        got: u32,
        /// What is needed.
        need: u32,
    },
    /// No READ may be outstanding.
    Reads,
    /// A message may carry no piece.
    Gather,
    /// A sum of sparse vectors that cannot be.
    Sparse(SparseError),
    /// An exchange that cannot be.
    Exchange(ExchangeError),
    /// The plan goes on without this rank.
    Absent {
        /// The rank.
        rank: u32,
    },
    /// This rank is no member of the plan.
    NoMember {
        /// The rank.
        rank: u32,
        /// The first one that is.
        first: u32,
        /// How many are.
        members: u32,
    },
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes { bytes, element } => {
                write!(f, "a vector of {bytes} B: take a multiple of {element} B, above 0")
            }
            Self::Chunk { got } => {
                write!(f, "a chunk of {got} B: take a multiple of 8 B, above 0")
            }
            Self::Chunks { got } => {
                write!(f, "{got} chunks, and {MAX_CHUNKS} can be numbered: take larger ones")
            }
            Self::Window => f.write_str("a window of 0: at least one chunk has to be under way"),
            Self::Pool { got, need } => {
                write!(f, "a pool of {got} receives: at least {need}, or leave it out")
            }
            Self::Reads => f.write_str("no READ may be outstanding: allow at least one"),
            Self::Gather => f.write_str("no piece in a message: allow at least one"),
            Self::Sparse(e) => e.fmt(f),
            Self::Exchange(e) => e.fmt(f),
            Self::Absent { rank } => {
                write!(f, "the others go on without rank {rank}: it may take part in a new plan")
            }
            Self::NoMember { rank, first, members } => {
                write!(f, "rank {rank} is no member: the plan has {members}, from {first} on")
            }
        }
    }
}

impl core::error::Error for ConfigError {}

impl From<SparseError> for ConfigError {
    fn from(e: SparseError) -> Self {
        Self::Sparse(e)
    }
}

impl From<ExchangeError> for ConfigError {
    fn from(e: ExchangeError) -> Self {
        Self::Exchange(e)
    }
}

impl AggregateConfig {
    /// The cut of the vector.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn cut(&self, plan: &Plan) -> Result<Chunks, ConfigError> {
        let element = self.op.element_bytes();
        let chunks = self.bytes.div_ceil(u64::from(self.chunk).max(1));
        if self.bytes == 0 || !self.bytes.is_multiple_of(element) {
            return Err(ConfigError::Bytes { bytes: self.bytes, element });
        }
        if self.chunk == 0 || !self.chunk.is_multiple_of(8) {
            return Err(ConfigError::Chunk { got: self.chunk });
        }
        if chunks > MAX_CHUNKS {
            return Err(ConfigError::Chunks { got: chunks });
        }
        if self.window == 0 {
            return Err(ConfigError::Window);
        }
        if self.reads == 0 {
            return Err(ConfigError::Reads);
        }
        Ok(Chunks::new(self.bytes, self.chunk, plan.lanes()))
    }

    /// The settings with which members go on, without those that are gone
    /// ([`Plan::without`]), after so many rounds that are complete
    /// ([`AggregateStats::rounds`](super::AggregateStats::rounds)): other bootstrap keys, and the
    /// number of the next round.
    #[must_use]
    pub const fn after(self, rounds: u64) -> Self {
        Self { key: self.key + (1 << 35), first_round: self.first_round + rounds, ..self }
    }

    /// How its connections are made.
    pub(super) const fn wiring(&self) -> Wiring {
        wiring_of!(self)
    }

    /// Receives for contributions by SEND, where children may send `most`.
    pub(super) fn receives(&self, most: u32) -> Result<u32, ConfigError> {
        let Some(got) = self.pool else { return Ok(most) };
        let need = if self.order == Order::Fixed { most } else { 1 };
        if got < need { Err(ConfigError::Pool { got, need }) } else { Ok(got.min(most)) }
    }

    /// The plan's number of a rank.
    pub(super) fn member(&self, rank: u32, plan: &Plan) -> Result<u32, ConfigError> {
        let member = self.wiring().member(rank, plan.members())?;
        if plan.absent().contains(&member) { Err(ConfigError::Absent { rank }) } else { Ok(member) }
    }

    /// A number that members with the same settings and plan share.
    pub(super) fn fingerprint(&self, plan: &Plan) -> u64 {
        let own = [
            self.bytes,
            self.op as u64,
            self.order as u64,
            self.method as u64,
            self.broadcast.into(),
            self.chunk.into(),
            self.window.into(),
            plan.lanes().into(),
            plan.members().into(),
            // Members that go on agree on it later.
            if plan.absent().is_empty() { self.first_round } else { 0 },
            plan.absent().len() as u64,
        ];
        let lanes = (0..plan.lanes()).flat_map(|l| (0..plan.members()).map(move |m| (l, m)));
        let word = |m: Option<u32>| m.map_or(u64::MAX, u64::from);
        let of_plan = lanes.flat_map(|(l, m)| [plan.parent(l, m), plan.source(l, m)].map(word));
        fingerprint(own.into_iter().chain(of_plan))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn impossible_settings_are_refused_by_name() {
        let plan = Plan::direct(3, 2).unwrap();
        let good = AggregateConfig { bytes: 24, chunk: 8, ..AggregateConfig::default() };
        assert_eq!(good.cut(&plan), Ok(Chunks::new(24, 8, 2)));
        for (bad, what) in [
            (AggregateConfig { bytes: 0, ..good }, "a vector of 0 B: take a multiple of 4 B"),
            (AggregateConfig { bytes: 26, ..good }, "a vector of 26 B: take a multiple of 4 B"),
            (AggregateConfig { chunk: 0, ..good }, "a chunk of 0 B: take a multiple of 8 B"),
            (AggregateConfig { chunk: 12, ..good }, "a chunk of 12 B: take a multiple of 8 B"),
            (AggregateConfig { bytes: 8 << 25, ..good }, "33554432 chunks, and 16777216 can"),
            (AggregateConfig { window: 0, ..good }, "a window of 0"),
            (AggregateConfig { reads: 0, ..good }, "no READ may be outstanding"),
        ] {
            let text = bad.cut(&plan).unwrap_err().to_string();
            assert!(text.starts_with(what), "{text}");
        }
        assert_eq!((good.member(2, &plan), good.receives(5)), (Ok(2), Ok(5)));
        let no = ConfigError::NoMember { rank: 3, first: 0, members: 3 };
        assert_eq!(good.member(3, &plan), Err(no));
    }

    #[test]
    fn a_small_pool_needs_sums_that_do_not_wait() {
        let fixed = AggregateConfig { pool: Some(4), ..AggregateConfig::default() };
        assert_eq!(fixed.receives(5), Err(ConfigError::Pool { got: 4, need: 5 }));
        assert_eq!(fixed.receives(4), Ok(4));
        let arrival = AggregateConfig { order: Order::Arrival, ..fixed };
        assert_eq!((arrival.receives(5), arrival.receives(3)), (Ok(4), Ok(3)));
        let none = AggregateConfig { pool: Some(0), ..arrival };
        assert_eq!(none.receives(5), Err(ConfigError::Pool { got: 0, need: 1 }));
    }

    #[test]
    fn members_with_other_settings_or_plans_are_told_apart() {
        let c = AggregateConfig::default();
        let plan = Plan::direct(4, 1).unwrap();
        let same = c.fingerprint(&plan);
        assert_eq!(c.fingerprint(&plan.clone()), same);
        assert_ne!(c.fingerprint(&Plan::direct(4, 2).unwrap()), same);
        assert_ne!(c.fingerprint(&Plan::ring(4).unwrap()), same);
        assert_ne!(c.fingerprint(&plan.without(&[3]).unwrap()), same);
        assert_ne!(c.after(1).fingerprint(&plan), c.after(0).fingerprint(&plan));
        assert_eq!(c.after(0).fingerprint(&plan), same);
        assert_ne!(AggregateConfig { chunk: 8, ..c }.fingerprint(&plan), same);
        assert_ne!(AggregateConfig { method: Method::Send, ..c }.fingerprint(&plan), same);
    }
}
