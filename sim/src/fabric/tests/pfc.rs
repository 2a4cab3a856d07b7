//! Priority flow control over shared buffers.

use std::collections::BTreeSet;

use doorbell_core::units::{BitRate, Ratio, Span, Time};
use proptest::prelude::*;

use super::harness::{Flow, Net, run, star};
use crate::engine::Out;
use crate::fabric::pfc::pause_time;
use crate::fabric::*;
use crate::wire::{HostId, PortId};

const WIRE: u32 = 1_064;
/// Serialisation of one packet.
const T: Span = Span::from_ps(1_064 * 80);

fn link(propagation: Span) -> Link {
    Link::new(BitRate::gbps(100), propagation)
}

fn lossless() -> ClassConfig {
    ClassConfig { lossless: true, ..ClassConfig::default() }
}

fn network(hosts: u32, shared: SharedConfig) -> FabricConfig {
    let cable = link(Span::from_ns(1_000));
    let mut c = star(hosts, cable, Forwarding::CutThrough, Buffering::Shared(shared));
    c.max_packet_bytes = WIRE;
    c.classes = Classes::one(lossless());
    c
}

/// A buffer whose queues fill in microseconds.
fn small() -> SharedConfig {
    SharedConfig {
        total_bytes: 1_500_000,
        sharing: Sharing::Dynamic { alpha: Ratio { num: 1, den: 4 } },
        ..SharedConfig::default()
    }
}

fn incast(n: u32, packets: u32) -> Vec<Flow> {
    (1..=n).map(|src| Flow::new(src, 0, packets, WIRE)).collect()
}

fn pauses(net: &Net, switch: usize) -> PauseCounters {
    let s = &net.fabric.switches()[switch];
    (0..s.ports() as u16).fold(PauseCounters::default(), |sum, p| {
        let c = s.egress(PortId(p)).pauses(net.engine.now(), 0);
        PauseCounters {
            xoff_sent: sum.xoff_sent + c.xoff_sent,
            xon_sent: sum.xon_sent + c.xon_sent,
            ..sum
        }
    })
}

/// Without loss the receiver's link is never idle, paused senders or not: the last packet comes
/// after N · packets · t and the path.
#[test]
fn an_incast_ends_when_the_link_has_sent_all() {
    for (n, packets) in [(2, 4_000), (8, 1_000), (31, 300)] {
        let shared = SharedConfig { total_bytes: 4_000_000, ..small() };
        let net = run(&network(n + 1, shared), 1, &incast(n, packets));
        assert!(net.ends.iter().all(|e| e.lost.is_none()));
        assert!(pauses(&net, 0).xoff_sent >= u64::from(n), "{n} senders are paused");
        let path = Span::from_ns(2_000 + 130);
        let exact = Time::ZERO + T * u64::from(n * packets) + path;
        assert_eq!(net.last_arrival(), exact, "{n} senders");
        net.assert_fifo();
    }
}

/// Up to the end of the first, equal flows have got equal shares within 1 %. What a flow gets more
/// in one pause it does not give back, so the difference walks at random and grows with the root of
/// the length: mean 185 packets of 40,000 and 358 of 160,000 with 8 packets between pause and
/// resume. With 32 packets a step counts for less, and all are within 0.4 %: unless a sender is let
/// go only when a packet of its own leaves, and not when others have left it a larger share. Then
/// bursts keep out of each other's way for ever, and one flow has up to 18 % less.
#[test]
fn equal_flows_share_a_link() {
    for (hysteresis, least) in [(2 * 4_224, 39_600), (8 * 4_224, 39_840)] {
        for seed in 0..5 {
            let pause_at = PauseAt::Share { hysteresis };
            let shared = SharedConfig { pause_at, ..small() };
            let c = FabricConfig { noise: Noise::OnePacket, ..network(5, shared) };
            let net = run(&c, seed, &incast(4, 40_000));
            let ends: Vec<Time> = (0..4).map(|f| *net.arrivals(f).last().expect("all")).collect();
            let first = *ends.iter().min().expect("four");
            for flow in 0..4 {
                let got = net.arrivals(flow).iter().filter(|at| **at <= first).count() as u32;
                assert!(got >= least, "{hysteresis}, seed {seed}: flow {flow} has {got} by then");
            }
        }
    }
}

