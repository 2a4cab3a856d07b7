//! Who has what for whom, and by which way it goes.

use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

use crate::policy::mesh::fingerprint;
use crate::transport::Reduce;

/// By which way bytes leave a place.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub enum Route {
    /// From the member that has them to each that is to have them.
    #[default]
    Direct,
    /// All that a member has for a place goes to one member there, the relay, which passes it on
    /// inside the place. The relay is the member of the sender's own number in its place, its
    /// same-rail peer: a member is connected to one member of each other place, not to all.
    TwoHop,
}

/// A part of a parcel that one member is to have.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Slice {
    /// Who.
    pub to: u32,
    /// Its first byte in the parcel.
    pub offset: u64,
    /// Its length in bytes, above 0.
    pub bytes: u64,
}

/// What a member has for one place: it goes to a relay in one piece.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Parcel {
    pub from: u32,
    /// Number of the place.
    pub place: u32,
    /// Where it begins in the outbox of `from`.
    pub outbox: u64,
    pub bytes: u64,
    pub slices: Range<usize>,
}

/// A sum of what several members have for one: token sums that come back from their experts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Sum {
    pub op: Reduce,
    pub to: u32,
    pub bytes: u64,
    pub parts: Range<usize>,
}

/// What one member has for a sum.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Part {
    /// Who.
    pub from: u32,
    /// Where it begins in the outbox of `from`.
    pub outbox: u64,
}

/// Messages and their payload, if none is cut and none is put together with others. Sums of
/// several saturate.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Traffic {
    /// Messages from one place to another.
    pub between: u64,
    /// Their bytes.
    pub between_bytes: u64,
    /// Messages inside a place.
    pub inside: u64,
    /// Their bytes.
    pub inside_bytes: u64,
}

impl core::ops::AddAssign for Traffic {
    fn add_assign(&mut self, more: Self) {
        self.between = self.between.saturating_add(more.between);
        self.between_bytes = self.between_bytes.saturating_add(more.between_bytes);
        self.inside = self.inside.saturating_add(more.inside);
        self.inside_bytes = self.inside_bytes.saturating_add(more.inside_bytes);
    }
}

/// Why there is no such exchange.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum ExchangeError {
    /// At least two members.
    TooFew {
        /// Members.
        members: u32,
    },
    /// The matrix has another number of entries than members squared.
    Counts {
        /// Entries.
        got: usize,
        /// What is needed.
        need: usize,
    },
    /// A sender or receiver that is none of the members.
    NoMember {
        /// Who.
        member: u32,
        /// Members.
        members: u32,
    },
    /// A parcel of no bytes.
    Empty {
        /// Of whom.
        from: u32,
    },
    /// A length beside sums, or of one, that is no multiple of 8: elements would lie at odd places.
    Misaligned {
        /// Its bytes.
        bytes: u64,
    },
}

impl fmt::Display for ExchangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooFew { members } => {
                write!(f, "an exchange among {members} members: it takes two or more")
            }
            Self::Counts { got, need } => {
                write!(f, "{got} counts: give {need}, one for each pair of members")
            }
            Self::NoMember { member, members } => {
                write!(f, "member {member} of {members}: members are numbered from 0")
            }
            Self::Empty { from } => {
                write!(f, "member {from} has a parcel of 0 B: leave it out")
            }
            Self::Misaligned { bytes } => {
                write!(f, "{bytes} B in an exchange with sums: take multiples of 8 B")
            }
        }
    }
}

impl core::error::Error for ExchangeError {}

/// Who has what for whom in one round, and by which way it goes. All members must have the same:
/// the counts are known to all before the bytes move, for example by an exchange of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Exchange {
    route: Route,
    /// Number of each member's place, from 0 without gap.
    place_of: Vec<u32>,
    /// Members of each place, ascending.
    places: Vec<Vec<u32>>,
    parcels: Vec<Parcel>,
    slices: Vec<Slice>,
    sums: Vec<Sum>,
    parts: Vec<Part>,
    /// Bytes of each member's outbox.
    outbox: Vec<u64>,
}

