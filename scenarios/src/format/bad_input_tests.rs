//! Every kind of bad input: the message, its place and its remedy.

use proptest::prelude::*;

use crate::input::InputError;
use crate::testing::expanded;

/// A good file; each line is one that tests replace.
const GOOD: &str = "\
title = 't'
profile = 'generic-400g'
seed = 1
[qp]
sq_depth = 64
[[program]]
kind = 'bandwidth'
size = '4KiB'
batch = 4
[[variant]]
name = 'a'
[[variant]]
name = 'b'
set = { 'qp.mtu' = '1KiB' }
[sweep]
'program.0.batch' = [1, 2]
[[expect]]
kind = 'range'
metric = 'throughput'
why = 'w'
min = '1Gbps'
";

fn error(text: &str, set: &[&str]) -> InputError {
    match expanded(text, set) {
        Ok(_) => panic!("accepted:\n{text}"),
        Err(error) => error,
    }
}

/// The good file with one line replaced must fail with this message, place included, and help.
#[track_caller]
fn replaced(old: &str, new: &str, message: &str, help: &str) {
    assert!(GOOD.contains(old), "{old} is not in the good file");
    let e = error(&GOOD.replacen(old, new, 1), &[]);
    assert_eq!(e.to_string(), format!("t.toml:{message}"));
    assert!(e.remedy().unwrap_or("").contains(help), "{:?}", e.remedy());
}

/// As above, through `--set`.
#[track_caller]
fn set(set: &str, message: &str, help: &str) {
    let e = error(GOOD, &[set]);
    assert_eq!(e.to_string(), message);
    assert!(e.remedy().unwrap_or("").contains(help), "{:?}", e.remedy());
}

#[test]
fn the_good_file_is_good() {
    let points = expanded(GOOD, &[]).unwrap_or_else(|e| panic!("{e}: {:?}", e.remedy()));
    assert_eq!(points.len(), 4);
}

#[test]
fn unknown_keys() {
    replaced("seed = 1", "sed = 1", "3:1: unknown key `sed`", "did you mean `seed`?");
    replaced("sq_depth", "sq_dept", "5:1: unknown key `sq_dept`", "did you mean `sq_depth`?");
    replaced("batch = 4", "bathc = 4", "9:1: unknown key `bathc`", "did you mean `batch`?");
    replaced("[qp]", "[pq]", "4:2: unknown key `pq`", "did you mean `qp`?");
    replaced("name = 'a'", "nam = 'a'", "11:1: unknown key `nam`", "did you mean `name`?");
    replaced("metric =", "metrik =", "19:1: unknown key `metrik`", "did you mean `metric`?");
    let help = "the possible keys are why, metric, in, where, min, max";
    replaced("min = '1Gbps'", "zz = 1", "21:1: unknown key `zz`", help);
}

#[test]
fn unknown_words() {
    let kind = "7:8: unknown value \"bandwith\"";
    replaced("kind = 'bandwidth'", "kind = 'bandwith'", kind, "did you mean `bandwidth`?");
    replaced("kind = 'range'", "kind = 'rang'", "18:8: unknown value \"rang\"", "`range`?");
    replaced("kind = 'range'", "", "17:1: the key `kind` is missing", "expected one of range");
    replaced("kind = 'bandwidth'", "", "6:1: the key `kind` is missing", "");
    set("qp.type=RD", "--set:1:9: unknown value \"RD\"", "did you mean `RC`?");
}

#[test]
fn wrong_units() {
    let unit = "8:8: \"4us\" has the unit `us`, which is no unit of a size in bytes";
    replaced("size = '4KiB'", "size = '4us'", unit, "its units are B, KB, KiB");
    let bare = "8:8: \"4096\" has no unit, expected a size in bytes";
    replaced("size = '4KiB'", "size = 4096", bare, "such as \"4096B\"");
    let sweep = GOOD.replace("'program.0.batch' = [1, 2]", "'program.0.size' = ['8B', '8']");
    let e = error(&sweep, &[]);
    assert_eq!(e.to_string(), "t.toml:16:27: \"8\" has no unit, expected a size in bytes");
    let variant = GOOD.replace("'1KiB'", "'1kib'");
    let e = error(&variant, &[]);
    let text = "t.toml:14:20: \"1kib\" has the unit `kib`, which is no unit of a size in bytes";
    assert_eq!(e.to_string(), text);
    let bound = "21:7: \"fast\" is no number and no quantity";
    replaced("min = '1Gbps'", "min = 'fast'", bound, "write for example 1.5 or \"2us\"");
}

