//! What a program sees: set-up and recovery.

use doorbell_core::transport::{
    Address, AhId, AsyncEvent, AttachError, BadHandle, Contents, Control, CqId, CreateError,
    DestroyError, DeviceCaps, Endpoint, Initiator, LookupError, MAX_PUBLISHED_BYTES, MemError,
    MemKind, ModifyError, Mr, MrId, PdId, QpAttr, QpCaps, QpId, QpInit, Range, SrqId, Transport,
    TransportCounters, Unsupported, WaitSet, WatchId, max_wqe_bytes,
};
use doorbell_core::verbs::{
    AccessFlags, AsyncObject, Psn, QpAttrMask, QpState, QpType, check_transition,
};

use super::device::{address_of, port_of};
use super::initiator::{Effect, LocalQp, Watch};
use super::transport::SimTransport;
use crate::memory::{Contents as RegionContents, Pd, RegionKind, RegisterError};
use crate::nic::{NicQp, QpRequest, WQEBB};
use crate::wire::{HostId, PortId};

/// Work requests that may be staged before a ring.
const MAX_STAGED: u32 = 1024;

impl SimTransport<'_> {
    fn id<T>(&self, issuer: u32, index: u32, table: impl Fn(&Self, u32) -> Option<T>) -> Option<T> {
        (issuer == self.issuer).then(|| table(self, index)).flatten()
    }

    fn pd(&self, pd: PdId) -> Option<u32> {
        self.id(pd.issuer(), pd.index(), |t, i| t.init().handles.pds.get(i).copied())
    }

    fn cq(&self, cq: CqId) -> Option<u32> {
        self.id(cq.issuer(), cq.index(), |t, i| t.init().handles.cqs.get(i).copied())
    }

    fn srq(&self, srq: SrqId) -> Option<u32> {
        self.id(srq.issuer(), srq.index(), |t, i| t.init().handles.srqs.get(i).map(|s| s.0))
    }

    /// Memory of the initiator's own: where the pages of its completion queues come to lie, since
    /// it is the one that polls them.
    fn home(&self) -> RegionKind {
        let init = self.init();
        match init.who {
            Initiator::Cpu { numa, .. } => RegionKind::Host { numa },
            Initiator::GpuBlock { .. } => RegionKind::Gpu { node: init.node.0 },
        }
    }

    fn kind(&self, kind: MemKind) -> Result<RegionKind, Unsupported> {
        match kind {
            MemKind::Host { numa } if numa < self.host.cfg.numa_nodes => {
                Ok(RegionKind::Host { numa })
            }
            MemKind::Gpu { gpu } => match self.host.cfg.gpu_nodes.get(usize::from(gpu)) {
                Some(node) => Ok(RegionKind::Gpu { node: node.0 }),
                None => Err(Unsupported {
                    capability: "GPU memory",
                    reason: "the host has no such GPU",
                }),
            },
            MemKind::Host { .. } => Err(Unsupported {
                capability: "host memory",
                reason: "the host has no such NUMA node",
            }),
        }
    }

    /// Why this initiator may not hold a queue pair, if it may not.
    fn no_doorbell(&self) -> Option<Unsupported> {
        (self.is_gpu() && !self.host.caps.gpu_doorbell).then_some(Unsupported {
            capability: "a doorbell rung by a GPU",
            reason: "the device or its firmware takes none; let a CPU core post for the GPU",
        })
    }

    fn granted(&self, init: &QpInit) -> Result<QpCaps, CreateError> {
        let c = &self.host.caps;
        let limit = |field, got: u32, max: u32, zero_ok: bool| {
            if got > max || got == 0 && !zero_ok {
                let (got, max) = (u64::from(got), u64::from(max));
                return Err(CreateError::Limit { field, got, max });
            }
            Ok(())
        };
        limit("max_send_wr", init.size.max_send_wr, c.max_qp_wr, false)?;
        limit("max_recv_wr", init.size.max_recv_wr, c.max_qp_wr, true)?;
        limit("max_send_sge", init.size.max_send_sge, c.max_sge, true)?;
        limit("max_inline_data", init.size.max_inline, c.max_inline, true)?;
        // Room for the largest WQE in every slot, as mlx5 sizes its ring (protocol.md §6.1).
        let blocks = max_wqe_bytes(init.size.max_send_sge, init.size.max_inline).div_ceil(WQEBB);
        Ok(QpCaps {
            max_send_wr: init.size.max_send_wr,
            sq_blocks: Some((init.size.max_send_wr * blocks).next_power_of_two()),
            max_recv_wr: init.size.max_recv_wr,
            max_staged: MAX_STAGED.min(init.size.max_send_wr),
            max_sge: init.size.max_send_sge,
            max_inline: init.size.max_inline,
            bf_bytes: if self.is_gpu() { 0 } else { self.host.cfg.nic.bf_bytes },
            ring_orders_stores: self.costs().ring_orders(),
            ring_choice: true,
            shareable: true,
            atomics: true,
            max_rd_atomic: c.max_rd_atomic,
        })
    }

    fn check_values(&self, attr: &QpAttr, mask: QpAttrMask) -> Result<(), ModifyError> {
        let c = &self.host.caps;
        let pkeys = self.nic().config().pkeys.len().max(1) as u64;
        let checks: [(QpAttrMask, &'static str, u64, u64); 5] = [
            (
                QpAttrMask::MAX_QP_RD_ATOMIC,
                "max_rd_atomic",
                attr.max_rd_atomic.into(),
                c.max_rd_atomic.into(),
            ),
            (
                QpAttrMask::MAX_DEST_RD_ATOMIC,
                "max_dest_rd_atomic",
                attr.max_dest_rd_atomic.into(),
                c.max_dest_rd_atomic.into(),
            ),
            (
                QpAttrMask::PATH_MTU,
                "path_mtu",
                attr.path_mtu.bytes().into(),
                c.active_mtu.bytes().into(),
            ),
            (QpAttrMask::PORT, "port_num", attr.port.into(), 1),
            (QpAttrMask::PKEY_INDEX, "pkey_index", attr.pkey_index.into(), pkeys - 1),
        ];
        for (bit, field, got, max) in checks {
            if mask.contains(bit) && got > max {
                return Err(ModifyError::Value { field, got, max });
            }
        }
        Ok(())
    }

    fn attach(&mut self, qp: u32) -> QpId {
        let staged = Default::default();
        let local =
            LocalQp { qp, shared: true, staged, ringing: 0, closed: false, unfenced: false };
        let index = self.init_mut().handles.qps.push(local);
        QpId::new(index, 0, self.issuer)
    }
}

