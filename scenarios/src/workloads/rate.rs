//! Bandwidth and message rate: many messages outstanding on several QPs, in batches.
//!
//! Messages either are there as fast as they can be posted, or arrive one by one at an interval.
//! In the first case a batch is staged only when it fits as a whole, so that each ring announces
//! exactly `batch` WQEs. In the second a ring comes when the batch is full or when its oldest
//! message is `max_delay` old. A latency is the time from a message's arrival (its hand-over by
//! the application) to the poll that sees it complete; it holds the wait for the batch, for a
//! slot, and for the completion of a later, signalled message.

use std::collections::VecDeque;

use doorbell_core::policy::tuner::{Knob, When};
use doorbell_core::policy::{BatchConfig, BatchMode, Batcher};
use doorbell_core::transport::{
    AttachError, Completion, Completions, Control, FenceScope, Mr, Next, Program, Ring, StageError,
    WaitSet,
};
use doorbell_core::units::{Bytes, Span, Time};
use doorbell_core::verbs::{QpType, SendFlags};

use super::common::{Failure, Message, Poster, Results, Shape, Window, failed};
use super::connect::{Card, Client, Lane, LaneOf, LinkConfig, LocalConfig, publish_done};
use super::sharing::{Credits, Sharing};
use super::tuning::{Settings, Tuning, TuningConfig};

/// When a program stops handing over messages.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Stop {
    /// After that many messages, at least 1.
    Messages(u64),
    /// After that time, from the first message on.
    After(Span),
}

/// When messages are there.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Arrivals {
    /// Always: as fast as they can be posted.
    Saturate,
    /// One at the start, then one every interval. They queue up when posting is slower.
    Every(Span),
}

impl Arrivals {
    /// How many of `all` messages are there that long after the start.
    pub(super) fn by(self, passed: Span, all: u64) -> u64 {
        match self {
            Self::Saturate => all,
            Self::Every(interval) => (passed.as_ps() / interval.as_ps() + 1).min(all),
        }
    }
}

/// Configuration of [`Rate`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RateConfig {
    /// Own memory and queues.
    pub local: LocalConfig,
    /// The link. Messages are dealt to its QPs in turn.
    pub link: LinkConfig,
    /// The message.
    pub shape: Shape,
    /// How to ring.
    pub ring: Ring,
    /// What fences stores before each ring, where the ring does not do so by itself (GPU
    /// blocks).
    pub fence: Option<FenceScope>,
    /// Messages outstanding per QP, at most the send queue's size. Lower: the pipe is not full;
    /// higher: more memory, longer queues.
    pub depth: u32,
    /// WQEs per ring. Higher: fewer doorbells, more waiting.
    pub batch: u32,
    /// Every how many messages of a QP one is signalled. Higher: fewer completions; slots come
    /// back later. At most `depth`, or nothing ever comes back.
    pub signal_every: u32,
    /// Completions taken by one poll. Higher: fewer polls, longer until the first is handled.
    pub poll_batch: usize,
    /// Time from one poll to the next; `None`: as soon as there is something. Longer: completions
    /// and slots come back later, and in bursts.
    pub poll_interval: Option<Span>,
    /// End.
    pub stop: Stop,
    /// Messages that are counted before the window of the results begins. More: less of the
    /// start is measured. Where what is outstanding is a large part of all, they should be more
    /// than that.
    pub warm_up: u64,
    /// When messages are there.
    pub arrivals: Arrivals,
    /// A batch that is not full is rung when its oldest message is that old; `None`: it waits
    /// until it is full, or no more messages come. Without effect on `Arrivals::Saturate`.
    pub max_delay: Option<Span>,
    /// Whether latencies are kept.
    pub latencies: bool,
    /// Whether `batch`, `signal_every` and `max_delay` are turned while it runs, by what its
    /// completions tell; those given are where it begins. It needs `latencies`.
    pub tuning: Option<TuningConfig>,
    /// Whether the QPs belong to this program alone.
    pub sharing: Sharing,
}

