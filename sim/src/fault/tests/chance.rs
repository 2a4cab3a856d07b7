//! Random faults, against what probability theory says of them.

use doorbell_core::units::Ratio;

use super::*;
use crate::fault::{Burst, Chance, PacketFault, What};

fn ratio(num: u64, den: u64) -> Ratio {
    Ratio::new(num, den).unwrap()
}

fn random(id: &str, chance: Chance) -> Fault {
    let matcher = Matcher::default();
    let what = What::Packets(PacketFault { matcher, chance, verdict: PacketVerdict::Drop });
    Fault { id: id.to_owned(), what, budget: None, maybe: false }
}

/// For each of `n` packets whether it is lost.
fn losses(seed: u64, faults: &[Fault], n: u32) -> Vec<bool> {
    let mut s = FaultState::new(&plan(faults), &cable(), seed).unwrap();
    (0..n).map(|i| s.judge(us(1), AT_1, &write(i)).is_some()).collect()
}

fn count(lost: &[bool]) -> u64 {
    lost.iter().filter(|l| **l).count() as u64
}

/// Within five standard deviations for each of 40 seeds: one in 40,000 honest tests would fail, and
/// the seeds are fixed.
#[test]
fn the_rate_is_binomial() {
    let n = 20_000u32;
    for (num, den) in [(1, 1000), (1, 100), (1, 10), (1, 3), (1, 2)] {
        for seed in 0..40 {
            let lost = count(&losses(seed, &[random("r", Chance::Ratio(ratio(num, den)))], n));
            // |lost - n p| <= 5 sqrt(n p (1 - p)), in integers.
            let (mean, n) = (u64::from(n) * num / den, u64::from(n));
            let off = lost.abs_diff(mean);
            let bound = 25 * n * num * (den - num) / (den * den) + 1;
            assert!(off * off <= bound, "{num}/{den}, seed {seed}: {lost} of {n}");
        }
    }
}

#[test]
fn never_and_always() {
    assert_eq!(count(&losses(1, &[random("r", Chance::Ratio(ratio(0, 1)))], 1000)), 0);
    assert_eq!(count(&losses(1, &[random("r", Chance::Ratio(ratio(7, 7)))], 1000)), 1000);
}

/// Lengths of runs of losses when every packet of the bad state is lost: geometric with mean
/// 1 / leave, and enter / (enter + leave) of all packets.
#[test]
fn bursts_have_their_length_and_share() {
    let n = 200_000u32;
    for (enter, leave) in [((1, 100), (1, 10)), ((1, 50), (1, 2)), ((1, 1000), (1, 50))] {
        let burst = Burst {
            enter: ratio(enter.0, enter.1),
            leave: ratio(leave.0, leave.1),
            bad: ratio(1, 1),
            good: ratio(0, 1),
        };
        let lost = losses(11, &[random("b", Chance::Burst(burst))], n);
        let bursts = lost.windows(2).filter(|w| !w[0] && w[1]).count() as f64;
        let length = count(&lost) as f64 / bursts;
        let (p, q) = (enter.0 as f64 / enter.1 as f64, leave.0 as f64 / leave.1 as f64);
        // The mean of k geometric lengths deviates by sqrt((1 - q) / k) / q; five of those.
        let deviation = ((1.0 - q) / bursts).sqrt() / q;
        assert!((length - 1.0 / q).abs() < 5.0 * deviation, "{length} packets, not {}", 1.0 / q);
        let share = count(&lost) as f64 / f64::from(n);
        let expected = p / (p + q);
        // Losses of one burst are not independent: the share is as uncertain as the bursts' number
        // and lengths are.
        let bound = 5.0 * expected * (2.0 / bursts).sqrt();
        assert!((share - expected).abs() < bound, "{share}, not {expected}");
    }
}

/// A chain whose states lose alike is independent loss.
#[test]
fn a_burst_without_contrast_is_independent_loss() {
    let same = ratio(1, 20);
    let burst = Burst { enter: ratio(1, 10), leave: ratio(1, 10), bad: same, good: same };
    let lost = losses(3, &[random("b", Chance::Burst(burst))], 40_000);
    let pairs = lost.windows(2).filter(|w| w[0] && w[1]).count() as f64;
    // 40,000 / 400 = 100 pairs, with a deviation of about 10.
    assert!((pairs - 100.0).abs() < 50.0, "{pairs}");
}

/// The draws of a fault are its own: another fault in the plan, before or behind it, moves none.
#[test]
fn a_fault_moves_no_draw_of_another() {
    let a = random("a", Chance::Ratio(ratio(1, 10)));
    let none = Fault::packets(
        "n",
        Matcher { nth: Some(9_999), ..Matcher::default() },
        PacketVerdict::Drop,
    );
    let b = random("b", Chance::Ratio(ratio(1, 10)));
    let alone = losses(5, std::slice::from_ref(&a), 2_000);
    assert_eq!(losses(5, &[none.clone(), a.clone()], 2_000), alone);
    let both = losses(5, &[b.clone(), a.clone()], 2_000);
    let other = losses(5, std::slice::from_ref(&b), 2_000);
    let union: Vec<bool> = alone.iter().zip(&other).map(|(x, y)| *x || *y).collect();
    assert_eq!(both, union);
    assert_ne!(alone, other, "two faults of one rate are not the same fault");
    assert_ne!(losses(6, &[a], 2_000), alone, "the seed counts");
}

/// Each direction has its own stream.
#[test]
fn directions_draw_for_themselves() {
    let fault = random("r", Chance::Ratio(ratio(1, 2)));
    let mut s = on(&cable(), std::slice::from_ref(&fault));
    let mut there = Vec::new();
    let mut back = Vec::new();
    for i in 0..200 {
        there.push(s.judge(us(1), AT_1, &write(i)).is_some());
        back.push(s.judge(us(1), AT_0, &write(i)).is_some());
    }
    assert_eq!(there, losses(7, &[fault], 200), "packets back move no draw there");
    assert_ne!(there, back);
}
