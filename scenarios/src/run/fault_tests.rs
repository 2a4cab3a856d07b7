//! Whole runs with planned faults, against what they must cost.

use proptest::prelude::*;

use super::simulate_tests::{number, outcome};
use super::{ExitKind, Outcome, Runner, Simulator};
use crate::quantity::Unit;
use crate::testing::expanded;
use doorbell_core::units::Span;

/// Twenty WRITEs of one packet each over UC, which loses in silence and goes on.
const UC: &str = "[qp]\ntype = 'UC'\n[[program]]\nkind = 'bandwidth'\nop = 'write'\nsize = '4KiB'\n\
                  iterations = 20\n";

/// One SEND at a time over RC.
const RC: &str = "[[program]]\nkind = 'latency'\nop = 'send'\nsize = '64B'\niterations = 8\n";

#[track_caller]
fn run(program: &str, fault: &str, set: &[&str]) -> Outcome {
    let text = format!(
        "title = 't'\nprofile = 'generic-400g'\n[run]\nnoise = 'off'\n{program}{}{fault}",
        if fault.is_empty() { "" } else { "[[fault]]\nid = 'f'\n" }
    );
    let points = expanded(&text, set).unwrap_or_else(|e| panic!("{e}: {:?}\n{text}", e.remedy()));
    Simulator.run(&points[0].point).unwrap_or_else(|e| panic!("{e}"))
}

/// What must hold after every run, whatever went wrong.
#[track_caller]
fn sound(o: &Outcome) {
    assert_eq!(number(o, "note.byte-balance"), 0.0, "{:?}", o.notes);
}

fn fired(o: &Outcome) -> f64 {
    number(o, "fault.f.fired")
}

/// Picoseconds.
fn ps(o: &Outcome, name: &str) -> i64 {
    number(o, name) as i64
}

#[test]
fn a_lost_packet_is_lost_once_and_by_name() {
    let o = run(UC, "kind = 'drop'\nclass = 'write'\nnth = 3", &[]);
    sound(&o);
    assert_eq!(o.exit.kind, ExitKind::Ok);
    assert_eq!((fired(&o), number(&o, "fault.f.matched")), (1.0, 20.0));
    assert_eq!(number(&o, "counter.fault_drop"), 1.0);
    assert_eq!(number(&o, "delivered_bytes"), 19.0 * 4096.0);
    assert_eq!(number(&o, "note.lost-packets"), 1.0);
}

#[test]
fn a_lost_packet_of_a_reliable_connection_is_named_in_the_reason() {
    let o = run(RC, "kind = 'drop'\nclass = 'send'\nnth = 3", &[]);
    sound(&o);
    assert_eq!(fired(&o), 1.0);
    // Until lost packets are sent again; then the run is good and this line goes.
    if o.exit.kind != ExitKind::Ok {
        assert_eq!(o.exit.kind, ExitKind::NoProgress);
        let line = "planned faults took 1 packet from links (fault_drop)";
        assert!(o.exit.reason.starts_with(line), "{}", o.exit.reason);
    }
}

#[test]
fn budgets_and_numbers_over_a_run() {
    for (keys, lost) in [
        ("budget = 1", 1.0),
        ("budget = 19", 19.0),
        ("budget = 20", 20.0),
        ("budget = 21", 20.0),
        ("nth = 20", 1.0),
        ("chance = '1/1'", 20.0),
    ] {
        let o = run(UC, &format!("kind = 'drop'\n{keys}"), &[]);
        sound(&o);
        assert_eq!(number(&o, "counter.fault_drop"), lost, "{keys}");
        assert_eq!(fired(&o), lost, "{keys}");
    }
}

