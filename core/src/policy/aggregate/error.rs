//! How an aggregation ends when it does not end well.

use core::fmt;

use super::config::ConfigError;
use super::sparse::SparseError;
use crate::policy::PushError;
use crate::transport::{
    BadHandle, CreateError, LookupError, MemError, ModifyError, PollError, PostRecvError,
};
use crate::verbs::WcStatus;

/// Why a member has no sum. After it the member is done: what its region holds means nothing.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum AggregateError {
    /// The settings cannot be.
    Config(ConfigError),
    /// An object was not created.
    Create(CreateError),
    /// Memory was not registered, or the sum not computed.
    Memory(MemError),
    /// A queue pair did not reach its state.
    Modify(ModifyError),
    /// What a member should have published can never come.
    Lookup(LookupError),
    /// A member published nothing before the deadline.
    NoPeer {
        /// Which.
        rank: u32,
    },
    /// A member has other settings, or another plan, or publishes something else under our key.
    Mismatch {
        /// Which.
        rank: u32,
    },
    /// A round was begun while one is under way, or before all are connected.
    Busy,
    /// A chunk, or the round, was not complete at its deadline.
    Late {
        /// Who was waited for.
        rank: u32,
        /// The oldest chunk that is missing.
        chunk: u32,
        /// Of which round, from 0.
        round: u64,
    },
    /// The connection to a member is lost.
    Lost {
        /// Which.
        rank: u32,
        /// What the first failed work request says.
        status: WcStatus,
    },
    /// A neighbour has given up, for a reason that it knows.
    GaveUp {
        /// Who says so.
        rank: u32,
        /// Whom its own error names; itself, if nobody. The member that reads this where it waits
        /// for nobody else: then the others go on without it, if they do.
        because: u32,
    },
    /// A contribution or sum came a second time.
    Duplicate {
        /// From whom.
        rank: u32,
        /// The chunk.
        chunk: u32,
    },
    /// A chunk came that is not due: one before it is missing, or nobody waits for it.
    OutOfTurn {
        /// From whom.
        rank: u32,
        /// The chunk.
        chunk: u32,
    },
    /// A chunk of another length.
    WrongLength {
        /// From whom.
        rank: u32,
        /// The chunk.
        chunk: u32,
        /// Bytes that came.
        got: u32,
        /// Bytes that it has.
        need: u32,
    },
    /// What a member sent is no sparse vector of ours.
    Sparse {
        /// Which.
        rank: u32,
        /// What is wrong with it.
        cause: SparseError,
    },
    /// A message that is none of ours.
    Stray {
        /// From whom.
        rank: u32,
    },
    /// A work request was not posted.
    Push(PushError),
    /// A receive was not posted.
    PostRecv(PostRecvError),
    /// The completion queue is lost.
    Poll(PollError),
    /// A handle that is not valid here: the members' objects belong to one initiator.
    BadHandle,
}

impl fmt::Display for AggregateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(e) => e.fmt(f),
            Self::Create(e) => write!(f, "create: {e}"),
            Self::Memory(e) => write!(f, "memory: {e}"),
            Self::Modify(e) => write!(f, "modify: {e}"),
            Self::Lookup(e) => write!(f, "bootstrap: {e}"),
            Self::NoPeer { rank } => {
                write!(f, "rank {rank} published nothing before the deadline: is it running?")
            }
            Self::Mismatch { rank } => {
                write!(f, "rank {rank} has other settings or another plan: give all the same")
            }
            Self::Busy => {
                f.write_str("a round is under way, or members are not connected: step on")
            }
            Self::Late { rank, chunk, round } => {
                write!(f, "chunk {chunk} of round {round} was not complete at its deadline: ")?;
                write!(f, "rank {rank} was waited for")
            }
            Self::Lost { rank, status } => {
                write!(f, "the connection to rank {rank} is lost: {status}")
            }
            Self::GaveUp { rank, because } => {
                write!(f, "rank {rank} has given up because of rank {because}: ")?;
                f.write_str("its own error says why")
            }
            Self::Duplicate { rank, chunk } => {
                write!(f, "rank {rank} sent chunk {chunk} a second time")
            }
            Self::OutOfTurn { rank, chunk } => {
                write!(f, "rank {rank} sent chunk {chunk}, which is not due")
            }
            Self::WrongLength { rank, chunk, got, need } => {
                write!(f, "rank {rank} sent {got} B as chunk {chunk}, which has {need} B")
            }
            Self::Sparse { rank, cause } => write!(f, "of rank {rank}: {cause}"),
            Self::Stray { rank } => {
                write!(f, "a message of rank {rank} that is no chunk: is its queue pair shared?")
            }
            Self::Push(e) => e.fmt(f),
            Self::PostRecv(e) => e.fmt(f),
            Self::Poll(e) => e.fmt(f),
            Self::BadHandle => BadHandle.fmt(f),
        }
    }
}

impl core::error::Error for AggregateError {}

impl AggregateError {
    /// Whom it names; of a chain of those who gave up, the first cause.
    pub const fn culprit(&self) -> Option<u32> {
        match *self {
            Self::NoPeer { rank }
            | Self::Mismatch { rank }
            | Self::Late { rank, .. }
            | Self::Lost { rank, .. }
            | Self::GaveUp { because: rank, .. }
            | Self::Duplicate { rank, .. }
            | Self::OutOfTurn { rank, .. }
            | Self::WrongLength { rank, .. }
            | Self::Sparse { rank, .. }
            | Self::Stray { rank } => Some(rank),
            Self::Config(_) | Self::Create(_) | Self::Memory(_) | Self::Modify(_) => None,
            Self::Lookup(_) | Self::Busy | Self::Push(_) | Self::PostRecv(_) => None,
            Self::Poll(_) | Self::BadHandle => None,
        }
    }
}

macro_rules! from {
    ($($variant:ident($source:ident)),*) => {
        $(impl From<$source> for AggregateError {
            fn from(e: $source) -> Self {
                Self::$variant(e)
            }
        })*
    };
}

from!(
    Config(ConfigError),
    Create(CreateError),
    Memory(MemError),
    Modify(ModifyError),
    Lookup(LookupError),
    Push(PushError),
    PostRecv(PostRecvError),
    Poll(PollError)
);

impl From<BadHandle> for AggregateError {
    fn from(_: BadHandle) -> Self {
        Self::BadHandle
    }
}
