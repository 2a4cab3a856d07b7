//! Receives, and what a peer does to memory.

use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use super::*;

/// The result, and whether `bad` is null.
pub(super) fn post_recv(bed: &Bed, wr_id: u64, mut sge: ibv_sge) -> (i32, bool) {
    let next = ptr::null_mut();
    let mut wr = ibv_recv_wr { wr_id, next, sg_list: &raw mut sge, num_sge: 1 };
    let mut bad = ptr::without_provenance_mut(8);
    let srq = bed.qp.parts().srq.as_ref();
    // SAFETY: a complete chain.
    let rc = unsafe {
        match srq {
            Some(srq) => ibv_post_srq_recv(srq.as_ptr(), &raw mut wr, &raw mut bad),
            None => ibv_post_recv(bed.qp.as_ptr(), &raw mut wr, &raw mut bad),
        }
    };
    (rc, bad.is_null())
}

#[test]
fn a_receive_is_filled_up_to_the_length_of_the_message() {
    let bed = Bed::new(FakeConfig::default(), Posting::Classic);
    let memory = Box::into_raw(Box::new([0_u8; 16]));
    let mr = bed.reg(memory);
    assert_eq!(post_recv(&bed, 1, mr.sge(0, 8)), (libc::EINVAL, true));
    let bed = bed.rts_ref();
    let n = bed.num();
    assert_eq!(bed.fake.receive(n, &[1], None, None), Delivery::NoReceive);
    assert_eq!(post_recv(bed, 1, mr.sge(4, 8)), (0, false));
    assert_eq!(post_recv(bed, 2, mr.sge(0, 2)), (0, false));
    assert_eq!(bed.fake.receive(n, &[5, 6], Some(0x0102_0304), None), Delivery::Done);
    // SAFETY: allocated above; the device writes only within its calls.
    assert_eq!(unsafe { memory.cast::<[u8; 3]>().byte_add(4).read() }, [5, 6, 0]);
    assert_eq!(bed.poll(), [(1, 0, 128, 2)]);
    let long = bed.fake.receive(n, &[0; 3], None, None);
    assert_eq!(long, Delivery::Failed(WcStatus::LocLenErr));
    assert_eq!(bed.fake.state(n), QpState::Err);
    drop(mr);
    // SAFETY: made by `Box::into_raw`, and registered no more.
    drop(unsafe { Box::from_raw(memory) });
}

/// What the negative control `hw/tests/miri_rejects/slice_over_mr.rs` does wrong.
#[test]
fn a_peer_writes_while_the_program_reads_atomically() {
    const LOOKS_MAX: usize = 1 << 20;
    let bed = Bed::new(FakeConfig::default(), Posting::Classic);
    let memory = Box::into_raw(Box::new([0_u64; 2]));
    let mr = bed.reg(ptr::slice_from_raw_parts_mut(memory.cast(), 16));
    let (fake, at) = (bed.fake.clone(), memory.addr() as u64);
    // SAFETY: alive until dropped.
    let rkey = unsafe { (*mr.mr).rkey };
    let nic = std::thread::spawn(move || {
        assert!(!fake.remote_write(rkey, at + 9, &[7; 8]), "one byte too far");
        assert!(!fake.remote_write(rkey ^ 1, at, &[7; 8]), "another key");
        assert!(!fake.remote_write_u64(rkey, at + 4, 1), "not aligned");
        fake.remote_write(rkey, at + 8, &[7; 8]) && fake.remote_write_u64(rkey, at, 1)
    });
    // SAFETY: allocated above, aligned, and touched atomically only.
    let flag = unsafe { AtomicU64::from_ptr(memory.cast()) };
    let seen = (0..LOOKS_MAX).any(|_| {
        std::thread::yield_now();
        flag.load(Ordering::Acquire) == 1
    });
    // SAFETY: as above.
    let last = unsafe { AtomicU8::from_ptr(memory.cast::<u8>().add(15)) };
    assert_eq!((seen, last.load(Ordering::Relaxed)), (true, 7));
    assert!(nic.join().unwrap());
    drop(mr);
    // SAFETY: made by `Box::into_raw`, and registered no more.
    drop(unsafe { Box::from_raw(memory) });
}

