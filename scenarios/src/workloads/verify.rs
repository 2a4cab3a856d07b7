//! The receiver of a [`Produce`](super::Produce) or [`Proxy`](super::Proxy): checks each message.
//!
//! With SEND, and WRITE with immediate, every message is checked when its receive completes. A
//! WRITE does not tell: what lies in the buffers is checked once the sender is done, and only the
//! last message of each buffer can be.
//!
//! Messages of a producer are expected in order. One that is whole but of an earlier number is
//! *stale*: its WQE or its buffer was read before the new bytes were there. One that is not whole
//! is *corrupt*. In the memory of a GPU it may be on its way still when its completion is in host
//! memory: there one that is not good is looked at again, and is *early* if it has become so.
//!
//! UC and UD lose, repeat and reorder messages, and none of that is an error of data: there the
//! messages of a producer are told apart by number, in whatever order they come. One that did not
//! come, or of which only some packets are in its buffer, is *lost*, and one that came again is
//! *repeated* – unless the sender's stores are unordered and the message due never came: then it
//! is stale.
//!
//! A latency is the time from "ready", as the producer wrote it into the message, to
//! the step that has checked it. It means something only where both sides have one clock, as in
//! the simulator.

use std::collections::VecDeque;

use doorbell_core::transport::{
    Completion, Completions, Contents, Control, MemKind, Mr, Next, Program, QpId, RecvWr, WaitSet,
};

use doorbell_core::units::{Span, Time};
use doorbell_core::verbs::{Mtu, QpType};

use super::common::{DataErrors, Failure, Op, Results, Shape, failed, header_bytes, part};
use super::connect::{
    ALL_RIGHTS, Client, Lane, LinkConfig, Local, LocalConfig, lookup_done, lookup_sent,
};
use super::numbers::Numbers;
use super::payload::{self, HEADER_BYTES, Label};

/// How long after the news that a sender is done its last messages may still come.
const GRACE: Span = Span::from_ms(1);

/// Time between two looks at a message in the memory of a GPU, and how many are taken after the
/// first. Longer, more: a message that never comes right is told of later. Together far above the
/// time that a write takes to the GPU, far below a retransmission timer.
const LOOK_AGAIN: Span = Span::from_us(1);
const MORE_LOOKS: u32 = 10;

/// A receive that has completed and whose message was not checked.
#[derive(Copy, Clone, Debug)]
struct Arrival {
    slot: u64,
    qp: QpId,
    imm: Option<u32>,
    len: u32,
    /// Looks that found it not good.
    looks: u32,
}

/// Configuration of [`Verify`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VerifyConfig {
    /// Own memory and queues. The region holds `sources` times the buffers of a producer.
    pub local: LocalConfig,
    /// The link.
    pub link: LinkConfig,
    /// The message, as at the sender.
    pub shape: Shape,
    /// Buffers of each producer, as there. With WRITEs (with immediate) a buffer may be
    /// overwritten before it was checked unless there are more than can be outstanding.
    pub slots: u32,
    /// Producers.
    pub sources: u16,
    /// Messages of each producer: what is to come.
    pub messages: u64,
    /// Receives kept posted per QP.
    pub receives: u32,
    /// Whether nothing orders the stores of a producer before its doorbell: then a message of an
    /// unreliable service that comes again in the place of another is an old one, read too early.
    pub unordered: bool,
}

impl VerifyConfig {
    /// 1,000 64-byte messages of one producer with 64 buffers, 64 receives.
    pub fn of(peer: u32) -> Self {
        Self {
            local: LocalConfig::default(),
            link: LinkConfig::to(peer),
            shape: Shape { size: 64, ..Shape::default() },
            slots: 64,
            sources: 1,
            messages: 1000,
            receives: 64,
            unordered: false,
        }
    }
}

