//! Mechanisms that calibration rows show, each against its closed form and against its absence.

use super::simulate_tests::{ended as outcome, number};

/// Messages per second with `set`, against a time per message in nanoseconds.
#[track_caller]
fn takes(program: &str, set: &[&str], metric: &str, ns: f64) {
    let rate = number(&outcome(program, set), metric);
    assert!((rate * ns / 1e9 - 1.0).abs() < 0.01, "{set:?}: {} ns, not {ns}", 1e9 / rate);
}

/// One line each, by a core that is faster than the unit.
const SENDS: &str = "[qp]\nsq_depth = 256\n[[program]]\nkind = 'message-rate'\nsize = '8B'\n\
                     iterations = 4000\nwarmup = 500\nsignal_every = 64\n";

#[test]
fn a_unit_takes_longer_for_a_fetched_wqe_than_for_a_carried_one() {
    let slow = ["nic.pu_wqe=200ns", "nic.pu_packet=0ns", "nic.pu_fetched=50ns"];
    let with = |more: &[&'static str]| [&slow[..], more].concat();
    // With one outstanding the unit's time is a part of the latency only.
    let alone = ["program.0.window=1", "program.0.signal_every=1"];
    let carried = with(&[&alone[..], &["program.0.ring=blueflame"]].concat());
    let without = with(&[&alone[..], &["program.0.ring=blueflame", "nic.pu_fetched=0ns"]].concat());
    let latency = |set: &[&str]| 1e9 / number(&outcome(SENDS, set), "message_rate");
    assert_eq!(latency(&carried), latency(&without));
    takes(SENDS, &with(&["program.0.ring=doorbell"]), "message_rate", 250.0);
}

#[test]
fn blueflame_beyond_the_room_on_the_chip_is_fetched() {
    // The core makes one in about 85 ns, the unit needs 200: the backlog grows to the queue.
    let set = ["program.0.ring=blueflame", "nic.pu_wqe=200ns", "nic.pu_packet=0ns"];
    let fetched = |window: &str| {
        let window = format!("nic.wqe_window={window}");
        let o = outcome(SENDS, &[&set[..], &[window.as_str()]].concat());
        assert_eq!(number(&o, "blueflames"), 4500.0);
        number(&o, "counter.wqe_blocks_fetched")
    };
    assert_eq!(fetched("256"), 0.0);
    let narrow = fetched("32");
    assert!(narrow > 2000.0 && narrow < 4500.0, "{narrow}");
}

#[test]
fn blueflame_lines_share_the_doorbell_unit() {
    // Two cores, two lines each: 10 + 90 ns per write in the unit, cores in about 130.
    let set = [
        "program.0.threads=2",
        "program.0.size=60B",
        "program.0.ring=blueflame",
        "nic.doorbell=10ns",
        "nic.doorbell_line=90ns",
    ];
    takes(SENDS, &set, "message_rate", 100.0);
    // One line each: the cores are the limit again.
    let one = [&set[..], &["program.0.size=8B"]].concat();
    let rate = number(&outcome(SENDS, &one), "message_rate");
    assert!(rate > 1.5e7, "{rate}");
}

const DATAGRAMS: &str = "[qp]\ntype = 'UD'\nrq_depth = 8192\n[[program]]\nkind = 'message-rate'\n\
                         op = 'send'\niterations = 4000\nwarmup = 0\nbatch = 16\n\
                         signal_every = 16\nring = 'doorbell'\nreceives = 'once'\n";

#[test]
fn a_receive_with_payload_makes_a_second_write() {
    let set = ["nic.rx_packet=150ns", "nic.rx_recv=0ns", "nic.rx_write=100ns"];
    let size = |s: &'static str| [&set[..], &[s]].concat();
    takes(DATAGRAMS, &size("program.0.size=32B"), "receive_rate", 250.0);
    takes(DATAGRAMS, &size("program.0.size=0B"), "receive_rate", 150.0);
}

#[test]
fn the_link_takes_its_framing_per_packet() {
    let wire = |set: &[&str]| number(&outcome(SENDS, set), "wire_bytes");
    // 4500 WRITEs and an acknowledgement for each.
    assert_eq!(wire(&["port.framing=10B"]) - wire(&["port.framing=0B"]), 10.0 * 9000.0);
}

const ATOMICS: &str = "[qp]\nsq_depth = 16\n[[program]]\nkind = 'message-rate'\nop = 'fetch-add'\n\
                       qps = 2\niterations = 2000\nwarmup = 100\n";

#[test]
fn atomics_of_one_bucket_wait_for_each_other() {
    // The queue pairs' words are 64 bytes apart: other bits below 128, the same below 64.
    let rate = |buckets: &str| {
        let buckets = format!("nic.atomic_buckets={buckets}");
        number(&outcome(ATOMICS, &[buckets.as_str()]), "message_rate")
    };
    let (one, same, own) = (rate("1"), rate("64"), rate("128"));
    assert_eq!(one, same);
    assert!((own / one - 2.0).abs() < 0.05, "{own} against {one}");
}

#[test]
fn no_unit_is_forgotten_when_a_full_port_has_room_again() {
    let text = "[[program]]\nkind = 'bandwidth'\nsize = '64KiB'\nwindow = 8\niterations = 600\n";
    for qps in ["2", "3", "16"] {
        let set = [format!("program.0.qps={qps}"), "nic.tx_buffer=64KiB".to_owned()];
        let set: Vec<&str> = set.iter().map(String::as_str).collect();
        assert_eq!(number(&outcome(text, &set), "messages"), 600.0);
    }
}

/// What is on its way to the port when a queue pair goes to ERR does not leave, whether its WQEs
/// are still there or were polled: what was delivered is in memory, and nothing else is.
#[test]
fn issue_004_what_is_delivered_of_a_flushed_write_is_in_memory() {
    let run = |polls: &str| {
        let stores: String = (0..128_u64)
            .map(|i| format!("'store {} at={}B', ", i + 1, (1 << 20) + 4096 * i))
            .collect();
        let reads: String = (0..128_u64)
            .map(|i| {
                format!(
                    "'post read 8B qp=1 local=8MiB remote={}B', 'ring qp=1', 'wait 1', \
                     'load at=8MiB', ",
                    4096 * i
                )
            })
            .collect();
        let text = format!(
            "[[program]]\nkind = 'script'\nqps = 2\npayload = 'data'\n\
             steps = [{stores}'post write 512KiB local=1MiB', 'ring', 'compute 3us', 'state err', \
             {polls}, {reads}'compute 0us']\n"
        );
        let o = outcome(&text, &[]);
        let first = 128 + 4 + polls.split(", ").count();
        let words = (0..128).map(|i| number(&o, &format!("step.{}.count", first + 4 * i + 3)));
        let there = words.zip(1_u32..).filter(|(word, i)| *word == f64::from(*i)).count() as f64;
        let delivered = number(&o, "delivered_bytes") - 128.0 * 8.0;
        (there * 4096.0, delivered)
    };
    let late = "'compute 50us', 'poll 16'";
    let at_once = "'poll 16', 'compute 1us', 'poll 16', 'compute 50us', 'poll 16'";
    for polls in [late, at_once, "'drain', 'compute 50us', 'poll 16'"] {
        let (there, delivered) = run(polls);
        assert!(delivered > 0.0 && delivered < f64::from(512 << 10), "{polls}: {delivered}");
        assert_eq!(there, delivered, "{polls}");
    }
}
