//! What a run yields.
//!
//! Names of metrics that several reports and scenarios use:
//!
//! | Name | Unit | |
//! |---|---|---|
//! | `throughput` | bit/s | payload delivered per second of the measured time; see `payload_bytes` |
//! | `message_rate` | 1/s | messages completed per second of the measured time |
//! | `received` | count | messages taken by receives of the peers, if any |
//! | `receive_rate` | 1/s | the same per second, from the first to the last of them |
//! | `duration` | time | the measured time |
//! | `messages` | count | messages completed |
//! | `payload_bytes`, `wire_bytes` | bytes | payload delivered, and all bytes on the wire; of aggregations the bytes of the sums that hosts have, of exchanges what came for each host, both of complete rounds: nothing that is passed on or added on the way |
//! | `rings` | count | rings of programs for what they post; of aggregations and exchanges without signs and last words |
//! | `doorbells` | count | doorbells that the NIC saw, BlueFlame included |
//! | `mmio_writes` | count | stores to the device, a BlueFlame block counts once |
//! | `wqes_posted`, `wqes_executed`, `wqes_unrung` | count | of all send queues |
//! | `qps_in_error` | count | queue pairs that end in ERR |
//! | `cq_fill_max` | count | most entries that any completion queue held |
//! | `rd_atomic_max` | count | most READs and atomics without an answer on any queue pair |
//! | `sq_memory` | bytes | rings of the send queues of all queue pairs that are left |
//! | `receive_memory`, `receives_posted` | bytes, count | most posted at a time, sum of hosts |
//! | `receive_waste` | bytes | of receive buffers that messages took and did not fill |
//! | `hostN.receive_memory`, `.receives_posted`, `.receive_waste` | | the same of one host |
//! | `rnr_qps_hit` | count | queue pairs that got an RNR NAK |
//! | `rnr_waited`, `ack_timer_waited` | time | for which queue pairs stood still in waits of RNR NAKs, and in waits that an expiry of the ack timer ended: sums of all, `qp.H.N.rnr_waited` and `qp.H.N.ack_timer_waited` of one |
//! | `srq_low`, `hostN.srqM.low` | count | fewest receives in any SRQ, and in one, after one was taken |
//! | `srq_left` | count | receives in all SRQs at the end |
//! | `srq_limit_events` | count | limit events that programs have taken |
//! | `rate_cuts` | count | with congestion control: how often a flow's rate fell |
//! | `rate_waits` | count | times that a queue pair with work waited for its rate |
//! | `rtt_deviation` | time | mean distance of round trip times from the target of `integral` |
//! | `rtt_swings`, `rtt_period` | count, time | swings about that target, and the mean one's time |
//! | `rate_min` | bit/s | the lowest rate that any flow had |
//! | `data_errors` | count | messages that the peer found wrong, or that never came though a reliable service completed them; not those that were lost on an unreliable one (`counter.messages_lost`, of which `counter.messages_incomplete` have some packets in their buffer), that it brought again (`counter.messages_repeated`), or that were never sent (`counter.messages_unsent`) |
//! | `flows`, `flows_unfinished` | count | of programs of that kind; all that follow too |
//! | `fct_p50`, `fct_p95`, `fct_p99`, `fct_max` | time | a flow's start to its completion |
//! | `slowdown_p50`, … `_max` | ratio | that time by the time of the flow in an idle network |
//! | `last_completion`, `last_placed` | time | after the start of the clock of flows |
//! | `goodput` | bit/s | bytes of complete flows, from the first start to the last completion |
//! | `jain` | ratio | Jain's index over the throughputs of complete flows |
//! | `victims` | count | flows that were slow though they shared neither end, see docs/flows.md |
//! | `sums`, `sums_wrong` | count | of aggregations: rounds of all members that are complete, and of these wrong, which is a violation |
//! | `sums_of_survivors` | count | of the complete ones: sums of some members only, as they say |
//! | `sums_replaced` | count | sums that a member gave up for one without a dead member, since others lacked it |
//! | `members_absent` | count | members that any other one went on without, at the most |
//! | `members_failed` | count | members that ended with an error instead |
//! | `last_failure` | time | from the start of the run to the last of these errors, if there is one |
//! | `added_bytes` | bytes | contributions that were added, and parts of sums of exchanges |
//! | `sparse_messages`, `dense_messages` | count | of sums of sparse vectors: vectors sent in that form |
//! | `message_bytes` | bytes | of one of them |
//! | `kept` | ratio | elements sent by elements of all vectors |
//! | `exposed`, `step_time` | time | mean of training steps, slowest member: from the end of the backward pass to the last sum, and the whole step |
//! | `training_steps` | count | that all members have done |
//! | `byte_bound` | time | of one round: bytes of the busiest port in one direction at its rate |
//! | `exchanges`, `exchanges_wrong` | count | of exchanges: rounds of all members that are complete, and of these wrong, which is a violation |
//! | `sent_messages`, `passed_messages`, `passed_bytes` | count, bytes | of exchanges: sent, and those with something that another one had sent |
//! | `between_messages`, `between_bytes` | count, bytes | of one round as planned, all tokens: from group to group |
//! | `inside_messages`, `inside_bytes` | count, bytes | the same inside groups |
//! | `between_per_token`, `inside_per_token` | ratio | messages by tokens |
//! | `combined`, `combined_wrong` | count | of exchanges with `combine`: sums that came back, and of these wrong, which is a violation |
//! | `combine_between_messages`, `combine_between_bytes` | count, bytes | of one round as planned, all tokens: parts and sums of them on the way back from group to group, by `combine_between_per_token` for a token |
//! | `combine_inside_messages`, `combine_inside_bytes` | count, bytes | the same inside groups |
//! | `bytes_delivered` | bytes | payload that came to lie in memory, all NICs |
//! | `bytes_copied` | bytes | by cores, GPU blocks (inline payload included) and copy engines |
//! | `bytes_copied_by_engines`, `bytes_reduced`, `bytes_by_dma` | bytes | by engines alone; of one operand of sums; read and written by NICs for payload |
//! | `gpu_kernels` | count | kernels of GPUs that cores had add for them |
//! | `copies`, `registrations` | count | copies; regions registered behind the first ring |
//! | `copies_per_byte`, `moves_per_byte` | ratio | bytes copied, and copied or moved by DMA, per byte delivered |
//! | `cpu_time` | time | work of all cores, and of it, `cpu_time.CAUSE`: `post`, `poll`, `interrupts`, `copy`, `register`, `kernel`, `other` |
//! | `page_faults`, `page_fault_pages` | count | of regions with pages on demand, and their pages |
//! | `tcp_syscalls`, `tcp_context_switches` | count | of transfers by TCP alone; a program of verbs that waits for an event calls the kernel for it, once for each of `interrupts` |
//! | `wire_hops` | count | packets over links, each link counted |
//! | `step.N.count`, `step.N.time` | count, time | of step N of a script; `step.N.result` is a word |
//! | `wr_ids` | word | of a script's own sends in the order of their completions: `1, 0` |
//! | `tuner.steps` | count | steps of the programs' own tuners |
//! | `tuner.max_wrs`, `.signal_every`, `.max_delay`, `.pace` | count, time, rate | means of their last values |
//! | `tuner.rate`, `tuner.p99` | 1/s, time | since the tuner is at rest, if it is |
//! | `statuses`, `peer_statuses` | word | of a script and of its peer, in order: `0 x3, 10, 5` |
//! | `latency.FIGURE` | time | from hand-over to the news of completion, see the program |
//! | `delivery.FIGURE` | time | from "ready" to the peer's check, of `produce` with data |
//! | `wire.FIGURE` | time | from "ready" to the wire, of `produce` with `record.timeline` |
//!
//! A program with a name has its own as `name.throughput`, and distributions as `name.latency`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    FlowReport, LatencySummary, Metric, NetworkPort, PortRow, QpRow, SeriesTable, ports, timeline,
};
use crate::quantity::Scalar;
use crate::tune::TuneStep;
use doorbell_core::units::{Ratio, Span};

