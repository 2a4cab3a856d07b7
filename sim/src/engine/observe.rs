//! Recorders that watch a run and change nothing in it.

use doorbell_core::units::Time;

/// One stage of one subject.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct StageRecord {
    /// Whose stage: a logical id chosen by the caller, for instance of a work request.
    pub subject: u64,
    /// The stage's name.
    pub stage: &'static str,
    /// When it began.
    pub start: Time,
    /// When it ended.
    pub end: Time,
    /// A number for the reader, for instance bytes or a PSN.
    pub detail: u64,
}

/// The stages that work went through, for a reader who asks where the time went.
///
/// A timeline returns nothing to the model, draws no random number and schedules nothing, so a
/// run with it has the same trace hash as one without. Switched off it costs one branch.
#[derive(Clone, Debug)]
pub struct Timeline {
    enabled: bool,
    capacity: usize,
    records: Vec<StageRecord>,
    overflow: u64,
}

impl Timeline {
    /// A recorder that is off.
    pub const fn disabled() -> Self {
        Self { enabled: false, capacity: 0, records: Vec::new(), overflow: 0 }
    }

    /// A recorder of up to `capacity` stages (48 bytes each). It keeps the first ones, since
    /// they explain how a run came to where it is, and counts the others.
    pub const fn with_capacity(capacity: usize) -> Self {
        Self { enabled: true, capacity, records: Vec::new(), overflow: 0 }
    }

    /// Whether stages are recorded; a caller may ask before computing `detail`.
    #[inline]
    pub const fn enabled(&self) -> bool {
        self.enabled
    }

    /// Switches recording on or off; what was recorded stays.
    pub const fn set_enabled(&mut self, enabled: bool) {
        self.enabled = enabled;
    }

    /// Records that `subject` was in `stage` from `start` to `end`.
    #[inline]
    pub fn stage(
        &mut self,
        subject: u64,
        stage: &'static str,
        start: Time,
        end: Time,
        detail: u64,
    ) {
        if self.enabled {
            self.record(StageRecord { subject, stage, start, end, detail });
        }
    }

    fn record(&mut self, record: StageRecord) {
        if self.records.len() < self.capacity {
            self.records.push(record);
        } else {
            self.overflow = self.overflow.saturating_add(1);
        }
    }

    /// The recorded stages, in the order of recording.
    pub fn records(&self) -> &[StageRecord] {
        &self.records
    }

    /// Stages that did not fit.
    pub const fn overflow(&self) -> u64 {
        self.overflow
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(timeline: &mut Timeline, subject: u64) {
        timeline.stage(subject, "wire", Time::from_ps(1), Time::from_ps(2), 64);
    }

    #[test]
    fn keeps_the_first_and_counts_the_rest() {
        let mut timeline = Timeline::with_capacity(2);
        for subject in 0..2 {
            record(&mut timeline, subject);
        }
        assert_eq!((timeline.records().len(), timeline.overflow()), (2, 0));
        record(&mut timeline, 2);
        assert_eq!((timeline.records().len(), timeline.overflow()), (2, 1));
        assert!(timeline.records().iter().map(|r| r.subject).eq(0..2));
        let (start, end) = (Time::from_ps(1), Time::from_ps(2));
        let expected = StageRecord { subject: 1, stage: "wire", start, end, detail: 64 };
        assert_eq!(timeline.records()[1], expected);
    }

    #[test]
    fn records_nothing_while_off() {
        let mut timeline = Timeline::disabled();
        record(&mut timeline, 0);
        assert_eq!(
            (timeline.enabled(), timeline.records().len(), timeline.overflow()),
            (false, 0, 0)
        );
        let mut timeline = Timeline::with_capacity(5);
        record(&mut timeline, 1);
        timeline.set_enabled(false);
        record(&mut timeline, 2);
        timeline.set_enabled(true);
        record(&mut timeline, 3);
        assert!(timeline.records().iter().map(|r| r.subject).eq([1, 3]));
    }
}
