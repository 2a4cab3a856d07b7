//! Policies run unchanged, on a handle and on a borrowed one.

use doorbell_core::policy::aggregate::{
    Aggregate, AggregateConfig, AggregateError, Plan, Progress,
};
use doorbell_core::policy::initiator::{
    Command, CommandError, CommandOp, CommandQueue, CommandWriter, Proxy, ProxyClient, ProxyConfig,
};
use doorbell_core::policy::lanes::{FlowLabels, LaneConfig, LaneError, Lanes, LanesConfig, To};
use doorbell_core::policy::{
    BatchConfig, BatchStats, Batcher, CqBudget, Cue, PaceConfig, PushError,
};
use doorbell_core::transport::*;
use doorbell_core::units::{BitRate, Bytes, Span};
use doorbell_core::verbs::{SendFlags, WcStatus};

use doorbell_tests::policy_body::{MESSAGES, Receiving, Sending, round_on_nothing};

use super::backend::{HAS_PEER, Lab};
use super::pair::{self, Pair, Side, drain, send};

/// Pushes `n` WRITEs of 8 bytes as fast as the queue takes them and returns the ids of the
/// completions and the counts. It takes the handle by value: only a borrowed one can be given.
fn push<T: Control>(mut t: T, me: Side, to: Remote, ids: std::ops::Range<u64>) -> BatchStats {
    let caps = t.qp_caps(me.qp).unwrap();
    let config = BatchConfig { max_wrs: 4, max_delay: Span::from_ms(1), ..BatchConfig::default() };
    let mut batcher = Batcher::new(config, me.qp, &caps);
    let list = [me.sge(0, 8)];
    for wr_id in ids {
        let now = t.now();
        let wr = send(SendOp::Write(to), wr_id, Data::Sge(&list));
        batcher.push(&mut t, now, &wr, Cue::Last).unwrap();
    }
    let due = batcher.deadline().expect("an incomplete batch is held");
    assert_eq!(batcher.tick(&mut t, due), Ok(None));
    batcher.stats()
}

#[test]
fn a_batcher_rings_for_several_and_leaves_nobody_behind() {
    let mut pair = Pair::rc();
    let to = pair.sides[1].remote(0);
    let stats = pair.on(0, move |t, me| push(t, me, to, 0..10));
    assert_eq!((stats.rings, stats.wqes), (3, 10));
    let sent: Vec<u64> = pair.sent(0).iter().map(wr_id).collect();
    assert_eq!(sent, (0..10).collect::<Vec<_>>());
}

#[test]
fn a_full_queue_is_handed_to_the_caller() {
    let mut pair = Pair::rc();
    let to = pair.sides[1].remote(0);
    // Sixteen fit: the seventeenth finds fifteen rung and one held.
    pair.on(0, move |t, me| {
        let config = BatchConfig { max_wrs: 15, ..BatchConfig::default() };
        let config = BatchConfig { max_delay: Span::from_ms(1), ..config };
        let mut batcher = Batcher::new(config, me.qp, &t.qp_caps(me.qp).unwrap());
        let list = [me.sge(0, 8)];
        // Through a trait object, too.
        let mut handle: &mut dyn Transport = t;
        for wr_id in 0..17 {
            let now = handle.now();
            let wr = send(SendOp::Write(to), wr_id, Data::Sge(&list));
            let pushed = batcher.push(&mut handle, now, &wr, Cue::Last);
            let full = Err(PushError::Refused(StageError::SqFull));
            assert!(if wr_id < 16 { pushed.is_ok() } else { pushed == full }, "{pushed:?}");
        }
        assert_eq!((batcher.held(), batcher.stats().wqes), (0, 16));
    });
    assert_eq!(pair.sent(0).len(), 16);
    let stats = pair.on(0, move |t, me| {
        let stats = push(&mut *t, me, to, 16..17);
        drain(t, me.send_cq);
        stats
    });
    assert_eq!(stats.rings, 1);
}

