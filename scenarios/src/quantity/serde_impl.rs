//! Quantities and counts as fields of a file: reading, writing and their JSON schema.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserializer, Visitor};
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};

use super::{Problem, QuantityError, Unit};

/// A quantity written with its unit; zero is allowed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Quantity<T>(pub T);

/// A quantity written with its unit, and not zero.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Positive<T>(pub T);

/// A whole number from `MIN` to `MAX`, without a unit.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Count<const MIN: u64, const MAX: u64>(u64);

impl<const MIN: u64, const MAX: u64> Count<MIN, MAX> {
    /// The count, or `None` outside the range.
    pub const fn new(n: u64) -> Option<Self> {
        if n < MIN || n > MAX { None } else { Some(Self(n)) }
    }

    /// A default, checked when it is made.
    ///
    /// # Panics
    /// When `n` is outside the range.
    pub const fn of(n: u64) -> Self {
        assert!(n >= MIN && n <= MAX, "a default outside its own range");
        Self(n)
    }

    /// The number.
    pub const fn value(self) -> u64 {
        self.0
    }
}

/// The smallest count; what a key that is left out means unless its type says otherwise.
impl<const MIN: u64, const MAX: u64> Default for Count<MIN, MAX> {
    fn default() -> Self {
        Self(MIN)
    }
}

impl<T> Deref for Quantity<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> Deref for Positive<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Unit> Serialize for Quantity<T> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&self.0.print())
    }
}

impl<T: Unit> Serialize for Positive<T> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&self.0.print())
    }
}

impl<const MIN: u64, const MAX: u64> Serialize for Count<MIN, MAX> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_u64(self.0)
    }
}

/// Message and remedy, separated the way `input::Error` takes them apart.
pub(crate) fn quantity_error<E: de::Error>(error: &QuantityError) -> E {
    E::custom(format_args!("{error}\n{}", error.remedy()))
}

struct QuantityVisitor<T>(PhantomData<T>);

impl<T: Unit> Visitor<'_> for QuantityVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} such as \"{}\"", T::KIND.name, T::KIND.example)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        T::parse(text).map_err(|e| quantity_error(&e))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
        self.visit_number(&number.to_string())
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
        self.visit_number(&number.to_string())
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<T, E> {
        self.visit_number(&number.to_string())
    }
}

impl<T: Unit> QuantityVisitor<T> {
    /// A bare number is right only for kinds without a unit (ratios); else the error names it.
    fn visit_number<E: de::Error>(self, text: &str) -> Result<T, E> {
        self.visit_str(text)
    }
}

impl<'de, T: Unit> Deserialize<'de> for Quantity<T> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_any(QuantityVisitor(PhantomData)).map(Self)
    }
}

impl<'de, T: Unit> Deserialize<'de> for Positive<T> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let value: T = d.deserialize_any(QuantityVisitor(PhantomData))?;
        if value.is_zero() {
            let error = QuantityError::new(&value.print(), T::KIND, Problem::Zero);
            return Err(quantity_error(&error));
        }
        Ok(Self(value))
    }
}

struct CountVisitor<const MIN: u64, const MAX: u64>;

impl<const MIN: u64, const MAX: u64> Visitor<'_> for CountVisitor<MIN, MAX> {
    type Value = Count<MIN, MAX>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if MAX == u64::MAX {
            write!(f, "a whole number of at least {MIN}")
        } else {
            write!(f, "a whole number from {MIN} to {MAX}")
        }
    }

    fn visit_i64<E: de::Error>(self, n: i64) -> Result<Self::Value, E> {
        u64::try_from(n)
            .ok()
            .and_then(Count::new)
            .ok_or_else(|| E::invalid_value(de::Unexpected::Signed(n), &self))
    }

    fn visit_u64<E: de::Error>(self, n: u64) -> Result<Self::Value, E> {
        Count::new(n).ok_or_else(|| E::invalid_value(de::Unexpected::Unsigned(n), &self))
    }
}

impl<'de, const MIN: u64, const MAX: u64> Deserialize<'de> for Count<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_any(CountVisitor::<MIN, MAX>)
    }
}

fn quantity_schema<T: Unit>() -> Schema {
    let kind = T::KIND;
    let units: Vec<&str> = kind.units.iter().map(|(u, _)| *u).collect();
    if kind.units.iter().any(|(u, _)| u.is_empty()) {
        return json_schema!({
            "type": ["string", "number"],
            "description": format!("{} such as \"{}\"", kind.name, kind.example),
        });
    }
    json_schema!({
        "type": "string",
        "pattern": format!(r"^\s*[0-9][0-9_]*(\.[0-9]+)?\s*({})\s*$", units.join("|")),
        "description": format!("{} such as \"{}\"", kind.name, kind.example),
    })
}

impl<T: Unit> JsonSchema for Quantity<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        T::KIND.name.into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        quantity_schema::<T>()
    }
}

impl<T: Unit> JsonSchema for Positive<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        T::KIND.name.into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        quantity_schema::<T>()
    }
}

impl<const MIN: u64, const MAX: u64> JsonSchema for Count<MIN, MAX> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Count".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        if MAX == u64::MAX {
            return json_schema!({ "type": "integer", "minimum": MIN });
        }
        json_schema!({ "type": "integer", "minimum": MIN, "maximum": MAX })
    }
}
