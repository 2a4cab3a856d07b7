//! What the verbs promise, call by call.

use std::vec;
use std::vec::Vec;

use super::*;
use crate::transport::*;
use crate::units::{Span, Time};
use crate::verbs::{
    AccessFlags, AsyncEventKind, Lkey, QKey, QpAttrMask, QpState, QpType, Rkey, SendFlags, WcStatus,
};

const RIGHTS: AccessFlags = AccessFlags::all();
const HOST: MemKind = MemKind::Host { numa: 0 };

/// One side of a connection.
#[derive(Copy, Clone)]
struct Side {
    pd: PdId,
    cq: CqId,
    qp: QpId,
    mr: Mr,
}

fn open(t: &mut Handle<'_>, ty: QpType, depth: u32, srq: Option<u32>) -> Side {
    let pd = t.create_pd().unwrap();
    let rights = RIGHTS - AccessFlags::ON_DEMAND;
    let mr = t.alloc_mr(pd, 4096, HOST, rights, Contents::Data).unwrap();
    let cq = t.create_cq(64).unwrap();
    let srq = srq.map(|depth| t.create_srq(pd, depth).unwrap());
    let size = QpSize { max_send_wr: depth, max_recv_wr: 8, max_send_sge: 2, max_inline: 16 };
    let queue_memory = HOST;
    let init =
        QpInit { ty, pd, send_cq: cq, recv_cq: cq, srq, size, sq_sig_all: false, queue_memory };
    Side { pd, cq, qp: t.create_qp(&init).unwrap(), mr }
}

fn masks(ty: QpType) -> [QpAttrMask; 3] {
    use QpAttrMask as M;
    let rc = RcParams { attr: QpAttr::default() };
    let end = endpoint_of_nobody();
    match ty {
        QpType::Ud => [M::PKEY_INDEX | M::PORT | M::QKEY, M::empty(), M::SQ_PSN],
        QpType::Uc => [
            M::PKEY_INDEX | M::PORT | M::ACCESS_FLAGS,
            M::AV | M::PATH_MTU | M::DEST_QPN | M::RQ_PSN,
            M::SQ_PSN,
        ],
        _ => rc.steps(&end, &end).map(|(_, mask)| mask),
    }
    .map(|m| m | M::STATE)
}

fn endpoint_of_nobody() -> Endpoint {
    let mut w = Ideal::new(1);
    let s = open(&mut w.at(0), QpType::Rc, 1, None);
    w.at(0).endpoint(s.qp).unwrap()
}

impl Handle<'_> {
    fn bring_up(&mut self, s: &Side, ty: QpType, peer: &Endpoint, access: AccessFlags) {
        let attr = QpAttr { access, qkey: QKey(7), ..QpAttr::default() };
        let local = self.endpoint(s.qp).unwrap();
        for ((attr, _), mask) in (RcParams { attr }).steps(&local, peer).into_iter().zip(masks(ty))
        {
            self.modify_qp(s.qp, &attr, mask).unwrap();
        }
    }

    fn poll(&mut self, cq: CqId) -> Vec<Completion> {
        let mut out = Completions::with_capacity(64);
        self.poll_cq(cq, &mut out).unwrap();
        out.as_slice().to_vec()
    }

    fn post(&mut self, s: &Side, wr_id: u64, op: SendOp, data: Data<'_>, signaled: bool) {
        let flags = if signaled { SendFlags::SIGNALED } else { SendFlags::empty() };
        self.stage(s.qp, &SendWr { wr_id, op, data, flags, dest: None }).unwrap();
    }

    fn receive(&mut self, s: &Side, wr_id: u64, len: u32) {
        let wr = RecvWr { wr_id, sge: s.mr.sge(2048, len).unwrap() };
        self.post_recv(RecvQueue::Qp(s.qp), &[wr]).unwrap();
    }
}

fn pair_with(ty: QpType, depth: u32, access: AccessFlags) -> (Ideal, Side, Side) {
    let mut w = Ideal::new(2);
    let a = open(&mut w.at(0), ty, depth, None);
    let b = open(&mut w.at(1), ty, depth, None);
    let (ea, eb) = (w.at(0).endpoint(a.qp).unwrap(), w.at(1).endpoint(b.qp).unwrap());
    w.at(0).bring_up(&a, ty, &eb, access);
    w.at(1).bring_up(&b, ty, &ea, access);
    (w, a, b)
}

fn pair() -> (Ideal, Side, Side) {
    pair_with(QpType::Rc, 8, RIGHTS)
}

fn statuses(cs: &[Completion]) -> Vec<(u64, WcStatus)> {
    let status = |c: &Completion| match *c {
        Completion::Send { wr_id, .. } | Completion::Recv { wr_id, .. } => {
            (wr_id, WcStatus::Success)
        }
        Completion::Error { wr_id, status, .. } => (wr_id, status),
    };
    cs.iter().map(status).collect()
}

fn remote(s: &Side, offset: u64) -> Remote {
    Remote { addr: s.mr.addr + offset, rkey: s.mr.rkey }
}

