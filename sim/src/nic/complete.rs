//! Completions, errors, flush.

use doorbell_core::transport::WorkQueue;
use doorbell_core::verbs::{AsyncEventKind, QpState, QpType, WcStatus};

use super::Nic;
use super::env::{Env, NicEvent, Wake, kind};
use super::postmortem::{Refused, Why};
use super::qp::HostWrite;
use super::queues::{Cqe, CqeKind};
use crate::engine::Class;
use crate::rc::Requester;
use crate::wire::PacketId;
use doorbell_core::units::Time;

/// An asynchronous event for the initiator that owns the object.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct NicAsync {
    /// What happened.
    pub kind: AsyncEventKind,
    /// Index of the QP, CQ or SRQ that it concerns.
    pub object: u32,
}

impl Nic {
    /// Turns what the requester has completed into CQEs.
    pub(super) fn completions(&mut self, env: &mut Env<'_>, qp: u32) {
        let (mut end, mut cqes) = (None, 0);
        loop {
            let Some(q) = self.qp_mut(qp) else { return };
            let Some(requester) = q.requester.as_mut() else { return };
            let Some(done) = requester.poll_completion() else {
                if requester.failed() {
                    self.send_failed(env, qp);
                } else if q.tells_drained {
                    self.tell_drained(env, qp);
                }
                break;
            };
            q.last_progress = env.now;
            end = Some(done.wqe);
            let cq = q.send_cq;
            let Some(slot) = q.sq.slot(done.wqe) else { continue };
            let wr_id = slot.wqe.wr_id;
            if done.op.is_read_or_atomic() {
                self.wqe_cache.remove(super::doorbell::wqe_key(qp, done.wqe));
            }
            if !done.signalled {
                continue;
            }
            cqes += 1;
            let kind = match done.op.wc_opcode() {
                Some(op) if done.status == WcStatus::Success => {
                    CqeKind::Send { index: done.wqe, op, len: done.len }
                }
                _ => {
                    CqeKind::Error { queue: WorkQueue::Send, index: done.wqe, status: done.status }
                }
            };
            self.write_cqe(env, qp, cq, wr_id, kind, false);
        }
        // Behind the death of the queue pair, which still names the WQE that it died of.
        if let (Some(q), Some(end)) = (self.qp_mut(qp), end) {
            q.sq.complete(end, cqes, q.life == q.host_life);
        }
    }

    /// In SQD: every message that had begun is complete and its CQE in memory, and the program
    /// hears of it once. One that hears earlier would poll in vain and believe that nothing comes.
    pub(super) fn tell_drained(&mut self, env: &mut Env<'_>, qp: u32) {
        let Some(q) = self.qp_mut(qp).filter(|q| q.tells_drained) else { return };
        if q.landing[0] == 0 && q.requester.as_ref().is_none_or(Requester::drained) {
            q.tells_drained = false;
            let owner = q.owner;
            self.raise(env, owner, AsyncEventKind::SqDrained, qp);
        }
    }

    /// Writes a CQE after the completion latency.
    pub(super) fn write_cqe(
        &mut self,
        env: &mut Env<'_>,
        qp: u32,
        cq: u32,
        wr_id: u64,
        kind: CqeKind,
        solicited: bool,
    ) {
        let life = self.qp(qp).map_or(0, |q| q.life);
        let mut vendor_err = 0;
        if let CqeKind::Error { queue, status, .. } = kind {
            self.count_error(qp, queue, status);
            vendor_err = self.vendor_err(qp, queue, status);
        }
        let cqe = Cqe { qp, life, wr_id, kind, solicited, vendor_err, landed: env.now, follows: 0 };
        if let Some(q) = self.qp_mut(qp) {
            q.landing[usize::from(cqe.is_receive())] += 1;
        }
        let id = self.cqes.insert((cq, cqe));
        let latency = self.clocked(env.now, self.cfg.completion_latency);
        // A clock that speeds up lets no completion overtake an earlier one.
        self.last_cqe = self.last_cqe.max(env.now + latency);
        env.at(self.last_cqe, Class::Stage, NicEvent::Cqe(id));
    }

    /// The vendor's code of an error, which may depend on what was flushed before.
    fn vendor_err(&mut self, qp: u32, queue: WorkQueue, status: WcStatus) -> u32 {
        let codes = self.cfg.vendor_codes;
        let Some(q) = self.qp_mut(qp) else { return 0 };
        let flushed = &mut q.flushed[usize::from(queue == WorkQueue::Recv)];
        let first = !*flushed;
        *flushed |= status == WcStatus::WrFlushErr;
        codes.code(status, first)
    }

