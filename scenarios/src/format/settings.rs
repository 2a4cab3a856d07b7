//! Values of profile parameters inside a scenario. Their types are checked with the profile.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserializer, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};

/// A value whose type the parameter decides.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum SettingValue {
    /// `true` or `false`
    Bool(bool),
    /// A whole number.
    Integer(i64),
    /// Any other number.
    Float(f64),
    /// A quantity or a word.
    Text(String),
    /// A list, for noise tables.
    List(Vec<SettingValue>),
}

struct SettingVisitor;

impl<'de> Visitor<'de> for SettingVisitor {
    type Value = SettingValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the value of a profile parameter")
    }

    fn visit_bool<E: de::Error>(self, b: bool) -> Result<SettingValue, E> {
        Ok(SettingValue::Bool(b))
    }

    fn visit_i64<E: de::Error>(self, n: i64) -> Result<SettingValue, E> {
        Ok(SettingValue::Integer(n))
    }

    fn visit_f64<E: de::Error>(self, x: f64) -> Result<SettingValue, E> {
        Ok(SettingValue::Float(x))
    }

    fn visit_str<E: de::Error>(self, s: &str) -> Result<SettingValue, E> {
        Ok(SettingValue::Text(s.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<SettingValue, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(SettingValue::List(items))
    }
}

impl<'de> Deserialize<'de> for SettingValue {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_any(SettingVisitor)
    }
}

impl JsonSchema for SettingValue {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "SettingValue".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "description": "value of a profile parameter, or a table of them" })
    }
}
