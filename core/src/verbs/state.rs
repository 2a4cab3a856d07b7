//! States of a queue pair, who may move between them with which attributes, and what each
//! state does.

use core::fmt;

use bitflags::bitflags;

use super::UnknownCode;

mod table;

/// State of a queue pair (`enum ibv_qp_state`). Prints as the specification spells it.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(u8)]
pub enum QpState {
    /// Created, or put back: the queues are empty.
    #[default]
    Reset = 0,
    /// Receives may be posted, nothing is processed.
    Init = 1,
    /// Ready to receive.
    Rtr = 2,
    /// Ready to send.
    Rts = 3,
    /// The send queue drains: what had begun is finished, nothing new starts.
    Sqd = 4,
    /// Send queue error of UC and UD; the receive queue goes on. RC has no such state.
    Sqe = 5,
    /// Error: everything is flushed.
    Err = 6,
}

impl QpState {
    /// All, in the order of the values.
    pub const ALL: [Self; 7] =
        [Self::Reset, Self::Init, Self::Rtr, Self::Rts, Self::Sqd, Self::Sqe, Self::Err];

    /// The value in `enum ibv_qp_state`.
    pub const fn value(self) -> u8 {
        self as u8
    }

    /// The name that the specification uses.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reset => "RESET",
            Self::Init => "INIT",
            Self::Rtr => "RTR",
            Self::Rts => "RTS",
            Self::Sqd => "SQD",
            Self::Sqe => "SQE",
            Self::Err => "ERR",
        }
    }
}

impl fmt::Display for QpState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl TryFrom<u32> for QpState {
    type Error = UnknownCode;
    fn try_from(v: u32) -> Result<Self, UnknownCode> {
        let known = Self::ALL.into_iter().find(|s| u32::from(s.value()) == v);
        known.ok_or(UnknownCode { space: "QP state", code: v })
    }
}

/// Type of a queue pair (`enum ibv_qp_type`).
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum QpType {
    /// Reliable Connection.
    Rc = 2,
    /// Unreliable Connection.
    Uc = 3,
    /// Unreliable Datagram.
    Ud = 4,
    /// Whole Ethernet frames.
    RawPacket = 8,
    /// Requester half of an Extended Reliable Connection.
    XrcSend = 9,
    /// Responder half of an Extended Reliable Connection.
    XrcRecv = 10,
    /// Private to a provider, for example DC of mlx5.
    Driver = 0xFF,
}

impl QpType {
    /// All, in the order of the values.
    pub const ALL: [Self; 7] =
        [Self::Rc, Self::Uc, Self::Ud, Self::RawPacket, Self::XrcSend, Self::XrcRecv, Self::Driver];

    /// The value in `enum ibv_qp_type`.
    pub const fn value(self) -> u8 {
        self as u8
    }
}

impl fmt::Display for QpType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rc => "RC",
            Self::Uc => "UC",
            Self::Ud => "UD",
            Self::RawPacket => "RAW_PACKET",
            Self::XrcSend => "XRC_SEND",
            Self::XrcRecv => "XRC_RECV",
            Self::Driver => "DRIVER",
        })
    }
}

impl TryFrom<u32> for QpType {
    type Error = UnknownCode;
    fn try_from(v: u32) -> Result<Self, UnknownCode> {
        let known = Self::ALL.into_iter().find(|t| u32::from(t.value()) == v);
        known.ok_or(UnknownCode { space: "QP type", code: v })
    }
}

