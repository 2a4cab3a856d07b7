//! The one error of all input: what is wrong, where, and what to do about it.

use std::fmt;
use std::sync::Arc;

use miette::{Diagnostic, LabeledSpan, SourceCode};
use serde::de;

use super::nearest::suggestion;
use super::source::{Origin, Source};

/// A mistake in a file or on the command line.
#[derive(Debug)]
pub struct InputError {
    inner: Box<Inner>,
}

#[derive(Debug)]
struct Inner {
    message: String,
    help: Option<String>,
    at: Option<Origin>,
}

impl InputError {
    /// An error without a place.
    pub fn new(message: impl Into<String>) -> Self {
        Self { inner: Box::new(Inner { message: message.into(), help: None, at: None }) }
    }

    /// Adds what to do about it.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.inner.help = Some(help.into());
        self
    }

    /// Adds the place; the first place given stays, as it is the innermost.
    #[must_use]
    pub fn at(mut self, origin: &Origin) -> Self {
        if self.inner.at.is_none() {
            self.inner.at = Some(origin.clone());
        }
        self
    }

    /// Adds the place if there is one.
    #[must_use]
    pub fn at_opt(self, origin: Option<&Origin>) -> Self {
        match origin {
            Some(origin) => self.at(origin),
            None => self,
        }
    }

    /// What is wrong, without the place.
    pub fn message(&self) -> &str {
        &self.inner.message
    }

    /// What to do about it.
    pub fn remedy(&self) -> Option<&str> {
        self.inner.help.as_deref()
    }

    /// Where it is wrong.
    pub fn origin(&self) -> Option<&Origin> {
        self.inner.at.as_ref()
    }
}

/// `file:line:column: message; help`, on one line, for logs and tests.
impl fmt::Display for InputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(at) = &self.inner.at {
            let (line, column) = at.line_column();
            write!(f, "{}:{line}:{column}: ", at.source.name)?;
        }
        f.write_str(&self.inner.message)
    }
}

impl std::error::Error for InputError {}

impl Diagnostic for InputError {
    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.inner.help.as_ref().map(|h| Box::new(h) as Box<dyn fmt::Display>)
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        self.inner.at.as_ref().map(|at| {
            let source: &Arc<Source> = &at.source;
            &**source as &dyn SourceCode
        })
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let at = self.inner.at.as_ref()?;
        let label = LabeledSpan::new(Some("here".to_owned()), at.start, at.end - at.start);
        Some(Box::new(std::iter::once(label)))
    }
}

impl de::Error for InputError {
    /// A line break separates the message from the remedy.
    fn custom<T: fmt::Display>(msg: T) -> Self {
        let text = msg.to_string();
        match text.split_once('\n') {
            Some((message, help)) => Self::new(message).help(help),
            None => Self::new(text),
        }
    }

    fn invalid_type(found: de::Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        Self::new(format!("wrong type: found {}", describe(found)))
            .help(format!("expected {}", in_toml_words(&expected.to_string())))
    }

    fn invalid_value(found: de::Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        Self::new(format!("impossible value: found {}", describe(found)))
            .help(format!("expected {expected}"))
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        Self::new(format!("unknown key `{field}`")).help(suggestion(
            field,
            expected.iter().copied(),
            "keys",
        ))
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        Self::new(format!("unknown value \"{variant}\"")).help(suggestion(
            variant,
            expected.iter().copied(),
            "values",
        ))
    }

    fn missing_field(field: &'static str) -> Self {
        Self::new(format!("the key `{field}` is missing")).help(format!(
            "write `{field} = ...` in this table; `doorbell schema` says what it may be"
        ))
    }
}

/// What was expected, in TOML words instead of serde's.
fn in_toml_words(expected: &str) -> &str {
    match expected {
        "a sequence" => "a list",
        "a map" => "a table",
        "a boolean" => "true or false",
        e if e.starts_with("struct ") => "a table",
        e => e,
    }
}

/// The value found, in TOML words.
fn describe(found: de::Unexpected<'_>) -> String {
    use de::Unexpected as U;
    match found {
        U::Bool(b) => format!("{b}"),
        U::Unsigned(n) => format!("{n}"),
        U::Signed(n) => format!("{n}"),
        U::Float(x) => format!("the decimal {x}"),
        U::Str(s) => format!("the string \"{s}\""),
        U::Map => "a table".to_owned(),
        U::Seq => "a list".to_owned(),
        other => other.to_string(),
    }
}