/// How a run ended.
#[derive(
    Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum ExitKind {
    /// All programs are done, no oracle was violated.
    #[default]
    Ok,
    /// An oracle was violated.
    Violation,
    /// Nothing could go on, or the time limit was reached.
    NoProgress,
    /// A planned fault never happened.
    FaultNotFired,
}

impl ExitKind {
    /// The word in files and reports.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Violation => "violation",
            Self::NoProgress => "no-progress",
            Self::FaultNotFired => "fault-not-fired",
        }
    }
}

/// How a run ended, and why.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Exit {
    /// How.
    pub kind: ExitKind,
    /// The named reason: queue pair, PSN or index, and what is missing. Empty for `Ok`.
    pub reason: String,
}

/// How busy a resource was.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ResourceUse {
    /// `host0.port transmit`, `host0.core 0 on NUMA node 0 (program 0)`, and of the output ports of
    /// switches that carried something (at most 256, the busiest) `switch0.port3 to host3`, …
    pub name: String,
    /// Time in which it was busy.
    pub busy: Span,
    /// Time in which it could have been busy: the measured time, times its units.
    pub of: Span,
    /// Things served.
    pub served: u64,
    /// Time for which things waited for it, summed.
    pub waited: Span,
}

impl ResourceUse {
    /// Share of the time in which it was busy.
    pub fn share(&self) -> Ratio {
        Ratio::new(self.busy.as_ps(), self.of.as_ps()).unwrap_or(Ratio { num: 0, den: 1 })
    }
}

