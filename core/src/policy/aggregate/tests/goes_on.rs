//! Survivors that go on without a member.

use super::*;

/// A member that goes on without whom its errors name, until it is done or nobody is named.
struct Survivor {
    config: AggregateConfig,
    plan: Plan,
    vectors: Vec<Vec<u8>>,
    dies_at: Option<u32>,
    /// Whether its host dies with it.
    vanishes: bool,
    steps: u32,
    began: bool,
    state: Option<Aggregate>,
    failed: Option<Aggregate>,
    running: bool,
    /// Sums, and whom each lacks.
    sums: Vec<(Vec<u8>, Vec<u32>)>,
    end: Option<AggregateError>,
}

impl Survivor {
    fn run<T: Control>(&mut self, t: &mut T) -> Result<Option<Next>, AggregateError> {
        let state = match &mut self.state {
            Some(state) => state,
            None => self.state.insert(Aggregate::open(t, self.config, &self.plan)?),
        };
        if let Some(next) = state.connect(t)?.next() {
            return Ok(Some(next));
        }
        if let Some(failed) = self.failed.take() {
            failed.close(t).expect("nobody shares its queues");
        }
        if !self.running {
            // Who is ahead of others goes back to them.
            self.sums.truncate((state.first_round() + state.stats().rounds) as usize);
            self.config.first_round = state.first_round();
            let Some(vector) = self.vectors.get(self.sums.len()) else { return Ok(None) };
            t.copy_in(state.vector(), vector)?;
            state.begin(t.now())?;
            (self.running, self.began) = (true, true);
        }
        if let Some(next) = state.step(t)?.next() {
            return Ok(Some(next));
        }
        self.take(t);
        Ok(Some(Next::Again))
    }

    /// The sum is here.
    fn take<T: Control>(&mut self, t: &mut T) {
        let state = self.state.as_ref().expect("it had been opened");
        let mut sum = vec![0; state.vector().len as usize];
        t.copy_out(state.vector(), &mut sum).expect("its own vector");
        self.sums.push((sum, state.absent().to_vec()));
        self.running = false;
    }

    /// Goes on without a member, if the error names one.
    fn go_on<T: Control>(&mut self, t: &mut T, e: AggregateError) -> Option<AggregateError> {
        if self.running && self.state.as_ref().is_some_and(Aggregate::has_sum) {
            self.take(t);
        }
        let left = e.culprit().filter(|c| *c != t.rank()).map(|c| self.plan.without(&[c]));
        let Some(Ok(plan)) = left else { return Some(e) };
        let state = self.state.take().expect("it had been opened");
        // What has failed in its turn stays open.
        self.config = self.config.after(state.stats().rounds);
        self.failed = Some(state);
        (self.plan, self.running) = (plan, false);
        None
    }
}

impl Program for Survivor {
    fn step<T: Control>(&mut self, t: &mut T) -> Next {
        self.steps += 1;
        if self.dies_at.is_some_and(|at| self.steps > at) {
            let state = self.state.iter().filter(|_| self.vanishes);
            state.for_each(|s| silence(t, &s.mesh));
            let until = Time::ZERO + NEVER;
            let sleep = Next::Wait { on: WaitSet::EMPTY, until: Some(until) };
            return if t.now() >= until { Next::Done } else { sleep };
        }
        match self.run(t) {
            Ok(Some(next)) => next,
            Ok(None) => Next::Done,
            // It has all sums, and the others do not need it.
            Err(_) if !self.running && self.sums.len() == self.vectors.len() => Next::Done,
            Err(e) => match self.go_on(t, e) {
                None => Next::Again,
                end => {
                    self.end = end;
                    Next::Done
                }
            },
        }
    }
}

fn survivors(plan: &Plan, config: AggregateConfig, rounds: u64) -> Vec<Survivor> {
    let elements = config.bytes / config.op.element_bytes();
    let vectors = |m: u32| {
        let of_round = |r| noise(config.op, elements, u64::from(m) << 32 | r);
        (0..rounds).map(of_round).collect()
    };
    let one = |m| Survivor {
        config,
        plan: plan.clone(),
        vectors: vectors(m),
        dies_at: None,
        vanishes: false,
        steps: 0,
        began: false,
        state: None,
        failed: None,
        running: false,
        sums: vec![],
        end: None,
    };
    (0..plan.members()).map(one).collect()
}

/// Every sum is that of all members but those that it says it lacks.
fn check(all: &[Survivor]) {
    for (rank, m) in all.iter().enumerate() {
        for (round, (sum, absent)) in m.sums.iter().enumerate() {
            let mut right = vec![0; sum.len()];
            let there = (0..).zip(all).filter(|(r, _)| !absent.contains(r));
            there.for_each(|(_, m)| m.config.op.apply(&mut right, &m.vectors[round]));
            assert!(*sum == right, "rank {rank}, round {round}, without {absent:?}");
        }
    }
}

#[test]
fn survivors_have_their_own_sum_and_say_so() {
    let plan = Plan::two_hop(&Group::by_place(&[0, 0, 0, 1, 1, 1], 8, 1), 1).unwrap();
    // A member, an aggregator, the root.
    for dead in [5_usize, 3, 0] {
        let config = AggregateConfig { window: 1, ..config(4 * 64, 64) };
        let mut all = survivors(&plan, config, 3);
        all[dead].dies_at = Some(6);
        run_all(&mut all);
        check(&all);
        for (rank, m) in all.iter().enumerate().filter(|(rank, _)| *rank != dead) {
            assert_eq!((m.end, m.sums.len()), (None, 3), "rank {rank} of {dead}");
            let lacks: Vec<u32> = m.sums.iter().flat_map(|(_, absent)| absent.clone()).collect();
            assert!(lacks.iter().all(|l| *l == dead as u32) && !lacks.is_empty(), "{lacks:?}");
        }
    }
}

