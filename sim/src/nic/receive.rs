//! Receive units, receive WQEs, payload writes, ATOMICs.

use std::collections::VecDeque;

use doorbell_core::transport::WorkQueue;
use doorbell_core::units::{Span, Time};
use doorbell_core::verbs::{
    AccessFlags, AsyncEventKind, NakCode, Opcode, Psn, QKey, QpState, QpType, Rkey, WcStatus,
};

use super::Nic;
use super::doorbell::{subject, wqe_key};
use super::env::{Env, NicEvent, Tag, Wake, kind};
use super::postmortem::{Arrived, Refused, Sender, Why};
use super::qp::{Arrival, Deferred, HostWrite};
use super::queues::CqeKind;
use super::recv_queue::RecvQueue;
use crate::engine::Class;
use crate::fabric::PauseReason;
use crate::memory::{MemoryError, Pd, RegionId, RegionKind};
use crate::pcie::{Cause, Kind};
use crate::rc::{
    Accept, BadInvalidate, BadRequest, DropReason, Ext, PacketDesc, Received, RecvDone, Target,
};
use crate::wire::codec::Ecn;
use crate::wire::{PacketId, Payload};

/// Bytes that must be free again in the receive buffer before a paused link goes on: two packets
/// of the largest MTU. Less: more pause frames.
const PAUSE_HYSTERESIS: u64 = 2 * 4096;

/// Payload on its way to memory.
#[derive(Debug)]
pub(super) struct RxWrite {
    pub(super) qp: u32,
    pub(super) region: RegionId,
    pub(super) addr: u64,
    pub(super) len: u32,
    pub(super) payload: Payload,
    /// Message, for the timeline.
    pub(super) subject: u64,
    pub(super) submitted: Time,
    /// Of a request: its packet, and whether the message ends there.
    pub(super) order: Option<(Psn, bool)>,
}

/// An ATOMIC at the responder.
#[derive(Debug)]
pub(super) struct AtomicJob {
    qp: u32,
    life: u32,
    job: u32,
    region: RegionId,
    addr: u64,
    operands: Operands,
    bucket: u32,
    psn: Psn,
}

/// What an ATOMIC does, and the value that it found.
#[derive(Copy, Clone, Debug)]
struct Operands {
    add: bool,
    swap_add: u64,
    compare: u64,
    orig: u64,
}

impl Nic {
    /// A packet is at the port.
    pub fn on_arrival(&mut self, env: &mut Env<'_>, packet: PacketId) {
        self.stats.rx_packets += 1;
        let qp = match self.admit(&env.packets[packet.0]) {
            Ok(qp) => qp,
            Err(_) if is_cnp(&env.packets[packet.0].desc) => return self.ignore_cnp(env, packet),
            Err(why) => {
                self.note_late_answer(env.now, &env.packets[packet.0]);
                return self.discard(env, packet, why);
            }
        };
        if self.context_held(env, qp, Deferred::Rx(packet)) {
            self.rx_buffer(env, packet);
        }
    }

    /// Takes a packet into the receive buffer, or leaves it in front of the port when PCIe does
    /// not drain the buffer fast enough. There it keeps its room, so its sender waits for credit; a
    /// link that knows priority flow control pauses the class of such a packet, and what still
    /// comes is the headroom. A link that can do neither drops it.
    pub(super) fn rx_buffer(&mut self, env: &mut Env<'_>, packet: PacketId) {
        let inside = || {
            let qp = Self::qp_index(env.packets[packet.0].desc.dest);
            qp.is_some_and(|qp| self.goes_inside(qp))
        };
        if (self.rx_held.is_empty() && !self.rx_room.is_full()) || inside() {
            return self.rx_queue(env, packet);
        }
        let sl = env.packets[packet.0].sl;
        if !env.port.waits_for_room(self.port(), sl) {
            return self.discard(env, packet, Refused::NoRoom);
        }
        self.stats.rx_buffer_waits += 1;
        env.port.pause_full(env.now, self.port(), sl, env.fabric_out);
        let kept = env.port.keep(env.now);
        self.rx_held.push_back((packet, kept));
    }

    /// `bytes` have left the receive buffer: packets that were held back may come.
    pub(super) fn rx_leaves(&mut self, env: &mut Env<'_>, bytes: u32) {
        self.rx_room.leave(env.now, bytes);
        while !self.rx_room.is_full()
            && let Some((packet, kept)) = self.rx_held.pop_front()
        {
            if kept {
                env.port.take_kept(env.now, self.port(), env.fabric_out);
            }
            self.rx_queue(env, packet);
        }
        let low = self.rx_room.has(PAUSE_HYSTERESIS);
        let port = self.port();
        if low && self.rx_held.is_empty() && env.port.is_pausing(port, PauseReason::Full) {
            env.port.pause(env.now, port, PauseReason::Full, 0, env.fabric_out);
        }
    }

