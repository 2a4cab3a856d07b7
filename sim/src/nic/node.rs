//! Hosts of one node: their memories are joined by links of their own beside the NICs.
//!
//! What a queue pair sends to a host of the same node does not take the NIC's way. Its work
//! requests are posted, rung and completed as ever, and its packets keep their sequence; but a
//! packet leaves by the host's link into the node as soon as it is its turn, without the time of a
//! processing or receive unit, and its payload moves from memory to memory without PCIe. That is
//! what a GPU does which copies into a neighbour's memory. Simplified: headers count on that link,
//! memory is as fast as it, and ATOMICs and completions take PCIe as ever.

use doorbell_core::verbs::QpType;

use super::Nic;
use super::env::Env;
use crate::memory::RegionKind;
use crate::pcie::{Cause, Kind, Transaction};
use crate::wire::{HostId, PortId};

/// The host's port of the link into its node: that behind the only NIC's.
pub(crate) const NODE_PORT: PortId = PortId(1);

impl Nic {
    /// From now on the NIC's host is one of a node of so many, the first of which has a multiple
    /// of that number.
    pub(crate) fn join_node(&mut self, hosts: u32) {
        self.node_hosts = hosts;
        self.pus.push(super::Pu::default());
        self.rx.push(super::Busy::new());
        self.last_rx.push(doorbell_core::units::Time::ZERO);
    }

    /// Whether the node has another host of this number.
    pub(super) fn is_neighbour(&self, host: HostId) -> bool {
        let n = self.node_hosts;
        n > 0 && host != self.host && host.0 / n == self.host.0 / n
    }

    /// Whether the packets of a connected QP take the link into the node.
    pub(super) fn goes_inside(&self, qp: u32) -> bool {
        self.node_hosts > 0 && self.qp(qp).is_some_and(|q| self.is_inside(usize::from(q.pu)))
    }

    /// Gives a QP that was just connected the units of its way.
    pub(super) fn choose_way(&mut self, qp: u32) {
        let (pus, rxs) = (self.cfg.pu_count, self.cfg.rx_count);
        let Some(q) = self.qp(qp) else { return };
        let inside = q.ty != QpType::Ud && self.is_neighbour(q.peer);
        let q = self.qp_mut(qp).expect("just there");
        (q.pu, q.rx) = match inside {
            true => (pus, rxs),
            false => ((qp % u32::from(pus)) as u16, (qp % u32::from(rxs)) as u16),
        };
    }

    /// Whether a processing unit is the one of the way into the node, which has no limit. The queue
    /// pairs that take that way, and no others, are its.
    pub(super) fn is_inside(&self, unit: usize) -> bool {
        unit == usize::from(self.cfg.pu_count)
    }

    /// The port by which a packet leaves.
    pub(super) fn way_out(&self, to: (HostId, PortId)) -> PortId {
        if to.1 == NODE_PORT && self.is_neighbour(to.0) { NODE_PORT } else { self.port() }
    }

    /// Moves payload of a queue pair between memory and its packets: by PCIe, or, on the way into
    /// the node, at once.
    pub(super) fn move_payload(
        &self,
        env: &mut Env<'_>,
        qp: u32,
        kind: Kind,
        (space, addr, bytes): (RegionKind, u64, u32),
        tag: u64,
    ) {
        let cause = match kind {
            Kind::Read => Cause::PayloadRead,
            Kind::Write | Kind::Mmio => Cause::PayloadWrite,
        };
        let target = env.target(space);
        let t = Transaction { kind, from: self.node, target, bytes, addr, cause, tag };
        match self.goes_inside(qp) {
            true => env.pcie.end_beside(t),
            false => env.submit(t),
        }
    }
}
