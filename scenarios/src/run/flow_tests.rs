//! Flows against closed forms, and what they promise about draws.

use super::flows::{Flow, flows};
use super::simulate_tests::{number, outcome};
use crate::testing::expanded;

const HEAD: &str = "title = 't'\nprofile = 'generic-400g'\n[run]\nnoise = 'off'\nhost = 'ideal'\n";

/// The flows of the only program.
#[track_caller]
fn list(text: &str, set: &[&str]) -> Vec<Flow> {
    let points =
        expanded(&format!("{HEAD}{text}"), set).unwrap_or_else(|e| panic!("{e}: {:?}", e.remedy()));
    flows(&points[0].point, 0).unwrap()
}

#[track_caller]
fn refused(text: &str, set: &[&str]) -> String {
    match expanded(&format!("{HEAD}{text}"), set) {
        Ok(_) => panic!("accepted {set:?}"),
        Err(e) => {
            assert!(e.remedy().is_some_and(|r| !r.is_empty()), "{}", e.message());
            e.message().to_owned()
        }
    }
}

const SWITCH: &str = "host = 'ideal'\n[topology]\nkind = 'switch'\nhosts = 9\nrate = '100Gbps'\n\
                      propagation = '1us'\n[[program]]\nkind = 'flows'\n";

fn among(pattern: &str) -> String {
    let topology = SWITCH.strip_prefix("host = 'ideal'\n").unwrap();
    format!("{topology}hosts = 8\nsize = '1MB'\nflows = {{ pattern = '{pattern}' }}\n")
}

/// 1 MB: 245 packets of 82 B around, a RETH of 16 B: 1,020,106 B at 100 Gb/s. Two links of 1 us and
/// a switch of 0.3 us each way; a READ asks first, over the same way.
#[test]
fn every_operation_takes_its_bytes_and_its_way() {
    for (op, us) in [("write", 86.22), ("send", 86.22), ("read", 86.24)] {
        let text = format!(
            "{SWITCH}host = 1\npeer = 0\nop = '{op}'\nsize = '1MB'\n\
                            flows = {{ pattern = 'incast' }}\n"
        );
        let o = outcome(&text, &[]);
        let fct = number(&o, "fct_max") / 1e6;
        assert!((fct - us).abs() < 0.09, "{op}: {fct}");
        assert!((number(&o, "slowdown_max") - 1.0).abs() < 0.002, "{op}");
        let placed = number(&o, "last_placed") / 1e6;
        let back = if op == "read" { 0.0 } else { 2.3 };
        assert!((fct - placed - back).abs() < 0.06, "{op}: {fct} {placed}");
    }
}

/// On an ideal host only the wire takes time: 4,096 B with 98 B around them there, 86 B of
/// acknowledgement back, 80 ps a byte, 1 us each way.
#[test]
fn an_ideal_host_takes_no_time() {
    let text = "host = 'ideal'\n[topology]\nkind = 'back-to-back'\nrate = '100Gbps'\n\
                propagation = '1us'\n[[program]]\nkind = 'flows'\nhost = 1\npeer = 0\n\
                size = '4KiB'\nflows = { pattern = 'incast' }\n";
    let o = outcome(text, &["qp.mtu='4KiB'"]);
    assert_eq!(number(&o, "fct_max"), f64::from((4096 + 98 + 86) * 80 + 2_000_000));
    // An arrival and a turn at the port for each packet, and few acknowledgements: no stage of the
    // hosts.
    let events = outcome(text, &["qp.mtu='4KiB'", "program.0.size='4MiB'"]).events - o.events;
    assert!(events <= 2 * 1023 + 8, "{events} events for 1,023 packets more");
}

/// Eight flows to one host have an eighth of its link each, and all end together.
#[test]
fn equal_flows_share_evenly() {
    let text = format!(
        "{SWITCH}host = 1\nhosts = 8\npeer = 0\nsize = '4MB'\n\
                        flows = {{ pattern = 'incast' }}\n"
    );
    let o = outcome(&text, &["qp.timeout=20"]);
    assert!(number(&o, "jain") > 0.9999, "{}", number(&o, "jain"));
    let (half, last) = (number(&o, "fct_p50"), number(&o, "fct_max"));
    assert!(last / half < 1.01, "{half} {last}");
    // 8 x 4,080,130 B at 100 Gb/s, and the way.
    assert!((last / 1e6 / (2611.28 + 4.6) - 1.0).abs() < 0.002, "{last}");
    assert_eq!(number(&o, "victims"), 0.0);
}

/// What a host sends to seven others goes in turns from the first packet on, so all of it ends
/// together; 200 kB are 49 packets, 204,134 B.
#[test]
fn the_flows_of_a_host_take_turns() {
    let o =
        outcome(&format!("host = 'ideal'\n{}", among("all-to-all")), &["program.0.size='200KB'"]);
    let (last, median) = (number(&o, "fct_max"), number(&o, "fct_p50"));
    let bound = f64::from(7 * 204_134 * 80);
    assert!(last >= bound && last <= 1.05 * bound, "{last} of {bound}");
    assert!(median >= 0.98 * last && number(&o, "jain") >= 0.999, "{median} of {last}");
}

