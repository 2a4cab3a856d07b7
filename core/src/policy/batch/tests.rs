//! A batcher on a transport that does nothing but count.

use std::collections::VecDeque;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::transport::*;
use crate::verbs::{QpState, SendFlags};

const QP: QpId = QpId::new(3, 0, 0);

/// One QP. It keeps which work requests are where.
#[derive(Debug, Default)]
struct Wire {
    depth: u32,
    max_staged: u32,
    staged: Vec<u64>,
    rung: Vec<u64>,
    lost: Vec<u64>,
    unpolled: u32,
    rings: u32,
    fences: u32,
    /// Answers to the next calls of `stage`; `None` lets it through.
    stage_faults: VecDeque<Option<StageError>>,
    /// Answers to the next rings: how many WQEs are posted, and why it fails.
    ring_faults: VecDeque<Option<(u32, RingCause)>>,
}

impl Wire {
    fn caps(&self, ring_orders_stores: bool) -> QpCaps {
        QpCaps {
            max_send_wr: self.depth,
            sq_blocks: None,
            max_recv_wr: 0,
            max_staged: self.max_staged,
            max_sge: 1,
            max_inline: 1 << 20,
            bf_bytes: 0,
            ring_orders_stores,
            ring_choice: false,
            shareable: false,
            atomics: false,
            max_rd_atomic: 0,
        }
    }
}

impl Transport for Wire {
    fn now(&self) -> Time {
        unreachable!("the time is passed in")
    }

    fn initiator(&self) -> Initiator {
        Initiator::Cpu { core: 0, numa: 0 }
    }

    fn qp_caps(&self, _qp: QpId) -> Result<QpCaps, BadHandle> {
        Ok(self.caps(true))
    }

    fn sq_free(&self, _qp: QpId) -> u32 {
        self.depth - self.unpolled - self.staged.len() as u32
    }

    fn stage(&mut self, qp: QpId, wr: &SendWr<'_>) -> Result<(), StageError> {
        assert_eq!(qp, QP);
        if let Some(Some(e)) = self.stage_faults.pop_front() {
            return Err(e);
        }
        if self.sq_free(qp) == 0 {
            return Err(StageError::SqFull);
        }
        if self.staged.len() as u32 == self.max_staged {
            return Err(StageError::StagedFull);
        }
        self.staged.push(wr.wr_id);
        Ok(())
    }

    fn ring(&mut self, qp: QpId, how: Ring) -> Result<Rung, RingError> {
        assert_eq!((qp, how), (QP, Ring::Doorbell));
        let wqes = self.staged.len() as u32;
        assert!(wqes > 0, "an empty ring");
        let Some((posted, cause)) = self.ring_faults.pop_front().flatten() else {
            self.rings += 1;
            self.unpolled += wqes;
            self.rung.append(&mut self.staged);
            return Ok(Rung { wqes, by: RungBy::Doorbell });
        };
        let posted = if cause == RingCause::Indeterminate { 0 } else { posted.min(wqes) };
        self.rings += u32::from(posted > 0);
        self.unpolled += posted;
        self.rung.extend(self.staged.drain(..posted as usize));
        self.lost.append(&mut self.staged);
        let told = !matches!(cause, RingCause::Indeterminate | RingCause::BadHandle);
        Err(RingError { posted, discarded: if told { wqes - posted } else { 0 }, cause })
    }

    fn unstage(&mut self, _qp: QpId) -> u32 {
        core::mem::take(&mut self.staged).len() as u32
    }

    fn post_recv(&mut self, _q: RecvQueue, _wrs: &[RecvWr]) -> Result<(), PostRecvError> {
        unreachable!("a batcher sends")
    }

    fn poll_cq(&mut self, _cq: CqId, _out: &mut Completions) -> Result<(), PollError> {
        unreachable!("a batcher does not poll")
    }

