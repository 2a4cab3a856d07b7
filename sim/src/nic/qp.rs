//! A queue pair as the NIC holds it.

use std::collections::VecDeque;

use doorbell_core::transport::{QpAttr, QpCaps};
use doorbell_core::units::{Span, Time};
use doorbell_core::verbs::{Psn, QpState, QpType, Qpn};

use super::answers::AnswerWaits;
use super::congestion::QpFlow;
use super::overtaken::Placing;
use super::postmortem::Death;
use super::queues::SendQueue;
use super::recv_queue::{RecvQueue, Turn};
use super::sight::Sight;
use super::wqe::RqWqe;
use crate::memory::{MemoryError, RegionKind};
use crate::rc::{
    HwCounters, PacketDesc, ReadJob, Reason, RecoverCause, Requester, Responder, Stall,
};
use crate::wire::{HostId, Packet, PacketId, PortId};

/// Index of the first QP's number: 0 and 1 are the management QPs.
pub const FIRST_QPN: u32 = 16;

/// A packet that waits for its payload, or behind one that does. Packets of a FIFO leave in order.
#[derive(Debug)]
pub(super) struct TxJob {
    pub packet: PacketId,
    /// The READ that it answers. Kept here because the responder may forget a READ, or fail,
    /// before the data of its last packets has been read.
    pub read: Option<ReadJob>,
    /// DMA reads still under way.
    pub pending: u8,
}

/// A packet for a processing unit.
#[derive(Copy, Clone, Debug)]
pub(super) struct NextPacket {
    pub desc: PacketDesc,
    /// The READ that it answers, if it is a response.
    pub read: Option<ReadJob>,
    /// Why it leaves, where that is worth a word.
    pub reason: Option<Reason>,
}

/// Packets of one QP in one direction (requests or responses), in order.
#[derive(Debug, Default)]
pub(super) struct TxFifo {
    pub jobs: VecDeque<TxJob>,
    /// Free-running number of the first job.
    pub first: u32,
}

impl TxFifo {
    pub fn push(&mut self, packet: PacketId, read: Option<ReadJob>, pending: u8) -> u32 {
        self.jobs.push_back(TxJob { packet, read, pending });
        self.first.wrapping_add(self.jobs.len() as u32 - 1)
    }

    /// Takes every packet out; numbers go on.
    pub fn clear(&mut self) -> impl Iterator<Item = PacketId> {
        self.first = self.first.wrapping_add(self.jobs.len() as u32);
        self.jobs.drain(..).map(|job| job.packet)
    }

    pub fn job(&mut self, seq: u32) -> Option<&mut TxJob> {
        self.jobs.get_mut(seq.wrapping_sub(self.first) as usize)
    }

    /// The next packet whose payload is complete.
    pub fn pop_ready(&mut self) -> Option<PacketId> {
        let job = self.jobs.pop_front_if(|j| j.pending == 0)?;
        self.first = self.first.wrapping_add(1);
        Some(job.packet)
    }
}

/// A request that a receive unit is done with.
#[derive(Copy, Clone, Debug)]
pub(super) struct Arrival {
    pub packet: PacketId,
    pub turn: Turn,
    /// Bytes of the receive buffer that it holds until it goes on.
    pub room: u32,
}

/// A write of the NIC to host memory on behalf of a QP.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum HostWrite {
    /// Payload of a READ or ATOMIC that waits for its WQE.
    AwaitsWqe(u32),
    /// Payload of a READ or ATOMIC.
    Response(u32),
    /// Payload of a request of the peer.
    Inbound(u32),
    /// Completion queue entry.
    Cqe(u32),
}

/// Where the QP's context is.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Context {
    /// On the chip, or not tracked.
    Held,
    /// Being read from host memory.
    Loading,
}

/// What waits for the QP's context.
#[derive(Copy, Clone, Debug)]
pub(super) enum Deferred {
    Doorbell { prod: u32, blueflame: bool },
    Rx(PacketId),
}

