//! Timers of QPs, packets kept beyond a gap, and the counters of RC.

use doorbell_core::transport::WorkQueue;
use doorbell_core::units::{Span, Time};
use doorbell_core::verbs::{PacketVerdict, Psn, WcStatus, accepts_packets};

use super::env::{Env, NicEvent, kind};
use super::recv_queue::RecvQueue;
use super::{Nic, NicQp};
use crate::cc::CcEvent;
use crate::engine::Class;
use crate::rc::{HwCounters, Received, RecoverCause, Requester, Stall};
use crate::wire::PacketId;

impl Nic {
    /// Sees to it that an event is pending when the QP's deadline comes. Progress moves the
    /// deadline away all the time; the event stays where it is and finds out when it comes.
    pub(super) fn arm_timer(&mut self, env: &mut Env<'_>, qp: u32) {
        let Some(q) = self.qps[qp as usize].as_deref_mut() else { return };
        let Some(due) = q.requester.as_ref().and_then(|r| r.next_deadline()) else { return };
        if q.timers.last().is_none_or(|pending| due < *pending) {
            q.timers.push(due);
            self.timers += 1;
            env.at(due, Class::Timer, NicEvent::Timer(qp));
        }
    }

    /// A timer event has come. False: nothing was due, and nothing has happened.
    pub(super) fn on_timer(&mut self, env: &mut Env<'_>, qp: u32) -> bool {
        self.timers -= 1;
        let Some(q) = self.qps.get_mut(qp as usize).and_then(Option::as_deref_mut) else {
            return false;
        };
        q.timers.pop();
        let now = env.now;
        let expired = q.requester.as_mut().filter(|r| r.next_deadline().is_some_and(|d| d <= now));
        let Some(requester) = expired else {
            self.arm_timer(env, qp);
            return false;
        };
        env.trace(kind::TIMER, u64::from(qp), u64::from(requester.unacked_psn().value()));
        let rnr = requester.blocked_by() == Some(Stall::Rnr);
        let (began, again) = (requester.standing().began, requester.standing().retries > 0);
        let acks = requester.ack_timer_since();
        let received = requester.on_timer(now);
        acks.into_iter().for_each(|since| q.waits.expired(since));
        q.stood_still((began, now), (rnr, again), acks, &received);
        if matches!(received, Received::Recover { cause: RecoverCause::Timeout, .. }) {
            self.lost(env, qp, CcEvent::Timeout);
        }
        self.completions(env, qp);
        self.schedule(env, qp);
        self.arm_timer(env, qp);
        true
    }

    /// Whether the timer event that has come for a QP will find something due.
    pub(crate) fn timer_is_due(&self, now: Time, qp: u32) -> bool {
        let requester = self.qp(qp).and_then(|q| q.requester.as_ref());
        requester.and_then(Requester::next_deadline).is_some_and(|due| due <= now)
    }

    /// A timer event will not take place: the host is dead.
    pub(crate) const fn forget_timer(&mut self) {
        self.timers -= 1;
    }

    /// Timer events that are pending, those included that will find nothing due.
    pub const fn pending_timers(&self) -> u32 {
        self.timers
    }

    /// Whether the packet `psn` to the QP at `index` is refused for want of a receive, whenever it
    /// comes. Not one that came before and is answered again, that the QP would drop, or that met a
    /// page fault. A message that has come in part holds its receive: its rest needs no other.
    pub fn refuses(&self, index: u32, psn: Psn) -> bool {
        let Some(q) = self.qp(index) else { return false };
        let Some(responder) = &q.responder else { return false };
        let takes = accepts_packets(q.state) != PacketVerdict::Dropped && !responder.failed();
        let held = q.current_recv.is_some();
        if !takes || held || responder.awaits_page() || responder.expected_psn() != psn {
            return false;
        }
        match q.srq {
            Some(srq) => self.srq(srq).is_some_and(RecvQueue::is_empty),
            None => q.rq.is_empty(),
        }
    }

    /// Whether nothing that has come is on its way to memory, and no completion.
    pub fn lands_nothing(&self) -> bool {
        self.cqes.is_empty()
            && self.atomics.is_empty()
            && self.rx_writes.is_empty()
            && self.held.is_empty()
    }

    /// A packet that was kept and is expected now.
    pub(super) fn take_kept(&mut self, qp: u32) -> Option<PacketId> {
        let q = self.qps[qp as usize].as_deref_mut()?;
        if q.kept.is_empty() {
            return None;
        }
        let psn = q.responder.as_mut()?.take_held()?;
        let i = q.kept.iter().position(|(kept, _)| *kept == psn)?;
        Some(q.kept.swap_remove(i).1)
    }

    pub(super) fn count_error(&mut self, qp: u32, queue: WorkQueue, status: WcStatus) {
        let Some(q) = self.qp_mut(qp) else { return };
        let c = &mut q.counters;
        let flushed = u64::from(status == WcStatus::WrFlushErr);
        match queue {
            WorkQueue::Send => {
                c.req_cqe_error += 1;
                c.req_cqe_flush_error += flushed;
            }
            WorkQueue::Recv => {
                c.resp_cqe_error += 1;
                c.resp_cqe_flush_error += flushed;
                c.resp_local_length_error += u64::from(status == WcStatus::LocLenErr);
            }
        }
    }

    /// Counters of the port: of all QPs, those included that are gone.
    pub fn hw_counters(&self) -> HwCounters {
        let mut sum = self.gone;
        self.qps().for_each(|(_, q)| sum.add(&q.hw_counters()));
        sum
    }
}

impl NicQp {
    /// A timer has expired: what passed since the last packet, the last expiry, or since there is
    /// something to wait for, was spent in waiting for it. `rnr`: it was the wait of an RNR NAK;
    /// `again`: something was being sent again; `timer`: since when the ack timer had run.
    fn stood_still(
        &mut self,
        (began, now): (Time, Time),
        (rnr, again): (bool, bool),
        timer: Option<Time>,
        received: &Received,
    ) {
        // One that finds no retry left has been waited for as well.
        let timeout = matches!(
            received,
            Received::Recover { cause: RecoverCause::Timeout, .. } | Received::Error { .. }
        );
        let since = std::mem::replace(&mut self.stats.stood_until, now);
        let since = since.max(self.last_progress).max(began).min(now);
        let s = &mut self.stats;
        if rnr {
            s.rnr_waited += now.since(since);
            s.rnr_waits += 1;
        } else if timeout {
            s.ack_timer_waited += now.since(since);
            s.ack_timer_waits += 1;
            s.ack_timer_waits_again += u64::from(again);
            // What was used of `retry_cnt` comes back with progress: rows are apart.
            let before = if s.ack_row.0 == began { s.ack_row.1 } else { Span::ZERO };
            s.ack_row = (began, before + timer.map_or(Span::ZERO, |since| now.since(since)));
            s.longest_ack_row = s.longest_ack_row.max(s.ack_row.1);
        }
    }

    /// Counters of this QP since it was made.
    pub fn hw_counters(&self) -> HwCounters {
        let mut sum = self.counters;
        if let Some(r) = &self.requester {
            sum.add(r.counters());
        }
        if let Some(r) = &self.responder {
            sum.add(r.counters());
        }
        sum
    }
}
