//! Completions of a life that is over, from providers that leave them in the queue.

use super::super::fake::Delivery;
use super::*;

fn leaving() -> Spec {
    let fake = FakeConfig { purges: false, ..FakeConfig::default() };
    Spec { fake, ..Spec::default() }
}

#[test]
fn sends_of_before_a_reset_are_dropped_and_counted() {
    for posting in BOTH {
        for purges in [true, false] {
            let fake = FakeConfig { purges, ..FakeConfig::default() };
            let mut bed = Bed::of(Spec { posting, fake, ..Spec::default() });
            bed.post(0..4);
            bed.fake.complete(bed.qpn(), 4);
            bed.go(QpState::Reset).unwrap();
            bed.connect();
            bed.post(10..12);
            // Of the positions that the old ones had, two are used again.
            assert_eq!((bed.sent(), bed.t.sq_free(bed.qp)), (vec![], 6));
            assert_eq!(bed.t.strange_completions(), if purges { 0 } else { 4 });
            bed.fake.complete(bed.qpn(), 2);
            assert_eq!((bed.sent().len(), bed.t.sq_free(bed.qp)), (2, 8));
        }
    }
}

#[test]
fn sends_of_a_destroyed_queue_pair_are_not_taken_for_those_of_its_successor() {
    for posting in BOTH {
        let mut bed = Bed::of(Spec { posting, ..leaving() });
        bed.post(0..4);
        bed.fake.complete(bed.qpn(), 4);
        let old = bed.qp;
        bed.t.destroy_qp(old).unwrap();
        bed.qp = bed.t.create_qp(&bed.init()).unwrap();
        assert_eq!(bed.qp.index(), old.index(), "the slot of the table serves again");
        bed.connect();
        bed.post(10..12);
        assert_eq!((bed.sent(), bed.t.sq_free(bed.qp)), (vec![], 6));
        assert_eq!(bed.t.strange_completions(), 4);
        bed.fake.complete(bed.qpn(), 2);
        let ids: Vec<_> = bed.sent();
        assert!(matches!(
            ids[..],
            [Completion::Send { wr_id: 10, .. }, Completion::Send { wr_id: 11, .. }]
        ));
    }
}

#[test]
fn receives_of_a_destroyed_queue_pair_are_dropped_and_counted() {
    let mut bed = Bed::of(leaving());
    bed.recv(1, 0, 8).unwrap();
    assert_eq!(bed.fake.receive(bed.qpn(), b"x", None, None), Delivery::Done);
    let old = bed.qp;
    bed.t.destroy_qp(old).unwrap();
    assert_eq!((bed.received(), bed.t.strange_completions()), (vec![], 1));
    bed.qp = bed.t.create_qp(&bed.init()).unwrap();
}

#[test]
fn errors_of_before_a_reset_do_not_end_the_new_life() {
    for posting in BOTH {
        let mut bed = Bed::of(Spec { posting, ..leaving() });
        bed.post(0..2);
        bed.recv(7, 0, 8).unwrap();
        bed.go(QpState::Err).unwrap();
        bed.go(QpState::Reset).unwrap();
        bed.connect();
        // The flushed receive cannot be told from one of the new life, but the state can.
        let got = bed.received();
        assert_eq!(errors(&got, WorkQueue::Recv), [(7, WcStatus::WrFlushErr)]);
        assert_eq!(bed.sent(), []);
        assert_eq!(bed.t.qp_state(bed.qp), Ok(QpState::Rts));
        bed.post(10..11);
        bed.fake.complete(bed.qpn(), 1);
        assert_eq!(bed.sent().len(), 1);
    }
}