/// Direction on a PCIe link.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// From the device to the host.
    Up,
    /// From the host to the device.
    Down,
}

impl Direction {
    /// The word in names of metrics.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Down => "down",
        }
    }
}

/// Causes of PCIe traffic. A name of a metric with a cause that is neither here nor in the
/// outcome is a slip, and not zero bytes.
pub const PCIE_CAUSES: [&str; 15] = [
    "doorbell",
    "blueflame",
    "wqe-fetch",
    "wqe-refetch",
    "recv-wqe-fetch",
    "qp-context",
    "payload-read",
    "payload-write",
    "response-read",
    "response-write",
    "atomic",
    "cqe",
    "interrupt",
    "gpu",
    "copy",
];

/// Bytes on a PCIe link for one cause.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct PcieBytes {
    /// The link, `host0.nic0`.
    pub link: String,
    /// Direction.
    pub direction: Direction,
    /// One of [`PCIE_CAUSES`].
    pub cause: String,
    /// Bytes with all overheads.
    pub bytes: u64,
    /// Packets.
    pub tlps: u64,
}

/// A value that was asked for and the value that was granted.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Effective {
    /// Path of the setting.
    pub name: String,
    /// As asked for.
    pub requested: String,
    /// As granted.
    pub effective: String,
    /// Why they differ; empty when they do not.
    pub reason: String,
}

/// What a note is about.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum NoteKind {
    /// Worth knowing.
    Info,
    /// Probably not what is wanted.
    Warning,
    /// An oracle found a violation.
    Violation,
}

/// A finding of an oracle or of the runner.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Note {
    /// What it is about.
    pub kind: NoteKind,
    /// Name of the oracle or of the check.
    pub name: String,
    /// What was found.
    pub text: String,
    /// How often.
    pub count: u64,
}

/// What a planned fault did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FaultRow {
    /// Its id.
    pub id: String,
    /// Its kind.
    pub kind: String,
    /// Packets, steps or doorbells for which its conditions held; number, chance and budget aside.
    pub matched: u64,
    /// How often it fired.
    pub fired: u64,
    /// Most times that it may fire.
    pub budget: Option<u64>,
    /// When it fired first, since the start of the run.
    pub first: Option<Span>,
    /// Packets that it still holds at the end.
    pub held: u64,
    /// Whether the run is good though it never fired.
    pub maybe: bool,
    /// Whether what the device does is made up, for want of a public source.
    pub synthetic: bool,
}

/// A step of a message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TimelineRow {
    /// The message, counted from zero over the program.
    pub message: u64,
    /// What happens: `WQE build`, `doorbell`, `payload read`, …
    pub step: String,
    /// Where: `host0.core0`, `host0.nic0`, `wire`, …
    pub component: String,
    /// Start, since the message's first step.
    pub start: Span,
    /// End, since the message's first step.
    pub end: Span,
}

