//! Accounting of a send queue: what is used, and which work requests have to be signalled.

use alloc::boxed::Box;
use alloc::vec;

use crate::transport::{QpCaps, SendWr, WQEBB, max_wqe_bytes};

#[cfg(test)]
mod tests;

/// Limits of a [`SendWindow`] below those of the queue.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct WindowConfig {
    /// Most work requests outstanding; 0: as many as the queue holds. On a shared queue pair each
    /// sharer has its part. Higher: a fuller pipe, longer queues.
    pub max_wrs: u32,
    /// One of so many work requests is signalled. Higher: fewer completions to write and to poll,
    /// and slots come back later, in larger portions. Lowered to half of the window, since a queue
    /// whose only completion is the last one's runs dry each time.
    pub signal_every: u32,
}

impl Default for WindowConfig {
    /// The whole queue, every 16th signalled: a completion costs a core about 20 ns (C-POST-002),
    /// so 16 bring that to about one.
    fn default() -> Self {
        Self { max_wrs: 0, signal_every: 16 }
    }
}

/// How things stand behind a work request.
#[derive(Copy, Clone, Debug, Default)]
struct Mark {
    /// Blocks of all work requests up to it; they wrap.
    blocks: u32,
    /// The position behind the last signalled one.
    told: u32,
}

/// Counts the work requests of one send queue, and their 64-byte blocks apart from that, from the
/// push to the completion that tells of them.
///
/// A queue is full when either count is used up. Whoever pushes only what [`fits`] and signals what
/// [`must_signal`] says never overruns the queue, and never waits for a completion that cannot
/// come: while nothing fits, something signalled is outstanding. [`Sender`] does both.
///
/// [`fits`]: SendWindow::fits
/// [`must_signal`]: SendWindow::must_signal
/// [`Sender`]: super::Sender
#[derive(Clone, Debug)]
pub struct SendWindow {
    /// Of each that is outstanding, by its position.
    marks: Box<[Mark]>,
    max_wrs: u32,
    /// Blocks of the queue, and how many may go unsignalled; `None` where only WQEs count.
    max_blocks: Option<(u32, u32)>,
    every: u32,
    /// Positions, free-running: `tail` is the oldest that is outstanding.
    head: u32,
    tail: u32,
    /// Behind the newest.
    last: Mark,
    /// Blocks of all up to the last that is gone.
    gone_blocks: u32,
}

impl SendWindow {
    /// The window of a queue pair to which `caps` was granted, with `cq_entries` entries of its
    /// completion queue.
    pub fn new(config: WindowConfig, caps: &QpCaps, cq_entries: u32) -> Self {
        let WindowConfig { max_wrs, signal_every } = config;
        let asked = if max_wrs == 0 { u32::MAX } else { max_wrs };
        let max_wrs = asked.min(caps.max_send_wr).min(cq_entries).max(1);
        // The largest WQE that was granted must fit behind those that are not signalled.
        let largest = max_wqe_bytes(caps.max_sge, caps.max_inline).div_ceil(WQEBB);
        Self {
            marks: vec![Mark::default(); max_wrs.next_power_of_two() as usize].into(),
            max_wrs,
            max_blocks: caps.sq_blocks.map(|b| (b, (b / 2).min(b.saturating_sub(largest)))),
            every: signal_every.min(max_wrs / 2).max(1),
            head: 0,
            tail: 0,
            last: Mark::default(),
            gone_blocks: 0,
        }
    }

    /// Most work requests outstanding.
    pub const fn max_wrs(&self) -> u32 {
        self.max_wrs
    }

    /// Work requests that are pushed and of which no completion has told.
    #[inline]
    pub const fn used(&self) -> u32 {
        self.head.wrapping_sub(self.tail)
    }

    /// Blocks of them; 0 where the back end does not say how many there are.
    #[inline]
    pub const fn used_blocks(&self) -> u32 {
        self.last.blocks.wrapping_sub(self.gone_blocks)
    }

