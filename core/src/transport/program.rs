//! Programs: what a user writes.

use core::fmt;

use super::Control;
use super::handles::{CqId, WatchId};
use crate::units::Time;

/// Highest CQ index that a [`WaitSet`] can name, exclusive.
pub const MAX_WAIT_CQS: u32 = 48;
/// Highest watch index that a [`WaitSet`] can name, exclusive.
pub const MAX_WAIT_WATCHES: u32 = 14;

/// What a program waits for: a set of completion queues, memory watches, asynchronous events and
/// the bootstrap. Sets combine by union.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct WaitSet {
    /// Completion queues, watches, events, bootstrap.
    any: u64,
    /// Completion queues of which only some completions count.
    solicited: u64,
}

impl WaitSet {
    /// Waits for nothing.
    pub const EMPTY: Self = Self::of(0);
    /// An asynchronous event.
    pub const EVENTS: Self = Self::of(1 << 62);
    /// A key published by any peer.
    pub const BOOTSTRAP: Self = Self::of(1 << 63);

    const fn of(any: u64) -> Self {
        Self { any, solicited: 0 }
    }

    /// A completion in `cq`.
    ///
    /// # Panics
    /// When the handle holds more than [`MAX_WAIT_CQS`] completion queues.
    pub const fn cq(cq: CqId) -> Self {
        assert!(cq.index() < MAX_WAIT_CQS, "a wait set names at most 48 completion queues");
        Self::of(1 << cq.index())
    }

    /// A receive in `cq` whose sender has set [`SOLICITED`], or a completion in error
    /// (`ibv_req_notify_cq` with `solicited_only`). Other completions need not wake; they are found
    /// by the next poll. As all sources it is a source of its own: a queue that is named both ways
    /// wakes by any completion.
    ///
    /// [`SOLICITED`]: crate::verbs::SendFlags::SOLICITED
    ///
    /// # Panics
    /// When the handle holds more than [`MAX_WAIT_CQS`] completion queues.
    pub const fn solicited(cq: CqId) -> Self {
        assert!(cq.index() < MAX_WAIT_CQS, "a wait set names at most 48 completion queues");
        Self { any: 0, solicited: 1 << cq.index() }
    }

    /// A change of the watched memory.
    ///
    /// # Panics
    /// When the handle holds more than [`MAX_WAIT_WATCHES`] watches.
    pub const fn watch(watch: WatchId) -> Self {
        assert!(watch.index() < MAX_WAIT_WATCHES, "a wait set names at most 14 watches");
        Self::of(1 << (MAX_WAIT_CQS + watch.index()))
    }

    /// The completion queue at `index` of the handle, if a set can name it.
    pub const fn cq_index(index: u32) -> Option<Self> {
        if index < MAX_WAIT_CQS { Some(Self::of(1 << index)) } else { None }
    }

    /// The watch at `index` of the handle, if a set can name it.
    pub const fn watch_index(index: u32) -> Option<Self> {
        if index < MAX_WAIT_WATCHES { Some(Self::of(1 << (MAX_WAIT_CQS + index))) } else { None }
    }

    /// Either.
    pub const fn or(self, other: Self) -> Self {
        Self { any: self.any | other.any, solicited: self.solicited | other.solicited }
    }

    /// Whether they share a source.
    pub const fn intersects(self, other: Self) -> bool {
        self.any & other.any != 0 || self.solicited & other.solicited != 0
    }

    /// Whether it names nothing.
    pub const fn is_empty(self) -> bool {
        self.any == 0 && self.solicited == 0
    }

    /// Indices of the completion queues in the set, named either way.
    pub fn cq_indices(self) -> impl Iterator<Item = u32> {
        ones((self.any | self.solicited) & ((1 << MAX_WAIT_CQS) - 1))
    }

    /// Whether of the completion queue at `index` only solicited completions count.
    pub const fn only_solicited(self, index: u32) -> bool {
        index < MAX_WAIT_CQS && self.solicited >> index & 1 == 1 && self.any >> index & 1 == 0
    }

    /// Indices of the watches in the set.
    pub fn watch_indices(self) -> impl Iterator<Item = u32> {
        ones(self.any >> MAX_WAIT_CQS & ((1 << MAX_WAIT_WATCHES) - 1))
    }
}