/// Counters of a QP, by what they count.
#[derive(Copy, Clone, Default, Debug)]
pub struct QpStats {
    /// Doorbells and BlueFlame writes that reached the NIC.
    pub rings: u64,
    /// WQEs executed.
    pub wqes: u64,
    /// Rings whose WQE stores the initiator had not ordered before them.
    pub unordered_rings: u64,
    /// WQEs whose content was stale when the NIC read them.
    pub stale_wqes: u64,
    /// WQEs of which the NIC read only some pieces: they end with `LOC_QP_OP_ERR`.
    pub torn_wqes: u64,
    /// Payload reads that came before the initiator's stores.
    pub stale_payloads: u64,
    /// RNR NAKs for a page fault and not for want of a receive.
    pub page_fault_naks: u64,
    /// Most READs and ATOMICs without an answer.
    pub rd_atomic_peak: u8,
    /// READs and ATOMICs that began,
    pub rd_atomics: u64,
    /// and how often the next one was there and had to wait for an answer to one before it.
    pub rd_atomic_waits: u64,
    /// When one of its timers last expired.
    pub stood_until: Time,
    /// Time that passed without any packet for this QP before its ack timer expired,
    pub ack_timer_waited: Span,
    /// and before a wait that an RNR NAK had asked for was over.
    pub rnr_waited: Span,
    /// Waits of the latter kind that were over.
    pub rnr_waits: u64,
    /// Expiries of the ack timer after which it went on,
    pub ack_timer_waits: u64,
    /// and those of them that came while something was being sent again: that was lost too, or its
    /// answer.
    pub ack_timer_waits_again: u64,
    /// The present row of expiries without progress between them: the first transmission of what
    /// was awaited, and for how long the timer ran in all.
    pub ack_row: (Time, Span),
    /// The longest time that the timer ran in one such row.
    pub longest_ack_row: Span,
    /// When its first request went to a processing unit.
    pub first_sent: Option<Time>,
    /// Of a UD QP: port and UDP source port of the address handle of its last datagram.
    pub last_datagram: Option<(HostId, PortId, u16)>,
    /// Payload of all its datagrams.
    pub datagram_bytes: u64,
    /// Requests that the ack timer of the peer sent again and that had come before: the timer was
    /// too early, unless an answer was lost.
    pub needless_resends: u64,
    /// Requests that this QP took, copies and those beyond a gap included, and of UC those for
    /// which there was no place: not the others that it dropped.
    pub rx_requests: u64,
    /// Responses that a receive unit took for it.
    pub rx_responses: u64,
    /// Payload bytes received and placed: of the peer's requests, and of responses to its own.
    pub rx_payload: u64,
}

