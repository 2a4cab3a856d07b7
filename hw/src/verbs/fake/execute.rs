//! What the device does when the script says so: executes sends, fills receives, flushes.

use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

use doorbell_core::transport::Sge;
use doorbell_core::verbs::{
    AccessFlags, AsyncEventKind, GRH_BYTES, QpState, QpType, SendFlags, WcFlags, WcOpcode,
    WcStatus, WrOpcode,
};

use super::record::{PostedRecv, SentWr};
use super::world::{Cqe, Frees, Key, Qp, Target, World, Wqe};

/// What became of a message.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[must_use]
pub enum Delivery {
    /// It completed the oldest receive.
    Done,
    /// No receive was posted: on RC the peer would get an RNR NAK. Nothing changed.
    NoReceive,
    /// It did not fit or the buffer is not accessible: the receive failed with this status and
    /// the QP is in ERR.
    Failed(WcStatus),
    /// The QP is in a state that drops packets.
    Dropped,
}

/// Stores bytes as a NIC does: they may be read at the same time.
///
/// # Safety
/// Writable memory of that length, touched by others only atomically.
pub(super) unsafe fn store(to: *mut u8, bytes: &[u8]) {
    for (i, &byte) in bytes.iter().enumerate() {
        // SAFETY: the caller's promise; a byte is always aligned.
        unsafe { AtomicU8::from_ptr(to.add(i)) }.store(byte, Relaxed);
    }
}

/// Loads bytes as a NIC does.
///
/// # Safety
/// Readable memory of that length, touched by others only atomically.
pub(super) unsafe fn load(from: *mut u8, len: usize) -> Vec<u8> {
    // SAFETY: the caller's promise; a byte is always aligned.
    (0..len).map(|i| unsafe { AtomicU8::from_ptr(from.add(i)) }.load(Relaxed)).collect()
}

/// What arrives, besides its bytes.
#[derive(Copy, Clone, Default)]
pub(super) struct Arrival {
    pub opcode: Option<WcOpcode>,
    pub imm: Option<u32>,
    pub inv: Option<u32>,
    /// Length to report when there are no bytes to store.
    pub written: u32,
}

/// Right that the own side's memory needs for a send of this kind.
pub(super) fn local_right(op: WrOpcode) -> AccessFlags {
    if op.is_read_or_atomic() { AccessFlags::LOCAL_WRITE } else { AccessFlags::empty() }
}

impl Qp {
    fn send_cqe(&self, key: Key, wqe: &Wqe, status: u8, vendor_err: u32) -> Cqe {
        Cqe {
            qp: key,
            qpn: self.qpn,
            wr_id: wqe.wr.wr_id,
            status,
            vendor_err,
            opcode: wqe.wr.opcode.wc_opcode().map_or(0, WcOpcode::value),
            // Valid for READ and ATOMIC only, but no driver leaves it unset.
            byte_len: u32::try_from(wqe.wr.len()).unwrap_or(u32::MAX),
            data: None,
            flags: 0,
            src_qp: None,
            solicited: wqe.wr.flags.contains(SendFlags::SOLICITED),
            frees: Frees::Send(wqe.position),
        }
    }

    fn recv_cqe(&self, key: Key, wr_id: u64, status: WcStatus, vendor_err: u32) -> Cqe {
        Cqe {
            qp: key,
            qpn: self.qpn,
            wr_id,
            status: status.value(),
            vendor_err,
            opcode: WcOpcode::Recv.value(),
            byte_len: 0,
            data: None,
            flags: 0,
            src_qp: None,
            solicited: true,
            frees: self.srq.map_or(Frees::Recv, Frees::Srq),
        }
    }
}

impl World {
    fn qp(&mut self, key: Key) -> &mut Qp {
        self.qps.get_mut(&key).expect("the caller looked it up")
    }

    /// Executes at most `n` of the oldest sends; how many. One whose own memory is not
    /// accessible fails, as on a device.
    pub fn complete(&mut self, key: Key, n: usize) -> usize {
        for done in 0..n {
            let qp = &self.qps[&key];
            let (pd, cq) = (qp.pd, qp.send_cq);
            let Some(wqe) = qp.sq.front() else { return done };
            let need = local_right(wqe.wr.opcode);
            if wqe.wr.sges.iter().any(|s| s.len > 0 && self.resolve(pd, s, need).is_none()) {
                self.fail(key, WcStatus::LocProtErr.value(), 0);
                return done;
            }
            let qp = self.qp(key);
            let wqe = qp.sq.pop_front().expect("looked at above");
            if wqe.signalled {
                let cqe = qp.send_cqe(key, &wqe, WcStatus::Success.value(), 0);
                self.push_cqe(cq, cqe);
            }
        }
        n
    }

    /// Fails the oldest send, whose error stops the queue; `false` without one.
    pub fn fail(&mut self, key: Key, status: u8, vendor_err: u32) -> bool {
        let qp = self.qp(key);
        let Some(wqe) = qp.sq.pop_front() else { return false };
        let cqe = qp.send_cqe(key, &wqe, status, vendor_err);
        let (cq, ty) = (qp.send_cq, qp.ty);
        self.push_cqe(cq, cqe);
        if ty == QpType::Rc {
            self.enter_error(key);
        } else {
            // UC and UD go on receiving.
            self.qp(key).state = QpState::Sqe;
            self.flush_sends(key);
        }
        true
    }

