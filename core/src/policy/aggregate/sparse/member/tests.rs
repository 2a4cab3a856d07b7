//! Members on the ideal back end against the same sums one after the other.

use std::sync::Arc;
use std::vec;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::ideal::{Ideal, Step, run};
use crate::transport::{Next, Program};

/// A member, what it contributes and what it gets.
struct Member {
    config: SparseConfig,
    schedule: Arc<Schedule>,
    vectors: Vec<Vec<u8>>,
    state: Option<SparseSum>,
    running: bool,
    sums: Vec<Vec<u8>>,
    end: Option<AggregateError>,
    /// Steps of a round after which it is gone.
    dies: Option<u32>,
    /// It sends this in place of the first bytes of its message.
    spoils: Option<[u8; 12]>,
}

impl Member {
    fn go_on<T: Control>(&mut self, t: &mut T) -> Result<Next, AggregateError> {
        if self.state.is_none() {
            self.state = Some(SparseSum::open(t, self.config, &self.schedule)?);
        }
        let state = self.state.as_mut().unwrap();
        if !self.running {
            if let Some(next) = state.connect(t)?.next() {
                return Ok(next);
            }
            let Some(vector) = self.vectors.get(self.sums.len()) else { return Ok(Next::Done) };
            state.begin(t, vector)?;
            assert_eq!(state.begin(t, vector), Err(AggregateError::Busy));
            if let Some(spoilt) = self.spoils {
                let outbox = state.exchange.outbox();
                t.copy_in(Range { len: 12, ..outbox }, &spoilt)?;
            }
            self.running = true;
        }
        match &mut self.dies {
            Some(0) => return Ok(Next::Done),
            Some(left) => *left -= 1,
            None => {}
        }
        let next = state.step(t)?.next();
        if next.is_none() {
            self.sums.push(state.sum().to_vec());
            self.running = false;
        }
        Ok(next.unwrap_or(Next::Again))
    }
}

impl Program for Member {
    fn step<T: Control>(&mut self, t: &mut T) -> Next {
        self.go_on(t).unwrap_or_else(|e| {
            // Once an error, always that error.
            if let (true, Some(state)) = (self.running, &mut self.state) {
                assert_eq!((state.step(t), state.begin(t, &[])), (Err(e), Err(e)));
            }
            self.end = Some(e);
            Next::Done
        })
    }
}

/// `vectors[member][round]`.
fn members(
    (op, entries): (Reduce, u32),
    (place_of, route, chunk): (&[u32], Route, u32),
    vectors: Vec<Vec<Vec<u8>>>,
) -> Vec<Member> {
    let elements = vectors[0][0].len() as u64 / op.element_bytes();
    let exchange = AllToAllConfig::default();
    let config = SparseConfig { exchange, op, elements, entries };
    let schedule = Arc::new(config.schedule(place_of, route, chunk).unwrap());
    let member = |vectors| Member {
        config,
        schedule: schedule.clone(),
        vectors,
        state: None,
        running: false,
        sums: vec![],
        end: None,
        dies: None,
        spoils: None,
    };
    vectors.into_iter().map(member).collect()
}

fn run_all(all: &mut [Member]) {
    let mut ideal = Ideal::new(all.len());
    let mut steps: Vec<&mut dyn Step> = all.iter_mut().map(|m| m as &mut dyn Step).collect();
    run(&mut ideal, &mut steps).unwrap();
}

/// The sums of all rounds, one member after the other.
fn sequential(all: &[Member]) -> Vec<Vec<u8>> {
    let c = all[0].config;
    let mut tops: Vec<TopK> =
        all.iter().map(|_| TopK::new(c.op, c.elements, c.entries).unwrap()).collect();
    let mut out = vec![0; tops[0].max_bytes()];
    let rounds = 0..all[0].vectors.len();
    let sums = rounds.map(|round| {
        let mut sum = vec![0; all[0].vectors[0].len()];
        for (top, member) in tops.iter_mut().zip(all) {
            let (_, used) = top.send(&member.vectors[round], &mut out).unwrap();
            add_to(c.op, &mut sum, &out[..used]).unwrap();
        }
        sum
    });
    sums.collect()
}

