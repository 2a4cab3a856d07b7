//! Expectations along an axis: monotone, arg-max, arg-min, crossover.

use std::collections::BTreeMap;

use super::Check;
use super::select::{Judged, Results, Trouble, find_metric};
use super::single::within;
use crate::format::{
    AxisExpect, CountExpect, CrossoverExpect, Direction, MonotoneExpect, SettingValue, Where,
    scalar,
};
use crate::quantity::{Scalar, Unit};
use crate::run::{AxisValue, Metric, Point};

/// One value along an axis.
struct Sample {
    at: AxisValue,
    metric: Metric,
}

/// Values along an axis, for the points that agree in everything else.
struct Curve {
    label: String,
    samples: Vec<Sample>,
}

/// Everything of a point but one axis.
fn rest_label(point: &Point, axis: &AxisValue) -> String {
    let mut rest = point.clone();
    rest.axes.retain(|a| a.path != axis.path);
    rest.label()
}

fn curves(
    results: &Results<'_>,
    variants: &[String],
    fixed: &Where,
    over: &str,
    metric: &str,
) -> Result<Vec<Curve>, Trouble> {
    let mut by_label: BTreeMap<(usize, String), Vec<Sample>> = BTreeMap::new();
    let mut order: Vec<String> = Vec::new();
    for run in results.select(variants, fixed)? {
        let at = results.axis(&run.point, over)?.clone();
        let label = rest_label(&run.point, &at);
        let known = order.iter().position(|l| *l == label);
        let position = known.unwrap_or_else(|| {
            order.push(label.clone());
            order.len() - 1
        });
        let metric = find_metric(&run.outcome, metric)?;
        by_label.entry((position, label)).or_default().push(Sample { at, metric });
    }
    let curve = |((_, label), mut samples): ((usize, String), Vec<Sample>)| {
        if samples.iter().all(|s| s.at.scalar.is_some()) {
            let number = |s: &Sample| s.at.scalar.map_or(0.0, Scalar::number);
            samples.sort_by(|a, b| number(a).total_cmp(&number(b)));
        }
        Curve { label, samples }
    };
    Ok(by_label.into_iter().map(curve).collect())
}

pub(super) fn monotone(results: &Results<'_>, e: &MonotoneExpect) -> Judged {
    let curves = curves(results, &e.variants.0, &e.fixed, &e.over, &e.metric)?;
    Ok(curves.iter().map(|curve| monotone_curve(curve, e)).collect())
}

fn monotone_curve(curve: &Curve, e: &MonotoneExpect) -> Check {
    let tolerance = e.tolerance.0.magnitude();
    let wrong = curve.samples.windows(2).find(|pair| {
        let (a, b) = (pair[0].metric.number(), pair[1].metric.number());
        let gain = match e.direction {
            Direction::Rising => b - a,
            Direction::Falling => a - b,
        };
        gain < -(a.abs() * tolerance) || (e.strict && gain <= 0.0)
    });
    let shown = |s: &Sample| format!("{} at {}", s.metric.text(), s.at.text);
    let ends = wrong.map_or_else(
        || (curve.samples.first(), curve.samples.last()),
        |pair| (pair.first(), pair.last()),
    );
    let found = match ends {
        (Some(a), Some(b)) => format!("{}, {}", shown(a), shown(b)),
        _ => "nothing".to_owned(),
    };
    Check { at: curve.label.clone(), found, ok: wrong.is_none() }
}

/// Whether an axis value lies between two others, both included.
fn between(at: &AxisValue, ends: &[SettingValue; 2]) -> Result<bool, Trouble> {
    let (Some(value), Some(from), Some(to)) = (at.scalar, scalar(&ends[0]), scalar(&ends[1]))
    else {
        let text = format!("{} of the axis `{}` is no number", at.text, at.name);
        return Err(Trouble::Invalid(text));
    };
    if !value.same_kind(from) {
        let text = format!("`between` is of another kind than the axis `{}`", at.name);
        return Err(Trouble::Invalid(text));
    }
    Ok(from.number() <= value.number() && value.number() <= to.number())
}

