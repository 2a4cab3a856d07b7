//! When messages arrive.

use doorbell_core::units::Span;
use doorbell_sim::engine::SimRng;

/// A message to come.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Arrival {
    /// Counted from the start.
    pub at: Span,
    /// Its length.
    pub bytes: u32,
    /// Whether it may not wait for others.
    pub urgent: bool,
}

/// `n` messages of `bytes` bytes with independent, exponential gaps of `gap` on average: what many
/// clients that know nothing of each other make.
///
/// Exponential numbers by von Neumann's comparisons (1951), which need neither logarithm nor float:
/// a falling run of uniform numbers has an odd length with probability exp(-first).
pub fn poisson(seed: u64, n: usize, gap: Span, bytes: u32) -> Vec<Arrival> {
    let mut rng = SimRng::stream(seed, "traffic", "arrivals");
    let mut at = Span::ZERO;
    (0..n)
        .map(|_| {
            let scaled = u128::from(exponential(&mut rng)) * u128::from(gap.as_ps());
            at += Span::from_ps((scaled >> 32) as u64);
            Arrival { at, bytes, urgent: false }
        })
        .collect()
}

/// An exponential number of mean 1, in units of 2^-32.
fn exponential(rng: &mut SimRng) -> u64 {
    let mut draw = || rng.next_u64() >> 32;
    let mut whole = 0;
    loop {
        let first = draw();
        let (mut last, mut odd) = (first, true);
        loop {
            let next = draw();
            if next >= last {
                break;
            }
            (last, odd) = (next, !odd);
        }
        if odd {
            return whole + first;
        }
        whole += 1 << 32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_exponential() {
        let all = poisson(1, 100_000, Span::from_ns(1000), 8);
        let mean = all.last().unwrap().at.as_ps() / 100_000;
        assert!((990_000..1_010_000).contains(&mean), "{mean} ps");
        let gaps = all.windows(2).map(|w| w[1].at - w[0].at);
        // exp(-1) = 0.3679 and exp(-3) = 0.0498 of them are longer than one and three means.
        let longer = |ns| gaps.clone().filter(|g| *g > Span::from_ns(ns)).count();
        assert!((36_300..37_300).contains(&longer(1000)), "{}", longer(1000));
        assert!((4_800..5_200).contains(&longer(3000)), "{}", longer(3000));
    }
}
