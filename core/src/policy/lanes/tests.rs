//! Lanes on the back end that does nothing, against lists of what was pushed.

use std::string::ToString;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::noop::NoOp;
use crate::policy::{BatchConfig, BatchMode, PaceConfig, PaceError, SenderConfig, WindowConfig};
use crate::transport::*;
use crate::units::{BitRate, Bytes, Span};
use crate::verbs::{FlowLabel, SendFlags, ServiceLevel, WcStatus};

/// Each message is rung at once and signalled, unless a test says otherwise.
fn at_once(max_wrs: u32) -> SenderConfig {
    let batch = BatchConfig { max_delay: Span::ZERO, ..BatchConfig::default() };
    SenderConfig { batch, window: WindowConfig { max_wrs, signal_every: 1 }, signal_last: false }
}

fn lane(qps: u32, spread: Spread) -> LaneConfig {
    LaneConfig { qps, spread, sender: at_once(4), ..LaneConfig::default() }
}

fn set(lanes: &[LaneConfig]) -> LanesConfig<'_> {
    LanesConfig { lanes, peers: 2, cores: 1, labels: FlowLabels::From { first: 1 } }
}

struct Rig {
    t: NoOp,
    lanes: Lanes,
    now: Time,
    polled: Completions,
}

impl Rig {
    fn new(config: &LanesConfig<'_>, core: u32) -> Self {
        let mut t = NoOp::new(4096);
        t.hold_completions();
        t.keep_log();
        let qps: Vec<_> =
            config.qps(core).map(|_| (t.add_qp(NoOp::caps(8), None), NoOp::caps(8))).collect();
        let mut budget = CqBudget::new(4096);
        let lanes = Lanes::new(config, core, &qps, &mut budget, Time::ZERO).unwrap();
        Self { t, lanes, now: Time::ZERO, polled: Completions::with_capacity(64) }
    }

    fn push(&mut self, to: To, wr_id: u64, bytes: usize) -> Result<u32, LaneError> {
        let (data, flags) = (Data::Inline(&[0; 256][..bytes]), SendFlags::empty());
        let wr = SendWr { wr_id, op: SendOp::Send, data, flags, dest: None };
        let sent = self.lanes.push(&mut self.t, self.now, to, &wr, Cue::Last);
        sent.map(|s| s.qp.index())
    }

    /// Everything that is done: ids with what the lanes make of them.
    fn poll(&mut self) -> Vec<(u64, Told)> {
        let mut all = Vec::new();
        loop {
            self.polled.clear();
            self.t.poll_cq(NoOp::CQ, &mut self.polled).expect("no overrun");
            for c in self.polled.as_slice() {
                let (Completion::Send { wr_id, .. } | Completion::Error { wr_id, .. }) = *c else {
                    continue;
                };
                all.push((wr_id, self.lanes.completion(c, self.now).expect("ours")));
            }
            if !self.polled.is_full() {
                return all;
            }
        }
    }
}

fn to(lane: u32, peer: u32, flow: u64) -> To {
    To { lane, peer, flow }
}

#[test]
fn the_plan_names_every_queue_pair_once_and_no_two_labels_are_alike() {
    let control = LaneConfig {
        core: Some(1),
        sl: ServiceLevel::new(5).unwrap(),
        inline: crate::policy::InlineConfig { lone_bytes: 60, batched_bytes: 99 },
        ..lane(1, Spread::Ordered)
    };
    let lanes = [control, lane(3, Spread::RoundRobin)];
    let config = LanesConfig { cores: 3, ..set(&lanes) };
    let plan = |core| config.qps(core).collect::<Vec<_>>();
    let places =
        |core| -> Vec<_> { plan(core).iter().map(|q| (q.lane, q.peer, q.member)).collect() };
    let bulk = [(1, 0, 0), (1, 0, 1), (1, 0, 2), (1, 1, 0), (1, 1, 1), (1, 1, 2)];
    assert_eq!((places(0), places(2)), (bulk.to_vec(), bulk.to_vec()));
    assert_eq!(places(1)[..2], [(0, 0, 0), (0, 1, 0)]);
    assert_eq!(places(1)[2..], bulk);
    let one = plan(1)[0];
    assert_eq!((one.sl.code(), one.max_send_wr, one.max_inline), (5, 4, 99));
    // Ten between two hosts: three, one and three, three. To each peer the same ones.
    let labels = |peer: u32| {
        let all = (0..3).flat_map(plan).filter(move |q| q.peer == peer);
        all.map(|q| q.flow_label.value()).collect::<Vec<_>>()
    };
    assert_eq!(labels(0), (1..=10).collect::<Vec<_>>());
    assert_eq!(labels(1), labels(0));
}

