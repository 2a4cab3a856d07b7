//! Packets that the network dropped or put out of order, each with the setting behind it and what
//! helps.

use doorbell_sim::fabric::{
    DropCause, FabricConfig, MAX_CLASSES, PAUSE_FRAME_BYTES, SharedConfig, StormAction,
};
use doorbell_sim::world::{World, port_name};

use super::early;
use super::network::{network_of, usual_routing};
use super::switches::shared;
use super::{Metric, Note, NoteKind, Outcome, Point};
use crate::format::{QpKind, RoutingMode, Scenario, SwitchMode};
use crate::profile::RecoveryKind;

/// Name of the note about drops of a lossless class.
const LOSSLESS: &str = "lossless-drops";

/// Name of the note about queues that were full.
const FULL: &str = "full-queues";

/// Name of the note about packets that overtake each other.
const ORDER: &str = "out-of-order";

/// Bytes of a quantum of pause time.
const QUANTUM_BYTES: u64 = 64;

/// Looks at what the network dropped. To be asked when the other notes about switches are there.
pub(super) fn collect(point: &Point, world: &World, out: &mut Outcome) {
    out.oracles.extend([LOSSLESS, FULL, ORDER].map(str::to_owned));
    // Selective repeat pays for packets that overtake others, and may well be faster with them.
    let order = match point.profile.rc.recovery {
        RecoveryKind::GoBackN => NoteKind::Warning,
        RecoveryKind::SelectiveRepeat => NoteKind::Info,
    };
    let early = out.notes.iter().any(|n| n.name == early::NAME);
    let looks = [
        (LOSSLESS, NoteKind::Warning, lossless(point, world, out)),
        (FULL, NoteKind::Info, full(point, world, early)),
        (ORDER, order, out_of_order(point, world, out)),
    ];
    for (name, kind, found) in looks {
        if let Some((text, count)) = found {
            out.notes.push(Note { kind, name: name.to_owned(), text, count });
        }
    }
}

/// Quanta from which a pause lasts until the next frame that renews it: one goes after half of the
/// time, and waits at most for the largest packet and a frame of each class.
fn lasting(config: &FabricConfig) -> u64 {
    let frames = u64::from(PAUSE_FRAME_BYTES) * config.classes.each.len() as u64;
    (2 * (u64::from(config.max_packet_bytes) + frames)).div_ceil(QUANTUM_BYTES)
}

/// Why a class that never drops has dropped.
fn lossless(point: &Point, world: &World, out: &Outcome) -> Option<(String, u64)> {
    let count = world.fabric().dropped().of(DropCause::IngressOverflow).packets;
    if count == 0 {
        return None;
    }
    let config = network_of(&point.scenario, &point.profile).ok()?;
    let SharedConfig { quanta, lapse, watchdog, .. } = shared(&point.scenario.switch);
    let (asked, lasting) = (u64::from(quanta), lasting(&config));
    let noted = |name: &str| out.notes.iter().any(|n| n.name == name);
    let mut why = Vec::new();
    if lapse {
        why.push(format!(
            "`switch.lapse` lets a pause of {asked} quanta end though the input is still full: \
             leave it out, or raise `switch.quanta`"
        ));
    } else if asked < lasting {
        why.push(format!(
            "a pause of {asked} quanta may end before the frame that renews it has waited for the \
             largest packet: raise `switch.quanta` to {lasting} or more"
        ));
    }
    if noted("little-headroom") {
        why.push("headroom is too small: see the note `little-headroom`".to_owned());
    }
    let passed = watchdog.is_some_and(|w| w.action == StormAction::Ignore);
    if passed && noted("pause-storm") {
        why.push(
            "watchdogs passed over pauses: raise `switch.watchdog`, or write `switch.storm = \
             \"report\"`"
                .to_owned(),
        );
    }
    if !point.scenario.fault.is_empty() {
        why.push(
            "the fault plan may have added packets, or let pauses be missed: run without \
             `[[fault]]` to see"
                .to_owned(),
        );
    }
    if why.is_empty() {
        why.push("no setting explains it: this is an error of the model, please report it".into());
    }
    let text = format!(
        "inputs of a lossless class were full and dropped (`ingress_overflow`): {}",
        why.join("; ")
    );
    Some((text, count))
}

