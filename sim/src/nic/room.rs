//! Room of the receive buffer.

use doorbell_core::units::{Span, Time};

/// What lies in the receive buffer, and for how long it was full.
#[derive(Clone, Debug)]
pub(super) struct ReceiveRoom {
    /// Payload from the port to its place in memory, that included which waits for a receive WQE.
    bytes: u64,
    /// From so many on nothing more is taken from the port.
    limit: u64,
    full_since: Option<Time>,
    full: Span,
}

impl ReceiveRoom {
    pub fn new(limit: u32) -> Self {
        Self { bytes: 0, limit: u64::from(limit), full_since: None, full: Span::ZERO }
    }

    /// `bytes` more lie in it.
    #[inline]
    pub fn take(&mut self, now: Time, bytes: u32) {
        self.bytes += u64::from(bytes);
        if self.is_full() && self.full_since.is_none() {
            self.full_since = Some(now);
        }
    }

    /// `bytes` have left it.
    #[inline]
    pub fn leave(&mut self, now: Time, bytes: u32) {
        self.bytes -= u64::from(bytes);
        if !self.is_full()
            && let Some(since) = self.full_since.take()
        {
            self.full += now.since(since);
        }
    }

    pub fn is_full(&self) -> bool {
        self.bytes >= self.limit
    }

    /// Whether so many bytes more would be taken, or nothing lies in it.
    pub fn has(&self, bytes: u64) -> bool {
        self.bytes == 0 || self.bytes + bytes <= self.limit
    }

    /// Time for which it was full.
    pub fn full(&self, now: Time) -> Span {
        self.full + self.full_since.map_or(Span::ZERO, |since| now.since(since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_counted_while_nothing_more_is_taken() {
        let at = Time::from_ps;
        let mut room = ReceiveRoom::new(100);
        room.take(at(10), 99);
        assert!(!room.is_full() && room.has(1) && !room.has(2));
        room.take(at(20), 1);
        room.take(at(25), 50);
        assert!(room.is_full());
        assert_eq!(room.full(at(30)), Span::from_ps(10));
        room.leave(at(40), 50);
        assert!(room.is_full(), "100 of 100");
        room.leave(at(50), 1);
        assert_eq!((room.is_full(), room.full(at(90))), (false, Span::from_ps(30)));
        // What leaves and is replaced at one instant leaves it full.
        room.take(at(60), 1);
        room.leave(at(70), 1);
        room.take(at(70), 1);
        assert_eq!(room.full(at(80)), Span::from_ps(50));
        room.leave(at(80), 100);
        assert!(room.has(1000), "what is larger than the buffer comes alone");
    }
}
