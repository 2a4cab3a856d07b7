//! The commands on a made-up machine: exit status and written files.

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};

use super::ExitStatus;
use super::args::{CheckArgs, RunArgs, Target};
use super::{check, run};
use crate::run::{Outcome, Point, RunError, Runner};
use crate::testing::Formula;

const SCENARIO: &str = "title = 't'\nprofile = 'generic-400g'\n\
    [[program]]\nkind = 'message-rate'\niterations = 8\nname = 'p'\n\
    [[expect]]\nkind = 'equals'\nmetric = 'doorbells'\nvalue = 8\nwhy = 'each is rung'\n";

/// A folder of a test's own, removed in the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("doorbell-cli-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str, text: &str) -> String {
        fs::write(self.0.join(name), text).unwrap();
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn run_args(scenario: &str, set: &[&str]) -> RunArgs {
    let set = set.iter().map(|s| (*s).to_owned()).collect();
    let target = Target { scenario: scenario.to_owned(), set, seed: None };
    RunArgs {
        target,
        variant: None,
        json: false,
        quiet: true,
        full: false,
        out: None,
        figure: None,
        pcap: None,
        series: None,
        html: None,
        trace_hash: None,
    }
}

fn check_args(scenario: &str) -> CheckArgs {
    CheckArgs { scenarios: vec![scenario.to_owned()], junit: None, quiet: true, twice: false }
}

#[test]
fn run_tells_what_happened() {
    let folder = Folder::new("run");
    let file = folder.file("s.toml", SCENARIO);
    let status = |set: &[&str]| run::run(&Formula, &run_args(&file, set));
    assert_eq!(status(&[]), ExitStatus::Ok);
    assert_eq!(status(&["program.0.batch=2"]), ExitStatus::Violated, "4 doorbells, not 8");
    assert_eq!(status(&["program.0.name=stall"]), ExitStatus::NoProgress);
    let both = ["program.0.name=stall", "program.0.batch=2"];
    assert_eq!(status(&both), ExitStatus::Violated, "takes precedence");
    assert_eq!(status(&["program.0.name=refuse"]), ExitStatus::BadInput);
    assert_eq!(status(&["program.0.batch=0"]), ExitStatus::BadInput);
}

/// What is set for a variant need not suit the others.
#[test]
fn run_reads_no_variant_but_the_one_that_is_named() {
    let folder = Folder::new("variant");
    let variants = "[[variant]]\nname = 'none'\nset = { 'program.0.window' = 4 }\n\
                    [[variant]]\nname = 'timely'\nset = { 'congestion.control' = 'timely' }\n";
    let head = "title = 't'\nprofile = 'generic-400g'\n[[program]]\nkind = 'message-rate'\n";
    let file = folder.file("s.toml", &format!("{head}{variants}"));
    let status = |variant: Option<&str>| {
        let mut args = run_args(&file, &["congestion.t_low=50us"]);
        args.variant = variant.map(str::to_owned);
        run::run(&Formula, &args)
    };
    assert_eq!(status(Some("timely")), ExitStatus::Ok);
    for refused in [Some("none"), Some("no such"), None] {
        assert_eq!(status(refused), ExitStatus::BadInput, "{refused:?}");
    }
}

#[test]
fn run_compares_the_trace_hash() {
    let folder = Folder::new("hash");
    let file = folder.file("s.toml", SCENARIO);
    let with = |hash: &str| {
        let mut args = run_args(&file, &[]);
        args.trace_hash = Some(hash.to_owned());
        run::run(&Formula, &args)
    };
    assert_eq!(with("0000010000800001"), ExitStatus::Ok);
    assert_eq!(with("0000010000800002"), ExitStatus::HashDiffers);
    let two = folder.file("two.toml", &format!("{SCENARIO}[sweep]\nseed = [1, 2]\n"));
    let mut args = run_args(&two, &[]);
    args.trace_hash = Some("x".to_owned());
    assert_eq!(run::run(&Formula, &args), ExitStatus::BadInput);
}

#[test]
fn run_writes_whole_reports() {
    let folder = Folder::new("out");
    let file = folder.file("s.toml", SCENARIO);
    let out = folder.0.join("out");
    let mut args = run_args(&file, &[]);
    args.out = Some(out.clone());
    assert_eq!(run::run(&Formula, &args), ExitStatus::Ok);
    let first = fs::read_to_string(out.join("s.json")).unwrap();
    assert_eq!(run::run(&Formula, &args), ExitStatus::Ok);
    assert_eq!(fs::read_to_string(out.join("s.json")).unwrap(), first, "same bytes");
    assert!(!first.contains(folder.0.to_str().unwrap()), "no path of the machine");
    assert!(fs::read_to_string(out.join("s.txt")).unwrap().starts_with("s: t\n"));
    assert_eq!(fs::read_dir(&out).unwrap().count(), 2, "and nothing temporary");
    args.out = Some(Path::new(&file).join("below-a-file"));
    assert_eq!(run::run(&Formula, &args), ExitStatus::BadInput);
}

