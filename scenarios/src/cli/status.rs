//! Exit statuses, the same everywhere.

use crate::expect::{Status, Verdict};
use crate::run::{ExitKind, Run};

/// How the command ends. The order is that of precedence when several apply.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ExitStatus {
    /// All is well.
    Ok,
    /// The trace hash differs from the one given or from the first run.
    HashDiffers,
    /// A planned fault never happened.
    FaultNotFired,
    /// Nothing could go on.
    NoProgress,
    /// An expectation or an oracle was violated.
    Violated,
    /// The command line or a file is wrong.
    BadInput,
}

impl ExitStatus {
    /// The number that the shell sees.
    pub const fn code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Violated => 1,
            Self::BadInput => 2,
            Self::NoProgress => 3,
            Self::FaultNotFired => 4,
            Self::HashDiffers => 5,
        }
    }

    /// The status of runs themselves.
    pub fn of_runs<'a>(runs: impl IntoIterator<Item = &'a Run>) -> Self {
        let of = |run: &Run| match run.outcome.exit.kind {
            ExitKind::Ok => Self::Ok,
            ExitKind::Violation => Self::Violated,
            ExitKind::NoProgress => Self::NoProgress,
            ExitKind::FaultNotFired => Self::FaultNotFired,
        };
        runs.into_iter().map(of).max().unwrap_or(Self::Ok)
    }

    /// The status of expectations.
    pub fn of_verdicts(verdicts: &[Verdict]) -> Self {
        let of = |verdict: &Verdict| match verdict.status {
            Status::Passed | Status::Skipped => Self::Ok,
            Status::Failed => Self::Violated,
            Status::Invalid => Self::BadInput,
        };
        verdicts.iter().map(of).max().unwrap_or(Self::Ok)
    }
}