    fn fence(&mut self, scope: FenceScope) {
        assert_eq!(scope, FenceScope::System);
        self.fences += 1;
    }

    fn compute(&mut self, _work: Work) {
        unreachable!("a batcher does not compute")
    }

    fn copy_in(&mut self, _to: Range, _from: &[u8]) -> Result<(), MemError> {
        unreachable!("a batcher touches no memory")
    }

    fn copy_out(&mut self, _from: Range, _to: &mut [u8]) -> Result<(), MemError> {
        unreachable!("a batcher touches no memory")
    }

    fn reduce(&mut self, _op: Reduce, _to: Range, _from: Range) -> Result<(), MemError> {
        unreachable!("a batcher touches no memory")
    }

    fn load_u64(&mut self, _at: Range) -> Result<u64, MemError> {
        unreachable!("a batcher touches no memory")
    }

    fn store_u64(&mut self, _at: Range, _value: u64) -> Result<(), MemError> {
        unreachable!("a batcher touches no memory")
    }
}

fn at(ns: u64) -> Time {
    Time::ZERO + Span::from_ns(ns)
}

fn config(max_wrs: u32, max_bytes: u64, delay_ns: u64) -> BatchConfig {
    let (max_bytes, max_delay) = (Bytes(max_bytes), Span::from_ns(delay_ns));
    BatchConfig { max_wrs, max_bytes, max_delay, ring: Ring::Doorbell }
}

fn rig(depth: u32, max_staged: u32, config: BatchConfig) -> (Wire, Batcher) {
    let wire = Wire { depth, max_staged, ..Wire::default() };
    let batcher = Batcher::new(config, QP, &wire.caps(true));
    (wire, batcher)
}

fn push(
    b: &mut Batcher,
    w: &mut Wire,
    now: Time,
    (wr_id, len): (u64, u32),
    urgent: bool,
) -> Result<Pushed, PushError> {
    let sges = [Sge { len, ..Sge::default() }];
    let (data, flags) = (Data::Sge(&sges), SendFlags::empty());
    b.push(w, now, &SendWr { wr_id, op: SendOp::Send, data, flags, dest: None }, urgent)
}

#[test]
fn rings_at_each_limit_and_not_one_before() {
    let (mut w, mut b) = rig(64, 64, config(3, 100, 1000));
    let mut go = |b: &mut Batcher, ns, len, urgent| push(b, &mut w, at(ns), (0, len), urgent);
    let held = |held| Ok(Pushed { rung: 0, held });
    let rung = |rung| Ok(Pushed { rung, held: 0 });
    // Work requests.
    assert_eq!([go(&mut b, 0, 1, false), go(&mut b, 0, 1, false)], [held(1), held(2)]);
    assert_eq!(go(&mut b, 0, 1, false), rung(3));
    // Bytes.
    assert_eq!([go(&mut b, 0, 50, false), go(&mut b, 0, 49, false)], [held(1), held(2)]);
    assert_eq!([b.deadline(), Some(at(1000))], [Some(at(1000)); 2]);
    assert_eq!(go(&mut b, 0, 1, false), rung(3));
    assert_eq!(go(&mut b, 0, 100, false), rung(1));
    // Age: of the oldest, and a push notices too.
    assert_eq!([go(&mut b, 10, 1, false), go(&mut b, 1009, 1, false)], [held(1), held(2)]);
    assert_eq!(go(&mut b, 1010, 1, true), rung(3));
    assert_eq!([go(&mut b, 2000, 1, false), go(&mut b, 3000, 1, false)], [held(1), rung(2)]);
    // Urgency.
    assert_eq!(go(&mut b, 3000, 1, true), rung(1));
    assert_eq!(b.deadline(), None);
    assert_eq!((b.stats().rings, b.stats().wqes), (6, 3 + 3 + 1 + 3 + 2 + 1));
}

