//! Properties of whole runs over random programs.

mod endings;
mod faults;
mod found;
mod loss;
mod policies;

use std::sync::Arc;

use doorbell_core::ideal::{Ideal, run};
use doorbell_core::units::{Span, Time};
use doorbell_core::verbs::SendFlags;
use doorbell_sim::host::InitiatorConfig;
use doorbell_sim::wire::HostId;
use doorbell_sim::world::{RunEnd, World, WorldConfig};
use doorbell_tests::machine;
use doorbell_tests::plan::{Plan, plans};
use doorbell_tests::player::{Player, Record};
use doorbell_tests::tuning::tunings;
use proptest::prelude::*;
use proptest::strategy::ValueTree;

/// Far beyond the end of any plan.
const LIMIT: Time = Time::from_ps(1_000_000_000_000);

/// Both ranks on the simulator.
fn simulate(plan: &Arc<Plan>, timeline: usize) -> World {
    let mut config = machine::world_of(machine::quiet_host(), 2, plan.seed);
    config.timeline = timeline;
    simulate_on(plan, &config, machine::core(0))
}

fn simulate_on(plan: &Arc<Plan>, config: &WorldConfig, on: InitiatorConfig) -> World {
    let mut world = World::new(config).unwrap();
    for rank in 0..2 {
        let program = Player::new(plan.clone(), rank);
        world.add_program(HostId(rank as u32), on, Time::ZERO, program);
    }
    let end = world.run(LIMIT);
    assert_eq!(end, RunEnd::Done);
    world
}

/// Several pairs on the same two hosts.
fn together(
    plans: &[Arc<Plan>],
    config: &WorldConfig,
    on: impl Fn(u16) -> InitiatorConfig,
) -> World {
    let mut world = World::new(config).unwrap();
    for (pair, plan) in (0..).zip(plans) {
        for me in 0..2 {
            let program = Player::new(plan.clone(), me).in_pair(2 * u32::from(pair));
            world.add_program(HostId(me as u32), on(pair), Time::ZERO, program);
        }
    }
    world
}

fn records(world: &World) -> [Record; 2] {
    records_of(world, 0)
}

fn records_of(world: &World, first: u32) -> [Record; 2] {
    [0, 1].map(|me| world.program::<Player>(first + me).unwrap().record.clone())
}

/// Both ranks on the ideal back end.
fn idealise(plan: &Arc<Plan>) -> [Record; 2] {
    let (mut a, mut b) = (Player::new(plan.clone(), 0), Player::new(plan.clone(), 1));
    run(&mut Ideal::new(2), &mut [&mut a, &mut b]).unwrap();
    [a.record, b.record]
}

/// Completions per queue, immediate data and memory of both ranks.
fn same(world: &World, ideal: [Record; 2]) -> Result<(), TestCaseError> {
    same_records(records(world), ideal)
}

fn same_records(got: [Record; 2], ideal: [Record; 2]) -> Result<(), TestCaseError> {
    for (rank, (got, want)) in got.into_iter().zip(ideal).enumerate() {
        prop_assert_eq!(&got.sent, &want.sent, "send completions of rank {}", rank);
        prop_assert_eq!(&got.received, &want.received, "receives of rank {}", rank);
        prop_assert_eq!(&got.errors, &want.errors);
        prop_assert_eq!((got.rung, got.unrung), (want.rung, want.unrung));
        prop_assert!(got.seen == want.seen, "bytes at the completions of rank {}", rank);
        let differs = got.memory.iter().zip(&want.memory).position(|(a, b)| a != b);
        prop_assert_eq!(differs, None, "memory of rank {}", rank);
    }
    Ok(())
}