#[test]
fn what_is_not_rung_is_invisible_and_can_be_taken_back() {
    let (mut w, a, b) = pair();
    w.at(1).receive(&b, 1, 8);
    w.at(0).post(&a, 1, SendOp::Send, Data::Inline(&[1; 8]), true);
    assert_eq!((w.at(1).poll(b.cq).len(), w.unrung()), (0, 1));
    assert_eq!((w.at(0).sq_free(a.qp), w.at(0).unstage(a.qp)), (7, 1));
    assert_eq!((w.at(0).sq_free(a.qp), w.unrung()), (8, 0));
    let rung = w.at(0).ring(a.qp, Ring::Auto).unwrap();
    assert_eq!(rung, Rung { wqes: 0, by: RungBy::Nothing });
}

#[test]
fn slots_come_back_only_when_a_completion_is_polled() {
    let (mut w, a, b) = pair_with(QpType::Rc, 4, RIGHTS);
    for n in 0..4 {
        w.at(0).post(&a, n, SendOp::Write(remote(&b, 0)), Data::Inline(&[1]), n == 2);
    }
    let wr = SendWr {
        wr_id: 9,
        op: SendOp::Write(remote(&b, 0)),
        data: Data::Inline(&[1]),
        flags: SendFlags::empty(),
        dest: None,
    };
    assert_eq!(w.at(0).stage(a.qp, &wr), Err(StageError::SqFull));
    assert_eq!(w.at(0).ring(a.qp, Ring::Doorbell).unwrap().wqes, 4);
    // Executed, and yet nothing is free.
    assert_eq!(w.at(0).stage(a.qp, &wr), Err(StageError::SqFull));
    let polled = w.at(0).poll(a.cq);
    assert!(matches!(polled[..], [Completion::Send { wr_id: 2, retired: 3, .. }]));
    assert_eq!(w.at(0).sq_free(a.qp), 3);
}

#[test]
fn a_send_waits_for_its_receive_and_everything_behind_it_too() {
    let (mut w, a, b) = pair();
    w.at(0).post(&a, 1, SendOp::SendImm(5), Data::Inline(b"hello"), true);
    w.at(0).post(&a, 2, SendOp::Write(remote(&b, 0)), Data::Inline(b"x"), true);
    w.at(0).ring(a.qp, Ring::Auto).unwrap();
    assert_eq!((w.blocked(), w.at(0).poll(a.cq).len()), (2, 0));
    w.at(1).receive(&b, 7, 5);
    assert_eq!(statuses(&w.at(0).poll(a.cq)).len(), 2);
    let got = w.at(1).poll(b.cq);
    assert!(matches!(got[..], [Completion::Recv { wr_id: 7, len: 5, imm: Some(5), .. }]));
    let mut bytes = [0; 5];
    w.at(1).copy_out(b.mr.range(2048, 5).unwrap(), &mut bytes).unwrap();
    assert_eq!(&bytes, b"hello");
}

#[test]
fn a_send_longer_than_its_receive_breaks_both_sides() {
    for (len, ok) in [(8, true), (7, false)] {
        let (mut w, a, b) = pair();
        w.at(1).receive(&b, 1, len);
        w.at(1).receive(&b, 2, 8);
        w.at(0).post(&a, 1, SendOp::Send, Data::Inline(&[0; 8]), true);
        w.at(0).post(&a, 2, SendOp::Write(remote(&b, 0)), Data::Inline(&[0]), false);
        w.at(0).ring(a.qp, Ring::Auto).unwrap();
        let (sent, got) = (statuses(&w.at(0).poll(a.cq)), statuses(&w.at(1).poll(b.cq)));
        if ok {
            assert_eq!((sent.len(), got), (1, vec![(1, WcStatus::Success)]));
            continue;
        }
        assert_eq!(sent, [(1, WcStatus::RemInvReqErr), (2, WcStatus::WrFlushErr)]);
        assert_eq!(got, [(1, WcStatus::LocLenErr), (2, WcStatus::WrFlushErr)]);
        assert_eq!(w.at(0).qp_state(a.qp), Ok(QpState::Err));
        assert_eq!(w.at(1).qp_state(b.qp), Ok(QpState::Err));
        // A receive posted now is flushed at once.
        w.at(1).receive(&b, 3, 8);
        assert_eq!(statuses(&w.at(1).poll(b.cq)), [(3, WcStatus::WrFlushErr)]);
    }
}

#[test]
fn reads_and_atomics_bring_data_back() {
    let (mut w, a, b) = pair();
    w.at(1).store_u64(b.mr.range(8, 8).unwrap(), 41).unwrap();
    let sge = |offset, len| [a.mr.sge(offset, len).unwrap()];
    w.at(0).post(&a, 1, SendOp::Read(remote(&b, 8)), Data::Sge(&sge(0, 8)), true);
    let add = SendOp::FetchAdd { remote: remote(&b, 8), add: 1 };
    w.at(0).post(&a, 2, add, Data::Sge(&sge(8, 8)), true);
    for (id, compare) in [(3, 42), (4, 42)] {
        let swap = SendOp::CmpSwap { remote: remote(&b, 8), compare, swap: 7 };
        w.at(0).post(&a, id, swap, Data::Sge(&sge(8 * id, 8)), true);
    }
    w.at(0).ring(a.qp, Ring::Auto).unwrap();
    assert_eq!(w.at(0).poll(a.cq).len(), 4);
    let word = |w: &mut Ideal, at| w.at(0).load_u64(a.mr.range(at, 8).unwrap()).unwrap();
    let seen: Vec<_> = [0, 8, 24, 32].into_iter().map(|at| word(&mut w, at)).collect();
    assert_eq!(seen, [41, 41, 42, 7]);
    assert_eq!(w.at(1).load_u64(b.mr.range(8, 8).unwrap()), Ok(7));
}

