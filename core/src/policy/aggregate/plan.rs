//! Who sums for whom: trees over the members, one per lane.

use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use super::chunks::Chunks;

#[cfg(test)]
mod tests;
mod two_level;
mod without;

pub use two_level::Inside;

/// Members that are near each other, as a rack or the hosts of a leaf switch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Group {
    /// Its members.
    pub members: Vec<u32>,
    /// Those of them that sum for the others: lane `l` is that of number `l % len`. More: each has
    /// fewer bytes to receive and to add.
    pub aggregators: Vec<u32>,
}

impl Group {
    /// Groups by place: members with the same number in `place_of` (rack, leaf) are together, in
    /// the order of first appearance. A place with more than `largest` members is split into
    /// parts that differ by one member at most. The first `aggregators` of each group sum.
    ///
    /// # Panics
    /// When `largest` or `aggregators` is 0.
    pub fn by_place(place_of: &[u32], largest: u32, aggregators: u32) -> Vec<Self> {
        assert!(largest > 0 && aggregators > 0, "a group has members, and one of them sums");
        let mut places: Vec<(u32, Vec<u32>)> = vec![];
        for (member, &place) in (0..).zip(place_of) {
            match places.iter_mut().find(|(p, _)| *p == place) {
                Some((_, members)) => members.push(member),
                None => places.push((place, vec![member])),
            }
        }
        let mut groups = vec![];
        for (_, members) in places {
            let parts = members.len().div_ceil(largest as usize);
            for part in 0..parts {
                let cut = |n: usize| members.len() * n / parts;
                let members = members[cut(part)..cut(part + 1)].to_vec();
                let sums = members.len().min(aggregators as usize);
                groups.push(Self { aggregators: members[..sums].to_vec(), members });
            }
        }
        groups
    }
}

/// One lane: contributions go up from parent to parent, the sum comes down from source to source.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Tree {
    /// To whom each member sends; the root to nobody.
    parent: Vec<Option<u32>>,
    /// From whom each member has the sum; the root from nobody.
    source: Vec<Option<u32>>,
    /// Most hops from a contribution to each member.
    height: Vec<u32>,
}

/// Most hops from below to each member, along its parents.
fn heights(parent: &[Option<u32>]) -> Vec<u32> {
    let mut height = vec![0; parent.len()];
    let mut has_children = vec![false; parent.len()];
    parent.iter().flatten().for_each(|p| has_children[*p as usize] = true);
    for leaf in (0..parent.len()).filter(|m| !has_children[*m]) {
        let (mut at, mut hops) = (leaf, 0);
        while let Some(up) = parent[at] {
            (at, hops) = (up as usize, hops + 1);
            if height[at] >= hops {
                break;
            }
            height[at] = hops;
        }
    }
    height
}

/// Who sends what to whom. All members must have the same plan.
///
/// In every lane each member contributes once, and the paths of the contributions form a tree that
/// ends at the lane's root: one hop in [`Plan::direct`], two in [`Plan::two_hop`], one after the
/// other through all members in [`Plan::ring`], inside the groups and then around them in
/// [`Plan::two_level`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    trees: Vec<Tree>,
    /// Members without a part in it, ascending.
    absent: Vec<u32>,
}

/// Bytes of payload that a member, or a place, has to move in one round. Exact.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Load {
    /// Bytes that it sends.
    pub sent: u64,
    /// Bytes that it receives.
    pub received: u64,
    /// Bytes that it adds; 0 for a place.
    pub added: u64,
}

/// Most lanes of a plan.
pub const MAX_LANES: u32 = 4096;

/// Why there is no such plan.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum PlanError {
    /// Nothing to sum: at least two members.
    TooFew {
        /// Members.
        members: u32,
    },
    /// Not from 1 to [`MAX_LANES`] lanes.
    Lanes {
        /// What was asked for.
        got: u32,
    },
    /// A member is in no group.
    Missing {
        /// Which.
        member: u32,
    },
    /// A member is in two groups, or twice in one.
    Twice {
        /// Which.
        member: u32,
    },
    /// Nobody in the group sums.
    NoAggregator {
        /// Place of the group in the list.
        group: u32,
    },
    /// An aggregator is not of its group.
    Stranger {
        /// Place of the group in the list.
        group: u32,
        /// The aggregator.
        member: u32,
    },
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooFew { members } => {
                write!(f, "a plan for {members} members: it takes two or more")
            }
            Self::Lanes { got } => write!(f, "{got} lanes: ask for 1 to {MAX_LANES}"),
            Self::Missing { member } => {
                write!(f, "member {member} is in no group: members are numbered from 0 without gap")
            }
            Self::Twice { member } => write!(f, "member {member} is listed twice: list it once"),
            Self::NoAggregator { group } => {
                write!(f, "group {group} has no aggregator: name one of its members")
            }
            Self::Stranger { group, member } => write!(
                f,
                "aggregator {member} is not in group {group}: name one of the group's members"
            ),
        }
    }
}

