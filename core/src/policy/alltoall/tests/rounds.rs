//! Without faults everything comes, once.

use proptest::prelude::*;

use super::*;
use crate::policy::aggregate::ConfigError;

fn done(exchange: &Exchange, members: &[Member]) {
    all_done(members);
    check(exchange, members);
}

/// Two nodes of three members, 40 bytes for each.
fn six(route: Route) -> Exchange {
    Exchange::by_counts(&[0, 0, 0, 1, 1, 1], &[40; 36], route).unwrap()
}

#[test]
fn messages_are_those_of_the_plan() {
    let mut all = members(&six(Route::Direct), 64, AllToAllConfig::default(), 2);
    run_all(&mut all);
    done(&six(Route::Direct), &all);
    let direct = stats(&all, 0);
    assert_eq!((direct.rounds, direct.sent, direct.sent_bytes, direct.passed), (2, 10, 400, 0));
    // 120 bytes to the relay in two pieces; to each neighbour its own and what its peer sent.
    let mut all = members(&six(Route::TwoHop), 64, AllToAllConfig::default(), 1);
    run_all(&mut all);
    done(&six(Route::TwoHop), &all);
    let two = stats(&all, 0);
    assert_eq!((two.sent_bytes, two.passed_bytes), (120 + 2 * 40 + 2 * 40, 80));
    assert_eq!((two.sent, two.passed), (2 + 2 * 2, 2));
}

#[test]
fn a_relay_puts_small_pieces_together() {
    // Four nodes of two, 8 bytes for each: a relay has three pieces for its neighbour.
    let places = [0, 0, 1, 1, 2, 2, 3, 3];
    let exchange = Exchange::by_counts(&places, &[8; 64], Route::TwoHop).unwrap();
    let sent = |gather| {
        let config = AllToAllConfig { gather, ..AllToAllConfig::default() };
        let mut all = members(&exchange, 64, config, 1);
        run_all(&mut all);
        done(&exchange, &all);
        stats(&all, 0).sent
    };
    // Three to the other nodes; to the neighbour own and passed on: 4 pieces, 2 and 2, or one
    // by one.
    assert_eq!([4, 2, 1].map(sent), [3 + 1, 3 + 2, 3 + 4]);
}

#[test]
fn settings_that_cannot_be_are_refused() {
    let schedule = Schedule::new(&six(Route::TwoHop), 64);
    let mut ideal = Ideal::new(7);
    let mut open =
        |rank: usize, config| AllToAll::open(&mut ideal.at(rank), config, &schedule).map(|_| ());
    let base = AllToAllConfig::default();
    let none = AllToAllConfig { window: 0, ..base };
    assert_eq!(open(0, none), Err(AggregateError::Config(ConfigError::Window)));
    let none = AllToAllConfig { gather: 0, ..base };
    assert_eq!(open(0, none), Err(AggregateError::Config(ConfigError::Gather)));
    let stranger = ConfigError::NoMember { rank: 6, first: 0, members: 6 };
    assert_eq!(open(6, base), Err(AggregateError::Config(stranger)));
    let least = AllToAllConfig { window: 1, gather: 1, ..base };
    assert_eq!(open(5, least), Ok(()));
}

#[test]
fn a_round_begins_when_the_last_one_is_over() {
    let exchange = Exchange::by_counts(&[0, 1], &[8; 4], Route::TwoHop).unwrap();
    let schedule = Schedule::new(&exchange, 8);
    let mut ideal = Ideal::new(2);
    let open = |ideal: &mut Ideal, rank| {
        AllToAll::open(&mut ideal.at(rank), AllToAllConfig::default(), &schedule).unwrap()
    };
    let [mut a, mut b] = [open(&mut ideal, 0), open(&mut ideal, 1)];
    assert_eq!(a.begin(Time::ZERO), Err(AggregateError::Busy), "not connected");
    a.connect(&mut ideal.at(0)).unwrap();
    assert_eq!(b.connect(&mut ideal.at(1)), Ok(Progress::Complete));
    assert_eq!(a.connect(&mut ideal.at(0)), Ok(Progress::Complete));
    a.begin(Time::ZERO).unwrap();
    assert_eq!(a.begin(Time::ZERO), Err(AggregateError::Busy), "one round at a time");
    assert!(matches!(a.step(&mut ideal.at(0)), Ok(Progress::Wait { .. })));
    b.begin(Time::ZERO).unwrap();
    assert_eq!(
        b.step(&mut ideal.at(1)),
        Ok(Progress::Wait {
            on: WaitSet::cq(b.mesh.cq),
            // A quarter of the deadline.
            until: Time::ZERO + Span::from_ms(25),
        })
    );
    assert_eq!(b.step(&mut ideal.at(1)), Ok(Progress::Complete));
    assert_eq!(a.step(&mut ideal.at(0)), Ok(Progress::Complete));
    a.close(&mut ideal.at(0)).unwrap();
    b.close(&mut ideal.at(1)).unwrap();
}

#[test]
fn one_way_traffic_has_its_answer() {
    // Member 1 has nothing for anybody, and the inboxes are used in turn all the same.
    let exchange = Exchange::by_counts(&[0, 1], &[0, 8, 0, 0], Route::Direct).unwrap();
    let mut all = members(&exchange, 8, AllToAllConfig::default(), 5);
    all[1].lazy = 77;
    run_all(&mut all);
    done(&exchange, &all);
    assert_eq!((stats(&all, 1).sent, stats(&all, 1).sent_bytes), (5, 0));
}

proptest! {
    /// Whatever is exchanged, by which way, in which pieces, and who is faster.
    #[test]
    fn everything_comes_once(
        exchange in any_exchange(), (config, chunk) in any_config(), rounds in 1_u64..5, lazy: u64
    ) {
        let mut all = members(&exchange, chunk, config, rounds);
        make_lazy(&mut all, lazy);
        run_all(&mut all);
        done(&exchange, &all);
        let sent: u64 = (0..all.len()).map(|m| stats(&all, m).sent_bytes).sum();
        let traffic = exchange.traffic();
        prop_assert_eq!(sent, rounds * (traffic.between_bytes + traffic.inside_bytes));
        let bound: u64 = (0..exchange.members()).map(|m| all[0].party.schedule.sent_bytes(m)).sum();
        prop_assert_eq!(bound * rounds, sent);
    }
}
