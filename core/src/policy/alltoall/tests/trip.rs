//! There and back: what is back is right, and who is gone is named, in whatever half of a round.

use proptest::prelude::*;

use super::*;

/// One member: what it has there is checked when it turns.
struct Traveller {
    trip: RoundTrip,
    rank: u32,
    ways: Arc<[Schedule; 2]>,
}

struct Travelling {
    config: AllToAllConfig,
    ways: Arc<[Schedule; 2]>,
}

type Member = player::Member<Travelling>;

/// It breaks no rule of its own.
#[derive(Copy, Clone, Debug)]
enum NoSlip {}

/// What a member has for the way back is told from what it had for the way there.
const BACK: u64 = 1 << 20;

fn filled(schedule: &Schedule, rank: u32, round: u64) -> Vec<u8> {
    (0..schedule.outbox_bytes(rank)).map(|at| byte(rank, round, at)).collect()
}

impl Traveller {
    fn turn<T: Control>(&mut self, t: &mut T) -> Result<(), AggregateError> {
        let (inbox, round) = (self.trip.there().inbox(), self.trip.there().rounds - 1);
        let mut got = vec![0; inbox.len as usize];
        t.copy_out(inbox, &mut got)?;
        for a in self.ways[0].arrivals(self.rank) {
            let right = |n: u64| got[(a.inbox + n) as usize] == byte(a.from, round, a.outbox + n);
            assert!((0..a.bytes).all(right), "rank {}, round {round}: {a:?}", self.rank);
        }
        let outbox = self.trip.back().outbox();
        t.copy_in(outbox, &filled(&self.ways[1], self.rank, round + BACK))?;
        self.trip.turn(t.now())?;
        assert_eq!(self.trip.turn(t.now()), Err(AggregateError::Busy), "it turns once");
        Ok(())
    }
}

impl Party for Travelling {
    type Policy = Traveller;
    type Stats = AllToAllStats;
    type Slip = NoSlip;

    fn open<T: Control>(&self, t: &mut T) -> Result<Traveller, AggregateError> {
        let trip = RoundTrip::open(t, self.config, &self.ways[0], &self.ways[1])?;
        Ok(Traveller { trip, rank: t.rank(), ways: self.ways.clone() })
    }

    fn connect<T: Control>(p: &mut Traveller, t: &mut T) -> Result<Progress, AggregateError> {
        p.trip.connect(t)
    }

    fn begin(p: &mut Traveller, now: Time) -> Result<(), AggregateError> {
        p.trip.begin(now)
    }

    fn step<T: Control>(p: &mut Traveller, t: &mut T) -> Result<Progress, AggregateError> {
        let progress = p.trip.step(t)?;
        if progress == Progress::Complete && !p.trip.has_turned() {
            p.turn(t)?;
            return Ok(Progress::Again);
        }
        Ok(progress)
    }

    fn stats(p: &Traveller) -> AllToAllStats {
        p.trip.back().stats()
    }

    fn mesh(p: &Traveller) -> &Mesh {
        &p.trip.there().mesh
    }

    fn second(p: &Traveller) -> Option<&Mesh> {
        Some(&p.trip.back().mesh)
    }

    fn memory(p: &Traveller) -> (Range, Range) {
        (p.trip.there().outbox(), p.trip.back().inbox())
    }

    fn slip(_: &mut Traveller, slip: NoSlip) {
        match slip {}
    }

    fn bytes(&self, rank: u32, round: u64) -> Vec<u8> {
        filled(&self.ways[0], rank, round)
    }

    fn deadlines(&self) -> (Span, Span) {
        let hops: u64 = self.ways.iter().map(|way| u64::from(way.hops()) + 1).sum();
        (self.config.hop_deadline * hops, self.config.connect_deadline)
    }
}

/// Tokens of a few members for others, and what is summed of each on its way back.
fn any_trip() -> impl Strategy<Value = [Exchange; 2]> {
    let places = proptest::collection::vec(0_u32..3, 2..8);
    let token = (0_u32..8, proptest::collection::vec(0_u32..8, 1..5), 1_u64..6);
    let tokens = proptest::collection::vec(token, 1..10);
    (places, any::<bool>(), tokens).prop_map(|(places, two, tokens)| {
        let (n, route) = (places.len() as u32, if two { Route::TwoHop } else { Route::Direct });
        let mut ways = [(); 2].map(|()| Exchange::new(&places, route).unwrap());
        for (home, to, words) in tokens {
            let to: Vec<u32> = to.iter().map(|m| m % n).collect();
            ways[0].token(home % n, &to, words * 8).unwrap();
            ways[1].sum(Reduce::SumI64, home % n, &to, words * 8).unwrap();
        }
        ways
    })
}

