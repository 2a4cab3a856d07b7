//! What held victims up: the link, or the lack of room, that their packets met.

use std::collections::{BTreeMap, BTreeSet};

use doorbell_core::units::Span;
use doorbell_sim::nic::{Nic, NicQp};
use doorbell_sim::world::{World, port_name};

use super::super::bottleneck::{
    Port, Reason, Ways, busiest, class_of, name, nic_at, stands, way_of, work_in,
};
use super::super::early::peer_of;
use super::super::faults::{Transfer, held_up};
use super::super::programs::{Placed, epoch};
use super::super::{Note, NoteKind, Outcome, Point};
use super::FlowRow;
use crate::workloads::Results;

/// Reasons that the note names; the victims of others are counted.
const MAX_NAMED: usize = 4;

/// What held a victim up.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Cause {
    /// A planned fault on its way, or on that of its answers, by its name and kind.
    Fault(String, &'static str),
    /// A link, or room, that its packets met.
    Met(Reason),
    /// No link on its way was busy for long enough.
    Own,
}

/// Victims of one cause.
#[derive(Default)]
struct Group {
    flows: u64,
    /// Of them, those whose destination is at the other end of the link.
    own_end: u64,
    /// What befell them that can be a reason.
    facts: BTreeSet<&'static str>,
}

/// Names what the victims met. `first`: for each program the place of its first flow in `rows`.
pub(super) fn note(
    point: &Point,
    world: &World,
    rows: &[FlowRow],
    first: &BTreeMap<usize, usize>,
    all: &[(&Placed, &Results)],
    out: &mut Outcome,
) {
    let victims = rows.iter().filter(|r| r.victim).count() as u64;
    if victims == 0 {
        return;
    }
    let ways = Ways::of(world);
    // Many victims met the same few ports.
    let mut reasons: BTreeMap<(Port, u8), Reason> = BTreeMap::new();
    let mut groups: BTreeMap<Cause, Group> = BTreeMap::new();
    for (row, q) in queue_pairs_of_victims(world, rows, first, all).into_values() {
        let (own, class) = (row.src as usize, class_of(world, row.src as usize, q));
        let way = way_of(world, own, q);
        let fault = fault_on(point, world, row, (&way, q));
        let way = of_others(world, row, way, class);
        let lasted = |p: &Port| lasted(world, row, *p, class);
        let full = full_behind(world, row, (&way, q)).map(Reason::Room);
        let reason = full.or_else(|| {
            let port = busiest(world, &way, class).filter(lasted)?;
            Some(*reasons.entry((port, class)).or_insert_with(|| {
                match stands(world, port, class) {
                    true => ways.reason(world, port, class),
                    false => Reason::Link(port),
                }
            }))
        });
        let cause = fault.or(reason.map(Cause::Met)).unwrap_or(Cause::Own);
        let group = groups.entry(cause).or_default();
        group.flows += 1;
        group.facts.extend(facts(point, row, q));
        group.own_end += u64::from(match reason {
            Some(Reason::Link((node, port))) => {
                world.fabric().egress_of(node, port).peer().0.0 == row.dst
            }
            _ => false,
        });
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(_, g)| std::cmp::Reverse(g.flows));
    let rest: u64 = groups.iter().skip(MAX_NAMED).map(|(_, g)| g.flows).sum();
    let mut parts: Vec<String> =
        groups.iter().take(MAX_NAMED).map(|(cause, g)| part(world, cause, g)).collect();
    if rest > 0 {
        parts.push(format!("{rest} for other reasons"));
    }
    let text = format!(
        "flows that took more than twice as long as sharing their own ends explains: {}",
        parts.join("; ")
    );
    let name = "victim-flows".to_owned();
    out.notes.push(Note { kind: NoteKind::Info, name, text, count: victims });
}

/// Of the ports on a flow's way those that others may have kept busy: not that of its own host, if
/// no other flow was there, unless the network holds it back.
fn of_others(world: &World, row: &FlowRow, mut way: Vec<Port>, class: u8) -> Vec<Port> {
    way.retain(|port| row.share > 1 || port.0.0 != row.src || stands(world, *port, class));
    way
}