impl RateConfig {
    /// 10,000 8-byte WRITEs on one QP of depth 128, each rung and signalled alone.
    pub fn to(peer: u32) -> Self {
        Self {
            local: LocalConfig::default(),
            link: LinkConfig::to(peer),
            shape: Shape::default(),
            ring: Ring::Auto,
            fence: Some(FenceScope::System),
            depth: 128,
            batch: 1,
            signal_every: 1,
            poll_batch: 16,
            poll_interval: None,
            stop: Stop::Messages(10_000),
            warm_up: 0,
            arrivals: Arrivals::Saturate,
            max_delay: None,
            latencies: false,
            tuning: None,
            sharing: Sharing::Own,
        }
    }
}

impl RateConfig {
    /// How its batchers ring.
    fn batching(&self) -> BatchConfig {
        BatchConfig {
            mode: BatchMode::Fixed,
            max_wrs: self.batch,
            max_bytes: Bytes(u64::MAX),
            max_delay: Span::MAX,
            ring: self.ring,
            fence: self.fence,
        }
    }
}

/// Messages that a window opened in the stream must hold for each that was outstanding when it
/// opened. Those outstanding may have crossed the wire before, and are counted after: at most one
/// in so many is, and in a long stream as many cross at its end and are not counted. Higher: more
/// runs are measured from a hand-over, where the time of what was outstanding counts; lower: a
/// short window may show more than the link carries.
const WINDOW_FACTOR: u64 = 2;

/// Where the window behind the warm-up may open.
///
/// It opens in the stream, at a poll that leaves nothing in the completion queue, and ends at such
/// a poll: what is counted then came in between. Where no poll does so in time, because the core
/// has no time to poll, or where the window would be short, it opens when the first message behind
/// the warm-up is handed over. What is counted has then crossed the wire in the window, whatever
/// was in front of it, so that no such rate is above that of the link. One of n messages in the
/// stream, with m outstanding at its begin, is above it by m / (n - m) at the most.
#[derive(Copy, Clone, Debug, Default)]
struct Marks {
    /// The hand-over, and the messages of all QPs that had been handed over by then, at least.
    handed: Option<(Time, u64)>,
    /// The poll: when what it found may have begun to wait for it, the messages that had completed,
    /// and those outstanding.
    drained: Option<(Time, u64, u64)>,
    /// The last poll.
    polled: Time,
}

impl Marks {
    /// A poll begins at `now`: since when what it will find may have waited.
    fn look(&mut self, now: Time) -> Time {
        std::mem::replace(&mut self.polled, now)
    }

    /// When the window has opened, and the messages that do not count in it.
    fn opened(&self, done: u64) -> Option<(Time, u64)> {
        let long = |base: u64, out: u64| done - base >= out.saturating_mul(WINDOW_FACTOR);
        match self.drained {
            Some((at, base, out)) if done > base && long(base, out) => Some((at, base)),
            _ => self.handed.filter(|(_, base)| done > *base),
        }
    }
}

/// What is outstanding on a QP.
#[derive(Clone, Debug)]
struct Flow {
    /// Rings at a full batch. A delay counts from the arrival of a message, which may be before it
    /// is pushed, so it is not the batcher's.
    batcher: Batcher,
    /// Arrival of each message whose slot has not come back; kept for latencies only.
    outstanding: VecDeque<Time>,
    /// Messages staged so far.
    total: u64,
    /// Messages that it has to carry, if that is known.
    quota: Option<u64>,
    /// Arrival of the oldest message that the batcher holds.
    oldest: Time,
    /// Messages since the last signalled one.
    unsignalled: u32,
    /// Signalled messages whose completion has not been seen.
    signals: u32,
    /// Slots that were granted.
    slots: u32,
}

