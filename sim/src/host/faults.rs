//! What planned faults do to a host. Nothing here decides when: the world does.

use doorbell_core::units::Time;
use doorbell_core::verbs::{QpState, Qpn};

use super::island::{Host, Shared};
use crate::engine::ComponentId;
use crate::event::HostEvent;
use crate::fault::{HostAction, HostFault};
use crate::nic::Nic;
use crate::wire::{PacketId, PortId};

impl Host {
    /// The host is gone: it does nothing any more, and nobody waits for its programs.
    pub(crate) fn die(&mut self) {
        self.dead = true;
    }

    /// Whether the host is gone.
    pub const fn is_dead(&self) -> bool {
        self.dead
    }

    /// Component that an event of this host belongs to.
    pub(crate) fn component_of(&self, ev: HostEvent) -> ComponentId {
        match ev {
            HostEvent::Step { initiator, .. }
            | HostEvent::Effect { initiator }
            | HostEvent::StoreVisible { initiator, .. } => {
                self.initiators[usize::from(initiator)].id
            }
            HostEvent::Nic { nic, .. } => self.devices[usize::from(nic)].id,
            HostEvent::Pcie(_) | HostEvent::Memory(_) => self.pcie_id,
        }
    }

    /// Rank of the program of an initiator, unless the wake-up `generation` was overtaken.
    pub(crate) fn steps_now(&self, initiator: u16, generation: u32) -> Option<u32> {
        let init = &self.initiators[usize::from(initiator)];
        (init.generation == generation).then_some(init.rank)
    }

    /// NIC and index of a QP by its number, if the host has that NIC.
    fn qp_of(&self, qpn: Qpn) -> Option<(u8, u32)> {
        let nic = Nic::port_of(qpn);
        let there = nic.index() < self.devices.len();
        Nic::qp_index(qpn).filter(|_| there).map(|qp| (nic.0 as u8, qp))
    }

    /// Moves a QP to ERR. False: there is none, or none that can fail.
    pub(crate) fn fail_qp(&mut self, s: &mut Shared, now: Time, qpn: Qpn) -> bool {
        let Some((nic, qp)) = self.qp_of(qpn) else { return false };
        let can = |state| !matches!(state, QpState::Reset | QpState::Err);
        if !self.nic(nic.into()).qp(qp).is_some_and(|q| can(q.state)) {
            return false;
        }
        let (nic, mut env) = self.split(s, now, nic);
        nic.fail_qp(&mut env, qp);
        self.settle(s, now);
        true
    }

    /// A damaged doorbell is at the NIC.
    pub(crate) fn bad_doorbell(
        &mut self,
        s: &mut Shared,
        now: Time,
        (nic, qp): (u8, u32),
        stop_after: Option<u32>,
    ) {
        let (nic, mut env) = self.split(s, now, nic);
        nic.bad_doorbell(&mut env, qp, stop_after);
        self.settle(s, now);
    }

    /// A damaged packet is at a port: the NIC finds a wrong ICRC.
    pub(crate) fn corrupt_packet(&mut self, s: &mut Shared, port: PortId, packet: PacketId) {
        let packet = s.packets.remove(packet.0);
        let nic = usize::from(self.nic_of_port(port));
        let nic = &mut self.devices[nic].nic;
        nic.corrupt_packet(s.engine.now(), &packet);
    }

    /// A port has come up or gone down: who has opened its NIC hears of it.
    pub(crate) fn port_event(&mut self, s: &mut Shared, now: Time, port: PortId, up: bool) {
        if port.index() >= self.devices.len() {
            // The link into the node is no NIC's: nobody has opened it.
            return;
        }
        let nic = port.0 as u8;
        let its = self.initiators.iter().zip(0..).filter(|(i, _)| i.nic == nic);
        let users: Vec<u16> = its.map(|(_, user)| user).collect();
        let (nic, mut env) = self.split(s, now, nic);
        nic.port_event(&mut env, &users, up);
        self.settle(s, now);
    }

    /// NICs that a fault is about.
    fn nics_of(&mut self, fault: &HostFault) -> impl Iterator<Item = &mut Nic> {
        let fault = *fault;
        let mine = move |(nic, _): &(u16, _)| fault.is_of(*nic);
        (0..).zip(&mut self.devices).filter(mine).map(|(_, d)| &mut d.nic)
    }

    /// Begins or ends what lasts for a window.
    pub(crate) fn set_fault(&mut self, s: &mut Shared, now: Time, fault: &HostFault, on: bool) {
        match fault.action {
            HostAction::CqNotPolled { cq } => {
                let mut wakes = std::mem::take(&mut self.wakes);
                self.nics_of(fault).for_each(|nic| nic.hide_completions(cq, on, &mut wakes));
                self.wakes = wakes;
            }
            HostAction::Rnr { qp: None } => {
                self.nics_of(fault).for_each(|nic| nic.withhold(None, on));
            }
            HostAction::Rnr { qp: Some(qpn) } => {
                let of = |(nic, _): &(u8, u32)| fault.is_of(u16::from(*nic));
                if let Some((nic, qp)) = self.qp_of(qpn).filter(of) {
                    self.devices[usize::from(nic)].nic.withhold(Some(qp), on);
                }
            }
            _ => {}
        }
        self.settle(s, now);
    }

    /// The count by which the effect of what lasts for a window is measured.
    pub(crate) fn fault_count(&self, fault: &HostFault) -> u64 {
        let nics = || self.nics().filter(|nic| fault.is_of(nic.port().0));
        match fault.action {
            HostAction::CqNotPolled { .. } => nics().map(Nic::polls_missed).sum(),
            // UC and UD have no RNR NAK: what finds no receive is dropped.
            HostAction::Rnr { .. } => nics().map(|n| n.hw_counters().out_of_buffer).sum(),
            _ => 0,
        }
    }
}
