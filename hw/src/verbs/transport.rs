//! The data path on libibverbs.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::Instant;

use doorbell_core::transport::*;
use doorbell_core::units::{Span, Time};
use doorbell_core::verbs::{
    PostVerdict, QpState, Rkey, WcFlags, WcOpcode, WcStatus, can_post_recv,
};

use super::control::HwConfig;
use super::convert;
use super::device::Device;
use super::events::unblock;
use super::objects::{Ah, Channel, Cq, Errno, Pd, Srq};
use super::positions::{RECV, SendId};
use super::queue_pair::QueuePair;
use super::region::Region;
use super::staging::{self, Destination, PostFailure, RawArray, RecvChain};
use super::sys::*;
use super::table::Table;
use crate::bootstrap::Bootstrap;

/// Completions that one call to the provider brings.
const POLL_BATCH: usize = 32;

/// A completion queue of the handle.
#[derive(Debug)]
pub(super) struct CqSlot {
    pub cq: Arc<Cq>,
    /// It overran: nothing more comes from it.
    pub lost: bool,
}

/// A queue pair of the handle, and what a stage needs to know of it.
#[derive(Debug)]
pub(super) struct QpSlot {
    pub pair: QueuePair,
    pub srq: Option<SrqId>,
}

/// A shared receive queue of the handle.
#[derive(Debug)]
pub(super) struct SrqSlot {
    pub srq: Arc<Srq>,
    /// Receives that it was granted.
    pub depth: u32,
}

/// Memory that is watched, and what it held when the step began.
#[derive(Debug)]
pub(super) struct Watch {
    pub range: Range,
    pub seen: Vec<u8>,
    /// Room for what it holds now.
    pub now: Vec<u8>,
}

/// One initiator's handle of a device: [`Transport`] and [`Control`] on libibverbs.
///
/// It is `Send`, so that a thread may be given one, and not `Sync`: each thread has its own. With
/// extended verbs ring or unstage before it changes threads; a ring on another one panics, since
/// the provider's lock belongs to the thread that has staged.
/// Objects are destroyed in the order that the library demands when the handle is dropped.
///
/// What libibverbs cannot tell is absent, never guessed: a ring answers
/// [`RungBy::Provider`], `bf_bytes` is 0, `sq_blocks` is `None`, and doorbells are not counted.
#[derive(Debug)]
pub struct HwTransport {
    pub(super) qps: Table<QpId, QpSlot>,
    pub(super) cqs: Table<CqId, CqSlot>,
    wcs: RawArray<ibv_wc>,
    recvs: RecvChain,
    pub(super) srqs: Table<SrqId, SrqSlot>,
    pub(super) ahs: Table<AhId, Ah>,
    /// Address handles that the program has destroyed and a staged datagram may still point to.
    pub(super) leaving: Vec<Ah>,
    pub(super) mrs: Table<MrId, Region>,
    pub(super) pds: Table<PdId, Arc<Pd>>,
    pub(super) watches: Table<WatchId, Watch>,
    /// Life with which the next queue pair of a slot begins, by its index: a completion of an
    /// earlier one may still be in a queue.
    pub(super) lives: BTreeMap<u32, u32>,
    /// Index of a queue pair by its number, for receives.
    pub(super) by_number: BTreeMap<u32, u32>,
    /// Asynchronous events that were taken and not handed out.
    pub(super) events: VecDeque<AsyncEvent>,
    /// Completion queues that this step has seen empty.
    pub(super) emptied: u64,
    strangers: u64,
    /// Completions, events and news of peers so far: what tells progress from waiting.
    pub(super) happened: u64,
    /// The device is gone with everything on it.
    pub(super) device_lost: bool,
    pub(super) psn_seed: u64,
    pub(super) channel: Arc<Channel>,
    pub(super) device: Device,
    pub(super) config: HwConfig,
    pub(super) bootstrap: Box<dyn Bootstrap>,
    epoch: Instant,
}

