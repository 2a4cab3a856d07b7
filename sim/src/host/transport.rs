//! What a program sees: the data path.

use std::cell::Cell;
use std::panic::resume_unwind;

use doorbell_core::transport::{
    BadHandle, Completions, CqId, Data, FenceScope, Initiator, MemError, MemKind, PollError,
    PostRecvCause, PostRecvError, QpCaps, QpId, Range, RecvQueue, RecvWr, Reduce, Ring, RingCause,
    RingError, Rung, RungBy, SendWr, StageError, Transport, Unsupported, WorkQueue,
};
use doorbell_core::units::{BitRate, Span, Time};
use doorbell_core::verbs::{
    PostVerdict, QpState, QpType, SendFlags, WcStatus, can_post_recv, can_post_send,
};

use super::initiator::{Addition, Effect, InitiatorState, LocalQp, StoreBytes};
use super::island::{Host, Shared};
use super::program::CallBudgetSpent;
use crate::memory::{Contents, DataError, MemoryPlace, RegionId, RegionKind};
use crate::nic::{Cqe, CqeKind, Nic, NicQp, RqWqe, UdTarget, WQEBB, Wqe, WqeData, completion};
use crate::pcie::NodeId;
use crate::wire::udp_source_port;

/// Calls of one step after which it counts as a loop that never returns.
const CALL_BUDGET: u32 = 1_000_000;

/// Initiators that a handle tells apart.
const ISSUERS: u32 = 128;

/// Bytes above which a copy takes its share of the memory bandwidth; smaller ones stay in caches.
pub(super) const BULK_COPY: u64 = 4096;

/// How often a reduction moves each byte of an operand: two reads and one write.
const READS_AND_WRITES: u64 = 3;

/// The transport handle of one initiator during one step.
pub struct SimTransport<'a> {
    pub(super) host: &'a mut Host,
    pub(super) shared: &'a mut Shared,
    pub(super) me: u16,
    /// What its handles carry: its rank, so that those of other hosts are foreign.
    pub(super) issuer: u32,
    /// What the step observes is as of here.
    pub(super) start: Time,
    pub(super) local: Time,
    calls: Cell<u32>,
    /// Whether the step polled something, posted or stored.
    pub(super) acted: bool,
}

impl<'a> SimTransport<'a> {
    pub(super) fn new(
        host: &'a mut Host,
        shared: &'a mut Shared,
        me: u16,
        start: Time,
        jitter: Span,
    ) -> Self {
        let issuer = host.initiators[usize::from(me)].rank % ISSUERS;
        let calls = Cell::new(0);
        Self { host, shared, me, issuer, start, local: start + jitter, calls, acted: false }
    }

    pub(super) const fn local(&self) -> Time {
        self.local
    }

    pub(super) const fn active(&self) -> bool {
        self.acted
    }

    pub(super) fn init(&self) -> &InitiatorState {
        &self.host.initiators[usize::from(self.me)]
    }

    pub(super) fn init_mut(&mut self) -> &mut InitiatorState {
        &mut self.host.initiators[usize::from(self.me)]
    }

    /// The NIC that the handle is of.
    pub(super) fn nic(&self) -> &Nic {
        self.host.nic_of(self.me.into())
    }

    pub(super) fn nic_mut(&mut self) -> &mut Nic {
        let nic = self.init().nic;
        &mut self.host.devices[usize::from(nic)].nic
    }

    pub(super) fn costs(&self) -> &super::config::InitiatorCosts {
        self.host.costs_of(self.init().who)
    }

    /// Counts a call; a step that makes too many never returns and is ended here. Calls that only
    /// look count too: a loop that waits for the clock makes no others.
    pub(super) fn call(&self) {
        self.calls.set(self.calls.get() + 1);
        if self.calls.get() > CALL_BUDGET {
            resume_unwind(Box::new(CallBudgetSpent));
        }
    }

    /// The local clock moves on.
    pub(super) fn spend(&mut self, span: Span) {
        self.local += span;
    }

    pub(super) fn effect(&mut self, effect: Effect) {
        self.acted = true;
        let at = self.local;
        self.init_mut().effects.push_back((at, effect));
    }

