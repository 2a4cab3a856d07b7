//! What a report advises, beside runs that follow it and runs that must not get it.

use super::simulate_tests::{number, outcome};
use super::{Outcome, Runner, Simulator};

#[track_caller]
fn note<'a>(o: &'a Outcome, name: &str) -> &'a str {
    let note = o.notes.iter().find(|n| n.name == name);
    &note.unwrap_or_else(|| panic!("no {name}: {:?}", o.notes)).text
}

/// The number behind these words.
#[track_caller]
fn after(text: &str, words: &str) -> u64 {
    let (_, rest) = text.split_once(words).unwrap_or_else(|| panic!("{words:?} not in {text}"));
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().unwrap_or_else(|_| panic!("no number behind {words:?}: {text}"))
}

fn incast(messages: u32, rest: &str, set: &[&str]) -> Outcome {
    let programs: String = (1..=8)
        .map(|host| {
            format!(
                "[[program]]\nname = 's{host}'\nkind = 'bandwidth'\nhost = {host}\npeer = 0\n\
                 op = 'write'\nsize = '64KiB'\nwindow = 4\niterations = {messages}\n"
            )
        })
        .collect();
    let text = format!(
        "host = 'ideal'\n[topology]\nkind = 'switch'\nhosts = 9\nswitch = 'tail-drop'\n\
         rate = '100Gbps'\n[qp]\nsq_depth = 64\n{programs}{rest}"
    );
    outcome(&text, set)
}

/// Eight send 64 KiB x 4 each to one: a queue of 171 us. A timer of 33 us expires before the first
/// answer and fills the buffer with what has come already.
#[test]
fn a_timer_below_the_queue_is_named_ahead_of_the_drops_that_it_makes() {
    let o = incast(32, "", &["qp.timeout=3"]);
    assert!(number(&o, "counter.tail_drop") > 0.0 && number(&o, "qps_in_error") > 0.0);
    assert!(number(&o, "note.timer-short") > 100.0, "{:?}", o.notes);
    assert!(note(&o, "full-queues").contains("raise `qp.timeout` first"), "{:?}", o.notes);
    assert!(!note(&o, "full-queues").contains("Raise `topology.buffer`"));
    let dead: Vec<_> = o.qps.iter().filter_map(|q| q.death.as_ref()).collect();
    assert!(!dead.is_empty());
    for d in dead {
        assert_eq!((d.cause, &*d.field), ("timer-short", "timeout"), "{d:#?}");
        let code = after(&d.remedy[0], "at least: timeout ");
        assert!((5..=8).contains(&code), "{:?}", d.remedy);
        assert!(!d.remedy[0].contains("retry_cnt"), "{:?}", d.remedy);
    }
    // Followed, the advice is not disproved: nothing is sent twice and nothing lost.
    let code = after(note(&o, "timer-short"), "raise `qp.timeout` to ");
    let o = incast(32, "", &[&format!("qp.timeout={code}")]);
    assert_eq!(number(&o, "counter.retransmitted_packets"), 0.0, "timeout {code}");
    assert_eq!((number(&o, "note.timer-short"), number(&o, "qps_in_error")), (0.0, 0.0));
}

/// The same buffer is too small for what is in flight, and the timer is longer than its queue.
#[test]
fn true_drops_are_not_blamed_on_the_timer() {
    let o = incast(32, "", &["qp.timeout=8", "topology.buffer=1000KB"]);
    assert!(number(&o, "counter.tail_drop") > 200.0);
    assert_eq!(number(&o, "note.timer-short"), 0.0, "{:?}", o.notes);
    assert!(note(&o, "full-queues").contains("Raise `topology.buffer`"), "{:?}", o.notes);
    // Nor are lost answers, after which the peer gets again what it had.
    let acks = "[qp]\ntimeout = 8\n[[program]]\nkind = 'latency'\niterations = 20\n\
                [[fault]]\nid = 'f'\nkind = 'drop'\nclass = 'ack'\nbudget = 3\n";
    let o = outcome(acks, &[]);
    assert!(number(&o, "counter.duplicate_request") > 0.0);
    assert_eq!(number(&o, "note.timer-short"), 0.0, "{:?}", o.notes);
}

