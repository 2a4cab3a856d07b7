//! One rank's view of the ideal fabric.

use alloc::vec::Vec;

use super::state::{Cqe, Ideal, Payload, Pd, Rank, What, Wqe};
use crate::transport::*;
use crate::units::Time;
use crate::verbs::{PostVerdict, QpType, SendFlags, can_post_recv, can_post_send};

/// The transport handle of one rank; it lives for one step.
#[derive(Debug)]
pub struct Handle<'a> {
    pub(super) w: &'a mut Ideal,
    pub(super) rank: usize,
}

impl Ideal {
    /// The handle of `rank`.
    ///
    /// # Panics
    /// When there is no such rank.
    pub fn at(&mut self, rank: usize) -> Handle<'_> {
        assert!(rank < self.ranks.len(), "rank {rank} of {}", self.ranks.len());
        Handle { w: self, rank }
    }

    pub(super) fn local_qp(&self, rank: usize, qp: usize) -> QpId {
        let i = self.ranks[rank].qps.iter().position(|&q| q == Some(qp)).expect("the owner's");
        QpId::new(i as u32, 0, issuer(rank))
    }

    pub(super) fn local_cq(&self, rank: usize, cq: usize) -> CqId {
        let i = self.ranks[rank].cqs.iter().position(|&c| c == cq).expect("the owner's");
        CqId::new(i as u32, 0, issuer(rank))
    }

    pub(super) fn local_srq(&self, rank: usize, srq: usize) -> SrqId {
        let i = self.ranks[rank].srqs.iter().position(|&s| s == srq).expect("the owner's");
        SrqId::new(i as u32, 0, issuer(rank))
    }
}

/// A handle names 128 issuers.
fn issuer(rank: usize) -> u32 {
    rank as u32 & 127
}

impl Handle<'_> {
    pub(super) fn me(&self) -> &Rank {
        &self.w.ranks[self.rank]
    }

    pub(super) fn issuer(&self) -> u32 {
        issuer(self.rank)
    }

    pub(super) fn qp(&self, id: QpId) -> Result<usize, BadHandle> {
        let known = id.issuer() == self.issuer() && id.generation() == 0;
        let q = self.me().qps.get(id.index() as usize).copied().flatten().filter(|_| known);
        q.filter(|&q| self.w.qps[q].alive).ok_or(BadHandle)
    }

    pub(super) fn cq(&self, id: CqId) -> Option<usize> {
        let known = id.issuer() == self.issuer();
        let cq = self.me().cqs.get(id.index() as usize).copied().filter(|_| known);
        cq.filter(|&c| self.w.cqs[c].alive)
    }

    pub(super) fn srq(&self, id: SrqId) -> Option<usize> {
        let known = id.issuer() == self.issuer();
        let srq = self.me().srqs.get(id.index() as usize).copied().filter(|_| known);
        srq.filter(|&s| self.w.srqs[s].alive)
    }

    pub(super) fn pd(&self, id: PdId) -> Option<Pd> {
        let known = id.issuer() == self.issuer();
        let alive = known && self.me().pds.get(id.index() as usize) == Some(&true);
        alive.then_some((self.rank, id.index()))
    }

    /// The protection domain of an address handle.
    pub(super) fn ah(&self, id: AhId) -> Option<Pd> {
        let known = id.issuer() == self.issuer();
        self.me().ahs.get(id.index() as usize).copied().flatten().filter(|_| known)
    }

    pub(super) fn mr(&self, id: MrId) -> Result<usize, BadHandle> {
        let known = id.issuer() == self.issuer();
        let i = self.me().mrs.get(id.index() as usize).copied().flatten().filter(|_| known);
        i.filter(|&i| self.w.regions[i].alive).ok_or(BadHandle)
    }

    pub(super) fn range(&self, r: Range) -> Result<usize, MemError> {
        let i = self.mr(r.mr).map_err(|_| MemError::BadHandle)?;
        let region = self.w.regions[i].len;
        match r.offset.checked_add(r.len) {
            Some(end) if end <= region => Ok(i),
            _ => Err(MemError::OutOfRange { offset: r.offset, len: r.len, region }),
        }
    }

    /// The bytes of a range. Virtual regions have none.
    fn bytes(&mut self, r: Range) -> Result<(usize, &mut [u8]), MemError> {
        let i = self.range(r)?;
        let at = r.offset as usize..(r.offset + r.len) as usize;
        let bytes = self.w.regions[i].bytes.as_mut().ok_or(MemError::Virtual)?;
        Ok((i, &mut bytes[at]))
    }

    fn word(&mut self, r: Range) -> Result<(usize, &mut [u8]), MemError> {
        if r.len != 8 || !r.offset.is_multiple_of(8) {
            return Err(MemError::Misaligned { element: 8 });
        }
        self.bytes(r)
    }

    fn stored(&mut self, region: usize, r: Range) {
        self.w.touched(region, r.offset, r.len, Some(self.rank));
    }

    fn staged(&self, q: usize) -> u32 {
        self.w.qps[q].staged.iter().filter(|w| w.rank == self.rank).count() as u32
    }

    fn check_wr(&self, q: usize, wr: &SendWr<'_>) -> Result<(), StageError> {
        let (qp, op) = (&self.w.qps[q], wr.op.opcode());
        let unsupported = |reason| {
            let capability = op.as_str_name();
            Err(StageError::Unsupported(Unsupported { capability, reason }))
        };
        if !op.allowed_on(qp.ty) {
            return unsupported("not on a QP of this type");
        }
        if (qp.ty == QpType::Ud) != wr.dest.is_some() {
            return unsupported("a destination belongs to datagrams and to nothing else");
        }
        if wr.dest.is_some_and(|d| self.ah(d.ah).is_none()) {
            return Err(StageError::BadHandle);
        }
        if can_post_send(qp.state) == PostVerdict::Refused {
            return Err(StageError::BadState { state: qp.state });
        }
        match wr.data {
            Data::Inline(_) if !op.may_be_inline() => return unsupported("has no inline form"),
            Data::Inline(b) if b.len() > qp.caps.max_inline as usize => {
                let (got, max) = (b.len() as u32, qp.caps.max_inline);
                return Err(StageError::InlineTooLong { got, max });
            }
            Data::Sge(s) if s.len() > qp.caps.max_sge as usize => {
                let (got, max) = (s.len() as u32, qp.caps.max_sge);
                return Err(StageError::TooManySge { got, max });
            }
            _ => {}
        }
        let mtu = self.w.limits.device.active_mtu.bytes();
        let max = if qp.ty == QpType::Ud { mtu } else { self.w.limits.device.max_msg_bytes };
        match wr.data.len() {
            got if got > u64::from(max) => Err(StageError::TooLong { got, max }),
            _ => Ok(()),
        }
    }
}