/// See the module. Results: received messages, data errors, latencies.
#[derive(Clone, Debug)]
pub struct Verify {
    config: VerifyConfig,
    client: Client,
    polled: Completions,
    results: Results,
    up: bool,
    receive_mr: Option<Mr>,
    /// Next number expected of each producer.
    next: Vec<u64>,
    /// On an unreliable service, what has come of each.
    numbers: Vec<Numbers>,
    /// Messages that came whole and in their place.
    good: u64,
    /// When the sender is done, messages that have not come until then never will.
    lost_after: Option<Time>,
    /// Receives in their order; more than one only behind a message that is looked at again.
    arrived: VecDeque<Arrival>,
    bytes: Vec<u8>,
}

impl Verify {
    /// A program that has not started.
    pub fn new(config: VerifyConfig) -> Self {
        Self {
            client: Client::new(config.local, config.link),
            polled: Completions::with_capacity(16),
            results: Results {
                data: DataErrors { unordered: config.unordered, ..DataErrors::default() },
                ..Results::default()
            },
            up: false,
            receive_mr: None,
            next: vec![0; config.sources.into()],
            numbers: vec![Numbers::default(); config.sources.into()],
            good: 0,
            lost_after: None,
            arrived: VecDeque::new(),
            bytes: vec![0; config.shape.bytes() as usize],
            config,
        }
    }

    /// What was found.
    pub fn results(&self) -> &Results {
        &self.results
    }

    fn takes_receives(&self) -> bool {
        self.config.shape.op.takes_receive()
    }

    fn check(&self) -> Result<(), Failure> {
        let c = &self.config;
        if c.local.contents == Contents::Virtual || (c.shape.bytes() as usize) < HEADER_BYTES {
            return Err(Failure::Config("only contents of at least 24 bytes can be verified"));
        }
        if matches!(c.shape.op, Op::Read | Op::CmpSwap | Op::FetchAdd) {
            return Err(Failure::Config("only SENDs and WRITEs bring messages"));
        }
        if c.sources == 0 || c.slots == 0 {
            return Err(Failure::Config("sources and slots count from 1"));
        }
        Ok(())
    }

    fn slot_bytes(&self) -> u64 {
        self.config.shape.stride() * u64::from(self.config.slots)
    }

    fn reliable(&self) -> bool {
        self.config.link.ty == QpType::Rc
    }

    /// Bytes from one receive buffer to the next, and of one of them.
    fn receive_bytes(&self) -> (u64, u32) {
        let bytes = header_bytes(self.config.link.ty) + self.config.shape.bytes();
        (u64::from(bytes).next_multiple_of(64).max(64), bytes)
    }

    fn open<T: Control>(&mut self, t: &mut T) -> Result<Option<Next>, Failure> {
        if self.up {
            return Ok(None);
        }
        self.check()?;
        let (stride, size) = self.receive_bytes();
        let (n, takes) = (self.config.receives, self.takes_receives());
        let kind: MemKind = self.config.local.memory;
        let mr = &mut self.receive_mr;
        let first = |t: &mut T, l: &Local, lanes: &[Lane]| {
            if !takes || n == 0 {
                return Ok(());
            }
            // An SRQ serves all QPs: it is filled once.
            let queues = if l.srq.is_some() { &lanes[..1] } else { lanes };
            let len = stride * u64::from(n) * queues.len() as u64;
            let m = t.alloc_mr(l.pd, len, kind, ALL_RIGHTS, Contents::Data)?;
            *mr = Some(m);
            for (i, lane) in (0..).zip(queues) {
                let slots = i * u64::from(n)..(i + 1) * u64::from(n);
                let wrs: Vec<_> = slots.map(|s| receive(&m, stride, size, s)).collect();
                t.post_recv(l.receives_of(lane.qp), &wrs)?;
            }
            Ok(())
        };
        if let Some(next) = self.client.up(t, first)? {
            return Ok(Some(next));
        }
        let (got, need) =
            (self.client.local().mr.len, self.slot_bytes() * u64::from(self.config.sources));
        if got < need {
            return Err(Failure::OwnRegion { got, need });
        }
        self.up = true;
        Ok(None)
    }