/// See the module. The peer is a [`Responder`](super::Responder).
#[derive(Clone, Debug)]
pub struct Rate {
    config: RateConfig,
    client: Client,
    poster: Poster,
    polled: Completions,
    results: Results,
    lanes: Vec<Lane>,
    /// Lane by index of the QP's handle.
    lane_of: LaneOf,
    flows: Vec<Flow>,
    mr: Option<Mr>,
    credits: Credits,
    start: Option<Time>,
    /// Messages staged on all QPs.
    handed: u64,
    /// Signalled messages on all QPs.
    signalled: u64,
    /// Where the window may open.
    marks: Marks,
    /// Whether a message that has arrived waits for a slot.
    blocked: bool,
    /// Since when it waits, with messages to hand over and no room for them.
    no_room: Option<Time>,
    /// No poll before.
    next_poll: Time,
    /// When it will post by itself.
    due: Option<Time>,
    tuning: Option<Tuning>,
}

impl Rate {
    /// A program that has not started.
    pub fn new(config: RateConfig) -> Self {
        Self {
            client: Client::new(config.local, config.link),
            poster: Poster::new(config.shape),
            polled: Completions::with_capacity(config.poll_batch.max(1)),
            results: Results::default(),
            lanes: vec![],
            lane_of: LaneOf::default(),
            flows: vec![],
            mr: None,
            credits: Credits::new(config.sharing.clone()),
            start: None,
            handed: 0,
            signalled: 0,
            marks: Marks::default(),
            blocked: false,
            no_room: None,
            next_poll: Time::ZERO,
            due: None,
            tuning: None,
            config,
        }
    }

    /// What was measured. A sharer that is attached sees no completions: its messages are in the
    /// results of the owner, and in its own as unconfirmed.
    pub fn results(&self) -> &Results {
        &self.results
    }

    fn check(&self) -> Result<(), Failure> {
        let c = &self.config;
        let shared = self.credits.is_shared();
        if c.depth == 0 || c.batch == 0 || c.signal_every == 0 || c.link.qps == 0 {
            return Err(Failure::Config("qps, depth, batch and signal_every count from 1"));
        }
        if c.depth > c.link.size.max_send_wr {
            return Err(Failure::Config("depth is above the size of the send queue"));
        }
        if c.batch > c.depth {
            return Err(Failure::Config("batch is above depth: it would never be full"));
        }
        if matches!(c.stop, Stop::Messages(0)) || c.arrivals == Arrivals::Every(Span::ZERO) {
            return Err(Failure::Config("no messages, or no interval between them"));
        }
        if shared && (c.latencies || c.link.ty == QpType::Ud) {
            return Err(Failure::Config("shared QPs: no latencies per message, no datagrams"));
        }
        if c.tuning.is_some() && !c.latencies {
            return Err(Failure::Config("a tuner needs the latencies of the messages"));
        }
        Ok(())
    }

    /// Messages in all, if that is known beforehand.
    fn planned(&self) -> Option<u64> {
        match (self.config.stop, self.config.arrivals) {
            (Stop::Messages(n), _) => Some(n),
            (Stop::After(s), Arrivals::Every(i)) => Some(s.as_ps().div_ceil(i.as_ps())),
            (Stop::After(_), Arrivals::Saturate) => None,
        }
    }

    /// Connects or attaches; what to wait for, if anything.
    fn up<T: Control>(&mut self, t: &mut T) -> Result<Option<Next>, Failure> {
        if self.mr.is_some() {
            return Ok(None);
        }
        self.check()?;
        let mr = if let Sharing::Attached { owner } = self.config.sharing {
            match self.attach(t, owner) {
                Ok(mr) => mr,
                Err(Failure::Attach(AttachError::NotShared)) => {
                    return self.credits.wait(t, owner, self.config.link.deadline).map(Some);
                }
                Err(f) => return Err(f),
            }
        } else {
            if let Some(next) = self.client.up(t, |_, _, _| Ok(()))? {
                return Ok(Some(next));
            }
            let qps = u64::from(self.config.link.qps);
            self.client.require(self.config.shape.stride() * qps)?;
            self.lanes = self.client.lanes().to_vec();
            self.credits.offer(t, self.client.local(), &self.lanes)?;
            self.client.local().mr
        };
        self.open_flows(t)?;
        self.mr = Some(mr);
        Ok(None)
    }