    /// The device finds an error: the library's copy of the state does not follow.
    pub fn enter_error(&mut self, key: Key) {
        self.qp(key).state = QpState::Err;
        self.flush(key);
    }

    /// Flushes both queues; receives of an SRQ stay there, and an event says that the QP takes
    /// no more of them.
    pub fn flush(&mut self, key: Key) {
        self.flush_sends(key);
        self.flush_recvs(key);
        let qp = &self.qps[&key];
        if qp.srq.is_some() {
            let context = self.pds[&qp.pd].context;
            let kind = AsyncEventKind::QpLastWqeReached.value().into();
            self.raise_on(context, kind, Target::Qp(key));
        }
    }

    pub fn flush_sends(&mut self, key: Key) {
        while let Some(wqe) = self.qp(key).sq.pop_front() {
            let qp = &self.qps[&key];
            let cqe = qp.send_cqe(key, &wqe, WcStatus::WrFlushErr.value(), 0);
            self.push_cqe(qp.send_cq, cqe);
        }
    }

    pub fn flush_recvs(&mut self, key: Key) {
        while let Some(wr) = self.qp(key).rq.pop_front() {
            let qp = &self.qps[&key];
            let cqe = qp.recv_cqe(key, wr.wr_id, WcStatus::WrFlushErr, 0);
            self.push_cqe(qp.recv_cq, cqe);
        }
    }

    fn next_recv(&mut self, key: Key) -> Option<PostedRecv> {
        let Some(srq) = self.qps[&key].srq else { return self.qp(key).rq.pop_front() };
        let wr = self.srqs.get_mut(&srq).expect("outlives its QPs").posted.pop_front()?;
        self.check_srq_limit(srq);
        Some(wr)
    }

    /// A message for the oldest receive.
    pub fn receive(&mut self, key: Key, bytes: &[u8], arrival: Arrival) -> Delivery {
        let qp = &self.qps[&key];
        if !matches!(qp.state, QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe) {
            return Delivery::Dropped;
        }
        let (pd, cq, datagram) = (qp.pd, qp.recv_cq, qp.ty == QpType::Ud);
        let Some(wr) = self.next_recv(key) else { return Delivery::NoReceive };
        let mut payload = if datagram { vec![0; GRH_BYTES as usize] } else { Vec::new() };
        payload.extend_from_slice(bytes);
        let stored = match arrival.opcode {
            Some(_) => Ok(()),
            None => self.scatter(pd, &wr.sges, &payload),
        };
        let qp = &self.qps[&key];
        if let Err(status) = stored {
            let cqe = qp.recv_cqe(key, wr.wr_id, status, 0);
            self.push_cqe(cq, cqe);
            self.enter_error(key);
            return Delivery::Failed(status);
        }
        let mut cqe = qp.recv_cqe(key, wr.wr_id, WcStatus::Success, 0);
        let mut flags = WcFlags::empty();
        flags.set(WcFlags::GRH, datagram);
        flags.set(WcFlags::WITH_IMM, arrival.imm.is_some());
        flags.set(WcFlags::WITH_INV, arrival.inv.is_some());
        cqe.flags = flags.bits();
        cqe.data = arrival.imm.map(u32::to_be).or(arrival.inv);
        cqe.byte_len = u32::try_from(payload.len()).unwrap_or(u32::MAX).max(arrival.written);
        cqe.opcode = arrival.opcode.unwrap_or(WcOpcode::Recv).value();
        cqe.src_qp = datagram.then_some(1);
        self.push_cqe(cq, cqe);
        Delivery::Done
    }

    /// Stores bytes into scatter elements, all or nothing.
    pub fn scatter(&self, pd: Key, sges: &[Sge], bytes: &[u8]) -> Result<(), WcStatus> {
        let room: u64 = sges.iter().map(|s| u64::from(s.len)).sum();
        if bytes.len() as u64 > room {
            return Err(WcStatus::LocLenErr);
        }
        let mut left = bytes;
        let mut places = Vec::new();
        for sge in sges {
            let (now, later) = left.split_at(left.len().min(sge.len as usize));
            left = later;
            if !now.is_empty() {
                let to = self.resolve(pd, sge, AccessFlags::LOCAL_WRITE);
                places.push((to.ok_or(WcStatus::LocProtErr)?, now));
            }
        }
        for (to, now) in places {
            // SAFETY: registered memory, which the program touches atomically only while the
            // device may write it.
            unsafe { store(to, now) };
        }
        Ok(())
    }

    /// Payload of a send as it is in memory now; `None` when the device could not read it.
    pub fn payload(&self, pd: Key, wr: &SentWr) -> Option<Vec<u8>> {
        if let Some(bytes) = &wr.inline {
            return Some(bytes.clone());
        }
        let mut payload = Vec::new();
        for sge in wr.sges.iter().filter(|s| s.len > 0) {
            let from = self.resolve(pd, sge, AccessFlags::empty())?;
            // SAFETY: registered memory of that length.
            payload.extend(unsafe { load(from, sge.len as usize) });
        }
        Some(payload)
    }

    /// Where a peer's access with this key goes, if it may.
    pub fn remote(&self, rkey: u32, addr: u64, len: usize, need: AccessFlags) -> Option<*mut u8> {
        // SAFETY: it is in the table, so it is alive; the field is never written.
        let mr = self.mrs.values().find(|m| unsafe { (*m.ptr).rkey } == rkey)?;
        let sge = Sge { addr, len: u32::try_from(len).ok()?, lkey: mr.lkey };
        self.resolve(mr.pd, &sge, need)
    }
}
