//! Requester and responder over a network that loses, duplicates, delays and reorders by a plan,
//! with a virtual clock. Checks at every step that nothing is executed twice or out of order, and
//! at the end that every work request has ended as it must. The benchmark P7 uses it too.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use doorbell_core::units::{Span, Time};
use doorbell_core::verbs::{Msn, NakCode, SendFlags, Syndrome, WcStatus, WrOpcode};

use crate::rc::*;

/// What becomes of one packet.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Fate {
    Drop,
    Duplicate,
    /// It comes so much later; others overtake it.
    Delay(Span),
}

/// A fate for the n-th packet of a direction, or a refusal of the n-th request for a receive.
#[derive(Copy, Clone, Debug)]
pub enum Fault {
    Forth(u32, Fate),
    Back(u32, Fate),
    NoReceive(u32),
}

/// Chances in 1/1000, on top of the listed faults.
#[derive(Copy, Clone, Default, Debug)]
pub struct Weather {
    pub drop: u32,
    pub duplicate: u32,
    pub delay: u32,
    pub no_receive: u32,
}

/// A run to be.
#[derive(Clone, Debug)]
pub struct Plan {
    pub requester: RequesterConfig,
    pub responder: ResponderConfig,
    pub jobs: Vec<SendJob>,
    pub faults: Vec<Fault>,
    pub weather: Weather,
    pub seed: u64,
}

/// On the way: arrival, order of departure, packet, and what its payload is.
type InFlight = (Time, u64, usize);

/// NAKs by kind.
#[derive(Copy, Clone, Default, PartialEq, Eq, Debug)]
struct Naks {
    sequence: u64,
    rnr: u64,
}

impl Naks {
    const fn count(&mut self, desc: &PacketDesc) {
        match desc.ext {
            Ext::Sack { .. }
            | Ext::Aeth { syndrome: Syndrome::Nak { code: NakCode::PsnSequenceError }, .. } => {
                self.sequence += 1;
            }
            Ext::Aeth { syndrome: Syndrome::RnrNak { .. }, .. } => self.rnr += 1,
            _ => {}
        }
    }
}

/// The MSN of a response that has one.
const fn msn_of(desc: &PacketDesc) -> Option<Msn> {
    match desc.ext {
        Ext::Aeth { msn, .. } | Ext::AtomicAck { msn, .. } | Ext::Sack { msn, .. } => Some(msn),
        _ => None,
    }
}

#[derive(Default)]
struct Wire {
    heap: BinaryHeap<Reverse<InFlight>>,
    packets: Vec<Option<(PacketDesc, u64)>>,
    free: Vec<usize>,
    sent: u32,
    /// Packets that came out, and those of them that are NAKs.
    came: u64,
    naks: Naks,
    order: u64,
    /// When the sender's port is free.
    port: Time,
}

impl Wire {
    fn push(&mut self, at: Time, packet: (PacketDesc, u64)) {
        let i = self.free.pop().unwrap_or_else(|| {
            self.packets.push(None);
            self.packets.len() - 1
        });
        self.packets[i] = Some(packet);
        self.order += 1;
        self.heap.push(Reverse((at, self.order, i)));
    }

    fn next(&self) -> Option<Time> {
        self.heap.peek().map(|Reverse((at, ..))| *at)
    }

    fn pop(&mut self, now: Time) -> Option<(PacketDesc, u64)> {
        if self.next()? > now {
            return None;
        }
        let Reverse((_, _, i)) = self.heap.pop()?;
        self.free.push(i);
        let packet = self.packets[i].take()?;
        self.came += 1;
        self.naks.count(&packet.0);
        Some(packet)
    }
}

/// One-way time of the network, and of a packet at the port.
pub const LATENCY: Span = Span::from_us(1);
pub const PACKET: Span = Span::from_ns(50);
/// Steps of a run; the largest seen is below a tenth.
const LIMIT: u32 = 200_000;

pub struct Duel<'a> {
    plan: &'a Plan,
    pub requester: Requester,
    pub responder: Responder,
    pub now: Time,
    forth: Wire,
    back: Wire,
    random: u64,
    recv_asked: u32,
    /// Work request that the responder is at, and bytes of it.
    arriving: usize,
    arrived: u32,
    /// Times that each ATOMIC was executed; its value is the number of the execution.
    executed: Vec<u32>,
    executions: u64,
    results: Vec<(Time, u32, u64)>,
    held: Vec<(PacketDesc, u64)>,
    /// Requests that were kept and came again, and that were accepted, by the responder.
    rehanded: u64,
    accepted: u64,
    /// NAKs that left, and request packets that were new.
    left: Naks,
    /// MSN of the last response that had one.
    told: Msn,
    fresh: u64,
    /// Bytes that each READ has got.
    got: Vec<u32>,
    /// Requests whose last bit has not left.
    leaving: VecDeque<(Time, PacketDesc)>,
    pub done: Vec<SendDone>,
}

