//! Stale and foreign handles are answered, never with somebody else's object.

use doorbell_core::transport::*;
use doorbell_core::verbs::*;

use super::pair::{HOST, Pair, Side, Spec, send};

#[test]
fn a_handle_of_another_rank_is_bad_in_every_call() {
    let mut pair = Pair::rc();
    let foreign = pair.sides[1];
    pair.on(0, move |t, me| {
        assert_eq!(t.qp_caps(foreign.qp), Err(BadHandle));
        assert_eq!(t.qp_state(foreign.qp), Err(BadHandle));
        assert_eq!(t.endpoint(foreign.qp), Err(BadHandle));
        assert_eq!(t.sq_free(foreign.qp), 0);
        assert_eq!(t.unstage(foreign.qp), 0);
        let wr = send(SendOp::Send, 1, Data::Inline(&[1]));
        assert_eq!(t.stage(foreign.qp, &wr), Err(StageError::BadHandle));
        let ring = t.ring(foreign.qp, Ring::Auto).map_err(|e| e.cause);
        assert_eq!(ring, Err(RingCause::BadHandle));
        let recv = RecvWr { wr_id: 1, sge: me.sge(0, 8) };
        let refused = t.post_recv(RecvQueue::Qp(foreign.qp), &[recv]).map_err(|e| e.cause);
        assert_eq!(refused, Err(PostRecvCause::BadHandle));
        let mut some = Completions::with_capacity(1);
        assert_eq!(t.poll_cq(foreign.send_cq, &mut some), Err(PollError::BadHandle));
        let modified = t.modify_qp(foreign.qp, &QpAttr::default(), QpAttrMask::STATE);
        assert_eq!(modified, Err(ModifyError::BadHandle));
        assert_eq!(t.destroy_qp(foreign.qp), Err(BadHandle));
        assert_eq!(t.dereg_mr(foreign.mr.id), Err(BadHandle));
        assert!(t.share_qp(foreign.qp, 1).is_err() && t.share_mr(foreign.mr.id, 1).is_err());
        bad_memory(t, foreign.mr);
        bad_creation(t, me, foreign);
    });
}

fn bad_memory<T: Control>(t: &mut T, mr: Mr) {
    let word = mr.range(0, 8).unwrap();
    assert_eq!(t.copy_in(word, &[0; 8]), Err(MemError::BadHandle));
    assert_eq!(t.copy_out(word, &mut [0; 8]), Err(MemError::BadHandle));
    assert_eq!(t.load_u64(word), Err(MemError::BadHandle));
    assert_eq!(t.store_u64(word, 1), Err(MemError::BadHandle));
    assert_eq!(t.reduce(Reduce::SumI64, word, word), Err(MemError::BadHandle));
    assert_eq!(t.copy(word, word), Err(MemError::BadHandle));
    assert_eq!(t.watch(word), Err(MemError::BadHandle));
}

fn bad_creation<T: Control>(t: &mut T, me: Side, foreign: Side) {
    let rights = AccessFlags::LOCAL_WRITE;
    let mr = t.alloc_mr(foreign.pd, 64, HOST, rights, Contents::Data);
    assert_eq!(mr, Err(MemError::BadHandle));
    assert_eq!(t.create_srq(foreign.pd, 1), Err(CreateError::BadHandle));
    assert_eq!(t.create_ah(foreign.pd, me.endpoint.address), Err(CreateError::BadHandle));
    let good = QpInit {
        ty: QpType::Rc,
        pd: me.pd,
        send_cq: me.send_cq,
        recv_cq: me.recv_cq,
        srq: None,
        size: Spec::default().size,
        sq_sig_all: false,
        queue_memory: HOST,
    };
    for bad in [
        QpInit { pd: foreign.pd, ..good },
        QpInit { send_cq: foreign.send_cq, ..good },
        QpInit { recv_cq: foreign.recv_cq, ..good },
    ] {
        assert_eq!(t.create_qp(&bad), Err(CreateError::BadHandle));
    }
    t.create_qp(&good).unwrap();
}

