//! The responder alone: the order of checks, sequence, access, resources, length, counting.

use doorbell_core::units::Span;
use doorbell_core::verbs::{
    AccessFlags, CreditCode, Msn, Mtu, NakCode, Opcode, Operation, Psn, QpType, RnrTimer, Service,
    Syndrome, WcOpcode,
};

use super::super::*;
use super::{BASE, NOW, RKEY, request, respond_all, responder_config};

pub(super) const INVALID: Accept = Accept::Nak(NakCode::InvalidRequest);

pub(super) fn rc() -> Responder {
    Responder::new(&responder_config(QpType::Rc))
}

pub(super) fn rc_with(change: impl FnOnce(&mut ResponderConfig)) -> Responder {
    let mut cfg = responder_config(QpType::Rc);
    change(&mut cfg);
    Responder::new(&cfg)
}

/// A packet with legal payload and a message length that fits it.
pub(super) fn legal(opcode: Opcode, psn: u32) -> PacketDesc {
    let len = if opcode.has_payload() { 256 } else { 0 };
    // What starts a WRITE of several packets announces two full ones.
    let dma_len = if opcode.ends_message() { 256 } else { 512 };
    request(opcode, Psn::new(psn), len, dma_len)
}

pub(super) fn send(psn: u32) -> PacketDesc {
    legal(Opcode::RcSendOnly, psn)
}

pub(super) fn read(psn: u32, len: u32) -> PacketDesc {
    request(Opcode::RcRdmaReadRequest, Psn::new(psn), 0, len)
}

/// PSN, MSN and syndrome of a response that has them.
pub(super) fn aeth(desc: &PacketDesc) -> (u32, u32, Syndrome) {
    match desc.ext {
        Ext::Aeth { syndrome, msn } | Ext::AtomicAck { syndrome, msn, .. } => {
            (desc.psn.value(), msn.value(), syndrome)
        }
        other => panic!("{other:?} has no AETH"),
    }
}

pub(super) const ACK: Syndrome = Syndrome::Ack { credit: CreditCode::NO_LIMIT };

pub(super) fn nak(code: NakCode) -> Syndrome {
    Syndrome::Nak { code }
}

pub(super) fn aeths(responder: &mut Responder) -> Vec<(u32, u32, Syndrome)> {
    respond_all(responder).iter().map(aeth).collect()
}

pub(super) fn accepted(verdict: Accept) -> bool {
    matches!(verdict, Accept::Place { .. } | Accept::Read { .. } | Accept::Atomic { .. })
}

fn rc_requests() -> impl Iterator<Item = Opcode> {
    let offered = |o: &Opcode| {
        o.service() == Service::Rc
            && o.is_request()
            && !matches!(o.operation(), Operation::Flush | Operation::AtomicWrite)
    };
    Opcode::ALL.iter().copied().filter(offered)
}

// ---- opcode sequence (check 4) -------------------------------------------------------------

/// SEND or WRITE, for the packets that belong to a message of several.
fn family(opcode: Opcode) -> u8 {
    match opcode.value() {
        0x00..=0x05 | 0x16 | 0x17 => 1,
        0x06..=0x0B => 2,
        other => other,
    }
}

#[test]
fn every_pair_of_consecutive_opcodes() {
    let mut legal_pairs = 0;
    for first in rc_requests() {
        for second in rc_requests() {
            let mut responder = rc();
            // What a first packet that does not start a message needs before it.
            let mut psn = 0;
            if !first.starts_message() {
                let start =
                    if family(first) == 1 { Opcode::RcSendFirst } else { Opcode::RcRdmaWriteFirst };
                let dma_len = if first.ends_message() { 512 } else { 768 };
                let packet = request(start, Psn::ZERO, 256, dma_len);
                assert!(accepted(responder.on_packet(NOW, &packet, true)));
                psn = 1;
            }
            let verdict = responder.on_packet(NOW, &legal(first, psn), true);
            assert!(accepted(verdict), "{first} first: {verdict:?}");
            let packet = legal(second, psn + 1);
            let verdict = responder.on_packet(NOW, &packet, true);
            let follows = if first.ends_message() {
                second.starts_message()
            } else {
                !second.starts_message() && family(first) == family(second)
            };
            if follows {
                assert!(accepted(verdict), "{first}, {second}: {verdict:?}");
                legal_pairs += 1;
            } else {
                assert_eq!(verdict, INVALID, "{first}, {second}");
                assert!(responder.failed());
            }
        }
    }
    // 13 of the 17 opcodes end a message and 10 start one; after SEND First and Middle 4 opcodes
    // go on, after WRITE First and Middle 3.
    assert_eq!(legal_pairs, 13 * 10 + 2 * 4 + 2 * 3);
}