impl Transport for Handle<'_> {
    fn now(&self) -> Time {
        self.w.now
    }

    fn initiator(&self) -> Initiator {
        self.me().place.initiator
    }

    fn qp_caps(&self, qp: QpId) -> Result<QpCaps, BadHandle> {
        Ok(self.w.qps[self.qp(qp)?].caps)
    }

    fn sq_free(&self, qp: QpId) -> u32 {
        let Ok(q) = self.qp(qp) else { return 0 };
        let q = &self.w.qps[q];
        q.caps.max_send_wr - q.used() as u32
    }

    fn stage(&mut self, qp: QpId, wr: &SendWr<'_>) -> Result<(), StageError> {
        let q = self.qp(qp).map_err(|_| StageError::BadHandle)?;
        self.check_wr(q, wr)?;
        if self.sq_free(qp) == 0 {
            return Err(StageError::SqFull);
        }
        if self.staged(q) == self.w.qps[q].caps.max_staged {
            return Err(StageError::StagedFull);
        }
        let data = match wr.data {
            Data::Sge(s) => Payload::Sge(s.to_vec()),
            Data::Inline(b) => Payload::Inline(b.to_vec()),
        };
        let qp = &mut self.w.qps[q];
        let signaled = qp.sig_all || wr.flags.contains(SendFlags::SIGNALED);
        let solicited = wr.flags.contains(SendFlags::SOLICITED);
        let (wr_id, op, dest, rank) = (wr.wr_id, wr.op, wr.dest, self.rank);
        qp.staged.push(Wqe { wr_id, op, data, signaled, solicited, dest, rank });
        Ok(())
    }

    fn ring(&mut self, qp: QpId, how: Ring) -> Result<Rung, RingError> {
        let bad = RingError { posted: 0, discarded: 0, cause: RingCause::BadHandle };
        let q = self.qp(qp).map_err(|_| bad)?;
        let wqes = self.staged(q);
        if wqes == 0 {
            return Ok(Rung { wqes, by: RungBy::Nothing });
        }
        let (rank, qp) = (self.rank, &mut self.w.qps[q]);
        let (mine, others): (Vec<_>, Vec<_>) =
            core::mem::take(&mut qp.staged).into_iter().partition(|w| w.rank == rank);
        qp.staged = others;
        if can_post_send(qp.state) == PostVerdict::Refused {
            let cause = RingCause::BadState(qp.state);
            return Err(RingError { posted: 0, discarded: wqes, cause });
        }
        qp.sq.extend(mine);
        self.w.drive();
        let by = match how {
            Ring::BlueFlame => RungBy::BlueFlame,
            Ring::Auto if wqes == 1 => RungBy::BlueFlame,
            Ring::Auto | Ring::Doorbell | Ring::Combined | Ring::Ordered => RungBy::Doorbell,
        };
        Ok(Rung { wqes, by })
    }

    fn unstage(&mut self, qp: QpId) -> u32 {
        let Ok(q) = self.qp(qp) else { return 0 };
        let (n, rank) = (self.staged(q), self.rank);
        self.w.qps[q].staged.retain(|w| w.rank != rank);
        n
    }

    fn post_recv(&mut self, to: RecvQueue, wrs: &[RecvWr]) -> Result<(), PostRecvError> {
        let fail = |posted, cause| Err(PostRecvError { posted, cause });
        for (posted, wr) in (0..).zip(wrs) {
            let full = match to {
                RecvQueue::Srq(id) => {
                    let Some(s) = self.srq(id) else {
                        return fail(posted, PostRecvCause::BadHandle);
                    };
                    let srq = &mut self.w.srqs[s];
                    let full = srq.rq.len() == srq.depth as usize;
                    if !full {
                        srq.rq.push_back(*wr);
                    }
                    full
                }
                RecvQueue::Qp(id) => {
                    let Ok(q) = self.qp(id) else { return fail(posted, PostRecvCause::BadHandle) };
                    let qp = &mut self.w.qps[q];
                    let full = qp.rq.len() == qp.caps.max_recv_wr as usize;
                    match can_post_recv(qp.state) {
                        _ if qp.srq.is_some() => return fail(posted, PostRecvCause::UsesSrq),
                        PostVerdict::Refused => {
                            return fail(posted, PostRecvCause::BadState(qp.state));
                        }
                        PostVerdict::Flushed => self.w.flush_recv(q, wr.wr_id),
                        _ if full => {}
                        _ => qp.rq.push_back(*wr),
                    }
                    full
                }
            };
            if full {
                self.w.drive();
                return fail(posted, PostRecvCause::Full);
            }
        }
        self.w.drive();
        Ok(())
    }

    fn poll_cq(&mut self, cq: CqId, out: &mut Completions) -> Result<(), PollError> {
        let c = self.cq(cq).ok_or(PollError::BadHandle)?;
        if self.w.cqs[c].lost {
            return Err(PollError::CqLost);
        }
        while !out.is_full() {
            let Some(Cqe { qp: q, wr_id, what, frees, .. }) = self.w.cqs[c].entries.pop_front()
            else {
                break;
            };
            let life = self.w.qps[q].life;
            let qp = &mut self.w.qps[q];
            let mut retired = 0;
            if let Some((_, upto)) = frees.filter(|&(l, upto)| l == life && upto > qp.retired) {
                retired = (upto - qp.retired) as u32;
                qp.retired = upto;
            }
            let qp = qp.id;
            out.push(match what {
                What::Send { op, len } => Completion::Send { wr_id, qp, op, len, retired },
                What::Recv { op, len, imm, invalidated } => {
                    Completion::Recv { wr_id, qp, op, len, imm, invalidated }
                }
                What::Error { queue, status } => {
                    Completion::Error { wr_id, qp, queue, status, vendor_err: 0, retired }
                }
            });
        }
        if !out.is_full() {
            self.w.ranks[self.rank].polled |= 1_u64.checked_shl(cq.index()).unwrap_or(0);
        }
        Ok(())
    }

    fn fence(&mut self, _scope: FenceScope) {}

    fn compute(&mut self, work: Work) {
        self.w.now += work;
    }

    fn copy_in(&mut self, to: Range, from: &[u8]) -> Result<(), MemError> {
        if to.len != from.len() as u64 {
            return Err(MemError::LengthMismatch { range: to.len, buffer: from.len() as u64 });
        }
        let (i, bytes) = self.bytes(to)?;
        bytes.copy_from_slice(from);
        self.stored(i, to);
        Ok(())
    }

    fn copy_out(&mut self, from: Range, to: &mut [u8]) -> Result<(), MemError> {
        if from.len != to.len() as u64 {
            return Err(MemError::LengthMismatch { range: from.len, buffer: to.len() as u64 });
        }
        to.copy_from_slice(self.bytes(from)?.1);
        Ok(())
    }

    fn reduce(&mut self, op: Reduce, to: Range, from: Range) -> Result<(), MemError> {
        let element = op.element_bytes();
        if to.len != from.len {
            return Err(MemError::LengthMismatch { range: to.len, buffer: from.len });
        }
        if [to.len, to.offset, from.offset].iter().any(|v| !v.is_multiple_of(element)) {
            return Err(MemError::Misaligned { element });
        }
        let source = self.bytes(from)?.1.to_vec();
        let (i, target) = self.bytes(to)?;
        op.apply(target, &source);
        self.stored(i, to);
        Ok(())
    }

    fn load_u64(&mut self, at: Range) -> Result<u64, MemError> {
        let bytes = self.word(at)?.1;
        Ok(u64::from_le_bytes((&*bytes).try_into().expect("eight bytes")))
    }

    fn store_u64(&mut self, at: Range, value: u64) -> Result<(), MemError> {
        let (i, bytes) = self.word(at)?;
        bytes.copy_from_slice(&value.to_le_bytes());
        self.stored(i, at);
        Ok(())
    }
}