#[test]
fn a_destroyed_qp_and_a_deregistered_region_are_stale() {
    let mut pair = Pair::rc();
    pair.on(0, |t, me| {
        t.destroy_qp(me.qp).unwrap();
        assert_eq!(t.destroy_qp(me.qp), Err(BadHandle));
        assert_eq!(t.qp_state(me.qp), Err(BadHandle));
        let wr = send(SendOp::Send, 1, Data::Inline(&[1]));
        assert_eq!(t.stage(me.qp, &wr), Err(StageError::BadHandle));
        t.dereg_mr(me.mr.id).unwrap();
        assert_eq!(t.dereg_mr(me.mr.id), Err(BadHandle));
        bad_memory(t, me.mr);
    });
}

#[test]
fn a_qp_destroyed_with_work_under_way_leaves_the_rest_alone() {
    let mut pair = Pair::rc();
    let to = pair.sides[1].remote(0);
    let (spec, peer) = (pair.spec, pair.sides[1]);
    pair.on(0, move |t, me| {
        let list = [me.sge(0, 60_000)];
        t.stage(me.qp, &send(SendOp::Write(to), 1, Data::Sge(&list))).unwrap();
        t.ring(me.qp, Ring::Auto).unwrap();
        t.destroy_qp(me.qp).unwrap();
    });
    pair.sent(0);
    // A new QP of the same rank works, with the same queues.
    let fresh = pair.on(0, move |t, me| {
        let init = QpInit {
            ty: QpType::Rc,
            pd: me.pd,
            send_cq: me.send_cq,
            recv_cq: me.recv_cq,
            srq: None,
            size: spec.size,
            sq_sig_all: false,
            queue_memory: HOST,
        };
        let qp = t.create_qp(&init).unwrap();
        assert_ne!(qp, me.qp);
        Side { qp, endpoint: t.endpoint(qp).unwrap(), ..me }
    });
    pair.sides[0] = fresh;
    pair.go(1, QpState::Reset);
    pair.advance(1, 3);
    pair.advance(0, 3);
    pair.post(0, SendOp::Write(peer.remote(0)), 2, fresh.sge(0, 8));
    let sent = pair.sent(0);
    assert!(
        matches!(sent[..], [Completion::Send { wr_id: 2, qp, .. }] if qp == fresh.qp),
        "{sent:?}"
    );
}

#[test]
fn ranges_are_checked_at_both_ends() {
    let mut pair = Pair::rc();
    pair.on(0, |t, me| {
        let region = me.mr.len;
        let mr = me.mr.id;
        let at = |offset, len| Range { mr, offset, len };
        assert_eq!(t.copy_in(at(region - 8, 8), &[1; 8]), Ok(()));
        let out = |offset, len| Err(MemError::OutOfRange { offset, len, region });
        assert_eq!(t.copy_in(at(region - 7, 8), &[1; 8]), out(region - 7, 8));
        assert_eq!(t.copy_out(at(u64::MAX, 2), &mut [0; 2]), out(u64::MAX, 2));
        let wrong = MemError::LengthMismatch { range: 8, buffer: 7 };
        assert_eq!(t.copy_in(at(0, 8), &[1; 7]), Err(wrong));
        let odd = MemError::Misaligned { element: 8 };
        assert_eq!(t.load_u64(at(4, 8)), Err(odd));
        assert_eq!(t.store_u64(at(0, 4), 1), Err(odd));
        assert_eq!(
            t.reduce(Reduce::SumF32, at(0, 6), at(8, 6)).map_err(|e| e.to_string()),
            Err("not a multiple of 4 B".to_owned())
        );
        let rights = AccessFlags::REMOTE_WRITE;
        let refused = t.alloc_mr(me.pd, 64, HOST, rights, Contents::Data);
        assert_eq!(refused, Err(MemError::InvalidAccess));
    });
}

#[test]
fn a_step_reads_its_own_stores() {
    let mut pair = Pair::rc();
    pair.on(0, |t, me| {
        let (a, b) = (me.mr.range(0, 8).unwrap(), me.mr.range(8, 8).unwrap());
        t.store_u64(a, 40).unwrap();
        t.copy_in(b, &2u64.to_le_bytes()).unwrap();
        t.reduce(Reduce::SumI64, a, b).unwrap();
        assert_eq!(t.load_u64(a), Ok(42));
        t.store_u64(b, 7).unwrap();
        t.reduce(Reduce::SumI64, a, b).unwrap();
        let mut both = [0; 16];
        t.copy_out(me.mr.range(0, 16).unwrap(), &mut both).unwrap();
        assert_eq!(both, [49, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0]);
    });
    assert_eq!(pair.read_local(0, 0, 1), [49]);
}