    /// After a failed send RC is in ERR. UC and UD are in SQE: the send queue is flushed, the
    /// receive queue goes on (protocol.md §3.1).
    fn send_failed(&mut self, env: &mut Env<'_>, qp: u32) {
        let Some(q) = self.qp_mut(qp) else { return };
        match q.state {
            QpState::Err | QpState::Sqe => {}
            _ if q.ty == QpType::Rc => self.enter_error(env, qp, Why::Requester),
            _ => {
                q.died(env.now, Why::Requester);
                q.state = QpState::Sqe;
                env.trace(kind::STATE, u64::from(qp), QpState::Sqe as u64);
                self.flush_sends(env, qp);
            }
        }
    }

    pub(super) fn on_cqe(&mut self, env: &mut Env<'_>, id: u32) {
        let cqe = self.cqes[id].1;
        if self.lives(&cqe) {
            self.cqes[id].1.landed = env.now;
            self.host_write(env, cqe.qp, HostWrite::Cqe(id));
        } else {
            self.cqes.remove(id);
        }
    }

    /// Whether the QP of a CQE still is what it was; the driver removes the CQEs of one that was
    /// reset or destroyed.
    fn lives(&self, cqe: &Cqe) -> bool {
        self.qp(cqe.qp).is_some_and(|q| q.life == cqe.life)
    }

    pub(super) fn cqe_landed(&mut self, env: &mut Env<'_>, id: u32) {
        let (cq, mut cqe) = self.cqes.remove(id);
        if !self.lives(&cqe) {
            return;
        }
        let written = cqe.landed;
        cqe.landed = env.now;
        if let CqeKind::Send { index, .. } = cqe.kind {
            self.record(env, cqe.qp, index, "CQE write (PCIe)", written, env.now);
        }
        env.trace(kind::CQE, u64::from(cqe.qp), cqe.wr_id);
        let Some(q) = self.cq_mut(cq) else { return };
        let was_lost = q.lost;
        if q.land(cqe) {
            self.stats.cqes += 1;
            self.completion_landed(env.now, &cqe);
            env.wakes.push(Wake::Cq { nic: self.number(), cq });
        } else if !was_lost {
            self.cq_overrun(env, cq);
        }
        let receive = cqe.is_receive();
        if let Some(q) = self.qp_mut(cqe.qp) {
            q.landing[usize::from(receive)] -= 1;
        }
        if receive {
            self.last_wqe(env, cqe.qp);
        } else {
            self.tell_drained(env, cqe.qp);
        }
    }

    /// Tells once that a QP in ERR takes no more receives of its SRQ: the one that a message had
    /// taken has been completed, and its CQE is in memory (protocol.md §3.3).
    fn last_wqe(&mut self, env: &mut Env<'_>, qp: u32) {
        let tells = self.rc.rules.last_wqe_event;
        let Some(q) = self.qp_mut(qp) else { return };
        let over = q.state == QpState::Err && q.current_recv.is_none() && q.landing[1] == 0;
        if !tells || !over || q.srq.is_none() || q.last_wqe_told {
            return;
        }
        q.last_wqe_told = true;
        let owner = q.owner;
        self.raise(env, owner, AsyncEventKind::QpLastWqeReached, qp);
    }

    /// The queue is lost, and with it every QP that completes into it (protocol.md §5.3).
    fn cq_overrun(&mut self, env: &mut Env<'_>, cq: u32) {
        let owner = self.cq(cq).map_or(0, |q| q.owner);
        self.stats.cq_overruns += 1;
        self.raise(env, owner, AsyncEventKind::CqErr, cq);
        let lost: Vec<u32> = self
            .qps()
            .filter(|(_, q)| q.send_cq == cq || q.recv_cq == cq)
            .filter(|(_, q)| !matches!(q.state, QpState::Reset | QpState::Err))
            .map(|(i, _)| i)
            .collect();
        for qp in lost {
            self.raise(env, owner, AsyncEventKind::QpFatal, qp);
            self.enter_error(env, qp, Why::CqOverrun(cq));
        }
        env.wakes.push(Wake::Cq { nic: self.number(), cq });
    }

    pub(super) fn raise(
        &mut self,
        env: &mut Env<'_>,
        owner: u16,
        kind: AsyncEventKind,
        object: u32,
    ) {
        self.raised[kind as usize] += 1;
        self.events.push((owner, NicAsync { kind, object }));
        env.wakes.push(Wake::Async(owner));
    }

    pub(super) fn srq_limit(&mut self, env: &mut Env<'_>, qp: u32, srq: u32) {
        let owner = self.qp(qp).map_or(0, |q| q.owner);
        self.raise(env, owner, AsyncEventKind::SrqLimitReached, srq);
    }

