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
    let at_once = point.profile.nic.rq_fetch;
    let more = match (is_srq, point.scenario.srq.is_some()) {
        (true, true) => {
            "an SRQ has one fetch at a time for all of its queue pairs: without `[srq]` each has a \
             receive queue and fetches of its own"
        }
        (true, false) => "an SRQ has one fetch at a time for all of its queue pairs",
        (false, _) => {
            "each queue pair has a receive queue and fetches of its own: use more of them (`qps`)"
        }
    };
    let text = format!(
        "{name} has its receives read {at_once} at a time (`nic.rq_fetch`): {} of {} each, one \
         after the other, took {} of {}, and messages waited for them, whatever senders and link \
         could do; {more}, or raise `nic.rq_fetch` where the device reads more",
        plural(queue.fetches, "PCIe read"),
        Metric::time(each).text(),
        Metric::time(queue.fetch_time).text(),
        Metric::time(duration).text(),
    );
    let (name, count) = (FETCH.to_owned(), queue.fetches);
    out.notes.push(Note { kind: NoteKind::Info, name, text, count });
}

/// The host whose fetches of receives are the limit.
fn limited(out: &Outcome) -> Option<u32> {
    let name = out.limiting.as_ref()?.strip_suffix(RECV_FETCH)?;
    name.strip_prefix("host")?.split('.').next()?.parse().ok()
}

/// The receive queue of a host that was being read for the longest time, with its name and whether
/// it is shared.
fn slowest(h: u32, host: &Host) -> Option<(String, bool, &RecvQueue)> {
    let own = host.qps().map(|(_, q)| (&q.rq, Some(q.qpn)));
    let shared = host.nics().flat_map(Nic::srqs).map(|(_, srq)| (srq, None));
    let (i, (queue, qpn)) =
        (0_usize..).zip(shared.chain(own)).max_by_key(|(_, (queue, _))| queue.fetch_time)?;
    let name = match qpn {
        Some(qpn) => format!("the receive queue of {}", qp_name(h, qpn)),
        None => format!("SRQ {i} of host {h}"),
    };
    Some((name, qpn.is_none(), queue))
}
