//! From rows to simulated figures.

use std::collections::BTreeMap;
use std::sync::Arc;

use doorbell_sim::pcie::bench::{
    BenchConfig, DmaEngineConfig, Interface, Mix, Stage, bandwidth, read_latency,
    write_then_read_latency,
};
use doorbell_sim::pcie::{Target, TlpFormat};

use super::expression::Term;
use super::file::{BenchOp, BenchTest, Calibration, Formula, Row};
use crate::format::expand::expand;
use crate::format::load::{Loaded, Overrides, load_node};
use crate::input::{InputError, Key, Node, Value, suggestion};
use crate::profile::{Profile, Profiles};
use crate::run::{ExitKind, Found, MetricUnit, Outcome, RunError, Runner, hardware};

/// Operations of a bandwidth test, samples of a latency test. Quantiles of 99.9 % need thousands.
const BENCH_OPS: u32 = 20_000;

/// What runs of one calibration yielded, by name.
pub type Outcomes = BTreeMap<String, Outcome>;

/// A row with what the model makes of it.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The row.
    pub row: Row,
    /// The figure in the row's unit; none where the model makes none.
    pub simulated: Option<f64>,
    /// Whether it says something about the model: runs, bench and formula do; an input, a
    /// repetition and an absent row do not.
    pub scored: bool,
    /// Parameters whose source names the row.
    pub used_by: Vec<&'static str>,
}

impl Measured {
    /// Relative error of the simulated figure.
    pub fn error(&self) -> Option<f64> {
        self.simulated.map(|s| s / self.row.published - 1.0)
    }
}

/// One calibration, measured.
#[derive(Clone, Debug)]
pub struct Table {
    /// File name without folder and ending.
    pub name: String,
    /// What was measured.
    pub title: String,
    /// The hardware; none where the model has none.
    pub profile: Option<Arc<Profile>>,
    /// The rows.
    pub rows: Vec<Measured>,
}

/// Runs what the rows of a calibration need, with the changes `set` to every run.
///
/// # Errors
/// When a run or a row is wrong, or a run does not end well.
pub fn measure(
    runner: &dyn Runner,
    calibration: &Calibration,
    set: &[String],
) -> Result<Table, InputError> {
    let mut profiles = Profiles::beside(&calibration.directory);
    let profile = match &calibration.profile {
        Some(name) => Some(Arc::new(profiles.load(name, None)?.with_settings(None)?)),
        None => None,
    };
    let mut bench = Bench { runner, calibration, set, profiles, outcomes: Outcomes::new() };
    let mut rows = Vec::with_capacity(calibration.rows.len());
    for row in &calibration.rows {
        let simulated = bench.figure(row, profile.as_deref())?;
        let scored = row.runs.is_some() || row.bench.is_some() || row.formula.is_some();
        let used_by = profile.as_deref().map_or(Vec::new(), |p| users(p, &row.id));
        rows.push(Measured { row: row.clone(), simulated, scored, used_by });
    }
    let (name, title) = (calibration.name.clone(), calibration.title.clone());
    Ok(Table { name, title, profile, rows })
}

/// Parameters whose source names the row.
fn users(profile: &Profile, id: &str) -> Vec<&'static str> {
    let names = profile.values().into_iter().map(|(path, _)| path);
    names.filter(|path| names_row(&profile.provenance[*path].source, id)).collect()
}

/// Whether `source` holds `id` as a word: `C-RATE-001` is not in `C-RATE-0011`.
fn names_row(source: &str, id: &str) -> bool {
    source.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').any(|word| word == id)
}

struct Bench<'a> {
    runner: &'a dyn Runner,
    calibration: &'a Calibration,
    set: &'a [String],
    profiles: Profiles,
    outcomes: Outcomes,
}

