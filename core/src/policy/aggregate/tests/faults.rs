//! Whatever goes wrong: the complete sum or a named error, in bounded time.

use proptest::prelude::*;

use super::*;

/// No survivor has a wrong sum, ends without a word, or later than it may.
fn check_ends(members: &[Member]) {
    check_sums(members);
    all_end_in_time(members);
}

/// Four members in two groups, one chunk at a time, four chunks.
fn four(fault: Fault<Slip>, at: usize) -> Vec<Member> {
    let plan = Plan::two_hop(&Group::by_place(&[0, 0, 1, 1], 8, 1), 1).unwrap();
    let config = AggregateConfig { window: 1, ..config(4 * 64, 64) };
    let mut all = members(config, &plan, 1);
    all[at].fault = Some(fault);
    run_all(&mut all);
    check_ends(&all);
    all
}

#[test]
fn a_dead_member_is_named_by_who_waits_for_it() {
    // Member 3 dies after its second chunk; its aggregator notices at the deadline of the third,
    // the others hear of it.
    let all = four(Fault::Dies(4), 3);
    let late = AggregateError::Late { rank: 3, chunk: 2, round: 0 };
    let gave_up = |rank| Err(AggregateError::GaveUp { rank, because: 3 });
    assert_eq!(ends(&all)[..3], [gave_up(2), gave_up(0), Err(late)]);
    assert_eq!(all[2].end.unwrap().0, all[2].began[0] + all[2].party.config.chunk_deadline);
}

#[test]
fn a_member_that_is_late_but_in_time_costs_nothing() {
    let within = AggregateConfig::default().chunk_deadline.saturating_sub(Span::from_us(1));
    let all = four(Fault::Sleeps(4, within), 3);
    assert!(ends(&all).iter().all(Result::is_ok), "{:?}", ends(&all));
    // At the deadline it is too late.
    let all = four(Fault::Sleeps(4, within + Span::from_us(2)), 3);
    assert!(ends(&all).iter().all(Result::is_err), "{:?}", ends(&all));
}

#[test]
fn a_broken_connection_is_named() {
    for which in 0..4 {
        let all = four(Fault::QpError(5, which), 2);
        assert!(ends(&all).iter().any(Result::is_err), "{:?}", ends(&all));
    }
    let all = four(Fault::QpError(5, 0), 3);
    assert!(matches!(ends(&all)[3], Err(AggregateError::Lost { rank: 2, .. })), "{:?}", ends(&all));
}

#[test]
fn a_forged_message_is_named_by_who_gets_it() {
    let says = |fault, rank: usize| ends(&four(fault, 3))[rank];
    let second = |forgery| Fault::Forges(1, forgery);
    let duplicate = AggregateError::Duplicate { rank: 3, chunk: 0 };
    assert_eq!(says(second(Forgery::Earlier(1)), 2), Err(duplicate));
    let early = AggregateError::OutOfTurn { rank: 3, chunk: 2 };
    assert_eq!(says(second(Forgery::Later(1)), 2), Err(early));
    let short = AggregateError::WrongLength { rank: 3, chunk: 1, got: 56, need: 64 };
    assert_eq!(says(second(Forgery::Short(8)), 2), Err(short));
    let stray = AggregateError::Stray { rank: 3 };
    assert_eq!(says(second(Forgery::Unknown), 2), Err(stray));
    // A chunk that the vector does not have.
    assert_eq!(says(second(Forgery::Later(9)), 2), Err(stray));
}

#[test]
fn a_forged_sum_is_refused_too() {
    // The second message of the aggregator is its first sum for its member.
    let plan = Plan::direct(2, 1).unwrap();
    for (forgery, error) in [
        (Forgery::Later(1), AggregateError::OutOfTurn { rank: 0, chunk: 1 }),
        (Forgery::Short(8), AggregateError::WrongLength { rank: 0, chunk: 0, got: 56, need: 64 }),
        (Forgery::Unknown, AggregateError::Stray { rank: 0 }),
    ] {
        let mut all = members(config(2 * 64, 64), &plan, 1);
        all[0].fault = Some(Fault::Forges(0, forgery));
        run_all(&mut all);
        check_ends(&all);
        assert_eq!(ends(&all)[1], Err(error));
    }
}

