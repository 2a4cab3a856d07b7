//! Shared receive queues in the simulator: what only shows where messages take time and the wire
//! can be counted (protocol reference 5.4).

use std::collections::BTreeMap;

use doorbell::workloads::connect::ALL_RIGHTS;
use doorbell_core::transport::*;
use doorbell_core::units::{Span, Time};
use doorbell_core::verbs::*;
use proptest::prelude::*;

use crate::on_sim::conformance::cq_srq::Shared;
use crate::on_sim::conformance::pair::{HOST, Pair, Side, Spec, attributes, errors, send};
use doorbell_sim::engine::observe::StageRecord;
use doorbell_sim::rc::Rules;
use doorbell_sim::world::WorldConfig;
use doorbell_tests::lab::sim::Lab;
use doorbell_tests::machine;

#[test]
fn receives_are_taken_in_order_and_complete_in_any() {
    let spec = Spec { mtu: Mtu::B256, access: ALL_RIGHTS, ..Spec::default() };
    let mut s = Shared::new(spec, 8);
    s.fill_of(16_384, 0..2);
    let [long, short] = s.from;
    s.pair.on(0, move |t, me| {
        // 64 packets, and one that overtakes most of them: the QPs send in turn.
        t.stage(long, &send(SendOp::Send, 1, Data::Sge(&[me.sge(0, 16_384)]))).unwrap();
        t.ring(long, Ring::Doorbell).unwrap();
        t.compute(Span::from_ns(500));
        t.stage(short, &send(SendOp::Send, 2, Data::Inline(&[7; 8]))).unwrap();
        t.ring(short, Ring::Doorbell).unwrap();
    });
    let got = s.pair.received(1);
    let seen: Vec<_> = got
        .iter()
        .map(|c| match *c {
            Completion::Recv { wr_id, qp, len, .. } => (wr_id, qp, len),
            other => panic!("{other:?}"),
        })
        .collect();
    let [long, short] = s.to;
    assert_eq!(seen, [(1, short, 8), (0, long, 16_384)], "the first receive completes last");
}

#[test]
fn an_empty_srq_sends_an_rnr_nak_to_each_qp_that_needs_a_receive() {
    let mut s = Shared::new(Spec::default(), 8);
    s.fill_of(64, 0..1);
    s.send(0, 1);
    s.send(0, 2);
    s.send(1, 3);
    let naks = |s: &Shared| -> Vec<u64> {
        let host = &s.pair.lab.world().hosts()[1];
        let with = host.nic(0).qps().filter(|(_, q)| q.srq.is_some());
        with.map(|(_, q)| q.hw_counters().rnr_nak_sent).collect()
    };
    assert!(naks(&s).iter().all(|n| *n > 0), "{:?}", naks(&s));
    assert_eq!(s.pair.received(1).len(), 1);
    // No fairness and no loss: both go on when there is room.
    s.fill_of(64, 1..3);
    for _ in 0..20 {
        s.pair.lab.settle();
    }
    assert_eq!((s.pair.received(1).len(), errors(&s.pair.sent(0))), (2, vec![]));
}

/// A connected pair on devices of their own kind.
fn pair_with(rules: Rules) -> Pair {
    let spec = Spec::default();
    let mut host = machine::quiet_host();
    host.rc.rules = rules;
    let mut lab = Lab::on(machine::world_of(host, 2, 1), &[0, 1]);
    let sides = [0, 1].map(|rank| lab.call(rank, move |t| Side::open(t, &spec)));
    let mut pair = Pair { lab, spec, sides, ah: None };
    pair.advance(1, 3);
    pair.advance(0, 3);
    pair
}

/// Packets that reach rank 1 when a QP of rank 0 sends four messages to it and the last ACK was
/// sent with nothing left to take.
fn burst_after_an_empty_ack(to_srq: bool) -> u64 {
    let mut s = Shared::between(pair_with(Rules { credits: true, ..Rules::DEFAULT }), 8);
    let (from, first) = if to_srq { (s.from[0], 0) } else { (s.pair.sides[0].qp, 1) };
    if to_srq {
        s.fill_of(64, 0..1);
    } else {
        s.pair.recv(1, first, 0, 64);
    }
    let mut burst = |n: u64| {
        s.pair.on(0, move |t, _| {
            for i in 0..n {
                t.stage(from, &send(SendOp::Send, i, Data::Inline(&[1]))).unwrap();
            }
            t.ring(from, Ring::Doorbell).unwrap();
        });
        s.pair.lab.settle();
        s.pair.lab.world().hosts()[1].nic(0).stats.rx_packets
    };
    let before = burst(1);
    burst(4) - before
}

