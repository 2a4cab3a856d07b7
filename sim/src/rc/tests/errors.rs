//! The requester alone: NAKs, lost responses, work that cannot be done.

use doorbell_core::verbs::{
    NakCode, Opcode, Psn, RnrTimer, SendFlags, Syndrome, WcStatus, WrOpcode,
};

use super::super::*;
use super::requester::{ACK, ack, atomic_ack, nak, rc, rc_with, read_response, statuses};
use super::{NOW, complete_all, job, transmit_all, transmit_at};

#[test]
fn a_fatal_nak_fails_its_request_and_flushes_the_rest() {
    for (code, status) in [
        (NakCode::InvalidRequest, WcStatus::RemInvReqErr),
        (NakCode::RemoteAccessError, WcStatus::RemAccessErr),
        (NakCode::RemoteOperationalError, WcStatus::RemOpErr),
    ] {
        for start in [0, 0xFF_FFFE] {
            let mut requester = rc_with(|cfg| {
                cfg.sq_psn = Psn::new(start);
                cfg.max_outstanding_packets = 5;
            });
            requester.push(job(0, WrOpcode::Send, 1));
            requester.push(job(1, WrOpcode::RdmaWrite, 700));
            requester.push(SendJob { flags: SendFlags::empty(), ..job(2, WrOpcode::Send, 600) });
            requester.push(job(3, WrOpcode::RdmaRead, 1));
            transmit_all(&mut requester);
            let verdict = requester.on_packet(NOW, &nak(start + 2, code));
            assert_eq!(verdict, Received::Error { wqe: 1, status });
            assert!(requester.failed());
            assert!(!requester.peek_transmit());
            requester.push(job(4, WrOpcode::Send, 1));
            let done = complete_all(&mut requester);
            let flush = WcStatus::WrFlushErr;
            let ends: Vec<_> = done.iter().map(|d| (d.wqe, d.status)).collect();
            let expected =
                [(0, WcStatus::Success), (1, status), (2, flush), (3, flush), (4, flush)];
            assert_eq!(ends, expected);
            assert!(done.iter().all(|d| d.signalled), "errors complete even when unsignalled");
            assert!(requester.idle());
            let verdict = requester.on_packet(NOW, &ack(start + 4, ACK));
            assert_eq!(verdict, Received::Drop(DropReason::QpState));
        }
    }
}

#[test]
fn what_needs_a_retransmission_is_named_and_acknowledges_what_came_before() {
    let timer = RnrTimer::new(12).unwrap();
    for (syndrome, cause) in [
        (Syndrome::Nak { code: NakCode::PsnSequenceError }, RecoverCause::SequenceNak),
        (Syndrome::RnrNak { timer }, RecoverCause::Rnr(timer)),
    ] {
        let mut requester = rc();
        requester.push(job(0, WrOpcode::Send, 1));
        requester.push(job(1, WrOpcode::Send, 300));
        transmit_all(&mut requester);
        let verdict = requester.on_packet(NOW, &ack(1, syndrome));
        assert_eq!(verdict, Received::Recover { psn: Psn::new(1), cause });
        assert_eq!(requester.outstanding(), 2);
        assert_eq!(statuses(&mut requester), [(0, WcStatus::Success)]);
        assert!(!requester.failed());
    }
}

#[test]
fn a_response_beyond_an_unanswered_request_is_an_implied_nak() {
    let expect = |cause| Received::Recover { psn: Psn::new(1), cause };
    let beyond = [ack(4, ACK), nak(4, NakCode::RemoteAccessError), atomic_ack(5, 0)];
    for packet in beyond {
        let mut requester = rc();
        requester.push(job(0, WrOpcode::Send, 1));
        requester.push(job(1, WrOpcode::RdmaRead, 700));
        requester.push(job(2, WrOpcode::Send, 1));
        requester.push(job(3, WrOpcode::AtomicCmpAndSwp, 8));
        transmit_all(&mut requester);
        assert_eq!(requester.on_packet(NOW, &packet), expect(RecoverCause::ImpliedNak));
        assert_eq!(statuses(&mut requester), [(0, WcStatus::Success)]);
        assert!(!requester.failed());
    }
    for ahead in [2, 3] {
        let mut requester = rc();
        requester.push(job(0, WrOpcode::Send, 1));
        requester.push(job(1, WrOpcode::RdmaRead, 700));
        transmit_all(&mut requester);
        let packet = read_response(Opcode::RcRdmaReadResponseMiddle, ahead, 256);
        assert_eq!(requester.on_packet(NOW, &packet), expect(RecoverCause::ReadGap));
    }
}

