//! What happened after a death is not its cause.

use super::*;

/// Round trip 100 us, and eight expiries take 66 us.
const SHORT: [&str; 2] = ["qp.timeout=1", "topology.propagation=25us"];

fn also(id: &str, kind: &str) -> String {
    format!("[[fault]]\nid = '{id}'\nmaybe = true\nkind = {kind}\n")
}

#[test]
fn an_answer_that_is_lost_after_the_death_is_not_its_cause() {
    let one = fault("'drop'\nclass = 'ack'\nnth = 1");
    let d = died(&run(ONE, &one, &SHORT), "peer-slow", "timeout");
    assert!(d.verdict.contains("alive but slow: an answer came"), "{}", d.verdict);
    says(&d.other_side, "fault `f`, too late to matter");
    says(&d.remedy, "timeout 2 (");
    lives(&run(ONE, &one, &[SHORT[1], "qp.timeout=2"]));
    // Before the death it is.
    died(&run(ONE, &fault("'drop'\nclass = 'ack'"), &["qp.timeout=1"]), "answers-lost", "f");
}

#[test]
fn a_host_that_dies_after_the_queue_pair_is_not_blamed_for_it() {
    let steps = format!("{ONE}, 'compute 10ms'");
    let dead = |at: &str| also("dead", &format!("'peer-dead'\nhost = 1\nafter = '{at}'"));
    let lost = fault("'drop'\nclass = 'ack'");
    let d = died(
        &run(&steps, &format!("{lost}{}", dead("5ms")), &["qp.timeout=6"]),
        "answers-lost",
        "f",
    );
    assert!(d.verdict.contains("8 answers lost"), "{}", d.verdict);
    says(&d.other_side, "on a dead host");
    let d = died(&run(&steps, &dead("5ms"), &SHORT), "peer-slow", "timeout");
    says(&d.remedy, "timeout 2 (");
    died(&run(&steps, &dead("120us"), &SHORT), "host-dead", "");
}

#[test]
fn a_peer_that_comes_to_err_after_the_death_is_not_blamed_for_it() {
    let steps = format!("{ONE}, 'compute 10ms'");
    let late = fault("'delay'\nclass = 'write'\ndelay = '5ms'");
    let err = |at: &str| also("err", &format!("'qp-error'\nhost = 1\nqp = 16\nafter = '{at}'"));
    let with = |err: String| run(&steps, &format!("{late}{err}"), &["qp.timeout=6"]);
    let d = died(&with(err("4ms")), "peer-slow", "timeout");
    assert!(d.verdict.contains("host 1 dropped 8 packets after it had died"), "{}", d.verdict);
    assert!(d.verdict.contains("QP in ERR; fault `f` (delay of packets)"), "{}", d.verdict);
    assert_eq!(d.remedy, Vec::<String>::new(), "nobody knows whether they would have been taken");
    // Without the delay the packets do come in time.
    let d = died(&run(&steps, &err("100us"), &["qp.timeout=6"]), "peer-in-error", "ERR");
    assert!(d.verdict.contains("since 100"), "{}", d.verdict);
}

/// Eight transmissions are made before the answer to any of them can have come: that most of them
/// are lost changes nothing, save what has to last.
#[test]
fn what_had_no_time_to_be_answered_is_no_cause() {
    for (lost, least) in [("nth = 1", 2), ("budget = 7", 6)] {
        let o = run(ONE, &fault(&format!("'drop'\nclass = 'write'\n{lost}")), &SHORT);
        let d = died(&o, "peer-slow", "timeout");
        assert!(d.verdict.contains("lost, "), "{}", d.verdict);
        says(&d.remedy, &format!("timeout {least} ("));
        let lost = fault(&format!("'drop'\nclass = 'write'\n{lost}"));
        lives(&run(ONE, &lost, &[SHORT[1], &format!("qp.timeout={least}")]));
    }
    // Nothing came at all: what became of the packets is all that is known.
    let d = died(&run(ONE, &fault("'drop'\nclass = 'write'"), &SHORT), "requests-lost", "f");
    assert!(d.verdict.contains("6 request packets lost"), "{}", d.verdict);
    says(&d.other_side, "fault_drop, fault `f`, too late to matter");
}

/// What has to last counts from the last NAK on, and a row of expiries that begins behind one has
/// fewer retries.
#[test]
fn what_has_to_last_counts_from_the_last_nak() {
    // Without a receive for 4 ms, and the round trip is longer than the timer.
    let steps = "'post send 8B', 'ring', 'compute 4ms', 'recv 8B', 'wait'";
    let with = |timeout: u32| run(steps, "", &[&format!("qp.timeout={timeout}"), SHORT[1]]);
    for timeout in [1, 3] {
        let d = died(&with(timeout), "peer-slow", "timeout");
        assert!(d.verdict.contains("alive but slow"), "{}", d.verdict);
        says(&d.remedy, "an answer takes 10");
        says(&d.remedy, "an RNR NAK gives no retry back");
        says(&d.remedy, "the least that is sure to last: timeout 5 (");
    }
    let d = died(&with(3), "peer-slow", "timeout");
    assert!(d.verdict.contains("RNR NAKs had come before"), "{}", d.verdict);
    lives(&with(5));
    // One RNR NAK, and then the link is down: the outage counts from the second transmission on.
    let steps = "'post send 8B', 'ring', 'compute 500us', 'recv 8B', 'wait'";
    let cut = |before: &str| {
        fault(&format!("'link-down'\nlink = 'host0-switch0'\nafter = '200us'\nbefore = '{before}'"))
    };
    let o = run(steps, &cut("4ms"), &["qp.retry_cnt=1"]);
    let d = died(&o, "requests-lost", "f");
    assert_eq!((d.rnr_retries, d.timeouts), (1, 2));
    says(&d.remedy, "after the first since the last NAK, would have got through");
    let least = d.remedy[0].split("timeout ").nth(1).and_then(|t| t.split(' ').next());
    let least: u32 = least.expect("one is named").parse().expect("a number");
    let with = |t: u32| run(steps, &cut("4ms"), &["qp.retry_cnt=1", &format!("qp.timeout={t}")]);
    lives(&with(least));
    died(&with(least - 1), "requests-lost", "f");
}
