use doorbell_core::units::{BitRate, Span};

use super::super::Outcome;
use super::super::simulate_tests::{number, outcome};
use super::{TRAFFIC, words_of};

/// Twenty WRITEs of one packet each over UC, which loses in silence and goes on.
const UC: &str = "[qp]\ntype = 'UC'\n[[program]]\nkind = 'bandwidth'\nop = 'write'\nsize = '4KiB'\n\
                  iterations = 20\n";

/// Preamble, Ethernet, IPv4, UDP, BTH, RETH, payload, ICRC, FCS, gap between frames.
const FRAME: f64 = (8 + 14 + 20 + 8 + 12 + 16 + 4096 + 4 + 4 + 12) as f64;

fn with_fault(keys: &str) -> Outcome {
    outcome(&format!("{UC}[[fault]]\nid = 'f'\nmaybe = true\n{keys}"), &[])
}

/// Of both ports, that of the sender first.
#[track_caller]
fn both(o: &Outcome, counter: &str) -> (f64, f64) {
    let of = |host: u32| number(o, &format!("host{host}.counter.{counter}"));
    let (a, b) = (of(0), of(1));
    assert_eq!(number(o, &format!("counter.{counter}")), a + b, "{counter}");
    (a, b)
}

const SIGNS: [&str; 5] = [
    "port_xmit_wait",
    "port_xmit_discards",
    "port_rcv_errors",
    "port_rcv_constraint_errors",
    "link_downed",
];

#[test]
fn traffic_is_counted_at_both_ends_and_nothing_else_moves() {
    let o = outcome(UC, &[]);
    for counter in ["port_xmit_packets", "unicast_xmit_packets"] {
        assert_eq!(both(&o, counter), (20.0, 0.0), "{counter}");
    }
    for counter in ["port_rcv_packets", "unicast_rcv_packets"] {
        assert_eq!(both(&o, counter), (0.0, 20.0), "{counter}");
    }
    let words = (20.0 * FRAME / 4.0).floor();
    assert_eq!(both(&o, "port_xmit_data"), (words, 0.0));
    assert_eq!(both(&o, "port_rcv_data"), (0.0, words));
    for counter in SIGNS {
        assert_eq!(both(&o, counter), (0.0, 0.0), "{counter}");
    }
    assert!(TRAFFIC.iter().all(|c| o.counters[*c] > 0), "{:?}", o.counters);
}

#[test]
fn what_a_link_that_is_down_takes_was_not_sent() {
    let o = with_fault("kind = 'link-down'\nlink = 'host0-host1'\nafter = '0ns'\nbefore = '1s'\n");
    assert_eq!(both(&o, "port_xmit_discards"), (20.0, 0.0));
    assert_eq!(both(&o, "port_xmit_packets"), (0.0, 0.0));
    assert_eq!(both(&o, "port_xmit_data"), (0.0, 0.0));
    assert_eq!(both(&o, "port_rcv_packets"), (0.0, 0.0));
    assert_eq!(both(&o, "link_downed"), (1.0, 1.0));
    // What is lost on a link that is up has been sent, and nobody's port tells.
    let o = with_fault("kind = 'drop'\nnth = 3\n");
    assert_eq!(number(&o, "counter.fault_drop"), 1.0);
    assert_eq!(both(&o, "port_xmit_packets"), (20.0, 0.0));
    assert_eq!(both(&o, "port_rcv_packets"), (0.0, 19.0));
    for counter in SIGNS {
        assert_eq!(both(&o, counter), (0.0, 0.0), "{counter}");
    }
}

#[test]
fn a_link_counts_each_time_that_it_goes_down() {
    let twice = "[[fault]]\nid = 'g'\nmaybe = true\nkind = 'link-down'\nlink = 'host0-host1'\n\
                 after = '102us'\nbefore = '103us'\n";
    let once = "kind = 'link-down'\nlink = 'host0-host1'\nafter = '100us'\nbefore = '101us'\n";
    let o = with_fault(&format!("{once}{twice}"));
    assert_eq!(both(&o, "link_downed"), (2.0, 2.0));
    assert_eq!(both(&with_fault(once), "link_downed"), (1.0, 1.0));
}

