//! Several posters of one queue pair: what the NIC may find in their entries, whose turn it is,
//! and who posts where a GPU may not.

use std::collections::BTreeSet;

use super::simulate_tests::{number, outcome, run};
use super::{ExitKind, NoteKind, Outcome};

/// What the NIC finds of one entry.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Found {
    Whole,
    Old,
    Torn,
}

/// When one piece of an entry becomes visible to the NIC, between the moments that matter.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Lands {
    BeforeTheRing,
    BeforeTheFetch,
    Later,
}

/// The orders that a fence in front of the ring allows for a store before it. One towards the GPU's
/// own threads says nothing about a reader on PCIe.
fn allowed(fence: &str) -> &'static [Lands] {
    match fence {
        "system" => &[Lands::BeforeTheRing],
        _ => &[Lands::BeforeTheRing, Lands::BeforeTheFetch, Lands::Later],
    }
}

fn found(pieces: &[Lands]) -> Found {
    let late = pieces.iter().filter(|l| **l == Lands::Later).count();
    match late {
        0 => Found::Whole,
        n if n == pieces.len() => Found::Old,
        _ => Found::Torn,
    }
}

/// All (old, torn) entries of a ring of three producers, from every order of their stores against
/// the ring and the fetch.
fn reachable(fence: &str, pieces: usize) -> BTreeSet<(u64, u64)> {
    let (orders, stores) = (allowed(fence), 3 * pieces);
    let mut all = BTreeSet::new();
    for n in 0..orders.len().pow(stores as u32) {
        let order = |i: usize| orders[n / orders.len().pow(i as u32) % orders.len()];
        let stores: Vec<Lands> = (0..stores).map(order).collect();
        let entries: Vec<Found> = stores.chunks(pieces).map(found).collect();
        let count = |what| entries.iter().filter(|e| **e == what).count() as u64;
        all.insert((count(Found::Old), count(Found::Torn)));
    }
    all
}

const THREE: &str = "[qp]\nsq_depth = 3\n[[program]]\nkind = 'produce'\ninitiator = 'gpu'\n\
                     memory = 'gpu'\nop = 'write-imm'\nsize = '64B'\ninline = '0B'\n\
                     payload = 'data'\nper_round = 3\niterations = 3\n";

fn three(fence: &str, pieces: usize, seed: u64, more: &[&str]) -> Outcome {
    let set = [
        "gpu.lanes=3".to_owned(),
        // Half of all stores land before the fetch, with either fence or none.
        "gpu.store_lag=2800ns".to_owned(),
        format!("gpu.wqe_pieces={pieces}"),
        format!("program.0.fence={fence}"),
        format!("seed={seed}"),
    ];
    let set: Vec<&str> = set.iter().map(String::as_str).chain(more.iter().copied()).collect();
    outcome(THREE, &set)
}

/// Each state of the enumeration is reached by some seed, and no seed reaches another: without a
/// fence and with one of device scope entries are old or torn, with one of system scope never.
#[test]
fn three_producers_reach_just_the_states_of_the_model() {
    let states = |fence, pieces| reachable(fence, pieces).len();
    assert_eq!((states("none", 1), states("none", 2), states("system", 2)), (4, 10, 1));
    for (fence, pieces, seeds) in [
        ("none", 1, 60),
        ("none", 2, 300),
        ("device", 2, 300),
        ("system", 1, 20),
        ("system", 2, 20),
    ] {
        let mut seen = BTreeSet::new();
        for seed in 0..seeds {
            let o = three(fence, pieces, seed, &[]);
            let at = (number(&o, "stale_wqes") as u64, number(&o, "torn_wqes") as u64);
            consequences(&o, at, &format!("{fence}, {pieces} pieces, seed {seed}"));
            seen.insert(at);
        }
        assert_eq!(seen, reachable(fence, pieces), "{fence}, {pieces} pieces");
    }
}

