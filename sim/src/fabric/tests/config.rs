//! What is refused before anything is built, and the routes that come out.

use doorbell_core::units::{BitRate, Span};

use super::harness::{Flow, Net, run};
use crate::fabric::*;
use crate::wire::{HostId, PortId};

fn link() -> Link {
    Link::with_length_mm(BitRate::gbps(100), 2_000)
}

fn star(hosts: u32) -> FabricConfig {
    FabricConfig::single_switch(hosts, link(), SwitchConfig::default())
}

fn refused(c: &FabricConfig) -> ConfigError {
    let e = Fabric::new(c, 1).expect_err("an illegal configuration");
    assert!(!e.to_string().is_empty());
    e
}

fn join(a: End, b: End) -> LinkConfig {
    LinkConfig { a, b, link: link() }
}

#[test]
fn delay_of_zero_is_refused_and_one_picosecond_is_not() {
    let mut c = star(3);
    c.links[1].link.propagation = Span::ZERO;
    assert_eq!(refused(&c), ConfigError::ZeroDelay { link: 1 });
    c.links[1].link.propagation = Span::from_ps(1);
    assert!(Fabric::new(&c, 1).is_ok());
}

#[test]
fn links_must_join_two_nodes_that_exist() {
    let mut c = star(2);
    c.links.push(join(End::Host(1), End::Switch(1)));
    assert_eq!(refused(&c), ConfigError::UnknownNode { link: 2, end: End::Switch(1) });
    c.links[2] = join(End::Host(2), End::Switch(0));
    assert_eq!(refused(&c), ConfigError::UnknownNode { link: 2, end: End::Host(2) });
    c.links[2] = join(End::Switch(0), End::Switch(0));
    assert_eq!(refused(&c), ConfigError::SelfLink { link: 2 });
}

#[test]
fn every_host_must_reach_every_other() {
    let mut c = star(2);
    c.hosts.push(HostConfig::default());
    assert_eq!(refused(&c), ConfigError::Unconnected { host: 2 });
    c.switches.push(SwitchConfig::default());
    c.links.push(join(End::Host(2), End::Switch(1)));
    assert_eq!(refused(&c), ConfigError::Unreachable { from: 0, to: 2 });
    c.links.push(join(End::Switch(1), End::Switch(0)));
    assert!(Fabric::new(&c, 1).is_ok());
    c.links.pop();
    // Host 0 has a port at each; host 1 is still apart from host 2, and hosts do not forward.
    c.links.push(join(End::Host(0), End::Switch(1)));
    assert_eq!(refused(&c), ConfigError::Unreachable { from: 1, to: 2 });
    // A cable of their own joins them.
    c.links.push(join(End::Host(1), End::Host(2)));
    assert!(Fabric::new(&c, 1).is_ok());
}

#[test]
fn two_cables_are_two_networks() {
    let mut c = FabricConfig::back_to_back(link());
    c.hosts.resize(4, HostConfig::default());
    c.links.push(join(End::Host(3), End::Host(2)));
    assert_eq!(refused(&c), ConfigError::Unreachable { from: 0, to: 2 });
    for (a, b) in [(0, 2), (0, 3), (1, 2), (1, 3)] {
        c.links.push(join(End::Host(a), End::Host(b)));
    }
    assert!(Fabric::new(&c, 1).is_ok());
}

#[test]
fn buffers_hold_the_largest_packet() {
    let needed = DEFAULT_MAX_PACKET_BYTES;
    let size = u64::from(needed);
    type Set = fn(&mut FabricConfig, u64);
    let sets: [(End, Set); 4] = [
        (End::Switch(0), |c, n| c.switches[0].buffering = Buffering::TailDrop { port_bytes: n }),
        (End::Switch(0), |c, n| c.switches[0].buffering = Buffering::Lossless { port_bytes: n }),
        (End::Host(1), |c, n| c.hosts[1].tx_queue_bytes = Some(n)),
        (End::Host(1), |c, n| {
            c.hosts[1].receive = ReceiveBuffer::Lossless { bytes: n, held: false };
        }),
    ];
    for (node, set) in sets {
        let mut c = star(2);
        set(&mut c, size);
        assert!(Fabric::new(&c, 1).is_ok());
        set(&mut c, size - 1);
        let bytes = size - 1;
        assert_eq!(refused(&c), ConfigError::BufferTooSmall { node, bytes, needed });
    }
}