fn travellers(
    ways: &[Exchange; 2],
    (config, chunk): (AllToAllConfig, u32),
    (rounds, lazy): (u64, u64),
) -> Vec<Member> {
    let schedules = Arc::new([&ways[0], &ways[1]].map(|way| Schedule::new(way, chunk)));
    let party = |_| Travelling { config, ways: schedules.clone() };
    let mut all: Vec<_> = (0..ways[0].members()).map(|m| Member::new(party(m), rounds)).collect();
    make_lazy(&mut all, lazy);
    all
}

/// All sums that are back are right, and who ends does so in time.
fn check_back(all: &[Member]) {
    for (rank, m) in (0..).zip(all) {
        for (round, got) in (0..).zip(&m.got) {
            check_sums(m.party.ways[1].sums(rank), round + BACK, got);
        }
    }
    all_end_in_time(all);
}

#[test]
fn a_way_begins_when_the_other_one_is_done() {
    let mut there = Exchange::new(&[0, 1], Route::Direct).unwrap();
    let mut back = there.clone();
    there.token(0, &[1], 8).unwrap();
    back.sum(Reduce::SumI64, 0, &[1], 8).unwrap();
    let [there, back] = [there, back].map(|way| Schedule::new(&way, 8));
    let mut ideal = Ideal::new(2);
    let config = AllToAllConfig::default();
    let mut all =
        [0, 1].map(|rank| RoundTrip::open(&mut ideal.at(rank), config, &there, &back).unwrap());
    for _ in 0..2 {
        for (rank, trip) in all.iter_mut().enumerate() {
            trip.connect(&mut ideal.at(rank)).unwrap();
        }
    }
    let busy = Err(AggregateError::Busy);
    assert_eq!(all[0].turn(Time::ZERO), busy, "nothing has gone there");
    all.iter_mut().for_each(|trip| trip.begin(Time::ZERO).unwrap());
    assert_eq!((all[0].begin(Time::ZERO), all[0].turn(Time::ZERO)), (busy, busy));
    assert!(matches!(all[0].step(&mut ideal.at(0)), Ok(Progress::Wait { .. })));
    assert!(matches!(all[1].step(&mut ideal.at(1)), Ok(Progress::Wait { .. })), "unconfirmed");
    assert_eq!(all[1].step(&mut ideal.at(1)), Ok(Progress::Complete));
    assert_eq!(all[0].step(&mut ideal.at(0)), Ok(Progress::Complete));
    assert_eq!(all[0].begin(Time::ZERO), busy, "it is not back");
    assert!(!all[0].has_turned());
    all[0].turn(Time::ZERO).unwrap();
    assert!(all[0].has_turned());
    let [a, b] = all;
    a.close(&mut ideal.at(0)).unwrap();
    b.close(&mut ideal.at(1)).unwrap();
}

proptest! {
    #[test]
    fn all_comes_back(
        ways in any_trip(), config in any_config(), rounds in 1_u64..4, lazy: u64
    ) {
        let mut all = travellers(&ways, config, (rounds, lazy));
        run_all(&mut all);
        all_done(&all);
        check_back(&all);
    }

    /// Also of members of which one is on its way there and another one on its way back.
    #[test]
    fn all_survivors_name_who_is_gone(
        ways in any_trip(), config in any_config(), rounds in 1_u64..4, lazy: u64,
        who in 0_usize..8, at in 4_u32..80, vanishes: bool
    ) {
        let mut all = travellers(&ways, config, (rounds, lazy));
        let dead = who % all.len();
        all[dead].fault = Some(if vanishes { Fault::Vanishes(at) } else { Fault::Dies(at) });
        run_all(&mut all);
        check_back(&all);
        let connected = all.iter().all(|m| !m.began.is_empty());
        for error in ends(&all).into_iter().filter_map(Result::err).filter(|_| connected) {
            prop_assert_eq!(error.culprit(), Some(dead as u32), "{}", error);
        }
    }

    /// One or two members misbehave: every survivor ends in time, with everything or an error.
    #[test]
    fn everything_or_a_named_error(
        ways in any_trip(), config in any_config(), rounds in 1_u64..4, lazy: u64,
        faults in proptest::collection::vec((0_usize..8, any_fault()), 1..3)
    ) {
        let mut all = travellers(&ways, config, (rounds, lazy));
        let n = all.len();
        for (at, fault) in faults {
            all[at % n].fault = Some(fault);
        }
        run_all(&mut all);
        check_back(&all);
    }
}
