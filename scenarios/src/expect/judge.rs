//! All expectations of a file, and what nobody expected.

use super::pair::{Pairing, pair};
use super::select::{Results, Trouble};
use super::{Check, Status, Verdict, axis, single};
use crate::format::{Bound, Expect, SettingValue, Target, scalar};
use crate::quantity::Unit;
use crate::run::{ExitKind, Run};

/// Judges `runs`. A run that ended badly without an `exit` expectation about it adds a failed
/// verdict: what nobody expected is never silently right.
pub fn judge(expects: &[Expect], runs: &[Run], fixed_axes: &[String]) -> Vec<Verdict> {
    let results = Results { runs, fixed_axes };
    let mut verdicts: Vec<Verdict> = expects.iter().map(|e| verdict(e, &results)).collect();
    let unexpected: Vec<usize> =
        of_unexpected(expects, &results).map(|run| run.point.index).collect();
    let check = |run: &Run| {
        let exit = &run.outcome.exit;
        let found = format!("{}: {}", exit.kind.word(), exit.reason);
        Check { at: run.point.label(), found, ok: !unexpected.contains(&run.point.index) }
    };
    // All of them, so that it is told of how many these are.
    let checks: Vec<Check> = runs.iter().map(check).collect();
    if !unexpected.is_empty() {
        verdicts.push(Verdict {
            kind: "exit".to_owned(),
            expected: "every run ends well".to_owned(),
            why: "no `exit` expectation says otherwise".to_owned(),
            status: Status::Failed,
            checks,
            problem: String::new(),
        });
    }
    verdicts
}

/// Runs that ended otherwise than well, and of which no `exit` expectation speaks.
pub fn unexpected<'a>(
    expects: &'a [Expect],
    runs: &'a [Run],
    fixed_axes: &'a [String],
) -> Vec<&'a Run> {
    of_unexpected(expects, &Results { runs, fixed_axes }).collect()
}

fn of_unexpected<'a>(
    expects: &'a [Expect],
    results: &Results<'a>,
) -> impl Iterator<Item = &'a Run> {
    let bad = |run: &&Run| run.outcome.exit.kind != ExitKind::Ok;
    results.runs.iter().filter(bad).filter(move |run| !is_expected(run, expects, results))
}

/// Whether an `exit` expectation is about this run.
fn is_expected(run: &Run, expects: &[Expect], results: &Results<'_>) -> bool {
    expects.iter().any(|expect| match expect {
        Expect::Exit(e) => {
            let selected = results.select(&e.variants.0, &e.fixed).unwrap_or_default();
            selected.iter().any(|s| s.point.index == run.point.index)
        }
        _ => false,
    })
}

fn verdict(expect: &Expect, results: &Results<'_>) -> Verdict {
    let judged = match expect {
        Expect::Range(e) => single::range(results, e),
        Expect::Equals(e) => single::equals(results, e),
        Expect::Exit(e) => single::exit(results, e),
        Expect::Ratio(e) => pair(results, e, Pairing::Ratio),
        Expect::Difference(e) => pair(results, e, Pairing::Difference),
        Expect::Monotone(e) => axis::monotone(results, e),
        Expect::ArgMax(e) => axis::arg_best(results, e, true),
        Expect::ArgMin(e) => axis::arg_best(results, e, false),
        Expect::Count(e) => axis::count(results, e),
        Expect::Crossover(e) => axis::crossover(results, e),
    };
    let (status, checks, problem) = match judged {
        Ok(checks) if checks.iter().all(|c| c.ok) => (Status::Passed, checks, String::new()),
        Ok(checks) => (Status::Failed, checks, String::new()),
        Err(Trouble::Skipped(why)) => (Status::Skipped, Vec::new(), why),
        Err(Trouble::Invalid(why)) => (Status::Invalid, Vec::new(), why),
    };
    Verdict {
        kind: expect.kind().to_owned(),
        expected: describe(expect),
        why: expect.why().to_owned(),
        status,
        checks,
        problem,
    }
}

/// The expectation in words.
fn describe(expect: &Expect) -> String {
    match expect {
        Expect::Range(e) => format!("{} {}", e.metric, limits(e.min, e.max)),
        Expect::Equals(e) => {
            let value = match &e.value {
                Target::Number(scalar) => scalar.print(),
                Target::Word(word) => word.clone(),
            };
            format!("{} = {value}", e.metric)
        }
        Expect::Ratio(e) | Expect::Difference(e) => {
            let sign = if matches!(expect, Expect::Ratio(_)) { "/" } else { "-" };
            let second = e.to_metric.as_deref().unwrap_or(&e.metric);
            format!("{} {sign} {second} {}", e.metric, limits(e.min, e.max))
        }
        Expect::Monotone(e) => {
            let strictly = if e.strict { "strictly " } else { "" };
            let way = match e.direction {
                crate::format::Direction::Rising => "rises",
                crate::format::Direction::Falling => "falls",
            };
            let but = match e.tolerance.0.is_zero() {
                true => String::new(),
                false => format!(", give or take {}", e.tolerance.0.print()),
            };
            format!("{} {strictly}{way} over {}{but}", e.metric, e.over)
        }
        Expect::ArgMax(e) | Expect::ArgMin(e) => {
            let best = if matches!(expect, Expect::ArgMax(_)) { "largest" } else { "smallest" };
            format!("{} is {best} at {} {}", e.metric, e.over, span(&e.between))
        }
        Expect::Count(e) => {
            let (least, most) = (e.at_least.map(|n| n.value()), e.at_most.map(|n| n.value()));
            let times = match (least, most) {
                (Some(a), Some(b)) => format!("{a} to {b}"),
                (Some(a), None) => format!("{a} or more"),
                (None, b) => format!("no more than {}", b.unwrap_or(0)),
            };
            format!("{} {} for {times} of {}", e.metric, limits(e.min, e.max), e.over)
        }
        Expect::Crossover(e) => format!(
            "{} of {} passes that of {} at {} {}",
            e.metric,
            e.of,
            e.to,
            e.over,
            span(&e.between)
        ),
        Expect::Exit(e) => match &e.reason {
            Some(reason) => format!("exit {} with \"{reason}\"", e.status.word()),
            None => format!("exit {}", e.status.word()),
        },
    }
}

fn limits(min: Option<Bound>, max: Option<Bound>) -> String {
    match (min, max) {
        (Some(a), Some(b)) if a == b => format!("= {}", a.0.print()),
        (Some(a), Some(b)) => format!("from {} to {}", a.0.print(), b.0.print()),
        (Some(a), None) => format!("at least {}", a.0.print()),
        (None, Some(b)) => format!("at most {}", b.0.print()),
        (None, None) => String::new(),
    }
}

fn span([from, to]: &[SettingValue; 2]) -> String {
    let text = |value| scalar(value).map_or_else(|| "?".to_owned(), |s| s.print());
    let (from, to) = (text(from), text(to));
    if from == to { from } else { format!("{from} to {to}") }
}
