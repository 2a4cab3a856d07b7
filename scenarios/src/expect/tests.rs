//! Every kind of expectation, on both sides.

use super::{Status, Verdict, judge};
use crate::report::verdict_lines;
use crate::run::{Exit, ExitKind};
use crate::testing::{loaded, runs};

const SWEPT: &str = "title = 't'\nprofile = 'generic-400g'\n\
    [[program]]\nkind = 'message-rate'\niterations = 64\n\
    [[variant]]\nname = 'doorbell'\nset = { 'program.0.ring' = 'doorbell' }\n\
    [[variant]]\nname = 'blueflame'\nset = { 'program.0.ring' = 'blueflame' }\n\
    [sweep]\n'program.0.size' = { from = '64B', to = '4KiB', factor = 4 }\n\
    'program.0.batch' = [1, 8, 64]\n";

fn verdicts(expect: &str, set: &[&str]) -> Vec<Verdict> {
    let text = format!("{SWEPT}[[expect]]\nwhy = 'w'\n{expect}\n");
    let loaded = loaded(&text, set).unwrap_or_else(|e| panic!("{e}: {:?}", e.remedy()));
    judge(&loaded.expects, &runs(&text, set), &loaded.fixed_axes)
}

fn verdict(expect: &str) -> Verdict {
    verdicts(expect, &[]).remove(0)
}

#[track_caller]
fn status(expect: &str, wanted: Status) {
    let v = verdict(expect);
    assert_eq!(v.status, wanted, "{expect}: {v:?}");
}

#[track_caller]
fn passes(expect: &str) {
    status(expect, Status::Passed);
}

#[track_caller]
fn fails(expect: &str) {
    status(expect, Status::Failed);
}

#[track_caller]
fn invalid(expect: &str, problem: &str) {
    let v = verdict(expect);
    assert_eq!(v.status, Status::Invalid, "{v:?}");
    assert!(v.problem.contains(problem), "{}", v.problem);
}

#[test]
fn range_includes_its_ends() {
    let at = "kind='range'\nmetric='latency.p50'\nin='doorbell'\nwhere={ size='64B' }\n";
    passes(&format!("{at}min='1064ns'\nmax='1064ns'"));
    fails(&format!("{at}min='1065ns'"));
    fails(&format!("{at}max='1063ns'"));
    passes(&format!("{at}min=0"));
    let v = verdict(&format!("{at}max='1063ns'"));
    assert_eq!(v.checks.len(), 3, "one for each batch");
    assert_eq!(v.checks[0].at, "doorbell, size=64B, batch=1");
    assert_eq!(v.checks[0].found, "1.064 us");
    assert_eq!(v.expected, "latency.p50 at most 1.063us");
}

#[test]
fn kinds_must_agree_and_metrics_exist() {
    invalid("kind='range'\nmetric='latency.p50'\nmax=1064", "write for example \"2us\"");
    invalid("kind='range'\nmetric='doorbells'\nmax='2us'", "of another kind");
    invalid("kind='range'\nmetric='doorbels'\nmax=2", "did you mean `doorbells`?");
    invalid("kind='range'\nmetric='limiting'\nmax=2", "is the word \"host0.core0\"");
    invalid("kind='range'\nmetric='doorbells'\nmax=2\nwhere={batch=3}", "no point has these");
}

#[test]
fn equals_compares_numbers_exactly_and_words() {
    passes("kind='equals'\nmetric='doorbells'\nvalue=8\nwhere={batch=8}");
    fails("kind='equals'\nmetric='doorbells'\nvalue=9\nwhere={batch=8}");
    passes("kind='equals'\nmetric='limiting'\nvalue='host0.core0'");
    fails("kind='equals'\nmetric='limiting'\nvalue='host0.core1'");
    passes("kind='equals'\nmetric='pcie.down.doorbell.bytes'\nvalue='256B'\nwhere={batch=8}");
    passes("kind='equals'\nmetric='counter.rnr_nak_retry_err'\nvalue=0");
    invalid("kind='equals'\nmetric='doorbells'\nvalue='many'", "is a number");
}

