//! The table of several points: what was varied, and the figures that matter.
//!
//! Columns, in this order and as far as a line reaches: what expectations name, the first error
//! counters that differ between the points, throughput and latency where they differ, other
//! counters that differ. What is the same at every point is told once, below. Signs of a sick run
//! that differ and find no room have a table of their own: throughput does not show them.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::Report;
use super::table::{Align, Table};
use crate::run::port_counters::TRAFFIC;
use crate::run::{ExitKind, Run, SIGNS};

/// Figures shown when they differ and no expectation names others.
const USUAL: [&str; 9] = [
    "throughput",
    "message_rate",
    "latency.p50",
    "latency.p99",
    "doorbells",
    "mmio_writes",
    "pcie.bytes",
    "copies_per_byte",
    "moves_per_byte",
];

/// Counters that are zero in a healthy run, the telling ones first.
const ERRORS: [&str; 24] = [
    "req_transport_retries_exceeded",
    "req_rnr_retries_exceeded",
    "local_ack_timeout_err",
    "packet_seq_err",
    "implied_nak_seq_err",
    "rnr_nak_retry_err",
    "out_of_buffer",
    "out_of_sequence",
    "duplicate_request",
    "retransmitted_packets",
    "req_remote_access_errors",
    "req_remote_invalid_request",
    "resp_remote_access_errors",
    "resp_local_length_error",
    "req_cqe_error",
    "resp_cqe_error",
    "rx_icrc_encapsulated",
    "tail_drop",
    "fault_drop",
    "link_down",
    "oversize",
    "no_route",
    "rx_dropped",
    "cq_overruns",
];

/// Error counters in front of throughput and latency, which are not to be pushed out by them.
const FIRST_ERRORS: usize = 4;

/// Longest line of a table.
const MAX_LINE: usize = 199;

pub(super) fn summary_text(report: &Report) -> String {
    let Some(first) = report.runs.first() else {
        return String::new();
    };
    let axes: Vec<&str> = first.point.axes.iter().map(|a| a.name.as_str()).collect();
    let mut chosen = Columns::of(report);
    chosen.fit(report);
    let mut columns = vec![("variant", Align::Left)];
    columns.extend(axes.iter().map(|name| (*name, Align::Right)));
    // Ahead of the figures: those of a run that did not end well are no better for being high.
    columns.push(("exit", Align::Left));
    columns.extend(chosen.shown.iter().map(|name| (name.as_str(), Align::Right)));
    columns.push(("limited by", Align::Left));
    let mut table = Table::new(&columns);
    for run in &report.runs {
        table.row(row(run, &chosen.shown));
    }
    table.without_empty_columns().render(0) + &chosen.signs(report) + &chosen.rest()
}

fn value(run: &Run, name: &str) -> String {
    run.outcome.find(name).map(|f| f.text()).unwrap_or_default()
}

/// Cells that every row has, in front of the metrics and behind them.
fn fixed(run: &Run) -> (Vec<String>, String) {
    let mut front = vec![run.point.variant.clone().unwrap_or_default()];
    front.extend(run.point.axes.iter().map(|a| a.text.clone()));
    let exit = match run.outcome.exit.kind {
        ExitKind::Ok => String::new(),
        kind => kind.word().to_owned(),
    };
    front.push(exit);
    (front, run.outcome.limiting.clone().unwrap_or_default())
}

fn row(run: &Run, metrics: &[String]) -> Vec<String> {
    let (mut cells, behind) = fixed(run);
    cells.extend(metrics.iter().map(|name| value(run, name)));
    cells.push(behind);
    cells
}

/// What is told about the metrics of the points.
struct Columns {
    /// Columns of the table.
    shown: Vec<String>,
    /// Usual figures and error counters that are the same everywhere, with their value.
    same: Vec<String>,
    /// Columns for which there is no room.
    left_out: Vec<String>,
}

