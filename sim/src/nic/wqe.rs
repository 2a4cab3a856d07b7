//! Work queue elements as the NIC sees them, and their sizes.

use doorbell_core::transport::{Data, SendOp, SendWr, Sge};
pub use doorbell_core::transport::{WQEBB, wqe_bytes};
use doorbell_core::units::{Span, Time};
use doorbell_core::verbs::{QKey, QpType, Qpn, Rkey, SendFlags, ServiceLevel};

use crate::rc::SendJob;
use crate::wire::{HostId, PortId};

/// Inline bytes: short ones in place, so that the common case does not allocate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum InlineBytes {
    /// Up to 31 bytes.
    Short {
        /// Bytes used.
        len: u8,
        /// The bytes.
        bytes: [u8; 31],
    },
    /// More.
    Long(Box<[u8]>),
}

impl InlineBytes {
    /// Copies `bytes`.
    pub fn new(bytes: &[u8]) -> Self {
        if bytes.len() <= 31 {
            let mut b = [0; 31];
            b[..bytes.len()].copy_from_slice(bytes);
            Self::Short { len: bytes.len() as u8, bytes: b }
        } else {
            Self::Long(bytes.into())
        }
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        match self {
            Self::Short { len, bytes } => &bytes[..usize::from(*len)],
            Self::Long(b) => b,
        }
    }
}

/// Where the local data of a WQE is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WqeData {
    /// No data.
    None,
    /// One element.
    One(Sge),
    /// Several elements.
    Many(Box<[Sge]>),
    /// In the WQE.
    Inline(InlineBytes),
}

impl WqeData {
    /// The scatter/gather list.
    pub fn sges(&self) -> &[Sge] {
        match self {
            Self::One(s) => std::slice::from_ref(s),
            Self::Many(s) => s,
            Self::None | Self::Inline(_) => &[],
        }
    }

    /// Calls `f(address, length, lkey)` for each piece of `[offset, offset + len)`.
    pub fn pieces(&self, offset: u32, len: u32, mut f: impl FnMut(&Sge, u64, u32)) {
        let (mut skip, mut left) = (u64::from(offset), u64::from(len));
        for sge in self.sges() {
            if left == 0 {
                break;
            }
            let size = u64::from(sge.len);
            if skip >= size {
                skip -= size;
                continue;
            }
            let take = (size - skip).min(left);
            f(sge, sge.addr + skip, take as u32);
            left -= take;
            skip = 0;
        }
    }
}

/// Destination of a UD send, resolved to the simulated fabric.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct UdTarget {
    /// Host of the peer's port,
    pub host: HostId,
    /// and the port.
    pub port: PortId,
    /// The peer's QP.
    pub qpn: Qpn,
    /// Q_Key.
    pub qkey: QKey,
    /// Service level of the address handle.
    pub sl: ServiceLevel,
    /// UDP source port, of its flow label.
    pub udp_source_port: u16,
}

/// A send WQE.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wqe {
    /// Comes back in the completion.
    pub wr_id: u64,
    /// What to do; `None` is a NOP, as an unwritten slot of the ring holds.
    pub op: Option<SendOp>,
    /// Flags of the request.
    pub flags: SendFlags,
    /// Local bytes.
    pub len: u32,
    /// Where they are.
    pub data: WqeData,
    /// UD destination.
    pub dest: Option<UdTarget>,
    /// 64-byte blocks.
    pub blocks: u8,
}

impl Wqe {
    /// What a slot holds that was never written: a NOP of one block.
    pub const EMPTY: Self = Self {
        wr_id: 0,
        op: None,
        flags: SendFlags::empty(),
        len: 0,
        data: WqeData::None,
        dest: None,
        blocks: 1,
    };

    /// Builds the WQE of a work request that the caller has validated.
    pub fn new(wr: &SendWr<'_>, ty: QpType, dest: Option<UdTarget>) -> Self {
        let data = match wr.data {
            Data::Inline(b) => WqeData::Inline(InlineBytes::new(b)),
            Data::Sge([]) => WqeData::None,
            Data::Sge([one]) => WqeData::One(*one),
            Data::Sge(many) => WqeData::Many(many.into()),
        };
        Self {
            wr_id: wr.wr_id,
            op: Some(wr.op),
            flags: wr.flags,
            len: wr.data.len() as u32,
            blocks: wqe_bytes(ty, wr.op.opcode(), &wr.data).div_ceil(WQEBB) as u8,
            data,
            dest,
        }
    }

