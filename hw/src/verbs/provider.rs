//! The seam for exported functions of libibverbs.
//!
//! The verbs that post and poll are inline functions in C: they jump through pointers in the
//! context, so a fake context receives them as a device would. The others are exported by the
//! library and look behind the context, where a fake has nothing; they go through [`Provider`].
//! Both [`Libibverbs`] and the fake implement it with the meaning of the manual pages.

use core::ffi::{c_int, c_uint, c_void};
use core::fmt::Debug;
use core::mem::MaybeUninit;

use super::sys::*;

/// Exported functions of libibverbs, by their names without the prefix.
///
/// Pointers come back null with `errno` set, integers as 0 or an `errno` (or -1 with `errno` set
/// where the manual says so), as in C.
///
/// # Safety
/// An implementation returns pointers that stay valid until the matching destroy call, contexts
/// whose inline operations work on the objects that it created, and nothing that it did not make.
#[expect(missing_docs, reason = "each is the manual page of its name")]
#[expect(clippy::missing_safety_doc, reason = "each is the manual page of its name")]
pub unsafe trait Provider: Debug + Send + Sync {
    /// The list of devices and its length; null and `errno` without RDMA in the kernel.
    fn get_device_list(&self) -> (*mut *mut ibv_device, usize);
    unsafe fn free_device_list(&self, list: *mut *mut ibv_device);
    unsafe fn open_device(&self, device: *mut ibv_device) -> *mut ibv_context;
    unsafe fn close_device(&self, context: *mut ibv_context) -> c_int;
    unsafe fn query_device(&self, context: *mut ibv_context, attr: *mut ibv_device_attr) -> c_int;
    /// Fills `entries`; the number of valid ones, or a negative `errno`.
    unsafe fn query_gid_table(
        &self,
        context: *mut ibv_context,
        entries: &mut [MaybeUninit<ibv_gid_entry>],
    ) -> isize;
    unsafe fn alloc_pd(&self, context: *mut ibv_context) -> *mut ibv_pd;
    unsafe fn dealloc_pd(&self, pd: *mut ibv_pd) -> c_int;
    unsafe fn reg_mr(
        &self,
        pd: *mut ibv_pd,
        addr: *mut c_void,
        length: usize,
        access: c_int,
    ) -> *mut ibv_mr;
    unsafe fn dereg_mr(&self, mr: *mut ibv_mr) -> c_int;
    unsafe fn create_comp_channel(&self, context: *mut ibv_context) -> *mut ibv_comp_channel;
    unsafe fn destroy_comp_channel(&self, channel: *mut ibv_comp_channel) -> c_int;
    unsafe fn create_cq(
        &self,
        context: *mut ibv_context,
        cqe: c_int,
        cq_context: *mut c_void,
        channel: *mut ibv_comp_channel,
    ) -> *mut ibv_cq;
    unsafe fn destroy_cq(&self, cq: *mut ibv_cq) -> c_int;
    unsafe fn get_cq_event(
        &self,
        channel: *mut ibv_comp_channel,
        cq: *mut *mut ibv_cq,
        cq_context: *mut *mut c_void,
    ) -> c_int;
    unsafe fn ack_cq_events(&self, cq: *mut ibv_cq, events: c_uint);
    unsafe fn create_srq(&self, pd: *mut ibv_pd, attr: *mut ibv_srq_init_attr) -> *mut ibv_srq;
    unsafe fn modify_srq(&self, srq: *mut ibv_srq, attr: *mut ibv_srq_attr, mask: c_int) -> c_int;
    unsafe fn destroy_srq(&self, srq: *mut ibv_srq) -> c_int;
    unsafe fn create_qp(&self, pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> *mut ibv_qp;
    unsafe fn qp_to_qp_ex(&self, qp: *mut ibv_qp) -> *mut ibv_qp_ex;
    unsafe fn modify_qp(&self, qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) -> c_int;
    unsafe fn query_qp(
        &self,
        qp: *mut ibv_qp,
        attr: *mut ibv_qp_attr,
        mask: c_int,
        init: *mut ibv_qp_init_attr,
    ) -> c_int;
    unsafe fn destroy_qp(&self, qp: *mut ibv_qp) -> c_int;
    unsafe fn create_ah(&self, pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah;
    unsafe fn destroy_ah(&self, ah: *mut ibv_ah) -> c_int;
    /// 0, or -1 with `errno` (`EAGAIN` on a descriptor that does not block).
    unsafe fn get_async_event(
        &self,
        context: *mut ibv_context,
        event: &mut MaybeUninit<ibv_async_event>,
    ) -> c_int;
    unsafe fn ack_async_event(&self, event: &mut MaybeUninit<ibv_async_event>);
}

/// Functions that differ from the library's only in their name.
macro_rules! pass {
    ($($name:ident = $c:ident($($arg:ident: $ty:ty),*) $(-> $ret:ty)?;)*) => {$(
        unsafe fn $name(&self, $($arg: $ty),*) $(-> $ret)? {
            // SAFETY: the caller's promise is the library's.
            unsafe { $c($($arg),*) }
        }
    )*};
}

/// The installed libibverbs.
#[derive(Copy, Clone, Debug, Default)]
pub struct Libibverbs;

// SAFETY: the library's own functions, passed on.
unsafe impl Provider for Libibverbs {
    fn get_device_list(&self) -> (*mut *mut ibv_device, usize) {
        let mut n = 0;
        // SAFETY: the call takes nothing but a place for the count.
        let list = unsafe { ibv_get_device_list(&raw mut n) };
        (list, usize::try_from(n).unwrap_or(0))
    }
    unsafe fn query_gid_table(
        &self,
        context: *mut ibv_context,
        entries: &mut [MaybeUninit<ibv_gid_entry>],
    ) -> isize {
        let (at, n) = (entries.as_mut_ptr().cast(), entries.len());
        // SAFETY: the caller's context, and room for `n` entries of the size that is passed.
        unsafe { _ibv_query_gid_table(context, at, n, 0, size_of::<ibv_gid_entry>()) }
    }
    unsafe fn create_cq(
        &self,
        context: *mut ibv_context,
        cqe: c_int,
        cq_context: *mut c_void,
        channel: *mut ibv_comp_channel,
    ) -> *mut ibv_cq {
        // SAFETY: the caller's promise. Completion vector 0 always exists.
        unsafe { ibv_create_cq(context, cqe, cq_context, channel, 0) }
    }
    unsafe fn get_async_event(
        &self,
        context: *mut ibv_context,
        event: &mut MaybeUninit<ibv_async_event>,
    ) -> c_int {
        // SAFETY: the caller's context, and room for one event.
        unsafe { ibv_get_async_event(context, event.as_mut_ptr()) }
    }
    unsafe fn ack_async_event(&self, event: &mut MaybeUninit<ibv_async_event>) {
        // SAFETY: the caller got it from `get_async_event`.
        unsafe { ibv_ack_async_event(event.as_mut_ptr()) }
    }
    pass! {
        free_device_list = ibv_free_device_list(list: *mut *mut ibv_device);
        open_device = ibv_open_device(device: *mut ibv_device) -> *mut ibv_context;
        close_device = ibv_close_device(context: *mut ibv_context) -> c_int;
        query_device = ibv_query_device(
            context: *mut ibv_context,
            attr: *mut ibv_device_attr
        ) -> c_int;
        alloc_pd = ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd;
        dealloc_pd = ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int;
        reg_mr = ibv_reg_mr(
            pd: *mut ibv_pd,
            addr: *mut c_void,
            length: usize,
            access: c_int
        ) -> *mut ibv_mr;
        dereg_mr = ibv_dereg_mr(mr: *mut ibv_mr) -> c_int;
        create_comp_channel = ibv_create_comp_channel(
            context: *mut ibv_context
        ) -> *mut ibv_comp_channel;
        destroy_comp_channel = ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int;
        destroy_cq = ibv_destroy_cq(cq: *mut ibv_cq) -> c_int;
        get_cq_event = ibv_get_cq_event(
            channel: *mut ibv_comp_channel,
            cq: *mut *mut ibv_cq,
            cq_context: *mut *mut c_void
        ) -> c_int;
        ack_cq_events = ibv_ack_cq_events(cq: *mut ibv_cq, events: c_uint);
        create_srq = ibv_create_srq(pd: *mut ibv_pd, attr: *mut ibv_srq_init_attr) -> *mut ibv_srq;
        modify_srq = ibv_modify_srq(
            srq: *mut ibv_srq,
            attr: *mut ibv_srq_attr,
            mask: c_int
        ) -> c_int;
        destroy_srq = ibv_destroy_srq(srq: *mut ibv_srq) -> c_int;
        create_qp = ibv_create_qp(pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> *mut ibv_qp;
        qp_to_qp_ex = ibv_qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex;
        modify_qp = ibv_modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) -> c_int;
        query_qp = ibv_query_qp(
            qp: *mut ibv_qp,
            attr: *mut ibv_qp_attr,
            mask: c_int,
            init: *mut ibv_qp_init_attr
        ) -> c_int;
        destroy_qp = ibv_destroy_qp(qp: *mut ibv_qp) -> c_int;
        create_ah = ibv_create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah;
        destroy_ah = ibv_destroy_ah(ah: *mut ibv_ah) -> c_int;
    }
}
