//! JUnit XML for CI systems: a suite per file, a test case per expectation.

use std::fmt::Write as _;

use super::text::verdict_lines;
use crate::expect::{Status, Verdict};

/// A scenario file as a test suite.
#[derive(Clone, Debug)]
pub struct Suite {
    /// Name of the scenario.
    pub name: String,
    /// Its expectations, if it could be run.
    pub verdicts: Vec<Verdict>,
    /// Why it could not.
    pub error: Option<String>,
}

/// The document. It has no times and no dates: those would differ from run to run.
pub fn to_junit(suites: &[Suite]) -> String {
    let mut body = String::new();
    let mut total = Counts::default();
    for suite in suites {
        let counts = Counts::of(suite);
        let _ = writeln!(body, "  <testsuite name=\"{}\" {}>", escape(&suite.name), counts.text());
        suite.verdicts.iter().for_each(|v| case(&mut body, &suite.name, v));
        if let Some(error) = &suite.error {
            let name = escape(&suite.name);
            let _ = writeln!(body, "    <testcase classname=\"{name}\" name=\"load\">");
            let _ = writeln!(body, "      <error>{}</error>", escape(error));
            body.push_str("    </testcase>\n");
        }
        body.push_str("  </testsuite>\n");
        total.add(&counts);
    }
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"doorbell\" {}>\n\
         {body}</testsuites>\n",
        total.text()
    )
}

fn case(out: &mut String, suite: &str, verdict: &Verdict) {
    let name = escape(&format!("{}: {}", verdict.expected, verdict.why));
    let _ = write!(out, "    <testcase classname=\"{}\" name=\"{name}\"", escape(suite));
    let tag = match verdict.status {
        Status::Passed => {
            out.push_str("/>\n");
            return;
        }
        Status::Failed => "failure",
        Status::Invalid => "error",
        Status::Skipped => "skipped",
    };
    let text = escape(verdict_lines(verdict).trim_end());
    let _ = writeln!(out, ">\n      <{tag}>{text}</{tag}>\n    </testcase>");
}

#[derive(Default)]
struct Counts {
    tests: usize,
    failures: usize,
    errors: usize,
    skipped: usize,
}

impl Counts {
    fn of(suite: &Suite) -> Self {
        let with = |status| suite.verdicts.iter().filter(|v| v.status == status).count();
        let load = usize::from(suite.error.is_some());
        Self {
            tests: suite.verdicts.len() + load,
            failures: with(Status::Failed),
            errors: with(Status::Invalid) + load,
            skipped: with(Status::Skipped),
        }
    }

    fn add(&mut self, other: &Self) {
        self.tests += other.tests;
        self.failures += other.failures;
        self.errors += other.errors;
        self.skipped += other.skipped;
    }

    fn text(&self) -> String {
        let Self { tests, failures, errors, skipped } = self;
        format!(
            "tests=\"{tests}\" failures=\"{failures}\" errors=\"{errors}\" skipped=\"{skipped}\""
        )
    }
}

/// Escapes markup and replaces characters that XML 1.0 cannot hold at all.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' | '\t' => out.push(c),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}
