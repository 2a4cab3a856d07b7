//! What notes tell to write can be written: each remedy is followed, on RoCE and on InfiniBand.

use super::Outcome;
use super::simulate_tests::{outcome, run};

/// The assignments that a text tells to write: `key.of.table = value` between backticks.
fn assignments(text: &str) -> Vec<String> {
    let quoted = text.split('`').skip(1).step_by(2);
    let pairs = quoted.filter_map(|q| q.split_once(" = "));
    let keys = pairs.filter(|(key, _)| key.contains('.'));
    keys.map(|(key, value)| format!("{key}={value}")).collect()
}

const LEAVES: &str = "host = 'ideal'\n[topology]\nkind = 'leaf-spine'\nleaves = 2\n\
                      hosts_per_leaf = 4\nspines = 2\nrate = '100Gbps'\n";

/// Four flows of one leaf to those of another.
const ACROSS: &str = "[[program]]\nkind = 'flows'\nhost = 0\nhosts = 4\npeer = 4\n\
                      size = '500KB'\nflows = { pattern = 'incast' }\n";

/// Four programs from a leaf to the other, which share links.
fn pairs(size: &str) -> String {
    let one = |h: u32| {
        format!(
            "[[program]]\nname = 'p{h}'\nkind = 'bandwidth'\nhost = {h}\npeer = {}\n\
             size = '64KiB'\niterations = {size}\nwindow = 4\n",
            h + 4
        )
    };
    (0..4).map(one).collect()
}

/// Runs a scenario whose report has a note, and then with each thing that any note says to write.
#[track_caller]
fn followed(text: &str, sets: &[&str], note: &str) -> Outcome {
    let o = outcome(text, sets);
    assert!(o.notes.iter().any(|n| n.name == note), "no {note} with {sets:?}: {:?}", o.notes);
    for n in &o.notes {
        let all = assignments(&n.text);
        for one in &all {
            // An alternative is tried alone, and what is said to be written together together.
            let alone = run(text, &[sets, &[one.as_str()]].concat());
            assert!(alone.is_ok(), "{}: `{one}` with {sets:?}: {:?}", n.name, alone.err());
        }
    }
    o
}

#[test]
fn assignments_are_those_between_backticks() {
    let text = "raise `a.b`, or write `c.d = \"x\"` or `e.f = { g = \"1B\" }` (`h = 1`)";
    assert_eq!(assignments(text), ["c.d=\"x\"", "e.f={ g = \"1B\" }"]);
}

#[test]
fn issue_005_remedies_of_notes_are_accepted_on_both_kinds_of_link() {
    for link in ["link=ib", "link=roce"] {
        let shared = format!("{LEAVES}{}", pairs("200"));
        let o = followed(&shared, &[link], "shared-link");
        let text = &o.notes.iter().find(|n| n.name == "shared-link").expect("it is there").text;
        assert!(!text.contains("topology.route]]"), "a leaf-spine takes none: {text}");
        let gbn = "rc.recovery=go-back-n";
        let adaptive = "topology.routing=adaptive";
        followed(
            &format!("{LEAVES}{ACROSS}"),
            &[link, gbn, adaptive, "run.noise=on"],
            "out-of-order",
        );
        let control = if link == "link=ib" { "ibcc" } else { "dcqcn" };
        let marks = format!("congestion.control={control}");
        followed(&format!("{LEAVES}{ACROSS}"), &[link, &marks], "unmarked-class");
        let reads = format!("{LEAVES}{}", pairs("20"));
        let read = ["program.0.op=read", "congestion.control=timely"];
        followed(&reads, &[&[link][..], &read].concat(), "control-without-signal");
        let target =
            ["congestion={ control = \"integral\", gain = \"10000/s\", target = \"100ns\" }"];
        followed(
            &format!("{LEAVES}{ACROSS}"),
            &[&[link][..], &target].concat(),
            "target-below-path",
        );
        let segment = ["congestion.control=timely", "congestion.segment=100MB"];
        followed(
            &format!("{LEAVES}{ACROSS}"),
            &[&[link][..], &segment].concat(),
            "segment-too-long",
        );
    }
}

/// Datagrams have no connection; the flows that share a link are named all the same.
#[test]
fn issue_005_datagrams_that_share_a_link_are_named() {
    let text = format!("{LEAVES}[qp]\ntype = 'UD'\n{}", pairs("2000").replace("64KiB", "4KiB"));
    let sends = (0..4).map(|p| format!("program.{p}.op=send"));
    let mut sets: Vec<String> = sends.collect();
    sets.push("topology.spines=1".to_owned());
    let sets: Vec<&str> = sets.iter().map(String::as_str).collect();
    let two = |set: &str| outcome(&text, &[&sets[..4], &[set]].concat());
    // By a table all of them go over one spine in half of the cases, by hash as labels fall.
    let o = two("link=ib");
    let note = o.notes.iter().find(|n| n.name == "shared-link");
    let note = note.unwrap_or_else(|| panic!("{:?} {:?}", o.limiting, o.notes));
    assert!(note.text.contains("to host 4") || note.text.contains("to host 5"), "{}", note.text);
}

/// Of a UC message of which a packet was overtaken nothing is said to be lost.
#[test]
fn issue_005_what_was_overtaken_is_not_called_lost() {
    let text = format!("{LEAVES}[qp]\ntype = 'UC'\n{}", pairs("100"));
    let o = outcome(&text, &["topology.routing=adaptive", "run.noise=on", "topology.spines=4"]);
    let of = |name: &str| o.notes.iter().find(|n| n.name == name).map(|n| n.text.as_str());
    assert!(of("out-of-order").is_some_and(|t| t.contains("with 0 packets lost")), "{:?}", o.notes);
    let dropped = of("packets-dropped").expect("they are named");
    assert!(dropped.contains("lost, or overtaken"), "{dropped}");
}
