//! Doorbell unit, QP context, WQE fetch.

use doorbell_core::units::Time;
use doorbell_core::verbs::{
    AccessFlags, OutboundVerdict, PostVerdict, QpState, WcStatus, can_post_send, may_transmit,
};

use super::env::{Env, NicEvent, Tag, kind};
use super::qp::{Context, Deferred};
use super::wqe::WQEBB;
use super::{Nic, NicQp};
use crate::engine::Class;
use crate::memory::{Pd, RegionKind};
use crate::pcie::{Cause, Kind, NodeId, Transaction};
use crate::wire::{HostId, PortId};

impl Nic {
    /// A core or GPU (its place in the tree and its index) writes a doorbell: producer index `prod`
    /// of `qp`. `blueflame`: the one WQE before `prod`, of so many bytes, goes with it.
    pub fn ring(
        &self,
        env: &mut Env<'_>,
        (from, initiator): (NodeId, u16),
        qp: u32,
        prod: u32,
        blueflame: u32,
    ) {
        let initiator = initiator as u8;
        let tag = Tag::Doorbell { qp, prod, blueflame: blueflame > 0, initiator }.pack();
        let (bytes, cause) =
            if blueflame > 0 { (blueflame, Cause::BlueFlame) } else { (8, Cause::Doorbell) };
        let target = crate::pcie::Target::Node(self.node);
        env.submit(Transaction { kind: Kind::Mmio, from, target, bytes, addr: 0, cause, tag });
    }

    /// A doorbell has crossed PCIe; a BlueFlame write has `lines` lines.
    pub(super) fn doorbell_arrived(
        &mut self,
        env: &mut Env<'_>,
        (qp, prod, bf): (u32, u32, bool),
        lines: u32,
    ) {
        if bf {
            self.stats.blueflames += 1;
        } else {
            self.stats.doorbells += 1;
        }
        let more = self.cfg.doorbell_line * u64::from(lines.saturating_sub(1));
        let service = self.clocked(env.now, self.cfg.doorbell + more);
        let (start, end) = self.doorbell.reserve(env.now, service);
        let done = end + self.clocked(env.now, self.cfg.doorbell_latency);
        env.at(done, Class::Stage, NicEvent::Doorbell { qp, prod, blueflame: bf });
        self.record(env, qp, prod.wrapping_sub(1), "NIC doorbell unit", start, done);
    }

    pub(super) fn on_doorbell(&mut self, env: &mut Env<'_>, qp: u32, prod: u32, bf: bool) {
        if !self.context_held(env, qp, Deferred::Doorbell { prod, blueflame: bf }) {
            return;
        }
        let window = self.cfg.wqe_window;
        let Some(q) = self.qp_mut(qp) else { return };
        q.stats.rings += 1;
        env.trace(kind::DOORBELL, u64::from(qp), u64::from(prod));
        if prod.wrapping_sub(q.sq.announced).cast_signed() > 0 {
            q.sq.announced = prod;
        }
        let index = prod.wrapping_sub(1);
        // The carried WQE can be used only when the NIC has all before it, and room.
        let (next, room) =
            (q.sq.requested == index && q.sq.fetched == index, q.sq.ahead() < window);
        if bf && next && room && q.state == QpState::Rts {
            q.sq.requested = prod;
            if let Some(slot) = q.sq.slot_mut(index) {
                slot.carried = true;
            }
            self.wqe_arrived(env, qp, index);
            self.schedule(env, qp);
        } else {
            self.fetch_more(env, qp);
        }
    }

    /// Whether the QP's context is on the chip. If not it is read, and `then` waits for it.
    pub(super) fn context_held(&mut self, env: &mut Env<'_>, qp: u32, then: Deferred) -> bool {
        // With fewer QPs than entries nothing is ever displaced: spare the bookkeeping.
        let tracked = self.qps.len() > self.contexts.capacity();
        let Some(q) = self.qps.get_mut(qp as usize).and_then(Option::as_deref_mut) else {
            return true;
        };
        if q.context == Context::Loading {
            q.deferred.push(then);
            return false;
        }
        if !tracked || self.contexts.lookup(u64::from(qp)) {
            return true;
        }
        q.context = Context::Loading;
        q.deferred.push(then);
        self.stats.context_reads += 1;
        let bytes = self.cfg.qp_context_bytes;
        let space = RegionKind::Host { numa: self.numa };
        let tag = Tag::Context { qp }.pack();
        env.dma(self.node, Kind::Read, space, 0, bytes, Cause::QpContext, tag);
        false
    }

