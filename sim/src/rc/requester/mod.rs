//! The sending half of a queue pair: from WQEs to request packets, from responses to completions.
//!
//! | File | What |
//! |---|---|
//! | `mod.rs` | work requests, completions, errors |
//! | `types.rs` | what goes in and comes out |
//! | `send.rs` | which packet is next, and what it looks like |
//! | `receive.rs` | responses |
//! | `retry.rs` | losses, timers, retry counters |

mod receive;
mod retry;
mod send;
mod types;

use std::collections::VecDeque;

use doorbell_core::units::Time;
use doorbell_core::verbs::{
    AckTimeout, MAX_MESSAGE_BYTES, Msn, Psn, QpType, RetryCnt, RnrRetry, SendFlags, WcStatus,
    WrOpcode,
};

use super::config::{MAX_UNACKED, RequesterConfig, packets_for};
use super::counters::HwCounters;
use super::packet::{PacketDesc, distance, opcode};
use super::recovery::{Flight, State};
use super::timeout::Draw;
pub use types::{Ended, Received, RecoverCause, SendDone, SendJob, Stall, Standing};

#[derive(Copy, Clone, Debug)]
struct Entry {
    job: SendJob,
    /// `Success` until it ends, or a local error that takes effect when its turn has come.
    status: WcStatus,
    first: Psn,
    /// PSNs that it takes.
    packets: u32,
    /// READ: the packet from which on it was last asked for. Restarts never go back, so no
    /// earlier one can be the beginning of a response that is still awaited.
    restart: u32,
}

impl Entry {
    fn answered(&self) -> bool {
        self.job.op.is_read_or_atomic()
    }
}

/// The one timer of a requester.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Timer {
    /// Nothing is awaited.
    Idle,
    /// Without progress until then, packets count as lost.
    Ack(Time),
    /// Nothing is sent until then.
    Wait(Time, Stall),
}

/// A round of retransmissions, for the reader of a capture.
#[derive(Copy, Clone, Debug)]
struct Round {
    cause: RecoverCause,
    /// Rounds of its kind since the last progress.
    nth: u32,
    /// How many there may be.
    limit: Option<u8>,
}

/// What the ack timer depends on: packets that ask for a response, AckReq, READs and ATOMICs.
#[derive(Copy, Clone, Debug)]
struct Asked {
    /// Behind the last one that has left the port.
    left: Psn,
    /// Behind the last one that has left and was polled since the last loss.
    left_again: Psn,
    /// When the last of them left.
    at: Time,
    /// Polled, and not gone from the port.
    inside: u32,
    /// How many of these were polled before the last loss.
    old: u32,
}

impl Asked {
    const fn new(psn: Psn) -> Self {
        Self { left: psn, left_again: psn, at: Time::ZERO, inside: 0, old: 0 }
    }
}

/// End-to-end credits (`protocol.md` §2.6).
#[derive(Copy, Clone, Debug)]
struct Credits {
    /// Request messages begun; the last one has this number, modulo 2^24.
    ssn: Msn,
    /// Messages up to this one may be sent; one beyond it is limited.
    lsn: Msn,
    /// Code 31 was seen: no limit.
    unlimited: bool,
    /// The message that began beyond the limit waits behind this PSN for an ACK.
    limited: Option<Psn>,
}

