//! Arithmetic over metrics: terms and the operators `+ - * /` between spaces, from left to right.

use serde::Deserialize;
use serde::de::{Deserializer, Error as _};

/// `TERM OP TERM …`, evaluated from left to right.
#[derive(Clone, Debug, PartialEq)]
pub struct Expression {
    first: Term,
    rest: Vec<(Operator, Term)>,
}

/// A number or a metric.
#[derive(Clone, Debug, PartialEq)]
pub enum Term {
    /// A number.
    Number(f64),
    /// `RUN:METRIC`
    Metric {
        /// The run.
        run: String,
        /// What it yields, as expectations name it.
        metric: String,
    },
}

#[derive(Copy, Clone, Debug, PartialEq)]
enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
}

impl Term {
    fn parse(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some((run, metric)) if !run.is_empty() && !metric.is_empty() => {
                Ok(Self::Metric { run: run.to_owned(), metric: metric.to_owned() })
            }
            _ => text
                .parse()
                .map(Self::Number)
                .map_err(|_| format!("\"{text}\" is neither RUN:METRIC nor a number")),
        }
    }
}

impl Expression {
    fn parse(text: &str) -> Result<Self, String> {
        let mut words = text.split_whitespace();
        let first = Term::parse(words.next().ok_or("an empty expression")?)?;
        let mut rest = Vec::new();
        while let Some(word) = words.next() {
            let operator = match word {
                "+" => Operator::Add,
                "-" => Operator::Subtract,
                "*" => Operator::Multiply,
                "/" => Operator::Divide,
                other => return Err(format!("\"{other}\" is no operator: one of + - * /")),
            };
            let term = words.next().ok_or(format!("nothing behind `{word}`"))?;
            rest.push((operator, Term::parse(term)?));
        }
        Ok(Self { first, rest })
    }

    /// The terms in their order.
    pub fn terms(&self) -> impl Iterator<Item = &Term> {
        std::iter::once(&self.first).chain(self.rest.iter().map(|(_, t)| t))
    }

    /// The value, with the value of each term.
    ///
    /// # Errors
    /// What `of` says.
    pub fn value<E>(&self, mut of: impl FnMut(&Term) -> Result<f64, E>) -> Result<f64, E> {
        let mut value = of(&self.first)?;
        for (operator, term) in &self.rest {
            let right = of(term)?;
            value = match operator {
                Operator::Add => value + right,
                Operator::Subtract => value - right,
                Operator::Multiply => value * right,
                Operator::Divide => value / right,
            };
        }
        Ok(value)
    }
}

impl<'de> Deserialize<'de> for Expression {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(d)?).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Result<f64, String> {
        Expression::parse(text)?.value(|term| match term {
            Term::Number(n) => Ok(*n),
            Term::Metric { run, metric } => Ok((run.len() * 10 + metric.len()) as f64),
        })
    }

    #[test]
    fn from_left_to_right() {
        assert_eq!(value("a:xyz"), Ok(13.0));
        assert_eq!(value("a:xyz - 3 / 5"), Ok(2.0));
        assert_eq!(value("2 * ab:pcie.up.wqe-fetch.bytes + 1"), Ok(2.0 * 43.0 + 1.0));
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "a", "a:x b:y", "a:x -", ":x", "a: + 1", "a:x ^ 2"] {
            assert!(value(text).is_err(), "{text}");
        }
    }
}
