//! Shared receive queues.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::quantity::Count;

/// A shared receive queue: many queue pairs take their receives from one pool.
///
/// Every queue pair that receives uses it, at the peers of the programs and, in scripts, at both
/// sides. Without this table each queue pair has a receive queue of `qp.rq_depth`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Srq {
    /// Receives that it holds and that are posted at the start; without it `qp.rq_depth`. At most
    /// the profile's `nic.max_rq_depth`. Lower: less memory, and it runs dry earlier, for all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depth: Option<Count<1, { u32::MAX as u64 }>>,
    /// The device tells by an event when fewer receives are posted, once for each time that the
    /// limit is armed. 0: it never does.
    pub limit: Count<0, { u32::MAX as u64 }>,
    /// Whose queue pairs share one.
    pub share: SrqShare,
    /// When consumed receives are posted again.
    pub repost: SrqRepostBy,
}

/// Whose queue pairs share an SRQ.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SrqShare {
    /// All of a receiving host: one core serves the peers of all programs there.
    #[default]
    Host,
    /// Those of a program: each has its own SRQ, and its own core that serves it.
    Program,
}

/// When consumed receives of an SRQ are posted again.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SrqRepostBy {
    /// When `repost_batch` of them are there.
    #[default]
    Batch,
    /// All together when the limit event has come.
    Limit,
}
