//! Faults in files: what is refused and how, and what comes back out.

use super::{Fault, FaultKind};
use crate::input::{InputError, Node, Source};
use crate::testing::expanded;

/// A good file; the fault's keys follow, from line 9 on.
const HEAD: &str = "\
title = 't'
profile = 'generic-400g'
[[program]]
kind = 'bandwidth'
[topology]
kind = 'switch'
hosts = 4
[[fault]]
";

fn error(fault: &str, set: &[&str]) -> InputError {
    match expanded(&format!("{HEAD}{fault}"), set) {
        Ok(_) => panic!("accepted:\n{fault}"),
        Err(error) => error,
    }
}

#[track_caller]
fn good(fault: &str) -> Fault {
    let points = expanded(&format!("{HEAD}{fault}"), &[]);
    let points = points.unwrap_or_else(|e| panic!("{e}: {:?}", e.remedy()));
    points[0].point.scenario.fault[0].clone()
}

/// Refused with this message, place included, and help.
#[track_caller]
fn refused(fault: &str, message: &str, help: &str) {
    let e = error(fault, &[]);
    assert_eq!(e.to_string(), format!("t.toml:{message}"));
    assert!(e.remedy().unwrap_or("").contains(help), "{:?}", e.remedy());
}

#[test]
fn names_are_checked() {
    refused(
        "id = 'a b'\nkind = 'drop'",
        "9:6: \"a b\" is no name of a fault",
        "use a to z, 0 to 9, `-` and `_`",
    );
    refused(
        "id = 'a'\nkind = 'drop'\n[[fault]]\nid = 'a'\nkind = 'drop'",
        "12:6: two faults are called \"a\"",
        "rename",
    );
    refused("kind = 'drop'", "8:1: the key `id` is missing", "");
}

#[test]
fn kinds_and_keys_have_a_nearest() {
    refused("id = 'a'\nkind = 'dorp'", "10:8: unknown value \"dorp\"", "did you mean `drop`?");
    refused("id = 'a'\nkind = 'drop'\nlnik = 'x'", "11:1: unknown key `lnik`", "`link`");
    refused(
        "id = 'a'\nkind = 'drop'\ndelay = '1us'",
        "11:9: `delay` has no use in a fault of kind `drop`",
        "the nearest of 16 keys are dest, class",
    );
    refused(
        "id = 'a'\nkind = 'peer-dead'\nhost = 1\nbefore = '1us'",
        "12:10: `before` has no use in a fault of kind `peer-dead`",
        "host, after",
    );
    refused(
        "id = 'a'\nkind = 'drop'\nclass = 'acks'",
        "11:9: unknown value \"acks\"",
        "did you mean `ack`?",
    );
}

#[test]
fn every_kind_says_what_it_needs() {
    for kind in FaultKind::ALL {
        for key in kind.needed() {
            let given = |k: &&&str| *k != key;
            let others = kind.needed().iter().filter(given).map(|k| match *k {
                "host" => "host = 1\n",
                "before" => "before = '1ms'\n",
                "qp" => "qp = 16\n",
                other => panic!("an example of {other} is missing"),
            });
            let fault =
                format!("id = 'a'\nkind = '{}'\n{}", kind.word(), others.collect::<String>());
            let message = format!("10:8: a fault of kind `{}` without `{key}`", kind.word());
            refused(&fault, &message, &format!("{key} = "));
        }
    }
    let neither = "10:8: a hold ends by `until` or by `released_by`";
    refused("id = 'a'\nkind = 'hold'", neither, "give one");
    refused("id = 'a'\nkind = 'hold'\nuntil = '1us'\nreleased_by = 'b'", neither, "give one");
}

#[test]
fn what_the_network_has_not_is_refused_with_the_nearest() {
    refused(
        "id = 'a'\nkind = 'drop'\nlink = 'host1-swich0'",
        "11:8: there is no link \"host1-swich0\"",
        "did you mean `host1-switch0`?",
    );
    for link in ["host0-host1", "host4-switch0", "host0-switch1", "host0-host0", "x"] {
        let fault = format!("id = 'a'\nkind = 'drop'\nlink = '{link}'");
        assert!(error(&fault, &[]).to_string().contains("there is no link"), "{link}");
    }
    refused(
        "id = 'a'\nkind = 'drop'\nlink = 'host1-switch0'\nfrom = 'host2'",
        "12:8: \"host2\" is no end of link \"host1-switch0\"",
        "did you mean `host1`?",
    );
    refused(
        "id = 'a'\nkind = 'drop'\nfrom = 'host9'",
        "11:8: \"host9\" is no end of a link",
        "did you mean `host",
    );
    for key in ["source", "dest"] {
        let fault = format!("id = 'a'\nkind = 'drop'\n{key} = 4");
        let e = error(&fault, &[]);
        assert!(e.to_string().contains(&format!("`{key}` is 4, and there are 4 hosts")), "{e}");
        good(&fault.replace('4', "3"));
    }
    let e = error("id = 'a'\nkind = 'peer-dead'\nhost = 4", &[]);
    assert!(e.to_string().contains("`host` is 4, and there are 4 hosts, 0 to 3"), "{e}");
    refused(
        "id = 'a'\nkind = 'drop'\nsource = 1\ndest = 1",
        "12:8: `source` and `dest` are both 1",
        "no packet goes",
    );
    good("id = 'a'\nkind = 'drop'\nlink = 'switch0.port1-host1'\nfrom = 'switch0'");
}

