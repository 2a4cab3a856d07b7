//! Policies allocate nothing after they were made: a counting allocator, in a binary of its own
//! with one test, so that nobody else allocates meanwhile.

use std::alloc::System;

use doorbell_core::ideal::{Ideal, Step, run};
use doorbell_core::noop::NoOp;
use doorbell_core::policy::aggregate::*;
use doorbell_core::policy::initiator::*;
use doorbell_core::policy::lanes::*;
use doorbell_core::policy::tuner::{Knob, Ladder, Meter, Observation, Tuner, TunerConfig};
use doorbell_core::policy::*;
use doorbell_core::transport::*;
use doorbell_core::units::{BitRate, Bytes, Span, Time};
use doorbell_core::verbs::SendFlags;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const DEPTH: u32 = 64;

fn mr() -> Mr {
    NoOp::mr(0x1000, 1 << 20)
}

/// A lane of two queue pairs with a pace.
fn lanes(sender: SenderConfig, qps: &[(QpId, QpCaps)]) -> Lanes {
    let pace = PaceConfig::of(BitRate::gbps(1), Bytes(256));
    let (spread, peer_pace) = (Spread::LeastBytes, Some(pace));
    let lanes = [LaneConfig { qps: 2, spread, peer_pace, sender, ..LaneConfig::default() }];
    let set = LanesConfig { lanes: &lanes, peers: 1, cores: 1, labels: FlowLabels::Device };
    Lanes::new(&set, 0, qps, &mut CqBudget::new(2 * DEPTH), Time::ZERO).unwrap()
}

/// Pushes by the lane, and rings what is due. Gives 1 if its pace held the message back.
fn push(lanes: &mut Lanes, t: &mut NoOp, now: Time, wr: &SendWr<'_>) -> u32 {
    let paced = match lanes.push(t, now, To::default(), wr, Cue::Last) {
        Ok(_) | Err(LaneError::Full) => 0,
        Err(LaneError::Paced { .. }) => 1,
        Err(e) => panic!("{e}"),
    };
    lanes.tick(t, now).unwrap();
    paced
}

/// A tuner with a knob of each kind, and the meter that fills its windows.
fn tuner() -> (Meter, Tuner) {
    let knobs = [
        (Knob::MaxWrs, Ladder::doubling(1, 64, 1)),
        (Knob::RecvDepth, Ladder::doubling(1, 64, 16)),
    ];
    let meter = Meter::new(Span::from_us(2), Time::ZERO, TransportCounters::default());
    (meter, Tuner::new(TunerConfig::default(), &knobs).unwrap())
}

/// Counts a message, and closes the window when it is over. The load changes now and then, so that
/// the tuner never comes to rest for good; what it proposes is taken up.
fn tune((meter, tuner): &mut (Meter, Tuner), n: u64, now: Time) -> Option<Observation> {
    meter.completed(64, Span::from_ns(500 + n % 7));
    if now < meter.due() {
        return None;
    }
    let naks = TransportCounters { rnr_nak_retry_err: n, ..TransportCounters::default() };
    let seen = meter.close(now, naks, DEPTH);
    let load = 1 + n / 2_000 % 2 * 9;
    tuner.observe(&Observation { bytes: seen.bytes * load, ..seen });
    tuner.renewed();
    Some(seen)
}

/// A handle that tells what is allocated in its calls from what its caller allocates.
struct Weighed<'a, T> {
    t: &'a mut T,
    /// Allocations in calls so far.
    theirs: std::cell::Cell<usize>,
}

fn allocations() -> usize {
    let stats = ALLOCATOR.stats();
    stats.allocations + stats.reallocations
}

impl<T> Weighed<'_, T> {
    fn count<R>(&self, before: usize, result: R) -> R {
        self.theirs.set(self.theirs.get() + allocations() - before);
        result
    }
}

macro_rules! weigh {
    ($(fn $name:ident(& $($mutable:ident)? $(, $arg:ident: $ty:ty)*) $(-> $out:ty)?;)*) => {$(
        weigh!(@ [$($mutable)?] $name ($($arg: $ty),*) $(-> $out)?);
    )*};
    (@ [] $name:ident ($($arg:ident: $ty:ty),*) $(-> $out:ty)?) => {
        fn $name(&self $(, $arg: $ty)*) $(-> $out)? {
            let before = allocations();
            let result = self.t.$name($($arg),*);
            self.count(before, result)
        }
    };
    (@ [mut_self] $name:ident ($($arg:ident: $ty:ty),*) $(-> $out:ty)?) => {
        fn $name(&mut self $(, $arg: $ty)*) $(-> $out)? {
            let before = allocations();
            let result = self.t.$name($($arg),*);
            self.count(before, result)
        }
    };
}

