//! Execution of what was rung.

use alloc::vec;
use alloc::vec::Vec;

use super::state::{Cqe, Ideal, Payload, What, Wqe};
use crate::transport::{AsyncEvent, RecvWr, Remote, SendOp, Sge, WorkQueue};
use crate::verbs::{
    AccessFlags, AsyncEventKind, GRH_BYTES, PacketVerdict, PostVerdict, QpState, QpType, WcOpcode,
    WcStatus, accepts_packets, can_post_send,
};

/// What became of a work request.
enum Outcome {
    /// It has to wait: for a receive, or for the peer to reach RTR.
    Blocked,
    /// Success; bytes for the completion.
    Done(u32),
    /// Failure with the requester's status.
    Failed(WcStatus),
}

/// Data on its way: its length, and its bytes unless the source is virtual.
struct Bytes {
    len: u32,
    data: Option<Vec<u8>>,
}

impl Ideal {
    /// Executes heads of send queues until nothing moves.
    pub(super) fn drive(&mut self) {
        loop {
            let mut moved = false;
            for q in 0..self.qps.len() {
                while self.execute_head(q) {
                    moved = true;
                }
            }
            if !moved {
                return;
            }
        }
    }

    fn execute_head(&mut self, q: usize) -> bool {
        let qp = &mut self.qps[q];
        let verdict = can_post_send(qp.state);
        if !qp.alive || matches!(verdict, PostVerdict::Refused | PostVerdict::Held) {
            return false;
        }
        let Some(wqe) = qp.sq.front().cloned() else { return false };
        let outcome = match verdict {
            PostVerdict::Flushed => Outcome::Failed(WcStatus::WrFlushErr),
            _ => self.perform(q, &wqe),
        };
        if matches!(outcome, Outcome::Blocked) {
            return false;
        }
        let qp = &mut self.qps[q];
        qp.sq.pop_front();
        qp.executed += 1;
        let (cq, frees) = (qp.send_cq, Some((qp.life, qp.executed)));
        let what = match outcome {
            Outcome::Failed(status) => What::Error { queue: WorkQueue::Send, status },
            Outcome::Done(len) if wqe.signaled => {
                What::Send { op: wqe.op.opcode().wc_opcode().expect("a verbs opcode"), len }
            }
            _ => return true,
        };
        let solicited = matches!(what, What::Error { .. });
        self.push_cqe(cq, Cqe { qp: q, wr_id: wqe.wr_id, what, solicited, frees });
        if let Outcome::Failed(_) = outcome {
            self.send_failed(q);
        }
        true
    }

    /// After a failed send RC is in ERR; UC and UD are in SQE, and their receive side goes on.
    fn send_failed(&mut self, q: usize) {
        match (self.qps[q].ty, self.qps[q].state) {
            (QpType::Uc | QpType::Ud, QpState::Rts) => self.qps[q].state = QpState::Sqe,
            (QpType::Uc | QpType::Ud, _) => {}
            _ => self.enter_error(q),
        }
    }

    /// Puts a QP into ERR and flushes its receives; `drive` flushes its sends.
    pub(super) fn enter_error(&mut self, q: usize) {
        let before = core::mem::replace(&mut self.qps[q].state, QpState::Err);
        let waiting = core::mem::take(&mut self.qps[q].rq);
        for wr in waiting {
            self.flush_recv(q, wr.wr_id);
        }
        // No message is ever half received here, so the QP has taken its last one (§3.3).
        if before != QpState::Err && self.qps[q].srq.is_some() {
            self.raise(q, AsyncEventKind::QpLastWqeReached);
        }
    }

    /// An event about a QP, for the rank that made it.
    pub(super) fn raise(&mut self, q: usize, kind: AsyncEventKind) {
        let rank = self.qps[q].rank;
        let qp = Some(self.local_qp(rank, q));
        self.ranks[rank].events.push_back(AsyncEvent { kind, qp, cq: None, srq: None });
    }

    pub(super) fn flush_recv(&mut self, q: usize, wr_id: u64) {
        self.fail_recv(q, wr_id, WcStatus::WrFlushErr);
    }

