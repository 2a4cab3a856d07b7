//! Accounting that every resource keeps.

use doorbell_core::units::{Span, Time};

/// One FIFO resource: when it is free, and how much it was used.
///
/// It is reserved in the event at which the item arrives at it, never earlier: a reservation
/// for the future would block items that arrive before it.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct Busy {
    free_at: Time,
    busy: Span,
    waited: Span,
    jobs: u64,
}

impl Busy {
    /// A resource that is free from the start of the run.
    pub const fn new() -> Self {
        Self { free_at: Time::ZERO, busy: Span::ZERO, waited: Span::ZERO, jobs: 0 }
    }

    /// Takes the resource for `service`, behind everything reserved before, and returns start
    /// and end.
    pub fn reserve(&mut self, now: Time, service: Span) -> (Time, Time) {
        let start = now.max(self.free_at);
        let end = start + service;
        self.free_at = end;
        self.busy += service;
        self.waited += start.since(now);
        self.jobs += 1;
        (start, end)
    }

    /// When the last reservation ends. In the past: the resource is idle.
    pub const fn free_at(&self) -> Time {
        self.free_at
    }

    /// Service time of all reservations; the part after the present instant included.
    pub const fn busy(&self) -> Span {
        self.busy
    }

    /// Reservations.
    pub const fn jobs(&self) -> u64 {
        self.jobs
    }

    /// Time that all reservations together waited for their start.
    pub const fn waited(&self) -> Span {
        self.waited
    }
}

/// A statistics counter. It saturates: a statistic that is full must not end a run.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub struct Counter64(u64);

impl Counter64 {
    /// Zero.
    pub const fn new() -> Self {
        Self(0)
    }

    /// Counts one.
    pub const fn inc(&mut self) {
        self.add(1);
    }

    /// Counts `n`.
    pub const fn add(&mut self, n: u64) {
        self.0 = self.0.saturating_add(n);
    }

    /// The count.
    pub const fn get(self) -> u64 {
        self.0
    }
}
