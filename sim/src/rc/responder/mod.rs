//! The receiving half of a queue pair: from request packets to memory work and responses.
//!
//! | File | What |
//! |---|---|
//! | `mod.rs` | verdicts about packets, in and out of sequence |
//! | `check.rs` | checks 4 to 8 of `protocol.md` §2.3 |
//! | `reply.rs` | responder resources, and responses in their order |

mod check;
mod reply;

use std::collections::VecDeque;

use doorbell_core::units::Time;
use doorbell_core::verbs::{
    AccessFlags, GRH_BYTES, Msn, NakCode, Operation, Psn, QKey, QpType, Rkey, RnrTimer, Syndrome,
    WcOpcode,
};

use super::accept::{Accept, RecvDone, Target};
use super::config::{AckPolicy, ResponderConfig};
use super::counters::HwCounters;
use super::packet::{DropReason, Ext, PacketDesc, opcode};
use super::reason::{BadRequest, Reason};
use super::rules::DuplicateAck;
use check::{Refusal, header_fits};
use reply::{Job, JobKind, Reply};

/// Message of which more packets have to come.
#[derive(Copy, Clone, Debug)]
enum Run {
    None,
    Send { got: u32 },
    Write { va: u64, rkey: Rkey, dma_len: u32, got: u32 },
}

/// What stands in the way of the next packet.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Open {
    Nothing,
    /// A sequence NAK was sent for the present gap.
    Gap,
    /// An RNR NAK was sent for the expected PSN.
    Rnr,
}

/// The receiving half of a QP.
///
/// The owner hands in request packets, does the memory work of each verdict **in order**, and
/// polls responses:
///
/// - a verdict whose memory checks fail (rkey, receive buffer too short) is taken back by
///   [`reject`](Self::reject), before any other call;
/// - poll [`poll_transmit`](Self::poll_transmit) after `on_packet`, `atomic_result`, `reject`,
///   and when [`next_deadline`](Self::next_deadline) has come, until it gives `None`. The
///   responses of one QP have to reach the wire in the order in which they are polled, and an
///   ACK not before the payload that it covers was handed to memory.
///
/// An idle responder holds no heap memory before the first request that asks for a response.
#[derive(Clone, Debug)]
pub struct Responder {
    cfg: ResponderConfig,
    mtu: u32,
    expected: Psn,
    msn: Msn,
    run: Run,
    open: Open,
    /// When the last sequence NAK of the present gap was queued.
    nak_at: Time,
    failed: bool,
    /// The fatal NAK that it failed with.
    refusal: Option<BadRequest>,
    /// Responses not yet polled, in PSN order.
    replies: VecDeque<Reply>,
    /// Responder resources in PSN order, at most `max_dest_rd_atomic`; ids begin at `first_job`.
    jobs: VecDeque<Job>,
    first_job: u32,
    /// ACK requests that the ACK at the end of `replies` stands for, and how long it may wait.
    asked: u32,
    ack_due: Time,
    /// What [`Self::reject`] goes back to.
    before: Before,
    /// PSNs of packets beyond the expected one that the owner keeps, in no order; at most
    /// `cfg.hold`.
    held: Vec<Psn>,
    /// The packet that comes next was held.
    from_hold: bool,
    /// The next packet begins a message whose memory is not there.
    faults: bool,
    /// The last RNR NAK was for that reason.
    faulted: bool,
    /// Receives that the owner has posted; `None`: not told, or shared.
    receives: Option<u32>,
    /// The last ACK told the peer that no receive is posted.
    told_none: bool,
    /// Why the response that was polled last left.
    reason: Option<Reason>,
    counters: HwCounters,
}

/// State before the last packet that was accepted, and its PSN.
#[derive(Copy, Clone, Debug)]
struct Before {
    psn: Psn,
    expected: Psn,
    msn: Msn,
}

impl Responder {
    /// A responder in RTR.
    ///
    /// # Panics
    /// When [`AckPolicy::Coalesce`] has `every` 0.
    pub fn new(cfg: &ResponderConfig) -> Self {
        assert!(
            !matches!(cfg.ack, AckPolicy::Coalesce { every: 0, .. }),
            "ACKs coalesce at least 1"
        );
        Self {
            cfg: cfg.clone(),
            mtu: cfg.payload,
            expected: cfg.rq_psn,
            msn: Msn::ZERO,
            run: Run::None,
            open: Open::Nothing,
            nak_at: Time::ZERO,
            failed: false,
            refusal: None,
            replies: VecDeque::new(),
            jobs: VecDeque::new(),
            first_job: 0,
            asked: 0,
            ack_due: Time::ZERO,
            before: Before { psn: cfg.rq_psn, expected: cfg.rq_psn, msn: Msn::ZERO },
            held: Vec::new(),
            from_hold: false,
            faults: false,
            faulted: false,
            receives: None,
            told_none: false,
            reason: None,
            counters: HwCounters::default(),
        }
    }

