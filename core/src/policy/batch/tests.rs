//! A batcher on a transport that does nothing but keep its queues.

use std::collections::VecDeque;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::noop::{Fate, NoOp};
use crate::transport::*;
use crate::verbs::{QpState, SendFlags};

fn caps(depth: u32, max_staged: u32) -> QpCaps {
    QpCaps { max_staged, ..NoOp::caps(depth) }
}

/// One QP whose WQEs stay outstanding, and its batcher.
#[derive(Debug)]
struct Rig {
    t: NoOp,
    qp: QpId,
    b: Batcher,
}

impl Rig {
    fn of(caps: QpCaps, config: BatchConfig) -> Self {
        let mut t = NoOp::new(64);
        t.keep_log();
        t.hold_completions();
        let qp = t.add_qp(caps, None);
        Self { t, qp, b: Batcher::new(config, qp, &caps) }
    }

    fn new(depth: u32, max_staged: u32, config: BatchConfig) -> Self {
        Self::of(caps(depth, max_staged), config)
    }

    fn push(&mut self, now: Time, (wr_id, len): (u64, u32), cue: Cue) -> Result<Pushed, PushError> {
        let sges = [Sge { len, ..Sge::default() }];
        let (data, flags) = (Data::Sge(&sges), SendFlags::SIGNALED);
        let wr = SendWr { wr_id, op: SendOp::Send, data, flags, dest: None };
        self.b.push(&mut self.t, now, &wr, cue)
    }

    fn tick(&mut self, now: Time) -> Result<Option<Time>, RingError> {
        self.b.tick(&mut self.t, now)
    }

    fn of_fate(&self, fate: Fate) -> Vec<u64> {
        self.t.log().iter().filter(|l| l.1 == fate).map(|l| l.0).collect()
    }

    fn rung(&self) -> Vec<u64> {
        self.of_fate(Fate::Rung)
    }

    fn lost(&self) -> Vec<u64> {
        self.of_fate(Fate::Lost)
    }

    fn staged(&self) -> Vec<u64> {
        self.t.staged(self.qp).collect()
    }

    /// The `n` oldest are done, and polled.
    fn poll(&mut self, n: u32) {
        self.t.complete(self.qp, n);
        let mut out = Completions::with_capacity(64);
        self.t.poll_cq(NoOp::CQ, &mut out).unwrap();
    }
}

fn at(ns: u64) -> Time {
    Time::ZERO + Span::from_ns(ns)
}

fn config(max_wrs: u32, max_bytes: u64, delay_ns: u64) -> BatchConfig {
    let (max_bytes, max_delay) = (Bytes(max_bytes), Span::from_ns(delay_ns));
    let (mode, ring) = (BatchMode::Fixed, Ring::Doorbell);
    BatchConfig { mode, max_wrs, max_bytes, max_delay, ring, ..BatchConfig::default() }
}

#[test]
fn rings_at_each_limit_and_not_one_before() {
    let mut r = Rig::new(64, 64, config(3, 100, 1000));
    let mut go = |ns, len, cue| r.push(at(ns), (0, len), cue);
    let held = |held| Ok(Pushed { rung: 0, held });
    let rung = |rung| Ok(Pushed { rung, held: 0 });
    let wait = Cue::Last;
    // Work requests; a fixed batch waits whether or not more are announced.
    assert_eq!([go(0, 1, wait), go(0, 1, Cue::More)], [held(1), held(2)]);
    assert_eq!(go(0, 1, wait), rung(3));
    // Bytes.
    assert_eq!([go(0, 50, wait), go(0, 49, wait)], [held(1), held(2)]);
    assert_eq!(go(0, 1, wait), rung(3));
    assert_eq!(go(0, 100, wait), rung(1));
    // Age: of the oldest, and a push notices too.
    assert_eq!([go(10, 1, wait), go(1009, 1, wait)], [held(1), held(2)]);
    assert_eq!(go(1010, 1, Cue::Urgent), rung(3));
    assert_eq!([go(2000, 1, wait), go(3000, 1, wait)], [held(1), rung(2)]);
    // Urgency.
    assert_eq!(go(3000, 1, Cue::Urgent), rung(1));
    assert_eq!(r.b.deadline(), None);
    assert_eq!((r.b.stats().rings, r.b.stats().wqes), (6, 3 + 3 + 1 + 3 + 2 + 1));
}

