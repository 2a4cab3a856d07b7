//! The receiver: a pool, credits, and each message checked.

use doorbell::workloads::connect::{
    ALL_RIGHTS, Client, LinkConfig, LocalConfig, lookup_done, publish_done,
};
use doorbell::workloads::payload;
use doorbell_core::policy::*;
use doorbell_core::transport::*;
use doorbell_core::units::{Span, Time};
use doorbell_core::verbs::{AsyncEventKind, SendFlags};

use super::SLOT;

/// Configuration of a [`Taker`].
#[derive(Copy, Clone, Debug)]
pub struct TakerConfig {
    /// The link; one QP.
    pub link: LinkConfig,
    /// Whether the receives are posted to a shared queue.
    pub srq: bool,
    /// Buffers, posted at the start.
    pub slots: u32,
    /// Buffers that are posted together.
    pub batch: u32,
    /// See [`RecvPoolConfig::low_watermark`].
    pub low_watermark: u32,
    /// A grant after so many reposts.
    pub grant_every: u32,
    /// How long the program keeps a message before it gives the buffer back.
    pub hold: Span,
    /// Where the peer's credit word is.
    pub credit_offset: u64,
}

/// See the module.
#[derive(Debug)]
pub struct Taker {
    config: TakerConfig,
    client: Client,
    pool: Option<RecvPool>,
    mr: Option<Mr>,
    sender: Option<Sender>,
    issuer: Option<CreditIssuer>,
    polled: Completions,
    /// Receives that the program has, with the time until which it keeps them.
    kept: std::collections::VecDeque<(Time, u64)>,
    /// A total that found no slot of the send queue.
    unsaid: Option<u32>,
    scratch: Vec<u8>,
    /// Numbers of the messages, in the order of their completions.
    pub taken: Vec<u64>,
    /// Limit events of the SRQ.
    pub limits: u32,
    /// What the pool has done.
    pub stats: RecvPoolStats,
    /// Why it ended early.
    pub failure: Option<String>,
}

/// Grants under way.
const GRANTS: u32 = 16;

impl Taker {
    /// A taker that has not started.
    pub fn new(config: TakerConfig) -> Self {
        let mut link = config.link;
        link.size.max_send_wr = GRANTS;
        link.size.max_recv_wr = config.slots;
        link.size.max_inline = 8;
        let local = LocalConfig {
            cq_depth: config.slots.max(GRANTS),
            srq_depth: config.srq.then_some(config.slots),
            ..LocalConfig::default()
        };
        Self {
            client: Client::new(local, link),
            pool: None,
            mr: None,
            sender: None,
            issuer: None,
            polled: Completions::with_capacity(8),
            kept: std::collections::VecDeque::new(),
            unsaid: None,
            scratch: vec![0; SLOT as usize],
            taken: vec![],
            limits: 0,
            stats: RecvPoolStats::default(),
            failure: None,
            config,
        }
    }

    fn up<T: Control>(&mut self, t: &mut T) -> Result<Option<Next>, String> {
        let (c, slots) = (self.config, self.config.slots);
        let (pool, mr, sender) = (&mut self.pool, &mut self.mr, &mut self.sender);
        let issuer = &mut self.issuer;
        let linked = |t: &mut T, l: &doorbell::workloads::connect::Local, lanes: &[_]| {
            let lane: &doorbell::workloads::connect::Lane = &lanes[0];
            let bytes = u64::from(slots * SLOT);
            let host = MemKind::Host { numa: 0 };
            let region = t.alloc_mr(l.pd, bytes, host, ALL_RIGHTS, Contents::Data)?;
            let share = CqBudget::new(slots).take(slots).expect("all of it");
            let config = RecvPoolConfig {
                queue: l.receives_of(lane.qp),
                slots,
                slot_bytes: SLOT,
                batch: c.batch,
                low_watermark: c.low_watermark,
            };
            let made = RecvPool::new(config, &region, share).expect("sizes that fit");
            pool.insert(made).fill(t)?;
            *issuer = Some(CreditIssuer::of_pool(&config, c.grant_every));
            let caps = t.qp_caps(lane.qp).expect("just connected");
            let share = CqBudget::new(GRANTS).take(GRANTS).expect("all of it");
            let batch = BatchConfig { mode: BatchMode::ADAPTIVE, ..BatchConfig::default() };
            let config = SenderConfig { batch, ..SenderConfig::default() };
            *sender = Some(Sender::new(config, lane.qp, &caps, share));
            *mr = Some(region);
            Ok(())
        };
        self.client.up(t, linked).map_err(|e| e.to_string())
    }

