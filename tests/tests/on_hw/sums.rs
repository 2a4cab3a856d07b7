//! Aggregations of four members on devices: sums of floats have the bits that they have on the
//! ideal back end, where they are held against adding one after the other.

use std::time::Duration;

use doorbell_core::ideal::{Ideal, Step, run as run_ideal};
use doorbell_core::policy::aggregate::{AggregateConfig, Group, Method, Plan};
use doorbell_core::units::Span;
use doorbell_hw::verbs::{RunConfig, WaitMode, run};
use doorbell_tests::adder::{Adder, ROUNDS};
use doorbell_tests::lab::hw::Lab;

const MEMBERS: usize = 4;

fn config(method: Method) -> AggregateConfig {
    // An emulated processor is slow.
    let (chunk_deadline, round_deadline) = (Span::from_ms(10_000), Span::from_ms(60_000));
    let connect_deadline = round_deadline;
    let base =
        AggregateConfig { bytes: 20_000, chunk: 4096, window: 3, ..AggregateConfig::default() };
    AggregateConfig { method, chunk_deadline, round_deadline, connect_deadline, ..base }
}

fn on_ideal(plan: &Plan, config: AggregateConfig) -> Vec<Adder> {
    let mut all: Vec<Adder> = (0..MEMBERS).map(|_| Adder::new(plan, config)).collect();
    let mut steps: Vec<&mut dyn Step> = all.iter_mut().map(|a| a as &mut dyn Step).collect();
    run_ideal(&mut Ideal::new(MEMBERS), &mut steps).unwrap();
    all
}

/// Each rank in a thread of its own, two of them on each device.
#[expect(clippy::disallowed_types, reason = "the device works on the wall clock")]
fn on_devices(plan: &Plan, config: AggregateConfig, wait: WaitMode) -> Vec<Adder> {
    let ranks = Lab::on_hosts(&[0, 0, 1, 1]).into_ranks();
    let limits = RunConfig { wait, limit: Duration::from_secs(60), ..RunConfig::default() };
    std::thread::scope(|scope| {
        let start = |mut t: doorbell_hw::verbs::HwTransport| {
            let mut adder = Adder::new(plan, config);
            scope.spawn(move || {
                run(&mut t, &mut adder, &limits).unwrap_or_else(|e| panic!("{e}"));
                t.bootstrap_mut().finish(std::time::Instant::now() + Duration::from_secs(10));
                adder
            })
        };
        let threads: Vec<_> = ranks.into_iter().map(start).collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    })
}

#[test]
fn sums_of_floats_have_the_bits_of_the_ideal_back_end() {
    let groups = Group::by_place(&[0, 0, 1, 1], 2, 1);
    let two_hop = Plan::two_hop(&groups, 2).unwrap();
    let ring = Plan::ring(MEMBERS as u32).unwrap();
    for (plan, name) in [(&two_hop, "two hops"), (&ring, "ring")] {
        for (n, method) in [Method::Send, Method::Write, Method::Read].into_iter().enumerate() {
            let wait = if n == 1 { WaitMode::Event } else { WaitMode::Poll };
            let (want, got) =
                (on_ideal(plan, config(method)), on_devices(plan, config(method), wait));
            for (rank, (want, got)) in want.iter().zip(&got).enumerate() {
                assert_eq!(got.error, None, "{name} by {method:?}, rank {rank}");
                assert_eq!(got.sums.len() as u64, ROUNDS);
                assert!(got.sums == want.sums, "{name} by {method:?}, rank {rank}: other bits");
            }
        }
    }
}
