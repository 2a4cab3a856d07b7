//! From `[switch]` to the simulator's switches, and what they report.

use doorbell_core::units::{Bytes, Span};
use doorbell_sim::fabric::{
    Buffering, ClassConfig, Classes, EcnConfig, EgressPort, FabricConfig, Headroom, MAX_CLASSES,
    MarkAt, PauseAt, PauseCounters, PortHeadroom, Serve, Service, SharedConfig, Sharing,
    StormAction, Watchdog,
};
use doorbell_sim::wire::{NodeId, PortId};
use doorbell_sim::world::{World, port_name};

use super::effective::row;
use super::network::network_of;
use super::{Effective, Metric, Note, NoteKind, Outcome, Point};
use crate::format::{
    Ecn, EcnAt, ServeMode, SharingMode, StormMode, Switch, SwitchMode, TrafficClass,
};
use crate::quantity::Unit;

/// Bytes between pause and resume where the file does not say: two of the largest packets.
const HYSTERESIS: u64 = 2 * doorbell_sim::fabric::DEFAULT_MAX_PACKET_BYTES as u64;

/// Restoration time without a word, in detection times: that of SONiC's `pfcwd start`.
const RESTORE: u64 = 2;

pub(super) fn ecn(e: &Ecn) -> EcnConfig {
    let at = match e.at {
        EcnAt::Dequeue => MarkAt::Dequeue,
        EcnAt::Enqueue => MarkAt::Enqueue,
    };
    EcnConfig { kmin: e.kmin.0.0, kmax: e.kmax.0.0, pmax: e.pmax.0, at }
}

/// The traffic classes.
pub(crate) fn classes(s: &Switch, mode: SwitchMode) -> Classes {
    let one = |c: &TrafficClass| ClassConfig {
        service: match c.strict {
            true => Service::Strict,
            false => Service::Weighted(c.weight.map_or(1, |w| w.value() as u32)),
        },
        ecn: c.ecn.as_ref().or(s.ecn.as_ref()).map(ecn),
        lossless: mode == SwitchMode::Pfc && c.lossless.unwrap_or(true),
    };
    if s.class.is_empty() {
        return Classes::one(one(&TrafficClass::default()));
    }
    let mut classes = Classes::by_level(s.class.iter().map(one).collect());
    let named = |class: usize| s.class.get(class).is_some_and(|c| c.sl.is_some());
    // A class that names its levels has no other.
    for class in &mut classes.of_sl {
        if named(usize::from(*class)) {
            *class = 0;
        }
    }
    for (i, c) in s.class.iter().enumerate() {
        for sl in c.sl.iter().flatten() {
            classes.of_sl[sl.value() as usize] = i as u8;
        }
    }
    classes
}

/// The shared buffer.
pub(crate) fn shared(s: &Switch) -> SharedConfig {
    let usual = SharedConfig::default();
    SharedConfig {
        total_bytes: s.buffer.as_ref().map_or(usual.total_bytes, |b| b.0.0),
        sharing: match (s.sharing.unwrap_or_default(), &s.alpha) {
            (SharingMode::Static, _) => Sharing::Static,
            (SharingMode::Dynamic, Some(alpha)) => Sharing::Dynamic { alpha: alpha.0 },
            (SharingMode::Dynamic, None) => usual.sharing,
        },
        reserved_bytes: s.reserved.as_ref().map_or(0, |b| b.0.0),
        headroom: match s.headroom.and_then(|h| h.0) {
            None => Headroom::Formula,
            Some(Bytes(bytes)) => Headroom::Bytes(bytes),
        },
        pause_at: match &s.xoff {
            None => PauseAt::Share { hysteresis: HYSTERESIS },
            Some(xoff) => {
                let low = xoff.0.0.saturating_sub(HYSTERESIS);
                let xon = s.xon.as_ref().map_or(low, |xon| xon.0.0);
                PauseAt::Fixed { xoff: xoff.0.0, xon }
            }
        },
        serve: match s.serve.unwrap_or_default() {
            ServeMode::Arrival => Serve::Arrival,
            ServeMode::Inputs => Serve::Inputs,
        },
        reaction: s.reaction.as_ref().map(|r| r.0),
        quanta: s.quanta.map_or(usual.quanta, |q| q.value() as u16),
        lapse: s.lapse,
        watchdog: s.watchdog.as_ref().map(|after| Watchdog {
            after: after.0,
            action: match s.storm.unwrap_or_default() {
                StormMode::Report => StormAction::Report,
                StormMode::Ignore => StormAction::Ignore,
            },
            restore: s.restore.as_ref().map_or(after.0 * RESTORE, |restore| restore.0),
        }),
    }
}

