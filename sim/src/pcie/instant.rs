//! A tree without time, for hosts whose inside is not the question; and what does not take the
//! tree.
//!
//! A transaction ends where it is submitted: no burst, no order, no tags, no credits, no event.
//! What crosses which link is counted as ever.

use super::route::Route;
use super::tlp::{Cut, to_page_end};
use super::tree::place;
use super::{Cause, Kind, PcieTree, Transaction};
use crate::memory::MemoryPlace;

impl PcieTree {
    /// From now on transactions take no time and wait for nothing. Their owner asks after each
    /// [`submit`](Self::submit) for those that have [ended](Self::take_ended).
    pub fn make_instant(&mut self) {
        self.instant = true;
    }

    /// Ends a transaction whose bytes took a way beside the tree: no time here, and no link of it.
    pub fn end_beside(&mut self, t: Transaction) {
        self.ended.push_back(t);
    }

    /// Whether [`take_ended`](Self::take_ended) has one.
    #[inline]
    pub fn has_ended(&self) -> bool {
        !self.ended.is_empty()
    }

    /// The first transaction that has ended without time and was not taken yet. A read has its
    /// data of this instant.
    #[inline]
    pub fn take_ended(&mut self) -> Option<Transaction> {
        self.ended.pop_front()
    }

    /// Counts what crosses the links, a 4-KiB page at a time, and ends the transaction.
    pub(super) fn end_at_once(&mut self, t: Transaction) {
        let (from, to) = (t.from.0, place(t.target));
        let out = self.topology.route(from, to);
        let (mut addr, mut left) = (t.addr, t.bytes);
        while left > 0 {
            let len = left.min(to_page_end(addr));
            match t.kind {
                Kind::Mmio => self.cross_at_once(t.cause, out, self.format.mmio(len), len),
                Kind::Write => self.cross_at_once(t.cause, out, self.format.write(addr, len), len),
                Kind::Read => {
                    let back = self.topology.route(to, from);
                    self.cross_at_once(t.cause, out, self.format.read(addr, len), 0);
                    let data = self.format.completions(addr, len);
                    self.cross_at_once(t.cause, back, data, len);
                }
            }
            if t.uses_memory() {
                self.memory.count_access(MemoryPlace(to), len);
            }
            addr += u64::from(len);
            left -= len;
        }
        if t.kind == Kind::Read {
            self.requesters[usize::from(from)].account.reads += 1;
        }
        self.ended.push_back(t);
    }

    /// TLPs with so much payload pass all stations of a way.
    fn cross_at_once(&mut self, cause: Cause, route: Route, cut: Cut, payload: u32) {
        let first = route.first as usize;
        for hop in &self.topology.hops[first..first + usize::from(route.hops)] {
            let crossing = payload + cut.tlps * self.cross_bytes;
            let wire = if hop.cross { crossing } else { cut.wire };
            self.topology.stations[usize::from(hop.station)].count(cause, cut.tlps, wire);
        }
    }
}
