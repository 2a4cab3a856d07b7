//! Asynchronous events.

use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;
use core::ptr;

use doorbell_core::verbs::{AsyncEventKind, AsyncObject};

use super::record::Violation;
use super::world::{Event, Key, Target, World};
use crate::verbs::sys::*;

impl World {
    /// Queues an event at a context; an object that is gone has none.
    pub fn raise_on(&mut self, context: Key, kind: u32, target: Target) {
        if let Some(context) = self.contexts.get_mut(&context) {
            context.events.push_back(Event { kind, target });
            context.signal.set(true);
        }
    }

    /// Events about an object vanish with it.
    pub fn forget_events(&mut self, context: Key, target: Target) {
        if let Some(context) = self.contexts.get_mut(&context) {
            context.events.retain(|e| e.target != target);
            context.signal.set(!context.events.is_empty());
        }
    }

    /// The limit event comes once, when fewer receives are posted than the limit says.
    pub fn check_srq_limit(&mut self, key: Key) {
        let srq = self.srqs.get_mut(&key).expect("the caller looked it up");
        if srq.posted.len() < srq.limit as usize {
            srq.limit = 0;
            let context = self.pds[&srq.pd].context;
            let kind = AsyncEventKind::SrqLimitReached.value().into();
            self.raise_on(context, kind, Target::Srq(key));
        }
    }

    /// Unacknowledged events about the target, and a pointer to it.
    fn target(&mut self, target: Target) -> Option<(&mut u32, *mut c_void)> {
        Some(match target {
            Target::Cq(key) => {
                let cq = self.cqs.get_mut(&key)?;
                (&mut cq.async_unacked, cq.ptr.cast())
            }
            Target::Qp(key) => {
                let qp = self.qps.get_mut(&key)?;
                (&mut qp.async_unacked, qp.ptr.cast())
            }
            Target::Srq(key) => {
                let srq = self.srqs.get_mut(&key)?;
                (&mut srq.async_unacked, srq.ptr.cast())
            }
            Target::Port(_) => return None,
        })
    }

    pub fn get_async_event(
        &mut self,
        context: Key,
        event: &mut MaybeUninit<ibv_async_event>,
    ) -> c_int {
        let call = "get_async_event";
        let Some(entry) = self.contexts.get_mut(&context) else {
            set_errno(self.missing(call).abs());
            return -1;
        };
        let Some(Event { kind, target }) = entry.events.pop_front() else {
            if entry.signal.blocks() {
                self.violation(Violation::WouldBlock { call });
            }
            set_errno(libc::EAGAIN);
            return -1;
        };
        entry.signal.set(!entry.events.is_empty());
        // As the library, which does not know whose an event of an unknown kind is.
        let target = match (AsyncEventKind::try_from(kind), target) {
            (Ok(_), _) | (_, Target::Port(_)) => target,
            (Err(_), _) => Target::Port(0),
        };
        let object = self.target(target).map(|(unacked, ptr)| {
            *unacked += 1;
            ptr
        });
        let at = event.as_mut_ptr();
        // SAFETY: room for one event. As the library does, a port number is written to its four
        // bytes only, and the kind as an integer, since it may be none that the binding knows.
        unsafe {
            (&raw mut (*at).event_type).cast::<u32>().write(kind);
            let element = &raw mut (*at).element;
            match (object, target) {
                (Some(ptr), _) => element.cast::<*mut c_void>().write(ptr),
                (None, Target::Port(port)) => element.cast::<c_int>().write(port),
                (None, _) => element.cast::<*mut c_void>().write(ptr::null_mut()),
            }
        }
        0
    }

    /// As the library, it looks at the kind to know which object to count for.
    pub fn ack_async_event(&mut self, event: &MaybeUninit<ibv_async_event>) {
        let call = "ack_async_event";
        let at = event.as_ptr();
        // SAFETY: the caller got the event from `get_async_event`, which wrote the kind.
        let kind = unsafe { (&raw const (*at).event_type).cast::<u32>().read() };
        let Ok(kind) = AsyncEventKind::try_from(kind) else { return };
        if matches!(kind.object(), AsyncObject::Port | AsyncObject::Device | AsyncObject::Wq) {
            return;
        }
        // SAFETY: for these kinds a whole pointer was written.
        let key = unsafe { (&raw const (*at).element).cast::<*mut c_void>().read() }.addr();
        let target = match kind.object() {
            AsyncObject::Cq => Target::Cq(key),
            AsyncObject::Srq => Target::Srq(key),
            _ => Target::Qp(key),
        };
        match self.target(target) {
            None => {
                self.missing(call);
            }
            Some((0, _)) => self.violation(Violation::AckedTooMany { call, acked: 1, taken: 0 }),
            Some((unacked, _)) => *unacked -= 1,
        }
    }
}