#[test]
fn labels_count_on_from_one_and_are_never_zero() {
    let most = FlowLabel::MAX_DISTINCT;
    let of = |labels: FlowLabels, n| labels.of(n).value();
    let from = |first| FlowLabels::From { first };
    assert_eq!([of(from(1), 0), of(from(1), most - 1), of(from(1), most)], [1, most, 1]);
    assert_eq!([of(from(0), 0), of(from(0), 1), of(from(most), 1)], [most, 1, 1]);
    assert_eq!(of(from(u32::MAX), u32::MAX), (2 * u64::from(u32::MAX) % u64::from(most)) as u32);
    let same = FlowLabels::Same(FlowLabel::MAX);
    assert_eq!([of(same, 0), of(same, 9), of(FlowLabels::Device, 9)], [0xF_FFFF, 0xF_FFFF, 0]);
}

#[test]
fn what_cannot_be_is_refused_with_a_remedy() {
    let one = [lane(1, Spread::Ordered)];
    let refused = |config: &LanesConfig<'_>, core, e: LanesError, text: &str| {
        assert_eq!(config.check(core), Err(e));
        assert_eq!(Lanes::new(config, core, &[], &mut CqBudget::new(0), Time::ZERO).err(), Some(e));
        assert!(e.to_string().contains(text), "{e}");
    };
    refused(&set(&[]), 0, LanesError::Empty, "give one of each");
    refused(&LanesConfig { peers: 0, ..set(&one) }, 0, LanesError::Empty, "a peer");
    refused(&LanesConfig { cores: 0, ..set(&one) }, 0, LanesError::Empty, "a core");
    let e = LanesError::NoSuchCore { got: 1, cores: 1 };
    refused(&set(&one), 1, e, "name one below 1");
    refused(&set(&[LaneConfig { core: Some(1), ..one[0] }]), 0, e, "give more cores");
    let none = [one[0], lane(0, Spread::Ordered)];
    refused(&set(&none), 0, LanesError::NoQp { lane: 1 }, "lane 1 has no queue pair");
    let pace = PaceConfig::of(BitRate::gbps(1), Bytes(0));
    let e = LanesError::Pace { lane: 0, error: PaceError::Burst { got: Bytes(0) } };
    refused(&set(&[LaneConfig { pace: Some(pace), ..one[0] }]), 0, e, "lane 0: a burst of 0 B");
    refused(&set(&[LaneConfig { peer_pace: Some(pace), ..one[0] }]), 0, e, "lane 0: a burst");
    let of = |peers| [set(&one)].map(|s| LanesConfig { peers, ..s })[0];
    assert_eq!(of(MAX_LANE_QPS as u32).check(0), Ok(()));
    let got = MAX_LANE_QPS + 1;
    refused(&of(got as u32), 0, LanesError::TooManyQps { got }, "spread the lanes over cores");
}

#[test]
fn queue_pairs_and_completion_entries_must_suffice() {
    let lanes = [lane(2, Spread::Ordered)];
    let config = set(&lanes);
    let mut t = NoOp::new(64);
    let caps = NoOp::caps(8);
    let mut qps: Vec<_> = (0..4).map(|_| (t.add_qp(caps, None), caps)).collect();
    let new = |qps: &[_], budget: &mut CqBudget| {
        Lanes::new(&config, 0, qps, budget, Time::ZERO).map(drop).map_err(|e| e.to_string())
    };
    // Four queue pairs of four.
    let (mut short, mut enough) = (CqBudget::new(15), CqBudget::new(16));
    assert!(new(&qps, &mut short).unwrap_err().ends_with("create it with 1 more"));
    assert_eq!((short.left(), new(&qps, &mut enough), enough.left()), (15, Ok(()), 0));
    assert!(
        new(&qps[..3], &mut short).unwrap_err().contains("3 queue pairs for lanes that need 4")
    );
    qps[3] = qps[1];
    assert!(new(&qps, &mut short).unwrap_err().contains("queue pair 3 of the list"));
    // Without a wish a queue pair is used as deep as it is.
    let deep = [LaneConfig { sender: at_once(0), ..lanes[0] }];
    let mut budget = CqBudget::new(40);
    let config = LanesConfig { peers: 1, ..set(&deep) };
    let made = Lanes::new(&config, 0, &qps[..2], &mut budget, Time::ZERO).unwrap();
    assert_eq!(budget.left(), 24);
    made.into_shares().for_each(|s| budget.give_back(s));
    assert_eq!(budget.left(), 40);
}