/// What a state leads to in a ring that was never written.
fn consequences(o: &Outcome, (old, torn): (u64, u64), at: &str) {
    let data = number(o, "data_errors");
    match (old, torn) {
        (0, 0) => assert_eq!((o.exit.kind, data), (ExitKind::Ok, 0.0), "{at}"),
        // The first entry that is torn ends in error, and with it the program.
        (_, 1..) => {
            let reason = o.exit.reason.as_str();
            assert!(reason.contains("local QP operation error"), "{at}: {reason}");
        }
        // A NOP in the place of a message: no status tells of it, and nothing else may either.
        (_, 0) => assert_ne!(o.exit.kind, ExitKind::Violation, "{at}: {}", o.exit.reason),
    }
}

/// In the second lap an old entry is a valid one: it is executed again, with status 0.
#[test]
fn an_old_entry_is_a_silent_duplicate() {
    let laps = ["program.0.iterations=6", "program.0.interval=20us"];
    let silent = (0..60).map(|seed| three("none", 1, seed, &laps)).filter(|o| {
        let (stale, wrong) = (number(o, "stale_wqes"), number(o, "data_errors"));
        o.exit.kind == ExitKind::Ok && stale > 0.0 && wrong > 0.0
    });
    assert!(silent.count() > 0, "a duplicate, and every status at success");
    for seed in 0..20 {
        let o = three("system", 1, seed, &laps);
        assert_eq!((o.exit.kind, number(&o, "data_errors")), (ExitKind::Ok, 0.0), "{seed}");
    }
}

const POSTERS: &str = "[[program]]\nkind = 'message-rate'\ninitiator = 'gpu'\nmemory = 'gpu'\n\
                       size = '64B'\ninline = '0B'\niterations = 100\nshare_qp = true\n\
                       threads = 32\nsignal_every = 2\n";

fn posters(set: &[&str]) -> Outcome {
    outcome(POSTERS, set)
}

/// Under the lock WQE and ring are one after the other, 400 + 130 ns. In order only the rings are:
/// 130 ns, and the turn's way from block to block.
#[test]
fn posters_in_order_pay_for_the_ring_alone() {
    let rate = |set: &[&str]| number(&posters(set), "message_rate") / 1e6;
    let close = |got: f64, ns: f64| assert!((got * ns / 1000.0 - 1.0).abs() < 0.03, "{got} {ns}");
    close(rate(&["program.0.ring=doorbell"]), 530.0);
    close(rate(&["program.0.ring=ordered"]), 130.0);
    let handoff = "gpu.lock_handoff=100ns";
    close(rate(&["program.0.ring=ordered", handoff]), 230.0);
    close(rate(&["program.0.ring=doorbell", handoff]), 630.0);
    // Who waits delays the others: more blocks, fewer messages.
    let crowd = |n: &str| rate(&["program.0.ring=ordered", "gpu.lock_contention=20ns", n]);
    let (few, many) = (crowd("program.0.threads=8"), crowd("program.0.threads=32"));
    assert!(many < 0.6 * few, "{few} {many}");
}

/// Every WQE is announced once, in the order in which the slots were taken.
#[test]
fn what_is_posted_in_order_is_announced_once() {
    for threads in ["1", "2", "7"] {
        let set = format!("program.0.threads={threads}");
        let (lock, order) = (posters(&[&set]), posters(&[&set, "program.0.ring=ordered"]));
        for metric in ["messages", "doorbells", "wqes_unrung"] {
            assert_eq!(number(&lock, metric), number(&order, metric), "{threads} {metric}");
        }
        assert_eq!(order.exit.kind, ExitKind::Ok);
    }
}

/// Slots that were taken beside the order are never passed over.
#[test]
fn a_poster_that_bypasses_the_order_stops_all_behind_it() {
    let o = posters(&["program.0.ring=ordered", "program.0.bypass=1"]);
    assert_eq!(o.exit.kind, ExitKind::NoProgress);
    let reason = o.exit.reason.as_str();
    assert!(reason.contains("wait for their turn from slot"), "{reason}");
    assert!(reason.contains("let all posters of the queue pair ring `ordered`"), "{reason}");
}