    /// Queues a packet at the receive unit of its QP.
    fn rx_queue(&mut self, env: &mut Env<'_>, packet: PacketId) {
        let p = &env.packets[packet.0];
        let desc = p.desc;
        let qp = Self::qp_index(desc.dest).expect("checked on arrival");
        self.rx_room.take(env.now, desc.len);
        let unit = self.qp(qp).map_or(0, |q| usize::from(q.rx));
        let mut service = self.cfg.rx_packet;
        if desc.opcode.consumes_recv() {
            service += self.cfg.rx_recv;
        }
        let op = desc.opcode.operation();
        let completes = op.ends_message() && (op.is_send() || op.consumes_recv());
        if completes && desc.len > 0 {
            service += self.cfg.rx_write;
        }
        let (at, service, latency) = match self.goes_inside(qp) {
            true => (env.now, Span::ZERO, Span::ZERO),
            false => {
                let service = self.clocked(env.now, service);
                let device = self.clocked(env.now, self.cfg.rx_device);
                let latency = self.clocked(env.now, self.cfg.pipeline_latency);
                (self.rx_device.reserve(env.now, device).0, service, latency)
            }
        };
        let (start, end) = self.rx[unit].reserve(at, service);
        // A clock that speeds up lets no packet overtake an earlier one.
        let done = (end + latency).max(self.last_rx[unit]);
        self.last_rx[unit] = done;
        if env.timeline.enabled() && desc.opcode.is_request() {
            let s = subject(p.src, p.src_port, p.src_qp, desc.wqe);
            env.timeline.stage(s, "peer NIC receive unit", start, done, 0);
        }
        env.at(done, Class::Stage, NicEvent::Rx(packet));
    }

    /// A receive unit is done with a packet. What it wrote to memory is counted by now.
    pub(super) fn rx_done(&mut self, env: &mut Env<'_>, packet: PacketId) {
        let p = &env.packets[packet.0];
        let len = p.desc.len;
        if is_cnp(&p.desc) {
            self.on_cnp(env, packet);
            return self.rx_leaves(env, len);
        }
        if p.ecn == Ecn::Ce {
            self.on_marked(env, packet);
        }
        self.rx_turn += 1;
        self.on_rx(env, Arrival { packet, turn: self.rx_turn, room: len });
    }

    /// Goes on with a packet, which leaves the receive buffer; or it waits there.
    fn on_rx(&mut self, env: &mut Env<'_>, arrival: Arrival) {
        if self.goes_on(env, arrival) {
            self.rx_leaves(env, arrival.room);
        }
    }

    fn goes_on(&mut self, env: &mut Env<'_>, arrival: Arrival) -> bool {
        let packet = arrival.packet;
        let desc = env.packets[packet.0].desc;
        let qp = Self::qp_index(desc.dest).expect("checked on arrival");
        let Some(q) = self.qps[qp as usize].as_deref_mut() else {
            self.discard(env, packet, Refused::UnknownQp(desc.dest));
            return true;
        };
        if desc.opcode.is_request() && !q.rx_wait.is_empty() {
            q.rx_wait.push_back(arrival);
            return false;
        }
        env.trace(kind::RX, u64::from(qp) << 8 | desc.opcode as u64, u64::from(desc.psn.value()));
        q.last_progress = env.now;
        if desc.opcode.is_request() {
            q.last_request = Some(env.now);
            return self.on_request(env, qp, arrival);
        }
        self.on_response(env, qp, packet);
        true
    }

    // ---- responder ---------------------------------------------------------------------------

    pub(super) fn recv_queue(&mut self, qp: u32) -> &mut RecvQueue {
        let q = self.qps[qp as usize].as_deref_mut().expect("checked");
        match q.srq {
            Some(srq) => self.srqs[srq as usize].as_mut().expect("an SRQ outlives its QPs"),
            None => &mut q.rq,
        }
    }

    /// Whether a request has to wait before anything is decided about it.
    ///
    /// What waits for a receive goes on in the order in which it came, whatever queue pair it is
    /// of: an SRQ gives its receives in order (protocol.md §5.4). One that waits behind an ATOMIC
    /// keeps nobody else, and has its turn when it asks again.
    fn waits(&mut self, env: &mut Env<'_>, qp: u32, arrival: Arrival) -> bool {
        let desc = env.packets[arrival.packet.0].desc;
        let rq = self.recv_queue(qp);
        let unread = desc.opcode.consumes_recv() && rq.holds_back(arrival.turn);
        if !unread {
            rq.forget(env.now, arrival.turn, qp);
        }
        let q = self.qps[qp as usize].as_deref_mut().expect("checked");
        // On PCIe a write passes a read, so the payload of a later request waits until the word
        // has been changed: SEND, WRITE and ATOMIC take effect in order (protocol.md §5.5).
        let behind_atomic = q.atomics > 0 && desc.len > 0;
        if unread || behind_atomic {
            q.rx_wait.push_back(arrival);
        }
        if unread {
            if !behind_atomic {
                self.recv_queue(qp).wait(env.now, arrival.turn, qp);
            }
            self.fetch_recv(env, qp);
        }
        unread || behind_atomic
    }

