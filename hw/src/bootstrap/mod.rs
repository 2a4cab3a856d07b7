//! How the programs of a run find each other: `publish` and `lookup` of small values, out of band.

use std::fmt::Debug;
use std::os::fd::BorrowedFd;
use std::time::Instant;

use doorbell_core::transport::LookupError;

/// An out-of-band network, as [`Control`](doorbell_core::transport::Control) offers it to programs.
///
/// No call blocks but [`Bootstrap::finish`], and that one has a deadline.
pub trait Bootstrap: Debug + Send {
    /// This program's number.
    fn rank(&self) -> u32;

    /// How many programs take part.
    fn size(&self) -> u32;

    /// See [`Control::publish`](doorbell_core::transport::Control::publish).
    fn publish(&mut self, key: u64, bytes: &[u8]);

    /// See [`Control::lookup`](doorbell_core::transport::Control::lookup).
    ///
    /// # Errors
    /// See [`LookupError`].
    fn lookup(&mut self, peer: u32, key: u64, out: &mut [u8])
    -> Result<Option<usize>, LookupError>;

    /// Takes in what has arrived and sends what is queued; whether something new can be looked up,
    /// or a peer has gone, since the last call.
    fn poll(&mut self) -> bool;

    /// Becomes readable when [`Bootstrap::poll`] would find something; `None`: poll it.
    fn fd(&self) -> Option<BorrowedFd<'_>>;

    /// A peer that went away before it was done, if there is one. Its connection is lost: it was
    /// killed, or its machine was.
    fn lost_peer(&self) -> Option<u32>;

    /// Says that this program is done, and lets what it published reach the peers.
    fn finish(&mut self, deadline: Instant);
}
