//! Sequence numbers, gaps, duplicates and responder resources (2.1 to 2.4).

use doorbell_core::transport::{Completion, Control, Data, Ring, SendOp, Transport};
use doorbell_core::verbs::*;
use doorbell_sim::fault::PacketClass;

use super::{Setup, burst, counted, first_qp, good, now};
use crate::on_sim::conformance::pair::{Pair, SIGNALED, Spec, errors, send};

/// The largest PSN is followed by 0.
fn near_the_wrap() -> Setup {
    let mut setup = Setup::new(Spec::default());
    setup.psn = Some(Psn::new((1 << 24) - 2));
    setup.attr.timeout = AckTimeout::new(1).unwrap();
    setup
}

#[test]
fn messages_and_losses_over_the_wrap() {
    for lost in 0..=6 {
        for class in [PacketClass::Write, PacketClass::Ack] {
            let setup = near_the_wrap();
            let mut pair = if lost == 0 { setup } else { setup.lose(class, lost) }.connect();
            let to = pair.sides[1].remote(0);
            pair.write_local(0, 0, &[5; 6 * 1024]);
            burst(&mut pair, SendOp::Write(to), 1, 6 * 1024);
            assert_eq!(good(&pair.sent(0)), [0], "{class:?} {lost}");
            assert_eq!(pair.read_local(1, 0, 6 * 1024), [5; 6 * 1024]);
            let q = first_qp(&pair, 1).responder.as_ref().unwrap();
            assert_eq!((q.expected_psn(), q.msn()), (Psn::new(4), Msn::new(1)));
        }
    }
}

#[test]
fn reads_over_the_wrap_resume_at_the_packet_that_is_missing() {
    for lost in 1..=6 {
        let mut pair = near_the_wrap().lose(PacketClass::ReadResponse, lost).connect();
        let from = pair.sides[1].remote(0);
        pair.write_local(1, 0, &[9; 6 * 1024]);
        burst(&mut pair, SendOp::Read(from), 1, 6 * 1024);
        assert_eq!(good(&pair.sent(0)), [0], "response {lost}");
        assert_eq!(pair.read_local(0, 0, 6 * 1024), [9; 6 * 1024]);
        let (req, resp) = (counted(&pair, 0), counted(&pair, 1));
        // The last one is missed by nobody but the timer.
        let found = (req.implied_nak_seq_err, req.local_ack_timeout_err);
        assert_eq!(found, if lost < 6 { (1, 0) } else { (0, 1) }, "response {lost}");
        assert_eq!((resp.rx_read_requests, resp.duplicate_request), (1, 1));
        // Only the rest is read again: 6 packets, and from the lost one on once more.
        let sent = super::nic(&pair, 1).stats.tx_packets;
        assert_eq!(sent, 6 + (6 - lost + 1), "response {lost}");
    }
}

#[test]
fn one_sequence_nak_per_gap_however_many_packets_follow() {
    let mut setup = Setup::new(Spec::default());
    // Two gaps: one in the first transmission, one among what is sent again.
    setup = setup.lose(PacketClass::Write, 3).lose(PacketClass::Write, 20);
    let mut pair = setup.connect();
    let to = pair.sides[1].remote(0);
    burst(&mut pair, SendOp::Write(to), 16, 8);
    assert_eq!(good(&pair.sent(0)), (0..16).collect::<Vec<_>>());
    let (req, resp) = (counted(&pair, 0), counted(&pair, 1));
    assert_eq!((resp.sequence_naks_sent, req.packet_seq_err), (2, 2));
    assert!(resp.out_of_sequence > 2, "{resp:?}");
    assert_eq!(req.local_ack_timeout_err, 0);
}

#[test]
fn an_atomic_whose_answer_is_lost_is_executed_once() {
    for op in [true, false] {
        let mut setup = Setup::new(Spec::default()).lose(PacketClass::AtomicAck, 1);
        setup.attr.timeout = AckTimeout::new(1).unwrap();
        let mut pair = setup.connect();
        pair.write_local(1, 0, &7u64.to_le_bytes());
        let remote = pair.sides[1].remote(0);
        let op = match op {
            true => SendOp::FetchAdd { remote, add: 1 },
            false => SendOp::CmpSwap { remote, compare: 7, swap: 8 },
        };
        burst(&mut pair, op, 1, 8);
        assert_eq!(good(&pair.sent(0)), [0]);
        assert_eq!(pair.read_local(0, 0, 8), 7u64.to_le_bytes(), "the value that it had");
        assert_eq!(pair.read_local(1, 0, 8), 8u64.to_le_bytes(), "{op:?} once");
        let resp = counted(&pair, 1);
        assert_eq!((resp.rx_atomic_requests, resp.duplicate_request), (1, 1));
    }
}

#[test]
fn an_ack_that_passes_by_an_unanswered_read_is_an_implied_nak() {
    // READ, then WRITE: all of the READ's answer is lost, the WRITE's ACK arrives.
    let mut pair = Setup::new(Spec::default()).lose(PacketClass::ReadResponse, 1).connect();
    let remote = pair.sides[1].remote(0);
    pair.on(0, move |t, me| {
        for (i, op) in [(0, SendOp::Read(remote)), (1, SendOp::Write(remote))] {
            let list = [me.sge(0, 8)];
            t.stage(me.qp, &send(op, i, Data::Sge(&list))).unwrap();
        }
        t.ring(me.qp, Ring::Doorbell).unwrap();
    });
    assert_eq!(good(&pair.sent(0)), [0, 1]);
    let req = counted(&pair, 0);
    assert_eq!((req.implied_nak_seq_err, req.local_ack_timeout_err), (1, 0));
}