    fn attach<T: Control>(&mut self, t: &mut T, owner: u32) -> Result<Mr, Failure> {
        let peer = self.config.link.peer;
        let (mr, qps) = self.credits.attach(t, owner, self.config.link.qps)?;
        for (i, qp) in (0..).zip(qps) {
            let missing = Failure::NoPeer { peer, what: "its endpoint" };
            let remote = Card::lookup(t, peer, owner, i)?.ok_or(missing)?.target;
            self.lanes.push(Lane { qp, remote, dest: None });
        }
        Ok(mr)
    }

    fn open_flows<T: Control>(&mut self, t: &mut T) -> Result<(), Failure> {
        let (n, planned) = (self.lanes.len() as u64, self.planned());
        self.lane_of = LaneOf::new(&self.lanes);
        for (i, lane) in (0..).zip(&self.lanes) {
            let caps = t.qp_caps(lane.qp).map_err(|_| Failure::Config("a QP is gone"))?;
            let quota = planned.map(|p| p / n + u64::from(i < p % n));
            let outstanding = VecDeque::with_capacity(self.config.depth as usize);
            self.results.granted.get_or_insert(caps);
            self.flows.push(Flow {
                batcher: Batcher::new(self.config.batching(), lane.qp, &caps),
                outstanding,
                total: 0,
                quota,
                oldest: Time::ZERO,
                unsignalled: 0,
                signals: 0,
                slots: caps.max_send_wr,
            });
        }
        if let Some(tuning) = &self.config.tuning {
            let c = &self.config;
            let max_delay = c.max_delay.filter(|_| c.arrivals != Arrivals::Saturate);
            let device = t.device_caps();
            let has = Settings {
                depth: c.depth,
                batch: c.batch,
                signal_every: c.signal_every,
                max_delay,
                attr: c.link.attr,
                size: c.link.size,
                max_slots: device.max_qp_wr,
                max_inline: Some(device.max_inline).filter(|_| !c.shape.op.is_read_or_atomic()),
            };
            let counters = t.port_counters().unwrap_or_default();
            self.tuning = Some(Tuning::new(tuning, &has, t.now(), counters)?);
        }
        Ok(())
    }

    fn run<T: Control>(&mut self, t: &mut T) -> Result<Next, Failure> {
        if let Some(next) = self.up(t)? {
            return Ok(next);
        }
        let full = self.poll(t)?;
        let now = t.now();
        if let Some(since) = self.no_room.take() {
            self.results.no_room += now.since(since);
        }
        self.tune(t, now);
        let start = *self.start.get_or_insert(now);
        let more = match self.config.arrivals {
            Arrivals::Saturate => self.serve_all(t, now, start)?,
            Arrivals::Every(interval) => self.serve_arrived(t, now, start, interval)?,
        };
        if self.all_handed(now, start) && self.settled(t)? {
            self.leave(t);
            return Ok(Next::Done);
        }
        if full || more {
            return Ok(Next::Again);
        }
        let blocked = self.blocked || self.config.arrivals == Arrivals::Saturate;
        self.no_room = Some(now).filter(|_| blocked && !self.all_handed(now, start));
        Ok(self.wait(now, start))
    }

    /// Makes the step that the tuner asks for, if it does. What it proposes for the next queue pair
    /// is for whoever reads the report.
    fn tune<T: Control>(&mut self, t: &T, now: Time) {
        let Some(tuning) = self.tuning.as_mut().filter(|tuning| now >= tuning.due()) else {
            return;
        };
        let counters = t.port_counters().unwrap_or_default();
        let Some(step) = tuning.look(now, counters, self.results.messages) else { return };
        match step.knob {
            Knob::MaxWrs => {
                self.config.batch = step.to as u32;
                self.flows.iter_mut().for_each(|f| f.batcher.set_max_wrs(step.to as u32));
            }
            Knob::SignalEvery => self.config.signal_every = step.to as u32,
            Knob::MaxDelay => self.config.max_delay = Some(Span::from_ps(step.to)),
            other => assert_eq!(other.when(), When::NextQp, "`{}` is not turned", other.word()),
        }
    }