/// The sending half of a QP.
///
/// The owner pushes work requests in posting order, polls packets and completions, and hands in
/// responses. Nothing happens by itself:
///
/// - poll [`poll_transmit`](Self::poll_transmit) after `push`, `on_packet` and `on_timer`, until
///   it gives `None`, at the pace at which the packets can be processed;
/// - poll [`poll_completion`](Self::poll_completion) after `on_packet`, `on_timer`,
///   `on_transmitted`, `push`, `fail` and `flush`, until it gives `None`;
/// - RC: tell [`on_departure`](Self::on_departure) of every polled packet, in order, when its last
///   bit leaves. The ack timer runs from there, so an owner that forgets it has no timer;
/// - read [`next_deadline`](Self::next_deadline) after any of these, and call
///   [`on_timer`](Self::on_timer) when it has come. The deadline moves on with progress; an owner
///   that is called too early calls in vain and reads it again.
///
/// New packets are described from `cursor`; what goes out again from the PSN that the
/// [recovery](super::LossRecovery) names, found in the queue. `next` is the high-water mark.
///
/// An idle requester with Go-Back-N holds no heap memory before the first push.
#[derive(Debug)]
pub struct Requester {
    cfg: RequesterConfig,
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
    /// PSN of the next packet that was never sent.
    next: Psn,
    /// PSN of the next work request that is pushed.
    tail: Psn,
    since_ack_req: u32,
    /// READs and ATOMICs between `una` and `next`.
    rd_atomic: u8,
    failed: bool,
    asked: Asked,
    recovery: State,
    timer: Timer,
    /// Expiries of the ack timer, retries and RNR retries since the last progress.
    expired: u32,
    retries: u32,
    rnr_retries: u32,
    /// PSN that the last RNR NAK named,
    refused: Psn,
    /// whether it came before half of the shortest ack timer was over,
    refused_early: bool,
    /// and how many waits there were since the last progress, or the last retry of another kind.
    refused_in_a_row: u32,
    /// A missing response was reacted to, and nothing has moved since.
    gap_seen: bool,
    /// The peer has executed what lies before it, as a response told that passed by a READ or
    /// ATOMIC. Equal to `una` when none did. Not kept where everything goes out again.
    passed: Psn,
    /// When the first ack timer since the last progress was started,
    began: Time,
    /// or since the last NAK, if that is later, with the retries used by then.
    resumed: Time,
    spent: u32,
    /// None was started since the last NAK.
    resumes: bool,
    /// The last round of retransmissions, the one that found no retry left included.
    round: Option<Round>,
    /// No message begins (SQD).
    holds: bool,
    /// Packets that congestion control lets be in flight.
    congestion_window: u32,
    draw: Draw,
    ended: Option<Box<Ended>>,
    credits: Credits,
    counters: HwCounters,
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
            asked: Asked::new(cfg.sq_psn),
            recovery: cfg.recovery.build(),
            timer: Timer::Idle,
            expired: 0,
            retries: 0,
            rnr_retries: 0,
            refused: cfg.sq_psn.prev(),
            refused_early: false,
            refused_in_a_row: 0,
            gap_seen: false,
            passed: cfg.sq_psn,
            began: Time::ZERO,
            resumed: Time::ZERO,
            spent: 0,
            resumes: false,
            ended: None,
            round: None,
            holds: false,
            congestion_window: u32::MAX,
            draw: Draw::new(cfg.timer_seed),
            credits: Credits {
                ssn: Msn::ZERO,
                lsn: Msn::ZERO,
                unlimited: !cfg.rules.credits,
                limited: None,
            },
            counters: HwCounters::default(),
        }
    }

    /// Appends a work request. One that cannot be executed ends with an error when those before
    /// it have ended; after a failure everything is flushed.
    pub fn push(&mut self, job: SendJob) {
        let status = if self.failed { WcStatus::WrFlushErr } else { self.check(&job) };
        let packets = match job.op {
            WrOpcode::AtomicCmpAndSwp | WrOpcode::AtomicFetchAndAdd => 1,
            _ => packets_for(job.len, self.mtu()),
        };
        self.queue.push_back(Entry { job, status, first: self.tail, packets, restart: 0 });
        self.tail = self.tail.add(packets);
        if mutant!(PsnWrapOffByOne) && self.tail.value() < packets {
            self.tail = self.tail.next();
        }
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
            _ if self.cfg.service == QpType::Ud => job.len <= self.mtu(),
            _ => job.len <= MAX_MESSAGE_BYTES,
        };
        if fits { WcStatus::Success } else { WcStatus::LocLenErr }
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
        if self.ended.is_none() {
            self.ended = Some(Box::new(self.end(status)));
        }
        let mut status_of_next = status;
        for entry in self.queue.iter_mut().skip(self.done) {
            entry.status = status_of_next;
            status_of_next = WcStatus::WrFlushErr;
        }
        if mutant!(FlushReversed) && self.done < self.queue.len() {
            self.queue.make_contiguous()[self.done + 1..].reverse();
        }
        let wqe = self.queue.get(self.done).map_or(0, |entry| entry.job.wqe);
        self.done = self.queue.len();
        self.cursor = self.done;
        self.packet = 0;
        self.una = self.next;
        self.rd_atomic = 0;
        self.failed = true;
        self.timer = Timer::Idle;
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
    /// being sent and ends with `status` once all before it have ended. So does one that has ended
    /// well just now and has not been polled: its response could not be written. Others are left
    /// alone.
    pub fn fail(&mut self, wqe: u32, status: WcStatus) {
        let of = |entry: &Entry| entry.job.wqe == wqe && entry.status == WcStatus::Success;
        let Some(i) = self.queue.iter().position(of) else { return };
        self.queue[i].status = status;
        self.done = self.done.min(i);
        self.settle();
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
        let shown = status != WcStatus::Success && !mutant!(UnsignalledErrorHidden);
        let signalled = job.flags.contains(SendFlags::SIGNALED) || shown;
        Some(SendDone { wqe: job.wqe, op: job.op, len: job.len, status, signalled })
    }

    /// SQD: no message begins any more, until it is taken back (RTS). One of which a packet was
    /// polled goes on to its end, retransmissions included.
    pub const fn hold_new_messages(&mut self, hold: bool) {
        self.holds = hold;
    }

    /// From now on `packets` may be unacknowledged, at least one. When more are out and none of
    /// them asks for a response, one more may go: it asks, and the window can open again.
    pub fn set_congestion_window(&mut self, packets: u32) {
        let (open, out) = (packets.max(1), self.outstanding());
        let asks = self.asked.inside > 0 || self.awaits_response();
        self.congestion_window = if asks { open } else { open.max(out + 1) };
    }

    /// Whether every message that had begun is complete.
    pub fn drained(&self) -> bool {
        self.packet == 0 && self.done == self.cursor
    }

    /// Whether packets of a message that has begun have not been polled yet: its last one, which
    /// may ask for an answer, is still to come.
    pub const fn amid_message(&self) -> bool {
        self.packet > 0
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

    /// Index of the oldest work request that has not ended.
    pub fn oldest_unfinished(&self) -> Option<u32> {
        self.queue.get(self.done).map(|entry| entry.job.wqe)
    }

    /// No work request is queued, in flight, or ended without having been polled.
    pub fn idle(&self) -> bool {
        self.queue.is_empty()
    }

    /// Where it stands: what is awaited and what was done about it.
    pub fn standing(&self) -> Standing {
        Standing {
            una: self.una,
            next: self.next,
            expired: self.expired,
            retries: self.retries,
            rnr_retries: self.rnr_retries,
            began: self.began,
            resumed: self.resumed,
            spent: self.spent,
            last_cause: self.round.map(|round| round.cause),
        }
    }

    /// How it failed, if it has.
    pub fn ended(&self) -> Option<&Ended> {
        self.ended.as_deref()
    }

    /// The work request that a failure with `status` ends, and where the QP stands.
    fn end(&self, status: WcStatus) -> Ended {
        let job = self.queue.get(self.done).map(|entry| entry.job);
        let oldest = job.map(|job| (job.wqe, job.op, job.len));
        Ended { status, oldest, standing: self.standing() }
    }

    /// The oldest work request that has not ended: its index, operation and bytes.
    pub fn oldest(&self) -> Option<(u32, WrOpcode, u32)> {
        self.end(WcStatus::Success).oldest
    }

    /// In the error state (SQE for UC and UD).
    pub fn failed(&self) -> bool {
        self.failed
    }

    /// Attributes that a modify may change in SQD.
    pub const fn set_attributes(
        &mut self,
        timeout: AckTimeout,
        retry_cnt: RetryCnt,
        rnr_retry: RnrRetry,
        max_rd_atomic: u8,
    ) {
        self.cfg.timeout = timeout;
        self.cfg.retry_cnt = retry_cnt;
        self.cfg.rnr_retry = rnr_retry;
        self.cfg.max_rd_atomic = max_rd_atomic;
    }

    /// Settings.
    pub const fn config(&self) -> &RequesterConfig {
        &self.cfg
    }

    /// What has happened so far.
    pub const fn counters(&self) -> &HwCounters {
        &self.counters
    }

    const fn mtu(&self) -> u32 {
        self.cfg.payload
    }

    /// PSNs that are out.
    const fn flight(&self) -> Flight {
        Flight { una: self.una, next: self.next }
    }
}
