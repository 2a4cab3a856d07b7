//! Go-Back-N on two whole hosts of `generic-400g` at 100 Gb/s: PCIe, NIC, transmit buffer and all.
//! Time of a packet and loop come from runs without chance: one without a loss, one with one loss.

use std::sync::Arc;

use doorbell::format::expand::expand;
use doorbell::format::load::{Overrides, load};
use doorbell::input::Source;
use doorbell::profile::Profiles;
use doorbell::run::{Exit, ExitKind, Outcome, Runner, Simulator};
use doorbell_core::verbs::AckTimeout;

use super::{Form, go_back_n};

const MESSAGE: u64 = 64 << 10;
const MTU: u64 = 4096;

const FILE: &str = r#"
title = "Go-Back-N against its closed form"
profile = "generic-400g"
[run]
noise = "off"
[topology]
rate = "100Gbps"
[qp]
sq_depth = 256
[[program]]
kind = "bandwidth"
op = "write"
size = "64KiB"
window = 256
[[fault]]
id = "loss"
kind = "drop"
class = "request"
chance = "0/1000"
maybe = true
[[fault]]
id = "nak"
kind = "drop"
class = "nak"
chance = "0/1000"
maybe = true
[[fault]]
id = "once"
kind = "drop"
class = "request"
nth = 5000
before = "1ns"
maybe = true
"#;

/// What a point sets.
#[derive(Copy, Clone, Debug)]
pub struct Setting {
    /// Propagation of the link, microseconds.
    pub propagation_us: u64,
    /// Loss of requests, 1/1000.
    pub loss: u64,
    /// Loss of NAKs, 1/1000.
    pub nak_loss: u64,
    /// Code of the ack timer.
    pub timeout: u8,
}

/// Two hosts with nothing lost.
#[derive(Copy, Clone, Debug)]
pub struct Calm {
    /// Time of a packet, picoseconds.
    pub packet_ps: f64,
    /// Packets in the loop: those that a single loss makes go out again.
    pub loop_packets: u64,
}

/// A point and what came of it.
#[derive(Copy, Clone, Debug)]
pub struct Row {
    /// The closed form.
    pub form: Form,
    /// What the ack timer waits, in packets' times.
    pub timeout: f64,
    /// Mean time of a delivered packet, in packets' times.
    pub per_packet: f64,
    /// Expiries of the ack timer.
    pub timeouts: u64,
}

fn run(iterations: u64, set: &[String]) -> Outcome {
    let mut set = set.to_vec();
    set.push(format!("program.0.iterations={iterations}"));
    let source = Source::new("closed form".to_owned(), FILE.to_owned());
    let loaded =
        load(source, ".".into(), &Overrides { set, seed: None }).unwrap_or_else(|e| panic!("{e}"));
    let mut profiles = Profiles::beside(".".as_ref());
    let mut points = expand(&loaded, &mut profiles).unwrap_or_else(|e| panic!("{e}"));
    let point = Arc::new(points.remove(0).point);
    let outcome = Simulator.run(&point).unwrap_or_else(|e| panic!("{e}"));
    let Exit { kind, reason } = &outcome.exit;
    assert_eq!(*kind, ExitKind::Ok, "{reason}");
    outcome
}

fn per_packet_ps(outcome: &Outcome) -> f64 {
    MTU as f64 * 8e12 / outcome.metrics["throughput"].number()
}

fn counter(outcome: &Outcome, name: &str) -> u64 {
    outcome.counters.get(name).copied().unwrap_or(0)
}

/// Time of a packet and loop at this propagation.
pub fn calm(propagation_us: u64) -> Calm {
    let far = format!("topology.propagation='{propagation_us}us'");
    let none = run(2000, std::slice::from_ref(&far));
    let once = run(2000, &[far, "fault.2.before='9s'".to_owned()]);
    let loop_packets = counter(&once, "retransmitted_packets");
    Calm { packet_ps: per_packet_ps(&none), loop_packets }
}

/// Runs a point.
pub fn row(calm: &Calm, at: Setting) -> Row {
    let timer = AckTimeout::new(at.timeout).and_then(AckTimeout::duration);
    let timeout = timer.expect("a code with a timer").as_ps() as f64 / calm.packet_ps;
    let (p, q) = (at.loss as f64 / 1e3, at.nak_loss as f64 / 1e3);
    let form = go_back_n(calm.loop_packets as f64, p, q, timeout);
    let outcome = run(
        (form.packets * MTU).div_ceil(MESSAGE).max(2000),
        &[
            format!("topology.propagation='{}us'", at.propagation_us),
            format!("fault.0.chance='{}/1000'", at.loss),
            format!("fault.1.chance='{}/1000'", at.nak_loss),
            format!("qp.timeout={}", at.timeout),
        ],
    );
    let per_packet = per_packet_ps(&outcome) / calm.packet_ps;
    Row { form, timeout, per_packet, timeouts: counter(&outcome, "local_ack_timeout_err") }
}

/// Three loops, four losses, two losses of NAKs, two timers.
pub fn settings() -> Vec<Setting> {
    let mut settings = Vec::new();
    for propagation_us in [1, 12, 50] {
        for loss in [1, 3, 10, 20] {
            for (nak_loss, timeout) in [(0, 7), (0, 9), (100, 7), (300, 7)] {
                settings.push(Setting { propagation_us, loss, nak_loss, timeout });
            }
        }
    }
    settings
}
