//! `link`: what it decides, what contradicts it, both sides of the limits of credits.

use doorbell_sim::fabric::{Buffering, FabricConfig, ReceiveBuffer, Routing};
use doorbell_sim::wire::Encapsulation;

use crate::input::InputError;
use crate::run::hardware::encapsulation;
use crate::run::network::network_of;
use crate::testing;

fn expanded(head: &str, rest: &str) -> Result<(FabricConfig, Encapsulation), InputError> {
    let text = format!(
        "title = 't'\nprofile = 'generic-400g'\n{head}\n[[program]]\nkind = 'latency'\n{rest}\n"
    );
    let point = testing::expanded(&text, &[])?.remove(0).point;
    let c = network_of(&point.scenario, &point.profile).expect("a network");
    Ok((c, encapsulation(&point.profile)))
}

/// The message with line and column; `head` is at line 3, `rest` at line 6.
fn refused(head: &str, rest: &str, place: &str, message: &str, help: &str) {
    let e = expanded(head, rest).expect_err(rest);
    assert_eq!(e.to_string(), format!("t.toml:{place}: {message}"), "{rest}");
    assert!(e.remedy().unwrap_or("").contains(help), "{rest}: {:?}", e.remedy());
}

const SPINES: &str = "[topology]\nkind = 'leaf-spine'\nleaves = 2\nhosts_per_leaf = 2\nspines = 2";

#[test]
fn one_key_switches_headers_flow_control_and_routing() {
    let (c, encap) = expanded("link = 'ib'", SPINES).unwrap();
    assert_eq!((encap, c.routing), (Encapsulation::IbLocal, Routing::Destination));
    assert_eq!(c.switches[0].buffering, Buffering::Credits { blocks: 2048 });
    assert_eq!(c.hosts[0].receive, ReceiveBuffer::Credits { blocks: 2048 });
    let (c, encap) = expanded("link = 'roce'", SPINES).unwrap();
    assert_eq!(encap, Encapsulation::RoceV2Ipv4);
    assert!(matches!(c.routing, Routing::Ecmp(_)));
    assert!(matches!(c.switches[0].buffering, Buffering::TailDrop { .. }));
    assert_eq!(c.hosts[0].receive, ReceiveBuffer::Lossy);
    let (c, encap) = expanded("", SPINES).unwrap();
    assert_eq!(encap, Encapsulation::RoceV2Ipv4, "the profile's");
    assert!(matches!(c.switches[0].buffering, Buffering::Lossless { .. }));
}

#[test]
fn a_cable_has_credits_too() {
    let rest = "[topology.credits]\nhost_blocks = 128\nreturn_delay = '320ns'";
    let (c, _) = expanded("link = 'ib'", rest).unwrap();
    assert_eq!(c.hosts[1].receive, ReceiveBuffer::Credits { blocks: 128 });
    assert_eq!(c.credits.return_delay.as_ps(), 320_000);
}

#[test]
fn the_buffer_is_that_of_the_topology_unless_blocks_are_given() {
    let of = |rest: &str| {
        let text = format!("[topology]\nkind = 'switch'\n{rest}");
        expanded("link = 'ib'", &text).unwrap().0.switches[0].buffering
    };
    assert_eq!(of("buffer = '64KiB'"), Buffering::Credits { blocks: 1024 });
    assert_eq!(of("buffer = '1MiB'"), Buffering::Credits { blocks: 2048 });
    assert_eq!(of("[topology.credits]\nblocks = 3000"), Buffering::Credits { blocks: 3000 });
    assert!(matches!(of("switch = 'lossless'"), Buffering::Lossless { .. }), "idealised");
}

