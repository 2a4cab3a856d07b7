//! Exchanges on the simulator: the right bytes whatever goes where and by which way; under planned
//! faults all that is for a member or a named error, in bounded time.

use std::sync::Arc;

use doorbell::workloads::{Exchanger, ExchangerConfig, Failure, Results, Share, Workload};
use doorbell_core::policy::alltoall::{
    AggregateError, AllToAllConfig, Exchange, Route, Schedule, Traffic,
};
use doorbell_core::units::Span;
use doorbell_sim::fault::{HostAction, HostFault, What, Window};
use doorbell_sim::wire::HostId;
use proptest::prelude::*;

use super::groups::{self, ROUNDS, attr, bound, epoch, host_fault, packets};

fn config() -> AllToAllConfig {
    let base = AllToAllConfig::default();
    AllToAllConfig {
        hop_deadline: Span::from_ms(3),
        connect_deadline: Span::from_ms(5),
        attr: attr(base.attr),
        ..base
    }
}

/// A member on each host, and what goes wrong; returns what they have at the bound.
fn run(
    seed: u64,
    exchange: &Exchange,
    (all_to_all, chunk): (AllToAllConfig, u32),
    faults: &[What],
) -> Vec<Option<Results>> {
    let schedule = Arc::new(Schedule::new(exchange, chunk));
    let member = || {
        Workload::from(Exchanger::new(ExchangerConfig {
            all_to_all,
            schedule: schedule.clone(),
            share: Share { tokens: 0, traffic: Traffic::default() },
            rounds: ROUNDS,
            epoch: Some(epoch()),
            interval: None,
        }))
    };
    let round = all_to_all.hop_deadline * (u64::from(schedule.hops()) + 1);
    groups::run(seed, exchange.members(), faults, bound(round), member)
}

/// Members with all rounds, and members with an error.
fn outcome(all: &[Option<Results>], dead: Option<u32>) -> (usize, Vec<AggregateError>) {
    groups::outcome(all, dead, |r| r.exchanged.map(|e| (e.complete, e.wrong)).expect("a member"))
}

fn any_exchange() -> impl Strategy<Value = Exchange> {
    let route = || prop_oneof![1 => Just(Route::Direct), 2 => Just(Route::TwoHop)];
    let places = || proptest::collection::vec(0..3_u32, 2..7);
    let counts = proptest::collection::vec(0..6000_u64, 36);
    let counts = (places(), route(), counts).prop_map(|(places, route, counts)| {
        let n = places.len() * places.len();
        Exchange::by_counts(&places, &counts[..n], route).expect("an exchange")
    });
    let token = (0..7_u32, proptest::collection::vec(0..7_u32, 0..5), 1..3000_u64);
    let tokens = (places(), route(), proptest::collection::vec(token, 0..10));
    let tokens = tokens.prop_map(|(places, route, tokens)| {
        let n = places.len() as u32;
        let mut exchange = Exchange::new(&places, route).expect("an exchange");
        for (from, to, bytes) in tokens {
            let to: Vec<u32> = to.iter().map(|m| m % n).collect();
            exchange.token(from % n, &to, bytes).expect("a token");
        }
        exchange
    });
    prop_oneof![counts, tokens]
}

fn any_config() -> impl Strategy<Value = (AllToAllConfig, u32)> {
    (1..6_u32, 1..5_u32, 500..6000_u32)
        .prop_map(|(gather, window, chunk)| (AllToAllConfig { gather, window, ..config() }, chunk))
}

proptest! {
    #[test]
    fn bytes_are_right_whatever_goes_where(
        exchange in any_exchange(), config in any_config(), seed: u64
    ) {
        let all = run(seed, &exchange, config, &[]);
        let (complete, errors) = outcome(&all, None);
        prop_assert_eq!((complete, errors), (exchange.members() as usize, vec![]));
    }

    #[test]
    fn everything_or_a_named_error(
        exchange in any_exchange(), config in any_config(), seed: u64,
        lost in proptest::collection::vec(packets(), 0..3),
        to_host in proptest::option::of(host_fault())
    ) {
        let dead = to_host.filter(|f| f.action == HostAction::PeerDead).map(|f| f.host.0);
        let faults: Vec<What> = lost.into_iter().chain(to_host.map(What::Host)).collect();
        outcome(&run(seed, &exchange, config, &faults), dead);
    }
}

/// Two nodes of three; member 4 dies in the first round.
#[test]
fn the_dead_is_named_by_all_survivors() {
    let exchange = Exchange::by_counts(&[0, 0, 0, 1, 1, 1], &[50_000; 36], Route::TwoHop);
    let exchange = exchange.expect("an exchange");
    let window = Window { after: epoch() + Span::from_us(3), ..Window::ALWAYS };
    let fault = HostFault { host: HostId(4), nic: None, window, action: HostAction::PeerDead };
    let all = run(1, &exchange, (config(), 8192), &[What::Host(fault)]);
    let (complete, errors) = outcome(&all, Some(4));
    assert_eq!((complete, errors.len()), (0, 5));
    for e in &errors {
        assert_eq!(e.culprit(), Some(4), "{e}");
    }
}

/// So it is whenever it dies, though the others may be a round apart.
#[test]
fn the_dead_is_named_at_every_time() {
    let mut errors = 0;
    let places = [0, 0, 0, 1, 1, 1];
    for route in [Route::Direct, Route::TwoHop] {
        let exchange = Exchange::by_counts(&places, &[9_000; 36], route).expect("an exchange");
        for (dead, at) in [1, 4].into_iter().flat_map(|d| (0..12).map(move |n| (d, n))) {
            let window = Window { after: epoch() + Span::from_us(at), ..Window::ALWAYS };
            let action = HostAction::PeerDead;
            let fault = HostFault { host: HostId(dead), nic: None, window, action };
            // Of a connection nothing is heard before all deadlines have passed.
            let slow = AllToAllConfig { attr: AllToAllConfig::default().attr, ..config() };
            let all = run(1, &exchange, (slow, 4096), &[What::Host(fault)]);
            for r in all.iter().flatten() {
                if let Some(Failure::Aggregate(e)) = r.failure {
                    errors += 1;
                    assert_eq!(e.culprit(), Some(dead), "{route:?}, {dead} at {at} us: {e}");
                }
            }
        }
    }
    assert!(errors > 100, "{errors} errors");
}
