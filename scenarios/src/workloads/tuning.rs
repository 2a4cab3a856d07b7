//! The tuner of a program that sends messages.

use doorbell_core::policy::tuner::{Knob, Ladder, Meter, Step, Totals, Tuner, TunerConfig};
use doorbell_core::units::{Span, Time};

use super::common::Failure;

/// Largest batch that is tried.
const MAX_BATCH: u64 = 1024;
/// Part of what may be outstanding that one completion may cover at most, as a divisor: with more
/// of it, slots come back so late and so many at a time that the queue runs dry.
const SIGNAL_PART: u64 = 4;
/// How far the time that a batch waits may move from what the file says, either way, as a factor.
const DELAY_RANGE: u64 = 16;

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
    /// The knobs with their last values.
    pub values: Vec<(Knob, u64)>,
    /// Since when it has been at rest, and how many messages had completed by then; `None`: it is
    /// not.
    pub rest: Option<(Time, u64)>,
}

/// A tuner with the meter that fills its observations.
#[derive(Clone, Debug)]
pub(super) struct Tuning {
    meter: Meter,
    tuner: Tuner,
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
}

const KNOBS: [Knob; 3] = [Knob::MaxWrs, Knob::SignalEvery, Knob::MaxDelay];

impl Tuning {
    pub(super) fn new(config: &TuningConfig, has: Settings, now: Time) -> Result<Self, Failure> {
        let depth = u64::from(has.depth);
        let batch = Ladder::doubling(1, depth.min(MAX_BATCH), has.batch.into());
        let signal = Ladder::doubling(1, depth / SIGNAL_PART, has.signal_every.into());
        let mut knobs = vec![(Knob::MaxWrs, batch), (Knob::SignalEvery, signal)];
        if let Some(delay) = has.max_delay {
            let ps = delay.as_ps();
            let most = ps.saturating_mul(DELAY_RANGE);
            knobs.push((Knob::MaxDelay, Ladder::doubling(ps / DELAY_RANGE, most, ps)));
        }
        let tuner = Tuner::new(config.tuner, &knobs)
            .map_err(|_| Failure::Config("a number of the tuner is out of its range"))?;
        Ok(Self { meter: Meter::new(config.window, now), tuner, slots: has.depth, rest: None })
    }

    #[inline]
    pub(super) fn completed(&mut self, bytes: u32, latency: Span) {
        self.meter.completed(bytes, latency);
    }

    #[inline]
    pub(super) fn rung(&mut self, outstanding: usize) {
        self.meter.rung();
        self.meter.filled(u32::try_from(outstanding).unwrap_or(u32::MAX));
    }

    /// Closes the window if it is over. Gives the step to make, if there is one. `done`: messages
    /// that have completed. Counters of the device are not to be had through the verbs; the
    /// settings that go by them are not turned here.
    pub(super) fn look(&mut self, now: Time, done: u64) -> Option<Step> {
        if now < self.meter.due() {
            return None;
        }
        let seen = self.meter.close(now, Totals::default(), self.slots);
        let step = self.tuner.observe(&seen);
        match self.tuner.is_settled() {
            true => self.rest = self.rest.or(Some((now, done))),
            false => self.rest = None,
        }
        step
    }

    pub(super) fn results(&self) -> TuningResults {
        let value = |k: &Knob| self.tuner.value(*k).map(|v| (*k, v));
        TuningResults {
            steps: self.tuner.steps().to_vec(),
            values: KNOBS.iter().filter_map(value).collect(),
            rest: self.rest,
        }
    }
}
