//! Work requests and completions.

use alloc::vec::Vec;

use super::handles::{AhId, QpId, SrqId};
use super::memory::Sge;
use crate::verbs::{QKey, QpType, Qpn, Rkey, SendFlags, WcOpcode, WcStatus, WrOpcode};

/// Remote memory: a virtual address and the key that grants access.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Remote {
    /// Virtual address at the responder.
    pub addr: u64,
    /// Its R_Key.
    pub rkey: Rkey,
}

/// What a send work request does.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum SendOp {
    /// SEND.
    Send,
    /// SEND with immediate data (network order is the wire's affair).
    SendImm(u32),
    /// SEND that invalidates an R_Key of the responder.
    SendInv(Rkey),
    /// RDMA WRITE.
    Write(Remote),
    /// RDMA WRITE with immediate: consumes a receive at the responder.
    WriteImm(Remote, u32),
    /// RDMA READ into the local data.
    Read(Remote),
    /// ATOMIC compare and swap on 8 bytes; the old value lands in the local data.
    CmpSwap {
        /// Where.
        remote: Remote,
        /// Expected value.
        compare: u64,
        /// New value if it matched.
        swap: u64,
    },
    /// ATOMIC fetch and add on 8 bytes; the old value lands in the local data.
    FetchAdd {
        /// Where.
        remote: Remote,
        /// Value to add.
        add: u64,
    },
}

impl SendOp {
    /// The `ibv_wr_opcode`.
    pub const fn opcode(&self) -> WrOpcode {
        match self {
            Self::Send => WrOpcode::Send,
            Self::SendImm(_) => WrOpcode::SendWithImm,
            Self::SendInv(_) => WrOpcode::SendWithInv,
            Self::Write(_) => WrOpcode::RdmaWrite,
            Self::WriteImm(..) => WrOpcode::RdmaWriteWithImm,
            Self::Read(_) => WrOpcode::RdmaRead,
            Self::CmpSwap { .. } => WrOpcode::AtomicCmpAndSwp,
            Self::FetchAdd { .. } => WrOpcode::AtomicFetchAndAdd,
        }
    }

    /// The remote memory it names.
    pub const fn remote(&self) -> Option<Remote> {
        match self {
            Self::Write(r) | Self::WriteImm(r, _) | Self::Read(r) => Some(*r),
            Self::CmpSwap { remote, .. } | Self::FetchAdd { remote, .. } => Some(*remote),
            Self::Send | Self::SendImm(_) | Self::SendInv(_) => None,
        }
    }

    /// The same, to aim it elsewhere.
    #[inline]
    pub const fn remote_mut(&mut self) -> Option<&mut Remote> {
        match self {
            Self::Write(r) | Self::WriteImm(r, _) | Self::Read(r) => Some(r),
            Self::CmpSwap { remote, .. } | Self::FetchAdd { remote, .. } => Some(remote),
            Self::Send | Self::SendImm(_) | Self::SendInv(_) => None,
        }
    }
}

/// Local data of a send work request.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Data<'a> {
    /// Registered memory. It belongs to the transport from `stage` until the completion.
    Sge(&'a [Sge]),
    /// Bytes that are copied during `stage`; the caller may reuse them at once.
    Inline(&'a [u8]),
}

impl Data<'_> {
    /// Length in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Self::Sge(sges) => sges.iter().map(|s| u64::from(s.len)).sum(),
            Self::Inline(bytes) => bytes.len() as u64,
        }
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Destination of a UD send.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct UdDest {
    /// Address handle of the peer's port.
    pub ah: AhId,
    /// The peer's QP.
    pub qpn: Qpn,
    /// The Q_Key that the peer expects.
    pub qkey: QKey,
}

/// A send work request. It borrows the caller's data only during `stage`.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct SendWr<'a> {
    /// Comes back in the completion.
    pub wr_id: u64,
    /// What to do.
    pub op: SendOp,
    /// Local data.
    pub data: Data<'a>,
    /// `SIGNALED`, `FENCE`, `SOLICITED`. `INLINE` follows from `data` and is ignored.
    pub flags: SendFlags,
    /// Destination, for UD only.
    pub dest: Option<UdDest>,
}

