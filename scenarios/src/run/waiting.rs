//! Where the packets of queue pairs wait at the end of a run that did not go on.

use std::collections::BTreeMap;

use doorbell_sim::wire::{NodeId, PortId};
use doorbell_sim::world::{World, port_name};

use super::{ExitKind, Outcome};

/// Ports on the way from a packet that waits to the one that all wait for.
const MAX_WAY: usize = 32;

/// What the port does that everybody waits for.
const GIVES_NO_CREDIT: &str = "gives no credit back";
const GIVES_NO_ROOM: &str = "gives no room back or has paused it";

/// Queue pairs that the exit's reason names; the rest is counted.
const MAX_NAMED: usize = 4;

/// Adds to each queue pair that died or stalled, and to the reason of a run that could not go on,
/// the port where its packets wait, and why.
pub(super) fn collect(world: &World, out: &mut Outcome) {
    let waits = waits(world);
    for row in &mut out.qps {
        let Some(wait) = waits.get(&(row.host, row.qpn)) else { continue };
        if let Some(death) = &mut row.death {
            death.other_side.push(format!("{}; {}", wait.here, wait.why));
        }
    }
    if out.exit.kind != ExitKind::NoProgress {
        return;
    }
    for ((host, qpn), wait) in waits.iter().take(MAX_NAMED) {
        out.exit.reason += &format!("\nhost {host}, QP {qpn}: {}", wait.here);
    }
    if let Some(more) = waits.len().checked_sub(MAX_NAMED).filter(|n| *n > 0) {
        out.exit.reason += &format!("\nand packets of {more} more queue pairs wait in the network");
    }
    if let Some((_, wait)) = waits.first_key_value() {
        out.exit.reason += &format!("\n{}", wait.why);
    }
}

/// Where packets of a queue pair wait, and what that port waits for.
pub(super) struct Wait {
    here: String,
    /// From port to port what it waits for, to the one that all wait for.
    pub why: String,
    /// None of these ports sends: the first is held back, and what it waits for is too.
    pub stands: bool,
}

/// For each host and queue pair number, the first port where its packets wait.
pub(super) fn waits(world: &World) -> BTreeMap<(u32, u32), Wait> {
    let fabric = world.fabric();
    let mut all: BTreeMap<(u32, u32), (NodeId, PortId, u8, u64)> = BTreeMap::new();
    for (node, port) in fabric.ports() {
        for (packet, _, class) in fabric.egress_of(node, port).waiting() {
            let Some(p) = world.packet(packet) else { continue };
            let Some(q) = world.hosts()[p.src.index()].nic(p.src_port.index()).qp(p.src_qp) else {
                continue;
            };
            let key = (p.src.0, q.qpn.value());
            all.entry(key).or_insert((node, port, class, 0)).3 += 1;
        }
    }
    let wait = |(node, port, class, n): (NodeId, PortId, u8, u64)| {
        let packets =
            if n == 1 { "1 packet waits".to_owned() } else { format!("{n} packets wait") };
        let name = port_name(fabric, node, port);
        let egress = fabric.egress_of(node, port);
        let state = match (egress.is_blocked(), egress.credits(world.now()), egress.lanes()) {
            (true, Some(_), _) => "no room at the far end",
            (true, None, 0) => "the far end has paused it",
            (true, None, _) => "it waits for link credit",
            // Other classes go on.
            (false, ..) if egress.is_paused(class) => "the far end has paused its class",
            (false, ..) => "its turn has not come",
        };
        let here = format!("{packets} in the network, the first at {name}: {state}");
        let (why, stands) = way(world, node, port, class);
        Wait { here, why, stands }
    };
    all.into_iter().map(|(key, at)| (key, wait(at))).collect()
}

/// From port to port what packets of a class wait for at a port, to the one that all wait for; and
/// whether none of them sends any.
fn way(world: &World, mut node: NodeId, mut port: PortId, class: u8) -> (String, bool) {
    let fabric = world.fabric();
    let mut seen: Vec<(NodeId, PortId)> = Vec::new();
    let mut names: Vec<String> = Vec::new();
    let end = loop {
        let name = port_name(fabric, node, port);
        if let Some(first) = seen.iter().position(|p| *p == (node, port)) {
            let circle = seen.len() - first;
            break (format!("{name} again: {circle} ports wait for each other in a circle"), true);
        }
        let egress = fabric.egress_of(node, port);
        if !egress.is_blocked() && !egress.is_paused(class) {
            break (format!("{name}, which sends"), false);
        }
        seen.push((node, port));
        names.push(name);
        let (peer, peer_port) = egress.peer();
        let next = fabric.ports().find(|(n, p)| {
            let its = |(_, from, of): (_, PortId, u8)| from == peer_port && of == class;
            *n == peer && fabric.egress_of(*n, *p).waiting().any(its)
        });
        match next.filter(|_| seen.len() < MAX_WAY) {
            Some((_, next)) => (node, port) = (peer, next),
            None if seen.len() == MAX_WAY => break ("others".to_owned(), true),
            None => {
                let far = port_name(fabric, peer, peer_port);
                let why = if egress.lanes() > 0 { GIVES_NO_CREDIT } else { GIVES_NO_ROOM };
                break (format!("{far}, which {why}"), true);
            }
        }
    };
    let (end, stands) = end;
    (format!("{} waits for {end}", names.join(" waits for ")), stands)
}

#[cfg(test)]
mod tests {
    use crate::run::Outcome;
    use crate::run::simulate_tests::outcome;

    /// Five lossless switches in a ring, each with a host that sends to the next but one: every
    /// link of the ring is asked for twice its rate, and each waits for the next.
    fn ring(buffer: &str) -> Outcome {
        outcome(&text(buffer), &[])
    }

