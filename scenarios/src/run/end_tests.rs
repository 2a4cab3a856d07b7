//! How runs end: with everything done, in a stall that has a name, or at the limit.

use super::simulate_tests::{number, outcome};
use super::{ExitKind, Runner, Simulator};
use crate::format::Memory;
use crate::testing::expanded;

/// A peer that looks every microsecond at what comes every 2 s.
const POLLS: &str = "[[program]]\nkind = 'latency'\nop = 'send'\nsize = '64B'\niterations = 2\n\
                     warmup = 0\npeer_poll_interval = '1us'\ninterval = '1200ms'\n";

#[test]
fn a_poll_that_lets_time_pass_is_no_spin() {
    let o = outcome(POLLS, &["run.limit=10s"]);
    assert_eq!((o.exit.kind, o.exit.reason.as_str()), (ExitKind::Ok, ""));
    assert_eq!(number(&o, "received"), 2.0);
}

/// The same at the sender: a message each 1.2 s, and a look at the queue each microsecond.
#[test]
fn a_sender_that_polls_between_its_messages_is_no_stall() {
    let rate = "[[program]]\nkind = 'message-rate'\nop = 'write'\nsize = '64B'\niterations = 2\n\
                warmup = 0\npoll_interval = '1us'\ninterval = '1200ms'\n";
    let o = outcome(rate, &["run.limit=10s"]);
    assert_eq!((o.exit.kind, o.exit.reason.as_str()), (ExitKind::Ok, ""));
    assert_eq!(number(&o, "messages"), 2.0);
}

/// Polls of a sender whose completion never comes: it has nothing to do by itself any more.
#[test]
fn a_sender_that_polls_in_vain_is_a_stall() {
    let rate = "[qp]\ntimeout = 0\n[[program]]\nkind = 'message-rate'\nop = 'write'\n\
                size = '64B'\niterations = 2\nwarmup = 0\npoll_interval = '1us'\n\
                interval = '2us'\n[[fault]]\nid = 'f0'\nkind = 'drop'\nclass = 'write'\nnth = 2\n";
    let o = outcome(rate, &["run.limit=60s"]);
    assert_eq!(o.exit.kind, ExitKind::NoProgress, "{}", o.exit.reason);
    assert!(!o.exit.reason.contains("time limit"), "{}", o.exit.reason);
}

/// The ring is missing: the peer polls for a message that nobody will ever send.
#[test]
fn polls_of_what_can_never_come_are_a_stall() {
    let program = "[[program]]\nkind = 'script'\nsteps = ['post send 8B', 'wait']\n\
                   peer_poll_interval = '1us'\n";
    let o = outcome(program, &["run.limit=60s"]);
    assert_eq!(o.exit.kind, ExitKind::NoProgress, "{}", o.exit.reason);
    assert!(!o.exit.reason.contains("time limit"), "{}", o.exit.reason);
}

/// A ring is missing: nothing happens any more, and the deadline of the set-up is no event.
#[test]
fn a_limit_behind_the_end_of_a_stalled_run_is_not_its_reason() {
    let script = "[[program]]\nkind = 'script'\nsteps = ['post send 8B', 'wait']\n";
    let reasons: Vec<String> = ["100ms", "999ms", "2s"]
        .map(|limit| outcome(script, &[&format!("run.limit={limit}")]).exit.reason)
        .into();
    assert!(!reasons[0].contains("time limit"), "{}", reasons[0]);
    assert_eq!((&reasons[0], &reasons[1]), (&reasons[2], &reasons[2]));
}

#[test]
fn a_limit_behind_the_end_of_a_finished_run_is_not_reached() {
    let script = "[[program]]\nkind = 'script'\nsteps = ['post write 8B', 'ring', 'wait']\n";
    for limit in ["100ms", "900ms", "2s"] {
        let o = outcome(script, &[&format!("run.limit={limit}")]);
        assert_eq!((o.exit.kind, o.exit.reason.as_str()), (ExitKind::Ok, ""), "{limit}");
    }
    // A deadline that still counts is one.
    let script = "[[program]]\nkind = 'script'\nsteps = ['compute 800ms', 'fence']\n";
    let o = outcome(script, &["run.limit=700ms"]);
    assert!(o.exit.reason.contains("time limit"), "{}", o.exit.reason);
}

