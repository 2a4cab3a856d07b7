//! The requester alone: packets of each operation, AckReq, window, depth, fence, responses.

use doorbell_core::verbs::{
    CreditCode, Msn, NakCode, Opcode, Psn, QpType, SendFlags, Syndrome, WcStatus, WrOpcode,
};

use super::super::*;
use super::{BASE, NOW, RKEY, complete_all, job, requester_config, transmit_all};

pub(super) const ACK: Syndrome = Syndrome::Ack { credit: CreditCode::NO_LIMIT };

pub(super) fn rc() -> Requester {
    Requester::new(&requester_config(QpType::Rc))
}

pub(super) fn rc_with(change: impl FnOnce(&mut RequesterConfig)) -> Requester {
    let mut cfg = requester_config(QpType::Rc);
    change(&mut cfg);
    Requester::new(&cfg)
}

fn response(opcode: Opcode, psn: u32, len: u32, ext: Ext) -> PacketDesc {
    let psn = Psn::new(psn);
    PacketDesc { ack_req: false, ext, ..super::request(opcode, psn, len, 0) }
}

pub(super) fn ack(psn: u32, syndrome: Syndrome) -> PacketDesc {
    response(Opcode::RcAcknowledge, psn, 0, Ext::Aeth { syndrome, msn: Msn::ZERO })
}

pub(super) fn nak(psn: u32, code: NakCode) -> PacketDesc {
    ack(psn, Syndrome::Nak { code })
}

pub(super) fn read_response(opcode: Opcode, psn: u32, len: u32) -> PacketDesc {
    let aeth = Ext::Aeth { syndrome: ACK, msn: Msn::ZERO };
    let middle = opcode == Opcode::RcRdmaReadResponseMiddle;
    response(opcode, psn, len, if middle { Ext::None } else { aeth })
}

pub(super) fn atomic_ack(psn: u32, orig: u64) -> PacketDesc {
    let ext = Ext::AtomicAck { syndrome: ACK, msn: Msn::ZERO, orig };
    response(Opcode::RcAtomicAcknowledge, psn, 0, ext)
}

pub(super) fn statuses(requester: &mut Requester) -> Vec<(u32, WcStatus)> {
    complete_all(requester).iter().map(|done| (done.wqe, done.status)).collect()
}

fn psns(packets: &[PacketDesc]) -> Vec<u32> {
    packets.iter().map(|p| p.psn.value()).collect()
}

// ---- packets -------------------------------------------------------------------------------

#[test]
fn segmentation_on_both_sides_of_each_multiple_of_the_mtu() {
    for (len, lens) in [
        (0, vec![0]),
        (1, vec![1]),
        (255, vec![255]),
        (256, vec![256]),
        (257, vec![256, 1]),
        (512, vec![256, 256]),
        (513, vec![256, 256, 1]),
    ] {
        for op in [WrOpcode::Send, WrOpcode::RdmaWrite] {
            let mut requester = rc();
            requester.push(job(0, op, len));
            let packets = transmit_all(&mut requester);
            assert_eq!(packets.iter().map(|p| p.len).collect::<Vec<_>>(), lens);
            let offsets: Vec<_> = (0..lens.len() as u32).map(|i| i * 256).collect();
            assert_eq!(packets.iter().map(|p| p.offset).collect::<Vec<_>>(), offsets);
            assert_eq!(psns(&packets), (0..lens.len() as u32).collect::<Vec<_>>());
        }
    }
}

