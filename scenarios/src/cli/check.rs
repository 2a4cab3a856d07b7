//! `doorbell check`

use std::path::Path;

use super::ExitStatus;
use super::args::{CheckArgs, Target};
use super::common::{Ready, cannot_write, complain, print, ready, run_all};
use crate::expect::{Check, Status, Verdict, unexpected};
use crate::input::{InputError, shown};
use crate::library;
use crate::report::{Report, Suite, to_junit, verdict_lines, write_whole};
use crate::run::Runner;

/// Runs scenarios and judges them.
pub(super) fn check(runner: &dyn Runner, args: &CheckArgs) -> ExitStatus {
    let targets = match targets(&args.scenarios) {
        Ok(targets) => targets,
        Err(error) => return complain(&error),
    };
    let mut status = ExitStatus::Ok;
    let mut suites = Vec::with_capacity(targets.len());
    for target in targets {
        let (of_target, suite) = check_one(runner, &target, args);
        status = status.max(of_target);
        suites.push(suite);
    }
    if let Some(path) = &args.junit
        && let Err(error) = write_whole(path, &to_junit(&suites))
    {
        return cannot_write(path, &error);
    }
    if args.quiet { status } else { status.max(print(&totals(&suites))) }
}

fn totals(suites: &[Suite]) -> String {
    let with = |status: Status| {
        suites.iter().flat_map(|s| &s.verdicts).filter(|v| v.status == status).count()
    };
    let unread = suites.iter().filter(|s| s.error.is_some()).count();
    let mut text = format!(
        "{}: {} {}, {} {} not",
        counted(suites.len(), "scenario"),
        counted(with(Status::Passed), "expectation"),
        if with(Status::Passed) == 1 { "holds" } else { "hold" },
        with(Status::Failed),
        if with(Status::Failed) == 1 { "does" } else { "do" }
    );
    for (n, what) in [
        (with(Status::Invalid), "cannot be judged"),
        (with(Status::Skipped), "skipped"),
        (unread, "could not be run"),
    ] {
        if n > 0 {
            text.push_str(&format!(", {n} {what}"));
        }
    }
    text.push('\n');
    text
}

/// `1 scenario`, `2 scenarios`
fn counted(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// Files of folders in the order of their names; names and files as they stand.
fn targets(given: &[String]) -> Result<Vec<String>, InputError> {
    if given.is_empty() {
        return Ok(library::SCENARIOS.iter().map(|(name, _)| (*name).to_owned()).collect());
    }
    let mut targets = Vec::new();
    for name in given {
        let path = Path::new(name);
        if !path.is_dir() {
            targets.push(name.clone());
            continue;
        }
        let files = std::fs::read_dir(path)
            .map_err(|e| InputError::new(format!("cannot read {name}: {e}")))?;
        let mut found: Vec<String> = files
            .filter_map(|file| file.ok().map(|f| f.path()))
            .filter(|p| p.extension().is_some_and(|e| e == "toml"))
            .map(|p| p.to_string_lossy().into_owned())
            .collect();
        if found.is_empty() {
            return Err(InputError::new(format!("{name} holds no scenario file (*.toml)")));
        }
        found.sort();
        targets.extend(found);
    }
    Ok(targets)
}

fn check_one(runner: &dyn Runner, scenario: &str, args: &CheckArgs) -> (ExitStatus, Suite) {
    let target = Target { scenario: scenario.to_owned(), set: Vec::new(), seed: None };
    let judged = ready(&target).and_then(|ready| {
        let report = run_all(runner, &ready, args.quiet)?;
        let again = if args.twice { Some(run_all(runner, &ready, args.quiet)?) } else { None };
        let status = status_of(&report, &ready);
        Ok((report, again, status))
    });
    let (mut report, again, mut status) = match judged {
        Ok(judged) => judged,
        Err(error) => {
            let name = scenario.to_owned();
            let suite =
                Suite { name, verdicts: Vec::new(), error: Some(shown(&error.to_string())) };
            return (complain(&error), suite);
        }
    };
    if let Some(verdict) = again.map(|again| same_hashes(&report, &again)) {
        if verdict.status == Status::Failed {
            status = status.max(ExitStatus::HashDiffers);
        }
        report.verdicts.push(verdict);
    }
    let status = status.max(print_report(&report, args.quiet));
    (status, Suite { name: report.name, verdicts: report.verdicts, error: None })
}

/// That of the file's expectations, and of the runs whose end none of them speaks of: such a run
/// has the status that `run` gives it.
fn status_of(report: &Report, ready: &Ready) -> ExitStatus {
    let loaded = &ready.loaded;
    let of_file = &report.verdicts[..loaded.expects.len()];
    let ended = unexpected(&loaded.expects, &report.runs, &loaded.fixed_axes);
    ExitStatus::of_verdicts(of_file).max(ExitStatus::of_runs(ended))
}

/// A verdict about two runs of the same points.
fn same_hashes(first: &Report, second: &Report) -> Verdict {
    let pairs = first.runs.iter().zip(&second.runs);
    let check = |(a, b): (&crate::run::Run, &crate::run::Run)| {
        let (x, y) = (&a.outcome.trace_hash, &b.outcome.trace_hash);
        Check { at: a.point.label(), found: format!("{x}, then {y}"), ok: x == y }
    };
    let checks: Vec<Check> = pairs.map(check).collect();
    let good = checks.iter().all(|c| c.ok);
    Verdict {
        kind: "trace-hash".to_owned(),
        expected: "two runs have the same trace hash".to_owned(),
        why: "same file, same seed".to_owned(),
        status: if good { Status::Passed } else { Status::Failed },
        checks,
        problem: String::new(),
    }
}

fn print_report(report: &Report, quiet: bool) -> ExitStatus {
    let shown = |v: &&Verdict| !quiet || matches!(v.status, Status::Failed | Status::Invalid);
    let lines: String = report.verdicts.iter().filter(shown).map(verdict_lines).collect();
    if quiet && lines.is_empty() {
        return ExitStatus::Ok;
    }
    let nothing = if report.verdicts.is_empty() { "        expects nothing\n" } else { "" };
    print(&format!("{}: {}\n{nothing}{lines}\n", report.name, report.title))
}
