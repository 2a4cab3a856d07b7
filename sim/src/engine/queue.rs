//! The priority queue of events: a sorted list of the near future before a wheel of the rest.
//!
//! A heap pays log n unpredictable comparisons per event. Simulated time only goes forward, so
//! most of that work can be replaced by looking at the bits of the time:
//!
//! - The **wheel** has eleven levels of 64 slots; level l is digit l of the time to base 64.
//!   An entry lies at the highest digit in which its time differs from `base`, in the slot of
//!   that digit. All of a lower level is earlier than all of a higher one, and one bit per slot
//!   says where to look, so empty stretches of time cost nothing.
//! - When **near** is empty, the earliest slot is emptied into it if it holds few entries, with the
//!   slots behind it as long as they are few together, or else spread over the levels below. Near
//!   covers the times up to `near_last` and is sorted by the whole key. With few entries in all,
//!   near alone holds them, for all of time.
//! - When near covers a stretch that fills up later, it gives its later part back.
//! - More than [`NEAR_MAX`] events at one picosecond cannot be told apart by time: those that
//!   arrive then go to a heap, **crowd**.
//!
//! The order is exact: every entry is compared by its whole key with everything that could come
//! before it. A slot is a list of chunks of entries, events included, in one arena: with 10⁴
//! pending events the time goes into memory, and a chunk is read and written in a row where single
//! entries would be fetched one by one. Near and crowd are short and hold their events themselves.
//! Nothing is allocated once the arena has seen its peak.

use super::heap::Heap;
use super::key::{Key, Order};

/// Bits of a digit of the wheel; 64 slots are one word of occupancy.
const DIGIT_BITS: u32 = 6;
const SLOTS: usize = 1 << DIGIT_BITS;
/// ⌈64 / 6⌉.
const LEVELS: usize = 11;
/// Slots of up to this many entries in all are sorted together. Larger: fewer moves down the wheel,
/// more work per sort, and more entries that are inserted behind it into near. From 16 to 64 an
/// incast of 32 hosts takes 5 in 100 instructions less.
const LOAD_MAX: u32 = 64;
/// Entries of near beyond which it gives its later part back. Larger: longer shifts on
/// insertion; smaller: more entries move twice. Twice [`LOAD_MAX`], or what was loaded would soon
/// be given back.
const NEAR_MAX: usize = 128;
/// Entries of a chunk. Larger: longer rows, and more room unused at the ends of up to 704 lists.
const CHUNK: usize = 16;
const NONE: u32 = u32::MAX;
/// Bits of the place of an entry in the arena, below as many of its time.
const PLACE_BITS: u32 = 32;

#[derive(Copy, Clone, Debug)]
struct Entry<E> {
    key: Key,
    event: E,
}

/// A list of entries, in no order.
#[derive(Copy, Clone, Debug)]
struct Slot {
    /// The chunk that is being filled; those behind it are full.
    head: u32,
    /// Entries in all chunks.
    len: u32,
}

const EMPTY: Slot = Slot { head: NONE, len: 0 };

/// The entries of all slots.
#[derive(Clone, Debug)]
struct Chunks<E> {
    /// Chunk c begins at c times [`CHUNK`].
    entries: Vec<Entry<E>>,
    /// By chunk: the next one of its list, or of the free list.
    next: Vec<u32>,
    free: u32,
}

impl<E: Copy> Chunks<E> {
    #[inline]
    fn push(&mut self, slot: &mut Slot, entry: Entry<E>) {
        let at = slot.len as usize % CHUNK;
        if at == 0 {
            slot.head = self.allocate(slot.head, entry);
        }
        self.entries[slot.head as usize * CHUNK + at] = entry;
        slot.len += 1;
    }

    /// A chunk before `next`, with anything in it.
    fn allocate(&mut self, next: u32, filler: Entry<E>) -> u32 {
        let chunk = self.free;
        if let Some(link) = self.next.get_mut(chunk as usize) {
            self.free = std::mem::replace(link, next);
            return chunk;
        }
        let chunk = self.next.len() as u32;
        assert!(chunk < NONE / CHUNK as u32, "2^32 events pending");
        self.next.push(next);
        self.entries.resize(self.entries.len() + CHUNK, filler);
        chunk
    }

    /// Places of the entries of the first chunk of a list.
    fn first_of(list: Slot) -> std::ops::Range<usize> {
        let begin = list.head as usize * CHUNK;
        begin..begin + (list.len as usize - 1) % CHUNK + 1
    }

    /// Takes the first chunk off a list. Its entries stay as they are until the next push.
    fn drop_first(&mut self, list: &mut Slot) {
        list.len -= (list.len - 1) % CHUNK as u32 + 1;
        let link = &mut self.next[list.head as usize];
        let next = std::mem::replace(link, self.free);
        self.free = std::mem::replace(&mut list.head, next);
    }

