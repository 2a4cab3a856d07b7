//! When the slot of a send WQE comes back (5.3, §10 row 12): by poll or by completion.

use doorbell_core::transport::*;
use doorbell_core::verbs::*;
use doorbell_sim::rc::SlotReclaim;

use super::{Setup, nic};
use crate::on_sim::conformance::pair::{Pair, Spec, send};

const DEPTH: u32 = 16;

fn pair(reclaim: SlotReclaim) -> Pair {
    let mut setup = Setup::new(Spec::default());
    setup.host.rc.rules.slot_reclaim = reclaim;
    setup.connect()
}

/// Stages WRITEs of 64 bytes until the queue is full or `most` are staged, rings, and lets the
/// machine come to rest. Gives how many were taken.
fn fill(pair: &mut Pair, flags: SendFlags, most: u64) -> u64 {
    let to = pair.sides[1].remote(0);
    let taken = pair.on(0, move |t, me| {
        let list = [me.sge(0, 64)];
        let mut taken = 0;
        while taken < most {
            let wr = SendWr { flags, ..send(SendOp::Write(to), taken, Data::Sge(&list)) };
            match t.stage(me.qp, &wr) {
                Ok(()) => taken += 1,
                Err(StageError::SqFull) => break,
                Err(e) => panic!("{e}"),
            }
        }
        t.ring(me.qp, Ring::Auto).unwrap();
        taken
    });
    pair.lab.settle();
    taken
}

#[test]
fn a_sender_that_signals_nothing_stops_at_its_depth_or_goes_on_for_ever() {
    for (reclaim, rounds) in
        [(SlotReclaim::OnPoll, [16, 0, 0, 0]), (SlotReclaim::OnCompletion, [16, 16, 16, 16])]
    {
        let mut pair = pair(reclaim);
        let taken = [0; 4].map(|_| fill(&mut pair, SendFlags::empty(), 100));
        assert_eq!(taken, rounds, "{reclaim:?}");
        assert_eq!(pair.sent(0), [], "and nobody is told");
    }
}

#[test]
fn what_is_signalled_and_not_polled_holds_its_slot_or_does_not() {
    for (reclaim, free) in [(SlotReclaim::OnPoll, 0), (SlotReclaim::OnCompletion, DEPTH)] {
        let mut pair = pair(reclaim);
        assert_eq!(fill(&mut pair, SendFlags::empty(), 15), 15);
        assert_eq!(fill(&mut pair, SendFlags::SIGNALED, 1), 1);
        assert_eq!(pair.on(0, |t, me| t.sq_free(me.qp)), free, "{reclaim:?}");
        let sent = pair.sent(0);
        assert!(matches!(sent[..], [Completion::Send { retired: 16, .. }]), "{sent:?}");
        assert_eq!(pair.on(0, |t, me| t.sq_free(me.qp)), DEPTH, "the promise of both");
    }
}

#[test]
fn who_never_polls_is_held_back_or_overruns_its_queue() {
    for (reclaim, overruns) in [(SlotReclaim::OnPoll, 0), (SlotReclaim::OnCompletion, 1)] {
        let mut pair = pair(reclaim);
        // A CQ of 64 entries, and 5 times 16 completions.
        (0..5).for_each(|_| _ = fill(&mut pair, SendFlags::SIGNALED, 100));
        assert_eq!(nic(&pair, 0).stats.cq_overruns, overruns, "{reclaim:?}");
    }
}

#[test]
fn a_flush_gives_the_slots_back_and_a_reset_counts_none_twice() {
    let mut pair = pair(SlotReclaim::OnCompletion);
    fill(&mut pair, SendFlags::empty(), 5);
    pair.go(0, QpState::Err);
    assert_eq!(fill(&mut pair, SendFlags::empty(), 3), 3);
    let free = pair.on(0, |t, me| t.sq_free(me.qp));
    assert_eq!(free, DEPTH, "flushed is done");
    let retired: Vec<u32> = pair
        .sent(0)
        .iter()
        .map(|c| match c {
            Completion::Error { retired, status: WcStatus::WrFlushErr, .. } => *retired,
            _ => panic!("{c:?}"),
        })
        .collect();
    assert_eq!(retired, [6, 1, 1], "the first tells of the five good ones too");
    // The RESET comes while the WRITEs are under way, and the new life stages at once.
    let mut pair = self::pair(SlotReclaim::OnCompletion);
    let to = pair.sides[1].remote(0);
    let free = pair.on(0, move |t, me| {
        let list = [me.sge(0, 64)];
        let wr = send(SendOp::Write(to), 0, Data::Sge(&list));
        (0..4).for_each(|_| t.stage(me.qp, &wr).unwrap());
        t.ring(me.qp, Ring::Auto).unwrap();
        let reset = QpAttr { state: QpState::Reset, ..QpAttr::default() };
        t.modify_qp(me.qp, &reset, QpAttrMask::STATE).unwrap();
        t.sq_free(me.qp)
    });
    assert_eq!(free, DEPTH);
    pair.lab.settle();
    assert_eq!(pair.on(0, |t, me| t.sq_free(me.qp)), DEPTH);
    pair.advance(0, 3);
    assert_eq!(fill(&mut pair, SendFlags::empty(), 100), u64::from(DEPTH), "all of the new life");
}
