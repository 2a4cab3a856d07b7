//! Sweeps: values to try, by path. Several axes make a grid, the last one fastest.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::settings::SettingValue;
use crate::input::{InputError, Key, Node, Origin, Path, Value};
use crate::quantity::{Quantity, Scalar};
use doorbell_core::units::Ratio;

/// Points of a scenario, over all variants and axes. More are refused: nobody reads them.
pub const MAX_POINTS: usize = 10_000;

/// Values to try, by path.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Sweep(pub BTreeMap<String, AxisSpec>);

/// The values of one axis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum AxisSpec {
    /// These values.
    List(Vec<SettingValue>),
    /// From one value to another.
    Range(RangeSpec),
}

/// Values from `from` to `to`, both included where they are met.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RangeSpec {
    /// First value.
    pub from: SettingValue,
    /// Last value.
    pub to: SettingValue,
    /// Added each time (linear).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<SettingValue>,
    /// Multiplied each time (logarithmic), more than 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub factor: Option<Quantity<Ratio>>,
}

/// An axis with its values as they will stand in the file.
#[derive(Clone, Debug)]
pub struct Axis {
    /// The path that is set.
    pub path: Path,
    /// The key as written.
    pub key: Key,
    /// The values in order; at least one.
    pub values: Vec<Node>,
}

/// Reads the axes of a `[sweep]` table, in the order of the file.
pub(crate) fn axes(node: &Node) -> Result<Vec<Axis>, InputError> {
    let mut axes = Vec::new();
    for (key, value) in &node.table()?.entries {
        let path = Path::parse(&key.name).map_err(|e| e.at(&key.origin))?;
        // An unquoted `qp.mtu = [..]` is a nested table in TOML; it means the same.
        flatten(path, key, value, &mut axes)?;
    }
    Ok(axes)
}

fn flatten(path: Path, key: &Key, node: &Node, axes: &mut Vec<Axis>) -> Result<(), InputError> {
    let values = match &node.value {
        Value::Array(items) if items.is_empty() => {
            return Err(InputError::new(format!("`{path}` has no values to try")).at(&node.origin));
        }
        Value::Array(items) => items.clone(),
        Value::Table(table) if table.get("from").is_none() && !table.entries.is_empty() => {
            if let Some((key, _)) = table.entries.iter().find(|(k, _)| is_range_key(&k.name)) {
                let error = InputError::new("a range lacks its `from`").at(&key.origin);
                return Err(error.help(RANGE_HELP));
            }
            for (inner, value) in &table.entries {
                let mut segments = path.segments().to_vec();
                let below = Path::parse(&inner.name).map_err(|e| e.at(&inner.origin))?;
                segments.extend(below.segments().iter().cloned());
                flatten(Path::from_segments(segments), inner, value, axes)?;
            }
            return Ok(());
        }
        Value::Table(_) => range(node)?,
        other => {
            return Err(InputError::new(format!("`{path}` is {}, expected a list", other.name()))
                .help(RANGE_HELP)
                .at(&node.origin));
        }
    };
    axes.push(Axis { path, key: key.clone(), values });
    Ok(())
}

const RANGE_HELP: &str = "write a list such as [1, 2, 4] or a range such as \
                          { from = 1, to = 64, factor = 2 } or { from = 1, to = 9, step = 2 }";

fn is_range_key(name: &str) -> bool {
    matches!(name, "to" | "step" | "factor")
}

/// A setting as a number of some kind.
pub(crate) fn scalar(value: &SettingValue) -> Option<Scalar> {
    match value {
        SettingValue::Integer(n) => u64::try_from(*n).ok().map(Scalar::Count),
        SettingValue::Float(x) => Some(Scalar::Decimal(*x)),
        SettingValue::Text(text) => Scalar::parse(text),
        SettingValue::Bool(_) | SettingValue::List(_) => None,
    }
}

fn range(node: &Node) -> Result<Vec<Node>, InputError> {
    let spec: RangeSpec = node.read()?;
    let at = |name: &str| {
        let origin = node.table().ok().and_then(|t| t.get(name)).map(|n| &n.origin);
        origin.unwrap_or(&node.origin).clone()
    };
    let end = |name: &str, value: &SettingValue| -> Result<(Scalar, u64), InputError> {
        scalar(value).and_then(|s| s.whole().map(|w| (s, w))).ok_or_else(|| {
            InputError::new(format!("`{name}` is no whole number and no quantity"))
                .help("write a number or a quantity; for fractions write a list")
                .at(&at(name))
        })
    };
    let (first, from) = end("from", &spec.from)?;
    let (last, to) = end("to", &spec.to)?;
    if !first.same_kind(last) {
        let error = InputError::new("`from` and `to` are of different kinds");
        return Err(error.at(&at("to")));
    }
    if to < from {
        let error = InputError::new("`to` is less than `from`").at(&at("to"));
        return Err(error.help("a range rises; for a falling order write a list"));
    }
    let next: Box<dyn Fn(u64) -> Option<u64>> = match (&spec.step, &spec.factor) {
        (Some(step), None) => {
            let (kind, step) = end("step", step)?;
            if !kind.same_kind(first) || step == 0 {
                let error = InputError::new("`step` is zero or of another kind than `from`");
                return Err(error.at(&at("step")));
            }
            Box::new(move |value| value.checked_add(step))
        }
        (None, Some(factor)) => {
            let Ratio { num, den } = factor.0;
            if num <= den || from == 0 {
                let error = InputError::new(
                    "`factor` must be more than 1, and `from` more \
                                             than 0 with it",
                );
                return Err(error.at(&at("factor")));
            }
            Box::new(move |value| {
                // Rounded down, but at least one more, so that 1 · 3/2 goes on.
                let product = u128::from(value) * u128::from(num) / u128::from(den);
                u64::try_from(product).ok().map(|p| p.max(value + 1))
            })
        }
        _ => {
            let error = InputError::new("a range has either a `step` or a `factor`");
            return Err(error.help(RANGE_HELP).at(&node.origin));
        }
    };
    range_values(first, from, to, &next, &node.origin)
}

