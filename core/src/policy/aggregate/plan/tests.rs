//! Plans: shapes, checks, and bytes against closed forms.

use proptest::prelude::*;

use super::*;

const KIB: u64 = 1024;

fn leaves(of: u32, members: u32) -> Vec<u32> {
    (0..members).map(|m| m / of).collect()
}

fn two_hop(place_of: &[u32], aggregators: u32, lanes: u32) -> Plan {
    Plan::two_hop(&Group::by_place(place_of, u32::MAX, aggregators), lanes).unwrap()
}

#[test]
fn groups_follow_places_and_are_split_evenly() {
    let groups = Group::by_place(&[7, 7, 3, 7, 3, 7, 7], 3, 2);
    let members: Vec<_> = groups.iter().map(|g| g.members.clone()).collect();
    assert_eq!(members, [vec![0, 1], vec![3, 5, 6], vec![2, 4]]);
    assert_eq!(groups[1].aggregators, [3, 5]);
    // One more aggregator than members: all of them.
    assert_eq!(Group::by_place(&[0, 0], 2, 3)[0].aggregators, [0, 1]);
}

#[test]
fn members_send_to_their_aggregator_and_aggregators_to_the_root() {
    let plan = two_hop(&leaves(4, 8), 1, 1);
    assert_eq!((plan.root(0), plan.hops(), plan.members()), (0, 2, 8));
    assert_eq!([0, 4, 1, 7].map(|m| plan.height(0, m)), [2, 1, 0, 0]);
    assert_eq!(plan.children(0, 0), [1, 2, 3, 4]);
    assert_eq!(plan.children(0, 4), [5, 6, 7]);
    assert_eq!((plan.parent(0, 6), plan.parent(0, 4), plan.parent(0, 0)), (Some(4), Some(0), None));
    assert_eq!(plan.sinks(0, 4), plan.children(0, 4));
}

#[test]
fn a_ring_goes_once_around_in_one_direction() {
    let plan = Plan::ring(4).unwrap();
    assert_eq!((plan.lanes(), plan.root(2), plan.hops()), (4, 2, 3));
    assert_eq!([3, 0, 1, 2].map(|m| plan.height(2, m)), [0, 1, 2, 3]);
    assert_eq!([2, 3, 0, 1].map(|m| plan.depth(2, m)), [0, 1, 2, 3]);
    assert_eq!((plan.parent(2, 3), plan.source(2, 3)), (Some(0), Some(2)));
    assert_eq!((plan.sinks(2, 2), plan.sinks(2, 1)), (vec![3], vec![]));
}

#[test]
fn wrong_groups_are_refused_by_name() {
    let group = |members: &[u32], aggregators: &[u32]| Group {
        members: members.to_vec(),
        aggregators: aggregators.to_vec(),
    };
    let of = |groups: &[Group]| Plan::two_hop(groups, 1).map(|_| ());
    assert_eq!(of(&[group(&[0, 1], &[0]), group(&[2], &[2])]), Ok(()));
    let twice = PlanError::Twice { member: 1 };
    assert_eq!(of(&[group(&[0, 1], &[0]), group(&[1], &[1])]), Err(twice));
    let missing = PlanError::Missing { member: 2 };
    assert_eq!(of(&[group(&[0, 1], &[0]), group(&[3], &[3])]), Err(missing));
    let none = PlanError::NoAggregator { group: 1 };
    assert_eq!(of(&[group(&[0, 1], &[0]), group(&[2], &[])]), Err(none));
    let stranger = PlanError::Stranger { group: 1, member: 0 };
    assert_eq!(of(&[group(&[0, 1], &[0]), group(&[2], &[0])]), Err(stranger));
    assert_eq!(of(&[group(&[0], &[0])]), Err(PlanError::TooFew { members: 1 }));
    assert_eq!(of(&[]), Err(PlanError::TooFew { members: 0 }));
    assert_eq!(Plan::direct(2, 0), Err(PlanError::Lanes { got: 0 }));
    assert!(Plan::direct(2, MAX_LANES).is_ok());
    let many = PlanError::Lanes { got: MAX_LANES + 1 };
    assert_eq!(Plan::direct(2, MAX_LANES + 1), Err(many));
    assert_eq!(Plan::ring(1), Err(PlanError::TooFew { members: 1 }));
}

/// What the textbooks say of `s` bytes among `n` members.
#[test]
fn loads_are_the_closed_forms() {
    let (n, s) = (12, 48 * KIB);
    let one = Chunks::new(s, 1024, 1);
    let direct = Plan::direct(n, 1).unwrap();
    let root = direct.load(0, &one, true);
    assert_eq!(root, Load { sent: 11 * s, received: 11 * s, added: 11 * s });
    assert_eq!(direct.load(3, &one, true), Load { sent: s, received: s, added: 0 });
    assert_eq!(direct.load(3, &one, false), Load { sent: s, received: 0, added: 0 });
    // Three groups of four: an aggregator hears three members, the root two aggregators more.
    let plan = two_hop(&leaves(4, n), 1, 1);
    assert_eq!(plan.load(0, &one, false), Load { sent: 0, received: 5 * s, added: 5 * s });
    assert_eq!(plan.load(4, &one, false), Load { sent: s, received: 3 * s, added: 3 * s });
    // A ring: 2 (n - 1) / n of the vector for everybody.
    let ring = Plan::ring(n).unwrap();
    let cut = Chunks::new(s, 1024, n);
    for m in 0..n {
        let moved = 2 * 11 * s / 12;
        let load = Load { sent: moved, received: moved, added: moved / 2 };
        assert_eq!(ring.load(m, &cut, true), load);
    }
}

