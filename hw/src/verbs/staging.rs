//! Work requests between `stage` and `ring`, and lists of receives.
//!
//! Everything here is a raw allocation that is reached through raw pointers only. The provider
//! follows pointers from one work request to the next and into its scatter list; a `Vec` whose
//! elements were borrowed mutably in between would make those pointers invalid in the eyes of the
//! compiler (Miri refuses it, under Stacked and Tree Borrows).

use core::fmt;
use core::ptr::{self, NonNull};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};

use doorbell_core::transport::{Data, RecvWr, SendOp, SendWr, Sge};
use doorbell_core::verbs::SendFlags;

use super::positions::RECV;
use super::sys::*;

/// A fixed number of plain C structures, zeroed.
pub struct RawArray<T> {
    first: NonNull<T>,
    count: usize,
}

impl<T> fmt::Debug for RawArray<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RawArray({})", self.count)
    }
}

// SAFETY: it owns plain data that is reached only through the owner.
unsafe impl<T> Send for RawArray<T> {}

impl<T> RawArray<T> {
    /// `count` zeroed elements. All-zero must be a valid value of `T`.
    fn zeroed(count: usize) -> Self {
        let first = match Self::layout(count) {
            layout if layout.size() == 0 => NonNull::dangling(),
            // SAFETY: the layout has a size.
            layout => NonNull::new(unsafe { alloc_zeroed(layout) })
                .unwrap_or_else(|| handle_alloc_error(layout))
                .cast(),
        };
        Self { first, count }
    }

    fn layout(count: usize) -> Layout {
        Layout::array::<T>(count).expect("queue depths are 32-bit numbers")
    }

    /// The element at `i`.
    #[inline(always)]
    pub fn at(&self, i: usize) -> *mut T {
        debug_assert!(i < self.count);
        // SAFETY: inside the allocation; callers stay below the count.
        unsafe { self.first.as_ptr().add(i) }
    }

    /// Elements.
    pub fn len(&self) -> usize {
        self.count
    }
}

impl<T> Drop for RawArray<T> {
    fn drop(&mut self) {
        let layout = Self::layout(self.count);
        if layout.size() > 0 {
            // SAFETY: allocated with this layout; elements are plain data.
            unsafe { dealloc(self.first.as_ptr().cast(), layout) };
        }
    }
}

/// Room for polled completions.
pub fn completions(count: usize) -> RawArray<ibv_wc> {
    RawArray::zeroed(count)
}

/// What a work request needs beside itself.
#[derive(Copy, Clone, Debug)]
pub struct Destination {
    /// Address handle, QPN and Q_Key of a datagram.
    pub ah: *mut ibv_ah,
    /// The peer's queue pair.
    pub qpn: u32,
    /// Its Q_Key.
    pub qkey: u32,
}

/// The chain of classic verbs: linked once, cut behind the last staged request for a post and
/// mended afterwards, so that a ring is one call and staging writes only what differs.
#[derive(Debug)]
pub struct Chain {
    wrs: RawArray<ibv_send_wr>,
    sges: RawArray<ibv_sge>,
    /// Inline bytes: classic verbs read them at the post, the caller has them back at stage.
    inline: RawArray<u8>,
    max_sge: usize,
    max_inline: usize,
}

impl Chain {
    /// Room for `count` work requests of at most `max_sge` elements or `max_inline` bytes.
    pub fn new(count: u32, max_sge: u32, max_inline: u32) -> Self {
        // Inline data travels as one element.
        let (n, max_sge, max_inline) =
            (count as usize, max_sge.max(1) as usize, max_inline as usize);
        let chain = Self {
            wrs: RawArray::zeroed(n),
            sges: RawArray::zeroed(n * max_sge),
            inline: RawArray::zeroed(n * max_inline),
            max_sge,
            max_inline,
        };
        for i in 0..n {
            let wr = chain.wrs.at(i);
            // SAFETY: elements of our own arrays.
            unsafe {
                (*wr).sg_list = chain.sges.at(i * max_sge);
                (*wr).next = chain.next(i);
            }
        }
        chain
    }

