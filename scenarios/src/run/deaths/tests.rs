//! Every verdict, each beside a run that must not get it.

mod late;
mod most;
mod naks;
mod others;
mod reasons;
mod unreliable;
mod waits;

use super::*;
use crate::run::{ExitKind, Runner, Simulator};
use crate::testing::expanded;

const ONE: &str = "'post write 8B', 'ring', 'wait'";

/// The first queue pair of host 0 after a script, with `more` behind it in the file. T is
/// 1.048576 ms.
#[track_caller]
fn run(steps: &str, more: &str, set: &[&str]) -> Outcome {
    let text = format!(
        "title = 't'\nprofile = 'generic-400g'\n[run]\nnoise = 'off'\nlimit = '100ms'\n[topology]\n\
         kind = 'switch'\nhosts = 3\npkeys = ['0xffff', '0x7fff']\n[qp]\ntimeout = 8\n[[program]]\n\
         kind = 'script'\nreceives = 'none'\nsteps = [{steps}]\n{more}"
    );
    let points = expanded(&text, set).unwrap_or_else(|e| panic!("{e}: {:?}\n{text}", e.remedy()));
    Simulator.run(&points[0].point).unwrap_or_else(|e| panic!("{e}"))
}

fn fault(kind: &str) -> String {
    format!("[[fault]]\nid = 'f'\nmaybe = true\nkind = {kind}\n")
}

fn death(o: &Outcome) -> Option<&DeathRow> {
    o.qps.iter().find(|q| (q.host, q.qpn) == (0, 16))?.death.as_ref()
}

#[track_caller]
fn died(o: &Outcome, cause: &str, field: &str) -> DeathRow {
    let d = death(o).unwrap_or_else(|| panic!("it lives: {:?}", o.qps));
    assert_eq!((d.cause, &*d.field), (cause, field), "{d:#?}");
    d.clone()
}

#[track_caller]
fn lives(o: &Outcome) {
    assert_eq!(death(o), None);
    assert_eq!(o.find("qp.0.16.death.cause").unwrap().text(), "none");
}

#[track_caller]
fn says(lines: &[String], words: &str) {
    assert!(lines.iter().any(|l| l.contains(words)), "{words:?} is not in {lines:#?}");
}

// ---- losses ----------------------------------------------------------------------------------

#[test]
fn an_outage_is_named_with_its_fault_and_the_least_settings_that_survive_it() {
    let cut = |before: &str| {
        fault(&format!("'link-down'\nlink = 'host0-switch0'\nafter = '0ns'\nbefore = '{before}'"))
    };
    let o = run(ONE, &cut("20ms"), &[]);
    let d = died(&o, "requests-lost", "f");
    assert_eq!(d.status, "IBV_WC_RETRY_EXC_ERR");
    assert_eq!((d.timeouts, d.retries, d.rnr_retries, d.wr_id), (8, 7, 0, Some(0)));
    assert!(d.verdict.contains("the peer never saw a packet"), "{}", d.verdict);
    assert!(d.verdict.contains("(fault `f`); 8 request packets lost"), "{}", d.verdict);
    says(&d.own_side, "ack timeout 8: T = 1.049 ms");
    says(&d.own_side, "the ack timer expired 8 times, 7 of retry_cnt 7 used");
    says(&d.own_side, "local_ack_timeout_err 7");
    says(&d.other_side, "request packets lost on the link into switch 0: 8 from");
    // The last transmission is at 7 T: code 9 gives 14.7 ms, code 10 29.4 ms, and no retry_cnt is
    // more than seven.
    says(&d.remedy, "timeout 10 (dies after 33.55 ms)");
    says(&d.remedy, "a transmission after 20 ms, 19.90 ms after the first, would");
    assert!(!d.remedy[0].contains("retry_cnt"), "{:?}", d.remedy);
    lives(&run(ONE, &cut("7ms"), &[]));
}

#[test]
fn the_least_settings_do_survive_and_one_less_does_not() {
    let cut = fault("'link-down'\nlink = 'host0-switch0'\nafter = '0ns'\nbefore = '5ms'");
    let with = |n: u32| run(ONE, &cut, &[&format!("qp.retry_cnt={n}")]);
    let d = died(&with(3), "requests-lost", "f");
    says(&d.remedy, "retry_cnt 5 (dies after 6.291 ms)");
    says(&d.remedy, "timeout 9 (dies after 8.389 ms)");
    died(&with(4), "requests-lost", "f");
    lives(&with(5));
    lives(&run(ONE, &cut, &["qp.retry_cnt=3", "qp.timeout=9"]));
}

/// What would have lasted one fault is no promise against the next one: it is named, unless it is
/// over by then, or begins when all tries are made.
#[test]
fn a_second_fault_stands_against_the_promise() {
    let first = fault("'link-down'\nlink = 'host0-switch0'\nafter = '0ns'\nbefore = '5ms'");
    let with = |second: &str| {
        let second = format!("[[fault]]\nid = 'g'\nmaybe = true\nkind = {second}\n");
        died(&run(ONE, &format!("{first}{second}"), &["qp.retry_cnt=3"]), "requests-lost", "f")
    };
    let down = |from: &str, to: &str| {
        with(&format!("'link-down'\nlink = 'host1-switch0'\nafter = '{from}'\nbefore = '{to}'"))
    };
    // Dies after 4 T; timeout 9 would last 8 T, to 8.489 ms.
    says(&down("5ms", "7ms").remedy, ", unless fault `g` (link-down, from 5 ms to 7 ms) meets it");
    says(&down("8ms", "9ms").remedy, "which was not tried");
    says(
        &with("'peer-dead'\nhost = 1\nafter = '6ms'").remedy,
        "fault `g` (peer-dead, from 6 ms on)",
    );
    for harmless in [
        down("1ms", "5ms"),
        down("9ms", "10ms"),
        with("'peer-dead'\nhost = 2\nafter = '6ms'"),
        with("'duplicate'\nsource = 0"),
        with("'drop'\nsource = 0\nbudget = 1\nbefore = '1us'"),
    ] {
        assert!(!harmless.remedy[0].contains("unless"), "{:?}", harmless.remedy);
    }
}

