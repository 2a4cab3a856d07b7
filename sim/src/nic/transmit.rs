//! Processing units, payload fetch, order, transmit port.

use doorbell_core::units::{Span, Time};
use doorbell_core::verbs::{NakCode, OutboundVerdict, QpState, QpType, WcStatus, may_transmit};

use super::env::{Env, NicEvent, Tag, kind};
use super::node::NODE_PORT;
use super::postmortem::Why;
use super::qp::{NextPacket, NicQp};
use super::wqe::WqeData;
use super::{Nic, Running};
use crate::engine::Class;
use crate::memory::{Contents, MemoryError, Region, RegionKind};
use crate::rc::{PacketDesc, ReadJob, Reason};
use crate::wire::codec::Ecn;
use crate::wire::{Packet, PacketId, Packets, Payload, Remark};

/// What of the port a QP waits for: the room of a traffic class, that of its connection, or of the
/// address handle of its next datagram.
fn room(env: &Env<'_>, q: &NicQp) -> usize {
    let next = || q.sq.slot(q.requester.as_ref()?.next_wqe()?)?.effective().dest;
    let datagram = if q.ty == QpType::Ud { next() } else { None };
    let sl = datagram.map_or(q.attr.path.sl, |to| to.sl);
    usize::from(env.port.class_of(sl.code()))
}

impl Nic {
    /// Puts a QP with work into the turn of its processing unit.
    pub(super) fn schedule(&mut self, env: &mut Env<'_>, qp: u32) {
        let Some(q) = self.qps[qp as usize].as_deref_mut() else { return };
        let waits = q.flow.as_ref().is_some_and(|flow| flow.waits);
        if q.in_pu || waits || !q.has_work() || may_transmit(q.state) == OutboundVerdict::Nothing {
            return;
        }
        q.in_pu = true;
        let pu = q.pu;
        self.pus[usize::from(pu)].ready.push(room(env, q), qp);
        self.kick(env, pu);
    }

    /// Starts the next packet on an idle processing unit.
    fn kick(&mut self, env: &mut Env<'_>, pu: u16) {
        let i = usize::from(pu);
        while self.pus[i].running.is_none() && !self.pus[i].ready.is_empty() {
            let Some(qp) = self.next_ready(env, i) else { return self.wait_for_room(pu) };
            let Some(q) = self.qps[qp as usize].as_deref_mut() else { continue };
            let flow = q.flow.as_ref().map(|flow| flow.id);
            if flow.is_some() && !self.in_pace(env, qp) {
                continue;
            }
            let q = self.qps[qp as usize].as_deref_mut().expect("just there");
            match q.next_packet(env.now) {
                None => q.in_pu = false,
                Some(NextPacket { desc, read, reason }) => {
                    q.response_in_pu = read.is_some();
                    let life = q.life;
                    if let Some(flow) = flow {
                        self.paced(env, flow, &desc);
                    }
                    self.start(env, pu, Running { qp, life, desc, read, reason });
                }
            }
        }
        // It has started, or has nothing to send any more.
        self.pus[i].waits = None;
    }

    /// Takes the first QP whose traffic class has room out of the turn of a processing unit.
    fn next_ready(&mut self, env: &mut Env<'_>, unit: usize) -> Option<u32> {
        let mut ready = std::mem::take(&mut self.pus[unit].ready);
        let next = ready.take(|room| {
            let full = !self.is_inside(unit) && self.tx_full(env, room);
            self.tx_full |= u32::from(full) << room;
            full
        });
        self.pus[unit].ready = ready;
        next
    }

    /// Whether the bytes between memory and wire have reached the buffer's size: those on their way
    /// to the port, and of those that wait there one class, so that a class that is held back does
    /// not hold back another. Then a wake-up is certain: from the port, or from a payload that is
    /// still on its way to it.
    fn tx_full(&self, env: &mut Env<'_>, room: usize) -> bool {
        let port = env.port.egress(self.port);
        let waiting = port.waiting_bytes();
        let in_room = port.waiting_bytes_of(room as u8);
        if u64::from(self.tx_bytes) + in_room < u64::from(self.cfg.tx_buffer) {
            return false;
        }
        if waiting > 0 {
            let ready = env.port.arm_tx_ready(self.port, waiting - 1);
            debug_assert!(!ready, "more waits than was asked for");
        }
        true
    }

