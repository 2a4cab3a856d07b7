//! The fault plan of a run: where it meets packets, hosts and time.

use std::collections::BTreeSet;
use std::num::NonZeroU32;

use doorbell_core::units::Time;

use super::{LossPlace, World};
use crate::capture::Direction;
use crate::engine::{Class, ComponentId, fnv1a};
use crate::event::{Event, FaultEvent, HostEvent};
use crate::fabric::{DropCause, FabricEvent, PauseReason};
use crate::fault::{
    Decision, FaultPlan, FaultState, FaultUse, Held, HostAction, HostFault, PlanError,
};
use crate::host::Host;
use crate::nic::{Nic, NicEvent};
use crate::wire::{HostId, NodeId, PacketId, PortId};

/// Trace kind of a fault that fires: its id, hashed, and the PSN of the packet, or the host.
const FIRED: u32 = 80;

/// Packets under way up to which a fault makes copies: some 50 MB. Copies come at one instant and
/// leave at the rate of a link, so a fault that copies every packet would fill any memory.
const MAX_PACKETS_WITH_COPIES: usize = 1 << 18;

/// The plan at work.
#[derive(Debug)]
pub(super) struct Faults {
    state: FaultState,
    /// Registered when the run starts, behind everybody else, so that a plan moves nobody's number.
    component: Option<ComponentId>,
}

impl Faults {
    /// Whether one may still keep a wait for a receive from its RNR NAKs.
    pub(super) fn may_hurt(&self, now: Time) -> bool {
        self.state.may_hurt(now)
    }

    /// Whether one that took what was sent until `since` may let it pass later.
    pub(super) fn may_spare(&self, since: Time, now: Time) -> bool {
        self.state.may_spare(since, now)
    }

    /// When faults begin and end later than at `now`.
    pub(super) fn changes_after(&self, now: Time) -> impl Iterator<Item = Time> {
        let changes = self.state.changes().into_iter();
        changes.map(|c| c.at).filter(move |at| *at > now && *at < Time::MAX)
    }

    /// Switches that reboot later than at `now`.
    pub(super) fn reboots_after(&self, now: Time) -> BTreeSet<u32> {
        self.state.reboots_after(now)
    }
}

impl World {
    /// Lets the faults of `plan` happen. Before the first [`run`](Self::run); a second plan takes
    /// the place of the first.
    ///
    /// # Errors
    /// [`PlanError`] when the plan contradicts itself or names what the world has not.
    ///
    /// # Panics
    /// After [`run`](Self::run).
    pub fn set_faults(&mut self, plan: &FaultPlan) -> Result<(), PlanError> {
        let started = self.faults.as_ref().is_some_and(|f| f.component.is_some());
        assert!(!started && self.shared.engine.events() == 0, "a plan for a run that has begun");
        let seed = self.shared.engine.seed();
        let state = FaultState::new(plan, &self.shared.fabric, seed)?;
        let any = !plan.faults.is_empty();
        self.faults = any.then(|| Box::new(Faults { state, component: None }));
        Ok(())
    }

    /// Ends the hold `id`: its packets go on now, and it holds no more. False: there is no such
    /// hold.
    pub fn release(&mut self, id: &str) -> bool {
        let Some(faults) = &self.faults else { return false };
        let Some(fault) = faults.state.hold(id) else { return false };
        self.let_go(self.shared.engine.now(), fault);
        true
    }

    /// What every fault of the plan has done so far, in the plan's order.
    pub fn fault_uses(&self) -> Vec<FaultUse> {
        let count = |h: &HostFault| self.hosts[h.host.index()].fault_count(h);
        self.faults.as_ref().map_or_else(Vec::new, |f| f.state.uses(count))
    }

    /// Puts the times of the plan into the queue. They do not keep the run alive.
    pub(super) fn arm_faults(&mut self) {
        let Some(faults) = self.faults.as_deref_mut() else { return };
        if faults.component.is_some() {
            return;
        }
        if let Some(capture) = &mut self.shared.capture {
            capture.name_faults(faults.state.ids());
        }
        for host in faults.state.nic_stalls() {
            if let Some(host) = self.hosts.get_mut(host.index()) {
                host.keep_stages_apart();
            }
        }
        let component = self.shared.engine.add_component("faults");
        faults.component = Some(component);
        for change in faults.state.changes() {
            let ev = match change.begins {
                true => FaultEvent::Begin(change.fault),
                false => FaultEvent::End(change.fault),
            };
            let engine = &mut self.shared.engine;
            engine.schedule_periodic(component, change.at, Class::Fault, Event::Fault(ev));
        }
    }