#[test]
fn nothing_but_a_start_is_legal_at_the_beginning() {
    for opcode in rc_requests() {
        let verdict = rc().on_packet(NOW, &legal(opcode, 0), true);
        assert_eq!(accepted(verdict), opcode.starts_message(), "{opcode}: {verdict:?}");
    }
}

#[test]
fn opcodes_of_other_services_and_responses_are_dropped() {
    for service in [QpType::Rc, QpType::Uc, QpType::Ud] {
        let own = match service {
            QpType::Rc => Service::Rc,
            QpType::Uc => Service::Uc,
            _ => Service::Ud,
        };
        for &opcode in Opcode::ALL {
            if opcode.service() == own && opcode.is_request() {
                continue;
            }
            let mut responder = Responder::new(&responder_config(service));
            let packet = request(opcode, Psn::ZERO, 1, 1);
            let verdict = responder.on_packet(NOW, &packet, true);
            assert_eq!(verdict, Accept::Drop(DropReason::Opcode), "{opcode} on {service}");
            assert!(!responder.peek_transmit(NOW));
        }
    }
}

#[test]
fn requests_that_are_not_offered_are_invalid() {
    for opcode in [Opcode::RcFlush, Opcode::RcAtomicWrite] {
        let packet = request(opcode, Psn::ZERO, 8, 8);
        assert_eq!(rc().on_packet(NOW, &packet, true), INVALID, "{opcode}");
    }
    let packet = PacketDesc { ext: Ext::None, ..read(0, 8) };
    assert_eq!(rc().on_packet(NOW, &packet, true), Accept::Drop(DropReason::Header));
}

// ---- access, resources, length (checks 5 to 7) ---------------------------------------------

#[test]
fn access_flags_gate_each_operation() {
    let flags = [
        AccessFlags::empty(),
        AccessFlags::REMOTE_WRITE,
        AccessFlags::REMOTE_READ,
        AccessFlags::REMOTE_ATOMIC,
    ];
    for access in flags {
        for opcode in rc_requests().filter(|o| o.starts_message()) {
            let needed = match opcode.operation() {
                o if o.is_rdma_write() => AccessFlags::REMOTE_WRITE,
                o if o.is_atomic() => AccessFlags::REMOTE_ATOMIC,
                Operation::RdmaReadRequest => AccessFlags::REMOTE_READ,
                _ => AccessFlags::empty(),
            };
            let mut responder = rc_with(|cfg| cfg.access = access);
            let verdict = responder.on_packet(NOW, &legal(opcode, 0), true);
            if access.contains(needed) {
                assert!(accepted(verdict), "{opcode} with {access:?}");
            } else {
                assert_eq!(verdict, INVALID, "{opcode} with {access:?}");
                let expected = (0, 0, nak(NakCode::InvalidRequest));
                assert_eq!(aeths(&mut responder), [expected]);
            }
        }
    }
}

