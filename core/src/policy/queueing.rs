//! How many work requests wait in the NIC, judged by how long they take.

use crate::units::{Span, Time};

/// Parts of a whole, as a shift: a sample's share of waiting in 1/1024.
const WHOLE: u32 = 10;

/// Estimates from round trips which part of the work requests in flight only *waits*.
///
/// A work request that finds nothing in front of it takes the least time of all, and by Little's
/// law what takes longer than that is what stands in queues: of `n` in flight, n · (time - least) /
/// time. It does not matter which queue it is, the NIC's doorbells, its processing unit, the wire,
/// or completions that the core has not polled. One round trip is timed at a time, from the ring to
/// the poll that tells of it. The idea is that of TCP Vegas (Brakmo, O'Malley, Peterson, 1994).
///
/// The least time is that since the beginning. If the way becomes longer for good the estimate is
/// too high from then on, by the ratio of the two times at most.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct QueueEstimate {
    least: Option<Span>,
    /// Share of the time that is waiting, of the last sample.
    waiting: u32,
    /// The work request that is timed: its position, and when it was rung.
    probe: Option<(u32, Time)>,
}

impl QueueEstimate {
    /// Of `in_flight` work requests those that wait. 0 before the first sample.
    #[inline]
    pub const fn waiting(&self, in_flight: u32) -> u32 {
        ((in_flight as u64 * self.waiting as u64) >> WHOLE) as u32
    }

    /// The least time of a round trip so far.
    pub const fn least(&self) -> Option<Span> {
        self.least
    }

    /// The work request at `position`, which will be told of, was rung. It is timed if no other is.
    #[inline]
    pub const fn rung(&mut self, position: u32, now: Time) {
        if self.probe.is_none() {
            self.probe = Some((position, now));
        }
    }

    /// All work requests before `tail` have been told of, positions that wrap at 2^32.
    #[inline]
    pub fn told(&mut self, tail: u32, now: Time) {
        let Some((position, since)) = self.probe else { return };
        // Half of the positions are ahead, half behind.
        if tail.wrapping_sub(position) == 0 || tail.wrapping_sub(position) > u32::MAX / 2 {
            return;
        }
        self.probe = None;
        let time = now.since(since);
        let least = self.least.map_or(time, |l| l.min(time));
        self.least = Some(least);
        let excess = u128::from((time - least).as_ps()) << WHOLE;
        self.waiting = excess.checked_div(time.as_ps().into()).unwrap_or(0) as u32;
    }

    /// What is timed will not be told of: its ring failed.
    pub const fn forget(&mut self) {
        self.probe = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(ns: u64) -> Time {
        Time::ZERO + Span::from_ns(ns)
    }

    fn sample(q: &mut QueueEstimate, from: u64, to: u64) -> u32 {
        q.rung(7, at(from));
        q.told(8, at(to));
        q.waiting(100)
    }

    #[test]
    fn what_takes_longer_than_the_least_is_waiting() {
        let mut q = QueueEstimate::default();
        assert_eq!((q.waiting(100), sample(&mut q, 0, 2000)), (0, 0));
        assert_eq!(sample(&mut q, 0, 4000), 50, "half of the time");
        assert_eq!(sample(&mut q, 0, 8000), 75);
        assert_eq!(sample(&mut q, 5000, 6000), 0, "a new least");
        assert_eq!((sample(&mut q, 0, 2000), q.least()), (50, Some(Span::from_ns(1000))));
        assert_eq!(sample(&mut q, 9, 9), 0, "no time at all");
    }

    #[test]
    fn one_is_timed_at_a_time_and_positions_wrap() {
        let mut q = QueueEstimate::default();
        q.rung(u32::MAX, at(0));
        q.rung(3, at(900));
        q.told(u32::MAX, at(1000));
        assert_eq!(q.least(), None, "all before it, not itself");
        q.told(0, at(1000));
        assert_eq!(q.least(), Some(Span::from_ns(1000)));
        q.rung(4, at(2000));
        q.forget();
        q.told(9, at(2001));
        assert_eq!(q.least(), Some(Span::from_ns(1000)));
    }

    proptest! {
        /// Whatever comes when, what waits is a part of what is in flight, and none of it where no
        /// round trip has taken longer than the least.
        #[test]
        fn no_more_waits_than_is_in_flight(
            trips in prop::collection::vec((0..50_u64, 0..5000_u64), 1..60),
            in_flight in 0..10_000_u32,
        ) {
            let (mut q, mut now, mut least) = (QueueEstimate::default(), 0, u64::MAX);
            for (n, (gap, trip)) in (0..).zip(trips) {
                now += gap;
                q.rung(n, at(now));
                now += trip;
                q.told(n.wrapping_add(1), at(now));
                least = least.min(trip);
                prop_assert_eq!(q.least(), Some(Span::from_ns(least)));
                let waiting = q.waiting(in_flight);
                prop_assert!(waiting <= in_flight);
                prop_assert!(trip > least || waiting == 0);
                let exact = u64::from(in_flight) * (trip - least) / trip.max(1);
                // Shares are in 1/1024, rounded down.
                prop_assert!(u64::from(waiting) <= exact);
                prop_assert!(exact - u64::from(waiting) <= u64::from(in_flight) / 1024 + 1);
            }
        }
    }
}
