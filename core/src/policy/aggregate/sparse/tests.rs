//! What goes and what stays are together what went in.

use std::vec;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;

fn bytes<const N: usize>(values: [i64; N]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn send(of: &mut TopK, vector: &[u8]) -> (Form, Vec<u8>) {
    let mut out = vec![0xEE; of.max_bytes()];
    let (form, used) = of.send(vector, &mut out).unwrap();
    out.truncate(used);
    (form, out)
}

/// 1,000 floats, of which ten go: closed forms of what memory moves (#6).
#[test]
fn choosing_costs_more_than_adding_and_both_are_counted() {
    let (op, sparse) = (Reduce::SumF32, Form::Sparse(10));
    // Residual and vector, three readings with places, 4 levels of 10 places, lines, the message.
    assert_eq!(choosing_bytes(op, 1000, sparse), 12_000 + 24_000 + 320 + 1280 + 88);
    assert_eq!(choosing_bytes(op, 1000, Form::Dense), 12_000 + 12_000);
    assert_eq!(adding_bytes(op, 1000, sparse), 88 + 1280);
    assert_eq!(adding_bytes(op, 1000, Form::Dense), 12_000);
    assert_eq!(adding_bytes(Reduce::SumF64, 1000, Form::Dense), 24_000);
}

#[test]
fn the_largest_go_and_the_first_of_equal_ones() {
    let mut of = TopK::new(Reduce::SumI64, 8, 3).unwrap();
    let (form, wire) = send(&mut of, &bytes([1, -7, 7, 0, -7, 2, 7, 3]));
    assert_eq!((form, wire.len(), of.max_bytes()), (Form::Sparse(3), 48, 48));
    let mut got = bytes([100, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(add_to(Reduce::SumI64, &mut got, &wire), Ok(Form::Sparse(3)));
    assert_eq!(got, bytes([100, -7, 7, 0, -7, 0, 0, 0]));
    assert_eq!(of.residual(), bytes([1, 0, 0, 0, 0, 2, 7, 3]));
    // What was kept comes with the next vector.
    let (_, wire) = send(&mut of, &bytes([1, 0, 0, 0, 0, 2, 0, 0]));
    let mut got = bytes([0; 8]);
    add_to(Reduce::SumI64, &mut got, &wire).unwrap();
    assert_eq!(got, bytes([0, 0, 0, 0, 0, 4, 7, 3]));
    // Zeros are not sent: one entry is left.
    let (form, wire) = send(&mut of, &bytes([0; 8]));
    assert_eq!((form, wire.len()), (Form::Sparse(1), 24));
    assert_eq!(send(&mut of, &bytes([0; 8])).0, Form::Sparse(0));
}

#[test]
fn the_form_is_the_shorter_one() {
    // 8 floats dense: 40 B. 3 entries: 8 + 12, to 24, and 12: 36 B. 4 entries: 24 + 16 = 40 B.
    let vector = floats(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
    let mut of = TopK::new(Reduce::SumF32, 8, 3).unwrap();
    assert_eq!((send(&mut of, &vector).0, of.max_bytes()), (Form::Sparse(3), 36));
    let mut of = TopK::new(Reduce::SumF32, 8, 4).unwrap();
    let (form, wire) = send(&mut of, &vector);
    assert_eq!((form, wire.len(), of.max_bytes()), (Form::Dense, 40, 40));
    assert_eq!(of.residual(), [0; 32]);
    let mut got = floats(&[0.5; 8]);
    assert_eq!(add_to(Reduce::SumF32, &mut got, &wire), Ok(Form::Dense));
    assert_eq!(got, floats(&[1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 8.5]));
    // With few elements that are not zero a sender that may send all sends these alone.
    let mut of = TopK::new(Reduce::SumF32, 8, 8).unwrap();
    let few = floats(&[0.0, -0.0, 0.0, f32::MIN_POSITIVE, 0.0, f32::NAN, 0.0, 0.0]);
    let (form, wire) = send(&mut of, &few);
    assert_eq!(form, Form::Sparse(2));
    assert_eq!((wire[8], wire[12]), (3, 5));
}

#[test]
fn nan_goes_first() {
    let mut of = TopK::new(Reduce::SumF32, 8, 1).unwrap();
    let inf = f32::INFINITY;
    let (_, wire) = send(&mut of, &floats(&[inf, 1.0, f32::NAN, -inf, 0.0, 0.0, 0.0, 0.0]));
    assert_eq!(wire[8], 2);
    let (_, wire) = send(&mut of, &floats(&[0.0; 8]));
    assert_eq!(wire[8], 0, "then the infinities, in their order");
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    let new = |elements, entries| TopK::new(Reduce::SumI64, elements, entries).map(|_| ());
    assert_eq!(new(0, 1), Err(SparseError::Elements { got: 0 }));
    let most = u64::from(MAX_ELEMENTS);
    assert_eq!(new(most + 1, 1), Err(SparseError::Elements { got: most + 1 }));
    assert_eq!(new(4, 0), Err(SparseError::Entries { got: 0, elements: 4 }));
    assert_eq!(new(4, 5), Err(SparseError::Entries { got: 5, elements: 4 }));
    assert_eq!((new(4, 1), new(4, 4)), (Ok(()), Ok(())));
    let mut of = TopK::new(Reduce::SumI64, 8, 1).unwrap();
    let before = of.clone();
    let short = SparseError::Length { got: 56, need: 64 };
    assert_eq!(of.send(&[1; 56], &mut [0; 64]), Err(short));
    let small = SparseError::Length { got: 23, need: 24 };
    assert_eq!(of.send(&[1; 64], &mut [0; 23]), Err(small));
    assert_eq!(of, before, "nothing changed");
}

#[test]
fn what_is_no_vector_of_ours_adds_nothing() {
    let mut of = TopK::new(Reduce::SumI64, 8, 2).unwrap();
    let (_, wire) = send(&mut of, &bytes([0, 5, 0, 0, 6, 0, 0, 0]));
    let refused = |change: &dyn Fn(&mut Vec<u8>)| {
        let (mut wrong, mut got) = (wire.clone(), bytes([9; 8]));
        change(&mut wrong);
        let e = add_to(Reduce::SumI64, &mut got, &wrong).unwrap_err();
        assert_eq!(got, bytes([9; 8]), "{e}");
        e
    };
    assert_eq!(refused(&|w| w.truncate(7)), SparseError::Length { got: 7, need: 8 });
    assert_eq!(refused(&|w| w.truncate(31)), SparseError::Length { got: 31, need: 32 });
    assert_eq!(refused(&|w| w[4] = 9), SparseError::Other { got: 9, need: 8 });
    assert_eq!(refused(&|w| w[0] = 9), SparseError::Other { got: 9, need: 8 });
    assert_eq!(refused(&|w| w[3] = 0x80), SparseError::Other { got: 8, need: 8 });
    assert_eq!(refused(&|w| w[12] = 8), SparseError::Place { entry: 1, place: 8 });
    assert_eq!(refused(&|w| w[12] = 1), SparseError::Place { entry: 1, place: 1 });
}

/// Rounds of vectors for a number of elements.
fn rounds(elements: usize) -> impl Strategy<Value = Vec<Vec<i64>>> {
    let element = prop_oneof![2 => -3_i64..4, 1 => any::<i64>()];
    proptest::collection::vec(proptest::collection::vec(element, elements), 1..6)
}

proptest! {
    /// Integers: what was sent, in all rounds and of all members, and what stayed are what went
    /// in, whatever overflows. Each round sends the largest, and no more than it may.
    #[test]
    fn sent_and_residual_are_the_input(
        (all, entries) in (1_usize..20).prop_flat_map(|n| (
            proptest::collection::vec(rounds(n), 1..4), 1..=n as u32,
        ))
    ) {
        let n = all[0][0].len();
        let (mut sum, mut right) = (vec![0; 8 * n], vec![0; 8 * n]);
        for member in &all {
            let mut of = TopK::new(Reduce::SumI64, n as u64, entries).unwrap();
            for vector in member {
                let vector: Vec<u8> = vector.iter().flat_map(|v| v.to_le_bytes()).collect();
                Reduce::SumI64.apply(&mut right, &vector);
                let (form, wire) = send(&mut of, &vector);
                prop_assert_eq!(add_to(Reduce::SumI64, &mut sum, &wire), Ok(form));
                let kept = (0..n as u32).map(|p| magnitude(Reduce::SumI64, of.residual(), p)).max();
                if let Form::Sparse(count) = form {
                    prop_assert!(count <= entries);
                    let value = |p: usize| {
                        let at = values_at(count) + 8 * p;
                        i64::from_le_bytes(wire[at..at + 8].try_into().unwrap())
                    };
                    let least = (0..count as usize).map(|p| value(p).unsigned_abs()).min();
                    prop_assert!(least >= kept || count == 0 && kept == Some(0));
                } else {
                    prop_assert_eq!(kept, Some(0));
                }
                prop_assert!(wire.len() <= of.max_bytes());
            }
            Reduce::SumI64.apply(&mut sum, of.residual());
        }
        prop_assert_eq!(sum, right);
    }

    /// Floats: the choice splits the sum of residual and vector without any rounding, so that
    /// addition is the only one.
    #[test]
    fn floats_are_rounded_once(
        vectors in proptest::collection::vec(proptest::collection::vec(any::<f32>(), 9), 1..5),
        entries in 1_u32..9
    ) {
        let mut of = TopK::new(Reduce::SumF32, 9, entries).unwrap();
        for vector in vectors {
            let vector = floats(&vector);
            let mut both = of.residual().to_vec();
            Reduce::SumF32.apply(&mut both, &vector);
            let (_, wire) = send(&mut of, &vector);
            let mut sent = vec![0; 36];
            add_to(Reduce::SumF32, &mut sent, &wire).unwrap();
            for place in 0..9 {
                let at = 4 * place..4 * place + 4;
                let zero = [0, 0, 0, 0];
                // An element that goes has left nothing, and one that stays has sent nothing.
                let (went, stayed) = (&sent[at.clone()], &of.residual()[at.clone()]);
                prop_assert!(went == &both[at.clone()] && stayed == zero
                    || stayed == &both[at.clone()] && went == zero
                    || magnitude(Reduce::SumF32, &both, place as u32) == 0);
            }
        }
    }
}

/// How far a descent of members with different goals is from the mean goal after so many rounds:
/// squared distance, by that of the start.
fn descent(rounds: u32, entries: Option<u32>, feedback: bool) -> f64 {
    const MEMBERS: u64 = 8;
    const ELEMENTS: usize = 256;
    // Goals differ by member, and elements by their weight, as gradients do.
    let goal = |m: u64, i: usize| {
        let x = (i as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (m + 1) << 32;
        let x = (x ^ x >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        ((x >> 40) as f32 / (1 << 24) as f32 + 0.5) / (1.0 + i as f32 / 16.0)
    };
    let mean = |i: usize| (0..MEMBERS).map(|m| goal(m, i)).sum::<f32>() / MEMBERS as f32;
    let new = || TopK::new(Reduce::SumF32, ELEMENTS as u64, entries.unwrap_or(ELEMENTS as u32));
    let mut senders: Vec<TopK> = (0..MEMBERS).map(|_| new().unwrap()).collect();
    let mut at = vec![0.0_f32; ELEMENTS];
    for _ in 0..rounds {
        let mut sum = vec![0; 4 * ELEMENTS];
        for (m, sender) in (0..).zip(&mut senders) {
            let step: Vec<f32> = (0..ELEMENTS).map(|i| 0.05 * (at[i] - goal(m, i))).collect();
            let (_, wire) = send(sender, &floats(&step));
            add_to(Reduce::SumF32, &mut sum, &wire).unwrap();
            if !feedback {
                *sender = new().unwrap();
            }
        }
        for (x, step) in at.iter_mut().zip(sum.chunks_exact(4)) {
            *x -= f32::from_le_bytes(step.try_into().unwrap()) / MEMBERS as f32;
        }
    }
    let distance = |of: &[f32]| -> f64 {
        (0..ELEMENTS).map(|i| f64::from(of[i] - mean(i))).map(|d| d * d).sum()
    };
    distance(&at) / distance(&vec![0.0; ELEMENTS])
}

/// Claim D11: a sixteenth of the elements per round.
#[test]
fn with_feedback_a_descent_arrives_and_without_it_does_not() {
    // Closed form of the dense one: (1 - 0.05)^(2 rounds).
    let dense = [50, 200].map(|rounds| descent(rounds, None, true));
    let form = (0..100).fold(1.0, |left, _| left * 0.95);
    assert!((dense[0] / form - 1.0).abs() < 0.01, "{dense:?}");
    let with = [50, 200, 400].map(|rounds| descent(rounds, Some(16), true));
    let without = [50, 200, 400].map(|rounds| descent(rounds, Some(16), false));
    // The figures of the module's page: residuals keep it from arriving, and their lack from coming
    // near.
    assert!(with[0] < 0.01 && (1e-5..1e-3).contains(&with[1]), "{with:?}");
    assert!((1e-5..1e-3).contains(&with[2]), "{with:?}");
    assert!((0.05..0.1).contains(&without[2]), "{without:?}");
}
