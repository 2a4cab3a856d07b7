//! `doorbell run`

use std::io::Write;
use std::path::Path;

use doorbell_sim::engine::TraceHash;

use super::ExitStatus;
use super::args::RunArgs;
use super::capture::{Capturing, point_stem};
use super::common::{Ready, cannot_write, complain, print, ready_of, run_all};
use crate::expect::Status;
use crate::input::InputError;
use crate::report::{
    Report, Rows, dead_line, series_csv, timeline_svg, to_html, to_json, to_text, verdict_lines,
    write_whole,
};
use crate::run::{FASTER_BUT_SICK, Runner};

/// Runs one scenario and tells what happened.
pub(super) fn run(runner: &dyn Runner, args: &RunArgs) -> ExitStatus {
    let clock = Clock::start();
    let ready = match chosen(args) {
        Ok(ready) => ready,
        Err(error) => return complain(&error),
    };
    if args.trace_hash.is_some() && ready.points.len() != 1 {
        let text = format!("--trace-hash with {} points", ready.points.len());
        return complain(
            &InputError::new(text).help("choose one by --variant NAME and --set PATH=VALUE"),
        );
    }
    if let Some(hash) = &args.trace_hash
        && hash.parse::<TraceHash>().is_err()
    {
        let error = InputError::new(format!("--trace-hash {hash} is not a trace hash"));
        return complain(&error.help("16 hexadecimal digits, as a report prints them"));
    }
    let report = match run_points(runner, &ready, args) {
        Ok(report) => report,
        Err(status) => return status,
    };
    if let Err(status) = write_files(args, &report) {
        return status;
    }
    let printed = match (args.json, args.quiet) {
        (true, _) => print(&to_json(&report)),
        (false, true) => print_unexpected(&report),
        (false, false) => print(&to_text(&report, rows(args))),
    };
    if !args.quiet {
        clock.report();
    }
    let hash = hash_status(&report, args.trace_hash.as_deref());
    ExitStatus::of_verdicts(&verdicts_of_file(&report, &ready))
        .max(ExitStatus::of_runs(&report.runs))
        .max(hash)
        .max(printed)
}

/// How much of long tables is shown.
const fn rows(args: &RunArgs) -> Rows {
    if args.full { Rows::All } else { Rows::First }
}

/// Writes the files that were asked for.
fn write_files(args: &RunArgs, report: &Report) -> Result<(), ExitStatus> {
    if let Some(folder) = &args.out {
        for (ending, text) in [("json", to_json(report)), ("txt", to_text(report, rows(args)))] {
            let path = folder.join(format!("{}.{ending}", report.name));
            if let Err(error) = write_whole(&path, &text) {
                return Err(cannot_write(&path, &error));
            }
        }
    }
    if let Some(path) = &args.figure {
        let rows = report.runs.first().and_then(|r| r.outcome.timeline.as_deref());
        let Some(svg) = timeline_svg(&report.title, rows.unwrap_or_default()) else {
            let error = InputError::new("--figure, but the scenario records no timeline");
            return Err(complain(&error.help("add `--set record.timeline=true`")));
        };
        if let Err(error) = write_whole(path, &svg) {
            return Err(cannot_write(path, &error));
        }
    }
    if let Some(path) = &args.html
        && let Err(error) = write_whole(path, &to_html(report))
    {
        return Err(cannot_write(path, &error));
    }
    args.series.as_ref().map_or(Ok(()), |folder| write_series(folder, report))
}

/// Writes the series of all points, a file for each point and group.
fn write_series(folder: &Path, report: &Report) -> Result<(), ExitStatus> {
    if report.runs.iter().all(|run| run.outcome.series.is_none()) {
        let error = InputError::new("--series, but the scenario records none");
        return Err(complain(&error.help("add `--set record.series=10us`")));
    }
    for run in &report.runs {
        let Some(table) = &run.outcome.series else { continue };
        let stem = point_stem(&report.name, &run.point, report.runs.len() > 1);
        for (group, text) in series_csv(table) {
            let path = folder.join(format!("{stem}-{group}.csv"));
            write_whole(&path, &text).map_err(|error| cannot_write(&path, &error))?;
        }
    }
    Ok(())
}

/// The points that were asked for.
fn chosen(args: &RunArgs) -> Result<Ready, InputError> {
    ready_of(&args.target, args.variant.as_deref())
}

/// Runs all points, with a capture of each where that was asked for.
fn run_points(runner: &dyn Runner, ready: &Ready, args: &RunArgs) -> Result<Report, ExitStatus> {
    let all = |runner| run_all(runner, ready, args.quiet).map_err(|error| complain(&error));
    let Some(folder) = &args.pcap else { return all(runner) };
    let capturing = Capturing::new(runner, folder, &ready.name, ready.points.len());
    let report = all(&capturing)?;
    match capturing.failure() {
        Some((path, error)) => Err(cannot_write(&path, &error)),
        None => Ok(report),
    }
}

/// `run` tells how the runs ended by its own status, so the added verdict about unexpected ends
/// does not count here.
fn verdicts_of_file(report: &Report, ready: &Ready) -> Vec<crate::expect::Verdict> {
    report.verdicts.iter().take(ready.loaded.expects.len()).cloned().collect()
}

/// Expectations that failed; and, on stderr, queue pairs that died: in a script they are a result,
/// and no failure by themselves.
fn print_unexpected(report: &Report) -> ExitStatus {
    for run in &report.runs {
        if let Some(line) = dead_line(&run.outcome.qps) {
            let label = run.point.label();
            let at = if label.is_empty() { report.name.clone() } else { label };
            let _ = writeln!(std::io::stderr(), "{at}: {line}");
        }
        for note in run.outcome.notes.iter().filter(|n| n.name == FASTER_BUT_SICK) {
            let (label, text) = (run.point.label(), &note.text);
            let _ = writeln!(std::io::stderr(), "{label}: warning {FASTER_BUT_SICK}: {text}");
        }
    }
    let bad = |s| matches!(s, Status::Failed | Status::Invalid);
    let lines = report.verdicts.iter().filter(|v| bad(v.status)).map(verdict_lines);
    print(&lines.collect::<String>())
}

fn hash_status(report: &Report, wanted: Option<&str>) -> ExitStatus {
    let found = &report.runs[0].outcome.trace_hash;
    match wanted {
        Some(wanted) if !wanted.eq_ignore_ascii_case(found) => {
            let text = format!("error: trace hash is {found}, not {wanted}");
            let _ = writeln!(std::io::stderr(), "{text}");
            ExitStatus::HashDiffers
        }
        _ => ExitStatus::Ok,
    }
}

/// Wall time, for the person at the terminal only: it goes to stderr and into no report.
#[allow(clippy::disallowed_types, reason = "wall time is told to people and never compared")]
struct Clock(std::time::Instant);

#[allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "see above")]
impl Clock {
    fn start() -> Self {
        Self(std::time::Instant::now())
    }

    fn report(&self) {
        let milliseconds = self.0.elapsed().as_millis();
        let (s, ms) = (milliseconds / 1000, milliseconds % 1000);
        let _ = writeln!(std::io::stderr(), "wall time {s}.{ms:03} s");
    }
}
