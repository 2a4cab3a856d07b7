//! Sparse contributions: the elements that matter most now, the others later.
//!
//! Of a vector a member sends the `k` elements of greatest magnitude and keeps what it has not
//! sent, the *residual*, which it adds to the next round's vector before it chooses again (error
//! feedback). So nothing is lost, only late: what was sent and the residual are together what went
//! in, for integers bit by bit, and for floats but for the rounding of one addition per round (the
//! residual and the new vector); the choice itself splits a vector without rounding, since each
//! element goes as it is or stays as it is.
//!
//! Sparse vectors of different members have different elements, so they cannot be added on the way
//! as chunks are: every member gets all of them (a token for all others in an
//! [`Exchange`](crate::policy::alltoall::Exchange), which crosses to each place once) and adds them
//! in the order of the ranks by [`add_to`], after which all have the same bits: [`SparseSum`] does
//! that. It is
//! `(n - 1) k (4 + element)` bytes at each of `n` members, where a dense sum takes about twice
//! the vector: sparse pays while `k / elements` is below about `element / (4 + element) * 2 / n`.
//!
//! What it costs in convergence, by the descent in this module's tests (8 members with goals of
//! their own, steps of 1/20, a sixteenth of the elements per round): after 50 rounds 0.3 % of the
//! squared distance is left (dense 0.6 %: what comes late overshoots), after 200 and 400 rounds
//! 0.02 %, where it stays, since residuals never end; dense goes on to nothing. Without the
//! residual 7 % are left after 400 rounds: elements that are small everywhere never go.
//!
//! | Bytes | What |
//! |---|---|
//! | 4 | number of entries, little-endian, with bit 31 set in the dense form |
//! | 4 | number of elements of the vector |
//! | 4 each | sparse: places of the entries, ascending; then up to the next multiple of 8 zeros |
//! | 4 or 8 each | values, in the order of their places |
//!
//! The form switches by itself: where a sparse one would not be shorter, all elements go dense, and
//! nothing stays.
//!
//! Choosing and adding cost bytes of memory, which [`choosing_bytes`] and [`adding_bytes`] count
//! and [`SparseSum`] tells its transport of. A dense sum reads two vectors and writes one. To
//! choose, a sender does the same with the residual, and then reads elements and places until it
//! has the greatest ones: [`READS_TO_CHOOSE`] times. So sparse saves bytes on the wire, never work
//! before it, and pays only where the wire is the slower one.

use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use crate::transport::Reduce;

mod member;
#[cfg(test)]
mod tests;

pub use member::{SparseConfig, SparseStats, SparseSum};

/// Most elements: their number travels in 31 bits.
pub const MAX_ELEMENTS: u32 = (1 << 31) - 1;

/// How often each element is read, with its place, until the greatest are found: the expected
/// number of comparisons of Hoare's FIND is `2 (1 + H(k / n))` per element, 2.1 where a hundredth
/// is chosen, 2.5 for a sixteenth, 3.4 for half (H: entropy in nats; D. E. Knuth, Mathematical
/// analysis of algorithms, 1971). One that samples a threshold first reads less, a full sort more.
pub const READS_TO_CHOOSE: u64 = 3;

/// What memory moves when one element somewhere in a vector is read or written: a cache line.
const LINE: u64 = 64;

const HEADER: usize = 8;
const DENSE: u32 = 1 << 31;

/// How a vector was sent.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Form {
    /// All elements, without places.
    Dense,
    /// So many elements, each with its place.
    Sparse(u32),
}

/// What cannot be sent, or what came and is no vector of ours.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum SparseError {
    /// Not from 1 to [`MAX_ELEMENTS`] elements.
    Elements {
        /// Elements.
        got: u64,
    },
    /// Not from 1 entry to all elements.
    Entries {
        /// Entries asked for.
        got: u32,
        /// Elements.
        elements: u32,
    },
    /// A buffer of another length.
    Length {
        /// Its bytes.
        got: usize,
        /// Bytes that it needs, at least.
        need: usize,
    },
    /// It is of a vector with another number of elements.
    Other {
        /// Its elements.
        got: u32,
        /// Ours.
        need: u32,
    },
    /// Places that do not ascend, or lie behind the end.
    Place {
        /// Number of the first such entry.
        entry: u32,
        /// Its place.
        place: u32,
    },
}

impl fmt::Display for SparseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Elements { got } => {
                write!(f, "a vector of {got} elements: take 1 to {MAX_ELEMENTS}")
            }
            Self::Entries { got, elements } => {
                write!(f, "{got} of {elements} elements: send at least 1 and at most all")
            }
            Self::Length { got, need } => write!(f, "a buffer of {got} B: it takes {need} B"),
            Self::Other { got, need } => {
                write!(f, "entries of a vector of {got} elements, and ours has {need}")
            }
            Self::Place { entry, place } => {
                write!(f, "entry {entry} is for element {place}, out of order or range: was ")?;
                f.write_str("the buffer overwritten?")
            }
        }
    }
}

