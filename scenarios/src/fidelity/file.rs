//! Calibration files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use doorbell_core::units::Bytes;
use serde::Deserialize;

use super::expression::Expression;
use crate::input::{InputError, Node, Source, Table, Value, read_file, suggestion};
use crate::library;
use crate::quantity::Quantity;

/// A file of published figures and the runs that make them.
#[derive(Clone, Debug)]
pub struct Calibration {
    /// File name without folder and ending.
    pub name: String,
    /// What was measured.
    pub title: String,
    /// The profile of every run; none where the model has none.
    pub profile: Option<String>,
    /// The rows.
    pub rows: Vec<Row>,
    pub(super) runs: Vec<(String, Node)>,
    pub(super) source: Arc<Source>,
    /// Folder that profiles are looked for from.
    pub(super) directory: PathBuf,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    title: String,
    #[serde(default)]
    profile: Option<String>,
    #[serde(default)]
    row: Vec<Row>,
}

/// A published figure and how the model makes it: exactly one of the last six keys.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// Row of the calibration data.
    pub id: String,
    /// What was measured, on one line.
    pub what: String,
    /// The published figure.
    pub published: f64,
    /// Its unit.
    pub unit: FigureUnit,
    /// Where it comes from.
    pub tag: Tag,
    /// A remark for the table.
    #[serde(default)]
    pub note: String,
    /// Why the model is far off: the mechanism that it lacks.
    #[serde(default)]
    pub missing: String,
    /// Arithmetic over metrics of runs, `RUN:METRIC`, in SI units: `"a:latency.p50 / 2"`.
    #[serde(default)]
    pub runs: Option<Expression>,
    /// A measurement by the device itself.
    #[serde(default)]
    pub bench: Option<BenchTest>,
    /// A closed form.
    #[serde(default)]
    pub formula: Option<Formula>,
    /// The parameter that is this figure: an input, not a prediction.
    #[serde(default)]
    pub parameter: Option<String>,
    /// The row that gives the same figure once more.
    #[serde(default)]
    pub same_as: Option<String>,
    /// Why the model does not make it.
    #[serde(default)]
    pub absent: Option<String>,
}

/// Where a published figure comes from.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tag {
    /// It stands so at the source.
    Read,
    /// Read off a plot.
    Plot,
    /// Arithmetic on a source.
    Derived,
}

impl Tag {
    /// The word in files.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Plot => "plot",
            Self::Derived => "derived",
        }
    }
}

/// Unit of a published figure.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Deserialize)]
pub enum FigureUnit {
    /// Nanoseconds.
    #[serde(rename = "ns")]
    Nanosecond,
    /// Microseconds.
    #[serde(rename = "us")]
    Microsecond,
    /// 10^9 bits per second.
    #[serde(rename = "Gb/s")]
    GigabitPerSecond,
    /// 10^6 bytes per second.
    #[serde(rename = "MB/s")]
    MegabytePerSecond,
    /// 2^20 bytes per second, perftest's "MB/sec".
    #[serde(rename = "MiB/s")]
    MebibytePerSecond,
    /// 10^6 per second.
    #[serde(rename = "M/s")]
    MillionPerSecond,
    /// Bytes.
    #[serde(rename = "B")]
    Byte,
    /// Things.
    #[serde(rename = "count")]
    Count,
    /// A quotient.
    #[serde(rename = "ratio")]
    Ratio,
}

impl FigureUnit {
    /// The word in files.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Nanosecond => "ns",
            Self::Microsecond => "us",
            Self::GigabitPerSecond => "Gb/s",
            Self::MegabytePerSecond => "MB/s",
            Self::MebibytePerSecond => "MiB/s",
            Self::MillionPerSecond => "M/s",
            Self::Byte => "B",
            Self::Count => "count",
            Self::Ratio => "ratio",
        }
    }

    /// One of it in seconds, bits per second, events per second, bytes or things.
    pub const fn in_si(self) -> f64 {
        match self {
            Self::Nanosecond => 1e-9,
            Self::Microsecond => 1e-6,
            Self::GigabitPerSecond => 1e9,
            Self::MegabytePerSecond => 8e6,
            Self::MebibytePerSecond => 8.0 * 1_048_576.0,
            Self::MillionPerSecond => 1e6,
            Self::Byte | Self::Count | Self::Ratio => 1.0,
        }
    }
}

