//! What ports suffered for lack of link credit: the alarm of an InfiniBand network.

use std::collections::BTreeSet;

use doorbell_core::units::{Span, Time};
use doorbell_sim::fabric::{Buffering, MAX_CREDIT, ReceiveBuffer, Starvation};
use doorbell_sim::wire::{NodeId, PortId};
use doorbell_sim::world::{World, port_name};

use super::bottleneck::{self, Port, Reason, Ways, percent};
use super::congestion;
use super::faults::{Outage, outage};
use super::network::network_of;
use super::{ExitKind, Metric, Note, NoteKind, Outcome, Point, slow_nic};

/// Share of the run, in percent, from which a starving lane is named.
const ALARM_PERCENT: u64 = 10;

/// Reasons that are named, that of the worst lane first.
const NAMED: usize = 8;

/// Name of the note.
const NAME: &str = "credit-starvation";

/// Share of the run, in percent, from which a link is full: whatever stands behind it, it cannot
/// carry more.
const FULL_PERCENT: u64 = 90;

/// A lane of an output port.
struct Lane {
    at: (NodeId, PortId),
    lane: u8,
    suffered: Starvation,
}

/// Metrics of credit starvation; networks without credits have none. Returns the port of the lane
/// that starved most, and why, if that is worth a note and no fault explains it.
pub(super) fn starvation(
    point: &Point,
    world: &World,
    out: &mut Outcome,
) -> Option<(Port, Reason)> {
    let s = &point.scenario;
    let (fabric, now) = (world.fabric(), world.now());
    let mut lanes = Vec::new();
    for (node, port) in fabric.ports() {
        let at = (node, port);
        let all = 0..fabric.egress_of(node, port).lanes();
        let suffered = all.filter_map(|l| Some((l, fabric.starvation(now, at, l)?)));
        lanes.extend(suffered.map(|(lane, suffered)| Lane { at, lane, suffered }));
    }
    let least = lanes.iter().map(|l| l.suffered.least).min()?;
    let all = lanes.iter().fold(Span::ZERO, |sum, l| sum + l.suffered.starved);
    let waits = lanes.iter().map(|l| l.suffered.times).sum();
    lanes.sort_by_key(|l| std::cmp::Reverse(l.suffered.starved));
    let worst = lanes[0].suffered.starved;
    let mut put = |name: &str, m| out.metrics.insert(name.to_owned(), m);
    put("credits_least", Metric::count(least.into()));
    put("credit_waits", Metric::count(waits));
    put("credit_starved", Metric::time(all));
    put("credit_starved_worst", Metric::time(worst));
    let of_run = |part: Span| percent(part, now.since(Time::ZERO));
    lanes.retain(|l| of_run(l.suffered.starved) >= ALARM_PERCENT);
    let worst = lanes.first()?.at;
    if is_deadlock(world, out) {
        return None;
    }
    let ways = Ways::of(world);
    let mut by_reason: Vec<(Reason, Vec<Lane>)> = Vec::new();
    for lane in lanes {
        let down = outage(s, world, lane.at).is_some_and(|o| explains(&o, lane.suffered));
        let reason = match down {
            true => Reason::Room(lane.at),
            false => ways.reason(world, lane.at, lane.lane),
        };
        match by_reason.iter_mut().find(|(r, _)| *r == reason) {
            Some((_, of)) => of.push(lane),
            None => by_reason.push((reason, vec![lane])),
        }
    }
    let mut unexplained = None;
    for (i, (reason, of)) in by_reason.into_iter().take(NAMED).enumerate() {
        let down = match reason {
            Reason::Room(port) => outage(s, world, port).filter(|o| explains(o, of[0].suffered)),
            Reason::Link(_) => None,
        };
        let slow = slow_nic(world, reason, &of[0]);
        if i == 0 && down.is_none() && slow.is_none() {
            unexplained = Some((worst, reason));
        }
        let text = alarm(point, world, (reason, down.as_ref()), (&of, out));
        let (name, count) = (NAME.to_owned(), of.iter());
        let count = count.map(|l| l.suffered.times).sum();
        let kind = match (reason, down) {
            (Reason::Room(_), None) if slow.is_none() => NoteKind::Warning,
            _ => NoteKind::Info,
        };
        out.notes.push(Note { kind, name, text, count });
    }
    unexplained
}