#[test]
fn opcodes_have_a_nearest_and_a_service() {
    refused(
        "id = 'a'\nkind = 'drop'\nopcode = 'rc-rdma-write-onyl'",
        "11:10: there is no opcode \"rc-rdma-write-onyl\"",
        "did you mean `rc-rdma-write-only`?",
    );
    refused(
        "id = 'a'\nkind = 'drop'\nopcode = 'uc-send-only'",
        "11:10: no packet has opcode \"uc-send-only\" where `qp.type` is \"RC\"",
        "change the type",
    );
    refused(
        "id = 'a'\nkind = 'drop'\nopcode = 'rc-send-only'\nclass = 'write'",
        "12:9: opcode \"rc-send-only\" is not of class \"write\"",
        "leave out",
    );
    let e = error("id = 'a'\nkind = 'drop'\nclass = 'ack'", &["qp.type=UC"]);
    assert_eq!(e.to_string(), "t.toml:11:9: UC has no packet of class \"ack\"");
    good("id = 'a'\nkind = 'drop'\nopcode = 'rc-send-only'\nclass = 'send'");
}

#[test]
fn times_and_numbers_contradict_each_other() {
    refused(
        "id = 'a'\nkind = 'drop'\nafter = '2us'\nbefore = '2us'",
        "12:10: no time lies after 2us and before 2us",
        "swap",
    );
    good("id = 'a'\nkind = 'drop'\nafter = '2us'\nbefore = '2.001us'");
    refused(
        "id = 'a'\nkind = 'drop'\nafter = '10s'",
        "11:9: it begins at 10s, and the run ends at 10s",
        "raise `run.limit`",
    );
    refused(
        "id = 'a'\nkind = 'drop'\nnth = 2\nchance = '1/2'",
        "11:7: `nth` and a probability",
        "leave out",
    );
    refused(
        "id = 'a'\nkind = 'drop'\nchance = '1/2'\nburst = { enter = '1/9', leave = '1/2' }",
        "12:9: `chance` and `burst`",
        "leave out",
    );
    refused(
        "id = 'a'\nkind = 'drop'\nchance = '3/2'",
        "11:10: a probability of 3/2 is above 1",
        "write a share",
    );
    refused(
        "id = 'a'\nkind = 'drop'\nburst = { enter = '1/9', leave = 2 }",
        "11:34: a probability of 2 is above 1",
        "write a share",
    );
    refused(
        "id = 'a'\nkind = 'drop'\nchance = 0",
        "11:10: a `chance` of 0 never fires",
        "maybe = true",
    );
    for bad in ["nth = 0", "round = 0", "budget = 0", "psn = 16777216", "delay = '1us'"] {
        let kind = if bad.starts_with("delay") { "drop" } else { "corrupt" };
        error(&format!("id = 'a'\nkind = '{kind}'\n{bad}"), &[]);
    }
    for fine in ["nth = 1", "round = 1", "budget = 1", "psn = 16777215", "chance = 1"] {
        good(&format!("id = 'a'\nkind = 'corrupt'\n{fine}"));
    }
    error("id = 'a'\nkind = 'delay'\ndelay = '0us'", &[]);
    let unit = error("id = 'a'\nkind = 'delay'\ndelay = 5", &[]);
    assert!(unit.remedy().unwrap_or("").contains("5us"), "{:?}", unit.remedy());
}

#[test]
fn a_release_names_another_fault() {
    let hold = "id = 'a'\nkind = 'hold'\nreleased_by = ";
    refused(&format!("{hold}'a'"), "11:15: there is no other fault \"a\"", "no faults");
    let other = "[[fault]]\nid = 'later'\nkind = 'drop'";
    refused(
        &format!("{hold}'latr'\n{other}"),
        "11:15: there is no other fault \"latr\"",
        "did you mean `later`?",
    );
    good(&format!("{hold}'later'\n{other}"));
}

/// Every key of every kind is accepted with it, and the expanded configuration reads back.
#[test]
fn every_key_of_every_kind() {
    for kind in FaultKind::ALL {
        for key in kind.keys() {
            let mut fault = format!("id = 'a'\nkind = '{}'\n", kind.word());
            let mut keys: Vec<&str> = kind.needed().to_vec();
            if !keys.contains(&key) {
                keys.push(key);
            }
            if kind == FaultKind::Hold && key != "until" && key != "released_by" {
                keys.push("until");
            }
            for k in keys {
                fault += &format!("{k} = {}\n", value(k));
            }
            fault += "[[fault]]\nid = 'b'\nkind = 'drop'\n";
            let pfc: &[&str] = match kind {
                FaultKind::PauseStorm => &["topology.switch=pfc"],
                _ => &[],
            };
            let points = expanded(&format!("{HEAD}{fault}"), pfc);
            let points = points.unwrap_or_else(|e| panic!("{fault}: {e}: {:?}", e.remedy()));
            let read = points[0].point.scenario.fault[0].clone();
            let text = toml::to_string(&read).unwrap();
            let again: Fault = Node::parse(&Source::new("f", text)).unwrap().read().unwrap();
            assert_eq!(again, read, "{fault}");
        }
    }
}

