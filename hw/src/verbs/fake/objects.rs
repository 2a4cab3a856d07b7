//! Protection domains, memory regions, channels, completion queues, shared receive queues,
//! address handles: creation, destruction, and the order that the library asks for.

use core::ffi::{c_int, c_void};
use core::ptr;
use std::collections::VecDeque;

use doorbell_core::verbs::{AccessFlags, Lkey};

use super::Call;
use super::context::{CqObj, zeroed};
use super::null::Ring;
use super::record::{Counts, Violation};
use super::signal::Signal;
use super::world::{Ah, Armed, Channel, Context, Cq, Key, Mr, Pd, Srq, World};
use crate::verbs::sys::*;

/// Null with `errno` set, as a creating function fails.
pub(super) fn refuse<T>(errno: c_int) -> *mut T {
    set_errno(errno.abs());
    ptr::null_mut()
}

/// Frees a C object that is in no table any more.
///
/// # Safety
/// Made by `Box::into_raw`, freed nowhere else.
pub(super) unsafe fn free<T>(ptr: *mut T) {
    // SAFETY: the caller's promise.
    drop(unsafe { Box::from_raw(ptr) });
}

impl World {
    pub fn context_ptr(&self, key: Key) -> *mut ibv_context {
        self.contexts.get(&key).map_or(ptr::null_mut(), Context::inner)
    }

    pub fn alloc_pd(&mut self, context: Key) -> *mut ibv_pd {
        let max = self.limits(context).max_pd as usize;
        if !self.contexts.contains_key(&context) {
            return refuse(self.missing("alloc_pd"));
        }
        if let Some(errno) = self.ordered(Call::AllocPd) {
            return refuse(errno);
        }
        if self.pds.len() >= max {
            return refuse(libc::ENOMEM);
        }
        let mut pd: ibv_pd = zeroed();
        pd.context = self.context_ptr(context);
        pd.handle = self.serial();
        let ptr = Box::into_raw(Box::new(pd));
        self.pds.insert(ptr.addr(), Pd { ptr, context });
        ptr
    }

    pub fn dealloc_pd(&mut self, key: Key) -> c_int {
        let call = "dealloc_pd";
        if !self.pds.contains_key(&key) {
            return self.missing(call);
        }
        let mrs = self.mrs.values().filter(|o| o.pd == key).count();
        let srqs = self.srqs.values().filter(|o| o.pd == key).count();
        let qps = self.qps.values().filter(|o| o.pd == key).count();
        let ahs = self.ahs.values().filter(|o| o.pd == key).count();
        if let Some(busy) = self.busy(call, mrs + srqs + qps + ahs) {
            return busy;
        }
        let pd = self.pds.remove(&key).expect("looked up above");
        // SAFETY: it was in the table once.
        unsafe { free(pd.ptr) };
        0
    }

    pub fn reg_mr(
        &mut self,
        pd: Key,
        addr: *mut c_void,
        length: usize,
        access: c_int,
    ) -> *mut ibv_mr {
        let Some(context) = self.pds.get(&pd).map(|p| p.context) else {
            return refuse(self.missing("reg_mr"));
        };
        if let Some(errno) = self.ordered(Call::RegMr) {
            return refuse(errno);
        }
        let limits = self.limits(context);
        let access = AccessFlags::from_bits_retain(access.cast_unsigned());
        let known = AccessFlags::all().contains(access) && access.validate().is_ok();
        if !known || addr.is_null() || length == 0 || length as u64 > limits.max_mr_size {
            return refuse(libc::EINVAL);
        }
        let locked = self.locked.saturating_add(length as u64);
        let over = self.config.memlock.is_some_and(|limit| locked > limit);
        if over || self.mrs.len() >= limits.max_mr as usize {
            return refuse(libc::ENOMEM);
        }
        self.locked = locked;
        let mut mr: ibv_mr = zeroed();
        let key = self.serial();
        mr.context = self.context_ptr(context);
        mr.pd = self.pds[&pd].ptr;
        mr.addr = addr;
        mr.length = length;
        mr.handle = key;
        // Not the handle, and not equal: a program that confuses them is found out.
        mr.lkey = key << 8 | 0x11;
        mr.rkey = key << 8 | 0x22;
        let lkey = Lkey(mr.lkey);
        let ptr = Box::into_raw(Box::new(mr));
        let entry = Mr { ptr, pd, addr: addr.cast(), len: length, access, lkey };
        self.mrs.insert(ptr.addr(), entry);
        ptr
    }

