//! The scenario format: one TOML file that asks one question.
//!
//! [`load::load`] reads a file, [`expand::expand`] turns it into points, one for each
//! combination of variant and sweep values. Every key is documented at its field here; the JSON
//! schema and `doorbell explain` come from the same definitions.

mod aggregate;
mod all_to_all;
mod check;
mod check_aggregate;
mod check_all_to_all;
mod check_congestion;
pub(crate) mod check_faults;
mod check_flows;
mod check_groups;
mod check_hosts;
mod check_initiator;
mod check_kinds;
mod check_lanes;
mod check_link;
mod check_srq;
mod check_switch;
mod check_topology;
mod check_transfer;
mod congestion;
pub mod expand;
mod expect;
mod expect_check;
mod fault;
mod fence;
pub mod flow_file;
mod flows;
pub mod keys;
mod lane;
mod link;
pub mod load;
mod paths;
mod program;
mod protect;
mod qp;
mod scenario;
pub mod schema;
mod script;
mod settings;
mod srq;
mod state_step;
mod sweep;
mod switch;
mod topology;
mod transfer;
mod tune;
mod tuner;
mod variant;

#[cfg(test)]
mod aggregate_tests;
#[cfg(test)]
mod all_to_all_tests;
#[cfg(test)]
mod bad_input_tests;
#[cfg(test)]
mod congestion_tests;
#[cfg(test)]
mod expand_tests;
#[cfg(test)]
mod fault_tests;
#[cfg(test)]
mod initiator_tests;
#[cfg(test)]
mod lane_tests;
#[cfg(test)]
mod link_tests;
#[cfg(test)]
mod requests_tests;
#[cfg(test)]
mod switch_tests;
#[cfg(test)]
mod topology_tests;
#[cfg(test)]
mod transfer_tests;

pub use aggregate::{Adder, Aggregate, AggregatePlan, Element, InsidePlan, SumOrder, Training};
pub use all_to_all::{AllToAll, ExchangeRoute, Tokens};
pub use congestion::{CnpScopeKind, Congestion, ControlKind, ParameterSet, RateScope};
pub use expect::{
    AxisExpect, Bound, CountExpect, CrossoverExpect, Direction, EqualsExpect, ExitExpect, Expect,
    MonotoneExpect, Names, PairExpect, RangeExpect, Target, Where,
};
pub use fault::{Burst, Fault, FaultClass, FaultKind, FaultPart};
pub use fence::Fence;
pub use flows::{Flows, Pattern};
pub use lane::{BatchMode, Entropy, Lane, Spread};
pub use link::{CreditChange, Credits, LinkLayer};
pub(crate) use paths::resolve;
pub use program::{
    Fallback, Initiator, Memory, Numa, Op, Payload, PeerPoll, Poll, Program, ProgramKind, Receives,
    RingBy, RingMode,
};
pub use protect::{KeyWord, RecvBuffer, Right, Spot};
pub use qp::{Qp, QpKind};
pub use scenario::{ClaimVerdict, Claims, HostModel, Noise, Record, RunOptions, Scenario};
pub(crate) use script::ALL_QPS;
pub use script::{PostStep, Step, StepEvent, StepState};
pub use settings::SettingValue;
pub use srq::{Srq, SrqRepostBy, SrqShare};
pub use state_step::{StateAttributes, StateStep, StepPsn};
pub use sweep::{Axis, AxisSpec, MAX_POINTS, RangeSpec, Sweep};
pub(crate) use sweep::{axes, scalar};
pub use switch::{
    Ecn, EcnAt, EcnException, HeadroomText, ServeMode, SharingMode, StormMode, Switch, TrafficClass,
};
pub(crate) use topology::MAX_LINKS;
pub use topology::{
    HashMode, NicPlace, PKeyText, RoutingMode, SwitchMode, Topology, TopologyKind, TopologyLink,
    TopologyRoute,
};
pub use transfer::{Transfer, TransferPath};
pub use tune::{Tune, TunePlan};
pub(crate) use tune::{check_knobs, variant};
pub use tuner::TunerTable;
pub use variant::Variant;
