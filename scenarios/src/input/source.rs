//! Texts that input comes from, and places in them.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use miette::{MietteError, MietteSpanContents, SourceCode, SourceSpan, SpanContents};

use super::InputError;

/// Larger files are refused. The largest sensible scenario is some ten kilobytes; a file past
/// this limit is the wrong file, and reading 100 MB to find that out helps nobody.
pub const MAX_FILE_BYTES: u64 = 1 << 20;

/// A named text.
#[derive(Debug, PartialEq, Eq)]
pub struct Source {
    /// File name as given, or a description such as `--set`.
    pub name: String,
    /// The whole text.
    pub text: String,
}

/// A place: bytes `start..end` of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The text.
    pub source: Arc<Source>,
    /// First byte.
    pub start: usize,
    /// One past the last byte.
    pub end: usize,
}

impl Source {
    /// A source behind a shared pointer, as origins need it.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Arc<Self> {
        Arc::new(Self { name: name.into(), text: text.into() })
    }
}

impl Origin {
    /// Line and column, both counted from one; columns are characters.
    pub fn line_column(&self) -> (usize, usize) {
        let before = &self.source.text.as_bytes()[..self.start.min(self.source.text.len())];
        let line = before.iter().filter(|b| **b == b'\n').count() + 1;
        let line_start = before.iter().rposition(|b| *b == b'\n').map_or(0, |p| p + 1);
        let column = String::from_utf8_lossy(&before[line_start..]).chars().count() + 1;
        (line, column)
    }
}

impl SourceCode for Source {
    fn read_span<'a>(
        &'a self,
        span: &SourceSpan,
        lines_before: usize,
        lines_after: usize,
    ) -> Result<Box<dyn SpanContents<'a> + 'a>, MietteError> {
        let inner = self.text.read_span(span, lines_before, lines_after)?;
        Ok(Box::new(MietteSpanContents::new_named(
            self.name.clone(),
            inner.data(),
            *inner.span(),
            inner.line(),
            inner.column(),
            inner.line_count(),
        )))
    }
}

/// Larger lists are refused: a million flows take some 25 MB.
pub const MAX_LIST_BYTES: u64 = 1 << 26;

/// What a file is to be, for the words of errors.
struct FileKind {
    /// The format.
    word: &'static str,
    /// Most bytes.
    most: u64,
    /// What to do when there is none.
    missing: &'static str,
    /// What to do when it is too large.
    large: &'static str,
}

const TOML: FileKind = FileKind {
    word: "TOML",
    most: MAX_FILE_BYTES,
    missing: "`doorbell list` shows the scenarios and profiles that are built in",
    large: "a scenario or profile is some kilobytes of TOML: is this the right file?",
};

const CSV: FileKind = FileKind {
    word: "CSV",
    most: MAX_LIST_BYTES,
    missing: "the path is seen from the folder of the scenario file",
    large: "a line for each flow, of some 25 bytes: shorten the list",
};

/// Reads a TOML file of at most [`MAX_FILE_BYTES`].
///
/// # Errors
/// When the file is missing, a directory, too large, or not UTF-8.
pub fn read_file(path: &Path) -> Result<Arc<Source>, InputError> {
    read(path, &TOML)
}

/// Reads a CSV file of at most [`MAX_LIST_BYTES`].
///
/// # Errors
/// When the file is missing, a directory, too large, or not UTF-8.
pub fn read_list(path: &Path) -> Result<Arc<Source>, InputError> {
    read(path, &CSV)
}

fn read(path: &Path, kind: &FileKind) -> Result<Arc<Source>, InputError> {
    let name = path.display().to_string();
    let FileKind { word, most, missing, large } = *kind;
    let failed = |e: std::io::Error| {
        let error = InputError::new(format!("cannot read {name}: {}", plain(&e)));
        if e.kind() == std::io::ErrorKind::NotFound { error.help(missing) } else { error }
    };
    let file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if metadata.is_dir() {
        let text = format!("{name} is a directory, expected a {word} file");
        return Err(InputError::new(text).help("name a file in it"));
    }
    let too_large = |bytes: String| {
        InputError::new(format!("{name} has {bytes} bytes; the limit is {most}")).help(large)
    };
    if metadata.len() > most {
        return Err(too_large(metadata.len().to_string()));
    }
    // A pipe or a device reports no length, so the limit holds for the reading too.
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > most {
        return Err(too_large(format!("more than {most}")));
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Source::new(name, text)),
        Err(e) => Err(not_utf8(&name, word, e.as_bytes(), e.utf8_error().valid_up_to())),
    }
}

fn not_utf8(name: &str, word: &str, bytes: &[u8], at: usize) -> InputError {
    let line = bytes[..at].iter().filter(|b| **b == b'\n').count() + 1;
    let column = at - bytes[..at].iter().rposition(|b| *b == b'\n').map_or(0, |p| p + 1) + 1;
    InputError::new(format!("{name}:{line}:{column}: not UTF-8: byte {at} is 0x{:02x}", bytes[at]))
        .help(format!("{word} files are UTF-8; save the file in that encoding"))
}

/// The error without the "(os error 2)" that says the same once more.
fn plain(e: &std::io::Error) -> String {
    let text = e.to_string();
    match text.find(" (os error") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_and_column_count_characters_from_one() {
        let source = Source::new("x", "ab\nµs = 1\n");
        let at = |start| Origin { source: source.clone(), start, end: start }.line_column();
        assert_eq!(at(0), (1, 1));
        assert_eq!(at(2), (1, 3));
        assert_eq!(at(3), (2, 1));
        assert_eq!(at(5), (2, 2), "the first character has two bytes");
    }
}