/// There are 20 packets, so the 21st never comes.
#[test]
fn a_fault_that_never_fires_fails_the_run_unless_it_may() {
    for (fault, why) in [
        ("kind = 'drop'\nnth = 21", "20 matched"),
        ("kind = 'drop'\nclass = 'send'", "nothing matched"),
        ("kind = 'peer-dead'\nhost = 1\nafter = '1s'", "nothing matched"),
        ("kind = 'qp-error'\nhost = 1\nqp = 99\nafter = '1us'", "nothing matched"),
        ("kind = 'rnr'\nhost = 1\nbefore = '10us'", "nothing matched"),
        ("kind = 'bad-doorbell'\nhost = 1", "nothing matched"),
    ] {
        let o = run(UC, fault, &[]);
        sound(&o);
        assert_eq!(o.exit.kind, ExitKind::FaultNotFired, "{fault}");
        let text = &o.exit.reason;
        assert!(text.starts_with("fault \"f\" (") && text.contains(why), "{text}");
        let o = run(UC, fault, &["fault.0.maybe=true"]);
        assert_eq!(o.exit.kind, ExitKind::Ok, "{fault}");
    }
}

/// Another failure is the status, and the silent fault a note.
#[test]
fn a_silent_fault_does_not_hide_another_failure() {
    let two = "kind = 'drop'\nnth = 21\n[[fault]]\nid = 'dead'\nkind = 'peer-dead'\nhost = 1\n\
               after = '101us'";
    let o = run(RC, two, &[]);
    sound(&o);
    assert!(matches!(o.exit.kind, ExitKind::NoProgress | ExitKind::Violation), "{:?}", o.exit);
    assert_eq!(number(&o, "note.fault-not-fired"), 1.0);
}

/// A plan that never fires moves no hash, no time and no number of events.
#[test]
fn a_silent_plan_changes_nothing() {
    for program in [UC, RC] {
        let plain = run(program, "", &[]);
        for fault in [
            "kind = 'drop'\nnth = 1000",
            "kind = 'drop'\nround = 9",
            "kind = 'delay'\ndelay = '1us'\npsn = 1\nsource_qp = 99",
            "kind = 'hold'\nuntil = '1ms'\ndest_qp = 99",
            "kind = 'link-down'\nlink = 'host0-host1'\nafter = '1s'",
            "kind = 'drop'\nchance = '0/1'\nmaybe = true",
            "kind = 'peer-dead'\nhost = 1\nafter = '1s'",
            "kind = 'qp-error'\nhost = 1\nqp = 99\nafter = '101us'",
            "kind = 'program-stall'\nhost = 0\nafter = '1s'\nbefore = '2s'",
            "kind = 'nic-stall'\nhost = 0\nafter = '1s'\nbefore = '2s'",
            "kind = 'cq-not-polled'\nhost = 0\nbefore = '50us'",
            "kind = 'rnr'\nhost = 0\nbefore = '50us'",
            "kind = 'bad-doorbell'\nhost = 0\nnth = 1000",
        ] {
            let o = run(program, fault, &["fault.0.maybe=true"]);
            assert_eq!((fired(&o), o.exit.kind), (0.0, ExitKind::Ok), "{fault}");
            assert_eq!(o.trace_hash, plain.trace_hash, "{fault}");
            assert_eq!((o.sim_time, o.events), (plain.sim_time, plain.events), "{fault}");
            assert_eq!(o.metrics, plain.metrics, "{fault}");
        }
    }
}

#[test]
fn the_same_plan_and_seed_give_the_same_run() {
    let fault = "kind = 'drop'\nchance = '1/4'";
    let hashes: Vec<String> =
        ["1", "1", "2"].map(|s| run(UC, fault, &[&format!("seed={s}")]).trace_hash).to_vec();
    assert_eq!(hashes[0], hashes[1]);
    assert_ne!(hashes[0], hashes[2]);
}

/// With one message at a time nothing overlaps: the message takes exactly the delay longer.
#[test]
fn a_delay_costs_itself() {
    let plain = run(RC, "", &[]);
    for (class, ns) in [("send", 5_000), ("ack", 777)] {
        let fault = format!("kind = 'delay'\ndelay = '{ns}ns'\nclass = '{class}'\nnth = 4");
        let o = run(RC, &fault, &[]);
        sound(&o);
        assert_eq!((fired(&o), o.exit.kind), (1.0, ExitKind::Ok));
        let longer = ps(&o, "latency.max") - ps(&plain, "latency.p50");
        // A busy poller looks at intervals: within one step of it.
        assert!((longer - ns * 1_000).abs() < 100_000, "{class}: {longer} ps");
    }
}

