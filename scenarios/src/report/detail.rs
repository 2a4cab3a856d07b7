//! The full report of one point.

use std::fmt::Write as _;

use super::Rows;
use super::deaths::{deaths_text, wrapped};
use super::flows::flows_text;
use super::series::{ports_text, series_text};
use super::table::{Align, Table};
use super::timeline::timeline_text;
use super::tune::steps_table;
use crate::quantity::Unit;
use crate::run::{
    LatencySummary, Metric, MetricUnit, NoteKind, Outcome, ResourceUse, Run, number_text,
};
use doorbell_core::units::Span;

/// Resources shown; the rest by `--full`, and in the JSON.
const MAX_RESOURCES: usize = 10;

/// Metrics shown likewise: those of a run with a few programs.
const MAX_METRICS: usize = 100;

/// Everything that one run yielded, section by section; empty sections are left out.
pub(super) fn detail_text(run: &Run, rows: Rows) -> String {
    let outcome = &run.outcome;
    let sections = [
        metrics(outcome, rows),
        words(outcome),
        latencies(outcome),
        flows_text(outcome, rows),
        tuning(outcome),
        pcie(outcome),
        resources(outcome, rows),
        ports_text(outcome, rows),
        series_text(outcome),
        counters(outcome),
        faults(outcome),
        effective(outcome),
        deaths_text(outcome),
        notes(outcome),
        outcome.timeline.as_deref().map(timeline_text).unwrap_or_default(),
        end(outcome),
    ];
    let sections: Vec<String> = sections.into_iter().filter(|s| !s.is_empty()).collect();
    sections.join("\n")
}

/// What a run on hardware yielded: what only the simulator knows has no section.
#[cfg(feature = "hw")]
pub(crate) fn measured_text(outcome: &Outcome) -> String {
    let sections = [
        metrics(outcome, Rows::All),
        words(outcome),
        latencies(outcome),
        counters(outcome),
        effective(outcome),
        notes(outcome),
        exit_text(outcome) + "\n",
    ];
    let sections: Vec<String> = sections.into_iter().filter(|s| !s.is_empty()).collect();
    sections.join("\n")
}

/// Those of the whole run first, then those of classes and programs; numbers in names by their
/// size, not digit by digit.
fn metrics(outcome: &Outcome, rows: Rows) -> String {
    let mut table = Table::new(&[("metric", Align::Left), ("value", Align::Right)]);
    let mut all: Vec<_> = outcome.metrics.iter().collect();
    all.sort_by_cached_key(|(name, _)| (name.contains('.'), natural(name)));
    let most = rows.most(MAX_METRICS);
    for (name, metric) in all.iter().take(most) {
        table.row(vec![(*name).clone(), metric.text()]);
    }
    let mut out = if table.is_empty() { String::new() } else { table.render(0) };
    if let Some(more) = all.len().checked_sub(most).filter(|n| *n > 0) {
        let _ = writeln!(out, "  and {more} more: --full shows them");
    }
    out
}

/// A name as a key by which `port10` comes after `port9`: its numbers in front of equal length.
fn natural(name: &str) -> String {
    let mut key = String::new();
    let mut digits = String::new();
    for c in name.chars().chain(['\0']) {
        if c.is_ascii_digit() {
            digits.push(c);
            continue;
        }
        if !digits.is_empty() {
            let _ = write!(key, "{digits:0>20}");
            digits.clear();
        }
        key.push(c);
    }
    key
}

/// What the programs' own tuners did.
fn tuning(outcome: &Outcome) -> String {
    if outcome.tuning.is_empty() {
        return String::new();
    }
    format!("tuner\n{}", steps_table(&outcome.tuning, 2))
}

/// What came of steps, and the statuses of completions in their order.
fn words(outcome: &Outcome) -> String {
    let said = |(name, word): (&String, &String)| {
        let word = if word.is_empty() { "none" } else { word };
        wrapped(&format!("{name}: "), word, 2)
    };
    outcome.words.iter().map(said).collect()
}