/// Size of a basic block of a send queue, bytes. A WQE takes whole blocks.
pub const WQEBB: u32 = 64;

/// Bytes of a send WQE by its segments: ctrl 16, UD address vector 48, remote address 16, ATOMIC
/// 16, then 16 per element or 4 + inline bytes padded to 16 (protocol.md §6.1, rdma-core mlx5).
#[inline]
pub fn wqe_bytes(ty: QpType, op: WrOpcode, data: &Data<'_>) -> u32 {
    let mut bytes = 16;
    if ty == QpType::Ud {
        bytes += 48;
    }
    bytes += match op {
        WrOpcode::RdmaWrite | WrOpcode::RdmaWriteWithImm | WrOpcode::RdmaRead => 16,
        WrOpcode::AtomicCmpAndSwp | WrOpcode::AtomicFetchAndAdd => 32,
        _ => 0,
    };
    bytes
        + match data {
            Data::Sge(sges) => 16 * sges.len() as u32,
            Data::Inline([]) => 0,
            Data::Inline(b) => (4 + b.len() as u32).next_multiple_of(16),
        }
}

/// Largest WQE of the mlx5 format, bytes: 63 segments of 16.
pub const MAX_WQE_BYTES: u32 = 1008;

/// Bytes of the largest send WQE of a queue pair that takes so many elements or inline bytes: a
/// datagram's with the segment of an ATOMIC beside it, as mlx5 sizes its slots (protocol.md §6.1).
#[inline]
pub const fn max_wqe_bytes(max_sge: u32, max_inline: u32) -> u32 {
    let inline = (4 + max_inline).next_multiple_of(16);
    let sges = 16 * max_sge;
    let data = if sges > inline { sges } else { inline };
    let bytes = 32 + 48 + data;
    if bytes > MAX_WQE_BYTES { MAX_WQE_BYTES } else { bytes }
}

impl SendWr<'_> {
    /// Blocks of [`WQEBB`] bytes that its WQE takes in the send queue, by [`wqe_bytes`].
    #[inline]
    pub fn blocks(&self) -> u32 {
        // Datagrams and nothing else have a destination.
        let ty = if self.dest.is_some() { QpType::Ud } else { QpType::Rc };
        wqe_bytes(ty, self.op.opcode(), &self.data).div_ceil(WQEBB)
    }
}

/// A receive work request with one scatter element.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct RecvWr {
    /// Comes back in the completion. 63 bits: the top bit belongs to the back end.
    pub wr_id: u64,
    /// Where the message goes. Length 0 is legal for messages without payload.
    pub sge: Sge,
}

/// A queue that takes receives.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum RecvQueue {
    /// The receive queue of a QP.
    Qp(QpId),
    /// A shared receive queue.
    Srq(SrqId),
}

/// The two queues of a QP.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum WorkQueue {
    /// The send queue.
    Send,
    /// The receive queue (or the SRQ's WQE that the QP had taken).
    Recv,
}

/// A work completion. On an error only what the verbs manual calls valid is here.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Completion {
    /// A send work request succeeded, and with it every earlier one of its queue.
    Send {
        /// Of the work request.
        wr_id: u64,
        /// The QP.
        qp: QpId,
        /// What completed.
        op: WcOpcode,
        /// Bytes moved (READ and ATOMIC; otherwise the request's length).
        len: u32,
        /// Work requests that this completion is the first to tell of, at least 1: its own and
        /// earlier ones. Their slots are back, at the latest now.
        retired: u32,
    },
    /// A receive completed.
    Recv {
        /// Of the receive.
        wr_id: u64,
        /// The QP on which the message came.
        qp: QpId,
        /// `Recv` or `RecvRdmaWithImm`.
        op: WcOpcode,
        /// Bytes received.
        len: u32,
        /// Immediate data.
        imm: Option<u32>,
        /// The key that the peer invalidated.
        invalidated: Option<Rkey>,
    },
    /// A work request failed.
    Error {
        /// Of the work request.
        wr_id: u64,
        /// The QP.
        qp: QpId,
        /// Which queue. The opcode is not valid on an error; this is.
        queue: WorkQueue,
        /// Why.
        status: WcStatus,
        /// Vendor code, not portable; 0 where there is none.
        vendor_err: u32,
        /// As for `Send`; 0 for the receive queue.
        retired: u32,
    },
}