    fn run<T: Control>(&mut self, t: &mut T) -> Result<Next, Failure> {
        if let Some(next) = self.open(t)? {
            return Ok(next);
        }
        let cq = self.client.local().recv_cq;
        self.polled.clear();
        t.poll_cq(cq, &mut self.polled)?;
        for i in 0..self.polled.as_slice().len() {
            let c = self.polled.as_slice()[i];
            if let Some(f) = failed(&c) {
                return Err(f);
            }
            if let Completion::Recv { wr_id, qp, imm, len, .. } = c {
                self.results.first.get_or_insert(t.now());
                self.arrived.push_back(Arrival { slot: wr_id, qp, imm, len, looks: 0 });
                self.settle(t)?;
            }
        }
        self.settle(t)?;
        if self.polled.is_full() {
            return Ok(Next::Again);
        }
        let peer = self.client.peer();
        let mut until = (!self.arrived.is_empty()).then(|| t.now() + LOOK_AGAIN);
        if let Some(n) = lookup_done(t, peer)? {
            let end = *self.lost_after.get_or_insert(t.now() + GRACE);
            let again: u64 = self.numbers.iter().map(Numbers::again).sum();
            if self.results.received - again >= n || t.now() >= end {
                return self.finish(t);
            }
            until = Some(until.map_or(end, |look| look.min(end)));
        }
        Ok(Next::Wait { on: WaitSet::cq(cq).or(WaitSet::BOOTSTRAP), until })
    }

    /// Counts what never came, by what the senders say.
    fn finish<T: Control>(&mut self, t: &mut T) -> Result<Next, Failure> {
        let peer = self.client.peer();
        let mut sent = Vec::new();
        // Of one that does not say, all is to come.
        for source in 0..self.config.sources {
            sent.push(lookup_sent(t, peer, source)?.unwrap_or(u64::MAX).min(self.config.messages));
        }
        if !self.takes_receives() {
            self.inspect(t, &sent)?;
        }
        let reliable = self.reliable();
        for (numbers, sent) in self.numbers.iter().zip(&sent) {
            let (instead, again) = numbers.repeated(*sent);
            let data = &mut self.results.data;
            if self.config.unordered {
                data.stale += instead;
                data.repeated += again;
            } else {
                data.repeated += instead + again;
            }
        }
        let (all, sent) =
            (self.config.messages * u64::from(self.config.sources), sent.iter().sum::<u64>());
        let came = self.good + self.results.data.wrong();
        let gone = sent.saturating_sub(came);
        let data = &mut self.results.data;
        *(if reliable { &mut data.missing } else { &mut data.lost }) = gone;
        data.unsent = all.saturating_sub(sent.max(came));
        Ok(Next::Done)
    }

    /// Checks messages in their order, and posts their receives again, up to one that is to be
    /// looked at once more.
    fn settle<T: Control>(&mut self, t: &mut T) -> Result<(), Failure> {
        while let Some(a) = self.arrived.front().copied() {
            if !self.received(t, &a)? {
                break;
            }
            self.arrived.pop_front();
            self.results.receive(a.len, t.now());
            let mr = self.receive_mr.expect("there are receives");
            let (stride, size) = self.receive_bytes();
            let queue = self.client.local().receives_of(a.qp);
            t.post_recv(queue, &[receive(&mr, stride, size, a.slot)])?;
        }
        Ok(())
    }

    /// Whether a message is to be looked at once more.
    fn doubts(&mut self, whole: Option<Label>, said: Option<Label>) -> bool {
        let reliable = self.reliable();
        let due = |l: Label| match reliable {
            true => l.n >= self.next[usize::from(l.source)],
            false => !self.numbers[usize::from(l.source)].has(l.n),
        };
        let good = whole.is_some_and(|l| due(l) && said.is_none_or(|s| s == l));
        let Some(a) = self.arrived.front_mut() else { return false };
        if good {
            self.results.data.early += u64::from(a.looks > 0);
            return false;
        }
        let gpu = matches!(self.config.local.memory, MemKind::Gpu { .. });
        a.looks += 1;
        gpu && a.looks <= MORE_LOOKS
    }

