//! Sums: of the right parts, over fewer bytes by way of relays, in bounded time.

use super::*;

/// Two nodes of three. Member 0 is to have sums of what some of the others have.
fn back(route: Route, from: &[u32], bytes: u64) -> Exchange {
    let mut e = Exchange::new(&[0, 0, 0, 1, 1, 1], route).unwrap();
    e.sum(Reduce::SumI64, 0, from, bytes).unwrap();
    e
}

fn run(exchange: &Exchange, chunk: u32, rounds: u64) -> Vec<Member> {
    let mut all = members(exchange, chunk, AllToAllConfig::default(), rounds);
    run_all(&mut all);
    all_done(&all);
    check(exchange, &all);
    all
}

#[test]
fn a_sum_crosses_once_and_has_every_part() {
    let everybody = [0, 1, 2, 3, 4, 5];
    for (route, between, inside) in [(Route::Direct, 3, 2), (Route::TwoHop, 1, 4)] {
        let exchange = back(route, &everybody, 64);
        let traffic = exchange.traffic();
        assert_eq!((traffic.between, traffic.inside), (between, inside));
        assert_eq!((traffic.between_bytes, traffic.inside_bytes), (between * 64, inside * 64));
        assert_eq!(exchange.traffic_of(0), traffic, "it is the sum of member 0");
        let all = run(&exchange, 24, 2);
        let totals = all[0].party.schedule.sums(0);
        assert_eq!((totals.len(), totals[0].bytes, totals[0].parts.len()), (1, 64, 6));
        // Relay 3 adds what 4 and 5 have to what it has; 0 adds its own, 1's, 2's, and what comes.
        let added: Vec<u64> = (0..6).map(|rank| stats(&all, rank).added_bytes / 64 / 2).collect();
        let two = route == Route::TwoHop;
        assert_eq!(added, if two { [3, 0, 0, 2, 0, 0] } else { [5, 0, 0, 0, 0, 0] });
        assert_eq!(stats(&all, 3).passed_bytes, if two { 2 * 64 } else { 0 });
        assert_eq!(all[0].party.schedule.hops(), if two { 2 } else { 1 });
    }
}

#[test]
fn parts_that_nobody_else_has_need_no_adding() {
    // One part, of a member that is no relay: it is passed on as it is.
    let all = run(&back(Route::TwoHop, &[4, 4], 16), 64, 1);
    assert!((0..6).all(|rank| stats(&all, rank).added_bytes == 0));
    assert_eq!((stats(&all, 4).sent_bytes, stats(&all, 3).passed_bytes), (16, 16));
    // Of the relay alone: one hop.
    let all = run(&back(Route::TwoHop, &[3], 16), 64, 1);
    assert_eq!((all[0].party.schedule.hops(), stats(&all, 3).sent_bytes), (1, 16));
    // Its own part alone does not move, nor does nothing.
    for from in [&[0][..], &[]] {
        let exchange = back(Route::TwoHop, from, 16);
        assert!(Schedule::new(&exchange, 64).sums(0).is_empty());
        assert_eq!(exchange.traffic(), Traffic::default());
    }
}

#[test]
fn floats_have_the_same_bits_in_every_run() {
    let mut e = Exchange::new(&[0, 0, 0, 1, 1, 1], Route::TwoHop).unwrap();
    e.sum(Reduce::SumF32, 0, &[0, 1, 2, 3, 4, 5], 400).unwrap();
    let sum = |lazy: u64| {
        let mut all = members(&e, 64, AllToAllConfig::default(), 1);
        make_lazy(&mut all, lazy);
        run_all(&mut all);
        let at = all[0].party.schedule.sums(0)[0].inbox as usize;
        all[0].got[0][at..at + 400].to_vec()
    };
    let first = sum(1);
    assert!((2..40).all(|lazy| sum(lazy << 40) == first));
}

#[test]
fn lengths_are_whole_elements() {
    let odd = |bytes| Err(ExchangeError::Misaligned { bytes });
    let mut e = Exchange::new(&[0, 1], Route::Direct).unwrap();
    assert_eq!(e.sum(Reduce::SumF32, 0, &[1], 12), odd(12));
    assert_eq!(e.sum(Reduce::SumF32, 0, &[1], 0), Err(ExchangeError::Empty { from: 0 }));
    let stranger = Err(ExchangeError::NoMember { member: 2, members: 2 });
    assert_eq!(e.sum(Reduce::SumF32, 0, &[2], 8), stranger);
    assert_eq!(e.sum(Reduce::SumF32, 2, &[1], 8), stranger);
    assert_eq!(e.sum(Reduce::SumF32, 0, &[1], 8), Ok(()));
    assert_eq!(e.token(0, &[1], 4), odd(4));
    let mut e = Exchange::by_counts(&[0, 1], &[0, 4, 8, 0], Route::Direct).unwrap();
    assert_eq!(e.sum(Reduce::SumF32, 0, &[1], 8), odd(4), "what was there before");
}

#[test]
fn a_relay_that_misses_a_part_names_whose_it_is() {
    let exchange = back(Route::TwoHop, &[3, 4, 5], 64);
    let named = (0..12).filter(|at| {
        let mut all = members(&exchange, 16, AllToAllConfig::default(), 1);
        all[5].fault = Some(Fault::Dies(*at));
        run_all(&mut all);
        all_end_in_time(&all);
        let late = matches!(ends(&all)[3], Err(AggregateError::Late { rank: 5, .. }));
        // Who waits for the sum hears it before it would blame the relay.
        assert!(!late || ends(&all)[0].unwrap_err().culprit() == Some(5), "{:?}", ends(&all));
        late
    });
    assert!(named.count() > 0, "it dies between connecting and sending");
}