    /// What follows work request `i` in the template.
    fn next(&self, i: usize) -> *mut ibv_send_wr {
        if i + 1 < self.wrs.len() { self.wrs.at(i + 1) } else { ptr::null_mut() }
    }

    /// Writes the work request at position `i` of the chain.
    ///
    /// The caller has checked it against what was granted.
    #[inline(always)]
    pub fn put(&mut self, i: u32, wr_id: u64, wr: &SendWr<'_>, flags: SendFlags) {
        let (i, at) = (i as usize, self.wrs.at(i as usize));
        // SAFETY: elements of our own arrays; counts were checked by the caller. The provider
        // reads them only during a post.
        unsafe {
            (*at).wr_id = wr_id;
            (*at).opcode = wr.op.opcode().value().into();
            match wr.data {
                Data::Sge(list) => {
                    debug_assert!(list.len() <= self.max_sge);
                    let to = self.sges.at(i * self.max_sge);
                    match list {
                        [one] => to.cast::<Sge>().write(*one),
                        _ => ptr::copy_nonoverlapping(list.as_ptr(), to.cast(), list.len()),
                    }
                    (*at).num_sge = list.len() as i32;
                    (*at).send_flags = flags.bits();
                }
                Data::Inline(bytes) => {
                    debug_assert!(bytes.len() <= self.max_inline);
                    let to = self.sges.at(i * self.max_sge);
                    if !bytes.is_empty() {
                        let kept = self.inline.at(i * self.max_inline);
                        ptr::copy_nonoverlapping(bytes.as_ptr(), kept, bytes.len());
                        (*to).addr = kept.expose_provenance() as u64;
                    }
                    (*to).length = bytes.len() as u32;
                    (*at).num_sge = i32::from(!bytes.is_empty());
                    (*at).send_flags = (flags | SendFlags::INLINE).bits();
                }
            }
            match wr.op {
                SendOp::Send => {}
                SendOp::SendImm(imm) => (*at).imm_data_invalidated_rkey_union = be(imm),
                SendOp::SendInv(key) => {
                    (*at).imm_data_invalidated_rkey_union =
                        imm_data_invalidated_rkey_union_t { invalidated_rkey: key.0 };
                }
                SendOp::Write(r) | SendOp::Read(r) => {
                    (*at).wr.rdma = rdma_t { remote_addr: r.addr, rkey: r.rkey.0 };
                }
                SendOp::WriteImm(r, imm) => {
                    (*at).wr.rdma = rdma_t { remote_addr: r.addr, rkey: r.rkey.0 };
                    (*at).imm_data_invalidated_rkey_union = be(imm);
                }
                SendOp::CmpSwap { remote: r, compare, swap } => {
                    (*at).wr.atomic = atomic_t {
                        remote_addr: r.addr,
                        compare_add: compare,
                        swap,
                        rkey: r.rkey.0,
                    };
                }
                SendOp::FetchAdd { remote: r, add } => {
                    (*at).wr.atomic =
                        atomic_t { remote_addr: r.addr, compare_add: add, swap: 0, rkey: r.rkey.0 };
                }
            }
        }
    }

    /// Gives the work request at `i` a destination.
    #[inline]
    pub fn address(&mut self, i: u32, to: Destination) {
        let ud = ud_t { ah: to.ah, remote_qpn: to.qpn, remote_qkey: to.qkey };
        // SAFETY: an element of our own array.
        unsafe { (*self.wrs.at(i as usize)).wr.ud = ud };
    }

