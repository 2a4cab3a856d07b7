//! Contradictions of faults: keys without a use, and what the network has not.

use doorbell_core::verbs::{Opcode, Qpn, Service};
use doorbell_sim::fabric::End;
use doorbell_sim::fault::{LinkEnd, LinkName, opcode_word};
use doorbell_sim::nic::Nic;
use serde_json::Value as Json;

use super::check::{Checked, refuse};
use super::check_hosts::{OTHER_NIC, no_such_nic};
use super::{Burst, Fault, FaultKind, QpKind, Scenario, SwitchMode};
use crate::input::suggestion;
use crate::profile::Profile;
use crate::quantity::Unit;
use crate::run::network::network;

/// A fault and its place in the file.
struct At<'a> {
    fault: &'a Fault,
    index: usize,
}

impl At<'_> {
    fn path(&self, key: &str) -> String {
        format!("fault.{}.{key}", self.index)
    }

    fn refuse(&self, key: &str, message: String, help: impl Into<String>) -> Checked {
        refuse(self.path(key), message, help)
    }
}

pub(super) fn check_faults(s: &Scenario, profile: &Profile) -> Checked {
    s.fault.iter().enumerate().try_for_each(|(index, fault)| {
        let at = At { fault, index };
        check_id(s, &at)?;
        check_keys(&at)?;
        check_hosts(s, &at)?;
        check_nic(s, profile, &at)?;
        check_link(s, profile, &at)?;
        check_switches(s, profile, &at)?;
        check_opcode(s, &at)?;
        check_times(s, &at)?;
        check_numbers(&at)?;
        check_hold(s, &at)
    })
}

fn check_id(s: &Scenario, at: &At<'_>) -> Checked {
    let id = &at.fault.id;
    let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
    if id.is_empty() || !id.chars().all(good) {
        let text = format!("\"{id}\" is no name of a fault");
        return at.refuse("id", text, "use a to z, 0 to 9, `-` and `_`");
    }
    if s.fault[..at.index].iter().any(|f| f.id == *id) {
        return at.refuse("id", format!("two faults are called \"{id}\""), "rename one of them");
    }
    Ok(())
}

fn check_keys(at: &At<'_>) -> Checked {
    let kind = at.fault.kind;
    let json = serde_json::to_value(at.fault).unwrap_or_default();
    let empty = serde_json::Map::new();
    let given = json.as_object().unwrap_or(&empty);
    let has = |key: &str| given.get(key).is_some_and(|v| *v != Json::Null);
    let known = kind.keys();
    let always = ["id", "kind", "maybe"];
    let useless =
        given.keys().find(|k| !known.contains(&k.as_str()) && !always.contains(&k.as_str()));
    if let Some(key) = useless {
        let text = format!("`{key}` has no use in a fault of kind `{}`", kind.word());
        return at.refuse(key, text, suggestion(key, known.iter().copied(), "keys"));
    }
    if let Some(key) = kind.needed().iter().find(|k| !has(k)) {
        let text = format!("a fault of kind `{}` without `{key}`", kind.word());
        return at.refuse("kind", text, example(key));
    }
    Ok(())
}

/// How a key is written.
fn example(key: &str) -> &'static str {
    match key {
        "delay" => "say by how much: delay = \"2us\"",
        "link" => "say which: link = \"host0-host1\"",
        "host" => "say which: host = 1",
        "switch" => "say which: switch = 0",
        "qp" => "say which by its number, the first of a host is 16: qp = 16",
        _ => "without an end the run would not end either: before = \"2ms\"",
    }
}

fn check_hosts(s: &Scenario, at: &At<'_>) -> Checked {
    let hosts = s.topology.hosts.value();
    let f = at.fault;
    for (key, host) in [("source", f.source), ("dest", f.dest), ("host", f.host)] {
        if let Some(host) = host.filter(|h| h.value() >= hosts) {
            let text = format!(
                "`{key}` is {}, and there are {hosts} hosts, 0 to {}",
                host.value(),
                hosts - 1
            );
            return at.refuse(key, text, "raise `topology.hosts` or name another host");
        }
    }
    match (f.source, f.dest) {
        (Some(source), Some(dest)) if source == dest => {
            let text = format!("`source` and `dest` are both {}", source.value());
            at.refuse("dest", text, "no packet goes from a host to itself")
        }
        _ => Ok(()),
    }
}

