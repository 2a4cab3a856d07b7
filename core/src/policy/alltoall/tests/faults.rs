//! Whatever goes wrong: all that is for a member, or a named error, in bounded time.

use proptest::prelude::*;

use super::*;

/// Nobody has wrong bytes, ends without a word, or later than it may.
fn check_ends(exchange: &Exchange, members: &[Member]) {
    check(exchange, members);
    all_end_in_time(members);
}

/// Two nodes of two members.
fn four(fault: Fault<Slip>, at: usize) -> Vec<Member> {
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
    assert_eq!(all[1].end.unwrap().0, all[1].began[0] + all[1].party.config.hop_deadline);
    for rank in [0, 2] {
        assert_eq!(ends(&all)[rank].unwrap_err().culprit(), Some(3), "{:?}", ends(&all));
    }
}

/// Member 0 gives up so early that it takes its relay, which waits for member 3, for the cause. The
/// relay knows better, and does not name member 0 in return (#6).
#[test]
fn who_is_accused_names_whom_it_waits_for_itself() {
    let exchange = Exchange::by_counts(&[0, 0, 1, 1], &[64; 16], Route::TwoHop).unwrap();
    let mut all = members(&exchange, 16, AllToAllConfig { window: 1, ..<_>::default() }, 2);
    all[3].fault = Some(Fault::Dies(4));
    // The first sign comes after a quarter of a deadline.
    let hop = all[0].party.config.hop_deadline;
    all[0].party.config.hop_deadline = Span::from_ps(hop.as_ps() / 5);
    run_all(&mut all);
    check(&exchange, &all);
    let [first, accused] = [0, 1].map(|rank| ends(&all)[rank].unwrap_err());
    assert_eq!((first.culprit(), accused.culprit()), (Some(1), Some(3)), "{first}; {accused}");
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
    let all = four(Fault::Slips(4, Slip::Skips), 3);
    let named = |e: &Result<_, _>| matches!(e, Err(AggregateError::OutOfTurn { rank: 3, .. }));
    assert!(ends(&all).iter().any(named), "{:?}", ends(&all));
    let all = four(Fault::Slips(4, Slip::Rushes), 3);
    assert!(ends(&all).iter().any(named), "{:?}", ends(&all));
}

#[test]
fn a_message_of_another_length_is_refused() {
    let exchange = Exchange::by_counts(&[0, 1], &[0, 8, 8, 0], Route::Direct).unwrap();
    let mut all = members(&exchange, 8, AllToAllConfig::default(), 1);
    // It takes the exchange for the same, and has fewer bytes for member 1.
    let shorter = Exchange::by_counts(&[0, 1], &[0, 7, 8, 0], Route::Direct).unwrap();
    let mut schedule = Schedule::new(&shorter, 8);
    schedule.fingerprint = all[0].party.schedule.fingerprint;
    all[0].party.schedule = Arc::new(schedule);
    run_all(&mut all);
    let error = AggregateError::WrongLength { rank: 0, chunk: 0, got: 7, need: 8 };
    assert_eq!(ends(&all)[1], Err(error));
}

#[test]
fn a_member_with_another_exchange_is_refused() {
    let exchange = |bytes| Exchange::by_counts(&[0, 1, 2], &[bytes; 9], Route::Direct).unwrap();
    let mut all = members(&exchange(8), 8, AllToAllConfig::default(), 1);
    all[2].party.schedule = Arc::new(Schedule::new(&exchange(9), 8));
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

proptest! {
    /// A host that dies, or a program that stops on a host that lives, is named by all that end
    /// with an error, whenever that is and whoever waits for whom.
    #[test]
    fn all_survivors_name_who_is_gone(
        exchange in any_exchange(), (config, chunk) in any_config(), rounds in 1_u64..5,
        who in 0_usize..8, at in 4_u32..60, vanishes: bool, lazy: u64
    ) {
        let mut all = members(&exchange, chunk, config, rounds);
        make_lazy(&mut all, lazy);
        let dead = who % all.len();
        all[dead].fault = Some(if vanishes { Fault::Vanishes(at) } else { Fault::Dies(at) });
        run_all(&mut all);
        check_ends(&exchange, &all);
        let connected = all.iter().all(|m| !m.began.is_empty());
        for error in ends(&all).into_iter().filter_map(Result::err).filter(|_| connected) {
            prop_assert_eq!(error.culprit(), Some(dead as u32), "{}", error);
        }
    }

    /// One or two members misbehave: every survivor ends in time, with everything or an error.
    #[test]
    fn everything_or_a_named_error(
        exchange in any_exchange(), (config, chunk) in any_config(), rounds in 1_u64..4, lazy: u64,
        faults in proptest::collection::vec((0_usize..8, any_fault()), 1..3)
    ) {
        let mut all = members(&exchange, chunk, config, rounds);
        let n = all.len();
        make_lazy(&mut all, lazy);
        for (at, fault) in faults {
            all[at % n].fault = Some(fault);
        }
        run_all(&mut all);
        check_ends(&exchange, &all);
    }
}
