//! Contradictions of the topology: keys without a use, numbers that make no network, limits.

use doorbell_core::units::Bytes;
use doorbell_core::verbs::Mtu;
use serde_json::Value as Json;

use super::check::{Checked, refuse};
use super::topology::MAX_HOSTS;
use super::{HostModel, NicPlace, ProgramKind, RoutingMode, Scenario, Topology, TopologyKind};
use crate::profile::{LinkKind, Profile};
use crate::quantity::{Positive, Unit};
use crate::run::network::{
    Wrong, check_explicit, check_link_count, hosts_of_shape, network, nics_listed,
};

/// Most NICs with every stage of the host path; each takes some hundred kilobytes.
const MAX_FULL_NICS: u64 = 1024;

/// Keys that have a use in every shape.
const ALWAYS: [&str; 9] =
    ["kind", "hosts", "rate", "propagation", "length", "mtu", "pkeys", "nic", "credits"];

pub(super) fn check_topology(s: &Scenario, profile: &Profile) -> Checked {
    let t = &s.topology;
    check_keys(t)?;
    check_links(t, profile)?;
    check_hash(t, profile)?;
    check_hosts(s, profile)?;
    check_pkeys(t)?;
    check_nics(t, profile)?;
    check_node(s)?;
    if t.kind == TopologyKind::Explicit {
        return network(t, &s.switch, profile)
            .and_then(|c| check_explicit(&c))
            .or_else(refuse_wrong);
    }
    Ok(())
}

/// Places of NICs: on sockets that there are, at most as many as NICs, and what shares a PCIe
/// switch is on one socket.
fn check_nics(t: &Topology, profile: &Profile) -> Checked {
    if t.nic.is_empty() {
        return Ok(());
    }
    let counts = nics_listed(t, profile);
    let most = counts.into_iter().max().unwrap_or(1);
    for (i, place) in t.nic.iter().enumerate() {
        let wrong = |key: &str, text: String, help: &str| {
            refuse(format!("topology.nic.{i}{key}"), text, help)
        };
        if i >= most {
            let text = format!("a place for NIC {i}, and no host has more than {most}");
            return wrong("", text, "raise `topology.nics`, or leave it out");
        }
        let (numa, sockets) = (place.numa.value(), profile.memory.sockets);
        if numa >= sockets {
            let text = format!("there is no socket {numa}: `memory.sockets` is {sockets}");
            return wrong(".numa", text, "name another, or raise \"memory.sockets\" in [settings]");
        }
        let apart = |other: &&NicPlace| {
            other.pcie_switch.is_some() && other.pcie_switch == place.pcie_switch
        };
        if let Some(other) = t.nic[..i].iter().find(apart).filter(|o| o.numa != place.numa) {
            let at = other.numa.value();
            let text = format!("NICs below one PCIe switch on sockets {at} and {numa}");
            return wrong(".numa", text, "give them the same `numa`, or switches of their own");
        }
        for (g, gpu) in place.gpus.iter().enumerate() {
            let (n, count) = (gpu.value(), profile.gpu.count);
            if n >= count {
                let text = format!("there is no GPU {n}: `gpu.count` is {count}");
                return wrong(&format!(".gpus.{g}"), text, "raise \"gpu.count\" in [settings]");
            }
            let before = t.nic[..i].iter().flat_map(|p| &p.gpus).chain(&place.gpus[..g]);
            if before.into_iter().any(|other| other == gpu) {
                let text = format!("GPU {n} is beside two NICs");
                return wrong(&format!(".gpus.{g}"), text, "list each GPU once");
            }
        }
    }
    Ok(())
}

/// Nodes are whole, their hosts have a NIC each, and what is computed of flows knows no such way.
fn check_node(s: &Scenario) -> Checked {
    let t = &s.topology;
    let Some(node) = t.node.map(|n| n.value()) else { return Ok(()) };
    let hosts = t.hosts.value();
    if !hosts.is_multiple_of(node) {
        let text = format!("nodes of {node} hosts, and there are {hosts}");
        return refuse("topology.node", text, "a divisor of their number");
    }
    if t.nics_each() > 1 {
        let text = format!("{} NICs of a host in a node", t.nics_each());
        return refuse("topology.nics", text, "leave it out: each host of a node has one");
    }
    let flows = s.program.iter().position(|p| p.kind == ProgramKind::Flows);
    if let Some(i) = flows {
        let text = "`flows` among hosts of nodes".to_owned();
        return refuse(format!("program.{i}.kind"), text, "leave `topology.node` out");
    }
    Ok(())
}

fn check_pkeys(t: &Topology) -> Checked {
    if (1..=128).contains(&t.pkeys.len()) {
        return Ok(());
    }
    let text = format!("a P_Key table of {} entries", t.pkeys.len());
    refuse("topology.pkeys", text, "1 to 128, such as [\"0xffff\", \"0x8001\"]")
}

fn refuse_wrong(w: Wrong) -> Checked {
    refuse(w.path, w.message, w.help)
}