#[test]
fn one_ack_completes_all_sends_and_writes_before_it() {
    let mut setup = Setup::new(Spec::default());
    for nth in 1..=3 {
        setup = setup.lose(PacketClass::Ack, nth);
    }
    let mut pair = setup.connect();
    let to = pair.sides[1].remote(0);
    for i in 0..4 {
        pair.post(0, SendOp::Write(to), i, pair.sides[0].sge(0, 8));
    }
    assert_eq!(good(&pair.sent(0)), [0, 1, 2, 3]);
    assert_eq!(counted(&pair, 0).retransmitted_packets, 0);
}

/// READs of a burst that were unanswered at a time, and whether it ended well.
fn reads(mine: u8, theirs: u8) -> (u8, bool) {
    // Long ones, so that none is answered before the last request has come.
    let mut setup = Setup::new(Spec::default());
    setup.attr.max_rd_atomic = mine;
    setup.attr.max_dest_rd_atomic = theirs;
    let mut pair = setup.connect();
    let from = pair.sides[1].remote(0);
    burst(&mut pair, SendOp::Read(from), 8, 32_768);
    let ended = errors(&pair.sent(0)).is_empty();
    (first_qp(&pair, 0).stats.rd_atomic_peak, ended)
}

#[test]
fn reads_wait_for_max_rd_atomic_and_are_refused_beyond_max_dest_rd_atomic() {
    for n in [1, 2, 7, 8] {
        assert_eq!(reads(n, n), (n, true));
    }
    // One side's limit is higher than what the other can hold.
    assert!(!reads(8, 2).1, "NAK Invalid Request");
    assert_eq!(reads(2, 8), (2, true));
}

#[test]
fn a_depth_of_zero_fails_at_once_or_is_refused() {
    let (mine, theirs) = (WcStatus::LocQpOpErr, WcStatus::RemInvReqErr);
    for (max_rd_atomic, max_dest, status) in [(0, 16, mine), (16, 0, theirs)] {
        for atomic in [false, true] {
            let mut setup = Setup::new(Spec::default());
            setup.attr.max_rd_atomic = max_rd_atomic;
            setup.attr.max_dest_rd_atomic = max_dest;
            let mut pair = setup.connect();
            let remote = pair.sides[1].remote(0);
            let add = SendOp::FetchAdd { remote, add: 1 };
            burst(&mut pair, if atomic { add } else { SendOp::Read(remote) }, 1, 8);
            assert_eq!(errors(&pair.sent(0)), [(0, status)]);
            assert_eq!(pair.read_local(1, 0, 8), [0; 8]);
        }
    }
}

#[test]
fn a_fence_waits_for_reads_and_by_another_rule_for_everything() {
    use doorbell_sim::rc::Fence;
    // A WRITE, a fenced WRITE: behind a WRITE the fence waits by one rule only.
    let time = |fence: Fence, first: fn(doorbell_core::transport::Remote) -> SendOp| {
        let mut setup = Setup::new(Spec::default());
        setup.host.rc.rules.fence = fence;
        let mut pair: Pair = setup.connect();
        let remote = pair.sides[1].remote(0);
        pair.on(0, move |t, me| {
            let fenced = SIGNALED | SendFlags::FENCE;
            for (i, op, flags) in [(0, first(remote), SIGNALED), (1, SendOp::Write(remote), fenced)]
            {
                let list = [me.sge(0, 8)];
                let wr =
                    doorbell_core::transport::SendWr { flags, ..send(op, i, Data::Sge(&list)) };
                t.stage(me.qp, &wr).unwrap();
            }
            t.ring(me.qp, Ring::Doorbell).unwrap();
        });
        let start = now(&pair);
        assert_eq!(good(&pair.sent(0)), [0, 1]);
        first_qp(&pair, 0).last_progress.since(start)
    };
    let [write, read] = [SendOp::Write, SendOp::Read];
    let round_trip = machine_round_trip();
    assert!(time(Fence::AllPrior, write) > time(Fence::ReadAtomic, write) + round_trip);
    assert!(time(Fence::ReadAtomic, read) > time(Fence::ReadAtomic, write) + round_trip);
}

/// Twice the cable.
fn machine_round_trip() -> doorbell_core::units::Span {
    doorbell_tests::machine::profile("generic-400g").port.propagation * 2
}

#[test]
fn a_message_of_uc_that_lost_a_packet_is_dropped_and_the_next_one_arrives() {
    for lost in 1..=3 {
        let mut pair = Setup::new(Spec { ty: QpType::Uc, ..Spec::default() })
            .lose(PacketClass::Send, lost)
            .connect();
        for wr_id in 0..2 {
            pair.recv(1, wr_id, 8192, 8192);
        }
        burst(&mut pair, SendOp::Send, 2, 3000);
        assert_eq!(good(&pair.sent(0)), [0, 1], "UC hears of nothing");
        let got = pair.received(1);
        assert!(
            matches!(got[..], [Completion::Recv { wr_id: 0, len: 3000, .. }]),
            "the receive of the lost message serves the next: {got:?}"
        );
        assert_eq!(counted(&pair, 0).retransmitted_packets, 0);
        assert_eq!(pair.on(1, |t, me| t.qp_state(me.qp)), Ok(QpState::Rts));
    }
}
