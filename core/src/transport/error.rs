//! Errors: one small enum per operation.

use core::fmt;

use super::caps::Unsupported;
use super::handles::BadHandle;
use crate::verbs::{QpState, TransitionError};

/// Why a work request was not staged. Nothing changed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum StageError {
    /// The send queue is full: poll, then retry. A polled completion is all that surely gives
    /// slots back; a sender that signals nothing may wait for ever.
    SqFull,
    /// The staging area is full: ring, then retry.
    StagedFull,
    /// More inline bytes than granted.
    InlineTooLong {
        /// Bytes of the request.
        got: u32,
        /// Bytes granted.
        max: u32,
    },
    /// More scatter/gather elements than granted.
    TooManySge {
        /// Elements of the request.
        got: u32,
        /// Elements granted.
        max: u32,
    },
    /// The QP's state takes no sends.
    BadState {
        /// State that it is in.
        state: QpState,
    },
    /// The message is longer than the port allows.
    TooLong {
        /// Bytes of the request.
        got: u64,
        /// Bytes allowed.
        max: u32,
    },
    /// The id is not valid here.
    BadHandle,
    /// The operation does not exist on this QP or back end.
    Unsupported(Unsupported),
}

impl fmt::Display for StageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SqFull => f.write_str("send queue full: poll a completion, then retry"),
            Self::StagedFull => f.write_str("staging area full: ring, then retry"),
            Self::InlineTooLong { got, max } => {
                write!(f, "{got} inline bytes, {max} were granted at creation")
            }
            Self::TooManySge { got, max } => {
                write!(f, "{got} scatter/gather elements, {max} were granted at creation")
            }
            Self::BadState { state } => write!(f, "QP is {state}; posting a send needs RTS"),
            Self::TooLong { got, max } => write!(f, "message of {got} B, the port allows {max} B"),
            Self::BadHandle => BadHandle.fmt(f),
            Self::Unsupported(u) => u.fmt(f),
        }
    }
}

impl core::error::Error for StageError {}

/// What a ring announced.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Rung {
    /// WQEs announced.
    pub wqes: u32,
    /// How.
    pub by: RungBy,
}

/// How a ring reached the NIC.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum RungBy {
    /// Nothing was staged.
    Nothing,
    /// One 8-byte doorbell.
    Doorbell,
    /// The WQE itself was written to the BlueFlame buffer.
    BlueFlame,
    /// The provider decided, and does not tell (libibverbs).
    Provider,
}

/// A ring that did not announce everything.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct RingError {
    /// WQEs that the NIC knows of, a prefix of what was staged.
    pub posted: u32,
    /// WQEs that are gone; their slots are free.
    pub discarded: u32,
    /// Why.
    pub cause: RingCause,
}

/// Cause of a [`RingError`].
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum RingCause {
    /// The provider found its queue full.
    Full,
    /// The QP left a state that takes sends.
    BadState(QpState),
    /// The id is not valid here.
    BadHandle,
    /// An error code without the first refused work request: nobody can tell what was posted.
    /// The slots stay used until the QP is reset.
    Indeterminate,
    /// An `errno`.
    Os(i32),
}

impl fmt::Display for RingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ring: {} posted, {} discarded, {:?}", self.posted, self.discarded, self.cause)
    }
}

impl core::error::Error for RingError {}

/// Receives that were not posted.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct PostRecvError {
    /// Receives that were posted, a prefix of the list.
    pub posted: u32,
    /// Why the next one was not.
    pub cause: PostRecvCause,
}

/// Cause of a [`PostRecvError`].
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum PostRecvCause {
    /// The queue is full.
    Full,
    /// The QP is in RESET; posting a receive needs INIT.
    BadState(QpState),
    /// The id is not valid here.
    BadHandle,
    /// The QP takes its receives from a shared receive queue.
    UsesSrq,
    /// An error code without the first refused receive: nobody can tell what was posted. Reset the
    /// QP, or destroy the shared receive queue, before posting again.
    Indeterminate,
    /// An `errno`.
    Os(i32),
}

impl fmt::Display for PostRecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.cause == PostRecvCause::Indeterminate {
            return f.write_str(
                "the provider does not tell which receives were posted: reset the QP or destroy \
                 the shared receive queue, then post again",
            );
        }
        write!(f, "receive {} of the list: {:?}", self.posted, self.cause)
    }
}

