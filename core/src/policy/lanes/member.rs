//! One queue pair of a stripe.

use alloc::boxed::Box;
use alloc::vec;

use crate::policy::Sender;

/// A sender and, where the choice goes by them, the bytes that it has outstanding.
#[derive(Debug)]
pub(super) struct Member {
    pub sender: Sender,
    pub lane: u32,
    pub peer: u32,
    pub place: u32,
    /// Whether it is in the list of those that may hold something.
    pub listed: bool,
    bytes: u64,
    /// Length of each message that is outstanding, by its position in the sender's window; empty
    /// where nobody asks.
    lengths: Box<[u32]>,
    tail: u32,
    head: u32,
}

impl Member {
    pub fn new(sender: Sender, (lane, peer, place): (u32, u32, u32), by_bytes: bool) -> Self {
        let slots = sender.window().max_wrs().next_power_of_two() as usize;
        let lengths = vec![0; if by_bytes { slots } else { 0 }].into();
        Self { sender, lane, peer, place, listed: false, bytes: 0, lengths, tail: 0, head: 0 }
    }

    /// Bytes outstanding, as far as somebody asks for them.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// A message of so many bytes was staged.
    #[inline]
    pub fn staged(&mut self, bytes: u64) {
        if !self.lengths.is_empty() {
            let at = self.at(self.head);
            // Messages have 32-bit lengths.
            self.lengths[at] = bytes as u32;
            self.bytes += u64::from(self.lengths[at]);
            self.head = self.head.wrapping_add(1);
        }
    }

    /// Follows the sender's window, which alone knows what is outstanding: forgets what it has
    /// been told of, and what a ring discarded.
    #[inline]
    pub fn follow(&mut self) {
        if self.lengths.is_empty() {
            return;
        }
        let window = self.sender.window();
        let (tail, head) = (window.positions().0, window.positions().0.wrapping_add(window.used()));
        while self.tail != tail {
            self.bytes -= u64::from(self.lengths[self.at(self.tail)]);
            self.tail = self.tail.wrapping_add(1);
        }
        while self.head != head {
            self.head = self.head.wrapping_sub(1);
            self.bytes -= u64::from(self.lengths[self.at(self.head)]);
        }
    }

    fn at(&self, position: u32) -> usize {
        position as usize & (self.lengths.len() - 1)
    }
}
