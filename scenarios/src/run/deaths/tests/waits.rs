//! What queue pairs wait for at the end of a run: what was lost, a credit, or nothing.

use super::*;

#[test]
fn a_lost_ack_is_no_missing_credit() {
    let lost = fault("'drop'\nclass = 'ack'");
    let steps = "'recv 8B x2', 'post send 8B x3', 'ring', 'recv 8B x10', 'wait'";
    let o = run(steps, &lost, &["rc.credits=true", "qp.timeout=0"]);
    let d = died(&o, "answers-lost", "f");
    assert!(d.verdict.contains("`timeout` 0 is no timer"), "{}", d.verdict);
    lives(&run(steps, "", &["rc.credits=true", "qp.timeout=0"]));
    // Without receives it is the credit, or the RNR NAK of the message that may go without one.
    let o = run("'recv 8B', 'post send 8B x4', 'ring', 'wait'", "", &["rc.credits=true"]);
    let d = death(&o).expect("it waits");
    assert!(["credits", "no-receive"].contains(&d.cause), "{d:?}");
}

#[test]
fn an_answer_that_was_never_asked_for_is_no_slow_peer() {
    let silent = "'post write 8B unsignaled', 'ring', 'wait'";
    let asks = |which: &str| run(silent, "", &[&format!("rc.ack_ask={which}")]);
    let d = died(&asks("signalled"), "nothing-signalled", "signaled");
    assert!(d.verdict.contains("asked for no ACK (`rc.ack_ask`)"), "{}", d.verdict);
    says(&d.own_side, "no ACK was asked for: no timer runs, and it dies never");
    // With the ACK nothing is awaited, and nothing was signalled all the same.
    let d = died(&asks("always"), "nothing-signalled", "signaled");
    assert!(d.verdict.contains("everything was executed"), "{}", d.verdict);
    // A NAK that it lived through is not the cause.
    let two = "'post write 8B x2', 'ring', 'wait', 'post write 8B unsignaled', 'ring', 'wait'";
    let overtaken = fault("'reorder'\nnth = 1");
    let o = run(two, &overtaken, &["rc.ack_ask=signalled", "qp.retry_cnt=2"]);
    died(&o, "nothing-signalled", "signaled");
    // Lost it is lost, though nobody will ever know.
    let lost = fault("'drop'\nclass = 'write'");
    let d = died(&run(silent, &lost, &["rc.ack_ask=signalled"]), "requests-lost", "f");
    assert!(d.verdict.contains("no ACK was asked for, so no timer runs"), "{}", d.verdict);
}

/// The ack timer is shorter than the round trip, so that it expires before each RNR NAK comes.
#[test]
fn rnr_naks_without_end_are_a_missing_receive_whatever_the_timer_does() {
    let set = ["qp.timeout=4", "qp.min_rnr_timer=2", "topology.propagation=25us"];
    let o = run("'post send 8B', 'ring', 'wait'", "", &set);
    let d = died(&o, "no-receive", "rnr_retry");
    says(&d.own_side, "without a receive it dies never");
}

#[test]
fn a_dead_host_is_named_where_a_program_fails_for_want_of_it() {
    let text = "title = 't'\nprofile = 'generic-400g'\n[[program]]\nkind = 'latency'\n\
                iterations = 10\n[[fault]]\nid = 'gone'\nkind = 'peer-dead'\nhost = 1\n\
                after = '0ns'\n";
    let points = expanded(text, &[]).expect("it is sound");
    let o = Simulator.run(&points[0].point).expect("it runs");
    assert!(
        o.exit.reason.contains(
            "fault \"gone\" (peer-dead) killed host 1 at 0 ps, before it had sent any packet"
        ),
        "{:?}",
        o.exit
    );
}

/// Also where the run ends before the program has given up.
#[test]
fn a_host_that_died_before_it_connected_is_named_at_the_time_limit() {
    let at = |after: &str, limit: &str| {
        let text = format!(
            "title = 't'\nprofile = 'generic-400g'\n[run]\nlimit = '{limit}'\n[[program]]\n\
             kind = 'latency'\niterations = 1000\n[[fault]]\nid = 'gone'\nkind = 'peer-dead'\n\
             host = 1\nafter = '{after}'\n"
        );
        let points = expanded(&text, &[]).expect("it is sound");
        Simulator.run(&points[0].point).expect("it runs").exit
    };
    let early = at("20us", "5ms");
    assert_eq!(early.kind, ExitKind::NoProgress);
    let told = "\nfault \"gone\" (peer-dead) killed host 1 at 20 us, before it had sent any packet";
    assert!(early.reason.contains("`run.limit`") && early.reason.ends_with(told), "{early:?}");
    // One that had answered is named without that.
    let late = at("300us", "5ms");
    let told = "\nfault \"gone\" (peer-dead) killed host 1 at 300 us";
    assert!(late.reason.ends_with(told), "{late:?}");
}

#[test]
fn a_mode_that_ignores_the_code_has_one_row_of_it() {
    let set = ["rc.timeout_mode=adaptive", "rc.timeout_least=500us", "rc.timeout_ceiling=2ms"];
    let o = run(ONE, &fault("'drop'\nsource = 0"), &set);
    let d = died(&o, "requests-lost", "f");
    assert!(d.other_settings.iter().all(|s| s.timeout == 8), "{:?}", d.other_settings);
    let row = o.effective.iter().find(|e| e.name == "qp.timeout").expect("there is one");
    assert!(row.reason.contains("ignores the code"), "{row:?}");
}
