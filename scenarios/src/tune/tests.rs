//! Tuning on a made-up machine: posting costs 100 ns per batch and 10 ns per message, and latency
//! is 1 us + 1 ns per byte.

use super::*;
use crate::report::{tuned_json, tuned_text, tuned_toml};
use crate::run::{Outcome, Point, RunError};
use crate::testing::{Formula, loaded};

const FILE: &str = "title = 't'\nprofile = 'generic-400g'\n\
    [[program]]\nkind = 'message-rate'\niterations = 64\nbatch = 2\nname = 'p'\n";

/// By the formula 64 messages of `size` take 100 ns · 64 / batch + 640 ns.
const VARY: [&str; 2] = ["program.0.batch=1..64", "program.0.size=8B..1KiB"];

fn tuning(file: &str, vary: &[&str], objective: &str, keeps: &[&str], method: Method) -> Tuning {
    let loaded = loaded(file, &[]).unwrap();
    let vary: Vec<String> = vary.iter().map(|s| (*s).to_owned()).collect();
    let knobs = knobs(&loaded, &vary).unwrap();
    let keeps = keeps.iter().map(|k| Keep::parse(k).unwrap()).collect();
    let goal = Goal { objective: Objective::parse(objective).unwrap(), keeps };
    Tuning { loaded, variant: None, knobs, goal, method, jobs: 1, seed: 1 }
}

fn run(tuning: Tuning) -> Result<Tuned, InputError> {
    let mut profiles = Profiles::beside(&tuning.loaded.directory);
    tune(&Formula, tuning, &mut profiles)
}

const SEARCH: Method = Method::Search { runs: 20 };

#[test]
fn the_search_finds_what_the_grid_has_and_says_what_to_change() {
    let keep = ["latency.p99 <= 1264ns"];
    let all = run(tuning(FILE, &VARY, "max throughput", &keep, Method::Grid)).unwrap();
    let some = run(tuning(FILE, &VARY, "max throughput", &keep, SEARCH)).unwrap();
    assert_eq!(
        (all.tried.len(), all.grid, some.tried.len()),
        (56, 56, 20),
        "the file is one of them"
    );
    let wanted = [("program.0.batch", "64"), ("program.0.size", "\"256B\"")];
    assert_eq!((all.changes(), some.changes()), (wanted.to_vec(), wanted.to_vec()));
    let toml = "[[variant]]\nname = \"tuned\"\nset = { \"program.0.batch\" = 64, \
                \"program.0.size\" = \"256B\" }\n";
    assert_eq!(tuned_toml(&some), toml);
    let pasted = crate::testing::expanded(&format!("{FILE}{toml}"), &[]).unwrap();
    assert_eq!(pasted[0].point.scenario.program[0].batch.value(), 64);
}

#[test]
fn steps_say_what_was_seen_and_lead_from_the_file_to_the_best() {
    let t = run(tuning(FILE, &VARY, "min latency.mean", &["doorbells <= 4"], SEARCH)).unwrap();
    let last = t.steps.last().unwrap();
    assert_eq!(last.at, format!("run {}", t.best));
    assert_eq!(last.when, "in the file");
    assert!(last.why.starts_with("min latency.mean: 1.008 us"), "{}", last.why);
    assert_eq!(last.saw[0], Seen::new("latency.mean", "1.008 us"));
    assert!(last.saw.contains(&Seen::new("limiting", "host0.core0")));
    let text = tuned_text("t", &t);
    for part in
        ["t: min latency.mean, doorbells <= 4", "20 runs of 56", "as it stands", "and 8 more"]
    {
        assert!(text.contains(part), "{part}:\n{text}");
    }
    let json: serde_json::Value = serde_json::from_str(&tuned_json("t", &t)).unwrap();
    assert_eq!(json["runs"], 20);
    assert_eq!(json["tried"][0]["values"][0], "2");
    assert_eq!(json["tried"][0]["keeps"], false, "32 doorbells");
}

#[test]
fn the_result_does_not_depend_on_how_many_run_at_a_time() {
    let at_a_time = |jobs, method| {
        let t = Tuning { jobs, ..tuning(FILE, &VARY, "max throughput", &[], method) };
        tuned_json("t", &run(t).unwrap())
    };
    for method in [SEARCH, Method::Grid] {
        let one = at_a_time(1, method);
        assert_eq!([at_a_time(2, method), at_a_time(7, method)], [one.clone(), one]);
    }
}

