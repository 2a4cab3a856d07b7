//! Random networks: every way is a shortest one, so none is a loop.

use doorbell_core::units::{BitRate, Span};
use proptest::prelude::*;

use super::harness::{AMPLE, Flow, run};
use super::shapes::ways;
use crate::fabric::*;

/// A tree of switches with more links across it, some of them twice, and hosts anywhere.
fn graph() -> impl Strategy<Value = FabricConfig> {
    let extra = prop::collection::vec((0u32..12, 0u32..12), 0..14);
    let hosts = prop::collection::vec(0u32..12, 2..7);
    (1u32..12, prop::collection::vec(any::<u32>(), 12), extra, hosts).prop_map(
        |(switches, parents, extra, at)| {
            let link = Link::new(BitRate::gbps(100), Span::from_ns(100));
            let join = |a, b| LinkConfig { a, b: End::Switch(b), link };
            let host = |(h, s): (usize, &u32)| join(End::Host(h as u32), s % switches);
            let mut links: Vec<_> = at.iter().enumerate().map(host).collect();
            links.extend((1..switches).map(|s| join(End::Switch(s), parents[s as usize] % s)));
            let across = extra.iter().map(|(a, b)| (a % switches, b % switches));
            links.extend(across.filter(|(a, b)| a != b).map(|(a, b)| join(End::Switch(a), b)));
            let switch = SwitchConfig {
                forwarding: Forwarding::StoreAndForward,
                transit: Span::ZERO,
                buffering: AMPLE,
            };
            let c = FabricConfig::of(at.len() as u32, vec![switch; switches as usize], links);
            FabricConfig { noise: Noise::Off, ..c }
        },
    )
}

/// Links between all pairs of switches, by trying every switch in between.
fn shortest(c: &FabricConfig) -> Vec<Vec<usize>> {
    let n = c.switches.len();
    let mut d = vec![vec![usize::MAX / 4; n]; n];
    for l in &c.links {
        if let (End::Switch(a), End::Switch(b)) = (l.a, l.b) {
            d[a as usize][b as usize] = 1;
            d[b as usize][a as usize] = 1;
        }
    }
    for (s, row) in d.iter_mut().enumerate() {
        row[s] = 0;
    }
    for via in 0..n {
        for a in 0..n {
            for b in 0..n {
                d[a][b] = d[a][b].min(d[a][via] + d[via][b]);
            }
        }
    }
    d
}

fn switch_of(c: &FabricConfig, host: u32) -> usize {
    match c.links.iter().find(|l| l.a == End::Host(host)).map(|l| l.b) {
        Some(End::Switch(s)) => s as usize,
        other => panic!("host {host} is at {other:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn every_way_is_a_shortest_one(c in graph()) {
        let f = Fabric::new(&c, 1).expect("a connected network");
        let d = shortest(&c);
        for src in 0..c.hosts.len() as u32 {
            for dst in (0..c.hosts.len() as u32).filter(|d| *d != src) {
                let (lengths, count) = ways(&f, src, dst);
                prop_assert!(count >= 1);
                let links = d[switch_of(&c, src)][switch_of(&c, dst)] + 2;
                prop_assert_eq!(lengths.into_iter().collect::<Vec<_>>(), vec![links]);
            }
        }
    }

    /// Whatever the choice: every packet arrives, two runs are the same, and only adaptive
    /// routing lets packets of a flow overtake each other.
    #[test]
    fn every_packet_arrives(c in graph(), seed in any::<u64>(), port in any::<u16>()) {
        let hosts = c.hosts.len() as u32;
        let flows: Vec<_> = (0..hosts)
            .map(|h| Flow { udp_source_port: port, ..Flow::new(h, (h + 1) % hosts, 9, 1_082) })
            .collect();
        // First, since packets in a loop would never end.
        let f = Fabric::new(&c, seed).expect("a connected network");
        flows.iter().for_each(|flow| drop(ways(&f, flow.src, flow.dst)));
        let by_hash = [HashSeed::PerSwitch, HashSeed::Same].map(Routing::Ecmp);
        for routing in [Routing::Destination, by_hash[0], by_hash[1], Routing::Adaptive] {
            let c = FabricConfig { routing, ..c.clone() };
            let net = run(&c, seed, &flows);
            prop_assert!((0..hosts).all(|f| net.arrivals(f).len() == 9));
            prop_assert_eq!(&net.ends, &run(&c, seed, &flows).ends);
            if routing != Routing::Adaptive {
                net.assert_fifo();
            }
        }
    }
}