impl core::error::Error for PostRecvError {}

/// A poll that failed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum PollError {
    /// The completion queue overran, or the device failed. It is lost.
    CqLost,
    /// The id is not valid here.
    BadHandle,
    /// Somebody else owns the polling of this queue.
    NotOwner,
}

impl fmt::Display for PollError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CqLost => "completion queue overrun: it and its QPs are lost",
            Self::BadHandle => "stale handle, or a handle of another initiator",
            Self::NotOwner => "the queue is polled by another initiator",
        })
    }
}

impl core::error::Error for PollError {}

/// Memory access or registration that failed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum MemError {
    /// The region is gone or belongs to another handle.
    BadHandle,
    /// The bytes do not lie in the region.
    OutOfRange {
        /// First byte asked for.
        offset: u64,
        /// Bytes asked for.
        len: u64,
        /// Length of the region.
        region: u64,
    },
    /// The buffer and the range differ in length.
    LengthMismatch {
        /// Bytes of the range.
        range: u64,
        /// Bytes of the buffer.
        buffer: u64,
    },
    /// The region is virtual: it has no bytes.
    Virtual,
    /// The address or length is not a multiple of the element.
    Misaligned {
        /// Bytes of an element.
        element: u64,
    },
    /// The flags contradict each other, e.g. REMOTE_WRITE without LOCAL_WRITE.
    InvalidAccess,
    /// A limit of the device or of the handle is reached.
    NoMemory {
        /// The limit.
        max: u64,
    },
    /// The machine has not so much memory.
    TooLarge {
        /// Bytes asked for.
        asked: u64,
        /// Bytes that are available; 0: nobody tells.
        available: u64,
    },
    /// The process may not lock that much memory.
    Memlock {
        /// Bytes that it may lock in all (RLIMIT_MEMLOCK).
        limit: u64,
    },
    /// The back end cannot do that.
    Unsupported(Unsupported),
    /// An `errno`.
    Os(i32),
}

impl fmt::Display for MemError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadHandle => BadHandle.fmt(f),
            Self::OutOfRange { offset, len, region } => {
                write!(f, "bytes {offset}..+{len} of a region of {region} B")
            }
            Self::LengthMismatch { range, buffer } => {
                write!(f, "range of {range} B against a buffer of {buffer} B")
            }
            Self::Virtual => f.write_str("the region is virtual: it carries no bytes to read"),
            Self::Misaligned { element } => write!(f, "not a multiple of {element} B"),
            Self::InvalidAccess => f.write_str("REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE"),
            Self::NoMemory { max } => write!(f, "limit of {max} reached"),
            Self::TooLarge { asked, available: 0 } => {
                write!(f, "a region of {asked} B asked for, and there is not so much memory")
            }
            Self::TooLarge { asked, available } => {
                write!(f, "a region of {asked} B asked for, and {available} B are available")
            }
            Self::Memlock { limit } => write!(
                f,
                "the process may lock {limit} bytes (RLIMIT_MEMLOCK): raise it with `ulimit -l`, \
                 or LimitMEMLOCK= of the service"
            ),
            Self::Unsupported(u) => u.fmt(f),
            Self::Os(errno) => write!(f, "errno {errno}"),
        }
    }
}

impl core::error::Error for MemError {}

/// An object that was not created.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum CreateError {
    /// A requested size is above the device's limit, or zero where that is impossible.
    Limit {
        /// The field, as the verbs name it.
        field: &'static str,
        /// What was asked for.
        got: u64,
        /// What the device allows.
        max: u64,
    },
    /// A handle that the object refers to is not valid.
    BadHandle,
    /// The handle cannot create this kind of object.
    Unsupported(Unsupported),
    /// An `errno` whose cause the provider does not tell.
    Os(i32),
}

impl fmt::Display for CreateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Limit { field, got, max: 0 } => write!(f, "{field} = {got} is not possible"),
            Self::Limit { field, got, max } => {
                write!(f, "{field} = {got}, the device allows 1 to {max}")
            }
            Self::BadHandle => BadHandle.fmt(f),
            Self::Unsupported(u) => u.fmt(f),
            Self::Os(errno) => write!(f, "errno {errno}"),
        }
    }
}

