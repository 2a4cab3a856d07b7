//! The passive side: offers memory, keeps receives posted, ends when every peer says so.

use doorbell_core::transport::{
    Completion, Completions, Contents, Control, MemKind, Mr, Next, PostRecvCause, PostRecvError,
    Program, QpId, RecvQueue, RecvWr, WaitSet,
};
use doorbell_core::units::{Span, Time};
use doorbell_core::verbs::{AsyncEventKind, GRH_BYTES, QpType, WcOpcode};

use super::common::{Failure, Results, failed};
use super::connect::{
    Connect, LinkConfig, Local, LocalConfig, Progress, ReceiveOrder, Target, Topic, key,
    lookup_done,
};
use super::overrides::{StateOrder, transition};
use super::protect::{DeregOrder, Spare};

/// One peer of a responder.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct ResponderLink {
    /// The link; `qps` and `ty` as at the peer.
    pub link: LinkConfig,
    /// Receives kept posted per QP. Too few for a burst: the peer gets RNR NAKs (RC) or loses
    /// messages (UC, UD). 0: none, for peers that only WRITE, READ or do ATOMICs.
    pub receives: u32,
    /// Whether consumed receives are posted again. Without it the QP takes `receives` messages
    /// and no more.
    pub refill: bool,
}

/// When receives that were consumed go back to a shared receive queue.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum SrqRepost {
    /// By [`ResponderConfig::repost_batch`], as with queues of the QPs' own.
    #[default]
    Batch,
    /// All together when the limit event has come; the limit is armed again behind them.
    AtLimit,
}

/// How a responder uses the shared receive queue of [`LocalConfig::srq_depth`].
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct SrqUse {
    /// Armed limit: an event comes when fewer receives are posted. 0: none. It is armed again with
    /// each post behind an event.
    pub limit: u32,
    /// When receives go back.
    pub repost: SrqRepost,
}

/// Configuration of [`Responder`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ResponderConfig {
    /// Memory and completion queues of this program; `region_bytes` for each link.
    pub local: LocalConfig,
    /// Its peers.
    pub links: Vec<ResponderLink>,
    /// Bytes of each receive buffer, the largest message that can be received.
    pub receive_bytes: u32,
    /// Whether receive buffers carry bytes.
    pub receive_contents: Contents,
    /// Consumed receives that are posted again at a time. Higher: fewer doorbell record updates,
    /// fewer receives in reserve.
    pub repost_batch: u32,
    /// Completions taken by one poll. Higher: fewer polls, longer until the first is handled.
    pub poll_batch: usize,
    /// Time from one poll to the next; `None`: as soon as there is something. Longer: receives
    /// come back later and in bursts.
    pub poll_interval: Option<Span>,
    /// Sleeps until a solicited receive or an error comes; other receives wait for it. Without,
    /// every receive wakes.
    pub solicited_only: bool,
    /// Serves a script: errors of receives are a part of the show, and the results say which
    /// statuses came.
    pub for_script: bool,
    /// Tells the peers of a region of another protection domain, and of one that is gone.
    pub spare: bool,
    /// Time that the core spends on each receive buffer before it posts it again: taking the
    /// message out of it, or making a new one. Higher: receives come back later.
    pub repost_time: Span,
    /// Limit and policy of the shared receive queue, if there is one. It is filled to its depth
    /// instead of the queues of the links, whose `receives` then have no meaning but none at all,
    /// and is posted again if the first link says so.
    pub srq: SrqUse,
}

impl ResponderConfig {
    /// One RC link with 64 receives of 4 KiB, reposted one by one, 16 completions per poll.
    pub fn to(peer: u32) -> Self {
        Self {
            local: LocalConfig::default(),
            links: vec![ResponderLink { link: LinkConfig::to(peer), receives: 64, refill: true }],
            receive_bytes: 4096,
            receive_contents: Contents::Data,
            repost_batch: 1,
            poll_batch: 16,
            poll_interval: None,
            solicited_only: false,
            for_script: false,
            spare: false,
            repost_time: Span::ZERO,
            srq: SrqUse::default(),
        }
    }
}

/// Id of receives that a script has asked for: they are not posted again.
const ORDERED: u64 = u64::MAX >> 1;

const UNKNOWN_QP: Failure = Failure::Config("the script names an unknown QP");