#[test]
fn a_tick_rings_at_the_deadline_and_a_flush_at_once() {
    let mut r = Rig::new(64, 64, config(8, 1 << 20, 500));
    assert_eq!(r.tick(at(0)), Ok(None));
    r.push(at(100), (1, 8), Cue::Last).unwrap();
    assert_eq!(r.b.deadline(), Some(at(600)));
    assert_eq!(r.tick(at(599)), Ok(Some(at(600))));
    assert_eq!(r.rung(), []);
    assert_eq!(r.tick(at(600)), Ok(None));
    assert_eq!(r.rung(), [1]);
    assert_eq!(r.b.flush(&mut r.t).map(|r| r.wqes), Ok(0));
    r.push(at(700), (2, 8), Cue::Last).unwrap();
    assert_eq!(r.b.flush(&mut r.t).map(|r| r.wqes), Ok(1));
    assert_eq!((r.t.stats().rings, r.b.stats().rings, r.b.held()), (2, 2, 0));
}

#[test]
fn limits_of_the_qp_and_zeros() {
    let max =
        |depth, max_staged, max_wrs| Rig::new(depth, max_staged, config(max_wrs, 1, 1)).b.max_wrs();
    assert_eq!([max(16, 8, 9), max(16, 8, 8), max(16, 8, 7)], [8, 8, 7]);
    assert_eq!([max(4, 8, 9), max(4, 8, 0)], [4, 1]);
    for zero in [config(0, 100, 100), config(9, 0, 100), config(9, 100, 0)] {
        let mut r = Rig::new(16, 8, zero);
        assert_eq!(r.push(at(1), (1, 0), Cue::Last), Ok(Pushed { rung: 1, held: 0 }));
    }
}

#[test]
fn full_queues_ring_first() {
    // The staging area is smaller than what was granted: ring, then once more.
    let mut r = Rig::new(4, 4, config(8, 1 << 20, 500));
    for id in 0..2 {
        r.push(at(0), (id, 1), Cue::Last).unwrap();
    }
    r.t.fail_stage(Some(StageError::StagedFull));
    assert_eq!(r.push(at(9), (2, 1), Cue::Last), Ok(Pushed { rung: 2, held: 1 }));
    assert_eq!((r.rung(), r.b.deadline()), (std::vec![0, 1], Some(at(509))));
    // The queue is full: what is held is rung, and the caller has to poll.
    r.t.fail_stage(Some(StageError::SqFull));
    let full = Err(PushError::Refused(StageError::SqFull));
    assert_eq!(r.push(at(10), (3, 1), Cue::Last), full);
    assert_eq!((r.rung().len(), r.b.held(), r.b.deadline()), (3, 0, None));
    r.push(at(10), (3, 1), Cue::Urgent).unwrap();
    assert_eq!(r.push(at(11), (4, 1), Cue::Last), full);
    assert_eq!(r.t.stats().rings, 3);
    r.poll(4);
    assert_eq!(r.push(at(12), (4, 1), Cue::Urgent), Ok(Pushed { rung: 1, held: 0 }));
    // Other refusals change nothing.
    r.push(at(20), (5, 1), Cue::Last).unwrap();
    let bad = StageError::TooLong { got: 9, max: 8 };
    r.t.fail_stage(Some(bad));
    assert_eq!(r.push(at(21), (6, 9), Cue::Urgent), Err(PushError::Refused(bad)));
    assert_eq!((r.b.held(), r.staged()), (1, std::vec![5]));
}

#[test]
fn a_refused_work_request_is_not_waited_for() {
    let bad = StageError::TooLong { got: 9, max: 8 };
    for (cue, next) in [(Cue::Last, None), (Cue::Urgent, None), (Cue::More, Some(at(500)))] {
        let mut r = Rig::new(64, 64, adaptive(4));
        r.push(at(0), (0, 1), Cue::More).unwrap();
        r.t.fail_stage(Some(bad));
        assert_eq!(r.push(at(1), (1, 9), cue), Err(PushError::Refused(bad)));
        assert_eq!((r.b.held(), r.tick(at(2))), (1, Ok(next)), "{cue:?}");
    }
}

