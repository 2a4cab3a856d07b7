//! Congestion control of every NIC.

use doorbell_core::units::{BitRate, Bytes, Ratio, Span};
use doorbell_sim::cc::CnpScope;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::quantity::{Count, Frequency, Positive, Quantity};

type Rate = Option<Positive<BitRate>>;
type Time = Option<Positive<Span>>;

/// Congestion control of every NIC: how fast senders go, and what receivers make of marked packets.
///
/// Keys have the names of mlxconfig, debugfs and the management datagrams. What is left out is the
/// parameter set's. Marks are a matter of the switches.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Congestion {
    /// What senders do.
    pub control: ControlKind,
    /// Where what is left out comes from; without it `paper`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parameters: Option<ParameterSet>,
    /// Least time between two CNPs of a scope. Higher: senders hear of marks less often.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_time_between_cnps: Option<Quantity<Span>>,
    /// What keeps this distance. Wider: of many flows only some hear of the marks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cnp_scope: Option<CnpScopeKind>,
    /// From a marked packet in the receiver to the CNP at its port. Longer: the loop is slower, and
    /// queues swing more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cnp_delay: Option<Quantity<Span>>,
    /// Service level of CNPs; without it that of the marked packet. In a class of their own they do
    /// not wait behind data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cnp_sl: Option<Count<0, 15>>,
    /// A sequence NAK comes with a CNP: losses cut rates as marks do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cnp_with_nak: Option<bool>,
    /// A marked request that asks for an ACK is echoed in it, and only others by a CNP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub becn_in_acks: Option<bool>,
    /// A change of the rate holds from the next packet on, and leaves the gap that runs as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_gap: Option<bool>,
    /// `dcqcn`: step of the target rate in additive increase. Higher: rates come back sooner, and
    /// queues swing more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rpg_ai_rate: Rate,
    /// `dcqcn`: step of the target rate in hyper increase. Higher: as above, after a long quiet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rpg_hai_rate: Rate,
    /// `dcqcn`: a cut takes alpha / 2^gd, alpha counted in 1/1024. 11 is half of alpha; one more
    /// halves each cut.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rpg_gd: Option<Count<10, 15>>,
    /// `dcqcn`: least share of the rate that a cut leaves, percent. Higher: gentler cuts, longer
    /// queues.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rpg_min_dec_fac: Option<Count<0, 100>>,
    /// `dcqcn`: rate below which no cut goes. Higher: n flows fill a queue that n times this rate
    /// overloads, whatever is marked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rpg_min_rate: Rate,
    /// `dcqcn`: rate at which the limiter ends; without it the port's. Lower: a flow that was cut
    /// is free sooner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rpg_max_rate: Rate,
    /// `dcqcn`: rate that the first CNP sets; without it that CNP cuts. Lower: the first burst is
    /// cut deeper.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_to_set_on_first_cnp: Rate,
    /// `dcqcn`: steps of fast recovery. More: a flow stays longer near the rate before the cut.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rpg_threshold: Option<Count<1, 1000>>,
    /// `dcqcn`: time between two steps of the increase timer. Longer: rates come back later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rpg_time_reset: Time,
    /// `dcqcn`: bytes between two steps of the byte counter. `"0B"`: there is no counter. More:
    /// fast flows come back later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rpg_byte_reset: Option<Quantity<Bytes>>,
    /// `dcqcn`: alpha of a new limiter, in 1/1023. Higher: a deeper first cut.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial_alpha_value: Option<Count<0, 1023>>,
    /// `dcqcn`: share of the old alpha that an update keeps, in 1/1024. Higher: alpha follows marks
    /// more slowly.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dce_tcp_g: Option<Count<0, 1023>>,
    /// `dcqcn`: time between two updates of alpha. Longer: alpha falls more slowly, so cuts stay
    /// deep.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dce_tcp_rtt: Time,
    /// `dcqcn`: least time between two cuts. Longer: fewer cuts, longer queues.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_reduce_monitor_period: Option<Quantity<Span>>,
    /// `dcqcn`: every cut sets the target to the rate before it, so that repeated cuts come back to
    /// less.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clamp_tgt_rate: Option<bool>,
    /// `dcqcn`: only a cut after a step of the timer does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clamp_tgt_rate_after_time_inc: Option<bool>,
    /// `dcqcn`: cuts come at the ends of periods in which a CNP came, counted from the first CNP.
    /// Otherwise the CNP itself cuts. On: an overload goes on for a period before the first cut.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cut_on_clock: Option<bool>,
    /// `dcqcn`: a flow that is back at the line rate keeps its alpha; without it the next CNP is a
    /// first one again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_limiter: Option<bool>,
    /// `timely`: round trip time below which the rate rises in any case. Higher: longer queues.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub t_low: Time,
    /// `timely`: round trip time above which it falls in any case. Higher: longer queues at worst.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub t_high: Time,
    /// `timely`: step up. Higher: rates rise faster, and queues swing more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub add_step: Rate,
    /// `timely`: depth of a cut, at most 1. Higher: deeper cuts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beta: Option<Quantity<Ratio>>,
    /// `timely`: weight of a new change of the round trip time, at most 1. Higher: faster, and more
    /// led by noise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ewma: Option<Quantity<Ratio>>,
    /// `timely`: round trip time of the empty path, to which gradients are in proportion. Higher:
    /// smaller gradients.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_rtt: Time,
    /// `timely`: segments of falling round trip times after which steps are five times as large.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hai_threshold: Option<Count<1, 1000>>,
    /// `timely`: payload acknowledged between two decisions. More: fewer decisions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub segment: Option<Positive<Bytes>>,
    /// `timely` and `integral`: rate below which no cut goes. Higher: n flows fill a queue that n
    /// times this rate overloads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_rate: Rate,
    /// `integral`: round trip time to hold: that of the empty path and of the queue that is wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Time,
    /// `integral`: gain, per second, written `"430/s"` or `"1kHz"`: with a deviation of the whole
    /// target the bytes in flight change by the share gain x t in a short time t. Calm up to 0.37 /
    /// target, oscillating for ever from 1.57 / target on. Higher: faster, until it oscillates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gain: Option<Positive<Frequency>>,
    /// `integral`: rate to begin with; without it the port's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_rate: Rate,
    /// `ibcc`: steps up the table per BECN. More: deeper cuts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ccti_increase: Option<Count<1, 65_535>>,
    /// `ibcc`: time until a step down, in units of 1.024 us. Longer: rates come back later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ccti_timer: Option<Count<1, 65_535>>,
    /// `ibcc`: index below which no step goes. Higher: no flow has the whole rate any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ccti_min: Option<Count<0, 16_383>>,
    /// `ibcc`: last index of the table. Higher: lower rates are possible.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ccti_limit: Option<Count<1, 16_383>>,
    /// `ibcc`: the table's entry i is the rate line / (1 + i / 2^shift). Higher: finer steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cct_shift: Option<Count<0, 3>>,
    /// `ibcc`: what shares an index and a rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<RateScope>,
}

