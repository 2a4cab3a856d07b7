//! Which of several ways packets take.

use doorbell_core::units::{BitRate, Span, Time};
use doorbell_core::verbs::{FlowLabel, Qpn};

use super::harness::{AMPLE, Flow, Net, run};
use crate::fabric::*;
use crate::wire::{HostId, PortId, udp_source_port};

const PER_SWITCH: Routing = Routing::Ecmp(HashSeed::PerSwitch);
const SAME: Routing = Routing::Ecmp(HashSeed::Same);

const SWITCH: SwitchConfig =
    SwitchConfig { forwarding: Forwarding::CutThrough, transit: Span::ZERO, buffering: AMPLE };

fn link() -> Link {
    Link::new(BitRate::gbps(100), Span::from_ns(500))
}

/// Two leaves of `hosts` hosts each.
fn leaf_spine(hosts_per_leaf: u32, spines: u32, routing: Routing) -> FabricConfig {
    let (host_link, spine_link, switch) = (link(), link(), SWITCH);
    let shape = LeafSpine {
        leaves: 2,
        hosts_per_leaf,
        spines,
        links_per_pair: 1,
        host_link,
        spine_link,
        switch,
    };
    let c = shape.config().expect("whole numbers");
    FabricConfig { noise: Noise::Off, routing, ..c }
}

fn fat_tree(k: u32, routing: Routing) -> FabricConfig {
    let shape = FatTree { k, host_link: link(), switch_link: link(), switch: SWITCH };
    FabricConfig { noise: Noise::Off, routing, ..shape.config().expect("even") }
}

/// A connection between two QPs, with the source port that its numbers give it.
fn flow(src: u32, dst: u32, qp: u32, packets: u32) -> Flow {
    let (from, to) = (Qpn::new(qp).value(), Qpn::new(16 + qp % 977).value());
    let udp_source_port = udp_source_port(FlowLabel::ZERO, from, to);
    // One after another, so that queues say nothing about the choice.
    let start = Time::from_ps(u64::from(qp) * 1_000_000);
    Flow { start, udp_source_port, ..Flow::new(src, dst, packets, 1_082) }
}

/// Packets that came into switch `s`.
fn into(net: &Net, s: usize) -> u64 {
    let switch = &net.fabric.switches()[s];
    (0..switch.ports() as u16).map(|p| switch.ingress(PortId(p)).received().packets).sum()
}

/// `n` flows over `bins` ways: each way gets n / bins, within five standard deviations of the
/// binomial distribution.
#[test]
fn ecmp_spreads_flows_as_chance_would() {
    let (n, bins) = (4_000u32, 8u32);
    let deviation = f64::from(n) * 7.0 / 64.0;
    for routing in [PER_SWITCH, SAME] {
        for seed in 1..=5 {
            let c = leaf_spine(1, bins, routing);
            let flows: Vec<_> = (0..n).map(|qp| flow(0, 1, 17 + qp, 1)).collect();
            let net = run(&c, seed, &flows);
            let counts: Vec<u64> = (0..bins as usize).map(|s| into(&net, 2 + s)).collect();
            assert_eq!(counts.iter().sum::<u64>(), u64::from(n));
            for count in &counts {
                let off = (*count as f64 - f64::from(n / bins)).abs();
                assert!(off <= 5.0 * deviation.sqrt(), "{routing:?}, seed {seed}: {counts:?}");
            }
        }
    }
}

#[test]
fn a_flow_keeps_to_one_way_and_both_directions_choose_for_themselves() {
    let mut differ = 0;
    for qp in 17..117 {
        let there = flow(0, 1, qp, 20);
        let back = Flow { src: 1, dst: 0, ..there };
        let ways = [there, back].map(|f| {
            let net = run(&leaf_spine(1, 4, PER_SWITCH), 3, &[f]);
            net.assert_fifo();
            let used: Vec<usize> = (0..4).filter(|s| into(&net, 2 + s) > 0).collect();
            assert_eq!(used.len(), 1, "one way for all packets");
            used[0]
        });
        differ += u32::from(ways[0] != ways[1]);
    }
    // Three of four on average; 100 draws, five standard deviations.
    assert!((53..=97).contains(&differ), "{differ} of 100 answers take another way");
}

#[test]
fn the_choice_depends_on_the_seed_only_where_it_should() {
    let ways = |routing, seed| -> Vec<u64> {
        let flows: Vec<_> = (0..64).map(|qp| flow(0, 1, 17 + qp, 1)).collect();
        let net = run(&leaf_spine(1, 8, routing), seed, &flows);
        (0..8).map(|s| into(&net, 2 + s)).collect()
    };
    assert_eq!(ways(PER_SWITCH, 1), ways(PER_SWITCH, 1));
    assert_ne!(ways(PER_SWITCH, 1), ways(PER_SWITCH, 2));
    assert_eq!(ways(SAME, 1), ways(SAME, 2));
    assert_eq!(ways(Routing::Destination, 1), [0, 64, 0, 0, 0, 0, 0, 0], "host 1 of 8 ways");
}