bitflags! {
    /// Which attributes a modify sets (`enum ibv_qp_attr_mask`).
    #[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
    pub struct QpAttrMask: u32 {
        /// The state to go to; every modify needs it.
        const STATE = 1;
        /// The state that the caller believes the QP to be in.
        const CUR_STATE = 1 << 1;
        /// Ask for the SQ_DRAINED event.
        const EN_SQD_ASYNC_NOTIFY = 1 << 2;
        /// What peers may do: `qp_access_flags`.
        const ACCESS_FLAGS = 1 << 3;
        /// Index into the port's P_Key table.
        const PKEY_INDEX = 1 << 4;
        /// Port of the device.
        const PORT = 1 << 5;
        /// Q_Key of a datagram QP.
        const QKEY = 1 << 6;
        /// Address vector: the path.
        const AV = 1 << 7;
        /// Path MTU.
        const PATH_MTU = 1 << 8;
        /// Local ACK timeout.
        const TIMEOUT = 1 << 9;
        /// Transport retry count.
        const RETRY_CNT = 1 << 10;
        /// RNR retry count.
        const RNR_RETRY = 1 << 11;
        /// First expected PSN.
        const RQ_PSN = 1 << 12;
        /// READs and ATOMICs that this side may have outstanding.
        const MAX_QP_RD_ATOMIC = 1 << 13;
        /// Alternate path.
        const ALT_PATH = 1 << 14;
        /// RNR NAK timer.
        const MIN_RNR_TIMER = 1 << 15;
        /// First PSN sent.
        const SQ_PSN = 1 << 16;
        /// READs and ATOMICs that the peer may have outstanding here.
        const MAX_DEST_RD_ATOMIC = 1 << 17;
        /// State of the path migration machine.
        const PATH_MIG_STATE = 1 << 18;
        /// Sizes of the queues; no transition of RC, UC or UD accepts it.
        const CAP = 1 << 19;
        /// QP number of the peer.
        const DEST_QPN = 1 << 20;
        /// Rate limit; newer kernels only.
        const RATE_LIMIT = 1 << 25;
    }
}

/// `A, B`, the names of the bits; unknown bits as a number.
struct Names(QpAttrMask);

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut sep = "";
        for (name, _) in self.0.iter_names() {
            write!(f, "{sep}{name}")?;
            sep = ", ";
        }
        let unknown = self.0.bits() & !QpAttrMask::all().bits();
        if unknown != 0 {
            write!(f, "{sep}{unknown:#x}")?;
        }
        Ok(())
    }
}

impl fmt::Display for QpAttrMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Names(*self).fmt(f)
    }
}

/// Why a modify is refused. A refused modify changes nothing (EINVAL).
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum TransitionError {
    /// The transition needs attributes that the mask does not have.
    MissingAttributes {
        /// State of the QP.
        from: QpState,
        /// State asked for.
        to: QpState,
        /// What is missing.
        missing: QpAttrMask,
    },
    /// The mask has attributes that the transition does not take.
    ForbiddenAttributes {
        /// State of the QP.
        from: QpState,
        /// State asked for.
        to: QpState,
        /// What must be left out.
        forbidden: QpAttrMask,
    },
    /// There is no way from one state to the other.
    NoSuchTransition {
        /// Type of the QP.
        ty: QpType,
        /// State of the QP.
        from: QpState,
        /// State asked for.
        to: QpState,
    },
    /// No transition table is known for this type (RAW_PACKET, DRIVER).
    UnknownTable {
        /// Type of the QP.
        ty: QpType,
    },
}

impl fmt::Display for TransitionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::MissingAttributes { from, to, missing } => {
                write!(f, "QP is {from}, MODIFY to {to} needs attributes: {missing}")
            }
            Self::ForbiddenAttributes { from, to, forbidden } => {
                write!(f, "QP is {from}, MODIFY to {to} does not take attributes: {forbidden}")
            }
            Self::NoSuchTransition { from, to, .. } => {
                write!(f, "QP is {from}, MODIFY to {to} ")?;
                match to {
                    QpState::Sqe => f.write_str("is not possible, only a send error leads there"),
                    QpState::Err => f.write_str("needs any state but RESET"),
                    QpState::Init | QpState::Reset => f.write_str("needs RESET"),
                    QpState::Rtr => f.write_str("needs INIT"),
                    QpState::Rts => f.write_str("needs RTR"),
                    QpState::Sqd => f.write_str("needs RTS"),
                }
            }
            Self::UnknownTable { ty } => write!(f, "no state table for QP type {ty}"),
        }
    }
}

impl core::error::Error for TransitionError {}

/// Attributes that the transition must have, `STATE` included; `None` when there is no such
/// transition.
pub fn required(ty: QpType, from: QpState, to: QpState) -> Option<QpAttrMask> {
    table::masks(ty, from, to).map(|m| m.required)
}

/// Attributes that the transition may have besides; `None` when there is no such transition.
pub fn optional(ty: QpType, from: QpState, to: QpState) -> Option<QpAttrMask> {
    table::masks(ty, from, to).map(|m| m.optional)
}