#[test]
fn naks_without_meaning_are_ignored() {
    for syndrome in [
        Syndrome::Nak { code: NakCode::InvalidRdRequest },
        Syndrome::decode(0x65),
        Syndrome::decode(0x40),
        Syndrome::decode(0x80),
    ] {
        let mut requester = rc();
        requester.push(job(0, WrOpcode::Send, 1));
        transmit_all(&mut requester);
        let verdict = requester.on_packet(NOW, &ack(0, syndrome));
        assert_eq!(verdict, Received::Drop(DropReason::Syndrome));
        assert_eq!(requester.outstanding(), 1);
    }
}

#[test]
fn work_that_cannot_be_done_fails_in_its_turn() {
    use WcStatus::{LocLenErr, LocQpOpErr, Success, WrFlushErr};
    for (op, len, status) in [
        (WrOpcode::Send, (1 << 31) + 1, LocLenErr),
        (WrOpcode::RdmaRead, (1 << 31) + 1, LocLenErr),
        (WrOpcode::AtomicCmpAndSwp, 7, LocLenErr),
        (WrOpcode::AtomicFetchAndAdd, 16, LocLenErr),
        (WrOpcode::Flush, 0, LocQpOpErr),
        (WrOpcode::AtomicWrite, 8, LocQpOpErr),
        (WrOpcode::LocalInv, 0, LocQpOpErr),
        (WrOpcode::Tso, 1, LocQpOpErr),
    ] {
        let mut requester = rc();
        requester.push(job(0, WrOpcode::Send, 1));
        requester.push(job(1, op, len));
        requester.push(job(2, WrOpcode::Send, 1));
        assert_eq!(transmit_all(&mut requester).len(), 1);
        assert_eq!(requester.blocked_by(), Some(Stall::Doomed));
        assert!(complete_all(&mut requester).is_empty(), "not before what was posted earlier");
        requester.on_packet(NOW, &ack(0, ACK));
        assert_eq!(statuses(&mut requester), [(0, Success), (1, status), (2, WrFlushErr)]);

        let mut requester = rc();
        requester.push(job(0, op, len));
        assert_eq!(statuses(&mut requester), [(0, status)]);
    }
    let mut requester = rc_with(|cfg| cfg.max_rd_atomic = 0);
    requester.push(job(0, WrOpcode::Send, 1 << 31));
    assert_eq!(requester.blocked_by(), None, "2^31 bytes are legal");
    requester.push(job(1, WrOpcode::RdmaRead, 8));
    requester.flush();
    assert_eq!(statuses(&mut requester), [(0, WrFlushErr), (1, WrFlushErr)]);
    let mut requester = rc_with(|cfg| cfg.max_rd_atomic = 0);
    requester.push(job(0, WrOpcode::RdmaRead, 8));
    assert_eq!(statuses(&mut requester), [(0, LocQpOpErr)]);
}

#[test]
fn a_local_error_stops_its_message_and_waits_for_those_before_it() {
    use WcStatus::{LocProtErr, Success, WrFlushErr};
    let mut requester = rc();
    for wqe in 10..14 {
        requester.push(job(wqe, WrOpcode::RdmaWrite, 600));
    }
    for _ in 0..5 {
        transmit_at(&mut requester, NOW).unwrap();
    }
    requester.fail(11, LocProtErr);
    requester.fail(99, LocProtErr);
    assert_eq!(requester.poll_transmit(), None);
    assert!(complete_all(&mut requester).is_empty());
    let error = Received::Error { wqe: 11, status: LocProtErr };
    assert_eq!(requester.on_packet(NOW, &ack(2, ACK)), error);
    let ends = [(10, Success), (11, LocProtErr), (12, WrFlushErr), (13, WrFlushErr)];
    assert_eq!(statuses(&mut requester), ends);
}

#[test]
fn an_idle_requester_is_small() {
    let requester = rc();
    // 264 of it are counters.
    assert!(size_of::<Requester>() <= 640, "{}", size_of::<Requester>());
    assert!(requester.idle());
    assert_eq!(requester.next_deadline(), None);
    assert_eq!(requester.unacked_psn(), requester.next_psn());
}

#[test]
#[should_panic(expected = "max_outstanding_packets 0")]
fn a_window_of_nothing_is_refused() {
    rc_with(|cfg| cfg.max_outstanding_packets = 0);
}

#[test]
#[should_panic(expected = "max_outstanding_packets 8388609")]
fn a_window_above_half_of_the_psn_space_is_refused() {
    rc_with(|cfg| cfg.max_outstanding_packets = MAX_UNACKED + 1);
}