impl Exchange {
    /// An exchange in which nobody has anything yet. Members with the same number in `place_of` (a
    /// node, whose members are near each other) are at one place.
    ///
    /// # Errors
    /// Fewer than two members.
    pub fn new(place_of: &[u32], route: Route) -> Result<Self, ExchangeError> {
        let members = place_of.len() as u32;
        if members < 2 {
            return Err(ExchangeError::TooFew { members });
        }
        let names: BTreeSet<u32> = place_of.iter().copied().collect();
        let place = |name: u32| names.range(..name).count() as u32;
        let place_of: Vec<u32> = place_of.iter().map(|name| place(*name)).collect();
        let mut places = vec![vec![]; names.len()];
        (0..).zip(&place_of).for_each(|(m, p)| places[*p as usize].push(m));
        let outbox = vec![0; place_of.len()];
        let (parcels, slices, sums, parts) = (vec![], vec![], vec![], vec![]);
        Ok(Self { route, place_of, places, parcels, slices, sums, parts, outbox })
    }

    /// AllToAll: `counts[s * members + d]` bytes of member `s` for member `d`. What a member has
    /// for itself does not move and is not in its outbox.
    ///
    /// The outbox of a member has its bytes for the first place, then those for the second one, and
    /// so on; [`Exchange::departures`] says what is where. Inside a place they begin with those for
    /// the member behind the one of the sender's own number, and go on upwards and around: what
    /// the relays of a place pass on then goes to different members at a time, and what a relay
    /// keeps comes last.
    ///
    /// # Errors
    /// Fewer than two members, or another number of counts than members squared.
    pub fn by_counts(
        place_of: &[u32],
        counts: &[u64],
        route: Route,
    ) -> Result<Self, ExchangeError> {
        let mut all = Self::new(place_of, route)?;
        let (n, need) = (all.members() as usize, place_of.len() * place_of.len());
        if counts.len() != need {
            return Err(ExchangeError::Counts { got: counts.len(), need });
        }
        for from in 0..all.members() {
            for place in 0..all.places.len() {
                let order = all.order(from, place);
                let (mut slices, mut bytes) = (vec![], 0);
                for to in order.into_iter().filter(|to| *to != from) {
                    let count = counts[from as usize * n + to as usize];
                    if count > 0 {
                        slices.push(Slice { to, offset: bytes, bytes: count });
                        bytes += count;
                    }
                }
                if bytes > 0 {
                    let at = all.outbox[from as usize];
                    all.push(from, place as u32, (at, bytes), &slices);
                }
            }
        }
        Ok(all)
    }

    /// Adds a token: `bytes` bytes of member `from` that all of `to` are to have, as the experts
    /// that a token was given to. A member that is listed twice gets it twice; `from` itself is
    /// passed over. By [`Route::TwoHop`] a token crosses to each place once, however many of `to`
    /// are there. The outbox has the tokens of a member one after the other, in the order of these
    /// calls, also those that stay.
    ///
    /// # Errors
    /// A member that is none, or a token of no bytes.
    pub fn token(&mut self, from: u32, to: &[u32], bytes: u64) -> Result<(), ExchangeError> {
        let members = self.members();
        let stranger = to.iter().chain([&from]).find(|m| **m >= members);
        if let Some(&member) = stranger {
            return Err(ExchangeError::NoMember { member, members });
        }
        if bytes == 0 {
            return Err(ExchangeError::Empty { from });
        }
        if !self.sums.is_empty() && !bytes.is_multiple_of(8) {
            return Err(ExchangeError::Misaligned { bytes });
        }
        let at = self.outbox[from as usize];
        let others = to.iter().filter(|to| **to != from);
        let mut others: Vec<_> = others.map(|&to| (self.place_of[to as usize], to)).collect();
        others.sort_unstable();
        for near in others.chunk_by(|a, b| a.0 == b.0) {
            let slice = |&(_, to): &(u32, u32)| Slice { to, offset: 0, bytes };
            let slices: Vec<_> = near.iter().map(slice).collect();
            self.push(from, near[0].0, (at, bytes), &slices);
        }
        self.outbox[from as usize] = at + bytes;
        Ok(())
    }