/// The sum over the classes of a port.
fn pauses(world: &World, port: &EgressPort) -> PauseCounters {
    let classes = (0..MAX_CLASSES as u8).map(|class| port.pauses(world.now(), class));
    classes.fold(PauseCounters::default(), |a, b| PauseCounters {
        xoff_sent: a.xoff_sent + b.xoff_sent,
        xon_sent: a.xon_sent + b.xon_sent,
        xoff_received: a.xoff_received + b.xoff_received,
        xon_received: a.xon_received + b.xon_received,
        paused: a.paused + b.paused,
        storms: a.storms + b.storms,
        restores: a.restores + b.restores,
    })
}

/// What an output port has done about pauses.
pub(super) fn pauses_of(world: &World, (node, port): (NodeId, PortId)) -> PauseCounters {
    pauses(world, world.fabric().egress_of(node, port))
}

/// What the ports of switches have marked, paused and held, over all of them; that of each is
/// among the ports of the network. Only where the file has a say in it: other runs have no such
/// metrics.
pub(crate) fn collect(point: &Point, world: &World, out: &mut Outcome) {
    let pauses = world.fabric().pauses();
    if pauses || point.scenario.switch != Switch::default() {
        metrics(point, world, out);
    }
    // The network was built of this before the run.
    if pauses && let Ok(config) = network_of(&point.scenario, &point.profile) {
        headroom(&config, out);
        thresholds(&config, out);
    }
}

fn metrics(point: &Point, world: &World, out: &mut Outcome) {
    let fabric = world.fabric();
    let (mut marked, mut queue, mut all) = (0, 0, PauseCounters::default());
    let each = fabric
        .switches()
        .iter()
        .flat_map(|switch| (0..switch.ports() as u16).map(move |p| switch.egress(PortId(p))));
    for port in each {
        let (c, own) = (port.counters(world.now()), pauses(world, port));
        marked += c.marked;
        queue = queue.max(c.max_queue_bytes);
        all.xoff_sent += own.xoff_sent;
        all.xon_sent += own.xon_sent;
        all.paused += own.paused;
        all.storms += own.storms;
        all.restores += own.restores;
    }
    let (mut hosts, mut from_hosts) = (Span::ZERO, 0);
    for host in fabric.hosts() {
        let own = (0..host.ports() as u16).map(|p| pauses(world, host.egress(PortId(p))));
        let (paused, sent) = own.fold((Span::ZERO, 0), |(t, n), c| (t + c.paused, n + c.xoff_sent));
        hosts += paused;
        from_hosts += sent;
    }
    let mut put = |name: String, m| out.metrics.insert(name, m);
    let peak = fabric.switches().iter().filter_map(|s| s.buffer()).map(|b| b.peak()).max();
    put("ecn_marked".into(), Metric::count(marked));
    put("switch_queue_max".into(), Metric::bytes(queue));
    put("switch_buffer_peak".into(), Metric::bytes(peak.unwrap_or(0)));
    put("pause_frames".into(), Metric::count(all.xoff_sent));
    put("host_pause_frames".into(), Metric::count(from_hosts));
    put("resume_frames".into(), Metric::count(all.xon_sent));
    put("switches_paused".into(), Metric::time(all.paused));
    put("hosts_paused".into(), Metric::time(hosts));
    put("pause_storms".into(), Metric::count(all.storms));
    put("pause_restores".into(), Metric::count(all.restores));
    storm_note(point, world, all.storms, out);
}