#[test]
fn check_judges_files_and_folders() {
    let folder = Folder::new("check");
    let good = folder.file("a.toml", SCENARIO);
    assert_eq!(check::check(&Formula, &check_args(&good)), ExitStatus::Ok);
    let stall = SCENARIO.replace("name = 'p'", "name = 'stall'");
    let file = folder.file("b.toml", &stall);
    assert_eq!(check::check(&Formula, &check_args(&file)), ExitStatus::NoProgress, "unexpected");
    let expected = format!("{stall}[[expect]]\nkind = 'exit'\nstatus = 'no-progress'\nwhy = 'w'\n");
    let file = folder.file("b.toml", &expected);
    assert_eq!(check::check(&Formula, &check_args(&file)), ExitStatus::Ok, "expected end");
    folder.file("c.toml", &SCENARIO.replace("value = 8", "value = 9"));
    let junit = folder.0.join("junit.xml");
    let mut all = check_args(folder.0.to_str().unwrap());
    all.junit = Some(junit.clone());
    assert_eq!(check::check(&Formula, &all), ExitStatus::Violated);
    let xml = fs::read_to_string(&junit).unwrap();
    assert!(xml.contains("tests=\"4\" failures=\"1\" errors=\"0\" skipped=\"0\""), "{xml}");
    folder.file("d.toml", "title = 3\n");
    assert_eq!(check::check(&Formula, &all), ExitStatus::BadInput);
    let xml = fs::read_to_string(&junit).unwrap();
    assert!(xml.contains("d.toml:1:9: wrong type: found 3"), "{xml}");
    assert!(xml.contains("tests=\"5\" failures=\"1\" errors=\"1\" skipped=\"0\""), "{xml}");
}

/// A machine that is not repeatable.
struct Drifting(Cell<u64>);

impl Runner for Drifting {
    fn run(&self, point: &Point) -> Result<Outcome, RunError> {
        self.0.set(self.0.get() + 1);
        let outcome = Formula.run(point)?;
        Ok(Outcome { trace_hash: self.0.get().to_string(), ..outcome })
    }
}

#[test]
fn check_twice_compares_hashes() {
    let folder = Folder::new("twice");
    let mut args = check_args(&folder.file("a.toml", SCENARIO));
    args.twice = true;
    assert_eq!(check::check(&Formula, &args), ExitStatus::Ok);
    assert_eq!(check::check(&Drifting(Cell::new(0)), &args), ExitStatus::HashDiffers);
    args.twice = false;
    assert_eq!(check::check(&Drifting(Cell::new(0)), &args), ExitStatus::Ok);
}

#[test]
fn check_has_the_status_of_run_for_an_end_that_nobody_expects() {
    let folder = Folder::new("ends");
    let stall = SCENARIO.replace("name = 'p'", "name = 'stall'");
    let of = |text: &str| check::check(&Formula, &check_args(&folder.file("s.toml", text)));
    assert_eq!(of(&stall), ExitStatus::NoProgress);
    let expected = format!("{stall}[[expect]]\nkind = 'exit'\nstatus = 'no-progress'\nwhy = 'w'\n");
    assert_eq!(of(&expected), ExitStatus::Ok);
    let failed = stall.replace("value = 8", "value = 9");
    assert_eq!(of(&failed), ExitStatus::Violated, "takes precedence");
}

/// The runner ends badly in the middle of the second capture: the first one stays.
#[test]
fn a_capture_that_is_not_finished_leaves_the_one_that_was_there() {
    struct Torn(Cell<u32>);
    impl Runner for Torn {
        fn run(&self, point: &Point) -> Result<Outcome, RunError> {
            Formula.run(point)
        }

        fn run_captured(
            &self,
            point: &Point,
            mut out: Box<dyn std::io::Write>,
        ) -> Result<(Outcome, std::io::Result<()>), RunError> {
            self.0.set(self.0.get() + 1);
            let full = || Err(std::io::Error::other("the disk is full"));
            out.write_all(format!("capture {}", self.0.get()).as_bytes()).unwrap();
            let written = if self.0.get() == 2 { full() } else { out.flush() };
            Ok((self.run(point)?, written))
        }
    }
    let folder = Folder::new("torn");
    let mut args = run_args(&folder.file("s.toml", SCENARIO), &[]);
    args.pcap = Some(folder.0.join("pcap"));
    let runner = Torn(Cell::new(0));
    let content = || fs::read_to_string(folder.0.join("pcap").join("s.pcapng")).unwrap();
    assert_eq!((run::run(&runner, &args), content()), (ExitStatus::Ok, "capture 1".to_owned()));
    assert_eq!(
        (run::run(&runner, &args), content()),
        (ExitStatus::BadInput, "capture 1".to_owned())
    );
    assert_eq!(fs::read_dir(folder.0.join("pcap")).unwrap().count(), 1, "and nothing beside it");
    assert_eq!((run::run(&runner, &args), content()), (ExitStatus::Ok, "capture 3".to_owned()));
}
