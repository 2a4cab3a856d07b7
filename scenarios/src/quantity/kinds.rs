//! The kinds of quantity and their units.

use doorbell_core::units::{BitRate, Bytes, Ratio, Span};

use super::decimal::Decimal;
use super::{Kind, Problem, QuantityError, Unit, parse_scaled, print_scaled};

const TIME: Kind = Kind {
    name: "a time",
    example: "2us",
    units: &[
        ("ps", 1),
        ("ns", 1_000),
        ("us", 1_000_000),
        ("ms", 1_000_000_000),
        ("s", 1_000_000_000_000),
    ],
    smallest: "picoseconds",
    usual: "us",
};

const BYTES: Kind = Kind {
    name: "a size in bytes",
    example: "4KiB",
    units: &[
        ("B", 1),
        ("KB", 1_000),
        ("KiB", 1 << 10),
        ("MB", 1_000_000),
        ("MiB", 1 << 20),
        ("GB", 1_000_000_000),
        ("GiB", 1 << 30),
        ("TB", 1_000_000_000_000),
        ("TiB", 1 << 40),
    ],
    smallest: "bytes",
    usual: "B",
};

/// Network rates are given in bits, memory bandwidths in bytes; both are needed.
const RATE: Kind = Kind {
    name: "a rate",
    example: "100Gbps",
    units: &[
        ("bps", 1),
        ("Kbps", 1_000),
        ("Mbps", 1_000_000),
        ("Gbps", 1_000_000_000),
        ("Tbps", 1_000_000_000_000),
        ("B/s", 8),
        ("KB/s", 8_000),
        ("MB/s", 8_000_000),
        ("GB/s", 8_000_000_000),
        ("TB/s", 8_000_000_000_000),
        // As reports print them.
        ("b/s", 1),
        ("Kb/s", 1_000),
        ("Mb/s", 1_000_000),
        ("Gb/s", 1_000_000_000),
        ("Tb/s", 1_000_000_000_000),
    ],
    smallest: "bits per second",
    usual: "Gbps",
};

const FREQUENCY: Kind = Kind {
    name: "a frequency",
    example: "1.2GHz",
    units: &[
        ("Hz", 1),
        ("kHz", 1_000),
        ("MHz", 1_000_000),
        ("GHz", 1_000_000_000),
        ("/s", 1),
        ("K/s", 1_000),
        ("M/s", 1_000_000),
        ("G/s", 1_000_000_000),
    ],
    smallest: "events per second",
    usual: "/s",
};

const RATIO: Kind =
    Kind { name: "a ratio", example: "1/64", units: &[("", 1), ("%", 1)], smallest: "", usual: "" };

const LENGTH: Kind = Kind {
    name: "a length",
    example: "3m",
    units: &[("mm", 1), ("cm", 10), ("m", 1_000), ("km", 1_000_000)],
    smallest: "millimetres",
    usual: "m",
};

/// The length of a cable, in millimetres.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Length(pub u64);

/// Events per second: a clock in hertz or a rate of operations.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Frequency(pub u64);

impl Unit for Span {
    const KIND: &'static Kind = &TIME;

    fn parse(text: &str) -> Result<Self, QuantityError> {
        let text = text.replace(['µ', 'μ'], "u");
        parse_scaled(&text, &TIME).map(Span::from_ps)
    }

    fn print(self) -> String {
        if self.is_zero() {
            return "0ns".to_owned();
        }
        print_scaled(self.as_ps(), TIME.units)
    }

    fn is_zero(self) -> bool {
        self == Span::ZERO
    }

    fn magnitude(self) -> f64 {
        self.as_ps() as f64
    }
}

impl Unit for Bytes {
    const KIND: &'static Kind = &BYTES;

    fn parse(text: &str) -> Result<Self, QuantityError> {
        parse_scaled(text, &BYTES).map(Bytes)
    }

    /// The largest unit that divides the size: 4096 is `4KiB`, 220 is `220B`.
    fn print(self) -> String {
        let dividing = BYTES.units.iter().filter(|(_, f)| self.0 > 0 && self.0.is_multiple_of(*f));
        let (unit, factor) = dividing.max_by_key(|(_, f)| *f).unwrap_or(&BYTES.units[0]);
        format!("{}{unit}", self.0 / factor)
    }

