//! Tuning beforehand: the best values of a few keys of a scenario, found on the simulator.
//!
//! [`knobs`] names the keys and their values, a [`Goal`] what is sought, and [`tune`] tries
//! combinations until none is better or no run is left. Nothing depends on how many runs are done
//! at a time. [`TuneStep`] is also how a program's own tuner reports.

mod asked;
mod goal;
mod knobs;
mod runs;
mod search;
mod step;
mod surface;
#[cfg(test)]
mod tests;

pub use asked::Asked;
pub use goal::{Aim, Goal, Keep, Objective};
pub use knobs::knobs;
#[cfg(test)]
pub(crate) use knobs::toml_text;
pub use search::{Measure, Place, Rank, search};
pub use step::{Seen, TuneStep};

use runs::Runs;

use crate::format::load::Loaded;
use crate::format::{Axis, variant};
use crate::input::InputError;
use crate::profile::Profiles;
use crate::run::{Metric, Runner};

/// How combinations are chosen.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Method {
    /// By [`search`], with so many runs at most, the file as it stands included; at least 2.
    Search {
        /// Runs. More: better chances where the response has several peaks.
        runs: usize,
    },
    /// All of them.
    Grid,
}

/// What to tune.
#[derive(Clone, Debug)]
pub struct Tuning {
    /// The file.
    pub loaded: Loaded,
    /// Which of its variants, if it has any.
    pub variant: Option<String>,
    /// The keys, from [`knobs`].
    pub knobs: Vec<Axis>,
    /// What is sought.
    pub goal: Goal,
    /// How combinations are chosen.
    pub method: Method,
    /// Runs at a time, at least 1: about as many as there are cores. The result does not depend
    /// on it.
    pub jobs: usize,
    /// Seed of the choice of places. The runs have the seed of the file.
    pub seed: u64,
}

/// One combination that was tried.
#[derive(Clone, Debug)]
pub struct Tried {
    /// Index of each knob's value; empty for the file as it stands, if its values are others.
    pub place: Place,
    /// The value of each knob, as in a file; empty where `place` is.
    pub values: Vec<String>,
    /// The objective and the metrics of the conditions; those that the run has.
    pub metrics: Vec<(String, Metric)>,
    /// How good it is.
    pub rank: Rank,
    /// What limited it, or why it was refused or ended badly.
    pub note: String,
}

/// What came of tuning.
#[derive(Clone, Debug)]
pub struct Tuned {
    /// Names of the knobs, as paths.
    pub keys: Vec<String>,
    /// What was sought.
    pub goal: Goal,
    /// Combinations that there are.
    pub grid: usize,
    /// The file as it stands, then every combination in the order of its run.
    pub tried: Vec<Tried>,
    /// Index of the best in `tried`; 0 where nothing is better than the file as it stands.
    pub best: usize,
    /// How the search got there.
    pub steps: Vec<TuneStep>,
    /// Whether the file has variants.
    pub variants: bool,
}

impl Tuned {
    /// The best.
    pub fn best(&self) -> &Tried {
        &self.tried[self.best]
    }

    /// The keys of the best with their values as in a file; empty where nothing is to change.
    pub fn changes(&self) -> Vec<(&str, &str)> {
        if self.best == 0 {
            return vec![];
        }
        let values = self.best().values.iter().map(String::as_str);
        self.keys.iter().map(String::as_str).zip(values).collect()
    }
}

/// Looks for the best combination.
///
/// # Errors
/// When the file as it stands cannot be run or does not end well, has not the metrics of the goal,
/// or a variant must be named; and when the file refuses every combination that was tried.
pub fn tune(
    runner: &(dyn Runner + Sync),
    tuning: Tuning,
    profiles: &mut Profiles,
) -> Result<Tuned, InputError> {
    variant(&tuning.loaded, tuning.variant.as_deref())?;
    let mut runs = Runs::new(runner, &tuning, profiles);
    let start = runs.baseline()?;
    let lens: Vec<usize> = tuning.knobs.iter().map(|k| k.values.len()).collect();
    match tuning.method {
        Method::Search { .. } => drop(search(&mut runs, &lens, start, tuning.seed)),
        Method::Grid => runs.grid(&lens),
    }
    runs.finish()
}
