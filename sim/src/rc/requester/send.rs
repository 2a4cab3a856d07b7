//! Which packet is next, and what it looks like.

use doorbell_core::verbs::{Operation, Psn, QpType, Rkey, SendFlags, WcStatus, WrOpcode};

use super::super::config::{AckReqLast, MAX_UNACKED};
use super::super::packet::{Ext, PacketDesc, distance, opcode};
use super::super::reason::Reason;
use super::super::recovery::LossRecovery;
use super::super::rules::{Fence, LimitedWqe};
use super::{Entry, Requester, Round, SendJob, Stall, Timer};

impl Requester {
    /// The next packet, or `None` when [`blocked_by`](Self::blocked_by) names a reason. The
    /// packets of one QP have to reach the wire in the order in which they are polled.
    pub fn poll_transmit(&mut self) -> Option<PacketDesc> {
        if !self.peek_transmit() {
            return None;
        }
        if self.cfg.service == QpType::Rc
            && let Some(psn) = self.recovery.next(self.flight())
        {
            return Some(self.send_again(psn));
        }
        let entry = &self.queue[self.cursor];
        let mut desc = self.describe(entry, self.packet);
        let takes = takes(entry, self.packet);
        let (answered, packets) = (entry.answered(), entry.packets);
        let (op, signalled) = (entry.job.op, entry.job.flags.contains(SendFlags::SIGNALED));
        self.next = self.next.add(takes);
        if self.cfg.service == QpType::Rc {
            self.rd_atomic += u8::from(answered && self.packet == 0);
            let limited = self.packet == 0 && self.begin_message(op.consumes_recv(), packets);
            let last = self.packet + takes == packets;
            desc.ack_req = answered || limited || self.wants_ack(last, signalled);
            self.sent(desc.ack_req);
        }
        self.packet += takes;
        if self.packet == packets {
            self.packet = 0;
            self.cursor += 1;
        }
        Some(desc)
    }

    /// A packet that was sent before, from the work request alone. The last of a round asks for
    /// an ACK, since those that asked before may have been answered before the loss.
    fn send_again(&mut self, psn: Psn) -> PacketDesc {
        let (i, index) = self.locate(psn);
        let entry = &mut self.queue[i];
        let takes = takes(entry, index);
        if entry.job.op == WrOpcode::RdmaRead {
            entry.restart = index;
        }
        let entry = &self.queue[i];
        let mut desc = self.describe(entry, index);
        let ends = entry.answered() || index + takes == entry.packets;
        self.recovery.on_sent(self.flight(), psn, takes);
        let round_over = self.recovery.next(self.flight()).is_none();
        // Packets apart from each other do not tell how far the peer has come: it is asked.
        let apart = psn == self.una && !self.recovery.sends_all_again();
        desc.ack_req = ends || round_over || apart || self.counts_out();
        self.sent(desc.ack_req);
        self.counters.retransmitted_packets += 1;
        desc
    }

    /// Why `pkt`, which was polled and had been sent before, goes out again.
    pub fn resend_reason(&self, pkt: &PacketDesc) -> Option<Reason> {
        let Round { cause, nth: round, limit } = self.round?;
        let (i, index) = self.locate(pkt.psn);
        let entry = &self.queue[i];
        let part = entry.job.op == WrOpcode::RdmaRead && index > 0;
        let read = part.then_some((index, entry.packets));
        Some(Reason::Resend { round, limit, cause, read })
    }

    /// Bookkeeping of a packet that was polled.
    const fn sent(&mut self, ack_req: bool) {
        self.since_ack_req = if ack_req { 0 } else { self.since_ack_req + 1 };
        self.asked.inside += ack_req as u32;
    }

    /// Counts a message into the credits; whether it is the one beyond them.
    fn begin_message(&mut self, takes_recv: bool, packets: u32) -> bool {
        let c = &mut self.credits;
        c.ssn = c.ssn.next();
        if c.unlimited {
            return false;
        }
        if !takes_recv {
            // Takes no receive at the peer, and its MSN counts it all the same.
            c.lsn = c.lsn.next();
            return false;
        }
        let limited = c.ssn.diff(c.lsn) > 0;
        if limited && packets > 1 && self.cfg.rules.limited_wqe == LimitedWqe::FirstPacket {
            c.limited = Some(self.next);
        }
        limited
    }

