//! Completion queues, shared receive queues and invalidation (5.1, 5.3, 5.4).

use doorbell_core::transport::{Completion, Control, Remote, SendOp};
use doorbell_core::verbs::*;
use doorbell_sim::rc::BadInvalidate;

use super::{Setup, burst, counted, first_qp, good};
use crate::on_sim::conformance::pair::{HOST, Pair, Spec, errors};

/// A pair whose rank 1 has a receive and a second region; the receive is in the first one.
fn ready(rule: BadInvalidate) -> Pair {
    let mut setup = Setup::new(Spec::default());
    setup.host.rc.rules.bad_invalidate = rule;
    let mut pair = setup.connect();
    pair.recv(1, 5, 0, 64);
    pair
}

#[test]
fn a_key_that_cannot_be_invalidated_is_an_error_or_a_plain_send() {
    for foreign in [false, true] {
        for rule in [BadInvalidate::Error, BadInvalidate::PlainSend] {
            let mut pair = ready(rule);
            let key = match foreign {
                false => Rkey(0xBAD),
                true => pair.on(1, |t, _| {
                    let pd = t.create_pd().unwrap();
                    let rights = Spec::default().rights;
                    let contents = doorbell_core::transport::Contents::Data;
                    t.alloc_mr(pd, 64, HOST, rights, contents).unwrap().rkey
                }),
            };
            burst(&mut pair, SendOp::SendInv(key), 1, 8);
            let got = pair.received(1);
            if rule == BadInvalidate::PlainSend {
                assert!(
                    matches!(got[..], [Completion::Recv { invalidated: None, len: 8, .. }]),
                    "{got:?}"
                );
                assert_eq!(good(&pair.sent(0)), [0]);
                continue;
            }
            assert_eq!(errors(&got), [(5, WcStatus::RemInvReqErr)]);
            assert_eq!(errors(&pair.sent(0)), [(0, WcStatus::RemInvReqErr)]);
            assert_eq!(counted(&pair, 0).req_remote_invalid_request, 1);
        }
    }
}

#[test]
fn a_lost_completion_queue_takes_its_qp_along_and_its_owner_hears_of_both() {
    let mut pair = Setup::new(Spec { cq_depth: 4, ..Spec::default() }).connect();
    let to: Remote = pair.sides[1].remote(0);
    burst(&mut pair, SendOp::Write(to), 5, 8);
    pair.lab.settle();
    let kinds: Vec<_> = pair.events(0).iter().map(|e| e.kind).collect();
    assert_eq!(kinds, [AsyncEventKind::CqErr, AsyncEventKind::QpFatal]);
    assert_eq!(first_qp(&pair, 0).state, QpState::Err);
    assert_eq!(pair.events(0), [], "once");
}

#[test]
fn a_marker_posted_in_err_is_flushed_last() {
    let mut pair = Setup::new(Spec::default()).connect();
    let to = pair.sides[1].remote(0);
    burst(&mut pair, SendOp::Write(to), 12, 4096);
    pair.on(0, |t, me| {
        use doorbell_core::transport::QpAttr;
        let attr = QpAttr { state: QpState::Err, ..QpAttr::default() };
        t.modify_qp(me.qp, &attr, QpAttrMask::STATE).unwrap();
    });
    pair.post(0, SendOp::Send, 99, pair.sides[0].sge(0, 8));
    let sent = pair.sent(0);
    assert_eq!(sent.len(), 13);
    let last = errors(&sent[12..]);
    assert_eq!(last, [(99, WcStatus::WrFlushErr)], "nothing follows it");
    assert_eq!(pair.sent(0), []);
}
