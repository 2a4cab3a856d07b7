//! Why a packet leaves, where the model knows more than the bytes say.

use core::fmt;

use doorbell_core::verbs::{NakCode, Psn};

use super::requester::RecoverCause;

/// Why a packet leaves, for the reader of a capture. It does not travel, and nothing decides by it.
///
/// ```
/// use doorbell_sim::rc::{Reason, RecoverCause};
/// let cause = RecoverCause::Timeout;
/// let reason = Reason::Resend { round: 2, limit: Some(7), cause, read: None };
/// assert_eq!(reason.to_string(), "retransmission 2 of 7, ack timeout");
/// ```
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Reason {
    /// A request that was sent before.
    Resend {
        /// Rounds of this kind since the last progress, this one included.
        round: u32,
        /// Rounds before the QP ends; `None`: no limit.
        limit: Option<u8>,
        /// What began the round.
        cause: RecoverCause,
        /// A READ that asks for a part: the packet that it begins with, from 0, and how many the
        /// whole has.
        read: Option<(u32, u32)>,
    },
    /// An ACK for a duplicate.
    AcknowledgedAgain,
    /// Data of a READ, or the result of an ATOMIC, for a duplicate.
    AnsweredAgain,
    /// An ACK that nobody asked for: receives were posted when the peer had no credit left.
    Credit,
    /// A sequence NAK.
    SequenceNak {
        /// PSN that should have come.
        expected: Psn,
        /// PSN that came.
        got: Psn,
        /// The packet is kept until the gap is closed.
        kept: bool,
    },
    /// An RNR NAK.
    NoReceive,
    /// A fatal NAK.
    Refused(BadRequest),
}

/// Which check refuses a request for good.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum BadRequest {
    /// First, Middle and Last in an order that makes no message.
    Order,
    /// The QP's access flags lack the operation.
    Access,
    /// More READs and ATOMICs than `max_dest_rd_atomic`.
    Resources,
    /// A payload or message of an illegal length.
    Length,
    /// An ATOMIC on an address that is not a multiple of 8.
    Alignment,
    /// No region has the remote key: it is wrong, or its region was deregistered or invalidated.
    UnknownKey,
    /// The region of the remote key is of another protection domain than the QP.
    OtherDomain,
    /// The region of the remote key lacks the right.
    MissingRight,
    /// The range is not inside the region of the remote key.
    OutOfRange,
    /// The receive is shorter than the message.
    ShortReceive,
    /// No region of the QP's domain has the key that a SEND invalidates.
    BadInvalidate,
    /// Memory of the receive cannot be used.
    LocalMemory,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Resend { round, limit, cause, read } => {
                write!(f, "retransmission {round}")?;
                if let Some(limit) = limit {
                    write!(f, " of {limit}")?;
                }
                match cause {
                    RecoverCause::SequenceNak => write!(f, ", sequence NAK")?,
                    RecoverCause::ImpliedNak => write!(f, ", implied NAK")?,
                    RecoverCause::ReadGap => write!(f, ", READ response missing")?,
                    RecoverCause::Rnr(timer) => write!(f, ", RNR wait of code {}", timer.code())?,
                    RecoverCause::Timeout => write!(f, ", ack timeout")?,
                }
                match read {
                    Some((at, of)) => write!(f, "; READ resumed at packet {} of {of}", at + 1),
                    None => Ok(()),
                }
            }
            Self::AcknowledgedAgain => write!(f, "duplicate, acknowledged again"),
            Self::AnsweredAgain => write!(f, "duplicate, answered again"),
            Self::Credit => write!(f, "not asked for: receives were posted, new credits"),
            Self::SequenceNak { expected, got, kept } => {
                write!(f, "sequence NAK: expected PSN {expected}, got {got}")?;
                if kept { write!(f, ", kept") } else { Ok(()) }
            }
            Self::NoReceive => write!(f, "RNR NAK: no receive"),
            Self::Refused(why) => write!(f, "NAK: {why}"),
        }
    }
}

impl BadRequest {
    /// The NAK that says so (`protocol.md` §4.2).
    pub const fn code(self) -> NakCode {
        match self {
            Self::UnknownKey | Self::OtherDomain | Self::MissingRight | Self::OutOfRange => {
                NakCode::RemoteAccessError
            }
            Self::LocalMemory => NakCode::RemoteOperationalError,
            _ => NakCode::InvalidRequest,
        }
    }
}

impl fmt::Display for BadRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Order => "packet out of its message's order",
            Self::Access => "operation not in the QP's access flags",
            Self::Resources => "more READs and ATOMICs than max_dest_rd_atomic",
            Self::Length => "illegal length",
            Self::Alignment => "ATOMIC address not a multiple of 8",
            Self::UnknownKey => "no region has this remote key (any more)",
            Self::OtherDomain => "the region of the remote key is of another protection domain",
            Self::MissingRight => "the region lacks the right that the operation needs",
            Self::OutOfRange => "the range is not inside the region",
            Self::ShortReceive => "the receive is shorter than the message",
            Self::BadInvalidate => "no region has the key to invalidate",
            Self::LocalMemory => "memory of the receive cannot be used",
        })
    }
}

#[cfg(test)]
mod tests {
    use doorbell_core::verbs::RnrTimer;

    use super::*;

    #[test]
    fn words_of_each() {
        let resend = |limit, cause, read| Reason::Resend { round: 1, limit, cause, read };
        let rnr = RecoverCause::Rnr(RnrTimer::new(12).unwrap());
        let psn = Psn::new;
        for (reason, words) in [
            (resend(None, rnr, None), "retransmission 1, RNR wait of code 12"),
            (
                resend(Some(7), RecoverCause::SequenceNak, None),
                "retransmission 1 of 7, sequence NAK",
            ),
            (
                resend(Some(3), RecoverCause::ReadGap, Some((2, 4))),
                "retransmission 1 of 3, READ response missing; READ resumed at packet 3 of 4",
            ),
            (
                Reason::SequenceNak { expected: psn(5), got: psn(6), kept: false },
                "sequence NAK: expected PSN 5, got 6",
            ),
            (Reason::Refused(BadRequest::OutOfRange), "NAK: the range is not inside the region"),
        ] {
            assert_eq!(reason.to_string(), words);
        }
    }
}
