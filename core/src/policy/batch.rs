//! Doorbell batching with a latency budget.

use core::fmt;

use crate::transport::{
    Data, FenceScope, QpCaps, QpId, Ring, RingCause, RingError, Rung, RungBy, SendWr, StageError,
    Transport, WQEBB,
};
use crate::units::{Bytes, Span, Time};

#[cfg(test)]
mod tests;

/// What the caller knows of what comes after a work request.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Cue {
    /// It may not wait: ring at once.
    Urgent,
    /// Nothing is known to come. Whether it waits for others is the batcher's affair.
    Last,
    /// Another one is there already and is pushed next.
    More,
}

/// How a batch grows.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum BatchMode {
    /// Up to the limits, whatever the load: a lone work request waits for `max_delay`. It is the
    /// way to a known number of work requests per doorbell.
    Fixed,
    /// With the backlog. Those that follow each other at once ([`Cue::More`]) share a ring, so a
    /// caller that is behind rings less often. The last one rings as soon as one is held for each
    /// `share` WQEs that wait in the NIC, so a lone one on a NIC that keeps up goes at once, and
    /// one that has to queue in any case waits here instead, where it saves a doorbell. Higher:
    /// less waiting here, and longer queues where doorbells are the NIC's bottleneck. 0 counts as
    /// 1.
    Adaptive {
        /// WQEs that wait in the NIC for each one that is held.
        share: u32,
    },
}

impl BatchMode {
    /// Adaptive with a share of 2. `tests/benches/batching.rs` compares it with fixed sizes: where
    /// the core or the NIC's processing units are the limit it delivers at least 99 % of the best
    /// one at every load. A device whose doorbells alone are the limit it approaches only by
    /// letting a queue grow, so there a fixed size that suits the load has shorter tails.
    pub const ADAPTIVE: Self = Self::Adaptive { share: 2 };
}

/// When a [`Batcher`] rings.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct BatchConfig {
    /// How a batch grows up to the limits.
    pub mode: BatchMode,
    /// Rings when so many work requests are staged; 0 counts as 1. Higher: fewer doorbells, and
    /// the first one waits longer. It is lowered to what the QP can stage and to its depth.
    pub max_wrs: u32,
    /// Rings when so many bytes of messages are staged. Higher: fewer doorbells for long messages,
    /// which gain little from them.
    pub max_bytes: Bytes,
    /// Rings when the oldest staged work request is so old: the part of the latency budget that
    /// batching may use. Zero: every push rings.
    pub max_delay: Span,
    /// How to ring. [`Ring::Auto`]: where the handle honours a choice, BlueFlame for a lone WQE
    /// that its buffer carries, a doorbell for all others; elsewhere the provider decides.
    pub ring: Ring,
    /// What orders the stores before each ring, where the handle's rings do not (GPU blocks).
    /// Anything but the whole system's is too little: a device may then read old bytes. It is there
    /// to show what comes of it.
    pub fence: Option<FenceScope>,
}

impl Default for BatchConfig {
    /// Fixed, 16 work requests, 64 KiB, 1 us: beyond 16 a doorbell costs little per WQE any more,
    /// 64 KiB are a microsecond of a 400 Gb/s link, and so is the delay.
    fn default() -> Self {
        let (max_bytes, max_delay) = (Bytes(64 << 10), Span::from_us(1));
        let mode = BatchMode::Fixed;
        let fence = Some(FenceScope::System);
        Self { mode, max_wrs: 16, max_bytes, max_delay, ring: Ring::Auto, fence }
    }
}

/// What a batcher has done. Counters saturate.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct BatchStats {
    /// Rings that announced at least one WQE.
    pub rings: u64,
    /// Rings of them that carried their WQE by BlueFlame. 0 where the provider does not tell.
    pub blueflames: u64,
    /// WQEs that were announced.
    pub wqes: u64,
    /// WQEs that a failed ring discarded.
    pub discarded: u64,
    /// WQEs of which nobody can tell, after [`RingCause::Indeterminate`].
    pub unknown: u64,
}

