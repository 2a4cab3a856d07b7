//! The passive side: offers memory, keeps receives posted, ends when every peer says so.

use doorbell_core::transport::{
    Completion, Completions, Contents, Control, MemKind, Mr, Next, Program, QpId, RecvQueue,
    RecvWr, WaitSet,
};
use doorbell_core::units::{Span, Time};
use doorbell_core::verbs::QpType;

use super::common::{Failure, Results, failed};
use super::connect::{
    ALL_RIGHTS, Connect, LinkConfig, Local, LocalConfig, Progress, ReceiveOrder, Target, Topic,
    key, lookup_done,
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
        }
    }
}

/// Bytes in front of a datagram in the receive buffer.
const GRH_BYTES: u32 = 40;

/// Id of receives that a script has asked for: they are not posted again.
const ORDERED: u64 = u64::MAX >> 1;

const UNKNOWN_QP: Failure = Failure::Config("the script names an unknown QP");

/// A QP's receives: buffers by number, and those that wait to be posted again.
#[derive(Clone, Debug)]
struct Receives {
    qp: QpId,
    first_slot: u64,
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
    /// No poll before.
    next_poll: Time,
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
            links,
            receives: vec![],
            next_poll: Time::ZERO,
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
        let slots: u64 =
            c.links.iter().map(|l| u64::from(l.receives) * u64::from(l.link.qps)).sum();
        if slots > 0 {
            let (len, kind) = (slots * self.slot_bytes(), self.receive_memory());
            let contents = c.receive_contents;
            self.receive_mr = Some(t.alloc_mr(local.pd, len, kind, ALL_RIGHTS, contents)?);
        }
        for l in c.links.iter().filter(|_| c.spare) {
            self.spare.publish(t, l.link.peer, (local.pd, local.mr))?;
        }
        self.local = Some(local);
        Ok(local)
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
        if n == 0 {
            return Ok(());
        }
        let slots_of = |l: &ResponderLink| u64::from(l.receives) * u64::from(l.link.qps);
        let mut first_slot: u64 = self.config.links[..i].iter().map(slots_of).sum();
        for lane in self.links[i].lanes().to_vec() {
            let slots = first_slot..first_slot + u64::from(n);
            let wrs: Vec<_> = slots.map(|s| self.receive_wr(s, ty == QpType::Ud)).collect();
            t.post_recv(RecvQueue::Qp(lane.qp), &wrs)?;
            let to_post = Vec::with_capacity(n as usize);
            self.receives.push(Receives { qp: lane.qp, first_slot, to_post });
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
            if let Completion::Recv { wr_id, qp, len, .. } = c {
                let now = t.now();
                self.results.first.get_or_insert(now);
                self.results.receive(len, now);
                self.repost(t, qp, wr_id)?;
            }
        }
        Ok(self.polled.is_full())
    }

    fn repost<T: Control>(&mut self, t: &mut T, qp: QpId, slot: u64) -> Result<(), Failure> {
        let i = (0..self.links.len()).find(|&i| self.owns(i, qp)).expect("a QP of ours");
        if slot == ORDERED || !self.config.links[i].refill {
            return Ok(());
        }
        let wr = self.receive_wr(slot, self.config.links[i].link.ty == QpType::Ud);
        let n = self.config.links[i].receives;
        let r = self.receives.iter_mut().find(|r| r.qp == qp).expect("it has receives");
        debug_assert!((r.first_slot..r.first_slot + u64::from(n)).contains(&slot));
        r.to_post.push(wr);
        if r.to_post.len() as u32 >= self.config.repost_batch.min(n) {
            t.post_recv(RecvQueue::Qp(qp), &r.to_post)?;
            r.to_post.clear();
        }
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
                t.post_recv(RecvQueue::Qp(qp), &wrs)?;
                t.publish(key(Topic::ReceivesPosted, peer, self.obeyed[i]), &[]);
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
        let dereg = self.dereg_at.iter().map(|(at, ..)| *at).min();
        let until = [connected_by, poll, dereg].into_iter().flatten().min();
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