/// Whether a port worked for at least half of the time that a flow took.
fn lasted(world: &World, row: &FlowRow, port: Port, class: u8) -> bool {
    row.fct_ps.is_some_and(|fct| work_in(world, port, class).as_ps() >= fct / 2)
}

/// The port to a flow's destination, if the receive buffer of the NIC there was full for at least
/// half of the time that the flow took, or dropped packets where the flow sent some again: over an
/// idealised link no port waits for it, and one that can hold nobody back never does.
fn full_behind(world: &World, row: &FlowRow, (way, q): (&[Port], &NicQp)) -> Option<Port> {
    let last = *way.last()?;
    let nic = nic_at(world, world.fabric().egress_of(last.0, last.1).peer())?;
    let full = nic.receive_buffer_full(world.now()).as_ps();
    let dropped = nic.stats.rx_discards > 0 && sent_again(q);
    (dropped || row.fct_ps.is_some_and(|fct| full >= fct / 2)).then_some(last)
}

/// The fault that kept packets or answers of a flow from going on, or an end of it from doing its
/// part, for at least half of its time.
fn fault_on(
    point: &Point,
    world: &World,
    row: &FlowRow,
    (way, q): (&[Port], &NicQp),
) -> Option<Cause> {
    if point.scenario.fault.is_empty() {
        return None;
    }
    let peer = peer_of(world, row.src, q);
    let back = peer.map_or(Vec::new(), |peer| way_of(world, row.dst as usize, peer));
    let ways: Vec<Port> = way.iter().chain(&back).copied().collect();
    // A destination has a part in it where it posts receives.
    let takes = peer.is_some_and(|peer| peer.rq.posted() > 0 || peer.srq.is_some());
    let hosts = if takes { vec![row.src, row.dst] } else { vec![row.src] };
    let fct = row.fct_ps?;
    let began = epoch(point.profile.port.bootstrap_latency) + Span::from_ps(row.start_ps);
    let lived = (began, began + Span::from_ps(fct));
    let worst = held_up(&point.scenario, world, &Transfer { hosts: &hosts, ways: &ways, lived })?;
    (worst.lasted.as_ps() >= fct / 2).then_some(Cause::Fault(worst.id, worst.kind.word()))
}

fn sent_again(q: &NicQp) -> bool {
    q.requester.as_ref().is_some_and(|r| r.counters().retransmitted_packets > 0)
}

/// What befell a flow, other than links that were busy.
fn facts(point: &Point, row: &FlowRow, q: &NicQp) -> impl Iterator<Item = &'static str> {
    let timers = q.stats.ack_timer_waits + q.stats.rnr_waits > 0;
    let control = point.scenario.congestion.control.word() != "none";
    [
        (row.lost > 0, "losses"),
        (sent_again(q), "packets sent again"),
        (timers, "timers"),
        (control, "the control of their rate"),
    ]
    .into_iter()
    .filter_map(|(is, word)| is.then_some(word))
}

fn part(world: &World, cause: &Cause, group: &Group) -> String {
    let (n, fabric) = (group.flows, world.fabric());
    let reason = match cause {
        Cause::Fault(id, kind) => return format!("{n} were held up by fault `{id}` ({kind})"),
        Cause::Own if group.facts.is_empty() => {
            return format!("{n} met no link that others kept busy for long, and lost nothing");
        }
        Cause::Own => {
            let facts: Vec<_> = group.facts.iter().copied().collect();
            return format!(
                "{n} met no link that others kept busy for long: what befell them is {}",
                facts.join(", ")
            );
        }
        Cause::Met(reason) => *reason,
    };
    // A class that goes first need not have larger flows.
    let front = match fabric.hosts().first().is_some_and(|host| host.classes() > 1) {
        true => "larger flows, or those of classes that go before theirs,",
        false => "larger flows",
    };
    match reason {
        Reason::Link(port) if group.own_end == n => format!(
            "{n} were held up by the link to their own destination, {}: {front} were in front of \
             them",
            name(world, port)
        ),
        Reason::Link(port) => format!("{n} were held up by {}", name(world, port)),
        Reason::Room((node, port)) => {
            let (peer, at) = fabric.egress_of(node, port).peer();
            format!("{n} found no room at {}", port_name(fabric, peer, at))
        }
    }
}

