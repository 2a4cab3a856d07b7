//! Whatever goes wrong: all that is for a member, or a named error, in bounded time.

use proptest::prelude::*;

use super::*;

fn ends(members: &[Member]) -> Vec<Result<(), AggregateError>> {
    members.iter().map(|m| m.end.map_or(Ok(()), |(_, end)| end.map(|_| ()))).collect()
}

/// Nobody has wrong bytes, ends without a word, or later than it may.
fn check_ends(exchange: &Exchange, members: &[Member]) {
    check(exchange, members);
    for (rank, m) in members.iter().enumerate() {
        let dead = matches!(m.fault, Some(Fault::Dies(_)));
        let Some((at, end)) = m.end else {
            assert!(dead, "rank {rank} ended without a word");
            continue;
        };
        assert_eq!(end.is_ok(), m.got.len() as u64 == m.rounds, "rank {rank}: {end:?}");
        let slept = match m.fault {
            Some(Fault::Sleeps(_, span)) => span,
            _ => Span::ZERO,
        };
        let hops = u64::from(m.schedule.hops());
        let bound = match m.began.last() {
            Some(began) => *began + m.config.hop_deadline * hops,
            None => Time::ZERO + m.config.connect_deadline,
        };
        assert!(at <= bound + slept, "rank {rank} ended at {at}, bound {bound}");
    }
}

/// Two nodes of two members.
fn four(fault: Fault, at: usize) -> Vec<Member> {
    let exchange = Exchange::by_counts(&[0, 0, 1, 1], &[64; 16], Route::TwoHop).unwrap();
    let config = AllToAllConfig { window: 1, ..AllToAllConfig::default() };
    let mut all = members(&exchange, 16, config, 2);
    all[at].fault = Some(fault);
    run_all(&mut all);
    check_ends(&exchange, &all);
    all
}

#[test]
fn a_dead_member_is_named_by_its_relay_and_then_by_all() {
    let all = four(Fault::Dies(4), 3);
    // Member 1 passes on what member 3 has for member 0.
    let late = ends(&all)[1].unwrap_err();
    assert!(matches!(late, AggregateError::Late { rank: 3, round: 0, .. }), "{late:?}");
    assert_eq!(all[1].end.unwrap().0, all[1].began[0] + all[1].config.hop_deadline);
    for rank in [0, 2] {
        assert_eq!(ends(&all)[rank].unwrap_err().culprit(), Some(3), "{:?}", ends(&all));
    }
}

#[test]
fn a_member_that_is_late_but_in_time_costs_nothing() {
    let within = AllToAllConfig::default().hop_deadline.saturating_sub(Span::from_us(1));
    let all = four(Fault::Sleeps(4, within), 3);
    assert!(ends(&all).iter().all(Result::is_ok), "{:?}", ends(&all));
    let all = four(Fault::Sleeps(4, within + Span::from_us(2)), 3);
    assert!(ends(&all).iter().all(Result::is_err), "{:?}", ends(&all));
}

#[test]
fn a_broken_connection_is_named() {
    for which in 0..2 {
        let all = four(Fault::QpError(5, which), 2);
        let lost = |e: &Result<_, _>| matches!(e, Err(AggregateError::Lost { .. }));
        assert!(ends(&all).iter().any(lost), "{:?}", ends(&all));
    }
}

#[test]
fn what_is_out_of_turn_is_refused() {
    let all = four(Fault::Skips(4), 3);
    let named = |e: &Result<_, _>| matches!(e, Err(AggregateError::OutOfTurn { rank: 3, .. }));
    assert!(ends(&all).iter().any(named), "{:?}", ends(&all));
    let all = four(Fault::Rushes(4), 3);
    assert!(ends(&all).iter().any(named), "{:?}", ends(&all));
}

#[test]
fn a_message_of_another_length_is_refused() {
    let exchange = Exchange::by_counts(&[0, 1], &[0, 8, 8, 0], Route::Direct).unwrap();
    let mut all = members(&exchange, 8, AllToAllConfig::default(), 1);
    // It takes the exchange for the same, and has fewer bytes for member 1.
    let shorter = Exchange::by_counts(&[0, 1], &[0, 7, 8, 0], Route::Direct).unwrap();
    let mut schedule = Schedule::new(&shorter, 8);
    schedule.fingerprint = all[0].schedule.fingerprint;
    all[0].schedule = Arc::new(schedule);
    run_all(&mut all);
    let error = AggregateError::WrongLength { rank: 0, chunk: 0, got: 7, need: 8 };
    assert_eq!(ends(&all)[1], Err(error));
}

#[test]
fn a_member_with_another_exchange_is_refused() {
    let exchange = |bytes| Exchange::by_counts(&[0, 1, 2], &[bytes; 9], Route::Direct).unwrap();
    let mut all = members(&exchange(8), 8, AllToAllConfig::default(), 1);
    all[2].schedule = Arc::new(Schedule::new(&exchange(9), 8));
    run_all(&mut all);
    assert_eq!(ends(&all)[0], Err(AggregateError::Mismatch { rank: 2 }));
    assert!(matches!(ends(&all)[2], Err(AggregateError::Mismatch { rank: 0 | 1 })));
}

#[test]
fn members_that_never_appear_are_named() {
    let exchange = Exchange::by_counts(&[0, 1], &[8; 4], Route::Direct).unwrap();
    let mut all = members(&exchange, 8, AllToAllConfig::default(), 1);
    all[1].fault = Some(Fault::Dies(0));
    run_all(&mut all);
    assert_eq!(ends(&all)[0], Err(AggregateError::NoPeer { rank: 1 }));
}

fn any_fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        (0_u32..40).prop_map(Fault::Dies),
        (0_u32..40, 1_u64..400).prop_map(|(at, ms)| Fault::Sleeps(at, Span::from_ms(ms))),
        (0_u32..40, 0_usize..8).prop_map(|(at, which)| Fault::QpError(at, which)),
    ]
}

proptest! {
    /// One or two members misbehave: every survivor ends in time, with everything or an error.
    #[test]
    fn everything_or_a_named_error(
        exchange in any_exchange(), (config, chunk) in any_config(), rounds in 1_u64..4, lazy: u64,
        faults in proptest::collection::vec((0_usize..8, any_fault()), 1..3)
    ) {
        let mut all = members(&exchange, chunk, config, rounds);
        let n = all.len();
        for (m, member) in (0..).zip(&mut all) {
            member.lazy = lazy.wrapping_add(m) | 1;
        }
        for (at, fault) in faults {
            all[at % n].fault = Some(fault);
        }
        run_all(&mut all);
        check_ends(&exchange, &all);
    }
}
