//! The report as one page that needs nothing else: no script, no font, no address.

use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, Value};
use serde::Serialize;

use super::plot::series_svgs;
use super::series::{points_line, port_cells};
use super::text::to_text;
use super::{Report, Rows, timeline_svg};
use crate::expect::Status;
use crate::run::{Metric, NoteKind, Run};
use doorbell_core::units::Span;

/// The page. Values are escaped but for pictures, which plotters has escaped.
const PAGE: &str = include_str!("page.html");

/// Ports of the network in a table; the rest is in the JSON.
const MAX_PORTS: usize = 20;

/// Points that are shown one by one. A page of more would be too large to open.
const MAX_POINTS: usize = 32;

#[derive(Serialize)]
struct Page<'a> {
    name: &'a str,
    title: &'a str,
    claims: &'a [String],
    verdicts: Vec<PageVerdict>,
    points: Vec<PagePoint>,
    more_points: usize,
    text: String,
}

#[derive(Serialize)]
struct PagePoint {
    label: String,
    exit: &'static str,
    reason: String,
    hash: String,
    limiting: String,
    figures: Vec<(String, String)>,
    ports: Vec<Vec<String>>,
    more_ports: usize,
    notes: Vec<(&'static str, String)>,
    series: String,
    pictures: Vec<String>,
}

#[derive(Serialize)]
struct PageVerdict {
    status: &'static str,
    expected: String,
    why: String,
    found: Vec<String>,
}

/// The whole page.
///
/// # Panics
/// Never: the template and what it is given are both of this program.
pub fn to_html(report: &Report) -> String {
    let mut page = Environment::new();
    page.set_auto_escape_callback(|_| AutoEscape::Html);
    let given = Page {
        name: &report.name,
        title: &report.title,
        claims: &report.claims,
        verdicts: verdicts(report),
        points: report.runs.iter().take(MAX_POINTS).map(point).collect(),
        more_points: report.runs.len().saturating_sub(MAX_POINTS),
        text: to_text(report, Rows::First),
    };
    let given = Value::from(Serde(&given));
    page.render_named_str("page.html", PAGE, given).expect("the page takes what it is given")
}

fn verdicts(report: &Report) -> Vec<PageVerdict> {
    let verdict = |v: &crate::expect::Verdict| PageVerdict {
        status: match v.status {
            Status::Passed => "ok",
            Status::Failed => "failed",
            Status::Skipped => "skipped",
            Status::Invalid => "invalid",
        },
        expected: v.expected.clone(),
        why: v.why.clone(),
        found: v.checks.iter().take(8).map(|c| format!("{} {}", c.found, c.at)).collect(),
    };
    report.verdicts.iter().map(verdict).collect()
}

fn point(run: &Run) -> PagePoint {
    let outcome = &run.outcome;
    let label = run.point.label();
    let used = || outcome.network_ports.iter().filter(|p| p.packets > 0 || p.dropped() > 0);
    let mut figures: Vec<(String, String)> =
        outcome.metrics.iter().map(|(name, m)| (name.clone(), m.text())).collect();
    for (name, summary) in &outcome.latencies {
        let times = [("p50", summary.p50), ("p99", summary.p99), ("max", summary.max)];
        let text = |ps| Metric::time(Span::from_ps(ps)).text();
        figures.extend(times.map(|(figure, ps)| (format!("{name}.{figure}"), text(ps))));
    }
    let counters = outcome.counters.iter().filter(|(_, n)| **n > 0);
    figures.extend(counters.map(|(name, n)| (format!("counter.{name}"), n.to_string())));
    let mut pictures = outcome.series.as_ref().map(series_svgs).unwrap_or_default();
    pictures.extend(outcome.timeline.as_ref().and_then(|rows| timeline_svg("timeline", rows)));
    PagePoint {
        label,
        exit: outcome.exit.kind.word(),
        reason: outcome.exit.reason.clone(),
        hash: outcome.trace_hash.clone(),
        limiting: outcome.limiting.clone().unwrap_or_default(),
        figures,
        ports: used().take(MAX_PORTS).map(port_cells).collect(),
        more_ports: used().count().saturating_sub(MAX_PORTS),
        notes: outcome.notes.iter().map(|n| (note_word(n.kind), n.text.clone())).collect(),
        series: outcome.series.as_ref().map(points_line).unwrap_or_default(),
        pictures,
    }
}

const fn note_word(kind: NoteKind) -> &'static str {
    match kind {
        NoteKind::Info => "note",
        NoteKind::Warning => "warning",
        NoteKind::Violation => "violation",
    }
}

#[cfg(test)]
mod tests {
    use super::super::series::tests::table;
    use super::*;
    use crate::testing::{loaded, runs};

    const TEXT: &str = "title = 'a <b> & c'\nprofile = 'generic-400g'\n\
        [[program]]\nkind = 'message-rate'\niterations = 10\n\
        [[expect]]\nkind = 'range'\nwhy = 'x < y'\nmetric = 'doorbells'\nmax = 1\n";

    fn page(change: impl Fn(&mut Report)) -> String {
        let file = loaded(TEXT, &[]).unwrap_or_else(|e| panic!("{e}"));
        let mut report = Report::new("t".into(), &file, runs(TEXT, &[]));
        change(&mut report);
        to_html(&report)
    }

    #[test]
    fn the_page_needs_nothing_else_and_escapes_what_it_shows() {
        let page = page(|report| report.runs[0].outcome.series = Some(table()));
        assert!(page.starts_with("<!DOCTYPE html>") && page.trim_end().ends_with("</html>"));
        assert!(page.contains("a &lt;b&gt; &amp; c") && page.contains("x &lt; y"), "{page}");
        assert!(!page.contains("<b>"));
        // The name space of SVG is an address that nobody asks for.
        let rest = page.replace("http://www.w3.org/2000/svg", "");
        for needs in ["http", "src=", "href", "@import", "<script", "url("] {
            assert!(!rest.contains(needs), "{needs}");
        }
        assert_eq!(page.matches("<svg").count(), 2);
        assert!(page.contains("3 points of 2 us"));
        assert!(page.contains("class=\"failed\""), "10 doorbells are more than 1");
    }

    #[test]
    fn a_page_shows_some_points_and_counts_the_others() {
        let many = |n: usize| {
            move |report: &mut Report| {
                let one = report.runs[0].clone();
                report.runs = vec![one; n];
            }
        };
        let (all, some) = (page(many(MAX_POINTS)), page(many(MAX_POINTS + 3)));
        assert_eq!(all.matches("<section").count(), some.matches("<section").count());
        assert!(!all.contains("more points") && some.contains("3 more points"));
        assert_eq!(some, page(many(MAX_POINTS + 3)));
    }
}
