//! What a tuner goes by: a window's counts and latencies.

use super::Histogram;
use crate::transport::TransportCounters;
use crate::units::{PS_PER_S, Span, Time};

/// What happened in one window of time. A program fills it from its own completions, mostly by a
/// [`Meter`]; what its back end does not tell stays 0.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Observation {
    /// How long the window was.
    pub time: Span,
    /// Messages that completed.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Rings.
    pub rings: u64,
    /// Half of the messages took no longer, from the hand-over to the news of their completion.
    pub p50: Span,
    /// 99 % of the messages took no longer.
    pub p99: Span,
    /// The longest that one was under way, from its post to the news of its completion: without
    /// the wait for a pace or a slot. [`Span::ZERO`] where that is not told.
    pub slowest: Span,
    /// What was watched for came, and ended the window before its time.
    pub watched: bool,
    /// RNR NAKs that came.
    pub rnr_naks: u64,
    /// Sequence NAKs that came: packets were lost.
    pub sequence_naks: u64,
    /// CNPs that came: packets of ours were marked.
    pub cnps: u64,
    /// ACK timers that ran out.
    pub timeouts: u64,
    /// Most slots of the send queue in use.
    pub fill: u32,
    /// Slots of the send queue; 0 where they are not known.
    pub slots: u32,
}

impl Observation {
    /// Bits of messages per second, rounded down; 0 for no time.
    pub fn bits_per_second(&self) -> u64 {
        per_second(u128::from(self.bytes) * 8, self.time)
    }

    /// Messages per second, rounded down; 0 for no time.
    pub fn messages_per_second(&self) -> u64 {
        per_second(self.messages.into(), self.time)
    }

    /// Mean bytes of a message, rounded down; 0 without messages.
    pub fn mean_bytes(&self) -> u64 {
        self.bytes.checked_div(self.messages).unwrap_or(0)
    }

    /// Whether half of the messages took longer than the window: more wait than a window completes.
    pub(super) fn is_behind(&self) -> bool {
        self.p50 > self.time
    }

    /// One observation for several windows: the counts of the window whose rate is the median, the
    /// medians of the latencies, the most slots, and the sums of what should not happen at all.
    /// A single window that differs decides nothing.
    pub(super) fn median(windows: &mut [Self]) -> Self {
        let middle = windows.len() / 2;
        windows.sort_unstable_by_key(|w| w.p50);
        let p50 = windows[middle].p50;
        windows.sort_unstable_by_key(|w| w.p99);
        let p99 = windows[middle].p99;
        windows.sort_unstable_by_key(|w| w.slowest);
        let slowest = windows[middle].slowest;
        windows.sort_unstable_by_key(Self::bits_per_second);
        let sum = |of: fn(&Self) -> u64| windows.iter().map(of).fold(0, u64::saturating_add);
        Self {
            p50,
            p99,
            slowest,
            rnr_naks: sum(|w| w.rnr_naks),
            sequence_naks: sum(|w| w.sequence_naks),
            cnps: sum(|w| w.cnps),
            timeouts: sum(|w| w.timeouts),
            watched: false,
            fill: windows.iter().map(|w| w.fill).max().unwrap_or(0),
            ..windows[middle]
        }
    }
}

fn per_second(count: u128, time: Span) -> u64 {
    let rate = (count * u128::from(PS_PER_S)).checked_div(time.as_ps().into()).unwrap_or(0);
    u64::try_from(rate).unwrap_or(u64::MAX)
}

/// Messages that a [`Meter`]'s window has at least. Of fewer the 99th percentile is one message,
/// and the rate a matter of where the window happens to end.
pub const LEAST_MESSAGES: u64 = 32;

/// What ends a [`Meter`]'s window before its time.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Watch {
    /// Messages that were under way for longer: a queue grows.
    Above(Span),
    /// Messages that were under way for no longer: the queue is gone. Or so much time.
    Below {
        /// No longer than this.
        limit: Span,
        /// From the window's begin, whatever completes.
        within: Span,
    },
}

