//! GPUs in whose place a core posts: never without a word.

use super::effective::FALLBACK;
use super::{Metric, Note, NoteKind, Outcome, Point};

/// Name of the note, and of the metric that counts the programs.
const NAME: &str = "gpu-fallback";

/// Counts the programs whose GPU does not post by itself, and names them.
pub(super) fn collect(point: &Point, out: &mut Outcome) {
    let programs = (0..).zip(&point.scenario.program);
    let fallen: Vec<String> = programs
        .filter(|(_, p)| p.falls_back(&point.profile).is_some())
        .map(|(i, p): (usize, _)| match p.name.as_str() {
            "" => format!("program {i}"),
            name => format!("program \"{name}\""),
        })
        .collect();
    let count = fallen.len() as u64;
    out.metrics.insert("gpu_fallbacks".into(), Metric::count(count));
    out.oracles.push(NAME.to_owned());
    if count > 0 {
        let text = format!(
            "{}: a CPU core posts in the place of the GPU, by {FALLBACK}; what is measured is the \
             way over that core",
            fallen.join(", ")
        );
        out.notes.push(Note { kind: NoteKind::Warning, name: NAME.to_owned(), text, count });
    }
}
