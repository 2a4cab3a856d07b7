//! Runs of combinations: each at most once, several at a time.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::knobs::{index_in, toml_text};
use super::{Measure, Method, Place, Rank, Seen, Tried, TuneStep, Tuned, Tuning};
use crate::format::Axis;
use crate::format::expand::{Expanded, expand_only};
use crate::format::load::{Loaded, shown};
use crate::input::InputError;
use crate::profile::Profiles;
use crate::run::{ExitKind, Outcome, Runner, at_setting};

pub(super) struct Runs<'a> {
    runner: &'a (dyn Runner + Sync),
    tuning: &'a Tuning,
    profiles: &'a mut Profiles,
    /// Runs that are left.
    left: usize,
    tried: Vec<Tried>,
    /// Index in `tried`.
    known: BTreeMap<Place, usize>,
    steps: Vec<TuneStep>,
    /// Combinations that the file refused, and why it refused the first.
    refused: usize,
    refusal: Option<InputError>,
}

impl<'a> Runs<'a> {
    pub(super) fn new(
        runner: &'a (dyn Runner + Sync),
        tuning: &'a Tuning,
        profiles: &'a mut Profiles,
    ) -> Self {
        let left = match tuning.method {
            Method::Search { runs } => runs,
            Method::Grid => usize::MAX,
        };
        let (tried, known, steps) = (vec![], BTreeMap::new(), vec![]);
        let (refused, refusal) = (0, None);
        Self { runner, tuning, profiles, left, tried, known, steps, refused, refusal }
    }

    /// The file with these values of the knobs, ready to run.
    fn point(&mut self, place: Option<&Place>) -> Result<Expanded, InputError> {
        let mut loaded: Loaded = self.tuning.loaded.clone();
        loaded.axes = match place {
            None => vec![],
            Some(place) => {
                let one = |(knob, at): (&Axis, &usize)| Axis {
                    values: vec![knob.values[*at].clone()],
                    ..knob.clone()
                };
                self.tuning.knobs.iter().zip(place).map(one).collect()
            }
        };
        let mut points = expand_only(&loaded, self.profiles, self.tuning.variant.as_deref())?;
        debug_assert_eq!(points.len(), 1, "one variant, one value for each axis");
        Ok(points.remove(0))
    }

    /// Runs the file as it stands; the place from which to search: its own values where they are
    /// among those of the knobs, else the middle ones.
    pub(super) fn baseline(&mut self) -> Result<Place, InputError> {
        let expanded = self.point(None)?;
        let outcome =
            self.runner.run(&expanded.point).map_err(|e| at_setting(e, &expanded.tree))?;
        if outcome.exit.kind != ExitKind::Ok {
            let (kind, reason) = (outcome.exit.kind.word(), &outcome.exit.reason);
            let text = format!("the file as it stands ends with {kind}: {reason}");
            let help = "begin with a file that runs to its end; `doorbell run` tells what is wrong";
            return Err(InputError::new(text).help(help).at(&expanded.tree.origin));
        }
        self.tuning.goal.check(&outcome)?;
        self.left = self.left.saturating_sub(1);
        let tree = toml::Value::try_from(&expanded.point.scenario).ok();
        let own = |knob: &Axis| tree.as_ref().and_then(|t| index_in(t, knob));
        let knobs = self.tuning.knobs.iter();
        let own: Vec<Option<usize>> = knobs.clone().map(own).collect();
        let middle =
            |(knob, own): (&Axis, &Option<usize>)| own.unwrap_or((knob.values.len() - 1) / 2);
        let start: Place = knobs.zip(&own).map(middle).collect();
        // Where all of the file's values are among those of the knobs it needs no run of its own.
        let is_one = own.iter().all(Option::is_some);
        self.note(if is_one { start.clone() } else { vec![] }, &outcome);
        Ok(start)
    }

    fn text_of(&self, place: &Place) -> Vec<String> {
        let knobs = self.tuning.knobs.iter();
        let at = |(k, at): (&Axis, &usize)| toml_text(&k.values[*at]);
        knobs.zip(place).map(at).collect()
    }

    fn note(&mut self, place: Place, outcome: &Outcome) {
        let goal = &self.tuning.goal;
        let note = match outcome.exit.kind {
            ExitKind::Ok => outcome.limiting.clone().unwrap_or_default(),
            kind => format!("{}: {}", kind.word(), outcome.exit.reason.replace('\n', "; ")),
        };
        let tried = Tried {
            values: self.text_of(&place),
            metrics: goal.values(outcome),
            rank: goal.rank(outcome),
            note,
            place,
        };
        self.keep(tried);
    }

    fn keep(&mut self, tried: Tried) {
        if !tried.place.is_empty() {
            self.known.insert(tried.place.clone(), self.tried.len());
        }
        self.tried.push(tried);
    }