/// A queue that still grows when the timer expires: the first late answer is no bound, and is not
/// said to be one.
#[test]
fn what_would_have_lasted_is_more_than_the_first_late_answer_of_a_growing_queue() {
    let text = "[topology]\nkind = 'switch'\nhosts = 3\nrate = '100Gbps'\npropagation = '255ns'\n\
                [qp]\ntimeout = 1\nretry_cnt = 0\nsq_depth = 256\n\
                [[program]]\nkind = 'latency'\nname = 'test'\nhost = 1\npeer = 0\nop = 'write'\n\
                size = '16KiB'\niterations = 200\n\
                [[program]]\nkind = 'bandwidth'\nname = 'other'\nhost = 2\npeer = 0\n\
                op = 'write'\nsize = '4KiB'\nwindow = 208\niterations = 8000\n";
    let run = |code: u64| outcome(text, &[&format!("qp.timeout={code}"), "run.noise=off"]);
    let o = run(1);
    let d = o.qps.iter().find_map(|q| q.death.as_ref()).expect("it dies");
    assert_eq!(d.cause, "peer-slow", "{d:#?}");
    assert!(!d.remedy[0].contains("sure") && !d.remedy[0].contains("retry_cnt"), "{:?}", d.remedy);
    assert!(d.remedy[0].contains("at least: timeout 2 ("), "{:?}", d.remedy);
    assert!(d.remedy[0].contains("more if the queue on the way still grew"), "{:?}", d.remedy);
    assert_eq!(number(&run(2), "qps_in_error"), 1.0, "it did");
    assert_eq!(number(&run(5), "qps_in_error"), 0.0, "131 us are more than 852 kB take");
}

/// Storms of timers that are too short, of many sizes: what is said to be sure lives, and what is
/// not says why, names no retries, and is followed to a run that lives unless the
/// queue still grew.
#[test]
fn advice_in_a_storm_is_a_longer_timer_and_never_more_retries() {
    let mut died = 0;
    for (code, retries, buffer, lives) in [
        (3, 7, "8MB", true),
        (4, 7, "2MB", true),
        (4, 3, "4MB", true),
        (2, 3, "64MB", true),
        // The queue still grew when they died.
        (3, 0, "64MB", false),
        (1, 1, "8MB", false),
    ] {
        let set = [format!("qp.retry_cnt={retries}"), format!("topology.buffer={buffer}")];
        let run = |code: u64| {
            let timeout = format!("qp.timeout={code}");
            incast(32, "", &[&timeout, &set[0], &set[1]])
        };
        let o = run(code);
        for d in o.qps.iter().filter_map(|q| q.death.as_ref()) {
            died += 1;
            let remedy = &d.remedy[0];
            assert!(!remedy.contains("retry_cnt"), "{remedy}");
            assert!(remedy.contains("more if the queue on the way still grew"), "{remedy}");
            let slower = remedy.contains("an expiry before that sends again makes them slower");
            assert_eq!(slower, retries > 0, "an expiry that ends it sends nothing: {remedy}");
            let least = after(remedy, "at least: timeout ");
            assert!(least > code, "{remedy}");
            let said = after(note(&o, "timer-short"), "raise `qp.timeout` to ");
            assert_eq!(least, said, "the note and the paragraph say the same: {remedy}");
        }
        let said = after(note(&o, "timer-short"), "raise `qp.timeout` to ");
        assert_eq!(number(&run(said), "qps_in_error") == 0.0, lives, "{code}: {said}");
    }
    assert!(died > 8, "{died}");
}

/// A point of a shipped file with other settings.
fn shipped(name: &str, variant: &str, set: &[&str]) -> Outcome {
    let text = crate::library::scenario(name).expect(name);
    let points = crate::testing::expanded(text, set).expect("it is sound");
    let one = points.iter().find(|p| p.point.variant.as_deref() == Some(variant));
    Simulator.run(&one.expect(variant).point).expect("it runs")
}

