//! Members on the ideal back end, with everything that can go wrong.

mod faults;
mod goes_on;
mod rig;
mod sums;

use std::boxed::Box;
use std::vec;
use std::vec::Vec;

use super::*;
use crate::ideal::{Ideal, Step, run};
use crate::transport::{Program, Reduce};
use crate::units::Span;
use crate::verbs::{QpAttrMask, QpState};

use rig::{Forgery, Rig};

/// What goes wrong at one member, at its step of the given number.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Fault {
    /// It stops for good.
    Dies(u32),
    /// It sleeps, then goes on.
    Sleeps(u32, Span),
    /// One of its queue pairs goes to ERR.
    QpError(u32, usize),
    /// Its message of that number is another one.
    Forges(u32, Forgery),
    /// It sends chunks before it may.
    Rushes(u32),
    /// It passes a chunk on as a sum before all have contributed.
    Invents(u32),
}

/// One member and what became of it.
struct Member {
    config: AggregateConfig,
    plan: Plan,
    rounds: u64,
    /// Contribution to each round.
    vectors: Vec<Vec<u8>>,
    fault: Option<Fault>,
    /// Steps in which it does nothing are drawn from here.
    lazy: u64,
    state: Option<Aggregate>,
    steps: u32,
    forger: Option<(u32, Forgery)>,
    /// When each round began.
    began: Vec<Time>,
    /// Sums of complete rounds.
    sums: Vec<Vec<u8>>,
    end: Option<(Time, Result<AggregateStats, AggregateError>)>,
}

/// Later than every deadline.
const NEVER: Span = Span::from_ms(1_000_000);

impl Member {
    fn new(config: AggregateConfig, plan: &Plan, vectors: Vec<Vec<u8>>) -> Self {
        Self {
            config,
            plan: plan.clone(),
            rounds: vectors.len() as u64,
            vectors,
            fault: None,
            lazy: 0,
            state: None,
            steps: 0,
            forger: None,
            began: vec![],
            sums: vec![],
            end: None,
        }
    }

    /// The fault of this step; what to return instead of working, if anything.
    fn misbehave<T: Control>(&mut self, t: &mut T) -> Option<Next> {
        let sleep =
            |t: &T, span| Some(Next::Wait { on: WaitSet::EMPTY, until: Some(t.now() + span) });
        match self.fault {
            Some(Fault::Dies(at)) if self.steps > at => return sleep(t, NEVER),
            Some(Fault::Sleeps(at, span)) if self.steps == at => return sleep(t, span),
            Some(Fault::QpError(at, which)) if self.steps == at => {
                let channels = &self.state.as_ref()?.mesh.channels;
                let qp = channels[which % channels.len()].qp;
                let attr = crate::transport::QpAttr { state: QpState::Err, ..Default::default() };
                // From RESET there is no way there.
                let _refused = t.modify_qp(qp, &attr, QpAttrMask::STATE);
            }
            Some(Fault::Rushes(at)) if self.steps == at => self.state.as_mut()?.window = 1_000,
            Some(Fault::Invents(at)) if self.steps == at => {
                let lane = &mut self.state.as_mut()?.lanes[0];
                (lane.sent, lane.done) = (lane.sent + 1, lane.done + 1);
            }
            Some(Fault::Forges(at, forgery)) => self.forger = Some((at, forgery)),
            _ => {}
        }
        None
    }

    fn run<T: Control>(&mut self, t: &mut T) -> Result<Option<Next>, AggregateError> {
        let state = match &mut self.state {
            Some(state) => state,
            None => self.state.insert(Aggregate::open(t, self.config, &self.plan)?),
        };
        if self.began.is_empty()
            && let Some(next) = state.connect(t)?.next()
        {
            return Ok(Some(next));
        }
        if self.began.len() == self.sums.len() {
            if self.began.len() as u64 == self.rounds {
                return Ok(None);
            }
            t.copy_in(state.vector(), &self.vectors[self.began.len()])?;
            state.begin(t.now())?;
            assert_eq!(state.begin(t.now()), Err(AggregateError::Busy), "one round at a time");
            self.began.push(t.now());
        }
        match state.step(t)?.next() {
            Some(next) => Ok(Some(next)),
            None => {
                let mut sum = vec![0; state.vector().len as usize];
                t.copy_out(state.vector(), &mut sum)?;
                self.sums.push(sum);
                Ok(Some(Next::Again))
            }
        }
    }
}

impl Program for Member {
    fn step<T: Control>(&mut self, t: &mut T) -> Next {
        if matches!(self.fault, Some(Fault::Dies(at)) if self.steps > at)
            && t.now() >= Time::ZERO + NEVER
        {
            return Next::Done;
        }
        self.steps += 1;
        if let Some(next) = self.misbehave(t) {
            return next;
        }
        // A linear congruence decides who is faster in this step.
        self.lazy = self.lazy.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(self.lazy & 1);
        if self.lazy >> 62 == 1 {
            return Next::Again;
        }
        let mut forger = self.forger.take();
        let result = self.run(&mut Rig { t, forger: &mut forger });
        if self.forger.is_none() && forger.is_none() {
            // Done once.
            self.fault = self.fault.filter(|f| !matches!(f, Fault::Forges(..)));
        } else if let (Some((left, _)), Some(Fault::Forges(at, _))) = (forger, &mut self.fault) {
            *at = left;
        }
        match result {
            Ok(Some(next)) => next,
            end => {
                let stats = self.state.as_ref().map(Aggregate::stats).unwrap_or_default();
                let end = end.map(|_| stats);
                self.end = Some((t.now(), end));
                Next::Done
            }
        }
    }
}

/// Runs members, one per rank, to their ends.
fn run_all(members: &mut [Member]) {
    let mut ideal = Ideal::new(members.len());
    let mut steps: Vec<&mut dyn Step> = members.iter_mut().map(|m| m as &mut dyn Step).collect();
    run(&mut ideal, &mut steps).unwrap_or_else(|e| panic!("{e}"));
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
    (0..plan.members()).map(|m| Member::new(config, plan, vectors(m))).collect()
}

/// Every sum that a member has is that of the book.
fn check_sums(members: &[Member]) {
    let (config, plan) = (members[0].config, &members[0].plan);
    let cut = config.cut(plan).unwrap();
    for (rank, m) in (0..).zip(members) {
        for (round, sum) in m.sums.iter().enumerate() {
            let vectors: Vec<&[u8]> = members.iter().map(|m| &m.vectors[round][..]).collect();
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
