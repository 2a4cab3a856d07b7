//! Accesses to pages that are not in the NIC's table yet.
//!
//! A requester holds the packet whose payload is missing, and with it all later ones of its queue
//! pair, until the fault is served. A responder answers the packet that begins a SEND or WRITE into
//! missing pages by an RNR NAK: the requester waits for `min_rnr_timer` and sends it again, whether
//! the pages come sooner or later. All pages of a message are asked for when it begins.
//!
//! Simplified: a READ's missing pages at the responder hold its responses instead of an RNR NAK;
//! ATOMICs, and READs into a requester's missing pages, find them there.

use doorbell_core::units::Time;
use doorbell_core::verbs::{Operation, QpType};

use super::Nic;
use super::env::{Env, NicEvent, Tag};
use crate::engine::Class;
use crate::memory::RegionKind;
use crate::pcie::Kind;
use crate::rc::{Ext, PacketDesc};

/// Pieces of one packet's payload: where, from which address on, how many bytes.
pub(super) type Pieces = [(RegionKind, u64, u32); 8];

/// A packet whose payload waits for pages.
#[derive(Debug)]
pub(super) struct Held {
    qp: u32,
    seq: u32,
    response: bool,
    pieces: Pieces,
    count: usize,
}

impl Nic {
    /// Tells the responder where the memory of the message that a packet begins is not there yet.
    pub(super) fn note_page_fault(&mut self, env: &mut Env<'_>, qp: u32, desc: &PacketDesc) {
        if self.faults(env, qp, desc)
            && let Some(responder) = self.qp_mut(qp).and_then(|q| q.responder.as_mut())
        {
            responder.page_fault();
        }
    }

    /// Whether that memory is missing; asks for it then.
    fn faults(&mut self, env: &mut Env<'_>, qp: u32, desc: &PacketDesc) -> bool {
        let operation = desc.opcode.operation();
        if env.regions.paging.is_empty() || !operation.starts_message() {
            return false;
        }
        let q = self.qps[qp as usize].as_deref().expect("checked");
        let next = q.responder.as_ref().is_some_and(|r| r.expected_psn() == desc.psn);
        if !next || q.ty != QpType::Rc {
            return false;
        }
        let (addr, len) = match desc.ext {
            Ext::Reth { .. } if operation == Operation::RdmaReadRequest => return false,
            Ext::Reth { va, dma_len, .. } | Ext::RethImm { va, dma_len, .. } => (va, dma_len),
            _ if operation.is_atomic() => return false,
            _ => match self.recv_queue(qp).next_sge() {
                Some(sge) => (sge.addr, sge.len),
                None => return false,
            },
        };
        env.regions.paging.touch(env.now, addr, len.into()).is_some()
    }

    /// When all pages of a payload that is to be read are there, if they are not.
    fn missing(env: &mut Env<'_>, pieces: &[(RegionKind, u64, u32)]) -> Option<Time> {
        let (paging, now) = (&mut env.regions.paging, env.now);
        if paging.is_empty() {
            return None;
        }
        pieces.iter().filter_map(|&(_, addr, len)| paging.touch(now, addr, len.into())).max()
    }

    /// Reads the payload of a packet, now or when its pages are there.
    pub(super) fn fetch_payload(
        &mut self,
        env: &mut Env<'_>,
        (qp, seq, response): (u32, u32, bool),
        (pieces, count): (Pieces, usize),
    ) {
        if let Some(at) = Self::missing(env, &pieces[..count]) {
            let id = self.held.insert(Held { qp, seq, response, pieces, count });
            return env.at(at, Class::Stage, NicEvent::PageIn(id));
        }
        let tag = Tag::Payload { qp, seq, response }.pack();
        for &piece in &pieces[..count] {
            self.move_payload(env, qp, Kind::Read, piece, tag);
        }
    }

    /// Pages that a packet waited for are there, unless the packet is gone.
    pub(super) fn on_page_in(&mut self, env: &mut Env<'_>, id: u32) {
        let Held { qp, seq, response, pieces, count } = self.held.remove(id);
        let Some(q) = self.qps[qp as usize].as_deref_mut() else { return };
        let fifo = if response { &mut q.tx_resp } else { &mut q.tx_req };
        if fifo.job(seq).is_some() {
            self.fetch_payload(env, (qp, seq, response), (pieces, count));
        }
    }
}