/// A message that is caught by a hold ends after the hold, whether that ends by the clock or by
/// another fault.
#[test]
fn a_hold_ends() {
    for class in ["send", "ack"] {
        let fault = format!("kind = 'hold'\nclass = '{class}'\nafter = '105us'\nuntil = '200us'");
        let o = run(RC, &fault, &[]);
        sound(&o);
        assert_eq!((o.exit.kind, fired(&o), number(&o, "fault.f.held")), (ExitKind::Ok, 1.0, 0.0));
        let longest = ps(&o, "latency.max");
        // It began when 105 us had passed, and was caught within two messages.
        assert!((90_000_000..=97_000_000).contains(&longest), "{class}: {longest} ps");
    }
    // The second packet of the other direction releases it; nothing else would.
    let by = "kind = 'hold'\nsource = 0\nnth = 1\nreleased_by = 'g'\n[[fault]]\nid = 'g'\n\
              kind = 'delay'\ndelay = '1ns'\nsource = 0\nnth = 2";
    let o = run(UC, by, &[]);
    sound(&o);
    assert_eq!((fired(&o), number(&o, "fault.f.held"), o.exit.kind), (1.0, 0.0, ExitKind::Ok));
    // UC drops a message that comes late: the order is what the receiver goes by.
    let never = run(UC, &by.replace("nth = 2", "nth = 30"), &["fault.1.maybe=true"]);
    sound(&never);
    assert_eq!(
        number(&never, "fault.f.held"),
        1.0,
        "it is held to the end, and the balance says so"
    );
}

/// UC takes a packet with a later PSN and then drops the one that was overtaken.
#[test]
fn reordering_and_copies() {
    let ud = |o: &str| UC.replace("UC", "UD").replace("'write'", o);
    let o = run(&ud("'send'"), "kind = 'reorder'\nbehind = 3\nclass = 'send'\nnth = 5", &[]);
    sound(&o);
    assert_eq!((fired(&o), o.exit.kind), (1.0, ExitKind::Ok));
    assert_eq!(number(&o, "delivered_bytes"), 20.0 * 4096.0, "datagrams have no order");
    // Nothing comes behind the last one: it goes on after the limit.
    let last = "kind = 'reorder'\nbehind = 3\nwithin = '7us'\nclass = 'send'\nnth = 20";
    let o = run(&ud("'send'"), last, &[]);
    assert_eq!((number(&o, "fault.f.held"), number(&o, "delivered_bytes")), (0.0, 20.0 * 4096.0));
    let o = run(&ud("'send'"), "kind = 'duplicate'\ncopies = 2\nclass = 'send'\nnth = 5", &[]);
    sound(&o);
    assert_eq!(number(&o, "counter.rx_packets"), 22.0);
}

#[test]
fn a_damaged_packet_is_counted_by_the_nic_that_it_is_for() {
    for kind in ["back-to-back", "switch"] {
        let set = format!("topology.kind=\"{kind}\"");
        let o = run(UC, "kind = 'corrupt'\nclass = 'write'\nnth = 2\nfrom = 'host0'", &[&set]);
        sound(&o);
        assert_eq!(number(&o, "counter.rx_icrc_encapsulated"), 1.0, "{kind}");
        assert_eq!(number(&o, "delivered_bytes"), 19.0 * 4096.0, "{kind}");
    }
}

/// A link that is down between two instants loses what arrives between them, and no more.
#[test]
fn a_flap_loses_what_arrives_meanwhile() {
    let spaced = format!("{UC}interval = '2us'\n");
    let flap = |after, before| {
        let keys = format!("after = '{after}us'\nbefore = '{before}us'");
        let o = run(&spaced, &format!("kind = 'link-down'\nlink = 'host1-host0'\n{keys}"), &[]);
        sound(&o);
        number(&o, "counter.link_down")
    };
    // One packet every two microseconds: ten microseconds hold five of them.
    assert_eq!(flap(110, 120), 5.0);
    assert_eq!(flap(110, 130), 10.0);
}

