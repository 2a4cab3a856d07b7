//! Stale and foreign handles, and objects that others still use.

use super::*;

const BUSY: Result<(), DestroyError> = Err(DestroyError::Busy);
const BAD: Result<(), DestroyError> = Err(DestroyError::BadHandle);

/// Every call with handles that are not this transport's, or not any more.
fn refuses(bed: &mut Bed, qp: QpId, cq: CqId, pd: PdId, mr: Mr, srq: SrqId, ah: AhId) {
    let good = bed.init();
    let live = bed.fake.live();
    let t = &mut bed.t;
    assert_eq!((t.qp_caps(qp), t.qp_state(qp)), (Err(BadHandle), Err(BadHandle)));
    assert_eq!((t.endpoint(qp), t.raw(qp, cq)), (Err(BadHandle), Err(BadHandle)));
    assert_eq!((t.sq_free(qp), t.unstage(qp)), (0, 0));
    assert_eq!(t.stage(qp, &send(1)), Err(StageError::BadHandle));
    let bad = RingError { posted: 0, discarded: 0, cause: RingCause::BadHandle };
    assert_eq!(t.ring(qp, Ring::Auto), Err(bad));
    let wr = RecvWr { wr_id: 1, sge: Sge::default() };
    for queue in [RecvQueue::Qp(qp), RecvQueue::Srq(srq)] {
        let cause = PostRecvCause::BadHandle;
        assert_eq!(t.post_recv(queue, &[wr]), Err(PostRecvError { posted: 0, cause }));
    }
    let mut out = Completions::with_capacity(1);
    assert_eq!(t.poll_cq(cq, &mut out), Err(PollError::BadHandle));
    let modified = t.modify_qp(qp, &attr(), QpAttrMask::STATE);
    assert_eq!(modified, Err(ModifyError::BadHandle));
    assert_eq!(t.arm_srq(srq, 1), Err(ModifyError::BadHandle));
    let word = Range { mr: mr.id, offset: 0, len: 8 };
    let gone = Err(MemError::BadHandle);
    assert_eq!(t.copy_in(word, &[0; 8]), gone);
    assert_eq!(t.copy_out(word, &mut [0; 8]), gone);
    assert_eq!(t.load_u64(word).map(drop), gone);
    assert_eq!(t.store_u64(word, 1), gone);
    assert_eq!(t.reduce(Reduce::SumI64, word, word), gone);
    assert_eq!(t.watch(word).map(drop), gone);
    let rights = AccessFlags::LOCAL_WRITE;
    assert_eq!(t.alloc_mr(pd, 8, HOST, rights, Contents::Data).map(drop), gone);
    let none = CreateError::BadHandle;
    assert_eq!(t.create_srq(pd, 1), Err(none));
    assert_eq!(t.create_ah(pd, Address::default()), Err(none));
    for init in [
        QpInit { pd, ..good },
        QpInit { send_cq: cq, ..good },
        QpInit { recv_cq: cq, ..good },
        QpInit { srq: Some(srq), ..good },
    ] {
        assert_eq!(t.create_qp(&init), Err(none));
    }
    assert_eq!((t.destroy_qp(qp), t.dereg_mr(mr.id)), (Err(BadHandle), Err(BadHandle)));
    assert_eq!([t.destroy_cq(cq), t.destroy_srq(srq), t.destroy_ah(ah)], [BAD; 3]);
    assert_eq!(t.dealloc_pd(pd), BAD);
    assert_eq!(bed.fake.live(), live, "nothing was made or destroyed");
}

#[test]
fn foreign_handles_are_bad_in_every_call() {
    let mut mine = Bed::new(Posting::Classic);
    let mut theirs = Bed::of(Spec { rank: 1, srq: Some(4), ..Spec::default() });
    let ah = theirs.t.create_ah(theirs.pd, Address::default()).unwrap();
    let srq = theirs.srq.unwrap();
    refuses(&mut mine, theirs.qp, theirs.cq, theirs.pd, theirs.mr, srq, ah);
}

