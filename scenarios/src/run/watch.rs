//! Settings that the ports and classes of one network should share and do not.

use std::collections::BTreeMap;

use doorbell_sim::fabric::{BLOCK_BYTES, EcnConfig, EgressPort, Fabric, MAX_CLASSES, SwitchNode};
use doorbell_sim::wire::{NodeId, PortId};
use doorbell_sim::world::{World, port_name};

use super::congestion::Keys;
use super::switches::classes;
use super::{Note, NoteKind, Outcome};
use crate::format::{ControlKind, Op, ProgramKind, Scenario};
use crate::quantity::Unit;

/// Ports named in a note; the rest is counted.
const MAX_NAMED: usize = 8;

/// A setting that is compared over all ports.
struct Setting {
    /// Name of the note.
    note: &'static str,
    /// The setting, as people call it.
    what: &'static str,
    /// Whether the network has a use for it.
    applies: fn(&Scenario) -> bool,
    /// Whether only ports of switches have it.
    of_switches: bool,
    /// Its value at a port, as people read it.
    of: fn(&EgressPort) -> String,
    /// The value that all should have; without it that of most ports.
    wanted: Option<&'static str>,
    /// What the difference does, and what to do.
    remedy: &'static str,
}

/// One line for each setting.
const SETTINGS: [Setting; 3] = [
    Setting {
        note: "mixed-mtu",
        what: "largest packet",
        applies: |_| true,
        of_switches: false,
        of: |port| {
            let most = port.max_packet_bytes();
            most.map_or("any".to_owned(), |n| format!("{n} B on the wire"))
        },
        wanted: None,
        remedy: "a packet that fits one link and not the next is dropped and nobody is told; give \
                 all links one `mtu`, or keep `qp.mtu` below the smallest",
    },
    Setting {
        note: "mixed-pfc",
        what: "priority flow control",
        applies: must_pause,
        of_switches: false,
        of: |port| if port.knows_pauses() { PFC } else { "off" }.to_owned(),
        wanted: Some(PFC),
        remedy: "nobody can be paused over such a link, so a lossless class drops behind it (in \
                 the switch, `tail_drop`, and what a host has no room for, `rx_discards`); take \
                 `pfc = false` from the link",
    },
    Setting {
        note: "mixed-ecn",
        what: "ECN marking",
        applies: |_| true,
        of_switches: true,
        of: curves,
        wanted: None,
        remedy: "of a queue there senders hear later, earlier or never, so what they do depends on \
                 the way; take the switch out of `[[switch.exception]]`",
    },
];

/// How a port marks, class by class.
fn curves(port: &EgressPort) -> String {
    let one = |class: u8| {
        let EcnConfig { kmin, kmax, pmax, .. } = port.curve(class)?;
        Some(format!("class {class} from {kmin} B to {kmax} B, at most {}", pmax.print()))
    };
    let all: Vec<String> = (0..MAX_CLASSES as u8).filter_map(one).collect();
    if all.is_empty() { "off".to_owned() } else { all.join(", ") }
}

/// Priority flow control is on.
const PFC: &str = "on";

/// Whether switches need pauses: some class is to lose nothing.
fn must_pause(s: &Scenario) -> bool {
    classes(&s.switch, s.topology.switch_mode()).each.iter().any(|c| c.lossless)
}

/// Compares the ports of both ends of every link and of all switches, and names those that differ
/// from what most have; then the classes that carry data.
pub(super) fn collect(world: &World, scenario: &Scenario, out: &mut Outcome) {
    for setting in &SETTINGS {
        out.oracles.push(setting.note.to_owned());
        let fabric = world.fabric();
        let odd = odd_ones(fabric, setting).filter(|_| (setting.applies)(scenario));
        let Some((text, count)) = odd else { continue };
        warn(setting.note, text, count, out);
    }
    type Look = fn(&Scenario, &Fabric) -> Option<(String, u64)>;
    let looks: [(&str, NoteKind, Look); 3] = [
        ("unmarked-class", NoteKind::Warning, unmarked),
        ("unused-class", NoteKind::Info, unused),
        ("control-without-signal", NoteKind::Warning, unmeasured),
    ];
    for (name, kind, look) in looks {
        out.oracles.push(name.to_owned());
        if let Some((text, count)) = look(scenario, world.fabric()) {
            out.notes.push(Note { kind, name: name.to_owned(), text, count });
        }
    }
}

