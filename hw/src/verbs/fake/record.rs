//! What the fake writes down: work requests, modifies, violations.

use core::ffi::c_int;

use doorbell_core::transport::Sge;
use doorbell_core::verbs::{Lkey, QpAttrMask, SendFlags, WrOpcode};

use crate::verbs::sys::*;

/// Remote memory that a work request names.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Remote {
    /// Address.
    pub addr: u64,
    /// Key.
    pub rkey: u32,
}

/// Where a datagram goes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct UdTarget {
    /// `ibv_ah.handle` of the address handle.
    pub ah: u32,
    /// QP number.
    pub qpn: u32,
    /// Q_Key.
    pub qkey: u32,
}

/// A send work request as the provider saw it when it was posted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SentWr {
    /// The id.
    pub wr_id: u64,
    /// Opcode.
    pub opcode: WrOpcode,
    /// Flags; unknown bits are kept.
    pub flags: SendFlags,
    /// Scatter elements; empty for inline data.
    pub sges: Vec<Sge>,
    /// Inline data, read while the call lasted.
    pub inline: Option<Vec<u8>>,
    /// Remote memory, of WRITE, READ and ATOMIC.
    pub remote: Option<Remote>,
    /// Immediate data in the host's byte order.
    pub imm: Option<u32>,
    /// Key that the peer invalidates, of SEND with Invalidate; or the local one of LOCAL_INV.
    pub invalidate: Option<u32>,
    /// `compare_add` and `swap` of an ATOMIC.
    pub atomic: Option<(u64, u64)>,
    /// Destination, on a datagram QP.
    pub ud: Option<UdTarget>,
}

impl SentWr {
    /// An empty one, to be filled in.
    pub(super) fn new(wr_id: u64, opcode: WrOpcode, flags: u32) -> Self {
        Self {
            wr_id,
            opcode,
            flags: SendFlags::from_bits_retain(flags),
            sges: Vec::new(),
            inline: None,
            remote: None,
            imm: None,
            invalidate: None,
            atomic: None,
            ud: None,
        }
    }

    /// Bytes of payload.
    pub fn len(&self) -> u64 {
        match &self.inline {
            Some(bytes) => bytes.len() as u64,
            None => self.sges.iter().map(|s| u64::from(s.len)).sum(),
        }
    }

    /// Whether it has no payload.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A posted receive.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PostedRecv {
    /// The id.
    pub wr_id: u64,
    /// Scatter elements.
    pub sges: Vec<Sge>,
}

/// How often a queue was called. A call that takes at least one work request rings one doorbell.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Calls that posted sends: `post_send`, or `wr_complete`.
    pub send_calls: u64,
    /// Those that took something.
    pub send_doorbells: u64,
    /// Send work requests taken.
    pub send_wrs: u64,
    /// Calls that posted receives.
    pub recv_calls: u64,
    /// Those that took something.
    pub recv_doorbells: u64,
    /// Receives taken.
    pub recv_wrs: u64,
}

/// One call of `modify_qp`.
pub struct Modify {
    /// The attributes as they were passed; only those of the mask mean something.
    pub attr: ibv_qp_attr,
    /// The mask.
    pub mask: QpAttrMask,
    /// 0, or the positive `errno` with which it was refused.
    pub errno: c_int,
}

impl Clone for Modify {
    fn clone(&self) -> Self {
        Self { attr: copy_attr(&self.attr), ..*self }
    }
}

impl core::fmt::Debug for Modify {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "modify to {} with {}: {}", self.attr.qp_state, self.mask, self.errno)
    }
}

/// A copy; the binding forgot to derive it.
pub(super) fn copy_attr(attr: &ibv_qp_attr) -> ibv_qp_attr {
    // SAFETY: a plain C structure of integers, read from a valid reference.
    unsafe { core::ptr::read(attr) }
}

/// A use of the library that the manual forbids.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are named in the message")]
pub enum Violation {
    /// The object was destroyed before, or never made.
    #[error("{call}: the object is not alive: destroyed twice, or used after its destruction")]
    NotAlive { call: &'static str },
    /// Objects made from it are alive.
    #[error("{call}: {children} objects made from it are alive; destroy them first")]
    ChildrenAlive { call: &'static str, children: usize },
    /// Events were taken and not acknowledged; the library would wait for ever.
    #[error("{call}: {events} events are not acknowledged; acknowledge each one taken")]
    Unacknowledged { call: &'static str, events: u32 },
    /// More events were acknowledged than taken.
    #[error("{call}: {acked} events acknowledged, only {taken} taken")]
    AckedTooMany { call: &'static str, acked: u32, taken: u32 },
    /// A read of events that would block for ever.
    #[error("{call}: no event, and the descriptor blocks; set O_NONBLOCK or wait for it")]
    WouldBlock { call: &'static str },
    /// `wr_start` between `wr_start` and `wr_complete`: the library would hang.
    #[error("QP {qpn}: wr_start again before wr_complete or wr_abort")]
    StartedTwice { qpn: u32 },
    /// A call between `wr_start` and `wr_complete` that needs one of them.
    #[error("QP {qpn}: {call} outside of wr_start .. wr_complete")]
    NotStarted { qpn: u32, call: &'static str },
    /// The lock of `wr_start` belongs to a thread.
    #[error("QP {qpn}: {call} on another thread than wr_start")]
    OtherThread { qpn: u32, call: &'static str },
    /// A setter before any work request.
    #[error("QP {qpn}: {call} before a work request was begun")]
    NothingBegun { qpn: u32, call: &'static str },
    /// A call that takes the lock which `wr_start` holds: the library would hang.
    #[error("QP {qpn}: {call} between wr_start and wr_complete; complete or abort first")]
    Building { qpn: u32, call: &'static str },
}

/// Scatter elements as the program passed them.
///
/// # Safety
/// `list` points to `n` elements, or `n` is 0 or less.
pub(super) unsafe fn sges(list: *const ibv_sge, n: c_int) -> Vec<Sge> {
    let n = usize::try_from(n).unwrap_or(0);
    (0..n)
        .map(|i| {
            // SAFETY: the caller's promise.
            let s = unsafe { list.add(i).read() };
            Sge { addr: s.addr, len: s.length, lkey: Lkey(s.lkey) }
        })
        .collect()
}
