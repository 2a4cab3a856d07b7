//! Memory that is named wrongly on purpose, and what a script asks of its peer's memory.

use doorbell_core::transport::{Contents, Control, MemKind, Mr, PdId, Remote};
use doorbell_core::units::{Span, Time};
use doorbell_core::verbs::{AccessFlags, Lkey, Rkey};

use super::common::Failure;
use super::connect::{ALL_RIGHTS, Target, Topic, key};

/// The key by which a message names the peer's memory.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum PeerKey {
    /// That of the region that is offered.
    #[default]
    Offered,
    /// One that no region has.
    Wrong,
    /// That of a region which the peer has deregistered.
    Stale,
    /// That of a region in another protection domain of the peer.
    Foreign,
    /// This one.
    Number(u32),
}

/// A number that no back end gives as a key while it gives `key`: another region and variant.
const fn no_key(key: u32) -> u32 {
    !key
}

impl PeerKey {
    /// What the peer publishes about the region of the key, if it is not the one that it offers.
    pub(super) const fn topic(self) -> Option<Topic> {
        match self {
            Self::Stale => Some(Topic::StaleRegion),
            Self::Foreign => Some(Topic::ForeignRegion),
            Self::Offered | Self::Wrong | Self::Number(_) => None,
        }
    }

    /// The target with the key changed, of those that are not published.
    pub(super) const fn apply(self, offered: Target) -> Target {
        let Remote { addr, rkey } = offered.remote;
        let rkey = match self {
            Self::Wrong => Rkey(no_key(rkey.0)),
            Self::Number(n) => Rkey(n),
            Self::Offered | Self::Stale | Self::Foreign => rkey,
        };
        Target { remote: Remote { addr, rkey }, len: offered.len }
    }
}

/// Where a message begins in a region.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum Origin {
    /// So far from its start.
    #[default]
    Start,
    /// So far from where the message would end with the region.
    End,
}

impl Origin {
    /// Offset in a region of `len` bytes of a message of `bytes`, at `at` from the origin.
    pub const fn offset(self, at: u64, len: u64, bytes: u64) -> u64 {
        match self {
            Self::Start => at,
            Self::End => len.saturating_sub(bytes) + at,
        }
    }
}

/// How a message names its memory at both ends. The default is right.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Aim {
    /// Key of the peer's memory.
    pub rkey: PeerKey,
    /// Whether the own buffer is named by a key that no region has.
    pub lkey_wrong: bool,
    /// What places in the own region are counted from.
    pub local: Origin,
    /// What places in the peer's region are counted from.
    pub remote: Origin,
}

impl Aim {
    /// The own region as a message of `bytes` at `at` names it, and the offset there. A place
    /// beyond the end is named all the same: the NIC is to find out.
    pub(super) fn own(&self, mr: Mr, at: u64, bytes: u64) -> (Mr, u64) {
        let offset = self.local.offset(at, mr.len, bytes);
        let len = match self.local {
            Origin::Start => mr.len,
            Origin::End => mr.len.max(offset + bytes),
        };
        let lkey = if self.lkey_wrong { Lkey(no_key(mr.lkey.0)) } else { mr.lkey };
        (Mr { len, lkey, ..mr }, offset)
    }
}

/// The buffer of receives that a script asks for.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
#[repr(u32)]
pub enum Buffer {
    /// In the region that is offered.
    #[default]
    Offered = 0,
    /// In a region without local write.
    ReadOnly = 1,
    /// In a region of another protection domain.
    Foreign = 2,
}

impl Buffer {
    /// From its number.
    pub(super) const fn from_number(n: u32) -> Self {
        match n {
            1 => Self::ReadOnly,
            2 => Self::Foreign,
            _ => Self::Offered,
        }
    }
}

/// Regions of a responder beside the one that it offers.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Spare {
    foreign: Option<Mr>,
    read_only: Option<Mr>,
}