#[test]
fn a_lossless_class_never_drops_with_the_headroom_of_the_formula() {
    for seed in 0..20 {
        for forwarding in [Forwarding::CutThrough, Forwarding::StoreAndForward] {
            let mut c = FabricConfig { noise: Noise::OnePacket, ..network(5, small()) };
            c.switches[0].forwarding = forwarding;
            let net = run(&c, seed, &incast(4, 2_000));
            assert!(net.ends.iter().all(|e| e.lost.is_none()), "seed {seed}, {forwarding:?}");
        }
    }
}

/// i-03: 100 Gb/s, 40 m, reaction of 0.5 us, packets of 9216 bytes: about 30 KB are needed.
#[test]
fn too_little_headroom_drops_at_the_input() {
    let mut c = network(3, SharedConfig::default());
    let cable = link(Span::from_ns(200));
    c.links.iter_mut().for_each(|l| l.link = cable);
    c.max_packet_bytes = 9_216;
    let dropped = |headroom| {
        let mut c = c.clone();
        let pause_at = PauseAt::Fixed { xoff: 100_000, xon: 80_000 };
        let reaction = Some(Span::from_ns(500));
        let shared = SharedConfig { headroom, pause_at, reaction, ..small() };
        c.switches[0].buffering = Buffering::Shared(shared);
        // Data on the way back too: a pause frame waits for the packet in front of it.
        let mut flows: Vec<_> = (1..3).map(|src| Flow::new(src, 0, 200, 9_216)).collect();
        flows.extend((1..3).map(|dst| Flow::new(0, dst, 50, 9_216)));
        let net = run(&c, 1, &flows);
        assert!(pauses(&net, 0).xoff_sent > 0, "without headroom it pauses too, if too late");
        let d = net.fabric.dropped();
        assert_eq!(d.total(), d.of(DropCause::IngressOverflow), "at the input and nowhere else");
        d.total().packets
    };
    assert!(dropped(Headroom::Bytes(0)) > 0);
    assert!(dropped(Headroom::Bytes(16_000)) > 0);
    assert_eq!(dropped(Headroom::Bytes(40_000)), 0);
    assert_eq!(dropped(Headroom::Formula), 0);
    let of = HeadroomOf {
        rate: BitRate::gbps(100),
        propagation: Span::from_ns(200),
        reaction: Span::from_ns(500),
        pipeline: Span::from_ns(130),
        max_packet_bytes: 9_216,
        classes: 1,
    };
    assert_eq!(headroom(&of), 18_432 + 84 + 12_875, "about 30 KB");
}

/// A pause ends by itself if nobody renews it, and then the class drops.
#[test]
fn a_pause_that_lapses_drops() {
    let quanta = 977; // 5 us
    let run = |lapse, quanta| {
        run(&network(5, SharedConfig { lapse, quanta, ..small() }), 1, &incast(4, 3_000))
    };
    let lost = |net: &Net| net.fabric.dropped().of(DropCause::IngressOverflow).packets;
    let lapsed = run(true, quanta);
    assert!(lost(&lapsed) > 0);
    let renewed = run(false, quanta);
    assert_eq!(lost(&renewed), 0);
    let c = pauses(&renewed, 0);
    assert!(c.xoff_sent > 2 * c.xon_sent, "renewed: {c:?}");
    let long = pauses(&run(false, u16::MAX), 0);
    assert_eq!(long.xoff_sent, long.xon_sent, "335 us need no renewal here");
}

