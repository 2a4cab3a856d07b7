//! The responder alone: what it sends, what a rejection undoes.

use doorbell_core::units::{Span, Time};
use doorbell_core::verbs::{Msn, NakCode, Opcode, Psn};

use super::super::*;
use super::responder::{ACK, INVALID, accepted, aeth, aeths, legal, nak, rc, rc_with, read, send};
use super::{NOW, request, respond_all};

// ---- ACKs ----------------------------------------------------------------------------------

#[test]
fn no_ack_req_no_ack() {
    let mut responder = rc();
    responder.on_packet(NOW, &PacketDesc { ack_req: false, ..send(0) }, true);
    assert!(!responder.peek_transmit(NOW));
    responder.on_packet(NOW, &send(1), true);
    assert_eq!(aeths(&mut responder), [(1, 2, ACK)]);
}

#[test]
fn an_unsent_ack_gives_way_to_a_newer_one() {
    let mut responder = rc();
    for psn in 0..3 {
        responder.on_packet(NOW, &send(psn), true);
    }
    assert_eq!(aeths(&mut responder), [(2, 3, ACK)]);
    let mut responder = rc_with(|cfg| cfg.ack = AckPolicy::EachRequest);
    for psn in 0..3 {
        responder.on_packet(NOW, &send(psn), true);
    }
    // Each tells how many messages are complete when it leaves.
    assert_eq!(aeths(&mut responder), [(0, 3, ACK), (1, 3, ACK), (2, 3, ACK)]);
}

#[test]
fn an_ack_waits_for_company_no_longer_than_its_delay() {
    let delay = Span::from_us(3);
    let mut responder = rc_with(|cfg| cfg.ack = AckPolicy::Coalesce { every: 3, delay });
    let at = |us| Time::ZERO + Span::from_us(us);
    responder.on_packet(at(1), &send(0), true);
    responder.on_packet(at(2), &send(1), true);
    assert_eq!(responder.poll_transmit(at(3)), None);
    assert_eq!(responder.next_deadline(), Some(at(4)), "counted from the first request");
    assert_eq!(aeth(&responder.poll_transmit(at(4)).unwrap()), (1, 2, ACK));
    assert_eq!(responder.next_deadline(), None);
    for psn in 2..5 {
        assert_eq!(responder.poll_transmit(at(5)), None);
        responder.on_packet(at(5), &send(psn), true);
    }
    assert_eq!(aeth(&responder.poll_transmit(at(5)).unwrap()), (4, 5, ACK));
    // A NAK does not wait, and releases the ACK before it.
    responder.on_packet(at(6), &send(5), true);
    responder.on_packet(at(6), &send(7), true);
    assert_eq!(aeth(&responder.poll_transmit(at(6)).unwrap()), (5, 6, ACK));
    let sequence = nak(NakCode::PsnSequenceError);
    assert_eq!(aeth(&responder.poll_transmit(at(6)).unwrap()), (6, 6, sequence));
}

#[test]
fn an_ack_that_waits_holds_back_nothing_before_it() {
    let delay = Span::from_us(3);
    let coalesce = AckPolicy::Coalesce { every: 2, delay };
    let due = Some(Time::ZERO + delay);
    // A NAK, then an ACK: the gap was closed before the NAK could leave.
    let mut responder = rc_with(|cfg| cfg.ack = coalesce);
    responder.on_packet(NOW, &send(1), true);
    responder.on_packet(NOW, &send(0), true);
    let sequence = nak(NakCode::PsnSequenceError);
    assert_eq!(aeths(&mut responder), [(0, 1, sequence)]);
    assert_eq!(responder.next_deadline(), due);
    // An ATOMIC without result, then an ACK: time alone changes nothing.
    let mut responder = rc_with(|cfg| cfg.ack = coalesce);
    responder.on_packet(NOW, &legal(Opcode::RcFetchAdd, 0), true);
    responder.on_packet(NOW, &send(1), true);
    assert_eq!(responder.next_deadline(), None);
    responder.atomic_result(0, 1);
    assert_eq!(aeths(&mut responder).len(), 1);
    assert_eq!(responder.next_deadline(), due);
}

