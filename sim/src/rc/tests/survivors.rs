//! What deliberate faults (`mutants.rs`) survived until these tests were written.

use doorbell_core::units::{Span, Time};
use doorbell_core::verbs::{
    AckTimeout, NakCode, QpType, RetryCnt, RnrRetry, RnrTimer, Syndrome, WcStatus, WrOpcode,
};

use super::super::*;
use super::lossy::{Duel, Fate, Fault, Plan, Weather};
use super::requester::{ACK, ack, nak, rc_with};
use super::{NOW, job, requester_config, responder_config, transmit_all};

fn due(requester: &Requester) -> Time {
    requester.next_deadline().expect("a timer runs")
}

#[test]
fn an_rnr_nak_leaves_the_transport_retries_alone() {
    let mut requester = rc_with(|cfg| {
        cfg.rnr_retry = RnrRetry::INFINITE;
        cfg.retry_cnt = RetryCnt::new(1).unwrap();
    });
    requester.push(job(0, WrOpcode::Send, 1));
    transmit_all(&mut requester);
    for _ in 0..3 {
        requester.on_packet(NOW, &ack(0, Syndrome::RnrNak { timer: RnrTimer::new(1).unwrap() }));
        let over = due(&requester);
        assert_eq!(requester.on_timer(over), Received::Nothing);
        transmit_all(&mut requester);
    }
    let cause = RecoverCause::Timeout;
    let (first, psn) = (due(&requester), requester.unacked_psn());
    assert_eq!(requester.on_timer(first), Received::Recover { psn, cause }, "the one retry");
    transmit_all(&mut requester);
    let (second, status) = (due(&requester), WcStatus::RetryExcErr);
    assert_eq!(requester.on_timer(second), Received::Error { wqe: 0, status });
}

#[test]
fn a_response_that_acknowledges_nothing_new_reloads_no_counter() {
    let mut requester = rc_with(|cfg| cfg.retry_cnt = RetryCnt::new(1).unwrap());
    requester.push(job(0, WrOpcode::Send, 1));
    requester.push(job(1, WrOpcode::Send, 1));
    transmit_all(&mut requester);
    requester.on_packet(NOW, &ack(0, ACK));
    let first = due(&requester);
    assert!(matches!(requester.on_timer(first), Received::Recover { .. }));
    transmit_all(&mut requester);
    // Twice what is known: a stale ACK, and a NAK for the packet that is on its way again.
    assert_eq!(requester.on_packet(first, &ack(0, ACK)), Received::Drop(DropReason::Stale));
    let error = Received::Error { wqe: 1, status: WcStatus::RetryExcErr };
    assert_eq!(requester.on_packet(first, &nak(1, NakCode::PsnSequenceError)), error);
}

/// Packets sent, sent again, timeouts, when these of 12 are lost once.
fn losses(lost: &[u32]) -> (u32, u64, u64) {
    let (hold, cap) = (64, 64);
    let plan = Plan {
        requester: RequesterConfig {
            timeout: AckTimeout::new(4).unwrap(),
            recovery: Recovery::SelectiveRepeat(SelectiveRepeat { hold, cap }),
            ..requester_config(QpType::Rc)
        },
        responder: ResponderConfig { hold, ..responder_config(QpType::Rc) },
        jobs: vec![job(0, WrOpcode::RdmaWrite, 12 * 256)],
        faults: lost.iter().map(|&n| Fault::Forth(n, Fate::Drop)).collect(),
        weather: Weather::default(),
        seed: 1,
    };
    let duel = Duel::new(&plan).run();
    assert_eq!(duel.failure(), None);
    let c = duel.requester.counters();
    (duel.sent().0, c.retransmitted_packets, c.local_ack_timeout_err)
}

#[test]
fn selective_repeat_fills_every_hole_of_a_window_in_one_round() {
    assert_eq!(losses(&[3, 7]), (14, 2, 0));
    assert_eq!(losses(&[0, 2, 3, 9]), (16, 4, 0));
    // Nothing arrives behind the last packet: the timer finds it.
    assert_eq!(losses(&[3, 11]), (14, 2, 1));
    // Of a window or an end that is lost whole nobody names a packet: one timeout all the same.
    assert_eq!(losses(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]), (24, 12, 1));
    // The last ACK spoke of five packets; the sixth goes again as well.
    assert_eq!(losses(&[6, 7, 8, 9, 10, 11]), (19, 7, 1));
}

#[test]
fn a_hole_that_is_seen_after_the_first_one_was_resent_is_filled_too() {
    let (mut requester, us) = (
        rc_with(|cfg| {
            cfg.recovery = Recovery::SelectiveRepeat(SelectiveRepeat { hold: 64, cap: 64 });
        }),
        |n| Time::ZERO + Span::from_us(n),
    );
    requester.push(job(0, WrOpcode::RdmaWrite, 12 * 256));
    let packets = transmit_all(&mut requester);
    let sack = |held: usize| {
        let ext = Ext::Sack { msn: doorbell_core::verbs::Msn::ZERO, held: packets[held].psn };
        PacketDesc { ext, ..ack(3, ACK) }
    };
    let again = |requester: &mut Requester| {
        transmit_all(requester).iter().map(|p| p.psn.value()).collect::<Vec<_>>()
    };
    requester.on_packet(us(1), &sack(4));
    assert_eq!(again(&mut requester), [3]);
    // Packet 5 is missing as well: the peer names 6 before 3 has come again.
    requester.on_packet(us(2), &sack(6));
    assert_eq!(again(&mut requester), [5]);
    requester.on_packet(us(3), &sack(7));
    assert_eq!(again(&mut requester), [0; 0], "each once per round");
}
