//! `doorbell tune` on a made-up machine: exit status.

use clap::Parser;

use super::ExitStatus;
use super::args::{Args, Command};
use super::tune::tune;
use crate::testing::Formula;

const SCENARIO: &str = "title = 't'\nprofile = 'generic-400g'\n\
    [[program]]\nkind = 'message-rate'\niterations = 8\nname = 'p'\n";

fn status(name: &str, flags: &[&str]) -> ExitStatus {
    status_of(name, "", flags)
}

fn status_of(name: &str, more: &str, flags: &[&str]) -> ExitStatus {
    let folder = std::env::temp_dir();
    let file = folder.join(format!("doorbell-tune-{name}-{}.toml", std::process::id()));
    std::fs::write(&file, format!("{SCENARIO}{more}")).unwrap();
    let path = file.to_str().unwrap();
    let line = ["doorbell", "tune", path].into_iter().chain(flags.iter().copied());
    let Command::Tune(args) = Args::try_parse_from(line).unwrap().command else {
        panic!("another command");
    };
    let status = tune(&Formula, &args);
    std::fs::remove_file(&file).unwrap();
    status
}

#[test]
fn found_not_found_and_bad_input_have_a_status_each() {
    let vary = ["--vary", "program.0.batch=1..8", "--objective", "max message_rate"];
    let with = |more: &[&'static str]| [&vary[..], more].concat();
    assert_eq!(status("ok", &vary), ExitStatus::Ok);
    assert_eq!(status("json", &with(&["--json", "--grid", "--jobs", "2"])), ExitStatus::Ok);
    assert_eq!(status("kept", &with(&["--keep", "doorbells <= 1"])), ExitStatus::Ok);
    assert_eq!(status("broken", &with(&["--keep", "doorbells <= 0"])), ExitStatus::Violated);
    assert_eq!(status("metric", &with(&["--keep", "doorbels <= 0"])), ExitStatus::BadInput);
    assert_eq!(status("axis", &vary[2..]), ExitStatus::BadInput, "nothing to vary");
    assert_eq!(status("goal", &vary[..2]), ExitStatus::BadInput, "nothing is sought");
}

#[test]
fn a_file_with_a_table_needs_no_flags() {
    let table = "[tune]\nobjective = 'max message_rate'\nkeep = ['doorbells <= 1']\n\
                 vary = { 'program.0.batch' = [1, 8] }\n";
    assert_eq!(status_of("table", table, &[]), ExitStatus::Ok);
    assert_eq!(status_of("keep", table, &["--keep", "doorbells <= 0"]), ExitStatus::Violated);
    assert_eq!(status_of("bad", &table.replace("vary", "varry"), &[]), ExitStatus::BadInput);
}

#[test]
fn runs_and_jobs_have_their_limits() {
    let parse = |flag: &str, value: &str| {
        let line = ["doorbell", "tune", "x", "--objective", "max y", flag, value];
        Args::try_parse_from(line).is_ok()
    };
    for (flag, good, bad) in
        [("--runs", ["2", "10000"], ["1", "10001"]), ("--jobs", ["1", "256"], ["0", "257"])]
    {
        assert!(good.iter().all(|v| parse(flag, v)), "{flag}");
        assert!(!bad.iter().any(|v| parse(flag, v)), "{flag}");
    }
}
