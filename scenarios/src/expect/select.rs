//! Finding the points that an expectation is about, and comparing numbers with units.

use std::cmp::Ordering;

use super::Check;
use crate::format::{SettingValue, Where, scalar};
use crate::input::suggestion;
use crate::quantity::Scalar;
use crate::run::{AxisValue, Found, Metric, MetricUnit, Outcome, Point, Run};

/// Why an expectation has no verdict of its own.
pub(super) enum Trouble {
    /// The command line fixed the axis.
    Skipped(String),
    /// It cannot be judged.
    Invalid(String),
}

pub(super) type Judged = Result<Vec<Check>, Trouble>;

/// Runs and what the command line did to them.
pub(super) struct Results<'a> {
    pub(super) runs: &'a [Run],
    pub(super) fixed_axes: &'a [String],
}

impl<'a> Results<'a> {
    /// The axis `name` (or path) of a point.
    pub(super) fn axis<'p>(&self, point: &'p Point, name: &str) -> Result<&'p AxisValue, Trouble> {
        let found = point.axes.iter().find(|a| a.name == name || a.path == name);
        found.ok_or_else(|| {
            if self.fixed_axes.iter().any(|f| f == name || name.ends_with(&format!(".{f}"))) {
                return Trouble::Skipped(format!("the axis `{name}` is fixed by --set"));
            }
            Trouble::Invalid(format!("there is no axis `{name}`"))
        })
    }

    /// Whether the axes have these values.
    pub(super) fn at(&self, point: &Point, fixed: &Where) -> Result<bool, Trouble> {
        for (name, value) in fixed {
            if !same_value(self.axis(point, name)?, value) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether no run is of one of these variants.
    pub(super) fn none_of(&self, variants: &[String]) -> bool {
        let of = |run: &Run| run.point.variant.as_ref().is_some_and(|v| variants.contains(v));
        !self.runs.iter().any(of)
    }

    /// The points of these variants (none: all) with these values of axes; at least one.
    pub(super) fn select(
        &self,
        variants: &[String],
        fixed: &Where,
    ) -> Result<Vec<&'a Run>, Trouble> {
        let mut selected = Vec::new();
        for run in self.runs {
            let name = run.point.variant.as_ref();
            let in_variants = variants.is_empty() || name.is_some_and(|n| variants.contains(n));
            if in_variants && self.at(&run.point, fixed)? {
                selected.push(run);
            }
        }
        if selected.is_empty() {
            if let Some(name) = variants.first().filter(|_| self.none_of(variants)) {
                return Err(left_out(name));
            }
            let text = "no point has these values of `in` and `where`";
            return Err(Trouble::Invalid(text.to_owned()));
        }
        Ok(selected)
    }
}

/// Every variant of the file is among the runs, but for those that the command line left out.
pub(super) fn left_out(variant: &str) -> Trouble {
    Trouble::Skipped(format!("--variant leaves out \"{variant}\""))
}

fn same_value(axis: &AxisValue, wanted: &SettingValue) -> bool {
    match (axis.scalar, scalar(wanted)) {
        (Some(a), Some(b)) => a.same_kind(b) && a.number() == b.number(),
        _ => match wanted {
            SettingValue::Text(text) => axis.text == *text,
            SettingValue::Bool(b) => axis.text == b.to_string(),
            _ => false,
        },
    }
}

/// The value called `name`.
pub(super) fn find(outcome: &Outcome, name: &str) -> Result<Found, Trouble> {
    outcome.find(name).ok_or_else(|| {
        let names = outcome.names();
        let help = suggestion(name, names.iter().map(String::as_str), "metrics");
        Trouble::Invalid(format!("there is no metric `{name}`: {help}"))
    })
}

/// The number called `name`.
pub(super) fn find_metric(outcome: &Outcome, name: &str) -> Result<Metric, Trouble> {
    match find(outcome, name)? {
        Found::Number(metric) => Ok(metric),
        Found::Word(word) => {
            Err(Trouble::Invalid(format!("`{name}` is the word \"{word}\", not a number")))
        }
    }
}

/// Whether a number of `unit` may be compared with `bound`; zero has no unit.
pub(super) fn comparable(unit: MetricUnit, bound: Scalar) -> Result<(), Trouble> {
    kind_fits(unit, bound).map_err(Trouble::Invalid)
}

/// [`comparable`], with what is wrong and what to write as a text.
pub(crate) fn kind_fits(unit: MetricUnit, bound: Scalar) -> Result<(), String> {
    let of_unit = match bound {
        Scalar::Time(_) => unit == MetricUnit::Time,
        Scalar::Bytes(_) => unit == MetricUnit::Bytes,
        Scalar::Rate(_) => unit == MetricUnit::Rate,
        Scalar::Frequency(_) => unit == MetricUnit::PerSecond,
        Scalar::Count(_) | Scalar::Decimal(_) | Scalar::Ratio(_) => {
            matches!(unit, MetricUnit::Count | MetricUnit::Ratio) || bound.number() == 0.0
        }
    };
    if of_unit {
        return Ok(());
    }
    let example = match unit {
        MetricUnit::Count => "12",
        MetricUnit::Ratio => "0.5",
        MetricUnit::Time => "2us",
        MetricUnit::Bytes => "4KiB",
        MetricUnit::Rate => "100Gbps",
        MetricUnit::PerSecond => "10M/s",
    };
    Err(format!(
        "{} is of another kind than the metric; write for example \"{example}\"",
        bound.print()
    ))
}

/// Compares exactly where both are whole, else as floats.
pub(super) fn compare(metric: &Metric, bound: Scalar) -> Result<Ordering, Trouble> {
    comparable(metric.unit, bound)?;
    let found = metric.scalar();
    if let (Some(a), Some(b)) = (found.whole(), bound.whole()) {
        return Ok(a.cmp(&b));
    }
    let ordering = found.number().partial_cmp(&bound.number());
    ordering.ok_or_else(|| Trouble::Invalid("not a number".to_owned()))
}
