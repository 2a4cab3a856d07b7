//! A 4-ary heap of keys, for the rare instants at which a sorted list would be too slow.

use super::key::Key;

/// Children of a node: four fit two cache lines, and the tree is half as deep as a binary one.
const ARITY: usize = 4;

/// Keys with their events, least key first.
#[derive(Clone, Debug)]
pub(crate) struct Heap<E> {
    entries: Vec<(Key, E)>,
}

impl<E: Copy> Heap<E> {
    pub(crate) const fn new() -> Self {
        Self { entries: Vec::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn peek(&self) -> Option<Key> {
        self.entries.first().map(|e| e.0)
    }

    pub(crate) fn push(&mut self, key: Key, event: E, seed: u64) {
        let mut hole = self.entries.len();
        self.entries.push((key, event));
        while hole > 0 {
            let parent = (hole - 1) / ARITY;
            if !key.before(self.entries[parent].0, seed) {
                break;
            }
            self.entries[hole] = self.entries[parent];
            hole = parent;
        }
        self.entries[hole] = (key, event);
    }

    pub(crate) fn pop(&mut self, seed: u64) -> Option<(Key, E)> {
        let last = self.entries.pop()?;
        let Some(&first) = self.entries.first() else { return Some(last) };
        let mut hole = 0;
        loop {
            let child = hole * ARITY + 1;
            let end = (child + ARITY).min(self.entries.len());
            let earlier = |a: usize, b: usize| {
                if self.entries[b].0.before(self.entries[a].0, seed) { b } else { a }
            };
            let Some(best) = (child..end).reduce(earlier) else { break };
            if !self.entries[best].0.before(last.0, seed) {
                break;
            }
            self.entries[hole] = self.entries[best];
            hole = best;
        }
        self.entries[hole] = last;
        Some(first)
    }
}
