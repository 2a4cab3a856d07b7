//! UC and UD: no acknowledgements, a message completes when it is handed to the link.

use doorbell_core::verbs::{
    AccessFlags, Opcode, Psn, QKey, QpType, Qpn, SendFlags, WcOpcode, WcStatus, WrOpcode,
};

use super::super::*;
use super::link::{Link, Wr};
use super::{
    BASE, NOW, QKEY, RKEY, complete_all, job, request, requester_config, responder_config,
    transmit_all,
};

fn requester(service: QpType) -> Requester {
    Requester::new(&requester_config(service))
}

fn responder(service: QpType) -> Responder {
    Responder::new(&responder_config(service))
}

/// Runs work over the ideal link in a fixed order of steps.
fn run(service: QpType, jobs: &[SendJob]) -> Link {
    let bytes = |len| (0..len).map(|i| i as u8 ^ 0x5A).collect();
    let wrs: Vec<_> = jobs.iter().map(|&job| Wr { job, local: bytes(job.len) }).collect();
    let cfg = (requester_config(service), responder_config(service));
    let mut link = Link::new(&cfg.0, &cfg.1, &wrs, &vec![0; 4096]);
    let mut turn = 0;
    link.run(|n| {
        turn += 1;
        turn % n
    });
    assert!(link.requester.idle());
    assert_eq!(link.requester.outstanding(), 0);
    assert!(!link.responder.peek_transmit(link.now), "an unreliable service does not answer");
    assert_eq!(link.completions.len(), jobs.len());
    for (job, done) in jobs.iter().zip(&link.completions) {
        assert_eq!((done.wqe, done.status), (job.wqe, WcStatus::Success));
    }
    assert!(link.written.iter().flatten().all(|&n| n == 1));
    link
}

#[test]
fn uc_carries_sends_and_writes() {
    let ops = [
        (WrOpcode::Send, 700),
        (WrOpcode::RdmaWrite, 513),
        (WrOpcode::SendWithImm, 0),
        (WrOpcode::RdmaWriteWithImm, 300),
        (WrOpcode::RdmaWrite, 0),
        (WrOpcode::Send, 256),
    ];
    let jobs: Vec<_> = ops.iter().zip(0..).map(|(&(op, len), wqe)| job(wqe, op, len)).collect();
    let link = run(QpType::Uc, &jobs);
    let lens: Vec<_> = link.outcome.recvs.iter().map(|(done, _)| done.len).collect();
    assert_eq!(lens, [700, 0, 300, 256]);
}

#[test]
fn ud_carries_sends_of_one_packet_behind_the_grh_area() {
    let jobs =
        [job(0, WrOpcode::Send, 256), job(1, WrOpcode::SendWithImm, 0), job(2, WrOpcode::Send, 1)];
    let link = run(QpType::Ud, &jobs);
    let dones: Vec<_> = link.outcome.recvs.iter().map(|(done, _)| (done.len, done.imm)).collect();
    assert_eq!(dones, [(296, None), (40, Some(jobs[1].imm_or_inv)), (41, None)]);
    assert_eq!(link.outcome.recvs[2].1[40], 0x5A);
}

#[test]
fn a_message_completes_with_its_last_packet_on_the_link() {
    let mut uc = requester(QpType::Uc);
    uc.push(job(0, WrOpcode::Send, 600));
    uc.push(job(1, WrOpcode::Send, 1));
    let packets = transmit_all(&mut uc);
    assert_eq!(packets.len(), 4);
    assert!(packets.iter().all(|p| !p.ack_req));
    assert_eq!(uc.outstanding(), 4);
    uc.on_transmitted(&packets[0]);
    uc.on_transmitted(&packets[1]);
    assert!(complete_all(&mut uc).is_empty());
    uc.on_transmitted(&packets[2]);
    assert_eq!(complete_all(&mut uc).len(), 1);
    assert_eq!(uc.outstanding(), 1);
    uc.on_transmitted(&packets[3]);
    assert_eq!(complete_all(&mut uc).len(), 1);
    assert!(uc.idle());
    let mut rc = requester(QpType::Rc);
    rc.push(job(0, WrOpcode::Send, 1));
    let packets = transmit_all(&mut rc);
    rc.on_transmitted(&packets[0]);
    assert!(complete_all(&mut rc).is_empty(), "RC waits for the ACK");
}

