//! The search itself: over places on ladders of values, of which only the order is known.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use doorbell_sim::engine::SimRng;

use super::surface::{Surface, distance};

/// A place: for each knob the index of its value.
pub type Place = Vec<usize>;

/// How good a place is: the lower one is the better. First come places that ran to their end and
/// keep all conditions, by the objective; then those that break one, by how far; last those that
/// did not run to their end.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Rank {
    class: u8,
    value: f64,
}

impl Rank {
    /// All conditions are kept; lower values are better.
    pub const fn good(value: f64) -> Self {
        Self { class: 0, value }
    }

    /// A condition is broken, by so much in parts of its bound.
    pub const fn breaks(by: f64) -> Self {
        Self { class: 1, value: by }
    }

    /// The run did not end well, or there is none.
    pub const fn failed() -> Self {
        Self { class: 2, value: 0.0 }
    }

    /// Whether it keeps all conditions.
    pub const fn is_good(self) -> bool {
        self.class == 0
    }

    /// Whether it is better than `other`. Equal ones are not: the search stays where it is.
    pub fn beats(self, other: Self) -> bool {
        self.order(other).is_lt()
    }

    /// The better one first.
    fn order(self, other: Self) -> Ordering {
        self.class.cmp(&other.class).then(self.value.total_cmp(&other.value))
    }
}

/// What measures places.
pub trait Measure {
    /// The ranks of these places, in order. `None` for a place that was not measured before and for
    /// which no run is left; which of them those are depends on the order alone.
    fn ranks(&mut self, places: &[Place]) -> Vec<Option<Rank>>;

    /// Runs that are left.
    fn left(&self) -> usize;

    /// The search goes on from this place, which is the best so far.
    fn moved(&mut self, from: &Place, to: &Place);
}

/// Parts of the runs, as a divisor, that go into the first look over the whole range. Higher: less
/// is seen before the surface decides; too high, and it decides by nothing.
const LOOK: usize = 6;
/// Places that a surface goes through at most: solving takes their number cubed.
const POINTS: usize = 96;
/// Places that a surface is asked for at most. Of more, so many are drawn.
const ASKED: usize = 4096;
/// How much what is expected weighs against the distance from all that was seen, in turn:
/// from a look at the unknown to what is expected to be the best (Regis and Shoemaker, 2007).
const WEIGHTS: [f64; 4] = [0.3, 0.6, 0.8, 1.0];

/// Looks for the best place and gives it.
///
/// A sixth of the runs look at the whole range: a Latin hypercube, so that each of its places has
/// another value of every knob (McKay, Beckman, Conover, 1979). Then a smooth surface is laid
/// through all that was seen, by order: how many places were better says how high one stands, not
/// by how much, so that neither a cliff nor a run that failed bends what is elsewhere. By it two
/// places at a time are chosen. One is the neighbour of the best so far, each knob a step away at
/// most, that is expected to be the best; knobs that only together better anything are found so.
/// The other is far from all that was seen, or expected to be good, or both, by weights that take
/// turns. So it ends when no run is left, or every place was seen. What is measured depends on the
/// ranks and the seed alone.
pub fn search(m: &mut dyn Measure, lens: &[usize], start: Place, seed: u64) -> Place {
    let mut s = Search { m, lens, best: 0, seen: vec![], places: BTreeSet::new(), turn: 0 };
    s.look(std::slice::from_ref(&start));
    let mut rng = SimRng::stream(seed, "tune", "places");
    let first = hypercube(lens, s.m.left() / LOOK, &mut rng);
    s.look(&first);
    while s.m.left() > 0 {
        let next = s.next(&mut rng);
        if next.is_empty() {
            break;
        }
        s.look(&next);
    }
    s.seen.get(s.best).map_or(start, |(place, _)| place.clone())
}

/// `n` places, at most as many as the longest ladder has values, of which no two share a value of
/// a knob as far as its ladder has enough.
fn hypercube(lens: &[usize], n: usize, rng: &mut SimRng) -> Vec<Place> {
    let n = n.min(lens.iter().copied().max().unwrap_or(0));
    let mut places = vec![Vec::with_capacity(lens.len()); n];
    for len in lens {
        let mut order: Vec<usize> = (0..n).collect();
        rng.shuffle(&mut order);
        for (place, at) in places.iter_mut().zip(order) {
            // The middle of the part with this number.
            place.push((2 * at + 1) * len / (2 * n));
        }
    }
    places
}

struct Search<'a> {
    m: &'a mut dyn Measure,
    lens: &'a [usize],
    /// Index in `seen`.
    best: usize,
    /// Places with a rank.
    seen: Vec<(Place, Rank)>,
    /// The same.
    places: BTreeSet<Place>,
    /// Whose turn of the weights it is.
    turn: usize,
}

/// A place that may be next.
struct Candidate {
    place: Place,
    /// What the surface has there.
    expected: f64,
    /// How far the nearest place with a rank is.
    apart: f64,
}