impl Bench<'_> {
    fn wrong(&self, row: &Row, message: impl Into<String>) -> InputError {
        let name = &self.calibration.source.name;
        InputError::new(format!("{name}, row {}: {}", row.id, message.into()))
    }

    /// The figure of a row in its unit.
    fn figure(&mut self, row: &Row, profile: Option<&Profile>) -> Result<Option<f64>, InputError> {
        let own = || profile.ok_or_else(|| self.wrong(row, "the file names no profile"));
        let si = if let Some(expression) = &row.runs {
            expression.value(|term| self.term(row, term))?
        } else if let Some(test) = &row.bench {
            bench(own()?, test).map_err(|e| self.wrong(row, e))?
        } else if let Some(formula) = &row.formula {
            match formula {
                Formula::UsableRate(link) => {
                    let generation = hardware::generation(link.generation.into());
                    generation.usable_rate(link.width, 256, 26, 16, 4).as_bps() as f64
                }
                Formula::EncodedRate(link) => hardware::generation(link.generation.into())
                    .encoded_rate(link.width)
                    .as_bps() as f64,
                Formula::MmioLines => mmio_lines(own()?),
                Formula::ReadPayload => read_payload(own()?),
            }
        } else if let Some(id) = &row.same_as {
            let Some(other) = self.calibration.rows.iter().find(|r| r.id == *id) else {
                return Err(self.wrong(row, format!("there is no row {id}")));
            };
            return self.figure(&other.clone(), profile);
        } else if let Some(path) = &row.parameter {
            let values = own()?.values();
            let Some((_, value)) = values.iter().find(|(p, _)| p == path) else {
                return Err(self.wrong(row, format!("there is no parameter {path}")));
            };
            let digits: String =
                value.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
            return Ok(digits.parse().ok());
        } else {
            return Ok(None);
        };
        Ok(Some(si / row.unit.in_si()))
    }

    fn term(&mut self, row: &Row, term: &Term) -> Result<f64, InputError> {
        match term {
            Term::Number(n) => Ok(*n),
            Term::Metric { run, metric } => {
                self.run(row, run)?;
                let outcome = &self.outcomes[run];
                let found = match outcome.find(metric) {
                    Some(Found::Number(metric)) => metric,
                    _ => {
                        let names = outcome.names();
                        let help = suggestion(metric, names.iter().map(String::as_str), "metrics");
                        let text = format!("run `{run}` has no number `{metric}`");
                        return Err(self.wrong(row, text).help(help));
                    }
                };
                let per_second = if found.unit == MetricUnit::Time { 1e12 } else { 1.0 };
                Ok(found.number() / per_second)
            }
        }
    }

    /// Sees to it that the outcome of a run is there.
    fn run(&mut self, row: &Row, name: &str) -> Result<(), InputError> {
        if self.outcomes.contains_key(name) {
            return Ok(());
        }
        let loaded = self.load(row, name)?;
        let mut points = expand(&loaded, &mut self.profiles)?;
        if points.len() != 1 {
            return Err(self.wrong(row, format!("run `{name}` has {} points", points.len())));
        }
        let point = points.remove(0).point;
        let outcome = self.runner.run(&point).map_err(|e| match e {
            RunError::BadInput { path, message, help } => {
                self.wrong(row, format!("run `{name}`, {path}: {message}")).help(help)
            }
            RunError::Unsupported { what } => {
                self.wrong(row, format!("run `{name}`: not supported: {what}"))
            }
        })?;
        if outcome.exit.kind != ExitKind::Ok {
            let reason = &outcome.exit.reason;
            return Err(self.wrong(row, format!("run `{name}` did not end well: {reason}")));
        }
        self.outcomes.insert(name.to_owned(), outcome);
        Ok(())
    }

    /// The run as a scenario: its own table or the one that it is like, with its changes.
    fn load(&self, row: &Row, name: &str) -> Result<Loaded, InputError> {
        let missing = |name: &str| {
            let known = self.calibration.runs.iter().map(|(n, _)| n.as_str());
            let help = suggestion(name, known, "runs");
            self.wrong(row, format!("there is no run `{name}`")).help(help)
        };
        let own = self.calibration.run(name).ok_or_else(|| missing(name))?;
        let mut overrides = Overrides { set: Vec::new(), seed: None };
        let mut base = own.clone();
        if let Some(like) = own.table()?.get("like") {
            let like: String = like.read()?;
            base = self.calibration.run(&like).ok_or_else(|| missing(&like))?.clone();
            if let Some(set) = own.table()?.get("set") {
                let changes = &set.table()?.entries;
                overrides.set =
                    changes.iter().map(|(k, v)| format!("{}={}", k.name, v.text())).collect();
            }
            if let Some((key, _)) =
                own.table()?.entries.iter().find(|(k, _)| k.name != "like" && k.name != "set")
            {
                let text = format!("`{}` beside `like`: changes are in `set`", key.name);
                return Err(InputError::new(text).at(&key.origin));
            }
        }
        overrides.set.extend_from_slice(self.set);
        let origin = base.origin.clone();
        let Value::Table(table) = &mut base.value else {
            return Err(InputError::new("a run is a table").at(&origin));
        };
        let profile = self.calibration.profile.as_deref().unwrap_or_default();
        for (key, text) in [("title", name), ("profile", profile)] {
            let node = Node { origin: origin.clone(), value: Value::String(text.to_owned()) };
            table.insert(Key { name: key.to_owned(), origin: origin.clone() }, node);
        }
        let source = self.calibration.source.clone();
        load_node(base, source, self.calibration.directory.clone(), &overrides)
    }
}