#[test]
fn a_tick_rings_at_the_deadline_and_a_flush_at_once() {
    let (mut w, mut b) = rig(64, 64, config(8, 1 << 20, 500));
    assert_eq!(b.tick(&mut w, at(0)), Ok(None));
    push(&mut b, &mut w, at(100), (1, 8), false).unwrap();
    assert_eq!(b.tick(&mut w, at(599)), Ok(Some(at(600))));
    assert_eq!(w.rung.len(), 0);
    assert_eq!(b.tick(&mut w, at(600)), Ok(None));
    assert_eq!(w.rung, [1]);
    assert_eq!(b.flush(&mut w).map(|r| r.wqes), Ok(0));
    push(&mut b, &mut w, at(700), (2, 8), false).unwrap();
    assert_eq!(b.flush(&mut w).map(|r| r.wqes), Ok(1));
    assert_eq!((w.rings, b.stats().rings, b.held()), (2, 2, 0));
}

#[test]
fn limits_of_the_qp_and_zeros() {
    let max =
        |depth, max_staged, max_wrs| rig(depth, max_staged, config(max_wrs, 1, 1)).1.max_wrs();
    assert_eq!([max(16, 8, 9), max(16, 8, 8), max(16, 8, 7)], [8, 8, 7]);
    assert_eq!([max(4, 8, 9), max(4, 8, 0)], [4, 1]);
    for zero in [config(0, 100, 100), config(9, 0, 100), config(9, 100, 0)] {
        let (mut w, mut b) = rig(16, 8, zero);
        assert_eq!(push(&mut b, &mut w, at(1), (1, 0), false), Ok(Pushed { rung: 1, held: 0 }));
    }
}

#[test]
fn full_queues_ring_first() {
    // The staging area is smaller than what was granted: ring, then once more.
    let (mut w, mut b) = rig(16, 8, config(8, 1 << 20, 500));
    w.max_staged = 2;
    for id in 0..2 {
        push(&mut b, &mut w, at(0), (id, 1), false).unwrap();
    }
    assert_eq!(push(&mut b, &mut w, at(9), (2, 1), false), Ok(Pushed { rung: 2, held: 1 }));
    assert_eq!((w.rung.as_slice(), b.deadline()), (&[0, 1][..], Some(at(509))));
    // The queue is full: what is held is rung, and the caller has to poll.
    w.unpolled = 15;
    let full = Err(PushError::Refused(StageError::SqFull));
    assert_eq!(push(&mut b, &mut w, at(10), (3, 1), false), full);
    assert_eq!((w.rung.len(), b.held(), b.deadline()), (3, 0, None));
    assert_eq!(push(&mut b, &mut w, at(11), (3, 1), false), full);
    assert_eq!(w.rings, 2);
    w.unpolled = 0;
    assert_eq!(push(&mut b, &mut w, at(12), (3, 1), true), Ok(Pushed { rung: 1, held: 0 }));
    // Other refusals change nothing.
    push(&mut b, &mut w, at(20), (4, 1), false).unwrap();
    let bad = StageError::TooLong { got: 9, max: 8 };
    w.stage_faults.push_back(Some(bad));
    assert_eq!(push(&mut b, &mut w, at(21), (5, 9), true), Err(PushError::Refused(bad)));
    assert_eq!((b.held(), w.staged.as_slice()), (1, &[4][..]));
}

