//! Whole runs against closed forms on the generic profile.

use doorbell_core::units::Span;

use super::{Metric, Outcome, RunError, Runner, Simulator};
use crate::testing::expanded;

/// Runs the only point of a scenario of one program.
#[track_caller]
pub(super) fn run(program: &str, set: &[&str]) -> Result<Outcome, RunError> {
    let text = format!("title = 't'\nprofile = 'generic-400g'\n[run]\nnoise = 'off'\n{program}");
    let points = expanded(&text, set).unwrap_or_else(|e| panic!("{e}: {:?}", e.remedy()));
    assert_eq!(points.len(), 1);
    Simulator.run(&points[0].point)
}

#[track_caller]
pub(super) fn outcome(program: &str, set: &[&str]) -> Outcome {
    run(program, set).unwrap_or_else(|e| panic!("{e}"))
}

/// [`outcome`] of a run that ends well.
#[track_caller]
pub(super) fn ended(program: &str, set: &[&str]) -> Outcome {
    let outcome = outcome(program, set);
    assert_eq!(outcome.exit.reason, "");
    outcome
}

#[track_caller]
pub(super) fn number(outcome: &Outcome, name: &str) -> f64 {
    let found = outcome.find(name).unwrap_or_else(|| panic!("no {name}"));
    found.scalar().unwrap_or_else(|| panic!("{name} is a word")).number()
}

#[track_caller]
pub(super) fn time(outcome: &Outcome, name: &str, ps: u64) {
    let found = outcome.find(name).unwrap_or_else(|| panic!("no {name}"));
    assert_eq!(found.text(), Metric::time(Span::from_ps(ps)).text(), "{name}");
}

const SHARED: &str = "[[program]]\nkind = 'message-rate'\nsize = '16B'\niterations = 500\n\
                      signal_every = 4\nring = 'doorbell'\nshare_qp = true\n";

/// While one thread holds the lock, the arrival of an earlier doorbell of a waiting one must not
/// let that one in: the lock is exclusive.
#[test]
fn a_shared_queue_pair_admits_one_thread_at_a_time() {
    for threads in [2, 5, 8] {
        let o = outcome(SHARED, &[&format!("program.0.threads={threads}")]);
        // Build 20 + 1.28, post 15 + 10 + 2, doorbell 40, handed over in 70 ns.
        let critical = 158.28e-9;
        let rate = number(&o, "message_rate");
        assert!((rate * critical - 1.0).abs() < 0.01, "{threads}: {rate}");
        assert_eq!(o.limiting.as_deref(), Some("host0.lock of QP 16"), "{threads}");
    }
}

#[test]
fn a_queue_pair_of_its_own_needs_no_lock() {
    let o = outcome(SHARED, &["program.0.share_qp=false", "program.0.threads=4"]);
    assert_eq!(number(&o, "lock_waits"), 0.0);
    time(&o, "post_cost", 88_280);
}

/// A host has as many initiators as a handle can name, and one more is refused by name.
#[test]
fn a_host_has_at_most_128_initiators() {
    let set = |n: u32| format!("program.0.threads={n}");
    let small = ["program.0.share_qp=false", "program.0.iterations=4", &set(128)];
    assert_eq!(number(&outcome(SHARED, &small), "messages"), 512.0);
    let error = run(SHARED, &["program.0.share_qp=false", &set(129)]).unwrap_err();
    let text = error.to_string();
    assert_eq!(text, "`program.0.threads`: more than 128 cores and GPU blocks on host 0");
}