    /// Adds a sum: each of `from` has `bytes` bytes of elements of `op`, and member `to` is to have
    /// their sum, as a token's from its experts. By [`Route::TwoHop`] what several members of a
    /// place have is added there, by the relay of `to`, and crosses once; what is left is added by
    /// `to`. A member that is listed twice counts once: it adds what it has by itself. The outbox
    /// of each of `from` has its part behind what earlier calls have put there. A part that `to`
    /// has itself does not move, and is in the sum; if nobody else has one there is no sum
    /// ([`Schedule::sums`](super::Schedule::sums)).
    ///
    /// In which order the parts of a sum are added depends on the exchange alone, so floats have
    /// the same bits in every run and on every back end; by the two routes they may differ.
    ///
    /// # Errors
    /// A member that is none, a sum of no bytes, or lengths, here or earlier, that are no multiples
    /// of 8.
    pub fn sum(
        &mut self,
        op: Reduce,
        to: u32,
        from: &[u32],
        bytes: u64,
    ) -> Result<(), ExchangeError> {
        let members = self.members();
        let stranger = from.iter().chain([&to]).find(|m| **m >= members);
        if let Some(&member) = stranger {
            return Err(ExchangeError::NoMember { member, members });
        }
        if bytes == 0 {
            return Err(ExchangeError::Empty { from: to });
        }
        let lengths = self.parcels.iter().map(|p| p.bytes);
        let lengths = lengths.chain(self.slices.iter().map(|s| s.bytes)).chain([bytes]);
        let first = self.sums.is_empty();
        if let Some(bytes) = lengths.filter(|b| first || *b == bytes).find(|b| !b.is_multiple_of(8))
        {
            return Err(ExchangeError::Misaligned { bytes });
        }
        let members: BTreeSet<u32> = from.iter().copied().collect();
        let begin = self.parts.len();
        for from in members {
            self.parts.push(Part { from, outbox: self.outbox[from as usize] });
            self.outbox[from as usize] += bytes;
        }
        self.sums.push(Sum { op, to, bytes, parts: begin..self.parts.len() });
        Ok(())
    }

    /// In which order a member has bytes for those of a place.
    fn order(&self, from: u32, place: usize) -> Vec<u32> {
        let own = &self.places[self.place_of[from as usize] as usize];
        let number = own.iter().position(|m| *m == from).expect("it is at its place");
        let mut order = self.places[place].clone();
        let first = (number + 1) % order.len();
        order.rotate_left(first);
        order
    }

    fn push(&mut self, from: u32, place: u32, (outbox, bytes): (u64, u64), slices: &[Slice]) {
        let first = self.slices.len();
        self.slices.extend_from_slice(slices);
        let slices = first..self.slices.len();
        self.parcels.push(Parcel { from, place, outbox, bytes, slices });
        self.outbox[from as usize] = outbox + bytes;
    }

    /// By which way.
    pub const fn route(&self) -> Route {
        self.route
    }

    /// Members, numbered from 0.
    pub fn members(&self) -> u32 {
        self.place_of.len() as u32
    }

    /// Bytes of the outbox of a member.
    pub fn outbox_bytes(&self, member: u32) -> u64 {
        self.outbox[member as usize]
    }

