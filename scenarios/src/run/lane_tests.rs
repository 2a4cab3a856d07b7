//! Lanes, paces and flow labels on the simulated machine.

use super::simulate_tests::{number, outcome};

/// Eight queue pairs between two leaves, by four spines.
const WAYS: &str = "[topology]\nkind = 'leaf-spine'\nleaves = 2\nhosts_per_leaf = 1\nspines = 4\n\
                    [[program]]\nkind = 'message-rate'\nop = 'send'\nsize = '1KiB'\nqps = 8\n\
                    iterations = 64\n";

/// The flow label of an address vector decides the path, that of an address handle too. A link is
/// counted for each direction; datagrams have no acknowledgements.
#[test]
fn labels_decide_the_paths_of_connections_and_of_datagrams() {
    let links = |set: &[&str]| number(&outcome(WAYS, set), "switch_links_used");
    assert_eq!(links(&["program.0.entropy=same"]), 4.0, "one way there and one back");
    assert_eq!(links(&["program.0.entropy=same", "qp.type=UD"]), 2.0, "one way there");
    assert_eq!(links(&["qp.type=UD"]), 2.0, "datagrams without a label: the first port");
    assert!(links(&["program.0.entropy=spread"]) > 8.0);
    assert!(links(&["program.0.entropy=spread", "qp.type=UD"]) > 4.0);
}

/// Two threads of one pair of hosts with a stripe each.
#[test]
fn no_two_queue_pairs_of_two_hosts_have_one_label() {
    let few = |set: &[&str]| number(&outcome(WAYS, set), "switch_links_used");
    let spread = ["program.0.entropy=spread", "program.0.qps=1", "program.0.threads=8"];
    assert!(few(&spread) > 8.0, "eight threads of one queue pair each take several ways");
}

const TWO: &str = "[[program]]\nname = 'p'\nkind = 'bandwidth'\nsize = '64KiB'\niterations = 40\n\
                   lanes = [{ name = 'control', size = '64B', interval = '2us' }, \
                   { name = 'bulk', qps = 2, spread = 'least-bytes', batch = 2, \
                   pace = '80Gbps' }]\n";

#[test]
fn figures_of_lanes_have_their_names() {
    let o = outcome(TWO, &[]);
    for prefix in ["", "p."] {
        let figure = |name: &str| number(&o, &format!("{prefix}{name}"));
        assert_eq!(figure("messages"), 80.0);
        let lanes = ["lane.control.messages", "lane.bulk.messages", "lane.control.rings"];
        assert_eq!(lanes.map(figure), [40.0; 3]);
        // One message at once, and 39 times 64 KiB at 80 Gb/s; two are rung together.
        let least = 39.0 * 65_536.0 * 0.1 * 1e3;
        let took = figure("lane.bulk.duration");
        assert!(took >= least && took < least + 20e6, "{took} ps, at least {least}");
        assert!(figure("lane.control.latency.p99") < 3e6, "control does not wait for the pace");
    }
    let one = outcome(TWO, &["program.0.threads=2"]);
    assert_eq!(number(&one, "lane.control.messages"), 80.0, "of both threads");
}

/// A program with a pace alone is one lane, and its figures are the program's.
#[test]
fn a_pace_holds_for_each_thread() {
    let text = "[[program]]\nkind = 'bandwidth'\nsize = '64KiB'\niterations = 50\n\
                pace = '40Gbps'\nburst = '128KiB'\n";
    let took = |set: &[&str]| number(&outcome(text, set), "duration") / 1e6;
    // 48 of 50 wait 13.1072 us each; the last one takes 2.9 us.
    let closed = 48.0 * 13.1072;
    for set in [&[][..], &["program.0.threads=2"], &["program.0.qps=3"]] {
        let us = took(set);
        assert!(us >= closed && us < closed + 6.0, "{us} us, {set:?}");
    }
}

/// The lower one of both paces is kept, whichever it is.
#[test]
fn a_pace_for_each_peer_is_kept_too() {
    let took = |paces: &str| {
        let text = format!(
            "[[program]]\nkind = 'bandwidth'\nsize = '64KiB'\niterations = 50\n\
             lanes = [{{ name = 'a', {paces}, burst = '128KiB' }}]\n"
        );
        number(&outcome(&text, &[]), "duration") / 1e6
    };
    let closed = 48.0 * 13.1072;
    for paces in [
        "peer_pace = '40Gbps'",
        "peer_pace = '40Gbps', pace = '100Gbps'",
        "peer_pace = '100Gbps', pace = '40Gbps'",
    ] {
        let us = took(paces);
        assert!(us >= closed && us < closed + 6.0, "{us} us, {paces}");
    }
}

/// A batch is rung at its bytes where these come first, and a lone message of the adaptive mode at
/// once.
/// Completions bring room for one message at a time, and the batch waits for 16 of them: without a
/// lane it is the same (#6).
#[test]
fn a_fixed_batch_keeps_its_size_when_the_window_is_full() {
    let text = "[[program]]\nkind = 'message-rate'\nsize = '4KiB'\niterations = 1000\n\
                batch = 16\nwindow = 64\nsignal_every = 1\n";
    let rings = |set: &[&str]| number(&outcome(text, set), "rings");
    let most = 1000_f64 / 16.0 + 2.0;
    let [alone, lane] = [rings(&[]), rings(&["program.0.batch_mode=fixed"])];
    assert!(alone <= most && lane <= most, "{alone} and {lane} rings, {most} at most");
}

#[test]
fn batches_end_at_their_bytes_and_grow_with_the_load() {
    let text = "[[program]]\nkind = 'message-rate'\nop = 'write'\nsize = '1KiB'\n\
                iterations = 64\nbatch = 16\n";
    let rings = |set: &[&str]| number(&outcome(text, set), "rings");
    assert_eq!(rings(&["program.0.batch_mode=fixed"]), 4.0);
    assert_eq!(rings(&["program.0.batch_bytes=4KiB"]), 16.0, "four of 1 KiB");
    assert_eq!(rings(&["program.0.batch_bytes=4095B"]), 16.0, "the fourth passes it");
    let lone = ["program.0.batch_mode=adaptive", "program.0.interval=10us"];
    assert_eq!(rings(&lone), 64.0, "each at once");
    let busy = rings(&["program.0.batch_mode=adaptive"]);
    assert!(busy < 32.0, "{busy} rings for 64 messages that are there at once");
}
