//! One sum of the vectors of many hosts: who adds for whom, and how.

use doorbell_core::transport::Reduce;
use doorbell_core::units::{Bytes, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::quantity::{Count, Positive, Quantity};

/// Table `aggregate` of a program of that kind.
///
/// The hosts are `host` and those after it, `hosts` in all. Each has a vector of `size` bytes; all
/// elements are summed, `iterations` times. `op` says how a contribution reaches the host that adds
/// it: `send` into a shared pool of receives, `write` (with immediate data) into slots, or `read`
/// by the host that adds. All sums are checked. The clock of rounds begins when all queue pairs are
/// connected.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Aggregate {
    /// Who sends to whom.
    pub plan: AggregatePlan,
    /// `two-hop` and `two-level`: hosts of a group; without it those of a node (`topology.node`)
    /// or, without nodes, at one switch. Larger groups: fewer bytes between groups, more for each
    /// aggregator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<Count<1, 8192>>,
    /// `two-hop` and `two-level`: hosts of each group that add, each its share of the vector. More:
    /// fewer bytes for each.
    #[serde(default)]
    pub aggregators: Count<1, 8192>,
    /// All plans but `ring`: parts of the vector with a root of their own; without it in `direct`
    /// one, in `two-hop` `aggregators`, in `two-level` `aggregators` times the groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lanes: Option<Count<1, 4096>>,
    /// `two-level`: how contributions reach the host that adds for its group; without it `direct`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inside: Option<InsidePlan>,
    /// Type of the elements.
    #[serde(default)]
    pub element: Element,
    /// In which order contributions are added.
    #[serde(default)]
    pub order: SumOrder,
    /// Who adds; without it the initiator, or, where a core posts and `memory = "gpu"`, a kernel of
    /// that GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reduce_on: Option<Adder>,
    /// Sends sparse vectors: the so many elements of each with the greatest magnitude, with their
    /// places; the rest is added to the host's next vector (error feedback). Where that is no fewer
    /// bytes than the whole vector, the vector goes. All hosts get all of them, directly or, in the
    /// plan `two-hop`, by way of one host of each group, and add them: a sum of what was sent.
    /// More: more bytes, nearer to the whole sum. Without it, whole vectors go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top_k: Option<Count<1, 2147483647>>,
    /// Bytes that go over a hop together, a multiple of 8. Smaller: hops overlap better, more
    /// messages.
    #[serde(default = "default_chunk")]
    pub chunk: Positive<Bytes>,
    /// Chunks of a lane that a host may have under way. More: more buffers, and links that stay
    /// busy over longer ways, also with small chunks; in `direct` more that come at once.
    #[serde(default = "default_window")]
    pub window: Count<1, 65536>,
    /// `op = "send"`: receives for contributions; without it as many as can come. Fewer need
    /// `order = "arrival"`, and bursts meet RNR NAKs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<Count<1, 65536>>,
    /// `op = "read"`: READs that a host has outstanding.
    #[serde(default = "default_reads")]
    pub reads: Count<1, 65536>,
    /// Whether all hosts get the sum (AllReduce), or only the root (Reduce).
    #[serde(default = "yes")]
    pub broadcast: bool,
    /// Each host joins each round at a moment of its own within this time, drawn from the seed.
    #[serde(default = "none")]
    pub jitter: Quantity<Span>,
    /// Each of the `iterations` is a training step, whose gradients come in buckets of `size`
    /// bytes during the backward pass; without it each is one sum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub training: Option<Training>,
    /// How long the oldest chunk may take per hop, before who waits for it gives up, and how long a
    /// peer may take to confirm what was sent to it. A host that says that it waits for others
    /// itself is given as long again. Lower: a dead host or a program that stopped is named sooner,
    /// and one that is slow or behind a loss is taken for dead. At most a third of
    /// `round_deadline` leaves time to hear who that is.
    #[serde(default = "default_chunk_deadline")]
    pub chunk_deadline: Positive<Span>,
    /// How long a round may take. Every host that lives ends it by then with the sum or an error
    /// that names a host: another, or itself, where another has given up because of it and it knows
    /// of no cause elsewhere. Before the first round hosts have 1 s to connect.
    #[serde(default = "default_round_deadline")]
    pub round_deadline: Positive<Span>,
    /// Whether hosts go on without one that an error names: they connect anew, and do the round
    /// again by themselves. Such sums are counted apart (`sums_of_survivors`). Who had the sum of
    /// that round already does it again with the others (`sums_replaced`). It takes 1 s at the most
    /// until they are connected or end with an error, as they do where one of them had its last sum
    /// and has ended, or where they do not name the same host. Otherwise an error is the end.
    #[serde(default, skip_serializing_if = "super::switch::is_false")]
    pub goes_on: bool,
}

