//! A list of verbs calls, written out one by one, and a log of what came of each.
//!
//! A refused call is logged and the script goes on: scripts show what the verbs do. A wait
//! without a deadline that can never be satisfied stays there, and the run ends as a stall that
//! names the un-rung WQEs; that is how they are shown to be stuck.

mod teardown;

use std::collections::VecDeque;

use doorbell_core::transport::{
    AsyncEvent, Completion, Completions, Control, FenceScope, ModifyError, Mr, Next, PostRecvCause,
    Program, Range, RecvWr, Ring, RingError, Rung, StageError, Transport, WaitSet,
};
use doorbell_core::units::{Span, Time};
use doorbell_core::verbs::{AsyncEventKind, QpState, SendFlags};

use super::common::{Failure, Message, Place, Poster, Results, Shape, Window, element, part};
use super::connect::{
    ALL_RIGHTS, Client, Lane, LinkConfig, Local, LocalConfig, ReceiveOrder, Target, Topic, key,
    publish_done,
};
use super::overrides::{Overrides, StateOrder, transition};
use super::protect::{Aim, Buffer, DeregOrder, PeerKey};
pub use teardown::EndStep;
use teardown::Marker;

/// One line of a script. `qp` counts from 0 within the link.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ScriptStep {
    /// Stages `count` messages. Stops at the first that is refused.
    Post {
        /// QP.
        qp: u32,
        /// How many.
        count: u32,
        /// Shape of each.
        shape: Shape,
        /// `SIGNALED`, `FENCE`, `SOLICITED`.
        flags: SendFlags,
        /// Protection domain of the buffer: 0 is that of the QPs. A buffer of another one is
        /// refused when the WQE is executed (`LOC_PROT_ERR`).
        pd: u32,
        /// Offset in the own region.
        local: u64,
        /// Where it goes at the peer, and its elements.
        place: Place,
        /// How both memories are named.
        aim: Aim,
    },
    /// Rings for everything that is staged on the QP.
    Ring {
        /// QP.
        qp: u32,
        /// How.
        how: Ring,
    },
    /// Forgets what is staged.
    Unstage {
        /// QP.
        qp: u32,
    },
    /// Polls once for up to `max` completions, of the send queue first, then of the receive queue.
    Poll {
        /// Most completions.
        max: u32,
    },
    /// Polls until both queues are empty.
    PollEmpty,
    /// Waits until `count` completions (of either queue) have been polled since this line began.
    Await {
        /// How many.
        count: u32,
        /// How long at most; `None`: for ever.
        deadline: Option<Span>,
    },
    /// Waits until every message that was staged has completed, by its own completion or by a
    /// later one of its QP.
    AwaitAll {
        /// How long at most; `None`: for ever.
        deadline: Option<Span>,
    },
    /// Does nothing for a time; the core is free.
    Wait {
        /// How long.
        time: Span,
    },
    /// Computes for a time; the core is busy.
    Compute {
        /// How long.
        time: Span,
    },
    /// Posts `count` receives.
    PostRecv {
        /// QP.
        qp: u32,
        /// How many.
        count: u32,
        /// Bytes of each buffer.
        bytes: u32,
    },
    /// Makes the peer, a [`Responder`](super::Responder), post receives, and waits until it has.
    PeerRecv {
        /// QP.
        qp: u32,
        /// How many.
        count: u32,
        /// Bytes of each buffer.
        bytes: u32,
        /// Where they are.
        buffer: Buffer,
    },
    /// Deregisters the own region.
    Dereg,
    /// Makes the peer deregister the region that it offers.
    PeerDereg {
        /// When, from now on, and the script goes on at once; `None`: it waits until it is done.
        after: Option<Span>,
    },
    /// Fences the initiator's stores.
    Fence {
        /// Scope.
        scope: FenceScope,
    },
    /// Loads 8 bytes of the buffer, which must have contents.
    Load {
        /// Offset.
        at: u64,
    },
    /// Stores 8 bytes to the buffer.
    Store {
        /// Offset.
        at: u64,
        /// What.
        value: u64,
    },
    /// Asks for a state; on the way from RESET to RTS with the attributes that connected the QP.
    Modify {
        /// QP.
        qp: u32,
        /// State.
        to: QpState,
        /// Attributes that differ.
        set: Overrides,
    },
    /// Makes the peer, a [`Responder`](super::Responder), do the same with its QP, and waits until
    /// it has.
    PeerModify {
        /// QP.
        qp: u32,
        /// State.
        to: QpState,
        /// Attributes that differ.
        set: Overrides,
    },
    /// A step of the end of a QP.
    End(EndStep),
    /// Waits until so many READs and atomics more could be outstanding, all at once.
    AwaitSlots {
        /// QP.
        qp: u32,
        /// How many.
        count: u32,
    },
}