/// Counts go on beyond what the explanation remembers packet by packet.
#[test]
fn no_count_of_an_explanation_is_saturated() {
    // It may end behind the limit: else the run would, as a stall.
    let damage = fault("'corrupt'\nclass = 'ack'\nbefore = '1s'");
    let set = ["qp.timeout=1", "run.limit=700ms", "rc.rules=rxe"];
    let o = run(ONE, &damage, &set);
    let d = died(&o, "corrupted", "icrc");
    assert!(d.timeouts > 1 << 16, "{}", d.timeouts);
    let all = o.find("host0.counter.rx_icrc_encapsulated").unwrap().text();
    assert!(d.verdict.contains(&format!("dropped {all} answers")), "{all}: {}", d.verdict);
    says(&d.own_side, "retry_cnt 7 is without limit");
    says(&d.other_side, &format!("{all} from 101.7 us to 700.0 ms"));
}

/// Queue pairs that die of all sorts of things, with packets behind them on the way: each packet
/// that was dropped has one cause, and is where the explanation looks for it.
#[test]
fn every_dropped_packet_has_one_cause() {
    let causes = [
        "rx_unknown_qp",
        "rx_wrong_service",
        "bad_pkey_cntr",
        "rx_wrong_address",
        "rx_wrong_state",
        "qkey_viol_cntr",
        "rx_discards",
        "rx_unused",
    ];
    let mut dropped = 0;
    for (steps, more) in [
        ("'recv 64B', 'post send 8KiB', 'post write 8B x30'", String::new()),
        ("'recv 64KiB read-only', 'post send 8KiB', 'post write 8B x30'", String::new()),
        ("'post read 64KiB rkey=wrong', 'post write 64KiB x3'", String::new()),
        ("'post read 64KiB x4', 'post write 64KiB lkey=wrong', 'post write 8B'", String::new()),
        ("'post read 64KiB x4', 'post write 64KiB x4'", fault("'drop'\nnth = 5")),
        ("'post write 64KiB x9'", fault("'qp-error'\nhost = 1\nqp = 16\nafter = '103us'")),
        ("'post read 64KiB x9'", fault("'qp-error'\nhost = 0\nqp = 16\nafter = '103us'")),
        ("'recv 4KiB x9', 'post send 4KiB x9'", fault("'duplicate'\ncopies = 3")),
    ] {
        for set in ["qp.mtu=4KiB", "qp.mtu=256B", "rc.recovery=selective-repeat", "qp.type=UC"] {
            if set == "qp.type=UC" && steps.contains("read ") {
                continue;
            }
            let o = run(&format!("{steps}, 'ring', 'wait'"), &more, &[set, "qp.timeout=2"]);
            for host in ["host0", "host1"] {
                let row = o.ports.iter().find(|p| p.name() == host).expect("it has a port");
                let number = |name: &str| row.counters.get(name).copied().unwrap_or(0);
                let all: u64 = causes.iter().map(|c| number(c)).sum();
                assert_eq!(number("rx_dropped"), all, "{host}, {set}: {steps}\n{more}");
                dropped += all;
            }
        }
    }
    assert!(dropped > 200, "{dropped}");
}

#[test]
fn a_loss_without_an_end_leaves_no_way_to_live() {
    let o = run(ONE, &fault("'link-down'\nlink = 'host0-switch0'\nafter = '0ns'"), &[]);
    let d = died(&o, "requests-lost", "f");
    says(&d.remedy, "no timeout and no retry_cnt would have helped");
    // What hits some packets says nothing about how long it lasts.
    let some = fault("'drop'\nsource = 0\nbefore = '90ms'\nchance = '999/1000'");
    let d = died(&run(ONE, &some, &[]), "requests-lost", "f");
    says(&d.remedy, "lost with chance 999/1000: retry_cnt 7 is the most");
    let d = died(&run(ONE, &some, &["qp.retry_cnt=2"]), "requests-lost", "f");
    says(&d.remedy, "retry_cnt above 2 makes it less likely");
    let first = fault("'drop'\nsource = 0\nbudget = 8");
    assert_eq!(died(&run(ONE, &first, &[]), "requests-lost", "f").remedy, Vec::<String>::new());
}

#[test]
fn lost_answers_are_told_from_lost_requests() {
    let lost = |source: u32| fault(&format!("'drop'\nsource = {source}"));
    let d = died(&run(ONE, &lost(1), &[]), "answers-lost", "f");
    assert!(d.verdict.contains("; 8 answers lost, from"), "{}", d.verdict);
    says(&d.other_side, "took 8 request packets");
    died(&run(ONE, &lost(0), &[]), "requests-lost", "f");
}

