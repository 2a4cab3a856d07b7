//! Queue pairs that die: random programs with finite retries under faults that hold packets, cut
//! links, stop NICs and programs, hide completions and receives, or break a queue pair. Whatever
//! happens, every signalled work request completes or is flushed, every receive is used, flushed
//! or still in its SRQ, nobody waits for ever, and the counters tell of as many errors as programs
//! have seen.

use std::collections::BTreeMap;

use super::*;
use doorbell::workloads::connect::{ALL_RIGHTS, Card, Target, steps};
use doorbell_core::transport::*;
use doorbell_core::verbs::{
    AckTimeout, QpAttrMask, QpState, QpType, Qpn, RetryCnt, RnrRetry, RnrTimer, WcStatus,
};
use doorbell_sim::fault::{FaultPlan, HostAction, HostFault, What, Window};
use doorbell_sim::host::PollMode;

use super::faults::{harsh, packets};

/// Most operations of a rank; a send queue takes them all.
const MAX_OPS: usize = 30;
/// Longest message.
const MAX_BYTES: u32 = 3000;
/// Most queue pairs of a rank.
const MAX_QPS: usize = 2;
/// Most receives of a queue.
const MAX_RECEIVES: u32 = 30;
/// Number of the first queue pair of a host.
const FIRST_QPN: u32 = 16;
/// After the last retry of anybody nothing comes that takes as long.
const QUIET: Span = Span::from_ms(2);

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Kind {
    Send,
    Write,
    Read,
}

#[derive(Copy, Clone, Debug)]
struct Op {
    qp: usize,
    kind: Kind,
    len: u32,
    signaled: bool,
    ring: bool,
}

/// Two ranks, the same but for what they post.
#[derive(Clone, Debug)]
struct Case {
    qps: usize,
    /// One queue of receives for all, or one each,
    srq: bool,
    /// with so many, which need not be enough.
    receives: u32,
    event: bool,
    selective: bool,
    timeout: u8,
    retry_cnt: u8,
    rnr_retry: u8,
    ops: [Vec<Op>; 2],
    seed: u64,
}

fn ops(qps: usize) -> impl Strategy<Value = Vec<Op>> {
    let kind = proptest::sample::select(vec![Kind::Send, Kind::Send, Kind::Write, Kind::Read]);
    let op = (0..qps, kind, 0..MAX_BYTES, any::<bool>(), any::<bool>());
    let op = op.prop_map(|(qp, kind, len, signaled, ring)| Op { qp, kind, len, signaled, ring });
    proptest::collection::vec(op, 0..MAX_OPS).prop_map(move |mut all| {
        // What comes last on a queue pair is signalled: else nothing says that it has ended.
        for qp in 0..qps {
            if let Some(last) = all.iter_mut().rfind(|op| op.qp == qp) {
                last.signaled = true;
            }
        }
        all
    })
}

fn cases() -> impl Strategy<Value = Case> {
    let receives = prop_oneof![3 => Just(MAX_RECEIVES), 1 => 0..MAX_RECEIVES];
    let retries = (1..7u8, 0..4u8, 0..4u8);
    let shape = (1..=MAX_QPS, any::<bool>(), receives, any::<bool>(), any::<bool>());
    (shape, retries, any::<u64>()).prop_flat_map(|(shape, retries, seed)| {
        let (qps, srq, receives, event, selective) = shape;
        let (timeout, retry_cnt, rnr_retry) = retries;
        [ops(qps), ops(qps)].prop_map(move |ops| Case {
            qps,
            srq,
            receives,
            event,
            selective,
            timeout,
            retry_cnt,
            rnr_retry,
            ops,
            seed,
        })
    })
}

/// The device gives a queue pair up, once programs have connected.
fn broken() -> impl Strategy<Value = What> {
    (0..2u32, 0..MAX_QPS as u32, 100..140u64).prop_map(|(host, qp, us)| {
        let window = Window { after: Time::ZERO + Span::from_us(us), before: Time::MAX };
        let action = HostAction::QpError { qp: Qpn::new(FIRST_QPN + qp) };
        What::Host(HostFault { host: HostId(host), nic: None, window, action })
    })
}