impl core::error::Error for PlanError {}

impl Plan {
    /// Every member sends to the root of the lane, which is member `lane % members`.
    ///
    /// # Errors
    /// Fewer than two members, or no lanes.
    pub fn direct(members: u32, lanes: u32) -> Result<Self, PlanError> {
        Self::mirrored(members, lanes, |lane| {
            let root = lane % members;
            move |member| (member != root).then_some(root)
        })
    }

    /// Members send to the lane's aggregator of their group, aggregators to the lane's root, which
    /// is one of them. Roots are spread over groups and aggregators: where all groups have `a`
    /// aggregators, and lanes are a multiple of groups times `a`, everyone is a root equally often.
    ///
    /// # Errors
    /// Groups that overlap or leave a member out, an aggregator that is not of its group, fewer
    /// than two members, no lanes.
    pub fn two_hop(groups: &[Group], lanes: u32) -> Result<Self, PlanError> {
        let group_of = check(groups)?;
        Self::mirrored(group_of.len() as u32, lanes, |lane| {
            let (aggregators, top) = aggregators(groups, lane);
            let (group_of, root) = (&group_of, aggregators[top]);
            move |member| {
                let near = aggregators[group_of[member as usize] as usize];
                let up = if member == near { root } else { near };
                (member != up).then_some(up)
            }
        })
    }

    /// The ring: lane `l` starts at member `l + 1` and passes through all members to member `l`,
    /// each adding its own; the sum then goes on around in the same direction.
    ///
    /// # Errors
    /// Fewer than two members, or more than [`MAX_LANES`], as there is a lane for each.
    pub fn ring(members: u32) -> Result<Self, PlanError> {
        let next = |m: u32| (m + 1) % members;
        let parent = |lane| move |m| (m != lane).then(|| next(m));
        let mut plan = Self::mirrored(members, members, parent)?;
        for (lane, tree) in (0..).zip(&mut plan.trees) {
            for (m, source) in (0..).zip(&mut tree.source) {
                *source = (m != lane).then(|| (m + members - 1) % members);
            }
        }
        Ok(plan)
    }

    /// A plan in which the sum comes back on the way of the contributions; `parent` has those of a
    /// lane.
    fn mirrored<F: Fn(u32) -> Option<u32>>(
        members: u32,
        lanes: u32,
        parent: impl Fn(u32) -> F,
    ) -> Result<Self, PlanError> {
        Self::of_lanes(members, lanes, |lane| {
            let parent: Vec<_> = (0..members).map(parent(lane)).collect();
            Tree { source: parent.clone(), height: heights(&parent), parent }
        })
    }

    fn of_lanes(
        members: u32,
        lanes: u32,
        tree: impl FnMut(u32) -> Tree,
    ) -> Result<Self, PlanError> {
        if members < 2 {
            return Err(PlanError::TooFew { members });
        }
        if !(1..=MAX_LANES).contains(&lanes) {
            return Err(PlanError::Lanes { got: lanes });
        }
        Ok(Self { trees: (0..lanes).map(tree).collect(), absent: vec![] })
    }

    /// Members, numbered from 0, also those that are absent.
    pub fn members(&self) -> u32 {
        self.trees[0].parent.len() as u32
    }

    /// Lanes.
    pub fn lanes(&self) -> u32 {
        self.trees.len() as u32
    }

    /// Who has the sum of a lane first.
    pub fn root(&self, lane: u32) -> u32 {
        let parent = &self.trees[lane as usize].parent;
        let is_root = |m: &u32| parent[*m as usize].is_none() && !self.absent.contains(m);
        (0..self.members()).find(is_root).expect("a tree has a root")
    }

    /// To whom a member sends what it has summed; `None`: it is the root.
    pub fn parent(&self, lane: u32, member: u32) -> Option<u32> {
        self.trees[lane as usize].parent[member as usize]
    }

    /// From whom a member has the sum; `None`: it is the root.
    pub fn source(&self, lane: u32, member: u32) -> Option<u32> {
        self.trees[lane as usize].source[member as usize]
    }

    /// Whether the sum of a lane comes back on the way of the contributions.
    pub fn is_mirrored(&self, lane: u32) -> bool {
        let tree = &self.trees[lane as usize];
        tree.source == tree.parent
    }