#[test]
fn a_lane_sends_what_its_pace_lets_go() {
    let mut pair = Pair::rc();
    let to = pair.sides[1].remote(0);
    pair.on(0, move |t, me| {
        let (caps, now) = (t.qp_caps(me.qp).unwrap(), t.now());
        // Eight bytes at once, and the next ones after eight seconds.
        let pace = PaceConfig::of(BitRate::new(8).unwrap(), Bytes(8));
        let lanes = [LaneConfig { peer_pace: Some(pace), ..LaneConfig::default() }];
        let set = LanesConfig { lanes: &lanes, peers: 1, cores: 1, labels: FlowLabels::Device };
        let mut budget = CqBudget::new(caps.max_send_wr);
        let mut lanes = Lanes::new(&set, 0, &[(me.qp, caps)], &mut budget, now).unwrap();
        let list = [me.sge(0, 8)];
        let wr = send(SendOp::Write(to), 7, Data::Sge(&list));
        let sent = lanes.push(&mut *t, now, To::default(), &wr, Cue::Urgent).unwrap();
        assert_eq!((sent.qp, sent.pushed.rung), (me.qp, 1));
        let until = now + Span::from_ms(8000);
        let next = lanes.push(&mut *t, now, To::default(), &wr, Cue::Urgent);
        assert_eq!(next, Err(LaneError::Paced { until }));
    });
    assert_eq!(pair.sent(0).iter().map(wr_id).collect::<Vec<_>>(), [7]);
}

/// Writer and proxy on one handle: what a GPU and a core do, as far as every back end has it. The
/// commands are behind the payload, and the last one names what is behind the peer's memory.
#[test]
fn a_proxy_posts_what_was_written() {
    let mut pair = Pair::rc();
    let to = pair.sides[1].remote(0);
    let (mut proxy, mut writer) = pair.on(0, move |t, me| {
        let caps = t.qp_caps(me.qp).unwrap();
        let queue = CommandQueue::new(&me.mr, 4096, 8).unwrap();
        let (payload, remote_bytes) = (Mr { len: 4096, ..me.mr }, 64);
        let client = ProxyClient { queue, payload, remote: to, remote_bytes, dest: None };
        let (config, mut budget) = (ProxyConfig::default(), CqBudget::new(16));
        let mut proxy = Proxy::new(config, &[(me.qp, caps)], &[client], &mut budget).unwrap();
        let mut writer = CommandWriter::new(queue, t.initiator());
        for n in 0..5_u64 {
            t.store_u64(me.mr.range(8 * n, 8).unwrap(), 100 + n).unwrap();
            let (op, flags, remote) = (CommandOp::Write, SendFlags::empty(), 8 * n);
            let remote = if n < 4 { remote } else { 64 };
            let command = Command { op, flags, offset: 8 * n, bytes: 8, remote };
            assert_eq!(writer.write(t, &command), Ok(n));
        }
        assert_eq!((writer.announce(t), writer.look(t)), (Ok(5), Ok(0)));
        assert_eq!(proxy.serve(t), Ok(false));
        assert_eq!((proxy.rung().rings, proxy.stats().commands, proxy.stats().refused), (1, 4, 1));
        (proxy, writer)
    });
    let told = pair.sent(0);
    assert!(matches!(told[..], [Completion::Send { retired: 4, .. }]), "{told:?}");
    pair.on(0, move |t, _| {
        let told = proxy.completion(&told[0], t.now()).unwrap();
        assert_eq!((told.done, told.failed), (4, None));
        proxy.tell(t).unwrap();
        assert_eq!(writer.look(t), Ok(4));
        let failed = CommandError::Failed { done: 4, status: WcStatus::RemAccessErr };
        assert_eq!(writer.look(t), Err(failed));
    });
    if HAS_PEER {
        let there = pair.on(1, |t, me| {
            [0, 1, 2, 3, 4].map(|n| t.load_u64(me.mr.range(8 * n, 8).unwrap()).unwrap())
        });
        assert_eq!(there, [100, 101, 102, 103, 0]);
    }
}