/// Three switches in a row: the pause goes from the last to the first, and to its hosts.
#[test]
fn pauses_go_from_switch_to_switch_to_the_hosts() {
    let cable = link(Span::from_ns(100));
    let s = SwitchConfig { buffering: Buffering::Shared(small()), ..SwitchConfig::default() };
    let join = |a, b| LinkConfig { a, b, link: cable };
    let mut links = vec![join(End::Host(0), End::Switch(2)), join(End::Host(3), End::Switch(2))];
    links.extend([1, 2].map(|h| join(End::Host(h), End::Switch(0))));
    links.extend([(0, 1), (1, 2)].map(|(a, b)| join(End::Switch(a), End::Switch(b))));
    let mut c = FabricConfig::of(4, vec![s; 3], links);
    (c.noise, c.max_packet_bytes) = (Noise::Off, WIRE);
    c.classes = Classes::one(lossless());
    let flows = [Flow::new(1, 0, 4_000, WIRE), Flow::new(3, 0, 4_000, WIRE)];
    let net = run(&c, 1, &flows);
    assert_eq!(net.fabric.dropped(), Drops::default());
    for switch in 0..3 {
        assert!(pauses(&net, switch).xoff_sent > 0, "switch {switch} pauses");
    }
    let host = net.fabric.hosts()[1].egress(PortId(0)).pauses(net.engine.now(), 0);
    assert!(host.xoff_received > 0 && host.paused > Span::ZERO);
    assert_eq!(host.xoff_received, host.xon_received);
    // Nobody paused host 2, which sends nothing.
    let idle = net.fabric.hosts()[2].egress(PortId(0)).pauses(net.engine.now(), 0);
    assert_eq!(idle, PauseCounters::default());
}

/// The lossless class of a sender is paused; its other class goes on.
#[test]
fn a_paused_class_does_not_hold_back_another() {
    let mut c = network(4, small());
    c.classes = Classes::by_level(vec![ClassConfig::default(), lossless()]);
    let other =
        Flow { sl: 0, start: Time::ZERO + Span::from_us(100), ..Flow::new(1, 3, 100, WIRE) };
    let flows = [
        Flow { sl: 1, ..Flow::new(1, 0, 4_000, WIRE) },
        Flow { sl: 1, ..Flow::new(2, 0, 4_000, WIRE) },
        other,
    ];
    let net = run(&c, 1, &flows);
    let now = net.engine.now();
    let port = net.fabric.hosts()[1].egress(PortId(0));
    assert!(port.pauses(now, 1).paused > Span::from_us(50));
    assert_eq!(port.pauses(now, 0), PauseCounters::default());
    // Two classes of one weight: at worst every second packet is of the other one.
    let took = net.arrivals(2).last().expect("arrives").since(other.start);
    assert!(took < T * 210 + Span::from_ns(2_130), "{took}");
}

/// C11: a cable whose ports know no pauses drops, and all others do not.
#[test]
fn a_link_without_pfc_is_lossy() {
    let mut c = network(5, small());
    c.links[2].link = c.links[2].link.without_pfc();
    let net = run(&c, 1, &incast(4, 2_000));
    let lost: Vec<_> = (0..4).map(|flow| net.losses(flow)).collect();
    assert!(lost[1] > 0 && lost[0] + lost[2] + lost[3] == 0, "{lost:?}");
    let port = net.fabric.hosts()[2].egress(PortId(0));
    assert!(!port.knows_pauses());
    assert_eq!(net.fabric.dropped().total(), net.fabric.dropped().of(DropCause::TailDrop));
}

fn ring() -> FabricConfig {
    ring_of(Buffering::Shared(small()))
}

/// No switch that a fault will empty.
const fn never() -> BTreeSet<u32> {
    BTreeSet::new()
}

