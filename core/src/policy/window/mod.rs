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

/// Marks a signalled work request; the other bits are its blocks.
const SIGNALED: u16 = 1 << 15;

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
    slots: Box<[u16]>,
    max_wrs: u32,
    /// Blocks of the queue, and how many may go unsignalled; `None` where only WQEs count.
    max_blocks: Option<(u32, u32)>,
    every: u32,
    /// Positions, free-running: `tail` is the oldest that is outstanding.
    head: u32,
    tail: u32,
    blocks: u32,
    signals: u32,
    /// Since the last signalled one.
    since: u32,
    since_blocks: u32,
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
            slots: vec![0; max_wrs.next_power_of_two() as usize].into(),
            max_wrs,
            max_blocks: caps.sq_blocks.map(|b| (b, (b / 2).min(b.saturating_sub(largest)))),
            every: signal_every.min(max_wrs / 2).max(1),
            head: 0,
            tail: 0,
            blocks: 0,
            signals: 0,
            since: 0,
            since_blocks: 0,
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
    pub const fn used_blocks(&self) -> u32 {
        self.blocks
    }

    /// Signalled ones among them, whose completions are to come.
    pub const fn signals(&self) -> u32 {
        self.signals
    }

    /// Those whose completion is to come by itself: all but the ones behind the last signalled one,
    /// of which nobody may ever tell.
    #[inline]
    pub const fn told_of(&self) -> u32 {
        self.used() - self.since
    }

    /// Positions of the oldest that is outstanding and of the one behind the last signalled one.
    /// They count from 0 and wrap at 2^32.
    #[inline]
    pub const fn positions(&self) -> (u32, u32) {
        (self.tail, self.head.wrapping_sub(self.since))
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
            Some((most, _)) => self.blocks + blocks <= most,
            None => true,
        };
        room && self.used() < self.max_wrs
    }

    /// Whether a work request of so many blocks has to be signalled: as the `signal_every`th, or
    /// since the queue could fill before the next one.
    #[inline]
    pub const fn must_signal(&self, blocks: u32) -> bool {
        let full = match self.max_blocks {
            Some((_, most)) => self.since_blocks + blocks > most,
            None => false,
        };
        full || self.since + 1 >= self.every
    }

    /// A work request was pushed.
    #[inline]
    pub fn pushed(&mut self, blocks: u32, signaled: bool) {
        debug_assert!(self.fits(blocks), "the caller asks before it pushes");
        let at = self.head as usize & (self.slots.len() - 1);
        // A WQE has at most `MAX_WQE_BYTES`, sixteen blocks.
        self.slots[at] = blocks as u16 & !SIGNALED | if signaled { SIGNALED } else { 0 };
        self.head = self.head.wrapping_add(1);
        self.blocks += blocks;
        if signaled {
            self.signals += 1;
            (self.since, self.since_blocks) = (0, 0);
        } else {
            self.since += 1;
            self.since_blocks += blocks;
        }
    }

    /// The `n` newest are gone: a ring discarded them. Returns `n`, at most what is outstanding.
    pub fn undo(&mut self, n: u32) -> u32 {
        let n = n.min(self.used());
        for _ in 0..n {
            self.head = self.head.wrapping_sub(1);
            self.forget(self.head);
        }
        // Count anew what lies behind the signalled one that is the last now.
        (self.since, self.since_blocks) = (0, 0);
        while self.since < self.used() {
            let slot = self.slot(self.head.wrapping_sub(self.since + 1));
            if slot & SIGNALED != 0 {
                break;
            }
            self.since += 1;
            self.since_blocks += u32::from(slot);
        }
        n
    }

    /// A completion told of the `n` oldest. Returns `n`, at most what is outstanding.
    #[inline]
    pub fn retired(&mut self, n: u32) -> u32 {
        let n = n.min(self.used());
        for _ in 0..n {
            self.forget(self.tail);
            self.tail = self.tail.wrapping_add(1);
        }
        // Flushed ones tell of themselves, signalled or not.
        if self.since > self.used() {
            self.undo(0);
        }
        n
    }

    #[inline]
    fn slot(&self, position: u32) -> u16 {
        self.slots[position as usize & (self.slots.len() - 1)]
    }

    #[inline]
    fn forget(&mut self, position: u32) {
        let slot = self.slot(position);
        self.blocks -= u32::from(slot & !SIGNALED);
        self.signals -= u32::from(slot >> 15);
    }
}