impl core::ops::AddAssign for BatchStats {
    fn add_assign(&mut self, more: Self) {
        let Self { rings, blueflames, wqes, discarded, unknown } = more;
        self.rings = self.rings.saturating_add(rings);
        self.blueflames = self.blueflames.saturating_add(blueflames);
        self.wqes = self.wqes.saturating_add(wqes);
        self.discarded = self.discarded.saturating_add(discarded);
        self.unknown = self.unknown.saturating_add(unknown);
    }
}

/// What a push did beyond staging the work request.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Pushed {
    /// WQEs that it announced.
    pub rung: u32,
    /// WQEs that are staged and wait, until [`Batcher::deadline`] at most.
    pub held: u32,
}

/// A push that failed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum PushError {
    /// The work request was not staged. For want of room what was held has been rung: after
    /// `SqFull` poll until a completion has come, then push again. Otherwise it is still held.
    Refused(StageError),
    /// A ring failed. `posted` WQEs are with the NIC, the oldest ones; `discarded` are gone, or
    /// nobody knows, after [`RingCause::Indeterminate`].
    Ring {
        /// What became of the WQEs for which it rang.
        error: RingError,
        /// WQEs before them that this push had announced, to make room.
        rung: u32,
        /// Whether the pushed work request was one of them, the last. If not it was not staged.
        staged: bool,
    },
}

impl fmt::Display for PushError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(e) => e.fmt(f),
            Self::Ring { error, staged: true, .. } => error.fmt(f),
            Self::Ring { error, staged: false, .. } => {
                write!(f, "{error}; the new work request was not staged")
            }
        }
    }
}

impl core::error::Error for PushError {}

/// Stages work requests on one QP and rings for several of them at once.
///
/// It rings at `max_wrs`, at `max_bytes`, when the oldest staged work request is `max_delay` old,
/// at an urgent one, and at [`flush`](Batcher::flush); earlier where [`BatchMode::Adaptive`] sees
/// nothing to wait for. A full queue makes it ring what it holds, since a WQE that was not rung
/// never completes and would keep the queue full.
///
/// What it promises, if nobody else stages on the QP with this handle:
///
/// - WQEs are announced in the order of the pushes.
/// - Between calls at most `max_wrs - 1` WQEs are held, and fewer than `max_bytes` bytes.
/// - A ring announces at least one WQE.
/// - No WQE is held past its deadline, if [`tick`](Batcher::tick) is called at
///   [`deadline`](Batcher::deadline) or before, and then at the time that it returned.
/// - Every WQE is announced, or reported by an error: as discarded, or as one of those of which
///   nobody can tell.
/// - Where the handle's rings do not order its stores, it fences before it rings.
///
/// `modify_qp` and `destroy_qp` unstage: flush before, or say [`forget`](Batcher::forget) after.
#[derive(Clone, Debug)]
pub struct Batcher {
    qp: QpId,
    how: Ring,
    /// Largest WQE that BlueFlame carries, in bytes, if that is ours to choose.
    blueflame: Option<u32>,
    fence: Option<FenceScope>,
    /// WQEs that wait in the NIC for each one that is held; `None` in fixed mode.
    share: Option<u32>,
    waiting: u32,
    /// Whether the caller has announced another one.
    more: bool,
    held: u32,
    /// Whether BlueFlame would carry the oldest WQE.
    small: bool,
    max_wrs: u32,
    /// What the queue pair allows.
    most_wrs: u32,
    bytes: u64,
    max_bytes: u64,
    max_delay: Span,
    /// Of the oldest WQE; means nothing when none is held.
    deadline: Time,
    stats: BatchStats,
}

