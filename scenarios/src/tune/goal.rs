//! What is sought: a metric to raise or to lower, and conditions that others must keep.

use std::fmt;

use super::search::Rank;
use crate::expect::kind_fits;
use crate::input::{InputError, Origin, Source, suggestion};
use crate::quantity::Scalar;
use crate::run::{ExitKind, Found, Metric, Outcome};

/// Which way is better.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Aim {
    /// More.
    Max,
    /// Less.
    Min,
}

/// The metric that is sought.
#[derive(Clone, Debug)]
pub struct Objective {
    /// Which way is better.
    pub aim: Aim,
    /// Its name in results.
    pub metric: String,
    at: Origin,
}

/// A condition that a metric must keep.
#[derive(Clone, Debug)]
pub struct Keep {
    /// Name of the metric.
    pub metric: String,
    /// Whether it may be at most the bound; else at least.
    pub at_most: bool,
    /// The bound, itself allowed.
    pub bound: Scalar,
    at: Origin,
}

/// What is sought.
#[derive(Clone, Debug)]
pub struct Goal {
    /// The metric to raise or lower.
    pub objective: Objective,
    /// Conditions.
    pub keeps: Vec<Keep>,
}

fn whole(flag: &str, text: &str) -> Origin {
    let source = Source::new(flag, text);
    Origin { start: 0, end: source.text.len(), source }
}

impl Objective {
    /// Reads `max METRIC` or `min METRIC`.
    ///
    /// # Errors
    /// When it is neither.
    pub fn parse(text: &str) -> Result<Self, InputError> {
        Self::read(text, &whole("--objective", text))
    }

    /// The same, of a text that stands at `at`.
    pub(crate) fn read(text: &str, at: &Origin) -> Result<Self, InputError> {
        let mut words = text.split_whitespace();
        let (aim, metric) = match (words.next(), words.next(), words.next()) {
            (Some("max"), Some(metric), None) => (Aim::Max, metric.to_owned()),
            (Some("min"), Some(metric), None) => (Aim::Min, metric.to_owned()),
            _ => {
                let error = InputError::new(format!("\"{text}\" is no objective"));
                let help = "write `max METRIC` or `min METRIC`, such as \"max throughput\"";
                return Err(error.help(help).at(at));
            }
        };
        Ok(Self { aim, metric, at: at.clone() })
    }
}

impl Keep {
    /// Reads `METRIC <= VALUE` or `METRIC >= VALUE`.
    ///
    /// # Errors
    /// When it is neither, or the value is no number.
    pub fn parse(text: &str) -> Result<Self, InputError> {
        Self::read(text, &whole("--keep", text))
    }

    /// The same, of a text that stands at `at`.
    pub(crate) fn read(text: &str, at: &Origin) -> Result<Self, InputError> {
        let bad = |what: String| {
            let help =
                "write `METRIC <= VALUE` or `METRIC >= VALUE`, such as \"latency.p99 <= 20us\"";
            InputError::new(what).help(help).at(at)
        };
        let parts = |sign| text.split_once(sign).map(|(a, b)| (a.trim(), b.trim()));
        let (at_most, (metric, bound)) = match (parts("<="), parts(">=")) {
            (Some(parts), None) => (true, parts),
            (None, Some(parts)) => (false, parts),
            _ => return Err(bad(format!("\"{text}\" is no condition"))),
        };
        if metric.is_empty() || metric.contains(char::is_whitespace) {
            return Err(bad(format!("\"{metric}\" is no name of a metric")));
        }
        let value: String = bound.split_whitespace().collect();
        let number = value.parse().ok().map(Scalar::Count);
        let decimal = || value.parse().ok().filter(|x: &f64| x.is_finite()).map(Scalar::Decimal);
        let Some(bound) = number.or_else(decimal).or_else(|| Scalar::parse(&value)) else {
            return Err(bad(format!("\"{bound}\" is no number and no quantity")));
        };
        Ok(Self { metric: metric.to_owned(), at_most, bound, at: at.clone() })
    }

    /// How far a value breaks it, in parts of the bound; 0 if it keeps it.
    fn broken_by(&self, value: &Metric) -> f64 {
        let (found, bound) = (value.number(), self.bound.number());
        let over = if self.at_most { found - bound } else { bound - found };
        match over > 0.0 {
            false => 0.0,
            true if bound > 0.0 => over / bound,
            true => over,
        }
    }
}

impl fmt::Display for Objective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let aim = if self.aim == Aim::Max { "max" } else { "min" };
        write!(f, "{aim} {}", self.metric)
    }
}

impl fmt::Display for Keep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.at_most { "<=" } else { ">=" };
        write!(f, "{} {sign} {}", self.metric, self.bound.print())
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.objective.fmt(f)?;
        self.keeps.iter().try_for_each(|keep| write!(f, ", {keep}"))
    }
}

/// The number of this name.
fn number(outcome: &Outcome, name: &str, at: &Origin) -> Result<Metric, InputError> {
    match outcome.find(name) {
        Some(Found::Number(metric)) => Ok(metric),
        Some(Found::Word(word)) => {
            let error = InputError::new(format!("`{name}` is the word \"{word}\", not a number"));
            Err(error.help("name a number that can be more or less").at(at))
        }
        None => {
            let names = outcome.names();
            let help = suggestion(name, names.iter().map(String::as_str), "metrics");
            Err(InputError::new(format!("the run has no metric `{name}`")).help(help).at(at))
        }
    }
}