#[test]
fn a_message_for_nowhere_is_refused() {
    let lanes =
        [lane(1, Spread::Ordered), LaneConfig { core: Some(1), ..lane(1, Spread::Ordered) }];
    let mut r = Rig::new(&LanesConfig { cores: 2, ..set(&lanes) }, 0);
    let mut refused = |at, text: &str| {
        let e = r.push(at, 0, 8).unwrap_err();
        assert!(e.to_string().contains(text), "{e}");
    };
    refused(to(2, 0, 0), "lane 2 of 2");
    refused(to(0, 2, 0), "peer 2 of 2");
    refused(to(1, 2, 0), "peer 2 of 2");
    refused(to(1, 1, 0), "lane 1 is core 1's");
    assert!(r.push(to(0, 1, 0), 0, 8).is_ok());
    assert_eq!((r.lanes.stripe(1, 0).count(), r.lanes.stripe(0, 2).count()), (0, 0));
    assert!(r.lanes.inline(1).is_some_and(|i| !i.inlines(1, Cue::Last)));
    assert_eq!(r.lanes.inline(2), None);
    let mut there = Rig::new(&LanesConfig { cores: 2, ..set(&lanes) }, 1);
    assert!(there.push(to(1, 1, 0), 0, 8).is_ok());
}

#[test]
fn an_ordered_flow_keeps_to_one_queue_pair_and_waits_for_it() {
    let mut r = Rig::new(&set(&[lane(3, Spread::Ordered)]), 0);
    let flow = |r: &mut Rig, flow, n: u64| (0..n).map(|i| r.push(to(0, 1, flow), i, 8)).collect();
    let taken: Vec<_> = flow(&mut r, 4, 5);
    assert_eq!(taken, [Ok(4), Ok(4), Ok(4), Ok(4), Err(LaneError::Full)], "others have room");
    let taken: Vec<_> = flow(&mut r, u64::MAX, 1);
    assert_eq!(taken, [Ok(3)], "2^64 - 1 is a multiple of three");
}

#[test]
fn round_robin_takes_turns_past_the_full_ones() {
    let mut r = Rig::new(&set(&[lane(3, Spread::RoundRobin)]), 0);
    let push = |r: &mut Rig, n: usize| (0..n).map(|_| r.push(to(0, 0, 7), 0, 8)).collect();
    let taken: Vec<_> = push(&mut r, 5);
    assert_eq!(taken, [Ok(0), Ok(1), Ok(2), Ok(0), Ok(1)]);
    r.t.complete(QpId::new(0, 0, 0), 2);
    r.poll();
    let taken: Vec<_> = push(&mut r, 9);
    assert_eq!(taken, [2, 0, 1, 2, 0, 1, 2, 0, 0].map(Ok), "each holds four");
    let taken: Vec<_> = push(&mut r, 1);
    assert_eq!(taken, [Err(LaneError::Full)]);
    assert_eq!(r.push(to(0, 1, 0), 0, 8), Ok(3), "the other peer has its own");
}

#[test]
fn the_least_bytes_take_the_next_and_equals_take_turns() {
    let mut r = Rig::new(&set(&[lane(3, Spread::LeastBytes)]), 0);
    let push = |r: &mut Rig, bytes| r.push(to(0, 0, 0), 0, bytes).unwrap();
    assert_eq!([8, 8, 8].map(|b| push(&mut r, b)), [0, 1, 2], "in turn");
    assert_eq!([200, 50, 9, 9].map(|b| push(&mut r, b)), [0, 1, 2, 2], "208, 58, 26 outstanding");
    // What completes counts no more, and what is full is passed by.
    r.t.complete(QpId::new(0, 0, 0), 2);
    r.poll();
    assert_eq!([8, 8].map(|b| push(&mut r, b)), [0, 0], "0 and 8 against 26 and 58");
    assert_eq!([8, 8].map(|b| push(&mut r, b)), [0, 0]);
    assert_eq!(push(&mut r, 8), 2, "26, since the first is full");
}

