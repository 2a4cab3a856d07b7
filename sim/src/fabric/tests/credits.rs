//! Back-pressure: credits, blocked time, readiness of transmit ports, held receive buffers.

use doorbell_core::units::{BitRate, Span, Time};

use super::harness::{Flow, Net, run, star};
use crate::fabric::*;
use crate::wire::{HostId, PortId};

const PORT: PortId = PortId(0);
const PROPAGATION: Span = Span::from_ns(1_000);
const WIRE: u32 = 1_000;
/// Serialisation of one packet.
const T: Span = Span::from_ps(1_000 * 80);

fn link() -> Link {
    Link::new(BitRate::gbps(100), PROPAGATION)
}

fn lossless(hosts: u32, port_bytes: u64) -> FabricConfig {
    let buffering = Buffering::Lossless { port_bytes };
    let mut c = star(hosts, link(), Forwarding::CutThrough, buffering);
    c.max_packet_bytes = WIRE;
    c
}

/// A buffer of k packets lets k packets go per serialisation and credit round trip.
#[test]
fn a_small_buffer_limits_the_rate() {
    // First bit sent; last bit out of the switch; credit back.
    let round = T + PROPAGATION * 2 + Span::from_ns(130);
    for k in [1, 2, 5, 27] {
        let windows = 20;
        let n = k * windows;
        for spare in [0, 1, WIRE - 1] {
            let c = lossless(2, u64::from(k * WIRE + spare));
            let net = run(&c, 1, &[Flow::new(0, 1, n, WIRE)]);
            let last_sent = Time::ZERO + round * u64::from(windows - 1) + T * u64::from(k);
            let path = PROPAGATION * 2 + Span::from_ns(130);
            assert_eq!(net.last_arrival(), last_sent + path, "{k} packets, {spare} bytes more");
            let counters = net.fabric.hosts()[0].egress(PORT).counters(last_sent);
            let idle = round.saturating_sub(T * u64::from(k)) * u64::from(windows - 1);
            assert_eq!(counters.blocked, idle, "blocked whenever the line is idle");
        }
    }
}

#[test]
fn a_buffer_of_the_round_trip_keeps_the_line_busy() {
    // Round trip: 2210 ns of 80 ns packets: 27.6 packets.
    let path = PROPAGATION * 2 + Span::from_ns(130);
    let end = |k: u64| {
        let net = run(&lossless(2, k * u64::from(WIRE)), 1, &[Flow::new(0, 1, 1_000, WIRE)]);
        net.last_arrival()
    };
    assert_eq!(end(28), Time::ZERO + T * 1_000 + path);
    assert!(end(27) > Time::ZERO + T * 1_000 + path);
}

#[test]
fn a_held_receive_buffer_pushes_back_until_it_is_emptied() {
    let mut c = FabricConfig::back_to_back(link());
    c.max_packet_bytes = WIRE;
    c.hosts[1].receive = ReceiveBuffer::Lossless { bytes: 2_500, held: true };
    let mut net = Net::new(&c, 1, &[Flow::new(0, 1, 4, WIRE)]);
    while net.step() {}
    assert_eq!(net.ends.len(), 2, "room for two packets, not for two and a half");
    let port = &net.fabric.hosts()[0];
    assert!(port.egress(PORT).is_blocked());
    assert_eq!(port.egress(PORT).credits(Time::MAX), Some(500));
    assert_eq!(net.fabric.hosts()[1].ingress(PORT).occupied_bytes(), 2_000);
    let held = net.fabric.balance().expect("balanced");
    assert_eq!(held.in_flight(), Tally { packets: 2, bytes: 2_000 });
    let before = net.engine.now();
    net.rx_done(1, WIRE);
    while net.step() {}
    let third = before + PROPAGATION + T + PROPAGATION;
    assert_eq!(net.ends.last().map(|e| e.at), Some(third), "credit there, packet back");
    net.rx_done(1, WIRE);
    while net.step() {}
    net.rx_done(1, WIRE);
    net.rx_done(1, WIRE);
    net.run();
    assert_eq!(net.fabric.hosts()[0].egress(PORT).credits(Time::MAX), Some(2_500));
}

#[test]
#[should_panic(expected = "more bytes leave the buffer than came")]
fn emptying_an_empty_buffer_is_an_error() {
    let mut c = FabricConfig::back_to_back(link());
    c.hosts[1].receive = ReceiveBuffer::Lossless { bytes: 10_000, held: true };
    let mut net = Net::new(&c, 1, &[]);
    net.rx_done(1, WIRE);
}