/// Equal parts of a shared buffer: a lossy queue holds one part. Of a lossless class nothing is
/// dropped at the output, unless it comes by a link that knows no pauses.
#[test]
fn a_lossy_share_holds_the_largest_packet() {
    let needed = DEFAULT_MAX_PACKET_BYTES;
    let of = |share: u64, lossless: bool, pfc: bool| {
        let mut c = star(2);
        let (sharing, headroom) = (Sharing::Static, Headroom::Bytes(0));
        let total_bytes = 2 * share;
        let shared = SharedConfig { total_bytes, sharing, headroom, ..SharedConfig::default() };
        c.switches[0].buffering = Buffering::Shared(shared);
        c.classes = Classes::one(ClassConfig { lossless, ..ClassConfig::default() });
        c.links[1].link.pfc = pfc;
        c
    };
    let enough = u64::from(needed);
    for (lossless, pfc, drops) in [(false, true, true), (true, false, true), (true, true, false)] {
        assert!(Fabric::new(&of(enough, lossless, pfc), 1).is_ok());
        let c = of(enough - 1, lossless, pfc);
        match drops {
            true => {
                let (node, share) = (End::Switch(0), enough - 1);
                assert_eq!(
                    refused(&c),
                    ConfigError::ShareTooSmall { node, class: 0, share, needed }
                );
            }
            false => assert!(Fabric::new(&c, 1).is_ok()),
        }
    }
    // A link that takes no larger packet than the share.
    let mut c = of(enough - 1, false, true);
    c.links.iter_mut().for_each(|l| l.link = l.link.up_to(needed - 1));
    assert!(Fabric::new(&c, 1).is_ok());
}

#[test]
fn empty_networks_and_packets_are_refused() {
    assert_eq!(refused(&star(0)), ConfigError::NoHosts);
    let mut c = star(1);
    c.max_packet_bytes = 0;
    assert_eq!(refused(&c), ConfigError::NoPacketSize);
}

#[test]
fn ports_are_counted_to_their_limit() {
    let mut c = star(2);
    let cable = join(End::Host(0), End::Switch(0));
    c.links.resize(usize::from(u16::MAX), cable);
    c.noise = Noise::Off;
    assert!(Fabric::new(&c, 1).is_ok());
    c.links.push(cable);
    assert_eq!(refused(&c), ConfigError::TooManyPorts { node: End::Switch(0) });
}

#[test]
#[should_panic(expected = "a packet of 4225 bytes where the largest has 4224")]
fn a_packet_above_the_largest_is_an_error_of_the_caller() {
    let mut net = Net::new(&star(2), 1, &[Flow::new(0, 1, 0, 4_225)]);
    let _ = net.send(0, 0, PortId(0));
}

#[test]
fn a_packet_of_the_largest_size_goes() {
    run(&star(2), 1, &[Flow::new(0, 1, 1, 4_224)]);
}

/// Two leaves with two hosts each and two spines between them.
fn leaf_spine() -> FabricConfig {
    let mut c = star(0);
    c.hosts = vec![HostConfig::default(); 4];
    c.switches = vec![SwitchConfig::default(); 4];
    for h in 0..4 {
        c.links.push(join(End::Host(h), End::Switch(h / 2)));
    }
    for leaf in 0..2 {
        for spine in 2..4 {
            c.links.push(join(End::Switch(leaf), End::Switch(spine)));
        }
    }
    c
}

#[test]
fn routes_take_the_shortest_way_and_spread_by_destination() {
    let f = Fabric::new(&leaf_spine(), 1).expect("legal");
    let port = |switch: usize, host| {
        f.switches()[switch].routes().port(HostId(host), PortId(0)).map(|p| p.0)
    };
    // Leaf 0: hosts at ports 0 and 1, spines at 2 and 3.
    assert_eq!([0, 1, 2, 3].map(|h| port(0, h)), [Some(0), Some(1), Some(2), Some(3)]);
    assert_eq!([0, 1, 2, 3].map(|h| port(1, h)), [Some(2), Some(3), Some(0), Some(1)]);
    for spine in [2, 3] {
        assert_eq!([0, 1, 2, 3].map(|h| port(spine, h)), [Some(0), Some(0), Some(1), Some(1)]);
    }
    assert_eq!(f.switches()[0].routes().port(HostId(4), PortId(0)), None);
    assert_eq!(f.switches()[0].routes().port(HostId(0), PortId(1)), None);
}