const PRODUCER: &str = "[[program]]\nkind = 'produce'\ninitiator = 'gpu'\nmemory = 'gpu'\n\
                        size = '64B'\ninline = '0B'\ninterval = '20us'\niterations = 100\n";

/// A fallback is in force only where it is needed, and is reported there.
#[test]
fn a_fallback_is_said_and_is_the_proxy() {
    let fallback = "program.0.fallback=cpu-proxy";
    let unable = "nic.gpu_doorbell=false";
    let p50 = |o: &Outcome| number(o, "latency.p50");
    let (gpu, kept) = (outcome(PRODUCER, &[]), outcome(PRODUCER, &[fallback]));
    assert_eq!((p50(&gpu), number(&kept, "gpu_fallbacks")), (p50(&kept), 0.0));
    let (fell, proxy) = (
        outcome(PRODUCER, &[fallback, unable]),
        outcome(PRODUCER, &["program.0.initiator=cpu-proxy"]),
    );
    assert_eq!(p50(&fell), p50(&proxy));
    assert!(p50(&fell) < p50(&gpu));
    assert_eq!(number(&fell, "gpu_fallbacks"), 1.0);
    let note = fell.notes.iter().find(|n| n.name == "gpu-fallback").expect("a note");
    assert_eq!((note.kind, note.count), (NoteKind::Warning, 1));
    assert!(note.text.contains("program 0: a CPU core posts"), "{}", note.text);
    let row = fell.effective.iter().find(|e| e.name == "program.initiator").expect("a row");
    assert_eq!((row.requested.as_str(), row.effective.as_str()), ("gpu", "cpu-proxy"));
    assert!(gpu.notes.iter().all(|n| n.name != "gpu-fallback"));
}

/// A proxy that looks every so often adds that to the worst of its messages; its work bounds the
/// rate of all of its producers.
#[test]
fn a_proxy_looks_and_works() {
    let through =
        |set: &[&str]| outcome(PRODUCER, &[&["program.0.initiator=cpu-proxy"][..], set].concat());
    let max = |o: &Outcome| number(o, "latency.max") / 1000.0;
    let (busy, rare) = (max(&through(&[])), max(&through(&["program.0.poll_interval=10us"])));
    // The flag, and the completion that it tells of: a look each.
    assert!(rare > busy + 8_000.0 && rare < busy + 20_100.0, "{busy} {rare}");
    let rounds = ["program.0.per_round=50", "program.0.interval=1us", "program.0.iterations=2000"];
    let work = "program.0.proxy_work=1us";
    let rate = number(&through(&[&rounds[..], &[work]].concat()), "message_rate");
    assert!(rate < 1e6 && rate > 0.85e6, "{rate}");
}

/// Both sides of each limit: what fits runs, and one more is refused by the limit's name.
#[test]
fn limits_of_the_device_are_refused_by_name() {
    let two = "[[program]]\nname = 'one'\nkind = 'message-rate'\nqps = 8\niterations = 16\n\
               [[program]]\nname = 'two'\nkind = 'message-rate'\nqps = 8\niterations = 16\n";
    for (limit, fits, message) in [
        ("nic.max_qp", 16, "create: max_qp = 16, the device allows 1 to 15"),
        ("nic.max_cq", 4, "create: max_cq = 4, the device allows 1 to 3"),
    ] {
        let set = |n: u32| format!("{limit}={n}");
        assert_eq!(number(&outcome(two, &[&set(fits)]), "one.messages"), 16.0);
        let error = run(two, &[&set(fits - 1)]).unwrap_err();
        assert!(error.to_string().contains(message), "{error}");
        let help = format!("{error:?}");
        assert!(help.contains("fewer `qps`, `threads` or programs"), "{help}");
    }
}
