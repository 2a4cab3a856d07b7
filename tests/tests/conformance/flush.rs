//! What becomes of posted work when a QP goes to ERR or RESET (§3.3), and of work that was never
//! announced.

use doorbell_core::transport::*;
use doorbell_core::verbs::*;

use super::backend::HAS_PEER;
use super::pair::{Pair, SIGNALED, Spec, attributes, errors, send};

fn flushed(ids: impl IntoIterator<Item = u64>) -> Vec<(u64, WcStatus)> {
    ids.into_iter().map(|id| (id, WcStatus::WrFlushErr)).collect()
}

/// A modify in the same step as what precedes it.
fn modify<T: Control>(t: &mut T, qp: QpId, state: QpState) {
    let attr = QpAttr { state, ..QpAttr::default() };
    t.modify_qp(qp, &attr, QpAttrMask::STATE).unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn err_flushes_both_queues_in_order_each_request_once() {
    let mut pair = Pair::rc();
    // SENDs that find no receive wait in the ideal back end and in none that retries for ever:
    // stay in SQD, where requests are held on every back end.
    pair.go(0, QpState::Sqd);
    pair.on(0, |t, me| {
        for i in 0..5 {
            let flags = if i % 2 == 0 { SIGNALED } else { SendFlags::empty() };
            let wr = SendWr { flags, ..send(SendOp::Send, i, Data::Inline(&[1])) };
            t.stage(me.qp, &wr).unwrap();
        }
        t.ring(me.qp, Ring::Auto).unwrap();
        let wrs = [10, 11, 12].map(|wr_id| RecvWr { wr_id, sge: me.sge(0, 64) });
        t.post_recv(RecvQueue::Qp(me.qp), &wrs).unwrap();
    });
    pair.lab.settle();
    pair.go(0, QpState::Err);
    assert_eq!(errors(&pair.sent(0)), flushed(0..5), "unsignalled ones too");
    assert_eq!(errors(&pair.received(0)), flushed(10..13));
    assert_eq!(pair.on(0, |t, me| t.sq_free(me.qp)), 16);
    assert_eq!((pair.sent(0), pair.received(0)), (vec![], vec![]), "and only once");
}

#[test]
fn err_in_the_middle_of_a_burst_completes_each_request_once() {
    let mut pair = Pair::rc();
    let to = pair.sides[1].remote(0);
    pair.on(0, move |t, me| {
        for i in 0..16 {
            let list = [me.sge(0, 4000)];
            t.stage(me.qp, &send(SendOp::Write(to), i, Data::Sge(&list))).unwrap();
            if i % 4 == 3 {
                t.ring(me.qp, Ring::Doorbell).unwrap();
            }
        }
        modify(t, me.qp, QpState::Err);
    });
    let sent = pair.sent(0);
    let ids: Vec<u64> = sent
        .iter()
        .map(|c| match *c {
            Completion::Send { wr_id, .. } | Completion::Error { wr_id, .. } => wr_id,
            Completion::Recv { .. } => panic!("{c:?}"),
        })
        .collect();
    assert_eq!(ids, (0..16).collect::<Vec<_>>());
    let good = sent.iter().take_while(|c| matches!(c, Completion::Send { .. })).count();
    assert_eq!(errors(&sent), flushed(good as u64..16), "success, then flush");
}

#[test]
fn the_failing_request_has_its_own_status_and_later_ones_are_flushed() {
    let mut pair = Pair::rc();
    let to = pair.sides[1].remote(0);
    pair.on(0, move |t, me| {
        for i in 0..6 {
            let lkey = if i == 3 { Lkey(0xBAD) } else { me.mr.lkey };
            let list = [Sge { lkey, ..me.sge(0, 8) }];
            let wr = SendWr {
                flags: SendFlags::empty(),
                ..send(SendOp::Write(to), i, Data::Sge(&list))
            };
            t.stage(me.qp, &wr).unwrap();
        }
        t.ring(me.qp, Ring::Doorbell).unwrap();
    });
    let sent = pair.sent(0);
    let mut expected = vec![(3, WcStatus::LocProtErr)];
    expected.extend(flushed(4..6));
    assert_eq!(errors(&sent), expected);
    let retired: Vec<u32> = sent
        .iter()
        .map(|c| match c {
            Completion::Error { queue: WorkQueue::Send, retired, .. } => *retired,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(retired, [4, 1, 1], "the error retires the unsignalled ones before it");
}

#[test]
fn posts_in_err_are_flushed() {
    let mut pair = Pair::rc();
    pair.go(0, QpState::Err);
    for i in 0..3 {
        pair.post(0, SendOp::Send, i, pair.sides[0].sge(0, 8));
        pair.recv(0, 10 + i, 0, 64);
    }
    assert_eq!(errors(&pair.sent(0)), flushed(0..3));
    assert_eq!(errors(&pair.received(0)), flushed(10..13));
}

#[test]
fn reset_forgets_everything_without_a_completion() {
    let mut pair = Pair::rc();
    pair.go(0, QpState::Sqd);
    pair.on(0, |t, me| {
        for i in 0..5 {
            t.stage(me.qp, &send(SendOp::Send, i, Data::Inline(&[1]))).unwrap();
        }
        t.ring(me.qp, Ring::Auto).unwrap();
        let wr = RecvWr { wr_id: 9, sge: me.sge(0, 64) };
        t.post_recv(RecvQueue::Qp(me.qp), &[wr; 16]).unwrap();
    });
    pair.lab.settle();
    pair.go(0, QpState::Reset);
    assert_eq!((pair.sent(0), pair.received(0)), (vec![], vec![]));
    assert_eq!(pair.on(0, |t, me| t.sq_free(me.qp)), 16);
    // The peer's QP starts over too, and everything works as on the first day.
    pair.go(1, QpState::Reset);
    works_as_new(&mut pair);
}

/// Both queues take their whole depth, and every message arrives.
fn works_as_new(pair: &mut Pair) {
    needs_peer!();
    pair.advance(1, 3);
    pair.advance(0, 3);
    let from = pair.sides[1];
    pair.on(0, |t, me| {
        let wr = RecvWr { wr_id: 0, sge: me.sge(1024, 64) };
        t.post_recv(RecvQueue::Qp(me.qp), &[wr; 16]).unwrap();
    });
    pair.lab.settle();
    pair.on(1, move |t, me| {
        for i in 0..16 {
            let list = [from.sge(0, 32)];
            t.stage(me.qp, &send(SendOp::Send, i, Data::Sge(&list))).unwrap();
        }
        t.ring(me.qp, Ring::Doorbell).unwrap();
    });
    assert_eq!(pair.received(0).len(), 16);
    assert_eq!(errors(&pair.sent(1)), []);
    let to = pair.sides[1].remote(2048);
    pair.write_local(0, 0, b"as new");
    pair.post(0, SendOp::Write(to), 1, pair.sides[0].sge(0, 6));
    assert_eq!(errors(&pair.sent(0)), []);
    assert_eq!(pair.read_local(1, 2048, 6), b"as new");
}

#[test]
fn reset_with_work_under_way_and_a_new_life_in_one_step() {
    let mut pair = Pair::rc();
    let (spec, peer) = (pair.spec, pair.sides[1]);
    pair.on(0, move |t, me| {
        for i in 0..16 {
            let list = [me.sge(0, 4000)];
            t.stage(me.qp, &send(SendOp::Write(peer.remote(0)), i, Data::Sge(&list))).unwrap();
        }
        let wr = RecvWr { wr_id: 50, sge: me.sge(0, 64) };
        t.post_recv(RecvQueue::Qp(me.qp), &[wr; 16]).unwrap();
        t.ring(me.qp, Ring::Doorbell).unwrap();
    });
    // At once: some of it may be anywhere between memory, wire and completion queue.
    pair.on(0, move |t, me| {
        modify(t, me.qp, QpState::Reset);
        for (attr, mask) in attributes(&spec, &me.endpoint, &peer.endpoint) {
            t.modify_qp(me.qp, &attr, mask).unwrap_or_else(|e| panic!("{e}"));
        }
        assert_eq!(t.sq_free(me.qp), 16);
        let wr = RecvWr { wr_id: 51, sge: me.sge(0, 64) };
        t.post_recv(RecvQueue::Qp(me.qp), &[wr; 16]).unwrap_or_else(|e| panic!("{e}"));
    });
    pair.lab.settle();
    let of_old_life = |c: &Completion| matches!(c, Completion::Send { wr_id: 0..16, .. });
    let sent = pair.sent(0);
    assert!(sent.iter().all(of_old_life), "{sent:?}");
    let free = pair.on(0, |t, me| t.sq_free(me.qp));
    assert_eq!(free, 16, "a completion of the old life frees no slot of the new one");
    pair.go(0, QpState::Reset);
    pair.go(1, QpState::Reset);
    pair.sent(0);
    works_as_new(&mut pair);
}

#[test]
fn what_is_not_rung_is_invisible() {
    let mut pair = Pair::rc();
    let to = pair.sides[1].remote(0);
    pair.on(0, move |t, me| {
        t.stage(me.qp, &send(SendOp::Write(to), 1, Data::Inline(&[1; 8]))).unwrap();
        t.ring(me.qp, Ring::Auto).unwrap();
        for i in 2..14 {
            t.stage(me.qp, &send(SendOp::Write(to), i, Data::Inline(&[2; 8]))).unwrap();
        }
    });
    assert_eq!(pair.sent(0).len(), 1);
    if HAS_PEER {
        assert_eq!(pair.read_local(1, 0, 8), [1; 8]);
    }
    assert_eq!(pair.on(0, |t, me| t.sq_free(me.qp)), 4, "slots are taken when staged");
    pair.on(0, |t, me| assert_eq!(t.ring(me.qp, Ring::Auto).unwrap().wqes, 12));
    assert_eq!(pair.sent(0).len(), 12);
    needs_peer!();
    assert_eq!(pair.read_local(1, 0, 8), [2; 8]);
}

#[test]
fn unstage_forgets_what_is_staged_and_gives_the_slots_back() {
    let mut pair = Pair::rc();
    let to = pair.sides[1].remote(0);
    pair.on(0, move |t, me| {
        for i in 0..3 {
            t.stage(me.qp, &send(SendOp::Write(to), i, Data::Inline(&[1; 8]))).unwrap();
        }
        assert_eq!((t.unstage(me.qp), t.unstage(me.qp)), (3, 0));
        assert_eq!(t.sq_free(me.qp), 16);
        let nothing = Rung { wqes: 0, by: RungBy::Nothing };
        assert_eq!(t.ring(me.qp, Ring::Doorbell), Ok(nothing));
        t.stage(me.qp, &send(SendOp::Write(to), 9, Data::Inline(&[9; 8]))).unwrap();
        t.ring(me.qp, Ring::Doorbell).unwrap();
    });
    assert!(matches!(pair.sent(0)[..], [Completion::Send { wr_id: 9, retired: 1, .. }]));
    needs_peer!();
    assert_eq!(pair.read_local(1, 0, 8), [9; 8]);
}

#[test]
fn an_error_of_the_peer_reaches_a_handle_with_the_completion() {
    needs_peer!();
    let mut pair = Pair::connected(Spec::default());
    let bad = Remote { addr: 0, rkey: Rkey(1) };
    pair.recv(0, 5, 0, 64);
    pair.post(0, SendOp::Write(bad), 1, pair.sides[0].sge(0, 8));
    assert_eq!(errors(&pair.sent(0)), [(1, WcStatus::RemAccessErr)]);
    assert_eq!(pair.state(0), QpState::Err);
    assert_eq!(errors(&pair.received(0)), flushed([5]), "receives are flushed as well");
}
