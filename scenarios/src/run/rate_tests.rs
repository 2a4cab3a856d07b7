//! Rates of whole runs: none is above what the link carries by more than was under way when the
//! window opened, however the run is cut.

use proptest::prelude::*;

use super::simulate_tests::{number, outcome};
use crate::run::Outcome;

/// Bits per second of payload that a link of 400 Gb/s carries: WRITEs of `size` in packets of 4
/// KiB, each with 66 bytes around it on the wire at least.
fn payload_rate(size: u64) -> f64 {
    let wire = size + 66 * size.div_ceil(4096);
    400e9 * size as f64 / wire as f64
}

fn run(size: u64, qps: u64, warmup: u64, iterations: u64, more: &str) -> Outcome {
    let text = format!(
        "[[program]]\nkind = 'bandwidth'\nop = 'write'\nsize = '{size}B'\nqps = {qps}\n\
         warmup = {warmup}\niterations = {iterations}\n{more}"
    );
    outcome(&text, &[])
}

fn throughput(size: u64, qps: u64, warmup: u64, iterations: u64, more: &str) -> f64 {
    number(&run(size, qps, warmup, iterations, more), "throughput")
}

/// A core that posts on so many queue pairs that it hardly polls: completions wait for it, and it
/// takes them in the end faster than they came.
#[test]
fn completions_that_waited_for_a_poll_are_no_throughput() {
    for (warmup, iterations) in [(1000, 3000), (20_000, 10_000)] {
        let rate = throughput(4096, 100, warmup, iterations, "");
        // 87 ns of the core for each message are 377 Gb/s.
        assert!((200e9..377e9).contains(&rate), "{rate}");
    }
}

/// The line limits: what was outstanding when the window opened does not count against it.
#[test]
fn a_window_in_the_stream_shows_the_rate_of_the_line() {
    let rate = throughput(65_536, 1, 200, 2000, "");
    let most = payload_rate(65_536);
    assert!(rate > most * 0.99 && rate <= most, "{rate} of {most}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    /// Of n messages that count, those outstanding when the window opened in the stream may have
    /// crossed the link before, all but their last packet; they are at most half of n.
    #[test]
    fn no_rate_is_above_that_of_the_link_but_for_what_was_outstanding(
        size in prop_oneof![Just(2048_u64), 4096_u64..20_000, Just(65_536)],
        qps in prop_oneof![Just(1_u64), 2_u64..12, Just(64)],
        warmup in prop_oneof![Just(0_u64), 1_u64..20, 20_u64..400],
        iterations in prop_oneof![1_u64..20, 20_u64..600],
        window in 1_u64..128,
        poll_batch in 1_u64..32,
        polls in prop_oneof![Just(""), Just("poll_interval = '3us'\n")],
    ) {
        let more = format!("window = {window}\npoll_batch = {poll_batch}\n{polls}");
        let outcome = run(size, qps, warmup, iterations, &more);
        let rate = number(&outcome, "throughput");
        let counted = rate / 8.0 / size as f64 * (number(&outcome, "duration") * 1e-12);
        let before = ((qps * window) as f64).min(counted / 2.0);
        let most = payload_rate(size) * counted / (counted - before);
        prop_assert!(rate <= most, "{} Gb/s of {}, {counted} messages", rate / 1e9, most / 1e9);
        prop_assert!(counted > 0.99, "{counted}");
    }
}
