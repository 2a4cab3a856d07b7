//! Connections between members: a queue pair each, and how both ends find each other.

use crate::policy::aggregate::{AggregateError, ConfigError};
use crate::policy::{BatchConfig, Batcher, Cue, PushError};
use crate::transport::{
    Control, Endpoint, MemKind, QpAttr, QpId, RcParams, Remote, SendWr, Transport,
};
use crate::units::{Span, Time};
use crate::verbs::{AccessFlags, Mtu, Rkey};

/// Rights of the region and of the queue pairs: peers write into it and read from it.
pub(super) const RIGHTS: AccessFlags =
    AccessFlags::LOCAL_WRITE.union(AccessFlags::REMOTE_WRITE).union(AccessFlags::REMOTE_READ);

/// How all connections of a group are made.
#[derive(Copy, Clone, Debug)]
pub(in crate::policy) struct Wiring {
    /// First of the bootstrap keys.
    pub key: u64,
    /// Attributes of the queue pairs, but for those that follow from the peer.
    pub attr: QpAttr,
    /// Path MTU; `None`: the smaller one of both ports.
    pub path_mtu: Option<Mtu>,
    /// Where the region is, and where the work queues are.
    pub memory: MemKind,
    pub queue_memory: MemKind,
    /// How work requests for one peer are rung together.
    pub batch: BatchConfig,
    /// Rank of member 0.
    pub first_rank: u32,
    /// How long the members may take to find each other.
    pub connect_deadline: Span,
}

/// The [`Wiring`] of a policy's configuration, which has the same fields.
macro_rules! wiring_of {
    ($config:ident) => {
        Wiring {
            key: $config.key,
            attr: $config.attr,
            path_mtu: $config.path_mtu,
            memory: $config.memory,
            queue_memory: $config.queue_memory,
            batch: $config.batch,
            first_rank: $config.first_rank,
            connect_deadline: $config.connect_deadline,
        }
    };
}
pub(in crate::policy) use wiring_of;

impl Wiring {
    /// The number of a rank among `members`.
    pub fn member(&self, rank: u32, members: u32) -> Result<u32, ConfigError> {
        let first = self.first_rank;
        let member = rank.checked_sub(first).filter(|m| *m < members);
        member.ok_or(ConfigError::NoMember { rank, first, members })
    }
}

/// What a connection is for, seen from one end.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(in crate::policy) enum Class {
    /// Contributions go to the peer.
    ToParent = 0,
    /// Contributions come from the peer.
    FromChild = 1,
    /// Sums go to the peer.
    ToSink = 2,
    /// Sums come from the peer.
    FromSource = 3,
    /// Both ends send.
    Both = 5,
}

impl Class {
    /// The same, seen from the other end.
    pub const fn opposite(self) -> Self {
        match self {
            Self::ToParent => Self::FromChild,
            Self::FromChild => Self::ToParent,
            Self::ToSink => Self::FromSource,
            Self::FromSource => Self::ToSink,
            Self::Both => Self::Both,
        }
    }

    /// Whether what comes takes receives of the shared queue.
    pub const fn shares_receives(self) -> bool {
        matches!(self, Self::FromChild | Self::Both)
    }

    /// Depths of the send and the receive queue with so many chunks under way. Each end may have
    /// a last word beside them, and a probe.
    pub const fn depths(self, chunks: u32) -> (u32, u32) {
        match self {
            Self::FromSource => (2, chunks.saturating_add(1)),
            Self::FromChild | Self::ToParent | Self::ToSink | Self::Both => {
                (chunks.saturating_add(2), 1)
            }
        }
    }
}

/// One end of a connection.
#[derive(Clone, Debug)]
pub(in crate::policy) struct Channel {
    /// Rank of the peer.
    pub peer: u32,
    pub class: Class,
    pub qp: QpId,
    pub batcher: Batcher,
    /// Where the peer's memory for this connection begins.
    pub remote: Remote,
    /// Where the peer looks for signs of this member.
    pub sign: Remote,
    /// Chunks of a lane that may be under way, times the lanes that use it.
    pub depth: u32,
    /// Work requests that have not completed.
    pub outstanding: u32,
    /// When the peer was heard last, by a message or a confirmation, or the first of those was
    /// pushed.
    pub since: Time,
    /// Receives for sums that have to be posted again.
    pub taken: u32,
}

