//! What goes into a requester and what comes out, packets aside.

use doorbell_core::units::Time;
use doorbell_core::verbs::{Psn, QKey, Qpn, Rkey, RnrTimer, SendFlags, WcStatus, WrOpcode};

use super::super::packet::DropReason;

/// One work request, as the engine needs it. Buffers stay with the owner, under `wqe`.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct SendJob {
    /// Free-running send-queue index; comes back in packets and completions.
    pub wqe: u32,
    /// Operation.
    pub op: WrOpcode,
    /// Message bytes, 0 to 2^31; 8 for ATOMIC; at most the MTU for UD.
    pub len: u32,
    /// WRITE, READ, ATOMIC: remote virtual address.
    pub remote_va: u64,
    /// WRITE, READ, ATOMIC: remote key.
    pub rkey: Rkey,
    /// Immediate data, or the key to invalidate.
    pub imm_or_inv: u32,
    /// COMPARE_SWAP: value to swap in; FETCH_ADD: value to add.
    pub swap_add: u64,
    /// COMPARE_SWAP: value to compare with.
    pub compare: u64,
    /// FENCE, SIGNALED and SOLICITED count here.
    pub flags: SendFlags,
    /// UD: QP number of the receiver.
    pub dest: Qpn,
    /// UD: queue key of the receiver.
    pub qkey: QKey,
}

/// What became of a work request.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct SendDone {
    /// [`SendJob::wqe`].
    pub wqe: u32,
    /// [`SendJob::op`].
    pub op: WrOpcode,
    /// [`SendJob::len`].
    pub len: u32,
    /// How it ended.
    pub status: WcStatus,
    /// It makes a completion: it was posted signalled, or it failed (`protocol.md` §5.3).
    pub signalled: bool,
}

/// What the owner has to do with a response.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Received {
    /// An acknowledgement was used up. Poll for packets and completions.
    Nothing,
    /// Payload of a READ: write it to the local buffer of `wqe`. The completion of the last
    /// packet can be polled at once; the owner has to write the CQE after the payload.
    Place {
        /// The READ.
        wqe: u32,
        /// Where in its message, bytes.
        offset: u32,
        /// How many bytes.
        len: u32,
        /// Nothing follows.
        last: bool,
    },
    /// Result of an ATOMIC: write the 8 bytes to the local buffer of `wqe`.
    AtomicResult {
        /// The ATOMIC.
        wqe: u32,
        /// Original value of the remote word.
        orig: u64,
    },
    /// Something was lost or refused for now. What lies before `psn` is acknowledged; what the
    /// recovery wants to send again is polled, at once or after a wait.
    Recover {
        /// Oldest PSN that has to go out again.
        psn: Psn,
        /// Why.
        cause: RecoverCause,
    },
    /// The QP is in the error state now; the completions say the rest.
    Error {
        /// The work request that failed.
        wqe: u32,
        /// Its status; all behind it are flushed.
        status: WcStatus,
    },
    /// The packet has no effect.
    Drop(DropReason),
}

/// Why packets have to go out again (`protocol.md` §2.4).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum RecoverCause {
    /// NAK 0x60: the responder saw a gap.
    SequenceNak,
    /// A response passed by an unanswered READ or ATOMIC.
    ImpliedNak,
    /// A response of a READ is missing.
    ReadGap,
    /// The responder had no receive WQE; it asks to wait at least this long.
    Rnr(RnrTimer),
    /// Nothing has moved for the time of the ack timer.
    Timeout,
}

/// Why no packet can be sent at the moment.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Stall {
    /// No work request waits to be sent.
    Empty,
    /// The next message may not begin: the QP is in SQD.
    Drained,
    /// Too many unacknowledged PSNs ([`max_outstanding_packets`]).
    ///
    /// [`max_outstanding_packets`]: super::super::RequesterConfig::max_outstanding_packets
    Window,
    /// Too many unanswered READs and ATOMICs ([`max_rd_atomic`]).
    ///
    /// [`max_rd_atomic`]: super::super::RequesterConfig::max_rd_atomic
    RdAtomic,
    /// FENCE waits for an earlier READ or ATOMIC.
    Fence,
    /// The next work request cannot be executed; it fails when those before it are done.
    Doomed,
    /// The peer had no receive: its RNR timer runs.
    Rnr,
    /// A NAK, or a response that implies one, is being reacted to ([`nak_reaction`],
    /// [`implied_nak_reaction`]).
    ///
    /// [`nak_reaction`]: super::super::RequesterConfig::nak_reaction
    /// [`implied_nak_reaction`]: super::super::RequesterConfig::implied_nak_reaction
    NakReaction,
    /// The peer has given no end-to-end credit for another message that takes a receive.
    Credits,
}

/// Where a requester stands between a loss and its end.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Standing {
    /// Oldest unacknowledged PSN,
    pub una: Psn,
    /// and the next one that was never sent; equal when nothing is awaited.
    pub next: Psn,
    /// Expiries of the ack timer since the last progress.
    pub expired: u32,
    /// Of `retry_cnt`, used since then. The expiry or NAK that found none left is not in it.
    pub retries: u32,
    /// Of `rnr_retry`, likewise.
    pub rnr_retries: u32,
    /// When the first ack timer since the last progress was started: the first transmission of
    /// what is awaited.
    pub began: Time,
    /// When the first ack timer since the last progress or NAK was started, be it one for want of
    /// a receive: what the present row of expiries counts from,
    pub resumed: Time,
    /// and what of `retry_cnt` was used by then.
    pub spent: u32,
    /// What the last round of recovery was for.
    pub last_cause: Option<RecoverCause>,
}

/// How a requester failed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Ended {
    /// Status of the work request that ended it; `WrFlushErr`: the QP was moved to ERR.
    pub status: WcStatus,
    /// The oldest one that had not ended: index, operation, bytes.
    pub oldest: Option<(u32, WrOpcode, u32)>,
    /// Where it stood.
    pub standing: Standing,
}
