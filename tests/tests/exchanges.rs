//! Exchanges on the simulator: the right bytes whatever goes where and by which way; under planned
//! faults all that is for a member or a named error, in bounded time.

use std::sync::Arc;

use doorbell::workloads::{
    Combine, Exchanger, ExchangerConfig, Failure, Results, Share, Token, Workload,
};
use doorbell_core::policy::alltoall::{AggregateError, AllToAllConfig, Exchange, Route, Schedule};
use doorbell_core::transport::Reduce;
use doorbell_core::units::{Span, Time};
use doorbell_sim::fault::{HostAction, HostFault, What, Window};
use doorbell_sim::wire::HostId;
use proptest::prelude::*;

use super::groups::{self, Gone, ROUNDS, attr, bound, epoch, host_fault, packets};

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
    let round = all_to_all.hop_deadline * (u64::from(Schedule::new(exchange, chunk).hops()) + 1);
    run_until(bound(round), seed, (exchange, None), (all_to_all, chunk), faults)
}

fn run_until(
    end: Time,
    seed: u64,
    (exchange, combine): (&Exchange, Option<Arc<Combine>>),
    (all_to_all, chunk): (AllToAllConfig, u32),
    faults: &[What],
) -> Vec<Option<Results>> {
    let schedule = Arc::new(Schedule::new(exchange, chunk));
    let member = || {
        Workload::from(Exchanger::new(ExchangerConfig {
            all_to_all,
            schedule: schedule.clone(),
            combine: combine.clone(),
            share: Share::default(),
            rounds: ROUNDS,
            epoch: Some(epoch()),
            interval: None,
        }))
    };
    groups::run(seed, exchange.members(), faults, end, member)
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
    let sum = (0..7_u32, proptest::collection::vec(0..7_u32, 1..5), 1..400_u64, any::<bool>());
    let sums = (places(), route(), proptest::collection::vec(sum, 1..8));
    let sums = sums.prop_map(|(places, route, sums)| {
        let n = places.len() as u32;
        let mut exchange = Exchange::new(&places, route).expect("an exchange");
        for (to, from, words, token) in sums {
            let (to, from): (u32, Vec<u32>) = (to % n, from.iter().map(|m| m % n).collect());
            if token {
                exchange.token(to, &from, words * 8).expect("a token");
            }
            exchange.sum(Reduce::SumI64, to, &from, words * 8).expect("a sum");
        }
        exchange
    });
    prop_oneof![counts, tokens, sums]
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

/// So it is whenever it dies, or its program stops, though the others may be a round apart: also
/// where relays add, and where sums come back.
#[test]
fn who_is_gone_is_named_at_every_time() {
    let places = [0, 0, 0, 1, 1, 1];
    // Of a connection nothing is heard before all deadlines have passed.
    let slow = AllToAllConfig { attr: AllToAllConfig::default().attr, ..config() };
    let bound = slow.hop_deadline * 6 * ROUNDS;
    for route in [Route::Direct, Route::TwoHop] {
        let counts = Exchange::by_counts(&places, &[9_000; 36], route).expect("an exchange");
        for (exchange, combine) in [(counts, None), sums(&places, route), trip(&places, route)] {
            let mut errors = 0;
            for gone in Gone::BOTH {
                for (dead, at) in [1, 4].into_iter().flat_map(|d| (0..12).map(move |n| (d, n))) {
                    let what = [gone.fault(dead, Span::from_us(at), bound)];
                    let ways = (&exchange, combine.clone());
                    let all = run_until(epoch() + bound * 2, 1, ways, (slow, 4096), &what);
                    errors += all_name(&all, dead, &format!("{route:?}, {gone:?} {dead}, {at} us"));
                }
            }
            assert!(errors > 50, "{route:?}: {errors} errors");
        }
    }
}

/// All that end with an error name the one that is gone, and the others have all their rounds; how
/// many errors there are.
fn all_name(all: &[Option<Results>], gone: u32, what: &str) -> u32 {
    let left = (0..).zip(all).filter(|(rank, _)| *rank != gone);
    let left = left.filter_map(|(_, r)| r.as_ref());
    left.map(|r| match &r.failure {
        Some(Failure::Aggregate(e)) => {
            assert_eq!(e.culprit(), Some(gone), "{what}: {e}");
            1
        }
        _ => {
            let done = r.exchanged.expect("a member");
            assert_eq!((done.complete, done.wrong), (ROUNDS, 0), "{what}");
            0
        }
    })
    .sum()
}

/// Tokens and sums of three members each, in one exchange.
fn sums(places: &[u32], route: Route) -> (Exchange, Option<Arc<Combine>>) {
    let mut exchange = Exchange::new(places, route).expect("an exchange");
    for m in 0..6 {
        let others = [(m + 1) % 6, (m + 2) % 6, (m + 4) % 6];
        exchange.token(m, &others, 4_000).expect("a token");
        exchange.sum(Reduce::SumI64, m, &others, 8_000).expect("a sum");
    }
    (exchange, None)
}

/// Tokens for three members each, whose sums come back.
fn trip(places: &[u32], route: Route) -> (Exchange, Option<Arc<Combine>>) {
    let mut exchange = Exchange::new(places, route).expect("an exchange");
    let mut tokens = vec![];
    for home in 0..6 {
        let to = vec![(home + 1) % 6, (home + 2) % 6, (home + 4) % 6];
        exchange.token(home, &to, 8_000).expect("a token");
        tokens.push(Token { home, at: 0, to });
    }
    let there = Schedule::new(&exchange, 4096);
    let sum = (Reduce::SumF32, 8_000);
    let back = Combine::new((places, route), sum, &tokens, &there, 4096).expect("sums");
    (exchange, Some(Arc::new(back)))
}
