//! Initiators of one host that share a QP.

use doorbell_core::transport::*;
use doorbell_core::verbs::SendFlags;

use crate::on_sim::conformance::pair::{Side, Spec, attributes, drain, send};
use doorbell_tests::lab::sim::Lab;

/// Ranks 0 and 1 on host 0 share a QP that is connected to rank 2 on host 1.
fn sharers() -> (Lab, [QpId; 2], Side, Remote) {
    let mut lab = Lab::on_hosts(&[0, 0, 1]);
    let spec = Spec {
        size: QpSize { max_send_wr: 512, ..Spec::default().size },
        cq_depth: 1024,
        ..Spec::default()
    };
    let owner = lab.call(0, move |t| Side::open(t, &spec));
    let peer = lab.call(2, move |t| Side::open(t, &spec));
    for (rank, me, other) in [(2, peer, owner), (0, owner, peer)] {
        lab.call(rank, move |t| {
            for (attr, mask) in attributes(&spec, &me.endpoint, &other.endpoint) {
                t.modify_qp(me.qp, &attr, mask).unwrap();
            }
        });
        lab.settle();
    }
    lab.call(0, move |t| t.share_qp(owner.qp, 5).unwrap());
    let attached = lab.call(1, |t| t.attach_qp(0, 5).unwrap());
    (lab, [owner.qp, attached], owner, peer.remote(0))
}

/// Each ring is one WRITE under the lock. Doorbells are still on their way when the next lock is
/// asked for: their arrival must not let anybody in.
#[test]
fn a_doorbell_that_arrives_is_no_grant_of_a_lock() {
    let (mut lab, qps, owner, to) = sharers();
    let began = lab.call(0, |t| t.now());
    for (rank, qp) in qps.into_iter().enumerate() {
        lab.start(rank, move |t| {
            for i in 0..100 {
                let wr_id = 1000 * rank as u64 + i;
                t.stage(qp, &send(SendOp::Write(to), wr_id, Data::Inline(&[1; 8]))).unwrap();
                t.ring(qp, Ring::Doorbell).unwrap();
            }
        });
    }
    // The next step of a rank comes when all of these rings are done. They were 200, one at a time.
    let ended = [0, 1].map(|rank| lab.call(rank, |t| t.now())).into_iter().max().unwrap();
    let host = &lab.world().hosts()[0];
    let (cpu, (handed_over, _)) = (&host.config().cpu, host.lock_waits());
    let inside = cpu.post_wqe + cpu.ring + cpu.doorbell;
    let alone = inside * 200 + cpu.lock_transfer * handed_over;
    let took = ended.since(began);
    assert!(took >= alone, "{took} < {alone}: two were inside at once");
    lab.settle();
    let got = lab.call(0, move |t| drain(t, owner.send_cq));
    let mut ids: Vec<u64> = got
        .iter()
        .map(|c| match *c {
            Completion::Send { wr_id, .. } => wr_id,
            other => panic!("{other:?}"),
        })
        .collect();
    let (contended, _) = lab.world().hosts()[0].lock_waits();
    assert!(contended > 50, "they met {contended} times");
    ids.sort_unstable();
    let all: Vec<u64> = (0..100).chain(1000..1100).collect();
    assert_eq!(ids, all, "each ring took place once");
    // The lock is free: both can still ring.
    for (rank, qp) in qps.into_iter().enumerate() {
        lab.call(rank, move |t| {
            t.stage(qp, &send(SendOp::Write(to), 7, Data::Inline(&[1; 8]))).unwrap();
            t.ring(qp, Ring::Doorbell).unwrap();
        });
    }
    lab.settle();
    assert_eq!(lab.call(0, move |t| drain(t, owner.send_cq)).len(), 2);
}

#[test]
fn sharers_see_one_queue_and_one_state() {
    let (mut lab, [mine, theirs], owner, to) = sharers();
    let quiet = SendFlags::empty();
    lab.call(1, move |t| {
        for i in 0..5 {
            let wr = SendWr { flags: quiet, ..send(SendOp::Write(to), i, Data::Inline(&[1])) };
            t.stage(theirs, &wr).unwrap();
        }
    });
    assert_eq!(lab.call(0, move |t| t.sq_free(mine)), 507, "slots are counted over all sharers");
    // A ring announces only what its own handle has staged.
    let rung = lab.call(0, move |t| {
        t.stage(mine, &send(SendOp::Write(to), 9, Data::Inline(&[2]))).unwrap();
        t.ring(mine, Ring::Doorbell).unwrap()
    });
    assert_eq!(rung.wqes, 1);
    lab.settle();
    let got = lab.call(0, move |t| drain(t, owner.send_cq));
    assert!(matches!(got[..], [Completion::Send { wr_id: 9, retired: 1, .. }]), "{got:?}");
    lab.call(0, move |t| {
        let attr = QpAttr { state: doorbell_core::verbs::QpState::Sqd, ..QpAttr::default() };
        t.modify_qp(mine, &attr, doorbell_core::verbs::QpAttrMask::STATE).unwrap();
    });
    let state = lab.call(1, move |t| t.qp_state(theirs).unwrap());
    assert_eq!(state, doorbell_core::verbs::QpState::Sqd);
}

/// What a sharer has staged is not left behind when another one destroys the QP.
#[test]
fn a_ring_on_a_qp_that_a_sharer_destroyed_discards() {
    let (mut lab, [owned, attached], _, to) = sharers();
    let staged =
        lab.call(1, move |t| t.stage(attached, &send(SendOp::Write(to), 1, Data::Inline(&[1; 8]))));
    assert_eq!(staged, Ok(()));
    lab.call(0, move |t| t.destroy_qp(owned).unwrap());
    lab.settle();
    let rung = lab.call(1, move |t| t.ring(attached, Ring::Auto));
    let cause = RingCause::BadHandle;
    assert_eq!(rung, Err(RingError { posted: 0, discarded: 1, cause }));
    assert_eq!(lab.world().hosts()[0].unrung(), 0);
}