#[test]
fn what_was_lost_before_the_failing_request_is_not_blamed() {
    let two = "'post write 8B', 'ring', 'wait', 'compute 2ms', 'post write 8B', 'ring', 'wait'";
    let early = fault("'drop'\nsource = 0\nbefore = '1.3ms'\nnth = 1");
    let late = "[[fault]]\nid = 'g'\nkind = 'drop'\nsource = 1\nafter = '1.3ms'\n";
    let d = died(&run(two, &format!("{early}{late}"), &[]), "answers-lost", "g");
    assert!(d.verdict.contains("; 8 answers lost"), "{}", d.verdict);
    assert!(!d.other_side.iter().any(|l| l.contains("request packets lost")), "{:?}", d.other_side);
    // What was lost since is named, whichever way it went.
    let early = fault("'drop'\nsource = 0\nafter = '1.3ms'\nnth = 2");
    let d = died(&run(two, &format!("{early}{late}"), &[]), "answers-lost", "g");
    assert!(d.verdict.contains("1 request packet and 7 answers lost"), "{}", d.verdict);
}

#[test]
fn what_the_first_transmission_brought_is_no_lost_request() {
    // It arrives, and its answer and all later requests are lost.
    let answers = fault("'drop'\nsource = 1\nnth = 1");
    let requests = "[[fault]]\nid = 'g'\nkind = 'drop'\nsource = 0\nafter = '200us'\n";
    let o = run(ONE, &format!("{answers}{requests}"), &["qp.retry_cnt=1"]);
    let d = died(&o, "answers-lost", "f");
    assert!(d.verdict.contains("1 request packet and 1 answer lost"), "{}", d.verdict);
    says(&d.other_side, "answers lost on the link into switch 0: 1 at ");
}

#[test]
fn a_link_that_takes_smaller_packets_is_named_with_the_path_mtu_that_passes() {
    let with = |set: &[&str]| {
        let set: Vec<&str> = ["topology.mtu=1500B"].iter().chain(set).copied().collect();
        run("'post write 4KiB', 'ring', 'wait'", "", &set)
    };
    let d = died(&with(&["qp.mtu=4KiB"]), "requests-lost", "mtu");
    assert!(
        d.verdict.contains("the path MTU is 4096 B, and topology.mtu (1500B)"),
        "{}",
        d.verdict
    );
    says(&d.remedy, "path MTU <= 1024 B; no timeout would have helped");
    assert!(d.other_settings.is_empty());
    lives(&with(&["qp.mtu=1KiB"]));
}

#[test]
fn damaged_packets_are_no_lost_ones() {
    let d = died(&run(ONE, &fault("'corrupt'\nsource = 0"), &[]), "corrupted", "icrc");
    says(&d.other_side, "(rx_icrc_encapsulated)");
    let d = died(&run(ONE, &fault("'corrupt'\nsource = 1"), &[]), "corrupted", "icrc");
    assert!(d.verdict.contains("the peer answered"), "{}", d.verdict);
}

#[test]
fn a_dead_host_is_said_to_be_dead() {
    let o = run(ONE, &fault("'peer-dead'\nhost = 1\nafter = '100us'"), &[]);
    died(&o, "host-dead", "");
    lives(&run(ONE, &fault("'peer-dead'\nhost = 1\nafter = '1ms'"), &[]));
}

#[test]
fn a_late_answer_is_measured_and_the_timeout_that_waits_for_it_named() {
    let late = |by: &str| fault(&format!("'delay'\nfrom = 'host1'\ndelay = '{by}'"));
    let d = died(&run(ONE, &late("10ms"), &[]), "peer-slow", "timeout");
    assert!(d.verdict.contains("1.609 ms after the last expiry"), "{}", d.verdict);
    says(&d.remedy, "timeout 9 (dies after 16.78 ms)");
    lives(&run(ONE, &late("10ms"), &["qp.timeout=9"]));
    lives(&run(ONE, &late("8ms"), &[]));
}

// ---- wrong connection data: see also `wrong_connection_data.toml` ----------------------------

const AGAIN: &str = "'state reset peer', 'state init peer'";

#[test]
fn two_limited_members_are_a_mismatch_and_one_is_none() {
    let own = "'state reset', 'state init pkey=1', 'state rtr', 'state rts'";
    let both =
        format!("'state reset peer', 'state init peer pkey=1', 'state rtr peer', {own}, {ONE}");
    let d = died(&run(&both, "", &[]), "wrong-connection-data", "pkey");
    assert!(d.verdict.contains("sent 0x7fff, expected 0x7fff"), "{}", d.verdict);
    lives(&run(&format!("{own}, {ONE}"), "", &[]));
}

#[test]
fn what_no_queue_pair_waits_for_is_dest_qp_and_not_gid() {
    let wrong = |rtr: &str| {
        run(&format!("'state reset', 'state init', 'state rtr {rtr}', 'state rts', {ONE}"), "", &[])
    };
    let d = died(&wrong("dest_qp=17"), "wrong-connection-data", "dest_qp");
    assert!(d.verdict.contains("0x11 is unknown there; host 1 QP 16 waits"), "{}", d.verdict);
    let d = died(&wrong("gid=host2"), "wrong-connection-data", "gid");
    assert!(d.verdict.contains("host 2 dropped 8 packets"), "{}", d.verdict);
    lives(&wrong("dest_qp=16 gid=host1"));
}

#[test]
fn a_peer_that_was_connected_again_expects_the_first_psn() {
    let again = format!("{ONE}, {AGAIN}, 'state rtr peer', {ONE}");
    let d = died(&run(&again, "", &[]), "wrong-connection-data", "psn");
    assert!(d.verdict.contains("was reset and connected again"), "{}", d.verdict);
    lives(&run(&format!("{ONE}, {AGAIN}, 'state rtr peer psn=+1', {ONE}"), "", &[]));
}