impl<T: Transport> Transport for Weighed<'_, T> {
    weigh! {
        fn now(&) -> Time;
        fn initiator(&) -> Initiator;
        fn qp_caps(&, qp: QpId) -> Result<QpCaps, BadHandle>;
        fn sq_free(&, qp: QpId) -> u32;
        fn stage(&mut_self, qp: QpId, wr: &SendWr<'_>) -> Result<(), StageError>;
        fn ring(&mut_self, qp: QpId, how: Ring) -> Result<Rung, RingError>;
        fn unstage(&mut_self, qp: QpId) -> u32;
        fn post_recv(&mut_self, q: RecvQueue, wrs: &[RecvWr]) -> Result<(), PostRecvError>;
        fn poll_cq(&mut_self, cq: CqId, out: &mut Completions) -> Result<(), PollError>;
        fn fence(&mut_self, scope: FenceScope);
        fn compute(&mut_self, work: Work);
        fn copy_in(&mut_self, to: Range, from: &[u8]) -> Result<(), MemError>;
        fn copy_out(&mut_self, from: Range, to: &mut [u8]) -> Result<(), MemError>;
        fn supply(&mut_self, to: Range, from: &[u8]) -> Result<(), MemError>;
        fn inspect(&mut_self, from: Range, to: &mut [u8]) -> Result<(), MemError>;
        fn touch(&mut_self, memory: MemKind, bytes: u64) -> ();
        fn copy(&mut_self, to: Range, from: Range) -> Result<(), MemError>;
        fn reduce(&mut_self, op: Reduce, to: Range, from: Range) -> Result<(), MemError>;
        fn load_u64(&mut_self, at: Range) -> Result<u64, MemError>;
        fn store_u64(&mut_self, at: Range, value: u64) -> Result<(), MemError>;
    }
}

/// Rounds of a sum, of which the first is to fill what grows once.
const ROUNDS: u64 = 6;

/// A member of a sum over two hops that counts what its steps allocate behind the first round.
struct Member {
    plan: Plan,
    config: AggregateConfig,
    state: Option<Aggregate>,
    begun: u64,
    steps: u64,
    allocated: usize,
}

impl Program for Member {
    fn step<T: Control>(&mut self, t: &mut T) -> Next {
        let open = |t: &mut T| Aggregate::open(t, self.config, &self.plan).unwrap();
        let state = self.state.get_or_insert_with(|| open(t));
        if self.begun == 0
            && let Some(next) = state.connect(t).unwrap().next()
        {
            return next;
        }
        if self.begun == 0 {
            state.begin(t.now()).unwrap();
            self.begun = 1;
        }
        let mut weighed = Weighed { t, theirs: std::cell::Cell::new(0) };
        let before = allocations();
        let mut progress = state.step(&mut weighed).unwrap();
        if progress == Progress::Complete && self.begun < ROUNDS {
            state.begin(weighed.now()).unwrap();
            progress = Progress::Again;
            self.begun += 1;
        }
        let own = allocations() - before - weighed.theirs.get();
        if self.begun > 1 {
            (self.steps, self.allocated) = (self.steps + 1, self.allocated + own);
        }
        progress.next().unwrap_or(Next::Done)
    }
}

/// Steps of all members of a sum behind the first round, and what they allocated.
fn sum(method: Method, order: Order) -> (u64, usize) {
    let config = AggregateConfig {
        bytes: 4096,
        chunk: 256,
        op: Reduce::SumI64,
        method,
        order,
        ..AggregateConfig::default()
    };
    let plan = Plan::two_hop(&Group::by_place(&[0, 0, 0, 1, 1, 1], 4096, 1), 1).unwrap();
    let (state, begun, steps, allocated) = (None, 0, 0, 0);
    let member = Member { plan, config, state, begun, steps, allocated };
    let mut members: Vec<Member> =
        (0..6).map(|_| Member { plan: member.plan.clone(), state: None, ..member }).collect();
    let mut steps: Vec<&mut dyn Step> = members.iter_mut().map(|m| m as &mut dyn Step).collect();
    run(&mut Ideal::new(6), &mut steps).unwrap();
    assert!(members.iter().all(|m| m.begun == ROUNDS));
    (members.iter().map(|m| m.steps).sum(), members.iter().map(|m| m.allocated).sum())
}

