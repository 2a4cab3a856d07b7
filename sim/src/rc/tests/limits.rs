//! Both sides of every limit of recovery, and each rule on which implementations differ.

use std::sync::Arc;

use doorbell_core::units::{Span, Time};
use doorbell_core::verbs::{
    AckTimeout, CreditCode, Msn, NakCode, Opcode, Psn, QpType, RetryCnt, RnrRetry, RnrTimer,
    SendFlags, Syndrome, WcStatus, WrOpcode,
};

use super::super::*;
use super::lossy::{Duel, Fate, Fault, PACKET, Plan, Weather};
use super::requester::{ACK, ack, nak, rc_with, read_response};
use super::{
    BASE, NOW, RKEY, job, request, requester_config, respond_all, responder_config, transmit_all,
    transmit_at,
};

fn us(n: u64) -> Time {
    Time::ZERO + Span::from_us(n)
}

fn plan(jobs: Vec<SendJob>, change: impl FnOnce(&mut Plan)) -> Plan {
    let jobs = jobs.into_iter().enumerate();
    let jobs = jobs.map(|(i, j)| SendJob { wqe: i as u32, ..j }).collect();
    let mut plan = Plan {
        requester: requester_config(QpType::Rc),
        responder: responder_config(QpType::Rc),
        jobs,
        faults: Vec::new(),
        weather: Weather::default(),
        seed: 1,
    };
    plan.requester.timeout = AckTimeout::new(4).unwrap();
    change(&mut plan);
    plan
}

fn rnr(psn: u32, code: u8) -> PacketDesc {
    ack(psn, Syndrome::RnrNak { timer: RnrTimer::new(code).unwrap() })
}

fn psns(packets: &[PacketDesc]) -> Vec<u32> {
    packets.iter().map(|p| p.psn.value()).collect()
}

// ---- retry counters ------------------------------------------------------------------------

#[test]
fn retry_cnt_n_survives_n_losses_and_dies_of_one_more_at_the_time_that_the_rule_says() {
    for n in 0..=7u8 {
        for lost in [u32::from(n), u32::from(n) + 1] {
            let plan = plan(vec![job(0, WrOpcode::Send, 8); 2], |plan| {
                plan.requester.retry_cnt = RetryCnt::new(n).unwrap();
                // Both are resent each time: the first goes as packet 0, 2, 4, …
                plan.requester.max_outstanding_packets = 1;
                plan.faults = (0..lost).map(|i| Fault::Forth(i, Fate::Drop)).collect();
            });
            let duel = Duel::new(&plan).run();
            let c = *duel.requester.counters();
            assert_eq!(c.local_ack_timeout_err, n.into());
            assert_eq!(c.req_transport_retries_exceeded, u64::from(lost > n.into()));
            if lost == u32::from(n) {
                assert_eq!(duel.failure(), None, "{n} losses");
                continue;
            }
            assert_eq!(duel.failure(), Some((0, WcStatus::RetryExcErr)));
            assert_eq!(duel.done[1].status, WcStatus::WrFlushErr);
            let r = &plan.requester;
            let cnt = RetryCnt::new(n).unwrap();
            let said = time_to_retry_exc(&r.timeout_mode, r.timeout, cnt, RetrySeven::Seven);
            // Each transmission takes its time at the port before the timer starts.
            let sending = PACKET * (u64::from(n) + 1);
            assert_eq!(Some(Interval::exactly(duel.now.since(NOW) - sending)), said);
        }
    }
}