/// Whoever follows what is said to be sure lives.
#[test]
fn what_is_said_to_be_sure_of_the_shipped_storms_is_so() {
    let b04 = "b04_timeout_storm_or_standstill";
    let a04 = "case_a04_timeout_1_under_congestion";
    let standstill = ["topology.buffer=64MB", "qp.retry_cnt=0"];
    for (name, variant, set, lives) in [
        (b04, "deep-3", &[][..], true),
        (b04, "deep-3", &["qp.timeout=4"], true),
        // Nobody sent anything again: the queue grew on when they had died.
        (b04, "deep-3", &standstill, false),
        (b04, "shallow-3", &["qp.retry_cnt=1"], false),
        (a04, "retry-0", &["program.1.window=26"], false),
        (a04, "retry-0", &["program.1.window=205"], false),
        (a04, "retry-7", &["program.1.window=208"], false),
    ] {
        let o = shipped(name, variant, set);
        let dies = |key: &str, value: u64| {
            let more = format!("{key}={value}");
            let set: Vec<&str> = set.iter().copied().chain([more.as_str()]).collect();
            number(&shipped(name, variant, &set), "qps_in_error")
        };
        let mut followed = Vec::new();
        for d in o.qps.iter().filter_map(|q| q.death.as_ref()) {
            let remedy = d.remedy.first().map_or("", String::as_str);
            let sure = remedy.contains("the least that is sure to last");
            let grows = remedy.contains("more if the queue on the way still grew");
            assert!(!(sure && grows) && (grows || !remedy.contains("at least")), "{remedy}");
            for key in ["timeout", "retry_cnt"] {
                let Some((_, rest)) = remedy.split_once(&format!(" {key} ")) else { continue };
                let code: u64 = rest.split(' ').next().unwrap().parse().expect(remedy);
                assert!(sure || key == "timeout", "{remedy}");
                if (sure || lives) && !followed.contains(&(key, code)) {
                    followed.push((key, code));
                    assert_eq!(dies(&format!("qp.{key}"), code), 0.0, "{variant}: {remedy}");
                }
            }
        }
        assert!(!lives || !followed.is_empty(), "{name} {variant} {set:?}");
    }
}

/// An answer of another flow is none of this one, however long it takes; what shows that a timer is
/// too early is an answer that came.
#[test]
fn a_lost_answer_beside_slow_answers_of_others_is_no_short_timer() {
    let far = |link: &str| {
        format!(
            "[topology]\nkind = 'explicit'\nhosts = 3\nswitches = 1\n[[topology.link]]\n\
             between = 'host0-switch0'\n[[topology.link]]\nbetween = 'host1-switch0'\n\
             [[topology.link]]\nbetween = 'host2-switch0'\npropagation = '20us'\n\
             [qp]\ntimeout = 3\n\
             [[program]]\nname = 'near'\nkind = 'latency'\nhost = 0\npeer = 1\nop = 'write'\n\
             size = '8B'\niterations = 200\n\
             [[program]]\nname = 'far'\nkind = 'bandwidth'\nhost = 2\npeer = 1\nop = 'write'\n\
             size = '4KiB'\nwindow = 16\niterations = 200\n\
             [[fault]]\nid = 'f'\nkind = 'drop'\nclass = 'ack'\nlink = '{link}'\nnth = 20\n\
             budget = 1\n"
        )
    };
    // The far one waits 42 us for its answers, and its timer expires after 33.
    let o = outcome(&far("host0-switch0"), &["qp.timeout=3"]);
    assert!(number(&o, "counter.duplicate_request") > 0.0);
    let text = note(&o, "timer-short");
    assert!(text.contains("of host 2 QP") && !text.contains("like it"), "{text}");
    // With a timer that is long enough for it the lost answer is nobody's short timer.
    let o = outcome(&far("host0-switch0"), &["qp.timeout=4"]);
    assert!(number(&o, "counter.local_ack_timeout_err") > 0.0, "the answer was lost");
    assert_eq!(number(&o, "note.timer-short"), 0.0, "{:?}", o.notes);
}