impl Columns {
    fn of(report: &Report) -> Self {
        let runs = &report.runs;
        let there = |name: &str| runs.iter().any(|r| r.outcome.find(name).is_some());
        let differs = |name: &str| {
            let first = runs.first().map(|r| r.outcome.find(name));
            runs.iter().any(|r| Some(r.outcome.find(name)) != first)
        };
        let words = ["exit", "exit.reason", "limiting"];
        let mut shown: Vec<String> = Vec::new();
        for name in &report.metrics {
            if !shown.contains(name) && !words.contains(&name.as_str()) && there(name) {
                shown.push(name.clone());
            }
        }
        let errors = ERRORS.map(|name| format!("counter.{name}"));
        let usual = USUAL.map(str::to_owned);
        let all: BTreeSet<&String> = runs.iter().flat_map(|r| r.outcome.counters.keys()).collect();
        let named = |name: &str| ERRORS.contains(&name) || TRAFFIC.contains(&name);
        let others = all.into_iter().filter(|name| !named(name));
        let others = others.map(|name| format!("counter.{name}"));
        let first = errors.iter().filter(|name| differs(name)).take(FIRST_ERRORS);
        let names = first.cloned().chain(usual).chain(errors.iter().cloned()).chain(others);
        let mut same = Vec::new();
        for name in names {
            if shown.contains(&name) || !there(&name) {
                continue;
            }
            if differs(&name) {
                shown.push(name);
            } else if let Some(text) = runs.first().map(|r| value(r, &name))
                && text != "0"
                && (errors.contains(&name) || USUAL.contains(&name.as_str()))
            {
                same.push(format!("{name} {text}"));
            }
        }
        Self { shown, same, left_out: Vec::new() }
    }

    /// Leaves out what makes lines longer than [`MAX_LINE`].
    fn fit(&mut self, report: &Report) {
        let width = |header: &str, cells: &mut dyn Iterator<Item = String>| {
            let widest = cells.map(|c| c.chars().count()).max().unwrap_or(0);
            // Empty columns are not printed.
            if widest == 0 { 0 } else { widest.max(header.chars().count()) + 2 }
        };
        let axes = report.runs[0].point.axes.iter().map(|a| a.name.as_str());
        let mut line = 0;
        let front = std::iter::once("variant").chain(axes).chain(["exit"]);
        for (i, header) in front.enumerate() {
            line += width(header, &mut report.runs.iter().map(|r| fixed(r).0[i].clone()));
        }
        line += width("limited by", &mut report.runs.iter().map(|r| fixed(r).1));
        let (mut shown, mut left_out) = (Vec::new(), Vec::new());
        for name in self.shown.drain(..) {
            let more = width(&name, &mut report.runs.iter().map(|r| value(r, &name)));
            if line + more <= MAX_LINE {
                line += more;
                shown.push(name);
            } else {
                left_out.push(name);
            }
        }
        (self.shown, self.left_out) = (shown, left_out);
    }

    /// A table of the signs that differ and found no room.
    fn signs(&mut self, report: &Report) -> String {
        let is_sign =
            |name: &String| SIGNS.iter().any(|s| name.strip_prefix("counter.") == Some(s));
        let (signs, others) = self.left_out.drain(..).partition(is_sign);
        self.left_out = others;
        let signs: Vec<String> = signs;
        if signs.is_empty() {
            return String::new();
        }
        let axes = report.runs[0].point.axes.iter().map(|a| (a.name.as_str(), Align::Right));
        let mut columns = vec![("variant", Align::Left)];
        columns.extend(axes);
        columns.push(("exit", Align::Left));
        // The words that all have in common would make the lines too long.
        columns.extend(signs.iter().map(|s| (s.trim_start_matches("counter."), Align::Right)));
        let mut table = Table::new(&columns);
        for run in &report.runs {
            let mut cells = fixed(run).0;
            cells.extend(signs.iter().map(|name| value(run, name)));
            table.row(cells);
        }
        let head =
            "\nlost, damaged, refused or sent twice (counter.…), which throughput does not show\n";
        head.to_owned() + &table.without_empty_columns().render(0) + "\n"
    }

