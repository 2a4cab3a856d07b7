//! Classic posts: `ibv_post_send`, `ibv_post_recv`, `ibv_post_srq_recv`.

use core::ffi::{c_int, c_uint};
use core::ptr;

use doorbell_core::verbs::{
    PostVerdict, QpType, SendFlags, WrOpcode, can_post_recv, can_post_send,
};

use super::config::{BadWr, FlushAt};
use super::context::shared_of;
use super::record::{PostedRecv, Remote, SentWr, UdTarget, sges};
use super::world::{Key, PostFailure, Qp, RECORDS_MAX, World, Wqe};
use crate::verbs::sys::*;

/// `errno` and what it says about the work request.
type Refusal = (c_int, BadWr);

pub(super) unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: the caller's QP is alive, its chain complete, and `bad` a place to write.
    unsafe { shared_of((*qp).context).lock().post_send(qp.addr(), wr, bad) }
}

pub(super) unsafe extern "C" fn post_recv(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: as for sends.
    unsafe { shared_of((*qp).context).lock().post_recv(Queue::Qp(qp.addr()), wr, bad) }
}

pub(super) unsafe extern "C" fn post_srq_recv(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: as for sends.
    unsafe { shared_of((*srq).context).lock().post_recv(Queue::Srq(srq.addr()), wr, bad) }
}

#[derive(Copy, Clone)]
enum Queue {
    Qp(Key),
    Srq(Key),
}

/// Whether an ordered refusal is due before the next work request, or at the end of the chain:
/// with nothing to point to, everything may have been taken before the call failed.
fn due(failure: &PostFailure, taken: usize, at_end: bool) -> bool {
    if at_end { failure.bad != BadWr::Points } else { failure.at == taken }
}

/// Scatter elements copied out as inline data.
///
/// # Safety
/// Each element points to readable bytes that nobody changes during the call.
pub(super) unsafe fn gather_inline(wr: &mut SentWr) {
    let mut bytes = Vec::new();
    for sge in wr.sges.drain(..) {
        let from = ptr::with_exposed_provenance::<u8>(sge.addr as usize);
        for i in 0..sge.len as usize {
            // SAFETY: the caller's promise; a length of 0 reads nothing.
            bytes.push(unsafe { from.add(i).read() });
        }
    }
    wr.inline = Some(bytes);
}

impl World {
    /// # Safety
    /// `first` is the start of a complete chain, `bad` a place to write.
    unsafe fn post_send(
        &mut self,
        key: Key,
        first: *mut ibv_send_wr,
        bad: *mut *mut ibv_send_wr,
    ) -> c_int {
        let Some(qp) = self.qps.get_mut(&key) else { return self.missing("post_send") };
        qp.counts.send_calls += 1;
        let mut plan = self.script.send.take();
        let (mut at, mut taken) = (first, 0);
        let refusal = loop {
            if let Some(failure) = plan.take_if(|f| due(f, taken, at.is_null())) {
                break Some((failure.errno, failure.bad));
            }
            if at.is_null() {
                break None;
            }
            // SAFETY: the caller's chain; an element is read once, before its `next`.
            let wr = unsafe { self.read_send(key, at) };
            if let Err(errno) = wr.and_then(|wr| self.take_send(key, wr)) {
                break Some((errno, BadWr::Points));
            }
            taken += 1;
            // SAFETY: as above.
            at = unsafe { (*at).next };
        };
        self.script.send = plan;
        self.rung(key, taken);
        // SAFETY: the caller's place.
        unsafe { self.answer(refusal, at, bad) }
    }

    /// # Safety
    /// `bad` is a place to write.
    unsafe fn answer<T>(&self, refusal: Option<Refusal>, at: *mut T, bad: *mut *mut T) -> c_int {
        let Some((errno, how)) = refusal else { return 0 };
        match how {
            // SAFETY: the caller's promise.
            BadWr::Points => unsafe { *bad = at },
            // SAFETY: the caller's promise.
            BadWr::Null => unsafe { *bad = ptr::null_mut() },
            BadWr::Untouched => {}
        }
        self.signed(errno)
    }

