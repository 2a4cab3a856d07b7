//! A producer: messages become ready at intervals, on a CPU core or a GPU block.
//!
//! Either the initiator that produces stages and rings by itself, or it writes commands and a
//! [`Proxy`](super::Proxy) on a CPU core posts on its behalf. A latency is the time from the
//! moment at which the result of a message exists (before its bytes are stored) to the moment at
//! which the producer knows that the message has completed.

use std::collections::VecDeque;

use doorbell_core::policy::initiator::{Command, CommandQueue, CommandWriter, Leader};
use doorbell_core::policy::{BatchConfig, BatchMode, Batcher};
use doorbell_core::transport::{
    AttachError, Completion, Completions, Contents, Control, FenceScope, Mr, Next, Program, Remote,
    Ring, WaitSet, WatchId,
};
use doorbell_core::units::{Bytes, Span, Time};
use doorbell_core::verbs::SendFlags;

use super::common::{Failure, MAX_SAMPLES, Message, Poster, Results, Shape, Window, failed};
use super::connect::{Client, LinkConfig, LocalConfig, publish_done, publish_sent};
use super::payload::{self, HEADER_BYTES, Label};
use super::proxy::{COMMANDS, PAYLOAD, shared_key};

/// Who stages and rings.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ProducePath {
    /// The producer itself.
    Direct {
        /// Own memory and queues.
        local: LocalConfig,
        /// The link; only its first QP is used.
        link: LinkConfig,
        /// How to ring.
        ring: Ring,
        /// Whose ring announces the messages of a round, of which each thread has one.
        leader: Leader,
        /// Every how many messages one is signalled. Higher: fewer completions, later news.
        signal_every: u32,
    },
    /// A proxy on the same host.
    Proxy {
        /// Its rank.
        rank: u32,
        /// How long it may take to share its memory.
        deadline: Span,
        /// Whether the payload has contents, as in the proxy's configuration.
        contents: Contents,
    },
}

/// Configuration of [`Produce`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProduceConfig {
    /// Who posts.
    pub path: ProducePath,
    /// Number of this producer in the labels of its messages.
    pub source: u16,
    /// The message. With contents it has at least [`HEADER_BYTES`].
    pub shape: Shape,
    /// Messages that become ready together, at least 1: one per thread of a block.
    pub per_round: u32,
    /// Rounds, at least 1.
    pub rounds: u64,
    /// Time from the start of one round to the start of the next. A round that finds no free
    /// buffers begins later.
    pub interval: Span,
    /// Added to the start of each round, over and over; empty: none. This is how irregular
    /// production is described without drawing random numbers.
    pub jitter: Vec<Span>,
    /// Computation of a round before its messages are ready.
    pub work: Span,
    /// Buffers. Fewer than `per_round` times what is outstanding: rounds wait.
    pub slots: u32,
    /// What fences stores before each ring or announcement, where that does not do so by itself.
    /// Without it, and with a fence towards the own device only, the NIC or the proxy may see the
    /// announcement of a GPU before the bytes.
    pub fence: Option<FenceScope>,
}

impl ProduceConfig {
    /// 1,000 rounds of one 64-byte WRITE each, every 10 us, 1 us of computation, 64 buffers.
    pub fn direct(peer: u32) -> Self {
        let path = ProducePath::Direct {
            local: LocalConfig::default(),
            link: LinkConfig::to(peer),
            ring: Ring::Auto,
            leader: Leader::Block,
            signal_every: 1,
        };
        Self {
            path,
            source: 0,
            shape: Shape { size: 64, ..Shape::default() },
            per_round: 1,
            rounds: 1000,
            interval: Span::from_us(10),
            jitter: vec![],
            work: Span::from_us(1),
            slots: 64,
            fence: Some(FenceScope::System),
        }
    }

    /// The same through the proxy of rank `rank`.
    pub fn through(rank: u32) -> Self {
        let (deadline, contents) = (Span::from_ms(1000), Contents::Data);
        let path = ProducePath::Proxy { rank, deadline, contents };
        Self { path, ..Self::direct(0) }
    }

    fn contents(&self) -> Contents {
        match self.path {
            ProducePath::Direct { local, .. } => local.contents,
            ProducePath::Proxy { contents, .. } => contents,
        }
    }

