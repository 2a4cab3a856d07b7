//! Every host has bytes for every other one: who gets what, and by which way.

use doorbell_core::units::{Bytes, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Element;
use crate::quantity::{Count, Positive};

/// Table `all_to_all` of a program of that kind.
///
/// The hosts are `host` and those after it, `hosts` in all; think of each as a GPU with a NIC, and
/// of a group as a node. Each has `size` bytes for each other one, or, with `tokens`, tokens of
/// `size` bytes for the hosts of some experts, `iterations` times. With `payload = "data"` all that
/// comes is checked. With `tokens.combine` sums of what the experts make of them come back, too.
/// The clock of rounds begins when all queue pairs are connected.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AllToAll {
    /// By which way.
    pub route: ExchangeRoute,
    /// Hosts of a group; without it those of a node (`topology.node`) or, without nodes, at one
    /// switch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<Count<1, 8192>>,
    /// Bytes of a message at the most. Smaller: a relay passes on earlier what it gets; more
    /// messages.
    #[serde(default = "default_chunk")]
    pub chunk: Positive<Bytes>,
    /// Pieces that one message may carry, if they follow each other where they land. A relay waits
    /// until a message is full. 1: each piece is a message.
    #[serde(default = "default_gather")]
    pub gather: Count<1, 256>,
    /// Messages outstanding to each host.
    #[serde(default = "default_window")]
    pub window: Count<1, 65536>,
    /// How long a hop may take, before who waits for it gives up, and how long a host may take to
    /// confirm what was sent to it. Every host that lives ends a round within so long times the
    /// hops and one more, with all that is for it or an error that names a host: another, or
    /// itself, where another has given up because of it and it knows of no cause elsewhere; with
    /// `tokens.combine` twice that, since each way has its own. A host that says that it waits for
    /// others itself is given as long again, within that bound. Before the first round hosts have
    /// 1 s to connect.
    #[serde(default = "default_deadline")]
    pub hop_deadline: Positive<Span>,
    /// Tokens for experts; without it, every host has the same number of bytes for every other one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<Tokens>,
}

const fn default_chunk() -> Positive<Bytes> {
    Positive(Bytes(64 << 10))
}

const fn default_gather() -> Count<1, 256> {
    Count::of(16)
}

const fn default_window() -> Count<1, 65536> {
    Count::of(8)
}

const fn default_deadline() -> Positive<Span> {
    Positive(Span::from_ms(100))
}

/// Tokens of a mixture of experts. Each goes to `top` different experts, drawn from the seed, all
/// equally likely; expert `e` of `experts` is on the `e * hosts / experts`-th host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Tokens {
    /// Tokens of each host. All are counted.
    pub each: Count<1, 1048576>,
    /// How many of them move, the first ones; without it all. Fewer: a run that takes less, and the
    /// counts are those of all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved: Option<Count<1, 1048576>>,
    /// Experts of all hosts, a multiple of `hosts`.
    pub experts: Count<1, 65536>,
    /// Experts of a token.
    pub top: Count<1, 256>,
    /// Groups that the experts of a token may be in; without it any number. A token then has the
    /// best experts of the groups that its best experts are in, and fewer than `top` where those
    /// have no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<Count<1, 8192>>,
    /// Combines: each expert makes of a token as many elements of this type, and the token's host
    /// has their sum back before the round ends. Experts on one host make one part. By `two-hop`
    /// the host that passes on adds the parts of its group, so that a sum leaves a group once,
    /// however many experts are there; by `direct` each part goes to the token's host, which adds.
    /// It takes `payload = "data"` and a `size` of a multiple of 8B; all sums are checked. Without
    /// it nothing comes back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub combine: Option<Element>,
}

/// By which way bytes go.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ExchangeRoute {
    /// From each host to each that is to have them.
    Direct,
    /// To the host of the same number in each group, which passes them on there.
    TwoHop,
}
