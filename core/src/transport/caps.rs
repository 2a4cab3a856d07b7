//! Capabilities: data that the back end grants, read back after creation.

use core::fmt;

use super::handles::{CqId, PdId, SrqId};
use super::memory::MemKind;
use crate::units::Span;
use crate::verbs::{
    AccessFlags, AckTimeout, FlowLabel, Mtu, Psn, QKey, QpAttrMask, QpState, QpType, Qpn, RetryCnt,
    RnrRetry, RnrTimer, ServiceLevel,
};

/// A capability that a back end or an initiator lacks, and why.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Unsupported {
    /// What was asked for.
    pub capability: &'static str,
    /// Why it is not there.
    pub reason: &'static str,
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is not supported: {}", self.capability, self.reason)
    }
}

impl core::error::Error for Unsupported {}

/// Limits of the device. Asking for more is an error that names the limit.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct DeviceCaps {
    /// Queue pairs.
    pub max_qp: u32,
    /// Work requests in one queue.
    pub max_qp_wr: u32,
    /// Scatter/gather elements of a send.
    pub max_sge: u32,
    /// Completion queues.
    pub max_cq: u32,
    /// Entries of one completion queue.
    pub max_cqe: u32,
    /// Work requests in one shared receive queue.
    pub max_srq_wr: u32,
    /// Memory regions.
    pub max_mr: u32,
    /// Outstanding READs and ATOMICs of a QP as initiator.
    pub max_rd_atomic: u8,
    /// The same as responder.
    pub max_dest_rd_atomic: u8,
    /// Bytes that can be sent inline.
    pub max_inline: u32,
    /// Longest message in bytes.
    pub max_msg_bytes: u32,
    /// Largest path MTU of the port.
    pub active_mtu: Mtu,
    /// Whether a GPU block may hold queue pairs and ring by itself. Without it such a handle is
    /// refused queue pairs; a CPU core that posts for the GPU is the way out.
    pub gpu_doorbell: bool,
}

/// What was granted to one QP. Policies keep a copy.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct QpCaps {
    /// Send work requests that fit.
    pub max_send_wr: u32,
    /// Send-queue size in 64-byte blocks (WQEBB), if the back end knows it. A work request may take
    /// several blocks; the queue is full when either count is used up.
    pub sq_blocks: Option<u32>,
    /// Receives that fit.
    pub max_recv_wr: u32,
    /// Work requests that may be staged before a ring. libibverbs needs a chain of 128-byte work
    /// requests per QP, so this is well below the depth there.
    pub max_staged: u32,
    /// Scatter/gather elements of a send.
    pub max_sge: u32,
    /// Inline bytes.
    pub max_inline: u32,
    /// Bytes that one BlueFlame write carries; 0 when there is none or it cannot be told.
    pub bf_bytes: u32,
    /// Whether a ring orders this initiator's earlier stores before the doorbell. True for CPUs,
    /// whose drivers carry the barriers; false for GPU blocks, which must call `fence`.
    pub ring_orders_stores: bool,
    /// Whether [`Ring`](super::Ring) is honoured. libibverbs decides by itself.
    pub ring_choice: bool,
    /// Whether the QP can be shared between initiators.
    pub shareable: bool,
    /// Whether ATOMICs work.
    pub atomics: bool,
    /// Outstanding READs and ATOMICs that the device allows.
    pub max_rd_atomic: u8,
}

/// Queue sizes asked for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct QpSize {
    /// Send work requests. Higher: more in flight, more memory (64 bytes and up for each).
    pub max_send_wr: u32,
    /// Receives. Must cover the largest burst, or the peer sees RNR NAKs.
    pub max_recv_wr: u32,
    /// Scatter/gather elements of a send.
    pub max_send_sge: u32,
    /// Inline bytes. Higher: larger WQEs, so fewer fit.
    pub max_inline: u32,
}

/// What a new QP is made of.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct QpInit {
    /// Service type.
    pub ty: QpType,
    /// Protection domain.
    pub pd: PdId,
    /// Where send completions go.
    pub send_cq: CqId,
    /// Where receive completions go.
    pub recv_cq: CqId,
    /// Shared receive queue, instead of an own one.
    pub srq: Option<SrqId>,
    /// Sizes.
    pub size: QpSize,
    /// Whether every send is signalled.
    pub sq_sig_all: bool,
    /// Where the work queues are.
    pub queue_memory: MemKind,
}