    pub(super) fn local_qp(&self, qp: QpId) -> Option<&LocalQp> {
        if qp.issuer() != self.issuer || qp.generation() != 0 {
            return None;
        }
        self.init().handles.qps.get(qp.index()).filter(|l| !l.closed)
    }

    fn local_qp_mut(&mut self, qp: QpId) -> Option<&mut LocalQp> {
        if qp.issuer() != self.issuer || qp.generation() != 0 {
            return None;
        }
        self.init_mut().handles.qps.get_mut(qp.index()).filter(|l| !l.closed)
    }

    pub(super) fn is_gpu(&self) -> bool {
        matches!(self.init().who, Initiator::GpuBlock { .. })
    }

    /// Checks a work request against what was granted.
    fn validate(&self, qp: QpId, wr: &SendWr<'_>) -> Result<(u32, Option<UdTarget>), StageError> {
        let l = self.local_qp(qp).ok_or(StageError::BadHandle)?;
        let q = self.nic().qp(l.qp).ok_or(StageError::BadHandle)?;
        if can_post_send(q.host_state) == PostVerdict::Refused {
            return Err(StageError::BadState { state: q.host_state });
        }
        let op = wr.op.opcode();
        if !op.allowed_on(q.ty) {
            let reason = "the service type does not carry this operation";
            return Err(StageError::Unsupported(Unsupported { capability: "opcode", reason }));
        }
        match wr.data {
            Data::Inline(b) => {
                if !op.may_be_inline() {
                    let reason = "only SEND and WRITE carry inline data";
                    let capability = "inline";
                    return Err(StageError::Unsupported(Unsupported { capability, reason }));
                }
                if b.len() > q.caps.max_inline as usize {
                    let (got, max) = (b.len() as u32, q.caps.max_inline);
                    return Err(StageError::InlineTooLong { got, max });
                }
            }
            Data::Sge(s) if s.len() > q.caps.max_sge as usize => {
                let (got, max) = (s.len() as u32, q.caps.max_sge);
                return Err(StageError::TooManySge { got, max });
            }
            Data::Sge(_) => {}
        }
        let max =
            if q.ty == QpType::Ud { q.attr.path_mtu.bytes() } else { self.host.caps.max_msg_bytes };
        let got = wr.data.len();
        if got > u64::from(max) {
            return Err(StageError::TooLong { got, max });
        }
        let dest = match wr.dest {
            Some(d) if q.ty == QpType::Ud => {
                let own = d.ah.issuer() == self.issuer;
                let ah = self.init().handles.ahs.get(d.ah.index()).filter(|_| own);
                let ah = ah.ok_or(StageError::BadHandle)?;
                let (host, port) = ah.1;
                let udp_source_port = udp_source_port(ah.2.flow_label, 0, 0);
                Some(UdTarget {
                    host,
                    port,
                    qpn: d.qpn,
                    qkey: d.qkey,
                    sl: ah.2.sl,
                    udp_source_port,
                })
            }
            None if q.ty == QpType::Ud => return Err(StageError::BadHandle),
            _ => None,
        };
        Ok((l.qp, dest))
    }

    /// Cost of building a WQE.
    fn build_cost(&self, wqe: &Wqe, space: RegionKind) -> Span {
        let c = self.costs();
        let sges = wqe.data.sges().len().saturating_sub(1) as u64;
        let blocks = u64::from(wqe.blocks);
        let copy = match &wqe.data {
            WqeData::Inline(b) => c.inline_rate.time_for(b.as_slice().len() as u64),
            _ => Span::ZERO,
        };
        let far = if self.is_remote(space) { c.remote_memory * blocks } else { Span::ZERO };
        c.post_wqe + c.post_block * (blocks - 1) + c.post_sge * sges + copy + far
    }

    /// Cost of building all that is staged on a shared QP and under no ring.
    fn build_costs(&self, l: &LocalQp, index: u32) -> Span {
        let space = self.nic().qp(index).map_or(RegionKind::Host { numa: 0 }, |q| q.queue_space);
        let staged = l.staged.iter().skip(l.ringing as usize);
        let first = staged.step_by(self.costs().lanes as usize);
        let cost = first.map(|(w, _)| self.build_cost(w, space));
        cost.fold(Span::ZERO, |sum, span| sum + span)
    }

