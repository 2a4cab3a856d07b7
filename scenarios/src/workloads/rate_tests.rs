//! Rates on the ideal back end.

use super::common::Op;
use super::rate::*;
use super::responder::{Responder, ResponderConfig};
use super::{Failure, Results, Sharing};
use doorbell_core::ideal::{Ideal, Limits, Place, Stalled, run};
use doorbell_core::transport::Initiator;
use doorbell_core::units::Span;
use proptest::prelude::*;

fn play(config: RateConfig) -> (Results, Results, Result<(), Stalled>) {
    let mut peer = ResponderConfig::to(0);
    peer.links[0].link.qps = config.link.qps;
    let (mut a, mut b) = (Rate::new(config), Responder::new(peer));
    let end = run(&mut Ideal::new(2), &mut [&mut a, &mut b]);
    (a.results().clone(), b.results().clone(), end)
}

fn config(messages: u64) -> RateConfig {
    RateConfig { stop: Stop::Messages(messages), ..RateConfig::to(1) }
}

#[test]
fn a_ring_announces_exactly_a_batch() {
    let mut c = config(1000);
    (c.batch, c.signal_every, c.link.qps) = (16, 16, 4);
    let (r, _, end) = play(c);
    end.unwrap();
    // 250 messages per QP: 15 full batches and one of ten.
    assert_eq!((r.messages, r.rings, r.unconfirmed, r.failure), (1000, 64, 0, None));
    assert_eq!(r.window.unwrap().messages, 1000);
}

#[test]
fn a_staging_area_smaller_than_the_batch_costs_more_rings() {
    let mut c = config(256);
    (c.batch, c.depth) = (128, 128);
    let (r, _, end) = play(c);
    end.unwrap();
    // 64 may be staged at a time.
    assert_eq!((r.messages, r.rings), (256, 4));
}

#[test]
fn slots_of_which_none_is_signalled_never_come_back() {
    let mut c = config(1000);
    (c.signal_every, c.depth) = (129, 128);
    let (r, _, end) = play(c);
    assert!(matches!(end, Err(Stalled::NoProgress { unrung: 0, .. })));
    assert_eq!(r.messages, 0);
    let mut c = config(1000);
    (c.signal_every, c.depth) = (128, 128);
    assert_eq!(play(c).0.messages, 1000);
}

#[test]
fn a_queue_pair_that_signals_everything_completes_every_message() {
    let mut c = config(8);
    (c.signal_every, c.link.signal_all) = (4, true);
    assert_eq!(play(c.clone()).0.messages, 8);
    c.depth = 4;
    let (r, _, end) = play(c);
    end.unwrap();
    assert_eq!((r.messages, r.unconfirmed, r.failure), (8, 0, None));
}

#[test]
fn a_batch_waits_for_its_oldest_message_and_no_longer() {
    let mut c = config(100);
    c.arrivals = Arrivals::Every(Span::from_us(1));
    (c.batch, c.latencies) = (8, true);
    c.max_delay = Some(Span::from_us(3));
    let (r, _, end) = play(c.clone());
    end.unwrap();
    // Without time on the wire a batch is rung 3 us after its first message: 4 messages.
    assert_eq!((r.messages, r.rings), (100, 25));
    assert_eq!(r.latencies.iter().max(), Some(&Span::from_us(3)));
    assert_eq!(r.last.unwrap().since(r.first.unwrap()), Span::from_us(99));
    c.max_delay = None;
    let (r, _, _) = play(c);
    // 12 full batches, and the last four when no more come.
    assert_eq!((r.messages, r.rings), (100, 13));
    assert_eq!(r.latencies.iter().max(), Some(&Span::from_us(7)));
}

#[test]
fn time_ends_a_run_that_has_no_number_of_messages() {
    let mut c = RateConfig::to(1);
    c.stop = Stop::After(Span::from_us(10));
    c.arrivals = Arrivals::Every(Span::from_us(3));
    // At 0, 3, 6 and 9 us.
    assert_eq!(play(c).0.messages, 4);
}

