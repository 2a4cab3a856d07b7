//! Queue pairs that send again and again: which of them do so for ever, and which go on some time.

use super::simulate_tests::{ended, number, outcome};
use super::{ExitKind, Outcome};

/// Two queue pairs, refused for want of a receive at different times: an RNR timer of 10 us, and 21
/// us to the peer and back. Never are both silent.
const TWO: &str = "[topology]\npropagation = '10us'\n[qp]\nmin_rnr_timer = 1\n[[program]]\n\
                   kind = 'script'\nqps = 2\nreceives = 'none'\nsteps = ['post send 8B', 'ring', \
                   'compute 15us', 'post send 8B qp=1', 'ring qp=1', 'wait']\n";

/// One that waits for an ack timer of 65.5 us where the way takes 100 us. What is sent again in
/// vain is on its way at all times.
const EARLY: &str = "[topology]\npropagation = '50us'\n[qp]\ntimeout = 4\nmin_rnr_timer = 2\n\
                     [[program]]\nkind = 'script'\nreceives = 'none'\nsteps = ['post send 8B', \
                     'ring', 'wait']\n";

const STATUS: &str = "qp.0.16.death.status";

/// The word of an outcome.
#[track_caller]
fn word(o: &Outcome, name: &str) -> String {
    o.find(name).unwrap_or_else(|| panic!("no {name}: {}", o.exit.reason)).text()
}

/// The run ends by itself, long before its limit, and says which receives are missing.
#[track_caller]
fn stalls(o: &Outcome, receivers: &[u32]) {
    assert_eq!(o.exit.kind, ExitKind::NoProgress, "{}", o.exit.reason);
    assert!(!o.exit.reason.contains("limit of the run"), "{}", o.exit.reason);
    for qpn in receivers {
        let missing = format!("host 1, QP {qpn}: no receive is posted");
        assert!(o.exit.reason.contains(&missing), "{}", o.exit.reason);
        assert_eq!(word(o, &format!("qp.0.{qpn}.death.cause")), "no-receive");
        let row = o.qps.iter().find(|q| (q.host, q.qpn) == (0, *qpn)).expect("it is there");
        let at_ps = row.death.as_ref().map_or(0, |d| d.at_ps);
        assert!((1..50_000_000_000).contains(&at_ps), "{at_ps} ps");
    }
}

#[test]
fn two_queue_pairs_that_are_never_silent_together_are_a_stall() {
    stalls(&outcome(TWO, &["run.limit=10s"]), &[16, 17]);
    stalls(&outcome(TWO, &["run.noise=on", "run.limit=10s"]), &[16, 17]);
}

#[test]
fn a_queue_pair_with_an_ack_timer_below_the_way_is_a_stall() {
    let o = outcome(EARLY, &["run.limit=10s"]);
    stalls(&o, &[16]);
    assert_eq!(number(&o, "counter.local_ack_timeout_err"), 1.0);
}

/// The same with a longer RNR timer: all is silent now and then, and each round uses up a retry.
#[test]
fn an_ack_timer_that_expires_in_every_round_ends_the_queue_pair() {
    let o = outcome(EARLY, &["run.limit=10s", "qp.min_rnr_timer=12"]);
    assert_eq!(word(&o, STATUS), "IBV_WC_RETRY_EXC_ERR");
    // Each round has the expiry that the way is too long for, the wait, and a second RNR NAK in it.
    let counted = ["local_ack_timeout_err", "rnr_nak_retry_err"];
    assert_eq!(counted.map(|c| number(&o, &format!("counter.{c}"))), [7.0, 14.0]);
    // Half of the timer is enough for an answer to be expected in time: no round more is asked for.
    let o = outcome(EARLY, &["run.limit=10s", "qp.min_rnr_timer=12", "qp.timeout=6"]);
    stalls(&o, &[16]);
    assert_eq!(number(&o, "counter.rnr_nak_retry_err"), 1.0);
    // Less than that: it takes more rounds, all of them without an expiry.
    let o = outcome(EARLY, &["run.limit=10s", "qp.min_rnr_timer=12", "qp.timeout=5"]);
    stalls(&o, &[16]);
    assert_eq!(number(&o, "counter.rnr_nak_retry_err"), 64.0);
    assert_eq!(number(&o, "counter.local_ack_timeout_err"), 0.0);
}

