//! The report as JSON, version [`REPORT_VERSION`]. Nothing in it depends on wall clock, machine,
//! build or path: the same file and seed give the same bytes.

use std::collections::{BTreeMap, BTreeSet};

use doorbell_core::units::Span;
use serde::Serialize;

use super::Report;
use super::detail::ranked;
use super::text::calibration_counts;
use crate::expect::Verdict;
use crate::format::Scenario;
use crate::profile::Profile;
use crate::quantity::Unit;
use crate::run::{
    Effective, Exit, FaultRow, FlowReport, LatencySummary, MODEL_VERSION, Metric, NetworkPort,
    Note, Outcome, PcieBytes, PortRow, QpRow, ResourceUse, Run, SeriesTable, SeriesTrack,
    TimelineRow,
};
use crate::tune::TuneStep;

/// Raised when a key is taken away or changes its meaning; new keys do not raise it.
pub const REPORT_VERSION: u32 = 1;

#[derive(Serialize)]
struct JsonReport<'a> {
    format: &'static str,
    version: u32,
    simulated: bool,
    model: u32,
    scenario: &'a str,
    title: &'a str,
    claims: &'a [String],
    profiles: Vec<JsonProfile<'a>>,
    points: Vec<JsonPoint<'a>>,
    expectations: &'a [Verdict],
}

#[derive(Serialize)]
struct JsonProfile<'a> {
    name: &'a str,
    title: &'a str,
    calibration: BTreeMap<&'static str, usize>,
    parameters: BTreeMap<&'static str, JsonParameter<'a>>,
}

#[derive(Serialize)]
struct JsonParameter<'a> {
    value: String,
    source: &'a str,
    confidence: &'static str,
    profile: &'a str,
}

#[derive(Serialize)]
struct JsonPoint<'a> {
    variant: Option<&'a str>,
    axes: BTreeMap<&'a str, &'a str>,
    seed: u64,
    /// Index into `profiles`.
    profile: usize,
    configuration: &'a Scenario,
    outcome: JsonOutcome<'a>,
}

#[derive(Serialize)]
struct JsonOutcome<'a> {
    exit: &'a Exit,
    metrics: &'a BTreeMap<String, Metric>,
    latencies_ps: &'a BTreeMap<String, LatencySummary>,
    counters: &'a BTreeMap<String, u64>,
    words: &'a BTreeMap<String, String>,
    limiting: Option<&'a str>,
    resources: Vec<JsonResource<'a>>,
    pcie: &'a [PcieBytes],
    effective: &'a [Effective],
    #[serde(skip_serializing_if = "Vec::is_empty")]
    faults: Vec<JsonFault<'a>>,
    qps: &'a [QpRow],
    ports: &'a [PortRow],
    network_ports: &'a [NetworkPort],
    notes: &'a [Note],
    /// Names of all checks, those included that found nothing.
    oracles: BTreeSet<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    flows: Option<&'a FlowReport>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    tuning: &'a [TuneStep],
    #[serde(skip_serializing_if = "Option::is_none")]
    timeline: Option<Vec<JsonStep<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    series: Option<JsonSeries<'a>>,
    sim_time_ps: u64,
    events: u64,
    trace_hash: &'a str,
}

#[derive(Serialize)]
struct JsonResource<'a> {
    name: &'a str,
    busy_share: f64,
    busy_ps: u64,
    of_ps: u64,
    served: u64,
    waited_ps: u64,
}

#[derive(Serialize)]
struct JsonFault<'a> {
    id: &'a str,
    kind: &'a str,
    matched: u64,
    fired: u64,
    budget: Option<u64>,
    first_ps: Option<u64>,
    held: u64,
    maybe: bool,
    synthetic: bool,
}

/// Raised when a key of `series` is taken away or changes its meaning.
const SERIES_VERSION: u32 = 1;

#[derive(Serialize)]
struct JsonSeries<'a> {
    version: u32,
    asked_ps: u64,
    interval_ps: u64,
    /// End of each interval.
    times_ps: Vec<u64>,
    tracks: Vec<JsonTrack<'a>>,
    left_out: u64,
}

#[derive(Serialize)]
struct JsonTrack<'a> {
    subject: &'a str,
    group: &'static str,
    quantity: &'static str,
    /// `level` at the end of the interval, `peak` in it, or `count` over it.
    kind: &'static str,
    unit: &'static str,
    values: &'a [u64],
}

#[derive(Serialize)]
struct JsonStep<'a> {
    message: u64,
    step: &'a str,
    component: &'a str,
    start_ps: u64,
    end_ps: u64,
}

