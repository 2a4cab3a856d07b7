//! Posts of both kinds, and what completes.

use super::receives::post_recv;
use super::*;

/// A work request alone, signalled.
fn write(wr_id: u64, sge: &mut ibv_sge) -> ibv_send_wr {
    // SAFETY: all-zero is a valid value of this C structure.
    let mut wr: ibv_send_wr = unsafe { zeroed() };
    wr.wr_id = wr_id;
    wr.sg_list = sge;
    wr.num_sge = 1;
    wr.opcode = WrOpcode::RdmaWrite.value().into();
    wr.send_flags = SIGNALED;
    wr.wr.rdma = rdma_t { remote_addr: 0x1000 + wr_id, rkey: 9 };
    wr
}

/// A chain in raw memory, freed with it.
struct Chain {
    wrs: *mut [ibv_send_wr],
    sges: *mut [ibv_sge],
}

impl Chain {
    fn new(sges: Vec<ibv_sge>, first_id: u64) -> Self {
        let n = sges.len();
        let sges = Box::into_raw(sges.into_boxed_slice());
        // SAFETY: in the slice; only raw pointers are kept.
        let sge = |i| unsafe { &mut *sges.cast::<ibv_sge>().add(i) };
        let wrs: Box<[ibv_send_wr]> = (0..n).map(|i| write(first_id + i as u64, sge(i))).collect();
        let wrs = Box::into_raw(wrs);
        let at = wrs.cast::<ibv_send_wr>();
        for i in 1..n {
            // SAFETY: in the slice.
            unsafe { (*at.add(i - 1)).next = at.add(i) };
        }
        Self { wrs, sges }
    }

    fn at(&self, i: usize) -> *mut ibv_send_wr {
        // SAFETY: in the slice.
        unsafe { self.wrs.cast::<ibv_send_wr>().add(i) }
    }

    /// Posts it; the result, and the index of the bad one: -1 for null, -2 for untouched.
    fn post(&self, bed: &Bed) -> (i32, isize) {
        let untouched = ptr::without_provenance_mut::<ibv_send_wr>(8);
        let mut bad = untouched;
        // SAFETY: a complete chain.
        let rc = unsafe { ibv_post_send(bed.qp.as_ptr(), self.at(0), &raw mut bad) };
        let index = match bad {
            b if b == untouched => -2,
            b if b.is_null() => -1,
            // SAFETY: in the chain.
            b => unsafe { b.offset_from(self.at(0)) },
        };
        (rc, index)
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        // SAFETY: made by `Box::into_raw`, freed once.
        unsafe { drop((Box::from_raw(self.wrs), Box::from_raw(self.sges))) };
    }
}

#[test]
fn a_chain_is_one_call_and_completes_in_order_where_signalled() {
    let bed = Bed::new(FakeConfig::default(), Posting::Classic).rts();
    let mut memory = [7_u8; 64];
    let mr = bed.reg(&raw mut memory);
    let chain = Chain::new((0..3).map(|i| mr.sge(i * 8, 8)).collect(), 10);
    // SAFETY: in the chain, which is not posted yet.
    unsafe {
        (*chain.at(0)).send_flags = 0;
        (*chain.at(2)).send_flags = SIGNALED | SendFlags::INLINE.bits();
    }
    assert_eq!(chain.post(&bed), (0, -2));
    let n = bed.num();
    let counts = bed.fake.counts(n);
    assert_eq!((counts.send_calls, counts.send_doorbells, counts.send_wrs), (1, 1, 3));
    let sent = bed.fake.sent(n);
    assert_eq!(sent[1].remote, Some(Remote { addr: 0x100B, rkey: 9 }));
    assert_eq!((sent[2].sges.len(), sent[2].inline.clone()), (0, Some(vec![7; 8])));
    assert_eq!(bed.fake.payload(n, &sent[1]), Some(vec![7; 8]));
    assert_eq!(bed.fake.complete(n, 2), 2);
    assert_eq!(bed.poll(), [(11, 0, 1, 8)]);
    assert_eq!(bed.fake.complete(n, 9), 1);
    assert_eq!(bed.poll(), [(12, 0, 1, 8)]);
}

