//! The one format for steps of tuning, while a program runs and beforehand.

use doorbell_core::policy::tuner::{self, Knob, Observation};
use doorbell_core::units::{BitRate, Bytes, Span};
use serde::Serialize;

use crate::quantity::Unit;
use crate::run::Metric;

/// One change, and the observation that caused it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct TuneStep {
    /// The window, or the run, after which it was made.
    pub at: String,
    /// What was changed: a knob or a path; several that were changed together, with commas.
    pub what: String,
    /// The value before.
    pub from: String,
    /// The value after.
    pub to: String,
    /// When it takes effect: `now`, `at the next QP`, `in the file`.
    pub when: String,
    /// Why.
    pub why: String,
    /// What was seen: names and values.
    pub saw: Vec<Seen>,
}

/// One value that was seen.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Seen {
    /// Its name.
    pub name: String,
    /// Its value, as people read it.
    pub value: String,
}

impl Seen {
    pub(crate) fn new(name: &str, value: impl Into<String>) -> Self {
        Self { name: name.to_owned(), value: value.into() }
    }
}

/// A value of a knob as people read it.
fn value(knob: Knob, n: u64) -> String {
    match knob {
        Knob::MaxDelay => Span::from_ps(n).print(),
        Knob::Pace => BitRate::new(n).map_or("0".to_owned(), Unit::print),
        Knob::ChunkBytes | Knob::Inline => Bytes(n).print(),
        Knob::MaxWrs | Knob::SignalEvery | Knob::Timeout | Knob::RetryCnt => n.to_string(),
        Knob::RnrTimer | Knob::RecvDepth | Knob::SendDepth => n.to_string(),
    }
}

fn seen(o: &Observation) -> Vec<Seen> {
    let mut seen = vec![
        Seen::new("rate", Metric::per_second(o.messages, o.time).text()),
        Seen::new("p50", Metric::time(o.p50).text()),
        Seen::new("p99", Metric::time(o.p99).text()),
        Seen::new("rings", o.rings.to_string()),
    ];
    let more = [
        ("rnr_naks", o.rnr_naks),
        ("sequence_naks", o.sequence_naks),
        ("timeouts", o.timeouts),
        ("queue", o.fill.into()),
    ];
    let there = more.iter().filter(|(_, n)| *n > 0);
    seen.extend(there.map(|(name, n)| Seen::new(name, n.to_string())));
    seen
}

impl From<&tuner::Step> for TuneStep {
    fn from(s: &tuner::Step) -> Self {
        Self {
            at: format!("window {}", s.window),
            what: s.knob.word().to_owned(),
            from: value(s.knob, s.from),
            to: value(s.knob, s.to),
            when: s.when().word().to_owned(),
            why: s.why.word().to_owned(),
            saw: seen(&s.saw),
        }
    }
}

impl TuneStep {
    /// What was seen, on one line.
    pub fn saw_text(&self) -> String {
        let each = self.saw.iter().map(|s| format!("{} {}", s.name, s.value));
        each.collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use doorbell_core::policy::tuner::{Step, Why};

    #[test]
    fn a_step_of_a_running_program_says_what_it_saw() {
        let saw = Observation {
            time: Span::from_us(50),
            messages: 100,
            p50: Span::from_us(2),
            p99: Span::from_us(9),
            rings: 25,
            rnr_naks: 3,
            ..Observation::default()
        };
        let step = Step {
            window: 7,
            knob: Knob::MaxDelay,
            from: 500_000,
            to: 1_000_000,
            why: Why::Trial,
            saw,
        };
        let shown = TuneStep::from(&step);
        let text =
            [shown.at.as_str(), &shown.what, &shown.from, &shown.to, &shown.when, &shown.why];
        assert_eq!(text, ["window 7", "max_delay", "500ns", "1us", "now", "trial"]);
        assert_eq!(shown.saw_text(), "rate 2 M/s, p50 2 us, p99 9 us, rings 25, rnr_naks 3");
        let of = |knob, n| value(knob, n);
        assert_eq!(of(Knob::Pace, 100_000_000_000), "100Gbps");
        assert_eq!(
            (of(Knob::ChunkBytes, 4096), of(Knob::Timeout, 14)),
            ("4KiB".into(), "14".into())
        );
    }
}
