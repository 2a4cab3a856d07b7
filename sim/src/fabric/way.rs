//! What the packets of a flow meet on their way when nobody else is there.

use std::collections::BTreeMap;

use doorbell_core::units::{BitRate, Span};

use super::Fabric;
use super::egress::EgressPort;
use crate::wire::{HostId, NodeId, PortId, five_tuple_of};

/// One step of a way: a link, or all those side by side among which switches choose by load.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Hop {
    /// The output port at its beginning, of several the first.
    pub from: (NodeId, PortId),
    /// Rate of the link, of several that of the fastest.
    pub rate: BitRate,
    /// Rate of all links side by side, which packets may spread over.
    pub all: BitRate,
    /// Propagation, and the transit of the switch at its end; of several the least.
    pub delay: Span,
    /// Whether the switch at its end forwards a packet from its first bit on; of several, whether
    /// one does.
    pub cut_through: bool,
}

impl Hop {
    /// With another link beside it.
    fn beside(self, other: Self) -> Self {
        let all = self.all.as_bps().saturating_add(other.all.as_bps());
        Self {
            from: self.from,
            rate: if other.rate.as_bps() > self.rate.as_bps() { other.rate } else { self.rate },
            all: BitRate::new(all).unwrap_or(self.all),
            delay: self.delay.min(other.delay),
            cut_through: self.cut_through || other.cut_through,
        }
    }
}

/// What a switch does with the packets of a flow.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Turn {
    /// The switch, from 0.
    pub switch: u32,
    /// The port by which they leave.
    pub port: PortId,
    /// Equally short ways among which it chose.
    pub ways: usize,
}

/// Most links that a way is followed: static routes may lead in a circle.
const MAX_HOPS: usize = 64;

impl Fabric {
    /// The output port at which a way begins; `None` unless there is a port at both of its ends.
    fn first_port(&self, from: (HostId, PortId), to: (HostId, PortId)) -> Option<&EgressPort> {
        let there = |(host, port): (HostId, PortId)| {
            self.hosts.get(host.index()).filter(|h| port.index() < h.ports())
        };
        there(to).and_then(|_| there(from)).map(|sender| sender.egress(from.1))
    }

    /// The links from a port of one host to a port of another that packets with a UDP source port
    /// take: at each switch the way that its rule gives them; where it goes by load, all ways,
    /// since packets spread over them. `None` without a way.
    pub fn way(
        &self,
        from: (HostId, PortId),
        to: (HostId, PortId),
        udp_source_port: u16,
    ) -> Option<Vec<Hop>> {
        let tuple = five_tuple_of(from, to, udp_source_port);
        let (mut hops, mut ports) = (Vec::new(), vec![self.first_port(from, to)?]);
        while hops.len() < MAX_HOPS {
            hops.push(ports.iter().map(|p| p.hop()).reduce(Hop::beside)?);
            let mut nodes: Vec<usize> = ports.iter().map(|p| p.peer().0.index()).collect();
            nodes.sort_unstable();
            nodes.dedup();
            if nodes.contains(&to.0.index()) {
                return Some(hops);
            }
            ports.clear();
            for node in nodes {
                let switch = self.switches.get(node.checked_sub(self.hosts.len())?)?;
                let outputs = switch.outputs(to, tuple).iter();
                ports.extend(outputs.map(|p| -> &EgressPort { switch.egress(*p) }));
            }
        }
        None
    }

    /// What the switches do with the packets that one port sends to another from a UDP source
    /// port, in order. It ends before a switch that chooses by load, and where there is no route.
    pub fn turns(
        &self,
        from: (HostId, PortId),
        to: (HostId, PortId),
        udp_source_port: u16,
    ) -> Vec<Turn> {
        let tuple = five_tuple_of(from, to, udp_source_port);
        let mut turns = Vec::new();
        let Some(first) = self.first_port(from, to) else { return turns };
        let mut node = first.peer().0.index();
        while turns.len() < MAX_HOPS
            && let Some(switch) = node.checked_sub(self.hosts.len())
            && let Some((port, ways)) = self.switches[switch].turn(to, tuple)
        {
            turns.push(Turn { switch: switch as u32, port, ways });
            node = self.switches[switch].egress(port).peer().0.index();
        }
        turns
    }
}

