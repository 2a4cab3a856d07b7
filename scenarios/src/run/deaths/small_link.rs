//! The link with the smallest MTU that the packets of a queue pair meet.

use doorbell_core::verbs::Opcode;
use doorbell_sim::fabric::{EgressPort, Fabric};
use doorbell_sim::nic::{Nic, NicQp};
use doorbell_sim::wire::{HostId, NodeId, PortId, wire_bytes};
use doorbell_sim::world::World;

use crate::quantity::Unit;
use crate::run::Point;
use crate::run::hardware::encapsulation;

/// The link with the smallest MTU on the way.
#[derive(Clone, Debug)]
pub(super) struct SmallLink {
    /// As the file has it, with its MTU in the words of the link layer.
    pub name: String,
    /// The largest path MTU, in bytes, whose packets all pass.
    pub path: Option<u32>,
}

/// A port of a host.
type Port = (HostId, PortId);

/// The smallest one between a queue pair of `host` and its peer, there or back; of several the
/// first. `None` where no link is smaller than the host's packets.
pub(super) fn of(world: &World, point: &Point, host: u32, q: &NicQp) -> Option<SmallLink> {
    let fabric = world.fabric();
    let (here, there) = ((HostId(host), Nic::port_of(q.qpn)), (q.peer, q.peer_port));
    let nic = world.hosts()[q.peer.index()].nic(q.peer_port.index());
    let peer = nic.own_qp_index(q.attr.dest_qpn).and_then(|i| nic.qp(i));
    let back = peer.map_or(q.udp_source_port, |p| p.udp_source_port);
    let ports = way(fabric, here, there, q.udp_source_port)
        .zip(way(fabric, there, here, back))
        .map(|(out, back)| [out, back].concat())
        // Where switches choose by load, any port may be on the way.
        .unwrap_or_else(|| fabric.ports().collect());
    let size = |(node, port): &(NodeId, PortId)| fabric.egress_of(*node, *port).max_packet_bytes();
    let ports = ports.into_iter().filter_map(|at| Some((size(&at)?, at)));
    let (most, (node, port)) = ports.min_by_key(|(bytes, _)| *bytes)?;
    let encap = encapsulation(&point.profile);
    let holds = |mtu: u64| encap.largest_packet(u32::try_from(mtu).unwrap_or(u32::MAX / 2)) == most;
    let t = &point.scenario.topology;
    let own = t.link.iter().filter_map(|l| l.mtu).find(|m| holds(m.0.0));
    let (name, mtu) = match (own, t.mtu.filter(|m| holds(m.0.0))) {
        (Some(mtu), None) => {
            (format!("link {}", link_name(fabric, node, fabric.egress_of(node, port))), mtu)
        }
        (_, all) => ("topology.mtu".to_owned(), all?),
    };
    let fits = |m: &u32| wire_bytes(encap, Opcode::RcRdmaWriteOnlyImm, *m) <= most;
    let path = [4096, 2048, 1024, 512, 256].into_iter().find(fits);
    Some(SmallLink { name: format!("{name} ({})", mtu.0.print()), path })
}

/// The output ports that packets take; `None` if that depends on the load, or there is no way.
fn way(
    fabric: &Fabric,
    from: Port,
    to: Port,
    udp_source_port: u16,
) -> Option<Vec<(NodeId, PortId)>> {
    let hosts = fabric.hosts().len() as u32;
    let turns = fabric.turns(from, to, udp_source_port);
    let mut ports = vec![(NodeId(from.0.0), from.1)];
    ports.extend(turns.iter().map(|t| (NodeId(hosts + t.switch), t.port)));
    let &(node, port) = ports.last()?;
    let arrives = fabric.egress_of(node, port).peer().0 == NodeId(to.0.0);
    arrives.then_some(ports)
}

/// Both ends of a link, as files name them.
fn link_name(fabric: &Fabric, node: NodeId, port: &EgressPort) -> String {
    let hosts = fabric.hosts().len() as u32;
    let name = |n: u32| match n.checked_sub(hosts) {
        None => format!("host{n}"),
        Some(switch) => format!("switch{switch}"),
    };
    let (a, b) = (node.0.min(port.peer().0.0), node.0.max(port.peer().0.0));
    format!("{}-{}", name(a), name(b))
}
