//! What is kept for the question why a QP died: how it came to ERR, and why its packets were
//! dropped where they arrived. Nothing here is touched while all goes well.

use std::collections::BTreeMap;
use std::mem::discriminant;

use doorbell_core::units::Time;
use doorbell_core::verbs::{PKey, QKey, QpState, QpType, Qpn, Service};

use super::{Nic, NicQp};
use crate::memory::MemoryError;
use crate::rc::{BadRequest, DropReason, Ended};
use crate::wire::{HostId, Packet};

/// What moved a QP to ERR (SQE for UC and UD).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Why {
    /// The program asked for it.
    Modify,
    /// One of its own work requests failed: [`Death::ended`] says which.
    Requester,
    /// It refused a request of the peer.
    Responder(BadRequest),
    /// The completion queue with this index overran.
    CqOverrun(u32),
    /// The device gave it up: a planned fault, or a damaged doorbell.
    Device,
}

/// The end of a QP.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Death {
    /// When it came to ERR.
    pub at: Time,
    /// Why.
    pub why: Why,
    /// Where its sending half stood. `None`: it had none yet.
    pub ended: Option<Ended>,
    /// `wr_id` of the oldest work request that had not ended, if there was one.
    pub wr_id: Option<u64>,
    /// What is wrong with the memory of a work request, where that is the cause.
    pub memory: Option<MemoryError>,
}

/// Who sent a packet. The QP number of the sender does not travel, so no device could tell it; the
/// model can.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Sender {
    /// Host.
    pub host: HostId,
    /// Index of the QP in its NIC.
    pub qp: u32,
}

/// Why a packet was dropped at its destination, with the fields that did not match.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Refused {
    /// Its ICRC is wrong.
    Icrc,
    /// No QP has this number here.
    UnknownQp(Qpn),
    /// The QP has another service.
    Service {
        /// Of the packet.
        packet: Service,
        /// Of the QP.
        qp: QpType,
    },
    /// Another partition, or two limited members of the same one.
    PKey {
        /// In the packet.
        sent: PKey,
        /// Of the QP.
        expected: PKey,
    },
    /// The QP is connected to another host.
    Address {
        /// Where the packet came from.
        from: HostId,
        /// Where it would have to come from.
        expected: HostId,
    },
    /// The QP takes no packets in this state.
    State(QpState),
    /// UD: another Q_Key.
    QKey {
        /// In the packet.
        sent: QKey,
        /// Of the QP.
        expected: QKey,
    },
    /// The transport found no use for it.
    Transport(DropReason),
}

impl Refused {
    /// Whether both are counted as one: of the same kind, and of states and reasons the same one.
    fn same_kind(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::State(a), Self::State(b)) => a == b,
            (Self::Transport(a), Self::Transport(b)) => a == b,
            _ => discriminant(self) == discriminant(other),
        }
    }
}

/// Packets of one sender that were dropped for one reason.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Dropped {
    /// Why, with the fields of the first one.
    pub why: Refused,
    /// Requests; else responses.
    pub request: bool,
    /// How many.
    pub packets: u64,
    /// When the first one came,
    pub first: Time,
    /// and the last one.
    pub last: Time,
}

/// All that a NIC dropped, by sender. Bounded by senders times reasons.
#[derive(Clone, Debug, Default)]
pub(super) struct Drops(BTreeMap<Sender, Vec<Dropped>>);

impl Drops {
    pub(super) fn add(&mut self, now: Time, from: Sender, request: bool, why: Refused) {
        let of = self.0.entry(from).or_default();
        match of.iter_mut().find(|d| d.request == request && d.why.same_kind(&why)) {
            Some(d) => (d.packets, d.last) = (d.packets.saturating_add(1), now),
            None => of.push(Dropped { why, request, packets: 1, first: now, last: now }),
        }
    }

    pub(super) fn of(&self, from: Sender) -> &[Dropped] {
        self.0.get(&from).map_or(&[], Vec::as_slice)
    }
}

impl NicQp {
    /// Records the end; only the first one of a life counts.
    pub(super) fn died(&mut self, at: Time, why: Why) {
        if self.death.is_some() {
            return;
        }
        let ended = self.requester.as_ref().and_then(|r| r.ended().copied());
        let oldest = ended.and_then(|e| e.oldest).map(|(wqe, ..)| wqe);
        let wr_id = oldest.and_then(|wqe| self.sq.slot(wqe)).map(|slot| slot.wqe.wr_id);
        self.death = Some(Box::new(Death { at, why, ended, wr_id, memory: self.bad_memory }));
    }
}

impl Nic {
    /// A packet with a wrong ICRC has arrived.
    pub(crate) fn corrupt_packet(&mut self, now: Time, p: &Packet) {
        self.stats.rx_packets += 1;
        self.stats.rx_icrc_encapsulated += 1;
        let from = Sender { host: p.src, qp: p.src_qp };
        self.drops.add(now, from, p.desc.opcode.is_request(), Refused::Icrc);
    }

    /// What this NIC dropped of the packets of a sender, reason by reason.
    pub fn dropped_of(&self, from: Sender) -> &[Dropped] {
        self.drops.of(from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_are_told_apart_by_sender_direction_and_reason() {
        let mut drops = Drops::default();
        let us = |n| Time::ZERO + doorbell_core::units::Span::from_us(n);
        let (a, b) = (Sender { host: HostId(0), qp: 0 }, Sender { host: HostId(0), qp: 1 });
        let pkey = |sent| Refused::PKey { sent: PKey(sent), expected: PKey::DEFAULT };
        drops.add(us(1), a, true, pkey(1));
        drops.add(us(2), a, true, pkey(2));
        drops.add(us(3), a, false, pkey(1));
        drops.add(us(4), a, true, Refused::State(QpState::Init));
        drops.add(us(5), a, true, Refused::State(QpState::Err));
        drops.add(us(6), b, true, Refused::Icrc);
        let first = Dropped { why: pkey(1), request: true, packets: 2, first: us(1), last: us(2) };
        assert_eq!(drops.of(a)[0], first, "the fields are those of the first one");
        assert_eq!((drops.of(a).len(), drops.of(b).len()), (4, 1));
        assert_eq!(drops.of(Sender { host: HostId(1), qp: 0 }), []);
    }
}
