//! Keys, protection domains, rights and ranges (§5.1): who is told what, and which QP ends.

use doorbell::workloads::connect::ALL_RIGHTS;
use doorbell_core::transport::*;
use doorbell_core::verbs::*;

use super::pair::{HOST, Pair, Spec, errors, send};

const READ: fn(Remote) -> SendOp = SendOp::Read;
const WRITE: fn(Remote) -> SendOp = SendOp::Write;
const ADD: fn(Remote) -> SendOp = |remote| SendOp::FetchAdd { remote, add: 1 };
const ALL: [fn(Remote) -> SendOp; 3] = [READ, WRITE, ADD];

/// A region of a second protection domain of `rank`.
fn foreign_region(pair: &mut Pair, rank: usize) -> Mr {
    pair.on(rank, |t, _| {
        let pd = t.create_pd().unwrap();
        t.alloc_mr(pd, 4096, HOST, ALL_RIGHTS, Contents::Data).unwrap()
    })
}

/// Both sides are in ERR, and the requester's only completion has `status`.
fn ends_with(pair: &mut Pair, at: &str, status: WcStatus) {
    let sent = pair.sent(0);
    assert_eq!(errors(&sent), [(1, status)], "{at}: {sent:?}");
    assert_eq!(pair.state(0), QpState::Err, "{at}");
    pair.post(0, SendOp::Send, 2, pair.sides[0].sge(0, 8));
    assert_eq!(errors(&pair.sent(0)), [(2, WcStatus::WrFlushErr)], "{at}");
}

/// The responder's QP flushes a receive that is posted now.
fn responder_is_in_error(pair: &mut Pair, at: &str) {
    pair.recv(1, 77, 0, 64);
    assert_eq!(errors(&pair.received(1)), [(77, WcStatus::WrFlushErr)], "{at}");
}

#[test]
fn a_local_region_of_another_domain() {
    for op in ALL {
        let mut pair = Pair::rc();
        let mr = foreign_region(&mut pair, 0);
        let op = op(pair.sides[1].remote(0));
        pair.post(0, op, 1, mr.sge(0, 8).unwrap());
        ends_with(&mut pair, &format!("{op:?}"), WcStatus::LocProtErr);
        assert_eq!(pair.read_local(1, 0, 8), [0; 8]);
    }
}

#[test]
fn a_remote_region_of_another_domain() {
    needs_peer!();
    for op in ALL {
        let mut pair = Pair::rc();
        let mr = foreign_region(&mut pair, 1);
        let op = op(Remote { addr: mr.addr, rkey: mr.rkey });
        let sge = pair.sides[0].sge(0, 8);
        pair.post(0, op, 1, sge);
        let at = format!("{op:?}");
        ends_with(&mut pair, &at, WcStatus::RemAccessErr);
        responder_is_in_error(&mut pair, &at);
    }
}

#[test]
fn ranges_end_where_the_region_ends() {
    needs_peer!();
    for op in [READ, WRITE] {
        for (offset, len, good) in [(0, 65536, true), (1, 65536, false), (65535, 2, false)] {
            let mut pair = Pair::rc();
            let (a, b) = (pair.sides[0], pair.sides[1]);
            let op = op(b.remote(offset));
            pair.post(0, op, 1, a.sge(0, len));
            let at = format!("{op:?} {offset}+{len}");
            if good {
                assert_eq!(errors(&pair.sent(0)), [], "{at}");
            } else {
                ends_with(&mut pair, &at, WcStatus::RemAccessErr);
            }
        }
        let mut pair = Pair::rc();
        let (a, b) = (pair.sides[0], pair.sides[1]);
        let over = Sge { addr: a.mr.addr + 65535, len: 2, lkey: a.mr.lkey };
        pair.post(0, op(b.remote(0)), 1, over);
        ends_with(&mut pair, "a local range that ends behind its region", WcStatus::LocProtErr);
    }
    let mut pair = Pair::rc();
    let before = Remote { addr: pair.sides[1].mr.addr - 1, ..pair.sides[1].remote(0) };
    let sge = pair.sides[0].sge(0, 8);
    pair.post(0, SendOp::Write(before), 1, sge);
    ends_with(&mut pair, "one byte before the region", WcStatus::RemAccessErr);
}

