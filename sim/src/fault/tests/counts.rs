//! Numbers: n-th packets, rounds, budgets, and that faults do not touch each other's.

use doorbell_core::units::Span;

use super::*;
use crate::fault::state::Held;
use crate::fault::{FaultUse, Hold, LinkEnd};
use crate::wire::PacketId;

fn used(state: &FaultState) -> Vec<FaultUse> {
    state.uses(|_| 0)
}

/// Which of `packets` are lost.
fn lost(state: &mut FaultState, packets: impl IntoIterator<Item = Packet>) -> Vec<u32> {
    let mut all = Vec::new();
    for p in packets {
        if state.judge(us(1), AT_1, &p).is_some() {
            all.push(p.desc.psn.value());
        }
    }
    all
}

#[test]
fn the_nth_packet_and_neither_the_one_before_nor_the_one_behind() {
    for n in 1..=4 {
        let mut s = on(&cable(), &[drop(Matcher { nth: Some(n), ..Matcher::default() })]);
        assert_eq!(lost(&mut s, (1..=6).map(write)), [n as u32]);
        assert_eq!((used(&s)[0].matched, used(&s)[0].fired), (6, 1));
        assert_eq!(used(&s)[0].first, Some(us(1)));
    }
}

/// What is counted is what matches.
#[test]
fn the_nth_of_those_that_match() {
    let m = Matcher { nth: Some(2), opcode: Some(Opcode::RcSendOnly), ..Matcher::default() };
    let mut s = on(&cable(), &[drop(m)]);
    let mixed = (1..=8)
        .map(|i| packet(if i % 2 == 0 { Opcode::RcSendOnly } else { Opcode::RcRdmaWriteOnly }, i));
    assert_eq!(lost(&mut s, mixed), [4]);
}

#[test]
fn a_budget_ends_a_fault_and_not_before() {
    for budget in 1..=3u64 {
        let mut s = on(&cable(), &[drop(Matcher::default()).at_most(budget)]);
        let expected: Vec<u32> = (1..=budget as u32).collect();
        assert_eq!(lost(&mut s, (1..=5).map(write)), expected);
        assert_eq!((used(&s)[0].matched, used(&s)[0].fired), (5, budget));
    }
}

#[test]
fn rounds_count_how_often_a_psn_was_seen() {
    let round = |r| drop(Matcher { round: Some(r), ..Matcher::default() });
    let seen = [1, 2, 3, 2, 3, 3, 4];
    for (r, expected) in [(1, vec![1, 2, 3, 4]), (2, vec![2, 3]), (3, vec![3]), (4, vec![])] {
        let mut s = on(&cable(), &[round(r)]);
        assert_eq!(lost(&mut s, seen.map(write)), expected, "round {r}");
    }
}

/// The first retransmission of the third packet, whatever its PSN.
#[test]
fn round_and_number_together() {
    let m = Matcher { round: Some(2), nth: Some(1), ..Matcher::default() };
    let mut s = on(&cable(), &[drop(m)]);
    assert_eq!(lost(&mut s, [7, 8, 9, 9, 8, 9].map(write)), [9]);
}

#[test]
fn rounds_are_of_a_flow() {
    let m = Matcher { round: Some(2), ..Matcher::default() };
    let mut s = on(&cable(), &[drop(m)]);
    let mut other_qp = write(1);
    other_qp.src_qp = 9;
    let mut other_dest = write(1);
    other_dest.desc.dest = Qpn::new(40);
    let answer = packet(Opcode::RcAcknowledge, 1);
    assert_eq!(lost(&mut s, [write(1), other_qp, other_dest, answer, write(1)]), [1]);
}

/// A PSN that comes again after 2^24 others is another packet.
#[test]
fn rounds_begin_anew_after_the_wrap() {
    let m = Matcher { round: Some(1), ..Matcher::default() };
    let mut s = on(&cable(), &[drop(m)]);
    // In steps of 2^22 the window moves forward once around.
    let around = (0..=4u32).map(|i| write((0xFF_FFFF + (i << 22)) & 0xFF_FFFF));
    assert_eq!(lost(&mut s, around).len(), 5);
    assert_eq!(lost(&mut s, [write(0xFF_FFFF)]), [] as [u32; 0], "a retransmission");
    assert_eq!(lost(&mut s, [write(0)]), [0], "next after the highest");
}

/// The memory of rounds is bounded, and what it forgets cannot come again.
#[test]
fn rounds_forget_what_is_far_behind() {
    let mut r = super::super::rounds::Rounds::default();
    let far = 3 << 16;
    for psn in 0..far {
        assert_eq!(r.see(&write(psn)), 1);
    }
    assert_eq!(r.see(&write(far - 1)), 2);
    assert_eq!(r.see(&write(far - (1 << 16))), 2, "still remembered");
}