#[test]
fn a_receive_is_needed_by_the_first_send_packet_and_the_last_write_imm_packet() {
    let timer = RnrTimer::new(12).unwrap();
    for opcode in rc_requests() {
        let mut responder = rc();
        let mut psn = 0;
        if !opcode.starts_message() {
            let start =
                if family(opcode) == 1 { Opcode::RcSendFirst } else { Opcode::RcRdmaWriteFirst };
            responder.on_packet(NOW, &legal(start, 0), true);
            respond_all(&mut responder);
            psn = 1;
        }
        let verdict = responder.on_packet(NOW, &legal(opcode, psn), false);
        if opcode.consumes_recv() {
            assert_eq!(verdict, Accept::RnrNak, "{opcode}");
            assert_eq!(aeths(&mut responder), [(psn, 0, Syndrome::RnrNak { timer })]);
            assert_eq!(responder.expected_psn(), Psn::new(psn));
            // Later packets get no sequence NAK while the RNR is open.
            let verdict = responder.on_packet(NOW, &send(psn + 1), true);
            assert_eq!(verdict, Accept::Gap { nak: false });
            let again = legal(opcode, psn);
            assert_eq!(responder.on_packet(NOW, &again, false), Accept::RnrNak);
            let verdict = responder.on_packet(NOW, &again, true);
            assert!(matches!(verdict, Accept::Place { takes_recv: true, .. }), "{opcode}");
        } else {
            assert!(accepted(verdict), "{opcode}: {verdict:?}");
        }
    }
}

#[test]
fn max_dest_rd_atomic_bounds_reads_and_atomics_together() {
    for limit in 0..4u8 {
        let mut responder = rc_with(|cfg| cfg.max_dest_rd_atomic = limit);
        let mut jobs = Vec::new();
        for psn in 0..u32::from(limit) {
            let opcode = if psn % 2 == 0 { Opcode::RcRdmaReadRequest } else { Opcode::RcFetchAdd };
            match responder.on_packet(NOW, &legal(opcode, psn), true) {
                Accept::Read { job, .. } | Accept::Atomic { job, .. } => jobs.push(job),
                other => panic!("{other:?}"),
            }
        }
        let next = read(limit.into(), 8);
        // The oldest place is free again when its response has been polled.
        if limit > 0 {
            let mut other = responder.clone();
            assert!(other.poll_transmit(NOW).is_some());
            assert!(accepted(other.on_packet(NOW, &next, true)));
            assert_eq!(other.read_job(jobs[0]), None, "replaced");
        }
        assert_eq!(responder.on_packet(NOW, &next, true), INVALID);
    }
}

#[test]
fn a_place_is_free_only_after_the_last_response() {
    let mut responder = rc_with(|cfg| cfg.max_dest_rd_atomic = 1);
    responder.on_packet(NOW, &read(0, 257), true);
    for free in [false, true] {
        assert!(responder.poll_transmit(NOW).is_some());
        let verdict = responder.clone().on_packet(NOW, &read(2, 8), true);
        assert_eq!(accepted(verdict), free, "{verdict:?}");
    }
}

#[test]
fn payload_lengths_by_opcode() {
    let only = [(0, true), (1, true), (255, true), (256, true), (257, false)];
    let last = [(0, false), (1, true), (255, true), (256, true), (257, false)];
    let full = [(0, false), (1, false), (255, false), (256, true), (257, false)];
    for opcode in rc_requests().filter(|o| o.has_payload()) {
        let table = match (opcode.starts_message(), opcode.ends_message()) {
            (true, true) => only,
            (false, true) => last,
            _ => full,
        };
        for (len, fits) in table {
            let mut responder = rc();
            let mut psn = 0;
            if !opcode.starts_message() {
                let start = if family(opcode) == 1 {
                    Opcode::RcSendFirst
                } else {
                    Opcode::RcRdmaWriteFirst
                };
                let total = 256 + len + u32::from(!opcode.ends_message());
                responder.on_packet(NOW, &request(start, Psn::ZERO, 256, total), true);
                psn = 1;
            }
            let dma_len = len + u32::from(!opcode.ends_message());
            let packet = request(opcode, Psn::new(psn), len, dma_len);
            let verdict = responder.on_packet(NOW, &packet, true);
            assert_eq!(accepted(verdict), fits, "{opcode} with {len} bytes: {verdict:?}");
        }
    }
}

