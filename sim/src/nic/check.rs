//! Checks 1 and 2 of `protocol.md` §2.3: whether a packet belongs to a connection of this port.
//! What fails is dropped in silence, and a counter moves here, on the side that nobody looks at.

use doorbell_core::units::Time;
use doorbell_core::verbs::{PKey, PacketVerdict, QpState, QpType, Service, accepts_packets};

use super::env::Env;
use super::postmortem::{Arrived, Refused};
use super::{Nic, NicQp};
use crate::wire::{Packet, PacketId};

impl Nic {
    /// The QP that a packet is for. The first check that fails decides.
    pub(super) fn admit(&self, p: &Packet) -> Result<u32, Refused> {
        let dest = p.desc.dest;
        let found = self.own_qp_index(dest).and_then(|i| Some((i, self.qp(i)?)));
        let (qp, q) = found.ok_or(Refused::UnknownQp(dest))?;
        let service = p.desc.opcode.service();
        if service != Service::Cnp && Some(service) != service_of(q.ty) {
            return Err(Refused::Service { packet: service, qp: q.ty });
        }
        let (sent, expected) = (p.pkey, self.pkey(q));
        if q.state != QpState::Reset && !sent.matches(expected) {
            return Err(Refused::PKey { sent, expected });
        }
        // The address vector is there from RTR on; a datagram may come from anywhere.
        let connected = q.responder.is_some() && q.ty != QpType::Ud;
        let (from, expected) = ((p.src, p.src_port), (q.peer, q.peer_port));
        if connected && from != expected {
            return Err(Refused::Address { from, expected });
        }
        if accepts_packets(q.state) == PacketVerdict::Dropped {
            return Err(Refused::State(q.state));
        }
        Ok(qp)
    }

    /// The partition key of a QP: the entry of the port's table that `pkey_index` names.
    pub fn pkey(&self, q: &NicQp) -> PKey {
        let entry = self.cfg.pkeys.get(usize::from(q.attr.pkey_index));
        entry.copied().unwrap_or(PKey::DEFAULT)
    }

    /// Drops a packet, counts it, and remembers why for the QP that sent it.
    pub(super) fn discard(&mut self, env: &mut Env<'_>, packet: PacketId, why: Refused) {
        let p = env.packets.remove(packet.0);
        self.refuse_packet(env.now, Arrived::of(&p), why);
    }

    /// As [`discard`](Self::discard), for a packet that is gone already.
    pub(super) fn refuse_packet(&mut self, now: Time, p: Arrived, why: Refused) {
        let s = &mut self.stats;
        s.rx_dropped += u64::from(why != Refused::Icrc);
        match why {
            Refused::UnknownQp(_) => s.rx_unknown_qp += 1,
            Refused::Service { .. } => s.rx_wrong_service += 1,
            Refused::PKey { .. } => s.bad_pkey_cntr += 1,
            Refused::Address { .. } => s.rx_wrong_address += 1,
            Refused::State(_) => s.rx_wrong_state += 1,
            Refused::QKey { .. } => s.qkey_viol_cntr += 1,
            Refused::NoRoom => s.rx_discards += 1,
            Refused::Transport(_) | Refused::Request(_) => s.rx_unused += 1,
            Refused::Icrc => s.rx_icrc_encapsulated += 1,
        }
        self.drops.add(now, p, why);
    }
}

const fn service_of(ty: QpType) -> Option<Service> {
    match ty {
        QpType::Rc => Some(Service::Rc),
        QpType::Uc => Some(Service::Uc),
        QpType::Ud => Some(Service::Ud),
        _ => None,
    }
}
