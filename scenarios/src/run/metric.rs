//! Measured values: integers or exact fractions with a unit.

use doorbell_core::units::{BitRate, Bytes, Ratio, Span};
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use crate::quantity::{Frequency, Scalar, Unit};

/// What a metric counts.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum MetricUnit {
    /// Things.
    Count,
    /// Picoseconds.
    Time,
    /// Bytes.
    Bytes,
    /// Bits per second.
    Rate,
    /// Events per second.
    PerSecond,
    /// A share or a quotient.
    Ratio,
}

impl MetricUnit {
    /// The unit of the number in JSON.
    pub const fn symbol(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Time => "ps",
            Self::Bytes => "B",
            Self::Rate => "bit/s",
            Self::PerSecond => "1/s",
            Self::Ratio => "1",
        }
    }
}

/// The number of a metric.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum MetricValue {
    /// A whole number of the unit.
    Integer(u64),
    /// A fraction of the unit.
    Fraction(Ratio),
}

/// A measured value.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Metric {
    /// The number.
    pub value: MetricValue,
    /// What it counts.
    pub unit: MetricUnit,
}

impl Metric {
    /// `n` things.
    pub const fn count(n: u64) -> Self {
        Self { value: MetricValue::Integer(n), unit: MetricUnit::Count }
    }

    /// A time.
    pub const fn time(span: Span) -> Self {
        Self { value: MetricValue::Integer(span.as_ps()), unit: MetricUnit::Time }
    }

    /// A size.
    pub const fn bytes(n: u64) -> Self {
        Self { value: MetricValue::Integer(n), unit: MetricUnit::Bytes }
    }

    /// `bytes` in `span` as bits per second, rounded down; zero for no time.
    pub fn rate(bytes: u64, span: Span) -> Self {
        let bits = u128::from(bytes) * 8;
        Self { value: MetricValue::Integer(per_second(bits, span)), unit: MetricUnit::Rate }
    }

    /// `count` events in `span` as events per second, rounded down; zero for no time.
    pub fn per_second(count: u64, span: Span) -> Self {
        let value = MetricValue::Integer(per_second(count.into(), span));
        Self { value, unit: MetricUnit::PerSecond }
    }

    /// `num / den`; zero when `den` is zero, as with "busy of no time".
    pub fn ratio(num: u64, den: u64) -> Self {
        let ratio = Ratio::new(num, den).unwrap_or(Ratio { num: 0, den: 1 });
        Self { value: MetricValue::Fraction(ratio), unit: MetricUnit::Ratio }
    }

    /// The value as a float, for reports and expectations.
    pub fn number(&self) -> f64 {
        match self.value {
            MetricValue::Integer(n) => n as f64,
            MetricValue::Fraction(r) => r.magnitude(),
        }
    }

    /// The value with its kind, for comparisons with what a file says.
    pub fn scalar(&self) -> Scalar {
        match (self.value, self.unit) {
            (MetricValue::Fraction(r), _) => Scalar::Ratio(r),
            (MetricValue::Integer(n), unit) => match unit {
                MetricUnit::Count | MetricUnit::Ratio => Scalar::Count(n),
                MetricUnit::Time => Scalar::Time(Span::from_ps(n)),
                MetricUnit::Bytes => Scalar::Bytes(Bytes(n)),
                // A rate of zero is a measurement, though no setting.
                MetricUnit::Rate => BitRate::new(n).map_or(Scalar::Count(0), Scalar::Rate),
                MetricUnit::PerSecond => Scalar::Frequency(Frequency(n)),
            },
        }
    }

    /// The value as people read it, three to four digits.
    pub fn text(&self) -> String {
        number_text(self.number(), self.unit)
    }
}

fn per_second(count: u128, span: Span) -> u64 {
    const PS_PER_S: u128 = 1_000_000_000_000;
    match u128::from(span.as_ps()) {
        0 => 0,
        ps => u64::try_from(count * PS_PER_S / ps).unwrap_or(u64::MAX),
    }
}

/// A number of `unit` as people read it.
pub(crate) fn number_text(number: f64, unit: MetricUnit) -> String {
    let scaled = |steps: &[(f64, &str)]| {
        let (factor, unit) =
            steps.iter().rev().find(|(factor, _)| number.abs() >= *factor).unwrap_or(&steps[0]);
        format!("{} {unit}", digits(number / factor)).trim_end().to_owned()
    };
    match unit {
        MetricUnit::Count => digits_exact(number),
        MetricUnit::Time => {
            scaled(&[(1.0, "ps"), (1e3, "ns"), (1e6, "us"), (1e9, "ms"), (1e12, "s")])
        }
        MetricUnit::Bytes => scaled(&[(1.0, "B"), (1e6, "MB"), (1e9, "GB"), (1e12, "TB")]),
        MetricUnit::Rate => {
            scaled(&[(1.0, "b/s"), (1e3, "Kb/s"), (1e6, "Mb/s"), (1e9, "Gb/s"), (1e12, "Tb/s")])
        }
        MetricUnit::PerSecond => scaled(&[(1.0, "/s"), (1e3, "K/s"), (1e6, "M/s"), (1e9, "G/s")]),
        MetricUnit::Ratio => format!("{number:.3}"),
    }
}

/// Whole numbers in full, others with three decimals.
fn digits_exact(number: f64) -> String {
    if number.fract() == 0.0 { format!("{number:.0}") } else { format!("{number:.3}") }
}

/// Whole numbers in full, others with four significant digits.
fn digits(number: f64) -> String {
    let size = number.abs();
    if number.fract() == 0.0 {
        return format!("{number:.0}");
    }
    match size {
        s if s >= 100.0 => format!("{number:.1}"),
        s if s >= 10.0 => format!("{number:.2}"),
        _ => format!("{number:.3}"),
    }
}

impl Serialize for Metric {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let mut map = s.serialize_map(None)?;
        match self.value {
            MetricValue::Integer(n) => map.serialize_entry("value", &n)?,
            MetricValue::Fraction(r) => {
                map.serialize_entry("value", &self.number())?;
                map.serialize_entry("num", &r.num)?;
                map.serialize_entry("den", &r.den)?;
            }
        }
        map.serialize_entry("unit", self.unit.symbol())?;
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_exact_beyond_64_bits_of_products() {
        let m = Metric::rate(50_000_000_000, Span::from_ms(1000));
        assert_eq!(m.value, MetricValue::Integer(400_000_000_000));
        assert_eq!(Metric::per_second(3, Span::ZERO).value, MetricValue::Integer(0));
        assert_eq!(Metric::per_second(1, Span::from_us(2)).value, MetricValue::Integer(500_000));
    }

    #[test]
    fn texts_fit_people() {
        assert_eq!(Metric::time(Span::from_ps(2_345_600)).text(), "2.346 us");
        assert_eq!(Metric::time(Span::ZERO).text(), "0 ps");
        assert_eq!(Metric::count(12_345).text(), "12345");
        assert_eq!(Metric::rate(50_000_000_000, Span::from_ms(1000)).text(), "400 Gb/s");
        assert_eq!(Metric::ratio(1, 3).text(), "0.333");
        assert_eq!(Metric::bytes(1534).text(), "1534 B");
    }
}