/// Who resends without limit to nobody does so until either limit: the reason names the queue pair,
/// and advises nobody to raise the limit. Before that many retries it may still end.
#[test]
fn what_resends_without_limit_is_named_at_both_limits() {
    let program = "[qp]\ntimeout = 4\nretry_cnt = 7\n[[program]]\nkind = 'latency'\n\
                   size = '64B'\niterations = 2\n[[fault]]\nid = 'f0'\nkind = 'drop'\n\
                   class = 'write'\nbefore = '10s'\n";
    let reason = |set: &[&str]| {
        let o = outcome(program, &[&["rc.retry_seven=infinite"], set].concat());
        assert_eq!(o.exit.kind, ExitKind::NoProgress, "{}", o.exit.reason);
        o.exit.reason
    };
    for (limit, soon, advice) in [
        ("run.limit=50ms", "run.limit=200us", ": raise run.limit above that, or ask for less"),
        ("run.events=4000", "run.events=40", ": raise run.events, or ask for less"),
    ] {
        let endless = reason(&[limit]);
        assert!(endless.contains("\nhost 0 QP 16 has resent "), "{endless}");
        assert!(!endless.contains("raise run."), "{endless}");
        let early = reason(&[soon]);
        assert!(early.contains(advice) && !early.contains("has resent"), "{early}");
    }
}

/// A message that has come in part holds the only receive. The sender, which was told that there
/// is none for the next one, goes on when its timer has run.
#[test]
fn a_message_that_holds_its_receive_is_resent() {
    let program = "[qp]\nrq_depth = 1\n[[program]]\nkind = 'message-rate'\nop = 'send'\n\
                   size = '4097B'\niterations = 2000\n[[fault]]\nid = 'f0'\nkind = 'reorder'\n\
                   chance = '1/50'\n";
    let o = outcome(program, &[]);
    assert_eq!((o.exit.kind, o.exit.reason.as_str()), (ExitKind::Ok, ""));
    assert_eq!(number(&o, "messages"), 2000.0);
}

#[test]
fn a_script_that_cannot_go_on_names_the_step() {
    let text = "title = 't'\nprofile = 'generic-400g'\n[[program]]\nkind = 'script'\n\
                steps = ['post write 8B', 'ring', 'drain']\n";
    let points = expanded(text, &[]).unwrap_or_else(|e| panic!("{e}: {:?}", e.remedy()));
    let error = Simulator.run(&points[0].point).unwrap_err().to_string();
    assert!(error.starts_with("`program.0.steps.2`: "), "{error}");
}

/// The completion lies in host memory, the payload is on its way to the GPU: a reader who goes by
/// the completion alone reads too early. It is a hazard with a name; nothing came wrong.
#[test]
fn a_completion_that_overtakes_its_payload_is_named() {
    let program = "[[program]]\nkind = 'produce'\npayload = 'data'\nop = 'send'\nsize = '64B'\n\
                   iterations = 5\n";
    let o = outcome(program, &["program.0.peer_memory=gpu"]);
    let figures = ["data_errors", "received", "note.data-errors"].map(|name| number(&o, name));
    assert_eq!(figures, [0.0, 5.0, 0.0]);
    let early = number(&o, "counter.messages_early");
    assert!(early > 0.0 && early <= number(&o, "note.completion-before-payload"), "{early}");
    let note = o.notes.iter().find(|n| n.name == "completion-before-payload").expect("a note");
    assert!(note.text.contains("READ its last byte back"), "{}", note.text);
    let o = outcome(program, &["program.0.peer_memory=host"]);
    let names = ["data_errors", "counter.messages_early", "note.completion-before-payload"];
    assert_eq!(names.map(|name| number(&o, name)), [0.0; 3]);
}

