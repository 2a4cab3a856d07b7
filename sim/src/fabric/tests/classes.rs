//! Traffic classes and ECN marking at ports.

use doorbell_core::units::{BitRate, Ratio, Span, Time};

use super::harness::{AMPLE, Flow, Net, run, star};
use crate::fabric::*;
use crate::wire::codec::Ecn;
use crate::wire::{HostId, PortId};

const WIRE: u32 = 1_000;
/// Serialisation of one packet.
const T: Span = Span::from_ps(1_000 * 80);

fn network(hosts: u32, each: Vec<ClassConfig>) -> FabricConfig {
    let link = Link::new(BitRate::gbps(100), Span::from_ns(1_000));
    let mut c = star(hosts, link, Forwarding::CutThrough, AMPLE);
    c.max_packet_bytes = WIRE;
    c.classes = Classes::by_level(each);
    c
}

fn class(service: Service) -> ClassConfig {
    ClassConfig { service, ..ClassConfig::default() }
}

fn flow(src: u32, dst: u32, packets: u32, sl: u8) -> Flow {
    Flow { sl, ..Flow::new(src, dst, packets, WIRE) }
}

#[test]
fn a_strict_class_passes_the_others_at_the_host_and_at_the_switch() {
    let c = network(3, vec![class(Service::Weighted(1)), class(Service::Strict)]);
    // At the host: the packet being sent is finished, then everything strict goes first.
    let net = run(&c, 1, &[flow(0, 1, 50, 0), flow(0, 1, 10, 1)]);
    let path = Span::from_ns(2_000 + 130);
    assert_eq!(net.arrivals(1).last(), Some(&(Time::ZERO + T * 11 + path)));
    assert_eq!(net.last_arrival(), Time::ZERO + T * 60 + path, "and nothing is lost by it");
    // At the switch: two senders, the strict one is not slowed down.
    let net = run(&c, 1, &[flow(0, 2, 50, 0), flow(1, 2, 50, 1)]);
    let alone = run(&c, 1, &[flow(1, 2, 50, 1)]).last_arrival();
    assert!(net.arrivals(1).last().expect("arrives").since(alone) <= T);
    net.assert_fifo();
}

#[test]
fn weights_share_a_contested_port() {
    let c = network(3, vec![class(Service::Weighted(1)), class(Service::Weighted(3))]);
    let net = run(&c, 1, &[flow(0, 2, 400, 0), flow(1, 2, 300, 1)]);
    // While both have something to send, one packet in four is of class 0.
    let end = *net.arrivals(1).last().expect("arrives");
    let before = net.arrivals(0).iter().filter(|at| **at <= end).count();
    assert!((98..=102).contains(&before), "{before} beside 300");
    let path = Span::from_ns(2_000 + 130);
    assert_eq!(net.last_arrival(), Time::ZERO + T * 700 + path, "the port is never idle");
}

/// One class or several of equal weight of which one is used: the same run.
#[test]
fn an_unused_class_changes_nothing() {
    let flows = [flow(0, 2, 100, 0), flow(1, 2, 100, 0)];
    let one = run(&network(3, vec![ClassConfig::default()]), 3, &flows);
    let two = run(&network(3, vec![ClassConfig::default(); 2]), 3, &flows);
    assert_eq!(one.ends, two.ends);
}

/// A class whose head is too large for the room at the far end does not hold back another.
#[test]
fn a_class_that_must_wait_does_not_block_another() {
    let mut c = network(2, vec![class(Service::Weighted(1)); 2]);
    c.hosts[1].receive = ReceiveBuffer::Lossless { bytes: 1_000, held: true };
    let small = Flow { wire_bytes: 400, ..flow(0, 1, 1, 1) };
    let mut net = Net::new(&c, 1, &[Flow { wire_bytes: 600, ..flow(0, 1, 1, 0) }, small]);
    while net.step() {}
    assert_eq!(net.ends.len(), 2, "600 + 400 bytes fit");
    let mut net = Net::new(&c, 1, &[flow(0, 1, 0, 0), small]);
    net.send(0, 0, PortId(0)).expect("no limit");
    net.send(0, 1, PortId(0)).expect("no limit");
    while net.step() {}
    assert_eq!(net.ends.len(), 1, "1000 bytes, then nothing fits");
    let port = &net.fabric.switches()[0].egress(PortId(1));
    assert!(port.is_blocked());
    assert_eq!((port.waiting_bytes_of(0), port.waiting_bytes_of(1)), (1_000, 400));
}