#[test]
fn unreliable_services_know_neither_window_nor_fence() {
    let mut cfg = requester_config(QpType::Uc);
    cfg.max_outstanding_packets = 1;
    let mut uc = Requester::new(&cfg);
    for wqe in 0..3 {
        uc.push(SendJob { flags: SendFlags::FENCE, ..job(wqe, WrOpcode::Send, 600) });
    }
    assert_eq!(transmit_all(&mut uc).len(), 9);
}

#[test]
fn operations_without_an_opcode_fail() {
    for (service, legal) in [
        (
            QpType::Uc,
            &[
                WrOpcode::Send,
                WrOpcode::SendWithImm,
                WrOpcode::RdmaWrite,
                WrOpcode::RdmaWriteWithImm,
            ][..],
        ),
        (QpType::Ud, &[WrOpcode::Send, WrOpcode::SendWithImm][..]),
    ] {
        for &op in WrOpcode::ALL {
            let mut requester = requester(service);
            requester.push(job(0, op, 8));
            if legal.contains(&op) {
                assert!(requester.peek_transmit(), "{op} on {service}");
            } else {
                let done = complete_all(&mut requester);
                assert_eq!(done[0].status, WcStatus::LocQpOpErr, "{op} on {service}");
            }
        }
    }
    for (len, status) in [(256, None), (257, Some(WcStatus::LocLenErr))] {
        let mut ud = requester(QpType::Ud);
        ud.push(job(0, WrOpcode::Send, len));
        assert_eq!(complete_all(&mut ud).first().map(|done| done.status), status);
    }
}

#[test]
fn ud_packets_name_receiver_key_and_sender() {
    let mut ud = requester(QpType::Ud);
    ud.push(job(0, WrOpcode::Send, 1));
    ud.push(SendJob { dest: Qpn::new(77), ..job(1, WrOpcode::SendWithImm, 1) });
    let packets = transmit_all(&mut ud);
    let src = requester_config(QpType::Ud).qpn;
    assert_eq!(packets[0].ext, Ext::Deth { qkey: QKEY, src });
    assert_eq!(packets[0].dest, Qpn::new(19));
    assert_eq!(packets[0].opcode, Opcode::UdSendOnly);
    assert_eq!(packets[1].ext, Ext::DethImm { qkey: QKEY, src, imm: 0x0A0B_0C01 });
    assert_eq!(packets[1].dest, Qpn::new(77));
    assert_eq!(packets[1].psn, Psn::new(1));
}

#[test]
fn ud_drops_a_wrong_key_a_missing_receive_and_a_long_packet_in_silence() {
    let mut ud = responder(QpType::Ud);
    let good = request(Opcode::UdSendOnly, Psn::new(9), 256, 0);
    let wrong = Ext::Deth { qkey: QKey(5), src: Qpn::new(1) };
    let verdict = ud.on_packet(NOW, &PacketDesc { ext: wrong, ..good }, true);
    assert_eq!(verdict, Accept::Drop(DropReason::QKey));
    assert_eq!(ud.on_packet(NOW, &good, false), Accept::Drop(DropReason::NoReceive));
    let long = PacketDesc { len: 257, ..good };
    assert_eq!(ud.on_packet(NOW, &long, true), Accept::Drop(DropReason::Length));
    // Any PSN is good.
    for psn in [9, 3, 900] {
        let verdict = ud.on_packet(NOW, &PacketDesc { psn: Psn::new(psn), ..good }, true);
        assert!(matches!(verdict, Accept::Place { takes_recv: true, last: true, .. }));
    }
    assert!(!ud.peek_transmit(NOW));
}

