//! The sending half of a queue pair: from WQEs to request packets, from responses to completions.

use std::collections::VecDeque;

use doorbell_core::units::Time;
use doorbell_core::verbs::{
    MAX_MESSAGE_BYTES, NakCode, Opcode, Operation, Psn, QKey, QpType, Qpn, Rkey, RnrTimer,
    SendFlags, Syndrome, WcStatus, WrOpcode,
};

use super::config::{AckReqLast, MAX_UNACKED, RequesterConfig};
use super::packet::{DropReason, Ext, PacketDesc, distance, opcode, read_response};

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
    /// Something was lost or refused for now. What lies before `psn` is acknowledged. This is
    /// the place of loss recovery; until a recovery rewinds to `psn`, nothing is sent again.
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
}

/// Why no packet can be sent at the moment.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Stall {
    /// No work request waits to be sent.
    Empty,
    /// Too many unacknowledged PSNs ([`RequesterConfig::max_outstanding_packets`]).
    Window,
    /// Too many unanswered READs and ATOMICs ([`RequesterConfig::max_rd_atomic`]).
    RdAtomic,
    /// FENCE waits for an earlier READ or ATOMIC.
    Fence,
    /// The next work request cannot be executed; it fails when those before it are done.
    Doomed,
}

#[derive(Copy, Clone, Debug)]
struct Entry {
    job: SendJob,
    /// `Success` until it ends, or a local error that takes effect when its turn has come.
    status: WcStatus,
    first: Psn,
    /// PSNs that it takes.
    packets: u32,
}

impl Entry {
    fn answered(&self) -> bool {
        self.job.op.is_read_or_atomic()
    }
}

/// The sending half of a QP.
///
/// The owner pushes work requests in posting order, polls packets and completions, and hands in
/// responses. Nothing happens by itself:
///
/// - poll [`poll_transmit`](Self::poll_transmit) after `push`, `on_packet` and `on_timer`, until
///   it gives `None`, at the pace at which the packets can be processed;
/// - poll [`poll_completion`](Self::poll_completion) after `on_packet`, `on_transmitted`, `push`,
///   `fail` and `flush`, until it gives `None`;
/// - read [`next_deadline`](Self::next_deadline) after any of these.
///
/// An idle requester holds no heap memory before the first push.
#[derive(Clone, Debug)]
pub struct Requester {
    cfg: RequesterConfig,
    mtu: u32,
    /// Work requests whose completion has not been polled, in posting order. The first `done`
    /// have ended; `cursor` is the one that the next packet belongs to, so
    /// `done <= cursor <= queue.len()`.
    queue: VecDeque<Entry>,
    done: usize,
    cursor: usize,
    /// Index of the next packet within the message at `cursor`.
    packet: u32,
    /// Oldest unacknowledged PSN.
    una: Psn,
    /// PSN of the next packet.
    next: Psn,
    /// PSN of the next work request that is pushed.
    tail: Psn,
    since_ack_req: u32,
    /// READs and ATOMICs between `una` and `next`.
    rd_atomic: u8,
    failed: bool,
}

impl Requester {
    /// A requester in RTS.
    ///
    /// # Panics
    /// When the window is not in 1..=[`MAX_UNACKED`] (RC).
    pub fn new(cfg: &RequesterConfig) -> Self {
        assert!(
            cfg.service != QpType::Rc || (1..=MAX_UNACKED).contains(&cfg.max_outstanding_packets),
            "max_outstanding_packets {} is not in 1..=2^23",
            cfg.max_outstanding_packets
        );
        Self {
            cfg: cfg.clone(),
            mtu: cfg.mtu.bytes(),
            queue: VecDeque::new(),
            done: 0,
            cursor: 0,
            packet: 0,
            una: cfg.sq_psn,
            next: cfg.sq_psn,
            tail: cfg.sq_psn,
            since_ack_req: 0,
            rd_atomic: 0,
            failed: false,
        }
    }