/// The rights of the QP come first (NAK 1), then key, domain, range and rights of the region
/// (NAK 2).
#[test]
fn remote_rights_are_checked_at_two_gates() {
    let needs = [
        (SendOp::Write(Remote::default()), AccessFlags::REMOTE_WRITE),
        (SendOp::Read(Remote::default()), AccessFlags::REMOTE_READ),
        (SendOp::FetchAdd { remote: Remote::default(), add: 1 }, AccessFlags::REMOTE_ATOMIC),
    ];
    let aim = |op: SendOp, r: Remote| match op {
        SendOp::Write(_) => SendOp::Write(r),
        SendOp::Read(_) => SendOp::Read(r),
        _ => SendOp::FetchAdd { remote: r, add: 1 },
    };
    for (op, need) in needs {
        for (qp_rights, mr_rights, offset, dereg, expect) in [
            (RIGHTS, RIGHTS, 4088, false, WcStatus::Success),
            (RIGHTS - need, RIGHTS, 0, false, WcStatus::RemInvReqErr),
            (RIGHTS, RIGHTS - need, 0, false, WcStatus::RemAccessErr),
            (RIGHTS, RIGHTS, 4096, false, WcStatus::RemAccessErr),
            (RIGHTS, RIGHTS, 0, true, WcStatus::RemAccessErr),
        ] {
            let (mut w, a, mut b) = pair_with(QpType::Rc, 8, qp_rights);
            b.mr = w.at(1).alloc_mr(b.pd, 4096, HOST, mr_rights, Contents::Data).unwrap();
            if dereg {
                w.at(1).dereg_mr(b.mr.id).unwrap();
            }
            let sge = [a.mr.sge(0, 8).unwrap()];
            w.at(0).post(&a, 1, aim(op, remote(&b, offset)), Data::Sge(&sge), true);
            w.at(0).ring(a.qp, Ring::Auto).unwrap();
            assert_eq!(statuses(&w.at(0).poll(a.cq)), [(1, expect)], "{op:?} {need:?} {offset}");
        }
    }
}

#[test]
fn local_buffers_need_the_same_domain_and_a_live_key() {
    for own in [false, true] {
        let (mut w, a, b) = pair();
        let other = w.at(0).create_pd().unwrap();
        let foreign = w.at(0).alloc_mr(other, 64, HOST, RIGHTS, Contents::Data).unwrap();
        let mut sge = foreign.sge(0, 8).unwrap();
        if own {
            sge = Sge { addr: a.mr.addr, len: 8, lkey: Lkey(a.mr.lkey.0 + 1) };
        }
        w.at(0).post(&a, 1, SendOp::Write(remote(&b, 0)), Data::Sge(&[sge]), true);
        w.at(0).ring(a.qp, Ring::Auto).unwrap();
        assert_eq!(statuses(&w.at(0).poll(a.cq)), [(1, WcStatus::LocProtErr)]);
        // Nothing went out: the peer is as it was.
        assert_eq!(w.at(1).qp_state(b.qp), Ok(QpState::Rts));
    }
}

#[test]
fn datagrams_carry_a_header_and_need_their_key() {
    let (mut w, a, b) = pair_with(QpType::Ud, 8, RIGHTS);
    let to = w.at(1).endpoint(b.qp).unwrap();
    let ah = w.at(0).create_ah(a.pd, to.address).unwrap();
    for (key, len) in [(7, 48), (8, 48)] {
        w.at(1).receive(&b, key, len);
        let dest = Some(UdDest { ah, qpn: to.qpn, qkey: QKey(key as u32) });
        let (data, flags) = (Data::Inline(b"datagram"), SendFlags::SIGNALED);
        let wr = SendWr { wr_id: key, op: SendOp::Send, data, flags, dest };
        w.at(0).stage(a.qp, &wr).unwrap();
        w.at(0).ring(a.qp, Ring::Auto).unwrap();
    }
    // The sender hears of nothing.
    assert_eq!(w.at(0).poll(a.cq).len(), 2);
    let got = w.at(1).poll(b.cq);
    assert!(matches!(got[..], [Completion::Recv { wr_id: 7, len: 48, .. }]));
    let mut bytes = [0; 8];
    w.at(1).copy_out(b.mr.range(2048 + 40, 8).unwrap(), &mut bytes).unwrap();
    assert_eq!(&bytes, b"datagram");
}

