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