#[test]
fn ratio_pairs_variants_and_axis_values() {
    let at = "kind='ratio'\nmetric='latency.p50'\nof='doorbell'\nto='blueflame'\n\
              where={ size='64B' }\n";
    passes(&format!("{at}min=1.886\nmax=1.887"));
    fails(&format!("{at}min=1.9"));
    let batch = "kind='ratio'\nmetric='message_rate'\nof='doorbell'\nof_where={batch=64}\n\
                 to_where={batch=1}\n";
    passes(&format!("{batch}min=9\nmax=10"));
    fails(&format!("{batch}max=9"));
    let v = verdict(&format!("{batch}min=9"));
    assert_eq!(v.checks.len(), 4, "one for each size");
    let at = "doorbell, size=64B, batch=64 against doorbell, size=64B, batch=1";
    assert_eq!(v.checks[0].at, at);
    passes("kind='ratio'\nmetric='mmio_writes'\nto_metric='doorbells'\nmin=1\nmax=1");
    invalid(
        "kind='ratio'\nmetric='doorbells'\nto_metric='counter.rnr_nak_retry_err'\nmin=1",
        "division by zero",
    );
}

#[test]
fn difference_has_the_kind_of_its_metric() {
    let at = "kind='difference'\nmetric='latency.p50'\nof='doorbell'\nto='blueflame'\n\
              where={ size='64B' }\n";
    passes(&format!("{at}min='500ns'\nmax='500ns'"));
    fails(&format!("{at}min='501ns'"));
    invalid(&format!("{at}min=0.5"), "of another kind");
    invalid(
        "kind='difference'\nmetric='latency.p50'\nto_metric='doorbells'\nmin=0",
        "different kinds",
    );
}

#[test]
fn monotone_goes_one_way() {
    let over = |direction: &str, more: &str| {
        format!(
            "kind='monotone'\nmetric='latency.p50'\nover='size'\ndirection='{direction}'\n{more}"
        )
    };
    passes(&over("rising", "strict=true"));
    fails(&over("falling", ""));
    let flat = "kind='monotone'\nmetric='latency.p50'\nover='batch'\ndirection='rising'\n";
    passes(flat);
    fails(&format!("{flat}strict=true"));
    let rate = "kind='monotone'\nmetric='message_rate'\nover='program.0.batch'\n";
    passes(&format!("{rate}direction='rising'"));
    fails(&format!("{rate}direction='falling'\ntolerance='10%'"));
    passes(&format!("{rate}direction='falling'\ntolerance='900%'"));
}

#[test]
fn arg_max_and_arg_min_find_the_value() {
    let best = |kind: &str, between: &str| {
        format!("kind='{kind}'\nmetric='message_rate'\nover='batch'\nbetween={between}")
    };
    passes(&best("arg-max", "[64, 64]"));
    fails(&best("arg-max", "[1, 63]"));
    passes(&best("arg-min", "[1, 1]"));
    fails(&best("arg-min", "[2, 64]"));
    let flat = "kind='arg-max'\nmetric='latency.p50'\nover='batch'\nbetween=[8, 8]";
    passes(flat);
    assert_eq!(verdict(flat).checks[0].found, "1.064 us at 1, 8, 64");
    invalid(
        "kind='arg-max'\nmetric='latency.p50'\nover='batch'\nbetween=['1B', '2B']",
        "of another kind",
    );
}