#[test]
fn a_write_has_exactly_the_length_of_its_reth() {
    for (announced, fits) in [(299, false), (300, true), (301, false)] {
        let mut responder = rc();
        let first = request(Opcode::RcRdmaWriteFirst, Psn::ZERO, 256, announced);
        assert!(accepted(responder.on_packet(NOW, &first, true)));
        let last = request(Opcode::RcRdmaWriteLast, Psn::new(1), 44, 0);
        assert_eq!(accepted(responder.on_packet(NOW, &last, true)), fits);
        let only = request(Opcode::RcRdmaWriteOnly, Psn::ZERO, 200, announced - 100);
        assert_eq!(accepted(rc().on_packet(NOW, &only, true)), fits);
    }
    // A middle packet may not go beyond it either.
    for (announced, fits) in [(511, false), (512, true)] {
        let mut responder = rc();
        let first = request(Opcode::RcRdmaWriteFirst, Psn::ZERO, 256, announced);
        responder.on_packet(NOW, &first, true);
        let middle = request(Opcode::RcRdmaWriteMiddle, Psn::new(1), 256, 0);
        assert_eq!(accepted(responder.on_packet(NOW, &middle, true)), fits);
    }
}

#[test]
fn no_message_is_longer_than_2_to_the_31() {
    for (len, fits) in [(1 << 31, true), ((1 << 31) + 1, false)] {
        assert_eq!(accepted(rc().on_packet(NOW, &read(0, len), true)), fits);
        let first = request(Opcode::RcRdmaWriteFirst, Psn::ZERO, 256, len);
        assert_eq!(accepted(rc().on_packet(NOW, &first, true)), fits);
    }
}

#[test]
fn no_send_grows_beyond_2_to_the_31() {
    let mut responder = rc_with(|cfg| cfg.payload = Mtu::B4096.bytes());
    let packet =
        |opcode, psn, len| PacketDesc { ack_req: false, ..request(opcode, Psn::new(psn), len, 0) };
    let full = (1 << 31) / 4096;
    for psn in 0..full - 1 {
        let opcode = if psn == 0 { Opcode::RcSendFirst } else { Opcode::RcSendMiddle };
        assert!(accepted(responder.on_packet(NOW, &packet(opcode, psn, 4096), true)));
    }
    let mut longer = responder.clone();
    let last = packet(Opcode::RcSendLast, full - 1, 4096);
    assert!(accepted(responder.on_packet(NOW, &last, true)));
    let middle = packet(Opcode::RcSendMiddle, full - 1, 4096);
    assert!(accepted(longer.on_packet(NOW, &middle, true)));
    let last = packet(Opcode::RcSendLast, full, 1);
    assert_eq!(longer.on_packet(NOW, &last, true), INVALID);
}

#[test]
fn an_atomic_is_aligned_to_8() {
    for va in BASE..BASE + 9 {
        let mut packet = legal(Opcode::RcFetchAdd, 0);
        packet.ext = Ext::Atomic { va, rkey: RKEY, swap_add: 1, compare: 0 };
        let verdict = rc().on_packet(NOW, &packet, true);
        assert_eq!(accepted(verdict), va % 8 == 0, "{verdict:?}");
    }
}

#[test]
fn the_first_failing_check_decides() {
    // No access and no receive: the access flags come first, and no RNR NAK is sent.
    let mut responder = rc_with(|cfg| cfg.access = AccessFlags::empty());
    let packet = legal(Opcode::RcRdmaWriteOnlyImm, 0);
    assert_eq!(responder.on_packet(NOW, &packet, false), INVALID);
    // No receive and a bad length: the receive comes first.
    let packet = request(Opcode::RcSendOnly, Psn::ZERO, 257, 0);
    assert_eq!(rc().on_packet(NOW, &packet, false), Accept::RnrNak);
    // Out of sequence and everything else wrong: the PSN comes first.
    let packet = request(Opcode::RcSendLast, Psn::new(1), 257, 0);
    assert_eq!(rc().on_packet(NOW, &packet, false), Accept::Gap { nak: true });
}

// ---- verdicts ------------------------------------------------------------------------------