/// The NIC is one of the host's, and the one that the queue pair is of.
fn check_nic(s: &Scenario, profile: &Profile, at: &At<'_>) -> Checked {
    let f = at.fault;
    let (Some(nic), Some(host)) = (f.nic, f.host) else { return Ok(()) };
    let (nic, host) = (nic.value(), host.value());
    if let Some(text) = no_such_nic(&s.topology, profile, nic, [host].into_iter()) {
        return at.refuse("nic", text, OTHER_NIC);
    }
    let of = f.qp.map(|qp| u64::from(Nic::port_of(Qpn::new(qp.value() as u32)).0));
    match of.filter(|of| *of != nic) {
        Some(of) => {
            let text = format!("`nic` is {nic}, and the queue pair is one of NIC {of}");
            at.refuse("nic", text, "leave `nic` out: the number of a queue pair has its NIC")
        }
        None => Ok(()),
    }
}

/// Both ends of every link. A topology without a network was refused before.
fn cables(s: &Scenario, profile: &Profile) -> Vec<(End, End)> {
    let links = network(&s.topology, &s.switch, profile).map(|c| c.links).unwrap_or_default();
    links.iter().map(|l| (l.a, l.b)).collect()
}

/// Names of all links.
pub(crate) fn link_names(s: &Scenario, profile: &Profile) -> Vec<String> {
    let name = |(a, b)| LinkName::between(a, b).to_string();
    cables(s, profile).into_iter().map(name).collect()
}

fn check_link(s: &Scenario, profile: &Profile, at: &At<'_>) -> Checked {
    if at.fault.link.is_none() && at.fault.from.is_none() {
        return Ok(());
    }
    let cables = cables(s, profile);
    let names = link_names(s, profile);
    let joined = |l: &LinkName| {
        let (a, b) = (l.a.node, l.b.node);
        cables.contains(&(a, b)) || cables.contains(&(b, a))
    };
    let is_node = |node| cables.iter().any(|(a, b)| *a == node || *b == node);
    let mut link = None;
    if let Some(text) = &at.fault.link {
        link = text.parse::<LinkName>().ok().filter(|l| joined(l));
        if link.is_none() {
            let help = suggestion(text, names.iter().map(String::as_str), "links");
            return at.refuse("link", format!("there is no link \"{text}\""), help);
        }
    }
    let Some(text) = &at.fault.from else { return Ok(()) };
    let end = text.parse::<LinkEnd>().ok().filter(|e| is_node(e.node));
    let good = match (link, end) {
        (_, None) => false,
        (None, Some(_)) => true,
        (Some(l), Some(e)) => l.a.node == e.node || l.b.node == e.node,
    };
    if good {
        return Ok(());
    }
    let ends: Vec<String> = match link {
        Some(l) => vec![l.a.to_string(), l.b.to_string()],
        None => names.iter().flat_map(|n| n.split('-')).map(str::to_owned).collect(),
    };
    let whose = at.fault.link.as_ref().map_or("a link".to_owned(), |l| format!("link \"{l}\""));
    let help = suggestion(text, ends.iter().map(String::as_str), "ends");
    at.refuse("from", format!("\"{text}\" is no end of {whose}"), help)
}

/// Whether the switch of a reboot is there, and whether somebody heeds pauses.
fn check_switches(s: &Scenario, profile: &Profile, at: &At<'_>) -> Checked {
    let f = at.fault;
    if f.kind == FaultKind::PauseStorm && s.topology.switch_mode() != SwitchMode::Pfc {
        let text = "a storm of pauses, and no switch heeds one".to_owned();
        return at.refuse("kind", text, "write `switch = \"pfc\"` in [topology]");
    }
    let Some(switch) = f.switch else { return Ok(()) };
    let config = network(&s.topology, &s.switch, profile);
    let (n, switches) = (switch.value(), config.map_or(0, |c| c.switches.len() as u64));
    if n < switches {
        return Ok(());
    }
    let text = match switches {
        0 => "`switch` in a network without switches".to_owned(),
        1 => format!("`switch` is {n}, and there is switch 0 alone"),
        _ => format!("`switch` is {n}, and there are {switches} switches, 0 to {}", switches - 1),
    };
    at.refuse("switch", text, "name another switch, or change the topology")
}

/// The opcode of a file.
pub(crate) fn opcode_of(text: &str) -> Option<Opcode> {
    Opcode::ALL.iter().copied().find(|o| opcode_word(*o) == text)
}

