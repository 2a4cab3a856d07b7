//! The `doorbell` command as a process: exit status, both outputs, files that stay whole.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{env, fs};

fn doorbell(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_doorbell")).args(args).output().expect("the command starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

/// Must end with status 2, print nothing to stdout and these words to stderr.
#[track_caller]
fn refused(args: &[&str], words: &[&str]) {
    let output = doorbell(args);
    let complaint = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{complaint}");
    assert_eq!(text(&output.stdout), "");
    for word in words {
        assert!(complaint.contains(word), "{word:?} is not in\n{complaint}");
    }
}

/// A planned fault that never fires is status 4, named in the report; with `maybe` it is status 0.
#[test]
fn a_fault_that_never_fires_is_status_four() {
    let folder = Folder::new("fault");
    let good = "title = 't'\nprofile = 'generic-400g'\n[[program]]\nkind = 'latency'\n\
                iterations = 2\n[[fault]]\nid = 'late'\nkind = 'drop'\nnth = 1000\n";
    let path = folder.file("late.toml", good.as_bytes());
    let run = |more: &[&str]| {
        let output = doorbell(&[&["run", path.as_str()], more].concat());
        (output.status.code(), text(&output.stdout))
    };
    let (status, report) = run(&[]);
    assert_eq!(status, Some(4), "{report}");
    assert!(report.contains("fault \"late\" (drop) never fired: 4 matched"), "{report}");
    assert!(report.contains("NEVER FIRED"), "{report}");
    let (status, json) = run(&["--json"]);
    assert_eq!(status, Some(4));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let outcome = &json["points"][0]["outcome"];
    assert_eq!(outcome["exit"]["kind"], "fault-not-fired");
    let row = &outcome["faults"][0];
    assert_eq!(
        (&row["id"], &row["fired"], &row["matched"]),
        (&"late".into(), &0.into(), &4.into())
    );
    assert_eq!(json["points"][0]["configuration"]["fault"][0]["nth"], 1000);
    assert_eq!(run(&["--set", "fault.0.maybe=true"]).0, Some(0));
    let fires = ["--set", "fault.0.kind=duplicate", "--set", "fault.0.nth=4"];
    assert_eq!(run(&fires).0, Some(0));
}

/// A folder of a test's own, removed in the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = env::temp_dir().join(format!("doorbell-cmd-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str, content: &[u8]) -> String {
        let path = self.0.join(name);
        fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn count(&self) -> usize {
        fs::read_dir(&self.0).unwrap().count()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn files_that_are_no_scenario() {
    let folder = Folder::new("bad");
    let latin = folder.file("latin.toml", b"title = \"caf\xe9\"\n");
    let place = format!("{latin}:1:13: not UTF-8: byte 12 is 0xe9");
    refused(&["run", &latin], &[&place, "save the file in that encoding"]);
    let huge = folder.file("huge.toml", b"");
    fs::File::options().write(true).open(&huge).unwrap().set_len(100_000_000).unwrap();
    refused(&["run", &huge], &["has 100000000 bytes; the limit is 1048576", "the right file?"]);
    let folder_name = folder.0.to_str().unwrap().to_owned();
    refused(&["run", &folder_name], &["is a directory"]);
    refused(&["run", "/nowhere/x.toml"], &["cannot read /nowhere/x.toml: No such file"]);
    refused(&["run", "helo"], &["no scenario \"helo\"", "did you mean `hello`?"]);
    let checked = doorbell(&["check", "helo"]);
    assert_eq!(checked.status.code(), Some(2));
    assert!(text(&checked.stderr).contains("did you mean `hello`?"));
    let totals = "1 scenario: 0 expectations hold, 0 do not, 1 could not be run\n";
    assert_eq!(text(&checked.stdout), totals);
    refused(&["explain", "helo"], &["did you mean `hello`?"]);
}

#[test]
fn the_place_is_drawn() {
    let folder = Folder::new("place");
    let file = folder.file("s.toml", b"title = 't'\nprofle = 'generic-400g'\n");
    let place = format!("[{file}:2:1]");
    refused(&["run", &file], &["unknown key `profle`", &place, "did you mean `profile`?"]);
}

#[test]
fn nothing_is_half_written() {
    let folder = Folder::new("whole");
    let out = folder.0.join("out");
    let out = out.to_str().unwrap();
    refused(&["run", "hello", "--out", out, "--set", "qp.mtu=3B"], &["is no path MTU"]);
    assert_eq!(folder.count(), 0, "no folder and no file");
}

#[test]
fn wrong_command_lines() {
    refused(&["run"], &["<SCENARIO>"]);
    refused(&["run", "hello", "--sett", "x=1"], &["--set"]);
    refused(&["run", "hello", "--seed", "-1"], &["--seed"]);
    refused(&["run", "hello", "--json", "--quiet"], &["cannot be used with"]);
    refused(&["explain", "hello", "--point", "7"], &["no point 7", "points 0 to 0"]);
    refused(&["jump"], &["jump"]);
}

#[test]
fn help_and_lists_need_no_files() {
    for args in [&["--help"][..], &["run", "--help"], &["check", "--help"]] {
        let output = doorbell(args);
        assert_eq!(output.status.code(), Some(0));
        assert!(text(&output.stdout).contains("4  a planned fault never happened"), "{args:?}");
    }
    let output = doorbell(&["list"]);
    let list = text(&output.stdout);
    assert!(list.contains("\n  hello"), "{list}");
    assert!(list.contains("\n  generic-400g"), "{list}");
    let names = text(&doorbell(&["list", "--quiet"]).stdout);
    assert!(names.lines().any(|l| l == "hello"), "{names}");
}

#[test]
fn explain_writes_a_file_that_runs() {
    let folder = Folder::new("explain");
    let output = doorbell(&["explain", "hello", "--set", "pcie.width=8", "--seed", "7"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let explained = text(&output.stdout);
    for part in ["seed = 7\n", "timeout = 14\n", "# width = 8  (set: set in --set)\n"] {
        assert!(explained.contains(part), "{part:?} is not in\n{explained}");
    }
    let file = folder.file("again.toml", explained.as_bytes());
    let again = doorbell(&["explain", &file]);
    let again = text(&again.stdout);
    let configuration = |t: &str| t.split("# profile").next().unwrap().to_owned();
    assert_eq!(configuration(&again), configuration(&explained));
}

#[test]
fn the_library_expands() {
    let library = Path::new(env!("CARGO_MANIFEST_DIR")).join("library");
    for file in fs::read_dir(library).unwrap() {
        let path = file.unwrap().path();
        let output = doorbell(&["explain", path.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(0), "{path:?}: {}", text(&output.stderr));
    }
}

#[test]
#[cfg(not(feature = "hw"))]
fn without_the_back_end_hw_says_how_to_get_it() {
    refused(
        &["hw", "info"],
        &["this build has no hardware back end", "build with `--features hw`"],
    );
}

#[test]
#[cfg(feature = "hw")]
fn hw_run_refuses_files_before_it_looks_for_devices() {
    refused(&["hw", "run", "helo"], &["did you mean `hello`?"]);
    refused(&["hw", "run", "hello", "--local", "--variant", "x"], &["no variant \"x\""]);
    refused(
        &["hw", "run", "hello", "--local", "--set", "program.0.payload=virtual"],
        &["`payload = \"virtual\"` on hardware", "--set program.0.payload="],
    );
    refused(
        &[
            "hw",
            "run",
            "hello",
            "--set",
            "program.0.payload=data",
            "--rank",
            "2",
            "--server",
            "h:1",
        ],
        &["--rank 2, and the scenario has 2 ranks"],
    );
}

/// Whether libibverbs can list a device here.
#[cfg(feature = "hw")]
fn has_rdma() -> bool {
    fs::read_dir("/sys/class/infiniband").is_ok_and(|mut devices| devices.next().is_some())
}

#[test]
#[cfg(feature = "hw")]
fn hw_without_devices_says_why_and_what_to_do() {
    if has_rdma() {
        println!("skipped: this machine has an RDMA device");
        return;
    }
    let run = &["hw", "run", "hello", "--local", "--set", "program.0.payload=data"][..];
    let info = &["hw", "info", "--json", "--device", "mlx5_0"][..];
    for args in [&["hw", "info"][..], info, run, &["hw", "pingpong"], &["hw", "pingpong", "h"]] {
        refused(args, &["no RDMA device: ", "`rdma link`", "`modprobe mlx5_ib`"]);
    }
}

#[test]
fn wrong_hw_command_lines() {
    refused(&["hw"], &["Usage: doorbell hw"]);
    refused(&["hw", "infos"], &["infos"]);
    refused(&["hw", "info", "--device"], &["--device <NAME>"]);
    refused(&["hw", "run"], &["<SCENARIO>"]);
    let run = |args: &[&str], words: &[&str]| refused(&[&["hw", "run", "x"], args].concat(), words);
    run(&["--server", "a:1"], &["--rank <N>"]);
    run(&["--local", "--rank", "0"], &["'--local' cannot be used with '--rank <N>'"]);
    run(&["--rank", "0", "--server", "a:1", "--hosts", "a"], &["cannot be used with"]);
    run(&["--rank", "-1"], &["--rank"]);
    run(&["--listen", "everywhere"], &["--listen <ADDRESS>"]);
    run(&["--gid", "3"], &["index:N (`doorbell hw info` lists them)"]);
    run(&["--wait", "sleep"], &["poll, event or spin:20us"]);
    run(&["--posting", "fast"], &["classic, extended"]);
    run(&["--limit", "60"], &["has no unit"]);
    run(&["--limit", "0s"], &["from 1ns to 86400s"]);
    let pong =
        |args: &[&str], words: &[&str]| refused(&[&["hw", "pingpong"], args].concat(), words);
    pong(&["host", "--listen", "::"], &["cannot be used with"]);
    pong(&["--size", "0B"], &["from 1B to 1GiB"]);
    pong(&["--iterations", "0"], &["--iterations <N>"]);
    pong(&["--port-number", "65536"], &["--port-number <N>"]);
}
