//! What the workloads share: the shape of a message, failures, results.

use doorbell_core::policy::aggregate::AggregateError;
use doorbell_core::policy::initiator::{CommandError, ProxyError};
use doorbell_core::policy::lanes::{LaneError, LanesError};
use doorbell_core::policy::{Batcher, Cue, PushError, Pushed};
use doorbell_core::transport::{
    AttachError, Completion, Completions, CqId, CreateError, Data, LookupError, MemError,
    ModifyError, Mr, PollError, PostRecvError, QpCaps, Range, Remote, RingError, SendOp, SendWr,
    Sge, StageError, Transport, UdDest, Unsupported, WorkQueue,
};
use doorbell_core::units::{Span, Time};
use doorbell_core::verbs::{GRH_BYTES, QpType, SendFlags, WcStatus};

use super::aggregate::Sums;
use super::all_to_all::Exchanged;
use super::connect::Lane;
use super::flows::FlowTimes;
use super::script::LogEntry;
use super::statuses::Statuses;
use super::transfer::KernelUse;
use super::tuning::TuningResults;

/// Operation of a message.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum Op {
    /// SEND: takes a receive at the peer.
    Send,
    /// SEND with the message number as immediate data.
    SendImm,
    /// SEND that invalidates the key of the peer's memory.
    SendInv,
    /// RDMA WRITE: the peer's program is not told.
    #[default]
    Write,
    /// RDMA WRITE with the message number as immediate data: takes a receive at the peer.
    WriteImm,
    /// RDMA READ of the peer's memory.
    Read,
    /// Compare and swap of 8 bytes, message number for message number plus one. It succeeds every
    /// time when nobody else writes the word.
    CmpSwap,
    /// Fetch and add of 1 to 8 bytes.
    FetchAdd,
}

impl Op {
    /// Whether it takes a receive at the peer.
    pub const fn takes_receive(self) -> bool {
        matches!(self, Self::Send | Self::SendImm | Self::SendInv | Self::WriteImm)
    }

    /// Whether it takes a place among the outstanding READs and atomics.
    pub const fn is_read_or_atomic(self) -> bool {
        matches!(self, Self::Read) || self.is_atomic()
    }

    /// Whether it is an ATOMIC, which moves 8 bytes whatever the size says.
    pub const fn is_atomic(self) -> bool {
        matches!(self, Self::CmpSwap | Self::FetchAdd)
    }

    /// The work request's operation on `remote` for message `n`.
    pub const fn to_send_op(self, remote: Remote, n: u64) -> SendOp {
        match self {
            Self::Send => SendOp::Send,
            Self::SendImm => SendOp::SendImm(n as u32),
            Self::SendInv => SendOp::SendInv(remote.rkey),
            Self::Write => SendOp::Write(remote),
            Self::WriteImm => SendOp::WriteImm(remote, n as u32),
            Self::Read => SendOp::Read(remote),
            Self::CmpSwap => SendOp::CmpSwap { remote, compare: n, swap: n.wrapping_add(1) },
            Self::FetchAdd => SendOp::FetchAdd { remote, add: 1 },
        }
    }
}

/// What a message looks like.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Operation.
    pub op: Op,
    /// Payload in bytes. ATOMICs move 8 bytes and ignore it.
    pub size: u32,
    /// Whether the payload travels in the WQE. Saves the NIC one PCIe read of the payload; costs
    /// the core a copy and makes the WQE longer. Not for READ and ATOMIC: they have no payload to
    /// send, and the post fails.
    pub inline: bool,
}

impl Shape {
    /// Bytes that one message moves.
    pub const fn bytes(&self) -> u32 {
        if self.op.is_atomic() { 8 } else { self.size }
    }

    /// Distance of two buffers, so that none shares a cache line with another.
    pub const fn stride(&self) -> u64 {
        let b = self.bytes();
        if b == 0 { 64 } else { (b as u64).next_multiple_of(64) }
    }
}

impl Default for Shape {
    /// An 8-byte WRITE that is not inline.
    fn default() -> Self {
        Self { op: Op::Write, size: 8, inline: false }
    }
}

