//! A back end that does nothing but keep its queues: for tests of policies, and to count what they
//! cost.
//!
//! It has one completion queue and no network. A ring takes what was staged; the WQEs are done at
//! once, or when the test says [`complete`](NoOp::complete). Messages come when the test says
//! [`deliver`](NoOp::deliver). What a real device punishes is punished: a completion queue that
//! overruns is lost, an error flushes both queues with a completion for every WQE, signalled or
//! not, and slots come back only when a completion is polled. Memory is not there, unless it was
//! asked for ([`keep_memory`](NoOp::keep_memory)): copies go nowhere and loads give 0.
//!
//! Nothing is allocated after the queues were added, unless a log is kept.
//!
//! ```
//! use doorbell_core::noop::NoOp;
//! use doorbell_core::transport::*;
//! use doorbell_core::verbs::SendFlags;
//!
//! let mut t = NoOp::new(8);
//! let qp = t.add_qp(NoOp::caps(4), None);
//! let wr = SendWr { wr_id: 7, op: SendOp::Send, data: Data::Inline(b"hi"),
//!     flags: SendFlags::SIGNALED, dest: None };
//! t.stage(qp, &wr).unwrap();
//! assert_eq!(t.ring(qp, Ring::Auto).unwrap().wqes, 1);
//! let mut polled = Completions::with_capacity(8);
//! t.poll_cq(NoOp::CQ, &mut polled).unwrap();
//! assert!(matches!(polled.as_slice(), [Completion::Send { wr_id: 7, retired: 1, .. }]));
//! ```

mod queues;
#[cfg(test)]
mod tests;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::transport::*;
use crate::units::Time;
use crate::verbs::{Lkey, QpState, Rkey, WcOpcode, WcStatus};

use queues::{Cq, Rq, Sq};

/// What became of a WQE.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Fate {
    /// A ring announced it.
    Rung,
    /// A ring failed, and it was not among the prefix that was posted.
    Lost,
}

/// What was counted.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct NoOpStats {
    /// Rings that announced something.
    pub rings: u64,
    /// Rings that carried their WQE by BlueFlame.
    pub blueflames: u64,
    /// Calls of `fence`.
    pub fences: u64,
    /// Calls of `post_recv` that posted something.
    pub recv_posts: u64,
    /// Most WQEs of one send queue that were staged or outstanding.
    pub max_used: u32,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct NoOp {
    now: Time,
    auto: bool,
    cq: Cq,
    sqs: Vec<Sq>,
    /// Receive queue of each QP, and the SRQ that it uses instead.
    rqs: Vec<(Rq, Option<usize>)>,
    srqs: Vec<Rq>,
    stage_faults: VecDeque<Option<StageError>>,
    ring_faults: VecDeque<Option<(u32, RingCause)>>,
    recv_faults: VecDeque<Option<(u32, PostRecvCause)>>,
    log: Option<Vec<(u64, Fate)>>,
    memory: Vec<u8>,
    stats: NoOpStats,
}

impl NoOp {
    /// The completion queue.
    pub const CQ: CqId = CqId::new(0, 0, 0);

    /// A back end whose completion queue has `cq_depth` entries. WQEs are done when they are rung.
    pub fn new(cq_depth: u32) -> Self {
        Self {
            now: Time::ZERO,
            auto: true,
            cq: Cq::new(cq_depth),
            sqs: Vec::new(),
            rqs: Vec::new(),
            srqs: Vec::new(),
            stage_faults: VecDeque::new(),
            ring_faults: VecDeque::new(),
            recv_faults: VecDeque::new(),
            log: None,
            memory: Vec::new(),
            stats: NoOpStats::default(),
        }
    }

    /// Capabilities of a CPU's queue pair of `depth` work requests on either side, 64 of which may
    /// be staged; 256 bytes inline or by BlueFlame, one block per work request.
    pub const fn caps(depth: u32) -> QpCaps {
        QpCaps {
            max_send_wr: depth,
            sq_blocks: None,
            max_recv_wr: depth,
            max_staged: 64,
            max_sge: 1,
            max_inline: 256,
            bf_bytes: 256,
            ring_orders_stores: true,
            ring_choice: true,
            shareable: false,
            atomics: true,
            max_rd_atomic: 16,
        }
    }

