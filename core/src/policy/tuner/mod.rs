//! A tuner: turns one setting at a time, and keeps what the counters and latencies say has paid.

mod config;
mod histogram;
mod knob;
mod observation;
#[cfg(test)]
mod tests;

use alloc::vec::Vec;

pub use config::{MAX_STEPS, MAX_WINDOWS, TunerConfig, TunerError};
pub use histogram::Histogram;
pub use knob::{Knob, Ladder, LadderError, MAX_VALUES, When};
pub use observation::{LEAST_MESSAGES, Meter, Observation, Watch};

use crate::units::{PS_PER_S, Span};

/// Why a [`Step`] was made.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Why {
    /// Nothing said that it would not pay.
    Trial,
    /// The step before, in the same direction, paid.
    Paid,
    /// RNR NAKs came: the peer had no receive posted.
    RnrNaks,
    /// ACK timers ran out: too early, or late for what was lost.
    Timeouts,
    /// The send queue was full, or all but full.
    QueueFull,
    /// CNPs or sequence NAKs came, or ACK timers ran out: more was sent than the network takes.
    Congestion,
    /// Messages are small enough to go inline with this, and so far do not.
    FitsInline,
    /// The step before did not pay.
    TakenBack,
    /// A pace was raised, and before it was judged signs of congestion came, or a queue grew.
    TooFast,
    /// What a pace that was too fast had lost, or had made wait, is made good: the pace before it.
    MadeGood,
    /// The load changed before a proposal was taken up.
    Withdrawn,
}

impl Why {
    /// As reports say it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Trial => "trial",
            Self::Paid => "the step before paid",
            Self::RnrNaks => "RNR NAKs",
            Self::Timeouts => "timeouts",
            Self::QueueFull => "the send queue is full",
            Self::Congestion => "congestion",
            Self::FitsInline => "messages fit inline",
            Self::TakenBack => "did not pay: taken back",
            Self::TooFast => "too fast: half of the pace before",
            Self::MadeGood => "what was too fast is made good",
            Self::Withdrawn => "the load changed: withdrawn",
        }
    }
}

/// One change of one knob, with what caused it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// The window at whose end it was made, counted from 0.
    pub window: u64,
    /// What.
    pub knob: Knob,
    /// The value before it.
    pub from: u64,
    /// The value after it.
    pub to: u64,
    /// The reason.
    pub why: Why,
    /// The observation that caused it: of the last windows before it.
    pub saw: Observation,
}

impl Step {
    /// When it takes effect.
    pub const fn when(&self) -> When {
        self.knob.when()
    }
}

/// Towards which end of a ladder.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Way {
    Up,
    Down,
}

impl Way {
    const BOTH: [Self; 2] = [Self::Up, Self::Down];

    const fn back(self) -> Self {
        match self {
            Self::Up => Self::Down,
            Self::Down => Self::Up,
        }
    }
}

/// A knob with its ladder.
#[derive(Copy, Clone, Debug)]
struct Dial {
    knob: Knob,
    ladder: Ladder,
    /// Places that nothing bars: none beyond one that did not pay, or that a step which paid left.
    open: (usize, usize),
    /// The lowest place that no step down was taken back from: what congestion may ask for, though
    /// a climb barred it.
    floor: usize,
}

impl Dial {
    /// One with every place open.
    fn new(&(knob, ladder): &(Knob, Ladder)) -> Self {
        Self { knob, ladder, open: (0, ladder.values().len() - 1), floor: 0 }
    }

    /// Bars a place, and all that are beyond it in that direction.
    fn bar(&mut self, way: Way, place: usize) {
        match way {
            Way::Up => self.open.1 = place - 1,
            Way::Down => self.open.0 = place + 1,
        }
    }

    /// The neighbour in one direction, if it is open.
    fn near(&self, way: Way) -> Option<usize> {
        let at = self.ladder.at();
        match way {
            Way::Up => Some(at + 1).filter(|i| *i <= self.open.1),
            Way::Down => at.checked_sub(1).filter(|i| *i >= self.open.0),
        }
    }
}

