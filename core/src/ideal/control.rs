//! Set-up and recovery on the ideal back end.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::handle::Handle;
use super::state::{Cq, Ideal, Qp, Srq, Watch};
use crate::transport::*;
use crate::verbs::{
    AccessFlags, AsyncEventKind, Lkey, Psn, QpAttrMask, QpState, QpType, Qpn, Rkey,
    check_transition,
};

/// Ids below this QPN are special.
const FIRST_QPN: u32 = 2;

const BAD_HANDLE: Unsupported =
    Unsupported { capability: "sharing", reason: "stale handle, or a handle of another initiator" };

impl Ideal {
    /// The index of a QP by its number; numbers are unique over all hosts.
    pub(super) fn qp_of(qpn: Qpn) -> Option<usize> {
        qpn.value().checked_sub(FIRST_QPN).map(|i| i as usize)
    }
}

fn limit(field: &'static str, got: u64, min: u64, max: u64) -> Result<(), CreateError> {
    let known = (min..=max).contains(&got);
    if known { Ok(()) } else { Err(CreateError::Limit { field, got, max }) }
}

impl Handle<'_> {
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
        assert!(bytes.len() <= MAX_PUBLISHED_BYTES, "a published value of {} B", bytes.len());
        self.w.published.insert((self.rank as u32, key), bytes.to_vec());
        self.w.wake_bootstrap();
    }

    fn lookup(
        &mut self,
        peer: u32,
        key: u64,
        out: &mut [u8],
    ) -> Result<Option<usize>, LookupError> {
        let size = self.size();
        let Some(owner) = self.w.ranks.get(peer as usize) else {
            return Err(LookupError::NoSuchRank { rank: peer, size });
        };
        match self.w.published.get(&(peer, key)) {
            Some(bytes) => {
                let n = bytes.len().min(out.len());
                out[..n].copy_from_slice(&bytes[..n]);
                Ok(Some(bytes.len()))
            }
            None if owner.ended => Err(LookupError::PeerGone { rank: peer }),
            None => Ok(None),
        }
    }

    fn create_pd(&mut self) -> Result<PdId, CreateError> {
        let pds = &mut self.w.ranks[self.rank].pds;
        pds.push(true);
        Ok(PdId::new(pds.len() as u32 - 1, 0, self.issuer()))
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
        let entries = VecDeque::new();
        self.w.cqs.push(Cq { rank: self.rank, alive: true, depth, entries, lost: false });
        self.w.ranks[self.rank].cqs.push(i);
        Ok(self.w.local_cq(self.rank, i))
    }

    fn create_srq(&mut self, pd: PdId, depth: u32) -> Result<SrqId, CreateError> {
        let pd = self.pd(pd).ok_or(CreateError::BadHandle)?;
        limit("max_wr", depth.into(), 1, self.w.limits.device.max_srq_wr.into())?;
        let i = self.w.srqs.len();
        let rq = VecDeque::new();
        self.w.srqs.push(Srq { rank: self.rank, pd, alive: true, depth, rq, limit: 0 });
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
            sq: VecDeque::new(),
            executed: 0,
            retired: 0,
            life: 0,
            rq: VecDeque::new(),
            alive: true,
        });
        Ok(id)
    }

    fn create_ah(&mut self, pd: PdId, _to: Address) -> Result<AhId, CreateError> {
        let pd = self.pd(pd).ok_or(CreateError::BadHandle)?;
        let ahs = &mut self.w.ranks[self.rank].ahs;
        ahs.push(Some(pd));
        Ok(AhId::new(ahs.len() as u32 - 1, 0, self.issuer()))
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
        if to == QpState::Sqd && mask.contains(QpAttrMask::EN_SQD_ASYNC_NOTIFY) {
            // Nothing takes time, so nothing has begun that has not ended.
            self.w.raise(q, AsyncEventKind::SqDrained);
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
        let address = Address { gid, ..Address::default() };
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
        if watches.len() as u32 == MAX_WAIT_WATCHES {
            return Err(MemError::NoMemory { max: MAX_WAIT_WATCHES.into() });
        }
        watches.push(Watch { region, offset: range.offset, len: range.len });
        Ok(WatchId::new(watches.len() as u32 - 1, 0, self.issuer()))
    }

    fn share_qp(&mut self, qp: QpId, key: u64) -> Result<(), Unsupported> {
        let q = self.qp(qp).map_err(|_| BAD_HANDLE)?;
        self.w.shared_qps.insert((self.rank as u32, key), q);
        self.w.wake_bootstrap();
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
        self.w.wake_bootstrap();
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

    fn destroy_cq(&mut self, cq: CqId) -> Result<(), DestroyError> {
        let c = self.cq(cq).ok_or(DestroyError::BadHandle)?;
        if self.w.qps.iter().any(|q| q.alive && (q.send_cq == c || q.recv_cq == c)) {
            return Err(DestroyError::Busy);
        }
        self.w.cqs[c].alive = false;
        self.w.cqs[c].entries.clear();
        Ok(())
    }

    fn destroy_srq(&mut self, srq: SrqId) -> Result<(), DestroyError> {
        let s = self.srq(srq).ok_or(DestroyError::BadHandle)?;
        if self.w.qps.iter().any(|q| q.alive && q.srq == Some(s)) {
            return Err(DestroyError::Busy);
        }
        self.w.srqs[s].alive = false;
        self.w.srqs[s].rq.clear();
        Ok(())
    }

    fn destroy_ah(&mut self, ah: AhId) -> Result<(), DestroyError> {
        self.ah(ah).ok_or(DestroyError::BadHandle)?;
        self.w.ranks[self.rank].ahs[ah.index() as usize] = None;
        Ok(())
    }

    fn dealloc_pd(&mut self, pd: PdId) -> Result<(), DestroyError> {
        let own = self.pd(pd).ok_or(DestroyError::BadHandle)?;
        let used = self.w.qps.iter().any(|q| q.alive && q.pd == own)
            || self.w.regions.iter().any(|r| r.alive && r.pd == own)
            || self.w.srqs.iter().any(|s| s.alive && s.pd == own)
            || self.me().ahs.contains(&Some(own));
        if used {
            return Err(DestroyError::Busy);
        }
        self.w.ranks[self.rank].pds[pd.index() as usize] = false;
        Ok(())
    }
}
