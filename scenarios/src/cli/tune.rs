//! `doorbell tune`

use super::ExitStatus;
use super::args::TuneArgs;
use super::common::{complain, loaded, print, short_name};
use crate::input::InputError;
use crate::report::{tuned_json, tuned_text, tuned_toml};
use crate::run::Runner;
use crate::tune::{Goal, Keep, Method, Objective, Tuned, Tuning, knobs, tune as search};

/// Fewest runs of a search that was not told how many.
const FEWEST: usize = 12;
/// Parts of all combinations that such a search runs, as a divisor.
const PART: usize = 10;

/// Searches for the best values of some keys of a scenario.
pub(super) fn tune(runner: &(dyn Runner + Sync), args: &TuneArgs) -> ExitStatus {
    let tuned = match tuned(runner, args) {
        Ok(tuned) => tuned,
        Err(error) => return complain(&error),
    };
    let name = short_name(&args.target.scenario);
    let printed = match (args.json, args.toml) {
        (true, _) => print(&tuned_json(&name, &tuned)),
        (false, true) => print(&tuned_toml(&tuned)),
        (false, false) => print(&tuned_text(&name, &tuned)),
    };
    match tuned.best().rank.is_good() {
        true => printed,
        false => printed.max(ExitStatus::Violated),
    }
}

fn tuned(runner: &(dyn Runner + Sync), args: &TuneArgs) -> Result<Tuned, InputError> {
    let objective = Objective::parse(&args.objective)?;
    let keeps = args.keep.iter().map(|k| Keep::parse(k)).collect::<Result<_, _>>()?;
    let (loaded, mut profiles) = loaded(&args.target)?;
    let knobs = knobs(&loaded, &args.vary)?;
    let grid: usize = knobs.iter().map(|k| k.values.len()).product();
    let method = match (args.grid, args.runs) {
        (true, _) => Method::Grid,
        (false, Some(runs)) => Method::Search { runs: runs as usize },
        (false, None) => Method::Search { runs: (grid / PART).max(FEWEST).min(grid + 1) },
    };
    let tuning = Tuning {
        loaded,
        variant: args.variant.clone(),
        knobs,
        goal: Goal { objective, keeps },
        method,
        jobs: args.jobs as usize,
        seed: args.search_seed,
    };
    search(runner, tuning, &mut profiles)
}
