//! What a run has used, gathered for reports.

use doorbell_core::units::{Span, Time};

use super::World;
use crate::fabric::End;
use crate::host::Host;
use crate::nic::NODE_PORT;
use crate::nic::Nic;
use crate::pcie::{Cause, Direction};
use crate::wire::{NodeId, PortId};

/// A resource and how long it was busy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ResourceUse {
    /// Host.
    pub host: u32,
    /// Name.
    pub name: String,
    /// Busy time, of all units together.
    pub busy: Span,
    /// Units that share it.
    pub units: u32,
    /// Things served.
    pub served: u64,
    /// Time for which things waited for it, summed.
    pub waited: Span,
}

impl ResourceUse {
    /// Share of `elapsed` in parts per million.
    pub fn ppm(&self, elapsed: Span) -> u64 {
        let whole = u128::from(elapsed.as_ps()) * u128::from(self.units.max(1));
        if whole == 0 {
            return 0;
        }
        (u128::from(self.busy.as_ps()) * 1_000_000 / whole) as u64
    }
}

/// An output port of a switch and how long it was busy.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct SwitchPortUse {
    /// The switch, from 0.
    pub switch: u32,
    /// The port.
    pub port: PortId,
    /// The node at the other end of the link.
    pub peer: End,
    /// Time spent sending.
    pub busy: Span,
    /// Packets sent.
    pub served: u64,
    /// Time for which packets waited in its queue, summed.
    pub waited: Span,
}

/// PCIe bytes of one link, direction and cause.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LinkUse {
    /// Host.
    pub host: u32,
    /// Device at the link's lower end.
    pub link: String,
    /// Towards the device.
    pub down: bool,
    /// Why.
    pub cause: Cause,
    /// TLPs.
    pub tlps: u64,
    /// Bytes, headers included.
    pub bytes: u64,
}

/// Everything that is counted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunReport {
    /// When the run ended.
    pub elapsed: Span,
    /// Resources in no particular order.
    pub resources: Vec<ResourceUse>,
    /// Output ports of all switches, in order.
    pub switch_ports: Vec<SwitchPortUse>,
    /// PCIe bytes, only where there are any.
    pub links: Vec<LinkUse>,
}

impl World {
    /// The use of all resources without that of the set-up: memory registered, queues filled, peers
    /// found.
    pub fn report_after_set_up(&self) -> RunReport {
        let mut report = self.report();
        let Some(before) = &self.set_up else { return report };
        for (r, b) in report.resources.iter_mut().zip(&before.resources) {
            r.busy = r.busy.saturating_sub(b.busy);
            r.served = r.served.saturating_sub(b.served);
            r.waited = r.waited.saturating_sub(b.waited);
        }
        for (r, b) in report.switch_ports.iter_mut().zip(&before.switch_ports) {
            r.busy = r.busy.saturating_sub(b.busy);
            r.served = r.served.saturating_sub(b.served);
            r.waited = r.waited.saturating_sub(b.waited);
        }
        report
    }

    /// Gathers the use of all resources since the start.
    pub fn report(&self) -> RunReport {
        let now = self.now();
        let mut resources = Vec::new();
        let mut links = Vec::new();
        for (h, host) in self.hosts.iter().enumerate() {
            let h = h as u32;
            let mut add = |name: String, busy, units, served, waited| {
                resources.push(ResourceUse { host: h, name, busy, units, served, waited });
            };
            for (who, rank, stats) in host.initiators() {
                let name = format!("{} (program {rank})", initiator_name(who));
                add(name, stats.work, 1, stats.steps, stats.blocked);
            }
            for nic in host.nics() {
                for (name, busy, units, served, waited) in nic.resources() {
                    add(format!("{}{name}", prefix(host, nic)), busy, units, served, waited);
                }
            }
            for (qpn, busy, taken, waited) in host.locks() {
                add(format!("lock of QP {}", qpn.value()), busy, 1, taken, waited);
            }
            for (socket, used, busy) in host.pcie().socket_memories() {
                let served = used.accesses + used.bulk_jobs;
                let name = format!("memory of socket {socket}");
                add(name, busy, 1, served, used.access_waited);
            }
            for (gpu, used, busy) in host.pcie().kernel_memories() {
                add(format!("kernels of {gpu}"), busy, 1, used.bulk_jobs, Span::ZERO);
            }
            for account in host.pcie().accounts() {
                let down = account.direction == Direction::Down;
                let arrow = if down { "down" } else { "up" };
                let tlps = account.total().tlps;
                add(
                    format!("PCIe {} {arrow}", account.name),
                    account.busy,
                    1,
                    tlps,
                    account.queued,
                );
                for cause in Cause::ALL {
                    let c = account.of(cause);
                    if c.tlps > 0 {
                        links.push(LinkUse {
                            host: h,
                            link: account.name.to_owned(),
                            down,
                            cause,
                            tlps: c.tlps,
                            bytes: c.bytes,
                        });
                    }
                }
            }
            let node = &self.shared.fabric.hosts()[h as usize];
            let mut port = |name: String, port| {
                let c = node.egress(port).counters(now);
                add(name, c.busy, 1, c.sent.packets, c.blocked);
            };
            for nic in host.nics() {
                port(format!("{}port transmit", prefix(host, nic)), nic.port());
            }
            if node.ports() > node.nics() {
                port("link into the node".to_owned(), NODE_PORT);
            }
        }
        let switch_ports = self.switch_ports(now);
        RunReport { elapsed: now.since(Time::ZERO), resources, switch_ports, links }
    }

    fn switch_ports(&self, now: Time) -> Vec<SwitchPortUse> {
        let fabric = &self.shared.fabric;
        let hosts = fabric.hosts().len() as u32;
        let end = |NodeId(node): NodeId| match node.checked_sub(hosts) {
            None => End::Host(node),
            Some(switch) => End::Switch(switch),
        };
        let switches = fabric.switches().iter().enumerate();
        let ports = switches.flat_map(|(switch, s)| {
            (0..s.ports() as u16).map(move |p| (switch as u32, PortId(p), s.egress(PortId(p))))
        });
        let used = ports.map(|(switch, port, egress)| {
            let c = egress.counters(now);
            let peer = end(egress.peer().0);
            let (busy, served, waited) = (c.busy, c.sent.packets, c.waited);
            SwitchPortUse { switch, port, peer, busy, served, waited }
        });
        used.collect()
    }
}

/// What tells the resources of a NIC from those of another in the same host.
fn prefix(host: &Host, nic: &Nic) -> String {
    if host.nics().count() == 1 { String::new() } else { format!("nic{}: ", nic.port().0) }
}

fn initiator_name(who: doorbell_core::transport::Initiator) -> String {
    use doorbell_core::transport::Initiator;
    match who {
        Initiator::Cpu { core, numa } => format!("core {core} on NUMA node {numa}"),
        Initiator::GpuBlock { gpu, block } => format!("GPU {gpu} block {block}"),
    }
}