#[test]
fn rnr_retry_n_survives_n_naks_and_dies_of_one_more_without_a_transport_retry() {
    for n in 0..=7u8 {
        for refused in [u32::from(n), u32::from(n) + 1, 40] {
            let plan = plan(vec![job(0, WrOpcode::Send, 8), job(0, WrOpcode::Send, 8)], |plan| {
                plan.requester.rnr_retry = RnrRetry::new(n).unwrap();
                plan.requester.retry_cnt = RetryCnt::new(0).unwrap();
                plan.responder.min_rnr_timer = RnrTimer::new(1).unwrap();
                plan.faults = (0..refused).map(Fault::NoReceive).collect();
            });
            let duel = Duel::new(&plan).run();
            let fatal = n < 7 && refused > n.into();
            let failure = fatal.then_some((0, WcStatus::RnrRetryExcErr));
            assert_eq!(duel.failure(), failure, "{n}, {refused}");
            let c = duel.requester.counters();
            let survived = if fatal { n.into() } else { refused.into() };
            assert_eq!(c.rnr_nak_retry_err, survived);
            assert_eq!(c.req_rnr_retries_exceeded, u64::from(fatal));
            assert_eq!(c.local_ack_timeout_err + c.packet_seq_err, 0);
            let r = duel.responder.counters();
            assert_eq!(r.out_of_buffer, survived + u64::from(fatal));
            assert_eq!(r.rnr_nak_sent, r.out_of_buffer);
        }
    }
}

#[test]
fn progress_fills_both_counters_again() {
    let mut requester = rc_with(|cfg| {
        cfg.retry_cnt = RetryCnt::new(1).unwrap();
        cfg.rnr_retry = RnrRetry::new(1).unwrap();
    });
    (0..20).for_each(|wqe| requester.push(job(wqe, WrOpcode::Send, 1)));
    transmit_all(&mut requester);
    for psn in 0..9 {
        // Each acknowledges one more, uses the only retry, and is forgiven by the next.
        assert!(matches!(requester.on_packet(NOW, &rnr(2 * psn, 1)), Received::Recover { .. }));
        requester.on_timer(us(1_000_000));
        let told = requester.on_packet(NOW, &nak(2 * psn + 1, NakCode::PsnSequenceError));
        assert!(matches!(told, Received::Recover { .. }), "{told:?}");
        transmit_all(&mut requester);
    }
    let told = requester.on_packet(NOW, &nak(17, NakCode::PsnSequenceError));
    assert_eq!(told, Received::Error { wqe: 17, status: WcStatus::RetryExcErr });
}

#[test]
fn what_a_sequence_nak_does_to_the_counters_is_a_setting() {
    // Row 3: NAKs that acknowledge, and NAKs that do not.
    for (rule, acknowledging, repeated) in [
        (SequenceNak::Progress, 9, 3),
        (SequenceNak::UsesRetry, 3, 3),
        (SequenceNak::Reloads, 9, 9),
    ] {
        for (moves, expected) in [(true, acknowledging), (false, repeated)] {
            let mut requester = rc_with(|cfg| {
                cfg.retry_cnt = RetryCnt::new(3).unwrap();
                cfg.rules.sequence_nak = rule;
            });
            (0..20).for_each(|wqe| requester.push(job(wqe, WrOpcode::Send, 1)));
            transmit_all(&mut requester);
            let survives = |i: &u32| {
                let psn = if moves { i + 1 } else { 5 };
                let told = requester.on_packet(NOW, &nak(psn, NakCode::PsnSequenceError));
                matches!(told, Received::Recover { .. })
            };
            let survived = (0..9).take_while(survives).count();
            // The first one of the second kind acknowledges 0 to 4.
            assert_eq!(survived, expected, "{rule:?} {moves}");
        }
    }
}

#[test]
fn seven_retries_are_seven_or_endless() {
    for (rule, failure) in
        [(RetrySeven::Seven, Some((0, WcStatus::RetryExcErr))), (RetrySeven::Infinite, None)]
    {
        let plan = plan(vec![job(0, WrOpcode::RdmaWrite, 8)], |plan| {
            plan.requester.rules.retry_seven = rule;
            plan.faults = (0..30).map(|i| Fault::Forth(i, Fate::Drop)).collect();
        });
        assert_eq!(Duel::new(&plan).run().failure(), failure);
    }
}

// ---- timers --------------------------------------------------------------------------------

#[test]
fn every_rnr_timer_code_waits_its_time_and_not_less() {
    for timer in RnrTimer::all() {
        let mut requester = rc_with(|_| ());
        requester.push(job(0, WrOpcode::Send, 300));
        assert_eq!(transmit_all(&mut requester).len(), 2);
        let told = requester.on_packet(us(5), &rnr(0, timer.code()));
        let cause = RecoverCause::Rnr(timer);
        assert_eq!(told, Received::Recover { psn: Psn::ZERO, cause });
        let due = us(5) + timer.duration();
        assert_eq!(requester.next_deadline(), Some(due), "no ack timer beside it");
        requester.on_timer(Time::from_ps(due.as_ps() - 1));
        assert_eq!(requester.blocked_by(), Some(Stall::Rnr));
        requester.on_timer(due);
        assert_eq!(psns(&transmit_all(&mut requester)), [0, 1]);
    }
}

