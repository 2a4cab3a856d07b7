//! Rings that the provider does not take as a whole.

use super::super::fake::{BadWr, ErrnoSign};
use super::*;

fn error(posted: u32, discarded: u32, cause: RingCause) -> Result<Rung, RingError> {
    Err(RingError { posted, discarded, cause })
}

#[test]
fn a_prefix_stays_posted_and_the_rest_is_gone() {
    for at in 0..4 {
        let mut bed = Bed::new(Posting::Classic);
        bed.stage(0..4);
        bed.fake.fail_post_send_at(at as usize, libc::ENOMEM, BadWr::Points);
        assert_eq!(bed.ring(), error(at, 4 - at, RingCause::Full));
        assert_eq!(bed.ids(), (0..u64::from(at)).collect::<Vec<_>>());
        assert_eq!(bed.t.sq_free(bed.qp), 8 - at, "the slots of the rest are free");
        assert_eq!(bed.ring(), Ok(Rung { wqes: 0, by: RungBy::Nothing }), "nothing stays staged");
        // The chain is mended, and positions have no gap.
        bed.post(10..14);
        assert_eq!(bed.ids(), (0..u64::from(at) + 4).collect::<Vec<_>>());
        bed.fake.complete(bed.qpn(), 100);
        let ids: Vec<u64> = bed.sent().iter().map(wr_id).collect();
        assert_eq!(ids, (0..u64::from(at)).chain(10..14).collect::<Vec<_>>());
        assert_eq!(bed.t.sq_free(bed.qp), 8);
    }
}

fn wr_id(c: &Completion) -> u64 {
    match *c {
        Completion::Send { wr_id, .. } => wr_id,
        ref other => panic!("{other:?}"),
    }
}

#[test]
fn extended_verbs_take_all_or_nothing() {
    let mut bed = Bed::new(Posting::Extended);
    bed.stage(0..4);
    bed.fake.fail_wr_complete(libc::ENOMEM);
    assert_eq!(bed.ring(), error(0, 4, RingCause::Full));
    assert_eq!((bed.ids(), bed.t.sq_free(bed.qp)), (vec![], 8));
    // The burst is closed: the next one opens again.
    bed.post(4..6);
    assert_eq!(bed.ids(), [0, 1]);
}

#[test]
fn an_errno_has_either_sign() {
    for errno_sign in [ErrnoSign::Positive, ErrnoSign::Negative] {
        for posting in BOTH {
            let fake = FakeConfig { errno_sign, ..FakeConfig::default() };
            let mut bed = Bed::of(Spec { posting, fake, ..Spec::default() });
            bed.stage(0..2);
            match posting {
                Posting::Classic => bed.fake.fail_post_send_at(0, libc::EIO, BadWr::Points),
                Posting::Extended => bed.fake.fail_wr_complete(libc::EIO),
            }
            assert_eq!(bed.ring(), error(0, 2, RingCause::Os(libc::EIO)), "{posting:?}");
        }
    }
}

#[test]
fn minus_one_means_errno() {
    let mut bed = Bed::new(Posting::Classic);
    bed.stage(0..2);
    // The fake returns what it is told; `errno` is left by the call before.
    bed.fake.fail_post_send_at(1, -1, BadWr::Points);
    crate::verbs::sys::set_errno(libc::EFAULT);
    assert_eq!(bed.ring(), error(1, 1, RingCause::Os(libc::EFAULT)));
    // Without an `errno` it can only be EPERM.
    bed.stage(2..3);
    bed.fake.fail_post_send_at(0, -1, BadWr::Points);
    crate::verbs::sys::set_errno(0);
    assert_eq!(bed.ring(), error(0, 1, RingCause::Os(libc::EPERM)));
}

