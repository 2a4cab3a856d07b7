//! What must hold of the RC, UC and UD engine whatever packets and calls it is given. The bytes are
//! a program: a connection, then calls. The fuzz target checks it, and so does a test that replays
//! the corpus.
//!
//! - No call panics.
//! - Packets that were never sent before have consecutive PSNs and keep to the window.
//! - Work requests complete once each, in the order of posting.
//! - Payload lies inside its message, whose length and place the first packet has said, or inside
//!   the work request; a READ is answered with bytes that it asked for.

use std::collections::VecDeque;

use doorbell_core::units::{Span, Time};
use doorbell_core::verbs::*;
use doorbell_sim::rc::*;

/// Calls of a run.
const MOST_CALLS: u32 = 400;
/// Work requests of a run.
const MOST_JOBS: usize = 64;
/// Packets polled in one call, and packets kept for delivery.
const MOST_PACKETS: usize = 40;

/// The program as it is read: zeros behind its end.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn word(&mut self) -> u32 {
        u32::from_le_bytes([self.byte(), self.byte(), self.byte(), self.byte()])
    }

    fn below(&mut self, n: u8) -> u8 {
        self.byte() % n
    }

    fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// Lengths near the edges of packets and of the largest message.
    fn len(&mut self) -> u32 {
        let small = u32::from(self.byte());
        match self.below(8) {
            0 => small,
            1..=4 => (small % 8 * 256 + small / 8 % 3).saturating_sub(1),
            5 => MAX_MESSAGE_BYTES - 1 + small % 3,
            6 => small * 97,
            _ => self.word(),
        }
    }
}

/// The message that arrives at the responder.
#[derive(Copy, Clone)]
struct Arriving {
    va: u64,
    bytes: u32,
    got: u32,
}

struct Run<'a> {
    input: Bytes<'a>,
    service: QpType,
    requester: Requester,
    responder: Responder,
    window: u32,
    now: Time,
    jobs: Vec<SendJob>,
    completed: usize,
    forth: VecDeque<PacketDesc>,
    back: VecDeque<PacketDesc>,
    held: Vec<PacketDesc>,
    arriving: Option<Arriving>,
    /// ATOMICs without a result.
    atomics: Vec<u32>,
}

/// Runs the program.
pub fn check(bytes: &[u8]) {
    let mut run = Run::new(bytes);
    for _ in 0..MOST_CALLS {
        if run.input.0.is_empty() {
            break;
        }
        run.call();
        run.complete();
    }
    // Whatever has happened, a flush ends it.
    run.requester.flush();
    run.complete();
    assert_eq!(run.completed, run.jobs.len(), "a flush completes everything");
    assert!(run.requester.idle() && run.requester.poll_transmit().is_none());
}

fn recovery(input: &mut Bytes<'_>) -> Recovery {
    let (hold, cap) = (u32::from(input.byte()), 1 + u32::from(input.byte()));
    if input.flag() {
        Recovery::SelectiveRepeat(SelectiveRepeat { hold, cap })
    } else {
        Recovery::GoBackN
    }
}

fn rules(input: &mut Bytes<'_>) -> Rules {
    let base = if input.flag() { Rules::RXE } else { Rules::DEFAULT };
    let sequence_nak = [SequenceNak::Progress, SequenceNak::UsesRetry, SequenceNak::Reloads]
        [input.below(3) as usize];
    Rules {
        sequence_nak,
        credits: input.flag(),
        nak_during_rnr: input.flag(),
        duplicate_ack: if input.flag() { DuplicateAck::Always } else { DuplicateAck::IfRequested },
        duplicate_read: if input.flag() { DuplicateRead::Subset } else { DuplicateRead::SameEnd },
        limited_wqe: if input.flag() { LimitedWqe::FirstPacket } else { LimitedWqe::WholeMessage },
        ..base
    }
}

