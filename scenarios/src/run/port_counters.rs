//! Counters of a host's port: the sums over its queue pairs, those of the device that no queue pair
//! has, and what Linux shows in `ports/N/counters` (`protocol.md` §8.1). `docs/counters.md` says
//! which of Linux' names are here, and why others are not.

use doorbell_core::units::{BitRate, Span};
use doorbell_sim::fabric::DropCause;
use doorbell_sim::nic::Nic;
use doorbell_sim::wire::HostId;
use doorbell_sim::world::World;

/// Those that count traffic: every healthy run moves them, so lists of what went wrong, and tables
/// of several points, leave them out.
pub(crate) const TRAFFIC: [&str; 6] = [
    "port_xmit_data",
    "port_rcv_data",
    "port_xmit_packets",
    "port_rcv_packets",
    "unicast_xmit_packets",
    "unicast_rcv_packets",
];

/// Bytes that a unit of `port_xmit_data` and `port_rcv_data` stands for, and for whose time on the
/// link a tick of `port_xmit_wait` does.
const WORD: u64 = 4;

/// All counters of the port of a NIC, name and value.
pub(super) fn port_counters(
    world: &World,
    host: HostId,
    nic: &Nic,
) -> impl Iterator<Item = (&'static str, u64)> {
    let s = nic.stats;
    let device = [
        ("rx_dropped", s.rx_dropped),
        ("rx_unknown_qp", s.rx_unknown_qp),
        ("rx_wrong_service", s.rx_wrong_service),
        ("bad_pkey_cntr", s.bad_pkey_cntr),
        ("rx_wrong_address", s.rx_wrong_address),
        ("rx_wrong_state", s.rx_wrong_state),
        ("qkey_viol_cntr", s.qkey_viol_cntr),
        ("rx_discards", s.rx_discards),
        ("rx_unused", s.rx_unused),
        ("rx_buffer_waits", s.rx_buffer_waits),
        ("placed_on_arrival", s.placed_on_arrival),
        ("seen_early", s.seen_early),
        ("cq_overruns", s.cq_overruns),
        ("rx_icrc_encapsulated", s.rx_icrc_encapsulated),
        ("doorbell_check_errors", s.doorbell_check_errors),
        ("regions_in_use", s.regions_in_use),
    ];
    let queue_pairs = nic.hw_counters();
    let queue_pairs: Vec<_> = queue_pairs.iter().collect();
    queue_pairs.into_iter().chain(device).chain(of_link(world, host, nic))
}

/// What the port and its link have counted, under the names of Linux.
fn of_link(world: &World, host: HostId, nic: &Nic) -> [(&'static str, u64); 11] {
    let fabric = world.fabric();
    let node = fabric.hosts()[host.index()].id();
    let (egress, ingress) =
        (fabric.egress_of(node, nic.port()), fabric.ingress_of(node, nic.port()));
    let own = egress.counters(world.now());
    // The model takes a packet from a link that is down at the link's far end. The port of an
    // adapter whose link is down does not send it.
    let (peer, at) = egress.peer();
    let lost = fabric.ingress_of(peer, at).lost();
    let down = lost.of(DropCause::LinkDown).plus(lost.of(DropCause::SwitchReboot));
    // Copies that a fault added may be among what was lost, and were not sent.
    let sent = own.sent.checked_minus(down).unwrap_or_default();
    let received = ingress.received();
    [
        ("port_xmit_data", sent.bytes / WORD),
        ("port_rcv_data", received.bytes / WORD),
        ("port_xmit_packets", sent.packets),
        ("port_rcv_packets", received.packets),
        ("unicast_xmit_packets", sent.packets),
        ("unicast_rcv_packets", received.packets),
        ("port_xmit_wait", words_of(egress.rate(), own.blocked)),
        ("port_xmit_discards", down.packets + own.dropped.total().packets),
        ("port_rcv_errors", nic.stats.rx_icrc_encapsulated + ingress.refused().packets),
        ("port_rcv_constraint_errors", nic.stats.bad_pkey_cntr),
        ("link_downed", nic.stats.link_downed),
    ]
}

/// Words that a link could have carried in a time, rounded down.
fn words_of(rate: BitRate, span: Span) -> u64 {
    let bits = u128::from(rate.as_bps()) * u128::from(span.as_ps()) / 1_000_000_000_000;
    u64::try_from(bits / (8 * u128::from(WORD))).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[path = "port_counters_tests.rs"]
mod tests;
