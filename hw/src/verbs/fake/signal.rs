//! The descriptors that a program waits on.

use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsRawFd, RawFd};

/// A descriptor that is readable while something is queued. The program sees the reading end.
#[derive(Debug)]
pub(super) struct Signal {
    reader: PipeReader,
    writer: PipeWriter,
    raised: bool,
}

impl Signal {
    /// `None` when the process has no descriptors left.
    pub fn new() -> Option<Self> {
        let (reader, writer) = std::io::pipe().ok()?;
        Some(Self { reader, writer, raised: false })
    }

    pub fn fd(&self) -> RawFd {
        self.reader.as_raw_fd()
    }

    /// Makes the descriptor readable, or not. It holds at most one byte, so neither end blocks.
    pub fn set(&mut self, ready: bool) {
        if ready == self.raised {
            return;
        }
        self.raised = ready;
        let moved =
            if ready { self.writer.write(&[1]) } else { self.reader.read(&mut [0]) }.unwrap_or(0);
        assert_eq!(moved, 1, "the pipe of a signal holds one byte or none");
    }

    /// Whether a read without data would block.
    pub fn blocks(&self) -> bool {
        // SAFETY: the descriptor is open; the call takes no argument.
        let flags = unsafe { libc::fcntl(self.fd(), libc::F_GETFL) };
        flags & libc::O_NONBLOCK == 0
    }
}
