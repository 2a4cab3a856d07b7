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
        // 2,000 datagrams of 4 KiB are 0.68 ms of the link; the switch takes some of the others.
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
        let why = "since fault `storm` (pause-storm) pauses it, though it has room. Senders";
        assert!(text.contains(why), "{text}");
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

/// A pause frame that waits says what holds when it leaves: small packets that cross the threshold
/// one by one do not queue frames in front of the one that counts.
#[test]
fn a_lossless_class_drops_nothing_however_often_its_threshold_is_crossed() {
    let rate = |host: u32, peer: u32, sl: u32, op: &str| {
        format!(
            "[[program]]\nname = 'r{host}'\nkind = 'message-rate'\nhost = {host}\n\
             peer = {peer}\nsl = {sl}\n\
             op = '{op}'\nsize = '1B'\nqps = 4\nbatch = 16\niterations = 700\n"
        )
    };
    let flows = |sl: u32, size: &str, op: &str| {
        format!(
            "[[program]]\nname = 'f{sl}'\nkind = 'flows'\nhosts = 3\npeer = 3\nsl = {sl}\n\
             size = '{size}'\n\
             op = '{op}'\nqps = 4\nflows = {{ pattern = 'incast', start = '2us' }}\n"
        )
    };
    let text = format!(
        "host = 'ideal'\n[settings]\n'port.max_mtu' = '256B'\n[qp]\nmtu = '256B'\n[topology]\n\
         kind = 'switch'\nhosts = 4\nswitch = 'pfc'\nrate = '10Gbps'\npropagation = '10ns'\n\
         [switch]\nxoff = '1B'\n{}{}{}{}{}",
        "[[switch.class]]\n".repeat(4),
        rate(1, 0, 0, "write"),
        flows(2, "20KB", "read"),
        flows(1, "100KB", "write"),
        rate(0, 3, 0, "read"),
    );
    let o = outcome(&text, &[]);
    assert!(number(&o, "counter.ingress_overflow") == 0.0, "{:?}", o.notes);
    assert!(number(&o, "hosts_paused") > 0.0);
}

/// What a fault held up is told with its name, and not with reasons that are not there.
#[test]
fn flows_that_a_fault_held_up_name_it() {
    let text = "host = 'ideal'\n[topology]\nkind = 'switch'\nhosts = 3\nrate = '100Gbps'\n[qp]\n\
                timeout = 20\n[[program]]\nkind = 'flows'\nhost = 1\nhosts = 2\npeer = 0\n\
                size = '400KB'\nflows = { pattern = 'incast' }\n[[fault]]\nid = 'stall'\n\
                kind = 'nic-stall'\nhost = 1\nafter = '110us'\nbefore = '3110us'\n";
    let o = outcome(text, &[]);
    let told = note(&o, "victim-flows");
    assert!(told.contains("1 were held up by fault `stall` (nic-stall)"), "{told}");
}

/// A partition of one direction says nothing of the credits of the link.
#[test]
fn credits_are_not_blamed_for_a_partition() {
    let text = |kind: &str| {
        format!(
            "[topology]\nkind = 'leaf-spine'\nleaves = 2\nhosts_per_leaf = 4\nspines = 2\n\
             rate = '100Gbps'\npropagation = '500ns'\n[qp]\ntimeout = 10\n[[program]]\n\
             kind = 'flows'\nhosts = 8\nsize = '2MB'\nflows = {{ pattern = 'permutation' }}\n\
             [[fault]]\nid = 'cut'\n{kind}\nlink = 'switch0-switch2'\nafter = '130us'\n\
             before = '400us'\n"
        )
    };
    for kind in ["kind = 'drop'\nfrom = 'switch0'", "kind = 'link-down'"] {
        let o = outcome(&text(kind), &["link=ib"]);
        let told = o.notes.iter().filter(|n| n.name == "credit-starvation");
        let mut blamed = told.filter(|n| n.text.contains("switch2.port0 grants too few"));
        assert!(blamed.next().is_none(), "{kind}: {:?}", o.notes);
    }
}

/// Routes by destination know no queue pairs, and what has no recovery bears no other way.
#[test]
fn flows_on_one_link_are_told_what_spreads_them() {
    let text = |qp: &str| {
        let program = |host: u32| {
            format!(
                "[[program]]\nname = 'p{host}'\nkind = 'bandwidth'\nhost = {host}\npeer = 4\n\
                 size = '64KiB'\niterations = 100\n"
            )
        };
        format!(
            "host = 'ideal'\n[qp]\ntype = '{qp}'\n[topology]\nkind = 'leaf-spine'\nleaves = 2\n\
             hosts_per_leaf = 4\nspines = 4\nrate = '100Gbps'\nrouting = 'destination'\n{}{}{}",
            program(0),
            program(1),
            program(2)
        )
    };
    let told = |o: &Outcome| {
        let found = o.notes.iter().find(|n| n.name == "shared-link");
        found.map(|n| n.text.clone()).unwrap_or_default()
    };
    let shared = told(&outcome(&text("RC"), &[]));
    assert!(!shared.contains("more queue pairs"), "{shared}");
    // The beginning of a message that was overtaken is missing to UC, though nothing was lost.
    let apart = [
        "topology.routing=adaptive",
        "program.1.peer=5",
        "program.2.peer=6",
        "program.2.size=3000B",
        "program.2.iterations=1000",
        "topology.switch=pfc",
        "qp.mtu=1024B",
        "run.noise=on",
    ];
    let o = outcome(&text("UC"), &apart);
    let order = note(&o, "out-of-order");
    assert!(order.contains("UC drops the rest of a message"), "{order}");
    assert!(number(&o, "counter.rx_unused") > 0.0);
}

/// Two send in one class and one in another, each by a processing unit of its own, through a buffer
/// for two packets: those of one class share it evenly, whatever the other class does.
#[test]
fn units_of_a_class_take_turns_beside_another_class() {
    let program = |name: &str, sl: u8, n: u32| {
        format!(
            "[[program]]\nname = '{name}'\nkind = 'bandwidth'\nop = 'write'\nsl = {sl}\n\
             size = '4KiB'\niterations = {n}\n"
        )
    };
    let of = |first: u8| {
        let text = format!(
            "[topology]\nkind = 'switch'\nhosts = 2\nswitch = 'pfc'\nrate = '100Gbps'\n\
             [switch]\nbuffer = '4MB'\n[[switch.class]]\n[[switch.class]]\n{}{}{}",
            program("a", first, 300),
            program("b", first, 300),
            program("c", 1 - first, 3000)
        );
        let o = outcome(&text, &["nic.pu_count=3", "nic.tx_buffer=8KiB"]);
        ["a.duration", "b.duration"].map(|name| number(&o, name))
    };
    for first in [0, 1] {
        let [a, b] = of(first);
        assert!((a / b - 1.0).abs() < 0.02, "{first}: {a} {b}");
    }
}
