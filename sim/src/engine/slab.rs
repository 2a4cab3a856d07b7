//! An arena: packets and transactions live here and are named by a 32-bit index.

use std::ops::{Index, IndexMut};

const NONE: u32 = u32::MAX;

#[derive(Clone, Debug)]
enum Slot<T> {
    Full(T),
    /// The next free slot, or [`NONE`].
    Free(u32),
}

/// Values at stable `u32` indices; a removed index is given out again, last removed first.
///
/// Indices are for finding things. They depend on what else was alive, so they never enter a
/// hash or an order.
#[derive(Clone, Debug)]
pub struct Slab<T> {
    slots: Vec<Slot<T>>,
    free: u32,
    len: u32,
}

impl<T> Slab<T> {
    /// An empty slab; allocates at the first insertion.
    pub const fn new() -> Self {
        Self { slots: Vec::new(), free: NONE, len: 0 }
    }

    /// Stores `value` and returns its index.
    ///
    /// # Panics
    /// At 2³² - 1 values.
    #[inline]
    pub fn insert(&mut self, value: T) -> u32 {
        self.len += 1;
        if self.free == NONE {
            let index = self.slots.len() as u32;
            assert!(index < NONE, "a slab of 2^32 - 1 values");
            self.slots.push(Slot::Full(value));
            return index;
        }
        let index = self.free;
        let old = std::mem::replace(&mut self.slots[index as usize], Slot::Full(value));
        let Slot::Free(next) = old else { unreachable!("a full slot in the free list") };
        self.free = next;
        index
    }

    /// Takes the value at `index` out.
    ///
    /// # Panics
    /// When there is none: a double removal would hand one index to two owners.
    #[inline]
    pub fn remove(&mut self, index: u32) -> T {
        let slot = &mut self.slots[index as usize];
        if matches!(slot, Slot::Free(_)) {
            panic!("slab index {index} removed twice");
        }
        let old = std::mem::replace(slot, Slot::Free(self.free));
        self.free = index;
        self.len -= 1;
        let Slot::Full(value) = old else { unreachable!("checked above") };
        value
    }

    /// The value at `index`, if there is one.
    #[inline]
    pub fn get(&self, index: u32) -> Option<&T> {
        match self.slots.get(index as usize) {
            Some(Slot::Full(value)) => Some(value),
            _ => None,
        }
    }

    /// The value at `index`, if there is one.
    #[inline]
    pub fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        match self.slots.get_mut(index as usize) {
            Some(Slot::Full(value)) => Some(value),
            _ => None,
        }
    }

    /// Values stored.
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether nothing is stored.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The most values that were stored at one time.
    pub fn peak(&self) -> usize {
        self.slots.len()
    }

    /// All values with their indices, lowest index first.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.slots.iter().enumerate().filter_map(|(i, slot)| match slot {
            Slot::Full(value) => Some((i as u32, value)),
            Slot::Free(_) => None,
        })
    }
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Index<u32> for Slab<T> {
    type Output = T;
    /// # Panics
    /// When nothing is stored at `index`.
    fn index(&self, index: u32) -> &T {
        match self.get(index) {
            Some(value) => value,
            None => panic!("slab index {index} is empty"),
        }
    }
}

impl<T> IndexMut<u32> for Slab<T> {
    /// # Panics
    /// When nothing is stored at `index`.
    fn index_mut(&mut self, index: u32) -> &mut T {
        match self.get_mut(index) {
            Some(value) => value,
            None => panic!("slab index {index} is empty"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn indices_are_reused_last_removed_first() {
        let mut slab = Slab::default();
        let [a, b, c] = ["a", "b", "c"].map(|v| slab.insert(v));
        assert_eq!((a, b, c), (0, 1, 2));
        assert_eq!(slab.remove(a), "a");
        assert_eq!(slab.remove(b), "b");
        assert_eq!(slab.len(), 1);
        assert_eq!(slab.get(b), None);
        assert_eq!((slab.insert("d"), slab.insert("e"), slab.insert("f")), (1, 0, 3));
        assert_eq!(slab.peak(), 4);
        slab[3] = "g";
        assert!(slab.iter().eq([(0, &"e"), (1, &"d"), (2, &"c"), (3, &"g")]));
    }

    #[test]
    #[should_panic(expected = "slab index 1 removed twice")]
    fn double_removal_panics() {
        let mut slab = Slab::new();
        slab.insert(0);
        slab.insert(1);
        slab.remove(1);
        slab.remove(1);
    }

    #[test]
    #[should_panic(expected = "slab index 0 is empty")]
    fn indexing_a_removed_value_panics() {
        let mut slab = Slab::new();
        slab.insert(5);
        slab.remove(0);
        let _ = slab[0];
    }

    #[test]
    #[should_panic(expected = "slab index 7 is empty")]
    fn indexing_beyond_the_end_panics() {
        let _ = Slab::<u8>::new()[7];
    }

    proptest! {
        #[test]
        fn behaves_as_a_map(ops in prop::collection::vec((any::<bool>(), any::<usize>()), 0..300)) {
            let mut slab = Slab::new();
            let mut map = BTreeMap::new();
            let mut peak = 0;
            for (insert, x) in ops {
                if insert || map.is_empty() {
                    let index = slab.insert(x);
                    prop_assert_eq!(map.insert(index, x), None);
                } else {
                    let index = *map.keys().nth(x % map.len()).unwrap();
                    prop_assert_eq!(Some(slab.remove(index)), map.remove(&index));
                    prop_assert!(slab.get_mut(index).is_none());
                }
                peak = peak.max(map.len());
                prop_assert_eq!(slab.len(), map.len());
                prop_assert_eq!(slab.is_empty(), map.is_empty());
                prop_assert_eq!(slab.peak(), peak);
                prop_assert!(slab.iter().eq(map.iter().map(|(&i, v)| (i, v))));
            }
        }
    }
}
