//! Receives: chains, completions, shared receive queues, datagrams.

use super::super::fake::{BadWr, Delivery};
use super::*;

fn recv(bed: &Bed, wr_id: u64, len: u32, imm: Option<u32>, inv: Option<Rkey>) -> Completion {
    let op = WcOpcode::Recv;
    Completion::Recv { wr_id, qp: bed.qp, op, len, imm, invalidated: inv }
}

#[test]
fn what_arrives_is_told_and_junk_is_not() {
    let mut bed = Bed::new(Posting::Classic);
    for i in 0..4 {
        bed.recv(i, 64 * i, 64).unwrap();
    }
    let qpn = bed.qpn();
    assert_eq!(bed.fake.receive(qpn, b"plain", None, None), Delivery::Done);
    assert_eq!(bed.fake.receive(qpn, b"imm", Some(0x0102_0304), None), Delivery::Done);
    assert_eq!(bed.fake.receive(qpn, b"", None, Some(0xCAFE)), Delivery::Done);
    assert_eq!(bed.fake.receive_write_imm(qpn, 1000, 0), Delivery::Done);
    let want = [
        recv(&bed, 0, 5, None, None),
        recv(&bed, 1, 3, Some(0x0102_0304), None),
        recv(&bed, 2, 0, None, Some(Rkey(0xCAFE))),
        Completion::Recv {
            wr_id: 3,
            qp: bed.qp,
            op: WcOpcode::RecvRdmaWithImm,
            len: 1000,
            imm: Some(0),
            invalidated: None,
        },
    ];
    assert_eq!(bed.received(), want);
    let mut bytes = [0; 67];
    bed.t.copy_out(bed.range(0, 67), &mut bytes).unwrap();
    assert_eq!((&bytes[..6], &bytes[64..]), (&b"plain\0"[..], &b"imm"[..]));
    assert_eq!(bed.t.qp_state(bed.qp), Ok(QpState::Rts));
}

#[test]
fn the_top_bit_of_an_id_belongs_to_the_back_end() {
    let mut bed = Bed::new(Posting::Classic);
    bed.recv(u64::MAX, 0, 8).unwrap();
    assert_eq!(bed.fake.receive(bed.qpn(), b"x", None, None), Delivery::Done);
    assert_eq!(bed.received(), [recv(&bed, u64::MAX >> 1, 1, None, None)]);
}

#[test]
fn a_message_that_does_not_fit_ends_the_queue_pair() {
    let mut bed = Bed::new(Posting::Classic);
    bed.recv(1, 0, 4).unwrap();
    bed.recv(2, 0, 4).unwrap();
    let failed = Delivery::Failed(WcStatus::LocLenErr);
    assert_eq!(bed.fake.receive(bed.qpn(), b"12345", None, None), failed);
    let got = errors(&bed.received(), WorkQueue::Recv);
    assert_eq!(got, [(1, WcStatus::LocLenErr), (2, WcStatus::WrFlushErr)]);
    assert_eq!(bed.t.qp_state(bed.qp), Ok(QpState::Err));
}

#[test]
#[cfg_attr(miri, ignore = "hundreds of receives")]
fn one_call_posts_a_list_and_long_lists_take_several() {
    let size = QpSize { max_recv_wr: 600, ..Spec::default().size };
    let mut bed = Bed::of(Spec { size, ..Spec::default() });
    let wrs = |ids: std::ops::Range<u64>, bed: &Bed| -> Vec<RecvWr> {
        let sge = |id| if id % 2 == 0 { bed.sge(id, 8) } else { Sge::default() };
        ids.map(|wr_id| RecvWr { wr_id, sge: sge(wr_id) }).collect()
    };
    let queue = bed.queue();
    bed.t.post_recv(queue, &[]).unwrap();
    assert_eq!(bed.fake.counts(bed.qpn()).recv_calls, 0);
    let mut calls = 0;
    for (ids, more) in [(0..1, 1), (1..4, 1), (4..260, 1), (260..517, 2)] {
        let list = wrs(ids, &bed);
        bed.t.post_recv(queue, &list).unwrap();
        calls += more;
        assert_eq!(bed.fake.counts(bed.qpn()).recv_calls, calls);
    }
    let posted = bed.fake.received(bed.qpn());
    assert_eq!(posted.len(), 517);
    for (id, wr) in (0..).zip(&posted) {
        assert_eq!(wr.wr_id, id | 1 << 63);
        // A receive without room has no element at all.
        let want = if id % 2 == 0 { vec![bed.sge(id, 8)] } else { vec![] };
        assert_eq!(wr.sges, want);
    }
}

