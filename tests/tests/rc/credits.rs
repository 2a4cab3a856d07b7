//! End-to-end credits (2.6) between two NICs.

use doorbell_core::transport::{Data, RecvQueue, RecvWr, Ring, SendOp, Transport};
use doorbell_core::verbs::*;
use doorbell_sim::rc::{LimitedWqe, Stall};

use super::{Setup, burst, counted, first_qp, good};
use crate::on_sim::conformance::pair::{Pair, Spec, send};

fn world(credits: bool, limited: LimitedWqe) -> Pair {
    let mut setup = Setup::new(Spec::default());
    setup.host.rc.rules.credits = credits;
    setup.host.rc.rules.limited_wqe = limited;
    // Long enough that no wait ends within a test.
    setup.attr.min_rnr_timer = RnrTimer::new(0).unwrap();
    setup.connect()
}

fn stall(pair: &Pair) -> Option<Stall> {
    first_qp(pair, 0).requester.as_ref().unwrap().blocked_by()
}

fn post_receives(pair: &mut Pair, ids: std::ops::Range<u64>) {
    pair.on(1, move |t, me| {
        let wrs: Vec<_> = ids.map(|wr_id| RecvWr { wr_id, sge: me.sge(0, 4096) }).collect();
        t.post_recv(RecvQueue::Qp(me.qp), &wrs).unwrap();
    });
    pair.lab.settle();
}

#[test]
fn without_credits_overload_shows_as_rnr_naks_and_with_them_as_a_wait() {
    for (credits, sent) in [(false, 4), (true, 2)] {
        let mut pair = world(credits, LimitedWqe::FirstPacket);
        // The first SEND tells of three receives, which become three credits.
        post_receives(&mut pair, 0..4);
        burst(&mut pair, SendOp::Send, 1, 8);
        pair.lab.settle();
        burst(&mut pair, SendOp::Send, 3, 8);
        pair.lab.settle();
        assert_eq!(counted(&pair, 1).rnr_nak_sent, 0);
        assert_eq!(good(&pair.sent(0)).len(), 4);
        // One more: one message has a credit, the next is the limited one, and the others wait.
        post_receives(&mut pair, 4..5);
        let before = super::nic(&pair, 0).stats.tx_packets;
        burst(&mut pair, SendOp::Send, 4, 8);
        pair.lab.settle();
        assert_eq!(super::nic(&pair, 0).stats.tx_packets - before, sent, "credits {credits}");
        assert_eq!(counted(&pair, 1).rnr_nak_sent, 1, "for the first that has no receive");
        assert_eq!(good(&pair.sent(0)).len(), 1);
    }
}

#[test]
fn the_limited_message_sends_its_first_packet_or_all_of_it() {
    for (rule, sent) in [(LimitedWqe::FirstPacket, 1), (LimitedWqe::WholeMessage, 4)] {
        let mut pair = world(true, rule);
        burst(&mut pair, SendOp::Send, 2, 4096);
        pair.lab.settle();
        // No credit was ever given: the first message is the limited one, and it got an RNR NAK.
        assert_eq!(super::nic(&pair, 0).stats.tx_packets, sent, "{rule:?}");
        assert_eq!(counted(&pair, 1).rnr_nak_sent, 1, "{rule:?}");
        assert_eq!(stall(&pair), Some(Stall::Rnr));
    }
}

#[test]
fn writes_take_no_credit() {
    let mut pair = world(true, LimitedWqe::FirstPacket);
    let to = pair.sides[1].remote(0);
    burst(&mut pair, SendOp::Write(to), 16, 8);
    assert_eq!(good(&pair.sent(0)).len(), 16);
}

#[test]
fn code_31_is_sent_with_an_srq_or_without_the_setting() {
    // Nothing limits the sender: it runs into RNR NAKs at once, with the whole burst out.
    let mut pair = world(false, LimitedWqe::FirstPacket);
    burst(&mut pair, SendOp::Send, 4, 8);
    pair.lab.settle();
    assert_eq!(super::nic(&pair, 0).stats.tx_packets, 4);
}

/// A sender that was told of no credit sends one limited message; what follows it waits. A ghost
/// ACK, sent because receives are posted, frees it before that one is answered.
#[test]
fn a_blocked_sender_is_freed_by_a_ghost_ack() {
    let mut pair = world(true, LimitedWqe::FirstPacket);
    post_receives(&mut pair, 0..1);
    burst(&mut pair, SendOp::Send, 1, 8);
    assert_eq!(good(&pair.sent(0)), [0]);
    let acks = super::nic(&pair, 1).stats.tx_acks;
    assert_eq!(acks, 1, "it told of code 0");
    post_receives(&mut pair, 1..4);
    assert_eq!(super::nic(&pair, 1).stats.tx_acks, acks + 1, "one ghost ACK");
    post_receives(&mut pair, 4..8);
    assert_eq!(super::nic(&pair, 1).stats.tx_acks, acks + 1, "and only one");
    assert_eq!(counted(&pair, 0).stale_responses, 1, "it acknowledges nothing new");
    // Three credits, and one limited message beyond them: four leave in one burst.
    pair.on(0, |t, me| {
        for i in 1..=7 {
            t.stage(me.qp, &send(SendOp::Send, i, Data::Inline(&[1; 8]))).unwrap();
        }
        t.ring(me.qp, Ring::Doorbell).unwrap();
    });
    assert_eq!(good(&pair.sent(0)), [1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(counted(&pair, 1).rnr_nak_sent, 0);
}
