//! Several traffic classes: what one of them suffers is no other's, in the NIC and in the report.

use super::Outcome;
use super::simulate_tests::{number, outcome};

fn note<'a>(o: &'a Outcome, name: &str) -> &'a str {
    let note = o.notes.iter().find(|n| n.name == name);
    &note.unwrap_or_else(|| panic!("no {name}: {:?}", o.notes)).text
}

/// Host 0 sends to hosts 1 and 2 in a class each.
fn two_ways(network: &str, qp: &str, iterations: u32) -> String {
    let program = |name: &str, peer: u32, sl: u32| {
        format!(
            "[[program]]\nname = '{name}'\nkind = 'bandwidth'\nop = 'send'\npeer = {peer}\n\
             sl = {sl}\nsize = '4KiB'\niterations = {iterations}\n"
        )
    };
    format!(
        "host = 'ideal'\n[qp]\ntype = '{qp}'\n{network}[[switch.class]]\n[[switch.class]]\n{}{}",
        program("a", 1, 0),
        program("b", 2, 1)
    )
}

/// Host 1 takes nothing of class 0 for 5 ms.
const STORM: &str = "[[fault]]\nid = 'storm'\nkind = 'pause-storm'\nhost = 1\nsl = 0\n\
                     before = '5ms'\n";

const PFC: &str = "[topology]\nkind = 'switch'\nhosts = 3\nrate = '100Gbps'\nswitch = 'pfc'\n";

#[test]
fn datagrams_of_a_paused_class_hold_no_other_class_back() {
    for qp in ["RC", "UC", "UD"] {
        let timer = if qp == "RC" { "timeout = 0\n" } else { "" };
        let text = two_ways(PFC, qp, 2000).replace("[topology]", &format!("{timer}[topology]"));
        let o = outcome(&(text + STORM), &[]);
        let b = number(&o, "b.duration") / 1e6;
        // 2,000 datagrams of 4 KiB are 0.68 ms of the link, and the switch takes some of the others.
        assert!(b < 900.0, "{qp}: {b} us");
        assert!(number(&o, "a.duration") / 1e6 > 5000.0, "{qp}");
    }
}

#[test]
fn who_is_paused_by_a_host_is_told_by_which_and_why() {
    let text = two_ways(PFC, "RC", 2000).replace("[topology]", "timeout = 0\n[topology]") + STORM;
    for depth in ["128", "4096"] {
        let o = outcome(&text, &[&format!("qp.sq_depth={depth}")]);
        assert_eq!(o.limiting.as_deref(), Some("pauses of host1.port0"), "{depth}");
        let text = note(&o, "paused-by-host");
        assert!(text.contains("switch0.port1 stood paused by host1.port0"), "{text}");
        assert!(text.contains("fault `storm` (pause-storm)"), "{text}");
        assert_eq!(number(&o, "note.send-queue-full"), 0.0);
    }
    let o = outcome(&two_ways(PFC, "RC", 2000), &[]);
    assert_eq!(number(&o, "note.paused-by-host"), 0.0);
}

#[test]
fn a_storm_names_its_class_and_advises_nothing_that_is_written_already() {
    let text = two_ways(PFC, "RC", 2000).replace("[topology]", "timeout = 0\n[topology]") + STORM;
    let o = outcome(&text, &["switch.watchdog=500us"]);
    let told = note(&o, "pause-storm");
    assert!(told.contains("switch0.port1 in class 0, by host1.port0"), "{told}");
    assert!(told.contains("let `switch.storm = \"ignore\"` pass over it"), "{told}");
    let o = outcome(&text, &["switch.watchdog=500us", "switch.storm=ignore"]);
    let told = note(&o, "pause-storm");
    assert!(told.contains("was passed over") && !told.contains("let `switch.storm"), "{told}");
}

/// Datagrams go where their address handle says, and the way back to their sender is not theirs.
#[test]
fn notes_follow_datagrams_where_they_go() {
    let slow = "[topology]\nkind = 'explicit'\nhosts = 3\nswitches = 1\nrate = '100Gbps'\n\
                [[topology.link]]\nbetween = 'host0-switch0'\n[[topology.link]]\n\
                between = 'host1-switch0'\nrate = '1Gbps'\n[[topology.link]]\n\
                between = 'host2-switch0'\n";
    for qp in ["UC", "UD"] {
        let o = outcome(&two_ways(slow, qp, 500), &["link=ib"]);
        let told = note(&o, "credit-starvation");
        assert!(told.contains("switch0.port1 to host1.port0, which sent for 9"), "{qp}: {told}");
        // The other lane sends while the slow one stands.
        assert!(number(&o, "b.duration") < number(&o, "a.duration") / 10.0, "{qp}");
    }
}

