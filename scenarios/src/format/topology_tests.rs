//! Topologies: both sides of every limit, and what is said about those that make no network.

use crate::format::Scenario;
use crate::input::InputError;
use crate::profile::Profile;
use crate::run::network::{check_link_count, network, nics_listed};
use crate::testing;

fn expanded(topology: &str) -> Result<(Scenario, Profile), InputError> {
    let text = format!(
        "title = 't'\nprofile = 'generic-400g'\n[run]\nhost = 'ideal'\n[[program]]\n\
         kind = 'latency'\n[topology]\n{topology}\n"
    );
    let point = testing::expanded(&text, &[])?.remove(0).point;
    Ok((point.scenario, (*point.profile).clone()))
}

fn hosts(topology: &str) -> u64 {
    expanded(topology).expect(topology).0.topology.hosts.value()
}

/// The message with line and column; the topology begins at line 8.
fn refused(topology: &str, place: &str, message: &str, help: &str) {
    let e = expanded(topology).expect_err(topology);
    assert_eq!(e.to_string(), format!("t.toml:{place}: {message}"), "{topology}");
    assert!(e.remedy().unwrap_or("").contains(help), "{topology}: {:?}", e.remedy());
}

const LEAF_SPINE: &str = "kind = 'leaf-spine'\nleaves = 4\nhosts_per_leaf = 3\nspines = 2";
const RAILS: &str = "kind = 'rail-optimised'\nservers = 6\nnics = 4\nspines = 2";
const EXPLICIT: &str = "kind = 'explicit'\nhosts = 3\nswitches = 2\n\
                        [[topology.link]]\nbetween = 'host0..1-switch0'\n\
                        [[topology.link]]\nbetween = 'host2-switch1'\nlength = '3m'\n\
                        [[topology.link]]\nbetween = 'switch0-switch1'\ncount = 2\nmtu = '1500B'";

#[test]
fn shapes_count_their_hosts() {
    assert_eq!(hosts(LEAF_SPINE), 12);
    assert_eq!(hosts("kind = 'fat-tree'\nk = 16"), 1024);
    assert_eq!(hosts(RAILS), 6, "a server is a host of several NICs");
    assert_eq!(hosts(&format!("{LEAF_SPINE}\nhosts = 12")), 12, "as a report writes it out");
    assert_eq!(hosts(EXPLICIT), 3);
    let message = "`hosts` is 13, and this `leaf-spine` has 12";
    refused(&format!("{LEAF_SPINE}\nhosts = 13"), "12:9", message, "leave `hosts` out");
}

/// Two routes of one switch for one host; a switch that nothing is joined to.
#[test]
fn what_an_explicit_network_says_twice_or_not_at_all_is_refused() {
    let ring = |route: &str| {
        format!(
            "kind = 'explicit'\nhosts = 3\nswitches = 3\nlink = [\n\
             {{ between = 'host0..0-switch0' }}, {{ between = 'host1-switch1' }}, \
             {{ between = 'host2-switch2' }}, {{ between = 'switch0-switch1' }}, \
             {{ between = 'switch1-switch2' }}, {{ between = 'switch2-switch0' }}]\n\
             [[topology.route]]\nat = 'switch0'\nto = 'host2'\nvia = 'switch1'\n\
             [[topology.route]]\n{route}"
        )
    };
    let again = |to: &str, via: &str| ring(&format!("at = 'switch0'\nto = '{to}'\nvia = '{via}'"));
    let message = "route 0 leads packets for host2 at switch0 another way already";
    refused(&again("host1..2", "switch2"), "19:6", message, "name each host in one route");
    assert!(expanded(&again("host2", "switch1")).is_ok(), "the same again");
    assert!(expanded(&again("host1", "switch2")).is_ok());
    let alone = "kind = 'explicit'\nhosts = 2\nswitches = 2\n\
                 link = [{ between = 'host0..1-switch0' }]";
    let help = "join it: between = \"switch1-switch0\"; or lower `switches`";
    refused(alone, "10:12", "switch 1 has no link", help);
    refused("kind = 'fat-tree'\nk = 1", "9:5", K_ONE, "write k = 2");
}

const K_ONE: &str = "`k` is 1, and half of a switch's ports go up: it must be even";