impl Congestion {
    /// Whether the file has no such table, or an empty one.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// What senders do about congestion.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ControlKind {
    /// Nothing: they send as fast as they can.
    #[default]
    None,
    /// DCQCN: CNPs cut the rate, timers bring it back.
    Dcqcn,
    /// TIMELY: the gradient of the round trip time.
    Timely,
    /// Native InfiniBand: BECNs move an index into a table of gaps.
    Ibcc,
    /// An integral controller on the round trip time, synthetic: no device has it.
    Integral,
}

impl ControlKind {
    /// The word in files.
    pub const fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Dcqcn => "dcqcn",
            Self::Timely => "timely",
            Self::Ibcc => "ibcc",
            Self::Integral => "integral",
        }
    }

    /// Whether it hears of congestion by marked packets alone.
    pub(crate) const fn waits_for_marks(self) -> bool {
        matches!(self, Self::Dcqcn | Self::Ibcc)
    }

    /// Keys that have a use.
    pub(super) const fn keys(self) -> &'static [&'static str] {
        match self {
            Self::None => &[],
            Self::Dcqcn => &[
                "parameters",
                "rpg_ai_rate",
                "rpg_hai_rate",
                "rpg_gd",
                "rpg_min_dec_fac",
                "rpg_min_rate",
                "rpg_max_rate",
                "rate_to_set_on_first_cnp",
                "rpg_threshold",
                "rpg_time_reset",
                "rpg_byte_reset",
                "initial_alpha_value",
                "dce_tcp_g",
                "dce_tcp_rtt",
                "rate_reduce_monitor_period",
                "clamp_tgt_rate",
                "clamp_tgt_rate_after_time_inc",
                "cut_on_clock",
                "keep_limiter",
                "min_time_between_cnps",
                "cnp_scope",
                "cnp_delay",
                "cnp_sl",
                "cnp_with_nak",
                "becn_in_acks",
                "keep_gap",
            ],
            Self::Timely => &[
                "keep_gap",
                "t_low",
                "t_high",
                "add_step",
                "beta",
                "ewma",
                "min_rtt",
                "hai_threshold",
                "segment",
                "min_rate",
            ],
            Self::Ibcc => &[
                "ccti_increase",
                "ccti_timer",
                "ccti_min",
                "ccti_limit",
                "cct_shift",
                "scope",
                "min_time_between_cnps",
                "cnp_scope",
                "cnp_delay",
                "cnp_sl",
                "cnp_with_nak",
                "becn_in_acks",
                "keep_gap",
            ],
            Self::Integral => &["target", "gain", "start_rate", "min_rate", "keep_gap"],
        }
    }
}

/// Where parameters come from.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ParameterSet {
    /// The DCQCN paper: a CNP cuts, at most once per 50 us.
    #[default]
    Paper,
    /// The HPCC paper's simulator and its descendants: marks in ACKs, cuts on a clock of 50 us.
    Hpcc,
    /// ConnectX, in the vendor's new documents.
    Vendor,
}

/// What CNPs keep their distance by.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CnpScopeKind {
    /// Each queue pair by itself (E810).
    Qp,
    /// All queue pairs of one peer together (ConnectX-4 Lx).
    Destination,
    /// All of the port (ConnectX-5 and 6).
    Port,
}

impl From<CnpScope> for CnpScopeKind {
    fn from(scope: CnpScope) -> Self {
        match scope {
            CnpScope::Qp => Self::Qp,
            CnpScope::Destination => Self::Destination,
            CnpScope::Port => Self::Port,
        }
    }
}

/// What shares a rate.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RateScope {
    /// Each queue pair has its own.
    Qp,
    /// All queue pairs of a service level have one.
    Sl,
}
