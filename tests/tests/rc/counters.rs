//! Counters (8.2): each on the side that sees it, by one rule on both sides.

use doorbell_core::transport::{Data, Ring, SendOp, Transport};
use doorbell_core::verbs::*;
use doorbell_sim::fault::PacketClass;

use super::{Setup, burst, counted, good, nic};
use crate::on_sim::conformance::pair::{Spec, errors, send};

/// Short RNR waits (code 1: 10 us).
fn short_rnr(rnr_retry: u8) -> Setup {
    let mut setup = Setup::new(Spec::default());
    setup.attr.min_rnr_timer = RnrTimer::new(1).unwrap();
    setup.attr.rnr_retry = RnrRetry::new(rnr_retry).unwrap();
    setup
}

#[test]
fn rnr_nak_sent_are_those_received_the_fatal_one_included() {
    for n in 0..=6u8 {
        let mut pair = short_rnr(n).connect();
        burst(&mut pair, SendOp::Send, 1, 8);
        pair.lab.settle();
        assert_eq!(errors(&pair.sent(0)), [(0, WcStatus::RnrRetryExcErr)]);
        let (req, resp) = (counted(&pair, 0), counted(&pair, 1));
        let all = u64::from(n) + 1;
        assert_eq!((resp.rnr_nak_sent, resp.out_of_buffer, req.rnr_nak_received), (all, all, all));
        assert_eq!((req.rnr_nak_retry_err, req.req_rnr_retries_exceeded), (all - 1, 1));
        assert_eq!((req.rnr_nak_sent, resp.rnr_nak_received), (0, 0), "not on the other side");
    }
}

#[test]
fn an_rnr_nak_that_is_lost_makes_the_difference() {
    let mut setup = short_rnr(1).lose(PacketClass::RnrNak, 1);
    setup.attr.timeout = AckTimeout::new(1).unwrap();
    let mut pair = setup.connect();
    burst(&mut pair, SendOp::Send, 1, 8);
    pair.lab.settle();
    assert_eq!(errors(&pair.sent(0)), [(0, WcStatus::RnrRetryExcErr)]);
    let (req, resp) = (counted(&pair, 0), counted(&pair, 1));
    assert_eq!((resp.rnr_nak_sent, req.rnr_nak_received), (3, 2));
    assert_eq!((req.rnr_nak_retry_err, req.local_ack_timeout_err), (1, 1));
}

#[test]
fn sequence_naks_sent_are_those_received_the_fatal_one_included() {
    for (retry_cnt, dies) in [(1, false), (0, true)] {
        let mut setup = Setup::new(Spec::default()).lose(PacketClass::Write, 2);
        setup.attr.retry_cnt = RetryCnt::new(retry_cnt).unwrap();
        let mut pair = setup.connect();
        let to = pair.sides[1].remote(0);
        burst(&mut pair, SendOp::Write(to), 4, 8);
        pair.lab.settle();
        assert_eq!(errors(&pair.sent(0)).is_empty(), !dies);
        let (req, resp) = (counted(&pair, 0), counted(&pair, 1));
        assert_eq!((resp.sequence_naks_sent, req.sequence_naks_received), (1, 1));
        let ends = (u64::from(!dies), u64::from(dies));
        assert_eq!((req.packet_seq_err, req.req_transport_retries_exceeded), ends);
        assert_eq!(resp.out_of_sequence, 2, "both that follow the gap, one NAK");
        assert_eq!(req.retransmitted_packets, if dies { 0 } else { 3 });
    }
}

#[test]
fn duplicates_count_at_the_responder() {
    let mut setup = Setup::new(Spec::default()).lose(PacketClass::Ack, 1);
    setup.attr.timeout = AckTimeout::new(1).unwrap();
    let mut pair = setup.connect();
    let to = pair.sides[1].remote(0);
    burst(&mut pair, SendOp::Write(to), 1, 8);
    assert_eq!(good(&pair.sent(0)), [0]);
    let (req, resp) = (counted(&pair, 0), counted(&pair, 1));
    assert_eq!((resp.duplicate_request, resp.rx_write_requests), (1, 1));
    assert_eq!((req.duplicate_request, req.local_ack_timeout_err), (0, 1));
}

#[test]
fn a_datagram_without_a_receive_is_out_of_buffer() {
    for ty in [QpType::Uc, QpType::Rc] {
        let mut setup = short_rnr(0);
        setup.spec.ty = ty;
        let mut pair = setup.connect();
        burst(&mut pair, SendOp::Send, 1, 8);
        pair.lab.settle();
        assert_eq!(counted(&pair, 1).out_of_buffer, 1, "{ty}");
        assert_eq!(counted(&pair, 1).rnr_nak_sent, u64::from(ty == QpType::Rc), "{ty}");
    }
}

#[test]
fn an_entry_that_found_no_room_was_not_written() {
    let mut pair = Setup::new(Spec { cq_depth: 4, ..Spec::default() }).connect();
    let to = pair.sides[1].remote(0);
    burst(&mut pair, SendOp::Write(to), 6, 8);
    pair.lab.settle();
    assert_eq!((nic(&pair, 0).stats.cqes, nic(&pair, 0).stats.cq_overruns), (4, 1));
}

#[test]
fn a_restart_from_sqe_keeps_the_counters() {
    let mut pair = Setup::new(Spec { ty: QpType::Uc, ..Spec::default() }).connect();
    let bad = doorbell_core::transport::Sge { addr: 1, len: 8, lkey: Lkey(0xBAD) };
    pair.post(0, SendOp::Send, 1, bad);
    assert_eq!(errors(&pair.sent(0)), [(1, WcStatus::LocProtErr)]);
    let before = counted(&pair, 0);
    pair.go(0, QpState::Rts);
    assert_eq!(counted(&pair, 0), before);
    pair.on(0, |t, me| {
        t.stage(me.qp, &send(SendOp::Send, 2, Data::Inline(&[1]))).unwrap();
        t.ring(me.qp, Ring::Auto).unwrap();
    });
    assert_eq!(good(&pair.sent(0)), [2]);
}
