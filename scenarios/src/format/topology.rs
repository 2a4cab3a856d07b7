//! Hosts, links and the switch.

use doorbell_core::units::{BitRate, Bytes, Span};
use doorbell_core::verbs::PKey;
use schemars::JsonSchema;
use serde::de::{Deserializer, Error as _};
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};

use crate::quantity::{Count, Positive};

/// Hosts and what is between them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Topology {
    /// A cable between two hosts, or one switch with every host on it.
    pub kind: TopologyKind,
    /// Hosts. A cable has two.
    pub hosts: Count<1, 1024>,
    /// Rate of every link; without it the profile's port rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Positive<BitRate>>,
    /// Propagation of every link; without it the profile's. At least a picosecond.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub propagation: Option<Positive<Span>>,
    /// What the switch does when an output is busy and its buffer full.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub switch: Option<SwitchMode>,
    /// Buffer of the switch per port; without it the profile's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub buffer: Option<Positive<Bytes>>,
    /// P_Key table of every port, which `pkey` of a script's `state init` points into: 16 bits such
    /// as `"0x8001"`, bit 15 for full members. Two queue pairs whose entries name different
    /// partitions drop each other's packets.
    #[serde(default = "default_pkeys", skip_serializing_if = "is_default_pkeys")]
    pub pkeys: Vec<PKeyText>,
}

/// A P_Key, written as `"0x8001"`.
#[derive(Copy, Clone, PartialEq, Eq, Debug, JsonSchema)]
pub struct PKeyText(#[schemars(with = "String")] pub PKey);

impl Serialize for PKeyText {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for PKeyText {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        let digits = text.strip_prefix("0x").filter(|t| (1..=4).contains(&t.len()));
        let key = digits.and_then(|t| u16::from_str_radix(t, 16).ok());
        let wrong = || {
            let help = "16 bits such as \"0x8001\"";
            D::Error::custom(format_args!("\"{text}\" is no P_Key\n{help}"))
        };
        key.map(|key| Self(PKey(key))).ok_or_else(wrong)
    }
}

/// The default partition alone.
fn default_pkeys() -> Vec<PKeyText> {
    vec![PKeyText(PKey::DEFAULT)]
}

fn is_default_pkeys(keys: &[PKeyText]) -> bool {
    keys == default_pkeys()
}

impl Default for Topology {
    fn default() -> Self {
        Self {
            kind: TopologyKind::default(),
            hosts: Count::of(2),
            rate: None,
            propagation: None,
            switch: None,
            buffer: None,
            pkeys: default_pkeys(),
        }
    }
}

/// Shape of the network.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TopologyKind {
    /// Two hosts and a cable.
    #[default]
    BackToBack,
    /// Every host on one switch.
    Switch,
}

/// What a switch does with a packet that finds its output buffer full.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SwitchMode {
    /// It makes the sender wait; nothing is lost.
    #[default]
    Lossless,
    /// It drops the packet.
    TailDrop,
}

impl Topology {
    /// What the switch does with a packet that finds its output buffer full.
    pub fn switch_mode(&self) -> SwitchMode {
        self.switch.unwrap_or_default()
    }
}
