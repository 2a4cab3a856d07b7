//! Members on the ideal back end, with everything that can go wrong.

mod faults;
mod goes_on;
mod sums;

use std::boxed::Box;
use std::vec;
use std::vec::Vec;

use super::*;
use crate::ideal::Ideal;
use crate::policy::mesh::player::{
    self, Fault, Forgery, NEVER, Party, all_done, all_end_in_time, any_fault, ends, make_lazy,
    run_all, silence, stats,
};
use crate::transport::{Program, Reduce};
use crate::units::Span;

/// A rule that a member breaks.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Slip {
    /// It sends chunks before it may.
    Rushes,
    /// It passes a chunk on as a sum before all have contributed.
    Invents,
}

/// What a member sums, by which plan.
struct Summing {
    config: AggregateConfig,
    plan: Plan,
    /// Contribution to each round.
    vectors: Vec<Vec<u8>>,
}

type Member = player::Member<Summing>;

impl Party for Summing {
    type Policy = Aggregate;
    type Stats = AggregateStats;
    type Slip = Slip;

    fn open<T: Control>(&self, t: &mut T) -> Result<Aggregate, AggregateError> {
        Aggregate::open(t, self.config, &self.plan)
    }

    fn connect<T: Control>(p: &mut Aggregate, t: &mut T) -> Result<Progress, AggregateError> {
        p.connect(t)
    }

    fn begin(p: &mut Aggregate, now: Time) -> Result<(), AggregateError> {
        p.begin(now)
    }

    fn step<T: Control>(p: &mut Aggregate, t: &mut T) -> Result<Progress, AggregateError> {
        p.step(t)
    }

    fn stats(p: &Aggregate) -> AggregateStats {
        p.stats()
    }

    fn mesh(p: &Aggregate) -> &Mesh {
        &p.mesh
    }

    fn memory(p: &Aggregate) -> (Range, Range) {
        (p.vector(), p.vector())
    }

    fn slip(p: &mut Aggregate, slip: Slip) {
        match slip {
            Slip::Rushes => p.window = 1_000,
            Slip::Invents => {
                let lane = &mut p.lanes[0];
                (lane.sent, lane.done) = (lane.sent + 1, lane.done + 1);
            }
        }
    }

    fn bytes(&self, _: u32, round: u64) -> Vec<u8> {
        self.vectors[round as usize].clone()
    }

    fn deadlines(&self) -> (Span, Span) {
        (self.config.round_deadline, self.config.connect_deadline)
    }
}

/// The sum of one round by the book: chunk by chunk, a member's own first, then its children's.
fn reference(plan: &Plan, cut: &Chunks, op: Reduce, vectors: &[&[u8]]) -> Vec<u8> {
    fn of(
        plan: &Plan,
        lane: u32,
        member: u32,
        op: Reduce,
        chunk: &dyn Fn(u32) -> Vec<u8>,
    ) -> Vec<u8> {
        let mut sum = chunk(member);
        for child in plan.children(lane, member) {
            op.apply(&mut sum, &of(plan, lane, child, op, chunk));
        }
        sum
    }
    let chunks = (0..cut.count()).map(|c| {
        let at = cut.offset(c) as usize..cut.offset(c) as usize + cut.len(c) as usize;
        let lane = c % cut.lanes();
        of(plan, lane, plan.root(lane), op, &|m| vectors[m as usize][at.clone()].to_vec())
    });
    chunks.flatten().collect()
}