/// What makes a class lossless, as files write it.
pub(super) fn made_lossless(s: &Scenario, class: u8) -> &'static str {
    let named = s.switch.class.get(usize::from(class)).and_then(|c| c.lossless);
    match s.topology.switch_mode() {
        SwitchMode::Pfc if named != Some(false) => {
            "it is, but for packets of links that know no pauses: note `mixed-pfc`"
        }
        SwitchMode::Pfc => "without `lossless = false` in its `[[switch.class]]`",
        _ if s.topology.buffer.is_some() => {
            "`topology.switch = \"pfc\"`, with `switch.buffer` in place of `topology.buffer`"
        }
        _ => "`topology.switch = \"pfc\"`",
    }
}

/// Which queue dropped most for want of room, and what would have kept the packets. `early`: ack
/// timers sent packets again for nothing.
fn full(point: &Point, world: &World, early: bool) -> Option<(String, u64)> {
    let fabric = world.fabric();
    let count = fabric.dropped().of(DropCause::TailDrop).packets;
    let counters = |(node, port)| fabric.egress_of(node, port).counters(world.now());
    let of = |at| counters(at).dropped.of(DropCause::TailDrop).packets;
    let worst = fabric.ports().max_by_key(|at| (of(*at), std::cmp::Reverse(*at)))?;
    if count == 0 || of(worst) == 0 {
        return None;
    }
    let s = &point.scenario;
    let queue = counters(worst).max_queue_bytes;
    let (node, port) = worst;
    let egress = fabric.egress_of(node, port);
    let (peer, at) = egress.peer();
    let of_class = |class: &u8| egress.class_counters(*class).map(|c| c.dropped.packets);
    let class = (0..MAX_CLASSES as u8).max_by_key(|c| (of_class(c), std::cmp::Reverse(*c)))?;
    let marks = egress.curve(class).map(|e| e.kmin);
    let marked = match marks {
        None => String::new(),
        Some(kmin) => {
            // A mark needs a packet that waits, so little more can be had by lowering it.
            let early_enough = kmin <= 4 * s.qp.mtu.0.0;
            let kmin = Metric::bytes(kmin).text();
            let why = match s.congestion.control.word() {
                "none" => "and nobody slows down for marks: set `congestion.control`".to_owned(),
                word if early_enough => format!(
                    "which is early: what senders had under way at their first rate came before \
                     `{word}` could act, whatever the marks"
                ),
                word => format!(
                    "and `{word}` had no room above that until it acted: lower `switch.ecn.kmin` \
                     and `kmax`"
                ),
            };
            format!("; marks begin at {kmin}, {why}")
        }
    };
    let mode = s.topology.switch_mode();
    let size = match mode {
        SwitchMode::Pfc => "`switch.buffer` or `switch.alpha`",
        _ => "`topology.buffer`",
    };
    let cure = match early {
        true => "Ack timers filled them with packets that had come already: raise `qp.timeout` \
                 first (note `timer-short`); a larger buffer only makes answers slower"
            .to_owned(),
        false => {
            let lossless = made_lossless(s, class);
            format!("Raise {size}, let fewer send at once, or make the class lossless ({lossless})")
        }
    };
    let text = format!(
        "queues of lossy classes were full, that of {} to {} most often: {} packets dropped, at \
         most {} waited{marked}. {cure}",
        port_name(fabric, node, port),
        port_name(fabric, peer, at),
        of(worst),
        Metric::bytes(queue).text(),
    );
    Some((text, count))
}

