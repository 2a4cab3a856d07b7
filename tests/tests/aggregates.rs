//! Aggregations on the simulator: right sums whatever the plan and the method; under planned faults
//! the complete sum or a named error, in bounded time.

use std::sync::Arc;

use doorbell::workloads::{Failure, Results, Summand, SummandConfig, Workload};
use doorbell_core::policy::aggregate::{
    AggregateConfig, AggregateError, Group, Inside, Method, Order, Plan,
};
use doorbell_core::transport::Reduce;
use doorbell_core::units::{Span, Time};
use doorbell_sim::fault::{HostAction, HostFault, What, Window};
use doorbell_sim::wire::HostId;
use proptest::prelude::*;
use proptest::strategy::ValueTree;

use super::groups::{self, ROUNDS, attr, bound, epoch, host_fault, packets};

const ROUND_DEADLINE: Span = Span::from_ms(5);

fn config() -> AggregateConfig {
    let base = AggregateConfig::default();
    AggregateConfig {
        bytes: 16 << 10,
        op: Reduce::SumI64,
        chunk: 2 << 10,
        window: 2,
        chunk_deadline: Span::from_ms(1),
        round_deadline: ROUND_DEADLINE,
        connect_deadline: ROUND_DEADLINE,
        attr: attr(base.attr),
        ..base
    }
}

/// A member on each host, and what goes wrong; returns what they have at the bound.
fn run(
    seed: u64,
    plan: &Plan,
    aggregate: AggregateConfig,
    faults: &[What],
) -> Vec<Option<Results>> {
    let end = bound(aggregate.round_deadline);
    run_until(end, seed, (plan, aggregate), (ROUNDS, false), faults)
}

fn run_until(
    end: Time,
    seed: u64,
    (plan, aggregate): (&Plan, AggregateConfig),
    (rounds, goes_on): (u64, bool),
    faults: &[What],
) -> Vec<Option<Results>> {
    let plan = Arc::new(plan.clone());
    let member = || {
        Workload::from(Summand::new(SummandConfig {
            aggregate,
            plan: plan.clone(),
            rounds,
            epoch: Some(epoch()),
            interval: None,
            training: None,
            late: vec![],
            goes_on,
        }))
    };
    groups::run(seed, plan.members(), faults, end, member)
}

/// Members with all sums, and members with an error.
fn outcome(all: &[Option<Results>], dead: Option<u32>) -> (usize, Vec<AggregateError>) {
    groups::outcome(all, dead, |r| r.sums.map(|s| (s.complete, s.wrong)).expect("a member"))
}

fn two_hop(members: u32, group: u32, aggregators: u32, lanes: u32) -> Plan {
    let places = vec![0; members as usize];
    Plan::two_hop(&Group::by_place(&places, group, aggregators), lanes).expect("a plan")
}

fn any_plan() -> impl Strategy<Value = Plan> {
    prop_oneof![
        3 => (3..8_u32, 1..5_u32, 1..3_u32, 1..4_u32)
            .prop_map(|(members, group, sums, lanes)| two_hop(members, group, sums, lanes)),
        1 => (2..6_u32, 1..3_u32).prop_map(|(n, lanes)| Plan::direct(n, lanes).expect("a plan")),
        1 => (2..6_u32).prop_map(|n| Plan::ring(n).expect("a plan")),
        1 => (3..8_u32, 1..5_u32, 1..3_u32, any::<bool>()).prop_map(|(members, group, sums, ring)| {
            let groups = Group::by_place(&vec![0; members as usize], group, sums);
            let inside = if ring { Inside::Ring } else { Inside::Direct };
            let lanes = groups.len() as u32 * sums;
            Plan::two_level(&groups, inside, lanes).expect("a plan")
        }),
    ]
}

fn any_config() -> impl Strategy<Value = AggregateConfig> {
    let method = prop_oneof![Just(Method::Send), Just(Method::Write), Just(Method::Read)];
    let op = prop_oneof![Just(Reduce::SumI64), Just(Reduce::SumF32), Just(Reduce::SumF64)];
    let sizes = (1..1500_u64, 1..300_u32, 1..5_u32, 1..5_u32, 1..4_u32);
    (method, op, sizes, any::<(bool, bool)>()).prop_map(
        |(method, op, (elements, words, window, pool, reads), (arrival, broadcast))| {
            let order = if arrival { Order::Arrival } else { Order::Fixed };
            let pool = arrival.then_some(pool);
            let (bytes, chunk) = (elements * op.element_bytes(), words * 8);
            let base = AggregateConfig { bytes, chunk, op, order, method, ..config() };
            AggregateConfig { window, pool, reads, broadcast, ..base }
        },
    )
}

proptest! {
    #[test]
    fn sums_are_right_whatever_the_plan(plan in any_plan(), config in any_config(), seed: u64) {
        // A pool of one receive lets members wait for RNR timers, many times.
        let (chunk_deadline, round_deadline) = (Span::from_ms(1_000), Span::from_ms(100_000));
        let config = AggregateConfig { chunk_deadline, round_deadline, ..config };
        let all = run(seed, &plan, config, &[]);
        let (complete, errors) = outcome(&all, None);
        prop_assert_eq!((complete, errors), (plan.members() as usize, vec![]));
    }

    #[test]
    fn a_complete_sum_or_a_named_error(
        plan in any_plan(), config in any_config(), seed: u64,
        lost in proptest::collection::vec(packets(), 0..3),
        to_host in proptest::option::of(host_fault())
    ) {
        let dead = to_host.filter(|f| f.action == HostAction::PeerDead).map(|f| f.host.0);
        let faults: Vec<What> = lost.into_iter().chain(to_host.map(What::Host)).collect();
        outcome(&run(seed, &plan, config, &faults), dead);
    }
}