#[test]
fn an_ack_of_a_qp_with_an_srq_limits_nobody() {
    // Without credit one message more may begin. With an SRQ the code is 31, no limit, though
    // it is as empty: all four go out, and the RNR NAK answers the first.
    assert_eq!([burst_after_an_empty_ack(false), burst_after_an_empty_ack(true)], [1, 4]);
}

/// Posts a receive, goes to ERR, posts a send and a receive; the flushes of both queues.
fn flushed(rules: Rules) -> [Vec<u64>; 2] {
    let mut pair = pair_with(rules);
    pair.go(0, QpState::Sqd);
    pair.post(0, SendOp::Send, 1, pair.sides[0].sge(0, 8));
    pair.recv(0, 10, 0, 64);
    pair.go(0, QpState::Err);
    pair.post(0, SendOp::Send, 2, pair.sides[0].sge(0, 8));
    pair.recv(0, 11, 0, 64);
    let ids = |c: Vec<Completion>| errors(&c).into_iter().map(|(id, _)| id).collect();
    [ids(pair.sent(0)), ids(pair.received(0))]
}

#[test]
fn devices_that_forget_late_sends_or_flush_no_receives() {
    let all = Rules::DEFAULT;
    assert_eq!(flushed(all), [vec![1, 2], vec![10, 11]]);
    assert_eq!(flushed(Rules { flush_late_sends: false, ..all }), [vec![1], vec![10, 11]]);
    assert_eq!(flushed(Rules { flush_receives: false, ..all }), [vec![1, 2], vec![]]);
    assert_eq!(flushed(Rules::RXE), [vec![1, 2], vec![10, 11]]);
}

#[test]
fn a_device_without_the_last_wqe_event() {
    for (rules, events) in [(Rules::DEFAULT, 1), (Rules::RXE, 0)] {
        let mut s = Shared::between(pair_with(rules), 8);
        let qp = s.to[0];
        s.pair.on(1, move |t, _| {
            let attr = QpAttr { state: QpState::Err, ..QpAttr::default() };
            t.modify_qp(qp, &attr, QpAttrMask::STATE).unwrap();
        });
        assert_eq!(s.pair.events(1).len(), events, "{rules:?}");
    }
}

/// A message of 64 packets is on its way to an SRQ of two, and after `delay` its QP goes to ERR.
/// Receives left; whether the one that was taken was flushed.
fn err_in_a_message(delay: Span) -> (u32, bool) {
    let mut s = Shared::new(Spec { mtu: Mtu::B256, ..Spec::default() }, 8);
    s.fill_of(16_384, 0..2);
    let (from, to, me) = (s.from[0], s.to[0], s.pair.sides);
    s.pair.lab.start(1, move |t| {
        t.compute(delay);
        let attr = QpAttr { state: QpState::Err, ..QpAttr::default() };
        t.modify_qp(to, &attr, QpAttrMask::STATE).unwrap();
    });
    s.pair.lab.start(0, move |t| {
        let list = [me[0].sge(0, 16_384)];
        t.stage(from, &send(SendOp::Send, 1, Data::Sge(&list))).unwrap();
        t.ring(from, Ring::Doorbell).unwrap();
    });
    let (mut events, mut seen) = (vec![], vec![]);
    for _ in 0..20 {
        let (event, got) = s.pair.on(1, |t, me| {
            let mut c = Completions::with_capacity(4);
            // The event first: what it is about has been written by then.
            let event = t.next_event();
            t.poll_cq(me.recv_cq, &mut c).unwrap();
            (event, c.as_slice().to_vec())
        });
        let flushed = !errors(&got).is_empty();
        assert!(!flushed || events.is_empty(), "its completion comes behind the event");
        events.extend(event);
        seen.extend(got);
    }
    let kinds: Vec<_> = events.iter().map(|e| (e.kind, e.qp)).collect();
    assert_eq!(kinds, [(AsyncEventKind::QpLastWqeReached, Some(to))], "once");
    let left = s.pair.lab.world().hosts()[1].nic(0).srqs().next().unwrap().1.len();
    assert_eq!(seen.len() as u32 + left, 2, "each is completed or still there");
    (left, errors(&seen) == [(0, WcStatus::WrFlushErr)])
}

