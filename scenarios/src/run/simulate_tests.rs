//! Whole runs against closed forms on the generic profile.

use doorbell_core::units::Span;

use super::{Metric, Outcome, RunError, Runner, Simulator};
use crate::testing::expanded;

/// Runs the only point of a scenario of one program.
#[track_caller]
fn run(program: &str, set: &[&str]) -> Result<Outcome, RunError> {
    let text = format!("title = 't'\nprofile = 'generic-400g'\n[run]\nnoise = 'off'\n{program}");
    let points = expanded(&text, set).unwrap_or_else(|e| panic!("{e}: {:?}", e.remedy()));
    assert_eq!(points.len(), 1);
    Simulator.run(&points[0].point)
}

#[track_caller]
pub(super) fn outcome(program: &str, set: &[&str]) -> Outcome {
    run(program, set).unwrap_or_else(|e| panic!("{e}"))
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
