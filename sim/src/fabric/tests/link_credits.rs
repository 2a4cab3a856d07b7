//! InfiniBand link credits: the closed form of the rate, lanes, losses, changes of the return
//! delay.

use doorbell_core::units::{BitRate, Span, Time};
use proptest::prelude::*;

use super::harness::{Flow, Meddle, Net, run, star};
use crate::fabric::*;
use crate::wire::PortId;

const PORT: PortId = PortId(0);
const PROPAGATION: Span = Span::from_ns(100);
const TRANSIT: Span = Span::from_ns(130);
const DELAY: Span = Span::from_ns(320);

fn link() -> Link {
    Link::new(BitRate::gbps(100), PROPAGATION)
}

/// Time of a packet on the wire: 80 ps per byte.
fn time(wire: u32) -> Span {
    Span::from_ps(u64::from(wire) * 80)
}

fn delay(return_delay: Span) -> CreditConfig {
    CreditConfig { return_delay, ..CreditConfig::default() }
}

fn ib(hosts: u32, blocks: u32) -> FabricConfig {
    let mut c = star(hosts, link(), Forwarding::CutThrough, Buffering::Credits { blocks });
    c.hosts.iter_mut().for_each(|h| h.receive = ReceiveBuffer::Credits { blocks });
    c.max_packet_bytes = 64;
    c.credits = delay(DELAY);
    c
}

/// Packets per second are those of so many packets per serialisation and credit round trip, or the
/// link's: floor(credits / blocks) of them, on both sides of the bandwidth-delay product. A packet
/// of whole blocks, of one byte more, and of one byte.
#[test]
fn the_rate_is_that_of_the_credits_or_of_the_link() {
    let mut limited = 0;
    for (wire, most) in [(4_160, 12), (2_049, 20), (64, 70), (1, 1_024)] {
        let (t, b) = (time(wire), u32::from(blocks(wire)));
        // First bit sent, first bit out of the switch, last bit out, flow-control packet back.
        let round = t + PROPAGATION * 2 + TRANSIT + DELAY;
        for k in [1, 2, 3, most / 4, most / 2, most, 2 * most] {
            for spare in [0, b - 1] {
                let mut c = ib(2, k * b + spare);
                c.max_packet_bytes = wire;
                // Only the first link is short of credit.
                c.hosts[1].receive = ReceiveBuffer::Unlimited;
                let n = 40 * k;
                let net = run(&c, 1, &[Flow::new(0, 1, n, wire)]);
                let path = PROPAGATION * 2 + TRANSIT;
                let spent = net.last_arrival().since(Time::ZERO) - path;
                let window = (t * u64::from(k)).max(round);
                // The last window has no round trip behind it.
                let want = window * 39 + t * u64::from(k);
                assert_eq!(spent, want, "{k} packets of {wire} bytes, {spare} blocks more");
                let host = (net.fabric.hosts()[0].id(), PORT);
                let s = net.fabric.starvation(Time::ZERO + spent, host, 0);
                let s = s.expect("InfiniBand");
                let starved = round.saturating_sub(t * u64::from(k)) * 39;
                assert_eq!(s.starved, starved, "{k} packets of {wire} bytes");
                assert_eq!(s.times > 0, starved > Span::ZERO);
                // A window takes its own time on the next link, which rests for the rest of the
                // round: the time that the sender starves. Two roundings by wait.
                let rounded = Span::from_ps(512 * s.times);
                assert!(s.late <= starved && s.late + rounded >= starved, "{s:?}");
                limited += u32::from(starved > Span::ZERO);
            }
        }
    }
    assert!((12..=44).contains(&limited), "{limited} of 56 points are short of credit");
}

/// Two senders share a link that never rests: they starve for half of the time, and no more credit
/// would be of use. Only the first wait, before the link has begun, is different.
#[test]
fn credit_that_a_busy_link_holds_is_not_late() {
    let (wire, t) = (4_160, time(4_160));
    let mut c = ib(3, 20 * 65);
    c.max_packet_bytes = wire;
    c.hosts[2].receive = ReceiveBuffer::Unlimited;
    let net = run(&c, 1, &[Flow::new(0, 2, 400, wire), Flow::new(1, 2, 400, wire)]);
    let end = net.last_arrival();
    let round = t + PROPAGATION * 2 + TRANSIT + DELAY;
    for host in &net.fabric.hosts()[..2] {
        let s = net.fabric.starvation(end, (host.id(), PORT), 0).expect("InfiniBand");
        assert!(s.starved > t * 300, "{s:?}");
        assert!(s.late < round + Span::from_ps(512 * s.times), "{s:?}");
    }
}