    /// False: the packet waits.
    fn on_request(&mut self, env: &mut Env<'_>, qp: u32, arrival: Arrival) -> bool {
        let waits = self.waits(env, qp, arrival);
        if !waits {
            self.take_request(env, qp, arrival.packet);
        }
        // What was kept beyond a gap comes next. It has left the receive buffer: what fills the gap
        // must find room there. `rc.recovery_cap` bounds it.
        while let Some(packet) = self.take_kept(qp) {
            if !self.waits(env, qp, Arrival { packet, turn: arrival.turn, room: 0 }) {
                self.take_request(env, qp, packet);
            }
        }
        !waits
    }

    fn take_request(&mut self, env: &mut Env<'_>, qp: u32, packet: PacketId) {
        let desc = env.packets[packet.0].desc;
        let posted = !self.recv_queue(qp).is_empty();
        let now = env.now;
        self.note_page_fault(env, qp, &desc);
        let q = self.qps[qp as usize].as_deref_mut().expect("checked");
        let (held, state) = (q.current_recv.is_some(), q.state);
        let Some(responder) = q.responder.as_mut() else {
            return self.discard(env, packet, Refused::State(state));
        };
        let before = responder.counters().duplicate_request;
        let verdict = responder.on_packet(now, &desc, posted || held);
        let again = responder.counters().duplicate_request > before;
        self.established(env, qp, &verdict);
        self.notify_of_gap(env, qp, &verdict, packet);
        let q = self.qps[qp as usize].as_deref_mut().expect("checked");
        if verdict == Accept::Hold {
            self.place_on_arrival(env, qp, packet);
            let q = self.qps[qp as usize].as_deref_mut().expect("checked");
            q.kept.push((desc.psn, packet));
            return self.respond_soon(env, qp);
        }
        q.stats.rx_requests += u64::from(!matches!(verdict, Accept::Drop(_)));
        let payload = std::mem::take(&mut env.packets[packet.0].payload);
        let arrived = Arrived::of(&env.packets[packet.0]);
        let reason = q.note_taken(&env.packets.remove(packet.0), again);
        let Sender { host, port, qp: from } = arrived.from;
        let subject = subject(host, port, from, desc.wqe);
        match verdict {
            Accept::Place { target, len, first, takes_recv, completes_recv, .. } => {
                let order = (desc.psn, desc.opcode.operation().ends_message());
                let place =
                    Place { target, len, first, takes_recv, completes_recv, subject, order };
                if let Err(why) = self.place(env, qp, place, payload) {
                    self.note_unplaced(env.now, qp, arrived, why);
                    self.refuse(env, qp, why.0, why.1);
                }
            }
            Accept::Read { va, rkey, len, .. } => self.check_read(env, qp, (rkey, va, len)),
            Accept::Atomic { job, add, va: addr, rkey, swap_add, compare } => {
                let (pd, life) = (q.pd, q.life);
                let right = AccessFlags::REMOTE_ATOMIC;
                let region = env.regions.check_remote(rkey, Pd(pd), addr, 8, right).map(|r| r.id);
                let (bucket, orig) = (addr as u32 % self.cfg.atomic.buckets, 0);
                match region {
                    Err(e) => self.refuse(env, qp, of_key(e), false),
                    Ok(region) => {
                        let operands = Operands { add, swap_add, compare, orig };
                        let psn = desc.psn;
                        let job = AtomicJob { qp, life, job, region, addr, operands, bucket, psn };
                        self.atomic_arrives(env, job);
                    }
                }
            }
            Accept::RnrNak => self.note_fill(qp),
            // The QP goes to ERR when the NAK has left.
            Accept::Nak(code) => self.refused(env, qp, code, false),
            Accept::Duplicate if reason.is_none() => q.note_fresh_duplicate(now),
            Accept::Duplicate | Accept::Gap { .. } | Accept::Hold => {}
            Accept::Drop(why) => {
                let expected = q.attr.qkey;
                self.refuse_packet(now, arrived, unused(&desc, why, expected));
            }
        }
        self.respond_soon(env, qp);
    }

    /// A READ is refused where its region may not be read.
    fn check_read(&mut self, env: &mut Env<'_>, qp: u32, (rkey, va, len): (Rkey, u64, u32)) {
        let pd = Pd(self.qps[qp as usize].as_deref().expect("checked").pd);
        let right = AccessFlags::REMOTE_READ;
        let check = || env.regions.check_remote(rkey, pd, va, len.into(), right);
        if len > 0
            && let Err(e) = check()
        {
            self.refuse(env, qp, of_key(e), false);
        }
    }

    /// The first good packet came while the QP was in RTR: its program hears of it, once, and may
    /// go to RTS though the peer's own message about it is still on its way (protocol.md §3.2).
    fn established(&mut self, env: &mut Env<'_>, qp: u32, verdict: &Accept) {
        let q = self.qps[qp as usize].as_deref_mut().expect("checked");
        let good = q.state == QpState::Rtr && !matches!(verdict, Accept::Drop(_));
        if good && !std::mem::replace(&mut q.comm_est_told, true) {
            let owner = q.owner;
            self.raise(env, owner, AsyncEventKind::CommEst, qp);
        }
    }