/// What shared buffers come to. Where switches differ, the first one's.
pub(super) fn effective(point: &Point, world: &World, out: &mut Vec<Effective>) {
    let s = &point.scenario.switch;
    let shared =
        world.fabric().switches().iter().find_map(|node| Some((node.ports(), node.buffer()?)));
    let Some((ports, buffer)) = shared else { return };
    let Ok(config) = network_of(&point.scenario, &point.profile) else { return };
    let SharedConfig { total_bytes, sharing, .. } = self::shared(s);
    let asked = s.buffer.as_ref().map_or("usual".to_owned(), |b| b.0.print());
    let pool = buffer.to_share();
    let to_share = format!("{pool}B of {total_bytes}B to share");
    out.push(row("switch.buffer", asked, to_share, "less headroom and reserved parts"));
    let queues = ports as u64 * config.classes.each.len() as u64;
    let (asked, share) = match sharing {
        Sharing::Static => ("static".to_owned(), pool / queues),
        Sharing::Dynamic { alpha } => {
            let (num, den) = (u128::from(alpha.num), u128::from(alpha.den));
            let alone = u128::from(pool) * num / (num + den);
            (alpha.print(), u64::try_from(alone).unwrap_or(u64::MAX))
        }
    };
    let alone = format!("a queue alone gets {share}B");
    let reason = "equal parts, or alpha / (1 + alpha) of what is shared";
    out.push(row("switch.alpha", asked, alone, reason));
    let headrooms = config.headrooms();
    let kept = || headrooms.iter().map(|h| h.kept);
    if let (Some(least), Some(most)) = (kept().min(), kept().max()) {
        let asked = s.headroom.and_then(|h| h.0).map_or("formula".to_owned(), |b| b.print());
        let kept = match least == most {
            true => format!("{least}B"),
            false => format!("{least}B to {most}B"),
        };
        let reason = "of each port and lossless class, by its rate, length and reaction time";
        out.push(row("switch.headroom", asked, kept, reason));
    }
}

/// Headroom of the inputs that pause their sender: `headroom` is the least that one keeps,
/// `headroom_needed` the most that one needs by the formula. Ports that keep less than they need
/// are named.
fn headroom(fabric: &FabricConfig, out: &mut Outcome) {
    out.oracles.push(HEADROOM.to_owned());
    let all = fabric.headrooms();
    let Some(kept) = all.iter().map(|h| h.kept).min() else { return };
    let needed = all.iter().map(|h| h.needed).max().unwrap_or(0);
    out.metrics.insert("headroom".into(), Metric::bytes(kept));
    out.metrics.insert("headroom_needed".into(), Metric::bytes(needed));
    let short: Vec<_> = all.iter().filter(|h| h.kept < h.needed).collect();
    let Some(first) = short.first() else { return };
    let PortHeadroom { switch, port, .. } = first;
    let text = format!(
        "inputs of switches, switch{switch}.port{} first, keep {kept} B of headroom per lossless \
         class, and after a pause up to {needed} B may still arrive: what does not fit is dropped \
         (`ingress_overflow`); write switch.headroom = \"formula\"",
        port.0
    );
    let (name, count) = (HEADROOM.to_owned(), short.len() as u64);
    out.notes.push(Note { kind: NoteKind::Warning, name, text, count });
}

/// Names the switches whose fixed thresholds add up to more than they have to share.
fn thresholds(fabric: &FabricConfig, out: &mut Outcome) {
    out.oracles.push(THRESHOLDS.to_owned());
    let classes = fabric.classes.each.iter().filter(|c| c.lossless).count() as u64;
    let headrooms = fabric.headrooms();
    let mut over = Vec::new();
    for (index, switch) in (0..).zip(&fabric.switches) {
        let Buffering::Shared(shared) = &switch.buffering else { continue };
        let PauseAt::Fixed { xoff, .. } = shared.pause_at else { continue };
        let ports = headrooms.iter().filter(|h| h.switch == index);
        let (queues, kept) =
            ports.fold((0, 0), |(n, kept), port| (n + classes, kept + port.kept * classes));
        let asked = xoff.saturating_mul(queues);
        if asked.saturating_add(kept) > shared.total_bytes {
            over.push((index, asked, kept, shared.total_bytes));
        }
    }
    let Some((index, asked, kept, total)) = over.first() else { return };
    let text = format!(
        "switch{index} first: `switch.xoff` of all its input queues is {asked} B and headroom \
         {kept} B, more than the buffer of {total} B: queues pause below `xoff` when the rest is \
         used up; lower `switch.xoff`, or raise `switch.buffer`"
    );
    let (name, count) = (THRESHOLDS.to_owned(), over.len() as u64);
    out.notes.push(Note { kind: NoteKind::Warning, name, text, count });
}