/// A measurement by a device of its own PCIe path, as pcie-bench does it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BenchTest {
    /// What is measured.
    pub op: BenchOp,
    /// Bytes of an operation.
    pub bytes: Quantity<Bytes>,
    /// The share of the operations that are faster, in millionths; latency only.
    #[serde(default = "half")]
    pub quantile: u32,
    /// By command rather than by DMA descriptor; latency only.
    #[serde(default)]
    pub command: bool,
    /// The window is not in the last-level cache.
    #[serde(default)]
    pub cold: bool,
    /// The window is in the memory of the other socket.
    #[serde(default)]
    pub remote: bool,
}

const fn half() -> u32 {
    500_000
}

/// What a device measures.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BenchOp {
    /// Latency of a read.
    ReadLatency,
    /// Latency of a write and the read behind it.
    WriteReadLatency,
    /// Throughput of reads.
    Read,
    /// Throughput of writes.
    Write,
    /// Throughput of one direction of reads and writes in turn.
    Mix,
    /// Reads per second.
    ReadRate,
    /// Writes per second.
    WriteRate,
}

/// A closed form of the model.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Formula {
    /// Rate of a link for 256-byte payloads, 26 bytes around each and 16 bytes of control per
    /// four.
    UsableRate(LinkShape),
    /// Rate of a link after its encoding.
    EncodedRate(LinkShape),
    /// 64-byte lines that cores can write to the profile's device.
    MmioLines,
    /// Payload that the profile's device can read, in completions of the largest size.
    ReadPayload,
}

/// A PCIe link.
#[derive(Copy, Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkShape {
    /// Generation.
    pub generation: u8,
    /// Lanes.
    pub width: u8,
}

impl Calibration {
    /// The built-in calibration `target`, or the file at that path.
    ///
    /// # Errors
    /// When there is none, or it is wrong; the error has the place.
    pub fn find(target: &str) -> Result<Self, InputError> {
        let path = Path::new(target);
        let name = target.rsplit(['/', '\\']).next().unwrap_or(target);
        let name = name.strip_suffix(".toml").unwrap_or(name);
        let (source, directory) = if path.is_file() {
            (read_file(path)?, path.parent().map(Path::to_owned).unwrap_or_default())
        } else if let Some(text) = library::calibration(target) {
            (Source::new(format!("calibration/{target}.toml"), text), PathBuf::new())
        } else {
            let known = library::CALIBRATIONS.iter().map(|(name, _)| *name);
            let error = InputError::new(format!("there is no calibration \"{target}\""));
            return Err(error.help(suggestion(target, known, "built-in calibrations")));
        };
        Self::read(name, source, directory)
    }

    pub(super) fn read(
        name: &str,
        source: Arc<Source>,
        directory: PathBuf,
    ) -> Result<Self, InputError> {
        let mut root = Node::parse(&source)?;
        let Value::Table(table) = &mut root.value else {
            return Err(InputError::new("not a table"));
        };
        let runs = match table.remove("run") {
            Some((_, node)) => runs(node)?,
            None => Vec::new(),
        };
        let Content { title, profile, row: rows } = root.read()?;
        check(&rows, &root)?;
        Ok(Self { name: name.to_owned(), title, profile, rows, runs, source, directory })
    }

    /// The whole scenario of a run without title and profile, and the changes to it.
    pub(super) fn run(&self, name: &str) -> Option<&Node> {
        self.runs.iter().find(|(n, _)| n == name).map(|(_, node)| node)
    }
}

fn runs(node: Node) -> Result<Vec<(String, Node)>, InputError> {
    node.table()?;
    let Value::Table(Table { entries }) = node.value else { unreachable!("just seen") };
    Ok(entries.into_iter().map(|(key, node)| (key.name, node)).collect())
}

/// Each row has one way to its figure, and no two rows are the same.
fn check(rows: &[Row], root: &Node) -> Result<(), InputError> {
    let places = root.table()?.get("row");
    let place = |i: usize| match places.map(|n| &n.value) {
        Some(Value::Array(items)) => items.get(i).map(|n| &n.origin),
        _ => None,
    };
    for (i, row) in rows.iter().enumerate() {
        let ways = [
            row.runs.is_some(),
            row.bench.is_some(),
            row.formula.is_some(),
            row.parameter.is_some(),
            row.same_as.is_some(),
            row.absent.is_some(),
        ];
        if ways.iter().filter(|w| **w).count() != 1 {
            let error = InputError::new(format!("row {} needs one way to its figure", row.id));
            let help = "give one of runs, bench, formula, parameter, same_as, absent";
            return Err(error.help(help).at_opt(place(i)));
        }
        if rows[..i].iter().any(|r| r.id == row.id && r.what == row.what) {
            let error = InputError::new(format!("row {} \"{}\" is there twice", row.id, row.what));
            return Err(error.at_opt(place(i)));
        }
    }
    Ok(())
}
