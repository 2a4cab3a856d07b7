//! The deaths and stalls of queue pairs, in words.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::table::{Align, Table};
use crate::quantity::Unit;
use crate::run::port_counters::TRAFFIC;
use crate::run::{DeathRow, OtherRnrSetting, OtherSetting, Outcome, QpRow};
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

/// Columns of a paragraph.
const WIDTH: usize = 98;

fn paragraph(d: &DeathRow) -> String {
    let mut out = wrapped("", &d.headline, 2);
    let field = if d.field.is_empty() { String::new() } else { format!(", {}", d.field) };
    out += &wrapped("  ", &format!("why [{}{field}]: {}", d.cause, d.verdict), 6);
    let remedy = ("to live", &d.remedy);
    for (head, lines) in [("seen here", &d.own_side), ("not seen here", &d.other_side), remedy] {
        for (i, line) in lines.iter().enumerate() {
            let head = if i == 0 { head } else { "" };
            out += &wrapped(&format!("  {head:<14}"), line, 18);
        }
    }
    out.push_str(&settings(&d.other_settings));
    out.push_str(&rnr_settings(&d.other_rnr_settings));
    out
}

/// A text in lines of at most [`WIDTH`] columns: the first behind `head`, the others indented.
pub(super) fn wrapped(head: &str, text: &str, indent: usize) -> String {
    let mut out = String::new();
    let mut line = head.to_owned();
    let mut empty = true;
    for word in text.split(' ') {
        if !empty && line.chars().count() + 1 + word.chars().count() > WIDTH {
            let _ = writeln!(out, "{line}");
            line = " ".repeat(indent);
            empty = true;
        }
        if !empty {
            line.push(' ');
        }
        line.push_str(word);
        empty = false;
    }
    let _ = writeln!(out, "{line}");
    out
}

/// When a queue pair without an answer dies, over timeout codes and retry counts.
fn settings(all: &[OtherSetting]) -> String {
    let end = |(least, most): (u64, u64)| match least == most {
        true => print(least),
        false => format!("{} to {}", print(least), print(most)),
    };
    let cell = |s: &OtherSetting| ((s.timeout, s.retry_cnt), s.dies_after_ps.map(end));
    grid(["dies without an answer after", "timeout", "retry_cnt"], all.iter().map(cell).collect())
}

/// When a queue pair without a receive dies, over the receiver's timers and the sender's counts.
fn rnr_settings(all: &[OtherRnrSetting]) -> String {
    let cell = |s: &OtherRnrSetting| ((s.min_rnr_timer, s.rnr_retry), s.dies_after_ps.map(print));
    let words = ["dies of RNR NAKs after", "min_rnr_timer", "rnr_retry"];
    grid(words, all.iter().map(cell).collect())
}

/// A row for each of the first codes, a column for each of the second; nothing without cells.
fn grid([what, row, column]: [&str; 3], all: Vec<((u8, u8), Option<String>)>) -> String {
    if all.is_empty() {
        return String::new();
    }
    let mut counts: Vec<u8> = all.iter().map(|((_, n), _)| *n).collect();
    counts.sort_unstable();
    counts.dedup();
    let head = format!("  {what}");
    let heads: Vec<String> = counts.iter().map(|n| format!("{column} {n}")).collect();
    let mut columns = vec![(head.as_str(), Align::Left)];
    columns.extend(heads.iter().map(|h| (h.as_str(), Align::Right)));
    let mut table = Table::new(&columns);
    for of in all.chunk_by(|((a, _), _), ((b, _), _)| a == b) {
        let mut cells = vec![format!("    {row} {}", of[0].0.0)];
        let end = |(_, end): &(_, Option<String>)| end.clone().unwrap_or("never".to_owned());
        cells.extend(of.iter().map(end));
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
        let told = port.counters.iter().filter(|(c, _)| !TRAFFIC.contains(c));
        let all: Vec<String> = told.map(|(c, n)| format!("{c} {n}")).collect();
        if !all.is_empty() {
            let nic = port.nic.map_or(String::new(), |n| format!(", NIC {n}"));
            let head = format!("port of host {}{nic}: ", port.host);
            out += &wrapped(&head, &all.join(", "), 2);
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

/// Queue pairs named in a line; the rest is counted.
const MAX_NAMED: usize = 8;

/// The queue pairs that died, each with its cause, in one line.
pub(crate) fn dead_line(qps: &[QpRow]) -> Option<String> {
    let dead = || qps.iter().filter_map(|q| Some((q, q.death.as_ref().filter(|d| d.died)?)));
    let n = dead().count();
    let named: Vec<String> = dead()
        .take(MAX_NAMED)
        .map(|(q, d)| format!("QP {} of host {} ({})", q.qpn, q.host, d.cause))
        .collect();
    let more = match n.saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    (n > 0).then(|| format!("died: {}{more}", named.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_broken_between_words_and_not_too_early() {
        assert_eq!(wrapped("  why ", "a b", 6), "  why a b\n");
        let fits = "x".repeat(WIDTH - 4);
        assert_eq!(wrapped("", &format!("abc {fits}"), 2).lines().count(), 1);
        let over = format!("abcd {fits} y");
        assert_eq!(wrapped("", &over, 2), format!("abcd\n  {fits} y\n"));
    }

    #[test]
    fn the_dead_are_named_and_those_that_wait_are_not() {
        let row = |qpn, died| QpRow {
            qpn,
            host: 3,
            death: Some(DeathRow { died, cause: "refused", ..DeathRow::default() }),
            ..QpRow::default()
        };
        let line = dead_line(&[row(16, true), row(17, false), QpRow::default()]);
        assert_eq!(line.as_deref(), Some("died: QP 16 of host 3 (refused)"));
        assert_eq!(dead_line(&[row(17, false)]), None);
        let many: Vec<QpRow> = (0..10).map(|n| row(n, true)).collect();
        let line = dead_line(&many).unwrap();
        assert!(line.contains("QP 7 ") && line.ends_with("(refused), and 2 more"), "{line}");
        assert!(!dead_line(&many[..8]).unwrap().contains("more"));
    }

    #[test]
    fn many_of_a_cause_are_counted_and_other_causes_are_not_hidden() {
        let row = |qpn, cause| QpRow {
            qpn,
            death: Some(DeathRow { cause, headline: format!("QP {qpn}"), ..DeathRow::default() }),
            ..QpRow::default()
        };
        let mut qps: Vec<QpRow> = (0..5).map(|n| row(n, "refused")).collect();
        qps.push(row(9, "device"));
        let text = deaths_text(&Outcome { qps: qps.clone(), ..Outcome::default() });
        assert!(text.contains("QP 1\n") && !text.contains("QP 2\n"), "{text}");
        assert!(text.contains("QP 9\n") && text.contains("and 3 more of cause refused"), "{text}");
        let line = deaths_line(&qps).unwrap();
        assert!(line.contains("refused (the first of 5): QP 0"), "{line}");
        qps.clear();
        assert_eq!(deaths_line(&qps), None);
        assert_eq!(deaths_text(&Outcome::default()), "");
    }
}
