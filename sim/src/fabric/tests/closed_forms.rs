//! Times that can be computed by hand, to the picosecond, with noise off.

use doorbell_core::units::{BitRate, Span, Time};

use super::harness::{AMPLE, Flow, Net, rates, run, star};
use crate::fabric::*;
use crate::wire::PortId;

const PORT: PortId = PortId(0);
const METRE: u32 = 1_000;

fn after(s: Span) -> Time {
    Time::ZERO + s
}

#[test]
fn one_packet_back_to_back() {
    for rate in rates() {
        let link = Link::with_length_mm(rate, 3 * METRE);
        let net = run(&FabricConfig::back_to_back(link), 1, &[Flow::new(0, 1, 1, 1082)]);
        assert_eq!(net.arrivals(0), [after(rate.time_for(1082) + Span::from_ns(15))]);
        assert_eq!(net.fabric_events, 1, "one event per hop");
    }
}

#[test]
fn one_packet_through_a_switch() {
    for rate in rates() {
        let link = Link::with_length_mm(rate, 10 * METRE);
        let path = Span::from_ns(2 * 50 + 130);
        for (forwarding, times) in [(Forwarding::CutThrough, 1), (Forwarding::StoreAndForward, 2)] {
            let net = run(&star(2, link, forwarding, AMPLE), 1, &[Flow::new(0, 1, 1, 4178)]);
            // Each port carries a remainder of its own, so both serialisations round up.
            assert_eq!(net.arrivals(0), [after(rate.time_for(4178) * times + path)]);
            assert_eq!(net.fabric_events, 2, "one event per hop");
        }
    }
}

#[test]
fn a_train_takes_its_exact_time() {
    for rate in rates() {
        let link = Link::with_length_mm(rate, 10 * METRE);
        for n in [2, 3, 1000] {
            let flow = Flow::new(0, 1, n, 1057);
            let cut = run(&star(2, link, Forwarding::CutThrough, AMPLE), 1, &[flow]);
            let all = rate.time_for(u64::from(n) * 1057);
            let path = Span::from_ns(2 * 50 + 130);
            let late = cut.last_arrival().since(after(all + path));
            // The switch port carries a remainder of its own, so it may end 1 ps later.
            assert!(cut.last_arrival() >= after(all + path) && late <= Span::from_ps(1));
            cut.assert_fifo();
            let back = run(&FabricConfig::back_to_back(link), 1, &[flow]);
            assert_eq!(back.last_arrival(), after(all + Span::from_ns(50)));
            let busy = back.fabric.hosts()[0].egress(PORT).counters(Time::MAX).busy;
            assert_eq!(busy, all, "busy from the first bit to the last");
        }
    }
}

#[test]
fn both_directions_carry_the_full_rate() {
    let link = Link::with_length_mm(BitRate::gbps(100), 10 * METRE);
    let flows = [Flow::new(0, 1, 100, 1082), Flow::new(1, 0, 100, 1082)];
    let net = run(&star(2, link, Forwarding::CutThrough, AMPLE), 1, &flows);
    let want = after(Span::from_ps(100 * 1082 * 80) + Span::from_ns(230));
    assert_eq!(net.arrivals(0).last(), Some(&want));
    assert_eq!(net.arrivals(1).last(), Some(&want));
}

/// Host 0 at 25 Gb/s and host 1 at 100 Gb/s at one cut-through switch.
fn mixed() -> FabricConfig {
    let slow = Link::new(BitRate::gbps(25), Span::from_ns(50));
    let mut c = star(2, slow, Forwarding::CutThrough, AMPLE);
    c.links[1].link.rate = BitRate::gbps(100);
    c
}

#[test]
fn cut_through_stores_from_slow_to_fast_only() {
    let slow_to_fast = run(&mixed(), 1, &[Flow::new(0, 1, 1, 1000)]);
    let path = Span::from_ns(230);
    let both = Span::from_ps(1000 * 320 + 1000 * 80);
    assert_eq!(slow_to_fast.arrivals(0), [after(both + path)]);
    assert_eq!(slow_to_fast.fabric_events, 3, "storing costs an event");
    let fast_to_slow = run(&mixed(), 1, &[Flow::new(1, 0, 1, 1000)]);
    assert_eq!(fast_to_slow.arrivals(0), [after(Span::from_ps(1000 * 320) + path)]);
}