/// Name of the note about too high thresholds.
const THRESHOLDS: &str = "xoff-oversubscribed";

/// Name of the note about too little headroom.
const HEADROOM: &str = "little-headroom";

/// Ports that the note names; the rest is counted.
const MAX_STORMS: usize = 4;

/// Whether a port has a storm and the node that pauses it has none at its own outputs.
fn begins(world: &World, at: (NodeId, PortId)) -> bool {
    let fabric = world.fabric();
    let (peer, _) = fabric.egress_of(at.0, at.1).peer();
    let storms = |at| pauses_of(world, at).storms > 0;
    storms(at) && !fabric.ports().any(|at| at.0 == peer && storms(at))
}

fn storm_note(point: &Point, world: &World, count: u64, out: &mut Outcome) {
    if count == 0 {
        return;
    }
    let fabric = world.fabric();
    let several = fabric.hosts().first().is_some_and(|host| host.classes() > 1);
    let storms = |(node, port)| {
        let egress = fabric.egress_of(node, port);
        let (peer, at) = egress.peer();
        let to = port_name(fabric, peer, at);
        let stormy = |class: &u8| egress.pauses(world.now(), *class).storms > 0;
        let classes: Vec<_> = (0..MAX_CLASSES as u8).filter(stormy).collect();
        let of = match several {
            true => format!(
                " in {}",
                classes.iter().map(|c| format!("class {c}")).collect::<Vec<_>>().join(", ")
            ),
            false => String::new(),
        };
        (!classes.is_empty()).then(|| format!("{}{of}, by {to}", port_name(fabric, node, port)))
    };
    let all: Vec<String> = fabric.ports().filter_map(storms).collect();
    let more = match all.len().saturating_sub(MAX_STORMS) {
        0 => String::new(),
        n => format!("; and {n} more"),
    };
    let passed = point.scenario.switch.storm == Some(StormMode::Ignore);
    let began = match (fabric.ports().any(|at| begins(world, at)), passed) {
        (true, false) => {
            "It began where nobody pauses the one that pauses: find out why that one does not take \
             what it gets, or let `switch.storm = \"ignore\"` pass over it"
        }
        (true, true) => {
            "It began where nobody pauses the one that pauses, and was passed over after \
             `switch.watchdog`: find out why that one does not take what it gets"
        }
        (false, false) => {
            "Each of them is paused itself by another, in a circle that has no beginning: take \
             routes that go up and then down, or let `switch.storm = \"ignore\"` break it"
        }
        (false, true) => {
            "Each of them is paused itself by another, in a circle that has no beginning, which \
             was broken after `switch.watchdog`: take routes that go up and then down"
        }
    };
    let text = format!(
        "paused for longer than `switch.watchdog`: {}{more}. {began}",
        all[..all.len().min(MAX_STORMS)].join("; ")
    );
    let name = "pause-storm".to_owned();
    out.notes.push(Note { kind: NoteKind::Warning, name, text, count });
}

#[cfg(test)]
mod tests {
    use crate::run::Outcome;
    use crate::run::simulate_tests::{number, outcome};

    /// Two writers to host 2, one of each class of three hosts at a switch of 100 Gb/s.
    fn incast(switch: &str) -> Outcome {
        let text = format!(
            "[topology]\nkind = 'switch'\nhosts = 3\nrate = '100Gbps'\nswitch = 'pfc'\n\
             [[program]]\nname = 'a'\nkind = 'bandwidth'\npeer = 2\nsize = '256KiB'\n\
             iterations = 4\n\
             [[program]]\nname = 'b'\nkind = 'bandwidth'\nhost = 1\npeer = 2\nsize = '256KiB'\n\
             iterations = 4\nsl = 1\n\
             [switch]\nbuffer = '1MB'\nreaction = '500ns'\n{switch}\n"
        );
        outcome(&text, &["run.host=ideal"])
    }

    const TWO: &str = "[[switch.class]]\n[[switch.class]]\n";