fn ring_of(buffering: Buffering) -> FabricConfig {
    let cable = link(Span::from_ns(100));
    let s = SwitchConfig { buffering, ..SwitchConfig::default() };
    let join = |a, b| LinkConfig { a, b, link: cable };
    // Two hosts at each of four switches; packets always go round to the right.
    let mut links: Vec<_> = (0..8).map(|h| join(End::Host(h), End::Switch(h / 2))).collect();
    links.extend((0..4).map(|s| join(End::Switch(s), End::Switch((s + 1) % 4))));
    let mut c = FabricConfig::of(8, vec![s; 4], links);
    (c.noise, c.max_packet_bytes) = (Noise::Off, WIRE);
    c.classes = Classes::one(lossless());
    for switch in 0..4u32 {
        // Port 2 of switch 0 leads to switch 1; of the others port 3 to the next, 2 back.
        let right = PortId(if switch == 0 { 2 } else { 3 });
        let far = (0..8).filter(|h| h / 2 == (switch + 2) % 4);
        c.routes.extend(far.map(|h| StaticRoute {
            switch,
            host: HostId(h),
            host_port: PortId(0),
            out: right,
        }));
    }
    c
}

/// Every flow crosses two links of a ring, all in one direction: the ring fills and stands still.
/// The circle is found and named, and there is none before.
#[test]
fn a_circle_of_pauses_is_named() {
    let flows: Vec<_> = (0..8).map(|h| Flow::new(h, (h + 4) % 8, 4_000, WIRE)).collect();
    let mut net = Net::new(&ring(), 1, &flows);
    assert!(net.fabric.pauses() && net.fabric.may_deadlock());
    let mut found = None;
    for us in (20..2_000).step_by(20) {
        while net.engine.peek_time().is_some_and(|t| t <= Time::ZERO + Span::from_us(us)) {
            net.step();
        }
        let before = net.ends.len();
        found =
            net.fabric.deadlock(net.engine.now(), Span::ZERO, &never()).map(|d| (d, before, us));
        if found.is_some() {
            break;
        }
    }
    let (deadlock, delivered, us) = found.expect("a circle");
    assert_eq!((deadlock.by, deadlock.cycle.len()), (HeldBy::Pause, 4));
    let text = deadlock.to_string();
    assert!(text.contains("switch1.port3 waits for switch2"), "{text}");
    // What is found is for ever: only pauses are renewed from now on.
    while net.engine.peek_time().is_some_and(|t| t <= Time::ZERO + Span::from_us(us + 5_000)) {
        net.step();
    }
    let late = net.ends.len() - delivered;
    assert!(late < 100, "{late} that had left already");
    let circle = |emptied| net.fabric.deadlock(net.engine.now(), Span::ZERO, &emptied);
    assert!(circle(never()).is_some());
    // One of the four will reboot: the circle is not for ever.
    assert_eq!(circle(BTreeSet::from([2])), None);
    assert!(circle(BTreeSet::from([4])).is_some(), "there is no such switch in it");
    // Half of the flows leave the links half full: no circle, whatever is paused.
    let mut net = Net::new(&ring(), 1, &flows[..2]);
    while net.step() {
        assert_eq!(net.fabric.deadlock(net.engine.now(), Span::ZERO, &never()), None);
    }
    net.run();
}

/// Pauses of one quantum are renewed twice as often as a link can send their frames: a renewal that
/// finds the frame before it waiting adds none, so what waits does not grow.
#[test]
fn pauses_are_renewed_no_faster_than_their_frames_are_sent() {
    let mut net = Net::new(&network(2, SharedConfig { quanta: 1, ..small() }), 1, &[]);
    net.pause(1, PauseReason::Storm, u8::MAX);
    let end = Time::ZERO + Span::from_us(10);
    while net.engine.peek_time().is_some_and(|t| t <= end) {
        net.step();
    }
    let frame = BitRate::gbps(100).time_for(u64::from(PAUSE_FRAME_BYTES));
    let most = Span::from_us(10).as_ps() / frame.as_ps();
    let sent = net.fabric.tx_port(HostId(1), PortId(0)).pauses(net.engine.now(), 0).xoff_sent;
    assert!((most..=most + 2).contains(&sent), "{sent} frames in the time of {most}");
    net.pause(1, PauseReason::Storm, 0);
    let from = net.engine.now();
    net.run();
    let last = net.engine.now().since(from);
    assert!(last < Span::from_us(5), "the resume waits for one frame, and then {last:?}");
}