/// Every QP of the link, in [`ScriptStep::Post`] and [`ScriptStep::Ring`].
pub const ALL_QPS: u32 = u32::MAX;

/// What a line posts.
#[derive(Copy, Clone, Debug)]
struct Posted {
    shape: Shape,
    flags: SendFlags,
    local: u64,
    place: Place,
    aim: Aim,
}

/// What came of a line.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Messages staged, and the refusal of the next one.
    Staged(u32, Option<StageError>),
    /// A ring.
    Rang(Result<Rung, RingError>),
    /// Work requests forgotten.
    Unstaged(u32),
    /// A completion.
    Completed(Completion),
    /// A poll or an await ended with that many completions.
    Polled(u32),
    /// An await ran into its deadline with that many completions.
    TimedOut(u32),
    /// A wait or computation ended.
    Waited,
    /// Receives posted, and the refusal of the next one.
    PostedRecv(u32, Option<PostRecvCause>),
    /// Receives that the peer has posted, and the state of its QP in which it may not.
    PeerPosted(u32, Option<QpState>),
    /// A region was deregistered, or the peer was told to do it.
    Deregistered,
    /// A fence.
    Fenced,
    /// A load, and what it read.
    Loaded(u64),
    /// A store.
    Stored,
    /// A modify; work requests that it unstaged.
    Modified(Result<u32, ModifyError>),
    /// The peer's modify; false: the verbs refused it.
    PeerModified(bool),
    /// The event that was waited for.
    Happened(AsyncEventKind),
    /// The marker was flushed, and with it that many completions.
    Drained(u32),
    /// A QP is gone, or was before.
    Destroyed(bool),
}

/// One entry of the log.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct LogEntry {
    /// Local clock after the call.
    pub at: Time,
    /// Number of the line in the script, from 0.
    pub line: u32,
    /// What came of it.
    pub outcome: Outcome,
}

/// Configuration of [`Script`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScriptConfig {
    /// Own memory and queues.
    pub local: LocalConfig,
    /// The link.
    pub link: LinkConfig,
    /// Receives of 4 KiB posted on each QP before the peer may send.
    pub receives: u32,
    /// The lines.
    pub steps: Vec<ScriptStep>,
}

impl ScriptConfig {
    /// One RC QP, no receives, nothing to do.
    pub fn to(peer: u32) -> Self {
        let (local, link) = (LocalConfig::default(), LinkConfig::to(peer));
        Self { local, link, receives: 0, steps: vec![] }
    }
}

/// Bytes of the receives that are posted before the first line.
const FIRST_RECEIVE_BYTES: u32 = 4096;
/// Completions of one poll where the script does not say.
const POLL_BATCH: u32 = 16;

/// What a message of a QP holds until it completes, beside its slot of the send queue.
#[derive(Copy, Clone, Debug, Default)]
struct Held {
    /// A receive at the peer.
    receive: bool,
    /// A place among the outstanding READs and atomics.
    rd_atomic: bool,
}

/// Messages of a QP that hold slots.
#[derive(Clone, Debug, Default)]
struct Sent {
    staged: VecDeque<Held>,
    rung: VecDeque<Held>,
}

