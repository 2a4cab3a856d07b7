//! Pages of regions that were registered for on-demand paging.
//!
//! Their pages are not pinned: the NIC's table has those that it was told of. The first access to
//! another one is a *fault*, which the driver serves: it takes a while, and more for each page. A
//! page may leave the table again, when the host unmaps it; here each does so a fixed time after it
//! came. All NICs of a host are told together.

use std::collections::BTreeMap;

use doorbell_core::units::{Span, Time};

/// What faults cost, and how long pages stay.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct PagingCosts {
    /// Serving a fault, however many pages it is about.
    pub fault: Span,
    /// Each page of it.
    pub page: Span,
    /// Bytes of a page, at least 1.
    pub page_bytes: u64,
    /// How long after its fault a page leaves the table; `None`: it stays.
    pub keep: Option<Span>,
}

impl Default for PagingCosts {
    /// Faults that take no time, of 4-KiB pages that stay.
    fn default() -> Self {
        Self { fault: Span::ZERO, page: Span::ZERO, page_bytes: 4096, keep: None }
    }
}

/// Faults so far.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct PagingStats {
    /// Faults served or being served.
    pub faults: u64,
    /// Their pages.
    pub pages: u64,
}

#[derive(Clone, Debug)]
struct Paged {
    len: u64,
    /// Pages that are in the table, or will be, since when.
    pages: BTreeMap<u64, Time>,
}

/// The regions of a host that have pages on demand.
#[derive(Clone, Default, Debug)]
pub struct Paging {
    /// By first address.
    regions: BTreeMap<u64, Paged>,
    costs: PagingCosts,
    /// Faults.
    pub stats: PagingStats,
}

impl Paging {
    /// No regions, faults of these costs.
    pub fn new(costs: PagingCosts) -> Self {
        Self { costs, ..Self::default() }
    }

    /// A region begins at `addr`; none of its pages is in the table.
    pub(super) fn add(&mut self, addr: u64, len: u64) {
        self.regions.insert(addr, Paged { len, pages: BTreeMap::new() });
    }

    /// The region at `addr` is gone, if it was one.
    pub(super) fn remove(&mut self, addr: u64) {
        self.regions.remove(&addr);
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.regions.is_empty()
    }

    /// An access now: when all of its pages are there; `None`: they are, or the region is none of
    /// ours. Pages that are missing are asked for, in one fault.
    pub fn touch(&mut self, now: Time, addr: u64, len: u64) -> Option<Time> {
        let Self { regions, costs, stats } = self;
        let (start, region) = regions.range_mut(..=addr).next_back()?;
        let end = addr.saturating_add(len).min(start + region.len);
        if end <= addr {
            return None;
        }
        let pages = (addr - start) / costs.page_bytes..(end - start).div_ceil(costs.page_bytes);
        let gone = |since: Time| costs.keep.is_some_and(|keep| since + keep <= now);
        let (mut missing, mut last) = (Vec::new(), now);
        for page in pages {
            match region.pages.get(&page) {
                Some(since) if !gone(*since) => last = last.max(*since),
                _ => missing.push(page),
            }
        }
        if !missing.is_empty() {
            let there = now + costs.fault + costs.page * missing.len() as u64;
            stats.faults += 1;
            stats.pages += missing.len() as u64;
            region.pages.extend(missing.into_iter().map(|page| (page, there)));
            last = last.max(there);
        }
        (last > now).then_some(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 0x1000_0000;

    fn paging(keep: Option<Span>) -> Paging {
        let (fault, page) = (Span::from_us(220), Span::from_ns(100));
        let mut p = Paging::new(PagingCosts { fault, page, page_bytes: 4096, keep });
        p.add(START, 10 * 4096 + 1);
        p
    }

    fn us(n: u64) -> Time {
        Time::ZERO + Span::from_us(n)
    }

    #[test]
    fn the_first_access_to_a_page_faults_and_no_later_one() {
        let mut p = paging(None);
        let there = us(220) + Span::from_ns(100);
        assert_eq!(p.touch(us(0), START + 4000, 96), Some(there));
        assert_eq!(p.touch(us(10), START, 1), Some(there), "it is on its way");
        assert_eq!(p.touch(us(221), START, 4096), None);
        // One page of two, and the byte on the last page; beyond it nothing is ours.
        assert_eq!(p.touch(us(300), START + 4095, 2), Some(us(520) + Span::from_ns(100)));
        assert_eq!(p.touch(us(1000), START + 9 * 4096, 9000), Some(us(1220) + Span::from_ns(200)));
        assert_eq!(p.touch(us(0), START + 10 * 4096 + 1, 8), None);
        assert_eq!(p.touch(us(0), START - 1, 1), None);
        assert_eq!(p.touch(us(0), START, 0), None, "an access to nothing");
        assert_eq!(p.stats, PagingStats { faults: 3, pages: 4 });
        p.remove(START);
        assert!(p.is_empty() && p.touch(us(0), START + 8192, 1).is_none());
    }

    #[test]
    fn a_page_that_left_the_table_faults_again() {
        let mut p = paging(Some(Span::from_us(1000)));
        let there = p.touch(us(0), START, 8).unwrap();
        let before = there + (Span::from_us(1000) - Span::from_ps(1));
        assert_eq!(p.touch(before, START, 8), None);
        let again = before + Span::from_ps(1);
        assert_eq!(p.touch(again, START, 8), Some(again + Span::from_ns(220_100)));
        assert_eq!(p.stats.faults, 2);
    }
}
