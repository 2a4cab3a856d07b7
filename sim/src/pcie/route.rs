//! Which stations a TLP passes between two places of the tree.

use doorbell_core::units::Span;

use super::config::{NodeKind, PcieConfig};
use super::station::Station;

/// One station on a way, and the time from the TLP's first bit at the node before the station
/// until it stands in the station's queue.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Hop {
    pub station: u16,
    pub before: Span,
    /// The station joins two sockets and counts its own bytes.
    pub cross: bool,
}

/// A way in the table of hops. Empty: both places are the same socket.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Route {
    pub first: u32,
    pub hops: u8,
}

/// All ways of a tree, and the stations.
#[derive(Debug)]
pub(super) struct Topology {
    /// Link of node `sockets + i`: up `2i`, down `2i + 1`. Then pairs of sockets.
    pub stations: Vec<Station>,
    pub hops: Vec<Hop>,
    routes: Vec<Route>,
    places: usize,
}

impl Topology {
    pub fn new(cfg: &PcieConfig) -> Self {
        let places = cfg.sockets.len() + cfg.nodes.len();
        let mut topology = Self {
            stations: stations(cfg),
            hops: Vec::new(),
            routes: vec![Route::default(); places * places],
            places,
        };
        for from in 0..places {
            for to in 0..places {
                let hops = way(cfg, from, to);
                topology.routes[from * places + to] =
                    Route { first: topology.hops.len() as u32, hops: hops.len() as u8 };
                topology.hops.extend(hops);
            }
        }
        topology
    }

    pub fn route(&self, from: u16, to: u16) -> Route {
        self.routes[usize::from(from) * self.places + usize::from(to)]
    }

    pub fn hops_of(&self, route: Route) -> &[Hop] {
        &self.hops[route.first as usize..route.first as usize + usize::from(route.hops)]
    }
}

fn stations(cfg: &PcieConfig) -> Vec<Station> {
    let mut stations = Vec::new();
    let dllp = (cfg.format.dllp_bytes, cfg.format.dllp_interval);
    for node in &cfg.nodes {
        let rate = cfg.format.link_rate(node.link.generation, node.link.width);
        for _ in 0..2 {
            stations.push(Station::new(rate, node.link.latency, node.link.credits, dllp));
        }
    }
    let sockets = cfg.sockets.len();
    let joint = &cfg.interconnect;
    for _ in 0..sockets * (sockets - 1) {
        let unlimited = super::Credits::UNLIMITED;
        stations.push(Station::new(joint.rate, joint.latency, unlimited, (0, 1)));
    }
    for _ in 0..sockets {
        for rate in [cfg.peer.same, cfg.peer.across] {
            for _ in 0..2 {
                stations.push(Station::new(rate, Span::ZERO, super::Credits::UNLIMITED, (0, 1)));
            }
        }
    }
    stations
}

/// The station of a root complex that forwards from one device to another, if it limits them:
/// both directions have one, of devices of one socket and of those of two.
fn peer_station(cfg: &PcieConfig, from: usize, to: usize, across: bool) -> Option<u16> {
    let sockets = cfg.sockets.len();
    if from < sockets || to < sockets {
        return None;
    }
    let rate = if across { cfg.peer.across } else { cfg.peer.same };
    let link = |n: &super::NodeConfig| cfg.format.link_rate(n.link.generation, n.link.width);
    let fastest = cfg.nodes.iter().map(|n| link(n).as_bps()).max()?;
    let root = socket_of(cfg, from).min(socket_of(cfg, to));
    let first = 2 * cfg.nodes.len() + sockets * (sockets - 1) + 4 * root;
    let index = first + 2 * usize::from(across) + usize::from(from > to);
    (rate.as_bps() < fastest).then_some(index as u16)
}

/// The station from socket `a` to socket `b`; the opposite direction is its neighbour.
pub(super) fn cross_station(cfg: &PcieConfig, a: usize, b: usize) -> usize {
    let (low, high) = (a.min(b), a.max(b));
    let pair = high * (high - 1) / 2 + low;
    2 * cfg.nodes.len() + 2 * pair + usize::from(a > b)
}

/// The place and its ancestors up to its socket.
fn ancestors(cfg: &PcieConfig, place: usize) -> Vec<usize> {
    let mut all = vec![place];
    let mut at = place;
    while at >= cfg.sockets.len() {
        at = usize::from(cfg.nodes[at - cfg.sockets.len()].parent.0);
        all.push(at);
    }
    all
}

/// The socket under which a place hangs.
pub(super) fn socket_of(cfg: &PcieConfig, place: usize) -> usize {
    ancestors(cfg, place).pop().expect("a place is its own ancestor")
}

fn way(cfg: &PcieConfig, from: usize, to: usize) -> Vec<Hop> {
    let sockets = cfg.sockets.len();
    let (up, down) = (ancestors(cfg, from), ancestors(cfg, to));
    let meet = up.iter().copied().find(|p| down.contains(p));
    let is_not_meet = |p: &&usize| Some(**p) != meet;
    // Passing a node costs its latency, except where the way begins. A root complex costs
    // something to TLPs of devices that turn in it; what its own socket sends begins there.
    let passing = |place: usize| match place.checked_sub(sockets) {
        _ if place == from => Span::ZERO,
        None if from < sockets => Span::ZERO,
        None => cfg.sockets[place].root_latency,
        Some(node) => match cfg.nodes[node].kind {
            NodeKind::Switch { latency } => latency,
            NodeKind::Endpoint(_) => Span::ZERO,
        },
    };
    let mut hops = Vec::new();
    for &place in up.iter().take_while(is_not_meet).filter(|p| **p >= sockets) {
        let station = (2 * (place - sockets)) as u16;
        hops.push(Hop { station, before: passing(place), cross: false });
    }
    if meet.is_none_or(|place| place < sockets)
        && let Some(station) = peer_station(cfg, from, to, meet.is_none())
    {
        hops.push(Hop { station, before: Span::ZERO, cross: false });
    }
    if meet.is_none() {
        let (a, b) = (up[up.len() - 1], down[down.len() - 1]);
        let station = cross_station(cfg, a, b) as u16;
        // The root complex at the far end is the one that is paid for.
        hops.push(Hop { station, before: Span::ZERO, cross: true });
    }
    let below: Vec<_> = down.iter().take_while(is_not_meet).filter(|p| **p >= sockets).collect();
    for &&place in below.iter().rev() {
        let node = place - sockets;
        let parent = usize::from(cfg.nodes[node].parent.0);
        hops.push(Hop { station: (2 * node + 1) as u16, before: passing(parent), cross: false });
    }
    hops
}