/// See the module. Results: the log, rings, messages by completion.
#[derive(Clone, Debug)]
pub struct Script {
    config: ScriptConfig,
    client: Client,
    results: Results,
    up: bool,
    line: usize,
    /// When the current line began; set when it had to wait.
    since: Option<Time>,
    /// Completions polled by the current line, or receives that it has posted.
    seen: u32,
    /// Whether the current line is the first of its step of the program: what the line sees is what
    /// is there when the line begins.
    fresh: bool,
    /// Messages staged: the next `wr_id`.
    posted: u64,
    sent: Vec<Sent>,
    /// Completed messages that took a receive.
    receives: u64,
    /// Orders given to the peer: receives, states, deregistrations.
    orders: u32,
    state_orders: u32,
    deregs: u32,
    /// Buffers in other protection domains, from number 1 on.
    foreign: Vec<Mr>,
    /// Asynchronous events that were taken and not waited for.
    events: Vec<AsyncEvent>,
    marker: Option<Marker>,
}

impl Script {
    /// A program that has not started.
    pub fn new(config: ScriptConfig) -> Self {
        let sent = vec![Sent::default(); config.link.qps as usize];
        Self {
            client: Client::new(config.local, config.link),
            config,
            results: Results::default(),
            up: false,
            line: 0,
            since: None,
            seen: 0,
            fresh: false,
            posted: 0,
            sent,
            receives: 0,
            orders: 0,
            state_orders: 0,
            deregs: 0,
            foreign: vec![],
            events: vec![],
            marker: None,
        }
    }

    /// The log and counts.
    pub fn results(&self) -> &Results {
        &self.results
    }

    fn lane(&self, qp: u32) -> Result<Lane, Failure> {
        let unknown = Failure::Config("the script names a QP that the link does not have");
        self.client.lanes().get(qp as usize).copied().ok_or(unknown)
    }

    fn log<T: Transport>(&mut self, t: &T, outcome: Outcome) {
        self.results.log.push(LogEntry { at: t.now(), line: self.line as u32, outcome });
    }

    fn run<T: Control>(&mut self, t: &mut T) -> Result<Next, Failure> {
        if !self.up {
            let n = self.config.receives;
            let first = |t: &mut T, l: &Local, lanes: &[Lane]| {
                let wr = receive(l, FIRST_RECEIVE_BYTES)?;
                let wrs = vec![wr; n as usize];
                for lane in lanes.iter().filter(|_| n > 0) {
                    t.post_recv(l.receives_of(lane.qp), &wrs)?;
                }
                Ok(())
            };
            if let Some(next) = self.client.up(t, first)? {
                return Ok(next);
            }
            self.results.granted = t.qp_caps(self.client.lanes()[0].qp).ok();
            self.up = true;
            self.results.first = Some(t.now());
        }
        let mut acted = false;
        self.fresh = true;
        while let Some(&step) = self.config.steps.get(self.line) {
            // A step of a program sees what was there when it began: lines that look begin one.
            // Loads one after the other are one look.
            let load = matches!(step, ScriptStep::Load { .. });
            if acted && (load || matches!(step, ScriptStep::Poll { .. } | ScriptStep::PollEmpty)) {
                return Ok(Next::Again);
            }
            acted = !load;
            self.results.waits_at = Some(self.line as u32);
            if let Some(next) = self.step_line(t, step)? {
                return Ok(next);
            }
            self.line += 1;
            (self.since, self.seen, self.fresh) = (None, 0, false);
        }
        let r = &mut self.results;
        r.waits_at = None;
        let from = r.first.unwrap_or_default();
        r.window = Some(Window { from, to: t.now(), messages: r.messages, bytes: r.bytes });
        publish_done(t, self.client.peer(), self.receives);
        Ok(Next::Done)
    }