fn latencies(outcome: &Outcome) -> String {
    let mut columns = vec![("time of a message", Align::Left)];
    columns.extend(LatencySummary::FIGURES.map(|f| (f, Align::Right)));
    let mut table = Table::new(&columns);
    for (name, summary) in &outcome.latencies {
        let mut cells = vec![name.clone()];
        for figure in LatencySummary::FIGURES {
            let value = summary.figure(figure).unwrap_or(0);
            cells.push(match figure {
                "count" => value.to_string(),
                _ => Metric::time(Span::from_ps(value)).text(),
            });
        }
        table.row(cells);
    }
    if table.is_empty() { String::new() } else { table.render(0) }
}

fn pcie(outcome: &Outcome) -> String {
    let mut table = Table::new(&[
        ("PCIe link", Align::Left),
        ("direction", Align::Left),
        ("cause", Align::Left),
        ("bytes", Align::Right),
        ("TLPs", Align::Right),
    ]);
    for p in &outcome.pcie {
        table.row(vec![
            p.link.clone(),
            p.direction.word().to_owned(),
            p.cause.clone(),
            p.bytes.to_string(),
            p.tlps.to_string(),
        ]);
    }
    if table.is_empty() {
        return String::new();
    }
    let total: u64 = outcome.pcie.iter().map(|p| p.bytes).sum();
    let tlps: u64 = outcome.pcie.iter().map(|p| p.tlps).sum();
    let word = |text: &str| text.to_owned();
    table.row(vec![word("all"), word(""), word(""), total.to_string(), tlps.to_string()]);
    table.render(0)
}

/// Busiest first; ties by name.
pub(super) fn ranked(outcome: &Outcome) -> Vec<&ResourceUse> {
    let mut ranked: Vec<&ResourceUse> = outcome.resources.iter().collect();
    ranked.sort_by(|a, b| {
        let (x, y) = (a.share(), b.share());
        // Cross products: exact, and free of the order in which floats are compared.
        let (x, y) = (u128::from(x.num) * u128::from(y.den), u128::from(y.num) * u128::from(x.den));
        y.cmp(&x).then_with(|| a.name.cmp(&b.name))
    });
    ranked
}

fn resources(outcome: &Outcome, rows: Rows) -> String {
    let mut table = Table::new(&[
        ("resource", Align::Left),
        ("busy", Align::Right),
        ("served", Align::Right),
        ("waited", Align::Right),
        ("", Align::Left),
    ]);
    let ranked = ranked(outcome);
    let most = rows.most(MAX_RESOURCES);
    for r in ranked.iter().take(most) {
        let limiting = outcome.limiting.as_ref() == Some(&r.name);
        let share = r.share().magnitude();
        table.row(vec![
            r.name.clone(),
            format!("{:.1} %", share * 100.0),
            r.served.to_string(),
            Metric::time(r.waited).text(),
            if limiting { "<- limits".to_owned() } else { String::new() },
        ]);
    }
    if table.is_empty() {
        return String::new();
    }
    let mut out = table.render(0);
    if ranked.len() > most {
        let _ = writeln!(out, "  and {} less busy ones", ranked.len() - most);
    }
    match &outcome.limiting {
        Some(name) => {
            let _ = writeln!(out, "limited by {name}");
        }
        None => out.push_str("limited by no resource: by latency, or by what the programs ask\n"),
    }
    out
}

fn counters(outcome: &Outcome) -> String {
    let mut table = Table::new(&[("counter", Align::Left), ("value", Align::Right)]);
    for (name, value) in outcome.counters.iter().filter(|(_, value)| **value > 0) {
        table.row(vec![name.clone(), value.to_string()]);
    }
    let zero = outcome.counters.values().filter(|value| **value == 0).count();
    let mut out = if table.is_empty() { String::new() } else { table.render(0) };
    if zero > 0 {
        let what = if out.is_empty() { "counters" } else { "others" };
        let _ = writeln!(out, "{zero} {what} at zero");
    }
    out
}

