//! Open-loop traffic through the policies of `doorbell-core`: messages arrive at given times,
//! whether or not the sender keeps up.
//!
//! [`Pusher`] sends with [`Sender`]s, from [`SendBuffers`], inline where that is chosen. With
//! [`Kind::Write`] its peer is a [`Responder`](doorbell::workloads::Responder) and the latency is
//! what counts. With [`Kind::Send`] the bytes are real and the peer is a [`Taker`]: a
//! [`RecvPool`], credits, and each message checked.

mod arrivals;
mod taker;

use std::collections::VecDeque;
use std::sync::Arc;

pub use arrivals::{Arrival, poisson};
pub use taker::{Taker, TakerConfig};

use doorbell::workloads::connect::{Client, Lane, LinkConfig, Local, LocalConfig, publish_done};
use doorbell::workloads::payload::{self, Label};
use doorbell_core::policy::*;
use doorbell_core::transport::*;
use doorbell_core::units::{Span, Time};
use doorbell_core::verbs::SendFlags;

/// What a message is.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    /// An RDMA WRITE of bytes that nobody looks at.
    Write,
    /// A SEND of labelled bytes, with credits: so many receives are posted at the start.
    Send {
        /// Receives that the peer has posted.
        credits: u32,
    },
}

/// Configuration of a [`Pusher`].
#[derive(Clone, Debug)]
pub struct PusherConfig {
    /// The link. Messages are dealt to its QPs in turn; SENDs have one.
    pub link: LinkConfig,
    /// Entries of the completion queue, shared out to the QPs.
    pub cq_depth: u32,
    /// How each QP is posted to.
    pub sender: SenderConfig,
    /// What goes inline.
    pub inline: InlineConfig,
    /// What a message is.
    pub kind: Kind,
    /// The messages.
    pub arrivals: Arc<[Arrival]>,
    /// Buffers of a QP.
    pub buffers: u32,
}

/// Bytes of a buffer, the longest message.
pub const SLOT: u32 = 4096;
/// Messages that one step hands over at most, so that completions are seen in between.
const PER_STEP: usize = 64;
/// Where a taker writes its total, behind the buffers.
const CREDIT_BYTES: u64 = 8;

/// A QP with its policies.
#[derive(Debug)]
struct Flow {
    sender: Sender,
    buffers: SendBuffers,
    template: WrTemplate,
    /// When each message that its batcher holds was accepted, oldest first.
    held: VecDeque<Time>,
    /// Its first message that was not handed over, and how many completions have told of.
    next: usize,
    done: usize,
}

impl Flow {
    /// After a call of the sender: the longest that a message which it rang for had been held.
    fn rang(&mut self, now: Time) -> Span {
        let rung = self.held.len() - self.sender.held() as usize;
        self.held.drain(..rung).map(|since| now.since(since)).max().unwrap_or_default()
    }
}

/// What a pusher saw.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Pushed {
    /// From the arrival to the poll that tells of it, by message.
    pub latencies: Vec<Span>,
    /// When the last completion was polled, counted from the start.
    pub end: Span,
    /// Rings, WQEs, BlueFlames.
    pub rings: BatchStats,
    /// Most that a tick came after its deadline.
    pub late: Span,
    /// Longest from the push that accepted a message to the end of the call that rang for it.
    pub longest_held: Span,
    /// Longest step.
    pub longest_step: Span,
    /// Most messages outstanding on a QP.
    pub most: u32,
}

/// See the module.
#[derive(Debug)]
pub struct Pusher {
    config: PusherConfig,
    client: Client,
    choice: Option<InlineChoice>,
    flows: Vec<Flow>,
    gate: CreditGate,
    watch: Option<WatchId>,
    polled: Completions,
    start: Time,
    scratch: Vec<u8>,
    /// What it saw.
    pub seen: Pushed,
    /// Why it ended early.
    pub failure: Option<String>,
}

impl Pusher {
    /// A pusher that has not started.
    pub fn new(config: PusherConfig) -> Self {
        let buffers = u64::from(config.buffers * config.link.qps * SLOT);
        let local = LocalConfig {
            region_bytes: buffers + CREDIT_BYTES,
            cq_depth: config.cq_depth,
            ..LocalConfig::default()
        };
        let credits = match config.kind {
            Kind::Write => u32::MAX / 2,
            Kind::Send { credits } => credits,
        };
        Self {
            client: Client::new(local, config.link),
            choice: None,
            flows: vec![],
            gate: CreditGate::new(credits),
            watch: None,
            polled: Completions::with_capacity(32),
            start: Time::ZERO,
            scratch: vec![0; SLOT as usize],
            seen: Pushed::default(),
            failure: None,
            config,
        }
    }