    fn refused(&mut self, place: Place, error: InputError) {
        let values = self.text_of(&place);
        let note = format!("refused: {}", error.message());
        self.refusal.get_or_insert(error);
        self.refused += 1;
        self.keep(Tried { place, values, metrics: vec![], rank: Rank::failed(), note });
    }

    /// Runs these places, which are new, at most `jobs` at a time. What is noted has their order.
    fn run(&mut self, places: Vec<Place>) {
        let points: Vec<Result<Expanded, InputError>> =
            places.iter().map(|p| self.point(Some(p))).collect();
        let next = AtomicUsize::new(0);
        let outcomes: Vec<Mutex<Option<Result<Outcome, InputError>>>> =
            points.iter().map(|_| Mutex::new(None)).collect();
        let work = || loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(point) = points.get(at) else { break };
            let Ok(Expanded { point, tree }) = point else { continue };
            let outcome = self.runner.run(point).map_err(|e| at_setting(e, tree));
            *outcomes[at].lock().expect("nobody panicked") = Some(outcome);
        };
        let threads = self.tuning.jobs.min(points.len());
        if threads > 1 {
            std::thread::scope(|s| (0..threads).for_each(|_| drop(s.spawn(work))));
        } else {
            work();
        }
        for ((place, point), outcome) in places.into_iter().zip(points).zip(outcomes) {
            let outcome = outcome.into_inner().expect("nobody panicked");
            match (point, outcome) {
                (Err(e), _) => self.refused(place, e),
                (Ok(_), Some(Err(e))) => self.refused(place, e),
                (Ok(_), Some(Ok(outcome))) => self.note(place, &outcome),
                (Ok(_), None) => unreachable!("every point was run"),
            }
        }
    }

    /// Runs every place.
    pub(super) fn grid(&mut self, lens: &[usize]) {
        let all: usize = lens.iter().product();
        let place = |mut n: usize| -> Place {
            let mut place: Place = lens
                .iter()
                .rev()
                .map(|len| {
                    let at = n % len;
                    n /= len;
                    at
                })
                .collect();
            place.reverse();
            place
        };
        let new = (0..all).map(place).filter(|p| !self.known.contains_key(p)).collect();
        self.run(new);
    }

    pub(super) fn finish(self) -> Result<Tuned, InputError> {
        // Some that do not suit each other are to be expected; if none does, a key is wrong.
        let all_refused = self.tried.len() > 1 && self.refused == self.tried.len() - 1;
        if let Some(error) = self.refusal.filter(|_| all_refused) {
            return Err(error);
        }
        let best = (0..self.tried.len()).fold(0, |best, i| {
            if self.tried[i].rank.beats(self.tried[best].rank) { i } else { best }
        });
        Ok(Tuned {
            keys: self.tuning.knobs.iter().map(|k| shown(&k.path)).collect(),
            goal: self.tuning.goal.clone(),
            grid: self.tuning.knobs.iter().map(|k| k.values.len()).product(),
            tried: self.tried,
            best,
            steps: self.steps,
            variants: !self.tuning.loaded.variant_names().is_empty(),
        })
    }

    fn seen(&self, at: usize) -> Vec<Seen> {
        let tried = &self.tried[at];
        let mut seen: Vec<Seen> =
            tried.metrics.iter().map(|(name, m)| Seen::new(name, m.text())).collect();
        if !tried.note.is_empty() {
            seen.push(Seen::new("limiting", &*tried.note));
        }
        seen
    }
}

impl Measure for Runs<'_> {
    fn ranks(&mut self, places: &[Place]) -> Vec<Option<Rank>> {
        let mut new: Vec<Place> = vec![];
        for place in places {
            if !self.known.contains_key(place) && !new.contains(place) && self.left > 0 {
                self.left -= 1;
                new.push(place.clone());
            }
        }
        self.run(new);
        places.iter().map(|p| self.known.get(p).map(|at| self.tried[*at].rank)).collect()
    }

    fn left(&self) -> usize {
        self.left
    }

    fn moved(&mut self, from: &Place, to: &Place) {
        let (before, after) = (self.known[from], self.known[to]);
        let knobs: Vec<usize> = (0..from.len()).filter(|k| from[*k] != to[*k]).collect();
        let join = |of: &dyn Fn(usize) -> String| {
            knobs.iter().map(|k| of(*k)).collect::<Vec<_>>().join(", ")
        };
        let value = |of: usize| self.tried[of].metrics.first().map(|(_, m)| m.text());
        let text = |of: usize| value(of).unwrap_or_else(|| self.tried[of].note.clone());
        let step = TuneStep {
            at: format!("run {after}"),
            what: join(&|k| shown(&self.tuning.knobs[k].path)),
            from: join(&|k| self.tuning.knobs[k].values[from[k]].text()),
            to: join(&|k| self.tuning.knobs[k].values[to[k]].text()),
            when: "in the file".to_owned(),
            why: format!(
                "{}: {}, before {}",
                self.tuning.goal.objective,
                text(after),
                text(before)
            ),
            saw: self.seen(after),
        };
        self.steps.push(step);
    }
}
