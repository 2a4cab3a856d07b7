//! Decimal numbers as exact integers: `1.5` is 15 with one decimal, never a float.

/// `mantissa / 10^decimals`.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Decimal {
    pub(crate) mantissa: u128,
    pub(crate) decimals: u32,
}

/// More digits than this cannot be meant; it also keeps every product below inside `u128`.
const MAX_DIGITS: usize = 20;

impl Decimal {
    /// Reads digits with at most one point and with `_` between digits; `None` for anything else.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (whole, fraction) = match text.split_once('.') {
            Some((w, f)) => (w, Some(f)),
            None => (text, None),
        };
        if whole.is_empty() || fraction == Some("") {
            return None;
        }
        let mut mantissa = 0u128;
        let mut digits = 0;
        let mut last = '_';
        for c in whole.chars().chain(fraction.unwrap_or("").chars()) {
            match c {
                '0'..='9' => {
                    mantissa = mantissa * 10 + u128::from(c as u8 - b'0');
                    digits += usize::from(mantissa > 0);
                }
                '_' if last != '_' => {}
                _ => return None,
            }
            if digits > MAX_DIGITS {
                return None;
            }
            last = c;
        }
        if last == '_' {
            return None;
        }
        let decimals = fraction.map_or(0, |f| f.chars().filter(char::is_ascii_digit).count());
        if decimals > MAX_DIGITS {
            return None;
        }
        Some(Self { mantissa, decimals: decimals as u32 })
    }

    /// The value times `factor`, if that is a whole number that fits.
    pub(crate) fn times(self, factor: u64) -> Result<u64, NotWhole> {
        let product = self.mantissa.checked_mul(u128::from(factor)).ok_or(NotWhole::TooLarge)?;
        let divisor = 10u128.pow(self.decimals);
        if !product.is_multiple_of(divisor) {
            return Err(NotWhole::TooFine);
        }
        u64::try_from(product / divisor).map_err(|_| NotWhole::TooLarge)
    }
}

/// Why a decimal is not a `u64` of the wanted unit.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum NotWhole {
    TooLarge,
    TooFine,
}

/// Writes `value / factor` without losing a digit; `factor` is a power of ten.
pub(crate) fn print(value: u64, factor: u64) -> String {
    let (whole, rest) = (value / factor, value % factor);
    if rest == 0 {
        return whole.to_string();
    }
    let width = factor.ilog10() as usize;
    let digits = format!("{rest:0width$}");
    format!("{whole}.{}", digits.trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_decimals_without_rounding() {
        let d = |mantissa, decimals| Some(Decimal { mantissa, decimals });
        assert_eq!(Decimal::parse("0"), d(0, 0));
        assert_eq!(Decimal::parse("1.50"), d(150, 2));
        assert_eq!(Decimal::parse("1_000"), d(1000, 0));
        assert_eq!(Decimal::parse("18446744073709551615"), d(u64::MAX.into(), 0));
    }

    #[test]
    fn refuses_what_is_no_plain_decimal() {
        for bad in ["", ".", "1.", ".5", "-1", "+1", "1e3", "_1", "1_", "1__0", "1.2.3", "x"] {
            assert_eq!(Decimal::parse(bad), None, "{bad}");
        }
        assert_eq!(Decimal::parse(&"9".repeat(21)), None);
        assert_eq!(Decimal::parse(&format!("0.{}1", "0".repeat(20))), None);
    }

    #[test]
    fn scales_exactly_or_says_why_not() {
        let d = |t| Decimal::parse(t).unwrap();
        assert_eq!(d("1.5").times(1000), Ok(1500));
        assert_eq!(d("0.001").times(1000), Ok(1));
        assert_eq!(d("0.0001").times(1000), Err(NotWhole::TooFine));
        assert_eq!(d("18446744073709551615").times(1), Ok(u64::MAX));
        assert_eq!(d("18446744073709551616").times(1), Err(NotWhole::TooLarge));
    }

    #[test]
    fn prints_every_digit() {
        assert_eq!(print(1_500, 1_000), "1.5");
        assert_eq!(print(1_001, 1_000), "1.001");
        assert_eq!(print(2_000, 1_000), "2");
        assert_eq!(print(7, 1), "7");
    }
}
