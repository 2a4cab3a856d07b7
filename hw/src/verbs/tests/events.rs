//! Asynchronous events, and that a destroy never waits for one that nobody acknowledged.

use super::super::events::MAX_EVENTS;
use super::super::fake::{Call, Element};
use super::*;

const NONE: AsyncEvent =
    AsyncEvent { kind: AsyncEventKind::DeviceFatal, qp: None, cq: None, srq: None };

#[test]
fn every_known_kind_comes_with_the_handle_of_its_object() {
    let known = (0..64).filter_map(|code| AsyncEventKind::try_from(code).ok());
    for kind in thinned(known, 4) {
        let code = kind.value().into();
        let mut bed = Bed::of(Spec { srq: Some(4), ..Spec::default() });
        let qpn = bed.qpn();
        let (element, want) = match kind.object() {
            AsyncObject::Qp => (Element::Qp(qpn), AsyncEvent { qp: Some(bed.qp), ..NONE }),
            AsyncObject::Cq => (Element::RecvCq(qpn), AsyncEvent { cq: Some(bed.recv_cq), ..NONE }),
            AsyncObject::Srq => (Element::Srq(qpn), AsyncEvent { srq: bed.srq, ..NONE }),
            AsyncObject::Port | AsyncObject::Device | AsyncObject::Wq => (Element::Port(1), NONE),
        };
        bed.fake.raise(code, element);
        assert_eq!(bed.events(), [AsyncEvent { kind, ..want }], "{kind:?}");
        assert_eq!(bed.t.next_event(), None);
    }
}

#[test]
fn kinds_that_nobody_knows_are_passed_over_and_hide_nothing() {
    let mut bed = Bed::new(Posting::Classic);
    let qpn = bed.qpn();
    bed.fake.raise(9999, Element::Qp(qpn));
    bed.fake.raise(u32::MAX, Element::Port(1));
    bed.fake.raise(AsyncEventKind::CommEst.value().into(), Element::Qp(qpn));
    bed.fake.raise(10_000, Element::SendCq(qpn));
    let events = bed.events();
    assert_eq!(events, [AsyncEvent { kind: AsyncEventKind::CommEst, qp: Some(bed.qp), ..NONE }]);
}

#[test]
#[cfg_attr(miri, ignore = "a thousand events and one")]
fn events_that_nobody_takes_are_bounded() {
    let mut bed = Bed::new(Posting::Classic);
    bed.fake.raise(AsyncEventKind::SqDrained.value().into(), Element::Qp(bed.qpn()));
    for _ in 0..MAX_EVENTS {
        bed.fake.raise(AsyncEventKind::CommEst.value().into(), Element::Qp(bed.qpn()));
    }
    let events = bed.events();
    // Each call takes what is there, so the first one has lost the oldest.
    assert_eq!(events.len(), MAX_EVENTS);
    assert!(events.iter().all(|e| e.kind == AsyncEventKind::CommEst));
}

#[test]
fn fatal_events_end_the_queue_pair_and_others_do_not() {
    use AsyncEventKind::*;
    for (kind, fatal) in [
        (QpFatal, true),
        (QpReqErr, true),
        (QpAccessErr, true),
        (CommEst, false),
        (SqDrained, false),
        (QpLastWqeReached, false),
    ] {
        for posting in BOTH {
            let mut bed = Bed::new(posting);
            bed.stage(0..2);
            if fatal {
                bed.fake.break_qp(bed.qpn());
            }
            bed.fake.raise(kind.value().into(), Element::Qp(bed.qpn()));
            assert_eq!(bed.events().len(), 1);
            let state = if fatal { QpState::Err } else { QpState::Rts };
            assert_eq!(bed.t.qp_state(bed.qp), Ok(state), "{kind:?}");
            assert_eq!(bed.t.unrung(), [(bed.qp, 2)], "what is staged stays so");
            assert_eq!(bed.ring().map(|r| r.wqes), Ok(2));
        }
    }
}

