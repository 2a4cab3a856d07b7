//! Messages by a path that is stated as a whole.

use doorbell_core::units::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::quantity::Positive;

/// Table `transfer` of a program of that kind.
///
/// Each thread sends messages of `size` bytes, `window` of them under way (1 without it), and its
/// peer says when its application has one: what is measured is the time from the hand-over to that
/// word. The costs are `cpu.register_call`, `cpu.copy_rate`, `gpu.copy_launch`, the group `kernel`
/// and their neighbours of the profile.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Transfer {
    /// How a message gets to the NIC, and from the NIC to the peer's application.
    pub path: TransferPath,
    /// Bytes that are handed to the NIC together; without it the whole message, of `tcp` 64KiB, as
    /// TSO and GRO have it. Smaller: copies overlap better with the wire, and each message takes
    /// more work requests; of `tcp` a packet's payload: no offloads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segment: Option<Positive<Bytes>>,
}

/// How a message gets to the NIC, and from the NIC to the peer's application.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TransferPath {
    /// From memory that is registered, into memory that is: no copy.
    Registered,
    /// As `registered`, in buffers that are taken from a pool and given back.
    Pool,
    /// Copied into a registered buffer, and at the peer out of one.
    Copy,
    /// The sender registers the memory of each message, and deregisters it.
    PerMessage,
    /// From a GPU's memory through a buffer in the host's, and at the peer back: the GPU copies.
    Staged,
    /// By the kernel's TCP, which sleeps and wakes by interrupts.
    Tcp,
}

impl TransferPath {
    /// The word in files.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Registered => "registered",
            Self::Pool => "pool",
            Self::Copy => "copy",
            Self::PerMessage => "per-message",
            Self::Staged => "staged",
            Self::Tcp => "tcp",
        }
    }
}

/// Bytes of a segment of TCP with TSO and GRO.
const TCP_SEGMENT: u64 = 64 << 10;

impl Transfer {
    /// Bytes of a segment of a message of `size`.
    pub fn segment_of(&self, size: Bytes) -> u64 {
        let usual = if self.path == TransferPath::Tcp { TCP_SEGMENT } else { size.0 };
        self.segment.map_or(usual, |s| s.0.0).min(size.0)
    }
}