/// A planned fault that holds answers back is named beside the timer that it outlasts.
#[test]
fn a_fault_that_makes_answers_late_is_named_with_the_timer() {
    let text = "[qp]\ntimeout = 10\n[[program]]\nkind = 'latency'\nop = 'write'\nsize = '8B'\n\
                iterations = 20\n[[fault]]\nid = 'late'\nkind = 'hold'\nclass = 'ack'\n\
                after = '10us'\nbefore = '20ms'\nuntil = '20ms'\n";
    let o = outcome(text, &[]);
    assert_eq!(number(&o, "qps_in_error"), 0.0);
    let text = note(&o, "timer-short");
    assert!(text.contains("fault `late` (hold of packets) was open from 10 us to 20 ms"), "{text}");
}

/// A receive comes after 2 ms: the sender waits for RNR timers, and not for its ack timer.
#[test]
fn waits_for_receives_are_told_with_the_direction_to_turn_the_code() {
    let text = "[qp]\nrnr_retry = 7\n[[program]]\nkind = 'script'\nreceives = 'none'\n\
                steps = ['recv 64B x4', 'post send 64B x4', 'ring', 'wait']\n\
                [[fault]]\nid = 'f'\nkind = 'rnr'\nhost = 1\nbefore = '2ms'\n";
    let told = |code: u8| {
        let o = outcome(text, &[&format!("qp.min_rnr_timer={code}")]);
        note(&o, "timer-waits").to_owned()
    };
    let longest = told(0);
    assert!(longest.contains("code 0 is the longest, 655.4 ms: raise it; 1 ("), "{longest}");
    assert!(!longest.contains("ack timer waits") && !longest.contains("lower"), "{longest}");
    let middle = told(12);
    assert!(middle.contains("12 (640 us): lower it; 1 ("), "{middle}");
    let shortest = told(1);
    assert!(shortest.contains("is the shortest") && !shortest.contains("lower it"), "{shortest}");
}

#[test]
fn an_ack_timer_that_waits_is_told_with_the_least_code_that_is_longer_than_answers() {
    // The last of what is in flight is lost: only the timer finds it.
    let tail = "[qp]\ntimeout = 10\n[[program]]\nkind = 'latency'\nop = 'send'\nsize = '64B'\n\
                iterations = 20\n[[fault]]\nid = 'f'\nkind = 'drop'\nnth = 5\nclass = 'request'\n\
                budget = 1\n";
    let o = outcome(tail, &[]);
    let text = note(&o, "timer-waits");
    assert!(text.contains("lower `qp.timeout` (10 ("), "{text}");
    // 8 x 524 us are no more than the 4.194 ms that it waited.
    assert!(text.contains("8 (1.048 ms) is the least that is longer"), "{text}");
    assert!(text.contains("keep more in flight") && !text.contains("RNR NAKs say"), "{text}");
    // What was sent again is lost too: more in flight would not tell of it.
    let again = tail.replace("nth = 5", "after = '20us'").replace("budget = 1", "budget = 3");
    let o = outcome(&again, &[]);
    let text = note(&o, "timer-waits");
    assert!(text.contains("lost once more") && !text.contains("keep more"), "{text}");
}

/// Rows of expiries with progress between them use up their tries apart: what a shorter timer must
/// outlast is the longest of them, and not all together.
#[test]
fn a_shorter_timer_has_to_outlast_the_longest_row_of_expiries() {
    let lost = |all: &[u32], timeout: u8| {
        let fault = |nth: &u32| {
            format!("[[fault]]\nid = 'f{nth}'\nkind = 'drop'\nclass = 'request'\nnth = {nth}\n")
        };
        let faults: String = all.iter().map(fault).collect();
        let text = format!(
            "[qp]\ntimeout = {timeout}\nretry_cnt = 7\n[[program]]\nkind = 'latency'\n\
             op = 'write'\nsize = '64B'\niterations = 60\n{faults}"
        );
        outcome(&text, &[])
    };
    // Six expiries, at most two in a row: eight tries of half the time outlast two.
    let rows = [5, 6, 16, 27, 38, 49];
    let told = note(&lost(&rows, 12), "timer-waits").to_owned();
    assert!(told.contains("lower `qp.timeout` (12 (") && told.contains("11 (8.388 ms)"), "{told}");
    assert_eq!(number(&lost(&rows, 11), "qps_in_error"), 0.0);
    // Six in one row: eight of half the time are four.
    let told = note(&lost(&[5, 6, 7, 8, 9, 10], 12), "timer-waits").to_owned();
    assert!(told.contains("is not to be lowered"), "{told}");
    // Three in a row, and four: of eight halves just not enough.
    let told = note(&lost(&[5, 6, 7, 20], 12), "timer-waits").to_owned();
    assert!(told.contains("11 (8.388 ms)"), "{told}");
    let told = note(&lost(&[5, 6, 7, 8], 12), "timer-waits").to_owned();
    assert!(told.contains("is not to be lowered"), "{told}");
}

