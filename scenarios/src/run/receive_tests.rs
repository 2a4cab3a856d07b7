//! Receive queues of scenarios: who shares them, what they cost, what is said about them.

use doorbell_core::units::Span;
use proptest::prelude::*;

use super::programs::{Clock, Role, plan};
use super::simulate_tests::{number, outcome};
use super::{ExitKind, Outcome, Runner, Simulator};
use crate::testing::expanded;

const SENDS: &str = "[topology]\nkind = 'switch'\nhosts = 5\n[[program]]\nname = 'a'\n\
                     kind = 'message-rate'\nop = 'send'\nsize = '64B'\niterations = 50\n\
                     host = 1\nhosts = 3\nthreads = 2\npeer = 0\n\
                     [[program]]\nname = 'b'\nkind = 'latency'\nop = 'send'\nsize = '100B'\n\
                     iterations = 10\nhost = 4\npeer = 0\n";

fn text(body: &str) -> String {
    format!("title = 't'\nprofile = 'generic-400g'\n[run]\nnoise = 'off'\n{body}")
}

/// Program and host of each sender, then of each peer.
fn who(set: &[&str]) -> [Vec<(usize, u32)>; 2] {
    let points = expanded(&text(SENDS), set).unwrap_or_else(|e| panic!("{e}"));
    let all = plan(&points[0].point, Span::from_ms(1), Clock::Common).unwrap();
    assert!((0..).zip(&all).all(|(rank, p)| p.placed.rank == rank));
    [Role::Sender, Role::Peer].map(|role| {
        let of_role = all.iter().map(|p| p.placed).filter(|p| p.role == role);
        of_role.map(|p| (p.program, p.host)).collect()
    })
}

#[test]
fn one_core_serves_all_that_share_a_queue() {
    let senders = vec![(0, 1), (0, 1), (0, 2), (0, 2), (0, 3), (0, 3), (1, 4)];
    assert_eq!(who(&["srq.depth=8"]), [senders.clone(), vec![(0, 0)]]);
    let own = ["srq.depth=8", "srq.share=program"];
    assert_eq!(who(&own), [senders.clone(), vec![(0, 0), (1, 0)]]);
    let [there, peers] = who(&[]);
    assert_eq!((there, peers), (senders, [vec![(0, 0); 6], vec![(1, 0)]].concat()));
    let [_, peers] = who(&["program.0.share_qp=true"]);
    assert_eq!(peers, [(0, 0), (0, 0), (0, 0), (1, 0)], "one for each host");
}

#[test]
fn pools_of_every_kind_deliver_everything() {
    let cases: [(&[&str], f64, f64); 4] = [
        (&[], 7.0 * 512.0, 6.0 * 512.0 * 64.0 + 512.0 * 100.0),
        (&["srq.depth=8"], 8.0, 800.0),
        (&["srq.depth=8", "srq.limit=4", "srq.repost=limit"], 8.0, 800.0),
        (&["srq.depth=8", "srq.share=program"], 16.0, 8.0 * 164.0),
    ];
    for (set, posted, bytes) in cases {
        let o = outcome(SENDS, set);
        assert_eq!(number(&o, "received"), 310.0, "{set:?}");
        assert_eq!(number(&o, "receives_posted"), posted, "{set:?}");
        assert_eq!(number(&o, "host0.receive_memory"), bytes, "{set:?}");
        let shared = set == ["srq.depth=8"] || set.len() == 3;
        let waste = if shared { 300.0 * 36.0 } else { 0.0 };
        assert_eq!(number(&o, "receive_waste"), waste, "{set:?}");
        let events = o.find("srq_limit_events");
        assert_eq!(events.is_some(), !set.is_empty());
        let seen = events.map_or(0.0, |e| e.scalar().unwrap().number());
        assert_eq!(seen > 0.0, set.len() == 3, "{seen} events with {set:?}");
    }
}

#[test]
fn a_write_with_immediate_takes_a_buffer_and_fills_nothing_of_it() {
    let imm = "[srq]\ndepth = 16\n[[program]]\nkind = 'latency'\nop = 'write-imm'\nsize = '48B'\n\
               iterations = 20\n";
    assert_eq!(number(&outcome(imm, &[]), "receive_waste"), 20.0 * 48.0);
    assert_eq!(number(&outcome(imm, &["program.0.op=send"]), "receive_waste"), 0.0);
}