/// The port of the NIC that kept packets in front of its full receive buffer, and their room with
/// them, if that is what a lane waited for and not credit that was on its way.
fn slow_nic(world: &World, reason: Reason, worst: &Lane) -> Option<Port> {
    let Reason::Room((node, port)) = reason else { return None };
    let (peer, at) = world.fabric().egress_of(node, port).peer();
    let nic = bottleneck::nic_at(world, (peer, at))?;
    let Starvation { starved, late, .. } = worst.suffered;
    (nic.stats.rx_buffer_waits > 0 && late * 2 <= starved).then_some((peer, at))
}

/// Whether ports wait for each other in a circle: then nobody grants too few credits, and the exit
/// of the run has the circle.
fn is_deadlock(world: &World, out: &Outcome) -> bool {
    let circle = || world.fabric().deadlock(world.now(), Span::ZERO, &BTreeSet::new());
    out.exit.kind == ExitKind::NoProgress && circle().is_some()
}

/// Whether an outage is most of what a lane suffered: what was lost with it takes its credit along
/// for a while.
fn explains(outage: &Outage, suffered: Starvation) -> bool {
    outage.lasted * 2 >= suffered.starved
}

/// Where no resource is busy: a port that sends or is held back for lack of credit nearly all the
/// time, while nothing behind it is full, is limited by the credits of its far end. `worst`: what
/// [`starvation`] found. `share`: from so many parts per million of `duration`, the measured time.
pub(super) fn limiting(
    world: &World,
    worst: Option<(Port, Reason)>,
    share: u128,
    duration: Span,
    out: &mut Outcome,
) {
    let Some((at, Reason::Room(port))) = worst else { return };
    let works = u128::from(bottleneck::work(world, at).as_ps());
    if out.limiting.is_none() && works * 1_000_000 >= u128::from(duration.as_ps()) * share {
        let (peer, at) = world.fabric().egress_of(port.0, port.1).peer();
        out.limiting = Some(format!("link credits of {}", port_name(world.fabric(), peer, at)));
    }
}

/// What the lanes that wait for one reason suffer, the worst first, and what helps.
fn alarm(
    point: &Point,
    world: &World,
    (reason, down): (Reason, Option<&Outage>),
    (of, out): (&[Lane], &Outcome),
) -> String {
    let worst = &of[0];
    let (fabric, run) = (world.fabric(), world.now().since(Time::ZERO));
    let Starvation { starved, late, .. } = worst.suffered;
    let more = match of.len() - 1 {
        0 => String::new(),
        1 => ", and those of 1 other lane less,".to_owned(),
        n => format!(", and those of {n} other lanes less,"),
    };
    let who = format!(
        "{}, VL {}: packets waited {}{more} for link credit, {} % of the run",
        port_name(fabric, worst.at.0, worst.at.1),
        worst.lane,
        Metric::time(starved).text(),
        percent(starved, run)
    );
    match reason {
        Reason::Link(port) => {
            let full = percent(world.fabric().egress_of(port.0, port.1).busy(world.now()), run);
            // Behind a packet for a full link stand others, and more credit brings some past it.
            let more = match (full >= FULL_PERCENT, percent(late, run)) {
                (true, 0) => "do not help".to_owned(),
                (true, n) => format!("are worth {n} % of the run at most"),
                (false, _) => "help only those that stand behind packets for it".to_owned(),
            };
            format!(
                "{who}: they were held back by {}. That link is what they wait for, and more \
                 credits {more}: spread its traffic, or slow its senders down ({})",
                bottleneck::name(world, port),
                congestion::advised(&point.scenario.congestion, world)
            )
        }
        Reason::Room(port) => match slow_nic(world, reason, worst).filter(|_| down.is_none()) {
            Some(nic) => format!(
                "{who}: {} gave none back, since its NIC had no room for what it got: {}. More \
                 credits do not help",
                port_name(fabric, nic.0, nic.1),
                slow_nic::cure(&point.scenario, world, nic, out)
            ),
            None => format!("{who}: {}", too_little_room(point, world, (port, down), worst)),
        },
    }
}