    /// The port has room again.
    pub fn on_tx_ready(&mut self, env: &mut Env<'_>) {
        self.unblock(env);
    }

    /// A processing unit that has work found no room for any of it. It keeps its place if it has
    /// one.
    fn wait_for_room(&mut self, pu: u16) {
        let unit = &mut self.pus[usize::from(pu)];
        if unit.waits.is_some() {
            return;
        }
        self.tx_places += 1;
        unit.waits = Some(self.tx_places);
        self.tx_waiting.push_back((pu, self.tx_places));
        // Those that started without being asked have left their places behind.
        if self.tx_waiting.len() > 2 * self.pus.len() {
            let Self { tx_waiting, pus, .. } = self;
            tx_waiting.retain(|(pu, place)| pus[usize::from(*pu)].waits == Some(*place));
        }
    }

    /// Lets processing units look again that found no room, the one that has waited longest first:
    /// so each has its turn, whatever class it waits for, and one whose class is held back keeps
    /// its place and no other one from going on.
    pub(super) fn unblock(&mut self, env: &mut Env<'_>) {
        let all = u32::MAX >> (u32::BITS - env.port.classes() as u32);
        let (mut full, mut i) = (0, 0);
        while i < self.tx_waiting.len() && full != all {
            let (pu, place) = self.tx_waiting[i];
            if self.pus[usize::from(pu)].waits == Some(place) {
                self.tx_full = 0;
                self.kick(env, pu);
                full |= self.tx_full;
            }
            if self.pus[usize::from(pu)].waits == Some(place) {
                i += 1;
            } else {
                self.tx_waiting.remove(i);
            }
        }
    }

    fn start(&mut self, env: &mut Env<'_>, pu: u16, run: Running) {
        let c = &self.cfg;
        let desc = &run.desc;
        let response = run.read.is_some();
        let mut service = if response { c.pu_response } else { c.pu_packet };
        let first = !response && desc.offset == 0 && desc.opcode.starts_message();
        let q = self.qps[run.qp as usize].as_deref_mut().expect("it gave a packet");
        if first {
            service += c.pu_wqe;
            if desc.opcode.has_payload() && desc.len > 0 {
                let inline =
                    q.sq.slot(desc.wqe)
                        .is_some_and(|s| matches!(s.effective().data, WqeData::Inline(_)));
                if !inline {
                    service += c.pu_gather;
                }
            } else if !desc.opcode.has_payload() {
                service += c.pu_read;
            }
            if q.sq.slot(desc.wqe).is_some_and(|s| !s.carried) {
                service += c.pu_fetched;
            }
            q.note_begun(env.now, desc.wqe);
            // A WQE that is sent again was started long ago.
            let end = desc.wqe.wrapping_add(1);
            if end.wrapping_sub(q.sq.started).cast_signed() > 0 {
                q.sq.started = end;
            }
        }
        self.tx_bytes += self.rc.wire_bytes(desc.opcode, desc.len);
        let service = match self.is_inside(usize::from(pu)) {
            true => Span::ZERO,
            false => self.clocked(env.now, service),
        };
        let unit = &mut self.pus[usize::from(pu)];
        let (start, end) = unit.busy.reserve(env.now, service);
        let (qp, wqe) = (run.qp, desc.wqe);
        unit.running = Some(run);
        env.at(end, Class::Stage, NicEvent::Pu(pu));
        if first {
            self.record(env, qp, wqe, "NIC processing unit", start, end);
            self.fetch_more(env, qp);
        }
    }

    pub(super) fn on_pu(&mut self, env: &mut Env<'_>, pu: u16) {
        let i = usize::from(pu);
        let Running { qp, life, desc, read, reason } =
            self.pus[i].running.take().expect("it was running");
        let bytes = self.rc.wire_bytes(desc.opcode, desc.len);
        match self.qps[qp as usize].as_deref_mut() {
            None => self.tx_bytes -= bytes,
            Some(q) => {
                let silent = may_transmit(q.state) == OutboundVerdict::Nothing;
                if silent || q.life != life {
                    self.tx_bytes -= bytes;
                } else {
                    self.emit(env, qp, &desc, (read, reason));
                }
                self.turn(env, pu, qp, read.is_some());
            }
        }
        self.kick(env, pu);
    }