#[test]
fn opcodes_and_headers_of_every_operation() {
    use Opcode as O;
    use WrOpcode as W;
    let reth = |dma_len| Ext::Reth { va: BASE, rkey: RKEY, dma_len };
    let imm = 0x0A0B_0C00;
    let reth_imm = Ext::RethImm { va: BASE, rkey: RKEY, dma_len: 9, imm };
    let invalidate = Ext::Invalidate(doorbell_core::verbs::Rkey(imm));
    let atomic = |compare| Ext::Atomic { va: BASE, rkey: RKEY, swap_add: 5, compare };
    let cases = [
        (W::Send, 9, vec![(O::RcSendOnly, Ext::None)]),
        (W::SendWithImm, 9, vec![(O::RcSendOnlyImm, Ext::Imm(imm))]),
        (W::SendWithInv, 9, vec![(O::RcSendOnlyInvalidate, invalidate)]),
        (W::RdmaWrite, 9, vec![(O::RcRdmaWriteOnly, reth(9))]),
        (W::RdmaWriteWithImm, 9, vec![(O::RcRdmaWriteOnlyImm, reth_imm)]),
        (W::RdmaRead, 600, vec![(O::RcRdmaReadRequest, reth(600))]),
        (W::AtomicCmpAndSwp, 8, vec![(O::RcCompareSwap, atomic(7))]),
        (W::AtomicFetchAndAdd, 8, vec![(O::RcFetchAdd, atomic(0))]),
        (
            W::Send,
            600,
            vec![
                (O::RcSendFirst, Ext::None),
                (O::RcSendMiddle, Ext::None),
                (O::RcSendLast, Ext::None),
            ],
        ),
        (W::SendWithImm, 300, vec![(O::RcSendFirst, Ext::None), (O::RcSendLastImm, Ext::Imm(imm))]),
        (
            W::SendWithInv,
            300,
            vec![(O::RcSendFirst, Ext::None), (O::RcSendLastInvalidate, invalidate)],
        ),
        (
            W::RdmaWrite,
            600,
            vec![
                (O::RcRdmaWriteFirst, reth(600)),
                (O::RcRdmaWriteMiddle, Ext::None),
                (O::RcRdmaWriteLast, Ext::None),
            ],
        ),
        (
            W::RdmaWriteWithImm,
            300,
            vec![(O::RcRdmaWriteFirst, reth(300)), (O::RcRdmaWriteLastImm, Ext::Imm(imm))],
        ),
    ];
    for (op, len, expected) in cases {
        let mut requester = rc();
        requester.push(job(0, op, len));
        let packets = transmit_all(&mut requester);
        let seen: Vec<_> = packets.iter().map(|p| (p.opcode, p.ext)).collect();
        assert_eq!(seen, expected, "{op}");
        assert!(packets.iter().all(|p| p.dest == requester_config(QpType::Rc).dest));
    }
}

#[test]
fn a_read_takes_as_many_psns_as_its_response_has_packets() {
    for (len, taken) in [(0, 1), (256, 1), (257, 2), (1024, 4), (1025, 5)] {
        let mut requester = rc();
        requester.push(job(0, WrOpcode::RdmaRead, len));
        requester.push(job(1, WrOpcode::Send, 1));
        let packets = transmit_all(&mut requester);
        assert_eq!(psns(&packets), [0, taken]);
        assert_eq!(requester.outstanding(), taken + 1);
    }
}

#[test]
fn only_the_last_packet_that_takes_a_receive_is_solicited() {
    for op in WrOpcode::ALL.iter().filter(|op| op.may_be_inline()) {
        for flags in [SendFlags::empty(), SendFlags::SOLICITED] {
            let mut requester = rc();
            requester.push(SendJob { flags, ..job(0, *op, 600) });
            let solicited: Vec<_> =
                transmit_all(&mut requester).iter().map(|p| p.solicited).collect();
            let expected = op.consumes_recv() && flags == SendFlags::SOLICITED;
            assert_eq!(solicited, [false, false, expected], "{op}");
        }
    }
}

// ---- AckReq --------------------------------------------------------------------------------

/// Which of the packets of these messages ask for an ACK.
fn asking(
    lens: &[(u32, bool)],
    every: u32,
    ack_req_last: AckReqLast,
    max_outstanding_packets: u32,
) -> Vec<u32> {
    let mut requester = rc_with(|cfg| {
        cfg.ack_req_every = every;
        cfg.ack_req_last = ack_req_last;
        cfg.max_outstanding_packets = max_outstanding_packets;
    });
    for (wqe, &(len, signalled)) in lens.iter().enumerate() {
        let flags = if signalled { SendFlags::SIGNALED } else { SendFlags::empty() };
        requester.push(SendJob { flags, ..job(wqe as u32, WrOpcode::Send, len) });
    }
    let packets = transmit_all(&mut requester);
    psns(&packets.into_iter().filter(|p| p.ack_req).collect::<Vec<_>>())
}