    /// Executes a line; what to wait for if it is not finished.
    fn step_line<T: Control>(
        &mut self,
        t: &mut T,
        step: ScriptStep,
    ) -> Result<Option<Next>, Failure> {
        match step {
            ScriptStep::Post { .. } => return self.post_all(t, step),
            ScriptStep::Ring { qp, how } => self.ring(t, qp, how)?,
            ScriptStep::Unstage { qp } => self.unstage(t, qp)?,
            ScriptStep::Poll { max } => {
                self.poll(t, max)?;
                self.log(t, Outcome::Polled(self.seen));
            }
            ScriptStep::PollEmpty => {
                if !self.poll(t, POLL_BATCH)? {
                    return Ok(Some(Next::Again));
                }
                self.log(t, Outcome::Polled(self.seen));
            }
            ScriptStep::Await { count, deadline } => {
                return self.wait_for(t, Some(count), deadline);
            }
            ScriptStep::AwaitAll { deadline } => return self.wait_for(t, None, deadline),
            ScriptStep::PeerRecv { qp, count, bytes, buffer } => {
                return self.order(t, ReceiveOrder { qp, count, bytes, buffer });
            }
            ScriptStep::Dereg => self.dereg_own(t)?,
            ScriptStep::PeerDereg { after } => return self.dereg(t, after),
            ScriptStep::Wait { time } => {
                let until = *self.since.get_or_insert(t.now()) + time;
                if t.now() < until {
                    return Ok(Some(Next::Wait { on: WaitSet::EMPTY, until: Some(until) }));
                }
                self.log(t, Outcome::Waited);
            }
            ScriptStep::Compute { time } => {
                t.compute(time);
                self.log(t, Outcome::Waited);
            }
            ScriptStep::PostRecv { qp, count, bytes } => {
                return self.post_recv(t, qp, count, bytes);
            }
            ScriptStep::Fence { scope } => {
                t.fence(scope);
                self.log(t, Outcome::Fenced);
            }
            ScriptStep::Load { .. } | ScriptStep::Store { .. } => self.touch(t, step)?,
            ScriptStep::Modify { qp, to, set } => self.modify(t, qp, to, &set)?,
            ScriptStep::PeerModify { qp, to, set } => {
                return self.modify_peer(t, StateOrder { qp, to, set });
            }
            ScriptStep::End(step) => return self.end(t, step),
            ScriptStep::AwaitSlots { qp, count } => return self.await_slots(t, qp, count),
        }
        Ok(None)
    }

    fn unstage<T: Control>(&mut self, t: &mut T, qp: u32) -> Result<(), Failure> {
        let n = t.unstage(self.lane(qp)?.qp);
        self.sent[qp as usize].staged.clear();
        self.log(t, Outcome::Unstaged(n));
        Ok(())
    }

    /// Loads or stores 8 bytes.
    fn touch<T: Control>(&mut self, t: &mut T, step: ScriptStep) -> Result<(), Failure> {
        let outcome = match step {
            ScriptStep::Load { at } => Outcome::Loaded(t.load_u64(self.word(at)?)?),
            ScriptStep::Store { at, value } => {
                t.store_u64(self.word(at)?, value)?;
                Outcome::Stored
            }
            _ => return Ok(()),
        };
        self.log(t, outcome);
        Ok(())
    }

    fn word(&self, at: u64) -> Result<Range, Failure> {
        part(&self.client.local().mr, at, 8)
    }

    /// The buffer in protection domain `pd`.
    fn buffer<T: Control>(&mut self, t: &mut T, pd: u32) -> Result<Mr, Failure> {
        let Some(i) = (pd as usize).checked_sub(1) else { return Ok(self.client.local().mr) };
        while self.foreign.len() <= i {
            let c = &self.config.local;
            let pd = t.create_pd()?;
            let mr = t.alloc_mr(pd, c.region_bytes, c.memory, ALL_RIGHTS, c.contents)?;
            self.foreign.push(mr);
        }
        Ok(self.foreign[i])
    }

    fn order<T: Control>(&mut self, t: &mut T, o: ReceiveOrder) -> Result<Option<Next>, Failure> {
        let (peer, me) = (self.client.peer(), t.rank());
        if self.since.is_none() {
            o.publish(t, peer, self.orders);
        }
        let answer = key(Topic::ReceivesPosted, me, self.orders);
        let mut told = [0; 1];
        if let Err(wait) = self.answered(t, answer, &mut told, "that its receives are posted")? {
            return Ok(Some(wait));
        }
        self.orders += 1;
        let refused = ReceiveOrder::refused(told[0]);
        self.log(t, Outcome::PeerPosted(if refused.is_some() { 0 } else { o.count }, refused));
        Ok(None)
    }

