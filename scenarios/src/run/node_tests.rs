//! Hosts of one node: a way of their own, without the NIC's units, PCIe and the network.

use super::simulate_tests::{number, outcome};
use super::{ExitKind, Outcome};

/// A WRITE at a time from host 0 to host 1 of its node.
const INSIDE: &str = "[topology]\nkind = 'switch'\nhosts = 4\nnode = 2\n\
                      [[program]]\nkind = 'latency'\nsize = '8B'\ninline = '0B'\niterations = 20\n";

fn payload_over_pcie(o: &Outcome) -> u64 {
    let payload = |cause: &str| cause.starts_with("payload");
    o.pcie.iter().filter(|p| payload(&p.cause)).map(|p| p.bytes).sum()
}

/// 3 us there and 3 us back, and what the core and the doorbell take; outside less than half of it.
#[test]
fn a_neighbour_is_reached_by_the_link_of_the_node() {
    let us = |set: &[&str]| number(&outcome(INSIDE, set), "latency.min") / 1e6;
    let (inside, outside) = (us(&[]), us(&["program.0.peer=2"]));
    assert!((6.0..7.5).contains(&inside), "{inside} us inside");
    assert!(outside < 3.0, "{outside} us outside");
    let near = us(&["settings.gpu.node_latency=1us"]);
    assert!((inside - near - 4.0).abs() < 0.05, "2 us less each way: {near}");
}

/// 48 packets more of 4,096 B and 82 B around them at 200 GB/s.
#[test]
fn bytes_take_the_rate_of_that_link_and_no_pcie() {
    let at = |size: &str| outcome(INSIDE, &[&format!("program.0.size={size}")]);
    let (less, more) = (at("64KiB"), at("256KiB"));
    let ns = (number(&more, "latency.min") - number(&less, "latency.min")) / 1e3;
    // A poll sees the end up to 20 ns late.
    assert!((ns - 48.0 * 4178.0 / 200.0).abs() < 20.0, "{ns} ns");
    assert_eq!(payload_over_pcie(&more), 0);
    let outside = outcome(INSIDE, &["program.0.size=64KiB", "program.0.peer=2"]);
    assert!(payload_over_pcie(&outside) > 2 * 20 * 65536, "read here and written there");
}

/// A processing unit that takes 10 us for a message delays nobody inside.
#[test]
fn units_of_the_nic_are_not_used_inside() {
    let us = |set: &[&str]| {
        let slow = ["settings.nic.pu_wqe=10us", "settings.nic.rx_packet=10us"];
        number(&outcome(INSIDE, &[&slow[..], set].concat()), "latency.min") / 1e6
    };
    let (inside, outside) = (us(&[]), us(&["program.0.peer=2"]));
    assert!(inside < 7.5 && outside > 20.0, "{inside} us inside, {outside} us outside");
}

#[test]
fn every_byte_arrives_by_every_operation() {
    for host in ["ideal", "full"] {
        for op in ["send", "write-imm"] {
            let text = format!(
                "[topology]\nkind = 'switch'\nhosts = 4\nnode = 2\n\
                 [[program]]\nkind = 'produce'\nop = '{op}'\nsize = '9KB'\niterations = 40\n\
                 slots = 40\npayload = 'data'\n"
            );
            let o = outcome(&text, &[&format!("run.host={host}")]);
            assert_eq!(o.exit.kind, ExitKind::Ok, "{op}: {}", o.exit.reason);
            assert_eq!((number(&o, "received"), number(&o, "data_errors")), (40.0, 0.0), "{op}");
        }
    }
    let read = "[topology]\nkind = 'switch'\nhosts = 4\nnode = 2\n[[program]]\n\
                kind = 'script'\npayload = 'data'\nsteps = ['store 4711', \
                'post write 9KB remote=0B', 'post read 9KB local=16KiB remote=0B fence', \
                'post fetch-add 8B local=32KiB remote=0B fence', 'ring', 'wait 3', \
                'load at=16KiB', 'load at=32KiB']\n";
    let o = outcome(read, &[]);
    assert_eq!((number(&o, "step.6.count"), number(&o, "step.7.count")), (4711.0, 4711.0));
}

/// What a relay passes on stays in its node, and what is for others does not.
#[test]
fn an_exchange_goes_both_ways_and_is_right() {
    let text = "[topology]\nkind = 'switch'\nhosts = 8\nnode = 4\n[[program]]\n\
                kind = 'all-to-all'\nhosts = 8\nsize = '20KB'\niterations = 2\n\
                payload = 'data'\nall_to_all = { route = 'two-hop', group = 4 }\n";
    let o = outcome(text, &[]);
    assert_eq!((number(&o, "exchanges"), number(&o, "exchanges_wrong")), (16.0, 0.0));
    // Of 20 KB or 5 packets for each, in either round, 4 go to the relay in the other node: 40
    // packets, and ACKs. Inside 3 stay, and 3 of those that a relay gets are passed on: 60.
    let sent = |name: &str| {
        let found = o.resources.iter().find(|r| r.name == name);
        found.unwrap_or_else(|| panic!("no {name}")).served
    };
    assert!((40..60).contains(&sent("host0.port transmit")), "{}", sent("host0.port transmit"));
    assert!((60..90).contains(&sent("host0.link into the node")));
}
