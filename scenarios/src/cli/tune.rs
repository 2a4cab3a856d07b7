//! `doorbell tune`

use super::ExitStatus;
use super::args::TuneArgs;
use super::common::{complain, loaded, print, short_name};
use crate::input::InputError;
use crate::report::{tuned_json, tuned_text, tuned_toml};
use crate::run::Runner;
use crate::tune::{Asked, Tuned, Tuning, tune as search};

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
    let (loaded, mut profiles) = loaded(&args.target)?;
    let asked = Asked {
        vary: args.vary.clone(),
        objective: args.objective.clone(),
        keep: args.keep.clone(),
        variant: args.variant.clone(),
        runs: args.runs.map(|runs| runs as usize),
        grid: args.grid,
    };
    let tuning = asked.tuning(loaded)?;
    let tuning = Tuning { jobs: args.jobs.into(), seed: args.search_seed, ..tuning };
    search(runner, tuning, &mut profiles)
}