#[test]
fn a_list_that_is_not_taken_as_a_whole() {
    let size = QpSize { max_recv_wr: 300, ..Spec::default().size };
    let fail = |posted, cause| Err(PostRecvError { posted, cause });
    let at = |at, errno, bad| {
        let mut bed = Bed::of(Spec { size, ..Spec::default() });
        bed.fake.fail_post_recv_at(at, errno, bad);
        let list = [RecvWr { wr_id: 1, sge: bed.sge(0, 8) }; 5];
        let result = bed.t.post_recv(RecvQueue::Qp(bed.qp), &list);
        let taken = bed.fake.received(bed.qpn()).len();
        // The chain is mended.
        bed.t.post_recv(RecvQueue::Qp(bed.qp), &list).unwrap();
        assert_eq!(bed.fake.received(bed.qpn()).len(), taken + 5);
        (result, taken)
    };
    assert_eq!(at(0, libc::ENOMEM, BadWr::Points), (fail(0, PostRecvCause::Full), 0));
    assert_eq!(at(3, libc::ENOMEM, BadWr::Points), (fail(3, PostRecvCause::Full), 3));
    assert_eq!(at(4, libc::EIO, BadWr::Points), (fail(4, PostRecvCause::Os(libc::EIO)), 4));
    for bad in [BadWr::Null, BadWr::Untouched] {
        assert_eq!(at(2, libc::EIO, bad), (fail(0, PostRecvCause::Indeterminate), 2));
        assert_eq!(at(99, libc::EIO, bad), (fail(0, PostRecvCause::Indeterminate), 5));
    }
    if cfg!(miri) {
        return;
    }
    // The queue is full in the second of two calls.
    let mut bed = Bed::of(Spec { size, ..Spec::default() });
    let list = vec![RecvWr { wr_id: 1, sge: bed.sge(0, 8) }; 301];
    let queue = bed.queue();
    assert_eq!(bed.t.post_recv(queue, &list), fail(300, PostRecvCause::Full));
    assert_eq!(bed.t.post_recv(queue, &list[..1]), fail(0, PostRecvCause::Full));
}

#[test]
fn a_receive_in_reset_is_refused_before_the_provider_is_called() {
    let mut bed = Bed::reset(Spec::default());
    let cause = PostRecvCause::BadState(QpState::Reset);
    assert_eq!(bed.recv(1, 0, 8), Err(PostRecvError { posted: 0, cause }));
    assert_eq!(bed.fake.counts(bed.qpn()).recv_calls, 0);
    bed.go(QpState::Init).unwrap();
    bed.recv(1, 0, 8).unwrap();
}

#[test]
fn receives_of_a_shared_queue_say_on_which_queue_pair() {
    let mut bed = Bed::of(Spec { srq: Some(4), ..Spec::default() });
    let init = QpInit { srq: bed.srq, ..bed.init() };
    let first = bed.qp;
    bed.qp = bed.t.create_qp(&init).unwrap();
    bed.connect();
    for i in 0..4 {
        bed.recv(i, 64 * i, 64).unwrap();
    }
    let full = PostRecvError { posted: 0, cause: PostRecvCause::Full };
    assert_eq!(bed.recv(9, 0, 8), Err(full));
    let own = RecvQueue::Qp(bed.qp);
    let uses = PostRecvError { posted: 0, cause: PostRecvCause::UsesSrq };
    let wr = RecvWr { wr_id: 1, sge: bed.sge(0, 8) };
    assert_eq!(bed.t.post_recv(own, &[wr]), Err(uses));
    assert_eq!(bed.t.qp_caps(bed.qp).unwrap().max_recv_wr, 0);
    let [a, b] = [first, bed.qp].map(|qp| bed.t.endpoint(qp).unwrap().qpn.value());
    for (qpn, bytes) in [(b, "1"), (a, "22"), (b, "333")] {
        assert_eq!(bed.fake.receive(qpn, bytes.as_bytes(), None, None), Delivery::Done);
    }
    let got: Vec<_> = bed
        .received()
        .iter()
        .map(|c| match *c {
            Completion::Recv { wr_id, qp, len, .. } => (wr_id, qp, len),
            ref other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(got, [(0, bed.qp, 1), (1, first, 2), (2, bed.qp, 3)]);
    // Receives outlive a queue pair, and the next one takes them.
    bed.t.destroy_qp(first).unwrap();
    assert_eq!(bed.fake.receive(b, b"x", None, None), Delivery::Done);
    assert!(matches!(bed.received()[..], [Completion::Recv { wr_id: 3, .. }]));
    bed.recv(5, 0, 8).unwrap();
    assert_eq!(bed.fake.srq_counts(b).unwrap().recv_wrs, 5);
}

#[test]
fn the_limit_of_a_shared_queue_is_armed_up_to_its_granted_depth() {
    let mut bed = Bed::of(Spec { srq: Some(5), ..Spec::default() });
    let srq = bed.srq.unwrap();
    let over = ModifyError::Value { field: "srq_limit", got: 6, max: 5 };
    assert_eq!(bed.t.arm_srq(srq, 6), Err(over));
    for i in 0..5 {
        bed.recv(i, 0, 8).unwrap();
    }
    bed.t.arm_srq(srq, 5).unwrap();
    assert_eq!(bed.events(), []);
    assert_eq!(bed.fake.receive(bed.qpn(), b"", None, None), Delivery::Done);
    let kind = AsyncEventKind::SrqLimitReached;
    let event = AsyncEvent { kind, qp: None, cq: None, srq: Some(srq) };
    assert_eq!(bed.events(), [event]);
    let fake =
        FakeConfig { rounding: super::super::fake::Rounding::PowerOfTwo, ..FakeConfig::default() };
    let mut bed = Bed::of(Spec { srq: Some(5), fake, ..Spec::default() });
    for i in 0..8 {
        bed.recv(i, 0, 8).unwrap();
    }
    bed.t.arm_srq(bed.srq.unwrap(), 8).unwrap();
}

#[test]
fn a_datagram_comes_with_forty_bytes_in_front() {
    let mut bed = Bed::of(Spec { ty: QpType::Ud, ..Spec::default() });
    bed.recv(1, 0, 64).unwrap();
    bed.recv(2, 0, 42).unwrap();
    assert_eq!(bed.fake.receive(bed.qpn(), b"abc", Some(6), None), Delivery::Done);
    assert_eq!(bed.received(), [recv(&bed, 1, 43, Some(6), None)]);
    let mut bytes = [0; 3];
    bed.t.copy_out(bed.range(40, 3), &mut bytes).unwrap();
    assert_eq!(&bytes, b"abc");
}
