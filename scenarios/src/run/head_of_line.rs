//! Queue pairs behind packets for somebody else: a port on their way is held back by a link that is
//! not, and what they send waits in the same line.
//!
//! Of flows `victim-flows` tells it by their times. This looks at the ways of all others.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use doorbell_core::units::{Span, Time};
use doorbell_sim::nic::NicQp;
use doorbell_sim::world::{World, port_name};

use super::bottleneck::{Port, Reason, Ways, class_of, lasted, name, percent, stood, way_of};
use super::congestion;
use super::deaths::qp_name;
use super::early::peer_of;
use super::programs::Placed;
use super::{ExitKind, Note, NoteKind, Outcome};
use crate::format::{Congestion, Scenario};
use crate::workloads::Results;

/// Name of the note.
const NAME: &str = "head-of-line";

/// Share of the run, in percent, for which the line must have stood to be worth a note.
const STOOD_PERCENT: u64 = 10;

/// A queue pair, the port in front of which its packets stood, for how long, and the link behind
/// which that one stood.
struct Behind<'w> {
    host: u32,
    qp: &'w NicQp,
    at: Port,
    stood: Span,
    link: Port,
}

/// Names the queue pairs that stood for links that they do not use.
pub(super) fn collect(s: &Scenario, world: &World, all: &[(&Placed, &Results)], out: &mut Outcome) {
    out.oracles.push(NAME.to_owned());
    // Ports that wait for each other in a circle have no link as the reason.
    if out.exit.kind == ExitKind::NoProgress {
        return;
    }
    let flows: BTreeSet<_> =
        all.iter().flat_map(|(p, r)| r.flows.qps.iter().map(|(_, qpn)| (p.host, *qpn))).collect();
    let (mut found, mut ways) = (Vec::new(), None);
    // What works as long as the line stood may be the reason: a link of the queue pair's own first.
    for (h, host) in (0..).zip(world.hosts()) {
        for (_, qp) in host.qps() {
            let taken = || peer_of(world, h, qp).is_some_and(|p| p.stats.rx_payload > 0);
            let sends = || qp.stats.last_datagram.is_some() || taken();
            if flows.contains(&(h, qp.qpn)) || !sends() {
                continue;
            }
            let way = way_of(world, h as usize, qp);
            let class = class_of(world, h as usize, qp);
            let Some((stood, i)) = (0..way.len()).map(|i| (stood(world, way[i], class), i)).max()
            else {
                continue;
            };
            let run = world.now().since(Time::ZERO);
            let own = way.get(i + 1).is_some_and(|next| lasted(world, *next, stood));
            if own || percent(met(world, qp, stood), run) < STOOD_PERCENT {
                continue;
            }
            let ways = ways.get_or_insert_with(|| Ways::of(world));
            match ways.reason(world, way[i], class) {
                Reason::Link(link) if !way.contains(&link) => {
                    found.push(Behind { host: h, qp, at: way[i], stood, link });
                }
                _ => {}
            }
        }
    }
    found.sort_by_key(|b| (Reverse(b.stood), b.host, b.qp.qpn));
    let Some(worst) = found.first() else { return };
    let text = text(&s.congestion, world, worst, found.len());
    let (name, count) = (NAME.to_owned(), found.len() as u64);
    out.notes.push(Note { kind: NoteKind::Info, name, text, count });
}

/// Of the time for which a line stood, the part that must have fallen into the life of a queue
/// pair: it did not send before its first request, nor after the last packet that was for it.
fn met(world: &World, qp: &NicQp, stood: Span) -> Span {
    let run = world.now().since(Time::ZERO);
    let life = qp.stats.first_sent.map_or(Span::ZERO, |first| qp.last_progress.since(first));
    stood.saturating_sub(run.saturating_sub(life))
}

fn text(c: &Congestion, world: &World, worst: &Behind<'_>, count: usize) -> String {
    let Behind { host, qp, at, stood, link } = worst;
    let percent = percent(*stood, world.now().since(Time::ZERO));
    let more = match count - 1 {
        0 => String::new(),
        1 => "; 1 more queue pair is like it".to_owned(),
        n => format!("; {n} more queue pairs are like it"),
    };
    format!(
        "{} to host {} stood behind packets for others: {} was held back for {percent} % of the \
         run by {}, which is not on its way{more}. Give it a traffic class of its own \
         (`[[switch.class]]` and the program's `sl`), or slow down those who fill that link \
         ({})",
        qp_name(*host, qp.qpn),
        qp.stats.last_datagram.map_or(qp.peer, |(host, ..)| host).0,
        port_name(world.fabric(), at.0, at.1),
        name(world, *link),
        congestion::advised(c, world),
    )
}

#[cfg(test)]
mod tests {
    use crate::run::Outcome;
    use crate::run::simulate_tests::{number, outcome};

    /// Eight send 1 MB to host 8; host 0 also writes to host 9, which has nothing else to do.
    fn incast(peer: u32, rest: &str, sets: &[&str]) -> Outcome {
        let text = format!(
            "host = 'ideal'\n[topology]\nkind = 'switch'\nhosts = 10\nrate = '100Gbps'\n\
             [switch]\nbuffer = '2MB'\n{rest}[[program]]\nname = 'in'\nkind = 'flows'\nhost = 0\n\
             hosts = 8\npeer = 8\nsize = '1MB'\nflows = {{ pattern = 'incast' }}\n\
             [[program]]\nname = 'other'\nkind = 'bandwidth'\nhost = 0\npeer = {peer}\n\
             size = '64KiB'\niterations = 40\nsl = 1\n"
        );
        outcome(&text, sets)
    }

    #[test]
    fn who_waits_behind_the_packets_of_others_is_told_for_whom() {
        let pfc = "topology.switch='pfc'";
        let o = incast(9, "", &[pfc]);
        assert_eq!(number(&o, "note.head-of-line"), 1.0, "{:?}", o.notes);
        let text = &o.notes.iter().find(|n| n.name == "head-of-line").unwrap().text;
        let by = "host0.port0 was held back";
        assert!(text.contains("to host 9 stood") && text.contains(by), "{text}");
        assert!(text.contains("by switch0.port8 to host8.port0"), "{text}");
        // The link that holds it back is its own.
        assert_eq!(number(&incast(8, "", &[pfc]), "note.head-of-line"), 0.0);
        // What the note advises helps.
        let classes = "[[switch.class]]\n[[switch.class]]\n";
        let apart = incast(9, classes, &[pfc]);
        assert_eq!(number(&apart, "note.head-of-line"), 0.0, "{:?}", apart.notes);
        let p99 = |o: &Outcome| o.latencies["other.latency"].p99;
        assert!(p99(&apart) * 2 < p99(&o), "{} {}", p99(&apart), p99(&o));
        // Nothing holds anybody back where full queues drop.
        let lossy = "[[switch.class]]\nlossless = false\n";
        assert_eq!(number(&incast(9, lossy, &[pfc]), "note.head-of-line"), 0.0);
    }

    /// It was over before the others began.
    #[test]
    fn who_was_done_before_the_line_stood_is_not_named() {
        let brief = |iterations: &str| {
            let iterations = format!("program.1.iterations={iterations}");
            incast(9, "", &["topology.switch='pfc'", "program.0.flows.start=50us", &iterations])
        };
        assert_eq!(number(&brief("1"), "note.head-of-line"), 0.0);
        assert_eq!(number(&brief("40"), "note.head-of-line"), 1.0);
    }
}