/// The answer of a READ goes to the GPU, the completion that tells of it to host memory.
#[test]
fn the_completion_of_a_read_overtakes_as_well() {
    let program = "[[program]]\nkind = 'message-rate'\nop = 'read'\nsize = '4KiB'\n\
                   iterations = 20\nwarmup = 0\n";
    let early = |set: &str| number(&outcome(program, &[set]), "note.completion-before-payload");
    assert!(early("program.0.memory=gpu") > 0.0);
    assert_eq!(early("program.0.memory=host"), 0.0);
}

/// A core that reads what is on its way to a GPU: the file is refused, so it is changed behind the
/// check.
#[test]
fn wrong_bytes_of_an_exchange_are_a_violation() {
    let text = "title = 't'\nprofile = 'generic-400g'\n[topology]\nkind = 'switch'\nhosts = 3\n\
                [[program]]\nkind = 'all-to-all'\nhosts = 3\nsize = '64KiB'\niterations = 3\n\
                payload = 'data'\nall_to_all = { route = 'direct' }\n";
    let points = expanded(text, &[]).unwrap_or_else(|e| panic!("{e}: {:?}", e.remedy()));
    let mut point = points[0].point.clone();
    assert_eq!(Simulator.run(&point).expect("a run").exit.kind, ExitKind::Ok);
    point.scenario.program[0].memory = Memory::Gpu;
    let o = Simulator.run(&point).expect("a run");
    assert!(number(&o, "exchanges_wrong") > 0.0);
    assert_eq!(o.exit.kind, ExitKind::Violation);
    let first = o.exit.reason.lines().next().unwrap();
    assert!(
        first.starts_with("program 0 (rank 0, ") && first.contains(" of its 3 exchanges have ")
    );
}

#[test]
fn aggregators_that_no_group_has_are_refused() {
    let text = |sums| {
        format!(
            "title = 't'\nprofile = 'generic-400g'\n[topology]\nkind = 'leaf-spine'\n\
             leaves = 2\nhosts_per_leaf = 2\nspines = 1\n[[program]]\nkind = 'aggregate'\n\
             hosts = 4\nsize = '4KiB'\naggregate = {{ plan = 'two-hop', aggregators = {sums} }}\n"
        )
    };
    let run = |sums| {
        let points = expanded(&text(sums), &[]).unwrap_or_else(|e| panic!("{e}"));
        Simulator.run(&points[0].point)
    };
    assert!(run(2).is_ok());
    let error = run(3).unwrap_err().to_string();
    assert!(error.contains("3 aggregators, and no group has more than 2 hosts"), "{error}");
}

/// However seldom a producer signals, the slots that its next round needs come back.
#[test]
fn a_producer_finds_room_for_each_round() {
    for (slots, round) in [(1, 1), (4, 1), (4, 3), (4, 4), (7, 3), (33, 33)] {
        for every in 1..=slots {
            let program = format!(
                "[[program]]\nkind = 'produce'\nop = 'write'\nsize = '64B'\nslots = {slots}\n\
                 per_round = {round}\nsignal_every = {every}\niterations = {}\n",
                round * 4
            );
            let o = outcome(&program, &[]);
            let at = (slots, round, every);
            assert_eq!(o.exit.kind, ExitKind::Ok, "{at:?}: {}", o.exit.reason);
            assert_eq!(number(&o, "messages"), f64::from(round * 4), "{at:?}");
        }
    }
}

/// A buffer that is changed before the NIC has read it.
#[test]
fn data_that_came_wrong_are_a_warning() {
    let program = "[[program]]\nkind = 'produce'\npayload = 'data'\nop = 'write-imm'\n\
                   size = '64B'\ninline = '0B'\niterations = 50\nmemory = 'gpu'\n\
                   initiator = 'gpu'\ninterval = '10us'\nfence = false\n";
    let o = outcome(program, &["gpu.store_lag=4us"]);
    assert!(number(&o, "data_errors") > 0.0);
    assert_eq!(number(&o, "note.data-errors"), number(&o, "data_errors"));
}

