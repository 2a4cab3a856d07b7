//! Completions: what each field becomes, and what an error does to the queue pair.

use super::super::fake::{Call, FlushAt};
use super::*;

#[test]
fn every_status_arrives_and_an_unknown_one_is_general() {
    let known = WcStatus::ALL.iter().filter(|s| !s.is_success()).map(|s| (s.value(), *s));
    let unknown = [(255, WcStatus::GeneralErr), (24, WcStatus::GeneralErr)];
    for (code, status) in thinned(unknown.into_iter().chain(known), 9) {
        let mut bed = Bed::new(Posting::Classic);
        bed.post(5..6);
        assert!(bed.fake.fail_code(bed.qpn(), code, 0x99));
        let (queue, vendor_err) = (WorkQueue::Send, 0x99);
        let want =
            Completion::Error { wr_id: 5, qp: bed.qp, queue, status, vendor_err, retired: 1 };
        assert_eq!(bed.sent(), [want]);
        assert_eq!(bed.t.qp_state(bed.qp), Ok(QpState::Err));
    }
}

#[test]
fn opcode_and_length_are_those_of_the_request() {
    let remote = Remote { addr: 1, rkey: Rkey(1) };
    let ops = [
        (SendOp::SendImm(1), WcOpcode::Send),
        (SendOp::SendInv(Rkey(1)), WcOpcode::Send),
        (SendOp::Write(remote), WcOpcode::RdmaWrite),
        (SendOp::WriteImm(remote, 1), WcOpcode::RdmaWrite),
        (SendOp::Read(remote), WcOpcode::RdmaRead),
        (SendOp::CmpSwap { remote, compare: 0, swap: 0 }, WcOpcode::CompSwap),
        (SendOp::FetchAdd { remote, add: 0 }, WcOpcode::FetchAdd),
    ];
    for posting in BOTH {
        let mut bed = Bed::new(posting);
        for (i, (send_op, op)) in (0..).zip(ops) {
            let list = [bed.sge(0, 8), bed.sge(8, 100)];
            bed.t.stage(bed.qp, &request(send_op, i, Data::Sge(&list))).unwrap();
            bed.ring().unwrap();
            bed.fake.complete(bed.qpn(), 1);
            let want = Completion::Send { wr_id: i, qp: bed.qp, op, len: 108, retired: 1 };
            assert_eq!(bed.sent(), [want]);
        }
    }
}

