//! A number of any kind, for sweeps and expectations, where the setting decides the kind.

use doorbell_core::units::{BitRate, Bytes, Ratio, Span};

use super::{Frequency, Unit};

/// A plain number or a quantity of any kind.
#[derive(Copy, Clone, PartialEq, Debug)]
pub enum Scalar {
    /// A whole number without a unit.
    Count(u64),
    /// A decimal number without a unit.
    Decimal(f64),
    /// A fraction.
    Ratio(Ratio),
    /// A time.
    Time(Span),
    /// A size.
    Bytes(Bytes),
    /// A rate in bits.
    Rate(BitRate),
    /// Events per second.
    Frequency(Frequency),
}

impl Scalar {
    /// Reads a quantity of any kind.
    pub fn parse(text: &str) -> Option<Self> {
        fn one<T: Unit>(text: &str, wrap: impl Fn(T) -> Scalar) -> Option<Scalar> {
            T::parse(text).ok().map(wrap)
        }
        one(text, Self::Time)
            .or_else(|| one(text, Self::Bytes))
            .or_else(|| one(text, Self::Rate))
            .or_else(|| one(text, Self::Frequency))
            .or_else(|| one(text, Self::Ratio))
    }

    /// The value in the smallest unit of its kind.
    pub fn number(self) -> f64 {
        match self {
            Self::Count(n) => n as f64,
            Self::Decimal(x) => x,
            Self::Ratio(r) => r.magnitude(),
            Self::Time(t) => t.magnitude(),
            Self::Bytes(b) => b.magnitude(),
            Self::Rate(r) => r.magnitude(),
            Self::Frequency(f) => f.magnitude(),
        }
    }

    /// Whether it has no unit.
    pub fn is_plain(self) -> bool {
        matches!(self, Self::Count(_) | Self::Decimal(_) | Self::Ratio(_))
    }

    /// Whether both measure the same thing.
    pub fn same_kind(self, other: Self) -> bool {
        (self.is_plain() && other.is_plain())
            || std::mem::discriminant(&self) == std::mem::discriminant(&other)
    }

    /// The whole number of the smallest unit; `None` for fractions.
    pub fn whole(self) -> Option<u64> {
        match self {
            Self::Count(n) | Self::Bytes(Bytes(n)) | Self::Frequency(Frequency(n)) => Some(n),
            Self::Time(t) => Some(t.as_ps()),
            Self::Rate(r) => Some(r.as_bps()),
            Self::Decimal(_) | Self::Ratio(_) => None,
        }
    }

    /// A value of the same kind; `None` for fractions and for a rate of zero.
    pub fn like(self, whole: u64) -> Option<Self> {
        Some(match self {
            Self::Count(_) => Self::Count(whole),
            Self::Bytes(_) => Self::Bytes(Bytes(whole)),
            Self::Frequency(_) => Self::Frequency(Frequency(whole)),
            Self::Time(_) => Self::Time(Span::from_ps(whole)),
            Self::Rate(_) => Self::Rate(BitRate::new(whole)?),
            Self::Decimal(_) | Self::Ratio(_) => return None,
        })
    }

    /// The value as it would stand in a file.
    pub fn print(self) -> String {
        match self {
            Self::Count(n) => n.to_string(),
            Self::Decimal(x) => x.to_string(),
            Self::Ratio(r) => r.print(),
            Self::Time(t) => t.print(),
            Self::Bytes(b) => b.print(),
            Self::Rate(r) => r.print(),
            Self::Frequency(f) => f.print(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_recognised() {
        for (text, number, plain) in [
            ("2us", 2e6, false),
            ("4KiB", 4096.0, false),
            ("100Gbps", 1e11, false),
            ("400 Gb/s", 4e11, false),
            ("30GB/s", 2.4e11, false),
            ("10M/s", 1e7, false),
            ("1/4", 0.25, true),
            ("7", 7.0, true),
        ] {
            let scalar = Scalar::parse(text).expect(text);
            assert_eq!((scalar.number(), scalar.is_plain()), (number, plain), "{text}");
            assert!(Scalar::parse(&scalar.print()).expect(text).same_kind(scalar));
        }
        assert_eq!(Scalar::parse("auto"), None);
        assert!(!Scalar::parse("2us").unwrap().same_kind(Scalar::parse("2B").unwrap()));
        assert!(Scalar::Count(1).same_kind(Scalar::Decimal(0.5)));
    }
}