    /// Keys of a list.
    fn keys(&self, mut list: Slot) -> impl Iterator<Item = Key> + '_ {
        let chunks = std::iter::from_fn(move || {
            let entries = (list.len > 0).then(|| Self::first_of(list))?;
            list.head = self.next[list.head as usize];
            list.len -= entries.len() as u32;
            Some(entries)
        });
        chunks.flatten().map(|i| self.entries[i].key)
    }
}

/// An entry with the tie of its key computed, once instead of in every comparison.
#[derive(Copy, Clone, Debug)]
struct NearEntry<E> {
    order: Order,
    event: E,
}

/// What comes by some time.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Popped<T> {
    /// This, which is pending no more.
    Next(T),
    /// What is pending comes later.
    Later,
    /// Nothing is pending.
    Nothing,
}

/// Pending events in key order.
#[derive(Clone, Debug)]
pub(crate) struct Queue<E> {
    seed: u64,
    len: usize,
    /// Time of the last event popped; nothing earlier is ever pushed.
    floor: u64,
    chunks: Chunks<E>,
    /// Earliest first; those before `first` have been popped. A new entry is looked for from the
    /// late end, since most events are scheduled behind what is pending nearby.
    near: Vec<NearEntry<E>>,
    first: usize,
    /// Reused list: by time, where the entries lie that are being loaded, see
    /// [`Queue::note_places`].
    places: Vec<u64>,
    /// Near covers all up to `near_last`, the end of the slot of the level `near_level` that
    /// begins at `base` and is the last of those that were loaded. Level [`LEVELS`] is all of time.
    near_last: u64,
    near_level: u32,
    /// Entries at the instants of a near of level 0 that came when near was full.
    crowd: Heap<E>,
    /// Nothing in the wheel is earlier.
    base: u64,
    /// Bit l: level l is not empty.
    levels: u32,
    /// Bit s of word l: slot s of level l is not empty.
    occupied: [u64; LEVELS],
    slots: Box<[[Slot; SLOTS]; LEVELS]>,
}

/// The lowest `digits` digits.
fn low_mask(digits: u32) -> u64 {
    1u64.checked_shl(digits * DIGIT_BITS).map_or(u64::MAX, |bit| bit - 1)
}

impl<E: Copy> Queue<E> {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            seed,
            len: 0,
            floor: 0,
            chunks: Chunks { entries: Vec::new(), next: Vec::new(), free: NONE },
            near: Vec::new(),
            first: 0,
            places: Vec::new(),
            near_last: 0,
            near_level: 0,
            crowd: Heap::new(),
            base: 0,
            levels: 0,
            occupied: [0; LEVELS],
            slots: Box::new([[EMPTY; SLOTS]; LEVELS]),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The least key. Looks through one slot when near is empty, without moving anything.
    pub(crate) fn peek(&self) -> Option<Key> {
        let near = self.near.get(self.first).map(|e| e.order.key());
        let least = |a: Key, b: Key| if b.before(a, self.seed) { b } else { a };
        match (near, self.crowd.peek()) {
            (Some(a), Some(b)) => Some(least(a, b)),
            (Some(key), None) | (None, Some(key)) => Some(key),
            (None, None) => self
                .earliest_slot()
                .and_then(|(level, slot)| self.chunks.keys(self.slots[level][slot]).reduce(least)),
        }
    }

    /// Whether the least key is of `limit` or before; `None`: there is no entry. Looks at entries
    /// that are not near only where the slot that they are in does not say it.
    fn comes_by(&self, limit: u64) -> Option<bool> {
        if let Some(e) = self.near.get(self.first).filter(|_| self.crowd.peek().is_none()) {
            return Some(e.order.time() <= limit);
        }
        if let (true, Some((level, slot))) = (self.crowd.peek().is_none(), self.earliest_slot()) {
            let shift = level as u32 * DIGIT_BITS;
            let begin = (self.base & !low_mask(level as u32 + 1)) | (slot as u64) << shift;
            if begin | low_mask(level as u32) <= limit {
                return Some(true);
            }
        }
        self.peek().map(|key| key.time <= limit)
    }

    /// Of the events that come next those that are sorted already, in order: some, or none.
    pub(crate) fn at_hand(&self) -> impl Iterator<Item = &E> {
        self.near[self.first..].iter().map(|e| &e.event)
    }