fn wr_id(c: &Completion) -> u64 {
    match *c {
        Completion::Send { wr_id, .. } => wr_id,
        ref other => panic!("{other:?}"),
    }
}

/// What both halves of a round count, on a back end with a wire.
fn round() -> ((u64, u64), (u64, u64)) {
    let mut pair = Pair::rc();
    let mut from = pair.on(0, |t, me| Sending::new(t, me.qp, &me.mr));
    let mut to = pair.on(1, |t, me| Receiving::new(t, RecvQueue::Qp(me.qp), &me.mr));
    pair.lab.settle();
    for _ in 0..40 {
        from = pair.on(0, move |t, _| {
            from.push(t);
            from
        });
        pair.lab.settle();
        let total;
        (to, total) = pair.on(1, move |t, me| {
            let total = to.poll(t, me.recv_cq);
            (to, total)
        });
        let told;
        (from, told) = pair.on(0, move |t, me| {
            let told = from.poll(t, me.send_cq, total);
            (from, told)
        });
        if told == MESSAGES {
            assert_eq!(to.taken, MESSAGES);
            return (from.counts(), to.counts());
        }
    }
    panic!("{from:?} {to:?}");
}

#[test]
fn all_policies_decide_alike_on_every_transport() {
    needs_peer!();
    assert_eq!(round(), round_on_nothing());
}

/// A member of a group of two, which contributes its rank and one.
struct Member {
    state: Aggregate,
    begun: bool,
}

impl Member {
    fn open<T: Control>(t: &mut T, plan: &Plan) -> Self {
        // Without a peer nobody has to be waited for.
        let chunk_deadline = Span::from_ms(if HAS_PEER { 10_000 } else { 1 });
        let round_deadline = chunk_deadline * 4;
        let config = AggregateConfig {
            bytes: 8,
            op: Reduce::SumI64,
            chunk_deadline,
            round_deadline,
            connect_deadline: Span::from_ms(10_000),
            ..AggregateConfig::default()
        };
        Self { state: Aggregate::open(t, config, plan).unwrap(), begun: false }
    }
}

impl pair::Member for Member {
    type Sum = u64;

    fn step<T: Control>(&mut self, t: &mut T) -> Result<Option<u64>, AggregateError> {
        if !self.begun {
            if self.state.connect(t)? != Progress::Complete {
                return Ok(None);
            }
            t.store_u64(self.state.vector(), u64::from(t.rank()) + 1)?;
            self.state.begin(t.now())?;
            self.begun = true;
        }
        match self.state.step(t)? {
            Progress::Complete => Ok(Some(t.load_u64(self.state.vector())?)),
            Progress::Again | Progress::Wait { .. } => Ok(None),
        }
    }

    fn close<T: Control>(self, t: &mut T) {
        self.state.close(t).unwrap();
    }
}

/// Everything of an aggregation but the peer: members connect, post, and where nothing arrives they
/// end with an error that names who is missing, and leave no object behind.
#[test]
fn members_end_with_the_sum_or_name_who_is_missing() {
    let plan = Plan::direct(2, 1).unwrap();
    let mut lab = Lab::pair();
    let members = [0, 1].map(|rank| {
        let plan = plan.clone();
        lab.call(rank, move |t| Member::open(t, &plan))
    });
    let ends = pair::run_members(&mut lab, members);
    for (rank, end) in ends.into_iter().enumerate() {
        let missing = 1 - rank as u32;
        match HAS_PEER {
            true => assert_eq!(end, Ok(3), "rank {rank}"),
            false => assert_eq!(end.unwrap_err().culprit(), Some(missing), "rank {rank}"),
        }
    }
}