impl core::error::Error for SparseError {}

/// One member's sender of sparse vectors, with its residual. Allocates nothing after it was made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TopK {
    op: Reduce,
    entries: u32,
    elements: u32,
    residual: Vec<u8>,
    /// Places, the chosen ones first.
    order: Vec<u32>,
}

impl TopK {
    /// Sends at most `entries` of `elements` elements in each round, more only where the dense form
    /// is the shorter one. Fewer: fewer bytes, and elements come later, which a computation that
    /// goes on meanwhile has to bear: about `elements / entries` rounds at the worst.
    ///
    /// # Errors
    /// No elements or too many; no entries or more than elements.
    pub fn new(op: Reduce, elements: u64, entries: u32) -> Result<Self, SparseError> {
        let count = checked(elements, entries)?;
        let residual = vec![0; count as usize * op.element_bytes() as usize];
        Ok(Self { op, entries, elements: count, residual, order: (0..count).collect() })
    }

    /// What was not sent yet.
    pub fn residual(&self) -> &[u8] {
        &self.residual
    }

    /// Bytes of the longest message: what a buffer has to hold.
    pub fn max_bytes(&self) -> usize {
        longest(self.op, self.elements, self.entries)
    }

    /// Adds a vector to the residual, writes the elements of greatest magnitude to `out` in the
    /// form of the module's table, and keeps the rest. Of equal ones the first go first, NaN
    /// before all others; zeros never go sparse. Returns the form and the bytes of `out` it took.
    ///
    /// # Errors
    /// A vector of another length, or an `out` of less than [`TopK::max_bytes`]; nothing changed.
    pub fn send(&mut self, vector: &[u8], out: &mut [u8]) -> Result<(Form, usize), SparseError> {
        if vector.len() != self.residual.len() {
            return Err(SparseError::Length { got: vector.len(), need: self.residual.len() });
        }
        if out.len() < self.max_bytes() {
            return Err(SparseError::Length { got: out.len(), need: self.max_bytes() });
        }
        self.op.apply(&mut self.residual, vector);
        let chosen = self.choose();
        let (count, dense) = (chosen as u32, HEADER + self.residual.len());
        if sparse_bytes(self.op, count) >= dense {
            out[..4].copy_from_slice(&(DENSE | self.elements).to_le_bytes());
            out[4..HEADER].copy_from_slice(&self.elements.to_le_bytes());
            out[HEADER..dense].copy_from_slice(&self.residual);
            self.residual.fill(0);
            return Ok((Form::Dense, dense));
        }
        let (width, values) = (self.op.element_bytes() as usize, values_at(count));
        let used = sparse_bytes(self.op, count);
        out[..used].fill(0);
        out[..4].copy_from_slice(&count.to_le_bytes());
        out[4..HEADER].copy_from_slice(&self.elements.to_le_bytes());
        for (n, place) in self.order[..chosen].iter().enumerate() {
            let from = *place as usize * width;
            let element = &mut self.residual[from..from + width];
            out[HEADER + 4 * n..][..4].copy_from_slice(&place.to_le_bytes());
            out[values + width * n..][..width].copy_from_slice(element);
            element.fill(0);
        }
        Ok((Form::Sparse(count), used))
    }

    /// Brings the places to send to the front of `order`, ascending; how many they are.
    fn choose(&mut self) -> usize {
        let (op, residual, most) = (self.op, &self.residual, self.entries as usize);
        let rank = |place: &u32| (core::cmp::Reverse(magnitude(op, residual, *place)), *place);
        if most < self.order.len() {
            self.order.select_nth_unstable_by_key(most, rank);
        }
        let front = &mut self.order[..most];
        front.sort_unstable_by_key(rank);
        let chosen = front.partition_point(|place| magnitude(op, residual, *place) > 0);
        front[..chosen].sort_unstable();
        chosen
    }
}

/// The number of elements, where so many and so many entries can be.
fn checked(elements: u64, entries: u32) -> Result<u32, SparseError> {
    let count = u32::try_from(elements).ok().filter(|n| (1..=MAX_ELEMENTS).contains(n));
    let count = count.ok_or(SparseError::Elements { got: elements })?;
    if !(1..=count).contains(&entries) {
        return Err(SparseError::Entries { got: entries, elements: count });
    }
    Ok(count)
}

