//! SQD (3.2): what had begun finishes, what had not stays queued, and the program hears of it once.

use doorbell_core::transport::{AsyncEvent, SendOp};
use doorbell_core::units::BitRate;
use doorbell_core::verbs::*;
use doorbell_sim::fault::PacketClass;

use super::{Setup, burst, counted, first_qp, good};
use crate::on_sim::conformance::pair::{Pair, Spec};

const MESSAGE: u32 = 1 << 16;

/// At 5 Gb/s a message takes 107 us. The NIC has read all sixteen and begun four or five, what its
/// transmit buffer of 256 KiB holds, when the QP goes to SQD.
fn slow(ty: QpType) -> Setup {
    let mut setup = Setup::new(Spec { ty, mtu: Mtu::B4096, ..Spec::default() });
    setup.rate = BitRate::gbps(5);
    setup
}

fn to_sqd(pair: &mut Pair, notify: bool) {
    pair.on(0, move |t, me| {
        use doorbell_core::transport::{Control, QpAttr};
        let attr = QpAttr { state: QpState::Sqd, ..QpAttr::default() };
        let more = if notify { QpAttrMask::EN_SQD_ASYNC_NOTIFY } else { QpAttrMask::empty() };
        assert_eq!(t.modify_qp(me.qp, &attr, QpAttrMask::STATE | more), Ok(0));
    });
}

fn drained(pair: &Pair) -> AsyncEvent {
    let qp = Some(pair.sides[0].qp);
    AsyncEvent { kind: AsyncEventKind::SqDrained, qp, cq: None, srq: None }
}

fn pass(pair: &mut Pair) {
    (0..8).for_each(|_| pair.lab.settle());
}

#[test]
fn messages_that_have_begun_finish_and_the_others_wait_for_rts() {
    for ty in [QpType::Rc, QpType::Uc] {
        let mut pair = slow(ty).connect();
        let to = pair.sides[1].remote(0);
        burst(&mut pair, SendOp::Write(to), 16, MESSAGE);
        to_sqd(&mut pair, true);
        assert_eq!(first_qp(&pair, 0).sq.fetched, 16, "all of them are inside the NIC");
        if ty == QpType::Rc {
            // UC has ended a message when the link has it: that is soon.
            assert_eq!(pair.events(0), [], "not before the last of them has ended");
        }
        pass(&mut pair);
        let first = good(&pair.sent(0));
        let begun = first.len() as u64;
        assert!((4..=6).contains(&begun), "{ty}: {first:?}");
        assert_eq!(pair.events(0), [drained(&pair)], "{ty}");
        pair.post(0, SendOp::Write(to), 16, pair.sides[0].sge(0, 8));
        pass(&mut pair);
        assert_eq!((pair.sent(0), pair.events(0)), (vec![], vec![]), "{ty}: once, and all wait");
        pair.go(0, QpState::Rts);
        pass(&mut pair);
        assert_eq!(good(&pair.sent(0)), (begun..=16).collect::<Vec<_>>(), "{ty}");
        assert_eq!(pair.events(0), [], "{ty}");
    }
}

#[test]
fn a_message_that_has_begun_is_sent_again_in_sqd_if_it_must_be() {
    let mut pair = slow(QpType::Rc).lose(PacketClass::Write, 10).connect();
    let to = pair.sides[1].remote(0);
    burst(&mut pair, SendOp::Write(to), 16, MESSAGE);
    to_sqd(&mut pair, true);
    pass(&mut pair);
    assert!((4..=6).contains(&good(&pair.sent(0)).len()));
    assert_eq!(counted(&pair, 0).packet_seq_err, 1);
    assert_eq!(pair.events(0), [drained(&pair)]);
}

#[test]
fn nobody_hears_of_it_who_did_not_ask() {
    let mut pair = slow(QpType::Rc).connect();
    let to = pair.sides[1].remote(0);
    burst(&mut pair, SendOp::Write(to), 16, MESSAGE);
    to_sqd(&mut pair, false);
    pass(&mut pair);
    assert!((4..=6).contains(&good(&pair.sent(0)).len()));
    assert_eq!(pair.events(0), []);
}

#[test]
fn an_error_in_sqd_flushes_what_waits_and_drains_nothing() {
    let mut pair = slow(QpType::Rc).connect();
    let to = pair.sides[1].remote(0);
    burst(&mut pair, SendOp::Write(to), 16, MESSAGE);
    to_sqd(&mut pair, true);
    pair.go(0, QpState::Err);
    pass(&mut pair);
    let sent = pair.sent(0);
    assert_eq!(sent.len(), 16);
    assert_eq!(pair.events(0), []);
}