#[test]
fn loss_on_a_switched_path_is_at_the_link_that_is_named() {
    let set = ["topology.kind=\"switch\"", "topology.hosts=3"];
    for (link, from, matched) in [
        ("host0-switch0", "host0", 20.0),
        ("switch0-host1", "switch0", 20.0),
        ("host2-switch0", "host2", 0.0),
    ] {
        let keys =
            format!("kind = 'drop'\nlink = '{link}'\nfrom = '{from}'\nnth = 2\nmaybe = true");
        let o = run(UC, &keys, &set);
        sound(&o);
        assert_eq!(number(&o, "fault.f.matched"), matched, "{link}");
        assert_eq!(number(&o, "counter.fault_drop"), fired(&o), "{link}");
    }
}

#[test]
fn a_dead_peer_answers_nothing_and_is_not_waited_for() {
    let mut lost = 0.0;
    for us in 103..111 {
        let o = run(RC, &format!("kind = 'peer-dead'\nhost = 1\nafter = '{us}us'"), &[]);
        sound(&o);
        assert_eq!(fired(&o), 1.0);
        // A message that is inside the host when it dies is on no link.
        lost += number(&o, "counter.peer_dead");
        assert!(o.exit.kind != ExitKind::Ok, "the sender cannot have finished");
        assert!(!o.exit.reason.contains("program 1"), "{}", o.exit.reason);
    }
    assert!(lost > 0.0);
    // A sender over UC does not notice, and its run is good.
    let o = run(UC, "kind = 'peer-dead'\nhost = 1\nafter = '101us'", &[]);
    sound(&o);
    assert_eq!(o.exit.kind, ExitKind::Ok);
}

#[test]
fn a_queue_pair_in_error_flushes_its_work() {
    let o = run(RC, "kind = 'qp-error'\nhost = 0\nqp = 16\nafter = '105us'", &[]);
    sound(&o);
    assert_eq!((fired(&o), o.exit.kind), (1.0, ExitKind::Violation));
    assert_eq!(number(&o, "counter.async_qp_fatal"), 1.0);
    assert!(number(&o, "qps_in_error") >= 1.0);
}

/// What is sent again until the queue pair dies keeps the port busy long after the last message.
#[test]
fn nothing_is_busier_than_time_allows() {
    let bulk = "[qp]\ntimeout = 6\n[[program]]\nkind = 'bandwidth'\nop = 'write'\n\
                size = '64KiB'\nwindow = 16\niterations = 200\n";
    let o = run(bulk, "kind = 'link-down'\nlink = 'host0-host1'\nafter = '200us'", &[]);
    assert_eq!(number(&o, "counter.req_transport_retries_exceeded"), 1.0);
    // The whole time until it died counts: 8 times 1 MiB in 2.1 ms keep no port busy.
    assert!(!o.resources.is_empty());
    assert_eq!(o.limiting, None);
    // The sender is done long before the wire is, and before the receiver has posted again.
    let slow = "[topology]\nrate = '1Gbps'\n[qp]\ntype = 'UD'\n[[program]]\n\
                kind = 'message-rate'\nop = 'send'\nsize = '4KiB'\niterations = 8\n";
    let behind = run(slow, "", &[]);
    assert_eq!(behind.limiting.as_deref(), Some("host0.port transmit"));
}