#[test]
fn the_last_wqe_event_comes_behind_the_completion_of_the_receive_that_was_taken() {
    let ends: Vec<_> = (1..32).map(|n| err_in_a_message(Span::from_ns(400 * n))).collect();
    assert_eq!(ends[0], (2, false), "before the first packet: nothing was taken");
    assert!(ends.contains(&(1, true)), "in the message: its receive alone is flushed");
    assert_eq!(*ends.last().unwrap(), (1, false), "behind it: it was completed");
}

#[test]
fn posted_receives_are_counted_until_they_are_taken_or_gone() {
    let mut s = Shared::new(Spec::default(), 8);
    let posted = |s: &Shared| {
        let p = s.pair.lab.world().hosts()[1].nic(0).posted_receives();
        (p.wqes, p.bytes, p.peak_wqes, p.peak_bytes)
    };
    assert_eq!(posted(&s), (0, 0, 0, 0));
    s.fill_of(64, 0..4);
    s.send(0, 1);
    assert_eq!(posted(&s), (3, 192, 4, 256));
    s.pair.advance(1, 1);
    s.pair.recv(1, 9, 0, 1000);
    assert_eq!(posted(&s), (4, 1192, 4, 1192), "the two peaks are of different moments");
    s.pair.go(1, QpState::Reset);
    assert_eq!(posted(&s), (3, 192, 4, 1192));
    let (srq, qps) = (s.srq, s.to);
    s.pair.on(1, move |t, _| {
        for qp in qps {
            t.destroy_qp(qp).unwrap();
        }
        t.destroy_srq(srq).unwrap();
    });
    s.pair.lab.settle();
    assert_eq!(posted(&s), (0, 0, 4, 1192));
}

#[test]
fn completions_that_go_with_a_queue_pair_are_counted() {
    for drained in [true, false] {
        let mut pair = Pair::rc();
        pair.go(0, QpState::Err);
        pair.post(0, SendOp::Send, 1, pair.sides[0].sge(0, 8));
        pair.recv(0, 10, 0, 64);
        if drained {
            assert_eq!((pair.sent(0).len(), pair.received(0).len()), (1, 1));
        }
        pair.on(0, |t, me| t.destroy_qp(me.qp).unwrap());
        pair.lab.settle();
        let lost = pair.lab.world().hosts()[0].nic(0).stats.completions_lost;
        assert_eq!(lost, if drained { 0 } else { 2 });
    }
}

/// Rank 0 posts SENDs on as many queue pairs as there are entries, so many on each, behind an
/// ATOMIC where that is said, and rings all at once; their peers share an SRQ. What became of them.
fn burst(config: &WorldConfig, counts: &[(u32, bool)]) -> (Vec<StageRecord>, Vec<Completion>) {
    let spec = Spec { cq_depth: 1024, ..Spec::default() };
    let mut lab = Lab::on(config.clone(), &[0, 1]);
    let sides = [0, 1].map(|rank| lab.call(rank, move |t| Side::open(t, &spec)));
    let n = counts.len();
    let ends = [1, 0].map(|rank: usize| {
        let side = sides[rank];
        lab.call(rank, move |t| {
            let srq = (rank == 1).then(|| t.create_srq(side.pd, 1024).unwrap());
            let init = QpInit {
                ty: QpType::Rc,
                pd: side.pd,
                send_cq: side.send_cq,
                recv_cq: side.recv_cq,
                srq,
                size: spec.size,
                sq_sig_all: false,
                queue_memory: HOST,
            };
            let make = |_| {
                let qp = t.create_qp(&init).unwrap();
                (qp, t.endpoint(qp).unwrap())
            };
            ((0..n).map(make).collect::<Vec<_>>(), srq)
        })
    });
    let [(to, srq), (from, _)] = ends;
    for (rank, mine, theirs) in [(1, to.clone(), from.clone()), (0, from.clone(), to)] {
        lab.call(rank, move |t| {
            for ((qp, me), (_, peer)) in mine.iter().zip(&theirs) {
                for (attr, mask) in attributes(&spec, me, peer) {
                    t.modify_qp(*qp, &attr, mask).unwrap();
                }
            }
        });
        lab.settle();
    }
    let (counts, srq) = (counts.to_vec(), srq.expect("of rank 1"));
    let total: u32 = counts.iter().map(|(n, _)| n).sum();
    lab.call(1, move |t| {
        for wr_id in 0..u64::from(total) {
            let wr = RecvWr { wr_id, sge: sides[1].sge(64 * wr_id, 64) };
            t.post_recv(RecvQueue::Srq(srq), &[wr]).unwrap();
        }
    });
    lab.settle();
    lab.call(0, move |t| {
        for (&(qp, _), (n, behind_atomic)) in from.iter().zip(&counts) {
            if *behind_atomic {
                let op = SendOp::FetchAdd { remote: sides[1].remote(0), add: 1 };
                t.stage(qp, &send(op, 99, Data::Sge(&[sides[0].sge(0, 8)]))).unwrap();
            }
            for i in 0..*n {
                t.stage(qp, &send(SendOp::Send, i.into(), Data::Inline(&[7; 8]))).unwrap();
            }
        }
        for (qp, _) in from {
            t.ring(qp, Ring::Doorbell).unwrap();
        }
    });
    (0..4).for_each(|_| lab.settle());
    let cq = sides[1].recv_cq;
    let received = lab.call(1, move |t| {
        let mut out = Completions::with_capacity(1024);
        t.poll_cq(cq, &mut out).unwrap();
        out.as_slice().to_vec()
    });
    (lab.world().timeline().records().to_vec(), received)
}

