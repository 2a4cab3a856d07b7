//! What is asked for: by flags, and by the file's `[tune]`, whose keys flags override one by one.

use super::{Goal, Keep, Method, Objective, Tuning, knobs};
use crate::format::Axis;
use crate::format::load::{Change, Loaded};
use crate::input::InputError;

/// Fewest runs of a search that was not told how many.
const FEWEST: usize = 12;
/// Parts of all combinations that such a search runs, as a divisor.
const PART: usize = 10;

/// What flags ask for. Without them, what the file's `[tune]` says.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Asked {
    /// Keys and their values, as [`knobs`] reads them.
    pub vary: Vec<String>,
    /// What is sought.
    pub objective: Option<String>,
    /// What has to hold.
    pub keep: Vec<String>,
    /// The variant.
    pub variant: Option<String>,
    /// Most runs, at least 2; in place of `[tune]`'s, or of a tenth of all combinations and at
    /// least 12.
    pub runs: Option<usize>,
    /// Whether every combination is run, whatever `runs` says.
    pub grid: bool,
}

impl Asked {
    /// The search that is asked for, one run at a time and with the seed 1.
    ///
    /// # Errors
    /// When nothing is sought, there is nothing to vary, or what is asked for cannot be read; the
    /// error has the place.
    pub fn tuning(&self, mut loaded: Loaded) -> Result<Tuning, InputError> {
        let plan = loaded.tune.take();
        let objective = match (&self.objective, &plan) {
            (Some(text), _) => Objective::parse(text)?,
            (None, Some(plan)) => plan.goal.objective.clone(),
            (None, None) => {
                let error = InputError::new("nothing is sought");
                let help = "add --objective, such as \"max throughput\", or a [tune] to the file";
                return Err(error.help(help));
            }
        };
        let keeps = match (self.keep.is_empty(), &plan) {
            (true, Some(plan)) => plan.goal.keeps.clone(),
            _ => self.keep.iter().map(|k| Keep::parse(k)).collect::<Result<_, _>>()?,
        };
        let variant = self.variant.clone().or_else(|| plan.as_ref()?.variant.clone());
        let runs = self.runs.or_else(|| plan.as_ref()?.runs);
        let (wanted, sets) = plan.map_or((vec![], vec![]), |plan| (plan.knobs, plan.sets));
        let named: Vec<Axis> =
            self.vary.iter().map(|text| knobs::one(text)).collect::<Result<_, _>>()?;
        let is_named = |set: &Change| named.iter().any(|axis| axis.path == set.path);
        loaded.hold(sets.into_iter().filter(|set| !is_named(set)).collect());
        let is_free = |axis: &Axis| !loaded.holds(&axis.path);
        let knobs = match self.vary.is_empty() && !wanted.is_empty() {
            true => knobs::usable(wanted.into_iter().filter(is_free).collect())?,
            false => knobs(&loaded, &self.vary)?,
        };
        let grid: usize = knobs.iter().map(|k| k.values.len()).product();
        let method = match (self.grid, runs) {
            (true, _) => Method::Grid,
            (false, Some(runs)) => Method::Search { runs },
            (false, None) => Method::Search { runs: (grid / PART).max(FEWEST).min(grid + 1) },
        };
        let goal = Goal { objective, keeps };
        Ok(Tuning { loaded, variant, knobs, goal, method, jobs: 1, seed: 1 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::expand::expand_only;
    use crate::format::load::{Overrides, load};
    use crate::input::Node;
    use crate::profile::Profiles;
    use crate::testing::loaded;

    const FILE: &str = "title = 't'\nprofile = 'generic-400g'\n\
        [[program]]\nkind = 'message-rate'\n\
        [[variant]]\nname = 'a'\n[[variant]]\nname = 'b'\n";
    const TUNE: &str = "[tune]\nobjective = 'max message_rate'\nkeep = ['latency.p99 <= 6us']\n\
        variant = 'a'\nruns = 7\nset = { 'program.0.size' = '1KiB', 'seed' = 5 }\n\
        [tune.vary]\nprogram.0.batch = [1, 2, 4]\nqp.timeout = [8, 9]\n";

    fn own(words: &[&str]) -> Vec<String> {
        words.iter().map(|s| (*s).to_owned()).collect()
    }

    fn tuning(set: &[&str], asked: &Asked) -> Result<Tuning, InputError> {
        asked.tuning(loaded(&format!("{FILE}{TUNE}"), set).unwrap())
    }

    fn keys(t: &Tuning) -> Vec<String> {
        t.knobs.iter().map(|k| k.path.to_string()).collect()
    }

    fn sets(t: &Tuning) -> Vec<String> {
        t.loaded.sets.iter().map(|s| format!("{}={}", s.path, s.value.text())).collect()
    }

    #[test]
    fn a_file_says_what_it_wants() {
        let t = tuning(&[], &Asked::default()).unwrap();
        assert_eq!(keys(&t), ["program.0.batch", "qp.timeout"]);
        assert_eq!(sets(&t), ["program.0.size=1KiB", "seed=5"]);
        assert_eq!((t.variant.as_deref(), t.method), (Some("a"), Method::Search { runs: 7 }));
        assert_eq!(t.goal.objective.to_string(), "max message_rate");
        assert_eq!(t.goal.keeps[0].to_string(), "latency.p99 <= 6us");
    }

    #[test]
    fn each_flag_overrides_its_key_and_no_other() {
        let asked = Asked { vary: own(&["seed=1..8"]), ..Asked::default() };
        let t = tuning(&[], &asked).unwrap();
        assert_eq!((keys(&t), t.variant.as_deref()), (own(&["seed"]), Some("a")));
        assert_eq!(sets(&t), ["program.0.size=1KiB"], "what is varied is not held");
        let asked = Asked {
            objective: Some("min latency.p99".into()),
            keep: own(&["message_rate >= 3"]),
            variant: Some("b".into()),
            runs: Some(3),
            ..Asked::default()
        };
        let t = tuning(&["program.0.size=8B"], &asked).unwrap();
        assert_eq!(t.goal.objective.to_string(), "min latency.p99");
        assert_eq!((t.goal.keeps.len(), t.goal.keeps[0].to_string()), (1, asked.keep[0].clone()));
        assert_eq!((t.variant.as_deref(), t.method), (Some("b"), Method::Search { runs: 3 }));
        assert_eq!(sets(&t), ["program.0.size=1KiB", "seed=5", "program.0.size=8B"], "the last");
        let t = tuning(&[], &Asked { grid: true, ..Asked::default() }).unwrap();
        assert_eq!(t.method, Method::Grid);
    }

    #[test]
    fn what_the_command_line_fixes_is_not_varied() {
        let t = tuning(&["qp.timeout=9"], &Asked::default()).unwrap();
        assert_eq!(keys(&t), ["program.0.batch"]);
        let e = tuning(&["qp.timeout=9", "program.0.batch=1"], &Asked::default()).unwrap_err();
        assert!(e.message().contains("nothing to vary"), "{e}");
        let asked = Asked { vary: own(&["qp.timeout=8,9"]), ..Asked::default() };
        let e = tuning(&["qp.timeout=9"], &asked).unwrap_err();
        assert!(
            e.to_string()
                .starts_with("--vary:1:1: `qp.timeout` is varied, and --set or --seed fixes it"),
            "{e}"
        );
        assert!(e.remedy().unwrap().contains("leave one of them out"));
    }

    #[test]
    fn a_sweep_that_the_table_fixes_need_not_be_varied() {
        let sweep = "[sweep]\nseed = [1, 2]\n";
        let l = loaded(&format!("{FILE}{TUNE}{sweep}"), &[]).unwrap();
        let asked = Asked { vary: own(&["qp.timeout=8,9"]), ..Asked::default() };
        assert_eq!(keys(&asked.tuning(l).unwrap()), ["qp.timeout"]);
    }

    #[test]
    fn without_a_table_something_must_be_sought() {
        let plain = || loaded(FILE, &[]).unwrap();
        let e = Asked::default().tuning(plain()).unwrap_err();
        assert!(e.message().contains("nothing is sought"), "{e}");
        assert!(e.remedy().unwrap().contains("--objective"));
        let objective = Some("max x".to_owned());
        let asked = |vary: &str| Asked {
            vary: own(&[vary]),
            objective: objective.clone(),
            ..Asked::default()
        };
        let runs = |vary| asked(vary).tuning(plain()).unwrap().method;
        assert_eq!(runs("seed=1,2"), Method::Search { runs: 3 }, "all, and the file");
        assert_eq!(runs("seed=1..129+1"), Method::Search { runs: 12 });
        assert_eq!(runs("seed=1..130+1"), Method::Search { runs: 13 });
    }
    /// The tables of the library are about keys that are there, and values that the files take.
    #[test]
    fn tables_of_the_library_can_be_used() {
        let mut tables = 0;
        for (name, text) in crate::library::SCENARIOS {
            let source = crate::input::Source::new(*name, *text);
            let folder = std::path::PathBuf::new();
            let mut profiles = Profiles::beside(&folder);
            let l = load(source, folder, &Overrides::default()).unwrap();
            if l.tune.is_none() {
                continue;
            }
            tables += 1;
            let t = Asked::default().tuning(l).unwrap_or_else(|e| panic!("{e}"));
            for knob in &t.knobs {
                let mut one = |value: &Node| {
                    let values = vec![value.clone()];
                    let axes = vec![Axis { values, ..knob.clone() }];
                    let loaded = Loaded { axes, ..t.loaded.clone() };
                    expand_only(&loaded, &mut profiles, t.variant.as_deref())
                };
                let refused: Vec<_> =
                    knob.values.iter().map(&mut one).filter_map(Result::err).collect();
                assert!(refused.len() < knob.values.len(), "{name}: {}", refused[0]);
            }
        }
        assert!(tables >= 6, "{tables}");
    }
}