    /// What the RC engine needs to know of it, as the WQE at `index`.
    pub fn job(&self, index: u32) -> SendJob {
        let op = self.op.expect("a NOP never reaches the transport");
        let remote = op.remote().unwrap_or_default();
        let (swap_add, compare) = match op {
            SendOp::CmpSwap { compare, swap, .. } => (swap, compare),
            SendOp::FetchAdd { add, .. } => (add, 0),
            _ => (0, 0),
        };
        let imm_or_inv = match op {
            SendOp::SendImm(imm) | SendOp::WriteImm(_, imm) => imm,
            SendOp::SendInv(Rkey(key)) => key,
            _ => 0,
        };
        SendJob {
            wqe: index,
            op: op.opcode(),
            len: self.len,
            remote_va: remote.addr,
            rkey: remote.rkey,
            imm_or_inv,
            swap_add,
            compare,
            flags: self.flags,
            dest: self.dest.map_or(Qpn::new(0), |d| d.qpn),
            qkey: self.dest.map_or(QKey(0), |d| d.qkey),
        }
    }
}

/// When the stores of a WQE are visible to the NIC. Later than the doorbell only if the initiator
/// did not order them.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Landing {
    /// The first of its pieces: before, the slot holds what it held.
    pub first: Time,
    /// The last of them: from then on, the slot holds the WQE.
    pub last: Time,
}

impl Landing {
    /// A fence at `now`: all pieces are visible by then.
    pub fn fence(&mut self, now: Time) {
        self.first = self.first.min(now);
        self.last = self.last.min(now);
    }

    /// The same stores, later by `delay`.
    pub fn delayed(self, delay: Span) -> Self {
        Self { first: self.first + delay, last: self.last + delay }
    }
}

impl From<Time> for Landing {
    /// All at once.
    fn from(at: Time) -> Self {
        Self { first: at, last: at }
    }
}

/// A WQE in the send queue ring.
#[derive(Clone, Debug)]
pub struct SqSlot {
    /// What the initiator wrote.
    pub wqe: Wqe,
    /// When those stores are visible to the NIC.
    pub landing: Landing,
    /// What the NIC read, if that was stale: the slot's former content.
    pub executed: Option<Box<Wqe>>,
    /// The NIC read some pieces of the new WQE and some of the slot's former content, which
    /// together ask for nothing that it can do.
    pub torn: bool,
    /// Whether the NIC has it.
    pub fetched: bool,
    /// Whether it came with a BlueFlame write.
    pub carried: bool,
}

impl SqSlot {
    /// The WQE that the NIC executes.
    pub fn effective(&self) -> &Wqe {
        self.executed.as_deref().unwrap_or(&self.wqe)
    }
}

/// A receive WQE.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct RqWqe {
    /// Comes back in the completion.
    pub wr_id: u64,
    /// Where the message goes.
    pub sge: Sge,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_lands_what_is_late_and_leaves_what_has_landed() {
        let t = Time::from_ps;
        let at = |first, last| Landing { first: t(first), last: t(last) };
        for (before, after) in
            [(at(5, 9), at(5, 7)), (at(7, 7), at(7, 7)), (at(8, 9), at(7, 7)), (at(3, 4), at(3, 4))]
        {
            let mut landing = before;
            landing.fence(t(7));
            assert_eq!(landing, after);
        }
        assert_eq!(Landing::from(t(5)).delayed(Span::from_ps(2)), at(7, 7));
    }

    #[test]
    fn pieces_cross_elements() {
        let sge = |addr, len| Sge { addr, len, ..Sge::default() };
        let d = WqeData::Many(Box::new([sge(100, 10), sge(200, 0), sge(300, 10)]));
        let mut got = Vec::new();
        d.pieces(5, 12, |_, a, n| got.push((a, n)));
        assert_eq!(got, [(105, 5), (300, 7)]);
        got.clear();
        d.pieces(10, 10, |_, a, n| got.push((a, n)));
        assert_eq!(got, [(300, 10)]);
    }

    #[test]
    fn inline_is_short_up_to_31_bytes() {
        assert!(matches!(InlineBytes::new(&[7; 31]), InlineBytes::Short { len: 31, .. }));
        assert!(matches!(InlineBytes::new(&[7; 32]), InlineBytes::Long(_)));
        assert_eq!(InlineBytes::new(&[7; 31]).as_slice(), [7; 31]);
    }
}
