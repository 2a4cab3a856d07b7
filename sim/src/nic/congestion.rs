//! Congestion control in the NIC: the pace of flows, and news of marks in both directions.
//!
//! **Reaction point.** A QP whose flow has a rate is not taken by a processing unit before the
//! time of its next packet: the bytes of the last one on the wire, headers included, at the rate.
//! It steps aside, and one event per flow is pending for when its turn may have come. A change of
//! the rate stretches or shrinks what is left to wait, or leaves it alone
//! ([`keep_gap`](crate::cc::Congestion::keep_gap)). READ responses are paced like requests,
//! retransmissions like first transmissions; ACKs, NAKs and CNPs are not. A flow without a rate
//! costs no event.
//!
//! A control's own deadlines need no events either: they are made up for before anybody looks.
//!
//! **Notification point.** A marked packet that carries payload makes a CNP for the QP that sent
//! it, unless one left too short a time ago; CNPs go to the port without waiting for a processing
//! unit.

use std::collections::VecDeque;

use doorbell_core::units::{BitRate, Serialiser, Span, Time};
use doorbell_core::verbs::{Opcode, Operation, Psn, QpType};

use super::env::{Env, NicEvent, kind};
use super::{Nic, NicQp};
use crate::cc::{CcEvent, CnpScope, CongestionControl, Flow, FlowScope, Swings};
use crate::engine::Class;
use crate::rc::{Accept, Ext, PacketDesc, Received, RecoverCause};
use crate::wire::codec::{CNP_BODY, Ecn};
use crate::wire::{Encapsulation, HostId, Packet, PacketId, Payload, PortId};

/// The port of a peer.
type Far = (HostId, PortId);

/// Deadlines of a control that are made up for in one go. One that has more has a timer that is
/// faster than any device's, or a flow that was idle for years.
const MAX_DEADLINES: u32 = 1 << 24;

/// A flow: its control and its pace.
#[derive(Debug)]
pub(super) struct Pace {
    control: Flow,
    line: BitRate,
    /// A change of the rate leaves the gap that runs as it is.
    keep_gap: bool,
    /// The rate in effect; `None`: no limit.
    limiter: Option<Serialiser>,
    /// The next packet may go from then on.
    next: Time,
    /// QPs with work that wait for it, in turn.
    waiting: VecDeque<u32>,
    /// When the event that counts comes; others that are pending were overtaken.
    wake: Option<Time>,
    /// What became of the rate, for the report.
    cuts: u64,
    lowest: Option<BitRate>,
}

impl Pace {
    fn new(control: Flow, line: BitRate, keep_gap: bool) -> Self {
        Self {
            control,
            line,
            keep_gap,
            limiter: None,
            next: Time::ZERO,
            waiting: VecDeque::new(),
            wake: None,
            cuts: 0,
            lowest: None,
        }
    }

    fn rate(&self) -> Option<BitRate> {
        self.limiter.map(|l| l.rate())
    }

    /// Makes up for the deadlines that have passed.
    fn advance(&mut self, now: Time) {
        for _ in 0..MAX_DEADLINES {
            let Some(due) = self.control.next_deadline().filter(|due| *due <= now) else { return };
            self.control.on_event(due, CcEvent::Timer);
            assert!(
                self.control.next_deadline().is_none_or(|next| next > due),
                "the deadline of a congestion control does not move on from {due}"
            );
            self.apply(due);
        }
        unreachable!("a congestion control with more than {MAX_DEADLINES} deadlines");
    }

    fn feed(&mut self, now: Time, event: CcEvent) {
        self.advance(now);
        self.control.on_event(now, event);
        self.apply(now);
    }