impl<'a> Duel<'a> {
    pub fn new(plan: &'a Plan) -> Self {
        let mut requester = Requester::new(&plan.requester);
        plan.jobs.iter().for_each(|job| requester.push(*job));
        Self {
            requester,
            responder: Responder::new(&plan.responder),
            now: Time::ZERO,
            forth: Wire::default(),
            back: Wire::default(),
            random: plan.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            recv_asked: 0,
            arriving: 0,
            arrived: 0,
            executed: vec![0; plan.jobs.len()],
            executions: 0,
            results: Vec::new(),
            held: Vec::new(),
            rehanded: 0,
            accepted: 0,
            left: Naks::default(),
            told: Msn::ZERO,
            fresh: 0,
            got: vec![0; plan.jobs.len()],
            leaving: VecDeque::new(),
            done: Vec::new(),
            plan,
        }
    }

    /// Runs until nothing can happen any more, and checks how it ended.
    pub fn run(mut self) -> Self {
        for _ in 0..LIMIT {
            self.step();
            let times = [
                self.forth.next(),
                self.back.next(),
                self.requester.next_deadline(),
                self.responder.next_deadline(),
                self.results.first().map(|(at, ..)| *at),
                self.leaving.front().map(|(at, _)| *at),
            ];
            let Some(next) = times.into_iter().flatten().min() else {
                self.check_end();
                return self;
            };
            assert!(next >= self.now, "a deadline in the past");
            self.now = next;
        }
        panic!("still moving after {LIMIT} steps: {:?}", self.requester.blocked_by());
    }

    fn step(&mut self) {
        while let Some((at, desc)) = self.leaving.pop_front_if(|(at, _)| *at <= self.now) {
            self.requester.on_departure(&desc, at);
        }
        if self.requester.next_deadline().is_some_and(|due| due <= self.now) {
            self.requester.on_timer(self.now);
            assert!(self.requester.next_deadline().is_none_or(|due| due > self.now));
        }
        while let Some((desc, tag)) = self.forth.pop(self.now) {
            self.request(desc, tag);
        }
        while let Some((desc, tag)) = self.back.pop(self.now) {
            self.response(&desc, tag);
        }
        while self.results.first().is_some_and(|(at, ..)| *at <= self.now) {
            let (_, job, orig) = self.results.remove(0);
            self.responder.atomic_result(job, orig);
        }
        let RequesterConfig { max_outstanding_packets, recovery, .. } = &self.plan.requester;
        let window = match recovery {
            Recovery::SelectiveRepeat(cfg) => cfg.cap.min(*max_outstanding_packets),
            _ => *max_outstanding_packets,
        };
        loop {
            let (before, new) = (self.requester.outstanding(), self.requester.next_psn());
            let Some(desc) = self.requester.poll_transmit() else { break };
            if desc.psn == new {
                self.fresh += 1;
                assert!(before < window, "window overrun");
            } else {
                assert!(desc.psn.is_before(new), "{} was never sent", desc.psn);
            }
            assert!(self.requester.outstanding() <= MAX_UNACKED);
            let tag = u64::from(desc.wqe) << 32 | u64::from(desc.offset);
            self.send(true, desc, tag);
            self.leaving.push_back((self.forth.port, desc));
        }
        while let Some(desc) = self.responder.poll_transmit(self.now) {
            self.left.count(&desc);
            if let Some(msn) = msn_of(&desc) {
                assert!(msn.diff(self.told) >= 0, "the MSN went back from {}: {desc:?}", self.told);
                self.told = msn;
            }
            let va = self.responder.read_job(desc.wqe).map_or(0, |job| job.va);
            self.send(false, desc, va + u64::from(desc.offset));
        }
        while let Some(done) = self.requester.poll_completion() {
            self.done.push(done);
        }
    }

    fn chance(&mut self, per_mille: u32) -> bool {
        per_mille > 0 && self.draw() % 1000 < u64::from(per_mille)
    }

    fn draw(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random >> 20
    }

