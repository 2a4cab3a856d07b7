//! Reports from made-up outcomes: stable bytes, all sections, both outputs of JUnit.

use super::*;
use crate::testing::{loaded, runs};

const ONE: &str = "title = 'one message'\nclaim = 'A06'\nprofile = 'generic-400g'\n\
    record = { timeline = true }\n[[program]]\nkind = 'latency'\niterations = 1\n";

fn report(text: &str) -> Report {
    let loaded = loaded(text, &[]).unwrap_or_else(|e| panic!("{e}: {:?}", e.remedy()));
    Report::new("t".into(), &loaded, runs(text, &[]))
}

#[test]
fn one_point_is_shown_in_full() {
    let text = to_text(&report(ONE), Rows::First);
    for part in [
        "t: one message [A06]\n",
        "simulated, model 1, profile generic-400g (parameters: ",
        "throughput",
        "host0.nic0  down       doorbell     32     1\n",
        "host0.core0    100.0 %       1    0 ps  <- limits\n",
        "limited by host0.core0\n",
        "1 counters at zero\n",
        "timeline of message 0\n",
        "  doorbell   host0.core0  20.000 ns    60.000 ns   40.000 ns  |#",
        "exit ok\nsimulated time 110 ns, 10 events, trace hash ",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
}

#[test]
fn several_points_are_a_table_with_the_expected_metrics_first() {
    let text = format!(
        "{}[sweep]\n'program.0.size' = ['8B', '1KiB']\n[[expect]]\nkind='monotone'\n\
         metric='latency.p99'\nover='size'\ndirection='falling'\nwhy='to fail'\n",
        ONE.replace("record = { timeline = true }\n", "")
    );
    let text = to_text(&report(&text), Rows::First);
    let header = "size  latency.p99  throughput  latency.p50  limited by\n";
    assert!(text.contains(header), "{text}");
    let same = "the same at all points: message_rate 9.091 M/s, doorbells 1, mmio_writes 1, ";
    assert!(text.contains(same), "{text}");
    let verdict = "FAILED  latency.p99 falls over size: to fail\n        \
                   found 1.008 us at 8B, 2.024 us at 1KiB\n";
    assert!(text.contains(verdict), "{text}");
}

#[test]
fn json_is_stable_and_has_no_trace_of_the_machine() {
    let (a, b) = (to_json(&report(ONE)), to_json(&report(ONE)));
    assert_eq!(a, b);
    let json: serde_json::Value = serde_json::from_str(&a).unwrap();
    assert_eq!(json["format"], "doorbell-report");
    assert_eq!((&json["version"], &json["simulated"]), (&1.into(), &true.into()));
    let point = &json["points"][0];
    assert_eq!(point["configuration"]["qp"]["timeout"], 14, "defaults are written out");
    assert_eq!(point["outcome"]["latencies_ps"]["latency"]["p50"], 1_008_000);
    assert_eq!(point["outcome"]["resources"][0]["name"], "host0.core0", "busiest first");
    assert_eq!(point["outcome"]["resources"][1]["busy_share"], 36666.0 / 110000.0);
    let width = &json["profiles"][0]["parameters"]["pcie.width"];
    assert_eq!((&width["value"], &width["confidence"]), (&"16".into(), &"assumed".into()));
    for word in ["/nowhere", "/work", "target", "wall"] {
        assert!(!a.contains(word), "{word}");
    }
}

#[test]
fn junit_counts_and_escapes() {
    let text = format!(
        "{ONE}[[expect]]\nkind='range'\nmetric='latency.p50'\nmax='1ns'\nwhy='a < \"b\" & c'\n\
         [[expect]]\nkind='range'\nmetric='latency.p50'\nmin='1ns'\nwhy='w'\n\
         [[expect]]\nkind='range'\nmetric='latence.p50'\nmin='1ns'\nwhy='w'\n"
    );
    let report = report(&text);
    let error = Some("bad\u{1}file".to_owned());
    let suites = [
        Suite { name: "t".into(), verdicts: report.verdicts, error: None },
        Suite { name: "u".into(), verdicts: vec![], error },
    ];
    let xml = to_junit(&suites);
    let total =
        "<testsuites name=\"doorbell\" tests=\"4\" failures=\"1\" errors=\"2\" skipped=\"0\">";
    assert!(xml.contains(total), "{xml}");
    assert!(xml.contains("<testsuite name=\"t\" tests=\"3\" failures=\"1\" errors=\"1\""), "{xml}");
    assert!(xml.contains("a &lt; &quot;b&quot; &amp; c"), "{xml}");
    assert!(xml.contains("<failure>FAILED  latency.p50 at most 1ns"), "{xml}");
    assert!(xml.contains("did you mean `latency.p50`?"), "{xml}");
    assert!(xml.contains("<error>bad\u{fffd}file</error>"), "{xml}");
}
