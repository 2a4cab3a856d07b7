//! Messages of unreliable services that did not arrive: no queue pair dies of it, nobody is told,
//! and nothing sends them again.

use std::collections::BTreeSet;

use doorbell_core::verbs::{QpType, WcStatus};
use doorbell_sim::nic::{Dropped, Nic, NicQp, Refused, Sender};
use doorbell_sim::rc::{BadRequest, DropReason};
use doorbell_sim::wire::HostId;
use doorbell_sim::world::World;

use super::fates::{Fates, fates_of};
use super::notes::warn;
use super::verdict::receive_status;
use super::words::{between, counter_of, lost_line, plural, qp_name, refused_word};
use crate::format::Scenario;
use crate::run::port_counters::port_counters;
use crate::run::{ExitKind, Outcome};

/// Queue pairs that the exit's reason names; the rest is counted.
const MAX_NAMED: usize = 4;

/// Queue pairs of unreliable services, each as the sender of its packets.
fn senders(world: &World) -> impl Iterator<Item = (Sender, &NicQp)> {
    let hosts = (0..).zip(world.hosts());
    let all = hosts.flat_map(|(h, host)| host.qps().map(move |(index, q)| (h, index, q)));
    all.filter(|(.., q)| matches!(q.ty, QpType::Uc | QpType::Ud))
        .map(|(h, index, q)| (Sender { host: HostId(h), port: Nic::port_of(q.qpn), qp: index }, q))
}

const fn packet_word(ty: QpType) -> &'static str {
    if matches!(ty, QpType::Ud) { "datagram" } else { "packet" }
}

/// Packets of unreliable services that were dropped where they arrived: nobody dies of it, and
/// the sender learns nothing.
pub(super) fn drops(world: &World, out: &mut Outcome) {
    let mut all = Vec::new();
    for (from, q) in senders(world) {
        let nics = (0..).zip(world.hosts()).flat_map(|(h, o)| o.nics().map(move |n| (h, n)));
        for (to, there) in nics {
            for d in there.dropped_of(from) {
                let counters: Vec<_> = port_counters(world, HostId(to), there).collect();
                let who = (qp_name(from.host.0, q.qpn), qp_name(to, d.dest), q.ty);
                all.push((dropped_text(&who, to, d, &counters), d.packets));
            }
        }
    }
    warn(out, "packets-dropped", all);
}

fn dropped_text(
    (from, to, ty): &(String, String, QpType),
    host: u32,
    d: &Dropped,
    counters: &[(&'static str, u64)],
) -> String {
    let ends = |what: &str, status: WcStatus| {
        let status = status.as_str_name();
        format!("{what}; the receiver sees {status}, and its queue pair goes to ERR")
    };
    let why = match d.why {
        Refused::Request(BadRequest::ShortReceive) if *ty == QpType::Ud => ends(
            "the receive has no room for the payload and the 40 bytes of the GRH before it",
            WcStatus::LocLenErr,
        ),
        Refused::Request(why @ (BadRequest::ShortReceive | BadRequest::LocalMemory)) => {
            ends(&why.to_string(), receive_status(why))
        }
        why => format!("{} ({})", refused_word(&why), counter_of(d)),
    };
    let moved = [counter_of(d), "rx_dropped", "resp_local_length_error"];
    let named: Vec<String> = counters
        .iter()
        .filter(|(name, n)| *n > 0 && moved.contains(name))
        .map(|(name, n)| format!("{name} {n}"))
        .collect();
    format!(
        "{from} to {to}: {} dropped {}: {why}; port of host {host}: {}",
        plural(d.packets, packet_word(*ty)),
        between(d.first, d.last),
        if named.is_empty() { "no counter moves".to_owned() } else { named.join(", ") }
    )
}

/// Puts what unreliable services lost ahead of the reasons of a run that could not go on: who waits
/// for one of these messages, or for the answer to it, waits for ever.
pub(super) fn explain_exit(world: &World, scenario: &Scenario, out: &mut Outcome) {
    if out.exit.kind != ExitKind::NoProgress {
        return;
    }
    let fates = senders(world).map(|(from, q)| (from, q, fates_of(world, scenario, from)));
    let any = |fates: &Fates| !fates.lost.is_empty() || !fates.dropped.is_empty();
    let hurt: Vec<_> = fates.filter(|(.., fates)| any(fates)).collect();
    let Some((_, first, _)) = hurt.first() else { return };
    let mut text = String::new();
    for (from, q, fates) in hurt.iter().take(MAX_NAMED) {
        let lines = lines(q, fates).join("; ");
        text += &format!("{} ({}): {lines}\n", qp_name(from.host.0, q.qpn), q.ty);
    }
    if let Some(more) = hurt.len().checked_sub(MAX_NAMED).filter(|n| *n > 0) {
        text +=
            &format!("and packets of {} more did not arrive\n", plural(more as u64, "queue pair"));
    }
    let helps: BTreeSet<&str> = hurt.iter().flat_map(|(.., fates)| helps(fates)).collect();
    let helps: String = helps.iter().map(|help| format!(", {help}")).collect();
    text += &format!(
        "nothing sends them again, since {} has no acknowledgement: who waits for one of them, or \
         for the answer to it, waits for ever; `qp.type = \"RC\"` sends again what is \
         lost{helps}\n",
        first.ty
    );
    out.exit.reason.insert_str(0, &text);
}

/// Where packets of a queue pair ended, a line for each place and cause.
fn lines(q: &NicQp, fates: &Fates) -> Vec<String> {
    let what = packet_word(q.ty);
    let lost = fates.lost.iter().map(|l| format!("{} {}", plural(l.packets, what), lost_line(l)));
    let dropped = fates.dropped.iter().map(|(host, d)| {
        format!(
            "{} dropped at host {host} {}: {} ({})",
            plural(d.packets, what),
            between(d.first, d.last),
            refused_word(&d.why),
            counter_of(d)
        )
    });
    lost.chain(dropped).collect()
}

/// What keeps packets of an unreliable service from being dropped, by the cause.
fn helps(fates: &Fates) -> impl Iterator<Item = &'static str> {
    fates.dropped.iter().filter_map(|(_, d)| match d.why {
        Refused::Transport(DropReason::NoReceive) => {
            Some("and a receive for all that is on its way keeps it from being dropped")
        }
        Refused::NoRoom => Some("and a larger `nic.rx_buffer` has room for more at once"),
        _ => None,
    })
}
