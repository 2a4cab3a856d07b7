//! Values with their unit in the text: `"2us"`, `"4KiB"`, `"100Gbps"`, `"1/64"`.
//!
//! Every conversion is exact. A text that is not a whole number of the smallest unit (a
//! picosecond, a byte, a bit per second) is refused: silently rounding `"0.4ps"` would answer
//! another question than the one that was asked.

mod decimal;
mod kinds;
#[cfg(test)]
mod properties;
mod scalar;
mod serde_impl;

use std::fmt;

pub(crate) use decimal::Decimal;
pub use kinds::{Frequency, Length};
pub use scalar::Scalar;
pub use serde_impl::{Count, Positive, Quantity};

use decimal::NotWhole;

/// A kind of quantity: what it is called, an example, and its units with their factors.
#[derive(Debug)]
pub struct Kind {
    /// What the quantity is, with its article: `a time`.
    pub name: &'static str,
    /// A text that parses, for error messages.
    pub example: &'static str,
    /// Unit and its multiple of the smallest unit. The first is the smallest.
    pub units: &'static [(&'static str, u64)],
    /// The smallest unit in words, for "is not a whole number of …".
    pub smallest: &'static str,
    /// The unit to suggest for a bare number.
    pub usual: &'static str,
}

/// A type whose values are written as a number with a unit.
pub trait Unit: Copy + PartialEq + fmt::Debug + Sized {
    /// Names and units.
    const KIND: &'static Kind;

    /// Reads the text.
    ///
    /// # Errors
    /// When the text has no number, no or an unknown unit, or no exact value in this type.
    fn parse(text: &str) -> Result<Self, QuantityError>;

    /// Writes the value so that [`Unit::parse`] gives it back.
    fn print(self) -> String;

    /// Whether the value is zero.
    fn is_zero(self) -> bool;

    /// The value in the smallest unit, for comparing values of one kind.
    fn magnitude(self) -> f64;
}

/// What is wrong with the text of a quantity.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Problem {
    /// No text at all.
    Empty,
    /// It starts with a minus sign.
    Negative,
    /// No number in front of the unit.
    NotANumber,
    /// A number without its unit.
    NoUnit,
    /// The unit is none of this kind's.
    UnknownUnit(String),
    /// Between two whole numbers of the smallest unit.
    TooFine,
    /// Past the range of 64 bits.
    TooLarge,
    /// Zero where only a positive value makes sense.
    Zero,
}

/// A text that is not a quantity of the wanted kind, with the remedy.
#[derive(Clone, Debug)]
pub struct QuantityError {
    /// The text as given.
    pub text: String,
    /// The kind that was wanted.
    pub kind: &'static Kind,
    /// What is wrong.
    pub problem: Problem,
}

impl QuantityError {
    fn new(text: &str, kind: &'static Kind, problem: Problem) -> Self {
        Self { text: text.to_owned(), kind, problem }
    }

    /// What to write instead.
    pub fn remedy(&self) -> String {
        let Kind { name, example, units, usual, .. } = self.kind;
        let units: Vec<&str> = units.iter().map(|(u, _)| *u).filter(|u| !u.is_empty()).collect();
        let example = match &self.problem {
            Problem::NoUnit => format!("{}{usual}", self.text.trim()),
            _ => (*example).to_owned(),
        };
        if units.is_empty() {
            return format!("write {name} such as \"{example}\"");
        }
        format!("write {name} such as \"{example}\"; its units are {}", units.join(", "))
    }
}

impl fmt::Display for QuantityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { text, kind, problem } = self;
        let name = kind.name;
        match problem {
            Problem::Empty => write!(f, "empty text, expected {name}"),
            Problem::Negative => write!(f, "\"{text}\" is negative, and {name} cannot be"),
            Problem::NotANumber => write!(f, "\"{text}\" is not {name}"),
            Problem::NoUnit => write!(f, "\"{text}\" has no unit, expected {name}"),
            Problem::UnknownUnit(unit) => {
                write!(f, "\"{text}\" has the unit `{unit}`, which is no unit of {name}")
            }
            Problem::TooFine => {
                write!(f, "\"{text}\" is not a whole number of {}", kind.smallest)
            }
            Problem::TooLarge => write!(f, "\"{text}\" is too large for {name}"),
            Problem::Zero => write!(f, "\"{text}\" is zero, which is impossible here"),
        }
    }
}

impl std::error::Error for QuantityError {}

/// Reads "number unit" into the smallest unit of `kind`.
fn parse_scaled(text: &str, kind: &'static Kind) -> Result<u64, QuantityError> {
    let fail = |problem| Err(QuantityError::new(text, kind, problem));
    let trimmed = text.trim();
    if trimmed.is_empty() {
        return fail(Problem::Empty);
    }
    if trimmed.starts_with('-') {
        return fail(Problem::Negative);
    }
    let end = trimmed
        .find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_')
        .unwrap_or(trimmed.len());
    let (number, unit) = (&trimmed[..end], trimmed[end..].trim_start());
    let Some(number) = Decimal::parse(number) else {
        return fail(Problem::NotANumber);
    };
    if unit.is_empty() {
        return fail(Problem::NoUnit);
    }
    let Some((_, factor)) = kind.units.iter().find(|(name, _)| *name == unit) else {
        return fail(Problem::UnknownUnit(unit.to_owned()));
    };
    match number.times(*factor) {
        Ok(value) => Ok(value),
        Err(NotWhole::TooFine) => fail(Problem::TooFine),
        Err(NotWhole::TooLarge) => fail(Problem::TooLarge),
    }
}

/// The number with the largest decimal unit that leaves at least one in front of the point.
fn print_scaled(value: u64, units: &[(&str, u64)]) -> String {
    let fitting = units.iter().filter(|(_, factor)| value >= *factor).max_by_key(|(_, f)| *f);
    let (unit, factor) = fitting.unwrap_or(&units[0]);
    format!("{}{unit}", decimal::print(value, *factor))
}