#[test]
fn nobody_can_tell_what_was_posted() {
    for bad in [BadWr::Null, BadWr::Untouched] {
        // Everything was taken, or the first two; the call fails all the same.
        for at in [2, 99] {
            let mut bed = Bed::new(Posting::Classic);
            bed.stage(0..4);
            bed.fake.fail_post_send_at(at, libc::EIO, bad);
            assert_eq!(bed.ring(), error(0, 0, RingCause::Indeterminate), "{bad:?}");
            assert_eq!(bed.t.sq_free(bed.qp), 4, "the slots stay used");
            assert_eq!(bed.t.unrung(), [], "nothing stays staged");
            assert_eq!(bed.ring(), Ok(Rung { wqes: 0, by: RungBy::Nothing }));
            // What was posted may complete; each id is known.
            let taken = at.min(4);
            assert_eq!(bed.fake.complete(bed.qpn(), 9), taken);
            assert_eq!(bed.sent().iter().map(wr_id).collect::<Vec<_>>().len(), taken);
            let free = 4 + taken as u32;
            assert_eq!(bed.t.sq_free(bed.qp), free);
            bed.go(QpState::Err).unwrap();
            assert_eq!(bed.t.sq_free(bed.qp), free, "not even ERR gives them back");
            bed.go(QpState::Reset).unwrap();
            assert_eq!(bed.t.sq_free(bed.qp), 8);
            bed.connect();
            bed.post(10..14);
            bed.fake.complete(bed.qpn(), 4);
            assert_eq!(bed.sent().iter().map(wr_id).collect::<Vec<_>>(), [10, 11, 12, 13]);
        }
    }
}

#[test]
fn a_provider_that_is_fuller_than_it_said() {
    for posting in BOTH {
        let mut bed = Bed::new(posting);
        bed.post(0..6);
        // Slots that only the provider knows of.
        let other = bed.fake.granted(bed.qpn()).max_send_wr - 6;
        assert_eq!(other, 2);
        bed.stage(6..8);
        assert_eq!(bed.t.stage(bed.qp, &send(8)), Err(StageError::SqFull));
        match posting {
            Posting::Classic => bed.fake.fail_post_send_at(1, libc::ENOMEM, BadWr::Points),
            Posting::Extended => bed.fake.fail_wr_complete(libc::ENOMEM),
        }
        let posted = u32::from(posting == Posting::Classic);
        assert_eq!(bed.ring(), error(posted, 2 - posted, RingCause::Full));
        assert_eq!(bed.t.sq_free(bed.qp), 2 - posted);
        bed.fake.complete(bed.qpn(), 8);
        assert_eq!(bed.sent().len() as u32, 6 + posted);
        assert_eq!(bed.t.sq_free(bed.qp), 8);
    }
}

#[test]
fn a_queue_pair_that_the_device_has_moved_on() {
    for posting in BOTH {
        let mut bed = Bed::new(posting);
        bed.stage(0..2);
        // SQD is left for ERR: a post is still taken, and flushed.
        bed.fake.break_qp(bed.qpn());
        assert_eq!(bed.t.qp_state(bed.qp), Ok(QpState::Rts), "nobody has told");
        assert_eq!(bed.ring().map(|r| r.wqes), Ok(2));
        let flushed = [0, 1].map(|id| (id, WcStatus::WrFlushErr));
        assert_eq!(errors(&bed.sent(), WorkQueue::Send), flushed);
        assert_eq!(bed.t.qp_state(bed.qp), Ok(QpState::Err));
        // A provider that refuses instead: the state is asked for.
        bed.stage(2..4);
        match posting {
            Posting::Classic => bed.fake.fail_post_send_at(0, libc::EINVAL, BadWr::Points),
            Posting::Extended => bed.fake.fail_wr_complete(libc::EINVAL),
        }
        assert_eq!(bed.ring(), error(0, 2, RingCause::Os(libc::EINVAL)), "ERR takes posts");
    }
}

#[test]
fn a_refused_ring_learns_the_state() {
    for posting in BOTH {
        let mut bed = Bed::new(posting);
        bed.stage(0..2);
        bed.fake.break_qp(bed.qpn());
        match posting {
            Posting::Classic => bed.fake.fail_post_send_at(0, libc::EINVAL, BadWr::Points),
            Posting::Extended => bed.fake.fail_wr_complete(libc::EINVAL),
        }
        assert_eq!(bed.ring(), error(0, 2, RingCause::Os(libc::EINVAL)));
        assert_eq!(bed.t.qp_state(bed.qp), Ok(QpState::Err));
        assert_eq!(bed.t.sq_free(bed.qp), 8);
    }
}