fn deadly_plans() -> impl Strategy<Value = FaultPlan> {
    let what = prop_oneof![4 => packets(), 4 => harsh(), 2 => broken()];
    proptest::collection::vec(what, 0..8).prop_map(machine::perhaps)
}

/// What has become of work requests, in the order in which it was polled: the queue pair, `wr_id`
/// and status.
#[derive(Clone, Default, Debug)]
struct Ends {
    /// Sends that were announced: queue pair and index of the operation.
    rung: Vec<(usize, u64)>,
    sends: Vec<(usize, u64, WcStatus)>,
    receives: Vec<(usize, u64, WcStatus)>,
    posted: u64,
}

impl Ends {
    /// Whether all that must end has ended, as far as sends go.
    fn sends_are_over(&self, ops: &[Op]) -> bool {
        let over = |qp: usize, i: u64| self.sends.iter().any(|s| (s.0, s.1) == (qp, i));
        self.rung.iter().all(|&(qp, i)| !ops[i as usize].signaled || over(qp, i))
    }
}

#[derive(Clone, Debug)]
struct Objects {
    send_cq: CqId,
    recv_cq: CqId,
    mr: Mr,
    srq: Option<SrqId>,
    qps: Vec<QpId>,
    remote: Target,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Stage {
    Start,
    Card,
    Ready,
    Work,
    PeerDone,
    Drain,
    Quiet(Time),
}

/// Posts all, waits for what must end, retires its queue pairs when the peer is done as well, and
/// waits for its receives.
#[derive(Clone, Debug)]
struct Ender {
    case: Arc<Case>,
    me: usize,
    stage: Stage,
    objects: Option<Objects>,
    posted: bool,
    ends: Ends,
}

const KEY_CARD: u64 = 10;
const KEY_READY: u64 = 1;
const KEY_DONE: u64 = 2;

impl Ender {
    fn new(case: Arc<Case>, me: usize) -> Self {
        let (objects, ends) = (None, Ends::default());
        Self { case, me, stage: Stage::Start, objects, posted: false, ends }
    }

    fn peer(&self) -> u32 {
        1 - self.me as u32
    }

    fn said<T: Control>(&self, t: &mut T, key: u64) -> bool {
        t.lookup(self.peer(), key, &mut []).unwrap().is_some()
    }

    fn open<T: Control>(&mut self, t: &mut T) {
        let pd = t.create_pd().unwrap();
        let memory = MemKind::Host { numa: 0 };
        let mr = t.alloc_mr(pd, u64::from(MAX_BYTES), memory, ALL_RIGHTS, Contents::Data).unwrap();
        let depth = 4 * MAX_OPS as u32 + 4 * MAX_RECEIVES;
        let (send_cq, recv_cq) = (t.create_cq(depth).unwrap(), t.create_cq(depth).unwrap());
        let srq = self.case.srq.then(|| t.create_srq(pd, MAX_RECEIVES).unwrap());
        let init = QpInit {
            ty: QpType::Rc,
            pd,
            send_cq,
            recv_cq,
            srq,
            size: QpSize {
                max_send_wr: MAX_OPS as u32,
                max_recv_wr: if srq.is_some() { 0 } else { MAX_RECEIVES },
                max_send_sge: 1,
                max_inline: 0,
            },
            sq_sig_all: false,
            queue_memory: memory,
        };
        let qps: Vec<QpId> = (0..self.case.qps).map(|_| t.create_qp(&init).unwrap()).collect();
        for (i, &qp) in (0..).zip(&qps) {
            let card = Card { endpoint: t.endpoint(qp).unwrap(), target: Target::whole(&mr) };
            t.publish(KEY_CARD + i, &card.encode());
        }
        let remote = Target::default();
        self.objects = Some(Objects { send_cq, recv_cq, mr, srq, qps, remote });
    }