/// A step whose effect is not known yet.
#[derive(Copy, Clone, Debug)]
struct Open {
    dial: usize,
    way: Way,
    /// Place before it.
    from: usize,
    /// What was seen before it.
    before: Observation,
    /// When it was made, by the time of all windows, and their bytes by then.
    since: Span,
    bytes: u64,
}

/// A pace that is low until the one before it was raised too far is as if it had not been.
#[derive(Copy, Clone, Debug)]
struct Slow {
    /// The raise; where it came from, nothing was lost.
    open: Open,
    /// Where nothing was lost: what ends it.
    calm: Option<Calm>,
}

/// The end of a queue that a raise made.
#[derive(Copy, Clone, Debug)]
struct Calm {
    /// How long messages are under way once there is no queue.
    slowest: Span,
    /// The time of all windows by which what this raise put into it is gone. What is there still is
    /// another's, who would only take the room that is left to it.
    until: Span,
}

#[derive(Copy, Clone, Debug)]
enum Phase {
    /// Collects what is so far.
    Base,
    /// Collects what came of a step.
    Trial(Open),
    /// A step of a knob that the next QP or plan has: it waits for [`Tuner::renewed`].
    Proposed(Open),
    /// As before, of a step that was taken back.
    Returned,
    /// At half of a pace that lost nothing, until what a raise of it has lost is made good.
    Slow(Slow),
    /// Nothing left to try, as long as the load is this.
    Settled,
}

/// Turns one [`Knob`] at a time by one place of its [`Ladder`], and keeps what pays.
///
/// The program closes a window now and then and gives the [`Observation`]; the tuner answers with a
/// [`Step`] or nothing. After a step it lets some windows pass and compares the next ones with
/// those before. A step that paid is followed by another in that direction; one that did not is
/// *taken back once, and that direction barred* from there on until the load changes, as is all
/// from where a step which paid came from. So in a steady load, whatever the response and its
/// noise:
///
/// - no step is made twice, and each is taken back once at most;
/// - a knob with n values makes at most n - 1 steps that are kept, and two that are not (or, where
///   a step goes past several values, n - 1 in all), and then the tuner stands still;
/// - each value is one of its ladder's.
///
/// It finds the best where the response of each knob has one peak, with at least `gain_percent`
/// between neighbours, and the knobs do not change each other's best value much. For all else there
/// is the search on the simulator, `doorbell tune`.
///
/// Knobs of [`When::Now`] are tried without a reason, save that [`Knob::Pace`] is not raised while
/// there are signs of congestion, and lowered by half at once, which is kept if they stop (it then
/// climbs again, below what it left). A raise that is followed by such signs is taken back in the
/// window that shows them: to half of the pace before, and to that one when they have ended. With a
/// [`Meter`] that is told how long messages are [under way](Meter::carried) and what to
/// [watch](Tuner::watch) for, so is one that makes a queue grow, before anything is lost; and a
/// window is not waited for. A pace is not lowered for nothing where all that the lower one lets
/// through is less than what is delivered now. The
/// faster one is not tried again for 32 times as long as all that took, the next time for 64 times
/// and so on up to 2^13, also where the load seems to be another. Those of [`When::NextQp`] are
/// tried only when the counters name one, behind the others; those of [`When::NextPlan`] last, and
/// without a reason. What is not for now is a *proposal*: nothing else is turned until the program
/// has queue pairs, or a plan, with it and says so by [`renewed`](Tuner::renewed).
///
/// The load counts as another when the rate, the mean size of messages or the 99th percentile, as
/// medians of two judgements on end, differ by `load_change_percent` from what they were when the
/// tuner came to rest. Then every direction is free again.
///
/// In an overload a backlog grows, and the latency with it, for ever. So where half of the messages
/// took longer than the window that they completed in, more of them wait than a window completes,
/// and their latencies tell of that queue and of settings long ago: between two such windows only
/// rates and sizes are compared. A window that is shorter than the way there and back is always one
/// of these.
///
/// ```
/// use doorbell_core::policy::tuner::{Knob, Ladder, Observation, Tuner, TunerConfig};
/// use doorbell_core::units::Span;
///
/// let batch = (Knob::MaxWrs, Ladder::doubling(1, 64, 1));
/// let mut tuner = Tuner::new(TunerConfig::default(), &[batch]).unwrap();
/// for _ in 0..100 {
///     // Doorbells cost up to a batch of 8, beyond which the wire is the limit.
///     let wrs = tuner.value(Knob::MaxWrs).unwrap();
///     tuner.observe(&Observation {
///         time: Span::from_us(50),
///         messages: 100 * wrs.min(8),
///         bytes: 6400 * wrs.min(8),
///         p99: Span::from_us(10 + wrs),
///         ..Observation::default()
///     });
/// }
/// assert!(tuner.is_settled());
/// assert_eq!(tuner.value(Knob::MaxWrs), Some(8));
/// ```
#[derive(Clone, Debug)]
pub struct Tuner {
    config: TunerConfig,
    dials: Vec<Dial>,
    steps: Vec<Step>,
    phase: Phase,
    /// Windows that do not count yet.
    skip: u8,
    seen: [Observation; MAX_WINDOWS],
    held: usize,
    window: u64,
    /// What was seen when it came to rest, or waits since.
    rest: Option<Observation>,
    /// Judgements on end that differ from it.
    odd: u8,
    /// Judgements that were put off since the last step.
    waits: u8,
    /// Time of all windows, and their bytes.
    clock: Span,
    bytes: u64,
    /// What trials have cost that were taken back.
    lost: Span,
    too_fast: TooFast,
}