/// Each key is within its own range, and the links that they make together are counted before one
/// is made.
#[test]
fn as_many_links_as_are_possible_and_one_more() {
    let leaves = |spines: u32, each: u32| {
        format!(
            "kind = 'leaf-spine'\nleaves = 512\nhosts_per_leaf = 16\nspines = {spines}\n\
             links_per_pair = {each}"
        )
    };
    assert_eq!(hosts(&leaves(496, 1)), 8192);
    assert_eq!(hosts(&leaves(31, 16)), 8192);
    let message = "this `leaf-spine` has 262656 links, and at most 262144 are possible";
    refused(
        &leaves(497, 1),
        "11:10",
        message,
        "with 512 leaves, `spines` times `links_per_pair` may be 496",
    );
    let message = "this `leaf-spine` has 270336 links, and at most 262144 are possible";
    refused(&leaves(32, 16), "12:18", message, "may be 496 at most");
    let rails = |each: u32| {
        format!(
            "kind = 'rail-optimised'\nservers = 1024\nnics = 8\nservers_per_leaf = 16\n\
             spines = 31\nlinks_per_pair = {each}"
        )
    };
    assert_eq!(hosts(&rails(16)), 1024);
    let message = "this `rail-optimised` has 278016 links, and at most 262144 are possible";
    refused(&rails(17), "13:18", message, "may be 496 at most");
    let explicit = |count: u32, more: &str| {
        format!(
            "kind = 'explicit'\nhosts = 2\nswitches = 512\nlink = [\n\
             {{ between = 'switch0..255-switch256..511', count = {count} }},\n\
             {{ between = 'host0..1-switch0' }}{more}]"
        )
    };
    let message = "with these there are 262146 links, and at most 262144 are possible";
    refused(&explicit(4, ""), "13:13", message, "join fewer nodes, or lower `count`");
    let most = |link: &str| {
        let text = format!("kind = 'explicit'\nhosts = 2\nswitches = 512\nlink = [{link}]");
        check_link_count(&toml::from_str(&text).expect("a topology"), 2)
    };
    let all = "{ between = 'switch0..255-switch256..511', count = 4 }";
    assert_eq!(most(all), Ok(()));
    assert!(most(&format!("{all}, {{ between = 'host0-switch0' }}")).is_err());
    let endless = "{ between = 'host0..4294967295-switch0..4294967295', count = 1024 }";
    assert!(most(endless).is_err());
}

#[test]
fn the_largest_network_and_one_more() {
    assert_eq!(hosts("kind = 'fat-tree'\nk = 32"), 8192);
    let message = "this `fat-tree` has 9826 hosts, and at most 8192 are possible";
    refused("kind = 'fat-tree'\nk = 34", "9:5", message, "smaller");
    assert_eq!(hosts("kind = 'switch'\nhosts = 8192"), 8192);
    let range = "from 1 to 8192";
    refused("kind = 'switch'\nhosts = 8193", "9:9", "impossible value: found 8193", range);
    let full = "kind = 'switch'\nhosts = 1025\n[settings]";
    assert!(expanded(full).is_ok());
    let with = |hosts: u32| {
        let text = format!(
            "title = 't'\nprofile = 'generic-400g'\n[[program]]\nkind = 'latency'\n[topology]\n\
             kind = 'switch'\nhosts = {hosts}\n"
        );
        testing::expanded(&text, &[])
    };
    assert!(with(1024).is_ok());
    let e = with(1025).expect_err("too many for the full host model");
    assert!(e.to_string().starts_with("t.toml:7:9: 1025 hosts with every stage"), "{e}");
    assert_eq!(e.remedy(), Some("write `host = \"ideal\"` in [run]"));
}

#[test]
fn shapes_that_are_none() {
    let odd = "`k` is 5, and half of a switch's ports go up: it must be even";
    refused("kind = 'fat-tree'\nk = 5", "9:5", odd, "write k = 4 or k = 6");
    let zero = "impossible value: found 0";
    refused("kind = 'fat-tree'\nk = 0", "9:5", zero, "from 1 to 1024");
    let spineless = LEAF_SPINE.replace("spines = 2", "spines = 0");
    refused(&spineless, "11:10", zero, "from 1 to 8192");
    let without = LEAF_SPINE.replace("\nspines = 2", "");
    refused(&without, "8:8", "`leaf-spine` without `spines`", "spines = 8");
    refused("kind = 'fat-tree'", "8:8", "`fat-tree` without `k`", "k = 16");
    refused("kind = 'explicit'", "8:8", "`explicit` without `link`", "[[topology.link]]");
    let part = "6 servers make no whole groups of 4: `servers_per_leaf` must divide `servers`";
    let group = |n| format!("{RAILS}\nservers_per_leaf = {n}");
    refused(&group(4), "12:20", part, "one group");
    assert!(expanded(&group(3)).is_ok());
    let useless = "`leaves` has no use in `fat-tree`";
    refused("kind = 'fat-tree'\nk = 4\nleaves = 2", "10:10", useless, "this kind has `k`");
    let cable = "`routing` has no use in `back-to-back`";
    refused("routing = 'ecmp'", "8:11", cable, "leave it out");
}

