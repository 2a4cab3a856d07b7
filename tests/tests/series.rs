//! Numbers over time change nothing in what they watch.

use std::path::PathBuf;

use doorbell::format::expand::expand;
use doorbell::format::load::{Overrides, load};
use doorbell::input::Source;
use doorbell::library::SCENARIOS;
use doorbell::profile::Profiles;
use doorbell::run::{Point, Runner, Simulator};

/// Of the library, so many scenarios apart.
const STEP: usize = 4;

fn first_point(name: &str, text: &str, set: &[&str]) -> Point {
    let set = set.iter().map(|s| (*s).to_owned()).collect();
    let source = Source::new(format!("{name}.toml"), text);
    let loaded = load(source, PathBuf::new(), &Overrides { set, seed: None });
    let loaded = loaded.unwrap_or_else(|e| panic!("{name}: {e}"));
    let mut profiles = Profiles::beside(&loaded.directory);
    let points = expand(&loaded, &mut profiles).unwrap_or_else(|e| panic!("{name}: {e}"));
    points.into_iter().next().expect("a scenario has a point").point
}

#[test]
fn scenarios_with_series_are_those_without_in_all_else() {
    for (name, text) in SCENARIOS.iter().step_by(STEP) {
        let run = |point: &Point| {
            let outcome = Simulator.run(point);
            outcome.unwrap_or_else(|e| panic!("{name}: {e}"))
        };
        let mut bare = first_point(name, text, &[]);
        // Some files ask for series themselves.
        bare.scenario.record.series = None;
        let without = run(&bare);
        let set = ["record.series=3us", "record.series_points=64"];
        let mut with = run(&first_point(name, text, &set));
        let series = with.series.take().expect("it was asked for");
        assert!(series.times.len() <= 64, "{name}: {} points", series.times.len());
        assert_eq!(with.trace_hash, without.trace_hash, "{name}");
        assert_eq!(with.events, without.events, "{name}");
        assert!(with == without, "{name}: more than the series differs");
    }
}