/// The first good packet that comes in RTR is told to the program, once; in RTS it is no news.
#[test]
fn a_packet_in_rtr_establishes_the_connection() {
    let script = |rest: &str| {
        format!(
            "[[program]]\nkind = 'script'\nsteps = ['state reset peer', 'state init peer', \
             'state rtr peer', {rest}'post write 8B x2', 'ring', 'wait']\n"
        )
    };
    for (rest, told) in [("", 1.0), ("'state rts peer', ", 0.0)] {
        let o = outcome(&script(rest), &[]);
        assert_eq!(o.exit.kind, ExitKind::Ok, "{}", o.exit.reason);
        assert_eq!(number(&o, "counter.wc_success"), 2.0);
        assert_eq!(number(&o, "counter.async_comm_est"), told, "{rest}");
    }
}

/// Messages of a queue pair that has died were never sent: nothing came wrong.
#[test]
fn messages_that_were_never_sent_are_no_data_errors() {
    let run = |ty: &str, op: &str, fault: &str| {
        let program = format!(
            "[qp]\ntype = '{ty}'\ntimeout = 8\nretry_cnt = 1\n[[program]]\nkind = 'produce'\n\
             payload = 'data'\nop = '{op}'\nsize = '64B'\niterations = 200\n{fault}"
        );
        let o = outcome(&program, &[]);
        let names = ["messages", "received", "data_errors", "note.data-errors"];
        let counters = ["messages_missing", "messages_lost", "messages_unsent"];
        let counters = counters.map(|name| number(&o, &format!("counter.{name}")));
        (names.map(|name| number(&o, name)), counters)
    };
    let dead =
        "[[fault]]\nid = 'dead'\nkind = 'link-down'\nlink = 'host0-host1'\nafter = '110us'\n";
    for op in ["send", "write-imm"] {
        let ([messages, received, wrong, note], counters) = run("RC", op, dead);
        assert!(messages > 10.0 && messages < 199.0, "{messages}");
        assert_eq!((wrong, note), (0.0, 0.0), "{op}");
        assert_eq!(counters, [0.0, 0.0, 200.0 - received.max(messages)], "{op}");
    }
    // A WRITE does not tell: only those count as come whose sender knows it.
    let ([messages, _, wrong, _], counters) = run("RC", "write", dead);
    assert_eq!((wrong, counters), (0.0, [0.0, 0.0, 200.0 - messages]));
    // Lost on the way, and nobody was told.
    let one = "[[fault]]\nid = 'one'\nkind = 'drop'\nclass = 'send'\nnth = 5\n";
    let ([messages, received, wrong, _], counters) = run("UC", "send", one);
    assert_eq!((messages, received, wrong), (200.0, 199.0, 0.0));
    assert_eq!(counters, [0.0, 1.0, 0.0]);
    assert_eq!(run("RC", "send", "").1, [0.0; 3]);
}

/// Replies and requests are checked, whatever way they take.
#[test]
fn requests_and_replies_carry_what_was_sent() {
    let of = |ty: &str, payload: &str, more: &str| {
        let program = format!(
            "[qp]\ntype = '{ty}'\n[[program]]\nkind = 'request-reply'\npayload = '{payload}'\n\
             op = 'send'\nsize = '64B'\nreply_size = '1000B'\niterations = 300\nqps = 3\n\
             window = 4\n{more}"
        );
        outcome(&program, &[])
    };
    let run = |ty: &str, more: &str| of(ty, "data", more);
    for ty in ["RC", "UC", "UD"] {
        for more in [
            "",
            "inline = '0B'",
            "[[fault]]\nid = 'c'\nkind = 'reorder'\nmaybe = true\n\
                     chance = '1/20'\n",
        ] {
            let o = run(ty, if ty == "RC" { more } else { "" });
            assert_eq!((o.exit.kind, o.exit.reason.as_str()), (ExitKind::Ok, ""), "{ty} {more}");
        }
    }
    // What comes twice is no wrong byte, and nobody waits for ever because of it.
    let twice = "[[fault]]\nid = 'd'\nkind = 'duplicate'\nchance = '1/4'\n";
    for (ty, payload) in [("UC", "data"), ("UD", "data"), ("UC", "virtual"), ("RC", "data")] {
        for every in ["", "signal_every = 16\n"] {
            let o = of(ty, payload, &format!("{every}{twice}")).exit;
            assert_eq!((o.kind, o.reason.as_str()), (ExitKind::Ok, ""), "{ty} {payload} {every}");
        }
    }
    // Stores that no fence orders before the ring come after the NIC has read.
    let late = "inline = '0B'\nmemory = 'gpu'\ninitiator = 'gpu'\nfence = false\n";
    let o = run("RC", &format!("{late}[settings]\n'gpu.store_lag' = '4us'\n"));
    assert_eq!(o.exit.kind, ExitKind::Violation, "{}", o.exit.reason);
    assert!(o.exit.reason.contains(" messages have wrong bytes"), "{}", o.exit.reason);
    let o = run("RC", &late.replace("false", "true"));
    assert_eq!((o.exit.kind, o.exit.reason.as_str()), (ExitKind::Ok, ""));
}