#[test]
fn the_ack_timer_runs_while_a_response_is_due_and_starts_anew_with_progress() {
    let t = Span::from_ps(4_096_000 << 4);
    let mut requester = rc_with(|cfg| cfg.timeout = AckTimeout::new(4).unwrap());
    assert_eq!(requester.next_deadline(), None);
    requester.push(job(0, WrOpcode::Send, 1));
    requester.push(job(1, WrOpcode::Send, 1));
    transmit_at(&mut requester, us(1));
    assert_eq!(requester.next_deadline(), Some(us(1) + t));
    transmit_at(&mut requester, us(2));
    assert_eq!(requester.next_deadline(), Some(us(1) + t), "more packets do not delay it");
    requester.on_packet(us(9), &ack(0, ACK));
    assert_eq!(requester.next_deadline(), Some(us(9) + t));
    requester.on_packet(us(10), &ack(1, ACK));
    assert_eq!(requester.next_deadline(), None);
    // A packet that asks for nothing waits for nothing.
    let mut requester = rc_with(|cfg| cfg.ack_req_last = AckReqLast::Signalled);
    requester.push(SendJob { flags: SendFlags::empty(), ..job(0, WrOpcode::Send, 1) });
    assert_eq!(transmit_all(&mut requester).len(), 1);
    assert_eq!(requester.next_deadline(), None);
}

#[derive(Debug)]
struct FiveMicroseconds;

impl AckTimeoutMode for FiveMicroseconds {
    fn interval(&self, _: AckTimeout, expired: u32) -> Option<Interval> {
        Some(Interval::exactly(Span::from_us(5 + u64::from(expired))))
    }
}

#[test]
fn intervals_grow_as_the_mode_says_and_shrink_with_progress() {
    let mode = TimeoutMode::Custom(Arc::new(FiveMicroseconds));
    let mut requester = rc_with(|cfg| cfg.timeout_mode = mode);
    requester.push(job(0, WrOpcode::Send, 1));
    let mut now = NOW;
    for interval in [5, 6, 7] {
        assert!(transmit_at(&mut requester, now).is_some());
        let due = now + Span::from_us(interval);
        assert_eq!(requester.next_deadline(), Some(due));
        now = due;
        let (psn, cause) = (Psn::ZERO, RecoverCause::Timeout);
        assert_eq!(requester.on_timer(now), Received::Recover { psn, cause });
    }
    requester.on_packet(now, &ack(0, ACK));
    requester.push(job(1, WrOpcode::Send, 1));
    assert_eq!(transmit_all(&mut requester).len(), 1);
    assert_eq!(requester.next_deadline(), Some(us(5)));
}

#[test]
fn a_nak_is_reacted_to_after_the_time_that_the_device_takes() {
    let mut requester = rc_with(|cfg| cfg.nak_reaction = Span::from_us(3));
    requester.push(job(0, WrOpcode::Send, 600));
    transmit_all(&mut requester);
    requester.on_packet(us(1), &nak(1, NakCode::PsnSequenceError));
    assert_eq!(requester.blocked_by(), Some(Stall::NakReaction));
    assert_eq!(requester.next_deadline(), Some(us(4)));
    requester.on_timer(us(4));
    assert_eq!(psns(&transmit_all(&mut requester)), [1, 2]);
}

#[test]
fn a_gap_among_read_responses_has_a_reaction_of_its_own() {
    let mut requester = rc_with(|cfg| {
        cfg.nak_reaction = Span::from_us(3);
        cfg.implied_nak_reaction = Span::from_us(83);
    });
    requester.push(job(0, WrOpcode::RdmaRead, 900));
    transmit_all(&mut requester);
    requester.on_packet(us(1), &read_response(Opcode::RcRdmaReadResponseMiddle, 1, 256));
    assert_eq!(requester.blocked_by(), Some(Stall::NakReaction));
    assert_eq!(requester.next_deadline(), Some(us(84)));
    requester.on_timer(us(84));
    assert_eq!(psns(&transmit_all(&mut requester)), [0]);
}