    fn poll<T: Control>(&mut self, t: &mut T) -> Result<bool, Failure> {
        if self.credits.is_attached() {
            self.credits.look(t)?;
            return Ok(false);
        }
        self.polled.clear();
        if t.now() < self.next_poll {
            return Ok(false);
        }
        let since = self.marks.look(t.now());
        t.poll_cq(self.client.local().send_cq, &mut self.polled)?;
        let now = t.now();
        if let (Some(interval), false) = (self.config.poll_interval, self.polled.is_full()) {
            self.next_poll = now + interval;
        }
        let mut slots = 0;
        for c in self.polled.as_slice() {
            if let Some(f) = failed(c) {
                return Err(f);
            }
            let Completion::Send { qp, retired, wr_id, .. } = *c else { continue };
            let flow = &mut self.flows[self.lane_of.of(qp)];
            flow.signals -= u32::from(self.credits.seen(wr_id));
            let n = flow.outstanding.len().min(retired as usize);
            for (k, arrived) in (0..).zip(flow.outstanding.drain(..n)) {
                if let Some(tuning) = &mut self.tuning {
                    tuning.completed(self.config.shape.bytes(), now.since(arrived));
                }
                if self.results.messages + k >= self.config.warm_up {
                    self.results.sample(now.since(arrived), now);
                }
            }
            slots += u64::from(retired);
            self.results.completed(retired.into(), self.config.shape.bytes(), now);
        }
        if slots > 0 {
            self.credits.retire(t, slots)?;
            self.update_window(t, now, Some(since).filter(|_| !self.polled.is_full()));
        }
        Ok(self.polled.is_full())
    }

    /// The window opens behind the warm-up, without one at the first hand-over. It closes at the
    /// stop time, so that the tail in which nothing new is posted does not count. `drained`: the
    /// poll left nothing in the completion queue, and found what may have waited since then.
    fn update_window<T: Control>(&mut self, t: &T, now: Time, drained: Option<Time>) {
        let (done, warm_up) = (self.results.messages, self.config.warm_up);
        let over = match (self.config.stop, self.start) {
            (Stop::After(s), Some(start)) => now > start + s,
            _ => false,
        };
        if done < warm_up || over {
            return;
        }
        if let (Some(since), true, None) = (drained, warm_up > 0, self.marks.drained) {
            self.marks.drained = Some((since, done, self.handed_on_all(t) - done));
        }
        let Some((from, base)) = self.marks.opened(done) else { return };
        let messages = done - base;
        let bytes = messages * u64::from(self.config.shape.bytes());
        self.results.window = Some(Window { from, to: now, messages, bytes });
    }

    /// Messages handed over on all QPs, those of sharers included: of them the slots show.
    fn handed_on_all<T: Control>(&self, t: &T) -> u64 {
        if !self.credits.is_shared() {
            return self.handed;
        }
        let used = |(f, l): (&Flow, &Lane)| u64::from(f.slots.saturating_sub(t.sq_free(l.qp)));
        let used: u64 = self.flows.iter().zip(&self.lanes).map(used).sum();
        self.handed.max(self.results.messages + used)
    }

    /// Messages that may be staged on a QP: up to `depth` slots in use, those of sharers included.
    fn room<T: Control>(&self, t: &T, i: usize) -> u32 {
        let used = self.flows[i].slots.saturating_sub(t.sq_free(self.lanes[i].qp));
        self.config.depth.saturating_sub(used)
    }

