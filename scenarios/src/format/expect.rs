//! Expectations: what the results must be, with the reason.
//!
//! A `metric` is a name from the results: `throughput`, `latency.p99`, `counter.rnr_nak`,
//! `pcie.up.payload-read.bytes`, `resource.nic0.pu.busy`; with several programs
//! `name.throughput`. `doorbell run --json` shows all of them. A variant is named by its name, an
//! axis by its path or by the path's last key.

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserializer, Visitor};
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt;

use super::settings::SettingValue;
use crate::quantity::{Count, Quantity, Scalar};
use doorbell_core::units::Ratio;

/// One expectation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(tag = "kind")]
pub enum Expect {
    /// A metric lies in a range, at every selected point.
    Range(RangeExpect),
    /// A metric has exactly this value, at every selected point.
    Equals(EqualsExpect),
    /// The quotient of a metric at two points lies in a range.
    Ratio(PairExpect),
    /// The difference of a metric at two points lies in a range.
    Difference(PairExpect),
    /// A metric only rises or only falls along an axis.
    Monotone(MonotoneExpect),
    /// A metric is largest at these values of an axis.
    ArgMax(AxisExpect),
    /// A metric is smallest at these values of an axis.
    ArgMin(AxisExpect),
    /// A metric lies in a range at so many values of an axis, as chance has it along seeds.
    Count(CountExpect),
    /// Two variants change places along an axis, once, between two values.
    Crossover(CrossoverExpect),
    /// How the run ends.
    Exit(ExitExpect),
}

impl Expect {
    /// The word of the kind.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Range(_) => "range",
            Self::Equals(_) => "equals",
            Self::Ratio(_) => "ratio",
            Self::Difference(_) => "difference",
            Self::Monotone(_) => "monotone",
            Self::ArgMax(_) => "arg-max",
            Self::ArgMin(_) => "arg-min",
            Self::Count(_) => "count",
            Self::Crossover(_) => "crossover",
            Self::Exit(_) => "exit",
        }
    }

    /// The reason.
    pub fn why(&self) -> &str {
        match self {
            Self::Range(e) => &e.why,
            Self::Equals(e) => &e.why,
            Self::Ratio(e) | Self::Difference(e) => &e.why,
            Self::Monotone(e) => &e.why,
            Self::ArgMax(e) | Self::ArgMin(e) => &e.why,
            Self::Count(e) => &e.why,
            Self::Crossover(e) => &e.why,
            Self::Exit(e) => &e.why,
        }
    }

    /// Metrics that it looks at.
    pub fn metrics(&self) -> Vec<&str> {
        match self {
            Self::Range(e) => vec![&e.metric],
            Self::Equals(e) => vec![&e.metric],
            Self::Ratio(e) | Self::Difference(e) => {
                std::iter::once(&*e.metric).chain(e.to_metric.as_deref()).collect()
            }
            Self::Monotone(e) => vec![&e.metric],
            Self::ArgMax(e) | Self::ArgMin(e) => vec![&e.metric],
            Self::Count(e) => vec![&e.metric],
            Self::Crossover(e) => vec![&e.metric],
            Self::Exit(_) => vec![],
        }
    }
}

/// Values of axes, by path or short name.
pub type Where = BTreeMap<String, SettingValue>;

/// A metric lies in a range, at every selected point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RangeExpect {
    /// The reason, on one line.
    pub why: String,
    /// Name of the metric.
    pub metric: String,
    /// Variants; none: all.
    #[serde(default, rename = "in")]
    pub variants: Names,
    /// Values of axes; axes that are not named may have any.
    #[serde(default, rename = "where")]
    pub fixed: Where,
    /// Lowest value allowed.
    pub min: Option<Bound>,
    /// Highest value allowed.
    pub max: Option<Bound>,
}

/// A metric has exactly this value, at every selected point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EqualsExpect {
    /// The reason, on one line.
    pub why: String,
    /// Name of the metric; `limiting` and `exit` are words.
    pub metric: String,
    /// Variants; none: all.
    #[serde(default, rename = "in")]
    pub variants: Names,
    /// Values of axes; axes that are not named may have any.
    #[serde(default, rename = "where")]
    pub fixed: Where,
    /// The value: a number, a quantity, or a word.
    pub value: Target,
}

/// The quotient or the difference of a metric at two points lies in a range.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PairExpect {
    /// The reason, on one line.
    pub why: String,
    /// Metric at the first point.
    pub metric: String,
    /// Metric at the second point, which divides or is taken away; without it, the same.
    #[serde(default)]
    pub to_metric: Option<String>,
    /// Variant of the first point; without it, every variant.
    #[serde(default)]
    pub of: Option<String>,
    /// Variant of the second point; without it, the same.
    #[serde(default)]
    pub to: Option<String>,
    /// Values of axes at both.
    #[serde(default, rename = "where")]
    pub fixed: Where,
    /// Values of axes at the first point.
    #[serde(default)]
    pub of_where: Where,
    /// Values of axes at the second; axes that are not named are as at the first.
    #[serde(default)]
    pub to_where: Where,
    /// Lowest value allowed.
    pub min: Option<Bound>,
    /// Highest value allowed.
    pub max: Option<Bound>,
}

