//! What a queue pair is told when it is connected.

use doorbell_core::units::Span;
use doorbell_core::verbs::{
    AccessFlags, AckTimeout, Mtu, Psn, QKey, QpType, Qpn, RetryCnt, RnrRetry, RnrTimer,
};

use super::recovery::Recovery;
use super::rules::Rules;
use super::timeout::TimeoutMode;

/// Largest number of unacknowledged PSNs, half of the PSN space (`protocol.md` §2.1).
pub const MAX_UNACKED: u32 = Psn::HALF_SPACE;

/// When the last packet of a message asks for an acknowledgement.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum AckReqLast {
    /// Every message asks (rxe, hfi1; GPU-initiated queues of mlx5).
    EveryMessage,
    /// Only messages that make a completion ask. Fewer ACKs; an unsignalled message completes
    /// when a later packet is acknowledged, and stays outstanding when none follows.
    Signalled,
}

/// Packets of a message of `len` bytes with `payload` bytes in each but the last: at least one.
pub(super) const fn packets_for(len: u32, payload: u32) -> u32 {
    if len == 0 { 1 } else { len.div_ceil(payload) }
}

/// Settings of the sending half of a QP: what `ibv_modify_qp` gives it, and the points on which
/// implementations differ.
#[derive(Clone, Debug)]
pub struct RequesterConfig {
    /// RC, UC or UD.
    pub service: QpType,
    /// Own QP number; goes into the DETH of UD packets.
    pub qpn: Qpn,
    /// QP number of the peer. UD takes it from each work request instead.
    pub dest: Qpn,
    /// First PSN; the peer's [`ResponderConfig::rq_psn`].
    pub sq_psn: Psn,
    /// Payload of a full packet in bytes, 1 up to the path MTU, which is what the specification
    /// has. Less: more packets for the same bytes. The peer's has to be the same.
    pub payload: u32,
    /// READ and ATOMIC requests that may be unanswered, at most the peer's
    /// [`ResponderConfig::max_dest_rd_atomic`]. More overlap latencies, up to the number that
    /// fills the path. With 0 a READ or ATOMIC fails with `LOC_QP_OP_ERR`. RC only.
    pub max_rd_atomic: u8,
    /// Unacknowledged PSNs at which sending pauses, at least 1, at most [`MAX_UNACKED`]. A READ
    /// takes one PSN per response packet and may start while one is free, so it can overshoot.
    /// Lower: the sender waits for ACKs on long paths. rxe: 128 (`protocol.md` §2.1). RC only.
    pub max_outstanding_packets: u32,
    /// A packet asks for an ACK when this many have gone since the last that did; 0: never for
    /// this reason. Lower: more ACKs, earlier completions, less to resend after a loss.
    /// rxe 66, hfi1 16, mlx5 256, IBGDA 1 (`protocol.md` §10 row 10). RC only.
    pub ack_req_every: u32,
    /// Which messages ask at their end. RC only.
    pub ack_req_last: AckReqLast,
    /// Attribute `timeout`. RC only, as are all that follow.
    pub timeout: AckTimeout,
    /// Attribute `retry_cnt`: timeouts, sequence NAKs and implied NAKs in a row that the QP
    /// survives.
    pub retry_cnt: RetryCnt,
    /// Attribute `rnr_retry`: RNR NAKs in a row that the QP survives.
    pub rnr_retry: RnrRetry,
    /// What the device makes of `timeout`.
    pub timeout_mode: TimeoutMode,
    /// Names the draws of the ack timer.
    pub timer_seed: u64,
    /// From a sequence NAK to the first retransmission. Higher: a loss costs more, as on NICs whose
    /// firmware handles it.
    pub nak_reaction: Span,
    /// From a response that implies a NAK, one beyond a gap or beyond an unanswered READ or ATOMIC,
    /// to the first request that is made again. Higher: a loss among READs costs more; of some NICs
    /// far more than one among WRITEs (`protocol.md` §9).
    pub implied_nak_reaction: Span,
    /// What goes out again after a loss.
    pub recovery: Recovery,
    /// Where implementations differ.
    pub rules: Rules,
}

