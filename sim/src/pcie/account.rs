//! What crossed the links, by cause and direction, and who had to wait.

use doorbell_core::units::Span;

use super::{Cause, NodeId, PcieTree};

/// TLPs and bytes of one cause.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct CauseAccount {
    /// TLPs.
    pub tlps: u64,
    /// Bytes on the link, headers included, DLLPs not.
    pub bytes: u64,
}

/// Direction on a link.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Direction {
    /// Towards the socket.
    Up,
    /// Away from the socket.
    Down,
}

/// One direction of one link.
#[derive(Copy, Clone, Debug)]
pub struct LinkAccount<'a> {
    /// The node below the link.
    pub node: NodeId,
    /// Its name.
    pub name: &'a str,
    /// Direction.
    pub direction: Direction,
    /// In the order of [`Cause::ALL`].
    pub by_cause: &'a [CauseAccount; Cause::ALL.len()],
    /// Bytes of DLLPs that the TLPs of the other direction asked for, whether they found idle
    /// time or not.
    pub dllp_bytes: u64,
    /// Time that the link sent TLPs.
    pub busy: Span,
    /// Time that bursts waited for the link itself, together.
    pub queued: Span,
    /// Bursts of writes that had to wait: no posted credit, or others waiting before them.
    pub posted_waits: u64,
    /// Bursts of read requests that had to wait for credits or behind a waiting write.
    pub request_waits: u64,
}

impl LinkAccount<'_> {
    /// All causes together.
    pub fn total(&self) -> CauseAccount {
        self.by_cause.iter().fold(CauseAccount::default(), |sum, c| CauseAccount {
            tlps: sum.tlps + c.tlps,
            bytes: sum.bytes + c.bytes,
        })
    }

    /// One cause.
    pub fn of(&self, cause: Cause) -> CauseAccount {
        self.by_cause[cause as usize]
    }
}

/// A device as requester of reads.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct RequesterAccount {
    /// Read transactions submitted.
    pub reads: u64,
    /// Those of them that could not send all their requests at once, for want of tags or of
    /// completion buffer.
    pub read_waits: u64,
    /// Most tags in use at a time.
    pub peak_tags: u32,
}

impl PcieTree {
    /// Both directions of every link, in the order of the nodes, up first.
    pub fn accounts(&self) -> impl Iterator<Item = LinkAccount<'_>> {
        let dllp = (self.format.dllp_bytes, self.format.dllp_interval);
        self.names.iter().enumerate().flat_map(move |(i, name)| {
            [Direction::Up, Direction::Down].into_iter().map(move |direction| {
                let index = 2 * i + usize::from(direction == Direction::Down);
                let station = &self.topology.stations[index];
                let against: u64 =
                    self.topology.stations[index ^ 1].account.iter().map(|c| c.bytes).sum();
                LinkAccount {
                    node: NodeId((self.sockets + i) as u16),
                    name,
                    direction,
                    by_cause: &station.account,
                    dllp_bytes: against * u64::from(dllp.0) / u64::from(dllp.1),
                    busy: station.busy,
                    queued: station.queued,
                    posted_waits: station.credit_waits[0],
                    request_waits: station.credit_waits[1],
                }
            })
        })
    }

    /// One direction of the link above `node`.
    ///
    /// # Panics
    /// When `node` is a socket or not of this tree.
    pub fn account(&self, node: NodeId, direction: Direction) -> LinkAccount<'_> {
        let index = usize::from(node.0).checked_sub(self.sockets).expect("a socket has no link");
        let skip = 2 * index + usize::from(direction == Direction::Down);
        self.accounts().nth(skip).expect("a node of this tree")
    }

    /// The reads of a device.
    pub fn requester(&self, node: NodeId) -> RequesterAccount {
        self.requesters[usize::from(node.0)].account
    }
}