    /// Takes over the control's rate: the bytes that are still owed are paid at the new one.
    fn apply(&mut self, at: Time) {
        let wanted = self.control.rate().filter(|rate| *rate < self.line);
        let old = self.rate();
        if wanted == old {
            return;
        }
        let (before, after) = (old.unwrap_or(self.line), wanted.unwrap_or(self.line));
        if after < before {
            self.cuts += 1;
            self.lowest = Some(self.lowest.map_or(after, |lowest| lowest.min(after)));
        }
        let left = self.next.since(at);
        self.next = match wanted {
            _ if self.keep_gap => self.next.max(at),
            Some(_) if left > Span::ZERO => at + rescaled(left, before, after),
            _ => at,
        };
        match (&mut self.limiter, wanted) {
            (Some(limiter), Some(rate)) => limiter.set_rate(rate),
            (limiter, wanted) => *limiter = wanted.map(Serialiser::new),
        }
    }

    /// A packet of so many bytes on the wire leaves the scheduler.
    fn sent(&mut self, now: Time, bytes: u32) {
        self.control.on_event(now, CcEvent::Sent { bytes });
        self.apply(now);
        if let Some(limiter) = &mut self.limiter {
            self.next = now + limiter.next(bytes.into());
        }
    }
}

fn together(a: Option<Swings>, b: Option<Swings>) -> Option<Swings> {
    a.into_iter().chain(b).reduce(Swings::and)
}

/// `left` at the rate `before` as time at the rate `after`, rounded up.
fn rescaled(left: Span, before: BitRate, after: BitRate) -> Span {
    let ps = u128::from(left.as_ps()) * u128::from(before.as_bps());
    let ps = ps.div_ceil(u128::from(after.as_bps()));
    Span::from_ps(u64::try_from(ps).unwrap_or(u64::MAX))
}

/// What a QP has where congestion control is on.
#[derive(Debug)]
pub(super) struct QpFlow {
    /// Its flow.
    pub id: u32,
    /// It is among those that wait for the flow's next packet.
    pub waits: bool,
    /// Requests that asked for an ACK and have left: PSN and when their last bit did. Empty where
    /// the control takes no samples.
    asked: VecDeque<(Psn, Time)>,
    /// The last of them, those that were lost included: what is sent again gives no sample.
    newest: Option<Psn>,
}

impl Nic {
    /// Gives a QP that is connected its flow.
    pub(super) fn join_flow(&mut self, env: &Env<'_>, qp: u32) {
        let line = env.port.egress(self.port).rate();
        let scope = self.rc.congestion.control.scope();
        let level = self.qp(qp).map_or(0, |q| q.attr.path.sl.code());
        let shared = self.shared_flows.get(&level).copied().filter(|_| scope == FlowScope::Sl);
        let id = match shared {
            Some(id) => id,
            None => {
                let Some(control) = self.rc.congestion.control.build(line) else { return };
                let keep_gap = self.rc.congestion.keep_gap;
                let id = self.flows.insert(Pace::new(control, line, keep_gap));
                if scope == FlowScope::Sl {
                    self.shared_flows.insert(level, id);
                }
                id
            }
        };
        if let Some(q) = self.qp_mut(qp) {
            q.flow =
                Some(Box::new(QpFlow { id, waits: false, asked: VecDeque::new(), newest: None }));
        }
    }

    /// Takes the flow of a QP that is reset or destroyed.
    pub(super) fn leave_flow(&mut self, qp: u32) {
        let Some(flow) = self.qp_mut(qp).and_then(|q| q.flow.take()) else { return };
        if self.rc.congestion.control.scope() == FlowScope::Sl {
            self.flows[flow.id].waiting.retain(|waiting| *waiting != qp);
        } else {
            let pace = self.flows.remove(flow.id);
            self.count_rates(&pace);
        }
    }

    fn count_rates(&mut self, pace: &Pace) {
        self.stats.rate_cuts += pace.cuts;
        let low = self.stats.lowest_rate.into_iter().chain(pace.lowest).min();
        self.stats.lowest_rate = low;
        self.stats.swings = together(self.stats.swings, pace.control.swings());
    }

    /// Rate cuts of all flows that there were, and the lowest rate that any had.
    pub fn rates(&self) -> (u64, Option<BitRate>) {
        let of = |(cuts, lowest): (u64, Option<BitRate>), pace: &Pace| {
            (cuts + pace.cuts, lowest.into_iter().chain(pace.lowest).min())
        };
        let gone = (self.stats.rate_cuts, self.stats.lowest_rate);
        self.flows.iter().map(|(_, pace)| pace).fold(gone, of)
    }

