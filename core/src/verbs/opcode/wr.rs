//! Opcodes of work requests and of work completions.

use core::fmt;

use super::{Operation, QpType, UnknownCode};

macro_rules! verbs_opcodes {
    ($(#[$outer:meta])* $enum:ident, $space:literal;
        $($(#[$doc:meta])* $name:ident = $v:literal, $ibv:literal;)*) => {
        $(#[$outer])*
        #[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum $enum { $($(#[$doc])* $name = $v,)* }

        impl $enum {
            /// All, in the order of the values.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The value in `<infiniband/verbs.h>`.
            pub const fn value(self) -> u8 {
                self as u8
            }

            /// The name in `<infiniband/verbs.h>`.
            pub const fn as_str_name(self) -> &'static str {
                match self { $(Self::$name => $ibv,)* }
            }
        }

        impl TryFrom<u32> for $enum {
            type Error = UnknownCode;
            fn try_from(v: u32) -> Result<Self, UnknownCode> {
                match v {
                    $($v => Ok(Self::$name),)*
                    _ => Err(UnknownCode { space: $space, code: v }),
                }
            }
        }

        impl fmt::Display for $enum {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str_name())
            }
        }
    };
}

verbs_opcodes! {
    /// Opcode of a send work request (`enum ibv_wr_opcode`).
    WrOpcode, "WR opcode";
    /// Writes remote memory; the peer's program is not told.
    RdmaWrite = 0, "IBV_WR_RDMA_WRITE";
    /// Writes remote memory and completes a receive with 32 bits of data.
    RdmaWriteWithImm = 1, "IBV_WR_RDMA_WRITE_WITH_IMM";
    /// Fills a posted receive.
    Send = 2, "IBV_WR_SEND";
    /// Fills a posted receive, with 32 bits in its completion.
    SendWithImm = 3, "IBV_WR_SEND_WITH_IMM";
    /// Reads remote memory.
    RdmaRead = 4, "IBV_WR_RDMA_READ";
    /// Compare and swap of 8 remote bytes.
    AtomicCmpAndSwp = 5, "IBV_WR_ATOMIC_CMP_AND_SWP";
    /// Fetch and add on 8 remote bytes.
    AtomicFetchAndAdd = 6, "IBV_WR_ATOMIC_FETCH_AND_ADD";
    /// Invalidates a local key.
    LocalInv = 7, "IBV_WR_LOCAL_INV";
    /// Binds a type 2 memory window.
    BindMw = 8, "IBV_WR_BIND_MW";
    /// Fills a posted receive and invalidates a key of the receiver.
    SendWithInv = 9, "IBV_WR_SEND_WITH_INV";
    /// Segmentation of a large datagram by the device.
    Tso = 10, "IBV_WR_TSO";
    /// Private to a provider.
    Driver1 = 11, "IBV_WR_DRIVER1";
    /// Makes earlier WRITEs visible or persistent at the peer.
    Flush = 14, "IBV_WR_FLUSH";
    /// Writes 8 remote bytes at once.
    AtomicWrite = 15, "IBV_WR_ATOMIC_WRITE";
}

impl WrOpcode {
    /// Whether a QP of this type takes the opcode. Source: table of `ibv_post_send(3)`; FLUSH
    /// and ATOMIC WRITE as `ibv_wr_post(3)`.
    ///
    /// `SendWithInv` is listed for UC although the wire has no UC opcode for it: a back end that
    /// cannot send it says so. `Driver1` means something only to its provider, and only QPs of
    /// type `Driver` take it here. `XrcRecv` has no send queue.
    pub const fn allowed_on(self, ty: QpType) -> bool {
        use WrOpcode as W;
        match ty {
            QpType::Rc | QpType::XrcSend => !matches!(self, W::Tso | W::Driver1),
            QpType::Uc => self.may_be_inline() || matches!(self, W::LocalInv | W::BindMw),
            QpType::Ud => matches!(self, W::Send | W::SendWithImm | W::Tso),
            QpType::RawPacket => matches!(self, W::Send | W::Tso),
            QpType::XrcRecv => false,
            QpType::Driver => matches!(self, W::Driver1),
        }
    }

    /// Whether `SendFlags::INLINE` is legal: the SEND and WRITE families only.
    pub const fn may_be_inline(self) -> bool {
        use WrOpcode as W;
        matches!(self, W::Send | W::SendWithImm | W::SendWithInv)
            || matches!(self, W::RdmaWrite | W::RdmaWriteWithImm)
    }

    /// Opcode of the sender's completion; `None` for `Driver1`.
    pub const fn wc_opcode(self) -> Option<WcOpcode> {
        Some(match self {
            Self::RdmaWrite | Self::RdmaWriteWithImm => WcOpcode::RdmaWrite,
            Self::Send | Self::SendWithImm | Self::SendWithInv => WcOpcode::Send,
            Self::RdmaRead => WcOpcode::RdmaRead,
            Self::AtomicCmpAndSwp => WcOpcode::CompSwap,
            Self::AtomicFetchAndAdd => WcOpcode::FetchAdd,
            Self::LocalInv => WcOpcode::LocalInv,
            Self::BindMw => WcOpcode::BindMw,
            Self::Tso => WcOpcode::Tso,
            Self::Flush => WcOpcode::Flush,
            Self::AtomicWrite => WcOpcode::AtomicWrite,
            Self::Driver1 => return None,
        })
    }

    /// Whether it takes a slot of `max_rd_atomic` at the requester and of `max_dest_rd_atomic`
    /// at the responder.
    pub const fn is_read_or_atomic(self) -> bool {
        matches!(self, Self::RdmaRead | Self::AtomicCmpAndSwp | Self::AtomicFetchAndAdd)
    }

    /// Whether it takes a receive WQE of the peer.
    pub const fn consumes_recv(self) -> bool {
        use WrOpcode as W;
        matches!(self, W::Send | W::SendWithImm | W::SendWithInv | W::RdmaWriteWithImm)
    }

    /// What the packet at this place of the message does; `None` for requests without packets
    /// of their own (`LocalInv`, `BindMw`, `Tso`, `Driver1`), and for a place that a one-packet
    /// request does not have.
    pub const fn packet(self, first: bool, last: bool) -> Option<Operation> {
        use Operation as O;
        Some(match (self, first, last) {
            (Self::Send | Self::SendWithImm | Self::SendWithInv, true, false) => O::SendFirst,
            (Self::Send | Self::SendWithImm | Self::SendWithInv, false, false) => O::SendMiddle,
            (Self::Send, false, true) => O::SendLast,
            (Self::Send, true, true) => O::SendOnly,
            (Self::SendWithImm, false, true) => O::SendLastImm,
            (Self::SendWithImm, true, true) => O::SendOnlyImm,
            (Self::SendWithInv, false, true) => O::SendLastInvalidate,
            (Self::SendWithInv, true, true) => O::SendOnlyInvalidate,
            (Self::RdmaWrite | Self::RdmaWriteWithImm, true, false) => O::RdmaWriteFirst,
            (Self::RdmaWrite | Self::RdmaWriteWithImm, false, false) => O::RdmaWriteMiddle,
            (Self::RdmaWrite, false, true) => O::RdmaWriteLast,
            (Self::RdmaWrite, true, true) => O::RdmaWriteOnly,
            (Self::RdmaWriteWithImm, false, true) => O::RdmaWriteLastImm,
            (Self::RdmaWriteWithImm, true, true) => O::RdmaWriteOnlyImm,
            (Self::RdmaRead, true, true) => O::RdmaReadRequest,
            (Self::AtomicCmpAndSwp, true, true) => O::CompareSwap,
            (Self::AtomicFetchAndAdd, true, true) => O::FetchAdd,
            (Self::Flush, true, true) => O::Flush,
            (Self::AtomicWrite, true, true) => O::AtomicWrite,
            _ => return None,
        })
    }
}

verbs_opcodes! {
    /// Opcode of a work completion (`enum ibv_wc_opcode`). Valid on success only.
    WcOpcode, "WC opcode";
    /// A SEND of any kind.
    Send = 0, "IBV_WC_SEND";
    /// A WRITE, with or without immediate data.
    RdmaWrite = 1, "IBV_WC_RDMA_WRITE";
    /// A READ.
    RdmaRead = 2, "IBV_WC_RDMA_READ";
    /// A compare and swap.
    CompSwap = 3, "IBV_WC_COMP_SWAP";
    /// A fetch and add.
    FetchAdd = 4, "IBV_WC_FETCH_ADD";
    /// A memory window was bound.
    BindMw = 5, "IBV_WC_BIND_MW";
    /// A local key was invalidated.
    LocalInv = 6, "IBV_WC_LOCAL_INV";
    /// A segmented datagram.
    Tso = 7, "IBV_WC_TSO";
    /// A FLUSH.
    Flush = 8, "IBV_WC_FLUSH";
    /// An ATOMIC WRITE.
    AtomicWrite = 9, "IBV_WC_ATOMIC_WRITE";
    /// A message filled a receive; `WcFlags::WITH_IMM` tells whether immediate data came.
    Recv = 128, "IBV_WC_RECV";
    /// A WRITE with immediate data took a receive, whose buffer is untouched.
    RecvRdmaWithImm = 129, "IBV_WC_RECV_RDMA_WITH_IMM";
}

impl WcOpcode {
    /// Whether the completion belongs to a receive queue.
    pub const fn is_recv(self) -> bool {
        self as u8 & 128 != 0
    }
}
