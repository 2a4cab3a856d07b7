//! On-chip caches of the NIC: which entries are held, not their contents.

use crate::engine::SimRng;

/// A set of at most `capacity` keys with random replacement.
///
/// Random replacement rather than LRU: under a cyclic access pattern LRU falls from all hits to
/// none at one entry too many, which no measured NIC does.
#[derive(Debug)]
pub struct Cache {
    capacity: usize,
    /// Held keys, in no order.
    held: Vec<u32>,
    /// Position of each key in `held`, by key; `u32::MAX` when absent.
    at: Vec<u32>,
    rng: SimRng,
    hits: u64,
    misses: u64,
}

const ABSENT: u32 = u32::MAX;

impl Cache {
    /// A cache of `capacity` keys. Keys are small and dense: indices.
    ///
    /// # Panics
    /// When `capacity` is 0.
    pub fn new(capacity: u32, rng: SimRng) -> Self {
        assert!(capacity > 0, "a cache of no entries");
        Self { capacity: capacity as usize, held: Vec::new(), at: Vec::new(), rng, hits: 0, misses: 0 }
    }

    fn grow(&mut self, key: u32) {
        if self.at.len() <= key as usize {
            self.at.resize(key as usize + 1, ABSENT);
        }
    }

    /// Whether `key` is held; counts a hit or a miss.
    pub fn lookup(&mut self, key: u32) -> bool {
        let hit = self.at.get(key as usize).is_some_and(|&p| p != ABSENT);
        if hit {
            self.hits += 1;
        } else {
            self.misses += 1;
        }
        hit
    }

    /// Holds `key`, dropping another one when full.
    pub fn insert(&mut self, key: u32) {
        self.grow(key);
        if self.at[key as usize] != ABSENT {
            return;
        }
        if self.held.len() == self.capacity {
            let victim = self.rng.below(self.capacity as u64) as usize;
            self.remove_at(victim);
        }
        self.at[key as usize] = self.held.len() as u32;
        self.held.push(key);
    }

    /// Drops `key` if held.
    pub fn remove(&mut self, key: u32) {
        if let Some(&p) = self.at.get(key as usize)
            && p != ABSENT
        {
            self.remove_at(p as usize);
        }
    }

    fn remove_at(&mut self, p: usize) {
        let gone = self.held.swap_remove(p);
        self.at[gone as usize] = ABSENT;
        if let Some(&moved) = self.held.get(p) {
            self.at[moved as usize] = p as u32;
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
    }
}