impl Channel {
    /// Whether one more chunk may be sent; a place is kept for the last word.
    pub fn has_room<T: Transport>(&self, t: &T) -> bool {
        t.sq_free(self.qp) > 1
    }

    /// The peer's memory from so many bytes on.
    pub const fn remote_at(&self, offset: u64) -> Remote {
        Remote { addr: self.remote.addr.wrapping_add(offset), rkey: self.remote.rkey }
    }

    /// Stages a work request behind those that are held.
    pub fn push<T: Transport>(
        &mut self,
        t: &mut T,
        now: Time,
        wr: &SendWr<'_>,
    ) -> Result<(), AggregateError> {
        self.batcher.push(t, now, wr, Cue::More)?;
        if self.outstanding == 0 {
            self.since = now;
        }
        self.outstanding += 1;
        Ok(())
    }

    /// Rings for what is held.
    pub fn flush<T: Transport>(&mut self, t: &mut T) -> Result<(), AggregateError> {
        if self.batcher.held() > 0 {
            let ring = |error| PushError::Ring { error, rung: 0, staged: false };
            self.batcher.flush(t).map_err(ring)?;
        }
        Ok(())
    }
}

/// What one end tells the other: how to connect, where to write or read, and what it believes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Card {
    pub endpoint: Endpoint,
    pub memory: Remote,
    /// Where it looks for signs.
    pub sign: Remote,
    pub fingerprint: u64,
}

impl Card {
    pub const ENCODED_BYTES: usize = Endpoint::ENCODED_BYTES + 32;

    pub fn encode(&self) -> [u8; Self::ENCODED_BYTES] {
        let mut out = [0; Self::ENCODED_BYTES];
        let (endpoint, rest) = out.split_at_mut(Endpoint::ENCODED_BYTES);
        endpoint.copy_from_slice(&self.endpoint.encode());
        rest[..8].copy_from_slice(&self.memory.addr.to_be_bytes());
        rest[8..12].copy_from_slice(&self.memory.rkey.0.to_be_bytes());
        rest[12..20].copy_from_slice(&self.fingerprint.to_be_bytes());
        rest[20..28].copy_from_slice(&self.sign.addr.to_be_bytes());
        rest[28..].copy_from_slice(&self.sign.rkey.0.to_be_bytes());
        out
    }

    pub fn decode(bytes: &[u8; Self::ENCODED_BYTES]) -> Option<Self> {
        let (endpoint, rest) = bytes.split_at(Endpoint::ENCODED_BYTES);
        let word = |at: usize| u64::from_be_bytes(rest[at..at + 8].try_into().expect("8 bytes"));
        let key = |at: usize| u32::from_be_bytes(rest[at..at + 4].try_into().expect("4 bytes"));
        let memory = Remote { addr: word(0), rkey: Rkey(key(8)) };
        let sign = Remote { addr: word(20), rkey: Rkey(key(28)) };
        Some(Self { endpoint: Endpoint::decode(endpoint)?, memory, sign, fingerprint: word(12) })
    }
}

/// The key under which a rank publishes its end of a connection for `peer`.
const fn card_key(base: u64, class: Class, peer: u32) -> u64 {
    base + ((class as u64) << 32) + peer as u64
}

/// The key under which a rank tells `peer` that it takes messages.
const fn ready_key(base: u64, peer: u32) -> u64 {
    base + (4 << 32) + peer as u64
}

/// What members that go on tell each other of the round that is next.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(in crate::policy) enum Word {
    /// The lowest that is known below.
    Asked = 6,
    /// The lowest of all.
    Agreed = 7,
}

/// The key under which a rank tells `peer` a number.
pub(super) const fn word_key(base: u64, word: Word, peer: u32) -> u64 {
    base + ((word as u64) << 32) + peer as u64
}

