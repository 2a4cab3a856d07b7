//! Packets that are larger than a link takes.

use doorbell_core::units::{BitRate, Span};

use super::harness::{AMPLE, Flow, Net, run, star};
use crate::fabric::*;
use crate::wire::NodeId;

const LIMIT: u32 = 1_538;

fn link() -> Link {
    Link::new(BitRate::gbps(100), Span::from_ns(500))
}

/// Both sides of the limit: what fits arrives, a byte more is dropped at `node`.
fn first_hop(c: &FabricConfig, node: u32) -> Net {
    let last = c.hosts.len() as u32 - 1;
    let net = run(c, 1, &[Flow::new(0, last, 3, LIMIT)]);
    assert_eq!(net.arrivals(0).len(), 3);
    let net = run(c, 1, &[Flow::new(0, last, 3, LIMIT + 1)]);
    assert_eq!(net.fabric.dropped().of(DropCause::Oversize).packets, 3);
    assert!(net.ends.iter().all(|e| e.lost == Some(DropCause::Oversize)));
    let hosts = net.fabric.hosts().len();
    if let Some(switch) = (node as usize).checked_sub(hosts) {
        let there = net.fabric.switches()[switch].dropped();
        assert_eq!(there.of(DropCause::Oversize).packets, 3, "at switch {switch}");
    }
    net
}

#[test]
fn a_switch_drops_what_its_input_does_not_take() {
    for buffering in [AMPLE, Buffering::Lossless { port_bytes: 5_000 }] {
        let mut c = star(2, link(), Forwarding::CutThrough, buffering);
        c.links[0].link = link().up_to(LIMIT);
        first_hop(&c, 2);
    }
}

#[test]
fn a_switch_drops_what_its_output_does_not_take() {
    for forwarding in [Forwarding::CutThrough, Forwarding::StoreAndForward] {
        let mut c = star(2, link(), forwarding, Buffering::Lossless { port_bytes: 5_000 });
        c.links[1].link = link().up_to(LIMIT);
        let net = first_hop(&c, 2);
        assert_eq!(net.fabric.switches()[0].egress(crate::wire::PortId(1)).sent().packets, 0);
    }
}

#[test]
fn a_host_drops_what_its_cable_does_not_take() {
    for held in [false, true] {
        let mut c = FabricConfig::back_to_back(link().up_to(LIMIT));
        c.hosts[1].receive = ReceiveBuffer::Lossless { bytes: 4_224, held };
        let net = run(&c, 1, &[Flow::new(0, 1, 9, LIMIT + 1)]);
        assert_eq!(net.fabric.dropped().of(DropCause::Oversize).packets, 9, "room came back");
        assert_eq!(net.fabric.hosts()[1].id(), NodeId(1));
    }
    first_hop(&FabricConfig::back_to_back(link().up_to(LIMIT)), 1);
}
