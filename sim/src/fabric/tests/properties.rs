//! What holds in every network and for every traffic.

use doorbell_core::units::{BitRate, Span, Time};
use proptest::prelude::*;

use super::harness::{Flow, Net, run};
use crate::fabric::*;

const HOSTS: u32 = 5;

fn switch() -> impl Strategy<Value = SwitchConfig> {
    let buffering = prop_oneof![
        (4_224u64..60_000).prop_map(|port_bytes| Buffering::TailDrop { port_bytes }),
        (4_224u64..60_000).prop_map(|port_bytes| Buffering::Lossless { port_bytes }),
    ];
    let forwarding = prop_oneof![Just(Forwarding::CutThrough), Just(Forwarding::StoreAndForward)];
    (forwarding, 0u64..500, buffering).prop_map(|(forwarding, ns, buffering)| SwitchConfig {
        forwarding,
        transit: Span::from_ns(ns),
        buffering,
    })
}

fn link() -> impl Strategy<Value = Link> {
    let rate = prop_oneof![Just(8_000_000_000), Just(54_500_000_000), Just(800_000_000_000u64)];
    (rate, 1u64..2_000_000)
        .prop_map(|(bps, ps)| Link::new(BitRate::new(bps).expect("not zero"), Span::from_ps(ps)))
}

fn noise() -> impl Strategy<Value = Noise> {
    prop_oneof![
        Just(Noise::Off),
        Just(Noise::OnePacket),
        (1u64..5_000_000).prop_map(|ps| Noise::UpTo(Span::from_ps(ps))),
    ]
}

/// Hosts spread over a line of one to three switches: no loop, so no deadlock of credits.
fn network() -> impl Strategy<Value = FabricConfig> {
    (
        prop::collection::vec(switch(), 1..=3),
        prop::collection::vec(link(), HOSTS as usize + 2),
        noise(),
        any::<bool>(),
    )
        .prop_map(|(switches, cables, noise, receiver_pushes_back)| {
            let n = switches.len() as u32;
            let mut c = FabricConfig::single_switch(0, cables[0], switches[0]);
            c.hosts = vec![HostConfig::default(); HOSTS as usize];
            if receiver_pushes_back {
                c.hosts[0].receive = ReceiveBuffer::Lossless { bytes: 5_000, held: false };
            }
            c.links = (0..HOSTS)
                .map(|h| LinkConfig {
                    a: End::Host(h),
                    b: End::Switch(h % n),
                    link: cables[h as usize],
                })
                .collect();
            c.links.extend((1..n).map(|s| LinkConfig {
                a: End::Switch(s - 1),
                b: End::Switch(s),
                link: cables[(HOSTS + s - 1) as usize],
            }));
            c.switches = switches;
            c.noise = noise;
            c
        })
}

fn flows() -> impl Strategy<Value = Vec<Flow>> {
    let flow = (0..HOSTS, 1..HOSTS, 0u64..3_000_000, 1u32..40, 26u32..4_224);
    let flow = flow.prop_map(|(src, step, start, packets, wire_bytes)| Flow {
        start: Time::from_ps(start),
        ..Flow::new(src, (src + step) % HOSTS, packets, wire_bytes)
    });
    prop::collection::vec(flow, 1..8)
}