/// What lanes suffer from a far end without room, and what helps.
fn too_little_room(
    point: &Point,
    world: &World,
    (port, down): (Port, Option<&Outage>),
    worst: &Lane,
) -> String {
    let fabric = world.fabric();
    let (peer, at) = fabric.egress_of(port.0, port.1).peer();
    let by = port_name(fabric, peer, at);
    if let Some(Outage { id, kind, lasted }) = down {
        let (word, lasted) = (kind.word(), Metric::time(*lasted).text());
        return format!(
            "fault \"{id}\" ({word}) kept {by} from taking anything for {lasted}, and says nothing \
             of its credits"
        );
    }
    let to_host = peer.index() < fabric.hosts().len();
    let key = if to_host { "host_blocks" } else { "blocks" };
    let Starvation { starved, late, .. } = worst.suffered;
    let why = match port == worst.at {
        true => format!(
            "for {} % of that time the far end had nothing of theirs to send on",
            percent(late, starved)
        ),
        false => format!(
            "what they wait for waits at {} for link credit",
            port_name(fabric, port.0, port.1)
        ),
    };
    let c = point.scenario.topology.credits.as_ref();
    let all = granted(point, peer).is_some_and(|blocks| blocks >= u32::from(MAX_CREDIT));
    if all && c.is_none_or(|c| c.return_delay.is_none()) {
        return format!(
            "{why}, and {by} grants what InfiniBand can, {MAX_CREDIT} blocks at once, without \
             delay: only a shorter cable, or traffic on another lane (`[[switch.class]]`), brings \
             more"
        );
    }
    let late = match c.is_some_and(|c| c.return_delay.is_some()) {
        true => ", or lower `topology.credits.return_delay`",
        false => "",
    };
    if all {
        return format!(
            "{why}, and {by} grants what InfiniBand can, {MAX_CREDIT} blocks at once, but late: \
             lower `topology.credits.return_delay`"
        );
    }
    format!(
        "{why}, so {by} grants too few credits or grants them too late: raise \
         `topology.credits.{key}`{late}"
    )
}

/// Blocks that a node grants to a lane at once, whether the file has a word for it or the buffer
/// says it.
fn granted(point: &Point, node: NodeId) -> Option<u32> {
    let config = network_of(&point.scenario, &point.profile).ok()?;
    match config.hosts.get(node.index()) {
        Some(host) => match host.receive {
            ReceiveBuffer::Credits { blocks } => Some(blocks),
            _ => None,
        },
        None => match config.switches.get(node.index() - config.hosts.len())?.buffering {
            Buffering::Credits { blocks } => Some(blocks),
            _ => None,
        },
    }
}

#[cfg(test)]
mod tests {
    use crate::run::Outcome;
    use crate::run::simulate_tests::{number, outcome};

    fn note(o: &Outcome) -> Vec<&str> {
        let mine = o.notes.iter().filter(|n| n.name == "credit-starvation");
        mine.map(|n| n.text.as_str()).collect()
    }

    const LEAVES: &str = "host = 'ideal'\n[topology]\nkind = 'leaf-spine'\nleaves = 4\n\
                          hosts_per_leaf = 4\nspines = 2\nrate = '100Gbps'\n[[program]]\n\
                          kind = 'flows'\nsize = '1MB'\n";

    #[test]
    fn an_incast_over_credits_names_the_link_of_its_receiver() {
        let flows = "host = 1\nhosts = 15\npeer = 0\nflows = { pattern = 'incast' }\n";
        let o = outcome(&format!("{LEAVES}{flows}"), &["link=ib"]);
        let all = note(&o);
        assert_eq!(all.len(), 1, "{all:?}");
        assert!(
            all[0].contains("held back by switch0.port0 to host0.port0, which sent"),
            "{all:?}"
        );
        assert!(all[0].contains("more credits do not help"), "{all:?}");
        assert!(number(&o, "note.credit-starvation") > 1000.0);
        // More credits do not help indeed.
        let more =
            outcome(&format!("{LEAVES}{flows}"), &["link=ib", "topology.credits.blocks=2048"]);
        let last = |o: &Outcome| number(o, "last_completion");
        assert!((last(&more) / last(&o) - 1.0).abs() < 0.01);
    }

