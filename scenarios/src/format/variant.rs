//! Variants: named sets of changes.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::settings::SettingValue;

/// A named set of changes to the scenario.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Variant {
    /// The name that expectations and reports use.
    pub name: String,
    /// Values by path: `{ "qp.mtu" = "1KiB" }`. Empty: the scenario as it stands.
    #[serde(default)]
    pub set: BTreeMap<String, SettingValue>,
}