/// What a run yields. Nothing in it depends on wall clock, machine or build.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// Named values; see the table of names.
    pub metrics: BTreeMap<String, Metric>,
    /// Counters under the names of Linux' `hw_counters`, summed over hosts.
    pub counters: BTreeMap<String, u64>,
    /// Named words, such as what came of the steps of a script.
    pub words: BTreeMap<String, String>,
    /// Distributions of times, `latency` and `name.latency`.
    pub latencies: BTreeMap<String, LatencySummary>,
    /// Use of resources.
    pub resources: Vec<ResourceUse>,
    /// Name of the resource that limited the run, if one did.
    pub limiting: Option<String>,
    /// PCIe traffic by link, direction and cause.
    pub pcie: Vec<PcieBytes>,
    /// Values asked for and granted.
    pub effective: Vec<Effective>,
    /// Planned faults.
    pub faults: Vec<FaultRow>,
    /// Queue pairs, host by host.
    pub qps: Vec<QpRow>,
    /// Ports, host by host.
    pub ports: Vec<PortRow>,
    /// Ports of the network, those with drops and waits first; at most
    /// [`MAX_NETWORK_PORTS`](super::MAX_NETWORK_PORTS).
    pub network_ports: Vec<NetworkPort>,
    /// Findings.
    pub notes: Vec<Note>,
    /// Names of all oracles that watched, also of those that found nothing.
    pub oracles: Vec<String>,
    /// Flows, of programs of that kind.
    pub flows: Option<FlowReport>,
    /// Steps of the programs' own tuners, in the order of the programs.
    pub tuning: Vec<TuneStep>,
    /// Steps of the first messages, if asked for.
    pub timeline: Option<Vec<TimelineRow>>,
    /// Numbers over time, if asked for.
    pub series: Option<SeriesTable>,
    /// Hash over all events, as text.
    pub trace_hash: String,
    /// Simulated time at the end.
    pub sim_time: Span,
    /// Events handled.
    pub events: u64,
    /// How it ended.
    pub exit: Exit,
}

/// A looked-up value.
#[derive(Clone, PartialEq, Debug)]
pub enum Found {
    /// A number with its metric for printing.
    Number(Metric),
    /// A word.
    Word(String),
}

impl Outcome {
    /// The value that expectations mean by `name`:
    ///
    /// a metric; `DISTRIBUTION.FIGURE` (`latency.p99`); `counter.NAME`, the sum over hosts,
    /// `hostH.counter.NAME` of one port, and `qp.H.N.counter.NAME` of queue pair number N of host
    /// H, the first of which is 16; `qp.H.N.death.at`, `.timeouts`, `.retries` and `.rnr_retries`
    /// of one that died or stalled, and the words `qp.H.N.state`, `qp.H.N.death.cause`, `.field`
    /// and `.status`, which are "none" of one that lives; `resource.NAME.busy`,
    /// `.served` or `.waited`; `pcie.bytes` and `pcie.tlps` over all links, narrowed as
    /// `pcie.DIRECTION.bytes`, `pcie.DIRECTION.CAUSE.bytes`; `note.NAME` (how often an oracle
    /// found something); `fault.ID.fired`, `.matched` or `.held`; `timeline.STEP.duration`,
    /// `.start`, `.end` or `.count` of the first recorded message; `port.NAME.FIGURE` of a port of
    /// the network, with `bytes`, `packets`, `busy`, `queue_max`, `starved`, `marks`,
    /// `pause_frames`, `paused`, `drops` and `drops.CAUSE`; `series.SUBJECT.QUANTITY.FIGURE`
    /// ([`SeriesTable::figure`]); `sim_time`, `events`; the words `exit`, `exit.reason`,
    /// `limiting`, `trace_hash`.
    pub fn find(&self, name: &str) -> Option<Found> {
        if let Some(metric) = self.metrics.get(name) {
            return Some(Found::Number(*metric));
        }
        let word = |w: &str| Some(Found::Word(w.to_owned()));
        if let Some(known) = self.words.get(name) {
            return word(known);
        }
        match name {
            "exit" => return word(self.exit.kind.word()),
            "exit.reason" => return word(&self.exit.reason),
            "limiting" => return word(self.limiting.as_deref().unwrap_or("none")),
            "trace_hash" => return word(&self.trace_hash),
            "sim_time" => return Some(Found::Number(Metric::time(self.sim_time))),
            "events" => return Some(Found::Number(Metric::count(self.events))),
            _ => {}
        }
        if let Some(word) = self.qp(name).and_then(|(row, name)| row.word(name)) {
            return Some(Found::Word(word));
        }
        self.find_number(name).map(Found::Number)
    }