    /// A leader's ring announces its group, and the last group of a round is flushed.
    fn batch(&self) -> BatchConfig {
        let (ring, leader) = match self.path {
            ProducePath::Direct { ring, leader, .. } => (ring, leader),
            ProducePath::Proxy { .. } => (Ring::Auto, Leader::Block),
        };
        BatchConfig {
            mode: BatchMode::Fixed,
            max_wrs: leader.group(self.per_round),
            max_bytes: Bytes(u64::MAX),
            max_delay: Span::MAX,
            ring,
            fence: self.fence,
        }
    }

    /// Bytes of all buffers.
    pub fn region_bytes(&self) -> u64 {
        self.shape.stride() * u64::from(self.slots)
    }
}

/// What the producer uses once it is set up.
#[derive(Clone, Debug)]
struct Ready {
    payload: Mr,
    path: Path,
}

/// By whom it posts.
#[derive(Clone, Debug)]
enum Path {
    Own(Batcher),
    /// The queue of the proxy, and the watch on its answer.
    Proxy(CommandWriter, WatchId),
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Produce {
    config: ProduceConfig,
    client: Option<Client>,
    poster: Poster,
    polled: Completions,
    results: Results,
    ready: Option<Ready>,
    began: Option<Time>,
    start: Time,
    round: u64,
    /// Messages made, and messages whose end is known.
    made: u64,
    ended: u64,
    /// Messages up to the last signalled one.
    signalled: u64,
    /// When each message that has not ended was ready.
    pending: VecDeque<Time>,
    bytes: Vec<u8>,
}

impl Produce {
    /// A program that has not started.
    pub fn new(config: ProduceConfig) -> Self {
        let client = match config.path {
            ProducePath::Direct { local, link, .. } => Some(Client::new(local, link)),
            ProducePath::Proxy { .. } => None,
        };
        Self {
            client,
            poster: Poster::new(config.shape),
            polled: Completions::with_capacity(64),
            results: Results::default(),
            ready: None,
            began: None,
            start: Time::ZERO,
            round: 0,
            made: 0,
            ended: 0,
            signalled: 0,
            pending: VecDeque::with_capacity(config.slots as usize),
            bytes: vec![0; config.shape.bytes() as usize],
            config,
        }
    }

    /// What was measured; latencies from "ready" to the news that the message has completed.
    pub fn results(&self) -> &Results {
        &self.results
    }

    fn check(&self) -> Result<(), Failure> {
        let c = &self.config;
        if c.per_round == 0 || c.rounds == 0 || c.per_round > c.slots {
            return Err(Failure::Config("a round has 1 to `slots` messages, and there is one"));
        }
        if c.contents() == Contents::Data && (c.shape.bytes() as usize) < HEADER_BYTES {
            return Err(Failure::Config("a message with contents has at least 24 bytes"));
        }
        if let ProducePath::Direct { signal_every, link, .. } = c.path {
            if signal_every == 0 || signal_every > link.size.max_send_wr.min(c.slots) {
                return Err(Failure::Config("signal_every is 1 to the send queue and `slots`"));
            }
            if c.per_round > link.size.max_send_wr {
                return Err(Failure::Config("a round does not fit the send queue"));
            }
        }
        Ok(())
    }

    /// Sets up; what to wait for, if anything.
    fn up<T: Control>(&mut self, t: &mut T) -> Result<Option<Next>, Failure> {
        if self.ready.is_some() {
            return Ok(None);
        }
        self.check()?;
        let need = self.config.region_bytes();
        let ready = match (&mut self.client, self.config.path) {
            (Some(client), _) => {
                if let Some(next) = client.up(t, |_, _, _| Ok(()))? {
                    return Ok(Some(next));
                }
                client.require(need)?;
                let qp = client.lanes()[0].qp;
                let caps = t.qp_caps(qp).map_err(|_| Failure::Config("a QP is gone"))?;
                self.results.granted = Some(caps);
                let path = Path::Own(Batcher::new(self.config.batch(), qp, &caps));
                Ready { payload: client.local().mr, path }
            }
            (None, ProducePath::Proxy { rank, deadline, .. }) => {
                match attach(t, rank, &self.config) {
                    Ok(r) => r,
                    Err(Failure::Attach(AttachError::NotShared)) => {
                        let until = *self.began.get_or_insert(t.now()) + deadline;
                        if t.now() >= until {
                            return Err(Failure::NoPeer { peer: rank, what: "its memory" });
                        }
                        let on = WaitSet::BOOTSTRAP;
                        return Ok(Some(Next::Wait { on, until: Some(until) }));
                    }
                    Err(f) => return Err(f),
                }
            }
            (None, ProducePath::Direct { .. }) => unreachable!("a direct path has a client"),
        };
        if ready.payload.len < need {
            return Err(Failure::OwnRegion { got: ready.payload.len, need });
        }
        self.ready = Some(ready);
        self.start = t.now();
        Ok(None)
    }