/// What came of a pace that was too fast. Each try loses messages, and what is lost costs timers,
/// so what a try has cost says how long there is none.
#[derive(Copy, Clone, Default, Debug)]
struct TooFast {
    /// The lowest place that was too fast, and until when it is not tried again; `None`: until it
    /// is known what the last try cost.
    barred: Option<(usize, Option<Span>)>,
    /// How often one was too fast.
    times: u8,
    /// Windows with signs of congestion that are still put down to it.
    draining: u16,
}

/// Part of the time of the slowest message, as a divisor, by which messages on end take longer when
/// a raised pace makes a queue grow. Lower: a queue has grown that much more when it is seen, and a
/// buffer for it may be full; higher: another's messages look like one.
const QUEUE_PART: u64 = 4;

/// How many times as long as a pace that was too fast has cost it is not tried again, whatever
/// changes; each time it is, twice as long, up to 2^[`MOST_DOUBLINGS`] times. Lower: a link that
/// has more room is found sooner, and one that has not loses more: at most one part in this.
const REST: u64 = 32;
/// See [`REST`].
const MOST_DOUBLINGS: u8 = 8;

impl Tuner {
    /// A tuner for these knobs, which are tried in this order, from the values on which their
    /// ladders stand. The program has these values.
    ///
    /// # Errors
    /// See [`TunerError`].
    pub fn new(config: TunerConfig, knobs: &[(Knob, Ladder)]) -> Result<Self, TunerError> {
        config.check()?;
        if knobs.is_empty() {
            return Err(TunerError::NoKnobs);
        }
        for (i, (knob, _)) in knobs.iter().enumerate() {
            if knobs[..i].iter().any(|(k, _)| k == knob) {
                return Err(TunerError::Twice { knob: *knob });
            }
        }
        Ok(Self {
            config,
            dials: knobs.iter().map(Dial::new).collect(),
            steps: Vec::with_capacity(config.max_steps.into()),
            phase: Phase::Base,
            skip: config.skip,
            seen: [Observation::default(); MAX_WINDOWS],
            held: 0,
            window: 0,
            rest: None,
            odd: 0,
            waits: 0,
            clock: Span::ZERO,
            bytes: 0,
            lost: Span::ZERO,
            too_fast: TooFast::default(),
        })
    }