#[test]
fn failed_rings_are_accounted_for() {
    let mut all = vec_of_outcomes();
    all.sort();
    // posted, discarded, unknown
    assert_eq!(all, [(0, 0, 3), (0, 3, 0), (1, 2, 0), (2, 1, 0)]);
    let (mut w, mut b) = rig(16, 8, config(8, 1 << 20, 500));
    push(&mut b, &mut w, at(0), (0, 1), false).unwrap();
    w.stage_faults.push_back(Some(StageError::StagedFull));
    w.ring_faults.push_back(Some((0, RingCause::Os(5))));
    let error = RingError { posted: 0, discarded: 1, cause: RingCause::Os(5) };
    let failed = PushError::Ring { error, rung: 0, staged: false };
    assert_eq!(push(&mut b, &mut w, at(1), (1, 1), false), Err(failed));
    assert_eq!((w.lost.as_slice(), b.held()), (&[0][..], 0));
    // Room was made, and the ring for the new one failed.
    push(&mut b, &mut w, at(2), (2, 1), false).unwrap();
    w.stage_faults.push_back(Some(StageError::StagedFull));
    w.ring_faults.extend([None, Some((0, RingCause::Indeterminate))]);
    let error = RingError { posted: 0, discarded: 0, cause: RingCause::Indeterminate };
    let later = PushError::Ring { error, rung: 1, staged: true };
    assert_eq!(push(&mut b, &mut w, at(3), (3, 1), true), Err(later));
    assert_eq!((w.rung.as_slice(), w.lost.as_slice()), (&[2][..], &[0, 3][..]));
    use std::string::ToString;
    assert!(failed.to_string().ends_with("the new work request was not staged"));
}

fn vec_of_outcomes() -> Vec<(u64, u64, u64)> {
    let faults = [
        (2, RingCause::Full),
        (1, RingCause::BadState(QpState::Err)),
        (0, RingCause::BadHandle),
        (0, RingCause::Indeterminate),
    ];
    let outcome = |fault| {
        let (mut w, mut b) = rig(16, 8, config(3, 1 << 20, 500));
        push(&mut b, &mut w, at(0), (0, 1), false).unwrap();
        push(&mut b, &mut w, at(0), (1, 1), false).unwrap();
        w.ring_faults.push_back(Some(fault));
        let failed = push(&mut b, &mut w, at(0), (2, 1), false);
        assert!(matches!(failed, Err(PushError::Ring { staged: true, .. })), "{failed:?}");
        assert_eq!((b.held(), b.deadline()), (0, None));
        let s = b.stats();
        assert_eq!(s.rings, u64::from(s.wqes > 0));
        (s.wqes, s.discarded, s.unknown)
    };
    faults.into_iter().map(outcome).collect()
}

#[test]
fn stores_are_fenced_where_the_ring_does_not_order_them() {
    for (ordered, fences) in [(true, 0), (false, 2)] {
        let mut w = Wire { depth: 8, max_staged: 8, ..Wire::default() };
        let mut b = Batcher::new(config(2, 1 << 20, 500), QP, &w.caps(ordered));
        for id in 0..4 {
            push(&mut b, &mut w, at(0), (id, 1), false).unwrap();
        }
        assert_eq!((w.rings, w.fences), (2, fences));
    }
}

#[test]
fn what_was_unstaged_is_forgotten() {
    let (mut w, mut b) = rig(16, 8, config(3, 1 << 20, 500));
    push(&mut b, &mut w, at(0), (0, 1), false).unwrap();
    w.unstage(QP);
    assert_eq!((b.forget(), b.forget(), b.deadline()), (1, 0, None));
    assert_eq!(b.tick(&mut w, at(9999)), Ok(None));
    push(&mut b, &mut w, at(10_000), (1, 1), false).unwrap();
    assert_eq!(b.deadline(), Some(at(10_500)));
}