    /// Whose contributions a member adds, ascending. A fixed order is this one, its own first.
    pub fn children(&self, lane: u32, member: u32) -> Vec<u32> {
        whose(&self.trees[lane as usize].parent, member)
    }

    /// To whom a member passes the sum on, ascending.
    pub fn sinks(&self, lane: u32, member: u32) -> Vec<u32> {
        whose(&self.trees[lane as usize].source, member)
    }

    /// Most hops from a contribution to this member; 0 for one without children.
    pub fn height(&self, lane: u32, member: u32) -> u32 {
        self.trees[lane as usize].height[member as usize]
    }

    /// Hops of the sum from the root to this member.
    pub fn depth(&self, lane: u32, member: u32) -> u32 {
        let source = &self.trees[lane as usize].source;
        core::iter::successors(source[member as usize], |m| source[*m as usize]).count() as u32
    }

    /// Most hops of a contribution to the root of its lane.
    pub fn hops(&self) -> u32 {
        self.trees.iter().flat_map(|t| &t.height).copied().max().unwrap_or(0)
    }

    /// What a member moves in one round; `broadcast`: the sum comes back.
    ///
    /// With one lane and `s` bytes, an aggregator of `m` members receives `(m - 1) s`. Divided by
    /// a port's rate, the largest load of all members is a bound of the time that no schedule
    /// beats.
    pub fn load(&self, member: u32, cut: &Chunks, broadcast: bool) -> Load {
        let mut load = Load::default();
        self.edges(cut, broadcast, |from, to, bytes, up| {
            load.sent += if from == member { bytes } else { 0 };
            load.received += if to == member { bytes } else { 0 };
            load.added += if to == member && up { bytes } else { 0 };
        });
        load
    }

    /// What leaves and enters a place (rack, leaf) in one round: `place_of` has that of each
    /// member.
    ///
    /// # Panics
    /// When `place_of` has another number of members.
    pub fn crossing(&self, place_of: &[u32], place: u32, cut: &Chunks, broadcast: bool) -> Load {
        assert_eq!(place_of.len(), self.members() as usize, "a place for each member");
        let inside = |m: u32| place_of[m as usize] == place;
        let mut load = Load::default();
        self.edges(cut, broadcast, |from, to, bytes, _| match (inside(from), inside(to)) {
            (true, false) => load.sent += bytes,
            (false, true) => load.received += bytes,
            _ => {}
        });
        load
    }

    /// Tells of every message: from, to, bytes, whether it is a contribution.
    fn edges(&self, cut: &Chunks, broadcast: bool, mut tell: impl FnMut(u32, u32, u64, bool)) {
        for (lane, tree) in (0..).zip(&self.trees) {
            let bytes = cut.bytes_of_lane(lane);
            for (m, (parent, source)) in (0..).zip(tree.parent.iter().zip(&tree.source)) {
                parent.iter().for_each(|&to| tell(m, to, bytes, true));
                source.iter().filter(|_| broadcast).for_each(|&from| tell(from, m, bytes, false));
            }
        }
    }
}

fn whose(of: &[Option<u32>], member: u32) -> Vec<u32> {
    (0..).zip(of).filter(|(_, p)| **p == Some(member)).map(|(m, _)| m).collect()
}

/// The aggregator of each group in a lane, and the group whose aggregator is the root. Roots are
/// spread over groups and aggregators.
fn aggregators(groups: &[Group], lane: u32) -> (Vec<u32>, usize) {
    let lane = lane as usize;
    let fewest = groups.iter().map(|g| g.aggregators.len()).min().unwrap_or(1);
    let of_lane = groups.iter().map(|g| g.aggregators[lane % g.aggregators.len()]);
    (of_lane.collect(), (lane / fewest + lane % fewest) % groups.len())
}

/// The group of each member.
fn check(groups: &[Group]) -> Result<Vec<u32>, PlanError> {
    let count: usize = groups.iter().map(|g| g.members.len()).sum();
    let mut group_of = vec![None; count];
    for (at, group) in (0..).zip(groups) {
        for &member in &group.members {
            match group_of.get_mut(member as usize) {
                Some(of @ None) => *of = Some(at),
                Some(Some(_)) => return Err(PlanError::Twice { member }),
                // One number is too high, so another one is missing.
                None => {}
            }
        }
        if group.aggregators.is_empty() {
            return Err(PlanError::NoAggregator { group: at });
        }
        if let Some(&member) = group.aggregators.iter().find(|a| !group.members.contains(a)) {
            return Err(PlanError::Stranger { group: at, member });
        }
    }
    let missing = |m: usize| PlanError::Missing { member: m as u32 };
    (0..).zip(group_of).map(|(m, of)| of.ok_or_else(|| missing(m))).collect()
}
