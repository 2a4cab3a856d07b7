//! When queue pairs would have died, or gone on, under other settings: of those too that wait, and
//! of those that get no receive. The advice is followed each time.

use super::*;

const SEND: &str = "'post send 8B', 'ring', 'wait'";

fn at_ms(d: &DeathRow) -> f64 {
    d.at_ps as f64 / 1e9
}

/// The cells of a table for want of a receive.
fn rnr_end(d: &DeathRow, timer: u8, retries: u8) -> Option<u64> {
    let its = |s: &&OtherRnrSetting| (s.min_rnr_timer, s.rnr_retry) == (timer, retries);
    let cell = d.other_rnr_settings.iter().find(its);
    cell.unwrap_or_else(|| panic!("{timer}, {retries}: {:?}", d.other_rnr_settings)).dies_after_ps
}

#[test]
fn a_death_of_rnr_naks_has_its_table_and_dies_when_it_says() {
    let with = |timer: u8, retries: u8| {
        let set = [&*format!("qp.min_rnr_timer={timer}"), &*format!("qp.rnr_retry={retries}")];
        run(SEND, "", &set)
    };
    let d = died(&with(12, 2), "no-receive", "rnr_retry");
    let of = |timer: u8| d.other_rnr_settings.iter().filter(move |s| s.min_rnr_timer == timer);
    assert_eq!(d.other_rnr_settings.len(), 5 * 5, "{:?}", d.other_rnr_settings);
    assert_eq!(of(12).map(|s| s.rnr_retry).collect::<Vec<_>>(), [1, 2, 3, 6, 7]);
    assert_eq!(rnr_end(&d, 12, 7), None);
    // Two waits of 640 us, six of 1.28 ms.
    assert_eq!(rnr_end(&d, 12, 2), Some(2 * 640_000_000));
    assert_eq!(rnr_end(&d, 14, 6), Some(6 * 1_280_000_000));
    // What comes on top are four ways at most, some microseconds.
    for (timer, retries) in [(10, 1), (11, 3), (12, 2), (13, 6), (14, 1)] {
        let other = died(&with(timer, retries), "no-receive", "rnr_retry");
        let waits = rnr_end(&d, timer, retries).expect("it dies");
        let first = 100_000_000;
        let over = other.at_ps.checked_sub(first + waits).expect("no sooner");
        assert!(over < 20_000_000, "{timer}, {retries}: {over} ps more");
    }
    // The longest timer has code 0, and its neighbours are the next shorter ones.
    let d = died(&with(0, 0), "no-receive", "rnr_retry");
    assert_eq!((rnr_end(&d, 0, 1), rnr_end(&d, 0, 0)), (Some(655_360_000_000), Some(0)));
    assert_eq!(d.other_rnr_settings.first().map(|s| s.min_rnr_timer), Some(30));
    assert_eq!(d.other_rnr_settings.last().map(|s| s.min_rnr_timer), Some(0));
}

/// A device that counts in ticks waits for whole ones: the table says so, and it dies then.
#[test]
fn a_table_for_want_of_a_receive_has_the_waits_of_the_device() {
    let with = |timer: u8, retries: u8| {
        let set = [&*format!("qp.min_rnr_timer={timer}"), &*format!("qp.rnr_retry={retries}")];
        run(SEND, "", &[&set[..], &["rc.timeout_mode=ticks", "rc.timer_tick=4ms"]].concat())
    };
    let d = died(&with(18, 2), "no-receive", "rnr_retry");
    // 3.84 ms are one tick, 5.12 ms are two.
    assert_eq!(rnr_end(&d, 17, 6), Some(6 * 4_000_000_000));
    assert_eq!(rnr_end(&d, 18, 2), Some(2 * 8_000_000_000));
    for (timer, retries) in [(17, 6), (18, 2)] {
        let other = died(&with(timer, retries), "no-receive", "rnr_retry");
        let waits = rnr_end(&d, timer, retries).expect("it dies");
        let over = other.at_ps.checked_sub(100_000_000 + waits).expect("no sooner");
        assert!(over < 50_000_000, "{timer}, {retries}: {over} ps more");
    }
}