fn warn(name: &str, text: String, count: u64, out: &mut Outcome) {
    out.notes.push(Note { kind: NoteKind::Warning, name: name.to_owned(), text, count });
}

/// Service levels that programs send on.
fn levels(s: &Scenario) -> impl Iterator<Item = u8> {
    s.program.iter().map(|p| p.sl.unwrap_or(s.qp.sl).value() as u8)
}

/// Classes in which nothing is sent: what the file says of them decides nothing.
fn unused(s: &Scenario, _: &Fabric) -> Option<(String, u64)> {
    let classes = classes(&s.switch, s.topology.switch_mode());
    let of = |sl: u8| classes.of_sl[usize::from(sl)];
    let cnps = s.congestion.notification().and_then(|n| n.sl);
    let used: Vec<u8> = levels(s).chain(cnps).map(of).collect();
    let all = 0..classes.each.len() as u8;
    let unused: Vec<u8> = all.filter(|class| !used.contains(class)).collect();
    let first = *unused.first()?;
    let own: Vec<String> =
        (0..16).filter(|sl| of(*sl) == first).map(|sl: u8| sl.to_string()).collect();
    let text = format!(
        "nothing is sent in class {}, so what `[[switch.class]]` says of it decides nothing: give \
         a program a service level of it (`sl`, for class {first}: {}), or leave the class out",
        list(&unused),
        own.join(", ")
    );
    Some((text, unused.len() as u64))
}

/// Programs whose pace a control by round trip times cannot set: what answers a READ or an atomic
/// is data, and takes the time of its bytes.
fn unmeasured(s: &Scenario, fabric: &Fabric) -> Option<(String, u64)> {
    let control = s.congestion.control;
    if !matches!(control, ControlKind::Timely | ControlKind::Integral) {
        return None;
    }
    let answered = |op: Op| op == Op::Read || op.is_atomic();
    let programs = s.program.iter().zip(0u64..);
    let without: Vec<String> = programs
        .filter(|(p, _)| p.kind != ProgramKind::Script && answered(p.op))
        .map(|(p, i)| if p.name.is_empty() { format!("program {i}") } else { p.name.clone() })
        .collect();
    let word = control.word();
    let text = format!(
        "`control = \"{word}\"` measures the way of ACKs, and {} has READs or atomics, which no \
         ACK answers: they go at the rate of the line; write `op = \"write\"`, or a control by \
         marks (`congestion.control = \"{}\"`)",
        named(&without),
        if fabric_has_credits(fabric) { "ibcc" } else { "dcqcn" }
    );
    (!without.is_empty()).then_some((text, without.len() as u64))
}

/// Whether the network is InfiniBand's.
fn fabric_has_credits(fabric: &Fabric) -> bool {
    fabric.ports().any(|(node, port)| fabric.egress_of(node, port).lanes() > 0)
}