/// A ring that is left to the next poster is not lost: every WQE is announced by somebody.
#[test]
fn a_doorbell_that_is_left_to_the_next_is_rung_by_somebody() {
    for threads in [1, 2, 7] {
        let threads = format!("program.0.threads={threads}");
        let each = outcome(SHARED, &[&threads]);
        let o = outcome(SHARED, &[&threads, "program.0.ring=combined"]);
        assert_eq!((o.exit.reason.as_str(), number(&o, "wqes_unrung")), ("", 0.0), "{threads}");
        assert_eq!(number(&o, "messages"), number(&each, "messages"), "{threads}");
        let (few, all) = (number(&o, "doorbells"), number(&each, "doorbells"));
        assert!(if threads.ends_with("=1") { few == all } else { few < all / 2.0 }, "{few} {all}");
        assert!(few >= all / 32.0, "at least every 32nd rings: {few} of {all}");
    }
    // A ring of several WQEs is never left.
    let set = ["program.0.threads=4", "program.0.batch=2", "program.0.iterations=100"];
    let each = outcome(SHARED, &set);
    let o = outcome(SHARED, &[&set[..], &["program.0.ring=combined"]].concat());
    assert_eq!(number(&o, "doorbells"), number(&each, "doorbells"));
}

/// Two senders of 400 Gb/s each and a receiver whose slot takes half of one: what does not fit the
/// receive buffer waits in front of the port, and the slot's rate is what is delivered.
#[test]
fn a_narrow_slot_of_the_receiver_holds_the_senders_back() {
    let sender = |host: u32| {
        format!(
            "[[program]]\nname = 'from{host}'\nkind = 'bandwidth'\nhost = {host}\npeer = 0\n\
             size = '64KiB'\nwindow = 32\niterations = 300\n"
        )
    };
    let text = format!("[topology]\nkind = 'switch'\nhosts = 3\n{}{}", sender(1), sender(2));
    let o = outcome(&text, &["pcie.width=8"]);
    let rate = number(&o, "throughput");
    // 252.1 Gb/s of lanes, 280 bytes for 256.
    assert!(rate < 236e9 && rate > 225e9, "{rate}");
    assert!(number(&o, "counter.rx_buffer_waits") > 0.0);
    assert_eq!(o.limiting.as_deref(), Some("host0.PCIe nic up"));
}

#[test]
fn a_script_polls_what_has_come_and_reads_what_was_written() {
    let text = "[[program]]\nkind = 'script'\npayload = 'data'\nsteps = ['store 7 at=64B', \
                'post write 8B local=64B remote=4KiB', \
                'post read 8B sge=2 local=128B remote=4KiB', \
                'ring', 'compute 20us', 'poll 16', 'load at=128B', 'load']\n";
    let o = outcome(text, &["qp.max_send_sge=2"]);
    assert_eq!(number(&o, "step.5.count"), 2.0, "both completed during the computation");
    assert_eq!(number(&o, "step.6.count"), 7.0, "read back into two elements");
    assert_eq!(number(&o, "step.7.count"), 0.0);
    let error = crate::testing::expanded(
        &format!("title = 't'\nprofile = 'generic-400g'\n{text}"),
        &["qp.max_send_sge=1"],
    );
    let message = error.map(|_| ()).unwrap_err();
    assert_eq!(message.message(), "2 elements, and `qp.max_send_sge` grants 1");
}

/// A completion queue overruns once, at the entry behind its last, and takes its queue pairs along.
#[test]
fn an_overrun_is_one_event_at_the_exact_entry() {
    let text = "[qp]\nsq_depth = 16\n[[program]]\nkind = 'message-rate'\nsize = '8B'\n\
                qps = 4\niterations = 64\npoll_interval = '1ms'\n";
    let o = outcome(text, &["qp.cq_depth=64"]);
    assert_eq!((number(&o, "cq_fill_max"), number(&o, "counter.async_cq_err")), (64.0, 0.0));
    assert_eq!(number(&o, "qps_in_error"), 0.0);
    let o = outcome(text, &["qp.cq_depth=63"]);
    assert_eq!((number(&o, "cq_fill_max"), number(&o, "counter.async_cq_err")), (63.0, 1.0));
    assert_eq!((number(&o, "qps_in_error"), number(&o, "counter.async_qp_fatal")), (4.0, 4.0));
    assert!(o.exit.reason.contains("completion queue overrun"), "{}", o.exit.reason);
}