    /// The work request that holds a PSN that was sent, and the packet within it.
    pub(super) fn locate(&self, psn: Psn) -> (usize, u32) {
        let ahead = distance(self.una, psn);
        let (mut low, mut high) = (self.done, self.cursor.min(self.queue.len() - 1));
        while low < high {
            let middle = low.midpoint(high);
            let entry = &self.queue[middle];
            if distance(self.una, entry.first.add(entry.packets)) <= ahead {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        (low, distance(self.queue[low].first, psn))
    }

    /// First PSN and count of what the peer holds when it holds the packet with `psn`: a READ
    /// request stands for all its responses.
    pub(super) fn held_by_peer(&self, psn: Psn) -> (Psn, u32) {
        let (i, index) = self.locate(psn);
        (psn, takes(&self.queue[i], index))
    }

    /// AckReq of the packet that has just been counted into `next`.
    fn wants_ack(&self, last: bool, signalled: bool) -> bool {
        let by_message = last
            && !mutant!(LastAsksForNoAck)
            && match self.cfg.ack_req_last {
                AckReqLast::EveryMessage => true,
                // A fence that waits for everything may follow any message.
                AckReqLast::Signalled => signalled || self.cfg.rules.fence == Fence::AllPrior,
            };
        // Nothing more can be sent: without an ACK the window would never open again.
        by_message || self.counts_out() || self.outstanding() >= self.window()
    }

    const fn counts_out(&self) -> bool {
        let every = self.cfg.ack_req_every;
        every > 0 && self.since_ack_req + 1 >= every
    }

    fn window(&self) -> u32 {
        self.cfg.max_outstanding_packets.min(self.recovery.cap()).min(self.congestion_window)
            + u32::from(mutant!(WindowPlusOne))
    }

    /// Whether [`poll_transmit`](Self::poll_transmit) would give a packet.
    pub fn peek_transmit(&self) -> bool {
        self.blocked_by().is_none()
    }

    /// Why no packet can be sent; `None` when one can.
    pub fn blocked_by(&self) -> Option<Stall> {
        if self.failed {
            return Some(Stall::Empty);
        }
        if let Timer::Wait(_, stall) = self.timer {
            return Some(stall);
        }
        let rc = self.cfg.service == QpType::Rc;
        if rc && let Some(psn) = self.recovery.next(self.flight()) {
            let (i, _) = self.locate(psn);
            return (self.queue[i].status != WcStatus::Success).then_some(Stall::Doomed);
        }
        let Some(entry) = self.queue.get(self.cursor) else { return Some(Stall::Empty) };
        if entry.status != WcStatus::Success {
            return Some(Stall::Doomed);
        }
        if self.holds && self.packet == 0 {
            return Some(Stall::Drained);
        }
        if !rc {
            return None;
        }
        let used = self.outstanding();
        if used >= self.window() {
            return Some(Stall::Window);
        }
        if self.packet > 0 {
            return self.credits.limited.is_some().then_some(Stall::Credits);
        }
        self.new_message_blocked_by(entry, used)
    }

    fn new_message_blocked_by(&self, entry: &Entry, used: u32) -> Option<Stall> {
        if entry.job.flags.contains(SendFlags::FENCE) && !mutant!(FenceIgnored) {
            let clear = match self.cfg.rules.fence {
                Fence::ReadAtomic => self.rd_atomic == 0,
                Fence::AllPrior => used == 0,
            };
            if !clear {
                return Some(Stall::Fence);
            }
        }
        if entry.answered() {
            if self.rd_atomic >= self.cfg.max_rd_atomic + u8::from(mutant!(RdAtomicPlusOne)) {
                return Some(Stall::RdAtomic);
            }
            if used + entry.packets > MAX_UNACKED {
                return Some(Stall::Window);
            }
        }
        let c = &self.credits;
        let beyond = !c.unlimited && c.ssn.next().diff(c.lsn.next()) > 0;
        (beyond && entry.job.op.consumes_recv()).then_some(Stall::Credits)
    }

    /// Packet `index` of a message. A READ that starts behind its first packet asks for the rest.
    fn describe(&self, entry: &Entry, index: u32) -> PacketDesc {
        let job = &entry.job;
        let answered = entry.answered();
        let offset = index * self.mtu();
        let left = job.len - offset;
        let last = answered || index + 1 == entry.packets;
        let first = answered || index == 0 || (last && mutant!(OnlyForLast));
        let operation = job.op.packet(first, last);
        let opcode = operation.and_then(|o| opcode(self.cfg.service, o));
        let opcode = opcode.expect("work requests without packets are refused when pushed");
        PacketDesc {
            opcode,
            psn: entry.first.add(index),
            dest: if self.cfg.service == QpType::Ud { job.dest } else { self.cfg.dest },
            ack_req: false,
            solicited: last && job.op.consumes_recv() && job.flags.contains(SendFlags::SOLICITED),
            wqe: job.wqe,
            offset,
            len: if answered { 0 } else { left.min(self.mtu()) },
            ext: self.extended_header(job, opcode.operation(), offset),
        }
    }

    fn extended_header(&self, job: &SendJob, operation: Operation, offset: u32) -> Ext {
        let SendJob { rkey, imm_or_inv: imm, qkey, swap_add, compare, .. } = *job;
        let va = job.remote_va.wrapping_add(offset.into());
        let missing = if mutant!(ReadAgainAsksForAll) { 0 } else { offset };
        let (dma_len, src) = (job.len - missing, self.cfg.qpn);
        match (operation, operation.has_imm()) {
            (_, true) if self.cfg.service == QpType::Ud => Ext::DethImm { qkey, src, imm },
            (_, false) if self.cfg.service == QpType::Ud => Ext::Deth { qkey, src },
            (Operation::CompareSwap, _) => Ext::Atomic { va, rkey, swap_add, compare },
            (Operation::FetchAdd, _) => Ext::Atomic { va, rkey, swap_add, compare: 0 },
            (o, true) if o.has_reth() => Ext::RethImm { va, rkey, dma_len, imm },
            (o, false) if o.has_reth() => Ext::Reth { va, rkey, dma_len },
            (_, true) => Ext::Imm(imm),
            (o, false) if o.has_ieth() => Ext::Invalidate(Rkey(imm)),
            (_, false) => Ext::None,
        }
    }
}

/// PSNs of packet `index`: a READ request takes those of all responses that it asks for.
fn takes(entry: &Entry, index: u32) -> u32 {
    if entry.job.op == WrOpcode::RdmaRead { entry.packets - index } else { 1 }
}