    /// Appends a work request. One that cannot be executed ends with an error when those before
    /// it have ended; after a failure everything is flushed.
    pub fn push(&mut self, job: SendJob) {
        let status = if self.failed { WcStatus::WrFlushErr } else { self.check(&job) };
        let packets = match job.op {
            WrOpcode::AtomicCmpAndSwp | WrOpcode::AtomicFetchAndAdd => 1,
            _ => self.cfg.mtu.packets_for(job.len),
        };
        self.queue.push_back(Entry { job, status, first: self.tail, packets });
        self.tail = self.tail.add(packets);
        if self.failed {
            self.done = self.queue.len();
            self.cursor = self.done;
        }
        self.settle();
    }

    /// Whether the work request can be executed at all (`protocol.md` §4.1, §5.2).
    fn check(&self, job: &SendJob) -> WcStatus {
        let op = job.op;
        let answered = op.is_read_or_atomic();
        // The wire has no UC SEND with Invalidate, and UD has SEND only: no opcode, no packet.
        let carried = (op.may_be_inline() || answered)
            && op.packet(true, true).and_then(|o| opcode(self.cfg.service, o)).is_some();
        // With a depth of 0 the request could never start; an error beats a hang.
        if !carried || (answered && self.cfg.max_rd_atomic == 0) {
            return WcStatus::LocQpOpErr;
        }
        let fits = match op {
            WrOpcode::AtomicCmpAndSwp | WrOpcode::AtomicFetchAndAdd => job.len == 8,
            _ if self.cfg.service == QpType::Ud => job.len <= self.mtu,
            _ => job.len <= MAX_MESSAGE_BYTES,
        };
        if fits { WcStatus::Success } else { WcStatus::LocLenErr }
    }

    /// The next packet, or `None` when [`blocked_by`](Self::blocked_by) names a reason. The
    /// packets of one QP have to reach the wire in the order in which they are polled.
    pub fn poll_transmit(&mut self, _now: Time) -> Option<PacketDesc> {
        if !self.peek_transmit() {
            return None;
        }
        let entry = &self.queue[self.cursor];
        let mut desc = self.describe(entry, self.packet);
        let takes =
            if entry.job.op == WrOpcode::RdmaRead { entry.packets - self.packet } else { 1 };
        let (answered, packets) = (entry.answered(), entry.packets);
        let signalled = entry.job.flags.contains(SendFlags::SIGNALED);
        self.next = self.next.add(takes);
        if self.cfg.service == QpType::Rc {
            self.rd_atomic += u8::from(answered && self.packet == 0);
            let last = self.packet + takes == packets;
            desc.ack_req = answered || self.wants_ack(last, signalled);
            self.since_ack_req = if desc.ack_req { 0 } else { self.since_ack_req + 1 };
        }
        self.packet += takes;
        if self.packet == packets {
            self.packet = 0;
            self.cursor += 1;
        }
        Some(desc)
    }

    /// AckReq of the packet that has just been counted into `next`.
    fn wants_ack(&self, last: bool, signalled: bool) -> bool {
        let by_message = last
            && match self.cfg.ack_req_last {
                AckReqLast::EveryMessage => true,
                AckReqLast::Signalled => signalled,
            };
        let every = self.cfg.ack_req_every;
        let by_count = every > 0 && self.since_ack_req + 1 >= every;
        // Nothing more can be sent: without an ACK the window would never open again.
        by_message || by_count || self.outstanding() >= self.cfg.max_outstanding_packets
    }

    /// Whether [`poll_transmit`](Self::poll_transmit) would give a packet.
    pub fn peek_transmit(&self) -> bool {
        self.blocked_by().is_none()
    }

