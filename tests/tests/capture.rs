//! What `--pcap` writes: every packet at every port, and nothing else changes.

use std::collections::BTreeMap;

use doorbell::run::{Metric, MetricValue, Outcome, Runner, Simulator};
use doorbell_sim::wire::codec::{DecodeError, MIN_FRAME, decode};
use doorbell_tests::captured::{Record, built_in, captured, points, records};
use doorbell_tests::command::{Folder, run};

const COMMAND: &str = env!("CARGO_BIN_EXE_command");

/// Preamble, FCS and gap, which a frame has not.
const AROUND_FRAME: u64 = 24;

/// Two senders that are faster than the one output between them and the third host; datagrams
/// are not sent again.
const LOSSY: &str = "title = 't'\nprofile = 'generic-400g'\n[run]\nnoise = 'off'\n\
    [topology]\nkind = 'switch'\nhosts = 3\nrate = '25Gbps'\n\
    switch = 'tail-drop'\nbuffer = '20KiB'\n\
    [qp]\ntype = 'UD'\n\
    [[program]]\nkind = 'message-rate'\nname = 'a'\nop = 'send'\nsize = '2KiB'\n\
    iterations = 60\nhost = 0\npeer = 2\n\
    [[program]]\nkind = 'message-rate'\nname = 'b'\nop = 'send'\nsize = '2KiB'\n\
    iterations = 60\nhost = 1\npeer = 2\n";

fn metric(outcome: &Outcome, name: &str) -> u64 {
    match outcome.metrics[name] {
        Metric { value: MetricValue::Integer(n), .. } => n,
        ref other => panic!("{name}: {other:?}"),
    }
}

/// Frames of each port: sent and received.
fn by_port(records: &[Record]) -> BTreeMap<&str, (usize, usize)> {
    let mut ports = BTreeMap::new();
    for r in records.iter().filter(|r| !r.comment.contains("dropped")) {
        let (sent, received) = ports.entry(r.interface.as_str()).or_insert((0, 0));
        *(if r.outbound { sent } else { received }) += 1;
    }
    ports
}

#[test]
fn nothing_but_the_file_changes() {
    for name in ["hello", "case_f05_atomics_share_the_read_depth", "case_g01_read_then_write"] {
        for point in built_in(name) {
            let (outcome, file) = captured(&point);
            assert!(outcome == Simulator.run(&point).unwrap(), "{name}, {}", point.label());
            assert!(captured(&point).1 == file, "{name}: the same bytes again");
        }
    }
    let folder = Folder::new("pcap");
    let path = folder.path().join("deep");
    let path = path.to_str().unwrap();
    let plain = run(COMMAND, &["run", "hello", "--json"]);
    let with = run(COMMAND, &["run", "hello", "--json", "--pcap", path]);
    assert_eq!((&with.stdout, with.status), (&plain.stdout, plain.status));
    let file = std::fs::read(folder.path().join("deep").join("hello.pcapng")).unwrap();
    assert!(file == captured(&built_in("hello")[0]).1);
    let file = folder.file("no-folder", b"");
    let refused = run(COMMAND, &["run", "hello", "--pcap", &file]);
    assert_eq!(refused.status, 2, "{refused:?}");
    assert!(refused.stderr.contains("cannot write"), "{refused:?}");
}

#[test]
fn every_packet_is_there_with_its_size_and_in_order() {
    for point in built_in("case_d04_batching_saves_no_round_trip") {
        let (outcome, file) = captured(&point);
        let records = records(&file);
        let sent: Vec<&Record> = records.iter().filter(|r| r.outbound).collect();
        let tx = outcome.counters["tx_packets"];
        assert_eq!(sent.len() as u64, tx);
        assert_eq!(records.len() as u64, 2 * tx, "as many arrive");
        let bytes = sent.iter().map(|r| r.frame.len() as u64 + AROUND_FRAME).sum::<u64>();
        assert_eq!(bytes, metric(&outcome, "wire_bytes"));
        assert!(records.is_sorted_by_key(|r| r.nanoseconds));
        assert!(records.iter().all(|r| r.comment.is_empty()));
        for r in &records {
            decode(&r.frame).unwrap_or_else(|e| panic!("{e}: {r:?}"));
            assert!(r.frame.len() >= MIN_FRAME);
        }
    }
}

