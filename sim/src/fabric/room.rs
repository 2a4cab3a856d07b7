//! Room at the far end of a link that comes back while nothing waits for it.
//!
//! Where buffers are idealised the sender hears of each packet that left the far end's buffer. Most
//! of the time it has room enough and would only add up. So the time is noted here instead, without
//! an event, and the port counts what has come by when it next looks. A port that is held back asks
//! for the first of them, and so for one event at a time.

use std::collections::VecDeque;

use doorbell_core::units::Time;

/// Credits on their way to one port.
#[derive(Clone, Debug)]
pub(super) struct RoomAhead {
    /// When, and how many bytes; earliest first.
    due: VecDeque<(Time, u32)>,
    /// An event comes by then; [`Time::MAX`]: none is known of.
    asked: Time,
}

impl Default for RoomAhead {
    fn default() -> Self {
        Self { due: VecDeque::new(), asked: Time::MAX }
    }
}

impl RoomAhead {
    /// Notes a credit for `at`. False: it is not noted, since the port is `blocked` and has asked
    /// for nothing that comes as early; it needs an event.
    pub fn expect(&mut self, at: Time, bytes: u32, blocked: bool) -> bool {
        if blocked && at < self.asked {
            self.asked = at;
            return false;
        }
        if self.due.back().is_none_or(|(last, _)| *last <= at) {
            self.due.push_back((at, bytes));
        } else {
            // Outputs of one switch end packets in another order than they begin them.
            let place = self.due.partition_point(|(other, _)| *other <= at);
            self.due.insert(place, (at, bytes));
        }
        true
    }

    /// Takes the first credit out: the port, which is held back now, wants an event for it, and
    /// will [expect](Self::expect) it anew. `None`: nothing is noted, or an event comes before.
    pub fn ask(&mut self) -> Option<(Time, u32)> {
        self.due.front().filter(|(at, _)| *at < self.asked)?;
        self.due.pop_front()
    }

    /// An event has come.
    pub fn heard(&mut self, now: Time) {
        if self.asked <= now {
            self.asked = Time::MAX;
        }
    }

    /// Takes what has come by `now`: its bytes.
    #[inline]
    pub fn take(&mut self, now: Time) -> u64 {
        let mut come = 0;
        while let Some(&(_, bytes)) = self.due.front().filter(|(at, _)| *at <= now) {
            come += u64::from(bytes);
            self.due.pop_front();
        }
        come
    }

    /// Bytes that have come by `now` and were not taken.
    pub fn by(&self, now: Time) -> u64 {
        self.due.iter().take_while(|(at, _)| *at <= now).map(|(_, bytes)| u64::from(*bytes)).sum()
    }

    /// The last one up to `limit`.
    pub fn last_by(&self, limit: Time) -> Option<Time> {
        self.due.iter().rev().map(|(at, _)| *at).find(|at| *at <= limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ps: u64) -> Time {
        Time::from_ps(ps)
    }

    #[test]
    fn what_has_come_is_taken_once_in_whatever_order_it_was_told() {
        let mut room = RoomAhead::default();
        for (ps, bytes) in [(30, 3), (10, 1), (20, 2), (20, 4)] {
            assert!(room.expect(at(ps), bytes, false));
        }
        assert_eq!((room.take(at(9)), room.by(at(9))), (0, 0));
        assert_eq!(room.by(at(20)), 7);
        assert_eq!((room.take(at(20)), room.take(at(20))), (7, 0));
        assert_eq!((room.last_by(at(29)), room.last_by(at(30))), (None, Some(at(30))));
        assert_eq!(room.take(Time::MAX), 3);
    }

    #[test]
    fn a_port_that_waits_has_one_event_ahead_the_earliest() {
        let mut room = RoomAhead::default();
        for ps in [10, 20, 30] {
            assert!(room.expect(at(ps), 1, false));
        }
        assert_eq!(room.ask(), Some((at(10), 1)));
        assert!(!room.expect(at(10), 1, true), "that is the event");
        assert_eq!(room.ask(), None, "it comes first");
        assert!(room.expect(at(10), 1, true), "no earlier than what was asked for");
        assert!(!room.expect(at(9), 1, true), "earlier: an event of its own");
        room.heard(at(9));
        assert_eq!(room.ask(), Some((at(10), 1)));
        room.heard(at(10));
        assert_eq!(room.ask(), Some((at(20), 1)));
    }

    #[test]
    fn a_port_that_waits_with_nothing_ahead_is_told() {
        let mut room = RoomAhead::default();
        assert_eq!(room.ask(), None);
        assert!(!room.expect(at(5), 1, true));
        assert!(room.expect(at(6), 1, true), "the event at 5 comes first");
        room.heard(at(5));
        assert_eq!(room.ask(), Some((at(6), 1)));
    }
}
