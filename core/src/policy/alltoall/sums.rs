//! Sums on their way: who adds what, and where the sums come to lie.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use super::plan::{Part, Sum};
use super::schedule::{Layout, Origin, Written};
use crate::transport::Reduce;

/// A sum that a member is to have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Total {
    /// Where it is in the inbox of the member when a round is complete.
    pub inbox: u64,
    /// Its length.
    pub bytes: u64,
    /// Element and arithmetic.
    pub op: Reduce,
    /// What it is the sum of.
    pub parts: Vec<Part>,
    /// Who wrote the place where it is.
    pub(super) by: u32,
}

/// An operand of an addition.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Operand {
    /// In the outbox of the member that adds, from this byte on.
    Outbox(u64),
    /// In its inbox.
    Inbox(Written),
}

/// Some bytes that a member adds, in place of the first of them, in this order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Addition {
    pub op: Reduce,
    pub len: u32,
    pub to: Written,
    pub from: Vec<Operand>,
}

/// What a member has for a sum.
#[derive(Copy, Clone)]
enum Term {
    /// In its outbox.
    Own(u64),
    /// Written by another one: where it begins in the stream, and the number of its first piece.
    Of { from: u32, offset: u64, first: u32 },
}

impl Layout<'_> {
    /// Lays all sums out; whether one takes two hops.
    pub fn lay_sums(&mut self) -> bool {
        let exchange = self.exchange;
        let mut two = false;
        for sum in exchange.sums() {
            // What comes to `to`: from each member near it, and from each place or member farther.
            let mut terms = vec![];
            let mut near: BTreeMap<u32, Vec<Part>> = BTreeMap::new();
            for part in exchange.parts(sum) {
                match exchange.relay(sum.to, exchange.place(part.from)) {
                    _ if part.from == sum.to => terms.push(Term::Own(part.outbox)),
                    None => terms.push(self.send(part.from, sum.to, sum, Term::Own(part.outbox))),
                    Some(relay) => near.entry(relay).or_default().push(*part),
                }
            }
            for (relay, parts) in near {
                let of = |part: &Part| match part.from == relay {
                    true => Term::Own(part.outbox),
                    false => {
                        two = true;
                        self.send(part.from, relay, sum, Term::Own(part.outbox))
                    }
                };
                let gathered = parts.iter().map(of).collect();
                let (term, additions) = self.gather(relay, sum, gathered);
                terms.push(match additions {
                    None => self.send(relay, sum.to, sum, term),
                    Some(first) => self.pass(relay, sum.to, sum, (term, first)),
                });
            }
            if let (Term::Of { from, offset, .. }, _) = self.gather(sum.to, sum, terms) {
                let parts = exchange.parts(sum).to_vec();
                let total = Total { inbox: offset, bytes: sum.bytes, op: sum.op, parts, by: from };
                self.totals[sum.to as usize].push(total);
            }
        }
        two
    }

    /// One member sends another one what it has; what that is there.
    fn send(&mut self, from: u32, to: u32, sum: &Sum, term: Term) -> Term {
        let chunk = self.chunk;
        let stream = self.streams.entry((from, to)).or_default();
        let there = Term::Of { from, offset: stream.bytes, first: stream.pieces.len() as u32 };
        stream.add(sum.bytes, chunk, |done| match term {
            Term::Own(outbox) => Origin::Outbox(outbox + done),
            Term::Of { .. } => Origin::Inbox(term.written(done, chunk)),
        });
        there
    }

    /// A relay passes on a sum that it has made by additions from this one on.
    fn pass(&mut self, from: u32, to: u32, sum: &Sum, (term, addition): (Term, u32)) -> Term {
        let chunk = self.chunk;
        let stream = self.streams.entry((from, to)).or_default();
        let there = Term::Of { from, offset: stream.bytes, first: stream.pieces.len() as u32 };
        stream.add(sum.bytes, chunk, |done| {
            let Written { from, offset, .. } = term.written(done, chunk);
            let addition = addition + (done / u64::from(chunk)) as u32;
            Origin::Sum { from, offset, addition }
        });
        there
    }

    /// A member has several parts of a sum: it adds all to the first one that another one wrote.
    /// Where the sum is, and the first of the additions, if it takes any.
    fn gather(&mut self, member: u32, sum: &Sum, mut terms: Vec<Term>) -> (Term, Option<u32>) {
        let first = terms.iter().position(|t| matches!(t, Term::Of { .. }));
        let (Some(first), true) = (first, terms.len() > 1) else {
            return (terms.pop().unwrap_or(Term::Own(0)), None);
        };
        let (to, chunk) = (terms.remove(first), self.chunk);
        let additions = &mut self.additions[member as usize];
        let number = additions.len() as u32;
        let mut done = 0;
        while done < sum.bytes {
            let len = (sum.bytes - done).min(chunk.into()) as u32;
            let from = terms.iter().map(|term| match term {
                Term::Own(outbox) => Operand::Outbox(outbox + done),
                Term::Of { .. } => Operand::Inbox(term.written(done, chunk)),
            });
            let from = from.collect();
            additions.push(Addition { op: sum.op, len, to: to.written(done, chunk), from });
            done += u64::from(len);
        }
        (to, Some(number))
    }
}

impl Term {
    /// Where the piece that begins with byte `done` is.
    fn written(self, done: u64, chunk: u32) -> Written {
        let Self::Of { from, offset, first } = self else {
            unreachable!("an own part is in the outbox");
        };
        let after = first + (done / u64::from(chunk)) as u32 + 1;
        Written { from, offset: offset + done, after }
    }
}