#[test]
fn an_unreliable_failure_stops_only_the_send_queue() {
    let (mut w, a, b) = pair_with(QpType::Uc, 8, RIGHTS);
    w.at(0).receive(&a, 5, 8);
    let bad = Sge { addr: 0, len: 8, lkey: Lkey(3) };
    w.at(0).post(&a, 1, SendOp::Send, Data::Sge(&[bad]), false);
    w.at(0).post(&a, 2, SendOp::Send, Data::Inline(&[1]), true);
    w.at(0).ring(a.qp, Ring::Auto).unwrap();
    assert_eq!(w.at(0).qp_state(a.qp), Ok(QpState::Sqe));
    w.at(1).post(&b, 1, SendOp::Send, Data::Inline(&[1; 8]), false);
    w.at(1).ring(b.qp, Ring::Auto).unwrap();
    let all = statuses(&w.at(0).poll(a.cq));
    let expect = [(1, WcStatus::LocProtErr), (2, WcStatus::WrFlushErr), (5, WcStatus::Success)];
    assert_eq!(all, expect);
}

/// State × call: posting is refused, held, executed or flushed as the vocabulary says.
#[test]
fn posting_follows_the_state() {
    use crate::verbs::{PostVerdict, can_post_recv, can_post_send};
    for state in [QpState::Reset, QpState::Init, QpState::Rtr, QpState::Rts, QpState::Sqd] {
        let mut w = Ideal::new(2);
        let a = open(&mut w.at(0), QpType::Rc, 8, None);
        let b = open(&mut w.at(1), QpType::Rc, 8, None);
        let (ea, eb) = (w.at(0).endpoint(a.qp).unwrap(), w.at(1).endpoint(b.qp).unwrap());
        w.at(1).bring_up(&b, QpType::Rc, &ea, RIGHTS);
        for (attr, mask) in (RcParams { attr: QpAttr::default() }).steps(&ea, &eb) {
            if attr.state <= state {
                w.at(0).modify_qp(a.qp, &attr, mask).unwrap();
            }
        }
        if state == QpState::Sqd {
            let attr = QpAttr { state, ..QpAttr::default() };
            w.at(0).modify_qp(a.qp, &attr, QpAttrMask::STATE).unwrap();
        }
        assert_eq!(w.at(0).qp_state(a.qp), Ok(state));
        let (op, data) = (SendOp::Write(remote(&b, 0)), Data::Inline(&[1]));
        let wr = SendWr { wr_id: 1, op, data, flags: SendFlags::SIGNALED, dest: None };
        let staged = w.at(0).stage(a.qp, &wr);
        let wr = RecvWr { wr_id: 1, sge: Sge::default() };
        let received = w.at(0).post_recv(RecvQueue::Qp(a.qp), &[wr]);
        match can_post_send(state) {
            PostVerdict::Refused => assert_eq!(staged, Err(StageError::BadState { state })),
            verdict => {
                staged.unwrap();
                w.at(0).ring(a.qp, Ring::Auto).unwrap();
                let done = w.at(0).poll(a.cq).len();
                assert_eq!(done, usize::from(verdict == PostVerdict::Processed), "{state}");
            }
        }
        let refused = can_post_recv(state) == PostVerdict::Refused;
        assert_eq!(received.is_err(), refused, "{state}");
    }
}

#[test]
fn sqd_holds_and_reset_forgets() {
    let (mut w, a, b) = pair();
    let to = |state| QpAttr { state, ..QpAttr::default() };
    w.at(0).modify_qp(a.qp, &to(QpState::Sqd), QpAttrMask::STATE).unwrap();
    w.at(0).post(&a, 1, SendOp::Write(remote(&b, 0)), Data::Inline(&[1]), true);
    w.at(0).ring(a.qp, Ring::Auto).unwrap();
    assert_eq!(w.blocked(), 1);
    w.at(0).modify_qp(a.qp, &to(QpState::Rts), QpAttrMask::STATE).unwrap();
    assert_eq!(w.blocked(), 0);
    w.at(0).post(&a, 2, SendOp::Send, Data::Inline(&[1]), true);
    assert_eq!(w.at(0).modify_qp(a.qp, &to(QpState::Reset), QpAttrMask::STATE), Ok(1));
    assert_eq!(w.at(0).sq_free(a.qp), 8);
    // The completion of the earlier life is still there, and frees nothing.
    let old = w.at(0).poll(a.cq);
    assert!(matches!(old[..], [Completion::Send { wr_id: 1, retired: 0, .. }]));
    assert_eq!(w.at(0).sq_free(a.qp), 8);
}

#[test]
fn an_illegal_transition_changes_nothing() {
    let mut w = Ideal::new(1);
    let a = open(&mut w.at(0), QpType::Rc, 8, None);
    let rts = QpAttr { state: QpState::Rts, ..QpAttr::default() };
    let e = w.at(0).modify_qp(a.qp, &rts, QpAttrMask::STATE).unwrap_err();
    assert!(matches!(e, ModifyError::Transition(_)));
    let cur = QpAttrMask::STATE | QpAttrMask::CUR_STATE;
    let e = w.at(0).modify_qp(a.qp, &QpAttr { cur_state: QpState::Rts, ..rts }, cur);
    assert_eq!(e, Err(ModifyError::CurState { actual: QpState::Reset }));
    assert_eq!(w.at(0).qp_state(a.qp), Ok(QpState::Reset));
    let init = QpAttr { state: QpState::Init, ..QpAttr::default() };
    w.at(0).modify_qp(a.qp, &init, masks(QpType::Rc)[0]).unwrap();
    for (max_dest_rd_atomic, ok) in [(17, false), (16, true)] {
        let rtr = QpAttr { state: QpState::Rtr, max_dest_rd_atomic, ..QpAttr::default() };
        assert_eq!(w.at(0).modify_qp(a.qp, &rtr, masks(QpType::Rc)[1]).is_ok(), ok);
    }
}

