//! One rank's view of the ideal fabric.

use alloc::vec::Vec;

use super::state::{Cq, Cqe, Ideal, Payload, Pd, Qp, Rank, Srq, Watch, What, Wqe};
use crate::transport::*;
use crate::units::Time;
use crate::verbs::{
    AccessFlags, Lkey, PostVerdict, Psn, QpAttrMask, QpState, QpType, Qpn, Rkey, SendFlags,
    can_post_recv, can_post_send, check_transition,
};

/// Ids below this QPN are special.
const FIRST_QPN: u32 = 2;

const BAD_HANDLE: Unsupported =
    Unsupported { capability: "sharing", reason: "stale handle, or a handle of another initiator" };

/// The transport handle of one rank; it lives for one step.
#[derive(Debug)]
pub struct Handle<'a> {
    w: &'a mut Ideal,
    rank: usize,
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

    /// The index of a QP by its number; numbers are unique over all hosts.
    pub(super) fn qp_of(qpn: Qpn) -> Option<usize> {
        qpn.value().checked_sub(FIRST_QPN).map(|i| i as usize)
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

fn limit(field: &'static str, got: u64, min: u64, max: u64) -> Result<(), CreateError> {
    let known = (min..=max).contains(&got);
    if known { Ok(()) } else { Err(CreateError::Limit { field, got, max }) }
}

impl Handle<'_> {
    fn me(&self) -> &Rank {
        &self.w.ranks[self.rank]
    }

    fn issuer(&self) -> u32 {
        issuer(self.rank)
    }

    fn qp(&self, id: QpId) -> Result<usize, BadHandle> {
        let known = id.issuer() == self.issuer() && id.generation() == 0;
        let q = self.me().qps.get(id.index() as usize).copied().flatten().filter(|_| known);
        q.filter(|&q| self.w.qps[q].alive).ok_or(BadHandle)
    }

    fn cq(&self, id: CqId) -> Option<usize> {
        let known = id.issuer() == self.issuer();
        self.me().cqs.get(id.index() as usize).copied().filter(|_| known)
    }

    fn srq(&self, id: SrqId) -> Option<usize> {
        let known = id.issuer() == self.issuer();
        self.me().srqs.get(id.index() as usize).copied().filter(|_| known)
    }

    fn pd(&self, id: PdId) -> Option<Pd> {
        let known = id.issuer() == self.issuer() && id.index() < self.me().pds;
        known.then_some((self.rank, id.index()))
    }

    fn mr(&self, id: MrId) -> Result<usize, BadHandle> {
        let known = id.issuer() == self.issuer();
        let i = self.me().mrs.get(id.index() as usize).copied().flatten().filter(|_| known);
        i.filter(|&i| self.w.regions[i].alive).ok_or(BadHandle)
    }

    fn range(&self, r: Range) -> Result<usize, MemError> {
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

    fn attach_region(&mut self, i: usize) -> Mr {
        self.w.ranks[self.rank].mrs.push(Some(i));
        let id = MrId::new(self.me().mrs.len() as u32 - 1, 0, self.issuer());
        let (r, key) = (&self.w.regions[i], Ideal::key_of(i));
        Mr { id, addr: r.addr, len: r.len, lkey: Lkey(key), rkey: Rkey(key), kind: r.kind }
    }

    fn same_host(&self, owner: u32) -> bool {
        let host = self.me().place.host;
        self.w.ranks.get(owner as usize).is_some_and(|r| r.place.host == host)
    }

    fn wake_bootstrap(&mut self) {
        for r in &mut self.w.ranks {
            r.ready = r.ready.or(WaitSet::BOOTSTRAP);
        }
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
        if wr.dest.is_some_and(|d| d.ah.issuer() != self.issuer() || d.ah.index() >= self.me().ahs)
        {
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

    fn granted(&self, init: &QpInit) -> QpCaps {
        let gpu = matches!(self.me().place.initiator, Initiator::GpuBlock { .. });
        QpCaps {
            max_send_wr: init.size.max_send_wr,
            sq_blocks: None,
            max_recv_wr: if init.srq.is_some() { 0 } else { init.size.max_recv_wr },
            max_staged: self.w.limits.max_staged,
            max_sge: init.size.max_send_sge,
            max_inline: init.size.max_inline,
            bf_bytes: self.w.limits.bf_bytes,
            ring_orders_stores: !gpu,
            ring_choice: true,
            shareable: true,
            atomics: init.ty == QpType::Rc,
            max_rd_atomic: self.w.limits.device.max_rd_atomic,
        }
    }

    fn merge(&mut self, q: usize, a: &QpAttr, mask: QpAttrMask) -> Result<(), ModifyError> {
        use QpAttrMask as M;
        let d = &self.w.limits.device;
        let value = |field, got: u8, max: u8| match got > max {
            true => Err(ModifyError::Value { field, got: got.into(), max: max.into() }),
            false => Ok(()),
        };
        if mask.contains(M::MAX_QP_RD_ATOMIC) {
            value("max_rd_atomic", a.max_rd_atomic, d.max_rd_atomic)?;
        }
        if mask.contains(M::MAX_DEST_RD_ATOMIC) {
            value("max_dest_rd_atomic", a.max_dest_rd_atomic, d.max_dest_rd_atomic)?;
        }
        if mask.contains(M::PATH_MTU) {
            let (got, max) = (a.path_mtu.value(), d.active_mtu.value());
            value("path_mtu", got, max)?;
        }
        let attr = &mut self.w.qps[q].attr;
        if mask.contains(M::ACCESS_FLAGS) {
            attr.access = a.access;
        }
        if mask.contains(M::DEST_QPN) {
            attr.dest_qpn = a.dest_qpn;
        }
        if mask.contains(M::QKEY) {
            attr.qkey = a.qkey;
        }
        Ok(())
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
        let (wr_id, op, dest, rank) = (wr.wr_id, wr.op, wr.dest, self.rank);
        qp.staged.push(Wqe { wr_id, op, data, signaled, dest, rank });
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
            Ring::Auto | Ring::Doorbell => RungBy::Doorbell,
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
            let Some(Cqe { qp: q, wr_id, what, frees }) = self.w.cqs[c].entries.pop_front() else {
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
        for (a, b) in
            target.chunks_exact_mut(element as usize).zip(source.chunks_exact(element as usize))
        {
            match op {
                Reduce::SumF32 => {
                    let sum = f32::from_le_bytes((&*a).try_into().expect("an element"))
                        + f32::from_le_bytes(b.try_into().expect("an element"));
                    a.copy_from_slice(&sum.to_le_bytes());
                }
                Reduce::SumF64 => {
                    let sum = f64::from_le_bytes((&*a).try_into().expect("an element"))
                        + f64::from_le_bytes(b.try_into().expect("an element"));
                    a.copy_from_slice(&sum.to_le_bytes());
                }
                Reduce::SumI64 => {
                    let old = i64::from_le_bytes((&*a).try_into().expect("an element"));
                    let add = i64::from_le_bytes(b.try_into().expect("an element"));
                    a.copy_from_slice(&old.wrapping_add(add).to_le_bytes());
                }
            }
        }
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

impl Control for Handle<'_> {
    fn device_caps(&self) -> &DeviceCaps {
        &self.w.limits.device
    }

    fn rank(&self) -> u32 {
        self.rank as u32
    }

    fn size(&self) -> u32 {
        self.w.ranks.len() as u32
    }

    fn publish(&mut self, key: u64, bytes: &[u8]) {
        self.w.published.insert((self.rank as u32, key), bytes.to_vec());
        self.wake_bootstrap();
    }

    fn lookup(&mut self, peer: u32, key: u64, out: &mut [u8]) -> Option<usize> {
        let bytes = self.w.published.get(&(peer, key))?;
        let n = bytes.len().min(out.len());
        out[..n].copy_from_slice(&bytes[..n]);
        Some(n)
    }

    fn create_pd(&mut self) -> Result<PdId, CreateError> {
        let pds = &mut self.w.ranks[self.rank].pds;
        *pds += 1;
        Ok(PdId::new(*pds - 1, 0, self.issuer()))
    }

    fn alloc_mr(
        &mut self,
        pd: PdId,
        len: u64,
        kind: MemKind,
        access: AccessFlags,
        contents: Contents,
    ) -> Result<Mr, MemError> {
        let pd = self.pd(pd).ok_or(MemError::BadHandle)?;
        access.validate().map_err(|_| MemError::InvalidAccess)?;
        let max = u64::from(self.w.limits.device.max_mr);
        if len == 0 || self.w.regions.len() as u64 >= max {
            return Err(MemError::NoMemory { max });
        }
        let i = self.w.add_region(pd, len, kind, access, contents);
        Ok(self.attach_region(i))
    }

    fn dereg_mr(&mut self, mr: MrId) -> Result<(), BadHandle> {
        let i = self.mr(mr)?;
        self.w.regions[i].alive = false;
        Ok(())
    }

    fn create_cq(&mut self, depth: u32) -> Result<CqId, CreateError> {
        limit("cqe", depth.into(), 1, self.w.limits.device.max_cqe.into())?;
        let i = self.w.cqs.len();
        let entries = alloc::collections::VecDeque::new();
        self.w.cqs.push(Cq { rank: self.rank, depth, entries, lost: false });
        self.w.ranks[self.rank].cqs.push(i);
        Ok(self.w.local_cq(self.rank, i))
    }

    fn create_srq(&mut self, pd: PdId, depth: u32) -> Result<SrqId, CreateError> {
        self.pd(pd).ok_or(CreateError::BadHandle)?;
        limit("max_wr", depth.into(), 1, self.w.limits.device.max_srq_wr.into())?;
        let i = self.w.srqs.len();
        let rq = alloc::collections::VecDeque::new();
        self.w.srqs.push(Srq { rank: self.rank, depth, rq, limit: 0 });
        self.w.ranks[self.rank].srqs.push(i);
        Ok(self.w.local_srq(self.rank, i))
    }

    fn create_qp(&mut self, init: &QpInit) -> Result<QpId, CreateError> {
        let (d, s) = (self.w.limits.device, init.size);
        limit("max_send_wr", s.max_send_wr.into(), 1, d.max_qp_wr.into())?;
        limit("max_recv_wr", s.max_recv_wr.into(), 0, d.max_qp_wr.into())?;
        limit("max_send_sge", s.max_send_sge.into(), 0, d.max_sge.into())?;
        limit("max_inline_data", s.max_inline.into(), 0, d.max_inline.into())?;
        limit("max_qp", self.w.qps.len() as u64 + 1, 1, d.max_qp.into())?;
        let bad = CreateError::BadHandle;
        let send_cq = self.cq(init.send_cq).ok_or(bad)?;
        let recv_cq = self.cq(init.recv_cq).ok_or(bad)?;
        let srq = init.srq.map(|s| self.srq(s).ok_or(bad)).transpose()?;
        let pd = self.pd(init.pd).ok_or(bad)?;
        let id = QpId::new(self.me().qps.len() as u32, 0, self.issuer());
        let (caps, q) = (self.granted(init), self.w.qps.len());
        self.w.ranks[self.rank].qps.push(Some(q));
        self.w.qps.push(Qp {
            id,
            rank: self.rank,
            ty: init.ty,
            pd,
            send_cq,
            recv_cq,
            srq,
            caps,
            sig_all: init.sq_sig_all,
            state: QpState::Reset,
            attr: QpAttr::default(),
            staged: Vec::new(),
            sq: alloc::collections::VecDeque::new(),
            executed: 0,
            retired: 0,
            life: 0,
            rq: alloc::collections::VecDeque::new(),
            alive: true,
        });
        Ok(id)
    }

    fn create_ah(&mut self, pd: PdId, _to: Address) -> Result<AhId, CreateError> {
        self.pd(pd).ok_or(CreateError::BadHandle)?;
        let ahs = &mut self.w.ranks[self.rank].ahs;
        *ahs += 1;
        Ok(AhId::new(*ahs - 1, 0, self.issuer()))
    }

    fn modify_qp(&mut self, qp: QpId, attr: &QpAttr, mask: QpAttrMask) -> Result<u32, ModifyError> {
        let q = self.qp(qp).map_err(|_| ModifyError::BadHandle)?;
        let (ty, from) = (self.w.qps[q].ty, self.w.qps[q].state);
        if mask.contains(QpAttrMask::CUR_STATE) && attr.cur_state != from {
            return Err(ModifyError::CurState { actual: from });
        }
        let to = if mask.contains(QpAttrMask::STATE) { attr.state } else { from };
        check_transition(ty, from, to, mask).map_err(ModifyError::Transition)?;
        self.merge(q, attr, mask)?;
        let unstaged = self.unstage(qp);
        match to {
            QpState::Err => self.w.enter_error(q),
            QpState::Reset => {
                let qp = &mut self.w.qps[q];
                qp.staged.clear();
                qp.sq.clear();
                qp.rq.clear();
                (qp.executed, qp.retired) = (0, 0);
                qp.life += 1;
                qp.state = to;
            }
            _ => self.w.qps[q].state = to,
        }
        self.w.drive();
        Ok(unstaged)
    }

    fn qp_state(&self, qp: QpId) -> Result<QpState, BadHandle> {
        Ok(self.w.qps[self.qp(qp)?].state)
    }

    fn endpoint(&self, qp: QpId) -> Result<Endpoint, BadHandle> {
        let q = self.qp(qp)?;
        let host = self.w.ranks[self.w.qps[q].rank].place.host.to_be_bytes();
        let mut gid = [0; 16];
        // An IPv4-mapped address in 10/8.
        gid[10..].copy_from_slice(&[0xFF, 0xFF, 10, host[1], host[2], host[3]]);
        let address = Address { lid: 0, gid };
        let qpn = Qpn::new(q as u32 + FIRST_QPN);
        Ok(Endpoint { address, qpn, psn: Psn::ZERO, mtu: self.w.limits.device.active_mtu })
    }

    fn arm_srq(&mut self, srq: SrqId, limit: u32) -> Result<(), ModifyError> {
        let s = self.srq(srq).ok_or(ModifyError::BadHandle)?;
        let srq = &mut self.w.srqs[s];
        if limit > srq.depth {
            let (got, max) = (limit.into(), srq.depth.into());
            return Err(ModifyError::Value { field: "srq_limit", got, max });
        }
        srq.limit = limit;
        Ok(())
    }

    fn next_event(&mut self) -> Option<AsyncEvent> {
        self.w.ranks[self.rank].events.pop_front()
    }

    fn watch(&mut self, range: Range) -> Result<WatchId, MemError> {
        let region = self.range(range)?;
        let watches = &mut self.w.ranks[self.rank].watches;
        watches.push(Watch { region, offset: range.offset, len: range.len });
        Ok(WatchId::new(watches.len() as u32 - 1, 0, self.issuer()))
    }

    fn share_qp(&mut self, qp: QpId, key: u64) -> Result<(), Unsupported> {
        let q = self.qp(qp).map_err(|_| BAD_HANDLE)?;
        self.w.shared_qps.insert((self.rank as u32, key), q);
        self.wake_bootstrap();
        Ok(())
    }

    fn attach_qp(&mut self, owner: u32, key: u64) -> Result<QpId, AttachError> {
        if !self.same_host(owner) {
            return Err(AttachError::OtherHost);
        }
        let q = *self.w.shared_qps.get(&(owner, key)).ok_or(AttachError::NotShared)?;
        if !self.w.qps[q].alive {
            return Err(AttachError::Gone);
        }
        self.w.ranks[self.rank].qps.push(Some(q));
        Ok(QpId::new(self.me().qps.len() as u32 - 1, 0, self.issuer()))
    }

    fn share_mr(&mut self, mr: MrId, key: u64) -> Result<(), Unsupported> {
        let i = self.mr(mr).map_err(|_| BAD_HANDLE)?;
        self.w.shared_mrs.insert((self.rank as u32, key), i);
        self.wake_bootstrap();
        Ok(())
    }

    fn attach_mr(&mut self, owner: u32, key: u64) -> Result<Mr, AttachError> {
        if !self.same_host(owner) {
            return Err(AttachError::OtherHost);
        }
        let i = *self.w.shared_mrs.get(&(owner, key)).ok_or(AttachError::NotShared)?;
        if !self.w.regions[i].alive {
            return Err(AttachError::Gone);
        }
        Ok(self.attach_region(i))
    }

    fn destroy_qp(&mut self, qp: QpId) -> Result<(), BadHandle> {
        let q = self.qp(qp)?;
        let qp = &mut self.w.qps[q];
        qp.alive = false;
        qp.staged.clear();
        qp.sq.clear();
        qp.rq.clear();
        Ok(())
    }
}