#[test]
fn where_payload_goes_and_what_completes() {
    let mut responder = rc();
    let place = |target, len, first, last, takes_recv, completes_recv| Accept::Place {
        target,
        len,
        first,
        last,
        takes_recv,
        completes_recv,
        ack: true,
    };
    let recv = |offset| Target::Recv { offset };
    let remote = |va, dma_len| Target::Remote { va, rkey: RKEY, dma_len };
    let done =
        |op, len, imm, invalidate| Some(RecvDone { op, len, imm, invalidate, solicited: false });
    use Opcode as O;
    use WcOpcode::{Recv, RecvRdmaWithImm};
    let imm = Some(1);
    let steps = [
        (O::RcSendFirst, 256, 0, place(recv(0), 256, true, false, true, None)),
        (O::RcSendMiddle, 256, 0, place(recv(256), 256, false, false, false, None)),
        (
            O::RcSendLastInvalidate,
            3,
            0,
            place(recv(512), 3, false, true, false, done(Recv, 515, None, Some(RKEY))),
        ),
        (O::RcSendOnlyImm, 0, 0, place(recv(0), 0, true, true, true, done(Recv, 0, imm, None))),
        (O::RcRdmaWriteFirst, 256, 600, place(remote(BASE, 600), 256, true, false, false, None)),
        (
            O::RcRdmaWriteMiddle,
            256,
            0,
            place(remote(BASE + 256, 600), 256, false, false, false, None),
        ),
        (
            O::RcRdmaWriteLastImm,
            88,
            0,
            place(
                remote(BASE + 512, 600),
                88,
                false,
                true,
                true,
                done(RecvRdmaWithImm, 600, imm, None),
            ),
        ),
        (
            O::RcRdmaWriteOnlyImm,
            9,
            9,
            place(remote(BASE, 9), 9, true, true, true, done(RecvRdmaWithImm, 9, imm, None)),
        ),
        (O::RcRdmaWriteOnly, 0, 0, place(remote(BASE, 0), 0, true, true, false, None)),
    ];
    for (psn, (opcode, len, dma_len, expected)) in steps.into_iter().enumerate() {
        let packet = request(opcode, Psn::new(psn as u32), len, dma_len);
        assert_eq!(responder.on_packet(NOW, &packet, true), expected, "{opcode}");
    }
    assert_eq!(responder.msn(), Msn::new(5));
}

#[test]
fn solicited_reaches_the_receive_completion() {
    let packet = PacketDesc { solicited: true, ack_req: false, ..send(0) };
    match rc().on_packet(NOW, &packet, true) {
        Accept::Place { completes_recv: Some(done), ack, .. } => {
            assert!(done.solicited);
            assert!(!ack);
        }
        other => panic!("{other:?}"),
    }
}

// ---- PSN, MSN ------------------------------------------------------------------------------

#[test]
fn psn_and_msn_wrap() {
    let mut responder = rc_with(|cfg| cfg.rq_psn = Psn::new(0xFF_FFFD));
    assert!(accepted(responder.on_packet(NOW, &send(0xFF_FFFD), true)));
    assert!(accepted(responder.on_packet(NOW, &read(0xFF_FFFE, 1024), true)));
    assert_eq!(responder.expected_psn(), Psn::new(2));
    assert!(accepted(responder.on_packet(NOW, &send(2), true)));
    let psns: Vec<_> = respond_all(&mut responder).iter().map(|p| p.psn.value()).collect();
    assert_eq!(psns, [0xFF_FFFE, 0xFF_FFFF, 0, 1, 2]);
    assert_eq!(responder.msn(), Msn::new(3));
}