    /// How the round trip times of all flows that there were moved about their target; `None` where
    /// no control has one.
    pub fn swings(&self) -> Option<Swings> {
        let all = self.flows.iter().map(|(_, pace)| pace.control.swings());
        all.fold(self.stats.swings, together)
    }

    /// The rate of a QP's flow when it was last looked at; `None`: no limit.
    pub fn rate_of(&self, q: &NicQp) -> Option<BitRate> {
        self.flows.get(q.flow.as_ref()?.id)?.rate()
    }

    /// Whether the QP may send a packet now. If not, it has stepped aside.
    pub(super) fn in_pace(&mut self, env: &mut Env<'_>, qp: u32) -> bool {
        let Some(q) = self.qps[qp as usize].as_deref_mut() else { return true };
        let Some(flow) = q.flow.as_deref_mut() else { return true };
        let pace = &mut self.flows[flow.id];
        pace.advance(env.now);
        if pace.next <= env.now {
            return true;
        }
        flow.waits = true;
        let id = flow.id;
        q.in_pu = false;
        pace.waiting.push_back(qp);
        self.stats.paced += 1;
        self.arm_pace(env, id);
        false
    }

    /// A packet of a QP that has a flow goes to a processing unit.
    pub(super) fn paced(&mut self, env: &Env<'_>, id: u32, desc: &PacketDesc) {
        let bytes = self.rc.wire_bytes(desc.opcode, desc.len);
        self.flows[id].sent(env.now, bytes);
    }

    /// Sees to it that an event comes when the first QP that waits may have its turn: at the pace,
    /// or when the control may change it.
    fn arm_pace(&mut self, env: &mut Env<'_>, id: u32) {
        let pace = &mut self.flows[id];
        if pace.waiting.is_empty() {
            return;
        }
        let deadline = pace.control.next_deadline().unwrap_or(Time::MAX);
        let due = pace.next.min(deadline).max(env.now);
        if pace.wake.is_none_or(|wake| due < wake) {
            pace.wake = Some(due);
            env.at(due, Class::Timer, NicEvent::Pace(id));
        }
    }

    /// The time of a flow's next packet may have come. False: it was overtaken. One that a NIC
    /// which stands still has put off comes late, and counts.
    pub(super) fn on_pace(&mut self, env: &mut Env<'_>, id: u32) -> bool {
        let due = |p: &&mut Pace| p.wake.is_some_and(|wake| wake <= env.now);
        let Some(pace) = self.flows.get_mut(id).filter(due) else { return false };
        pace.wake = None;
        pace.advance(env.now);
        while let Some(pace) = self.flows.get_mut(id)
            && pace.next <= env.now
            && let Some(qp) = pace.waiting.pop_front()
        {
            if let Some(flow) = self.qp_mut(qp).and_then(|q| q.flow.as_deref_mut()) {
                flow.waits = false;
            }
            self.schedule(env, qp);
        }
        if self.flows.get(id).is_some() {
            self.arm_pace(env, id);
        }
        true
    }

    /// Tells the control of a QP's flow, and what follows from it.
    fn tell(&mut self, env: &mut Env<'_>, qp: u32, event: CcEvent) {
        let shared = self.rc.congestion.control.scope() == FlowScope::Sl;
        let Self { qps, flows, .. } = self;
        let Some(q) = qps.get_mut(qp as usize).and_then(Option::as_deref_mut) else { return };
        let Some(id) = q.flow.as_ref().map(|flow| flow.id) else { return };
        let pace = &mut flows[id];
        pace.feed(env.now, event);
        if !shared && let Some(r) = q.requester.as_mut() {
            let mtu = u64::from(q.attr.path_mtu.bytes());
            let packets = pace.control.window().map_or(u64::MAX, |bytes| bytes / mtu);
            r.set_congestion_window(u32::try_from(packets).unwrap_or(u32::MAX));
        }
        self.arm_pace(env, id);
    }