/// The property above sees both ends, and not only one of them.
#[test]
fn the_plans_of_faults_matter() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut complete, mut errors) = (0, 0);
    for seed in 0..40 {
        let config = any_config().new_tree(&mut runner).unwrap().current();
        let plan = any_plan().new_tree(&mut runner).unwrap().current();
        let fault = host_fault().new_tree(&mut runner).unwrap().current();
        let dead = (fault.action == HostAction::PeerDead).then_some(fault.host.0);
        let (c, e) = outcome(&run(seed, &plan, config, &[What::Host(fault)]), dead);
        complete += c;
        errors += e.len();
    }
    assert!(complete > 30 && errors > 30, "{complete} complete, {errors} errors");
}

/// Two groups of four, on one switch; member 6 dies in the first round.
#[test]
fn the_dead_is_named_by_all_survivors_long_before_its_connection_is_lost() {
    let after = epoch() + Span::from_us(5);
    let window = Window { after, ..Window::ALWAYS };
    let fault = HostFault { host: HostId(6), nic: None, window, action: HostAction::PeerDead };
    let all = run(1, &two_hop(8, 4, 1, 1), config(), &[What::Host(fault)]);
    let (complete, errors) = outcome(&all, Some(6));
    assert_eq!((complete, errors.len()), (0, 7));
    for e in &errors {
        assert_eq!(e.culprit(), Some(6), "{e}");
    }
    // Its aggregator waits for one chunk deadline, the others hear of it.
    let last = |rank: usize| all[rank].as_ref().unwrap().last.unwrap();
    let deadline = epoch() + Span::from_ms(1);
    assert!((0..8).filter(|r| *r != 6).all(|r| last(r) < deadline + Span::from_us(100)));
}

/// The plans of seven members, with one lane and with several.
fn plans() -> Vec<(&'static str, Plan)> {
    let groups = |sums| Group::by_place(&[0; 7], 4, sums);
    let level = |inside| Plan::two_level(&groups(1), inside, 2).expect("a plan");
    vec![
        ("two hops", two_hop(7, 4, 1, 1)),
        ("two hops, two aggregators", two_hop(7, 4, 2, 2)),
        ("direct", Plan::direct(7, 1).expect("a plan")),
        ("direct, three roots", Plan::direct(7, 3).expect("a plan")),
        ("ring", Plan::ring(7).expect("a plan")),
        ("two levels", level(Inside::Direct)),
        ("two levels, rings", level(Inside::Ring)),
    ]
}

/// Five rounds that follow each other, and a host that dies at one of many moments of them.
fn deaths(goes_on: bool, mut check: impl FnMut(&str, u32, &[Option<Results>])) -> u32 {
    let mut ended = 0;
    // Of a connection nothing is heard before all deadlines have passed.
    let base = AggregateConfig::default();
    let round_deadline = Span::from_ms(40);
    let config = AggregateConfig { round_deadline, attr: base.attr, ..config() };
    for (name, plan) in plans() {
        for (dead, at) in [0, 1, 4, 6].into_iter().flat_map(|d| (0..9).map(move |n| (d, n * 9))) {
            let window = Window { after: epoch() + Span::from_us(at), ..Window::ALWAYS };
            let action = HostAction::PeerDead;
            let fault = HostFault { host: HostId(dead), nic: None, window, action };
            let end = epoch() + (round_deadline + config.connect_deadline) * 4;
            let what = [What::Host(fault)];
            let all = run_until(end, 1, (&plan, config), (5, goes_on), &what);
            let sums = all.iter().flatten().filter_map(|r| r.sums);
            assert!(sums.into_iter().all(|s| s.wrong == 0), "{name}, {dead} at {at} us");
            ended += u32::from(all.iter().flatten().any(|r| r.failure.is_some()));
            check(&format!("{name}, {dead} at {at} us"), dead, &all);
        }
    }
    ended
}

#[test]
fn all_survivors_name_the_dead_in_every_plan_at_every_time() {
    let ended = deaths(false, |what, dead, all| {
        for r in all.iter().flatten() {
            if let Some(Failure::Aggregate(e)) = r.failure {
                assert_eq!(e.culprit(), Some(dead), "{what}: {e}");
            }
        }
    });
    assert!(ended > 100, "{ended} runs with errors");
}

#[test]
fn survivors_go_on_in_every_plan_at_every_time() {
    let mut replaced = 0;
    let ended = deaths(true, |what, dead, all| {
        let of = |rank: usize| all[rank].as_ref().expect("a program");
        let left = || (0..7).filter(|rank| *rank != dead as usize).map(of);
        let sums = || left().map(|r| r.sums.expect("a member"));
        replaced += sums().map(|s| s.replaced).sum::<u64>();
        // Nobody has ended without a word of the death.
        if left().all(|r| r.failure.is_some() || r.sums.is_some_and(|s| s.absent > 0)) {
            for r in left() {
                assert_eq!(r.failure, None, "{what}");
                assert_eq!(r.sums.map(|s| (s.complete, s.absent)), Some((5, 1)), "{what}");
            }
        }
    });
    assert!(replaced > 0, "nobody was a round ahead");
    assert!(ended < 30, "{ended} runs with errors");
}
