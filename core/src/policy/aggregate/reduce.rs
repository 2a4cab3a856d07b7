//! Which contribution is added next.

use alloc::vec;
use alloc::vec::Vec;

/// In which order contributions are added.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub enum Order {
    /// As they arrive: nothing waits for its turn, and a sum of floats may differ in its last bits
    /// from run to run. Integers do not.
    Arrival,
    /// A member's own first, then those of its children in ascending order: the same bits on every
    /// back end and in every run. A contribution that is early waits in its buffer.
    #[default]
    Fixed,
}

/// The contributions of a member's children in one lane.
///
/// Each child's come in the order of the sequence, so one number for what has come and one for
/// what was added say it all: number `seq` was added for a child whose count is above `seq`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tally {
    order: Order,
    arrived: Vec<u64>,
    added: Vec<u64>,
}

impl Tally {
    /// For so many children; nothing has come.
    pub fn new(order: Order, children: usize) -> Self {
        Self { order, arrived: vec![0; children], added: vec![0; children] }
    }

    /// Contributions of a child that have come: the number of the next one.
    pub fn arrived(&self, child: usize) -> u64 {
        self.arrived[child]
    }

    /// Contributions of a child that were added.
    pub fn added(&self, child: usize) -> u64 {
        self.added[child]
    }

    /// The next contribution of a child is here.
    pub fn arrive(&mut self, child: usize) {
        self.arrived[child] += 1;
    }

    /// The child and the number of the contribution to add now, below `limit`, if one may be
    /// added: the oldest, so that the oldest sum is complete first.
    pub fn next(&self, limit: u64) -> Option<(usize, u64)> {
        let may = |c: &usize| {
            let seq = self.added[*c];
            let turn = self.order == Order::Arrival || *c == 0 || self.added[*c - 1] > seq;
            seq < self.arrived[*c].min(limit) && turn
        };
        let oldest = (0..self.added.len()).filter(may).min_by_key(|c| self.added[*c])?;
        Some((oldest, self.added[oldest]))
    }

    /// The contribution that [`Tally::next`] named was added.
    ///
    /// # Panics
    /// When it has not come.
    pub fn add(&mut self, child: usize) {
        assert!(self.added[child] < self.arrived[child], "a contribution that has not come");
        self.added[child] += 1;
    }

    /// How many numbers of the sequence are complete: all children's were added. `None` without
    /// children.
    pub fn summed(&self) -> Option<u64> {
        self.added.iter().copied().min()
    }

    /// A child whose contribution `seq` has not come.
    pub fn missing(&self, seq: u64) -> Option<usize> {
        self.arrived.iter().position(|n| *n <= seq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_fixed_order_lets_the_early_wait() {
        let mut fixed = Tally::new(Order::Fixed, 2);
        let mut arrival = Tally::new(Order::Arrival, 2);
        for tally in [&mut fixed, &mut arrival] {
            tally.arrive(1);
        }
        assert_eq!((fixed.next(9), arrival.next(9)), (None, Some((1, 0))));
        fixed.arrive(0);
        assert_eq!(fixed.next(9), Some((0, 0)));
        fixed.add(0);
        assert_eq!((fixed.next(9), fixed.summed()), (Some((1, 0)), Some(0)));
        fixed.add(1);
        assert_eq!((fixed.next(9), fixed.summed(), fixed.missing(0)), (None, Some(1), None));
        assert_eq!(fixed.missing(1), Some(0));
    }

    #[test]
    fn what_belongs_to_a_round_that_has_not_begun_waits() {
        let mut tally = Tally::new(Order::Arrival, 1);
        tally.arrive(0);
        assert_eq!((tally.next(0), tally.next(1)), (None, Some((0, 0))));
        assert_eq!(Tally::new(Order::Fixed, 0).summed(), None);
    }

    #[test]
    #[should_panic(expected = "has not come")]
    fn nothing_is_added_before_it_came() {
        Tally::new(Order::Fixed, 1).add(0);
    }

    proptest! {
        /// Whatever the order of arrival: each contribution once, and in a fixed order each sum
        /// takes its children one after the other.
        #[test]
        fn every_contribution_is_added_once(
            children in 1_usize..6, length in 1_u64..6, fixed: bool,
            shuffle in proptest::collection::vec(0_usize..6, 64)
        ) {
            let order = if fixed { Order::Fixed } else { Order::Arrival };
            let mut tally = Tally::new(order, children);
            let mut added = vec![vec![]; length as usize];
            let mut at = shuffle.iter().cycle();
            while tally.summed() < Some(length) {
                let open = |c: &usize| tally.arrived(*c) < length;
                let from = *at.next().unwrap();
                if let Some(c) = (0..children).map(|c| (c + from) % children).find(open) {
                    tally.arrive(c);
                }
                if let Some((child, seq)) = tally.next(length) {
                    tally.add(child);
                    added[seq as usize].push(child);
                }
            }
            for mut of in added {
                if !fixed {
                    of.sort_unstable();
                }
                prop_assert_eq!(of, (0..children).collect::<Vec<_>>());
            }
        }
    }
}
