//! Receive buffers of one queue, posted again in batches.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use crate::transport::{Mr, PostRecvCause, PostRecvError, RecvQueue, RecvWr, Sge, Transport};
use crate::units::Span;
use crate::verbs::Lkey;

use super::CqShare;

#[cfg(test)]
mod tests;

/// Configuration of a [`RecvPool`].
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct RecvPoolConfig {
    /// The receive queue of a QP, or a shared one.
    pub queue: RecvQueue,
    /// Buffers, at least 1: most receives that are posted at a time. Fewer than the largest burst,
    /// and senders get RNR NAKs; more take memory. [`slots_for`](RecvPoolConfig::slots_for) sizes
    /// them.
    pub slots: u32,
    /// Bytes of a buffer: the longest message.
    pub slot_bytes: u32,
    /// Buffers that are given back before they are posted together. Higher: fewer calls and
    /// updates of the doorbell record, and as many fewer receives are posted meanwhile. 0 counts
    /// as 1; lowered to `slots`.
    pub batch: u32,
    /// With fewer than so many receives posted, whatever was given back is posted at once, and a
    /// shared queue's limit event comes. Higher: earlier warning, fewer batches. 0: neither.
    pub low_watermark: u32,
}

impl RecvPoolConfig {
    /// Buffers for `burst` messages at once, where messages follow each other every `gap` while
    /// the program needs `lag` from a completion to the repost: the burst, what arrives in the
    /// lag, and what waits for a full batch.
    ///
    /// ```
    /// use doorbell_core::policy::RecvPoolConfig;
    /// use doorbell_core::units::Span;
    ///
    /// let (lag, gap) = (Span::from_us(10), Span::from_ns(300));
    /// assert_eq!(RecvPoolConfig::slots_for(64, 16, lag, gap), 64 + 34 + 15);
    /// ```
    ///
    /// # Panics
    /// When `gap` is zero.
    pub const fn slots_for(burst: u32, batch: u32, lag: Span, gap: Span) -> u32 {
        let in_lag = lag.as_ps().div_ceil(gap.as_ps());
        let waiting = batch.saturating_sub(1);
        let in_lag = if in_lag > u32::MAX as u64 { u32::MAX } else { in_lag as u32 };
        burst.saturating_add(in_lag).saturating_add(waiting)
    }
}

/// Why a pool was not made.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum RecvPoolError {
    /// There are no buffers.
    NoSlots,
    /// The region is shorter than the buffers.
    RegionTooShort {
        /// Bytes of the buffers.
        needed: u64,
        /// Bytes of the region.
        got: u64,
    },
    /// The completion queue has fewer entries for this pool than it posts receives.
    CqShareTooSmall {
        /// Buffers.
        needed: u32,
        /// Entries.
        got: u32,
    },
}

impl fmt::Display for RecvPoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSlots => f.write_str("a pool needs at least one buffer"),
            Self::RegionTooShort { needed, got } => {
                write!(f, "the buffers need a region of {needed} B, it has {got} B")
            }
            Self::CqShareTooSmall { needed, got } => write!(
                f,
                "{needed} receives may complete at once, the share of the completion queue is \
                 {got} entries: take {needed}"
            ),
        }
    }
}

impl core::error::Error for RecvPoolError {}

/// A buffer that was not given back.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ReleaseError {
    /// The program does not have that buffer: it is posted, or was given back before, or is none
    /// of this pool.
    NotLent {
        /// What was given.
        wr_id: u64,
    },
    /// The buffer was given back, and receives were not posted. Those that were not stay in the
    /// pool and are tried again with the next.
    Post(PostRecvError),
}

impl fmt::Display for ReleaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotLent { wr_id } => {
                write!(f, "receive {wr_id} is not with the program: give back what was completed")
            }
            Self::Post(e) => e.fmt(f),
        }
    }
}

impl core::error::Error for ReleaseError {}

/// What a pool has done. Counters saturate.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct RecvPoolStats {
    /// Calls that posted receives.
    pub posts: u64,
    /// Receives that were posted.
    pub receives: u64,
    /// Fewest receives that were posted at a time, since the first fill. 0: a sender may have met
    /// an empty queue.
    pub low: u32,
}

/// Where a buffer is.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Place {
    /// In the pool.
    Idle,
    /// With the transport.
    Posted,
    /// With the program.
    Lent,
}

/// Owns the receive buffers of a queue. Each is in one place at a time: posted, with the program
/// (from the completion to [`release`](RecvPool::release)), or in the pool until a batch is full.
///
/// A pool has as many entries of the completion queue as buffers, so its receives cannot overrun
/// it. Where the queue pairs of an SRQ complete into several queues, each of those needs as many.
///
/// The limit event of an SRQ is armed by the program, which holds the control path:
/// [`limit_to_arm`](RecvPool::limit_to_arm) says with what.
#[derive(Debug)]
pub struct RecvPool {
    config: RecvPoolConfig,
    addr: u64,
    lkey: Lkey,
    share: CqShare,
    places: Box<[Place]>,
    /// In the order in which they were given back.
    idle: Vec<u32>,
    wrs: Vec<RecvWr>,
    posted: u32,
    armed: bool,
    stats: RecvPoolStats,
}

