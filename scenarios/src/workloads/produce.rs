//! A producer: messages become ready at intervals, on a CPU core or a GPU block.
//!
//! Either the initiator that produces stages and rings by itself, or it stores a flag and a
//! [`Proxy`](super::Proxy) on a CPU core posts on its behalf. A latency is the time from the
//! moment at which the result of a message exists (before its bytes are stored) to the moment at
//! which the producer knows that the message has completed.

use std::collections::VecDeque;

use doorbell_core::transport::{
    AttachError, Completion, Completions, Contents, Control, FenceScope, Mr, Next, Program, Ring,
    WaitSet, WatchId,
};
use doorbell_core::units::{Span, Time};
use doorbell_core::verbs::SendFlags;

use super::common::{Failure, MAX_SAMPLES, Message, Poster, Results, Shape, Window, failed, part};
use super::connect::{Client, LinkConfig, LocalConfig, publish_done};
use super::payload::{self, HEADER_BYTES, Label};
use super::proxy::{DONE_OFFSET, FLAGS, PAYLOAD, READY_OFFSET, shared_key};

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
        /// Messages of a round that one ring announces; 0: all of a round. 1 stands for a GPU
        /// whose threads each ring, 32 for one leader per warp. Lower: more doorbells.
        group: u32,
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
    /// What fences stores before each ring or flag, where the ring does not do so by itself.
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
            group: 0,
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

    /// Bytes of all buffers.
    pub fn region_bytes(&self) -> u64 {
        self.shape.stride() * u64::from(self.slots)
    }
}

/// What the producer uses once it is set up.
#[derive(Copy, Clone, Debug)]
struct Ready {
    payload: Mr,
    /// Flags of the proxy and the watch on its answer.
    flags: Option<(Mr, WatchId)>,
    must_fence: Option<FenceScope>,
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
                self.results.granted = t.qp_caps(client.lanes()[0].qp).ok();
                let weak = self.results.granted.is_some_and(|c| !c.ring_orders_stores);
                let must_fence = self.config.fence.filter(|_| weak);
                Ready { payload: client.local().mr, flags: None, must_fence }
            }
            (None, ProducePath::Proxy { rank, deadline, .. }) => {
                match attach(t, rank, self.config.fence) {
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
        let ready = self.ready.expect("up");
        let full = match ready.flags {
            None => self.poll(t)?,
            Some((flags, _)) => {
                let done = t.load_u64(word(&flags, DONE_OFFSET)?)?;
                self.end(t.now(), done.saturating_sub(self.ended));
                false
            }
        };
        if self.round < self.config.rounds && t.now() >= self.next_round() && self.has_room(t) {
            self.make(t, &ready)?;
        }
        if self.round == self.config.rounds && self.pending.is_empty() {
            self.leave(t);
            return Ok(Next::Done);
        }
        if full {
            return Ok(Next::Again);
        }
        let on = match (ready.flags, &self.client) {
            (Some((_, watch)), _) => WaitSet::watch(watch),
            (None, Some(client)) => WaitSet::cq(client.local().send_cq),
            (None, None) => WaitSet::EMPTY,
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
    fn make<T: Control>(&mut self, t: &mut T, ready: &Ready) -> Result<(), Failure> {
        t.compute(self.config.work);
        let now = t.now();
        self.results.first.get_or_insert(now);
        let first = self.made;
        let last = first + u64::from(self.config.per_round);
        if self.config.contents() == Contents::Data && !self.config.shape.inline {
            for n in first..last {
                let (label, offset, len) = (self.label(n), self.offset(n), self.bytes.len() as u64);
                payload::write(&mut self.bytes, label, now);
                t.copy_in(ready.payload.range(offset, len).expect("checked"), &self.bytes)?;
            }
        }
        self.pending.extend((first..last).map(|_| now));
        let room = MAX_SAMPLES.saturating_sub(self.results.ready.len()) as u64;
        self.results.ready.extend((first..last).take(room as usize).map(|_| now));
        (self.made, self.round) = (last, self.round + 1);
        match self.config.path {
            ProducePath::Direct { ring, group, signal_every, .. } => {
                let group = if group == 0 { self.config.per_round } else { group };
                for n in first..last {
                    self.stage(t, ready, n, signal_every, now)?;
                    if (n + 1 - first).is_multiple_of(group.into()) || n + 1 == last {
                        self.ring(t, ready, ring)?;
                    }
                }
                Ok(())
            }
            ProducePath::Proxy { .. } => {
                if let Some(scope) = ready.must_fence {
                    t.fence(scope);
                }
                let (flags, _) = ready.flags.expect("a proxy's");
                t.store_u64(word(&flags, READY_OFFSET)?, last)?;
                Ok(())
            }
        }
    }

    fn stage<T: Control>(
        &mut self,
        t: &mut T,
        ready: &Ready,
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
        let mut staged = self.poster.stage(t, &lane, &ready.payload, message);
        if staged == Err(Failure::Stage(doorbell_core::transport::StageError::StagedFull)) {
            let ProducePath::Direct { ring, .. } = self.config.path else { unreachable!() };
            self.ring(t, ready, ring)?;
            staged = self.poster.stage(t, &lane, &ready.payload, message);
        }
        staged
    }

    /// Whether message `n` ends the last round, or one behind which the next would find no room:
    /// what lies behind the last signalled one keeps its slots, and nobody would tell of it.
    fn must_signal(&self, n: u64) -> bool {
        let ProducePath::Direct { link, .. } = self.config.path else { return false };
        let (c, quiet) = (&self.config, n + 1 - self.signalled);
        let full = quiet + u64::from(c.per_round) > c.slots.min(link.size.max_send_wr).into();
        n + 1 == self.made && (full || self.round == c.rounds)
    }

    fn ring<T: Control>(&mut self, t: &mut T, ready: &Ready, how: Ring) -> Result<(), Failure> {
        if let Some(scope) = ready.must_fence {
            t.fence(scope);
        }
        t.ring(self.client.as_ref().expect("a direct path").lanes()[0].qp, how)?;
        self.results.rings += 1;
        Ok(())
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
            (Some(c), _) => publish_done(t, c.peer(), if takes { self.ended } else { 0 }),
            (None, ProducePath::Proxy { rank, .. }) => publish_done(t, rank, self.made),
            (None, ProducePath::Direct { .. }) => {}
        }
    }
}

/// Immediate data of a message: its source and the low bits of its number.
pub fn imm(label: Label) -> u64 {
    u64::from(label.source & 0xFF) << 24 | label.n & 0xFF_FFFF
}

fn attach<T: Control>(t: &mut T, proxy: u32, fence: Option<FenceScope>) -> Result<Ready, Failure> {
    let me = t.rank();
    // The proxy shares the flags last.
    let flags = t.attach_mr(proxy, shared_key(me, FLAGS))?;
    let payload = t.attach_mr(proxy, shared_key(me, PAYLOAD))?;
    let watch = t.watch(word(&flags, DONE_OFFSET)?)?;
    let gpu = matches!(t.initiator(), doorbell_core::transport::Initiator::GpuBlock { .. });
    let must_fence = fence.filter(|_| gpu);
    Ok(Ready { payload, flags: Some((flags, watch)), must_fence })
}

/// The 8 bytes at `offset`.
pub(super) fn word(mr: &Mr, offset: u64) -> Result<doorbell_core::transport::Range, Failure> {
    part(mr, offset, 8)
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