    /// # Safety
    /// `at` points to a complete work request.
    unsafe fn read_send(&mut self, key: Key, at: *const ibv_send_wr) -> Result<SentWr, c_int> {
        let ty = self.qps[&key].ty;
        // SAFETY: the caller's promise, here and for each union below: the opcode and the type of
        // the QP say which member the program filled in.
        let (opcode, flags, data) = unsafe {
            ((*at).opcode, (*at).send_flags, (*at).imm_data_invalidated_rkey_union.invalidated_rkey)
        };
        let opcode = WrOpcode::try_from(opcode).map_err(|_| libc::EINVAL)?;
        // SAFETY: as above.
        let mut wr = SentWr::new(unsafe { (*at).wr_id }, opcode, flags);
        match opcode {
            WrOpcode::SendWithImm | WrOpcode::RdmaWriteWithImm => wr.imm = Some(u32::from_be(data)),
            WrOpcode::SendWithInv | WrOpcode::LocalInv => wr.invalidate = Some(data),
            _ => {}
        }
        match opcode {
            _ if ty == QpType::Ud => {
                // SAFETY: as above.
                let ud = unsafe { (*at).wr.ud };
                wr.ud = Some(self.ud_target(ud.ah, ud.remote_qpn, ud.remote_qkey)?);
            }
            WrOpcode::RdmaWrite | WrOpcode::RdmaWriteWithImm | WrOpcode::RdmaRead => {
                // SAFETY: as above.
                let rdma = unsafe { (*at).wr.rdma };
                wr.remote = Some(Remote { addr: rdma.remote_addr, rkey: rdma.rkey });
            }
            WrOpcode::AtomicCmpAndSwp | WrOpcode::AtomicFetchAndAdd => {
                // SAFETY: as above.
                let atomic = unsafe { (*at).wr.atomic };
                wr.remote = Some(Remote { addr: atomic.remote_addr, rkey: atomic.rkey });
                wr.atomic = Some((atomic.compare_add, atomic.swap));
            }
            _ => {}
        }
        // SAFETY: as above.
        wr.sges = unsafe { sges((*at).sg_list, (*at).num_sge) };
        if wr.flags.contains(SendFlags::INLINE) {
            // SAFETY: inline data is readable during the call.
            unsafe { gather_inline(&mut wr) };
        }
        Ok(wr)
    }

    pub fn ud_target(&mut self, ah: *mut ibv_ah, qpn: u32, qkey: u32) -> Result<UdTarget, c_int> {
        let known = self.ahs.contains_key(&ah.addr());
        if !known {
            return Err(self.missing("post_send: address handle").abs());
        }
        // SAFETY: it is in the table, so it is alive.
        Ok(UdTarget { ah: unsafe { (*ah).handle }, qpn, qkey })
    }

    /// Puts a send into the queue, or the `errno` of a driver that refuses it.
    pub fn take_send(&mut self, key: Key, wr: SentWr) -> Result<(), c_int> {
        let qp = self.qps.get_mut(&key).expect("the caller looked it up");
        qp.check_send(&wr)?;
        if qp.sent.len() == RECORDS_MAX {
            qp.sent.pop_front();
        }
        qp.sent.push_back(wr.clone());
        let signalled = qp.sig_all || wr.flags.contains(SendFlags::SIGNALED);
        qp.sq.push_back(Wqe { wr, position: qp.head, signalled });
        qp.head += 1;
        Ok(())
    }

    /// What the doorbell of a call that took `taken` sends sets off.
    pub fn rung(&mut self, key: Key, taken: usize) {
        let echo = self.config.echo;
        let qp = self.qps.get_mut(&key).expect("the caller looked it up");
        if taken == 0 {
            return;
        }
        qp.counts.send_doorbells += 1;
        qp.counts.send_wrs += taken as u64;
        match can_post_send(qp.state) {
            PostVerdict::Flushed if self.config.flush_at == FlushAt::Modify => {
                self.flush_sends(key)
            }
            PostVerdict::Processed if echo => {
                self.complete(key, usize::MAX);
            }
            _ => {}
        }
    }

