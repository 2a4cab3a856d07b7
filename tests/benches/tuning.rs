//! `doorbell tune` against a full grid: the scenarios of the library that say what to tune, by a
//! `[tune]` table, and what a search finds in a tenth of the grid's runs.
//!
//! `cargo bench -p doorbell-tests --bench tuning`, or with names of scenarios behind `--` only
//! those; lines that begin with `|` are rows of the table in `docs/tuning.md`. For each scenario
//! every combination is run, then a search as the command makes it, with a tenth of the runs (the
//! file as it stands included). Since the grid has every place that a search may ask for, it is
//! made again from the grid alone with a hundred seeds, so that no lucky one decides: the table has
//! how many of them came within 5 % of the best of all, and how far off the worst was. All of it is
//! simulated and repeats; no time of this machine is in it. It ends with status 1 unless six
//! scenarios, or all that were named where these are fewer, are within 5 % at each of the first ten
//! seeds.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use doorbell::format::load::{Loaded, Overrides, find, load};
use doorbell::library::SCENARIOS;
use doorbell::profile::Profiles;
use doorbell::run::Simulator;
use doorbell::tune::{Asked, Measure, Place, Rank, Tried, Tuned, Tuning, search, tune};

/// Seeds of the search.
const SEEDS: u64 = 100;
/// Runs of the search are the grid's by this.
const PART: usize = 10;
/// Scenarios that have to be within [`NEAR`] at each of the first [`EVERY`] seeds.
const WANTED: usize = 6;
/// Seeds of which each counts.
const EVERY: usize = 10;
/// Parts of the best that the search may miss.
const NEAR: f64 = 0.05;
/// Combinations below which a tenth is too few for a search to mean anything.
const LEAST: usize = 100;
/// Runs at a time; no figure depends on it.
const JOBS: usize = 2;

fn loaded(name: &str) -> Loaded {
    let (source, _) = find(name).expect("a scenario of the library");
    load(source, PathBuf::new(), &Overrides::default()).unwrap_or_else(|e| panic!("{e}"))
}