#[test]
fn slots_come_back_when_a_completion_is_polled() {
    let bed = Bed::new(FakeConfig::default(), Posting::Classic).rts();
    let mut memory = [0_u8; 8];
    let mr = bed.reg(&raw mut memory);
    let chain = Chain::new((0..6).map(|_| mr.sge(0, 8)).collect(), 0);
    // Depth 5: the sixth is refused.
    assert_eq!(chain.post(&bed), (libc::ENOMEM, 5));
    bed.fake.complete(bed.num(), 5);
    let one = Chain::new(vec![mr.sge(0, 8)], 6);
    assert_eq!(one.post(&bed), (libc::ENOMEM, 0));
    assert_eq!(bed.poll().len(), 5);
    assert_eq!(one.post(&bed), (0, -2));
}

#[test]
fn a_refused_post_points_is_null_or_says_nothing() {
    let config = FakeConfig { errno_sign: ErrnoSign::Negative, ..FakeConfig::default() };
    let bed = Bed::new(config, Posting::Classic).rts();
    let mut memory = [0_u8; 8];
    let mr = bed.reg(&raw mut memory);
    let chain = Chain::new(vec![mr.sge(0, 8), mr.sge(0, 8)], 0);
    let n = bed.num();
    let taken = || bed.fake.counts(n).send_wrs;
    bed.fake.fail_post_send_at(1, libc::EIO, BadWr::Points);
    assert_eq!((chain.post(&bed), taken()), ((-libc::EIO, 1), 1));
    bed.fake.fail_post_send_at(0, libc::EIO, BadWr::Null);
    assert_eq!((chain.post(&bed), taken()), ((-libc::EIO, -1), 1));
    // Longer than the chain: all taken, and an error all the same.
    bed.fake.fail_post_send_at(9, libc::EIO, BadWr::Untouched);
    assert_eq!((chain.post(&bed), taken()), ((-libc::EIO, -2), 3));
    assert_eq!(chain.post(&bed), (0, -2));
}

#[test]
fn an_error_flushes_both_queues_with_junk_in_the_other_fields() {
    let bed = Bed::new(FakeConfig::default(), Posting::Classic).rts();
    let mut memory = [0_u8; 8];
    let mr = bed.reg(&raw mut memory);
    let chain = Chain::new((0..3).map(|_| mr.sge(0, 8)).collect(), 0);
    // SAFETY: in the chain, which is not posted yet.
    unsafe { (*chain.at(1)).send_flags = 0 };
    assert_eq!(chain.post(&bed), (0, -2));
    assert_eq!(post_recv(&bed, 40, mr.sge(0, 8)), (0, false));
    let n = bed.num();
    assert!(bed.fake.fail(n, WcStatus::RetryExcErr, 0x81));
    let polled = bed.poll();
    let ends: Vec<_> = polled.iter().map(|p| (p.0, p.1)).collect();
    assert_eq!(ends, [(0, 12), (1, 5), (2, 5), (40, 5)]);
    assert!(polled.iter().all(|p| p.2 == 0xA5A5_A5A5 && p.3 == 0xA5A5_A5A5));
    assert_eq!((bed.fake.state(n), bed.qp.query_state()), (QpState::Err, Ok(6)));
    // A post in ERR is taken and flushed.
    assert_eq!(chain.post(&bed), (0, -2));
    assert_eq!(bed.poll().len(), 3);
    // And RESET starts anew.
    bed.modify(QpState::Reset).unwrap();
    assert_eq!(chain.post(&bed), (libc::EINVAL, 0));
}

#[test]
fn a_key_that_the_pd_does_not_know_fails_when_executed() {
    let bed = Bed::new(FakeConfig::default(), Posting::Classic).rts();
    let wrong = ibv_sge { addr: 0x1000, length: 8, lkey: 1 };
    assert_eq!(Chain::new(vec![wrong], 3).post(&bed), (0, -2));
    assert_eq!(bed.fake.complete(bed.num(), 1), 0);
    let ends: Vec<_> = bed.poll().iter().map(|p| (p.0, p.1)).collect();
    assert_eq!(ends, [(3, 4)]);
}

/// `wr_start`, one inline WRITE, one READ.
///
/// # Safety
/// A QP with these operations.
unsafe fn build(qp: *mut ibv_qp_ex, mut inline: Vec<u8>, read: &ibv_sge) {
    // SAFETY: the caller's promise.
    unsafe {
        ibv_wr_start(qp);
        (*qp).wr_id = 1;
        (*qp).wr_flags = SIGNALED;
        ibv_wr_rdma_write(qp, 3, 0x30);
        ibv_wr_set_inline_data(qp, inline.as_mut_ptr().cast(), inline.len());
        (*qp).wr_id = 2;
        (*qp).wr_flags = 0;
        ibv_wr_rdma_read(qp, 4, 0x40);
        ibv_wr_set_sge(qp, read.lkey, read.addr, read.length);
    }
}