/// Pauses that are not renewed end: at no moment is their circle one for ever.
#[test]
fn a_circle_of_pauses_that_lapse_is_none() {
    let flows: Vec<_> = (0..8).map(|h| Flow::new(h, (h + 4) % 8, 4_000, WIRE)).collect();
    let lapsing = Buffering::Shared(SharedConfig { lapse: true, ..small() });
    let mut net = Net::new(&ring_of(lapsing), 1, &flows);
    let mut circles = 0;
    for us in (20..320).step_by(20) {
        while net.engine.peek_time().is_some_and(|t| t <= Time::ZERO + Span::from_us(us)) {
            net.step();
        }
        // To the right: port 2 of switch 0, port 3 of the others.
        let paused = |(i, s): (usize, &SwitchNode)| {
            s.egress(PortId(if i == 0 { 2 } else { 3 })).is_paused(0)
        };
        circles += u32::from(net.fabric.switches().iter().enumerate().all(paused));
        assert_eq!(net.fabric.deadlock(net.engine.now(), Span::ZERO, &never()), None);
    }
    assert!(circles > 0, "it was there");
}

/// The same ring with credits, of blocks and of bytes: the loop is found when it has lasted, and is
/// for ever. Half of the flows make none.
#[test]
fn a_circle_of_credits_is_named() {
    let lasting = Span::from_us(50);
    for buffering in
        [Buffering::Credits { blocks: 1_000 }, Buffering::Lossless { port_bytes: 64_000 }]
    {
        let c = FabricConfig { classes: Classes::default(), ..ring_of(buffering) };
        let flows: Vec<_> = (0..8).map(|h| Flow::new(h, (h + 4) % 8, 4_000, WIRE)).collect();
        let mut net = Net::new(&c, 1, &flows);
        assert!(!net.fabric.pauses() && net.fabric.may_deadlock());
        while net.step() {}
        // Nothing is pending any more, and packets are left.
        let late = net.engine.now() + lasting;
        let early = net.engine.now() + Span::from_us(10);
        assert_eq!(net.fabric.deadlock(early, lasting, &never()), None, "it may still be short");
        let deadlock = net.fabric.deadlock(late, lasting, &never()).expect("a circle");
        assert_eq!((deadlock.by, deadlock.cycle.len()), (HeldBy::Credit, 4), "{buffering:?}");
        let text = deadlock.to_string();
        assert!(text.starts_with("credit deadlock in class 0: switch0.port2 waits for"), "{text}");
        assert!(text.contains("switch1.port3 waits for switch2"), "{text}");
        let mut net = Net::new(&c, 1, &flows[..2]);
        while net.step() {
            assert_eq!(net.fabric.deadlock(net.engine.now(), Span::ZERO, &never()), None);
        }
        net.run();
        let star = star(4, link(Span::from_ns(100)), Forwarding::CutThrough, buffering);
        assert!(!Fabric::new(&star, 1).expect("legal").may_deadlock());
    }
    let drops = ring_of(Buffering::TailDrop { port_bytes: 64_000 });
    assert!(!Fabric::new(&drops, 1).expect("legal").may_deadlock(), "nobody waits");
}

/// A watchdog that pays no attention to pauses any more ends the circle, at the price of losses.
#[test]
fn a_watchdog_breaks_the_circle() {
    let mut c = ring();
    let action = StormAction::Ignore;
    let watchdog = Watchdog { after: Span::from_us(200), action, restore: Span::from_us(400) };
    let shared = SharedConfig { watchdog: Some(watchdog), ..small() };
    c.switches.iter_mut().for_each(|s| s.buffering = Buffering::Shared(shared));
    let flows: Vec<_> = (0..8).map(|h| Flow::new(h, (h + 4) % 8, 2_000, WIRE)).collect();
    let mut net = Net::new(&c, 1, &flows);
    for us in (0..20_000).step_by(100) {
        while net.engine.peek_time().is_some_and(|t| t <= Time::ZERO + Span::from_us(us)) {
            net.step();
        }
        net.watch();
    }
    net.run();
    assert!(net.fabric.dropped().of(DropCause::IngressOverflow).packets > 0);
    let storms: u64 = net
        .fabric
        .switches()
        .iter()
        .flat_map(|s| {
            (0..s.ports() as u16).map(|p| s.egress(PortId(p)).pauses(Time::MAX, 0).storms)
        })
        .sum();
    assert!(storms > 0);
}