/// The peer's queue pair is reset before its program has polled: nobody tells it of the messages.
#[test]
fn completions_that_a_reset_took_are_named() {
    let run = |after: &str| {
        let script = format!(
            "[[program]]\nkind = 'script'\nsteps = ['post send 8B x4', 'ring', 'wait', \
             'state reset peer', 'compute 1us']\n[[fault]]\nid = 'np'\nkind = 'cq-not-polled'\n\
             host = 1\nafter = '{after}'\nbefore = '220us'\nmaybe = true\n"
        );
        outcome(&script, &[])
    };
    let o = run("100us");
    assert_eq!(o.exit.kind, ExitKind::NoProgress);
    assert_eq!(number(&o, "note.completions-lost"), 4.0);
    let took = "host 1 QP 16 was reset at ";
    assert!(o.exit.reason.starts_with(took), "{}", o.exit.reason);
    assert!(o.exit.reason.contains("took completions of 4 receives with it"), "{}", o.exit.reason);
    let o = run("210us");
    assert_eq!((o.exit.kind, number(&o, "note.completions-lost")), (ExitKind::Ok, 0.0));
}

/// A program that looks at times of its own: for nothing, when it did something last is told, and
/// nobody is sent to the limit.
#[test]
fn looks_in_vain_are_a_stall_at_the_limit() {
    let program = |interval: &str| {
        format!(
            "[[program]]\nkind = 'script'\nsteps = ['post send 8B', 'wait']\n\
             peer_poll_interval = '{interval}'\n"
        )
    };
    for interval in ["1us", "100us"] {
        let o = outcome(&program(interval), &["run.limit=20ms"]);
        let reason = &o.exit.reason;
        assert_eq!(o.exit.kind, ExitKind::NoProgress, "{reason}");
        assert!(!reason.contains("run.limit"), "{reason}");
        assert!(reason.contains("no doorbell announced them"), "{reason}");
        let looks = reason.lines().find(|l| l.contains("times and found nothing")).expect(reason);
        let since = looks.split(" since ").nth(1).unwrap();
        let since: f64 = since.split(' ').next().unwrap().parse().unwrap();
        assert!(looks.contains(" us: it has looked ") && since < 300.0, "{looks}");
    }
}