fn check_opcode(s: &Scenario, at: &At<'_>) -> Checked {
    let (service, word) = match s.qp.kind {
        QpKind::Rc => (Service::Rc, "RC"),
        QpKind::Uc => (Service::Uc, "UC"),
        QpKind::Ud => (Service::Ud, "UD"),
    };
    let possible = || Opcode::ALL.iter().copied().filter(|o| o.service() == service);
    let class = at.fault.class.map(|c| c.packets());
    if let Some(text) = &at.fault.opcode {
        let Some(opcode) = opcode_of(text) else {
            let words: Vec<String> = possible().map(opcode_word).collect();
            let help = suggestion(text, words.iter().map(String::as_str), "opcodes");
            return at.refuse("opcode", format!("there is no opcode \"{text}\""), help);
        };
        if opcode.service() != service {
            let text = format!("no packet has opcode \"{text}\" where `qp.type` is \"{word}\"");
            return at.refuse("opcode", text, "name one of that service, or change the type");
        }
        if let Some(class) = class.filter(|c| !c.takes(opcode)) {
            let text = format!("opcode \"{text}\" is not of class \"{}\"", class.word());
            return at.refuse("class", text, "leave out one of the two");
        }
    }
    match class.filter(|c| !possible().any(|o| c.takes(o))) {
        Some(class) => {
            let text = format!("{word} has no packet of class \"{}\"", class.word());
            at.refuse("class", text, "name another class, or change `qp.type`")
        }
        None => Ok(()),
    }
}

fn check_times(s: &Scenario, at: &At<'_>) -> Checked {
    let f = at.fault;
    let after = f.after.map(|t| t.0).unwrap_or_default();
    let ends = [("before", f.before), ("until", f.until)];
    for (key, end) in ends {
        if let Some(end) = end.filter(|e| e.0 <= after) {
            let text = format!("no time lies after {} and before {}", after.print(), end.0.print());
            return at.refuse(key, text, "`after` comes first; swap them or move one");
        }
    }
    let limit = s.run.limit.0;
    if after >= limit {
        let text = format!("it begins at {}, and the run ends at {}", after.print(), limit.print());
        return at.refuse("after", text, "begin earlier, or raise `run.limit`");
    }
    Ok(())
}

fn check_numbers(at: &At<'_>) -> Checked {
    let f = at.fault;
    if f.chance.is_some() && f.burst.is_some() {
        let help = "leave out one of the two; a burst has shares of its own, `bad` and `good`";
        return at.refuse("burst", "`chance` and `burst`".to_owned(), help);
    }
    if f.nth.is_some() && (f.chance.is_some() || f.burst.is_some()) {
        let help = "leave out one of the two: the n-th packet is hit, or a share of all is";
        return at.refuse("nth", "`nth` and a probability".to_owned(), help);
    }
    let burst = f.burst.map(|b| {
        let all =
            [("enter", b.enter.0), ("leave", b.leave.0), ("bad", b.bad.0), ("good", b.good.0)];
        all.map(|(key, ratio)| (format!("burst.{key}"), ratio))
    });
    let chance = f.chance.map(|c| ("chance".to_owned(), c.0));
    for (key, ratio) in burst.into_iter().flatten().chain(chance) {
        if ratio.num > ratio.den {
            let text = format!("a probability of {} is above 1", ratio.print());
            return at.refuse(&key, text, "write a share, such as \"1/1000\"");
        }
    }
    let never = |b: &Burst| b.good.0.is_zero() && b.bad.0.is_zero();
    if f.burst.as_ref().is_some_and(never) && !f.maybe {
        let text = "a `burst` that hits no packet in either state never fires".to_owned();
        let help = "raise `bad` or `good`, or write maybe = true";
        return at.refuse("burst", text, help);
    }
    if let Some(chance) = f.chance.filter(|c| c.0.is_zero() && !f.maybe) {
        let text = format!("a `chance` of {} never fires", chance.0.print());
        return at.refuse("chance", text, "raise it, or write maybe = true");
    }
    Ok(())
}

fn check_hold(s: &Scenario, at: &At<'_>) -> Checked {
    let f = at.fault;
    if f.kind != FaultKind::Hold {
        return Ok(());
    }
    if f.until.is_some() == f.released_by.is_some() {
        let text = "a hold ends by `until` or by `released_by`".to_owned();
        return at.refuse("kind", text, "give one of the two");
    }
    let Some(other) = &f.released_by else { return Ok(()) };
    let others = || s.fault.iter().filter(|g| g.id != f.id).map(|g| g.id.as_str());
    if others().any(|id| id == other) {
        return Ok(());
    }
    let others: Vec<&str> = others().collect();
    let help = suggestion(other, others.iter().copied(), "faults");
    at.refuse("released_by", format!("there is no other fault \"{other}\""), help)
}
