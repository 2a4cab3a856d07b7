//! How the programs of a run find each other: `publish` and `lookup` of small values, out of band.
//!
//! | Module | What it is | When |
//! |---|---|---|
//! | [`tcp`] | a rendezvous at rank 0 over TCP (Linux) | every real run |
//! | [`local`] | a table shared by threads of one process | tests |
//! | [`launch`] | rank, size and server from `srun`, `mpirun` or a host list | before [`tcp`] |

use std::fmt::Debug;
use std::os::fd::BorrowedFd;
use std::time::Instant;

use doorbell_core::transport::LookupError;

mod board;
pub mod launch;
pub mod local;
#[cfg(target_os = "linux")]
pub mod tcp;
mod token;

pub use token::{MAX_TOKEN_BYTES, MIN_TOKEN_BYTES, Token, TokenError};

/// Most programs of one run. The rendezvous tells every rank about every other, so its work grows
/// with the square of the size.
pub const MAX_RANKS: u32 = 1 << 16;

/// Most that one rank may have published, in bytes: the values that were not replaced, each with
/// 64 bytes on top for its key. Every rank keeps this much for every other rank.
pub const MAX_RANK_BYTES: usize = 64 << 20;

/// An out-of-band network, as [`Control`](doorbell_core::transport::Control) offers it to programs.
///
/// No call blocks but [`Bootstrap::finish`], and that one has a deadline. Dropping one that has not
/// finished tells the peers that this program is lost.
pub trait Bootstrap: Debug + Send {
    /// This program's number.
    fn rank(&self) -> u32;

    /// How many programs take part.
    fn size(&self) -> u32;

    /// See [`Control::publish`](doorbell_core::transport::Control::publish). The program itself
    /// can look the value up at once. A key that is published again replaces its value; a peer that
    /// was slow may see only the last one. After [`Bootstrap::finish`] nothing reaches the peers.
    ///
    /// # Panics
    /// When `bytes` is longer than
    /// [`MAX_PUBLISHED_BYTES`](doorbell_core::transport::MAX_PUBLISHED_BYTES), or all that this
    /// program has published exceeds [`MAX_RANK_BYTES`]: such data belongs on the data path.
    fn publish(&mut self, key: u64, bytes: &[u8]);

    /// See [`Control::lookup`](doorbell_core::transport::Control::lookup). Returns how many bytes
    /// were copied: the shorter of the value and `out`. What a peer had published stays readable
    /// after it has gone.
    ///
    /// # Errors
    /// See [`LookupError`].
    fn lookup(&mut self, peer: u32, key: u64, out: &mut [u8])
    -> Result<Option<usize>, LookupError>;

    /// Takes in what has arrived and sends what is queued; whether something new can be looked up,
    /// or a peer has gone, since the last call.
    fn poll(&mut self) -> bool;

    /// Becomes readable when [`Bootstrap::poll`] would find something; `None`: poll it. It may also
    /// become readable so that `poll` sends on, without news.
    fn fd(&self) -> Option<BorrowedFd<'_>>;

    /// A peer that went away before it was done, if there is one: the first that was noticed. Its
    /// connection is lost: it was killed, or its machine was.
    fn lost_peer(&self) -> Option<u32>;

    /// Says that this program is done, and lets what it published reach the peers. Returns when it
    /// has, or at the deadline.
    fn finish(&mut self, deadline: Instant);
}
