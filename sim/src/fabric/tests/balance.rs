//! The balance notices what does not add up.

use doorbell_core::units::{BitRate, Span};

use super::harness::{AMPLE, Flow, Net, star};
use crate::fabric::*;

const ONE: Tally = Tally { packets: 1, bytes: 1_000 };

/// Ten packets from two senders, stopped with packets in queues and on links.
fn midway() -> Net {
    let link = Link::new(BitRate::gbps(100), Span::from_ns(1_000));
    let c = star(3, link, Forwarding::CutThrough, AMPLE);
    let mut net = Net::new(&c, 1, &[Flow::new(1, 0, 10, 1_000), Flow::new(2, 0, 10, 1_000)]);
    for _ in 0..30 {
        assert!(net.step());
    }
    net
}

#[test]
fn every_packet_is_somewhere() {
    let b = midway().fabric.balance().expect("balanced");
    assert_eq!(b.sent, Tally { packets: 20, bytes: 20_000 });
    assert!(b.queued.packets > 0 && b.on_links.packets > 0, "{b:?}");
    assert_eq!(b.sent, b.delivered.plus(b.in_flight()));
}

#[test]
fn a_packet_from_nowhere_is_noticed() {
    let mut f = midway().fabric;
    f.hosts[1].sent = f.hosts[1].sent.plus(ONE);
    let e = f.balance().expect_err("one packet too many");
    assert!(matches!(e, Imbalance::Node { node, .. } if node == f.hosts[1].id));
}

#[test]
fn a_packet_that_vanishes_in_a_switch_is_noticed() {
    let mut f = midway().fabric;
    f.switches[0].storing = f.switches[0].storing.plus(ONE);
    let e = f.balance().expect_err("one packet too many");
    assert!(matches!(e, Imbalance::Node { node, .. } if node == f.switches[0].id));
    assert!(!e.to_string().is_empty());
}

#[test]
fn a_delivery_that_never_arrived_is_noticed() {
    let mut f = midway().fabric;
    f.hosts[0].delivered.add(1_000);
    assert!(matches!(f.balance(), Err(Imbalance::Node { .. })));
}

#[test]
fn an_arrival_that_was_never_sent_is_noticed() {
    let mut f = midway().fabric;
    for _ in 0..100 {
        f.switches[0].ports[1].ingress.received.add(1_000);
    }
    let e = f.balance().expect_err("more came than was sent");
    assert!(matches!(e, Imbalance::Link { node, .. } if node == f.hosts[1].id));
}
