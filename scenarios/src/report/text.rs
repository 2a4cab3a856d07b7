//! The report for a terminal.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::deaths::deaths_line;
use super::detail::detail_text;
use super::notes::{alike, notes_text};
use super::summary::summary_text;
use super::{Report, Rows};
use crate::expect::{Check, Status, Verdict};
use crate::profile::{Confidence, Profile};
use crate::run::MODEL_VERSION;

/// Checks listed under a failed expectation.
const MAX_CHECKS: usize = 8;

/// The whole report. `rows`: how much of the tables of a single point.
pub fn to_text(report: &Report, rows: Rows) -> String {
    let mut out = header(report);
    if report.runs.len() == 1 {
        out.push_str(&detail_text(&report.runs[0], rows));
    } else {
        out.push_str(&summary_text(report));
        out.push_str(&notes_text(report));
        for run in report.runs.iter().filter(|r| !r.outcome.exit.reason.is_empty()) {
            let exit = &run.outcome.exit;
            let (label, word) = (run.point.label(), exit.kind.word());
            let _ = writeln!(out, "{label}: {word}: {}", alike(&exit.reason));
        }
        for run in &report.runs {
            if let Some(line) = deaths_line(&run.outcome.qps) {
                let _ = writeln!(out, "{}:\n  {line}", run.point.label());
            }
        }
    }
    if !report.verdicts.is_empty() {
        out.push('\n');
        report.verdicts.iter().for_each(|v| out.push_str(&verdict_lines(v)));
    }
    out
}

fn header(report: &Report) -> String {
    let claims = match report.claims.is_empty() {
        true => String::new(),
        false => format!(" [{}]", report.claims.join(", ")),
    };
    let mut out = format!("{}: {}{claims}\n", report.name, report.title);
    let mut profiles: Vec<&Profile> = Vec::new();
    for run in &report.runs {
        if !profiles.iter().any(|p| **p == *run.point.profile) {
            profiles.push(&run.point.profile);
        }
    }
    // A sweep over a parameter gives many profiles of one name; the first stands for all.
    profiles.dedup_by_key(|p| p.name.clone());
    for profile in profiles {
        let _ = writeln!(
            out,
            "simulated, model {MODEL_VERSION}, profile {} ({})",
            profile.name,
            calibration(profile)
        );
    }
    out.push('\n');
    out
}

/// How many parameters stand on what.
pub(super) fn calibration_counts(profile: &Profile) -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    for provenance in profile.provenance.values() {
        *counts.entry(provenance.confidence.word()).or_insert(0) += 1;
    }
    counts
}

fn calibration(profile: &Profile) -> String {
    let counts = calibration_counts(profile);
    let order = Confidence::WORDS.iter().map(|(_, c)| c.word()).chain([Confidence::Set.word()]);
    let parts: Vec<String> =
        order.filter_map(|word| counts.get(word).map(|n| format!("{n} {word}"))).collect();
    format!("parameters: {}", parts.join(", "))
}

/// One expectation: verdict, what was expected, why, and what was found.
pub fn verdict_lines(verdict: &Verdict) -> String {
    let word = match verdict.status {
        Status::Passed => "ok      ",
        Status::Failed => "FAILED  ",
        Status::Skipped => "skipped ",
        Status::Invalid => "INVALID ",
    };
    let mut out = format!("{word}{}: {}\n", verdict.expected, verdict.why);
    let mut line = |text: String| {
        let _ = writeln!(out, "        {text}");
    };
    if !verdict.problem.is_empty() {
        line(verdict.problem.clone());
    }
    let failed: Vec<&Check> = verdict.checks.iter().filter(|c| !c.ok).collect();
    match (verdict.checks.len(), failed.len()) {
        (0, _) => {}
        (1, _) => line(format!("found {}", found(&verdict.checks[0]))),
        (n, 0) => line(format!(
            "found {} … {} ({n} points)",
            found(&verdict.checks[0]),
            found(&verdict.checks[n - 1])
        )),
        (n, bad) => {
            failed
                .iter()
                .take(MAX_CHECKS)
                .for_each(|check| line(format!("found {}", found(check))));
            line(format!("{bad} of {n} points are not as expected"));
        }
    }
    out
}

fn found(check: &Check) -> String {
    if check.at.is_empty() {
        return check.found.clone();
    }
    format!("{} ({})", check.found, check.at)
}