#[test]
fn ping_pong_and_checked_production_have_a_queue_to_themselves() {
    let pong = "[srq]\ndepth = 16\nshare = 'program'\n[[program]]\nkind = 'ping-pong'\n\
                op = 'send'\niterations = 20\n";
    let o = outcome(pong, &[]);
    assert_eq!((number(&o, "messages"), number(&o, "receives_posted")), (20.0, 16.0));
    assert_eq!(number(&o, "srq_low"), 7.0, "8 at each side");
    let produce = "[srq]\ndepth = 16\nshare = 'program'\n[[program]]\nkind = 'produce'\n\
                   op = 'send'\nsize = '64B'\niterations = 40\npayload = 'data'\n\
                   interval = '2us'\n";
    let o = outcome(produce, &[]);
    assert_eq!((number(&o, "received"), number(&o, "data_errors")), (40.0, 0.0));
    assert_eq!(number(&o, "receives_posted"), 16.0);
}

#[test]
fn a_slow_receiver_returns_its_buffers_late() {
    let low = |set: &[&str]| {
        let one = "[srq]\ndepth = 64\n[[program]]\nkind = 'message-rate'\nop = 'send'\n\
                   size = '64B'\niterations = 200\ninterval = '1us'\nrepost_batch = 1\n";
        number(&outcome(one, set), "srq_low")
    };
    let fast = low(&[]);
    assert!(fast >= 60.0, "{fast}");
    // 30 messages between two polls; three more while each buffer is worked on.
    let polled = low(&["program.0.peer_poll_interval=30us"]);
    assert!((31.0..=35.0).contains(&polled), "{polled}");
    let worked = low(&["program.0.repost_time=3us"]);
    assert_eq!(worked, 0.0, "a core that needs 3 us for each microsecond's message");
    let batched = low(&["program.0.repost_batch=32"]);
    assert!((30.0..=33.0).contains(&batched), "{batched}");
}

#[test]
fn threads_start_at_moments_of_their_own() {
    let run = |set: &[&str]| outcome(SENDS, set);
    let spread = ["program.0.start_spread=1ms"];
    let [together, apart, again] = [run(&[]), run(&spread), run(&spread)];
    assert_eq!(apart.trace_hash, again.trace_hash);
    assert_ne!(apart.trace_hash, together.trace_hash);
    let ms = |o: &Outcome| number(o, "a.duration") / 1e9;
    assert!(ms(&together) < 0.2, "{}", ms(&together));
    assert!(ms(&apart) > 0.3 && ms(&apart) < 1.2, "{}", ms(&apart));
}

#[test]
fn the_room_in_a_completion_queue_is_said() {
    let rate = "[qp]\nsq_depth = 32\ncq_depth = 64\n[[program]]\nkind = 'message-rate'\nqps = 4\n\
                iterations = 400\nsignal_every = 2\n";
    let notes = |set: &[&str]| {
        let o = outcome(rate, set);
        [number(&o, "note.cq-room"), number(&o, "note.cq-too-small")]
    };
    assert_eq!(notes(&[]), [1.0, 0.0], "4 x 16 = 64");
    let points = expanded(&text(rate), &["qp.cq_depth=63"]).unwrap();
    let o = Simulator.run(&points[0].point).unwrap();
    let note = o.notes.iter().find(|n| n.name == "cq-too-small").unwrap();
    assert!(note.text.contains("4 queue pairs x 16 signalled") && note.text.contains("64 > 63"));
}

#[test]
fn receives_count_in_the_rule_of_the_receivers_queue() {
    let rate = "[qp]\nsq_depth = 32\nrq_depth = 20\ncq_depth = 80\n[[program]]\n\
                kind = 'message-rate'\nop = 'send'\nsize = '8B'\nqps = 4\niterations = 400\n\
                signal_every = 16\n";
    let notes = |set: &[&str]| {
        let o = outcome(rate, set);
        [number(&o, "note.cq-room"), number(&o, "note.cq-too-small")]
    };
    assert_eq!(notes(&[]), [2.0, 0.0], "4 x 20 = 80 receives, 4 x 2 signalled sends");
    assert_eq!(notes(&["qp.cq_depth=79"]), [1.0, 1.0]);
    assert_eq!(notes(&["qp.cq_depth=79", "program.0.iterations=76"]), [2.0, 0.0], "19 of each");
    assert_eq!(notes(&["qp.cq_depth=79", "srq.depth=79"]), [2.0, 0.0]);
    let o = outcome(rate, &["qp.cq_depth=79"]);
    let note = o.notes.iter().find(|n| n.name == "cq-too-small").unwrap();
    assert!(note.text.contains("at the receiver: 4 queue pairs x 20 receives"), "{}", note.text);
}

