//! A sender on the back end that does nothing: its queues never overrun, nothing is lost.

use std::vec::Vec;

use proptest::prelude::*;

use super::super::{BatchMode, CqBudget, SendBuffers};
use super::*;
use crate::noop::{Fate, NoOp};
use crate::transport::*;
use crate::units::{Bytes, Span};
use crate::verbs::{QpState, WcStatus};

/// A sender whose WQEs stay outstanding, and what its user knows.
struct Rig {
    t: NoOp,
    s: Sender,
    now: Time,
    next: u64,
    /// Numbers that completions have told of.
    done: u64,
    polled: Completions,
}

impl Rig {
    fn new(config: SenderConfig, caps: QpCaps, entries: u32) -> Self {
        let mut t = NoOp::new(entries);
        t.keep_log();
        t.hold_completions();
        let qp = t.add_qp(caps, None);
        let share = CqBudget::new(entries).take(entries).unwrap();
        let s = Sender::new(config, qp, &caps, share);
        let polled = Completions::with_capacity(5);
        Self { t, s, now: Time::ZERO, next: 0, done: 0, polled }
    }

    fn push(&mut self, len: usize, cue: Cue) -> Result<Pushed, PushError> {
        let (data, flags) = (Data::Inline(&[7; 300][..len]), SendFlags::empty());
        let wr = SendWr { wr_id: self.next, op: SendOp::Send, data, flags, dest: None };
        let pushed = self.s.push(&mut self.t, self.now, &wr, cue);
        let staged = matches!(pushed, Ok(_) | Err(PushError::Ring { staged: true, .. }));
        self.next += u64::from(staged);
        pushed
    }

    /// Polls until the queue is empty; how many work requests were told of.
    fn poll(&mut self) -> u32 {
        let mut all = 0;
        loop {
            self.polled.clear();
            self.t.poll_cq(NoOp::CQ, &mut self.polled).expect("no overrun");
            all +=
                self.polled.as_slice().iter().map(|c| self.s.completion(c, self.now)).sum::<u32>();
            if !self.polled.is_full() {
                self.done += u64::from(all);
                return all;
            }
        }
    }

    fn fates(&self, fate: Fate) -> Vec<u64> {
        self.t.log().iter().filter(|l| l.1 == fate).map(|l| l.0).collect()
    }
}

fn config(max_wrs: u32, mode: BatchMode, signal_every: u32, signal_last: bool) -> SenderConfig {
    let batch = BatchConfig {
        mode,
        max_wrs,
        max_bytes: Bytes(1 << 20),
        max_delay: Span::from_ns(500),
        ..BatchConfig::default()
    };
    SenderConfig { batch, window: WindowConfig { max_wrs: 0, signal_every }, signal_last }
}

#[test]
fn the_window_is_the_least_of_queue_and_share() {
    let window = |entries| {
        let r = Rig::new(config(99, BatchMode::Fixed, 1, false), NoOp::caps(8), entries);
        (r.s.window().max_wrs(), r.s.batch.max_wrs())
    };
    assert_eq!([window(8), window(9), window(3)], [(8, 8), (8, 8), (3, 3)]);
}

#[test]
fn a_full_window_says_so_and_a_batch_waits_for_its_size_while_completions_come() {
    let mut r = Rig::new(config(8, BatchMode::Fixed, 4, false), NoOp::caps(4), 64);
    for _ in 0..3 {
        assert_eq!(r.push(8, Cue::Last).unwrap().rung, 0);
    }
    // The batch is no longer than the window, so the fourth rings.
    assert_eq!(r.push(8, Cue::Last).unwrap().rung, 4);
    let full = Err(PushError::Refused(StageError::SqFull));
    assert_eq!((r.push(8, Cue::Last), r.t.outstanding(r.s.qp())), (full, 4));
    r.t.complete(r.s.qp(), 3);
    assert_eq!(r.poll(), 2, "every second is signalled: half of four");
    assert!(r.push(8, Cue::Last).is_ok() && r.push(8, Cue::Last).is_ok());
    assert_eq!(r.s.held(), 2);
    assert_eq!((r.push(8, Cue::Last), r.s.held()), (full, 2), "the fourth makes room (#6)");
    r.t.complete(r.s.qp(), 1);
    assert_eq!((r.poll(), r.push(8, Cue::Last).map(|p| p.rung)), (2, Ok(0)));
    assert_eq!(r.push(8, Cue::Last).map(|p| p.rung), Ok(4), "as many as the batch has");
    // Of what was rung nothing tells, so what is held must go.
    let mut r = Rig::new(config(8, BatchMode::Fixed, 4, false), NoOp::caps(4), 64);
    r.push(8, Cue::Urgent).unwrap();
    (0..3).for_each(|_| assert_eq!(r.push(8, Cue::Last).map(|p| p.rung), Ok(0)));
    assert_eq!((r.push(8, Cue::Last), r.s.held()), (full, 0), "what was held has gone");
}