/// Four hosts that send to a fifth: the output port to it is what they share.
const INCAST: &str = "[topology]\nkind = 'switch'\nhosts = 5\n\
    [[program]]\nname = 'a'\nkind = 'bandwidth'\nsize = '64KiB'\niterations = 100\n\
    host = 0\npeer = 4\n\
    [[program]]\nname = 'b'\nkind = 'bandwidth'\nsize = '64KiB'\niterations = 100\n\
    host = 1\npeer = 4\n\
    [[program]]\nname = 'c'\nkind = 'bandwidth'\nsize = '64KiB'\niterations = 100\n\
    host = 2\npeer = 4\n\
    [[program]]\nname = 'd'\nkind = 'bandwidth'\nsize = '64KiB'\niterations = 100\n\
    host = 3\npeer = 4\n";

#[test]
fn a_switch_port_that_many_send_to_is_what_limits() {
    let o = outcome(INCAST, &[]);
    assert_eq!(o.limiting.as_deref(), Some("switch0.port4 to host4"));
    let port = |figure| number(&o, &format!("resource.switch0.port4 to host4.{figure}"));
    assert!(port("busy") > 0.95 && port("busy") <= 1.0, "{}", port("busy"));
    assert_eq!(port("served"), 4.0 * 100.0 * 16.0, "packets of 4 KiB");
    // Three of four packets wait at a time, and longer than each is sent.
    assert!(port("waited") > 3.0 * number(&o, "a.duration"), "{}", port("waited"));
    assert!(number(&o, "resource.switch0.port0 to host0.busy") < 0.1, "acknowledgements");
    let alone = outcome(&INCAST[..INCAST.match_indices("[[program]]").nth(1).unwrap().0], &[]);
    assert_eq!(alone.limiting.as_deref(), Some("host0.port transmit"), "both are as busy");
    assert_eq!(number(&alone, "resource.switch0.port4 to host4.waited"), 0.0);
    assert!(alone.find("resource.switch0.port1 to host1.busy").is_none(), "it carried nothing");
}

/// A buffer that no packet fits in is shown at its key, with the least that works: one byte less
/// does not.
#[test]
fn a_buffer_that_is_too_small_is_named_by_its_key_and_its_least_size() {
    let text = "host = 'ideal'\n[topology]\nkind = 'switch'\nhosts = 3\n[[program]]\n\
                kind = 'latency'\niterations = 1\n";
    let lanes = "switch.class=[{}, {}]";
    for set in [&["topology.switch=tail-drop"][..], &["link=ib"], &["link=ib", lanes]] {
        let with = |bytes: &str| {
            let buffer = format!("topology.buffer={bytes}");
            let text = format!("title = 't'\nprofile = 'generic-400g'\n[run]\n{text}");
            let points = match expanded(&text, &[set, &[buffer.as_str()]].concat()) {
                Ok(points) => points,
                // With classes it is seen sooner; the place is that of the key.
                Err(e) => {
                    assert!(e.to_string().starts_with("--set:1:17: "), "{set:?}: {e}");
                    return Err(e.remedy().unwrap_or("").to_owned());
                }
            };
            match Simulator.run(&points[0].point) {
                Ok(_) => Ok(()),
                Err(RunError::BadInput { path, help, .. }) => {
                    assert_eq!(path, "topology.buffer", "{set:?}");
                    Err(help)
                }
                Err(e) => panic!("{set:?}: {e}"),
            }
        };
        let help = with("1KB").expect_err("less than a packet");
        let least = help.strip_prefix("at least ").and_then(|b| b.strip_suffix('B'));
        let least: u64 = least.and_then(|b| b.parse().ok()).unwrap_or_else(|| panic!("{help}"));
        assert!(with(&format!("{least}B")).is_ok(), "{set:?}: {least} B");
        assert!(with(&format!("{}B", least - 1)).is_err(), "{set:?}: a byte less than {least}");
    }
}
