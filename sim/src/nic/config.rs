//! Parameters of the NIC model. A hardware profile gives every one of them.

use doorbell_core::units::{Ratio, Span, Time};
use doorbell_core::verbs::{Mtu, Opcode, PKey};

use super::recv_queue::RecvFetch;
use super::vendor::VendorCodes;
use crate::cc::Congestion;
use crate::rc::{AckPolicy, AckReqLast, Recovery, Rules, TimeoutMode};
use crate::wire::{Encapsulation, wire_bytes};

/// Limits that the device refuses to exceed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct NicLimits {
    /// Queue pairs.
    pub max_qp: u32,
    /// Work requests in a queue.
    pub max_qp_wr: u32,
    /// Scatter/gather elements of a send.
    pub max_sge: u32,
    /// Completion queues.
    pub max_cq: u32,
    /// Entries of a completion queue.
    pub max_cqe: u32,
    /// Inline bytes.
    pub max_inline: u32,
    /// READs and ATOMICs outstanding per QP, both sides.
    pub max_rd_atomic: u8,
    /// Longest message in bytes.
    pub max_msg_bytes: u32,
}

/// How ATOMICs are executed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct AtomicConfig {
    /// Lock buckets, indexed by the low bits of the byte address. 1: all ATOMICs of the device
    /// queue behind each other (ConnectX-3); 4096: only those to equal low bits (Connect-IB,
    /// C-ATOM-003). Higher: more ATOMICs at once.
    pub buckets: u32,
    /// Work of the atomic unit per operation, beside the PCIe read and write.
    pub unit: Span,
    /// Whether the bucket is held during the PCIe read of the old value. If not, the device keeps
    /// the value on chip and only the unit's time serialises.
    pub hold_over_pcie: bool,
}

/// Timing and sizes of the NIC's stages.
#[derive(Clone, PartialEq, Debug)]
pub struct NicConfig {
    /// Whether a GPU may hold queue pairs and store to the doorbell register by itself. Without it
    /// its handles are refused, and a CPU core has to post for it.
    pub gpu_doorbell: bool,
    /// P_Key table of the port, which `pkey_index` points into; at least one entry.
    pub pkeys: Vec<PKey>,
    /// Doorbell unit, per doorbell or BlueFlame write. Higher: fewer doorbells per second.
    pub doorbell: Span,
    /// More time of the doorbell unit per 64-byte line after the first of a BlueFlame write. Bounds
    /// the lines per second that all cores together can push.
    pub doorbell_line: Span,
    /// Latency from the doorbell unit to the first action (WQE fetch or execution).
    pub doorbell_latency: Span,
    /// 64-byte blocks that one WQE fetch reads at most. Higher: fewer PCIe reads per WQE after a
    /// batched doorbell.
    pub wqe_fetch_blocks: u32,
    /// WQE fetches that one QP has under way. Higher: deeper prefetch of a batch.
    pub wqe_fetches: u32,
    /// WQEs of one QP that may be on the chip and not yet started. Bounds the prefetch.
    pub wqe_window: u32,
    /// Send processing units. One QP is served by one unit, so one QP cannot exceed
    /// 1 / (`pu_wqe` + packets · `pu_packet`).
    pub pu_count: u16,
    /// A unit's time per WQE.
    pub pu_wqe: Span,
    /// More time per WQE that was fetched over PCIe rather than carried by BlueFlame.
    pub pu_fetched: Span,
    /// More time per WQE when the payload is gathered by DMA rather than inline.
    pub pu_gather: Span,
    /// More time per READ or ATOMIC WQE.
    pub pu_read: Span,
    /// A unit's time per packet, the first one included.
    pub pu_packet: Span,
    /// A unit's time per READ response packet.
    pub pu_response: Span,
    /// Receive processing units, chosen by destination QP.
    pub rx_count: u16,
    /// A receive unit's time per packet.
    pub rx_packet: Span,
    /// More time per packet that takes a receive WQE.
    pub rx_recv: Span,
    /// More time per packet that makes two writes to memory, payload and CQE.
    pub rx_write: Span,
    /// Least distance of packets at the receive side of the whole device.
    pub rx_device: Span,
    /// Latency of both NICs' pipelines, from a processing unit to the wire and from the wire to the
    /// receive unit's result, not occupying any unit. It is spent on the receive side: a constant
    /// before the port moves every packet alike and contends with nothing.
    pub pipeline_latency: Span,
    /// Time from accepting a request to its ACK at the transmit port.
    pub ack_latency: Span,
    /// Time from an ACK or last response to the CQE write.
    pub completion_latency: Span,
    /// Payload and response bytes that may be on their way from memory to the wire. Lower: the wire
    /// starves when memory is slow.
    pub tx_buffer: u32,
    /// Bytes that may be on their way from the wire to memory, those included that wait for a
    /// receive WQE or behind an ATOMIC; not those that selective repeat keeps beyond a gap. What
    /// arrives beyond that waits in front of the port, as flow control makes it. Lower: pauses
    /// begin earlier, and what waits for a receive holds up what needs none.
    pub rx_buffer: u32,
    /// Bytes of a CQE as written over PCIe.
    pub cqe_bytes: u32,
    /// Bytes of a receive WQE with one scatter element.
    pub rq_wqe_bytes: u32,
    /// Receive WQEs that one fetch reads. Higher: fewer PCIe reads, and what is posted in small
    /// numbers is read later.
    pub rq_fetch: u32,
    /// Receive WQEs of a queue in use that are on the chip or on their way: below it, the next
    /// fetch starts while the rest is used. A receive queue gives no more than this, rounded up to
    /// whole fetches, in the time of a PCIe read. Doubling it doubles that, and what is posted too
    /// late or flushed was read for nothing twice as often. 0: a fetch starts when a message needs
    /// a receive and none is left, and `rq_fetch` is the bound. That adapters read ahead:
    /// US 7,631,106 (Mellanox); by a low mark: Intel 82598 data sheet, RXDCTL.PTHRESH (0 to 32).
    pub rq_ahead: u32,
    /// QP contexts held on the chip. With more active QPs than this, contexts are read again over
    /// PCIe.
    pub qp_cache: u32,
    /// Bytes of a QP context as read over PCIe.
    pub qp_context_bytes: u32,
    /// WQEs of outstanding READs and ATOMICs held on the chip; beyond, a response makes the NIC
    /// read the WQE again.
    pub wqe_cache: u32,
    /// Bytes that a BlueFlame write can carry; 0: no BlueFlame.
    pub bf_bytes: u32,
    /// Whether BlueFlame is used also for WQEs that are not inline (mlx5: on by default).
    pub prefer_bf: bool,
    /// Codes of completions in error, beside the status.
    pub vendor_codes: VendorCodes,
    /// ATOMIC execution.
    pub atomic: AtomicConfig,
    /// Limits.
    pub limits: NicLimits,
    /// Clock over time: from each instant, the NIC's own stage times are multiplied by the ratio.
    /// Empty: nominal clock. Entries in order of time. A synthetic setting: no public figure of
    /// thermal throttling is known.
    pub clock: Vec<(Time, Ratio)>,
}