#[test]
fn a_lost_completion_queue_asks_for_the_state_of_its_users() {
    let mut bed = Bed::new(Posting::Classic);
    bed.fake.break_qp(bed.qpn());
    bed.fake.raise(AsyncEventKind::CqErr.value().into(), Element::RecvCq(bed.qpn()));
    assert_eq!(bed.events().len(), 1);
    assert_eq!(bed.t.qp_state(bed.qp), Ok(QpState::Err));
    let mut out = Completions::with_capacity(1);
    assert_eq!(bed.t.poll_cq(bed.recv_cq, &mut out), Err(PollError::CqLost));
    assert_eq!(bed.t.poll_cq(bed.cq, &mut out), Ok(()));
}

#[test]
fn events_of_other_contexts_stay_there() {
    let mut bed = Bed::new(Posting::Classic);
    let other = Bed::on(bed.fake.clone(), Spec::default());
    bed.fake.raise(AsyncEventKind::QpFatal.value().into(), Element::Qp(other.qpn()));
    assert_eq!(bed.events(), []);
    let Bed { mut t, qp, _clean: mut clean, .. } = other;
    // Only one of the two may look whether nothing is left.
    clean.0 = None;
    assert!(matches!(t.next_event(), Some(AsyncEvent { qp: Some(of), .. }) if of == qp));
    drop(t);
}

#[test]
fn nothing_waits_for_an_acknowledgement() {
    let mut bed = Bed::of(Spec { srq: Some(4), ..Spec::default() });
    let qpn = bed.qpn();
    for (kind, element) in [
        (AsyncEventKind::CommEst, Element::Qp(qpn)),
        (AsyncEventKind::CqErr, Element::SendCq(qpn)),
        (AsyncEventKind::SrqErr, Element::Srq(qpn)),
    ] {
        bed.fake.raise(kind.value().into(), element);
        bed.fake.raise(kind.value().into(), element);
    }
    // One was taken and acknowledged, the others are still there.
    assert!(bed.t.next_event().is_some());
    bed.t.destroy_qp(bed.qp).unwrap();
    bed.t.destroy_cq(bed.cq).unwrap();
    bed.t.destroy_srq(bed.srq.unwrap()).unwrap();
    assert_eq!(bed.fake.live().qps + bed.fake.live().srqs, 0);
    assert_eq!(bed.fake.live().cqs, 1);
    // What was taken before its object went is still told.
    assert_eq!(bed.events().len(), 5);
}

#[test]
fn armed_queues_with_events_that_nobody_took_are_destroyed() {
    let mut bed = Bed::new(Posting::Classic);
    bed.post(0..2);
    // One way and the other, and a queue that does not exist.
    let on = WaitSet::cq(bed.cq).or(WaitSet::solicited(bed.recv_cq));
    bed.t.arm(on.or(WaitSet::cq_index(47).unwrap())).unwrap();
    bed.fake.complete(bed.qpn(), 2);
    bed.t.destroy_qp(bed.qp).unwrap();
    bed.t.destroy_cq(bed.cq).unwrap();
    bed.t.destroy_cq(bed.recv_cq).unwrap();
}

#[test]
fn a_handle_with_everything_pending_is_dropped() {
    for posting in BOTH {
        let mut bed = Bed::of(Spec { posting, srq: Some(4), ..Spec::default() });
        bed.recv(1, 0, 8).unwrap();
        bed.post(0..2);
        bed.t.arm(WaitSet::cq(bed.cq)).unwrap();
        bed.fake.complete(bed.qpn(), 1);
        bed.fake.raise(AsyncEventKind::CommEst.value().into(), Element::Qp(bed.qpn()));
        bed.fake.raise(AsyncEventKind::PortErr.value().into(), Element::Port(1));
        bed.stage(2..4);
        bed.t.create_ah(bed.pd, Address::default()).unwrap();
        bed.t.watch(bed.range(0, 8)).unwrap();
    }
}

#[test]
fn arming_that_the_provider_refuses_is_told() {
    let mut bed = Bed::new(Posting::Classic);
    bed.fake.fail_call(Call::ReqNotify, 1, libc::EIO);
    let both = WaitSet::cq(bed.cq).or(WaitSet::cq(bed.recv_cq));
    let error = bed.t.arm(both).unwrap_err();
    assert_eq!(error.0, libc::EIO);
}