    /// Waits for the right to ring a shared QP, and builds its WQEs.
    fn enter(&mut self, qp: u32, count: u32, build: Span, ordered: bool) {
        let (lock, ticket) = (self.costs().lock, self.costs().ticket);
        if ordered {
            // Slots first, so that all write theirs at the same time.
            self.spend(ticket);
            self.effect(Effect::Ticket { qp, count });
            self.spend(build);
            self.effect(Effect::Turn { qp });
        } else {
            self.spend(lock);
            self.effect(Effect::Lock { qp, count });
            self.spend(build);
        }
    }

    /// Whether this initiator's access to `space` crosses sockets.
    fn is_remote(&self, space: RegionKind) -> bool {
        matches!(space, RegionKind::Host { numa } if numa != self.init().numa)
    }

    /// BlueFlame bytes of what is staged, 0 for a doorbell: mlx5's rule is exactly one WQE, inline
    /// or preferred, that fits the buffer (protocol.md §6.2).
    fn blueflame_bytes(&self, l: &LocalQp, count: u32, how: Ring) -> u32 {
        let cfg = self.nic().config();
        let never = matches!(how, Ring::Doorbell | Ring::Combined | Ring::Ordered);
        if never || count != 1 || self.is_gpu() {
            return 0;
        }
        let Some((wqe, _)) = l.staged.get(l.ringing as usize) else { return 0 };
        let bytes = u32::from(wqe.blocks) * WQEBB;
        let inline = matches!(wqe.data, WqeData::Inline(_) | WqeData::None);
        let wanted = inline || cfg.prefer_bf;
        if wanted && bytes <= cfg.bf_bytes { bytes } else { 0 }
    }

    /// Cost of a ring: order, doorbell record, and the store to the device.
    fn ring_cost(&self, blueflame: u32) -> Span {
        let c = self.costs();
        let store = match blueflame {
            0 => c.doorbell,
            bytes => c.blueflame_line * u64::from(bytes / WQEBB),
        };
        c.ring + self.remote_extra() + store
    }

    fn remote_extra(&self) -> Span {
        let nic = self.host.pcie.socket_of(self.nic().node());
        if self.init().numa == nic { Span::ZERO } else { self.costs().remote_mmio }
    }

    /// First address of a range, after checking it.
    pub(super) fn address(&self, r: Range) -> Result<(RegionId, u64), MemError> {
        if r.mr.issuer() != self.issuer || r.mr.generation() != 0 {
            return Err(MemError::BadHandle);
        }
        let (mr, region_id) =
            self.init().handles.mrs.get(r.mr.index()).ok_or(MemError::BadHandle)?;
        let end = r.offset.checked_add(r.len);
        if end.is_none_or(|e| e > mr.len) {
            let (offset, len, region) = (r.offset, r.len, mr.len);
            return Err(MemError::OutOfRange { offset, len, region });
        }
        Ok((*region_id, mr.addr + r.offset))
    }

    fn aligned(&self, r: Range) -> Result<(RegionId, u64), MemError> {
        let (region, addr) = self.address(r)?;
        if r.len != 8 || addr % 8 != 0 {
            return Err(MemError::Misaligned { element: 8 });
        }
        Ok((region, addr))
    }

    /// Bytes as of the step's start, with this initiator's own later stores over them.
    pub(super) fn observe(
        &self,
        (region, addr): (RegionId, u64),
        to: &mut [u8],
    ) -> Result<(), MemError> {
        self.host.regions.read(region, addr, to).map_err(mem_error)?;
        let init = self.init();
        let end = addr + to.len() as u64;
        let mut overlay = |at: u64, bytes: &StoreBytes| {
            bytes.with(|b| {
                let from = at.max(addr);
                let until = (at + b.len() as u64).min(end);
                if from < until {
                    let source = &b[(from - at) as usize..(until - at) as usize];
                    to[(from - addr) as usize..(until - addr) as usize].copy_from_slice(source);
                }
            });
        };
        for store in init.store_buffer.iter() {
            overlay(store.addr, &store.bytes);
        }
        for (_, effect) in &init.effects {
            if let Effect::Store { addr: at, bytes, .. } = effect {
                overlay(*at, bytes);
            }
        }
        Ok(())
    }