/// When the responder answers a request for an acknowledgement.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum AckPolicy {
    /// One ACK for each AckReq, as rxe does (`protocol.md` §2.2). The queue of unsent ACKs is
    /// bounded by the requester's window.
    EachRequest,
    /// An unsent ACK gives way to a newer one, and to the response of a READ or ATOMIC, which
    /// acknowledges what came before it.
    Coalesce {
        /// Requests for an ACK that are answered together. 1: at once, so that only ACKs that
        /// could not leave are merged. Higher: fewer ACK packets, later completions. At least 1.
        every: u32,
        /// Longest time that an ACK is held back for want of further requests. Ignored with
        /// `every` 1.
        delay: Span,
    },
}

impl AckPolicy {
    /// Answers at once and merges only what could not leave.
    pub const IMMEDIATE: Self = Self::Coalesce { every: 1, delay: Span::ZERO };
}

/// Settings of the receiving half of a QP.
#[derive(Clone, Debug)]
pub struct ResponderConfig {
    /// RC, UC or UD.
    pub service: QpType,
    /// QP number of the peer, destination of the responses.
    pub dest: Qpn,
    /// First PSN expected; the peer's [`RequesterConfig::sq_psn`].
    pub rq_psn: Psn,
    /// Payload of a full packet in bytes; the peer's [`RequesterConfig::payload`].
    pub payload: u32,
    /// READ and ATOMIC requests that are remembered, and at most worked on at once. 0 refuses
    /// them with NAK Invalid Request. RC only.
    pub max_dest_rd_atomic: u8,
    /// Operations that the peer may do: REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC.
    pub access: AccessFlags,
    /// When ACKs leave. RC only.
    pub ack: AckPolicy,
    /// Timer code that an RNR NAK carries: how long the peer has to wait at least. RC only.
    pub min_rnr_timer: RnrTimer,
    /// Queue key that a UD packet must carry. UD only.
    pub qkey: QKey,
    /// PSNs beyond the expected one within which packets are kept rather than dropped: the `hold`
    /// of the peer's [`Recovery`]. 0: none, as RC is specified. RC only.
    pub hold: u32,
    /// `None`: one sequence NAK per gap, as specified (`protocol.md` §2.3). Else it is repeated for
    /// a packet beyond the gap that comes at least so long after the last one: a retransmission
    /// that is lost too is asked for again, where it would wait for the ack timer. Each NAK makes
    /// the requester go back anew and uses one of its retries, so shorter than the round trip costs
    /// `round trip / this` packets' runs per loss, and shorter than a `retry_cnt`-th of it ends the
    /// QP at the first loss. RC only.
    pub nak_repeat: Option<Span>,
    /// Where implementations differ. RC only.
    pub rules: Rules,
}

impl RequesterConfig {
    /// The recovery parameters that are usual: T, `timeout` 14, `retry_cnt` 7, `rnr_retry` 7,
    /// Go-Back-N at once, the rules of the reference page. The rest is for the caller to say.
    pub fn of(service: QpType, qpn: Qpn, dest: Qpn, sq_psn: Psn, mtu: Mtu) -> Self {
        Self {
            service,
            qpn,
            dest,
            sq_psn,
            payload: mtu.bytes(),
            max_rd_atomic: 16,
            max_outstanding_packets: 128,
            ack_req_every: 64,
            ack_req_last: AckReqLast::EveryMessage,
            timeout: AckTimeout::new(14).expect("in range"),
            retry_cnt: RetryCnt::new(7).expect("in range"),
            rnr_retry: RnrRetry::INFINITE,
            timeout_mode: TimeoutMode::T,
            timer_seed: 0,
            nak_reaction: Span::ZERO,
            implied_nak_reaction: Span::ZERO,
            recovery: Recovery::GoBackN,
            rules: Rules::DEFAULT,
        }
    }
}

impl ResponderConfig {
    /// Everything allowed, ACKs at once, 16 READs and ATOMICs, RNR timer 12 (0.64 ms), Go-Back-N,
    /// the rules of the reference page.
    pub fn of(service: QpType, dest: Qpn, rq_psn: Psn, mtu: Mtu) -> Self {
        let access =
            AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ | AccessFlags::REMOTE_ATOMIC;
        Self {
            service,
            dest,
            rq_psn,
            payload: mtu.bytes(),
            max_dest_rd_atomic: 16,
            access,
            ack: AckPolicy::IMMEDIATE,
            min_rnr_timer: RnrTimer::new(12).expect("in range"),
            qkey: QKey(0),
            hold: 0,
            nak_repeat: None,
            rules: Rules::DEFAULT,
        }
    }
}