    /// Connects all once the peer's last card is there, and posts the receives.
    fn connect<T: Control>(&mut self, t: &mut T) -> bool {
        let mut o = self.objects.clone().unwrap();
        let c = self.case.clone();
        for (i, &qp) in (0..).zip(&o.qps) {
            let mut bytes = [0; Card::ENCODED_BYTES];
            if t.lookup(self.peer(), KEY_CARD + i, &mut bytes).unwrap().is_none() {
                return false;
            }
            let card = Card::decode(&bytes).unwrap();
            o.remote = card.target;
            // It is connected, or a fault was faster.
            if t.qp_state(qp) != Ok(QpState::Reset) {
                continue;
            }
            let attr = QpAttr {
                access: ALL_RIGHTS,
                timeout: AckTimeout::new(c.timeout).unwrap(),
                retry_cnt: RetryCnt::new(c.retry_cnt).unwrap(),
                rnr_retry: RnrRetry::new(c.rnr_retry).unwrap(),
                min_rnr_timer: RnrTimer::new(1 + c.timeout).unwrap(),
                max_rd_atomic: 4,
                max_dest_rd_atomic: 4,
                ..QpAttr::default()
            };
            let mine = t.endpoint(qp).unwrap();
            for (attr, mask) in steps(QpType::Rc, attr, &mine, &card.endpoint) {
                t.modify_qp(qp, &attr, mask).unwrap();
            }
        }
        let queues: Vec<RecvQueue> = match o.srq {
            Some(srq) => vec![RecvQueue::Srq(srq)],
            None => o.qps.iter().map(|&qp| RecvQueue::Qp(qp)).collect(),
        };
        for (q, queue) in (0..).zip(queues) {
            let sge = o.mr.sge(0, MAX_BYTES).unwrap();
            let all = (0..u64::from(c.receives)).map(|i| RecvWr { wr_id: q * 1000 + i, sge });
            let all: Vec<RecvWr> = all.collect();
            t.post_recv(queue, &all).unwrap();
            self.ends.posted += all.len() as u64;
        }
        self.objects = Some(o);
        t.publish(KEY_READY, &[]);
        true
    }

    /// Stages all and rings it: in the order of the operations, some of several queue pairs at
    /// once.
    fn post<T: Control>(&mut self, t: &mut T) {
        let (o, case) = (self.objects.clone().unwrap(), self.case.clone());
        let mut staged = vec![Vec::new(); case.qps];
        for (i, op) in (0_u64..).zip(&case.ops[self.me]) {
            let mut flags = SendFlags::empty();
            flags.set(SendFlags::SIGNALED, op.signaled);
            let sges = [o.mr.sge(0, op.len).unwrap()];
            let send_op = match op.kind {
                Kind::Send => SendOp::Send,
                Kind::Write => SendOp::Write(o.remote.at(0)),
                Kind::Read => SendOp::Read(o.remote.at(0)),
            };
            let wr = SendWr { wr_id: i, op: send_op, data: Data::Sge(&sges), flags, dest: None };
            let mut done = t.stage(o.qps[op.qp], &wr);
            if done == Err(StageError::StagedFull) {
                self.ring(t, &o, op.qp, &mut staged);
                done = t.stage(o.qps[op.qp], &wr);
            }
            done.unwrap();
            staged[op.qp].push(i);
            if op.ring {
                self.ring(t, &o, op.qp, &mut staged);
            }
        }
        for qp in 0..case.qps {
            self.ring(t, &o, qp, &mut staged);
        }
    }

    fn ring<T: Control>(&mut self, t: &mut T, o: &Objects, qp: usize, staged: &mut [Vec<u64>]) {
        let these = std::mem::take(&mut staged[qp]);
        let rung = t.ring(o.qps[qp], Ring::Auto).unwrap();
        assert_eq!(rung.wqes as usize, these.len());
        self.ends.rung.extend(these.into_iter().map(|i| (qp, i)));
    }

