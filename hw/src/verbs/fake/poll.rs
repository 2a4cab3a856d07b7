//! Completion queues: what goes in, what a poll gives out, how a channel is woken.

use core::ffi::c_int;

use doorbell_core::verbs::QpState;

use super::Call;
use super::context::shared_of;
use super::record::Violation;
use super::world::{Armed, Cqe, Frees, Key, Qp, Target, World};
use crate::verbs::sys::*;

/// `IBV_EVENT_CQ_ERR`.
const CQ_ERR: u32 = 0;

/// What stands in a field that the manual calls invalid.
const JUNK: u32 = 0xA5A5_A5A5;

pub(super) unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, n: c_int, wc: *mut ibv_wc) -> c_int {
    // SAFETY: the caller's queue is alive and there is room for `n` completions.
    unsafe { shared_of((*cq).context).lock().poll_cq(cq.addr(), n, wc) }
}

pub(super) unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    // SAFETY: the caller's queue is alive.
    let shared = unsafe { shared_of((*cq).context) };
    let mut world = shared.lock();
    if let Some(errno) = world.ordered(Call::ReqNotify) {
        return world.signed(errno);
    }
    let armed = if solicited_only == 0 { Armed::Any } else { Armed::Solicited };
    match world.cqs.get_mut(&cq.addr()) {
        Some(cq) => {
            // Arming for all is not weakened by arming for solicited afterwards.
            cq.armed = if cq.armed == Armed::Any { Armed::Any } else { armed };
            0
        }
        None => world.missing("req_notify_cq"),
    }
}

/// A completion as C sees it.
fn as_wc(cqe: &Cqe) -> ibv_wc {
    let ok = cqe.status == 0;
    // Only id, status, vendor error and QP number mean something on error.
    let field = |valid: bool, value: u32| if valid && ok { value } else { JUNK };
    let low = JUNK as u16;
    ibv_wc {
        wr_id: cqe.wr_id,
        status: cqe.status.into(),
        opcode: field(true, cqe.opcode.into()),
        vendor_err: if ok { JUNK } else { cqe.vendor_err },
        byte_len: field(true, cqe.byte_len),
        imm_data_invalidated_rkey_union: imm_data_invalidated_rkey_union_t {
            invalidated_rkey: field(cqe.data.is_some(), cqe.data.unwrap_or(0)),
        },
        qp_num: cqe.qpn,
        src_qp: field(cqe.src_qp.is_some(), cqe.src_qp.unwrap_or(0)),
        wc_flags: field(true, cqe.flags),
        pkey_index: low,
        slid: low,
        sl: low as u8,
        dlid_path_bits: low as u8,
    }
}

impl World {
    /// # Safety
    /// Room for `n` completions at `wc`.
    unsafe fn poll_cq(&mut self, key: Key, n: c_int, wc: *mut ibv_wc) -> c_int {
        if let Some(errno) = self.ordered(Call::PollCq) {
            return -errno;
        }
        let Some(cq) = self.cqs.get_mut(&key) else {
            self.missing("poll_cq");
            return -1;
        };
        if cq.overrun {
            return -1;
        }
        let n = usize::try_from(n).unwrap_or(0).min(cq.entries.len());
        let taken: Vec<Cqe> = cq.entries.drain(..n).collect();
        for (i, cqe) in taken.iter().enumerate() {
            // SAFETY: the caller's room.
            unsafe { wc.add(i).write(as_wc(cqe)) };
            self.free_slot(cqe);
        }
        c_int::try_from(n).unwrap_or(c_int::MAX)
    }

    /// Slots come back when a completion is polled, as in a driver: it looks at no other place.
    fn free_slot(&mut self, cqe: &Cqe) {
        match cqe.frees {
            Frees::Srq(srq) => self.srqs.get_mut(&srq).expect("outlives its QPs").used -= 1,
            Frees::Nothing => {}
            Frees::Recv => self.qps.get_mut(&cqe.qp).expect("purged at destroy").rq_used -= 1,
            Frees::Send(position) => {
                let qp = self.qps.get_mut(&cqe.qp).expect("purged at destroy");
                qp.tail = position + 1;
            }
        }
    }

    /// The device writes a completion.
    pub fn push_cqe(&mut self, key: Key, cqe: Cqe) {
        let cq = self.cqs.get_mut(&key).expect("a CQ outlives its QPs");
        if cq.overrun {
            return;
        }
        if cq.entries.len() >= cq.depth {
            cq.overrun = true;
            let context = cq.context;
            self.raise_on(context, CQ_ERR, Target::Cq(key));
            self.lose_users_of(key);
            return;
        }
        let wakes = match cq.armed {
            Armed::No => false,
            Armed::Solicited => cqe.solicited || cqe.status != 0,
            Armed::Any => true,
        };
        cq.entries.push_back(cqe);
        if wakes {
            cq.armed = Armed::No;
            if let Some(channel) = cq.channel.and_then(|c| self.channels.get_mut(&c)) {
                channel.queue.push_back(key);
                channel.signal.set(true);
            }
        }
    }

    /// The queue pairs of a queue that overran go to ERR with it.
    fn lose_users_of(&mut self, cq: Key) {
        let up = |q: &Qp| !matches!(q.state, QpState::Reset | QpState::Init | QpState::Err);
        let uses = |q: &Qp| q.send_cq == cq || q.recv_cq == cq;
        let users = self.qps.iter().filter(|(_, q)| uses(q) && up(q));
        for key in users.map(|(key, _)| *key).collect::<Vec<_>>() {
            self.enter_error(key);
        }
    }

    /// The next CQ with an event: its pointer and its user context; -1 and `errno` without one.
    pub fn get_cq_event(&mut self, key: Key) -> Result<*mut ibv_cq, c_int> {
        let call = "get_cq_event";
        let Some(channel) = self.channels.get_mut(&key) else {
            return Err(self.missing(call).abs());
        };
        let Some(cq) = channel.queue.pop_front() else {
            if channel.signal.blocks() {
                self.violation(Violation::WouldBlock { call });
            }
            return Err(libc::EAGAIN);
        };
        channel.signal.set(!channel.queue.is_empty());
        let cq = self.cqs.get_mut(&cq).expect("removed from the channel at destroy");
        cq.completions_unacked += 1;
        Ok(cq.ptr.cast())
    }
}