    /// Checks the message of a receive; false: it is to be looked at once more, in a later step.
    fn received<T: Control>(&mut self, t: &mut T, a: &Arrival) -> Result<bool, Failure> {
        let slot = a.slot;
        let said = match (self.config.shape.op, a.imm) {
            (Op::WriteImm, Some(imm)) => Some(self.said(imm)),
            (Op::SendImm, Some(imm)) if !self.reliable() => Some(self.said(imm)),
            _ => None,
        };
        let (mr, offset) = match said {
            Some(l) if self.config.shape.op == Op::WriteImm => {
                let slot = l.n % u64::from(self.config.slots);
                let first = u64::from(l.source) * self.slot_bytes();
                (self.client.local().mr, first + slot * self.config.shape.stride())
            }
            _ => {
                let header = u64::from(header_bytes(self.config.link.ty));
                let at = slot * self.receive_bytes().0 + header;
                (self.receive_mr.expect("receives"), at)
            }
        };
        let whole = self.read(t, &mr, offset)?;
        if self.doubts(whole.map(|(label, _)| label), said) {
            return Ok(false);
        }
        if !self.reliable() {
            self.sort(t.now(), said, whole);
            return Ok(true);
        }
        let Some(label) = said.or(whole.map(|(label, _)| label)) else {
            // Nobody knows whose it was; with one producer its number is spent.
            if self.next.len() == 1 {
                self.next[0] += 1;
            }
            self.results.data.corrupt += 1;
            return Ok(true);
        };
        let next = &mut self.next[usize::from(label.source)];
        if label.n < *next {
            // The work request of an earlier message once more, in the place of the next one.
            *next += 1;
            self.results.data.stale += 1;
            return Ok(true);
        }
        // Those in between never came.
        *next = label.n + 1;
        match whole {
            Some((l, ready)) if l == label => {
                self.good += 1;
                self.results.sample(t.now().since(ready), t.now());
            }
            Some(_) => self.results.data.stale += 1,
            None => self.results.data.corrupt += 1,
        }
        Ok(true)
    }

    /// The message of a receive of an unreliable service, as it was `said` by immediate data and as
    /// it was read.
    fn sort(&mut self, now: Time, said: Option<Label>, whole: Option<(Label, Time)>) {
        let Some(label) = said.or(whole.map(|(label, _)| label)) else {
            // Nobody knows whose it was.
            self.numbers.iter_mut().take(1).for_each(Numbers::take_unknown);
            self.results.data.corrupt += 1;
            return;
        };
        if !self.numbers[usize::from(label.source)].take(label.n) {
            return;
        }
        match whole {
            Some((l, ready)) if l == label => {
                self.good += 1;
                self.results.sample(now.since(ready), now);
            }
            Some((l, _)) => self.displaced(label, l, true),
            None => self.displaced(label, payload::label(&self.bytes), false),
        }
    }

    /// In the place of `label` lie the bytes of another message, all or from the first on, or its
    /// own ones and not all.
    fn displaced(&mut self, label: Label, there: Label, whole: bool) {
        let taken = there.source == label.source && there.n > label.n;
        let torn = !taken && self.may_be_torn();
        let data = &mut self.results.data;
        match whole {
            // What was sent before came after it, and is the network's doing.
            true => data.stale += u64::from(self.config.unordered || taken),
            false if torn => data.incomplete += 1,
            false => data.corrupt += 1,
        }
    }

    /// Whether a message that is not whole is the network's doing: it has several packets, of which
    /// some can be lost.
    fn may_be_torn(&self) -> bool {
        let several = |mtu: Mtu| self.bytes.len() > mtu.bytes() as usize;
        let network = !self.reliable() && !self.config.unordered;
        network && self.client.path_mtu().is_some_and(several)
    }

    /// The message that immediate data stand for: its number is the one near the next that is due.
    fn said(&self, imm: u32) -> Label {
        const HALF: u64 = 1 << 23;
        let source = (imm >> 24) as u16 % self.config.sources;
        let due = match self.reliable() {
            true => self.next[usize::from(source)],
            false => self.numbers[usize::from(source)].next(),
        };
        let ahead = (u64::from(imm).wrapping_sub(due).wrapping_add(HALF)) & 0xFF_FFFF;
        Label { source, n: (due + ahead).saturating_sub(HALF) }
    }

