//! The table of several points: what was varied, and the figures that matter.

use super::Report;
use super::table::{Align, Table};
use crate::run::{ExitKind, Run};

/// Figures shown when they are there and no expectation names others.
const USUAL: [&str; 7] = [
    "throughput",
    "message_rate",
    "latency.p50",
    "latency.p99",
    "doorbells",
    "mmio_writes",
    "pcie.bytes",
];

/// Columns beyond this number make lines that nobody can read.
const MAX_METRICS: usize = 10;

/// Columns for error counters that are not zero.
const MAX_COUNTERS: usize = 4;

pub(super) fn summary_text(report: &Report) -> String {
    let Some(first) = report.runs.first() else {
        return String::new();
    };
    let axes: Vec<&str> = first.point.axes.iter().map(|a| a.name.as_str()).collect();
    let metrics = metric_columns(report);
    let mut columns = vec![("variant", Align::Left)];
    columns.extend(axes.iter().map(|name| (*name, Align::Right)));
    columns.extend(metrics.iter().map(|name| (name.as_str(), Align::Right)));
    columns.extend([("limited by", Align::Left), ("exit", Align::Left)]);
    let mut table = Table::new(&columns);
    for run in &report.runs {
        table.row(row(run, &metrics));
    }
    table.without_empty_columns().render(0)
}

fn row(run: &Run, metrics: &[String]) -> Vec<String> {
    let mut cells = vec![run.point.variant.clone().unwrap_or_default()];
    cells.extend(run.point.axes.iter().map(|a| a.text.clone()));
    let text = |name: &String| run.outcome.find(name).map(|f| f.text()).unwrap_or_default();
    cells.extend(metrics.iter().map(text));
    cells.push(run.outcome.limiting.clone().unwrap_or_default());
    cells.push(match run.outcome.exit.kind {
        ExitKind::Ok => String::new(),
        kind => kind.word().to_owned(),
    });
    cells
}

/// The metrics of the expectations first, then the usual ones, then error counters.
fn metric_columns(report: &Report) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let there = |name: &str| report.runs.iter().any(|r| r.outcome.find(name).is_some());
    let words = ["exit", "exit.reason", "limiting"];
    let expected = report.metrics.iter().map(String::as_str);
    for name in expected.chain(USUAL) {
        let new = !names.iter().any(|n| n == name) && !words.contains(&name);
        if new && names.len() < MAX_METRICS && there(name) {
            names.push(name.to_owned());
        }
    }
    // A run that is fast and sick must not look like a fast one.
    let sick = report.runs.iter().flat_map(|r| &r.outcome.counters).filter(|(_, n)| **n > 0);
    for name in sick.map(|(name, _)| format!("counter.{name}")) {
        if names.len() < MAX_METRICS + MAX_COUNTERS && !names.contains(&name) {
            names.push(name);
        }
    }
    names
}