    pub(super) fn context_arrived(&mut self, env: &mut Env<'_>, qp: u32) {
        self.contexts.insert(u64::from(qp));
        let Some(q) = self.qp_mut(qp) else { return };
        q.context = Context::Held;
        for d in std::mem::take(&mut q.deferred) {
            match d {
                Deferred::Doorbell { prod, blueflame } => {
                    self.on_doorbell(env, qp, prod, blueflame);
                }
                // Behind those that came before and wait for the receive buffer.
                Deferred::Rx(packet) => self.rx_buffer(env, packet),
            }
        }
    }

    /// Flushes what was posted to a QP in SQE or ERR, unless the device forgets it in ERR.
    fn flush_late(&mut self, env: &mut Env<'_>, qp: u32) {
        let forgotten = !self.rc.rules.flush_late_sends;
        if self.qp(qp).is_some_and(|q| q.state == QpState::Err && forgotten) {
            return;
        }
        self.flush_sends(env, qp);
    }

    /// Reads announced WQEs, as far as fetches and window allow.
    pub(super) fn fetch_more(&mut self, env: &mut Env<'_>, qp: u32) {
        let (fetches, window, most) =
            (self.cfg.wqe_fetches, self.cfg.wqe_window, self.cfg.wqe_fetch_blocks);
        let node = self.node;
        loop {
            let Some(q) = self.qp_mut(qp) else { return };
            if can_post_send(q.state) == PostVerdict::Flushed {
                return self.flush_late(env, qp);
            }
            let ahead = q.sq.ahead();
            let open = may_transmit(q.state) == OutboundVerdict::All;
            if !open || q.sq.requested == q.sq.announced || q.sq.fetches >= fetches {
                return;
            }
            let first = q.sq.requested;
            let (mut count, mut blocks) = (0u8, 0);
            while first.wrapping_add(u32::from(count)) != q.sq.announced && count < u8::MAX {
                let slot = q.sq.slot(first.wrapping_add(u32::from(count)));
                let b = slot.map_or(1, |s| u32::from(s.wqe.blocks));
                if count > 0 && (blocks + b > most || u32::from(count) >= window) {
                    break;
                }
                blocks += b;
                count += 1;
            }
            // A fetch that the window would cut short waits until there is room for a whole one:
            // else a full window would turn every batch into fetches of one WQE.
            if window.saturating_sub(ahead) < u32::from(count) {
                return;
            }
            q.sq.requested = first.wrapping_add(u32::from(count));
            q.sq.fetches += 1;
            let space = q.queue_space;
            self.stats.wqe_fetches += 1;
            self.stats.wqe_blocks += u64::from(blocks);
            let tag = Tag::Wqe { qp, first, count }.pack();
            let addr = u64::from(first) * u64::from(WQEBB);
            env.dma(node, Kind::Read, space, addr, blocks * WQEBB, Cause::WqeFetch, tag);
        }
    }

    /// The fetch has reached memory: what is not visible by now is read in its former state, and
    /// what is in part, torn.
    pub(super) fn wqes_at_memory(&mut self, env: &mut Env<'_>, qp: u32, first: u32, count: u8) {
        let now = env.now;
        let Some(q) = self.qp_mut(qp) else { return };
        if q.caps.ring_orders_stores {
            return;
        }
        let depth = q.caps.max_send_wr;
        for i in 0..u32::from(count) {
            let index = first.wrapping_add(i);
            let Some(landing) = q.sq.slot(index).map(|s| s.landing).filter(|l| l.last > now) else {
                continue;
            };
            if landing.first <= now {
                q.sq.slot_mut(index).expect("just seen").torn = true;
                q.stats.torn_wqes += 1;
            } else {
                let former = q.sq.former(index, depth);
                q.sq.slot_mut(index).expect("just seen").executed = Some(Box::new(former));
                q.stats.stale_wqes += 1;
            }
            env.trace(kind::STALE, u64::from(qp), u64::from(index));
        }
    }