    /// Where a taker writes its total.
    pub fn credit_offset(config: &PusherConfig) -> u64 {
        u64::from(config.buffers * config.link.qps * SLOT)
    }

    fn open<T: Control>(&mut self, t: &mut T, local: &Local, lanes: &[Lane]) {
        let c = &self.config;
        let (mut budget, n) = (CqBudget::new(c.cq_depth), lanes.len() as u32);
        for (i, lane) in (0..).zip(lanes) {
            let caps = t.qp_caps(lane.qp).expect("just connected");
            let share = budget.take(c.cq_depth / n).expect("a part of it");
            self.choice = Some(InlineChoice::new(c.inline, &caps));
            let sender = Sender::new(c.sender, lane.qp, &caps, share);
            let op = match c.kind {
                Kind::Write => SendOp::Write(lane.remote.remote),
                Kind::Send { .. } => SendOp::Send,
            };
            let max_wrs = sender.window().max_wrs();
            self.flows.push(Flow {
                sender,
                buffers: SendBuffers::new(c.buffers, SLOT, max_wrs),
                template: WrTemplate::new(op, &local.mr, SendFlags::empty()),
                held: VecDeque::new(),
                next: i,
                done: i,
            });
        }
        self.seen.latencies = vec![Span::ZERO; c.arrivals.len()];
        if let Kind::Send { .. } = c.kind {
            let word = local.mr.range(Self::credit_offset(c), CREDIT_BYTES).expect("its end");
            self.watch = Some(t.watch(word).expect("memory of this host"));
        }
        self.start = t.now();
    }

    fn run<T: Control>(&mut self, t: &mut T) -> Result<Next, String> {
        if self.flows.is_empty() {
            if let Some(next) = self.client.up(t, |_, _, _| Ok(())).map_err(|e| e.to_string())? {
                return Ok(next);
            }
            let (local, lanes) = (*self.client.local(), self.client.lanes().to_vec());
            self.open(t, &local, &lanes);
        }
        let began = t.now();
        let more = self.poll(t)?;
        let behind = self.push(t)?;
        let deadline = self.tick(t)?;
        self.seen.longest_step = self.seen.longest_step.max(t.now().since(began));
        let total = self.config.arrivals.len();
        if self.flows.iter().all(|f| f.done >= total) {
            let receives = if self.watch.is_some() { total as u64 } else { 0 };
            publish_done(t, self.client.peer(), receives);
            self.sum_up();
            return Ok(Next::Done);
        }
        if more || behind {
            return Ok(Next::Again);
        }
        // What has arrived already waits for a slot or a credit, not for a time.
        let next = self.flows.iter().filter_map(|f| self.config.arrivals.get(f.next));
        let next = next.map(|a| self.start + a.at).filter(|at| *at > began).min();
        let cq = WaitSet::cq(self.client.local().send_cq);
        let on = self.watch.map_or(cq, |w| cq.or(WaitSet::watch(w)));
        Ok(Next::Wait { on, until: deadline.into_iter().chain(next).min() })
    }

    fn sum_up(&mut self) {
        self.flows.iter().for_each(|f| self.seen.rings += f.sender.stats());
    }

    fn poll<T: Control>(&mut self, t: &mut T) -> Result<bool, String> {
        if self.watch.is_some() {
            let at = Self::credit_offset(&self.config);
            let word = self.client.local().mr.range(at, CREDIT_BYTES).expect("its end");
            let total = t.load_u64(word).map_err(|e| e.to_string())?;
            self.gate.grant(total as u32);
        }
        self.polled.clear();
        let cq = self.client.local().send_cq;
        t.poll_cq(cq, &mut self.polled).map_err(|e| e.to_string())?;
        let now = t.now();
        let stride = self.flows.len();
        for c in self.polled.as_slice() {
            if let Completion::Error { .. } = c {
                return Err(format!("{c:?}"));
            }
            for f in &mut self.flows {
                let n = f.sender.completion(c, now);
                f.buffers.retired(n);
                for _ in 0..n {
                    let arrived = self.start + self.config.arrivals[f.done].at;
                    self.seen.latencies[f.done] = now.since(arrived);
                    f.done += stride;
                }
            }
            self.seen.end = now.since(self.start);
        }
        Ok(self.polled.is_full())
    }

