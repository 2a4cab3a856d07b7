//! Series of whole runs against closed forms, and against what the same run says without them.

use doorbell_core::units::Span;

use crate::run::simulate_tests::{number, outcome};
use crate::run::{Runner, Simulator};
use crate::testing::expanded;

/// Three senders of 1 MB to one host over a lossless switch with small buffers.
const INCAST: &str = "[topology]\nkind = 'switch'\nhosts = 4\nswitch = 'lossless'\n\
    buffer = '64KiB'\n\
    [[program]]\nname = 'a'\nkind = 'bandwidth'\nhost = 1\npeer = 0\nsize = '250KB'\n\
    iterations = 4\n\
    [[program]]\nname = 'b'\nkind = 'bandwidth'\nhost = 2\npeer = 0\nsize = '250KB'\n\
    iterations = 4\n\
    [[program]]\nname = 'c'\nkind = 'bandwidth'\nhost = 3\npeer = 0\nsize = '250KB'\n\
    iterations = 4\n\
    [record]\n";

/// A window in which all send: the incast takes 3 MB / 400 Gb/s = 60 us from 102 us on, when the
/// peers have found each other.
const ALL_SEND: &str = "[110us..150us]";

#[test]
fn of_three_equal_senders_each_starves_two_thirds_of_the_time() {
    let o = outcome(INCAST, &["record.series=1us"]);
    let n = |name: &str| number(&o, &format!("series.{name}{ALL_SEND}"));
    assert!(n("switch0.port0.busy.mean") > 0.999, "the link of the receiver never rests");
    for host in 1..4 {
        let (busy, starved) = (
            n(&format!("host{host}.port0.busy.mean")),
            n(&format!("host{host}.port0.starved.mean")),
        );
        assert!((busy - 1.0 / 3.0).abs() < 0.02, "host {host}: {busy}");
        assert!((busy + starved - 1.0).abs() < 0.02, "host {host}: {busy} and {starved}");
        assert!(n(&format!("host{host}.port0.credits.min")) < 4200.0, "not a packet fits");
    }
    // Goodput: payload of 4096 bytes of every packet of 4178 on the wire.
    let goodput: f64 = (0..3).map(|i| n(&format!("host0.qp{}.delivered.mean", 16 + i))).sum();
    assert!((goodput / 400e9 - 0.98).abs() < 0.01, "{goodput}");
}

#[test]
fn sums_and_peaks_of_series_are_those_of_the_counters() {
    for points in ["2", "64", "512"] {
        let set = ["record.series=3us", &format!("record.series_points={points}")];
        let o = outcome(INCAST, &set);
        let series = o.series.as_ref().unwrap();
        assert!(series.times.len() <= points.parse::<usize>().unwrap(), "{points}");
        assert_eq!(series.times.last(), Some(&o.sim_time));
        for port in o.network_ports.iter().filter(|p| !p.to.is_empty()) {
            let n = |what: &str| number(&o, &format!("series.{}.{what}", port.name));
            assert_eq!(n("sent.total"), port.bytes as f64, "{}", port.name);
            assert_eq!(n("busy.total"), port.busy_ps as f64, "{}", port.name);
            if let Some(starved) = port.starved_ps {
                assert_eq!(n("starved.total"), starved as f64, "{}", port.name);
            }
            assert_eq!(n("queue_max.max"), port.queue_max as f64, "{}", port.name);
        }
        assert_eq!(number(&o, "series.a.messages.total"), 4.0);
        assert_eq!(number(&o, "series.a.latency_max.max"), number(&o, "a.latency.max"));
        let delivered: f64 =
            (16..19).map(|qp| number(&o, &format!("series.host0.qp{qp}.delivered.total"))).sum();
        assert_eq!(delivered, 3e6);
    }
}

/// A message of 64 KiB over a slow link stands in the queue for a few microseconds: instants far
/// apart miss it, the peak does not.
#[test]
fn a_burst_between_two_points_is_in_the_peak() {
    let text = "[topology]\nkind = 'switch'\nhosts = 2\n\
        [[program]]\nkind = 'latency'\nsize = '64KiB'\niterations = 3\n\
        [record]\nseries = '10ms'\n";
    let o = outcome(text, &[]);
    assert_eq!(number(&o, "series.host0.port0.queue.max"), 0.0, "nothing at the end");
    assert!(number(&o, "series.host0.port0.queue_max.max") >= 4096.0);
}

