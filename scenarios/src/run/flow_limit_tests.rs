//! Flows at the limits of what can be asked for, and over every kind of link.

use super::simulate_tests::{number, outcome};
use super::{ExitKind, Outcome, RunError, Runner, Simulator};
use crate::testing::expanded;

const INCAST: &str = "host = 'ideal'\n[topology]\nkind = 'switch'\nhosts = 9\nrate = '100Gbps'\n\
                      propagation = '1us'\n[[program]]\nkind = 'flows'\nhost = 1\nhosts = 8\n\
                      peer = 0\nsize = '4MB'\nflows = { pattern = 'incast' }\n";

fn incast(set: &[&str]) -> Outcome {
    outcome(INCAST, &[&["qp.timeout=20"], set].concat())
}

fn result(set: &[&str]) -> Result<Outcome, RunError> {
    let head = "title = 't'\nprofile = 'generic-400g'\n[run]\nnoise = 'off'\n";
    let points = expanded(&format!("{head}{INCAST}"), set).unwrap_or_else(|e| panic!("{e}"));
    Simulator.run(&points[0].point)
}

/// Links of every kind, and the bytes around 4 MB in 977 packets, of which the first has a RETH.
const KINDS: [(&[&str], u64); 4] = [
    (&["link=ib"], 26),
    (&["link=roce", "topology.switch=pfc"], 82),
    (&["link=roce", "topology.switch=tail-drop", "topology.buffer=40MB"], 82),
    (&["topology.switch=lossless", "topology.buffer=100KB"], 82),
];

/// Wire time of 4 MB at 100 Gb/s, in microseconds.
fn wire(around: u64) -> f64 {
    (4_000_000 + 977 * around + 16) as f64 * 8e-5
}

/// Two links of 1 us and a switch of 0.3 us, there and back.
const WAYS: f64 = 4.6;

#[test]
fn a_lone_flow_takes_its_bytes_and_its_way_over_every_kind_of_link() {
    for (kind, around) in KINDS {
        let o = incast(&[kind, &["program.0.hosts=1"]].concat());
        let late = number(&o, "fct_max") / 1e6 - wire(around) - WAYS;
        // A packet of 4178 B takes 0.334 us.
        assert!((0.0..0.334).contains(&late), "{kind:?}: {late}");
    }
}

#[test]
fn an_incast_ends_with_the_bytes_of_all_and_is_shared_evenly_over_every_link() {
    for (kind, around) in KINDS {
        let o = incast(kind);
        let (last, half) = (number(&o, "fct_max") / 1e6, number(&o, "fct_p50") / 1e6);
        let form = 8.0 * wire(around) + WAYS;
        assert!((last / form - 1.0).abs() < 0.002, "{kind:?}: {last} {form}");
        assert!(half / last > 0.99, "{kind:?}: {half} {last}");
        assert!(number(&o, "jain") > 0.9999, "{kind:?}");
        assert_eq!(number(&o, "counter.tail_drop"), 0.0, "{kind:?}");
        assert_eq!(number(&o, "counter.retransmitted_packets"), 0.0, "{kind:?}");
    }
}

/// What is too small is not lossless: the same incast over a buffer that does not hold it.
#[test]
fn a_buffer_below_the_incast_drops() {
    let small = ["link=roce", "topology.switch=tail-drop", "topology.buffer=1MB"];
    let o = incast(&[&small[..], &["qp.timeout=8"]].concat());
    assert!(number(&o, "counter.tail_drop") > 0.0);
}

#[test]
fn as_many_flows_as_queue_pairs_and_one_more() {
    let with = |most: u64, qps: u64| {
        result(&[
            "program.0.size=8KB",
            &format!("nic.max_qp={most}"),
            &format!("program.0.qps={qps}"),
        ])
    };
    for (most, qps) in [(8, 1), (16, 2)] {
        assert_eq!(with(most, qps).map(|o| o.exit.kind), Ok(ExitKind::Ok));
        match with(most - 1, qps) {
            Err(RunError::BadInput { path, message, help }) => {
                assert_eq!(path, "program.0.flows");
                let text = format!("{most} queue pairs on one host, the profile has {}", most - 1);
                assert_eq!(message, text);
                assert!(help.contains("nic.max_qp"), "{help}");
            }
            other => panic!("{most} {qps}: {other:?}"),
        }
    }
}

#[test]
fn a_byte_is_a_flow() {
    let o = incast(&["program.0.size=1B"]);
    assert_eq!((number(&o, "flows"), number(&o, "flows_unfinished")), (8.0, 0.0));
    assert_eq!(number(&o, "payload_bytes"), 8.0);
    // 99 B of a WRITE only over two links, 86 B back, 8 of them through one link, and a turn.
    let last = number(&o, "fct_max") / 1e6;
    assert!((last - WAYS - 0.086).abs() < 0.02, "{last}");
}

/// A flow that starts before the limit of the run and has no time to end is unfinished, and the run
/// says what to raise; one that is done before the limit is complete.
#[test]
fn a_start_next_to_the_limit_is_told_and_one_before_it_runs() {
    let starting = |start: &str| {
        let start = format!("program.0.flows.start={start}");
        incast(&["run.limit=1ms", "program.0.size=1KB", &start])
    };
    let o = starting("899us");
    assert_eq!(number(&o, "flows_unfinished"), 8.0);
    assert_eq!(o.exit.kind, ExitKind::NoProgress);
    assert!(o.exit.reason.contains("run.limit"), "{}", o.exit.reason);
    let o = starting("850us");
    assert_eq!((number(&o, "flows_unfinished"), o.exit.kind), (0.0, ExitKind::Ok));
}

/// Times near the end of the clock, 213 days, neither wrap around nor panic.
#[test]
fn starts_at_the_end_of_time_are_beyond_the_limit() {
    let o = incast(&["program.0.size=1KB", "program.0.flows.stagger=18446743s"]);
    assert_eq!(number(&o, "flows_unfinished"), 7.0);
    assert_eq!(o.exit.kind, ExitKind::NoProgress);
    let text = format!("title = 't'\nprofile = 'generic-400g'\n[run]\n{INCAST}");
    let e = expanded(&text, &["program.0.flows.start=18446743s"]).expect_err("refused");
    assert!(e.to_string().contains("flows start at 18446743s, and the run ends at 10s"), "{e}");
}
