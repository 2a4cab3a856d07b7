//! Judging results by what the file expects.

mod axis;
mod judge;
mod pair;
mod select;
mod single;

#[cfg(test)]
mod tests;

use serde::Serialize;

pub use judge::{judge, unexpected};
pub(crate) use select::kind_fits;

/// How an expectation came out.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// It holds.
    Passed,
    /// It does not.
    Failed,
    /// It is about an axis that the command line fixed.
    Skipped,
    /// It cannot be judged: it names a metric that is not there, or compares different kinds.
    Invalid,
}

/// One comparison.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Check {
    /// The point or points, empty when there is only one.
    pub at: String,
    /// What was found.
    pub found: String,
    /// Whether it is as expected.
    pub ok: bool,
}

/// An expectation with what was found.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Verdict {
    /// The kind of expectation.
    pub kind: String,
    /// What was expected.
    pub expected: String,
    /// Why it is expected.
    pub why: String,
    /// How it came out.
    pub status: Status,
    /// The comparisons made.
    pub checks: Vec<Check>,
    /// Why it was skipped or cannot be judged.
    pub problem: String,
}
