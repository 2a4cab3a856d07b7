//! What planned faults do to a host. Nothing here decides when: the world does.

use doorbell_core::units::Time;
use doorbell_core::verbs::{QpState, Qpn};

use super::island::{Host, Shared};
use crate::engine::ComponentId;
use crate::event::HostEvent;
use crate::fault::HostAction;
use crate::nic::Nic;
use crate::wire::PacketId;

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
            HostEvent::Nic(_) => self.nic_id,
            HostEvent::Pcie(_) | HostEvent::Memory(_) => self.pcie_id,
        }
    }

    /// Rank of the program of an initiator, unless the wake-up `generation` was overtaken.
    pub(crate) fn steps_now(&self, initiator: u16, generation: u32) -> Option<u32> {
        let init = &self.initiators[usize::from(initiator)];
        (init.generation == generation).then_some(init.rank)
    }

    /// Moves a QP to ERR. False: there is none, or none that can fail.
    pub(crate) fn fail_qp(&mut self, s: &mut Shared, now: Time, qpn: Qpn) -> bool {
        let Some(qp) = Nic::qp_index(qpn) else { return false };
        let can = |state| !matches!(state, QpState::Reset | QpState::Err);
        if !self.nic.qp(qp).is_some_and(|q| can(q.state)) {
            return false;
        }
        let (nic, mut env) = self.split(s, now);
        nic.fail_qp(&mut env, qp);
        self.settle(s, now);
        true
    }

    /// A damaged doorbell is at the NIC.
    pub(crate) fn bad_doorbell(
        &mut self,
        s: &mut Shared,
        now: Time,
        qp: u32,
        stop_after: Option<u32>,
    ) {
        let (nic, mut env) = self.split(s, now);
        nic.bad_doorbell(&mut env, qp, stop_after);
        self.settle(s, now);
    }

    /// A damaged packet is at the port: the NIC finds a wrong ICRC.
    pub(crate) fn corrupt_packet(&mut self, s: &mut Shared, packet: PacketId) {
        let packet = s.packets.remove(packet.0);
        self.nic.corrupt_packet(s.engine.now(), &packet);
    }

    /// The port has come up or gone down.
    pub(crate) fn port_event(&mut self, s: &mut Shared, now: Time, up: bool) {
        let users = self.initiators.len() as u16;
        let (nic, mut env) = self.split(s, now);
        nic.port_event(&mut env, users, up);
        self.settle(s, now);
    }

    /// Begins or ends what lasts for a window.
    pub(crate) fn set_fault(&mut self, s: &mut Shared, now: Time, action: HostAction, on: bool) {
        match action {
            HostAction::CqNotPolled { cq } => self.nic.hide_completions(cq, on, &mut self.wakes),
            HostAction::Rnr { qp } => self.nic.withhold(qp.and_then(Nic::qp_index), on),
            _ => {}
        }
        self.settle(s, now);
    }

    /// The count by which the effect of what lasts for a window is measured.
    pub(crate) fn fault_count(&self, action: HostAction) -> u64 {
        match action {
            HostAction::CqNotPolled { .. } => self.nic.polls_missed(),
            // UC and UD have no RNR NAK: what finds no receive is dropped.
            HostAction::Rnr { .. } => self.nic.hw_counters().out_of_buffer,
            _ => 0,
        }
    }
}