/// A device that counts in ticks waits after an RNR NAK for a whole one, whatever shorter code it
/// carries.
#[test]
fn an_rnr_timer_below_a_tick_is_not_to_be_lowered() {
    let text = "[qp]\nrnr_retry = 7\n[[program]]\nkind = 'script'\nreceives = 'none'\n\
                steps = ['recv 64B x4', 'post send 64B x4', 'ring', 'wait']\n\
                [[fault]]\nid = 'f'\nkind = 'rnr'\nhost = 1\nbefore = '2ms'\n";
    let told = |code: u8| {
        let code = format!("qp.min_rnr_timer={code}");
        let o = outcome(text, &[&code, "rc.timeout_mode=ticks", "rc.timer_tick=4ms"]);
        note(&o, "timer-waits").to_owned()
    };
    // 0.64 ms, and 3.84 ms, which is one tick too; 5.12 ms are two.
    for code in [12, 17] {
        let told = told(code);
        assert!(told.contains("wait for 4 ms, and no code for less"), "{told}");
    }
    assert!(told(18).contains("lower it; 1 ("), "{}", told(18));
    assert!(told(0).contains("code 0 is the longest, 656 ms: raise it"), "{}", told(0));
}

/// A link that is down for a while is no reason to give up sooner than it lasts: who follows the
/// advice lives.
#[test]
fn a_lower_timeout_that_is_advised_outlasts_what_was_seen() {
    let text = "[qp]\ntimeout = 14\n[[program]]\nkind = 'bandwidth'\nop = 'write'\n\
                size = '4KiB'\niterations = 2000\n[[fault]]\nid = 'down'\nkind = 'link-down'\n\
                link = 'host0-host1'\nafter = '120us'\nbefore = '1120us'\n";
    let o = outcome(text, &[]);
    let told = note(&o, "timer-waits");
    let code = told.split(" and ").find_map(|s| s.split_once(" (")?.0.parse::<u8>().ok());
    let code = code.unwrap_or_else(|| panic!("{told}"));
    assert!(code < 14, "{told}");
    let o = outcome(text, &[&format!("qp.timeout={code}")]);
    assert_eq!(number(&o, "qps_in_error"), 0.0, "timeout {code}");
    let o = outcome(text, &["qp.timeout=1"]);
    assert_eq!(number(&o, "qps_in_error"), 1.0, "which is longer than answers take");
}

/// 16 READs of 8 KiB over a line that they fill to four fifths and a little: it is not the line.
#[test]
fn a_window_of_reads_is_the_limit_until_the_port_is_busy_all_the_time() {
    let reads = |propagation: &str, qps: u32| {
        let text = format!(
            "[topology]\nrate = '100Gbps'\npropagation = '{propagation}'\n[qp]\n\
             max_rd_atomic = 16\nmax_dest_rd_atomic = 16\n[[program]]\nkind = 'bandwidth'\n\
             op = 'read'\nsize = '8KiB'\niterations = 2000\nqps = {qps}\n"
        );
        outcome(&text, &[])
    };
    let port = |o: &Outcome| {
        let port = o.resources.iter().find(|r| r.name == "host1.port transmit").expect("a port");
        port.busy.as_ps() * 100 / port.of.as_ps()
    };
    let one = reads("5us", 1);
    assert!((80..95).contains(&port(&one)), "{}", port(&one));
    assert_eq!(one.limiting.as_deref(), Some("host0.max_rd_atomic of QP 16"));
    assert!(number(&one, "note.read-window") > 0.0);
    let two = reads("5us", 2);
    assert!(port(&two) >= 95 && number(&two, "throughput") > number(&one, "throughput"));
    assert_eq!(two.limiting.as_deref(), Some("host1.port transmit"), "{}", port(&two));
}

