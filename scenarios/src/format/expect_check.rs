//! Expectations that can be seen to be wrong before anything runs.

use super::load::{Loaded, shown};
use super::{Bound, Expect, SettingValue, Where, scalar};
use crate::input::{InputError, Node, Value, suggestion};

/// What is wrong, and at which key of the expectation.
type Problem = (&'static str, String, String);

/// Checks names of variants and axes, and ranges.
pub(crate) fn check_expectations(loaded: &Loaded, node: &Node) -> Result<(), InputError> {
    let Value::Array(items) = &node.value else {
        return Ok(());
    };
    for (expect, item) in loaded.expects.iter().zip(items) {
        check_one(loaded, expect).map_err(|(key, message, help)| {
            let at = item.table().ok().and_then(|t| t.get(key)).map(|n| &n.origin);
            let error = InputError::new(message).at_opt(at).at(&item.origin);
            if help.is_empty() { error } else { error.help(help) }
        })?;
    }
    Ok(())
}

fn check_one(loaded: &Loaded, expect: &Expect) -> Result<(), Problem> {
    if expect.why().trim().is_empty() {
        return Err(("why", "`why` is empty".into(), "say on one line why it must be so".into()));
    }
    match expect {
        Expect::Range(e) => {
            range(e.min, e.max)?;
            selection(loaded, &e.variants.0, &e.fixed)
        }
        Expect::Equals(e) => selection(loaded, &e.variants.0, &e.fixed),
        Expect::Exit(e) => selection(loaded, &e.variants.0, &e.fixed),
        Expect::Ratio(e) | Expect::Difference(e) => {
            range(e.min, e.max)?;
            for (key, name) in [("of", &e.of), ("to", &e.to)] {
                if let Some(name) = name {
                    variant(loaded, key, name)?;
                }
            }
            for (key, fixed) in
                [("where", &e.fixed), ("of_where", &e.of_where), ("to_where", &e.to_where)]
            {
                axes(loaded, key, fixed)?;
            }
            let same_variant = e.to.is_none() || e.of == e.to;
            if same_variant && e.to_metric.is_none() && e.to_where.is_empty() {
                let help = "name another variant, axis value or metric by `to`, `to_where` or \
                            `to_metric`";
                return Err(("metric", "both points are the same".into(), help.into()));
            }
            Ok(())
        }
        Expect::Monotone(e) => {
            axis(loaded, "over", &e.over)?;
            selection(loaded, &e.variants.0, &e.fixed)
        }
        Expect::ArgMax(e) | Expect::ArgMin(e) => {
            axis(loaded, "over", &e.over)?;
            between(&e.between)?;
            selection(loaded, &e.variants.0, &e.fixed)
        }
        Expect::Count(e) => {
            axis(loaded, "over", &e.over)?;
            range(e.min, e.max)?;
            let (least, most) = (e.at_least.map(|n| n.value()), e.at_most.map(|n| n.value()));
            if least.is_none() && most.is_none() {
                let help = "write `at_least`, `at_most` or both".to_owned();
                return Err(("over", "a count without limits".into(), help));
            }
            if most.is_some_and(|most| least.is_some_and(|least| most < least)) {
                let text = "`at_most` is less than `at_least`".into();
                return Err(("at_most", text, String::new()));
            }
            selection(loaded, &e.variants.0, &e.fixed)
        }
        Expect::Crossover(e) => {
            axis(loaded, "over", &e.over)?;
            between(&e.between)?;
            variant(loaded, "of", &e.of)?;
            variant(loaded, "to", &e.to)?;
            if e.of == e.to {
                let text = format!("\"{}\" cannot cross itself", e.of);
                return Err(("to", text, "name two variants".into()));
            }
            axes(loaded, "where", &e.fixed)
        }
    }
}

fn range(min: Option<Bound>, max: Option<Bound>) -> Result<(), Problem> {
    match (min, max) {
        (None, None) => {
            let help = "write `min`, `max` or both".to_owned();
            Err(("metric", "a range without ends".into(), help))
        }
        (Some(min), Some(max)) if min.0.number() > max.0.number() => {
            Err(("max", "`max` is less than `min`".into(), String::new()))
        }
        (Some(min), Some(max)) if !min.0.same_kind(max.0) && min.0.number() != 0.0 => {
            Err(("max", "`min` and `max` are of different kinds".into(), String::new()))
        }
        _ => Ok(()),
    }
}

fn between(ends: &[SettingValue; 2]) -> Result<(), Problem> {
    let [from, to] = ends;
    match (scalar(from), scalar(to)) {
        (Some(from), Some(to)) if from.same_kind(to) && from.number() <= to.number() => Ok(()),
        _ => {
            let help = "two values of the axis, the lower one first".to_owned();
            Err(("between", "`between` is no range".into(), help))
        }
    }
}

fn selection(loaded: &Loaded, variants: &[String], fixed: &Where) -> Result<(), Problem> {
    for name in variants {
        variant(loaded, "in", name)?;
    }
    axes(loaded, "where", fixed)
}

fn variant(loaded: &Loaded, key: &'static str, name: &str) -> Result<(), Problem> {
    let known = loaded.variant_names();
    if known.contains(&name) {
        return Ok(());
    }
    let help = suggestion(name, known.iter().copied(), "variants");
    Err((key, format!("there is no variant \"{name}\""), help))
}

fn axes(loaded: &Loaded, key: &'static str, fixed: &Where) -> Result<(), Problem> {
    fixed.keys().try_for_each(|name| axis(loaded, key, name))
}

fn axis(loaded: &Loaded, key: &'static str, name: &str) -> Result<(), Problem> {
    let known: Vec<String> =
        loaded.axes.iter().flat_map(|a| [loaded.axis_name(a), shown(&a.path)]).collect();
    if known.iter().any(|k| k == name) {
        return Ok(());
    }
    let help = suggestion(name, known.iter().map(String::as_str), "axes");
    Err((key, format!("there is no axis `{name}`"), help))
}
