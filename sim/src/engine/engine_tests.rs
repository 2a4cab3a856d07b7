//! Whole-engine properties: the order is a function of the model, and looking changes nothing.

use proptest::prelude::*;

use super::*;
use doorbell_core::units::Span;

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Event {
    to: u32,
    hops: u32,
}

/// A small model with contention, randomness and ties: nodes pass tokens to each other.
struct Model {
    engine: Engine<Event>,
    nodes: Vec<ComponentId>,
    rngs: Vec<SimRng>,
    servers: Vec<Busy>,
    timeline: Timeline,
    observer: Option<ComponentId>,
    observed: u64,
}

impl Model {
    fn new(seed: u64, timeline: Timeline, observe: bool) -> Self {
        let mut engine = Engine::new(seed);
        let names: Vec<String> = (0..6).map(|i| format!("node{i}")).collect();
        let nodes: Vec<_> = names.iter().map(|n| engine.add_component(n)).collect();
        let rngs = names.iter().map(|n| SimRng::stream(seed, n, "hop")).collect();
        for (to, &node) in nodes.iter().enumerate() {
            let event = Event { to: to as u32, hops: 300 };
            engine.schedule(node, Time::ZERO, Class::Program, event);
        }
        let observer = observe.then(|| engine.add_component("observer"));
        if let Some(o) = observer {
            let event = Event { to: u32::MAX, hops: 0 };
            engine.schedule_periodic(o, Time::ZERO, Class::Observer, event);
        }
        let servers = vec![Busy::new(); nodes.len()];
        Self { engine, nodes, rngs, servers, timeline, observer, observed: 0 }
    }

    /// One event; false at the end.
    fn step(&mut self) -> bool {
        let Some((now, _, event)) = self.engine.pop().expect("no livelock") else { return false };
        if event.to == u32::MAX {
            self.observed += 1;
            if !self.engine.only_periodic_left() {
                let observer = self.observer.expect("it was scheduled");
                let next = now + Span::from_ps(70);
                self.engine.schedule_periodic(observer, next, Class::Observer, event);
            }
            return true;
        }
        let at = event.to as usize;
        self.engine.trace(self.nodes[at], 1, u64::from(event.hops), self.servers[at].jobs());
        if event.hops == 0 {
            return true;
        }
        // Multiples of 10 ps: many equal instants.
        let service = Span::from_ps(10 * self.rngs[at].below(4));
        let (start, end) = self.servers[at].reserve(now, service);
        self.timeline.stage(u64::from(event.hops), "serve", start, end, 0);
        let to = self.rngs[at].below(self.nodes.len() as u64) as u32;
        let next = Event { to, hops: event.hops - 1 };
        let class = if to.is_multiple_of(2) { Class::Arrival } else { Class::Stage };
        self.engine.schedule(self.nodes[at], end + Span::from_ps(10), class, next);
        true
    }

    fn finish(mut self) -> (TraceHash, u64) {
        while self.step() {}
        (self.engine.trace_hash(), self.observed)
    }
}

fn plain(seed: u64) -> Model {
    Model::new(seed, Timeline::disabled(), false)
}

#[test]
fn same_seed_same_hash_other_seed_other_hash() {
    assert_eq!(plain(1).finish(), plain(1).finish());
    assert_ne!(plain(1).finish(), plain(2).finish());
}

#[test]
fn interleaved_engines_do_as_they_do_alone() {
    let alone = [plain(1).finish().0, plain(2).finish().0];
    let (mut a, mut b) = (plain(1), plain(2));
    let mut turn = SimRng::stream(9, "test", "turn");
    loop {
        let (first, second) = if turn.below(2) == 0 { (&mut a, &mut b) } else { (&mut b, &mut a) };
        if !first.step() && !second.step() {
            break;
        }
    }
    assert_eq!([a.engine.trace_hash(), b.engine.trace_hash()], alone);
}

#[test]
fn observers_change_nothing() {
    let (hash, _) = plain(1).finish();
    assert_eq!(Model::new(1, Timeline::with_capacity(100), false).finish(), (hash, 0));
    let (observed_hash, instants) = Model::new(1, Timeline::with_capacity(9), true).finish();
    assert_eq!(observed_hash, hash);
    assert!(instants > 50, "the observer was there: {instants}");
}

#[test]
fn a_clone_goes_on_alike() {
    let mut a = plain(5).engine;
    a.pop().unwrap();
    let mut b = a.clone();
    while let Some(x) = a.pop().unwrap() {
        assert_eq!(b.pop().unwrap(), Some(x));
    }
    assert_eq!(b.pop(), Ok(None));
}

fn engine_with(n: u32) -> Engine<u32> {
    let mut engine = Engine::new(11);
    for i in 0..n {
        assert_eq!(engine.add_component(&format!("c{i}")), ComponentId(i));
    }
    engine
}

