//! The `doorbell` command.

use std::process::ExitCode;

use doorbell::run::Simulator;

fn main() -> ExitCode {
    doorbell::cli::main(&Simulator)
}