#[test]
fn bytes_of_what_a_ring_discards_count_no_more() {
    let batched = SenderConfig {
        batch: BatchConfig { max_wrs: 3, max_delay: Span::from_us(1), ..BatchConfig::default() },
        ..at_once(4)
    };
    let lanes = [LaneConfig { sender: batched, ..lane(2, Spread::LeastBytes) }];
    let mut r = Rig::new(&set(&lanes), 0);
    assert_eq!([r.push(to(0, 0, 0), 0, 100), r.push(to(0, 0, 0), 1, 90)], [Ok(0), Ok(1)]);
    assert_eq!(r.lanes.deadline(), Some(Time::ZERO + Span::from_us(1)));
    r.t.fail_ring(Some((0, RingCause::Full)));
    let e = r.lanes.tick(&mut r.t, Time::ZERO + Span::from_us(1)).unwrap_err();
    assert_eq!((e.qp.index(), e.error.discarded), (0, 1));
    // The other one is still held, and due.
    assert_eq!(r.lanes.deadline(), Some(Time::ZERO + Span::from_us(1)));
    assert_eq!(r.lanes.tick(&mut r.t, Time::ZERO + Span::from_us(1)), Ok(None));
    assert_eq!((r.lanes.stats(0).wqes, r.lanes.stats(0).discarded), (1, 1));
    let taken = [r.push(to(0, 0, 0), 2, 80), r.push(to(0, 0, 0), 3, 9)];
    assert_eq!(taken, [Ok(0), Ok(0)], "nothing outstanding, then 80 against 90");
}

#[test]
fn a_full_stripe_rings_what_alone_keeps_it_full() {
    let batched = SenderConfig {
        batch: BatchConfig { max_wrs: 3, max_delay: Span::from_us(9), ..BatchConfig::default() },
        ..at_once(4)
    };
    for (spread, n) in [(Spread::RoundRobin, 8), (Spread::Ordered, 4)] {
        let lanes = [LaneConfig { sender: batched, ..lane(2, spread) }];
        let mut r = Rig::new(&set(&lanes), 0);
        for i in 0..n {
            assert!(r.push(to(0, 0, 0), i, 8).is_ok());
        }
        // Of each four three have gone as a batch.
        assert_eq!(
            (r.t.log().len() as u64, r.push(to(0, 0, 0), n, 8)),
            (n / 4 * 3, Err(LaneError::Full))
        );
        // Their completions make room, so the fourth waits for its batch or its time (#6).
        assert_eq!(r.t.log().len() as u64, n / 4 * 3);
        assert!(r.lanes.deadline().is_some());
    }
    // Of one that was rung alone nobody tells, so those that are held go; a ring that fails there
    // is named.
    let four = BatchConfig { max_wrs: 4, ..batched.batch };
    let window = WindowConfig { signal_every: 2, ..batched.window };
    let sender = SenderConfig { batch: four, window, ..batched };
    let lanes = [LaneConfig { sender, ..lane(1, Spread::Ordered) }];
    let mut r = Rig::new(&set(&lanes), 0);
    (0..4).for_each(|i| {
        assert!(r.push(to(0, 1, 0), i, 8).is_ok());
        if i == 0 {
            r.lanes.flush(&mut r.t).unwrap();
        }
    });
    r.t.fail_ring(Some((0, RingCause::Os(5))));
    let Err(LaneError::Ring(e)) = r.push(to(0, 1, 0), 4, 8) else { panic!("full") };
    assert_eq!((e.qp.index(), e.error.cause), (1, RingCause::Os(5)));
    // And one of a queue pair that is in ERR.
    r.t.fail_qp(QpId::new(0, 0, 0), WcStatus::RetryExcErr);
    let e = r.push(to(0, 0, 0), 5, 8).unwrap_err();
    assert!(matches!(e, LaneError::Push { qp, .. } if qp.index() == 0), "{e}");
}

