//! A CPU core that posts on behalf of producers on the same host.
//!
//! It waits until a producer's flag in host memory shows new messages, stages all that it sees,
//! rings once per queue pair, and stores how many have completed. That is the hop which a
//! GPU-initiated ring saves.

use std::collections::VecDeque;

use doorbell_core::transport::{
    Completion, Completions, Contents, Control, MemKind, Mr, Next, Program, Range, Ring, WaitSet,
    WatchId,
};
use doorbell_core::units::{Span, Time};
use doorbell_core::verbs::{AccessFlags, SendFlags};

use super::common::{Failure, Message, Poster, Results, Shape, failed};
use super::connect::{
    ALL_RIGHTS, Client, Lane, LinkConfig, LocalConfig, Topic, key, lookup_done, publish_done,
};
use super::payload::Label;
use super::produce::{imm, word};

/// Index of a producer's flags among the shared regions; shared last, attached first.
pub(super) const FLAGS: u32 = 0;
/// Index of a producer's payload region.
pub(super) const PAYLOAD: u32 = 1;
/// Offset of the number of messages that are ready, written by the producer.
pub(super) const READY_OFFSET: u64 = 0;
/// Offset of the number of messages that have completed, written by the proxy. A line of its own.
pub(super) const DONE_OFFSET: u64 = 64;

/// The key under which the proxy shares region `index` with `producer`.
pub(super) const fn shared_key(producer: u32, index: u32) -> u64 {
    key(Topic::SharedMr, producer, index)
}

/// Configuration of [`Proxy`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProxyConfig {
    /// Completion queues, and where the payload is. `region_bytes` is not used: each producer gets
    /// a region of the size of its buffers.
    pub local: LocalConfig,
    /// The link. Producers are dealt to its QPs in turn.
    pub link: LinkConfig,
    /// Where the flags are; host memory that the proxy's core polls.
    pub flags: MemKind,
    /// Ranks of the producers, at most 13, in the order of their `source` numbers from 0.
    pub producers: Vec<u32>,
    /// The message, as at the producers.
    pub shape: Shape,
    /// Buffers of each producer, as there.
    pub slots: u32,
    /// How to ring.
    pub ring: Ring,
    /// Messages staged before a ring even if more are ready. Lower: earlier first message, more
    /// doorbells.
    pub batch: u32,
    /// Time from one look at the flags and completions to the next; `None`: it looks all the time.
    /// Longer: what is ready waits for longer, and more of it goes out by one ring.
    pub poll_interval: Option<Span>,
    /// The core's time for each message beside what the verbs cost: taking the command out of the
    /// producer's queue, decoding it, looking up the peer. It bounds the rate of all producers
    /// together.
    pub work: Span,
}

impl ProxyConfig {
    /// One producer, 64-byte WRITEs, 64 buffers, batches of at most 64.
    pub fn between(producer: u32, peer: u32) -> Self {
        Self {
            local: LocalConfig::default(),
            link: LinkConfig::to(peer),
            flags: MemKind::Host { numa: 0 },
            producers: vec![producer],
            shape: Shape { size: 64, ..Shape::default() },
            slots: 64,
            ring: Ring::Auto,
            batch: 64,
            poll_interval: None,
            work: Span::ZERO,
        }
    }

    fn slot_bytes(&self) -> u64 {
        self.shape.stride() * u64::from(self.slots)
    }
}

/// A producer as the proxy knows it.
#[derive(Copy, Clone, Debug)]
struct Served {
    flags: Mr,
    payload: Mr,
    watch: WatchId,
    /// Messages posted and completed.
    posted: u64,
    done: u64,
    /// Whether `done` has to be stored.
    changed: bool,
}

/// See the module. Results: messages, rings.
#[derive(Clone, Debug)]
pub struct Proxy {
    config: ProxyConfig,
    client: Client,
    poster: Poster,
    polled: Completions,
    results: Results,
    producers: Vec<Served>,
    /// Producer of each message outstanding, per QP.
    outstanding: Vec<VecDeque<usize>>,
    /// No look before.
    next_look: Time,
}