    fn text(buffer: &str) -> String {
        let mut text = format!(
            "[topology]\nkind = 'explicit'\nhosts = 5\nswitches = 5\nswitch = 'lossless'\n\
             buffer = '{buffer}'\n"
        );
        for i in 0..5 {
            let (next, to) = ((i + 1) % 5, (i + 2) % 5);
            text += &format!("[[topology.link]]\nbetween = 'host{i}-switch{i}'\n");
            text += &format!("[[topology.link]]\nbetween = 'switch{i}-switch{next}'\n");
            text += &format!(
                "[[program]]\nname = 'p{i}'\nkind = 'bandwidth'\nhost = {i}\npeer = {to}\n\
                 size = '200KB'\niterations = 1\n"
            );
        }
        text
    }

    /// Three switches whose second class waits for itself in a circle, while the first one goes on.
    #[test]
    fn the_class_that_stands_is_told_from_the_one_that_goes_on() {
        let mut text = "[topology]\nkind = 'explicit'\nhosts = 3\nswitches = 3\nrate = '100Gbps'\n\
             propagation = '100ns'\nswitch = 'pfc'\nlink = [{between='host0-switch0'}, \
             {between='host1-switch1'}, {between='host2-switch2'}, {between='switch0-switch1'}, \
             {between='switch1-switch2'}, {between='switch2-switch0'}]\nroute = [\
             {at='switch0',to='host2',via='switch1'}, {at='switch1',to='host0',via='switch2'}, \
             {at='switch2',to='host1',via='switch0'}]\n[switch]\nbuffer = '2MB'\nalpha = '1/4'\n\
             class = [{}, {}]\n[qp]\ntimeout = 20\n"
            .to_owned();
        let programs =
            [(0, 2, 1, 200, 60), (1, 0, 1, 200, 60), (2, 1, 1, 200, 60), (0, 1, 0, 2000, 4)];
        for (i, (host, peer, sl, n, window)) in programs.into_iter().enumerate() {
            text += &format!(
                "[[program]]\nname = 'p{i}'\nkind = 'bandwidth'\nhost = {host}\npeer = {peer}\n\
                 size = '64KiB'\niterations = {n}\nwindow = {window}\nsl = {sl}\n"
            );
        }
        let o = outcome(&text, &["run.host=ideal", "qp.mtu=1KiB"]);
        assert_eq!(o.exit.kind, crate::run::ExitKind::NoProgress, "{}", o.exit.reason);
        let of =
            |qpn: u32| o.exit.reason.lines().find(|l| l.contains(&format!("host 0, QP {qpn}: ")));
        let stands = of(16).unwrap_or_else(|| panic!("{}", o.exit.reason));
        assert!(stands.contains("the far end has paused its class"), "{stands}");
        assert!(o.exit.reason.contains("wait for each other in a circle"), "{}", o.exit.reason);
    }

    #[test]
    fn a_circle_of_ports_that_wait_for_each_other_is_named() {
        let o = ring("16KiB");
        assert_eq!(o.exit.kind.word(), "no-progress");
        let reason = &o.exit.reason;
        assert!(reason.contains("5 ports wait for each other in a circle"), "{reason}");
        assert!(reason.contains("at host0.port0: no room at the far end"), "{reason}");
        assert!(reason.contains("switch2.port"), "{reason}");
        let deaths: Vec<_> = o.qps.iter().filter_map(|q| q.death.as_ref()).collect();
        assert_eq!(deaths.len(), 5);
        let told = |d: &&&crate::run::DeathRow| d.other_side.iter().any(|l| l.contains("circle"));
        assert_eq!(deaths.iter().filter(told).count(), 5);
        in_the_network(&o);
    }

    /// Every queue pair that waits is told that its packets stand in the network, and not that it
    /// asked for no answer: the last packet of its message is still to come.
    fn in_the_network(o: &Outcome) {
        for d in o.qps.iter().filter_map(|q| q.death.as_ref()) {
            assert_eq!(d.cause, "network-stands", "{d:?}");
            assert!(d.verdict.contains("5 ports wait for each other in a circle"), "{d:?}");
            let all = [&d.own_side[..], &d.other_side[..]].concat().join(" ");
            assert!(!all.contains("dies never"), "{all}");
        }
    }

    /// The same ring of InfiniBand: what ports wait for is credit, and nobody pauses anybody.
    #[test]
    fn ports_of_infiniband_wait_for_credit() {
        let roomless = "[topology]\nkind = 'explicit'\nhosts = 5\nswitches = 5\n\
                        switch = 'lossless'\nbuffer = '16KiB'\n";
        let credits = "[topology]\nkind = 'explicit'\nhosts = 5\nswitches = 5\n\
                       [topology.credits]\nblocks = 256\n";
        let text = text("16KiB").replace(roomless, credits);
        let o = outcome(&text, &["link=ib"]);
        assert_eq!(o.exit.kind.word(), "no-progress");
        let reason = &o.exit.reason;
        assert!(reason.contains(": it waits for link credit"), "{reason}");
        assert!(reason.starts_with("credit deadlock in class 0: switch0.port"), "{reason}");
        assert!(reason.contains("5 ports wait for each other in a circle"), "{reason}");
        assert!(!reason.contains("paused"), "{reason}");
        in_the_network(&o);
        // Nobody grants too few credits where all wait in a circle.
        assert!(!o.notes.iter().any(|n| n.name == "credit-starvation"), "{:?}", o.notes);
    }

    #[test]
    fn a_ring_with_room_for_all_waits_for_nobody() {
        let o = ring("1MiB");
        assert_eq!((o.exit.kind.word(), o.exit.reason.as_str()), ("ok", ""));
    }
}