    /// The queue pair that `qp.H.N.REST` names, and the rest.
    fn qp<'n>(&self, name: &'n str) -> Option<(&QpRow, &'n str)> {
        let (host, rest) = name.strip_prefix("qp.")?.split_once('.')?;
        let (qpn, rest) = rest.split_once('.')?;
        let (host, qpn) = (host.parse::<u32>().ok()?, qpn.parse::<u32>().ok()?);
        Some((self.qps.iter().find(|r| (r.host, r.qpn) == (host, qpn))?, rest))
    }

    /// A counter of one port, or of all ports of a host: 0 if it never moved.
    fn port_counter(&self, name: &str) -> Option<Metric> {
        let (of, counter) = name.split_once(".counter.")?;
        let its = |p: &&PortRow| p.name() == of || format!("host{}", p.host) == of;
        self.ports.iter().find(its)?;
        let moved = self.ports.iter().filter(its).filter_map(|p| p.counters.get(counter));
        let moved = moved.copied().reduce(u64::saturating_add);
        let known = || self.counters.contains_key(counter).then_some(0);
        moved.or_else(known).map(Metric::count)
    }

    fn find_number(&self, name: &str) -> Option<Metric> {
        if let Some((row, name)) = self.qp(name) {
            return row.number(name);
        }
        if let Some(counter) = self.port_counter(name) {
            return Some(counter);
        }
        if let Some(counter) = name.strip_prefix("counter.") {
            return self.counters.get(counter).map(|n| Metric::count(*n));
        }
        if let Some(note) = name.strip_prefix("note.") {
            let found: Vec<&Note> = self.notes.iter().filter(|n| n.name == note).collect();
            let known = !found.is_empty() || self.oracles.iter().any(|o| o == note);
            return known.then(|| Metric::count(found.iter().map(|n| n.count).sum()));
        }
        if let Some(series) = name.strip_prefix("series.") {
            return self.series.as_ref()?.figure(series);
        }
        if let Some(port) = name.strip_prefix("port.") {
            return ports::find(&self.network_ports, port);
        }
        let (before, figure) = name.rsplit_once('.')?;
        if let Some(step) = before.strip_prefix("timeline.") {
            return timeline::figure(self.timeline.as_deref()?, step, figure);
        }
        if let Some(resource) = before.strip_prefix("resource.") {
            let found = self.resources.iter().find(|r| r.name == resource)?;
            return match figure {
                "busy" => Some(Metric::ratio(found.share().num, found.share().den)),
                "served" => Some(Metric::count(found.served)),
                "waited" => Some(Metric::time(found.waited)),
                _ => None,
            };
        }
        if let Some(id) = before.strip_prefix("fault.") {
            let row = self.faults.iter().find(|f| f.id == id)?;
            let counts = [("fired", row.fired), ("matched", row.matched), ("held", row.held)];
            return counts.iter().find(|(n, _)| *n == figure).map(|(_, n)| Metric::count(*n));
        }
        if before == "pcie" || before.starts_with("pcie.") {
            return self.find_pcie(before, figure);
        }
        let summary = self.latencies.get(before)?;
        let value = summary.figure(figure)?;
        let time = Metric::time(Span::from_ps(value));
        Some(if figure == "count" { Metric::count(value) } else { time })
    }

    fn find_pcie(&self, before: &str, figure: &str) -> Option<Metric> {
        let mut words = before.split('.').skip(1);
        let (direction, cause) = (words.next(), words.next());
        if words.next().is_some() || direction.is_some_and(|d| d != "up" && d != "down") {
            return None;
        }
        let known = |c: &&str| PCIE_CAUSES.contains(c) || self.pcie.iter().any(|p| p.cause == **c);
        if cause.as_ref().is_some_and(|c| !known(c)) {
            return None;
        }
        let selected = self.pcie.iter().filter(|p| {
            direction.is_none_or(|d| d == p.direction.word()) && cause.is_none_or(|c| c == p.cause)
        });
        match figure {
            "bytes" => Some(Metric::bytes(selected.map(|p| p.bytes).sum())),
            "tlps" => Some(Metric::count(selected.map(|p| p.tlps).sum())),
            _ => None,
        }
    }

    /// Every name that [`Outcome::find`] knows here, for "did you mean".
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> =
            ["exit", "exit.reason", "limiting", "trace_hash", "sim_time", "events"]
                .map(str::to_owned)
                .to_vec();
        names.extend(self.metrics.keys().cloned());
        names.extend(self.words.keys().cloned());
        names.extend(self.timeline.iter().flat_map(|_| timeline::names()));
        names.extend(self.counters.keys().map(|c| format!("counter.{c}")));
        names.extend(self.qps.iter().flat_map(QpRow::names));
        for port in &self.ports {
            let of = port.counters.keys().map(|c| format!("{}.counter.{c}", port.name()));
            names.extend(of);
        }
        for latency in self.latencies.keys() {
            names.extend(LatencySummary::FIGURES.map(|f| format!("{latency}.{f}")));
        }
        for resource in &self.resources {
            let figures = ["busy", "served", "waited"];
            names.extend(figures.map(|f| format!("resource.{}.{f}", resource.name)));
        }
        names.extend(["pcie.bytes", "pcie.tlps"].map(str::to_owned));
        for fault in &self.faults {
            names.extend(["fired", "matched", "held"].map(|f| format!("fault.{}.{f}", fault.id)));
        }
        for direction in ["up", "down"] {
            names.extend(["bytes", "tlps"].map(|f| format!("pcie.{direction}.{f}")));
            let other = self.pcie.iter().map(|p| p.cause.as_str());
            for cause in PCIE_CAUSES.into_iter().chain(other) {
                names.extend(["bytes", "tlps"].map(|f| format!("pcie.{direction}.{cause}.{f}")));
            }
        }
        names.extend(self.series.iter().flat_map(SeriesTable::names));
        names.extend(ports::names(&self.network_ports));
        let notes = self.notes.iter().map(|n| &n.name).chain(&self.oracles);
        names.extend(notes.map(|n| format!("note.{n}")));
        names.sort();
        names.dedup();
        names
    }
}

