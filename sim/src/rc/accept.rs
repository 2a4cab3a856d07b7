//! Verdicts of the responder about request packets.

use doorbell_core::verbs::{NakCode, Rkey, WcOpcode};

use super::packet::DropReason;

/// Where payload goes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Target {
    /// Memory that the requester named.
    Remote {
        /// Where this packet's payload goes.
        va: u64,
        /// Remote key: check rights and range at the first packet of a message, validity at each.
        rkey: Rkey,
        /// Bytes of the whole message, which begins at `va` of its first packet.
        dma_len: u32,
    },
    /// The receive WQE that the message took.
    Recv {
        /// Offset in its buffer, bytes. Starts at 40 for UD, behind the GRH area.
        offset: u32,
    },
}

/// A message that ends a receive WQE.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct RecvDone {
    /// `Recv`, or `RecvRdmaWithImm`, whose buffer is untouched.
    pub op: WcOpcode,
    /// Bytes of the message; 40 more for UD.
    pub len: u32,
    /// Immediate data.
    pub imm: Option<u32>,
    /// The key to invalidate before the completion is written.
    pub invalidate: Option<Rkey>,
    /// The completion wakes a peer that waits for solicited events only.
    pub solicited: bool,
}

/// What the owner has to do about an inbound request packet.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Accept {
    /// Write payload, complete a receive, or both. With `len` 0 there is nothing to write and no
    /// key to check.
    Place {
        /// Where to.
        target: Target,
        /// Payload bytes.
        len: u32,
        /// First packet of its message.
        first: bool,
        /// Last packet of its message.
        last: bool,
        /// The message needs a receive WQE from here on: take one. After an aborted UC message
        /// the one that it had taken is used again.
        takes_recv: bool,
        /// The receive WQE is complete once the payload is written.
        completes_recv: Option<RecvDone>,
        /// The packet caused an ACK, which must leave after the payload was handed to memory.
        ack: bool,
    },
    /// A READ: its data goes out by [`Responder::poll_transmit`](super::Responder::poll_transmit).
    Read {
        /// Id of the job; responses carry it as [`PacketDesc::wqe`](super::PacketDesc::wqe).
        job: u32,
        /// First byte to read.
        va: u64,
        /// Remote key.
        rkey: Rkey,
        /// Bytes to read.
        len: u32,
    },
    /// An ATOMIC: do it before any later request, then call
    /// [`Responder::atomic_result`](super::Responder::atomic_result).
    Atomic {
        /// Id of the job.
        job: u32,
        /// Fetch and add rather than compare and swap.
        add: bool,
        /// The word; a multiple of 8.
        va: u64,
        /// Remote key.
        rkey: Rkey,
        /// Value to swap in, or to add.
        swap_add: u64,
        /// Value to compare with.
        compare: u64,
    },
    /// The packet came before. Nothing to do but to poll: SEND and WRITE are acknowledged again,
    /// an ATOMIC is answered with the result that it had. A READ that is still remembered is
    /// executed again and gives [`Accept::Read`]; all others get no answer.
    Duplicate,
    /// Packets are missing before this one, and it is to be kept: hand it in again when
    /// [`Responder::take_held`](super::Responder::take_held) gives its PSN. A NAK that names it
    /// leaves.
    Hold,
    /// Packets are missing before this one. `nak`: this is the packet that reveals it, and a
    /// sequence NAK leaves; later ones are ignored until the gap is closed, or one comes when it
    /// is time to repeat the NAK ([`ResponderConfig::nak_repeat`](super::ResponderConfig)).
    Gap {
        /// A NAK was queued.
        nak: bool,
    },
    /// No receive WQE; an RNR NAK leaves.
    RnrNak,
    /// The request is refused, a NAK leaves, and the QP is in the error state.
    Nak(NakCode),
    /// The packet has no effect.
    Drop(DropReason),
}

/// What a READ wants, for the owner that fetches its data.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct ReadJob {
    /// First byte.
    pub va: u64,
    /// Remote key.
    pub rkey: Rkey,
    /// Bytes.
    pub len: u32,
}