    /// Whether both queues are empty now.
    fn poll<T: Control>(&mut self, t: &mut T) -> bool {
        let o = self.objects.clone().unwrap();
        let mut empty = true;
        for cq in [o.send_cq, o.recv_cq] {
            let mut some = Completions::with_capacity(7);
            t.poll_cq(cq, &mut some).unwrap();
            empty &= !some.is_full();
            for c in some.as_slice() {
                let (send, wr_id, qp, status) = match *c {
                    Completion::Send { wr_id, qp, .. } => (true, wr_id, qp, WcStatus::Success),
                    Completion::Recv { wr_id, qp, .. } => (false, wr_id, qp, WcStatus::Success),
                    Completion::Error { wr_id, qp, queue, status, .. } => {
                        (queue == WorkQueue::Send, wr_id, qp, status)
                    }
                };
                assert_eq!(send, cq == o.send_cq, "{c:?}");
                let qp = o.qps.iter().position(|q| *q == qp).expect("one of its own");
                let list = if send { &mut self.ends.sends } else { &mut self.ends.receives };
                list.push((qp, wr_id, status));
            }
        }
        empty
    }

    /// Waits for completions, unless `over`.
    fn wait<T: Control>(&mut self, t: &mut T, over: impl Fn(&Self) -> bool) -> Option<Next> {
        let empty = self.poll(t);
        if over(self) {
            return None;
        }
        let o = self.objects.as_ref().unwrap();
        let on = WaitSet::cq(o.send_cq).or(WaitSet::cq(o.recv_cq));
        Some(if empty { Next::Wait { on, until: None } } else { Next::Again })
    }

