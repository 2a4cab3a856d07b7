//! Members of an aggregation: each fills its vector, joins the round, and checks the sum.
//!
//! Filling and checking are no part of the communication: they take no time and no copy is counted
//! ([`Transport::supply`](doorbell_core::transport::Transport::supply)). What an application takes
//! to compute its gradients is a [`Training`] step's, or so much [`late`](SummandConfig::late).
//!
//! What is measured is the time from the start of a round to the sum at this member: from the
//! moment that the clock of rounds gives it, or from its own start where rounds follow each other
//! without a clock.

use std::sync::Arc;

use doorbell_core::policy::aggregate::{Aggregate, AggregateConfig, AggregateError, Plan};
use doorbell_core::transport::{
    Control, Initiator, MemKind, Next, Program, Range, Reduce, WaitSet,
};
use doorbell_core::units::{Span, Time};

use super::common::{Failure, Results, Window, round_start};
use super::sparse::Kept;

/// Configuration of a [`Summand`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SummandConfig {
    /// The aggregation.
    pub aggregate: AggregateConfig,
    /// Who adds for whom; all members have the same.
    pub plan: Arc<Plan>,
    /// Rounds.
    pub rounds: u64,
    /// When the first round starts; all have to be connected by then. `None`: each member has a
    /// clock of its own, which begins when it is connected.
    pub epoch: Option<Time>,
    /// Time from one round's start to the next one's; `None`: each member goes on when it is done.
    pub interval: Option<Span>,
    /// How much later than the others it joins each round; none for rounds beyond the list.
    pub late: Vec<Span>,
    /// Whether it goes on without a member that an error names.
    pub goes_on: bool,
    /// Rounds are the buckets of training steps, each begun when its gradients are there.
    pub training: Option<Training>,
}

/// A training step: what is computed, and when which part of the gradients is there. The computing
/// is a GPU's and keeps no core of this program.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Training {
    /// From the start of a step to that of the backward pass.
    pub forward: Span,
    /// The backward pass; bucket k of n is there after (k + 1) / n of it.
    pub backward: Span,
    /// Rounds of a step, at least 1.
    pub buckets: u32,
}

impl Training {
    /// Since the start of a step, when a bucket's gradients are there.
    fn ready(&self, bucket: u64) -> Span {
        let part = u128::from(self.backward.as_ps()) * u128::from(bucket + 1);
        self.forward + Span::from_ps((part / u128::from(self.buckets)) as u64)
    }
}

/// Times of one member's training steps.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct StepTimes {
    /// Steps that are complete.
    pub steps: u64,
    /// From the end of the backward pass to the last sum, of all steps together: communication
    /// that no computing hides.
    pub exposed: Span,
    /// All steps together.
    pub total: Span,
}

/// What one member has of its sums.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Sums {
    /// Rounds that are complete.
    pub complete: u64,
    /// Complete rounds with an element that is not the sum of all.
    pub wrong: u64,
    /// Bytes of contributions that it has added, since it last went on without a member.
    pub added_bytes: u64,
    /// Complete rounds whose sum is that of some members only, as it says.
    pub of_survivors: u64,
    /// Members that it went on without.
    pub absent: u64,
    /// Sums that took the place of one that others had not: it was a round ahead of those with
    /// whom it went on.
    pub replaced: u64,
    /// What was sent, where vectors are sparse.
    pub kept: Option<Kept>,
    /// Training steps, where rounds are their buckets.
    pub training: Option<StepTimes>,
}

/// Where a member stands.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Stage {
    Start,
    Connecting,
    /// The vector is full; the round has not begun.
    Ready,
    /// The round began then, and the sum has come or not.
    Running {
        from: Time,
        has_sum: bool,
    },
    /// The round that began then was over at the second time, and what NICs and kernels wrote
    /// before is there to be looked at.
    Seen {
        from: Time,
        at: Time,
    },
    Done,
}

/// One member of an aggregation. See the module.
#[derive(Clone, Debug)]
pub struct Summand {
    config: SummandConfig,
    stage: Stage,
    state: Option<Aggregate>,
    /// One that has failed, until the next one is connected: its last words have to go out.
    failed: Option<Aggregate>,
    round: u64,
    /// When the clock of rounds began; known once it is connected.
    epoch: Time,
    /// When the training step began.
    step_from: Time,
    /// What it had before the last round that is complete.
    before: Before,
    /// Messages and rings of aggregations that it has left behind.
    behind: (u64, u64),
    results: Results,
}