#[test]
fn a_member_that_sends_beyond_the_window_is_refused() {
    // Its second chunk comes before the sum of the first, where only one may be under way.
    for method in [Method::Send, Method::Write, Method::Read] {
        let plan = Plan::direct(3, 1).unwrap();
        let config = AggregateConfig { window: 1, method, ..config(4 * 64, 64) };
        let mut all = members(config, &plan, 1);
        // Ranks 0 and 1 are still asleep when rank 2 rushes.
        all[0].fault = Some(Fault::Sleeps(5, Span::from_ms(1)));
        all[2].fault = Some(Fault::Slips(3, Slip::Rushes));
        run_all(&mut all);
        check_ends(&all);
        let error = match method {
            // Beyond its slots it has no memory to write to, and blames rank 0 for that, as it
            // tells everybody.
            Method::Write => AggregateError::GaveUp { rank: 2, because: 0 },
            _ => AggregateError::OutOfTurn { rank: 2, chunk: 1 },
        };
        assert_eq!(ends(&all)[0], Err(error), "{method:?}");
    }
}

#[test]
fn a_sum_that_nobody_can_have_is_refused() {
    let plan = Plan::direct(3, 1).unwrap();
    let mut all = members(config(64, 64), &plan, 1);
    all[0].fault = Some(Fault::Slips(3, Slip::Invents));
    // Rank 2 is connected and begins when the invented sum has come.
    all[2].fault = Some(Fault::Sleeps(2, Span::from_ms(1)));
    run_all(&mut all);
    assert!(all[2].got.is_empty());
    assert_eq!(ends(&all)[2], Err(AggregateError::OutOfTurn { rank: 0, chunk: 0 }));
}

#[test]
fn a_member_with_other_settings_is_refused() {
    let plan = Plan::direct(3, 1).unwrap();
    let mut all = members(config(64, 64), &plan, 1);
    all[2].party.config.chunk = 32;
    run_all(&mut all);
    assert_eq!(ends(&all)[0], Err(AggregateError::Mismatch { rank: 2 }));
    assert_eq!(ends(&all)[2], Err(AggregateError::Mismatch { rank: 0 }));
}

#[test]
fn members_that_never_appear_are_named() {
    let plan = Plan::direct(2, 1).unwrap();
    let mut all = members(config(64, 64), &plan, 1);
    all[1].fault = Some(Fault::Dies(0));
    run_all(&mut all);
    assert_eq!(ends(&all)[0], Err(AggregateError::NoPeer { rank: 1 }));
}

/// The last member publishes its endpoint and no more, so the root never begins. The leaves that
/// are connected have begun, and hear why (#6).
#[test]
fn who_ends_in_the_set_up_tells_those_who_have_begun() {
    let plan = Plan::direct(4, 1).unwrap();
    // A set-up that ends before a chunk is late.
    let config = AggregateConfig { connect_deadline: Span::from_ms(50), ..config(64, 64) };
    let mut all = members(config, &plan, 1);
    all[0].fault = Some(Fault::Sleeps(1, Span::from_ms(1)));
    all[3].fault = Some(Fault::Vanishes(1));
    run_all(&mut all);
    assert_eq!(ends(&all)[0], Err(AggregateError::NoPeer { rank: 3 }));
    for rank in [1, 2] {
        let end = ends(&all)[rank].unwrap_err();
        assert_eq!(end.culprit(), Some(3), "rank {rank}: {end}");
    }
}

