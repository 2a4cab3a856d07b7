//! Of several things that went wrong, the one that befell most transmissions is the cause.

use super::*;

fn two(first: &str, second: &str) -> String {
    format!("{}[[fault]]\nid = 'g'\nmaybe = true\nkind = {second}\n", fault(first))
}

#[test]
fn one_damaged_request_does_not_outweigh_seven_lost_answers() {
    let acks = "'drop'\nclass = 'ack'";
    let with =
        |damage: &str| run(ONE, &two(&format!("'corrupt'\nclass = 'write'\n{damage}"), acks), &[]);
    let d = died(&with("nth = 1"), "answers-lost", "g");
    assert!(d.verdict.contains("7 answers lost"), "{}", d.verdict);
    says(&d.other_side, "wrong ICRC");
    // Each of two links damages it: four of eight, and five.
    died(&with("budget = 8"), "answers-lost", "g");
    died(&with("budget = 10"), "corrupted", "icrc");
}

/// A message has many packets, and one ACK: packets do not weigh transmissions.
#[test]
fn one_lost_message_does_not_outweigh_seven_lost_answers() {
    let large = "'post write 64KiB', 'ring', 'wait'";
    let lost = |before: &str| {
        two(&format!("'drop'\nclass = 'write'\nbefore = '{before}'"), "'drop'\nclass = 'ack'")
    };
    // T is 1.05 ms: one transmission is lost, or six; of the others each packet is answered.
    let d = died(&run(large, &lost("1ms"), &[]), "answers-lost", "g");
    assert!(d.verdict.contains("16 request packets and 97 answers lost"), "{}", d.verdict);
    died(&run(large, &lost("6ms"), &[]), "requests-lost", "f");
}

#[test]
fn a_lost_answer_shows_that_the_peer_was_heard() {
    // The second SEND leaves before the ACK of the first one comes.
    let two = "'recv 8B', 'post send 8B x2', 'ring', 'wait'";
    let lost = fault("'drop'\nclass = 'rnr-nak'");
    let d = died(&run(two, &lost, &["qp.retry_cnt=0"]), "answers-lost", "f");
    assert!(d.verdict.contains("1 answer lost"), "{}", d.verdict);
    let seen = "'recv 8B x2', 'post send 8B x2', 'ring', 'wait'";
    lives(&run(seen, &lost, &["qp.retry_cnt=0"]));
}

/// Every answer is lost by a fault, from the first transmission on. The packets that are sent again
/// meet those of another queue pair in a full queue, which drops some: that is not what it died of.
#[test]
fn repeats_that_a_queue_drops_are_no_cause_where_all_answers_are_lost() {
    for start in ["4.2ms", "4.3ms", "4.36ms", "4.40ms"] {
        let flows = |host: u32, start: &str| {
            format!(
                "[[program]]\nkind = 'flows'\nname = 'p{host}'\nhost = {host}\nhosts = 1\n\
                 peer = 2\nsize = '2MB'\nflows = {{ pattern = 'incast', start = '{start}' }}\n"
            )
        };
        let text = format!(
            "title = 't'\nprofile = 'generic-400g'\n[run]\nnoise = 'off'\nhost = 'ideal'\n\
             [topology]\nkind = 'switch'\nhosts = 3\nrate = '100Gbps'\nswitch = 'tail-drop'\n\
             buffer = '500KB'\n[qp]\ntimeout = 10\n{}{}{}link = 'host2-switch0'\n\
             from = 'host2'\nafter = '0ns'\n",
            flows(0, "0ns"),
            flows(1, start),
            fault("'link-down'"),
        );
        let points = expanded(&text, &[]).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let o = Simulator.run(&points[0].point).unwrap_or_else(|e| panic!("{e}"));
        assert!(o.counters.get("tail_drop").is_some_and(|n| *n > 0), "{start}");
        let d = died(&o, "answers-lost", "f");
        says(&[d.verdict], "on the link into switch 0");
    }
}
