//! Routes: all shortest ways to every host port, and the static ones that replace them.
//!
//! Hosts at the same switch are reached the same way until their switch, so a table has one entry
//! per switch with hosts (a leaf) and not one per host. Where each host is plugged in is known
//! once for all switches.

use std::collections::{BTreeMap, BTreeSet};
use std::slice;
use std::sync::Arc;

use super::build::Graph;
use super::choice::by_destination;
use super::config::{ConfigError, End, FabricConfig, Routing};
use crate::wire::{HostId, PortId};

const NONE: u32 = u32::MAX;

/// Where a port of a host is plugged in.
#[derive(Copy, Clone, Debug)]
struct Place {
    /// Number of the switch among those with hosts; `NONE`: a cable, or no port.
    leaf: u32,
    /// Port of that switch.
    port: PortId,
}

/// The places of all host ports.
#[derive(Debug)]
struct Places {
    /// Entries per host: the most ports that any host has.
    stride: usize,
    of: Box<[Place]>,
}

impl Places {
    fn get(&self, host: HostId, host_port: PortId) -> Option<Place> {
        let port = host_port.index();
        if port >= self.stride {
            return None;
        }
        let place = self.of.get(host.index() * self.stride + port)?;
        (place.leaf != NONE).then_some(*place)
    }

    fn port(&self, host: HostId, host_port: PortId) -> &PortId {
        &self.of[host.index() * self.stride + host_port.index()].port
    }
}

/// A part of the list of ports.
#[derive(Copy, Clone, Default, Debug)]
struct Ways {
    first: u32,
    count: u32,
}

/// The routes of one switch: for each host and port of it, the output ports on shortest ways.
#[derive(Clone, Debug)]
pub struct RouteTable {
    places: Arc<Places>,
    /// The switch's own number among those with hosts, or `NONE`.
    own: u32,
    /// By leaf.
    ways: Box<[Ways]>,
    ports: Box<[PortId]>,
    /// Static routes, which replace the ways.
    fixed: BTreeMap<(HostId, PortId), PortId>,
}

impl RouteTable {
    /// Whether a static route leads to `host_port` of `host`.
    pub(super) fn is_fixed(&self, host: HostId, host_port: PortId) -> bool {
        self.fixed.contains_key(&(host, host_port))
    }

    /// Output ports for packets to `host_port` of `host`, lowest first; empty without a route.
    #[inline]
    pub fn ways(&self, host: HostId, host_port: PortId) -> &[PortId] {
        if !self.fixed.is_empty()
            && let Some(out) = self.fixed.get(&(host, host_port))
        {
            return slice::from_ref(out);
        }
        let Some(Place { leaf, .. }) = self.places.get(host, host_port) else { return &[] };
        if leaf == self.own {
            return slice::from_ref(self.places.port(host, host_port));
        }
        let Ways { first, count } = self.ways[leaf as usize];
        &self.ports[first as usize..][..count as usize]
    }

    /// The output port that [`Routing::Destination`] takes, `None` without a route.
    pub fn port(&self, host: HostId, host_port: PortId) -> Option<PortId> {
        match self.ways(host, host_port) {
            [] => None,
            ways => Some(by_destination(ways, host.index() + host_port.index())),
        }
    }
}

/// The tables of all switches: computed, then with the static routes of the configuration.
pub(super) fn tables(c: &FabricConfig, g: &Graph) -> Result<Vec<RouteTable>, ConfigError> {
    let (places, leaves) = places(g);
    let places = Arc::new(places);
    let mut drafts = vec![Draft::default(); c.switches.len()];
    let mut near = Vec::new();
    for &target in &leaves {
        let distance = distances(g, target);
        for (switch, draft) in drafts.iter_mut().enumerate() {
            next_ports(g, &distance, switch, &mut near);
            draft.add(&near);
        }
    }
    let mut tables = Vec::with_capacity(drafts.len());
    for (switch, draft) in drafts.into_iter().enumerate() {
        let own = leaves.binary_search(&switch).map_or(NONE, |leaf| leaf as u32);
        let (ways, ports) = (draft.ways.into(), draft.ports.into());
        let places = places.clone();
        tables.push(RouteTable { places, own, ways, ports, fixed: BTreeMap::new() });
    }
    apply_static(c, g, &mut tables)?;
    Ok(tables)
}

/// Where hosts are, and the switches that have some, in ascending order.
fn places(g: &Graph) -> (Places, Vec<usize>) {
    let stride = g.hosts.iter().map(Vec::len).max().unwrap_or(0);
    let nowhere = Place { leaf: NONE, port: PortId(0) };
    let mut places = vec![nowhere; g.hosts.len() * stride];
    let mut leaves = Vec::new();
    for switch in 0..g.switches.len() {
        let attached = g.attached(switch);
        for &(host, host_port, port) in &attached {
            let leaf = leaves.len() as u32;
            places[host.index() * stride + host_port.index()] = Place { leaf, port };
        }
        if !attached.is_empty() {
            leaves.push(switch);
        }
    }
    (Places { stride, of: places.into() }, leaves)
}