    /// Looks for what the peer publishes under `key`; the inner error is what to wait for.
    fn answered<T: Control>(
        &mut self,
        t: &mut T,
        key: u64,
        out: &mut [u8],
        what: &'static str,
    ) -> Result<Result<(), Next>, Failure> {
        let peer = self.client.peer();
        let since = *self.since.get_or_insert(t.now());
        if t.lookup(peer, key, out)?.is_some() {
            return Ok(Ok(()));
        }
        let until = since + self.config.link.deadline;
        if t.now() >= until {
            return Err(Failure::NoPeer { peer, what });
        }
        Ok(Err(Next::Wait { on: WaitSet::BOOTSTRAP, until: Some(until) }))
    }

    /// The peer's memory under `rkey`; the inner error is what to wait for.
    fn target<T: Control>(
        &mut self,
        t: &mut T,
        lane: &Lane,
        rkey: PeerKey,
    ) -> Result<Result<Target, Next>, Failure> {
        let Some(topic) = rkey.topic() else { return Ok(Ok(rkey.apply(lane.remote))) };
        let (mut bytes, key) = ([0; Target::ENCODED_BYTES], key(topic, t.rank(), 0));
        let answer = self.answered(t, key, &mut bytes, "a region that is not to be used")?;
        Ok(answer.map(|()| Target::decode(&bytes)))
    }

    fn dereg_own<T: Control>(&mut self, t: &mut T) -> Result<(), Failure> {
        let gone = t.dereg_mr(self.client.local().mr.id);
        gone.map_err(|_| Failure::Config("the own region is deregistered already"))?;
        self.log(t, Outcome::Deregistered);
        Ok(())
    }

    /// Makes the peer deregister its region.
    fn dereg<T: Control>(
        &mut self,
        t: &mut T,
        after: Option<Span>,
    ) -> Result<Option<Next>, Failure> {
        let (peer, me) = (self.client.peer(), t.rank());
        if self.since.is_none() {
            let at = after.map_or(Time::ZERO, |span| t.now() + span);
            DeregOrder { at }.publish(t, peer, self.deregs);
        }
        if after.is_none() {
            let answer = key(Topic::Deregistered, me, self.deregs);
            let what = "that its region is deregistered";
            if let Err(wait) = self.answered(t, answer, &mut [], what)? {
                return Ok(Some(wait));
            }
        }
        self.deregs += 1;
        self.log(t, Outcome::Deregistered);
        Ok(None)
    }

    fn post<T: Control>(
        &mut self,
        t: &mut T,
        (qp, lane): (u32, Lane),
        count: u32,
        what: Posted,
        mr: Mr,
    ) -> Result<(), Failure> {
        let Posted { shape, flags, local, place, aim } = what;
        let (poster, bytes) = (Poster::new(shape), u64::from(shape.bytes()));
        let (mr, offset) = aim.own(mr, local, bytes);
        let remote = aim.remote.offset(place.remote, lane.remote.len, bytes);
        let place = Place { remote, ..place };
        let mut staged = 0;
        let mut refusal = None;
        while staged < count && refusal.is_none() {
            let wr_id = self.posted;
            let message = Message { wr_id, n: wr_id, offset, flags };
            match poster.stage_at(t, &lane, &mr, message, place) {
                Ok(()) => {
                    self.posted += 1;
                    staged += 1;
                    let (receive, rd_atomic) =
                        (shape.op.takes_receive(), shape.op.is_read_or_atomic());
                    self.sent[qp as usize].staged.push_back(Held { receive, rd_atomic });
                }
                Err(Failure::Stage(e)) => refusal = Some(e),
                Err(f) => return Err(f),
            }
        }
        self.log(t, Outcome::Staged(staged, refusal));
        Ok(())
    }

    fn ring<T: Control>(&mut self, t: &mut T, qp: u32, how: Ring) -> Result<(), Failure> {
        for qp in self.each(qp) {
            let rung = t.ring(self.lane(qp)?.qp, how);
            self.rang(qp, &rung);
            self.log(t, Outcome::Rang(rung));
        }
        Ok(())
    }

    fn rang(&mut self, qp: u32, rung: &Result<Rung, RingError>) {
        let posted = match rung {
            Ok(r) => r.wqes,
            Err(e) => e.posted,
        };
        self.results.rings += u64::from(posted > 0);
        let sent = &mut self.sent[qp as usize];
        let n = (posted as usize).min(sent.staged.len());
        sent.rung.extend(sent.staged.drain(..n));
        sent.staged.clear();
    }

