//! The exported functions, each passed on to the state behind the lock.

use core::ffi::{c_int, c_uint, c_void};
use core::mem::MaybeUninit;
use core::ptr;
use std::sync::Arc;

use super::Fake;
use super::objects::refuse;
use super::qp::QpRequest;
use crate::verbs::provider::Provider;
use crate::verbs::sys::*;

macro_rules! pass {
    ($($name:ident($first:ident: *mut $ty:ty $(, $arg:ident: $arg_ty:ty)*) $(-> $ret:ty)?;)*) => {$(
        unsafe fn $name(&self, $first: *mut $ty $(, $arg: $arg_ty)*) $(-> $ret)? {
            self.shared().lock().$name($first.addr() $(, $arg)*)
        }
    )*};
}

// SAFETY: what is handed out lives in the tables of the fake until the matching destroy call, and
// its inline operations find the same tables through the context.
unsafe impl Provider for Fake {
    fn get_device_list(&self) -> (*mut *mut ibv_device, usize) {
        self.shared().lock().get_device_list()
    }
    unsafe fn free_device_list(&self, list: *mut *mut ibv_device) {
        self.shared().lock().free_device_list(list);
    }
    unsafe fn open_device(&self, device: *mut ibv_device) -> *mut ibv_context {
        let shared = self.shared();
        shared.lock().open_device(Arc::as_ptr(shared), device.addr())
    }
    unsafe fn query_device(&self, context: *mut ibv_context, attr: *mut ibv_device_attr) -> c_int {
        match self.shared().lock().query_device(context.addr()) {
            Ok(answer) => {
                // SAFETY: the caller has room for the attributes.
                unsafe { attr.write(answer) };
                0
            }
            Err(rc) => rc,
        }
    }
    unsafe fn get_cq_event(
        &self,
        channel: *mut ibv_comp_channel,
        cq: *mut *mut ibv_cq,
        cq_context: *mut *mut c_void,
    ) -> c_int {
        match self.shared().lock().get_cq_event(channel.addr()) {
            Ok(found) => {
                // SAFETY: the caller has room for both; the queue is alive.
                unsafe {
                    *cq = found;
                    *cq_context = (*found).cq_context;
                }
                0
            }
            Err(errno) => {
                set_errno(errno);
                -1
            }
        }
    }
    unsafe fn create_srq(&self, pd: *mut ibv_pd, attr: *mut ibv_srq_init_attr) -> *mut ibv_srq {
        // SAFETY: the caller's attributes, which nobody else uses during the call.
        self.shared().lock().create_srq(pd.addr(), unsafe { &mut *attr })
    }
    unsafe fn modify_srq(&self, srq: *mut ibv_srq, attr: *mut ibv_srq_attr, mask: c_int) -> c_int {
        // SAFETY: the caller's attributes.
        self.shared().lock().modify_srq(srq.addr(), unsafe { &*attr }, mask)
    }
    unsafe fn create_qp(&self, pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> *mut ibv_qp {
        // SAFETY: the caller's attributes are complete.
        let request = unsafe {
            QpRequest {
                pd: pd.addr(),
                send_cq: (*attr).send_cq,
                recv_cq: (*attr).recv_cq,
                srq: (*attr).srq,
                cap: (*attr).cap,
                ty: (*attr).qp_type,
                sig_all: (*attr).sq_sig_all != 0,
                qp_context: (*attr).qp_context,
                ops: None,
            }
        };
        match self.shared().lock().create_qp(&request) {
            Ok((qp, cap)) => {
                // SAFETY: as above; granted sizes are told on success only.
                unsafe { (*attr).cap = cap };
                qp
            }
            Err(errno) => refuse(errno),
        }
    }
    unsafe fn modify_qp(&self, qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) -> c_int {
        // SAFETY: the caller's attributes.
        self.shared().lock().modify_qp(qp.addr(), unsafe { &*attr }, mask)
    }
    unsafe fn query_qp(
        &self,
        qp: *mut ibv_qp,
        attr: *mut ibv_qp_attr,
        _mask: c_int,
        init: *mut ibv_qp_init_attr,
    ) -> c_int {
        match self.shared().lock().query_qp(qp.addr()) {
            Ok((a, i)) => {
                // SAFETY: the caller has room for both answers.
                unsafe {
                    ptr::write(attr, a);
                    ptr::write(init, i);
                }
                0
            }
            Err(rc) => rc,
        }
    }
    unsafe fn create_ah(&self, pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah {
        // SAFETY: the caller's attributes.
        self.shared().lock().create_ah(pd.addr(), unsafe { &*attr })
    }
    unsafe fn ack_async_event(&self, event: &mut MaybeUninit<ibv_async_event>) {
        self.shared().lock().ack_async_event(event);
    }
    pass! {
        close_device(context: *mut ibv_context) -> c_int;
        query_gid_table(
            context: *mut ibv_context,
            entries: &mut [MaybeUninit<ibv_gid_entry>]
        ) -> isize;
        alloc_pd(context: *mut ibv_context) -> *mut ibv_pd;
        dealloc_pd(pd: *mut ibv_pd) -> c_int;
        reg_mr(
            pd: *mut ibv_pd,
            addr: *mut c_void,
            length: usize,
            access: c_int
        ) -> *mut ibv_mr;
        dereg_mr(mr: *mut ibv_mr) -> c_int;
        create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel;
        destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int;
        create_cq(
            context: *mut ibv_context,
            cqe: c_int,
            cq_context: *mut c_void,
            channel: *mut ibv_comp_channel
        ) -> *mut ibv_cq;
        destroy_cq(cq: *mut ibv_cq) -> c_int;
        ack_cq_events(cq: *mut ibv_cq, events: c_uint);
        destroy_srq(srq: *mut ibv_srq) -> c_int;
        qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex;
        destroy_qp(qp: *mut ibv_qp) -> c_int;
        destroy_ah(ah: *mut ibv_ah) -> c_int;
        get_async_event(
            context: *mut ibv_context,
            event: &mut MaybeUninit<ibv_async_event>
        ) -> c_int;
    }
}