/// Publishes this end.
pub(super) fn publish<T: Control>(
    t: &mut T,
    wiring: &Wiring,
    channel: &Channel,
    (memory, sign): (Remote, Remote),
    fingerprint: u64,
) -> Result<(), AggregateError> {
    let card = Card { endpoint: t.endpoint(channel.qp)?, memory, sign, fingerprint };
    let key = card_key(wiring.key, channel.class, channel.peer);
    t.publish_to(channel.peer, key, &card.encode());
    Ok(())
}

/// Connects this end if the other has published; whether it has.
pub(super) fn link<T: Control>(
    t: &mut T,
    wiring: &Wiring,
    channel: &mut Channel,
    fingerprint: u64,
) -> Result<bool, AggregateError> {
    let (mut bytes, me, rank) = ([0; Card::ENCODED_BYTES], t.rank(), channel.peer);
    let key = card_key(wiring.key, channel.class.opposite(), me);
    let Some(len) = t.lookup(rank, key, &mut bytes)? else { return Ok(false) };
    let card = Card::decode(&bytes).filter(|_| len == bytes.len());
    let card = card.ok_or(AggregateError::Mismatch { rank })?;
    if card.fingerprint != fingerprint {
        return Err(AggregateError::Mismatch { rank });
    }
    let mine = t.endpoint(channel.qp)?;
    let path_mtu = wiring.path_mtu.unwrap_or(mine.mtu.min(card.endpoint.mtu));
    let attr = QpAttr { path_mtu, access: RIGHTS, ..wiring.attr };
    for (attr, mask) in (RcParams { attr }).steps(&mine, &card.endpoint) {
        t.modify_qp(channel.qp, &attr, mask)?;
    }
    (channel.remote, channel.sign) = (card.memory, card.sign);
    Ok(true)
}

/// Tells `peer` that it may send.
pub(super) fn announce<T: Control>(t: &mut T, wiring: &Wiring, peer: u32) {
    t.publish_to(peer, ready_key(wiring.key, peer), &[]);
}

/// Whether `peer` takes messages.
pub(super) fn is_ready<T: Control>(
    t: &mut T,
    wiring: &Wiring,
    peer: u32,
) -> Result<bool, AggregateError> {
    let me = t.rank();
    Ok(t.lookup(peer, ready_key(wiring.key, me), &mut [])?.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::Address;
    use crate::verbs::{Psn, Qpn};

    #[test]
    fn cards_survive_the_bootstrap() {
        let address = Address { lid: 7, gid: [9; 16], ..Address::default() };
        let (qpn, psn) = (Qpn::new(77), Psn::new(0xFF_FFFF));
        let endpoint = Endpoint { address, qpn, psn, mtu: Mtu::B2048 };
        let memory = Remote { addr: u64::MAX - 8, rkey: Rkey(0xDEAD_BEEF) };
        let sign = Remote { addr: 0x1234_5678_0000_0001, rkey: Rkey(7) };
        let card = Card { endpoint, memory, sign, fingerprint: 0x0123_4567_89AB_CDEF };
        assert_eq!(Card::decode(&card.encode()), Some(card));
        let mut wrong = card.encode();
        wrong[24] = 0;
        assert_eq!(Card::decode(&wrong), None, "no such MTU");
    }

    #[test]
    fn both_ends_name_the_same_keys() {
        use Class::{Both, FromChild, FromSource, ToParent, ToSink};
        let mut keys = std::vec![ready_key(5 << 40, 1), ready_key(5 << 40, u32::MAX)];
        for class in [ToParent, FromChild, ToSink, FromSource, Both] {
            assert_eq!(class.opposite().opposite(), class);
            assert_eq!(class == class.opposite(), class == Both);
            keys.extend([0, u32::MAX].map(|peer| card_key(5 << 40, class, peer)));
        }
        for word in [Word::Asked, Word::Agreed] {
            keys.extend([0, u32::MAX].map(|peer| word_key(5 << 40, word, peer)));
        }
        let n = keys.len();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), n);
    }
}