impl<'a> Run<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        let mut input = Bytes(bytes);
        let service = [QpType::Rc, QpType::Rc, QpType::Rc, QpType::Uc, QpType::Ud];
        let service = service[input.below(5) as usize];
        let (a, b, mtu) = (Qpn::new(17), Qpn::new(18), Mtu::B256);
        let psn = Psn::new(0xFF_FFF0 + u32::from(input.byte()));
        let window = [1, 2, 16, 200, MAX_UNACKED][input.below(5) as usize];
        let (recovery, rules) = (recovery(&mut input), rules(&mut input));
        let requester = RequesterConfig {
            max_rd_atomic: input.below(4),
            max_outstanding_packets: window,
            ack_req_every: u32::from(input.below(5)),
            ack_req_last: if input.flag() {
                AckReqLast::Signalled
            } else {
                AckReqLast::EveryMessage
            },
            timeout: AckTimeout::new(input.below(4)).expect("a code"),
            retry_cnt: RetryCnt::new(input.below(8)).expect("a code"),
            rnr_retry: RnrRetry::new(input.below(8)).expect("a code"),
            nak_reaction: Span::from_us(input.below(2).into()),
            recovery: recovery.clone(),
            rules,
            ..RequesterConfig::of(service, a, b, psn, mtu)
        };
        let every = u32::from(input.below(4));
        let responder = ResponderConfig {
            max_dest_rd_atomic: input.below(5),
            access: AccessFlags::from_bits_truncate(input.word() | 14),
            ack: match every {
                0 => AckPolicy::EachRequest,
                every => AckPolicy::Coalesce { every, delay: Span::from_us(1) },
            },
            hold: recovery.hold(),
            nak_repeat: (every == 1).then(|| Span::from_us(2)),
            rules,
            ..ResponderConfig::of(service, a, psn, mtu)
        };
        Self {
            service,
            requester: Requester::new(&requester),
            responder: Responder::new(&responder),
            window: window.min(match &recovery {
                Recovery::SelectiveRepeat(selective) => selective.cap,
                _ => u32::MAX,
            }),
            now: Time::ZERO,
            jobs: Vec::new(),
            completed: 0,
            forth: VecDeque::new(),
            back: VecDeque::new(),
            held: Vec::new(),
            arriving: None,
            atomics: Vec::new(),
            input,
        }
    }

    fn call(&mut self) {
        match self.input.below(20) {
            0..=2 => self.push(),
            3..=5 => self.transmit(),
            6..=7 => self.deliver_request(),
            8..=9 => self.respond(),
            10..=11 => self.deliver_response(),
            12 => {
                let packet = self.strange(self.responder.expected_psn());
                let posted = self.input.flag();
                self.request(&packet, posted);
            }
            13 => {
                let packet = self.strange(self.requester.unacked_psn());
                self.response(&packet);
            }
            14..=15 => self.time(),
            16 => self.result(),
            17 => {
                let receives = self.input.flag().then(|| u32::from(self.input.byte()));
                self.responder.set_receives(receives);
            }
            18 => self.lose(),
            _ => self.fail(),
        }
    }

    fn push(&mut self) {
        if self.jobs.len() >= MOST_JOBS {
            return;
        }
        const OPS: [WrOpcode; 8] = [
            WrOpcode::Send,
            WrOpcode::SendWithImm,
            WrOpcode::SendWithInv,
            WrOpcode::RdmaWrite,
            WrOpcode::RdmaWriteWithImm,
            WrOpcode::RdmaRead,
            WrOpcode::AtomicCmpAndSwp,
            WrOpcode::AtomicFetchAndAdd,
        ];
        let op = OPS[self.input.below(8) as usize];
        let atomic = op.is_read_or_atomic() && op != WrOpcode::RdmaRead;
        let len = self.input.len();
        let job = SendJob {
            wqe: self.jobs.len() as u32,
            op,
            len: if atomic && !len.is_multiple_of(7) { 8 } else { len },
            remote_va: u64::from(self.input.byte()) * 8,
            rkey: Rkey(5),
            imm_or_inv: 7,
            swap_add: 1,
            compare: 0,
            flags: SendFlags::from_bits_truncate(self.input.byte().into()),
            dest: Qpn::new(18),
            qkey: QKey(u32::from(self.input.below(2))),
        };
        self.jobs.push(job);
        self.requester.push(job);
    }

    fn transmit(&mut self) {
        for _ in 0..=self.input.below(MOST_PACKETS as u8) {
            let (used, next) = (self.requester.outstanding(), self.requester.next_psn());
            let may = self.requester.peek_transmit();
            let Some(packet) = self.requester.poll_transmit() else {
                return assert!(!may, "a packet was promised");
            };
            let job = &self.jobs[packet.wqe as usize];
            assert!(u64::from(packet.offset) + u64::from(packet.len) <= u64::from(job.len));
            if self.service == QpType::Rc {
                let new = packet.psn == next;
                assert!(new || packet.psn.is_before(next), "{packet:?} was never sent");
                assert!(!new || used < self.window, "{used} in a window of {}", self.window);
                assert!(self.requester.outstanding() <= MAX_UNACKED);
            }
            self.requester.on_transmitted(&packet);
            self.requester.on_departure(&packet, self.now);
            if self.forth.len() < MOST_PACKETS {
                self.forth.push_back(packet);
            }
        }
    }

    fn deliver_request(&mut self) {
        let posted = !self.input.byte().is_multiple_of(5);
        if let Some(packet) = self.forth.pop_front() {
            self.request(&packet, posted);
        }
    }

    fn request(&mut self, packet: &PacketDesc, posted: bool) {
        self.verdict(packet, posted);
        while let Some(psn) = self.responder.take_held() {
            let i = self.held.iter().position(|p| p.psn == psn).expect("it was kept");
            let packet = self.held.swap_remove(i);
            self.verdict(&packet, posted);
        }
    }

    fn verdict(&mut self, packet: &PacketDesc, posted: bool) {
        let reject = self.input.byte() == 77;
        match self.responder.on_packet(self.now, packet, posted) {
            Accept::Place { target, len, first, last, .. } => {
                assert_eq!(len, packet.len);
                self.place(target, len, first);
                self.arriving = self.arriving.filter(|_| !last);
                if reject {
                    self.responder.reject(BadRequest::UnknownKey);
                }
            }
            Accept::Read { job, va, len, .. } => {
                let whole = self.responder.read_job(job).expect("it is remembered");
                let skipped = va.wrapping_sub(whole.va);
                assert!(skipped + u64::from(len) <= u64::from(whole.len), "{packet:?}: {whole:?}");
                if reject {
                    self.responder.reject(BadRequest::UnknownKey);
                }
            }
            Accept::Atomic { job, va, .. } => {
                assert_eq!(va % 8, 0);
                if reject {
                    self.responder.reject(BadRequest::LocalMemory);
                } else {
                    self.atomics.push(job);
                }
            }
            Accept::Hold => {
                let known = self.held.iter().any(|p| p.psn == packet.psn);
                assert!(!known, "{packet:?} is kept twice");
                self.held.push(*packet);
            }
            _ => {}
        }
    }

    /// Payload goes where the message has said, one byte behind the other.
    fn place(&mut self, target: Target, len: u32, first: bool) {
        match target {
            Target::Remote { va, dma_len, .. } => {
                if first {
                    self.arriving = Some(Arriving { va, bytes: dma_len, got: 0 });
                }
                let m = self.arriving.as_mut().expect("a message has begun");
                assert_eq!((va, dma_len), (m.va.wrapping_add(m.got.into()), m.bytes));
                m.got += len;
                assert!(m.got <= m.bytes, "{} of {} bytes", m.got, m.bytes);
            }
            Target::Recv { offset } => {
                let grh = if self.service == QpType::Ud { GRH_BYTES } else { 0 };
                if first {
                    self.arriving = Some(Arriving { va: 0, bytes: MAX_MESSAGE_BYTES, got: 0 });
                }
                let m = self.arriving.as_mut().expect("a message has begun");
                assert_eq!(offset, m.got + grh);
                m.got += len;
                assert!(m.got <= m.bytes, "{} of {} bytes", m.got, m.bytes);
            }
        }
    }

    fn respond(&mut self) {
        for _ in 0..=self.input.below(MOST_PACKETS as u8) {
            let may = self.responder.peek_transmit(self.now);
            let Some(packet) = self.responder.poll_transmit(self.now) else {
                return assert!(!may, "a response was promised");
            };
            if packet.opcode.operation().is_read_response() {
                let job = self.responder.read_job(packet.wqe).expect("it is remembered");
                let end = u64::from(packet.offset) + u64::from(packet.len);
                assert!(end <= u64::from(job.len), "{packet:?}: {job:?}");
            }
            if self.back.len() < MOST_PACKETS {
                self.back.push_back(packet);
            }
        }
    }

    fn deliver_response(&mut self) {
        if let Some(packet) = self.back.pop_front() {
            self.response(&packet);
        }
    }

    fn response(&mut self, packet: &PacketDesc) {
        match self.requester.on_packet(self.now, packet) {
            Received::Place { wqe, offset, len, .. } => {
                let job = &self.jobs[wqe as usize];
                assert_eq!(job.op, WrOpcode::RdmaRead);
                assert!(u64::from(offset) + u64::from(len) <= u64::from(job.len));
                assert_eq!(len, packet.len);
            }
            Received::AtomicResult { wqe, .. } => {
                let op = self.jobs[wqe as usize].op;
                assert!(op.is_read_or_atomic() && op != WrOpcode::RdmaRead);
            }
            Received::Recover { psn, .. } => assert_eq!(psn, self.requester.unacked_psn()),
            _ => {}
        }
    }

    /// A packet whose fields fit together or not, with a PSN near `around`.
    fn strange(&mut self, around: Psn) -> PacketDesc {
        let fits = self.input.flag();
        let opcode = look_up(self.input.byte(), fits, self.service);
        let distance = u32::from(self.input.byte());
        let psn = match self.input.below(4) {
            0 => around,
            1 => around.add(distance),
            2 => Psn::new(around.value().wrapping_sub(distance)),
            _ => Psn::new(self.input.word()),
        };
        let ext = self.extended(opcode, fits);
        PacketDesc {
            opcode,
            psn,
            dest: Qpn::new(18),
            ack_req: self.input.flag(),
            solicited: self.input.flag(),
            wqe: self.input.byte().into(),
            offset: self.input.byte().into(),
            len: self.input.len() % 4097,
            ext,
        }
    }

    fn extended(&mut self, opcode: Opcode, fits: bool) -> Ext {
        let (va, rkey, imm) = (u64::from(self.input.word()), Rkey(5), 7);
        let (msn, held) = (Msn::new(self.input.byte().into()), Psn::new(self.input.word()));
        let dma_len = self.input.len();
        let syndrome = Syndrome::decode(self.input.byte());
        let (qkey, src) = (QKey(u32::from(self.input.below(2))), Qpn::new(17));
        let all = [
            (opcode.has_atomic_eth(), Ext::Atomic { va, rkey, swap_add: 1, compare: 0 }),
            (opcode.has_reth() && opcode.has_imm(), Ext::RethImm { va, rkey, dma_len, imm }),
            (opcode.has_reth(), Ext::Reth { va, rkey, dma_len }),
            (opcode.has_deth() && opcode.has_imm(), Ext::DethImm { qkey, src, imm }),
            (opcode.has_deth(), Ext::Deth { qkey, src }),
            (opcode.has_atomic_ack_eth(), Ext::AtomicAck { syndrome, msn, orig: va }),
            (opcode.has_aeth() && va % 5 == 0, Ext::Sack { msn, held }),
            (opcode.has_aeth(), Ext::Aeth { syndrome, msn }),
            (opcode.has_imm(), Ext::Imm(imm)),
            (opcode.has_ieth(), Ext::Invalidate(rkey)),
            (true, Ext::None),
        ];
        let any = usize::from(self.input.byte()) % all.len();
        let fitting = all.iter().position(|(fits, _)| *fits).unwrap_or(0);
        all[if fits { fitting } else { any }].1
    }

    fn time(&mut self) {
        let deadlines = [self.requester.next_deadline(), self.responder.next_deadline()];
        let due = deadlines.into_iter().flatten().min();
        let later = self.now + Span::from_us(self.input.byte().into());
        self.now = due.filter(|_| self.input.flag()).map_or(later, |due| due.max(self.now));
        self.requester.on_timer(self.now);
        let waits = self.requester.next_deadline().is_none_or(|due| due > self.now);
        assert!(waits || self.service != QpType::Rc, "a timer that has expired runs on");
    }

    fn result(&mut self) {
        let at = usize::from(self.input.byte());
        let job = if self.atomics.is_empty() {
            u32::from(self.input.byte())
        } else {
            self.atomics.swap_remove(at % self.atomics.len())
        };
        self.responder.atomic_result(job, 9);
    }

    fn lose(&mut self) {
        let way = if self.input.flag() { &mut self.forth } else { &mut self.back };
        match self.input.below(3) {
            0 => drop(way.pop_front()),
            // Twice, and out of order.
            1 => way.extend(way.front().copied()),
            _ => way.rotate_left(usize::from(way.len() > 1)),
        }
    }

    fn fail(&mut self) {
        match self.input.byte() {
            0 => self.requester.flush(),
            1 => {
                self.responder.fail();
                self.held.clear();
            }
            wqe => self.requester.fail(wqe.into(), WcStatus::LocProtErr),
        }
    }

    fn complete(&mut self) {
        while let Some(done) = self.requester.poll_completion() {
            assert_eq!(done.wqe as usize, self.completed, "once each, in order");
            self.completed += 1;
        }
    }
}

/// Any opcode, or one of this service.
fn look_up(code: u8, fits: bool, service: QpType) -> Opcode {
    let family = match service {
        QpType::Uc => 0x20,
        QpType::Ud => 0x60,
        _ => 0,
    };
    let code = if fits { family | (code % 0x18) } else { code };
    Opcode::try_from(code).unwrap_or(Opcode::RcAcknowledge)
}
