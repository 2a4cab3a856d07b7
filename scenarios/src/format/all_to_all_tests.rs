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
    for key in ["sq_depth = 64", "rq_depth = 64", "cq_depth = 64", "max_send_sge = 2"] {
        let qp = format!("[qp]\n{key}\n[[program]]");
        replaced("[[program]]", &qp, "size their own queues", "leave it out; `window`");
    }
    for key in ["max_inline = '64B'", "sig_all = true"] {
        let qp = format!("[qp]\n{key}\n[[program]]");
        replaced("[[program]]", &qp, "size their own queues", "leave it out; `window`");
    }
    // They say what they always say, or there is another program that they are for.
    accepted(&GOOD.replacen("[[program]]", "[qp]\nsq_depth = 128\n[[program]]", 1));
    accepted(&GOOD.replacen("[[program]]", "[qp]\ntimeout = 12\n[[program]]", 1));
    let both = GOOD.replacen("[[program]]", "[qp]\nsq_depth = 64\n[[program]]\nname = 'x'", 1);
    let other = "[[program]]\nname = 'y'\nkind = 'latency'\nsize = '8B'\n";
    accepted(&format!("{both}{other}"));
}

#[test]
fn sizes_and_pieces() {
    replaced("'4KiB'", "'0B'", "nothing to exchange", "at least 1B");
    replaced("group = 2", "chunk = '2GiB'", "a `chunk` of 2GiB", "at most 1GiB");
    accepted(&GOOD.replace("group = 2", "chunk = '1GiB'"));
    accepted(&GOOD.replace("group = 2", "gather = 30"));
    replaced("group = 2", "gather = 31", "a `gather` of 31, and the NIC takes 30", "nic.max_sge");
    // Of two hosts, so that all pieces can be planned.
    let two = GOOD.replace("hosts = 4\nsize", "hosts = 2\nsize").replace("payload = 'data'\n", "");
    let two = two.replace("tokens = { each = 9, moved = 9, experts = 8, top = 8 }\n", "");
    let small = two.replace("group = 2", "chunk = '1B'");
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

/// What members send is kept, or at least planned piece by piece.
#[test]
fn no_more_than_can_be_kept() {
    // Three parcels of four hosts, each in an outbox and in two inboxes: 36 times the size.
    let counts = GOOD.replace("tokens = { each = 9, moved = 9, experts = 8, top = 8 }\n", "");
    let chunk = counts.replace("group = 2", "chunk = '1GiB'");
    accepted(&chunk.replace("'4KiB'", "'238609294B'"));
    let help = "a smaller `size` or fewer `hosts`";
    let all = "the hosts have together 8589934620 B, and at most 8GiB are kept";
    refused(&chunk.replace("'4KiB'", "'238609295B'"), all, help);
    let silent = chunk.replace("payload = 'data'\n", "");
    accepted(&silent.replace("'4KiB'", "'7TiB'"));
    refused(&silent.replace("'4KiB'", "'8000TiB'"), "one host has", help);
    // Twelve parcels, in pieces of a byte.
    let small = counts.replace("payload = 'data'\n", "").replace("group = 2", "chunk = '1B'");
    accepted(&small.replace("'4KiB'", "'5592405B'"));
    let pieces = "67108872 pieces of all hosts, and at most 67108864 are planned";
    refused(&small.replace("'4KiB'", "'5592406B'"), pieces, "larger chunks, or fewer hosts");
}

#[test]
fn sums_that_come_back() {
    let combine = "top = 8, combine = 'f32'";
    accepted(&GOOD.replace("top = 8", combine));
    accepted(&GOOD.replace("top = 8", combine).replace("two-hop", "direct"));
    replaced("top = 8", "top = 8, combine = 'f16'", "unknown value", "f32");
    let sums = GOOD.replace("top = 8", combine);
    let silent = sums.replace("payload = 'data'\n", "");
    refused(&silent, "a virtual payload has none", "payload = \"data\"");
    accepted(&sums.replace("'4KiB'", "'8B'"));
    refused(&sums.replace("'4KiB'", "'12B'"), "tokens of 12B have no whole", "a multiple of 8B");
}
