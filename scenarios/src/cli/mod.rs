//! The `doorbell` command.

mod args;
mod capture;
mod check;
mod common;
mod explain;
mod fidelity;
mod hw;
mod list;
mod run;
mod status;
#[cfg(test)]
mod tests;
mod tune;
#[cfg(test)]
mod tune_tests;

use std::process::ExitCode;

use clap::Parser;

use crate::run::Runner;

pub use args::{Args, Command};
pub use status::ExitStatus;

/// Reads the command line, does what it says and gives the exit status.
pub fn main(runner: &(dyn Runner + Sync)) -> ExitCode {
    let status = match Args::parse().command {
        Command::Run(args) => run::run(runner, &args),
        Command::Check(args) => check::check(runner, &args),
        Command::Tune(args) => tune::tune(runner, &args),
        Command::List(args) => list::list(&args),
        Command::Schema(args) => list::schema(&args),
        Command::Explain(args) => explain::explain(&args),
        Command::Fidelity(args) => fidelity::fidelity(runner, &args),
        Command::Hw(args) => hw::hw(&args),
    };
    ExitCode::from(status.code())
}
