//! Random programs on devices: each rank gets what it gets on the ideal back end.

use std::sync::Arc;
use std::time::Duration;

use doorbell_core::ideal::{Ideal, run as run_ideal};
use doorbell_core::units::Span;
use doorbell_core::verbs::QpType;
use doorbell_hw::verbs::{RunConfig, WaitMode, run};
use doorbell_tests::lab::hw::Lab;
use doorbell_tests::plan::{Plan, plans};
use doorbell_tests::player::{Player, Record};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

/// Plans that are tried; each takes a tenth of a second under emulation.
const PLANS: usize = 60;
/// Longer than a packet of a peer can be under way in a busy guest.
const QUIET: Span = Span::from_ms(30);

fn idealise(plan: &Arc<Plan>) -> [Record; 2] {
    let (mut a, mut b) = (Player::new(plan.clone(), 0), Player::new(plan.clone(), 1));
    run_ideal(&mut Ideal::new(2), &mut [&mut a, &mut b]).unwrap();
    [a.record, b.record]
}

/// Each rank in a thread of its own.
#[expect(clippy::disallowed_types, reason = "the device works on the wall clock")]
fn play(plan: &Arc<Plan>, wait: WaitMode) -> [Record; 2] {
    let ranks = Lab::pair().into_ranks();
    let config = RunConfig { wait, limit: Duration::from_secs(20), ..RunConfig::default() };
    let records = std::thread::scope(|scope| {
        let start = |(me, mut t)| {
            let mut player = Player::new(plan.clone(), me).quiet_for(QUIET);
            scope.spawn(move || {
                run(&mut t, &mut player, &config).unwrap_or_else(|e| panic!("rank {me}: {e}"));
                t.bootstrap_mut().finish(std::time::Instant::now() + Duration::from_secs(10));
                player.record
            })
        };
        let threads: Vec<_> = ranks.into_iter().enumerate().map(start).collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect::<Vec<_>>()
    });
    records.try_into().unwrap()
}

#[test]
fn random_programs_get_what_the_ideal_back_end_gives() {
    let mut runner = TestRunner::deterministic();
    let strategy = plans().prop_map(|plan| Plan { numa: (0, 0), ..plan });
    // Without a fault UC loses nothing on a wire, but a datagram may find a full socket buffer.
    let reliable = |plan: &Plan| plan.ty != QpType::Ud;
    let mut tried = 0;
    while tried < PLANS {
        let plan = strategy.new_tree(&mut runner).unwrap().current();
        if !reliable(&plan) {
            continue;
        }
        let plan = Arc::new(plan);
        let wait = if tried % 2 == 0 { WaitMode::Poll } else { WaitMode::Event };
        assert_eq!(play(&plan, wait), idealise(&plan), "plan {tried}: {plan:?}");
        tried += 1;
    }
}