#[test]
fn a_read_response_stands_for_the_ack_before_it() {
    for (ack, expected) in
        [(AckPolicy::IMMEDIATE, vec![(1, 2)]), (AckPolicy::EachRequest, vec![(0, 2), (1, 2)])]
    {
        let mut responder = rc_with(|cfg| cfg.ack = ack);
        responder.on_packet(NOW, &send(0), true);
        responder.on_packet(NOW, &read(1, 8), true);
        let seen: Vec<_> = aeths(&mut responder).iter().map(|a| (a.0, a.1)).collect();
        assert_eq!(seen, expected);
    }
}

#[test]
fn an_ack_never_overtakes_a_read_or_an_atomic() {
    let mut responder = rc();
    let Accept::Atomic { job, .. } = responder.on_packet(NOW, &legal(Opcode::RcFetchAdd, 0), true)
    else {
        panic!("an ATOMIC");
    };
    responder.on_packet(NOW, &read(1, 700), true);
    responder.on_packet(NOW, &send(4), true);
    assert_eq!(responder.poll_transmit(NOW), None, "all wait for the ATOMIC");
    assert_eq!(responder.next_deadline(), None);
    responder.atomic_result(job, 77);
    let responses = respond_all(&mut responder);
    let seen: Vec<_> = responses.iter().map(|p| (p.opcode, p.psn.value(), p.len)).collect();
    let expected = [
        (Opcode::RcAtomicAcknowledge, 0, 0),
        (Opcode::RcRdmaReadResponseFirst, 1, 256),
        (Opcode::RcRdmaReadResponseMiddle, 2, 256),
        (Opcode::RcRdmaReadResponseLast, 3, 188),
        (Opcode::RcAcknowledge, 4, 0),
    ];
    assert_eq!(seen, expected);
    let orig = Ext::AtomicAck { syndrome: ACK, msn: Msn::new(3), orig: 77 };
    assert_eq!(responses[0].ext, orig);
    assert_eq!(responses[2].ext, Ext::None, "a middle response has no AETH");
    assert_eq!(responses[3].offset, 512);
}

// ---- rejection and failure -----------------------------------------------------------------

#[test]
fn a_rejected_packet_is_undone_and_answered_by_a_nak() {
    let reasons = [BadRequest::ShortReceive, BadRequest::OutOfRange, BadRequest::LocalMemory];
    let rejected = [
        send(3),
        PacketDesc { ack_req: false, ..send(3) },
        legal(Opcode::RcRdmaWriteFirst, 3),
        read(3, 700),
        legal(Opcode::RcCompareSwap, 3),
    ];
    for ack in [AckPolicy::IMMEDIATE, AckPolicy::EachRequest] {
        for why in reasons {
            for packet in rejected {
                let mut responder = rc_with(|cfg| cfg.ack = ack);
                responder.on_packet(NOW, &read(0, 300), true);
                responder.on_packet(NOW, &send(2), true);
                assert!(accepted(responder.on_packet(NOW, &packet, true)));
                responder.reject(why);
                assert_eq!(responder.expected_psn(), Psn::new(3));
                assert!(responder.failed());
                let verdict = responder.on_packet(NOW, &send(3), true);
                assert_eq!(verdict, Accept::Drop(DropReason::QpState));
                let replies = respond_all(&mut responder);
                // Responses of earlier requests leave first; then the NAK, nothing behind it.
                assert_eq!(replies[0].opcode, Opcode::RcRdmaReadResponseFirst);
                assert_eq!(replies[1].opcode, Opcode::RcRdmaReadResponseLast);
                let (last, before) = replies[2..].split_last().unwrap();
                assert_eq!(aeth(last), (3, 2, nak(why.code())), "{packet:?}");
                assert!(before.iter().all(|p| aeth(p) == (2, 2, ACK)));
            }
        }
    }
}

