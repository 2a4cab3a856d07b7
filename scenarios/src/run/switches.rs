//! From `[switch]` to the simulator's switches, and what they report.

use doorbell_core::units::{Bytes, Span};
use doorbell_sim::fabric::{
    ClassConfig, Classes, EcnConfig, EgressPort, Headroom, MAX_CLASSES, MarkAt, PauseAt,
    PauseCounters, Service, SharedConfig, Sharing, StormAction, Watchdog,
};
use doorbell_sim::wire::PortId;
use doorbell_sim::world::{World, port_name};

use super::{Metric, Note, NoteKind, Outcome};
use crate::format::{Ecn, EcnAt, SharingMode, StormMode, Switch, SwitchMode, TrafficClass};

/// Bytes between pause and resume where the file does not say: two of the largest packets.
const HYSTERESIS: u64 = 2 * doorbell_sim::fabric::DEFAULT_MAX_PACKET_BYTES as u64;

fn ecn(e: &Ecn) -> EcnConfig {
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
        reaction: s.reaction.as_ref().map(|r| r.0),
        quanta: s.quanta.map_or(usual.quanta, |q| q.value() as u16),
        lapse: s.lapse,
        watchdog: s.watchdog.as_ref().map(|after| Watchdog {
            after: after.0,
            action: match s.storm.unwrap_or_default() {
                StormMode::Report => StormAction::Report,
                StormMode::Ignore => StormAction::Ignore,
            },
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
    })
}

/// What the ports of switches have marked, paused and held. Only where the file has a say in it:
/// other runs have no such metrics.
pub(crate) fn metrics(world: &World, wanted: bool, ports: usize, out: &mut Outcome) {
    if !wanted {
        return;
    }
    let fabric = world.fabric();
    let (mut marked, mut queue, mut all) = (0, 0, PauseCounters::default());
    let mut put = |name: String, m| out.metrics.insert(name, m);
    let each = fabric.switches().iter().enumerate().flat_map(|(s, switch)| {
        (0..switch.ports() as u16).map(move |p| (s, p, switch.egress(PortId(p))))
    });
    for (s, p, port) in each {
        let (c, own) = (port.counters(world.now()), pauses(world, port));
        marked += c.marked;
        queue = queue.max(c.max_queue_bytes);
        all.xoff_sent += own.xoff_sent;
        all.xon_sent += own.xon_sent;
        all.paused += own.paused;
        all.storms += own.storms;
        if usize::from(p) < ports {
            let of = |name: &str| format!("switch{s}.port{p}.{name}");
            put(of("marked"), Metric::count(c.marked));
            put(of("max_queue"), Metric::bytes(c.max_queue_bytes));
            put(of("pause_frames"), Metric::count(own.xoff_sent));
            put(of("paused"), Metric::time(own.paused));
        }
    }
    let (mut hosts, mut from_hosts) = (Span::ZERO, 0);
    for (h, host) in fabric.hosts().iter().enumerate() {
        let own = (0..host.ports() as u16).map(|p| pauses(world, host.egress(PortId(p))));
        let (paused, sent) = own.fold((Span::ZERO, 0), |(t, n), c| (t + c.paused, n + c.xoff_sent));
        hosts += paused;
        from_hosts += sent;
        if h < ports {
            put(format!("host{h}.paused"), Metric::time(paused));
            put(format!("host{h}.pause_frames"), Metric::count(sent));
        }
    }
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
    storm_note(world, all.storms, out);
}

/// Ports that the note names; the rest is counted.
const MAX_STORMS: usize = 4;

fn storm_note(world: &World, count: u64, out: &mut Outcome) {
    if count == 0 {
        return;
    }
    let fabric = world.fabric();
    let storms = |(node, port)| {
        let egress = fabric.egress_of(node, port);
        let (peer, at) = egress.peer();
        let to = port_name(fabric, peer, at);
        (pauses(world, egress).storms > 0)
            .then(|| format!("{}, by {to}", port_name(fabric, node, port)))
    };
    let all: Vec<String> = fabric.ports().filter_map(storms).collect();
    let more = match all.len().saturating_sub(MAX_STORMS) {
        0 => String::new(),
        n => format!("; and {n} more"),
    };
    let text = format!(
        "paused for longer than `switch.watchdog`: {}{more}. It began where nobody pauses the one \
         that pauses",
        all[..all.len().min(MAX_STORMS)].join("; ")
    );
    let name = "pause-storm".to_owned();
    out.notes.push(Note { kind: NoteKind::Warning, name, text, count });
}
