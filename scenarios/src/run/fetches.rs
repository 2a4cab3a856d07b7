//! The fetch of receive WQEs as the limit of a run.

use doorbell_core::units::Span;
use doorbell_sim::host::Host;
use doorbell_sim::nic::{Nic, RECV_FETCH, RecvQueue};
use doorbell_sim::world::World;

use super::deaths::{plural, qp_name};
use super::{Metric, Note, NoteKind, Outcome, Point};

/// Name of the note about receive queues whose receives are read too slowly.
const FETCH: &str = "receive-fetch";

/// Says what to do where the fetch of receive WQEs is the limit.
pub(super) fn collect(world: &World, point: &Point, duration: Span, out: &mut Outcome) {
    out.oracles.push(FETCH.to_owned());
    let Some(host) = limited(out) else { return };
    let Some((name, is_srq, queue)) = slowest(host, &world.hosts()[host as usize]) else { return };
    if queue.fetches == 0 {
        return;
    }
    let each = Span::from_ps(queue.fetch_time.as_ps() / queue.fetches);
    let (at_once, ahead) = (point.profile.nic.rq_fetch, point.profile.nic.rq_ahead);
    let text = format!(
        "messages waited for receives of {name} to be read for {} of {}, whatever senders and link \
         could do: {} of {} each, {at_once} receives at a time (`nic.rq_fetch`) and {ahead} ahead \
         of need (`nic.rq_ahead`); {}",
        Metric::time(queue.starved).text(),
        Metric::time(duration).text(),
        plural(queue.fetches, "PCIe read"),
        Metric::time(each).text(),
        cure(queue, is_srq, point),
    );
    let (name, count) = (FETCH.to_owned(), queue.fetches);
    out.notes.push(Note { kind: NoteKind::Info, name, text, count });
}

/// What helps: receives where reads found too few of them, and else more reads.
fn cure(queue: &RecvQueue, is_srq: bool, point: &Point) -> String {
    let most = queue.fetches * point.profile.nic.rq_fetch;
    if queue.fetched_wqes * 2 < most {
        return format!(
            "they found {} posted, fewer than half of what they could read: post more, or sooner",
            plural(queue.fetched_wqes, "receive")
        );
    }
    let queues = match (is_srq, point.scenario.srq.is_some()) {
        (true, true) => {
            "an SRQ is read for all of its queue pairs together: without `[srq]` each has a \
             receive queue of its own"
        }
        (true, false) => "an SRQ is read for all of its queue pairs together",
        (false, _) => "each queue pair has a receive queue of its own: use more of them (`qps`)",
    };
    // Messages that have their receives sooner may find none left.
    let low = match u64::from(queue.low_water) * 4 < u64::from(queue.depth()) {
        true => format!(
            ". Of {} receives {} were left at the fewest: without more of them, RNR NAKs may cost \
             what that gains",
            queue.depth(),
            queue.low_water
        ),
        false => String::new(),
    };
    format!("{queues}, or raise `nic.rq_ahead` where the device reads more{low}")
}

/// The host whose fetches of receives are the limit.
fn limited(out: &Outcome) -> Option<u32> {
    let name = out.limiting.as_ref()?.strip_suffix(RECV_FETCH)?;
    name.strip_prefix("host")?.split('.').next()?.parse().ok()
}

/// The receive queue of a host for which messages waited longest, with its name and whether it is
/// shared.
fn slowest(h: u32, host: &Host) -> Option<(String, bool, &RecvQueue)> {
    let own = host.qps().map(|(_, q)| (&q.rq, Some(q.qpn)));
    let shared = host.nics().flat_map(Nic::srqs).map(|(_, srq)| (srq, None));
    let (i, (queue, qpn)) =
        (0_usize..).zip(shared.chain(own)).max_by_key(|(_, (queue, _))| queue.starved)?;
    let name = match qpn {
        Some(qpn) => format!("the receive queue of {}", qp_name(h, qpn)),
        None => format!("SRQ {i} of host {h}"),
    };
    Some((name, qpn.is_none(), queue))
}