fn tuned(name: &str, asked: &Asked, seed: u64) -> Tuned {
    let tuning = asked.tuning(loaded(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
    let tuning = Tuning { jobs: JOBS, seed, ..tuning };
    let mut profiles = Profiles::beside(&PathBuf::new());
    tune(&Simulator, tuning, &mut profiles).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// A search on what a grid has, with so many runs left.
struct Table {
    ranks: BTreeMap<Place, Rank>,
    seen: BTreeMap<Place, Rank>,
    left: usize,
}

impl Measure for Table {
    fn ranks(&mut self, places: &[Place]) -> Vec<Option<Rank>> {
        let one = |place: &Place| {
            if let Some(rank) = self.seen.get(place) {
                return Some(*rank);
            }
            self.left = self.left.checked_sub(1)?;
            let rank = self.ranks[place];
            self.seen.insert(place.clone(), rank);
            Some(rank)
        };
        places.iter().map(one).collect()
    }

    fn left(&self) -> usize {
        self.left
    }

    fn moved(&mut self, _from: &Place, _to: &Place) {}
}

fn number(tried: &Tried) -> f64 {
    tried.metrics.first().map_or(f64::NAN, |(_, m)| m.number())
}

fn text(tried: &Tried) -> String {
    let value = tried.metrics.first().map_or(String::new(), |(_, m)| m.text());
    format!("{value:>12}  {}", tried.values.join(" "))
}

/// What a search from `start` finds on a grid with so many runs: the best that it has seen, the
/// file as it stands among it.
fn again<'a>(grid: &'a Tuned, start: &Place, runs: usize, seed: u64) -> &'a Tried {
    let places = || grid.tried.iter().filter(|t| !t.place.is_empty());
    let ranks: BTreeMap<Place, Rank> = places().map(|t| (t.place.clone(), t.rank)).collect();
    let most = |k: usize| 1 + ranks.keys().map(|p| p[k]).max().unwrap_or(0);
    let lens: Vec<usize> = (0..start.len()).map(most).collect();
    let file = &grid.tried[0];
    let known = Some((file.place.clone(), file.rank)).filter(|(place, _)| !place.is_empty());
    let mut table = Table { ranks, seen: known.into_iter().collect(), left: runs - 1 };
    let found = search(&mut table, &lens, start.clone(), seed);
    let found = places().find(|t| t.place == found).expect("a place of the grid");
    if found.rank.beats(file.rank) { found } else { file }
}

/// The row of the table in `docs/tuning.md`. What the file itself gives counts only if it keeps the
/// conditions.
fn row(name: &str, grid: &Tuned, runs: usize, (near, worst): (usize, f64)) -> String {
    let keys = grid.keys.iter().map(|k| k.rsplit('.').next().unwrap_or(k));
    let keys = keys.collect::<Vec<_>>().join(", ");
    let value = |t: &Tried| t.metrics.first().map_or(String::new(), |(_, m)| m.text());
    let file = &grid.tried[0];
    let broken = if file.rank.is_good() { "" } else { " against the conditions" };
    let (file, best, combinations) = (value(file), value(grid.best()), grid.grid);
    let off = if near as u64 == SEEDS { String::new() } else { format!(", {worst:.1} % off") };
    format!("| `{name}` | {keys} | {combinations}, {runs} | {file}{broken}, {best} | {near}{off} |")
}

/// Prints the rows of a scenario; whether the search is near the best at each of the first seeds.
fn table(name: &str) -> bool {
    let grid = tuned(name, &Asked { grid: true, ..Asked::default() }, 1);
    let (best, runs) = (grid.best(), grid.grid / PART);
    println!("{name}: {}", grid.goal);
    println!("  as it stands   {}", text(&grid.tried[0]));
    println!("  grid {:4} runs {}", grid.grid, text(best));
    let asked = Asked { runs: Some(runs), ..Asked::default() };
    let some = tuned(name, &asked, 1);
    println!("  seed 1 {:2} runs {}", some.tried.len(), text(some.best()));
    // Where the file's values are none of the knobs' its own run comes before the start.
    let start = if some.tried[0].place.is_empty() { &some.tried[1] } else { &some.tried[0] };
    let off = |seed| {
        let found = again(&grid, &start.place, runs, seed);
        if seed == 1 {
            assert_eq!(found.values, some.best().values, "{name}: the grid's run is another");
        }
        let off = (number(found) - number(best)).abs() / number(best);
        if found.rank.is_good() { off } else { f64::INFINITY }
    };
    let offs: Vec<f64> = (1..=SEEDS).map(off).collect();
    let near = offs.iter().filter(|off| **off <= NEAR).count();
    let worst = 100.0 * offs.iter().copied().fold(0.0, f64::max);
    println!("  {near} of {SEEDS} seeds within {} %, the worst {worst:.1} % off", 100.0 * NEAR);
    println!("{}", row(name, &grid, runs, (near, worst)));
    let is_found = grid.grid >= LEAST && best.rank.beats(grid.tried[0].rank);
    let every = offs[..EVERY].iter().all(|off| *off <= NEAR);
    every && is_found && some.tried.len() * PART <= grid.grid
}

fn main() -> ExitCode {
    // cargo itself says `--bench`.
    let named: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let all = SCENARIOS.iter().map(|(name, _)| *name);
    let all: Vec<&str> = all.filter(|name| loaded(name).tune.is_some()).collect();
    if let Some(unknown) = named.iter().find(|n| !all.contains(&n.as_str())) {
        println!("`{unknown}` has no `[tune]`; these have: {}", all.join(", "));
        return ExitCode::FAILURE;
    }
    let asked = |name: &&str| named.is_empty() || named.iter().any(|n| n == name);
    let wanted: Vec<&str> = all.into_iter().filter(asked).collect();
    let near = wanted.iter().filter(|name| table(name)).count();
    let percent = 100.0 * NEAR;
    println!("{near} of {} scenarios within {percent} % at each of {EVERY} seeds", wanted.len());
    match near >= WANTED.min(wanted.len()) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}