/// The time stamps are those of the last bit: a packet arrives one propagation after it has left.
#[test]
fn stamps_are_of_the_last_bit() {
    let point = built_in("hello").remove(0);
    let (_, file) = captured(&point);
    let records = records(&file);
    let propagation = u128::from(point.profile.port.propagation.as_ps()) / 1_000;
    let pairs: Vec<_> = records.chunks(2).collect();
    assert_eq!(pairs.len(), 2, "a WRITE and its ACK");
    for pair in pairs {
        let [left, arrived] = pair else { panic!("odd: {records:?}") };
        assert!(left.outbound && !arrived.outbound && left.frame == arrived.frame);
        let flight = arrived.nanoseconds - left.nanoseconds;
        assert!(flight.abs_diff(propagation) <= 1, "{flight} ns, {propagation} ns of cable");
    }
}

#[test]
fn a_switch_shows_what_it_forwards_and_what_it_drops() {
    let point = points("lossy", LOSSY).remove(0);
    let (outcome, file) = captured(&point);
    let records = records(&file);
    let dropped: Vec<_> = records.iter().filter(|r| !r.comment.is_empty()).collect();
    let lost = outcome.counters["tail_drop"];
    assert!(lost > 0, "the buffer is too small for both: {:?}", outcome.counters);
    assert_eq!(dropped.len() as u64, lost);
    for r in &dropped {
        let at = (r.interface.as_str(), r.comment.as_str(), r.outbound);
        assert_eq!(at, ("switch0.port2", "dropped here: tail_drop", true));
    }
    let ports = by_port(&records);
    let sent = ports["host0.port0"].0 + ports["host1.port0"].0;
    let (forwarded, received) = (ports["switch0.port2"].0, ports["host2.port0"].1);
    assert_eq!((sent - lost as usize, forwarded), (forwarded, received));
    assert!(records.is_sorted_by_key(|r| r.nanoseconds));
}

// ---- reasons -------------------------------------------------------------------------------

/// What the comments of the packets say that were sent, and by which host.
fn comments(point: &doorbell::run::Point) -> Vec<(char, String)> {
    let (_, file) = captured(point);
    let said = records(&file).into_iter().filter(|r| r.outbound && !r.comment.is_empty());
    said.map(|r| (r.interface.chars().nth(4).expect("hostN"), r.comment)).collect()
}

/// A script of one host against one that answers; `rest` follows the program.
fn script(steps: &str, rest: &str) -> doorbell::run::Point {
    let text = format!(
        "title = 't'\nprofile = 'generic-400g'\n[run]\nnoise = 'off'\n\
         [[program]]\nkind = 'script'\nsteps = [{steps}]\n{rest}"
    );
    points("script", &text).remove(0)
}

fn lost(class: &str, nth: u32) -> String {
    format!("[[fault]]\nid = 'lost'\nkind = 'drop'\nclass = '{class}'\nnth = {nth}\n")
}

fn expect(point: &doorbell::run::Point, expected: &[(char, &str)]) {
    let said = comments(point);
    let said: Vec<_> = said.iter().map(|(host, text)| (*host, text.as_str())).collect();
    assert_eq!(said, expected);
}

#[test]
fn a_retransmission_says_which_one_it_is_and_what_began_it() {
    let (again, implied) = ("duplicate, answered again", "retransmission 1 of 7, implied NAK");
    let resumed = "retransmission 1 of 7, READ response missing; READ resumed at packet 3 of 4";
    let points = built_in("case_m02_ack_over_a_read");
    let [between, given, selective, last, third, around] = &points[..] else {
        panic!("{} points", points.len())
    };
    let acknowledged = "duplicate, acknowledged again";
    for point in [between, given] {
        expect(point, &[('0', implied), ('0', implied), ('1', again), ('1', acknowledged)]);
    }
    expect(selective, &[('0', implied), ('1', again)]);
    let three = [('0', implied); 3];
    let answers = [('1', again), ('1', acknowledged), ('1', again)];
    expect(around, &[three, answers].concat());
    expect(last, &[('0', "retransmission 1 of 7, ack timeout"), ('1', again)]);
    expect(third, &[('0', resumed), ('1', again), ('1', again)]);
}