    fn run<T: Control>(&mut self, t: &mut T) -> Result<Next, Failure> {
        if let Some(next) = self.up(t)? {
            return Ok(next);
        }
        let full = match &mut self.ready.as_mut().expect("up").path {
            Path::Own(_) => self.poll(t)?,
            Path::Proxy(writer, _) => {
                let done = writer.look(t)?;
                let alive = writer.alive();
                self.end(t.now(), done.into());
                alive?;
                false
            }
        };
        if self.round < self.config.rounds && t.now() >= self.next_round() && self.has_room(t) {
            self.make(t)?;
        }
        if self.round == self.config.rounds && self.pending.is_empty() {
            self.leave(t);
            return Ok(Next::Done);
        }
        if full {
            return Ok(Next::Again);
        }
        let on = match (&self.ready.as_ref().expect("up").path, &self.client) {
            (Path::Proxy(_, watch), _) => WaitSet::watch(*watch),
            (Path::Own(_), Some(client)) => WaitSet::cq(client.local().send_cq),
            (Path::Own(_), None) => WaitSet::EMPTY,
        };
        let more = self.round < self.config.rounds && self.has_room(t);
        Ok(Next::Wait { on, until: more.then(|| self.next_round()) })
    }

    fn next_round(&self) -> Time {
        let jitter = match self.config.jitter.len() as u64 {
            0 => Span::ZERO,
            n => self.config.jitter[(self.round % n) as usize],
        };
        self.start + self.config.interval * self.round + jitter
    }

    fn has_room<T: Control>(&self, t: &T) -> bool {
        let n = self.config.per_round;
        let slots = u64::from(self.config.slots) - (self.made - self.ended) >= u64::from(n);
        let sq = self.client.as_ref().is_none_or(|c| t.sq_free(c.lanes()[0].qp) >= n);
        slots && sq
    }

    fn poll<T: Control>(&mut self, t: &mut T) -> Result<bool, Failure> {
        let cq = self.client.as_ref().expect("a direct path").local().send_cq;
        self.polled.clear();
        t.poll_cq(cq, &mut self.polled)?;
        let mut n = 0;
        for c in self.polled.as_slice() {
            if let Some(f) = failed(c) {
                return Err(f);
            }
            if let Completion::Send { retired, .. } = *c {
                n += u64::from(retired);
            }
        }
        self.end(t.now(), n);
        Ok(self.polled.is_full())
    }

    /// The oldest `n` messages have ended.
    fn end(&mut self, now: Time, n: u64) {
        for since in self.pending.drain(..(n as usize).min(self.pending.len())) {
            self.results.sample(now.since(since), now);
        }
        self.ended += n;
        self.results.completed(n, self.config.shape.bytes(), now);
        if let (Some(from), true) = (self.results.first, n > 0) {
            let (messages, bytes) = (self.results.messages, self.results.bytes);
            self.results.window = Some(Window { from, to: now, messages, bytes });
        }
    }

    /// One round: computes, stores the messages, announces them.
    fn make<T: Control>(&mut self, t: &mut T) -> Result<(), Failure> {
        t.compute(self.config.work);
        let now = t.now();
        self.results.first.get_or_insert(now);
        let first = self.made;
        let last = first + u64::from(self.config.per_round);
        let payload = self.ready.as_ref().expect("up").payload;
        if self.config.contents() == Contents::Data && !self.config.shape.inline {
            for n in first..last {
                let (label, offset, len) = (self.label(n), self.offset(n), self.bytes.len() as u64);
                payload::write(&mut self.bytes, label, now);
                t.copy_in(payload.range(offset, len).expect("checked"), &self.bytes)?;
            }
        }
        self.pending.extend((first..last).map(|_| now));
        let room = MAX_SAMPLES.saturating_sub(self.results.ready.len()) as u64;
        self.results.ready.extend((first..last).take(room as usize).map(|_| now));
        (self.made, self.round) = (last, self.round + 1);
        match self.config.path {
            ProducePath::Direct { signal_every, .. } => {
                for n in first..last {
                    self.push(t, n, signal_every, now)?;
                }
                // The last group of a round may have fewer.
                let Path::Own(batcher) = &mut self.ready.as_mut().expect("up").path else {
                    unreachable!("a direct path")
                };
                batcher.flush(t)?;
                self.results.rings = batcher.stats().rings;
                Ok(())
            }
            ProducePath::Proxy { .. } => {
                for n in first..last {
                    self.write(t, n)?;
                }
                let Path::Proxy(writer, _) = &mut self.ready.as_mut().expect("up").path else {
                    unreachable!("a proxy's path")
                };
                writer.announce(t)?;
                Ok(())
            }
        }
    }