    /// # Safety
    /// `first` is the start of a complete chain, `bad` a place to write.
    unsafe fn post_recv(
        &mut self,
        queue: Queue,
        first: *mut ibv_recv_wr,
        bad: *mut *mut ibv_recv_wr,
    ) -> c_int {
        let counts = match queue {
            Queue::Qp(key) => self.qps.get_mut(&key).map(|q| &mut q.counts),
            Queue::Srq(key) => self.srqs.get_mut(&key).map(|s| &mut s.counts),
        };
        let Some(counts) = counts else { return self.missing("post_recv") };
        counts.recv_calls += 1;
        let mut plan = self.script.recv.take();
        let (mut at, mut taken) = (first, 0);
        let refusal = loop {
            if let Some(failure) = plan.take_if(|f| due(f, taken, at.is_null())) {
                break Some((failure.errno, failure.bad));
            }
            if at.is_null() {
                break None;
            }
            // SAFETY: the caller's chain.
            let (wr, next) = unsafe {
                let sges = sges((*at).sg_list, (*at).num_sge);
                (PostedRecv { wr_id: (*at).wr_id, sges }, (*at).next)
            };
            let refused = match queue {
                Queue::Qp(key) => self.take_recv(key, wr),
                Queue::Srq(key) => self.take_srq_recv(key, wr),
            };
            if let Err(refusal) = refused {
                break Some(refusal);
            }
            taken += 1;
            at = next;
        };
        self.script.recv = plan;
        self.rung_recv(queue, taken);
        // SAFETY: the caller's place.
        unsafe { self.answer(refusal, at, bad) }
    }

    fn take_recv(&mut self, key: Key, wr: PostedRecv) -> Result<(), Refusal> {
        let in_reset = self.config.recv_in_reset;
        let qp = self.qps.get_mut(&key).expect("the caller looked it up");
        if can_post_recv(qp.state) == PostVerdict::Refused {
            return Err((libc::EINVAL, in_reset));
        }
        if qp.srq.is_some() || wr.sges.len() > qp.cap.max_recv_sge as usize {
            return Err((libc::EINVAL, BadWr::Points));
        }
        if qp.rq_used >= qp.cap.max_recv_wr {
            return Err((libc::ENOMEM, BadWr::Points));
        }
        qp.rq_used += 1;
        if qp.received.len() == RECORDS_MAX {
            qp.received.pop_front();
        }
        qp.received.push_back(wr.clone());
        qp.rq.push_back(wr);
        Ok(())
    }

    fn take_srq_recv(&mut self, key: Key, wr: PostedRecv) -> Result<(), Refusal> {
        let srq = self.srqs.get_mut(&key).expect("the caller looked it up");
        if wr.sges.len() > srq.max_sge as usize {
            return Err((libc::EINVAL, BadWr::Points));
        }
        if srq.used >= srq.max_wr {
            return Err((libc::ENOMEM, BadWr::Points));
        }
        srq.used += 1;
        srq.posted.push_back(wr);
        Ok(())
    }

    fn rung_recv(&mut self, queue: Queue, taken: usize) {
        let counts = match queue {
            Queue::Qp(key) => self.qps.get_mut(&key).map(|q| &mut q.counts),
            Queue::Srq(key) => self.srqs.get_mut(&key).map(|s| &mut s.counts),
        };
        if let (Some(counts), true) = (counts, taken > 0) {
            counts.recv_doorbells += 1;
            counts.recv_wrs += taken as u64;
        }
        if let Queue::Qp(key) = queue {
            let flushed = can_post_recv(self.qps[&key].state) == PostVerdict::Flushed;
            if flushed && self.config.flush_at == FlushAt::Modify {
                self.flush_recvs(key);
            }
        }
    }
}

impl Qp {
    pub fn check_send(&self, wr: &SentWr) -> Result<(), c_int> {
        let inline = wr.inline.as_ref().map_or(0, Vec::len);
        let legal = can_post_send(self.state) != PostVerdict::Refused
            && wr.opcode.allowed_on(self.ty)
            && wr.sges.len() <= self.cap.max_send_sge as usize
            && (wr.inline.is_none() || wr.opcode.may_be_inline())
            && (self.ty == QpType::Ud) == wr.ud.is_some();
        if !legal || inline > self.cap.max_inline_data as usize {
            return Err(libc::EINVAL);
        }
        if self.head - self.tail >= self.cap.max_send_wr.into() {
            return Err(libc::ENOMEM);
        }
        Ok(())
    }
}

/// The bit of `send_flags` that asks for a completion.
pub(super) const SIGNALED: c_uint = SendFlags::SIGNALED.bits();
