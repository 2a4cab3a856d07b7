//! Lanes of a program: classes of messages with queue pairs of their own.

use doorbell_core::units::{BitRate, Bytes, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Program, ProgramKind};
use crate::quantity::{Count, Positive, Quantity};

/// A class of messages of a `bandwidth` or `message-rate` program, with a stripe of queue pairs of
/// its own. All lanes of a thread are posted by one core, in the order of the list: what must not
/// wait stands first. What a lane leaves out it has from the program. Figures of each are at
/// `lane.NAME.`, as in `lane.control.latency.p99`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Lane {
    /// Name in results.
    pub name: String,
    /// Bytes of a message; without it the program's `size`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Quantity<Bytes>>,
    /// Messages per thread that are measured; without it the program's `iterations`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iterations: Option<Count<1, { u32::MAX as u64 }>>,
    /// Time between two messages; without it the program's `interval`, and without that as fast as
    /// they can be posted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<Positive<Span>>,
    /// Queue pairs of the stripe; without it the program's `qps`. More: more paths and more of the
    /// NIC's units at work, and no order across them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qps: Option<Count<1, 65536>>,
    /// Which queue pair of the stripe takes the next message; without it the program's `spread`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<Spread>,
    /// Flows that take the messages in turn, for `spread = "ordered"`: each keeps to one queue
    /// pair. Fewer than `qps`: some queue pairs have nothing to do.
    #[serde(default)]
    pub flows: Count<1, 65536>,
    /// Messages outstanding on each queue pair; without it the program's `window`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<Count<1, { u32::MAX as u64 }>>,
    /// Messages that are rung together; without it the program's `batch`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<Count<1, 65536>>,
    /// Longest time that a message waits for its batch to fill; without it the program's
    /// `batch_delay`, and without that for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_delay: Option<Positive<Span>>,
    /// How a batch grows up to `batch`; without it the program's `batch_mode`, and without that
    /// `fixed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_mode: Option<BatchMode>,
    /// Payload at which a batch is rung, though it has fewer messages than `batch`; without it the
    /// program's `batch_bytes`, and without that there is no such limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_bytes: Option<Positive<Bytes>>,
    /// Every n-th message of a queue pair makes a completion; without it the program's
    /// `signal_every`. Lowered to half of the window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal_every: Option<Count<1, 65536>>,
    /// Payloads of at most this size go inline; without it the program's `inline`, and without that
    /// what `qp.max_inline` grants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inline: Option<Quantity<Bytes>>,
    /// Service level of its queue pairs; without it that of the program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sl: Option<Count<0, 15>>,
    /// Most payload per second that the lane sends; without it there is no limit. Higher: sooner
    /// done, and more of it meets what others send.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pace: Option<Positive<BitRate>>,
    /// Most payload per second that the lane sends to each peer, beside `pace`; without it there is
    /// no limit. A program of a file has one peer, so the lower one of both is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer_pace: Option<Positive<BitRate>>,
    /// Bytes that may go at once after a pause, with `pace` or `peer_pace`; without it one message.
    /// Higher: bursts pass unhindered, and the queues in front of the receiver must hold them. A
    /// batch never gathers more: what is staged goes when the next message waits for its pace. Of
    /// one message the rate stays a little below the pace: what would be allowed while the core is
    /// still busy with the last message is lost. Two or more have it exactly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<Positive<Bytes>>,
}

impl Lane {
    /// One with nothing of its own.
    fn of(p: &Program) -> Self {
        Self {
            name: String::new(),
            size: None,
            iterations: None,
            interval: None,
            qps: None,
            spread: None,
            flows: Count::default(),
            window: None,
            batch: None,
            batch_delay: None,
            batch_mode: None,
            batch_bytes: None,
            signal_every: None,
            inline: None,
            sl: None,
            pace: p.pace,
            peer_pace: None,
            burst: p.burst,
        }
    }
}

/// How a batch grows up to its limits.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BatchMode {
    /// Up to `batch`, whatever the load: a lone message waits for `batch_delay`.
    #[default]
    Fixed,
    /// With the backlog: messages that are there together share a ring, a lone one goes at once
    /// unless others wait in the NIC before it.
    Adaptive,
}

/// Which queue pair of a stripe takes the next message.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Spread {
    /// Each flow keeps to one queue pair, so its messages are executed in their order.
    #[default]
    Ordered,
    /// One after the other, past those that are full.
    RoundRobin,
    /// The one with the fewest bytes outstanding: a slow path is given less.
    LeastBytes,
}

/// Where the flow labels of a program's queue pairs come from, and by them the UDP source ports
/// that switches hash.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Entropy {
    /// From the queue pair numbers, as Linux does it: two may fall on one port by chance.
    #[default]
    Qpn,
    /// A label of its own for each queue pair, so that no two of a pair of hosts have the same
    /// source port.
    Spread,
    /// One label for all: one path for all queue pairs of a pair of hosts.
    Same,
}

impl Program {
    /// Whether it posts by lanes.
    pub fn is_laned(&self) -> bool {
        let rate = matches!(self.kind, ProgramKind::Bandwidth | ProgramKind::MessageRate);
        let batched = self.batch_mode.is_some() || self.batch_bytes.is_some();
        let posted = self.pace.is_some() || self.spread.is_some() || batched;
        rate && (!self.lanes.is_empty() || posted)
    }

    /// Its lanes; one that is all of it where it has only keys of one, such as a pace. Empty where
    /// it posts without lanes.
    pub fn all_lanes(&self) -> Vec<Lane> {
        match (self.is_laned(), self.lanes.is_empty()) {
            (false, _) => vec![],
            (true, true) => vec![Lane::of(self)],
            (true, false) => self.lanes.clone(),
        }
    }

    /// Queue pairs per thread, of all lanes together.
    pub fn all_qps(&self) -> u64 {
        let qps = |l: &Lane| l.qps.map_or(self.qps.value(), |q| q.value());
        let lanes: u64 = self.lanes.iter().map(qps).sum();
        if self.is_laned() && lanes > 0 { lanes } else { self.qps.value() }
    }
}