#[test]
fn rights_of_the_region_are_needed_one_by_one() {
    needs_peer!();
    let needed = [AccessFlags::REMOTE_READ, AccessFlags::REMOTE_WRITE, AccessFlags::REMOTE_ATOMIC];
    for (op, needed) in ALL.into_iter().zip(needed) {
        for (rights, good) in [(ALL_RIGHTS, true), (ALL_RIGHTS - needed, false)] {
            let mut pair = Pair::connected(Spec { rights, ..Spec::default() });
            let (a, b) = (pair.sides[0], pair.sides[1]);
            let op = op(b.remote(0));
            pair.post(0, op, 1, a.sge(0, 8));
            if good {
                assert_eq!(errors(&pair.sent(0)), [], "{op:?}");
            } else {
                ends_with(&mut pair, &format!("{op:?}"), WcStatus::RemAccessErr);
            }
        }
    }
}

#[test]
fn the_first_gate_is_the_qps_own_flags() {
    needs_peer!();
    let needed = [AccessFlags::REMOTE_READ, AccessFlags::REMOTE_WRITE, AccessFlags::REMOTE_ATOMIC];
    for (op, needed) in ALL.into_iter().zip(needed) {
        let access = ALL_RIGHTS - needed;
        let mut pair = Pair::connected(Spec { access, ..Spec::default() });
        let (a, b) = (pair.sides[0], pair.sides[1]);
        let op = op(b.remote(0));
        pair.post(0, op, 1, a.sge(0, 8));
        let at = format!("{op:?}");
        ends_with(&mut pair, &at, WcStatus::RemInvReqErr);
        responder_is_in_error(&mut pair, &at);
    }
}

#[test]
fn flags_that_change_in_rts_count_from_then_on() {
    needs_peer!();
    let mut pair = Pair::rc();
    let (a, b) = (pair.sides[0], pair.sides[1]);
    pair.on(1, |t, me| {
        let access = AccessFlags::REMOTE_READ;
        let attr = QpAttr { state: QpState::Rts, access, ..QpAttr::default() };
        let mask = QpAttrMask::STATE | QpAttrMask::ACCESS_FLAGS;
        assert_eq!(t.modify_qp(me.qp, &attr, mask), Ok(0));
    });
    pair.lab.settle();
    pair.post(0, SendOp::Read(b.remote(0)), 0, a.sge(0, 8));
    assert_eq!(errors(&pair.sent(0)), []);
    pair.post(0, SendOp::Write(b.remote(0)), 1, a.sge(0, 8));
    ends_with(&mut pair, "WRITE", WcStatus::RemInvReqErr);
}

#[test]
fn a_target_that_is_not_writable() {
    for op in [READ, ADD] {
        let mut pair = Pair::rc();
        let read_only = pair.on(0, |t, me| {
            t.alloc_mr(me.pd, 64, HOST, AccessFlags::REMOTE_READ, Contents::Data).unwrap()
        });
        let op = op(pair.sides[1].remote(0));
        pair.post(0, op, 1, read_only.sge(0, 8).unwrap());
        ends_with(&mut pair, &format!("{op:?}"), WcStatus::LocProtErr);
    }
}

#[test]
fn an_atomic_needs_an_aligned_address() {
    needs_peer!();
    let mut pair = Pair::rc();
    let (a, b) = (pair.sides[0], pair.sides[1]);
    pair.post(0, ADD(b.remote(4)), 1, a.sge(0, 8));
    ends_with(&mut pair, "misaligned", WcStatus::RemInvReqErr);
}

#[test]
fn keys_of_a_deregistered_region_are_invalid() {
    needs_peer!();
    for (rank, status) in [(0, WcStatus::LocProtErr), (1, WcStatus::RemAccessErr)] {
        let mut pair = Pair::rc();
        let (a, b) = (pair.sides[0], pair.sides[1]);
        pair.on(rank, |t, me| t.dereg_mr(me.mr.id).unwrap());
        pair.post(0, SendOp::Write(b.remote(0)), 1, a.sge(0, 8));
        let sent = pair.sent(0);
        assert_eq!(errors(&sent), [(1, status)], "{sent:?}");
    }
}