/// A device whose slots come back when a work request is done: a post sees what is done when it is
/// made, and not only what was when its step of the program began.
#[test]
fn slots_and_receives_that_came_back_while_the_core_computed_are_seen() {
    let script = |reclaim: &str, qp: &str, steps: &str| {
        let text = format!(
            "[settings]\n'rc.slot_reclaim' = '{reclaim}'\n[qp]\nsq_depth = 16\nrq_depth = 16\n\
             {qp}[[program]]\nkind = 'script'\nsteps = [{steps}]\n"
        );
        outcome(&text, &[])
    };
    let twice = "'post write 64B x16', 'ring', 'compute 20us', 'post write 64B x16', 'ring'";
    let taken = |reclaim| number(&script(reclaim, "", twice), "step.3.count");
    assert_eq!((taken("on-completion"), taken("on-poll")), (16.0, 0.0));
    // As many as the completion queue has entries, and one ring more: it overruns.
    let over = script("on-completion", "cq_depth = 16\n", &format!("{twice}, 'compute 20us'"));
    assert_eq!(number(&over, "counter.async_cq_err"), 1.0);
    // Receives of the program itself, taken by another one while it computes.
    let text = "[qp]\nrq_depth = 16\n[[program]]\nname = 'a'\nkind = 'script'\n\
                receives = 'none'\n\
                steps = ['recv 64B x16 own', 'recv 64B x1 own', 'compute 1us']\n";
    let o = outcome(text, &[]);
    assert_eq!((number(&o, "a.step.0.count"), number(&o, "a.step.1.count")), (16.0, 0.0));
}

#[test]
fn what_was_rung_before_a_destroy_is_executed_and_its_completions_are_lost() {
    let script =
        |steps: &str| outcome(&format!("[[program]]\nkind = 'script'\nsteps = [{steps}]\n"), &[]);
    let o = script("'post write 64KiB x10', 'ring', 'compute 100us', 'destroy'");
    let both = [number(&o, "wqes_executed"), number(&o, "note.completions-lost")];
    assert_eq!(both, [10.0, 10.0]);
    assert_eq!(number(&o, "wqes_posted"), 10.0, "also by a queue pair that is gone");
    assert_eq!(number(&o, "delivered_bytes"), 655_360.0);
    // At once: they are the NIC's, and it has done none of them.
    let o = script("'post write 64KiB x10', 'ring', 'destroy', 'destroy'");
    let both = [number(&o, "wqes_executed"), number(&o, "note.completions-lost")];
    assert_eq!(both, [0.0, 10.0]);
    assert_eq!(number(&o, "wqes_posted"), 10.0);
    assert_eq!(o.find("step.3.result").unwrap().text(), "bad-handle");
}

#[test]
fn a_receive_in_a_wrong_state_is_a_mistake_unless_it_is_meant() {
    let run = |step: &str| {
        let steps = format!("steps = ['state reset', '{step}']");
        let body = format!("[[program]]\nkind = 'script'\n{steps}\n");
        Simulator.run(&expanded(&text(&body), &[]).unwrap()[0].point)
    };
    let e = run("recv 64B own").unwrap_err().to_string();
    assert!(e.contains("posting a receive needs INIT"), "{e}");
    let o = run("recv 64B own anyway").unwrap();
    assert_eq!(o.find("step.1.result").unwrap().text(), "bad-state");
}

/// What a service does not have is a mistake of the file; with `anyway` the verbs answer.
#[test]
fn issue_004_what_a_service_does_not_have_can_be_tried() {
    for (service, post) in [
        ("UC", "read 64B"),
        ("UC", "fetch-add"),
        ("UD", "write 64B"),
        ("UD", "send 4097B"),
        ("RC", "write 2147483649B"),
    ] {
        let body = |word: &str| {
            text(&format!(
                "[qp]\ntype = '{service}'\n[[program]]\nkind = 'script'\nreceives = 'none'\n\
                 steps = ['post {post}{word}', 'ring']\n"
            ))
        };
        assert!(expanded(&body(""), &[]).is_err(), "{service} {post}");
        let all =
            expanded(&body(" anyway"), &[]).unwrap_or_else(|e| panic!("{service} {post}: {e}"));
        let o = Simulator.run(&all[0].point).unwrap_or_else(|e| panic!("{service} {post}: {e}"));
        let said = o.find("step.0.result").unwrap().text();
        assert_ne!(said, "ok", "{service} {post}");
        println!("{service} {post}: {said}");
        assert_eq!(number(&o, "counter.tx_packets"), 0.0, "{service} {post}");
    }
}