#[test]
fn a_file_that_is_best_already_stays() {
    let t = run(tuning(FILE, &["program.0.size=8B,9B"], "min latency.mean", &[], SEARCH)).unwrap();
    assert_eq!((t.best, t.changes(), t.tried.len()), (0, vec![], 2));
    assert!(tuned_toml(&t).starts_with("# nothing"));
}

#[test]
fn values_of_the_file_that_are_none_of_the_knobs_take_a_run_of_their_own() {
    let t = run(tuning(FILE, &["program.0.batch=4,8"], "max throughput", &[], SEARCH)).unwrap();
    assert_eq!((t.tried.len(), t.tried[0].values.len(), t.best().values.len()), (3, 0, 1));
}

#[test]
fn combinations_that_the_file_refuses_are_noted_and_never_the_best() {
    // A batch above the window would never be full.
    let vary = ["program.0.batch=1..64", "program.0.window=1..64"];
    let t = run(tuning(FILE, &vary, "max message_rate", &[], Method::Grid)).unwrap();
    let refused = t.tried.iter().filter(|one| one.note.starts_with("refused: ")).count();
    assert_eq!(refused, 21);
    assert!(t.best().rank.is_good());
}

#[test]
fn a_key_that_no_combination_has_is_an_error_with_its_place() {
    let vary = ["program.0.bach=1,2", "program.0.window=32,64"];
    for method in [SEARCH, Method::Grid] {
        let e = run(tuning(FILE, &vary, "max message_rate", &[], method)).unwrap_err();
        assert!(e.to_string().starts_with("--vary:1:1: unknown key `bach`"), "{e}");
        assert!(e.remedy().unwrap().contains("`batch`"), "{:?}", e.remedy());
    }
}

#[test]
fn a_bad_file_goal_or_variant_is_named() {
    let error = |file: &str, objective, keeps: &[&str]| {
        let e = run(tuning(file, &["program.0.batch=1,2"], objective, keeps, SEARCH)).unwrap_err();
        (e.to_string(), e.remedy().unwrap_or_default().to_owned())
    };
    let (message, help) = error(FILE, "max through", &[]);
    assert!(message.contains("no metric `through`") && help.contains("`throughput`"), "{help}");
    assert!(error(FILE, "max limiting", &[]).0.contains("is the word"));
    assert!(error(FILE, "max throughput", &["latency.p99 <= 3"]).0.contains("cannot keep"));
    let stall = FILE.replace("'p'", "'stall'");
    let (message, help) = error(&stall, "max throughput", &[]);
    assert!(message.contains("as it stands ends with no-progress: QP 1"), "{message}");
    assert!(help.contains("doorbell run"));
    let refuse = FILE.replace("'p'", "'refuse'");
    assert!(error(&refuse, "max throughput", &[]).0.contains("refused"));
    let variants = format!("{FILE}[[variant]]\nname = 'a'\n[[variant]]\nname = 'b'\n");
    assert!(error(&variants, "max throughput", &[]).1.contains(": a, b"));
    let t = tuning(&variants, &["program.0.batch=1,2"], "max throughput", &[], SEARCH);
    assert!(run(Tuning { variant: Some("b".into()), ..t }).is_ok());
}

/// A machine on which the best batch is not the last of its ladder, and some runs end badly.
struct Moody;

impl Runner for Moody {
    fn run(&self, point: &Point) -> Result<Outcome, RunError> {
        let mut o = Formula.run(point)?;
        let batch = point.scenario.program[0].batch.value();
        o.metrics.insert("cost".into(), Metric::count(batch.abs_diff(9)));
        if batch > 20 {
            o.exit.kind = crate::run::ExitKind::NoProgress;
        }
        Ok(o)
    }
}

#[test]
fn a_run_that_ends_badly_is_worse_than_any_other() {
    let mut t = tuning(FILE, &["program.0.batch=1..64+1"], "max cost", &[], Method::Grid);
    t.jobs = 3;
    let mut profiles = Profiles::beside(&t.loaded.directory);
    let found = tune(&Moody, t, &mut profiles).unwrap();
    assert_eq!(found.changes(), [("program.0.batch", "20")]);
    assert!(found.tried.iter().any(|one| one.note.starts_with("no-progress")));
}