/// The run is longer by what was left of the window, to within a message.
#[test]
fn stalls_last_as_long_as_their_window() {
    let plain = run(RC, "", &[]);
    let message = ps(&plain, "latency.max");
    for kind in ["program-stall", "nic-stall"] {
        for host in [0, 1] {
            let keys = format!("kind = '{kind}'\nhost = {host}\nafter = '105us'\nbefore = '135us'");
            let o = run(RC, &keys, &[]);
            sound(&o);
            if kind == "program-stall" && host == 1 {
                // The receiving program has posted its receives and is not needed.
                assert!(matches!(o.exit.kind, ExitKind::Ok | ExitKind::FaultNotFired));
                continue;
            }
            assert_eq!(o.exit.kind, ExitKind::Ok, "{keys}: {}", o.exit.reason);
            assert!(fired(&o) > 0.0);
            let longer = ps(&o, "latency.max") - message;
            let (least, most) = (30_000_000 - 2 * message, 30_000_000 + message);
            assert!((least..=most).contains(&longer), "{kind} of host {host}: {longer} ps");
        }
    }
}

#[test]
fn completions_that_nobody_polls_are_found_afterwards() {
    let plain = run(RC, "", &[]);
    let o = run(RC, "kind = 'cq-not-polled'\nhost = 0\nafter = '105us'\nbefore = '135us'", &[]);
    sound(&o);
    // A program that waits polls nothing: it misses the completion that would have woken it.
    assert_eq!((fired(&o), o.exit.kind), (1.0, ExitKind::Ok), "{}", o.exit.reason);
    let longer = ps(&o, "latency.max") - ps(&plain, "latency.max");
    assert!((20_000_000..=31_000_000).contains(&longer), "{longer}");
}

#[test]
fn withheld_receives_are_missing_and_come_back() {
    let rnr = "kind = 'rnr'\nhost = 1\nafter = '105us'\nbefore = '106us'";
    let o = run(RC, rnr, &[]);
    sound(&o);
    assert!(fired(&o) >= 1.0 && number(&o, "counter.out_of_buffer") >= 1.0);
    let ud = UC.replace("UC", "UD").replace("'write'", "'send'") + "interval = '1us'\n";
    let o = run(&ud, "kind = 'rnr'\nhost = 1\nafter = '110us'\nbefore = '115us'", &[]);
    sound(&o);
    let lost = 20.0 - number(&o, "delivered_bytes") / 4096.0;
    assert_eq!(lost, fired(&o), "what found no receive is lost");
    assert!((4.0..=6.0).contains(&lost), "one a microsecond for five: {lost}");
}

#[test]
fn a_damaged_doorbell_costs_the_queue_pair() {
    let o = run(RC, "kind = 'bad-doorbell'\nhost = 0\nnth = 3", &[]);
    sound(&o);
    assert_eq!((fired(&o), o.exit.kind), (1.0, ExitKind::Violation), "{}", o.exit.reason);
    assert_eq!(number(&o, "counter.doorbell_check_errors"), 1.0);
    assert!(o.faults[0].synthetic);
    // A BlueFlame write has both parts, an 8-byte doorbell only the record.
    for (ring, part, fires) in [
        ("doorbell", "record", true),
        ("doorbell", "blueflame", false),
        ("blueflame", "record", true),
        ("blueflame", "blueflame", true),
    ] {
        let fault = format!("kind = 'bad-doorbell'\nhost = 0\npart = '{part}'\nmaybe = true");
        let o = run(&format!("{RC}ring = '{ring}'\n"), &fault, &[]);
        assert_eq!(fired(&o) > 0.0, fires, "{ring} {part}");
    }
}

#[test]
fn a_fault_that_another_one_always_decides_before_names_it() {
    let two = |keys: &str| {
        format!(
            "{keys}\n[[fault]]\nid = 'late'\n{keys}\n[[fault]]\nid = 'other'\nmaybe = true\n{keys}"
        )
    };
    for keys in [
        "kind = 'link-down'\nlink = 'host0-host1'\nafter = '101us'\nbefore = '110us'",
        "kind = 'drop'\nclass = 'send'\nnth = 2",
        "kind = 'program-stall'\nhost = 0\nafter = '101us'\nbefore = '110us'",
    ] {
        let o = run(RC, &two(keys), &[]);
        sound(&o);
        assert_eq!(o.exit.kind, ExitKind::FaultNotFired, "{}", o.exit.reason);
        let named = "matched, and fault \"f\", which stands before it in the file, decided";
        assert!(o.exit.reason.contains(named), "{}", o.exit.reason);
    }
    let o = run(RC, "kind = 'drop'\nclass = 'send'\nnth = 99", &[]);
    assert!(o.exit.reason.contains("neither number nor chance"), "{}", o.exit.reason);
}

