//! How an exchange runs.

use crate::policy::BatchConfig;
use crate::policy::aggregate::ConfigError;
use crate::policy::mesh::{Wiring, wiring_of};
use crate::transport::{Contents, MemKind, QpAttr};
use crate::units::Span;
use crate::verbs::Mtu;

/// Configuration of an [`AllToAll`](super::AllToAll). All members need the same, save for the
/// kinds of memory and the deadlines.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct AllToAllConfig {
    /// Pieces that one message may carry, if they follow each other where they land; each is an
    /// element of the scatter list. A relay waits until a message is full (so many pieces, or a
    /// chunk of bytes) or nothing more will come for it: more means fewer small messages behind
    /// the relay, and costs 16 bytes of send queue for each. 1: every piece is a message. Default
    /// 16: one for each of the other nodes of a group of 17.
    pub gather: u32,
    /// Messages outstanding to each peer. More: long ways are kept busy; fewer: the ports of
    /// peers hear fewer members at a time. Default 8.
    pub window: u32,
    /// How long each hop of a round may take: by way of relays a round takes twice as long at the
    /// most, and once more while those that are waited for say that they wait for others. It has to
    /// cover what members begin one after the other. A peer that has confirmed nothing for so long
    /// of what was sent to it is given up too, and one that has not been heard for a quarter of it
    /// is sent a probe. Higher: a member that is late is waited for, and one that is gone is named
    /// later. Default 100 ms.
    pub hop_deadline: Span,
    /// How long the members may take to find each other. Default 1 s.
    pub connect_deadline: Span,
    /// Where outbox and inboxes are: in the memory of who polls. A completion says nothing of bytes
    /// that go to another one, and may come in front of them.
    pub memory: MemKind,
    /// Whether they have bytes, or only lengths (simulator).
    pub contents: Contents,
    /// Where the work queues are.
    pub queue_memory: MemKind,
    /// Time-outs, retries and the other attributes of the queue pairs. Rights, state, PSNs, QPN,
    /// path and path MTU are filled in.
    pub attr: QpAttr,
    /// Path MTU; `None`: the smaller one of both ports.
    pub path_mtu: Option<Mtu>,
    /// How work requests for one peer are rung together.
    pub batch: BatchConfig,
    /// Rank of member 0; the others follow.
    pub first_rank: u32,
    /// First of the bootstrap keys that it uses, `key` to `key + 2^35`.
    pub key: u64,
}

impl Default for AllToAllConfig {
    fn default() -> Self {
        let host = MemKind::Host { numa: 0 };
        Self {
            gather: 16,
            window: 8,
            hop_deadline: Span::from_ms(100),
            connect_deadline: Span::from_ms(1000),
            memory: host,
            contents: Contents::Data,
            queue_memory: host,
            attr: QpAttr::default(),
            path_mtu: None,
            batch: BatchConfig { max_delay: Span::from_ms(1), ..BatchConfig::default() },
            first_rank: 0,
            key: 0x78 << 56,
        }
    }
}

impl AllToAllConfig {
    /// How its connections are made.
    pub(super) const fn wiring(&self) -> Wiring {
        wiring_of!(self)
    }

    /// The number of a rank among `members`.
    pub(crate) fn member(&self, rank: u32, members: u32) -> Result<u32, ConfigError> {
        if self.window == 0 {
            return Err(ConfigError::Window);
        }
        if self.gather == 0 {
            return Err(ConfigError::Gather);
        }
        self.wiring().member(rank, members)
    }
}