    /// Why no packet can be sent; `None` when one can.
    pub fn blocked_by(&self) -> Option<Stall> {
        let Some(entry) = self.queue.get(self.cursor) else { return Some(Stall::Empty) };
        if entry.status != WcStatus::Success {
            return Some(Stall::Doomed);
        }
        if self.cfg.service != QpType::Rc {
            return None;
        }
        let used = self.outstanding();
        if used >= self.cfg.max_outstanding_packets {
            return Some(Stall::Window);
        }
        if self.packet > 0 {
            return None;
        }
        if self.rd_atomic > 0 && entry.job.flags.contains(SendFlags::FENCE) {
            return Some(Stall::Fence);
        }
        if entry.answered() {
            if self.rd_atomic >= self.cfg.max_rd_atomic {
                return Some(Stall::RdAtomic);
            }
            if used + entry.packets > MAX_UNACKED {
                return Some(Stall::Window);
            }
        }
        None
    }

    /// Packet `index` of a message. A READ that starts behind its first packet asks for the rest.
    fn describe(&self, entry: &Entry, index: u32) -> PacketDesc {
        let job = &entry.job;
        let answered = entry.answered();
        let offset = index * self.mtu;
        let left = job.len - offset;
        let last = answered || index + 1 == entry.packets;
        let operation = job.op.packet(answered || index == 0, last);
        let opcode = operation.and_then(|o| opcode(self.cfg.service, o));
        let opcode = opcode.expect("work requests without packets are refused when pushed");
        PacketDesc {
            opcode,
            psn: entry.first.add(index),
            dest: if self.cfg.service == QpType::Ud { job.dest } else { self.cfg.dest },
            ack_req: false,
            solicited: last && job.op.consumes_recv() && job.flags.contains(SendFlags::SOLICITED),
            wqe: job.wqe,
            offset,
            len: if answered { 0 } else { left.min(self.mtu) },
            ext: self.extended_header(job, opcode.operation(), offset),
        }
    }

    fn extended_header(&self, job: &SendJob, operation: Operation, offset: u32) -> Ext {
        let SendJob { rkey, imm_or_inv: imm, qkey, swap_add, compare, .. } = *job;
        let va = job.remote_va.wrapping_add(offset.into());
        let (dma_len, src) = (job.len - offset, self.cfg.qpn);
        match (operation, operation.has_imm()) {
            (_, true) if self.cfg.service == QpType::Ud => Ext::DethImm { qkey, src, imm },
            (_, false) if self.cfg.service == QpType::Ud => Ext::Deth { qkey, src },
            (Operation::CompareSwap, _) => Ext::Atomic { va, rkey, swap_add, compare },
            (Operation::FetchAdd, _) => Ext::Atomic { va, rkey, swap_add, compare: 0 },
            (o, true) if o.has_reth() => Ext::RethImm { va, rkey, dma_len, imm },
            (o, false) if o.has_reth() => Ext::Reth { va, rkey, dma_len },
            (_, true) => Ext::Imm(imm),
            (o, false) if o.has_ieth() => Ext::Invalidate(Rkey(imm)),
            (_, false) => Ext::None,
        }
    }

    /// Takes a response. Only what travels on the wire is looked at.
    pub fn on_packet(&mut self, _now: Time, pkt: &PacketDesc) -> Received {
        if self.cfg.service != QpType::Rc {
            return Received::Drop(DropReason::Opcode);
        }
        if self.failed {
            return Received::Drop(DropReason::QpState);
        }
        let ahead = distance(self.una, pkt.psn);
        if ahead >= self.outstanding() {
            return Received::Drop(DropReason::Stale);
        }
        match (pkt.opcode, pkt.ext) {
            (Opcode::RcAcknowledge, Ext::Aeth { syndrome, .. }) => {
                self.on_acknowledge(ahead, syndrome)
            }
            (Opcode::RcAtomicAcknowledge, Ext::AtomicAck { orig, .. }) => {
                self.on_atomic_ack(ahead, orig)
            }
            (opcode, _) if opcode.operation().is_read_response() => {
                self.on_read_response(ahead, pkt)
            }
            _ => Received::Drop(DropReason::Opcode),
        }
    }