    /// A region of `len` bytes at `addr` of host memory, which is nowhere. Its keys are 1 and 2.
    pub const fn mr(addr: u64, len: u64) -> Mr {
        let (id, kind) = (MrId::new(0, 0, 0), MemKind::Host { numa: 0 });
        Mr { id, addr, len, lkey: Lkey(1), rkey: Rkey(2), kind }
    }

    /// Adds a queue pair in RTS.
    pub fn add_qp(&mut self, caps: QpCaps, srq: Option<SrqId>) -> QpId {
        self.sqs.push(Sq::new(caps));
        self.rqs.push((Rq::new(caps.max_recv_wr), srq.map(|s| s.index() as usize)));
        QpId::new(self.sqs.len() as u32 - 1, 0, 0)
    }

    /// Adds a shared receive queue.
    pub fn add_srq(&mut self, depth: u32) -> SrqId {
        self.srqs.push(Rq::new(depth));
        SrqId::new(self.srqs.len() as u32 - 1, 0, 0)
    }

    /// Sets the clock.
    pub fn set_now(&mut self, now: Time) {
        self.now = now;
    }

    /// Leaves rung WQEs outstanding until [`complete`](NoOp::complete).
    pub fn hold_completions(&mut self) {
        self.auto = false;
    }

    /// Keeps what became of each WQE from now on.
    pub fn keep_log(&mut self) {
        self.log = Some(Vec::new());
    }

    /// Keeps so many bytes, zeroed: those at the begin of every region, which are the same for all.
    pub fn keep_memory(&mut self, bytes: usize) {
        self.memory = alloc::vec![0; bytes];
    }

    /// The bytes of a range that are kept.
    fn kept(&mut self, range: Range) -> Option<&mut [u8]> {
        let from = usize::try_from(range.offset).ok()?;
        let to = from.checked_add(usize::try_from(range.len).ok()?)?;
        self.memory.get_mut(from..to)
    }

    /// What became of the WQEs, in that order; empty without [`keep_log`](NoOp::keep_log).
    pub fn log(&self) -> &[(u64, Fate)] {
        self.log.as_deref().unwrap_or_default()
    }

    /// What was counted.
    pub const fn stats(&self) -> NoOpStats {
        self.stats
    }

    /// Answers the next `stage` with an error; `None` lets one through.
    pub fn fail_stage(&mut self, fault: Option<StageError>) {
        self.stage_faults.push_back(fault);
    }

    /// Lets the next ring fail after so many WQEs; `None` lets one through.
    pub fn fail_ring(&mut self, fault: Option<(u32, RingCause)>) {
        self.ring_faults.push_back(fault);
    }

    /// Lets the next `post_recv` fail after so many receives; `None` lets one through.
    pub fn fail_recv(&mut self, fault: Option<(u32, PostRecvCause)>) {
        self.recv_faults.push_back(fault);
    }

    /// WQEs that are staged on `qp`, oldest first.
    pub fn staged(&self, qp: QpId) -> impl Iterator<Item = u64> {
        self.sqs[qp.index() as usize].staged()
    }

    /// WQEs of `qp` that were rung and are not done.
    pub fn outstanding(&self, qp: QpId) -> u32 {
        self.sqs[qp.index() as usize].outstanding()
    }

    /// Receives that are posted on `q`.
    pub fn posted(&self, q: RecvQueue) -> u32 {
        match q {
            RecvQueue::Qp(qp) => self.rqs[qp.index() as usize].0.posted(),
            RecvQueue::Srq(srq) => self.srqs[srq.index() as usize].posted(),
        }
    }

    /// Whether the completion queue has overrun.
    pub const fn cq_lost(&self) -> bool {
        self.cq.lost
    }

    /// The `n` oldest outstanding WQEs of `qp` are done.
    pub fn complete(&mut self, qp: QpId, n: u32) {
        self.sqs[qp.index() as usize].complete(n, qp, &mut self.cq);
    }