    /// The oldest event for `owner`.
    pub fn next_async(&mut self, owner: u16) -> Option<NicAsync> {
        let i = self.events.iter().position(|(o, _)| *o == owner)?;
        Some(self.events.remove(i).1)
    }

    /// Whether an event waits for `owner`.
    pub fn has_async(&self, owner: u16) -> bool {
        self.events.iter().any(|(o, _)| *o == owner)
    }

    /// Moves the QP to ERR: its work is flushed, each queue in its own order.
    pub fn enter_error(&mut self, env: &mut Env<'_>, qp: u32, why: Why) {
        let Some(q) = self.qp_mut(qp) else { return };
        if q.state == QpState::Err {
            return;
        }
        q.state = QpState::Err;
        q.tells_drained = false;
        q.sight.forget();
        let kept: Vec<PacketId> = q.kept.drain(..).map(|(_, packet)| packet).collect();
        if let Some(r) = q.responder.as_mut() {
            r.fail();
        }
        if let Some(r) = q.requester.as_mut()
            && !r.failed()
        {
            r.flush();
        }
        q.died(env.now, why);
        kept.into_iter().for_each(|p| self.discard(env, p, Refused::State(QpState::Err)));
        env.trace(kind::STATE, u64::from(qp), QpState::Err as u64);
        self.completions(env, qp);
        self.flush_sends(env, qp);
        self.flush_recvs(env, qp);
        self.last_wqe(env, qp);
    }

    /// Flushes what was posted and never reached the requester.
    pub(super) fn flush_sends(&mut self, env: &mut Env<'_>, qp: u32) {
        let Some(q) = self.qp_mut(qp) else { return };
        let (cq, end) = (q.send_cq, q.sq.prod());
        let (mut index, mut cqes) = (q.sq.fetched, 0);
        q.sq.fetched = end;
        q.sq.requested = end;
        q.sq.announced = end;
        q.sq.started = end;
        while index != end {
            let q = self.qp_mut(qp).expect("just there");
            let wr_id = q.sq.slot(index).map(|s| s.wqe.wr_id);
            let status = WcStatus::WrFlushErr;
            let kind = CqeKind::Error { queue: WorkQueue::Send, index, status };
            if let Some(wr_id) = wr_id {
                self.write_cqe(env, qp, cq, wr_id, kind, false);
                cqes += 1;
            }
            index = index.wrapping_add(1);
        }
        if let Some(q) = self.qp_mut(qp).filter(|_| cqes > 0) {
            q.sq.complete(end.wrapping_sub(1), cqes, q.life == q.host_life);
        }
    }

    /// Flushes the posted receives; those of an SRQ stay.
    pub(super) fn flush_recvs(&mut self, env: &mut Env<'_>, qp: u32) {
        let all = self.rc.rules.flush_receives;
        loop {
            let Some(q) = self.qp_mut(qp) else { return };
            let cq = q.recv_cq;
            let wqe = match q.current_recv.take() {
                Some(taken) => taken,
                None if !all => return,
                None => {
                    let Some(wqe) = q.rq.flush_one() else { return };
                    self.posted.remove(&wqe);
                    wqe
                }
            };
            let status = WcStatus::WrFlushErr;
            let kind = CqeKind::Error { queue: WorkQueue::Recv, index: 0, status };
            self.write_cqe(env, qp, cq, wqe.wr_id, kind, false);
        }
    }

    /// The receive that a message had taken fails with its own status.
    pub(super) fn recv_failed(&mut self, env: &mut Env<'_>, qp: u32, status: WcStatus) {
        let Some(q) = self.qp_mut(qp) else { return };
        let cq = q.recv_cq;
        let Some(wqe) = q.current_recv.take() else { return };
        let kind = CqeKind::Error { queue: WorkQueue::Recv, index: 0, status };
        self.write_cqe(env, qp, cq, wqe.wr_id, kind, false);
    }

    /// The port of the device has come up or gone down: everybody who uses it hears of it.
    pub(crate) fn port_event(&mut self, env: &mut Env<'_>, users: &[u16], up: bool) {
        self.stats.link_downed += u64::from(!up);
        let kind = if up { AsyncEventKind::PortActive } else { AsyncEventKind::PortErr };
        users.iter().for_each(|user| self.raise(env, *user, kind, 0));
    }

    /// When a message of any QP last moved on.
    pub fn last_progress(&self) -> Time {
        self.qps().map(|(_, q)| q.last_progress).max().unwrap_or(Time::ZERO)
    }
}