fn list(classes: &[u8]) -> String {
    classes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Classes that carry data and are marked nowhere, while others that do are, or while senders wait
/// for marks.
fn unmarked(s: &Scenario, fabric: &Fabric) -> Option<(String, u64)> {
    let classes = classes(&s.switch, s.topology.switch_mode());
    let mut used: Vec<u8> = levels(s).map(|sl| classes.of_sl[usize::from(sl)]).collect();
    used.sort_unstable();
    used.dedup();
    let ports = fabric
        .switches()
        .iter()
        .flat_map(|node| (0..node.ports() as u16).map(|port| node.egress(PortId(port))));
    let marks = |class: &u8| ports.clone().any(|port| port.curve(*class).is_some());
    let (marked, not): (Vec<u8>, Vec<u8>) = used.into_iter().partition(marks);
    let told = s.congestion.notification().is_some_and(|n| n.with_nak);
    let waits = s.congestion.control.waits_for_marks() && !told;
    if not.is_empty() || marked.is_empty() && !waits {
        return None;
    }
    let others = match marked.is_empty() {
        true => format!("`control = \"{}\"` waits for marks", s.congestion.control.word()),
        false => format!("class {} is marked", list(&marked)),
    };
    let asked = |class: &u8| classes.each[usize::from(*class)].ecn.is_some();
    let remedy = match not.iter().all(asked) {
        true => "every switch is in `[[switch.exception]]`: give one of them `ecn`, or take it out",
        false => "write `[switch.ecn]`, or `ecn` in that class",
    };
    let remedy = match s.topology.credits.as_ref().and_then(|_| fitting_curve(fabric)) {
        Some((kmin, kmax)) if !not.iter().all(asked) => format!(
            "write `switch.ecn = {{ kmin = \"{kmin}B\", kmax = \"{kmax}B\" }}`: a queue of a lane \
             holds less than `kmax` without a word"
        ),
        _ => remedy.to_owned(),
    };
    let text =
        format!("no switch marks class {}, which carries data, and {others}: {remedy}", list(&not));
    Some((text, not.len() as u64))
}

/// A curve that the queues of all lanes can reach, where the usual one is above the most that waits
/// for an output, the room of all inputs of a switch: a quarter and the whole of that of one input.
fn fitting_curve(fabric: &Fabric) -> Option<(u64, u64)> {
    let of_switch = |s: &SwitchNode| {
        let ports = s.ports() as u64;
        let blocks = (0..ports as u16).filter_map(|p| s.ingress(PortId(p)).lane_room()).min()?;
        let input = u64::from(blocks) * u64::from(BLOCK_BYTES);
        Some((input * ports, input))
    };
    let (all, input) = fabric.switches().iter().filter_map(of_switch).min()?;
    (all < EcnConfig::default().kmax).then_some((input / 4, input))
}

/// The ports whose value is not that of most, or not the one that is wanted; `None` when all have
/// the same.
fn odd_ones(fabric: &Fabric, setting: &Setting) -> Option<(String, u64)> {
    // Links inside nodes are no file's: they lead from the ports of hosts that are no NIC's.
    let in_node = |(node, port): (NodeId, PortId)| {
        fabric.hosts().get(node.index()).is_some_and(|host| port.index() >= host.nics())
    };
    let outside =
        |at: &(NodeId, PortId)| !in_node(*at) && !in_node(fabric.egress_of(at.0, at.1).peer());
    let mut values: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let hosts = fabric.hosts().len();
    let of = |(node, _): &(NodeId, PortId)| !setting.of_switches || node.index() >= hosts;
    for (node, port) in fabric.ports().filter(of).filter(outside) {
        let value = (setting.of)(fabric.egress_of(node, port));
        values.entry(value).or_default().push(port_name(fabric, node, port));
    }
    let most = values.iter().max_by_key(|(_, ports)| ports.len())?.0;
    let usual = setting.wanted.unwrap_or(most).to_owned();
    let others = match values.contains_key(&usual) {
        true => format!("all others have {usual}"),
        false => format!("no port has it {usual}"),
    };
    let odd: Vec<(String, Vec<String>)> = values.into_iter().filter(|(v, _)| *v != usual).collect();
    if odd.is_empty() {
        return None;
    }
    let count = odd.iter().map(|(_, ports)| ports.len() as u64).sum();
    let lists: Vec<String> =
        odd.iter().map(|(value, ports)| format!("{} ({value})", named(ports))).collect();
    let (what, remedy) = (setting.what, setting.remedy);
    let list = lists.join("; ");
    Some((format!("{what}: {list}; {others}: {remedy}"), count))
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
    use crate::run::Outcome;
    use crate::run::simulate_tests::{number, outcome};

    const PROGRAM: &str = "[[program]]\nkind = 'latency'\nsize = '64B'\niterations = 2\n";

    /// Four hosts at a switch, of which the last has a link of its own kind.
    fn star(topology: &str, odd: &str, rest: &str) -> Outcome {
        let text = format!(
            "[topology]\nkind = 'explicit'\nhosts = 4\nswitches = 1\n{topology}\n\
             link = [{{ between = 'host0..2-switch0' }}, \
             {{ between = 'host3-switch0', {odd} }}]\n{PROGRAM}{rest}"
        );
        outcome(&text, &[])
    }

    #[track_caller]
    fn named(o: &Outcome, name: &str, count: u64, words: &[&str]) {
        let note = o.notes.iter().find(|n| n.name == name).expect("a note");
        assert_eq!(note.count, count, "{}", note.text);
        for word in words {
            assert!(note.text.contains(word), "{word}: {}", note.text);
        }
    }

    #[test]
    fn the_two_ports_of_the_odd_link_are_named_and_those_of_equal_links_are_not() {
        let o = star("mtu = '9000B'", "mtu = '1500B'", "");
        let odd = "host3.port0, switch0.port3 (15";
        named(&o, "mixed-mtu", 2, &[odd, "give all links one `mtu`"]);
        let o = star("mtu = '9000B'", "mtu = '9000B'", "");
        assert_eq!(number(&o, "note.mixed-mtu"), 0.0);
    }

    #[test]
    fn both_ports_of_a_link_without_pauses_are_named() {
        let o = star("switch = 'pfc'", "pfc = false", "");
        named(&o, "mixed-pfc", 2, &["host3.port0, switch0.port3 (off)", "take `pfc = false`"]);
        let o = star("switch = 'pfc'", "pfc = true", "");
        assert_eq!(number(&o, "note.mixed-pfc"), 0.0);
        // Where nothing is lossless nobody needs pauses.
        let lossy = "[[switch.class]]\nlossless = false\n";
        let o = star("switch = 'pfc'", "pfc = false", lossy);
        assert_eq!(number(&o, "note.mixed-pfc"), 0.0);
    }

    #[test]
    fn of_many_links_without_pauses_those_without_are_named_though_they_are_most() {
        let text = format!(
            "[topology]\nkind = 'explicit'\nhosts = 3\nswitches = 1\nswitch = 'pfc'\n\
             link = [{{ between = 'host0..1-switch0', pfc = false }}, \
             {{ between = 'host2-switch0' }}]\n{PROGRAM}"
        );
        let ports = "host0.port0, host1.port0, switch0.port0, switch0.port1 (off)";
        named(&outcome(&text, &[]), "mixed-pfc", 4, &[ports, "all others have on"]);
        let none = text.replace("'host2-switch0' }", "'host2-switch0', pfc = false }");
        named(&outcome(&none, &[]), "mixed-pfc", 6, &["no port has it on", "take `pfc = false`"]);
    }

    #[test]
    fn a_switch_that_marks_otherwise_is_named_and_its_hosts_are_not() {
        let run = |exception: &str| {
            let text = format!(
                "[topology]\nkind = 'leaf-spine'\nleaves = 3\nhosts_per_leaf = 2\nspines = 1\n\
                 {PROGRAM}[switch.ecn]\n{exception}"
            );
            outcome(&text, &[])
        };
        let o = run("[[switch.exception]]\nat = 'switch1'\n");
        let ports = "switch1.port0, switch1.port1, switch1.port2 (off)";
        let usual = "all others have class 0 from 100000 B to 400000 B, at most 1/5";
        named(&o, "mixed-ecn", 3, &[ports, usual, "`[[switch.exception]]`"]);
        let o = run("[[switch.exception]]\nat = 'switch1.port2'\necn = { kmax = '300KB' }\n");
        named(&o, "mixed-ecn", 1, &["switch1.port2 (class 0 from 100000 B to 300000 B"]);
        assert_eq!(number(&run(""), "note.mixed-ecn"), 0.0);
        let same = run("[[switch.exception]]\nat = 'switch0..3'\necn = {}\n");
        assert_eq!(number(&same, "note.mixed-ecn"), 0.0, "all alike");
    }

    fn two_classes(first: &str, second: &str, rest: &str) -> Outcome {
        let text = format!(
            "[topology]\nkind = 'switch'\nhosts = 2\n\
             {PROGRAM}name = 'a'\n{PROGRAM}name = 'b'\nsl = 1\n\
             [[switch.class]]\n{first}\n[[switch.class]]\n{second}\n{rest}"
        );
        outcome(&text, &[])
    }

    #[test]
    fn a_class_with_data_and_without_marks_is_named_beside_one_with_marks() {
        let o = two_classes("ecn = {}", "", "");
        named(&o, "unmarked-class", 1, &["marks class 1,", "class 0 is marked", "`[switch.ecn]`"]);
        for (first, second) in [("", ""), ("ecn = {}", "ecn = {}")] {
            let o = two_classes(first, second, "");
            assert_eq!(number(&o, "note.unmarked-class"), 0.0, "both alike");
        }
        // Nobody sends in the third class.
        let o = two_classes("ecn = {}", "ecn = {}\n[[switch.class]]", "");
        assert_eq!(number(&o, "note.unmarked-class"), 0.0);
    }

    #[test]
    fn a_control_that_waits_for_marks_that_nobody_makes_is_named() {
        let control =
            |word: &str| two_classes("", "", &format!("[congestion]\ncontrol = '{word}'\n"));
        let o = control("dcqcn");
        named(&o, "unmarked-class", 2, &["class 0, 1, which", "`control = \"dcqcn\"` waits"]);
        assert_eq!(number(&control("timely"), "note.unmarked-class"), 0.0, "it looks at the time");
        // Classes are marked, and exceptions take all marks away; or those of all ports but one.
        let taken = |at: &str| {
            let rest =
                format!("[[switch.exception]]\nat = '{at}'\n[congestion]\ncontrol = 'dcqcn'\n");
            two_classes("ecn = {}", "ecn = {}", &rest)
        };
        let all = ["class 0, 1, which", "every switch is in `[[switch.exception]]`"];
        named(&taken("switch0"), "unmarked-class", 2, &all);
        assert_eq!(number(&taken("switch0.port1"), "note.unmarked-class"), 0.0);
        // A CNP with each NAK is a signal too.
        let rest = "[congestion]\ncontrol = 'dcqcn'\ncnp_with_nak = true\n";
        assert_eq!(number(&two_classes("", "", rest), "note.unmarked-class"), 0.0);
    }

    #[test]
    fn a_class_in_which_nobody_sends_is_named_with_its_levels() {
        let o = two_classes("", "[[switch.class]]\nsl = [4, 6]\n", "");
        named(&o, "unused-class", 1, &["in class 2,", "for class 2: 4, 6)"]);
        assert_eq!(number(&two_classes("", "", ""), "note.unused-class"), 0.0);
        // CNPs of the vendor's parameters are on level 6.
        let vendor = "[congestion]\ncontrol = 'dcqcn'\nparameters = 'vendor'\n";
        let o = two_classes("ecn = {}", "ecn = {}\n[[switch.class]]\nsl = [6]\n", vendor);
        assert_eq!(number(&o, "note.unused-class"), 0.0);
    }

    #[test]
    fn a_control_by_time_is_named_where_nothing_can_be_measured() {
        let run = |op: &str, control: &str| {
            let text = format!(
                "[topology]\nkind = 'switch'\n{PROGRAM}op = '{op}'\n\
                 [congestion]\ncontrol = '{control}'\n"
            );
            outcome(&text, &[])
        };
        named(&run("read", "timely"), "control-without-signal", 1, &["program 0 has READs"]);
        assert_eq!(number(&run("write", "timely"), "note.control-without-signal"), 0.0);
        assert_eq!(number(&run("read", "none"), "note.control-without-signal"), 0.0);
    }

    /// A node's own links are not the file's to change.
    #[test]
    fn links_inside_a_node_are_no_exception_of_pauses() {
        let text = "host = 'ideal'\n[topology]\nkind = 'switch'\nhosts = 4\nnode = 2\n\
                    switch = 'pfc'\n[[program]]\nkind = 'bandwidth'\npeer = 2\nsize = '4KiB'\n";
        let o = outcome(text, &["profile=generic-400g"]);
        assert_eq!(number(&o, "note.mixed-pfc"), 0.0, "{:?}", o.notes);
    }
}
