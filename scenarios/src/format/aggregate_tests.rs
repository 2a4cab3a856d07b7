//! Bad input of aggregations: the message, its place and its remedy, and what is just allowed.

use crate::testing::{accepted, refused};

const GOOD: &str = "\
title = 't'
profile = 'generic-400g'
[topology]
kind = 'switch'
hosts = 4
[[program]]
kind = 'aggregate'
hosts = 4
size = '4KiB'
op = 'send'
aggregate = { plan = 'two-hop', group = 2, aggregators = 2, order = 'arrival', pool = 1 }
";

#[track_caller]
fn replaced(old: &str, new: &str, message: &str, help: &str) {
    assert!(GOOD.contains(old), "{old} is not in the good file");
    refused(&GOOD.replacen(old, new, 1), message, help);
}

#[test]
fn the_good_file_is_good() {
    accepted(GOOD);
    for op in ["write", "read"] {
        let text = GOOD.replace("'send'", &format!("'{op}'"));
        accepted(&text.replace(", order = 'arrival', pool = 1", ", order = 'fixed', reads = 1"));
    }
    accepted(&GOOD.replace("size", "initiator = 'gpu'\nmemory = 'gpu'\nsize"));
}

#[test]
fn who_takes_part() {
    replaced("hosts = 4\nsize", "hosts = 5\nsize", "`hosts` is 5 from host 0 on", "lower it");
    accepted(&GOOD.replace("hosts = 4\nsize", "host = 2\nhosts = 2\nsize"));
    replaced("hosts = 4\nsize", "size", "a sum of one vector", "at least 2 hosts");
    replaced("size", "nic = 1\nsize", "NIC 1 of host 0, which has 1", "topology.nics");
    let proxy = "`initiator = \"cpu-proxy\"` in `aggregate`";
    replaced("size", "initiator = 'cpu-proxy'\nsize", proxy, "only `produce`");
    replaced("[[program]]", "[qp]\ntype = 'UC'\n[[program]]", "between RC queue pairs", "RC");
    let srq = "[srq]\ndepth = 8\n[[program]]";
    replaced("[[program]]", srq, "shared receive queues of its own", "aggregate.pool");
}

#[test]
fn who_adds_has_the_memory() {
    let with = |keys: &str, who: &str| {
        let text = GOOD.replace("size", &format!("{keys}size"));
        text.replace("order", &format!("reduce_on = '{who}', order"))
    };
    let (gpu, memory) = ("initiator = 'gpu'\nmemory = 'gpu'\n", "memory = 'gpu'\n");
    for (keys, who) in [("", "cpu"), (memory, "gpu"), (gpu, "gpu")] {
        accepted(&with(keys, who));
    }
    accepted(&GOOD.replace("size", "memory = 'gpu'\nsize"));
    refused(&with("", "gpu"), "the vectors are in host memory", "memory = \"gpu\"");
    refused(&with(memory, "cpu"), "in a GPU's memory", "memory = \"host\"");
    refused(&with(gpu, "cpu"), "a GPU polls", "initiator = \"cpu\"");
    let block = "initiator = 'gpu'\nsize";
    replaced("size", block, "a GPU that adds in host memory", "memory = \"gpu\"");
}

#[test]
fn sparse_vectors_have_fewer_keys() {
    let good = "\
title = 't'
profile = 'generic-400g'
[topology]
kind = 'switch'
hosts = 4
[[program]]
kind = 'aggregate'
hosts = 4
size = '4KiB'
op = 'write'
iterations = 65536
aggregate = { plan = 'two-hop', group = 2, top_k = 1024 }
";
    accepted(good);
    let refuses = |old: &str, new: &str, message: &str, help: &str| {
        assert!(good.contains(old), "{old} is not in the good file");
        refused(&good.replacen(old, new, 1), message, help);
    };
    refuses("1024", "1025", "the largest 1025 of 1024 elements", "at most all");
    refuses("1024", "0", "0", "1");
    refuses("65536", "65537", "268439552 B of sums", "`iterations` times `size` of at most 256MiB");
    refuses("two-hop', group = 2", "ring'", "sparse vectors in the plan `ring`", "`direct` or");
    refuses("'write'", "'send'", "`op` has no such use with `top_k`", "\"write\"");
    refuses("size", "memory = 'gpu'\nsize", "`memory` has no such use", "a core chooses");
    for (key, help) in [
        ("aggregators = 2", "all hosts add"),
        ("lanes = 2", "all hosts add"),
        ("order = 'arrival'", "ranks are in order"),
        ("broadcast = false", "all hosts get all"),
        ("goes_on = true", "or `top_k`"),
        ("training = { backward = '1ms', buckets = 1 }", "or `top_k`"),
    ] {
        let name = key.split(' ').next().unwrap();
        let message = format!("`{name}` has no such use with `top_k`");
        refuses("top_k", &format!("{key}, top_k"), &message, help);
    }
}

