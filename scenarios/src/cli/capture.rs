//! `--pcap DIR`: a runner around another one that writes what the ports saw.

use std::cell::RefCell;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

use crate::report::WholeFile;
use crate::run::{Outcome, Point, RunError, Runner};

/// Runs points on another runner and writes a pcapng file for each.
pub(super) struct Capturing<'a> {
    runner: &'a dyn Runner,
    folder: &'a Path,
    /// Name of the scenario, first part of the files' names.
    name: &'a str,
    /// Whether the scenario has more points than one.
    several: bool,
    /// The first file that could not be written, and why.
    failed: RefCell<Option<(PathBuf, io::Error)>>,
}

impl<'a> Capturing<'a> {
    pub(super) fn new(
        runner: &'a dyn Runner,
        folder: &'a Path,
        name: &'a str,
        points: usize,
    ) -> Self {
        Self { runner, folder, name, several: points > 1, failed: RefCell::new(None) }
    }

    /// What went wrong with the files, if something did.
    pub(super) fn failure(self) -> Option<(PathBuf, io::Error)> {
        self.failed.into_inner()
    }

    fn path(&self, point: &Point) -> PathBuf {
        self.folder.join(point_stem(self.name, point, self.several) + ".pcapng")
    }
}

/// The name of a file about a point, without ending; `several`: the scenario has more than one.
pub(super) fn point_stem(name: &str, point: &Point, several: bool) -> String {
    match several {
        true => format!("{name}-{}-{}", point.index, file_name(&point.label())),
        false => name.to_owned(),
    }
}

/// `label` with nothing that a file name may not have on some system.
fn file_name(label: &str) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '=' | '.' | '_' | '-');
    let parts = label.split(|c| !fits(c)).filter(|p| !p.is_empty());
    parts.collect::<Vec<_>>().join("_")
}

impl Runner for Capturing<'_> {
    fn run(&self, point: &Point) -> Result<Outcome, RunError> {
        let path = self.path(point);
        // It grows beside its place: a capture that was there stays until this one is whole.
        let begun = WholeFile::begin(&path).and_then(|whole| Ok((whole.writer()?, whole)));
        let (outcome, written) = match begun {
            Ok((file, whole)) => {
                let out = Box::new(BufWriter::new(file));
                let (outcome, written) = self.runner.run_captured(point, out)?;
                (outcome, written.and_then(|()| whole.finish()))
            }
            Err(error) => (self.runner.run(point)?, Err(error)),
        };
        if let Err(error) = written {
            self.failed.borrow_mut().get_or_insert((path, error));
        }
        Ok(outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_become_file_names() {
        assert_eq!(file_name("lossless, batch=8, size=4 KiB"), "lossless_batch=8_size=4_KiB");
        assert_eq!(file_name("../a/b: c"), ".._a_b_c");
        assert_eq!(file_name(""), "");
    }
}
