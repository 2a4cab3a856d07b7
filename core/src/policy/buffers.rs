//! Send buffers that are not used again before their work request is done.

use alloc::boxed::Box;
use alloc::vec;

/// A ring of equal buffers, one per work request, in the order of a send queue.
///
/// A completion tells of every earlier work request of its queue, so buffers come back in order
/// and by number: what [`Sender::completion`](super::Sender::completion) returns. Between
/// [`take`](SendBuffers::take) and that a buffer belongs to the transport. A work request that is
/// inline needs none and takes its turn without one: [`skip`](SendBuffers::skip).
///
/// Who takes the last free buffer has to signal its work request: with fewer buffers than work
/// requests between two signals nobody would ever tell that one is free again.
///
/// ```
/// use doorbell_core::policy::SendBuffers;
///
/// let mut buffers = SendBuffers::new(2, 64, 16);
/// assert_eq!([buffers.take(), buffers.take(), buffers.take()], [Some(0), Some(64), None]);
/// buffers.retired(1);
/// assert_eq!(buffers.take(), Some(0));
/// ```
#[derive(Clone, Debug)]
pub struct SendBuffers {
    /// Whether the work request at a position has a buffer.
    has: Box<[bool]>,
    buffers: u32,
    bytes: u32,
    /// Positions of the send queue, free-running.
    head: u32,
    tail: u32,
    /// The buffer that is taken next, and how many are free.
    next: u32,
    free: u32,
}

impl SendBuffers {
    /// `buffers` buffers of `bytes` bytes each, for a queue with `max_wrs` work requests
    /// outstanding. More buffers than work requests are of no use.
    ///
    /// # Panics
    /// When there is no buffer, or no work request.
    pub fn new(buffers: u32, bytes: u32, max_wrs: u32) -> Self {
        assert!(buffers > 0 && max_wrs > 0, "a ring of no buffers");
        let has = vec![false; max_wrs.next_power_of_two() as usize].into();
        Self { has, buffers, bytes, head: 0, tail: 0, next: 0, free: buffers }
    }

    /// Buffers that are free.
    pub const fn free(&self) -> u32 {
        self.free
    }

    /// The offset of a free buffer, which belongs to the next work request that is pushed. `None`:
    /// all are in use; poll.
    pub fn take(&mut self) -> Option<u64> {
        if self.free == 0 || !self.turn(true) {
            return None;
        }
        let at = self.next;
        self.free -= 1;
        self.next = if at + 1 == self.buffers { 0 } else { at + 1 };
        Some(u64::from(at) * u64::from(self.bytes))
    }

    /// The next work request that is pushed has no buffer. False: too many are outstanding.
    pub fn skip(&mut self) -> bool {
        self.turn(false)
    }

    fn turn(&mut self, with: bool) -> bool {
        let outstanding = self.head.wrapping_sub(self.tail) as usize;
        let fits = outstanding < self.has.len();
        if fits {
            let at = self.head as usize & (self.has.len() - 1);
            self.has[at] = with;
            self.head = self.head.wrapping_add(1);
        }
        fits
    }

    /// The newest turn is taken back: its work request was not staged, or was discarded.
    ///
    /// # Panics
    /// When nothing is outstanding.
    pub fn undo(&mut self) {
        assert!(self.head != self.tail, "no turn to take back");
        self.head = self.head.wrapping_sub(1);
        if self.has[self.head as usize & (self.has.len() - 1)] {
            self.free += 1;
            self.next = if self.next == 0 { self.buffers - 1 } else { self.next - 1 };
        }
    }

    /// The `n` oldest work requests are done.
    ///
    /// # Panics
    /// When fewer are outstanding.
    pub fn retired(&mut self, n: u32) {
        assert!(n <= self.head.wrapping_sub(self.tail), "more work requests retired than taken");
        for _ in 0..n {
            self.free += u32::from(self.has[self.tail as usize & (self.has.len() - 1)]);
            self.tail = self.tail.wrapping_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;
    use std::vec::Vec;

    proptest! {
        #[test]
        fn no_buffer_is_given_out_twice(
            (buffers, max_wrs) in (1..6u32, 1..9u32),
            ops in prop::collection::vec((0..5u8, 0..4u32), 0..80),
        ) {
            let mut b = SendBuffers::new(buffers, 10, max_wrs);
            let mut queue: VecDeque<Option<u64>> = VecDeque::new();
            for (op, n) in ops {
                match op {
                    0 | 1 => match b.take() {
                        Some(at) => {
                            prop_assert!(!queue.contains(&Some(at)), "{} is in use", at);
                            prop_assert!(at < u64::from(buffers) * 10 && at % 10 == 0);
                            queue.push_back(Some(at));
                        }
                        None => prop_assert!(b.free() == 0 || queue.len() as u32 >= max_wrs),
                    },
                    2 => if b.skip() { queue.push_back(None) },
                    3 => if !queue.is_empty() { b.undo(); queue.pop_back(); },
                    _ => {
                        let n = n.min(queue.len() as u32);
                        b.retired(n);
                        queue.drain(..n as usize);
                    }
                }
                let used: Vec<_> = queue.iter().flatten().collect();
                prop_assert_eq!(b.free(), buffers - used.len() as u32);
            }
        }
    }
}
