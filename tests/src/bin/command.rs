//! The `doorbell` command, built with the tests so that they can run it in a process of its own.

use std::process::ExitCode;

use doorbell::run::Simulator;

fn main() -> ExitCode {
    doorbell::cli::main(&Simulator)
}