    /// The message at `offset`, if it is whole and of a known producer.
    fn read<T: Control>(
        &mut self,
        t: &mut T,
        mr: &Mr,
        offset: u64,
    ) -> Result<Option<(Label, Time)>, Failure> {
        let len = self.bytes.len() as u64;
        t.copy_out(part(mr, offset, len)?, &mut self.bytes)?;
        Ok(payload::read(&self.bytes).filter(|(l, _)| l.source < self.config.sources))
    }

    /// After plain WRITEs: the last message of each buffer.
    fn inspect<T: Control>(&mut self, t: &mut T, sent: &[u64]) -> Result<(), Failure> {
        let torn = self.may_be_torn();
        let (mr, slots) = (self.client.local().mr, u64::from(self.config.slots));
        for (source, &sent) in (0..).zip(sent) {
            let inspected = sent.min(slots);
            // Earlier messages were overwritten: nothing is known of them, and none counts as
            // missing.
            self.good += sent - inspected;
            for n in sent - inspected..sent {
                let offset =
                    u64::from(source) * self.slot_bytes() + n % slots * self.config.shape.stride();
                match self.read(t, &mr, offset)? {
                    // A later one may have come though its sender does not say so.
                    Some((l, _)) if l.source == source && l.n >= n => self.good += 1,
                    // An earlier message, or nothing: this one never came.
                    Some(_) => {}
                    None if self.bytes.iter().all(|b| *b == 0) => {}
                    // Some packets of this message, or of an earlier one that came late.
                    None if torn => self.results.data.incomplete += 1,
                    None => self.results.data.corrupt += 1,
                }
            }
        }
        Ok(())
    }
}

fn receive(mr: &Mr, stride: u64, size: u32, slot: u64) -> RecvWr {
    RecvWr { wr_id: slot, sge: mr.sge(slot * stride, size).expect("sized by the receives") }
}

impl Program for Verify {
    fn step<T: Control>(&mut self, t: &mut T) -> Next {
        self.run(t).unwrap_or_else(|f| {
            self.results.failure = Some(f);
            Next::Done
        })
    }
}

#[cfg(test)]
mod tests {
    use doorbell_core::policy::initiator::Leader;

    use super::super::produce::{Produce, ProduceConfig, ProducePath};
    use super::super::proxy::{Proxy, ProxyConfig};
    use super::*;
    use doorbell_core::ideal::{Ideal, Limits, Place, run};
    use doorbell_core::transport::Initiator;

    const OPS: [Op; 3] = [Op::Send, Op::WriteImm, Op::Write];

    fn direct(change: impl Fn(&mut ProduceConfig, &mut VerifyConfig)) -> (Results, Results) {
        let (mut p, mut v) = (ProduceConfig::direct(1), VerifyConfig::of(0));
        change(&mut p, &mut v);
        let (mut p, mut v) = (Produce::new(p), Verify::new(v));
        run(&mut Ideal::new(2), &mut [&mut p, &mut v]).unwrap();
        (p.results().clone(), v.results)
    }

    #[test]
    fn what_was_produced_arrives_whole() {
        for op in OPS {
            for inline in [false, true] {
                let (p, v) = direct(|p, v| {
                    (p.shape.op, p.shape.inline) = (op, inline);
                    if let ProducePath::Direct { link, .. } = &mut p.path {
                        link.size.max_inline = 64;
                    }
                    v.shape = p.shape;
                });
                assert_eq!((p.failure, v.failure), (None, None), "{op:?}");
                assert_eq!((p.messages, p.rings, p.latencies.len()), (1000, 1000, 1000));
                assert_eq!(v.data, Default::default());
                assert_eq!(v.received, if op == Op::Write { 0 } else { 1000 });
                // Each round starts on time and computes for 1 us.
                let end = Time::ZERO + Span::from_us(9991);
                assert_eq!(p.last, Some(end));
            }
        }
    }