#[test]
fn the_last_of_a_burst_is_signalled_if_that_is_wished() {
    for (signal_last, told) in [(false, 0), (true, 3)] {
        let mut r = Rig::new(config(8, BatchMode::ADAPTIVE, 99, signal_last), NoOp::caps(64), 64);
        for cue in [Cue::More, Cue::More, Cue::Last] {
            r.push(8, cue).unwrap();
        }
        assert_eq!(r.fates(Fate::Rung), [0, 1, 2], "a burst on an idle queue goes at its end");
        r.t.complete(r.s.qp(), 3);
        assert_eq!(r.poll(), told);
    }
}

/// One round trip on an idle queue, rung at once.
fn round_trip(r: &mut Rig, ns: u64) {
    r.push(8, Cue::Urgent).unwrap();
    r.now += Span::from_ns(ns);
    r.t.complete(r.s.qp(), 1);
    assert_eq!(r.poll(), 1);
}

#[test]
fn what_waits_in_the_nic_holds_others_back_until_news_comes() {
    let mut r =
        Rig::new(config(16, BatchMode::Adaptive { share: 4 }, 8, true), NoOp::caps(128), 128);
    round_trip(&mut r, 1000);
    round_trip(&mut r, 2000);
    // Half of the time was waiting, so of 8 in flight 4 wait: two go together.
    for n in 0..8 {
        r.push(8, if n < 7 { Cue::More } else { Cue::Urgent }).unwrap();
    }
    assert_eq!([r.push(8, Cue::Last), r.push(8, Cue::Last)].map(|p| p.unwrap().rung), [0, 2]);
    assert_eq!(r.push(8, Cue::Last).unwrap().held, 1);
    // A completion says that nothing waits any more: what is held goes before its deadline.
    r.now += Span::from_ns(400);
    r.t.complete(r.s.qp(), 10);
    assert_eq!((r.poll(), r.s.window().used()), (10, 1));
    assert_eq!((r.s.tick(&mut r.t, r.now), r.s.held()), (Ok(None), 0));
}

#[test]
fn what_may_never_be_told_of_holds_nobody_back() {
    // Three are done and nobody will tell of them. They are not in flight: a lone one is
    // rung at once, although round trips have become long.
    let mut r =
        Rig::new(config(16, BatchMode::Adaptive { share: 1 }, 4, false), NoOp::caps(128), 128);
    for ns in [1000, 9000] {
        for _ in 0..4 {
            r.push(8, Cue::Urgent).unwrap();
        }
        r.now += Span::from_ns(ns);
        r.t.complete(r.s.qp(), 4);
        assert_eq!(r.poll(), 4);
    }
    assert_eq!(r.s.queue().waiting(9), 7, "8 of 9, rounded down");
    for _ in 0..3 {
        assert_eq!(r.push(8, Cue::Last), Ok(Pushed { rung: 1, held: 0 }));
    }
    r.t.complete(r.s.qp(), 3);
    assert_eq!((r.poll(), r.s.window().used()), (0, 3));
    assert_eq!(r.push(8, Cue::Last), Ok(Pushed { rung: 1, held: 0 }));
}