/// Both hops take part: the one with less credit decides.
#[test]
fn the_poorer_hop_decides() {
    let (wire, t) = (4_160, time(4_160));
    let run_with = |first: u32, second: u32| {
        let mut c = ib(2, first * 65);
        c.max_packet_bytes = wire;
        c.hosts[1].receive = ReceiveBuffer::Credits { blocks: second * 65 };
        run(&c, 1, &[Flow::new(0, 1, 200, wire)]).last_arrival().since(Time::ZERO)
    };
    let rich = run_with(9, 9);
    // The host's buffer is full until the last bit has come.
    let host_round = t + PROPAGATION * 2 + DELAY;
    let switch_round = host_round + TRANSIT;
    assert_eq!(rich, t * 200 + PROPAGATION * 2 + TRANSIT);
    let slow = |round: Span| round * 199 + t + PROPAGATION * 2 + TRANSIT;
    assert_eq!(run_with(1, 9), slow(switch_round));
    // With the host the poorer one, packets wait in the switch and its buffer decides nothing.
    assert_eq!(run_with(9, 1), slow(host_round));
}

#[test]
fn flow_control_packets_take_time_and_wait_for_the_packet_before() {
    let (wire, t) = (4_160, time(4_160));
    let last = |packet_bytes, both_ways| {
        let mut c = FabricConfig::back_to_back(link());
        c.max_packet_bytes = wire;
        c.credits = CreditConfig { packet_bytes, ..delay(DELAY) };
        c.hosts[1].receive = ReceiveBuffer::Credits { blocks: 65 };
        let back = Flow::new(1, 0, 400, wire);
        let flows = [Flow::new(0, 1, 100, wire), back];
        let net = run(&c, 1, if both_ways { &flows } else { &flows[..1] });
        net.arrivals(0).last().copied().unwrap().since(Time::ZERO)
    };
    let round = |more| (t + PROPAGATION * 2 + DELAY + more) * 99 + t + PROPAGATION;
    assert_eq!(last(0, false), round(Span::ZERO));
    assert_eq!(last(0, true), round(Span::ZERO), "they are no part of the traffic");
    assert_eq!(last(8, false), round(time(8)));
    let waits = last(8, true);
    assert!(waits > round(time(8)) && waits < round(t + time(8)), "{waits}");
}

#[test]
fn a_change_of_the_return_delay_holds_from_its_time_on() {
    let (wire, t) = (4_160, time(4_160));
    let round = |delay| t + PROPAGATION * 2 + TRANSIT + delay;
    let mut c = ib(2, 65);
    c.max_packet_bytes = wire;
    c.hosts[1].receive = ReceiveBuffer::Unlimited;
    let later = Span::from_ns(410);
    // Packet 50 has just left the buffer: its credit is the last of the old delay.
    let freed = round(DELAY) * 50 + PROPAGATION + TRANSIT + t;
    let at = Time::ZERO + freed + Span::from_ps(1);
    c.credits.changes = vec![(at, later)];
    let net = run(&c, 1, &[Flow::new(0, 1, 100, wire)]);
    let arrivals = net.arrivals(0);
    let gaps: Vec<Span> = arrivals.windows(2).map(|w| w[1].since(w[0])).collect();
    assert_eq!(gaps[..51], vec![round(DELAY); 51]);
    assert_eq!(gaps[51..], vec![round(later); 48]);
}

/// A lane that has no credit does not hold back another.
#[test]
fn lanes_have_credits_of_their_own() {
    let (wire, t) = (4_160, time(4_160));
    let mut c = ib(2, 65);
    c.max_packet_bytes = wire;
    c.hosts[1].receive = ReceiveBuffer::Unlimited;
    let round = t + PROPAGATION * 2 + TRANSIT + DELAY;
    let sent = |lanes: u8| {
        let mut c = c.clone();
        c.classes = Classes::by_level(vec![ClassConfig::default(); lanes.into()]);
        let flows: Vec<Flow> =
            (0..lanes).map(|sl| Flow { sl, ..Flow::new(0, 1, 50, wire) }).collect();
        let net = run(&c, 1, &flows);
        let end = net.last_arrival();
        let port = net.fabric.hosts()[0].egress(PORT);
        for lane in 0..lanes {
            assert_eq!(port.lane_credits(lane), Some(65), "all came back");
            let host = (net.fabric.hosts()[0].id(), PORT);
            assert_eq!(net.fabric.starvation(end, host, lane).unwrap().least, 0);
        }
        end.since(Time::ZERO)
    };
    let path = PROPAGATION * 2 + TRANSIT;
    assert_eq!(sent(1), round * 49 + t + path);
    assert_eq!(sent(2), round * 49 + t * 2 + path, "twice as much in the same rounds");
    let full = round.as_ps().div_ceil(t.as_ps());
    assert!(full < 8, "{full} lanes fill the line");
    let eight = sent(8);
    assert!(eight >= t * 400 + path && eight < t * 401 + path + round, "{eight}");
}