/// When each message came out of the receive unit, and when it had its receive, in the order of the
/// former.
fn came_and_taken(records: &[StageRecord]) -> Vec<(Time, Time)> {
    let of = |stage: &str| -> BTreeMap<u64, &StageRecord> {
        records.iter().filter(|r| r.stage == stage).map(|r| (r.subject, r)).collect()
    };
    let placed = of("payload write (PCIe)");
    let came = of("peer NIC receive unit").into_iter();
    let mut both: Vec<_> = came.filter_map(|(s, r)| Some((r.end, placed.get(&s)?.start))).collect();
    both.sort();
    both
}

proptest! {
    /// Whoever sent it, the message that came first has the first receive that is read.
    #[test]
    fn receives_of_an_srq_go_to_messages_as_they_come(
        counts in proptest::collection::vec(1..16_u32, 1..12),
        (rq_fetch, rx_count) in (1..20_u32, 1..4_u16),
    ) {
        let mut host = machine::quiet_host();
        (host.nic.rq_fetch, host.nic.rx_count) = (rq_fetch, rx_count);
        let config = WorldConfig { timeline: 1 << 16, ..machine::world_of(host, 2, 1) };
        let counts: Vec<_> = counts.into_iter().map(|n| (n, false)).collect();
        let (records, received) = burst(&config, &counts);
        let total = counts.iter().map(|(n, _)| *n as usize).sum::<usize>();
        let both = came_and_taken(&records);
        prop_assert_eq!((both.len(), received.len()), (total, total));
        for pair in both.windows(2) {
            prop_assert!(pair[0].1 <= pair[1].1 || pair[0].0 == pair[1].0, "{:?}", pair);
        }
    }

    /// What waits behind an ATOMIC of its queue pair keeps nobody else, and has its receive in the
    /// end.
    #[test]
    fn a_queue_pair_behind_an_atomic_keeps_no_other(
        counts in proptest::collection::vec((1..8_u32, any::<bool>()), 2..8),
        rq_fetch in 1..8_u32,
    ) {
        let mut host = machine::quiet_host();
        host.nic.rq_fetch = rq_fetch;
        // Longer than all fetches together.
        host.nic.atomic.unit = Span::from_us(40);
        let (_, received) = burst(&machine::world_of(host, 2, 1), &counts);
        let mut order: Vec<(u64, bool)> = vec![];
        for c in &received {
            let Completion::Recv { wr_id, qp, .. } = *c else { panic!("{c:?}") };
            order.push((wr_id, counts[qp.index() as usize - 1].1));
        }
        order.sort();
        let late = order.partition_point(|(_, behind)| !behind);
        prop_assert!(order[late..].iter().all(|(_, behind)| *behind), "{:?}", order);
        prop_assert_eq!(order.len() as u32, counts.iter().map(|(n, _)| n).sum::<u32>());
    }
}
