//! What would have come next in a run that was cut off.

use doorbell_core::units::Time;
use doorbell_core::verbs::Qpn;

use super::World;
use crate::host::Host;
use crate::rc::{Requester, Stall};

/// The next thing to happen, where all rests until then.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Due {
    /// A planned fault begins or ends.
    Fault,
    /// A timer of a queue pair expires.
    Timer {
        /// Its host.
        host: u32,
        /// Its number.
        qpn: Qpn,
        /// Whether it waits because its peer had no receive; else for an answer, or for its turn.
        rnr: bool,
    },
    /// A program goes on.
    Program {
        /// Its rank.
        rank: u32,
    },
    /// Something that is under way.
    Other,
}

impl World {
    /// What comes next, and when: nothing happens before. Where more is under way than waits for a
    /// time, that is the next event.
    pub fn next_due(&self) -> Option<(Time, Due)> {
        self.next_wait().or_else(|| Some((self.shared.engine.peek_time()?, Due::Other)))
    }

    /// The end of the first wait, if nothing is under way but waits for a time: the run was cut off
    /// in the midst of one.
    fn next_wait(&self) -> Option<(Time, Due)> {
        let engine = &self.shared.engine;
        let idle: usize = self.hosts.iter().map(Host::idle_events).sum();
        let steps: usize = self.hosts.iter().map(Host::steps_to_come).sum();
        if engine.pending() != idle + steps + engine.periodic() {
            return None;
        }
        let timers = self.living_qps().filter_map(|((host, ..), q)| {
            let r = q.requester.as_ref()?;
            let rnr = Requester::blocked_by(r) == Some(Stall::Rnr);
            Some((r.next_deadline()?, Due::Timer { host: host.0, qpn: q.qpn, rnr }))
        });
        let living = self.hosts.iter().filter(|h| !h.is_dead());
        // A step that a fault has put off, or that is due at a time of its own, is no earlier than
        // the first of all events.
        let (now, first) = (engine.now(), engine.peek_time());
        let programs = living.flat_map(Host::will_act).filter_map(|(rank, until)| {
            Some((until.filter(|at| *at > now).or(first)?, Due::Program { rank }))
        });
        let faults = self.faults.as_ref().into_iter().flat_map(|f| f.changes_after(now));
        timers.chain(programs).chain(faults.map(|at| (at, Due::Fault))).min()
    }
}
