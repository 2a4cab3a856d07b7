//! A plan that goes on without some of its members.

use alloc::vec::Vec;

use super::{Plan, PlanError, Tree, heights, whose};

impl Plan {
    /// The same plan without members, which keep their numbers and have no part in it any more.
    ///
    /// Who sent to one of them sends to its parent instead, and has the sum from where it had it.
    /// Where a root goes, the first of those that sent to it takes its place, and the sum of the
    /// lane comes back on the way of the contributions. Members that agree on who is gone have the
    /// same plan; [`Plan::absent`] is in what they compare when they connect.
    ///
    /// # Errors
    /// One that is no member, or is gone already; fewer than two that are left.
    pub fn without(&self, gone: &[u32]) -> Result<Self, PlanError> {
        let mut plan = self.clone();
        for &member in gone {
            if member >= plan.members() || plan.absent.contains(&member) {
                return Err(PlanError::Missing { member });
            }
            let left = plan.members() - plan.absent.len() as u32;
            if left <= 2 {
                return Err(PlanError::TooFew { members: left - 1 });
            }
            plan.trees.iter_mut().for_each(|tree| tree.remove(member));
            plan.absent.push(member);
            plan.absent.sort_unstable();
        }
        Ok(plan)
    }

    /// Members that it goes on without, ascending. They are in no sum.
    pub fn absent(&self) -> &[u32] {
        &self.absent
    }
}

impl Tree {
    fn remove(&mut self, member: u32) {
        let of = |next: &[Option<u32>]| whose(next, member);
        let at = member as usize;
        if self.parent[at].is_some() {
            for next in [&mut self.parent, &mut self.source] {
                let up = next[at].take();
                of(next).into_iter().for_each(|m| next[m as usize] = up);
            }
        } else {
            let children: Vec<u32> = of(&self.parent);
            let heir = children[0];
            children.into_iter().for_each(|m| self.parent[m as usize] = Some(heir));
            self.parent[heir as usize] = None;
            self.source.clone_from(&self.parent);
        }
        self.height = heights(&self.parent);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::any_plan;
    use super::super::{Chunks, Group, Load};
    use super::*;
    use proptest::prelude::*;

    fn two_hop() -> Plan {
        Plan::two_hop(&Group::by_place(&[0, 0, 0, 1, 1, 1], 8, 1), 1).unwrap()
    }

    #[test]
    fn those_that_sent_to_it_send_to_its_parent() {
        let plan = two_hop().without(&[3]).unwrap();
        assert_eq!((plan.root(0), plan.absent()), (0, &[3][..]));
        assert_eq!(
            [1, 2, 3, 4, 5].map(|m| plan.parent(0, m)),
            [Some(0), Some(0), None, Some(0), Some(0)]
        );
        assert_eq!((plan.source(0, 4), plan.hops()), (Some(0), 1));
        let cut = Chunks::new(64, 8, 1);
        assert_eq!(plan.load(3, &cut, true), Load::default());
    }

    #[test]
    fn the_first_that_sent_to_a_root_takes_its_place() {
        let plan = two_hop().without(&[0]).unwrap();
        assert_eq!((plan.root(0), plan.children(0, 1)), (1, [2, 3].to_vec()));
        assert_eq!(
            (plan.parent(0, 4), plan.source(0, 3), plan.source(0, 1)),
            (Some(3), Some(1), None)
        );
    }

    #[test]
    fn who_is_not_there_cannot_go() {
        let missing = |member| Err(PlanError::Missing { member });
        let plan = Plan::direct(3, 1).unwrap();
        assert_eq!(plan.without(&[3]), missing(3));
        assert_eq!(plan.without(&[1, 1]), missing(1));
        assert_eq!(plan.without(&[1]).unwrap().without(&[1]), missing(1));
        assert_eq!(plan.without(&[1, 2]), Err(PlanError::TooFew { members: 1 }));
        assert!(plan.without(&[0]).is_ok());
        assert_eq!(plan.without(&[]), Ok(plan));
    }

    proptest! {
        /// Whoever goes: in every lane the others' contributions come to one root, once, and its
        /// sum to all of them; the order in which they go does not matter for who is left.
        #[test]
        fn what_is_left_are_trees(
            plan in any_plan(), gone in proptest::collection::vec(0_u32..20, 1..4)
        ) {
            let mut gone: Vec<u32> = gone.into_iter().map(|m| m % plan.members()).collect();
            gone.sort_unstable();
            gone.dedup();
            gone.truncate(plan.members() as usize - 2);
            let left = plan.without(&gone).unwrap();
            prop_assert_eq!(left.absent(), &gone[..]);
            for lane in 0..left.lanes() {
                let root = left.root(lane);
                prop_assert!(!gone.contains(&root));
                for next in [Plan::parent, Plan::source] {
                    for m in (0..left.members()).filter(|m| !gone.contains(m)) {
                        let way = core::iter::successors(Some(m), |m| next(&left, lane, *m));
                        let way: Vec<u32> = way.take(left.members() as usize + 1).collect();
                        prop_assert_eq!(way.last(), Some(&root));
                        prop_assert!(way.iter().all(|m| !gone.contains(m)));
                    }
                }
                let of = |m| left.children(lane, m).len();
                let children: usize = (0..left.members()).map(of).sum();
                prop_assert_eq!(children, left.members() as usize - gone.len() - 1);
                prop_assert!(gone.iter().all(|m| left.children(lane, *m).is_empty()));
            }
        }
    }
}
