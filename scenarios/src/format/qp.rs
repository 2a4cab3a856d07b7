//! Attributes of queue pairs, under their verbs names.

use doorbell_core::units::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Right;
use crate::profile::Profile;
use crate::quantity::{Count, Quantity};

/// Attributes of every queue pair of the scenario.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Qp {
    /// Service of the queue pair.
    #[serde(rename = "type")]
    pub kind: QpKind,
    /// Path MTU: 256, 512, 1024, 2048 or 4096 bytes. Larger: fewer packets per message. Without it,
    /// 4096, or what `port.max_mtu` allows. The defaults of what follows are kept within the
    /// profile's limits in the same way.
    pub mtu: Quantity<Bytes>,
    /// Send queue depth in WQEs, at most the profile's `nic.max_sq_depth`.
    pub sq_depth: Count<1, { u32::MAX as u64 }>,
    /// Receive queue depth in WQEs, at most the profile's `nic.max_rq_depth`.
    pub rq_depth: Count<1, { u32::MAX as u64 }>,
    /// Completion queue depth. Without it, room for all that both queues can complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cq_depth: Option<Count<1, { u32::MAX as u64 }>>,
    /// Scatter/gather elements of a send, at most the profile's `nic.max_sge`.
    pub max_send_sge: Count<1, 64>,
    /// Inline payload asked for, at most the profile's `nic.max_inline`.
    pub max_inline: Quantity<Bytes>,
    /// Local ACK timeout as its code t: 4.096 us · 2^t. 0: no timeout. 14 is 67.1 ms.
    pub timeout: Count<0, 31>,
    /// Retries after a timeout or a NAK. 7 is seven, not for ever.
    pub retry_cnt: Count<0, 7>,
    /// Retries after receiver-not-ready. 7: for ever.
    pub rnr_retry: Count<0, 7>,
    /// How long a receiver-not-ready NAK makes the sender wait, as its code. 0 is 655.36 ms,
    /// 12 is 0.64 ms.
    pub min_rnr_timer: Count<0, 31>,
    /// READ and atomic requests outstanding as requester.
    pub max_rd_atomic: Count<0, 255>,
    /// READ and atomic requests outstanding as responder.
    pub max_dest_rd_atomic: Count<0, 255>,
    /// Service level of requests and responses: it chooses the traffic class.
    pub sl: Count<0, 15>,
    /// Whether every send makes a completion, whatever its flags.
    pub sig_all: bool,
    /// Operations that a queue pair lets its peer do (`qp_access_flags`); without it, all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access: Option<Vec<Right>>,
}

/// The defaults of perftest, where it has one (P-POST-005, P-POST-009, P-TO-004).
impl Default for Qp {
    fn default() -> Self {
        Self {
            kind: QpKind::Rc,
            mtu: Quantity(Bytes(4096)),
            sq_depth: Count::of(128),
            rq_depth: Count::of(512),
            cq_depth: None,
            max_send_sge: Count::of(1),
            max_inline: Quantity(Bytes(220)),
            timeout: Count::of(14),
            retry_cnt: Count::of(7),
            rnr_retry: Count::of(7),
            min_rnr_timer: Count::of(12),
            max_rd_atomic: Count::of(16),
            max_dest_rd_atomic: Count::of(16),
            sl: Count::of(0),
            sig_all: false,
            access: None,
        }
    }
}

/// Path MTUs that there are.
pub(super) const MTUS: [u64; 5] = [256, 512, 1024, 2048, 4096];

impl Qp {
    /// Lowers what the file does not give to what the device can do: a default is nobody's request,
    /// and no reason to refuse a file. `given`: whether the file has a key.
    pub(super) fn keep_defaults_within(&mut self, p: &Profile, given: impl Fn(&str) -> bool) {
        let mtu = MTUS.into_iter().rev().find(|m| *m <= p.port.max_mtu.0);
        let nic = &p.nic;
        lower(!given("mtu"), &mut self.mtu.0.0, mtu.unwrap_or(MTUS[0]));
        lower(!given("max_inline"), &mut self.max_inline.0.0, nic.max_inline.0);
        fewer(!given("sq_depth"), &mut self.sq_depth, nic.max_sq_depth);
        fewer(!given("rq_depth"), &mut self.rq_depth, nic.max_rq_depth);
        fewer(!given("max_send_sge"), &mut self.max_send_sge, nic.max_sge);
        fewer(!given("max_rd_atomic"), &mut self.max_rd_atomic, nic.max_rd_atomic);
        fewer(!given("max_dest_rd_atomic"), &mut self.max_dest_rd_atomic, nic.max_rd_atomic);
    }
}

fn lower(may: bool, value: &mut u64, most: u64) {
    *value = if may { most.min(*value) } else { *value };
}

/// As [`lower`], for a count; it stays where the limit is below its range.
fn fewer<const MIN: u64, const MAX: u64>(may: bool, n: &mut Count<MIN, MAX>, most: u64) {
    if may && (MIN..n.value()).contains(&most) {
        *n = Count::of(most);
    }
}

/// Service of a queue pair.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub enum QpKind {
    /// Reliable connection.
    #[default]
    #[serde(rename = "RC")]
    Rc,
    /// Unreliable connection.
    #[serde(rename = "UC")]
    Uc,
    /// Unreliable datagram.
    #[serde(rename = "UD")]
    Ud,
}
