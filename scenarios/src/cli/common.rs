//! What the commands share: loading, running with progress, printing.

use std::io::{self, IsTerminal, Write};
use std::path::Path;

use miette::{Diagnostic, GraphicalReportHandler, GraphicalTheme, LabeledSpan, SourceCode};

use super::ExitStatus;
use super::args::Target;
use crate::format::expand::{Expanded, check_tune, expand_only};
use crate::format::load::{Loaded, Overrides, find, load};
use crate::input::{InputError, Source, shown};
use crate::profile::Profiles;
use crate::report::Report;
use crate::run::{Runner, run_points};

/// A scenario that is ready to run.
pub(super) struct Ready {
    pub(super) name: String,
    pub(super) loaded: Loaded,
    pub(super) points: Vec<Expanded>,
}

/// Finds, reads and expands a scenario.
pub(super) fn ready(target: &Target) -> Result<Ready, InputError> {
    ready_of(target, None)
}

/// Finds and reads a scenario; the profiles beside it.
pub(super) fn loaded(target: &Target) -> Result<(Loaded, Profiles), InputError> {
    let (source, directory) = find(&target.scenario)?;
    let overrides = Overrides { set: target.set.clone(), seed: target.seed };
    let profiles = Profiles::beside(&directory);
    Ok((load(source, directory, &overrides)?, profiles))
}

/// [`ready`], with the points of one variant where one is named.
pub(super) fn ready_of(target: &Target, variant: Option<&str>) -> Result<Ready, InputError> {
    let (loaded, mut profiles) = loaded(target)?;
    let names = loaded.variant_names();
    if let Some(name) = variant.filter(|name| !names.contains(name)) {
        let error = InputError::new(format!("the file has no variant \"{name}\""));
        return Err(error.help(match names.is_empty() {
            true => "it has no variants: leave --variant out".to_owned(),
            false => format!("it has {}", names.join(", ")),
        }));
    }
    check_tune(&loaded, &mut profiles)?;
    let points = expand_only(&loaded, &mut profiles, variant)?;
    Ok(Ready { name: short_name(&target.scenario), loaded, points })
}

/// The file's name without folder and ending, so that results do not depend on where it lies.
pub(super) fn short_name(target: &str) -> String {
    let file = Path::new(target).file_name().map_or(target.into(), |f| f.to_string_lossy());
    shown(file.strip_suffix(".toml").unwrap_or(&file))
}

/// Runs all points and judges them.
pub(super) fn run_all(
    runner: &dyn Runner,
    ready: &Ready,
    quiet: bool,
) -> Result<Report, InputError> {
    let mut progress = Progress::new(ready.points.len(), quiet);
    let runs = run_points(runner, &ready.points, |point| progress.show(&point.label()));
    progress.clear();
    Ok(Report::new(ready.name.clone(), &ready.loaded, runs?))
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
    // Writing to a string fails only if the source cannot be shown; then the plain line serves.
    if handler.render_report(&mut text, &Shown::new(error)).is_err() {
        text = format!("{}\n", shown(&error.to_string()));
    }
    let _ = write!(io::stderr(), "error:\n{text}");
    ExitStatus::BadInput
}

/// An error whose own line has no place, since the drawing below it shows the place. Characters
/// that a terminal would obey have marks in their place.
#[derive(Debug)]
struct Shown<'a> {
    error: &'a InputError,
    source: Option<Source>,
}

impl<'a> Shown<'a> {
    fn new(error: &'a InputError) -> Self {
        let source = error
            .origin()
            .map(|at| Source { name: shown(&at.source.name), text: shown(&at.source.text) });
        Self { error, source }
    }
}

impl std::fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&shown(self.error.message()))
    }
}

impl std::error::Error for Shown<'_> {}

impl Diagnostic for Shown<'_> {
    fn help<'a>(&'a self) -> Option<Box<dyn std::fmt::Display + 'a>> {
        let help = self.error.remedy().map(shown);
        help.map(|h| Box::new(h) as Box<dyn std::fmt::Display>)
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        self.source.as_ref().map(|s| s as &dyn SourceCode)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        self.error.labels()
    }
}

/// Prints to standard output; a reader that went away is no error.
pub(super) fn print(text: &str) -> ExitStatus {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // Who closes the pipe has read what it wanted.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            complain(&InputError::new(format!("cannot write to standard output: {error}")))
        }
        _ => ExitStatus::Ok,
    }
}

/// Complains about a file that cannot be written.
pub(super) fn cannot_write(path: &Path, error: &io::Error) -> ExitStatus {
    complain(&InputError::new(format!("cannot write {}: {error}", path.display())))
}