/// The victims with their first queue pair, by their place in the rows.
fn queue_pairs_of_victims<'a>(
    world: &'a World,
    rows: &'a [FlowRow],
    first: &BTreeMap<usize, usize>,
    all: &[(&Placed, &Results)],
) -> BTreeMap<usize, (&'a FlowRow, &'a NicQp)> {
    let mut found = BTreeMap::new();
    for (p, results) in all {
        let Some(first) = first.get(&p.program) else { continue };
        let nic = world.hosts()[p.host as usize].nic(usize::from(p.nic));
        for (flow, qpn) in &results.flows.qps {
            let at = first + *flow as usize;
            let victim = rows.get(at).filter(|r| r.victim && r.src == p.host);
            let qp = Nic::qp_index(*qpn).and_then(|i| nic.qp(i));
            if let (Some(row), Some(q)) = (victim, qp) {
                found.entry(at).or_insert((row, q));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use crate::run::Outcome;
    use crate::run::simulate_tests::outcome;

    fn note(o: &Outcome) -> &str {
        let note = o.notes.iter().find(|n| n.name == "victim-flows");
        &note.unwrap_or_else(|| panic!("no victims: {:?}", o.notes)).text
    }

    /// A flow of 4 KB over an idle network, 1.5 us long, with a fault.
    fn with_fault(fault: &str) -> Outcome {
        let text = format!(
            "host = 'ideal'\n[topology]\nkind = 'switch'\nhosts = 3\nrate = '100Gbps'\n\
             [qp]\ntimeout = 20\n[[program]]\nkind = 'flows'\nhost = 1\nhosts = 1\npeer = 0\n\
             size = '4KB'\nflows = {{ pattern = 'incast', start = '100us' }}\n[[fault]]\n\
             id = 'f'\n{fault}\n"
        );
        outcome(&text, &[])
    }

    /// Faults at an end of a flow, and late packets on its way, are causes; only where they met it.
    #[test]
    fn issue_005_a_fault_that_a_flow_met_is_its_cause() {
        let open = "after = '100us'\nbefore = '600us'";
        let met = [
            format!("kind = 'program-stall'\nhost = 1\n{open}"),
            format!("kind = 'cq-not-polled'\nhost = 1\n{open}"),
            format!("kind = 'nic-stall'\nhost = 0\n{open}"),
            "kind = 'delay'\nlink = 'host1-switch0'\ndelay = '50us'".to_owned(),
        ];
        for fault in met {
            let o = with_fault(&fault);
            assert!(note(&o).contains("1 were held up by fault `f`"), "{fault}: {}", note(&o));
        }
        // The same delay, and a stall of the host that is on no way of the flow, or that is over
        // before the flow starts.
        let elsewhere = [
            "kind = 'nic-stall'\nhost = 2\nafter = '100us'\nbefore = '600us'\nmaybe = true",
            "kind = 'nic-stall'\nhost = 0\nafter = '1us'\nbefore = '90us'\nmaybe = true",
            "kind = 'delay'\nlink = 'host2-switch0'\ndelay = '50us'\nmaybe = true",
        ];
        for fault in elsewhere {
            let o = with_fault(fault);
            assert!(
                o.notes.iter().all(|n| !n.text.contains("fault `f`")),
                "{fault}: {:?}",
                o.notes
            );
        }
    }

    /// Beside a drop that makes it slow, a stall before its time is no cause.
    #[test]
    fn issue_005_a_stall_before_the_flow_is_no_cause() {
        let o = with_fault(
            "kind = 'nic-stall'\nhost = 0\nafter = '1us'\nbefore = '90us'\nmaybe = true\n\
             [[fault]]\nid = 'd'\nkind = 'drop'\nclass = 'write'\nnth = 1",
        );
        assert!(!note(&o).contains("fault `f`"), "{}", note(&o));
        assert!(note(&o).contains("what befell them is losses"), "{}", note(&o));
    }

    /// Large flows to host 0, and small ones of the same leaf to `peer`, which start later.
    fn leaves(peer: u32) -> Outcome {
        let text = format!(
            "host = 'ideal'\n[topology]\nkind = 'leaf-spine'\nleaves = 2\n\
             hosts_per_leaf = 8\nspines = 1\nrate = '100Gbps'\nswitch_rate = '400Gbps'\n\
             buffer = '200KB'\n[[program]]\nname = 'large'\nkind = 'flows'\nhost = 8\nhosts = 6\n\
             peer = 0\nsize = '1MB'\nflows = {{ pattern = 'incast' }}\n[[program]]\n\
             name = 'small'\nkind = 'flows'\nhost = 14\nhosts = 2\npeer = {peer}\nsize = '4KB'\n\
             flows = {{ pattern = 'incast', start = '100us' }}\n"
        );
        outcome(&text, &["link=ib"])
    }

    #[test]
    fn small_flows_behind_large_ones_are_told_of_the_link_to_their_destination() {
        let text = note(&leaves(0)).to_owned();
        let own = "2 were held up by the link to their own destination, switch0.port0 to host0";
        assert!(text.contains(own), "{text}");
    }

    #[test]
    fn flows_to_others_are_told_of_the_link_that_the_network_waits_for() {
        let text = note(&leaves(1)).to_owned();
        assert!(text.contains("2 were held up by switch0.port0 to host0.port0, which"), "{text}");
    }

    #[test]
    fn flows_that_lose_packets_are_told_that_no_link_was_busy() {
        let text = "host = 'ideal'\n[topology]\nkind = 'switch'\nhosts = 3\n\
                    [[program]]\nkind = 'flows'\nhost = 1\nhosts = 2\npeer = 0\nsize = '4KB'\n\
                    flows = { pattern = 'incast' }\n[[fault]]\nid = 'f'\nkind = 'drop'\n\
                    class = 'write'\nsource = 1\nnth = 1\n";
        let o = outcome(text, &["link=roce"]);
        assert!(
            note(&o).contains(
                "1 met no link that others kept busy for long: what befell them is losses"
            ),
            "{}",
            note(&o)
        );
    }

    /// Packets that overtake each other are sent again, and keep the flow's own link busy: nobody
    /// else is to blame for it.
    #[test]
    fn a_flow_is_not_held_up_by_its_own_link() {
        let text = "host = 'ideal'\n[settings]\nrc.recovery = 'go-back-n'\n[topology]\n\
                    kind = 'fat-tree'\nk = 4\nrate = '100Gbps'\nrouting = 'adaptive'\n\
                    [qp]\ntimeout = 16\n[[program]]\nkind = 'flows'\nhosts = 16\n\
                    size = '1MB'\nflows = { pattern = 'permutation' }\n";
        let o = outcome(text, &[]);
        assert!(note(&o).contains("met no link that others kept busy"), "{}", note(&o));
        assert!(!note(&o).contains("held up by host"), "{}", note(&o));
    }

    /// Flows of one leaf to different hosts of another, over one link up and one down of the same
    /// rate: packets wait before the first, and the second is as busy without a queue.
    #[test]
    fn of_two_links_in_a_row_the_one_with_the_queue_is_named() {
        let text = "host = 'ideal'\n[topology]\nkind = 'leaf-spine'\nleaves = 2\n\
                    hosts_per_leaf = 4\nspines = 1\nrate = '100Gbps'\n[qp]\ntimeout = 20\n";
        let mut all = text.to_owned();
        for host in 0..4 {
            let peer = host + 4;
            all += &format!(
                "[[program]]\nname = 'p{host}'\nkind = 'flows'\nhost = {host}\nhosts = 1\n\
                 peer = {peer}\nsize = '1MB'\nflows = {{ pattern = 'incast' }}\n"
            );
        }
        let o = outcome(&all, &[]);
        assert!(note(&o).contains("4 were held up by switch0.port4 to switch2"), "{}", note(&o));
    }
}
