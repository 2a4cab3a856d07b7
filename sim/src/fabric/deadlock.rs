//! The search for a deadlock: ports that all wait for each other, held back by pauses or for lack
//! of credit.

use core::fmt;
use std::collections::{BTreeMap, BTreeSet};

use doorbell_core::units::{Span, Time};

use super::egress::{EgressPort, Queued};
use super::{Fabric, FabricEvent, SwitchNode};
use crate::engine::Out;
use crate::wire::{HostId, Packets, PortId};

/// Most switches whose routes are looked at for circles.
const MAX_SEARCHED: usize = 256;

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

/// What holds a packet back.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum HeldBy {
    /// A pause of its class.
    Pause,
    /// No credit for it: no room at the far end.
    Credit,
}

/// Output queues each of which waits for the next, and the last for the first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Deadlock {
    /// What they wait for: the end of a pause, or credit.
    pub by: HeldBy,
    /// In the order in which they wait.
    pub cycle: Vec<Waiting>,
}

impl fmt::Display for Deadlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.by {
            HeldBy::Pause => "pause deadlock in class",
            HeldBy::Credit => "credit deadlock in class",
        };
        write!(f, "{what} {}: ", self.cycle[0].class)?;
        for w in &self.cycle {
            write!(f, "switch{}.port{} waits for ", w.switch, w.port.0)?;
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

    /// Whether some switch looks for pauses that last too long.
    pub fn has_watchdogs(&self) -> bool {
        self.switches.iter().any(|s| s.mmu.as_ref().is_some_and(|m| m.watchdog.is_some()))
    }

    /// Whether ports may wait for each other in a circle: switches hold each other back, and the
    /// routes lead over links of which each is followed by another in a circle. False for networks
    /// of more than 256 switches, which are built as shapes and go up, then down.
    pub fn may_deadlock(&self) -> bool {
        let n = self.switches.len();
        let held = |s: &SwitchNode| s.ports.iter().any(|p| p.egress.pushes_back());
        if n > MAX_SEARCHED || !self.switches.iter().any(held) {
            return false;
        }
        let mut after: BTreeMap<(usize, PortId), BTreeSet<(usize, PortId)>> = BTreeMap::new();
        for (host, host_port) in self.destinations() {
            for (i, s) in self.switches.iter().enumerate() {
                for way in s.routes().ways(host, host_port) {
                    let (peer, _) = s.egress(*way).peer();
                    let Some(next) = peer.index().checked_sub(self.hosts.len()) else { continue };
                    let ways = self.switches[next].routes().ways(host, host_port);
                    let then = ways.iter().map(|w| (next, *w));
                    after.entry((i, *way)).or_default().extend(then);
                }
            }
        }
        // Links that are followed by no link that is left, one after the other: a circle stays.
        loop {
            let ends = |on: &BTreeSet<_>| on.iter().all(|w| !after.contains_key(w));
            let done: Vec<_> = after.iter().filter(|(_, on)| ends(on)).map(|(w, _)| *w).collect();
            if done.is_empty() {
                return !after.is_empty();
            }
            for w in done {
                after.remove(&w);
            }
        }
    }

    /// A port of a host behind each switch, and those that have static routes: all others are
    /// reached as one of these is.
    fn destinations(&self) -> Vec<(HostId, PortId)> {
        let mut seen = BTreeSet::new();
        let ports = self.hosts.iter().flat_map(|h| (0..h.ports() as u16).map(move |p| (h, p)));
        let ports = ports.map(|(h, p)| (h.host, PortId(p), h.egress(PortId(p)).peer().0));
        let own = |host, port| self.switches.iter().any(|s| s.routes().is_fixed(host, port));
        let first = ports.filter(|(host, port, at)| seen.insert(*at) || own(*host, *port));
        first.map(|(host, port, _)| (host, port)).collect()
    }

    /// Output queues that wait for each other in a circle and will do so for ever. To be asked at
    /// fixed instants; the search takes time in proportion to what is held back. Lack of credit is
    /// looked at when it has lasted for `lasting`: what moves gets credit again and again. A switch
    /// in `emptied` will lose its queues, by a fault that is still to come: it is in no circle.
    ///
    /// A paused queue with packets waits for the far end's input queue, and that for each output
    /// queue that holds its packets. Where all of those wait too, and so on, nothing of them can
    /// move. A watchdog that ignores pauses breaks such circles, and a pause that is not renewed
    /// ends: there is none then.
    pub fn deadlock(&self, now: Time, lasting: Span, emptied: &BTreeSet<u32>) -> Option<Deadlock> {
        let mut stuck = BTreeMap::new();
        for (i, s) in self.switches.iter().enumerate() {
            if emptied.contains(&(i as u32)) {
                continue;
            }
            if s.mmu.as_ref().is_some_and(|m| m.watchdog.is_none_or(|w| !w.breaks_pauses())) {
                for w in s.paused(i as u32) {
                    self.waits_for(w).and_then(|on| stuck.insert(w, (HeldBy::Pause, on)));
                }
            }
            for w in s.starved(i as u32, now, lasting) {
                self.lacks_credit(w).and_then(|on| stuck.insert(w, (HeldBy::Credit, on)));
            }
        }
        // What waits for something that moves will move.
        loop {
            let moves = |on: &Vec<Waiting>| on.iter().any(|w| !stuck.contains_key(w));
            let free = stuck.iter().filter(|(_, (_, on))| moves(on)).map(|(w, _)| *w);
            let free: Vec<_> = free.collect();
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
            let (by, on) = &stuck[path.last()?];
            if let Some(from) = path.iter().position(|w| *w == on[0]) {
                return Some(Deadlock { by: *by, cycle: path.split_off(from) });
            }
            path.push(on[0]);
        }
    }

    /// The output queues that one without credit waits for; `None` when it does not wait for a
    /// switch, or when credit, or what will give it back, is still under way.
    fn lacks_credit(&self, w: Waiting) -> Option<Vec<Waiting>> {
        let egress = self.switches[w.switch as usize].egress(w.port);
        let (peer, input) = egress.peer();
        let index = peer.index().checked_sub(self.hosts.len())?;
        let s = &self.switches[index];
        if s.storing.packets > 0 {
            return None;
        }
        // Credits of bytes are one account for all classes.
        let lanes = egress.lanes() > 0;
        let mine = |q: &Queued| q.ingress == input && (!lanes || q.class == w.class);
        let ports = || s.ports.iter().map(|p| &p.egress);
        let waits = ports().flat_map(EgressPort::queued).filter(|q| mine(q));
        if !egress.credit_is_held(s.ingress(input), w.class, waits) {
            return None;
        }
        let held = ports().enumerate().flat_map(|(port, egress)| {
            egress
                .queued()
                .filter(|q| mine(q))
                .map(move |q| (port, if lanes { q.class } else { 0 }))
        });
        let on: BTreeSet<_> = held.collect();
        let on = on.into_iter().map(|(port, class)| Waiting {
            switch: index as u32,
            port: PortId(port as u16),
            class,
        });
        Some(on.collect::<Vec<_>>()).filter(|on| !on.is_empty())
    }

    /// The output queues that a paused one waits for; `None` when it does not wait for a switch
    /// that pauses it, or that may let it go on by itself.
    fn waits_for(&self, w: Waiting) -> Option<Vec<Waiting>> {
        let (peer, input) = self.switches[w.switch as usize].egress(w.port).peer();
        let index = peer.index().checked_sub(self.hosts.len())?;
        let s = &self.switches[index];
        // A packet that is being stored comes into a queue that is not known here.
        if !s.is_pausing(input, w.class) || s.lets_lapse(input) || s.storing.packets > 0 {
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
        packets: &mut Packets,
        out: &mut Out<FabricEvent>,
    ) {
        self.switches[switch].watch(now, packets, out);
    }
}

impl SwitchNode {
    /// Output queues that have lacked credit for so long.
    fn starved(&self, switch: u32, now: Time, lasting: Span) -> impl Iterator<Item = Waiting> {
        self.ports.iter().enumerate().flat_map(move |(port, p)| {
            let classes = 0..p.egress.lanes().max(1);
            let starved = classes.filter(move |class| {
                let since = p.egress.starved_since(*class);
                since.is_some_and(|since| now.since(since.min(now)) >= lasting)
            });
            let port = PortId(port as u16);
            starved.map(move |class| Waiting { switch, port, class })
        })
    }

    /// Output queues that are paused and have packets.
    fn paused(&self, switch: u32) -> impl Iterator<Item = Waiting> {
        let ports = self.ports.iter().enumerate().filter(|(_, p)| p.egress.is_paused_at_all());
        ports.flat_map(move |(port, p)| {
            let paused = |class: &u8| {
                p.egress.is_paused(*class) && p.egress.queued().any(|item| item.class == *class)
            };
            let port = PortId(port as u16);
            let classes = (0..super::MAX_CLASSES as u8).filter(paused).collect::<Vec<_>>();
            classes.into_iter().map(move |class| Waiting { switch, port, class })
        })
    }
}