/// What a member goes back to when others have not completed its last round.
#[derive(Copy, Clone, Debug)]
struct Before {
    sums: Sums,
    bytes: u64,
    step_from: Time,
}

impl Summand {
    /// A program that has not started.
    pub fn new(config: SummandConfig) -> Self {
        let results = Results { sums: Some(Sums::default()), ..Results::default() };
        let epoch = config.epoch.unwrap_or(Time::ZERO);
        let (stage, state, failed, round) = (Stage::Start, None, None, 0);
        let before = Before { sums: Sums::default(), bytes: 0, step_from: epoch };
        let (behind, step_from) = ((0, 0), epoch);
        Self { config, stage, state, failed, round, epoch, step_from, before, behind, results }
    }

    /// What was measured.
    pub fn results(&self) -> &Results {
        &self.results
    }

    fn run<T: Control>(&mut self, t: &mut T) -> Result<Next, AggregateError> {
        match self.stage {
            Stage::Start => {
                let c = &self.config;
                let state = Aggregate::open(t, c.aggregate, &c.plan)?;
                self.state = Some(state);
                if self.round < self.config.rounds {
                    self.fill(t)?;
                }
                self.stage = Stage::Connecting;
                Ok(Next::Again)
            }
            Stage::Connecting => {
                let state = self.state.as_mut().expect("opened");
                let next = state.connect(t)?.next();
                if next.is_none() {
                    self.stage = Stage::Ready;
                    if self.config.epoch.is_none() {
                        let now = t.now();
                        (self.config.epoch, self.epoch, self.step_from) = (Some(now), now, now);
                    }
                    if state.first_round() < self.config.aggregate.first_round {
                        self.go_back(t)?;
                    } else if self.round == self.config.rounds {
                        self.stage = Stage::Done;
                    }
                    if let Some(failed) = self.failed.take() {
                        // What cannot be destroyed is no hindrance to the new one.
                        let _others_use_it = failed.close(t);
                    }
                }
                Ok(next.unwrap_or(Next::Again))
            }
            Stage::Ready => {
                let (now, (from, at)) = (t.now(), self.start(t.now()));
                if now < at {
                    return Ok(Next::Wait { on: WaitSet::EMPTY, until: Some(at) });
                }
                self.state.as_mut().expect("opened").begin(now)?;
                self.results.first.get_or_insert(from);
                self.stage = Stage::Running { from, has_sum: false };
                self.go_on(t, from, false)
            }
            Stage::Running { from, has_sum } => self.go_on(t, from, has_sum),
            Stage::Seen { from, at } => {
                self.complete(t, from, at)?;
                Ok(Next::Again)
            }
            Stage::Done => Ok(Next::Done),
        }
    }

    /// From when the round counts, and when this member joins it.
    fn start(&self, now: Time) -> (Time, Time) {
        let c = &self.config;
        let late = c.late.get(self.round as usize).copied().unwrap_or(Span::ZERO);
        if let Some(training) = &c.training {
            let ready = self.step_from + training.ready(self.round % u64::from(training.buckets));
            return (ready, ready + late);
        }
        round_start(now, (self.epoch, c.interval), (self.round, late), self.results.last)
    }

    fn go_on<T: Control>(
        &mut self,
        t: &mut T,
        from: Time,
        mut has_sum: bool,
    ) -> Result<Next, AggregateError> {
        let state = self.state.as_mut().expect("opened");
        // What the last step has added is there when the next one begins.
        has_sum = note(&mut self.results, state, t.now(), from, has_sum);
        let Some(next) = state.step(t)?.next() else {
            let at = t.now();
            note(&mut self.results, state, at, from, has_sum);
            if by_kernels(t, &self.config.aggregate) {
                // A core does not see what is on its way to a GPU. A kernel does, and that it has
                // ended says that all is there.
                let nothing = Range { len: 0, ..state.vector() };
                t.reduce(self.config.aggregate.op, nothing, nothing)?;
                self.stage = Stage::Seen { from, at };
            } else {
                self.complete(t, from, at)?;
            }
            return Ok(Next::Again);
        };
        self.stage = Stage::Running { from, has_sum };
        Ok(next)
    }