/// Receives that come late: by the program itself, or because a fault ends.
#[test]
fn what_may_yet_find_a_receive_is_no_stall() {
    let late = TWO.replace("'wait'", "'compute 30ms', 'recv 64B qp=0', 'recv 64B qp=1', 'wait'");
    let o = ended(&late, &["run.limit=10s"]);
    assert_eq!(number(&o, "counter.wc_success"), 2.0);
    let there = TWO.replace("receives = 'none'\n", "");
    let fault = "[[fault]]\nid = 'r'\nkind = 'rnr'\nhost = 1\nafter = '0s'\nbefore = '30ms'\n";
    let o = ended(&format!("{there}{fault}"), &["run.limit=10s"]);
    assert_eq!(number(&o, "counter.wc_success"), 2.0);
    assert!(number(&o, "counter.rnr_nak_sent") > 1000.0);
}

/// It waits for a receive of a queue pair, or a host, that is not there any more: what it sends
/// again is not refused but dropped, until no retry is left.
#[test]
fn a_wait_for_a_receive_ends_with_the_peer() {
    let script = "[qp]\ntimeout = 8\nmin_rnr_timer = 12\n[[program]]\nkind = 'script'\n\
                  receives = 'none'\nsteps = ['post send 8B', 'ring', 'wait']\n";
    for kind in ["qp-error'\nqp = 16", "peer-dead'"] {
        let fault = format!("[[fault]]\nid = 'f'\nkind = '{kind}\nhost = 1\nafter = '110us'\n");
        let o = outcome(&format!("{script}{fault}"), &["run.limit=10s"]);
        assert_eq!(word(&o, STATUS), "IBV_WC_RETRY_EXC_ERR", "{kind}");
        assert_eq!(number(&o, "counter.local_ack_timeout_err"), 7.0);
    }
}

/// Packets get lost now and then while it waits: each loss uses up a retry, and nothing brings one
/// back. Where `retry_cnt` has no limit, it waits for ever all the same.
#[test]
fn losses_end_a_wait_for_a_receive_unless_nothing_does() {
    let script = "[qp]\ntimeout = 4\nmin_rnr_timer = 1\n[[program]]\nkind = 'script'\n\
                  receives = 'none'\nsteps = ['post send 8B', 'ring', 'wait']\n[[fault]]\n\
                  id = 'f'\nkind = 'drop'\nchance = '1/20'\n";
    let o = outcome(script, &["run.limit=10s"]);
    assert_eq!(word(&o, STATUS), "IBV_WC_RETRY_EXC_ERR");
    assert_eq!(number(&o, "counter.local_ack_timeout_err"), 7.0);
    let o = outcome(script, &["run.limit=10s", "rc.retry_seven=infinite"]);
    assert_eq!(o.exit.kind, ExitKind::NoProgress);
    assert!(!o.exit.reason.contains("limit of the run"), "{}", o.exit.reason);
    // Others than those of the wait cost nothing.
    let acks = script.replace("chance = '1/20'", "class = 'ack'\nchance = '1/20'\nmaybe = true");
    stalls(&outcome(&acks, &["run.limit=10s"]), &[16]);
    // A fault that is spent takes no further retry.
    let spent = script.replace("chance = '1/20'", "class = 'rnr-nak'\nbudget = 2");
    let o = outcome(&spent, &["run.limit=10s"]);
    stalls(&o, &[16]);
    assert_eq!(number(&o, "counter.local_ack_timeout_err"), 2.0);
}