    /// Hands over what has arrived. True: there is more than a step may do.
    fn push<T: Control>(&mut self, t: &mut T) -> Result<bool, String> {
        let now = t.now();
        let (mut left, stride) = (PER_STEP, self.flows.len());
        let arrived = |c: &PusherConfig, start: Time, n: usize| {
            c.arrivals.get(n).is_some_and(|a| start + a.at <= now)
        };
        for i in 0..stride {
            loop {
                let n = self.flows[i].next;
                if !arrived(&self.config, self.start, n) || self.gate.available() == 0 {
                    break;
                }
                if left == 0 {
                    return Ok(true);
                }
                left -= 1;
                let more = arrived(&self.config, self.start, n + stride)
                    && left > 0
                    && self.gate.available() > 1;
                if !self.hand_over(t, i, n, now, more)? {
                    break;
                }
                self.flows[i].next += stride;
            }
        }
        Ok(false)
    }

    /// False: there is no buffer or no slot; a completion will tell of one.
    fn hand_over<T: Control>(
        &mut self,
        t: &mut T,
        i: usize,
        n: usize,
        now: Time,
        more: bool,
    ) -> Result<bool, String> {
        let a = self.config.arrivals[n];
        let cue = match (a.urgent, more) {
            (true, _) => Cue::Urgent,
            (false, true) => Cue::More,
            (false, false) => Cue::Last,
        };
        let (len, labelled) = (a.bytes as usize, self.watch.is_some());
        let base = u64::from(self.config.buffers * SLOT) * i as u64;
        // The end comes with the news of the last one.
        let last = n + self.flows.len() >= self.config.arrivals.len();
        let flag = |yes| if yes { SendFlags::SIGNALED } else { SendFlags::empty() };
        let f = &mut self.flows[i];
        if labelled {
            let label = Label { source: 0, n: n as u64 };
            payload::write(&mut self.scratch[..len], label, Time::ZERO);
        }
        let inlines = self.choice.is_some_and(|c| c.inlines(len, cue));
        let wr = if inlines {
            if !f.buffers.skip() {
                return self.flush(t, i);
            }
            f.template.set_flags(flag(last));
            f.template.inline(n as u64, &self.scratch[..len], 0)
        } else {
            let Some(at) = f.buffers.take() else { return self.flush(t, i) };
            if labelled {
                let range = self.client.local().mr.range(base + at, len as u64).expect("a slot");
                t.copy_in(range, &self.scratch[..len]).map_err(|e| e.to_string())?;
            }
            // Nothing else may ever tell that a buffer is free.
            f.template.set_flags(flag(last || f.buffers.free() == 0));
            f.template.wr(n as u64, base + at, a.bytes, 0).expect("a slot")
        };
        let pushed = f.sender.push(t, now, &wr, cue);
        f.held.extend(pushed.is_ok().then_some(now));
        self.seen.longest_held = self.seen.longest_held.max(f.rang(t.now()));
        match pushed {
            Ok(_) => {
                assert!(self.gate.spend(), "asked before");
                self.seen.most = self.seen.most.max(f.sender.window().used());
                Ok(true)
            }
            Err(PushError::Refused(StageError::SqFull)) => {
                f.buffers.undo();
                Ok(false)
            }
            Err(e) => Err(e.to_string()),
        }
    }

    /// There is no buffer: what is held has some. Always false.
    fn flush<T: Control>(&mut self, t: &mut T, i: usize) -> Result<bool, String> {
        let f = &mut self.flows[i];
        f.sender.flush(t).map_err(|e| e.to_string())?;
        self.seen.longest_held = self.seen.longest_held.max(f.rang(t.now()));
        Ok(false)
    }

    fn tick<T: Control>(&mut self, t: &mut T) -> Result<Option<Time>, String> {
        let now = t.now();
        let mut next: Option<Time> = None;
        for f in &mut self.flows {
            if let Some(late) = f.sender.deadline().filter(|d| *d < now) {
                self.seen.late = self.seen.late.max(now.since(late));
            }
            let due = f.sender.tick(t, now).map_err(|e| e.to_string())?;
            self.seen.longest_held = self.seen.longest_held.max(f.rang(t.now()));
            next = next.into_iter().chain(due).min();
        }
        Ok(next)
    }
}

impl Program for Pusher {
    fn step<T: Control>(&mut self, t: &mut T) -> Next {
        self.run(t).unwrap_or_else(|why| {
            self.failure = Some(why);
            publish_done(t, self.client.peer(), 0);
            Next::Done
        })
    }
}
