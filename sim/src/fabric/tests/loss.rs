//! Tail drop, what never drops, and who loses.

use doorbell_core::units::{BitRate, Span, Time};

use super::harness::{AMPLE, Flow, Net, run, star};
use crate::fabric::*;
use crate::wire::PortId;

fn link() -> Link {
    Link::new(BitRate::gbps(100), Span::from_ns(1_000))
}

fn tail_drop(hosts: u32, port_bytes: u64, max_packet_bytes: u32) -> FabricConfig {
    let buffering = Buffering::TailDrop { port_bytes };
    let mut c = star(hosts, link(), Forwarding::CutThrough, buffering);
    c.max_packet_bytes = max_packet_bytes;
    c
}

/// Three packets at one instant: one is being sent, two wait, and all three are in the queue.
#[test]
fn tail_drop_at_the_exact_byte() {
    let flows: Vec<_> = (1..=3).map(|s| Flow::new(s, 0, 1, 1_000)).collect();
    for (limit, lost) in [(3_000, 0), (2_999, 1), (2_000, 1), (1_999, 2), (1_000, 2)] {
        let net = run(&tail_drop(4, limit, 1_000), 1, &flows);
        let b = net.fabric.balance().expect("balanced");
        assert_eq!(b.dropped.of(DropCause::TailDrop).packets, lost, "limit {limit}");
        assert_eq!(b.dropped.of(DropCause::TailDrop).bytes, lost * 1_000);
        assert_eq!(b.dropped.of(DropCause::NoRoute), Tally::default());
        let port = net.fabric.switches()[0].egress(PortId(0)).counters(Time::MAX);
        assert_eq!(port.dropped.total().packets, lost, "counted at the port that was full");
        assert_eq!(port.max_queue_bytes, 3_000 - lost * 1_000);
    }
}

/// The packet on the wire holds its bytes until its last bit has left, and not longer.
#[test]
fn room_comes_back_with_the_last_bit() {
    let first = Flow::new(1, 0, 1, 1_000);
    let t = Span::from_ps(1_000 * 80);
    for (delay, lost) in [(t.saturating_sub(Span::from_ps(1)), 1), (t, 0)] {
        let late = Flow { start: Time::ZERO + delay, ..Flow::new(2, 0, 1, 1_000) };
        let net = run(&tail_drop(3, 1_000, 1_000), 1, &[first, late]);
        assert_eq!(net.losses(1), lost, "{delay} later");
    }
}

/// A short packet fits where a long one does not.
#[test]
fn a_dropped_packet_leaves_the_queue_as_it_was() {
    let flows = [
        Flow::new(1, 0, 1, 4_000),
        Flow { start: Time::from_ps(1), ..Flow::new(2, 0, 1, 4_000) },
        Flow { start: Time::from_ps(2), ..Flow::new(3, 0, 1, 64) },
    ];
    let net = run(&tail_drop(4, 4_064, 4_000), 1, &flows);
    assert_eq!((net.losses(0), net.losses(1), net.losses(2)), (0, 1, 0));
}

#[test]
fn a_port_that_no_host_has_is_a_named_drop() {
    for buffering in [AMPLE, Buffering::Lossless { port_bytes: 8_000 }] {
        let c = star(2, link(), Forwarding::CutThrough, buffering);
        let mut net = Net::new(&c, 1, &[Flow::new(0, 1, 0, 4_000)]);
        for seq in 0..6 {
            net.send(0, seq, PortId(1)).expect("no limit");
        }
        net.run();
        let b = net.fabric.balance().expect("balanced");
        assert_eq!(b.dropped.of(DropCause::NoRoute), Tally { packets: 6, bytes: 24_000 });
    }
}

#[test]
fn lossless_never_drops_in_any_seed() {
    for seed in 0..40 {
        let port_bytes = 4_224 + seed * 1_000;
        let mut c = star(9, link(), Forwarding::CutThrough, Buffering::Lossless { port_bytes });
        c.noise = Noise::OnePacket;
        let flows: Vec<_> = (1..=8).map(|s| Flow::new(s, 0, 60, 64 + 500 * s)).collect();
        let net = run(&c, seed, &flows);
        assert_eq!(net.ends.len(), 8 * 60);
        assert!(net.ends.iter().all(|e| e.lost.is_none()), "seed {seed}");
        net.assert_fifo();
    }
}

/// P9 of the benchmarks, without a transport: 32 MiB in packets of 4096 bytes from each of two
/// senders into a buffer of 5.2 MB (C-INC-001).
fn loss_share(seed: u64, delay: Span, longer: Span) -> usize {
    let packets = (32 << 20) / 4096;
    let mut c = tail_drop(3, 5_200_000, 4_178);
    c.noise = Noise::OnePacket;
    c.links[2].link.propagation += longer;
    let second = Flow { start: Time::ZERO + delay, ..Flow::new(2, 0, packets, 4_178) };
    let net = run(&c, seed, &[Flow::new(1, 0, packets, 4_178), second]);
    let (a, b) = (net.losses(0), net.losses(1));
    assert!(a + b > 6_000, "half of what does not fit the buffer is lost: {a} + {b}");
    a * 100 / (a + b)
}

#[test]
fn two_equal_senders_share_their_losses() {
    let metre = Span::from_ns(5);
    let variants = [
        (Span::ZERO, Span::ZERO),
        (Span::from_ns(1), Span::ZERO),
        (Span::from_ns(40), Span::ZERO),
        (Span::ZERO, metre),
    ];
    for (delay, longer) in variants {
        for seed in 0..20 {
            let share = loss_share(seed, delay, longer);
            assert!((40..=60).contains(&share), "{share} %: seed {seed}, {delay}, {longer}");
        }
    }
}

/// Why noise is there: in lockstep, the second sender loses everything that is lost.
#[test]
fn without_noise_the_later_sender_loses_all() {
    let packets = 4_000;
    let c = tail_drop(3, 100_000, 4_178);
    let late = Flow { start: Time::from_ps(1_000), ..Flow::new(2, 0, packets, 4_178) };
    let net = run(&c, 1, &[Flow::new(1, 0, packets, 4_178), late]);
    let (a, b) = (net.losses(0), net.losses(1));
    assert!(b > 3_900 || a > 3_900, "{a} and {b}");
}