    /// Goes on without the member that an error of a round names, if it may and can: the round is
    /// done again, by those that are left. Who is not found when they connect anew is no reason to
    /// leave it out too: others may see it.
    fn go_on_without<T: Control>(
        &mut self,
        t: &mut T,
        error: AggregateError,
    ) -> Result<Next, AggregateError> {
        let may = self.config.goes_on && matches!(self.stage, Stage::Running { .. } | Stage::Ready);
        let gone = error.culprit().filter(|rank| may && *rank != t.rank());
        if let (Some(_), Stage::Running { from, .. }) = (gone, self.stage)
            && self.state.as_ref().is_some_and(Aggregate::has_sum)
        {
            // The sum is here, and only that somebody has got it is not known.
            let now = t.now();
            self.count(t, from, now)?;
        }
        let c = &mut self.config;
        let left = gone.and_then(|rank| c.plan.without(&[rank - c.aggregate.first_rank]).ok());
        if self.round == c.rounds && (self.failed.is_some() || left.is_none()) {
            // It has all sums, and would have helped others with their last.
            self.stage = Stage::Done;
            return Ok(Next::Again);
        }
        let Some(plan) = left else { return Err(error) };
        let state = self.state.take().expect("a round was under way");
        self.behind.0 += state.stats().sent;
        self.behind.1 += state.rings();
        c.aggregate = c.aggregate.after(state.stats().rounds);
        c.plan = Arc::new(plan);
        self.failed = Some(state);
        self.results.sums.get_or_insert_default().absent += 1;
        self.stage = Stage::Start;
        Ok(Next::Again)
    }

    /// Others lack the last sum that this member has: it does that round again with them.
    fn go_back<T: Control>(&mut self, t: &mut T) -> Result<(), AggregateError> {
        let sums = self.results.sums.get_or_insert_default();
        let (wrong, absent, replaced) = (sums.wrong, sums.absent, sums.replaced + 1);
        *sums = Sums { wrong, absent, replaced, ..self.before.sums };
        (self.results.bytes, self.step_from) = (self.before.bytes, self.before.step_from);
        self.round -= 1;
        self.config.aggregate.first_round -= 1;
        self.fill(t)
    }

    /// The round is over here.
    fn complete<T: Control>(
        &mut self,
        t: &mut T,
        from: Time,
        at: Time,
    ) -> Result<(), AggregateError> {
        self.count(t, from, at)?;
        if self.stage == Stage::Ready { self.fill(t) } else { Ok(()) }
    }

    /// What it has sent so far.
    fn sent(&mut self) {
        let state = self.state.as_ref();
        let (sent, rings) = state.map_or((0, 0), |s| (s.stats().sent, s.rings()));
        self.results.messages = self.behind.0 + sent;
        self.results.rings = self.behind.1 + rings;
    }

    /// Bytes of the sum that this member has of a round: all, or of the lanes whose root it is.
    fn bytes_of_sum<T: Control>(&self, t: &T) -> u64 {
        let (c, plan) = (&self.config.aggregate, &self.config.plan);
        if c.broadcast {
            return c.bytes;
        }
        let me = t.rank() - c.first_rank;
        let cut = self.state.as_ref().expect("opened").cut();
        let its = (0..plan.lanes()).filter(|lane| plan.root(*lane) == me);
        its.map(|lane| cut.bytes_of_lane(lane)).sum()
    }

    /// Checks the sum of the round, and counts it.
    fn count<T: Control>(
        &mut self,
        t: &mut T,
        from: Time,
        now: Time,
    ) -> Result<(), AggregateError> {
        let wrong = self.is_wrong(t)?;
        let bytes = self.bytes_of_sum(t);
        self.sent();
        let (stats, r) = (self.state.as_ref().expect("opened").stats(), &mut self.results);
        let sums = r.sums.get_or_insert_default();
        self.before = Before { sums: *sums, bytes: r.bytes, step_from: self.step_from };
        sums.complete += 1;
        sums.of_survivors += u64::from(sums.absent > 0);
        sums.wrong += u64::from(wrong);
        sums.added_bytes = stats.added_bytes;
        r.bytes += bytes;
        r.last = Some(now);
        let from = r.first.unwrap_or(from);
        r.window = Some(Window { from, to: now, messages: r.messages, bytes: r.bytes });
        self.round += 1;
        self.end_step(now);
        let last = self.round == self.config.rounds;
        self.stage = if last { Stage::Done } else { Stage::Ready };
        Ok(())
    }

    /// With the last bucket's sum the next training step begins.
    fn end_step(&mut self, now: Time) {
        let Some(training) = self.config.training else { return };
        if !self.round.is_multiple_of(training.buckets.into()) {
            return;
        }
        let computed = self.step_from + training.forward + training.backward;
        let sums = self.results.sums.get_or_insert_default();
        let times = sums.training.get_or_insert_default();
        times.steps += 1;
        times.exposed += now.since(computed);
        times.total += now.since(self.step_from);
        self.step_from = now;
    }