impl Found {
    /// The value as a number with its kind, if it is one.
    pub fn scalar(&self) -> Option<Scalar> {
        match self {
            Self::Number(metric) => Some(metric.scalar()),
            Self::Word(_) => None,
        }
    }

    /// The value as people read it.
    pub fn text(&self) -> String {
        match self {
            Self::Number(metric) => metric.text(),
            Self::Word(word) => word.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome() -> Outcome {
        let mut o = Outcome { oracles: vec!["stale-wqe".into()], ..Outcome::default() };
        let bytes = |direction, cause: &str, bytes| PcieBytes {
            link: "host0.nic0".into(),
            direction,
            cause: cause.into(),
            bytes,
            tlps: 1,
        };
        o.pcie = vec![
            bytes(Direction::Up, "cqe", 10),
            bytes(Direction::Down, "doorbell", 20),
            bytes(Direction::Up, "new-cause", 40),
        ];
        o
    }

    fn number(name: &str) -> Option<f64> {
        outcome().find(name).and_then(|f| f.scalar()).map(Scalar::number)
    }

    #[test]
    fn pcie_is_narrowed_by_direction_and_cause() {
        assert_eq!(number("pcie.bytes"), Some(70.0));
        assert_eq!(number("pcie.up.bytes"), Some(50.0));
        assert_eq!(number("pcie.up.tlps"), Some(2.0));
        assert_eq!(number("pcie.up.cqe.bytes"), Some(10.0));
        assert_eq!(number("pcie.up.new-cause.bytes"), Some(40.0));
        assert_eq!(number("pcie.down.cqe.bytes"), Some(0.0), "known, and none of it");
        assert_eq!(number("pcie.up.cqes.bytes"), None, "a slip is not zero");
        assert_eq!(number("pcie.upp.bytes"), None);
        assert_eq!(number("pcie.up.cqe.x.bytes"), None);
        assert_eq!(number("pcie.up.byte"), None);
    }

    #[test]
    fn an_oracle_that_found_nothing_counts_zero() {
        assert_eq!(number("note.stale-wqe"), Some(0.0));
        assert_eq!(number("note.stale-wqes"), None);
    }

    #[test]
    fn every_name_that_is_offered_is_found() {
        let o = outcome();
        for name in o.names() {
            assert!(o.find(&name).is_some(), "{name}");
        }
    }
}