    fn fail_recv(&mut self, q: usize, wr_id: u64, status: WcStatus) {
        let what = What::Error { queue: WorkQueue::Recv, status };
        let cqe = Cqe { qp: q, wr_id, what, solicited: true, frees: None };
        self.push_cqe(self.qps[q].recv_cq, cqe);
    }

    fn push_cqe(&mut self, cq: usize, cqe: Cqe) {
        let c = &mut self.cqs[cq];
        if !c.lost && c.entries.len() < c.depth as usize {
            c.entries.push_back(cqe);
        } else if !c.lost {
            c.lost = true;
            let rank = c.rank;
            let id = self.local_cq(rank, cq);
            let kind = AsyncEventKind::CqErr;
            let event = AsyncEvent { kind, qp: None, cq: Some(id), srq: None };
            self.ranks[rank].events.push_back(event);
            // Its QPs are lost with it.
            for q in 0..self.qps.len() {
                let qp = &self.qps[q];
                let uses = qp.alive && (qp.send_cq == cq || qp.recv_cq == cq);
                if uses && !matches!(qp.state, QpState::Reset | QpState::Err) {
                    self.enter_error(q);
                }
            }
        }
    }

    /// The peer of a connected QP or the target of a datagram, if it takes packets.
    fn target(&self, q: usize, wqe: &Wqe) -> Option<usize> {
        let qpn = match wqe.dest {
            Some(d) => d.qpn,
            None => self.qps[q].attr.dest_qpn,
        };
        let p = Self::qp_of(qpn)?;
        let peer = self.qps.get(p).filter(|p| p.alive)?;
        let takes = accepts_packets(peer.state) != PacketVerdict::Dropped;
        (takes && peer.ty == self.qps[q].ty).then_some(p)
    }

    fn perform(&mut self, q: usize, wqe: &Wqe) -> Outcome {
        let gathers = !wqe.op.opcode().is_read_or_atomic();
        let bytes = if gathers { self.gather(q, wqe) } else { self.check_scatter(q, wqe) };
        let bytes = match bytes {
            Ok(b) => b,
            Err(status) => return Outcome::Failed(status),
        };
        let reliable = self.qps[q].ty == QpType::Rc;
        let Some(p) = self.target(q, wqe) else {
            return if reliable { Outcome::Blocked } else { Outcome::Done(bytes.len) };
        };
        let len = bytes.len;
        let done = match wqe.op {
            SendOp::Send | SendOp::SendImm(_) | SendOp::SendInv(_) => self.deliver(p, wqe, &bytes),
            SendOp::Write(r) => self.write_remote(p, r, &bytes).map(|()| true),
            SendOp::WriteImm(r, imm) => self.write_imm(p, wqe, (r, imm), &bytes),
            SendOp::Read(r) => self.read_remote(p, r, len).map(|d| self.land(wqe, d)),
            SendOp::CmpSwap { remote, .. } | SendOp::FetchAdd { remote, .. } => {
                self.atomic(p, remote, &wqe.op).map(|d| self.land(wqe, d))
            }
        };
        match done {
            Ok(true) => Outcome::Done(len),
            Ok(false) if reliable => Outcome::Blocked,
            Ok(false) => Outcome::Done(len),
            // UC and UD hear of no error of the peer.
            Err(status) if reliable => {
                self.enter_error(p);
                Outcome::Failed(status)
            }
            Err(_) => Outcome::Done(len),
        }
    }

