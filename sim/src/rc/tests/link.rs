//! Requester and responder joined by two FIFOs, with byte arrays as memory. Every step checks
//! what must hold at any time; the caller compares the end with an ideal model.

use std::collections::VecDeque;

use doorbell_core::units::Time;
use doorbell_core::verbs::{GRH_BYTES, Opcode, Operation, Psn, QpType, SendFlags, WrOpcode};

use super::super::*;
use super::BASE;

/// A work request of a test, with its local bytes.
#[derive(Clone, Debug)]
pub struct Wr {
    pub job: SendJob,
    /// Source of SEND and WRITE, sink of READ and ATOMIC.
    pub local: Vec<u8>,
}

pub type Packet = (PacketDesc, Vec<u8>);

/// What a run leaves behind, in the form in which the ideal model gives it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    pub remote: Vec<u8>,
    pub local: Vec<Vec<u8>>,
    pub recvs: Vec<(RecvDone, Vec<u8>)>,
}

pub struct Link {
    pub requester: Requester,
    pub responder: Responder,
    pub now: Time,
    pub forth: VecDeque<Packet>,
    pub back: VecDeque<Packet>,
    pub completions: Vec<SendDone>,
    pub outcome: Outcome,
    /// Times that each byte was written: by work request, over the message.
    pub written: Vec<Vec<u8>>,
    wrs: Vec<Wr>,
    service: QpType,
    max_rd_atomic: u32,
    window: u32,
    /// PSN that the next request packet must have.
    next_psn: Psn,
    /// READs and ATOMICs whose last response has not come: work request index.
    unanswered: VecDeque<usize>,
    /// Those that the responder has accepted and not answered entirely: first PSN, responses.
    owed: VecDeque<(Psn, u32)>,
    last_reply: Option<Psn>,
    results: VecDeque<(u32, u64)>,
    /// Work request of the message that arrives.
    arriving: usize,
    recv: Vec<u8>,
    mtu: u32,
}

impl Link {
    pub fn new(
        requester: &RequesterConfig,
        responder: &ResponderConfig,
        wrs: &[Wr],
        remote: &[u8],
    ) -> Self {
        let mut link = Self {
            requester: Requester::new(requester),
            responder: Responder::new(responder),
            now: Time::ZERO,
            forth: VecDeque::new(),
            back: VecDeque::new(),
            completions: Vec::new(),
            outcome: Outcome {
                remote: remote.to_vec(),
                local: wrs.iter().map(|wr| wr.local.clone()).collect(),
                recvs: Vec::new(),
            },
            written: wrs.iter().map(|wr| vec![0; wr.job.len as usize]).collect(),
            wrs: wrs.to_vec(),
            service: requester.service,
            max_rd_atomic: requester.max_rd_atomic.into(),
            window: requester.max_outstanding_packets,
            next_psn: requester.sq_psn,
            unanswered: VecDeque::new(),
            owed: VecDeque::new(),
            last_reply: None,
            results: VecDeque::new(),
            arriving: 0,
            recv: Vec::new(),
            mtu: requester.payload,
        };
        for wr in wrs {
            link.requester.push(wr.job);
        }
        link
    }

    /// Runs until nothing moves; `choose(n)` picks which of n things is tried first.
    pub fn run(&mut self, mut choose: impl FnMut(u32) -> u32) {
        for _ in 0..1_000_000 {
            let first = choose(6);
            let moved = (0..6).any(|i| self.step((first + i) % 6));
            if moved {
                continue;
            }
            match self.responder.next_deadline() {
                Some(due) if due > self.now => self.now = due,
                _ => return,
            }
        }
        panic!("still moving after a million steps");
    }

    /// Tries one thing; whether it happened.
    pub fn step(&mut self, what: u32) -> bool {
        match what {
            0 => self.transmit(),
            1 => self.deliver_request(),
            2 => self.respond(),
            3 => self.deliver_response(),
            4 => self.finish_atomic(),
            _ => self.complete(),
        }
    }

    fn transmit(&mut self) -> bool {
        let may = self.requester.peek_transmit();
        let before = self.requester.outstanding();
        let Some(desc) = self.requester.poll_transmit() else {
            assert!(!may, "peek_transmit promised a packet");
            return false;
        };
        assert!(may, "peek_transmit knew of no packet");
        let index = desc.wqe as usize;
        let job = self.wrs[index].job;
        assert_eq!(desc.psn, self.next_psn, "PSNs are consecutive");
        let answered = job.op.is_read_or_atomic();
        let psns = if job.op == WrOpcode::RdmaRead { self.packets(job.len) } else { 1 };
        self.next_psn = self.next_psn.add(psns);
        if self.service == QpType::Rc {
            assert!(before < self.window, "window overrun");
        }
        if desc.opcode.starts_message() && job.flags.contains(SendFlags::FENCE) {
            assert!(self.unanswered.is_empty(), "fence passed by {:?}", desc);
        }
        if answered {
            self.unanswered.push_back(index);
            assert!(self.unanswered.len() as u32 <= self.max_rd_atomic, "too many READs");
        }
        let from = desc.offset as usize;
        let payload = self.wrs[index].local[from..from + desc.len as usize].to_vec();
        // What travels must not depend on what is local to the sender.
        self.forth.push_back((PacketDesc { wqe: 0xDEAD, offset: 0xBEEF, ..desc }, payload));
        self.requester.on_transmitted(&desc);
        self.requester.on_departure(&desc, self.now);
        true
    }

    fn packets(&self, len: u32) -> u32 {
        len.div_ceil(self.mtu).max(1)
    }