    /// Posts to each of the queue pairs that the line names; what to wait for first, if anything.
    fn post_all<T: Control>(
        &mut self,
        t: &mut T,
        step: ScriptStep,
    ) -> Result<Option<Next>, Failure> {
        let ScriptStep::Post { qp, count, shape, flags, pd, local, place, aim } = step else {
            return Ok(None);
        };
        let mut lanes = Vec::new();
        for qp in self.each(qp) {
            let mut lane = self.lane(qp)?;
            lane.remote = match self.target(t, &lane, aim.rkey)? {
                Ok(target) => target,
                Err(wait) => return Ok(Some(wait)),
            };
            lanes.push((qp, lane));
        }
        if !self.fresh && lanes.iter().any(|(qp, lane)| self.is_short(t, *qp, lane, count)) {
            return Ok(Some(Next::Again));
        }
        let mr = self.buffer(t, pd)?;
        let what = Posted { shape, flags, local, place, aim };
        for (qp, lane) in lanes {
            self.post(t, (qp, lane), count, what, mr)?;
        }
        Ok(None)
    }

    /// Whether a post finds fewer slots than it needs and some may have come back since the step
    /// began: on some devices they do when a work request is done, without a poll.
    fn is_short<T: Control>(&self, t: &T, qp: u32, lane: &Lane, count: u32) -> bool {
        t.sq_free(lane.qp) < count && !self.sent[qp as usize].rung.is_empty()
    }

    /// Posts receives. Where the queue is full as it was when the step began, the rest is posted in
    /// a step of its own: messages may have taken some since.
    fn post_recv<T: Control>(
        &mut self,
        t: &mut T,
        qp: u32,
        count: u32,
        bytes: u32,
    ) -> Result<Option<Next>, Failure> {
        let (lane, wr) = (self.lane(qp)?, receive(self.client.local(), bytes)?);
        let wrs = vec![wr; (count - self.seen) as usize];
        let queue = self.client.local().receives_of(lane.qp);
        let (n, cause) = match t.post_recv(queue, &wrs) {
            Ok(()) => (count - self.seen, None),
            Err(e) => (e.posted, Some(e.cause)),
        };
        self.seen += n;
        if cause == Some(PostRecvCause::Full) && !self.fresh {
            return Ok(Some(Next::Again));
        }
        self.log(t, Outcome::PostedRecv(self.seen, cause));
        Ok(None)
    }

    /// The QPs that a line is about.
    fn each(&self, qp: u32) -> std::ops::Range<u32> {
        if qp == ALL_QPS { 0..self.sent.len() as u32 } else { qp..qp + 1 }
    }

    /// Has the peer move its QP; what to wait for until it has.
    fn modify_peer<T: Control>(
        &mut self,
        t: &mut T,
        order: StateOrder,
    ) -> Result<Option<Next>, Failure> {
        let peer = self.client.peer();
        if self.since.is_none() {
            order.publish(t, peer, self.state_orders);
            self.since = Some(t.now());
        }
        let Some(done) = StateOrder::confirmed(t, peer, self.state_orders)? else {
            let until = self.since.map(|s| s + self.config.link.deadline);
            if until.is_some_and(|u| t.now() >= u) {
                return Err(Failure::NoPeer { peer, what: "that its queue pair has moved" });
            }
            return Ok(Some(Next::Wait { on: WaitSet::BOOTSTRAP, until }));
        };
        self.state_orders += 1;
        self.log(t, Outcome::PeerModified(done));
        Ok(None)
    }

    fn modify<T: Control>(
        &mut self,
        t: &mut T,
        qp: u32,
        to: QpState,
        set: &Overrides,
    ) -> Result<(), Failure> {
        let id = self.lane(qp)?.qp;
        let steps = self.client.steps(qp).ok_or(Failure::Config("the QP is not connected"))?;
        let (attr, mask) = transition(t.qp_state(id).ok(), to, steps, set);
        let modified = t.modify_qp(id, &attr, mask);
        if modified.is_ok() {
            let sent = &mut self.sent[qp as usize];
            sent.staged.clear();
            if to == QpState::Reset {
                sent.rung.clear();
            }
        }
        self.log(t, Outcome::Modified(modified));
        Ok(())
    }

