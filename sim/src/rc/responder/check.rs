//! Checks 4 to 7 of `protocol.md` §2.3, and the alignment of 8.

use doorbell_core::verbs::{AccessFlags, MAX_MESSAGE_BYTES, Operation};

use super::super::packet::{DropReason, Ext, PacketDesc};
use super::super::reason::BadRequest;
use super::{Responder, Run};

/// Why a packet is refused.
pub(super) enum Refusal {
    NoReceive,
    For(BadRequest),
}

impl Responder {
    /// Checks 4 to 7 of `protocol.md` §2.3, in their order, and of 8 the alignment.
    pub(super) fn check(
        &self,
        pkt: &PacketDesc,
        operation: Operation,
        recv: bool,
    ) -> Result<(), Refusal> {
        let follows = match self.run {
            Run::None => operation.starts_message(),
            Run::Send { .. } => operation.is_send() && !operation.starts_message(),
            Run::Write { .. } => operation.is_rdma_write() && !operation.starts_message(),
        };
        if !follows {
            return Err(Refusal::For(BadRequest::Order));
        }
        let needed = match operation {
            o if o.is_send() => AccessFlags::empty(),
            o if o.is_rdma_write() => AccessFlags::REMOTE_WRITE,
            Operation::RdmaReadRequest => AccessFlags::REMOTE_READ,
            o if o.is_atomic() => AccessFlags::REMOTE_ATOMIC,
            // FLUSH and ATOMIC WRITE are not offered.
            _ => return Err(Refusal::For(BadRequest::Access)),
        };
        if !self.cfg.access.contains(needed) && !mutant!(AccessUnchecked) {
            return Err(Refusal::For(BadRequest::Access));
        }
        if operation.consumes_recv() && !recv && !mutant!(ReceiveUnchecked) {
            return Err(Refusal::NoReceive);
        }
        let uses_slot = operation == Operation::RdmaReadRequest || operation.is_atomic();
        if uses_slot && !self.slot_free() {
            return Err(Refusal::For(BadRequest::Resources));
        }
        self.check_length(pkt, operation)
    }

    fn check_length(&self, pkt: &PacketDesc, operation: Operation) -> Result<(), Refusal> {
        if mutant!(LengthUnchecked) {
            return Ok(());
        }
        if !operation.payload().allows(pkt.len, self.mtu) {
            return Err(Refusal::For(BadRequest::Length));
        }
        let (total, limit) = match (self.run, pkt.ext) {
            (Run::Send { got }, _) => (got + pkt.len, MAX_MESSAGE_BYTES),
            (Run::Write { got, dma_len, .. }, _) => (got + pkt.len, dma_len),
            (Run::None, Ext::Reth { dma_len, .. } | Ext::RethImm { dma_len, .. }) => {
                if dma_len > MAX_MESSAGE_BYTES {
                    return Err(Refusal::For(BadRequest::Length));
                }
                (pkt.len, dma_len)
            }
            (Run::None, Ext::Atomic { va, .. }) => {
                let refused = Refusal::For(BadRequest::Alignment);
                return if va % 8 == 0 { Ok(()) } else { Err(refused) };
            }
            (Run::None, _) => (pkt.len, MAX_MESSAGE_BYTES),
        };
        // A WRITE has to end exactly where its RETH says.
        let ends_short = operation.is_rdma_write() && operation.ends_message() && total != limit;
        if total > limit || ends_short {
            return Err(Refusal::For(BadRequest::Length));
        }
        Ok(())
    }

    /// hfi1's rule: the oldest entry may be taken only when its responses have left. What it owes
    /// to a duplicate does not count: the requester has gone on.
    fn slot_free(&self) -> bool {
        let depth = usize::from(self.cfg.max_dest_rd_atomic);
        self.jobs.len() < depth
            || self
                .jobs
                .front()
                .is_some_and(|job| job.may_be_evicted() || self.cfg.rules.recycle_resources)
    }
}

impl Refusal {
    /// How an unreliable service counts it.
    pub(super) fn reason(&self) -> DropReason {
        match self {
            Self::NoReceive => DropReason::NoReceive,
            Self::For(BadRequest::Order) => DropReason::Sequence,
            Self::For(BadRequest::Access) => DropReason::Access,
            Self::For(BadRequest::Length) => DropReason::Length,
            Self::For(_) => DropReason::Opcode,
        }
    }
}

/// Whether the extended header is the one that the opcode announces.
pub(super) fn header_fits(pkt: &PacketDesc) -> bool {
    let op = pkt.opcode;
    match pkt.ext {
        Ext::None => op.header_bytes() == BTH_BYTES,
        Ext::Reth { .. } => op.has_reth() && !op.has_imm(),
        Ext::RethImm { .. } => op.has_reth() && op.has_imm(),
        Ext::Imm(_) => op.has_imm() && !op.has_reth() && !op.has_deth(),
        Ext::Invalidate(_) => op.has_ieth(),
        Ext::Atomic { .. } => op.has_atomic_eth(),
        Ext::Aeth { .. } => op.has_aeth() && !op.has_atomic_ack_eth(),
        Ext::Sack { .. } => op.has_aeth() && !op.has_atomic_ack_eth(),
        Ext::AtomicAck { .. } => op.has_atomic_ack_eth(),
        Ext::Deth { .. } => op.has_deth() && !op.has_imm(),
        Ext::DethImm { .. } => op.has_deth() && op.has_imm(),
    }
}

/// A BTH alone.
const BTH_BYTES: u32 = 12;
