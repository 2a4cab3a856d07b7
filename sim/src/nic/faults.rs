//! What planned faults do to a NIC.

use std::collections::BTreeSet;

use doorbell_core::verbs::{AsyncEventKind, QpState};

use super::env::{Env, Wake};
use super::postmortem::Why;
use super::{Nic, NicQp};

impl Nic {
    /// The device gives a QP up: ERR, flush, and the event that says so.
    pub(crate) fn fail_qp(&mut self, env: &mut Env<'_>, qp: u32) {
        let Some(owner) = self.qp(qp).map(|q| q.owner) else { return };
        self.raise(env, owner, AsyncEventKind::QpFatal, qp);
        self.enter_error(env, qp, Why::Device);
    }

    /// The doorbell unit has found a doorbell damaged. Synthetic: no public source says what NICs
    /// do, or after how many errors one stops.
    pub(crate) fn bad_doorbell(&mut self, env: &mut Env<'_>, qp: u32, stop_after: Option<u32>) {
        self.stats.doorbell_check_errors += 1;
        let failed = |q: &NicQp| matches!(q.state, QpState::Reset | QpState::Err);
        if self.qp(qp).is_some_and(|q| !failed(q)) {
            self.fail_qp(env, qp);
        }
        let errors = self.stats.doorbell_check_errors;
        // Each fault has a threshold: that of this one may have been passed long ago. Once: a NIC
        // that has stopped stays so.
        let Some(threshold) = stop_after.filter(|n| u64::from(*n) <= errors) else { return };
        if std::mem::replace(&mut self.stopped, true) {
            return;
        }
        let owners: BTreeSet<u16> = self.qps().map(|(_, q)| q.owner).collect();
        for owner in owners {
            self.raise(env, owner, AsyncEventKind::DeviceFatal, 0);
        }
        let rest: Vec<u32> = self.qps().filter(|(_, q)| !failed(q)).map(|(i, _)| i).collect();
        for qp in rest {
            self.enter_error(env, qp, Why::Stopped { errors, threshold });
        }
    }

    /// Hides the posted receives of a QP, or of all, from the receive units, or shows them again.
    /// Of a QP with an SRQ, those of the SRQ. The last of several faults to end shows them.
    pub(crate) fn withhold(&mut self, qp: Option<u32>, on: bool) {
        change(&mut self.withheld, qp, on);
        self.mark_receives();
    }

    /// Marks queues that are made while a fault withholds.
    pub(super) fn apply_withheld(&mut self) {
        if !self.withheld.is_empty() {
            self.mark_receives();
        }
    }

    fn mark_receives(&mut self) {
        let Self { withheld, qps, srqs, .. } = self;
        let all = withheld.contains(&None);
        srqs.iter_mut().flatten().for_each(|srq| srq.withheld = all);
        for (index, q) in (0..).zip(qps) {
            let Some(q) = q.as_deref_mut() else { continue };
            q.rq.withheld = all || withheld.contains(&Some(index));
            if let Some(srq) = q.srq.and_then(|s| srqs[s as usize].as_mut()) {
                srq.withheld |= q.rq.withheld;
            }
        }
    }

    /// Hides what lands in a completion queue, or in all, from polls, or shows it again.
    pub(crate) fn hide_completions(&mut self, cq: Option<u32>, on: bool, wakes: &mut Vec<Wake>) {
        change(&mut self.hidden, cq, on);
        self.mark_completions();
        let nic = self.number();
        for (cq, queue) in (0..).zip(&self.cqs) {
            if queue.as_ref().is_some_and(|q| !q.is_empty()) {
                wakes.push(Wake::Cq { nic, cq });
            }
        }
    }

    /// Marks a queue that is made while a fault hides.
    pub(super) fn apply_hidden(&mut self) {
        if !self.hidden.is_empty() {
            self.mark_completions();
        }
    }

    fn mark_completions(&mut self) {
        let Self { hidden, cqs, .. } = self;
        for (index, queue) in (0..).zip(cqs) {
            if let Some(queue) = queue {
                queue.hide(hidden.iter().any(|h| h.is_none_or(|c| c == index)));
            }
        }
    }

    /// Polls of this NIC's completion queues that missed an entry, and entries that woke nobody.
    pub(crate) fn polls_missed(&self) -> u64 {
        self.completion_queues().map(|q| q.missed()).sum()
    }
}

/// Adds what a fault is about to those under way, or takes it off.
fn change(all: &mut Vec<Option<u32>>, one: Option<u32>, on: bool) {
    if on {
        all.push(one);
    } else if let Some(i) = all.iter().position(|w| *w == one) {
        all.swap_remove(i);
    }
}
