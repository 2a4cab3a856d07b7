//! Messages of several classes by the lanes of one core: core's policy at work, with its stripes,
//! batches and paces.
//!
//! Each lane has messages of its own: as fast as they can be posted, or one at an interval. Lanes
//! are served in their order, so what must not wait belongs in front. A latency is the time from a
//! message's arrival to the poll that sees it complete, the wait for its pace included; where
//! messages are there as fast as they can be posted, from the moment that its lane takes it.

use std::collections::VecDeque;

use doorbell_core::policy::lanes::{LaneConfig, LaneError, Lanes, LanesConfig, To};
use doorbell_core::policy::tuner::Knob;
use doorbell_core::policy::{CqBudget, Cue, PaceConfig};
use doorbell_core::transport::{
    Completion, Completions, Control, Data, Next, Program, SendOp, SendWr, WaitSet,
};
use doorbell_core::units::{BitRate, Span, Time};
use doorbell_core::verbs::{QpType, SendFlags};

use super::common::{Failure, Results, Shape, Window, failed};
use super::connect::{Client, Levels, LinkConfig, LocalConfig, MAX_LANES, publish_done};
use super::rate::Arrivals;
use super::tuning::{Tuning, TuningConfig};

/// One lane and its messages.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LaneTraffic {
    /// Its name in results; empty where the program is this lane and no results of lanes are asked
    /// for.
    pub name: String,
    /// How it posts.
    pub lane: LaneConfig,
    /// The message; whether it goes inline says the lane's `inline`.
    pub shape: Shape,
    /// Messages, those of the warm-up included, at least one.
    pub messages: u64,
    /// Messages that are not counted in the window of the results.
    pub warm_up: u64,
    /// When they are there.
    pub arrivals: Arrivals,
    /// Flows that take the messages in turn: with `Spread::Ordered` each keeps to one queue pair.
    pub flows: u64,
}

/// Configuration of [`Laned`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LanedConfig {
    /// Own memory and queues.
    pub local: LocalConfig,
    /// The link, whose queue pairs are those of all lanes together: see [`LanedConfig::link_for`].
    pub link: LinkConfig,
    /// The lanes, one to [`MAX_LANES`].
    pub lanes: Vec<LaneTraffic>,
    /// Completions taken by one poll.
    pub poll_batch: usize,
    /// Turns the pace of the only lane that has one.
    pub tuning: Option<TuningConfig>,
}

impl LanedConfig {
    /// A link with the queue pairs of `lanes`, each with the service level of its lane. The peer
    /// has the same.
    pub fn link_for(mut link: LinkConfig, lanes: &[LaneTraffic]) -> LinkConfig {
        link.qps = lanes.iter().map(|l| l.lane.qps).sum();
        match lanes {
            [one] => link.attr.path.sl = one.lane.sl,
            all => link.levels = Levels::new(all.iter().map(|l| (l.lane.qps, l.lane.sl))),
        }
        link
    }

    /// The only lane that has a pace, with it.
    fn paced(&self) -> Option<(usize, PaceConfig)> {
        let mut paced = self.lanes.iter().enumerate().filter_map(|(i, l)| Some((i, l.lane.pace?)));
        paced.next().filter(|_| paced.next().is_none())
    }
}

/// The messages of one lane.
#[derive(Clone, Debug, Default)]
struct Stock {
    handed: u64,
    /// Messages whose completion was seen, of those behind the warm-up.
    counted: u64,
    /// Hand-over of the first message behind the warm-up.
    opened: Option<Time>,
    /// Bytes of a message that goes inline, empty where it does not.
    scratch: Vec<u8>,
    /// Where its messages are, in both regions.
    offset: u64,
    /// Number, arrival and post of each message that is outstanding, by queue pair; `None` for what
    /// is none, and only sees to it that the others are told of.
    outstanding: Vec<VecDeque<Option<(u64, Time, Time)>>>,
    /// Whether completions will tell of all messages.
    confirmed: bool,
    results: Results,
}

/// See the module. The peer is a [`Responder`](super::Responder).
#[derive(Debug)]
pub struct Laned {
    config: LanedConfig,
    client: Client,
    lanes: Option<Lanes>,
    stocks: Vec<Stock>,
    /// The tuner, and whose pace it turns.
    tuning: Option<(Tuning, usize)>,
    polled: Completions,
    results: Results,
    start: Option<Time>,
    due: Option<Time>,
}

impl Laned {
    /// A program that has not started.
    pub fn new(config: LanedConfig) -> Self {
        Self {
            client: Client::new(config.local, config.link),
            lanes: None,
            stocks: vec![],
            tuning: None,
            polled: Completions::with_capacity(config.poll_batch.max(1)),
            results: Results::default(),
            start: None,
            due: None,
            config,
        }
    }

