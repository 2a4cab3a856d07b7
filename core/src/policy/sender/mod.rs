//! A send queue that is batched, signalled selectively, and never overrun.

use crate::transport::{
    Completion, Data, QpCaps, QpId, RingCause, RingError, Rung, SendOp, SendWr, StageError,
    Transport, WorkQueue,
};
use crate::units::Time;
use crate::verbs::SendFlags;

use super::{
    BatchConfig, BatchStats, Batcher, CqShare, Cue, PushError, Pushed, QueueEstimate, SendWindow,
    WindowConfig,
};

#[cfg(test)]
mod tests;

/// Configuration of a [`Sender`].
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct SenderConfig {
    /// When it rings.
    pub batch: BatchConfig,
    /// How much is outstanding, and how much of it is signalled.
    pub window: WindowConfig,
    /// Whether the last one of a burst ([`Cue::Last`], [`Cue::Urgent`]) is signalled too, so that
    /// the news of it does not wait for a later one. Costs a completion per burst.
    pub signal_last: bool,
}

/// Pushes work requests on one queue pair that nobody else posts to.
///
/// A [`Batcher`] and a [`SendWindow`] together: it signals one of `signal_every` work requests, and
/// always before the queue could fill; it has never more outstanding than the queue has slots or
/// blocks, or than it has entries of its completion queue. So neither queue can overrun, also when
/// the queue pair fails and every work request completes.
///
/// Give it each completion of the queue pair: [`completion`](Sender::completion).
#[derive(Debug)]
pub struct Sender {
    qp: QpId,
    batch: Batcher,
    window: SendWindow,
    queue: QueueEstimate,
    share: CqShare,
    signal_last: bool,
}

impl Sender {
    /// A sender on `qp`, to which `caps` was granted, with entries of its completion queue.
    /// Nothing may be staged or outstanding on it.
    pub fn new(config: SenderConfig, qp: QpId, caps: &QpCaps, share: CqShare) -> Self {
        let SenderConfig { batch, window, signal_last } = config;
        let window = SendWindow::new(window, caps, share.entries());
        // A batch that fills the window would leave nothing to do while it is under way.
        let max_wrs = batch.max_wrs.min(window.max_wrs());
        let batch = Batcher::new(BatchConfig { max_wrs, ..batch }, qp, caps);
        let queue = QueueEstimate::default();
        Self { qp, batch, window, queue, share, signal_last }
    }

    /// The queue pair.
    pub const fn qp(&self) -> QpId {
        self.qp
    }

    /// What is outstanding.
    pub const fn window(&self) -> &SendWindow {
        &self.window
    }

    /// Most work requests that one ring announces.
    pub const fn max_batch(&self) -> u32 {
        self.batch.max_wrs()
    }

    /// What is known of round trips.
    pub const fn queue(&self) -> &QueueEstimate {
        &self.queue
    }

    /// What was rung.
    pub const fn stats(&self) -> BatchStats {
        self.batch.stats()
    }

    /// When [`tick`](Sender::tick) has to be called; `None` while nothing is held.
    pub const fn deadline(&self) -> Option<Time> {
        self.batch.deadline()
    }

    /// WQEs that are staged and wait.
    pub const fn held(&self) -> u32 {
        self.batch.held()
    }

    /// Whether `wr` fits now.
    #[inline]
    pub fn fits(&self, wr: &SendWr<'_>) -> bool {
        self.window.fits(self.window.blocks_of(wr))
    }

    /// Stages a work request, and rings when it is time. It is signalled when the request says so
    /// or when it has to be.
    ///
    /// # Errors
    /// As of [`Batcher::push`]. `SqFull` says that the window is full: poll, hand over the
    /// completions, push again. What is held stays in its batch where completions of what was rung
    /// are to come, and has been rung where none is, or in adaptive mode. After
    /// [`RingCause::Indeterminate`] the slots stay in use until the queue pair is reset: see
    /// [`into_share`](Sender::into_share).
    // As a call of its own it costs twenty instructions more, for registers and the result.
    #[inline(always)]
    pub fn push(
        &mut self,
        t: &mut impl Transport,
        now: Time,
        wr: &SendWr<'_>,
        cue: Cue,
    ) -> Result<Pushed, PushError> {
        let blocks = self.window.blocks_of(wr);
        if !self.window.fits(blocks) {
            return Err(self.full(t));
        }
        let asked = wr.flags.contains(SendFlags::SIGNALED);
        let must = self.window.must_signal(blocks) || self.signal_last && cue != Cue::More;
        let signal = asked || must;
        self.say_waiting();
        // Most are passed on as they are, without a copy.
        let pushed = if must && !asked {
            let flags = wr.flags | SendFlags::SIGNALED;
            self.batch.push(t, now, &SendWr { flags, ..*wr }, cue)
        } else {
            self.batch.push(t, now, wr, cue)
        };
        match pushed {
            Ok(pushed) => {
                self.window.pushed(blocks, signal);
                if pushed.rung > 0 {
                    self.rang(now);
                }
                Ok(pushed)
            }
            Err(e) => Err(self.failed(e, blocks, signal)),
        }
    }

