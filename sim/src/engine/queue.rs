//! The priority queue of events.

use super::key::Key;

/// Children of a heap node: four share one or two cache lines, and the tree is half as deep as
/// a binary one.
const ARITY: usize = 4;

/// Pending events in key order.
#[derive(Clone, Debug)]
pub(crate) struct Queue<E> {
    seed: u64,
    heap: Vec<(Key, E)>,
}

impl<E: Copy> Queue<E> {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, heap: Vec::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.heap.len()
    }

    pub(crate) fn peek(&self) -> Option<Key> {
        self.heap.first().map(|e| e.0)
    }

    pub(crate) fn push(&mut self, key: Key, event: E) {
        let mut hole = self.heap.len();
        self.heap.push((key, event));
        while hole > 0 {
            let parent = (hole - 1) / ARITY;
            if !key.before(self.heap[parent].0, self.seed) {
                break;
            }
            self.heap[hole] = self.heap[parent];
            hole = parent;
        }
        self.heap[hole] = (key, event);
    }

    pub(crate) fn pop(&mut self) -> Option<(Key, E)> {
        let last = self.heap.pop()?;
        let Some(&first) = self.heap.first() else { return Some(last) };
        let mut hole = 0;
        loop {
            let child = hole * ARITY + 1;
            let end = (child + ARITY).min(self.heap.len());
            let Some(best) = (child..end).reduce(|a, b| {
                if self.heap[b].0.before(self.heap[a].0, self.seed) { b } else { a }
            }) else {
                break;
            };
            if !self.heap[best].0.before(last.0, self.seed) {
                break;
            }
            self.heap[hole] = self.heap[best];
            hole = best;
        }
        self.heap[hole] = last;
        Some(first)
    }
}