    fn run<T: Control>(&mut self, t: &mut T) -> Result<Next, String> {
        if let Some(next) = self.up(t)? {
            return Ok(next);
        }
        let more = self.poll(t)?;
        self.give_back(t)?;
        self.arm(t)?;
        let pool = self.pool.as_ref().expect("up");
        self.stats = pool.stats();
        let due = self.sender.as_mut().expect("up").tick(t, t.now()).map_err(|e| e.to_string())?;
        let done = lookup_done(t, self.config.link.peer).map_err(|e| e.to_string())?;
        if done.is_some_and(|n| self.taken.len() as u64 >= n) {
            return Ok(Next::Done);
        }
        if more {
            return Ok(Next::Again);
        }
        let l = self.client.local();
        let on = WaitSet::cq(l.recv_cq).or(WaitSet::cq(l.send_cq)).or(WaitSet::BOOTSTRAP);
        let kept = self.kept.front().map(|k| k.0);
        let until = kept.into_iter().chain(due).min();
        Ok(Next::Wait { on: on.or(WaitSet::EVENTS), until })
    }

    fn poll<T: Control>(&mut self, t: &mut T) -> Result<bool, String> {
        let (l, sender) = (*self.client.local(), self.sender.as_mut().expect("up"));
        self.polled.clear();
        t.poll_cq(l.send_cq, &mut self.polled).map_err(|e| e.to_string())?;
        for c in self.polled.as_slice() {
            if sender.completion(c, t.now()) == 0 {
                return Err(format!("{c:?}"));
            }
        }
        let mut more = self.polled.is_full();
        self.polled.clear();
        t.poll_cq(l.recv_cq, &mut self.polled).map_err(|e| e.to_string())?;
        more |= self.polled.is_full();
        let until = t.now() + self.config.hold;
        for c in self.polled.as_slice() {
            let Completion::Recv { wr_id, len, .. } = *c else { return Err(format!("{c:?}")) };
            let offset = self.pool.as_mut().expect("up").completed(wr_id);
            let offset = offset.ok_or("a completion of a receive that is not posted")?;
            let bytes = &mut self.scratch[..len as usize];
            let range = self.mr.expect("up").range(offset, len.into()).expect("a slot");
            t.copy_out(range, bytes).map_err(|e| e.to_string())?;
            let (label, _) = payload::read(bytes).ok_or("a message that is none")?;
            self.taken.push(label.n);
            self.kept.push_back((until, wr_id));
        }
        Ok(more)
    }

    fn give_back<T: Control>(&mut self, t: &mut T) -> Result<(), String> {
        let now = t.now();
        let (pool, issuer) = self.pool.as_mut().zip(self.issuer.as_mut()).expect("up");
        while let Some((_, wr_id)) = self.kept.front().copied().filter(|k| k.0 <= now) {
            self.kept.pop_front();
            let posted = pool.release(t, wr_id).map_err(|e| e.to_string())?;
            self.unsaid = issuer.reposted(posted).or(self.unsaid);
        }
        self.say(t)
    }

    /// Writes the total into the peer's memory.
    fn say<T: Control>(&mut self, t: &mut T) -> Result<(), String> {
        let Some(total) = self.unsaid else { return Ok(()) };
        let (now, to) = (t.now(), self.client.lanes()[0].remote.remote);
        let at = Remote { addr: to.addr + self.config.credit_offset, ..to };
        let bytes = u64::from(total).to_le_bytes();
        let (data, flags) = (Data::Inline(&bytes), SendFlags::empty());
        let wr = SendWr { wr_id: 0, op: SendOp::Write(at), data, flags, dest: None };
        match self.sender.as_mut().expect("up").push(t, now, &wr, Cue::Last) {
            Ok(_) => self.unsaid = None,
            // The next total says it all.
            Err(PushError::Refused(StageError::SqFull)) => {}
            Err(e) => return Err(e.to_string()),
        }
        Ok(())
    }

    fn arm<T: Control>(&mut self, t: &mut T) -> Result<(), String> {
        let (pool, issuer) = self.pool.as_mut().zip(self.issuer.as_mut()).expect("up");
        while let Some(e) = t.next_event() {
            if e.kind == AsyncEventKind::SrqLimitReached {
                self.limits += 1;
                let posted = pool.limit_reached(t).map_err(|e| e.to_string())?;
                self.unsaid = issuer.reposted(posted).or(self.unsaid);
            }
        }
        if let (Some(srq), Some(limit)) =
            (self.client.local().srq, self.config.srq.then(|| pool.limit_to_arm()).flatten())
        {
            t.arm_srq(srq, limit).map_err(|e| e.to_string())?;
        }
        self.say(t)
    }
}

impl Program for Taker {
    fn step<T: Control>(&mut self, t: &mut T) -> Next {
        self.run(t).unwrap_or_else(|why| {
            self.failure = Some(why);
            publish_done(t, self.config.link.peer, 0);
            Next::Done
        })
    }
}