    fn fate(&mut self, forth: bool, n: u32) -> Option<Fate> {
        let listed = self.plan.faults.iter().find_map(|fault| match *fault {
            Fault::Forth(i, fate) if forth && i == n => Some(fate),
            Fault::Back(i, fate) if !forth && i == n => Some(fate),
            _ => None,
        });
        let w = self.plan.weather;
        listed
            .or_else(|| self.chance(w.drop).then_some(Fate::Drop))
            .or_else(|| self.chance(w.duplicate).then_some(Fate::Duplicate))
            .or_else(|| {
                let late = self.chance(w.delay);
                late.then(|| Fate::Delay(Span::from_ns(self.draw() % 20_000)))
            })
    }

    fn send(&mut self, forth: bool, desc: PacketDesc, tag: u64) {
        let wire = if forth { &mut self.forth } else { &mut self.back };
        let n = wire.sent;
        wire.sent += 1;
        wire.port = wire.port.max(self.now) + PACKET;
        let mut at = wire.port + LATENCY;
        // What travels must not depend on what is local to the sender.
        let packet = (PacketDesc { wqe: 0xDEAD, offset: 0xBEEF, ..desc }, tag);
        let fate = self.fate(forth, n);
        let wire = if forth { &mut self.forth } else { &mut self.back };
        match fate {
            Some(Fate::Drop) => return,
            Some(Fate::Duplicate) => wire.push(at + LATENCY, packet),
            Some(Fate::Delay(span)) => at += span,
            None => {}
        }
        wire.push(at, packet);
    }

    fn request(&mut self, desc: PacketDesc, tag: u64) {
        self.take_request(desc, tag);
        while let Some(psn) = self.responder.take_held() {
            let i = self.held.iter().position(|(d, _)| d.psn == psn).expect("it was kept");
            let (desc, tag) = self.held.swap_remove(i);
            self.rehanded += 1;
            self.take_request(desc, tag);
        }
    }

    fn take_request(&mut self, desc: PacketDesc, tag: u64) {
        let mut posted = true;
        if desc.opcode.consumes_recv() && desc.psn == self.responder.expected_psn() {
            let n = self.recv_asked;
            self.recv_asked += 1;
            let listed = |f: &Fault| matches!(f, Fault::NoReceive(i) if *i == n);
            posted = !self.plan.faults.iter().any(listed);
            posted &= !self.chance(self.plan.weather.no_receive);
        }
        let before = self.responder.expected_psn();
        let verdict = self.responder.on_packet(self.now, &desc, posted);
        let new = before != self.responder.expected_psn();
        self.accepted += u64::from(new);
        let (wqe, offset) = ((tag >> 32) as usize, tag as u32);
        match verdict {
            Accept::Place { len, first, last, completes_recv, .. } => {
                assert!(new);
                assert_eq!((wqe, offset), (self.arriving, self.arrived), "not in order: {desc:?}");
                assert_eq!(first, self.arrived == 0);
                self.arrived += len;
                let job = &self.plan.jobs[wqe];
                assert_eq!(last, self.arrived == job.len && (len > 0 || job.len == 0));
                assert_eq!(completes_recv.is_some(), last && job.op.consumes_recv());
                if last {
                    self.message_arrived();
                }
            }
            Accept::Read { va, len, .. } => {
                let job = &self.plan.jobs[wqe];
                assert_eq!(job.op, WrOpcode::RdmaRead);
                let skipped = (va - job.remote_va) as u32;
                assert_eq!((skipped, len), (offset, job.len - offset));
                if new {
                    assert_eq!((wqe, offset), (self.arriving, 0));
                    self.message_arrived();
                }
            }
            Accept::Atomic { job, .. } => {
                assert!(new);
                assert_eq!(wqe, self.arriving, "not in order: {desc:?}");
                self.executed[wqe] += 1;
                self.executions += 1;
                let orig = (wqe as u64) << 32 | self.executions;
                let at = self.now + Span::from_ns(self.draw() % 500);
                let at = self.results.last().map_or(at, |(last, ..)| at.max(*last));
                self.results.push((at, job, orig));
                self.message_arrived();
            }
            Accept::Hold => self.held.push((desc, tag)),
            Accept::Duplicate | Accept::Gap { .. } | Accept::RnrNak => assert!(!new),
            other => panic!("{other:?} for {desc:?}"),
        }
    }

    fn message_arrived(&mut self) {
        self.arriving += 1;
        self.arrived = 0;
    }