    /// What was measured: of all lanes, and of each that has a name.
    pub fn results(&self) -> &Results {
        &self.results
    }

    fn check(&self) -> Result<(), Failure> {
        let c = &self.config;
        if c.lanes.is_empty() || c.lanes.len() > MAX_LANES {
            return Err(Failure::Config("a program has 1 to 8 lanes"));
        }
        if c.lanes.iter().any(|l| l.messages == 0 || l.flows == 0) {
            return Err(Failure::Config("a lane has at least one message and one flow"));
        }
        if c.lanes.iter().any(|l| l.arrivals == Arrivals::Every(Span::ZERO)) {
            return Err(Failure::Config("no interval between the messages of a lane"));
        }
        if c.link.ty == QpType::Ud {
            return Err(Failure::Config("lanes are for connected queue pairs"));
        }
        Ok(())
    }

    /// Connects, then makes the lanes; what to wait for, if anything.
    fn up<T: Control>(&mut self, t: &mut T) -> Result<Option<Next>, Failure> {
        if self.lanes.is_some() {
            return Ok(None);
        }
        self.check()?;
        if let Some(next) = self.client.up(t, |_, _, _| Ok(()))? {
            return Ok(Some(next));
        }
        let configs: Vec<_> = self.config.lanes.iter().map(|l| l.lane).collect();
        let labels = self.config.link.labels;
        let set = LanesConfig { lanes: &configs, peers: 1, cores: 1, labels };
        let mut qps = Vec::with_capacity(self.client.lanes().len());
        for lane in self.client.lanes() {
            let caps = t.qp_caps(lane.qp).map_err(|_| Failure::Config("a QP is gone"))?;
            self.results.granted.get_or_insert(caps);
            qps.push((lane.qp, caps));
        }
        let mut budget = CqBudget::new(self.config.local.cq_depth);
        self.lanes = Some(Lanes::new(&set, 0, &qps, &mut budget, t.now())?);
        let mut offset = 0;
        for l in &self.config.lanes {
            let inline = if l.shape.inline { l.shape.bytes() } else { 0 };
            let scratch = vec![0xA5; inline as usize];
            let outstanding = vec![VecDeque::new(); l.lane.qps as usize];
            self.stocks.push(Stock { scratch, offset, outstanding, ..Stock::default() });
            offset += l.shape.stride();
        }
        self.client.require(offset)?;
        self.tuning = self.tuner(t)?;
        Ok(None)
    }

    /// The tuner that the program is to have, with the lane.
    fn tuner<T: Control>(&self, t: &T) -> Result<Option<(Tuning, usize)>, Failure> {
        let Some(config) = &self.config.tuning else { return Ok(None) };
        let (lane, pace) =
            self.config.paced().ok_or(Failure::Config("a tuner needs one lane with a pace"))?;
        let rate = u128::from(pace.rate.num) * 8 / u128::from(pace.rate.den);
        let rate = u64::try_from(rate).unwrap_or(u64::MAX);
        let counters = t.port_counters().unwrap_or_default();
        Ok(Some((Tuning::of_pace(config, rate, t.now(), counters)?, lane)))
    }

    /// Makes the step that the tuner asks for, if it does.
    fn tune<T: Control>(&mut self, t: &T) -> Result<(), LaneError> {
        let now = t.now();
        let Some((tuning, lane)) = &mut self.tuning else { return Ok(()) };
        if now < tuning.due() {
            return Ok(());
        }
        let counters = t.port_counters().unwrap_or_default();
        let Some(step) = tuning.look(now, counters, self.results.messages) else { return Ok(()) };
        assert_eq!(step.knob, Knob::Pace, "the only one that lanes give it");
        let Some(rate) = BitRate::new(step.to) else { return Ok(()) };
        let traffic = &self.config.lanes[*lane].lane;
        let burst = traffic.pace.expect("it has one").burst;
        let lanes = self.lanes.as_mut().expect("up");
        lanes.set_pace(*lane as u32, Some(PaceConfig::of(rate, burst)), traffic.peer_pace, now)
    }

    fn run<T: Control>(&mut self, t: &mut T) -> Result<Next, Failure> {
        if let Some(next) = self.up(t)? {
            return Ok(next);
        }
        let full = self.poll(t)?;
        self.tune(t)?;
        let start = *self.start.get_or_insert(t.now());
        let (mut again, mut due) = (full, None);
        for i in 0..self.stocks.len() {
            match self.serve(t, i, start)? {
                Served::More => again = true,
                Served::Until(at) => due = [due, Some(at)].into_iter().flatten().min(),
                Served::Blocked => {}
            }
            self.confirm(t, i)?;
        }
        let (lanes, now) = (self.lanes.as_mut().expect("up"), t.now());
        let held = lanes.tick(t, now).map_err(LaneError::Ring)?;
        if self.settled() {
            self.leave(t);
            return Ok(Next::Done);
        }
        if again {
            return Ok(Next::Again);
        }
        // A batch that has no delay waits for its last message, not for a time.
        let held = held.filter(|at| *at < Time::MAX);
        self.due = [due, held].into_iter().flatten().min();
        Ok(Next::Wait { on: WaitSet::cq(self.client.local().send_cq), until: self.due })
    }