// ---- what goes out again -------------------------------------------------------------------

#[test]
fn a_read_is_asked_for_again_from_any_of_its_packets() {
    for start in [0, 0xFF_FFFE] {
        for got in 0..4u32 {
            let mut requester = rc_with(|cfg| cfg.sq_psn = Psn::new(start));
            requester.push(job(0, WrOpcode::RdmaRead, 900));
            transmit_all(&mut requester);
            let op = |i: u32, from: u32| match (i == from, i == 3) {
                (true, true) => Opcode::RcRdmaReadResponseOnly,
                (true, false) => Opcode::RcRdmaReadResponseFirst,
                (false, true) => Opcode::RcRdmaReadResponseLast,
                (false, false) => Opcode::RcRdmaReadResponseMiddle,
            };
            let len = |i: u32| if i == 3 { 132 } else { 256 };
            for i in 0..got {
                requester.on_packet(NOW, &read_response(op(i, 0), start + i, len(i)));
            }
            requester.on_timer(us(1_000_000));
            let [again] = transmit_all(&mut requester)[..] else { panic!("one request") };
            assert_eq!((again.psn, again.offset), (Psn::new(start + got), got * 256));
            let (va, dma_len) = (BASE + u64::from(got) * 256, 900 - got * 256);
            assert_eq!(again.ext, Ext::Reth { va, rkey: RKEY, dma_len });
            for i in got..4 {
                // A late packet of the first response, or one of the second.
                let from = if i == got + 1 { 0 } else { got };
                let told =
                    requester.on_packet(us(1), &read_response(op(i, from), start + i, len(i)));
                let place = Received::Place { wqe: 0, offset: i * 256, len: len(i), last: i == 3 };
                assert_eq!(told, place, "packet {i} after a restart at {got}");
            }
            assert_eq!(requester.rd_atomic(), 0);
        }
    }
}

#[test]
fn a_first_where_nothing_began_is_a_bad_response() {
    let mut requester = rc_with(|_| ());
    requester.push(job(0, WrOpcode::RdmaRead, 900));
    transmit_all(&mut requester);
    let first = |psn| read_response(Opcode::RcRdmaReadResponseFirst, psn, 256);
    requester.on_packet(NOW, &first(0));
    requester.on_timer(us(1_000_000));
    transmit_all(&mut requester);
    assert!(matches!(requester.on_packet(NOW, &first(1)), Received::Place { .. }));
    let error = Received::Error { wqe: 0, status: WcStatus::BadRespErr };
    assert_eq!(requester.on_packet(NOW, &first(2)), error);
}

#[test]
fn responses_behind_a_gap_count_once() {
    let mut requester = rc_with(|_| ());
    requester.push(job(0, WrOpcode::RdmaRead, 900));
    requester.push(job(1, WrOpcode::Send, 1));
    transmit_all(&mut requester);
    let middle = |psn| read_response(Opcode::RcRdmaReadResponseMiddle, psn, 256);
    let (psn, cause) = (Psn::ZERO, RecoverCause::ReadGap);
    assert_eq!(requester.on_packet(NOW, &middle(1)), Received::Recover { psn, cause });
    assert_eq!(requester.on_packet(NOW, &middle(2)), Received::Nothing);
    assert_eq!(requester.on_packet(NOW, &ack(4, ACK)), Received::Nothing);
    assert_eq!(psns(&transmit_all(&mut requester)), [0, 4]);
    assert_eq!(requester.counters().implied_nak_seq_err, 1);
}

