//! Files that cannot be run, by the command in a process: exit status 2, a message with the place
//! and the remedy, and nothing written. What the reader of files alone refuses is tested beside
//! it; here each kind goes the whole way.

use std::fs;

use doorbell_tests::command::{Ended, Folder, run};

const COMMAND: &str = env!("CARGO_BIN_EXE_command");

/// A good file; `EDIT` marks where each test puts its mistake.
const BANDWIDTH: &str = "\
title = 't'
profile = 'generic-400g'
[qp]
sq_depth = 64
[[program]]
kind = 'bandwidth'
size = '4KiB'
iterations = 10
warmup = 0
batch = 4
";

fn script(steps: &str) -> String {
    format!(
        "title = 't'\nprofile = 'generic-400g'\n[[program]]\nkind = 'script'\nsteps = [{steps}]\n"
    )
}

fn run_file(folder: &Folder, text: &str) -> Ended {
    let file = folder.file("s.toml", text.as_bytes());
    let out = folder.path().join("out");
    let ended = run(COMMAND, &["run", &file, "--out", out.to_str().unwrap()]);
    if ended.status == 2 {
        assert_eq!(folder.names(), ["s.toml"], "nothing is written");
        assert_eq!(ended.stdout, "");
    }
    ended
}

#[track_caller]
fn refused(text: &str, place: &str, words: &[&str]) {
    let name = std::thread::current().name().unwrap_or("bad").replace("::", "-");
    let folder = Folder::new(&name);
    let ended = run_file(&folder, text);
    assert_eq!(ended.status, 2, "{ended:?}");
    let place = format!("s.toml:{place}]");
    for word in words.iter().copied().chain([&*place]) {
        assert!(ended.stderr.contains(word), "{word:?} is not in\n{}", ended.stderr);
    }
}

fn edited(old: &str, new: &str) -> String {
    assert!(BANDWIDTH.contains(old));
    BANDWIDTH.replacen(old, new, 1)
}

#[test]
fn the_good_files_are_good() {
    for (i, text) in [
        BANDWIDTH.to_owned(),
        script("'post write 16B x3', 'ring', 'wait'"),
        script("'post write 16B x3 pd=0', 'ring', 'wait'"),
        script(
            "'state reset', 'state init', 'state rtr', 'state rts', 'post read 9B', 'ring', 'wait'",
        ),
        script("'state sqd', 'post write 16B', 'ring', 'state rts', 'wait'"),
        script("'state err', 'post write 16B', 'ring', 'wait 1'"),
    ]
    .iter()
    .enumerate()
    {
        let folder = Folder::new(&format!("good-{i}"));
        let ended = run_file(&folder, text);
        assert_eq!(ended.status, 0, "{ended:?}");
        assert_eq!(folder.names(), ["out", "s.toml"]);
    }
}

#[test]
fn an_unknown_key() {
    refused(&edited("batch = 4", "bacth = 4"), "10:1", &["unknown key `bacth`", "`batch`?"]);
}

#[test]
fn a_wrong_unit() {
    refused(&edited("'4KiB'", "'4us'"), "7:8", &["4us", "KiB"]);
    refused(&edited("'4KiB'", "4096"), "7:8", &["\"4096B\""]);
}

#[test]
fn negative_and_zero_where_impossible() {
    refused(&edited("sq_depth = 64", "sq_depth = 0"), "4:12", &["from 1 to"]);
    refused(&edited("sq_depth = 64", "sq_depth = -5"), "4:12", &["from 1 to"]);
    refused(&edited("batch = 4", "batch = 0"), "10:9", &["from 1 to"]);
    refused(&edited("iterations = 10", "iterations = 0"), "8:14", &["from 1 to"]);
}

#[test]
fn more_inline_than_granted() {
    let more = edited("batch = 4", "inline = '221B'");
    refused(&more, "10:10", &["`inline` is 221B", "raise `qp.max_inline`"]);
    let device = edited("sq_depth = 64", "max_inline = '221B'");
    refused(&device, "4:14", &["allows at most 220", "`nic.max_inline`"]);
    let step = script("'post write 221B inline', 'ring'");
    refused(&step, "5:10", &["221B inline", "send less"]);
}

#[test]
fn a_profile_that_does_not_exist() {
    refused(&edited("generic-400g", "generic-4000g"), "2:11", &["did you mean `generic-400g`?"]);
}

#[test]
fn a_queue_deeper_than_the_device_allows() {
    let deep = edited("sq_depth = 64", "sq_depth = 32769");
    refused(&deep, "4:12", &["allows at most 32768", "`nic.max_sq_depth`"]);
    // One less is fine for the device; the reader alone decides, so nothing has to run.
    let folder = Folder::new("deep");
    let file = folder.file("s.toml", edited("sq_depth = 64", "sq_depth = 32768").as_bytes());
    assert_eq!(run(COMMAND, &["explain", &file]).status, 0);
}

#[test]
fn posting_in_the_wrong_state() {
    let steps = script("'state reset', 'post write 16B', 'ring', 'wait'");
    refused(&steps, "5:25", &["QP is RESET; posting a send needs RTS", "state rts"]);
    let steps = script("'post write 16B', 'ring', 'wait', 'state reset', 'post send 16B', 'ring'");
    refused(&steps, "5:59", &["QP is RESET; posting a send needs RTS"]);
}

#[test]
fn a_state_that_is_not_next() {
    let steps = script("'state rtr'");
    refused(&steps, "5:10", &["QP is RTS, MODIFY to RTR needs INIT"]);
}

#[test]
fn a_buffer_of_another_protection_domain() {
    for end in ["'wait'", "'compute 20us'"] {
        let steps = script(&format!("'post write 16B', 'post write 16B pd=1', 'ring', {end}"));
        let words = [
            "the buffer belongs to protection domain 1",
            "the queue pair to 0",
            "local protection error",
            "pd=0",
        ];
        refused(&steps, "5:28", &words);
    }
    // Inline data needs no key, and what is never rung is never checked.
    for (i, steps) in
        ["'post write 16B inline pd=1', 'ring', 'wait'", "'post write 16B pd=1'"].iter().enumerate()
    {
        let folder = Folder::new(&format!("pd-{i}"));
        let ended = run_file(&folder, &script(steps));
        assert_eq!(ended.status, 0, "{steps}: {ended:?}");
    }
}

#[test]
fn a_file_that_is_not_utf_8_or_much_too_long() {
    let folder = Folder::new("bytes");
    let latin = folder.file("latin.toml", b"title = \"caf\xe9\"\n");
    let ended = run(COMMAND, &["run", &latin]);
    assert_eq!(ended.status, 2);
    assert!(ended.stderr.contains(":1:13: not UTF-8"), "{}", ended.stderr);
    let huge = folder.file("huge.toml", b"");
    fs::File::options().write(true).open(&huge).unwrap().set_len(100_000_000).unwrap();
    let ended = run(COMMAND, &["run", &huge]);
    assert_eq!(ended.status, 2);
    assert!(ended.stderr.contains("has 100000000 bytes; the limit is"), "{}", ended.stderr);
}

#[test]
fn what_a_program_may_not_ask_of_the_simulator() {
    // 128 programs on a host are what handles can name; each thread is one.
    let many = edited("batch = 4", "threads = 200");
    refused(&many, "10:11", &["threads"]);
}
