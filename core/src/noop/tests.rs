//! The back end that does nothing punishes what devices punish.

use std::vec::Vec;

use super::*;
use crate::verbs::SendFlags;

fn wr(wr_id: u64, bytes: &[u8], signaled: bool) -> SendWr<'_> {
    let flags = if signaled { SendFlags::SIGNALED } else { SendFlags::empty() };
    SendWr { wr_id, op: SendOp::Send, data: Data::Inline(bytes), flags, dest: None }
}

fn polled(t: &mut NoOp) -> Vec<Completion> {
    let mut out = Completions::with_capacity(99);
    t.poll_cq(NoOp::CQ, &mut out).unwrap();
    out.as_slice().to_vec()
}

#[test]
fn slots_and_blocks_are_two_limits() {
    // 44 bytes are a block, 45 are two.
    let mut t = NoOp::new(8);
    let qp = t.add_qp(QpCaps { sq_blocks: Some(4), ..NoOp::caps(3) }, None);
    let [one, two] = [[0; 44].as_slice(), &[0; 45]];
    for (id, bytes) in [(0, one), (1, two)] {
        t.stage(qp, &wr(id, bytes, false)).unwrap();
    }
    assert_eq!(t.stage(qp, &wr(2, two, false)), Err(StageError::SqFull), "blocks");
    t.stage(qp, &wr(2, one, true)).unwrap();
    assert_eq!(t.stage(qp, &wr(3, &[], false)), Err(StageError::SqFull), "slots");
    assert_eq!((t.unstage(qp), t.sq_free(qp)), (3, 3));
    for id in 0..2 {
        t.stage(qp, &wr(id, two, id == 1)).unwrap();
    }
    assert_eq!(t.ring(qp, Ring::Auto).map(|r| r.wqes), Ok(2));
    assert_eq!(t.stage(qp, &wr(9, &[], false)), Err(StageError::SqFull), "nobody has polled");
    assert!(matches!(polled(&mut t)[..], [Completion::Send { wr_id: 1, retired: 2, .. }]));
    assert_eq!(t.stage(qp, &wr(9, &[], false)), Ok(()));
}

#[test]
fn an_error_flushes_what_was_not_signalled_too() {
    let mut t = NoOp::new(8);
    t.hold_completions();
    let qp = t.add_qp(NoOp::caps(8), None);
    t.post_recv(RecvQueue::Qp(qp), &[RecvWr { wr_id: 40, sge: Sge::default() }]).unwrap();
    for id in 0..4 {
        t.stage(qp, &wr(id, &[], id == 2)).unwrap();
    }
    t.ring(qp, Ring::Auto).unwrap();
    t.complete(qp, 1);
    assert_eq!((polled(&mut t).len(), t.outstanding(qp)), (0, 3));
    t.fail_qp(qp, WcStatus::RetryExcErr);
    let errors: Vec<_> = polled(&mut t)
        .iter()
        .map(|c| match *c {
            Completion::Error { wr_id, status, retired, .. } => (wr_id, status, retired),
            ref other => panic!("{other:?}"),
        })
        .collect();
    let flush = WcStatus::WrFlushErr;
    let want = [(1, WcStatus::RetryExcErr, 2), (2, flush, 1), (3, flush, 1), (40, flush, 0)];
    assert_eq!((errors.as_slice(), t.sq_free(qp)), (&want[..], 8));
    assert_eq!(t.stage(qp, &wr(0, &[], true)), Err(FAILED));
}

#[test]
fn what_is_staged_when_the_queue_pair_fails_is_discarded() {
    let mut t = NoOp::new(8);
    t.keep_log();
    let qp = t.add_qp(NoOp::caps(4), None);
    for id in 0..2 {
        t.stage(qp, &wr(id, &[], true)).unwrap();
    }
    t.fail_qp(qp, WcStatus::RetryExcErr);
    // A planned fault posts nothing either.
    t.fail_ring(Some((1, RingCause::Full)));
    let cause = RingCause::BadState(QpState::Err);
    let bad = Err(RingError { posted: 0, discarded: 2, cause });
    assert_eq!(t.ring(qp, Ring::Auto), bad);
    assert_eq!(t.log(), [(0, Fate::Lost), (1, Fate::Lost)]);
    assert_eq!((polled(&mut t).len(), t.sq_free(qp), t.stats().rings), (0, 4, 0));
    assert_eq!(t.ring(qp, Ring::Auto), Ok(Rung { wqes: 0, by: RungBy::Nothing }));
}

#[test]
fn a_completion_queue_overruns_by_one_too_many() {
    for (wqes, lost) in [(4, false), (5, true)] {
        let mut t = NoOp::new(4);
        let qp = t.add_qp(NoOp::caps(8), None);
        for id in 0..wqes {
            t.stage(qp, &wr(id, &[], true)).unwrap();
        }
        t.ring(qp, Ring::Auto).unwrap();
        assert_eq!(t.cq_lost(), lost);
        let mut out = Completions::with_capacity(8);
        assert_eq!(t.poll_cq(NoOp::CQ, &mut out).is_err(), lost);
    }
}

#[test]
fn receives_come_from_the_srq_where_there_is_one() {
    let mut t = NoOp::new(8);
    let srq = t.add_srq(2);
    let (qp, own) = (t.add_qp(NoOp::caps(1), Some(srq)), t.add_qp(NoOp::caps(1), None));
    let recv = |wr_id| RecvWr { wr_id, sge: Sge::default() };
    let three = [recv(1), recv(2), recv(3)];
    let post = t.post_recv(RecvQueue::Srq(srq), &three);
    assert_eq!(post, Err(PostRecvError { posted: 2, cause: PostRecvCause::Full }));
    let uses = Err(PostRecvError { posted: 0, cause: PostRecvCause::UsesSrq });
    assert_eq!(t.post_recv(RecvQueue::Qp(qp), &three), uses);
    assert_eq!([t.deliver(qp, 5, Some(7)), t.deliver(qp, 0, None)], [true; 2]);
    assert_eq!([t.deliver(qp, 0, None), t.deliver(own, 0, None)], [false; 2]);
    let got = polled(&mut t);
    assert!(matches!(got[0], Completion::Recv { wr_id: 1, len: 5, imm: Some(7), .. }));
    assert!(matches!(got[1], Completion::Recv { wr_id: 2, imm: None, .. }));
}