    /// Schedules the responses of a QP after the turn-around time.
    fn respond_soon(&mut self, env: &mut Env<'_>, qp: u32) {
        let latency = self.clocked(env.now, self.cfg.ack_latency);
        let q = self.qps[qp as usize].as_deref_mut().expect("checked");
        let due = q.responder.as_ref().is_some_and(|r| r.peek_transmit(env.now));
        let held = q.responder.as_ref().and_then(|r| r.next_deadline());
        let at = if due { Some(env.now) } else { held };
        if let Some(at) = at.map(|at| at + latency)
            && at < q.respond_at
            && !q.response_in_pu
        {
            q.respond_at = at;
            env.at(at, Class::Stage, NicEvent::Respond(qp));
        }
    }

    pub(super) fn on_respond(&mut self, env: &mut Env<'_>, qp: u32) {
        let Some(q) = self.qps[qp as usize].as_deref_mut() else { return };
        if env.now >= q.respond_at {
            q.respond_at = Time::MAX;
        }
        self.respond(env, qp);
    }

    fn refuse(&mut self, env: &mut Env<'_>, qp: u32, why: BadRequest, told: bool) {
        let q = self.qps[qp as usize].as_deref_mut().expect("checked");
        if let Some(r) = q.responder.as_mut() {
            r.reject(why);
        }
        match q.ty {
            QpType::Rc => self.refused(env, qp, why.code(), told),
            // A receive that ended in an error takes its QP to ERR whatever the service
            // (protocol.md §3.1); a request that no receive tells of is dropped in silence (§2.7).
            _ if told => self.enter_error(env, qp, Why::Responder(why)),
            _ => {}
        }
    }

    /// A fatal NAK is on its way. What no receive WQE reports by a status of its own (`told`) is
    /// reported by an event (protocol.md §3.4): of a receive that is flushed, be it that of the
    /// message itself, nobody learns that a request was refused.
    pub(super) fn refused(&mut self, env: &mut Env<'_>, qp: u32, code: NakCode, told: bool) {
        let q = self.qps[qp as usize].as_deref().expect("checked");
        let event = match code {
            NakCode::InvalidRequest => AsyncEventKind::QpReqErr,
            NakCode::RemoteAccessError => AsyncEventKind::QpAccessErr,
            _ => return,
        };
        if !told {
            let owner = q.owner;
            self.raise(env, owner, event, qp);
        }
    }

    /// Reads receive WQEs of the QP's queue, for which a packet waits.
    fn fetch_recv(&mut self, env: &mut Env<'_>, qp: u32) {
        let how = self.cfg.recv_fetch();
        let read = self.recv_queue(qp).read_needed(how);
        self.read_recvs(env, qp, read);
    }

    /// Reads receive WQEs of a queue in use ahead of need. A queue of which nothing was taken yet
    /// waits for its first message: the NIC knows of receives by a record in memory alone.
    fn fetch_ahead(&mut self, env: &mut Env<'_>, qp: u32) {
        let how = self.cfg.recv_fetch();
        // `RecvFetch::ahead` bounds it.
        while let Some(read) = self.recv_queue(qp).read_ahead(how) {
            self.read_recvs(env, qp, Some(read));
        }
    }

    /// Issues a read of receive WQEs that its queue has started.
    fn read_recvs(&mut self, env: &mut Env<'_>, qp: u32, read: Option<(u32, u32)>) {
        let Some((number, wqes)) = read else { return };
        let srq = self.qp(qp).and_then(|q| q.srq);
        let tag = Tag::RecvFetch { queue: srq.unwrap_or(qp), srq: srq.is_some(), number }.pack();
        let bytes = wqes * self.cfg.rq_wqe_bytes;
        let space = RegionKind::Host { numa: self.numa };
        env.dma(self.node, Kind::Read, space, 0, bytes, Cause::RecvWqeFetch, tag);
    }

    pub(super) fn recv_fetched(
        &mut self,
        env: &mut Env<'_>,
        (queue, srq, number): (u32, bool, u32),
        submitted: Time,
    ) {
        let Some(rq) = self.fetched_into(queue, srq) else { return };
        // Packets that waited for a read of receives that are flushed meanwhile go on as well.
        if rq.read_ended(env.now, number, env.now.since(submitted)) {
            self.record_waiting(env, (queue, srq), submitted);
        }
        while let Some(qp) = self.fetched_into(queue, srq).and_then(RecvQueue::next_served) {
            self.resume_rx(env, qp);
        }
        // Those behind the last receive that was read wait for the next fetch.
        let Some(rq) = self.fetched_into(queue, srq) else { return };
        rq.still_waits(env.now);
        let next = rq.waiting().next();
        if let Some(qp) = next {
            self.fetch_recv(env, qp);
        }
    }

    /// The queue that a fetch was for, if it is still there.
    fn fetched_into(&mut self, queue: u32, srq: bool) -> Option<&mut RecvQueue> {
        if srq { self.srq_mut(queue) } else { self.qp_mut(queue).map(|q| &mut q.rq) }
    }

    /// Records the fetch for the messages that waited for it.
    fn record_waiting(&mut self, env: &mut Env<'_>, (queue, srq): (u32, bool), submitted: Time) {
        if !env.timeline.enabled() {
            return;
        }
        let waiting: Vec<u32> =
            self.fetched_into(queue, srq).map_or(vec![], |rq| rq.waiting().collect());
        for a in waiting.into_iter().filter_map(|qp| self.qp(qp)).flat_map(|q| &q.rx_wait) {
            let p = &env.packets[a.packet.0];
            let s = subject(p.src, p.src_port, p.src_qp, p.desc.wqe);
            env.timeline.stage(s, "peer's receive WQE fetch (PCIe read)", submitted, env.now, 0);
        }
    }