#[test]
fn limits_hold_on_both_sides() {
    let (mut w, a, b) = pair_with(QpType::Rc, 100, RIGHTS);
    let op = SendOp::Write(remote(&b, 0));
    let stage = |w: &mut Ideal, data: Data<'_>| {
        let wr = SendWr { wr_id: 1, op, data, flags: SendFlags::SIGNALED, dest: None };
        w.at(0).stage(a.qp, &wr)
    };
    assert!(stage(&mut w, Data::Inline(&[0; 16])).is_ok());
    let too_long = Err(StageError::InlineTooLong { got: 17, max: 16 });
    assert_eq!(stage(&mut w, Data::Inline(&[0; 17])), too_long);
    let sge = a.mr.sge(0, 8).unwrap();
    assert!(stage(&mut w, Data::Sge(&[sge; 2])).is_ok());
    let too_many = Err(StageError::TooManySge { got: 3, max: 2 });
    assert_eq!(stage(&mut w, Data::Sge(&[sge; 3])), too_many);
    let huge = Sge { addr: 0, len: u32::MAX, lkey: Lkey(0) };
    assert!(matches!(stage(&mut w, Data::Sge(&[huge])), Err(StageError::TooLong { .. })));
    for _ in 2..64 {
        stage(&mut w, Data::Inline(&[])).unwrap();
    }
    assert_eq!(stage(&mut w, Data::Inline(&[])), Err(StageError::StagedFull));
    assert_eq!(w.at(0).ring(a.qp, Ring::Auto).unwrap().wqes, 64);
    assert_eq!(stage(&mut w, Data::Inline(&[])), Ok(()));
}

#[test]
fn a_receive_queue_takes_its_depth() {
    let (mut w, _, b) = pair();
    let wr = RecvWr { wr_id: 0, sge: b.mr.sge(0, 8).unwrap() };
    let e = w.at(1).post_recv(RecvQueue::Qp(b.qp), &[wr; 9]).unwrap_err();
    assert_eq!(e, PostRecvError { posted: 8, cause: PostRecvCause::Full });
}

#[test]
fn a_shared_receive_queue_serves_and_warns() {
    let mut w = Ideal::new(2);
    let a = open(&mut w.at(0), QpType::Rc, 8, None);
    let b = open(&mut w.at(1), QpType::Rc, 8, Some(3));
    let (ea, eb) = (w.at(0).endpoint(a.qp).unwrap(), w.at(1).endpoint(b.qp).unwrap());
    w.at(0).bring_up(&a, QpType::Rc, &eb, RIGHTS);
    w.at(1).bring_up(&b, QpType::Rc, &ea, RIGHTS);
    let srq = SrqId::new(0, 0, 1);
    let wr = RecvWr { wr_id: 4, sge: b.mr.sge(0, 8).unwrap() };
    let e = w.at(1).post_recv(RecvQueue::Qp(b.qp), &[wr]).unwrap_err();
    assert_eq!(e.cause, PostRecvCause::UsesSrq);
    let e = w.at(1).post_recv(RecvQueue::Srq(srq), &[wr; 4]).unwrap_err();
    assert_eq!(e, PostRecvError { posted: 3, cause: PostRecvCause::Full });
    assert!(w.at(1).arm_srq(srq, 4).is_err());
    w.at(1).arm_srq(srq, 2).unwrap();
    for (n, warned) in [(1, false), (2, true), (3, false)] {
        w.at(0).post(&a, n, SendOp::Send, Data::Inline(&[1]), true);
        w.at(0).ring(a.qp, Ring::Auto).unwrap();
        let event = w.at(1).next_event();
        let kind = event.map(|e| (e.kind, e.srq));
        assert_eq!(kind, warned.then_some((AsyncEventKind::SrqLimitReached, Some(srq))));
    }
    assert_eq!(w.at(1).poll(b.cq).len(), 3);
}

