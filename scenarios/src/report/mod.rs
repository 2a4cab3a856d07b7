//! Reports: tables for a terminal, versioned JSON, JUnit, and writing files whole or not at all.

mod claims;
mod deaths;
mod detail;
mod figure;
mod flows;
mod html;
mod json;
mod junit;
mod notes;
mod pcapng;
mod plot;
mod series;
mod summary;
mod table;
mod text;
mod timeline;
mod tune;
mod write;

#[cfg(test)]
mod names_tests;
#[cfg(test)]
mod tests;

use crate::expect::{Verdict, judge};
use crate::format::load::Loaded;
use crate::run::Run;

pub use claims::claims_markdown;
pub(crate) use deaths::dead_line;
#[cfg(feature = "hw")]
pub(crate) use detail::measured_text;
pub use figure::timeline_svg;
pub use html::to_html;
pub use json::{REPORT_VERSION, to_json};
pub use junit::{Suite, to_junit};
pub use pcapng::PcapNg;
pub use series::series_csv;
pub use text::{to_text, verdict_lines};
pub use tune::{TUNE_VERSION, tuned_json, tuned_text, tuned_toml};
pub(crate) use write::WholeFile;
pub use write::write_whole;

/// How much of long tables a text shows.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum Rows {
    /// The first rows of each, and how many more there are.
    #[default]
    First,
    /// All.
    All,
}

impl Rows {
    /// Most rows of a table of which else `first` are shown.
    const fn most(self, first: usize) -> usize {
        match self {
            Self::First => first,
            Self::All => usize::MAX,
        }
    }
}

/// Everything that a report is made from.
#[derive(Clone, Debug)]
pub struct Report {
    /// Name of the scenario: its file's name without ending.
    pub name: String,
    /// Its title.
    pub title: String,
    /// Claims that it settles.
    pub claims: Vec<String>,
    /// What was run.
    pub runs: Vec<Run>,
    /// Metrics that its expectations name, for the columns of tables.
    pub metrics: Vec<String>,
    /// How the expectations came out.
    pub verdicts: Vec<Verdict>,
}

impl Report {
    /// Judges `runs` of the scenario `loaded` and keeps both.
    pub fn new(name: String, loaded: &Loaded, runs: Vec<Run>) -> Self {
        let scenario = runs.first().map(|run| &run.point.scenario);
        let metrics = loaded.expects.iter().flat_map(|e| e.metrics()).map(str::to_owned);
        Self {
            name,
            title: scenario.map(|s| s.title.clone()).unwrap_or_default(),
            claims: scenario.map(|s| s.claim.0.clone()).unwrap_or_default(),
            metrics: metrics.collect(),
            verdicts: judge(&loaded.expects, &runs, &loaded.fixed_axes),
            runs,
        }
    }
}
