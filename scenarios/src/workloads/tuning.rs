//! The tuner of a program that sends messages.

use std::ops::RangeInclusive;

use doorbell_core::policy::tuner::{
    Knob, Ladder, Meter, Observation, Step, Tuner, TunerConfig, When, Why,
};
use doorbell_core::transport::{QpAttr, QpSize, TransportCounters};
use doorbell_core::units::{Span, Time};
use doorbell_core::verbs::WcStatus;

use super::common::Failure;

/// Largest batch that is tried.
const MAX_BATCH: u64 = 1024;
/// Part of what may be outstanding that one completion may cover at most, as a divisor: with more
/// of it, slots come back so late and so many at a time that the queue runs dry.
const SIGNAL_PART: u64 = 4;
/// Codes of the ACK timeout; 0, no timer, is none to try.
const TIMEOUTS: RangeInclusive<u64> = 1..=31;
const RETRIES: RangeInclusive<u64> = 0..=7;
/// Codes of the RNR timer by its length: 0 is the longest.
const RNR_TIMERS: [u64; 32] = {
    let mut codes = [0; 32];
    let mut i = 0;
    while i < 31 {
        codes[i] = i as u64 + 1;
        i += 1;
    }
    codes
};
/// How far the time that a batch waits may move from what the file says, either way, as a factor.
const DELAY_RANGE: u64 = 16;
/// Places of a pace below what the file says, and as many above it. Each is a quarter more than the
/// one before, so that one step is worth more than the noise, and they are 7 times the pace away.
const PACES: usize = 9;

/// Configuration of a `Tuning`.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct TuningConfig {
    /// Length of a window. Longer: steadier figures, and it takes longer.
    pub window: Span,
    /// The tuner.
    pub tuner: TunerConfig,
}

/// What a program has of its tuner in the end.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TuningResults {
    /// Its steps.
    pub steps: Vec<Step>,
    /// How long it looked on, and what of that trials have cost that were taken back.
    pub cost: (Span, Span),
    /// The knobs that take effect at once, with their last values.
    pub values: Vec<(Knob, u64)>,
    /// Since when it has been at rest, and how many messages had completed by then; `None`: it is
    /// not.
    pub rest: Option<(Time, u64)>,
}

impl TuningResults {
    /// Steps that were taken back.
    pub(crate) fn taken_back(&self) -> u64 {
        let back = |s: &&Step| matches!(s.why, Why::TakenBack | Why::TooFast);
        self.steps.iter().filter(back).count() as u64
    }
}

/// A tuner with the meter that fills its observations.
#[derive(Clone, Debug)]
pub(super) struct Tuning {
    meter: Meter,
    tuner: Tuner,
    knobs: Vec<Knob>,
    slots: u32,
    rest: Option<(Time, u64)>,
}

/// What the program has now.
#[derive(Copy, Clone, Debug)]
pub(super) struct Settings {
    /// Messages outstanding on a queue pair at most.
    pub(super) depth: u32,
    pub(super) batch: u32,
    pub(super) signal_every: u32,
    /// `None`: there is no such limit, or messages are always there.
    pub(super) max_delay: Option<Span>,
    /// Of its queue pairs, and, so the file says, of the peer's.
    pub(super) attr: QpAttr,
    pub(super) size: QpSize,
    /// Slots of a send queue of the device at most.
    pub(super) max_slots: u32,
    /// Inline bytes of the device at most; `None`: the messages cannot go inline.
    pub(super) max_inline: Option<u32>,
}

impl Settings {
    /// Knobs that take effect at once, then those that the next queue pair has, in the order in
    /// which they are tried: what keeps NAKs from coming before what waits for them to pass.
    fn knobs(&self) -> Vec<(Knob, Ladder)> {
        let depth = u64::from(self.depth);
        let mut knobs = vec![
            (Knob::MaxWrs, Ladder::doubling(1, depth.min(MAX_BATCH), self.batch.into())),
            (Knob::SignalEvery, Ladder::doubling(1, depth / SIGNAL_PART, self.signal_every.into())),
        ];
        if let Some(delay) = self.max_delay {
            let ps = delay.as_ps();
            let most = ps.saturating_mul(DELAY_RANGE);
            knobs.push((Knob::MaxDelay, Ladder::doubling(ps / DELAY_RANGE, most, ps)));
        }
        let (attr, size, slots) = (&self.attr, &self.size, self.max_slots.into());
        let code = |code: u8| u64::from(code);
        knobs.push((Knob::RecvDepth, Ladder::doubling(1, slots, size.max_recv_wr.into())));
        let next = [
            (Knob::RnrTimer, Ladder::of(&RNR_TIMERS, code(attr.min_rnr_timer.code())).ok()),
            (Knob::Timeout, Ladder::steps(TIMEOUTS, code(attr.timeout.code()))),
            (Knob::RetryCnt, Ladder::steps(RETRIES, code(attr.retry_cnt.code()))),
            (Knob::SendDepth, Some(Ladder::doubling(1, slots, size.max_send_wr.into()))),
            (Knob::Inline, self.max_inline.and_then(|most| inline(size.max_inline, most))),
        ];
        knobs.extend(next.into_iter().filter_map(|(knob, ladder)| Some((knob, ladder?))));
        knobs
    }
}

