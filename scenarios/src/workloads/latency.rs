//! One message at a time: post, ring, wait for its completion.
//!
//! A latency is the time from the call that stages the message to the poll that sees its
//! completion. For a WRITE or SEND on RC it holds the acknowledgement: a one-sided round trip.

use doorbell_core::transport::{Completions, Control, FenceScope, Next, Program, Ring, WaitSet};
use doorbell_core::units::{Span, Time};
use doorbell_core::verbs::SendFlags;

use super::common::{Failure, Message, Poster, Results, Shape, Window, failed};
use super::connect::{Client, LinkConfig, LocalConfig, publish_done};

/// Configuration of [`Latency`].
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct LatencyConfig {
    /// Own memory and queues.
    pub local: LocalConfig,
    /// The link; only its first QP is used.
    pub link: LinkConfig,
    /// The message.
    pub shape: Shape,
    /// How to ring. BlueFlame saves the NIC one PCIe read of the WQE.
    pub ring: Ring,
    /// What fences stores before the ring, where the ring does not do so by itself (GPU
    /// blocks). Without it the NIC may read a WQE or payload that is not there yet.
    pub fence: Option<FenceScope>,
    /// Measured messages, at least 1.
    pub iterations: u64,
    /// Messages before the measured ones: they fill the NIC's caches.
    pub warm_up: u64,
    /// Pause between a completion and the next post. Longer: nothing of the last message is left
    /// in any queue; caches and power states may cool down.
    pub think: Span,
}

impl LatencyConfig {
    /// 1,000 8-byte WRITEs after 16 for warming up, `Auto` ring, no pause.
    pub fn to(peer: u32) -> Self {
        Self {
            local: LocalConfig::default(),
            link: LinkConfig::to(peer),
            shape: Shape::default(),
            ring: Ring::Auto,
            fence: Some(FenceScope::System),
            iterations: 1000,
            warm_up: 16,
            think: Span::ZERO,
        }
    }
}

/// See the module. The peer is a [`Responder`](super::Responder).
#[derive(Clone, Debug)]
pub struct Latency {
    config: LatencyConfig,
    client: Client,
    poster: Poster,
    polled: Completions,
    results: Results,
    up: bool,
    /// Whether the ring leaves the ordering of stores to us.
    must_fence: Option<FenceScope>,
    /// Messages posted.
    posted: u64,
    /// When the outstanding message was handed over.
    since: Option<Time>,
    /// When the pause ends.
    rest_until: Time,
    window_from: Option<Time>,
}

impl Latency {
    /// A program that has not started.
    pub fn new(config: LatencyConfig) -> Self {
        Self {
            config,
            client: Client::new(config.local, config.link),
            poster: Poster::new(config.shape),
            polled: Completions::with_capacity(16),
            results: Results::default(),
            up: false,
            must_fence: None,
            posted: 0,
            since: None,
            rest_until: Time::ZERO,
            window_from: None,
        }
    }

    /// What was measured; latencies from post to completion.
    pub fn results(&self) -> &Results {
        &self.results
    }

    fn run<T: Control>(&mut self, t: &mut T) -> Result<Next, Failure> {
        if !self.up {
            if let Some(next) = self.client.up(t, |_, _, _| Ok(()))? {
                return Ok(next);
            }
            self.client.require(self.config.shape.bytes().into())?;
            self.results.granted = t.qp_caps(self.client.lanes()[0].qp).ok();
            let ordered = self.results.granted.is_none_or(|c| c.ring_orders_stores);
            self.must_fence = self.config.fence.filter(|_| !ordered);
            self.up = true;
        }
        let cq = self.client.local().send_cq;
        self.polled.clear();
        t.poll_cq(cq, &mut self.polled)?;
        if let Some(f) = self.polled.as_slice().iter().find_map(failed) {
            return Err(f);
        }
        if let (Some(since), false) = (self.since, self.polled.as_slice().is_empty()) {
            self.complete(t.now(), since);
        }
        if self.since.is_some() {
            return Ok(Next::Wait { on: WaitSet::cq(cq), until: None });
        }
        if self.posted == self.config.warm_up + self.config.iterations {
            publish_done(t, self.client.peer(), self.receives());
            return Ok(Next::Done);
        }
        if t.now() < self.rest_until {
            return Ok(Next::Wait { on: WaitSet::EMPTY, until: Some(self.rest_until) });
        }
        self.post(t)?;
        Ok(Next::Wait { on: WaitSet::cq(cq), until: None })
    }

    fn complete(&mut self, now: Time, since: Time) {
        self.since = None;
        self.rest_until = now + self.config.think;
        self.results.completed(1, self.config.shape.bytes(), now);
        if self.results.messages <= self.config.warm_up {
            return;
        }
        self.results.sample(now.since(since), now);
        let messages = self.results.messages - self.config.warm_up;
        let from = *self.window_from.get_or_insert(since);
        let bytes = messages * u64::from(self.config.shape.bytes());
        self.results.window = Some(Window { from, to: now, messages, bytes });
    }

    fn post<T: Control>(&mut self, t: &mut T) -> Result<(), Failure> {
        let lane = self.client.lanes()[0];
        let now = t.now();
        let mr = self.client.local().mr;
        let (wr_id, flags) = (self.posted, SendFlags::SIGNALED);
        self.poster.stage(t, &lane, &mr, Message { wr_id, n: wr_id, offset: 0, flags })?;
        if let Some(scope) = self.must_fence {
            t.fence(scope);
        }
        t.ring(lane.qp, self.config.ring)?;
        self.results.first.get_or_insert(now);
        self.results.rings += 1;
        self.since = Some(now);
        self.posted += 1;
        Ok(())
    }