impl Search<'_> {
    /// Measures these places.
    fn look(&mut self, places: &[Place]) {
        let ranks = self.m.ranks(places);
        for (place, rank) in places.iter().zip(ranks) {
            let Some(rank) = rank else { continue };
            if !self.places.insert(place.clone()) {
                continue;
            }
            self.seen.push((place.clone(), rank));
            let last = self.seen.len() - 1;
            if rank.beats(self.seen[self.best].1) {
                self.m.moved(&self.seen[self.best].0, place);
                self.best = last;
            }
        }
    }

    /// The places to look at next; none when all were seen.
    fn next(&mut self, rng: &mut SimRng) -> Vec<Place> {
        let surface = self.surface();
        let best = &self.seen[self.best].0;
        let candidate = |place: Place| Candidate {
            expected: surface.as_ref().map_or(0.0, |s| s.at(&place)),
            apart: nearest(&place, self.seen.iter().map(|(p, _)| p)),
            place,
        };
        let asked = self.asked(rng);
        let mut all: Vec<Candidate> = asked.into_iter().map(candidate).collect();
        let is_near = |c: &Candidate| c.place.iter().zip(best).all(|(a, b)| a.abs_diff(*b) <= 1);
        // Without a surface nothing is expected anywhere, and neighbours would come by accident.
        let near = (0..all.len()).filter(|i| surface.is_some() && is_near(&all[*i]));
        let near = near.min_by(|a, b| all[*a].expected.total_cmp(&all[*b].expected));
        let mut next = vec![];
        if let Some(near) = near {
            let place = all.swap_remove(near).place;
            all.iter_mut().for_each(|c| c.apart = c.apart.min(distance(&c.place, &place)));
            next.push(place);
        }
        let weight = WEIGHTS[self.turn % WEIGHTS.len()];
        self.turn += 1;
        next.extend(widest(all, if surface.is_some() { weight } else { 0.0 }));
        next
    }

    /// The surface through what was seen: the better half of the places that it may have, and of
    /// the others as many, evenly by rank.
    fn surface(&self) -> Option<Surface> {
        let mut order: Vec<&(Place, Rank)> = self.seen.iter().collect();
        order.sort_by(|(_, a), (_, b)| a.order(*b));
        let mut height = 0;
        let mut heights = vec![0; order.len()];
        for i in 1..order.len() {
            height += usize::from(order[i].1 != order[i - 1].1);
            heights[i] = height;
        }
        let few = POINTS / 2;
        let rest = order.len().saturating_sub(few);
        let every = rest.div_ceil(few).max(1);
        let of: Vec<usize> =
            (0..order.len().min(few)).chain((few..order.len()).step_by(every)).collect();
        let places = of.iter().map(|i| order[*i].0.clone()).collect();
        // The root, since among the better ones the order matters more than among the others.
        let root = |i: &usize| (heights[*i] as f64 / (height as f64).max(1.0)).sqrt();
        Surface::through(places, &of.iter().map(root).collect::<Vec<_>>())
    }

    /// Places without a rank: all, or of many the neighbours of the best and some that are drawn.
    fn asked(&self, rng: &mut SimRng) -> Vec<Place> {
        let all = self.lens.iter().try_fold(1usize, |n, len| n.checked_mul(*len));
        let mut places = vec![vec![]];
        let best = &self.seen[self.best].0;
        let few = all.is_some_and(|n| n <= ASKED);
        for (k, len) in self.lens.iter().enumerate() {
            let near = best[k].saturating_sub(1)..(best[k] + 2).min(*len);
            let values = if few { 0..*len } else { near };
            let with = |place: Place| values.clone().map(move |at| [&place[..], &[at]].concat());
            places = places.into_iter().flat_map(with).take(ASKED).collect();
        }
        if !few {
            let draw = |_| self.lens.iter().map(|n| rng.below(*n as u64) as usize).collect();
            let mut drawn: Vec<Place> = (0..ASKED).map(draw).collect();
            drawn.append(&mut places);
            drawn.sort_unstable();
            drawn.dedup();
            places = drawn;
        }
        places.retain(|p| !self.places.contains(p));
        places
    }
}

fn nearest<'a>(place: &Place, others: impl Iterator<Item = &'a Place>) -> f64 {
    others.map(|other| distance(place, other)).fold(f64::INFINITY, f64::min)
}

