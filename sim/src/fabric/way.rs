//! What a packet meets on its way when nobody else is there.

use doorbell_core::units::{BitRate, Span};

use super::Fabric;
use crate::wire::{HostId, PortId, five_tuple_of};

/// One link of a way.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Hop {
    /// Rate of the link.
    pub rate: BitRate,
    /// Propagation, and the transit of the switch at its end.
    pub delay: Span,
    /// Whether the switch at its end forwards a packet from its first bit on.
    pub cut_through: bool,
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
    /// The links from a port of one host to a port of another: of equally short ways the first.
    /// `None` without a way.
    pub fn way(&self, from: (HostId, PortId), to: (HostId, PortId)) -> Option<Vec<Hop>> {
        let (to, to_port) = to;
        self.hosts.get(to.index()).filter(|h| to_port.index() < h.ports())?;
        let mut hops = Vec::new();
        let sender = self.hosts.get(from.0.index()).filter(|h| from.1.index() < h.ports())?;
        let mut port = sender.egress(from.1);
        while hops.len() < MAX_HOPS {
            hops.push(port.hop());
            let node = port.peer().0.index();
            if node == to.index() {
                return Some(hops);
            }
            let switch = self.switches.get(node.checked_sub(self.hosts.len())?)?;
            port = switch.egress(*switch.routes().ways(to, to_port).first()?);
        }
        None
    }
}

impl Fabric {
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
        let there = |h: (HostId, PortId)| {
            self.hosts.get(h.0.index()).filter(|host| h.1.index() < host.ports())
        };
        let (Some(sender), Some(_)) = (there(from), there(to)) else { return turns };
        let mut node = sender.egress(from.1).peer().0.index();
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
/// wire, to the arrival of their last bit: the slowest link carries them all, every other link that
/// is stored whole adds one packet. Exact for links of one rate and packets of one size, else
/// within one packet.
pub fn time_alone(hops: &[Hop], bytes: u64, packet: u64) -> Span {
    let packet = packet.min(bytes);
    let Some(slowest) = hops.iter().map(|h| h.rate).min_by_key(|r| r.as_bps()) else {
        return Span::ZERO;
    };
    hops.iter().fold(slowest.time_for(bytes - packet), |sum, hop| {
        let whole = if hop.cut_through { Span::ZERO } else { hop.rate.time_for(packet) };
        sum + hop.delay + whole
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::{
        FabricConfig, FatTree, Forwarding, HashSeed, LeafSpine, Link, Routing, SwitchConfig,
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
        let hops = |a, b| f.way((HostId(a), PortId(0)), (HostId(b), PortId(0))).unwrap().len();
        assert_eq!((hops(0, 1), hops(0, 2), hops(3, 0)), (2, 4, 4));
        let switch = switch(Forwarding::CutThrough);
        let c = FatTree { k: 4, host_link: link(), switch_link: link(), switch };
        let f = fabric(&c.config().unwrap());
        let hops = |a, b| f.way((HostId(a), PortId(0)), (HostId(b), PortId(0))).unwrap().len();
        assert_eq!((hops(0, 1), hops(0, 2), hops(0, 15)), (2, 4, 6));
        assert_eq!(
            f.way((HostId(0), PortId(0)), (HostId(16), PortId(0))),
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

    #[test]
    fn a_lone_transfer_is_bytes_by_rate_plus_a_packet_for_each_link_that_stores() {
        let f = fabric(&FabricConfig::back_to_back(link()));
        let way = f.way((HostId(0), PortId(0)), (HostId(1), PortId(0))).unwrap();
        assert_eq!(time_alone(&way, 1_000_000, 1_000), Span::from_ns(80_000 + 1_000));
        for (forwarding, ns) in
            [(Forwarding::StoreAndForward, 80_000 + 80), (Forwarding::CutThrough, 80_000)]
        {
            let f = fabric(&FabricConfig::single_switch(2, link(), switch(forwarding)));
            let way = f.way((HostId(0), PortId(0)), (HostId(1), PortId(0))).unwrap();
            assert_eq!(time_alone(&way, 1_000_000, 1_000), Span::from_ns(ns + 2_000));
            assert_eq!(time_alone(&way, 0, 1_000), Span::from_ns(2_000), "only latency");
        }
    }
}