    /// `ahead`: PSNs between the oldest unacknowledged one and the one that the packet names.
    fn on_acknowledge(&mut self, ahead: u32, syndrome: Syndrome) -> Received {
        let psn = self.una.add(ahead);
        let (below, then) = match syndrome {
            Syndrome::Ack { .. } => (ahead + 1, Received::Nothing),
            Syndrome::RnrNak { timer } => {
                (ahead, Received::Recover { psn, cause: RecoverCause::Rnr(timer) })
            }
            Syndrome::Nak { code: NakCode::PsnSequenceError } => {
                (ahead, Received::Recover { psn, cause: RecoverCause::SequenceNak })
            }
            Syndrome::Nak { code } => return self.on_fatal_nak(ahead, code),
            Syndrome::Reserved { .. } => return Received::Drop(DropReason::Syndrome),
        };
        match self.acknowledge(below) {
            Ok(()) => then,
            Err(other) => other,
        }
    }

    /// NAK Invalid Request, Remote Access or Remote Operational (`protocol.md` §2.4, §4.2).
    fn on_fatal_nak(&mut self, ahead: u32, code: NakCode) -> Received {
        let status = match code.requester_status() {
            Some(status) if code != NakCode::InvalidRdRequest => status,
            _ => return Received::Drop(DropReason::Syndrome),
        };
        match self.acknowledge(ahead) {
            Ok(()) => self.enter_error(status),
            Err(other) => other,
        }
    }

    fn on_atomic_ack(&mut self, ahead: u32, orig: u64) -> Received {
        if let Err(other) = self.acknowledge(ahead) {
            return other;
        }
        let entry = &self.queue[self.done];
        let wqe = entry.job.wqe;
        if !entry.answered() || entry.job.op == WrOpcode::RdmaRead {
            return self.enter_error(WcStatus::BadRespErr);
        }
        self.una = self.una.next();
        self.rd_atomic -= 1;
        self.end_front();
        Received::AtomicResult { wqe, orig }
    }

    fn on_read_response(&mut self, ahead: u32, pkt: &PacketDesc) -> Received {
        if let Err(other) = self.acknowledge(ahead) {
            return other;
        }
        let entry = &self.queue[self.done];
        let wqe = entry.job.wqe;
        let index = distance(entry.first, self.una);
        let offset = index * self.mtu;
        let last = index + 1 == entry.packets;
        let len = (entry.job.len - offset).min(self.mtu);
        let fits = entry.job.op == WrOpcode::RdmaRead
            && pkt.opcode.operation() == read_response(index, entry.packets)
            && pkt.len == len;
        if !fits {
            return self.enter_error(WcStatus::BadRespErr);
        }
        self.una = self.una.next();
        if last {
            self.rd_atomic -= 1;
            self.end_front();
        }
        Received::Place { wqe, offset, len, last }
    }

    /// Acknowledges the `count` oldest PSNs. Only its own response can answer a READ or ATOMIC:
    /// one that is passed by has lost it.
    fn acknowledge(&mut self, count: u32) -> Result<(), Received> {
        let mut left = count;
        while left > 0 {
            let entry = &self.queue[self.done];
            let rest = distance(self.una, entry.first.add(entry.packets));
            if entry.answered() {
                let within = entry.job.op == WrOpcode::RdmaRead && left < rest;
                let cause = if within { RecoverCause::ReadGap } else { RecoverCause::ImpliedNak };
                return Err(Received::Recover { psn: self.una, cause });
            }
            let step = rest.min(left);
            self.una = self.una.add(step);
            left -= step;
            let uncovered = if step == rest { self.end_front() } else { None };
            if let Some((wqe, status)) = uncovered {
                return Err(Received::Error { wqe, status });
            }
        }
        Ok(())
    }

    /// The oldest unfinished work request has succeeded. Gives the failure that this uncovers.
    fn end_front(&mut self) -> Option<(u32, WcStatus)> {
        self.done += 1;
        self.settle()
    }