#[test]
fn both_paces_hold_a_message_back_and_nothing_else() {
    let byte_per_ns = |burst| PaceConfig::of(BitRate::gbps(8), Bytes(burst));
    let paced = LaneConfig {
        pace: Some(byte_per_ns(250)),
        peer_pace: Some(byte_per_ns(100)),
        ..lane(1, Spread::Ordered)
    };
    let mut r = Rig::new(&set(&[paced, lane(1, Spread::Ordered)]), 0);
    let until = |ns| LaneError::Paced { until: Time::ZERO + Span::from_ns(ns) };
    // The bucket of the peer holds one of a hundred, that of the lane two and a half.
    assert_eq!(r.push(to(0, 0, 0), 0, 100), Ok(0));
    assert_eq!(r.push(to(0, 0, 0), 1, 30), Err(until(30)));
    assert_eq!(r.lanes.ready(r.now, to(0, 0, 0), 30), Time::ZERO + Span::from_ns(30));
    assert_eq!(r.push(to(0, 1, 0), 2, 100), Ok(1));
    // Of the lane's fifty are left.
    r.now = Time::ZERO + Span::from_ns(100);
    assert_eq!(
        [r.push(to(0, 0, 0), 3, 100), r.push(to(0, 1, 0), 4, 100)],
        [Ok(0), Err(until(150))]
    );
    assert_eq!(r.push(to(1, 1, 0), 5, 256), Ok(3), "the other lane has no pace");
    r.now = Time::ZERO + Span::from_ns(149);
    assert_eq!(r.push(to(0, 1, 0), 4, 100), Err(until(150)));
    r.now = Time::ZERO + Span::from_ns(150);
    assert_eq!(r.push(to(0, 1, 0), 4, 100), Ok(1));
}

/// A batch of four at a pace that lets two go at once: never more than two are rung at a time.
#[test]
fn a_batch_does_not_gather_what_the_pace_has_spread() {
    let batch = BatchConfig { max_wrs: 4, max_delay: Span::MAX, ..BatchConfig::default() };
    let sender = SenderConfig { batch, ..at_once(8) };
    let pace = Some(PaceConfig::of(BitRate::gbps(8), Bytes(200)));
    let mut r = Rig::new(&set(&[LaneConfig { pace, sender, ..lane(1, Spread::Ordered) }]), 0);
    let mut push = |ns, id| {
        r.now = Time::ZERO + Span::from_ns(ns);
        let wr = SendWr {
            wr_id: id,
            op: SendOp::Send,
            data: Data::Inline(&[0; 100]),
            flags: SendFlags::empty(),
            dest: None,
        };
        let sent = r.lanes.push(&mut r.t, r.now, to(0, 0, 0), &wr, Cue::More).is_ok();
        (sent, r.lanes.stats(0).rings)
    };
    assert_eq!([push(0, 0), push(0, 1), push(0, 2)], [(true, 0), (true, 0), (false, 1)]);
    assert_eq!([push(100, 2), push(100, 3), push(200, 3)], [(true, 1), (false, 2), (true, 2)]);
}

#[test]
fn another_pace_keeps_what_is_owed_and_a_new_one_begins_full() {
    let byte_per_ns = |burst| PaceConfig::of(BitRate::gbps(8), Bytes(burst));
    let twice = PaceConfig::of(BitRate::gbps(16), Bytes(100));
    let config = [lane(1, Spread::Ordered), LaneConfig { core: Some(1), ..LaneConfig::default() }];
    let mut r = Rig::new(&LanesConfig { cores: 2, ..set(&config) }, 0);
    let ready = |r: &Rig, peer| r.lanes.ready(r.now, to(0, peer, 0), 100).as_ps() / 1000;
    r.lanes.set_pace(0, Some(byte_per_ns(200)), Some(byte_per_ns(100)), r.now).unwrap();
    assert_eq!(r.push(to(0, 0, 0), 0, 100), Ok(0));
    assert_eq!([ready(&r, 0), ready(&r, 1)], [100, 0]);
    // Twice as fast, for what is owed too.
    r.lanes.set_pace(0, Some(byte_per_ns(200)), Some(twice), r.now).unwrap();
    assert_eq!([ready(&r, 0), ready(&r, 1)], [50, 0]);
    r.lanes.set_pace(0, Some(byte_per_ns(100)), None, r.now).unwrap();
    assert_eq!([ready(&r, 0), ready(&r, 1)], [100, 100], "the lane's own, for both");
    r.lanes.set_pace(0, None, None, r.now).unwrap();
    assert_eq!([ready(&r, 0), ready(&r, 1)], [0, 0]);
    assert_eq!(r.lanes.set_pace(1, None, Some(twice), r.now), Ok(()), "another core's: no matter");
    let bad = r.lanes.set_pace(0, None, Some(byte_per_ns(0)), r.now).unwrap_err();
    assert!(bad.to_string().contains("lane 0: a burst of 0 B"), "{bad}");
    let none = r.lanes.set_pace(2, None, None, r.now).unwrap_err();
    assert_eq!(none, LaneError::NoSuchLane { got: 2, lanes: 2 });
}