impl Control for SimTransport<'_> {
    fn device_caps(&self) -> &DeviceCaps {
        &self.host.caps
    }

    fn port_counters(&self) -> Option<TransportCounters> {
        let c = self.nic().hw_counters();
        Some(TransportCounters {
            rnr_nak_retry_err: c.rnr_nak_retry_err,
            local_ack_timeout_err: c.local_ack_timeout_err,
            packet_seq_err: c.packet_seq_err,
            cnps: c.rp_cnp_handled + c.rp_cnp_ignored,
        })
    }

    fn rank(&self) -> u32 {
        self.init().rank
    }

    fn size(&self) -> u32 {
        self.shared.size()
    }

    fn publish(&mut self, key: u64, bytes: &[u8]) {
        self.call();
        assert!(bytes.len() <= MAX_PUBLISHED_BYTES, "a published value of {} B", bytes.len());
        self.effect(Effect::Publish { to: None, key, bytes: bytes.into() });
    }

    fn publish_to(&mut self, peer: u32, key: u64, bytes: &[u8]) {
        self.call();
        assert!(bytes.len() <= MAX_PUBLISHED_BYTES, "a published value of {} B", bytes.len());
        self.effect(Effect::Publish { to: Some(peer), key, bytes: bytes.into() });
    }

    fn lookup(
        &mut self,
        peer: u32,
        key: u64,
        out: &mut [u8],
    ) -> Result<Option<usize>, LookupError> {
        self.call();
        let size = self.shared.size();
        if peer >= size {
            return Err(LookupError::NoSuchRank { rank: peer, size });
        }
        match self.host.bootstrap.get(&(peer, key)) {
            Some(found) => {
                let n = found.len().min(out.len());
                out[..n].copy_from_slice(&found[..n]);
                Ok(Some(found.len()))
            }
            None if self.shared.ended[peer as usize] => Err(LookupError::PeerGone { rank: peer }),
            None => Ok(None),
        }
    }

    fn create_pd(&mut self) -> Result<PdId, CreateError> {
        self.call();
        let pd = self.host.next_pd;
        self.host.next_pd += 1;
        let index = self.init_mut().handles.pds.push(pd);
        Ok(PdId::new(index, 0, self.issuer))
    }

    fn alloc_mr(
        &mut self,
        pd: PdId,
        len: u64,
        kind: MemKind,
        access: AccessFlags,
        contents: Contents,
    ) -> Result<Mr, MemError> {
        self.call();
        let pd = self.pd(pd).ok_or(MemError::BadHandle)?;
        let place = self.kind(kind).map_err(MemError::Unsupported)?;
        let contents = match contents {
            Contents::Data => RegionContents::Data,
            Contents::Virtual => RegionContents::Virtual,
        };
        let region = self.host.regions.register(Pd(pd), len, place, access, contents);
        let region = region.map_err(|e| match e {
            RegisterError::Empty => MemError::OutOfRange { offset: 0, len: 0, region: 0 },
            RegisterError::NeedsLocalWrite => MemError::InvalidAccess,
            RegisterError::Exhausted => MemError::NoMemory { max: self.host.caps.max_mr.into() },
        })?;
        self.charge_registration(place, access, len);
        let index = self.init().handles.mrs.0.len() as u32;
        let mr = Mr {
            id: MrId::new(index, 0, self.issuer),
            addr: region.addr,
            len,
            lkey: region.lkey,
            rkey: region.rkey,
            kind,
        };
        self.init_mut().handles.mrs.push((mr, region.id));
        Ok(mr)
    }

    fn dereg_mr(&mut self, mr: MrId) -> Result<(), BadHandle> {
        self.call();
        if mr.issuer() != self.issuer {
            return Err(BadHandle);
        }
        let slot = self.init_mut().handles.mrs.0.get_mut(mr.index() as usize).ok_or(BadHandle)?;
        let (_, region) = slot.take().ok_or(BadHandle)?;
        self.host.regions.get(region).ok_or(BadHandle)?;
        self.effect(Effect::Deregister { region });
        Ok(())
    }

    fn create_cq(&mut self, depth: u32) -> Result<CqId, CreateError> {
        self.call();
        let max = self.host.caps.max_cqe;
        if depth == 0 || depth > max {
            let (got, max) = (depth.into(), max.into());
            return Err(CreateError::Limit { field: "cqe", got, max });
        }
        let (count, max) = (self.nic().cq_count(), self.host.caps.max_cq);
        if count >= max {
            let (got, max) = (u64::from(count) + 1, max.into());
            return Err(CreateError::Limit { field: "max_cq", got, max });
        }
        let (space, owner) = (self.home(), self.me);
        let index = self.nic_mut().create_cq(depth, owner, space);
        let local = self.init_mut().handles.cqs.push(index);
        Ok(CqId::new(local, 0, self.issuer))
    }

    fn create_srq(&mut self, pd: PdId, depth: u32) -> Result<SrqId, CreateError> {
        self.call();
        let pd = self.pd(pd).ok_or(CreateError::BadHandle)?;
        let max = self.host.caps.max_srq_wr;
        if depth == 0 || depth > max {
            let (got, max) = (depth.into(), max.into());
            return Err(CreateError::Limit { field: "max_wr", got, max });
        }
        let index = self.nic_mut().create_srq(depth);
        let local = self.init_mut().handles.srqs.push((index, pd));
        Ok(SrqId::new(local, 0, self.issuer))
    }

    fn create_qp(&mut self, init: &QpInit) -> Result<QpId, CreateError> {
        self.call();
        if !matches!(init.ty, QpType::Rc | QpType::Uc | QpType::Ud) {
            let reason = "only RC, UC and UD are modelled";
            return Err(CreateError::Unsupported(Unsupported { capability: "QP type", reason }));
        }
        if let Some(why) = self.no_doorbell() {
            return Err(CreateError::Unsupported(why));
        }
        let pd = self.pd(init.pd).ok_or(CreateError::BadHandle)?;
        let send_cq = self.cq(init.send_cq).ok_or(CreateError::BadHandle)?;
        let recv_cq = self.cq(init.recv_cq).ok_or(CreateError::BadHandle)?;
        let srq = match init.srq {
            Some(srq) => Some(self.srq(srq).ok_or(CreateError::BadHandle)?),
            None => None,
        };
        let caps = self.granted(init)?;
        let queue_space = self.kind(init.queue_memory).map_err(CreateError::Unsupported)?;
        let (count, max) = (self.nic().qp_count(), self.host.caps.max_qp);
        if count >= max {
            let (got, max) = (u64::from(count) + 1, max.into());
            return Err(CreateError::Limit { field: "max_qp", got, max });
        }
        let request = QpRequest {
            ty: init.ty,
            pd,
            send_cq,
            recv_cq,
            srq,
            caps,
            queue_space,
            owner: self.me,
            sig_all: init.sq_sig_all,
            first_psn: Psn::new(self.host.next_psn.below(1 << 24) as u32),
            port_mtu: self.host.caps.active_mtu,
        };
        let qp = self.nic_mut().create_qp(&request);
        let id = self.attach(qp);
        let h = &mut self.init_mut().handles;
        if let Some(l) = h.qps.get_mut(id.index()) {
            l.shared = false;
        }
        h.by_nic.insert(qp, id);
        Ok(id)
    }

    fn create_ah(&mut self, pd: PdId, to: Address) -> Result<AhId, CreateError> {
        self.call();
        let pd = self.pd(pd).ok_or(CreateError::BadHandle)?;
        let port = port_of(&to).ok_or(CreateError::BadHandle)?;
        let index = self.init_mut().handles.ahs.push((pd, port, to));
        Ok(AhId::new(index, 0, self.issuer))
    }

    fn modify_qp(&mut self, qp: QpId, attr: &QpAttr, mask: QpAttrMask) -> Result<u32, ModifyError> {
        self.call();
        let index = self.local_qp(qp).ok_or(ModifyError::BadHandle)?.qp;
        let q = self.nic().qp(index).ok_or(ModifyError::BadHandle)?;
        let (ty, from) = (q.ty, q.host_state);
        if mask.contains(QpAttrMask::CUR_STATE) && attr.cur_state != from {
            return Err(ModifyError::CurState { actual: from });
        }
        let to = if mask.contains(QpAttrMask::STATE) { attr.state } else { from };
        check_transition(ty, from, to, mask).map_err(ModifyError::Transition)?;
        self.check_values(attr, mask)?;
        let peer = if mask.contains(QpAttrMask::AV) {
            let there = |(host, port): &(HostId, PortId)| {
                let node = self.shared.fabric.hosts().get(host.index());
                node.is_some_and(|n| port.index() < n.ports())
            };
            let peer = port_of(&attr.path).filter(there);
            Some(peer.ok_or(ModifyError::Value { field: "ah_attr", got: 0, max: 0 })?)
        } else {
            None
        };
        let discarded = self.unstage(qp);
        self.effect(Effect::Modify { qp: index, attr: Box::new(*attr), mask, peer });
        if to == QpState::Reset {
            let nic = self.init().nic;
            self.host.give_back((nic, index));
        }
        if let Some(q) = self.nic_mut().qp_mut(index) {
            q.host_state = to;
        }
        Ok(discarded)
    }

    fn qp_state(&self, qp: QpId) -> Result<QpState, BadHandle> {
        self.call();
        let l = self.local_qp(qp).ok_or(BadHandle)?;
        self.nic().qp(l.qp).map(|q| q.host_state).ok_or(BadHandle)
    }

    fn endpoint(&self, qp: QpId) -> Result<Endpoint, BadHandle> {
        let l = self.local_qp(qp).ok_or(BadHandle)?;
        let q = self.nic().qp(l.qp).ok_or(BadHandle)?;
        let address = address_of(self.host.id, self.nic().port());
        Ok(Endpoint { address, qpn: q.qpn, psn: q.first_psn, mtu: self.host.caps.active_mtu })
    }

    fn arm_srq(&mut self, srq: SrqId, limit: u32) -> Result<(), ModifyError> {
        self.call();
        let srq = self.srq(srq).ok_or(ModifyError::BadHandle)?;
        let rq = self.nic_mut().srq_mut(srq).ok_or(ModifyError::BadHandle)?;
        if limit > rq.depth() {
            let (got, max) = (limit.into(), rq.depth().into());
            return Err(ModifyError::Value { field: "srq_limit", got, max });
        }
        rq.limit = limit;
        Ok(())
    }

    fn next_event(&mut self) -> Option<AsyncEvent> {
        self.call();
        let owner = self.me;
        let e = self.nic_mut().next_async(owner)?;
        self.acted = true;
        let h = &self.init().handles;
        let me = self.issuer;
        let object = e.kind.object();
        Some(AsyncEvent {
            kind: e.kind,
            qp: (object == AsyncObject::Qp).then(|| h.by_nic.get(&e.object).copied()).flatten(),
            cq: (object == AsyncObject::Cq)
                .then(|| h.cqs.0.iter().position(|c| *c == Some(e.object)))
                .flatten()
                .map(|i| CqId::new(i as u32, 0, me)),
            srq: (object == AsyncObject::Srq)
                .then(|| h.srqs.0.iter().position(|s| s.is_some_and(|s| s.0 == e.object)))
                .flatten()
                .map(|i| SrqId::new(i as u32, 0, me)),
        })
    }

    fn watch(&mut self, range: Range) -> Result<WatchId, MemError> {
        self.call();
        let (region, addr) = self.address(range)?;
        let watch = Watch { addr, len: range.len, look: self.load_cost(region) };
        let index = self.init_mut().handles.watches.push(watch);
        if WaitSet::watch_index(index).is_none() {
            self.init_mut().handles.watches.0.pop();
            let max = doorbell_core::transport::MAX_WAIT_WATCHES.into();
            return Err(MemError::NoMemory { max });
        }
        Ok(WatchId::new(index, 0, self.issuer))
    }

    fn share_qp(&mut self, qp: QpId, key: u64) -> Result<(), Unsupported> {
        self.call();
        let stale = Unsupported { capability: "share_qp", reason: "the handle is not valid" };
        let index = self.local_qp(qp).ok_or(stale)?.qp;
        if let Some(l) = self.init_mut().handles.qps.get_mut(qp.index()) {
            l.shared = true;
        }
        let (rank, nic) = (self.init().rank, self.init().nic);
        self.host.shared_qps.insert((rank, key), (nic, index));
        let now = self.start;
        self.host.wake_bootstrap(self.shared, now);
        Ok(())
    }

    fn attach_qp(&mut self, owner: u32, key: u64) -> Result<QpId, AttachError> {
        self.call();
        let Some(&(nic, qp)) = self.host.shared_qps.get(&(owner, key)) else {
            return Err(self.not_shared(owner));
        };
        if nic != self.init().nic {
            return Err(AttachError::OtherDevice);
        }
        if let Some(why) = self.no_doorbell() {
            return Err(AttachError::Unsupported(why));
        }
        if self.nic().qp(qp).is_none() {
            return Err(AttachError::Gone);
        }
        Ok(self.attach(qp))
    }

    fn share_mr(&mut self, mr: MrId, key: u64) -> Result<(), Unsupported> {
        self.call();
        let stale = Unsupported { capability: "share_mr", reason: "the handle is not valid" };
        if mr.issuer() != self.issuer {
            return Err(stale);
        }
        let entry = *self.init().handles.mrs.get(mr.index()).ok_or(stale)?;
        let rank = self.init().rank;
        self.host.shared_mrs.insert((rank, key), entry);
        let now = self.start;
        self.host.wake_bootstrap(self.shared, now);
        Ok(())
    }

    fn attach_mr(&mut self, owner: u32, key: u64) -> Result<Mr, AttachError> {
        self.call();
        let Some(&(mr, region)) = self.host.shared_mrs.get(&(owner, key)) else {
            return Err(self.not_shared(owner));
        };
        if self.host.regions.get(region).is_none() {
            return Err(AttachError::Gone);
        }
        let index = self.init().handles.mrs.0.len() as u32;
        let mr = Mr { id: MrId::new(index, 0, self.issuer), ..mr };
        self.init_mut().handles.mrs.push((mr, region));
        Ok(mr)
    }

    fn destroy_qp(&mut self, qp: QpId) -> Result<(), BadHandle> {
        self.call();
        let index = self.local_qp(qp).ok_or(BadHandle)?.qp;
        self.unstage(qp);
        let h = &mut self.init_mut().handles;
        if let Some(l) = h.qps.get_mut(qp.index()) {
            l.closed = true;
        }
        h.by_nic.remove(&index);
        self.effect(Effect::Destroy { local: qp.index(), qp: index });
        Ok(())
    }

    fn destroy_cq(&mut self, cq: CqId) -> Result<(), DestroyError> {
        self.call();
        let index = self.cq(cq).ok_or(DestroyError::BadHandle)?;
        if self.own_qps().any(|q| q.send_cq == index || q.recv_cq == index) {
            return Err(DestroyError::Busy);
        }
        self.init_mut().handles.cqs.remove(cq.index());
        self.effect(Effect::DestroyCq { cq: index });
        Ok(())
    }

    fn destroy_srq(&mut self, srq: SrqId) -> Result<(), DestroyError> {
        self.call();
        let index = self.srq(srq).ok_or(DestroyError::BadHandle)?;
        if self.own_qps().any(|q| q.srq == Some(index)) {
            return Err(DestroyError::Busy);
        }
        self.init_mut().handles.srqs.remove(srq.index());
        self.effect(Effect::DestroySrq { srq: index });
        Ok(())
    }

    fn destroy_ah(&mut self, ah: AhId) -> Result<(), DestroyError> {
        self.call();
        if ah.issuer() != self.issuer {
            return Err(DestroyError::BadHandle);
        }
        let gone = self.init_mut().handles.ahs.remove(ah.index());
        gone.map(|_| ()).ok_or(DestroyError::BadHandle)
    }

    fn dealloc_pd(&mut self, pd: PdId) -> Result<(), DestroyError> {
        self.call();
        let own = self.pd(pd).ok_or(DestroyError::BadHandle)?;
        let h = &self.init().handles;
        let in_pd = |region| self.host.regions.get(region).is_some_and(|r| r.pd == Pd(own));
        let used = self.own_qps().any(|q| q.pd == own)
            || h.mrs.iter().any(|m| in_pd(m.1))
            || h.srqs.iter().any(|s| s.1 == own)
            || h.ahs.iter().any(|a| a.0 == own);
        if used {
            return Err(DestroyError::Busy);
        }
        self.init_mut().handles.pds.remove(pd.index());
        Ok(())
    }
}

impl SimTransport<'_> {
    /// The QPs that this handle has made and not destroyed. Only they can use its other objects.
    fn own_qps(&self) -> impl Iterator<Item = &NicQp> {
        self.init().handles.by_nic.keys().filter_map(|&q| self.nic().qp(q))
    }

    fn not_shared(&self, owner: u32) -> AttachError {
        let here = self.host.initiators.iter().any(|i| i.rank == owner);
        if here { AttachError::NotShared } else { AttachError::OtherHost }
    }
}
