//! Objects go in the order of their use, and their ids are stale from then on.

use doorbell_core::transport::*;
use doorbell_core::verbs::*;

use super::backend::Handle;
use super::pair::{HOST, Pair, Side, Spec, send};

const BAD: Result<(), DestroyError> = Err(DestroyError::BadHandle);
const BUSY: Result<(), DestroyError> = Err(DestroyError::Busy);

fn init(me: &Side, srq: Option<SrqId>) -> QpInit {
    QpInit {
        ty: QpType::Rc,
        pd: me.pd,
        send_cq: me.send_cq,
        recv_cq: me.recv_cq,
        srq,
        size: Spec::default().size,
        sq_sig_all: false,
        queue_memory: HOST,
    }
}

#[test]
fn what_is_used_is_busy_until_its_users_are_gone() {
    let mut pair = Pair::rc();
    pair.on(0, |t, me| {
        let srq = t.create_srq(me.pd, 4).unwrap();
        let ah = t.create_ah(me.pd, me.endpoint.address).unwrap();
        let qp = t.create_qp(&init(&me, Some(srq))).unwrap();
        assert_eq!(t.destroy_srq(srq), BUSY);
        t.destroy_qp(me.qp).unwrap();
        // The other QP still completes into both.
        assert_eq!([t.destroy_cq(me.send_cq), t.destroy_cq(me.recv_cq)], [BUSY; 2]);
        assert_eq!(t.dealloc_pd(me.pd), BUSY);
        // Of what is busy nothing has changed.
        assert!(t.poll_cq(me.send_cq, &mut Completions::with_capacity(1)).is_ok());
        t.destroy_qp(qp).unwrap();
        for cq in [me.send_cq, me.recv_cq] {
            assert_eq!([t.destroy_cq(cq), t.destroy_cq(cq)], [Ok(()), BAD]);
        }
        // Each kind of object keeps the domain busy.
        assert_eq!(t.dealloc_pd(me.pd), BUSY);
        assert_eq!([t.destroy_srq(srq), t.destroy_srq(srq)], [Ok(()), BAD]);
        assert_eq!(t.dealloc_pd(me.pd), BUSY);
        assert_eq!([t.destroy_ah(ah), t.destroy_ah(ah)], [Ok(()), BAD]);
        assert_eq!(t.dealloc_pd(me.pd), BUSY);
        t.dereg_mr(me.mr.id).unwrap();
        assert_eq!([t.dealloc_pd(me.pd), t.dealloc_pd(me.pd)], [Ok(()), BAD]);
    });
    pair.lab.settle();
    // The other side is untouched, and the same rank can start again.
    assert_eq!(pair.state(1), QpState::Rts);
    pair.sides[0] = pair.on(0, |t, _| Side::open(t, &Spec::default()));
    pair.go(1, QpState::Reset);
    pair.advance(1, 3);
    pair.advance(0, 3);
    let (to, from) = (pair.sides[1].remote(0), pair.sides[0].sge(0, 8));
    pair.post(0, SendOp::Write(to), 5, from);
    let sent = pair.sent(0);
    assert!(matches!(sent[..], [Completion::Send { wr_id: 5, .. }]), "{sent:?}");
}