#[test]
fn a_send_queue_that_is_full_is_what_limits() {
    let writes = |depth: u32, rest: &str| {
        let text = format!(
            "[topology]\npropagation = '5us'\n[qp]\nsq_depth = {depth}\n[[program]]\n\
             kind = 'bandwidth'\nop = 'write'\nsize = '4KiB'\niterations = 2000\n{rest}"
        );
        outcome(&text, &[])
    };
    let o = writes(8, "");
    assert_eq!(o.limiting.as_deref(), Some("host0.sq_depth of program 0"), "{:?}", o.notes);
    let text = note(&o, "send-queue-full");
    assert!(text.contains("1 queue pair of 8 (`qp.sq_depth`) sends 8 each time round"), "{text}");
    let each = number(&o, "host0.sq_memory");
    assert!(each > 0.0 && number(&o, "sq_memory") >= each, "of both hosts");
    // Deep enough: the core limits. A window below the queue is what the program asks for.
    for o in [writes(512, ""), writes(512, "window = 8\n")] {
        assert_eq!(number(&o, "note.send-queue-full"), 0.0, "{:?}", o.limiting);
        assert!(!o.limiting.as_deref().unwrap_or("").contains("sq_depth"), "{:?}", o.limiting);
    }
}

/// Doorbells of two queue pairs are damaged, one after the other, each with a threshold of its own.
#[test]
fn a_nic_stops_at_a_threshold_that_was_passed_and_says_so_of_those_that_were_good() {
    let steps: String = (0..3)
        .map(|qp| format!("'post write 64B qp={qp}', 'ring doorbell qp={qp}', 'compute 20us', "))
        .collect();
    let fault = |id: &str, qp: u32, stop: &str| {
        format!("[[fault]]\nid = '{id}'\nkind = 'bad-doorbell'\nhost = 0\nqp = {qp}\n{stop}\n")
    };
    let run = |first: &str, second: &str| {
        let (a, b) = (fault("one", 17, first), fault("two", 18, second));
        let program = format!("[[program]]\nkind = 'script'\nqps = 3\nsteps = [{steps}'wait']\n");
        outcome(&format!("{program}{a}{b}"), &[])
    };
    for (first, second) in
        [("stop_after = 2", "stop_after = 2"), ("stop_after = 3", "stop_after = 1")]
    {
        let o = run(first, second);
        assert_eq!(number(&o, "counter.async_device_fatal"), 1.0, "{first}, {second}");
        let verdict = |qpn: u32| {
            let row = o.qps.iter().find(|q| (q.host, q.qpn) == (0, qpn)).expect("it is there");
            let d = row.death.as_ref().map(|d| (d.verdict.clone(), d.field.clone()));
            d.unwrap_or_default()
        };
        let (own, field) = verdict(17);
        assert!(own.contains("QP_FATAL): its doorbell was damaged (fault `one`)"), "{own}");
        assert_eq!(field, "one");
        let row = o.qps.iter().find(|q| (q.host, q.qpn) == (0, 16)).expect("it is there");
        assert_eq!(row.state, "ERR", "the NIC has stopped");
    }
    let o = run("stop_after = 3", "stop_after = 3");
    assert_eq!(number(&o, "counter.async_device_fatal"), 0.0, "2 are less than 3");
}

