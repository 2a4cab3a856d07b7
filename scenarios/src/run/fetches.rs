//! The fetch of receive WQEs as the limit of a run.

use doorbell_core::units::Span;
use doorbell_sim::host::Host;
use doorbell_sim::nic::{Nic, NicQp, RECV_FETCH, RecvQueue};
use doorbell_sim::wire::PortId;
use doorbell_sim::world::World;

use super::deaths::{plural, qp_name};
use super::{Metric, Note, NoteKind, Outcome, Point};

/// Name of the note about receive queues whose receives are read too slowly.
const FETCH: &str = "receive-fetch";

/// Says what to do where the fetch of receive WQEs is the limit.
pub(super) fn collect(world: &World, point: &Point, duration: Span, out: &mut Outcome) {
    out.oracles.push(FETCH.to_owned());
    let Some(host) = limited(out) else { return };
    let Some((name, sharers, queue)) = slowest(host, &world.hosts()[host as usize]) else { return };
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
        cure(queue, sharers, point),
    );
    let (name, count) = (FETCH.to_owned(), queue.fetches);
    out.notes.push(Note { kind: NoteKind::Info, name, text, count });
}

/// What helps: receives where reads found too few of them, and else more reads.
/// `sharers`: queue pairs of an SRQ, 0 for a queue of one's own.
fn cure(queue: &RecvQueue, sharers: usize, point: &Point) -> String {
    let (depth, ahead) = (u64::from(queue.depth()), point.profile.nic.rq_ahead);
    if depth <= ahead {
        let setting = if sharers > 0 { "srq.depth" } else { "qp.rq_depth" };
        return format!("the queue holds {depth}, no more than are read ahead: raise `{setting}`");
    }
    let most = queue.fetches * point.profile.nic.rq_fetch;
    if queue.fetched_wqes * 2 < most {
        return format!(
            "they found {} posted, fewer than half of what they could read: post more, or sooner",
            plural(queue.fetched_wqes, "receive")
        );
    }
    let queues = match (sharers, point.scenario.srq.is_some()) {
        (0, _) => "each queue pair has a receive queue of its own: use more of them (`qps`), or ",
        (1, _) => "",
        (_, true) => {
            "an SRQ is read for all of its queue pairs together: without `[srq]` each has a \
             receive queue of its own; or "
        }
        (_, false) => "an SRQ is read for all of its queue pairs together; ",
    };
    // Messages that have their receives sooner may find none left.
    format!(
        "{queues}raise `nic.rq_ahead` where the device reads more. Of {depth} receives {} were \
         left at the fewest: if the receiver posts them again more slowly than messages then come, \
         RNR NAKs cost more than that gains",
        queue.low_water
    )
}

/// The host whose fetches of receives are the limit.
fn limited(out: &Outcome) -> Option<u32> {
    let name = out.limiting.as_ref()?.strip_suffix(RECV_FETCH)?;
    name.strip_prefix("host")?.split('.').next()?.parse().ok()
}

/// The receive queue of a host for which messages waited longest, with its name and how many queue
/// pairs share it, 0 where it is of one alone.
fn slowest(h: u32, host: &Host) -> Option<(String, usize, &RecvQueue)> {
    let of_srq = |port: PortId, srq: u32| {
        let takes = move |q: &NicQp| q.srq == Some(srq) && Nic::port_of(q.qpn) == port;
        host.qps().filter(|(_, q)| takes(q)).count()
    };
    let own = host.qps().map(|(_, q)| (&q.rq, Err(q.qpn)));
    let shared =
        host.nics().flat_map(|nic| nic.srqs().map(|(id, srq)| (srq, Ok((nic.port(), id)))));
    let (i, (queue, of)) =
        (0_usize..).zip(shared.chain(own)).max_by_key(|(_, (queue, _))| queue.starved)?;
    Some(match of {
        Err(qpn) => (format!("the receive queue of {}", qp_name(h, qpn)), 0, queue),
        Ok((port, id)) => (format!("SRQ {i} of host {h}"), of_srq(port, id), queue),
    })
}
