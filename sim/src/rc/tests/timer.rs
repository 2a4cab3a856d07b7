//! The ack timer's rule (`protocol.md` §2.5): it runs while a packet that needs a response is out,
//! from the moment at which that packet has left the port.

use doorbell_core::units::{Ratio, Span, Time};
use doorbell_core::verbs::{
    AckTimeout, NakCode, Opcode, RetryCnt, RnrRetry, RnrTimer, SendFlags, Syndrome, WrOpcode,
};

use super::super::*;
use super::requester::{ACK, ack, nak, rc_with, read_response};
use super::{NOW, job};

/// T of timeout 1.
const T: Span = Span::from_ps(8_192_000);

fn us(n: u64) -> Time {
    NOW + Span::from_us(n)
}

fn timed() -> Requester {
    rc_with(|cfg| cfg.timeout = AckTimeout::new(1).unwrap())
}

fn poll(requester: &mut Requester) -> Vec<PacketDesc> {
    std::iter::from_fn(|| requester.poll_transmit()).collect()
}

#[test]
fn it_starts_when_the_last_bit_has_left_and_not_when_the_packet_is_polled() {
    let mut requester = timed();
    requester.push(job(0, WrOpcode::Send, 1));
    let packets = poll(&mut requester);
    assert_eq!(requester.next_deadline(), None, "it may wait in the NIC for any time");
    requester.on_departure(&packets[0], us(100));
    assert_eq!(requester.next_deadline(), Some(us(100) + T));
}

/// A peer that never answers: every expiry but the last resends, and all of them are the timer's.
#[test]
fn expiries_of_an_adaptive_timer_have_counters_of_their_own() {
    let adaptive = TimeoutMode::Adaptive { first: Span::from_us(5), most: Span::from_us(40) };
    for (mode, counted) in [(adaptive, 1), (TimeoutMode::T, 0)] {
        for retries in [0, 3] {
            let mut requester = rc_with(|cfg| {
                cfg.timeout = AckTimeout::new(1).unwrap();
                cfg.timeout_mode = mode.clone();
                cfg.retry_cnt = RetryCnt::new(retries).unwrap();
            });
            requester.push(job(0, WrOpcode::Send, 1));
            for _ in 0..=retries {
                let now = requester.next_deadline().unwrap_or(NOW);
                for packet in poll(&mut requester) {
                    requester.on_departure(&packet, now);
                }
                let due = requester.next_deadline().expect("it waits for an answer");
                requester.on_timer(due);
            }
            let (c, n) = (requester.counters(), u64::from(retries));
            assert_eq!((c.local_ack_timeout_err, c.req_transport_retries_exceeded), (n, 1));
            let adaptive = (c.roce_adp_retrans, c.roce_adp_retrans_to);
            assert_eq!(adaptive, (counted * n, counted * (n + 1)), "{mode:?}");
        }
    }
}

/// A device that counts in ticks keeps to them when it waits for the receiver too.
#[test]
fn the_wait_for_a_receiver_is_rounded_up_to_ticks() {
    for (mode, wait) in [
        (TimeoutMode::Ticks { tick: Span::from_ms(4) }, Span::from_ms(4)),
        (TimeoutMode::T, Span::from_us(10)),
    ] {
        let mut requester = rc_with(|cfg| cfg.timeout_mode = mode.clone());
        requester.push(job(0, WrOpcode::Send, 1));
        let packets = poll(&mut requester);
        requester.on_departure(&packets[0], us(1));
        let refused = Syndrome::RnrNak { timer: RnrTimer::new(1).unwrap() };
        requester.on_packet(us(7), &ack(0, refused));
        assert_eq!(requester.next_deadline(), Some(us(7) + wait), "{mode:?}");
    }
}