/// What changes nothing is refused, and so is a size that InfiniBand has not.
#[test]
fn sizes_that_say_nothing_are_refused() {
    let both = "[topology]\nkind = 'switch'\nbuffer = '1MB'\n[topology.credits]\nblocks = 300";
    let text = "`buffer` and `credits.blocks`, which say the same in two ways";
    refused("link = 'ib'", both, "8:10", text, "leave one of the two out");
    let credits = |key: &str| format!("[topology.credits]\n{key}");
    let text = "a flow-control packet of no bytes";
    refused("link = 'ib'", &credits("flow_control = '0B'"), "7:16", text, "leave it out");
    assert!(expanded("link = 'ib'", &credits("flow_control = '8B'")).is_ok());
    let mtu = |mtu: &str| format!("[topology]\nkind = 'switch'\nmtu = '{mtu}'");
    for (size, word) in [("1500B", "1500B"), ("8KiB", "8KiB"), ("4097B", "4097B")] {
        let text = format!("an InfiniBand link of MTU {word}");
        refused("link = 'ib'", &mtu(size), "8:7", &text, "1KiB, 2KiB or 4KiB");
    }
    for size in ["256B", "4KiB"] {
        assert!(expanded("link = 'ib'", &mtu(size)).is_ok(), "{size}");
    }
    assert!(expanded("link = 'roce'", &mtu("1500B")).is_ok());
}

#[test]
fn keys_of_the_other_link_layer_are_refused() {
    let one = "[topology]\nkind = 'switch'\n";
    let text = format!("{one}switch = 'tail-drop'");
    let message = "an InfiniBand switch never drops for want of room";
    refused("link = 'ib'", &text, "8:10", message, "leave `switch` out for link credits");
    let text = format!("{one}switch = 'pfc'");
    let message = "priority flow control is Ethernet's";
    refused("link = 'ib'", &text, "8:10", message, "leave `switch` out for link credits");
    let text = format!("{one}[topology.credits]\nflow_control = '1MB'");
    let message = "a flow-control packet of 1MB is larger than any other";
    refused("link = 'ib'", &text, "9:16", message, "6 bytes");
    let text = format!("{one}switch = 'credits'");
    let message = "credits are InfiniBand's, and this is not `link = \"ib\"`";
    refused("link = 'roce'", &text, "8:10", message, "write `link = \"ib\"`");
    refused("", &text, "8:10", message, "write `link = \"ib\"`");
    let text = format!("{one}[topology.credits]\nblocks = 128");
    let message = "`credits` are InfiniBand's, and this is not `link = \"ib\"`";
    refused("link = 'roce'", &text, "8:1", message, "leave `credits` out");
    let text = format!("{one}switch = 'lossless'\n[topology.credits]\nblocks = 128");
    let message = "`credits` beside a `switch` that has none";
    refused("link = 'ib'", &text, "9:1", message, "leave `switch` out, or `credits`");
    let text = format!("{SPINES}\nrouting = 'ecmp'");
    let message = "InfiniBand has no UDP ports, which `ecmp` hashes";
    refused("link = 'ib'", &text, "11:11", message, "routing = \"destination\"");
    let text = "[settings]\n\"port.link\" = 'roce'";
    let message = "`port.link` is roce, and `link` is ib";
    refused("link = 'ib'", text, "7:15", message, "leave the setting out");
    assert!(expanded("link = 'roce'", text).is_ok(), "the same said twice");
    let e = expanded("link = 'token-ring'", "").unwrap_err().to_string();
    assert!(e.starts_with("t.toml:3:8: ") && e.contains("token-ring"), "{e}");
}

#[test]
fn a_buffer_takes_the_largest_packet() {
    // 4096 bytes of payload, 52 of the longest headers, 14 of LRH, ICRC and VCRC: 65.03 blocks.
    for key in ["blocks", "host_blocks"] {
        let of = |n| format!("[topology]\nkind = 'switch'\n[topology.credits]\n{key} = {n}");
        assert!(expanded("link = 'ib'", &of(66)).is_ok());
        let place = if key == "blocks" { "9:10" } else { "9:15" };
        let message = "65 blocks of 64 B never take a packet of 4162 B";
        let help = "at least 66, or lower `port.max_mtu` (4KiB)";
        refused("link = 'ib'", &of(65), place, message, help);
    }
}

#[test]
fn changes_come_in_the_order_of_their_times() {
    let of = |second| {
        format!(
            "[topology.credits]\n[[topology.credits.change]]\nat = '2us'\nreturn_delay = '410ns'\n\
             [[topology.credits.change]]\nat = '{second}'\nreturn_delay = '320ns'"
        )
    };
    let (c, _) = expanded("link = 'ib'", &of("3us")).unwrap();
    assert_eq!(c.credits.changes.len(), 2);
    let message = "a change at 2us, and the one before it is at 2us";
    refused("link = 'ib'", &of("2us"), "11:6", message, "in the order of their times");
}
