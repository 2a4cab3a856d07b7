//! What went wrong at the points of a report of several, below the table.
//!
//! A note belongs to one run. A sweep has many, and most say the same: they are told by kind, the
//! first ones in words. What no figure of the table shows comes first: a run that is faster because
//! it is sick.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::Report;
use super::deaths::wrapped;
use crate::run::{FASTER_BUT_SICK, Note, NoteKind, Run};

/// Points of which a kind of warning is told in words; the others are named.
const MAX_TOLD: usize = 2;

/// Points that are named; the rest is counted.
const MAX_NAMED: usize = 6;

/// Kinds of warning that are told; the rest is named.
const MAX_KINDS: usize = 8;

/// A kind of note, and the points that have it with the first note of that kind.
struct Kind<'a> {
    name: &'a str,
    violation: bool,
    at: Vec<(&'a Run, &'a Note)>,
}

/// Warnings and violations by kind, and the names of other notes.
pub(super) fn notes_text(report: &Report) -> String {
    let mut kinds: Vec<Kind<'_>> = Vec::new();
    let mut others: BTreeMap<&str, usize> = BTreeMap::new();
    for run in &report.runs {
        let mut seen: Vec<&str> = Vec::new();
        for note in &run.outcome.notes {
            // Several of one kind are of several queues and such: the first stands for them.
            if seen.contains(&note.name.as_str()) {
                continue;
            }
            seen.push(&note.name);
            let violation = match note.kind {
                NoteKind::Info => {
                    *others.entry(&note.name).or_default() += 1;
                    continue;
                }
                NoteKind::Warning => false,
                NoteKind::Violation => true,
            };
            match kinds.iter_mut().find(|k| (k.name, k.violation) == (&note.name, violation)) {
                Some(kind) => kind.at.push((run, note)),
                None => kinds.push(Kind { name: &note.name, violation, at: vec![(run, note)] }),
            }
        }
    }
    kinds.sort_by_key(|k| (k.name != FASTER_BUT_SICK, !k.violation));
    let points = report.runs.len();
    let mut out: String = kinds.iter().take(MAX_KINDS).map(|k| told(k, points)).collect();
    let rest: Vec<&str> = kinds.iter().skip(MAX_KINDS).map(|k| k.name).collect();
    if !rest.is_empty() {
        out += &wrapped("and of other kinds: ", &rest.join(", "), 2);
    }
    if !others.is_empty() {
        let names: Vec<String> = others.iter().map(|(name, n)| format!("{name} {n}")).collect();
        let text = format!(
            "{}: one point alone (--variant, --set) has them in words, as --json has",
            names.join(", ")
        );
        out += &wrapped("notes, at so many points: ", &text, 2);
    }
    out
}

fn told(kind: &Kind<'_>, points: usize) -> String {
    let word = if kind.violation { "VIOLATION" } else { "warning" };
    let mut out = format!("{word} {}, at {} of {points} points:\n", kind.name, kind.at.len());
    for (run, note) in kind.at.iter().take(MAX_TOLD) {
        let same = run.outcome.notes.iter().filter(|n| n.name == note.name).count();
        let more = match same {
            1 => String::new(),
            n => format!(" (and {} more of the kind there)", n - 1),
        };
        out += &wrapped(&format!("  {}: ", run.point.label()), &format!("{}{more}", note.text), 4);
    }
    let rest: Vec<String> = kind.at.iter().skip(MAX_TOLD).map(|(r, _)| r.point.label()).collect();
    if !rest.is_empty() {
        let mut names = rest[..rest.len().min(MAX_NAMED)].join("; ");
        if let Some(n) = rest.len().checked_sub(MAX_NAMED).filter(|n| *n > 0) {
            let _ = write!(names, "; and {n} more");
        }
        out += &wrapped("  likewise: ", &names, 4);
    }
    out
}

/// The lines of a reason, of those that differ in numbers only the first one.
pub(super) fn alike(reason: &str) -> String {
    let key = |line: &str| line.replace(|c: char| c.is_ascii_digit(), "");
    let mut lines: Vec<(String, &str, usize)> = Vec::new();
    for line in reason.lines() {
        let key = key(line);
        match lines.iter_mut().find(|(k, ..)| *k == key) {
            Some((.., n)) => *n += 1,
            None => lines.push((key, line, 1)),
        }
    }
    let text = |(_, line, n): &(String, &str, usize)| match n {
        1 => (*line).to_owned(),
        n => format!("{line} (the first of {n} alike)"),
    };
    lines.iter().map(text).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Rows, to_text};
    use crate::testing::{loaded, runs};

    /// A sweep over five sizes whose notes and counters are changed.
    fn text(change: impl Fn(usize, &mut Run)) -> String {
        let text = "title = 't'\nprofile = 'generic-400g'\n[[program]]\nkind = 'message-rate'\n\
            iterations = 4\nsize = '8B'\n[sweep]\n\
            'program.0.size' = ['8B', '16B', '32B', '64B', '1KiB']\n";
        let mut runs = runs(text, &[]);
        runs.iter_mut().enumerate().for_each(|(i, run)| change(i, run));
        to_text(&Report::new("t".into(), &loaded(text, &[]).unwrap(), runs), Rows::First)
    }

    fn put(run: &mut Run, kind: NoteKind, name: &str, text: &str) {
        let (name, text) = (name.to_owned(), text.to_owned());
        run.outcome.notes.push(Note { kind, name, text, count: 1 });
    }

    #[test]
    fn a_run_that_is_faster_but_sick_is_flagged_below_the_table_ahead_of_all() {
        let text = text(|i, run| {
            put(run, NoteKind::Warning, "receives-too-few", "ran dry");
            put(run, NoteKind::Warning, "receives-too-few", "another ran dry");
            if i == 3 {
                put(run, NoteKind::Warning, FASTER_BUT_SICK, "faster than size=8B");
            }
        });
        let (table, below) = text.split_once("warning ").expect(&text);
        assert!(table.contains("throughput"), "{text}");
        let first = "faster-but-sick, at 1 of 5 points:\n  size=64B: faster than size=8B\n";
        assert!(below.starts_with(first), "{text}");
        assert!(below.contains("warning receives-too-few, at 5 of 5 points:\n"), "{text}");
        assert!(below.contains("size=8B: ran dry (and 1 more of the kind there)\n"), "{text}");
        assert_eq!(below.matches("ran dry").count(), MAX_TOLD, "{text}");
        assert!(below.contains("  likewise: size=32B; size=64B; size=1KiB\n"), "{text}");
    }

    #[test]
    fn many_kinds_are_bounded_and_what_is_no_warning_is_named() {
        let text = text(|i, run| {
            (0..=MAX_KINDS).for_each(|n| put(run, NoteKind::Warning, &format!("w{n}"), "w"));
            if i < 2 {
                put(run, NoteKind::Info, "timer-waits", "stood still");
            }
        });
        assert!(text.contains("warning w7, at 5 of 5"), "{text}");
        assert!(!text.contains("warning w8") && text.contains("and of other kinds: w8\n"));
        assert!(text.contains("notes, at so many points: timer-waits 2:"), "{text}");
        assert!(!text.contains("stood still"), "{text}");
    }

    #[test]
    fn lines_of_a_reason_that_differ_in_numbers_are_told_once() {
        let reason = "program 0 (rank 0): died\nhost 8 is dead\nprogram 1 (rank 2): died";
        let told = "program 0 (rank 0): died (the first of 2 alike)\nhost 8 is dead";
        assert_eq!(alike(reason), told);
        assert_eq!(alike("a\nb"), "a\nb");
        assert_eq!(alike(""), "");
    }
}
