//! Requests and their replies by SEND, many outstanding.
//!
//! Both sides run this program; one of them asks. It keeps `window` requests without a reply on
//! each queue pair, dealt to the queue pairs in turn. The other side answers each on the queue pair
//! that it came by, when a receive completion tells of it, and has posted the receive again before
//! it does. A latency is the time from the hand-over of a request to the poll that sees its reply.
//!
//! With contents each message says which one it is, a reply has the number of its request, and
//! both sides check every byte. Without, a reply is taken for that of the oldest request that has
//! none: behind a message that an unreliable service has lost or brought twice, latencies are those
//! of others. What it brings twice is answered twice then; with contents it is passed over.

use std::collections::{BTreeSet, VecDeque};

use doorbell_core::transport::{
    Completion, Completions, Contents, Control, FenceScope, Next, Program, QpId, RecvWr, Ring,
    StageError, WaitSet,
};
use doorbell_core::units::{Span, Time};
use doorbell_core::verbs::{QpType, SendFlags};

use super::common::{
    Checked, Failure, Message, Op, Poster, Results, Shape, Window, element, failed, header_bytes,
    part, retire_sends,
};
use super::connect::{Client, Lane, LaneOf, LinkConfig, Local, LocalConfig};
use super::payload::{self, Label};

/// Configuration of [`RequestReply`]; both sides have the same but for `asks`, memory and `peer`.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct RequestReplyConfig {
    /// Own memory and queues; the region holds [`RequestReplyConfig::region_bytes`] at least.
    pub local: LocalConfig,
    /// The link. Receives fill its receive queues, or the shared one of `local`.
    pub link: LinkConfig,
    /// Whether this side makes the requests and measures. Exactly one of the two does.
    pub asks: bool,
    /// Bytes of a request.
    pub request_bytes: u32,
    /// Bytes of a reply.
    pub reply_bytes: u32,
    /// Whether the own messages travel in the WQE.
    pub inline: bool,
    /// How to ring. What is due on a queue pair at a time is announced by one ring.
    pub ring: Ring,
    /// What fences stores before the ring, where the ring does not do so by itself.
    pub fence: Option<FenceScope>,
    /// Requests without a reply per queue pair, at least 1. Higher: more of the round trip is
    /// hidden. More than the peer has receives: it answers some with RNR NAKs.
    pub window: u32,
    /// Every how many messages of a queue pair one is signalled, at most the send queue's size.
    pub signal_every: u32,
    /// Consumed receives that are posted again together. Higher: fewer calls, fewer in reserve.
    pub repost_batch: u32,
    /// Time of the core for each receive before it is posted again. Higher: they come back later.
    pub repost_time: Span,
    /// Completions taken by one poll.
    pub poll_batch: usize,
    /// Time from one poll for receives to the next; `None`: as soon as there is something.
    pub poll_interval: Option<Span>,
    /// Measured requests, at least 1.
    pub iterations: u64,
    /// Requests before the measured ones.
    pub warm_up: u64,
}

impl RequestReplyConfig {
    /// 1,000 64-byte requests and replies, 16 outstanding on one queue pair.
    pub fn to(peer: u32, asks: bool) -> Self {
        Self {
            local: LocalConfig::default(),
            link: LinkConfig::to(peer),
            asks,
            request_bytes: 64,
            reply_bytes: 64,
            inline: false,
            ring: Ring::Auto,
            fence: Some(FenceScope::System),
            window: 16,
            signal_every: 1,
            repost_batch: 1,
            repost_time: Span::ZERO,
            poll_batch: 16,
            poll_interval: None,
            iterations: 1000,
            warm_up: 0,
        }
    }

    /// Bytes of the region that it needs: a place for each send slot, and for each receive.
    pub fn region_bytes(&self) -> u64 {
        let sends = u64::from(self.link.qps) * u64::from(self.link.size.max_send_wr);
        sends * self.shape().stride() + self.receives() * self.receive_stride()
    }

    fn shape(&self) -> Shape {
        let size = if self.asks { self.request_bytes } else { self.reply_bytes };
        Shape { op: Op::Send, size, inline: self.inline }
    }

    /// Bytes of the messages that come.
    fn incoming(&self) -> u32 {
        header_bytes(self.link.ty) + if self.asks { self.reply_bytes } else { self.request_bytes }
    }

    fn receive_stride(&self) -> u64 {
        u64::from(self.incoming()).next_multiple_of(64).max(64)
    }

