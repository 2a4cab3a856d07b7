//! Both sides of every limit, and errors that name it.

use doorbell_core::transport::*;
use doorbell_core::verbs::*;

use super::backend::Lab;
use super::pair::{HOST, Pair, SIGNALED, Side, Spec, send};

#[test]
fn the_send_queue_takes_its_depth_and_not_one_more() {
    let mut pair = Pair::rc();
    let b = pair.sides[1];
    let to = b.remote(0);
    pair.on(0, move |t, me| {
        assert_eq!(t.qp_caps(me.qp).unwrap().max_send_wr, 16);
        for i in 0..16 {
            assert_eq!(t.sq_free(me.qp), 16 - i);
            let flags = if i == 15 { SIGNALED } else { SendFlags::empty() };
            let wr = SendWr { flags, ..send(SendOp::Write(to), i.into(), Data::Inline(&[1])) };
            t.stage(me.qp, &wr).unwrap();
        }
        let one_more = send(SendOp::Write(to), 16, Data::Inline(&[1]));
        assert_eq!(t.stage(me.qp, &one_more), Err(StageError::SqFull));
        assert_eq!(t.ring(me.qp, Ring::Auto).unwrap().wqes, 16);
        assert_eq!(t.stage(me.qp, &one_more), Err(StageError::SqFull), "ringing frees no slot");
    });
    pair.lab.settle();
    let free = pair.on(0, |t, me| t.sq_free(me.qp));
    assert_eq!(free, 0, "everything has completed, and nothing was polled");
    let sent = pair.sent(0);
    assert!(matches!(sent[..], [Completion::Send { wr_id: 15, retired: 16, .. }]), "{sent:?}");
    assert_eq!(pair.on(0, |t, me| t.sq_free(me.qp)), 16);
}

#[test]
fn one_completion_retires_all_before_it_and_none_behind() {
    let mut pair = Pair::rc();
    let to = pair.sides[1].remote(0);
    pair.on(0, move |t, me| {
        for i in 0..10 {
            let flags = if i == 3 || i == 4 { SIGNALED } else { SendFlags::empty() };
            let wr = SendWr { flags, ..send(SendOp::Write(to), i, Data::Inline(&[1])) };
            t.stage(me.qp, &wr).unwrap();
        }
        t.ring(me.qp, Ring::Auto).unwrap();
    });
    pair.lab.settle();
    let (retired, free) = pair.on(0, |t, me| {
        let mut one = Completions::with_capacity(1);
        let mut seen = vec![];
        let mut free = vec![t.sq_free(me.qp)];
        for _ in 0..2 {
            one.clear();
            t.poll_cq(me.send_cq, &mut one).unwrap();
            let [Completion::Send { wr_id, retired, .. }] = *one.as_slice() else {
                panic!("{one:?}")
            };
            seen.push((wr_id, retired));
            free.push(t.sq_free(me.qp));
        }
        (seen, free)
    });
    assert_eq!((retired, free), (vec![(3, 4), (4, 1)], vec![6, 10, 11]));
    assert_eq!(pair.sent(0), [], "the unsignalled tail stays unconfirmed");
}

#[test]
fn staged_full_is_lifted_by_the_ring_and_by_nothing_else() {
    let spec = Spec {
        size: QpSize { max_send_wr: 4096, ..Spec::default().size },
        cq_depth: 8192,
        ..Spec::default()
    };
    let mut pair = Pair::connected(spec);
    let to = pair.sides[1].remote(0);
    pair.on(0, move |t, me| {
        let most = u64::from(t.qp_caps(me.qp).unwrap().max_staged);
        assert!(most < 4096);
        let wr = |i| send(SendOp::Write(to), i, Data::Inline(&[1]));
        for i in 0..most {
            t.stage(me.qp, &wr(i)).unwrap();
        }
        assert_eq!(t.stage(me.qp, &wr(most)), Err(StageError::StagedFull));
        assert_eq!(t.ring(me.qp, Ring::Auto).map(|r| u64::from(r.wqes)), Ok(most));
        t.stage(me.qp, &wr(most)).unwrap_or_else(|e| panic!("after the ring: {e}"));
        assert_eq!(t.unstage(me.qp), 1);
        assert_eq!(u64::from(t.sq_free(me.qp)), 4096 - most);
    });
}