#[test]
fn levels_beyond_the_classes_are_in_class_0() {
    let c = network(2, vec![ClassConfig::default(); 3]);
    let net = Net::new(&c, 1, &[]);
    let host = &net.fabric.hosts()[0];
    let classes: Vec<_> = (0..16).map(|sl| host.class_of(sl)).collect();
    assert_eq!(classes, [0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(net.fabric.hosts()[0].egress(PortId(0)).waiting_bytes_of(2), 0);
    assert_eq!(host.id().0, HostId(0).0);
}

/// Two line-rate senders fill the queue by one packet per two arrivals. With a step at k bytes,
/// the packets that find more than k bytes are marked, and no others.
#[test]
fn marks_at_enqueue_follow_the_queue_exactly() {
    let step = |at| EcnConfig { kmin: 10_000, kmax: 10_000, pmax: Ratio { num: 1, den: 1 }, at };
    let mut c = network(
        3,
        vec![ClassConfig { ecn: Some(step(MarkAt::Enqueue)), ..class(Service::Strict) }],
    );
    let run = |c: &FabricConfig| {
        let mut net = Net::new(c, 1, &[flow(0, 2, 100, 0), flow(1, 2, 100, 0)]);
        let mut marked = Vec::new();
        loop {
            let before = net.ends.len();
            let ecn: Vec<_> = net.packets.iter().map(|(id, p)| (id, p.ecn)).collect();
            if !net.step() {
                break;
            }
            if net.ends.len() > before {
                let gone = |id: &u32| net.packets.get(*id).is_none();
                let end = ecn.iter().find(|(id, _)| gone(id)).expect("it was there");
                marked.push(end.1 == Ecn::Ce);
            }
        }
        net.run();
        (net, marked)
    };
    let (net, marked) = run(&c);
    // Packet n (from 0) is sent at n·T; when it comes, n/2 have left. It waits behind n/2 - 1
    // whole packets: of those that arrive in pairs the second finds one more.
    let port = net.fabric.switches()[0].egress(PortId(2));
    let count = marked.iter().filter(|m| **m).count() as u64;
    assert_eq!(port.counters(Time::MAX).marked, count);
    assert_eq!(port.marked(0), count);
    let first = marked.iter().position(|m| *m).expect("a mark");
    assert!((22..=24).contains(&first), "10 wait and one is sent from packet 23 on: {first}");
    assert!(marked[first + 2..].iter().all(|m| *m), "the queue only grows");
    // At dequeue the queue that is left behind counts: it grows, and then empties.
    c.classes.each[0].ecn = Some(step(MarkAt::Dequeue));
    let (_, marked) = run(&c);
    let last = marked.iter().rposition(|m| *m).expect("a mark");
    assert_eq!(last, 200 - 1 - 11, "the first that leaves 10 packets behind");
    assert!(marked[..10].iter().all(|m| !m));
}

#[test]
fn classes_and_curves_are_checked() {
    let refused = |each: Vec<ClassConfig>| {
        let e = Fabric::new(&network(2, each), 1).expect_err("illegal");
        assert!(!e.to_string().is_empty());
        e
    };
    let fine = |each| assert!(Fabric::new(&network(2, each), 1).is_ok());
    fine(vec![ClassConfig::default(); MAX_CLASSES]);
    let many = vec![ClassConfig::default(); MAX_CLASSES + 1];
    assert_eq!(refused(many), ConfigError::ClassCount { classes: 9 });
    assert_eq!(refused(vec![]), ConfigError::ClassCount { classes: 0 });
    fine(vec![class(Service::Weighted(1))]);
    assert_eq!(refused(vec![class(Service::Weighted(0))]), ConfigError::NoWeight { class: 0 });
    let ecn = |kmin, kmax| {
        let curve = EcnConfig { kmin, kmax, ..EcnConfig::default() };
        vec![ClassConfig::default(), ClassConfig { ecn: Some(curve), ..ClassConfig::default() }]
    };
    let room = 1 << 40;
    fine(ecn(room, room));
    let error = EcnError::KmaxAboveBuffer { kmax: room + 1, buffer: room };
    assert_eq!(refused(ecn(0, room + 1)), ConfigError::Ecn { class: 1, switch: Some(0), error });
    let error = EcnError::KminAboveKmax { kmin: 2, kmax: 1 };
    assert_eq!(refused(ecn(2, 1)), ConfigError::Ecn { class: 1, switch: None, error });
    let mut c = network(2, vec![ClassConfig::default()]);
    c.classes.of_sl[15] = 1;
    let e = Fabric::new(&c, 1).expect_err("no class 1");
    assert_eq!(e, ConfigError::NoSuchClass { sl: 15, class: 1 });
}

/// A spine of two ports holds less than a leaf of three: the curve is checked at each of them, the
/// one that is too small is named, and one with a curve of its own is not in the way.
#[test]
fn a_curve_is_checked_at_each_switch_that_has_it() {
    let link = Link::new(BitRate::gbps(100), Span::from_ns(100));
    let blocks = 1_024;
    let switch = SwitchConfig { buffering: Buffering::Credits { blocks }, ..Default::default() };
    let (hosts_per_leaf, links_per_pair) = (2, 1);
    let (host_link, spine_link) = (link, link);
    let shape = LeafSpine {
        leaves: 2,
        hosts_per_leaf,
        spines: 1,
        links_per_pair,
        host_link,
        spine_link,
        switch,
    };
    let mut c = shape.config().expect("a network");
    let curve = |kmax| EcnConfig { kmin: 10, kmax, ..EcnConfig::default() };
    let mut with = |kmax, ecn_exceptions| {
        c.classes.each[0].ecn = Some(curve(kmax));
        c.ecn_exceptions = ecn_exceptions;
        Fabric::new(&c, 1).map(|_| ())
    };
    let port = u64::from(blocks) * 64;
    assert_eq!(with(2 * port, vec![]), Ok(()));
    let spine = EcnError::KmaxAboveBuffer { kmax: 2 * port + 1, buffer: 2 * port };
    let e = with(2 * port + 1, vec![]).expect_err("too much for the spine");
    assert_eq!(e, ConfigError::Ecn { class: 0, switch: Some(2), error: spine });
    assert!(e.to_string().starts_with("class 0 at switch 2: "), "{e}");
    let port_bytes = port;
    let own = |port| vec![EcnException { switch: 2, port, ecn: Some(curve(port_bytes)) }];
    assert_eq!(with(3 * port, own(None)), Ok(()), "the leaves take it");
    let error = EcnError::KmaxAboveBuffer { kmax: 3 * port + 1, buffer: 3 * port };
    let leaf = ConfigError::Ecn { class: 0, switch: Some(0), error };
    assert_eq!(with(3 * port + 1, own(None)), Err(leaf));
    let one = with(3 * port, own(Some(PortId(0))));
    assert!(
        matches!(one, Err(ConfigError::Ecn { switch: Some(2), .. })),
        "its other port: {one:?}"
    );
}

#[test]
fn classes_are_counted_apart_and_add_up() {
    let mut c = network(4, vec![class(Service::Weighted(1)), class(Service::Strict)]);
    let room = 20 * u64::from(WIRE);
    c.switches[0].buffering = Buffering::TailDrop { port_bytes: room };
    let net = run(&c, 1, &[flow(0, 3, 100, 0), flow(1, 3, 100, 0), flow(2, 3, 30, 1)]);
    let port = net.fabric.switches()[0].egress(PortId(3));
    let (all, end) = (port.counters(net.engine.now()), 2);
    let of = |class| port.class_counters(class).expect("two classes");
    let sum = (0..end).map(of).fold(Tally::default(), |sum, c| sum.plus(c.sent));
    assert_eq!(sum, all.sent);
    let lost = (0..end).map(of).fold(Tally::default(), |sum, c| sum.plus(c.dropped));
    assert_eq!(lost, all.dropped.total());
    assert!(of(0).dropped.packets > 0, "two senders of the lower class pass the room");
    assert!(of(0).max_waiting_bytes + of(1).max_waiting_bytes >= room - u64::from(WIRE));
    assert!(of(0).max_waiting_bytes < room, "the packet being sent does not wait");
    assert_eq!(port.class_counters(end), None, "no such class");
    let one = network(2, vec![ClassConfig::default()]);
    let net = run(&one, 1, &[flow(0, 1, 1, 0)]);
    let port = net.fabric.switches()[0].egress(PortId(1));
    assert_eq!(port.class_counters(0), None, "one class is the port");
}

/// An exception takes the place of the curve of a class that is marked, at its switch or port; of
/// several the last one counts.
#[test]
fn exceptions_of_marking_are_those_of_their_ports() {
    let curve = EcnConfig { kmin: 10, kmax: 20, ..EcnConfig::default() };
    let marked = ClassConfig { ecn: Some(EcnConfig::default()), ..ClassConfig::default() };
    let mut c = network(3, vec![ClassConfig::default(), marked]);
    let of = |port: Option<u16>, ecn| EcnException { switch: 0, port: port.map(PortId), ecn };
    c.ecn_exceptions = vec![of(None, None), of(Some(1), Some(curve)), of(Some(2), None)];
    let curves = |c: &FabricConfig| {
        let fabric = Fabric::new(c, 1).expect("legal");
        let port = |p| fabric.switches()[0].egress(PortId(p));
        [0, 1, 2].map(|p| [port(p).curve(0), port(p).curve(1)])
    };
    assert_eq!(curves(&c), [[None, None], [None, Some(curve)], [None, None]]);
    c.ecn_exceptions.clear();
    assert_eq!(curves(&c), [[None, Some(EcnConfig::default())]; 3]);
    let mut refused = |e| {
        c.ecn_exceptions = vec![of(None, None), e];
        Fabric::new(&c, 1).expect_err("illegal")
    };
    assert_eq!(refused(of(Some(3), None)), ConfigError::BadException { exception: 1 });
    let elsewhere = EcnException { switch: 1, port: None, ecn: None };
    assert_eq!(refused(elsewhere), ConfigError::BadException { exception: 1 });
    let error = EcnError::KminAboveKmax { kmin: 21, kmax: 20 };
    let e = refused(of(None, Some(EcnConfig { kmin: 21, ..curve })));
    assert_eq!(e, ConfigError::EcnException { exception: 1, error });
    assert!(e.to_string().starts_with("ECN exception 1: "), "{e}");
}