/// The receives of a QP or of the SRQ: how many, and those that wait to be posted again.
#[derive(Clone, Debug)]
struct Receives {
    queue: RecvQueue,
    count: u32,
    to_post: Vec<RecvWr>,
}

/// See the module. `received` counts what came by receives.
#[derive(Clone, Debug)]
pub struct Responder {
    config: ResponderConfig,
    local: Option<Local>,
    receive_mr: Option<Mr>,
    links: Vec<Connect>,
    receives: Vec<Receives>,
    /// Orders carried out, per link: receives, states, deregistrations.
    obeyed: Vec<u32>,
    moved: Vec<u32>,
    deregs: Vec<u32>,
    spare: Spare,
    /// When the region is to be deregistered: time, link, number of the order.
    dereg_at: Vec<(Time, usize, u32)>,
    /// When it will act by itself.
    due: Option<Time>,
    /// No poll before.
    next_poll: Time,
    /// A limit event has come, and nothing was posted since.
    low: bool,
    polled: Completions,
    results: Results,
}

impl Responder {
    /// A program that has not started.
    pub fn new(config: ResponderConfig) -> Self {
        let links: Vec<_> = config.links.iter().map(|l| Connect::new(l.link)).collect();
        let polled = Completions::with_capacity(config.poll_batch.max(1));
        Self {
            config,
            local: None,
            receive_mr: None,
            obeyed: vec![0; links.len()],
            moved: vec![0; links.len()],
            deregs: vec![0; links.len()],
            spare: Spare::default(),
            dereg_at: vec![],
            due: None,
            links,
            receives: vec![],
            next_poll: Time::ZERO,
            low: false,
            polled,
            results: Results::default(),
        }
    }

    /// What was received.
    pub fn results(&self) -> &Results {
        &self.results
    }

    fn open<T: Control>(&mut self, t: &mut T) -> Result<Local, Failure> {
        let c = &self.config;
        let region_bytes = c.local.region_bytes * c.links.len() as u64;
        let local = Local::open(t, &LocalConfig { region_bytes, ..c.local })?;
        let own: u64 = c.links.iter().map(|l| u64::from(l.receives) * u64::from(l.link.qps)).sum();
        let slots = c.local.srq_depth.map_or(own, |depth| if own > 0 { depth.into() } else { 0 });
        if slots > 0 {
            let (len, kind) = (slots * self.slot_bytes(), self.receive_memory());
            let contents = c.receive_contents;
            self.receive_mr = Some(t.alloc_mr(local.pd, len, kind, c.local.access, contents)?);
        }
        for l in c.links.iter().filter(|_| c.spare) {
            self.spare.publish(t, l.link.peer, (local.pd, local.mr))?;
        }
        self.local = Some(local);
        if let (Some(srq), Some(depth)) = (local.srq, c.local.srq_depth) {
            let datagram = c.links.iter().any(|l| l.link.ty == QpType::Ud);
            let limit = c.srq.limit;
            if slots > 0 {
                self.fill_queue(t, RecvQueue::Srq(srq), 0, depth, datagram)?;
            }
            if limit > 0 {
                t.arm_srq(srq, limit)?;
            }
        }
        Ok(local)
    }

    /// Posts the first `count` receives of a queue, in the slots from `first_slot` on.
    fn fill_queue<T: Control>(
        &mut self,
        t: &mut T,
        queue: RecvQueue,
        first_slot: u64,
        count: u32,
        datagram: bool,
    ) -> Result<(), Failure> {
        let slots = first_slot..first_slot + u64::from(count);
        let wrs: Vec<_> = slots.map(|s| self.receive_wr(s, datagram)).collect();
        t.post_recv(queue, &wrs)?;
        let to_post = Vec::with_capacity(count as usize);
        self.receives.push(Receives { queue, count, to_post });
        Ok(())
    }

    fn receive_memory(&self) -> MemKind {
        self.config.local.memory
    }

    fn slot_bytes(&self) -> u64 {
        u64::from(self.config.receive_bytes + GRH_BYTES).next_multiple_of(64)
    }

    fn receive_wr(&self, slot: u64, datagram: bool) -> RecvWr {
        let header = if datagram { GRH_BYTES } else { 0 };
        let mr = self.receive_mr.expect("there are receives");
        let sge = mr.sge(slot * self.slot_bytes(), self.config.receive_bytes + header);
        RecvWr { wr_id: slot, sge: sge.expect("sized by open") }
    }