#[test]
fn a_packet_that_is_kept_beyond_the_limit_is_not_waited_for() {
    let kept = |nth: u32| {
        let timeout = ["qp.timeout=5", "run.limit=5ms", "qp.retry_cnt=7"];
        run(RC, &format!("kind = 'delay'\ndelay = '11ms'\nclass = 'send'\nnth = {nth}"), &timeout)
    };
    let o = kept(2);
    sound(&o);
    assert_eq!((o.exit.kind, number(&o, "fault.f.held")), (ExitKind::Ok, 1.0), "{}", o.exit.reason);
    assert_eq!(number(&o, "messages"), 8.0);
    let within = run(
        RC,
        "kind = 'delay'\ndelay = '4ms'\nclass = 'send'\nnth = 2",
        &["qp.timeout=5", "run.limit=5ms"],
    );
    assert_eq!((within.exit.kind, number(&within, "fault.f.held")), (ExitKind::Ok, 0.0));
    // Nothing resends it: the run waits for it, and says for what.
    let o = run(
        RC,
        "kind = 'delay'\ndelay = '11ms'\nclass = 'send'\nnth = 2",
        &["qp.timeout=0", "run.limit=5ms"],
    );
    assert_eq!(o.exit.kind, ExitKind::NoProgress);
    let line = "fault \"f\" (delay) still holds 1 packets";
    assert!(o.exit.reason.contains(line), "{}", o.exit.reason);
}

#[test]
fn copies_are_not_copied_again_on_their_way() {
    let switch = "[topology]\nkind = 'switch'\nhosts = 2\n[qp]\ntype = 'UC'\n[[program]]\n\
                  kind = 'bandwidth'\nop = 'write'\nsize = '64B'\niterations = 1\nwarmup = 0\n";
    let o = run(switch, "kind = 'duplicate'\ncopies = 3\nclass = 'write'", &[]);
    sound(&o);
    // At each of the two links the packet itself is copied, and no copy is.
    assert_eq!((fired(&o), number(&o, "counter.rx_packets")), (2.0, 7.0));
    let o = run(switch, "kind = 'duplicate'\ncopies = 1000\nclass = 'write'", &[]);
    assert_eq!(number(&o, "counter.rx_packets"), 2001.0);
    assert!(o.notes.iter().all(|n| n.name != "copies-left-out"), "{:?}", o.notes);
    // More than may be under way at once: what was not copied is told.
    let many = switch.replace("iterations = 1\n", "iterations = 300\n");
    let o = run(&many, "kind = 'duplicate'\ncopies = 1000\nclass = 'write'", &[]);
    let note = o.notes.iter().find(|n| n.name == "copies-left-out").expect("a note");
    // At the first link and at the second.
    let all = 300.0 * 2001.0;
    assert_eq!(number(&o, "counter.rx_packets") + note.count as f64, all, "{}", note.text);
}

/// Two queue pairs, and the NIC stops at the second error, at the first, or never.
#[test]
fn a_nic_stops_at_its_threshold() {
    let two = "[[program]]\nkind = 'latency'\nsize = '64B'\niterations = 50\nthreads = 3\n";
    for (stop, budget, failed) in
        [("", 1, 1.0), ("stop_after = 1", 1, 3.0), ("stop_after = 2", 1, 1.0)]
    {
        let fault = format!("kind = 'bad-doorbell'\nhost = 0\nbudget = {budget}\n{stop}");
        let o = run(two, &fault, &[]);
        sound(&o);
        let fatal = number(&o, "counter.async_device_fatal");
        assert_eq!(number(&o, "qps_in_error"), failed, "{stop}");
        assert_eq!(fatal > 0.0, failed == 3.0, "{stop}");
    }
}