impl Batcher {
    /// A batcher for `qp`, to which `caps` was granted. Nothing may be staged on it.
    pub fn new(config: BatchConfig, qp: QpId, caps: &QpCaps) -> Self {
        let BatchConfig { mode, max_wrs, max_bytes, max_delay, ring, fence } = config;
        let chooses = ring == Ring::Auto && caps.ring_choice;
        Self {
            qp,
            how: if chooses { Ring::Doorbell } else { ring },
            blueflame: Some(caps.bf_bytes).filter(|b| chooses && *b > 0),
            fence: fence.filter(|_| !caps.ring_orders_stores),
            share: match mode {
                BatchMode::Fixed => None,
                BatchMode::Adaptive { share } => Some(share.max(1)),
            },
            waiting: 0,
            more: false,
            held: 0,
            small: false,
            max_wrs: limited(max_wrs, caps.max_staged.min(caps.max_send_wr)),
            most_wrs: caps.max_staged.min(caps.max_send_wr),
            bytes: 0,
            max_bytes: max_bytes.0,
            max_delay,
            deadline: Time::ZERO,
            stats: BatchStats::default(),
        }
    }

    /// Work requests at which it rings: the configured number, or what the QP allows.
    pub const fn max_wrs(&self) -> u32 {
        self.max_wrs
    }

    /// Rings at another number of work requests from the next push on, as a tuner may ask for.
    pub fn set_max_wrs(&mut self, max_wrs: u32) {
        self.max_wrs = limited(max_wrs, self.most_wrs);
    }

    /// WQEs that are staged and wait.
    pub const fn held(&self) -> u32 {
        self.held
    }

    /// When [`tick`](Batcher::tick) has to be called; `None` while nothing is held.
    pub const fn deadline(&self) -> Option<Time> {
        if self.held > 0 { Some(self.deadline) } else { None }
    }

    /// Whether it goes by what waits in the NIC.
    #[inline]
    pub const fn is_adaptive(&self) -> bool {
        self.share.is_some()
    }

    /// Tells how many WQEs wait in the NIC for others, as far as the caller knows.
    /// [`BatchMode::Adaptive`] goes by it; who never says counts as none. [`Sender`] says it before
    /// each push, by a [`QueueEstimate`].
    ///
    /// [`Sender`]: super::Sender
    /// [`QueueEstimate`]: super::QueueEstimate
    #[inline]
    pub const fn set_waiting(&mut self, wqes: u32) {
        self.waiting = wqes;
    }

    /// What it has done.
    pub const fn stats(&self) -> BatchStats {
        self.stats
    }

    /// Stages a work request, and rings when a limit is reached, the request is urgent, or the mode
    /// sees nothing to wait for.
    ///
    /// # Errors
    /// See [`PushError`]. `SqFull` is back-pressure.
    #[inline]
    pub fn push(
        &mut self,
        t: &mut impl Transport,
        now: Time,
        wr: &SendWr<'_>,
        cue: Cue,
    ) -> Result<Pushed, PushError> {
        match t.stage(self.qp, wr) {
            Ok(()) => self.took(t, now, wr, cue, 0),
            Err(e) => self.refused(t, now, wr, cue, e),
        }
    }

    /// Rings when the oldest WQE is due, or when the adaptive mode has nothing left to wait for.
    /// Gives the time of the next call, if one is needed.
    ///
    /// # Errors
    /// See [`RingError`]; what was held is reported there.
    #[inline]
    pub fn tick(&mut self, t: &mut impl Transport, now: Time) -> Result<Option<Time>, RingError> {
        if self.held > 0 && (now >= self.deadline || self.ripe()) {
            self.ring(t)?;
        }
        Ok(self.deadline())
    }

    /// Rings for what is held.
    ///
    /// # Errors
    /// See [`RingError`]; what was held is reported there.
    #[inline]
    pub fn flush(&mut self, t: &mut impl Transport) -> Result<Rung, RingError> {
        if self.held == 0 {
            return Ok(Rung { wqes: 0, by: RungBy::Nothing });
        }
        self.ring(t)
    }

    /// What was held is no longer staged, since the QP was changed or destroyed. Gives its number.
    pub fn forget(&mut self) -> u32 {
        self.bytes = 0;
        core::mem::take(&mut self.held)
    }