#[test]
fn a_psn_behind_that_is_acknowledged_is_a_warning() {
    let with = |psn: &str| {
        run(
            &format!("'state reset', 'state init', 'state rtr', 'state rts psn={psn}', {ONE}"),
            "",
            &[],
        )
    };
    let o = with("-1");
    lives(&o);
    assert_eq!(o.find("note.psn-mismatch").unwrap().text(), "1");
    let o = with("+0");
    lives(&o);
    assert_eq!(o.find("note.psn-mismatch").unwrap().text(), "0");
}

/// One message, a reset on this side only, and one message: both sides stand at the same PSN.
#[test]
fn a_message_of_a_new_life_that_is_taken_for_one_of_the_old_is_a_warning() {
    let again = |psn: &str| {
        let anew = format!("'state reset', 'state init', 'state rtr', 'state rts {psn}'");
        run(&format!("{ONE}, {anew}, {ONE}"), "", &[])
    };
    for (psn, executed, warned) in [("psn=+0", "1", "1"), ("psn=+1", "2", "0")] {
        let o = again(psn);
        lives(&o);
        let text = |name: &str| o.find(name).unwrap().text();
        assert_eq!(text("counter.wc_success"), "2", "{psn}");
        assert_eq!(text("host1.counter.rx_write_requests"), executed, "{psn}");
        assert_eq!(text("note.psn-mismatch"), warned, "{psn}");
    }
    // Copies and late packets of a life that goes on are no sign of it.
    let copies = fault("'duplicate'\nclass = 'request'");
    let o = run(ONE, &copies, &[]);
    assert_ne!(o.find("counter.duplicate_request").unwrap().text(), "0");
    assert_eq!(o.find("note.psn-mismatch").unwrap().text(), "0");
}

/// Two links are small; the connection meets the larger one of them, and that one is to be named.
#[test]
fn of_several_small_links_the_one_on_the_way_is_named() {
    let text = "title = 't'\nprofile = 'generic-400g'\n[topology]\nkind = 'explicit'\nhosts = 4\n\
                switches = 1\nlink = [{ between = 'host0..1-switch0' }, \
                { between = 'host2-switch0', mtu = '2200B' }, \
                { between = 'host3-switch0', mtu = '600B' }]\n\
                [qp]\nmtu = '4KiB'\ntimeout = 8\n\
                [[program]]\nkind = 'script'\npeer = 2\n\
                steps = ['post write 64KiB', 'ring', 'wait']\n";
    for (peer, link, passes) in
        [(2, "link host2-switch0 (2200B)", "2048"), (3, "link host3-switch0 (600B)", "512")]
    {
        let points = expanded(text, &[&format!("program.0.peer={peer}")]).expect("it is sound");
        let d = died(&Simulator.run(&points[0].point).expect("it runs"), "requests-lost", "mtu");
        assert!(d.verdict.contains(link), "{}", d.verdict);
        says(&d.remedy, &format!("path MTU <= {passes} B"));
    }
}

#[test]
fn an_unequal_mtu_is_the_cause_only_of_what_is_longer_than_a_packet() {
    let with = |post: &str| {
        let steps = format!("{AGAIN}, 'state rtr peer mtu=1KiB', 'state rts peer', {post}");
        run(&format!("{steps}, 'ring', 'wait'"), "", &[])
    };
    died(&with("'post write 1025B'"), "wrong-connection-data", "mtu");
    lives(&with("'post write 1024B'"));
    // Refused for another reason, though the MTU is unequal as well.
    died(&with("'post fetch-add 8B remote=4B anyway'"), "refused", "invalid request");
}

/// Every operation of RC, each field of the connection data wrong by itself.
#[test]
fn every_operation_names_every_wrong_field() {
    let own = |rtr: &str, rts: &str| {
        format!("'state reset', 'state init', 'state rtr {rtr}', 'state rts {rts}'")
    };
    let peer = |init: &str, rtr: &str| {
        format!(
            "'state reset peer', 'state init peer {init}', 'state rtr peer {rtr}', 'state rts peer'"
        )
    };
    let wrong = [
        ("pkey", format!("{}, {}", own("", ""), peer("pkey=1", ""))),
        ("dest_qp", own("dest_qp=0x99", "")),
        ("dest_qp", peer("", "dest_qp=0x99")),
        ("gid", own("gid=host2", "")),
        ("gid", peer("", "gid=host2")),
        ("psn", own("", "psn=+1")),
        ("psn", peer("", "psn=-2")),
        ("mtu", own("mtu=256B", "")),
        ("mtu", peer("", "mtu=256B")),
    ];
    let operations = ["send", "send-imm", "write", "write-imm", "read", "fetch-add", "cmp-swap"];
    for (field, steps) in &wrong {
        for op in operations {
            let atomic = matches!(op, "fetch-add" | "cmp-swap");
            let size = if atomic { "" } else { "8KiB" };
            let post = format!("'recv 64KiB x4', 'post {op} {size}', 'ring', 'wait'");
            let set = ["qp.timeout=4", "qp.retry_cnt=2", "topology.pkeys=['0xffff', '0x8001']"];
            let o = run(&format!("{steps}, {post}"), "", &set);
            if *field == "mtu" && atomic {
                lives(&o);
                continue;
            }
            let d = death(&o).unwrap_or_else(|| panic!("{op}: {steps}: it lives"));
            assert_eq!((d.cause, &*d.field), ("wrong-connection-data", *field), "{op}: {d:#?}");
        }
    }
}