    /// This member's contribution to the round, which takes no time.
    fn fill<T: Control>(&mut self, t: &mut T) -> Result<(), AggregateError> {
        let c = self.config.aggregate;
        let me = t.rank() - c.first_rank;
        let bytes = contribution((c.bytes, c.op), me, self.round);
        let all = self.state.as_ref().expect("opened").vector();
        Ok(t.supply(Range { len: c.bytes, ..all }, &bytes)?)
    }

    /// Whether an element that this member should have is not the sum of all.
    fn is_wrong<T: Control>(&self, t: &mut T) -> Result<bool, AggregateError> {
        let (c, plan) = (self.config.aggregate, &self.config.plan);
        let state = self.state.as_ref().expect("opened");
        let there = || (0..plan.members()).filter(|m| !plan.absent().contains(m));
        let (members, me) = (there().count() as u64, t.rank() - c.first_rank);
        let shares: u64 = there().map(share).sum();
        let right = vector((c.bytes, c.op), |i| {
            members * part(i, self.round) + shares * slope(i, self.round)
        });
        let mut got = vec![0; right.len()];
        t.inspect(Range { len: c.bytes, ..state.vector() }, &mut got)?;
        let cut = state.cut();
        let its = |chunk: &u32| c.broadcast || plan.root(chunk % cut.lanes()) == me;
        Ok((0..cut.count()).filter(its).any(|chunk| {
            let at = (cut.offset(chunk) as usize).min(got.len());
            let at = at..(at + cut.len(chunk) as usize).min(got.len());
            got[at.clone()] != right[at]
        }))
    }
}

/// Whether a core polls, and the vectors are in a GPU's memory.
fn by_kernels<T: Control>(t: &T, c: &AggregateConfig) -> bool {
    matches!((t.initiator(), c.memory), (Initiator::Cpu { .. }, MemKind::Gpu { .. }))
}

/// Takes the time when the sum is here for the first time; whether it is.
fn note(r: &mut Results, state: &Aggregate, now: Time, from: Time, known: bool) -> bool {
    if !known && state.has_sum() {
        r.sample(now.since(from), now);
    }
    known || state.has_sum()
}

/// Elements are whole numbers below 2^24 even when 8,192 members are summed, so that every type
/// holds every sum exactly, whatever the order: `part + share * slope`, whose sum over members is
/// known.
const fn part(i: u64, round: u64) -> u64 {
    (i.wrapping_mul(7) + round.wrapping_mul(3)) % 101
}

const fn slope(i: u64, round: u64) -> u64 {
    (i + round) % 13
}

const fn share(member: u32) -> u64 {
    (member % 64) as u64
}

/// What a member contributes to a round: so many bytes of elements of a type.
pub(super) fn contribution(of: (u64, Reduce), member: u32, round: u64) -> Vec<u8> {
    vector(of, |i| part(i, round) + share(member) * slope(i, round))
}

/// The vector of so many bytes whose element `i` is `value(i)`.
fn vector((bytes, op): (u64, Reduce), value: impl Fn(u64) -> u64) -> Vec<u8> {
    let elements = 0..bytes / op.element_bytes();
    match op {
        Reduce::SumI64 => elements.flat_map(|i| value(i).to_le_bytes()).collect(),
        Reduce::SumF32 => elements.flat_map(|i| (value(i) as f32).to_le_bytes()).collect(),
        Reduce::SumF64 => elements.flat_map(|i| (value(i) as f64).to_le_bytes()).collect(),
    }
}

