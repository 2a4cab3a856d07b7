//! Hosts, links and the switch.

use doorbell_core::units::{BitRate, Bytes, Span};
use schemars::JsonSchema;
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