/// Messages on end that tell of a queue; a lone one tells of itself. More: surer, and a queue that
/// grows is larger by then.
const ON_END: u8 = 2;

/// Fills [`Observation`]s, one for each window of a fixed length, or the longer one in which
/// [`LEAST_MESSAGES`] complete.
///
/// ```
/// use doorbell_core::policy::tuner::Meter;
/// use doorbell_core::transport::TransportCounters;
/// use doorbell_core::units::{Span, Time};
///
/// let counters = TransportCounters { local_ack_timeout_err: 3, ..TransportCounters::default() };
/// let mut meter = Meter::new(Span::from_us(50), Time::ZERO, counters);
/// meter.rung();
/// assert_eq!(meter.due(), Time::MAX, "nothing to judge yet");
/// for _ in 0..32 {
///     meter.completed(4096, Span::from_us(3));
/// }
/// let end = Time::ZERO + Span::from_us(50);
/// assert_eq!(meter.due(), end);
/// let seen = meter.close(end, TransportCounters { local_ack_timeout_err: 5, ..counters }, 64);
/// assert_eq!((seen.messages, seen.rings, seen.timeouts), (32, 1, 2));
/// assert_eq!(seen.bits_per_second(), 32 * 655_360_000);
/// ```
#[derive(Clone, Debug)]
pub struct Meter {
    window: Span,
    since: Time,
    now: Observation,
    latencies: Histogram,
    /// As they stood when the window began.
    counters: TransportCounters,
    watch: Option<Watch>,
    /// Messages on end that it waits for.
    on_end: u8,
}

impl Meter {
    /// Windows of this length, the first from `now` on. Longer: steadier figures, and a tuner that
    /// takes longer. A window should hold some hundred messages, or its 99th percentile is its
    /// maximum, and be longer than a message takes, or latencies tell nothing of it. Zero counts as
    /// a picosecond; [`LEAST_MESSAGES`] is then what ends a window. `counters` are the port's as
    /// they stand: what was counted before does not concern this program.
    pub fn new(window: Span, now: Time, counters: TransportCounters) -> Self {
        Self {
            window: window.max(Span::from_ps(1)),
            since: now,
            now: Observation::default(),
            latencies: Histogram::default(),
            counters,
            watch: None,
            on_end: 0,
        }
    }

    /// What is to end windows before their time from now on:
    /// [`Tuner::watch`](super::Tuner::watch).
    #[inline]
    pub fn watch(&mut self, watch: Option<Watch>) {
        if self.watch != watch {
            (self.watch, self.on_end) = (watch, 0);
        }
    }

    /// When the window ends; [`Time::MAX`] until it has [`LEAST_MESSAGES`], unless what is watched
    /// for has come.
    #[inline]
    pub fn due(&self) -> Time {
        if self.on_end >= ON_END {
            return self.since;
        }
        let full =
            if self.now.messages < LEAST_MESSAGES { Time::MAX } else { self.since + self.window };
        match self.watch {
            Some(Watch::Below { within, .. }) => full.min(self.since + within),
            _ => full,
        }
    }

    /// A message completed.
    #[inline]
    pub fn completed(&mut self, bytes: u32, latency: Span) {
        self.now.messages += 1;
        self.now.bytes = self.now.bytes.saturating_add(bytes.into());
        self.latencies.record(latency);
    }

    /// The message that completed was under way for so long, the wait for its pace or slot apart.
    #[inline]
    pub fn carried(&mut self, time: Span) {
        self.now.slowest = self.now.slowest.max(time);
        let seen = match self.watch {
            Some(Watch::Above(limit)) => time > limit,
            Some(Watch::Below { limit, .. }) => time <= limit,
            None => false,
        };
        self.on_end = if seen { self.on_end.saturating_add(1) } else { 0 };
    }

    /// A ring announced something.
    #[inline]
    pub const fn rung(&mut self) {
        self.now.rings += 1;
    }

    /// So many slots of the send queue are in use.
    #[inline]
    pub const fn filled(&mut self, slots: u32) {
        if slots > self.now.fill {
            self.now.fill = slots;
        }
    }