    /// Lets a doomed work request fail as soon as all before it have ended.
    fn settle(&mut self) -> Option<(u32, WcStatus)> {
        let entry = self.queue.get(self.done)?;
        let (wqe, status) = (entry.job.wqe, entry.status);
        if status == WcStatus::Success {
            return None;
        }
        self.enter_error(status);
        Some((wqe, status))
    }

    /// The oldest unfinished work request fails with `status`, all behind it are flushed
    /// (`protocol.md` §3.3).
    fn enter_error(&mut self, status: WcStatus) -> Received {
        let mut status_of_next = status;
        for entry in self.queue.iter_mut().skip(self.done) {
            entry.status = status_of_next;
            status_of_next = WcStatus::WrFlushErr;
        }
        let wqe = self.queue.get(self.done).map_or(0, |entry| entry.job.wqe);
        self.done = self.queue.len();
        self.cursor = self.done;
        self.packet = 0;
        self.una = self.next;
        self.rd_atomic = 0;
        self.failed = true;
        Received::Error { wqe, status }
    }

    /// UC and UD: a packet has been handed to the link; with its last packet a message is
    /// complete (`protocol.md` §2.7). No effect for RC.
    pub fn on_transmitted(&mut self, pkt: &PacketDesc) {
        let acknowledged = self.cfg.service == QpType::Rc;
        if acknowledged || self.done >= self.cursor || !pkt.opcode.ends_message() {
            return;
        }
        assert_eq!(self.queue[self.done].job.wqe, pkt.wqe, "packets of a QP left out of order");
        self.una = pkt.psn.next();
        self.end_front();
    }

    /// Whether messages are complete when they are handed to the link: UC and UD.
    pub fn completes_at_link(&self) -> bool {
        self.cfg.service != QpType::Rc
    }

    /// A local error at a work request, such as a bad lkey when its payload is fetched: it stops
    /// being sent and ends with `status` once all before it have ended. Unknown or finished work
    /// requests are left alone.
    pub fn fail(&mut self, wqe: u32, status: WcStatus) {
        let unfinished = self.queue.iter_mut().skip(self.done);
        if let Some(entry) = unfinished.into_iter().find(|entry| entry.job.wqe == wqe) {
            entry.status = status;
            self.settle();
        }
    }

    /// The QP was moved to the error state: everything unfinished is flushed.
    pub fn flush(&mut self) {
        self.enter_error(WcStatus::WrFlushErr);
    }

    /// The next work request that has ended, in posting order, exactly once each.
    pub fn poll_completion(&mut self) -> Option<SendDone> {
        if self.done == 0 {
            return None;
        }
        let Entry { job, status, .. } = self.queue.pop_front()?;
        self.done -= 1;
        self.cursor -= 1;
        let signalled = job.flags.contains(SendFlags::SIGNALED) || status != WcStatus::Success;
        Some(SendDone { wqe: job.wqe, op: job.op, len: job.len, status, signalled })
    }

    /// Unacknowledged PSNs; for UC and UD those of messages not yet handed to the link.
    pub fn outstanding(&self) -> u32 {
        distance(self.una, self.next)
    }

    /// Unanswered READs and ATOMICs.
    pub fn rd_atomic(&self) -> u8 {
        self.rd_atomic
    }

    /// Oldest unacknowledged PSN; equal to [`next_psn`](Self::next_psn) when there is none.
    pub fn unacked_psn(&self) -> Psn {
        self.una
    }

    /// PSN of the next packet.
    pub fn next_psn(&self) -> Psn {
        self.next
    }

    /// No work request is queued, in flight, or ended without having been polled.
    pub fn idle(&self) -> bool {
        self.queue.is_empty()
    }

    /// In the error state (SQE for UC and UD).
    pub fn failed(&self) -> bool {
        self.failed
    }

    /// When [`on_timer`](Self::on_timer) has to be called. `None` always: this engine has no ack
    /// timer and no RNR wait yet (see the module documentation).
    pub fn next_deadline(&self) -> Option<Time> {
        None
    }

    /// The deadline has come. A call at another time is harmless.
    pub fn on_timer(&mut self, _now: Time) {}
}