    pub fn dereg_mr(&mut self, key: Key) -> c_int {
        let Some(mr) = self.mrs.remove(&key) else { return self.missing("dereg_mr") };
        self.locked -= mr.len as u64;
        // SAFETY: it was in the table once.
        unsafe { free(mr.ptr) };
        0
    }

    pub fn create_comp_channel(&mut self, context: Key) -> *mut ibv_comp_channel {
        if !self.contexts.contains_key(&context) {
            return refuse(self.missing("create_comp_channel"));
        }
        if let Some(errno) = self.ordered(Call::CreateChannel) {
            return refuse(errno);
        }
        let Some(signal) = Signal::new() else { return refuse(libc::EMFILE) };
        let mut channel: ibv_comp_channel = zeroed();
        channel.context = self.context_ptr(context);
        channel.fd = signal.fd();
        let ptr = Box::into_raw(Box::new(channel));
        let queue = VecDeque::new();
        self.channels.insert(ptr.addr(), Channel { ptr, context, signal, queue });
        ptr
    }

    pub fn destroy_comp_channel(&mut self, key: Key) -> c_int {
        let call = "destroy_comp_channel";
        if !self.channels.contains_key(&key) {
            return self.missing(call);
        }
        let cqs = self.cqs.values().filter(|o| o.channel == Some(key)).count();
        if let Some(busy) = self.busy(call, cqs) {
            return busy;
        }
        let channel = self.channels.remove(&key).expect("looked up above");
        // SAFETY: it was in the table once.
        unsafe { free(channel.ptr) };
        0
    }

    pub fn create_cq(
        &mut self,
        context: Key,
        cqe: c_int,
        cq_context: *mut c_void,
        channel: *mut ibv_comp_channel,
    ) -> *mut ibv_cq {
        let call = "create_cq";
        let channel_key = (!channel.is_null()).then(|| channel.addr());
        let channel_ok = channel_key
            .is_none_or(|key| self.channels.get(&key).is_some_and(|c| c.context == context));
        if !self.contexts.contains_key(&context) || !channel_ok {
            return refuse(self.missing(call));
        }
        if let Some(errno) = self.ordered(Call::CreateCq) {
            return refuse(errno);
        }
        let limits = self.limits(context);
        let asked = u32::try_from(cqe).ok().filter(|&n| n >= 1 && n <= limits.max_cqe);
        let Some(asked) = asked else { return refuse(libc::EINVAL) };
        if self.cqs.len() >= limits.max_cq as usize {
            return refuse(libc::ENOMEM);
        }
        let depth = self.rounded(asked, limits.max_cqe);
        let mut cq: ibv_cq = zeroed();
        cq.context = self.context_ptr(context);
        cq.channel = channel;
        cq.cq_context = cq_context;
        cq.handle = self.serial();
        cq.cqe = depth.cast_signed();
        let ring = Ring::new(depth, self.is_null);
        let ptr = Box::into_raw(Box::new(CqObj { cq, ring }));
        let entry = Cq {
            ptr,
            context,
            channel: channel_key,
            depth: depth as usize,
            entries: VecDeque::new(),
            armed: Armed::No,
            overrun: false,
            completions_unacked: 0,
            async_unacked: 0,
        };
        self.cqs.insert(ptr.addr(), entry);
        ptr.cast()
    }

    pub fn destroy_cq(&mut self, key: Key) -> c_int {
        let call = "destroy_cq";
        let Some(cq) = self.cqs.get(&key) else { return self.missing(call) };
        let unacked = cq.completions_unacked + cq.async_unacked;
        let qps = self.qps.values().filter(|q| q.send_cq == key || q.recv_cq == key).count();
        if let Some(busy) = self.busy(call, qps).or_else(|| self.unacknowledged(call, unacked)) {
            return busy;
        }
        let cq = self.cqs.remove(&key).expect("looked up above");
        if let Some(channel) = cq.channel.and_then(|c| self.channels.get_mut(&c)) {
            channel.queue.retain(|&queued| queued != key);
            channel.signal.set(!channel.queue.is_empty());
        }
        self.forget_events(cq.context, super::world::Target::Cq(key));
        // SAFETY: it was in the table once, and no QP of it is left.
        unsafe {
            (*cq.ptr).ring.free();
            free(cq.ptr);
        }
        0
    }

