//! A round of sends and receives by all policies, in two halves with a wait in between, the same
//! for every transport: what conformance compares.

use doorbell_core::noop::NoOp;
use doorbell_core::policy::*;
use doorbell_core::transport::*;
use doorbell_core::units::Span;
use doorbell_core::verbs::SendFlags;

/// Messages of a round.
pub const MESSAGES: u32 = 24;
/// Bytes of a message.
const BYTES: u32 = 32;
/// Buffers on either side.
const SLOTS: u32 = 8;

/// The sending half.
#[derive(Debug)]
pub struct Sending {
    sender: Sender,
    buffers: SendBuffers,
    template: WrTemplate,
    gate: CreditGate,
    polled: Completions,
    next: u32,
    told: u32,
}

impl Sending {
    /// Sends on `qp` from the start of `mr`, towards a peer with [`Receiving`].
    pub fn new<T: Transport>(t: &T, qp: QpId, mr: &Mr) -> Self {
        let caps = t.qp_caps(qp).expect("a queue pair of the handle");
        let share = CqBudget::new(16).take(16).expect("all of it");
        let batch = BatchConfig {
            mode: BatchMode::ADAPTIVE,
            max_wrs: 4,
            max_delay: Span::from_ms(1),
            ..BatchConfig::default()
        };
        let window = WindowConfig { max_wrs: 0, signal_every: 3 };
        let config = SenderConfig { batch, window, signal_last: true };
        let sender = Sender::new(config, qp, &caps, share);
        let max_wrs = sender.window().max_wrs();
        Self {
            sender,
            buffers: SendBuffers::new(SLOTS, BYTES, max_wrs),
            template: WrTemplate::new(SendOp::Send, mr, SendFlags::empty()),
            gate: CreditGate::new(SLOTS),
            polled: Completions::with_capacity(4),
            next: 0,
            told: 0,
        }
    }

    /// Pushes what credits and buffers allow. Returns how many have been pushed in all.
    pub fn push<T: Transport>(&mut self, t: &mut T) -> u32 {
        let now = t.now();
        while self.next < MESSAGES && self.gate.available() > 0 {
            let Some(at) = self.buffers.take() else { break };
            assert!(self.gate.spend(), "asked before");
            let last = self.next + 1 == MESSAGES || self.gate.available() == 0;
            let cue = if last || self.buffers.free() == 0 { Cue::Last } else { Cue::More };
            let wr = self.template.wr(self.next.into(), at, BYTES, 0).expect("a slot");
            self.sender.push(t, now, &wr, cue).unwrap_or_else(|e| panic!("{e}"));
            self.next += 1;
        }
        self.sender.tick(t, now).unwrap_or_else(|e| panic!("{e}"));
        self.next
    }

    /// Polls, and hears what the peer grants. Returns how many messages completions have told of.
    pub fn poll<T: Transport>(&mut self, t: &mut T, cq: CqId, total: u32) -> u32 {
        self.gate.grant(total);
        loop {
            self.polled.clear();
            t.poll_cq(cq, &mut self.polled).unwrap_or_else(|e| panic!("{e}"));
            for c in self.polled.as_slice() {
                let n = self.sender.completion(c, t.now());
                self.buffers.retired(n);
                self.told += n;
            }
            if !self.polled.is_full() {
                return self.told;
            }
        }
    }

    /// Rings and WQEs.
    pub fn counts(&self) -> (u64, u64) {
        (self.sender.stats().rings, self.sender.stats().wqes)
    }
}

/// The receiving half.
#[derive(Debug)]
pub struct Receiving {
    pool: RecvPool,
    issuer: CreditIssuer,
    polled: Completions,
    total: u32,
    /// Messages that came.
    pub taken: u32,
}

impl Receiving {
    /// Receives of `queue` in the start of `mr`.
    pub fn new<T: Transport>(t: &mut T, queue: RecvQueue, mr: &Mr) -> Self {
        let share = CqBudget::new(SLOTS).take(SLOTS).expect("all of it");
        let config =
            RecvPoolConfig { queue, slots: SLOTS, slot_bytes: BYTES, batch: 3, low_watermark: 2 };
        let mut pool = RecvPool::new(config, mr, share).unwrap_or_else(|e| panic!("{e}"));
        pool.fill(t).unwrap_or_else(|e| panic!("{e}"));
        let issuer = CreditIssuer::of_pool(&config, 2);
        let polled = Completions::with_capacity(3);
        Self { pool, issuer, polled, total: SLOTS, taken: 0 }
    }

    /// Takes what came and posts again. Returns the total for the peer.
    pub fn poll<T: Transport>(&mut self, t: &mut T, cq: CqId) -> u32 {
        loop {
            self.polled.clear();
            t.poll_cq(cq, &mut self.polled).unwrap_or_else(|e| panic!("{e}"));
            for c in self.polled.as_slice() {
                let Completion::Recv { wr_id, len, .. } = *c else { panic!("{c:?}") };
                assert_eq!(len, BYTES);
                self.pool.completed(wr_id).expect("a receive of the pool");
                self.taken += 1;
                let posted = self.pool.release(t, wr_id).unwrap_or_else(|e| panic!("{e}"));
                self.total = self.issuer.reposted(posted).unwrap_or(self.total);
            }
            if !self.polled.is_full() {
                return self.total;
            }
        }
    }

    /// Calls that posted receives, and receives.
    pub fn counts(&self) -> (u64, u64) {
        (self.pool.stats().posts, self.pool.stats().receives)
    }
}

/// Both halves on the back end that does nothing: what each counts.
///
/// # Panics
/// When they come to no end.
pub fn round_on_nothing() -> ((u64, u64), (u64, u64)) {
    let mr = |addr| NoOp::mr(addr, 1 << 16);
    // Two handles, as two ranks have.
    let (mut a, mut b) = (NoOp::new(64), NoOp::new(64));
    let (from_qp, to_qp) = (a.add_qp(NoOp::caps(16), None), b.add_qp(NoOp::caps(16), None));
    a.keep_log();
    let mut from = Sending::new(&a, from_qp, &mr(0x1000));
    let mut to = Receiving::new(&mut b, RecvQueue::Qp(to_qp), &mr(0x9000));
    let mut carried = 0;
    for _ in 0..40 {
        from.push(&mut a);
        for _ in carried..a.log().len() {
            assert!(b.deliver(to_qp, BYTES, None), "a message without a receive");
        }
        carried = a.log().len();
        let total = to.poll(&mut b, NoOp::CQ);
        if from.poll(&mut a, NoOp::CQ, total) == MESSAGES {
            assert_eq!(to.taken, MESSAGES);
            return (from.counts(), to.counts());
        }
    }
    panic!("{from:?} {to:?}");
}