#[test]
fn packets_that_ask_for_nothing_do_not_start_it() {
    // 16 packets of one message: only the last asks.
    let mut requester = timed();
    requester.push(job(0, WrOpcode::RdmaWrite, 16 * 256));
    let packets = poll(&mut requester);
    for (i, packet) in packets.iter().enumerate() {
        assert_eq!(requester.next_deadline(), None, "packet {i}");
        requester.on_departure(packet, us(i as u64));
    }
    assert_eq!(requester.next_deadline(), Some(us(15) + T));
    // And a READ asks by itself.
    let mut requester = timed();
    requester.push(job(0, WrOpcode::RdmaRead, 600));
    let packets = poll(&mut requester);
    requester.on_departure(&packets[0], us(3));
    assert_eq!(requester.next_deadline(), Some(us(3) + T));
    // All three of its responses are awaited.
    for (i, opcode, len) in
        [(0, Opcode::RcRdmaReadResponseFirst, 256), (1, Opcode::RcRdmaReadResponseMiddle, 256)]
    {
        requester.on_packet(us(4 + u64::from(i)), &read_response(opcode, i, len));
        assert_eq!(requester.next_deadline(), Some(us(4 + u64::from(i)) + T));
    }
    requester.on_packet(us(6), &read_response(Opcode::RcRdmaReadResponseLast, 2, 88));
    assert_eq!(requester.next_deadline(), None);
}

#[test]
fn progress_restarts_it_only_for_what_has_left() {
    let mut requester = timed();
    (0..3).for_each(|wqe| requester.push(job(wqe, WrOpcode::Send, 1)));
    let packets = poll(&mut requester);
    requester.on_departure(&packets[0], us(1));
    requester.on_packet(us(5), &ack(0, ACK));
    assert_eq!(requester.next_deadline(), None, "the other two are inside the NIC");
    requester.on_departure(&packets[1], us(50));
    requester.on_departure(&packets[2], us(51));
    assert_eq!(requester.next_deadline(), Some(us(50) + T), "more packets do not delay it");
    requester.on_packet(us(52), &ack(1, ACK));
    assert_eq!(requester.next_deadline(), Some(us(52) + T));
    // A packet on its way out counts from its end, not from an ACK that comes before that.
    requester.push(job(3, WrOpcode::Send, 1));
    let packets = poll(&mut requester);
    requester.on_departure(&packets[0], us(60));
    requester.on_packet(us(58), &ack(2, ACK));
    assert_eq!(requester.next_deadline(), Some(us(60) + T));
}

#[test]
fn a_retransmission_counts_from_its_own_departure() {
    let mut requester = timed();
    (0..3).for_each(|wqe| requester.push(job(wqe, WrOpcode::Send, 1)));
    let first = poll(&mut requester);
    requester.on_departure(&first[0], us(1));
    requester.on_departure(&first[1], us(2));
    requester.on_packet(us(3), &nak(0, NakCode::PsnSequenceError));
    assert_eq!(requester.next_deadline(), None);
    let again = poll(&mut requester);
    assert_eq!(again.len(), 3);
    // What was polled before the NAK does not count, even if it leaves after it.
    requester.on_departure(&first[2], us(4));
    assert_eq!(requester.next_deadline(), None);
    // Nor does progress by an old copy start the timer for what is still inside.
    requester.on_packet(us(5), &ack(0, ACK));
    assert_eq!(requester.next_deadline(), None);
    requester.on_departure(&again[0], us(90));
    assert_eq!(requester.next_deadline(), None, "it is acknowledged already");
    requester.on_departure(&again[1], us(91));
    assert_eq!(requester.next_deadline(), Some(us(91) + T));
    assert!(matches!(requester.on_timer(us(91) + T), Received::Recover { .. }));
    assert_eq!(requester.next_deadline(), None, "again it is the departure that counts");
}

#[test]
fn a_packet_that_asks_for_nothing_is_not_timed_when_it_is_sent_again() {
    let mut requester = timed();
    requester.push(job(0, WrOpcode::RdmaWrite, 512));
    requester.push(job(1, WrOpcode::RdmaWrite, 256));
    poll(&mut requester).iter().for_each(|p| requester.on_departure(p, us(1)));
    requester.on_packet(us(2), &nak(0, NakCode::PsnSequenceError));
    let again = poll(&mut requester);
    assert!(!again[0].ack_req && again[1].ack_req);
    requester.on_departure(&again[0], us(10));
    assert_eq!(requester.next_deadline(), None);
    requester.on_departure(&again[1], us(20));
    assert_eq!(requester.next_deadline(), Some(us(20) + T));
}

