//! The byte balance: nothing appears and nothing vanishes.

use core::fmt;

use super::Fabric;
use super::egress::EgressPort;
use super::event::{Drops, Tally};
use super::ingress::Ingress;
use crate::wire::NodeId;

/// Where all packets are that hosts ever sent: sent + copied = delivered +
/// dropped + in flight.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct Balance {
    /// Given to the network by hosts.
    pub sent: Tally,
    /// Added on links by faults.
    pub copied: Tally,
    /// Given to hosts by the network.
    pub delivered: Tally,
    /// Dropped, by cause: at switches, and on links by faults.
    pub dropped: Drops,
    /// Waiting in queues, counted packet by packet.
    pub queued: Tally,
    /// Being stored by a cut-through switch.
    pub stored: Tally,
    /// Between two nodes: sent by one and not yet arrived at the other.
    pub on_links: Tally,
}

impl Balance {
    /// What faults did to the link that ends at `ingress`.
    fn faulted(&mut self, ingress: &Ingress) {
        self.copied = self.copied.plus(ingress.copied());
        self.dropped = self.dropped.plus(ingress.lost());
    }

    /// Packets that are still in the network.
    pub const fn in_flight(&self) -> Tally {
        self.queued.plus(self.stored).plus(self.on_links)
    }
}

/// A balance that does not hold. Always an error of the model.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Imbalance {
    /// More has arrived at the end of a link than was sent at its start.
    Link {
        /// The sending node.
        node: NodeId,
        /// What it sent, with what faults added.
        sent: Tally,
        /// What arrived or was lost.
        received: Tally,
    },
    /// What came into a node is not what left it, was dropped and is still there.
    Node {
        /// The node.
        node: NodeId,
        /// What came in.
        came: Tally,
        /// What is accounted for.
        went: Tally,
    },
    /// The bytes that a queue holds are not those it counts.
    Queue {
        /// The node.
        node: NodeId,
        /// The bytes of its packets.
        held: u64,
        /// The bytes counted.
        counted: u64,
    },
    /// All nodes hold, the whole does not.
    Whole(Box<Balance>),
}

impl fmt::Display for Imbalance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Link { node, sent, received } => {
                write!(f, "a link of {node}: sent {sent:?}, but received {received:?}")
            }
            Self::Node { node, came, went } => {
                write!(f, "{node}: {came:?} came in, but {went:?} are accounted for")
            }
            Self::Queue { node, held, counted } => {
                write!(f, "{node}: a queue of {held} bytes counts {counted}")
            }
            Self::Whole(b) => write!(f, "sent is not delivered + dropped + in flight: {b:?}"),
        }
    }
}

impl std::error::Error for Imbalance {}

fn queued(node: NodeId, port: &EgressPort) -> Result<Tally, Imbalance> {
    let mut t = Tally::default();
    for item in port.queued() {
        t.add(item.wire_bytes);
    }
    let counted = port.waiting_bytes();
    if t.bytes != counted {
        return Err(Imbalance::Queue { node, held: t.bytes, counted });
    }
    Ok(t)
}

impl Fabric {
    /// Counts every packet and checks every node, every link and the whole. Takes time in
    /// proportion to the network; for the end of a run and for tests.
    ///
    /// # Errors
    /// [`Imbalance`] names the first place that does not hold.
    pub fn balance(&self) -> Result<Balance, Imbalance> {
        let mut b = Balance::default();
        for h in &self.hosts {
            let mut ports = Tally::default();
            let mut received = Tally::default();
            for p in &h.ports {
                let waiting = queued(h.id, &p.egress)?;
                ports = ports.plus(waiting).plus(p.egress.sent());
                received = received.plus(p.ingress.received());
                b.queued = b.queued.plus(waiting);
                b.on_links = b.on_links.plus(self.on_link(h.id, &p.egress)?);
                b.faulted(&p.ingress);
            }
            let refused = h.dropped.total();
            for (came, went) in [(h.sent, ports), (received, h.delivered.plus(refused))] {
                if came != went {
                    return Err(Imbalance::Node { node: h.id, came, went });
                }
            }
            b.sent = b.sent.plus(h.sent);
            b.delivered = b.delivered.plus(h.delivered);
            b.dropped = b.dropped.plus(&h.dropped);
        }
        for s in &self.switches {
            let dropped = s.dropped();
            let mut went = dropped.total().plus(s.storing);
            let mut came = Tally::default();
            for p in &s.ports {
                let waiting = queued(s.id, &p.egress)?;
                went = went.plus(waiting).plus(p.egress.sent());
                came = came.plus(p.ingress.received());
                b.queued = b.queued.plus(waiting);
                b.on_links = b.on_links.plus(self.on_link(s.id, &p.egress)?);
                b.faulted(&p.ingress);
            }
            if came != went {
                return Err(Imbalance::Node { node: s.id, came, went });
            }
            b.dropped = b.dropped.plus(&dropped);
            b.stored = b.stored.plus(s.storing);
        }
        if b.sent.plus(b.copied) != b.delivered.plus(b.dropped.total()).plus(b.in_flight()) {
            return Err(Imbalance::Whole(Box::new(b)));
        }
        Ok(b)
    }

    fn on_link(&self, node: NodeId, egress: &EgressPort) -> Result<Tally, Imbalance> {
        let far = self.far_end(egress);
        let sent = egress.sent().plus(far.copied());
        let received = far.received().plus(far.lost().total());
        sent.checked_minus(received).ok_or(Imbalance::Link { node, sent, received })
    }

    fn far_end(&self, egress: &EgressPort) -> &Ingress {
        let (peer, port) = egress.peer();
        match peer.index().checked_sub(self.hosts.len()) {
            None => self.hosts[peer.index()].ingress(port),
            Some(s) => self.switches[s].ingress(port),
        }
    }
}