#[test]
fn hashes_and_delays() {
    let with = |more: &str| format!("{LEAF_SPINE}\n{more}");
    assert!(expanded(&with("hash_seed = 'same'")).is_ok());
    assert!(expanded(&with("routing = 'ecmp'\nhash_seed = 'same'")).is_ok());
    let no_hash = "`hash_seed` without a hash";
    let adaptive = with("routing = 'adaptive'\nhash_seed = 'same'");
    refused(&adaptive, "13:13", no_hash, "routing = \"ecmp\"");
    let both = "`length` and `propagation`";
    refused(&with("length = '3m'\npropagation = '15ns'"), "12:10", both, "one of the two");
    refused(&with("length = '0m'"), "12:10", "\"0m\" is zero, which is impossible here", "3m");
    let small = "a link of MTU 319B takes no packet of the smallest path MTU, 256B";
    refused(&with("mtu = '319B'"), "12:7", small, "at least 320B");
    assert!(expanded(&with("mtu = '320B'")).is_ok());
}

#[test]
fn explicit_networks_that_do_not_hang_together() {
    let with = |old: &str, new: &str| EXPLICIT.replacen(old, new, 1);
    let text = "there is no switch2: `switches` is 2";
    refused(&with("host2-switch1", "host2-switch2"), "14:11", text, "raise `topology.switches`");
    let text = "there is no host3: `hosts` is 3";
    refused(&with("host2-switch1", "host3-switch1"), "14:11", text, "raise `topology.hosts`");
    for bad in ["host2", "host2-spine1", "host1..0-switch1", "host-switch1", "host+1-switch1"] {
        let text = format!("\"{bad}\" names no link");
        refused(&with("host2-switch1", bad), "14:11", &text, "host0..7-switch0");
    }
    let text = "host 1 and switch 0 are joined by link 0 already";
    refused(&with("host2-switch1", "host1-switch0"), "14:11", text, "count = 2");
    let text = "host 2 has 17 links, each a NIC's, and at most 16";
    refused(&with("length = '3m'", "count = 17"), "14:11", text, "fewer links");
    assert!(expanded(&with("length = '3m'", "count = 16")).is_ok());
    let text = "a link from switch 1 to itself";
    refused(&with("switch0-switch1", "switch1-switch1"), "17:11", text, "two nodes");
    let text = "host 2 has no link";
    let last = with("host2-switch1", "switch0-switch1");
    let without = last.replacen("'switch0-switch1'\ncount", "'switch0-switch2'\ncount", 1);
    refused(&without.replacen("switches = 2", "switches = 3", 1), "9:9", text, "host2-switch0");
    let apart = with("switches = 2", "switches = 3");
    let apart = apart.replacen("switch0-switch1", "switch0-switch2", 1);
    refused(&apart, "11:1", "no path from host 0 to host 2", "joins the parts");
}

#[test]
fn links_say_what_differs() {
    let links = |topology: &str| {
        let (scenario, profile) = expanded(topology).expect("good");
        network(&scenario.topology, &scenario.switch, &profile).expect("good").links
    };
    let c = links(EXPLICIT);
    let usual = c[0].link;
    assert_eq!(c.len(), 2 + 1 + 2);
    assert_eq!(c[1].link, usual);
    assert_eq!(c[2].link.propagation.as_ps(), 15_000, "three metres");
    assert_eq!(c[4].link.max_packet_bytes, Some(1_538), "14 + 4 + 20 around the MTU");
    assert_eq!(usual.max_packet_bytes, None);
    let faster = format!("{LEAF_SPINE}\nrate = '100Gbps'\nswitch_rate = '400Gbps'");
    let c = links(&faster);
    let rates = [0, 11, 12, 19].map(|i: usize| c[i].link.rate.as_bps() / 1_000_000_000);
    assert_eq!((c.len(), rates), (12 + 8, [100, 100, 400, 400]));
}

