//! Noticing that a run goes on but gets nowhere.

use doorbell_core::units::{Span, Time};

/// When something last moved, and how long it may stand still.
///
/// A stalled run rarely runs out of events: timers, credit updates and observers go on for ever.
/// The owner calls [`note`](Self::note) for what counts as progress (a work request completes, a
/// message grows; a retransmission does not) and asks [`expired`](Self::expired) at its fixed
/// observation instants, never in between: the answer must not depend on who looks.
///
/// The bound is computed, not guessed: the longest time in which a healthy run can be silent,
/// for instance retry limit · longest timeout, plus the longest fault in the plan. Too short
/// calls a slow recovery a stall, too long only delays the report.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Progress {
    /// The last progress, or the start of the watch.
    pub last_progress: Time,
    /// The longest silence that is not a stall.
    pub bound: Span,
}

impl Progress {
    /// A watch that starts at `now`.
    pub const fn new(now: Time, bound: Span) -> Self {
        Self { last_progress: now, bound }
    }

    /// Progress at `now`. An earlier time than the last one changes nothing.
    pub fn note(&mut self, now: Time) {
        self.last_progress = self.last_progress.max(now);
    }

    /// Whether the silence is longer than the bound; exactly the bound is still in order.
    pub fn expired(&self, now: Time) -> bool {
        now.since(self.last_progress) > self.bound
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expires_just_after_the_bound() {
        let t = Time::from_ps;
        let mut p = Progress::new(t(100), Span::from_ps(50));
        assert!(!p.expired(t(150)));
        assert!(p.expired(t(151)));
        p.note(t(140));
        assert!(!p.expired(t(190)));
        assert!(p.expired(t(191)));
        p.note(t(120));
        assert_eq!(p.last_progress, t(140));
        assert!(!p.expired(t(0)), "before the last progress nothing has expired");
    }
}