    /// One poll of each queue; whether both were seen empty.
    fn poll<T: Control>(&mut self, t: &mut T, max: u32) -> Result<bool, Failure> {
        if max == 0 {
            return Ok(false);
        }
        let mut polled = Completions::with_capacity(max as usize);
        let local = *self.client.local();
        t.poll_cq(local.send_cq, &mut polled)?;
        if !polled.is_full() {
            t.poll_cq(local.recv_cq, &mut polled)?;
        }
        for c in polled.as_slice() {
            self.completed(t, *c);
        }
        Ok(!polled.is_full())
    }

    fn completed<T: Control>(&mut self, t: &T, c: Completion) {
        self.seen += 1;
        self.results.statuses.add(&c);
        self.look_for_marker(&c);
        match c {
            Completion::Recv { len, .. } => self.results.receive(len, t.now()),
            Completion::Send { qp, len, retired, .. } => {
                self.results.completed(retired.into(), len, t.now());
                let lanes = self.client.lanes();
                let i = lanes.iter().position(|l| l.qp == qp).expect("a QP of the link");
                let rung = &mut self.sent[i].rung;
                let n = (retired as usize).min(rung.len());
                self.receives += rung.drain(..n).filter(|held| held.receive).count() as u64;
            }
            Completion::Error { qp, retired, .. } => {
                let lanes = self.client.lanes();
                let i = lanes.iter().position(|l| l.qp == qp).expect("a QP of the link");
                let rung = &mut self.sent[i].rung;
                let n = (retired as usize).min(rung.len());
                rung.drain(..n);
            }
        }
        self.log(t, Outcome::Completed(c));
    }

    /// Waits until `count` READs and atomics more could be outstanding, all at once.
    fn await_slots<T: Control>(
        &mut self,
        t: &mut T,
        qp: u32,
        count: u32,
    ) -> Result<Option<Next>, Failure> {
        self.lane(qp)?;
        let empty = self.poll(t, POLL_BATCH)?;
        let sent = &self.sent[qp as usize];
        let taken = sent.staged.iter().chain(&sent.rung).filter(|held| held.rd_atomic).count();
        if taken as u64 + u64::from(count) <= u64::from(self.config.link.attr.max_rd_atomic) {
            self.log(t, Outcome::Polled(self.seen));
            return Ok(None);
        }
        let on = WaitSet::cq(self.client.local().send_cq);
        Ok(Some(if empty { Next::Wait { on, until: None } } else { Next::Again }))
    }

    /// Waits for `count` completions, or for everything that is staged.
    fn wait_for<T: Control>(
        &mut self,
        t: &mut T,
        count: Option<u32>,
        deadline: Option<Span>,
    ) -> Result<Option<Next>, Failure> {
        let since = *self.since.get_or_insert(t.now());
        let missing = count.map_or(POLL_BATCH, |c| c.saturating_sub(self.seen));
        let empty = self.poll(t, missing.clamp(1, POLL_BATCH))?;
        let over = match count {
            Some(c) => self.seen >= c,
            None => empty && self.sent.iter().all(|s| s.staged.is_empty() && s.rung.is_empty()),
        };
        if over {
            self.log(t, Outcome::Polled(self.seen));
            return Ok(None);
        }
        let until = deadline.map(|d| since + d);
        if until.is_some_and(|u| t.now() >= u) {
            self.log(t, Outcome::TimedOut(self.seen));
            return Ok(None);
        }
        let local = self.client.local();
        let on = WaitSet::cq(local.send_cq).or(WaitSet::cq(local.recv_cq));
        Ok(Some(if empty { Next::Wait { on, until } } else { Next::Again }))
    }
}

fn receive(local: &Local, bytes: u32) -> Result<RecvWr, Failure> {
    Ok(RecvWr { wr_id: 0, sge: element(&local.mr, 0, bytes)? })
}

impl Program for Script {
    fn step<T: Control>(&mut self, t: &mut T) -> Next {
        self.run(t).unwrap_or_else(|f| {
            self.results.failure = Some(f);
            publish_done(t, self.client.peer(), self.receives);
            Next::Done
        })
    }
}