    /// Rings when the oldest WQE is due, or when there is nothing left to wait for. Gives the time
    /// of the next call, if one is needed.
    ///
    /// # Errors
    /// See [`RingError`]; what was held is reported there.
    #[inline]
    pub fn tick(&mut self, t: &mut impl Transport, now: Time) -> Result<Option<Time>, RingError> {
        self.say_waiting();
        let held = self.batch.held();
        let next = self.batch.tick(t, now).map_err(|e| self.ring_failed(e))?;
        if self.batch.held() < held {
            self.rang(now);
        }
        Ok(next)
    }

    /// Rings for what is held.
    ///
    /// # Errors
    /// See [`RingError`]; what was held is reported there.
    pub fn flush(&mut self, t: &mut impl Transport) -> Result<Rung, RingError> {
        self.batch.flush(t).map_err(|e| self.ring_failed(e))
    }

    /// Sees to it that completions tell of everything outstanding, as at the end of a burst: what
    /// is held goes, and where work requests lie behind the last signalled one an empty one goes
    /// behind them, signalled. Whether there was need of it. It is outstanding like any other: the
    /// completion that tells of it counts it.
    ///
    /// `op` is best a WRITE, or a READ where the peer grants no WRITE: of no bytes they touch no
    /// memory and take no receive. UCX flushes its endpoints in this way.
    ///
    /// # Errors
    /// As of [`push`](Sender::push). `SqFull`: something signalled is outstanding; call again when
    /// its completion was handed over.
    pub fn confirm(
        &mut self,
        t: &mut impl Transport,
        now: Time,
        op: SendOp,
    ) -> Result<bool, PushError> {
        if self.window.told_of() == self.window.used() {
            let flushed = self.flush(t);
            return match flushed {
                Ok(_) => Ok(false),
                Err(error) => Err(PushError::Ring { error, rung: 0, staged: false }),
            };
        }
        let (flags, data) = (SendFlags::SIGNALED, Data::Sge(&[]));
        let wr = SendWr { wr_id: 0, op, data, flags, dest: None };
        self.push(t, now, &wr, Cue::Urgent).map(|_| true)
    }

    /// Takes note of a completion that was polled at `now`. Returns how many work requests it is
    /// the first to tell of, in the order of the pushes; 0 for one of another queue.
    #[inline]
    pub fn completion(&mut self, c: &Completion, now: Time) -> u32 {
        match *c {
            Completion::Send { qp, retired, .. }
            | Completion::Error { qp, retired, queue: WorkQueue::Send, .. }
                if qp == self.qp =>
            {
                let retired = self.window.retired(retired);
                self.queue.told(self.window.positions().0, now);
                retired
            }
            _ => 0,
        }
    }

    /// Ends it, as after the queue pair was reset or destroyed: gives back its share of the
    /// completion queue, for [`CqBudget::give_back`](super::CqBudget::give_back) or a new sender.
    pub fn into_share(self) -> CqShare {
        self.share
    }

    /// Of what was rung and will be told of, a part waits.
    #[inline]
    fn say_waiting(&mut self) {
        if !self.batch.is_adaptive() {
            return;
        }
        let held = self.batch.held();
        let behind = self.window.used() - self.window.told_of();
        self.batch.set_waiting(self.queue.waiting(self.window.used() - held.max(behind)));
    }

    /// The last signalled one can be timed, if it was rung.
    #[inline]
    fn rang(&mut self, now: Time) {
        let (tail, told) = self.window.positions();
        if told != tail && self.batch.held() == 0 {
            self.queue.rung(told.wrapping_sub(1), now);
        }
    }

    #[cold]
    fn full(&mut self, t: &mut impl Transport) -> PushError {
        match self.make_room(t) {
            Ok(()) => PushError::Refused(StageError::SqFull),
            Err(error) => PushError::Ring { error, rung: 0, staged: false },
        }
    }

    /// What is held goes where it alone keeps the window full. Where completions of what was rung
    /// are to come, a fixed batch waits for its size: each of them makes room for a few, which
    /// would be a ring for each few.
    pub(super) fn make_room(&mut self, t: &mut impl Transport) -> Result<(), RingError> {
        let held = self.batch.held();
        if held == 0 || !self.batch.is_adaptive() && self.window.tells(self.window.used() - held) {
            return Ok(());
        }
        self.flush(t).map(|_| ())
    }

    #[cold]
    fn failed(&mut self, e: PushError, blocks: u32, signal: bool) -> PushError {
        if let PushError::Ring { error, staged, .. } = e {
            if staged {
                self.window.pushed(blocks, signal);
            }
            self.ring_failed(error);
        }
        e
    }

    /// Slots of what was discarded are back; those of what nobody can tell are not.
    #[cold]
    fn ring_failed(&mut self, e: RingError) -> RingError {
        self.queue.forget();
        if e.cause != RingCause::Indeterminate {
            self.window.undo(e.discarded);
        }
        e
    }
}