fn drain(engine: &mut Engine<u32>) -> Vec<(Time, Class, u32)> {
    std::iter::from_fn(|| engine.pop().unwrap()).collect()
}

#[test]
fn pops_by_time_then_class_and_keeps_the_books() {
    let mut e = engine_with(1);
    let c = ComponentId(0);
    let t = Time::from_ps;
    assert_eq!((e.peek_time(), e.pop(), e.events()), (None, Ok(None), 0));
    for (i, class) in Class::ALL.into_iter().rev().enumerate() {
        e.schedule(c, t(20), class, i as u32);
    }
    e.schedule(c, t(10), Class::Observer, 99);
    assert_eq!((e.pending(), e.peek_time(), e.now()), (8, Some(t(10)), Time::ZERO));
    assert_eq!(e.pop(), Ok(Some((t(10), Class::Observer, 99))));
    assert_eq!(e.now(), t(10));
    let order: Vec<_> = drain(&mut e).iter().map(|x| x.1).collect();
    assert_eq!(order, Class::ALL);
    assert_eq!((e.events(), e.pending(), e.now()), (8, 0, t(20)));
    assert_eq!((e.component_name(c), e.components(), e.seed()), ("c0", 1, 11));
}

#[test]
fn an_origin_keeps_its_own_order_at_one_instant() {
    let mut e = engine_with(2);
    let mut out = Out::new();
    for i in 0..100 {
        out.at(Time::from_ps(5), Class::Stage, i);
    }
    e.schedule_all(ComponentId(1), &mut out, |i| i + 1);
    assert!(out.is_empty());
    assert!(drain(&mut e).iter().map(|x| x.2).eq(1..=100));
}

#[test]
fn two_origins_share_being_first() {
    let mut e = engine_with(2);
    let mut firsts = [0u32; 2];
    for round in 0..2_000u64 {
        let t = Time::from_ps(round * 80_000);
        for c in [0, 1] {
            e.schedule(ComponentId(c), t, Class::Arrival, c);
        }
        firsts[e.pop().unwrap().unwrap().2 as usize] += 1;
        e.pop().unwrap();
    }
    assert!(firsts.iter().all(|f| (800..=1_200).contains(f)), "{firsts:?}");
}

#[test]
fn the_seed_decides_ties() {
    let order = |seed| {
        let mut e = Engine::new(seed);
        for i in 0..8 {
            let c = e.add_component("c");
            e.schedule(c, Time::ZERO, Class::Arrival, i);
        }
        drain(&mut e)
    };
    assert_eq!(order(1), order(1));
    assert_ne!(order(1), order(2));
}

/// Frozen, as every stored run depends on it: who goes first of eight equals.
#[test]
fn golden_order_of_ties() {
    let mut e = Engine::new(42);
    for i in 0..8u32 {
        let c = e.add_component("c");
        e.schedule(c, Time::from_ps(80_000), Class::Arrival, i);
    }
    assert!(drain(&mut e).iter().map(|x| x.2).eq([1, 3, 2, 5, 4, 6, 0, 7]));
}

#[test]
fn never_is_not_scheduled() {
    let mut e = engine_with(1);
    e.schedule(ComponentId(0), Time::MAX, Class::Timer, 1);
    e.schedule_periodic(ComponentId(0), Time::MAX, Class::Timer, 1);
    assert_eq!(e.pending(), 0);
    assert!(e.only_periodic_left());
    let last = Time::from_ps(u64::MAX - 1);
    e.schedule(ComponentId(0), last, Class::Timer, 2);
    assert_eq!(e.pop(), Ok(Some((last, Class::Timer, 2))));
}

#[test]
#[should_panic(expected = "c1 schedules an event at 9 ps, but it is already 10 ps")]
fn the_past_is_refused_by_name() {
    let mut e = engine_with(2);
    e.schedule(ComponentId(0), Time::from_ps(10), Class::Stage, 0);
    e.pop().unwrap();
    e.schedule(ComponentId(1), Time::from_ps(10), Class::Stage, 0);
    e.schedule(ComponentId(1), Time::from_ps(9), Class::Stage, 0);
}

#[test]
fn only_periodic_events_left() {
    let mut e = engine_with(2);
    let (c, o) = (ComponentId(0), ComponentId(1));
    assert!(e.only_periodic_left());
    e.schedule_periodic(o, Time::from_ps(5), Class::Observer, 0);
    assert!(e.only_periodic_left());
    e.schedule(c, Time::from_ps(7), Class::Timer, 1);
    assert!(!e.only_periodic_left());
    e.pop().unwrap();
    e.schedule_periodic(o, Time::from_ps(10), Class::Observer, 0);
    assert!(!e.only_periodic_left());
    assert_eq!(e.pop().unwrap().unwrap().2, 1);
    assert!(e.only_periodic_left());
    assert_eq!(e.pending(), 1);
}