    /// Takes completions; whether there may be more.
    fn poll<T: Control>(&mut self, t: &mut T) -> Result<bool, Failure> {
        self.polled.clear();
        t.poll_cq(self.client.local().send_cq, &mut self.polled)?;
        let now = t.now();
        for c in self.polled.as_slice() {
            if let Some(f) = failed(c) {
                return Err(f);
            }
            let Completion::Send { .. } = c else { continue };
            let told = self.lanes.as_mut().and_then(|l| l.completion(c, now));
            let told = told.ok_or(Failure::Config("a completion of no lane"))?;
            let traffic = &self.config.lanes[told.lane as usize];
            let stock = &mut self.stocks[told.lane as usize];
            let mut retired = 0;
            for _ in 0..told.retired {
                let message = stock.outstanding[told.member as usize].pop_front();
                let message = message.ok_or(Failure::Config("a completion of no message"))?;
                let Some((n, arrived, posted)) = message else { continue };
                retired += 1;
                if let Some((tuning, _)) =
                    self.tuning.as_mut().filter(|(_, lane)| *lane == told.lane as usize)
                {
                    tuning.completed(traffic.shape.bytes(), now.since(arrived));
                    tuning.carried(now.since(posted));
                }
                if n >= traffic.warm_up {
                    stock.counted += 1;
                    stock.results.sample(now.since(arrived), now);
                    self.results.sample(now.since(arrived), now);
                }
            }
            let bytes = traffic.shape.bytes();
            stock.results.completed(retired, bytes, now);
            self.results.completed(retired, bytes, now);
            if let Some(from) = stock.opened.filter(|_| stock.counted > 0) {
                let bytes = stock.counted * u64::from(bytes);
                let window = Window { from, to: now, messages: stock.counted, bytes };
                stock.results.window = Some(window);
            }
        }
        Ok(self.polled.is_full())
    }

    /// Hands over what a lane has, as far as it goes, and no more than a batch for each queue pair.
    fn serve<T: Control>(&mut self, t: &mut T, i: usize, start: Time) -> Result<Served, Failure> {
        let traffic = &self.config.lanes[i];
        let arrived = traffic.arrivals.by(t.now().since(start), traffic.messages);
        let most =
            u64::from(traffic.lane.qps) * u64::from(traffic.lane.sender.batch.max_wrs.max(1));
        let end = arrived.min(self.stocks[i].handed + most);
        while self.stocks[i].handed < end {
            match self.push(t, i, arrived, start) {
                Ok(()) => {}
                Err(LaneError::Paced { until }) => return Ok(Served::Until(until)),
                Err(LaneError::Full) => return Ok(Served::Blocked),
                Err(e) => return Err(e.into()),
            }
        }
        let handed = self.stocks[i].handed;
        Ok(match self.config.lanes[i].arrivals {
            _ if handed == self.config.lanes[i].messages => Served::Blocked,
            Arrivals::Every(interval) if handed == arrived => {
                Served::Until(start + interval * handed)
            }
            _ => Served::More,
        })
    }

    /// Pushes the next message of a lane, of `arrived` that are there.
    fn push<T: Control>(
        &mut self,
        t: &mut T,
        i: usize,
        arrived: u64,
        start: Time,
    ) -> Result<(), LaneError> {
        let (traffic, stock) = (&self.config.lanes[i], &mut self.stocks[i]);
        let n = stock.handed;
        let now = t.now();
        let at = match traffic.arrivals {
            Arrivals::Saturate => now,
            Arrivals::Every(interval) => start + interval * n,
        };
        let cue = if n + 1 < arrived { Cue::More } else { Cue::Last };
        let lanes = self.lanes.as_mut().expect("up");
        let inline = lanes.inline(i as u32).expect("a lane of the set");
        let (mr, bytes) = (self.client.local().mr, traffic.shape.bytes());
        let sge = mr.sge(stock.offset, bytes).expect("the region was checked");
        let data = match bytes {
            0 => Data::Sge(&[]),
            _ if traffic.shape.inline => {
                inline.data(&stock.scratch, std::slice::from_ref(&sge), cue)
            }
            _ => Data::Sge(std::slice::from_ref(&sge)),
        };
        let remote = self.client.lanes()[0].remote.at(stock.offset);
        // The last of each queue pair, most likely, which spares it one more to confirm them.
        let tail = n + u64::from(traffic.lane.qps) >= traffic.messages;
        let flags = if tail { SendFlags::SIGNALED } else { SendFlags::empty() };
        let op = traffic.shape.op.to_send_op(remote, n);
        let wr = SendWr { wr_id: n, op, data, flags, dest: None };
        let to = To { lane: i as u32, peer: 0, flow: n % traffic.flows };
        let sent = lanes.push(t, now, to, &wr, cue)?;
        let member = lanes.stripe(i as u32, 0).position(|s| s.qp() == sent.qp);
        stock.outstanding[member.expect("of the stripe")].push_back(Some((n, at, now)));
        stock.handed += 1;
        stock.results.first.get_or_insert(at);
        self.results.first.get_or_insert(at);
        if n == traffic.warm_up {
            stock.opened = Some(at);
        }
        Ok(())
    }

