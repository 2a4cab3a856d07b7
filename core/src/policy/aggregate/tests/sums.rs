//! Without faults every member ends with the sum of the book.

use proptest::prelude::*;

use super::*;
use crate::transport::QpAttr;
use crate::verbs::AccessFlags;

fn done(members: &[Member]) {
    all_done(members);
    check_sums(members);
}

#[test]
fn eight_members_in_two_groups_sum_by_every_method() {
    let plan = Plan::two_hop(&Group::by_place(&[0, 0, 0, 0, 1, 1, 1, 1], 8, 1), 1).unwrap();
    for method in [Method::Send, Method::Write, Method::Read] {
        let config = AggregateConfig { method, window: 2, ..config(100 * 8, 64) };
        let mut all = members(config, &plan, 3);
        run_all(&mut all);
        done(&all);
        // 13 chunks in 3 rounds; the root adds those of 4 children, the aggregator of 3.
        let stats = |m| stats(&all, m);
        assert_eq!((stats(0).added, stats(4).added, stats(5).added), (4 * 39, 3 * 39, 0));
        assert_eq!((stats(0).added_bytes, stats(0).rounds), (4 * 3 * 800, 3));
        let reads = if method == Method::Read { 4 * 39 } else { 0 };
        assert_eq!(stats(0).reads, reads);
        // Up, and down to three members.
        assert_eq!((stats(4).sent, stats(5).sent), (4 * 39, 39));
    }
}

#[test]
fn rights_are_filled_in() {
    let plan = Plan::direct(3, 1).unwrap();
    for method in [Method::Send, Method::Write, Method::Read] {
        let config = AggregateConfig { method, ..config(256, 64) };
        let attr = QpAttr { access: AccessFlags::empty(), ..config.attr };
        let mut all = members(AggregateConfig { attr, ..config }, &plan, 2);
        run_all(&mut all);
        done(&all);
    }
}

#[test]
fn no_queue_grows_after_it_was_opened() {
    let room = |a: &Aggregate| {
        let held = a.lanes.iter().flat_map(|l| &l.children).map(|c| c.held.capacity());
        (held.sum::<usize>(), a.pulls.capacity(), a.free.capacity())
    };
    let plan = Plan::direct(4, 1).unwrap();
    for method in [Method::Send, Method::Write, Method::Read] {
        let config = AggregateConfig { method, window: 3, ..config(640, 64) };
        let mut all = members(config, &plan, 2);
        run_all(&mut all);
        let mut ideal = Ideal::new(4);
        for (rank, m) in all.iter().enumerate() {
            let new = Aggregate::open(&mut ideal.at(rank), config, &plan).unwrap();
            assert_eq!(room(m.state.as_ref().unwrap()), room(&new), "{method:?}, rank {rank}");
        }
    }
}

#[test]
fn a_sum_of_floats_has_the_bits_of_the_plan() {
    let plan = Plan::two_hop(&Group::by_place(&[0, 1, 0, 1, 2], 8, 2), 3).unwrap();
    let config = AggregateConfig { op: Reduce::SumF32, ..config(1000, 40) };
    let mut all = members(config, &plan, 1);
    // The order matters for these numbers: another plan has other bits.
    let vectors: Vec<&[u8]> = all.iter().map(|m| &m.party.vectors[0][..]).collect();
    let other = Plan::ring(5).unwrap();
    let theirs = reference(&other, &config.cut(&other).unwrap(), config.op, &vectors);
    let ours = reference(&plan, &config.cut(&plan).unwrap(), config.op, &vectors);
    assert_ne!(ours, theirs);
    run_all(&mut all);
    done(&all);
}

/// The second life finds the endpoints of the second life, not those of the first.
#[test]
fn a_group_is_closed_and_opened_again() {
    let plan = Plan::direct(2, 1).unwrap();
    let mut ideal = Ideal::new(2);
    for _ in 0..2 {
        let open = |ideal: &mut Ideal, rank| {
            Aggregate::open(&mut ideal.at(rank), config(64, 64), &plan).unwrap()
        };
        let [mut a, mut b] = [open(&mut ideal, 0), open(&mut ideal, 1)];
        a.connect(&mut ideal.at(0)).unwrap();
        assert_eq!(b.connect(&mut ideal.at(1)), Ok(Progress::Complete));
        assert_eq!(a.connect(&mut ideal.at(0)), Ok(Progress::Complete));
        a.begin(Time::ZERO).unwrap();
        b.begin(Time::ZERO).unwrap();
        for _ in 0..4 {
            a.step(&mut ideal.at(0)).unwrap();
            b.step(&mut ideal.at(1)).unwrap();
        }
        assert_eq!((a.stats().rounds, b.stats().rounds), (1, 1));
        a.close(&mut ideal.at(0)).unwrap();
        b.close(&mut ideal.at(1)).unwrap();
    }
}

/// READs are bounded, and wait for the round that they belong to.
#[test]
fn a_parent_reads_as_much_as_it_may_when_it_may() {
    let plan = Plan::direct(3, 1).unwrap();
    let config = AggregateConfig { method: Method::Read, reads: 1, ..config(64, 64) };
    let mut ideal = Ideal::new(3);
    let open = |rank: usize, ideal: &mut Ideal| {
        Aggregate::open(&mut ideal.at(rank), config, &plan).unwrap()
    };
    let mut all: Vec<Aggregate> = (0..3).map(|rank| open(rank, &mut ideal)).collect();
    for rank in [0, 1, 2, 0, 1, 2] {
        all[rank].connect(&mut ideal.at(rank)).unwrap();
    }
    let mut step = |all: &mut Vec<Aggregate>, rank: usize| {
        let progress = all[rank].step(&mut ideal.at(rank)).unwrap();
        (progress == Progress::Complete, all[rank].stats().reads)
    };
    all.iter_mut().for_each(|a| a.begin(Time::ZERO).unwrap());
    // Two chunks are announced, and one may be read at a time.
    assert_eq!([step(&mut all, 1).1, step(&mut all, 2).1, step(&mut all, 0).1], [0, 0, 1]);
    while !step(&mut all, 0).0 {}
    assert!(step(&mut all, 1).0 && step(&mut all, 2).0);
    // The next round begins at a child, and not yet at the parent.
    all[1].begin(Time::ZERO).unwrap();
    step(&mut all, 1);
    assert_eq!(step(&mut all, 0), (true, 2));
    all[0].begin(Time::ZERO).unwrap();
    assert_eq!(step(&mut all, 0), (false, 3));
}

proptest! {
    /// Whatever the plan, the sizes, the method, and who is faster.
    #[test]
    fn every_sum_is_that_of_the_book(
        plan in any_plan(7), config in any_config(), rounds in 1_u64..4, lazy: u64
    ) {
        let mut all = members(config, &plan, rounds);
        make_lazy(&mut all, lazy);
        run_all(&mut all);
        done(&all);
        let added: u64 = (0..all.len()).map(|m| stats(&all, m).added).sum();
        let chunks = u64::from(config.cut(&plan).unwrap().count());
        prop_assert_eq!(added, rounds * chunks * u64::from(plan.members() - 1));
    }
}
