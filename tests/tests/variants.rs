//! `run --variant`, faults that a variant switches off, and queue pairs that die in a script.

use doorbell_tests::command::{Ended, Folder, run};

const COMMAND: &str = env!("CARGO_BIN_EXE_command");

const THREE: &str = "title = 't'\nprofile = 'generic-400g'\n[run]\nnoise = 'off'\n\
    [[program]]\nkind = 'script'\nsteps = ['post write 8B', 'ring', 'wait']\n\
    [[fault]]\nid = 'loss'\nkind = 'drop'\nclass = 'write'\nchance = '1'\nbudget = 1\n\
    [[variant]]\nname = 'lossy'\n\
    [[variant]]\nname = 'clean'\n\
    set = { 'fault.loss.chance' = '0', 'fault.loss.maybe' = true }\n\
    [[variant]]\nname = 'dead'\n\
    set = { 'program.0.steps' = ['post write 8B rkey=wrong anyway', 'ring', 'wait'] }\n\
    [[expect]]\nkind = 'difference'\nmetric = 'counter.fault_drop'\nof = 'lossy'\nto = 'clean'\n\
    min = 1\nmax = 1\nwhy = 'one is lost'\n\
    [[expect]]\nkind = 'equals'\nmetric = 'qps_in_error'\nin = ['dead']\nvalue = 2\n\
    why = 'both sides die'\n";

fn with(name: &str, args: &[&str]) -> Ended {
    let folder = Folder::new(name);
    let file = folder.file("s.toml", THREE.as_bytes());
    run(COMMAND, &[&["run", &file], args].concat())
}

#[test]
fn a_variant_alone_is_shown_in_full_and_judged_by_what_is_said_of_it() {
    let all = with("variants", &[]);
    assert_eq!(all.status, 0, "{all:?}");
    assert!(all.stdout.starts_with("s: t\n") && !all.stdout.contains("trace hash"), "{all:?}");
    let dead = with("variant-dead", &["--variant", "dead"]);
    assert_eq!(dead.status, 0, "an error of a work request is a result of a script: {dead:?}");
    assert!(dead.stdout.contains("trace hash") && dead.stdout.contains("why ["), "{dead:?}");
    assert!(dead.stdout.contains("--variant leaves out \"lossy\""), "{dead:?}");
    assert!(dead.stdout.contains("ok      qps_in_error"), "{dead:?}");
    let lossy = with("variant-lossy", &["--variant", "lossy"]);
    assert_eq!(lossy.status, 0, "the other half of a difference is left out: {lossy:?}");
    assert!(lossy.stdout.contains("--variant leaves out \"clean\""), "{lossy:?}");
}

#[test]
fn an_unknown_variant_is_refused_with_the_names_of_all() {
    let wrong = with("variant-wrong", &["--variant", "cleen"]);
    assert_eq!((wrong.status, wrong.stdout.as_str()), (2, ""), "{wrong:?}");
    assert!(wrong.stderr.contains("the file has no variant \"cleen\""), "{wrong:?}");
    assert!(wrong.stderr.contains("it has lossy, clean, dead"), "{wrong:?}");
    let folder = Folder::new("variant-none");
    let text = THREE.split("[[variant]]").next().expect("a beginning");
    let file = folder.file("s.toml", text.as_bytes());
    let none = run(COMMAND, &["run", &file, "--variant", "x"]);
    assert_eq!(none.status, 2, "{none:?}");
    assert!(none.stderr.contains("it has no variants"), "{none:?}");
}

#[test]
fn a_quiet_run_names_queue_pairs_that_died_and_says_nothing_of_others() {
    let dead = with("quiet-dead", &["-q"]);
    assert_eq!((dead.status, dead.stdout.as_str()), (0, ""), "{dead:?}");
    assert_eq!(dead.stderr.lines().count(), 1, "{dead:?}");
    assert!(dead.stderr.starts_with("dead: died: QP 16 of host 0 ("), "{dead:?}");
    let clean = with("quiet-clean", &["-q", "--variant", "clean"]);
    assert_eq!((clean.stdout.as_str(), clean.stderr.as_str()), ("", ""), "{clean:?}");
}

#[test]
fn a_fault_without_a_chance_must_say_that_it_may_not_fire() {
    let refused = with("variant-zero", &["--variant", "lossy", "--set", "fault.loss.chance=0"]);
    assert_eq!(refused.status, 2, "{refused:?}");
    assert!(refused.stderr.contains("maybe = true"), "{refused:?}");
    let unknown = with("variant-id", &["--set", "fault.los.chance=1"]);
    assert_eq!(unknown.status, 2, "{unknown:?}");
    assert!(unknown.stderr.contains("by its id (loss)"), "{unknown:?}");
}
