//! Static routes: shortest paths, spread over equal ones by destination.

use std::collections::BTreeSet;

use super::build::Graph;
use super::config::{ConfigError, FabricConfig};
use crate::wire::{HostId, PortId};

const NONE: u16 = u16::MAX;

/// The routes of one switch: for each host and port of it, the output port.
#[derive(Clone, Debug)]
pub struct RouteTable {
    /// Entries per host: the most ports that any host has.
    stride: u32,
    out: Box<[u16]>,
}

impl RouteTable {
    fn new(hosts: usize, stride: u32) -> Self {
        Self { stride, out: vec![NONE; hosts * stride as usize].into() }
    }

    fn slot(&self, host: HostId, host_port: PortId) -> usize {
        host.index() * self.stride as usize + host_port.index()
    }

    /// The output port for packets to `host_port` of `host`, `None` without a route.
    pub fn port(&self, host: HostId, host_port: PortId) -> Option<PortId> {
        if u32::from(host_port.0) >= self.stride {
            return None;
        }
        match self.out.get(self.slot(host, host_port)) {
            None | Some(&NONE) => None,
            Some(&p) => Some(PortId(p)),
        }
    }

    fn set(&mut self, host: HostId, host_port: PortId, out: PortId) {
        let slot = self.slot(host, host_port);
        self.out[slot] = out.0;
    }
}

/// The tables of all switches: computed, then with the static routes of the configuration.
pub(super) fn tables(c: &FabricConfig, g: &Graph) -> Result<Vec<RouteTable>, ConfigError> {
    let stride = g.hosts.iter().map(|ports| ports.len() as u32).max().unwrap_or(0);
    let mut tables = vec![RouteTable::new(c.hosts.len(), stride); c.switches.len()];
    for target in 0..c.switches.len() {
        let attached = g.attached(target);
        if attached.is_empty() {
            continue;
        }
        let distance = distances(g, target);
        for (switch, table) in tables.iter_mut().enumerate() {
            let next = next_ports(g, &distance, switch);
            for &(host, host_port, port) in &attached {
                if switch == target {
                    table.set(host, host_port, port);
                } else if !next.is_empty() {
                    let choice = (host.index() + host_port.index()) % next.len();
                    table.set(host, host_port, next[choice]);
                }
            }
        }
    }
    apply_static(c, g, &mut tables)?;
    Ok(tables)
}

/// Hops from each switch to `target`, `None` where there is no way.
fn distances(g: &Graph, target: usize) -> Vec<Option<u32>> {
    let mut distance = vec![None; g.switches.len()];
    distance[target] = Some(0);
    let mut frontier = vec![target];
    let mut hops = 0;
    while !frontier.is_empty() {
        hops += 1;
        let mut next = Vec::new();
        for &s in &frontier {
            for (neighbour, _) in g.switch_neighbours(s) {
                if distance[neighbour].is_none() {
                    distance[neighbour] = Some(hops);
                    next.push(neighbour);
                }
            }
        }
        frontier = next;
    }
    distance
}

/// Ports of `switch` that lead one hop nearer, lowest first.
fn next_ports(g: &Graph, distance: &[Option<u32>], switch: usize) -> Vec<PortId> {
    let Some(here) = distance[switch] else { return Vec::new() };
    g.switch_neighbours(switch)
        .filter(|&(n, _)| distance[n].is_some_and(|d| d + 1 == here))
        .map(|(_, port)| port)
        .collect()
}

fn apply_static(c: &FabricConfig, g: &Graph, tables: &mut [RouteTable]) -> Result<(), ConfigError> {
    for (i, r) in c.routes.iter().enumerate() {
        let host_ok = g.hosts.get(r.host.index()).is_some_and(|p| r.host_port.index() < p.len());
        let out_ok = g.switches.get(r.switch as usize).is_some_and(|p| r.out.index() < p.len());
        if !host_ok || !out_ok {
            return Err(ConfigError::BadRoute { route: i });
        }
        tables[r.switch as usize].set(r.host, r.host_port, r.out);
    }
    let changed: BTreeSet<_> = c.routes.iter().map(|r| (r.host, r.host_port)).collect();
    for (host, host_port) in changed {
        for switch in 0..c.switches.len() {
            follow(g, tables, switch, host, host_port)?;
        }
    }
    Ok(())
}

/// Walks from `switch` to the destination. A way longer than there are switches is a loop.
fn follow(
    g: &Graph,
    tables: &[RouteTable],
    switch: usize,
    host: HostId,
    host_port: PortId,
) -> Result<(), ConfigError> {
    let misses = ConfigError::RouteMisses { switch: switch as u32, host, host_port };
    let mut here = switch;
    for _ in 0..tables.len() {
        let Some(out) = tables[here].port(host, host_port) else {
            // A switch that never had a way is no fault of the static routes.
            return if here == switch { Ok(()) } else { Err(misses) };
        };
        match g.switches[here][out.index()].peer {
            super::config::End::Host(h) => {
                let right = h == host.0 && g.switches[here][out.index()].peer_port == host_port;
                return if right { Ok(()) } else { Err(misses) };
            }
            super::config::End::Switch(s) => here = s as usize,
        }
    }
    Err(misses)
}
