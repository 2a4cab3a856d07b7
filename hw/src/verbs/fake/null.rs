//! The null device: as little work per call as a provider can do, for instruction counts.
//!
//! A post walks the chain, counts it, and puts the id of each signalled work request into a ring
//! of its completion queue, from which a poll takes it: every send completes at once. Nothing is
//! checked or recorded, receives never complete, and one thread at a time uses a queue. The
//! fields are atomic only so that a second thread is a wrong figure and not undefined behaviour;
//! relaxed loads and stores cost what plain ones do.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

use super::context::{CqObj, QpObj};
use super::post::SIGNALED;
use super::record::Counts;
use crate::verbs::sys::*;

/// Entries of the ring at most, whatever the depth of the queue.
const ENTRIES_MAX: u32 = 1 << 16;

#[derive(Default)]
struct Entry {
    wr_id: AtomicU64,
    qpn: AtomicU32,
}

/// Completions of a queue; `tail` is where the next is put, `head` where the next is taken.
#[derive(Default)]
struct Entries {
    slots: Box<[Entry]>,
    head: AtomicU32,
    tail: AtomicU32,
}

impl Entries {
    fn put(&self, at: u32, wr_id: u64, qpn: u32) {
        // The number of slots is a power of two; one that was not polled is overwritten.
        let slot = &self.slots[(at as usize) & (self.slots.len() - 1)];
        slot.wr_id.store(wr_id, Relaxed);
        slot.qpn.store(qpn, Relaxed);
    }
}

/// The ring of a completion queue, owned by it.
pub(super) struct Ring(*mut Entries);

impl Ring {
    /// For a queue of this depth; one entry when the device is no null device.
    pub fn new(depth: u32, is_null: bool) -> Self {
        let n = if is_null { depth.next_power_of_two().min(ENTRIES_MAX) } else { 1 };
        let slots = (0..n).map(|_| Entry::default()).collect();
        Self(Box::into_raw(Box::new(Entries { slots, ..Entries::default() })))
    }

    /// For a QP of the queue, which the queue outlives.
    pub fn shared(&self) -> Self {
        Self(self.0)
    }

    /// Frees it with its queue.
    ///
    /// # Safety
    /// No QP of the queue is left.
    pub unsafe fn free(&self) {
        // SAFETY: made by `Box::into_raw`; the caller's promise.
        drop(unsafe { Box::from_raw(self.0) });
    }

    fn entries(&self) -> &Entries {
        // SAFETY: a queue outlives its QPs, and the ring lives as long as the queue.
        unsafe { &*self.0 }
    }
}

/// Counters of a QP.
pub(super) struct NullQueue {
    ring: Ring,
    sig_all: AtomicBool,
    send_calls: AtomicU64,
    send_wrs: AtomicU64,
    recv_calls: AtomicU64,
    recv_wrs: AtomicU64,
    /// Where the ring will end at `wr_complete`, and work requests begun since `wr_start`.
    pending: AtomicU32,
    begun: AtomicU64,
}

impl NullQueue {
    pub fn new(ring: Ring, sig_all: bool) -> Self {
        Self {
            ring,
            sig_all: AtomicBool::new(sig_all),
            send_calls: AtomicU64::new(0),
            send_wrs: AtomicU64::new(0),
            recv_calls: AtomicU64::new(0),
            recv_wrs: AtomicU64::new(0),
            pending: AtomicU32::new(0),
            begun: AtomicU64::new(0),
        }
    }

    pub fn counts(&self) -> Counts {
        Counts {
            send_calls: self.send_calls.load(Relaxed),
            send_doorbells: self.send_calls.load(Relaxed),
            send_wrs: self.send_wrs.load(Relaxed),
            recv_calls: self.recv_calls.load(Relaxed),
            recv_doorbells: self.recv_calls.load(Relaxed),
            recv_wrs: self.recv_wrs.load(Relaxed),
        }
    }
}

fn add(to: &AtomicU64, n: u64) {
    to.store(to.load(Relaxed).wrapping_add(n), Relaxed);
}

/// # Safety
/// A QP of the null device that is alive.
unsafe fn queue<'a>(qp: *mut ibv_qp) -> &'a NullQueue {
    // SAFETY: the pointer was made from one to the whole `QpObj`.
    unsafe { &(*qp.cast::<QpObj>()).null }
}

pub(super) unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    _bad: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: the caller's QP and chain.
    unsafe {
        let q = queue(qp);
        let ring = q.ring.entries();
        let (sig_all, qpn) = (q.sig_all.load(Relaxed), (*qp).qp_num);
        let mut tail = ring.tail.load(Relaxed);
        let (mut at, mut n) = (wr, 0);
        while !at.is_null() {
            if (*at).send_flags & SIGNALED != 0 || sig_all {
                ring.put(tail, (*at).wr_id, qpn);
                tail = tail.wrapping_add(1);
            }
            n += 1;
            at = (*at).next;
        }
        ring.tail.store(tail, Relaxed);
        add(&q.send_calls, 1);
        add(&q.send_wrs, n);
    }
    0
}