/// The first NAK shows that the READ is lost, and is that; the others show nothing more.
#[test]
fn naks_beyond_an_unanswered_read_are_counted_as_such() {
    let mut requester = rc_with(|_| ());
    requester.push(job(0, WrOpcode::RdmaRead, 900));
    requester.push(job(1, WrOpcode::Send, 1));
    transmit_all(&mut requester);
    let sequence = Syndrome::Nak { code: NakCode::PsnSequenceError };
    let rnr = Syndrome::RnrNak { timer: RnrTimer::new(1).unwrap() };
    for (i, syndrome) in [sequence, sequence, rnr].into_iter().enumerate() {
        requester.on_packet(NOW, &ack(4, syndrome));
        let c = requester.counters();
        assert_eq!((c.implied_nak_seq_err, c.unused_naks), (1, i as u64 + 1));
    }
    let c = requester.counters();
    assert_eq!((c.sequence_naks_received, c.rnr_nak_received), (2, 1));
    assert_eq!((c.packet_seq_err, c.rnr_nak_retry_err), (0, 0));
    // One for what is outstanding is no such NAK.
    requester.on_packet(NOW, &ack(0, sequence));
    assert_eq!((requester.counters().packet_seq_err, requester.counters().unused_naks), (1, 3));
}

/// Sent packets and retransmissions when packet 3 of 12 is lost.
fn one_loss(recovery: Recovery, hold: u32) -> (u32, u64, u64) {
    let plan = plan(vec![job(0, WrOpcode::RdmaWrite, 12 * 256)], |plan| {
        plan.requester.recovery = recovery;
        plan.responder.hold = hold;
        plan.faults = vec![Fault::Forth(3, Fate::Drop)];
    });
    let duel = Duel::new(&plan).run();
    assert_eq!(duel.failure(), None);
    let c = duel.requester.counters();
    (duel.sent().0, c.retransmitted_packets, c.local_ack_timeout_err)
}

#[derive(Debug)]
struct OneByOne(Option<Psn>);

impl LossRecovery for OneByOne {
    fn on_loss(&mut self, flight: Flight, _: RecoverCause) -> bool {
        self.0 = Some(flight.una);
        true
    }
    fn on_sack(&mut self, _: Flight, _: Psn, _: u32) -> bool {
        false
    }
    fn on_ack(&mut self, _: Flight) {}
    fn next(&self, flight: Flight) -> Option<Psn> {
        self.0.filter(|psn| flight.contains(*psn))
    }
    fn on_sent(&mut self, _: Flight, _: Psn, _: u32) {
        self.0 = None;
    }
}

#[derive(Debug)]
struct OneByOneConfig;

impl RecoveryFactory for OneByOneConfig {
    fn build(&self) -> Box<dyn LossRecovery> {
        Box::new(OneByOne(None))
    }
}

#[test]
fn each_recovery_resends_what_it_promises() {
    assert_eq!(one_loss(Recovery::GoBackN, 0), (21, 9, 0));
    let selective = SelectiveRepeat { hold: 64, cap: 64 };
    assert_eq!(one_loss(Recovery::SelectiveRepeat(selective), 64), (13, 1, 0));
    // A responder that keeps nothing makes it go back.
    assert_eq!(one_loss(Recovery::SelectiveRepeat(selective), 0), (21, 9, 0));
    // One that keeps two tells of nothing behind them: one timeout, and ACKs bring the rest.
    assert_eq!(one_loss(Recovery::SelectiveRepeat(selective), 2), (19, 7, 1));
    // A foreign one that sends the missing packet alone: the others cost a timeout each.
    let (sent, again, timeouts) = one_loss(Recovery::Custom(Arc::new(OneByOneConfig)), 0);
    assert_eq!((sent, again, timeouts), (21, 9, 8));
}

/// Found by a random plan: the ACK of a WRITE's first packet was lost, its copy asked for none,
/// and a peer that acknowledges only copies that ask stayed silent for ever.
#[test]
fn a_packet_that_goes_again_alone_asks_for_an_ack() {
    let selective = Recovery::SelectiveRepeat(SelectiveRepeat { hold: 8, cap: 8 });
    for (recovery, asks) in [(selective, vec![true]), (Recovery::GoBackN, vec![false, true])] {
        let mut requester = rc_with(|cfg| cfg.recovery = recovery.clone());
        requester.push(job(0, WrOpcode::RdmaWrite, 300));
        transmit_all(&mut requester);
        if asks.len() == 1 {
            let ext = Ext::Sack { msn: Msn::ZERO, held: Psn::new(1) };
            requester.on_packet(NOW, &PacketDesc { ext, ..ack(0, ACK) });
            transmit_all(&mut requester);
        }
        requester.on_timer(us(1_000_000));
        let again = transmit_all(&mut requester);
        assert_eq!(again.iter().map(|p| p.ack_req).collect::<Vec<_>>(), asks);
    }
}