#[test]
fn wrong_types() {
    let string = "5:12: wrong type: found the string \"64\"";
    replaced("sq_depth = 64", "sq_depth = '64'", string, "a whole number from 1 to 4294967295");
    let decimal = "5:12: wrong type: found the decimal 6.4";
    replaced("sq_depth = 64", "sq_depth = 6.4", decimal, "a whole number");
    replaced("title = 't'", "title = 3", "1:9: wrong type: found 3", "expected a string");
    replaced("[qp]", "run = []\n[qp]", "4:7: wrong type: found a list", "expected a table");
    let table = "16:1: `program.0.batch` leads nowhere: `program` has no `0`";
    replaced("[[program]]", "[program]", table, "[[program]]");
    let e = error("title = 't'\nprofile = 'generic-400g'\n[program]\nkind = 'latency'\n", &[]);
    assert_eq!(e.to_string(), "t.toml:3:1: wrong type: found a table");
    assert_eq!(e.remedy(), Some("expected a list"));
    set("qp.sig_all=1", "--set:1:12: wrong type: found 1", "true or false");
}

#[test]
fn negative_and_zero_where_impossible() {
    let negative = "5:12: impossible value: found -1";
    replaced("sq_depth = 64", "sq_depth = -1", negative, "from 1 to 4294967295");
    let zero = "5:12: impossible value: found 0";
    replaced("sq_depth = 64", "sq_depth = 0", zero, "from 1 to 4294967295");
    let size = "8:8: \"-4KiB\" is negative, and a size in bytes cannot be";
    replaced("size = '4KiB'", "size = '-4KiB'", size, "4KiB");
    let swept = "16:22: impossible value: found 0";
    replaced("[1, 2]", "[0, 2]", swept, "from 1 to 65536");
    set("qp.timeout=32", "--set:1:12: impossible value: found 32", "from 0 to 31");
    set("qp.retry_cnt=8", "--set:1:14: impossible value: found 8", "from 0 to 7");
    let propagation = "--set:1:22: \"0ns\" is zero, which is impossible here";
    set("topology.propagation=0ns", propagation, "a time such as");
    set("seed=-1", "--set:1:6: impossible value: found -1", "from 0 to 9223372036854775807");
    set("topology.rate=0Gbps", "--set:1:15: \"0Gbps\" is zero, which is impossible here", "");
}

#[test]
fn profiles_that_do_not_exist() {
    let there = "2:11: there is no profile \"generic-40g\"";
    replaced("generic-400g", "generic-40g", there, "did you mean `generic-400g`?");
    let file = "2:11: there is no profile \"./my.toml\": no such file";
    replaced("generic-400g", "./my.toml", file, "beside the scenario file");
    let line = GOOD.replacen("profile = 'generic-400g'\n", "", 1);
    assert_eq!(error(&line, &[]).to_string(), "t.toml:1:1: the key `profile` is missing");
}

/// What stands one table too high, too low, or under a name that is no number.
#[test]
fn keys_in_another_place_are_named_with_their_own() {
    let bare = "title = 't'\nprofile = 'generic-400g'\n";
    let link = "[[program]]\nkind = 'latency'\n[topology]\nlink = 'roce'\n";
    let e = error(&format!("{bare}{link}"), &[]);
    assert!(e.to_string().contains("`link` in [topology] is a list of cables"), "{e}");
    assert!(e.remedy().unwrap().contains("above all tables: link = \"roce\""), "{e}");
    let list = "--set:1:1: `fault.x.chance` leads nowhere: `fault` has no `x`";
    set("fault.x.chance=0", list, "`[[fault]]`");
    let unknown = "--set:1:1: unknown key `timeout` in `timeout`";
    set("timeout=3", unknown, "did you mean `qp.timeout`?");
    assert!(error(bare, &[]).remedy().unwrap().starts_with("write a `[[program]]` with"));
    let reboot = |switch: &str| {
        let text = format!(
            "{bare}[topology]\nkind = 'switch'\n[[program]]\nkind = 'latency'\n[[fault]]\n\
             id = 'f'\nkind = 'switch-reboot'\nmaybe = true\nswitch = {switch}\nafter = '1ms'\n\
             before = '2ms'\n"
        );
        expanded(&text, &[]).map(|_| ())
    };
    assert!(reboot("0").is_ok());
    let e = reboot("'switch0'").expect_err("a name");
    assert!(e.remedy().unwrap().ends_with(": write 0, without quotes"), "{:?}", e.remedy());
    assert!(!reboot("'spine'").expect_err("a name").remedy().unwrap().contains("write"));
}