/// A storm that the watchdog passes over: when the far end has asked for no pause for the
/// restoration time, and no earlier, its next one counts again.
#[test]
fn a_port_heeds_pauses_again_after_the_restoration_time() {
    let us = |n| Time::ZERO + Span::from_us(n);
    let restore = Span::from_us(500);
    let watchdog = Watchdog { after: Span::from_us(200), action: StormAction::Ignore, restore };
    let tick = Span::from_ps(1);
    // The last frame says that it is over, or runs out 335.5 us later.
    let longest = pause_time(BitRate::gbps(100), u16::MAX);
    for (last, over) in [(0, us(400)), (u16::MAX, us(400) + longest)] {
        for (now, heeded) in [(over + (restore - tick), false), (over + restore, true)] {
            let mut fabric = Fabric::new(&network(2, small()), 1).expect("legal");
            let port = &mut fabric.switches[0].ports[0].egress;
            let mut out = Out::new();
            port.on_pause(us(0), 0, u16::MAX, &mut out);
            port.watch(us(199), &watchdog, &mut out);
            assert!(port.is_paused(0), "not long enough for a storm");
            port.watch(us(200), &watchdog, &mut out);
            assert!(!port.is_paused(0));
            port.on_pause(us(300), 0, u16::MAX, &mut out);
            port.on_pause(us(400), 0, last, &mut out);
            assert!(!port.is_paused(0), "nobody heeds it");
            port.on_pause(now, 0, u16::MAX, &mut out);
            assert_eq!(port.is_paused(0), heeded, "{last} {now}");
            assert_eq!(port.pauses(now, 0).restores, u64::from(heeded));
        }
    }
}

#[test]
fn buffers_and_thresholds_are_checked() {
    let check = |shared| Fabric::new(&network(2, shared), 1).map(|_| ());
    let node = End::Switch(0);
    let kept = |total_bytes| {
        check(SharedConfig { total_bytes, headroom: Headroom::Bytes(10_000), ..small() })
    };
    assert_eq!(kept(20_001), Ok(()));
    assert_eq!(
        kept(20_000),
        Err(ConfigError::NothingShared { node, total: 20_000, taken: 20_000 })
    );
    let fixed = |xoff, xon| {
        let pause_at = PauseAt::Fixed { xoff, xon };
        let headroom = Headroom::Bytes(10_000);
        check(SharedConfig { total_bytes: 50_000, headroom, pause_at, ..small() })
    };
    assert_eq!(fixed(30_000, 30_000), Ok(()));
    assert_eq!(
        fixed(30_001, 0),
        Err(ConfigError::XoffAboveBuffer { node, xoff: 30_001, pool: 30_000 })
    );
    assert_eq!(fixed(9, 10), Err(ConfigError::XonAboveXoff { node, xon: 10, xoff: 9 }));
    assert_eq!(check(SharedConfig { quanta: 0, ..small() }), Err(ConfigError::ZeroPause { node }));
    let sharing = Sharing::Dynamic { alpha: Ratio { num: 0, den: 1 } };
    assert_eq!(check(SharedConfig { sharing, ..small() }), Err(ConfigError::ZeroPause { node }));
    let e = kept(1_000).expect_err("smaller than a packet");
    assert!(e.to_string().contains("never takes the largest packet"), "{e}");
}

