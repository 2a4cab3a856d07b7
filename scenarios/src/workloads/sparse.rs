//! Members of a sum of sparse vectors: each fills its vector, joins the round, and checks what it
//! got against the same sum made one member after the other.
//!
//! What is measured is the time from the start of a round, by the clock of rounds or the member's
//! own start, until it has all that was sent, and has added it.

use std::sync::Arc;

use doorbell_core::policy::aggregate::AggregateError;
use doorbell_core::policy::aggregate::sparse::{
    SparseConfig, SparseError, SparseStats, SparseSum, TopK, add_to,
};
use doorbell_core::policy::alltoall::Schedule;
use doorbell_core::transport::{Control, Next, Program, WaitSet};
use doorbell_core::units::{Span, Time};

use super::aggregate::{Sums, contribution};
use super::common::{Failure, Results, Window, round_start};

/// Configuration of a [`SparseSummand`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SparseSummandConfig {
    /// The sum.
    pub sparse: SparseConfig,
    /// What goes where; all members have the same.
    pub schedule: Arc<Schedule>,
    /// The sums that all members are to have, of as many rounds as it runs: those of
    /// [`sums_by_the_book`].
    pub right: Arc<Vec<Vec<u8>>>,
    /// When the first round starts; all have to be connected by then. `None`: each member has a
    /// clock of its own, which begins when it is connected.
    pub epoch: Option<Time>,
    /// Time from one round's start to the next one's; `None`: each member goes on when it is done.
    pub interval: Option<Span>,
    /// How much later than the others it joins each round; none for rounds beyond the list.
    pub late: Vec<Span>,
}

/// What was sent of the vectors of one member.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Kept {
    /// Messages and the elements in them.
    pub sent: SparseStats,
    /// Elements of all vectors, those that stayed included.
    pub elements: u64,
    /// Bytes of one message.
    pub message_bytes: u64,
}

/// The sums of so many rounds of so many members, made one after the other.
///
/// # Errors
/// More entries than elements, or no elements.
pub fn sums_by_the_book(
    c: &SparseConfig,
    members: u32,
    rounds: u64,
) -> Result<Vec<Vec<u8>>, SparseError> {
    let bytes = c.elements * c.op.element_bytes();
    let mut tops = Vec::new();
    for _ in 0..members {
        tops.push(TopK::new(c.op, c.elements, c.entries)?);
    }
    let mut wire = vec![0; c.message_bytes()?];
    let mut sums = Vec::new();
    for round in 0..rounds {
        let mut sum = vec![0; bytes as usize];
        for (member, top) in (0..).zip(&mut tops) {
            let (_, used) = top.send(&contribution((bytes, c.op), member, round), &mut wire)?;
            add_to(c.op, &mut sum, &wire[..used])?;
        }
        sums.push(sum);
    }
    Ok(sums)
}

/// Where a member stands.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Stage {
    Start,
    Connecting,
    Ready,
    /// The round began then.
    Running(Time),
    Done,
}

/// One member of a sum of sparse vectors. See the module.
#[derive(Clone, Debug)]
pub struct SparseSummand {
    config: SparseSummandConfig,
    stage: Stage,
    state: Option<SparseSum>,
    round: usize,
    vector: Vec<u8>,
    results: Results,
}

impl SparseSummand {
    /// A program that has not started.
    pub fn new(config: SparseSummandConfig) -> Self {
        let results = Results { sums: Some(Sums::default()), ..Results::default() };
        Self { config, stage: Stage::Start, state: None, round: 0, vector: vec![], results }
    }

    /// What was measured.
    pub fn results(&self) -> &Results {
        &self.results
    }

    fn run<T: Control>(&mut self, t: &mut T) -> Result<Next, AggregateError> {
        match self.stage {
            Stage::Start => {
                let c = &self.config;
                self.state = Some(SparseSum::open(t, c.sparse, &c.schedule)?);
                self.fill(t);
                self.stage = Stage::Connecting;
                Ok(Next::Again)
            }
            Stage::Connecting => {
                let next = self.state.as_mut().expect("opened").connect(t)?.next();
                if next.is_none() {
                    self.config.epoch.get_or_insert(t.now());
                    self.stage = Stage::Ready;
                }
                Ok(next.unwrap_or(Next::Again))
            }
            Stage::Ready => {
                let (now, (from, at)) = (t.now(), self.start(t.now()));
                if now < at {
                    return Ok(Next::Wait { on: WaitSet::EMPTY, until: Some(at) });
                }
                self.state.as_mut().expect("opened").begin(t, &self.vector)?;
                self.results.first.get_or_insert(from);
                self.stage = Stage::Running(from);
                self.go_on(t, from)
            }
            Stage::Running(from) => self.go_on(t, from),
            Stage::Done => Ok(Next::Done),
        }
    }

    /// From when the round counts, and when this member joins it.
    fn start(&self, now: Time) -> (Time, Time) {
        let c = &self.config;
        let late = c.late.get(self.round).copied().unwrap_or(Span::ZERO);
        let epoch = c.epoch.expect("it is connected");
        round_start(now, (epoch, c.interval), (self.round as u64, late), self.results.last)
    }