    /// The memory of the message that the next packet begins is not there yet: a page fault. If it
    /// would be taken, an RNR NAK leaves instead, and the requester sends it again later. RC only.
    pub const fn page_fault(&mut self) {
        self.faults = true;
    }

    /// Whether an RNR NAK for a page fault is open: the packet is taken when the page is there.
    pub fn awaits_page(&self) -> bool {
        self.open == Open::Rnr && self.faulted
    }

    /// Takes a request packet. `recv_available`: a receive WQE is posted, or is still held after
    /// an aborted UC message. The checks are 1 to 7 of `protocol.md` §2.3, as far as they need
    /// no memory; the owner does 8 and 9.
    pub fn on_packet(&mut self, now: Time, pkt: &PacketDesc, recv_available: bool) -> Accept {
        let operation = pkt.opcode.operation();
        if !operation.is_request() || opcode(self.cfg.service, operation) != Some(pkt.opcode) {
            return Accept::Drop(DropReason::Opcode);
        }
        if self.failed {
            return Accept::Drop(DropReason::QpState);
        }
        if !header_fits(pkt) {
            return Accept::Drop(DropReason::Header);
        }
        match self.cfg.service {
            QpType::Rc => self.on_rc(now, pkt, recv_available),
            QpType::Uc => self.on_uc(pkt, recv_available),
            _ => self.on_ud(pkt, recv_available),
        }
    }

    fn on_rc(&mut self, now: Time, pkt: &PacketDesc, recv_available: bool) -> Accept {
        let from_hold = std::mem::take(&mut self.from_hold);
        let faults = std::mem::take(&mut self.faults);
        let mut diff = pkt.psn.diff(self.expected);
        if mutant!(PsnComparedAsInteger) {
            diff = pkt.psn.value() as i32 - self.expected.value() as i32;
        }
        match diff {
            0 => {}
            1.. => return self.on_gap(now, pkt.psn),
            _ if mutant!(DuplicateSendExecuted) && pkt.opcode.operation().is_send() => {}
            _ if mutant!(AtomicExecutedAgain) && pkt.opcode.operation().is_atomic() => {}
            _ => return self.on_duplicate(now, pkt),
        }
        let operation = pkt.opcode.operation();
        match self.check(pkt, operation, recv_available) {
            Ok(()) if faults => return self.not_ready(pkt.psn, None),
            Ok(()) => {}
            Err(Refusal::NoReceive) => {
                self.counters.out_of_buffer += 1;
                return self.not_ready(pkt.psn, Some(Reason::NoReceive));
            }
            Err(Refusal::For(why)) => {
                return self.refuse(pkt.psn, why);
            }
        }
        self.open = Open::Nothing;
        self.before = Before { psn: pkt.psn, expected: self.expected, msn: self.msn };
        self.count(operation);
        if operation.ends_message() {
            self.msn = self.msn.next();
        }
        match pkt.ext {
            Ext::Reth { va, rkey, dma_len } if operation == Operation::RdmaReadRequest => {
                self.begin_read(va, rkey, dma_len)
            }
            Ext::Atomic { va, rkey, swap_add, compare } => {
                let job = self.begin_job(va, rkey, 8, 1, JobKind::Atomic(None));
                let add = operation == Operation::FetchAdd;
                Accept::Atomic { job, add, va, rkey, swap_add, compare }
            }
            _ => {
                self.expected = self.expected.next();
                // The requester cannot know how far the packets that were kept reach.
                let ack = pkt.ack_req || (from_hold && !self.held.contains(&self.expected));
                if ack {
                    self.acknowledge(now, pkt.psn, None);
                }
                self.place(pkt, operation, ack)
            }
        }
    }

    fn not_ready(&mut self, psn: Psn, why: Option<Reason>) -> Accept {
        self.open = Open::Rnr;
        self.faulted = why.is_none();
        self.counters.rnr_nak_sent += 1;
        let timer = self.cfg.min_rnr_timer;
        self.reply(psn, Syndrome::RnrNak { timer }, why);
        Accept::RnrNak
    }

    /// UC: a gap costs the message, not the connection (`protocol.md` §2.7).
    fn on_uc(&mut self, pkt: &PacketDesc, recv_available: bool) -> Accept {
        let operation = pkt.opcode.operation();
        if pkt.psn != self.expected || operation.starts_message() {
            self.run = Run::None;
        }
        self.before = Before { psn: pkt.psn, expected: self.expected, msn: self.msn };
        self.expected = pkt.psn.next();
        match self.check(pkt, operation, recv_available) {
            Ok(()) => self.place(pkt, operation, false),
            Err(refusal) => {
                self.run = Run::None;
                self.drop_datagram(&refusal)
            }
        }
    }