/// One QP.
#[derive(Debug)]
pub struct NicQp {
    /// Number.
    pub qpn: Qpn,
    /// Service.
    pub ty: QpType,
    /// Protection domain.
    pub pd: u32,
    /// State of the device.
    pub state: QpState,
    /// State as the host knows it: what it has asked for, and errors whose completions it has
    /// polled.
    pub host_state: QpState,
    /// RESETs of the device. What was under way in an earlier life has no effect on this one.
    pub life: u32,
    /// RESETs that the host has asked for.
    pub host_life: u32,
    /// Where its work queues are.
    pub queue_space: RegionKind,
    /// Index of the CQ for sends.
    pub send_cq: u32,
    /// Index of the CQ for receives.
    pub recv_cq: u32,
    /// Index of the shared receive queue.
    pub srq: Option<u32>,
    /// What was granted.
    pub caps: QpCaps,
    /// Attributes set so far.
    pub attr: QpAttr,
    /// The peer's host, once connected,
    pub peer: HostId,
    /// and its port.
    pub peer_port: PortId,
    /// First PSN that it will send, unless the program sets another.
    pub first_psn: Psn,
    /// Whether every send is signalled.
    pub sig_all: bool,
    /// Initiator that made it.
    pub owner: u16,
    /// Send queue.
    pub sq: SendQueue,
    /// Own receive queue; empty with an SRQ.
    pub rq: RecvQueue,
    /// Sending half.
    pub requester: Option<Requester>,
    /// Receiving half.
    pub responder: Option<Responder>,
    /// Counters.
    pub stats: QpStats,
    /// How its ack timer and the answers met.
    pub waits: AnswerWaits,
    /// When a packet of this QP last moved it on.
    pub last_progress: Time,
    /// When payload for this QP last came to lie in memory.
    pub last_placed: Time,
    /// Payload writes under way, to find completions that overtake them.
    pub(super) placing: Placing,
    /// When PSNs that it had sent were last acknowledged.
    pub acknowledged: Option<Time>,
    /// When a receive unit last took a request for it.
    pub last_request: Option<Time>,
    /// Receives that its queue held when it last refused a packet for want of one: more than none
    /// where a planned fault withholds them.
    pub fill_at_rnr: Option<u32>,
    /// When it was last reset.
    pub reset_at: Option<Time>,
    /// Requests that were sent for the first time and that this side took for duplicates: how many
    /// and when the last one came. After a loss of order, or after a copy, they are harmless.
    pub fresh_duplicates: Option<(u64, Time)>,
    /// Since when it takes packets; `None`: it never did in this life.
    pub accepts_since: Option<Time>,
    /// How it came to ERR, in this life.
    pub death: Option<Box<Death>>,
    /// The first check of local memory that failed a work request.
    pub(super) bad_memory: Option<MemoryError>,
    pub(super) pu: u16,
    pub(super) rx: u16,
    pub(super) in_pu: bool,
    pub(super) context: Context,
    pub(super) deferred: Vec<Deferred>,
    pub(super) tx_req: TxFifo,
    pub(super) tx_resp: TxFifo,
    /// ATOMICs accepted whose word has not been changed yet.
    pub(super) atomics: u32,
    /// Requests that wait for a receive WQE or for an ATOMIC, and those behind them.
    pub(super) rx_wait: VecDeque<Arrival>,
    pub(super) current_recv: Option<RqWqe>,
    /// UDP source port of its packets.
    pub udp_source_port: u16,
    /// When responses are looked for next; [`Time::MAX`]: not scheduled.
    pub(super) respond_at: Time,
    /// A processing unit works on a READ response, which later responses must not overtake.
    pub(super) response_in_pu: bool,
    /// Writes to memory that keep their order behind a WQE that is read again.
    pub(super) held_writes: VecDeque<HostWrite>,
    /// Times of the timer events that are pending, the earliest last. A deadline that moves away
    /// needs no new one, so there are two at most in practice: one for the ack timer, and one for
    /// an RNR wait that began before it.
    pub(super) timers: Vec<Time>,
    /// Packets that the responder keeps beyond a gap.
    pub(super) kept: Vec<(Psn, PacketId)>,
    /// What of its payload is on its way to memory, where that may change its order.
    pub(super) sight: Sight,
    /// Completions that are on their way to memory, of sends and of receives.
    pub(super) landing: [u32; 2],
    /// `QP_LAST_WQE_REACHED` was raised in this life.
    pub(super) last_wqe_told: bool,
    /// Whether a send, and a receive, was flushed in this life.
    pub(super) flushed: [bool; 2],
    /// `COMM_EST` was raised in this life.
    pub(super) comm_est_told: bool,
    /// SQD was entered, and SQ_DRAINED is owed.
    pub(super) tells_drained: bool,
    /// Requests in the port's queue that ask for a response, and how many of these are of an
    /// earlier life.
    pub(super) asked_in_port: u32,
    pub(super) asked_before_reset: u32,
    /// Its flow, where congestion control is on.
    pub(super) flow: Option<Box<QpFlow>>,
    /// When it may make a CNP again.
    pub(super) cnp_from: Time,
    /// Its next ACK carries BECN.
    pub(super) owes_becn: bool,
    /// What the engine does not see, and what it saw in earlier lives of the QP.
    pub(super) counters: HwCounters,
}

