//! The `doorbell` command.

use std::process::ExitCode;

use doorbell::run::{Outcome, Point, RunError, Runner};

/// Stands where the simulator is plugged in; it refuses every point.
struct NoSimulator;

impl Runner for NoSimulator {
    fn run(&self, _: &Point) -> Result<Outcome, RunError> {
        Err(RunError::Unsupported { what: "this build has no simulator".to_owned() })
    }
}

fn main() -> ExitCode {
    doorbell::cli::main(&NoSimulator)
}
