//! Cost of the event queue: one pop and one schedule, at a fixed number of pending events.
//!
//! `cargo bench -p doorbell-sim --bench engine [pattern]`. Prints the number of events, the
//! trace hash (must not change with the queue: it is the check that a faster queue kept the
//! order) and nanoseconds per event, which hold for the machine they were measured on.
#![expect(clippy::disallowed_types, reason = "a benchmark measures wall time and asserts none")]

use std::time::Instant;

use doorbell_core::units::{Span, Time};
use doorbell_sim::engine::{Class, ComponentId, Engine, SimRng};

/// As large as the event of an island: a kind, an index and a payload.
#[derive(Copy, Clone)]
struct Event {
    origin: u32,
    count: u32,
    payload: u64,
}

/// How far ahead the next event of a chain is.
struct Pattern {
    name: &'static str,
    draw: fn(&mut SimRng) -> u64,
}

const PATTERNS: [Pattern; 4] = [
    // No structure at all: uniform within two microseconds.
    Pattern { name: "uniform 2 us", draw: |r| r.below(2_000_000) },
    // A fabric at 400 Gb/s: stages at the same instant, serialisation, propagation, host
    // latencies, retransmission timers.
    Pattern {
        name: "fabric",
        draw: |r| match r.below(100) {
            0..10 => 0,
            10..55 => 20 * r.below(4_200),
            55..85 => 500_000 + r.below(3_000),
            85..99 => 1_000_000 + r.below(4_000_000),
            _ => 500_000_000,
        },
    },
    // Every chain in step with all others: each comparison needs the tie.
    Pattern { name: "lockstep", draw: |_| 80_000 },
    // Sparse and wide, over eight decades.
    Pattern { name: "wide", draw: |r| r.next_u64() >> (64 - 14 - r.below(27)) },
];

/// A table of delays, so that drawing them is not measured.
fn delays(pattern: &Pattern) -> Vec<Span> {
    let mut rng = SimRng::stream(1, "bench", pattern.name);
    (0..1 << 16).map(|_| Span::from_ps((pattern.draw)(&mut rng))).collect()
}

fn hold(pattern: &Pattern, pending: u32, events: u64) {
    let delays = delays(pattern);
    let mut engine = Engine::new(42);
    let origins: Vec<ComponentId> =
        (0..pending.min(1_000)).map(|i| engine.add_component(&format!("c{i}"))).collect();
    for i in 0..pending {
        let origin = i % origins.len() as u32;
        let event = Event { origin, count: 0, payload: u64::from(i) };
        let at = Time::ZERO + delays[i as usize % delays.len()];
        engine.schedule(origins[origin as usize], at, Class::Arrival, event);
    }
    let started = Instant::now();
    for n in 0..events {
        let (now, _, mut event) = engine.pop().expect("no livelock").expect("never empty");
        event.count += 1;
        event.payload ^= n;
        let delay = delays[n as usize % delays.len()];
        engine.schedule(origins[event.origin as usize], now + delay, Class::Arrival, event);
    }
    let elapsed = started.elapsed();
    while let Ok(Some((_, _, event))) = engine.pop() {
        engine.trace(origins[event.origin as usize], event.count, event.payload, 0);
    }
    println!(
        "{:14} {pending:>8} pending {events:>9} events  {}  {:6.1} ns/event",
        pattern.name,
        engine.trace_hash(),
        elapsed.as_nanos() as f64 / events as f64
    );
}

fn main() {
    // Cargo passes `--bench`.
    let filter = std::env::args().skip(1).find(|a| !a.starts_with('-')).unwrap_or_default();
    for pattern in PATTERNS.iter().filter(|p| p.name.contains(&filter)) {
        for pending in [10, 100, 1_000, 10_000, 100_000] {
            hold(pattern, pending, 4_000_000);
        }
    }
}