#[test]
fn the_cap_of_selective_repeat_bounds_the_flight() {
    let recovery = Recovery::SelectiveRepeat(SelectiveRepeat { hold: 8, cap: 5 });
    let mut requester = rc_with(|cfg| cfg.recovery = recovery);
    requester.push(job(0, WrOpcode::RdmaWrite, 12 * 256));
    let packets = transmit_all(&mut requester);
    assert_eq!(psns(&packets), [0, 1, 2, 3, 4]);
    assert!(packets[4].ack_req, "without an ACK it would never open again");
    assert_eq!(requester.blocked_by(), Some(Stall::Window));
}

// ---- responder -----------------------------------------------------------------------------

fn responder(change: impl FnOnce(&mut ResponderConfig)) -> Responder {
    let mut cfg = responder_config(QpType::Rc);
    change(&mut cfg);
    Responder::new(&cfg)
}

fn read(psn: u32, at: u64, len: u32) -> PacketDesc {
    let ext = Ext::Reth { va: BASE + at, rkey: RKEY, dma_len: len };
    PacketDesc { ext, ..request(Opcode::RcRdmaReadRequest, Psn::new(psn), 0, 0) }
}

#[test]
fn which_part_of_a_read_is_executed_again_is_a_setting() {
    for rule in [DuplicateRead::Subset, DuplicateRead::SameEnd] {
        let mut responder = responder(|cfg| cfg.rules.duplicate_read = rule);
        responder.on_packet(NOW, &read(0, 0, 900), true);
        assert_eq!(respond_all(&mut responder).len(), 4);
        for k in 0..4u32 {
            let (va, rest) = (u64::from(k) * 256, 900 - k * 256);
            let verdict = responder.on_packet(NOW, &read(k, va, rest), true);
            assert!(matches!(verdict, Accept::Read { len, .. } if len == rest), "{verdict:?}");
            let again = respond_all(&mut responder);
            assert_eq!(psns(&again), (k..4).collect::<Vec<_>>());
            let offsets: Vec<_> = again.iter().map(|p| p.offset).collect();
            assert_eq!(offsets, (k..4).map(|i| i * 256).collect::<Vec<_>>());
            assert!(again[0].opcode.starts_message());
            assert_eq!(again.iter().map(|p| p.len).sum::<u32>(), rest);
        }
        let short = responder.on_packet(NOW, &read(1, 256, 512), true);
        let expected = if rule == DuplicateRead::Subset { vec![1, 2] } else { vec![] };
        assert_eq!(short == Accept::Duplicate, expected.is_empty());
        assert_eq!(psns(&respond_all(&mut responder)), expected);
        // Not a part of it: further, elsewhere, with another key.
        let endless = read(1, 256, u32::MAX);
        for strange in [read(1, 256, 645), read(1, 255, 8), read(3, 0, 8), endless] {
            assert_eq!(responder.on_packet(NOW, &strange, true), Accept::Duplicate);
        }
        let ext = Ext::Reth { va: BASE, rkey: doorbell_core::verbs::Rkey(0x56), dma_len: 900 };
        let other = PacketDesc { ext, ..read(0, 0, 900) };
        assert_eq!(responder.on_packet(NOW, &other, true), Accept::Duplicate);
        assert!(respond_all(&mut responder).is_empty());
        assert_eq!(responder.msn(), Msn::new(1), "duplicates never change it");
        assert_eq!(responder.counters().rx_read_requests, 1);
        assert_eq!(responder.counters().duplicate_request, 10);
    }
}

