//! Transfers between many hosts: one program per host carries all flows that begin or end there.
//!
//! Every flow has queue pairs of its own, which are connected before the first flow starts. A flow
//! is one message per queue pair, more where its bytes would not fit one; each is signalled. What
//! is measured is the time from the start that was planned to the poll that sees the last
//! completion.
//!
//! A gated flow passes on what it gets: its message `m` goes out when `m` messages, less a lead,
//! have come on another flow of the same host.

use doorbell_core::transport::{
    Completion, Completions, Control, Mr, Next, Program, QpAttr, QpId, QpInit, RecvQueue, RecvWr,
    Ring, StageError, WaitSet,
};
use doorbell_core::units::{Span, Time};
use doorbell_core::verbs::{Qpn, SendFlags};

use super::common::{Failure, Message, Op, Place, Poster, Results, Shape, Window, element, failed};
use super::connect::{Card, Lane, LinkConfig, Local, LocalConfig, Target, Topic, key, steps};

/// Largest message: half of what the verbs allow, a round number.
pub const MAX_FLOW_MESSAGE: u64 = 1 << 30;

/// Completions taken by one poll.
const POLL_BATCH: usize = 64;

/// What a flow waits for before it passes a message on.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Gate {
    /// Place of the flow to wait for among those of this host's [`FlowsConfig::ends`].
    pub behind: usize,
    /// Messages that may go before any has come.
    pub lead: u64,
}

/// One end of a flow.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct FlowEnd {
    /// Number of the flow in its scenario program.
    pub flow: u32,
    /// Rank of the program at the other end.
    pub peer: u32,
    /// Bytes on all queue pairs.
    pub bytes: u64,
    /// Bytes of a message, the last one of a queue pair has what is left. At most
    /// [`MAX_FLOW_MESSAGE`].
    pub message: u64,
    /// When it starts, after the epoch.
    pub start: Span,
    /// Whether this end posts.
    pub posts: bool,
    /// What has to come before.
    pub gate: Option<Gate>,
}

impl FlowEnd {
    /// Bytes that queue pair `q` of `qps` carries.
    const fn share(&self, q: u32, qps: u32) -> u64 {
        let (q, qps) = (q as u64, qps as u64);
        self.bytes / qps + if q < self.bytes % qps { 1 } else { 0 }
    }

    /// Messages on queue pair `q` of `qps`.
    const fn messages(&self, q: u32, qps: u32) -> u64 {
        self.share(q, qps).div_ceil(self.message)
    }
}

/// Configuration of [`Flows`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowsConfig {
    /// Memory and completion queues.
    pub local: LocalConfig,
    /// Queue pairs of one flow; the peer is that of each flow.
    pub link: LinkConfig,
    /// WRITE, WRITE with immediate, SEND or READ.
    pub op: Op,
    /// When time begins to count. All queue pairs have to be connected by then.
    pub epoch: Time,
    /// The flows of this host, by ascending start.
    pub ends: Vec<FlowEnd>,
}

/// A flow that this host posted.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct FlowTime {
    /// Its number.
    pub flow: u32,
    /// When it was to start.
    pub start: Time,
    /// When its last completion was seen.
    pub end: Option<Time>,
}

/// What flows measured.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FlowTimes {
    /// Flows that this host posts.
    pub posted: Vec<FlowTime>,
    /// Queue pairs of all flows of this host: number of the flow, queue pair.
    pub qps: Vec<(u32, Qpn)>,
}