#[test]
fn uc_drops_a_torn_message_and_goes_on_at_the_next_start() {
    let packet = |opcode, psn, len| request(opcode, Psn::new(psn), len, 512);
    let mut uc = responder(QpType::Uc);
    let first = uc.on_packet(NOW, &packet(Opcode::UcSendFirst, 0, 256), true);
    assert!(matches!(first, Accept::Place { takes_recv: true, .. }));
    // PSN 1 is lost.
    let torn = Accept::Drop(DropReason::Sequence);
    assert_eq!(uc.on_packet(NOW, &packet(Opcode::UcSendMiddle, 2, 256), true), torn);
    assert_eq!(uc.on_packet(NOW, &packet(Opcode::UcSendLast, 3, 1), true), torn);
    // PSN 4 is lost too; a start is good with any PSN.
    let next = uc.on_packet(NOW, &packet(Opcode::UcSendFirst, 5, 256), true);
    assert!(matches!(next, Accept::Place { takes_recv: true, first: true, .. }));
    let last = uc.on_packet(NOW, &packet(Opcode::UcSendLast, 6, 4), true);
    let done =
        RecvDone { op: WcOpcode::Recv, len: 260, imm: None, invalidate: None, solicited: false };
    assert!(matches!(last, Accept::Place { completes_recv: Some(d), .. } if d == done));
    // A tail is lost, and the next message starts in the place of its PSN.
    uc.on_packet(NOW, &packet(Opcode::UcRdmaWriteFirst, 7, 256), true);
    let only = uc.on_packet(NOW, &packet(Opcode::UcSendOnly, 8, 1), true);
    assert!(matches!(only, Accept::Place { last: true, .. }));
}

#[test]
fn uc_drops_what_rc_would_refuse() {
    let packet = |opcode, psn| request(opcode, Psn::new(psn), 256, 256);
    let mut uc = responder(QpType::Uc);
    let verdict = uc.on_packet(NOW, &packet(Opcode::UcSendOnly, 0), false);
    assert_eq!(verdict, Accept::Drop(DropReason::NoReceive));
    let verdict = uc.on_packet(NOW, &packet(Opcode::UcRdmaWriteOnlyImm, 1), false);
    assert_eq!(verdict, Accept::Drop(DropReason::NoReceive));
    let long = request(Opcode::UcRdmaWriteOnly, Psn::new(2), 256, 255);
    assert_eq!(uc.on_packet(NOW, &long, true), Accept::Drop(DropReason::Length));
    let mut closed = Responder::new(&ResponderConfig {
        access: AccessFlags::empty(),
        ..responder_config(QpType::Uc)
    });
    let verdict = closed.on_packet(NOW, &packet(Opcode::UcRdmaWriteOnly, 0), true);
    assert_eq!(verdict, Accept::Drop(DropReason::Access));
    // The owner's own checks: the rest of the message goes, the QP stays.
    let first = request(Opcode::UcRdmaWriteFirst, Psn::new(3), 256, 512);
    let expected = Target::Remote { va: BASE, rkey: RKEY, dma_len: 512 };
    let verdict = uc.on_packet(NOW, &first, true);
    assert!(matches!(verdict, Accept::Place { target, ack: false, .. } if target == expected));
    uc.reject(BadRequest::UnknownKey);
    let last = request(Opcode::UcRdmaWriteLast, Psn::new(4), 256, 0);
    assert_eq!(uc.on_packet(NOW, &last, true), Accept::Drop(DropReason::Sequence));
    assert!(!uc.failed());
    assert!(!uc.peek_transmit(NOW));
    let verdict = uc.on_packet(NOW, &packet(Opcode::UcSendOnly, 5), true);
    assert!(matches!(verdict, Accept::Place { .. }));
}