    /// Posts the first receives of link `i`, whose QPs are in RTS.
    fn fill<T: Control>(&mut self, t: &mut T, i: usize) -> Result<(), Failure> {
        let (n, ty) = (self.config.links[i].receives, self.config.links[i].link.ty);
        if n == 0 || self.config.local.srq_depth.is_some() {
            return Ok(());
        }
        let slots_of = |l: &ResponderLink| u64::from(l.receives) * u64::from(l.link.qps);
        let mut first_slot: u64 = self.config.links[..i].iter().map(slots_of).sum();
        for lane in self.links[i].lanes().to_vec() {
            let queue = RecvQueue::Qp(lane.qp);
            self.fill_queue(t, queue, first_slot, n, ty == QpType::Ud)?;
            first_slot += u64::from(n);
        }
        Ok(())
    }

    fn owns(&self, link: usize, qp: QpId) -> bool {
        self.links[link].lanes().iter().any(|l| l.qp == qp)
    }

    /// Connects what is not connected; what to wait for, if anything.
    fn connect<T: Control>(&mut self, t: &mut T) -> Result<Option<Next>, Failure> {
        let local = match self.local {
            Some(l) => l,
            None => self.open(t)?,
        };
        let mut wait = None;
        for i in 0..self.links.len() {
            let part = self.config.local.region_bytes;
            let offer = Target::part_of(&local.mr, i as u64 * part, part);
            let mut progress = self.links[i].step(t, &local, offer)?;
            if progress == Progress::Linked {
                self.fill(t, i)?;
                self.links[i].announce(t);
                progress = self.links[i].step(t, &local, offer)?;
            }
            if let Progress::Wait(next) = progress {
                wait = Some(earlier(wait, next));
            }
        }
        Ok(wait)
    }

    fn drain<T: Control>(&mut self, t: &mut T, local: &Local) -> Result<bool, Failure> {
        self.polled.clear();
        if t.now() < self.next_poll {
            return Ok(false);
        }
        t.poll_cq(local.recv_cq, &mut self.polled)?;
        if let (Some(interval), false) = (self.config.poll_interval, self.polled.is_full()) {
            self.next_poll = t.now() + interval;
        }
        for i in 0..self.polled.as_slice().len() {
            let c = self.polled.as_slice()[i];
            // Receives are flushed when a peer's mistake puts its QP into ERR: the first status is
            // reported, and the other peers are served on.
            if self.config.for_script {
                self.results.statuses.add(&c);
            } else {
                self.results.failure = self.results.failure.or(failed(&c));
            }
            if let Completion::Recv { wr_id, qp, len, op, .. } = c {
                let now = t.now();
                self.results.first.get_or_insert(now);
                self.results.receive(len, now);
                if wr_id != ORDERED {
                    self.repost(t, qp, wr_id, if op == WcOpcode::Recv { len } else { 0 })?;
                }
            }
        }
        if self.low && self.config.srq.repost == SrqRepost::AtLimit {
            self.post_again(t, 0)?;
        }
        Ok(self.polled.is_full())
    }

    /// Takes note of limit events.
    fn look<T: Control>(&mut self, t: &mut T) {
        if self.config.srq.limit == 0 {
            return;
        }
        while let Some(event) = t.next_event() {
            let low = event.kind == AsyncEventKind::SrqLimitReached;
            self.results.srq_limits += u64::from(low);
            self.low |= low;
        }
    }

    /// The receive in `slot` was consumed by a message that filled `used` bytes of it.
    fn repost<T: Control>(
        &mut self,
        t: &mut T,
        qp: QpId,
        slot: u64,
        used: u32,
    ) -> Result<(), Failure> {
        let shared = self.local.is_some_and(|l| l.srq.is_some());
        let i = (0..self.links.len()).find(|&i| shared || self.owns(i, qp)).expect("ours");
        let wr = self.receive_wr(slot, self.config.links[i].link.ty == QpType::Ud);
        self.results.wasted_bytes += u64::from(wr.sge.len.saturating_sub(used));
        if !self.config.links[i].refill {
            return Ok(());
        }
        let queue = self.local.expect("connected").receives_of(qp);
        let at = self.receives.iter().position(|r| r.queue == queue).expect("it has receives");
        let r = &mut self.receives[at];
        r.to_post.push(wr);
        let batch = match self.config.srq.repost {
            SrqRepost::AtLimit if shared => u32::MAX,
            _ => self.config.repost_batch.min(r.count),
        };
        if r.to_post.len() as u32 >= batch { self.post_again(t, at) } else { Ok(()) }
    }

