//! The deaths and stalls of queue pairs, in words.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::table::{Align, Table};
use crate::quantity::Unit;
use crate::run::{DeathRow, OtherSetting, Outcome, QpRow};
use doorbell_core::units::Span;

/// Queue pairs that are explained in full, of each cause; the rest is counted, and in the JSON.
const MAX_OF_A_CAUSE: usize = 2;

/// A paragraph for each; nothing when all are well.
pub(super) fn deaths_text(outcome: &Outcome) -> String {
    let mut out = String::new();
    let mut seen: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for row in &outcome.qps {
        let Some(death) = &row.death else { continue };
        let n = seen.entry((death.cause, &death.field)).or_default();
        *n += 1;
        if *n <= MAX_OF_A_CAUSE {
            out.push_str(&paragraph(death));
        }
    }
    for ((cause, field), n) in seen.into_iter().filter(|(_, n)| *n > MAX_OF_A_CAUSE) {
        let field = if field.is_empty() { String::new() } else { format!(" ({field})") };
        let _ = writeln!(out, "and {} more of cause {cause}{field}", n - MAX_OF_A_CAUSE);
    }
    if !out.is_empty() {
        out.push_str(&ports(outcome));
    }
    out
}

fn paragraph(d: &DeathRow) -> String {
    let mut out = format!("{}\n", d.headline);
    let field = if d.field.is_empty() { String::new() } else { format!(", {}", d.field) };
    let _ = writeln!(out, "  why [{}{field}]: {}", d.cause, d.verdict);
    for (head, lines) in [("seen here", &d.own_side), ("not seen here", &d.other_side)] {
        for (i, line) in lines.iter().enumerate() {
            let head = if i == 0 { head } else { "" };
            let _ = writeln!(out, "  {head:<14}{line}");
        }
    }
    d.remedy.iter().for_each(|line| {
        let _ = writeln!(out, "  {:<14}{line}", "to live");
    });
    out.push_str(&settings(&d.other_settings));
    out
}

/// When a queue pair without an answer dies, over timeout codes and retry counts.
fn settings(all: &[OtherSetting]) -> String {
    if all.is_empty() {
        return String::new();
    }
    let mut counts: Vec<u8> = all.iter().map(|s| s.retry_cnt).collect();
    counts.sort_unstable();
    counts.dedup();
    let heads: Vec<String> = counts.iter().map(|n| format!("retry_cnt {n}")).collect();
    let mut columns = vec![("  dies without an answer after", Align::Left)];
    columns.extend(heads.iter().map(|h| (h.as_str(), Align::Right)));
    let mut table = Table::new(&columns);
    for of in all.chunk_by(|a, b| a.timeout == b.timeout) {
        let mut cells = vec![format!("    timeout {}", of[0].timeout)];
        cells.extend(of.iter().map(|s| match s.dies_after_ps {
            None => "never".to_owned(),
            Some((least, most)) if least == most => print(least),
            Some((least, most)) => format!("{} to {}", print(least), print(most)),
        }));
        table.row(cells);
    }
    table.render(0)
}

fn print(ps: u64) -> String {
    Span::from_ps(ps).print()
}

/// Counters of the ports and queue pairs, where something went wrong.
fn ports(outcome: &Outcome) -> String {
    let mut out = String::new();
    for port in &outcome.ports {
        let all: Vec<String> = port.counters.iter().map(|(c, n)| format!("{c} {n}")).collect();
        if !all.is_empty() {
            let _ = writeln!(out, "port of host {}: {}", port.host, all.join(", "));
        }
    }
    out
}

/// One line for each cause, for reports of many points.
pub(super) fn deaths_line(qps: &[QpRow]) -> Option<String> {
    let mut causes: BTreeMap<&str, (usize, &DeathRow)> = BTreeMap::new();
    for death in qps.iter().filter_map(|q| q.death.as_ref()) {
        causes.entry(death.cause).or_insert((0, death)).0 += 1;
    }
    let lines = causes.into_iter().map(|(cause, (n, first))| {
        let times = if n > 1 { format!(" (the first of {n})") } else { String::new() };
        format!("{cause}{times}: {}: {}", first.headline, first.verdict)
    });
    let lines: Vec<String> = lines.collect();
    (!lines.is_empty()).then(|| lines.join("\n  "))
}
