//! Where NICs and GPUs hang in the PCIe tree of a host.

use std::collections::BTreeMap;

use doorbell_core::units::Span;
use doorbell_sim::pcie::{Credits, EndpointConfig, LinkConfig, NodeConfig, NodeId, NodeKind};

use super::hardware::{FAST, generation};
use crate::format::NicPlace;
use crate::profile::Profile;

/// A tree that grows: switches, then NICs, then GPUs.
#[derive(Debug)]
pub(super) struct Places {
    /// What is below the sockets, in order.
    pub nodes: Vec<NodeConfig>,
    /// Places of the NICs,
    pub nics: Vec<NodeId>,
    /// and of the GPUs.
    pub gpus: Vec<NodeId>,
    sockets: u16,
    link: LinkConfig,
}

fn small(n: u64) -> u32 {
    n.min(u32::MAX.into()) as u32
}

impl Places {
    pub fn new(p: &Profile) -> Self {
        let c = &p.pcie;
        let credits = Credits {
            posted_headers: small(c.posted_credits),
            posted_data: small(c.posted_data_credits),
            nonposted_headers: small(c.nonposted_credits),
        };
        let (generation, width) = (generation(c.generation), c.width as u8);
        Self {
            nodes: Vec::new(),
            nics: Vec::new(),
            gpus: Vec::new(),
            sockets: p.memory.sockets as u16,
            link: LinkConfig { generation, width, latency: c.link_latency, credits },
        }
    }

    /// Puts a NIC at each of the places, and the profile's GPUs.
    pub fn fill(&mut self, p: &Profile, places: &[NicPlace]) {
        let several = places.len() > 1;
        let mut shared: BTreeMap<u64, NodeId> = BTreeMap::new();
        // Where the GPUs beside each NIC go.
        let mut beside = Vec::new();
        for (n, place) in places.iter().enumerate() {
            let root = NodeId(place.numa.value() as u16);
            let parent = match place.pcie_switch.map(|s| s.value()) {
                None => {
                    let name = if several { format!("nic{n}.switch") } else { "switch".to_owned() };
                    self.switches(p, p.pcie.switches, &name, root)
                }
                Some(s) => *shared.entry(s).or_insert_with(|| {
                    let name = format!("switch{s}");
                    match p.pcie.switches {
                        0 | 1 => self.switch(p, name, root),
                        depth => self.switches(p, depth, &format!("{name}."), root),
                    }
                }),
            };
            let name = if several { format!("nic{n}") } else { "nic".to_owned() };
            let nic = self.nic(p, name, parent);
            self.nics.push(nic);
            beside.push(parent);
        }
        for i in 0..p.gpu.count {
            let listed = |place: &NicPlace| place.gpus.iter().any(|g| g.value() == i);
            let parent = match places.iter().position(listed) {
                Some(nic) => beside[nic],
                // A GPU of the first NIC's socket shares the NIC's switch, where there is one.
                None if p.gpu.socket == places[0].numa.value() => beside[0],
                None => NodeId(p.gpu.socket as u16),
            };
            let gpu = self.gpu(p, format!("gpu{i}"), parent);
            self.gpus.push(gpu);
        }
    }

    fn add(&mut self, node: NodeConfig) -> NodeId {
        self.nodes.push(node);
        NodeId(self.sockets + self.nodes.len() as u16 - 1)
    }

    /// A chain of switches below `parent`; gives the last one.
    fn switches(&mut self, p: &Profile, depth: u64, name: &str, parent: NodeId) -> NodeId {
        (0..depth).fold(parent, |above, i| self.switch(p, format!("{name}{i}"), above))
    }

    fn switch(&mut self, p: &Profile, name: String, parent: NodeId) -> NodeId {
        let kind = NodeKind::Switch { latency: p.pcie.switch_latency };
        self.add(NodeConfig { name, parent, link: self.link, kind })
    }

    fn nic(&mut self, p: &Profile, name: String, parent: NodeId) -> NodeId {
        let kind = NodeKind::Endpoint(EndpointConfig {
            read_tags: small(p.pcie.read_tags),
            read_bytes: small(p.pcie.read_buffer.0),
            read_latency: Span::ZERO,
            write_latency: Span::ZERO,
            memory_rate: FAST,
            kernel_rate: FAST,
        });
        self.add(NodeConfig { name, parent, link: self.link, kind })
    }

    fn gpu(&mut self, p: &Profile, name: String, parent: NodeId) -> NodeId {
        let kind = NodeKind::Endpoint(EndpointConfig {
            read_tags: 1024,
            read_bytes: 1 << 20,
            read_latency: p.gpu.peer_read,
            write_latency: p.gpu.peer_write,
            memory_rate: p.gpu.bandwidth,
            kernel_rate: p.gpu.kernel_bandwidth,
        });
        let link = LinkConfig { width: p.gpu.width as u8, ..self.link };
        self.add(NodeConfig { name, parent, link, kind })
    }
}
