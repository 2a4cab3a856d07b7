//! The search for a pause deadlock: ports that all wait for each other.

use core::fmt;
use std::collections::BTreeMap;

use doorbell_core::units::Time;

use super::{Fabric, FabricEvent, SwitchNode};
use crate::engine::{Out, Slab};
use crate::wire::{Packet, PortId};

/// An output queue of a switch that waits.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Waiting {
    /// The switch, from 0.
    pub switch: u32,
    /// Its output port,
    pub port: PortId,
    /// and the class.
    pub class: u8,
}

/// Output queues each of which waits for the next, and the last for the first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PauseDeadlock {
    /// In the order in which they wait.
    pub cycle: Vec<Waiting>,
}

impl fmt::Display for PauseDeadlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pause deadlock in class {}: ", self.cycle[0].class)?;
        for w in &self.cycle {
            write!(f, "switch{} (port {}) waits for ", w.switch, w.port.0)?;
        }
        write!(f, "switch{}", self.cycle[0].switch)?;
        write!(f, ". Routes that go up and then down have no such circle")
    }
}

impl Fabric {
    /// Whether some switch sends pause frames.
    pub fn pauses(&self) -> bool {
        self.switches.iter().any(|s| s.mmu.is_some())
    }

    /// Output queues that wait for each other in a circle and will do so for ever. To be asked at
    /// fixed instants; the search takes time in proportion to what is paused.
    ///
    /// A paused queue with packets waits for the far end's input queue, and that for each output
    /// queue that holds its packets. Where all of those wait too, and so on, nothing of them can
    /// move. A watchdog that ignores pauses breaks such circles: there is none then.
    pub fn pause_deadlock(&self) -> Option<PauseDeadlock> {
        let mut stuck = BTreeMap::new();
        for (i, s) in self.switches.iter().enumerate() {
            if s.mmu.as_ref().is_none_or(|m| m.watchdog.is_some_and(|w| w.breaks_pauses())) {
                continue;
            }
            for w in s.paused(i as u32) {
                if let Some(on) = self.waits_for(w) {
                    stuck.insert(w, on);
                }
            }
        }
        // What waits for something that moves will move.
        loop {
            let moves = |on: &Vec<Waiting>| on.iter().any(|w| !stuck.contains_key(w));
            let free: Vec<_> = stuck.iter().filter(|(_, on)| moves(on)).map(|(w, _)| *w).collect();
            if free.is_empty() {
                break;
            }
            for w in free {
                stuck.remove(&w);
            }
        }
        // Each of what is left waits for at least one other of it: any path ends in a circle.
        let mut path = vec![*stuck.keys().next()?];
        loop {
            let next = stuck[path.last()?][0];
            if let Some(from) = path.iter().position(|w| *w == next) {
                return Some(PauseDeadlock { cycle: path.split_off(from) });
            }
            path.push(next);
        }
    }

    /// The output queues that a paused one waits for; `None` when it does not wait for a switch
    /// that pauses it, or that may let it go on by itself.
    fn waits_for(&self, w: Waiting) -> Option<Vec<Waiting>> {
        let (peer, input) = self.switches[w.switch as usize].egress(w.port).peer();
        let index = peer.index().checked_sub(self.hosts.len())?;
        let s = &self.switches[index];
        // A packet that is being stored comes into a queue that is not known here.
        if !s.is_pausing(input, w.class) || s.storing.packets > 0 {
            return None;
        }
        let holds = |port: &usize| {
            let mut queued = s.ports[*port].egress.queued();
            queued.any(|item| item.ingress == input && item.class == w.class)
        };
        let on = (0..s.ports.len()).filter(holds);
        let on = on.map(|port| Waiting {
            switch: index as u32,
            port: PortId(port as u16),
            class: w.class,
        });
        Some(on.collect::<Vec<_>>()).filter(|on| !on.is_empty())
    }

    /// The watchdogs of a switch look at its ports.
    pub fn watch(
        &mut self,
        now: Time,
        switch: usize,
        packets: &mut Slab<Packet>,
        out: &mut Out<FabricEvent>,
    ) {
        self.switches[switch].watch(now, packets, out);
    }
}

impl SwitchNode {
    /// Output queues that are paused and have packets.
    fn paused(&self, switch: u32) -> impl Iterator<Item = Waiting> {
        self.ports.iter().enumerate().flat_map(move |(port, p)| {
            let paused = |class: &u8| {
                p.egress.is_paused(*class) && p.egress.queued().any(|item| item.class == *class)
            };
            let port = PortId(port as u16);
            let classes = (0..super::MAX_CLASSES as u8).filter(paused).collect::<Vec<_>>();
            classes.into_iter().map(move |class| Waiting { switch, port, class })
        })
    }
}