/// The memory that receives point to is the peer's, with the rights that it has.
#[test]
fn receives_have_the_rights_of_the_peer() {
    let program = "[[program]]\nkind = 'latency'\nop = 'send'\nsize = '4KiB'\niterations = 4\n\
                   inline = '0B'\n";
    let rights = |list: &str| outcome(program, &[&format!("program.0.peer_access={list}")]);
    assert_eq!(number(&rights("[\"local-write\"]"), "messages"), 4.0);
    assert_eq!(number(&rights("[\"local-write\"]"), "page_faults"), 0.0);
    assert!(number(&rights("[\"local-write\", \"on-demand\"]"), "page_faults") > 0.0);
    let o = rights("[\"remote-read\"]");
    assert_eq!(o.exit.kind, ExitKind::Violation);
    assert!(o.exit.reason.contains("remote operation"), "{}", o.exit.reason);
}

/// Senders on a host each, with programs `p0`, `p1`, ..., to one host more.
fn senders(hosts: u32, program: &str) -> String {
    let one = |h: u32| {
        format!(
            "[[program]]\nname = 'p{h}'\nkind = 'message-rate'\nop = 'send'\nhost = {h}\n\
             peer = {hosts}\n{program}"
        )
    };
    let all: String = (0..hosts).map(one).collect();
    format!("[topology]\nkind = 'switch'\nhosts = {}\n{all}", hosts + 1)
}

/// Equal senders to one SRQ end together: before receives went to messages as they come, the one
/// with the lowest number was served alone until it had ended.
#[test]
fn equal_senders_to_a_shared_queue_end_together() {
    for (hosts, depth, fetch) in [(2, 64, 4), (3, 512, 1), (8, 64, 4), (8, 256, 3), (5, 256, 16)] {
        let text = senders(hosts, "size = '256B'\nwindow = 32\niterations = 400\n");
        let o = outcome(
            &text,
            &[&format!("srq.depth={depth}"), &format!("nic.rq_fetch={fetch}"), "srq.limit=0"],
        );
        let ends: Vec<f64> = (0..hosts).map(|h| number(&o, &format!("p{h}.duration"))).collect();
        let (first, last) = (
            ends.iter().copied().fold(f64::MAX, f64::min),
            ends.iter().copied().fold(0.0, f64::max),
        );
        // Time of a packet of each sender, and of two fetches.
        let each = last / f64::from(400 * hosts);
        let some = each * f64::from(hosts + 2 * fetch) + 1e6;
        assert!(last - first <= some, "{hosts} {depth} {fetch}: {ends:?}, {some}");
    }
}

/// SENDs in both directions at once, each way as fast as the wire: the reads of receives stand
/// behind payload in the host's link, and nobody waits for them.
#[test]
fn sends_in_both_directions_have_the_line_each() {
    let ways = |size: u64, op: &str, both: bool| {
        let one = |host: u32| {
            format!(
                "[[program]]\nname = 'p{host}'\nkind = 'message-rate'\nop = '{op}'\n\
                 host = {host}\npeer = {}\nsize = '{size}B'\nwindow = 32\niterations = 1500\n",
                1 - host
            )
        };
        outcome(&if both { one(0) + &one(1) } else { one(0) }, &[])
    };
    for (size, op) in [(65_536, "send"), (65_536, "write-imm"), (16_384, "send"), (8192, "send")] {
        let o = ways(size, op, true);
        // 4096 bytes and 58 of headers, 4 of ICRC and 20 around a frame; an ACK of 82 bytes for
        // each message of the other direction.
        let packets = size / 4096;
        let wire = (size + packets * (14 + 20 + 8 + 12 + 4 + 24) + 90) * 8;
        let bound = 400e9 / wire as f64;
        for p in ["p0", "p1"] {
            let rate = number(&o, &format!("{p}.message_rate"));
            assert!((0.97..=1.005).contains(&(rate / bound)), "{size} {op} {p}: {rate} {bound}");
        }
        assert_eq!(number(&o, "note.receive-fetch"), 0.0);
    }
    // Where the posting core is the limit, both directions have what one has alone.
    for size in [4096, 64] {
        let (both, alone) = (ways(size, "send", true), ways(size, "send", false));
        let ratio = number(&both, "p0.message_rate") / number(&alone, "p0.message_rate");
        assert!((0.85..=1.02).contains(&ratio), "{size}: {ratio}");
    }
    // Without reading ahead a message in four waits for a read: less than nine tenths of the line.
    let slow = |set: &[&str]| {
        let text = "[[program]]\nkind = 'message-rate'\nop = 'send'\nsize = '16KiB'\n\
                    window = 32\niterations = 1500\n";
        number(&outcome(text, set), "message_rate")
    };
    assert!(slow(&["nic.rq_ahead=0"]) < 0.9 * slow(&[]));
}