    /// The SEND of `wqe` at `p`: `Ok(false)` when no receive is posted.
    fn deliver(&mut self, p: usize, wqe: &Wqe, bytes: &Bytes) -> Result<bool, WcStatus> {
        let datagram = self.qps[p].ty == QpType::Ud;
        if datagram && wqe.dest.is_some_and(|d| d.qkey != self.qps[p].attr.qkey) {
            return Ok(false);
        }
        let Some(wr) = self.take_recv(p) else { return Ok(false) };
        let header = if datagram { GRH_BYTES } else { 0 };
        if u64::from(wr.sge.len) < u64::from(bytes.len) + u64::from(header) {
            self.fail_recv(p, wr.wr_id, WcStatus::LocLenErr);
            return Err(WcStatus::RemInvReqErr);
        }
        let at = Sge { addr: wr.sge.addr + u64::from(header), len: bytes.len, ..wr.sge };
        if let Err(status) = self.check_sge(p, &at, AccessFlags::LOCAL_WRITE) {
            self.fail_recv(p, wr.wr_id, status);
            return Err(WcStatus::RemOpErr);
        }
        self.put(&at, bytes.data.as_deref());
        let (imm, invalidated) = match wqe.op {
            SendOp::SendImm(i) => (Some(i), None),
            SendOp::SendInv(k) => (None, Some(k)),
            _ => (None, None),
        };
        if let Some(i) = invalidated.and_then(|k| self.region_of(k.0)) {
            self.regions[i].alive = false;
        }
        let len = bytes.len + header;
        let what = What::Recv { op: WcOpcode::Recv, len, imm, invalidated };
        self.received(p, wr.wr_id, wqe.solicited, what);
        Ok(true)
    }

    fn received(&mut self, p: usize, wr_id: u64, solicited: bool, what: What) {
        let cqe = Cqe { qp: p, wr_id, what, solicited, frees: None };
        self.push_cqe(self.qps[p].recv_cq, cqe);
    }

    fn take_recv(&mut self, p: usize) -> Option<RecvWr> {
        let Some(s) = self.qps[p].srq else { return self.qps[p].rq.pop_front() };
        let srq = &mut self.srqs[s];
        let wr = srq.rq.pop_front()?;
        if (srq.rq.len() as u32) < srq.limit {
            srq.limit = 0;
            let rank = srq.rank;
            let kind = AsyncEventKind::SrqLimitReached;
            let srq = Some(self.local_srq(rank, s));
            self.ranks[rank].events.push_back(AsyncEvent { kind, qp: None, cq: None, srq });
        }
        Some(wr)
    }

    fn write_imm(
        &mut self,
        p: usize,
        wqe: &Wqe,
        (r, imm): (Remote, u32),
        b: &Bytes,
    ) -> Result<bool, WcStatus> {
        let empty = match self.qps[p].srq {
            Some(s) => self.srqs[s].rq.is_empty(),
            None => self.qps[p].rq.is_empty(),
        };
        if empty {
            return Ok(false);
        }
        self.write_remote(p, r, b)?;
        let wr = self.take_recv(p).expect("just seen");
        let (op, imm) = (WcOpcode::RecvRdmaWithImm, Some(imm));
        let what = What::Recv { op, len: b.len, imm, invalidated: None };
        self.received(p, wr.wr_id, wqe.solicited, what);
        Ok(true)
    }

    fn write_remote(&mut self, p: usize, r: Remote, b: &Bytes) -> Result<(), WcStatus> {
        if let Some((i, offset)) = self.remote(p, r, b.len, AccessFlags::REMOTE_WRITE)? {
            self.put_at(i, offset, b.len, b.data.as_deref());
        }
        Ok(())
    }

    fn read_remote(&mut self, p: usize, r: Remote, len: u32) -> Result<Option<Vec<u8>>, WcStatus> {
        let Some((i, offset)) = self.remote(p, r, len, AccessFlags::REMOTE_READ)? else {
            return Ok(Some(vec![]));
        };
        let range = offset as usize..offset as usize + len as usize;
        Ok(self.regions[i].bytes.as_ref().map(|b| b[range].to_vec()))
    }

    fn atomic(&mut self, p: usize, r: Remote, op: &SendOp) -> Result<Option<Vec<u8>>, WcStatus> {
        if !r.addr.is_multiple_of(8) {
            return Err(WcStatus::RemInvReqErr);
        }
        let at = self.remote(p, r, 8, AccessFlags::REMOTE_ATOMIC)?;
        let (i, offset) = at.expect("eight bytes");
        let Some(bytes) = &mut self.regions[i].bytes else { return Ok(None) };
        let word = &mut bytes[offset as usize..offset as usize + 8];
        let old = u64::from_le_bytes((&*word).try_into().expect("eight bytes"));
        let new = match *op {
            SendOp::CmpSwap { compare, swap, .. } if compare == old => swap,
            SendOp::FetchAdd { add, .. } => old.wrapping_add(add),
            _ => old,
        };
        word.copy_from_slice(&new.to_le_bytes());
        self.touched(i, offset, 8, None);
        Ok(Some(old.to_le_bytes().to_vec()))
    }