impl Program for Summand {
    fn step<T: Control>(&mut self, t: &mut T) -> Next {
        let next = self.run(t).or_else(|e| self.go_on_without(t, e));
        next.unwrap_or_else(|e| {
            self.sent();
            self.results.last = Some(t.now());
            self.results.failure = Some(Failure::Aggregate(e));
            Next::Done
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use doorbell_core::ideal::{Ideal, Step, run};

    fn summands(plan: Plan, aggregate: AggregateConfig, rounds: u64) -> Vec<Summand> {
        let plan = Arc::new(plan);
        let config = SummandConfig {
            aggregate,
            plan: plan.clone(),
            rounds,
            epoch: Some(Time::ZERO + Span::from_us(10)),
            interval: Some(Span::from_us(100)),
            late: vec![Span::from_us(5)],
            goes_on: false,
            training: None,
        };
        (0..plan.members()).map(|_| Summand::new(config.clone())).collect()
    }

    fn run_all(all: &mut [Summand]) {
        let mut ideal = Ideal::new(all.len());
        let mut steps: Vec<&mut dyn Step> = all.iter_mut().map(|p| p as &mut dyn Step).collect();
        run(&mut ideal, &mut steps).unwrap();
    }

    fn config(op: Reduce) -> AggregateConfig {
        AggregateConfig { bytes: 4000, chunk: 512, op, ..AggregateConfig::default() }
    }

    #[test]
    fn sums_of_every_type_are_right_and_rounds_keep_the_clock() {
        for op in [Reduce::SumI64, Reduce::SumF32, Reduce::SumF64] {
            let mut all = summands(Plan::ring(3).unwrap(), config(op), 3);
            run_all(&mut all);
            for r in all.iter().map(Summand::results) {
                assert_eq!(r.failure, None);
                let sums = r.sums.unwrap();
                assert_eq!((sums.complete, sums.wrong), (3, 0));
                let us = |t: Option<Time>| t.unwrap().since(Time::ZERO);
                assert_eq!((us(r.first), us(r.last)), (Span::from_us(10), Span::from_us(210)));
                // The first round waits for the late, whose time counts.
                assert_eq!(r.latencies, [Span::from_us(5), Span::ZERO, Span::ZERO]);
            }
        }
    }

    #[test]
    fn a_step_without_communication_time_exposes_only_who_is_late() {
        let mut all = summands(Plan::ring(3).unwrap(), config(Reduce::SumI64), 8);
        let (forward, backward) = (Span::from_us(10), Span::from_us(40));
        for p in &mut all {
            p.config.training = Some(Training { forward, backward, buckets: 4 });
            // The last bucket of the second step.
            p.config.late = vec![Span::ZERO; 8];
            p.config.late[7] = Span::from_us(3);
        }
        run_all(&mut all);
        for r in all.iter().map(Summand::results) {
            let sums = r.sums.unwrap();
            assert_eq!((r.failure, sums.complete, sums.wrong), (None, 8, 0));
            let times = sums.training.unwrap();
            assert_eq!((times.steps, times.exposed), (2, Span::from_us(3)));
            assert_eq!(times.total, (forward + backward) * 2 + Span::from_us(3));
        }
        let t = Training { forward, backward: Span::from_ps(10), buckets: 3 };
        let ready = [0, 1, 2].map(|k| (t.ready(k) - forward).as_ps());
        assert_eq!(ready, [3, 6, 10], "the last bucket is there at the end");
    }

    #[test]
    fn a_wrong_element_is_counted_where_the_sum_belongs() {
        for broadcast in [true, false] {
            let aggregate = AggregateConfig { broadcast, ..config(Reduce::SumI64) };
            let mut all = summands(Plan::direct(3, 1).unwrap(), aggregate, 1);
            // Rank 2 believes that it is another round.
            all[2].round = 1;
            all[2].config.rounds = 2;
            all[2].config.interval = None;
            run_all(&mut all);
            let wrong: Vec<u64> = all.iter().map(|p| p.results().sums.unwrap().wrong).collect();
            assert_eq!(wrong, if broadcast { [1, 1, 1] } else { [1, 0, 0] });
        }
    }

    #[test]
    fn what_is_delivered_is_each_sum_once() {
        for (broadcast, rounds) in [(true, 2), (false, 2)] {
            let aggregate = AggregateConfig { broadcast, ..config(Reduce::SumI64) };
            let mut all = summands(Plan::direct(3, 3).unwrap(), aggregate, rounds);
            run_all(&mut all);
            let bytes: u64 = all.iter().map(|p| p.results().bytes).sum();
            // Three roots have a share each, or three hosts the whole.
            assert_eq!(bytes, 4000 * rounds * if broadcast { 3 } else { 1 });
            for r in all.iter().map(Summand::results) {
                assert!(r.rings > 0 && r.rings <= r.messages, "{} of {}", r.rings, r.messages);
            }
        }
    }

    #[test]
    fn who_ends_with_an_error_says_what_it_has_sent() {
        let mut all = summands(Plan::ring(3).unwrap(), config(Reduce::SumI64), 2);
        // Rank 2 takes part in the first round only.
        all[2].config.rounds = 1;
        run_all(&mut all);
        for r in all[..2].iter().map(Summand::results) {
            assert!(r.failure.is_some() && r.messages > 0 && r.rings > 0);
            assert_eq!(r.bytes, 4000, "the sum of the first round");
        }
    }

    #[test]
    fn largest_sums_are_exact_in_every_type() {
        let shares: u64 = (0..8192).map(share).sum();
        assert!(8192 * 100 + shares * 12 < 1 << 24);
    }
}