    #[test]
    fn a_group_shares_a_ring() {
        for (by, rings) in [(Leader::Thread, 64), (Leader::Warp, 2), (Leader::Block, 1)] {
            let (p, v) = direct(|p, v| {
                (p.per_round, p.rounds, v.messages) = (64, 10, 640);
                if let ProducePath::Direct { leader, signal_every, .. } = &mut p.path {
                    (*leader, *signal_every) = (by, 64);
                }
            });
            assert_eq!((p.rings, p.messages), (10 * rings, 640));
            assert_eq!(v.data.missing, 0);
        }
    }

    #[test]
    fn jitter_moves_rounds() {
        let (p, _) = direct(|p, v| {
            (p.rounds, v.messages) = (4, 4);
            p.jitter = vec![Span::ZERO, Span::from_us(3)];
        });
        assert_eq!(p.last, Some(Time::ZERO + Span::from_us(34)));
    }

    #[test]
    fn a_missing_message_is_missed() {
        let (_, v) = direct(|_, v| v.messages = 1003);
        assert_eq!(v.data.unsent, 3);
        let (_, v) = direct(|p, v| {
            v.messages = 1003;
            p.shape.op = Op::Send;
            v.shape = p.shape;
        });
        assert_eq!((v.data.unsent, v.data.missing, v.data.wrong()), (3, 0, 0));
    }

    /// Looks once at the message of a receive; whether that was enough.
    fn look<T: Control>(v: &mut Verify, t: &mut T, slot: u64, imm: Option<u32>) -> bool {
        let looks = v.arrived.pop_front().map_or(0, |a| a.looks);
        let a = Arrival { slot, qp: QpId::new(0, 0, 0), imm, len: 64, looks };
        v.arrived.push_back(a);
        let done = v.received(t, &a).unwrap();
        if done {
            v.arrived.clear();
        }
        done
    }

    fn check<T: Control>(v: &mut Verify, t: &mut T, slot: u64, imm: Option<u32>) {
        assert!(look(v, t, slot, imm), "host memory is looked at once");
    }

    /// The first message is there at the third look, the second one never.
    #[test]
    fn the_memory_of_a_gpu_is_looked_at_again() {
        let mut v = Verify::new(VerifyConfig::of(0));
        let mut world = Ideal::new(1);
        let mut t = world.at(0);
        let local = Local::open(&mut t, &LocalConfig::default()).unwrap();
        (v.receive_mr, v.up) = (Some(local.mr), true);
        v.config.shape.op = Op::Send;
        v.config.local.memory = MemKind::Gpu { gpu: 0 };
        assert!(!look(&mut v, &mut t, 0, None) && !look(&mut v, &mut t, 0, None));
        let mut bytes = [0; 64];
        payload::write(&mut bytes, Label { source: 0, n: 0 }, Time::ZERO);
        use doorbell_core::transport::Transport;
        t.copy_in(local.mr.range(0, 64).unwrap(), &bytes).unwrap();
        assert!(look(&mut v, &mut t, 0, None));
        assert_eq!((v.good, v.results.data.early, v.results.data.wrong()), (1, 1, 0));
        // What lies there is the message before: it is old, and stays so.
        let looks = (0..).take_while(|_| !look(&mut v, &mut t, 0, None)).count();
        assert_eq!(looks as u32, MORE_LOOKS);
        assert_eq!((v.good, v.results.data.early, v.results.data.stale), (1, 1, 1));
    }

    #[test]
    fn buffers_that_are_written_too_early_are_found() {
        // Every second message of the sender carries the bytes of the one before.
        let mut v = Verify::new(VerifyConfig::of(0));
        let mut world = Ideal::new(1);
        let mut t = world.at(0);
        let local = Local::open(&mut t, &LocalConfig::default()).unwrap();
        (v.receive_mr, v.up) = (Some(local.mr), true);
        v.config.shape.op = Op::Send;
        for n in 0..4_u64 {
            let mut bytes = [0; 64];
            payload::write(&mut bytes, Label { source: 0, n: n & !1 }, Time::ZERO);
            if n == 2 {
                bytes[63] ^= 1;
            }
            use doorbell_core::transport::Transport;
            t.copy_in(local.mr.range(0, 64).unwrap(), &bytes).unwrap();
            check(&mut v, &mut t, 0, None);
        }
        assert_eq!((v.results.data.stale, v.results.data.corrupt, v.good), (2, 1, 1));
    }