#[test]
fn an_error_flushes_both_queues_each_request_once() {
    for posting in BOTH {
        let mut bed = Bed::new(posting);
        for i in 0..5 {
            let flags = if i == 0 { SendFlags::SIGNALED } else { SendFlags::empty() };
            bed.t.stage(bed.qp, &SendWr { flags, ..send(i) }).unwrap();
        }
        bed.ring().unwrap();
        bed.recv(70, 0, 8).unwrap();
        bed.recv(71, 8, 8).unwrap();
        bed.fake.complete(bed.qpn(), 2);
        bed.fake.fail(bed.qpn(), WcStatus::RetryExcErr, 7);
        let sent = bed.sent();
        assert!(matches!(sent[0], Completion::Send { wr_id: 0, retired: 1, .. }));
        let flush = WcStatus::WrFlushErr;
        let want = [(2, WcStatus::RetryExcErr), (3, flush), (4, flush)];
        assert_eq!(errors(&sent, WorkQueue::Send), want);
        // The failing one brings back the unsignalled one before it.
        let retired: Vec<u32> = sent[1..]
            .iter()
            .map(|c| match *c {
                Completion::Error { retired, .. } => retired,
                ref other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(retired, [2, 1, 1]);
        assert_eq!(errors(&bed.received(), WorkQueue::Recv), [(70, flush), (71, flush)]);
        assert_eq!((bed.t.sq_free(bed.qp), bed.t.qp_state(bed.qp)), (8, Ok(QpState::Err)));
        // Posts in ERR are taken and flushed.
        bed.post(9..10);
        assert_eq!(errors(&bed.sent(), WorkQueue::Send), [(9, flush)]);
        bed.recv(72, 0, 8).unwrap();
        assert_eq!(errors(&bed.received(), WorkQueue::Recv), [(72, flush)]);
    }
}

#[test]
fn a_flush_that_comes_later_than_the_modify() {
    let fake = FakeConfig { flush_at: FlushAt::Script, ..FakeConfig::default() };
    let mut bed = Bed::of(Spec { fake, ..Spec::default() });
    bed.post(0..2);
    bed.recv(7, 0, 8).unwrap();
    bed.go(QpState::Err).unwrap();
    assert_eq!((bed.sent(), bed.received()), (vec![], vec![]));
    bed.fake.flush(bed.qpn());
    let flush = WcStatus::WrFlushErr;
    assert_eq!(errors(&bed.sent(), WorkQueue::Send), [(0, flush), (1, flush)]);
    assert_eq!(errors(&bed.received(), WorkQueue::Recv), [(7, flush)]);
}

#[test]
fn an_error_of_unreliable_services_leads_to_sqe_and_back() {
    for ty in [QpType::Uc, QpType::Ud] {
        let mut bed = Bed::of(Spec { ty, ..Spec::default() });
        let ah = bed.t.create_ah(bed.pd, Address::default()).unwrap();
        let dest = (ty == QpType::Ud).then_some(UdDest { ah, qpn: Qpn::new(1), qkey: QKey(1) });
        let wr = SendWr { dest, ..send(1) };
        bed.t.stage(bed.qp, &wr).unwrap();
        bed.ring().unwrap();
        bed.fake.fail(bed.qpn(), WcStatus::LocProtErr, 0);
        assert_eq!(errors(&bed.sent(), WorkQueue::Send), [(1, WcStatus::LocProtErr)]);
        assert_eq!(bed.t.qp_state(bed.qp), Ok(QpState::Sqe), "{ty}: the device was asked");
        let attr = QpAttr { state: QpState::Rts, ..attr() };
        assert_eq!(bed.t.modify_qp(bed.qp, &attr, QpAttrMask::STATE), Ok(0));
        bed.t.stage(bed.qp, &wr).unwrap();
        bed.ring().unwrap();
        bed.fake.complete(bed.qpn(), 1);
        assert!(matches!(bed.sent()[..], [Completion::Send { wr_id: 1, .. }]), "{ty}");
    }
}

#[test]
fn not_full_means_seen_empty() {
    // More than one call to the provider brings, in buffers of every kind of size.
    for capacity in thinned([33, 1, 2, 31, 32, 64, 65, 100].into_iter(), 8) {
        let size = QpSize { max_send_wr: 128, ..Spec::default().size };
        let mut bed = Bed::of(Spec { size, cq_depth: 128, max_staged: 128, ..Spec::default() });
        bed.post(0..100);
        bed.fake.complete(bed.qpn(), 100);
        let mut out = Completions::with_capacity(capacity);
        let (mut total, mut calls) = (0, 0);
        loop {
            out.clear();
            bed.t.poll_cq(bed.cq, &mut out).unwrap();
            calls += 1;
            for c in out.as_slice() {
                assert!(matches!(*c, Completion::Send { wr_id, .. } if wr_id == total));
                total += 1;
            }
            if !out.is_full() {
                break;
            }
        }
        assert_eq!(total, 100, "{capacity}");
        assert_eq!(calls, 100 / capacity + 1, "every call fills the buffer or ends");
    }
}

#[test]
fn a_poll_appends_to_what_is_there() {
    let mut bed = Bed::new(Posting::Classic);
    bed.post(0..4);
    let mut out = Completions::with_capacity(3);
    for _ in 0..2 {
        bed.fake.complete(bed.qpn(), 2);
        bed.t.poll_cq(bed.cq, &mut out).unwrap();
    }
    assert!(out.is_full());
    bed.t.poll_cq(bed.cq, &mut out).unwrap();
    assert_eq!(out.as_slice().len(), 3);
    assert_eq!(bed.sent().len(), 1, "the fourth was left in the queue");
}

#[test]
fn an_overrun_is_told_by_the_poll_and_by_the_event() {
    let lost = Err(PollError::CqLost);
    for by_event in [false, true] {
        let mut bed = Bed::of(Spec { cq_depth: 4, ..Spec::default() });
        bed.post(0..5);
        bed.fake.complete(bed.qpn(), 5);
        let cq = Some(bed.cq);
        let event = AsyncEvent { kind: AsyncEventKind::CqErr, qp: None, cq, srq: None };
        let mut out = Completions::with_capacity(8);
        if by_event {
            assert_eq!(bed.events(), [event]);
        }
        assert_eq!(bed.t.poll_cq(bed.cq, &mut out), lost);
        assert_eq!(bed.t.poll_cq(bed.cq, &mut out), lost, "for good");
        if !by_event {
            assert_eq!(bed.events(), [event]);
        }
        assert_eq!(out.as_slice(), []);
        // The other queue of the handle is not lost with it.
        assert_eq!(bed.received(), []);
        bed.t.destroy_qp(bed.qp).unwrap();
        bed.t.destroy_cq(bed.cq).unwrap();
    }
}

#[test]
fn a_poll_that_the_provider_refuses_loses_the_queue() {
    let mut bed = Bed::new(Posting::Classic);
    bed.post(0..1);
    bed.fake.fail_call(Call::PollCq, 0, libc::EIO);
    let mut out = Completions::with_capacity(8);
    assert_eq!(bed.t.poll_cq(bed.cq, &mut out), Err(PollError::CqLost));
    bed.fake.complete(bed.qpn(), 1);
    assert_eq!(bed.t.poll_cq(bed.cq, &mut out), Err(PollError::CqLost));
}