    /// The value of a knob, proposals included; `None` for one that it has not.
    pub fn value(&self, knob: Knob) -> Option<u64> {
        self.dials.iter().find(|d| d.knob == knob).map(|d| d.ladder.value())
    }

    /// All steps so far, in order.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The time of all windows, and the part of it that trials have cost which were taken back:
    /// for what they delivered less than the rate before them would have. That of one whose losses
    /// are not made good yet is included.
    pub fn cost(&self) -> (Span, Span) {
        let open = match self.phase {
            Phase::Slow(slow) => self.cost_of(&slow.open),
            _ => Span::ZERO,
        };
        (self.clock, self.lost + open)
    }

    fn cost_of(&self, open: &Open) -> Span {
        let took = self.clock.saturating_sub(open.since);
        let rate = u128::from(open.before.bits_per_second());
        let bits = u128::from(self.bytes - open.bytes) * 8 * u128::from(PS_PER_S);
        let needed = u64::try_from(bits.checked_div(rate).unwrap_or(u128::MAX));
        took.saturating_sub(needed.map_or(took, Span::from_ps))
    }

    /// Whether there is nothing left to try, as long as the load is what it is.
    pub const fn is_settled(&self) -> bool {
        matches!(self.phase, Phase::Settled)
    }

    /// Whether a proposal waits for the next queue pair or plan.
    pub const fn is_waiting(&self) -> bool {
        matches!(self.phase, Phase::Proposed(_) | Phase::Returned)
    }

    /// What should end a window before its time, for a [`Meter`] with [`Meter::watch`]: a queue
    /// that grows behind a raised pace, and its end.
    pub fn watch(&self) -> Option<Watch> {
        let took = |saw: Observation| Some(saw.slowest).filter(|slowest| *slowest > Span::ZERO);
        match self.phase {
            Phase::Slow(Slow { calm, .. }) => calm.map(|calm| Watch::Below {
                limit: calm.slowest,
                within: calm.until.saturating_sub(self.clock),
            }),
            _ => took(self.raise_under_way()?.before)
                .map(|slowest| Watch::Above(slowest + Span::from_ps(slowest.as_ps() / QUEUE_PART))),
        }
    }

    /// A window ended. Gives the step to make, if there is one. A window without messages says
    /// nothing, and is passed over.
    pub fn observe(&mut self, window: &Observation) -> Option<Step> {
        self.window += 1;
        self.clock += window.time;
        self.bytes = self.bytes.saturating_add(window.bytes);
        // Only the end of a queue is also a matter of time alone.
        let timed = matches!(self.phase, Phase::Slow(Slow { calm: Some(_), .. }));
        if window.messages == 0 && !timed {
            return None;
        }
        let signs = window.watched || congested(window);
        if let Some(open) = self.raise_under_way().filter(|_| signs) {
            return Some(self.slow_down(open, *window));
        }
        if let Phase::Slow(slow) = self.phase {
            return self.make_good(slow, *window);
        }
        if self.skip > 0 {
            self.skip -= 1;
            return None;
        }
        if let Some(step) = self.cut(window) {
            return Some(step);
        }
        self.seen[self.held] = *window;
        self.held += 1;
        if self.held < self.config.windows.into() {
            return None;
        }
        let saw = Observation::median(&mut self.seen[..self.held]);
        self.held = 0;
        self.judge(saw)
    }

    /// Congestion while nothing is under way lowers the pace at once: what more windows of it
    /// would lose costs more than what they would tell.
    fn cut(&mut self, window: &Observation) -> Option<Step> {
        let idle = matches!(self.phase, Phase::Base | Phase::Settled);
        if !idle || !congested(window) || !self.has_room() {
            return None;
        }
        let dial = self.dials.iter().position(|d| d.knob == Knob::Pace)?;
        let (to, why) = self.target(dial, Way::Down, window)?;
        Some(self.turn(dial, Way::Down, to, why, *window))
    }