#[test]
fn one_user_of_each_kind_keeps_the_domain() {
    let mut pair = Pair::rc();
    pair.on(0, |t, me| {
        let users: [fn(&mut Handle<'_>, &Side, PdId) -> bool; 4] = [
            |t, _, pd| {
                let rights = AccessFlags::LOCAL_WRITE;
                t.alloc_mr(pd, 64, HOST, rights, Contents::Data).is_ok()
            },
            |t, _, pd| t.create_srq(pd, 1).is_ok(),
            |t, me, pd| t.create_ah(pd, me.endpoint.address).is_ok(),
            |t, me, pd| t.create_qp(&QpInit { pd, ..init(me, None) }).is_ok(),
        ];
        for user in users {
            let (used, free) = (t.create_pd().unwrap(), t.create_pd().unwrap());
            assert!(user(t, &me, used));
            assert_eq!([t.dealloc_pd(used), t.dealloc_pd(free)], [BUSY, Ok(())]);
        }
    });
}

#[test]
fn destroyed_objects_are_bad_in_every_call() {
    let mut pair = Pair::reset(Spec { ty: QpType::Ud, ..Spec::default() });
    pair.advance(0, 3);
    pair.on(0, |t, me| {
        let ah = t.create_ah(me.pd, me.endpoint.address).unwrap();
        t.destroy_ah(ah).unwrap();
        let dest = Some(UdDest { ah, qpn: me.endpoint.qpn, qkey: QKey(1) });
        let wr = SendWr { dest, ..send(SendOp::Send, 1, Data::Inline(&[1])) };
        assert_eq!(t.stage(me.qp, &wr), Err(StageError::BadHandle));

        let pd = t.create_pd().unwrap();
        t.dealloc_pd(pd).unwrap();
        let mr = t.alloc_mr(pd, 64, HOST, AccessFlags::LOCAL_WRITE, Contents::Data);
        assert_eq!(mr, Err(MemError::BadHandle));
        let bad = CreateError::BadHandle;
        assert_eq!(t.create_srq(pd, 1), Err(bad));
        assert_eq!(t.create_ah(pd, me.endpoint.address), Err(bad));
        assert_eq!(t.create_qp(&QpInit { pd, ..init(&me, None) }), Err(bad));

        let cq = t.create_cq(4).unwrap();
        t.destroy_cq(cq).unwrap();
        let mut some = Completions::with_capacity(1);
        assert_eq!(t.poll_cq(cq, &mut some), Err(PollError::BadHandle));
        assert_eq!(t.create_qp(&QpInit { send_cq: cq, ..init(&me, None) }), Err(bad));
        assert_eq!(t.create_qp(&QpInit { recv_cq: cq, ..init(&me, None) }), Err(bad));

        let srq = t.create_srq(me.pd, 4).unwrap();
        t.destroy_srq(srq).unwrap();
        let recv = RecvWr { wr_id: 1, sge: me.sge(0, 8) };
        let refused = t.post_recv(RecvQueue::Srq(srq), &[recv]).map_err(|e| e.cause);
        assert_eq!(refused, Err(PostRecvCause::BadHandle));
        assert_eq!(t.arm_srq(srq, 1), Err(ModifyError::BadHandle));
        assert_eq!(t.create_qp(&init(&me, Some(srq))), Err(bad));

        // What comes after has ids of its own.
        let fresh = (t.create_cq(4).unwrap(), t.create_pd().unwrap());
        assert!(fresh.0 != cq && fresh.1 != pd);
    });
}

#[test]
fn foreign_objects_cannot_be_destroyed() {
    let mut pair = Pair::rc();
    let foreign = pair.sides[1];
    pair.on(0, move |t, _| {
        assert_eq!([t.destroy_cq(foreign.send_cq), t.dealloc_pd(foreign.pd)], [BAD; 2]);
    });
    let (srq, ah) = pair.on(1, |t, me| {
        (t.create_srq(me.pd, 1).unwrap(), t.create_ah(me.pd, me.endpoint.address).unwrap())
    });
    pair.on(0, move |t, _| assert_eq!([t.destroy_srq(srq), t.destroy_ah(ah)], [BAD; 2]));
    pair.on(1, move |t, _| assert_eq!([t.destroy_srq(srq), t.destroy_ah(ah)], [Ok(()); 2]));
}

#[test]
fn queues_go_while_messages_are_under_way() {
    let mut pair = Pair::rc();
    let to = pair.sides[1].remote(0);
    pair.on(0, move |t, me| {
        let list = [me.sge(0, 60_000)];
        t.stage(me.qp, &send(SendOp::Write(to), 1, Data::Sge(&list))).unwrap();
        t.ring(me.qp, Ring::Auto).unwrap();
        t.destroy_qp(me.qp).unwrap();
        t.destroy_cq(me.send_cq).unwrap();
        t.destroy_cq(me.recv_cq).unwrap();
        t.dereg_mr(me.mr.id).unwrap();
        t.dealloc_pd(me.pd).unwrap();
    });
    pair.lab.settle();
    assert_eq!(pair.events(0), []);
    assert_eq!(pair.state(1), QpState::Rts);
}