#[test]
fn an_atomic_is_answered_again_and_never_executed_twice() {
    let mut responder = responder(|cfg| cfg.max_dest_rd_atomic = 2);
    let atomic = |psn| request(Opcode::RcFetchAdd, Psn::new(psn), 0, 0);
    for psn in 0..2 {
        let Accept::Atomic { job, .. } = responder.on_packet(NOW, &atomic(psn), true) else {
            panic!()
        };
        // A copy that comes before the result changes nothing.
        assert_eq!(responder.on_packet(NOW, &atomic(psn), true), Accept::Duplicate);
        responder.atomic_result(job, 70 + u64::from(psn));
        assert_eq!(respond_all(&mut responder).len(), 1);
    }
    for psn in [1, 0, 1] {
        assert_eq!(responder.on_packet(NOW, &atomic(psn), true), Accept::Duplicate);
        let [again] = respond_all(&mut responder)[..] else { panic!("one answer") };
        let orig = 70 + u64::from(psn);
        assert!(matches!(again.ext, Ext::AtomicAck { orig: o, .. } if o == orig));
        assert_eq!(again.psn, Psn::new(psn));
    }
    // A third one takes the place of the oldest, which is forgotten then.
    responder.on_packet(NOW, &atomic(0), true);
    assert!(matches!(responder.on_packet(NOW, &atomic(2), true), Accept::Atomic { .. }));
    assert_eq!(responder.on_packet(NOW, &atomic(0), true), Accept::Duplicate);
    assert!(respond_all(&mut responder).is_empty(), "no answer for what is forgotten");
}

#[test]
fn a_deregistered_key_refuses_the_repetition_of_a_read() {
    let mut responder = responder(|_| ());
    responder.on_packet(NOW, &read(0, 0, 900), true);
    respond_all(&mut responder);
    responder.on_packet(NOW, &request(Opcode::RcSendOnly, Psn::new(4), 1, 0), true);
    respond_all(&mut responder);
    responder.on_packet(NOW, &read(2, 512, 388), true);
    responder.reject(BadRequest::UnknownKey);
    let [nak] = respond_all(&mut responder)[..] else { panic!("the NAK alone") };
    let syndrome = Syndrome::Nak { code: NakCode::RemoteAccessError };
    assert_eq!((nak.psn, nak.ext), (Psn::new(2), Ext::Aeth { syndrome, msn: Msn::new(2) }));
    assert!(responder.silent());
}

#[test]
fn duplicates_are_acknowledged_always_or_when_they_ask() {
    for rule in [DuplicateAck::Always, DuplicateAck::IfRequested] {
        for ack_req in [true, false] {
            let mut responder = responder(|cfg| cfg.rules.duplicate_ack = rule);
            for psn in 0..3 {
                let send = request(Opcode::RcSendOnly, Psn::new(psn), 1, 0);
                responder.on_packet(NOW, &send, true);
            }
            respond_all(&mut responder);
            let send = request(Opcode::RcSendOnly, Psn::new(0), 1, 0);
            responder.on_packet(NOW, &PacketDesc { ack_req, ..send }, false);
            let expected = if ack_req || rule == DuplicateAck::Always { vec![2] } else { vec![] };
            assert_eq!(psns(&respond_all(&mut responder)), expected);
        }
    }
}

#[test]
fn a_packet_behind_an_rnr_nak_gets_a_nak_by_setting() {
    for nak_during_rnr in [false, true] {
        let mut responder = responder(|cfg| cfg.rules.nak_during_rnr = nak_during_rnr);
        let send = |psn| request(Opcode::RcSendOnly, Psn::new(psn), 1, 0);
        assert_eq!(responder.on_packet(NOW, &send(0), false), Accept::RnrNak);
        let gap = Accept::Gap { nak: nak_during_rnr };
        assert_eq!(responder.on_packet(NOW, &send(1), true), gap);
        assert_eq!(responder.on_packet(NOW, &send(2), true), Accept::Gap { nak: false });
        let naks = 1 + usize::from(nak_during_rnr);
        assert_eq!(psns(&respond_all(&mut responder)), vec![0; naks]);
    }
}