/// A metric only rises or only falls along an axis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MonotoneExpect {
    /// The reason, on one line.
    pub why: String,
    /// Name of the metric.
    pub metric: String,
    /// The axis.
    pub over: String,
    /// Which way.
    pub direction: Direction,
    /// Whether standing still is wrong too.
    #[serde(default)]
    pub strict: bool,
    /// Step in the wrong direction that is allowed, as a share of the value.
    #[serde(default = "no_tolerance")]
    pub tolerance: Quantity<Ratio>,
    /// Variants; none: all.
    #[serde(default, rename = "in")]
    pub variants: Names,
    /// Values of axes; axes that are not named may have any.
    #[serde(default, rename = "where")]
    pub fixed: Where,
}

const fn no_tolerance() -> Quantity<Ratio> {
    Quantity(Ratio { num: 0, den: 1 })
}

/// Which way a metric goes.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// Up.
    Rising,
    /// Down.
    Falling,
}

/// A metric is largest or smallest at these values of an axis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AxisExpect {
    /// The reason, on one line.
    pub why: String,
    /// Name of the metric.
    pub metric: String,
    /// The axis.
    pub over: String,
    /// Values of the axis, both included.
    pub between: [SettingValue; 2],
    /// Variants; none: all.
    #[serde(default, rename = "in")]
    pub variants: Names,
    /// Values of axes; axes that are not named may have any.
    #[serde(default, rename = "where")]
    pub fixed: Where,
}

/// A metric lies in a range at so many values of an axis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CountExpect {
    /// The reason, on one line.
    pub why: String,
    /// Name of the metric.
    pub metric: String,
    /// The axis.
    pub over: String,
    /// Lowest value that counts.
    pub min: Option<Bound>,
    /// Highest value that counts.
    pub max: Option<Bound>,
    /// Fewest values of the axis at which it counts.
    pub at_least: Option<Count<0, { u32::MAX as u64 }>>,
    /// Most values of the axis at which it counts.
    pub at_most: Option<Count<0, { u32::MAX as u64 }>>,
    /// Variants; none: all.
    #[serde(default, rename = "in")]
    pub variants: Names,
    /// Values of axes; axes that are not named may have any.
    #[serde(default, rename = "where")]
    pub fixed: Where,
}

/// Two variants change places along an axis, once, between two values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CrossoverExpect {
    /// The reason, on one line.
    pub why: String,
    /// Name of the metric.
    pub metric: String,
    /// The axis.
    pub over: String,
    /// Variant that has less before the crossing and more after it.
    pub of: String,
    /// The other variant.
    pub to: String,
    /// Values of the axis, both included.
    pub between: [SettingValue; 2],
    /// Values of axes; axes that are not named may have any.
    #[serde(default, rename = "where")]
    pub fixed: Where,
}

/// How the run ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExitExpect {
    /// The reason, on one line.
    pub why: String,
    /// How it ends.
    pub status: crate::run::ExitKind,
    /// Text that the named reason must contain.
    #[serde(default)]
    pub reason: Option<String>,
    /// Variants; none: all.
    #[serde(default, rename = "in")]
    pub variants: Names,
    /// Values of axes; axes that are not named may have any.
    #[serde(default, rename = "where")]
    pub fixed: Where,
}

/// One name or several.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Names(pub Vec<String>);

impl<'de> Deserialize<'de> for Names {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        super::Claims::deserialize(d).map(|names| Self(names.0))
    }
}

impl JsonSchema for Names {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Names".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["string", "array"], "items": { "type": "string" } })
    }
}

/// A limit: a number, or a quantity of the metric's kind.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Bound(pub Scalar);

/// A value to be equal to.
#[derive(Clone, Debug, PartialEq)]
pub enum Target {
    /// A number or a quantity.
    Number(Scalar),
    /// A word.
    Word(String),
}

struct TargetVisitor;

impl Visitor<'_> for TargetVisitor {
    type Value = Target;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number, or a quantity such as \"2us\"")
    }

    fn visit_i64<E: de::Error>(self, n: i64) -> Result<Target, E> {
        let negative = Target::Number(Scalar::Decimal(n as f64));
        Ok(u64::try_from(n).map_or(negative, |n| Target::Number(Scalar::Count(n))))
    }

    fn visit_f64<E: de::Error>(self, x: f64) -> Result<Target, E> {
        if x.is_finite() {
            return Ok(Target::Number(Scalar::Decimal(x)));
        }
        Err(E::invalid_value(de::Unexpected::Float(x), &self))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Target, E> {
        Ok(Scalar::parse(text).map_or_else(|| Target::Word(text.to_owned()), Target::Number))
    }
}

impl<'de> Deserialize<'de> for Target {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_any(TargetVisitor)
    }
}

impl<'de> Deserialize<'de> for Bound {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        match Target::deserialize(d)? {
            Target::Number(scalar) => Ok(Self(scalar)),
            Target::Word(word) => {
                let text = format!("\"{word}\" is no number and no quantity");
                Err(de::Error::custom(format!("{text}\nwrite for example 1.5 or \"2us\"")))
            }
        }
    }
}

impl Serialize for Bound {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        Target::Number(self.0).serialize(s)
    }
}

impl Serialize for Target {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Number(Scalar::Count(n)) => s.serialize_u64(*n),
            Self::Number(Scalar::Decimal(x)) => s.serialize_f64(*x),
            Self::Number(scalar) => s.serialize_str(&scalar.print()),
            Self::Word(word) => s.serialize_str(word),
        }
    }
}

impl JsonSchema for Bound {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Bound".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["number", "string"] })
    }
}

impl JsonSchema for Target {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Target".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["number", "string"] })
    }
}
