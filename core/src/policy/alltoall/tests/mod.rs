//! Members on the ideal back end: what comes, and what goes wrong.

mod faults;
mod rounds;
mod sums;

use std::boxed::Box;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::vec;
use std::vec::Vec;

use super::*;
use crate::ideal::Ideal;
use crate::policy::mesh::player::{
    self, Fault, Party, all_done, all_end_in_time, any_fault, ends, make_lazy, run_all, stats,
};
use crate::transport::Reduce;
use crate::units::Span;

/// A rule that a member breaks.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Slip {
    /// It believes that it has sent a message that it has not.
    Skips,
    /// It begins a round before it may.
    Rushes,
}

/// What a member exchanges.
struct Exchanging {
    config: AllToAllConfig,
    schedule: Arc<Schedule>,
}

type Member = player::Member<Exchanging>;

/// Byte `at` of the outbox of a member in a round.
fn byte(member: u32, round: u64, at: u64) -> u8 {
    let x = (at ^ u64::from(member) << 40 ^ round << 56).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (x ^ x >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9).to_be_bytes()[0]
}

impl Party for Exchanging {
    type Policy = AllToAll;
    type Stats = AllToAllStats;
    type Slip = Slip;

    fn open<T: Control>(&self, t: &mut T) -> Result<AllToAll, AggregateError> {
        AllToAll::open(t, self.config, &self.schedule)
    }

    fn connect<T: Control>(p: &mut AllToAll, t: &mut T) -> Result<Progress, AggregateError> {
        p.connect(t)
    }

    fn begin(p: &mut AllToAll, now: Time) -> Result<(), AggregateError> {
        p.begin(now)
    }

    fn step<T: Control>(p: &mut AllToAll, t: &mut T) -> Result<Progress, AggregateError> {
        p.step(t)
    }

    fn stats(p: &AllToAll) -> AllToAllStats {
        p.stats()
    }

    fn mesh(p: &AllToAll) -> &Mesh {
        &p.mesh
    }

    fn memory(p: &AllToAll) -> (Range, Range) {
        (p.outbox(), p.inbox())
    }

    fn slip(p: &mut AllToAll, slip: Slip) {
        match slip {
            Slip::Skips => {
                p.peers.iter_mut().for_each(|p| p.sent = (p.sent + 1).min(p.out.len()));
            }
            Slip::Rushes => {
                p.rounds += 2;
                p.peers.iter_mut().for_each(|p| p.sent = 0);
            }
        }
    }

    fn bytes(&self, rank: u32, round: u64) -> Vec<u8> {
        (0..self.schedule.outbox_bytes(rank)).map(|at| byte(rank, round, at)).collect()
    }

    fn deadlines(&self) -> (Span, Span) {
        let hops = u64::from(self.schedule.hops());
        (self.config.hop_deadline * (hops + 1), self.config.connect_deadline)
    }
}

fn members(exchange: &Exchange, chunk: u32, config: AllToAllConfig, rounds: u64) -> Vec<Member> {
    let schedule = Arc::new(Schedule::new(exchange, chunk));
    let party = |_| Exchanging { config, schedule: schedule.clone() };
    (0..exchange.members()).map(|m| Member::new(party(m), rounds)).collect()
}

/// What each member is to have, by the book: whose bytes, and how often.
fn book(exchange: &Exchange) -> Vec<BTreeMap<(u32, u64, u64), u32>> {
    let mut all = vec![BTreeMap::new(); exchange.members() as usize];
    for p in exchange.parcels() {
        for s in exchange.slices(p) {
            let what = (p.from, p.outbox + s.offset, s.bytes);
            *all[s.to as usize].entry(what).or_default() += 1;
        }
    }
    all
}

/// All that complete rounds have brought is what the book says, bit by bit and once.
fn check(exchange: &Exchange, members: &[Member]) {
    let book = book(exchange);
    for (rank, m) in members.iter().enumerate() {
        let arrivals = m.party.schedule.arrivals(rank as u32);
        let mut listed = BTreeMap::new();
        for a in arrivals {
            *listed.entry((a.from, a.outbox, a.bytes)).or_default() += 1;
        }
        assert_eq!(listed, book[rank], "rank {rank}");
        for (round, got) in m.got.iter().enumerate() {
            check_sums(m.party.schedule.sums(rank as u32), round as u64, got);
            for a in arrivals {
                let bytes = &got[a.inbox as usize..(a.inbox + a.bytes) as usize];
                let right =
                    |(n, b): (usize, &u8)| *b == byte(a.from, round as u64, a.outbox + n as u64);
                assert!(bytes.iter().enumerate().all(right), "rank {rank}, round {round}: {a:?}");
            }
        }
    }
}

/// Each sum is that of its parts, word by word, each of them once.
fn check_sums(totals: &[Total], round: u64, got: &[u8]) {
    for total in totals {
        let mut right = vec![0; total.bytes as usize];
        for part in &total.parts {
            let its = (0..total.bytes).map(|n| byte(part.from, round, part.outbox + n));
            total.op.apply(&mut right, &its.collect::<Vec<u8>>());
        }
        let at = total.inbox as usize;
        assert_eq!(got[at..at + right.len()], right, "round {round}: {total:?}");
    }
}

/// Boxed, so that a strategy can hold it.
fn any_exchange() -> proptest::strategy::BoxedStrategy<Exchange> {
    use proptest::prelude::*;
    let route = || prop_oneof![1 => Just(Route::Direct), 2 => Just(Route::TwoHop)];
    let places = || proptest::collection::vec(0_u32..3, 2..8);
    let counts = (places(), route(), proptest::collection::vec(0_u64..40, 49));
    let counts = counts.prop_map(|(places, route, counts)| {
        let n = places.len() * places.len();
        Exchange::by_counts(&places, &counts[..n], route).unwrap()
    });
    let token = (0_u32..8, proptest::collection::vec(0_u32..8, 0..5), 1_u64..30);
    let tokens = (places(), route(), proptest::collection::vec(token, 0..12));
    let tokens = tokens.prop_map(|(places, route, tokens)| {
        let n = places.len() as u32;
        let mut e = Exchange::new(&places, route).unwrap();
        for (from, to, bytes) in tokens {
            let to: Vec<u32> = to.iter().map(|m| m % n).collect();
            e.token(from % n, &to, bytes).unwrap();
        }
        e
    });
    let sum = (0_u32..8, proptest::collection::vec(0_u32..8, 0..6), 1_u64..6, any::<bool>());
    let sums = (places(), route(), proptest::collection::vec(sum, 1..12));
    let sums = sums.prop_map(|(places, route, sums)| {
        let n = places.len() as u32;
        let mut e = Exchange::new(&places, route).unwrap();
        for (to, from, words, token) in sums {
            let (to, from): (u32, Vec<u32>) = (to % n, from.iter().map(|m| m % n).collect());
            if token {
                e.token(to, &from, words * 8).unwrap();
            }
            // Of integers, so that the order of the adding makes no difference.
            e.sum(Reduce::SumI64, to, &from, words * 8).unwrap();
        }
        e
    });
    Box::new(prop_oneof![counts, tokens, sums]).boxed()
}

fn any_config() -> proptest::strategy::BoxedStrategy<(AllToAllConfig, u32)> {
    use proptest::prelude::*;
    (1_u32..5, 1_u32..4, 1_u32..50)
        .prop_map(|(gather, window, chunk)| {
            (AllToAllConfig { gather, window, ..AllToAllConfig::default() }, chunk)
        })
        .boxed()
}