    pub(super) fn is_virtual(&self, region: RegionId) -> bool {
        self.host.regions.get(region).is_some_and(|r| r.contents == Contents::Virtual)
    }

    /// Cost of a load of 8 bytes.
    pub(super) fn load_cost(&self, region: RegionId) -> Span {
        let c = self.costs();
        match self.host.regions.get(region).map(|r| r.kind) {
            Some(RegionKind::Gpu { node }) if node == self.init().node.0 => c.load_own,
            Some(kind) if self.is_remote(kind) => c.load + c.remote_memory,
            _ => c.load,
        }
    }

    /// Every store so far is visible to all observers from the local clock on.
    fn order_stores(&mut self) {
        let now = self.local;
        for l in self.init_mut().handles.qps.0.iter_mut().flatten() {
            l.unfenced = false;
            l.staged.iter_mut().for_each(|(_, landing)| landing.fence(now));
        }
        if self.costs().store_delay.is_some() {
            self.effect(Effect::Drain);
        }
    }

    /// As [`Self::work_on`], in the initiator's own memory.
    fn work_on_own(&mut self, bytes: u64, rate: BitRate, factor: u64) {
        let before = self.local;
        self.work_on(MemoryPlace(self.init().node.0), bytes, rate, factor);
        let spent = self.local.since(before);
        self.init_mut().stats.copy += spent;
    }

    /// The initiator adds. The operands are those that the step sees.
    fn add_here(
        &mut self,
        op: Reduce,
        (region, addr): (RegionId, u64),
        from: (RegionId, u64),
        bytes: u64,
    ) -> Result<(), MemError> {
        let mut sum = vec![0; bytes as usize];
        let mut more = vec![0; bytes as usize];
        self.observe((region, addr), &mut sum)?;
        self.observe(from, &mut more)?;
        op.apply(&mut sum, &more);
        self.work_on_own(bytes, self.costs().reduce_rate, READS_AND_WRITES);
        let bytes = StoreBytes::Many(sum.into());
        self.effect(Effect::Store { region, addr, bytes });
        Ok(())
    }

    /// A kernel adds: it takes all that the memory of its GPU gives, and shares it with others. It
    /// reads when it runs: what the core has polled says that bytes are on their way to the GPU,
    /// and they come by another way than the completion.
    fn add_by_kernel(&mut self, gpu: NodeId, add: Addition) {
        self.run_kernel(gpu, add.bytes * READS_AND_WRITES);
        if add.bytes > 0 {
            self.effect(Effect::Add(add));
        }
    }

    /// A kernel that moves so many bytes of its GPU's memory, and the core that waits for it.
    fn run_kernel(&mut self, gpu: NodeId, bytes: u64) {
        let before = self.local;
        self.spend(self.costs().kernel_launch);
        // An empty one does nothing but wait for what was on its way.
        if bytes > 0 {
            let place = self.host.pcie.kernel_place(gpu);
            let limit = self.host.pcie.memory().rate(place);
            let solo = limit.time_for(bytes);
            self.effect(Effect::Memory { place, bytes, limit, solo });
            self.spend(solo);
            self.init_mut().stats.kernels += 1;
        }
        let spent = self.local.since(before);
        self.init_mut().stats.copy += spent;
    }

    /// Work of a program on its own variables, at the pace of an addition that moves as much.
    fn touch_own(&mut self, bytes: u64) {
        let rate = self.costs().reduce_rate;
        let moved = rate.as_bps().saturating_mul(READS_AND_WRITES);
        self.work_on_own(bytes, BitRate::new(moved).unwrap_or(rate), 1);
    }

    /// A copy between a region and the program's own variables.
    fn copy_own(&mut self, bytes: u64) {
        self.work_on_own(bytes, self.costs().copy_rate, 1);
        self.count_copy(bytes);
    }

    /// The initiator has copied so many bytes by itself.
    pub(super) fn count_copy(&mut self, bytes: u64) {
        let stats = &mut self.init_mut().stats;
        stats.copies += 1;
        stats.copied_bytes += bytes;
    }
}