    /// A raise of the pace that is not judged yet.
    fn raise_under_way(&self) -> Option<Open> {
        match self.phase {
            Phase::Trial(open) if open.way == Way::Up => {
                Some(open).filter(|o| self.dials[o.dial].knob == Knob::Pace)
            }
            _ => None,
        }
    }

    /// A raised pace is too fast: below the one before at once, without waiting for medians. What
    /// is lost is sent again beside what is new, and at the pace before, which may be all that the
    /// network takes, that would lose more.
    fn slow_down(&mut self, open: Open, saw: Observation) -> Step {
        let dial = &mut self.dials[open.dial];
        let (place, values) = (dial.ladder.at(), dial.ladder.values());
        let half = |i: &usize| values[*i] <= values[open.from] / 2;
        let slow = (0..open.from).rev().find(half).unwrap_or(0);
        dial.bar(Way::Up, place);
        self.too_fast.draining = u16::from(PATIENCE) * u16::from(self.config.windows);
        self.bar_pace(place);
        let step = self.record(open.dial, slow, Why::TooFast, saw);
        let until = self.clock + self.time_to_drain(&open, place, slow);
        let calm = Calm { slowest: open.before.slowest, until };
        let calm = Some(calm).filter(|_| !congested(&saw));
        self.go_on(Phase::Slow(Slow { open, calm }));
        step
    }

    /// How long a pace takes to work off all that a raise can have queued since it was made.
    fn time_to_drain(&self, open: &Open, raised: usize, slow: usize) -> Span {
        let values = self.dials[open.dial].ladder.values();
        let (more, less) = (values[raised] - values[open.from], values[open.from] - values[slow]);
        let took = u128::from(self.clock.saturating_sub(open.since).as_ps());
        let drain = (took * u128::from(more)).checked_div(less.into()).unwrap_or(0);
        Span::from_ps(u64::try_from(drain).unwrap_or(u64::MAX))
    }

    /// A window at half of the pace. Without signs of congestion it ends that; where nothing was
    /// lost, once messages are as quick as before, or all that the raise queued must be gone. Where
    /// none comes for long, they have another cause.
    fn make_good(&mut self, slow: Slow, saw: Observation) -> Option<Step> {
        let Slow { open, calm } = slow;
        let (dial, back) = (open.dial, open.from);
        self.too_fast.draining -= 1;
        let lost = congested(&saw);
        let calm = calm.filter(|_| !lost);
        let waits = calm.is_some_and(|calm| !saw.watched && self.clock < calm.until);
        if (lost || waits) && self.too_fast.draining > 0 {
            self.phase = Phase::Slow(Slow { calm, ..slow });
            return None;
        }
        self.rest_of(open.since);
        self.lost += self.cost_of(&open);
        let stays = lost || self.dials[dial].ladder.at() == back;
        let step = (!stays).then(|| self.record(dial, back, Why::MadeGood, saw));
        self.go_on(Phase::Base);
        step
    }

    /// A place of the pace was too fast, and the ones above it.
    fn bar_pace(&mut self, place: usize) {
        let TooFast { barred, times, .. } = &mut self.too_fast;
        *barred = Some((barred.map_or(place, |(lowest, _)| lowest.min(place)), None));
        *times = times.saturating_add(1);
    }

    /// What was too fast since then costs no more: how long it is not tried again.
    fn rest_of(&mut self, since: Span) {
        let doublings = self.too_fast.times.saturating_sub(1).min(MOST_DOUBLINGS);
        let cost = self.clock.saturating_sub(since).as_ps();
        let rest = Span::from_ps(cost.saturating_mul(REST << doublings));
        if let Some((_, until)) = &mut self.too_fast.barred {
            *until = Some(self.clock + rest);
        }
    }