#[test]
fn faults_name_the_links_of_every_shape() {
    let fault = |link: &str| {
        format!("{LEAF_SPINE}\n[[fault]]\nid = 'f'\nkind = 'drop'\nlink = '{link}'\nmaybe = true")
    };
    for good in ["host11-switch3", "switch0-switch4", "switch5-switch3"] {
        assert!(expanded(&fault(good)).is_ok(), "{good}");
    }
    for bad in ["host11-switch2", "switch0-switch1", "host0-host1", "switch0-switch6"] {
        let e = expanded(&fault(bad)).expect_err(bad);
        assert_eq!(e.to_string(), format!("t.toml:15:8: there is no link \"{bad}\""));
    }
}

#[test]
fn nics_of_every_shape() {
    let counts = |topology: &str| {
        let (scenario, profile) = expanded(topology).expect(topology);
        nics_listed(&scenario.topology, &profile)
    };
    assert_eq!(counts("nics = 2"), [2, 2]);
    assert_eq!(counts("kind = 'switch'\nhosts = 3\nnics = 16"), [16; 3]);
    assert_eq!(counts(&format!("{LEAF_SPINE}\nnics = 2")), [2; 12]);
    assert_eq!(counts(RAILS), [4; 6]);
    let mixed = EXPLICIT.replacen("host2-switch1", "host2-switch0..1", 1);
    assert_eq!(counts(&mixed), [1, 1, 2], "a NIC for each link");
    refused("nics = 17", "8:8", "impossible value: found 17", "from 1 to 16");
    let text = "`nics` has no use in `explicit`";
    refused(&EXPLICIT.replacen("hosts = 3", "hosts = 3\nnics = 2", 1), "10:8", text, "leave it");
    assert_eq!(counts("kind = 'switch'\nhosts = 1024\nnics = 8").len(), 1024);
    let text = "1025 hosts have 8200 NICs, and at most 8192 are possible";
    refused("kind = 'switch'\nhosts = 1025\nnics = 8", "10:8", text, "lower it");
}

#[test]
fn places_of_nics() {
    let with = |places: &str, more: &str| {
        format!("nics = 2\n{more}\n{places}\n[settings]\n'memory.sockets' = 2")
    };
    let place = |keys: &str| format!("[[topology.nic]]\n{keys}");
    let good = |places: &str| assert!(expanded(&with(places, "")).is_ok(), "{places}");
    good(&place("numa = 1"));
    good(&format!("{}\n{}", place("pcie_switch = 0"), place("pcie_switch = 0")));
    let refused = |places: &str, at, text, help| refused(&with(places, ""), at, text, help);
    let text = "there is no socket 2: `memory.sockets` is 2";
    refused(&place("numa = 2"), "11:8", text, "memory.sockets");
    let three = format!("{}\n{}\n{}", place(""), place(""), place(""));
    let text = "a place for NIC 2, and no host has more than 2";
    refused(&three, "14:1", text, "topology.nics");
    let apart = format!("{}\n{}", place("pcie_switch = 3"), place("numa = 1\npcie_switch = 3"));
    let text = "NICs below one PCIe switch on sockets 0 and 1";
    refused(&apart, "13:8", text, "the same `numa`");
    let text = "there is no GPU 1: `gpu.count` is 1";
    refused(&place("gpus = [1]"), "11:9", text, "gpu.count");
    let twice = format!("{}\n{}", place("gpus = [0]"), place("gpus = [0]"));
    refused(&twice, "13:9", "GPU 0 is beside two NICs", "once");
}

#[test]
fn programs_name_nics_that_there_are() {
    let program = |kind: &str, nic: &str| {
        let text = format!(
            "title = 't'\nprofile = 'generic-400g'\n[topology]\nkind = '{kind}'\nnics = 2\n\
             [[program]]\nkind = 'latency'\n{nic}\n"
        );
        testing::expanded(&text, &[])
    };
    for good in ["nic = 1", "nic = 1\npeer_nic = 0", "peer_nic = 1"] {
        assert!(program("switch", good).is_ok(), "{good}");
    }
    let refused = |kind: &str, nic: &str, at: &str, text: &str, help: &str| {
        let e = program(kind, nic).expect_err(nic);
        assert_eq!(e.to_string(), format!("t.toml:{at}: {text}"));
        assert!(e.remedy().unwrap_or("").contains(help), "{:?}", e.remedy());
    };
    let of = |host| format!("NIC 2 of host {host}, which has 2, from 0 on");
    refused("switch", "nic = 2", "8:7", &of(0), "topology.nics");
    refused("switch", "peer_nic = 2", "8:12", &of(1), "topology.nics");
    let text = "NIC 0 and NIC 1 are at the ends of different cables";
    refused("back-to-back", "peer_nic = 1", "8:12", text, "leave `peer_nic` out");
}