fn words(values: &[i64]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

/// Three members of four words that each send the two largest.
fn three() -> Vec<Member> {
    let vectors = [[9, 1, -8, 2], [3, 4, 0, 0], [-5, 6, 7, 1]].map(|v| vec![words(&v); 2]);
    members((Reduce::SumI64, 2), (&[0, 1, 2], Route::Direct, 64), vectors.to_vec())
}

#[test]
fn what_is_kept_comes_with_the_next_round() {
    let mut all = three();
    run_all(&mut all);
    for m in &all {
        // 9, -8; 3, 4; 6, 7. Then of 9, 2, -8, 4: the same; 3, 4; and -10, 7 of -10, 6, 7, 2.
        assert_eq!(m.sums, [words(&[12, 10, -1, 0]), words(&[2, 4, -1, 0])], "{:?}", m.end);
    }
    let state = all[2].state.as_ref().unwrap();
    assert_eq!((state.residual(), state.stats().entries), (&words(&[0, 6, 0, 2])[..], 4));
    assert_eq!((state.stats().sparse, state.stats().dense), (2, 0));
    // 8 B of head, two places, two words, to each of two others, twice.
    assert_eq!(state.traffic().sent_bytes, 2 * 2 * (8 + 2 * 4 + 2 * 8));
}

#[test]
fn what_is_no_vector_ends_with_the_name_of_its_sender() {
    for (bytes, cause) in [
        ([9, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0], SparseError::Other { got: 9, need: 4 }),
        ([1, 0, 0, 0, 4, 0, 0, 0, 4, 0, 0, 0], SparseError::Place { entry: 0, place: 4 }),
    ] {
        let mut all = three();
        all[1].spoils = Some(bytes);
        run_all(&mut all);
        for rank in [0, 2] {
            assert_eq!(all[rank].end, Some(AggregateError::Sparse { rank: 1, cause }));
            assert!(all[rank].sums.is_empty(), "a sum without rank 1");
        }
    }
}

#[test]
fn a_member_that_dies_is_named_in_time() {
    let mut all = three();
    all[2].dies = Some(0);
    run_all(&mut all);
    for m in &all[..2] {
        assert_eq!((m.sums.len(), m.end.unwrap().culprit()), (0, Some(2)), "{:?}", m.end);
    }
}

#[test]
fn another_schedule_or_length_is_refused() {
    let mut all = three();
    let other = SparseConfig { entries: 1, ..all[0].config };
    all[0].schedule = Arc::new(other.schedule(&[0, 1, 2], Route::Direct, 64).unwrap());
    all[1].vectors[0].pop();
    run_all(&mut all[..2]);
    let wrong = |got, need| {
        Some(AggregateError::Config(ConfigError::Sparse(SparseError::Length { got, need })))
    };
    assert_eq!(all[0].end, wrong(24, 32));
    let few = SparseConfig { entries: 5, ..all[0].config };
    let error = SparseError::Entries { got: 5, elements: 4 };
    assert_eq!(few.schedule(&[0, 1], Route::Direct, 64), Err(ConfigError::Sparse(error)));
    assert_eq!(few.message_bytes(), Err(error));
    assert!(all[0].config.schedule(&[0], Route::Direct, 64).is_err());
}

proptest! {
    /// All members have the bits of the sequential sum; and of integers every contribution is in a
    /// sum or in what its member has kept, once.
    #[test]
    fn sums_are_those_of_the_sequential_reference(
        places in proptest::collection::vec(0_u32..3, 2..6), op in 0_u8..3, two_hop: bool,
        elements in 1_usize..24, entries in 1_u32..24, rounds in 1_usize..4, chunk in 8_u32..100,
        seed: u64
    ) {
        let op = [Reduce::SumI64, Reduce::SumF32, Reduce::SumF64][usize::from(op)];
        let width = op.element_bytes() as usize;
        let mut x = seed | 1;
        let mut byte = || {
            x = x.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(0xBF58_476D_1CE4_E5B9);
            (x >> 56) as u8
        };
        let mut vector = |_| -> Vec<u8> { (0..elements * width).map(|_| byte()).collect() };
        let vectors = places.iter().map(|_| (0..rounds).map(&mut vector).collect()).collect();
        let route = if two_hop { Route::TwoHop } else { Route::Direct };
        let entries = entries.min(elements as u32);
        let mut all = members((op, entries), (&places, route, chunk), vectors);
        run_all(&mut all);
        let right = sequential(&all);
        for m in &all {
            prop_assert_eq!(&m.sums, &right, "{:?}", m.end);
        }
        if op == Reduce::SumI64 {
            let (mut sent, mut given) = (vec![0; elements * 8], vec![0; elements * 8]);
            right.iter().for_each(|sum| op.apply(&mut sent, sum));
            for m in &all {
                op.apply(&mut sent, m.state.as_ref().unwrap().residual());
                m.vectors.iter().for_each(|v| op.apply(&mut given, v));
            }
            prop_assert_eq!(sent, given);
        }
    }
}