impl Bed {
    fn rts_ref(&self) -> &Self {
        for to in [QpState::Init, QpState::Rtr, QpState::Rts] {
            self.modify(to).unwrap();
        }
        self
    }
}

#[test]
fn a_shared_receive_queue_tells_its_limit_and_the_last_wqe() {
    let bed = Bed::on(Fake::new(FakeConfig::default()), Posting::Classic, RC, true).rts();
    let mut memory = [0_u8; 8];
    let mr = bed.reg(&raw mut memory);
    for id in 0..2 {
        assert_eq!(post_recv(&bed, id, mr.sge(0, 8)), (0, false));
    }
    let n = bed.num();
    bed.qp.parts().srq.as_ref().unwrap().arm(2).unwrap();
    assert_eq!(bed.fake.receive_write_imm(n, 4096, 3), Delivery::Done);
    assert_eq!(bed.poll(), [(0, 0, 129, 4096)]);
    bed.modify(QpState::Err).unwrap();
    assert_eq!(bed.fake.receives(n), 1);
    let kinds: Vec<u32> = (0..2).map(|_| events::take(&bed, true).unwrap().kind).collect();
    assert_eq!(kinds, [15, 16]);
    assert_eq!(bed.fake.srq_counts(n).unwrap().recv_wrs, 2);
}

#[test]
fn a_datagram_needs_an_address_handle_and_arrives_behind_a_grh() {
    let bed = Bed::on(Fake::new(FakeConfig::default()), Posting::Classic, UD, false);
    for (to, mask) in
        [(QpState::Init, 1 | 16 | 32 | 64), (QpState::Rtr, 1), (QpState::Rts, 0x1_0001)]
    {
        bed.modify_with(to, mask).unwrap();
    }
    let (n, pd) = (bed.num(), bed.qp.parts().pd.clone());
    let mut memory = [0_u8; 64];
    let mr = bed.reg(&raw mut memory);
    // SAFETY: all-zero is a valid value of these C structures.
    let (mut attr, mut wr): (ibv_ah_attr, ibv_send_wr) = unsafe { (zeroed(), zeroed()) };
    attr.port_num = 1;
    assert_eq!(Ah::create(&pd, &mut attr).unwrap_err(), Errno(libc::EINVAL), "no GRH");
    attr.is_global = 1;
    attr.grh.sgid_index = 3;
    let ah = Ah::create(&pd, &mut attr).unwrap();
    wr.opcode = WrOpcode::SendWithImm.value().into();
    wr.imm_data_invalidated_rkey_union.imm_data = 5_u32.to_be();
    wr.wr.ud = ud_t { ah: ah.as_ptr(), remote_qpn: 6, remote_qkey: 7 };
    let mut bad = ptr::null_mut();
    // SAFETY: a chain of one.
    assert_eq!(unsafe { ibv_post_send(bed.qp.as_ptr(), &raw mut wr, &raw mut bad) }, 0);
    let sent = bed.fake.sent(n).remove(0);
    let target = sent.ud.unwrap();
    assert_eq!((sent.imm, target.qpn, target.qkey), (Some(5), 6, 7));
    assert_eq!(bed.fake.ah(target.ah).unwrap().grh.sgid_index, 3);
    assert_eq!(post_recv(&bed, 1, mr.sge(0, 44)), (0, false));
    assert_eq!(bed.fake.receive(n, &[1; 4], None, None), Delivery::Done);
    assert_eq!(bed.poll(), [(1, 0, 128, 44)]);
    // An error stops sending only.
    assert!(bed.fake.fail(n, WcStatus::LocQpOpErr, 0));
    assert_eq!(bed.fake.state(n), QpState::Sqe);
}