#[test]
fn it_stops_during_an_rnr_wait_and_starts_with_the_retransmission() {
    let mut requester = timed();
    (0..2).for_each(|wqe| requester.push(job(wqe, WrOpcode::Send, 1)));
    let first = poll(&mut requester);
    requester.on_departure(&first[0], us(1));
    let timer = doorbell_core::verbs::RnrTimer::new(12).unwrap();
    requester.on_packet(us(2), &ack(0, Syndrome::RnrNak { timer }));
    let due = us(2) + timer.duration();
    requester.on_departure(&first[1], us(3));
    assert_eq!(requester.next_deadline(), Some(due), "the wait, not the ack timer");
    requester.on_timer(due);
    assert_eq!(requester.next_deadline(), None);
    let again = poll(&mut requester);
    requester.on_departure(&again[0], due + T);
    assert_eq!(requester.next_deadline(), Some(due + T + T));
}

#[test]
fn a_wait_for_receives_is_endless_only_while_the_refused_packet_is_the_oldest() {
    let endless = doorbell_core::verbs::RnrRetry::new(7).unwrap();
    let mut requester = rc_with(|cfg| cfg.rnr_retry = endless);
    (0..2).for_each(|wqe| requester.push(job(wqe, WrOpcode::Send, 1)));
    poll(&mut requester);
    assert!(!requester.waits_without_end());
    let timer = doorbell_core::verbs::RnrTimer::new(12).unwrap();
    let refused = |psn| ack(psn, Syndrome::RnrNak { timer });
    requester.on_packet(us(2), &refused(0));
    assert!(requester.waits_without_end());
    // An earlier copy was executed after all; the next may need no receive.
    requester.on_packet(us(3), &ack(0, ACK));
    assert_eq!(requester.blocked_by(), Some(Stall::Rnr));
    assert!(!requester.waits_without_end());
    requester.on_packet(us(4), &refused(1));
    assert!(requester.waits_without_end());
}

/// The packet is refused `after` its departure, and again.
fn refused_after(
    cfg: impl Fn(&mut RequesterConfig),
    after: Span,
) -> (Requester, impl FnMut(&mut Requester, Span)) {
    let mut requester = rc_with(|c| {
        (c.timeout, c.rnr_retry) = (AckTimeout::new(1).unwrap(), RnrRetry::new(7).unwrap());
        cfg(c);
    });
    let mut now = NOW;
    let mut round = move |requester: &mut Requester, after: Span| {
        for sent in poll(requester) {
            requester.on_departure(&sent, now);
        }
        let timer = RnrTimer::new(1).unwrap();
        requester.on_packet(now + after, &ack(0, Syndrome::RnrNak { timer }));
        now = now + after + timer.duration();
        requester.on_timer(now);
    };
    requester.push(job(0, WrOpcode::Send, 1));
    round(&mut requester, after);
    (requester, round)
}

#[test]
fn refusals_come_in_time_when_they_take_half_of_the_timer_or_are_many() {
    let ps = Span::from_ps;
    let half = ps(T.as_ps() / 2);
    assert!(refused_after(|_| {}, half).0.answers_come_in_time());
    let (mut requester, mut round) = refused_after(|_| {}, half + ps(1));
    for _ in 2..64 {
        assert!(!requester.answers_come_in_time());
        round(&mut requester, half + ps(1));
    }
    assert!(!requester.answers_come_in_time());
    round(&mut requester, half + ps(1));
    assert!(requester.answers_come_in_time(), "64 of them");
    // The shortest interval counts; without a timer none does.
    let four = Ratio::new(4, 1).unwrap();
    let spread = |cfg: &mut RequesterConfig| {
        cfg.timeout_mode = TimeoutMode::Fixed { least: Ratio::ONE, most: four };
    };
    assert!(!refused_after(spread, half + ps(1)).0.answers_come_in_time());
    let none = |cfg: &mut RequesterConfig| cfg.timeout = AckTimeout::new(0).unwrap();
    assert!(refused_after(none, T * 9).0.answers_come_in_time());
}

#[test]
fn an_expiry_takes_the_trust_in_refusals_until_there_are_many_again() {
    let (mut requester, mut round) = refused_after(|_| {}, Span::from_us(1));
    let sent = poll(&mut requester);
    requester.on_departure(&sent[0], us(100));
    requester.on_timer(us(100) + T);
    assert_eq!(requester.standing().expired, 1);
    for _ in 0..64 {
        assert!(!requester.answers_come_in_time());
        round(&mut requester, Span::from_ps(1));
    }
    assert!(requester.answers_come_in_time());
}