#[test]
fn a_failed_queue_pair_fills_no_completion_queue() {
    // Nothing is signalled but every fourth; all eight complete.
    let mut r = Rig::new(config(8, BatchMode::Fixed, 4, false), NoOp::caps(64), 8);
    for _ in 0..8 {
        r.push(8, Cue::Last).unwrap();
    }
    assert_eq!(r.push(8, Cue::Last), Err(PushError::Refused(StageError::SqFull)));
    r.t.fail_qp(r.s.qp(), WcStatus::RetryExcErr);
    assert_eq!((r.poll(), r.s.window().used(), r.s.window().signals()), (8, 0, 0));
    assert_eq!(r.s.into_share().entries(), 8);
}

#[test]
fn completions_of_others_are_not_ours() {
    let mut r = Rig::new(config(8, BatchMode::Fixed, 1, false), NoOp::caps(8), 64);
    let other = r.t.add_qp(NoOp::caps(8), None);
    r.push(8, Cue::Urgent).unwrap();
    let wr = SendWr {
        wr_id: 0,
        op: SendOp::Send,
        data: Data::Inline(&[]),
        flags: SendFlags::SIGNALED,
        dest: None,
    };
    r.t.stage(other, &wr).unwrap();
    r.t.ring(other, Ring::Auto).unwrap();
    r.t.complete(other, 1);
    assert_eq!((r.poll(), r.s.window().used()), (0, 1));
}

#[derive(Clone, Debug)]
enum Op {
    Push { len: usize, cue: Cue },
    Pass { ns: u64 },
    Complete(u32),
    Poll,
    Flush,
    StageFault(StageError),
    RingFault(Option<(u32, RingCause)>),
    Fail,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let cue = prop_oneof![1 => Just(Cue::Urgent), 5 => Just(Cue::Last), 5 => Just(Cue::More)];
    let cause = prop_oneof![
        Just(RingCause::Full),
        Just(RingCause::BadHandle),
        Just(RingCause::Indeterminate),
        Just(RingCause::Os(5)),
    ];
    let stage = prop_oneof![
        Just(StageError::StagedFull),
        Just(StageError::BadState { state: QpState::Err }),
    ];
    let op = prop_oneof![
        24 => (0..300usize, cue).prop_map(|(len, cue)| Op::Push { len, cue }),
        9 => (0..800u64).prop_map(|ns| Op::Pass { ns }),
        9 => (1..12u32).prop_map(Op::Complete),
        6 => Just(Op::Poll),
        2 => Just(Op::Flush),
        2 => stage.prop_map(Op::StageFault),
        2 => prop::option::of((0..9u32, cause)).prop_map(Op::RingFault),
        1 => prop::bool::weighted(0.2).prop_map(|f| if f { Op::Fail } else { Op::Poll }),
    ];
    prop::collection::vec(op, 0..150)
}

/// Buffers that follow a sender's work requests.
fn follow(r: &mut Rig, b: &mut SendBuffers, len: usize, cue: Cue) {
    if b.take().is_none() {
        return;
    }
    let back = match r.push(len, cue) {
        Ok(_) => 0,
        Err(PushError::Refused(_)) => 1,
        Err(PushError::Ring { error, staged, .. }) => error.discarded + u32::from(!staged),
    };
    (0..back).for_each(|_| b.undo());
}