impl core::error::Error for CreateError {}

/// A `modify_qp` that changed nothing.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ModifyError {
    /// The transition or its attribute mask is not legal.
    Transition(TransitionError),
    /// The caller's `cur_state` is not the QP's.
    CurState {
        /// What the QP is in.
        actual: QpState,
    },
    /// An attribute has a value that the device refuses.
    Value {
        /// The attribute.
        field: &'static str,
        /// What was asked for.
        got: u64,
        /// The most that is allowed.
        max: u64,
    },
    /// The id is not valid here.
    BadHandle,
    /// The back end cannot do that.
    Unsupported(Unsupported),
    /// An `errno`.
    Os(i32),
}

impl fmt::Display for ModifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Transition(e) => e.fmt(f),
            Self::CurState { actual } => write!(f, "QP is {actual}"),
            Self::Value { field, got, max } => write!(f, "{field} = {got}, at most {max}"),
            Self::BadHandle => BadHandle.fmt(f),
            Self::Unsupported(u) => u.fmt(f),
            Self::Os(errno) => write!(f, "errno {errno}"),
        }
    }
}

impl core::error::Error for ModifyError {}

/// An object that was not destroyed. Nothing changed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum DestroyError {
    /// The id is not valid here.
    BadHandle,
    /// Something still uses the object: destroy that first.
    Busy,
    /// An `errno`.
    Os(i32),
}

impl fmt::Display for DestroyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadHandle => BadHandle.fmt(f),
            Self::Busy => f.write_str(
                "still in use: destroy QPs before their CQs and SRQs, and all before their PD",
            ),
            Self::Os(errno) => write!(f, "errno {errno}"),
        }
    }
}

impl core::error::Error for DestroyError {}

/// A shared object that was not attached.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum AttachError {
    /// Nothing was offered under that key so far: wait on
    /// [`WaitSet::BOOTSTRAP`](super::WaitSet::BOOTSTRAP), then try again.
    NotShared,
    /// The object is gone.
    Gone,
    /// It belongs to another host.
    OtherHost,
    /// It is a queue pair of another device than the one that this handle has opened.
    OtherDevice,
    /// The back end cannot share.
    Unsupported(Unsupported),
}

impl fmt::Display for AttachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotShared => f.write_str("nothing is shared under that key yet"),
            Self::Gone => f.write_str("the shared object was destroyed"),
            Self::OtherHost => f.write_str("the shared object belongs to another host"),
            Self::OtherDevice => f.write_str(
                "the shared queue pair belongs to another device of this host; open that device",
            ),
            Self::Unsupported(u) => u.fmt(f),
        }
    }
}

impl core::error::Error for AttachError {}

/// A lookup that can never be answered.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum LookupError {
    /// No program of the run has that rank.
    NoSuchRank {
        /// What was asked for.
        rank: u32,
        /// How many there are.
        size: u32,
    },
    /// The peer has ended, or the connection to it is lost, and it had not published the key.
    PeerGone {
        /// Which.
        rank: u32,
    },
}

impl fmt::Display for LookupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchRank { rank, size } => {
                write!(f, "there is no rank {rank}: the run has {size}, numbered from 0")
            }
            Self::PeerGone { rank } => write!(f, "rank {rank} has ended without publishing that"),
        }
    }
}

impl core::error::Error for LookupError {}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn messages_name_the_remedy() {
        let memlock = MemError::Memlock { limit: 65_536 }.to_string();
        assert!(memlock.contains("lock 65536 bytes") && memlock.contains("ulimit -l"), "{memlock}");
        let unknown = PostRecvError { posted: 0, cause: PostRecvCause::Indeterminate }.to_string();
        assert!(unknown.contains("reset the QP") && !unknown.contains("receive 0"), "{unknown}");
        let busy = DestroyError::Busy.to_string();
        assert!(busy.contains("QPs before their CQs"), "{busy}");
        let rank = LookupError::NoSuchRank { rank: 4, size: 4 }.to_string();
        assert_eq!(rank, "there is no rank 4: the run has 4, numbered from 0");
        assert_eq!(MemError::Os(12).to_string(), "errno 12");
    }
}