fn range_values(
    kind: Scalar,
    from: u64,
    to: u64,
    next: &dyn Fn(u64) -> Option<u64>,
    origin: &Origin,
) -> Result<Vec<Node>, InputError> {
    let mut values = Vec::new();
    let mut value = Some(from);
    while let Some(whole) = value.filter(|v| *v <= to) {
        if values.len() == MAX_POINTS {
            let text = format!("the range has more than {MAX_POINTS} values");
            return Err(InputError::new(text).at(origin));
        }
        let value_node = match kind {
            Scalar::Count(_) => Value::Integer(whole.into()),
            kind => Value::String(kind.like(whole).map(Scalar::print).unwrap_or_default()),
        };
        values.push(Node { origin: origin.clone(), value: value_node });
        value = next(whole);
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::super::super::input::Source;
    use super::*;

    fn read(text: &str) -> Result<Vec<(String, String)>, InputError> {
        let node = Node::parse(&Source::new("s.toml", text))?;
        let show = |a: &Axis| {
            let values: Vec<String> = a.values.iter().map(Node::text).collect();
            (a.path.to_string(), values.join(" "))
        };
        Ok(axes(&node)?.iter().map(show).collect())
    }

    fn values(text: &str) -> String {
        read(text).unwrap_or_else(|e| panic!("{e}")).remove(0).1
    }

    #[test]
    fn lists_and_ranges() {
        assert_eq!(values("x = [4, 1]"), "4 1");
        assert_eq!(values("x = { from = 1, to = 9, step = 4 }"), "1 5 9");
        assert_eq!(values("x = { from = 1, to = 10, step = 4 }"), "1 5 9");
        assert_eq!(values("x = { from = 1, to = 64, factor = 2 }"), "1 2 4 8 16 32 64");
        assert_eq!(values("x = { from = 1, to = 5, factor = '3/2' }"), "1 2 3 4");
        assert_eq!(values("x = { from = '64B', to = '1KiB', factor = 4 }"), "64B 256B 1KiB");
        assert_eq!(values("x = { from = '1us', to = '2us', step = '500ns' }"), "1us 1.5us 2us");
        assert_eq!(values("x = { from = 3, to = 3, step = 1 }"), "3");
    }

    #[test]
    fn axes_keep_the_order_of_the_file_and_may_be_nested() {
        let axes = read("'program.0.size' = ['8B']\nqp.mtu = ['1KiB']\na = [1]").unwrap();
        let paths: Vec<&str> = axes.iter().map(|(p, _)| p.as_str()).collect();
        assert_eq!(paths, ["program.0.size", "qp.mtu", "a"]);
    }

    #[test]
    fn impossible_ranges_are_refused() {
        for (text, place, message) in [
            ("x = []", "1:5", "no values"),
            ("x = 3", "1:5", "expected a list"),
            ("x = { to = 3, step = 1 }", "1:7", "lacks its `from`"),
            ("x = { from = 1, to = 3 }", "1:5", "either a `step` or a `factor`"),
            ("x = { from = 1, to = 3, step = 1, factor = 2 }", "1:5", "either"),
            ("x = { from = 3, to = 1, step = 1 }", "1:22", "less than `from`"),
            ("x = { from = 1, to = 3, step = 0 }", "1:32", "is zero"),
            ("x = { from = 0, to = 3, factor = 2 }", "1:34", "more than 1"),
            ("x = { from = 1, to = 3, factor = 1 }", "1:34", "more than 1"),
            ("x = { from = '1B', to = 3, factor = 2 }", "1:25", "different kinds"),
            ("x = { from = '1B', to = '3B', step = 1 }", "1:38", "another kind"),
            ("x = { from = 'a', to = 3, step = 1 }", "1:14", "no whole number"),
            ("x = { from = 1, to = 20000, step = 1 }", "1:5", "more than 10000"),
            ("x = { from = 1, too = 3, step = 1 }", "1:17", "unknown key `too`"),
        ] {
            let e = read(text).expect_err(text);
            let shown = e.to_string();
            assert!(shown.starts_with(&format!("s.toml:{place}: ")), "{text}: {shown}");
            assert!(shown.contains(message), "{text}: {shown}");
        }
    }
}