impl NicQp {
    /// The next packet of this QP that needs a processing unit.
    pub(super) fn next_packet(&mut self, now: Time) -> Option<NextPacket> {
        if let Some(r) = &mut self.responder
            && r.peek_read()
        {
            let desc = r.poll_transmit(now)?;
            return Some(NextPacket { desc, read: r.read_job(desc.wqe), reason: r.reason() });
        }
        let requester = self.requester.as_mut()?;
        let (new, before) = (requester.next_psn(), requester.rd_atomic());
        let desc = requester.poll_transmit()?;
        let reason = (desc.psn != new).then(|| requester.resend_reason(&desc)).flatten();
        if requester.rd_atomic() > before {
            let waits = requester.blocked_by() == Some(Stall::RdAtomic);
            let s = &mut self.stats;
            s.rd_atomic_peak = s.rd_atomic_peak.max(requester.rd_atomic());
            s.rd_atomics += 1;
            s.rd_atomic_waits += u64::from(waits);
        }
        Some(NextPacket { desc, read: None, reason })
    }

    /// The first packet of a message went to a processing unit.
    pub(super) fn note_begun(&mut self, now: Time, wqe: u32) {
        self.stats.first_sent.get_or_insert(now);
        if self.ty == QpType::Ud
            && let Some(sent) = self.sq.slot(wqe).map(|s| s.effective())
            && let (Some(to), bytes) = (sent.dest, sent.len)
        {
            self.stats.datagram_bytes += u64::from(bytes);
            self.stats.last_datagram = Some((to.host, to.port, to.udp_source_port));
        }
    }

    /// A request was judged; `again`: it had been taken before. Gives why it was sent.
    pub(super) fn note_taken(&mut self, p: &Packet, again: bool) -> Option<Reason> {
        let (reason, timer) = (p.reason(), RecoverCause::Timeout);
        let timer = matches!(reason, Some(Reason::Resend { cause, .. }) if cause == timer);
        self.stats.needless_resends += u64::from(again && timer);
        self.waits.came(p.expiries);
        reason
    }

    /// A request that was sent for the first time was taken for a duplicate.
    pub(super) fn note_fresh_duplicate(&mut self, now: Time) {
        let before = self.fresh_duplicates.map_or(0, |(n, _)| n);
        self.fresh_duplicates = Some((before + 1, now));
    }

    /// Whether requests went out whose answers the QP needs to go on.
    pub fn has_awaited_answers(&self) -> bool {
        self.requester.as_ref().is_some_and(|r| r.outstanding() > 0 && !r.completes_at_link())
    }

    /// Whether it has nothing to send, now or by a timer: all that was posted was sent, or waits
    /// for what others do.
    pub fn sends_nothing(&self) -> bool {
        let over = |r: &Requester| r.next_deadline().is_none() && !r.peek_transmit();
        let fetched = self.sq.prod() == self.sq.announced && self.sq.fetches == 0;
        let waits = !self.deferred.is_empty() || !self.held_writes.is_empty();
        fetched && !waits && !self.in_pu && self.requester.as_ref().is_none_or(over)
    }

    /// Whether no request that it took is still to be answered.
    pub fn answers_nothing(&self) -> bool {
        let over = |r: &Responder| !r.peek_transmit(Time::MAX);
        !self.response_in_pu && self.responder.as_ref().is_none_or(over)
    }

    /// Whether a processing unit has something to do for this QP.
    pub(super) fn has_work(&self) -> bool {
        self.responder.as_ref().is_some_and(Responder::peek_read)
            || self.requester.as_ref().is_some_and(Requester::peek_transmit)
    }
}