const fn longest(op: Reduce, elements: u32, entries: u32) -> usize {
    let dense = HEADER + elements as usize * op.element_bytes() as usize;
    let sparse = sparse_bytes(op, entries);
    if sparse < dense { sparse } else { dense }
}

/// [`TopK::max_bytes`] of a sender that is not made yet.
///
/// # Errors
/// As [`TopK::new`].
pub fn message_bytes(op: Reduce, elements: u64, entries: u32) -> Result<usize, SparseError> {
    Ok(longest(op, checked(elements, entries)?, entries))
}

/// Bytes that memory moves when a member of so many elements chooses `entries` of them, or sends
/// all: the residual and the vector are read, the residual is written; elements and places are
/// read [`READS_TO_CHOOSE`] times; each chosen one is fetched from its line, which is cleared; the
/// places are put in order, a reading and a writing of all per bit of their number; the message is
/// written.
pub fn choosing_bytes(op: Reduce, elements: u64, form: Form) -> u64 {
    let width = op.element_bytes();
    let added = 3 * elements * width;
    let Form::Sparse(entries) = form else {
        // The residual is read, written into the message, and cleared.
        return added + 3 * elements * width;
    };
    let count = u64::from(entries);
    let sorted = 2 * 4 * count * u64::from(count.max(1).ilog2() + 1);
    let read = READS_TO_CHOOSE * elements * (width + 4);
    added + read + sorted + 2 * LINE * count + sparse_bytes(op, entries) as u64
}

/// Bytes that memory moves when a message is added to a vector of so many elements: the message is
/// read, and of the vector all, or the line of each entry, is read and written.
pub fn adding_bytes(op: Reduce, elements: u64, form: Form) -> u64 {
    match form {
        Form::Dense => 3 * elements * op.element_bytes(),
        Form::Sparse(entries) => sparse_bytes(op, entries) as u64 + 2 * LINE * u64::from(entries),
    }
}

/// How much an element matters: its absolute value, in an order that is the same everywhere.
fn magnitude(op: Reduce, vector: &[u8], place: u32) -> u64 {
    let width = op.element_bytes() as usize;
    let element = &vector[place as usize * width..][..width];
    match op {
        Reduce::SumI64 => i64::from_le_bytes(element.try_into().expect("8 bytes")).unsigned_abs(),
        // Without its sign, a float's bits are in the order of its value.
        Reduce::SumF32 => {
            u64::from(u32::from_le_bytes(element.try_into().expect("4 bytes")) & !(1 << 31))
        }
        Reduce::SumF64 => u64::from_le_bytes(element.try_into().expect("8 bytes")) & !(1 << 63),
    }
}

/// Where the values begin.
const fn values_at(entries: u32) -> usize {
    (HEADER + 4 * entries as usize).next_multiple_of(8)
}

/// Bytes of the sparse form.
const fn sparse_bytes(op: Reduce, entries: u32) -> usize {
    values_at(entries) + entries as usize * op.element_bytes() as usize
}

/// Adds what [`TopK::send`] has written to a vector. `wire` may be longer than what was written,
/// as a buffer for the longest message is.
///
/// # Errors
/// What is no vector of as many elements; then nothing was added.
pub fn add_to(op: Reduce, vector: &mut [u8], wire: &[u8]) -> Result<Form, SparseError> {
    let width = op.element_bytes() as usize;
    let need = (vector.len() / width) as u32;
    if wire.len() < HEADER {
        return Err(SparseError::Length { got: wire.len(), need: HEADER });
    }
    let word = |at: usize| u32::from_le_bytes(wire[at..at + 4].try_into().expect("4 bytes"));
    let (head, got) = (word(0), word(4));
    let count = head & !DENSE;
    if got != need || count > need || (head & DENSE != 0 && count != need) {
        return Err(SparseError::Other { got: got.max(count), need });
    }
    let dense = head & DENSE != 0;
    let bytes = if dense { HEADER + vector.len() } else { sparse_bytes(op, count) };
    if wire.len() < bytes {
        return Err(SparseError::Length { got: wire.len(), need: bytes });
    }
    if dense {
        op.apply(vector, &wire[HEADER..bytes]);
        return Ok(Form::Dense);
    }
    let place = |entry: u32| word(HEADER + 4 * entry as usize);
    let wrong = (0..count).find(|n| place(*n) >= need || (*n > 0 && place(*n) <= place(*n - 1)));
    if let Some(entry) = wrong {
        return Err(SparseError::Place { entry, place: place(entry) });
    }
    let values = wire[values_at(count)..bytes].chunks_exact(width);
    for (entry, value) in (0..count).zip(values) {
        op.apply(&mut vector[place(entry) as usize * width..][..width], value);
    }
    Ok(Form::Sparse(count))
}