/// What is refused for another reason is not blamed on an unequal MTU.
#[test]
fn an_unequal_mtu_is_no_cause_of_another_refusal() {
    let unequal = format!("{AGAIN}, 'state rtr peer mtu=1KiB', 'state rts peer'");
    for (post, why) in [
        ("'post read 8KiB'", "not in the QP's access flags"),
        ("'post write 8KiB'", "not in the QP's access flags"),
    ] {
        let o = run(&format!("{unequal}, {post}, 'ring', 'wait'"), "", &["qp.access=[]"]);
        let d = died(&o, "refused", "invalid request");
        assert!(d.verdict.contains(why), "{}", d.verdict);
    }
}

#[test]
fn a_state_is_named_and_how_late_the_peer_was() {
    let d = died(&run(&format!("{AGAIN}, {ONE}"), "", &[]), "peer-not-ready", "INIT");
    assert!(d.verdict.contains("it never reached RTR"), "{}", d.verdict);
    says(&d.remedy, "no timeout");
    let late = |t: &str| run(ONE, "", &[&format!("program.0.handshake={t}")]);
    let d = died(&late("10ms"), "peer-not-ready", "INIT");
    assert!(d.verdict.contains("1.557 ms after this one had died"), "{}", d.verdict);
    says(&d.remedy, "timeout 9");
    lives(&late("7ms"));
}

#[test]
fn a_peer_in_err_is_explained_by_its_own_death() {
    let d = died(&run(&format!("'state err peer', {ONE}"), "", &[]), "peer-in-error", "ERR");
    assert!(d.verdict.contains("because its program moved it there"), "{}", d.verdict);
    let by_fault = fault("'qp-error'\nhost = 1\nqp = 16\nafter = '100us'");
    let d = died(&run(ONE, &by_fault, &[]), "peer-in-error", "ERR");
    assert!(d.verdict.contains("because its device gave it up"), "{}", d.verdict);
}

// ---- other statuses --------------------------------------------------------------------------

#[test]
fn no_receive_for_all_tries_and_one_in_time() {
    let send = "'post send 8B', 'ring', 'wait'";
    let d = died(&run(send, "", &["qp.rnr_retry=3"]), "no-receive", "rnr_retry");
    assert_eq!((d.status, d.rnr_retries, d.timeouts), ("IBV_WC_RNR_RETRY_EXC_ERR", 3, 0));
    assert!(
        d.verdict.contains("4 RNR NAKs came, RNR timer code 12 (640 us), and rnr_retry 3"),
        "{}",
        d.verdict
    );
    assert!(d.other_settings.is_empty(), "the ack timer had no part in it");
    assert!(!d.other_rnr_settings.is_empty());
    let in_time = "'post send 8B', 'ring', 'compute 1ms', 'recv 8B', 'wait'";
    lives(&run(in_time, "", &["qp.rnr_retry=3"]));
}

#[test]
fn a_fault_that_withholds_receives_is_named_with_what_outlasts_it() {
    let withheld = fault("'rnr'\nhost = 1\nbefore = '3ms'");
    let with = |set: &str| {
        run("'recv 8B', 'post send 8B', 'ring', 'wait'", &withheld, &["qp.rnr_retry=2", set])
    };
    let d = died(&with("qp.retry_cnt=7"), "no-receive", "rnr_retry");
    let open = "fault `f` (rnr of host 1) was open from the start to 3 ms";
    assert!(d.verdict.contains(open), "{}", d.verdict);
    assert!(d.verdict.contains("1 receive posted at the last try, and withheld"), "{}", d.verdict);
    says(&d.other_side, "1 receive posted at the last try");
    says(&d.remedy, "a try after 3 ms may find a receive: min_rnr_timer ");
    says(&d.remedy, "rnr_retry 5, or rnr_retry 7 goes on without limit");
    lives(&with("qp.min_rnr_timer=17"));
    lives(&with("qp.rnr_retry=5"));
    died(&with("qp.rnr_retry=4"), "no-receive", "rnr_retry");
    // One that was over before is not blamed.
    let over = fault("'rnr'\nhost = 1\nbefore = '50us'");
    let d = died(
        &run("'post send 8B', 'ring', 'wait'", &over, &["qp.rnr_retry=1"]),
        "no-receive",
        "rnr_retry",
    );
    assert!(!d.verdict.contains("fault"), "{}", d.verdict);
    says(&d.other_side, "0 receives posted at the last try");
}

#[test]
fn a_nic_that_stood_still_is_named() {
    let still = |to: &str| fault(&format!("'nic-stall'\nhost = 1\nbefore = '{to}'"));
    let d = died(&run(ONE, &still("12ms"), &[]), "peer-slow", "timeout");
    let open = "fault `f` (nic-stall of host 1) was open from the start to 12 ms";
    assert!(d.verdict.contains(open), "{}", d.verdict);
    lives(&run(ONE, &still("6ms"), &[]));
}

// ---- notes -----------------------------------------------------------------------------------

fn note<'o>(o: &'o Outcome, name: &str) -> Option<&'o str> {
    o.notes.iter().find(|n| n.name == name).map(|n| &*n.text)
}