#[test]
fn a_run_with_series_is_the_run_without() {
    let without = outcome(INCAST, &[]);
    for interval in ["100ns", "7us", "1ms"] {
        let mut with = outcome(INCAST, &[&format!("record.series={interval}")]);
        assert!(with.series.take().is_some_and(|s| !s.tracks.is_empty()));
        assert_eq!(with, without, "{interval}");
    }
    assert_eq!(without.series, None);
}

/// The ack timers of a run that is over come 67 ms after its end, and would stretch the interval
/// to a hundred times what was asked for.
#[test]
fn overtaken_timers_do_not_stretch_the_interval() {
    let o = outcome(INCAST, &["record.series=1us", "record.series_points=4096"]);
    let series = o.series.unwrap();
    assert_eq!(series.interval, Span::from_us(1));
    assert!(series.times.is_sorted() && series.times.len() as u64 > o.sim_time.as_ps() / 1_000_000);
}

#[test]
fn only_what_is_named_is_recorded() {
    let names = |of: &str| {
        let o = outcome(INCAST, &["record.series=10us", &format!("record.series_of=[{of}]")]);
        o.series.unwrap().tracks.iter().map(|t| t.name()).collect::<Vec<_>>()
    };
    assert_eq!(names("'switch0.port0.queue*'"), ["switch0.port0.queue", "switch0.port0.queue_max"]);
    assert_eq!(names("'a.latency','host1.port0.busy'"), ["host1.port0.busy", "a.latency"]);
    assert!(names("'rates'").iter().all(|n| n.contains(".qp")));
    assert!(names("'host3'").iter().all(|n| n.starts_with("host3.")));
}

#[test]
fn a_name_of_nothing_is_refused_with_its_place() {
    let head = "title = 't'\nprofile = 'generic-400g'\n";
    let set = ["record.series=10us", "record.series_of=['switch0', 'switch1.port*']"];
    let points = expanded(&format!("{head}{INCAST}"), &set).unwrap();
    let error = Simulator.run(&points[0].point).unwrap_err();
    let crate::run::RunError::BadInput { path, message, help } = error else { panic!("{error}") };
    assert_eq!(path, "record.series_of.1");
    assert!(message.contains("\"switch1.port*\" names nothing"), "{message}");
    assert!(help.contains("host0.port0") && help.contains("host0.qp16"), "{help}");
}

#[test]
fn bad_records_are_refused_and_their_neighbours_are_not() {
    let head = "title = 't'\nprofile = 'generic-400g'\n";
    let check = |set: &[&str]| {
        expanded(&format!("{head}{INCAST}"), set).map(drop).map_err(|e| e.to_string())
    };
    for (set, text) in [
        (&["record.series=1us", "record.series_points=3"][..], "pairs of points"),
        (&["record.series=1us", "record.series_points=1"], "impossible value"),
        (&["record.series=1us", "record.series_points=65537"], "impossible value"),
        (&["record.series_of=['queues']"], "without `series`"),
        (&["record.series=1us", "record.series_of=['queues', '']"], "an empty name"),
        (&["record.series=0us"], "is zero"),
    ] {
        let error = check(set).unwrap_err();
        assert!(error.contains(text), "{set:?}: {error}");
    }
    for set in [
        &["record.series=1us", "record.series_points=2"][..],
        &["record.series=1us", "record.series_points=65536"],
        &["record.series=1ps", "record.series_of=['queues']"],
    ] {
        assert_eq!(check(set), Ok(()), "{set:?}");
    }
}

#[test]
fn figures_have_units_windows_and_thresholds() {
    let o = outcome(INCAST, &["record.series=1us"]);
    let text = |name: &str| o.find(&format!("series.switch0.port0.{name}")).map(|f| f.text());
    let whole = number(&o, "series.switch0.port0.queue.time_above(0)");
    let none = number(&o, "series.switch0.port0.queue.time_above(1MB)");
    let zero = number(&o, "series.switch0.port0.queue.time_at_zero");
    assert!(whole > 0.0 && none == 0.0);
    assert_eq!(whole + zero, o.sim_time.as_ps() as f64);
    assert!(text("sent.max").unwrap().ends_with("b/s"));
    assert!(text("drops.total").unwrap() == "0");
    for slip in [
        "queue.time_above(1us)",
        "queue.mode",
        "queue.total",
        "queue.mean(1)",
        "queue.mean[1us]",
        "queue.mean[1s..2s]",
        "queues.mean",
    ] {
        assert_eq!(text(slip), None, "{slip}");
    }
    let known = o.names();
    assert!(known.iter().any(|n| n == "series.switch0.port0.queue.period"));
    assert!(known.iter().all(|n| o.find(n).is_some()));
}