    /// A work request was staged, after `before` others were rung.
    #[inline]
    fn took(
        &mut self,
        t: &mut impl Transport,
        now: Time,
        wr: &SendWr<'_>,
        cue: Cue,
        before: u32,
    ) -> Result<Pushed, PushError> {
        if self.held == 0 {
            self.deadline = now + self.max_delay;
            self.small = self.blueflame.is_some_and(|most| wr.blocks() * WQEBB <= most);
        }
        self.held += 1;
        self.more = cue == Cue::More;
        // Messages have 32-bit lengths and counts too, so this cannot overflow.
        self.bytes += match wr.data {
            Data::Sge([one]) => one.len.into(),
            ref data => data.len(),
        };
        let full = self.held >= self.max_wrs || self.bytes >= self.max_bytes;
        let waits = !full && cue != Cue::Urgent && now < self.deadline;
        if waits && !self.ripe() {
            return Ok(Pushed { rung: before, held: self.held });
        }
        match self.ring(t) {
            Ok(rung) => Ok(Pushed { rung: before + rung.wqes, held: 0 }),
            Err(error) => Err(PushError::Ring { error, rung: before, staged: true }),
        }
    }

    /// The work request was not staged. Where that is for want of room, what is held goes first.
    #[cold]
    fn refused(
        &mut self,
        t: &mut impl Transport,
        now: Time,
        wr: &SendWr<'_>,
        cue: Cue,
        why: StageError,
    ) -> Result<Pushed, PushError> {
        let no_room = matches!(why, StageError::SqFull | StageError::StagedFull);
        if !no_room || self.held == 0 {
            // What was announced is not to come, unless something follows this one in turn.
            self.more = cue == Cue::More;
            return Err(PushError::Refused(why));
        }
        let failed = |error| PushError::Ring { error, rung: 0, staged: false };
        let rung = self.ring(t).map_err(failed)?.wqes;
        if why == StageError::SqFull {
            return Err(PushError::Refused(why));
        }
        t.stage(self.qp, wr).map_err(PushError::Refused)?;
        self.took(t, now, wr, cue, rung)
    }

    /// Whether the adaptive mode rings for what is held.
    #[inline]
    const fn ripe(&self) -> bool {
        match self.share {
            Some(share) => !self.more && self.held > self.waiting / share,
            None => false,
        }
    }

    /// Orders the stores so far before the next ring, where the handle's rings do not: for who
    /// rings past the batcher.
    #[inline]
    pub fn fence(&self, t: &mut impl Transport) {
        if let Some(scope) = self.fence {
            t.fence(scope);
        }
    }

    #[inline]
    fn ring(&mut self, t: &mut impl Transport) -> Result<Rung, RingError> {
        self.fence(t);
        let held = self.forget();
        let how = if held == 1 && self.small { Ring::BlueFlame } else { self.how };
        match t.ring(self.qp, how) {
            Ok(rung) => {
                self.count(rung.wqes);
                let blueflame = u64::from(rung.by == RungBy::BlueFlame);
                self.stats.blueflames = self.stats.blueflames.saturating_add(blueflame);
                Ok(rung)
            }
            Err(e) => Err(self.failed(held, e)),
        }
    }

    #[inline]
    fn count(&mut self, wqes: u32) {
        self.stats.rings = self.stats.rings.saturating_add(u64::from(wqes > 0));
        self.stats.wqes = self.stats.wqes.saturating_add(wqes.into());
    }

    /// Counts what became of `held` WQEs. Nothing is staged after a failed ring, so what was not
    /// posted is gone; a back end that does not know the handle any more cannot say how many.
    #[cold]
    fn failed(&mut self, held: u32, e: RingError) -> RingError {
        self.count(e.posted);
        let rest = held.saturating_sub(e.posted);
        let indeterminate = e.cause == RingCause::Indeterminate;
        let discarded = if indeterminate { e.discarded } else { rest };
        let unknown = rest.saturating_sub(discarded);
        self.stats.discarded = self.stats.discarded.saturating_add(discarded.into());
        self.stats.unknown = self.stats.unknown.saturating_add(unknown.into());
        RingError { discarded, ..e }
    }
}

/// Work requests at which a batch rings, of those that the queue pair allows.
fn limited(max_wrs: u32, most: u32) -> u32 {
    max_wrs.min(most).max(1)
}