#[test]
fn stale_handles_are_bad_in_every_call() {
    let mut bed = Bed::new(Posting::Classic);
    let make = |bed: &mut Bed| {
        let (cq, pd) = (bed.t.create_cq(4).unwrap(), bed.t.create_pd().unwrap());
        let mr = bed.t.alloc_mr(pd, 64, HOST, ALL_RIGHTS, Contents::Data).unwrap();
        let srq = bed.t.create_srq(pd, 4).unwrap();
        let ah = bed.t.create_ah(pd, Address::default()).unwrap();
        let init = QpInit { pd, send_cq: cq, recv_cq: cq, srq: Some(srq), ..bed.init() };
        (bed.t.create_qp(&init).unwrap(), cq, pd, mr, srq, ah)
    };
    let (qp, cq, pd, mr, srq, ah) = make(&mut bed);
    bed.t.destroy_qp(qp).unwrap();
    assert_eq!([bed.t.destroy_cq(cq), bed.t.destroy_srq(srq), bed.t.destroy_ah(ah)], [Ok(()); 3]);
    bed.t.dereg_mr(mr.id).unwrap();
    bed.t.dealloc_pd(pd).unwrap();
    refuses(&mut bed, qp, cq, pd, mr, srq, ah);
    // The same slots serve again, under other names.
    let fresh = make(&mut bed);
    assert_eq!((fresh.0.index(), fresh.1.index()), (qp.index(), cq.index()));
    refuses(&mut bed, qp, cq, pd, mr, srq, ah);
}

#[test]
fn what_others_use_is_busy() {
    let mut bed = Bed::new(Posting::Classic);
    let srq = bed.t.create_srq(bed.pd, 4).unwrap();
    let ah = bed.t.create_ah(bed.pd, Address::default()).unwrap();
    let second = bed.t.create_qp(&QpInit { srq: Some(srq), ..bed.init() }).unwrap();
    assert_eq!(bed.t.destroy_srq(srq), BUSY);
    bed.t.destroy_qp(bed.qp).unwrap();
    assert_eq!([bed.t.destroy_cq(bed.cq), bed.t.destroy_cq(bed.recv_cq)], [BUSY; 2]);
    bed.t.destroy_qp(second).unwrap();
    assert_eq!([bed.t.destroy_cq(bed.cq), bed.t.destroy_cq(bed.recv_cq)], [Ok(()); 2]);
    // Each of the three keeps the domain.
    assert_eq!(bed.t.dealloc_pd(bed.pd), BUSY);
    bed.t.destroy_srq(srq).unwrap();
    assert_eq!(bed.t.dealloc_pd(bed.pd), BUSY);
    bed.t.destroy_ah(ah).unwrap();
    assert_eq!(bed.t.dealloc_pd(bed.pd), BUSY);
    bed.t.dereg_mr(bed.mr.id).unwrap();
    assert_eq!(bed.t.dealloc_pd(bed.pd), Ok(()));
}

#[test]
fn an_address_handle_goes_while_its_request_is_staged() {
    for posting in BOTH {
        let mut bed = Bed::of(Spec { posting, ty: QpType::Ud, ..Spec::default() });
        let ah = bed.t.create_ah(bed.pd, Address::default()).unwrap();
        let dest = Some(UdDest { ah, qpn: Qpn::new(1), qkey: QKey(1) });
        bed.t.stage(bed.qp, &SendWr { dest, ..send(1) }).unwrap();
        bed.t.destroy_ah(ah).unwrap();
        assert_eq!(bed.t.stage(bed.qp, &SendWr { dest, ..send(2) }), Err(StageError::BadHandle));
        assert_eq!(bed.ring().map(|r| r.wqes), Ok(1), "sends that were staged with it go on");
    }
}

#[test]
fn a_handle_moves_to_another_thread_with_everything() {
    let mut bed = Bed::new(Posting::Classic);
    bed.stage(0..2);
    let mut bed = std::thread::spawn(move || {
        bed.stage(2..3);
        bed.ring().unwrap();
        bed
    })
    .join()
    .unwrap();
    bed.fake.complete(bed.qpn(), 3);
    assert_eq!(bed.sent().len(), 3);
}

/// Does not compile if a handle could be shared: the call would have two meanings.
#[test]
fn a_handle_is_sent_and_not_shared() {
    struct AlsoSync;
    trait Meaning<A> {
        fn only() {}
    }
    impl<T> Meaning<()> for T {}
    impl<T: Sync> Meaning<AlsoSync> for T {}
    <HwTransport as Meaning<_>>::only();
    fn sent<T: Send>() {}
    sent::<HwTransport>();
}