#[test]
fn a_completion_queue_that_overruns_is_told_with_its_entries() {
    let run = |depth: u32| {
        let steps = "'post write 8B x16', 'ring', 'compute 50us', 'poll 64', 'wait'";
        let text =
            format!("[qp]\ncq_depth = {depth}\n[[program]]\nkind = 'script'\nsteps = [{steps}]\n");
        outcome(&text, &[])
    };
    let o = run(15);
    let d = o.qps.iter().find_map(|q| q.death.as_ref()).expect("it dies");
    assert!(d.verdict.contains("completion 16 came when its 15 entries held 15 not polled"));
    assert!(note(&o, "cq-too-small").contains("script: up to 16 signalled sends"), "{:?}", o.notes);
    assert_eq!(number(&run(16), "note.cq-too-small"), 0.0);
}

#[test]
fn a_peer_that_never_posts_receives_is_not_told_to_have_a_deeper_queue() {
    let steps = "'post send 64B', 'ring', 'wait'";
    let text = format!(
        "[qp]\nrnr_retry = 1\n[[program]]\nkind = 'script'\nreceives = 'none'\nsteps = [{steps}]\n"
    );
    let text = note(&outcome(&text, &[]), "receives-too-few").to_owned();
    assert!(text.contains("no receive was ever posted") && !text.contains("lowest fill"), "{text}");
    // Of receives that were taken, more would have helped.
    let few = "[qp]\nrnr_retry = 1\n[[program]]\nkind = 'script'\nreceives = 'none'\n\
               steps = ['recv 64B', 'post send 64B x3', 'ring', 'wait']\n";
    let text = note(&outcome(few, &[]), "receives-too-few").to_owned();
    assert!(text.contains("more of them: steps post them") && !text.contains("depth"), "{text}");
}

#[test]
fn packets_that_are_held_come_when_they_are_let_go() {
    let text = "[qp]\ntimeout = 8\n[[program]]\nkind = 'script'\n\
                steps = ['compute 100us', 'post write 64B', 'ring', 'wait']\n\
                [[fault]]\nid = 'pause'\nkind = 'hold'\nafter = '50us'\nuntil = '40ms'\n";
    let o = outcome(text, &[]);
    let d = o.qps.iter().find_map(|q| q.death.as_ref()).expect("it dies");
    assert!(d.verdict.contains("(hold of packets) was open from 50 us to 40 ms"), "{d:#?}");
}

/// A WRITE with immediate takes a receive, which is flushed when the WRITE is refused: that tells
/// nobody what happened.
#[test]
fn a_refused_write_with_immediate_is_an_event_at_the_responder() {
    for size in ["8B", "8KiB"] {
        let text = format!(
            "[[program]]\nkind = 'script'\n\
             steps = ['recv 64B x4', 'post write-imm {size} rkey=wrong', 'ring', 'wait']\n"
        );
        let o = outcome(&text, &[]);
        assert_eq!(number(&o, "counter.async_qp_access_err"), 1.0, "{size}");
        assert_eq!(number(&o, "counter.resp_cqe_flush_error"), 4.0, "{size}");
    }
}

/// The memory of a send belongs to the device until its completion was polled.
#[test]
fn a_region_that_is_dropped_before_the_poll_is_in_use() {
    let run = |steps: &str| {
        let text = format!("[[program]]\nkind = 'script'\nsteps = [{steps}]\n");
        number(&outcome(&text, &[]), "note.region-in-use")
    };
    let before = "'post write 64B x5', 'ring', 'compute 20us', 'dereg own', 'wait'";
    assert_eq!(run(before), 5.0);
    assert_eq!(run("'post write 64B x5', 'ring', 'wait', 'dereg own'"), 0.0);
}

/// Polling keeps a core as long as it lasts; sleeping does not.
#[test]
fn the_time_that_a_core_is_kept_counts_polling_in_vain() {
    let run = |poll: &str| {
        let text = format!(
            "[[program]]\nkind = 'message-rate'\nop = 'write'\nsize = '8B'\nwindow = 64\n\
             iterations = 200\ninterval = '10us'\npoll = '{poll}'\n"
        );
        let o = outcome(&text, &[]);
        number(&o, "host0.core_time") / number(&o, "duration")
    };
    let (busy, event) = (run("busy"), run("event"));
    assert!(busy > 0.99 && (0.14..0.2).contains(&event), "{busy} {event}");
}