fn faults(outcome: &Outcome) -> String {
    let mut table = Table::new(&[
        ("fault", Align::Left),
        ("kind", Align::Left),
        ("matched", Align::Right),
        ("fired", Align::Right),
        ("budget", Align::Right),
        ("first at", Align::Right),
        ("", Align::Left),
    ]);
    for f in &outcome.faults {
        let mut marks = Vec::new();
        if f.fired == 0 {
            marks.push(if f.maybe {
                "never fired, as it may".into()
            } else {
                "NEVER FIRED".into()
            });
        }
        if f.held > 0 {
            marks.push(format!("{} packets are still held", f.held));
        }
        if f.synthetic {
            marks.push("synthetic".to_owned());
        }
        table.row(vec![
            f.id.clone(),
            f.kind.clone(),
            f.matched.to_string(),
            f.fired.to_string(),
            f.budget.map(|b| b.to_string()).unwrap_or_default(),
            f.first.map(|t| Metric::time(t).text()).unwrap_or_default(),
            marks.join(", "),
        ]);
    }
    if table.is_empty() { String::new() } else { table.without_empty_columns().render(0) }
}

fn effective(outcome: &Outcome) -> String {
    let mut table = Table::new(&[
        ("setting", Align::Left),
        ("requested", Align::Right),
        ("effective", Align::Right),
        ("", Align::Left),
    ]);
    for e in &outcome.effective {
        let values = [&e.name, &e.requested, &e.effective, &e.reason];
        table.row(values.map(String::clone).to_vec());
    }
    if table.is_empty() { String::new() } else { table.render(0) }
}

fn notes(outcome: &Outcome) -> String {
    let mut out = String::new();
    for note in &outcome.notes {
        let kind = match note.kind {
            NoteKind::Info => "note",
            NoteKind::Warning => "warning",
            NoteKind::Violation => "VIOLATION",
        };
        let times = if note.count > 1 { format!(" ({} times)", note.count) } else { String::new() };
        let _ = writeln!(out, "{kind} {}: {}{times}", note.name, note.text);
    }
    out
}

fn exit_text(outcome: &Outcome) -> String {
    let mut out = format!("exit {}", outcome.exit.kind.word());
    if !outcome.exit.reason.is_empty() {
        let _ = write!(out, ": {}", outcome.exit.reason);
    }
    out
}

fn end(outcome: &Outcome) -> String {
    let mut out = exit_text(outcome);
    let time = number_text(outcome.sim_time.as_ps() as f64, MetricUnit::Time);
    let _ = write!(
        out,
        "\nsimulated time {time}, {} events, trace hash {}\n",
        outcome.events, outcome.trace_hash
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_tables_of_metrics_are_sorted_and_cut_and_shown_in_full_when_asked() {
        let mut outcome = Outcome::default();
        let mut put = |name: String| outcome.metrics.insert(name, Metric::count(1));
        for n in 0..MAX_METRICS - 1 {
            put(format!("p{n}.messages"));
        }
        put("zeros".to_owned());
        let text = metrics(&outcome, Rows::First);
        let names: Vec<&str> = text.lines().filter_map(|l| l.split(' ').next()).collect();
        assert_eq!(names[1..4], ["zeros", "p0.messages", "p1.messages"], "{text}");
        let at = |name: &str| names.iter().position(|n| *n == name);
        assert!(at("p9.messages") < at("p10.messages") && !text.contains("more:"), "{text}");
        outcome.metrics.insert("q.messages".to_owned(), Metric::count(1));
        let text = metrics(&outcome, Rows::First);
        assert!(text.ends_with("and 1 more: --full shows them\n"), "{text}");
        assert!(!text.contains("q.messages"));
        assert!(metrics(&outcome, Rows::All).contains("q.messages"));
    }

    #[test]
    fn numbers_in_names_are_ordered_by_their_size() {
        let mut names = ["b2", "a10.c3", "a9", "a10.c21", "a", "a10"];
        names.sort_by_cached_key(|name| natural(name));
        assert_eq!(names, ["a", "a9", "a10", "a10.c3", "a10.c21", "b2"]);
    }
}
