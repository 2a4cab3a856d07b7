//! What a set of lanes refuses.

use core::fmt;

use crate::policy::{CqTooSmall, PaceError, PushError};
use crate::transport::{QpId, RingError};
use crate::units::Time;

use super::config::MAX_LANE_QPS;

/// Lanes that cannot be made.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum LanesError {
    /// No lane, no peer or no core.
    Empty,
    /// A stripe without queue pairs.
    NoQp {
        /// The lane.
        lane: u32,
    },
    /// A core that is not there.
    NoSuchCore {
        /// The core,
        got: u32,
        /// of so many.
        cores: u32,
    },
    /// More queue pairs than a handle can name.
    TooManyQps {
        /// Those of this core.
        got: u64,
    },
    /// Not as many queue pairs were handed over as the configuration asks for.
    Qps {
        /// Handed over.
        got: u32,
        /// Asked for.
        need: u32,
    },
    /// One queue pair was handed over twice.
    Twice {
        /// Its place in the list.
        at: u32,
    },
    /// The completion queue has too few entries.
    Cq(CqTooSmall),
    /// A pace that cannot be kept.
    Pace {
        /// The lane.
        lane: u32,
        /// Why.
        error: PaceError,
    },
}

impl fmt::Display for LanesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Empty => f.write_str("lanes need a lane, a peer and a core: give one of each"),
            Self::NoQp { lane } => {
                write!(f, "lane {lane} has no queue pair: give it `qps` of 1 or more")
            }
            Self::NoSuchCore { got, cores } => {
                write!(f, "core {got} of {cores}: name one below {cores}, or give more cores")
            }
            Self::TooManyQps { got } => {
                write!(
                    f,
                    "{got} queue pairs on one core, of {MAX_LANE_QPS} at most: give fewer `qps`, \
                     or spread the lanes over cores"
                )
            }
            Self::Qps { got, need } => {
                write!(f, "{got} queue pairs for lanes that need {need}: create those of `qps`")
            }
            Self::Twice { at } => {
                write!(f, "queue pair {at} of the list is an earlier one again: create another")
            }
            Self::Cq(e) => e.fmt(f),
            Self::Pace { lane, error } => write!(f, "lane {lane}: {error}"),
        }
    }
}

impl core::error::Error for LanesError {}

/// A message that did not go, or a pace that was not set.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum LaneError {
    /// There is no such lane.
    NoSuchLane {
        /// The lane,
        got: u32,
        /// of so many.
        lanes: u32,
    },
    /// There is no such peer.
    NoSuchPeer {
        /// The peer,
        got: u32,
        /// of so many.
        peers: u32,
    },
    /// Another core has the lane: hand the message over to it.
    OtherCore {
        /// The lane.
        lane: u32,
        /// Its core.
        core: u32,
    },
    /// Its pace does not let it go yet. Nothing was staged; push again at that time. What is held
    /// goes at its own deadline.
    Paced {
        /// When it may go, if nothing goes before.
        until: Time,
    },
    /// A pace that cannot be kept.
    Pace {
        /// The lane.
        lane: u32,
        /// Why.
        error: PaceError,
    },
    /// No queue pair that may take it has room. What they held has been rung: poll, hand over the
    /// completions, push again.
    Full,
    /// The queue pair refused it, or its ring failed.
    Push {
        /// The queue pair.
        qp: QpId,
        /// Why.
        error: PushError,
    },
    /// No queue pair has room, and the ring for what this one held failed.
    Ring(LaneRingError),
}

impl fmt::Display for LaneError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NoSuchLane { got, lanes } => {
                write!(f, "lane {got} of {lanes}: name one below {lanes}")
            }
            Self::NoSuchPeer { got, peers } => {
                write!(f, "peer {got} of {peers}: name one below {peers}")
            }
            Self::OtherCore { lane, core } => {
                write!(f, "lane {lane} is core {core}'s: hand the message over to that core")
            }
            Self::Pace { lane, error } => write!(f, "lane {lane}: {error}"),
            Self::Paced { until } => write!(f, "its pace lets it go at {until}: push again then"),
            Self::Full => {
                f.write_str("every queue pair that may take it is full: poll, then push again")
            }
            Self::Push { error, .. } => error.fmt(f),
            Self::Ring(e) => e.fmt(f),
        }
    }
}

impl core::error::Error for LaneError {}

/// A ring that failed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct LaneRingError {
    /// The queue pair.
    pub qp: QpId,
    /// What became of what it held.
    pub error: RingError,
}

impl fmt::Display for LaneRingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl core::error::Error for LaneRingError {}