#[test]
fn datagrams_that_nobody_takes_are_named_with_their_cause() {
    let other = "'state reset peer', 'state init peer qkey=7', 'state rtr peer', 'recv 64B'";
    let send = "'post send 8B', 'ring', 'wait'";
    let ud = ["qp.type=UD"];
    for (steps, says) in [
        (format!("{other}, {send}"), ", expected 0x7 (qkey_viol_cntr)"),
        (send.to_owned(), "no receive was posted"),
        (format!("'recv 40B', {send}"), "no room for the payload and the 40 bytes of the GRH"),
    ] {
        let o = run(&steps, "", &ud);
        let text = note(&o, "packets-dropped").unwrap_or_else(|| panic!("{steps}: {:?}", o.notes));
        assert!(text.starts_with("host 0 QP 16 to host 1 QP 16: 1 datagram dropped at "), "{text}");
        assert!(text.contains(says) && text.contains("; port of host 1: "), "{text}");
        assert!(!o.effective.iter().any(|e| e.name == "qp.timeout"), "{:?}", o.effective);
    }
    let o = run(&format!("'recv 48B', {send}"), "", &ud);
    assert_eq!(o.find("note.packets-dropped").unwrap().text(), "0");
    assert!(run(ONE, "", &[]).effective.iter().any(|e| e.name == "qp.timeout"));
}

#[test]
fn a_receive_queue_that_ran_dry_is_a_warning() {
    let o = run("'post send 8B', 'ring', 'compute 1ms', 'recv 8B', 'wait'", "", &[]);
    let text = note(&o, "receives-too-few").expect("it ran dry");
    assert!(text.contains("receive queue of host 1 QP 16 ran dry: "), "{text}");
    assert!(text.contains("sooner") && !text.contains("depth"), "steps post them: {text}");
    let o = run("'recv 8B', 'post send 8B', 'ring', 'wait'", "", &[]);
    assert_eq!(o.find("note.receives-too-few").unwrap().text(), "0");
}

/// Receives without room, or in memory that may not be written, end a queue pair of every service
/// (protocol.md §3.1), and what comes then is told as that.
#[test]
fn a_receive_that_fails_ends_queue_pairs_of_uc_and_ud() {
    for (ty, recv, status) in [
        ("UC", "recv 64B x3", "IBV_WC_LOC_LEN_ERR"),
        ("UD", "recv 100B x3", "IBV_WC_LOC_LEN_ERR"),
        ("UC", "recv 640B x3 read-only", "IBV_WC_LOC_PROT_ERR"),
        ("UD", "recv 640B x3 read-only", "IBV_WC_LOC_PROT_ERR"),
    ] {
        let set = [&*format!("qp.type={ty}")];
        let sends = "'post send 100B', 'post send 8B', 'ring', 'wait'";
        let o = run(&format!("'{recv}', {sends}"), "", &set);
        let peer = o.qps.iter().find(|q| q.host == 1).expect("it has one");
        let d = peer.death.as_ref().unwrap_or_else(|| panic!("{ty}: {recv}: it lives"));
        assert_eq!((&*peer.state, d.cause, &*d.field), ("ERR", "local-error", status), "{ty}");
        assert!(d.verdict.contains("a receive failed, which moves it to ERR: "), "{}", d.verdict);
        let texts: Vec<&str> =
            o.notes.iter().filter(|n| n.name == "packets-dropped").map(|n| &*n.text).collect();
        assert!(texts.iter().any(|t| t.contains(status)), "{ty}: {texts:?}");
        assert!(texts.iter().any(|t| t.contains("QP in ERR (rx_wrong_state)")), "{ty}: {texts:?}");
        let number = |name: &str| o.find(&format!("host1.counter.{name}")).unwrap().text();
        assert_eq!((number("rx_wrong_state"), number("rx_dropped")), ("1".into(), "1".into()));
        // With room for it nothing happens, and the sender never hears of either.
        lives(&o);
        let o = run(&format!("'recv 140B x3', {sends}"), "", &set);
        assert!(o.qps.iter().all(|q| q.death.is_none() && q.state == "RTS"), "{ty}");
    }
    // A remote key that does not fit is no receive: UC drops the packet in silence (§2.7).
    let o = run("'post write 8B rkey=wrong', 'ring', 'wait'", "", &["qp.type=UC"]);
    assert!(o.qps.iter().all(|q| q.state == "RTS"), "{:?}", o.qps);
    assert_eq!(o.find("host1.counter.rx_unused").unwrap().text(), "1");
}

/// A queue pair that has no peer has no paragraph about one.
#[test]
fn a_datagram_queue_pair_that_dies_names_no_peer() {
    let o = run("'post send 8B', 'ring', 'state err', 'wait'", "", &["qp.type=UD"]);
    let d = died(&o, "moved-to-err", "");
    assert!(!d.other_side.iter().any(|l| l.contains("does not exist")), "{:?}", d.other_side);
}

/// The depth that the warning names is enough, and it is named only where all was delivered.
#[test]
fn a_depth_that_is_enough_is_named() {
    let burst = |depth: u32| {
        let text = format!(
            "title = 't'\nprofile = 'generic-400g'\n[qp]\nrq_depth = {depth}\n[[program]]\n\
             kind = 'message-rate'\nop = 'send'\nsize = '64B'\niterations = 50\nwarmup = 0\n"
        );
        let points = expanded(&text, &[]).expect("it is sound");
        Simulator.run(&points[0].point).expect("it runs")
    };
    let o = burst(1);
    let text = note(&o, "receives-too-few").expect("it ran dry");
    assert!(text.contains("; 50 are enough however fast they come"), "{text}");
    assert_eq!(burst(50).find("note.receives-too-few").unwrap().text(), "0");
    let o = run("'post send 8B', 'ring', 'wait'", "", &[]);
    assert!(!note(&o, "receives-too-few").expect("it has none").contains("enough"));
}