    /// Message 2 is lost, and in place of 5 the work request of 1 is executed again: what comes
    /// later is right all the same.
    #[test]
    fn a_lost_and_a_repeated_message_are_one_error_each() {
        for op in [Op::Send, Op::WriteImm] {
            let mut v = Verify::new(VerifyConfig { messages: 8, ..VerifyConfig::of(0) });
            let mut world = Ideal::new(1);
            let mut t = world.at(0);
            use doorbell_core::transport::Transport;
            let local = Local::open(&mut t, &LocalConfig::default()).unwrap();
            let mr = local.mr;
            v.client = Client::with_memory(local);
            (v.receive_mr, v.up, v.config.shape.op) = (Some(mr), true, op);
            for n in [0, 1, 3, 4, 1, 6, 7] {
                let mut bytes = [0; 64];
                let label = Label { source: 0, n };
                payload::write(&mut bytes, label, Time::ZERO);
                let slot = n % 64;
                t.copy_in(mr.range(slot * 64, 64).unwrap(), &bytes).unwrap();
                let imm = (op == Op::WriteImm).then_some(n as u32);
                check(&mut v, &mut t, slot, imm);
            }
            v.finish(&mut t).unwrap();
            assert_eq!((v.good, v.results.data.stale), (6, 1), "{op:?}");
            assert_eq!((v.results.data.missing, v.results.data.corrupt), (1, 0), "{op:?}");
        }
    }

    #[test]
    fn a_proxy_posts_for_its_producers() {
        let place = |host, initiator| Place { host, initiator };
        let cpu = Initiator::Cpu { core: 0, numa: 0 };
        let block = |block| Initiator::GpuBlock { gpu: 0, block };
        let places = [place(0, block(0)), place(0, block(1)), place(0, cpu), place(1, cpu)];
        for op in OPS {
            let shape = Shape { op, size: 256, inline: false };
            let produce = |source| {
                let config = ProduceConfig { shape, source, ..ProduceConfig::through(2) };
                Produce::new(ProduceConfig { per_round: 8, rounds: 50, slots: 16, ..config })
            };
            let (mut a, mut b) = (produce(0), produce(1));
            let mut proxy = ProxyConfig::between(0, 3);
            proxy.local.memory = MemKind::Gpu { gpu: 0 };
            (proxy.producers, proxy.shape, proxy.slots) = (vec![0, 1], shape, 16);
            let mut proxy = Proxy::new(proxy);
            let mut v = VerifyConfig::of(2);
            (v.shape, v.slots, v.sources, v.messages) = (shape, 16, 2, 400);
            let mut v = Verify::new(v);
            let mut world = Ideal::with_places(&places, Limits::default());
            run(&mut world, &mut [&mut a, &mut b, &mut proxy, &mut v]).unwrap();
            for r in [a.results(), b.results(), proxy.results(), &v.results] {
                assert_eq!(r.failure, None, "{op:?}");
            }
            assert_eq!((a.results().messages, proxy.results().messages), (400, 800));
            assert_eq!(a.results().latencies.len(), 400);
            assert_eq!(v.results.data, Default::default(), "{op:?}");
            // Eight messages per flag, one ring for each flag that was seen.
            assert!(proxy.results().rings <= 100);
        }
    }

    #[test]
    fn impossible_productions_are_refused() {
        let wrong: [fn(&mut ProduceConfig); 4] = [
            |p| p.per_round = 65,
            |p| p.rounds = 0,
            |p| p.shape.size = 23,
            |p| {
                if let ProducePath::Direct { signal_every, .. } = &mut p.path {
                    *signal_every = 0;
                }
            },
        ];
        for change in wrong {
            let mut config = ProduceConfig::direct(1);
            change(&mut config);
            let mut p = Produce::new(config);
            run(&mut Ideal::new(1), &mut [&mut p]).unwrap();
            assert!(matches!(p.results().failure, Some(Failure::Config(_))));
        }
    }
}