    /// Region and offset of a remote access, with all rights checked; `None` for zero bytes, which
    /// need no key (IBTA: a zero-length WRITE or READ is not checked).
    fn remote(
        &self,
        p: usize,
        r: Remote,
        len: u32,
        need: AccessFlags,
    ) -> Result<Option<(usize, u64)>, WcStatus> {
        let qp = &self.qps[p];
        if !qp.attr.access.contains(need) {
            return Err(WcStatus::RemInvReqErr);
        }
        if len == 0 {
            return Ok(None);
        }
        let denied = WcStatus::RemAccessErr;
        let i = self.region_of(r.rkey.0).ok_or(denied)?;
        let region = &self.regions[i];
        let offset = r.addr.checked_sub(region.addr).ok_or(denied)?;
        let fits = offset + u64::from(len) <= region.len;
        if fits && region.pd == qp.pd && region.access.contains(need) {
            Ok(Some((i, offset)))
        } else {
            Err(denied)
        }
    }

    fn check_sge(&self, q: usize, s: &Sge, need: AccessFlags) -> Result<(), WcStatus> {
        if s.len == 0 {
            return Ok(());
        }
        let bad = WcStatus::LocProtErr;
        let region = &self.regions[self.region_of(s.lkey.0).ok_or(bad)?];
        let offset = s.addr.checked_sub(region.addr).ok_or(bad)?;
        let fits = offset + u64::from(s.len) <= region.len;
        let allowed = region.access.contains(need) && region.pd == self.qps[q].pd;
        if fits && allowed { Ok(()) } else { Err(bad) }
    }

    fn gather(&self, q: usize, wqe: &Wqe) -> Result<Bytes, WcStatus> {
        let sges = match &wqe.data {
            Payload::Inline(b) => {
                return Ok(Bytes { len: b.len() as u32, data: Some(b.clone()) });
            }
            Payload::Sge(s) => s,
        };
        let mut data = Some(vec![]);
        for s in sges {
            self.check_sge(q, s, AccessFlags::empty())?;
            if s.len == 0 {
                continue;
            }
            let region = &self.regions[self.region_of(s.lkey.0).expect("checked")];
            let at = (s.addr - region.addr) as usize;
            data = match (data, &region.bytes) {
                (Some(mut d), Some(b)) => {
                    d.extend_from_slice(&b[at..at + s.len as usize]);
                    Some(d)
                }
                _ => None,
            };
        }
        Ok(Bytes { len: wqe.len() as u32, data })
    }

    fn check_scatter(&self, q: usize, wqe: &Wqe) -> Result<Bytes, WcStatus> {
        if let Payload::Sge(sges) = &wqe.data {
            for s in sges {
                self.check_sge(q, s, AccessFlags::LOCAL_WRITE)?;
            }
        }
        Ok(Bytes { len: wqe.len() as u32, data: None })
    }

    /// Spreads what a READ or ATOMIC brought over the scatter list.
    fn land(&mut self, wqe: &Wqe, data: Option<Vec<u8>>) -> bool {
        if let Payload::Sge(sges) = &wqe.data {
            let mut at = 0;
            for s in sges {
                let part = data.as_ref().map(|d| &d[at..(at + s.len as usize).min(d.len())]);
                self.put(s, part);
                at += s.len as usize;
            }
        }
        true
    }

    fn put(&mut self, s: &Sge, data: Option<&[u8]>) {
        if s.len == 0 {
            return;
        }
        let i = self.region_of(s.lkey.0).expect("checked");
        self.put_at(i, s.addr - self.regions[i].addr, s.len, data);
    }

    /// Bytes from a virtual source change nothing but are noticed by watches.
    fn put_at(&mut self, region: usize, offset: u64, len: u32, data: Option<&[u8]>) {
        if let (Some(to), Some(from)) = (&mut self.regions[region].bytes, data) {
            to[offset as usize..offset as usize + from.len()].copy_from_slice(from);
        }
        self.touched(region, offset, u64::from(len), None);
    }
}
