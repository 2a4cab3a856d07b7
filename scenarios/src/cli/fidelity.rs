//! `doorbell fidelity`

use std::io::{self, IsTerminal, Write};

use super::ExitStatus;
use super::args::FidelityArgs;
use super::common::{complain, print};
use crate::fidelity::{Calibration, Table, measure, to_markdown, unexplained};
use crate::input::InputError;
use crate::library;
use crate::run::Runner;

/// Prints the fidelity table. Status 1 when a row is far off and names no reason.
pub(super) fn fidelity(runner: &dyn Runner, args: &FidelityArgs) -> ExitStatus {
    let tables = match tables(runner, args) {
        Ok(tables) => tables,
        Err(error) => return complain(&error),
    };
    let printed = print(&to_markdown(&tables));
    let rows = unexplained(&tables);
    if rows.is_empty() {
        return printed;
    }
    let text = format!("far off, and no `missing` says why: {}", rows.join(", "));
    let _ = writeln!(io::stderr(), "error: {text}");
    ExitStatus::Violated
}

fn tables(runner: &dyn Runner, args: &FidelityArgs) -> Result<Vec<Table>, InputError> {
    let built_in = || library::CALIBRATIONS.iter().map(|(name, _)| (*name).to_owned()).collect();
    let targets: Vec<String> = match args.calibrations.is_empty() {
        true => built_in(),
        false => args.calibrations.clone(),
    };
    let mut tables = Vec::with_capacity(targets.len());
    for target in &targets {
        if io::stderr().is_terminal() {
            let _ = writeln!(io::stderr(), "{target} …");
        }
        tables.push(measure(runner, &Calibration::find(target)?, &args.set)?);
    }
    Ok(tables)
}