    /// A processing unit is done with a packet of the QP, which goes to the end of its queue.
    fn turn(&mut self, env: &mut Env<'_>, pu: u16, qp: u32, response: bool) {
        let Some(q) = self.qps[qp as usize].as_deref_mut() else { return };
        if response {
            // ACKs and NAKs behind a READ response leave after it.
            q.response_in_pu = false;
            self.respond(env, qp);
        }
        let q = self.qps[qp as usize].as_deref_mut().expect("still there");
        if q.has_work() && may_transmit(q.state) != OutboundVerdict::Nothing {
            self.pus[usize::from(pu)].ready.push(room(env, q), qp);
        } else {
            q.in_pu = false;
        }
    }

    /// Makes the packet of a descriptor and starts the fetch of its payload.
    fn emit(
        &mut self,
        env: &mut Env<'_>,
        qp: u32,
        desc: &PacketDesc,
        (read, reason): (Option<ReadJob>, Option<Reason>),
    ) {
        let response = read.is_some();
        let packet = self.new_packet(env, qp, desc, reason);
        let mut pieces = [(RegionKind::Host { numa: 0 }, 0, 0); 8];
        let (mut n, mut gone) = (0, false);
        let q = self.qps[qp as usize].as_deref_mut().expect("checked");
        if desc.len > 0 {
            let mut add = |space, addr, len| {
                // More than eight elements in one packet are read as if the last were one.
                let i = n.min(pieces.len() - 1);
                pieces[i] = (space, addr, if i < n { pieces[i].2 + len } else { len });
                n = i + 1;
            };
            if let Some(job) = read {
                match env.regions.by_rkey(job.rkey) {
                    Some(r) => add(r.kind, job.va.wrapping_add(desc.offset.into()), desc.len),
                    None => gone = true,
                }
            } else if let Some(slot) = q.sq.slot(desc.wqe) {
                let wqe = slot.effective();
                if let WqeData::Inline(b) = &wqe.data {
                    let from = desc.offset as usize;
                    let bytes = &b.as_slice()[from..from + desc.len as usize];
                    env.packets[packet.0].payload = Payload::copy_from(bytes);
                }
                wqe.data.pieces(desc.offset, desc.len, |sge, addr, len| {
                    match env.regions.by_lkey(sge.lkey) {
                        Some(r) => add(r.kind, addr, len),
                        None => gone = true,
                    }
                });
            }
        }
        if gone {
            env.packets.remove(packet.0);
            return self.payload_gone(env, qp, desc, response);
        }
        let fifo = if response { &mut q.tx_resp } else { &mut q.tx_req };
        let seq = fifo.push(packet, read, n as u8);
        self.fetch_payload(env, (qp, seq, response), (pieces, n));
        if n == 0 {
            self.drain(env, qp, response);
        }
    }

    /// The region of a packet's payload was deregistered after the message had begun: its key is
    /// checked at every packet (protocol.md §5.1). The packet does not leave.
    fn payload_gone(&mut self, env: &mut Env<'_>, qp: u32, desc: &PacketDesc, response: bool) {
        self.tx_bytes -= self.rc.wire_bytes(desc.opcode, desc.len);
        let q = self.qps[qp as usize].as_deref_mut().expect("checked");
        if response {
            if let Some(r) = q.responder.as_mut() {
                r.refuse_response(desc.psn);
            }
            self.refused(env, qp, NakCode::RemoteAccessError, false);
        } else if let Some(r) = q.requester.as_mut() {
            r.fail(desc.wqe, WcStatus::LocProtErr);
            q.bad_memory = q.bad_memory.or(Some(MemoryError::InvalidKey));
            self.completions(env, qp);
        }
    }

    fn new_packet(
        &self,
        env: &mut Env<'_>,
        qp: u32,
        desc: &PacketDesc,
        reason: Option<Reason>,
    ) -> PacketId {
        let q = self.qps[qp as usize].as_deref().expect("checked");
        let ud = q.sq.slot(desc.wqe).and_then(|s| s.effective().dest);
        let peer_port = if self.goes_inside(qp) { NODE_PORT } else { q.peer_port };
        PacketId(env.packets.insert(Packet {
            src: self.host,
            src_port: self.port,
            dst: ud.map_or(q.peer, |d| d.host),
            dst_port: ud.map_or(peer_port, |d| d.port),
            udp_source_port: ud.map_or(q.udp_source_port, |d| d.udp_source_port),
            payload: Payload::None,
            desc: *desc,
            src_qp: qp,
            sl: ud.map_or(q.attr.path.sl, |d| d.sl).code(),
            ecn: Ecn::Ect0,
            becn: false,
            pkey: self.pkey(q),
            expiries: q.waits.of_packet(desc.opcode.is_request()),
            remark: Remark::because(reason),
        }))
    }

