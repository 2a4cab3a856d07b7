//! Settings that the ports of one network should share and do not.

use std::collections::BTreeMap;

use doorbell_sim::fabric::{EgressPort, Fabric};
use doorbell_sim::world::{World, port_name};

use super::{Note, NoteKind, Outcome};

/// Ports named in a note; the rest is counted.
const MAX_NAMED: usize = 8;

/// A setting that is compared over all ports.
struct Setting {
    /// Name of the note.
    note: &'static str,
    /// The setting, as people call it.
    what: &'static str,
    /// Its value at a port, as people read it.
    of: fn(&EgressPort) -> String,
    /// What the difference does, and what to do.
    remedy: &'static str,
}

/// One line for each setting.
const SETTINGS: [Setting; 1] = [Setting {
    note: "mixed-mtu",
    what: "largest packet",
    of: |port| port.max_packet_bytes().map_or("any".to_owned(), |n| format!("{n} B on the wire")),
    remedy: "a packet that fits one link and not the next is dropped and nobody is told; give all \
             links one `mtu`, or keep `qp.mtu` below the smallest",
}];

/// Compares the ports of both ends of every link and of all switches, and names those that differ
/// from what most have.
pub(super) fn collect(world: &World, out: &mut Outcome) {
    for setting in &SETTINGS {
        out.oracles.push(setting.note.to_owned());
        let Some((text, count)) = odd_ones(world.fabric(), setting) else { continue };
        let name = setting.note.to_owned();
        out.notes.push(Note { kind: NoteKind::Warning, name, text, count });
    }
}

/// The ports whose value is not that of most; `None` when all have the same.
fn odd_ones(fabric: &Fabric, setting: &Setting) -> Option<(String, u64)> {
    let mut values: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (node, port) in fabric.ports() {
        let value = (setting.of)(fabric.egress_of(node, port));
        values.entry(value).or_default().push(port_name(fabric, node, port));
    }
    if values.len() < 2 {
        return None;
    }
    let usual = values.iter().max_by_key(|(_, ports)| ports.len())?.0.clone();
    let odd: Vec<(String, Vec<String>)> = values.into_iter().filter(|(v, _)| *v != usual).collect();
    let count = odd.iter().map(|(_, ports)| ports.len() as u64).sum();
    let lists: Vec<String> =
        odd.iter().map(|(value, ports)| format!("{} ({value})", named(ports))).collect();
    let (what, remedy) = (setting.what, setting.remedy);
    let list = lists.join("; ");
    Some((format!("{what}: {list}; all others have {usual}: {remedy}"), count))
}

/// The first of the names, and how many more.
fn named(ports: &[String]) -> String {
    let first = ports.iter().take(MAX_NAMED).cloned().collect::<Vec<_>>().join(", ");
    match ports.len().saturating_sub(MAX_NAMED) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use crate::run::simulate_tests::{number, outcome};

    fn star(mtu: &str) -> crate::run::Outcome {
        let text = format!(
            "[topology]\nkind = 'explicit'\nhosts = 4\nswitches = 1\nmtu = '9000B'\n\
             link = [{{ between = 'host0..2-switch0' }}, \
             {{ between = 'host3-switch0', mtu = '{mtu}' }}]\n\
             [[program]]\nkind = 'latency'\nsize = '64B'\niterations = 2\n"
        );
        outcome(&text, &[])
    }

    #[test]
    fn the_two_ports_of_the_odd_link_are_named_and_those_of_equal_links_are_not() {
        let o = star("1500B");
        let note = o.notes.iter().find(|n| n.name == "mixed-mtu").expect("a note");
        assert_eq!(note.count, 2);
        assert!(note.text.contains("host3.port0, switch0.port3 (15"), "{}", note.text);
        assert!(note.text.contains("give all links one `mtu`"), "{}", note.text);
        let o = star("9000B");
        assert_eq!(number(&o, "note.mixed-mtu"), 0.0);
    }
}