#[test]
fn ack_req_at_message_ends_every_n_packets_and_where_the_window_fills() {
    use AckReqLast::{EveryMessage, Signalled};
    let mixed = [(1, false), (600, false), (600, true), (1, false)];
    assert_eq!(asking(&mixed, 0, EveryMessage, 128), [0, 3, 6, 7]);
    assert_eq!(asking(&mixed, 0, Signalled, 128), [6]);
    assert_eq!(asking(&mixed, 1, Signalled, 128), [0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(asking(&mixed, 3, Signalled, 128), [2, 5, 6]);
    // The count starts anew at each packet that asks, whatever made it ask.
    assert_eq!(asking(&[(1, true), (1600, false)], 3, Signalled, 128), [0, 3, 6]);
    assert_eq!(asking(&mixed, 0, Signalled, 5), [4]);
    assert_eq!(asking(&mixed, 0, Signalled, 8), [6, 7]);
    assert_eq!(asking(&mixed, 0, Signalled, 9), [6]);
}

#[test]
fn requests_that_are_answered_ask_and_reset_the_count() {
    let mut requester = rc_with(|cfg| {
        cfg.ack_req_every = 3;
        cfg.ack_req_last = AckReqLast::Signalled;
    });
    let quiet = |wqe, op, len| SendJob { flags: SendFlags::empty(), ..job(wqe, op, len) };
    requester.push(quiet(0, WrOpcode::Send, 1));
    requester.push(quiet(1, WrOpcode::RdmaRead, 1));
    requester.push(quiet(2, WrOpcode::Send, 1));
    requester.push(quiet(3, WrOpcode::AtomicFetchAndAdd, 8));
    requester.push(quiet(4, WrOpcode::Send, 1));
    requester.push(quiet(5, WrOpcode::Send, 1));
    requester.push(quiet(6, WrOpcode::Send, 1));
    let asks: Vec<_> = transmit_all(&mut requester).iter().map(|p| p.ack_req).collect();
    assert_eq!(asks, [false, true, false, true, false, false, true]);
}

// ---- what holds packets back ---------------------------------------------------------------

#[test]
fn the_window_closes_and_opens_by_acks() {
    let mut requester = rc_with(|cfg| cfg.max_outstanding_packets = 3);
    requester.push(job(0, WrOpcode::RdmaWrite, 256 * 6));
    assert_eq!(psns(&transmit_all(&mut requester)), [0, 1, 2]);
    assert_eq!(requester.blocked_by(), Some(Stall::Window));
    assert_eq!(requester.on_packet(NOW, &ack(0, ACK)), Received::Nothing);
    assert_eq!(psns(&transmit_all(&mut requester)), [3]);
    requester.on_packet(NOW, &ack(3, ACK));
    assert_eq!(psns(&transmit_all(&mut requester)), [4, 5]);
    assert_eq!(requester.blocked_by(), Some(Stall::Empty));
    assert!(complete_all(&mut requester).is_empty());
    requester.on_packet(NOW, &ack(5, ACK));
    assert_eq!(statuses(&mut requester), [(0, WcStatus::Success)]);
    assert!(requester.idle());
}

#[test]
fn a_read_starts_while_one_psn_is_free_but_never_passes_half_of_the_psn_space() {
    let mut requester = rc_with(|cfg| cfg.max_outstanding_packets = 2);
    requester.push(job(0, WrOpcode::Send, 1));
    requester.push(job(1, WrOpcode::RdmaRead, 1024));
    requester.push(job(2, WrOpcode::Send, 1));
    assert_eq!(psns(&transmit_all(&mut requester)), [0, 1]);
    assert_eq!(requester.outstanding(), 5);
    assert_eq!(requester.blocked_by(), Some(Stall::Window));

    let mut requester = rc_with(|cfg| cfg.max_outstanding_packets = MAX_UNACKED);
    requester.push(job(0, WrOpcode::RdmaRead, 1 << 31));
    requester.push(job(1, WrOpcode::RdmaRead, 1));
    assert_eq!(transmit_all(&mut requester).len(), 1);
    assert_eq!(requester.outstanding(), MAX_UNACKED);
    assert_eq!(requester.blocked_by(), Some(Stall::Window));
    requester.on_packet(NOW, &read_response(Opcode::RcRdmaReadResponseFirst, 0, 256));
    assert_eq!(psns(&transmit_all(&mut requester)), [MAX_UNACKED]);

    let mut requester = rc_with(|cfg| cfg.max_outstanding_packets = MAX_UNACKED);
    requester.push(job(0, WrOpcode::Send, 1));
    requester.push(job(1, WrOpcode::RdmaRead, 1 << 31));
    assert_eq!(transmit_all(&mut requester).len(), 1);
    assert_eq!(requester.blocked_by(), Some(Stall::Window));
}

#[test]
fn max_rd_atomic_stalls_the_request_and_everything_behind_it() {
    for depth in 1..5 {
        let mut requester = rc_with(|cfg| cfg.max_rd_atomic = depth);
        for wqe in 0..u32::from(depth) {
            let op = if wqe % 2 == 0 { WrOpcode::RdmaRead } else { WrOpcode::AtomicCmpAndSwp };
            requester.push(job(wqe, op, 8));
        }
        let n = u32::from(depth);
        requester.push(job(n, WrOpcode::Send, 1));
        requester.push(job(n + 1, WrOpcode::RdmaRead, 8));
        requester.push(job(n + 2, WrOpcode::RdmaWrite, 1));
        assert_eq!(transmit_all(&mut requester).len() as u32, n + 1);
        assert_eq!(requester.rd_atomic(), depth);
        assert_eq!(requester.blocked_by(), Some(Stall::RdAtomic));
        let only = read_response(Opcode::RcRdmaReadResponseOnly, 0, 8);
        let place = Received::Place { wqe: 0, offset: 0, len: 8, last: true };
        assert_eq!(requester.on_packet(NOW, &only), place);
        assert_eq!(transmit_all(&mut requester).len(), 2);
        assert_eq!(requester.rd_atomic(), depth);
    }
}

#[test]
fn a_fence_waits_for_reads_and_atomics_and_for_nothing_else() {
    let fenced = |wqe, op| SendJob {
        flags: SendFlags::FENCE | SendFlags::SIGNALED,
        ..job(wqe, op, if op == WrOpcode::AtomicFetchAndAdd { 8 } else { 300 })
    };
    let any =
        [WrOpcode::Send, WrOpcode::RdmaWrite, WrOpcode::RdmaRead, WrOpcode::AtomicFetchAndAdd];
    for op in any {
        let mut requester = rc();
        requester.push(job(0, WrOpcode::RdmaWrite, 1));
        requester.push(fenced(1, op));
        assert!(transmit_all(&mut requester).len() >= 2, "unacknowledged WRITEs do not fence");

        let mut requester = rc();
        requester.push(job(0, WrOpcode::RdmaRead, 8));
        requester.push(job(1, WrOpcode::AtomicCmpAndSwp, 8));
        requester.push(fenced(2, op));
        requester.push(job(3, WrOpcode::Send, 1));
        assert_eq!(transmit_all(&mut requester).len(), 2);
        assert_eq!(requester.blocked_by(), Some(Stall::Fence));
        requester.on_packet(NOW, &read_response(Opcode::RcRdmaReadResponseOnly, 0, 8));
        assert_eq!(requester.blocked_by(), Some(Stall::Fence));
        let result = Received::AtomicResult { wqe: 1, orig: 3 };
        assert_eq!(requester.on_packet(NOW, &atomic_ack(1, 3)), result);
        assert!(transmit_all(&mut requester).len() >= 2);
    }
}

// ---- responses -----------------------------------------------------------------------------

#[test]
fn an_ack_completes_all_sends_and_writes_up_to_its_psn() {
    for start in [0, 0xFF_FFFD] {
        for acked in 0..6u32 {
            let mut requester = rc_with(|cfg| cfg.sq_psn = Psn::new(start));
            requester.push(job(0, WrOpcode::Send, 1));
            requester.push(job(1, WrOpcode::RdmaWrite, 700));
            requester.push(job(2, WrOpcode::Send, 300));
            assert_eq!(transmit_all(&mut requester).len(), 6);
            requester.on_packet(NOW, &ack(start + acked, ACK));
            assert_eq!(requester.outstanding(), 5 - acked);
            assert_eq!(requester.unacked_psn(), Psn::new(start + acked + 1));
            let ends = [0, 3, 5].iter().filter(|&&end| end <= acked).count();
            assert_eq!(complete_all(&mut requester).len(), ends);
        }
    }
}

#[test]
fn a_response_acknowledges_what_came_before_it() {
    let mut requester = rc();
    requester.push(job(0, WrOpcode::Send, 1));
    requester.push(job(1, WrOpcode::RdmaRead, 300));
    requester.push(job(2, WrOpcode::RdmaWrite, 1));
    requester.push(job(3, WrOpcode::AtomicFetchAndAdd, 8));
    assert_eq!(psns(&transmit_all(&mut requester)), [0, 1, 3, 4]);
    let first = Received::Place { wqe: 1, offset: 0, len: 256, last: false };
    let last = Received::Place { wqe: 1, offset: 256, len: 44, last: true };
    let packet = read_response(Opcode::RcRdmaReadResponseFirst, 1, 256);
    assert_eq!(requester.on_packet(NOW, &packet), first);
    assert_eq!(statuses(&mut requester), [(0, WcStatus::Success)]);
    let packet = read_response(Opcode::RcRdmaReadResponseLast, 2, 44);
    assert_eq!(requester.on_packet(NOW, &packet), last);
    assert_eq!(statuses(&mut requester), [(1, WcStatus::Success)]);
    let result = Received::AtomicResult { wqe: 3, orig: 9 };
    assert_eq!(requester.on_packet(NOW, &atomic_ack(4, 9)), result);
    assert_eq!(statuses(&mut requester), [(2, WcStatus::Success), (3, WcStatus::Success)]);
    assert!(requester.idle());
}

#[test]
fn responses_outside_the_window_are_dropped() {
    for start in [0u32, 0xFF_FFFE] {
        let mut requester = rc_with(|cfg| cfg.sq_psn = Psn::new(start));
        for wqe in 0..4 {
            requester.push(job(wqe, WrOpcode::Send, 1));
        }
        transmit_all(&mut requester);
        requester.on_packet(NOW, &ack(start.wrapping_add(1), ACK));
        for stale in [start.wrapping_sub(1), start, start + 1, start + 4, start + 4 + (1 << 22)] {
            let verdict = requester.on_packet(NOW, &ack(stale, ACK));
            assert_eq!(verdict, Received::Drop(DropReason::Stale), "PSN {stale}");
        }
        assert_eq!(requester.outstanding(), 2);
        assert_eq!(complete_all(&mut requester).len(), 2);
    }
}

#[test]
fn every_wrong_read_response_is_a_bad_response() {
    use Opcode as O;
    let responses = [
        O::RcRdmaReadResponseFirst,
        O::RcRdmaReadResponseMiddle,
        O::RcRdmaReadResponseLast,
        O::RcRdmaReadResponseOnly,
    ];
    // Lengths of a READ, and the only right sequence of responses.
    let reads: [(u32, &[(Opcode, u32)]); 4] = [
        (0, &[(O::RcRdmaReadResponseOnly, 0)]),
        (256, &[(O::RcRdmaReadResponseOnly, 256)]),
        (257, &[(O::RcRdmaReadResponseFirst, 256), (O::RcRdmaReadResponseLast, 1)]),
        (
            768,
            &[
                (O::RcRdmaReadResponseFirst, 256),
                (O::RcRdmaReadResponseMiddle, 256),
                (O::RcRdmaReadResponseLast, 256),
            ],
        ),
    ];
    for (len, right) in reads {
        for at in 0..right.len() {
            for opcode in responses {
                for bytes in [0, 1, 255, 256] {
                    let mut requester = rc();
                    requester.push(job(0, WrOpcode::RdmaRead, len));
                    requester.push(job(1, WrOpcode::Send, 1));
                    transmit_all(&mut requester);
                    for (psn, (opcode, len)) in right[..at].iter().enumerate() {
                        requester.on_packet(NOW, &read_response(*opcode, psn as u32, *len));
                    }
                    let packet = read_response(opcode, at as u32, bytes);
                    let verdict = requester.on_packet(NOW, &packet);
                    if right[at] == (opcode, bytes) {
                        assert!(matches!(verdict, Received::Place { .. }));
                        continue;
                    }
                    let status = WcStatus::BadRespErr;
                    assert_eq!(verdict, Received::Error { wqe: 0, status });
                    let ends = [(0, status), (1, WcStatus::WrFlushErr)];
                    assert_eq!(statuses(&mut requester), ends);
                }
            }
        }
    }
}

#[test]
fn a_response_of_the_wrong_kind_is_a_bad_response() {
    let read = read_response(Opcode::RcRdmaReadResponseOnly, 0, 8);
    let atomic = atomic_ack(0, 1);
    for (op, wrong) in [
        (WrOpcode::Send, read),
        (WrOpcode::Send, atomic),
        (WrOpcode::RdmaRead, atomic),
        (WrOpcode::AtomicFetchAndAdd, read),
    ] {
        let mut requester = rc();
        requester.push(job(0, op, 8));
        transmit_all(&mut requester);
        let error = Received::Error { wqe: 0, status: WcStatus::BadRespErr };
        assert_eq!(requester.on_packet(NOW, &wrong), error);
    }
    let mut requester = rc();
    requester.push(job(0, WrOpcode::Send, 8));
    transmit_all(&mut requester);
    let request = super::request(Opcode::RcSendOnly, Psn::ZERO, 1, 0);
    assert_eq!(requester.on_packet(NOW, &request), Received::Drop(DropReason::Opcode));
}