    /// A payload read is at memory: these are the bytes that the packet carries.
    pub(super) fn payload_at_memory(
        &mut self,
        env: &mut Env<'_>,
        (qp, seq, response): (u32, u32, bool),
    ) {
        let Some(q) = self.qps[qp as usize].as_deref_mut() else { return };
        let NicQp { sq, tx_req, tx_resp, .. } = q;
        let fifo = if response { tx_resp } else { tx_req };
        let Some(job) = fifo.job(seq) else { return };
        let regions = &*env.regions;
        let packet = &mut env.packets[job.packet.0];
        let desc = packet.desc;
        let buffer = &mut self.scratch;
        buffer.clear();
        let mut real = true;
        let mut read = |addr: u64, len: u32, region: Option<&Region>| {
            // A virtual region has nothing to read: do not clear the place for it either.
            let Some(region) = region.filter(|r| real && r.contents == Contents::Data) else {
                real = false;
                return;
            };
            let at = buffer.len();
            buffer.resize(at + len as usize, 0);
            real = regions.read(region.id, addr, &mut buffer[at..]).is_ok();
        };
        if let Some(job) = job.read {
            let va = job.va.wrapping_add(desc.offset.into());
            read(va, desc.len, regions.by_rkey(job.rkey));
        } else if let Some(slot) = sq.slot(desc.wqe) {
            slot.effective().data.pieces(desc.offset, desc.len, |sge, addr, len| {
                read(addr, len, regions.by_lkey(sge.lkey));
            });
        } else {
            // The WQE has been retired: all of it has been acknowledged, and this packet is sent
            // again for nothing. Where it was read from is not known any more.
            real = false;
        }
        packet.payload = if real { Payload::copy_from(buffer) } else { Payload::Lengths };
    }

    /// Tells `f` the addresses and lengths of the local memory that a payload read of a request
    /// covers; returns the QP. `None` for every other read.
    pub fn payload_pieces(
        &mut self,
        packets: &Packets,
        tag: u64,
        mut f: impl FnMut(u64, u32),
    ) -> Option<u32> {
        let Tag::Payload { qp, seq, response: false } = Tag::unpack(tag) else { return None };
        let NicQp { sq, tx_req, .. } = self.qps[qp as usize].as_deref_mut()?;
        let desc = packets[tx_req.job(seq)?.packet.0].desc;
        let wqe = sq.slot(desc.wqe)?.effective();
        wqe.data.pieces(desc.offset, desc.len, |_, addr, len| f(addr, len));
        Some(qp)
    }

    pub(super) fn payload_fetched(
        &mut self,
        env: &mut Env<'_>,
        (qp, seq, response): (u32, u32, bool),
        submitted: Time,
    ) {
        let Some(q) = self.qps[qp as usize].as_deref_mut() else { return };
        let fifo = if response { &mut q.tx_resp } else { &mut q.tx_req };
        let Some(job) = fifo.job(seq) else { return };
        job.pending -= 1;
        let packet = job.packet;
        if env.timeline.enabled() && !response {
            let wqe = env.packets[packet.0].desc.wqe;
            self.record(env, qp, wqe, "payload fetch (PCIe read)", submitted, env.now);
        }
        self.drain(env, qp, response);
    }

    /// Sends every packet at the head of the FIFO whose payload is complete.
    pub(super) fn drain(&mut self, env: &mut Env<'_>, qp: u32, response: bool) {
        let mut sent = false;
        loop {
            let Some(q) = self.qps[qp as usize].as_deref_mut() else { return };
            let fifo = if response { &mut q.tx_resp } else { &mut q.tx_req };
            let Some(packet) = fifo.pop_ready() else { break };
            sent = true;
            if !response && q.state == QpState::Err {
                // As in the processing units: what has not left by then does not leave.
                let desc = env.packets.remove(packet.0).desc;
                self.tx_bytes -= self.rc.wire_bytes(desc.opcode, desc.len);
                continue;
            }
            self.send(env, qp, packet);
            if !response {
                let desc = env.packets[packet.0].desc;
                let q = self.qps[qp as usize].as_deref_mut().expect("just there");
                if let Some(r) = &mut q.requester
                    && r.completes_at_link()
                {
                    r.on_transmitted(&desc);
                    self.completions(env, qp);
                }
            }
        }
        if sent {
            self.unblock(env);
        }
    }