#[test]
fn an_overrun_queue_is_lost() {
    let mut w = Ideal::new(1);
    let mut a = open(&mut w.at(0), QpType::Rc, 8, None);
    let cq = w.at(0).create_cq(2).unwrap();
    let size = QpSize { max_send_wr: 8, max_recv_wr: 8, max_send_sge: 1, max_inline: 8 };
    let init = QpInit {
        ty: QpType::Rc,
        pd: a.pd,
        send_cq: cq,
        recv_cq: cq,
        srq: None,
        size,
        sq_sig_all: true,
        queue_memory: HOST,
    };
    a.qp = w.at(0).create_qp(&init).unwrap();
    // Looped back to itself.
    let me = w.at(0).endpoint(a.qp).unwrap();
    w.at(0).bring_up(&a, QpType::Rc, &me, RIGHTS);
    for n in 0..3 {
        w.at(0).post(&a, n, SendOp::Write(remote(&a, 0)), Data::Inline(&[1]), false);
    }
    w.at(0).ring(a.qp, Ring::Auto).unwrap();
    let mut out = Completions::with_capacity(8);
    assert_eq!(w.at(0).poll_cq(cq, &mut out), Err(PollError::CqLost));
    assert_eq!(
        w.at(0).next_event().map(|e| (e.kind, e.cq)),
        Some((AsyncEventKind::CqErr, Some(cq)))
    );
}

#[test]
fn handles_of_others_are_refused() {
    let (mut w, a, b) = pair();
    assert_eq!(w.at(1).qp_caps(a.qp), Err(BadHandle));
    assert_eq!(w.at(0).sq_free(b.qp), 0);
    assert_eq!(w.at(1).load_u64(a.mr.range(0, 8).unwrap()), Err(MemError::BadHandle));
    let mut out = Completions::with_capacity(1);
    assert_eq!(w.at(1).poll_cq(a.cq, &mut out), Err(PollError::BadHandle));
    w.at(0).destroy_qp(a.qp).unwrap();
    assert_eq!(w.at(0).qp_state(a.qp), Err(BadHandle));
}

#[test]
fn a_shared_qp_has_one_queue_and_two_stagings() {
    let core = |core| Place { host: 0, initiator: Initiator::Cpu { core, numa: 0 } };
    let other = Place { host: 1, ..core(0) };
    let mut w = Ideal::with_places(&[core(0), core(1), other], Limits::default());
    let a = open(&mut w.at(0), QpType::Rc, 8, None);
    let b = open(&mut w.at(2), QpType::Rc, 8, None);
    let (ea, eb) = (w.at(0).endpoint(a.qp).unwrap(), w.at(2).endpoint(b.qp).unwrap());
    w.at(0).bring_up(&a, QpType::Rc, &eb, RIGHTS);
    w.at(2).bring_up(&b, QpType::Rc, &ea, RIGHTS);
    assert_eq!(w.at(1).attach_qp(0, 3), Err(AttachError::NotShared));
    w.at(0).share_qp(a.qp, 3).unwrap();
    assert_eq!(w.at(2).attach_qp(0, 3), Err(AttachError::OtherHost));
    let qp = w.at(1).attach_qp(0, 3).unwrap();
    w.at(0).post(&a, 1, SendOp::Write(remote(&b, 0)), Data::Inline(&[1]), true);
    w.at(1).post(&Side { qp, ..a }, 2, SendOp::Write(remote(&b, 0)), Data::Inline(&[1]), true);
    assert_eq!((w.at(0).sq_free(a.qp), w.at(1).sq_free(qp)), (6, 6));
    // The second rings first: its position comes first.
    assert_eq!(w.at(1).ring(qp, Ring::Auto).unwrap().wqes, 1);
    assert_eq!(w.at(0).ring(a.qp, Ring::Auto).unwrap().wqes, 1);
    assert_eq!(statuses(&w.at(0).poll(a.cq)), [(2, WcStatus::Success), (1, WcStatus::Success)]);
    w.at(0).share_mr(a.mr.id, 1).unwrap();
    let mr = w.at(1).attach_mr(0, 1).unwrap();
    w.at(1).store_u64(mr.range(0, 8).unwrap(), 9).unwrap();
    assert_eq!(w.at(0).load_u64(a.mr.range(0, 8).unwrap()), Ok(9));
    w.at(0).destroy_qp(a.qp).unwrap();
    assert_eq!(w.at(1).attach_qp(0, 3), Err(AttachError::Gone));
}

#[test]
fn memory_calls_check_what_they_are_given() {
    let mut w = Ideal::new(1);
    let a = open(&mut w.at(0), QpType::Rc, 8, None);
    let mut t = w.at(0);
    let virt = t.alloc_mr(a.pd, 64, HOST, RIGHTS, Contents::Virtual).unwrap();
    assert_eq!(t.load_u64(virt.range(0, 8).unwrap()), Err(MemError::Virtual));
    let out = Range { mr: a.mr.id, offset: 4090, len: 8 };
    assert!(matches!(t.copy_in(out, &[0; 8]), Err(MemError::OutOfRange { .. })));
    let range = a.mr.range(0, 8).unwrap();
    let mismatch = MemError::LengthMismatch { range: 8, buffer: 7 };
    assert_eq!(t.copy_in(range, &[0; 7]), Err(mismatch));
    assert_eq!(t.store_u64(a.mr.range(4, 8).unwrap(), 1), Err(MemError::Misaligned { element: 8 }));
    let no_local = AccessFlags::REMOTE_WRITE;
    let refused = t.alloc_mr(a.pd, 8, HOST, no_local, Contents::Data);
    assert_eq!(refused, Err(MemError::InvalidAccess));
    for (op, from, to, sum) in [
        (Reduce::SumI64, (-5_i64).to_le_bytes(), 7_i64.to_le_bytes(), 2_i64.to_le_bytes()),
        (Reduce::SumF64, 0.5_f64.to_le_bytes(), 1.0_f64.to_le_bytes(), 1.5_f64.to_le_bytes()),
    ] {
        t.copy_in(range, &to).unwrap();
        t.copy_in(a.mr.range(8, 8).unwrap(), &from).unwrap();
        t.reduce(op, range, a.mr.range(8, 8).unwrap()).unwrap();
        let mut got = [0; 8];
        t.copy_out(range, &mut got).unwrap();
        assert_eq!(got, sum);
    }
}

