//! The search itself: over places on ladders of values, of which only the order is known.

use std::collections::BTreeSet;

use doorbell_sim::engine::SimRng;

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
        self.class < other.class
            || (self.class == other.class && self.value.total_cmp(&other.value).is_lt())
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

/// Parts of the runs, as a divisor, that go into the first look over the whole range.
const LOOK: usize = 4;
/// Places that are drawn to find one that is far from all others.
const DRAWS: usize = 64;

/// Looks for the best place and gives it.
///
/// A quarter of the runs look at the whole range: a Latin hypercube, so that each of its places has
/// another value of every knob (McKay, Beckman, Conover, 1979). From the best of them, or from
/// `start` if that is better, one knob after the other is moved by both signs of a width that
/// begins at a quarter of its range and is halved whenever no move is better, down to neighbours
/// (the pattern search of Hooke and Jeeves, 1961, on whole numbers); a move that is better is
/// repeated. Then two knobs at a time are moved to neighbours, since where two belong together no
/// single one betters anything. With runs left it begins again from a place that is far from all
/// those seen. What is measured depends on the ranks and the seed alone.
pub fn search(m: &mut dyn Measure, lens: &[usize], start: Place, seed: u64) -> Place {
    let mut s = Search { m, lens, best: None, seen: BTreeSet::new() };
    s.look(std::slice::from_ref(&start));
    let mut rng = SimRng::stream(seed, "tune", "places");
    let first = hypercube(lens, s.m.left() / LOOK, &mut rng);
    s.look(&first);
    let mut from = s.best.clone().map_or(start, |(place, _)| place);
    loop {
        s.descend(from);
        let Some(far) = s.far(&mut rng).filter(|_| s.m.left() > 0) else { break };
        s.look(std::slice::from_ref(&far));
        from = far;
    }
    s.best.expect("the start has a rank").0
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
    best: Option<(Place, Rank)>,
    /// Places with a rank.
    seen: BTreeSet<Place>,
}

impl Search<'_> {
    /// Measures these places; the best of them.
    fn look(&mut self, places: &[Place]) -> Option<(Place, Rank)> {
        let ranks = self.m.ranks(places);
        let mut found: Option<(Place, Rank)> = None;
        for (place, rank) in places.iter().zip(ranks) {
            let Some(rank) = rank else { continue };
            self.seen.insert(place.clone());
            if found.as_ref().is_none_or(|(_, r)| rank.beats(*r)) {
                found = Some((place.clone(), rank));
            }
        }
        let (place, rank) = found.clone()?;
        if self.best.as_ref().is_none_or(|(_, r)| rank.beats(*r)) {
            if let Some((before, _)) = &self.best {
                self.m.moved(before, &place);
            }
            self.best = Some((place, rank));
        }
        found
    }

    /// `place` with a knob moved by `by`, at most to the end of its ladder; `None` where it stands
    /// there.
    fn moved(&self, place: &Place, knob: usize, by: isize) -> Option<Place> {
        let to = place[knob].saturating_add_signed(by).min(self.lens[knob] - 1);
        let mut other = place.clone();
        other[knob] = to;
        Some(other).filter(|_| to != place[knob])
    }

    /// Goes down from a place that has a rank, until no neighbour is better or no run is left.
    fn descend(&mut self, from: Place) {
        let Some((mut at, mut rank)) = self.look(&[from]) else { return };
        let mut widths: Vec<isize> = self.lens.iter().map(|n| (n / 4).max(1) as isize).collect();
        loop {
            let mut better = false;
            for (knob, width) in widths.iter().enumerate() {
                better |= self.along(knob, *width, &mut at, &mut rank);
            }
            if better {
                continue;
            }
            if widths.iter().any(|w| *w > 1) {
                widths.iter_mut().for_each(|w| *w = (*w / 2).max(1));
            } else if !self.across(&mut at, &mut rank) {
                return;
            }
        }
    }

    /// Moves one knob, as often as that betters; whether it did.
    fn along(&mut self, knob: usize, width: isize, at: &mut Place, rank: &mut Rank) -> bool {
        let ways: Vec<Place> =
            [width, -width].iter().filter_map(|by| self.moved(at, knob, *by)).collect();
        let Some((mut place, mut found)) = self.look(&ways).filter(|(_, r)| r.beats(*rank)) else {
            return false;
        };
        let by = if place[knob] > at[knob] { width } else { -width };
        loop {
            (*at, *rank) = (place, found);
            let Some(next) = self.moved(at, knob, by) else { return true };
            match self.look(&[next]).filter(|(_, r)| r.beats(*rank)) {
                Some(better) => (place, found) = better,
                None => return true,
            }
        }
    }

    /// Moves two knobs to neighbours at a time; whether that bettered.
    fn across(&mut self, at: &mut Place, rank: &mut Rank) -> bool {
        for first in 0..self.lens.len() {
            for second in first + 1..self.lens.len() {
                let signs = [(1, 1), (-1, -1), (1, -1), (-1, 1)];
                let pairs = signs.iter().filter_map(|(a, b)| {
                    self.moved(at, first, *a).and_then(|p| self.moved(&p, second, *b))
                });
                let pairs: Vec<Place> = pairs.collect();
                if let Some(better) = self.look(&pairs).filter(|(_, r)| r.beats(*rank)) {
                    (*at, *rank) = better;
                    return true;
                }
            }
        }
        false
    }

    /// Of some places drawn at random the one farthest from all with a rank, in parts of the
    /// ladders; `None` when all that were drawn have one.
    fn far(&self, rng: &mut SimRng) -> Option<Place> {
        let draw = |rng: &mut SimRng| -> Place {
            self.lens.iter().map(|n| rng.below(*n as u64) as usize).collect()
        };
        let distance = |a: &Place, b: &Place| -> u64 {
            let apart = |i: usize| 1000 * a[i].abs_diff(b[i]) as u64 / self.lens[i] as u64;
            (0..self.lens.len()).map(apart).sum()
        };
        let nearest = |p: &Place| self.seen.iter().map(|s| distance(p, s)).min();
        let drawn = (0..DRAWS).map(|_| draw(rng)).filter(|p| !self.seen.contains(p));
        drawn.max_by_key(nearest)
    }
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