    /// Signalled ones among them, whose completions are to come. Looks at each.
    pub fn signals(&self) -> u32 {
        let signalled = |n: &u32| {
            let at = self.tail.wrapping_add(*n);
            self.mark(at).told == at.wrapping_add(1)
        };
        (0..self.used()).filter(signalled).count() as u32
    }

    /// Those whose completion is to come by itself: all but the ones behind the last signalled one,
    /// of which nobody may ever tell.
    #[inline]
    pub const fn told_of(&self) -> u32 {
        self.used() - self.since()
    }

    /// Whether a completion is to come by itself of one of the `n` oldest.
    pub fn tells(&self, n: u32) -> bool {
        let n = n.min(self.used());
        let ahead = |n: u32| self.mark(self.tail.wrapping_add(n - 1)).told.wrapping_sub(self.tail);
        n > 0 && (1..=n).contains(&ahead(n))
    }

    /// Those behind the last signalled one. Flushed ones tell of themselves, signalled or not, so
    /// these are at most what is outstanding.
    #[inline]
    const fn since(&self) -> u32 {
        let (since, used) = (self.head.wrapping_sub(self.last.told), self.used());
        if since < used { since } else { used }
    }

    /// Blocks of those.
    #[inline]
    fn since_blocks(&self) -> u32 {
        let before = match self.used() - self.since() {
            0 => self.gone_blocks,
            n => self.mark(self.tail.wrapping_add(n - 1)).blocks,
        };
        self.last.blocks.wrapping_sub(before)
    }

    /// Positions of the oldest that is outstanding and of the one behind the last signalled one.
    /// They count from 0 and wrap at 2^32.
    #[inline]
    pub const fn positions(&self) -> (u32, u32) {
        (self.tail, self.head.wrapping_sub(self.since()))
    }

    /// Blocks of a work request, as far as they count here.
    #[inline]
    pub fn blocks_of(&self, wr: &SendWr<'_>) -> u32 {
        if self.max_blocks.is_some() { wr.blocks() } else { 0 }
    }

    /// Whether a work request of so many blocks fits.
    #[inline]
    pub const fn fits(&self, blocks: u32) -> bool {
        let room = match self.max_blocks {
            Some((most, _)) => self.used_blocks() + blocks <= most,
            None => true,
        };
        room && self.used() < self.max_wrs
    }

    /// Whether a work request of so many blocks has to be signalled: as the `signal_every`th, or
    /// since the queue could fill before the next one.
    #[inline]
    pub fn must_signal(&self, blocks: u32) -> bool {
        let full = match self.max_blocks {
            Some((_, most)) => self.since_blocks() + blocks > most,
            None => false,
        };
        full || self.since() + 1 >= self.every
    }

    /// A work request was pushed.
    #[inline]
    pub fn pushed(&mut self, blocks: u32, signaled: bool) {
        debug_assert!(self.fits(blocks), "the caller asks before it pushes");
        let at = self.at(self.head);
        self.head = self.head.wrapping_add(1);
        let told = if signaled { self.head } else { self.last.told };
        self.last = Mark { blocks: self.last.blocks.wrapping_add(blocks), told };
        self.marks[at] = self.last;
    }

    /// The `n` newest are gone: a ring discarded them. Returns `n`, at most what is outstanding.
    pub fn undo(&mut self, n: u32) -> u32 {
        let n = n.min(self.used());
        self.head = self.head.wrapping_sub(n);
        self.last = match self.used() {
            0 => Mark { blocks: self.gone_blocks, told: self.tail },
            _ => self.mark(self.head.wrapping_sub(1)),
        };
        n
    }

    /// A completion told of the `n` oldest. Returns `n`, at most what is outstanding.
    #[inline]
    pub fn retired(&mut self, n: u32) -> u32 {
        let n = n.min(self.used());
        if n > 0 {
            self.tail = self.tail.wrapping_add(n);
            self.gone_blocks = self.mark(self.tail.wrapping_sub(1)).blocks;
        }
        n
    }

    #[inline]
    fn mark(&self, position: u32) -> Mark {
        self.marks[self.at(position)]
    }

    #[inline]
    fn at(&self, position: u32) -> usize {
        position as usize & (self.marks.len() - 1)
    }
}