/// A table that grows leaf by leaf. Most leaves share their ways with others: a spine's are as
/// many as its ports, a leaf's are one set for all others.
#[derive(Clone, Default)]
struct Draft {
    ways: Vec<Ways>,
    ports: Vec<PortId>,
    known: BTreeMap<Vec<PortId>, Ways>,
}

impl Draft {
    /// The next leaf is reached by `near`.
    fn add(&mut self, near: &[PortId]) {
        let ways = self.known.get(near).copied().unwrap_or_else(|| {
            let ways = Ways { first: self.ports.len() as u32, count: near.len() as u32 };
            self.ports.extend_from_slice(near);
            self.known.insert(near.to_vec(), ways);
            ways
        });
        self.ways.push(ways);
    }
}

/// Hops from each switch to `target`, `NONE` where there is no way.
fn distances(g: &Graph, target: usize) -> Vec<u32> {
    let mut distance = vec![NONE; g.switches.len()];
    distance[target] = 0;
    let mut frontier = vec![target];
    let mut next = Vec::new();
    let mut hops = 0;
    while !frontier.is_empty() {
        hops += 1;
        for &s in &frontier {
            for (neighbour, _) in g.switch_neighbours(s) {
                if distance[neighbour] == NONE {
                    distance[neighbour] = hops;
                    next.push(neighbour);
                }
            }
        }
        frontier.clear();
        std::mem::swap(&mut frontier, &mut next);
    }
    distance
}

/// Ports of `switch` that lead one hop nearer, lowest first.
fn next_ports(g: &Graph, distance: &[u32], switch: usize, near: &mut Vec<PortId>) {
    near.clear();
    let here = distance[switch];
    if here == NONE {
        return;
    }
    let neighbours = g.switch_neighbours(switch);
    near.extend(neighbours.filter(|&(n, _)| distance[n] < here).map(|(_, port)| port));
}

fn apply_static(c: &FabricConfig, g: &Graph, tables: &mut [RouteTable]) -> Result<(), ConfigError> {
    for (i, r) in c.routes.iter().enumerate() {
        let host_ok = g.hosts.get(r.host.index()).is_some_and(|p| r.host_port.index() < p.len());
        let out_ok = g.switches.get(r.switch as usize).is_some_and(|p| r.out.index() < p.len());
        if !host_ok || !out_ok {
            return Err(ConfigError::BadRoute { route: i });
        }
        tables[r.switch as usize].fixed.insert((r.host, r.host_port), r.out);
    }
    let changed: BTreeSet<_> = c.routes.iter().map(|r| (r.host, r.host_port)).collect();
    for (host, host_port) in changed {
        let mut walk = Walk { c, g, tables, host, host_port, seen: vec![Seen::New; tables.len()] };
        if let Some(switch) = (0..tables.len()).find(|s| !walk.arrives(*s)) {
            let switch = switch as u32;
            return Err(ConfigError::RouteMisses { switch, host, host_port });
        }
    }
    Ok(())
}

#[derive(Copy, Clone, PartialEq, Eq)]
enum Seen {
    New,
    /// On the way that is being walked: to come here again is a loop.
    Now,
    Arrives,
    Misses,
}

/// Every way to one host port, from every switch.
struct Walk<'a> {
    c: &'a FabricConfig,
    g: &'a Graph,
    tables: &'a [RouteTable],
    host: HostId,
    host_port: PortId,
    seen: Vec<Seen>,
}

impl Walk<'_> {
    /// Whether packets from `start` arrive, whichever way they are sent. A switch that never had
    /// a way is no fault of the static routes; one that is led to such a switch is.
    ///
    /// The depth is kept in a list and not on the stack: a line of switches may be long.
    fn arrives(&mut self, start: usize) -> bool {
        let at = |s: usize| self.ways(s).to_vec();
        if at(start).is_empty() {
            return true;
        }
        let mut path = vec![(start, at(start))];
        while let Some((here, left)) = path.last_mut() {
            let here = *here;
            self.seen[here] = Seen::Now;
            let Some(out) = left.pop() else {
                self.seen[here] = Seen::Arrives;
                path.pop();
                continue;
            };
            let plug = self.g.switches[here][out.index()];
            let good = match plug.peer {
                End::Host(h) => h == self.host.0 && plug.peer_port == self.host_port,
                End::Switch(s) => match self.seen[s as usize] {
                    Seen::Arrives => true,
                    Seen::Now | Seen::Misses => false,
                    Seen::New => {
                        let ways = self.ways(s as usize).to_vec();
                        let good = !ways.is_empty();
                        path.push((s as usize, ways));
                        good
                    }
                },
            };
            if !good {
                path.iter().for_each(|(s, _)| self.seen[*s] = Seen::Misses);
                return false;
            }
        }
        true
    }

    /// The ports by which a switch may send.
    fn ways(&self, switch: usize) -> &[PortId] {
        let ways = self.tables[switch].ways(self.host, self.host_port);
        match self.c.routing {
            Routing::Destination if ways.len() > 1 => {
                let nth = (self.host.index() + self.host_port.index()) % ways.len();
                slice::from_ref(&ways[nth])
            }
            _ => ways,
        }
    }
}