    fn response(&mut self, desc: &PacketDesc, tag: u64) {
        match self.requester.on_packet(self.now, desc) {
            Received::Place { wqe, offset, len, last } => {
                let job = &self.plan.jobs[wqe as usize];
                let got = &mut self.got[wqe as usize];
                assert_eq!((offset, tag), (*got, job.remote_va + u64::from(offset)));
                *got += len;
                assert_eq!(last, *got == job.len);
            }
            Received::AtomicResult { wqe, orig } => {
                assert_eq!(orig >> 32, u64::from(wqe), "the result of another one");
                self.got[wqe as usize] += 8;
            }
            Received::Error { status, .. } => assert!(
                matches!(status, WcStatus::RetryExcErr | WcStatus::RnrRetryExcErr),
                "{status} after {desc:?}"
            ),
            Received::Nothing | Received::Recover { .. } | Received::Drop(_) => {}
        }
    }

    fn check_end(&self) {
        let (jobs, done) = (&self.plan.jobs, &self.done);
        assert!(self.requester.idle(), "blocked by {:?}", self.requester.blocked_by());
        assert_eq!(done.len(), jobs.len(), "every work request ends once");
        let good = done.iter().take_while(|d| d.status == WcStatus::Success).count();
        for (i, (job, d)) in jobs.iter().zip(done).enumerate() {
            assert_eq!((job.wqe, job.op), (d.wqe, d.op));
            let failed = matches!(d.status, WcStatus::RetryExcErr | WcStatus::RnrRetryExcErr);
            assert!(i != good || failed, "{d:?}");
            assert!(i <= good || d.status == WcStatus::WrFlushErr, "{d:?}");
            let signalled = job.flags.contains(SendFlags::SIGNALED) || i >= good;
            assert_eq!(d.signalled, signalled);
            if i < good && job.op.is_read_or_atomic() {
                assert_eq!(self.got[i], job.len);
            }
            let atomic = job.op.is_read_or_atomic() && job.op != WrOpcode::RdmaRead;
            assert!(self.executed[i] <= 1 && (!atomic || i >= good || self.executed[i] == 1));
        }
        assert!(self.arriving >= good, "a success that the peer has not seen");
        assert_eq!(self.responder.msn().value() as usize, self.arriving);
        let c = self.requester.counters();
        let ends = c.req_transport_retries_exceeded + c.req_rnr_retries_exceeded;
        assert_eq!(ends == 1, good < jobs.len());
        if good == jobs.len() {
            assert_eq!(self.arriving, jobs.len());
            assert_eq!(self.requester.outstanding(), 0);
            assert_eq!(self.requester.next_psn(), self.responder.expected_psn());
        }
        assert!(self.held.iter().all(|(d, _)| !d.psn.is_before(self.responder.expected_psn())));
        self.check_counters();
    }

    /// Every packet is in one counter of the side that has seen it, and both sides agree.
    fn check_counters(&self) {
        let (q, r) = (self.requester.counters(), self.responder.counters());
        assert_eq!((r.sequence_naks_sent, r.rnr_nak_sent), (self.left.sequence, self.left.rnr));
        let seen = self.accepted + r.duplicate_request + r.out_of_sequence + r.out_of_buffer;
        assert_eq!(self.forth.came + self.rehanded, seen, "{r:?}");
        assert_eq!(u64::from(self.forth.sent), self.fresh + q.retransmitted_packets, "{q:?}");
        let came = self.back.naks;
        assert!(q.packet_seq_err <= came.sequence && q.rnr_nak_retry_err <= came.rnr, "{q:?}");
        assert!(q.stale_responses <= self.back.came);
        let naks = q.sequence_naks_received + q.rnr_nak_received;
        let told = q.packet_seq_err + q.rnr_nak_retry_err + q.unused_naks;
        let ends = q.req_transport_retries_exceeded + q.req_rnr_retries_exceeded;
        assert!((told..=told + ends).contains(&naks), "every NAK counts once: {q:?}");
        let rounds = q.packet_seq_err + q.implied_nak_seq_err + q.local_ack_timeout_err;
        assert!(rounds + q.rnr_nak_retry_err > 0 || q.retransmitted_packets == 0, "{q:?}");
    }

    /// Packets that left on either side.
    pub fn sent(&self) -> (u32, u32) {
        (self.forth.sent, self.back.sent)
    }

    /// How the first work request that failed ended.
    pub fn failure(&self) -> Option<(u32, WcStatus)> {
        let failed = self.done.iter().find(|d| d.status != WcStatus::Success)?;
        Some((failed.wqe, failed.status))
    }
}