    /// Whether a place of the pace was too fast not long ago.
    fn was_too_fast(&self, place: usize) -> bool {
        let lasts = |until: Option<Span>| until.is_none_or(|until| self.clock < until);
        self.too_fast.barred.is_some_and(|(lowest, until)| place >= lowest && lasts(until))
    }

    /// A queue pair died, so nothing will be judged any more. Gives the proposal for the next one
    /// that `saw`, with the counters and statuses that are known now, names a reason for; `None`
    /// where it names none, or an earlier proposal waits.
    pub fn died(&mut self, saw: &Observation) -> Option<Step> {
        if self.is_waiting() || !self.has_room() {
            return None;
        }
        let (dial, way, to, why) = self.untried(When::NextQp, saw)?;
        Some(self.turn(dial, way, to, why, *saw))
    }

    /// The program's queue pairs, or its plan, have what was proposed: all of
    /// [`value`](Tuner::value).
    pub fn renewed(&mut self) {
        match self.phase {
            Phase::Proposed(open) => self.go_on(Phase::Trial(open)),
            Phase::Returned => self.go_on(Phase::Base),
            Phase::Base | Phase::Trial(_) | Phase::Slow(_) | Phase::Settled => {}
        }
    }

    fn judge(&mut self, saw: Observation) -> Option<Step> {
        match self.phase {
            Phase::Base => self.next(saw),
            Phase::Trial(open) if self.is_kept(&open, &saw) => {
                // Where it came from was worse.
                self.dials[open.dial].bar(open.way.back(), open.from);
                if self.is_cut(&open) {
                    self.bar_pace(open.from);
                    self.rest_of(open.since);
                }
                match self.target(open.dial, open.way, &saw) {
                    Some((to, _)) if self.has_room() => {
                        Some(self.turn(open.dial, open.way, to, Why::Paid, saw))
                    }
                    _ => self.next(saw),
                }
            }
            Phase::Trial(open) if self.is_early(&open, &saw) => {
                self.waits += 1;
                None
            }
            Phase::Trial(open) => {
                let dial = &mut self.dials[open.dial];
                dial.bar(open.way, dial.ladder.at());
                if open.way == Way::Down {
                    dial.floor = dial.open.0;
                }
                let step = self.record(open.dial, open.from, Why::TakenBack, saw);
                self.lost += self.cost_of(&open);
                self.go_on(match step.when() {
                    When::Now => Phase::Base,
                    When::NextQp | When::NextPlan => Phase::Returned,
                });
                Some(step)
            }
            Phase::Proposed(_) | Phase::Returned | Phase::Settled => self.stand_by(saw),
            Phase::Slow(_) => None,
        }
    }

    /// At rest, or while a proposal waits: whether the load is another, or the counters ask for
    /// something that was not tried.
    fn stand_by(&mut self, saw: Observation) -> Option<Step> {
        let rest = *self.rest.get_or_insert(saw);
        self.odd = if self.is_other(&rest, &saw) { self.odd + 1 } else { 0 };
        if self.odd < 2 {
            return if self.is_settled() { self.next(saw) } else { None };
        }
        self.dials.iter_mut().for_each(|d| *d = Dial::new(&(d.knob, d.ladder)));
        match self.phase {
            Phase::Proposed(open) if self.steps.len() < self.config.max_steps.into() => {
                let step = self.record(open.dial, open.from, Why::Withdrawn, saw);
                self.go_on(Phase::Base);
                Some(step)
            }
            Phase::Settled => {
                self.go_on(Phase::Base);
                self.next(saw)
            }
            // What was taken back must first be with the queue pairs.
            _ => None,
        }
    }

    /// The first step that nothing bars, or rest.
    fn next(&mut self, saw: Observation) -> Option<Step> {
        let of = |when| self.untried(when, &saw);
        let later = || of(When::NextQp).or_else(|| of(When::NextPlan));
        let found = of(When::Now).or_else(later).filter(|_| self.has_room());
        if let Some((i, way, to, why)) = found {
            return Some(self.turn(i, way, to, why, saw));
        }
        if !self.is_settled() {
            self.go_on(Phase::Settled);
            self.rest = Some(saw);
        }
        None
    }