    /// UD: no sequence, one packet per message.
    fn on_ud(&mut self, pkt: &PacketDesc, recv_available: bool) -> Accept {
        let qkey = match pkt.ext {
            Ext::Deth { qkey, .. } | Ext::DethImm { qkey, .. } => qkey,
            _ => return Accept::Drop(DropReason::Header),
        };
        let operation = pkt.opcode.operation();
        if qkey != self.cfg.qkey {
            return Accept::Drop(DropReason::QKey);
        }
        match self.check(pkt, operation, recv_available) {
            Ok(()) => self.place(pkt, operation, false),
            Err(refusal) => self.drop_datagram(&refusal),
        }
    }

    fn drop_datagram(&mut self, refusal: &Refusal) -> Accept {
        let reason = refusal.reason();
        self.counters.out_of_buffer += u64::from(reason == DropReason::NoReceive);
        Accept::Drop(reason)
    }

    const fn count(&mut self, operation: Operation) {
        let c = &mut self.counters;
        match operation {
            Operation::RdmaReadRequest => c.rx_read_requests += 1,
            o if o.is_atomic() => c.rx_atomic_requests += 1,
            o if o.is_rdma_write() && o.starts_message() => c.rx_write_requests += 1,
            _ => {}
        }
    }

    /// One sequence NAK per gap (`protocol.md` §2.3), or one per packet that is kept; or repeated
    /// as long as the gap stands. While an RNR NAK is open, none unless the rules say so (§10 row
    /// 6), and nothing is kept.
    fn on_gap(&mut self, now: Time, psn: Psn) -> Accept {
        self.counters.out_of_sequence += 1;
        let code = NakCode::PsnSequenceError;
        if self.open == Open::Rnr && !self.cfg.rules.nak_during_rnr {
            return Accept::Gap { nak: false };
        }
        let ahead = psn.diff(self.expected).unsigned_abs();
        let known = self.held.contains(&psn);
        let keeps = ahead <= self.cfg.hold && self.open != Open::Rnr && !known;
        if keeps {
            self.held.push(psn);
            self.open = Open::Gap;
            self.counters.sequence_naks_sent += 1;
            let (psn, held) = (self.expected, psn);
            self.replies.push_back(Reply::Sack { psn, held });
            return Accept::Hold;
        }
        let again = self.cfg.nak_repeat.is_some_and(|span| now >= self.nak_at + span);
        let due = self.open != Open::Gap || again || mutant!(NakForEachOfGap);
        let nak = due && !mutant!(NoNakAfterGap);
        if nak {
            self.open = Open::Gap;
            self.nak_at = now;
            self.counters.sequence_naks_sent += 1;
            let (expected, got, kept) = (self.expected, psn, false);
            let why = Some(Reason::SequenceNak { expected, got, kept });
            let named = if mutant!(NakNamesReceived) { psn } else { self.expected };
            self.reply(named, Syndrome::Nak { code }, why);
        }
        Accept::Gap { nak }
    }

    /// The PSN of a packet that was kept and is expected now: hand it to
    /// [`on_packet`](Self::on_packet) again, before any other. Call after each `on_packet`, until
    /// `None`.
    pub fn take_held(&mut self) -> Option<Psn> {
        if mutant!(HeldForgotten) {
            return None;
        }
        let i = self.held.iter().position(|psn| *psn == self.expected)?;
        self.held.swap_remove(i);
        self.from_hold = true;
        Some(self.expected)
    }

    /// `protocol.md` §2.3.1. A duplicate never takes a receive and never changes the MSN.
    fn on_duplicate(&mut self, now: Time, pkt: &PacketDesc) -> Accept {
        self.counters.duplicate_request += 1;
        if mutant!(DuplicateCountsInMsn) {
            self.msn = self.msn.next();
        }
        match pkt.ext {
            Ext::Reth { va, rkey, dma_len }
                if pkt.opcode.operation() == Operation::RdmaReadRequest =>
            {
                return self.read_again(pkt.psn, va, rkey, dma_len);
            }
            Ext::Atomic { .. } => self.answer_again(pkt.psn),
            _ if self.cfg.rules.duplicate_ack == DuplicateAck::Always || pkt.ack_req => {
                let why = Some(Reason::AcknowledgedAgain);
                let newest = self.newest_behind(pkt.psn);
                let psn = if mutant!(DuplicateAckIsOld) { pkt.psn } else { newest };
                self.acknowledge(now, psn, why);
            }
            _ => {}
        }
        Accept::Duplicate
    }