/// From what there is by doubles, and the most that the device takes.
fn inline(now: u32, most: u32) -> Option<Ladder> {
    let doubles = (5..32).map(|n| 1u64 << n).filter(|v| *v < most.into());
    let mut values: Vec<u64> = doubles.chain([now.into(), most.into()]).collect();
    values.sort_unstable();
    values.dedup();
    Ladder::of(&values, now.into()).ok()
}

/// Paces about one of so many bits per second.
fn paces(now: u64) -> Option<Ladder> {
    let lower = std::iter::successors(Some(now), |v| Some(v / 5 * 4).filter(|v| *v > 0));
    let higher = std::iter::successors(Some(now), |v| v.checked_add(v / 4));
    let mut values: Vec<u64> = lower.take(PACES + 1).chain(higher.take(PACES + 1)).collect();
    values.sort_unstable();
    values.dedup();
    Ladder::of(&values, now).ok()
}

impl Tuning {
    /// For a loop. `counters`: those of the port as they stand, all 0 where there are none.
    pub(super) fn new(
        config: &TuningConfig,
        has: &Settings,
        now: Time,
        counters: TransportCounters,
    ) -> Result<Self, Failure> {
        Self::of(config, has.knobs(), has.size.max_send_wr, (now, counters))
    }

    /// For a lane with a pace of so many bits per second.
    pub(super) fn of_pace(
        config: &TuningConfig,
        bits_per_second: u64,
        now: Time,
        counters: TransportCounters,
    ) -> Result<Self, Failure> {
        let ladder = paces(bits_per_second).ok_or(Failure::Config("a pace of nothing"))?;
        Self::of(config, vec![(Knob::Pace, ladder)], 0, (now, counters))
    }

    fn of(
        config: &TuningConfig,
        knobs: Vec<(Knob, Ladder)>,
        slots: u32,
        (now, counters): (Time, TransportCounters),
    ) -> Result<Self, Failure> {
        let tuner = Tuner::new(config.tuner, &knobs)
            .map_err(|_| Failure::Config("a number of the tuner is out of its range"))?;
        let knobs = knobs.into_iter().map(|(knob, _)| knob).collect();
        let meter = Meter::new(config.window, now, counters);
        Ok(Self { meter, tuner, knobs, slots, rest: None })
    }

    #[inline]
    pub(super) fn completed(&mut self, bytes: u32, latency: Span) {
        self.meter.completed(bytes, latency);
    }

    /// The message was under way for so long, from its post on.
    #[inline]
    pub(super) fn carried(&mut self, time: Span) {
        self.meter.carried(time);
    }

    #[inline]
    pub(super) fn rung(&mut self, outstanding: usize) {
        self.meter.rung();
        self.meter.filled(u32::try_from(outstanding).unwrap_or(u32::MAX));
    }

    /// When the window is over.
    #[inline]
    pub(super) fn due(&self) -> Time {
        self.meter.due()
    }

    /// Closes the window, which is over. Gives the step to make, if there is one. `counters` are
    /// the port's as they stand; `done`: messages that have completed. A proposal for the next
    /// queue pair waits for ever, since this program keeps those that it has.
    pub(super) fn look(
        &mut self,
        now: Time,
        counters: TransportCounters,
        done: u64,
    ) -> Option<Step> {
        let seen = self.meter.close(now, counters, self.slots);
        let step = self.tuner.observe(&seen);
        self.meter.watch(self.tuner.watch());
        match self.tuner.is_settled() || self.tuner.is_waiting() {
            true => self.rest = self.rest.or(Some((now, done))),
            false => self.rest = None,
        }
        step
    }

    /// A queue pair died of this: leaves the proposal that it and the counters give a reason for.
    pub(super) fn died(&mut self, now: Time, counters: TransportCounters, status: WcStatus) {
        let seen = self.meter.close(now, counters, self.slots);
        // The limit was exceeded, which no counter of what did not exceed it tells.
        let (timeouts, rnr_naks) = match status {
            WcStatus::RetryExcErr => (1, 0),
            WcStatus::RnrRetryExcErr => (0, 1),
            _ => return,
        };
        self.tuner.died(&Observation {
            timeouts: seen.timeouts + timeouts,
            rnr_naks: seen.rnr_naks + rnr_naks,
            ..seen
        });
    }

    pub(super) fn results(&self) -> TuningResults {
        let value = |k: &Knob| self.tuner.value(*k).map(|v| (*k, v));
        let own = self.knobs.iter().filter(|k| k.when() == When::Now);
        TuningResults {
            steps: self.tuner.steps().to_vec(),
            cost: self.tuner.cost(),
            values: own.filter_map(value).collect(),
            rest: self.rest,
        }
    }
}