#[test]
fn only_more_expiries_than_any_limit_has_are_silence_without_limit() {
    for (seven, endless) in [(RetrySeven::Infinite, true), (RetrySeven::Seven, false)] {
        let mut requester = rc_with(|cfg| {
            cfg.timeout = AckTimeout::new(1).unwrap();
            (cfg.retry_cnt, cfg.rules.retry_seven) = (RetryCnt::new(7).unwrap(), seven);
        });
        requester.push(job(0, WrOpcode::Send, 1));
        for n in 0..8 {
            assert!(!requester.silent_without_limit(), "{n}");
            let now = us(100 * n);
            let sent = poll(&mut requester);
            requester.on_departure(&sent[0], now);
            requester.on_timer(now + T);
        }
        assert_eq!(requester.silent_without_limit(), endless);
        assert_eq!(requester.failed(), !endless);
    }
}

#[test]
fn selective_repeat_keeps_the_timer_of_what_is_not_sent_again() {
    let mut requester = rc_with(|cfg| {
        cfg.timeout = AckTimeout::new(1).unwrap();
        cfg.recovery = Recovery::SelectiveRepeat(SelectiveRepeat { hold: 32, cap: 32 });
    });
    (0..3).for_each(|wqe| requester.push(job(wqe, WrOpcode::Send, 1)));
    poll(&mut requester).iter().for_each(|p| requester.on_departure(p, us(1)));
    let held = |psn: u32, held: u32| {
        let msn = doorbell_core::verbs::Msn::ZERO;
        let held = doorbell_core::verbs::Psn::new(held);
        PacketDesc { ext: Ext::Sack { msn, held }, ..ack(psn, ACK) }
    };
    requester.on_packet(us(2), &held(0, 1));
    let again = poll(&mut requester);
    assert_eq!(again.len(), 1);
    assert_eq!(requester.next_deadline(), None);
    requester.on_departure(&again[0], us(30));
    assert_eq!(requester.next_deadline(), Some(us(30) + T));
    // The last of the three left long ago, is not sent again, and is still awaited.
    requester.on_packet(us(32), &ack(1, ACK));
    assert_eq!(requester.next_deadline(), Some(us(32) + T));
}

#[test]
fn unsignalled_work_that_asks_for_no_ack_is_not_timed() {
    let mut requester = rc_with(|cfg| cfg.ack_req_last = AckReqLast::Signalled);
    requester.push(SendJob { flags: SendFlags::empty(), ..job(0, WrOpcode::Send, 1) });
    poll(&mut requester).iter().for_each(|p| requester.on_departure(p, us(1)));
    assert_eq!(requester.next_deadline(), None);
    assert!(!requester.awaits_response());
}

/// A row of expiries ends with a NAK of either kind and with progress, and begins with the packet
/// that is sent then; what of `retry_cnt` was used before it goes on only until there is progress.
#[test]
fn a_row_of_expiries_counts_from_the_last_nak() {
    let mut requester = timed();
    (0..2).for_each(|wqe| requester.push(job(wqe, WrOpcode::Send, 1)));
    let leave = |requester: &mut Requester, at: u64| {
        poll(requester).iter().for_each(|p| requester.on_departure(p, us(at)));
        let s = requester.standing();
        (s.began, s.resumed, s.spent)
    };
    assert_eq!(leave(&mut requester, 1), (us(1), us(1), 0));
    requester.on_timer(us(1) + T);
    assert_eq!(leave(&mut requester, 10), (us(1), us(1), 0), "an expiry is one of the row");
    requester.on_packet(us(11), &nak(0, NakCode::PsnSequenceError));
    assert_eq!(leave(&mut requester, 12), (us(1), us(12), 2));
    let rnr = Syndrome::RnrNak { timer: RnrTimer::new(1).unwrap() };
    requester.on_packet(us(13), &ack(0, rnr));
    requester.on_timer(us(23));
    assert_eq!(leave(&mut requester, 24), (us(1), us(24), 2), "an RNR NAK uses none of them");
    requester.on_packet(us(25), &ack(0, ACK));
    assert_eq!(leave(&mut requester, 25), (us(25), us(25), 0), "the other one is awaited");
}
