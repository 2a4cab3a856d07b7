//! Deaths of NAKs, which no timer decided.

use super::*;

/// NAKs are repeated slower than the round trip, or there was one only: the gap killed it.
#[test]
fn one_nak_is_no_repeated_one() {
    let large = "'post write 64KiB', 'ring', 'wait'";
    let overtaken = fault("'reorder'\nclass = 'write'\nnth = 4");
    let with = |set: &[&str]| run(large, &overtaken, &[&["qp.retry_cnt=0"], set].concat());
    let d = died(&with(&["rc.nak_repeat=1ms"]), "out-of-order", "retry_cnt");
    assert_eq!((d.timeouts, d.retries), (0, 0), "{d:?}");
    // Faster than the round trip, and still one.
    let fast = ["rc.nak_repeat=100ns", "topology.length=20m"];
    died(&with(&fast), "out-of-order", "retry_cnt");
    // Two of them, and one retry.
    let two = fault("'drop'\nclass = 'write'\nnth = 4");
    let o = run(large, &two, &["qp.retry_cnt=1", fast[0], fast[1]]);
    died(&o, "nak-repeat", "rc.nak_repeat");
}

#[test]
fn a_death_of_a_nak_has_no_table_of_timers() {
    let large = "'post write 64KiB', 'ring', 'wait'";
    let lost = fault("'drop'\nclass = 'write'\nnth = 4");
    let with = |n: u32| run(large, &lost, &["qp.timeout=14", &format!("qp.retry_cnt={n}")]);
    let d = died(&with(0), "requests-lost", "f");
    assert!(d.other_settings.is_empty(), "{:?}", d.other_settings);
    says(&d.own_side, "no timer decided");
    assert!(!d.own_side.iter().any(|l| l.contains("T = ")), "{:?}", d.own_side);
    says(&d.remedy, "with retry_cnt 1 what was missing would have been sent once more");
    lives(&with(1));
    // An expiry has its table.
    let d = died(&run(large, &fault("'drop'\nclass = 'write'"), &[]), "requests-lost", "f");
    assert!(!d.other_settings.is_empty());
    says(&d.own_side, "ack timeout 8: T = ");
}

/// The requester knows of the RNR NAKs that came; how many tries there were it does not.
#[test]
fn rnr_naks_that_were_lost_are_told_apart() {
    let lost = fault("'drop'\nclass = 'rnr-nak'\nbudget = 2");
    let send = "'post send 8B', 'ring', 'wait'";
    let set = ["qp.rnr_retry=1", "qp.min_rnr_timer=5"];
    let d = died(&run(send, &lost, &set), "no-receive", "rnr_retry");
    assert!(d.verdict.contains("posted: 2 RNR NAKs came, RNR timer code 5"), "{}", d.verdict);
    assert!(d.verdict.contains("rnr_retry 1 allows no more; 2 answers lost"), "{}", d.verdict);
    says(&d.own_side, "the ack timer expired 2 times");
    let d = died(&run(send, "", &set), "no-receive", "rnr_retry");
    assert!(!d.verdict.contains("lost"), "{}", d.verdict);
}

/// A queue pair of UC that went to SQE and back has not died; what it dies of later is told.
#[test]
fn one_that_came_back_from_sqe_lives() {
    let uc = ["qp.type=UC"];
    let back = "'recv 4KiB x4', 'post send 64B lkey=wrong', 'ring', 'wait', 'state rts', \
                'post send 64B', 'ring', 'wait'";
    lives(&run(back, "", &uc));
    let d = died(
        &run("'post send 64B lkey=wrong', 'ring', 'wait'", "", &uc),
        "local-error",
        "IBV_WC_LOC_PROT_ERR",
    );
    assert!(d.died);
    let later = format!("{back}, 'post send 64B', 'ring', 'state err', 'wait'");
    died(&run(&later, "", &uc), "moved-to-err", "");
}
