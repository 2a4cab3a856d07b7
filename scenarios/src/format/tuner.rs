//! A tuner in a program.

use doorbell_core::units::Span;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::quantity::Positive;

/// Table `tuner` of a program; `tuner = {}` for all defaults.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TunerTable {
    /// Length of a window, by which the tuner observes. It should hold some hundred messages, and
    /// lasts until 32 have completed. Longer: steadier figures, and the tuner takes longer. Shorter
    /// than a message takes: it goes by the rate alone.
    #[serde(default = "default_window")]
    pub window: Positive<Span>,
    /// What the 99th percentile of the latency may be. Without it, the most messages per second
    /// are sought, and at the same rate the shortest latency.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Positive<Span>>,
}

const fn default_window() -> Positive<Span> {
    Positive(Span::from_us(50))
}
