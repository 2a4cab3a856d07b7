//! On-chip caches of the NIC: which entries are held, not their contents.

use std::collections::BTreeMap;

use crate::engine::SimRng;

/// A set of at most `capacity` keys with random replacement.
///
/// Random replacement rather than LRU: under a cyclic access pattern LRU falls from all hits to
/// none at one entry too many, which no measured NIC does.
#[derive(Debug)]
pub struct Cache {
    capacity: usize,
    /// Held keys, in no order.
    held: Vec<u64>,
    /// Position of each held key in `held`.
    at: BTreeMap<u64, u32>,
    rng: SimRng,
    hits: u64,
    misses: u64,
}

impl Cache {
    /// A cache of `capacity` keys.
    ///
    /// # Panics
    /// When `capacity` is 0.
    pub fn new(capacity: u32, rng: SimRng) -> Self {
        assert!(capacity > 0, "a cache of no entries");
        let capacity = capacity as usize;
        Self { capacity, held: Vec::new(), at: BTreeMap::new(), rng, hits: 0, misses: 0 }
    }

    /// Most keys that it holds.
    pub const fn capacity(&self) -> usize {
        self.capacity
    }

    /// Whether `key` is held; counts a hit or a miss.
    pub fn lookup(&mut self, key: u64) -> bool {
        let hit = self.at.contains_key(&key);
        if hit {
            self.hits += 1;
        } else {
            self.misses += 1;
        }
        hit
    }

    /// Holds `key`, dropping another one when full.
    pub fn insert(&mut self, key: u64) {
        if self.at.contains_key(&key) {
            return;
        }
        if self.held.len() == self.capacity {
            let victim = self.rng.below(self.capacity as u64) as usize;
            self.remove(self.held[victim]);
        }
        self.at.insert(key, self.held.len() as u32);
        self.held.push(key);
    }

    /// Drops `key` if held.
    pub fn remove(&mut self, key: u64) {
        let Some(p) = self.at.remove(&key) else { return };
        self.held.swap_remove(p as usize);
        if let Some(&moved) = self.held.get(p as usize) {
            self.at.insert(moved, p);
        }
    }

    /// Look-ups that hit and that missed.
    pub const fn counts(&self) -> (u64, u64) {
        (self.hits, self.misses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_up_to_its_capacity_and_not_one_more() {
        let mut c = Cache::new(4, SimRng::stream(1, "t", "c"));
        for k in 0..4 {
            c.insert(k);
        }
        assert!((0..4).all(|k| c.lookup(k)));
        c.insert(9);
        assert!(c.lookup(9));
        assert_eq!((0..4).filter(|&k| c.lookup(k)).count(), 3);
        c.remove(9);
        assert!(!c.lookup(9));
        c.remove(77);
        assert_eq!(c.counts(), (8, 2));
    }
}