impl RecvPool {
    /// A pool whose buffers lie one behind the other at the start of `mr`. Nothing is posted yet.
    /// Receives have the numbers 0 to `slots` - 1.
    ///
    /// # Errors
    /// See [`RecvPoolError`].
    pub fn new(config: RecvPoolConfig, mr: &Mr, share: CqShare) -> Result<Self, RecvPoolError> {
        let slots = config.slots;
        let needed = u64::from(slots) * u64::from(config.slot_bytes);
        if slots == 0 {
            return Err(RecvPoolError::NoSlots);
        }
        if needed > mr.len {
            return Err(RecvPoolError::RegionTooShort { needed, got: mr.len });
        }
        if share.entries() < slots {
            return Err(RecvPoolError::CqShareTooSmall { needed: slots, got: share.entries() });
        }
        let config = RecvPoolConfig { batch: config.batch.clamp(1, slots), ..config };
        Ok(Self {
            config,
            addr: mr.addr,
            lkey: mr.lkey,
            share,
            places: vec![Place::Idle; slots as usize].into(),
            idle: (0..slots).collect(),
            wrs: Vec::with_capacity(slots as usize),
            posted: 0,
            armed: false,
            stats: RecvPoolStats { low: slots, ..RecvPoolStats::default() },
        })
    }

    /// Receives that are posted, as far as completions have been handed over.
    pub const fn posted(&self) -> u32 {
        self.posted
    }

    /// Buffers that were given back and wait for a batch.
    pub fn idle(&self) -> u32 {
        self.idle.len() as u32
    }

    /// Buffers that the program has.
    pub fn lent(&self) -> u32 {
        self.config.slots - self.posted - self.idle()
    }

    /// What it has done.
    pub const fn stats(&self) -> RecvPoolStats {
        self.stats
    }

    /// Posts everything that is in the pool: at the start, and when a batch should not wait.
    /// Returns how many receives that were.
    ///
    /// # Errors
    /// See [`PostRecvError`]. What was not posted stays in the pool; after an indeterminate error
    /// it counts as posted, since its buffers may be the transport's until the queue is reset.
    pub fn fill(&mut self, t: &mut impl Transport) -> Result<u32, PostRecvError> {
        if self.idle.is_empty() {
            return Ok(0);
        }
        self.wrs.clear();
        let bytes = self.config.slot_bytes;
        for slot in &self.idle {
            let addr = self.addr + u64::from(*slot) * u64::from(bytes);
            let sge = Sge { addr, len: bytes, lkey: self.lkey };
            self.wrs.push(RecvWr { wr_id: u64::from(*slot), sge });
        }
        let result = t.post_recv(self.config.queue, &self.wrs);
        let gone = match result {
            Err(e) if e.cause != PostRecvCause::Indeterminate => e.posted,
            _ => self.idle(),
        };
        for slot in self.idle.drain(..gone as usize) {
            self.places[slot as usize] = Place::Posted;
        }
        self.posted += gone;
        self.stats.posts = self.stats.posts.saturating_add(u64::from(gone > 0));
        self.stats.receives = self.stats.receives.saturating_add(gone.into());
        result.map(|()| gone)
    }

    /// A receive completed, well or not: the number of its work request. The program has the
    /// buffer now, at the offset that is returned. `None`: no receive of that number is posted.
    #[inline]
    pub fn completed(&mut self, wr_id: u64) -> Option<u64> {
        let place = self.places.get_mut(usize::try_from(wr_id).ok()?)?;
        if *place != Place::Posted {
            return None;
        }
        *place = Place::Lent;
        self.posted -= 1;
        self.stats.low = self.stats.low.min(self.posted);
        Some(wr_id * u64::from(self.config.slot_bytes))
    }

    /// The program is done with the buffer of a completed receive. Posts it when a batch is full,
    /// or when fewer than `low_watermark` are posted. Returns how many receives were posted, for
    /// [`CreditIssuer::reposted`](super::CreditIssuer::reposted).
    ///
    /// # Errors
    /// See [`ReleaseError`].
    #[inline]
    pub fn release(&mut self, t: &mut impl Transport, wr_id: u64) -> Result<u32, ReleaseError> {
        let slot = wr_id as u32;
        match self.places.get_mut(usize::try_from(wr_id).unwrap_or(usize::MAX)) {
            Some(place) if *place == Place::Lent => *place = Place::Idle,
            _ => return Err(ReleaseError::NotLent { wr_id }),
        }
        self.idle.push(slot);
        if self.idle() < self.config.batch && self.posted >= self.config.low_watermark {
            return Ok(0);
        }
        self.fill(t).map_err(ReleaseError::Post)
    }

    /// The limit to arm an SRQ with, after the queue was filled and after each limit event, once
    /// enough is posted that the event does not come at once. `None`: it is armed, or there is no
    /// watermark, or too little is posted. The program calls `arm_srq` with it.
    pub const fn limit_to_arm(&mut self) -> Option<u32> {
        let low = self.config.low_watermark;
        if self.armed || low == 0 || self.posted < low {
            return None;
        }
        self.armed = true;
        Some(low)
    }

    /// The limit event came: fewer than `low_watermark` are left. Posts what is in the pool.
    /// Returns how many receives were posted; with 0 the program itself holds the buffers, and
    /// only its [`release`](RecvPool::release) helps.
    ///
    /// # Errors
    /// As of [`fill`](RecvPool::fill).
    pub fn limit_reached(&mut self, t: &mut impl Transport) -> Result<u32, PostRecvError> {
        self.armed = false;
        self.fill(t)
    }

    /// Ends it, as after the queue was reset or destroyed: gives back its share of the completion
    /// queue.
    pub fn into_share(self) -> CqShare {
        self.share
    }
}