// ---- any plan ----------------------------------------------------------------------------------

/// Keys of a packet fault.
fn packets() -> impl Strategy<Value = String> {
    let verdict = prop_oneof![
        Just("kind = 'drop'".to_owned()),
        Just("kind = 'corrupt'".to_owned()),
        (1u64..20_000).prop_map(|ns| format!("kind = 'delay'\ndelay = '{ns}ns'")),
        (1u32..4).prop_map(|n| format!("kind = 'duplicate'\ncopies = {n}")),
        (1u32..5).prop_map(|n| format!("kind = 'reorder'\nbehind = {n}\nwithin = '3us'")),
        (1u64..300).prop_map(|us| format!("kind = 'hold'\nuntil = '{us}us'")),
    ];
    let which = prop_oneof![
        Just(String::new()),
        (1u32..30).prop_map(|n| format!("nth = {n}")),
        (1u32..10).prop_map(|n| format!("chance = '1/{n}'")),
        (1u32..10).prop_map(|n| format!("burst = {{ enter = '1/{n}', leave = '1/2' }}")),
        Just("class = 'request'\nbudget = 3".to_owned()),
        Just("round = 1\nsource = 0".to_owned()),
        Just("from = 'host1'".to_owned()),
    ];
    (verdict, which).prop_map(|(v, w)| format!("{v}\n{w}"))
}

/// Keys of a host fault.
fn host() -> impl Strategy<Value = String> {
    let kind = prop_oneof![
        Just("kind = 'program-stall'"),
        Just("kind = 'nic-stall'"),
        Just("kind = 'cq-not-polled'"),
        Just("kind = 'rnr'"),
        Just("kind = 'bad-doorbell'\nbudget = 1\nstop_after = 1"),
    ];
    let lasting = (kind, 90u64..150, 1u64..40)
        .prop_map(|(k, at, d)| format!("{k}\nafter = '{at}us'\nbefore = '{}us'", at + d));
    let at_once = prop_oneof![Just("kind = 'peer-dead'"), Just("kind = 'qp-error'\nqp = 16")];
    let at_once = (at_once, 90u64..150).prop_map(|(k, at)| format!("{k}\nafter = '{at}us'"));
    let flap = (90u64..150, 1u64..40);
    prop_oneof![
        (lasting, 0..2).prop_map(|(k, h)| format!("{k}\nhost = {h}")),
        (at_once, 0..2).prop_map(|(k, h)| format!("{k}\nhost = {h}")),
        flap.prop_map(|(at, d)| format!(
            "kind = 'link-down'\nfrom = 'host0'\nlink = LINK\nafter = '{at}us'\nbefore = '{}us'",
            at + d
        )),
    ]
}

