//! Same file, same seed: same result. In one process, across processes, with other worlds in
//! between, cut into pieces. (Debug against release is a step of `.ci/run`.)

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use doorbell::format::expand::expand;
use doorbell::format::load::{Overrides, load};
use doorbell::input::Source;
use doorbell::library::SCENARIOS;
use doorbell::profile::Profiles;
use doorbell::run::{Outcome, Point, Runner, Simulator};
use doorbell_core::units::{Span, Time};
use doorbell_sim::engine::TraceHash;
use doorbell_sim::fabric::{FabricConfig, Link, Noise, SwitchConfig};
use doorbell_sim::wire::HostId;
use doorbell_sim::world::{RunEnd, World, WorldConfig};
use doorbell_tests::command::run;
use doorbell_tests::machine;
use doorbell_tests::plan::{Plan, plans};
use doorbell_tests::player::Player;
use doorbell_tests::tuning::{Tuning, tunings};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;

const COMMAND: &str = env!("CARGO_BIN_EXE_command");

fn points(name: &str, text: &str, seed: Option<u64>) -> Vec<Point> {
    let overrides = Overrides { set: vec![], seed };
    let source = Source::new(format!("{name}.toml"), text);
    let loaded = load(source, PathBuf::new(), &overrides).unwrap_or_else(|e| panic!("{e}"));
    let mut profiles = Profiles::beside(&loaded.directory);
    let points = expand(&loaded, &mut profiles).unwrap_or_else(|e| panic!("{e}"));
    points.into_iter().map(|e| e.point).collect()
}

fn outcomes(points: &[Point]) -> Vec<Outcome> {
    points.iter().map(|p| Simulator.run(p).unwrap_or_else(|e| panic!("{e}"))).collect()
}

#[test]
fn every_scenario_twice_in_one_process_and_once_in_another() {
    for (name, text) in SCENARIOS {
        let points = points(name, text, None);
        let (first, second) = (outcomes(&points), outcomes(&points));
        for ((point, a), b) in points.iter().zip(&first).zip(&second) {
            assert!(a == b, "{name}, {}: {} and {}", point.label(), a.trace_hash, b.trace_hash);
        }
        let other = run(COMMAND, &["run", name, "--json"]);
        assert!(other.status < 2 || other.status == 3, "{name}: {other:?}");
        for (point, outcome) in points.iter().zip(&first) {
            let hash = format!("\"{}\"", outcome.trace_hash);
            assert!(other.stdout.contains(&hash), "{name}, {}: {hash}", point.label());
        }
    }
}

/// What a process has around it is in no result.
#[test]
fn surroundings_change_no_byte() {
    let text = SCENARIOS.iter().find(|(name, _)| *name == "hello").expect("it is built in").1;
    assert!(text.contains("timeline"));
    let plain = run(COMMAND, &["run", "hello", "--json"]);
    let mut other = Command::new(COMMAND);
    other.args(["run", "hello", "--json"]).env_clear().current_dir(std::env::temp_dir());
    other.env("TZ", "Pacific/Apia").env("LANG", "tr_TR.UTF-8").env("RUST_BACKTRACE", "1");
    let other = other.output().expect("it starts");
    assert_eq!(String::from_utf8(other.stdout).unwrap(), plain.stdout);
    assert!(!plain.stdout.is_empty());
}

fn some_plans(n: usize) -> Vec<(Arc<Plan>, Tuning)> {
    let mut runner = TestRunner::deterministic();
    let both = (plans(), tunings());
    let one = |_| both.new_tree(&mut runner).expect("no filters").current();
    (0..n).map(one).map(|(plan, tuning)| (Arc::new(plan), tuning)).collect()
}

fn world(plan: &Arc<Plan>, tuning: &Tuning) -> World {
    build(plan, tuning, &tuning.world(plan.seed))
}

fn build(plan: &Arc<Plan>, tuning: &Tuning, config: &WorldConfig) -> World {
    let mut world = World::new(config).unwrap();
    for rank in 0..2 {
        let program = Player::new(plan.clone(), rank);
        world.add_program(HostId(rank as u32), tuning.initiator(), Time::ZERO, program);
    }
    world
}