    /// The window ends now, and the next begins. `counters` are the port's as they stand, all 0
    /// where there are none; `slots` those of the send queue. A window that is closed late is that
    /// much longer.
    pub fn close(&mut self, now: Time, counters: TransportCounters, slots: u32) -> Observation {
        let counted = counters.since(self.counters);
        let quantile = |n| self.latencies.quantile(n, 100).unwrap_or(Span::ZERO);
        let seen = Observation {
            time: now.since(self.since),
            p50: quantile(50),
            p99: quantile(99),
            rnr_naks: counted.rnr_nak_retry_err,
            sequence_naks: counted.packet_seq_err,
            cnps: counted.cnps,
            timeouts: counted.local_ack_timeout_err,
            slots,
            watched: self.on_end >= ON_END,
            ..self.now
        };
        self.since = now;
        self.now = Observation::default();
        self.latencies.clear();
        self.counters = counters;
        self.on_end = 0;
        seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_has_what_happened_in_it_and_nothing_of_the_one_before() {
        let at = |us| Time::ZERO + Span::from_us(us);
        let counters = |rnr_nak_retry_err, packet_seq_err, local_ack_timeout_err| {
            let cnps = 2 * packet_seq_err;
            TransportCounters { rnr_nak_retry_err, packet_seq_err, local_ack_timeout_err, cnps }
        };
        // Others had counted before.
        let mut m = Meter::new(Span::from_us(10), at(5), counters(100, 200, 300));
        assert_eq!(m.due(), Time::MAX);
        m.completed(100, Span::from_us(1));
        m.completed(50, Span::from_us(4));
        m.rung();
        m.filled(7);
        m.filled(3);
        let first = m.close(at(25), counters(105, 209, 301), 16);
        assert_eq!((first.time, first.messages, first.bytes), (Span::from_us(20), 2, 150));
        assert_eq!((first.rings, first.fill, first.slots, first.mean_bytes()), (1, 7, 16, 75));
        assert!(first.p50 >= Span::from_us(1) && first.p50 < Span::from_us(2));
        assert!(first.p99 >= Span::from_us(4) && first.p99 < Span::from_us(5));
        assert_eq!((first.rnr_naks, first.sequence_naks, first.timeouts), (5, 9, 1));
        assert_eq!(first.cnps, 18);
        let second = m.close(at(35), counters(107, 209, 301), 16);
        let idle = Observation {
            time: Span::from_us(10),
            rnr_naks: 2,
            slots: 16,
            ..Observation::default()
        };
        assert_eq!(second, idle);
        assert_eq!((second.mean_bytes(), Observation::default().bits_per_second()), (0, 0));
    }

    /// However short the window is said to be, one of it is not judged by a message or two.
    #[test]
    fn a_window_is_due_when_it_has_messages_enough() {
        let at = |us| Time::ZERO + Span::from_us(us);
        for (window, due) in [(Span::ZERO, Time::from_ps(1)), (Span::from_us(10), at(10))] {
            let mut m = Meter::new(window, Time::ZERO, TransportCounters::default());
            for n in 0..LEAST_MESSAGES {
                assert_eq!(m.due(), Time::MAX, "{n}");
                m.completed(8, Span::from_us(1));
            }
            assert_eq!(m.due(), due);
            assert_eq!(m.close(at(40), TransportCounters::default(), 0).messages, LEAST_MESSAGES);
            assert_eq!(m.due(), Time::MAX, "the next one has none yet");
        }
    }

    #[test]
    fn one_window_that_differs_decides_nothing() {
        let of = |messages, us, naks| Observation {
            time: Span::from_us(10),
            messages,
            bytes: messages * 10,
            p50: Span::from_us(us),
            p99: Span::from_us(2 * us),
            rnr_naks: naks,
            ..Observation::default()
        };
        let median = Observation::median(&mut [of(100, 3, 1), of(1, 900, 2), of(101, 2, 0)]);
        assert_eq!(
            (median.messages, median.p50, median.p99),
            (100, Span::from_us(3), Span::from_us(6))
        );
        assert_eq!(median.rnr_naks, 3, "what should not happen is added");
    }
}