    /// Receives of all queues.
    fn receives(&self) -> u64 {
        let own = u64::from(self.link.qps) * u64::from(self.link.size.max_recv_wr);
        self.local.srq_depth.map_or(own, u64::from)
    }

    fn total(&self) -> u64 {
        self.warm_up + self.iterations
    }
}

/// A queue pair.
#[derive(Clone, Debug, Default)]
struct Flow {
    /// Messages of this side in all, and those that were sent.
    quota: u64,
    sent: u64,
    /// Each request without a reply, and when it was handed over.
    waiting: VecDeque<(u64, Time)>,
    /// Requests that have no reply yet, at the side that answers.
    owed: VecDeque<u64>,
    /// The request that comes next there, and those before it that have not come: an unreliable
    /// service may bring them later.
    next: u64,
    missed: BTreeSet<u64>,
    /// Consumed receives that wait to be posted again; of a shared queue all are at the first.
    to_post: Vec<RecvWr>,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct RequestReply {
    config: RequestReplyConfig,
    client: Client,
    poster: Poster,
    polled: Completions,
    results: Results,
    flows: Vec<Flow>,
    flow_of: LaneOf,
    up: bool,
    must_fence: Option<FenceScope>,
    /// No poll for receives before.
    next_poll: Time,
    heard: u64,
    sent: u64,
    /// When the first measured request was handed over.
    window_from: Option<Time>,
    /// A message that is written or checked.
    bytes: Vec<u8>,
}

/// Marks the source of replies.
const REPLY: u16 = 1 << 15;

impl RequestReply {
    /// A program that has not started.
    pub fn new(config: RequestReplyConfig) -> Self {
        Self {
            config,
            client: Client::new(config.local, config.link),
            poster: Poster::new(config.shape()),
            polled: Completions::with_capacity(config.poll_batch.max(1)),
            results: Results::default(),
            flows: vec![],
            flow_of: LaneOf::default(),
            up: false,
            must_fence: None,
            next_poll: Time::ZERO,
            heard: 0,
            sent: 0,
            window_from: None,
            bytes: vec![],
        }
    }

    /// What was measured; latencies and the window are of the side that asks, whose bytes are those
    /// of requests and replies.
    pub fn results(&self) -> &Results {
        &self.results
    }

    fn check(&self) -> Result<(), Failure> {
        let c = &self.config;
        if c.window == 0 || c.iterations == 0 || c.repost_batch == 0 {
            return Err(Failure::Config("window, iterations and repost_batch count from 1"));
        }
        if c.signal_every == 0 || c.signal_every > c.link.size.max_send_wr {
            return Err(Failure::Config("signal_every counts from 1 to the send queue's size"));
        }
        let least = c.request_bytes.min(c.reply_bytes) as usize;
        if self.checks() && least < payload::HEADER_BYTES {
            return Err(Failure::Config("only contents of at least 24 bytes can be checked"));
        }
        Ok(())
    }

    /// Whether messages have contents.
    fn checks(&self) -> bool {
        self.config.local.contents == Contents::Data
    }

    fn open<T: Control>(&mut self, t: &mut T) -> Result<Option<Next>, Failure> {
        if self.up {
            return Ok(None);
        }
        self.check()?;
        let c = self.config;
        let first = |t: &mut T, l: &Local, lanes: &[Lane]| {
            let queues = if l.srq.is_some() { &lanes[..1] } else { lanes };
            let each = c.receives() / queues.len() as u64;
            for (lane, i) in queues.iter().zip(0..) {
                let wrs: Result<Vec<_>, _> =
                    (i * each..(i + 1) * each).map(|slot| receive(&c, l, slot)).collect();
                t.post_recv(l.receives_of(lane.qp), &wrs?)?;
            }
            Ok(())
        };
        if let Some(next) = self.client.up(t, first)? {
            return Ok(Some(next));
        }
        self.flow_of = LaneOf::new(self.client.lanes());
        let qps = self.client.lanes().len() as u64;
        let quota = |i: u64| (c.total() + qps - 1 - i) / qps;
        self.flows = (0..qps).map(|i| Flow { quota: quota(i), ..Flow::default() }).collect();
        self.results.checked = self.checks().then(Checked::default);
        self.results.granted = t.qp_caps(self.client.lanes()[0].qp).ok();
        let ordered = self.results.granted.is_none_or(|c| c.ring_orders_stores);
        self.must_fence = c.fence.filter(|_| !ordered);
        self.up = true;
        Ok(None)
    }

