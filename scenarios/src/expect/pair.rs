//! Expectations about two points: quotients and differences.

use super::Check;
use super::select::{Judged, Results, Trouble, comparable, find_metric, left_out};
use crate::format::{Bound, PairExpect, Where};
use crate::run::{Metric, MetricUnit, Point, Run, number_text};

/// Quotient or difference.
#[derive(Copy, Clone, PartialEq)]
pub(super) enum Pairing {
    Ratio,
    Difference,
}

pub(super) fn pair(results: &Results<'_>, e: &PairExpect, pairing: Pairing) -> Judged {
    let variants: Vec<String> = e.of.iter().cloned().collect();
    let first: Vec<&Run> = results
        .select(&variants, &e.fixed)?
        .into_iter()
        .filter_map(|run| match results.at(&run.point, &e.of_where) {
            Ok(true) => Some(Ok(run)),
            Ok(false) => None,
            Err(trouble) => Some(Err(trouble)),
        })
        .collect::<Result<_, _>>()?;
    if first.is_empty() {
        return Err(Trouble::Invalid("no point has these values of `of_where`".to_owned()));
    }
    let mut checks = Vec::with_capacity(first.len());
    for run in first {
        let other = partner(results, run, e)?;
        let a = find_metric(&run.outcome, &e.metric)?;
        let b = find_metric(&other.outcome, e.to_metric.as_deref().unwrap_or(&e.metric))?;
        checks.push(compared(&run.point, &other.point, (a, b), e, pairing)?);
    }
    Ok(checks)
}

/// The second point: the variant and axis values that are asked for, the rest as at the first.
fn partner<'a>(results: &Results<'a>, run: &Run, e: &PairExpect) -> Result<&'a Run, Trouble> {
    let variant = e.to.as_ref().or(run.point.variant.as_ref());
    for candidate in results.runs {
        if candidate.point.variant.as_ref() != variant {
            continue;
        }
        if results.at(&candidate.point, &e.to_where)?
            && same_axes(&run.point, &candidate.point, &e.to_where)
        {
            return Ok(candidate);
        }
    }
    if let Some(to) = e.to.as_ref().filter(|to| results.none_of(std::slice::from_ref(*to))) {
        return Err(left_out(to));
    }
    Err(Trouble::Invalid(format!("no point to compare \"{}\" with", run.point.label())))
}

fn same_axes(a: &Point, b: &Point, free: &Where) -> bool {
    a.axes
        .iter()
        .zip(&b.axes)
        .all(|(x, y)| free.contains_key(&x.name) || free.contains_key(&x.path) || x.text == y.text)
}

fn compared(
    first: &Point,
    second: &Point,
    (a, b): (Metric, Metric),
    e: &PairExpect,
    pairing: Pairing,
) -> Result<Check, Trouble> {
    let (value, unit) = match pairing {
        Pairing::Ratio if b.number() == 0.0 => {
            return Err(Trouble::Invalid(format!("division by zero at \"{}\"", second.label())));
        }
        Pairing::Ratio => (a.number() / b.number(), MetricUnit::Ratio),
        Pairing::Difference if a.unit != b.unit => {
            let text = "a difference of two metrics of different kinds".to_owned();
            return Err(Trouble::Invalid(text));
        }
        Pairing::Difference => (a.number() - b.number(), a.unit),
    };
    let holds = |bound: Option<Bound>, keeps: fn(f64, f64) -> bool| {
        bound.map_or(Ok(true), |b| {
            comparable(unit, b.0)?;
            Ok(keeps(value, b.0.number()))
        })
    };
    let ok = holds(e.min, |v, min| v >= min)? && holds(e.max, |v, max| v <= max)?;
    let sign = if pairing == Pairing::Ratio { "/" } else { "-" };
    let found = format!("{} {sign} {} = {}", a.text(), b.text(), number_text(value, unit));
    Ok(Check { at: pair_label(first, second), found, ok })
}

fn pair_label(first: &Point, second: &Point) -> String {
    match (first.label(), second.label()) {
        (a, b) if a == b => a,
        (a, b) => format!("{a} against {b}"),
    }
}