    /// The first direction of these knobs that is not barred and has a place to go to.
    fn untried(&self, when: When, saw: &Observation) -> Option<(usize, Way, usize, Why)> {
        let ways = (0..self.dials.len()).flat_map(|i| Way::BOTH.map(|way| (i, way)));
        let free = |(i, _): &(usize, Way)| self.dials[*i].knob.when() == when;
        let go = |(i, way)| self.target(i, way, saw).map(|(to, why)| (i, way, to, why));
        ways.filter(free).find_map(go)
    }

    /// The place to go to in one direction, and why, if there is a reason.
    fn target(&self, dial: usize, way: Way, saw: &Observation) -> Option<(usize, Why)> {
        let Dial { knob, ladder, open, floor } = &self.dials[dial];
        if (*knob, way) == (Knob::Pace, Way::Down) && congested(saw) {
            // A little less of what is too much is still too much.
            let half = |i: &usize| ladder.values()[*i] <= ladder.value() / 2;
            let lower = *floor..ladder.at();
            let to = lower.clone().rev().find(half).or(lower.min())?;
            return Some((to, Why::Congestion));
        }
        let near = self.dials[dial].near(way)?;
        let why = match (knob, way) {
            (Knob::RnrTimer, _) | (Knob::RecvDepth, Way::Up) if saw.rnr_naks > 0 => Why::RnrNaks,
            (Knob::Timeout, _) | (Knob::RetryCnt, Way::Up) if saw.timeouts > 0 => Why::Timeouts,
            (Knob::SendDepth, Way::Up) if nearly_full(saw) => Why::QueueFull,
            // All that a lower pace lets through is less than what comes.
            (Knob::Pace, Way::Down) if self.must_lose(saw, ladder.values()[near]) => return None,
            (Knob::Pace, Way::Up) if congested(saw) || self.was_too_fast(near) => return None,
            (Knob::Pace, Way::Up) if !self.has_room_to_raise() => return None,
            (Knob::Inline, Way::Up) if saw.mean_bytes() > ladder.value() => {
                // A limit that is still too small changes nothing.
                let fits = |i: &usize| ladder.values()[*i] >= saw.mean_bytes();
                return (near..=open.1).find(fits).map(|i| (i, Why::FitsInline));
            }
            _ if knob.when() != When::NextQp => Why::Trial,
            _ => return None,
        };
        Some((near, why))
    }

    /// Whether there is room for a step, and for taking it back.
    fn has_room(&self) -> bool {
        self.steps.len() + 2 <= self.config.max_steps.into()
    }

    /// Whether there is room for a raise of the pace, and for both steps of taking it back.
    fn has_room_to_raise(&self) -> bool {
        self.steps.len() + 3 <= self.config.max_steps.into()
    }

    fn turn(&mut self, dial: usize, way: Way, to: usize, why: Why, saw: Observation) -> Step {
        let (from, since, bytes) = (self.dials[dial].ladder.at(), self.clock, self.bytes);
        let open = Open { dial, way, from, before: saw, since, bytes };
        let step = self.record(dial, to, why, saw);
        self.go_on(match step.when() {
            When::Now => Phase::Trial(open),
            When::NextQp | When::NextPlan => Phase::Proposed(open),
        });
        step
    }

    fn record(&mut self, dial: usize, to: usize, why: Why, saw: Observation) -> Step {
        assert!(self.steps.len() < self.config.max_steps.into(), "a step has its place");
        let Dial { knob, ladder, .. } = &mut self.dials[dial];
        let from = ladder.value();
        ladder.go(to);
        let window = self.window - 1;
        let step = Step { window, knob: *knob, from, to: ladder.value(), why, saw };
        self.steps.push(step);
        step
    }