/// Rank 0 waits on a watch; rank 1 writes there after its own wait.
struct Watcher {
    side: Option<(Side, WatchId)>,
    steps: u32,
}

impl Program for Watcher {
    fn step<T: Control>(&mut self, t: &mut T) -> Next {
        self.steps += 1;
        let Some((side, watch)) = self.side else { return Next::Done };
        match t.load_u64(side.mr.range(0, 8).unwrap()).unwrap() {
            0 => Next::Wait { on: WaitSet::watch(watch), until: None },
            _ => Next::Done,
        }
    }
}

struct Writer(Option<(Side, Remote)>, Span);

impl Program for Writer {
    fn step<T: Control>(&mut self, t: &mut T) -> Next {
        let at = Time::ZERO + self.1;
        if t.now() < at {
            return Next::Wait { on: WaitSet::EMPTY, until: Some(at) };
        }
        if let Some((s, remote)) = self.0.take() {
            let (op, data) = (SendOp::Write(remote), Data::Inline(&[1]));
            let wr = SendWr { wr_id: 1, op, data, flags: SendFlags::empty(), dest: None };
            t.stage(s.qp, &wr).unwrap();
            t.ring(s.qp, Ring::Auto).unwrap();
        }
        Next::Done
    }
}

#[test]
fn a_watch_wakes_when_its_bytes_change() {
    for (offset, wakes) in [(0, true), (7, true), (8, false)] {
        let (mut w, a, b) = pair();
        let watch = w.at(0).watch(a.mr.range(0, 8).unwrap()).unwrap();
        let mut watcher = Watcher { side: Some((a, watch)), steps: 0 };
        let mut writer = Writer(Some((b, remote(&a, offset))), Span::from_us(5));
        let end = run(&mut w, &mut [&mut watcher, &mut writer]);
        assert_eq!(end.is_ok(), wakes, "{offset}");
        assert_eq!(watcher.steps, if wakes { 2 } else { 1 });
        assert_eq!(w.now(), Time::ZERO + Span::from_us(5));
    }
}

struct Spin;

impl Program for Spin {
    fn step<T: Control>(&mut self, _: &mut T) -> Next {
        Next::Again
    }
}

#[test]
fn a_program_that_spins_is_stopped_and_named() {
    use std::string::ToString;
    let end = run_bounded(&mut Ideal::new(1), &mut [&mut Spin], 100).unwrap_err();
    assert_eq!(end.to_string(), "not finished after 100 steps; running: rank 0 (runs)");
}

#[test]
fn an_invalidated_key_is_gone() {
    let (mut w, a, b) = pair();
    w.at(1).receive(&b, 1, 8);
    let second = w.at(1).alloc_mr(b.pd, 64, HOST, RIGHTS, Contents::Data).unwrap();
    w.at(0).post(&a, 1, SendOp::SendInv(second.rkey), Data::Inline(&[]), true);
    w.at(0).ring(a.qp, Ring::Auto).unwrap();
    let got = w.at(1).poll(b.cq);
    assert!(matches!(got[..], [Completion::Recv { invalidated: Some(k), .. }] if k == second.rkey));
    assert_ne!(second.rkey, Rkey(0));
    let target = Remote { addr: second.addr, rkey: second.rkey };
    w.at(0).post(&a, 2, SendOp::Write(target), Data::Inline(&[1]), true);
    w.at(0).ring(a.qp, Ring::Auto).unwrap();
    let last = statuses(&w.at(0).poll(a.cq));
    assert_eq!(last[1], (2, WcStatus::RemAccessErr));
}

/// Waits for its queue, having polled it with room for two.
struct Careless(CqId);

impl Program for Careless {
    fn step<T: Control>(&mut self, t: &mut T) -> Next {
        let mut out = Completions::with_capacity(2);
        t.poll_cq(self.0, &mut out).unwrap();
        Next::Wait { on: WaitSet::cq(self.0), until: Some(t.now()) }
    }
}

#[test]
fn waiting_for_a_queue_that_was_not_emptied_is_a_mistake() {
    for (completions, fault) in [(1, false), (2, true)] {
        let (mut w, a, b) = pair();
        for n in 0..completions {
            w.at(0).post(&a, n, SendOp::Write(remote(&b, 0)), Data::Inline(&[1]), true);
        }
        w.at(0).ring(a.qp, Ring::Auto).unwrap();
        let mut idle = Watcher { side: None, steps: 0 };
        let end = run_bounded(&mut w, &mut [&mut Careless(a.cq), &mut idle], 100).unwrap_err();
        assert_eq!(end == Stalled::Unpolled { rank: 0, cq: 0 }, fault, "{end}");
    }
}