/// Hosts over one to three switches in a row, small buffers, two classes of which one is lossless.
pub(super) fn networks() -> impl Strategy<Value = FabricConfig> {
    let shared = (0u64..200_000, 1u64..8, any::<bool>(), any::<bool>(), 0u64..4_000);
    let cables = prop::collection::vec((0usize..3, 1u64..2_000), 8);
    (shared, cables, 1u32..4, any::<bool>()).prop_map(|(s, cables, switches, noise)| {
        let (total, num, fixed, split, reserved_bytes) = s;
        let dynamic = Sharing::Dynamic { alpha: Ratio { num, den: 4 } };
        let xoff = PauseAt::Fixed { xoff: 20_000, xon: 15_000 };
        let shared = SharedConfig {
            total_bytes: 2_500_000 + total,
            sharing: if split { Sharing::Static } else { dynamic },
            reserved_bytes,
            pause_at: if fixed { xoff } else { PauseAt::Share { hysteresis: 5_000 } },
            ..SharedConfig::default()
        };
        let s = SwitchConfig { buffering: Buffering::Shared(shared), ..SwitchConfig::default() };
        let cable = |i: u32| {
            let (rate, ns) = cables[i as usize];
            Link::new(BitRate::gbps([25, 100, 400][rate]), Span::from_ns(ns))
        };
        let mut links: Vec<_> = (0..5)
            .map(|h| LinkConfig { a: End::Host(h), b: End::Switch(h % switches), link: cable(h) })
            .collect();
        links.extend((1..switches).map(|s| LinkConfig {
            a: End::Switch(s - 1),
            b: End::Switch(s),
            link: cable(4 + s),
        }));
        let mut c = FabricConfig::of(5, vec![s; switches as usize], links);
        c.noise = if noise { Noise::OnePacket } else { Noise::Off };
        c.classes = Classes::by_level(vec![ClassConfig::default(), lossless()]);
        c
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// Bytes are conserved, the buffers' accounts are those of what is inside, the lossless class
    /// drops nothing, every pause has a reason and an end, and nothing is left.
    #[test]
    fn pauses_lose_nothing_and_end(
        c in networks(), seed in any::<u64>(), every in 1u32..100,
        flows in prop::collection::vec(
            (0u32..5, 1u32..5, 0u64..20_000, 1u32..400, 64u32..4_224, 0u8..2),
            1..8,
        ),
    ) {
        let flows: Vec<_> = flows
            .into_iter()
            .map(|(src, step, ns, packets, bytes, sl)| Flow {
                start: Time::ZERO + Span::from_ns(ns),
                sl,
                ..Flow::new(src, (src + step) % 5, packets, bytes)
            })
            .collect();
        let mut net = Net::new(&c, seed, &flows);
        let mut steps = 0;
        while net.step() {
            steps += 1;
            if steps % every == 0 {
                prop_assert!(net.fabric.balance().is_ok());
                prop_assert_eq!(net.fabric.deadlock(net.engine.now(), Span::ZERO, &never()), None);
                for s in net.fabric.switches() {
                    let inside = (0..s.ports() as u16).map(|p| s.egress(PortId(p)).waiting_bytes());
                    let used = s.buffer().expect("shared").used();
                    prop_assert_eq!(used, inside.sum::<u64>() + s.storing.bytes);
                }
            }
        }
        net.run();
        let dropped = net.fabric.dropped();
        prop_assert_eq!(dropped.total(), dropped.of(DropCause::TailDrop));
        for end in net.ends.iter().filter(|e| e.lost.is_some()) {
            prop_assert_eq!(flows[end.flow as usize].sl, 0, "only the lossy class drops");
        }
        for s in net.fabric.switches() {
            prop_assert_eq!(s.buffer().expect("shared").used(), 0);
            for p in 0..s.ports() as u16 {
                let port = s.egress(PortId(p));
                let c = port.pauses(Time::MAX, 1);
                prop_assert!(!s.is_pausing(PortId(p), 1) && !port.is_paused(1));
                prop_assert!(c.xon_sent <= c.xoff_sent && (c.xoff_sent > 0) == (c.xon_sent > 0));
                prop_assert_eq!(port.pauses(Time::MAX, 0), PauseCounters::default());
            }
        }
    }
}