    /// Goes on with packets that waited for a receive WQE.
    fn resume_rx(&mut self, env: &mut Env<'_>, qp: u32) {
        let Some(q) = self.qp_mut(qp) else { return };
        let mut waiting = std::mem::take(&mut q.rx_wait);
        while let Some(arrival) = waiting.pop_front() {
            self.on_rx(env, arrival);
            let Some(q) = self.qp_mut(qp) else { return };
            if !q.rx_wait.is_empty() {
                // It waits again; the others stay behind it.
                q.rx_wait.extend(waiting);
                return;
            }
        }
    }

    /// Starts what a verdict asks for. An error says which NAK refuses the request, and whether
    /// a receive completion tells of it.
    fn place(
        &mut self,
        env: &mut Env<'_>,
        qp: u32,
        p: Place,
        payload: Payload,
    ) -> Result<(), (BadRequest, bool)> {
        if p.takes_recv {
            self.take_recv(env, qp);
        }
        let pd = self.qps[qp as usize].as_deref().expect("checked").pd;
        if p.len > 0 {
            let (region, addr) = match p.target {
                Target::Remote { va, rkey, dma_len } => {
                    let len = if p.first { dma_len } else { p.len };
                    let right = AccessFlags::REMOTE_WRITE;
                    let region = env.regions.check_remote(rkey, Pd(pd), va, len.into(), right);
                    (region.map_err(|e| (of_key(e), false))?.id, va)
                }
                Target::Recv { offset } => self.receive_place(env, qp, offset, p.len)?,
            };
            self.count_payload(qp, p.len);
            let (len, subject, submitted) = (p.len, p.subject, env.now);
            let order = Some(p.order);
            let write = RxWrite { qp, region, addr, len, payload, subject, submitted, order };
            let q = self.qps[qp as usize].as_deref_mut().expect("checked");
            if !q.sight.turn(p.order.0) {
                self.inbound(env, write);
            }
        }
        if let Some(mut done) = p.completes_recv {
            if let Some(key) = done.invalidate {
                let region = env.regions.by_rkey(key).filter(|r| r.pd == Pd(pd)).map(|r| r.id);
                match (region, self.rc.rules.bad_invalidate) {
                    (Some(region), _) => {
                        // Checked just now, so it is there.
                        let _ = env.regions.deregister(region);
                    }
                    (None, BadInvalidate::PlainSend) => done.invalidate = None,
                    (None, BadInvalidate::Error) => {
                        self.recv_failed(env, qp, WcStatus::RemInvReqErr);
                        return Err((BadRequest::BadInvalidate, true));
                    }
                }
            }
            self.recv_done(env, qp, done);
        }
        Ok(())
    }

    /// Payload of a request goes to memory.
    pub(super) fn inbound(&mut self, env: &mut Env<'_>, write: RxWrite) {
        let qp = write.qp;
        if let Some((psn, _)) = write.order.filter(|_| self.orderless) {
            self.qps[qp as usize].as_deref_mut().expect("checked").sight.leaves(psn);
        }
        self.rx_room.take(env.now, write.len);
        let id = self.rx_writes.insert(write);
        self.host_write(env, qp, HostWrite::Inbound(id));
    }

    /// Where in the receive that was taken a payload goes. A receive that is too short, or in
    /// memory that cannot be written, completes in error.
    fn receive_place(
        &mut self,
        env: &mut Env<'_>,
        qp: u32,
        offset: u32,
        len: u32,
    ) -> Result<(RegionId, u64), (BadRequest, bool)> {
        let q = self.qps[qp as usize].as_deref_mut().expect("checked");
        let recv = q.current_recv.expect("the verdict took one");
        let addr = recv.sge.addr + u64::from(offset);
        if u64::from(offset) + u64::from(len) > u64::from(recv.sge.len) {
            self.recv_failed(env, qp, WcStatus::LocLenErr);
            return Err((BadRequest::ShortReceive, true));
        }
        let need = AccessFlags::LOCAL_WRITE;
        match env.regions.check_local(recv.sge.lkey, Pd(q.pd), addr, len.into(), need) {
            Ok(region) => Ok((region.id, addr)),
            Err(e) => {
                q.bad_memory = q.bad_memory.or(Some(e));
                self.recv_failed(env, qp, WcStatus::LocProtErr);
                Err((BadRequest::LocalMemory, true))
            }
        }
    }

    fn take_recv(&mut self, env: &mut Env<'_>, qp: u32) {
        if self.qp(qp).is_some_and(|q| q.current_recv.is_some()) {
            return;
        }
        let srq = self.qp(qp).and_then(|q| q.srq);
        let rq = self.recv_queue(qp);
        let wqe = rq.take().expect("the verdict knew of one");
        let below = rq.limit > 0 && rq.len() < rq.limit;
        if below {
            rq.limit = 0;
        }
        self.posted.remove(&wqe);
        if below && let Some(srq) = srq {
            self.srq_limit(env, qp, srq);
        }
        self.qps[qp as usize].as_deref_mut().expect("checked").current_recv = Some(wqe);
        self.fetch_ahead(env, qp);
    }