/// What became of each packet, and when.
fn sorted(net: &Net) -> Vec<(Time, u32, u32, Option<DropCause>)> {
    let mut ends: Vec<_> = net.ends.iter().map(|e| (e.at, e.flow, e.seq, e.lost)).collect();
    ends.sort_unstable();
    ends
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Sent = delivered + dropped + in flight after every few events, and nothing is left at
    /// the end; packets of a flow keep their order; only a lossy switch drops.
    #[test]
    fn bytes_are_conserved(
        c in network(), flows in flows(), seed in any::<u64>(), every in 1u32..50,
    ) {
        let mut net = Net::new(&c, seed, &flows);
        let mut steps = 0;
        while net.step() {
            steps += 1;
            if steps % every == 0 {
                let b = net.fabric.balance().expect("balanced at every instant");
                prop_assert_eq!(b.in_flight().packets, net.packets.len() as u64);
            }
        }
        net.run();
        net.assert_fifo();
        for (i, s) in net.fabric.switches().iter().enumerate() {
            if matches!(c.switches[i].buffering, Buffering::Lossless { .. }) {
                prop_assert_eq!(s.dropped(), Drops::default());
            }
        }
        let sent: u32 = flows.iter().map(|f| f.packets).sum();
        prop_assert_eq!(net.ends.len() as u32, sent);
    }

    /// No packet is faster than light: serialisation once, and every delay on its way.
    #[test]
    fn nothing_arrives_early(c in network(), flows in flows(), seed in any::<u64>()) {
        let net = run(&c, seed, &flows);
        for e in net.ends.iter().filter(|e| e.lost.is_none()) {
            let f = &flows[e.flow as usize];
            let (first, last) = (&c.links[f.src as usize].link, &c.links[f.dst as usize].link);
            let mut least = first.propagation + last.propagation;
            let bytes = u64::from(f.wire_bytes);
            // One picosecond less, since ports carry their remainders.
            least += first.rate.time_for(bytes).max(last.rate.time_for(bytes));
            prop_assert!(e.at + Span::from_ps(1) >= f.start + least);
        }
    }

    /// The same seed gives the same run, packet by packet.
    #[test]
    fn runs_repeat(c in network(), flows in flows(), seed in any::<u64>()) {
        prop_assert_eq!(run(&c, seed, &flows).ends, run(&c, seed, &flows).ends);
    }

    /// An owner that leaves out the credit that nobody waits for gets the same run, with fewer
    /// events, and all credit is back in the end.
    #[test]
    fn credit_that_nobody_waits_for_need_not_come(
        c in network(), flows in flows(), seed in any::<u64>(),
    ) {
        let told = run(&c, seed, &flows);
        let mut quiet = Net::new(&c, seed, &flows);
        quiet.expects = true;
        quiet.run();
        prop_assert_eq!(sorted(&quiet), sorted(&told));
        prop_assert!(quiet.fabric_events <= told.fabric_events);
        for (node, port) in told.fabric.ports() {
            let of = |net: &Net| {
                let egress = net.fabric.egress_of(node, port);
                (egress.credits(Time::MAX), egress.counters(Time::MAX))
            };
            prop_assert_eq!(of(&quiet), of(&told));
        }
    }

    /// Noise delays each packet of a train by less than its bound, and the delays do not add up.
    #[test]
    fn noise_is_bounded_and_does_not_accumulate(
        seed in any::<u64>(), bound in 1u64..1_000_000, forwarding in prop_oneof![
            Just(Forwarding::CutThrough), Just(Forwarding::StoreAndForward)
        ],
    ) {
        let link = Link::new(BitRate::gbps(100), Span::from_ns(500));
        let mut c = super::harness::star(2, link, forwarding, super::harness::AMPLE);
        let flow = [Flow::new(0, 1, 200, 1_082)];
        let quiet = run(&c, seed, &flow).arrivals(0);
        c.noise = Noise::UpTo(Span::from_ps(bound));
        let noisy = run(&c, seed, &flow).arrivals(0);
        for (q, n) in quiet.iter().zip(&noisy) {
            prop_assert!(n >= q && n.since(*q) < Span::from_ps(bound));
        }
    }
}

/// A host more elsewhere and a flow less leave the noise of the others as it was.
#[test]
fn noise_streams_belong_to_their_input() {
    let link = Link::new(BitRate::gbps(100), Span::from_ns(500));
    let config = |hosts| FabricConfig::single_switch(hosts, link, SwitchConfig::default());
    let flow = Flow::new(0, 1, 50, 1_082);
    let alone = run(&config(2), 9, &[flow]).arrivals(0);
    let beside = run(&config(4), 9, &[flow, Flow::new(2, 3, 50, 1_082)]).arrivals(0);
    assert_eq!(alone, beside);
    let other_seed = run(&config(2), 10, &[flow]).arrivals(0);
    assert_ne!(alone, other_seed);
}