#[test]
fn msn_counts_completed_messages_reads_when_accepted() {
    let mut responder = rc();
    let (mut psn, mut told) = (0, Vec::new());
    for (opcode, psns, msn) in [
        (Opcode::RcSendFirst, 1, 0),
        (Opcode::RcSendMiddle, 1, 0),
        (Opcode::RcSendLast, 1, 1),
        (Opcode::RcRdmaWriteFirst, 1, 1),
        (Opcode::RcRdmaWriteLast, 1, 2),
        (Opcode::RcRdmaReadRequest, 2, 3),
        (Opcode::RcFetchAdd, 1, 4),
        (Opcode::RcCompareSwap, 1, 5),
        (Opcode::RcSendOnly, 1, 6),
    ] {
        let packet = match opcode {
            Opcode::RcRdmaReadRequest => read(psn, 300),
            opcode => legal(opcode, psn),
        };
        if let Accept::Atomic { job, .. } = responder.on_packet(NOW, &packet, true) {
            responder.atomic_result(job, 10);
        }
        psn += psns;
        assert_eq!((responder.expected_psn(), responder.msn()), (Psn::new(psn), Msn::new(msn)));
        told.extend(respond_all(&mut responder));
    }
    let told: Vec<_> = told
        .iter()
        .filter(|p| p.ext != Ext::None && p.opcode != Opcode::RcAcknowledge)
        .map(|p| (p.opcode, p.psn.value(), aeth(p).1))
        .collect();
    let expected = [
        (Opcode::RcRdmaReadResponseFirst, 5, 3),
        (Opcode::RcRdmaReadResponseLast, 6, 3),
        (Opcode::RcAtomicAcknowledge, 7, 4),
        (Opcode::RcAtomicAcknowledge, 8, 5),
    ];
    assert_eq!(told, expected);
}

#[test]
fn a_sequence_nak_is_repeated_after_its_span_while_the_gap_stands_and_not_before() {
    let span = Span::from_us(4);
    let at = |ns| NOW + Span::from_ns(ns);
    for (nak_repeat, second, third) in [(None, false, false), (Some(span), true, true)] {
        let mut responder = rc_with(|cfg| (cfg.rq_psn, cfg.nak_repeat) = (Psn::new(0), nak_repeat));
        let mut gap = |ns, psn| responder.on_packet(at(ns), &send(psn), true);
        assert_eq!(gap(0, 1), Accept::Gap { nak: true });
        assert_eq!(gap(3_999, 2), Accept::Gap { nak: false }, "a nanosecond early");
        assert_eq!(gap(4_000, 3), Accept::Gap { nak: second });
        assert_eq!(gap(7_999, 4), Accept::Gap { nak: false }, "counted from the last one");
        assert_eq!(gap(9_000, 5), Accept::Gap { nak: third });
        assert!(accepted(gap(9_001, 0)), "the gap is closed");
        assert_eq!(gap(9_002, 2), Accept::Gap { nak: true }, "the next one is new: at once");
        let named: Vec<u32> = aeths(&mut responder).iter().map(|(psn, ..)| *psn).collect();
        let repeated = if nak_repeat.is_some() { vec![0; 3] } else { vec![0] };
        assert_eq!(named[..repeated.len()], repeated);
        assert_eq!(named.last(), Some(&1));
        assert_eq!(responder.counters().sequence_naks_sent, 2 + 2 * u64::from(second));
    }
}

#[test]
fn duplicates_change_nothing_and_a_gap_is_reported_once() {
    for start in [0u32, 0xFF_FFFE] {
        let mut responder = rc_with(|cfg| cfg.rq_psn = Psn::new(start));
        for i in 0..3 {
            responder.on_packet(NOW, &send(start + i), true);
        }
        respond_all(&mut responder);
        let last = Psn::new(start + 2).value();
        for duplicate in [start + 2, start, start.wrapping_sub(1 << 22)] {
            let verdict = responder.on_packet(NOW, &send(duplicate), false);
            assert_eq!(verdict, Accept::Duplicate);
            assert_eq!(aeths(&mut responder), [(last, 3, ACK)]);
        }
        let verdict = responder.on_packet(NOW, &read(start, 8), true);
        assert_eq!(verdict, Accept::Duplicate);
        assert_eq!(aeths(&mut responder), []);

        for (ahead, nak) in [(4, true), (5, false), (4, false)] {
            let verdict = responder.on_packet(NOW, &send(start + ahead), true);
            assert_eq!(verdict, Accept::Gap { nak });
        }
        let expected = Psn::new(start + 3).value();
        let sequence = nak(NakCode::PsnSequenceError);
        assert_eq!(aeths(&mut responder), [(expected, 3, sequence)]);
        // The expected packet closes the gap; the next gap is a new one.
        assert!(accepted(responder.on_packet(NOW, &send(start + 3), true)));
        let verdict = responder.on_packet(NOW, &send(start + 5), true);
        assert_eq!(verdict, Accept::Gap { nak: true });
    }
}
