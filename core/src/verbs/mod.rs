//! The verbs vocabulary: the numbers, codes, states and flags of InfiniBand and RoCE, with the
//! numeric values of `<infiniband/verbs.h>` and of the wire.
//!
//! Everything here is a value: no clock, no queue, no allocation. Each item names where its
//! facts come from. "IBTA" is the InfiniBand Architecture Specification volume 1, whose text
//! was not consulted: the facts come from public implementations (rdma-core, the Linux kernel
//! and its `rxe` driver, Wireshark), and what none of them shows is marked *recalled*.

mod flags;
mod mtu;
mod num;
mod opcode;
mod state;
mod status;
mod timer;

pub use flags::{AccessFlags, AccessFlagsError, SendFlags, WcFlags};
pub use mtu::{MAX_MESSAGE_BYTES, Mtu};
pub use num::{FlowLabel, GRH_BYTES, Lkey, Msn, PKey, Psn, QKey, Qpn, Rkey, UDP_SOURCE_PORT_MIN};
pub use opcode::{Opcode, Operation, PayloadRule, Service, WcOpcode, WrOpcode};
pub use state::{
    OutboundVerdict, PacketVerdict, PostVerdict, QpAttrMask, QpState, QpType, TransitionError,
    accepts_packets, can_post_recv, can_post_send, check_transition, may_transmit, optional,
    required,
};
pub use status::{AsyncEventKind, AsyncObject, NakCode, Syndrome, WcStatus};
pub use timer::{AckTimeout, CreditCode, RetryCnt, RnrRetry, RnrTimer, ServiceLevel};

use core::fmt;

/// A number that names nothing in its code space, for example WC status 24.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct UnknownCode {
    /// The code space, in words: "BTH opcode".
    pub space: &'static str,
    /// The number that was given.
    pub code: u32,
}

impl fmt::Display for UnknownCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x} is no {}", self.code, self.space)
    }
}

impl core::error::Error for UnknownCode {}

/// A value above the range of its field, for example a retry count of 8.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct OutOfRange {
    /// The field as verbs spells it: "retry_cnt".
    pub field: &'static str,
    /// The value that was given.
    pub got: u32,
    /// The largest value that the field holds.
    pub max: u32,
}

impl fmt::Display for OutOfRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {}, at most {} fits", self.field, self.got, self.max)
    }
}

impl core::error::Error for OutOfRange {}