#[test]
fn storing_keeps_the_order_of_long_and_short_packets_under_noise() {
    let mut c = mixed();
    c.noise = Noise::UpTo(Span::from_us(5));
    for seed in 0..50 {
        let mut net = Net::new(&c, seed, &[Flow::new(0, 1, 0, 4000), Flow::new(0, 1, 0, 64)]);
        for seq in 0..40 {
            net.send(seq % 2, seq, PORT).expect("no limit");
        }
        net.run();
        let order: Vec<_> = net.ends.iter().map(|e| e.seq).collect();
        assert!(order.is_sorted(), "seed {seed}: {order:?}");
    }
}

#[test]
fn two_hops_of_switches_add_up() {
    let link = Link::new(BitRate::gbps(100), Span::from_ns(1_000));
    let mut c = star(1, link, Forwarding::StoreAndForward, AMPLE);
    c.hosts.push(HostConfig::default());
    c.switches.push(c.switches[0]);
    let (a, b) = (End::Switch(0), End::Switch(1));
    c.links.push(LinkConfig { a, b, link });
    c.links.push(LinkConfig { a: End::Host(1), b, link });
    let net = run(&c, 1, &[Flow::new(0, 1, 10, 1064)]);
    let t = Span::from_ps(1064 * 80);
    assert_eq!(net.last_arrival(), after(t * 12 + Span::from_ns(3 * 1_000 + 2 * 130)));
}

/// N:1 on one switch, lossless: the receiver's link never idles once the first packet is there.
#[test]
fn incast_ends_at_n_packets_t_plus_path() {
    let link = Link::new(BitRate::gbps(100), Span::from_ns(1_000));
    for (senders, packets, wire) in [(2, 500, 1064), (8, 300, 1038), (32, 125, 4178)] {
        for port_bytes in [4_224 * 24, 1 << 20] {
            let buffering = Buffering::Lossless { port_bytes };
            for (forwarding, stores) in
                [(Forwarding::CutThrough, 0), (Forwarding::StoreAndForward, 1)]
            {
                let c = star(senders + 1, link, forwarding, buffering);
                let flows: Vec<_> = (1..=senders).map(|s| Flow::new(s, 0, packets, wire)).collect();
                let net = run(&c, 7, &flows);
                let t = Span::from_ps(u64::from(wire) * 80);
                let n = u64::from(senders * packets) + stores;
                let path = Span::from_ns(2 * 1_000 + 130);
                assert_eq!(net.last_arrival(), after(t * n + path));
                assert_eq!(net.ends.len() as u32, senders * packets);
                net.assert_fifo();
            }
        }
    }
}

#[test]
fn incast_at_a_rate_without_whole_picoseconds_carries_the_remainder() {
    let rate = BitRate::new(54_500_000_000).expect("not zero");
    let link = Link::new(rate, Span::from_ns(100));
    let c = star(5, link, Forwarding::CutThrough, Buffering::Lossless { port_bytes: 1 << 20 });
    let flows: Vec<_> = (1..=4).map(|s| Flow::new(s, 0, 999, 1057)).collect();
    let net = run(&c, 3, &flows);
    let all = rate.time_for(4 * 999 * 1057);
    assert_eq!(net.last_arrival(), after(all + Span::from_ns(330)));
}

#[test]
fn events_per_packet_and_hop_stay_within_three() {
    let link = Link::new(BitRate::gbps(100), Span::from_ns(1_000));
    let flows: Vec<_> = (1..=8).map(|s| Flow::new(s, 0, 200, 1064)).collect();
    let hops = 8 * 200 * 2;
    let lossy = run(&star(9, link, Forwarding::CutThrough, AMPLE), 1, &flows);
    assert!(lossy.fabric_events <= 2 * hops, "{} events", lossy.fabric_events);
    let buffering = Buffering::Lossless { port_bytes: 65_536 };
    let lossless = run(&star(9, link, Forwarding::CutThrough, buffering), 1, &flows);
    assert!(lossless.fabric_events <= 3 * hops, "{} events", lossless.fabric_events);
}
