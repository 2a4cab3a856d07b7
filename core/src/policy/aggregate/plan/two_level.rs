//! Sums in two levels: inside each group, then from group to group, then back inside.

use alloc::vec;

use super::{Group, Plan, PlanError, Tree, aggregators, check, heights};

/// How the members of a group pass contributions to the one that collects them.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub enum Inside {
    /// Everybody sends to the collector: one hop, and the collector's port hears all at once.
    #[default]
    Direct,
    /// From one to the next: as many hops as there are others, and no port hears two at once.
    Ring,
}

impl Plan {
    /// Two levels: in each group a collector has the contributions of its group, `inside` says
    /// how; the collectors form a ring over the groups, and the sum goes on around it; each
    /// collector passes the sum on inside its group.
    ///
    /// The collectors are the groups' aggregators: lane `l` has number `l % len` of each group.
    /// Where all members are aggregators and there are `members` lanes, everybody collects and is
    /// a root equally often: the members of a group scatter and reduce a share each, the shares
    /// go around the groups, and the group gathers them. Then all send `2 (n - 1) / n` of the
    /// vector, as in [`Plan::ring`], over `2 groups` hops and not `2 (n - 1)`; `2 (groups - 1) /
    /// groups` of it leaves a group.
    ///
    /// # Errors
    /// As [`Plan::two_hop`].
    pub fn two_level(groups: &[Group], inside: Inside, lanes: u32) -> Result<Self, PlanError> {
        let members = check(groups)?.len();
        Self::of_lanes(members as u32, lanes, |lane| tree(groups, inside, lane, members))
    }
}

/// One lane.
fn tree(groups: &[Group], inside: Inside, lane: u32, members: usize) -> Tree {
    let (count, (collectors, top)) = (groups.len(), aggregators(groups, lane));
    let (mut parent, mut source) = (vec![None; members], vec![None; members]);
    for (at, group) in groups.iter().enumerate() {
        let collector = collectors[at];
        if at != top {
            parent[collector as usize] = Some(collectors[(at + 1) % count]);
            source[collector as usize] = Some(collectors[(at + count - 1) % count]);
        }
        let of = &group.members;
        for (n, &member) in of.iter().enumerate().filter(|(_, m)| **m != collector) {
            let (up, down) = match inside {
                Inside::Direct => (collector, collector),
                Inside::Ring => (of[(n + 1) % of.len()], of[(n + of.len() - 1) % of.len()]),
            };
            (parent[member as usize], source[member as usize]) = (Some(up), Some(down));
        }
    }
    Tree { height: heights(&parent), parent, source }
}

#[cfg(test)]
mod tests {
    use super::super::{Chunks, Load, MAX_LANES};
    use super::*;
    use std::vec::Vec;

    const KIB: u64 = 1024;

    fn groups(count: u32, of: u32, collectors: u32) -> Vec<Group> {
        let places: Vec<u32> = (0..count * of).map(|m| m / of).collect();
        Group::by_place(&places, u32::MAX, collectors)
    }

    #[test]
    fn contributions_meet_in_the_group_then_go_around_the_groups() {
        // Three groups of two, member 0, 2 or 4 collects; the root is in group 0.
        let plan = Plan::two_level(&groups(3, 2, 1), Inside::Direct, 1).unwrap();
        let parents = [0, 1, 2, 3, 4, 5].map(|m| plan.parent(0, m));
        assert_eq!(parents, [None, Some(0), Some(4), Some(2), Some(0), Some(4)]);
        let sources = [0, 1, 2, 3, 4, 5].map(|m| plan.source(0, m));
        assert_eq!(sources, [None, Some(0), Some(0), Some(2), Some(2), Some(4)]);
        assert_eq!((plan.hops(), plan.depth(0, 5)), (3, 3));
    }

    #[test]
    fn inside_a_group_they_may_form_a_ring() {
        let plan = Plan::two_level(&groups(2, 4, 4), Inside::Ring, 8).unwrap();
        // Lane 1: member 1 collects in group 0, member 5 in group 1, where the root is.
        let parents = [2, 3, 0, 1].map(|m| plan.parent(1, m));
        assert_eq!((parents, plan.root(1)), ([Some(3), Some(0), Some(1), Some(5)], 5));
        let sources = [2, 3, 0, 1].map(|m| plan.source(1, m));
        assert_eq!(sources, [Some(1), Some(2), Some(3), Some(5)]);
    }

    #[test]
    fn wrong_groups_and_lanes_are_refused_by_name() {
        let of = |groups: &[Group], lanes| {
            Plan::two_level(groups, Inside::Direct, lanes).map(|p| p.lanes())
        };
        assert_eq!(of(&groups(2, 2, 1), 1), Ok(1));
        assert_eq!(of(&groups(2, 2, 1), 0), Err(PlanError::Lanes { got: 0 }));
        assert_eq!(of(&groups(2, 2, 1), MAX_LANES), Ok(MAX_LANES));
        let many = PlanError::Lanes { got: MAX_LANES + 1 };
        assert_eq!(of(&groups(2, 2, 1), MAX_LANES + 1), Err(many));
        assert_eq!(of(&groups(1, 1, 1), 1), Err(PlanError::TooFew { members: 1 }));
        let mut none = groups(2, 2, 1);
        none[1].aggregators.clear();
        assert_eq!(of(&none, 1), Err(PlanError::NoAggregator { group: 1 }));
    }

    /// What the textbooks say of `s` bytes among `n` members in groups of `g`.
    #[test]
    fn loads_are_the_closed_forms() {
        let (count, g) = (3, 4);
        let (n, s) = (count * g, 48 * KIB);
        let cut = Chunks::new(s, 1024, n);
        for inside in [Inside::Direct, Inside::Ring] {
            let plan = Plan::two_level(&groups(count, g, g), inside, n).unwrap();
            let ring = Plan::ring(n).unwrap();
            for m in 0..n {
                let each = 2 * 11 * s / 12;
                let load = Load { sent: each, received: each, added: each / 2 };
                assert_eq!(plan.load(m, &cut, true), load, "{inside:?}, member {m}");
                assert_eq!(ring.load(m, &cut, true), load);
            }
            // Of a group 2 (3 - 1) / 3 of the vector leaves; in a ring of hosts 2 (12 - 1) / 12.
            let place_of: Vec<u32> = (0..n).map(|m| m / g).collect();
            let crossing = plan.crossing(&place_of, 1, &cut, true);
            assert_eq!((crossing.sent, crossing.received), (4 * s / 3, 4 * s / 3));
            assert_eq!(ring.crossing(&place_of, 1, &cut, true).sent, 22 * s / 12);
        }
        // One leader for each group: it hears the three others of its group, and a group.
        let led = Plan::two_level(&groups(count, g, 1), Inside::Direct, 1).unwrap();
        let one = Chunks::new(s, 1024, 1);
        assert_eq!(led.load(4, &one, false), Load { sent: s, received: 3 * s, added: 3 * s });
        assert_eq!(led.load(0, &one, false), Load { sent: 0, received: 4 * s, added: 4 * s });
    }

    #[test]
    fn with_a_lane_for_everybody_all_are_roots_equally_often() {
        let plan = Plan::two_level(&groups(3, 4, 4), Inside::Direct, 12).unwrap();
        let mut roots: Vec<u32> = (0..12).map(|lane| plan.root(lane)).collect();
        roots.sort_unstable();
        assert_eq!(roots, (0..12).collect::<Vec<_>>());
        assert_eq!(plan.hops(), 3);
    }
}