    fn recv_done(&mut self, env: &mut Env<'_>, qp: u32, done: RecvDone) {
        let q = self.qps[qp as usize].as_deref_mut().expect("checked");
        let recv = q.current_recv.take().expect("the message took one");
        let RecvDone { op, len, imm, invalidate, solicited } = done;
        let kind = CqeKind::Recv { op, len, imm, invalidated: invalidate };
        let cq = q.recv_cq;
        self.write_cqe(env, qp, cq, recv.wr_id, kind, solicited);
    }

    // ---- atomics -----------------------------------------------------------------------------

    fn atomic_arrives(&mut self, env: &mut Env<'_>, job: AtomicJob) {
        let bucket = job.bucket;
        self.qps[job.qp as usize].as_deref_mut().expect("checked").atomics += 1;
        let id = self.atomics.insert(job);
        if let Some(queue) = self.buckets.get_mut(&bucket) {
            queue.push_back(id);
            return;
        }
        self.buckets.insert(bucket, VecDeque::new());
        self.bucket_held.entry(bucket).or_default().0 = env.now;
        self.atomic_start(env, id);
    }

    fn atomic_start(&mut self, env: &mut Env<'_>, id: u32) {
        let unit = self.clocked(env.now, self.cfg.atomic.unit);
        let (_, end) = self.atomic_unit.reserve(env.now, unit);
        env.at(end, Class::Stage, NicEvent::Atomic(id));
    }

    pub(super) fn on_atomic(&mut self, env: &mut Env<'_>, id: u32) {
        let job = &self.atomics[id];
        let (addr, bucket) = (job.addr, job.bucket);
        let space = self.space(env, job.region);
        let tag = Tag::AtomicRead(id).pack();
        env.dma(self.node, Kind::Read, space, addr, 8, Cause::Atomic, tag);
        if !self.cfg.atomic.hold_over_pcie {
            self.atomic_order.push_back(id);
            self.release_bucket(env, bucket);
        }
    }

    fn release_bucket(&mut self, env: &mut Env<'_>, bucket: u32) {
        let queue = self.buckets.get_mut(&bucket).expect("it is held");
        match queue.pop_front() {
            Some(next) => self.atomic_start(env, next),
            None => {
                self.buckets.remove(&bucket);
                let (since, held) = self.bucket_held.entry(bucket).or_default();
                *held += env.now.since(*since);
            }
        }
    }

    /// The read is at memory. The new value is put in place here, not when the write lands: the
    /// device is the only writer while it holds the word, and its next read sees its last write.
    pub(super) fn atomic_at_memory(&mut self, env: &mut Env<'_>, id: u32) {
        let addr = self.atomics[id].addr;
        // A device that lets go of the word early forwards its value from one ATOMIC to the next,
        // in their order, whichever read comes first.
        let mut i = 0;
        while let Some(&first) = self.atomic_order.get(i) {
            if self.atomics[first].addr != addr {
                i += 1;
                continue;
            }
            self.atomic_order.remove(i);
            self.atomic_apply(env, first);
            if first == id {
                return;
            }
        }
        if self.cfg.atomic.hold_over_pcie {
            self.atomic_apply(env, id);
        }
    }

    fn atomic_apply(&mut self, env: &mut Env<'_>, id: u32) {
        let job = &mut self.atomics[id];
        let (region, addr) = (job.region, job.addr);
        let Operands { add, swap_add, compare, .. } = job.operands;
        job.operands.orig = if add {
            env.regions.fetch_add(region, addr, swap_add)
        } else {
            env.regions.cmp_swap(region, addr, compare, swap_add)
        }
        .unwrap_or(0);
        let (qp, life, psn) = (job.qp, job.life, job.psn);
        let Some(q) = self.qp_mut(qp).filter(|q| q.life == life) else { return };
        q.atomics -= 1;
        let (early, last) = (q.sight.passes(psn), q.atomics == 0);
        self.stats.seen_early += u64::from(early);
        if last {
            self.resume_rx(env, qp);
        }
    }

    pub(super) fn atomic_read(&mut self, env: &mut Env<'_>, id: u32) {
        let job = &self.atomics[id];
        let AtomicJob { qp, life, job: rc_job, addr, bucket, .. } = *job;
        let orig = job.operands.orig;
        let space = self.space(env, job.region);
        let tag = Tag::AtomicWrite(id).pack();
        env.dma(self.node, Kind::Write, space, addr, 8, Cause::Atomic, tag);
        if self.cfg.atomic.hold_over_pcie {
            self.release_bucket(env, bucket);
        }
        // A responder that has failed still answers what came before the failure.
        let alive = self.qp_mut(qp).filter(|q| q.life == life);
        if let Some(r) = alive.and_then(|q| q.responder.as_mut()) {
            r.atomic_result(rc_job, orig);
            self.respond_soon(env, qp);
        }
    }

