//! Who posts: a core, a GPU block by its leaders, or a core that a GPU signals.
//!
//! [`PostConfig::decide`] says who it is on a device, and never changes its mind without a word:
//! where a GPU's doorbell is not taken it refuses, or names who posts instead. A GPU that leaves
//! posting to a core writes [`Command`]s into a [`CommandQueue`] by a [`CommandWriter`]; the core
//! runs a [`Proxy`].

mod command;
mod proxy;
#[cfg(test)]
mod tests;
mod writer;

pub use command::{COMMAND_BYTES, Command, CommandOp, CommandQueue, CommandQueueError};
pub use proxy::{Proxy, ProxyClient, ProxyConfig, ProxyError, ProxyStats, ProxyTold};
pub use writer::{CommandError, CommandStats, CommandWriter};

use core::fmt;

use crate::transport::Unsupported;

/// Who stages work requests and rings.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum Poster {
    /// A CPU core.
    #[default]
    Cpu,
    /// A block of a GPU, by its leaders.
    Gpu(Leader),
    /// A CPU core, for a GPU that writes commands.
    Proxy,
}

impl fmt::Display for Poster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cpu => "a CPU core",
            Self::Gpu(Leader::Thread) => "the GPU, each thread",
            Self::Gpu(Leader::Warp) => "the GPU, a leader per warp",
            Self::Gpu(Leader::Block) => "the GPU, a leader per block",
            Self::Proxy => "a CPU core that the GPU signals",
        })
    }
}

/// Whose ring announces the messages of a block's threads.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum Leader {
    /// Each thread rings for its own message: the most doorbells, and none waits for another.
    Thread,
    /// One of each 32 threads.
    Warp,
    /// One of the block: the fewest doorbells; the first message waits for the last.
    #[default]
    Block,
}

impl Leader {
    /// Threads of a warp.
    pub const WARP: u32 = 32;

    /// Most messages that one ring announces, of `threads` that have one each: what
    /// [`BatchConfig::max_wrs`](super::BatchConfig::max_wrs) should be. At least 1.
    pub const fn group(self, threads: u32) -> u32 {
        match self {
            Self::Warp if threads > Self::WARP => Self::WARP,
            Self::Warp | Self::Block if threads > 0 => threads,
            Self::Thread | Self::Warp | Self::Block => 1,
        }
    }
}

/// What becomes of a GPU's posting where the device takes no doorbell of it.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum Fallback {
    /// It is refused.
    #[default]
    Refuse,
    /// A core posts, and the GPU signals it.
    CpuProxy,
    /// A core runs the whole program.
    Cpu,
}

/// Who should post, and who instead.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct PostConfig {
    /// Who should.
    pub by: Poster,
    /// Who does where the device takes no doorbell of a GPU.
    pub fallback: Fallback,
}

/// Who posts. Its text is for a report.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Decision {
    /// Who should have.
    pub asked: Poster,
    /// Who does.
    pub by: Poster,
}

impl Decision {
    /// Whether another one posts than should.
    pub fn fell_back(&self) -> bool {
        self.asked != self.by
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.fell_back() {
            true => write!(f, "{} posts in the place of {}", self.by, self.asked),
            false => write!(f, "{} posts", self.by),
        }
    }
}

impl PostConfig {
    /// Who posts on a device that takes the doorbell of a GPU, or does not
    /// ([`DeviceCaps::gpu_doorbell`](crate::transport::DeviceCaps::gpu_doorbell)).
    ///
    /// # Errors
    /// A GPU should, the device takes none of its doorbells, and nobody is named instead.
    pub const fn decide(self, gpu_doorbell: bool) -> Result<Decision, Unsupported> {
        let asked = self.by;
        let by = match (asked, self.fallback) {
            (Poster::Gpu(_), Fallback::Refuse) if !gpu_doorbell => {
                return Err(Unsupported {
                    capability: "doorbell of a GPU",
                    reason: "the device takes none: name a core as the fallback",
                });
            }
            (Poster::Gpu(_), Fallback::CpuProxy) if !gpu_doorbell => Poster::Proxy,
            (Poster::Gpu(_), Fallback::Cpu) if !gpu_doorbell => Poster::Cpu,
            (by, _) => by,
        };
        Ok(Decision { asked, by })
    }
}