#[test]
fn packets_that_a_port_cannot_take_are_errors_of_the_receiver() {
    let o = with_fault("kind = 'corrupt'\nclass = 'write'\nbudget = 3\n");
    assert_eq!(both(&o, "rx_icrc_encapsulated"), (0.0, 3.0));
    assert_eq!(both(&o, "port_rcv_errors"), (0.0, 3.0));
    assert_eq!(both(&o, "port_rcv_packets"), (0.0, 20.0));
    // Too long for the link.
    let o = outcome(UC, &["topology.mtu=1500B"]);
    assert_eq!(number(&o, "counter.oversize"), 20.0);
    assert_eq!(both(&o, "port_rcv_errors"), (0.0, 20.0));
    assert_eq!(both(&o, "port_xmit_discards"), (0.0, 0.0));
}

#[test]
fn another_partition_is_a_constraint_of_the_receiver() {
    let pkeys = |key: &str| format!("topology.pkeys=['{key}']");
    for (key, refused) in [("0x7fff", 20.0), ("0xffff", 0.0)] {
        let o = outcome(UC, &[&pkeys(key)]);
        assert_eq!(both(&o, "bad_pkey_cntr"), (0.0, refused), "{key}");
        assert_eq!(both(&o, "port_rcv_constraint_errors"), (0.0, refused), "{key}");
    }
}

/// A host pauses for 1 ms; the switch in front of it fills, and then pauses the sender.
#[test]
fn a_paused_port_counts_the_words_that_it_could_have_sent() {
    let text = "host = 'ideal'\n[qp]\ntimeout = 0\n[topology]\nkind = 'switch'\nhosts = 2\n\
                rate = '100Gbps'\nswitch = 'pfc'\n[switch]\nbuffer = '1MB'\n\
                [[program]]\nkind = 'bandwidth'\nop = 'write'\nsize = '64KiB'\niterations = 60\n\
                [[fault]]\nid = 'storm'\nkind = 'pause-storm'\nhost = 1\nbefore = '1ms'\n";
    let o = outcome(text, &[]);
    let starved = number(&o, "port.host0.port0.starved") / 1e6;
    let waited = number(&o, "host0.counter.port_xmit_wait");
    // 3,125 words of four bytes in a microsecond of 100 Gb/s.
    assert!((500.0..1000.0).contains(&starved), "{starved} us");
    assert_eq!(waited, (starved * 3125.0).floor());
    assert_eq!(number(&o, "host1.counter.port_xmit_wait"), 0.0);
}

#[test]
fn words_of_a_time_are_rounded_down_and_do_not_overflow() {
    let words = |gbps, ps| words_of(BitRate::gbps(gbps), Span::from_ps(ps));
    assert_eq!([319, 320, 639, 640].map(|ps| words(100, ps)), [0, 1, 1, 2]);
    assert_eq!(words(100, 1_000_000), 3125);
    assert_eq!(words(800, u64::MAX), 461_168_601_842_738_790);
}

/// The page says of every counter what it is.
#[test]
fn every_counter_stands_in_the_docs() {
    let page = include_str!("../../../docs/counters.md");
    let o = outcome(UC, &[]);
    let queue_pairs = doorbell_sim::rc::HwCounters::default();
    let names = queue_pairs.iter().map(|(name, _)| name).chain(TRAFFIC).chain(SIGNS);
    for name in names {
        assert!(page.contains(&format!("`{name}`")), "{name} is not in docs/counters.md");
        assert!(o.find(&format!("host0.counter.{name}")).is_some(), "{name} cannot be expected");
    }
}
