//! The timeline of a message: each step with start, end, duration and a bar.

use doorbell_core::units::Span;

use super::table::{Align, Table};
use crate::run::TimelineRow;

/// Characters of the longest bar.
const BAR: u128 = 40;

/// The rows of every message, in the order of their starts.
pub(super) fn timeline_text(rows: &[TimelineRow]) -> String {
    let mut messages: Vec<u64> = rows.iter().map(|r| r.message).collect();
    messages.sort_unstable();
    messages.dedup();
    let mut out = String::new();
    for message in messages {
        let mut of_message: Vec<&TimelineRow> =
            rows.iter().filter(|r| r.message == message).collect();
        of_message.sort_by_key(|r| (r.start, r.end));
        out.push_str(&format!("timeline of message {message}\n"));
        out.push_str(&message_text(&of_message));
    }
    out
}

fn message_text(rows: &[&TimelineRow]) -> String {
    let end = rows.iter().map(|r| r.end).max().unwrap_or_default();
    let mut table = Table::new(&[
        ("step", Align::Left),
        ("where", Align::Left),
        ("start", Align::Right),
        ("end", Align::Right),
        ("duration", Align::Right),
        ("", Align::Left),
    ]);
    for row in rows {
        table.row(vec![
            row.step.clone(),
            row.component.clone(),
            nanoseconds(row.start),
            nanoseconds(row.end),
            nanoseconds(row.end.saturating_sub(row.start)),
            bar(row.start, row.end, end),
        ]);
    }
    table.render(2)
}

/// Nanoseconds with three decimals, so that columns can be compared and added.
fn nanoseconds(span: Span) -> String {
    let ps = span.as_ps();
    format!("{}.{:03} ns", ps / 1000, ps % 1000)
}

/// A bar from `start` to `end` on a scale of `BAR` characters for `whole`; at least one
/// character, so that short steps can be seen.
fn bar(start: Span, end: Span, whole: Span) -> String {
    let scale = |t: Span| {
        let whole = u128::from(whole.as_ps()).max(1);
        (u128::from(t.as_ps()) * BAR / whole) as usize
    };
    let from = scale(start).min(BAR as usize - 1);
    let to = scale(end).max(from + 1);
    let (before, inside) = (" ".repeat(from), "#".repeat(to - from));
    format!("|{before}{inside}{}|", " ".repeat(BAR as usize - to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_keep_inside_their_frame() {
        let ns = Span::from_ns;
        assert_eq!(bar(ns(0), ns(40), ns(40)), format!("|{}|", "#".repeat(40)));
        assert_eq!(bar(ns(10), ns(20), ns(40)), format!("|{:10}{}{:20}|", "", "#".repeat(10), ""));
        assert_eq!(bar(ns(40), ns(40), ns(40)), format!("|{:39}#|", ""));
        assert_eq!(bar(ns(0), ns(0), ns(0)), format!("|#{:39}|", ""));
    }
}