    fn retire<T: Control>(&mut self, t: &mut T) {
        let attr = QpAttr { state: QpState::Err, ..QpAttr::default() };
        for qp in &self.objects.as_ref().unwrap().qps {
            t.modify_qp(*qp, &attr, QpAttrMask::STATE).unwrap();
        }
    }
}

impl Program for Ender {
    fn step<T: Control>(&mut self, t: &mut T) -> Next {
        let boot = Next::Wait { on: WaitSet::BOOTSTRAP, until: None };
        loop {
            self.stage = match self.stage {
                Stage::Start => {
                    self.open(t);
                    Stage::Card
                }
                Stage::Card => {
                    if !self.connect(t) {
                        return boot;
                    }
                    Stage::Ready
                }
                Stage::Ready if !self.said(t, KEY_READY) => return boot,
                Stage::Ready => Stage::Work,
                Stage::Work => {
                    if !std::mem::replace(&mut self.posted, true) {
                        self.post(t);
                    }
                    let over = |me: &Self| me.ends.sends_are_over(&me.case.ops[me.me]);
                    if let Some(next) = self.wait(t, over) {
                        return next;
                    }
                    t.publish(KEY_DONE, &[]);
                    Stage::PeerDone
                }
                Stage::PeerDone if !self.said(t, KEY_DONE) => return boot,
                Stage::PeerDone => {
                    self.retire(t);
                    Stage::Drain
                }
                Stage::Drain => {
                    let all = |me: &Self| me.ends.receives.len() as u64 >= me.ends.posted;
                    // What nobody took stays in an SRQ.
                    if !self.case.srq
                        && let Some(next) = self.wait(t, all)
                    {
                        return next;
                    }
                    Stage::Quiet(t.now() + QUIET)
                }
                Stage::Quiet(until) if t.now() < until => {
                    return Next::Wait { on: WaitSet::EMPTY, until: Some(until) };
                }
                Stage::Quiet(_) => {
                    while !self.poll(t) {}
                    return Next::Done;
                }
            }
        }
    }
}

fn world_of(case: &Case) -> WorldConfig {
    let mut host = machine::quiet_host();
    host.rc.recovery = super::faults::recovery(case.selective);
    machine::world_of(host, 2, case.seed)
}

fn run_case(case: &Arc<Case>, faults: &FaultPlan, config: &WorldConfig) -> (World, RunEnd) {
    let poll = if case.event { PollMode::Event } else { PollMode::Busy };
    let on = InitiatorConfig { poll, ..machine::core(0) };
    let mut world = World::new(config).unwrap();
    for rank in 0..2 {
        world.add_program(HostId(rank as u32), on, Time::ZERO, Ender::new(case.clone(), rank));
    }
    world.set_faults(faults).unwrap();
    let end = world.run(LIMIT);
    (world, end)
}

fn ends(world: &World) -> [Ends; 2] {
    [0, 1].map(|me| world.program::<Ender>(me).unwrap().ends.clone())
}

/// Sends of one rank: each once and in order, nothing good behind something bad, and nothing that
/// was asked for left out.
fn sends_end(case: &Case, me: usize, ends: &Ends) -> Result<(), TestCaseError> {
    prop_assert_eq!(ends.rung.len(), case.ops[me].len());
    for qp in 0..case.qps {
        let these: Vec<(u64, WcStatus)> =
            ends.sends.iter().filter(|s| s.0 == qp).map(|s| (s.1, s.2)).collect();
        prop_assert!(these.is_sorted_by(|a, b| a.0 < b.0), "once, in order: {:?}", these);
        let good = these.iter().take_while(|s| s.1 == WcStatus::Success).count();
        let bad = &these[good..];
        prop_assert!(bad.iter().all(|s| s.1 != WcStatus::Success), "{:?}", these);
        prop_assert!(bad.iter().skip(1).all(|s| s.1 == WcStatus::WrFlushErr), "{:?}", these);
        // One that is not signalled and was executed says nothing; from the first bad one on each
        // tells of itself.
        let executed = bad.first().map_or(u64::MAX, |first| first.0);
        for &(_, i) in ends.rung.iter().filter(|r| r.0 == qp) {
            let signaled = case.ops[me][i as usize].signaled;
            let ended = these.iter().any(|s| s.0 == i);
            prop_assert!(ended || !signaled && i < executed, "operation {} of QP {}", i, qp);
        }
    }
    Ok(())
}

/// Receives of one rank: each once, or still there.
fn receives_end(world: &World, me: usize, ends: &Ends) -> Result<(), TestCaseError> {
    let mut times: BTreeMap<u64, u64> = BTreeMap::new();
    ends.receives.iter().for_each(|r| *times.entry(r.1).or_default() += 1);
    prop_assert!(times.values().all(|n| *n == 1), "{:?}", times);
    let left: u64 = world.hosts()[me].nic(0).srqs().map(|(_, q)| u64::from(q.len())).sum();
    prop_assert_eq!(ends.receives.len() as u64 + left, ends.posted, "of rank {}", me);
    Ok(())
}

/// What both sides saw of messages, and what the counters say of errors.
fn sides_agree(world: &World, case: &Case, all: &[Ends; 2]) -> Result<(), TestCaseError> {
    let good = |list: &[(usize, u64, WcStatus)], qp: usize| {
        let of = list.iter().filter(|s| s.0 == qp && s.2 == WcStatus::Success);
        of.map(|s| s.1).collect::<Vec<u64>>()
    };
    for (me, ends) in all.iter().enumerate() {
        for qp in 0..case.qps {
            let sends = |upto: u64| {
                let of = case.ops[me].iter().zip(0..upto);
                of.filter(|(op, _)| op.qp == qp && op.kind == Kind::Send).count()
            };
            let sure = sends(good(&ends.sends, qp).last().map_or(0, |last| last + 1));
            let taken = good(&all[1 - me].receives, qp).len();
            let posted = sends(case.ops[me].len() as u64);
            prop_assert!((sure..=posted).contains(&taken), "{} of {}..{}", taken, sure, posted);
        }
        let (c, s) = (world.hosts()[me].nic(0).hw_counters(), world.hosts()[me].nic(0).stats);
        let bad = |list: &[(usize, u64, WcStatus)], only: Option<WcStatus>| {
            let is = |status| status != WcStatus::Success && only.is_none_or(|o| o == status);
            list.iter().filter(|s| is(s.2)).count() as u64
        };
        prop_assert_eq!(c.req_cqe_error, bad(&ends.sends, None));
        prop_assert_eq!(c.resp_cqe_error, bad(&ends.receives, None));
        prop_assert_eq!(c.req_cqe_flush_error, bad(&ends.sends, Some(WcStatus::WrFlushErr)));
        prop_assert_eq!(c.resp_cqe_flush_error, bad(&ends.receives, Some(WcStatus::WrFlushErr)));
        prop_assert_eq!(
            c.req_rnr_retries_exceeded,
            bad(&ends.sends, Some(WcStatus::RnrRetryExcErr))
        );
        prop_assert_eq!(
            c.req_transport_retries_exceeded,
            bad(&ends.sends, Some(WcStatus::RetryExcErr))
        );
        let causes = s.rx_unknown_qp + s.rx_wrong_service + s.bad_pkey_cntr + s.rx_wrong_address;
        let causes = causes + s.rx_wrong_state + s.qkey_viol_cntr + s.rx_discards + s.rx_unused;
        prop_assert_eq!(s.rx_dropped, causes, "each drop has one cause");
    }
    Ok(())
}

fn all_end(case: &Arc<Case>, faults: &FaultPlan) -> Result<World, TestCaseError> {
    let (world, end) = run_case(case, faults, &world_of(case));
    prop_assert_eq!(end, RunEnd::Done, "somebody waits");
    let ends = ends(&world);
    for (me, ends) in ends.iter().enumerate() {
        sends_end(case, me, ends)?;
        receives_end(&world, me, ends)?;
    }
    sides_agree(&world, case, &ends)?;
    prop_assert_eq!(world.left_over(), []);
    world.fabric().balance().map_err(|e| TestCaseError::fail(e.to_string()))?;
    Ok(world)
}

proptest! {
    #[test]
    fn every_work_request_ends_whatever_dies(case in cases(), faults in deadly_plans()) {
        all_end(&Arc::new(case), &faults)?;
    }
}

/// The property would hold for runs in which nobody dies, too.
#[test]
fn queue_pairs_die_of_all_causes_with_work_under_way() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut seen, mut fired) = (BTreeMap::new(), BTreeMap::new());
    for _ in 0..400 {
        let case = Arc::new(cases().new_tree(&mut runner).unwrap().current());
        let faults = deadly_plans().new_tree(&mut runner).unwrap().current();
        let world = all_end(&case, &faults).unwrap_or_else(|e| panic!("{e}\n{case:?}\n{faults:?}"));
        for (used, fault) in world.fault_uses().iter().zip(&faults.faults) {
            *fired.entry(fault.what.word()).or_insert(0) += used.fired;
        }
        for ends in ends(&world) {
            for (_, _, status) in ends.sends.iter().chain(&ends.receives) {
                *seen.entry(status.as_str_name()).or_insert(0) += 1;
            }
        }
    }
    use WcStatus::{RetryExcErr, RnrRetryExcErr, Success, WrFlushErr};
    for status in [RetryExcErr, RnrRetryExcErr, Success, WrFlushErr] {
        assert!(seen.get(status.as_str_name()).is_some_and(|n| *n >= 10), "{status}: {seen:?}");
    }
    let words = "drop corrupt duplicate delay reorder hold link-down rnr nic-stall program-stall \
                 cq-not-polled qp-error";
    for word in words.split(' ') {
        assert!(fired.get(word).is_some_and(|n| *n >= 5), "{word}: {fired:?}");
    }
}

/// A device that flushes no receives, as some do: whoever waits for them waits for ever, so the
/// property would notice a flush that is forgotten.
#[test]
fn without_the_flush_of_receives_somebody_waits() {
    for event in [false, true] {
        let op = Op { qp: 0, kind: Kind::Write, len: 8, signaled: true, ring: true };
        let case = Arc::new(Case {
            qps: 1,
            srq: false,
            receives: 2,
            event,
            selective: false,
            timeout: 4,
            retry_cnt: 1,
            rnr_retry: 1,
            ops: [vec![op], vec![]],
            seed: 1,
        });
        let mut config = world_of(&case);
        let none = FaultPlan::default();
        assert_eq!(run_case(&case, &none, &config).1, RunEnd::Done);
        config.hosts[0].rc.rules.flush_receives = false;
        let (_, end) = run_case(&case, &none, &config);
        assert!(matches!(end, RunEnd::NoProgress(_)), "{end:?}");
    }
}