    /// Posts what was consumed of queue `at`, and arms the limit again after an event.
    fn post_again<T: Control>(&mut self, t: &mut T, at: usize) -> Result<(), Failure> {
        let Some(r) = self.receives.get_mut(at).filter(|r| !r.to_post.is_empty()) else {
            return Ok(());
        };
        if self.config.repost_time > Span::ZERO {
            t.compute(self.config.repost_time * r.to_post.len() as u64);
        }
        // The event comes when a receive is taken. Armed behind the post, the limit would be passed
        // unseen by messages that take what was posted at once, and no event would ever come.
        if let (true, RecvQueue::Srq(srq)) = (self.low, r.queue) {
            t.arm_srq(srq, self.config.srq.limit)?;
            self.low = false;
        }
        t.post_recv(r.queue, &r.to_post)?;
        r.to_post.clear();
        Ok(())
    }

    /// Posts the receives that scripts ask for, from the region that is offered to them.
    fn obey<T: Control>(&mut self, t: &mut T, local: &Local) -> Result<(), Failure> {
        for i in 0..self.links.len() {
            let peer = self.config.links[i].link.peer;
            while let Some(order) = ReceiveOrder::lookup(t, peer, self.obeyed[i]) {
                let lane = self.links[i].lanes().get(order.qp as usize);
                let qp = lane.ok_or(UNKNOWN_QP)?.qp;
                let mr = self.spare.of_receives(t, order.buffer, (local.pd, local.mr))?;
                let sge = mr.sge(i as u64 * self.config.local.region_bytes, order.bytes);
                let (got, need) = (local.mr.len, order.bytes.into());
                let sge = sge.ok_or(Failure::OwnRegion { got, need })?;
                let wrs = vec![RecvWr { wr_id: ORDERED, sge }; order.count as usize];
                let refused = match t.post_recv(local.receives_of(qp), &wrs) {
                    Ok(()) => None,
                    // The script's mistake, and its step says so.
                    Err(PostRecvError { posted: 0, cause: PostRecvCause::BadState(s) }) => Some(s),
                    Err(e) => return Err(e.into()),
                };
                ReceiveOrder::confirm(t, peer, self.obeyed[i], refused);
                self.obeyed[i] += 1;
            }
        }
        Ok(())
    }

    /// Moves QPs as scripts ask for it.
    fn move_qps<T: Control>(&mut self, t: &mut T) -> Result<(), Failure> {
        for i in 0..self.links.len() {
            let peer = self.config.links[i].link.peer;
            while let Some(order) = StateOrder::lookup(t, peer, self.moved[i]) {
                let link = &self.links[i];
                let known = link.lanes().get(order.qp as usize).zip(link.steps(order.qp));
                let (lane, steps) = known.ok_or(UNKNOWN_QP)?;
                let from = t.qp_state(lane.qp).ok();
                let (attr, mask) = transition(from, order.to, steps, &order.set);
                let done = t.modify_qp(lane.qp, &attr, mask).is_ok();
                StateOrder::confirm(t, peer, self.moved[i], done);
                self.moved[i] += 1;
            }
        }
        Ok(())
    }

    /// Deregisters the region that is offered, when scripts say so. A second time changes nothing.
    fn obey_dereg<T: Control>(&mut self, t: &mut T, local: &Local) {
        for i in 0..self.links.len() {
            let peer = self.config.links[i].link.peer;
            while let Some(order) = DeregOrder::lookup(t, peer, self.deregs[i]) {
                self.dereg_at.push((order.at, i, self.deregs[i]));
                self.deregs[i] += 1;
            }
        }
        for (at, i, n) in std::mem::take(&mut self.dereg_at) {
            if at > t.now() {
                self.dereg_at.push((at, i, n));
                continue;
            }
            let _ = t.dereg_mr(local.mr.id);
            let peer = self.config.links[i].link.peer;
            t.publish(key(Topic::Deregistered, peer, n), &[]);
        }
    }