/// Time from the first bit of `bytes` in packets of at most `packet` bytes, all counted on the
/// wire, to the arrival of their last bit: one packet goes all the way, and the slowest step
/// carries the others behind it. Exact for packets of one size on one way, else within one packet.
pub fn time_alone(hops: &[Hop], bytes: u64, packet: u64) -> Span {
    time_over(hops, packet.min(bytes), |_| bytes)
}

/// As [`time_alone`], for parts of a transfer that go at once, each with its way and its bytes:
/// a link that several of them take carries the bytes of all.
pub fn times_alone(parts: &[(Vec<Hop>, u64)], packet: u64) -> Vec<Span> {
    let mut load: BTreeMap<(NodeId, PortId), u64> = BTreeMap::new();
    for (hops, bytes) in parts {
        for hop in hops {
            *load.entry(hop.from).or_default() += bytes;
        }
    }
    let of = |(hops, bytes): &(Vec<Hop>, u64)| {
        time_over(hops, packet.min(*bytes), |hop| load[&hop.from])
    };
    parts.iter().map(of).collect()
}

/// The step that works longest, and the latency of a packet.
fn time_over(hops: &[Hop], packet: u64, load: impl Fn(&Hop) -> u64) -> Span {
    let works = hops.iter().map(|hop| hop.all.time_for(load(hop) - packet)).max();
    works.unwrap_or(Span::ZERO) + latency(hops, packet)
}