/// Bytes that look random, as elements that do not overflow to infinity all the time.
fn noise(op: Reduce, elements: u64, seed: u64) -> Vec<u8> {
    let word = |i: u64| {
        let x =
            (i + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ seed.wrapping_mul(0xD134_2543_DE82_EF95);
        let x = (x ^ x >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x ^ x >> 32
    };
    let bytes = (0..elements).flat_map(|i| -> Vec<u8> {
        let x = word(i);
        match op {
            Reduce::SumI64 => x.to_le_bytes().to_vec(),
            // Magnitudes from 2^-20 to 2^20, so that the order matters.
            Reduce::SumF32 => {
                let exponent = (x >> 40) as u32 % 40 + 107;
                (x as u32 & 0x807F_FFFF | exponent << 23).to_le_bytes().to_vec()
            }
            Reduce::SumF64 => {
                let exponent = x % 40 + 1003;
                (x & 0x800F_FFFF_FFFF_FFFF | exponent << 52).to_le_bytes().to_vec()
            }
        }
    });
    bytes.collect()
}

/// A small AllReduce.
fn config(bytes: u64, chunk: u32) -> AggregateConfig {
    AggregateConfig { bytes, chunk, op: Reduce::SumI64, ..AggregateConfig::default() }
}

/// Members of a plan with noise for `rounds` rounds.
fn members(config: AggregateConfig, plan: &Plan, rounds: u64) -> Vec<Member> {
    let elements = config.bytes / config.op.element_bytes();
    let vectors = |m: u32| {
        let of_round = |r| noise(config.op, elements, u64::from(m) << 32 | r);
        (0..rounds).map(of_round).collect()
    };
    let party = |m| Summing { config, plan: plan.clone(), vectors: vectors(m) };
    (0..plan.members()).map(|m| Member::new(party(m), rounds)).collect()
}

/// Every sum that a member has is that of the book.
fn check_sums(members: &[Member]) {
    let (config, plan) = (members[0].party.config, &members[0].party.plan);
    let cut = config.cut(plan).unwrap();
    for (rank, m) in (0..).zip(members) {
        for (round, sum) in m.got.iter().enumerate() {
            let vectors: Vec<&[u8]> = members.iter().map(|m| &m.party.vectors[round][..]).collect();
            let right = reference(plan, &cut, config.op, &vectors);
            for c in 0..cut.count() {
                let known = config.broadcast || plan.root(c % plan.lanes()) == rank;
                let at = cut.offset(c) as usize..cut.offset(c) as usize + cut.len(c) as usize;
                let same = sum[at.clone()] == right[at];
                assert!(!known || same, "rank {rank}, round {round}, chunk {c}");
            }
        }
    }
}

/// Boxed, so that a strategy can hold it.
type AnyPlan = proptest::strategy::BoxedStrategy<Plan>;

fn any_plan(most: u32) -> AnyPlan {
    use proptest::prelude::*;
    let places = proptest::collection::vec(0_u32..3, 2..=most as usize);
    let two =
        (places, 1_u32..4, 1_u32..3, 1_u32..5).prop_map(|(place_of, largest, sums, lanes)| {
            Plan::two_hop(&Group::by_place(&place_of, largest, sums), lanes).unwrap()
        });
    let direct = (2..=most, 1_u32..4).prop_map(|(n, lanes)| Plan::direct(n, lanes).unwrap());
    let ring = (2..=most).prop_map(|n| Plan::ring(n).unwrap());
    let places = proptest::collection::vec(0_u32..3, 2..=most as usize);
    let level = (places, 1_u32..3, 1_u32..7, any::<bool>());
    let level = level.prop_map(|(place_of, sums, lanes, ring)| {
        let inside = if ring { Inside::Ring } else { Inside::Direct };
        Plan::two_level(&Group::by_place(&place_of, u32::MAX, sums), inside, lanes).unwrap()
    });
    Box::new(prop_oneof![3 => two, 1 => direct, 1 => ring, 2 => level]).boxed()
}

fn any_config() -> proptest::strategy::BoxedStrategy<AggregateConfig> {
    use proptest::prelude::*;
    let op = prop_oneof![Just(Reduce::SumI64), Just(Reduce::SumF32), Just(Reduce::SumF64)];
    let method = prop_oneof![Just(Method::Send), Just(Method::Write), Just(Method::Read)];
    (op, method, 1_u64..120, 1_u32..12, 1_u32..5, any::<(bool, bool)>(), 1_u32..4, 1_u32..5)
        .prop_map(|(op, method, elements, chunk, window, (arrival, broadcast), reads, pool)| {
            // The bits of a sum of floats depend on the order.
            let order = match arrival && op == Reduce::SumI64 {
                true => Order::Arrival,
                false => Order::Fixed,
            };
            let pool = (order == Order::Arrival).then_some(pool);
            let (bytes, chunk) = (elements * op.element_bytes(), chunk * 8);
            let base = AggregateConfig { bytes, op, order, method, ..AggregateConfig::default() };
            AggregateConfig { broadcast, chunk, window, pool, reads, ..base }
        })
        .boxed()
}
