//! Tables of what a handle has issued, by checked ids.

use doorbell_core::transport::{AhId, BadHandle, CqId, MrId, PdId, QpId, SrqId, WatchId};

/// The parts of a handle that a table needs.
pub trait Id: Copy + Eq {
    /// See `new` of the handles.
    fn make(index: u32, generation: u32, issuer: u32) -> Self;
    /// Position in the table.
    fn at(self) -> usize;
    /// How often the slot had been re-used.
    fn round(self) -> u32;
    /// Entries that the id can tell apart.
    const MAX: usize;
}

macro_rules! ids {
    ($($id:ident)*) => {$(
        impl Id for $id {
            fn make(index: u32, generation: u32, issuer: u32) -> Self {
                Self::new(index, generation, issuer)
            }
            #[inline(always)]
            fn at(self) -> usize {
                self.index() as usize
            }
            fn round(self) -> u32 {
                self.generation()
            }
            const MAX: usize = Self::MAX_INDEX as usize + 1;
        }
    )*};
}

ids!(PdId MrId CqId SrqId QpId AhId WatchId);

/// The last generation that an id can tell from the first.
const LAST_ROUND: u32 = 127;

/// Initiators that a handle tells apart.
const ISSUERS: u32 = 128;

/// Objects by id. A slot that came free is used again, under a new generation.
#[derive(Debug)]
pub struct Table<I, T> {
    /// The id that is or was valid for each slot.
    slots: Vec<(I, Option<T>)>,
    free: Vec<usize>,
    issuer: u32,
    /// Most entries at a time.
    limit: usize,
}

impl<I: Id, T> Table<I, T> {
    /// An empty table of the handle of `rank`, for as many objects as an id can name.
    pub fn of(rank: u32) -> Self {
        Self { slots: Vec::new(), free: Vec::new(), issuer: rank % ISSUERS, limit: I::MAX }
    }

    /// The same for at most `limit` objects.
    pub fn bounded(rank: u32, limit: u32) -> Self {
        Self { limit: I::MAX.min(limit as usize), ..Self::of(rank) }
    }

    /// Whether no more fit.
    pub fn is_full(&self) -> bool {
        self.free.is_empty() && self.slots.len() >= self.limit
    }

    /// Where the next object will be.
    pub fn next_index(&self) -> u32 {
        self.free.last().map_or(self.slots.len(), |i| *i) as u32
    }

    /// Adds an object; `None` when the table is full.
    pub fn insert(&mut self, object: T) -> Option<I> {
        if self.is_full() {
            return None;
        }
        let i = match self.free.pop() {
            Some(i) => {
                let old = self.slots[i].0;
                self.slots[i].0 = I::make(i as u32, old.round() + 1, self.issuer);
                i
            }
            None => {
                self.slots.push((I::make(self.slots.len() as u32, 0, self.issuer), None));
                self.slots.len() - 1
            }
        };
        self.slots[i].1 = Some(object);
        Some(self.slots[i].0)
    }

    /// The object of `id`.
    #[inline(always)]
    pub fn get(&self, id: I) -> Result<&T, BadHandle> {
        match self.slots.get(id.at()) {
            Some((known, Some(object))) if *known == id => Ok(object),
            _ => Err(BadHandle),
        }
    }

    /// The object of `id`.
    #[inline(always)]
    pub fn get_mut(&mut self, id: I) -> Result<&mut T, BadHandle> {
        match self.slots.get_mut(id.at()) {
            Some((known, Some(object))) if *known == id => Ok(object),
            _ => Err(BadHandle),
        }
    }

    /// Takes an object out.
    pub fn remove(&mut self, id: I) -> Result<T, BadHandle> {
        self.get(id)?;
        // A slot whose next id would be its first one again is not used any more.
        if id.round() < LAST_ROUND {
            self.free.push(id.at());
        }
        self.slots[id.at()].1.take().ok_or(BadHandle)
    }

    /// The object at a position, if it is alive.
    #[inline(always)]
    pub fn at_mut(&mut self, index: usize) -> Option<(I, &mut T)> {
        let (id, object) = self.slots.get_mut(index)?;
        Some((*id, object.as_mut()?))
    }

    /// All that are alive.
    pub fn iter(&self) -> impl Iterator<Item = (I, &T)> {
        self.slots.iter().filter_map(|(id, object)| Some((*id, object.as_ref()?)))
    }

    /// All that are alive, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (I, &mut T)> {
        self.slots.iter_mut().filter_map(|(id, object)| Some((*id, object.as_mut()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removed_id_is_bad_and_its_slot_serves_again() {
        let mut t: Table<CqId, &str> = Table::of(3);
        let a = t.insert("a").unwrap();
        let b = t.insert("b").unwrap();
        assert_eq!((a.index(), b.index(), a.issuer()), (0, 1, 3));
        assert_eq!(t.remove(a), Ok("a"));
        assert_eq!(t.get(a), Err(BadHandle));
        assert_eq!(t.remove(a), Err(BadHandle));
        let c = t.insert("c").unwrap();
        assert_eq!((c.index(), c.generation()), (0, 1));
        assert_eq!((t.get(a), t.get(c), t.get(b)), (Err(BadHandle), Ok(&"c"), Ok(&"b")));
        assert_eq!(t.iter().map(|(_, v)| *v).collect::<String>(), "cb");
    }

    #[test]
    fn an_id_never_comes_again() {
        let mut t: Table<QpId, ()> = Table::of(0);
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..300 {
            let id = t.insert(()).unwrap();
            assert!(seen.insert(id), "{id:?}");
            t.remove(id).unwrap();
        }
        assert_eq!(t.slots.len(), 3, "one slot serves 128 times");
    }

    #[test]
    fn ids_of_other_ranks_and_of_nothing_are_bad() {
        let mut mine: Table<QpId, ()> = Table::of(1);
        let mut theirs: Table<QpId, ()> = Table::of(2);
        let (a, b) = (mine.insert(()).unwrap(), theirs.insert(()).unwrap());
        assert_ne!(a, b);
        assert_eq!((mine.get(b), mine.get(QpId::new(9, 0, 1))), (Err(BadHandle), Err(BadHandle)));
    }

    #[test]
    fn a_bounded_table_takes_its_bound_and_not_one_more() {
        let mut t: Table<MrId, u8> = Table::bounded(0, 2);
        let first = t.insert(0).unwrap();
        assert!(t.insert(1).is_some());
        assert_eq!(t.insert(2), None);
        t.remove(first).unwrap();
        assert!(t.insert(3).is_some());
    }
}