/// What a completion tells the host: slots that come back, and an error that the QP is in. Gives
/// the number of slots.
fn learn(qp: &mut NicQp, cqe: &Cqe) -> u32 {
    match cqe.kind {
        CqeKind::Send { index, .. } => qp.sq.retire(index),
        CqeKind::Recv { .. } => 0,
        CqeKind::Error { queue, index, status } => {
            let reliable = qp.ty == QpType::Rc;
            qp.host_state = match (queue, qp.host_state) {
                (WorkQueue::Send, QpState::Rts | QpState::Sqd) if !reliable => QpState::Sqe,
                (WorkQueue::Send, state) if !reliable => state,
                (WorkQueue::Recv, state) if !reliable && status != WcStatus::WrFlushErr => state,
                _ => QpState::Err,
            };
            if queue == WorkQueue::Send { qp.sq.retire(index) } else { 0 }
        }
    }
}

/// What a program is told about bytes that cannot be read.
fn mem_error(e: DataError) -> MemError {
    match e {
        DataError::Virtual => MemError::Virtual,
        DataError::Misaligned => MemError::Misaligned { element: 8 },
        DataError::Gone | DataError::OutOfRange => MemError::BadHandle,
    }
}

impl Transport for SimTransport<'_> {
    fn now(&self) -> Time {
        self.call();
        self.local
    }

    fn initiator(&self) -> Initiator {
        self.init().who
    }

    fn qp_caps(&self, qp: QpId) -> Result<QpCaps, BadHandle> {
        self.call();
        let l = self.local_qp(qp).ok_or(BadHandle)?;
        self.nic().qp(l.qp).map(|q| q.caps).ok_or(BadHandle)
    }

    fn sq_free(&self, qp: QpId) -> u32 {
        self.call();
        let q = self.local_qp(qp).and_then(|l| self.nic().qp(l.qp));
        q.map_or(0, |q| q.caps.max_send_wr.saturating_sub(q.sq.used))
    }

    fn stage(&mut self, qp: QpId, wr: &SendWr<'_>) -> Result<(), StageError> {
        self.call();
        let (index, dest) = self.validate(qp, wr)?;
        let q = self.nic_mut().qp_mut(index).ok_or(StageError::BadHandle)?;
        let mut wqe = Wqe::new(wr, q.ty, dest);
        let blocks = u32::from(wqe.blocks);
        let full_blocks = q.caps.sq_blocks.is_some_and(|most| q.sq.used_blocks + blocks > most);
        if q.sq.used >= q.caps.max_send_wr || full_blocks {
            return Err(StageError::SqFull);
        }
        let max_staged = q.caps.max_staged;
        let l = self.local_qp(qp).ok_or(StageError::BadHandle)?;
        if l.staged.len() as u32 - l.ringing >= max_staged {
            return Err(StageError::StagedFull);
        }
        let (shared, nth) = (l.shared, l.staged.len() as u32 - l.ringing);
        let q = self.nic_mut().qp_mut(index).ok_or(StageError::BadHandle)?;
        q.sq.used += 1;
        q.sq.used_blocks += blocks;
        let space = q.queue_space;
        if q.sig_all {
            wqe.flags |= SendFlags::SIGNALED;
        }
        // On a shared QP the WQE is written inside the lock, so the ring pays for it.
        if !shared {
            let cost = if nth.is_multiple_of(self.costs().lanes) {
                self.build_cost(&wqe, space)
            } else {
                Span::ZERO
            };
            self.record_staged(qp, "WQE build (core)", self.local, self.local + cost, 0);
            self.spend(cost);
            self.init_mut().stats.post += cost;
        }
        if let WqeData::Inline(b) = &wqe.data {
            self.count_copy(b.as_slice().len() as u64);
        }
        let landing = self.host.draw_landing(self.me, self.local);
        let l = self.local_qp_mut(qp).ok_or(StageError::BadHandle)?;
        l.unfenced = true;
        l.staged.push_back((wqe, landing));
        self.acted = true;
        Ok(())
    }

    fn ring(&mut self, qp: QpId, how: Ring) -> Result<Rung, RingError> {
        self.call();
        let bad = |cause| RingError { posted: 0, discarded: 0, cause };
        let l = self.local_qp(qp).ok_or(bad(RingCause::BadHandle))?;
        let count = l.staged.len() as u32 - l.ringing;
        if count == 0 {
            return Ok(Rung { wqes: 0, by: RungBy::Nothing });
        }
        let (index, shared, unfenced) = (l.qp, l.shared, l.unfenced);
        let Some(state) = self.nic().qp(index).map(|q| q.host_state) else {
            return Err(RingError { discarded: self.unstage(qp), ..bad(RingCause::BadHandle) });
        };
        if can_post_send(state) == PostVerdict::Refused {
            let discarded = self.unstage(qp);
            return Err(RingError { posted: 0, discarded, cause: RingCause::BadState(state) });
        }
        let blueflame = self.blueflame_bytes(l, count, how);
        let cost = self.ring_cost(blueflame);
        let before = self.local;
        let ordered = shared && how == Ring::Ordered;
        if shared {
            let build = self.build_costs(l, index);
            self.enter(index, count, build, ordered);
        }
        let start = self.local;
        if shared && count == 1 && how == Ring::Combined {
            self.effect(Effect::Choose { qp: index, cost });
        } else {
            self.spend(cost);
        }
        self.record_staged(
            qp,
            "ring: doorbell record, fence, MMIO store (core)",
            start,
            self.local,
            1,
        );
        if self.costs().ring_fences {
            self.order_stores();
        }
        let local = qp.index();
        self.effect(Effect::Ring { local, qp: index, count, blueflame });
        if ordered {
            self.effect(Effect::Advance { qp: index, count });
        } else if shared {
            self.effect(Effect::Unlock { qp: index });
        }
        let spent = self.local.since(before);
        if let Some(l) = self.local_qp_mut(qp) {
            l.ringing += count;
            l.unfenced = false;
        }
        let q = self.nic_mut().qp_mut(index).ok_or(bad(RingCause::BadHandle))?;
        if unfenced && !q.caps.ring_orders_stores {
            q.stats.unordered_rings += 1;
        }
        let stats = &mut self.init_mut().stats;
        stats.rings += 1;
        stats.wqes += u64::from(count);
        stats.post += spent;
        let by = if blueflame > 0 { RungBy::BlueFlame } else { RungBy::Doorbell };
        Ok(Rung { wqes: count, by })
    }

    fn unstage(&mut self, qp: QpId) -> u32 {
        self.call();
        let Some(l) = self.local_qp_mut(qp) else { return 0 };
        let index = l.qp;
        let gone = l.staged.split_off(l.ringing as usize);
        if let Some(q) = self.nic_mut().qp_mut(index) {
            // A RESET by another sharer has given them back before.
            let blocks = gone.iter().map(|(w, _)| u32::from(w.blocks)).sum();
            q.sq.used = q.sq.used.saturating_sub(gone.len() as u32);
            q.sq.used_blocks = q.sq.used_blocks.saturating_sub(blocks);
        }
        gone.len() as u32
    }

    fn post_recv(&mut self, q: RecvQueue, wrs: &[RecvWr]) -> Result<(), PostRecvError> {
        self.call();
        let refused = |cause| PostRecvError { posted: 0, cause };
        let (qp, srq, room) = match q {
            RecvQueue::Qp(id) => {
                let l = self.local_qp(id).ok_or(refused(PostRecvCause::BadHandle))?;
                let index = l.qp;
                let nq = self.nic().qp(index).ok_or(refused(PostRecvCause::BadHandle))?;
                if can_post_recv(nq.host_state) == PostVerdict::Refused {
                    return Err(refused(PostRecvCause::BadState(nq.host_state)));
                }
                if nq.srq.is_some() {
                    return Err(refused(PostRecvCause::UsesSrq));
                }
                (index, None, nq.rq.depth().saturating_sub(nq.rq.reserved()))
            }
            RecvQueue::Srq(id) => {
                let own = id.issuer() == self.issuer;
                let srq = self.init().handles.srqs.get(id.index()).filter(|_| own).map(|s| s.0);
                let srq = srq.ok_or(refused(PostRecvCause::BadHandle))?;
                let rq = self.nic().srq(srq).ok_or(refused(PostRecvCause::BadHandle))?;
                (0, Some(srq), rq.depth().saturating_sub(rq.reserved()))
            }
        };
        let fits = wrs.len().min(room as usize);
        let c = self.costs();
        let cost = c.recv_call + c.recv_wqe * fits as u64;
        self.spend(cost);
        if fits > 0 {
            let rq = match srq {
                Some(srq) => self.nic_mut().srq_mut(srq),
                None => self.nic_mut().qp_mut(qp).map(|q| &mut q.rq),
            };
            rq.expect("checked").reserve(fits as u32);
            let wqes = wrs[..fits].iter().map(|w| RqWqe { wr_id: w.wr_id, sge: w.sge }).collect();
            self.effect(Effect::PostRecv { qp, srq, wqes });
        }
        if fits < wrs.len() {
            return Err(PostRecvError { posted: fits as u32, cause: PostRecvCause::Full });
        }
        Ok(())
    }

    fn poll_cq(&mut self, cq: CqId, out: &mut Completions) -> Result<(), PollError> {
        self.call();
        if cq.issuer() != self.issuer {
            return Err(PollError::BadHandle);
        }
        let index = *self.init().handles.cqs.get(cq.index()).ok_or(PollError::BadHandle)?;
        let c = self.costs();
        let (call, found, each) = (c.poll_call, c.poll_found, c.poll_cqe);
        self.spend(call);
        let (mut polled, start) = (0, self.start);
        while !out.is_full() {
            let q = self.nic_mut().cq_mut(index).ok_or(PollError::BadHandle)?;
            let Some(cqe) = q.poll(start) else {
                if q.lost && polled == 0 {
                    return Err(PollError::CqLost);
                }
                break;
            };
            let id = self.init().handles.by_nic.get(&cqe.qp).copied();
            let (Some(id), Some(qp)) = (id, self.nic_mut().qp_mut(cqe.qp)) else { continue };
            if cqe.life != qp.host_life {
                // The driver removes what a RESET has made meaningless.
                continue;
            }
            polled += 1;
            let retired = learn(qp, &cqe);
            if let CqeKind::Send { index, .. } = cqe.kind {
                let end = self.local + found + each * polled;
                self.record_poll(cqe.qp, index, cqe.landed, end);
            }
            out.push(completion(&cqe, id, retired));
        }
        if polled > 0 {
            self.spend(found + each * polled);
        }
        // A poll that finds nothing is no progress, or a loop of them would never be noticed.
        self.acted |= polled > 0;
        let spent = call + if polled > 0 { found + each * polled } else { Span::ZERO };
        let stats = &mut self.init_mut().stats;
        stats.poll += spent;
        stats.polls += 1;
        stats.empty_polls += u64::from(polled == 0);
        stats.completions += polled;
        Ok(())
    }

    fn fence(&mut self, scope: FenceScope) {
        self.call();
        let cost = match scope {
            FenceScope::Device => self.costs().fence_device,
            FenceScope::System => self.costs().fence_system,
        };
        self.spend(cost);
        if scope == FenceScope::System {
            self.order_stores();
        }
    }

    fn compute(&mut self, work: Span) {
        self.call();
        self.acted = true;
        self.spend(work);
    }

    fn copy_in(&mut self, to: Range, from: &[u8]) -> Result<(), MemError> {
        self.call();
        let (region, addr) = self.address(to)?;
        if to.len != from.len() as u64 {
            return Err(MemError::LengthMismatch { range: to.len, buffer: from.len() as u64 });
        }
        self.copy_own(to.len);
        self.effect(Effect::Store { region, addr, bytes: StoreBytes::Many(from.into()) });
        Ok(())
    }

    fn copy_out(&mut self, from: Range, to: &mut [u8]) -> Result<(), MemError> {
        self.call();
        let place = self.address(from)?;
        if from.len != to.len() as u64 {
            return Err(MemError::LengthMismatch { range: from.len, buffer: to.len() as u64 });
        }
        self.copy_own(from.len);
        self.observe(place, to)
    }

    fn supply(&mut self, to: Range, from: &[u8]) -> Result<(), MemError> {
        self.call();
        let (region, addr) = self.address(to)?;
        if to.len != from.len() as u64 {
            return Err(MemError::LengthMismatch { range: to.len, buffer: from.len() as u64 });
        }
        self.effect(Effect::Store { region, addr, bytes: StoreBytes::Many(from.into()) });
        Ok(())
    }

    fn inspect(&mut self, from: Range, to: &mut [u8]) -> Result<(), MemError> {
        self.call();
        let place = self.address(from)?;
        if from.len != to.len() as u64 {
            return Err(MemError::LengthMismatch { range: from.len, buffer: to.len() as u64 });
        }
        self.observe(place, to)
    }

    fn touch(&mut self, memory: MemKind, bytes: u64) {
        self.call();
        match memory {
            MemKind::Gpu { gpu } if !self.is_gpu() => {
                match self.host.cfg.gpu_nodes.get(usize::from(gpu)).copied() {
                    Some(node) => self.run_kernel(node, bytes),
                    None => self.touch_own(bytes),
                }
            }
            _ => self.touch_own(bytes),
        }
    }

    fn copy(&mut self, to: Range, from: Range) -> Result<(), MemError> {
        let before = self.local;
        self.copy_between(to, from)?;
        let spent = self.local.since(before);
        self.init_mut().stats.copy += spent;
        Ok(())
    }

    fn reduce(&mut self, op: Reduce, to: Range, from: Range) -> Result<(), MemError> {
        self.call();
        let (a, b) = (self.address(to)?, self.address(from)?);
        if to.len != from.len {
            return Err(MemError::LengthMismatch { range: to.len, buffer: from.len });
        }
        let element = op.element_bytes();
        if [a.1, b.1, to.len].iter().any(|v| v % element != 0) {
            return Err(MemError::Misaligned { element });
        }
        if self.is_virtual(a.0) || self.is_virtual(b.0) {
            return Err(MemError::Virtual);
        }
        self.init_mut().stats.reduced_bytes += to.len;
        match self.kind_of(a.0)? {
            RegionKind::Gpu { node } if !self.is_gpu() => {
                self.add_by_kernel(NodeId(node), Addition { op, to: a, from: b, bytes: to.len });
                Ok(())
            }
            _ => self.add_here(op, a, b, to.len),
        }
    }

    fn load_u64(&mut self, at: Range) -> Result<u64, MemError> {
        self.call();
        let place = self.aligned(at)?;
        let cost = self.load_cost(place.0);
        self.spend(cost);
        let mut b = [0; 8];
        self.observe(place, &mut b)?;
        Ok(u64::from_le_bytes(b))
    }

    fn store_u64(&mut self, at: Range, value: u64) -> Result<(), MemError> {
        self.call();
        let (region, addr) = self.aligned(at)?;
        if self.is_virtual(region) {
            return Err(MemError::Virtual);
        }
        let cost = self.costs().store;
        self.spend(cost);
        self.effect(Effect::Store { region, addr, bytes: StoreBytes::Word(value) });
        Ok(())
    }
}

impl SimTransport<'_> {
    /// Records a stage of the WQE that is `back` positions before the next one to be staged.
    fn record_staged(&mut self, qp: QpId, stage: &'static str, start: Time, end: Time, back: u32) {
        if !self.shared.timeline.enabled() {
            return;
        }
        let Some(l) = self.local_qp(qp) else { return };
        let (nic_qp, staged) = (l.qp, l.staged.len() as u32);
        let prod = self.nic().qp(nic_qp).map_or(0, |q| q.sq.prod());
        let index = prod.wrapping_add(staged).wrapping_sub(back);
        let subject = crate::nic::subject(self.host.id, self.nic().port(), nic_qp, index);
        self.shared.timeline.stage(subject, stage, start, end, 0);
    }

    fn record_poll(&mut self, qp: u32, index: u32, landed: Time, end: Time) {
        let subject = crate::nic::subject(self.host.id, self.nic().port(), qp, index);
        self.shared.timeline.stage(subject, "poll (core)", landed, end, 0);
    }
}