#[test]
fn a_ring_passes_on_what_it_has_got() {
    let one = outcome(
        &format!(
            "{SWITCH}hosts = 4\nsize = '4MiB'\n\
                                flows = {{ pattern = 'ring-allreduce' }}\n"
        ),
        &[],
    );
    // 6 steps of 1 MiB: 85.58 us and 2.3 us of way; the last acknowledgement 2.3 us more.
    let last = number(&one, "last_completion") / 1e6;
    assert!((last / (6.0 * 87.88 + 2.3) - 1.0).abs() < 0.01, "{last}");
    assert_eq!(number(&one, "messages"), 24.0);
    let parts = outcome(
        &format!(
            "{SWITCH}hosts = 4\nsize = '4MiB'\nflows = {{ pattern = \
                                  'ring-allreduce', chunk = '128KiB' }}\n"
        ),
        &[],
    );
    assert_eq!(number(&parts, "messages"), 192.0);
    // Chunks overlap the ways: what is left is the time of the bytes.
    let overlapped = number(&parts, "last_completion") / 1e6;
    assert!(overlapped < last && overlapped > 6.0 * 85.5, "{overlapped} {last}");
}

#[test]
fn several_queue_pairs_share_a_flow() {
    let text = format!(
        "{SWITCH}host = 1\npeer = 0\nsize = '1MB'\nqps = 3\n\
                        flows = {{ pattern = 'incast' }}\n"
    );
    let o = outcome(&text, &[]);
    assert_eq!((number(&o, "messages"), number(&o, "flows")), (3.0, 1.0));
    assert_eq!(number(&o, "payload_bytes"), 1e6);
}

#[test]
fn seeds_and_programs_decide_draws_and_nothing_else_does() {
    let permutation = among("permutation");
    let one = list(&permutation, &[]);
    assert!(one.iter().all(|f| f.src != f.dst));
    assert_eq!(one, list(&permutation, &[]));
    assert!((2..9).any(|seed| list(&permutation, &[&format!("seed={seed}")]) != one));
    let poisson = format!(
        "{}load = '50%'\nduration = '1ms'\nsizes = 'hadoop'\n",
        among("poisson")
            .replace("size = '1MB'\n", "")
            .replace("flows = { pattern = 'poisson' }", "[program.flows]\npattern = 'poisson'")
    );
    let eight = list(&poisson, &[]);
    assert_eq!(eight, list(&poisson, &[]));
    assert!(eight.is_sorted_by_key(|f| f.start));
    // Half of 100 Gb/s for 1 ms on 8 hosts, 120,420 B each: 415 flows on average.
    assert!((300..540).contains(&eight.len()), "{}", eight.len());
    // A host more: the starts of the others stay.
    let starts = |l: &[Flow]| l.iter().filter(|f| f.src == 2).map(|f| f.start).collect::<Vec<_>>();
    assert_eq!(starts(&eight), starts(&list(&poisson, &["program.0.hosts=9"])));
}

#[test]
fn programs_run_side_by_side_on_the_same_hosts() {
    let text = format!(
        "{SWITCH}name = 'east'\nhosts = 8\nsize = '100KB'\n\
                        flows = {{ pattern = 'all-to-all' }}\n[[program]]\nname = 'north'\n\
                        kind = 'flows'\nhosts = 8\npeer = 8\nsize = '1MB'\n\
                        flows = {{ pattern = 'incast', start = '10us' }}\n[[program]]\n\
                        name = 'tool'\nkind = 'latency'\nhost = 0\npeer = 1\n"
    );
    let o = outcome(&text, &["qp.timeout=20"]);
    assert_eq!((number(&o, "east.flows"), number(&o, "north.flows")), (56.0, 8.0));
    assert_eq!(number(&o, "flows"), 64.0);
    assert!(number(&o, "north.fct_p50") > number(&o, "east.fct_p50"));
    assert!(number(&o, "tool.latency.p50") > 0.0);
    assert_eq!(o.flows.as_ref().map(|f| (f.flows.len(), f.left_out)), Some((64, 0)));
}

/// A flow whose packets never arrive is unfinished, and the run says why.
#[test]
fn a_flow_that_cannot_end_is_counted() {
    let text = format!(
        "{SWITCH}host = 1\npeer = 0\nsize = '1MB'\n\
                        flows = {{ pattern = 'incast' }}\n[[fault]]\nid = 'cut'\n\
                        kind = 'drop'\nlink = 'host1-switch0'\n"
    );
    let o = outcome(&text, &["qp.timeout=8", "qp.retry_cnt=1"]);
    assert_eq!(number(&o, "flows_unfinished"), 1.0);
    assert_ne!(o.exit.kind, super::ExitKind::Ok);
}