#[test]
fn plans_and_their_keys() {
    replaced("two-hop", "three-hop", "unknown value", "two-hop");
    replaced("two-hop", "direct", "`group` has no use in the plan `direct`", "leave it out");
    accepted(&GOOD.replace("two-hop', group", "two-level', inside = 'ring', group"));
    let inside = "plan = 'two-hop', inside = 'ring'";
    let no_use = "`inside` has no use in the plan `two-hop`";
    replaced("plan = 'two-hop'", inside, no_use, "leave it out");
    let star = "plan = 'two-level', inside = 'star'";
    replaced("plan = 'two-hop'", star, "unknown value", "direct");
    let ring = "plan = 'ring', lanes = 4, order = 'arrival', pool = 1";
    let own = "plan = 'two-hop', group = 2, aggregators = 2, order = 'arrival', pool = 1";
    replaced(own, ring, "`lanes` has no use in the plan `ring`", "leave it out");
    let many = "3 aggregators in a group of 2";
    replaced("aggregators = 2", "aggregators = 3", many, "at most all hosts of the group");
    replaced("aggregate = {", "other = {", "unknown key `other`", "");
    let gone = GOOD.lines().last().unwrap();
    replaced(gone, "", "an aggregation without a table `aggregate`", "aggregate = { plan");
    let flows = "`aggregate` has no use in `flows`";
    replaced("kind = 'aggregate'", "kind = 'flows'", flows, "leave it out");
}

#[test]
fn sizes_of_vectors_and_chunks() {
    replaced("'4KiB'", "'6B'", "a vector of 6B", "a multiple of 4B");
    replaced("'4KiB'", "'0B'", "a vector of 0B", "above 0");
    accepted(&GOOD.replace("'4KiB'", "'4B'"));
    let element = |e: &str, chunk: &str| format!("pool = 1, element = '{e}', chunk = '{chunk}'");
    accepted(&GOOD.replace("pool = 1", &element("f64", "8B")));
    replaced("pool = 1", &element("f64", "12B"), "a `chunk` of 12B", "a multiple of 8B");
    let text = GOOD.replace("'4KiB'", "'12B'");
    accepted(&text);
    refused(&text.replace("pool = 1", &element("i64", "8B")), "a vector of 12B", "of 8B");
    // 2^24 chunks of 8 B are 128 MiB.
    let small = GOOD.replace("pool = 1", &element("f64", "8B"));
    accepted(&small.replace("'4KiB'", "'128MiB'"));
    let many = "16777217 chunks, and 16777216 can be numbered";
    refused(&small.replace("'4KiB'", "'134217736B'"), many, "larger chunks");
}

#[test]
fn how_contributions_go_up() {
    replaced("'send'", "'fetch-add'", "an aggregation by `fetch-add`", "`write`, `send` or `read`");
    replaced("'send'", "'write'", "a `pool` for `write`", "leave it out");
    replaced("'arrival'", "'fixed'", "a `pool` with `order = \"fixed\"`", "arrival");
    let no_reads = GOOD
        .replace("'send'", "'read'")
        .replace(", order = 'arrival', pool = 1", "")
        .replace("[[program]]", "[qp]\nmax_rd_atomic = 0\n[[program]]");
    refused(&no_reads, "`read` with no READ allowed outstanding", "raise `qp.max_rd_atomic`");
    replaced("size", "batch = 4\nsize", "`batch` has no use in `aggregate`", "leave it out");
    replaced("size", "peer = 3\nsize", "`peer` has no use in `aggregate`", "leave it out");
}

#[test]
fn training_has_a_clock_of_its_own() {
    let training = "pool = 1, training = { backward = '1ms', buckets = 2 } }";
    let text = GOOD.replacen("pool = 1 }", training, 1);
    accepted(&text);
    let interval = text.replace("size = '4KiB'", "size = '4KiB'\ninterval = '1ms'");
    refused(&interval, "`interval` beside `training`", "one of them");
    let reduce = text.replacen("pool = 1", "pool = 1, broadcast = false", 1);
    refused(&reduce, "only the root has the sum", "leave it out");
    let many = |steps: u64| {
        let rounds = format!("size = '4KiB'\niterations = {steps}");
        text.replace("size = '4KiB'", &rounds)
    };
    accepted(&many(u64::from(u32::MAX) / 2));
    refused(&many(u64::from(u32::MAX) / 2 + 1), "sums, and 4294967295 can be numbered", "fewer");
    refused(&text.replacen("backward = '1ms'", "backward = '0ns'", 1), "zero", "");
}
