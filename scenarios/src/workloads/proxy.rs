//! A CPU core that posts on behalf of producers on the same host: core's [`Proxy`] with the objects
//! that it needs.
//!
//! Each producer writes commands into a queue in host memory. The core looks at the queues, posts
//! all that it sees, rings once per queue pair, and stores how many have completed. That is the hop
//! which a GPU-initiated ring saves.
//!
//! [`Proxy`]: policy::Proxy

use doorbell_core::policy::initiator::{self as policy, CommandQueue, ProxyClient};
use doorbell_core::policy::{BatchConfig, CqBudget};
use doorbell_core::transport::{
    Completions, Contents, Control, MemKind, Next, Program, Ring, WaitSet, WatchId,
};
use doorbell_core::units::{Span, Time};
use doorbell_core::verbs::AccessFlags;

use super::common::{Failure, Results, Shape, failed};
use super::connect::{
    ALL_RIGHTS, Client, LinkConfig, LocalConfig, Topic, key, lookup_done, publish_done,
    publish_sent,
};

/// Index of a producer's command queue among the shared regions; shared last, attached first.
pub(super) const COMMANDS: u32 = 0;
/// Index of a producer's payload region.
pub(super) const PAYLOAD: u32 = 1;

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
    /// Where the command queues are; host memory that the proxy's core polls.
    pub commands: MemKind,
    /// Ranks of the producers, at most 13, in the order of their `source` numbers from 0.
    pub producers: Vec<u32>,
    /// The message, as at the producers.
    pub shape: Shape,
    /// Buffers of each producer, as there; as many commands fit its queue.
    pub slots: u32,
    /// How to ring.
    pub ring: Ring,
    /// Messages staged before a ring even if more are ready. Lower: earlier first message, more
    /// doorbells.
    pub batch: u32,
    /// Time from one look at the queues and completions to the next; `None`: it looks all the time.
    /// Longer: what is ready waits for longer, and more of it goes out by one ring.
    pub poll_interval: Option<Span>,
    /// The core's time for each message beside what the verbs and the copy of a command out of its
    /// queue cost: decoding it, looking up the peer. It bounds the rate of all producers together.
    pub work: Span,
}

impl ProxyConfig {
    /// One producer, 64-byte WRITEs, 64 buffers, batches of at most 64.
    pub fn between(producer: u32, peer: u32) -> Self {
        Self {
            local: LocalConfig::default(),
            link: LinkConfig::to(peer),
            commands: MemKind::Host { numa: 0 },
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

    /// What core's proxy is told.
    fn policy(&self) -> policy::ProxyConfig {
        let mut config = policy::ProxyConfig { work: self.work, ..policy::ProxyConfig::default() };
        config.sender.batch =
            BatchConfig { max_wrs: self.batch, ring: self.ring, ..config.sender.batch };
        config.sender.window.max_wrs = self.link.size.max_send_wr;
        config
    }
}

/// See the module. Results: messages, rings.
#[derive(Debug)]
pub struct Proxy {
    config: ProxyConfig,
    client: Client,
    polled: Completions,
    results: Results,
    /// Watches on the command queues.
    watches: Vec<WatchId>,
    policy: Option<policy::Proxy>,
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
            polled: Completions::with_capacity(64),
            results: Results::default(),
            watches: vec![],
            policy: None,
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
        if self.policy.is_some() {
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
        let mut qps = Vec::with_capacity(self.client.lanes().len());
        for lane in self.client.lanes() {
            let caps = t.qp_caps(lane.qp).map_err(|_| Failure::Config("a QP is gone"))?;
            qps.push((lane.qp, caps));
        }
        let mut clients = Vec::with_capacity(c.producers.len());
        for (at, &rank) in c.producers.iter().enumerate() {
            let (kind, contents) = (c.local.memory, c.local.contents);
            let payload = t.alloc_mr(pd, slot_bytes, kind, ALL_RIGHTS, contents)?;
            let (bytes, access) = (CommandQueue::bytes(c.slots), AccessFlags::LOCAL_WRITE);
            let region = t.alloc_mr(pd, bytes, c.commands, access, Contents::Data)?;
            let no_queue = |_| Failure::Config("a proxy has at least one buffer");
            let queue = CommandQueue::new(&region, 0, c.slots).map_err(no_queue)?;
            self.watches.push(t.watch(queue.ready_word())?);
            t.share_mr(payload.id, shared_key(rank, PAYLOAD))?;
            t.share_mr(region.id, shared_key(rank, COMMANDS))?;
            let lane = &self.client.lanes()[at % qps.len()];
            let (remote, dest) = (lane.remote.at(at as u64 * slot_bytes), lane.dest);
            clients.push(ProxyClient { queue, payload, remote, remote_bytes: slot_bytes, dest });
        }
        let mut budget = CqBudget::new(c.local.cq_depth);
        self.policy = Some(policy::Proxy::new(c.policy(), &qps, &clients, &mut budget)?);
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
        let policy = self.policy.as_mut().expect("up");
        // Nothing else wakes a producer whose command was refused, or whose queue pair failed.
        let served = policy.serve(t);
        policy.tell(t)?;
        let more = served? || full;
        let rings = policy.rung().rings;
        if rings > self.results.rings {
            self.results.rings = rings;
            self.results.first.get_or_insert(t.now());
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
        for watch in &self.watches {
            on = on.or(WaitSet::watch(*watch));
        }
        Ok(Next::Wait { on, until: None })
    }

    /// Takes completions and tells the producers.
    fn poll<T: Control>(&mut self, t: &mut T) -> Result<bool, Failure> {
        self.polled.clear();
        t.poll_cq(self.client.local().send_cq, &mut self.polled)?;
        let (now, policy) = (t.now(), self.policy.as_mut().expect("up"));
        let mut failure = None;
        for c in self.polled.as_slice() {
            let Some(told) = policy.completion(c, now) else { continue };
            self.results.completed(told.done.into(), self.config.shape.bytes(), now);
            failure = failure.or(failed(c));
        }
        policy.tell(t)?;
        failure.map_or(Ok(self.polled.is_full()), Err)
    }

    fn finished<T: Control>(&self, t: &mut T) -> Result<bool, Failure> {
        let policy = self.policy.as_ref().expect("up");
        for (client, &rank) in (0..).zip(&self.config.producers) {
            let done = policy.done(client);
            if lookup_done(t, rank)?.is_none_or(|n| done < n && policy.failed(client).is_none()) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn leave<T: Control>(&self, t: &mut T) {
        let takes = self.config.shape.op.takes_receive();
        for client in 0..self.config.producers.len() as u16 {
            let done = self.policy.as_ref().map_or(0, |policy| policy.done(client.into()));
            publish_sent(t, self.client.peer(), client, done);
        }
        publish_done(t, self.client.peer(), if takes { self.results.messages } else { 0 });
    }
}

impl Clone for Proxy {
    /// One that has not started, with the same configuration: senders own their entries of the
    /// completion queue, and nobody else can have the same ones.
    fn clone(&self) -> Self {
        Self::new(self.config.clone())
    }
}

impl Program for Proxy {
    fn step<T: Control>(&mut self, t: &mut T) -> Next {
        self.run(t).unwrap_or_else(|f| {
            self.results.failure = Some(f);
            // Producers hear that nothing more comes, whatever is outstanding.
            if let Some(policy) = &mut self.policy {
                let _the_first_is_reported = policy.abandon(t);
            }
            self.leave(t);
            Next::Done
        })
    }
}
