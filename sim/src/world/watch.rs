//! Looking at a network that holds packets back, at fixed instants: storms of pauses, and circles
//! of waiting.

use doorbell_core::units::{Span, Time};

use super::World;
use crate::engine::Class;
use crate::event::Event;
use crate::fabric::Deadlock;

/// Time between two searches. Longer: a deadlock is found later. Far above the time that a pause
/// takes to travel, far below a retransmission timer.
const SEARCH_INTERVAL: Span = Span::from_us(100);

impl World {
    /// Puts the first search into the queue, where there is something to search for. Searches do
    /// not keep the run alive, and change no trace hash.
    pub(super) fn arm_watch(&mut self) {
        let fabric = &self.shared.fabric;
        if !self.watching && (fabric.pauses() || fabric.may_deadlock()) {
            self.watch_at(self.shared.engine.now() + SEARCH_INTERVAL);
        }
    }

    fn watch_at(&mut self, at: Time) {
        let switch = self.shared.fabric.hosts().len();
        let origin = self.shared.port_ids[switch];
        self.shared.engine.schedule_periodic(origin, at, Class::Observer, Event::Watch);
        self.watching = true;
    }

    /// One search. Gives the circle if there is one.
    pub(super) fn watch(&mut self, now: Time) -> Option<Deadlock> {
        self.unheard += 1;
        self.searches += 1;
        self.watching = false;
        let s = &mut self.shared;
        let hosts = s.fabric.hosts().len();
        let dogs = if s.fabric.has_watchdogs() { s.fabric.switches().len() } else { 0 };
        for switch in 0..dogs {
            s.fabric.watch(now, switch, &mut s.packets, &mut s.fabric_out);
            s.schedule_fabric(s.port_ids[hosts + switch]);
        }
        // Where no packet is under way, none is held back.
        let idle = s.packets.is_empty();
        let deadlock = match idle {
            true => None,
            false => {
                let emptied = self.faults.as_ref().map(|f| f.reboots_after(now));
                s.fabric.deadlock(now, SEARCH_INTERVAL, &emptied.unwrap_or_default())
            }
        };
        if deadlock.is_some() {
            self.reached = now;
        } else if !self.shared.engine.only_periodic_left() && !self.is_over() {
            // A timer that nobody waits for any more is pending until its time: it may be one of
            // seconds, and what has come to its end cannot come into a circle.
            self.watch_at(now + SEARCH_INTERVAL);
        }
        deadlock
    }
}