    fn run<T: Control>(&mut self, t: &mut T) -> Result<Next, Failure> {
        if let Some(next) = self.open(t)? {
            return Ok(next);
        }
        let (cq, size) = (self.client.local().send_cq, self.poster.shape.size);
        retire_sends(t, cq, &mut self.polled, size, &mut self.results)?;
        let full = self.poll_receives(t)?;
        for i in 0..self.flows.len() {
            self.send(t, i)?;
        }
        let total = self.config.total();
        let answered = self.flows.iter().all(|f| f.owed.is_empty());
        let sent = self.sent >= total && self.results.messages >= self.sent;
        if self.heard >= total && sent && answered {
            return Ok(Next::Done);
        }
        if full {
            return Ok(Next::Again);
        }
        Ok(self.wait(t))
    }

    /// Own completions matter only where slots are short, and at the end.
    fn wait<T: Control>(&self, t: &T) -> Next {
        let local = self.client.local();
        let short =
            |(i, f): (usize, &Flow)| self.due(f) > 0 && t.sq_free(self.client.lanes()[i].qp) == 0;
        let over = self.sent >= self.config.total();
        let sends = over || self.flows.iter().enumerate().any(short);
        let paused = t.now() < self.next_poll;
        let on = if paused { WaitSet::EMPTY } else { WaitSet::cq(local.recv_cq) };
        let on = if sends { on.or(WaitSet::cq(local.send_cq)) } else { on };
        Next::Wait { on, until: paused.then_some(self.next_poll) }
    }

    /// Messages that may be sent on a queue pair if it has room.
    fn due(&self, f: &Flow) -> u64 {
        if self.config.asks {
            let room = u64::from(self.config.window).saturating_sub(f.waiting.len() as u64);
            room.min(f.quota.saturating_sub(f.sent))
        } else {
            f.owed.len() as u64
        }
    }

    /// Takes what has come; whether there may be more.
    fn poll_receives<T: Control>(&mut self, t: &mut T) -> Result<bool, Failure> {
        if t.now() < self.next_poll {
            return Ok(false);
        }
        self.polled.clear();
        t.poll_cq(self.client.local().recv_cq, &mut self.polled)?;
        let full = self.polled.is_full();
        if let (Some(interval), false) = (self.config.poll_interval, full) {
            self.next_poll = t.now() + interval;
        }
        for n in 0..self.polled.as_slice().len() {
            let c = self.polled.as_slice()[n];
            if let Some(f) = failed(&c) {
                return Err(f);
            }
            if let Completion::Recv { wr_id, qp, len, .. } = c {
                let i = self.flow_of.of(qp);
                self.results.receive(len, t.now());
                self.results.bytes +=
                    u64::from(self.config.asks) * u64::from(self.config.reply_bytes);
                let n = self.number(t, i, wr_id)?;
                self.repost(t, i, wr_id)?;
                if let Some(n) = n {
                    self.heard += 1;
                    self.hear(t.now(), i, n);
                }
            }
        }
        Ok(full)
    }

    /// The number of the message of flow `i` in the receive of a slot, none of one that came
    /// before. One that is not right is taken for the one that is due, and counted.
    fn number<T: Control>(
        &mut self,
        t: &mut T,
        i: usize,
        slot: u64,
    ) -> Result<Option<u64>, Failure> {
        let (c, f) = (&self.config, &mut self.flows[i]);
        let due = if c.asks { f.waiting.front().map_or(f.sent, |(n, _)| *n) } else { f.next };
        let Some(checked) = &mut self.results.checked else {
            f.next = due + 1;
            return Ok(Some(due));
        };
        let (header, len) = (header_bytes(c.link.ty), c.incoming());
        self.bytes.resize((len - header) as usize, 0);
        let at = receive_offset(c, slot) + u64::from(header);
        t.copy_out(part(&self.client.local().mr, at, (len - header).into())?, &mut self.bytes)?;
        let source = i as u16 | if c.asks { REPLY } else { 0 };
        let label = payload::read(&self.bytes).map(|(label, _)| label);
        let n = label.filter(|l| l.source == source).map(|l| l.n);
        checked.complete += 1;
        // A reliable service loses nothing without an error, and brings all once and in order.
        let reliable = c.link.ty == QpType::Rc;
        let due_now = |n: u64| match c.asks {
            true => f.waiting.iter().any(|(asked, _)| *asked == n),
            false => n < f.quota && (n >= f.next || f.missed.contains(&n)),
        };
        match n {
            Some(n) if n == due || !reliable && due_now(n) => {
                if !c.asks && !f.missed.remove(&n) {
                    f.missed.extend(f.next..n);
                    f.next = n + 1;
                }
                return Ok(Some(n));
            }
            Some(n) if !reliable && n < f.next.max(f.sent) => return Ok(None),
            _ => {}
        }
        checked.wrong += 1;
        f.next = due + 1;
        Ok(Some(due))
    }