#[test]
fn beyond_the_device() {
    let depth = "5:12: `qp.sq_depth` is 32769, and profile \"generic-400g\" allows at most 32768";
    replaced("sq_depth = 64", "sq_depth = 32769", depth, "`nic.max_sq_depth`");
    assert!(expanded(GOOD, &["qp.sq_depth=32768"]).is_ok(), "the limit itself is allowed");
    let inline =
        "--set:1:15: `qp.max_inline` is 221, and profile \"generic-400g\" allows at most 220";
    set("qp.max_inline=221B", inline, "`nic.max_inline`");
    assert!(expanded(GOOD, &["qp.max_inline=220B"]).is_ok());
    let more = "--set:1:18: `inline` is 221B, and `qp.max_inline` grants 220B";
    set("program.0.inline=221B", more, "raise `qp.max_inline`");
    assert!(expanded(GOOD, &["program.0.inline=220B"]).is_ok());
    let reads =
        "--set:1:18: `qp.max_rd_atomic` is 17, and profile \"generic-400g\" allows at most 16";
    set("qp.max_rd_atomic=17", reads, "");
    set("qp.mtu=1536B", "--set:1:8: 1536B is no path MTU", "1KiB, 2KiB, 4KiB");
}

#[test]
fn contradictions() {
    let batch = "9:9: `batch` is 65, and `qp.sq_depth` is 64";
    let one = GOOD.replace("[sweep]\n'program.0.batch' = [1, 2]\n", "");
    let e = error(&one.replace("batch = 4", "batch = 65"), &[]);
    assert_eq!(e.to_string(), format!("t.toml:{batch}"));
    assert!(expanded(&one.replace("batch = 4", "batch = 64"), &[]).is_ok());
    for (change, message, help) in [
        ("program.0.steps=['ring']", "`steps` has no use in `bandwidth`", "kind = \"script\""),
        ("program.0.kind=latency", "`batch` has no use in `latency`", "one message at a time"),
        ("program.0.peer=0", "`host` and `peer` are both 0", "name two hosts"),
        ("program.0.peer=2", "`peer` is 2, and there are 2 hosts, 0 to 1", "topology.hosts"),
        ("topology.hosts=3", "`back-to-back` connects two hosts, not 3", "switch"),
        ("topology.buffer=1MB", "`buffer` is about a switch, and `back-to-back` has none", ""),
        ("program.0.numa=remote", "", ""),
        (
            "program.0.ring_by=warp",
            "`ring_by` is about GPU threads, and the initiator is a CPU",
            "",
        ),
        ("program.0.poll_interval=1us", "", ""),
        ("program.0.window=65", "`window` is 65, and `qp.sq_depth` is 64", "raise the depth"),
        ("nic.bf_bytes=0B", "", ""),
        ("program.0.name=A b", "\"A b\" is no name for results", "a to z"),
        ("qp.type=UD", "a UD queue pair has no `write`", "RC"),
    ] {
        if message.is_empty() {
            assert!(expanded(&one, &[change]).is_ok(), "{change} alone is fine");
            continue;
        }
        let e = error(&one, &[change]);
        assert_eq!(e.message(), message, "{change}");
        assert!(e.origin().is_some(), "{change}");
        assert!(e.remedy().unwrap_or("").contains(help), "{change}: {:?}", e.remedy());
    }
}

#[test]
fn contradictions_of_two_changes() {
    let one = GOOD.replace("[sweep]\n'program.0.batch' = [1, 2]\n", "");
    for (changes, message) in [
        (["program.0.initiator=gpu", "program.0.numa=remote"], "`numa` is about CPU cores"),
        (["program.0.poll=event", "program.0.poll_interval=1us"], "`poll_interval` with"),
        (["program.0.ring=blueflame", "nic.bf_bytes=0B"], "has no BlueFlame"),
        (["program.0.op=read", "qp.max_rd_atomic=0"], "no READ or atomic allowed"),
        (["program.0.op=read", "qp.type=UC"], "a UC queue pair has no `read`"),
        (["program.0.op=read", "program.0.inline=8B"], "`read` cannot be inline"),
        (["program.0.op=fetch-add", "program.0.size=16B"], "`fetch-add` has 8 bytes, not 16B"),
        (["program.0.batch=1", "program.0.batch_delay=1us"], "waits for a batch to fill"),
        (["program.0.op=send", "qp.type=UD"], "does not fit one packet"),
        (["program.0.threads=1024", "program.0.qps=129"], "132096 queue pairs"),
    ] {
        // With an MTU of 4 KiB in variant a, 4-KiB sends fit; variant b has 1 KiB.
        let e = error(&one, &changes);
        assert!(e.message().contains(message), "{changes:?}: {e}");
        assert!(e.remedy().is_some(), "{changes:?}");
    }
}

