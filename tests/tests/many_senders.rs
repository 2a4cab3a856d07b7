//! 64 senders of 1 MB to one receiver while one packet in a thousand is lost on each link: it
//! always ends, and every byte is delivered once.

use doorbell::format::expand::expand;
use doorbell::format::load::{Overrides, find, load};
use doorbell::profile::Profiles;
use doorbell::run::{ExitKind, Runner, Simulator};

const SENDERS: f64 = 64.0;
const BYTES: f64 = 64e6;

/// Lost packets, and expiries of the ack timer.
fn ends_with_every_byte_once(seed: u64) -> (u64, u64) {
    let (source, directory) = find("incast_of_64_with_loss").expect("it is in the library");
    let mut profiles = Profiles::beside(&directory);
    let overrides = Overrides { set: Vec::new(), seed: Some(seed) };
    let loaded = load(source, directory, &overrides).expect("it is valid");
    let point = expand(&loaded, &mut profiles).expect("it expands").remove(0).point;
    let outcome = Simulator.run(&point).expect("it runs");
    let reason = &outcome.exit.reason;
    assert_eq!(outcome.exit.kind, ExitKind::Ok, "seed {seed}: {reason}");
    let number = |name: &str| outcome.metrics[name].number();
    let got = ["messages", "delivered_bytes", "data_errors", "qps_in_error"].map(number);
    assert_eq!(got, [SENDERS, BYTES, 0.0, 0.0], "seed {seed}");
    let counter = |name: &str| outcome.counters.get(name).copied().unwrap_or(0);
    (counter("fault_drop"), counter("local_ack_timeout_err"))
}

fn all_end(seeds: std::ops::RangeInclusive<u64>) {
    let (mut lost, mut expired) = (0, 0);
    for seed in seeds.clone() {
        let (drops, timeouts) = ends_with_every_byte_once(seed);
        assert!(drops > 0, "seed {seed} loses nothing");
        lost += drops;
        expired += timeouts;
    }
    assert!(expired > 0, "no tail was lost");
    println!("seeds {seeds:?}: {lost} packets lost, {expired} timeouts, every byte once");
}

#[test]
fn twenty_seeds_end_with_every_byte_once() {
    all_end(1..=20);
}

#[test]
#[ignore = "200 seeds take a minute; .ci/long runs it"]
fn two_hundred_seeds_end_with_every_byte_once() {
    all_end(1..=200);
}