/// What raising the limit brings: the time at which something happens again.
#[test]
fn a_run_that_is_cut_off_says_when_it_goes_on() {
    let script = |steps: &str, more: &str| {
        format!(
            "[qp]\nmin_rnr_timer = 0\ntimeout = 14\n[[program]]\nkind = 'script'\n\
             steps = [{steps}]\n{more}"
        )
    };
    let send = "'post send 8B', 'ring', 'wait'";
    let lost = "[[fault]]\nid = 'f'\nkind = 'drop'\nclass = 'send'\nnth = 1\n";
    let looks = &format!("peer_poll_interval = '1us'\n{lost}");
    let stalled = "[[fault]]\nid = 'f'\nkind = 'program-stall'\nhost = 1\nrank = 1\n\
                   after = '0ns'\nbefore = '50ms'\n";
    let rnr = "[[fault]]\nid = 'f'\nkind = 'rnr'\nhost = 1\nafter = '0ns'\nbefore = '300ms'\n";
    for (steps, more, says, cure) in [
        (send, lost, "when the timer of host 0 QP 16 expires", "run.limit=68ms"),
        (send, rnr, "when a planned fault begins or ends", "run.limit=1s"),
        (send, stalled, "before 50 ms, when program 1 goes on", "run.limit=51ms"),
        (send, looks, "when the timer of host 0 QP 16 expires", "run.limit=68ms"),
        ("'compute 30ms', 'fence'", "", "before 30.", "run.limit=31ms"),
    ] {
        let text = script(steps, more);
        let o = outcome(&text, &["run.limit=20ms"]);
        assert_eq!(o.exit.kind, ExitKind::NoProgress, "{says}");
        assert!(o.exit.reason.contains(says), "{says}: {}", o.exit.reason);
        assert!(o.exit.reason.contains(": raise run.limit above that"), "{}", o.exit.reason);
        let o = outcome(&text, &[cure]);
        assert_eq!((o.exit.kind, o.exit.reason.as_str()), (ExitKind::Ok, ""), "{says}");
    }
}

/// A receive at the peer's queue pair in RESET is a mistake of the script's step, and what is
/// advised cures it.
#[test]
fn a_receive_at_a_peer_in_reset_says_which_state_it_needs() {
    let run = |steps: &str| {
        let text = format!(
            "title = 't'\nprofile = 'generic-400g'\n[[program]]\nkind = 'script'\n\
             receives = 'none'\nsteps = [{steps}]\n"
        );
        let points = expanded(&text, &[]).unwrap_or_else(|e| panic!("{e}: {:?}", e.remedy()));
        Simulator.run(&points[0].point)
    };
    let error = run("'state reset peer', 'recv 64B', 'compute 1us'").unwrap_err().to_string();
    let at = "`program.0.steps.1`: the peer's QP is RESET; posting a receive needs INIT";
    assert!(error.starts_with(at), "{error}");
    let o = run("'state reset peer', 'state init peer', 'recv 64B', 'compute 1us'").unwrap();
    assert_eq!((o.exit.kind, o.exit.reason.as_str()), (ExitKind::Ok, ""));
}

/// A receive queue that ran dry and is full again keeps nobody.
#[test]
fn receives_that_are_there_again_are_no_reason() {
    let script = "[qp]\nrq_depth = 1\n[[program]]\nkind = 'script'\n\
                  steps = ['post send 8B x3', 'ring', 'wait', 'post send 8B', 'wait']\n";
    let o = outcome(script, &[]);
    assert!(number(&o, "counter.rnr_nak_sent") > 0.0);
    assert!(o.exit.reason.contains("no doorbell announced them"), "{}", o.exit.reason);
    assert!(!o.exit.reason.contains("no receive is posted"), "{}", o.exit.reason);
    let none = outcome(&script.replace("kind", "receives = 'none'\nkind"), &["run.limit=1s"]);
    assert!(none.exit.reason.contains("no receive"), "{}", none.exit.reason);
}