#[test]
fn contradictions_have_a_place_and_a_remedy() {
    let p = among("permutation");
    assert_eq!(refused(&p, &["program.0.hosts=1"]), "`permutation` among 1 host");
    assert!(refused(&p, &["program.0.hosts=10"]).starts_with("`hosts` is 10 from host 0 on"));
    assert!(list(&p, &["program.0.hosts=9"]).len() == 9);
    assert_eq!(refused(&p, &["program.0.iterations=5"]), "`iterations` has no use in `flows`");
    assert_eq!(refused(&p, &["program.0.op=fetch-add"]), "flows by `fetch-add`");
    let chunk = refused(&p, &["program.0.flows.chunk=1KB"]);
    assert_eq!(chunk, "`chunk` has no use in the pattern `permutation`");
    assert_eq!(refused(&p, &["qp.type=UC"]), "flows are between RC queue pairs");
    let i = among("incast");
    assert!(refused(&i, &["program.0.peer=7"]).starts_with("hosts 0 to 7 send to"));
    assert!(refused(&i, &["program.0.peer=9"]).starts_with("`peer` is 9"));
    let nic = refused(&i, &["program.0.nic=1", "program.0.peer=8"]);
    assert_eq!(nic, "NIC 1 of host 0, which has 1, from 0 on");
    assert_eq!(list(&i, &["program.0.peer=8"]).len(), 8);
    assert_eq!(refused(&among("poisson"), &[]), "the pattern `poisson` needs `load`");
    assert_eq!(refused(&among("trace"), &[]), "the pattern `trace` needs `file`");
    let r = among("ring-allreduce");
    assert!(refused(&r, &["program.0.flows.chunk=125001B"]).starts_with("a `chunk` of"));
    assert_eq!(list(&r, &["program.0.flows.chunk=125000B"]).len(), 8);
    let load = |l: &str| {
        refused(
            &among("poisson"),
            &[&format!("program.0.flows.load={l}"), "program.0.flows.duration=1us"],
        )
    };
    assert!(load("0%").starts_with("a load of") && load("101%").starts_with("a load of"));
}

/// 100 us connect queue pairs, and 1 MB takes 80 us at 100 Gb/s: in 1 ms it has to start by 820 us.
#[test]
fn flows_start_and_end_before_the_run_does() {
    let path = std::env::temp_dir().join(format!("doorbell-late-{}.csv", std::process::id()));
    let name = path.display().to_string();
    let topology = among("trace").replace("hosts = 8\nsize = '1MB'\n", "");
    let trace = topology.replace("'trace'", &format!("'trace', file = '{name}'"));
    let limit = "run.limit=1ms";
    let starts = |ns: u64| {
        std::fs::write(&path, format!("src,dst,bytes,start_ns\n0,1,8,0\n1,2,1000000,{ns}\n"))
            .expect("a temporary file");
    };
    starts(820_000);
    assert_eq!(list(&trace, &[limit]).len(), 2);
    let later = refused(&trace, &[limit, "program.0.flows.start=1ns"]);
    assert!(later.starts_with("flow 2 of the list has 1MB, starts at 820us and takes 80us"));
    for key in ["host", "hosts", "peer"] {
        let set = format!("program.0.{key}=2");
        let want = format!("`{key}` has no use in the pattern `trace`");
        assert_eq!(refused(&trace, &[limit, &set]), want);
    }
    starts(820_001);
    assert!(refused(&trace, &[limit]).contains("the run ends at 1ms, 100us of which connect"));
    assert_eq!(list(&trace, &["run.limit=2ms"]).len(), 2);
    std::fs::remove_file(&path).expect("it is there");

    let p = among("permutation");
    let start = |at: &str| format!("program.0.flows.start={at}");
    assert_eq!(list(&p, &[limit, &start("899us")]).len(), 8);
    assert!(
        refused(&p, &[limit, &start("900us")]).starts_with("flows start at 900us, and the run")
    );
    assert_eq!(
        refused(&p, &["program.0.peer=8"]),
        "`peer` has no use in the pattern `permutation`"
    );
    let poisson = |d: &str| [limit.into(), "program.0.flows.load=50%".into(), d.to_owned()];
    let duration = poisson("program.0.flows.duration=900us");
    assert!(!list(&among("poisson"), &duration.each_ref().map(String::as_str)).is_empty());
    let longer = poisson("program.0.flows.duration=901us");
    let text = refused(&among("poisson"), &longer.each_ref().map(String::as_str));
    assert!(text.starts_with("flows go on starting for that long"), "{text}");
}

/// What a full queue drops was somebody's: of two equal senders both lose, and together all of it.
#[test]
fn each_flow_says_what_the_network_lost_of_it() {
    let text = format!(
        "{SWITCH}host = 1\nhosts = 2\npeer = 0\nsize = '1MB'\nflows = {{ pattern = 'incast' }}\n"
    );
    let noise = ["run.noise=on", "topology.switch=tail-drop", "topology.buffer=100KB"];
    let o = outcome(&text, &noise);
    let lost: Vec<u64> = o.flows.as_ref().expect("flows").flows.iter().map(|f| f.lost).collect();
    let dropped = number(&o, "counter.tail_drop");
    assert_eq!((lost[0] + lost[1]) as f64, dropped);
    assert!(lost.iter().all(|n| *n > 0), "{lost:?}");
}