#[test]
fn scripts() {
    let script = "title = 't'\nprofile = 'generic-400g'\n[[program]]\nkind = 'script'\n\
                  steps = ['post write 16B', 'ring', 'wait']\n";
    assert!(expanded(script, &[]).is_ok());
    let with = |old: &str, new: &str| error(&script.replace(old, new), &[]);
    let e = with("'ring'", "'rign'");
    assert_eq!(e.to_string(), "t.toml:5:28: unknown step \"rign\"");
    assert_eq!(e.remedy(), Some("did you mean `ring`?"));
    let e = with("'post write 16B'", "'post write 221B inline'");
    assert_eq!(e.to_string(), "t.toml:5:10: 221B inline, and `qp.max_inline` grants 220B");
    let e = with("'ring'", "'ring qp=1'");
    assert_eq!(e.to_string(), "t.toml:5:28: queue pair 1, and the program has 1, counted from 0");
    let e = with("steps = ['post write 16B', 'ring', 'wait']\n", "");
    assert_eq!(e.to_string(), "t.toml:3:1: a script without `steps`");
    let e = with("steps =", "size = '16B'\nsteps =");
    assert_eq!(e.to_string(), "t.toml:5:8: `size` has no use in `script`");
}

#[test]
fn rights_that_no_region_or_queue_pair_has() {
    let with = |line: &str| GOOD.replace("size = '4KiB'", &format!("size = '4KiB'\n{line}"));
    for (line, good) in [
        ("access = []", true),
        ("access = ['remote-read']", true),
        ("access = ['local-write', 'remote-write', 'remote-atomic']", true),
        ("access = ['remote-write']", false),
        ("peer_access = ['remote-atomic', 'remote-read']", false),
    ] {
        if good {
            assert!(expanded(&with(line), &[]).is_ok(), "{line}");
            continue;
        }
        let e = error(&with(line), &[]);
        assert!(e.message().starts_with("the verbs register no such region"), "{line}: {e}");
        assert_eq!(e.remedy(), Some("add \"local-write\""));
        assert!(e.to_string().starts_with("t.toml:9:"), "{e}");
    }
    let e = error(&GOOD.replace("sq_depth = 64", "access = ['local-write']"), &[]);
    assert!(e.to_string().starts_with("t.toml:5:10: a queue pair grants its peer nothing"), "{e}");
    assert!(expanded(&GOOD.replace("sq_depth = 64", "access = ['remote-read']"), &[]).is_ok());
    let e = error(&with("access = ['remote-wirte']"), &[]);
    assert!(e.to_string().contains("remote-wirte"), "{e}");
}

#[test]
fn steps_about_protection() {
    let script = |step: &str, more: &str| {
        format!(
            "title = 't'\nprofile = 'generic-400g'\n[[program]]\nkind = 'script'\n\
             steps = ['{step}']\n{more}"
        )
    };
    // The peer hears of it after 50 us.
    for (step, more, good) in [
        ("dereg after=51us", "", true),
        ("dereg after=50us", "", false),
        ("dereg", "", true),
        ("post read 8B", "[qp]\nmax_dest_rd_atomic = 0", false),
        ("post read 8B anyway", "[qp]\nmax_dest_rd_atomic = 0", true),
        ("post fetch-add anyway", "[qp]\nmax_rd_atomic = 0", true),
        ("post send-inv 8B", "[qp]\ntype = \"UC\"", false),
        ("post send-inv 8B", "", true),
        ("post send 8B solicited", "peer_poll = \"solicited\"", true),
    ] {
        let text = script(step, more);
        match expanded(&text, &[]) {
            Ok(_) => assert!(good, "{step}, {more}"),
            Err(e) => {
                assert!(!good, "{step}, {more}: {e}");
                assert!(e.to_string().starts_with("t.toml:5:10: "), "{e}");
                assert!(e.remedy().is_some(), "{e}");
            }
        }
    }
    let loops = |set: &str, message: &str| {
        let e = error(GOOD, &[set]);
        assert!(e.message().contains(message), "{e}");
        assert!(e.remedy().is_some(), "{e}");
    };
    loops("program.0.op=send-inv", "would invalidate the same key each time");
    loops("program.0.peer_poll=solicited", "posts nothing that is solicited");
}

