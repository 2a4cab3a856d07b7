//! Expectations about one point at a time.

use std::cmp::Ordering;

use super::Check;
use super::select::{Judged, Results, Trouble, compare, find, find_metric};
use crate::format::{Bound, EqualsExpect, ExitExpect, RangeExpect, Target};
use crate::run::{Found, Metric};

/// Whether a metric lies between two bounds, both included.
pub(super) fn within(
    metric: &Metric,
    min: Option<Bound>,
    max: Option<Bound>,
) -> Result<bool, Trouble> {
    let above = min.map_or(Ok(Ordering::Equal), |b| compare(metric, b.0))?;
    let below = max.map_or(Ok(Ordering::Equal), |b| compare(metric, b.0))?;
    Ok(above != Ordering::Less && below != Ordering::Greater)
}

pub(super) fn range(results: &Results<'_>, e: &RangeExpect) -> Judged {
    let runs = results.select(&e.variants.0, &e.fixed)?;
    let check = |run: &&crate::run::Run| {
        let metric = find_metric(&run.outcome, &e.metric)?;
        let ok = within(&metric, e.min, e.max)?;
        Ok(Check { at: run.point.label(), found: metric.text(), ok })
    };
    runs.iter().map(check).collect()
}

pub(super) fn equals(results: &Results<'_>, e: &EqualsExpect) -> Judged {
    let runs = results.select(&e.variants.0, &e.fixed)?;
    let check = |run: &&crate::run::Run| {
        let found = find(&run.outcome, &e.metric)?;
        let ok = match (&found, &e.value) {
            (Found::Number(metric), Target::Number(wanted)) => {
                compare(metric, *wanted)? == Ordering::Equal
            }
            (Found::Word(word), Target::Word(wanted)) => word == wanted,
            // A trace hash may look like a number to the reader of the file.
            (Found::Word(word), Target::Number(wanted)) => *word == wanted.print(),
            (Found::Number(_), Target::Word(wanted)) => {
                let text = format!("`{}` is a number, not \"{wanted}\"", e.metric);
                return Err(Trouble::Invalid(text));
            }
        };
        Ok(Check { at: run.point.label(), found: found.text(), ok })
    };
    runs.iter().map(check).collect()
}

pub(super) fn exit(results: &Results<'_>, e: &ExitExpect) -> Judged {
    let runs = results.select(&e.variants.0, &e.fixed)?;
    let check = |run: &&crate::run::Run| {
        let exit = &run.outcome.exit;
        let named = e.reason.as_ref().is_none_or(|text| exit.reason.contains(text));
        let found = match exit.reason.as_str() {
            "" => exit.kind.word().to_owned(),
            reason => format!("{}: {}", exit.kind.word(), reason.replace('\n', "; ")),
        };
        Check { at: run.point.label(), found, ok: exit.kind == e.status && named }
    };
    Ok(runs.iter().map(check).collect())
}
