//! The adding: one operand at a time, since it takes a while and others may wait for what has come.

use alloc::vec::Vec;

use super::{AggregateError, AllToAll};
use crate::transport::{Range, Reduce, Transport};

/// Additions that are looked at for one that can be done: parts of the oldest may be late while
/// those of later ones are here. More: nothing waits for its turn, and each step looks at more.
const LOOK_AHEAD: usize = 64;

/// Bytes that are added: where they are, and how many pieces of which peer have to have come first;
/// `None`: in the outbox.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Term {
    pub at: u64,
    pub needs: Option<(u32, u32)>,
}

/// One addition of a round.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Add {
    pub op: Reduce,
    pub len: u32,
    pub to: Term,
    pub from: Vec<Term>,
    /// The operand that is due.
    pub next: usize,
}

impl Add {
    pub fn is_done(&self) -> bool {
        self.next == self.from.len()
    }
}

impl AllToAll {
    /// Adds one operand that is here; whether there was one.
    pub(super) fn add_one<T: Transport>(&mut self, t: &mut T) -> Result<bool, AggregateError> {
        if self.rounds == 0 {
            return Ok(false);
        }
        while self.adds.get(self.first_add).is_some_and(Add::is_done) {
            self.first_add += 1;
        }
        let open = self.first_add..self.adds.len().min(self.first_add + LOOK_AHEAD);
        let ready = |n: &usize| {
            let add = &self.adds[*n];
            let due = add.from.get(add.next);
            due.is_some_and(|term| self.has_come(term) && self.has_come(&add.to))
        };
        let Some(n) = open.into_iter().find(ready) else { return Ok(false) };
        let add = &self.adds[n];
        let (op, len) = (add.op, u64::from(add.len));
        let (to, from) = (self.range_of(&add.to, len), self.range_of(&add.from[add.next], len));
        t.reduce(op, to, from)?;
        self.adds[n].next += 1;
        self.stats.added_bytes = self.stats.added_bytes.saturating_add(len);
        Ok(true)
    }

    /// Whether all has been added that this member adds in a round.
    pub(super) fn has_added(&self) -> bool {
        self.adds[self.first_add..].iter().all(Add::is_done)
    }

    fn has_come(&self, term: &Term) -> bool {
        term.needs.is_none_or(|(peer, count)| self.peers[peer as usize].has(self.rounds, count))
    }

    fn range_of(&self, term: &Term, len: u64) -> Range {
        let base = if term.needs.is_some() { self.inbox_of(self.rounds - 1) } else { 0 };
        self.mesh.mr.range(base + term.at, len).expect("operands lie in the region")
    }
}
