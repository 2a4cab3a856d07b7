//! What the engine says about a packet: everything but its payload and its encapsulation.

use doorbell_core::verbs::{
    Msn, Opcode, Operation, Psn, QKey, QpType, Qpn, Rkey, Service, Syndrome,
};

/// One packet, described. The payload stays where it is until the owner of the engine fetches it.
///
/// `opcode`, `psn`, `dest`, `ack_req`, `solicited`, `len` and `ext` are what travels on the wire.
/// `wqe` and `offset` are local to the side that made the descriptor and say where the payload
/// lies; a receiving engine never looks at them.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct PacketDesc {
    /// BTH opcode.
    pub opcode: Opcode,
    /// BTH packet sequence number.
    pub psn: Psn,
    /// BTH destination queue pair.
    pub dest: Qpn,
    /// BTH AckReq bit.
    pub ack_req: bool,
    /// BTH solicited-event bit.
    pub solicited: bool,
    /// Requests: [`SendJob::wqe`](super::SendJob::wqe). READ responses and ATOMIC
    /// acknowledgements: the responder's job id. ACK and NAK: 0.
    pub wqe: u32,
    /// Offset of the payload in the message, bytes. A READ request that starts in the middle of
    /// the message (a retry) has here the first byte that it asks for.
    pub offset: u32,
    /// Payload bytes, without pad: 0 to the MTU.
    pub len: u32,
    /// The extended header behind the BTH.
    pub ext: Ext,
}

/// Extended headers, one variant per combination that RC, UC and UD use
/// (`protocol.md` §1.1, §1.2).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Ext {
    /// BTH only.
    None,
    /// RETH: WRITE First/Only, READ request.
    Reth {
        /// Remote virtual address.
        va: u64,
        /// Remote key.
        rkey: Rkey,
        /// Bytes of the whole message.
        dma_len: u32,
    },
    /// RETH and immediate data: WRITE Only with Immediate.
    RethImm {
        /// Remote virtual address.
        va: u64,
        /// Remote key.
        rkey: Rkey,
        /// Bytes of the whole message.
        dma_len: u32,
        /// Immediate data.
        imm: u32,
    },
    /// Immediate data: SEND Last/Only and WRITE Last with Immediate.
    Imm(u32),
    /// IETH: the key that SEND with Invalidate invalidates.
    Invalidate(Rkey),
    /// AtomicETH: COMPARE_SWAP, FETCH_ADD.
    Atomic {
        /// Remote virtual address.
        va: u64,
        /// Remote key.
        rkey: Rkey,
        /// Value to swap in, or to add.
        swap_add: u64,
        /// Value to compare with; 0 for FETCH_ADD.
        compare: u64,
    },
    /// AETH: ACK, NAK, READ response First/Last/Only.
    Aeth {
        /// ACK with credits, RNR NAK with timer, or NAK with code.
        syndrome: Syndrome,
        /// Request messages completed at the responder, modulo 2^24.
        msn: Msn,
    },
    /// Sequence NAK that also names a packet which the responder keeps beyond the gap (selective
    /// repeat). Not a header of the specification; stands for AETH and 4 more bytes.
    Sack {
        /// As in [`Ext::Aeth`].
        msn: Msn,
        /// First PSN of the packet that is kept.
        held: Psn,
    },
    /// AETH and the original value: ATOMIC acknowledgement.
    AtomicAck {
        /// As in [`Ext::Aeth`].
        syndrome: Syndrome,
        /// As in [`Ext::Aeth`].
        msn: Msn,
        /// Content of the remote word before the operation.
        orig: u64,
    },
    /// DETH: UD SEND.
    Deth {
        /// Queue key, compared with the receiving QP's.
        qkey: QKey,
        /// Sending queue pair.
        src: Qpn,
    },
    /// DETH and immediate data: UD SEND with Immediate.
    DethImm {
        /// As in [`Ext::Deth`].
        qkey: QKey,
        /// As in [`Ext::Deth`].
        src: Qpn,
        /// Immediate data.
        imm: u32,
    },
}

/// Why a packet has no effect. All of these are silent on the wire.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum DropReason {
    /// The opcode has no meaning for this half of a QP of this service.
    Opcode,
    /// The extended header is not the one that belongs to the opcode.
    Header,
    /// The QP is in the error state.
    QpState,
    /// A response to something that is not outstanding: a duplicate, a ghost, or a stray.
    Stale,
    /// A NAK code or syndrome without a meaning for RC (hfi1 ignores them too).
    Syndrome,
    /// UD: another Q_Key.
    QKey,
    /// UC, UD: no receive WQE.
    NoReceive,
    /// UC: a packet from the middle of a message whose beginning is lost.
    Sequence,
    /// UC: the operation is not enabled in the QP's access flags.
    Access,
    /// UC, UD: the payload has an illegal length.
    Length,
}

/// Numbers between `from` and `to`, 0 to 2^24 - 1: unlike [`Psn::diff`] for windows whose order
/// is known.
pub(super) const fn distance(from: Psn, to: Psn) -> u32 {
    Psn::new(to.value().wrapping_sub(from.value())).value()
}

/// The opcode of `operation` on a QP of this type; `None` where there is none.
pub(super) fn opcode(service: QpType, operation: Operation) -> Option<Opcode> {
    let service = match service {
        QpType::Rc => Service::Rc,
        QpType::Uc => Service::Uc,
        QpType::Ud => Service::Ud,
        _ => return None,
    };
    Opcode::of(service, operation)
}

/// Operation of packet `index` of `count` of a READ response.
pub(super) const fn read_response(index: u32, count: u32) -> Operation {
    match (index == 0, index + 1 == count) {
        (true, true) => Operation::RdmaReadResponseOnly,
        (true, false) => Operation::RdmaReadResponseFirst,
        (false, true) => Operation::RdmaReadResponseLast,
        (false, false) => Operation::RdmaReadResponseMiddle,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_fits_a_cache_line() {
        assert!(size_of::<PacketDesc>() <= 64);
    }

    #[test]
    fn distance_counts_over_the_wrap() {
        assert_eq!(distance(Psn::new(0xFF_FFFE), Psn::new(3)), 5);
        assert_eq!(distance(Psn::new(3), Psn::new(0xFF_FFFE)), (1 << 24) - 5);
        assert_eq!(distance(Psn::MAX, Psn::MAX), 0);
    }
}
