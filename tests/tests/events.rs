//! Asynchronous events that only the simulator raises so far (protocol reference 3.4).

use doorbell_core::transport::{AsyncEvent, Completion, Remote, SendOp};
use doorbell_core::verbs::{AccessFlags, AsyncEventKind, Rkey, WcStatus};

use crate::on_sim::conformance::pair::{Pair, Spec, errors};

fn event(pair: &Pair, kind: AsyncEventKind) -> AsyncEvent {
    AsyncEvent { kind, qp: Some(pair.sides[1].qp), cq: None, srq: None }
}

#[test]
fn a_refused_key_is_an_event_at_the_responder() {
    let mut pair = Pair::rc();
    let bad = Remote { rkey: Rkey(1), ..pair.sides[1].remote(0) };
    pair.post(0, SendOp::Write(bad), 1, pair.sides[0].sge(0, 8));
    assert_eq!(errors(&pair.sent(0)), [(1, WcStatus::RemAccessErr)]);
    assert_eq!(pair.events(1), [event(&pair, AsyncEventKind::QpAccessErr)]);
    assert_eq!(pair.events(0), [], "the requester has its completion");
}

#[test]
fn a_refused_operation_is_an_event_at_the_responder() {
    let access = AccessFlags::REMOTE_READ;
    let mut pair = Pair::connected(Spec { access, ..Spec::default() });
    let to = pair.sides[1].remote(0);
    pair.post(0, SendOp::Write(to), 1, pair.sides[0].sge(0, 8));
    assert_eq!(errors(&pair.sent(0)), [(1, WcStatus::RemInvReqErr)]);
    assert_eq!(pair.events(1), [event(&pair, AsyncEventKind::QpReqErr)]);
}

#[test]
fn what_a_receive_reports_is_no_event() {
    let mut pair = Pair::rc();
    pair.recv(1, 5, 0, 4);
    pair.post(0, SendOp::Send, 1, pair.sides[0].sge(0, 8));
    assert_eq!(errors(&pair.received(1)), [(5, WcStatus::LocLenErr)]);
    assert_eq!(pair.events(1), []);
}

#[test]
fn a_receive_that_is_only_flushed_reports_nothing_and_an_event_does() {
    // A WRITE with immediate to a bad key has taken its receive before the key is looked at, and
    // the flush of it does not say why.
    let mut pair = Pair::rc();
    pair.recv(1, 5, 0, 64);
    let bad = Remote { rkey: Rkey(1), ..pair.sides[1].remote(0) };
    pair.post(0, SendOp::WriteImm(bad, 7), 1, pair.sides[0].sge(0, 8));
    assert_eq!(errors(&pair.sent(0)), [(1, WcStatus::RemAccessErr)]);
    let got = pair.received(1);
    assert!(matches!(got[..], [Completion::Error { wr_id: 5, .. }]), "{got:?}");
    assert_eq!(pair.events(1), [event(&pair, AsyncEventKind::QpAccessErr)]);
}