fn check_keys(t: &Topology) -> Checked {
    let json = serde_json::to_value(t).unwrap_or_default();
    let empty = serde_json::Map::new();
    let given = json.as_object().unwrap_or(&empty);
    let (kind, word) = (t.kind, t.kind.word());
    let (needed, more) = (kind.needed(), kind.more_keys());
    let useful = |k: &str| ALWAYS.contains(&k) || needed.contains(&k) || more.contains(&k);
    if let Some(key) = given.keys().find(|k| !useful(k)) {
        let path = format!("topology.{key}");
        let of_switches =
            kind == TopologyKind::BackToBack && ["switch", "buffer"].contains(&&**key);
        if of_switches {
            let text = format!("`{key}` is about a switch, and `back-to-back` has none");
            return refuse(path, text, "write `kind = \"switch\"`");
        }
        let text = format!("`{key}` has no use in `{word}`");
        let keys: Vec<_> = needed.iter().chain(more).map(|k| format!("`{k}`")).collect();
        let help = match keys.is_empty() {
            true => "leave it out".to_owned(),
            false => format!("leave it out; this kind has {}", keys.join(", ")),
        };
        return refuse(path, text, help);
    }
    let has = |key: &str| given.get(key).is_some_and(|v| *v != Json::Null);
    match needed.iter().find(|k| !has(k)) {
        Some(key) => refuse("topology.kind", format!("`{word}` without `{key}`"), example(key)),
        None => Ok(()),
    }
}

/// How a key is written.
fn example(key: &str) -> &'static str {
    match key {
        "leaves" => "say how many switches have hosts: leaves = 16",
        "hosts_per_leaf" => "say how many hosts a leaf has: hosts_per_leaf = 8",
        "spines" => "say how many switches join the leaves: spines = 8",
        "k" => "say how many ports a switch has: k = 16 makes 1024 hosts",
        "servers" => "say how many: servers = 16",
        "nics" => "say how many NICs a server has: nics = 8",
        _ => "list them: [[topology.link]] with between = \"host0..3-switch0\"",
    }
}

/// Propagation or length, and an MTU that carries something.
fn check_links(t: &Topology, profile: &Profile) -> Checked {
    let all = (String::new(), t.length.is_some(), t.propagation.is_some(), t.mtu);
    let each =
        t.link.iter().enumerate().map(|(i, l)| {
            (format!("link.{i}."), l.length.is_some(), l.propagation.is_some(), l.mtu)
        });
    for (at, length, propagation, mtu) in std::iter::once(all).chain(each) {
        if length && propagation {
            let text = "`length` and `propagation`".to_owned();
            let help = "give one of the two; a metre takes 5 ns";
            return refuse(format!("topology.{at}length"), text, help);
        }
        check_mtu(&at, mtu, profile)?;
    }
    Ok(())
}

/// What the smallest path MTU needs: 256 bytes, and with RoCEv2 on IPv4 60 of headers and ICRC.
fn check_mtu(at: &str, mtu: Option<Positive<Bytes>>, profile: &Profile) -> Checked {
    let least = match profile.port.link {
        LinkKind::InfiniBand => Bytes(256),
        LinkKind::RoceV2 => Bytes(320),
    };
    match mtu {
        Some(mtu) if mtu.0.0 < least.0 => {
            let text = format!(
                "a link of MTU {} takes no packet of the smallest path MTU, 256B",
                mtu.0.print()
            );
            let help = format!("at least {}, the headers included", least.print());
            refuse(format!("topology.{at}mtu"), text, help)
        }
        Some(mtu)
            if profile.port.link == LinkKind::InfiniBand
                && Mtu::from_bytes(u32::try_from(mtu.0.0).unwrap_or(0)).is_none() =>
        {
            let text = format!("an InfiniBand link of MTU {}", mtu.0.print());
            let help = "256B, 512B, 1KiB, 2KiB or 4KiB";
            refuse(format!("topology.{at}mtu"), text, help)
        }
        _ => Ok(()),
    }
}

fn check_hash(t: &Topology, profile: &Profile) -> Checked {
    let hashes = match t.routing {
        Some(routing) => routing == RoutingMode::Ecmp,
        None => profile.port.link == LinkKind::RoceV2,
    };
    if t.hash_seed.is_some() && !hashes {
        let text = "`hash_seed` without a hash".to_owned();
        return refuse("topology.hash_seed", text, "write `routing = \"ecmp\"`, or leave it out");
    }
    Ok(())
}

fn check_hosts(s: &Scenario, profile: &Profile) -> Checked {
    let t = &s.topology;
    let word = t.kind.word();
    let mut hosts = t.hosts.value();
    match hosts_of_shape(t, profile) {
        Err(wrong) => return refuse_wrong(wrong),
        Ok(Some(n)) if n > MAX_HOSTS => {
            let text = format!("this `{word}` has {n} hosts, and at most {MAX_HOSTS} are possible");
            let first = t.kind.needed().first().copied().unwrap_or("kind");
            return refuse(format!("topology.{first}"), text, "make it smaller");
        }
        Ok(Some(n)) if n != hosts => {
            let text = format!("`hosts` is {hosts}, and this `{word}` has {n}");
            return refuse("topology.hosts", text, "leave `hosts` out");
        }
        Ok(Some(n)) => hosts = n,
        Ok(None) => {}
    }
    if hosts < 2 {
        return refuse("topology.hosts", "a network of one host".to_owned(), "at least two");
    }
    if t.kind == TopologyKind::BackToBack && hosts != 2 {
        let text = format!("`back-to-back` connects two hosts, not {hosts}");
        return refuse("topology.hosts", text, "write `kind = \"switch\"` for more");
    }
    let nics = hosts * u64::from(t.nics_each());
    if nics > MAX_HOSTS {
        let text = format!("{hosts} hosts have {nics} NICs, and at most {MAX_HOSTS} are possible");
        return refuse("topology.nics", text, "lower it, or have fewer hosts");
    }
    check_link_count(t, hosts).or_else(refuse_wrong)?;
    if nics > MAX_FULL_NICS && s.run.host == HostModel::Full {
        let of = if nics == hosts { "" } else { ", by their NICs" };
        let text = format!(
            "{nics} hosts{of} with every stage of the host path, and at most {MAX_FULL_NICS} are \
             possible"
        );
        return refuse("topology.hosts", text, "write `host = \"ideal\"` in [run]");
    }
    Ok(())
}