#[test]
fn inline_up_to_the_granted_bytes() {
    let mut pair = Pair::rc();
    let to = pair.sides[1].remote(0);
    let bytes: Vec<u8> = (1..=65).collect();
    let sent = bytes.clone();
    pair.on(0, move |t, me| {
        assert_eq!(t.qp_caps(me.qp).unwrap().max_inline, 64);
        let over = send(SendOp::Write(to), 1, Data::Inline(&sent));
        assert_eq!(t.stage(me.qp, &over), Err(StageError::InlineTooLong { got: 65, max: 64 }));
        assert_eq!(t.sq_free(me.qp), 16, "a refused request takes no slot");
        t.stage(me.qp, &send(SendOp::Write(to), 2, Data::Inline(&sent[..64]))).unwrap();
        t.ring(me.qp, Ring::Auto).unwrap();
    });
    assert_eq!(pair.sent(0).len(), 1);
    needs_peer!();
    assert_eq!(pair.read_local(1, 0, 65), [&bytes[..64], &[0]].concat());
}

#[test]
fn scatter_elements_up_to_the_granted_number() {
    let mut pair = Pair::rc();
    let to = pair.sides[1].remote(0);
    pair.write_local(0, 0, b"abcdef");
    pair.on(0, move |t, me| {
        let max = t.qp_caps(me.qp).unwrap().max_sge;
        assert!(max >= 3, "what was asked for");
        let mut list: Vec<Sge> = [3, 1, 2].map(|at| me.sge(at, 1)).to_vec();
        list.resize(max as usize + 1, me.sge(0, 1));
        let over = send(SendOp::Write(to), 1, Data::Sge(&list));
        assert_eq!(t.stage(me.qp, &over), Err(StageError::TooManySge { got: max + 1, max }));
        t.stage(me.qp, &send(SendOp::Write(to), 2, Data::Sge(&list[..3]))).unwrap();
        t.ring(me.qp, Ring::Auto).unwrap();
    });
    assert_eq!(pair.sent(0).len(), 1);
    needs_peer!();
    assert_eq!(pair.read_local(1, 0, 4), b"dbc\0");
}

#[test]
fn a_datagram_up_to_the_ports_mtu() {
    let mut pair = Pair::connected(Spec { ty: QpType::Ud, ..Spec::default() });
    let dest = pair.dest(0);
    pair.on(0, move |t, me| {
        let mtu = t.device_caps().active_mtu.bytes();
        let list = [me.sge(0, mtu + 1)];
        let wr = SendWr { dest, ..send(SendOp::Send, 1, Data::Sge(&list)) };
        let refused = StageError::TooLong { got: u64::from(mtu) + 1, max: mtu };
        assert_eq!(t.stage(me.qp, &wr), Err(refused));
        let list = [me.sge(0, mtu)];
        let wr = SendWr { dest, ..send(SendOp::Send, 1, Data::Sge(&list)) };
        t.stage(me.qp, &wr).unwrap();
    });
}

#[test]
fn operations_that_a_service_lacks() {
    let remote = Remote::default();
    let all = [
        (SendOp::Send, [true, true, true]),
        (SendOp::SendImm(1), [true, true, true]),
        (SendOp::SendInv(Rkey(1)), [true, true, false]),
        (SendOp::Write(remote), [true, true, false]),
        (SendOp::WriteImm(remote, 1), [true, true, false]),
        (SendOp::Read(remote), [true, false, false]),
        (SendOp::CmpSwap { remote, compare: 0, swap: 0 }, [true, false, false]),
        (SendOp::FetchAdd { remote, add: 0 }, [true, false, false]),
    ];
    for (i, ty) in [QpType::Rc, QpType::Uc, QpType::Ud].into_iter().enumerate() {
        let mut pair = Pair::connected(Spec { ty, ..Spec::default() });
        let dest = pair.dest(0);
        pair.on(0, move |t, me| {
            for (op, allowed) in all {
                let list = [me.sge(0, 8)];
                let staged = t.stage(me.qp, &SendWr { dest, ..send(op, 1, Data::Sge(&list)) });
                let refused = matches!(staged, Err(StageError::Unsupported(_)));
                assert_eq!(refused, !allowed[i], "{ty} {op:?}: {staged:?}");
                assert_eq!(staged.is_ok(), allowed[i], "{ty} {op:?}: {staged:?}");
            }
        });
    }
}

#[test]
fn reads_and_atomics_have_no_inline_form() {
    let mut pair = Pair::rc();
    let remote = pair.sides[1].remote(0);
    pair.on(0, move |t, me| {
        for op in [SendOp::Read(remote), SendOp::FetchAdd { remote, add: 1 }] {
            let staged = t.stage(me.qp, &send(op, 1, Data::Inline(&[0; 8])));
            assert!(matches!(staged, Err(StageError::Unsupported(_))), "{staged:?}");
        }
    });
}