    /// What the table does not have.
    fn rest(&self) -> String {
        let mut out = String::new();
        if !self.same.is_empty() {
            out += &super::deaths::wrapped("the same at all points: ", &self.same.join(", "), 2);
        }
        if !self.left_out.is_empty() {
            let _ = writeln!(
                out,
                "{} more metrics differ between the points: --json has them, and one point alone \
                 (--variant, --set) is shown in full",
                self.left_out.len()
            );
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{loaded, runs};

    const TWO: &str = "title = 't'\nprofile = 'generic-400g'\n[[program]]\nkind = 'message-rate'\n\
        iterations = 4\nsize = '8B'\n[sweep]\n'program.0.size' = ['8B', '1KiB']\n";

    fn with(counters: &[(&str, [u64; 2])], expect: &str) -> String {
        let text = format!("{TWO}{expect}");
        let mut runs = runs(&text, &[]);
        for (name, values) in counters {
            for (run, value) in runs.iter_mut().zip(values) {
                run.outcome.counters.insert((*name).to_owned(), *value);
            }
        }
        summary_text(&Report::new("t".into(), &loaded(&text, &[]).unwrap(), runs))
    }

    #[test]
    fn errors_that_differ_come_before_speed_and_before_other_counters() {
        let text = with(
            &[("aaa", [1, 2]), ("packet_seq_err", [0, 7]), ("local_ack_timeout_err", [0, 1])],
            "[[expect]]\nkind='range'\nmetric='mmio_writes'\nmin=1\nwhy='w'\n",
        );
        let header = "size  mmio_writes  counter.local_ack_timeout_err  counter.packet_seq_err  \
                      throughput  latency.p50  latency.p99  counter.aaa  ";
        assert!(text.starts_with(header), "{text}");
    }

    #[test]
    fn many_errors_do_not_push_out_throughput() {
        let all = ERRORS.map(|name| (name, [0, 1]));
        let text = with(&all, "");
        let header = text.lines().next().unwrap_or_default();
        let (fourth, speed) = (header.find("packet_seq_err"), header.find("throughput"));
        assert!(fourth.is_some() && fourth < speed, "{text}");
        assert!(header.contains("latency.p99"), "{text}");
    }

    #[test]
    fn signs_that_differ_and_find_no_room_have_a_table_of_their_own() {
        let before: Vec<String> = (0..12).map(|n| format!("some_long_name_{n:02}")).collect();
        let metrics = before.iter().map(|n| format!("counter.{n}"));
        let expects: String = metrics
            .map(|m| format!("[[expect]]\nkind='range'\nmetric='{m}'\nmin=1\nwhy='w'\n"))
            .collect();
        let mut counters: Vec<_> = before.iter().map(|n| (n.as_str(), [1, 2])).collect();
        counters.extend([("rx_icrc_encapsulated", [0, 30]), ("out_of_buffer", [4, 4])]);
        let text = with(&counters, &expects);
        let (first, signs) = text.split_once("lost, damaged, refused").expect(&text);
        assert!(!first.contains("rx_icrc_encapsulated"), "{text}");
        let table = "\nsize  rx_icrc_encapsulated\n  8B                     0\n\
                     1KiB                    30\n";
        assert!(signs.contains(table), "{text}");
        assert!(!signs.contains("out_of_buffer  "), "the same everywhere: {text}");
        assert!(!with(&[("rx_icrc_encapsulated", [0, 30])], "").contains("lost, damaged"));
    }

    #[test]
    fn what_is_the_same_is_told_once_and_zero_not_at_all() {
        let text = with(&[("packet_seq_err", [3, 3]), ("out_of_buffer", [0, 0])], "");
        let (table, below) = text.split_once("the same at all points: ").expect(&text);
        assert!(!table.contains("packet_seq_err") && !table.contains("doorbells"), "{text}");
        assert_eq!(below.matches("counter.packet_seq_err 3").count(), 1, "{text}");
        assert!(below.contains("doorbells 4") && !text.contains("out_of_buffer"), "{text}");
        assert!(!text.contains("more metrics"), "{text}");
    }

    #[test]
    fn lines_end_before_200_columns_and_what_is_left_out_is_counted() {
        let names: Vec<String> = (0..20).map(|n| format!("some_long_name_{n:02}")).collect();
        let counters: Vec<_> = names.iter().map(|n| (n.as_str(), [1, 2])).collect();
        let text = with(&counters, "");
        let longest = text.lines().map(|l| l.chars().count()).max().unwrap_or(0);
        assert!((170..200).contains(&longest), "{longest}: {text}");
        let shown = text.lines().next().unwrap().matches("some_long_name").count();
        let rest = format!("{} more metrics differ between the points", 20 - shown);
        assert!(shown > 0 && text.contains(&rest), "{text}");
    }
}
