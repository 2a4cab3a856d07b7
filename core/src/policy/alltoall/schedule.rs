//! What each member writes to each other one, piece by piece, and where it lands.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use super::plan::{Exchange, Parcel};
use super::sums::{Addition, Total};

/// Where the bytes of a piece are before they go.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Origin {
    /// In the outbox, from this byte on.
    Outbox(u64),
    /// In the inbox of the one that passes them on.
    Inbox(Written),
    /// There too, where a sum is made of them: once this addition of the member is done.
    Sum { from: u32, offset: u64, addition: u32 },
}

/// Bytes in an inbox: from this byte of what `from` wrote there on, once `from` has written so many
/// pieces.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Written {
    pub from: u32,
    pub offset: u64,
    pub after: u32,
}

/// Some bytes that are written at once.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Piece {
    pub origin: Origin,
    pub len: u32,
}

/// All that one member writes to another one in a round, in order and without gaps.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Stream {
    pub pieces: Vec<Piece>,
    pub bytes: u64,
    /// Where it begins in the inbox of the one that gets it.
    pub base: u64,
}

impl Stream {
    pub fn add(&mut self, bytes: u64, chunk: u32, origin: impl Fn(u64) -> Origin) {
        let mut done = 0;
        while done < bytes {
            let len = (bytes - done).min(chunk.into()) as u32;
            self.pieces.push(Piece { origin: origin(done), len });
            done += u64::from(len);
        }
        self.bytes += bytes;
    }
}

/// Bytes that a member gets.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Arrival {
    /// Whose they were.
    pub from: u32,
    /// Where they were in the outbox of `from`.
    pub outbox: u64,
    /// Where they are in the inbox of the member that gets them.
    pub inbox: u64,
    /// Their length.
    pub bytes: u64,
}

/// A part of a stream that stays with the one that gets it.
struct Kept {
    member: u32,
    /// Who wrote it there.
    by: u32,
    at: u64,
    from: u32,
    outbox: u64,
    bytes: u64,
}

/// An [`Exchange`] laid out: what each member writes to each other one, and where it lands. Made
/// once and shared by all members of a process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Schedule {
    pub(super) streams: BTreeMap<(u32, u32), Stream>,
    outbox: Vec<u64>,
    inbox: Vec<u64>,
    arrivals: Vec<Vec<Arrival>>,
    /// What each member adds.
    pub(super) additions: Vec<Vec<Addition>>,
    sums: Vec<Vec<Total>>,
    /// Hops of the longest way.
    hops: u32,
    pub(super) chunk: u32,
    pub(super) fingerprint: u64,
}

impl Schedule {
    /// Lays an exchange out in pieces of at most `chunk` bytes.
    ///
    /// Larger: fewer messages. Smaller: a relay passes on earlier what it gets. It takes a few
    /// microseconds of a link to hide what a message costs: 64 KiB are 1.3 us at 400 Gb/s.
    ///
    /// # Panics
    /// When `chunk` is 0.
    pub fn new(exchange: &Exchange, chunk: u32) -> Self {
        assert!(chunk > 0, "a piece has bytes");
        // Elements are not cut.
        let sums = !exchange.sums().is_empty();
        let chunk = if sums { (chunk / 8 * 8).max(8) } else { chunk };
        let members = exchange.members() as usize;
        let (additions, totals) = (vec![vec![]; members], vec![vec![]; members]);
        let streams = BTreeMap::new();
        let mut of = Layout { exchange, chunk, streams, kept: vec![], additions, totals };
        let mut relayed = vec![];
        for parcel in exchange.parcels() {
            match exchange.relay(parcel.from, parcel.place) {
                None => of.direct(parcel),
                Some(relay) => relayed.push((relay, of.first_hop(parcel, relay), parcel)),
            }
        }
        // A relay passes on first what is due first: all begin with the next place, so the
        // parcels of the place before its own are the first to come.
        relayed.sort_by_key(|(relay, _, p)| (*relay, exchange.distance(p.from, *relay)));
        let passed =
            |(relay, _, p): &(u32, _, &Parcel)| exchange.slices(p).iter().any(|s| s.to != *relay);
        let passed = relayed.iter().any(passed);
        for (relay, start, parcel) in relayed {
            of.second_hop(parcel, relay, start);
        }
        let brought = of.lay_sums();
        let hops = if passed || brought { 2 } else { 1 };
        let Layout { mut streams, kept, additions, mut totals, .. } = of;
        // Each stream has one against it: its first message says that a round has begun there.
        let lone: Vec<_> = streams.keys().map(|(a, b)| (*b, *a)).collect();
        lone.into_iter().for_each(|key| {
            streams.entry(key).or_insert_with(|| Stream {
                pieces: vec![Piece { origin: Origin::Outbox(0), len: 0 }],
                ..Stream::default()
            });
        });
        let mut inbox = vec![0; exchange.members() as usize];
        for ((_, to), stream) in &mut streams {
            stream.base = inbox[*to as usize];
            inbox[*to as usize] += stream.bytes;
        }
        let mut arrivals = vec![vec![]; inbox.len()];
        for k in kept {
            let inbox = streams[&(k.by, k.member)].base + k.at;
            let Kept { member, from, outbox, bytes, .. } = k;
            arrivals[member as usize].push(Arrival { from, outbox, inbox, bytes });
        }
        for (member, total) in
            (0..).zip(&mut totals).flat_map(|(m, t)| t.iter_mut().map(move |t| (m, t)))
        {
            total.inbox += streams[&(total.by, member)].base;
        }
        let outbox = (0..exchange.members()).map(|m| exchange.outbox_bytes(m)).collect();
        let fingerprint = exchange.fingerprint() ^ u64::from(chunk) << 32;
        let sums = totals;
        Self { streams, outbox, inbox, arrivals, additions, sums, hops, chunk, fingerprint }
    }