/// What is lost on the cable takes its credit along until the next regular flow-control packet.
#[test]
fn credit_of_a_lost_packet_comes_back_with_the_next_regular_packet() {
    let wire = 4_160;
    let mut c = FabricConfig::back_to_back(link());
    c.max_packet_bytes = wire;
    c.credits = delay(DELAY);
    c.hosts[1].receive = ReceiveBuffer::Credits { blocks: 65 };
    let mut net = Net::new(&c, 1, &[Flow::new(0, 1, 3, wire)]);
    let mut seen = 0;
    let mut meddle = |_| {
        seen += 1;
        if seen == 1 { Meddle::Lose(DropCause::Fault) } else { Meddle::Pass }
    };
    while net.step_with(&mut meddle) {}
    // 65,536 symbols of four lanes of 25 Gb/s: 2^18 bytes at 80 ps.
    let refresh = Span::from_ps((1 << 18) * 80);
    let t = time(wire);
    let first = Time::ZERO + refresh + PROPAGATION + t + PROPAGATION;
    assert_eq!(net.arrivals(0), [first, first + t + PROPAGATION * 2 + DELAY]);
    assert_eq!(net.fabric.hosts()[0].egress(PORT).lane_credits(0), Some(65));
    assert_eq!(net.fabric.hosts()[1].ingress(PORT).occupied_blocks(), 0);
    net.fabric.balance().expect("balanced");
}

#[test]
fn a_buffer_takes_the_largest_packet_or_is_refused() {
    for (blocks, needed, ok) in [(66, 4_224, true), (65, 4_224, false), (65, 4_160, true)] {
        let mut c = ib(2, blocks);
        c.max_packet_bytes = needed;
        assert_eq!(Fabric::new(&c, 1).is_ok(), ok, "{blocks} blocks, {needed} bytes");
        c.switches[0].buffering = Buffering::TailDrop { port_bytes: 10_000 };
        let node = End::Host(0);
        let bytes = u64::from(blocks) * 64;
        let e = Fabric::new(&c, 1).err();
        assert_eq!(e, (!ok).then_some(ConfigError::BufferTooSmall { node, bytes, needed }));
    }
}

#[test]
fn changes_rise() {
    let at = |ns| (Time::ZERO + Span::from_ns(ns), DELAY);
    let mut c = ib(2, 66);
    c.credits.changes = vec![at(1), at(2)];
    assert!(Fabric::new(&c, 1).is_ok());
    c.credits.changes = vec![at(1), at(2), at(2)];
    assert_eq!(Fabric::new(&c, 1).err(), Some(ConfigError::CreditChanges { change: 2 }));
}

proptest! {
    /// Any traffic, with losses and copies on cables: nothing is dropped by the network, every
    /// credit comes back, and no buffer overflows (a debug
    /// assertion of both ends).
    #[test]
    fn nothing_is_dropped_and_every_credit_comes_back(
        seed in any::<u64>(),
        room in prop_oneof![5u32..12, 20u32..60, Just(3_000u32)],
        lanes in 1u8..=3,
        noisy in any::<bool>(),
        flows in prop::collection::vec((0u32..4, 0u32..4, 0u8..3, 1u32..40, 1u32..300), 1..12),
        meddling in 0u32..30,
    ) {
        let mut c = ib(4, room);
        c.max_packet_bytes = 300;
        c.noise = if noisy { Noise::OnePacket } else { Noise::Off };
        c.classes = Classes::by_level(vec![ClassConfig::default(); lanes.into()]);
        let flows: Vec<Flow> = flows
            .into_iter()
            .filter(|(src, dst, ..)| src != dst)
            .map(|(src, dst, sl, n, wire)| Flow { sl, ..Flow::new(src, dst, n, wire) })
            .collect();
        let mut net = Net::new(&c, seed, &flows);
        let mut turn = 0u32;
        let mut meddle = |_| {
            turn = turn.wrapping_mul(1_664_525).wrapping_add((seed as u32) | 1);
            match turn >> 24 {
                n if n < meddling => Meddle::Lose(DropCause::Fault),
                n if n < 2 * meddling => Meddle::Copy,
                _ => Meddle::Pass,
            }
        };
        while net.step_with(&mut meddle) {}
        let b = net.fabric.balance().expect("balanced");
        prop_assert_eq!(b.in_flight(), Tally::default());
        prop_assert_eq!(b.dropped.total(), b.dropped.of(DropCause::Fault));
        let all = Some(room.min(2_048) as u16);
        for lane in 0..lanes {
            for h in 0..4 {
                prop_assert_eq!(net.fabric.hosts()[h].egress(PORT).lane_credits(lane), all);
                let out = net.fabric.switches()[0].egress(PortId(h as u16));
                prop_assert_eq!(out.lane_credits(lane), all);
            }
        }
    }
}