    fn go_on(&mut self, phase: Phase) {
        // At rest nothing changed, so every window counts.
        self.skip = if matches!(phase, Phase::Settled) { 0 } else { self.config.skip };
        self.phase = phase;
        (self.held, self.odd, self.waits, self.rest) = (0, 0, 0, None);
    }

    /// Whether a step is kept. One that congestion asked for is if it has stopped that, for what is
    /// lost now and then costs more than medians show; and no pace is raised into it.
    fn is_kept(&self, step: &Open, after: &Observation) -> bool {
        let knob = self.dials[step.dial].knob;
        match (knob, step.way) {
            (Knob::Pace, Way::Down) if congested(&step.before) && !congested(after) => true,
            (Knob::Pace, Way::Up) if congested(after) => false,
            _ => self.pays(&step.before, after),
        }
    }

    /// Whether it is too early to judge a step that congestion asked for: what was lost before it
    /// may take many windows of timers to be made good. Losses that last beyond that have another
    /// cause than the pace.
    fn is_early(&self, step: &Open, after: &Observation) -> bool {
        self.is_cut(step) && congested(after) && self.waits < PATIENCE
    }

    /// Whether it is a step down that congestion asked for.
    fn is_cut(&self, step: &Open) -> bool {
        let slower = self.dials[step.dial].knob == Knob::Pace && step.way == Way::Down;
        slower && congested(&step.before)
    }

    /// Whether `after` is better than `before` by what a step has to give.
    fn pays(&self, before: &Observation, after: &Observation) -> bool {
        let more = |a: u64, b: u64| exceeds(a, b, self.config.gain_percent);
        let keeps = |o: &Observation| self.config.budget.is_none_or(|most| o.p99 <= most);
        let behind = before.is_behind() && after.is_behind();
        let sooner = !behind && more(before.p99.as_ps(), after.p99.as_ps());
        let (was, is) = (before.bits_per_second(), after.bits_per_second());
        match (keeps(before), keeps(after)) {
            (true, false) => false,
            (false, true) => true,
            // What works off the backlog soonest is soonest within the budget.
            (false, false) => sooner || (behind && more(is, was)),
            (true, true) => more(is, was) || (sooner && !more(was, is)),
        }
    }

    /// Whether no step to this pace can pay: within the budget, all that it lets through is less
    /// than what is delivered now.
    fn must_lose(&self, saw: &Observation, pace: u64) -> bool {
        let keeps = self.config.budget.is_none_or(|most| saw.p99 <= most);
        keeps && exceeds(saw.bits_per_second(), pace, self.config.gain_percent)
    }

    /// Whether two observations are of different loads.
    fn is_other(&self, a: &Observation, b: &Observation) -> bool {
        let apart = |of: fn(&Observation) -> u64| {
            let (x, y) = (of(a), of(b));
            exceeds(x, y, self.config.load_change_percent)
                || exceeds(y, x, self.config.load_change_percent)
        };
        apart(Observation::messages_per_second)
            || apart(Observation::mean_bytes)
            || !(a.is_behind() && b.is_behind()) && apart(|o| o.p99.as_ps())
    }
}

/// Judgements for which a lower pace waits for the end of what was lost before it. Fewer: it is
/// taken back while timers run for that.
const PATIENCE: u8 = 8;

/// Whether `a` is more than `b` by more than so many percent.
const fn exceeds(a: u64, b: u64, percent: u8) -> bool {
    a as u128 * 100 > b as u128 * (100 + percent as u128)
}

/// Whether more was sent than the network takes.
const fn congested(saw: &Observation) -> bool {
    saw.cnps > 0 || saw.sequence_naks > 0 || saw.timeouts > 0
}

/// Whether at least seven of eight slots were in use.
const fn nearly_full(saw: &Observation) -> bool {
    saw.slots > 0 && saw.fill as u64 * 8 >= saw.slots as u64 * 7
}
