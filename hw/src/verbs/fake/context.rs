//! The C objects that hold more than the binding shows, and devices and contexts themselves.

use core::ffi::{c_char, c_int};
use core::mem::{MaybeUninit, offset_of, size_of};
use core::ptr;
use std::collections::VecDeque;

use super::config::Extended;
use super::null::{NullQueue, Ring};
use super::record::Violation;
use super::signal::Signal;
use super::world::{Context, Device, Key, World};
use super::{Call, Shared, extended, null, poll, post, query};
use crate::verbs::sys::*;

/// A context as the library allocates it. What is handed out points at the inner
/// `ibv_context` and carries the provenance of the whole.
#[repr(C)]
pub(super) struct ContextObj {
    vctx: verbs_context,
    /// Lives as long as the provider, which every context of the binding holds.
    shared: *const Shared,
}

/// A completion queue, with the ring of the null device.
#[repr(C)]
pub(super) struct CqObj {
    pub cq: ibv_cq,
    pub ring: Ring,
}

/// A queue pair, with the counters of the null device.
#[repr(C)]
pub(super) struct QpObj {
    pub ex: ibv_qp_ex,
    pub null: NullQueue,
}

/// The fake behind a context.
///
/// # Safety
/// The context was opened by a fake and is not closed.
pub(super) unsafe fn shared_of<'a>(context: *mut ibv_context) -> &'a Shared {
    let back = offset_of!(ContextObj, vctx) + offset_of!(verbs_context, context);
    // SAFETY: the pointer was made from one to the whole `ContextObj`, and the fake outlives its
    // contexts.
    unsafe { &*(*context.byte_sub(back).cast::<ContextObj>()).shared }
}