    pub(super) fn atomic_written(&mut self, env: &mut Env<'_>, id: u32) {
        let job = self.atomics.remove(id);
        env.wakes.push(Wake::Memory { addr: job.addr, len: 8 });
        env.trace(kind::PLACED, job.addr, 8);
    }

    // ---- requester ---------------------------------------------------------------------------

    fn on_response(&mut self, env: &mut Env<'_>, qp: u32, packet: PacketId) {
        let state = self.qps[qp as usize].as_deref().expect("checked").state;
        let p = env.packets.remove(packet.0);
        let arrived = Arrived::of(&p);
        let q = self.qps[qp as usize].as_deref_mut().expect("checked");
        q.stats.rx_responses += 1;
        let Some(requester) = q.requester.as_mut() else {
            return self.refuse_packet(env.now, arrived, Refused::State(state));
        };
        let (before, timer) = (requester.unacked_psn(), requester.ack_timer_since());
        let received = requester.on_packet(env.now, &p.desc);
        if requester.unacked_psn() != before && !requester.failed() {
            q.acknowledged = Some(env.now);
            q.waits.answered(env.now, p.expiries, timer);
        }
        if q.flow.is_some() {
            self.after_response(env, qp, (before, p.becn), &received);
        }
        match received {
            Received::Place { wqe, offset, len, .. } => {
                self.place_response(env, qp, wqe, offset, len, p.payload);
            }
            Received::AtomicResult { wqe, orig } => {
                let payload = Payload::copy_from(&orig.to_le_bytes());
                self.place_response(env, qp, wqe, 0, 8, payload);
            }
            Received::Nothing | Received::Recover { .. } | Received::Error { .. } => {}
            Received::Drop(why) => {
                self.note_late_answer(env.now, &p);
                let why = unused(&p.desc, why, QKey::default());
                self.refuse_packet(env.now, arrived, why);
            }
        }
        self.completions(env, qp);
        self.schedule(env, qp);
        self.arm_timer(env, qp);
    }

    /// Writes response payload to the local buffer of a WQE, which may have to be read again.
    fn place_response(
        &mut self,
        env: &mut Env<'_>,
        qp: u32,
        wqe: u32,
        offset: u32,
        len: u32,
        payload: Payload,
    ) {
        let q = self.qps[qp as usize].as_deref().expect("checked");
        let Some(slot) = q.sq.slot(wqe) else { return };
        let data = slot.effective().data.clone();
        let hit = self.wqe_cache.lookup(wqe_key(qp, wqe));
        let (mut done, mut lost) = (0, false);
        let subject = subject(self.host, self.port, qp, wqe);
        data.pieces(offset, len, |sge, addr, n| {
            let from = done;
            done += n as usize;
            let Some(region) = env.regions.by_lkey(sge.lkey).map(|r| r.id) else {
                lost = true;
                return;
            };
            let payload = match payload.bytes() {
                Some(b) => Payload::copy_from(&b[from..done]),
                None => Payload::Lengths,
            };
            let submitted = env.now;
            let (len, order) = (n, None);
            let write = RxWrite { qp, region, addr, len, payload, subject, submitted, order };
            self.rx_room.take(env.now, n);
            let id = self.rx_writes.insert(write);
            let kind = if hit { HostWrite::Response(id) } else { HostWrite::AwaitsWqe(id) };
            self.host_write(env, qp, kind);
        });
        if lost {
            // The key was good when the WQE was executed, and is not when the answer comes.
            let q = self.qps[qp as usize].as_deref_mut().expect("checked");
            q.bad_memory = q.bad_memory.or(Some(MemoryError::InvalidKey));
            if let Some(r) = q.requester.as_mut() {
                r.fail(wqe, WcStatus::LocProtErr);
            }
            return;
        }
        self.count_payload(qp, len);
    }

    fn count_payload(&mut self, qp: u32, len: u32) {
        self.stats.rx_payload += u64::from(len);
        if let Some(q) = self.qp_mut(qp) {
            q.stats.rx_payload += u64::from(len);
        }
    }

    /// Where a region is; one that is gone counts as host memory, where its last write ends.
    fn space(&self, env: &Env<'_>, region: RegionId) -> RegionKind {
        let here = RegionKind::Host { numa: self.numa };
        env.regions.get(region).map_or(here, |r| r.kind)
    }

    // ---- writes to memory --------------------------------------------------------------------

    /// Starts a write of the NIC, or keeps it behind one of the sending half that waits for its
    /// WQE. What the receiving half writes waits for nothing: later READs must see it.
    pub(super) fn host_write(&mut self, env: &mut Env<'_>, qp: u32, write: HostWrite) {
        let sends = match write {
            HostWrite::AwaitsWqe(_) | HostWrite::Response(_) => true,
            HostWrite::Inbound(_) => false,
            HostWrite::Cqe(id) => match self.cqes[id].1.kind {
                CqeKind::Send { .. } => true,
                CqeKind::Recv { .. } => false,
                CqeKind::Error { queue, .. } => queue == WorkQueue::Send,
            },
        };
        let q = self.qps[qp as usize].as_deref_mut().expect("checked");
        let waits = matches!(write, HostWrite::AwaitsWqe(_));
        if waits || sends && !q.held_writes.is_empty() {
            q.held_writes.push_back(write);
            if waits && q.held_writes.len() == 1 {
                self.refetch_wqe(env, qp);
            }
            return;
        }
        self.issue_write(env, write);
    }