#[test]
fn a_receive_buffer_that_is_not_held_empties_itself() {
    let mut c = FabricConfig::back_to_back(link());
    c.max_packet_bytes = WIRE;
    c.hosts[1].receive = ReceiveBuffer::Lossless { bytes: 1_000, held: false };
    let net = run(&c, 1, &[Flow::new(0, 1, 3, WIRE)]);
    // One packet per serialisation and round trip.
    let round = T + PROPAGATION * 2;
    assert_eq!(net.last_arrival(), Time::ZERO + round * 2 + T + PROPAGATION);
}

#[test]
fn ready_comes_when_few_enough_bytes_wait() {
    let c = FabricConfig::back_to_back(link());
    let mut net = Net::new(&c, 1, &[Flow::new(0, 1, 5, WIRE)]);
    assert!(net.fabric.arm_tx_ready(HostId(0), PORT, 0), "an idle port is ready");
    assert!(net.step(), "five packets: one is sent, four wait");
    assert!(net.fabric.arm_tx_ready(HostId(0), PORT, 4_000), "four wait already");
    assert!(!net.fabric.arm_tx_ready(HostId(0), PORT, 3_999));
    assert!(!net.fabric.arm_tx_ready(HostId(0), PORT, 2_000), "the last call counts");
    net.run();
    assert_eq!(net.ready, [(Time::ZERO + T * 2, HostId(0), PORT)], "once, with two waiting");
}

#[test]
fn a_port_that_was_ready_says_nothing_later() {
    let c = FabricConfig::back_to_back(link());
    let mut net = Net::new(&c, 1, &[Flow::new(0, 1, 3, WIRE)]);
    net.step();
    assert!(net.fabric.arm_tx_ready(HostId(0), PORT, 2_000));
    net.run();
    assert_eq!(net.ready, []);
}

#[test]
fn ready_comes_with_a_credit_too() {
    let mut c = FabricConfig::back_to_back(link());
    c.max_packet_bytes = WIRE;
    c.hosts[1].receive = ReceiveBuffer::Lossless { bytes: 1_000, held: false };
    let mut net = Net::new(&c, 1, &[Flow::new(0, 1, 2, WIRE)]);
    net.step();
    assert!(!net.fabric.arm_tx_ready(HostId(0), PORT, 0));
    net.run();
    assert_eq!(net.ready, [(Time::ZERO + T + PROPAGATION * 2, HostId(0), PORT)]);
}

#[test]
fn a_full_transmit_queue_refuses_and_counts_nothing() {
    let mut c = FabricConfig::back_to_back(link());
    c.max_packet_bytes = WIRE;
    c.hosts[0].tx_queue_bytes = Some(3_000);
    let mut net = Net::new(&c, 1, &[Flow::new(0, 1, 0, WIRE)]);
    for seq in 0..3 {
        assert_eq!(net.send(0, seq, PORT), Ok(()), "exactly the limit fits");
    }
    assert_eq!(net.send(0, 3, PORT), Err(TxQueueFull));
    assert_eq!(net.fabric.hosts()[0].sent(), Tally { packets: 3, bytes: 3_000 });
    net.run();
    assert_eq!(net.send(0, 3, PORT), Ok(()), "room again");
    net.run();
    assert_eq!(net.ends.len(), 4);
    assert_eq!(net.fabric.hosts()[0].egress(PORT).counters(Time::MAX).max_queue_bytes, 3_000);
}

/// Two senders share the receiver's link: no input starves the other.
#[test]
fn a_blocked_receiver_blocks_the_senders_behind_the_switch() {
    let mut c = lossless(3, 4_000);
    c.hosts[0].receive = ReceiveBuffer::Lossless { bytes: 1_000, held: true };
    let mut net = Net::new(&c, 1, &[Flow::new(1, 0, 20, WIRE), Flow::new(2, 0, 20, WIRE)]);
    while net.step() {}
    let b = net.fabric.balance().expect("balanced");
    assert_eq!(b.delivered.packets, 1);
    assert_eq!(b.in_flight().packets, 39);
    for host in [1, 2] {
        let port = net.fabric.hosts()[host].egress(PORT);
        assert!(port.is_blocked(), "host {host} has filled its input buffer");
        let here = net.fabric.switches()[0].ingress(PortId(host as u16)).occupied_bytes();
        assert_eq!(here, 4_000);
    }
    let switch = net.fabric.switches()[0].egress(PORT);
    assert_eq!(switch.waiting_packets(), 8);
    let mut taken = 1;
    while taken < 40 {
        net.rx_done(0, WIRE);
        while net.step() {}
        taken += 1;
        assert_eq!(net.ends.len(), taken);
    }
    net.rx_done(0, WIRE);
    net.run();
    net.assert_fifo();
}