/// A queue pair.
#[derive(Clone, Debug)]
struct Pair {
    /// Place of its flow.
    end: usize,
    lane: Lane,
    /// Bytes, and messages, in all.
    bytes: u64,
    messages: u64,
    /// Messages staged, and completed.
    staged: u64,
    completed: u64,
    /// Receives posted.
    receives: u64,
    /// Messages received.
    received: u64,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Stage {
    Start,
    Exchange,
    Ready,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Flows {
    config: FlowsConfig,
    stage: Stage,
    local: Option<Local>,
    pairs: Vec<Pair>,
    /// First pair by index of the QP's handle.
    pair_of: Vec<u32>,
    linked: usize,
    /// Flows that have started, in the order of their ends; those that still have to be posted.
    started: usize,
    open: Vec<usize>,
    /// Pairs that have work to do now.
    due: Vec<usize>,
    /// Messages that have not completed, and that have not come.
    unsent: u64,
    unreceived: u64,
    polled: Completions,
    results: Results,
}

impl Flows {
    /// A program that has not started.
    pub fn new(config: FlowsConfig) -> Self {
        Self {
            stage: Stage::Start,
            local: None,
            pairs: vec![],
            pair_of: vec![],
            linked: 0,
            started: 0,
            open: vec![],
            due: vec![],
            unsent: 0,
            unreceived: 0,
            polled: Completions::with_capacity(POLL_BATCH),
            results: Results::default(),
            config,
        }
    }

    /// What was measured.
    pub fn results(&self) -> &Results {
        &self.results
    }

    fn takes_receives(&self) -> bool {
        self.config.op.takes_receive()
    }

    /// Queue pairs of all flows, and their cards.
    fn create<T: Control>(&mut self, t: &mut T) -> Result<(), Failure> {
        let local = Local::open(t, &self.config.local)?;
        self.local = Some(local);
        let link = self.config.link;
        debug_assert!(self.config.ends.is_sorted_by_key(|e| e.start));
        for (at, end) in self.config.ends.iter().enumerate() {
            for q in 0..link.qps {
                let messages = end.messages(q, link.qps);
                let (sends, receives) = match (end.posts, self.config.op.takes_receive()) {
                    (true, _) => (messages.min(link.size.max_send_wr.into()).max(1), 0),
                    (false, true) => (1, messages.min(link.size.max_recv_wr.into()).max(1)),
                    (false, false) => (1, 0),
                };
                let mut size = link.size;
                (size.max_send_wr, size.max_recv_wr) = (sends as u32, receives as u32);
                let qp = t.create_qp(&QpInit {
                    ty: link.ty,
                    pd: local.pd,
                    send_cq: local.send_cq,
                    recv_cq: local.recv_cq,
                    srq: None,
                    size,
                    sq_sig_all: false,
                    queue_memory: link.queue_memory,
                })?;
                let mine = t.endpoint(qp).map_err(|_| GONE)?;
                let card = Card { endpoint: mine, target: Target::whole(&local.mr) };
                let key = key(Topic::Card, end.peer, end.flow * link.qps + q);
                t.publish_to(end.peer, key, &card.encode());
                self.results.flows.qps.push((end.flow, mine.qpn));
                let lane = Lane { qp, remote: Target::default(), dest: None };
                let (bytes, none) = (end.share(q, link.qps), 0);
                let (staged, completed, receives, received) = (none, none, none, none);
                self.pairs.push(Pair {
                    end: at,
                    lane,
                    bytes,
                    messages,
                    staged,
                    completed,
                    receives,
                    received,
                });
                let index = qp.index() as usize;
                self.pair_of.resize(self.pair_of.len().max(index + 1), u32::MAX);
                self.pair_of[index] = self.pairs.len() as u32 - 1;
            }
        }
        Ok(())
    }

    /// Connects as many as have a card; true when all are connected.
    fn connect<T: Control>(&mut self, t: &mut T) -> Result<bool, Failure> {
        let (link, me) = (self.config.link, t.rank());
        while let Some(pair) = self.pairs.get(self.linked) {
            let end = &self.config.ends[pair.end];
            let q = self.linked as u32 % link.qps;
            let Some(card) = Card::lookup(t, end.peer, me, end.flow * link.qps + q)? else {
                return Ok(false);
            };
            let qp = pair.lane.qp;
            let mine = t.endpoint(qp).map_err(|_| GONE)?;
            let path_mtu = link.path_mtu.unwrap_or(mine.mtu.min(card.endpoint.mtu));
            let attr = QpAttr { path_mtu, ..link.attr };
            for (attr, mask) in &steps(link.ty, attr, &mine, &card.endpoint) {
                t.modify_qp(qp, attr, *mask)?;
            }
            self.pairs[self.linked].lane.remote = card.target;
            self.receive(t, self.linked)?;
            self.linked += 1;
        }
        Ok(true)
    }

    /// Posts as many receives as the queue of a pair takes.
    fn receive<T: Control>(&mut self, t: &mut T, i: usize) -> Result<(), Failure> {
        let takes = self.takes_receives();
        let pair = &mut self.pairs[i];
        let end = &self.config.ends[pair.end];
        if end.posts || !takes {
            return Ok(());
        }
        let mr = self.local.as_ref().expect("opened").mr;
        let bytes = pair.bytes.min(end.message) as u32;
        let sge = element(&mr, 0, bytes)?;
        let room = pair.received + u64::from(self.config.link.size.max_recv_wr);
        while pair.receives < pair.messages.min(room) {
            let wr = RecvWr { wr_id: pair.receives, sge };
            t.post_recv(RecvQueue::Qp(pair.lane.qp), &[wr])?;
            pair.receives += 1;
        }
        Ok(())
    }

    /// Set-up; what to wait for, if anything.
    fn up<T: Control>(&mut self, t: &mut T) -> Result<Option<Next>, Failure> {
        let epoch = self.config.epoch;
        if self.stage == Stage::Start {
            self.create(t)?;
            self.stage = Stage::Exchange;
        }
        if self.stage == Stage::Exchange {
            if !self.connect(t)? {
                let first = self.pairs[self.linked].end;
                let peer = self.config.ends[first].peer;
                if t.now() >= epoch {
                    return Err(Failure::NoPeer { peer, what: "its endpoints" });
                }
                return Ok(Some(Next::Wait { on: WaitSet::BOOTSTRAP, until: Some(epoch) }));
            }
            self.count();
            self.stage = Stage::Ready;
        }
        let now = t.now();
        Ok((now < epoch).then_some(Next::Wait { on: WaitSet::EMPTY, until: Some(epoch) }))
    }

    /// What there is to do in all.
    fn count(&mut self) {
        let takes = self.takes_receives();
        for pair in &self.pairs {
            match (self.config.ends[pair.end].posts, takes) {
                (true, _) => self.unsent += pair.messages,
                (false, true) => self.unreceived += pair.messages,
                (false, false) => {}
            }
        }
        for end in self.config.ends.iter().filter(|e| e.posts) {
            let start = self.config.epoch + end.start;
            self.results.flows.posted.push(FlowTime { flow: end.flow, start, end: None });
        }
        self.open = self.config.ends.iter().map(|e| usize::from(e.posts)).collect();
        // Posted flows by place: where their time is kept.
        let mut at = 0;
        for open in &mut self.open {
            let posts = *open == 1;
            *open = if posts { at } else { usize::MAX };
            at += usize::from(posts);
        }
    }

    fn run<T: Control>(&mut self, t: &mut T) -> Result<Next, Failure> {
        if let Some(next) = self.up(t)? {
            return Ok(next);
        }
        let full = self.poll_sends(t)? | self.poll_receives(t)?;
        self.start(t.now());
        self.post(t)?;
        if self.unsent == 0 && self.unreceived == 0 {
            return Ok(Next::Done);
        }
        if full {
            return Ok(Next::Again);
        }
        let local = self.local.as_ref().expect("opened");
        let mut on = WaitSet::cq(local.send_cq);
        if self.unreceived > 0 {
            on = on.or(WaitSet::cq(local.recv_cq));
        }
        let until = self.config.ends.get(self.started).map(|e| self.config.epoch + e.start);
        Ok(Next::Wait { on, until })
    }

    fn pair(&self, qp: QpId) -> usize {
        self.pair_of[qp.index() as usize] as usize
    }

    fn poll_sends<T: Control>(&mut self, t: &mut T) -> Result<bool, Failure> {
        self.polled.clear();
        t.poll_cq(self.local.as_ref().expect("opened").send_cq, &mut self.polled)?;
        let now = t.now();
        for n in 0..self.polled.as_slice().len() {
            let c = self.polled.as_slice()[n];
            if let Some(f) = failed(&c) {
                return Err(f);
            }
            let Completion::Send { qp, retired, .. } = c else { continue };
            let i = self.pair(qp);
            self.pairs[i].completed += u64::from(retired);
            self.unsent -= u64::from(retired);
            self.results.messages += u64::from(retired);
            self.results.last = Some(now);
            self.due.push(i);
            self.finish(i, now);
        }
        Ok(self.polled.is_full())
    }

    /// Notes the end of a flow when the last of its queue pairs is done.
    fn finish(&mut self, i: usize, now: Time) {
        let (qps, at) = (self.config.link.qps as usize, self.pairs[i].end);
        let pairs = &self.pairs[at * qps..(at + 1) * qps];
        if pairs.iter().any(|p| p.completed < p.messages) {
            return;
        }
        self.results.bytes += self.config.ends[at].bytes;
        self.results.flows.posted[self.open[at]].end = Some(now);
        let from = self.results.first.unwrap_or(now);
        let (messages, bytes) = (self.results.messages, self.results.bytes);
        self.results.window = Some(Window { from, to: now, messages, bytes });
    }

    fn poll_receives<T: Control>(&mut self, t: &mut T) -> Result<bool, Failure> {
        if self.unreceived == 0 {
            return Ok(false);
        }
        self.polled.clear();
        t.poll_cq(self.local.as_ref().expect("opened").recv_cq, &mut self.polled)?;
        let now = t.now();
        for n in 0..self.polled.as_slice().len() {
            let c = self.polled.as_slice()[n];
            if let Some(f) = failed(&c) {
                return Err(f);
            }
            let Completion::Recv { qp, len, .. } = c else { continue };
            let i = self.pair(qp);
            self.pairs[i].received += 1;
            self.unreceived -= 1;
            self.results.receive(len, now);
            self.receive(t, i)?;
            self.wake_gated(self.pairs[i].end);
        }
        Ok(self.polled.is_full())
    }

    /// Flows that wait for another one may go on.
    fn wake_gated(&mut self, behind: usize) {
        let qps = self.config.link.qps as usize;
        for at in 0..self.started {
            if self.config.ends[at].gate.is_some_and(|g| g.behind == behind) {
                self.due.extend(at * qps..(at + 1) * qps);
            }
        }
    }

    /// Flows whose time has come.
    fn start(&mut self, now: Time) {
        let qps = self.config.link.qps as usize;
        while let Some(end) = self.config.ends.get(self.started) {
            let start = self.config.epoch + end.start;
            if start > now {
                break;
            }
            if end.posts {
                self.results.first.get_or_insert(start);
                self.due.extend(self.started * qps..(self.started + 1) * qps);
            }
            self.started += 1;
        }
    }

    /// Stages and rings what may go.
    fn post<T: Control>(&mut self, t: &mut T) -> Result<(), Failure> {
        while let Some(i) = self.due.pop() {
            let mut staged = 0;
            while self.may_go(i) {
                match self.stage(t, i) {
                    Ok(()) => staged += 1,
                    Err(Failure::Stage(StageError::StagedFull)) => {
                        t.ring(self.pairs[i].lane.qp, Ring::Auto)?;
                        self.results.rings += 1;
                        staged = 0;
                    }
                    Err(Failure::Stage(StageError::SqFull)) => break,
                    Err(f) => return Err(f),
                }
            }
            if staged > 0 {
                t.ring(self.pairs[i].lane.qp, Ring::Auto)?;
                self.results.rings += 1;
            }
        }
        Ok(())
    }

    fn may_go(&self, i: usize) -> bool {
        let pair = &self.pairs[i];
        let end = &self.config.ends[pair.end];
        let open = end.gate.is_none_or(|g| {
            let behind = &self.pairs[g.behind * self.config.link.qps as usize];
            pair.staged < g.lead + behind.received
        });
        end.posts && pair.staged < pair.messages && open
    }

    fn stage<T: Control>(&mut self, t: &mut T, i: usize) -> Result<(), Failure> {
        let pair = &mut self.pairs[i];
        let end = &self.config.ends[pair.end];
        let size = (pair.bytes - pair.staged * end.message).min(end.message) as u32;
        let shape = Shape { op: self.config.op, size, inline: false };
        let (n, flags) = (pair.staged, SendFlags::SIGNALED);
        let message = Message { wr_id: n, n, offset: 0, flags };
        let mr: Mr = self.local.as_ref().expect("opened").mr;
        Poster::new(shape).stage_at(t, &pair.lane, &mr, message, Place { remote: 0, sges: 1 })?;
        pair.staged += 1;
        Ok(())
    }
}

const GONE: Failure = Failure::Config("a QP that was just created has no endpoint");

impl Program for Flows {
    fn step<T: Control>(&mut self, t: &mut T) -> Next {
        self.run(t).unwrap_or_else(|f| {
            self.results.failure = Some(f);
            Next::Done
        })
    }
}