#[test]
fn shared_receive_queues() {
    let sends = "title = 't'\nprofile = 'generic-400g'\n[srq]\ndepth = 8\n[[program]]\n\
                 kind = 'message-rate'\nop = 'send'\n";
    assert!(expanded(sends, &[]).is_ok());
    for (set, message, help) in [
        ("srq.depth=32769", "`srq.depth` is 32769, and profile \"generic-400g\" allows", "lower"),
        ("srq.limit=8", "`srq.limit` is 8, and the queue holds 8 receives", "at most 7"),
        ("srq.repost=limit", "no limit event ever comes", "set `srq.limit`"),
        ("program.0.op=write", "and no program takes receives", "op = \"send\""),
        ("program.0.receives=none", "with a shared receive queue", "leave it or [srq] out"),
        ("program.0.kind=ping-pong", "the receivers of `ping-pong` share no", "\"program\""),
        ("program.0.hosts=3", "`hosts` is 3 from host 0 on, and the last host is 1", "topology"),
    ] {
        let e = error(sends, &[set]);
        assert!(e.to_string().contains(message), "{set}: {e}");
        assert!(e.remedy().unwrap_or("").contains(help), "{set}: {:?}", e.remedy());
    }
    for good in ["srq.depth=32768", "srq.limit=7", "qp.type=UD", "qp.type=UC"] {
        assert!(expanded(sends, &[good]).is_ok(), "{good}");
    }
    assert!(expanded(sends, &["srq.repost=limit", "srq.limit=1"]).is_ok());
    assert!(expanded(sends, &["program.0.kind=ping-pong", "srq.share=program"]).is_ok());
    let threads = ["program.0.kind=ping-pong", "srq.share=program", "program.0.threads=2"];
    assert!(error(sends, &threads).to_string().contains("share no queue"));
    let more = ["topology.kind=switch", "topology.hosts=3", "program.0.hosts=2"];
    let e = error(sends, &more);
    assert!(e.to_string().contains("host 1 is the peer and one of the 2 hosts"), "{e}");
    assert!(expanded(sends, &[&more[..], &["program.0.peer=2"]].concat()).is_ok());
}

#[test]
fn those_who_share_a_receive_queue_agree() {
    let two = "title = 't'\nprofile = 'generic-400g'\n[srq]\n[topology]\nkind = 'switch'\n\
               hosts = 3\n[[program]]\nname = 'a'\nkind = 'message-rate'\nop = 'send'\n\
               [[program]]\nname = 'b'\nkind = 'latency'\nhost = 2\nop = 'send'\n";
    assert!(expanded(two, &[]).is_ok());
    for set in [
        "program.1.peer_poll_interval=1us",
        "program.1.repost_batch=1",
        "program.1.repost_time=1us",
        "program.1.receives=once",
        "program.1.payload=data",
        "program.1.peer_memory=gpu",
    ] {
        let e = error(two, &[set]);
        assert!(e.to_string().contains("share the receive queue of host 1"), "{set}: {e}");
        assert!(expanded(two, &[set, "srq.share=program"]).is_ok(), "{set}");
    }
}

#[test]
fn keys_of_a_receiver_that_does_not_receive() {
    for key in ["peer_poll_interval=1us", "repost_batch=1", "repost_time=1us"] {
        let set = format!("program.0.{key}");
        let e = error(GOOD, &[&set]);
        assert!(e.to_string().contains("the peer receives nothing"), "{key}: {e}");
        assert!(expanded(GOOD, &[&set, "program.0.op=send"]).is_ok(), "{key}");
    }
    let pong = "title = 't'\nprofile = 'generic-400g'\n[[program]]\nkind = 'ping-pong'\n\
                op = 'send'\n";
    let e = error(pong, &["program.0.repost_batch=1"]);
    assert!(e.to_string().contains("`repost_batch` has no use in `ping-pong`"), "{e}");
    let flows = "title = 't'\nprofile = 'generic-400g'\n[[program]]\nkind = 'flows'\nhosts = 2\n\
                 flows = { pattern = 'permutation' }\n";
    assert!(expanded(flows, &[]).is_ok());
    for (key, value) in [("peer_poll_interval", "1us"), ("ring_by", "warp")] {
        let e = error(flows, &[&format!("program.0.{key}={value}")]);
        assert!(e.to_string().contains(&format!("`{key}` has no use in `flows`")), "{e}");
    }
}

