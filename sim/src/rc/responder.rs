//! The receiving half of a queue pair: from request packets to memory work and responses.

use std::collections::VecDeque;

use doorbell_core::units::Time;
use doorbell_core::verbs::{
    AccessFlags, CreditCode, MAX_MESSAGE_BYTES, Msn, NakCode, Opcode, Operation, Psn, QKey, QpType,
    Rkey, RnrTimer, Syndrome, WcOpcode,
};

use super::accept::{Accept, ReadJob, RecvDone, Target};
use super::config::{AckPolicy, GRH_BYTES, ResponderConfig};
use super::packet::{DropReason, Ext, PacketDesc, opcode, read_response};

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

/// A response that has to leave, in PSN order.
#[derive(Copy, Clone, Debug)]
enum Reply {
    Acknowledge { psn: Psn, msn: Msn, syndrome: Syndrome },
    Job(u32),
}

/// A READ or ATOMIC: an entry of the responder resources. It stays after its last response, for
/// retries, until a newer one needs its place.
#[derive(Copy, Clone, Debug)]
struct Job {
    first: Psn,
    msn: Msn,
    /// Responses in all, and those polled so far.
    packets: u32,
    sent: u32,
    va: u64,
    rkey: Rkey,
    len: u32,
    kind: JobKind,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum JobKind {
    Read,
    /// The original value, once it is known.
    Atomic(Option<u64>),
}

enum Refusal {
    NoReceive,
    Sequence,
    Access,
    Length,
    Invalid,
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
    failed: bool,
    /// Responses not yet polled, in PSN order.
    replies: VecDeque<Reply>,
    /// Responder resources in PSN order, at most `max_dest_rd_atomic`; ids begin at `first_job`.
    jobs: VecDeque<Job>,
    first_job: u32,
    /// ACK requests that the ACK at the end of `replies` stands for, and how long it may wait.
    asked: u32,
    ack_due: Time,
    /// PSN and MSN before the last accepted packet, for [`Self::reject`].
    before: (Psn, Msn),
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
            mtu: cfg.mtu.bytes(),
            expected: cfg.rq_psn,
            msn: Msn::ZERO,
            run: Run::None,
            open: Open::Nothing,
            failed: false,
            replies: VecDeque::new(),
            jobs: VecDeque::new(),
            first_job: 0,
            asked: 0,
            ack_due: Time::ZERO,
            before: (cfg.rq_psn, Msn::ZERO),
        }
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
        match pkt.psn.diff(self.expected) {
            0 => {}
            1.. => return self.on_gap(),
            _ => return self.on_duplicate(now, pkt),
        }
        let operation = pkt.opcode.operation();
        match self.check(pkt, operation, recv_available) {
            Ok(()) => {}
            Err(Refusal::NoReceive) => {
                self.open = Open::Rnr;
                let timer = self.cfg.min_rnr_timer;
                self.reply(pkt.psn, Syndrome::RnrNak { timer });
                return Accept::RnrNak;
            }
            Err(_) => return self.refuse(pkt.psn, NakCode::InvalidRequest),
        }
        self.open = Open::Nothing;
        self.before = (self.expected, self.msn);
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
                if pkt.ack_req {
                    self.acknowledge(now, pkt.psn);
                }
                self.place(pkt, operation, pkt.ack_req)
            }
        }
    }

    /// UC: a gap costs the message, not the connection (`protocol.md` §2.7).
    fn on_uc(&mut self, pkt: &PacketDesc, recv_available: bool) -> Accept {
        let operation = pkt.opcode.operation();
        if pkt.psn != self.expected || operation.starts_message() {
            self.run = Run::None;
        }
        self.before = (self.expected, self.msn);
        self.expected = pkt.psn.next();
        match self.check(pkt, operation, recv_available) {
            Ok(()) => self.place(pkt, operation, false),
            Err(refusal) => {
                self.run = Run::None;
                Accept::Drop(refusal.reason())
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
            Err(refusal) => Accept::Drop(refusal.reason()),
        }
    }

    /// Checks 4 to 7 of `protocol.md` §2.3, in their order, and of 8 the alignment.
    fn check(&self, pkt: &PacketDesc, operation: Operation, recv: bool) -> Result<(), Refusal> {
        let follows = match self.run {
            Run::None => operation.starts_message(),
            Run::Send { .. } => operation.is_send() && !operation.starts_message(),
            Run::Write { .. } => operation.is_rdma_write() && !operation.starts_message(),
        };
        if !follows {
            return Err(Refusal::Sequence);
        }
        let needed = match operation {
            o if o.is_send() => AccessFlags::empty(),
            o if o.is_rdma_write() => AccessFlags::REMOTE_WRITE,
            Operation::RdmaReadRequest => AccessFlags::REMOTE_READ,
            o if o.is_atomic() => AccessFlags::REMOTE_ATOMIC,
            // FLUSH and ATOMIC WRITE are not offered.
            _ => return Err(Refusal::Access),
        };
        if !self.cfg.access.contains(needed) {
            return Err(Refusal::Access);
        }
        if operation.consumes_recv() && !recv {
            return Err(Refusal::NoReceive);
        }
        let uses_slot = operation == Operation::RdmaReadRequest || operation.is_atomic();
        if uses_slot && !self.slot_free() {
            return Err(Refusal::Invalid);
        }
        self.check_length(pkt, operation)
    }

    fn check_length(&self, pkt: &PacketDesc, operation: Operation) -> Result<(), Refusal> {
        if !operation.payload().allows(pkt.len, self.mtu) {
            return Err(Refusal::Length);
        }
        let (total, limit) = match (self.run, pkt.ext) {
            (Run::Send { got }, _) => (got + pkt.len, MAX_MESSAGE_BYTES),
            (Run::Write { got, dma_len, .. }, _) => (got + pkt.len, dma_len),
            (Run::None, Ext::Reth { dma_len, .. } | Ext::RethImm { dma_len, .. }) => {
                if dma_len > MAX_MESSAGE_BYTES {
                    return Err(Refusal::Length);
                }
                (pkt.len, dma_len)
            }
            (Run::None, Ext::Atomic { va, .. }) => {
                return if va % 8 == 0 { Ok(()) } else { Err(Refusal::Invalid) };
            }
            (Run::None, _) => (pkt.len, MAX_MESSAGE_BYTES),
        };
        // A WRITE has to end exactly where its RETH says.
        let ends_short = operation.is_rdma_write() && operation.ends_message() && total != limit;
        if total > limit || ends_short { Err(Refusal::Length) } else { Ok(()) }
    }

    /// hfi1's rule: the oldest entry may be taken only when its responses have left.
    fn slot_free(&self) -> bool {
        self.jobs.len() < usize::from(self.cfg.max_dest_rd_atomic)
            || self.jobs.front().is_some_and(|job| job.sent == job.packets)
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

    fn begin_read(&mut self, va: u64, rkey: Rkey, len: u32) -> Accept {
        let packets = self.cfg.mtu.packets_for(len);
        let job = self.begin_job(va, rkey, len, packets, JobKind::Read);
        Accept::Read { job, va, rkey, len }
    }

    fn begin_job(&mut self, va: u64, rkey: Rkey, len: u32, packets: u32, kind: JobKind) -> u32 {
        if self.jobs.len() == usize::from(self.cfg.max_dest_rd_atomic) {
            self.jobs.pop_front();
            self.first_job = self.first_job.wrapping_add(1);
        }
        // The response acknowledges what an ACK that is still here would.
        let implied = matches!(self.cfg.ack, AckPolicy::Coalesce { .. });
        if implied && self.last_reply_is_ack() {
            self.replies.pop_back();
        }
        let id = self.first_job.wrapping_add(self.jobs.len() as u32);
        let (first, msn) = (self.expected, self.msn);
        self.jobs.push_back(Job { first, msn, packets, sent: 0, va, rkey, len, kind });
        self.replies.push_back(Reply::Job(id));
        self.expected = self.expected.add(packets);
        id
    }

    fn last_reply_is_ack(&self) -> bool {
        let ack =
            |r: &Reply| matches!(r, Reply::Acknowledge { syndrome: Syndrome::Ack { .. }, .. });
        self.replies.back().is_some_and(ack)
    }

    /// An ACK up to `psn` has to leave.
    fn acknowledge(&mut self, now: Time, psn: Psn) {
        let syndrome = Syndrome::Ack { credit: CreditCode::NO_LIMIT };
        match self.cfg.ack {
            AckPolicy::Coalesce { .. } if self.last_reply_is_ack() => {
                self.replies.pop_back();
                self.asked += 1;
            }
            AckPolicy::Coalesce { delay, .. } => {
                self.asked = 1;
                self.ack_due = now + delay;
            }
            AckPolicy::EachRequest => {}
        }
        self.reply(psn, syndrome);
    }

    fn reply(&mut self, psn: Psn, syndrome: Syndrome) {
        self.replies.push_back(Reply::Acknowledge { psn, msn: self.msn, syndrome });
    }

    /// One sequence NAK per gap; none while an RNR NAK is open (`protocol.md` §2.3, §10 row 6).
    fn on_gap(&mut self) -> Accept {
        let nak = self.open == Open::Nothing;
        if nak {
            self.open = Open::Gap;
            self.reply(self.expected, Syndrome::Nak { code: NakCode::PsnSequenceError });
        }
        Accept::Gap { nak }
    }

    /// SEND and WRITE are acknowledged always, as rxe does (`protocol.md` §10 row 7). The replay
    /// of READ and ATOMIC from `jobs` belongs here.
    fn on_duplicate(&mut self, now: Time, pkt: &PacketDesc) -> Accept {
        let operation = pkt.opcode.operation();
        if operation.is_send() || operation.is_rdma_write() {
            self.acknowledge(now, self.expected.prev());
        }
        Accept::Duplicate
    }

    fn refuse(&mut self, psn: Psn, code: NakCode) -> Accept {
        self.reply(psn, Syndrome::Nak { code });
        self.run = Run::None;
        self.failed = true;
        Accept::Nak(code)
    }

    /// Takes back the verdict that [`on_packet`](Self::on_packet) gave last, because a check of
    /// the owner failed: key (`RemoteAccessError`), receive buffer (`InvalidRequest`), local
    /// memory (`RemoteOperationalError`). RC: what the packet had changed is undone, a NAK leaves
    /// behind the responses of earlier requests, and the QP is in the error state. UC, UD: the
    /// rest of the message is dropped.
    ///
    /// # Panics
    /// When `code` is not one of these three.
    pub fn reject(&mut self, code: NakCode) {
        assert!(
            code.is_fatal() && code != NakCode::InvalidRdRequest,
            "a verdict cannot be rejected with {code}"
        );
        self.run = Run::None;
        if self.cfg.service != QpType::Rc || self.failed {
            return;
        }
        let (psn, msn) = self.before;
        let caused = match self.replies.back() {
            Some(Reply::Acknowledge { psn: acknowledged, .. }) => *acknowledged == psn,
            Some(Reply::Job(id)) => self.job(*id).is_some_and(|job| job.first == psn),
            None => false,
        };
        if caused && matches!(self.replies.pop_back(), Some(Reply::Job(_))) {
            self.jobs.pop_back();
        }
        self.expected = psn;
        self.msn = msn;
        self.refuse(psn, code);
    }

    /// The original value of the word that an ATOMIC changed; its response can leave. No effect
    /// when the job is gone because the QP failed meanwhile, or has its result.
    pub fn atomic_result(&mut self, job: u32, orig: u64) {
        let index = job.wrapping_sub(self.first_job) as usize;
        let waiting = self.jobs.get_mut(index).filter(|j| j.kind == JobKind::Atomic(None));
        if let Some(job) = waiting {
            job.kind = JobKind::Atomic(Some(orig));
        }
    }

    /// The next response, in PSN order: ACK, NAK, READ response or ATOMIC acknowledgement.
    /// `None`: none is due; an ATOMIC without result holds back all behind it.
    pub fn poll_transmit(&mut self, now: Time) -> Option<PacketDesc> {
        if !self.peek_transmit(now) {
            return None;
        }
        match *self.replies.front()? {
            Reply::Acknowledge { psn, msn, syndrome } => {
                self.replies.pop_front();
                Some(self.response(Opcode::RcAcknowledge, psn, 0, Ext::Aeth { syndrome, msn }))
            }
            Reply::Job(id) => self.job_response(id),
        }
    }

    fn job_response(&mut self, id: u32) -> Option<PacketDesc> {
        let index = id.wrapping_sub(self.first_job) as usize;
        let job = self.jobs.get_mut(index)?;
        let sent = job.sent;
        job.sent += 1;
        let job = *job;
        if job.sent == job.packets {
            self.replies.pop_front();
        }
        let syndrome = Syndrome::Ack { credit: CreditCode::NO_LIMIT };
        let psn = job.first.add(sent);
        if let JobKind::Atomic(orig) = job.kind {
            let ext = Ext::AtomicAck { syndrome, msn: job.msn, orig: orig? };
            return Some(self.response(Opcode::RcAtomicAcknowledge, psn, id, ext));
        }
        let operation = read_response(sent, job.packets);
        let ext =
            if operation.has_aeth() { Ext::Aeth { syndrome, msn: job.msn } } else { Ext::None };
        let offset = sent * self.mtu;
        let len = (job.len - offset).min(self.mtu);
        let desc = self.response(opcode(QpType::Rc, operation)?, psn, id, ext);
        Some(PacketDesc { offset, len, ..desc })
    }

    fn response(&self, opcode: Opcode, psn: Psn, job: u32, ext: Ext) -> PacketDesc {
        PacketDesc {
            opcode,
            psn,
            dest: self.cfg.dest,
            ack_req: false,
            solicited: false,
            wqe: job,
            offset: 0,
            len: 0,
            ext,
        }
    }

    /// Whether [`poll_transmit`](Self::poll_transmit) would give a packet at `now`.
    pub fn peek_transmit(&self, now: Time) -> bool {
        match self.replies.front() {
            None => false,
            Some(Reply::Acknowledge { .. }) => self.held_until().is_none_or(|due| due <= now),
            Some(Reply::Job(id)) => {
                self.job(*id).is_some_and(|job| job.kind != JobKind::Atomic(None))
            }
        }
    }

    /// Whether the next response is one of a READ, whose payload has to be fetched.
    pub fn peek_read(&self) -> bool {
        match self.replies.front() {
            Some(Reply::Job(id)) => self.job(*id).is_some_and(|job| job.kind == JobKind::Read),
            _ => false,
        }
    }

    /// Until when the only reply, an ACK, waits for further requests.
    fn held_until(&self) -> Option<Time> {
        let AckPolicy::Coalesce { every, .. } = self.cfg.ack else { return None };
        let alone = self.replies.len() == 1 && self.last_reply_is_ack();
        (alone && self.asked < every).then_some(self.ack_due)
    }

    /// When [`poll_transmit`](Self::poll_transmit) has to be called though nothing has happened:
    /// an ACK is being held back until then. Read it when `poll_transmit` has given `None`.
    pub fn next_deadline(&self) -> Option<Time> {
        self.held_until()
    }

    /// The QP was moved to the error state: nothing is answered any more.
    pub fn fail(&mut self) {
        self.failed = true;
        self.run = Run::None;
        self.replies.clear();
        self.jobs.clear();
    }

    fn job(&self, id: u32) -> Option<&Job> {
        self.jobs.get(id.wrapping_sub(self.first_job) as usize)
    }

    /// What READ `job` wants, as long as it is remembered.
    pub fn read_job(&self, job: u32) -> Option<ReadJob> {
        let job = self.job(job).filter(|job| job.kind == JobKind::Read)?;
        Some(ReadJob { va: job.va, rkey: job.rkey, len: job.len })
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
}

impl Refusal {
    /// How an unreliable service counts it.
    fn reason(&self) -> DropReason {
        match self {
            Self::NoReceive => DropReason::NoReceive,
            Self::Sequence => DropReason::Sequence,
            Self::Access => DropReason::Access,
            Self::Length => DropReason::Length,
            Self::Invalid => DropReason::Opcode,
        }
    }
}

/// Whether the extended header is the one that the opcode announces.
fn header_fits(pkt: &PacketDesc) -> bool {
    let op = pkt.opcode;
    match pkt.ext {
        Ext::None => op.header_bytes() == BTH_BYTES,
        Ext::Reth { .. } => op.has_reth() && !op.has_imm(),
        Ext::RethImm { .. } => op.has_reth() && op.has_imm(),
        Ext::Imm(_) => op.has_imm() && !op.has_reth() && !op.has_deth(),
        Ext::Invalidate(_) => op.has_ieth(),
        Ext::Atomic { .. } => op.has_atomic_eth(),
        Ext::Aeth { .. } => op.has_aeth() && !op.has_atomic_ack_eth(),
        Ext::AtomicAck { .. } => op.has_atomic_ack_eth(),
        Ext::Deth { .. } => op.has_deth() && !op.has_imm(),
        Ext::DethImm { .. } => op.has_deth() && op.has_imm(),
    }
}

/// A BTH alone.
const BTH_BYTES: u32 = 12;