    /// Posts the first `n` work requests with one call, `n` at least 1.
    ///
    /// # Safety
    /// `qp` is alive, and no other thread posts to it.
    #[inline(always)]
    pub unsafe fn post(&mut self, qp: *mut ibv_qp, n: u32) -> Result<(), PostFailure> {
        let last = n as usize - 1;
        let mut bad = ptr::null_mut();
        // SAFETY: the chain is well-formed up to the cut; the caller's promise for the QP.
        let rc = unsafe {
            (*self.wrs.at(last)).next = ptr::null_mut();
            let rc = ibv_post_send(qp, self.wrs.at(0), &raw mut bad);
            (*self.wrs.at(last)).next = self.next(last);
            rc
        };
        if rc == 0 { Ok(()) } else { Err(self.failure(rc, bad, n)) }
    }

    #[cold]
    fn failure(&self, rc: i32, bad: *mut ibv_send_wr, n: u32) -> PostFailure {
        let offset = bad.addr().wrapping_sub(self.wrs.at(0).addr());
        let posted = offset / size_of::<ibv_send_wr>();
        let known = !bad.is_null() && posted < n as usize;
        PostFailure { errno: positive(rc), posted: known.then_some(posted as u32) }
    }
}

/// A post that the provider did not take as a whole.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct PostFailure {
    /// Why.
    pub errno: i32,
    /// How many it took; `None` when it does not tell (`bad_wr` null).
    pub posted: Option<u32>,
}

/// Some providers return errors negative, and some -1 with `errno`.
fn positive(rc: i32) -> i32 {
    match rc {
        -1 if errno() != 0 => errno(),
        rc => rc.abs(),
    }
}

/// Immediate data, which travels in network order.
#[inline(always)]
fn be(imm: u32) -> imm_data_invalidated_rkey_union_t {
    imm_data_invalidated_rkey_union_t { imm_data: imm.to_be() }
}

/// The calls of extended verbs: the provider builds the WQE at once.
#[derive(Copy, Clone, Debug)]
pub struct Builder(pub *mut ibv_qp_ex);

// SAFETY: the pointer is used only by the owner of the queue pair.
unsafe impl Send for Builder {}

impl Builder {
    /// Adds a work request; the first of a burst opens it.
    ///
    /// The caller has checked it against what was granted.
    ///
    /// # Safety
    /// The queue pair is alive and was made for extended posting, `first` says whether nothing is
    /// staged, and no other thread posts.
    #[inline(always)]
    pub unsafe fn put(
        self,
        first: bool,
        wr_id: u64,
        wr: &SendWr<'_>,
        flags: SendFlags,
        to: Option<Destination>,
    ) {
        let qp = self.0;
        // SAFETY: the caller's promise; the order of calls is that of the manual: start, then for
        // each request its id and flags, the operation, and its setters.
        unsafe {
            if first {
                ibv_wr_start(qp);
            }
            (*qp).wr_id = wr_id;
            // The setter of the data says that it is inline, yet rxe looks at the flag too.
            let inline = matches!(wr.data, Data::Inline(_));
            let flags = if inline { flags | SendFlags::INLINE } else { flags };
            (*qp).wr_flags = flags.bits();
            match wr.op {
                SendOp::Send => ibv_wr_send(qp),
                SendOp::SendImm(imm) => ibv_wr_send_imm(qp, imm.to_be()),
                SendOp::SendInv(key) => ibv_wr_send_inv(qp, key.0),
                SendOp::Write(r) => ibv_wr_rdma_write(qp, r.rkey.0, r.addr),
                SendOp::WriteImm(r, imm) => {
                    ibv_wr_rdma_write_imm(qp, r.rkey.0, r.addr, imm.to_be());
                }
                SendOp::Read(r) => ibv_wr_rdma_read(qp, r.rkey.0, r.addr),
                SendOp::CmpSwap { remote: r, compare, swap } => {
                    ibv_wr_atomic_cmp_swp(qp, r.rkey.0, r.addr, compare, swap);
                }
                SendOp::FetchAdd { remote: r, add } => {
                    ibv_wr_atomic_fetch_add(qp, r.rkey.0, r.addr, add);
                }
            }
            if let Some(to) = to {
                ibv_wr_set_ud_addr(qp, to.ah, to.qpn, to.qkey);
            }
            match wr.data {
                Data::Inline(bytes) => {
                    ibv_wr_set_inline_data(qp, bytes.as_ptr().cast_mut().cast(), bytes.len());
                }
                Data::Sge([one]) => ibv_wr_set_sge(qp, one.lkey.0, one.addr, one.len),
                Data::Sge(list) => ibv_wr_set_sge_list(qp, list.len(), list.as_ptr().cast()),
            }
        }
    }