    fn hear(&mut self, now: Time, i: usize, n: u64) {
        let f = &mut self.flows[i];
        if !self.config.asks {
            f.owed.push_back(n);
            return;
        }
        let at = f.waiting.iter().position(|(asked, _)| *asked == n);
        let Some((_, since)) = at.and_then(|at| f.waiting.remove(at)) else { return };
        if self.heard <= self.config.warm_up {
            return;
        }
        self.results.sample(now.since(since), now);
        let messages = self.heard - self.config.warm_up;
        let both = u64::from(self.config.request_bytes) + u64::from(self.config.reply_bytes);
        let from = *self.window_from.get_or_insert(since);
        self.results.window = Some(Window { from, to: now, messages, bytes: messages * both });
    }

    /// The receive in `slot` was consumed by a message of flow `i`.
    fn repost<T: Control>(&mut self, t: &mut T, i: usize, slot: u64) -> Result<(), Failure> {
        let local = *self.client.local();
        let wr = receive(&self.config, &local, slot)?;
        let queue = local.receives_of(self.client.lanes()[i].qp);
        let (at, queues) = if local.srq.is_some() { (0, 1) } else { (i, self.flows.len() as u64) };
        // A batch that is larger than the queue would never be full.
        let all = self.config.receives() / queues;
        let f = &mut self.flows[at];
        f.to_post.push(wr);
        if (f.to_post.len() as u64) < u64::from(self.config.repost_batch).min(all) {
            return Ok(());
        }
        if self.config.repost_time > Span::ZERO {
            t.compute(self.config.repost_time * f.to_post.len() as u64);
        }
        t.post_recv(queue, &f.to_post)?;
        f.to_post.clear();
        Ok(())
    }

    /// Sends what is due and has room; one ring for all, or for what can be staged at a time.
    fn send<T: Control>(&mut self, t: &mut T, i: usize) -> Result<(), Failure> {
        let qp = self.client.lanes()[i].qp;
        let mut count = self.due(&self.flows[i]).min(t.sq_free(qp).into());
        let mut staged = 0;
        while count > 0 {
            let since = t.now();
            match self.stage(t, i) {
                Ok(()) => {
                    self.sent(since, i);
                    (count, staged) = (count - 1, staged + 1);
                }
                Err(Failure::Stage(StageError::StagedFull)) if staged > 0 => {
                    self.ring(t, qp)?;
                    staged = 0;
                }
                Err(f) => return Err(f),
            }
        }
        if staged > 0 { self.ring(t, qp) } else { Ok(()) }
    }

    fn stage<T: Control>(&mut self, t: &mut T, i: usize) -> Result<(), Failure> {
        let (lane, mr, f) = (self.client.lanes()[i], self.client.local().mr, &self.flows[i]);
        let label = match f.owed.front() {
            Some(n) => Label { source: i as u16 | REPLY, n: *n },
            None => Label { source: i as u16, n: f.sent },
        };
        let (n, every) = (f.sent, u64::from(self.config.signal_every));
        // What comes twice is answered beyond the quota.
        let signal = n + 1 >= f.quota || (n + 1).is_multiple_of(every);
        let flags = if signal { SendFlags::SIGNALED } else { SendFlags::empty() };
        let depth = u64::from(self.config.link.size.max_send_wr);
        let offset = (i as u64 * depth + n % depth) * self.poster.shape.stride();
        if self.checks() {
            let (now, shape) = (t.now(), self.poster.shape);
            if shape.inline {
                payload::write(self.poster.inline_bytes(), label, now);
            } else {
                self.bytes.resize(shape.size as usize, 0);
                payload::write(&mut self.bytes, label, now);
                t.copy_in(part(&mr, offset, shape.size.into())?, &self.bytes)?;
            }
        }
        self.poster.stage(t, &lane, &mr, Message { wr_id: n, n, offset, flags })
    }

