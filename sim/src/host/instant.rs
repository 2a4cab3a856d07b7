//! A host without time: what is due now is done now, in the call that asked for it, and costs no
//! event.

use doorbell_core::units::Time;

use super::island::{Host, Shared};
use crate::engine::Class;
use crate::nic::NicEvent;
use crate::pcie::{Done, Kind, NodeId, Target, Transaction};

/// Stages that are done within one call before the rest goes by the event queue, which finds out
/// who answers an event with another at the same time, for ever. More than fit between one NIC's
/// memory and its wire.
const MOST_AT_ONCE: u32 = 1 << 16;

/// Whether a stage of the NIC may be done in the call that asked for it. Doorbells keep their
/// event, where planned faults look for them; timers are counted while they are pending.
const fn follows_at_once(ev: &NicEvent) -> bool {
    matches!(
        ev,
        NicEvent::Pu(_)
            | NicEvent::Rx(_)
            | NicEvent::Respond(_)
            | NicEvent::Cqe(_)
            | NicEvent::Atomic(_)
    )
}

impl Host {
    /// From now on the NICs' stages are events even where they take no time: a planned fault may
    /// put them off.
    pub(crate) fn keep_stages_apart(&mut self) {
        self.stages_apart = true;
    }

    /// Does what is due now, in the order in which it was asked for, until nothing is left. On a
    /// host with time that is only what took no PCIe. Transactions go before stages, as a payload
    /// has to be in memory before its completion.
    pub(super) fn follow_up(&mut self, s: &mut Shared) {
        let now = s.engine.now();
        for done in 0.. {
            if self.cfg.instant && !self.stages_apart && done < MOST_AT_ONCE {
                self.collect_due(now);
            }
            if let Some(t) = self.pcie.take_ended() {
                self.ended_at_once(s, now, &t);
            } else if let Some((nic, ev)) = self.due.pop_front() {
                let (nic, mut env) = self.split(s, now, nic);
                nic.on_event(&mut env, ev);
            } else {
                return;
            }
        }
    }

    fn collect_due(&mut self, now: Time) {
        let Self { devices, due, .. } = self;
        for (nic, d) in (0..).zip(devices) {
            if d.out.is_empty() {
                continue;
            }
            d.out.retain(|at, class, ev| {
                let is_due = *at <= now && *class == Class::Stage && follows_at_once(ev);
                if is_due {
                    due.push_back((nic, *ev));
                }
                !is_due
            });
        }
    }

    fn ended_at_once(&mut self, s: &mut Shared, now: Time, t: &Transaction) {
        let device = match (t.kind, t.target) {
            (Kind::Mmio, Target::Node(device)) => device,
            _ => t.from,
        };
        if t.kind == Kind::Read {
            self.at_memory(s, now, (device, t.tag));
        }
        let Transaction { kind, cause, bytes, tag, .. } = *t;
        let (submitted, started, finished) = (now, now, now);
        let done = Done { device, tag, kind, cause, bytes, submitted, started, finished };
        self.transaction_ended(s, now, &done);
    }

    /// A read has taken its data from memory.
    pub(super) fn at_memory(&mut self, s: &mut Shared, now: Time, (node, tag): (NodeId, u64)) {
        let Some(nic) = self.nic_here(node) else { return };
        if self.late_stores > 0 {
            self.find_stale_payload(s, nic, tag);
        }
        let (nic, mut env) = self.split(s, now, nic);
        nic.on_memory(&mut env, tag);
    }
}