    /// Packets that faults keep from arriving.
    pub(super) fn kept_packets(&self) -> BTreeSet<u32> {
        self.faults.as_ref().map(|f| f.state.kept()).unwrap_or_default()
    }

    /// Whether every program has ended and only faults would happen to what is over.
    pub(super) fn only_faults_left(&self) -> bool {
        self.faults.as_deref().is_some_and(|f| !f.state.holds())
            && self.shared.engine.only_periodic_left()
            && self.hosts.iter().all(Host::done)
    }

    /// Whether an event takes place now: not if a fault puts it off, or its host is dead.
    pub(super) fn comes(&mut self, now: Time, class: Class, event: Event) -> bool {
        let Some(faults) = self.faults.as_deref_mut() else { return true };
        let Event::Host(host, ev) = event else { return true };
        let state = &mut faults.state;
        let island = &mut self.hosts[host.index()];
        if state.is_dead(host) {
            island.forget(ev);
            return false;
        }
        let put_off = match ev {
            HostEvent::Step { initiator, generation } => {
                let rank = island.steps_now(initiator, generation);
                rank.and_then(|rank| state.step_put_off(now, host, rank))
            }
            HostEvent::Nic { nic, .. } => state.nic_put_off(now, (host, nic.into())),
            _ => None,
        };
        if let Some((fault, until)) = put_off {
            let origin = island.component_of(ev);
            self.shared.engine.schedule(origin, until, class, event);
            self.fired(now, fault, u64::from(host.0));
            return false;
        }
        if let HostEvent::Nic { nic, ev: NicEvent::Doorbell { qp, blueflame, .. } } = ev
            && let qpn = Nic::qpn(PortId(nic.into()), qp)
            && let Some((fault, stop_after)) =
                state.doorbell(now, (host, nic.into()), qpn, blueflame)
        {
            island.bad_doorbell(&mut self.shared, now, (nic, qp), stop_after);
            self.reached = now;
            self.fired(now, fault, u64::from(host.0));
            return false;
        }
        true
    }

    /// A fault has fired: that is part of the run, and may release what others hold.
    fn fired(&mut self, now: Time, fault: u32, about: u64) {
        let faults = self.faults.as_deref().expect("a fault fired");
        let component = faults.component.expect("the run has started");
        let id = fnv1a(faults.state.id(fault));
        let released = faults.state.released_by(fault);
        self.shared.engine.trace(component, FIRED, id, about);
        for hold in released {
            self.let_go(now, hold);
        }
    }

    fn let_go(&mut self, now: Time, hold: u32) {
        let Some(faults) = self.faults.as_deref_mut() else { return };
        for key in faults.state.release(hold) {
            let component = faults.component.expect("packets are held, so the run has started");
            let ev = Event::Fault(FaultEvent::Deliver(key));
            self.shared.engine.schedule(component, now, Class::Arrival, ev);
        }
    }

    /// An event of the plan. False: it changed nothing.
    pub(super) fn on_fault(&mut self, now: Time, ev: FaultEvent) -> bool {
        let Some(faults) = self.faults.as_deref_mut() else { return false };
        let (fault, begins) = match ev {
            FaultEvent::Deliver(key) => {
                let Some(held) = faults.state.take(key) else { return false };
                self.go_on(now, held);
                return true;
            }
            FaultEvent::Begin(fault) => (fault, true),
            FaultEvent::End(fault) => (fault, false),
        };
        if let Some(switch) = faults.state.reboot(fault) {
            return self.on_reboot(now, fault, switch, begins);
        }
        match faults.state.host_fault(fault) {
            Some(h) => self.on_host_fault(now, fault, h, begins),
            None => match faults.state.ports_changed(fault, begins) {
                Some(ports) => self.ports_change(now, &ports, begins),
                None => {
                    self.let_go(now, fault);
                    false
                }
            },
        }
    }