    /// When a lane has handed over all of its messages: what is held goes, and completions will
    /// tell of all of them, whichever queue pairs took the last ones.
    fn confirm<T: Control>(&mut self, t: &mut T, i: usize) -> Result<(), LaneError> {
        let (traffic, stock) = (&self.config.lanes[i], &mut self.stocks[i]);
        if stock.confirmed || stock.handed < traffic.messages {
            return Ok(());
        }
        let remote = self.client.lanes()[0].remote.at(stock.offset);
        let (lanes, now) = (self.lanes.as_mut().expect("up"), t.now());
        let confirmed = lanes.confirm(t, now, i as u32, SendOp::Write(remote));
        for (sender, list) in lanes.stripe(i as u32, 0).zip(&mut stock.outstanding) {
            list.resize(sender.window().used() as usize, None);
        }
        stock.confirmed = confirmed.is_ok();
        match confirmed {
            Err(LaneError::Full) => Ok(()),
            other => other,
        }
    }

    /// Whether every message has completed.
    fn settled(&self) -> bool {
        let lanes = self.lanes.as_ref().expect("up");
        let mut senders = (0..self.stocks.len()).flat_map(|i| lanes.stripe(i as u32, 0));
        self.stocks.iter().all(|s| s.confirmed) && senders.all(|s| s.window().used() == 0)
    }

    fn leave<T: Control>(&mut self, t: &mut T) {
        self.results.tuning = self.tuning.as_ref().map(|(tuning, _)| tuning.results());
        let takes = |l: &LaneTraffic| l.shape.op.takes_receive();
        let received = self.stocks.iter().zip(&self.config.lanes).filter(|(_, l)| takes(l));
        let received = received.map(|(s, _)| s.results.messages).sum();
        publish_done(t, self.client.peer(), received);
        let handed: u64 = self.stocks.iter().map(|s| s.handed).sum();
        self.results.unconfirmed = handed.saturating_sub(self.results.messages);
        if let Some(lanes) = &self.lanes {
            for (i, stock) in (0..).zip(&mut self.stocks) {
                stock.results.rings = lanes.stats(i).rings;
                self.results.rings += stock.results.rings;
                stock.results.unconfirmed = stock.handed - stock.results.messages;
            }
        }
        let windows = || self.stocks.iter().filter_map(|s| s.results.window);
        let sum = |f: fn(Window) -> u64| windows().map(f).sum();
        let ends = windows().map(|w| w.from).min().zip(windows().map(|w| w.to).max());
        self.results.window = ends.map(|(from, to)| Window {
            from,
            to,
            messages: sum(|w| w.messages),
            bytes: sum(|w| w.bytes),
        });
        if self.config.lanes.iter().any(|l| !l.name.is_empty()) {
            let named = self.config.lanes.iter().zip(&mut self.stocks);
            let named = named.map(|(l, s)| (l.name.clone(), std::mem::take(&mut s.results)));
            self.results.lanes = named.collect();
        }
    }
}

/// How far a lane came.
enum Served {
    /// It has more to hand over at once.
    More,
    /// It goes on at that time.
    Until(Time),
    /// It waits for completions, or has no more.
    Blocked,
}

impl Clone for Laned {
    /// One that has not started, with the same configuration: senders own their entries of the
    /// completion queue, and nobody else can have the same ones.
    fn clone(&self) -> Self {
        Self::new(self.config.clone())
    }
}

impl Program for Laned {
    fn step<T: Control>(&mut self, t: &mut T) -> Next {
        self.run(t).unwrap_or_else(|f| {
            self.results.failure = Some(f);
            self.leave(t);
            Next::Done
        })
    }

    fn acts_at(&self) -> Option<Time> {
        self.due
    }
}
