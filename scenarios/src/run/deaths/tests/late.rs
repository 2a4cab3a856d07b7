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
    let d = died(&run(&steps, &err("50us"), &["qp.timeout=6"]), "peer-in-error", "ERR");
    assert!(d.verdict.contains("since 50.00 us"), "{}", d.verdict);
}

/// Eight transmissions are made before the answer to any of them can have come: that most of them
/// are lost changes nothing, save what has to last.
#[test]
fn what_had_no_time_to_be_answered_is_no_cause() {
    for (lost, least) in [("nth = 1", 2), ("budget = 7", 5)] {
        let o = run(ONE, &fault(&format!("'drop'\nclass = 'write'\n{lost}")), &SHORT);
        let d = died(&o, "peer-slow", "timeout");
        assert!(d.verdict.contains("lost, "), "{}", d.verdict);
        says(&d.remedy, &format!("timeout {least} ("));
        let lost = fault(&format!("'drop'\nclass = 'write'\n{lost}"));
        lives(&run(ONE, &lost, &[SHORT[1], &format!("qp.timeout={least}")]));
    }
    // Nothing came at all: what became of the packets is all that is known.
    let d = died(&run(ONE, &fault("'drop'\nclass = 'write'"), &SHORT), "requests-lost", "f");
    assert!(d.verdict.contains("8 request packets lost"), "{}", d.verdict);
}
