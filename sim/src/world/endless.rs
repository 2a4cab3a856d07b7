//! Runs that would go on for ever: queue pairs that send again, without limit, what nobody will
//! ever take, while nothing else can happen.
//!
//! Such a queue pair is told each time that there is no receive, and its `rnr_retry` has no limit;
//! or nothing answers it, and its `retry_cnt` has none. That alone is no stall: a program may post
//! a receive, a fault may end, and a queue pair whose ack timer expires now and then uses up a
//! `retry_cnt` that has a limit. So all the rest is asked as well. Where nothing but timers is
//! pending, that is little. Else two queue pairs, or one whose ack timer is shorter than the way to
//! its peer and back, keep packets under way at all times, and everything else has to rest.

use std::collections::BTreeSet;

use doorbell_core::units::Time;

use super::World;
use super::faults::Faults;
use crate::event::Event;
use crate::host::Host;
use crate::nic::{Nic, NicQp};
use crate::wire::{HostId, Packet, PortId};

/// Every how many timers with something due the world is searched while packets are under way.
/// Higher: an endless run ends later. Lower: a run in which many timers expire takes longer, since
/// each search looks at every queue pair and packet.
const SEARCH_EVERY: u64 = 64;

/// A queue pair: its host, its NIC, and its index there.
type Place = (HostId, PortId, u32);

/// Why a queue pair goes on for ever.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Vain {
    /// Its peer has no receive for its oldest packet, and says so each time.
    Refused,
    /// Nothing answers it, however often it sends again.
    Silent,
}

impl World {
    /// Whether nothing can happen any more but that queue pairs send again for ever: asked when a
    /// timer has come.
    pub(super) fn retries_for_ever(&mut self, now: Time, event: &Event) -> bool {
        if self.nothing_due {
            return false;
        }
        if self.shared.engine.pending() + 1 == self.idle_events() {
            let vain = self.vain_retries();
            self.nothing_due = vain == Some(0);
            return vain.is_some_and(|n| n > 0);
        }
        let Event::Host(host, ev) = *event else { return false };
        let host = &self.hosts[host.index()];
        if host.is_dead() || host.is_overtaken(now, ev) {
            return false;
        }
        self.timers_due += 1;
        self.timers_due.is_multiple_of(SEARCH_EVERY) && self.is_closed()
    }

    /// Of a world in which only timers are pending: how many queue pairs send again without end.
    /// `None`: the timer of another one runs, and will change something.
    pub(super) fn vain_retries(&self) -> Option<usize> {
        let mut vain = 0;
        for (_, q) in self.living_qps() {
            let Some(r) = q.requester.as_ref().filter(|r| r.next_deadline().is_some()) else {
                continue;
            };
            let waits = r.waits_without_end() || r.retries_without_limit();
            if self.vain(q)? == Vain::Refused && !waits {
                return None;
            }
            vain += 1;
        }
        Some(vain)
    }

    /// Whether all that is under way is what queue pairs send in vain, and what that is answered:
    /// every program rests, no fault changes, and no other queue pair has anything to do.
    fn is_closed(&self) -> bool {
        let changes = self.shared.engine.periodic() > usize::from(self.watching);
        if changes || !self.shared.messages.is_empty() || !self.kept_packets().is_empty() {
            return false;
        }
        let told = |rank: u32| self.shared.ended[rank as usize];
        let rests = |h: &Host| h.is_dead() || h.rests(told) && h.nics().all(Nic::lands_nothing);
        if !self.hosts.iter().all(rests) {
            return false;
        }
        let (mut any, mut senders, mut receivers) = (false, BTreeSet::new(), BTreeSet::new());
        for (place, q) in self.living_qps() {
            match self.vain(q) {
                // A packet of a silent one would be something that is not lost yet.
                Some(Vain::Silent) => any = true,
                Some(Vain::Refused) => {
                    any = true;
                    senders.insert(place);
                    receivers
                        .extend(Nic::qp_index(q.attr.dest_qpn).map(|i| (q.peer, q.peer_port, i)));
                }
                None if q.sends_nothing() => {}
                None => return false,
            }
        }
        let in_vain = |p: &Packet| {
            let known = if p.desc.opcode.is_request() { &receivers } else { &senders };
            let to = Nic::qp_index(p.desc.dest).map(|i| (p.dst, p.dst_port, i));
            let gone = |h: HostId| self.hosts[h.index()].is_dead();
            gone(p.src) || gone(p.dst) || to.is_some_and(|to| known.contains(&to))
        };
        let answers =
            |(place, q): (Place, &NicQp)| receivers.contains(&place) || q.answers_nothing();
        any && self.living_qps().all(answers) && self.shared.packets.iter().all(|(_, p)| in_vain(p))
    }

    pub(super) fn living_qps(&self) -> impl Iterator<Item = (Place, &NicQp)> {
        let hosts = (0..).map(HostId).zip(&self.hosts).filter(|(_, h)| !h.is_dead());
        let nics = hosts.flat_map(|(host, h)| h.nics().map(move |nic| (host, nic)));
        nics.flat_map(|(host, nic)| nic.qps().map(move |(i, q)| ((host, nic.port(), i), q)))
    }

    /// Whether a queue pair sends again for ever, if nothing else happens.
    fn vain(&self, q: &NicQp) -> Option<Vain> {
        let r = q.requester.as_ref().filter(|_| q.has_awaited_answers())?;
        let (now, faults) = (self.shared.engine.now(), self.faults.as_deref());
        let peer = &self.hosts[q.peer.index()];
        let there = peer.nic(q.peer_port.index());
        let refused = || {
            let index = Nic::qp_index(q.attr.dest_qpn);
            let refuses = index.is_some_and(|i| there.refuses(i, r.unacked_psn()));
            refuses && r.refused_without_limit() && !peer.is_dead()
        };
        // Whatever a loss costs, it takes a retry.
        let unhurt = || !faults.is_some_and(|f| f.may_hurt(now));
        if refused() && (r.retries_without_limit() || r.answers_come_in_time() && unhurt()) {
            return Some(Vain::Refused);
        }
        let passes = |f: &Faults| f.may_spare(r.last_departure(), now);
        let spared = || faults.is_some_and(passes) || !self.kept_packets().is_empty();
        let silent = r.silent_without_limit() && (peer.is_dead() || !spared());
        silent.then_some(Vain::Silent)
    }
}