#[test]
fn a_stall_without_a_receive_is_no_death() {
    let o = run("'post send 8B', 'ring', 'wait'", "", &[]);
    let d = died(&o, "no-receive", "rnr_retry");
    assert!(!d.died && d.status.is_empty());
    assert_eq!(o.exit.kind, ExitKind::NoProgress);
    assert!(d.verdict.contains("`rnr_retry` 7"), "{}", d.verdict);
    says(&d.own_side, "it dies never: rnr_retry 7 is without limit");
    assert!(o.exit.reason.contains("QP 16 [no-receive]: the peer has no"), "{}", o.exit.reason);
}

#[test]
fn refusals_local_errors_and_retirement_are_told_apart() {
    let d = died(
        &run("'post write 8B pd=1 anyway', 'ring', 'wait'", "", &[]),
        "local-error",
        "IBV_WC_LOC_PROT_ERR",
    );
    assert_eq!(d.timeouts, 0);
    let o = run("'post fetch-add 8B remote=4B anyway', 'ring', 'wait'", "", &[]);
    died(&o, "refused", "invalid request");
    let peer = o.qps.iter().find(|q| q.host == 1).and_then(|q| q.death.as_ref()).unwrap();
    assert_eq!((peer.cause, &*peer.field), ("refused-peer", "invalid request"));
    // The program is done with it: nothing to explain. With work under way there is.
    lives(&run(&format!("{ONE}, 'state err'"), "", &[]));
    died(&run("'post write 8B', 'ring', 'state err', 'wait'", "", &[]), "moved-to-err", "");
    let by_fault = fault("'qp-error'\nhost = 0\nqp = 16\nafter = '100us'");
    let d = died(&run(ONE, &by_fault, &[]), "device", "f");
    assert!(d.verdict.contains("(fault `f`)"), "{}", d.verdict);
    let damaged = fault("'bad-doorbell'\nhost = 0\nnth = 1");
    died(&run("'post write 8B x2', 'ring', 'wait'", &damaged, &[]), "device", "f");
}

#[test]
fn a_completion_queue_that_overran_is_the_cause() {
    let writes = "'post write 8B x5', 'ring', 'compute 1ms', 'poll 16'";
    died(&run(writes, "", &["qp.cq_depth=4"]), "cq-overrun", "cq_depth");
    lives(&run(writes, "", &["qp.cq_depth=5"]));
}

// ---- stalls ----------------------------------------------------------------------------------

#[test]
fn entries_without_a_doorbell_and_entries_without_a_completion() {
    let d = died(&run("'post write 8B x4', 'wait'", "", &[]), "never-rung", "doorbell");
    assert!(d.verdict.contains("entries posted but never doorbelled: 4"), "{}", d.verdict);
    let silent = "'post write 8B x4 unsignaled', 'ring', 'wait'";
    died(&run(silent, "", &[]), "nothing-signalled", "signaled");
    lives(&run("'post write 8B x4', 'ring', 'wait'", "", &[]));
}

#[test]
fn a_queue_pair_in_sqd_waits_for_its_program() {
    let steps = "'state sqd', 'post write 8B', 'ring', 'wait'";
    died(&run(steps, "", &[]), "draining", "SQD");
    lives(&run("'state sqd', 'state rts', 'post write 8B', 'ring', 'wait'", "", &[]));
}

#[test]
fn without_a_timer_a_loss_is_a_stall_that_says_so() {
    let lost = fault("'drop'\nsource = 0\nnth = 1");
    let o = run(ONE, &lost, &["qp.timeout=0"]);
    let d = died(&o, "requests-lost", "f");
    assert!(!d.died && d.verdict.contains("`timeout` 0 is no timer"), "{}", d.verdict);
    lives(&run(ONE, &lost, &["qp.timeout=1"]));
}

#[test]
fn one_that_is_still_trying_at_the_limit_says_when_it_will_die() {
    let o = run(ONE, &fault("'drop'\nsource = 0"), &["qp.timeout=14"]);
    let d = died(&o, "requests-lost", "f");
    assert!(!d.died);
    says(&d.own_side, "without an answer it dies 536.9 ms after the first transmission");
}

// ---- rows and names --------------------------------------------------------------------------

#[test]
fn rows_are_found_by_name_and_slips_are_not() {
    let o = run(ONE, &fault("'drop'\nsource = 0"), &[]);
    let text = |name: &str| o.find(name).map(|f| f.text());
    assert_eq!(text("qp.0.16.state").as_deref(), Some("ERR"));
    assert_eq!(text("qp.0.16.death.status").as_deref(), Some("IBV_WC_RETRY_EXC_ERR"));
    assert_eq!(text("qp.0.16.death.timeouts").as_deref(), Some("8"));
    assert_eq!(text("qp.0.16.counter.local_ack_timeout_err").as_deref(), Some("7"));
    assert_eq!(text("qp.0.16.counter.out_of_buffer").as_deref(), Some("0"), "known, and none");
    assert_eq!(text("host0.counter.local_ack_timeout_err").as_deref(), Some("7"));
    assert_eq!(text("host1.counter.local_ack_timeout_err").as_deref(), Some("0"));
    for slip in [
        "qp.0.17.state",
        "qp.3.16.state",
        "qp.0.16.stat",
        "qp.0.16.counter.timeouts",
        "qp.0.16.death.timeout",
        "qp.1.16.death.timeouts",
        "host0.counter.timeouts",
        "host3.counter.rx_dropped",
    ] {
        assert_eq!(text(slip), None, "{slip}");
    }
    for name in o.names() {
        assert!(o.find(&name).is_some(), "{name}");
    }
}