#[test]
fn rounds_are_counted_up_to_the_limit_and_there_may_be_none() {
    let points = built_in("case_b04_rnr_retry_0");
    let naks = |n: u32, of: &str| -> Vec<(char, String)> {
        let round = |i: u32| match i {
            0 => vec![('1', "RNR NAK: no receive".to_owned())],
            i => vec![
                ('0', format!("retransmission {i}{of}, RNR wait of code 12")),
                ('1', "RNR NAK: no receive".to_owned()),
            ],
        };
        (0..=n).flat_map(round).collect()
    };
    assert_eq!(comments(&points[0]), naks(0, " of 0"));
    assert_eq!(comments(&points[1]), naks(3, " of 3"));
    assert_eq!(comments(&points[2]), naks(6, " of 6"));
    let for_ever = comments(&points[3]);
    let (end, before) = for_ever.split_last().expect("it waits for 50 ms");
    assert!(before == naks(before.len() as u32 / 2, ""), "{before:?}");
    assert!(end.1.ends_with("RNR wait of code 12"), "{end:?}");
}

#[test]
fn a_nak_says_what_the_responder_saw() {
    let two = "'post write 8B', 'post write 8B', 'ring', 'wait 2'";
    let psn = |comment: &str, at: usize| -> u32 {
        let words = comment.replace(',', "");
        words.split(' ').nth(at).and_then(|n| n.parse().ok()).expect(comment)
    };
    let said = comments(&script(two, &lost("write", 1)));
    let [(by, nak), first, second] = &said[..] else { panic!("{said:?}") };
    assert!(nak.starts_with("sequence NAK: expected PSN "), "{nak}");
    assert_eq!((*by, psn(nak, 4) + 1), ('1', psn(nak, 6)));
    for resent in [first, second] {
        assert_eq!(*resent, ('0', "retransmission 1 of 7, sequence NAK".to_owned()));
    }
    for (post, why) in [
        ("fetch-add remote=4B", "ATOMIC address not a multiple of 8"),
        ("write 8B remote=end+1B", "the range is not inside the region"),
        ("write 8B rkey=wrong", "no region has this remote key (any more)"),
        ("write 8B rkey=foreign", "the region of the remote key is of another protection domain"),
    ] {
        let steps = format!("'post {post} anyway', 'ring', 'wait'");
        expect(&script(&steps, ""), &[('1', &format!("NAK: {why}"))]);
    }
}

#[test]
fn the_second_timeout_in_a_row_is_the_second_retransmission() {
    let both = format!("{}{}", lost("write", 1), lost("write", 2).replace("'lost'", "'again'"));
    let timeout = |n| format!("retransmission {n} of 7, ack timeout");
    let (one, two) = (timeout(1), timeout(2));
    expect(&script("'post write 8B', 'ring', 'wait'", &both), &[('0', &one), ('0', &two)]);
}

#[test]
fn reasons_change_no_hash() {
    for name in ["case_m02_ack_over_a_read", "case_b04_rnr_retry_0"] {
        for point in built_in(name) {
            let (outcome, _) = captured(&point);
            let plain = Simulator.run(&point).unwrap();
            assert!(outcome == plain, "{name}, {}", point.label());
        }
    }
}

/// Damage is in the bytes from the end of the link on, also behind a switch, and the last port that
/// saw a packet says what became of it and by which fault.
#[test]
fn what_faults_do_is_in_the_file() {
    let fault = |id: &str, rest: &str| format!("[[fault]]\nid = '{id}'\nclass = 'write'\n{rest}\n");
    let rest = format!(
        "[topology]\nkind = 'switch'\n{}{}",
        fault("damage", "kind = 'corrupt'\nlink = 'host0-switch0'\nnth = 1"),
        fault("loss", "kind = 'drop'\nlink = 'host1-switch0'\nnth = 2"),
    );
    let steps = "'post write 8B x3', 'ring', 'wait 3'";
    let (outcome, file) = captured(&script(steps, &rest));
    assert_eq!(outcome.counters["rx_icrc_encapsulated"], 1);
    let records = records(&file);
    let said = |word: &str| -> Vec<(&str, &str)> {
        let all = records.iter().filter(|r| r.comment.contains(word));
        all.map(|r| (r.interface.as_str(), r.comment.as_str())).collect()
    };
    let damaged = "damaged by fault `damage`: wrong ICRC";
    let dropped = format!("{damaged}, dropped here");
    assert_eq!(said("damage"), [("switch0.port1", damaged), ("host1.port0", &dropped)]);
    let [(at, text)] = said("loss")[..] else { panic!("{:?}", said("loss")) };
    assert_eq!(at, "host1.port0");
    assert!(text.ends_with("dropped here: fault_drop, by fault `loss`"), "{text}");
    for r in &records {
        let read = decode(&r.frame);
        let wrong = matches!(read, Err(DecodeError::Icrc { .. }));
        assert_eq!(wrong, r.comment.contains(damaged), "{r:?}: {read:?}");
    }
}
