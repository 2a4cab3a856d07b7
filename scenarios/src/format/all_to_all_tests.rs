//! Bad input of exchanges: the message, its place and its remedy, and what is just allowed.

use crate::testing::{accepted, refused};

const GOOD: &str = "\
title = 't'
profile = 'generic-400g'
[topology]
kind = 'switch'
hosts = 4
[[program]]
kind = 'all-to-all'
hosts = 4
size = '4KiB'
payload = 'data'
[program.all_to_all]
route = 'two-hop'
group = 2
tokens = { each = 9, moved = 9, experts = 8, top = 8 }
";

#[track_caller]
fn replaced(old: &str, new: &str, message: &str, help: &str) {
    assert!(GOOD.contains(old), "{old} is not in the good file");
    refused(&GOOD.replacen(old, new, 1), message, help);
}

#[test]
fn the_good_file_is_good() {
    accepted(GOOD);
    accepted(&GOOD.replace("two-hop", "direct"));
    accepted(&GOOD.replace("payload = 'data'\n", ""));
    accepted(&GOOD.replace("size = '4KiB'", "size = '1B'"));
}

#[test]
fn who_takes_part() {
    replaced("hosts = 4\nsize", "hosts = 5\nsize", "`hosts` is 5 from host 0 on", "lower it");
    replaced("hosts = 4\nsize", "size", "an exchange of one host", "at least 2 hosts");
    replaced("[[program]]", "[qp]\ntype = 'UC'\n[[program]]", "between RC queue pairs", "RC");
    let srq = "[srq]\ndepth = 8\n[[program]]";
    replaced("[[program]]", srq, "shared receive queues of its own", "leave [srq] out");
}

#[test]
fn bytes_are_where_completions_are() {
    let core = "a core polls, and the bytes are on another way to a GPU's memory";
    replaced("size", "memory = 'gpu'\nsize", core, "initiator = \"gpu\"");
    let block = "a GPU polls, and the bytes are on another way to host memory";
    replaced("size", "initiator = 'gpu'\nsize", block, "memory = \"gpu\"");
    let both = "initiator = 'gpu'\nmemory = 'gpu'\nsize";
    accepted(&GOOD.replacen("size", both, 1));
    accepted(&GOOD.replacen("size", "memory = 'host-remote'\nsize", 1));
}

#[test]
fn ways_and_their_keys() {
    replaced("two-hop", "three-hop", "unknown value", "two-hop");
    let gone = GOOD.split_once("[program.all_to_all]").unwrap().1;
    replaced(
        &format!("[program.all_to_all]{gone}"),
        "",
        "an exchange without a table `all_to_all`",
        "all_to_all = { route",
    );
    let flows = GOOD.replace("all-to-all", "flows").replace("payload = 'data'\n", "");
    refused(&flows, "`all_to_all` has no use in `flows`", "leave it out");
    replaced("size", "op = 'send'\nsize", "`op` has no use in `all-to-all`", "leave it out");
    replaced("size", "batch = 4\nsize", "`batch` has no use in `all-to-all`", "leave it out");
}

#[test]
fn sizes_and_pieces() {
    replaced("'4KiB'", "'0B'", "nothing to exchange", "at least 1B");
    replaced("group = 2", "chunk = '2GiB'", "a `chunk` of 2GiB", "at most 1GiB");
    accepted(&GOOD.replace("group = 2", "chunk = '1GiB'"));
    accepted(&GOOD.replace("group = 2", "gather = 30"));
    replaced("group = 2", "gather = 31", "a `gather` of 31, and the NIC takes 30", "nic.max_sge");
    let small = GOOD.replace("group = 2", "chunk = '1B'");
    accepted(&small.replace("'4KiB'", "'16777216B'"));
    let many = "16777217 pieces, and 16777216 can be numbered";
    refused(&small.replace("'4KiB'", "'16777217B'"), many, "larger chunks");
}

#[test]
fn tokens_and_experts() {
    replaced("experts = 8", "experts = 9", "9 experts on 4 hosts", "a multiple of `hosts`");
    replaced("top = 8", "top = 9", "`top` is 9, and there are 8 experts", "at most all");
    replaced("moved = 9", "moved = 10", "10 tokens move of 9", "at most `each`");
    accepted(&GOOD.replace("top = 8", "top = 8, groups = 1"));
    replaced("top = 8", "top = 8, groups = 0", "0", "");
}