#[test]
fn members_one_round_apart_go_back_to_the_lower_one() {
    let plan = Plan::two_hop(&Group::by_place(&[0, 0, 1, 1, 0], 8, 1), 2).unwrap();
    let plan = plan.without(&[1]).unwrap();
    let base = config(64, 64);
    let mut ideal = Ideal::new(5);
    let ranks = [0, 2, 3, 4];
    for (lowest, first) in [(7, [8, 8, 7, 8]), (7, [7, 8, 8, 8]), (8, [8, 8, 8, 8])] {
        let mut all: Vec<_> = ranks
            .iter()
            .zip(first)
            .map(|(rank, first_round)| {
                let key = base.key + (lowest << 40) + (first[0] << 45);
                let config = AggregateConfig { first_round, key, ..base };
                (*rank, Aggregate::open(&mut ideal.at(*rank), config, &plan).unwrap())
            })
            .collect();
        for _ in 0..6 {
            for (rank, a) in &mut all {
                assert!(a.connect(&mut ideal.at(*rank)).is_ok());
            }
        }
        for (rank, a) in &mut all {
            assert_eq!(a.connect(&mut ideal.at(*rank)), Ok(Progress::Complete));
            assert_eq!(a.first_round(), lowest, "rank {rank}");
        }
    }
}

#[test]
fn members_at_different_rounds_do_not_mix_them() {
    // Two apart: not of the same aggregation.
    let plan = Plan::direct(3, 1).unwrap().without(&[1]).unwrap();
    let base = config(64, 64);
    let mut ideal = Ideal::new(3);
    let mut open = |rank: usize, config| {
        Aggregate::open(&mut ideal.at(rank), config, &plan).map(|a| (a, rank))
    };
    let (mut a, _) = open(0, base.after(1)).unwrap();
    let (mut b, _) = open(2, AggregateConfig { first_round: 3, ..base.after(1) }).unwrap();
    assert_eq!(open(1, base).unwrap_err(), AggregateError::Config(ConfigError::Absent { rank: 1 }));
    assert_eq!(a.absent(), [1]);
    assert!(a.connect(&mut ideal.at(0)).unwrap().next().is_some());
    assert!(b.connect(&mut ideal.at(2)).unwrap().next().is_some());
    assert_eq!(a.connect(&mut ideal.at(0)), Ok(Progress::Complete));
    assert_eq!(b.connect(&mut ideal.at(2)), Err(AggregateError::Mismatch { rank: 0 }));
    assert_eq!(b.connect(&mut ideal.at(2)), Err(AggregateError::Mismatch { rank: 0 }));
    // Nobody has gone: their settings are to be the same.
    let plan = Plan::direct(3, 1).unwrap();
    assert_ne!(base.after(1).fingerprint(&plan), base.after(2).fingerprint(&plan));
}

proptest::proptest! {
    /// A host dies, whenever: all survivors leave it out and have all their sums, unless one of
    /// them had its last sum and has ended before anybody missed the dead.
    #[test]
    fn all_survivors_go_on_without_a_host_that_dies(
        plan in any_plan(6), config in any_config(), rounds in 1_u64..5,
        who in 0_usize..6, at in 3_u32..80
    ) {
        let config = AggregateConfig {
            op: Reduce::SumI64, bytes: config.bytes / 8 * 8 + 8, broadcast: true, pool: None,
            // Above all deadlines of chunks, at which everybody would blame a neighbour.
            round_deadline: Span::from_ms(10_000), ..config
        };
        let mut all = survivors(&plan, config, rounds);
        let dead = who % all.len();
        (all[dead].dies_at, all[dead].vanishes) = (Some(at), true);
        run_all(&mut all);
        check(&all);
        let left = || all.iter().enumerate().filter(|(rank, _)| *rank != dead).map(|(_, m)| m);
        let ended = |m: &Survivor| m.end.is_none() && m.plan.absent().is_empty();
        if all.len() > 2 && left().all(|m| m.began) && !left().any(ended) {
            for m in left() {
                proptest::prop_assert_eq!((m.end, m.sums.len() as u64), (None, rounds));
                proptest::prop_assert_eq!(m.plan.absent(), &[dead as u32][..]);
            }
        }
    }

    /// Whoever dies, whenever: sums that are there say whom they lack and are right, and who does
    /// not get all of them has an error.
    #[test]
    fn never_partial_without_a_word(
        plan in any_plan(6), config in any_config(), rounds in 1_u64..4,
        who in 0_usize..6, at in 0_u32..40
    ) {
        let config = AggregateConfig {
            op: Reduce::SumI64, bytes: config.bytes / 8 * 8 + 8, broadcast: true, ..config
        };
        let mut all = survivors(&plan, config, rounds);
        let dead = who % all.len();
        all[dead].dies_at = Some(at);
        run_all(&mut all);
        check(&all);
        for (rank, m) in all.iter().enumerate().filter(|(rank, _)| *rank != dead) {
            proptest::prop_assert_eq!(m.end.is_none(), m.sums.len() as u64 == rounds, "{}", rank);
        }
    }
}