/// The report as indented JSON with a line break at its end.
pub fn to_json(report: &Report) -> String {
    let mut profiles: Vec<&Profile> = Vec::new();
    let points = report.runs.iter().map(|run| point(run, &mut profiles)).collect();
    let json = JsonReport {
        format: "doorbell-report",
        version: REPORT_VERSION,
        simulated: true,
        model: MODEL_VERSION,
        scenario: &report.name,
        title: &report.title,
        claims: &report.claims,
        points,
        profiles: profiles.into_iter().map(json_profile).collect(),
        expectations: &report.verdicts,
    };
    let mut text = serde_json::to_string_pretty(&json).expect("all keys are strings");
    text.push('\n');
    text
}

fn point<'a>(run: &'a Run, profiles: &mut Vec<&'a Profile>) -> JsonPoint<'a> {
    let point = &run.point;
    let known = profiles.iter().position(|p| **p == *point.profile);
    let profile = known.unwrap_or_else(|| {
        profiles.push(&point.profile);
        profiles.len() - 1
    });
    JsonPoint {
        variant: point.variant.as_deref(),
        axes: point.axes.iter().map(|a| (a.path.as_str(), a.text.as_str())).collect(),
        seed: point.seed,
        profile,
        configuration: &point.scenario,
        outcome: outcome(&run.outcome),
    }
}

/// The profile with the provenance of every parameter.
fn json_profile(profile: &Profile) -> JsonProfile<'_> {
    let parameter = |(path, value): (&'static str, String)| {
        let from = &profile.provenance[path];
        let parameter = JsonParameter {
            value,
            source: &from.source,
            confidence: from.confidence.word(),
            profile: &from.profile,
        };
        (path, parameter)
    };
    JsonProfile {
        name: &profile.name,
        title: &profile.title,
        calibration: calibration_counts(profile),
        parameters: profile.values().into_iter().map(parameter).collect(),
    }
}

fn json_fault(row: &FaultRow) -> JsonFault<'_> {
    JsonFault {
        id: &row.id,
        kind: &row.kind,
        matched: row.matched,
        fired: row.fired,
        budget: row.budget,
        first_ps: row.first.map(Span::as_ps),
        held: row.held,
        maybe: row.maybe,
        synthetic: row.synthetic,
    }
}

fn json_series(table: &SeriesTable) -> JsonSeries<'_> {
    JsonSeries {
        version: SERIES_VERSION,
        asked_ps: table.asked.as_ps(),
        interval_ps: table.interval.as_ps(),
        times_ps: table.times.iter().map(|t| t.as_ps()).collect(),
        tracks: table.tracks.iter().map(json_track).collect(),
        left_out: table.left_out,
    }
}

fn json_track(track: &SeriesTrack) -> JsonTrack<'_> {
    JsonTrack {
        subject: &track.subject,
        group: track.quantity.group,
        quantity: track.quantity.name,
        kind: track.kind(),
        unit: track.unit().symbol(),
        values: &track.values,
    }
}

fn json_resource(r: &ResourceUse) -> JsonResource<'_> {
    JsonResource {
        name: &r.name,
        busy_share: r.share().magnitude(),
        busy_ps: r.busy.as_ps(),
        of_ps: r.of.as_ps(),
        served: r.served,
        waited_ps: r.waited.as_ps(),
    }
}

fn json_step(r: &TimelineRow) -> JsonStep<'_> {
    JsonStep {
        message: r.message,
        step: &r.step,
        component: &r.component,
        start_ps: r.start.as_ps(),
        end_ps: r.end.as_ps(),
    }
}

/// All of it: a field that is added to an outcome must be named here, or this does not build.
fn outcome(all: &Outcome) -> JsonOutcome<'_> {
    let Outcome {
        metrics,
        counters,
        words,
        latencies,
        resources: _,
        limiting,
        pcie,
        effective,
        faults,
        qps,
        ports,
        network_ports,
        notes,
        oracles,
        flows,
        tuning,
        timeline,
        series,
        trace_hash,
        sim_time,
        events,
        exit,
    } = all;
    JsonOutcome {
        exit,
        metrics,
        latencies_ps: latencies,
        counters,
        words,
        limiting: limiting.as_deref(),
        resources: ranked(all).into_iter().map(json_resource).collect(),
        pcie,
        effective,
        faults: faults.iter().map(json_fault).collect(),
        qps,
        ports,
        network_ports,
        notes,
        oracles: oracles.iter().map(String::as_str).collect(),
        flows: flows.as_ref(),
        tuning,
        timeline: timeline.as_ref().map(|rows| rows.iter().map(json_step).collect()),
        series: series.as_ref().map(json_series),
        sim_time_ps: sim_time.as_ps(),
        events: *events,
        trace_hash,
    }
}
