//! Asynchronous events, completion events, and descriptors that do not block.

use core::mem::MaybeUninit;
use core::ptr;

use doorbell_core::transport::{AsyncEvent, WaitSet};
use doorbell_core::verbs::{AsyncEventKind, AsyncObject};

use super::objects::Errno;
use super::sys::{self, errno, event_of};
use super::transport::HwTransport;

/// Events that wait for the program. Beyond them the oldest go: a program that has not asked for a
/// thousand does not ask. Higher: memory, 28 bytes each.
pub(super) const MAX_EVENTS: usize = 1024;

/// Makes a descriptor of the library answer `EAGAIN` instead of blocking.
pub(super) fn unblock(fd: i32) -> Result<(), Errno> {
    // SAFETY: plain calls on a descriptor that the caller has open.
    unsafe {
        let flags = libc::fcntl(fd, libc::F_GETFL);
        if flags < 0 {
            return Err(Errno(errno()));
        }
        if flags & libc::O_NONBLOCK == 0
            && libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) < 0
        {
            return Err(Errno(errno()));
        }
    }
    Ok(())
}

impl HwTransport {
    /// Takes the asynchronous events that are there, acknowledges them, and lets the objects that
    /// they concern know. Those of a newer library are passed over.
    pub(super) fn take_events(&mut self) {
        let provider = self.device.context().provider().clone();
        let context = self.device.context().as_ptr();
        loop {
            // Port events fill only half of the element in.
            let mut event = MaybeUninit::zeroed();
            // SAFETY: the context is open; the descriptor does not block.
            if unsafe { provider.get_async_event(context, &mut event) } != 0 {
                return;
            }
            // SAFETY: the call has filled it in.
            let raw = unsafe { event_of(&event) };
            if let Ok(kind) = AsyncEventKind::try_from(raw.kind) {
                let seen = self.event(kind, raw.element);
                if self.events.len() == MAX_EVENTS {
                    self.events.pop_front();
                }
                self.events.push_back(seen);
                self.happened += 1;
            }
            // SAFETY: taken above, acknowledged once.
            unsafe { provider.ack_async_event(&mut event) };
        }
    }

    /// The event with the ids of this handle, and what follows from it.
    fn event(&mut self, kind: AsyncEventKind, element: usize) -> AsyncEvent {
        let mut seen = AsyncEvent { kind, qp: None, cq: None, srq: None };
        match kind.object() {
            AsyncObject::Qp => {
                let mut all = self.qps.iter_mut();
                let found = all.find(|(_, q)| q.pair.qp().as_ptr().addr() == element);
                if let Some((id, slot)) = found {
                    seen.qp = Some(id);
                    if is_fatal(kind) {
                        slot.pair.perhaps_failed();
                    }
                }
            }
            AsyncObject::Cq => {
                let mut all = self.cqs.iter_mut();
                if let Some((id, slot)) = all.find(|(_, c)| c.cq.as_ptr().addr() == element) {
                    seen.cq = Some(id);
                    slot.lost = true;
                }
            }
            AsyncObject::Srq => {
                let mut all = self.srqs.iter();
                seen.srq = all.find(|(_, s)| s.srq.as_ptr().addr() == element).map(|(id, _)| id);
            }
            AsyncObject::Device if kind == AsyncEventKind::DeviceFatal => self.device_lost = true,
            _ => {}
        }
        if let Some(cq) = seen.cq {
            self.lose_users_of(cq);
        }
        seen
    }

    /// The queue pairs of a lost completion queue are lost with it.
    fn lose_users_of(&mut self, cq: doorbell_core::transport::CqId) {
        for (_, slot) in self.qps.iter_mut().filter(|(_, slot)| slot.pair.cqs.contains(&cq)) {
            slot.pair.learn_state();
        }
    }

    /// Asks for an event at the next completion of the queues in `set`.
    pub(super) fn arm(&mut self, set: WaitSet) -> Result<(), Errno> {
        set.cq_indices().try_for_each(|i| self.arm_one(i, set.solicited_only(i)))
    }

    fn arm_one(&mut self, index: u32, solicited_only: bool) -> Result<(), Errno> {
        let Some((_, slot)) = self.cqs.at_mut(index as usize) else { return Ok(()) };
        // SAFETY: the queue is alive. 0: any completion, not only solicited ones.
        let rc = unsafe { sys::ibv_req_notify_cq(slot.cq.as_ptr(), solicited_only.into()) };
        super::objects::checked(rc)
    }

    /// Takes and acknowledges the completion events that are there.
    pub(super) fn drain_channel(&mut self) {
        let provider = self.device.context().provider().clone();
        loop {
            let (mut cq, mut context) = (ptr::null_mut(), ptr::null_mut());
            // SAFETY: the channel is alive, its descriptor does not block, and there is room for
            // both answers.
            let rc = unsafe {
                provider.get_cq_event(self.channel.as_ptr(), &raw mut cq, &raw mut context)
            };
            if rc != 0 {
                return;
            }
            // SAFETY: the library's pointer to one of our queues; each event once.
            unsafe { provider.ack_cq_events(cq, 1) };
        }
    }
}

/// Events after which a queue pair takes no part any more.
fn is_fatal(kind: AsyncEventKind) -> bool {
    matches!(kind, AsyncEventKind::QpFatal | AsyncEventKind::QpReqErr | AsyncEventKind::QpAccessErr)
}