#[test]
fn failed_rings_are_accounted_for() {
    let mut all = outcomes();
    all.sort();
    // posted, discarded, unknown
    assert_eq!(all, [(0, 0, 3), (0, 3, 0), (1, 2, 0), (2, 1, 0)]);
    let mut r = Rig::new(16, 8, config(8, 1 << 20, 500));
    r.push(at(0), (0, 1), Cue::Last).unwrap();
    r.t.fail_stage(Some(StageError::StagedFull));
    r.t.fail_ring(Some((0, RingCause::Os(5))));
    let error = RingError { posted: 0, discarded: 1, cause: RingCause::Os(5) };
    let failed = PushError::Ring { error, rung: 0, staged: false };
    assert_eq!(r.push(at(1), (1, 1), Cue::Last), Err(failed));
    assert_eq!((r.lost(), r.b.held()), (std::vec![0], 0));
    // Room was made, and the ring for the new one failed.
    r.push(at(2), (2, 1), Cue::Last).unwrap();
    r.t.fail_stage(Some(StageError::StagedFull));
    r.t.fail_ring(None);
    r.t.fail_ring(Some((0, RingCause::Indeterminate)));
    let error = RingError { posted: 0, discarded: 0, cause: RingCause::Indeterminate };
    let later = PushError::Ring { error, rung: 1, staged: true };
    assert_eq!(r.push(at(3), (3, 1), Cue::Urgent), Err(later));
    assert_eq!((r.rung(), r.lost()), (std::vec![2], std::vec![0, 3]));
    use std::string::ToString;
    assert!(failed.to_string().ends_with("the new work request was not staged"));
}

fn outcomes() -> Vec<(u64, u64, u64)> {
    let faults = [
        (2, RingCause::Full),
        (1, RingCause::BadState(QpState::Err)),
        (0, RingCause::BadHandle),
        (0, RingCause::Indeterminate),
    ];
    let outcome = |fault| {
        let mut r = Rig::new(16, 8, config(3, 1 << 20, 500));
        r.push(at(0), (0, 1), Cue::Last).unwrap();
        r.push(at(0), (1, 1), Cue::Last).unwrap();
        r.t.fail_ring(Some(fault));
        let failed = r.push(at(0), (2, 1), Cue::Last);
        assert!(matches!(failed, Err(PushError::Ring { staged: true, .. })), "{failed:?}");
        assert_eq!((r.b.held(), r.b.deadline()), (0, None));
        let s = r.b.stats();
        assert_eq!(s.rings, u64::from(s.wqes > 0));
        (s.wqes, s.discarded, s.unknown)
    };
    faults.into_iter().map(outcome).collect()
}

#[test]
fn stores_are_fenced_where_the_ring_does_not_order_them() {
    for (ring_orders_stores, fences) in [(true, 0), (false, 2)] {
        let caps = QpCaps { ring_orders_stores, ..caps(8, 8) };
        let mut r = Rig::of(caps, config(2, 1 << 20, 500));
        for id in 0..4 {
            r.push(at(0), (id, 1), Cue::Last).unwrap();
        }
        assert_eq!((r.t.stats().rings, r.t.stats().fences), (2, fences));
    }
}

#[test]
fn what_was_unstaged_is_forgotten() {
    let mut r = Rig::new(16, 8, config(3, 1 << 20, 500));
    r.push(at(0), (0, 1), Cue::Last).unwrap();
    assert_eq!(r.t.unstage(r.qp), 1);
    assert_eq!((r.b.forget(), r.b.forget(), r.b.deadline()), (1, 0, None));
    assert_eq!(r.tick(at(9999)), Ok(None));
    r.push(at(10_000), (1, 1), Cue::Last).unwrap();
    assert_eq!(r.b.deadline(), Some(at(10_500)));
}

/// Rings of `n` urgent pushes after one that waits, and those that BlueFlame carried.
fn blueflames(ring: Ring, caps: QpCaps, bytes: &[u8]) -> (u64, u64) {
    let mut r = Rig::of(caps, BatchConfig { ring, ..config(8, 1 << 20, 500) });
    let mut push = |cue| {
        let (data, flags) = (Data::Inline(bytes), SendFlags::empty());
        let wr = SendWr { wr_id: 0, op: SendOp::Send, data, flags, dest: None };
        r.b.push(&mut r.t, at(0), &wr, cue).unwrap();
    };
    push(Cue::Urgent);
    push(Cue::Last);
    push(Cue::Urgent);
    assert_eq!(r.b.stats().blueflames, r.t.stats().blueflames);
    (r.t.stats().rings, r.t.stats().blueflames)
}