/// A region that only anchors the link: the payload has regions of its own.
const ANCHOR_BYTES: u64 = 64;

impl Proxy {
    /// A program that has not started.
    pub fn new(config: ProxyConfig) -> Self {
        let local = LocalConfig { region_bytes: ANCHOR_BYTES, ..config.local };
        Self {
            client: Client::new(local, config.link),
            poster: Poster::new(config.shape),
            polled: Completions::with_capacity(64),
            results: Results::default(),
            producers: vec![],
            outstanding: vec![VecDeque::new(); config.link.qps as usize],
            next_look: Time::ZERO,
            config,
        }
    }

    /// What was done.
    pub fn results(&self) -> &Results {
        &self.results
    }

    fn check(&self) -> Result<(), Failure> {
        let c = &self.config;
        if c.shape.inline {
            return Err(Failure::Config(
                "a proxy does not read the payload, so it sends none inline",
            ));
        }
        if c.batch == 0 || c.link.qps == 0 || c.producers.is_empty() {
            return Err(Failure::Config("batch, qps and producers count from 1"));
        }
        if c.producers.len() >= doorbell_core::transport::MAX_WAIT_WATCHES as usize {
            return Err(Failure::Config("a proxy watches at most 13 producers"));
        }
        Ok(())
    }

    /// Connects, then shares memory with each producer.
    fn up<T: Control>(&mut self, t: &mut T) -> Result<Option<Next>, Failure> {
        if !self.producers.is_empty() {
            return Ok(None);
        }
        self.check()?;
        if let Some(next) = self.client.up(t, |_, _, _| Ok(()))? {
            return Ok(Some(next));
        }
        let c = &self.config;
        let (pd, slot_bytes) = (self.client.local().pd, c.slot_bytes());
        let need = slot_bytes * c.producers.len() as u64;
        let got = self.client.lanes()[0].remote.len;
        if got < need {
            return Err(Failure::PeerRegion { peer: self.client.peer(), got, need });
        }
        for &rank in &c.producers {
            let (kind, contents) = (c.local.memory, c.local.contents);
            let payload = t.alloc_mr(pd, slot_bytes, kind, ALL_RIGHTS, contents)?;
            let access = AccessFlags::LOCAL_WRITE;
            let flags = t.alloc_mr(pd, 2 * DONE_OFFSET, c.flags, access, Contents::Data)?;
            let watch = t.watch(word(&flags, READY_OFFSET)?)?;
            t.share_mr(payload.id, shared_key(rank, PAYLOAD))?;
            t.share_mr(flags.id, shared_key(rank, FLAGS))?;
            let served = Served { flags, payload, watch, posted: 0, done: 0, changed: false };
            self.producers.push(served);
        }
        Ok(None)
    }

    fn run<T: Control>(&mut self, t: &mut T) -> Result<Next, Failure> {
        if let Some(next) = self.up(t)? {
            return Ok(next);
        }
        if t.now() < self.next_look {
            return Ok(Next::Wait { on: WaitSet::EMPTY, until: Some(self.next_look) });
        }
        let full = self.poll(t)?;
        let mut more = full;
        let lanes = self.client.lanes().len();
        for l in 0..lanes {
            more |= self.serve(t, l)?;
        }
        if self.finished(t)? {
            self.leave(t);
            return Ok(Next::Done);
        }
        if more {
            return Ok(Next::Again);
        }
        if let Some(interval) = self.config.poll_interval {
            self.next_look = t.now() + interval;
            return Ok(Next::Wait { on: WaitSet::EMPTY, until: Some(self.next_look) });
        }
        let mut on = WaitSet::cq(self.client.local().send_cq).or(WaitSet::BOOTSTRAP);
        for p in &self.producers {
            on = on.or(WaitSet::watch(p.watch));
        }
        Ok(Next::Wait { on, until: None })
    }