/// Hash, end and events of a run in one piece.
fn whole(plan: &Arc<Plan>, tuning: &Tuning) -> (TraceHash, Time, u64) {
    let mut world = world(plan, tuning);
    assert_eq!(world.run(Time::MAX), RunEnd::Done);
    (world.trace_hash(), world.now(), world.events())
}

#[test]
fn two_worlds_interleaved_are_as_each_alone() {
    let all = some_plans(24);
    for pair in all.chunks(2) {
        let [(p, s), (q, t)] = pair else { unreachable!("an even number") };
        let alone = [whole(p, s), whole(q, t)];
        let mut worlds = [world(p, s), world(q, t)];
        let mut ends = [RunEnd::TimeLimit, RunEnd::TimeLimit];
        let mut limits = [Time::ZERO; 2];
        // Pieces of different length, so that neither is always ahead.
        let pieces = [Span::from_ns(370), Span::from_ns(911)];
        while ends.contains(&RunEnd::TimeLimit) {
            for i in 0..2 {
                limits[i] += pieces[i];
                if ends[i] == RunEnd::TimeLimit {
                    ends[i] = worlds[i].run(limits[i]);
                }
            }
        }
        assert_eq!(ends, [RunEnd::Done, RunEnd::Done]);
        let got = worlds.map(|w| (w.trace_hash(), w.now(), w.events()));
        assert_eq!(got, alone);
    }
}

#[test]
fn a_run_cut_anywhere_is_the_same_run() {
    for (plan, tuning) in some_plans(6) {
        let whole = whole(&plan, &tuning);
        for piece in [Span::from_ps(999), Span::from_us(3), Span::from_ms(1)] {
            let mut w = world(&plan, &tuning);
            let mut limit = Time::ZERO;
            // The finest cut only over the beginning, or it takes a quarter of a million calls.
            for _ in 0..20_000 {
                limit += piece;
                if w.run(limit) == RunEnd::Done {
                    break;
                }
            }
            assert_eq!(w.run(Time::MAX), RunEnd::Done);
            assert_eq!((w.trace_hash(), w.now(), w.events()), whole);
        }
    }
}

#[test]
fn other_seeds_differ_with_noise_and_take_the_same_time_without() {
    let (plan, tuning) = busy();
    for noise in [true, false] {
        // A cache that is never full evicts nothing at random.
        let tuning = Tuning { noise, wqe_cache: 4096, ..tuning.clone() };
        let runs = (0..8).map(|seed| {
            let plan = Arc::new(Plan { seed, ..(*plan).clone() });
            whole(&plan, &tuning)
        });
        let (hashes, times): (Vec<_>, Vec<_>) = runs.map(|r| (r.0, r.1)).unzip();
        let different = |mut t: Vec<Time>| {
            t.sort_unstable();
            t.dedup();
            t.len()
        };
        if noise {
            assert!(different(times) >= 7, "noise moves the end of a run");
            assert!(hashes.iter().skip(1).all(|h| *h != hashes[0]));
        } else {
            assert_eq!(different(times), 1, "nothing is drawn");
        }
    }
}

/// A plan with some work in it, on a machine with a network that has noise.
fn busy() -> (Arc<Plan>, Tuning) {
    let busy = |(plan, _): &(Arc<Plan>, Tuning)| plan.sides.iter().all(|s| s.rung().len() > 20);
    some_plans(200).into_iter().find(busy).expect("one in four is")
}

/// A third host that does nothing shifts nobody's draws.
#[test]
fn another_host_changes_nothing_for_the_others() {
    let (plan, tuning) = busy();
    let tuning = Tuning { noise: true, ..tuning };
    let ends = [2, 3].map(|hosts| {
        let mut config = tuning.world(plan.seed);
        let port = machine::profile("generic-400g").port;
        let link = Link::new(port.rate, port.propagation);
        config.fabric = FabricConfig::single_switch(hosts, link, SwitchConfig::default());
        config.fabric.noise = Noise::OnePacket;
        config.hosts.resize(hosts as usize, config.hosts[0].clone());
        let mut world = build(&plan, &tuning, &config);
        assert_eq!(world.run(Time::MAX), RunEnd::Done);
        let record = |rank| world.program::<Player>(rank).unwrap().record.clone();
        (world.now(), record(0), record(1))
    });
    assert!(ends[0] == ends[1], "{:?} and {:?}", ends[0].0, ends[1].0);
}