/// What the policies of one queue pair and of lanes allocate in 10,000 rounds, once they are made.
fn rounds() -> usize {
    let mut t = NoOp::new(4 * DEPTH);
    t.hold_completions();
    let qp = t.add_qp(NoOp::caps(DEPTH), None);
    let mut budget = CqBudget::new(2 * DEPTH);
    let batch = BatchConfig { mode: BatchMode::ADAPTIVE, ..BatchConfig::default() };
    let config = SenderConfig { batch, ..SenderConfig::default() };
    let mut sender = Sender::new(config, qp, &NoOp::caps(DEPTH), budget.take(DEPTH).unwrap());
    let mut buffers = SendBuffers::new(32, 64, DEPTH);
    let mut template = WrTemplate::new(SendOp::Send, &mr(), SendFlags::empty());
    let pool = RecvPoolConfig {
        queue: RecvQueue::Qp(qp),
        slots: DEPTH,
        slot_bytes: 64,
        batch: 8,
        low_watermark: 4,
    };
    let mut pool = RecvPool::new(pool, &mr(), budget.take(DEPTH).unwrap()).unwrap();
    let own = [(); 2].map(|()| (t.add_qp(NoOp::caps(DEPTH), None), NoOp::caps(DEPTH)));
    let mut lanes = lanes(config, &own);
    let (mut by_lane, mut paced) = (0, 0);
    let (mut tuning, mut windows) = (tuner(), 0);
    let mut out = Completions::with_capacity(16);
    let (mut sent, mut received, mut full) = (0u32, 0, 0);
    let before = Region::new(ALLOCATOR);
    pool.fill(&mut t).unwrap();
    for n in 0..10_000 {
        let now = Time::ZERO + Span::from_ns(100 * n);
        if let Some(at) = buffers.take() {
            let wr = template.wr(n, at, 64, 0).unwrap();
            let cue = if n % 7 == 0 { Cue::Last } else { Cue::More };
            match sender.push(&mut t, now, &wr, cue) {
                Ok(_) => {}
                Err(PushError::Refused(StageError::SqFull)) => buffers.undo(),
                Err(e) => panic!("{e}"),
            }
        } else {
            full += 1;
            sender.flush(&mut t).unwrap();
        }
        let wr = template.wr(n, 0, 64, 0).unwrap();
        paced += push(&mut lanes, &mut t, now, &wr);
        own.iter().for_each(|(qp, _)| t.complete(*qp, 1));
        // Half as many as are pushed, so that the queue fills.
        t.complete(qp, (n % 2) as u32);
        t.deliver(qp, 64, None);
        out.clear();
        t.poll_cq(NoOp::CQ, &mut out).unwrap();
        for c in out.as_slice() {
            if let Completion::Recv { wr_id, .. } = *c {
                pool.completed(wr_id).unwrap();
                pool.release(&mut t, wr_id).unwrap();
                received += 1;
            }
            by_lane += lanes.completion(c, now).map_or(0, |told| told.retired);
            let told = sender.completion(c, now);
            buffers.retired(told);
            sent += told;
        }
        sender.tick(&mut t, now).unwrap();
        windows += u32::from(tune(&mut tuning, n, now).is_some());
    }
    let change = before.change();
    assert!(sent > 4_000 && received > 9_000 && full > 0, "{sent} {received} {full}");
    assert!(by_lane > 1_000 && paced > 1_000, "{by_lane} {paced}");
    assert_eq!(windows, 10_000 / 32, "a window holds 32 messages at least");
    assert!(tuning.1.steps().len() > 10, "{:?}", tuning.1.steps());
    change.allocations + change.reallocations
}

/// What a writer of commands and its proxy allocate in 10,000 rounds, once they are made.
fn proxied() -> usize {
    let mut t = NoOp::new(DEPTH);
    t.hold_completions();
    t.keep_memory(1 << 13);
    let (qp, caps) = (t.add_qp(NoOp::caps(DEPTH), None), NoOp::caps(DEPTH));
    let queue = CommandQueue::new(&mr(), 0, 32).unwrap();
    let (remote, remote_bytes, dest) = (Remote::default(), 64, None);
    let clients = [ProxyClient { queue, payload: mr(), remote, remote_bytes, dest }];
    let (config, mut budget) = (ProxyConfig::default(), CqBudget::new(DEPTH));
    let mut proxy = Proxy::new(config, &[(qp, caps)], &clients, &mut budget).unwrap();
    let mut writer = CommandWriter::new(queue, t.initiator());
    let (op, flags) = (CommandOp::Write, SendFlags::empty());
    let command = Command { op, flags, offset: 0, bytes: 64, remote: 0 };
    let (mut out, mut full) = (Completions::with_capacity(16), 0);
    let before = Region::new(ALLOCATOR);
    for n in 0..10_000 {
        full += u32::from(writer.write(&mut t, &command) == Err(CommandError::Full));
        if n % 3 == 0 {
            writer.announce(&mut t).unwrap();
        }
        proxy.serve(&mut t).unwrap();
        t.complete(qp, n % 2);
        out.clear();
        t.poll_cq(NoOp::CQ, &mut out).unwrap();
        for c in out.as_slice() {
            proxy.completion(c, Time::ZERO).unwrap();
        }
        proxy.tell(&mut t).unwrap();
        writer.look(&mut t).unwrap();
    }
    let change = before.change();
    assert!(full > 1_000 && writer.done() > 4_000, "{full} {}", writer.done());
    change.allocations + change.reallocations
}

#[test]
fn nothing_is_allocated_after_the_policies_were_made() {
    // The thread of the harness may still be at its own lists when the first rounds begin; what a
    // policy allocates it does each time.
    assert_eq!((0..3).map(|_| rounds()).min(), Some(0));
    assert_eq!((0..3).map(|_| proxied()).min(), Some(0));
    for (method, order) in [
        (Method::Send, Order::Fixed),
        (Method::Write, Order::Arrival),
        (Method::Read, Order::Fixed),
    ] {
        let (steps, allocated) = sum(method, order);
        assert!(steps > 500, "{steps}");
        assert_eq!(allocated, 0, "{method:?} {order:?}: in {steps} steps");
    }
}