    /// Verdict for a packet of a SEND or WRITE that passed all checks; moves the message on.
    fn place(&mut self, pkt: &PacketDesc, operation: Operation, ack: bool) -> Accept {
        let first = operation.starts_message();
        let last = operation.ends_message();
        let len = pkt.len;
        let (target, total) = match (self.run, pkt.ext) {
            (Run::Write { va, rkey, dma_len, got }, _) => {
                self.run = Run::Write { va, rkey, dma_len, got: got + len };
                let va = va.wrapping_add(got.into());
                (Target::Remote { va, rkey, dma_len }, got + len)
            }
            (_, Ext::Reth { va, rkey, dma_len } | Ext::RethImm { va, rkey, dma_len, .. }) => {
                self.run = Run::Write { va, rkey, dma_len, got: len };
                (Target::Remote { va, rkey, dma_len }, len)
            }
            (Run::Send { got }, _) => {
                self.run = Run::Send { got: got + len };
                (Target::Recv { offset: got }, got + len)
            }
            (Run::None, _) => {
                self.run = Run::Send { got: len };
                let offset = if self.cfg.service == QpType::Ud { GRH_BYTES } else { 0 };
                (Target::Recv { offset }, offset + len)
            }
        };
        if last {
            self.run = Run::None;
        }
        let completes = last && (operation.is_send() || operation.has_imm());
        let completes_recv = completes.then(|| RecvDone {
            op: if operation.is_send() { WcOpcode::Recv } else { WcOpcode::RecvRdmaWithImm },
            len: total,
            imm: match pkt.ext {
                Ext::Imm(imm) | Ext::RethImm { imm, .. } | Ext::DethImm { imm, .. } => Some(imm),
                _ => None,
            },
            invalidate: match pkt.ext {
                Ext::Invalidate(rkey) => Some(rkey),
                _ => None,
            },
            solicited: pkt.solicited,
        });
        let takes_recv = operation.consumes_recv();
        Accept::Place { target, len, first, last, takes_recv, completes_recv, ack }
    }

    pub(super) fn refuse(&mut self, psn: Psn, why: BadRequest) -> Accept {
        let code = why.code();
        self.reply(psn, Syndrome::Nak { code }, Some(Reason::Refused(why)));
        self.run = Run::None;
        self.failed = true;
        self.refusal = Some(why);
        Accept::Nak(code)
    }

    /// Takes back the verdict that [`on_packet`](Self::on_packet) gave last, because a check of
    /// the owner failed: of the key, the receive buffer or local memory. RC: what the packet had
    /// changed is undone, a NAK leaves behind the responses of earlier requests, and the QP is in
    /// the error state. UC, UD: the rest of the message is dropped.
    pub fn reject(&mut self, why: BadRequest) {
        self.run = Run::None;
        if why.code() == NakCode::RemoteAccessError {
            self.counters.resp_remote_access_errors += 1;
        }
        if self.cfg.service != QpType::Rc || self.failed {
            return;
        }
        let Before { psn, expected, msn } = self.before;
        self.take_back(psn);
        if !mutant!(RejectKeepsPsn) {
            self.expected = expected;
        }
        self.msn = msn;
        self.refuse(psn, why);
    }

    /// The QP was moved to the error state: nothing is answered any more.
    pub fn fail(&mut self) {
        self.failed = true;
        self.run = Run::None;
        self.replies.clear();
        self.jobs.clear();
        self.held.clear();
    }

    /// PSN that the next request has to have.
    pub fn expected_psn(&self) -> Psn {
        self.expected
    }

    /// Request messages completed, modulo 2^24.
    pub fn msn(&self) -> Msn {
        self.msn
    }

    /// In the error state. Responses to what came before the failure, and the NAK, may still
    /// wait to be polled.
    pub fn failed(&self) -> bool {
        self.failed
    }

    /// Why it has answered a request with a fatal NAK, if it has.
    pub const fn refusal(&self) -> Option<BadRequest> {
        self.refusal
    }

    /// In the error state, and every response has been polled.
    pub fn silent(&self) -> bool {
        self.failed && self.replies.is_empty()
    }

    /// Attributes that a modify may change while the QP receives.
    pub fn set_attributes(&mut self, access: AccessFlags, rnr: RnrTimer, qkey: QKey) {
        self.cfg.access = access;
        self.cfg.min_rnr_timer = rnr;
        self.cfg.qkey = qkey;
    }

    /// What has happened so far.
    pub const fn counters(&self) -> &HwCounters {
        &self.counters
    }

    /// How many receives are posted, for the credit code of the responses that are polled next;
    /// `None` with an SRQ. Without effect unless [`Rules::credits`](super::Rules::credits) is on.
    pub const fn set_receives(&mut self, posted: Option<u32>) {
        self.receives = posted;
    }
}