#[derive(Clone, Debug)]
enum Op {
    Push { lane: u32, peer: u32, flow: u64, len: usize, cue: Cue },
    Pass { ns: u64 },
    Complete { qp: u32, n: u32 },
    Poll,
    Flush,
    RingFault(u32),
    Fail { qp: u32 },
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let cue = prop_oneof![1 => Just(Cue::Urgent), 4 => Just(Cue::Last), 4 => Just(Cue::More)];
    let push = (0..3u32, 0..2u32, 0..5u64, 0..256usize, cue);
    let op = prop_oneof![
        24 => push.prop_map(|(lane, peer, flow, len, cue)| Op::Push { lane, peer, flow, len, cue }),
        8 => (0..900u64).prop_map(|ns| Op::Pass { ns }),
        12 => (0..14u32, 1..6u32).prop_map(|(qp, n)| Op::Complete { qp, n }),
        6 => Just(Op::Poll),
        1 => Just(Op::Flush),
        1 => (0..4u32).prop_map(Op::RingFault),
        1 => (0..14u32).prop_map(|qp| Op::Fail { qp }),
    ];
    prop::collection::vec(op, 0..200)
}

/// A message that was staged and of which nobody has told.
#[derive(Copy, Clone, Debug)]
struct Pending {
    wr_id: u64,
    to: To,
    bytes: u64,
}

/// What the property checks against: the messages of each queue pair, oldest first.
struct Lists {
    of_qp: Vec<Vec<Pending>>,
    /// The last id that completed, by flow of the ordered lane.
    last: std::collections::BTreeMap<(u32, u64), u64>,
}

impl Lists {
    /// Pushes a message, and checks where it went and when.
    fn push(
        &mut self,
        r: &mut Rig,
        plan: &[LaneQp],
        (wr_id, to, len, cue): (u64, To, usize, Cue),
    ) -> Result<(), TestCaseError> {
        let (bytes, flags) = (len as u64, SendFlags::empty());
        let data = Data::Inline(&[0; 256][..len]);
        let wr = SendWr { wr_id, op: SendOp::Send, data, flags, dest: None };
        let ready = r.lanes.ready(r.now, to, bytes);
        let pending = Pending { wr_id, to, bytes };
        match r.lanes.push(&mut r.t, r.now, to, &wr, cue) {
            Ok(sent) => {
                let qp = sent.qp.index() as usize;
                prop_assert_eq!((plan[qp].lane, plan[qp].peer), (to.lane, to.peer));
                prop_assert!(ready == r.now, "before its pace");
                self.of_qp[qp].push(pending);
            }
            Err(LaneError::Paced { until }) => {
                prop_assert!(until == ready && until > r.now);
                let stripes = (0..2).flat_map(|peer| r.lanes.stripe(to.lane, peer));
                prop_assert!(stripes.map(|s| s.held()).sum::<u32>() == 0, "waits in a batch");
            }
            Err(LaneError::Push { qp, error: PushError::Ring { error, staged, .. } }) => {
                if staged {
                    self.of_qp[qp.index() as usize].push(pending);
                }
                self.discard(&LaneRingError { qp, error });
            }
            Err(LaneError::Ring(e)) => self.discard(&e),
            Err(LaneError::Full | LaneError::Push { .. }) => {}
            Err(e) => prop_assert!(false, "{e}"),
        }
        Ok(())
    }