    #[test]
    fn too_few_credits_are_named_at_the_switch_and_at_the_host() {
        let text = "host = 'ideal'\n[topology]\nkind = 'switch'\nhosts = 2\n\
                    length = '100m'\n[topology.credits]\n[[program]]\nkind = 'flows'\nhosts = 1\n\
                    size = '1MB'\nflows = { pattern = 'incast' }\n";
        // 100 m there and back are 1 us, or 50 KB at 400 Gb/s: 782 blocks.
        let few = |set: &[&str]| outcome(text, &[&["link=ib"], set].concat());
        let o = few(&["topology.credits.blocks=200", "topology.credits.host_blocks=2048"]);
        let all = note(&o);
        assert_eq!(all.len(), 1, "{all:?}");
        assert!(all[0].starts_with("host0.port0, VL 0: ") && all[0].contains("credits.blocks`"));
        assert!(all[0].contains("for 99 % of that time the far end had nothing"), "{all:?}");
        assert!(all[0].contains("so switch0.port0 grants too few credits"), "{all:?}");
        assert_eq!(o.limiting.as_deref(), Some("link credits of switch0.port0"));
        let o = few(&["topology.credits.host_blocks=200"]);
        let all = note(&o);
        assert!(all[0].contains("host1.port0 grants too few credits"), "{all:?}");
        assert!(all[0].contains("topology.credits.host_blocks"), "{all:?}");
        let enough = few(&[]);
        assert!(note(&enough).is_empty(), "2048 blocks are enough");
        assert!(!enough.limiting.is_some_and(|l| l.contains("credits")));
    }

    /// What the buffer grants without a word may be all that InfiniBand can.
    #[test]
    fn issue_005_no_more_credits_are_asked_for_than_there_are() {
        let text = "host = 'ideal'\n[topology]\nkind = 'switch'\nhosts = 2\nlength = '2000m'\n\
                    [[program]]\nkind = 'flows'\nhosts = 1\nsize = '4MB'\n\
                    flows = { pattern = 'incast' }\n";
        for set in [&["link=ib"][..], &["link=ib", "topology.credits.return_delay=1us"]] {
            let o = outcome(text, set);
            let all = note(&o);
            assert!(!all.is_empty() && all.iter().all(|n| n.contains("2048 blocks")), "{all:?}");
            assert!(all.iter().all(|n| !n.contains("raise")), "{all:?}");
        }
    }

    /// Two lanes of two packets per round trip, one of them for half of the run, over links that
    /// are a third busy: twice the credit is twice the rate.
    #[test]
    fn a_lane_that_ends_early_is_not_held_back_by_a_link_that_has_time() {
        let text = "host = 'ideal'\n[topology]\nkind = 'leaf-spine'\nleaves = 2\n\
                    hosts_per_leaf = 2\nspines = 1\nrate = '100Gbps'\npropagation = '500ns'\n\
                    [topology.credits]\nblocks = 132\nreturn_delay = '300ns'\n[[program]]\n\
                    name = 'long'\nkind = 'bandwidth'\nhost = 0\npeer = 2\nsize = '64KiB'\n\
                    iterations = 600\nwindow = 64\n[[program]]\nname = 'short'\n\
                    kind = 'bandwidth'\nhost = 1\npeer = 3\nsize = '64KiB'\n\
                    iterations = 200\nwindow = 64\n";
        let of = |set: &[&str]| outcome(text, &[&["link=ib"], set].concat());
        let (few, more) = (of(&[]), of(&["topology.credits.blocks=264"]));
        let rate = |o: &Outcome| number(o, "short.throughput");
        let gain = rate(&more) / rate(&few);
        assert!((1.9..2.1).contains(&gain), "{gain}");
        let all = note(&few);
        assert!(!all.is_empty() && all.iter().all(|n| n.contains("topology.credits.")), "{all:?}");
        assert!(all.iter().any(|n| n.contains("switch0.port") && n.contains("`topology.cre")));
        assert!(all.iter().all(|n| !n.contains("That link is the limit")), "{all:?}");
    }

