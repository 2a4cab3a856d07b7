//! Hosts of one node: a way of their own, without the NIC's units, PCIe and the network.

use super::simulate_tests::{number, outcome};
use super::{ExitKind, Outcome};
use crate::testing::expanded;

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

/// As many WRITEs as `iterations`, 1 us apart, from host 0 to a host of its node, and to another
/// one.
fn faulted(fault: &str, peer: u32) -> Outcome {
    let text = format!(
        "[topology]\nkind = 'switch'\nhosts = 4\nnode = 2\n\
         [[program]]\nkind = 'bandwidth'\nsize = '8KiB'\niterations = 100\ninterval = '1us'\n\
         peer = {peer}\n[[fault]]\nid = 'f'\nmaybe = true\nafter = '150us'\n{fault}\n"
    );
    outcome(&text, &[])
}

/// Hosts 0 and 1 are at switch 1, behind the one that all are at.
#[test]
fn a_link_that_is_down_is_one_of_two_ways() {
    let down = |link: &str, peer| {
        let o = faulted(&format!("kind = 'link-down'\nlink = '{link}'"), peer);
        (o.exit.kind, number(&o, "fault.f.fired") > 0.0)
    };
    for link in ["host1-switch1", "host0-switch1"] {
        assert_eq!(down(link, 1), (ExitKind::Violation, true), "{link}, inside");
        assert_eq!(down(link, 2), (ExitKind::Ok, false), "{link}, outside");
    }
    assert_eq!(down("host0-switch0", 1), (ExitKind::Ok, false));
    assert_eq!(down("host0-switch0", 2), (ExitKind::Violation, true));
}

#[test]
fn a_dead_neighbour_is_noticed_and_a_nic_that_stands_still_holds_up_both_ways() {
    let o = faulted("kind = 'peer-dead'\nhost = 1", 1);
    assert_eq!((o.exit.kind, number(&o, "fault.f.fired")), (ExitKind::Violation, 1.0));
    assert!(o.exit.reason.contains("transport retry counter exceeded"), "{}", o.exit.reason);
    for peer in [1, 2] {
        let stands = format!("kind = 'nic-stall'\nhost = {peer}\nbefore = '1ms'");
        let o = faulted(&stands, peer);
        assert_eq!(o.exit.kind, ExitKind::Ok, "{}", o.exit.reason);
        assert!(number(&o, "duration") > 0.8e9, "{peer}: the rest of the 1 ms is waited for");
    }
}

/// The link into a node is no NIC: it has no number that a fault could name.
#[test]
fn a_host_of_a_node_has_one_nic() {
    let text = |nic: u32| {
        format!(
            "title = 't'\nprofile = 'generic-400g'\n[topology]\nkind = 'switch'\nhosts = 4\n\
             node = 2\n[[program]]\nkind = 'latency'\n[[fault]]\nid = 'f'\nmaybe = true\n\
             kind = 'nic-stall'\nhost = 1\nnic = {nic}\nbefore = '1us'\n"
        )
    };
    assert!(expanded(&text(0), &[]).is_ok());
    let e = expanded(&text(1), &[]).expect_err("there is no NIC 1");
    assert!(e.to_string().contains("NIC"), "{e}");
}

/// Stores that have not landed when their WRITE is rung are missed inside as they are outside.
#[test]
fn payload_inside_is_what_the_memory_has() {
    let text = "[topology]\nkind = 'switch'\nhosts = 4\nnode = 2\n[[program]]\n\
                kind = 'produce'\nop = 'write-imm'\nsize = '4KiB'\niterations = 40\n\
                initiator = 'gpu'\nmemory = 'gpu'\npayload = 'data'\nfence = 'none'\n";
    for (lag, peer, stale) in [("20us", 1, true), ("20us", 2, true), ("0ns", 1, false)] {
        let set = [format!("settings.gpu.store_lag={lag}"), format!("program.0.peer={peer}")];
        let o = outcome(text, &[&set[0], &set[1]]);
        let (found, wrong) = (number(&o, "note.stale-payload"), number(&o, "data_errors"));
        assert_eq!((found > 0.0, wrong > 0.0), (stale, stale), "{lag}, to {peer}: {found} {wrong}");
    }
}

/// A datagram names its host anew each time, and takes the NIC's way also to a neighbour.
#[test]
fn datagrams_go_outside() {
    let sent = |ty: &str| {
        let o = outcome(INSIDE, &["program.0.op=send", &format!("qp.type={ty}")]);
        let served = |name: &str| o.resources.iter().find(|r| r.name == name).map(|r| r.served);
        (served("host0.port transmit") > Some(0), served("host0.link into the node") > Some(0))
    };
    assert_eq!(sent("RC"), (false, true));
    assert_eq!(sent("UC"), (false, true));
    assert_eq!(sent("UD"), (true, false));
}

/// Who talks to nobody inside has every figure as without nodes.
#[test]
fn nodes_cost_nothing_outside() {
    let text = |node: &str| {
        format!(
            "[topology]\nkind = 'switch'\nhosts = 4\n{node}[[program]]\nname = 'a'\n\
             kind = 'bandwidth'\nsize = '20KB'\niterations = 50\npeer = 2\n[[program]]\n\
             name = 'b'\nkind = 'message-rate'\nhost = 3\npeer = 1\niterations = 300\n"
        )
    };
    let (without, with) = (outcome(&text(""), &[]), outcome(&text("node = 2\n"), &[]));
    assert_eq!(without.metrics, with.metrics);
    assert_eq!((without.sim_time, without.events), (with.sim_time, with.events));
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