#[test]
fn the_table_of_settings_is_the_one_rule() {
    let o = run(ONE, &fault("'drop'\nsource = 0"), &["qp.retry_cnt=2", "qp.timeout=1"]);
    let d = died(&o, "requests-lost", "f");
    let codes: Vec<(u8, u8)> = d.other_settings.iter().map(|s| (s.timeout, s.retry_cnt)).collect();
    let expect = [1, 2, 3].map(|t| [1, 2, 3, 7].map(|n| (t, n))).concat();
    assert_eq!(codes, expect);
    for s in &d.other_settings {
        let t = 4_096_000_u64 << s.timeout;
        let dies = t * (u64::from(s.retry_cnt) + 1);
        assert_eq!(s.dies_after_ps, Some((dies, dies)), "{s:?}");
    }
}

#[test]
fn the_check_that_refused_is_named_on_both_sides() {
    for (steps, set, refused, detail) in [
        ("'post write 8B rkey=wrong'", "", "no region has this remote key", ""),
        ("'post write 8B remote=end+1B'", "", "the range is not inside the region", ""),
        ("'post read 8B rkey=foreign'", "", "of another protection domain", ""),
        ("'post write 8B'", "program.0.peer_access=['remote-read']", "lacks the right", ""),
        ("'post write 8B'", "qp.access=['remote-read']", "not in the QP's access flags", ""),
        ("'post fetch-add remote=4B anyway'", "", "not a multiple of 8", ""),
        ("'recv 8B', 'post send 9B'", "", "the receive is shorter", ""),
        (
            "'recv 8B read-only', 'post send 8B'",
            "",
            "memory of the receive cannot be used",
            ": the region lacks",
        ),
    ] {
        let set: Vec<&str> = [set].into_iter().filter(|s| !s.is_empty()).collect();
        let o = run(&format!("{steps}, 'ring', 'wait'"), "", &set);
        for (host, cause) in [(0, "refused"), (1, "refused-peer")] {
            let there = o.qps.iter().find(|q| q.host == host && q.qpn == 16);
            let d = there.and_then(|q| q.death.as_ref()).expect(steps);
            assert_eq!(d.cause, cause, "{steps}");
            let says = d.verdict.contains(refused) && d.verdict.contains(detail);
            assert!(says, "{steps}: {}", d.verdict);
        }
    }
    let o = run("'post write 8B lkey=wrong', 'ring', 'wait'", "", &[]);
    let text = &death(&o).expect("it died").verdict;
    assert!(text.ends_with("no region has this key (of a local buffer)"), "{text}");
}

#[test]
fn the_last_retry_of_a_nak_is_no_slow_peer() {
    let two = "'post write 8B x2', 'ring', 'wait'";
    let d = died(
        &run(two, &fault("'reorder'\nnth = 1"), &["qp.retry_cnt=0"]),
        "out-of-order",
        "retry_cnt",
    );
    assert_eq!((d.timeouts, d.verdict.contains("no timer had expired")), (0, true), "{d:?}");
    lives(&run(two, &fault("'reorder'\nnth = 1"), &["qp.retry_cnt=1"]));
    // A packet that is lost is the cause of the NAK.
    let lost = fault("'drop'\nclass = 'write'\nnth = 1");
    died(&run(two, &lost, &["qp.retry_cnt=0"]), "requests-lost", "f");
}

/// One packet is lost, and the peer tells of it again and again before what is sent anew can have
/// come: the loss is no cause of death, the repetition is.
#[test]
fn repeated_naks_are_named_and_warned_of() {
    let large = "'post write 256KiB', 'ring', 'wait'";
    let lost = fault("'drop'\nclass = 'write'\nnth = 1");
    let with = |repeat: &str, fault: &str| {
        run(large, fault, &[&format!("rc.nak_repeat={repeat}"), "topology.length=20m"])
    };
    let o = with("100ns", &lost);
    let d = died(&o, "nak-repeat", "rc.nak_repeat");
    assert_eq!((d.timeouts, d.retries), (0, 7), "{d:?}");
    assert!(d.verdict.contains("after 100 ns while a gap stands"), "{}", d.verdict);
    assert!(d.verdict.contains("1 request packet lost"), "{}", d.verdict);
    says(&d.remedy, "raise rc.nak_repeat above the round trip");
    let warned = |o: &Outcome| o.notes.iter().any(|n| n.name == "nak-repeat-short");
    assert!(warned(&o) && warned(&with("100ns", "")), "also before anything is lost");
    for repeat in ["0ns", "20us"] {
        let o = with(repeat, &lost);
        lives(&o);
        assert!(!warned(&o), "{repeat}");
    }
    // Losses that use up all tries are losses, whoever tells of them.
    let again = fault("'drop'\nclass = 'write'\nchance = '99/100'\nafter = '1us'");
    let o = with("20us", &again);
    died(&o, "requests-lost", "f");
}

#[test]
fn one_that_waits_is_told_of_the_damage() {
    let damage = fault("'corrupt'\nclass = 'response'");
    let o = run("'post read 8B', 'ring', 'wait'", &damage, &["qp.timeout=0"]);
    assert!(!died(&o, "corrupted", "icrc").died);
}

#[test]
fn a_reset_of_this_side_alone_is_told_from_a_slow_peer() {
    let again = "'state reset', 'state init', 'state rtr', 'state rts', 'post write 8B', 'ring', \
                 'wait'";
    let o = run(&format!("'post write 8B x3', 'ring', 'wait', {again}"), "", &[]);
    let d = died(&o, "wrong-connection-data", "psn");
    assert!(d.verdict.contains("this side was reset and connected again"), "{}", d.verdict);
}
