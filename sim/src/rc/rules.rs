//! The points on which implementations differ, as settings (`protocol.md` §10).
//!
//! Each enum names who does what. The default of each is the choice of the reference page; the
//! preset [`Rules::RXE`] is the Linux driver `rxe`. Two more points of the list are settings of
//! their own: the spacing of AckReq (row 10, [`RequesterConfig::ack_req_every`]) and the ack
//! timeout (row 17, [`TimeoutMode`]). Most are kept by the engine; row 12, [`SlotReclaim`], by the
//! send queue around it.
//!
//! [`RequesterConfig::ack_req_every`]: super::RequesterConfig::ack_req_every
//! [`TimeoutMode`]: super::TimeoutMode

/// What `retry_cnt` 7 means (row 2).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum RetrySeven {
    /// Seven retries: the specification, and hardware.
    Seven,
    /// Retries without end: rxe. A dead peer is never reported.
    Infinite,
}

/// What a sequence NAK does to the retry counters, beyond using one retry (row 3).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum SequenceNak {
    /// PSNs that it acknowledges for the first time are progress and reload both counters, before
    /// it uses a retry. The counter ends a QP only when the same packet is lost again and again.
    Progress,
    /// Only an ACK or a response is progress: rxe. With sparse ACKs, a few losses in a row end
    /// the QP although data moves.
    UsesRetry,
    /// It reloads both counters after it has used a retry: hfi1. Sequence NAKs alone never end
    /// the QP.
    Reloads,
}

/// What a WQE with FENCE waits for (row 5).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Fence {
    /// Earlier READs and ATOMICs: the specification, hfi1.
    ReadAtomic,
    /// Everything earlier: rxe (2021), and the wording of `ibv_wr_post(3)`. Slower by a round
    /// trip behind a SEND or WRITE.
    AllPrior,
}

/// Which duplicates of SEND and WRITE are acknowledged again (row 7).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum DuplicateAck {
    /// All: rxe.
    Always,
    /// Those with AckReq: hfi1. Fewer ACKs after a retransmission.
    IfRequested,
}

/// Which duplicates of a READ are executed again (row 8).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum DuplicateRead {
    /// Those that ask for a part of the remembered READ, with its key: rxe.
    Subset,
    /// Those that also end where the remembered READ ends: hfi1.
    SameEnd,
}

/// How much of the one WQE beyond the credits is sent (row 9).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum LimitedWqe {
    /// Its first packet, with AckReq; the rest after its ACK: the specification.
    FirstPacket,
    /// All of it: hfi1.
    WholeMessage,
}

/// SEND with Invalidate of a key that does not exist or is of another PD (row 11).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum BadInvalidate {
    /// NAK Invalid Request; the receive completes with `REM_INV_REQ_ERR`, as in rxe.
    Error,
    /// The message completes as a plain SEND: hfi1.
    PlainSend,
}

/// When the slot of a send WQE can be taken by another one (row 12). `Transport` promises what
/// both keep: at the latest when a completion of the WQE, or of a later one, is polled.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum SlotReclaim {
    /// When a completion of it, or of a later WQE of its queue, is polled: mlx5. A sender that
    /// signals nothing fills its queue for ever.
    #[default]
    OnPoll,
    /// When the WQE is done, signalled or not, polled or not: rxe. The send queue is full later,
    /// and nothing keeps a sender that never polls from overrunning its completion queue.
    OnCompletion,
}

/// All of them for a QP.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Rules {
    /// Row 2.
    pub retry_seven: RetrySeven,
    /// Row 3.
    pub sequence_nak: SequenceNak,
    /// Row 5.
    pub fence: Fence,
    /// Row 6: whether a packet behind one that got an RNR NAK gets a sequence NAK (rxe), or
    /// silence (hfi1). A requester that waits for the RNR timer ignores it.
    pub nak_during_rnr: bool,
    /// Row 7.
    pub duplicate_ack: DuplicateAck,
    /// Row 8.
    pub duplicate_read: DuplicateRead,
    /// Row 9.
    pub limited_wqe: LimitedWqe,
    /// Row 11.
    pub bad_invalidate: BadInvalidate,
    /// Row 12.
    pub slot_reclaim: SlotReclaim,
    /// End-to-end credits: ACKs carry the number of free receives, and the requester keeps to it.
    /// Off, ACKs carry code 31 and the requester ignores credits (rxe; mlx5 as recalled).
    pub credits: bool,
    /// After a retry has begun, further NAKs are ignored until an ACK or response arrives or the
    /// timer expires: rxe (`protocol.md` §9).
    pub one_retry_at_a_time: bool,
    /// A new READ or ATOMIC takes the oldest responder resource whether or not its responses
    /// have left (rxe), instead of being refused with NAK Invalid Request (hfi1).
    pub recycle_resources: bool,
    /// A QP with an SRQ that has gone to ERR says by `QP_LAST_WQE_REACHED` that it takes no more
    /// receives of it (`protocol.md` §3.3). rxe of 2020 raises none (spdk/spdk issue 1697): who
    /// waits for it waits for ever.
    pub last_wqe_event: bool,
    /// Sends posted to a QP that is in ERR are flushed. Off: they are taken and never complete, as
    /// an iWARP device did with the drain marker (ceph/ceph PR 25447).
    pub flush_late_sends: bool,
    /// Receives posted on a QP's own queue are flushed in ERR. Off: only the one that the running
    /// message had taken completes (E810 of 2021, spdk/spdk issue 1840).
    pub flush_receives: bool,
}

impl Rules {
    /// The choices of the reference page.
    pub const DEFAULT: Self = Self {
        retry_seven: RetrySeven::Seven,
        sequence_nak: SequenceNak::Progress,
        fence: Fence::ReadAtomic,
        nak_during_rnr: false,
        duplicate_ack: DuplicateAck::Always,
        duplicate_read: DuplicateRead::Subset,
        limited_wqe: LimitedWqe::FirstPacket,
        bad_invalidate: BadInvalidate::Error,
        slot_reclaim: SlotReclaim::OnPoll,
        credits: false,
        one_retry_at_a_time: false,
        recycle_resources: false,
        last_wqe_event: true,
        flush_late_sends: true,
        flush_receives: true,
    };

    /// The Linux driver rxe, versions of 2021 to 2023.
    pub const RXE: Self = Self {
        retry_seven: RetrySeven::Infinite,
        sequence_nak: SequenceNak::UsesRetry,
        fence: Fence::AllPrior,
        nak_during_rnr: true,
        duplicate_ack: DuplicateAck::Always,
        duplicate_read: DuplicateRead::Subset,
        limited_wqe: LimitedWqe::WholeMessage,
        bad_invalidate: BadInvalidate::Error,
        slot_reclaim: SlotReclaim::OnCompletion,
        credits: false,
        one_retry_at_a_time: true,
        recycle_resources: true,
        last_wqe_event: false,
        flush_late_sends: true,
        flush_receives: true,
    };
}

impl Default for Rules {
    fn default() -> Self {
        Self::DEFAULT
    }
}