    pub(super) fn wqes_fetched(
        &mut self,
        env: &mut Env<'_>,
        (qp, first, count): (u32, u32, u8),
        submitted: Time,
    ) {
        let Some(q) = self.qp_mut(qp) else { return };
        q.sq.fetches = q.sq.fetches.saturating_sub(1);
        if can_post_send(q.state) == PostVerdict::Flushed {
            return;
        }
        for i in 0..u32::from(count) {
            let index = first.wrapping_add(i);
            self.record(env, qp, index, "WQE fetch (PCIe read)", submitted, env.now);
            let q = self.qps[qp as usize].as_deref_mut().expect("just there");
            if let Some(slot) = q.sq.slot_mut(index) {
                slot.fetched = true;
            }
        }
        // Reads may end in another order; WQEs are executed in theirs.
        while let Some(q) = self.qp(qp)
            && q.sq.slot(q.sq.fetched).is_some_and(|s| s.fetched)
        {
            let index = q.sq.fetched;
            self.wqe_arrived(env, qp, index);
        }
        self.fetch_more(env, qp);
        self.schedule(env, qp);
    }

    /// The NIC has the WQE: it goes to the requester.
    fn wqe_arrived(&mut self, env: &mut Env<'_>, qp: u32, index: u32) {
        let Some(q) = self.qps[qp as usize].as_deref_mut() else { return };
        self.stats.wqes += 1;
        q.sq.fetched = index.wrapping_add(1);
        let NicQp { sq, requester, pd, stats, bad_memory, .. } = q;
        let (Some(slot), Some(requester)) = (sq.slot_mut(index), requester.as_mut()) else {
            return;
        };
        slot.fetched = true;
        stats.wqes += 1;
        env.trace(kind::WQE, u64::from(qp), u64::from(index));
        let (wqe, torn) = (slot.effective(), slot.torn);
        let Some(op) = wqe.op else {
            // A NOP asks for nothing and completes nothing.
            sq.started = index.wrapping_add(1);
            return;
        };
        let write = op.opcode().is_read_or_atomic();
        let need = if write { AccessFlags::LOCAL_WRITE } else { AccessFlags::empty() };
        let bad = wqe.data.sges().iter().filter(|s| s.len > 0).find_map(|s| {
            env.regions.check_local(s.lkey, Pd(*pd), s.addr, s.len.into(), need).err()
        });
        requester.push(wqe.job(index));
        if torn {
            // A control segment without its data segments, or the reverse (cases.md k-02).
            requester.fail(index, WcStatus::LocQpOpErr);
        } else if bad.is_some() {
            *bad_memory = bad_memory.or(bad);
            requester.fail(index, WcStatus::LocProtErr);
        }
        if requester.failed() {
            self.completions(env, qp);
        }
        if write {
            self.wqe_cache.insert(wqe_key(qp, index));
        }
    }

    /// Records a stage of a message for the timeline.
    pub(super) fn record(
        &self,
        env: &mut Env<'_>,
        qp: u32,
        index: u32,
        stage: &'static str,
        start: Time,
        end: Time,
    ) {
        let subject = subject(self.host, self.port, qp, index);
        env.timeline.stage(subject, stage, start, end, 0);
    }
}

/// Key of a WQE in the WQE cache.
pub(super) fn wqe_key(qp: u32, index: u32) -> u64 {
    u64::from(qp) << 32 | u64::from(index)
}

/// Subject of timeline records: a message is named by its sender's host, NIC, QP and WQE index.
/// Distinct below 2^16 hosts of 16 NICs.
pub fn subject(HostId(host): HostId, PortId(nic): PortId, qp: u32, index: u32) -> u64 {
    let sender = u64::from(nic) << 60 | u64::from(host) << 44 | u64::from(qp) << 24;
    sender | u64::from(index & 0xff_ffff)
}
