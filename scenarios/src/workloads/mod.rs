//! The programs that scenario files name.
//!
//! They are written against [`doorbell_core::transport`] alone: the same code runs on the ideal
//! back end, in the simulator and on hardware. Each has a config and [`Results`].
//!
//! | Program | Peer |
//! |---|---|
//! | [`Latency`], [`Rate`], [`Laned`], [`Script`] | [`Responder`], which may serve several |
//! | [`PingPong`] | itself, with `starts` turned |
//! | [`RequestReply`] | itself, with `asks` turned |
//! | [`Transfer`] | itself, with `starts` turned |
//! | [`Flows`] | [`Flows`] on each host that it has flows with |
//! | [`Summand`], [`SparseSummand`] | the same on each other member |
//! | [`Exchanger`] | [`Exchanger`] on each other member |
//! | [`Produce`] with a direct path | [`Verify`], or [`Responder`] |
//! | [`Produce`] through a [`Proxy`] on its host | the proxy's peer: [`Verify`] or [`Responder`] |
//!
//! A program that cannot go on ends with [`Results::failure`]. One that waits for what never comes
//! (a completion of a WQE that was not rung, a receive that is not posted) waits for ever, and the
//! back end's runner names the stall.

mod aggregate;
mod all_to_all;
mod common;
pub mod connect;
mod experts;
mod flows;
mod laned;
#[cfg(test)]
mod laned_tests;
mod latency;
mod numbers;
pub mod overrides;
pub mod payload;
mod pingpong;
mod produce;
mod protect;
mod proxy;
mod rate;
#[cfg(test)]
mod rate_tests;
mod requests;
mod responder;
pub mod script;
#[cfg(test)]
mod script_tests;
mod sharing;
mod sparse;
mod statuses;
mod transfer;
mod tuning;
mod verify;

pub use aggregate::{StepTimes, Summand, SummandConfig, Sums, Training};
pub use all_to_all::{Exchanged, Exchanger, ExchangerConfig, Share};
pub use common::*;
pub use connect::{LinkConfig, LocalConfig};
pub use experts::{Combine, Token};
pub use flows::{FlowEnd, FlowTime, FlowTimes, Flows, FlowsConfig, Gate, MAX_FLOW_MESSAGE};
pub use laned::{LaneTraffic, Laned, LanedConfig};
pub use latency::{Latency, LatencyConfig};
pub use pingpong::{PingPong, PingPongBy, PingPongConfig};
pub use produce::{Produce, ProduceConfig, ProducePath};
pub use protect::{Aim, Buffer, Origin, PeerKey};
pub use proxy::{Proxy, ProxyConfig};
pub use rate::{Arrivals, Rate, RateConfig, Stop};
pub use requests::{RequestReply, RequestReplyConfig};
pub use responder::{Responder, ResponderConfig, ResponderLink, SrqRepost, SrqUse};
pub use script::{LogEntry, Outcome, Script, ScriptConfig, ScriptStep};
pub use sharing::Sharing;
pub use sparse::{Kept, SparseSummand, SparseSummandConfig, sums_by_the_book};
pub use statuses::{MAX_RUNS, Statuses};
pub use transfer::{KernelUse, TcpCosts, Transfer, TransferConfig, TransferPath};
pub use tuning::{TuningConfig, TuningResults};
pub use verify::{Verify, VerifyConfig};

use doorbell_core::transport::{Control, Next, Program};
use doorbell_core::units::Time;

/// Any of the programs, for runners that hold many of them.
#[derive(Clone, Debug)]
pub enum Workload {
    /// One message at a time.
    Latency(Box<Latency>),
    /// A message and its answer.
    PingPong(Box<PingPong>),
    /// Requests and their replies, many outstanding.
    RequestReply(Box<RequestReply>),
    /// Many messages outstanding.
    Rate(Box<Rate>),
    /// A list of verbs calls.
    Script(Box<Script>),
    /// The passive side.
    Responder(Box<Responder>),
    /// Messages that become ready at intervals.
    Produce(Box<Produce>),
    /// A core that posts for producers.
    Proxy(Box<Proxy>),
    /// The receiver that checks.
    Verify(Box<Verify>),
    /// Transfers between many hosts.
    Flows(Box<Flows>),
    /// A member of an aggregation.
    Summand(Box<Summand>),
    /// A member of a sum of sparse vectors.
    SparseSummand(Box<SparseSummand>),
    /// Many messages outstanding, by lanes.
    Laned(Box<Laned>),
    /// A member of an exchange.
    Exchanger(Box<Exchanger>),
    /// Messages by a stated path, or the kernel's TCP.
    Transfer(Box<Transfer>),
}