#[test]
fn events_that_cannot_come() {
    let script = "title = 't'\nprofile = 'generic-400g'\n[[program]]\nkind = 'script'\n\
                  steps = ['state err', 'await-event last-wqe', 'drain', 'destroy']\n";
    let e = error(script, &[]);
    assert!(e.to_string().contains("without an SRQ raises no last-WQE event"), "{e}");
    assert!(expanded(script, &["srq.depth=8"]).is_ok());
    let limit = script.replace("last-wqe", "srq-limit");
    assert!(error(&limit, &[]).to_string().contains("without an SRQ"));
    assert!(error(&limit, &["srq.depth=8"]).to_string().contains("is not armed"));
    assert!(expanded(&limit, &["srq.depth=8", "srq.limit=7"]).is_ok());
    let e = error(&script.replace("'drain'", "'drain qp=1'"), &["srq.depth=8"]);
    assert!(e.to_string().contains("queue pair 1, and the program has 1"), "{e}");
}

#[test]
fn expectations_that_cannot_hold() {
    let last = |text: &str| GOOD.replace("min = '1Gbps'", text);
    for (text, message) in [
        ("", "t.toml:19:10: a range without ends"),
        ("min = 2\nmax = 1", "t.toml:22:7: `max` is less than `min`"),
        ("min = 2\nmax = '1us'", "t.toml:22:7: `min` and `max` are of different kinds"),
        ("min = 1\nin = 'c'", "t.toml:22:6: there is no variant \"c\""),
        ("min = 1\nwhere = { size = '8B' }", "t.toml:22:9: there is no axis `size`"),
    ] {
        assert_eq!(error(&last(text), &[]).to_string(), message, "{text}");
    }
    replaced("why = 'w'", "", "17:1: the key `why` is missing", "");
    replaced("why = 'w'", "why = ''", "20:7: `why` is empty", "on one line");
}

#[test]
fn variants_and_sweeps() {
    replaced("name = 'b'", "name = 'a'", "13:8: two variants are called \"a\"", "");
    replaced("name = 'a'", "name = ''", "11:8: a variant needs a name", "");
    let path = "14:9: unknown key `pq` in `pq.mtu`";
    replaced("'qp.mtu'", "'pq.mtu'", path, "did you mean `qp`?");
    replaced("'qp.mtu'", "'qp.mtuu'", "14:9: unknown key `mtuu`", "did you mean `mtu`?");
    let element = "16:1: `program.1.batch` leads nowhere: `program` has no `1`";
    replaced("'program.0.batch'", "'program.1.batch'", element, "it has 1 elements");
    replaced("[1, 2]", "[]", "16:21: `program.0.batch` has no values to try", "");
    replaced("'program.0.batch'", "'expect'", "16:1: `expect` cannot be changed by a path", "");
    let many = "'program.0.batch' = { from = 1, to = 101, step = 1 }\n\
                'program.0.size' = { from = '1B', to = '100B', step = '1B' }";
    let e = error(&GOOD.replace("'program.0.batch' = [1, 2]", many), &[]);
    assert_eq!(e.to_string(), "t.toml:16:1: the sweep makes more than 10000 points");
}

#[test]
fn the_command_line() {
    set("qp.mtu", "--set:1:1: \"qp.mtu\" is not `path=value`", "program.0.size=64B");
    set("=3", "--set:1:1: \"\" is not a path", "keys with points between them");
    set("program.0.szie=8B", "--set:1:1: unknown key `szie`", "did you mean `size`?");
    set("pcie.width=3", "--set:1:12: impossible value: `pcie.width` is 3", "one of 1, 2, 4, 8, 16");
}

#[test]
fn text_that_is_no_toml() {
    let e = error("title = 't\n", &[]);
    assert!(e.to_string().starts_with("t.toml:1:"), "{e}");
    assert!(e.to_string().contains("not TOML"), "{e}");
    let e = error("", &[]);
    assert_eq!(e.to_string(), "t.toml:1:1: the key `title` is missing");
}

proptest! {
    /// Whatever is cut out of a good file and put in instead: an error or a scenario, no panic,
    /// and a place inside the text.
    #[test]
    fn no_file_makes_a_panic(at in 0usize..400, length in 0usize..40, new in "[ -~\n]{0,12}") {
        let (at, end) = (at.min(GOOD.len()), (at + length).min(GOOD.len()));
        let text = format!("{}{new}{}", &GOOD[..at], &GOOD[end..]);
        if let Err(e) = expanded(&text, &[]) {
            prop_assert!(!e.message().is_empty());
            if let Some(origin) = e.origin() {
                prop_assert!(origin.start <= origin.end && origin.end <= origin.source.text.len());
            }
        }
    }
}