/// Why a program ended before its time.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Failure {
    /// The peer published nothing before the deadline.
    #[error("rank {peer} did not publish {what} before the deadline")]
    NoPeer {
        /// Rank of the peer.
        peer: u32,
        /// What is missing.
        what: &'static str,
    },
    /// What the peer should have published can never come.
    #[error("bootstrap: {0}")]
    Lookup(#[from] LookupError),
    /// What the peer published cannot be read.
    #[error("rank {peer} published something that is no endpoint")]
    BadCard {
        /// Rank of the peer.
        peer: u32,
    },
    /// The peer offers less memory than the messages need.
    #[error("rank {peer} offers {got} B, the messages need {need} B")]
    PeerRegion {
        /// Rank of the peer.
        peer: u32,
        /// Bytes offered.
        got: u64,
        /// Bytes needed.
        need: u64,
    },
    /// The own region is smaller than the messages need.
    #[error("own region of {got} B, the messages need {need} B")]
    OwnRegion {
        /// Bytes of the region.
        got: u64,
        /// Bytes needed.
        need: u64,
    },
    /// An object was not created.
    #[error("create: {0}")]
    Create(#[from] CreateError),
    /// Memory was not registered or not accessed.
    #[error("memory: {0}")]
    Memory(#[from] MemError),
    /// A state was not reached.
    #[error("modify: {0}")]
    Modify(#[from] ModifyError),
    /// A work request was refused.
    #[error("stage: {0}")]
    Stage(#[from] StageError),
    /// A ring failed.
    #[error("{0}")]
    Ring(#[from] RingError),
    /// A receive was refused.
    #[error("post receive: {0}")]
    PostRecv(#[from] PostRecvError),
    /// A completion queue is lost.
    #[error("poll: {0}")]
    Poll(#[from] PollError),
    /// Nothing can be shared here.
    #[error("share: {0}")]
    Share(#[from] Unsupported),
    /// A shared object was not attached.
    #[error("attach: {0}")]
    Attach(#[from] AttachError),
    /// A work request completed in error.
    #[error("work request {wr_id} of the {queue:?} queue: {status}")]
    Completion {
        /// Of the work request.
        wr_id: u64,
        /// Which queue.
        queue: WorkQueue,
        /// Why.
        status: WcStatus,
    },
    /// An aggregation has no sum.
    #[error("{0}")]
    Aggregate(#[from] AggregateError),
    /// Lanes were not made.
    #[error("lanes: {0}")]
    Lanes(#[from] LanesError),
    /// A message did not go by its lane.
    #[error("lane: {0}")]
    Lane(#[from] LaneError),
    /// A proxy was not made, or cannot go on.
    #[error("proxy: {0}")]
    Proxy(#[from] ProxyError),
    /// The configuration contradicts itself.
    #[error("{0}")]
    Config(&'static str),
}

impl From<PushError> for Failure {
    fn from(e: PushError) -> Self {
        match e {
            PushError::Refused(e) => Self::Stage(e),
            PushError::Ring { error, .. } => Self::Ring(error),
        }
    }
}

impl From<CommandError> for Failure {
    fn from(e: CommandError) -> Self {
        match e {
            CommandError::Full => Self::Config("a command queue has fewer slots than buffers"),
            CommandError::Failed { done, status } => {
                Self::Completion { wr_id: done, queue: WorkQueue::Send, status }
            }
            CommandError::Memory(e) => Self::Memory(e),
        }
    }
}

/// Messages whose data was not what the sender had produced.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct DataErrors {
    /// The checksum does not fit: bytes of different messages, or of none.
    pub corrupt: u64,
    /// A whole message, but an earlier one: its buffer or its WQE was read too early.
    pub stale: u64,
    /// Messages that never came though their sender saw them complete with success, on a reliable
    /// service: something else was executed in their place.
    pub missing: u64,
    /// No errors: the same on an unreliable service, which says only that they were sent: they did
    /// not come, not whole, or an earlier one that came late lies in their place.
    pub lost: u64,
    /// No errors: of the lost ones those of which some packets lie in their buffer, and not all.
    pub incomplete: u64,
    /// No errors: messages that an unreliable service brought once more.
    pub repeated: u64,
    /// Whether stores could overtake each other at the sender: nothing ordered those of a GPU.
    pub unordered: bool,
    /// No errors: messages that did not come and of which their sender does not say that they were
    /// sent. It ended before it posted them, or they ended with an error.
    pub unsent: u64,
    /// No errors: messages whose completion was there before their payload, so that a second look
    /// found what the first one did not.
    pub early: u64,
}

impl DataErrors {
    /// Messages that came wrong.
    pub const fn wrong(&self) -> u64 {
        self.corrupt + self.stale
    }
}

/// Most samples that one program keeps: 16 MiB with their times.
pub const MAX_SAMPLES: usize = 1 << 20;

/// What one program measured. Fields that a workload does not fill stay at their default.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Results {
    /// What was granted to the first QP of the link.
    pub granted: Option<QpCaps>,
    /// Messages whose completion was seen, warm-up included.
    pub messages: u64,
    /// Their payload in bytes.
    pub bytes: u64,
    /// Messages received, by receive completions or by watching memory.
    pub received: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Bytes of the receive buffers that messages had taken and did not fill.
    pub wasted_bytes: u64,
    /// SRQ limit events that the program has taken.
    pub srq_limits: u64,
    /// Rings that announced at least one WQE.
    pub rings: u64,
    /// WQEs announced and never confirmed by a completion: the unsignalled tail.
    pub unconfirmed: u64,
    /// Latencies in the order in which they were measured, without warm-up; what is measured is
    /// said at the workload. At most [`MAX_SAMPLES`].
    pub latencies: Vec<Span>,
    /// When each of them was known.
    pub latency_times: Vec<Time>,
    /// Latencies that found no room.
    pub latencies_dropped: u64,
    /// When each message was ready, of producers; at most [`MAX_SAMPLES`].
    pub ready: Vec<Time>,
    /// When the first message was handed over.
    pub first: Option<Time>,
    /// When the last completion was seen.
    pub last: Option<Time>,
    /// Time in which it had messages to hand over and waited for room in its send queues.
    pub no_room: Span,
    /// The window in which rates are to be computed: without warm-up, and without the tail.
    pub window: Option<Window>,
    /// Data that was not right.
    pub data: DataErrors,
    /// Statuses of the completions of a script, or of the responder of one.
    pub statuses: Statuses,
    /// What a script did, step by step.
    pub log: Vec<LogEntry>,
    /// The line at which a script stands; `None`: it has not begun, or is done.
    pub waits_at: Option<u32>,
    /// Times of flows.
    pub flows: FlowTimes,
    /// What each lane of a program with several measured, by name.
    pub lanes: Vec<(String, Results)>,
    /// Sums, of members of an aggregation.
    pub sums: Option<Sums>,
    /// Rounds, of members of an exchange.
    pub exchanged: Option<Exchanged>,
    /// Messages that came, of requests and replies with contents.
    pub checked: Option<Checked>,
    /// What the kernel did, of transfers by TCP.
    pub kernel: Option<KernelUse>,
    /// What its tuner did.
    pub tuning: Option<TuningResults>,
    /// Why it ended early.
    pub failure: Option<Failure>,
}

/// Messages that were checked where they came.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Checked {
    /// Those that came,
    pub complete: u64,
    /// and of these those of which a byte was not what was sent, or that came in another's place.
    pub wrong: u64,
}

impl Results {
    /// What of its sums, exchanges or messages is wrong, in words, if anything is.
    pub fn wrong_rounds(&self) -> Option<String> {
        let sums = self.sums.map(|s| ("sums", s.wrong, s.complete));
        let exchanges = self.exchanged.map(|e| ("exchanges", e.wrong, e.complete));
        let messages = self.checked.map(|m| ("messages", m.wrong, m.complete));
        let all = [sums, exchanges, messages].into_iter().flatten();
        let (what, wrong, complete) = all.into_iter().find(|w| w.1 > 0)?;
        Some(format!(
            "{wrong} of its {complete} {what} have wrong bytes, without an error: memory was read \
             before the payload was there, or changed while it was on its way"
        ))
    }
}

/// A time window and what was completed in it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Window {
    /// Its start.
    pub from: Time,
    /// Its end.
    pub to: Time,
    /// Messages completed after `from`, up to `to`.
    pub messages: u64,
    /// Their payload in bytes.
    pub bytes: u64,
}

impl Results {
    /// Adds a latency that was known at `now`, or counts it when there is no room.
    pub fn sample(&mut self, latency: Span, now: Time) {
        if self.latencies.len() < MAX_SAMPLES {
            self.latencies.push(latency);
            self.latency_times.push(now);
        } else {
            self.latencies_dropped += 1;
        }
    }

    /// Counts `n` messages of `bytes` each whose completion was seen at `now`.
    pub fn completed(&mut self, n: u64, bytes: u32, now: Time) {
        self.messages += n;
        self.bytes += n * u64::from(bytes);
        if n > 0 {
            self.last = Some(now);
        }
    }

    /// Moves all points in time by `by`: clocks of several programs begin at different moments.
    pub fn shift(&mut self, by: Span) {
        let times = self.ready.iter_mut().chain(&mut self.first).chain(&mut self.last);
        let window = self.window.iter_mut().flat_map(|w| [&mut w.from, &mut w.to]);
        let log = self.log.iter_mut().map(|entry| &mut entry.at);
        times.chain(window).chain(log).for_each(|t| *t += by);
    }

    /// Counts a received message.
    pub fn receive(&mut self, bytes: u32, now: Time) {
        self.received += 1;
        self.received_bytes += u64::from(bytes);
        self.last = Some(now);
    }
}

/// Bytes of a region, counted from its begin.
///
/// # Errors
/// [`Failure::OwnRegion`] where they are not all in it.
pub(super) fn part(mr: &Mr, offset: u64, len: u64) -> Result<Range, Failure> {
    let outside = Failure::OwnRegion { got: mr.len, need: offset.saturating_add(len) };
    mr.range(offset, len).ok_or(outside)
}

/// The same as an element of a work request.
///
/// # Errors
/// See [`part`].
pub(super) fn element(mr: &Mr, offset: u64, bytes: u32) -> Result<Sge, Failure> {
    let outside = Failure::OwnRegion { got: mr.len, need: offset.saturating_add(bytes.into()) };
    mr.sge(offset, bytes).ok_or(outside)
}

/// The failure that a completion in error stands for.
pub fn failed(c: &Completion) -> Option<Failure> {
    match *c {
        Completion::Error { wr_id, queue, status, .. } => {
            Some(Failure::Completion { wr_id, queue, status })
        }
        _ => None,
    }
}

/// Takes all completions of sends of `bytes` each, where only the news that they are done counts.
///
/// # Errors
/// The first one in error.
pub(super) fn retire_sends<T: Transport>(
    t: &mut T,
    cq: CqId,
    polled: &mut Completions,
    bytes: u32,
    results: &mut Results,
) -> Result<(), Failure> {
    loop {
        polled.clear();
        t.poll_cq(cq, polled)?;
        for c in polled.as_slice() {
            if let Some(f) = failed(c) {
                return Err(f);
            }
            if let Completion::Send { retired, .. } = *c {
                results.messages += u64::from(retired);
                results.bytes += u64::from(retired) * u64::from(bytes);
            }
        }
        if !polled.is_full() {
            return Ok(());
        }
    }
}

/// Bytes in front of a message in its receive buffer: the GRH area of a datagram.
pub(super) const fn header_bytes(ty: QpType) -> u32 {
    if matches!(ty, QpType::Ud) { GRH_BYTES } else { 0 }
}

/// One message of a [`Poster`].
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// Id of the work request.
    pub wr_id: u64,
    /// Number that goes into immediates and atomics.
    pub n: u64,
    /// Where it is in the own region, and where it goes in the peer's.
    pub offset: u64,
    /// `SIGNALED`, `FENCE`, `SOLICITED`.
    pub flags: SendFlags,
}

/// Where a message goes at the peer, and in how many elements it lies here.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Place {
    /// Offset in the peer's region.
    pub remote: u64,
    /// Scatter/gather elements; 0 stands for 1.
    pub sges: u32,
}

/// Stages messages of one shape from one region; keeps the inline bytes.
#[derive(Clone, Debug)]
pub struct Poster {
    /// Shape of the messages.
    pub shape: Shape,
    scratch: Vec<u8>,
}

impl Poster {
    /// A poster of messages of `shape`.
    pub fn new(shape: Shape) -> Self {
        let scratch = if shape.inline { vec![0xA5; shape.bytes() as usize] } else { vec![] };
        Self { shape, scratch }
    }

    /// The bytes of an inline message, to be filled in before [`Poster::stage`].
    pub fn inline_bytes(&mut self) -> &mut [u8] {
        &mut self.scratch
    }

    /// Stages a message.
    ///
    /// # Errors
    /// See [`StageError`], and [`Failure::OwnRegion`] for a message outside of the region.
    pub fn stage<T: Transport>(
        &self,
        t: &mut T,
        lane: &Lane,
        mr: &Mr,
        message: Message,
    ) -> Result<(), Failure> {
        self.stage_at(t, lane, mr, message, Place { remote: message.offset, sges: 1 })
    }

    /// Stages a message that goes to another place at the peer than it has in the own region, in
    /// several elements of like size; the last one takes what is left.
    ///
    /// # Errors
    /// See [`Poster::stage`].
    pub fn stage_at<T: Transport>(
        &self,
        t: &mut T,
        lane: &Lane,
        mr: &Mr,
        message: Message,
        place: Place,
    ) -> Result<(), Failure> {
        self.with(lane, mr, message, place, |wr| Ok(t.stage(lane.qp, wr)?))
    }

    /// Pushes a message by the batcher of its queue pair, as one that others may follow.
    ///
    /// # Errors
    /// As of [`Batcher::push`], and [`Failure::OwnRegion`] for a message outside of the region.
    pub fn push<T: Transport>(
        &self,
        t: &mut T,
        (batcher, now): (&mut Batcher, Time),
        lane: &Lane,
        mr: &Mr,
        message: Message,
    ) -> Result<Pushed, Failure> {
        let place = Place { remote: message.offset, sges: 1 };
        self.with(lane, mr, message, place, |wr| Ok(batcher.push(t, now, wr, Cue::More)?))
    }

    /// Makes the work request of a message.
    fn with<R>(
        &self,
        lane: &Lane,
        mr: &Mr,
        message: Message,
        place: Place,
        post: impl FnOnce(&SendWr<'_>) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        let Message { wr_id, n, offset, flags } = message;
        let bytes = self.shape.bytes();
        let whole = element(mr, offset, bytes)?;
        let mut parts = vec![];
        let sges: &[Sge] = match place.sges {
            _ if bytes == 0 => &[],
            0 | 1 => &[whole],
            n => {
                let each = bytes / n;
                let part = |i: u32| Sge {
                    addr: whole.addr + u64::from(i * each),
                    len: if i + 1 == n { bytes - i * each } else { each },
                    ..whole
                };
                parts.extend((0..n).map(part));
                &parts
            }
        };
        let data = if self.shape.inline { Data::Inline(&self.scratch) } else { Data::Sge(sges) };
        let op = self.shape.op.to_send_op(lane.remote.at(place.remote), n);
        let dest: Option<UdDest> = lane.dest;
        post(&SendWr { wr_id, op, data, flags, dest })
    }
}

/// From when a round of a group counts, and when a member that is `late` joins it: each at its time
/// where rounds have an interval, else as soon as the member's `last` one was over.
pub(super) fn round_start(
    now: Time,
    (epoch, interval): (Time, Option<Span>),
    (round, late): (u64, Span),
    last: Option<Time>,
) -> (Time, Time) {
    let from = match interval {
        Some(interval) => epoch + interval * round,
        None if round == 0 => epoch,
        None => {
            let at = last.unwrap_or(now) + late;
            return (at.max(now), at);
        }
    };
    (from, from + late)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_of_neighbours_share_no_line() {
        for (size, stride) in [(0, 64), (1, 64), (64, 64), (65, 128), (4096, 4096)] {
            assert_eq!(Shape { op: Op::Write, size, inline: false }.stride(), stride);
        }
        let atomic = Shape { op: Op::FetchAdd, size: 4096, inline: false };
        assert_eq!((atomic.bytes(), atomic.stride()), (8, 64));
    }

    #[test]
    fn only_sends_and_immediates_take_receives() {
        let takes: Vec<_> =
            [Op::Send, Op::SendImm, Op::Write, Op::WriteImm, Op::Read, Op::CmpSwap, Op::FetchAdd]
                .into_iter()
                .filter(|o| o.takes_receive())
                .collect();
        assert_eq!(takes, [Op::Send, Op::SendImm, Op::WriteImm]);
        for op in takes {
            assert!(op.to_send_op(Remote::default(), 1).opcode().consumes_recv());
        }
    }

    #[test]
    fn samples_are_bounded_and_the_rest_is_counted() {
        let mut r = Results::default();
        for _ in 0..MAX_SAMPLES + 2 {
            r.sample(Span::ZERO, Time::ZERO);
        }
        assert_eq!((r.latencies.len(), r.latencies_dropped), (MAX_SAMPLES, 2));
        assert_eq!(r.latency_times.len(), MAX_SAMPLES);
    }
}