    /// Whether every peer is done and, on RC, everything that it sent was seen.
    fn finished<T: Control>(&self, t: &mut T) -> Result<bool, Failure> {
        let mut expected = 0;
        for l in &self.config.links {
            let Some(n) = lookup_done(t, l.link.peer)? else { return Ok(false) };
            expected += if l.link.ty == QpType::Rc { n } else { 0 };
        }
        let failed = self.results.failure.is_some() || self.results.statuses.failed();
        Ok(self.results.received >= expected || failed)
    }

    fn run<T: Control>(&mut self, t: &mut T) -> Result<Next, Failure> {
        // A queue may be waited for only if it was polled in this step.
        let polled = self.local.is_some();
        self.look(t);
        let full = match self.local {
            Some(local) => self.drain(t, &local)?,
            None => false,
        };
        let connecting = self.connect(t)?;
        if full || (connecting.is_none() && !polled) {
            return Ok(Next::Again);
        }
        let local = self.local.expect("connect opened it");
        if connecting.is_none() {
            self.obey(t, &local)?;
            self.move_qps(t)?;
            self.obey_dereg(t, &local);
            if self.finished(t)? {
                return Ok(Next::Done);
            }
        }
        let connected_by = match connecting {
            Some(Next::Wait { until, .. }) => until,
            _ => None,
        };
        let poll = self.config.poll_interval.map(|_| self.next_poll);
        let on = match poll {
            None if polled && self.config.solicited_only => {
                WaitSet::solicited(local.recv_cq).or(WaitSet::BOOTSTRAP)
            }
            None if polled => WaitSet::cq(local.recv_cq).or(WaitSet::BOOTSTRAP),
            _ => WaitSet::BOOTSTRAP,
        };
        let on = if self.config.srq.limit > 0 { on.or(WaitSet::EVENTS) } else { on };
        let dereg = self.dereg_at.iter().map(|(at, ..)| *at).min();
        self.due = [connected_by, dereg].into_iter().flatten().min();
        let until = [self.due, poll].into_iter().flatten().min();
        Ok(Next::Wait { on, until })
    }
}

/// The wait with the earlier deadline.
fn earlier(a: Option<Next>, b: Next) -> Next {
    match (a, b) {
        (Some(a @ Next::Wait { until: Some(x), .. }), Next::Wait { until: Some(y), .. })
            if x <= y =>
        {
            a
        }
        _ => b,
    }
}

impl Program for Responder {
    fn step<T: Control>(&mut self, t: &mut T) -> Next {
        self.run(t).unwrap_or_else(|f| {
            self.results.failure = Some(f);
            Next::Done
        })
    }

    fn acts_at(&self) -> Option<Time> {
        self.due
    }
}

#[cfg(test)]
mod tests {
    use super::super::common::Op;
    use super::super::latency::{Latency, LatencyConfig};
    use super::super::rate::{Rate, RateConfig, Stop};
    use super::*;
    use doorbell_core::ideal::{Ideal, Stalled, run};
    use doorbell_core::verbs::QpType;

    fn sends(peer: u32, ty: QpType) -> RateConfig {
        let mut c = RateConfig { stop: Stop::Messages(1000), ..RateConfig::to(peer) };
        (c.shape.op, c.link.ty, c.signal_every, c.batch) = (Op::Send, ty, 16, 8);
        c
    }

    #[test]
    fn many_peers_share_a_responder() {
        let mut a = Rate::new(sends(3, QpType::Rc));
        let mut b = Rate::new(sends(3, QpType::Rc));
        let mut latency = LatencyConfig::to(3);
        (latency.shape.op, latency.shape.size) = (Op::Write, 4096);
        let mut c = Latency::new(latency);
        let mut config = ResponderConfig::to(0);
        (config.local.region_bytes, config.repost_batch) = (4096, 5);
        for peer in [1, 2] {
            config.links.push(ResponderLink { link: LinkConfig::to(peer), ..config.links[0] });
        }
        let mut r = Responder::new(config);
        run(&mut Ideal::new(4), &mut [&mut a, &mut b, &mut c, &mut r]).unwrap();
        assert_eq!((r.results().received, r.results().failure), (2000, None));
        assert_eq!(c.results().failure, None);
    }

