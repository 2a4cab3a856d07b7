//! `ibv_rc_pingpong` as the peer of our [`PingPong`](crate::workloads::PingPong).
//!
//! The program speaks of cards and of being ready; the tool knows one message and an order.
//!
//! | The program | becomes, as client | as server |
//! |---|---|---|
//! | publishes its card | the first message | kept: a server speaks second |
//! | looks up the peer's card | the server's answer | the client's first message |
//! | publishes that it is ready | `done` | its answer |
//! | looks up that the peer is ready | it is, when it has answered | `done` has come |
//!
//! Nothing else is exchanged: the tool knows how many messages there are, and just ends.

use std::os::fd::BorrowedFd;
use std::sync::{Arc, OnceLock};

use doorbell_core::transport::{Endpoint, LookupError, Remote};
use doorbell_core::verbs::{Mtu, Rkey};
use doorbell_hw::bootstrap::Bootstrap;
use doorbell_hw::rc_pingpong::{ExchangeError, Message, Role, Session};

use crate::workloads::connect::{Card, Target, Topic, key};

/// Rank of the side that connects and sends first; the other one has rank 1.
const CLIENT: u32 = 0;

/// The bootstrap of a run with the tool as peer.
#[derive(Debug)]
pub(super) struct ToolBootstrap {
    session: Session,
    mtu: Mtu,
    /// Own address, kept by a server until it may speak.
    mine: Option<Message>,
    failure: Arc<OnceLock<ExchangeError>>,
}

impl ToolBootstrap {
    /// Over a connection to the tool. Both sides use `mtu`, which the exchange does not tell.
    pub(super) fn new(session: Session, mtu: Mtu) -> Self {
        Self { session, mtu, mine: None, failure: Arc::default() }
    }

    /// Where it says why the exchange failed; the program only sees that its peer is gone.
    pub(super) fn failure(&self) -> Arc<OnceLock<ExchangeError>> {
        self.failure.clone()
    }

    fn peer(&self) -> u32 {
        1 - self.rank()
    }

    fn note(&self, result: Result<(), ExchangeError>) {
        if let Err(error) = result {
            // The first error is the cause of those that follow.
            let _ = self.failure.set(error);
        }
    }

    /// The message of a card. The tool asks for no memory, so that is left out.
    fn keep(&mut self, card: &[u8]) {
        let endpoint = Card::decode(card).expect("our own program encoded it").endpoint;
        let Endpoint { address, qpn, psn, .. } = endpoint;
        let message = Message { lid: address.lid, qpn, psn, gid: address.gid };
        self.mine = Some(message);
        if self.session.role() == Role::Client {
            let told = self.session.tell(&message);
            self.note(told);
        }
    }

    fn ready(&mut self) {
        let told = match (self.session.role(), self.mine) {
            (Role::Client, _) => self.session.done(),
            (Role::Server, Some(mine)) => self.session.tell(&mine),
            (Role::Server, None) => unreachable!("a card comes before readiness"),
        };
        self.note(told);
    }

    /// The card of the tool: an endpoint, and memory that nobody writes to. SENDs check only that
    /// its length would do.
    fn card(&self) -> Option<Card> {
        let m = self.session.peer()?;
        let address =
            doorbell_core::transport::Address { lid: m.lid, gid: m.gid, ..Default::default() };
        let endpoint = Endpoint { address, qpn: m.qpn, psn: m.psn, mtu: self.mtu };
        let remote = Remote { addr: 0, rkey: Rkey(0) };
        Some(Card { endpoint, target: Target { remote, len: u64::MAX } })
    }
}

impl Bootstrap for ToolBootstrap {
    fn rank(&self) -> u32 {
        match self.session.role() {
            Role::Client => CLIENT,
            Role::Server => 1 - CLIENT,
        }
    }

    fn size(&self) -> u32 {
        2
    }

    fn publish(&mut self, k: u64, bytes: &[u8]) {
        if self.failure.get().is_some() {
            return;
        }
        if k == key(Topic::Card, self.peer(), 0) {
            self.keep(bytes);
        } else if k == key(Topic::Ready, self.peer(), 0) {
            self.ready();
        }
    }

    fn lookup(&mut self, peer: u32, k: u64, out: &mut [u8]) -> Result<Option<usize>, LookupError> {
        if peer >= self.size() {
            return Err(LookupError::NoSuchRank { rank: peer, size: self.size() });
        }
        if self.failure.get().is_some() {
            return Err(LookupError::PeerGone { rank: peer });
        }
        if peer != self.peer() {
            return Ok(None);
        }
        if k == key(Topic::Card, self.rank(), 0) {
            let Some(card) = self.card() else { return Ok(None) };
            let bytes = card.encode();
            let n = bytes.len().min(out.len());
            out[..n].copy_from_slice(&bytes[..n]);
            return Ok(Some(bytes.len()));
        }
        let ready = k == key(Topic::Ready, self.rank(), 0) && self.session.peer_is_ready();
        Ok(ready.then_some(0))
    }

    fn poll(&mut self) -> bool {
        if self.failure.get().is_some() {
            return false;
        }
        match self.session.poll() {
            Ok(news) => news,
            Err(error) => {
                self.note(Err(error));
                true
            }
        }
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        if self.failure.get().is_some() { None } else { self.session.fd() }
    }

    fn lost_peer(&self) -> Option<u32> {
        self.failure.get().map(|_| self.peer())
    }

    /// All was written when it was published.
    #[expect(clippy::disallowed_types, reason = "hardware runs on the wall clock")]
    fn finish(&mut self, _: std::time::Instant) {}
}

#[cfg(test)]
mod tests;