    fn refetch_wqe(&mut self, env: &mut Env<'_>, qp: u32) {
        self.stats.wqe_refetches += 1;
        self.stats.wqe_blocks += 1;
        let tag = Tag::WqeRefetch { qp }.pack();
        let space = self.qp(qp).expect("checked").queue_space;
        env.dma(self.node, Kind::Read, space, 0, super::WQEBB, Cause::WqeFetch, tag);
    }

    pub(super) fn wqe_refetched(&mut self, env: &mut Env<'_>, qp: u32) {
        let mut first = true;
        loop {
            let Some(q) = self.qp_mut(qp) else { return };
            match q.held_writes.front().copied() {
                Some(HostWrite::AwaitsWqe(id)) if first => {
                    q.held_writes.pop_front();
                    self.issue_write(env, HostWrite::Response(id));
                }
                Some(HostWrite::AwaitsWqe(_)) => return self.refetch_wqe(env, qp),
                Some(other) => {
                    q.held_writes.pop_front();
                    self.issue_write(env, other);
                }
                None => return,
            }
            first = false;
        }
    }

    fn issue_write(&mut self, env: &mut Env<'_>, write: HostWrite) {
        match write {
            HostWrite::Inbound(id) | HostWrite::Response(id) | HostWrite::AwaitsWqe(id) => {
                let w = &mut self.rx_writes[id];
                w.submitted = env.now;
                let (qp, addr, len, inbound) = (w.qp, w.addr, w.len, w.order.is_some());
                self.payload_issued(qp, inbound);
                let space = self.space(env, self.rx_writes[id].region);
                let tag = Tag::RxWrite(id).pack();
                self.move_payload(env, qp, Kind::Write, (space, addr, len), tag);
            }
            HostWrite::Cqe(id) => {
                self.cqes[id].1.follows = self.payload_before(&self.cqes[id].1);
                let bytes = self.cfg.cqe_bytes;
                let here = RegionKind::Host { numa: self.numa };
                let space = self.cq(self.cqes[id].0).map_or(here, |q| q.space);
                let tag = Tag::Cqe(id).pack();
                env.dma(self.node, Kind::Write, space, 0, bytes, Cause::Cqe, tag);
            }
        }
    }

    pub(super) fn rx_written(&mut self, env: &mut Env<'_>, id: u32) {
        let w = self.rx_writes.remove(id);
        if let Some(bytes) = w.payload.bytes() {
            // A region that is gone or virtual takes the write and shows nothing of it.
            let _ = env.regions.write(w.region, w.addr, bytes);
        }
        if let Some(q) = self.qp_mut(w.qp) {
            q.last_placed = env.now;
        }
        self.seen(w.qp, &w);
        env.trace(kind::PLACED, w.addr, u64::from(w.len));
        env.wakes.push(Wake::Memory { addr: w.addr, len: u64::from(w.len) });
        env.timeline.stage(w.subject, "payload write (PCIe)", w.submitted, env.now, 0);
        self.payload_landed(env.now, w.qp, w.order.is_some());
        self.rx_leaves(env, w.len);
    }

    /// Receives were posted: packets that found none may go on.
    pub(super) fn recv_posted(&mut self, env: &mut Env<'_>, qp: u32) {
        if self.qp(qp).is_some_and(|q| q.state == QpState::Err) {
            return self.flush_recvs(env, qp);
        }
        let Some(q) = self.qp_mut(qp) else { return };
        let posted = q.rq.len();
        if let Some(r) = q.responder.as_mut()
            && r.offer_credits(posted)
        {
            self.respond_soon(env, qp);
        }
    }
}

const fn is_cnp(desc: &PacketDesc) -> bool {
    matches!(desc.opcode, Opcode::CnpRoceV2 | Opcode::CnpInfiniband)
}

/// What a check of a remote key says of the request.
const fn of_key(e: MemoryError) -> BadRequest {
    match e {
        MemoryError::InvalidKey => BadRequest::UnknownKey,
        MemoryError::PdMismatch { .. } => BadRequest::OtherDomain,
        MemoryError::AccessDenied { .. } => BadRequest::MissingRight,
        MemoryError::OutOfRange => BadRequest::OutOfRange,
    }
}

/// Why the transport has no use for a packet. A half that has failed is one in ERR, though the NAK
/// that says so may still have to leave.
const fn unused(desc: &PacketDesc, why: DropReason, expected: QKey) -> Refused {
    match (why, desc.ext) {
        (DropReason::QKey, Ext::Deth { qkey: sent, .. } | Ext::DethImm { qkey: sent, .. }) => {
            Refused::QKey { sent, expected }
        }
        (DropReason::QpState, _) => Refused::State(QpState::Err),
        _ => Refused::Transport(why),
    }
}

struct Place {
    target: Target,
    len: u32,
    first: bool,
    takes_recv: bool,
    completes_recv: Option<RecvDone>,
    subject: u64,
    order: (Psn, bool),
}