/// The rate and the format of the NIC's link.
fn link(profile: &Profile) -> (f64, TlpFormat) {
    let format = hardware::host(profile, false).pcie.format;
    let generation = hardware::generation(profile.pcie.generation);
    (generation.encoded_rate(profile.pcie.width as u8).as_bps() as f64, format)
}

fn mmio_lines(profile: &Profile) -> f64 {
    let (rate, format) = link(profile);
    rate / 8.0 / f64::from(format.mmio(64).wire)
}

fn read_payload(profile: &Profile) -> f64 {
    let (rate, format) = link(profile);
    let size = format.completion_size();
    rate * f64::from(size) / f64::from(format.completions(0, size).wire)
}

/// What the device measures, in SI units.
fn bench(profile: &Profile, test: &BenchTest) -> Result<f64, String> {
    let config = bench_config(profile, test)?;
    let bytes = test.bytes.0.0 as u32;
    let error = |e: doorbell_sim::pcie::PcieConfigError| e.to_string();
    let interface = if test.command { Interface::Command } else { Interface::Dma };
    let throughput = |mix| {
        let threads = profile.bench.threads as u32;
        bandwidth(&config, mix, bytes, threads, BENCH_OPS.into()).map_err(error)
    };
    let seconds = |span: doorbell_core::units::Span| span.as_ps() as f64 / 1e12;
    Ok(match test.op {
        BenchOp::ReadLatency => {
            let all = read_latency(&config, interface, bytes, BENCH_OPS).map_err(error)?;
            seconds(all.quantile(test.quantile))
        }
        BenchOp::WriteReadLatency => {
            let all =
                write_then_read_latency(&config, interface, bytes, BENCH_OPS).map_err(error)?;
            seconds(all.quantile(test.quantile))
        }
        BenchOp::Read => throughput(Mix::Read)?.gbps() * 1e9,
        BenchOp::Write => throughput(Mix::Write)?.gbps() * 1e9,
        BenchOp::Mix => throughput(Mix::ReadWrite)?.gbps() * 1e9,
        BenchOp::ReadRate => throughput(Mix::Read)?.mops() * 1e6,
        BenchOp::WriteRate => throughput(Mix::Write)?.mops() * 1e6,
    })
}

/// The profile's device and the memory that it measures.
fn bench_config(profile: &Profile, test: &BenchTest) -> Result<BenchConfig, String> {
    if test.remote && profile.memory.sockets < 2 {
        return Err(format!("`remote`, and profile \"{}\" has one socket", profile.name));
    }
    let host = hardware::host(profile, true);
    let b = &profile.bench;
    Ok(BenchConfig {
        pcie: host.pcie,
        device: host.nic_nodes[0],
        engine: DmaEngineConfig {
            issue: b.issue,
            notify: b.notify,
            queue: b.queue,
            read_op: b.read_op,
            write_op: b.write_op,
            mover: Stage { op: b.mover_op, rate: b.mover_rate },
            port: Stage { op: b.port_op, rate: b.port_rate },
        },
        target: Target::HostMemory { numa: u8::from(test.remote), llc: !test.cold },
        window: b.window.0 as u32,
        seed: 1,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_named_by_a_whole_word() {
        assert!(names_row("C-RATE-001 less C-RATE-003", "C-RATE-003"));
        assert!(names_row("C-RATE-003", "C-RATE-003"));
        assert!(!names_row("C-RATE-0031", "C-RATE-003"));
        assert!(!names_row("XC-RATE-003", "C-RATE-003"));
    }
}