#[test]
fn extended_posts_are_all_or_nothing_and_belong_to_a_thread() {
    let bed = Bed::new(FakeConfig::default(), Posting::Extended).rts();
    let mut memory = [0_u8; 8];
    let mr = bed.reg(&raw mut memory);
    let (qp, n) = (bed.qp.as_ex_ptr(), bed.num());
    let sent = || bed.fake.counts(n).send_wrs;
    // SAFETY: the QP has these operations; wrong order is what is tested.
    unsafe {
        build(qp, vec![9; 60], &mr.sge(0, 8));
        assert_eq!((ibv_wr_complete(qp), sent()), (0, 2));
        build(qp, vec![9; 61], &mr.sge(0, 8));
        assert_eq!((ibv_wr_complete(qp), sent()), (libc::EINVAL, 2));
        build(qp, vec![9; 1], &mr.sge(0, 8));
        ibv_wr_abort(qp);
        bed.fake.fail_wr_complete(libc::EIO);
        build(qp, vec![9; 1], &mr.sge(0, 8));
        assert_eq!((ibv_wr_complete(qp), sent()), (libc::EIO, 2));
        assert_eq!(bed.fake.violations(), []);
        ibv_wr_start(qp);
        ibv_wr_start(qp);
        ibv_wr_abort(qp);
        assert_eq!(ibv_wr_complete(qp), libc::EINVAL);
    }
    assert_eq!(bed.fake.sent(n)[0].inline, Some(vec![9; 60]));
    assert!(bed.fake.respond(n, &bed.fake.sent(n)[1], &[1; 8]));
    assert_eq!((bed.fake.complete(n, 2), bed.poll()), (2, vec![(1, 0, 1, 60)]));
    let start = Violation::StartedTwice { qpn: n };
    let end = Violation::NotStarted { qpn: n, call: "wr_complete" };
    assert_eq!(bed.fake.violations(), [start, end]);
}

#[test]
fn completing_on_another_thread_is_a_violation() {
    let bed = Bed::new(FakeConfig::default(), Posting::Extended).rts();
    let n = bed.num();
    // SAFETY: the QP has the operation.
    unsafe { ibv_wr_start(bed.qp.as_ex_ptr()) };
    std::thread::scope(|s| {
        // SAFETY: as above; the QP outlives the thread.
        s.spawn(|| unsafe { ibv_wr_complete(bed.qp.as_ex_ptr()) });
    });
    let call = "wr_complete";
    assert_eq!(bed.fake.violations(), [Violation::OtherThread { qpn: n, call }]);
}

#[test]
fn echo_completes_while_posting() {
    let bed = Bed::new(FakeConfig { echo: true, ..FakeConfig::default() }, Posting::Classic).rts();
    let mut memory = [0_u8; 8];
    let mr = bed.reg(&raw mut memory);
    assert_eq!(Chain::new(vec![mr.sge(0, 8), mr.sge(0, 8)], 0).post(&bed), (0, -2));
    assert_eq!(bed.poll().len(), 2);
}

#[test]
fn the_null_device_counts_and_completes_both_kinds_of_posts() {
    for posting in [Posting::Classic, Posting::Extended] {
        let fake = Fake::null_device();
        let bed = Bed::on(fake.clone(), posting, RC, false);
        let sge = ibv_sge { addr: 8, length: 8, lkey: 1 };
        match posting {
            Posting::Classic => {
                let chain = Chain::new(vec![ibv_sge { ..sge }, ibv_sge { ..sge }], 1);
                // SAFETY: in the chain, which is not posted yet.
                unsafe { (*chain.at(1)).send_flags = 0 };
                assert_eq!(chain.post(&bed), (0, -2));
            }
            // SAFETY: the QP has these operations.
            Posting::Extended => unsafe {
                build(bed.qp.as_ex_ptr(), vec![0; 8], &sge);
                assert_eq!(ibv_wr_complete(bed.qp.as_ex_ptr()), 0);
            },
        }
        assert_eq!(bed.poll(), [(1, 0, 1, 0)]);
        assert_eq!((bed.poll(), bed.fake.counts(bed.num()).send_wrs), (vec![], 2));
        drop(bed);
        fake.assert_clean();
    }
}