#[test]
fn one_direction_or_both() {
    let mut both = on(&cable(), &[drop(Matcher::default())]);
    let mut there = on(
        &cable(),
        &[drop(Matcher {
            from: Some(LinkEnd::of(crate::fabric::End::Host(0))),
            ..Matcher::default()
        })],
    );
    for (at, one_way) in [(AT_1, true), (AT_0, false)] {
        assert!(both.judge(us(1), at, &write(1)).is_some());
        assert_eq!(there.judge(us(1), at, &write(1)).is_some(), one_way);
    }
}

/// The first fault whose conditions hold decides; the others count all the same.
#[test]
fn the_first_fault_decides_and_all_count() {
    let delay = Fault::packets("d", Matcher::default(), PacketVerdict::Delay(Span::from_us(1)));
    let mut s = on(&cable(), &[drop(Matcher::default()).at_most(1), delay]);
    assert_eq!(s.judge(us(1), AT_1, &write(1)), LOST);
    let second = s.judge(us(1), AT_1, &write(2));
    assert_eq!(second, Some((Some(1), Decision::Delay(Span::from_us(1)))), "the budget is spent");
    let u = used(&s);
    assert_eq!([(u[0].matched, u[0].fired), (u[1].matched, u[1].fired)], [(2, 1), (2, 1)]);
}

/// The third packet is the third, whether or not another fault takes the second.
#[test]
fn removing_a_fault_shifts_no_count_of_another() {
    let third =
        Fault { id: "third".into(), ..drop(Matcher { nth: Some(3), ..Matcher::default() }) };
    let second = drop(Matcher { nth: Some(2), ..Matcher::default() });
    let mut alone = on(&cable(), std::slice::from_ref(&third));
    let mut with = on(&cable(), &[second, third]);
    assert_eq!(lost(&mut alone, (1..=5).map(write)), [3]);
    assert_eq!(lost(&mut with, (1..=5).map(write)), [2, 3]);
}

#[test]
fn a_hold_ends_at_its_time() {
    let hold = PacketVerdict::Hold(Hold::Until(us(5)));
    let mut s = on(&cable(), &[Fault::packets("h", Matcher::default(), hold)]);
    let before = Time::from_ps(us(5).as_ps() - 1);
    assert_eq!(s.judge(before, AT_1, &write(1)), Some((Some(0), Decision::Hold)));
    assert_eq!(s.judge(us(5), AT_1, &write(2)), None);
    assert_eq!(s.changes().iter().map(|c| (c.at, c.begins)).collect::<Vec<_>>(), [(us(5), false)]);
}

#[test]
fn a_hold_that_is_released_holds_no_more() {
    let hold = PacketVerdict::Hold(Hold::Released);
    let mut s = on(&cable(), &[Fault::packets("h", Matcher::default(), hold)]);
    assert!(s.judge(us(1), AT_1, &write(1)).is_some());
    assert_eq!((s.hold("h"), s.hold("x")), (Some(0), None));
    assert_eq!(s.release(0), [] as [u32; 0], "the packet was not given to keep");
    assert_eq!(s.judge(us(1), AT_1, &write(2)), None);
}

/// A packet that waits for k others goes on behind the k-th, not before, and once.
#[test]
fn overtaken_by_so_many_and_not_by_fewer() {
    for k in 1..=4 {
        let mut s = on(&cable(), &[drop(Matcher::default())]);
        let held = |behind| Held { fault: 0, at: AT_1, packet: PacketId(9), wire_bytes: 1, behind };
        let key = s.keep(held(k));
        // One that waits for a time is not overtaken, and neither is one of the other direction.
        let timed = s.keep(held(0));
        let back = s.keep(Held { at: AT_0, ..held(1) });
        for _ in 1..k {
            assert_eq!(s.overtaken(AT_1), []);
        }
        assert_eq!(used(&s)[0].held, 3);
        let ready: Vec<PacketId> = s.overtaken(AT_1).iter().map(|h| h.packet).collect();
        assert_eq!(ready, [PacketId(9)], "behind the {k}th");
        assert_eq!(s.take(key), None, "its limit comes too late");
        assert_eq!(s.overtaken(AT_1), []);
        assert!(s.take(timed).is_some() && s.take(back).is_some());
        assert_eq!(s.overtaken(AT_0), [], "it was taken by its limit");
        assert!(!s.holds());
    }
}
