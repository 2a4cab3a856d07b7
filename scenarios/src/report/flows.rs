//! Flows: how long they took, by size, and who was slowed down by others' traffic.

use std::fmt::Write as _;

use doorbell_core::units::{Bytes, Span};

use super::Rows;
use super::table::{Align, Table};
use crate::quantity::Unit;
use crate::run::{BucketRow, FlowRow, Metric, Outcome};

/// Victims that are listed; the rest by `--full`, and in the JSON.
const MAX_VICTIMS: usize = 10;

/// The section; empty without flows.
pub(super) fn flows_text(outcome: &Outcome, rows: Rows) -> String {
    let Some(report) = &outcome.flows else { return String::new() };
    let right = |name| (name, Align::Right);
    let mut table = Table::new(&[
        ("flows of", Align::Left),
        right("size"),
        right("flows"),
        right("time p50"),
        right("p95"),
        right("p99"),
        right("max"),
        right("slowdown p50"),
        right("p95"),
        right("p99"),
        right("max"),
    ]);
    for row in &report.buckets {
        table.row(cells(row));
    }
    let mut out = table.render(0);
    let victims: Vec<&FlowRow> = report.flows.iter().filter(|f| f.victim).collect();
    if victims.is_empty() {
        return out;
    }
    let right = |name| (name, Align::Right);
    let mut table = Table::new(&[
        ("victim", Align::Left),
        right("from"),
        right("to"),
        right("bytes"),
        right("time"),
        right("slowdown"),
        right("shares an end with"),
    ]);
    for f in victims.iter().take(rows.most(MAX_VICTIMS)) {
        table.row(vec![
            format!("{} {}", f.program, f.flow).trim().to_owned(),
            format!("host{}", f.src),
            format!("host{}", f.dst),
            f.bytes.to_string(),
            f.fct_ps.map_or("unfinished".into(), time),
            f.slowdown_ppm.map_or("-".into(), factor),
            format!("{} flows", f.share - 1),
        ]);
    }
    let _ = write!(out, "\n{}", table.render(0));
    out
}

fn time(ps: u64) -> String {
    Metric::time(Span::from_ps(ps)).text()
}

fn factor(ppm: u64) -> String {
    format!("{}.{:02}", ppm / 1_000_000, ppm % 1_000_000 / 10_000)
}

fn cells(row: &BucketRow) -> Vec<String> {
    let mut cells = vec![
        if row.program.is_empty() { "all".to_owned() } else { row.program.clone() },
        size(row),
        row.flows.to_string(),
    ];
    cells.extend(row.fct_ps.iter().map(|ps| time(*ps)));
    cells.extend(row.slowdown_ppm.iter().map(|ppm| factor(*ppm)));
    cells
}

/// The sizes of a class.
fn size(row: &BucketRow) -> String {
    let bytes = |n| Bytes(n).print();
    match (row.above, row.up_to) {
        (_, Some(most)) => format!("up to {}", bytes(most)),
        (0, None) => String::new(),
        (above, None) => format!("above {}", bytes(above)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_class_of_sizes_has_no_end() {
        let text = |above, up_to| {
            let all = [0; 4];
            let (program, flows) = (String::new(), 1);
            let (fct_ps, slowdown_ppm) = (all, all);
            size(&BucketRow { program, above, up_to, flows, fct_ps, slowdown_ppm })
        };
        assert_eq!(text(0, None), "");
        assert_eq!(text(1_000_000, Some(10_000_000)), "up to 10MB");
        assert_eq!(text(10_000_000, None), "above 10MB");
    }
}
