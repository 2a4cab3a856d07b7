//! The order in which payload of a queue pair becomes visible, for who polls memory.
//!
//! RC promises an order of completions, not one of bytes in memory. Two things make these differ:
//! writes that may pass each other on PCIe, and packets that are placed when they come though one
//! before them is missing. Without either nothing here is kept.

use doorbell_core::transport::QpAttr;
use doorbell_core::verbs::{AccessFlags, Opcode, Psn};

use super::Nic;
use super::env::Env;
use super::receive::RxWrite;
use crate::memory::{Pd, RegionId};
use crate::rc::Ext;
use crate::wire::PacketId;

/// Payload of one queue pair that is on its way.
#[derive(Debug, Default)]
pub(super) struct Sight {
    /// Packets whose bytes are on their way to memory.
    pending: Vec<Psn>,
    /// Packets that were placed when they came and whose turn has not come.
    early: Vec<Psn>,
}

impl Sight {
    /// Bytes of a packet go to memory.
    pub fn leaves(&mut self, psn: Psn) {
        self.pending.push(psn);
    }

    /// They are there. True when an earlier packet's are not.
    pub fn lands(&mut self, psn: Psn) -> bool {
        let Some(i) = self.pending.iter().position(|p| *p == psn) else { return false };
        self.pending.swap_remove(i);
        self.early.contains(&psn) || self.passes(psn)
    }

    /// Whether bytes of a packet before this one are on their way.
    pub fn passes(&self, psn: Psn) -> bool {
        self.pending.iter().any(|p| p.is_before(psn))
    }

    /// The turn of a packet has come. True when it was placed before.
    pub fn turn(&mut self, psn: Psn) -> bool {
        let Some(i) = self.early.iter().position(|p| *p == psn) else { return false };
        self.early.swap_remove(i);
        true
    }

    /// Packets that were kept are given up.
    pub fn forget(&mut self) {
        self.early.clear();
    }
}

impl Nic {
    /// This NIC with the news that its writes may pass each other on PCIe.
    pub(crate) fn with_relaxed_writes(mut self, relaxed: bool) -> Self {
        self.orderless |= relaxed;
        self
    }

    /// Bytes of a request are visible: counts the end of a message that a program sees before the
    /// bytes of an earlier one.
    pub(super) fn seen(&mut self, qp: u32, write: &RxWrite) {
        let Some((psn, ends)) = write.order.filter(|_| self.orderless) else { return };
        let Some(q) = self.qp_mut(qp) else { return };
        let early = q.sight.lands(psn) && ends;
        self.stats.seen_early += u64::from(early);
    }

    /// Where a packet that is kept beyond a gap may be written at once: it is a whole WRITE, with
    /// its own address, and the settings allow it. What is wrong with it is said at its turn.
    fn early_place(&self, env: &Env<'_>, qp: u32, packet: PacketId) -> Option<(RegionId, u64)> {
        let desc = env.packets[packet.0].desc;
        let Ext::Reth { va, rkey, .. } = desc.ext else { return None };
        let whole = desc.opcode == Opcode::RcRdmaWriteOnly && desc.len > 0;
        if !self.rc.place_on_arrival || !whole {
            return None;
        }
        let q = self.qp(qp)?;
        let QpAttr { access, .. } = q.attr;
        let right = AccessFlags::REMOTE_WRITE;
        let region = env.regions.check_remote(rkey, Pd(q.pd), va, desc.len.into(), right).ok()?;
        access.contains(right).then_some((region.id, va))
    }

    /// Writes a packet that is kept to memory, if that may be.
    pub(super) fn place_on_arrival(&mut self, env: &mut Env<'_>, qp: u32, packet: PacketId) {
        let Some((region, addr)) = self.early_place(env, qp, packet) else { return };
        let p = &mut env.packets[packet.0];
        let payload = std::mem::take(&mut p.payload);
        let (psn, len) = (p.desc.psn, p.desc.len);
        let subject = super::doorbell::subject(p.src, p.src_port, p.src_qp, p.desc.wqe);
        let (order, submitted) = (Some((psn, true)), env.now);
        let write = RxWrite { qp, region, addr, len, payload, subject, submitted, order };
        self.qp_mut(qp).expect("checked").sight.early.push(psn);
        self.stats.placed_on_arrival += 1;
        self.inbound(env, write);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn psn(n: u32) -> Psn {
        Psn::new(n)
    }

    #[test]
    fn who_lands_first_is_early_and_who_lands_last_is_not() {
        let mut sight = Sight::default();
        (0..3).for_each(|n| sight.leaves(psn(n)));
        assert!(sight.lands(psn(1)));
        assert!(!sight.lands(psn(0)));
        assert!(!sight.lands(psn(2)));
        assert!(!sight.lands(psn(2)), "nothing of it is on its way");
    }

    #[test]
    fn packets_of_both_sides_of_the_wrap_keep_their_order() {
        let mut sight = Sight::default();
        sight.leaves(psn(0xff_ffff));
        assert!(sight.passes(psn(0)));
        assert!(!sight.passes(psn(0xff_fffe)));
    }

    #[test]
    fn a_packet_beyond_a_gap_is_early_until_its_turn() {
        let mut sight = Sight::default();
        for n in [5, 6] {
            sight.early.push(psn(n));
            sight.leaves(psn(n));
        }
        assert!(sight.lands(psn(5)), "what is missing cannot be there");
        assert!(sight.turn(psn(5)) && !sight.turn(psn(5)));
        assert!(sight.turn(psn(6)));
        assert!(!sight.lands(psn(6)), "its turn came first");
        sight.early.push(psn(7));
        sight.forget();
        assert!(!sight.turn(psn(7)));
    }
}