impl NicConfig {
    /// How it reads receive WQEs.
    pub(super) fn recv_fetch(&self) -> RecvFetch {
        RecvFetch { most: self.rq_fetch.max(1), ahead: self.rq_ahead }
    }
}

/// Points of the RC transport on which implementations differ.
#[derive(Clone, Debug)]
pub struct RcConfig {
    /// Unacknowledged packets at which a requester pauses.
    pub max_outstanding_packets: u32,
    /// AckReq on every n-th packet; 0: only at message ends.
    pub ack_req_every: u32,
    /// AckReq at message ends.
    pub ack_req_last: AckReqLast,
    /// When the responder sends ACKs.
    pub ack: AckPolicy,
    /// What becomes of the attribute `timeout`.
    pub timeout_mode: TimeoutMode,
    /// From a NAK at the requester to the first retransmission.
    pub nak_reaction: Span,
    /// From a response that implies a NAK to the first request that is made again.
    pub implied_nak_reaction: Span,
    /// From a sequence NAK to its repetition while the gap stands; `None`: one per gap.
    pub nak_repeat: Option<Span>,
    /// What goes out again after a loss. The peers of a QP have to agree.
    pub recovery: Recovery,
    /// A whole WRITE beyond a gap is written to memory when it comes, and not when the gap is
    /// filled. Of use where packets are kept. Its completion, and everything else of it, waits for
    /// its turn; a program that polls memory may see it before earlier ones.
    pub place_on_arrival: bool,
    /// Where implementations differ.
    pub rules: Rules,
    /// How fast flows may send, and what is made of marked packets.
    pub congestion: Congestion,
    /// Encapsulation on the wire.
    pub encapsulation: Encapsulation,
    /// Payload of a full packet; 0: the path MTU. No adapter has such a setting; simulators of
    /// networks have packets of a size of their own. Never more than the path MTU.
    pub packet_payload: u32,
    /// Bytes that the link layer puts around every packet beyond its encapsulation: start and end
    /// delimiters and their padding. Higher: fewer small packets per second.
    pub framing: u32,
}

impl RcConfig {
    /// Settings with Go-Back-N at once, timer T, and the rules of the reference page: what is
    /// left to say is when ACKs are asked for and given, and the encapsulation.
    pub const fn new(
        max_outstanding_packets: u32,
        (ack_req_every, ack_req_last): (u32, AckReqLast),
        ack: AckPolicy,
        encapsulation: Encapsulation,
    ) -> Self {
        Self {
            max_outstanding_packets,
            ack_req_every,
            ack_req_last,
            ack,
            timeout_mode: TimeoutMode::T,
            nak_reaction: Span::ZERO,
            implied_nak_reaction: Span::ZERO,
            nak_repeat: None,
            recovery: Recovery::GoBackN,
            place_on_arrival: false,
            rules: Rules::DEFAULT,
            congestion: Congestion::NONE,
            encapsulation,
            packet_payload: 0,
            framing: 0,
        }
    }

    /// Payload of a full packet on a path of this MTU.
    pub const fn payload_of(&self, mtu: Mtu) -> u32 {
        let (asked, most) = (self.packet_payload, mtu.bytes());
        if asked == 0 || asked > most { most } else { asked }
    }

    /// Bytes of a packet on the wire.
    pub const fn wire_bytes(&self, opcode: Opcode, payload: u32) -> u32 {
        wire_bytes(self.encapsulation, opcode, payload) + self.framing
    }
}