    /// How many to stage now on a QP that always has messages: a whole batch or nothing, unless
    /// nothing outstanding could make more room.
    fn portion<T: Control>(&self, t: &T, i: usize) -> u32 {
        let (flow, room) = (&self.flows[i], self.room(t, i));
        let left = flow.quota.map_or(u64::MAX, |q| q - flow.total);
        let want = left.min(self.config.batch.into()) as u32;
        let stuck = !self.credits.is_shared() && flow.signals == 0;
        if room >= want || stuck { want.min(room) } else { 0 }
    }

    /// One batch for each QP that has room; whether there is room for more.
    fn serve_all<T: Control>(
        &mut self,
        t: &mut T,
        now: Time,
        start: Time,
    ) -> Result<bool, Failure> {
        if self.all_handed(now, start) {
            return Ok(false);
        }
        for i in 0..self.flows.len() {
            for _ in 0..self.portion(t, i) {
                let arrived = t.now();
                if !self.stage(t, i, arrived)? {
                    break;
                }
            }
            self.ring(t, i)?;
        }
        Ok((0..self.flows.len()).any(|i| self.portion(t, i) > 0))
    }

    /// Messages that have arrived, at most one batch per QP; whether there is more to do at once.
    fn serve_arrived<T: Control>(
        &mut self,
        t: &mut T,
        now: Time,
        start: Time,
        interval: Span,
    ) -> Result<bool, Failure> {
        let lanes = self.lanes.len() as u64;
        let planned = self.planned().expect("arrivals are counted");
        let arrived = self.config.arrivals.by(now.since(start), planned);
        let most = self.handed + lanes * u64::from(self.config.batch);
        self.blocked = false;
        while self.handed < arrived.min(most) && !self.blocked {
            let i = (self.handed % lanes) as usize;
            let arrival = start + interval * self.handed;
            self.blocked = self.room(t, i) == 0 || !self.stage(t, i, arrival)?;
            if self.blocked {
                self.ring(t, i)?;
            }
        }
        for i in 0..self.flows.len() {
            if self.handed == planned || self.ring_by(i).is_some_and(|at| at <= now) {
                self.ring(t, i)?;
            }
        }
        Ok(!self.blocked && self.handed < arrived)
    }

    /// When the batch of a QP has to be rung.
    fn ring_by(&self, i: usize) -> Option<Time> {
        let flow = &self.flows[i];
        self.config.max_delay.filter(|_| flow.batcher.held() > 0).map(|d| flow.oldest + d)
    }

    /// Stages the next message; false when the QP has no slot after all.
    fn stage<T: Control>(&mut self, t: &mut T, i: usize, arrived: Time) -> Result<bool, Failure> {
        let flow = &self.flows[i];
        let last = flow.quota == Some(flow.total + 1);
        // A QP that signals everything completes every message, whatever the flags say.
        let all = self.config.link.signal_all;
        let signal = all || last || flow.unsignalled + 1 >= self.config.signal_every;
        let flags = if signal { SendFlags::SIGNALED } else { SendFlags::empty() };
        let offset = i as u64 * self.config.shape.stride();
        let wr_id = self.credits.tag(self.handed);
        let message = Message { wr_id, n: flow.total, offset, flags };
        let (lane, mr) = (self.lanes[i], self.mr.expect("up"));
        let flow = &mut self.flows[i];
        if flow.batcher.held() == 0 {
            flow.oldest = arrived;
        }
        let pushed = self.poster.push(t, (&mut flow.batcher, arrived), &lane, &mr, message);
        let full = matches!(pushed, Err(Failure::Stage(StageError::SqFull)));
        if full {
            self.rang(i);
            return Ok(false);
        }
        let rung = pushed?.rung > 0;
        self.results.first.get_or_insert(arrived);
        let flow = &mut self.flows[i];
        flow.total += 1;
        flow.unsignalled = if signal { 0 } else { flow.unsignalled + 1 };
        flow.signals += u32::from(signal);
        if self.config.latencies {
            flow.outstanding.push_back(arrived);
        }
        self.handed += 1;
        self.signalled += u64::from(signal);
        if self.marks.handed.is_none() && self.handed_on_all(t) > self.config.warm_up {
            self.marks.handed = Some((arrived, self.handed_on_all(t) - 1));
        }
        if rung {
            self.rang(i);
        }
        Ok(true)
    }