#[test]
fn a_receive_buffer_that_is_one_byte_short() {
    needs_peer!();
    for (room, good) in [(100, true), (99, false)] {
        let mut pair = Pair::rc();
        let a = pair.sides[0];
        pair.recv(1, 5, 0, room);
        pair.post(0, SendOp::Send, 1, a.sge(0, 100));
        let got = pair.received(1);
        if good {
            assert!(matches!(got[..], [Completion::Recv { wr_id: 5, len: 100, .. }]), "{got:?}");
        } else {
            assert_eq!(errors(&got), [(5, WcStatus::LocLenErr)]);
            ends_with(&mut pair, "short", WcStatus::RemInvReqErr);
            responder_is_in_error(&mut pair, "short");
        }
    }
}

#[test]
fn a_receive_buffer_of_another_domain() {
    needs_peer!();
    let mut pair = Pair::rc();
    let mr = foreign_region(&mut pair, 1);
    pair.on(1, move |t, me| {
        let wr = RecvWr { wr_id: 5, sge: mr.sge(0, 64).unwrap() };
        t.post_recv(RecvQueue::Qp(me.qp), &[wr]).unwrap();
    });
    pair.lab.settle();
    let sge = pair.sides[0].sge(0, 8);
    pair.post(0, SendOp::Send, 1, sge);
    assert_eq!(errors(&pair.received(1)), [(5, WcStatus::LocProtErr)]);
    ends_with(&mut pair, "receive", WcStatus::RemOpErr);
}

#[test]
fn requests_before_a_refused_one_end_well() {
    needs_peer!();
    let mut pair = Pair::rc();
    let (a, b) = (pair.sides[0], pair.sides[1]);
    pair.write_local(1, 0, &[3; 64]);
    let (good, bad) = (b.remote(0), Remote { addr: b.mr.addr, rkey: Rkey(1) });
    pair.on(0, move |t, me| {
        // The NAK has to wait for the responses of the READs and of the ATOMIC.
        let ops = [
            (0, SendOp::Read(good), me.sge(1024, 30_000)),
            (1, SendOp::FetchAdd { remote: good, add: 1 }, me.sge(0, 8)),
            (2, SendOp::Read(good), me.sge(1024, 20_000)),
            (3, SendOp::Write(bad), me.sge(0, 8)),
            (4, SendOp::Write(good), me.sge(0, 8)),
        ];
        for (wr_id, op, sge) in ops {
            let list = [sge];
            t.stage(me.qp, &send(op, wr_id, Data::Sge(&list))).unwrap();
        }
        t.ring(me.qp, Ring::Doorbell).unwrap();
    });
    let sent = pair.sent(0);
    assert_eq!(sent.len(), 5, "{sent:?}");
    assert!(sent[..3].iter().all(|c| matches!(c, Completion::Send { .. })), "{sent:?}");
    let tail = [(3, WcStatus::RemAccessErr), (4, WcStatus::WrFlushErr)];
    assert_eq!(errors(&sent), tail);
    assert_eq!(a.mr.len, 1 << 16);
}

#[test]
fn unreliable_services_hear_of_no_remote_error() {
    needs_peer!();
    let mut pair = Pair::connected(Spec { ty: QpType::Uc, ..Spec::default() });
    let (a, b) = (pair.sides[0], pair.sides[1]);
    let bad = Remote { addr: b.mr.addr, rkey: Rkey(1) };
    pair.post(0, SendOp::Write(bad), 1, a.sge(0, 8));
    assert!(matches!(pair.sent(0)[..], [Completion::Send { wr_id: 1, .. }]));
    pair.write_local(0, 0, &[4; 8]);
    pair.post(0, SendOp::Write(b.remote(0)), 2, a.sge(0, 8));
    assert_eq!(pair.read_local(1, 0, 8), [4; 8], "the connection goes on");
}

#[test]
fn a_datagram_with_a_wrong_queue_key_is_dropped() {
    needs_peer!();
    let mut pair = Pair::connected(Spec { ty: QpType::Ud, ..Spec::default() });
    let dest = pair.dest(0).map(|d| UdDest { qkey: QKey(7), ..d });
    pair.recv(1, 1, 0, 256);
    pair.on(0, move |t, me| {
        let list = [me.sge(0, 8)];
        t.stage(me.qp, &SendWr { dest, ..send(SendOp::Send, 1, Data::Sge(&list)) }).unwrap();
        t.ring(me.qp, Ring::Auto).unwrap();
    });
    assert_eq!(pair.sent(0).len(), 1);
    assert_eq!(pair.received(1), []);
}