    /// A request that asks for an ACK leaves; its last bit at `left`.
    pub(super) fn note_departure(&mut self, qp: u32, desc: &PacketDesc, left: Time) {
        let Self { qps, flows, .. } = self;
        let Some(q) = qps.get_mut(qp as usize).and_then(Option::as_deref_mut) else { return };
        let Some(flow) = q.flow.as_deref_mut() else { return };
        let operation = desc.opcode.operation();
        let answered = operation.is_atomic() || operation == Operation::RdmaReadRequest;
        let first = flow.newest.is_none_or(|newest| desc.psn.diff(newest) > 0);
        if answered || !first || !flows[flow.id].control.samples_rtt() {
            return;
        }
        flow.newest = Some(desc.psn);
        flow.asked.push_back((desc.psn, left));
    }

    /// A response has been taken; `before` was the oldest unacknowledged PSN.
    pub(super) fn after_response(
        &mut self,
        env: &mut Env<'_>,
        qp: u32,
        (before, ecn): (Psn, bool),
        received: &Received,
    ) {
        let Some(q) = self.qps[qp as usize].as_deref_mut() else { return };
        let (Some(r), Some(flow)) = (&q.requester, q.flow.as_deref_mut()) else { return };
        if r.failed() {
            return;
        }
        let una = r.unacked_psn();
        let mut rtt = None;
        while let Some((_, left)) = flow.asked.pop_front_if(|(psn, _)| psn.diff(una) < 0) {
            rtt = Some(env.now.since(left));
        }
        if ecn {
            q.counters.rp_cnp_handled += 1;
        }
        let acked = una.diff(before).max(0).cast_unsigned();
        let bytes = u64::from(acked) * u64::from(q.attr.path_mtu.bytes());
        if bytes > 0 || ecn {
            self.tell(env, qp, CcEvent::Ack { bytes, rtt, ecn });
        }
        match received {
            Received::Recover { cause: RecoverCause::Rnr(_), .. } => {}
            Received::Recover { .. } => self.lost(env, qp, CcEvent::Nak),
            _ => {}
        }
    }

    /// Packets have to go out again: none of them gives a sample any more.
    pub(super) fn lost(&mut self, env: &mut Env<'_>, qp: u32, event: CcEvent) {
        if let Some(flow) = self.qp_mut(qp).and_then(|q| q.flow.as_deref_mut()) {
            flow.asked.clear();
            self.tell(env, qp, event);
        }
    }

    /// A CNP has come.
    pub(super) fn on_cnp(&mut self, env: &mut Env<'_>, packet: PacketId) {
        let desc = env.packets.remove(packet.0).desc;
        let index = self.own_qp_index(desc.dest);
        let Some((qp, q)) = index.and_then(|i| Some((i, self.qp_mut(i)?))) else {
            self.gone.rp_cnp_ignored += 1;
            return;
        };
        if q.flow.is_none() {
            q.counters.rp_cnp_ignored += 1;
            return;
        }
        q.counters.rp_cnp_handled += 1;
        env.trace(kind::RX, u64::from(qp) << 8 | desc.opcode as u64, 0);
        self.tell(env, qp, CcEvent::Cnp);
    }

    /// A CNP that no QP takes.
    pub(super) fn ignore_cnp(&mut self, env: &mut Env<'_>, packet: PacketId) {
        let desc = env.packets.remove(packet.0).desc;
        match self.own_qp_index(desc.dest).and_then(|i| self.qp_mut(i)) {
            Some(q) => q.counters.rp_cnp_ignored += 1,
            None => self.gone.rp_cnp_ignored += 1,
        }
    }