/// Where the fetch of receives holds, the report names it and nothing else.
#[test]
fn the_fetch_of_receives_is_named_where_it_is_the_limit() {
    const FETCH: &str = "nic receive WQE fetch (busiest queue)";
    let one = "[[program]]\nkind = 'message-rate'\nop = 'send'\nsize = '64B'\nbatch = 16\n\
               window = 64\niterations = 4000\n";
    let shared = senders(4, "size = '4KiB'\niterations = 800\n");
    for (text, host, set, says) in [
        (one, 1, "nic.rq_fetch=4", "the receive queue of host 1 QP 16 to be read"),
        (&*shared, 4, "srq.depth=512", "SRQ 0 of host 4 to be read"),
    ] {
        let o = outcome(text, &[set, "nic.rq_ahead=0"]);
        assert_eq!(o.limiting, Some(format!("host{host}.{FETCH}")), "{:?}", o.notes);
        let notes = o.notes.iter().filter(|n| n.name == "receive-fetch");
        let texts: Vec<&str> = notes.map(|n| &*n.text).collect();
        assert!(texts.len() == 1 && texts[0].contains(says), "{texts:?}");
        assert!(texts[0].contains("or raise `nic.rq_ahead`"), "{texts:?}");
        assert_eq!(number(&o, "note.send-queue-full"), 0.0);
        // What the note advises gains, and the note goes.
        let advised: &[&str] = if set == "srq.depth=512" { &["nic.rq_ahead=0"] } else { &[] };
        let better = outcome(text, advised);
        let gain = number(&better, "message_rate") / number(&o, "message_rate");
        assert!(gain > 1.4, "{gain}");
        assert_eq!(number(&better, "note.receive-fetch"), 0.0, "{:?}", better.limiting);
    }
    // A deeper send queue, which was advised before, gains nothing.
    let set = ["srq.depth=512", "nic.rq_ahead=0"];
    let deep = outcome(&shared, &[&set[..], &["qp.sq_depth=1024"]].concat());
    let gain = number(&deep, "message_rate") / number(&outcome(&shared, &set), "message_rate");
    assert!((0.95..1.05).contains(&gain), "{gain}");
}

/// Reads that are under way all the time cost nothing where messages wait for something else: one
/// queue pair at a pace of its own.
#[test]
fn a_fetch_of_receives_that_costs_nothing_is_not_named() {
    let text = |interval: &str| {
        format!(
            "[[program]]\nkind = 'message-rate'\nop = 'send'\nsize = '64B'\n\
             iterations = 2000\ninterval = '{interval}'\n"
        )
    };
    // Each message finds a read under way or ended: of one receive, which takes 0.46 us.
    let set = ["nic.rq_fetch=1", "nic.rq_ahead=1"];
    let o = outcome(&text("500ns"), &set);
    let ports = o.resources.iter().find(|r| r.name.contains("receive WQE fetch")).expect("one");
    assert!(ports.busy.as_ps() * 4 < ports.of.as_ps(), "{ports:?}");
    assert_eq!(number(&o, "note.receive-fetch"), 0.0);
    let more = outcome(&text("500ns"), &["nic.rq_fetch=16", "nic.rq_ahead=16"]);
    let gain = number(&more, "message_rate") / number(&o, "message_rate");
    assert!((0.99..1.01).contains(&gain), "{gain}");
    // Twice as fast, it costs.
    let o = outcome(&text("250ns"), &set);
    assert!(number(&o, "note.receive-fetch") > 0.0, "{:?}", o.limiting);
    let more = outcome(&text("250ns"), &["nic.rq_fetch=16", "nic.rq_ahead=16"]);
    assert!(number(&more, "message_rate") > 1.3 * number(&o, "message_rate"));
}