#[derive(Clone, Debug)]
enum Op {
    Push {
        len: u32,
        urgent: bool,
    },
    Pass {
        ns: u64,
    },
    Poll {
        slots: u32,
    },
    Flush,
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
    let op = prop_oneof![
        8 => (0..3000u32, prop::bool::weighted(0.1))
            .prop_map(|(len, urgent)| Op::Push { len, urgent }),
        4 => (0..800u64).prop_map(|ns| Op::Pass { ns }),
        2 => (1..9u32).prop_map(|slots| Op::Poll { slots }),
        1 => Just(Op::Flush),
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

    fn push(&mut self, b: &mut Batcher, w: &mut Wire, len: u32, urgent: bool) {
        let before = b.held();
        match push(b, w, self.now, (self.next, len), urgent) {
            Ok(p) => {
                self.held.push_back((self.next, self.now, len));
                self.next += 1;
                self.rang(p.rung);
                assert_eq!(p.held, b.held());
            }
            Err(PushError::Refused(e)) => {
                let no_room = matches!(e, StageError::SqFull | StageError::StagedFull);
                self.rang(before - b.held());
                assert!(!no_room || b.held() == 0, "it keeps a full queue full");
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

    fn tick(&mut self, b: &mut Batcher, w: &mut Wire) {
        let before = b.held();
        match b.tick(w, self.now) {
            Ok(next) => {
                self.rang(before - b.held());
                assert!(next.is_none_or(|n| n > self.now));
            }
            Err(e) => self.ring_failed(e),
        }
    }

    fn pass(&mut self, b: &mut Batcher, w: &mut Wire, ns: u64) {
        let end = self.now + Span::from_ns(ns);
        while let Some(due) = b.deadline().filter(|&d| d <= end) {
            self.now = self.now.max(due);
            self.tick(b, w);
        }
        self.now = end;
    }

    fn flush(&mut self, b: &mut Batcher, w: &mut Wire) {
        match b.flush(w) {
            Ok(rung) => self.rang(rung.wqes),
            Err(e) => self.ring_failed(e),
        }
        assert_eq!((b.held(), w.staged.len()), (0, 0));
    }

    /// What holds between calls.
    fn check(&self, b: &Batcher, w: &Wire, c: &BatchConfig) {
        assert_eq!(w.staged, self.held.iter().map(|h| h.0).collect::<Vec<_>>());
        assert_eq!((&w.rung, &w.lost), (&self.rung, &self.lost), "rung or reported, in order");
        assert!(b.held() < b.max_wrs() && b.max_wrs() <= w.max_staged.min(w.depth));
        let bytes: u64 = self.held.iter().map(|h| u64::from(h.2)).sum();
        assert!(self.held.is_empty() || bytes < c.max_bytes.0);
        assert!(self.held.iter().all(|h| h.1 + c.max_delay > self.now), "past its deadline");
        let s = b.stats();
        assert_eq!((s.rings, s.wqes), (u64::from(w.rings), w.rung.len() as u64));
        assert_eq!(s.discarded + s.unknown, w.lost.len() as u64);
        assert!(s.rings <= s.wqes);
        assert!(w.rung.is_sorted());
    }
}

proptest! {
    #[test]
    fn every_wqe_is_rung_in_time_and_in_order_or_reported(
        (depth, max_staged) in (1..20u32, 1..12u32),
        (max_wrs, max_bytes, delay) in (0..16u32, 0..9000u64, 0..900u64),
        ops in ops(),
    ) {
        let c = config(max_wrs, max_bytes, delay);
        let (mut w, mut b) = rig(depth, max_staged, c);
        let mut caller = Caller::default();
        for op in ops {
            match op {
                Op::Push { len, urgent } => caller.push(&mut b, &mut w, len, urgent),
                Op::Pass { ns } => caller.pass(&mut b, &mut w, ns),
                Op::Poll { slots } => w.unpolled = w.unpolled.saturating_sub(slots),
                Op::Flush => caller.flush(&mut b, &mut w),
                Op::StageFault(e) => w.stage_faults.push_back(Some(e)),
                Op::RingFault(n, cause) => w.ring_faults.push_back(Some((n, cause))),
                Op::RingOk => w.ring_faults.push_back(None),
            }
            caller.check(&b, &w, &c);
        }
        caller.flush(&mut b, &mut w);
        caller.check(&b, &w, &c);
        prop_assert_eq!(w.rung.len() + w.lost.len(), caller.next as usize);
    }
}