/// What the send queue of [`every_short_sequence_of_calls`] should hold.
#[derive(Default)]
struct Model {
    staged: Vec<(u64, bool)>,
    /// Executed, not retired.
    held: Vec<(u64, bool)>,
    executed: u64,
}

/// All 6^6 sequences of stage (signalled or not), ring, unstage, poll one, poll all, on a queue
/// with three slots, against a list.
#[test]
fn every_short_sequence_of_calls() {
    for sequence in 0..6_u32.pow(6) {
        let (mut w, a, b) = pair_with(QpType::Rc, 3, RIGHTS);
        let mut m = Model::default();
        for step in 0..6 {
            let call = sequence / 6_u32.pow(step) % 6;
            let mut t = w.at(0);
            match call {
                0 | 1 => {
                    let (id, signaled) = (u64::from(step), call == 0);
                    let flags = if signaled { SendFlags::SIGNALED } else { SendFlags::empty() };
                    let op = SendOp::FetchAdd { remote: remote(&b, 0), add: 1 };
                    let sge = [a.mr.sge(0, 8).unwrap()];
                    let wr = SendWr { wr_id: id, op, data: Data::Sge(&sge), flags, dest: None };
                    let fits = m.staged.len() + m.held.len() < 3;
                    assert_eq!(t.stage(a.qp, &wr).is_ok(), fits, "{sequence}");
                    m.staged.extend(fits.then_some((id, signaled)));
                }
                2 => {
                    let rung = t.ring(a.qp, Ring::Doorbell).unwrap();
                    assert_eq!(rung.wqes as usize, m.staged.len());
                    m.executed += m.staged.len() as u64;
                    m.held.append(&mut m.staged);
                }
                3 => {
                    assert_eq!(t.unstage(a.qp) as usize, m.staged.len());
                    m.staged.clear();
                }
                _ => {
                    let mut out = Completions::with_capacity(if call == 4 { 1 } else { 8 });
                    t.poll_cq(a.cq, &mut out).unwrap();
                    for c in out.as_slice() {
                        let last = m.held.iter().position(|w| w.1).expect("a signalled one");
                        let (id, _) = m.held[last];
                        assert!(matches!(*c, Completion::Send { wr_id, retired, .. }
                            if wr_id == id && retired as usize == last + 1));
                        m.held.drain(..=last);
                    }
                    assert!(out.is_full() || m.held.iter().all(|w| !w.1), "{sequence}");
                }
            }
            assert_eq!(w.at(0).sq_free(a.qp) as usize, 3 - m.staged.len() - m.held.len());
            assert_eq!(w.unrung(), m.staged.len());
        }
        let sum = w.at(1).load_u64(b.mr.range(0, 8).unwrap());
        assert_eq!(sum, Ok(m.executed), "{sequence}");
    }
}

/// Ends at once; with its own publication, if it has one.
struct Ends(Option<u64>);

impl Program for Ends {
    fn step<T: Control>(&mut self, t: &mut T) -> Next {
        if let Some(key) = self.0 {
            t.publish(key, b"last words");
        }
        Next::Done
    }
}

/// Looks up key 1 of rank 0, through a borrowed handle, until it is answered.
#[derive(Default)]
struct Asks {
    answer: Option<Result<usize, LookupError>>,
    steps: u32,
}

impl Asks {
    fn step_by_value<T: Control>(&mut self, mut t: T) -> Next {
        self.steps += 1;
        self.answer = t.lookup(0, 1, &mut []).transpose();
        match self.answer {
            None => Next::Wait { on: WaitSet::BOOTSTRAP, until: None },
            Some(_) => Next::Done,
        }
    }
}

impl Program for Asks {
    fn step<T: Control>(&mut self, t: &mut T) -> Next {
        self.step_by_value(t)
    }
}

#[test]
fn who_waits_for_a_peer_that_ends_is_told() {
    let gone = Err(LookupError::PeerGone { rank: 0 });
    for (published, answer) in [(None, gone), (Some(1), Ok(10)), (Some(2), gone)] {
        // Ranked behind and before, so that it asks after the end and before.
        let mut w = Ideal::new(2);
        let (mut ends, mut asks) = (Ends(published), Asks::default());
        run(&mut w, &mut [&mut ends, &mut asks]).unwrap();
        assert_eq!((asks.answer, asks.steps), (Some(answer), 1));
        // A second run on the same fabric begins with everybody there.
        let mut waits = Asks::default();
        let mut patient = Patient(3, Ends(published));
        run(&mut w, &mut [&mut patient, &mut waits]).unwrap();
        assert_eq!(waits.answer, Some(answer));
        assert_eq!(waits.steps > 1, published != Some(1), "{published:?}");
    }
}

/// Does nothing for some steps, then what the other does.
struct Patient(u32, Ends);

impl Program for Patient {
    fn step<T: Control>(&mut self, t: &mut T) -> Next {
        if self.0 == 0 {
            return Program::step(&mut self.1, t);
        }
        self.0 -= 1;
        Next::Again
    }
}