    /// The newest messages of a queue pair are gone.
    fn discard(&mut self, e: &LaneRingError) {
        let list = &mut self.of_qp[e.qp.index() as usize];
        list.truncate(list.len() - e.error.discarded as usize);
    }

    /// Everything that was polled is the oldest of its queue pair, and in the order of its flow.
    fn polled(&mut self, r: &mut Rig, plan: &[LaneQp]) -> Result<(), TestCaseError> {
        for (wr_id, told) in r.poll() {
            let same =
                |q: &LaneQp| (q.lane, q.peer, q.member) == (told.lane, told.peer, told.member);
            let qp = plan.iter().position(same).expect("one of the plan");
            let gone: Vec<_> = self.of_qp[qp].drain(..told.retired as usize).collect();
            prop_assert!(gone.last().is_none_or(|p| p.wr_id == wr_id));
            for p in gone {
                prop_assert_eq!((p.to.lane, p.to.peer), (told.lane, told.peer));
                if p.to.lane == 0 {
                    let before = self.last.insert((p.to.peer, p.to.flow), p.wr_id);
                    prop_assert!(before.is_none_or(|b| b < p.wr_id), "out of the flow's order");
                }
            }
        }
        Ok(())
    }
}

proptest! {
    #[test]
    fn every_message_is_in_one_queue_pair_and_no_promise_is_broken(
        (batch, every, depth) in (1..6u32, 1..5u32, 1..9u32),
        adaptive in prop::bool::ANY,
        ops in ops(),
    ) {
        let mode = if adaptive { BatchMode::ADAPTIVE } else { BatchMode::Fixed };
        let batch = BatchConfig {
            mode, max_wrs: batch, max_delay: Span::from_ns(500), ..BatchConfig::default()
        };
        let window = WindowConfig { max_wrs: depth, signal_every: every };
        let sender = SenderConfig { batch, window, signal_last: false };
        let pace = PaceConfig::of(BitRate::gbps(4), Bytes(600));
        let of = |qps, spread| LaneConfig { sender, ..lane(qps, spread) };
        let lanes = [
            of(2, Spread::Ordered),
            LaneConfig { peer_pace: Some(pace), ..of(2, Spread::RoundRobin) },
            LaneConfig { pace: Some(pace), ..of(3, Spread::LeastBytes) },
        ];
        let config = set(&lanes);
        let plan: Vec<_> = config.qps(0).collect();
        let mut r = Rig::new(&config, 0);
        let mut lists = Lists { of_qp: std::vec![Vec::new(); 14], last: Default::default() };
        for (wr_id, op) in (0..).zip(ops) {
            match op {
                Op::Push { lane, peer, flow, len, cue } => {
                    lists.push(&mut r, &plan, (wr_id, to(lane, peer, flow), len, cue))?;
                }
                Op::Pass { ns } => {
                    let end = r.now + Span::from_ns(ns);
                    while let Some(due) = r.lanes.deadline().filter(|d| *d <= end) {
                        r.now = r.now.max(due);
                        if let Err(e) = r.lanes.tick(&mut r.t, r.now) {
                            lists.discard(&e);
                        }
                    }
                    r.now = end;
                }
                Op::Complete { qp, n } => r.t.complete(QpId::new(qp, 0, 0), n),
                Op::Poll => lists.polled(&mut r, &plan)?,
                Op::Flush => while let Err(e) = r.lanes.flush(&mut r.t) {
                    lists.discard(&e);
                },
                Op::RingFault(n) => r.t.fail_ring(Some((n, RingCause::Os(5)))),
                Op::Fail { qp } => r.t.fail_qp(QpId::new(qp, 0, 0), WcStatus::RetryExcErr),
            }
            prop_assert!(!r.t.cq_lost());
            prop_assert!(r.lanes.deadline().is_none_or(|d| d > r.now), "held past its deadline");
            // Window, bytes and lists agree, of each queue pair.
            for (m, list) in r.lanes.members.iter().zip(&lists.of_qp) {
                prop_assert_eq!(m.sender.window().used() as usize, list.len());
                let bytes: u64 = list.iter().map(|p| p.bytes).sum();
                prop_assert!(m.bytes() == bytes || m.lane != 2);
                prop_assert!(m.sender.held() == 0 || m.listed);
            }
        }
    }
}
