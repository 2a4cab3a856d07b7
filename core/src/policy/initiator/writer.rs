//! The side of a GPU that leaves posting to a core.

use core::fmt;

use crate::transport::{FenceScope, Initiator, MemError, Transport};
use crate::verbs::WcStatus;

use super::command::{Command, CommandQueue};

/// A command that was not written, or an end of all.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum CommandError {
    /// As many are written and not done as there are slots. What was written has been announced:
    /// look until some are done, then write again.
    Full,
    /// A command failed, and none behind it is done.
    Failed {
        /// Commands that are done.
        done: u64,
        /// Why the next one is not.
        status: WcStatus,
    },
    /// The queue was not read or written.
    Memory(MemError),
}

impl From<MemError> for CommandError {
    fn from(e: MemError) -> Self {
        Self::Memory(e)
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("the command queue is full: look, then write again"),
            Self::Failed { done, status } => write!(f, "command {done} failed: {status}"),
            Self::Memory(e) => e.fmt(f),
        }
    }
}

impl core::error::Error for CommandError {}

/// What a writer has done. Counters saturate.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct CommandStats {
    /// Commands that were announced.
    pub commands: u64,
    /// Announcements: a fence where one is needed, and a store. What a ring costs otherwise.
    pub announcements: u64,
    /// Times that a command found no slot.
    pub full: u64,
}

/// Writes commands into a [`CommandQueue`], from a GPU or another core.
///
/// What it promises, if nobody else writes into the queue:
///
/// - Commands are executed in the order of the writes, each once.
/// - Never are more written and not done than there are slots: a slot is used again when its
///   command is done.
/// - Where the initiator's stores are not in order by themselves it fences before it announces, so
///   the proxy, and the NIC behind it, see whole commands and the payload that was stored before.
/// - Every command is done, or [`look`](CommandWriter::look) says why it and those behind it are
///   not.
#[derive(Clone, Debug)]
pub struct CommandWriter {
    queue: CommandQueue,
    fence: Option<FenceScope>,
    written: u64,
    announced: u64,
    done: u64,
    failed: Option<WcStatus>,
    stats: CommandStats,
}

impl CommandWriter {
    /// A writer for an empty queue. A GPU's stores need a fence that all observers see; those of a
    /// core have the order that [`Transport::store_u64`] promises.
    pub fn new(queue: CommandQueue, who: Initiator) -> Self {
        let gpu = matches!(who, Initiator::GpuBlock { .. });
        let fence = gpu.then_some(FenceScope::System);
        let stats = CommandStats::default();
        Self { queue, fence, written: 0, announced: 0, done: 0, failed: None, stats }
    }

    /// Fences otherwise before it announces: to show what comes of too little.
    #[must_use]
    pub const fn with_fence(mut self, fence: Option<FenceScope>) -> Self {
        self.fence = fence;
        self
    }

    /// Its queue.
    pub const fn queue(&self) -> &CommandQueue {
        &self.queue
    }

    /// Commands that are written and not done, as far as was looked.
    pub const fn open(&self) -> u64 {
        self.written - self.done
    }

    /// Commands that still find a slot.
    pub const fn room(&self) -> u32 {
        // The difference is at most the number of slots.
        self.queue.slots() - self.open() as u32
    }

    /// Commands that are done, as far as was looked.
    pub const fn done(&self) -> u64 {
        self.done
    }

    /// What it has done.
    pub const fn stats(&self) -> CommandStats {
        self.stats
    }

    /// Writes a command; its number, from 0. Nobody sees it before
    /// [`announce`](CommandWriter::announce).
    ///
    /// # Errors
    /// See [`CommandError`]; the command was not written.
    pub fn write(
        &mut self,
        t: &mut impl Transport,
        command: &Command,
    ) -> Result<u64, CommandError> {
        self.alive()?;
        if self.room() == 0 {
            self.stats.full = self.stats.full.saturating_add(1);
            // What nobody knows of is never done.
            self.announce(t)?;
            return Err(CommandError::Full);
        }
        self.queue.write(t, self.written, command)?;
        self.written += 1;
        Ok(self.written - 1)
    }

    /// Tells the proxy of all that was written; how many that are.
    ///
    /// # Errors
    /// The queue was not written.
    pub fn announce(&mut self, t: &mut impl Transport) -> Result<u32, MemError> {
        let fresh = self.written - self.announced;
        if fresh == 0 {
            return Ok(0);
        }
        if let Some(scope) = self.fence {
            t.fence(scope);
        }
        self.queue.say_ready(t, self.written)?;
        self.announced = self.written;
        self.stats.announcements = self.stats.announcements.saturating_add(1);
        self.stats.commands = self.stats.commands.saturating_add(fresh);
        Ok(fresh as u32)
    }

    /// Looks what is done; how many commands it is the first to tell of, in the order of the
    /// writes.
    ///
    /// # Errors
    /// [`CommandError::Failed`] once all that are done have been told of. Nothing changes the word
    /// behind that: who waits for it asks [`alive`](Self::alive) before.
    pub fn look(&mut self, t: &mut impl Transport) -> Result<u32, CommandError> {
        let seen = self.queue.done(t)?;
        // A number that no proxy can say is not believed.
        let done = seen.count.clamp(self.done, self.announced);
        let fresh = done - self.done;
        self.done = done;
        self.failed = self.failed.or(seen.failed);
        if fresh == 0 {
            self.alive()?;
        }
        Ok(fresh as u32)
    }

    /// Whether the proxy still serves this writer, as far as the last look knows.
    ///
    /// # Errors
    /// [`CommandError::Failed`].
    pub const fn alive(&self) -> Result<(), CommandError> {
        match self.failed {
            Some(status) => Err(CommandError::Failed { done: self.done, status }),
            None => Ok(()),
        }
    }
}
