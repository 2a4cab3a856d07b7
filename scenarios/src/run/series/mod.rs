//! Series of a run: queues, links, queue pairs and latencies over time, and what expectations may
//! ask of them.
//!
//! | File | What |
//! |---|---|
//! | `latency.rs` | latencies of programs, sorted into the points of the recorder |
//! | `figures.rs` | one number out of a series: mean, time above a threshold, period, … |

mod figures;
mod latency;

use doorbell_core::units::{Span, Time};
use doorbell_sim::engine::series::Kind;
use doorbell_sim::world::{Quantity, Recorder, Selection, SeriesConfig, SeriesUnit, World};

use super::programs::Placed;
use super::{Metric, MetricUnit, Point, RunError};
use crate::format::Record;

/// Names of series in a message that says which ones there are.
const MAX_NAMED: usize = 8;

/// Numbers over time, of one run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SeriesTable {
    /// Interval that was asked for.
    pub asked: Span,
    /// Interval of the points: larger when pairs were merged to stay below the bound.
    pub interval: Span,
    /// End of each point's interval, since the start of the run. The last one is the run's end.
    pub times: Vec<Span>,
    /// The series.
    pub tracks: Vec<SeriesTrack>,
    /// Series that were asked for and found no room.
    pub left_out: u64,
}

/// One number over time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SeriesTrack {
    /// Whose: `switch0.port3`, `host1.port0`, `host1.qp16`, or the name of a program.
    pub subject: String,
    /// What, and what kind of number.
    pub quantity: &'static Quantity,
    /// A value for each point.
    pub values: Vec<u64>,
    /// What a point weighs in a mean, in place of its length: a mean latency stands for its
    /// messages.
    pub weights: Option<Vec<u64>>,
}

impl SeriesTrack {
    /// `switch0.port3.queue_max`
    pub fn name(&self) -> String {
        format!("{}.{}", self.subject, self.quantity.name)
    }

    /// Unit of a value.
    pub const fn unit(&self) -> MetricUnit {
        match self.quantity.unit {
            SeriesUnit::Bytes => MetricUnit::Bytes,
            SeriesUnit::Time => MetricUnit::Time,
            SeriesUnit::Count => MetricUnit::Count,
            SeriesUnit::Rate => MetricUnit::Rate,
        }
    }

    /// The word for what kind of number it is.
    pub const fn kind(&self) -> &'static str {
        match self.quantity.kind {
            Kind::Level => "level",
            Kind::Peak => "peak",
            Kind::Count => "count",
        }
    }
}

impl SeriesTable {
    /// Figures that need no further word; see [`figure`](Self::figure).
    pub(super) const FIGURES: [&'static str; 8] =
        ["max", "min", "mean", "last", "total", "time_at_zero", "period", "amplitude"];

    /// `SUBJECT.QUANTITY.FIGURE`, narrowed to a time as in `….mean[100us..200us]`.
    ///
    /// A count is taken per second: bytes as a rate, times as a share, things per second; `total`
    /// is its sum. `time_above(X)` is the time for which it was above X; `period` and `amplitude`
    /// are those of an oscillation, 0 where there is none.
    pub fn figure(&self, name: &str) -> Option<Metric> {
        let (name, window) = match name.strip_suffix(']') {
            None => (name, None),
            Some(rest) => {
                let (name, window) = rest.rsplit_once('[')?;
                (name, Some(figures::window(window)?))
            }
        };
        let (name, threshold) = match name.strip_suffix(')') {
            None => (name, None),
            Some(rest) => {
                let (name, threshold) = rest.split_once('(')?;
                (name, Some(threshold))
            }
        };
        let (track, figure) = name.rsplit_once('.')?;
        let track = self.tracks.iter().find(|t| t.name() == track)?;
        figures::figure(self, track, figure, threshold, window)
    }

    /// A series as a line: its unit, and at the end of each interval the value that its figures go
    /// by. Of a share, parts per million.
    pub fn line(&self, track: &SeriesTrack) -> (MetricUnit, Vec<(Span, u64)>) {
        figures::line(self, track)
    }

    /// Names of figures for "did you mean".
    pub(super) fn names(&self) -> impl Iterator<Item = String> {
        let all = self.tracks.iter().take(MAX_NAMES);
        let names = all.flat_map(|t| Self::FIGURES.map(|f| format!("{}.{f}", t.name())));
        let known = names.filter(|name| self.figure(name).is_some());
        known.map(|name| format!("series.{name}"))
    }
}

/// Series whose figures are offered by name.
const MAX_NAMES: usize = 256;

/// Starts the recorder, if the scenario asks for one.
pub(super) fn start(record: &Record, world: &mut World) {
    if let Some(interval) = record.series {
        world.record_series(&SeriesConfig {
            interval: interval.0,
            points: record.series_points.value() as usize,
            select: Selection(record.series_of.clone()),
        });
    }
}

/// The series of a run.
///
/// # Errors
/// When a name of `record.series_of` names nothing.
pub(super) fn collect(
    point: &Point,
    recorder: &Recorder,
    placed: &[Placed],
    world: &World,
) -> Result<SeriesTable, RunError> {
    let series = recorder.series();
    let times = series.times().iter().map(|t| t.since(Time::ZERO)).collect();
    let mut table = SeriesTable {
        asked: series.asked(),
        interval: series.interval(),
        times,
        left_out: recorder.left_out(),
        ..SeriesTable::default()
    };
    table.tracks.extend(recorder.tracks().map(|t| SeriesTrack {
        subject: t.subject.to_owned(),
        quantity: t.quantity,
        values: t.values.to_vec(),
        weights: None,
    }));
    latency::add(point, recorder.selection(), placed, world, &mut table);
    let known = || table.tracks.iter().map(|t| (t.subject.as_str(), t.quantity));
    let idle = recorder.selection().idle(known());
    let Some(name) = idle.first().filter(|_| table.left_out == 0) else { return Ok(table) };
    let record = &point.scenario.record;
    let index = record.series_of.iter().position(|p| p == name).unwrap_or(0);
    Err(RunError::BadInput {
        path: format!("record.series_of.{index}"),
        message: format!("\"{name}\" names nothing that this run has"),
        help: subjects(world),
    })
}

/// Some of the names that there are.
fn subjects(world: &World) -> String {
    let fabric = world.fabric();
    let ports =
        fabric.ports().map(|(node, port)| doorbell_sim::world::port_name(fabric, node, port));
    let mut names: Vec<String> = ports.take(MAX_NAMED).collect();
    let hosts = world.hosts().iter().enumerate();
    let nics = hosts.flat_map(|(h, host)| host.nics().map(move |nic| (h, nic)));
    let qps = nics.flat_map(|(h, nic)| nic.qps().map(move |(_, q)| (h, q.qpn.value())));
    names.extend(qps.take(MAX_NAMED).map(|(h, qpn)| format!("host{h}.qp{qpn}")));
    format!(
        "groups are queues, links, rates and latency; subjects are for example {}",
        names.join(", ")
    )
}

#[cfg(test)]
mod tests;