/// Time from the first bit of a packet at its source to the arrival of its last one. A cut-through
/// switch lets it pass to a link that is no faster than the one it comes by, and stores it before a
/// faster one: so each slow link behind a fast one takes the packet's time anew.
fn latency(hops: &[Hop], packet: u64) -> Span {
    let (mut first, mut last) = (Span::ZERO, Span::ZERO);
    for (i, hop) in hops.iter().enumerate() {
        last = first + hop.rate.time_for(packet) + hop.delay;
        let no_faster = |next: &Hop| next.rate.as_bps() <= hop.rate.as_bps();
        let passes = hop.cut_through && hops.get(i + 1).is_some_and(no_faster);
        first = if passes { first + hop.delay } else { last };
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::{
        End, FabricConfig, FatTree, Forwarding, HashSeed, LeafSpine, Link, LinkConfig, Routing,
        SwitchConfig,
    };

    fn switch(forwarding: Forwarding) -> SwitchConfig {
        SwitchConfig { forwarding, transit: Span::ZERO, ..SwitchConfig::default() }
    }

    fn link() -> Link {
        Link::new(BitRate::gbps(100), Span::from_ns(1_000))
    }

    fn fabric(c: &FabricConfig) -> Fabric {
        Fabric::new(c, 1).unwrap()
    }

    #[test]
    fn ways_are_as_long_as_the_shape_says() {
        let c = LeafSpine {
            leaves: 2,
            hosts_per_leaf: 2,
            spines: 2,
            links_per_pair: 1,
            host_link: link(),
            spine_link: link(),
            switch: switch(Forwarding::StoreAndForward),
        };
        let f = fabric(&c.config().unwrap());
        let hops = |a, b| f.way((HostId(a), PortId(0)), (HostId(b), PortId(0)), 0).unwrap().len();
        assert_eq!((hops(0, 1), hops(0, 2), hops(3, 0)), (2, 4, 4));
        let switch = switch(Forwarding::CutThrough);
        let c = FatTree { k: 4, host_link: link(), switch_link: link(), switch };
        let f = fabric(&c.config().unwrap());
        let hops = |a, b| f.way((HostId(a), PortId(0)), (HostId(b), PortId(0)), 0).unwrap().len();
        assert_eq!((hops(0, 1), hops(0, 2), hops(0, 15)), (2, 4, 6));
        assert_eq!(
            f.way((HostId(0), PortId(0)), (HostId(16), PortId(0)), 0),
            None,
            "there is no such host"
        );
    }

    /// The first leaf chooses, a spine has one way down; a flow keeps its way, others have others.
    #[test]
    fn turns_are_those_of_the_hash_and_end_where_the_load_decides() {
        let c = LeafSpine {
            leaves: 2,
            hosts_per_leaf: 2,
            spines: 2,
            links_per_pair: 1,
            host_link: link(),
            spine_link: link(),
            switch: switch(Forwarding::CutThrough),
        };
        let turns = |routing, to, port| {
            let f = fabric(&FabricConfig { routing, ..c.config().unwrap() });
            f.turns((HostId(0), PortId(0)), (HostId(to), PortId(0)), port)
        };
        let hash = Routing::Ecmp(HashSeed::PerSwitch);
        let flow = |port| {
            let t = turns(hash, 2, port);
            assert_eq!(t.iter().map(|t| t.ways).collect::<Vec<_>>(), [2, 1, 1]);
            assert_eq!((t[0].switch, t[2].switch), (0, 1));
            t[1].switch
        };
        let spines: Vec<u32> = (0xC000..0xC010).map(flow).collect();
        assert!(spines.contains(&2) && spines.contains(&3), "{spines:?}");
        assert_eq!(turns(hash, 1, 0xC000).len(), 1, "below the same leaf");
        assert_eq!(turns(Routing::Adaptive, 2, 0xC000), []);
        assert_eq!(turns(Routing::Adaptive, 1, 0xC000).len(), 1);
        assert_eq!(turns(hash, 4, 0xC000), [], "there is no such host");
    }

    /// Two switches, joined by a fast and a slow way of three switches each.
    fn two_ways(routing: Routing) -> Fabric {
        let s = switch(Forwarding::StoreAndForward);
        let slow = Link::new(BitRate::gbps(10), Span::from_ns(1_000));
        let cable = |a, b, link| LinkConfig { a, b, link };
        let (h, w) = (End::Host, End::Switch);
        let links = vec![
            cable(h(0), w(0), link()),
            cable(h(1), w(3), link()),
            cable(w(0), w(1), link()),
            cable(w(1), w(3), link()),
            cable(w(0), w(2), slow),
            cable(w(2), w(3), slow),
        ];
        fabric(&FabricConfig { routing, ..FabricConfig::of(2, vec![s; 4], links) })
    }

    /// The way is the one that packets take: each flow's hash, or all ways at once.
    #[test]
    fn a_way_is_that_of_the_flow_and_by_load_all_of_them() {
        let rates = |f: &Fabric, port| {
            let way = f.way((HostId(0), PortId(0)), (HostId(1), PortId(0)), port).unwrap();
            way.iter().map(|h| h.all.as_bps() / 1_000_000_000).collect::<Vec<_>>()
        };
        let f = two_ways(Routing::Ecmp(HashSeed::PerSwitch));
        let mut seen = [false; 2];
        for port in 0xC000..0xC010 {
            let turns = f.turns((HostId(0), PortId(0)), (HostId(1), PortId(0)), port);
            let slow = turns[1].switch == 2;
            seen[usize::from(slow)] = true;
            let between = if slow { 10 } else { 100 };
            assert_eq!(rates(&f, port), [100, between, between, 100]);
        }
        assert_eq!(seen, [true; 2]);
        // Host 1 takes the second of two ways.
        assert_eq!(rates(&two_ways(Routing::Destination), 0), [100, 10, 10, 100]);
        let f = two_ways(Routing::Adaptive);
        assert_eq!(rates(&f, 0), [100, 110, 110, 100]);
        let way = f.way((HostId(0), PortId(0)), (HostId(1), PortId(0)), 0).unwrap();
        assert_eq!(way[1].rate, BitRate::gbps(100), "the fastest");
    }

    /// A link that two parts share carries both; what they have alone carries one.
    #[test]
    fn parts_of_a_transfer_share_the_links_that_both_take() {
        let f = two_ways(Routing::Ecmp(HashSeed::PerSwitch));
        let way = |port| f.way((HostId(0), PortId(0)), (HostId(1), PortId(0)), port).unwrap();
        let of = |gbps| (0xC000..0xC010).map(way).find(|w| w[1].rate == BitRate::gbps(gbps));
        let (fast, slow) = (of(100).unwrap(), of(10).unwrap());
        let one = |way: &Vec<Hop>| (way.clone(), 100_000);
        let both = times_alone(&[one(&fast), one(&slow)], 1_000);
        assert_eq!(both[1], time_alone(&slow, 100_000, 1_000), "the slow link is its own");
        let more = BitRate::gbps(100).time_for(100_000);
        assert_eq!(both[0], time_alone(&fast, 100_000, 1_000) + more, "the host's link");
        let same = times_alone(&[one(&slow), one(&slow)], 1_000);
        assert_eq!(same, [time_alone(&slow, 200_000, 1_000); 2]);
    }

    /// Hosts of 25 and a core of 100 Gb/s: a cut-through leaf stores what goes up, what comes down
    /// passes and takes the time of the host's link: two packets of the slow links. The other way
    /// round all of the core's switches let it pass: one.
    #[test]
    fn a_packet_takes_its_time_on_each_slow_link_behind_a_fast_one() {
        let time = |hosts: u64, core: u64, forwarding| {
            let rate = |gbps| Link::new(BitRate::gbps(gbps), Span::from_ns(1_000));
            let c = LeafSpine {
                leaves: 2,
                hosts_per_leaf: 1,
                spines: 1,
                links_per_pair: 1,
                host_link: rate(hosts),
                spine_link: rate(core),
                switch: switch(forwarding),
            };
            let f = fabric(&c.config().unwrap());
            let way = f.way((HostId(0), PortId(0)), (HostId(1), PortId(0)), 0).unwrap();
            time_alone(&way, 1_000, 1_000).saturating_sub(Span::from_ns(4_000))
        };
        let (slow, fast) = (Span::from_ns(320), Span::from_ns(80));
        assert_eq!(time(25, 100, Forwarding::CutThrough), slow * 2);
        assert_eq!(time(25, 100, Forwarding::StoreAndForward), slow * 2 + fast * 2);
        assert_eq!(time(100, 25, Forwarding::CutThrough), slow + fast);
        assert_eq!(time(100, 100, Forwarding::CutThrough), fast);
    }

    #[test]
    fn a_lone_transfer_is_bytes_by_rate_plus_a_packet_for_each_link_that_stores() {
        let f = fabric(&FabricConfig::back_to_back(link()));
        let way = f.way((HostId(0), PortId(0)), (HostId(1), PortId(0)), 0).unwrap();
        assert_eq!(time_alone(&way, 1_000_000, 1_000), Span::from_ns(80_000 + 1_000));
        for (forwarding, ns) in
            [(Forwarding::StoreAndForward, 80_000 + 80), (Forwarding::CutThrough, 80_000)]
        {
            let f = fabric(&FabricConfig::single_switch(2, link(), switch(forwarding)));
            let way = f.way((HostId(0), PortId(0)), (HostId(1), PortId(0)), 0).unwrap();
            assert_eq!(time_alone(&way, 1_000_000, 1_000), Span::from_ns(ns + 2_000));
            assert_eq!(time_alone(&way, 0, 1_000), Span::from_ns(2_000), "only latency");
        }
    }
}