/// What an unreliable service loses, repeats and brings late is no error of data, and no fence
/// would have helped.
#[test]
fn what_unreliable_services_do_to_packets_is_no_data_error() {
    let run = |ty: &str, op: &str, size: &str, fault: &str| {
        let late = if fault == "delay" { "delay = '30us'\n" } else { "" };
        let text = format!(
            "[qp]\ntype = '{ty}'\n[[program]]\nkind = 'produce'\npayload = 'data'\nop = '{op}'\n\
             size = '{size}'\niterations = 40\nslots = 40\n[[fault]]\nid = 'f'\nkind = '{fault}'\n\
             nth = 5\n{late}"
        );
        let o = outcome(&text, &[]);
        let at = format!("{ty} {op} {size} {fault}");
        assert_eq!(o.exit.kind, ExitKind::Ok, "{at}: {}", o.exit.reason);
        assert_eq!(number(&o, "data_errors"), 0.0, "{at}");
        assert!(o.notes.iter().all(|n| n.name != "data-errors"), "{at}");
        let counters = ["messages_lost", "messages_repeated", "messages_incomplete"];
        counters.map(|name| number(&o, &format!("counter.{name}")))
    };
    for (ty, op) in [
        ("UC", "send"),
        ("UC", "send-imm"),
        ("UC", "write-imm"),
        ("UD", "send"),
        ("UD", "send-imm"),
    ] {
        // One packet is one message: it is gone, or there twice, or there late.
        assert_eq!(run(ty, op, "64B", "drop"), [1.0, 0.0, 0.0], "{ty} {op}");
        assert_eq!(run(ty, op, "64B", "duplicate"), [0.0, 1.0, 0.0], "{ty} {op}");
        for fault in ["delay", "reorder"] {
            assert_eq!(run(ty, op, "64B", fault), [0.0; 3], "{ty} {op} {fault}");
        }
    }
    // Of three packets of 4 KiB the second one of a message is gone: the first one lies there.
    for (op, incomplete) in [("write", 1.0), ("write-imm", 0.0), ("send", 0.0)] {
        assert_eq!(run("UC", op, "12KiB", "drop"), [1.0, 0.0, incomplete], "{op}");
    }
    for op in ["send", "write-imm", "write"] {
        for fault in ["duplicate", "delay", "reorder"] {
            run("UC", op, "12KiB", fault);
        }
    }
}

/// Old bytes that go out in place of new ones are found on an unreliable service as well.
#[test]
fn a_missing_fence_is_found_on_an_unreliable_service() {
    for op in ["send", "send-imm", "write-imm"] {
        let text = format!(
            "[qp]\ntype = 'UC'\n[[program]]\nkind = 'produce'\npayload = 'data'\nop = '{op}'\n\
             size = '64B'\ninline = '0B'\niterations = 50\nmemory = 'gpu'\n\
             initiator = 'gpu'\ninterval = '10us'\nfence = false\n"
        );
        let o = outcome(&text, &["gpu.store_lag=4us"]);
        assert!(number(&o, "data_errors") > 0.0, "{op}");
        let note = o.notes.iter().find(|n| n.name == "data-errors").expect("a note");
        assert!(note.text.contains("fence before ringing"), "{op}: {}", note.text);
        let o = outcome(&text.replace("fence = false", "fence = true"), &["gpu.store_lag=4us"]);
        assert_eq!(number(&o, "data_errors"), 0.0, "{op}");
    }
}

/// Whoever does not come to count, since its host is dead or its queue pair in ERR, and whoever
/// does not look at the bytes: what was lost is told all the same.
#[test]
fn lost_messages_are_counted_behind_a_dead_receiver() {
    let dead = "kind = 'peer-dead'\nhost = 1\nafter = '150us'\n";
    let error = "kind = 'qp-error'\nhost = 1\nqp = 16\nafter = '150us'\n";
    let drop = "kind = 'drop'\nnth = 5\n";
    for kind in ["kind = 'produce'\npayload = 'data'", "kind = 'produce'", "kind = 'bandwidth'"] {
        for fault in [dead, error, drop] {
            let o = outcome(
                &format!(
                    "[qp]\ntype = 'UC'\n[[program]]\n{kind}\nop = 'send'\nsize = '64B'\n\
                     iterations = 400\ninterval = '1us'\n[[fault]]\nid = 'f'\n{fault}"
                ),
                &[],
            );
            let at = format!("{kind} {fault}");
            let [sent, came, lost] =
                ["messages", "received", "counter.messages_lost"].map(|name| number(&o, name));
            assert_eq!((sent, lost), (400.0, 400.0 - came), "{at}");
            assert!(lost >= 1.0 && (came == 399.0 || lost > 100.0), "{at}: {lost}");
            let note = o.notes.iter().find(|n| n.name == "lost-packets").expect("a note");
            assert!(note.text.starts_with(&format!("{lost} messages that")), "{}", note.text);
        }
    }
}