    /// A message of `len` bytes arrives at `qp`. False: there is no receive for it.
    pub fn deliver(&mut self, qp: QpId, len: u32, imm: Option<u32>) -> bool {
        let Some(wr) = self.rq(qp).take() else { return false };
        let op = if imm.is_some() { WcOpcode::RecvRdmaWithImm } else { WcOpcode::Recv };
        let (wr_id, invalidated) = (wr.wr_id, None);
        self.cq.push(Completion::Recv { wr_id, qp, op, len, imm, invalidated });
        true
    }

    /// `qp` goes to ERR: its oldest outstanding WQE fails with `status`, all others and the
    /// receives of the QP are flushed. A ring for what is staged then fails.
    pub fn fail_qp(&mut self, qp: QpId, status: WcStatus) {
        self.sqs[qp.index() as usize].fail(status, qp, &mut self.cq);
        let rq = &mut self.rqs[qp.index() as usize].0;
        while let Some(wr) = rq.take() {
            self.cq.push(Completion::Error {
                wr_id: wr.wr_id,
                qp,
                queue: WorkQueue::Recv,
                status: WcStatus::WrFlushErr,
                vendor_err: 0,
                retired: 0,
            });
        }
    }

    fn rq(&mut self, qp: QpId) -> &mut Rq {
        let (own, srq) = &mut self.rqs[qp.index() as usize];
        match srq {
            Some(srq) => &mut self.srqs[*srq],
            None => own,
        }
    }

    /// A ring that a planned fault, or the state, ends after `posted` WQEs.
    #[cold]
    fn broken_ring(&mut self, qp: QpId, posted: u32, cause: RingCause) -> RingError {
        let sq = &mut self.sqs[qp.index() as usize];
        let posted = if cause == RingCause::Indeterminate { 0 } else { posted };
        let posted = posted.min(sq.staged_count());
        if let Some(log) = &mut self.log {
            let fate = |i| if i < posted { Fate::Rung } else { Fate::Lost };
            log.extend((0..).zip(sq.staged()).map(|(i, id)| (id, fate(i))));
        }
        self.stats.rings += u64::from(posted > 0);
        let lost = sq.ring(posted);
        // Nobody can tell: the slots stay used.
        let told = !matches!(cause, RingCause::Indeterminate | RingCause::BadHandle);
        if cause == RingCause::Indeterminate {
            sq.leak(lost);
        }
        if self.auto {
            sq.complete(posted, qp, &mut self.cq);
        }
        RingError { posted, discarded: if told { lost } else { 0 }, cause }
    }
}

impl Transport for NoOp {
    #[inline]
    fn now(&self) -> Time {
        self.now
    }

    fn initiator(&self) -> Initiator {
        Initiator::Cpu { core: 0, numa: 0 }
    }

    fn qp_caps(&self, qp: QpId) -> Result<QpCaps, BadHandle> {
        self.sqs.get(qp.index() as usize).map(|q| q.caps).ok_or(BadHandle)
    }

    #[inline]
    fn sq_free(&self, qp: QpId) -> u32 {
        self.sqs.get(qp.index() as usize).map_or(0, Sq::free)
    }

    #[inline]
    fn stage(&mut self, qp: QpId, wr: &SendWr<'_>) -> Result<(), StageError> {
        if let Some(Some(e)) = self.stage_faults.pop_front() {
            return Err(e);
        }
        let sq = self.sqs.get_mut(qp.index() as usize).ok_or(StageError::BadHandle)?;
        sq.stage(wr)?;
        self.stats.max_used = self.stats.max_used.max(sq.used());
        Ok(())
    }