/// Nothing answers, and `retry_cnt` 7 has no limit: a stall of its own, as soon as any limit would
/// have been passed; but not while a packet may yet get through.
#[test]
fn retries_without_limit_into_a_void_are_a_stall() {
    let program = "[qp]\ntimeout = 4\n[[program]]\nkind = 'script'\nqps = 2\nsteps = ['post \
                   write 64KiB', 'ring', 'compute 30us', 'post write 8B qp=1', 'ring qp=1', \
                   'wait']\n[[fault]]\nid = 'f'\nkind = 'drop'\nclass = 'write'\n";
    let endless = ["run.limit=10s", "rc.retry_seven=infinite"];
    let o = outcome(program, &endless);
    assert_eq!(o.exit.kind, ExitKind::NoProgress);
    for qpn in [16, 17] {
        let words = format!("host 0, QP {qpn}: the ack timer has expired ");
        assert!(o.exit.reason.contains(&words), "{}", o.exit.reason);
    }
    for spares in ["budget = 100", "before = '50ms'", "chance = '9/10'"] {
        let o = outcome(&format!("{program}{spares}\n"), &endless);
        assert_eq!((o.exit.kind, o.exit.reason.as_str()), (ExitKind::Ok, ""), "{spares}");
    }
}

/// A dead host answers nothing, whatever becomes of packets.
#[test]
fn retries_without_limit_to_a_dead_host_are_a_stall() {
    let program = "[qp]\ntimeout = 8\n[[program]]\nkind = 'script'\nsteps = ['post write 64KiB \
                   x4', 'ring', 'wait']\n[[fault]]\nid = 'dead'\nkind = 'peer-dead'\nhost = 1\n\
                   after = '102us'\n";
    let o = outcome(program, &["run.limit=10s", "rc.retry_seven=infinite"]);
    assert_eq!(o.exit.kind, ExitKind::NoProgress);
    for words in ["the ack timer has expired 8 times", "without limit", "[host-dead]"] {
        assert!(o.exit.reason.contains(words), "{}", o.exit.reason);
    }
    let o = outcome(program, &["run.limit=10s"]);
    assert_eq!(word(&o, STATUS), "IBV_WC_RETRY_EXC_ERR");
}

/// A limit that comes first names who waits for a receive.
#[test]
fn a_limit_names_who_waits_for_a_receive() {
    for (limit, what) in [("run.limit=1ms", "time limit"), ("run.events=1000", "events")] {
        let o = outcome(EARLY, &[limit]);
        assert!(o.exit.reason.contains(what), "{}", o.exit.reason);
        let told = "host 0 QP 16 was told";
        assert!(o.exit.reason.contains(told), "{}", o.exit.reason);
        assert!(o.exit.reason.contains("host 1, QP 16 has no receive"), "{}", o.exit.reason);
    }
}

/// What a dead host was about to do does not take place, and hides nothing of what others do.
#[test]
fn events_of_a_dead_host_are_not_counted() {
    let text = "[[program]]\nkind = 'script'\nreceives = 'none'\nqps = 2\n\
                steps = ['recv 64B x2', 'recv 64B qp=1', 'post write 8B', 'wait']\n\
                [[fault]]\nid = 'dead'\nkind = 'peer-dead'\nhost = 1\nafter = '2ms'\n";
    let o = outcome(text, &["run.limit=1s"]);
    assert_eq!(o.exit.kind, ExitKind::NoProgress);
    assert!(o.exit.reason.contains("no doorbell announced them"), "{}", o.exit.reason);
    assert!(o.exit.reason.contains("\"dead\" (peer-dead) killed host 1"), "{}", o.exit.reason);
    // A member that stands still for three seconds has its word to say behind that.
    let group = "[topology]\nkind = 'switch'\nhosts = 7\n[[program]]\n\
                 kind = 'aggregate'\nhosts = 7\nsize = '8B'\niterations = 3\nop = 'write'\n\
                 aggregate = { plan = 'ring', chunk = '128B', element = 'i64', window = 2, \
                 chunk_deadline = '2ms', round_deadline = '30ms' }\n\
                 [[fault]]\nid = 'a'\nkind = 'rnr'\nhost = 4\nbefore = '3.002337s'\n\
                 maybe = true\n[[fault]]\nid = 'b'\nkind = 'peer-dead'\nhost = 6\n\
                 after = '979us'\nmaybe = true\n[[fault]]\nid = 'c'\nkind = 'program-stall'\n\
                 host = 4\nafter = '355us'\nbefore = '3.000355s'\nmaybe = true\n";
    assert_eq!(number(&outcome(group, &["run.limit=60s"]), "members_failed"), 6.0);
}
