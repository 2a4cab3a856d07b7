//! What the inputs of switches keep for packets after a pause, against what they need.

use super::build::{Graph, headroom_of};
use super::config::{Buffering, FabricConfig};
use super::pfc::{Headroom, headroom};
use crate::wire::PortId;

/// Headroom of an input port of a switch, for each of its lossless classes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct PortHeadroom {
    /// Index of the switch.
    pub switch: u32,
    /// The port.
    pub port: PortId,
    /// Bytes that are kept.
    pub kept: u64,
    /// Bytes by the formula, see [`headroom`]. Fewer: a lossless class may drop.
    pub needed: u64,
}

impl FabricConfig {
    /// Headroom of all input ports that pause their sender; none for a network that cannot be
    /// built.
    pub fn headrooms(&self) -> Vec<PortHeadroom> {
        let lossless = self.classes.each.iter().any(|c| c.lossless);
        let Some(graph) = Graph::of(self).ok().filter(|_| lossless) else { return Vec::new() };
        let mut all = Vec::new();
        for ((index, switch), plugs) in (0..).zip(&self.switches).zip(&graph.switches) {
            let Buffering::Shared(shared) = &switch.buffering else { continue };
            for (port, plug) in (0..).zip(plugs).filter(|(_, plug)| plug.link.pfc) {
                let needed = headroom(&headroom_of(self, switch, shared, &plug.link));
                let kept = match shared.headroom {
                    Headroom::Formula => needed,
                    Headroom::Bytes(bytes) => bytes,
                };
                all.push(PortHeadroom { switch: index, port: PortId(port), kept, needed });
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::{
        ClassConfig, Classes, Forwarding, Link, Noise, SharedConfig, SwitchConfig,
    };
    use doorbell_core::units::{BitRate, Span};

    fn network(headroom: Headroom) -> FabricConfig {
        let shared = SharedConfig { headroom, ..SharedConfig::default() };
        let buffering = Buffering::Shared(shared);
        let link = Link::new(BitRate::gbps(100), Span::from_ns(200));
        let switch = SwitchConfig { buffering, ..SwitchConfig::default() };
        let mut c = FabricConfig::single_switch(3, link, switch);
        c.classes = Classes::one(ClassConfig { lossless: true, ..ClassConfig::default() });
        c.links[1].link.pfc = false;
        c
    }

    #[test]
    fn ports_that_pause_keep_what_they_need_or_what_they_are_told() {
        let of = |headroom| network(headroom).headrooms();
        let formula = of(Headroom::Formula);
        let ports: Vec<_> = formula.iter().map(|h| h.port).collect();
        assert_eq!(ports, [PortId(0), PortId(2)], "port 1 pauses nobody");
        assert!(formula.iter().all(|h| h.kept == h.needed && h.needed > 0));
        assert_eq!(of(Headroom::Bytes(7))[1], PortHeadroom { kept: 7, ..formula[1] });
    }

    /// Store and forward holds one packet more in the switch's input.
    #[test]
    fn headroom_is_for_the_packets_that_hosts_send() {
        let kept = |forwarding, largest_sent| {
            let mut c = network(Headroom::Formula);
            (c.largest_sent, c.noise) = (largest_sent, Noise::Off);
            c.switches[0].forwarding = forwarding;
            c.headrooms()[0].kept
        };
        for (forwarding, packets) in [(Forwarding::CutThrough, 2), (Forwarding::StoreAndForward, 3)]
        {
            let [usual, less] = [None, Some(1_124)].map(|largest| kept(forwarding, largest));
            assert_eq!(usual - less, packets * (4_224 - 1_124), "{forwarding:?}");
            assert_eq!(kept(forwarding, Some(4_224)), usual);
        }
    }

    #[test]
    fn lossy_classes_and_other_buffers_need_none() {
        let mut c = network(Headroom::Formula);
        c.classes = Classes::default();
        assert_eq!(c.headrooms(), []);
        let mut c = network(Headroom::Formula);
        c.switches[0].buffering = Buffering::Lossless { port_bytes: 9_000 };
        assert_eq!(c.headrooms(), []);
    }
}