/// Numbers of the bits that are one, lowest first.
fn ones(mut bits: u64) -> impl Iterator<Item = u32> {
    core::iter::from_fn(move || {
        let lowest = (bits != 0).then(|| bits.trailing_zeros())?;
        bits &= bits - 1;
        Some(lowest)
    })
}

impl fmt::Display for WaitSet {
    /// The sources by name, such as `completion queue 0, a key of a peer`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("nothing");
        }
        let mut between = "";
        for i in self.cq_indices() {
            let only = if self.only_solicited(i) { " (solicited)" } else { "" };
            write!(f, "{between}completion queue {i}{only}")?;
            between = ", ";
        }
        for i in self.watch_indices() {
            write!(f, "{between}memory watch {i}")?;
            between = ", ";
        }
        for (source, name) in
            [(Self::EVENTS, "an asynchronous event"), (Self::BOOTSTRAP, "a key of a peer")]
        {
            if self.intersects(source) {
                write!(f, "{between}{name}")?;
                between = ", ";
            }
        }
        Ok(())
    }
}

/// What a program wants after a step.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Next {
    /// Step again at once. Costs at least one loop iteration.
    Again,
    /// Step again when a source of `on` is ready or `until` has come.
    ///
    /// *Level-triggered*: it includes what became ready before the step returned. Spurious steps
    /// are legal and the program may not infer a reason. Every CQ in `on` must have been polled to
    /// empty in this step (a poll that came back not full); if the buffer was full, return
    /// [`Next::Again`]. An `until` that has passed means `Again`. An empty `on` without `until`
    /// can never end and is reported as a stall.
    Wait {
        /// Sources.
        on: WaitSet,
        /// Deadline.
        until: Option<Time>,
    },
    /// Finished. WQEs that are staged and not rung are reported.
    Done,
}

/// A state machine that uses a transport handle.
///
/// *Observe at the step's start, act at the local clock*: a step sees the state as it was when it
/// began and never the future; its doorbells, posted receives and stores take effect at the local
/// clock that its calls have reached. So **poll first**: a completion that arrives while the step
/// works is seen in the next step.
pub trait Program {
    /// One step. It must return: a loop that waits inside a step is stopped by a call budget.
    fn step<T: Control>(&mut self, t: &mut T) -> Next;

    /// When it will act by itself, whatever its polls find until then: an arrival, a batch that is
    /// due. Asked after each step. `None`: it acts only on what it is told.
    ///
    /// Only a program that polls on a period needs it, since its [`Next::Wait`] names the next poll
    /// and not what lies behind: without it, a million polls in vain while nobody else does
    /// anything are a stall to a back end that looks for stalls. Nothing else depends on it.
    fn acts_at(&self) -> Option<Time> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn solicited_completions_are_a_source_of_their_own() {
        let (any, solicited) =
            (WaitSet::cq_index(1).unwrap(), WaitSet::solicited(CqId::new(1, 0, 0)));
        assert!(!any.intersects(solicited) && !solicited.is_empty());
        assert!(solicited.only_solicited(1) && !any.or(solicited).only_solicited(1));
        assert!(!solicited.only_solicited(0) && !solicited.only_solicited(MAX_WAIT_CQS));
        assert_eq!(any.or(solicited).cq_indices().collect::<alloc::vec::Vec<_>>(), [1]);
    }

    #[test]
    fn a_wait_is_shown_by_its_sources() {
        let cq = WaitSet::cq_index(47).unwrap().or(WaitSet::cq_index(0).unwrap());
        let all = cq.or(WaitSet::watch_index(3).unwrap()).or(WaitSet::EVENTS);
        assert_eq!(
            all.or(WaitSet::BOOTSTRAP).to_string(),
            "completion queue 0, completion queue 47, memory watch 3, an asynchronous event, a key \
             of a peer"
        );
        let solicited = WaitSet::solicited(CqId::new(2, 0, 0));
        assert_eq!(solicited.to_string(), "completion queue 2 (solicited)");
        assert_eq!(solicited.or(WaitSet::cq_index(2).unwrap()).to_string(), "completion queue 2");
        assert_eq!(WaitSet::BOOTSTRAP.to_string(), "a key of a peer");
        assert_eq!(WaitSet::EMPTY.to_string(), "nothing");
    }
}