    /// Announces what was staged, at least one.
    ///
    /// # Safety
    /// As [`Builder::put`]; a burst is open.
    #[inline(always)]
    pub unsafe fn complete(self) -> Result<(), PostFailure> {
        // SAFETY: the caller's promise.
        match unsafe { ibv_wr_complete(self.0) } {
            0 => Ok(()),
            rc => Err(PostFailure { errno: positive(rc), posted: Some(0) }),
        }
    }

    /// Forgets what was staged, at least one.
    ///
    /// # Safety
    /// As [`Builder::put`]; a burst is open.
    pub unsafe fn abort(self) {
        // SAFETY: the caller's promise.
        unsafe { ibv_wr_abort(self.0) };
    }
}

/// Receives that one call posts; longer lists take several.
const RECV_CHAIN: usize = 256;

/// A linked list of receives, each with one element.
#[derive(Debug)]
pub struct RecvChain {
    wrs: RawArray<ibv_recv_wr>,
    sges: RawArray<ibv_sge>,
}

impl RecvChain {
    /// See [`RECV_CHAIN`].
    pub fn new() -> Self {
        let chain = Self { wrs: RawArray::zeroed(RECV_CHAIN), sges: RawArray::zeroed(RECV_CHAIN) };
        for i in 0..RECV_CHAIN {
            // SAFETY: elements of our own arrays.
            unsafe {
                (*chain.wrs.at(i)).sg_list = chain.sges.at(i);
                (*chain.wrs.at(i)).next = chain.next(i);
            }
        }
        chain
    }

    fn next(&self, i: usize) -> *mut ibv_recv_wr {
        if i + 1 < RECV_CHAIN { self.wrs.at(i + 1) } else { ptr::null_mut() }
    }

    /// Hands `wrs` to `post`, as many at a time as the chain holds.
    pub fn post(
        &mut self,
        wrs: &[RecvWr],
        mut post: impl FnMut(*mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> i32,
    ) -> Result<(), PostFailure> {
        let mut before = 0;
        for part in wrs.chunks(RECV_CHAIN) {
            for (i, wr) in part.iter().enumerate() {
                // SAFETY: elements of our own arrays.
                unsafe {
                    self.sges.at(i).cast::<Sge>().write(wr.sge);
                    (*self.wrs.at(i)).wr_id = wr.wr_id | RECV;
                    // A receive without room is posted without an element.
                    (*self.wrs.at(i)).num_sge = i32::from(wr.sge.len > 0);
                }
            }
            let (last, mut bad) = (part.len() - 1, ptr::null_mut());
            // SAFETY: an element of our own array.
            unsafe { (*self.wrs.at(last)).next = ptr::null_mut() };
            let rc = post(self.wrs.at(0), &raw mut bad);
            // SAFETY: as above.
            unsafe { (*self.wrs.at(last)).next = self.next(last) };
            if rc != 0 {
                let at = bad.addr().wrapping_sub(self.wrs.at(0).addr()) / size_of::<ibv_recv_wr>();
                let known = !bad.is_null() && at < part.len();
                let posted = known.then_some(before + at as u32);
                return Err(PostFailure { errno: positive(rc), posted });
            }
            before += part.len() as u32;
        }
        Ok(())
    }
}