/// Whether a modify from `from` to `to` with the attributes of `mask` is legal.
///
/// The table is Linux `qp_state_table`; in contrast to the manual page of `ibv_modify_qp` it
/// has no way from RESET to ERR. XRC types use the requester or responder half of RC.
///
/// ```
/// use doorbell_core::verbs::{QpAttrMask, QpState, QpType, check_transition};
/// let mask = QpAttrMask::STATE | QpAttrMask::SQ_PSN;
/// let err = check_transition(QpType::Uc, QpState::Init, QpState::Rts, mask).unwrap_err();
/// assert_eq!(err.to_string(), "QP is INIT, MODIFY to RTS needs RTR");
/// assert!(check_transition(QpType::Uc, QpState::Rtr, QpState::Rts, mask).is_ok());
/// ```
///
/// # Errors
/// The first that applies: no such transition, attributes missing, attributes not allowed.
pub fn check_transition(
    ty: QpType,
    from: QpState,
    to: QpState,
    mask: QpAttrMask,
) -> Result<(), TransitionError> {
    if !table::knows(ty) {
        return Err(TransitionError::UnknownTable { ty });
    }
    let Some(m) = table::masks(ty, from, to) else {
        return Err(TransitionError::NoSuchTransition { ty, from, to });
    };
    let missing = m.required.difference(mask);
    if !missing.is_empty() {
        return Err(TransitionError::MissingAttributes { from, to, missing });
    }
    let forbidden = mask.difference(m.required.union(m.optional));
    if !forbidden.is_empty() {
        return Err(TransitionError::ForbiddenAttributes { from, to, forbidden });
    }
    Ok(())
}

/// What becomes of a work request that is posted.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum PostVerdict {
    /// The post fails.
    Refused,
    /// Taken, and kept until the state changes.
    Held,
    /// Taken and processed.
    Processed,
    /// Taken; completes with `WrFlushErr`.
    Flushed,
}

/// What becomes of a receive posted in this state.
pub const fn can_post_recv(state: QpState) -> PostVerdict {
    match state {
        QpState::Reset => PostVerdict::Refused,
        QpState::Init => PostVerdict::Held,
        QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe => PostVerdict::Processed,
        QpState::Err => PostVerdict::Flushed,
    }
}

/// What becomes of a send posted in this state.
///
/// Providers check their local copy of the state: a QP that the device has already moved to ERR
/// still takes the post and flushes it.
pub const fn can_post_send(state: QpState) -> PostVerdict {
    match state {
        QpState::Reset | QpState::Init | QpState::Rtr => PostVerdict::Refused,
        QpState::Rts => PostVerdict::Processed,
        QpState::Sqd => PostVerdict::Held,
        QpState::Sqe | QpState::Err => PostVerdict::Flushed,
    }
}

/// What becomes of an inbound packet.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum PacketVerdict {
    /// Dropped without an answer.
    Dropped,
    /// Processed; the first good one raises the COMM_EST event.
    Establishes,
    /// Processed.
    Processed,
}

/// What becomes of a packet that arrives in this state.
pub const fn accepts_packets(state: QpState) -> PacketVerdict {
    match state {
        QpState::Reset | QpState::Init | QpState::Err => PacketVerdict::Dropped,
        QpState::Rtr => PacketVerdict::Establishes,
        QpState::Rts | QpState::Sqd | QpState::Sqe => PacketVerdict::Processed,
    }
}

/// What a QP may put on the wire.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum OutboundVerdict {
    /// Nothing.
    Nothing,
    /// Responses to the peer's requests.
    Responses,
    /// Responses, and the rest of the requests that had begun; then SQ_DRAINED if asked for.
    Begun,
    /// Everything.
    All,
}

/// What a QP in this state may put on the wire.
pub const fn may_transmit(state: QpState) -> OutboundVerdict {
    match state {
        QpState::Reset | QpState::Init | QpState::Sqe | QpState::Err => OutboundVerdict::Nothing,
        QpState::Rtr => OutboundVerdict::Responses,
        QpState::Rts => OutboundVerdict::All,
        QpState::Sqd => OutboundVerdict::Begun,
    }
}

#[cfg(test)]
mod tests;
