//! Slots of the send queue: who holds them, and when they come back.

use super::super::fake::Rounding;
use super::*;

#[test]
fn the_staging_area_and_the_queue_are_full_at_their_own_sizes() {
    for posting in BOTH {
        let mut bed = Bed::new(posting);
        assert_eq!(bed.t.qp_caps(bed.qp).unwrap().max_staged, 6);
        bed.stage(0..6);
        assert_eq!(bed.t.stage(bed.qp, &send(6)), Err(StageError::StagedFull));
        assert_eq!(bed.t.sq_free(bed.qp), 2, "a refused request takes no slot");
        bed.ring().unwrap();
        bed.stage(6..8);
        assert_eq!(bed.t.stage(bed.qp, &send(8)), Err(StageError::SqFull));
        bed.ring().unwrap();
        assert_eq!(bed.t.stage(bed.qp, &send(8)), Err(StageError::SqFull), "a ring frees none");
        bed.fake.complete(bed.qpn(), 8);
        assert_eq!(bed.t.stage(bed.qp, &send(8)), Err(StageError::SqFull), "nor a completion");
        assert_eq!(bed.sent().len(), 8);
        assert_eq!(bed.t.sq_free(bed.qp), 8, "but the poll does");
        bed.post(8..14);
    }
}

#[test]
fn one_completion_retires_all_before_it_and_none_behind() {
    for posting in BOTH {
        let mut bed = Bed::new(posting);
        for i in 0..6 {
            let flags = if i == 3 { SendFlags::SIGNALED } else { SendFlags::empty() };
            bed.t.stage(bed.qp, &SendWr { flags, ..send(i) }).unwrap();
        }
        bed.ring().unwrap();
        bed.fake.complete(bed.qpn(), 6);
        let op = WcOpcode::Send;
        let one = Completion::Send { wr_id: 3, qp: bed.qp, op, len: 4, retired: 4 };
        assert_eq!(bed.sent(), [one]);
        assert_eq!(bed.t.sq_free(bed.qp), 6);
        assert_eq!(bed.t.outstanding(), [(bed.qp, 2)], "the unsignalled tail is not known");
        // The next completion brings the tail along.
        bed.post(6..7);
        bed.fake.complete(bed.qpn(), 1);
        assert!(matches!(bed.sent()[..], [Completion::Send { wr_id: 6, retired: 3, .. }]));
        assert_eq!(bed.t.sq_free(bed.qp), 8);
    }
}

#[test]
fn positions_go_round_the_table_many_times() {
    let rounding = Rounding::PowerOfTwo;
    for posting in BOTH {
        for (asked, granted) in [(5, 8), (8, 8)] {
            let fake = FakeConfig { rounding, ..FakeConfig::default() };
            let size = QpSize { max_send_wr: asked, ..Spec::default().size };
            let mut bed = Bed::of(Spec { posting, fake, size, ..Spec::default() });
            assert_eq!(bed.t.qp_caps(bed.qp).unwrap().max_send_wr, granted);
            for round in 0..20 {
                // Never a divisor of the depth, so bursts end everywhere.
                bed.post(3 * round..3 * round + 3);
                bed.fake.complete(bed.qpn(), 3);
                let ids: Vec<_> = bed
                    .sent()
                    .iter()
                    .map(|c| match *c {
                        Completion::Send { wr_id, retired: 1, .. } => wr_id,
                        ref other => panic!("{other:?}"),
                    })
                    .collect();
                assert_eq!(ids, (3 * round..3 * round + 3).collect::<Vec<_>>());
            }
        }
    }
}

#[test]
fn user_ids_have_all_64_bits() {
    let mut bed = Bed::new(Posting::Classic);
    let ids = [u64::MAX, 1 << 63, 0];
    for id in ids {
        bed.t.stage(bed.qp, &send(id)).unwrap();
    }
    bed.ring().unwrap();
    bed.fake.complete(bed.qpn(), 3);
    let same = bed
        .sent()
        .iter()
        .zip(ids)
        .all(|(c, id)| matches!(*c, Completion::Send { wr_id, .. } if wr_id == id));
    assert!(same);
}

#[test]
fn unstage_gives_the_slots_back_and_the_provider_saw_nothing() {
    for posting in BOTH {
        let mut bed = Bed::new(posting);
        bed.stage(0..6);
        assert_eq!((bed.t.unstage(bed.qp), bed.t.unstage(bed.qp)), (6, 0));
        assert_eq!((bed.t.sq_free(bed.qp), bed.ids()), (8, vec![]));
        bed.post(6..9);
        assert_eq!(bed.ids(), [0, 1, 2], "positions have no gap");
        assert!(bed.seen().iter().all(|wr| wr.inline.as_deref() == Some(b"ring")));
    }
}

#[test]
fn a_modify_unstages_first_and_says_how_many() {
    for posting in BOTH {
        let mut bed = Bed::new(posting);
        bed.stage(0..3);
        assert_eq!(bed.go(QpState::Sqd), Ok(3));
        assert_eq!((bed.t.sq_free(bed.qp), bed.t.unrung()), (8, vec![]));
        // A modify that is refused here keeps what is staged.
        bed.stage(3..5);
        let nowhere = QpAttr { state: QpState::Init, ..attr() };
        assert!(bed.t.modify_qp(bed.qp, &nowhere, QpAttrMask::STATE).is_err());
        assert_eq!(bed.t.unrung(), [(bed.qp, 2)]);
        bed.ring().unwrap();
        assert_eq!(bed.ids(), [0, 1]);
    }
}

#[test]
fn a_queue_pair_is_destroyed_with_an_open_burst() {
    for posting in BOTH {
        let mut bed = Bed::new(posting);
        bed.stage(0..3);
        let (other, qp) = (bed.t.create_qp(&bed.init()).unwrap(), bed.qp);
        bed.t.destroy_qp(qp).unwrap();
        // The lock of the burst was given back, or the fake would have noticed.
        assert_eq!(bed.fake.violations(), []);
        bed.qp = other;
        bed.connect();
        bed.stage(0..2);
        // And by the drop of the handle, with the burst of the other open.
    }
}

#[test]
fn a_closed_state_takes_nothing_and_leaves_the_slots_alone() {
    let mut bed = Bed::reset(Spec::default());
    for state in [QpState::Reset, QpState::Init, QpState::Rtr] {
        if state != QpState::Reset {
            bed.go(state).unwrap();
        }
        assert_eq!(bed.t.stage(bed.qp, &send(1)), Err(StageError::BadState { state }));
        assert_eq!(bed.t.sq_free(bed.qp), 8);
    }
    bed.go(QpState::Rts).unwrap();
    bed.post(0..1);
}