/// Buffer for polled completions. The program owns it, so it may post while it reads.
#[derive(Clone, Debug)]
pub struct Completions {
    items: Vec<Completion>,
    capacity: usize,
}

impl Completions {
    /// Room for `capacity` completions, the most that one poll returns. Allocates once.
    ///
    /// Higher: fewer calls per completion, longer until the first one is handled.
    ///
    /// # Panics
    /// When `capacity` is 0: a poll could never see the queue empty.
    pub fn with_capacity(capacity: usize) -> Self {
        assert!(capacity > 0, "a completion buffer needs room for one entry");
        Self { items: Vec::with_capacity(capacity), capacity }
    }

    /// Forgets the contents.
    pub fn clear(&mut self) {
        self.items.clear();
    }

    /// Whether no more fit. After a poll, "not full" means that the queue was seen empty.
    pub fn is_full(&self) -> bool {
        self.items.len() == self.capacity
    }

    /// How many more fit.
    pub fn room(&self) -> usize {
        self.capacity - self.items.len()
    }

    /// Adds one; for back ends.
    ///
    /// # Panics
    /// When it is full.
    pub fn push(&mut self, c: Completion) {
        assert!(!self.is_full(), "completion buffer overflow");
        self.items.push(c);
    }

    /// What was polled.
    pub fn as_slice(&self) -> &[Completion] {
        &self.items
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn bytes(ty: QpType, op: WrOpcode, sges: usize) -> u32 {
        let sges = vec![Sge::default(); sges];
        wqe_bytes(ty, op, &Data::Sge(&sges))
    }

    #[test]
    fn sizes_of_protocol_6_1() {
        assert_eq!(bytes(QpType::Rc, WrOpcode::Send, 1), 32);
        assert_eq!(bytes(QpType::Rc, WrOpcode::RdmaWrite, 1), 48);
        assert_eq!(bytes(QpType::Rc, WrOpcode::RdmaRead, 1), 48);
        assert_eq!(bytes(QpType::Rc, WrOpcode::AtomicCmpAndSwp, 1), 64);
        assert_eq!(bytes(QpType::Rc, WrOpcode::RdmaWrite, 5), 32 + 16 * 5);
        assert_eq!(bytes(QpType::Ud, WrOpcode::Send, 1), 80);
    }

    #[test]
    fn no_wqe_is_larger_than_the_largest() {
        assert_eq!(
            [max_wqe_bytes(1, 0), max_wqe_bytes(5, 60), max_wqe_bytes(1, 60)],
            [96, 160, 144]
        );
        assert_eq!([max_wqe_bytes(58, 0), max_wqe_bytes(59, 0), max_wqe_bytes(9, 924)], [1008; 3]);
        assert_eq!(max_wqe_bytes(57, 0), 992);
        for (max_sge, max_inline) in [(1, 0), (1, 220), (8, 0), (4, 60)] {
            let most = max_wqe_bytes(max_sge, max_inline);
            let b = vec![0; max_inline as usize];
            for (ty, op) in [
                (QpType::Ud, WrOpcode::SendWithImm),
                (QpType::Rc, WrOpcode::RdmaWrite),
                (QpType::Rc, WrOpcode::AtomicCmpAndSwp),
            ] {
                assert!(bytes(ty, op, max_sge as usize) <= most, "{ty:?} {op:?}");
                assert!(wqe_bytes(ty, op, &Data::Inline(&b)) <= most, "{ty:?} {op:?}");
            }
        }
    }

    #[test]
    fn largest_inline_per_block_count() {
        // (op, bytes, blocks): the greatest inline length of 1, 2 and 4 blocks, and one byte more.
        for (op, fits) in [(WrOpcode::Send, [44, 108, 236]), (WrOpcode::RdmaWrite, [28, 92, 220])] {
            for (n, blocks) in fits.into_iter().zip([1, 2, 4]) {
                let b = vec![0; n + 1];
                let size = |n: usize| wqe_bytes(QpType::Rc, op, &Data::Inline(&b[..n]));
                assert_eq!(size(n).div_ceil(WQEBB), blocks);
                assert_eq!(size(n + 1).div_ceil(WQEBB), blocks + 1);
            }
        }
    }
}