#[test]
fn every_pair_gets_its_packets() {
    let mut flows = Vec::new();
    for src in 0..4 {
        for dst in (0..4).filter(|d| *d != src) {
            flows.push(Flow::new(src, dst, 20, 1_082));
        }
    }
    let net = run(&leaf_spine(), 5, &flows);
    assert!((0..12).all(|f| net.arrivals(f).len() == 20));
    net.assert_fifo();
}

#[test]
fn a_static_route_replaces_the_computed_one() {
    let mut c = leaf_spine();
    let (host, host_port) = (HostId(2), PortId(0));
    c.routes.push(StaticRoute { switch: 0, host, host_port, out: PortId(3) });
    let f = Fabric::new(&c, 1).expect("legal");
    assert_eq!(f.switches()[0].routes().port(host, host_port), Some(PortId(3)));
    let net = run(&c, 1, &[Flow::new(0, 2, 9, 1_082)]);
    let spine = &net.fabric.switches()[3];
    assert_eq!(spine.ingress(PortId(0)).received().packets, 9);
}

#[test]
fn static_routes_that_go_astray_are_refused() {
    let (host, host_port) = (HostId(2), PortId(0));
    let with = |routes: &[(u32, u16)]| {
        let mut c = leaf_spine();
        c.routes.extend(routes.iter().map(|&(switch, out)| StaticRoute {
            switch,
            host,
            host_port,
            out: PortId(out),
        }));
        c
    };
    // Leaf 0 sends to spine 2, which sends back.
    let missed = |switch| ConfigError::RouteMisses { switch, host, host_port };
    assert_eq!(refused(&with(&[(2, 0)])), missed(0));
    // Leaf 1 gives it to its other host.
    assert_eq!(refused(&with(&[(1, 1)])), missed(0));
    assert_eq!(refused(&with(&[(9, 1)])), ConfigError::BadRoute { route: 0 });
    assert_eq!(refused(&with(&[(0, 3), (1, 9)])), ConfigError::BadRoute { route: 1 });
    let mut c = leaf_spine();
    let host = HostId(4);
    c.routes.push(StaticRoute { switch: 0, host, host_port, out: PortId(0) });
    assert_eq!(refused(&c), ConfigError::BadRoute { route: 0 });
}

/// A triangle of switches: the neighbour as far from the destination is no way to it.
#[test]
fn routes_never_go_sideways() {
    let mut c = star(0);
    c.hosts = vec![HostConfig::default(); 3];
    c.switches = vec![SwitchConfig::default(); 3];
    for i in 0..3 {
        c.links.push(join(End::Host(i), End::Switch(i)));
        c.links.push(join(End::Switch(i), End::Switch((i + 1) % 3)));
    }
    let f = Fabric::new(&c, 1).expect("legal");
    for (s, node) in f.switches().iter().enumerate() {
        for host in (0..3).filter(|h| *h != s) {
            let out = node.routes().port(HostId(host as u32), PortId(0)).expect("a route");
            let (peer, _) = node.egress(out).peer();
            assert_eq!(peer.index(), 3 + host, "from switch {s} to host {host}");
        }
    }
}

/// Two rails: port 0 of each host at switch 0, port 1 at switch 1.
#[test]
fn each_port_of_a_host_is_an_address() {
    let mut c = star(3);
    c.switches.push(SwitchConfig::default());
    c.links.extend((0..3).map(|h| join(End::Host(h), End::Switch(1))));
    let f = Fabric::new(&c, 1).expect("legal");
    for h in 0..3 {
        for rail in 0..2 {
            let to = |switch: u16| f.switches()[usize::from(switch)].routes();
            let here = to(rail).port(HostId(h), PortId(rail));
            assert_eq!(here, Some(PortId(h as u16)));
            assert_eq!(to(1 - rail).port(HostId(h), PortId(rail)), None, "rails are apart");
        }
    }
}