    fn is_zero(self) -> bool {
        self.0 == 0
    }

    fn magnitude(self) -> f64 {
        self.0 as f64
    }
}

impl Unit for BitRate {
    const KIND: &'static Kind = &RATE;

    fn parse(text: &str) -> Result<Self, QuantityError> {
        let bps = parse_scaled(text, &RATE)?;
        BitRate::new(bps).ok_or_else(|| QuantityError::new(text, &RATE, Problem::Zero))
    }

    fn print(self) -> String {
        print_scaled(self.as_bps(), &RATE.units[..5])
    }

    fn is_zero(self) -> bool {
        false
    }

    fn magnitude(self) -> f64 {
        self.as_bps() as f64
    }
}

impl Unit for Frequency {
    const KIND: &'static Kind = &FREQUENCY;

    fn parse(text: &str) -> Result<Self, QuantityError> {
        parse_scaled(text, &FREQUENCY).map(Frequency)
    }

    fn print(self) -> String {
        print_scaled(self.0, &FREQUENCY.units[..4])
    }

    fn is_zero(self) -> bool {
        self.0 == 0
    }

    fn magnitude(self) -> f64 {
        self.0 as f64
    }
}

impl Unit for Length {
    const KIND: &'static Kind = &LENGTH;

    fn parse(text: &str) -> Result<Self, QuantityError> {
        parse_scaled(text, &LENGTH).map(Length)
    }

    fn print(self) -> String {
        if self.is_zero() {
            return "0m".to_owned();
        }
        print_scaled(self.0, LENGTH.units)
    }

    fn is_zero(self) -> bool {
        self.0 == 0
    }

    fn magnitude(self) -> f64 {
        self.0 as f64
    }
}

impl Unit for Ratio {
    const KIND: &'static Kind = &RATIO;

    fn parse(text: &str) -> Result<Self, QuantityError> {
        let fail = |problem| QuantityError::new(text, &RATIO, problem);
        let trimmed = text.trim();
        if trimmed.is_empty() {
            return Err(fail(Problem::Empty));
        }
        if trimmed.starts_with('-') {
            return Err(fail(Problem::Negative));
        }
        if let Some((num, den)) = trimmed.split_once('/') {
            let whole = |t: &str| t.trim().parse::<u64>().ok();
            let (Some(num), Some(den)) = (whole(num), whole(den)) else {
                return Err(fail(Problem::NotANumber));
            };
            return reduced(num.into(), den.into()).ok_or_else(|| fail(Problem::NotANumber));
        }
        let (number, percent) = match trimmed.strip_suffix('%') {
            Some(number) => (number.trim_end(), 100),
            None => (trimmed, 1),
        };
        let d = Decimal::parse(number).ok_or_else(|| fail(Problem::NotANumber))?;
        // 10^20 · 100 stays inside u128; the reduced fraction may still pass 64 bits.
        reduced(d.mantissa, 10u128.pow(d.decimals) * percent).ok_or_else(|| fail(Problem::TooLarge))
    }

    fn print(self) -> String {
        if self.den == 1 { self.num.to_string() } else { format!("{}/{}", self.num, self.den) }
    }

    fn is_zero(self) -> bool {
        self.num == 0
    }

    fn magnitude(self) -> f64 {
        self.num as f64 / self.den as f64
    }
}

