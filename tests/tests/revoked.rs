//! Regions that end while messages use them (protocol reference 5.1): keys are checked whenever
//! they are used, not only when a work request begins.

use doorbell_core::transport::*;
use doorbell_core::units::Span;
use doorbell_core::verbs::{AsyncEventKind, WcStatus};

use crate::on_sim::conformance::pair::{Pair, Spec, errors, send};

/// 1 MiB takes 22 us on the wire.
const BYTES: u32 = 1 << 20;
const HALF: Span = Span::from_us(12);

fn pair() -> Pair {
    Pair::connected(Spec { region: BYTES.into(), ..Spec::default() })
}

/// Rank 0 posts `op` over the whole of its region, and 8 bytes behind it; the region of `ends` is
/// deregistered after `after`.
fn race(op: fn(Remote) -> SendOp, ends: usize, after: Span) -> Pair {
    let mut pair = pair();
    let [a, b] = pair.sides;
    let sides = pair.sides;
    pair.lab.start(0, move |t| {
        let second = [a.sge(0, 8)];
        for (wr_id, sge) in [(1, [a.sge(0, BYTES)]), (2, second)] {
            t.stage(a.qp, &send(op(b.remote(0)), wr_id, Data::Sge(&sge))).unwrap();
        }
        t.ring(a.qp, Ring::Doorbell).unwrap();
        if ends == 0 {
            t.compute(after);
            t.dereg_mr(a.mr.id).unwrap();
        }
    });
    if ends == 1 {
        pair.lab.start(1, move |t| {
            t.compute(after);
            t.dereg_mr(sides[1].mr.id).unwrap();
        });
    }
    pair.lab.settle();
    pair
}

fn placed(pair: &Pair) -> u64 {
    pair.lab.world().hosts().iter().map(|h| h.nic(0).stats.rx_payload).sum()
}

#[test]
fn a_region_ends_at_the_local_clock_of_the_call() {
    // Posted, rung and deregistered in one step; the call is later than the message takes. Nobody
    // has polled yet, so the buffer of both still belonged to the device (protocol.md §5.2).
    for (op, ends, unpolled) in
        [(SendOp::Write as fn(Remote) -> SendOp, 0, 2), (SendOp::Read, 1, 0)]
    {
        let mut pair = race(op, ends, Span::from_us(100));
        assert_eq!(errors(&pair.sent(0)), [], "{ends}");
        let in_use = |h: &doorbell_sim::host::Host| h.nic(0).stats.regions_in_use;
        assert_eq!(pair.lab.world().hosts().iter().map(in_use).sum::<u64>(), unpolled);
    }
    // And before it: no packet leaves.
    let mut pair = race(SendOp::Write, 0, Span::ZERO);
    assert_eq!(errors(&pair.sent(0)), [(1, WcStatus::LocProtErr), (2, WcStatus::WrFlushErr)]);
    assert_eq!(placed(&pair), 0);
}

#[test]
fn a_source_that_ends_halfway_is_a_local_protection_error() {
    let mut pair = race(SendOp::Write, 0, HALF);
    assert_eq!(errors(&pair.sent(0)), [(1, WcStatus::LocProtErr), (2, WcStatus::WrFlushErr)]);
    // The mistake was found when it was made.
    assert_eq!(pair.lab.world().hosts()[0].nic(0).stats.regions_in_use, 2);
    let placed = placed(&pair);
    assert!(placed > 0 && placed < BYTES.into() && placed.is_multiple_of(1024), "{placed}");
}

#[test]
fn a_result_buffer_that_ends_halfway_is_a_local_protection_error() {
    let mut pair = race(SendOp::Read, 0, HALF);
    assert_eq!(errors(&pair.sent(0)), [(1, WcStatus::LocProtErr), (2, WcStatus::WrFlushErr)]);
    let placed = placed(&pair);
    assert!(placed > 0 && placed < BYTES.into(), "{placed}");
}

#[test]
fn a_result_buffer_that_ends_before_the_only_response_is_an_error_too() {
    // The response is the last packet of its READ: nothing else would tell of it.
    let mut pair = pair();
    let [a, b] = pair.sides;
    pair.lab.start(0, move |t| {
        let sge = [a.sge(0, 8)];
        t.stage(a.qp, &send(SendOp::Read(b.remote(0)), 1, Data::Sge(&sge))).unwrap();
        t.ring(a.qp, Ring::Doorbell).unwrap();
        t.compute(Span::from_ns(1000));
        t.dereg_mr(a.mr.id).unwrap();
    });
    pair.lab.settle();
    assert_eq!(errors(&pair.sent(0)), [(1, WcStatus::LocProtErr)]);
    assert_eq!(placed(&pair), 0);
}

#[test]
fn a_target_that_ends_halfway_is_a_remote_access_error() {
    for op in [SendOp::Write as fn(Remote) -> SendOp, SendOp::Read] {
        let mut pair = race(op, 1, HALF);
        assert_eq!(errors(&pair.sent(0)), [(1, WcStatus::RemAccessErr), (2, WcStatus::WrFlushErr)]);
        let placed = placed(&pair);
        assert!(placed > 0 && placed < BYTES.into() && placed.is_multiple_of(1024), "{placed}");
        let kinds: Vec<_> = pair.events(1).iter().map(|e| e.kind).collect();
        assert_eq!(kinds, [AsyncEventKind::QpAccessErr]);
    }
}