fn value(key: &str) -> &'static str {
    match key {
        "link" => "'host0-switch0'",
        "from" => "'host0'",
        "opcode" => "'rc-send-only'",
        "class" => "'request'",
        "after" | "delay" | "within" => "'1us'",
        "before" | "until" => "'2us'",
        "chance" => "'1/7'",
        "switch" | "nic" => "0",
        "burst" => "{ enter = '1/9', leave = '1/2', bad = '1/2', good = 0 }",
        "released_by" => "'b'",
        "part" => "'blueflame'",
        _ => "3",
    }
}

#[test]
fn faults_are_changed_by_paths() {
    let fault = "id = 'a'\nkind = 'drop'\nnth = 2\n[sweep]\n'fault.0.nth' = [1, 2, 3]";
    let points = expanded(&format!("{HEAD}{fault}"), &["fault.0.class=send"]).unwrap();
    let nth: Vec<u64> =
        points.iter().map(|p| p.point.scenario.fault[0].nth.unwrap().value()).collect();
    assert_eq!(nth, [1, 2, 3]);
    assert!(points.iter().all(|p| p.point.scenario.fault[0].class.is_some()));
    let e = error("id = 'a'\nkind = 'drop'", &["fault.0.nht=1"]);
    assert!(e.to_string().starts_with("--set:"), "{e}");
    let e = error("id = 'a'\nkind = 'drop'", &["fault.1.nth=1"]);
    assert!(e.to_string().starts_with("--set:"), "{e}");
}

#[test]
fn a_reboot_names_a_switch_and_a_storm_needs_pauses() {
    let reboot = |n| format!("id = 'a'\nkind = 'switch-reboot'\nswitch = {n}");
    assert_eq!(good(&reboot(0)).switch.map(|n| n.value()), Some(0));
    refused(&reboot(1), "11:10: `switch` is 1, and there is switch 0 alone", "name another");
    refused(
        "id = 'a'\nkind = 'switch-reboot'",
        "10:8: a fault of kind `switch-reboot` without `switch`",
        "switch = 0",
    );
    let cable = ["topology.kind=back-to-back", "topology.hosts=2"];
    let e = error(&reboot(0), &cable);
    assert!(e.to_string().contains("a network without switches"), "{e}");
    let storm = "id = 'a'\nkind = 'pause-storm'\nhost = 1\nsl = 15\nbefore = '1ms'";
    refused(storm, "10:8: a storm of pauses, and no switch heeds one", "switch = \"pfc\"");
    let text = format!("{HEAD}{storm}");
    let points = expanded(&text, &["topology.switch=pfc"]).expect("somebody heeds it");
    assert_eq!(points[0].point.scenario.fault[0].kind, FaultKind::PauseStorm);
    let e = error(&storm.replace("15", "16"), &["topology.switch=pfc"]);
    assert!(e.to_string().contains("12:6"), "{e}");
    refused(
        "id = 'a'\nkind = 'pause-storm'\nhost = 1",
        "10:8: a fault of kind `pause-storm` without `before`",
        "before = \"2ms\"",
    );
}

#[test]
fn a_nic_is_one_of_its_host_and_of_its_queue_pair() {
    let of = |kind: &str, rest: &str| format!("id = 'a'\nkind = '{kind}'\nhost = 1\n{rest}");
    let stall = |nic: &str| of("nic-stall", &format!("before = '1us'\nnic = {nic}"));
    assert_eq!(good(&stall("0")).nic.map(|n| n.value()), Some(0));
    refused(&stall("1"), "13:7: NIC 1 of host 1, which has 1, from 0 on", "`topology.nics`");
    assert!(expanded(&format!("{HEAD}{}", stall("1")), &["topology.nics=2"]).is_ok());
    refused(
        &of("peer-dead", "nic = 0"),
        "12:7: `nic` has no use in a fault of kind `peer-dead`",
        "the possible keys are host, after",
    );
    // The upper four bits of a number are the NIC.
    let rnr = |qp: u64| of("rnr", &format!("before = '1us'\nnic = 1\nqp = {qp}"));
    let two = |text: &str| expanded(&format!("{HEAD}{text}"), &["topology.nics=2"]);
    assert!(two(&rnr(16 + (1 << 20))).is_ok());
    let e = two(&rnr(16)).unwrap_err();
    assert!(e.to_string().contains("`nic` is 1, and the queue pair is one of NIC 0"), "{e}");
    assert!(e.remedy().unwrap_or("").contains("leave `nic` out"));
}