/// The one with the least sum of what is expected, by this weight, and of how near it is to what
/// was seen, by the rest of 1; each in parts of its range over all of them.
fn widest(all: Vec<Candidate>, weight: f64) -> Option<Place> {
    let range = |of: fn(&Candidate) -> f64| {
        let least = all.iter().map(of).fold(f64::INFINITY, f64::min);
        let most = all.iter().map(of).fold(f64::NEG_INFINITY, f64::max);
        move |c: &Candidate| if most > least { (of(c) - least) / (most - least) } else { 0.0 }
    };
    let (expected, apart) = (range(|c| c.expected), range(|c| c.apart));
    let sum = |c: &Candidate| weight * expected(c) + (1.0 - weight) * (1.0 - apart(c));
    all.iter().min_by(|a, b| sum(a).total_cmp(&sum(b))).map(|c| c.place.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// A landscape by formula, with so many runs.
    struct Land<F> {
        of: F,
        left: usize,
        known: BTreeMap<Place, Rank>,
        moves: Vec<Place>,
    }

    impl<F: Fn(&Place) -> Rank> Land<F> {
        fn new(left: usize, of: F) -> Self {
            Self { of, left, known: BTreeMap::new(), moves: vec![] }
        }
    }

    impl<F: Fn(&Place) -> Rank> Measure for Land<F> {
        fn ranks(&mut self, places: &[Place]) -> Vec<Option<Rank>> {
            let mut one = |p: &Place| {
                if let Some(rank) = self.known.get(p) {
                    return Some(*rank);
                }
                self.left = self.left.checked_sub(1)?;
                let rank = (self.of)(p);
                self.known.insert(p.clone(), rank);
                Some(rank)
            };
            places.iter().map(&mut one).collect()
        }

        fn left(&self) -> usize {
            self.left
        }

        fn moved(&mut self, _from: &Place, to: &Place) {
            self.moves.push(to.clone());
        }
    }

    #[test]
    fn ranks_put_conditions_before_the_objective_and_failures_last() {
        let order = [
            Rank::good(-3.0),
            Rank::good(2.0),
            Rank::breaks(0.1),
            Rank::breaks(9.0),
            Rank::failed(),
        ];
        for (i, a) in order.iter().enumerate() {
            for (j, b) in order.iter().enumerate() {
                assert_eq!(a.beats(*b), i < j, "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn a_hypercube_has_each_part_of_every_range_once() {
        let mut rng = SimRng::stream(1, "t", "t");
        let places = hypercube(&[10, 5, 2], 5, &mut rng);
        let column = |k: usize| {
            let mut values: Vec<usize> = places.iter().map(|p| p[k]).collect();
            values.sort_unstable();
            values
        };
        assert_eq!((column(0), column(1)), (vec![1, 3, 5, 7, 9], vec![0, 1, 2, 3, 4]));
        assert_eq!(column(2), [0, 0, 1, 1, 1]);
        assert!(hypercube(&[3], 0, &mut rng).is_empty());
    }

    #[test]
    fn no_run_is_left_while_many_places_are_new() {
        for runs in 1..40 {
            let mut land = Land::new(runs, |p: &Place| Rank::good((p[0] * 7 + p[1] * 3) as f64));
            search(&mut land, &[6, 6], vec![3, 3], 1);
            assert!(land.left == 0 || land.known.len() > 30, "{runs}: {} left", land.left);
        }
    }

    /// Two knobs that only together better anything: no single move does.
    #[test]
    fn a_ridge_is_climbed_by_two_knobs_at_a_time() {
        let ridge = |p: &Place| Rank::good(10.0 * p[0].abs_diff(p[1]) as f64 - p[0] as f64);
        let mut land = Land::new(64, ridge);
        assert_eq!(search(&mut land, &[16, 16], vec![2, 2], 1), [15, 15]);
    }

    proptest! {
        /// One peak, knobs that pull at each other a little, some places that fail: a tenth of the
        /// grid's runs find the peak.
        #[test]
        fn one_peak_is_found_in_a_tenth_of_the_grid(
            peak in prop::array::uniform3(0..8usize), start in prop::array::uniform3(0..8usize),
            weight in prop::array::uniform3(1..9u32), seed in any::<u64>(),
        ) {
            let of = |p: &Place| {
                let off = |i: usize| p[i] as f64 - peak[i] as f64;
                let square = |i: usize| f64::from(weight[i]) * off(i) * off(i);
                Rank::good(square(0) + square(1) + square(2) + 0.5 * off(0) * off(1))
            };
            let mut land = Land::new(51, of);
            let found = search(&mut land, &[8, 8, 8], start.to_vec(), seed);
            prop_assert_eq!(found, peak.to_vec());
        }

        /// Whatever the landscape: the best place that was measured is the answer, the moves only
        /// get better, and the same seed measures the same places.
        #[test]
        fn the_best_that_was_seen_is_the_answer(
            table in prop::collection::vec(0..1000u32, 1..40), runs in 1..40usize,
            lens in prop::array::uniform3(1..6usize), seed in any::<u64>(),
        ) {
            let of = |p: &Place| {
                let cell = table[(p[0] * 25 + p[1] * 5 + p[2]) % table.len()];
                match cell % 5 {
                    0 => Rank::failed(),
                    1 => Rank::breaks(f64::from(cell)),
                    _ => Rank::good(f64::from(cell)),
                }
            };
            let mut lands = [Land::new(runs, of), Land::new(runs, of)];
            let found = lands.each_mut().map(|l| search(l, &lens, vec![0; 3], seed));
            let land = &lands[0];
            prop_assert!(land.known.values().all(|r| !r.beats(land.known[&found[0]])));
            let ranks: Vec<Rank> = land.moves.iter().map(|p| land.known[p]).collect();
            prop_assert!(ranks.windows(2).all(|w| w[1].beats(w[0])));
            prop_assert_eq!((&found[0], &land.known), (&found[1], &lands[1].known));
        }
    }
}