/// A script with peers that come late, and everything that is wrong with it.
#[test]
fn states_p_key_tables_and_handshakes_that_cannot_be() {
    let script = |steps: &str, more: &str| {
        format!(
            "title = 't'\nprofile = 'generic-400g'\n{more}\n[[program]]\nkind = 'script'\n\
             steps = [{steps}]\n"
        )
    };
    let cases = [
        ("'state rtr gid=host2'", "", "`gid=host2`, and there are 2 hosts, 0 to 1", "raise"),
        ("'state init pkey=1'", "", "`pkey=1`, and `topology.pkeys` has 1 entries", "longer"),
        ("'state rtr qp=1'", "", "queue pair 1, and the program has 1", "raise"),
        ("'state rts mtu=1KiB'", "", "`mtu` is no attribute of `state rts`", "`state rtr`"),
        ("'ring'", "[topology]\npkeys = []", "a P_Key table of 0 entries", "1 to 128"),
        ("'ring'", "[topology]\npkeys = ['8001']", "\"8001\" is no P_Key", "0x8001"),
        ("'ring'", "[topology]\npkeys = ['0x18001']", "\"0x18001\" is no P_Key", "16 bits"),
        ("'ring'", "[topology]\npkeys = ['0x']", "\"0x\" is no P_Key", "16 bits"),
    ];
    for (steps, more, message, help) in cases {
        let e = error(&script(steps, more), &[]);
        assert!(e.to_string().contains(message), "{e}");
        assert!(e.to_string().starts_with("t.toml:"), "{e} has no place");
        assert!(e.remedy().unwrap_or("").contains(help), "{e}: {:?}", e.remedy());
    }
    let last = script(
        "'state init pkey=1', 'state rtr gid=host1'",
        "[topology]\npkeys = ['0xffff', '0x1']",
    );
    assert!(expanded(&last, &[]).is_ok());
    assert!(expanded(&script("'state init pkey=1 anyway'", ""), &[]).is_ok(), "it is meant");
    let pkeys: Vec<String> = (0..128).map(|n| format!("'0x{n:x}'")).collect();
    let table = |n: usize| format!("[topology]\npkeys = [{}]", vec!["'0x1'"; n].join(", "));
    assert!(
        expanded(&script("'ring'", &format!("[topology]\npkeys = [{}]", pkeys.join(","))), &[])
            .is_ok()
    );
    let e = error(&script("'ring'", &table(129)), &[]);
    assert!(e.to_string().contains("a P_Key table of 129 entries"), "{e}");
}

#[test]
fn a_handshake_needs_a_peer_that_waits() {
    for kind in ["ping-pong", "produce"] {
        let text = format!(
            "title = 't'\nprofile = 'generic-400g'\n[[program]]\nkind = '{kind}'\nop = 'send'\n\
             size = '64B'\niterations = 8\nhandshake = '1ms'\n"
        );
        let e = error(&text, &[]);
        assert!(e.to_string().contains(&format!("`handshake` has no use in `{kind}`")), "{e}");
        assert!(e.remedy().unwrap_or("").contains("a script has it"), "{:?}", e.remedy());
    }
    let e = error(&GOOD.replace("batch = 4", "handshake = '0ns'"), &[]);
    assert!(e.to_string().contains("0ns"), "{e}");
    assert!(expanded(&GOOD.replace("batch = 4", "handshake = '1ms'"), &[]).is_ok());
}

#[test]
fn defaults_are_kept_within_the_device_and_requests_are_not() {
    let plain = "title = 't'\nprofile = 'generic-400g'\n[[program]]\nkind = 'latency'\n";
    let inline = |set: &[&str]| {
        let points = expanded(plain, set).unwrap_or_else(|e| panic!("{set:?}: {e}"));
        points[0].point.scenario.qp.max_inline.0.0
    };
    assert_eq!(inline(&[]), 220);
    assert_eq!(inline(&["profile=e810"]), 101);
    assert_eq!(inline(&["profile=e810", "qp.max_inline=101B"]), 101);
    assert_eq!(inline(&["profile=rxe"]), 220, "no more than the default");
    let e = error(plain, &["profile=e810", "qp.max_inline=102B"]);
    assert!(e.message().starts_with("`qp.max_inline` is 102, and profile \"e810\""), "{e}");
    let qp = |set: &str| expanded(plain, &[set]).unwrap()[0].point.scenario.qp.clone();
    assert_eq!(qp("settings.nic.max_rd_atomic=4").max_dest_rd_atomic.value(), 4);
    assert_eq!(qp("settings.nic.max_sq_depth=64").sq_depth.value(), 64);
    assert_eq!(qp("settings.nic.max_rq_depth=64").rq_depth.value(), 64);
    assert_eq!(qp("settings.port.max_mtu=2KiB").mtu.0.0, 2048);
}