    pub fn create_srq(&mut self, pd: Key, attr: &mut ibv_srq_init_attr) -> *mut ibv_srq {
        let Some(context) = self.pds.get(&pd).map(|p| p.context) else {
            return refuse(self.missing("create_srq"));
        };
        if let Some(errno) = self.ordered(Call::CreateSrq) {
            return refuse(errno);
        }
        let limits = self.limits(context);
        let asked = &mut attr.attr;
        let fits = (1..=limits.max_srq_wr).contains(&asked.max_wr)
            && (1..=limits.max_srq_sge).contains(&asked.max_sge);
        if !fits {
            return refuse(libc::EINVAL);
        }
        if self.srqs.len() >= limits.max_srq as usize {
            return refuse(libc::ENOMEM);
        }
        asked.max_wr = self.rounded(asked.max_wr, limits.max_srq_wr);
        asked.max_sge = self.rounded(asked.max_sge, limits.max_srq_sge);
        let mut srq: ibv_srq = zeroed();
        srq.context = self.context_ptr(context);
        srq.srq_context = attr.srq_context;
        srq.pd = self.pds[&pd].ptr;
        srq.handle = self.serial();
        let ptr = Box::into_raw(Box::new(srq));
        let entry = Srq {
            ptr,
            pd,
            max_wr: attr.attr.max_wr,
            max_sge: attr.attr.max_sge,
            // The manual: not valid at creation.
            limit: 0,
            posted: VecDeque::new(),
            used: 0,
            counts: Counts::default(),
            async_unacked: 0,
        };
        self.srqs.insert(ptr.addr(), entry);
        ptr
    }

    pub fn modify_srq(&mut self, key: Key, attr: &ibv_srq_attr, mask: c_int) -> c_int {
        if let Some(errno) = self.ordered(Call::ModifySrq) {
            return self.signed(errno);
        }
        let refused = self.signed(libc::EINVAL);
        let Some(srq) = self.srqs.get_mut(&key) else { return self.missing("modify_srq") };
        let only_limit = mask.cast_unsigned() == ibv_srq_attr_mask::IBV_SRQ_LIMIT.0;
        if !only_limit || attr.srq_limit > srq.max_wr {
            return refused;
        }
        srq.limit = attr.srq_limit;
        self.check_srq_limit(key);
        0
    }

    pub fn destroy_srq(&mut self, key: Key) -> c_int {
        let call = "destroy_srq";
        let Some(srq) = self.srqs.get(&key) else { return self.missing(call) };
        let unacked = srq.async_unacked;
        let qps = self.qps.values().filter(|q| q.srq == Some(key)).count();
        if let Some(busy) = self.busy(call, qps).or_else(|| self.unacknowledged(call, unacked)) {
            return busy;
        }
        let srq = self.srqs.remove(&key).expect("looked up above");
        let context = self.pds[&srq.pd].context;
        self.forget_events(context, super::world::Target::Srq(key));
        // SAFETY: it was in the table once.
        unsafe { free(srq.ptr) };
        0
    }

    pub fn create_ah(&mut self, pd: Key, attr: &ibv_ah_attr) -> *mut ibv_ah {
        let Some(context) = self.pds.get(&pd).map(|p| p.context) else {
            return refuse(self.missing("create_ah"));
        };
        if let Some(errno) = self.ordered(Call::CreateAh) {
            return refuse(errno);
        }
        if !self.path_is_valid(context, attr) {
            return refuse(libc::EINVAL);
        }
        let mut ah: ibv_ah = zeroed();
        ah.context = self.context_ptr(context);
        ah.pd = self.pds[&pd].ptr;
        ah.handle = self.serial();
        let ptr = Box::into_raw(Box::new(ah));
        self.ahs.insert(ptr.addr(), Ah { ptr, pd, attr: *attr });
        ptr
    }

    pub fn destroy_ah(&mut self, key: Key) -> c_int {
        let Some(ah) = self.ahs.remove(&key) else { return self.missing("destroy_ah") };
        // SAFETY: it was in the table once.
        unsafe { free(ah.ptr) };
        0
    }

    pub fn ack_cq_events(&mut self, key: Key, acked: u32) {
        let call = "ack_cq_events";
        let Some(cq) = self.cqs.get_mut(&key) else {
            self.missing(call);
            return;
        };
        let taken = cq.completions_unacked;
        cq.completions_unacked = taken.saturating_sub(acked);
        if acked > taken {
            self.violation(Violation::AckedTooMany { call, acked, taken });
        }
    }
}