    fn receives(&self) -> u64 {
        if self.config.shape.op.takes_receive() { self.results.messages } else { 0 }
    }
}

impl Program for Latency {
    fn step<T: Control>(&mut self, t: &mut T) -> Next {
        self.run(t).unwrap_or_else(|f| {
            self.results.failure = Some(f);
            publish_done(t, self.client.peer(), self.receives());
            Next::Done
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::common::Op;
    use super::super::responder::{Responder, ResponderConfig};
    use super::*;
    use doorbell_core::ideal::{Ideal, run};
    use doorbell_core::transport::Contents;
    use doorbell_core::verbs::QpType;

    fn pair(config: LatencyConfig) -> (Latency, Responder) {
        let (mut a, mut b) = (Latency::new(config), {
            let mut r = ResponderConfig::to(0);
            r.links[0].link.ty = config.link.ty;
            Responder::new(r)
        });
        run(&mut Ideal::new(2), &mut [&mut a, &mut b]).unwrap();
        (a, b)
    }

    #[test]
    fn every_operation_is_measured_once_per_iteration() {
        for op in
            [Op::Send, Op::SendImm, Op::Write, Op::WriteImm, Op::Read, Op::CmpSwap, Op::FetchAdd]
        {
            let mut c = LatencyConfig::to(1);
            (c.shape.op, c.iterations, c.warm_up) = (op, 300, 7);
            let (a, b) = pair(c);
            let r = a.results();
            assert_eq!(r.failure, None, "{op:?}");
            assert_eq!((r.latencies.len(), r.messages, r.rings), (300, 307, 307), "{op:?}");
            assert_eq!(r.window.unwrap().messages, 300);
            let received = if op.takes_receive() { 307 } else { 0 };
            assert_eq!((b.results().received, b.results().failure), (received, None));
        }
    }

    #[test]
    fn the_pause_passes_between_messages() {
        let mut c = LatencyConfig::to(1);
        (c.iterations, c.warm_up, c.think) = (5, 0, Span::from_us(3));
        let (a, _) = pair(c);
        let r = a.results();
        assert_eq!(r.last.unwrap().since(r.first.unwrap()), Span::from_us(12));
        assert!(r.latencies.iter().all(|l| *l == Span::ZERO));
    }

    #[test]
    fn virtual_memory_and_inline_both_work() {
        for (contents, inline) in [(Contents::Virtual, false), (Contents::Data, true)] {
            let mut c = LatencyConfig::to(1);
            (c.local.contents, c.shape.inline, c.iterations) = (contents, inline, 10);
            c.link.size.max_inline = 8;
            assert_eq!(pair(c).0.results().failure, None);
        }
    }

    #[test]
    fn what_is_refused_ends_with_its_name() {
        let mut c = LatencyConfig::to(1);
        (c.shape.inline, c.shape.size, c.link.size.max_inline) = (true, 9, 8);
        let (a, b) = pair(c);
        let text = a.results().failure.unwrap().to_string();
        assert_eq!(text, "stage: 9 inline bytes, 8 were granted at creation");
        assert_eq!(b.results().failure, None);
        let mut c = LatencyConfig::to(1);
        c.local.region_bytes = 4096;
        c.shape.size = 4097;
        let failure = pair(c).0.results().failure;
        assert_eq!(failure, Some(Failure::OwnRegion { got: 4096, need: 4097 }));
        let mut c = LatencyConfig::to(1);
        c.link.ty = QpType::Uc;
        c.shape.op = Op::Read;
        assert!(matches!(pair(c).0.results().failure, Some(Failure::Stage(_))));
    }

    /// Publishes nothing, and ends at the given time.
    struct Silent(Time);

    impl Program for Silent {
        fn step<T: Control>(&mut self, t: &mut T) -> Next {
            if t.now() >= self.0 {
                return Next::Done;
            }
            Next::Wait { on: WaitSet::EMPTY, until: Some(self.0) }
        }
    }

    #[test]
    fn a_silent_peer_is_named_after_the_deadline_or_when_it_has_ended() {
        let silent = "rank 1 did not publish its endpoint before the deadline";
        let ended = "bootstrap: rank 1 has ended without publishing that";
        for (ms, text, took) in [(2000, silent, 2000), (10, ended, 10)] {
            let mut a = Latency::new(LatencyConfig::to(1));
            let mut peer = Silent(Time::ZERO + Span::from_ms(ms));
            let mut world = Ideal::new(2);
            run(&mut world, &mut [&mut a, &mut peer]).unwrap();
            assert_eq!(a.results().failure.unwrap().to_string(), text);
            assert_eq!(world.now().since(Time::ZERO), Span::from_ms(took));
        }
    }

    #[test]
    fn an_absent_peer_is_named_at_once() {
        let mut a = Latency::new(LatencyConfig::to(1));
        let mut world = Ideal::new(1);
        run(&mut world, &mut [&mut a]).unwrap();
        let text = a.results().failure.unwrap().to_string();
        assert_eq!(text, "bootstrap: there is no rank 1: the run has 1, numbered from 0");
        assert_eq!(world.now(), Time::ZERO);
    }
}