    /// An all-to-all beside an incast to a gateway: what the gateway's link holds back fills the
    /// buffers that the others need. No output works all the time that a leaf's port does, and all
    /// the same more credit is of no use.
    #[test]
    fn a_gateway_that_holds_others_back_is_named_and_no_credits_are_asked_for() {
        let text = "host = 'ideal'\n[topology]\nkind = 'leaf-spine'\nleaves = 4\n\
                    hosts_per_leaf = 4\nspines = 2\nrate = '100Gbps'\npropagation = '500ns'\n\
                    [qp]\ntimeout = 16\n[[program]]\nname = 'a2a'\nkind = 'flows'\nhost = 0\n\
                    hosts = 12\nsize = '200KB'\nflows = { pattern = 'all-to-all' }\n[[program]]\n\
                    name = 'out'\nkind = 'flows'\nhost = 0\nhosts = 12\npeer = 12\n\
                    size = '1MB'\nflows = { pattern = 'incast' }\n";
        let o = outcome(text, &["link=ib"]);
        let all = note(&o);
        assert!(!all.is_empty() && all.iter().all(|n| n.contains("held back by")), "{all:?}");
        let more = outcome(text, &["link=ib", "topology.credits.blocks=2048"]);
        let last = |o: &Outcome| number(o, "last_completion");
        assert!((last(&more) / last(&o) - 1.0).abs() < 0.02, "more credits do not help indeed");
    }

    /// A switch, a link or a host that is down gives no credit, and is named instead of the
    /// credits. Where they are too few beside it, they are named.
    #[test]
    fn a_far_end_that_was_down_is_no_lack_of_credits() {
        let run = |fault: &str, set: &[&str]| {
            let text = format!(
                "host = 'ideal'\n[topology]\nkind = 'switch'\nhosts = 3\nrate = '100Gbps'\n\
                 length = '200m'\n[topology.credits]\n[qp]\ntimeout = 10\n[[program]]\n\
                 kind = 'flows'\nhost = 1\nhosts = 2\npeer = 0\nsize = '5MB'\n\
                 flows = {{ pattern = 'incast' }}\n[[fault]]\nid = 'a'\n{fault}\n"
            );
            outcome(&text, &[&["link=ib"], set].concat())
        };
        let reboot = "kind = 'switch-reboot'\nswitch = 0\nafter = '200us'\nbefore = '1ms'";
        let flap = "kind = 'link-down'\nlink = 'host0-switch0'\nafter = '200us'\nbefore = '1ms'";
        for (fault, word, port) in [
            (reboot, "switch-reboot", "switch0.port"),
            (flap, "link-down", "host0.port0"),
            ("kind = 'peer-dead'\nhost = 0\nafter = '200us'", "peer-dead", "host0.port0"),
        ] {
            let o = run(fault, &[]);
            let all = note(&o);
            let says = format!("fault \"a\" ({word}) kept {port}");
            assert!(all.iter().any(|text| text.contains(&says)), "{word}: {all:?}");
            assert!(all.iter().all(|text| !text.contains("too few credits")), "{word}: {all:?}");
            assert!(!o.limiting.is_some_and(|l| l.contains("credits")), "{word}");
        }
        // A link that is down for a moment is no excuse for 64 blocks.
        let moment = "kind = 'link-down'\nlink = 'host0-switch0'\nafter = '200us'\n\
                      before = '205us'";
        let o = run(moment, &["topology.credits.blocks=128", "topology.credits.host_blocks=128"]);
        let all = note(&o);
        assert!(all.iter().any(|text| text.contains("too few credits")), "{all:?}");
    }
}
