//! Events of the port (3.4): a cable that goes down and comes back.

use doorbell_core::transport::SendOp;
use doorbell_core::units::{Span, Time};
use doorbell_core::verbs::{AckTimeout, AsyncEventKind};
use doorbell_sim::fabric::End;
use doorbell_sim::fault::{Fault, LinkName, Matcher, PacketVerdict, Window};

use super::{Setup, burst, good};
use crate::on_sim::conformance::pair::{Pair, Spec};

fn down(id: &str, after: u64, before: Time) -> Fault {
    let window = Window { after: Time::ZERO + Span::from_us(after), before };
    let link = Some(LinkName::between(End::Host(0), End::Host(1)));
    Fault::packets(id, Matcher { link, window, ..Matcher::default() }, PacketVerdict::LinkDown)
        .maybe()
}

fn us(n: u64) -> Time {
    Time::ZERO + Span::from_us(n)
}

fn kinds(pair: &mut Pair, rank: usize) -> Vec<AsyncEventKind> {
    pair.events(rank).iter().map(|e| e.kind).collect()
}

#[test]
fn both_ends_hear_of_it_and_messages_go_on_afterwards() {
    let mut setup = Setup::new(Spec::default());
    setup.attr.timeout = AckTimeout::new(8).unwrap();
    setup.plan.faults = vec![down("first", 5_000, us(6_000)), down("second", 5_500, us(6_500))];
    let mut pair = setup.connect();
    while super::now(&pair) < us(4_000) {
        pair.lab.settle();
    }
    assert_eq!((kinds(&mut pair, 0), kinds(&mut pair, 1)), (vec![], vec![]));
    while super::now(&pair) < us(5_600) {
        pair.lab.settle();
    }
    for rank in 0..2 {
        assert_eq!(kinds(&mut pair, rank), [AsyncEventKind::PortErr], "once for both faults");
    }
    let to = pair.sides[1].remote(0);
    burst(&mut pair, SendOp::Write(to), 1, 8);
    while super::now(&pair) < us(8_000) {
        pair.lab.settle();
    }
    for rank in 0..2 {
        assert_eq!(kinds(&mut pair, rank), [AsyncEventKind::PortActive]);
    }
    assert_eq!(good(&pair.sent(0)), [0]);
}

#[test]
fn a_cable_that_stays_down_comes_back_for_nobody() {
    let mut setup = Setup::new(Spec::default());
    setup.plan.faults = vec![down("for ever", 5_000, Time::MAX)];
    let mut pair = setup.connect();
    while super::now(&pair) < us(9_000) {
        pair.lab.settle();
    }
    assert_eq!(kinds(&mut pair, 0), [AsyncEventKind::PortErr]);
}