proptest! {
    #[test]
    fn without_faults_the_simulator_equals_the_ideal_back_end(plan in plans()) {
        let plan = Arc::new(plan);
        let (ideal, world) = (idealise(&plan), simulate(&plan, 0));
        same(&world, ideal)?;
    }

    #[test]
    fn results_depend_on_no_number_of_the_machine(plan in plans(), tuning in tunings()) {
        let plan = Arc::new(plan);
        let world = simulate_on(&plan, &tuning.world(plan.seed), tuning.initiator());
        same(&world, idealise(&plan))?;
        prop_assert_eq!(world.left_over(), []);
        prop_assert_eq!(world.fabric().balance().map(|b| b.dropped.total().packets), Ok(0));
    }

    #[test]
    fn pairs_that_share_their_hosts_get_what_they_would_get_alone(
        plans in proptest::collection::vec(plans(), 2..5),
        tuning in tunings(),
    ) {
        let plans: Vec<_> = plans.into_iter().map(Arc::new).collect();
        let on = |pair| tuning.initiator_of(pair);
        let mut world = together(&plans, &tuning.world(plans[0].seed), on);
        prop_assert_eq!(world.run(LIMIT), RunEnd::Done);
        for (first, plan) in (0..).step_by(2).zip(&plans) {
            same_records(records_of(&world, first), idealise(plan))?;
        }
        prop_assert_eq!(world.left_over(), []);
    }

    #[test]
    fn every_request_is_executed_once_or_reported_unrung(plan in plans()) {
        let plan = Arc::new(plan);
        let world = simulate(&plan, 0);
        for (rank, record) in records(&world).iter().enumerate() {
            let side = &plan.sides[rank];
            let host = &world.hosts()[rank];
            prop_assert_eq!(record.rung + record.unrung, side.ops.len() as u64);
            prop_assert_eq!(host.nic(0).stats.wqes, record.rung, "executed");
            prop_assert_eq!(host.unrung(), record.unrung, "reported");
            prop_assert_eq!(record.unrung, side.unrung as u64);
            // Each signalled request completes once, in the order of posting, and nothing else.
            let rung = side.ops.len() - side.unrung;
            let signaled = (0..rung).filter(|&i| side.ops[i].flags.contains(SendFlags::SIGNALED));
            let signaled: Vec<u64> = signaled.map(|i| i as u64).collect();
            let sent: Vec<u64> = record.sent.iter().map(|s| s.0).collect();
            prop_assert_eq!(sent, signaled);
            // One completion retires all before it.
            let mut free = 0;
            for (wr_id, _, _, retired) in &record.sent {
                free += u64::from(*retired);
                prop_assert_eq!(free, wr_id + 1);
            }
            let in_order = record.received.iter().map(|r| r.0).eq(0..record.received.len() as u64);
            prop_assert!(in_order, "receives in the order of posting");
        }
    }

    #[test]
    fn bytes_are_conserved_and_nothing_is_left_over(plan in plans()) {
        let plan = Arc::new(plan);
        let world = simulate(&plan, 0);
        let balance = world.fabric().balance().unwrap_or_else(|e| panic!("{e}"));
        prop_assert_eq!(balance.sent, balance.delivered);
        for rank in 0..2 {
            let (to, from) = (&world.hosts()[rank], &world.hosts()[1 - rank]);
            // The old value of an ATOMIC travels in a header and is placed as 8 bytes.
            let rung = plan.sides[rank].rung().iter();
            let atomics = rung.filter(|op| op.kind.is_atomic()).count() as u64;
            let (placed, sent) = (to.nic(0).stats.rx_payload, from.nic(0).stats.tx_payload);
            prop_assert_eq!(placed, sent + 8 * atomics, "payload towards rank {}", rank);
        }
        prop_assert_eq!(world.left_over(), []);
    }

    #[test]
    fn observers_change_no_hash_and_a_run_repeats(plan in plans()) {
        let plan = Arc::new(plan);
        let plain = simulate(&plan, 0);
        let watched = simulate(&plan, 1 << 16);
        let idle = plan.sides.iter().all(|s| s.rung().is_empty());
        prop_assert!(idle || !watched.timeline().records().is_empty());
        prop_assert_eq!(plain.trace_hash(), watched.trace_hash());
        prop_assert_eq!(plain.now(), watched.now());
        prop_assert_eq!(plain.events(), watched.events());
        prop_assert_eq!(plain.report(), watched.report());
        prop_assert_eq!(records(&plain), records(&watched));
    }
}

#[test]
fn a_plan_takes_time() {
    // The properties above would hold for runs in which nothing happens.
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut longest = Span::ZERO;
    for _ in 0..20 {
        let plan = plans().new_tree(&mut runner).unwrap().current();
        longest = longest.max(simulate(&Arc::new(plan), 0).now().since(Time::ZERO));
    }
    assert!(longest > Span::from_us(200), "{longest:?}");
}