pub(super) fn arg_best(results: &Results<'_>, e: &AxisExpect, largest: bool) -> Judged {
    let curves = curves(results, &e.variants.0, &e.fixed, &e.over, &e.metric)?;
    let better = |a: f64, b: f64| if largest { a > b } else { a < b };
    let mut checks = Vec::with_capacity(curves.len());
    for curve in &curves {
        let mut best: Vec<&Sample> = Vec::new();
        for sample in &curve.samples {
            match best.first().map(|b| b.metric.number()) {
                Some(b) if better(b, sample.metric.number()) => {}
                Some(b) if b == sample.metric.number() => best.push(sample),
                _ => best = vec![sample],
            }
        }
        // With a plateau, one of its values inside the range is enough.
        let inside: Vec<bool> =
            best.iter().map(|s| between(&s.at, &e.between)).collect::<Result<_, _>>()?;
        let texts: Vec<&str> = best.iter().map(|s| s.at.text.as_str()).collect();
        let value = best.first().map(|s| s.metric.text()).unwrap_or_default();
        let found = format!("{value} at {}", texts.join(", "));
        checks.push(Check { at: curve.label.clone(), found, ok: inside.contains(&true) });
    }
    Ok(checks)
}

pub(super) fn count(results: &Results<'_>, e: &CountExpect) -> Judged {
    let curves = curves(results, &e.variants.0, &e.fixed, &e.over, &e.metric)?;
    let mut checks = Vec::with_capacity(curves.len());
    for curve in &curves {
        let mut found: Vec<&Sample> = Vec::new();
        for sample in &curve.samples {
            if within(&sample.metric, e.min, e.max)? {
                found.push(sample);
            }
        }
        let n = found.len() as u64;
        let ok = e.at_least.is_none_or(|least| n >= least.value())
            && e.at_most.is_none_or(|most| n <= most.value());
        let values: Vec<&str> = found.iter().map(|s| s.at.text.as_str()).collect();
        let found = format!("{n} of {}: {}", curve.samples.len(), values.join(", "));
        checks.push(Check { at: curve.label.clone(), found, ok });
    }
    Ok(checks)
}

pub(super) fn crossover(results: &Results<'_>, e: &CrossoverExpect) -> Judged {
    let of =
        |name: &String| curves(results, std::slice::from_ref(name), &e.fixed, &e.over, &e.metric);
    let (first, second) = (of(&e.of)?, of(&e.to)?);
    if first.len() != second.len() {
        return Err(Trouble::Invalid("the two variants have different points".to_owned()));
    }
    first.iter().zip(&second).map(|(a, b)| crossing(a, b, e)).collect()
}

fn crossing(a: &Curve, b: &Curve, e: &CrossoverExpect) -> Result<Check, Trouble> {
    let signed: Vec<(&AxisValue, f64)> = a
        .samples
        .iter()
        .zip(&b.samples)
        .map(|(x, y)| (&x.at, x.metric.number() - y.metric.number()))
        .collect();
    let check = |found: String, ok| Ok(Check { at: a.label.clone(), found, ok });
    let last_less = signed.iter().rposition(|(_, d)| *d < 0.0);
    let first_more = signed.iter().position(|(_, d)| *d > 0.0);
    match (last_less, first_more) {
        (Some(less), Some(more)) if less < more => {
            let (from, to) = (signed[less].0, signed[more].0);
            let ok = between(from, &e.between)? && between(to, &e.between)?;
            check(format!("they cross between {} and {}", from.text, to.text), ok)
        }
        (Some(_), Some(_)) => {
            let rows: Vec<String> = signed
                .iter()
                .map(|(at, d)| format!("{}: {}", at.text, if *d < 0.0 { "less" } else { "more" }))
                .collect();
            check(format!("not one crossing: {}", rows.join(", ")), false)
        }
        (Some(_), None) => check(format!("\"{}\" never has more", e.of), false),
        (None, _) => check(format!("\"{}\" never has less", e.of), false),
    }
}
