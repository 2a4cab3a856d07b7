//! The seam between the front end and the simulator: a [`Point`] goes in, an [`Outcome`] comes
//! out.

#[cfg(test)]
mod advice_tests;
mod batch;
mod bottleneck;
#[cfg(test)]
mod class_tests;
pub(crate) mod congestion;
mod credits;
mod deaths;
mod drops;
mod early;
mod effective;
#[cfg(test)]
mod end_tests;
#[cfg(test)]
mod endless_tests;
mod error;
pub(crate) mod exchanges;
mod fallback;
#[cfg(test)]
mod fault_tests;
mod faults;
mod fetches;
mod figures;
mod flow_figures;
#[cfg(test)]
mod flow_limit_tests;
#[cfg(test)]
mod flow_tests;
pub(crate) mod flows;
pub mod hardware;
mod head_of_line;
#[cfg(test)]
mod host_path_tests;
#[cfg(test)]
mod initiator_tests;
#[cfg(test)]
mod lane_tests;
mod latency;
mod limits;
#[cfg(test)]
mod mechanism_tests;
mod metric;
mod mistakes;
mod moves;
pub(crate) mod network;
#[cfg(test)]
mod nic_tests;
#[cfg(test)]
mod node_tests;
mod outcome;
mod pauses;
mod places;
pub(crate) mod port_counters;
mod ports;
#[cfg(test)]
mod poster_tests;
mod programs;
#[cfg(test)]
mod rate_tests;
#[cfg(test)]
mod receive_tests;
mod receives;
#[cfg(test)]
mod remedy_tests;
mod rules;
pub(crate) mod series;
mod sick;
mod simulate;
#[cfg(test)]
mod simulate_tests;
mod slow_nic;
mod steps;
pub(crate) mod sums;
mod switches;
mod tap;
mod targets;
mod timeline;
mod tuning;
mod waiting;
mod watch;
mod windows;

use std::io::{self, Write};
use std::sync::Arc;

pub(crate) use batch::at_setting;
pub use batch::{Run, run_points};
pub use deaths::{DeathRow, OtherRnrSetting, OtherSetting, PortRow, QpRow};
pub use error::RunError;
#[cfg(feature = "hw")]
pub(crate) use figures::{by_name, group_metrics};
pub use flow_figures::{BucketRow, FlowReport, FlowRow};
pub use latency::{LatencyRecorder, LatencySummary};
pub(crate) use metric::number_text;
pub use metric::{Metric, MetricUnit, MetricValue};
#[cfg(feature = "hw")]
pub(crate) use mistakes::refused_step;
pub use outcome::{
    Direction, Effective, Exit, ExitKind, FaultRow, Found, Note, NoteKind, Outcome, PCIE_CAUSES,
    PcieBytes, ResourceUse, TimelineRow,
};
pub use ports::{MAX_NETWORK_PORTS, NetworkPort};
pub(crate) use programs::epoch;
#[cfg(feature = "hw")]
pub(crate) use programs::{Clock, Placed, Planned, Role, plan};
pub use series::{SeriesTable, SeriesTrack};
pub(crate) use sick::{NAME as FASTER_BUT_SICK, SIGNS};
pub use simulate::{Simulator, SimulatorWith};

use crate::format::Scenario;
use crate::profile::Profile;
use crate::quantity::Scalar;

/// Version of what the simulator models. A change that moves results raises it, so that figures
/// of different versions are never compared unawares.
pub const MODEL_VERSION: u32 = 1;

/// One run: a scenario with one variant and one value per axis applied.
#[derive(Clone, Debug)]
pub struct Point {
    /// Position in the order of the file, from zero.
    pub index: usize,
    /// The scenario; its `variant`, `sweep` and `expect` are empty.
    pub scenario: Scenario,
    /// The hardware, with the scenario's settings applied.
    pub profile: Arc<Profile>,
    /// Seed of all random streams.
    pub seed: u64,
    /// The variant, if the file has variants.
    pub variant: Option<String>,
    /// The value of each axis, in the order of the file.
    pub axes: Vec<AxisValue>,
}

/// The value of an axis at a point.
#[derive(Clone, Debug, PartialEq)]
pub struct AxisValue {
    /// The path that was set.
    pub path: String,
    /// Its last key, or the path where that would be ambiguous.
    pub name: String,
    /// The value as in a file.
    pub text: String,
    /// The value as a number, if it is one.
    pub scalar: Option<Scalar>,
}

impl Point {
    /// `variant, axis=value, …`, empty when the file has one point.
    pub fn label(&self) -> String {
        let axes = self.axes.iter().map(|a| format!("{}={}", a.name, a.text));
        self.variant.iter().cloned().chain(axes).collect::<Vec<_>>().join(", ")
    }
}

/// Runs points. The simulator is one; tests have their own.
pub trait Runner {
    /// Runs one point to its end.
    ///
    /// A run that ends badly (a violated oracle, no progress) is an `Ok` outcome with its
    /// [`Exit`]; an error means that the point cannot be run at all.
    ///
    /// # Errors
    /// When the point asks for something impossible or unsupported.
    fn run(&self, point: &Point) -> Result<Outcome, RunError>;

    /// As [`run`](Self::run), and writes what a capture on each port would show to `out`, as
    /// pcapng. The outcome is the same. The second result is how the writing went.
    ///
    /// # Errors
    /// As [`run`](Self::run), and when the runner sees no packets.
    fn run_captured(
        &self,
        _point: &Point,
        _out: Box<dyn Write>,
    ) -> Result<(Outcome, io::Result<()>), RunError> {
        Err(RunError::Unsupported { what: "a capture: this back end sees no packets".into() })
    }
}