/// Differs between processes, runs and ranks.
fn seed(rank: u32) -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let nanos = since.map_or(0, |d| d.as_nanos() as u64);
    nanos ^ u64::from(std::process::id()) << 40 ^ u64::from(rank) << 20
}

impl HwTransport {
    /// A handle of an open device.
    ///
    /// # Errors
    /// The `errno` of the completion channel.
    pub fn new(
        device: Device,
        config: HwConfig,
        bootstrap: Box<dyn Bootstrap>,
    ) -> Result<Self, Errno> {
        let (rank, caps) = (bootstrap.rank(), *device.caps());
        let channel = Channel::create(device.context())?;
        unblock(channel.fd())?;
        unblock(device.context().async_fd())?;
        Ok(Self {
            qps: Table::bounded(rank, caps.max_qp),
            cqs: Table::bounded(rank, caps.max_cq),
            wcs: staging::completions(POLL_BATCH),
            recvs: RecvChain::new(),
            srqs: Table::of(rank),
            ahs: Table::of(rank),
            leaving: Vec::new(),
            mrs: Table::bounded(rank, caps.max_mr),
            pds: Table::of(rank),
            watches: Table::bounded(rank, MAX_WAIT_WATCHES),
            lives: BTreeMap::new(),
            by_number: BTreeMap::new(),
            events: VecDeque::new(),
            emptied: 0,
            strangers: 0,
            happened: 0,
            device_lost: false,
            psn_seed: seed(rank),
            channel,
            device,
            config,
            bootstrap,
            epoch: Instant::now(),
        })
    }

    /// Completions that belonged to nothing this handle knows: of a queue pair that was reset or
    /// destroyed since.
    pub fn strange_completions(&self) -> u64 {
        self.strangers
    }

