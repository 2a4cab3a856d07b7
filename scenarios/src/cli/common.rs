//! What the commands share: loading, running with progress, printing.

use std::io::{self, IsTerminal, Write};
use std::path::Path;

use miette::{GraphicalReportHandler, GraphicalTheme};

use super::ExitStatus;
use super::args::Target;
use crate::expect::judge;
use crate::format::expand::{Expanded, expand};
use crate::format::load::{Loaded, Overrides, find, load};
use crate::input::{InputError, Path as InputPath};
use crate::profile::Profiles;
use crate::report::Report;
use crate::run::{Run, RunError, Runner};

/// A scenario that is ready to run.
pub(super) struct Ready {
    pub(super) name: String,
    pub(super) loaded: Loaded,
    pub(super) points: Vec<Expanded>,
}

/// Finds, reads and expands a scenario.
pub(super) fn ready(target: &Target) -> Result<Ready, InputError> {
    let (source, directory) = find(&target.scenario)?;
    let overrides = Overrides { set: target.set.clone(), seed: target.seed };
    let mut profiles = Profiles::beside(&directory);
    let loaded = load(source, directory, &overrides)?;
    let points = expand(&loaded, &mut profiles)?;
    Ok(Ready { name: short_name(&target.scenario), loaded, points })
}

/// The file's name without folder and ending, so that results do not depend on where it lies.
fn short_name(target: &str) -> String {
    let file = Path::new(target).file_name().map_or(target.into(), |f| f.to_string_lossy());
    file.strip_suffix(".toml").unwrap_or(&file).to_owned()
}

/// Runs all points and judges them.
pub(super) fn run_all(
    runner: &dyn Runner,
    ready: &Ready,
    quiet: bool,
) -> Result<Report, InputError> {
    let runs = run_points(runner, ready, quiet)?;
    let first = &runs[0].point.scenario;
    let metrics = ready.loaded.expects.iter().flat_map(|e| e.metrics()).map(str::to_owned);
    Ok(Report {
        name: ready.name.clone(),
        title: first.title.clone(),
        claims: first.claim.0.clone(),
        metrics: metrics.collect(),
        verdicts: judge(&ready.loaded.expects, &runs, &ready.loaded.fixed_axes),
        runs,
    })
}

fn run_points(runner: &dyn Runner, ready: &Ready, quiet: bool) -> Result<Vec<Run>, InputError> {
    let mut progress = Progress::new(ready.points.len(), quiet);
    let mut runs = Vec::with_capacity(ready.points.len());
    for Expanded { point, tree } in &ready.points {
        progress.show(&point.label());
        let outcome = runner.run(point).map_err(|e| refused(e, tree));
        if outcome.is_err() {
            progress.clear();
        }
        runs.push(Run { point: point.clone(), outcome: outcome? });
    }
    progress.clear();
    Ok(runs)
}

/// A refusal of the runner at the place of the setting that it is about.
fn refused(error: RunError, tree: &crate::input::Node) -> InputError {
    match error {
        RunError::BadInput { path, message, help } => {
            let at = InputPath::parse(&path).ok().and_then(|p| p.origin(tree).cloned());
            InputError::new(message).help(help).at_opt(at.as_ref()).at(&tree.origin)
        }
        RunError::Unsupported { what } => InputError::new(format!("not supported: {what}")),
    }
}

/// Tells on a terminal which point runs; elsewhere it is silent.
struct Progress {
    total: usize,
    done: usize,
    on: bool,
}

impl Progress {
    fn new(total: usize, quiet: bool) -> Self {
        Self { total, done: 0, on: total > 1 && !quiet && io::stderr().is_terminal() }
    }

    fn show(&mut self, label: &str) {
        self.done += 1;
        if self.on {
            let label: String = label.chars().take(60).collect();
            let _ = write!(io::stderr(), "\r\x1b[K[{}/{}] {label}", self.done, self.total);
        }
    }

    fn clear(&self) {
        if self.on {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

/// Prints an input error with its place.
pub(super) fn complain(error: &InputError) -> ExitStatus {
    let color = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let theme = if color { GraphicalTheme::unicode() } else { GraphicalTheme::unicode_nocolor() };
    let mut text = String::new();
    let handler = GraphicalReportHandler::new_themed(theme).with_links(false).with_width(100);
    if handler.render_report(&mut text, error).is_err() {
        text = error.to_string();
    }
    // The plain line comes first: editors and scripts find the place by it.
    let _ = writeln!(io::stderr(), "error: {error}\n{text}");
    ExitStatus::BadInput
}

/// Prints to standard output; a reader that went away is no error.
pub(super) fn print(text: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Complains about a file that cannot be written.
pub(super) fn cannot_write(path: &Path, error: &io::Error) -> ExitStatus {
    complain(&InputError::new(format!("cannot write {}: {error}", path.display())))
}