#[test]
fn static_routes_name_what_there_is() {
    let route = |at: &str, to: &str, via: &str| {
        format!("{EXPLICIT}\n[[topology.route]]\nat = '{at}'\nto = '{to}'\nvia = '{via}'")
    };
    assert!(expanded(&route("switch0", "host2", "switch1")).is_ok());
    let text = |bad: &str, what: &str| format!("\"{bad}\" names no {what}");
    for bad in ["switch2", "host0", "switch0..1", "spine"] {
        let e = expanded(&route(bad, "host2", "switch1")).expect_err("no such switch");
        assert!(e.to_string().contains(&text(bad, "switch")), "{e}");
        assert!(e.to_string().starts_with("t.toml:2"), "{e}");
    }
    for bad in ["host3", "switch0", "host2..3", "host"] {
        let e = expanded(&route("switch0", bad, "switch1")).expect_err("no such host");
        assert!(e.to_string().contains(&text(bad, "hosts")), "{e}");
    }
    for bad in ["switch0", "host2", "switch7"] {
        let e = expanded(&route("switch0", "host2", bad)).expect_err("not next to it");
        assert!(e.to_string().contains(&format!("no link joins switch 0 and \"{bad}\"")), "{e}");
    }
    // Both switches send what is for host 2 to each other.
    let e = expanded(&route("switch1", "host2", "switch0")).expect_err("a loop");
    assert!(e.to_string().contains("never reach"), "{e}");
    assert!(e.remedy().is_some_and(|r| r.contains("host 2")), "{:?}", e.remedy());
    let e = expanded(
        "kind = 'switch'\nhosts = 2\n[[topology.route]]\nat = 'switch0'\nto = 'host0'\n\
         via = 'host0'",
    );
    assert!(e.expect_err("no use").to_string().contains("`route` has no use in `switch`"));
}

#[test]
fn a_program_names_a_gpu_that_there_is_and_that_it_uses() {
    let of = |set: &[&str]| {
        let text = "title = 't'\nprofile = 'generic-400g'\n[[program]]\nkind = 'latency'\n";
        testing::expanded(text, &[&["gpu.count=2"], set].concat())
    };
    assert!(of(&["program.0.gpu=1", "program.0.memory=gpu"]).is_ok());
    let e = of(&["program.0.gpu=2", "program.0.memory=gpu"]).unwrap_err();
    assert!(e.to_string().contains("there is no GPU 2: `gpu.count` is 2"), "{e}");
    assert!(e.remedy().unwrap_or("").contains("\"gpu.count\""));
    let e = of(&["program.0.gpu=1"]).unwrap_err();
    assert!(e.to_string().contains("`gpu` is 1, and the program has nothing in a GPU"), "{e}");
    assert!(of(&["program.0.gpu=1", "program.0.initiator=gpu"]).is_ok());
}

#[test]
fn nodes_are_whole_and_their_hosts_have_a_nic_each() {
    assert_eq!(hosts("kind = 'switch'\nhosts = 6\nnode = 3"), 6);
    assert_eq!(hosts(&format!("{LEAF_SPINE}\nnode = 3")), 12);
    let (scenario, profile) = expanded("kind = 'switch'\nhosts = 6\nnode = 3").unwrap();
    assert_eq!(nics_listed(&scenario.topology, &profile), [1; 6], "a link into a node is no NIC's");
    let c = network(&scenario.topology, &scenario.switch, &profile).unwrap();
    assert_eq!((c.switches.len(), c.links.len(), c.node_hosts), (3, 12, 3));
    refused("kind = 'switch'\nhosts = 6\nnode = 1", "10:8", "impossible value: found 1", "from 2");
    let text = "nodes of 4 hosts, and there are 6";
    refused("kind = 'switch'\nhosts = 6\nnode = 4", "10:8", text, "a divisor");
    let text = "2 NICs of a host in a node";
    refused("kind = 'switch'\nhosts = 4\nnode = 2\nnics = 2", "11:8", text, "leave it out");
    let text = "`node` has no use in `back-to-back`";
    refused("node = 2", "8:8", text, "leave it out");
    let flows = testing::expanded(
        "title = 't'\nprofile = 'generic-400g'\n[run]\nhost = 'ideal'\n[topology]\n\
         kind = 'switch'\nhosts = 4\nnode = 2\n[[program]]\nkind = 'flows'\nhosts = 4\n\
         flows = { pattern = 'incast' }\n",
        &[],
    );
    let e = flows.expect_err("flows know no nodes");
    assert!(e.remedy().unwrap_or("").contains("leave `topology.node` out"), "{e}");
}