/// The fraction in lowest terms; `None` for a zero denominator or past 64 bits.
fn reduced(num: u128, den: u128) -> Option<Ratio> {
    if den == 0 {
        return None;
    }
    let (mut a, mut b) = (num, den);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    Ratio::new(u64::try_from(num / a).ok()?, u64::try_from(den / a).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem<T: Unit>(text: &str) -> Problem {
        T::parse(text).expect_err(text).problem
    }

    #[test]
    fn times_are_exact() {
        assert_eq!(Span::parse("2us").unwrap(), Span::from_us(2));
        assert_eq!(Span::parse("1.5ns").unwrap(), Span::from_ps(1_500));
        assert_eq!(Span::parse("0ns").unwrap(), Span::ZERO);
        assert_eq!(Span::parse(" 4.096 µs ").unwrap(), Span::from_ps(4_096_000));
        assert_eq!(Span::parse("0.1s").unwrap(), Span::from_ms(100));
    }

    #[test]
    fn wrong_times_are_named() {
        assert_eq!(problem::<Span>("2"), Problem::NoUnit);
        assert_eq!(problem::<Span>("2KiB"), Problem::UnknownUnit("KiB".into()));
        assert_eq!(problem::<Span>("-2us"), Problem::Negative);
        assert_eq!(problem::<Span>("us"), Problem::NotANumber);
        assert_eq!(problem::<Span>(""), Problem::Empty);
        assert_eq!(problem::<Span>("0.1ps"), Problem::TooFine);
        assert!(Span::parse("18446744s").is_ok());
        assert_eq!(problem::<Span>("18446745s"), Problem::TooLarge);
        assert_eq!(problem::<Span>("1e3us"), Problem::UnknownUnit("e3us".into()));
    }

    #[test]
    fn sizes_know_both_kinds_of_kilo() {
        assert_eq!(Bytes::parse("4KiB").unwrap(), Bytes(4096));
        assert_eq!(Bytes::parse("1MB").unwrap(), Bytes(1_000_000));
        assert_eq!(Bytes::parse("1.5KiB").unwrap(), Bytes(1536));
        assert_eq!(problem::<Bytes>("0.5B"), Problem::TooFine);
        assert_eq!(problem::<Bytes>("64"), Problem::NoUnit);
        assert_eq!(problem::<Bytes>("64b"), Problem::UnknownUnit("b".into()));
    }

    #[test]
    fn rates_count_bits_and_bytes() {
        assert_eq!(BitRate::parse("100Gbps").unwrap(), BitRate::gbps(100));
        assert_eq!(BitRate::parse("30GB/s").unwrap(), BitRate::gbps(240));
        assert_eq!(problem::<BitRate>("0Gbps"), Problem::Zero);
    }

    #[test]
    fn ratios_come_as_fraction_percent_or_decimal() {
        let r = |n, d| Ratio::new(n, d).unwrap();
        assert_eq!(Ratio::parse("1/64").unwrap(), r(1, 64));
        assert_eq!(Ratio::parse("2/64").unwrap(), r(1, 32));
        assert_eq!(Ratio::parse("0.1%").unwrap(), r(1, 1000));
        assert_eq!(Ratio::parse("0.25").unwrap(), r(1, 4));
        assert_eq!(Ratio::parse("0").unwrap(), r(0, 1));
        assert_eq!(problem::<Ratio>("1/0"), Problem::NotANumber);
        assert_eq!(problem::<Ratio>("-1/2"), Problem::Negative);
        assert_eq!(problem::<Ratio>("half"), Problem::NotANumber);
    }

    #[test]
    fn printing_and_parsing_are_inverse() {
        for ps in [0, 1, 999, 1_500, 1_000_000, 4_096_000, u64::MAX] {
            let s = Span::from_ps(ps);
            assert_eq!(Span::parse(&s.print()).unwrap(), s);
        }
        for b in [0, 1, 220, 1024, 1_000_000, 4096, u64::MAX] {
            assert_eq!(Bytes::parse(&Bytes(b).print()).unwrap(), Bytes(b));
        }
        assert_eq!(Bytes(4096).print(), "4KiB");
        assert_eq!(BitRate::gbps(425).print(), "425Gbps");
        assert_eq!(Frequency(1_200_000_000).print(), "1.2GHz");
        assert_eq!(Ratio::parse("1/3").unwrap().print(), "1/3");
    }

    #[test]
    fn the_remedy_shows_the_units() {
        let e = Span::parse("64").unwrap_err();
        assert_eq!(e.to_string(), "\"64\" has no unit, expected a time");
        assert_eq!(e.remedy(), "write a time such as \"64us\"; its units are ps, ns, us, ms, s");
    }
}