#[test]
fn completions_wait_for_the_next_poll() {
    let mut c = config(3);
    (c.depth, c.latencies) = (1, true);
    c.poll_interval = Some(Span::from_us(5));
    let (r, ..) = play(c);
    assert_eq!(r.latencies, [Span::from_us(5); 3]);
}

#[test]
fn the_warm_up_is_counted_and_not_measured() {
    let mut c = config(100);
    (c.warm_up, c.latencies, c.poll_batch) = (40, true, 1);
    let (r, ..) = play(c);
    assert_eq!((r.messages, r.latencies.len()), (100, 60));
    assert_eq!(r.window.unwrap().messages, 60);
}

#[test]
fn contradictions_are_refused() {
    let wrong: [fn(&mut RateConfig); 6] = [
        |c| c.depth = 0,
        |c| c.depth = 129,
        |c| c.batch = 129,
        |c| c.stop = Stop::Messages(0),
        |c| c.arrivals = Arrivals::Every(Span::ZERO),
        |c| (c.sharing, c.latencies) = (Sharing::Owner { sharers: vec![] }, true),
    ];
    for change in wrong {
        let mut c = RateConfig::to(1);
        change(&mut c);
        let mut a = Rate::new(c);
        run(&mut Ideal::new(1), &mut [&mut a]).unwrap();
        assert!(matches!(a.results().failure, Some(Failure::Config(_))));
    }
}

/// Rank 0 owns, ranks 1 and 2 are its sharers, rank 3 is the peer on another host.
fn share(signal_every: u32, batch: u32) -> Vec<Results> {
    let place = |host, core| Place { host, initiator: Initiator::Cpu { core, numa: 0 } };
    let places = [place(0, 0), place(0, 1), place(0, 2), place(1, 0)];
    let rate = |sharing| {
        let mut c = RateConfig { sharing, ..RateConfig::to(3) };
        (c.stop, c.signal_every, c.batch) = (Stop::Messages(500), signal_every, batch);
        (c.depth, c.link.size.max_send_wr, c.link.qps) = (32, 32, 2);
        c.shape.op = Op::Send;
        Rate::new(c)
    };
    let mut owner = rate(Sharing::Owner { sharers: vec![1, 2] });
    let (mut s1, mut s2) =
        (rate(Sharing::Attached { owner: 0 }), rate(Sharing::Attached { owner: 0 }));
    let mut peer = ResponderConfig::to(0);
    peer.links[0].link.qps = 2;
    let mut peer = Responder::new(peer);
    let mut world = Ideal::with_places(&places, Limits::default());
    run(&mut world, &mut [&mut owner, &mut s1, &mut s2, &mut peer]).unwrap();
    vec![owner.results(), s1.results(), s2.results(), peer.results()].into_iter().cloned().collect()
}

#[test]
fn the_owner_sees_the_completions_of_all_sharers() {
    for (signal_every, batch) in [(1, 1), (8, 4)] {
        let r = share(signal_every, batch);
        assert!(r.iter().all(|r| r.failure.is_none()));
        assert_eq!((r[0].messages, r[1].messages, r[1].unconfirmed), (1500, 0, 500));
        assert_eq!(r[3].received, 1500);
    }
}

proptest! {
    /// Whatever the queues' shape, every message completes once and the peer sees it.
    #[test]
    fn every_message_completes_once(
        messages in 1_u64..400, qps in 1_u32..5, depth in 1_u32..40, batch in 1_u32..40,
        signal in 1_u32..40, poll_batch in 1_usize..40, paced: bool,
    ) {
        let mut c = config(messages);
        (c.link.qps, c.depth, c.batch) = (qps, depth, batch.min(depth));
        (c.signal_every, c.poll_batch, c.latencies) = (signal.min(depth), poll_batch, true);
        c.shape.op = Op::SendImm;
        if paced {
            c.arrivals = Arrivals::Every(Span::from_ns(10));
        }
        let (a, b, end) = play(c);
        prop_assert_eq!(end, Ok(()));
        prop_assert_eq!((a.messages, a.unconfirmed, b.received), (messages, 0, messages));
        prop_assert_eq!(a.latencies.len() as u64, messages);
    }
}