#[test]
fn one_that_waits_for_a_receive_has_the_same_table() {
    let d = died(&run(SEND, "", &[]), "no-receive", "rnr_retry");
    assert!(!d.died && d.other_settings.is_empty());
    assert_eq!((rnr_end(&d, 12, 7), rnr_end(&d, 12, 3)), (None, Some(1_920_000_000)));
    says(&d.remedy, "post receives before the peer sends");
    // A lost request is no missing receive.
    let d = died(&run(ONE, &fault("'drop'\nsource = 0"), &[]), "requests-lost", "f");
    assert!(d.other_rnr_settings.is_empty());
}

/// Receives are withheld for 6 ms, and the run ends after 2 ms: 0.64 ms a try.
#[test]
fn one_that_waits_for_a_receive_at_the_limit_says_what_lasts() {
    let withheld = fault("'rnr'\nhost = 1\nbefore = '6ms'");
    let with = |set: &[&str]| run("'recv 8B', 'post send 8B', 'ring', 'wait'", &withheld, set);
    let cut = |n: &str| died(&with(&["run.limit=2ms", n]), "no-receive", "rnr_retry");
    let d = cut("qp.rnr_retry=4");
    assert!(!d.died && d.verdict.contains("`rnr_retry` 4 was not used up"), "{}", d.verdict);
    says(&d.remedy, "a try after 6 ms may find a receive: min_rnr_timer 15 (");
    says(&d.remedy, "or rnr_retry 7 goes on without limit");
    // As it is it dies, and with the timer that was named it lives.
    assert!(died(&with(&["qp.rnr_retry=4"]), "no-receive", "rnr_retry").died);
    lives(&with(&["qp.rnr_retry=4", "qp.min_rnr_timer=15"]));
    let d = cut("qp.rnr_retry=7");
    says(&d.remedy, "rnr_retry 7 (infinite) lasts until then (the next try is at 2.");
    says(&d.remedy, "raise `run.limit`");
    lives(&with(&["qp.rnr_retry=7"]));
}

/// Without a timer a loss is for ever. T of the codes that are named: 4.096 us · 2^code.
#[test]
fn a_stall_without_a_timer_says_when_one_would_have_gone_on_or_died() {
    let cut = fault("'link-down'\nlink = 'host0-switch0'\nafter = '0ns'\nbefore = '5ms'");
    let d = died(&run(ONE, &cut, &["qp.timeout=0"]), "requests-lost", "f");
    assert!(!d.died);
    // The last of eight transmissions is at 7 T, and 5 ms lie behind 4.9 ms of these.
    says(&d.remedy, "a transmission after 5 ms, 4.899 ms after the first, gets through");
    says(&d.remedy, "timeout 8 (goes on by 5.344 ms, dies after 8.389 ms)");
    assert!(!d.remedy.concat().contains("retry_cnt"), "no count helps: {:?}", d.remedy);
    let o = run(ONE, &cut, &["qp.timeout=8"]);
    lives(&o);
    let expiries = o.find("host0.counter.local_ack_timeout_err").unwrap().text();
    assert_eq!(expiries, "5", "the fifth of 1.049 ms got through, 5.243 ms after the first");
    assert!(died(&run(ONE, &cut, &["qp.timeout=7"]), "requests-lost", "f").died);
    // What it is now stands in the table, beside what it would be.
    let none: Vec<_> = d.other_settings.iter().filter(|s| s.timeout == 0).collect();
    assert!(none.len() == 3 && none.iter().all(|s| s.dies_after_ps.is_none()), "{none:?}");
    let t: Vec<_> = d.other_settings.iter().filter(|s| s.timeout > 0).collect();
    assert_eq!(t.len(), 5 * 3);
    for s in t {
        let dies = (4_096_000_u64 << s.timeout) * (u64::from(s.retry_cnt) + 1);
        assert_eq!(s.dies_after_ps, Some((dies, dies)), "{s:?}");
    }
}

#[test]
fn one_lost_packet_without_a_timer_needs_any() {
    let lost = fault("'drop'\nsource = 0\nnth = 1");
    let d = died(&run(ONE, &lost, &["qp.timeout=0"]), "requests-lost", "f");
    says(&d.remedy, "any timer sends again what was lost; timeout 1 is the least");
    says(&d.remedy, "it sends again after 8.192 us, and without an answer dies after 65.54 us");
    lives(&run(ONE, &lost, &["qp.timeout=1"]));
    // With a chance of loss a timer is what is missing as well.
    let some = fault("'drop'\nsource = 0\nchance = '999/1000'");
    let d = died(&run(ONE, &some, &["qp.timeout=0"]), "requests-lost", "f");
    says(&d.remedy, "any timer");
}