#[test]
fn a_copy_between_regions_moves_all_bytes_and_sees_own_stores() {
    let mut pair = Pair::rc();
    pair.on(0, |t, me| {
        let more = t.alloc_mr(me.pd, 4096, HOST, AccessFlags::LOCAL_WRITE, Contents::Data);
        let more = more.unwrap();
        // Longer than any buffer on the way.
        let bytes: Vec<u8> = (0..3000_u32).map(|i| (i % 251) as u8).collect();
        t.copy_in(me.mr.range(5, 3000).unwrap(), &bytes).unwrap();
        t.copy(more.range(70, 3000).unwrap(), me.mr.range(5, 3000).unwrap()).unwrap();
        let mut got = vec![0; 3002];
        t.copy_out(more.range(69, 3002).unwrap(), &mut got).unwrap();
        assert_eq!((got[0], &got[1..3001], got[3001]), (0, &bytes[..], 0));
        t.copy(more.range(0, 0).unwrap(), me.mr.range(0, 0).unwrap()).unwrap();
        let wrong = MemError::LengthMismatch { range: 8, buffer: 7 };
        let odd = t.copy(more.range(0, 8).unwrap(), me.mr.range(0, 7).unwrap());
        assert_eq!(odd, Err(wrong));
        let beyond = Range { mr: more.id, offset: 4090, len: 8 };
        let refused = t.copy(beyond, me.mr.range(0, 8).unwrap());
        assert_eq!(refused, Err(MemError::OutOfRange { offset: 4090, len: 8, region: 4096 }));
    });
}

/// Which NaN a sum yields is the processor's affair; ours is the same everywhere.
#[test]
fn a_sum_that_is_not_a_number_has_the_same_bits_everywhere() {
    let mut pair = Pair::rc();
    pair.on(0, |t, me| {
        let odd = f32::from_bits(0xFFC1_2345);
        for (a, b) in [(odd, 1.0), (1.0, odd), (f32::INFINITY, f32::NEG_INFINITY)] {
            let (to, from) = (me.mr.range(0, 4).unwrap(), me.mr.range(4, 4).unwrap());
            t.copy_in(to, &a.to_le_bytes()).unwrap();
            t.copy_in(from, &b.to_le_bytes()).unwrap();
            t.reduce(Reduce::SumF32, to, from).unwrap();
            let mut sum = [0; 4];
            t.copy_out(to, &mut sum).unwrap();
            assert_eq!(u32::from_le_bytes(sum), 0x7FC0_0000);
        }
        let odd = f64::from_bits(0xFFF8_0000_0000_0001);
        let (to, from) = (me.mr.range(0, 8).unwrap(), me.mr.range(8, 8).unwrap());
        t.copy_in(to, &odd.to_le_bytes()).unwrap();
        t.copy_in(from, &1.0_f64.to_le_bytes()).unwrap();
        t.reduce(Reduce::SumF64, to, from).unwrap();
        assert_eq!(t.load_u64(to), Ok(0x7FF8_0000_0000_0000));
    });
}

#[test]
fn a_virtual_region_cannot_be_read() {
    let mut pair = Pair::rc();
    pair.on(0, |t, me| {
        let asked = t.alloc_mr(me.pd, 4096, HOST, AccessFlags::LOCAL_WRITE, Contents::Virtual);
        let mr = match asked {
            // Memory of hardware has bytes.
            Err(MemError::Unsupported(_)) if !super::backend::IS_MODEL => return,
            asked => asked.unwrap(),
        };
        assert_eq!(t.copy_out(mr.range(0, 8).unwrap(), &mut [0; 8]), Err(MemError::Virtual));
        assert_eq!(t.load_u64(mr.range(0, 8).unwrap()), Err(MemError::Virtual));
    });
}