#[test]
fn timers_that_contradict_their_mode() {
    let plain = "title = 't'\nprofile = 'generic-400g'\n[[program]]\nkind = 'latency'\n";
    for (set, wrong) in [
        (&["timeout_mode=adaptive", "timeout_least=2ms", "timeout_ceiling=2ms"][..], ""),
        (
            &["timeout_mode=adaptive", "timeout_least=2ms", "timeout_ceiling=1999us"],
            "raise the ceiling",
        ),
        (&["timeout_mode=floor", "timeout_least=2ms"], ""),
        (&["timeout_mode=floor", "timeout_most=2"], "set the mode to \"fixed\""),
        (&["timeout_mode=floor", "timeout_ceiling=2ms"], "set the mode to \"adaptive\""),
        // The first has the value that the profile has anyway: no request.
        (
            &["timeout_mode=floor", "timeout_most=1", "timeout_ceiling=2ms"],
            "set the mode to \"adaptive\"",
        ),
        (&["timeout_most=4"], ""),
        (&["timeout_mode=ticks", "timer_tick=1ms"], ""),
        (&["timer_tick=1ms"], "set the mode to \"ticks\""),
        (&["timeout_mode=ticks", "timeout_least=2ms"], "set the mode to \"floor\" or"),
        (&["timeout_least=1ms"], "set the mode to \"floor\" or \"adaptive\""),
    ] {
        let set: Vec<String> = set.iter().map(|s| format!("settings.rc.{s}")).collect();
        let set: Vec<&str> = set.iter().map(String::as_str).collect();
        match expanded(plain, &set) {
            Ok(_) => assert_eq!(wrong, "", "{set:?}"),
            Err(e) => {
                assert!(!wrong.is_empty() && e.message().contains(wrong), "{set:?}: {e}");
                assert!(e.to_string().starts_with("--set:1:"), "{e}");
            }
        }
    }
}

#[test]
fn bursts_that_never_fire() {
    let with =
        |burst: &str| format!("{GOOD}[[fault]]\nid = 'f'\nkind = 'drop'\nburst = {{ {burst} }}\n");
    let (enter, leave) = ("enter = '1/10'", "leave = '1/2'");
    for (burst, good) in [
        (format!("{enter}, {leave}, bad = '0/1', good = '1/9'"), true),
        (format!("{enter}, {leave}, bad = '1/9', good = '0/1'"), true),
        (format!("{enter}, {leave}, bad = '0/1', good = '0/1'"), false),
    ] {
        let result = expanded(&with(&burst), &[]);
        assert_eq!(result.is_ok(), good, "{burst}");
        if let Err(e) = result {
            assert!(e.message().contains("never fires") && e.remedy().is_some(), "{e}");
            assert!(expanded(&(with(&burst) + "maybe = true\n"), &[]).is_ok(), "{burst}");
        }
    }
}

#[test]
fn steps_that_cannot_end_well() {
    let script = |steps: &str, more: &str| {
        format!(
            "title = 't'\nprofile = 'generic-400g'\n[[program]]\nkind = 'script'\nqps = 2\n\
             steps = [{steps}]\n{more}"
        )
    };
    let notify = "state sqd with=en_sqd_async_notify";
    for (steps, more, wrong) in [
        ("'recv 64B x512'", "", ""),
        ("'recv 64B x513'", "", "513 receives, and the peer's queue takes 512 (`qp.rq_depth`)"),
        ("'recv 64B x513 own'", "", ""),
        ("'recv 64B x8'", "[srq]\ndepth = 8", ""),
        ("'recv 64B x9'", "[srq]\ndepth = 8", "takes 8 (`srq.depth`)"),
        (&format!("'{notify}', 'await-event sq-drained'"), "", ""),
        (&format!("'{notify} qp=1', 'await-event sq-drained'"), "", "asks for the event"),
        (&format!("'await-event sq-drained', '{notify}'"), "", "asks for the event"),
        ("'state sqd', 'await-event sq-drained 1ms'", "", "asks for the event"),
    ] {
        match expanded(&script(steps, more), &[]) {
            Ok(_) => assert_eq!(wrong, "", "{steps}"),
            Err(e) => {
                assert!(!wrong.is_empty() && e.message().contains(wrong), "{steps}: {e}");
                assert!(e.to_string().starts_with("t.toml:6:") && e.remedy().is_some(), "{e}");
            }
        }
    }
}