pub(super) unsafe extern "C" fn post_recv(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    _bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the caller's QP and chain.
    unsafe {
        let q = queue(qp);
        let (mut at, mut n) = (wr, 0);
        while !at.is_null() {
            n += 1;
            at = (*at).next;
        }
        add(&q.recv_calls, 1);
        add(&q.recv_wrs, n);
    }
    0
}

pub(super) unsafe extern "C" fn post_srq_recv(
    _srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    _bad: *mut *mut ibv_recv_wr,
) -> c_int {
    let mut at = wr;
    while !at.is_null() {
        // SAFETY: the caller's chain.
        at = unsafe { (*at).next };
    }
    0
}

pub(super) unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, n: c_int, wc: *mut ibv_wc) -> c_int {
    // SAFETY: the caller's queue is alive, and there is room for `n` completions.
    unsafe {
        let ring = (*cq.cast::<CqObj>()).ring.entries();
        let head = ring.head.load(Relaxed);
        let queued = ring.tail.load(Relaxed).wrapping_sub(head);
        let n = queued.min(u32::try_from(n).unwrap_or(0));
        for i in 0..n {
            let slot = &ring.slots[(head.wrapping_add(i) as usize) & (ring.slots.len() - 1)];
            let to = wc.add(i as usize);
            (&raw mut (*to).wr_id).write(slot.wr_id.load(Relaxed));
            (&raw mut (*to).status).write(ibv_wc_status::IBV_WC_SUCCESS);
            (&raw mut (*to).opcode).write(ibv_wc_opcode::IBV_WC_RDMA_WRITE);
            (&raw mut (*to).vendor_err).write(0);
            (&raw mut (*to).byte_len).write(0);
            (&raw mut (*to).qp_num).write(slot.qpn.load(Relaxed));
            (&raw mut (*to).wc_flags).write(0);
        }
        ring.head.store(head.wrapping_add(n), Relaxed);
        n.cast_signed()
    }
}

/// # Safety
/// A QP of the null device that is alive.
unsafe fn begin(qp: *mut ibv_qp_ex) {
    // SAFETY: the caller's promise.
    unsafe {
        let q = queue(qp.cast());
        if (*qp).wr_flags & SIGNALED != 0 || q.sig_all.load(Relaxed) {
            let pending = q.pending.load(Relaxed);
            q.ring.entries().put(pending, (*qp).wr_id, (*qp).qp_base.qp_num);
            q.pending.store(pending.wrapping_add(1), Relaxed);
        }
        add(&q.begun, 1);
    }
}

macro_rules! begins {
    ($($name:ident($($ty:ty),*);)*) => {$(
        pub(super) unsafe extern "C" fn $name(qp: *mut ibv_qp_ex, $(_: $ty),*) {
            // SAFETY: the caller's QP is alive.
            unsafe { begin(qp) }
        }
    )*};
}
begins! {
    wr_send();
    wr_send_imm(__be32);
    wr_send_inv(u32);
    wr_rdma_write(u32, u64);
    wr_rdma_write_imm(u32, u64, __be32);
    wr_rdma_read(u32, u64);
    wr_atomic_cmp_swp(u32, u64, u64, u64);
    wr_atomic_fetch_add(u32, u64, u64);
}

macro_rules! ignores {
    ($($name:ident($($ty:ty),*);)*) => {$(
        pub(super) unsafe extern "C" fn $name(_: *mut ibv_qp_ex, $(_: $ty),*) {}
    )*};
}
ignores! {
    wr_set_sge(u32, u64, u32);
    wr_set_sge_list(usize, *const ibv_sge);
    wr_set_inline_data(*mut c_void, usize);
    wr_set_inline_data_list(usize, *const ibv_data_buf);
    wr_set_ud_addr(*mut ibv_ah, u32, u32);
}

pub(super) unsafe extern "C" fn wr_start(qp: *mut ibv_qp_ex) {
    // SAFETY: the caller's QP is alive.
    let q = unsafe { queue(qp.cast()) };
    q.pending.store(q.ring.entries().tail.load(Relaxed), Relaxed);
    q.begun.store(0, Relaxed);
}

pub(super) unsafe extern "C" fn wr_complete(qp: *mut ibv_qp_ex) -> c_int {
    // SAFETY: the caller's QP is alive.
    let q = unsafe { queue(qp.cast()) };
    q.ring.entries().tail.store(q.pending.load(Relaxed), Relaxed);
    add(&q.send_calls, 1);
    add(&q.send_wrs, q.begun.load(Relaxed));
    0
}

/// What was begun is forgotten at the next start.
pub(super) unsafe extern "C" fn wr_abort(_: *mut ibv_qp_ex) {}

/// The queue of a live QP.
///
/// # Safety
/// The QP is alive.
pub(super) unsafe fn counts(qp: *mut QpObj) -> Counts {
    // SAFETY: the caller's promise; no reference to the rest of the object is made.
    unsafe { (*qp).null.counts() }
}