    /// Takes completions and tells the producers.
    fn poll<T: Control>(&mut self, t: &mut T) -> Result<bool, Failure> {
        self.polled.clear();
        t.poll_cq(self.client.local().send_cq, &mut self.polled)?;
        let now = t.now();
        for c in self.polled.as_slice() {
            if let Some(f) = failed(c) {
                return Err(f);
            }
            let Completion::Send { qp, retired, .. } = *c else { continue };
            let lane = self.client.lanes().iter().position(|l| l.qp == qp).expect("ours");
            let queue = &mut self.outstanding[lane];
            for p in queue.drain(..(retired as usize).min(queue.len())) {
                self.producers[p].done += 1;
                self.producers[p].changed = true;
            }
            self.results.completed(retired.into(), self.config.shape.bytes(), now);
        }
        for p in &mut self.producers {
            if core::mem::take(&mut p.changed) {
                t.store_u64(word(&p.flags, DONE_OFFSET)?, p.done)?;
            }
        }
        Ok(self.polled.is_full())
    }

    /// Posts what the producers of a QP have ready, as one ring; whether there is more.
    fn serve<T: Control>(&mut self, t: &mut T, l: usize) -> Result<bool, Failure> {
        let lane = self.client.lanes()[l];
        let caps = t.qp_caps(lane.qp).map_err(|_| Failure::Config("a QP is gone"))?;
        let room = self.config.batch.min(caps.max_staged).min(t.sq_free(lane.qp));
        let mut work = vec![];
        let mut ready = 0;
        for p in (l..self.producers.len()).step_by(self.client.lanes().len()) {
            let flag: Range = word(&self.producers[p].flags, READY_OFFSET)?;
            let fresh = t.load_u64(flag)? - self.producers[p].posted;
            ready += fresh;
            let n = fresh.min(u64::from(room) - work.len() as u64);
            work.extend((0..n).map(|_| p));
        }
        for (i, &p) in work.iter().enumerate() {
            self.stage(t, l, p, i + 1 == work.len())?;
        }
        if work.is_empty() {
            return Ok(false);
        }
        t.ring(lane.qp, self.config.ring)?;
        self.results.rings += 1;
        self.results.first.get_or_insert(t.now());
        Ok(ready > work.len() as u64 && t.sq_free(lane.qp) > 0)
    }

    /// Stages the next message of producer `p`; only the last of a ring is signalled.
    fn stage<T: Control>(
        &mut self,
        t: &mut T,
        l: usize,
        p: usize,
        last: bool,
    ) -> Result<(), Failure> {
        let c = &self.config;
        if c.work > Span::ZERO {
            t.compute(c.work);
        }
        let n = self.producers[p].posted;
        let label = Label { source: p as u16, n };
        let offset = n % u64::from(c.slots) * c.shape.stride();
        let flags = if last { SendFlags::SIGNALED } else { SendFlags::empty() };
        let lane = self.client.lanes()[l];
        let lane = Lane { remote: lane.remote.shifted(p as u64 * c.slot_bytes()), ..lane };
        let message = Message { wr_id: n, n: imm(label), offset, flags };
        self.poster.stage(t, &lane, &self.producers[p].payload, message)?;
        self.producers[p].posted += 1;
        self.outstanding[l].push_back(p);
        Ok(())
    }

    fn finished<T: Control>(&self, t: &mut T) -> Result<bool, Failure> {
        for (&rank, producer) in self.config.producers.iter().zip(&self.producers) {
            if lookup_done(t, rank)?.is_none_or(|n| producer.done < n) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn leave<T: Control>(&self, t: &mut T) {
        let takes = self.config.shape.op.takes_receive();
        publish_done(t, self.client.peer(), if takes { self.results.messages } else { 0 });
    }
}

impl Program for Proxy {
    fn step<T: Control>(&mut self, t: &mut T) -> Next {
        self.run(t).unwrap_or_else(|f| {
            self.results.failure = Some(f);
            self.leave(t);
            Next::Done
        })
    }
}