impl Goal {
    /// Whether an outcome has all that is asked for.
    ///
    /// # Errors
    /// When a metric is not there, is a word, or is of another kind than its bound.
    pub fn check(&self, outcome: &Outcome) -> Result<(), InputError> {
        number(outcome, &self.objective.metric, &self.objective.at)?;
        for keep in &self.keeps {
            let metric = number(outcome, &keep.metric, &keep.at)?;
            kind_fits(metric.unit, keep.bound).map_err(|why| {
                InputError::new(format!("`{}` cannot keep this bound", keep.metric))
                    .help(why)
                    .at(&keep.at)
            })?;
        }
        Ok(())
    }

    /// The metrics that decide: the objective, then those of the conditions. A metric that this
    /// outcome has not is left out.
    pub fn values(&self, outcome: &Outcome) -> Vec<(String, Metric)> {
        let names = std::iter::once(&self.objective.metric)
            .chain(self.keeps.iter().map(|k| &k.metric).filter(|m| **m != self.objective.metric));
        let found = |name: &String| match outcome.find(name) {
            Some(Found::Number(metric)) => Some((name.clone(), metric)),
            _ => None,
        };
        names.filter_map(found).collect()
    }

    /// How good an outcome is. One that lacks a metric counts as failed.
    pub fn rank(&self, outcome: &Outcome) -> Rank {
        let number = |name: &str| match outcome.find(name) {
            Some(Found::Number(metric)) => Some(metric),
            _ => None,
        };
        let Some(value) = number(&self.objective.metric) else { return Rank::failed() };
        if outcome.exit.kind != ExitKind::Ok {
            return Rank::failed();
        }
        let mut broken = 0.0;
        for keep in &self.keeps {
            let Some(metric) = number(&keep.metric) else { return Rank::failed() };
            broken += keep.broken_by(&metric);
        }
        match (broken > 0.0, self.objective.aim) {
            (true, _) => Rank::breaks(broken),
            (false, Aim::Max) => Rank::good(-value.number()),
            (false, Aim::Min) => Rank::good(value.number()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use doorbell_core::units::Span;

    fn outcome(rate: u64, us: u64) -> Outcome {
        let mut o = Outcome::default();
        o.metrics.insert("rate".into(), Metric::count(rate));
        o.metrics.insert("time".into(), Metric::time(Span::from_us(us)));
        o
    }

    fn goal(objective: &str, keeps: &[&str]) -> Goal {
        let keeps = keeps.iter().map(|k| Keep::parse(k).unwrap()).collect();
        Goal { objective: Objective::parse(objective).unwrap(), keeps }
    }

    #[test]
    fn goals_are_read_and_printed() {
        let g = goal(" max  rate ", &["time<=20 us", "rate >= 3", "share <= 0.5"]);
        let shown: Vec<String> = g.keeps.iter().map(Keep::to_string).collect();
        assert_eq!(g.objective.to_string(), "max rate");
        assert_eq!(shown, ["time <= 20us", "rate >= 3", "share <= 0.5"]);
    }

    #[test]
    fn what_is_no_goal_is_refused_with_what_to_write() {
        for bad in ["", "rate", "most rate", "max", "max rate now"] {
            let e = Objective::parse(bad).unwrap_err();
            assert!(e.remedy().unwrap().contains("max METRIC"), "{bad}");
        }
        for bad in ["", "time", "time < 3us", "time = 3us", "<= 3us", "a b <= 3", "time <= soon"] {
            let e = Keep::parse(bad).unwrap_err();
            assert!(e.remedy().unwrap().contains("METRIC <= VALUE"), "{bad}");
        }
    }

    #[test]
    fn metrics_that_are_not_there_are_words_or_of_another_kind_are_named() {
        let o = outcome(5, 7);
        let error = |g: Goal| g.check(&o).unwrap_err().to_string();
        assert!(
            error(goal("max rat", &[])).contains("--objective:1:1: the run has no metric `rat`")
        );
        assert!(error(goal("max exit", &[])).contains("is the word \"ok\", not a number"));
        assert!(error(goal("max rate", &["time <= 3"])).contains("cannot keep this bound"));
        assert!(error(goal("max rate", &["rate <= 3us"])).contains("--keep:1:1"));
        assert!(goal("max rate", &["time <= 7us", "time >= 0"]).check(&o).is_ok());
    }

    #[test]
    fn conditions_come_first_and_both_sides_of_a_bound_differ() {
        let g = goal("max rate", &["time <= 20us"]);
        let rank = |rate, us| g.rank(&outcome(rate, us));
        assert!(rank(5, 20).is_good() && !rank(5, 21).is_good());
        assert!(rank(5, 20).beats(rank(900, 21)));
        assert!(rank(6, 20).beats(rank(5, 1)));
        assert!(rank(1, 21).beats(rank(9, 22)), "nearer to the bound");
        let mut failed = outcome(9, 1);
        failed.exit.kind = ExitKind::NoProgress;
        assert!(rank(1, 900).beats(g.rank(&failed)));
        assert_eq!(g.rank(&Outcome::default()), Rank::failed());
        let less = goal("min time", &[]);
        assert!(less.rank(&outcome(1, 3)).beats(less.rank(&outcome(1, 4))));
        let zero = goal("max rate", &["time <= 0"]);
        assert!(zero.rank(&outcome(1, 1)).beats(zero.rank(&outcome(1, 2))));
    }
}