#[test]
fn who_does_not_confirm_its_sum_is_named_first() {
    // Member 3 has contributed all, and its host dies before the last sum reaches it. Its
    // aggregator waits one chunk deadline for it; the root would wait two for the aggregator.
    let plan = Plan::two_hop(&Group::by_place(&[0, 0, 1, 1], 8, 1), 1).unwrap();
    let config = AggregateConfig { window: 1, ..config(64, 64) };
    let mut seen = false;
    for at in 4..12 {
        let mut all = members(config, &plan, 6);
        all[3].fault = Some(Fault::Vanishes(at));
        run_all(&mut all);
        check_ends(&all);
        for end in &ends(&all)[..3] {
            assert!(end.is_err_and(|e| e.culprit() == Some(3)), "{at}: {end:?}");
        }
        let (ended, _) = all[2].end.unwrap();
        let began = *all[2].began.last().unwrap();
        assert_eq!(ended, began + config.chunk_deadline, "{at}");
        let unconfirmed = all[2].state.as_ref().is_some_and(|a| a.has_sum());
        seen |= unconfirmed;
        assert_eq!(stats_of(&all[2]).rounds, all[2].got.len() as u64 + u64::from(unconfirmed));
    }
    assert!(seen, "no death between the contribution and the confirmation");
}

fn stats_of(m: &Member) -> AggregateStats {
    m.state.as_ref().expect("it was opened").stats()
}

proptest! {
    /// A host that dies, or a program that stops on a host that lives, is named by everybody,
    /// whatever the plan.
    #[test]
    fn all_survivors_name_who_is_gone(
        plan in any_plan(6), config in any_config(), rounds in 1_u64..5,
        who in 0_usize..6, at in 4_u32..80, vanishes: bool, lazy: u64,
        // Fewer deadlines of chunks than a way in some plans has hops, and more than any has.
        round_ms in prop_oneof![Just(300), Just(10_000)]
    ) {
        let round_deadline = Span::from_ms(round_ms);
        // A parent without a receive does not confirm at once.
        let config = AggregateConfig { round_deadline, pool: None, ..config };
        let mut all = members(config, &plan, rounds);
        make_lazy(&mut all, lazy);
        let dead = who % all.len();
        all[dead].fault = Some(if vanishes { Fault::Vanishes(at) } else { Fault::Dies(at) });
        run_all(&mut all);
        check_ends(&all);
        let connected = all.iter().all(|m| !m.began.is_empty());
        for error in ends(&all).into_iter().filter_map(Result::err).filter(|_| connected) {
            prop_assert_eq!(error.culprit(), Some(dead as u32), "{}", error);
        }
    }

    /// In a plan of one lane who died is named by everybody, not the messenger.
    #[test]
    fn all_survivors_name_the_dead(
        places in proptest::collection::vec(0_u32..3, 2..7), largest in 1_u32..4,
        config in any_config(), who in 0_usize..6, at in 4_u32..30
    ) {
        // Above all deadlines of chunks, at which everybody would blame a neighbour.
        let config = AggregateConfig { round_deadline: Span::from_ms(10_000), ..config };
        let plan = Plan::two_hop(&Group::by_place(&places, largest, 1), 1).unwrap();
        let mut all = members(config, &plan, 2);
        let dead = who % all.len();
        all[dead].fault = Some(Fault::Dies(at));
        run_all(&mut all);
        check_ends(&all);
        let connected = all.iter().all(|m| !m.began.is_empty());
        for error in ends(&all).into_iter().filter_map(Result::err).filter(|_| connected) {
            prop_assert_eq!(error.culprit(), Some(dead as u32), "{}", error);
        }
    }

    /// One or two members misbehave: every survivor ends in time with the sum or an error.
    #[test]
    fn a_complete_sum_or_a_named_error(
        plan in any_plan(6), config in any_config(), rounds in 1_u64..3, lazy: u64,
        faults in proptest::collection::vec((0_usize..6, any_fault()), 1..3)
    ) {
        let mut all = members(config, &plan, rounds);
        let n = all.len();
        make_lazy(&mut all, lazy);
        for (at, fault) in faults {
            all[at % n].fault = Some(fault);
        }
        run_all(&mut all);
        check_ends(&all);
    }
}
