//! Traffic of many hosts by one program: who sends how much to whom, and when.

use std::sync::Arc;

use doorbell_core::units::{Bytes, Ratio, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::flow_file::{FlowLine, SizeCdf};
use crate::quantity::{Positive, Quantity};

/// Table `flows` of a program of that kind. Times count from the moment at which all queue pairs
/// are connected.
///
/// The hosts are `host` and those after it, `hosts` in all. A flow is one message on each of `qps`
/// queue pairs of its own, which share its bytes; more messages where one would be larger than the
/// verbs allow. `op = "read"`: the host that gets the bytes asks for them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Flows {
    /// Who sends to whom.
    pub pattern: Pattern,
    /// When the first flow starts.
    #[serde(default = "none")]
    pub start: Quantity<Span>,
    /// `incast`, `permutation` and `all-to-all`: time from one flow's start to the next one's, in
    /// the order of senders. Longer: less of a burst.
    #[serde(default = "none")]
    pub stagger: Quantity<Span>,
    /// `poisson`: the distribution of sizes, instead of the program's `size`: `web-search`,
    /// `hadoop`, or a CSV file with the columns `bytes` and `percent`, seen from the scenario file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sizes: Option<String>,
    /// `poisson`: share of its link's rate that each host sends on average, payload only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<Quantity<Ratio>>,
    /// `poisson`: how long flows go on starting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<Positive<Span>>,
    /// `ring-allreduce`: bytes that a host passes on as soon as it has them; without it the share
    /// of one host, `size` / `hosts`. Smaller: the steps overlap, more messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunk: Option<Positive<Bytes>>,
    /// `trace`: a CSV file with a line of column names, `src`, `dst`, `bytes` and `start_ns` (or
    /// `start_us`, `start_ms`, `start_ps`), seen from the scenario file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// What `file` says.
    #[serde(skip)]
    #[schemars(skip)]
    pub lines: Arc<[FlowLine]>,
    /// What `sizes` says.
    #[serde(skip)]
    #[schemars(skip)]
    pub cdf: Option<Arc<SizeCdf>>,
}

const fn none() -> Quantity<Span> {
    Quantity(Span::ZERO)
}

/// Who sends to whom.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// Each host sends to `peer`.
    Incast,
    /// Each host sends to another one and gets from another one, drawn from the seed; nobody sends
    /// to itself.
    Permutation,
    /// Each host sends to each other.
    AllToAll,
    /// Each host starts flows to others, drawn evenly, at random moments that know nothing of each
    /// other (exponential gaps).
    Poisson,
    /// Hosts in a ring add up `size` bytes: 2 (n - 1) steps, in each of which a host passes a share
    /// of 1 / n on that it has got in the step before. The receiver has to be told, so messages are
    /// WRITEs with immediate data.
    RingAllreduce,
    /// The flows of a file.
    Trace,
}

impl Pattern {
    /// The word in files.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Incast => "incast",
            Self::Permutation => "permutation",
            Self::AllToAll => "all-to-all",
            Self::Poisson => "poisson",
            Self::RingAllreduce => "ring-allreduce",
            Self::Trace => "trace",
        }
    }

    /// Keys of the table with a use in this pattern alone or in few.
    pub(super) const fn keys(self) -> &'static [&'static str] {
        match self {
            Self::Incast | Self::Permutation | Self::AllToAll => &["stagger"],
            Self::Poisson => &["sizes", "load", "duration"],
            Self::RingAllreduce => &["chunk"],
            Self::Trace => &["file"],
        }
    }
}
