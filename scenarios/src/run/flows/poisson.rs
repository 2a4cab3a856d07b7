//! Exponential gaps by the inverse of their distribution, in integers alone.

use doorbell_core::units::{BitRate, Ratio, Span};
use doorbell_sim::engine::SimRng;

/// Gaps between starts that know nothing of each other.
#[derive(Copy, Clone, Debug)]
pub struct Gaps {
    /// Mean gap in picoseconds.
    mean: u64,
}

impl Gaps {
    /// Gaps at which transfers of `bytes` on average take `load` of `rate`.
    pub fn new(bytes: u64, rate: BitRate, load: Ratio) -> Self {
        let alone = rate.time_for(bytes).as_ps();
        let mean = u128::from(alone) * u128::from(load.den) / u128::from(load.num.max(1));
        Self { mean: u64::try_from(mean).unwrap_or(u64::MAX).max(1) }
    }

    /// The next gap: - mean x ln(u), u even in (0, 1]; at least a picosecond, so that a list ends.
    pub fn draw(&self, rng: &mut SimRng) -> Span {
        let product = u128::from(self.mean) * u128::from(minus_ln(rng.next_u64()));
        Span::from_ps(u64::try_from(product >> FRACTION).unwrap_or(u64::MAX / 4).max(1))
    }
}

/// Bits behind the point.
const FRACTION: u32 = 32;

/// ln 2 with [`FRACTION`] bits behind the point.
const LN_2: u64 = 2_977_044_472;

/// Minus ln((x + 1) / 2^64), with [`FRACTION`] bits behind the point: the logarithm to base 2 bit
/// by bit, by squaring, times ln 2.
fn minus_ln(x: u64) -> u64 {
    let value = u128::from(x) + 1;
    let whole = 127 - value.leading_zeros();
    // The mantissa, in [1, 2), with 63 bits behind the point.
    let mut mantissa = if whole <= 63 { value << (63 - whole) } else { value >> (whole - 63) };
    let mut log2 = u64::from(whole) << FRACTION;
    for bit in (0..FRACTION).rev() {
        mantissa = (mantissa * mantissa) >> 63;
        if mantissa >> 64 != 0 {
            mantissa >>= 1;
            log2 |= 1 << bit;
        }
    }
    let minus = (64 << FRACTION) - log2;
    ((u128::from(minus) * u128::from(LN_2)) >> FRACTION) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against the logarithm of floats, which no run uses.
    #[test]
    fn the_logarithm_is_right_to_nine_digits() {
        assert_eq!(minus_ln(u64::MAX), 0);
        for x in [0, 1, 2, 3, 1 << 32, (1 << 63) - 1, 1 << 63, u64::MAX / 3, u64::MAX - 1] {
            let got = minus_ln(x) as f64 / f64::from(1u32 << 31) / 2.0;
            #[expect(clippy::disallowed_methods, reason = "a test of the integer form")]
            let want = -((x as f64 + 1.0) / 18_446_744_073_709_551_616.0).ln();
            assert!((got - want).abs() < 2e-9 * want.max(1.0), "{x}: {got} {want}");
        }
    }

    /// Mean and variance of an exponential distribution are 1 and 1; 2,048,000 gaps come within
    /// four standard errors.
    #[test]
    fn gaps_have_the_moments_of_an_exponential() {
        let gaps = Gaps::new(1_250_000, BitRate::gbps(100), Ratio::new(1, 2).unwrap());
        assert_eq!(gaps.mean, 200_000_000, "100 us alone, half of the load");
        let mut rng = SimRng::stream(1, "test", "gaps");
        let n = 2_048_000u64;
        let (mut sum, mut squares) = (0.0, 0.0);
        for _ in 0..n {
            let x = gaps.draw(&mut rng).as_ps() as f64 / gaps.mean as f64;
            sum += x;
            squares += x * x;
        }
        let (mean, second) = (sum / n as f64, squares / n as f64);
        assert!((mean - 1.0).abs() < 0.0028, "{mean}");
        // The standard deviation of x^2 is sqrt(20).
        assert!((second - 2.0).abs() < 0.0125, "{second}");
    }
}
