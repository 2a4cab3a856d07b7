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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_queue_in_order_and_gaps_stay_idle() {
        let t = Time::from_ps;
        let mut r = Busy::new();
        assert_eq!(r.reserve(t(10), Span::from_ps(5)), (t(10), t(15)));
        // Arrives while busy, and exactly at the end, and after a gap.
        assert_eq!(r.reserve(t(12), Span::from_ps(4)), (t(15), t(19)));
        assert_eq!(r.reserve(t(19), Span::from_ps(1)), (t(19), t(20)));
        assert_eq!(r.reserve(t(30), Span::ZERO), (t(30), t(30)));
        assert_eq!(r.free_at(), t(30));
        assert_eq!(r.busy(), Span::from_ps(10));
        assert_eq!(r.waited(), Span::from_ps(3));
        assert_eq!(r.jobs(), 4);
    }

    /// n jobs of s at one instant: the k-th waits k·s, together n(n-1)/2 · s.
    #[test]
    fn a_burst_waits_as_the_closed_form_says() {
        let (n, s) = (100, Span::from_ns(3));
        let mut r = Busy::default();
        for k in 0..n {
            let (start, end) = r.reserve(Time::ZERO, s);
            assert_eq!(start, Time::ZERO + s * k);
            assert_eq!(end.since(start), s);
        }
        assert_eq!(r.waited(), s * (n * (n - 1) / 2));
        assert_eq!(r.free_at(), Time::ZERO + r.busy());
    }

    #[test]
    fn the_counter_saturates() {
        let mut c = Counter64::new();
        c.inc();
        c.add(u64::MAX - 2);
        assert_eq!(c.get(), u64::MAX - 1);
        c.inc();
        assert_eq!(c.get(), u64::MAX);
        c.inc();
        assert_eq!(c.get(), u64::MAX);
    }
}