    fn send(&mut self, env: &mut Env<'_>, qp: u32, packet: PacketId) {
        let p = &env.packets[packet.0];
        let by = self.way_out((p.dst, p.dst_port));
        let (desc, start) = (p.desc, env.now);
        debug_assert!(
            !desc.opcode.has_payload()
                || p.payload.bytes().is_none_or(|b| b.len() == desc.len as usize),
            "{desc:?} with {:?}",
            p.payload
        );
        let bytes = self.rc.wire_bytes(desc.opcode, desc.len);
        self.tx_bytes -= bytes;
        self.stats.tx_packets += 1;
        self.stats.tx_payload += u64::from(desc.len);
        env.trace(kind::TX, u64::from(qp) << 8 | desc.opcode as u64, u64::from(desc.psn.value()));
        let left = env.transmit(packet, bytes, by);
        if Self::hears_departure(&desc) {
            match left {
                Some(at) => self.asked_at(env, qp, &desc, at),
                None => self.qp_mut(qp).expect("it sends").asked_in_port += 1,
            }
        }
        if env.timeline.enabled() && desc.opcode.is_request() {
            let port = env.port.egress(by);
            let end = if port.waiting_packets() == 0 { port.free_at() } else { start };
            self.record(env, qp, desc.wqe, "port (serialisation)", start, end);
        }
    }

    /// A packet that waited in the port leaves; its last bit at `left`.
    pub fn on_departure(&mut self, env: &mut Env<'_>, packet: PacketId, left: Time) {
        let p = &env.packets[packet.0];
        let (desc, qp) = (p.desc, p.src_qp);
        let Some(q) = self.qp_mut(qp) else { return };
        q.asked_in_port -= 1;
        if q.asked_before_reset > 0 {
            q.asked_before_reset -= 1;
            return;
        }
        self.asked_at(env, qp, &desc, left);
    }

    /// Whether the NIC wants to hear of a packet's departure.
    pub const fn hears_departure(desc: &PacketDesc) -> bool {
        desc.ack_req && desc.opcode.is_request()
    }

    /// A request that asks for a response leaves: the ack timer may start.
    fn asked_at(&mut self, env: &mut Env<'_>, qp: u32, desc: &PacketDesc, left: Time) {
        let Some(q) = self.qp_mut(qp) else { return };
        if let Some(r) = q.requester.as_mut() {
            r.on_departure(desc, left);
            self.arm_timer(env, qp);
            self.note_departure(qp, desc, left);
        }
    }

    /// Responses that carry no payload leave at once; READ responses go to a processing unit.
    pub(super) fn respond(&mut self, env: &mut Env<'_>, qp: u32) {
        loop {
            let Some(q) = self.qps[qp as usize].as_deref_mut() else { return };
            let receives = q.srq.is_none().then(|| q.rq.len());
            let Some(r) = q.responder.as_mut() else { return };
            r.set_receives(receives);
            if q.response_in_pu {
                return;
            }
            if r.peek_read() {
                return self.schedule(env, qp);
            }
            let Some(desc) = r.poll_transmit(env.now) else {
                if let Some(due) = r.next_deadline() {
                    env.at(due, Class::Timer, NicEvent::Respond(qp));
                } else if r.silent() {
                    let why = r.refusal().map_or(Why::Modify, Why::Responder);
                    self.enter_error(env, qp, why);
                }
                return;
            };
            let reason = r.reason();
            self.stats.tx_acks += 1;
            let packet = self.new_packet(env, qp, &desc, reason);
            self.tx_bytes += self.rc.wire_bytes(desc.opcode, desc.len);
            let q = self.qps[qp as usize].as_deref_mut().expect("just there");
            env.packets[packet.0].becn = std::mem::take(&mut q.owes_becn);
            q.tx_resp.push(packet, None, 0);
            self.drain(env, qp, true);
        }
    }
}