    /// Members, numbered from 0.
    pub fn members(&self) -> u32 {
        self.inbox.len() as u32
    }

    /// Bytes of the outbox of a member.
    pub fn outbox_bytes(&self, member: u32) -> u64 {
        self.outbox[member as usize]
    }

    /// Bytes that are written into the inbox of a member in one round, also those that it only
    /// passes on.
    pub fn inbox_bytes(&self, member: u32) -> u64 {
        self.inbox[member as usize]
    }

    /// What a member gets, and where it is in its inbox.
    pub fn arrivals(&self, member: u32) -> &[Arrival] {
        &self.arrivals[member as usize]
    }

    /// Sums that a member is to have, and where they are in its inbox, in the order of the calls of
    /// [`Exchange::sum`].
    pub fn sums(&self, member: u32) -> &[Total] {
        &self.sums[member as usize]
    }

    /// Hops of the longest way: 1 or 2.
    pub const fn hops(&self) -> u32 {
        self.hops
    }

    /// What a member writes, by the one that gets it, ascending.
    pub(super) fn streams_of(&self, member: u32) -> impl Iterator<Item = (u32, &Stream)> {
        let its = self.streams.range((member, 0)..=(member, u32::MAX));
        its.map(|((_, to), stream)| (*to, stream))
    }

    /// Bytes that a member sends in one round. Divided by the rate of its port, the largest one is
    /// a bound of the time that no schedule beats.
    pub fn sent_bytes(&self, member: u32) -> u64 {
        self.streams_of(member).map(|(_, stream)| stream.bytes).sum()
    }
}

/// A schedule in the making.
pub(super) struct Layout<'a> {
    pub exchange: &'a Exchange,
    pub chunk: u32,
    pub streams: BTreeMap<(u32, u32), Stream>,
    kept: Vec<Kept>,
    pub additions: Vec<Vec<Addition>>,
    pub totals: Vec<Vec<Total>>,
}

impl Layout<'_> {
    /// Each slice to who is to have it.
    fn direct(&mut self, p: &Parcel) {
        for s in self.exchange.slices(p) {
            let stream = self.streams.entry((p.from, s.to)).or_default();
            let (at, outbox) = (stream.bytes, p.outbox + s.offset);
            stream.add(s.bytes, self.chunk, |done| Origin::Outbox(outbox + done));
            let (member, by, from) = (s.to, p.from, p.from);
            self.kept.push(Kept { member, by, at, from, outbox, bytes: s.bytes });
        }
    }

    /// The parcel to its relay, which keeps its own slices; returns where it begins in the
    /// stream, and the number of its first piece.
    fn first_hop(&mut self, p: &Parcel, relay: u32) -> (u64, u32) {
        let stream = self.streams.entry((p.from, relay)).or_default();
        let start = (stream.bytes, stream.pieces.len() as u32);
        stream.add(p.bytes, self.chunk, |done| Origin::Outbox(p.outbox + done));
        // A member that is to have the same bytes twice has them at the same place twice.
        for s in self.exchange.slices(p).iter().filter(|s| s.to == relay) {
            let (at, outbox) = (start.0 + s.offset, p.outbox + s.offset);
            let (member, by, from) = (relay, p.from, p.from);
            self.kept.push(Kept { member, by, at, from, outbox, bytes: s.bytes });
        }
        start
    }

    /// The other slices from the relay on.
    fn second_hop(&mut self, p: &Parcel, relay: u32, (start, first): (u64, u32)) {
        let chunk = self.chunk;
        for s in self.exchange.slices(p).iter().filter(|s| s.to != relay) {
            let stream = self.streams.entry((relay, s.to)).or_default();
            let at = stream.bytes;
            stream.add(s.bytes, chunk, |done| {
                let len = (s.bytes - done).min(chunk.into());
                let pieces = (s.offset + done + len).div_ceil(chunk.into()) as u32;
                let offset = start + s.offset + done;
                Origin::Inbox(Written { from: p.from, offset, after: first + pieces })
            });
            let (outbox, from) = (p.outbox + s.offset, p.from);
            self.kept.push(Kept { member: s.to, by: relay, at, from, outbox, bytes: s.bytes });
        }
    }
}