#[test]
fn a_rejected_read_is_not_remembered() {
    let mut responder = rc();
    let Accept::Read { job, .. } = responder.on_packet(NOW, &read(0, 8), true) else {
        panic!("a READ");
    };
    assert!(responder.read_job(job).is_some());
    responder.reject(BadRequest::UnknownKey);
    assert_eq!(responder.read_job(job), None);
}

#[test]
fn a_failed_responder_answers_nothing() {
    let mut responder = rc();
    responder.on_packet(NOW, &legal(Opcode::RcFetchAdd, 0), true);
    responder.on_packet(NOW, &send(1), true);
    responder.fail();
    responder.atomic_result(0, 1);
    assert!(!responder.peek_transmit(NOW));
    let verdict = responder.on_packet(NOW, &send(2), true);
    assert_eq!(verdict, Accept::Drop(DropReason::QpState));
}

#[test]
fn nothing_follows_a_fatal_nak() {
    let mut responder = rc();
    responder.on_packet(NOW, &send(0), true);
    assert_eq!(responder.on_packet(NOW, &legal(Opcode::RcSendLast, 1), true), INVALID);
    let verdict = responder.on_packet(NOW, &send(1), true);
    assert_eq!(verdict, Accept::Drop(DropReason::QpState));
    let expected = [(0, 1, ACK), (1, 1, nak(NakCode::InvalidRequest))];
    assert_eq!(aeths(&mut responder), expected);
}

#[test]
fn a_read_is_remembered_after_its_last_response() {
    let mut responder = rc();
    let Accept::Read { job, va, rkey, len } = responder.on_packet(NOW, &read(0, 8), true) else {
        panic!("a READ");
    };
    respond_all(&mut responder);
    assert_eq!(responder.read_job(job), Some(ReadJob { va, rkey, len }));
    assert_eq!(responder.read_job(job + 1), None);
}

/// Two messages were completed since: their number is in the answers to the duplicates.
#[test]
fn answers_to_duplicates_have_the_present_msn() {
    let mut responder = rc();
    responder.on_packet(NOW, &read(0, 8), true);
    let atomic = request(Opcode::RcFetchAdd, Psn::new(1), 0, 8);
    let Accept::Atomic { job, .. } = responder.on_packet(NOW, &atomic, true) else {
        panic!("an ATOMIC");
    };
    responder.atomic_result(job, 77);
    assert_eq!(aeths(&mut responder), [(0, 2, ACK), (1, 2, ACK)]);
    for psn in 2..4 {
        responder.on_packet(NOW, &send(psn), true);
    }
    assert_eq!(aeths(&mut responder), [(3, 4, ACK)]);
    responder.on_packet(NOW, &read(0, 8), true);
    responder.on_packet(NOW, &atomic, true);
    assert_eq!(aeths(&mut responder), [(0, 4, ACK), (1, 4, ACK)]);
}

/// A repeated answer leaves before the first answer to a READ behind it, and tells of that READ.
#[test]
fn no_msn_goes_back_behind_a_repeated_answer() {
    let mut responder = rc();
    responder.on_packet(NOW, &read(0, 8), true);
    assert_eq!(aeths(&mut responder), [(0, 1, ACK)]);
    responder.on_packet(NOW, &read(1, 8), true);
    responder.on_packet(NOW, &send(2), true);
    responder.on_packet(NOW, &read(0, 8), true);
    assert_eq!(aeths(&mut responder), [(0, 3, ACK), (1, 3, ACK), (2, 3, ACK)]);
}

#[test]
fn an_idle_responder_is_small() {
    assert!(size_of::<Responder>() <= 544, "{}", size_of::<Responder>());
}

#[test]
#[should_panic(expected = "ACKs coalesce at least 1")]
fn coalescing_of_nothing_is_refused() {
    rc_with(|cfg| cfg.ack = AckPolicy::Coalesce { every: 0, delay: Span::ZERO });
}