/// Flows of the first pod to the last. Without seeds of their own an aggregation switch gets those
/// flows whose hash is in its share, and sends all of them to the core of that same share.
#[test]
fn switches_that_hash_alike_leave_most_cores_idle() {
    let k = 8;
    let cores = |routing| {
        let flows: Vec<_> = (0..2_000).map(|i| flow(i % 16, 112 + i / 7 % 16, 17 + i, 1)).collect();
        let net = run(&fat_tree(k, routing), 1, &flows);
        (64..80).filter(|core| into(&net, *core) > 0).count()
    };
    assert_eq!(cores(PER_SWITCH), 16);
    assert_eq!(cores(SAME), 4, "one core per aggregation switch");
}

/// Two senders, two spines: nobody waits. By hash, half of all pairs of flows meet.
#[test]
fn adaptive_routing_shares_the_spines_whatever_the_hash() {
    let alone = run(&leaf_spine(2, 2, PER_SWITCH), 1, &[Flow::new(0, 2, 400, 1_082)]);
    let alone = alone.last_arrival().as_ps();
    let mut met = 0;
    for seed in 1..=40 {
        let flows = [Flow::new(0, 2, 400, 1_082), Flow::new(1, 3, 400, 1_082)];
        let spread = run(&leaf_spine(2, 2, Routing::Adaptive), seed, &flows);
        let last = spread.last_arrival().as_ps();
        assert!(last <= alone + 2 * 86_560, "seed {seed}: {last} against {alone}");
        let by_hash = run(&leaf_spine(2, 2, PER_SWITCH), seed, &flows);
        let doubled = by_hash.last_arrival().as_ps() > alone * 3 / 2;
        met += u32::from(doubled);
    }
    // One half of 40, five standard deviations of 3.2.
    assert!((5..=35).contains(&met), "{met} of 40 seeds");
}

/// A lone flow meets an empty network at every packet: the hash of its PSN sends it both ways.
/// A queue on one of them is what overtakes.
#[test]
fn adaptive_routing_reorders_a_flow() {
    let mut c = leaf_spine(2, 2, Routing::Adaptive);
    // The second spine is far away.
    for l in c.links.iter_mut().filter(|l| l.b == End::Switch(3)) {
        l.link.propagation = Span::from_us(3);
    }
    let net = run(&c, 1, &[Flow::new(0, 2, 200, 1_082)]);
    let order: Vec<u32> = net.ends.iter().map(|e| e.seq).collect();
    assert!(!order.is_sorted(), "packets overtake each other");
    assert!((60..=140).contains(&into(&net, 2)), "both ways are used");
    c.routing = PER_SWITCH;
    run(&c, 1, &[Flow::new(0, 2, 200, 1_082)]).assert_fifo();
}

#[test]
fn adaptive_routing_avoids_the_longer_queue() {
    let c = leaf_spine(3, 2, Routing::Adaptive);
    // Three senders of one leaf offer three links' worth to two: both queues grow alike.
    let flows = [0, 1, 2].map(|h| Flow::new(h, 3 + h, 300, 1_082));
    let net = run(&c, 7, &flows);
    let leaf = &net.fabric.switches()[0];
    let most = [3, 4].map(|p| {
        let now = net.engine.now();
        leaf.egress(PortId(p)).counters(now).max_queue_bytes
    });
    assert!(most[0].abs_diff(most[1]) <= 1_082, "{most:?}");
    assert_eq!([3, 4].map(|p| leaf.egress(PortId(p)).sent().packets), [450, 450]);
}

/// Static routes are walked on every way that hashing may choose, not on one of them.
#[test]
fn a_static_route_that_loops_for_some_flows_is_refused() {
    let (host, host_port) = (HostId(2), PortId(0));
    let mut c = leaf_spine(2, 2, Routing::Destination);
    // Host 2 takes spine 2; spine 3 would send back to leaf 0.
    c.routes.push(StaticRoute { switch: 3, host, host_port, out: PortId(0) });
    assert!(Fabric::new(&c, 1).is_ok());
    c.routing = PER_SWITCH;
    let missed = ConfigError::RouteMisses { switch: 0, host, host_port };
    assert_eq!(Fabric::new(&c, 1).expect_err("a loop"), missed);
    // With leaf 0 pinned to spine 2 nothing goes that way.
    c.routes.push(StaticRoute { switch: 0, host, host_port, out: PortId(2) });
    assert!(Fabric::new(&c, 1).is_ok());
}