    #[test]
    fn classes_are_told_apart_and_add_up() {
        let o = incast(&format!("xoff = '20KB'\n{TWO}lossless = false\n"));
        let of = |name: &str| number(&o, name);
        assert!(of("class0.pause_frames") > 0.0 && of("class0.paused") > 0.0);
        assert_eq!(of("class0.pause_frames"), of("pause_frames"));
        assert_eq!((of("class1.pause_frames"), of("class1.paused")), (0.0, 0.0), "it is lossy");
        assert_eq!(of("class0.drops"), 0.0);
        assert_eq!(of("class1.drops"), of("counter.tail_drop"));
        assert_eq!(of("class0.paused"), of("port.host0.port0.class0.paused"), "by one host");
        assert_eq!(of("port.host1.port0.class0.packets"), 0.0, "whose class is 1");
        let sent = |class: usize| of(&format!("port.switch0.port2.class{class}.bytes"));
        assert_eq!(sent(0) + sent(1), of("port.switch0.port2.bytes"));
        let queue = of("port.switch0.port2.class0.queue_max");
        assert!(queue > 0.0 && queue < of("port.switch0.port2.queue_max"));
        assert_eq!(o.find("port.switch0.port2.class2.bytes"), None, "there is no third");
    }

    #[test]
    fn one_class_has_no_figures_of_its_own() {
        let o = incast("");
        assert!(o.find("class0.drops").is_none() && number(&o, "pause_frames") >= 0.0);
    }

    /// Need: 0.5 us and the way at 100 Gb/s, two packets, the pause frame.
    #[test]
    fn too_little_headroom_is_named_with_what_is_needed() {
        let o = incast("");
        let needed = number(&o, "headroom_needed");
        assert_eq!((needed, number(&o, "note.little-headroom")), (number(&o, "headroom"), 0.0));
        let of = |bytes: f64| incast(&format!("xoff = '20KB'\nheadroom = '{bytes}B'"));
        assert_eq!(number(&of(needed), "note.little-headroom"), 0.0);
        let o = of(needed - 1.0);
        let note = o.notes.iter().find(|n| n.name == "little-headroom").expect("a note");
        assert_eq!(note.count, 3, "ports");
        assert!(note.text.contains(&format!("up to {needed} B")), "{}", note.text);
        assert!(note.text.contains("switch0.port0 first"), "{}", note.text);
        let o = of(0.0);
        let overflow = |name: &str| number(&o, &format!("{name}.drops.ingress_overflow"));
        let ports = overflow("port.switch0.port0") + overflow("port.switch0.port1");
        assert_eq!(ports, number(&o, "counter.ingress_overflow"), "at the inputs that overflowed");
        assert!(ports > 0.0);
    }

    #[test]
    fn thresholds_that_add_up_to_more_than_the_buffer_are_named() {
        // Three inputs: 3 · 40 KB of headroom and 3 · xoff are 1 MB.
        let of = |xoff: u64| incast(&format!("headroom = '40KB'\nxoff = '{xoff}B'"));
        assert_eq!(number(&of(293_333), "note.xoff-oversubscribed"), 0.0);
        let o = of(293_334);
        let note = o.notes.iter().find(|n| n.name == "xoff-oversubscribed").expect("a note");
        assert!(note.text.contains("is 880002 B and headroom 120000 B"), "{}", note.text);
    }

    #[test]
    fn the_report_says_what_a_buffer_comes_to() {
        let row = |o: &Outcome, name: &str| {
            let row = o.effective.iter().find(|e| e.name == name).expect("a row");
            (row.requested.clone(), row.effective.clone())
        };
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        let o = incast("headroom = '40KB'\nalpha = 1");
        assert_eq!(row(&o, "switch.buffer"), pair("1MB", "880000B of 1000000B to share"));
        assert_eq!(row(&o, "switch.alpha"), pair("1", "a queue alone gets 440000B"));
        assert_eq!(row(&o, "switch.headroom"), pair("40KB", "40000B"));
        let o = incast(&format!("headroom = '40KB'\nsharing = 'static'\n{TWO}"));
        assert_eq!(row(&o, "switch.buffer"), pair("1MB", "760000B of 1000000B to share"));
        let share = "a queue alone gets 126666B";
        assert_eq!(row(&o, "switch.alpha"), pair("static", share), "six queues");
        let o = incast("");
        let needed = format!("{}B", number(&o, "headroom_needed"));
        assert_eq!(row(&o, "switch.headroom"), ("formula".to_owned(), needed));
    }
}