/// A small world: service and operation, one of both topologies.
fn world() -> impl Strategy<Value = (String, bool)> {
    let service = prop_oneof![
        Just(("RC", "write")),
        Just(("RC", "send")),
        Just(("RC", "read")),
        Just(("RC", "fetch-add")),
        Just(("UC", "write")),
        Just(("UC", "send")),
        Just(("UD", "send")),
    ];
    let size = prop_oneof![Just(8u32), Just(512), Just(4096), Just(9000)];
    let kind = prop_oneof![Just("bandwidth"), Just("latency")];
    let lossy = prop_oneof![Just("lossless"), Just("tail-drop")];
    (service, size, kind, any::<bool>(), lossy, 1u32..4).prop_map(
        |((ty, op), size, kind, switched, lossy, threads)| {
            let size = match (ty, op) {
                ("UD", _) => size.min(4096),
                (_, "fetch-add") => 8,
                _ => size,
            };
            let topology = match switched {
                true => format!("[topology]\nkind = 'switch'\nhosts = 3\nswitch = '{lossy}'\n"),
                false => String::new(),
            };
            let program = format!(
                "[[program]]\nkind = '{kind}'\nop = '{op}'\nsize = '{size}B'\niterations = 15\n\
                 threads = {threads}\n"
            );
            (format!("{topology}[qp]\ntype = '{ty}'\n{program}"), switched)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// Any plan on any small world ends before its time limit (a thousand messages of which each
    /// loses its first packet take a minute), keeps the balance, and does so
    /// again.
    #[test]
    fn any_plan_ends_in_balance(
        (world, switched) in world(),
        plan in prop::collection::vec(prop_oneof![2 => packets(), 1 => host()], 1..4),
        seed in 1u64..1_000,
    ) {
        let link = if switched { "'host0-switch0'" } else { "'host0-host1'" };
        let mut text = format!(
            "title = 't'\nprofile = 'generic-400g'\nseed = {seed}\n[run]\nlimit = '1000s'\n{world}"
        );
        for (i, fault) in plan.iter().enumerate() {
            text += &format!("[[fault]]\nid = 'f{i}'\nmaybe = true\n{fault}\n");
        }
        let text = text.replace("LINK", link);
        let points = expanded(&text, &[]);
        let points = points.unwrap_or_else(|e| panic!("{e} {:?}\n{text}", e.remedy()));
        let o = Simulator.run(&points[0].point).unwrap_or_else(|e| panic!("{e}\n{text}"));
        prop_assert_eq!(number(&o, "note.byte-balance"), 0.0, "{}", text);
        prop_assert!(o.exit.kind != ExitKind::FaultNotFired);
        prop_assert!(!o.exit.reason.contains("time limit"), "{}", text);
        let again = Simulator.run(&points[0].point).unwrap();
        prop_assert_eq!(&again.trace_hash, &o.trace_hash, "{}", text);
        // A budget is never passed.
        for f in &o.faults {
            prop_assert!(f.budget.is_none_or(|b| f.fired <= b), "{:?}", f);
        }
    }
}

#[test]
fn times_in_reports_are_since_the_start() {
    let o = run(UC, "kind = 'drop'\nnth = 1\nafter = '101us'", &[]);
    let first = o.faults[0].first.expect("it fired");
    assert!(first >= Span::from_us(101) && first < Span::from_us(110), "{}", first.print());
}

/// Four switches in a ring with two hosts each, whose flows all go round the same way: pauses wait
/// for each other in a circle. A reboot that is still to come empties one of the switches.
#[test]
fn a_circle_of_pauses_waits_for_a_planned_reboot() {
    let mut text = "host = 'ideal'\n[topology]\nkind = 'explicit'\nhosts = 8\nswitches = 4\n\
                    switch = 'pfc'\nrate = '100Gbps'\npropagation = '100ns'\n"
        .to_owned();
    for s in 0..4 {
        let (next, far) = ((s + 1) % 4, (s + 2) % 4);
        text += &format!(
            "[[topology.link]]\nbetween = 'host{}..{}-switch{s}'\n\
             [[topology.link]]\nbetween = 'switch{s}-switch{next}'\n\
             [[topology.route]]\nat = 'switch{s}'\nto = 'host{}..{}'\nvia = 'switch{next}'\n",
            2 * s,
            2 * s + 1,
            2 * far,
            2 * far + 1
        );
    }
    text += "[switch]\nbuffer = '1500KB'\nalpha = '1/4'\n[qp]\ntimeout = 10\n";
    for host in 0..8 {
        text += &format!(
            "[[program]]\nname = 'f{host}'\nkind = 'flows'\nhost = {host}\nhosts = 1\n\
             peer = {}\nsize = '4MB'\nflows = {{ pattern = 'incast' }}\n",
            (host + 4) % 8
        );
    }
    let o = outcome(&text, &[]);
    assert!(o.exit.reason.contains("pause deadlock in class 0"), "{}", o.exit.reason);
    let reboot = "[[fault]]\nid = 'a'\nkind = 'switch-reboot'\nswitch = 0\nafter = '1ms'\n\
                  before = '2ms'\n";
    let o = outcome(&(text + reboot), &[]);
    assert!(!o.exit.reason.contains("deadlock"), "{}", o.exit.reason);
    assert_eq!(number(&o, "fault.a.fired"), 1.0);
}