    /// Rings for what a QP holds.
    fn ring<T: Control>(&mut self, t: &mut T, i: usize) -> Result<(), Failure> {
        self.flows[i].batcher.flush(t)?;
        self.rang(i);
        Ok(())
    }

    /// Takes note of the rings of a QP.
    fn rang(&mut self, i: usize) {
        let rings: u64 = self.flows.iter().map(|f| f.batcher.stats().rings).sum();
        for _ in self.results.rings..rings {
            if let Some(tuning) = &mut self.tuning {
                // Who always has another message always fills the queue, which tells nothing.
                let waits = self.config.arrivals != Arrivals::Saturate;
                tuning.rung(if waits { self.flows[i].outstanding.len() } else { 0 });
            }
        }
        self.results.rings = rings;
    }

    fn all_handed(&self, now: Time, start: Time) -> bool {
        match (self.planned(), self.config.stop) {
            (Some(n), _) => self.handed == n,
            (None, Stop::After(s)) => now >= start + s,
            (None, Stop::Messages(_)) => unreachable!("a number of messages is a plan"),
        }
    }

    /// Whether every signalled message has completed, those of sharers included.
    fn settled<T: Control>(&self, t: &mut T) -> Result<bool, Failure> {
        let mine = self.flows.iter().all(|f| f.batcher.held() == 0 && f.signals == 0);
        Ok(self.credits.is_attached() || (mine && self.credits.all_left(t)?))
    }

    fn leave<T: Control>(&mut self, t: &mut T) {
        self.results.tuning = self.tuning.as_ref().map(Tuning::results);
        if self.credits.is_attached() {
            self.credits.leave(t, self.signalled);
            self.results.unconfirmed = self.handed;
        } else {
            let takes = self.config.shape.op.takes_receive();
            publish_done(t, self.client.peer(), if takes { self.results.messages } else { 0 });
            self.results.unconfirmed = self.handed.saturating_sub(self.results.messages);
        }
    }

    fn wait(&mut self, now: Time, start: Time) -> Next {
        let mut on = match &self.config.sharing {
            Sharing::Own | Sharing::Owner { .. } if self.config.poll_interval.is_some() => {
                WaitSet::EMPTY
            }
            Sharing::Own | Sharing::Owner { .. } => WaitSet::cq(self.client.local().send_cq),
            Sharing::Attached { .. } => self.credits.wait_set(),
        };
        if let Sharing::Owner { .. } = self.config.sharing {
            on = on.or(WaitSet::BOOTSTRAP);
        }
        let batch = (0..self.flows.len()).filter_map(|i| self.ring_by(i)).min();
        let next = match (self.config.arrivals, self.config.stop) {
            // A message that has arrived already waits for a slot, not for a time.
            (Arrivals::Every(i), _) => Some(start + i * self.handed)
                .filter(|_| Some(self.handed) != self.planned() && !self.blocked),
            (Arrivals::Saturate, Stop::After(s)) => Some(start + s).filter(|end| *end > now),
            (Arrivals::Saturate, Stop::Messages(_)) => None,
        };
        let poll = self.config.poll_interval.map(|_| self.next_poll);
        self.due = [batch, next].into_iter().flatten().min();
        let until = [self.due, poll].into_iter().flatten().min();
        Next::Wait { on, until }
    }
}

impl Program for Rate {
    fn step<T: Control>(&mut self, t: &mut T) -> Next {
        self.run(t).unwrap_or_else(|f| {
            if let (Some(tuning), Failure::Completion { status, .. }) = (&mut self.tuning, &f) {
                tuning.died(t.now(), t.port_counters().unwrap_or_default(), *status);
            }
            self.results.failure = Some(f);
            self.leave(t);
            Next::Done
        })
    }

    fn acts_at(&self) -> Option<Time> {
        self.due
    }
}