#[test]
fn a_lone_wqe_that_fits_goes_by_blueflame() {
    let (c, none) = (caps(8, 8), QpCaps { bf_bytes: 0, ..caps(8, 8) });
    let deaf = QpCaps { ring_choice: false, ..c };
    // 236 bytes inline are a WQE of four blocks, 237 of five.
    let [fits, above] = [&[0; 236][..], &[0; 237]];
    assert_eq!(blueflames(Ring::Auto, c, fits), (2, 1), "of two rings the one for a lone WQE");
    assert_eq!(blueflames(Ring::Auto, c, above), (2, 0));
    assert_eq!(blueflames(Ring::Auto, none, fits), (2, 0));
    assert_eq!(blueflames(Ring::Auto, deaf, fits), (2, 0));
    assert_eq!(blueflames(Ring::Doorbell, c, fits), (2, 0), "a choice is a choice");
}

fn adaptive(share: u32) -> BatchConfig {
    BatchConfig { mode: BatchMode::Adaptive { share }, ..config(6, 1 << 20, 500) }
}

#[test]
fn an_adaptive_batch_grows_with_the_backlog() {
    let mut r = Rig::new(64, 64, adaptive(4));
    let mut go = |cue| r.push(at(0), (0, 1), cue).unwrap().rung;
    // Alone: at once. A burst: one ring at its end, or at the limit.
    assert_eq!([go(Cue::Last), go(Cue::Last)], [1, 1]);
    assert_eq!([go(Cue::More), go(Cue::More), go(Cue::Last)], [0, 0, 3]);
    assert_eq!([(); 7].map(|()| go(Cue::More)), [0, 0, 0, 0, 0, 6, 0]);
    assert_eq!(go(Cue::Urgent), 2);
}

#[test]
fn an_adaptive_batch_grows_with_what_waits_in_the_nic() {
    let mut r = Rig::new(64, 64, adaptive(4));
    // 3 wait there: one goes at once; 4 to 7: two go together; 8: three.
    for (waiting, together) in [(3, 1), (4, 2), (7, 2), (8, 3)] {
        r.b.set_waiting(waiting);
        for n in 1..=together {
            let rung = r.push(at(0), (0, 1), Cue::Last).unwrap().rung;
            assert_eq!(rung, if n == together { together } else { 0 }, "{waiting} wait");
        }
    }
    // What is held goes when the NIC has caught up, before its deadline; not one that others
    // follow.
    r.push(at(0), (1, 1), Cue::Last).unwrap();
    assert_eq!(r.tick(at(1)), Ok(Some(at(500))));
    r.b.set_waiting(3);
    assert_eq!((r.tick(at(2)), r.b.held()), (Ok(None), 0));
    r.push(at(2), (2, 1), Cue::More).unwrap();
    assert_eq!(r.tick(at(3)), Ok(Some(at(502))));
    assert_eq!((r.tick(at(502)), r.b.held()), (Ok(None), 0));
}

#[derive(Clone, Debug)]
enum Op {
    Push {
        len: u32,
        cue: Cue,
    },
    Pass {
        ns: u64,
    },
    Poll {
        slots: u32,
    },
    Flush,
    Waiting(u32),
    StageFault(StageError),
    RingFault(u32, RingCause),
    /// Puts a good ring before the next fault.
    RingOk,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let stage = prop_oneof![
        Just(StageError::SqFull),
        Just(StageError::StagedFull),
        Just(StageError::BadState { state: QpState::Err }),
    ];
    let cause = prop_oneof![
        Just(RingCause::Full),
        Just(RingCause::BadHandle),
        Just(RingCause::Indeterminate),
        Just(RingCause::Os(5)),
    ];
    let cue = prop_oneof![1 => Just(Cue::Urgent), 5 => Just(Cue::Last), 5 => Just(Cue::More)];
    let op = prop_oneof![
        8 => (0..3000u32, cue).prop_map(|(len, cue)| Op::Push { len, cue }),
        4 => (0..800u64).prop_map(|ns| Op::Pass { ns }),
        2 => (1..9u32).prop_map(|slots| Op::Poll { slots }),
        1 => Just(Op::Flush),
        1 => (0..40u32).prop_map(Op::Waiting),
        1 => stage.prop_map(Op::StageFault),
        1 => (0..9u32, cause).prop_map(|(n, c)| Op::RingFault(n, c)),
        1 => Just(Op::RingOk),
    ];
    prop::collection::vec(op, 0..120)
}

/// What the caller of a batcher knows, from its answers alone.
#[derive(Debug, Default)]
struct Caller {
    now: Time,
    next: u64,
    /// Accepted, in order: number, time, bytes.
    held: VecDeque<(u64, Time, u32)>,
    rung: Vec<u64>,
    lost: Vec<u64>,
}

impl Caller {
    fn rang(&mut self, n: u32) {
        self.rung.extend(self.held.drain(..n as usize).map(|h| h.0));
    }