    fn go_on<T: Control>(&mut self, t: &mut T, from: Time) -> Result<Next, AggregateError> {
        let state = self.state.as_mut().expect("opened");
        if let Some(next) = state.step(t)?.next() {
            return Ok(next);
        }
        let (now, c) = (t.now(), &self.config);
        let (r, sent, traffic) = (&mut self.results, state.stats(), state.traffic());
        r.sample(now.since(from), now);
        let sums = r.sums.get_or_insert_default();
        sums.complete += 1;
        sums.wrong += u64::from(state.sum() != c.right[self.round]);
        let message_bytes = c.sparse.message_bytes().map_or(0, |bytes| bytes as u64);
        sums.added_bytes = sent.added_bytes;
        sums.kept = Some(Kept { sent, elements: c.sparse.elements * sums.complete, message_bytes });
        (r.messages, r.bytes, r.last) = (traffic.sent, traffic.sent_bytes, Some(now));
        let from = r.first.unwrap_or(from);
        r.window = Some(Window { from, to: now, messages: r.messages, bytes: r.bytes });
        self.round += 1;
        self.stage = Stage::Ready;
        if self.round == self.config.right.len() {
            self.stage = Stage::Done;
        } else {
            self.fill(t);
        }
        Ok(Next::Again)
    }

    /// This member's contribution to the round.
    fn fill<T: Control>(&mut self, t: &T) {
        let (c, me) = (&self.config.sparse, t.rank() - self.config.sparse.exchange.first_rank);
        let bytes = c.elements * c.op.element_bytes();
        self.vector = contribution((bytes, c.op), me, self.round as u64);
    }
}

impl Program for SparseSummand {
    fn step<T: Control>(&mut self, t: &mut T) -> Next {
        self.run(t).unwrap_or_else(|e| {
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
    use doorbell_core::policy::alltoall::{AllToAllConfig, Route};
    use doorbell_core::transport::Reduce;

    fn summands(op: Reduce, entries: u32, route: Route) -> Vec<SparseSummand> {
        let exchange = AllToAllConfig::default();
        let sparse = SparseConfig { exchange, op, elements: 100, entries };
        let config = SparseSummandConfig {
            sparse,
            schedule: Arc::new(sparse.schedule(&[0, 0, 1, 1], route, 64).unwrap()),
            right: Arc::new(sums_by_the_book(&sparse, 4, 3).unwrap()),
            epoch: Some(Time::ZERO + Span::from_us(10)),
            interval: Some(Span::from_us(100)),
            late: vec![Span::from_us(5)],
        };
        (0..4).map(|_| SparseSummand::new(config.clone())).collect()
    }

    fn run_all(all: &mut [SparseSummand]) {
        let mut ideal = Ideal::new(all.len());
        let mut steps: Vec<&mut dyn Step> = all.iter_mut().map(|p| p as &mut dyn Step).collect();
        run(&mut ideal, &mut steps).unwrap();
    }

    #[test]
    fn sums_of_every_type_are_right_and_the_form_is_the_shorter_one() {
        for op in [Reduce::SumI64, Reduce::SumF32, Reduce::SumF64] {
            for (entries, route) in [(10, Route::Direct), (10, Route::TwoHop), (100, Route::Direct)]
            {
                let mut all = summands(op, entries, route);
                run_all(&mut all);
                let others = all.len() as u64 - 1;
                for r in all.iter().map(SparseSummand::results) {
                    assert_eq!(r.failure, None);
                    let sums = r.sums.unwrap();
                    assert_eq!((sums.complete, sums.wrong), (3, 0));
                    let kept = sums.kept.unwrap();
                    let sparse = if entries < 100 { 3 } else { 0 };
                    assert_eq!((kept.sent.sparse, kept.sent.dense), (sparse, 3 - sparse));
                    assert_eq!((kept.sent.entries, kept.elements), (3 * u64::from(entries), 300));
                    // Everybody else's elements, three times.
                    let added = (others * kept.sent.entries, others * 3);
                    let bytes = added.0 * op.element_bytes();
                    assert_eq!((kept.sent.added_bytes, kept.sent.added), (bytes, added.1));
                    assert_eq!(sums.added_bytes, bytes);
                    // The first round waits for the late, whose time counts.
                    assert_eq!(r.latencies, [Span::from_us(5), Span::ZERO, Span::ZERO]);
                }
            }
        }
    }

    #[test]
    fn a_member_with_another_vector_makes_all_sums_wrong() {
        let mut all = summands(Reduce::SumI64, 10, Route::Direct);
        // It takes the second round for the first one.
        all[3].round = 1;
        all[3].config.interval = None;
        run_all(&mut all);
        let wrong: Vec<u64> = all[..3].iter().map(|p| p.results().sums.unwrap().wrong).collect();
        assert_eq!(wrong, [2, 2, 2]);
    }

    /// Late in each round, and without a clock: a member joins so much later than it was done.
    #[test]
    fn late_members_without_an_interval_go_on() {
        let mut all = summands(Reduce::SumI64, 10, Route::Direct);
        for p in &mut all {
            (p.config.interval, p.config.late) = (None, vec![Span::from_us(5); 3]);
        }
        run_all(&mut all);
        for r in all.iter().map(SparseSummand::results) {
            assert_eq!((r.sums.unwrap().complete, r.sums.unwrap().wrong), (3, 0));
        }
    }
}
