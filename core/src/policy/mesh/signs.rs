//! Signs: who waits for others itself says so to those who may wait for it.
//!
//! Without them a member that waits cannot tell one that has stopped from one that waits for the
//! one that has stopped, and could only guess by how long each of them may take. A sign is a WRITE
//! of a number into the memory of who may wait: nobody has to take it there, and it is looked for
//! only by those who would give up otherwise.

use alloc::vec;
use alloc::vec::Vec;

use crate::policy::aggregate::AggregateError;
use crate::transport::{Contents, Control, MemKind, Mr, PdId, Remote, Sge, Transport};
use crate::units::{Span, Time};

use super::channel::RIGHTS;

/// Bytes of a sign.
const SIGN_BYTES: u64 = 8;

/// Whom a member waits for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(in crate::policy) enum Waits {
    /// Nobody: it works.
    ForNobody,
    /// This rank.
    For(u32),
    /// Several.
    ForSeveral,
}

impl Waits {
    /// For a rank more.
    pub fn and(self, rank: u32) -> Self {
        match self {
            Self::ForNobody => Self::For(rank),
            Self::For(other) if other == rank => self,
            Self::For(_) | Self::ForSeveral => Self::ForSeveral,
        }
    }

    /// Whether it waits for somebody beside a rank.
    pub fn beside(self, rank: u32) -> bool {
        match self {
            Self::ForNobody => false,
            Self::For(other) => other != rank,
            Self::ForSeveral => true,
        }
    }
}

/// The last sign of a peer.
#[derive(Copy, Clone, Debug)]
struct Seen {
    number: u64,
    at: Time,
}

/// Signs of a member and of its peers.
#[derive(Clone, Debug)]
pub(super) struct Signs {
    /// Those that are sent come first, one for each connection, since the NIC may read one again
    /// until it is confirmed; those of the peers follow, in their order.
    mr: Mr,
    /// Connections.
    sent: u32,
    /// Signs that it has given.
    given: u64,
    seen: Vec<Seen>,
    looked: Time,
}

impl Signs {
    /// Makes room for those of so many peers over so many connections, in memory that the member
    /// reads.
    pub fn open<T: Control>(
        t: &mut T,
        pd: PdId,
        memory: MemKind,
        (peers, sent): (usize, u32),
    ) -> Result<Self, AggregateError> {
        // Who is alone has none to send, and no region is empty.
        let sent = sent.max(1);
        let bytes = SIGN_BYTES * (peers as u64 + u64::from(sent));
        let mr = t.alloc_mr(pd, bytes, memory, RIGHTS, Contents::Data)?;
        let seen = vec![Seen { number: 0, at: Time::ZERO }; peers];
        Ok(Self { mr, sent, given: 0, seen, looked: Time::ZERO })
    }

    /// Where a peer writes.
    pub fn place_of(&self, peer: usize) -> Remote {
        Remote { addr: self.mr.addr + self.offset_of(peer), rkey: self.mr.rkey }
    }

    /// A sign that differs from the last one, for a connection whose last one is confirmed.
    pub fn next<T: Transport>(
        &mut self,
        t: &mut T,
        connection: usize,
    ) -> Result<Sge, AggregateError> {
        self.given += 1;
        let at = SIGN_BYTES * connection as u64;
        let own = self.mr.range(at, SIGN_BYTES).expect("it has all connections");
        t.store_u64(own, self.given)?;
        Ok(self.mr.sge(at, SIGN_BYTES as u32).expect("it has all connections"))
    }

    /// Looks at those of all peers, at most once in `after` since `began`; when it is time again.
    pub fn look<T: Transport>(
        &mut self,
        t: &mut T,
        (now, began): (Time, Time),
        after: Span,
    ) -> Result<Time, AggregateError> {
        let due = self.looked.max(began) + after;
        if now < due {
            return Ok(due);
        }
        self.looked = now;
        for peer in 0..self.seen.len() {
            let at = self.mr.range(self.offset_of(peer), SIGN_BYTES).expect("it has all peers");
            let number = t.load_u64(at)?;
            if number != self.seen[peer].number {
                self.seen[peer] = Seen { number, at: now };
            }
        }
        Ok(now + after)
    }

    /// When the last sign of a peer was seen.
    pub fn said(&self, peer: usize) -> Time {
        self.seen[peer].at
    }

    fn offset_of(&self, peer: usize) -> u64 {
        SIGN_BYTES * (peer as u64 + u64::from(self.sent))
    }

    /// Gives the memory back.
    pub fn close<T: Control>(self, t: &mut T) {
        let _already_gone = t.dereg_mr(self.mr.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_for_one_alone_says_nothing_to_that_one() {
        let waits = Waits::ForNobody;
        assert!(!waits.beside(3));
        let waits = waits.and(3).and(3);
        assert_eq!((waits.beside(3), waits.beside(4)), (false, true));
        let waits = waits.and(4);
        assert!(waits.beside(3) && waits.beside(4));
    }
}