/// Switches that choose by load for each packet. A lost packet is told of by one NAK at most, so
/// where there are more of them than losses, packets have overtaken each other. Go-Back-N sends all
/// of the window again, selective repeat what was only late.
fn out_of_order(point: &Point, world: &World, out: &Outcome) -> Option<(String, u64)> {
    let adaptive = point.scenario.topology.routing == Some(RoutingMode::Adaptive);
    if !adaptive {
        return None;
    }
    let of = |name: &str| out.counters.get(name).copied().unwrap_or(0);
    let lost = world.fabric().dropped().total().packets;
    let (naks, again) = (of("packet_seq_err"), of("retransmitted_packets"));
    let routing = usual_routing(&point.profile).word();
    if let Some(found) = without_recovery(point, lost, routing, of("rx_unused")) {
        return Some(found);
    }
    if naks <= lost {
        return None;
    }
    let (who, cure) = match point.profile.rc.recovery {
        RecoveryKind::GoBackN => (
            "Go-Back-N",
            format!(
                "Write `rc.recovery = \"selective-repeat\"` under [settings], or \
                 `topology.routing = \"{routing}\"`"
            ),
        ),
        RecoveryKind::SelectiveRepeat => (
            "selective repeat",
            format!(
                "Only these packets came for nothing; `topology.routing = \"{routing}\"` has none \
                 of them, and may put several flows on one link"
            ),
        ),
    };
    let text = format!(
        "`topology.routing = \"adaptive\"` takes another way for each packet, and some overtook \
         others: {who} takes that for loss, {naks} times here with {lost} packets lost, and \
         {again} packets were sent again. {cure}"
    );
    Some((text, naks))
}