#[test]
fn a_requester_that_waits_for_the_rnr_timer_ignores_sequence_naks() {
    let mut requester = rc_with(|cfg| cfg.retry_cnt = RetryCnt::new(0).unwrap());
    requester.push(job(0, WrOpcode::Send, 1));
    requester.push(job(1, WrOpcode::Send, 1));
    transmit_all(&mut requester);
    requester.on_packet(NOW, &rnr(0, 1));
    let (psn, cause) = (Psn::ZERO, RecoverCause::SequenceNak);
    let told = requester.on_packet(NOW, &nak(0, NakCode::PsnSequenceError));
    assert_eq!(told, Received::Recover { psn, cause });
    // Neither does a copy of the RNR NAK change anything, nor use a retry.
    requester.on_packet(us(1), &rnr(0, 5));
    assert_eq!(requester.blocked_by(), Some(Stall::Rnr));
    assert_eq!(requester.next_deadline(), Some(us(10)));
    // All of them were received, and none was the last that the QP survives.
    let c = requester.counters();
    assert_eq!((c.rnr_nak_retry_err, c.rnr_nak_received), (2, 2));
    assert_eq!((c.packet_seq_err, c.sequence_naks_received), (1, 1));
}

// ---- fence and credits ---------------------------------------------------------------------

#[test]
fn a_fence_waits_for_writes_too_where_the_rules_say_so() {
    for (fence, sent) in [(Fence::ReadAtomic, 2), (Fence::AllPrior, 1)] {
        let mut requester = rc_with(|cfg| cfg.rules.fence = fence);
        requester.push(job(0, WrOpcode::RdmaWrite, 1));
        let flags = SendFlags::FENCE | SendFlags::SIGNALED;
        requester.push(SendJob { flags, ..job(1, WrOpcode::Send, 1) });
        assert_eq!(transmit_all(&mut requester).len(), sent);
        requester.on_packet(NOW, &ack(0, ACK));
        assert_eq!(transmit_all(&mut requester).len(), 2 - sent);
    }
}

#[test]
fn credits_let_one_message_more_begin_and_all_of_it_or_its_first_packet() {
    let credit = |psn, msn, code| {
        let credit = CreditCode::new(code).unwrap();
        let ext = Ext::Aeth { syndrome: Syndrome::Ack { credit }, msn: Msn::new(msn) };
        PacketDesc { ext, ..ack(psn, ACK) }
    };
    for (limited_wqe, sent) in [(LimitedWqe::FirstPacket, 1), (LimitedWqe::WholeMessage, 3)] {
        let mut requester = rc_with(|cfg| {
            cfg.rules.credits = true;
            cfg.rules.limited_wqe = limited_wqe;
        });
        // A WRITE is never limited; the first SEND is one beyond no credit at all.
        requester.push(job(0, WrOpcode::RdmaWrite, 1));
        (1..6).for_each(|wqe| requester.push(job(wqe, WrOpcode::Send, 600)));
        let packets = transmit_all(&mut requester);
        assert_eq!(packets.len(), 1 + sent);
        assert!(packets[1].ack_req, "a blocked requester needs an answer");
        assert_eq!(requester.blocked_by(), Some(Stall::Credits));
        // Its first packet has been taken: the rest follows, and then nothing.
        requester.on_packet(NOW, &credit(1, 1, 0));
        assert_eq!(transmit_all(&mut requester).len(), 3 - sent);
        assert_eq!(requester.blocked_by(), Some(Stall::Credits));
        // Two of five SENDs have arrived, MSN 2; one more credit and the limited one.
        requester.on_packet(NOW, &credit(3, 2, 1));
        let more = transmit_all(&mut requester);
        assert_eq!(more.len(), 3 + sent);
        requester.on_packet(NOW, &credit(4, 2, 31));
        assert!(requester.blocked_by().is_none(), "no limit any more");
    }
}

#[test]
fn acks_carry_the_free_receives_only_where_credits_are_on() {
    for credits in [false, true] {
        let mut responder = responder(|cfg| cfg.rules.credits = credits);
        responder.on_packet(NOW, &request(Opcode::RcSendOnly, Psn::ZERO, 1, 0), true);
        responder.set_receives(Some(5));
        let [told] = respond_all(&mut responder)[..] else { panic!("one ACK") };
        let code = CreditCode::new(if credits { 4 } else { 31 }).unwrap();
        let Ext::Aeth { syndrome, .. } = told.ext else { panic!() };
        assert_eq!(syndrome, Syndrome::Ack { credit: code });
    }
}