/// Table `training` of an aggregation.
///
/// A host computes the forward pass, then the backward pass, during which the buckets of gradients
/// become ready one after the other; each is summed as soon as it is ready and the sum before it
/// is done. The next step begins with the last sum. The passes are a GPU's: they keep no core busy.
#[derive(Copy, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Training {
    /// The forward pass; without it none.
    #[serde(default = "none")]
    pub forward: Quantity<Span>,
    /// The backward pass. Longer: more communication is hidden behind it.
    pub backward: Positive<Span>,
    /// Buckets of a step. More: the first sum begins earlier, and each sum's latency counts.
    pub buckets: Count<1, 65536>,
}

const fn default_window() -> Count<1, 65536> {
    Count::of(8)
}

const fn default_chunk() -> Positive<Bytes> {
    Positive(Bytes(64 << 10))
}

pub(super) const fn default_reads() -> Count<1, 65536> {
    Count::of(16)
}

const fn default_chunk_deadline() -> Positive<Span> {
    Positive(Span::from_ms(100))
}

const fn default_round_deadline() -> Positive<Span> {
    Positive(Span::from_ms(1000))
}

const fn yes() -> bool {
    true
}

const fn none() -> Quantity<Span> {
    Quantity(Span::ZERO)
}

/// Who sends to whom.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AggregatePlan {
    /// All hosts send to the root.
    Direct,
    /// Hosts send to an aggregator of their group, aggregators to the root.
    TwoHop,
    /// Each share of the vector goes once around all hosts, then the sum does.
    Ring,
    /// Hosts send to an aggregator of their group; the sums of the groups go around a ring of
    /// aggregators, then the whole sum does, and comes back inside the groups.
    TwoLevel,
}

/// How contributions reach the host that adds for its group.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum InsidePlan {
    /// All send to it.
    Direct,
    /// From one to the next.
    Ring,
}

impl AggregatePlan {
    /// The word in files.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::TwoHop => "two-hop",
            Self::Ring => "ring",
            Self::TwoLevel => "two-level",
        }
    }
}

/// Type of the elements.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Element {
    /// 4-byte floats.
    #[default]
    F32,
    /// 8-byte floats.
    F64,
    /// 8-byte integers.
    I64,
}

impl Element {
    /// How they are added.
    pub const fn arithmetic(self) -> Reduce {
        match self {
            Self::F32 => Reduce::SumF32,
            Self::F64 => Reduce::SumF64,
            Self::I64 => Reduce::SumI64,
        }
    }
}

/// Who adds contributions, each in its own memory: nothing is copied from one to the other.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Adder {
    /// The core that polls, at `cpu.reduce_rate` and no more than its memory gives.
    Cpu,
    /// The GPU that has the memory. With `initiator = "gpu"` the block that polls, at
    /// `gpu.reduce_rate`. Where a core polls, a kernel for each contribution of a chunk: it takes
    /// `gpu.kernel_launch` and three times the bytes at `gpu.kernel_bandwidth`, and the core waits
    /// for its end.
    Gpu,
}

/// In which order contributions are added.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SumOrder {
    /// Always the same, so that floats have the same bits in every run.
    #[default]
    Fixed,
    /// As they arrive.
    Arrival,
}