#[test]
fn one_that_still_tries_at_the_limit_has_the_table_and_its_next_try() {
    let cut = fault("'link-down'\nlink = 'host0-switch0'\nafter = '0ns'\nbefore = '30ms'");
    let set = ["qp.timeout=14", "run.limit=50ms"];
    let d = died(&run(ONE, &cut, &set), "requests-lost", "f");
    assert!(!d.died && d.other_settings.len() == 5 * 3, "{:?}", d.other_settings);
    // 67.109 ms after the first transmission.
    says(&d.remedy, "its own settings last until then (its timer expires at 67.21 ms): raise");
    lives(&run(ONE, &cut, &set[..1]));
    // With fewer tries it would not have lasted, and the least that would is named.
    let set = ["qp.timeout=11", "qp.retry_cnt=2", "run.limit=10ms"];
    let d = died(&run(ONE, &cut, &set), "requests-lost", "f");
    assert!(!d.died);
    says(&d.remedy, "timeout 12 (goes on by 33.66 ms, ");
    says(&d.remedy, "or retry_cnt 4 (goes on by 33.66 ms, ");
    assert!(died(&run(ONE, &cut, &set[..2]), "requests-lost", "f").died);
    lives(&run(ONE, &cut, &["qp.timeout=12", "qp.retry_cnt=2"]));
    lives(&run(ONE, &cut, &["qp.timeout=11", "qp.retry_cnt=4"]));
    // A packet that was lost for once goes out again with the next expiry.
    let lost = fault("'drop'\nsource = 0\nnth = 1");
    let d = died(&run(ONE, &lost, &["qp.timeout=14", "run.limit=10ms"]), "requests-lost", "f");
    says(&d.remedy, "its timer sends again what was lost at 67.21 ms: raise `run.limit`");
}

/// A `retry_cnt` without end never dies, and the others of the table do.
#[test]
fn endless_retries_have_a_table_of_those_that_end() {
    let set = ["rc.rules=rxe", "qp.timeout=8"];
    let d = died(&run(ONE, &fault("'drop'\nsource = 0"), &set), "requests-lost", "f");
    assert!(!d.died);
    let end = |n: u8| {
        let its = |s: &&OtherSetting| (s.timeout, s.retry_cnt) == (8, n);
        d.other_settings.iter().find(its).expect("a cell").dies_after_ps
    };
    let t = 1_048_576_000;
    assert_eq!((end(7), end(3), end(1)), (None, Some((4 * t, 4 * t)), Some((2 * t, 2 * t))));
    let three = run(ONE, &fault("'drop'\nsource = 0"), &["rc.rules=rxe", "qp.retry_cnt=3"]);
    let d = died(&three, "requests-lost", "f");
    let after = at_ms(&d) - 0.1;
    assert!(d.died && (4.194..4.2).contains(&after), "{after} ms");
}

/// Time that stood still is told of each queue pair, in whole waits.
#[test]
fn waits_are_times_of_their_queue_pair() {
    let text = |o: &Outcome, name: &str| o.find(name).map(|f| f.text());
    let o = run(SEND, "", &["qp.rnr_retry=3"]);
    for name in ["qp.0.16.rnr_waited", "rnr_waited"] {
        assert_eq!(text(&o, name).as_deref(), Some("1.920 ms"), "three of 640 us");
    }
    assert_eq!(text(&o, "qp.0.16.ack_timer_waited").as_deref(), Some("0 ps"));
    // The eighth expiry finds no retry, and was waited for as well: 8 T, and the ways between.
    let o = run(ONE, &fault("'drop'\nsource = 0"), &[]);
    let q = o.qps.iter().find(|q| (q.host, q.qpn) == (0, 16)).expect("there is one");
    let over = q.ack_timer_waited_ps.checked_sub(8 * 1_048_576_000).expect("no less");
    assert!(over < 8_000_000, "{over}");
    assert_eq!(q.rnr_waited_ps, 0);
    assert_eq!(text(&o, "ack_timer_waited"), text(&o, "qp.0.16.ack_timer_waited"));
    assert_eq!(text(&o, "qp.1.16.ack_timer_waited").as_deref(), Some("0 ps"));
    assert_eq!(text(&o, "qp.0.17.rnr_waited"), None);
}
