//! What a component wants to happen later.

use doorbell_core::units::Time;

use super::key::Class;

/// A list of "(time, class, my own event)" that a component fills and its owner turns into
/// entries of the event queue.
///
/// One list is reused for all calls, so that the event path does not allocate. Entries keep the
/// order in which they were added, and that order is part of the model: it is the component's
/// own counter that orders its events of one instant and class.
#[derive(Clone, Debug)]
pub struct Out<E> {
    entries: Vec<(Time, Class, E)>,
}

impl<E> Out<E> {
    /// An empty list; allocates at the first entry.
    pub const fn new() -> Self {
        Self { entries: Vec::new() }
    }

    /// Asks for `ev` at time `t`, in `class`.
    #[inline]
    pub fn at(&mut self, t: Time, class: Class, ev: E) {
        self.entries.push((t, class, ev));
    }

    /// As [`take_each`](Self::take_each).
    #[cfg(test)]
    pub fn drain(&mut self) -> std::vec::Drain<'_, (Time, Class, E)> {
        self.entries.drain(..)
    }

    /// Takes all entries in the order of their addition and keeps the memory, without an iterator
    /// that has to be able to stop half-way.
    #[inline]
    pub fn take_each(&mut self, mut f: impl FnMut(Time, Class, E))
    where
        E: Copy,
    {
        for &(at, class, ev) in &self.entries {
            f(at, class, ev);
        }
        self.entries.clear();
    }

    /// Keeps the entries for which `keep` is true.
    pub fn retain(&mut self, mut keep: impl FnMut(&Time, &Class, &E) -> bool) {
        self.entries.retain(|(at, class, ev)| keep(at, class, ev));
    }

    /// The entries without taking them: for tests of a component alone.
    pub fn as_slice(&self) -> &[(Time, Class, E)] {
        &self.entries
    }

    /// Whether there is nothing to schedule.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Entries not yet taken.
    pub fn len(&self) -> usize {
        self.entries.len()
    }
}

impl<E> Default for Out<E> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_back_in_order_and_the_memory_stays() {
        let mut out = Out::default();
        assert!(out.is_empty());
        for i in 0..10 {
            out.at(Time::from_ps(100 - i), Class::Stage, i);
        }
        assert_eq!(out.len(), 10);
        assert_eq!(out.as_slice()[3], (Time::from_ps(97), Class::Stage, 3));
        assert!(out.clone().drain().map(|e| e.2).eq(0..10));
        let mut taken = Vec::new();
        out.take_each(|at, _, i| taken.push((at, i)));
        assert!(taken.into_iter().eq((0..10).map(|i| (Time::from_ps(100 - i), i))));
        assert!(out.is_empty());
        assert!(out.entries.capacity() >= 10);
    }
}