/// Address vector: LID and GID of a port, and how to go there: service level and flow label.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Address {
    /// LID; 0 on RoCE.
    pub lid: u16,
    /// GID: an IPv6 or IPv4-mapped address on RoCEv2.
    pub gid: [u8; 16],
    /// Service level of what is sent there. It is the sender's choice: an exchange of endpoints
    /// does not carry it.
    pub sl: ServiceLevel,
    /// Flow label of what is sent there, the sender's choice too. On RoCEv2 it decides the UDP
    /// source port, hence the path where switches hash; 0: the device decides.
    pub flow_label: FlowLabel,
}

impl Address {
    /// The way to `peer` with what is the sender's choice in `self`.
    pub const fn towards(self, peer: Self) -> Self {
        Self { sl: self.sl, flow_label: self.flow_label, ..peer }
    }
}

/// What a peer needs to know of a QP. Plain data, published over the bootstrap.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Endpoint {
    /// Port address.
    pub address: Address,
    /// QP number.
    pub qpn: Qpn,
    /// First PSN that it will send.
    pub psn: Psn,
    /// Largest path MTU of its port.
    pub mtu: Mtu,
}

impl Endpoint {
    /// Bytes of the encoded form.
    pub const ENCODED_BYTES: usize = 25;

    /// Encodes, big-endian.
    pub fn encode(&self) -> [u8; Self::ENCODED_BYTES] {
        let mut out = [0; Self::ENCODED_BYTES];
        out[..2].copy_from_slice(&self.address.lid.to_be_bytes());
        out[2..18].copy_from_slice(&self.address.gid);
        out[18..21].copy_from_slice(&self.qpn.value().to_be_bytes()[1..]);
        out[21..24].copy_from_slice(&self.psn.value().to_be_bytes()[1..]);
        out[24] = self.mtu as u8;
        out
    }

    /// Decodes; `None` for a wrong length or MTU.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let b: &[u8; Self::ENCODED_BYTES] = bytes.try_into().ok()?;
        let u24 = |at: usize| u32::from_be_bytes([0, b[at], b[at + 1], b[at + 2]]);
        let mut gid = [0; 16];
        gid.copy_from_slice(&b[2..18]);
        Some(Self {
            address: Address { lid: u16::from_be_bytes([b[0], b[1]]), gid, ..Address::default() },
            qpn: Qpn::new(u24(18)),
            psn: Psn::new(u24(21)),
            mtu: Mtu::try_from(b[24]).ok()?,
        })
    }
}

/// Attributes of `modify_qp`. Only those named by the mask are read.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct QpAttr {
    /// Target state.
    pub state: QpState,
    /// State that the caller believes in.
    pub cur_state: QpState,
    /// Remote operations that the QP accepts.
    pub access: AccessFlags,
    /// Index into the P_Key table.
    pub pkey_index: u16,
    /// Port, from 1.
    pub port: u8,
    /// Q_Key (UD).
    pub qkey: QKey,
    /// Address vector of the peer.
    pub path: Address,
    /// Path MTU.
    pub path_mtu: Mtu,
    /// Peer's QP.
    pub dest_qpn: Qpn,
    /// First PSN expected.
    pub rq_psn: Psn,
    /// First PSN sent.
    pub sq_psn: Psn,
    /// READs and ATOMICs that it answers at a time.
    pub max_dest_rd_atomic: u8,
    /// READs and ATOMICs that it has outstanding.
    pub max_rd_atomic: u8,
    /// Waiting time that its RNR NAKs ask for.
    pub min_rnr_timer: RnrTimer,
    /// Local ACK timeout.
    pub timeout: AckTimeout,
    /// Transport retries.
    pub retry_cnt: RetryCnt,
    /// RNR retries.
    pub rnr_retry: RnrRetry,
}

impl Default for QpAttr {
    /// RESET, port 1, and perftest's RC parameters: timeout 14, retry 7, RNR timer 12, RNR retry 7.
    fn default() -> Self {
        Self {
            state: QpState::Reset,
            cur_state: QpState::Reset,
            access: AccessFlags::empty(),
            pkey_index: 0,
            port: 1,
            qkey: QKey(0),
            path: Address::default(),
            path_mtu: Mtu::B1024,
            dest_qpn: Qpn::new(0),
            rq_psn: Psn::new(0),
            sq_psn: Psn::new(0),
            max_dest_rd_atomic: 1,
            max_rd_atomic: 1,
            min_rnr_timer: RnrTimer::new(12).expect("in range"),
            timeout: AckTimeout::new(14).expect("in range"),
            retry_cnt: RetryCnt::new(7).expect("in range"),
            rnr_retry: RnrRetry::new(7).expect("in range"),
        }
    }
}