    /// Takes the entry with the least key, if it is of `limit` or before.
    #[inline]
    pub(crate) fn pop_by(&mut self, limit: u64) -> Popped<(Key, E)> {
        let near = self.near.get(self.first).filter(|_| self.crowd.is_empty());
        if near.is_none_or(|e| e.order.time() > limit) {
            match self.fetch(limit) {
                Popped::Next(()) => {}
                Popped::Later => return Popped::Later,
                Popped::Nothing => return Popped::Nothing,
            }
        }
        let NearEntry { order, event } = self.near[self.first];
        self.first += 1;
        self.len -= 1;
        self.floor = order.time();
        Popped::Next((order.key(), event))
    }

    /// Makes the least entry the first of near, if it is of `limit` or before.
    #[inline(never)]
    fn fetch(&mut self, limit: u64) -> Popped<()> {
        match self.comes_by(limit) {
            None => return Popped::Nothing,
            Some(false) => return Popped::Later,
            Some(true) => {}
        }
        if let Some(crowd) = self.crowd.peek() {
            let order = crowd.order(self.seed);
            if self.near.get(self.first).is_none_or(|e| order < e.order) {
                let (_, event) = self.crowd.pop(self.seed).expect("it is there");
                self.insert_at(self.first, NearEntry { order, event });
            }
        } else if self.first == self.near.len() {
            self.near.clear();
            self.first = 0;
            self.refill();
        }
        Popped::Next(())
    }

    /// Adds an entry, not before the last one popped. Keys are unique.
    #[inline]
    pub(crate) fn push(&mut self, key: Key, event: E) {
        debug_assert!(key.time >= self.floor, "the queue cannot go back in time");
        self.len += 1;
        let entry = Entry { key, event };
        if key.time > self.near_last {
            self.wheel_insert(entry);
        } else {
            self.near_insert(entry);
        }
    }

    /// Takes the entry with the least key.
    #[cfg(test)]
    pub(crate) fn pop(&mut self) -> Option<(Key, E)> {
        match self.pop_by(u64::MAX) {
            Popped::Next(next) => Some(next),
            Popped::Later | Popped::Nothing => None,
        }
    }

    #[inline]
    fn wheel_insert(&mut self, entry: Entry<E>) {
        let time = entry.key.time;
        debug_assert!(time >= self.base, "the wheel cannot go back in time");
        // Equal times, possible while a slot is spread, belong to level 0.
        let highest = 63 - ((time ^ self.base) | 1).leading_zeros();
        let level = highest / DIGIT_BITS;
        let slot = (time >> (level * DIGIT_BITS)) as usize % SLOTS;
        self.chunks.push(&mut self.slots[level as usize][slot], entry);
        self.occupied[level as usize] |= 1 << slot;
        self.levels |= 1 << level;
    }

    #[inline]
    fn near_insert(&mut self, entry: Entry<E>) {
        let key = entry.key;
        let live = self.near.len() - self.first;
        if self.first >= NEAR_MAX && self.first >= live {
            // What is moved here was paid for by the pops before.
            self.near.drain(..self.first);
            self.first = 0;
        }
        if live >= NEAR_MAX {
            if self.near_level == 0 {
                self.crowd.push(key, entry.event, self.seed);
                return;
            }
            self.give_back();
            if key.time > self.near_last {
                self.wheel_insert(entry);
                return;
            }
        }
        let entry = NearEntry { order: key.order(self.seed), event: entry.event };
        let earlier = self.near[self.first..].partition_point(|e| e.order.time() < key.time);
        let mut at = self.first + earlier;
        while self.near.get(at).is_some_and(|e| e.order < entry.order) {
            at += 1;
        }
        self.insert_at(at, entry);
    }

    /// Puts an entry before the one at `at` in near. Those that were popped have left room in
    /// front: the shorter part moves.
    #[inline]
    fn insert_at(&mut self, at: usize, entry: NearEntry<E>) {
        if self.first > 0 && at - self.first < self.near.len() - at {
            self.near.copy_within(self.first..at, self.first - 1);
            self.first -= 1;
            self.near[at - 1] = entry;
        } else {
            self.near.insert(at, entry);
        }
    }

    /// Halves near, or more, by a lower level around the present instant.
    #[cold]
    fn give_back(&mut self) {
        while self.near_level > 0 && self.near.len() - self.first > NEAR_MAX / 2 {
            self.near_level -= 1;
            let within = low_mask(self.near_level);
            // Nothing comes before the floor. Digits from the old level up stay as they were,
            // so the wheel's entries, which differ from the base there, keep their places.
            self.base = self.floor & !within;
            self.near_last = self.base | within;
            let later = self.near.partition_point(|e| e.order.time() <= self.near_last);
            for i in later..self.near.len() {
                let NearEntry { order, event } = self.near[i];
                self.wheel_insert(Entry { key: order.key(), event });
            }
            self.near.truncate(later);
        }
    }