impl Spare {
    /// Makes a region of another protection domain and one that is gone at once, and tells `peer`
    /// of both.
    pub(super) fn publish<T: Control>(
        &mut self,
        t: &mut T,
        peer: u32,
        (pd, like): (PdId, Mr),
    ) -> Result<(), Failure> {
        let stale = t.alloc_mr(pd, like.len, like.kind, ALL_RIGHTS, Contents::Data)?;
        let gone = t.dereg_mr(stale.id);
        debug_assert!(gone.is_ok(), "it was made just now");
        let foreign = self.foreign(t, like.len, like.kind)?;
        for (topic, mr) in [(Topic::StaleRegion, stale), (Topic::ForeignRegion, foreign)] {
            t.publish(key(topic, peer, 0), &Target::whole(&mr).encode());
        }
        Ok(())
    }

    /// A region of another protection domain.
    fn foreign<T: Control>(&mut self, t: &mut T, len: u64, kind: MemKind) -> Result<Mr, Failure> {
        if let Some(mr) = self.foreign {
            return Ok(mr);
        }
        let pd = t.create_pd()?;
        let mr = t.alloc_mr(pd, len, kind, ALL_RIGHTS, Contents::Data)?;
        Ok(*self.foreign.insert(mr))
    }

    /// The region for receives of `buffer`, where it is not the one that is offered.
    pub(super) fn of_receives<T: Control>(
        &mut self,
        t: &mut T,
        buffer: Buffer,
        (pd, offered): (PdId, Mr),
    ) -> Result<Mr, Failure> {
        let (len, kind) = (offered.len, offered.kind);
        match (buffer, self.read_only) {
            (Buffer::Offered, _) => Ok(offered),
            (Buffer::Foreign, _) => self.foreign(t, len, kind),
            (Buffer::ReadOnly, Some(mr)) => Ok(mr),
            (Buffer::ReadOnly, None) => {
                let mr = t.alloc_mr(pd, len, kind, AccessFlags::empty(), Contents::Data)?;
                Ok(*self.read_only.insert(mr))
            }
        }
    }
}

/// A script asks its peer to deregister the region that it offers.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct DeregOrder {
    /// When, by the clock that both share; what has passed means at once.
    pub at: Time,
}

impl DeregOrder {
    pub(super) fn publish<T: Control>(self, t: &mut T, peer: u32, n: u32) {
        let ps = self.at.since(Time::ZERO).as_ps();
        t.publish(key(Topic::Deregister, peer, n), &ps.to_be_bytes());
    }

    /// Order number `n` of `peer`, if it has come.
    pub(super) fn lookup<T: Control>(t: &mut T, peer: u32, n: u32) -> Option<Self> {
        let (mut bytes, me) = ([0; 8], t.rank());
        t.lookup(peer, key(Topic::Deregister, me, n), &mut bytes).ok()??;
        Some(Self { at: Time::ZERO + Span::from_ps(u64::from_be_bytes(bytes)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use doorbell_core::transport::MrId;

    #[test]
    fn a_message_can_end_with_the_region_or_beyond() {
        for (origin, at, offset) in
            [(Origin::Start, 8, 8), (Origin::End, 0, 4032), (Origin::End, 1, 4033)]
        {
            assert_eq!(origin.offset(at, 4096, 64), offset);
        }
        let mr = Mr {
            id: MrId::new(0, 0, 0),
            addr: 4096,
            len: 4096,
            lkey: Lkey(7),
            rkey: Rkey(8),
            kind: MemKind::Host { numa: 0 },
        };
        let (named, offset) = Aim { local: Origin::End, ..Aim::default() }.own(mr, 1, 64);
        assert!(named.sge(offset, 64).is_some() && mr.sge(offset, 64).is_none());
        let (named, offset) = Aim { lkey_wrong: true, ..Aim::default() }.own(mr, 0, 64);
        assert_eq!((named.len, offset), (4096, 0));
        assert_ne!(named.lkey, mr.lkey);
    }

    #[test]
    fn buffers_survive_their_numbers() {
        for buffer in [Buffer::Offered, Buffer::ReadOnly, Buffer::Foreign] {
            assert_eq!(Buffer::from_number(buffer as u32), buffer);
        }
    }
}