    #[test]
    fn receives_that_are_not_posted_again_run_out() {
        for (receives, refill) in [(1000, false), (999, false), (1, true)] {
            let mut a = Rate::new(sends(1, QpType::Rc));
            let mut config = ResponderConfig::to(0);
            config.links[0].link.size.max_recv_wr = 1000;
            (config.links[0].receives, config.links[0].refill) = (receives, refill);
            let mut b = Responder::new(config);
            let end = run(&mut Ideal::new(2), &mut [&mut a, &mut b]);
            let received = if refill { 1000 } else { u64::from(receives) };
            assert_eq!(b.results().received, received);
            let stalls = matches!(end, Err(Stalled::NoProgress { unrung: 0, blocked: 1, .. }));
            assert_eq!(stalls, received < 1000);
        }
    }

    #[test]
    fn datagrams_without_a_receive_are_lost_and_nobody_waits_for_them() {
        let mut a = Rate::new(sends(1, QpType::Ud));
        let mut config = ResponderConfig::to(0);
        config.links[0].link.ty = QpType::Ud;
        (config.links[0].receives, config.links[0].refill) = (10, false);
        let mut b = Responder::new(config);
        run(&mut Ideal::new(2), &mut [&mut a, &mut b]).unwrap();
        assert_eq!((a.results().messages, a.results().failure), (1000, None));
        // 8 bytes and the 40 of the header.
        assert_eq!((b.results().received, b.results().received_bytes), (10, 480));
    }

    /// Two peers that send 1000 messages of 8 bytes each to a pool of `depth` buffers of 64.
    fn pool(depth: u32, srq: SrqUse, batch: u32) -> Responder {
        let mut a = Rate::new(sends(2, QpType::Rc));
        let mut b = Rate::new(sends(2, QpType::Rc));
        let mut config = ResponderConfig::to(0);
        (config.receive_bytes, config.repost_batch, config.srq) = (64, batch, srq);
        config.local.srq_depth = Some(depth);
        config.links.push(ResponderLink { link: LinkConfig::to(1), ..config.links[0] });
        let mut r = Responder::new(config);
        run(&mut Ideal::new(3), &mut [&mut a, &mut b, &mut r]).unwrap();
        r
    }

    #[test]
    fn all_links_take_from_one_pool() {
        for depth in [1, 8, 2000] {
            let r = pool(depth, SrqUse::default(), 1);
            let results = r.results();
            assert_eq!((results.received, results.failure), (2000, None), "{depth}");
            assert_eq!(results.wasted_bytes, 2000 * (64 - 8));
            assert_eq!((results.srq_limits, r.receives.len()), (0, 1));
        }
    }

    #[test]
    fn a_pool_is_filled_again_when_the_limit_event_has_come() {
        let at_limit = |limit| SrqUse { limit, repost: SrqRepost::AtLimit };
        for (depth, limit) in [(8, 7), (8, 1), (64, 16)] {
            let r = pool(depth, at_limit(limit), 1);
            assert_eq!((r.results().received, r.results().failure), (2000, None));
            // Each event brings back what had gone below the limit, at least.
            let most = 2000 / u64::from(depth - limit) + 1;
            let events = r.results().srq_limits;
            assert!(events > 0 && events <= most, "{events} of at most {most}");
        }
        // With the other policy the event is news and nothing more.
        let r = pool(8, SrqUse { limit: 7, repost: SrqRepost::Batch }, 4);
        assert_eq!(r.results().received, 2000);
        assert!(r.results().srq_limits > 0);
    }

    #[test]
    fn slow_polling_holds_receives_back() {
        let mut c = sends(1, QpType::Rc);
        c.stop = Stop::Messages(128);
        let mut a = Rate::new(c);
        let mut config = ResponderConfig::to(0);
        config.poll_interval = Some(Span::from_us(10));
        let mut b = Responder::new(config);
        let mut world = Ideal::new(2);
        run(&mut world, &mut [&mut a, &mut b]).unwrap();
        // 64 receives at once, 64 more with the poll after 10 us.
        assert_eq!(a.results().last.unwrap().since(Time::ZERO), Span::from_us(10));
        assert_eq!(b.results().received, 128);
    }
}