    /// What a member has for others: for whom, the first byte in its outbox, and how many.
    pub fn departures(&self, from: u32) -> impl Iterator<Item = (u32, u64, u64)> + '_ {
        let its = self.parcels.iter().filter(move |p| p.from == from);
        its.flat_map(|p| self.slices(p).iter().map(|s| (s.to, p.outbox + s.offset, s.bytes)))
    }

    pub(super) fn parcels(&self) -> &[Parcel] {
        &self.parcels
    }

    pub(super) fn sums(&self) -> &[Sum] {
        &self.sums
    }

    pub(super) fn parts(&self, sum: &Sum) -> &[Part] {
        &self.parts[sum.parts.clone()]
    }

    /// The number of a member's place.
    pub(super) fn place(&self, member: u32) -> u32 {
        self.place_of[member as usize]
    }

    pub(super) fn slices(&self, parcel: &Parcel) -> &[Slice] {
        &self.slices[parcel.slices.clone()]
    }

    /// The one that passes on at `place` what `from` has for it; `None`: nobody has to, since
    /// `from` is there itself, or the route is direct.
    pub fn relay(&self, from: u32, place: u32) -> Option<u32> {
        let own = self.place_of[from as usize];
        if self.route == Route::Direct || own == place {
            return None;
        }
        let number = self.places[own as usize].iter().position(|m| *m == from);
        let there = &self.places[place as usize];
        Some(there[number.expect("it is at its place") % there.len()])
    }

    /// Places between that of `from` and that of `to`, counted upwards and around.
    pub(super) fn distance(&self, from: u32, to: u32) -> u32 {
        let [from, to] = [from, to].map(|m| self.place_of[m as usize]);
        (to + self.places.len() as u32 - from) % self.places.len() as u32
    }

    /// Messages and bytes of one round.
    pub fn traffic(&self) -> Traffic {
        let mut all = Traffic::default();
        self.parcels.iter().for_each(|p| all += self.traffic_of_parcel(p));
        self.sums.iter().for_each(|s| all += self.traffic_of_sum(s));
        all
    }

    /// Those of what one member has for others, and of the sums that it is to have, on all hops.
    pub fn traffic_of(&self, member: u32) -> Traffic {
        let mut all = Traffic::default();
        let its = self.parcels.iter().filter(|p| p.from == member);
        its.for_each(|p| all += self.traffic_of_parcel(p));
        let its = self.sums.iter().filter(|s| s.to == member);
        its.for_each(|s| all += self.traffic_of_sum(s));
        all
    }

    fn traffic_of_sum(&self, s: &Sum) -> Traffic {
        let mut all = Traffic::default();
        let parts = self.parts(s);
        let mut crossed = BTreeSet::new();
        for part in parts.iter().filter(|p| p.from != s.to) {
            let place = self.place(part.from);
            let relay = self.relay(s.to, place);
            let inside = place == self.place(s.to) || relay.is_some_and(|r| r != part.from);
            let across = match relay {
                Some(_) => crossed.insert(place),
                None => place != self.place(s.to),
            };
            all += Traffic {
                between: across.into(),
                between_bytes: if across { s.bytes } else { 0 },
                inside: inside.into(),
                inside_bytes: if inside { s.bytes } else { 0 },
            };
        }
        all
    }

    fn traffic_of_parcel(&self, p: &Parcel) -> Traffic {
        let slices = self.slices(p);
        let relay = self.relay(p.from, p.place);
        let to_others = slices.iter().filter(|s| Some(s.to) != relay);
        let (messages, bytes) = to_others.fold((0, 0), |(n, b), s| (n + 1, b + s.bytes));
        match relay {
            None if self.place_of[p.from as usize] == p.place => {
                Traffic { inside: messages, inside_bytes: bytes, ..Traffic::default() }
            }
            None => Traffic { between: messages, between_bytes: bytes, ..Traffic::default() },
            Some(_) => Traffic {
                between: 1,
                between_bytes: p.bytes,
                inside: messages,
                inside_bytes: bytes,
            },
        }
    }

    /// A number that the same exchange has everywhere.
    pub(super) fn fingerprint(&self) -> u64 {
        let places = self.place_of.iter().map(|p| u64::from(*p));
        let parcels =
            self.parcels.iter().flat_map(|p| [p.from.into(), p.place.into(), p.outbox, p.bytes]);
        let slices = self.slices.iter().flat_map(|s| [s.to.into(), s.offset, s.bytes]);
        let sums = self.sums.iter().flat_map(|s| [s.op as u64, s.to.into(), s.bytes]);
        let parts = self.parts.iter().flat_map(|p| [p.from.into(), p.outbox]);
        let route = core::iter::once(self.route as u64);
        fingerprint(route.chain(places).chain(parcels).chain(slices).chain(sums).chain(parts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_cannot_be_is_refused_by_name() {
        assert_eq!(Exchange::new(&[0], Route::Direct), Err(ExchangeError::TooFew { members: 1 }));
        let counts = Exchange::by_counts(&[0, 0], &[1, 2, 3], Route::Direct);
        assert_eq!(counts, Err(ExchangeError::Counts { got: 3, need: 4 }));
        let mut e = Exchange::new(&[0, 1], Route::Direct).unwrap();
        let stranger = Err(ExchangeError::NoMember { member: 2, members: 2 });
        assert_eq!(e.token(0, &[1, 2], 8), stranger);
        assert_eq!(e.token(2, &[1], 8), stranger);
        assert_eq!(e.token(0, &[1], 0), Err(ExchangeError::Empty { from: 0 }));
        assert_eq!(e.token(1, &[0], 1), Ok(()));
    }

    #[test]
    fn relays_have_the_number_of_the_sender() {
        let e = Exchange::new(&[5, 5, 5, 9, 9, 2, 2, 2], Route::TwoHop).unwrap();
        // Places by number: 2 is the first, 5 the second, 9 the third.
        assert_eq!([0, 1, 2].map(|m| e.relay(m, 2)), [Some(3), Some(4), Some(3)]);
        assert_eq!([0, 1, 2].map(|m| e.relay(m, 0)), [Some(5), Some(6), Some(7)]);
        assert_eq!((e.relay(0, 1), e.distance(0, 3), e.distance(0, 5)), (None, 1, 2));
        let direct = Exchange::new(&[0, 0, 1, 1], Route::Direct).unwrap();
        assert_eq!(direct.relay(0, 1), None);
    }

    /// What case n-03 counts: 16 nodes of 8, each for each.
    #[test]
    fn a_member_sends_one_message_per_place_instead_of_one_per_member() {
        let place_of: Vec<u32> = (0..128).map(|m| m / 8).collect();
        let counts = vec![1024; 128 * 128];
        let traffic = |route| Exchange::by_counts(&place_of, &counts, route).unwrap().traffic();
        let (direct, two) = (traffic(Route::Direct), traffic(Route::TwoHop));
        assert_eq!((direct.between, direct.inside), (128 * 120, 128 * 7));
        assert_eq!((two.between, two.inside), (128 * 15, 128 * (7 + 15 * 7)));
        assert_eq!(direct.between_bytes, two.between_bytes);
        assert_eq!(direct.between_bytes, 128 * 120 * 1024);
    }

    #[test]
    fn relays_pass_on_to_different_members_at_a_time() {
        let e = Exchange::by_counts(&[0, 0, 0, 1, 1, 1], &[8; 36], Route::TwoHop).unwrap();
        let to = |from| -> Vec<u32> { e.departures(from).map(|(to, ..)| to).collect() };
        // What the relay keeps, of the sender's own number, comes last.
        assert_eq!((to(0), to(1)), (vec![1, 2, 4, 5, 3], vec![2, 0, 5, 3, 4]));
        let places: Vec<(u64, u64)> = e.departures(5).map(|(_, at, bytes)| (at, bytes)).collect();
        assert_eq!(places, [(0, 8), (8, 8), (16, 8), (24, 8), (32, 8)]);
    }

    #[test]
    fn a_token_crosses_once_to_each_place() {
        let mut e = Exchange::new(&[0, 0, 1, 1, 2, 2], Route::TwoHop).unwrap();
        e.token(0, &[3, 2, 3, 1, 0, 5], 100).unwrap();
        let t = e.traffic();
        // Places 1 and 2. Relay 2 keeps one and passes two on to 3; relay 4 passes one on to 5.
        assert_eq!((t.between, t.between_bytes), (2, 200));
        assert_eq!((t.inside, t.inside_bytes), (1 + 2 + 1, 400));
        assert_eq!((e.outbox_bytes(0), e.outbox_bytes(1)), (100, 0));
    }

    proptest! {
        /// By two hops never more messages between places, and of counts the same bytes.
        #[test]
        fn two_hops_never_cross_more_often(
            places in proptest::collection::vec(0_u32..3, 2..9), seed: u64
        ) {
            let n = places.len();
            let mix = |i: usize| (seed ^ i as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 60;
            let counts: Vec<u64> = (0..n * n).map(mix).collect();
            let traffic = |route| Exchange::by_counts(&places, &counts, route).unwrap().traffic();
            let (direct, two) = (traffic(Route::Direct), traffic(Route::TwoHop));
            prop_assert!(two.between <= direct.between);
            prop_assert_eq!(two.between_bytes, direct.between_bytes);
            let moved: u64 = (0..n * n).filter(|i| i / n != i % n).map(|i| counts[i]).sum();
            prop_assert_eq!(direct.between_bytes + direct.inside_bytes, moved);
        }
    }
}
