//! Completions that a queue pair owes its program, and those that went with it.

use doorbell_core::units::Time;
use doorbell_core::verbs::{QpState, Qpn, SendFlags};

use super::Nic;
use super::env::Env;

/// Losses that are kept one by one; `NicStats::completions_lost` has the sum of all.
const MAX_KEPT: usize = 16;

/// Completions that a queue pair took with it: those in its completion queues that nobody had
/// polled, and those that were still to come.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct LostCompletions {
    /// Its number.
    pub qpn: Qpn,
    /// When.
    pub at: Time,
    /// Whether it was destroyed; else it went to RESET.
    pub destroyed: bool,
    /// Of sends that are signalled, or would have been flushed.
    pub sends: u64,
    /// Of messages that had come.
    pub receives: u64,
}

impl Nic {
    /// Completions that a QP took with it, the first `MAX_KEPT` times.
    pub fn lost_completions(&self) -> &[LostCompletions] {
        &self.lost_completions
    }

    /// The completions of a QP will never be seen: it is emptied, or goes.
    pub(super) fn lose_completions(&mut self, env: &Env<'_>, qp: u32, destroyed: bool) {
        let Some(qpn) = self.qp(qp).map(|q| q.qpn) else { return };
        let (sends, receives) = self.completions_owed(qp);
        if sends + receives == 0 {
            return;
        }
        self.stats.completions_lost += sends + receives;
        if self.lost_completions.len() < MAX_KEPT {
            let lost = LostCompletions { qpn, at: env.now, destroyed, sends, receives };
            self.lost_completions.push(lost);
        }
    }

    /// Completions of a QP that its program has a right to and has not polled: of sends that are
    /// signalled, or will be flushed, and of receives that have completed.
    fn completions_owed(&self, qp: u32) -> (u64, u64) {
        let Some(q) = self.qp(qp) else { return (0, 0) };
        let all = q.state == QpState::Err;
        let sends = (0..q.sq.prod().wrapping_sub(q.sq.tail()))
            .filter_map(|i| q.sq.slot(q.sq.tail().wrapping_add(i)))
            .filter(|s| all || q.sig_all || s.wqe.flags.contains(SendFlags::SIGNALED))
            .count() as u64;
        let landed = self.cq(q.recv_cq).map_or(0, |cq| cq.receives_of(qp));
        (sends + u64::from(q.sq.unpolled()), landed + u64::from(q.landing[1]))
    }
}