/// What waits for a receive is in the receive buffer: a small one is full, and pauses its link.
#[test]
fn packets_that_wait_for_a_receive_take_room() {
    let text = senders(4, "size = '1KiB'\nwindow = 32\niterations = 300\n");
    let run = |buffer: &str| {
        let room = format!("nic.rx_buffer={buffer}");
        outcome(&text, &["srq.depth=256", "topology.switch=pfc", &room])
    };
    let waits = |o: &Outcome| number(o, "counter.rx_buffer_waits");
    // Of payload on its way to memory alone it never holds so much.
    let (small, large) = (run("32KiB"), run("1MiB"));
    assert!(waits(&small) > 0.0 && waits(&large) == 0.0, "{} {}", waits(&small), waits(&large));
    let pauses = |o: &Outcome| number(o, "host_pause_frames");
    assert!(pauses(&small) > 0.0 && pauses(&large) == 0.0, "{}", pauses(&small));
    for o in [&small, &large] {
        assert_eq!(number(o, "received"), 1200.0);
        assert_eq!(number(o, "counter.retransmitted_packets"), 0.0);
    }
}

/// Refusals name what was out at once, where that is less than all that were taken: with as many
/// receives the run goes without.
#[test]
fn receives_that_hold_what_was_out_at_once_are_named() {
    let text = senders(
        4,
        "size = '256B'\nwindow = 32\niterations = 500\ninterval = '2us'\n\
         peer_poll_interval = '20us'\n",
    );
    let run = |depth: u32| outcome(&text, &[&format!("srq.depth={depth}"), "qp.min_rnr_timer=1"]);
    let o = run(16);
    let text = &o.notes.iter().find(|n| n.name == "receives-too-few").expect("it ran dry").text;
    assert!(text.contains("; 144 hold what was out at once here, 16 taken"), "{text}");
    assert!(text.contains("; 2000 are enough however fast they come"), "{text}");
    assert_eq!(number(&run(144), "counter.rnr_nak_sent"), 0.0);
}

/// A network, a buffer, a depth, and what each of two hosts asks of the other.
fn small_buffers() -> impl Strategy<Value = (String, Vec<String>)> {
    let network = prop_oneof![
        Just(&[][..]),
        Just(&["topology.kind=switch", "topology.hosts=2", "topology.switch=pfc"][..]),
        Just(&["topology.kind=switch", "topology.hosts=2", "link=ib"][..]),
    ];
    let op = || prop_oneof![Just("send"), Just("read"), Just("write-imm"), Just("fetch-add")];
    let program = || (op(), 1..5_u32, prop_oneof![Just(8_u32), 100..9000_u32], 1..40_u32);
    let programs = proptest::collection::vec((0..2_u32, program()), 1..5);
    let machine = (
        prop_oneof![Just(8192_u32), 8192..40_000_u32],
        1..6_u32,
        proptest::option::of(32..300_u32),
        prop_oneof![Just("go-back-n"), Just("selective-repeat")],
    );
    (network, programs, machine).prop_map(|(network, programs, (buffer, fetch, srq, recovery))| {
        let mut text = String::new();
        for (i, (host, (op, qps, size, iterations))) in (0..).zip(programs) {
            let size = if op == "fetch-add" { 8 } else { size };
            let (peer, iterations) = (1 - host, iterations.max(qps));
            text += &format!(
                "[[program]]\nname = 'p{i}'\nkind = 'message-rate'\nop = '{op}'\nqps = {qps}\n\
                 host = {host}\npeer = {peer}\nsize = '{size}B'\niterations = {iterations}\n"
            );
        }
        let mut set = vec![
            format!("nic.rx_buffer={buffer}B"),
            format!("nic.rq_fetch={fetch}"),
            format!("rc.recovery={recovery}"),
        ];
        set.extend(srq.map(|n| format!("srq.depth={n}")));
        set.extend(network.iter().map(|s| (*s).to_owned()));
        (text, set)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// What waits in a receive buffer, for a receive or for an ATOMIC, never waits for a packet
    /// behind it: every run ends, whatever the two hosts ask of each other.
    #[test]
    fn runs_end_however_small_the_receive_buffer_is((text, set) in small_buffers()) {
        // Nobody shares receives where none are taken.
        let taken = text.contains("'send'") || text.contains("'write-imm'");
        let sound = |s: &&str| taken || !s.starts_with("srq");
        let set: Vec<&str> = set.iter().map(|s| &**s).filter(sound).collect();
        let o = outcome(&text, &set);
        prop_assert_eq!(o.exit.kind, ExitKind::Ok, "{}", o.exit.reason);
        prop_assert_eq!(number(&o, "qps_in_error"), 0.0);
    }
}