    /// A message of a queue pair was staged.
    fn sent(&mut self, now: Time, i: usize) {
        self.results.first.get_or_insert(now);
        if self.config.asks {
            if self.sent == self.config.warm_up {
                self.window_from = Some(now);
            }
            let n = self.flows[i].sent;
            self.flows[i].waiting.push_back((n, now));
        } else {
            self.flows[i].owed.pop_front();
        }
        self.flows[i].sent += 1;
        self.sent += 1;
    }

    fn ring<T: Control>(&mut self, t: &mut T, qp: QpId) -> Result<(), Failure> {
        if let Some(scope) = self.must_fence {
            t.fence(scope);
        }
        t.ring(qp, self.config.ring)?;
        self.results.rings += 1;
        Ok(())
    }
}

/// Where the receive of a slot is: behind the places of the send slots.
fn receive_offset(c: &RequestReplyConfig, slot: u64) -> u64 {
    let sends = u64::from(c.link.qps) * u64::from(c.link.size.max_send_wr);
    sends * c.shape().stride() + slot * c.receive_stride()
}

fn receive(c: &RequestReplyConfig, local: &Local, slot: u64) -> Result<RecvWr, Failure> {
    let sge = element(&local.mr, receive_offset(c, slot), c.incoming())?;
    Ok(RecvWr { wr_id: slot, sge })
}

impl Program for RequestReply {
    fn step<T: Control>(&mut self, t: &mut T) -> Next {
        self.run(t).unwrap_or_else(|f| {
            self.results.failure = Some(f);
            Next::Done
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use doorbell_core::ideal::{Ideal, run};
    use doorbell_core::verbs::QpType;

    fn play(change: impl Fn(&mut RequestReplyConfig)) -> (Results, Results) {
        let side = |peer, asks| {
            let mut c = RequestReplyConfig::to(peer, asks);
            change(&mut c);
            c.local.region_bytes = c.region_bytes();
            RequestReply::new(c)
        };
        let (mut a, mut b) = (side(1, true), side(0, false));
        run(&mut Ideal::new(2), &mut [&mut a, &mut b]).unwrap();
        (a.results, b.results)
    }

    #[test]
    fn every_request_has_its_reply() {
        for ty in [QpType::Rc, QpType::Uc, QpType::Ud] {
            for (qps, window, signal_every) in [(1, 1, 1), (1, 128, 7), (3, 16, 128), (16, 2, 1)] {
                let (a, b) = play(|c| {
                    (c.link.ty, c.link.qps) = (ty, qps);
                    (c.window, c.signal_every) = (window, signal_every);
                    (c.request_bytes, c.reply_bytes) = (24, 1000);
                    (c.iterations, c.warm_up) = (500, 11);
                });
                assert_eq!((a.failure, b.failure), (None, None), "{ty:?} {qps} {window}");
                assert_eq!((a.messages, b.messages, a.received, b.received), (511, 511, 511, 511));
                assert_eq!((a.latencies.len(), b.latencies.len()), (500, 0));
                assert_eq!((a.bytes, b.bytes), (511 * 1024, 511 * 1000));
                let w = a.window.unwrap();
                assert_eq!((w.messages, w.bytes), (500, 500 * 1024));
            }
        }
    }

    #[test]
    fn a_shared_queue_serves_all_queue_pairs() {
        for repost_batch in [1, 7, 1000] {
            let (a, b) = play(|c| {
                (c.link.qps, c.window, c.repost_batch) = (8, 4, repost_batch);
                c.local.srq_depth = Some(64);
            });
            assert_eq!((a.failure, b.failure), (None, None), "{repost_batch}");
            assert_eq!((a.received, b.received), (1000, 1000));
        }
    }

    /// A window of one is a ping-pong: it rings once for each message.
    #[test]
    fn a_window_of_one_rings_for_each_message() {
        let (a, b) = play(|c| c.window = 1);
        assert_eq!((a.rings, b.rings), (1000, 1000));
        let (a, _) = play(|c| c.window = 64);
        assert!(a.rings < 1000, "{}", a.rings);
    }

    #[test]
    fn what_could_never_end_is_refused() {
        let wrong: [fn(&mut RequestReplyConfig); 4] = [
            |c| c.window = 0,
            |c| c.iterations = 0,
            |c| c.signal_every = 129,
            |c| c.repost_batch = 0,
        ];
        for change in wrong {
            let (a, b) = play(change);
            assert!(matches!(a.failure, Some(Failure::Config(_))), "{:?}", a.failure);
            assert!(matches!(b.failure, Some(Failure::Config(_))), "{:?}", b.failure);
        }
    }
}