    /// The programs at the ends of a link hear that it goes down or comes back. False: nobody does.
    fn ports_change(&mut self, now: Time, ports: &[(HostId, PortId)], down: bool) -> bool {
        if self.is_over() {
            return false;
        }
        for &(host, port) in ports {
            self.hosts[host.index()].port_event(&mut self.shared, now, port, !down);
        }
        !ports.is_empty()
    }

    /// A switch goes down or comes up. False: the run is over.
    fn on_reboot(&mut self, now: Time, fault: u32, switch: u32, begins: bool) -> bool {
        let over = self.is_over();
        let Some(faults) = self.faults.as_deref_mut().filter(|_| !over) else { return false };
        faults.state.switch_changed(fault, switch, begins);
        if begins {
            faults.state.happened(fault, now);
        }
        let ports = faults.state.ports_changed(fault, begins).unwrap_or_default();
        let s = &mut self.shared;
        let id = s.port_ids[s.fabric.hosts().len() + switch as usize];
        let lost = if begins {
            s.fabric.switch_down(now, switch as usize, &mut s.fabric_out)
        } else {
            s.fabric.switch_up(now, switch as usize, &mut s.fabric_out);
            Vec::new()
        };
        s.schedule_fabric(id);
        lost.into_iter().for_each(|d| self.dropped(now, id, d));
        if begins {
            self.fired(now, fault, u64::from(switch));
        }
        self.ports_change(now, &ports, begins);
        true
    }

    /// A host pauses its links without a reason of its own, or stops to.
    fn on_storm(&mut self, now: Time, fault: u32, h: HostFault, (sl, begins): (Option<u8>, bool)) {
        let s = &mut self.shared;
        let host = h.host;
        let node = s.fabric.host_mut(host);
        let classes = match sl {
            _ if !begins => 0,
            Some(sl) => 1 << node.class_of(sl),
            None => u8::MAX,
        };
        for port in (0..node.nics() as u16).filter(|nic| h.is_of(*nic)).map(PortId) {
            node.pause(now, port, PauseReason::Storm, classes, &mut s.fabric_out);
        }
        s.schedule_fabric(s.port_ids[host.index()]);
        if begins {
            let faults = self.faults.as_deref_mut().expect("a fault happens");
            faults.state.happened(fault, now);
            self.fired(now, fault, u64::from(host.0));
        }
    }

    fn on_host_fault(&mut self, now: Time, fault: u32, h: HostFault, begins: bool) -> bool {
        // Deadlines that mean nothing may keep the queue going after the end of the run.
        let over = self.is_over();
        let Some(faults) = self.faults.as_deref_mut() else { return false };
        let island = &mut self.hosts[h.host.index()];
        let storms = matches!(h.action, HostAction::PauseStorm { .. });
        if island.is_dead() || over && (begins || storms) {
            return false;
        }
        let done = match h.action {
            HostAction::PeerDead => {
                island.die();
                faults.state.kill(h.host);
                let s = &mut self.shared;
                let node = s.fabric.host_mut(h.host);
                node.silence();
                node.forget_kept(now, &mut s.fabric_out);
                s.schedule_fabric(s.port_ids[h.host.index()]);
                true
            }
            HostAction::PauseStorm { sl } => {
                self.on_storm(now, fault, h, (sl, begins));
                return true;
            }
            HostAction::QpError { qp } => island.fail_qp(&mut self.shared, now, qp),
            _ => {
                let count = island.fault_count(&h);
                match begins {
                    true => faults.state.open(fault, now, count),
                    false => faults.state.close(fault, count),
                }
                island.set_fault(&mut self.shared, now, &h, begins);
                return false;
            }
        };
        if done {
            faults.state.happened(fault, now);
            self.fired(now, fault, u64::from(h.host.0));
        }
        done
    }

    // ---- packets -----------------------------------------------------------------------------