/// Connection parameters that both sides of an RC connection agree on, beside the endpoints.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct RcParams {
    /// Attributes; state, PSNs, QPN and path, save its service level and flow label, are filled in
    /// by [`RcParams::steps`].
    pub attr: QpAttr,
}

impl RcParams {
    /// The three transitions that connect an RC QP in INIT order: INIT, RTR, RTS, each with the
    /// exact mask that the verbs require.
    pub fn steps(&self, local: &Endpoint, peer: &Endpoint) -> [(QpAttr, QpAttrMask); 3] {
        use QpAttrMask as M;
        let base = QpAttr {
            path: self.attr.path.towards(peer.address),
            dest_qpn: peer.qpn,
            rq_psn: peer.psn,
            sq_psn: local.psn,
            ..self.attr
        };
        [
            (
                QpAttr { state: QpState::Init, ..base },
                M::STATE | M::PKEY_INDEX | M::PORT | M::ACCESS_FLAGS,
            ),
            (
                QpAttr { state: QpState::Rtr, ..base },
                M::STATE
                    | M::AV
                    | M::PATH_MTU
                    | M::DEST_QPN
                    | M::RQ_PSN
                    | M::MAX_DEST_RD_ATOMIC
                    | M::MIN_RNR_TIMER,
            ),
            (
                QpAttr { state: QpState::Rts, ..base },
                M::STATE
                    | M::SQ_PSN
                    | M::TIMEOUT
                    | M::RETRY_CNT
                    | M::RNR_RETRY
                    | M::MAX_QP_RD_ATOMIC,
            ),
        ]
    }
}

/// Who issues the calls of a transport handle.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Initiator {
    /// A CPU core.
    Cpu {
        /// Core of this host, from 0.
        core: u16,
        /// Its NUMA node.
        numa: u8,
    },
    /// A block of a GPU.
    GpuBlock {
        /// GPU of this host, from 0.
        gpu: u8,
        /// Block, from 0.
        block: u16,
    },
}

/// Scope of an explicit fence.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum FenceScope {
    /// Orders stores towards memory of the initiator's own device only.
    Device,
    /// Orders stores towards every observer, the NIC among them.
    System,
}

/// Arithmetic of [`Transport::reduce`](super::Transport::reduce), on little-endian elements.
///
/// Every back end yields the same bits. IEEE 754 leaves the payload of a NaN to the processor, so a
/// sum that is NaN is always the canonical quiet one.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Reduce {
    /// Wrapping sum of `i64`.
    SumI64,
    /// Sum of `f32`, element by element in the order of the calls.
    SumF32,
    /// Sum of `f64`, likewise.
    SumF64,
}

impl Reduce {
    /// Bytes of an element.
    pub const fn element_bytes(self) -> u64 {
        match self {
            Self::SumF32 => 4,
            Self::SumI64 | Self::SumF64 => 8,
        }
    }

    /// `a + b` as [`Reduce::SumF32`] has it: a NaN is `0x7fc0_0000`.
    #[inline]
    pub fn sum_f32(a: f32, b: f32) -> f32 {
        let sum = a + b;
        if sum.is_nan() { f32::from_bits(0x7FC0_0000) } else { sum }
    }

    /// `a + b` as [`Reduce::SumF64`] has it: a NaN is `0x7ff8_0000_0000_0000`.
    #[inline]
    pub fn sum_f64(a: f64, b: f64) -> f64 {
        let sum = a + b;
        if sum.is_nan() { f64::from_bits(0x7FF8_0000_0000_0000) } else { sum }
    }

    /// Adds `from` to `to`, element by element. Bytes past the last whole element stay.
    ///
    /// # Panics
    /// When the lengths differ.
    pub fn apply(self, to: &mut [u8], from: &[u8]) {
        assert_eq!(to.len(), from.len(), "a reduction of unequal lengths");
        macro_rules! sum {
            ($t:ty, $add:expr) => {
                for (a, b) in
                    to.chunks_exact_mut(size_of::<$t>()).zip(from.chunks_exact(size_of::<$t>()))
                {
                    let x = <$t>::from_le_bytes(a.try_into().expect("a whole element"));
                    let y = <$t>::from_le_bytes(b.try_into().expect("a whole element"));
                    a.copy_from_slice(&$add(x, y).to_le_bytes());
                }
            };
        }
        match self {
            Self::SumI64 => sum!(i64, i64::wrapping_add),
            Self::SumF32 => sum!(f32, Self::sum_f32),
            Self::SumF64 => sum!(f64, Self::sum_f64),
        }
    }
}

/// Length of one `compute` call, for programs that model work between transfers.
pub type Work = Span;