/// Flow x of class 1 loses its last packet, while class 0 stands at the same host.
#[test]
fn a_victim_of_a_loss_is_not_told_of_the_pauses_of_another_class() {
    let text = "host = 'ideal'\n[qp]\ntimeout = 8\n[topology]\nkind = 'switch'\nhosts = 10\n\
                rate = '100Gbps'\nswitch = 'pfc'\n[switch]\nbuffer = '4MB'\n[[switch.class]]\n\
                [[switch.class]]\nweight = 50\n[[program]]\nname = 'in'\nkind = 'flows'\n\
                hosts = 8\npeer = 8\nsize = '3MB'\nflows = { pattern = 'incast' }\n\
                [[program]]\nname = 'x'\nkind = 'flows'\nhosts = 1\npeer = 9\nsl = 1\n\
                size = '1MB'\nflows = { pattern = 'incast' }\n[[fault]]\nid = 'last'\n\
                kind = 'drop'\ndest = 9\nopcode = 'rc-rdma-write-last'\nnth = 1\n";
    let o = outcome(text, &[]);
    assert_eq!(number(&o, "x.victims"), 1.0);
    let told = note(&o, "victim-flows");
    assert!(told.contains("1 met no link that others kept busy"), "{told}");
    // In the class of the others it stands with them.
    let o = outcome(text, &["program.1.sl=0", "fault.last.maybe=true", "fault.last.nth=1000"]);
    let told = note(&o, "victim-flows");
    assert!(told.contains("1 were held up by switch0.port8 to host8.port0"), "{told}");
}

#[test]
fn full_queues_are_explained_by_the_marks_of_their_own_class() {
    let text = "host = 'ideal'\n[topology]\nkind = 'switch'\nhosts = 9\nrate = '100Gbps'\n\
                switch = 'pfc'\n[switch]\nbuffer = '2MB'\n[[switch.class]]\nlossless = false\n\
                [[switch.class]]\nlossless = false\necn = { kmin = '20KB', kmax = '60KB' }\n\
                [congestion]\ncontrol = 'dcqcn'\n[[program]]\nkind = 'flows'\nhosts = 8\n\
                peer = 8\nsize = '1MB'\nflows = { pattern = 'incast' }\n";
    let told = |set: &[&str]| {
        let o = outcome(text, set);
        note(&o, "full-queues").to_owned()
    };
    let unmarked = told(&[]);
    assert!(!unmarked.contains("marks begin"), "{unmarked}");
    assert!(unmarked.contains("without `lossless = false` in its"), "{unmarked}");
    let marked = told(&["program.0.sl=1"]);
    assert!(marked.contains("marks begin at 20000 B"), "{marked}");
}

/// A flow that nobody disturbs has the line, whatever its control holds as its target, and however
/// seldom it is answered.
#[test]
fn a_lone_flow_fills_the_line_under_every_control() {
    let text = |control: &str| {
        format!(
            "host = 'ideal'\n[topology]\nkind = 'switch'\nhosts = 2\nrate = '100Gbps'\n\
             propagation = '1us'\nswitch = 'pfc'\n[switch]\necn = {{ kmin = '100KB', \
             kmax = '400KB' }}\n[congestion]\n{control}\n[[program]]\nkind = 'flows'\nhosts = 1\n\
             peer = 1\nsize = '8MB'\nflows = {{ pattern = 'incast' }}\n"
        )
    };
    let end =
        |control: &str, set: &[&str]| number(&outcome(&text(control), set), "last_completion");
    for cadence in ["1", "16", "256"] {
        let every = format!("rc.ack_every={cadence}");
        let free = end("control = 'none'", &[&every]);
        for control in [
            "control = 'dcqcn'",
            "control = 'timely'",
            "control = 'integral'\ngain = '1kHz'\ntarget = '200us'",
            "control = 'integral'\ngain = '10kHz'\ntarget = '30us'",
        ] {
            let ratio = end(control, &[&every]) / free;
            assert!(ratio < 1.01, "{control}, {every}: {ratio}");
        }
    }
}
