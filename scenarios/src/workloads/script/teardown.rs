//! The end of a queue pair: asynchronous events, the drain marker, destruction.
//!
//! The marker is a SEND posted when the QP is in ERR. Each queue is flushed in order, so when the
//! marker comes back, everything posted before it has (`protocol.md` §3.3). A QP that is destroyed
//! before that takes the completions that are still to come with it.

use doorbell_core::transport::{Completion, Control, FenceScope, Next, Ring, WaitSet, WorkQueue};
use doorbell_core::units::Span;
use doorbell_core::verbs::{AsyncEventKind, AsyncObject, QpState, SendFlags};

use super::super::common::{Failure, Message, Op, Place, Poster, Shape};
use super::{Held, Outcome, POLL_BATCH, Script};

/// A line about the end of a QP.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum EndStep {
    /// Waits for an asynchronous event.
    AwaitEvent {
        /// QP, for events of QPs.
        qp: u32,
        /// Which.
        kind: AsyncEventKind,
        /// How long at most; `None`: for ever.
        deadline: Option<Span>,
    },
    /// Posts a marker to a QP in ERR and waits until it is flushed.
    Drain {
        /// QP.
        qp: u32,
        /// How long at most; `None`: for ever.
        deadline: Option<Span>,
    },
    /// Destroys a QP.
    Destroy {
        /// QP.
        qp: u32,
    },
}

/// A drain marker that was posted.
#[derive(Copy, Clone, Debug)]
pub(super) struct Marker {
    wr_id: u64,
    flushed: bool,
}

impl Script {
    /// Executes a line; what to wait for if it is not finished.
    pub(super) fn end<T: Control>(
        &mut self,
        t: &mut T,
        step: EndStep,
    ) -> Result<Option<Next>, Failure> {
        match step {
            EndStep::AwaitEvent { qp, kind, deadline } => self.await_event(t, qp, kind, deadline),
            EndStep::Drain { qp, deadline } => self.drain(t, qp, deadline),
            EndStep::Destroy { qp } => self.destroy(t, qp).map(|()| None),
        }
    }

    /// Takes the events that have come, and waits for one of `kind` about QP `qp` if it is an
    /// event of QPs.
    fn await_event<T: Control>(
        &mut self,
        t: &mut T,
        qp: u32,
        kind: AsyncEventKind,
        deadline: Option<Span>,
    ) -> Result<Option<Next>, Failure> {
        let since = *self.since.get_or_insert(t.now());
        self.events.extend(std::iter::from_fn(|| t.next_event()));
        let id = self.lane(qp)?.qp;
        let of_qp = kind.object() == AsyncObject::Qp;
        let wanted =
            self.events.iter().position(|e| e.kind == kind && (!of_qp || e.qp == Some(id)));
        if let Some(i) = wanted {
            self.events.remove(i);
            self.log(t, Outcome::Happened(kind));
            return Ok(None);
        }
        let until = deadline.map(|d| since + d);
        if until.is_some_and(|u| t.now() >= u) {
            self.log(t, Outcome::TimedOut(0));
            return Ok(None);
        }
        Ok(Some(Next::Wait { on: WaitSet::EVENTS, until }))
    }

    /// Posts a marker to a QP in ERR and waits until it is flushed.
    fn drain<T: Control>(
        &mut self,
        t: &mut T,
        qp: u32,
        deadline: Option<Span>,
    ) -> Result<Option<Next>, Failure> {
        let since = *self.since.get_or_insert(t.now());
        // Slots come back by the polls that see the flushed work requests: a full send queue has
        // to be polled before it takes the marker.
        let id = self.lane(qp)?.qp;
        if self.marker.is_none() && (t.sq_free(id) > 0 || t.qp_state(id) != Ok(QpState::Err)) {
            self.post_marker(t, qp)?;
        }
        let empty = self.poll(t, POLL_BATCH)?;
        if self.marker.is_some_and(|m| m.flushed) {
            self.marker = None;
            self.log(t, Outcome::Drained(self.seen));
            return Ok(None);
        }
        let until = deadline.map(|d| since + d);
        if until.is_some_and(|u| t.now() >= u) {
            self.marker = None;
            self.log(t, Outcome::TimedOut(self.seen));
            return Ok(None);
        }
        let local = self.client.local();
        let on = WaitSet::cq(local.send_cq).or(WaitSet::cq(local.recv_cq));
        // A poll that made room for the marker is followed by a look that posts it.
        let room = self.marker.is_none() && t.sq_free(id) > 0;
        Ok(Some(if empty && !room { Next::Wait { on, until } } else { Next::Again }))
    }

    fn post_marker<T: Control>(&mut self, t: &mut T, qp: u32) -> Result<(), Failure> {
        let lane = self.lane(qp)?;
        if t.qp_state(lane.qp) != Ok(QpState::Err) {
            return Err(Failure::Config(
                "`drain` of a queue pair not in ERR: `state err` before it",
            ));
        }
        let (wr_id, mr) = (self.posted, self.client.local().mr);
        let message = Message { wr_id, n: wr_id, offset: 0, flags: SendFlags::SIGNALED };
        let shape = Shape { op: Op::Send, size: 0, inline: false };
        Poster::new(shape).stage_at(t, &lane, &mr, message, Place::default())?;
        self.posted += 1;
        self.sent[qp as usize].staged.push_back(Held::default());
        // No step of the script stands between this WQE and its ring.
        if t.qp_caps(lane.qp).is_ok_and(|caps| !caps.ring_orders_stores) {
            t.fence(FenceScope::System);
        }
        let rung = t.ring(lane.qp, Ring::Auto);
        self.rang(qp, &rung);
        rung?;
        self.marker = Some(Marker { wr_id, flushed: false });
        Ok(())
    }

    /// Looks whether a completion is that of the marker.
    pub(super) fn look_for_marker(&mut self, c: &Completion) {
        let id = match *c {
            Completion::Send { wr_id, .. }
            | Completion::Error { wr_id, queue: WorkQueue::Send, .. } => wr_id,
            _ => return,
        };
        if let Some(m) = self.marker.as_mut().filter(|m| m.wr_id == id) {
            m.flushed = true;
        }
    }

    /// Destroys a QP. Nothing that it had outstanding completes.
    fn destroy<T: Control>(&mut self, t: &mut T, qp: u32) -> Result<(), Failure> {
        let gone = t.destroy_qp(self.lane(qp)?.qp).is_ok();
        let sent = &mut self.sent[qp as usize];
        sent.staged.clear();
        sent.rung.clear();
        self.log(t, Outcome::Destroyed(gone));
        Ok(())
    }
}