/// Claim D04: eight members behind one leaf send one vector upwards, not eight.
#[test]
fn a_leaf_sends_one_vector_up_where_its_members_are_grouped() {
    let (place_of, s) = (leaves(8, 32), 64 * KIB);
    let cut = Chunks::new(s, 4096, 1);
    let direct = Plan::direct(32, 1).unwrap().crossing(&place_of, 2, &cut, false);
    assert_eq!((direct.sent, direct.received), (8 * s, 0));
    let grouped = two_hop(&place_of, 1, 1).crossing(&place_of, 2, &cut, true);
    assert_eq!((grouped.sent, grouped.received), (s, s));
    let at_root = two_hop(&place_of, 1, 1).crossing(&place_of, 0, &cut, true);
    assert_eq!((at_root.sent, at_root.received), (3 * s, 3 * s));
}

#[test]
fn with_a_lane_for_everybody_all_have_the_same_load() {
    for (group, members) in [(3, 12), (4, 16), (2, 8)] {
        let plan = two_hop(&leaves(group, members), group, members);
        let mut roots: Vec<u32> = (0..members).map(|lane| plan.root(lane)).collect();
        // As many as there are groups: each has one of the first roots.
        let mut first: Vec<u32> = roots[..group as usize].iter().map(|m| m / group).collect();
        first.dedup();
        assert_eq!(first.len(), group as usize, "the first roots are in different groups");
        roots.sort_unstable();
        assert_eq!(roots, (0..members).collect::<Vec<_>>());
        let cut = Chunks::new(u64::from(members) * KIB, 64, members);
        let first = plan.load(0, &cut, true);
        assert!((1..members).all(|m| plan.load(m, &cut, true) == first));
    }
}

pub(super) fn any_plan() -> impl Strategy<Value = Plan> {
    let places = proptest::collection::vec(0_u32..4, 2..20);
    let two =
        (places, 1_u32..6, 1_u32..4, 1_u32..9).prop_map(|(place_of, largest, sums, lanes)| {
            Plan::two_hop(&Group::by_place(&place_of, largest, sums), lanes).unwrap()
        });
    let direct = (2_u32..12, 1_u32..6).prop_map(|(n, lanes)| Plan::direct(n, lanes).unwrap());
    let places = proptest::collection::vec(0_u32..4, 2..20);
    let level = (places, 1_u32..4, 1_u32..9, any::<bool>());
    let level = level.prop_map(|(place_of, sums, lanes, ring)| {
        let inside = if ring { Inside::Ring } else { Inside::Direct };
        Plan::two_level(&Group::by_place(&place_of, u32::MAX, sums), inside, lanes).unwrap()
    });
    prop_oneof![two, direct, level, (2_u32..12).prop_map(|n| Plan::ring(n).unwrap())]
}

proptest! {
    /// Everyone's contribution comes to the root once, and the sum to everyone once.
    #[test]
    fn both_ways_are_trees(plan in any_plan()) {
        let n = plan.members();
        for lane in 0..plan.lanes() {
            let root = plan.root(lane);
            for next in [Plan::parent, Plan::source] {
                for m in 0..n {
                    let way = core::iter::successors(Some(m), |m| next(&plan, lane, *m));
                    let way: Vec<u32> = way.take(n as usize + 1).collect();
                    prop_assert!(way.len() <= n as usize, "a circle");
                    prop_assert_eq!(way.last(), Some(&root));
                }
            }
            let children: usize = (0..n).map(|m| plan.children(lane, m).len()).sum();
            prop_assert_eq!(children, n as usize - 1);
        }
        prop_assert!(plan.hops() >= 1);
    }

    /// Aggregators differ by no more than the chunks that do not divide evenly.
    #[test]
    fn what_is_sent_is_received(plan in any_plan(), bytes in 1_u64..100_000) {
        let cut = Chunks::new(bytes, 512, plan.lanes());
        let sum = |of: fn(&Load) -> u64| -> u64 {
            (0..plan.members()).map(|m| of(&plan.load(m, &cut, true))).sum()
        };
        let once = bytes * u64::from(plan.members() - 1);
        prop_assert_eq!(sum(|l| l.sent), 2 * once);
        prop_assert_eq!(sum(|l| l.received), 2 * once);
        prop_assert_eq!(sum(|l| l.added), once);
    }
}