#[test]
fn count_is_of_points_along_an_axis() {
    let at = "kind='count'\nmetric='message_rate'\nover='batch'\nin='doorbell'\n\
              where={ size='64B' }\nmin='20M/s'\n";
    passes(&format!("{at}at_least=2\nat_most=2"));
    passes(&format!("{at}at_least=1"));
    fails(&format!("{at}at_least=3"));
    fails(&format!("{at}at_most=1"));
    let v = verdict(&format!("{at}at_most=1"));
    assert_eq!(v.checks[0].found, "2 of 3: 8, 64");
    assert_eq!(v.expected, "message_rate at least 20MHz for no more than 1 of batch");
}

#[test]
fn crossover_is_once_and_between() {
    let cross = |of: &str, to: &str, between: &str| {
        format!(
            "kind='crossover'\nmetric='latency.p50'\nover='size'\nof='{of}'\nto='{to}'\n\
             between={between}\nwhere={{batch=1}}"
        )
    };
    passes(&cross("blueflame", "doorbell", "['256B', '1KiB']"));
    fails(&cross("blueflame", "doorbell", "['256B', '512B']"));
    fails(&cross("blueflame", "doorbell", "['512B', '1KiB']"));
    let v = verdict(&cross("blueflame", "doorbell", "['64B', '4KiB']"));
    assert_eq!(v.checks[0].found, "they cross between 256B and 1KiB");
    let v = verdict(&cross("doorbell", "blueflame", "['64B', '4KiB']"));
    assert_eq!(v.status, Status::Failed);
    assert!(v.checks[0].found.starts_with("not one crossing: 64B: more"), "{v:?}");
    let never = "kind='crossover'\nmetric='message_rate'\nover='size'\nof='blueflame'\n\
                 to='doorbell'\nbetween=['64B', '4KiB']";
    assert_eq!(verdict(never).checks[0].found, "\"blueflame\" never has less");
}

#[test]
fn a_fixed_axis_skips() {
    let monotone = "kind='monotone'\nmetric='message_rate'\nover='batch'\ndirection='rising'";
    let v = verdicts(monotone, &["program.0.batch=8"]).remove(0);
    assert_eq!(v.status, Status::Skipped);
    assert_eq!(v.problem, "the axis `batch` is fixed by --set");
}

#[test]
fn exits_are_expected_or_named() {
    let stall = &["program.0.name=stall", "program.0.size=64B", "program.0.batch=1"];
    let exit = |more: &str| verdicts(&format!("kind='exit'\nstatus='no-progress'\n{more}"), stall);
    let one = exit("");
    assert_eq!((one.len(), one[0].status), (1, Status::Passed));
    assert_eq!(exit("reason='12 WQEs'")[0].status, Status::Passed);
    assert_eq!(exit("reason='13 WQEs'")[0].status, Status::Failed);
    let half = exit("in='doorbell'");
    assert_eq!((half.len(), half[0].status), (2, Status::Passed));
    let bad: Vec<&str> = half[1].checks.iter().filter(|c| !c.ok).map(|c| &*c.at).collect();
    assert_eq!((half[1].status, half[1].checks.len(), bad), (Status::Failed, 2, vec!["blueflame"]));
    fails("kind='exit'\nstatus='no-progress'");
    passes("kind='exit'\nstatus='ok'");
}

/// A sweep of which some points end badly says of how many points they are.
#[test]
fn bad_ends_are_counted_among_all_points() {
    let mut runs = runs(SWEPT, &[]);
    let all = runs.len();
    for run in &mut runs[1..3] {
        run.outcome.exit = Exit { kind: ExitKind::NoProgress, reason: "r".to_owned() };
    }
    let verdicts = judge(&[], &runs, &[]);
    let [v] = &verdicts[..] else { panic!("{verdicts:?}") };
    assert_eq!((v.status, v.checks.len()), (Status::Failed, all));
    assert_eq!(v.checks.iter().filter(|c| !c.ok).count(), 2);
    let text = verdict_lines(v);
    assert!(text.contains(&format!("2 of {all} points are not as expected")), "{text}");
    assert_eq!(text.matches("found no-progress: r").count(), 2, "{text}");
}