    /// The library's objects behind a queue pair and a completion queue, for what the trait does
    /// not have. Using them behind the handle's back breaks its accounts.
    ///
    /// # Errors
    /// A stale or foreign id.
    pub fn raw(&self, qp: QpId, cq: CqId) -> Result<(*mut ibv_qp, *mut ibv_cq), BadHandle> {
        Ok((self.qps.get(qp)?.pair.qp().as_ptr(), self.cqs.get(cq)?.cq.as_ptr()))
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The bootstrap, for who ends the run: [`Bootstrap::finish`] tells the peers that this program
    /// is done, and without it they take it for lost when the handle is dropped.
    pub fn bootstrap_mut(&mut self) -> &mut dyn Bootstrap {
        &mut *self.bootstrap
    }

    fn region(&self, r: Range) -> Result<&Region, MemError> {
        self.mrs.get(r.mr).map_err(|_| MemError::BadHandle)
    }

    /// The address handle of a datagram.
    #[inline]
    fn destination(&self, wr: &SendWr<'_>) -> Result<Option<Destination>, StageError> {
        let Some(d) = wr.dest else { return Ok(None) };
        let ah = self.ahs.get(d.ah).map_err(|_| StageError::BadHandle)?.as_ptr();
        Ok(Some(Destination { ah, qpn: d.qpn.value(), qkey: d.qkey.0 }))
    }

    /// A completion as the program sees it; `None` for one of a life that is over.
    #[inline(always)]
    fn completion(&mut self, wc: &ibv_wc) -> Option<Completion> {
        if wc.wr_id & RECV != 0 {
            return self.received(wc);
        }
        let id = SendId::decode(wc.wr_id);
        let (qp, slot) = self.qps.at_mut(id.qp as usize)?;
        let (request, retired) = slot.pair.retire(id)?;
        let wr_id = request.wr_id;
        if wc.status == ibv_wc_status::IBV_WC_SUCCESS {
            let op = request.op.wc_opcode()?;
            return Some(Completion::Send { wr_id, qp, op, len: request.len, retired });
        }
        let (queue, status) = (WorkQueue::Send, convert::status(wc.status));
        slot.pair.send_failed();
        Some(Completion::Error { wr_id, qp, queue, status, vendor_err: wc.vendor_err, retired })
    }

    #[inline]
    fn received(&mut self, wc: &ibv_wc) -> Option<Completion> {
        let (wr_id, index) = (wc.wr_id & !RECV, *self.by_number.get(&wc.qp_num)?);
        let (qp, slot) = self.qps.at_mut(index as usize)?;
        let status = convert::status(wc.status);
        if status != WcStatus::Success {
            slot.pair.perhaps_failed();
            let (queue, retired) = (WorkQueue::Recv, 0);
            let vendor_err = wc.vendor_err;
            return Some(Completion::Error { wr_id, qp, queue, status, vendor_err, retired });
        }
        let op = match wc.opcode {
            ibv_wc_opcode::IBV_WC_RECV_RDMA_WITH_IMM => WcOpcode::RecvRdmaWithImm,
            _ => WcOpcode::Recv,
        };
        let flags = WcFlags::from_bits_truncate(wc.wc_flags);
        // SAFETY: both fields of the union are 32-bit integers; the flags say which is meant.
        let (imm, key) = unsafe {
            let u = &wc.imm_data_invalidated_rkey_union;
            (u32::from_be(u.imm_data), u.invalidated_rkey)
        };
        let imm = flags.contains(WcFlags::WITH_IMM).then_some(imm);
        let invalidated = flags.contains(WcFlags::WITH_INV).then_some(Rkey(key));
        Some(Completion::Recv { wr_id, qp, op, len: wc.byte_len, imm, invalidated })
    }

    fn recv_failed(&mut self, qp: Option<QpId>, failure: PostFailure) -> PostRecvError {
        let state = qp.and_then(|id| self.qps.get_mut(id).ok()).map(|slot| {
            slot.pair.learn_state();
            slot.pair.state()
        });
        let cause = match failure.errno {
            _ if failure.posted.is_none() => PostRecvCause::Indeterminate,
            libc::ENOMEM => PostRecvCause::Full,
            _ if state == Some(QpState::Reset) => PostRecvCause::BadState(QpState::Reset),
            errno => PostRecvCause::Os(errno),
        };
        PostRecvError { posted: failure.posted.unwrap_or(0), cause }
    }
}

impl Transport for HwTransport {
    fn now(&self) -> Time {
        let ns = u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Time::ZERO + Span::from_ns(ns)
    }

    fn initiator(&self) -> Initiator {
        self.config.initiator
    }

    fn qp_caps(&self, qp: QpId) -> Result<QpCaps, BadHandle> {
        Ok(*self.qps.get(qp)?.pair.caps())
    }

    fn sq_free(&self, qp: QpId) -> u32 {
        self.qps.get(qp).map_or(0, |slot| slot.pair.free())
    }

    #[inline(always)]
    fn stage(&mut self, qp: QpId, wr: &SendWr<'_>) -> Result<(), StageError> {
        let to = if wr.dest.is_some() { self.destination(wr)? } else { None };
        let slot = self.qps.get_mut(qp).map_err(|_| StageError::BadHandle)?;
        slot.pair.stage(wr, to)
    }

    #[inline(always)]
    fn ring(&mut self, qp: QpId, _how: Ring) -> Result<Rung, RingError> {
        let bad = RingError { posted: 0, discarded: 0, cause: RingCause::BadHandle };
        self.qps.get_mut(qp).map_err(|_| bad)?.pair.ring()
    }

    fn unstage(&mut self, qp: QpId) -> u32 {
        self.qps.get_mut(qp).map_or(0, |slot| slot.pair.unstage())
    }

