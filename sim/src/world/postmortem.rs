//! Where the network lost packets, by the QP that sent them: for the question why it died.

use std::collections::BTreeMap;

use doorbell_core::units::Time;

use super::World;
use crate::fabric::DropCause;
use crate::nic::{Episode, PsnLog, Sender, Within};
use crate::wire::{NodeId, Packet, PortId};

/// Where packets were lost.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum LossPlace {
    /// At a switch.
    Switch {
        /// The switch's node.
        node: NodeId,
        /// The port that was full, or the input of what had no way.
        port: PortId,
    },
    /// At the end of a link.
    Link {
        /// The node that the link ends at.
        into: NodeId,
        /// Position of the fault in the plan; `None`: a host at one end was dead.
        fault: Option<u32>,
    },
}

impl LossPlace {
    /// How far they got.
    pub const fn node(self) -> NodeId {
        match self {
            Self::Switch { node, .. } => node,
            Self::Link { into, .. } => into,
        }
    }
}

/// Packets of one sender that were lost at one place for one cause.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Lost {
    /// Where.
    pub place: LossPlace,
    /// Why.
    pub cause: DropCause,
    /// Requests; else responses.
    pub request: bool,
    /// How many.
    pub packets: u64,
    /// Of an episode: of how many transmissions they are ([`Episode::apart`]).
    pub rounds: u64,
    /// When the first one was lost,
    pub first: Time,
    /// and the last one.
    pub last: Time,
    /// Of an episode: there may have been more, before the first one, that are not told apart any
    /// more from those of other times.
    pub at_least: bool,
}

/// All losses. Bounded by senders times places times causes.
#[derive(Debug, Default)]
pub(super) struct Losses(BTreeMap<Sender, Vec<(Lost, PsnLog)>>);

impl Losses {
    pub(super) fn add(&mut self, now: Time, p: &Packet, place: LossPlace, cause: DropCause) {
        let request = p.desc.opcode.is_request();
        let of = self.0.entry(Sender::of(p)).or_default();
        let same = |l: &Lost| (l.place, l.cause, l.request) == (place, cause, request);
        let at = of.iter().position(|(l, _)| same(l)).unwrap_or_else(|| {
            let (packets, rounds, first, last, at_least) = (0, 0, now, now, false);
            let new = Lost { place, cause, request, packets, rounds, first, last, at_least };
            of.push((new, PsnLog::default()));
            of.len() - 1
        });
        let (l, log) = &mut of[at];
        (l.packets, l.last) = (l.packets.saturating_add(1), now);
        log.add(now, p.desc.psn);
    }

    fn of(&self, from: Sender) -> impl Iterator<Item = &(Lost, PsnLog)> {
        self.0.get(&from).into_iter().flatten()
    }
}

impl World {
    /// Packets of a QP that the network lost, place by place.
    pub fn lost_of(&self, from: Sender) -> impl Iterator<Item = &Lost> {
        self.losses.of(from).map(|(l, _)| l)
    }

    /// As [`lost_of`](Self::lost_of), of the packets of an episode only, which may depend on where
    /// they were lost.
    pub fn lost_within(
        &self,
        from: Sender,
        of: impl Fn(&Lost) -> Episode,
    ) -> impl Iterator<Item = Lost> {
        self.losses.of(from).filter_map(move |(l, log)| {
            let Within { packets, rounds, first, last, at_least } = log.within(&of(l))?;
            Some(Lost { packets, rounds, first, last, at_least, ..*l })
        })
    }

    /// How many requests (`true`) and responses of each QP are still on their way: in a queue, on a
    /// link, held by a fault, or in a receive unit.
    pub fn under_way(&self) -> BTreeMap<(Sender, bool), u64> {
        let mut all = BTreeMap::new();
        for (_, p) in self.shared.packets.iter() {
            *all.entry((Sender::of(p), p.desc.opcode.is_request())).or_default() += 1;
        }
        all
    }
}
