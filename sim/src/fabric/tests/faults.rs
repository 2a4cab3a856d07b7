//! Packets that are lost or doubled on links: the balance and the credits hold all the same.

use doorbell_core::units::{BitRate, Span};

use super::harness::{Flow, Meddle, Net, star};
use crate::fabric::*;
use crate::wire::{HostId, PortId};

const BYTES: u32 = 1_000;

/// Three hosts send to the fourth; every `n`-th packet that arrives anywhere is meddled with.
fn run(buffering: Buffering, n: u64, what: Meddle) -> Net {
    let link = Link::new(BitRate::gbps(100), Span::from_ns(300));
    let c = star(4, link, Forwarding::CutThrough, buffering);
    let flows: Vec<Flow> = (0..3).map(|src| Flow::new(src, 3, 40, BYTES)).collect();
    let mut net = Net::new(&c, 1, &flows);
    let mut seen = 0;
    // A copy arrives too and may be copied: that ends, since only every n-th is.
    let mut meddle = |_| {
        seen += 1;
        if seen % n == 0 { what } else { Meddle::Pass }
    };
    for _ in 0..10_000 {
        if !net.step_with(&mut meddle) {
            break;
        }
        net.fabric.balance().expect("balanced at every instant");
    }
    assert_eq!(net.engine.pending(), 0, "it ends");
    assert!(net.packets.is_empty());
    net
}

const BUFFERS: [Buffering; 3] = [
    Buffering::TailDrop { port_bytes: 1 << 30 },
    Buffering::Lossless { port_bytes: 5_000 },
    Buffering::Lossless { port_bytes: 1 << 20 },
];

/// All credit that was spent has come back.
fn assert_credits(net: &Net, buffering: Buffering) {
    let Buffering::Lossless { port_bytes } = buffering else { return };
    for h in 0..4 {
        let port = net.fabric.tx_port(HostId(h), PortId(0));
        assert_eq!(port.credits(Time::MAX), Some(port_bytes), "host {h}");
    }
}

#[test]
fn what_is_lost_on_a_link_is_named() {
    for cause in [DropCause::Fault, DropCause::LinkDown, DropCause::PeerDead] {
        for buffering in BUFFERS {
            let net = run(buffering, 7, Meddle::Lose(cause));
            let b = net.fabric.balance().unwrap();
            assert!(b.dropped.of(cause).packets > 20, "{b:?}");
            assert_eq!(b.dropped.total(), b.dropped.of(cause));
            assert_eq!(b.sent, b.delivered.plus(b.dropped.total()));
            assert_eq!(b.in_flight(), Tally::default());
            assert_credits(&net, buffering);
        }
    }
}

#[test]
fn copies_are_counted_and_take_no_credit() {
    for buffering in BUFFERS {
        let net = run(buffering, 5, Meddle::Copy);
        let b = net.fabric.balance().unwrap();
        assert!(b.copied.packets > 20, "{b:?}");
        assert_eq!(b.sent.plus(b.copied), b.delivered);
        assert_eq!(b.in_flight(), Tally::default());
        assert_credits(&net, buffering);
    }
}

#[test]
fn an_unmeddled_run_has_neither() {
    let net = run(BUFFERS[1], 1, Meddle::Pass);
    let b = net.fabric.balance().unwrap();
    assert_eq!((b.copied, b.dropped.total()), (Tally::default(), Tally::default()));
}