    /// A receive unit is done with a packet that a switch has marked.
    pub(super) fn on_marked(&mut self, env: &mut Env<'_>, packet: PacketId) {
        let p = &env.packets[packet.0];
        let (desc, from, sl) = (p.desc, (p.src, p.src_port), p.sl);
        let Some(qp) = self.own_qp_index(desc.dest) else { return };
        let becn = self.rc.congestion.notify.is_some_and(|n| n.becn_in_acks);
        let Some(q) = self.qp_mut(qp) else { return };
        q.counters.np_ecn_marked_roce_packets += 1;
        if desc.len == 0 {
            // The way back is full of ACKs, whose pace is that of the data.
            return;
        }
        if becn && desc.ack_req && desc.opcode.is_request() {
            q.owes_becn = true;
            return;
        }
        self.notify(env, qp, &desc, (from, sl));
    }

    /// A gap was found, and a sequence NAK leaves: with some devices, a CNP too.
    pub(super) fn notify_of_gap(
        &mut self,
        env: &mut Env<'_>,
        qp: u32,
        verdict: &Accept,
        packet: PacketId,
    ) {
        let revealed = matches!(verdict, Accept::Hold | Accept::Gap { nak: true });
        if revealed
            && self.rc.congestion.notify.is_some_and(|n| n.with_nak)
            && let Some(from) = self.qp(qp).map(|q| (q.peer, q.peer_port))
        {
            let Packet { desc, sl, .. } = env.packets[packet.0];
            self.notify(env, qp, &desc, (from, sl));
        }
    }

    /// Sends a CNP for a packet to the QP that sent it, if it is time.
    fn notify(&mut self, env: &mut Env<'_>, qp: u32, desc: &PacketDesc, from: (Far, u8)) {
        let Some(np) = self.rc.congestion.notify else { return };
        let (((dst, dst_port), sl), now) = (from, env.now);
        let Some(q) = self.qps[qp as usize].as_deref_mut() else { return };
        let may = match np.scope {
            CnpScope::Qp => &mut q.cnp_from,
            CnpScope::Destination => self.cnp_from.entry(Some((dst, dst_port))).or_default(),
            CnpScope::Port => self.cnp_from.entry(None).or_default(),
        };
        if now < *may {
            return;
        }
        *may = now + np.min_time_between_cnps;
        q.counters.np_cnp_sent += 1;
        let dest = match desc.ext {
            Ext::Deth { src, .. } | Ext::DethImm { src, .. } if q.ty == QpType::Ud => src,
            _ => q.attr.dest_qpn,
        };
        let native = Encapsulation::IbLocal;
        let global = Encapsulation::IbGlobal;
        let ib = self.rc.encapsulation == native || self.rc.encapsulation == global;
        let opcode = if ib { Opcode::CnpInfiniband } else { Opcode::CnpRoceV2 };
        let cnp = PacketDesc {
            opcode,
            psn: Psn::ZERO,
            dest,
            ack_req: false,
            solicited: false,
            wqe: 0,
            offset: 0,
            len: CNP_BODY,
            ext: Ext::None,
        };
        let q = self.qps[qp as usize].as_deref().expect("just there");
        let packet = PacketId(env.packets.insert(Packet {
            src: self.host,
            src_port: self.port,
            dst,
            dst_port,
            udp_source_port: q.udp_source_port,
            payload: Payload::copy_from(&[0; CNP_BODY as usize]),
            desc: cnp,
            src_qp: qp,
            sl: np.sl.unwrap_or(sl),
            ecn: Ecn::Ect0,
            becn: true,
            expiries: 0,
            pkey: self.pkey(q),
            remark: None,
        }));
        if np.delay == Span::ZERO {
            self.send_cnp(env, packet);
        } else {
            env.at(now + np.delay, Class::Stage, NicEvent::Cnp(packet));
        }
    }

    /// A CNP goes to the port.
    pub(super) fn send_cnp(&mut self, env: &mut Env<'_>, packet: PacketId) {
        let p = &env.packets[packet.0];
        let (qp, opcode) = (p.src_qp, p.desc.opcode);
        self.stats.tx_packets += 1;
        env.trace(kind::TX, u64::from(qp) << 8 | opcode as u64, 0);
        env.transmit(packet, self.rc.wire_bytes(opcode, CNP_BODY), self.port);
    }
}