#[test]
fn receives_up_to_the_depth() {
    let mut pair = Pair::rc();
    pair.on(0, |t, me| {
        let wr = RecvWr { wr_id: 0, sge: me.sge(0, 64) };
        let q = RecvQueue::Qp(me.qp);
        // A device may grant more than the 16 that were asked for.
        let granted = t.qp_caps(me.qp).unwrap().max_recv_wr as usize;
        assert!(granted >= 16);
        t.post_recv(q, &vec![wr; granted - 1]).unwrap();
        let full = PostRecvError { posted: 1, cause: PostRecvCause::Full };
        assert_eq!(t.post_recv(q, &[wr; 2]), Err(full), "a prefix is posted");
        let full = PostRecvError { posted: 0, cause: PostRecvCause::Full };
        assert_eq!(t.post_recv(q, &[wr]), Err(full));
    });
}

/// The field, what was asked for and the limit of a refused creation.
fn limit<T: std::fmt::Debug>(r: Result<T, CreateError>) -> (&'static str, u64, u64) {
    match r {
        Err(CreateError::Limit { field, got, max }) => (field, got, max),
        other => panic!("{other:?}"),
    }
}

#[test]
fn creation_refuses_what_is_above_a_limit_and_names_it() {
    let mut lab = Lab::pair();
    lab.call(0, |t| {
        let d = *t.device_caps();
        let side = Side::open(t, &Spec::default());
        let base = QpInit {
            ty: QpType::Rc,
            pd: side.pd,
            send_cq: side.send_cq,
            recv_cq: side.recv_cq,
            srq: None,
            size: Spec::default().size,
            sq_sig_all: false,
            queue_memory: HOST,
        };
        type Set = fn(&mut QpSize, u32);
        let fields: [(&str, u32, Set); 4] = [
            ("max_send_wr", d.max_qp_wr, |s, v| s.max_send_wr = v),
            ("max_recv_wr", d.max_qp_wr, |s, v| s.max_recv_wr = v),
            ("max_send_sge", d.max_sge, |s, v| s.max_send_sge = v),
            ("max_inline_data", d.max_inline, |s, v| s.max_inline = v),
        ];
        for (field, max, set) in fields {
            let mut init = base;
            set(&mut init.size, max);
            let qp = t.create_qp(&init).unwrap_or_else(|e| panic!("{field} = {max}: {e}"));
            t.destroy_qp(qp).unwrap();
            set(&mut init.size, max + 1);
            let got = limit(t.create_qp(&init));
            assert_eq!(got, (field, u64::from(max) + 1, max.into()));
            let said = t.create_qp(&init).unwrap_err().to_string();
            assert!(said.contains(field) && said.contains(&max.to_string()), "{said}");
        }
        let mut none = base;
        none.size.max_send_wr = 0;
        assert_eq!(limit(t.create_qp(&none)).0, "max_send_wr");
        let mut receiver = base;
        receiver.size = QpSize { max_recv_wr: 0, max_send_sge: 0, max_inline: 0, ..base.size };
        t.create_qp(&receiver).unwrap_or_else(|e| panic!("an inline-free sender: {e}"));

        assert_eq!(limit(t.create_cq(0)).0, "cqe");
        assert_eq!(
            limit(t.create_cq(d.max_cqe + 1)),
            ("cqe", d.max_cqe as u64 + 1, d.max_cqe.into())
        );
        t.create_cq(d.max_cqe).unwrap();
        assert_eq!(limit(t.create_srq(side.pd, 0)).0, "max_wr");
        let over = limit(t.create_srq(side.pd, d.max_srq_wr + 1));
        assert_eq!(over, ("max_wr", d.max_srq_wr as u64 + 1, d.max_srq_wr.into()));
        t.create_srq(side.pd, d.max_srq_wr).unwrap();
    });
}

#[test]
fn attributes_above_the_devices_limit_are_refused() {
    let mut pair = Pair::reset(Spec::default());
    pair.advance(0, 1);
    let (spec, peer) = (pair.spec, pair.sides[1]);
    pair.on(0, move |t, me| {
        let d = *t.device_caps();
        let [_, (rtr, mask), _] = super::pair::attributes(&spec, &me.endpoint, &peer.endpoint);
        let most = d.max_dest_rd_atomic;
        let over = QpAttr { max_dest_rd_atomic: most + 1, ..rtr };
        let refused = t.modify_qp(me.qp, &over, mask);
        let (field, got) = ("max_dest_rd_atomic", u64::from(most) + 1);
        assert_eq!(refused, Err(ModifyError::Value { field, got, max: most.into() }));
        assert_eq!(t.qp_state(me.qp), Ok(QpState::Init));
        let just = QpAttr { max_dest_rd_atomic: most, ..rtr };
        assert_eq!(t.modify_qp(me.qp, &just, mask), Ok(0));
    });
}