    /// As [`pass`](Self::pass), where a plan is asked about packets that arrive.
    pub(super) fn on_faulty_fabric(&mut self, now: Time, ev: FabricEvent) {
        let FabricEvent::Arrive { node, port, packet, wire_bytes } = ev else {
            return self.pass(now, ev);
        };
        let faults = self.faults.as_deref_mut().expect("there is a plan");
        let p = &self.shared.packets[packet.0];
        let psn = u64::from(p.desc.psn.value());
        let Some((fault, decision)) = faults.state.judge(now, (node, port), p) else {
            return self.arrive(now, (node, port), packet, wire_bytes);
        };
        if let Some(fault) = fault {
            self.fired(now, fault, psn);
        }
        let held =
            Held { fault: fault.unwrap_or(0), at: (node, port), packet, wire_bytes, behind: 0 };
        match decision {
            Decision::Lose(cause) => self.lose(now, held, cause),
            Decision::Delay(by) => self.keep(held, Some(now + by)),
            Decision::Hold => self.keep(held, None),
            Decision::Reorder { behind, within } => {
                self.keep(Held { behind, ..held }, Some(now + within));
            }
            Decision::Corrupt => {
                // Who damaged it first is told: a packet that is wrong stays wrong.
                let number = NonZeroU32::MIN.saturating_add(held.fault);
                let remark = self.shared.packets[packet.0].remark.get_or_insert_default();
                remark.corrupt.get_or_insert(number);
                self.arrive(now, (node, port), packet, wire_bytes);
            }
            Decision::Copy(copies) => {
                let mut copy = self.shared.packets[packet.0].clone();
                copy.remark.get_or_insert_default().copied = true;
                let room = MAX_PACKETS_WITH_COPIES.saturating_sub(self.shared.packets.len());
                let asked = copies;
                let copies = asked.min(u32::try_from(room).unwrap_or(u32::MAX));
                if let (Some(fault), Some(faults)) = (fault, self.faults.as_deref_mut()) {
                    faults.state.leave_out(fault, asked - copies);
                }
                self.arrive(now, (node, port), packet, wire_bytes);
                for _ in 0..copies {
                    let packet = PacketId(self.shared.packets.insert(copy.clone()));
                    self.shared.fabric.copy((node, port), (wire_bytes, copy.sl));
                    self.arrive(now, (node, port), packet, wire_bytes);
                }
            }
        }
    }

    /// Keeps a packet at the end of its link, until a time if one is given.
    fn keep(&mut self, held: Held, until: Option<Time>) {
        let faults = self.faults.as_deref_mut().expect("a fault holds it");
        let key = faults.state.keep(held);
        if let (Some(at), Some(component)) = (until, faults.component) {
            let ev = Event::Fault(FaultEvent::Deliver(key));
            self.shared.engine.schedule(component, at, Class::Arrival, ev);
        }
    }

    fn lose(&mut self, now: Time, held: Held, cause: DropCause) {
        let Held { fault, at, packet, wire_bytes, .. } = held;
        let s = &mut self.shared;
        let size = (wire_bytes, s.packets[packet.0].sl);
        s.fabric.lose(now, at, cause, size, &mut s.fabric_out);
        let id = s.port_ids[at.0.index()];
        s.schedule_fabric(id);
        let packet = s.packets.remove(packet.0);
        // What is cut off with a dead host is the doing of no packet fault.
        let fault = (cause != DropCause::PeerDead).then_some(fault);
        self.losses.add(now, &packet, LossPlace::Link { into: at.0, fault }, cause);
        if let Some(capture) = &mut s.capture {
            let by = fault.zip(self.faults.as_deref()).map(|(n, f)| f.state.id(n));
            let by = by.map_or(String::new(), |id| format!(", by fault `{id}`"));
            let text = format!("dropped here: {}{by}", cause.name());
            capture.record(now, at, Direction::Inbound, &packet, Some(&text));
        }
    }

    fn go_on(&mut self, now: Time, held: Held) {
        if let Some((fault, cause)) = self.faults.as_deref().and_then(|f| f.state.cut(held.at)) {
            let fault = fault.unwrap_or(held.fault);
            return self.lose(now, Held { fault, ..held }, cause);
        }
        self.arrive(now, held.at, held.packet, held.wire_bytes);
    }

    /// A packet arrives, and with it those that waited to be overtaken by it.
    fn arrive(&mut self, now: Time, at: (NodeId, PortId), packet: PacketId, wire_bytes: u32) {
        let (node, port) = at;
        self.pass(now, FabricEvent::Arrive { node, port, packet, wire_bytes });
        let faults = self.faults.as_deref_mut().expect("there is a plan");
        for held in faults.state.overtaken(at) {
            self.go_on(now, held);
        }
    }
}