/// All-zero C structure.
pub(super) fn zeroed<T: Plain>() -> T {
    // SAFETY: `Plain` says that all-zero is a valid value.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

/// C structures of integers, raw pointers and optional functions.
///
/// # Safety
/// All-zero is a valid value.
pub(super) unsafe trait Plain {}

macro_rules! plain {
    ($($ty:ty)*) => {$(
        // SAFETY: integers, raw pointers, optional functions, and arrays and unions of these.
        unsafe impl Plain for $ty {}
    )*};
}
plain! {
    ibv_device verbs_context ibv_pd ibv_mr ibv_comp_channel ibv_cq ibv_srq ibv_qp_ex ibv_ah
    ibv_qp_attr ibv_device_attr ibv_port_attr
}

/// Copies a name into a field, cut so that a zero byte ends it.
pub(super) fn fill(field: &mut [c_char], text: &str) {
    let room = field.len() - 1;
    for (to, from) in field[..room].iter_mut().zip(text.bytes()) {
        *to = from.cast_signed();
    }
}

impl World {
    /// The list; its devices live until it is freed and no context holds them.
    pub fn get_device_list(&mut self) -> (*mut *mut ibv_device, usize) {
        if let Some(errno) = self.config.list_errno {
            set_errno(errno);
            return (ptr::null_mut(), 0);
        }
        let mut list = Vec::new();
        for (index, config) in self.config.devices.iter().enumerate() {
            let mut device: ibv_device = zeroed();
            device.node_type = ibv_node_type::IBV_NODE_CA;
            device.transport_type = ibv_transport_type::IBV_TRANSPORT_IB;
            fill(&mut device.name, &config.name);
            fill(&mut device.dev_name, &format!("uverbs{index}"));
            fill(&mut device.ibdev_path, &config.ibdev_path);
            let ptr = Box::into_raw(Box::new(device));
            self.devices.insert(ptr.addr(), Device { ptr, index, holders: 1 });
            list.push(ptr);
        }
        let n = list.len();
        list.push(ptr::null_mut());
        let list = Box::into_raw(list.into_boxed_slice());
        let first = list.cast::<*mut ibv_device>();
        self.lists.insert(first.addr(), list);
        (first, n)
    }

    pub fn free_device_list(&mut self, list: *mut *mut ibv_device) {
        let Some(list) = self.lists.remove(&list.addr()) else {
            self.missing("free_device_list");
            return;
        };
        // SAFETY: made by `Box::into_raw` and in the table once.
        let list = unsafe { Box::from_raw(list) };
        for device in list.iter().filter(|d| !d.is_null()) {
            self.release_device(device.addr());
        }
    }

    fn release_device(&mut self, key: Key) {
        let device = self.devices.get_mut(&key).expect("held by a list or a context");
        device.holders -= 1;
        if device.holders == 0 {
            // SAFETY: made by `Box::into_raw`; nobody holds it any more.
            drop(unsafe { Box::from_raw(device.ptr) });
            self.devices.remove(&key);
        }
    }

    pub fn open_device(&mut self, shared: *const Shared, device: Key) -> *mut ibv_context {
        let ordered = self.ordered(Call::OpenDevice).or(self.config.open_errno);
        if let Some(errno) = ordered {
            set_errno(errno);
            return ptr::null_mut();
        }
        let Some(signal) = Signal::new() else {
            set_errno(libc::EMFILE);
            return ptr::null_mut();
        };
        let Some(entry) = self.devices.get_mut(&device) else {
            set_errno(self.missing("open_device").abs());
            return ptr::null_mut();
        };
        entry.holders += 1;
        let mut vctx: verbs_context = zeroed();
        vctx.query_port = Some(query::query_port);
        vctx.create_qp_ex = Some(extended::create_qp_ex);
        let whole = size_of::<verbs_context>();
        // A field at an offset is there when `sz` reaches from it to the end.
        vctx.sz = match self.config.extended {
            Extended::Full | Extended::Absent => whole,
            Extended::NoQueryPort => whole - offset_of!(verbs_context, create_qp_ex),
            Extended::NoCreateQp => whole - offset_of!(verbs_context, get_srq_num),
        };
        if self.config.extended != Extended::Absent {
            vctx.context.abi_compat = ptr::without_provenance_mut(ABI_IS_EXTENDED);
        }
        vctx.context.device = entry.ptr;
        vctx.context.cmd_fd = -1;
        vctx.context.async_fd = signal.fd();
        vctx.context.num_comp_vectors = 1;
        vctx.context.ops = operations(self.is_null);
        let ptr = Box::into_raw(Box::new(ContextObj { vctx, shared }));
        let entry = Context { ptr, device, signal, events: VecDeque::new() };
        let context = entry.inner();
        self.contexts.insert(context.addr(), entry);
        context
    }

    pub fn close_device(&mut self, key: Key) -> c_int {
        let call = "close_device";
        if !self.contexts.contains_key(&key) {
            return self.missing(call);
        }
        let pds = self.pds.values().filter(|o| o.context == key).count();
        let channels = self.channels.values().filter(|o| o.context == key).count();
        let cqs = self.cqs.values().filter(|o| o.context == key).count();
        if let Some(busy) = self.busy(call, pds + channels + cqs) {
            return busy;
        }
        let context = self.contexts.remove(&key).expect("looked up above");
        self.release_device(context.device);
        // SAFETY: made by `Box::into_raw` and in the table once.
        drop(unsafe { Box::from_raw(context.ptr) });
        0
    }

    /// `EBUSY` and a violation when something made from the object is alive.
    pub fn busy(&mut self, call: &'static str, children: usize) -> Option<c_int> {
        (children > 0).then(|| {
            self.violation(Violation::ChildrenAlive { call, children });
            self.signed(libc::EBUSY)
        })
    }

    /// `EBUSY` and a violation when events about the object are not acknowledged.
    pub fn unacknowledged(&mut self, call: &'static str, events: u32) -> Option<c_int> {
        (events > 0).then(|| {
            self.violation(Violation::Unacknowledged { call, events });
            self.signed(libc::EBUSY)
        })
    }
}

impl Context {
    /// The part that the program sees.
    pub fn inner(&self) -> *mut ibv_context {
        // SAFETY: a place inside a live allocation; no reference is made, so the result may be
        // used for the whole of it.
        unsafe { &raw mut (*self.ptr).vctx.context }
    }
}

fn operations(null: bool) -> ibv_context_ops {
    // SAFETY: all-zero is a structure of absent functions.
    let mut ops: ibv_context_ops = unsafe { MaybeUninit::zeroed().assume_init() };
    ops._compat_query_port = Some(query::compat_query_port);
    ops.req_notify_cq = Some(poll::req_notify_cq);
    if null {
        ops.poll_cq = Some(null::poll_cq);
        ops.post_send = Some(null::post_send);
        ops.post_recv = Some(null::post_recv);
        ops.post_srq_recv = Some(null::post_srq_recv);
    } else {
        ops.poll_cq = Some(poll::poll_cq);
        ops.post_send = Some(post::post_send);
        ops.post_recv = Some(post::post_recv);
        ops.post_srq_recv = Some(post::post_srq_recv);
    }
    ops
}
