//! The whole file.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use doorbell_core::units::Span;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserializer, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};

use super::settings::SettingValue;
use super::{
    Congestion, Expect, Fault, LinkLayer, Program, Qp, Srq, Sweep, Switch, Topology, Tune, Variant,
};
use crate::quantity::{Count, Frequency, Positive};

/// A scenario: a profile, a topology, programs, and what is expected of them.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// What the scenario shows, on one line.
    pub title: String,
    /// Claim or claims that it settles, such as `"A03"`; without it none.
    #[serde(default, skip_serializing_if = "Claims::is_empty")]
    pub claim: Claims,
    /// How the claim comes out, where there is one; without a claim there is none. The expectations
    /// are what proves it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<ClaimVerdict>,
    /// The figure that decides, and the condition where there is one, on one line. Without a claim
    /// there is none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub finding: String,
    /// Name of a hardware profile, or the path of a profile file.
    pub profile: String,
    /// Link layer of all ports: `ib` or `roce`, with its headers, flow control, routing, MTU and
    /// captures. Without it the profile's headers and routing, and switches that lose nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<LinkLayer>,
    /// Seed of all random streams. The same file and seed give the same run, bit for bit. TOML
    /// has no larger whole numbers.
    #[serde(default = "default_seed")]
    pub seed: Count<0, { i64::MAX as u64 }>,
    /// Profile parameters that this scenario changes, by path: `"pcie.width" = 8`. Without one the
    /// profile's value holds.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, SettingValue>,
    /// What is modelled, and for how long; without it all, for 10 s at most.
    #[serde(default)]
    pub run: RunOptions,
    /// Hosts and what is between them; without it two hosts and a cable.
    #[serde(default)]
    pub topology: Topology,
    /// Traffic classes, buffers, marks and pauses of the switches. Without it they have one class.
    #[serde(default, skip_serializing_if = "is_default")]
    pub switch: Switch,
    /// Attributes of every queue pair; without one its usual value.
    #[serde(default)]
    pub qp: Qp,
    /// Congestion control of every NIC; without it none.
    #[serde(default, skip_serializing_if = "Congestion::is_default")]
    pub congestion: Congestion,
    /// Shared receive queues. Without them each queue pair has a receive queue of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub srq: Option<Srq>,
    /// What the hosts do. At least one.
    pub program: Vec<Program>,
    /// What goes wrong.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fault: Vec<Fault>,
    /// What is recorded beside the counters; without it nothing.
    #[serde(default)]
    pub record: Record,
    /// Named sets of changes; the scenario runs once for each.
    #[serde(default, skip_serializing)]
    pub variant: Vec<Variant>,
    /// Values to try, by path; several make a grid. Without it there is one point for each variant.
    #[serde(default, skip_serializing)]
    pub sweep: Sweep,
    /// What `doorbell tune` looks for; without it flags say so.
    #[serde(default, skip_serializing)]
    pub tune: Option<Tune>,
    /// What the results must be.
    #[serde(default, skip_serializing)]
    pub expect: Vec<Expect>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

const fn default_seed() -> Count<0, { i64::MAX as u64 }> {
    Count::of(1)
}

/// Events of a run without a word: some ten times those of the largest network benchmark (1024
/// hosts that send 2 MB each through a fat tree), and a minute or two.
const MOST_EVENTS: u64 = 300_000_000;

/// What is modelled, and for how long.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RunOptions {
    /// Whether the profile's noise tables and the noise of switches are drawn from.
    pub noise: Noise,
    /// Whether cores, PCIe and NIC take time. `ideal` leaves only the network.
    pub host: HostModel,
    /// Simulated time after which the run ends, finished or not.
    pub limit: Positive<Span>,
    /// Events after which the run ends, finished or not: a machine handles some millions of them in
    /// a second. Higher: a run that gets nowhere, such as one in which nearly all packets are sent
    /// again in vain, is ended later.
    pub events: Count<1, { i64::MAX as u64 }>,
}

impl Default for RunOptions {
    fn default() -> Self {
        Self {
            noise: Noise::default(),
            host: HostModel::default(),
            limit: Positive(Span::from_ms(10_000)),
            events: Count::of(MOST_EVENTS),
        }
    }
}

/// Use of modelled noise.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Noise {
    /// As the profile says.
    #[default]
    On,
    /// None: closed forms hold exactly.
    Off,
}

/// Depth of the host model.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum HostModel {
    /// Every stage of the host path.
    #[default]
    Full,
    /// Hosts cost nothing; for studies of the network alone.
    Ideal,
}

/// What is recorded beside the counters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Record {
    /// Start and end of every step of the first messages.
    pub timeline: bool,
    /// Messages in the timeline, of the first program.
    pub timeline_messages: Count<1, 1000>,
    /// Time between two points at which queues, links, queue pairs and latencies are read. Without
    /// it nothing is recorded over time. Longer: bursts are seen in `queue_max` alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub series: Option<Positive<Span>>,
    /// What of it: names such as `"switch0.port3"`, `"host3"`, `"switch*.queue_max"`, in which `*`
    /// stands for any characters, or groups: `"queues"`, `"links"`, `"rates"`, `"latency"`. Without
    /// any, everything.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub series_of: Vec<String>,
    /// Points at which neighbours are merged and the interval doubles; even; without it 512.
    /// More: finer, for 8 bytes each number.
    #[serde(skip_serializing_if = "is_default_points")]
    pub series_points: Count<2, 65536>,
    /// Packets per second that a capture of one direction of a port keeps up with: what comes while
    /// one is being written and one waits is not in it. Counted as `tap.PORT.in.seen`,
    /// `tap.PORT.in.recorded` and `.share`, `out` likewise, and `--pcap` writes no more. Higher:
    /// more of a fast link is there. Without it a capture has every packet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tap: Option<Positive<Frequency>>,
}

/// Points of a series without a word.
const SERIES_POINTS: u64 = 512;

fn is_default_points(points: &Count<2, 65536>) -> bool {
    points.value() == SERIES_POINTS
}

impl Default for Record {
    fn default() -> Self {
        Self {
            timeline: false,
            timeline_messages: Count::of(1),
            series: None,
            series_of: Vec::new(),
            series_points: Count::of(SERIES_POINTS),
            tap: None,
        }
    }
}

/// How a claim comes out.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ClaimVerdict {
    /// As it was said.
    Holds,
    /// Under a condition, which the finding gives.
    HoldsWhen,
    /// Not at all, or with another figure, which the finding gives.
    Refuted,
}

impl ClaimVerdict {
    /// All.
    pub const ALL: [Self; 3] = [Self::Holds, Self::HoldsWhen, Self::Refuted];

    /// The word in files.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::HoldsWhen => "holds-when",
            Self::Refuted => "refuted",
        }
    }

    /// The words in tables.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::HoldsWhen => "holds when",
            Self::Refuted => "refuted",
        }
    }
}

/// One claim or several.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Claims(pub Vec<String>);

impl Claims {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

struct ClaimsVisitor;

impl<'de> Visitor<'de> for ClaimsVisitor {
    type Value = Claims;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a claim such as \"A03\" or a list of them")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Claims, E> {
        Ok(Claims(vec![text.to_owned()]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Claims, A::Error> {
        let mut claims = Vec::new();
        while let Some(claim) = seq.next_element()? {
            claims.push(claim);
        }
        Ok(Claims(claims))
    }
}

impl<'de> Deserialize<'de> for Claims {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_any(ClaimsVisitor)
    }
}

impl JsonSchema for Claims {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Claims".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["string", "array"], "items": { "type": "string" } })
    }
}