/// UC drops messages of which a packet comes out of order.
fn without_recovery(
    point: &Point,
    lost: u64,
    routing: &str,
    dropped: u64,
) -> Option<(String, u64)> {
    if point.scenario.qp.kind != QpKind::Uc || dropped <= lost {
        return None;
    }
    let text = format!(
        "`topology.routing = \"adaptive\"` takes another way for each packet, and some overtook \
         others: UC drops the rest of a message of which a packet is missing, {dropped} packets \
         here with {lost} packets lost in the network. Write `topology.routing = \"{routing}\"`"
    );
    Some((text, dropped))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::simulate_tests::{number, outcome};

    fn note<'a>(o: &'a Outcome, name: &str) -> &'a str {
        let note = o.notes.iter().find(|n| n.name == name);
        &note.unwrap_or_else(|| panic!("no {name}: {:?}", o.notes)).text
    }

    /// Eight write 1 MB to one at a switch.
    fn incast(switch: &str, rest: &str) -> Outcome {
        let text = format!(
            "host = 'ideal'\n[topology]\nkind = 'switch'\nhosts = 9\nrate = '100Gbps'\n\
             propagation = '1us'\nswitch = 'pfc'\n[switch]\nbuffer = '4MB'\n{switch}\n\
             [[program]]\nname = 'in'\nkind = 'flows'\nhost = 1\nhosts = 8\npeer = 0\n\
             size = '1MB'\nflows = {{ pattern = 'incast' }}\n[qp]\nmtu = '1KiB'\n{rest}"
        );
        outcome(&text, &[])
    }

    /// Packets that frames have to wait for.
    const BACK: &str = "[[program]]\nname = 'back'\nkind = 'flows'\nhost = 0\nhosts = 1\n\
                        peer = 1\nsize = '1MB'\nflows = { pattern = 'incast' }\n";

    #[test]
    fn a_lossless_class_that_drops_names_the_setting() {
        let o = incast("", "");
        assert_eq!(number(&o, "counter.ingress_overflow"), 0.0);
        assert_eq!(number(&o, "note.lossless-drops"), 0.0);
        for (switch, says) in [
            ("lapse = true\nquanta = 977", "`switch.lapse` lets a pause of 977 quanta end"),
            ("quanta = 3", "raise `switch.quanta` to 135 or more"),
            ("headroom = '1KB'\nxoff = '20KB'", "see the note `little-headroom`"),
        ] {
            let o = incast(switch, BACK);
            let drops = number(&o, "counter.ingress_overflow");
            assert!(drops > 0.0, "{switch}");
            assert_eq!(number(&o, "note.lossless-drops"), drops, "{switch}");
            let text = note(&o, LOSSLESS);
            assert!(text.contains(says) && !text.contains("please report"), "{text}");
        }
        // From there on a pause lasts until it is renewed.
        assert_eq!(number(&incast("quanta = 135", BACK), "counter.ingress_overflow"), 0.0);
    }

    #[test]
    fn full_queues_are_named_with_what_marks_did() {
        let lossy = |rest: &str, control: &str| {
            let class = format!("[[switch.class]]\nlossless = false\n{rest}");
            incast(&class, control)
        };
        let o = lossy("", "");
        assert_eq!(number(&o, "note.full-queues"), number(&o, "counter.tail_drop"));
        let text = note(&o, FULL);
        assert!(text.contains("that of switch0.port0 to host0.port0 most often"), "{text}");
        assert!(text.contains("`switch.buffer`") && !text.contains("marks begin"), "{text}");
        let marks = "ecn = { kmin = '150KB', kmax = '200KB' }\n";
        let text = note(&lossy(marks, ""), FULL).to_owned();
        assert!(text.contains("nobody slows down for marks"), "{text}");
        let text = note(&lossy(marks, "[congestion]\ncontrol = 'dcqcn'\n"), FULL).to_owned();
        assert!(text.contains("lower `switch.ecn.kmin`"), "{text}");
        assert_eq!(number(&incast("", ""), "note.full-queues"), 0.0, "a lossless class");
    }

    /// The key of a plain switch's buffer is none of a switch that pauses.
    #[test]
    fn issue_005_the_remedy_for_a_full_queue_is_one_that_the_file_takes() {
        let text = "host = 'ideal'\n[topology]\nkind = 'switch'\nhosts = 9\nrate = '100Gbps'\n\
                    buffer = '100KB'\nswitch = 'tail-drop'\n[[program]]\nkind = 'flows'\n\
                    host = 1\nhosts = 8\npeer = 0\nsize = '1MB'\n\
                    flows = { pattern = 'incast' }\n[qp]\nmtu = '1KiB'\n";
        let o = outcome(text, &[]);
        let says =
            "`topology.switch = \"pfc\"`, with `switch.buffer` in place of `topology.buffer`";
        assert!(note(&o, FULL).contains(says), "{}", note(&o, FULL));
        let cured = text.replace("buffer = '100KB'\nswitch = 'tail-drop'", "switch = 'pfc'");
        let cured = cured.replace("[[program]]", "[switch]\nbuffer = '4MB'\n[[program]]");
        assert_eq!(number(&outcome(&cured, &[]), "counter.tail_drop"), 0.0);
    }

    /// Two leaves; four hosts of one send to those of the other.
    fn leaves(routing: &str, recovery: &str) -> Outcome {
        let text = format!(
            "host = 'ideal'\n[topology]\nkind = 'leaf-spine'\nleaves = 2\nhosts_per_leaf = 4\n\
             spines = 4\nrate = '100Gbps'\nrouting = '{routing}'\n[[program]]\nkind = 'flows'\n\
             hosts = 4\nhost = 4\npeer = 0\nsize = '100KB'\nflows = {{ pattern = 'incast' }}\n\
             [settings]\n'rc.recovery' = '{recovery}'\n"
        );
        outcome(&text, &["run.noise=on"])
    }

    #[test]
    fn go_back_n_over_ways_chosen_for_each_packet_is_named() {
        let o = leaves("adaptive", "go-back-n");
        assert!(number(&o, "note.out-of-order") > 0.0, "{:?}", o.notes);
        assert!(note(&o, ORDER).contains("with 0 packets lost"), "{}", note(&o, ORDER));
        let o = leaves("adaptive", "selective-repeat");
        let text = note(&o, ORDER);
        assert!(text.contains("selective repeat takes that for loss"), "{text}");
        assert!(!text.contains("rc.recovery"), "it is written already: {text}");
        for recovery in ["go-back-n", "selective-repeat"] {
            let o = leaves("ecmp", recovery);
            assert_eq!(number(&o, "note.out-of-order"), 0.0, "{recovery}");
        }
    }
}