/// A chain of `count` events at `at`; the n-th is scheduled when the one before is popped.
fn chain(e: &mut Engine<u32>, at: Time, count: u64) -> Result<(), EngineError> {
    e.schedule(ComponentId(1), at, Class::Stage, 0);
    for n in 1..=count {
        e.pop()?.expect("scheduled above");
        if n < count {
            e.schedule(ComponentId(1), at, Class::Stage, 0);
        }
    }
    Ok(())
}

#[test]
fn livelock_is_one_event_beyond_the_bound() {
    for at in [Time::ZERO, Time::from_ps(77)] {
        let mut e = engine_with(2);
        assert_eq!(chain(&mut e, at, LIVELOCK_EVENTS), Ok(()));
        // The bound is per instant.
        assert_eq!(chain(&mut e, at + Span::from_ps(1), LIVELOCK_EVENTS), Ok(()));
        assert_eq!(e.pop(), Ok(None));

        let mut e = engine_with(2);
        let livelock = EngineError::Livelock { at, component: "c1".into() };
        assert_eq!(chain(&mut e, at, LIVELOCK_EVENTS + 1), Err(livelock.clone()));
        assert_eq!(e.pending(), 1);
        assert_eq!(e.pop(), Err(livelock.clone()), "it repeats");
        assert!(livelock.to_string().contains("c1"));
    }
}

#[test]
fn trace_takes_the_present_time_and_names_the_component_that_differs() {
    let hash = |at, kind| {
        let mut e = engine_with(2);
        e.schedule(ComponentId(0), Time::from_ps(at), Class::Stage, 0);
        e.pop().unwrap();
        e.trace(ComponentId(1), kind, 1, 2);
        assert_eq!([0, 1].map(|c| e.trace_records(ComponentId(c))), [0, 1]);
        (e.trace_hash(), [0, 1].map(|c| e.component_trace_hash(ComponentId(c))))
    };
    let (a, b, c) = (hash(1, 1), hash(2, 1), hash(1, 2));
    assert_eq!(a, hash(1, 1));
    assert!(a.0 != b.0 && a.0 != c.0 && b.0 != c.0);
    assert_eq!(a.1[0], b.1[0]);
    assert_ne!(a.1[1], b.1[1]);
}

/// (time, class, origin), few values each so that most keys meet.
type Plan = Vec<(u64, usize, u32)>;

fn plan() -> impl Strategy<Value = Plan> {
    prop::collection::vec((0u64..4, 0usize..7, 0u32..5), 0..200)
}

fn scheduled(plan: &[(usize, (u64, usize, u32))]) -> Engine<u32> {
    let mut e = engine_with(5);
    for &(id, (time, class, origin)) in plan {
        let at = Time::from_ps(time * 1_000);
        e.schedule(ComponentId(origin), at, Class::ALL[class], id as u32);
    }
    e
}

proptest! {
    /// Origins may be inserted in any order among each other, as long as each keeps its own.
    #[test]
    fn order_of_insertion_of_origins_does_not_matter(plan in plan(), shuffle: u64) {
        let plan: Vec<_> = plan.into_iter().enumerate().collect();
        let mut queues: Vec<Vec<_>> = (0..5)
            .map(|o| plan.iter().rev().filter(|p| p.1.2 == o).copied().collect())
            .collect();
        let mut rng = SimRng::stream(shuffle, "test", "merge");
        let mut merged = Vec::new();
        while queues.iter().any(|q| !q.is_empty()) {
            merged.extend(queues[rng.below(5) as usize].pop());
        }
        prop_assert_eq!(drain(&mut scheduled(&plan)), drain(&mut scheduled(&merged)));
    }

    /// What lets a run be split at islands: leaving some origins out does not change the order
    /// of the others.
    #[test]
    fn order_of_some_does_not_depend_on_the_others(plan in plan(), split in 0u32..5) {
        let plan: Vec<_> = plan.into_iter().enumerate().collect();
        let some: Vec<_> = plan.iter().filter(|p| p.1.2 < split).copied().collect();
        let mut all = drain(&mut scheduled(&plan));
        all.retain(|x| plan[x.2 as usize].1.2 < split);
        prop_assert_eq!(all, drain(&mut scheduled(&some)));
    }
}

#[test]
fn an_event_is_taken_at_the_limit_and_not_before() {
    let at = Time::from_ps;
    let mut engine = Engine::new(1);
    let c = engine.add_component("c");
    for ps in [10, 20, 1 << 40] {
        engine.schedule(c, at(ps), Class::Stage, ps);
    }
    for ps in [10, 20, 1 << 40] {
        let before = engine.now();
        assert_eq!(engine.pop_by(at(ps - 1)), Ok(Popped::Later));
        assert_eq!((engine.now(), engine.at_hand().all(|e| *e >= ps)), (before, true));
        assert_eq!(engine.pop_by(at(ps)), Ok(Popped::Next((at(ps), Class::Stage, ps))));
    }
    assert_eq!(engine.pop_by(Time::MAX), Ok(Popped::Nothing));
}