proptest! {
    #[test]
    fn queues_never_overrun_and_all_is_accounted_for(
        (depth, entries, blocks) in (1..20u32, 1..24u32, prop::option::of(7..40u32)),
        (max_wrs, every, last) in (0..16u32, 0..20u32, prop::bool::ANY),
        share in prop::option::of(0..9u32),
        ops in ops(),
    ) {
        let mode = share.map_or(BatchMode::Fixed, |share| BatchMode::Adaptive { share });
        let max_inline = 300;
        let caps = QpCaps { sq_blocks: blocks, max_inline, ..NoOp::caps(depth) };
        let mut r = Rig::new(config(max_wrs, mode, every, last), caps, entries);
        let mut b = SendBuffers::new(9, 300, r.s.window().max_wrs());
        for op in ops {
            match op {
                Op::Push { len, cue } => {
                    let used = r.s.window().used();
                    follow(&mut r, &mut b, len, cue);
                    // Full, and nothing to wait for, would be for ever. It is for ever with WQEs
                    // of which nobody can tell: their slots stay used until a reset.
                    let stuck = r.s.window().used() == used && used == r.s.window().max_wrs();
                    let unknown = r.s.stats().unknown;
                    prop_assert!(!stuck || r.s.window().signals() > 0 || unknown > 0);
                }
                Op::Pass { ns } => {
                    let end = r.now + Span::from_ns(ns);
                    while let Some(due) = r.s.deadline().filter(|d| *d <= end) {
                        r.now = r.now.max(due);
                        if let Err(e) = r.s.tick(&mut r.t, r.now) {
                            (0..e.discarded).for_each(|_| b.undo());
                        }
                    }
                    r.now = end;
                }
                Op::Complete(n) => r.t.complete(r.s.qp(), n),
                Op::Poll => b.retired(r.poll()),
                Op::Flush => if let Err(e) = r.s.flush(&mut r.t) {
                    (0..e.discarded).for_each(|_| b.undo());
                },
                Op::StageFault(e) => r.t.fail_stage(Some(e)),
                Op::RingFault(f) => r.t.fail_ring(f),
                Op::Fail => r.t.fail_qp(r.s.qp(), WcStatus::RetryExcErr),
            }
            prop_assert!(!r.t.cq_lost(), "the completion queue has overrun");
            prop_assert!(r.s.deadline().is_none_or(|d| d > r.now), "past its deadline");
            let (rung, lost) = (r.fates(Fate::Rung), r.fates(Fate::Lost));
            let all = (rung.len() + lost.len()) as u64 + u64::from(r.s.held());
            prop_assert_eq!(all, r.next, "every WQE is held, rung or reported");
            prop_assert!(r.s.stats().rings <= r.s.stats().wqes);
            prop_assert_eq!(r.s.stats().wqes, rung.len() as u64);
            // Buffers in use are those of work requests of which nobody has told.
            prop_assert_eq!(9 - b.free(), r.s.window().used());
            let s = r.s.stats();
            prop_assert_eq!(s.discarded + s.unknown, lost.len() as u64);
            // Those of which nobody can tell keep their slots.
            prop_assert_eq!(r.done + u64::from(r.s.window().used()) + s.discarded, r.next);
        }
    }
}

/// After a confirmation everything is told of, with no more than one work request beside those that
/// were pushed, and with none where the last one was signalled.
#[test]
fn confirmed_ones_are_all_told_of() {
    for every in [1, 3, 4, 16] {
        for pushes in 0..9_u32 {
            let mut r = Rig::new(config(4, BatchMode::Fixed, every, false), NoOp::caps(32), 32);
            for _ in 0..pushes {
                r.push(8, Cue::More).unwrap();
            }
            let extra = r.s.confirm(&mut r.t, r.now, SendOp::Send).unwrap();
            assert_eq!(extra, pushes % every != 0, "{pushes} of {every}");
            assert_eq!((r.s.held(), r.s.window().used()), (0, pushes + u32::from(extra)));
            assert!(!r.s.confirm(&mut r.t, r.now, SendOp::Send).unwrap());
            r.t.complete(r.s.qp(), 99);
            assert_eq!(r.poll(), pushes + u32::from(extra));
        }
    }
}

#[test]
fn a_full_window_is_confirmed_when_there_is_room_again() {
    let mut r = Rig::new(config(1, BatchMode::Fixed, 4, false), NoOp::caps(8), 8);
    for _ in 0..8 {
        r.push(8, Cue::Last).unwrap();
    }
    r.t.complete(r.s.qp(), 4);
    assert_eq!(r.poll(), 4);
    let asked = SendWr {
        wr_id: 8,
        op: SendOp::Send,
        data: Data::Sge(&[]),
        flags: SendFlags::SIGNALED,
        dest: None,
    };
    r.s.push(&mut r.t, r.now, &asked, Cue::Last).unwrap();
    for _ in 0..3 {
        r.push(8, Cue::Last).unwrap();
    }
    let full = r.s.confirm(&mut r.t, r.now, SendOp::Send);
    assert_eq!(full, Err(PushError::Refused(StageError::SqFull)));
    r.t.complete(r.s.qp(), 5);
    assert_eq!(r.poll(), 5);
    assert!(r.s.confirm(&mut r.t, r.now, SendOp::Send).unwrap());
    assert_eq!(r.s.window().used(), r.s.window().told_of());
}