    fn deliver_request(&mut self) -> bool {
        let Some((desc, payload)) = self.forth.pop_front() else { return false };
        match self.responder.on_packet(self.now, &desc, true) {
            Accept::Place { target, len, first, last, takes_recv, completes_recv, ack } => {
                assert_eq!(len as usize, payload.len());
                assert_eq!(ack, self.service == QpType::Rc && desc.ack_req);
                assert_eq!(first, desc.opcode.starts_message());
                assert_eq!(last, desc.opcode.ends_message());
                if takes_recv {
                    self.recv = vec![0; 8192];
                }
                self.place(target, &payload);
                if let Some(done) = completes_recv {
                    let mut bytes = std::mem::take(&mut self.recv);
                    bytes.truncate(done.len as usize);
                    self.outcome.recvs.push((done, bytes));
                }
                self.arriving += usize::from(last);
            }
            Accept::Read { len, va, .. } => {
                let job = self.wrs[self.arriving].job;
                assert_eq!((va, len), (job.remote_va, job.len));
                self.owed.push_back((desc.psn, self.packets(len)));
                self.arriving += 1;
            }
            Accept::Atomic { job, add, va, swap_add, compare, .. } => {
                let at = (va - BASE) as usize;
                let word = &mut self.outcome.remote[at..at + 8];
                let orig = u64::from_le_bytes(word.try_into().unwrap());
                let new = if add { orig.wrapping_add(swap_add) } else { swap_add };
                if add || orig == compare {
                    word.copy_from_slice(&new.to_le_bytes());
                }
                self.results.push_back((job, orig));
                self.owed.push_back((desc.psn, 1));
                self.arriving += 1;
            }
            other => panic!("{other:?} for {desc:?}"),
        }
        true
    }

    fn place(&mut self, target: Target, payload: &[u8]) {
        let message = self.arriving;
        let (at, offset, memory) = match target {
            Target::Remote { va, rkey, dma_len } => {
                let job = self.wrs[message].job;
                assert_eq!((rkey, dma_len), (job.rkey, job.len));
                let offset = (va - job.remote_va) as usize;
                ((va - BASE) as usize, offset, &mut self.outcome.remote)
            }
            Target::Recv { offset } => {
                let grh = if self.service == QpType::Ud { GRH_BYTES } else { 0 };
                (offset as usize, (offset - grh) as usize, &mut self.recv)
            }
        };
        memory[at..at + payload.len()].copy_from_slice(payload);
        count(&mut self.written[message], offset, payload.len());
    }

    fn respond(&mut self) -> bool {
        let may = self.responder.peek_transmit(self.now);
        let Some(desc) = self.responder.poll_transmit(self.now) else {
            assert!(!may, "peek_transmit promised a response");
            return false;
        };
        assert!(may, "peek_transmit knew of no response");
        if let Some(last) = self.last_reply {
            assert!(last.is_before(desc.psn), "responses out of PSN order: {last}, {desc:?}");
        }
        self.last_reply = Some(desc.psn);
        let mut payload = Vec::new();
        if desc.opcode == Opcode::RcAcknowledge {
            let overtakes = |&(first, _): &(Psn, u32)| !desc.psn.is_before(first);
            assert!(!self.owed.iter().any(overtakes), "{desc:?} overtakes {:?}", self.owed);
        } else {
            let (first, count) = self.owed.front_mut().expect("a response to a request");
            assert_eq!(desc.psn, *first, "every response once and in order");
            (*first, *count) = (first.next(), *count - 1);
            if *count == 0 {
                self.owed.pop_front();
            }
        }
        if desc.opcode.operation().is_read_response() {
            let read = self.responder.read_job(desc.wqe).expect("a remembered READ");
            let at = (read.va - BASE) as usize + desc.offset as usize;
            payload = self.outcome.remote[at..at + desc.len as usize].to_vec();
        }
        self.back.push_back((PacketDesc { wqe: 0xDEAD, offset: 0xBEEF, ..desc }, payload));
        true
    }

    fn deliver_response(&mut self) -> bool {
        let Some((desc, payload)) = self.back.pop_front() else { return false };
        match self.requester.on_packet(self.now, &desc) {
            Received::Nothing => assert_eq!(desc.opcode.operation(), Operation::Acknowledge),
            Received::Place { wqe, offset, len, last } => {
                let (index, at) = (wqe as usize, offset as usize);
                assert_eq!(len as usize, payload.len());
                assert_eq!(Some(&index), self.unanswered.front());
                self.outcome.local[index][at..at + payload.len()].copy_from_slice(&payload);
                count(&mut self.written[index], at, payload.len());
                if last {
                    self.unanswered.pop_front();
                }
            }
            Received::AtomicResult { wqe, orig } => {
                let index = wqe as usize;
                assert_eq!(self.unanswered.pop_front(), Some(index));
                self.outcome.local[index].copy_from_slice(&orig.to_le_bytes());
                count(&mut self.written[index], 0, 8);
            }
            other => panic!("{other:?} for {desc:?}"),
        }
        true
    }

    fn finish_atomic(&mut self) -> bool {
        let Some((job, orig)) = self.results.pop_front() else { return false };
        self.responder.atomic_result(job, orig);
        true
    }

    fn complete(&mut self) -> bool {
        let Some(done) = self.requester.poll_completion() else { return false };
        self.completions.push(done);
        true
    }
}

fn count(written: &mut [u8], offset: usize, len: usize) {
    for byte in &mut written[offset..offset + len] {
        *byte += 1;
    }
}