    #[inline]
    fn ring(&mut self, qp: QpId, how: Ring) -> Result<Rung, RingError> {
        let fault = self.ring_faults.pop_front().flatten();
        let Some(sq) = self.sqs.get_mut(qp.index() as usize) else {
            return Err(RingError { posted: 0, discarded: 0, cause: RingCause::BadHandle });
        };
        // A device takes nothing from a queue in ERR, whatever else was to go wrong.
        let dead = sq.failed() && sq.staged_count() > 0;
        let fault = if dead { Some((0, RingCause::BadState(QpState::Err))) } else { fault };
        if let Some((posted, cause)) = fault {
            return Err(self.broken_ring(qp, posted, cause));
        }
        if let Some(log) = &mut self.log {
            log.extend(sq.staged().map(|id| (id, Fate::Rung)));
        }
        let (wqes, blueflame) = (sq.staged_count(), how == Ring::BlueFlame);
        sq.ring(wqes);
        if self.auto {
            sq.complete(wqes, qp, &mut self.cq);
        }
        let by = match (wqes, sq.caps.ring_choice) {
            (0, _) => RungBy::Nothing,
            (_, false) => RungBy::Provider,
            (1, true) if blueflame && sq.caps.bf_bytes > 0 => RungBy::BlueFlame,
            (_, true) => RungBy::Doorbell,
        };
        self.stats.rings += u64::from(wqes > 0);
        self.stats.blueflames += u64::from(by == RungBy::BlueFlame);
        Ok(Rung { wqes, by })
    }

    fn unstage(&mut self, qp: QpId) -> u32 {
        self.sqs.get_mut(qp.index() as usize).map_or(0, |sq| sq.ring(0))
    }

    fn post_recv(&mut self, q: RecvQueue, wrs: &[RecvWr]) -> Result<(), PostRecvError> {
        let fault = self.recv_faults.pop_front().flatten();
        let failed = |posted, cause| Err(PostRecvError { posted, cause });
        let rq = match q {
            RecvQueue::Qp(qp) => match self.rqs.get_mut(qp.index() as usize) {
                Some((_, Some(_))) => return failed(0, PostRecvCause::UsesSrq),
                Some((rq, None)) => Some(rq),
                None => None,
            },
            RecvQueue::Srq(srq) => self.srqs.get_mut(srq.index() as usize),
        };
        let Some(rq) = rq else { return failed(0, PostRecvCause::BadHandle) };
        for (posted, wr) in (0..).zip(wrs) {
            if let Some((_, cause)) = fault.filter(|f| f.0 == posted) {
                return failed(posted, cause);
            }
            if !rq.post(*wr) {
                return failed(posted, PostRecvCause::Full);
            }
        }
        self.stats.recv_posts += u64::from(!wrs.is_empty());
        Ok(())
    }

    #[inline]
    fn poll_cq(&mut self, cq: CqId, out: &mut Completions) -> Result<(), PollError> {
        if cq != Self::CQ {
            return Err(PollError::BadHandle);
        }
        while !out.is_full() {
            let Some(c) = self.cq.pop()? else { break };
            if let Completion::Send { qp, retired, .. } | Completion::Error { qp, retired, .. } = c
            {
                self.sqs[qp.index() as usize].retire(retired);
            }
            out.push(c);
        }
        Ok(())
    }

    fn fence(&mut self, _scope: FenceScope) {
        self.stats.fences += 1;
    }

    fn compute(&mut self, work: Work) {
        self.now += work;
    }

    fn copy_in(&mut self, to: Range, from: &[u8]) -> Result<(), MemError> {
        if let Some(bytes) = self.kept(to).filter(|b| b.len() == from.len()) {
            bytes.copy_from_slice(from);
        }
        Ok(())
    }

    fn copy_out(&mut self, from: Range, to: &mut [u8]) -> Result<(), MemError> {
        match self.kept(from).filter(|b| b.len() == to.len()) {
            Some(bytes) => to.copy_from_slice(bytes),
            None => to.fill(0),
        }
        Ok(())
    }

    fn reduce(&mut self, _op: Reduce, _to: Range, _from: Range) -> Result<(), MemError> {
        Ok(())
    }

    fn load_u64(&mut self, at: Range) -> Result<u64, MemError> {
        let mut word = [0; 8];
        self.copy_out(at, &mut word)?;
        Ok(u64::from_le_bytes(word))
    }

    fn store_u64(&mut self, at: Range, value: u64) -> Result<(), MemError> {
        self.copy_in(at, &value.to_le_bytes())
    }
}

/// The state that a failed QP reports.
const FAILED: StageError = StageError::BadState { state: QpState::Err };