    fn earliest_slot(&self) -> Option<(usize, usize)> {
        if self.levels == 0 {
            return None;
        }
        let level = self.levels.trailing_zeros() as usize;
        Some((level, self.occupied[level].trailing_zeros() as usize))
    }

    /// Moves the earliest entries of the wheel to the empty near. The caller pops at once, so
    /// that `floor` catches up with `base`.
    #[inline(never)]
    fn refill(&mut self) {
        debug_assert!(self.near.is_empty() && self.first == 0);
        if self.len <= LOAD_MAX as usize {
            self.load_all();
            return;
        }
        while let Some((level, slot)) = self.earliest_slot() {
            let mut list = self.take_slot(level, slot);
            let shift = level as u32 * DIGIT_BITS;
            self.base = (self.base & !low_mask(level as u32 + 1)) | (slot as u64) << shift;
            if level == 0 || list.len <= LOAD_MAX {
                let mut list = list;
                let mut loaded = 0;
                loop {
                    loaded += list.len;
                    self.note_places(list, level as u32 + 1);
                    self.near_last = self.base | low_mask(level as u32);
                    let Some(next) = self.neighbour(level, loaded) else { break };
                    list = next;
                }
                self.near_level = level as u32;
                self.load_noted();
                return;
            }
            while list.len > 0 {
                let entries = Chunks::<E>::first_of(list);
                for i in entries {
                    self.wheel_insert(self.chunks.entries[i]);
                }
                self.chunks.drop_first(&mut list);
            }
            // Each round goes down a level, so this loop ends.
            debug_assert!(self.earliest_slot().is_some_and(|(below, _)| below < level));
        }
    }

    /// Takes the slot of the level that comes next, if near stays short with it.
    fn neighbour(&mut self, level: usize, loaded: u32) -> Option<Slot> {
        let (_, slot) = self.earliest_slot().filter(|(next, _)| *next == level)?;
        if loaded + self.slots[level][slot].len > LOAD_MAX {
            return None;
        }
        let shift = level as u32 * DIGIT_BITS;
        self.base = (self.base & !low_mask(level as u32 + 1)) | (slot as u64) << shift;
        Some(self.take_slot(level, slot))
    }

    fn take_slot(&mut self, level: usize, slot: usize) -> Slot {
        self.occupied[level] &= !(1 << slot);
        if self.occupied[level] == 0 {
            self.levels &= !(1 << level);
        }
        std::mem::replace(&mut self.slots[level][slot], EMPTY)
    }

    /// With few entries in all, near alone does, for all of time.
    fn load_all(&mut self) {
        // What differs from the base in no higher digit than this differs from the others in none.
        let digits = u32::BITS - self.levels.leading_zeros();
        while let Some((level, slot)) = self.earliest_slot() {
            let list = self.take_slot(level, slot);
            self.note_places(list, digits);
        }
        self.near_level = LEVELS as u32;
        self.near_last = u64::MAX;
        self.load_noted();
    }

    /// Notes where the entries of a list lie, whose times and those of the others that are noted
    /// differ in the lowest `digits` digits only, and takes the list apart. Nothing may be pushed
    /// until they are loaded.
    #[inline]
    fn note_places(&mut self, mut list: Slot, digits: u32) {
        let (mask, dropped) = (low_mask(digits), (digits * DIGIT_BITS).saturating_sub(PLACE_BITS));
        while list.len > 0 {
            for i in Chunks::<E>::first_of(list) {
                let time = (self.chunks.entries[i].key.time & mask) >> dropped;
                self.places.push(time << PLACE_BITS | i as u64);
            }
            self.chunks.drop_first(&mut list);
        }
    }

    /// Loads what was noted, sorted: by the numbers that were noted, each one word, and by the
    /// whole key only those that are alike in it.
    fn load_noted(&mut self) {
        // More come from one slot of the lowest level only, and are of one instant.
        if self.places.len() <= LOAD_MAX as usize {
            self.places.sort_unstable();
        }
        let time = |place: u64| place >> PLACE_BITS;
        let mut begin = 0;
        for i in 0..self.places.len() {
            let place = self.places[i];
            if time(place) != time(self.places[begin]) {
                self.sort_tied(begin);
                begin = i;
            }
            let Entry { key, event } = self.chunks.entries[place as u32 as usize];
            self.near.push(NearEntry { order: key.order(self.seed), event });
        }
        self.sort_tied(begin);
        self.places.clear();
    }

    /// Sorts near from `begin` on by the whole key.
    #[inline]
    fn sort_tied(&mut self, begin: usize) {
        match &mut self.near[begin..] {
            [] | [_] => {}
            [a, b] => {
                if b.order < a.order {
                    std::mem::swap(a, b);
                }
            }
            many => many.sort_unstable_by_key(|e| e.order),
        }
    }
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