    fn post_recv(&mut self, q: RecvQueue, wrs: &[RecvWr]) -> Result<(), PostRecvError> {
        let fail = |cause| Err(PostRecvError { posted: 0, cause });
        let (done, qp) = match q {
            RecvQueue::Srq(id) => {
                let Ok(slot) = self.srqs.get(id) else { return fail(PostRecvCause::BadHandle) };
                let srq = slot.srq.as_ptr();
                // SAFETY: the queue is alive, and the chain well-formed during the call.
                let done =
                    self.recvs.post(wrs, |wr, bad| unsafe { ibv_post_srq_recv(srq, wr, bad) });
                (done, None)
            }
            RecvQueue::Qp(id) => {
                let Ok(slot) = self.qps.get(id) else { return fail(PostRecvCause::BadHandle) };
                let state = slot.pair.state();
                if slot.srq.is_some() {
                    return fail(PostRecvCause::UsesSrq);
                }
                if can_post_recv(state) == PostVerdict::Refused {
                    return fail(PostRecvCause::BadState(state));
                }
                let ptr = slot.pair.qp().as_ptr();
                // SAFETY: as above.
                let done = self.recvs.post(wrs, |wr, bad| unsafe { ibv_post_recv(ptr, wr, bad) });
                (done, Some(id))
            }
        };
        done.map_err(|failure| self.recv_failed(qp, failure))
    }

    fn poll_cq(&mut self, cq: CqId, out: &mut Completions) -> Result<(), PollError> {
        let slot = self.cqs.get(cq).map_err(|_| PollError::BadHandle)?;
        if slot.lost {
            return Err(PollError::CqLost);
        }
        let ptr = slot.cq.as_ptr();
        while !out.is_full() {
            let want = out.room().min(self.wcs.len());
            // SAFETY: the queue is alive, and there is room for `want` completions.
            let n = unsafe { ibv_poll_cq(ptr, want as i32, self.wcs.at(0)) };
            let Ok(n) = usize::try_from(n) else {
                // What the call had taken is gone as well.
                self.cqs.get_mut(cq).map_err(|_| PollError::BadHandle)?.lost = true;
                return Err(PollError::CqLost);
            };
            for i in 0..n.min(want) {
                // SAFETY: the provider filled the first `n` in.
                let wc = unsafe { &*self.wcs.at(i).cast_const() };
                match self.completion(wc) {
                    Some(c) => {
                        self.happened += 1;
                        out.push(c);
                    }
                    None => self.strangers += 1,
                }
            }
            if n < want {
                self.emptied |= 1_u64.checked_shl(cq.index()).unwrap_or(0);
                break;
            }
        }
        Ok(())
    }

    /// The rings of CPU providers carry the barriers; this orders what the program itself shares.
    fn fence(&mut self, _scope: FenceScope) {
        fence(Ordering::SeqCst);
    }

    /// Passes the time on this core.
    fn compute(&mut self, work: Work) {
        let until = self.now() + work;
        while self.now() < until {
            core::hint::spin_loop();
        }
    }

    fn copy_in(&mut self, to: Range, from: &[u8]) -> Result<(), MemError> {
        if to.len != from.len() as u64 {
            return Err(MemError::LengthMismatch { range: to.len, buffer: from.len() as u64 });
        }
        self.region(to)?.copy_in(to.offset, from)
    }

    fn copy_out(&mut self, from: Range, to: &mut [u8]) -> Result<(), MemError> {
        if from.len != to.len() as u64 {
            return Err(MemError::LengthMismatch { range: from.len, buffer: to.len() as u64 });
        }
        self.region(from)?.copy_out(from.offset, to)
    }

    fn reduce(&mut self, op: Reduce, to: Range, from: Range) -> Result<(), MemError> {
        if to.len != from.len {
            return Err(MemError::LengthMismatch { range: to.len, buffer: from.len });
        }
        let (target, source) = (self.region(to)?, self.region(from)?);
        target.reduce(op, to.offset, source, from.offset, to.len)
    }

    fn load_u64(&mut self, at: Range) -> Result<u64, MemError> {
        self.region(at)?.load_u64(at.offset, at.len)
    }

    fn store_u64(&mut self, at: Range, value: u64) -> Result<(), MemError> {
        self.region(at)?.store_u64(at.offset, at.len, value)
    }
}