    /// Writes the command for message `n`.
    fn write<T: Control>(&mut self, t: &mut T, n: u64) -> Result<(), Failure> {
        let (shape, offset, label) = (self.config.shape, self.offset(n), imm(self.label(n)));
        let op = shape.op.to_send_op(Remote::default(), label).into();
        let (flags, bytes) = (SendFlags::empty(), shape.bytes());
        let command = Command { op, flags, offset, bytes, remote: offset };
        let Path::Proxy(writer, _) = &mut self.ready.as_mut().expect("up").path else {
            unreachable!("a proxy's path")
        };
        writer.write(t, &command)?;
        Ok(())
    }

    /// Pushes message `n`.
    fn push<T: Control>(
        &mut self,
        t: &mut T,
        n: u64,
        signal_every: u32,
        now: Time,
    ) -> Result<(), Failure> {
        let label = self.label(n);
        if self.config.shape.inline && self.config.contents() == Contents::Data {
            payload::write(self.poster.inline_bytes(), label, now);
        }
        let signal = (n + 1).is_multiple_of(signal_every.into()) || self.must_signal(n);
        if signal {
            self.signalled = n + 1;
        }
        let flags = if signal { SendFlags::SIGNALED } else { SendFlags::empty() };
        let message = Message { wr_id: n, n: imm(label), offset: self.offset(n), flags };
        let lane = self.client.as_ref().expect("a direct path").lanes()[0];
        let Ready { payload, path: Path::Own(batcher) } = self.ready.as_mut().expect("up") else {
            unreachable!("a direct path")
        };
        self.poster.push(t, (batcher, now), &lane, payload, message)?;
        Ok(())
    }

    /// Whether message `n` ends the last round, or one behind which the next would find no room:
    /// what lies behind the last signalled one keeps its slots, and nobody would tell of it.
    fn must_signal(&self, n: u64) -> bool {
        let ProducePath::Direct { link, .. } = self.config.path else { return false };
        let (c, quiet) = (&self.config, n + 1 - self.signalled);
        let full = quiet + u64::from(c.per_round) > c.slots.min(link.size.max_send_wr).into();
        n + 1 == self.made && (full || self.round == c.rounds)
    }

    fn label(&self, n: u64) -> Label {
        Label { source: self.config.source, n }
    }

    fn offset(&self, n: u64) -> u64 {
        n % u64::from(self.config.slots) * self.config.shape.stride()
    }

    fn leave<T: Control>(&self, t: &mut T) {
        let takes = self.config.shape.op.takes_receive();
        match (&self.client, self.config.path) {
            (Some(c), _) => {
                publish_sent(t, c.peer(), 0, self.ended);
                publish_done(t, c.peer(), if takes { self.ended } else { 0 });
            }
            (None, ProducePath::Proxy { rank, .. }) => publish_done(t, rank, self.made),
            (None, ProducePath::Direct { .. }) => {}
        }
    }
}

/// Immediate data of a message: its source and the low bits of its number.
pub fn imm(label: Label) -> u64 {
    u64::from(label.source & 0xFF) << 24 | label.n & 0xFF_FFFF
}

fn attach<T: Control>(t: &mut T, proxy: u32, config: &ProduceConfig) -> Result<Ready, Failure> {
    let me = t.rank();
    // The proxy shares the commands last.
    let commands = t.attach_mr(proxy, shared_key(me, COMMANDS))?;
    let payload = t.attach_mr(proxy, shared_key(me, PAYLOAD))?;
    let too_short = |_| Failure::Config("the proxy has fewer slots than its producer");
    let queue = CommandQueue::new(&commands, 0, config.slots).map_err(too_short)?;
    let watch = t.watch(queue.done_word())?;
    let who = t.initiator();
    let writer = CommandWriter::new(queue, who);
    let gpu = matches!(who, doorbell_core::transport::Initiator::GpuBlock { .. });
    let writer = if gpu { writer.with_fence(config.fence) } else { writer };
    Ok(Ready { payload, path: Path::Proxy(writer, watch) })
}

impl Program for Produce {
    fn step<T: Control>(&mut self, t: &mut T) -> Next {
        self.run(t).unwrap_or_else(|f| {
            self.results.failure = Some(f);
            self.leave(t);
            Next::Done
        })
    }
}