    fn ring_failed(&mut self, e: RingError) {
        self.rang(e.posted);
        if e.cause != RingCause::Indeterminate {
            assert_eq!(self.held.len() as u32, e.discarded, "all that was not posted");
        }
        self.lost.extend(self.held.drain(..).map(|h| h.0));
    }

    fn push(&mut self, r: &mut Rig, len: u32, cue: Cue) {
        let before = r.b.held();
        match r.push(self.now, (self.next, len), cue) {
            Ok(p) => {
                self.held.push_back((self.next, self.now, len));
                self.next += 1;
                self.rang(p.rung);
                assert_eq!(p.held, r.b.held());
            }
            Err(PushError::Refused(e)) => {
                let no_room = matches!(e, StageError::SqFull | StageError::StagedFull);
                self.rang(before - r.b.held());
                assert!(!no_room || r.b.held() == 0, "it keeps a full queue full");
            }
            Err(PushError::Ring { error, rung, staged }) => {
                self.rang(rung);
                if staged {
                    self.held.push_back((self.next, self.now, len));
                    self.next += 1;
                }
                self.ring_failed(error);
            }
        }
    }

    fn tick(&mut self, r: &mut Rig) {
        let before = r.b.held();
        match r.tick(self.now) {
            Ok(next) => {
                self.rang(before - r.b.held());
                assert!(next.is_none_or(|n| n > self.now));
            }
            Err(e) => self.ring_failed(e),
        }
    }

    fn pass(&mut self, r: &mut Rig, ns: u64) {
        let end = self.now + Span::from_ns(ns);
        while let Some(due) = r.b.deadline().filter(|&d| d <= end) {
            self.now = self.now.max(due);
            self.tick(r);
        }
        self.now = end;
    }

    fn flush(&mut self, r: &mut Rig) {
        match r.b.flush(&mut r.t) {
            Ok(rung) => self.rang(rung.wqes),
            Err(e) => self.ring_failed(e),
        }
        assert_eq!((r.b.held(), r.staged()), (0, std::vec![]));
    }

    /// What holds between calls.
    fn check(&self, r: &Rig, c: &BatchConfig, most: u32) {
        let (b, rung, lost) = (&r.b, r.rung(), r.lost());
        assert_eq!(r.staged(), self.held.iter().map(|h| h.0).collect::<Vec<_>>());
        assert_eq!((&rung, &lost), (&self.rung, &self.lost), "rung or reported, in order");
        assert!(b.held() < b.max_wrs() && b.max_wrs() <= most);
        let bytes: u64 = self.held.iter().map(|h| u64::from(h.2)).sum();
        assert!(self.held.is_empty() || bytes < c.max_bytes.0);
        assert!(self.held.iter().all(|h| h.1 + c.max_delay > self.now), "past its deadline");
        let s = b.stats();
        assert_eq!((s.rings, s.wqes), (r.t.stats().rings, rung.len() as u64));
        assert_eq!(s.discarded + s.unknown, lost.len() as u64);
        assert!(s.rings <= s.wqes);
        assert!(rung.is_sorted());
    }
}

proptest! {
    #[test]
    fn every_wqe_is_rung_in_time_and_in_order_or_reported(
        (depth, max_staged) in (1..20u32, 1..12u32),
        (max_wrs, max_bytes, delay) in (0..16u32, 0..9000u64, 0..900u64),
        share in prop::option::of(0..9u32),
        ops in ops(),
    ) {
        let mode = share.map_or(BatchMode::Fixed, |share| BatchMode::Adaptive { share });
        let c = BatchConfig { mode, ..config(max_wrs, max_bytes, delay) };
        let (mut r, most) = (Rig::new(depth, max_staged, c), depth.min(max_staged));
        let mut caller = Caller::default();
        for op in ops {
            match op {
                Op::Push { len, cue } => caller.push(&mut r, len, cue),
                Op::Pass { ns } => caller.pass(&mut r, ns),
                Op::Poll { slots } => r.poll(slots),
                Op::Waiting(n) => r.b.set_waiting(n),
                Op::Flush => caller.flush(&mut r),
                Op::StageFault(e) => r.t.fail_stage(Some(e)),
                Op::RingFault(n, cause) => r.t.fail_ring(Some((n, cause))),
                Op::RingOk => r.t.fail_ring(None),
            }
            caller.check(&r, &c, most);
        }
        caller.flush(&mut r);
        caller.check(&r, &c, most);
        prop_assert_eq!(r.t.log().len(), caller.next as usize);
    }
}