impl Workload {
    /// What it measured.
    pub fn results(&self) -> &Results {
        match self {
            Self::Latency(p) => p.results(),
            Self::PingPong(p) => p.results(),
            Self::RequestReply(p) => p.results(),
            Self::Rate(p) => p.results(),
            Self::Script(p) => p.results(),
            Self::Responder(p) => p.results(),
            Self::Produce(p) => p.results(),
            Self::Proxy(p) => p.results(),
            Self::Verify(p) => p.results(),
            Self::Flows(p) => p.results(),
            Self::Summand(p) => p.results(),
            Self::SparseSummand(p) => p.results(),
            Self::Laned(p) => p.results(),
            Self::Exchanger(p) => p.results(),
            Self::Transfer(p) => p.results(),
        }
    }
}

impl Program for Workload {
    fn step<T: Control>(&mut self, t: &mut T) -> Next {
        match self {
            Self::Latency(p) => p.step(t),
            Self::PingPong(p) => p.step(t),
            Self::RequestReply(p) => p.step(t),
            Self::Rate(p) => p.step(t),
            Self::Script(p) => p.step(t),
            Self::Responder(p) => p.step(t),
            Self::Produce(p) => p.step(t),
            Self::Proxy(p) => p.step(t),
            Self::Verify(p) => p.step(t),
            Self::Flows(p) => p.step(t),
            Self::Summand(p) => p.step(t),
            Self::SparseSummand(p) => p.step(t),
            Self::Laned(p) => p.step(t),
            Self::Exchanger(p) => p.step(t),
            Self::Transfer(p) => p.step(t),
        }
    }

    fn acts_at(&self) -> Option<Time> {
        match self {
            Self::Rate(p) => p.acts_at(),
            Self::Responder(p) => p.acts_at(),
            Self::Laned(p) => p.acts_at(),
            // Their waits name what they wait for.
            Self::Latency(_) | Self::PingPong(_) | Self::Script(_) | Self::Produce(_) => None,
            Self::Proxy(_) | Self::Verify(_) | Self::Flows(_) | Self::Summand(_) => None,
            Self::SparseSummand(_) | Self::Exchanger(_) | Self::Transfer(_) => None,
            Self::RequestReply(_) => None,
        }
    }
}

macro_rules! from {
    ($($name:ident),* $(,)?) => {
        $(impl From<$name> for Workload {
            fn from(p: $name) -> Self {
                Self::$name(Box::new(p))
            }
        })*
    };
}

from!(
    Latency,
    PingPong,
    RequestReply,
    Rate,
    Script,
    Responder,
    Produce,
    Proxy,
    Verify,
    Flows,
    Summand,
    Laned,
    Exchanger,
    Transfer,
    SparseSummand,
);

#[cfg(test)]
mod tests {
    use super::*;
    use doorbell_core::ideal::{Ideal, Step, run};

    #[test]
    fn programs_of_all_kinds_run_side_by_side() {
        let mut programs: Vec<Workload> = vec![
            Latency::new(LatencyConfig::to(1)).into(),
            Responder::new(ResponderConfig::to(0)).into(),
            Rate::new(RateConfig::to(3)).into(),
            Responder::new(ResponderConfig::to(2)).into(),
            PingPong::new(PingPongConfig::to(5, true)).into(),
            PingPong::new(PingPongConfig::to(4, false)).into(),
            Produce::new(ProduceConfig::direct(7)).into(),
            Verify::new(VerifyConfig::of(6)).into(),
        ];
        let mut steps: Vec<&mut dyn Step> =
            programs.iter_mut().map(|p| p as &mut dyn Step).collect();
        run(&mut Ideal::new(8), &mut steps).unwrap();
        let messages: Vec<_> = programs.iter().map(|p| p.results().messages).collect();
        assert_eq!(messages, [1016, 0, 10_000, 0, 1016, 1016, 1000, 0]);
        assert!(programs.iter().all(|p| p.results().failure.is_none()));
    }
}
