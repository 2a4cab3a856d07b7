//! How requests end: completion statuses, AETH syndromes, asynchronous events.

use core::fmt;

use super::{CreditCode, RnrTimer, UnknownCode};

macro_rules! wc_status {
    ($($(#[$doc:meta])* $name:ident = $v:literal, $ibv:literal, $text:literal, $synd:expr;)*) => {
        /// Status of a work completion (`enum ibv_wc_status`).
        ///
        /// Anything but `Success` leaves an RC QP in ERR; an error of a UC or UD send queue leaves
        /// the QP in SQE. Sources: verbs.h, `ibv_wc_status_str`, the mlx5 provider.
        #[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum WcStatus { $($(#[$doc])* $name = $v,)* }

        impl WcStatus {
            /// All, in the order of the values.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The name in `<infiniband/verbs.h>`, for example `IBV_WC_RNR_RETRY_EXC_ERR`.
            pub const fn as_str_name(self) -> &'static str {
                match self { $(Self::$name => $ibv,)* }
            }

            /// The text of `ibv_wc_status_str`.
            pub const fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// Syndrome in the error CQE of an mlx5 device. `None` where it has none of its own:
            /// the provider turns every syndrome it does not know into `GeneralErr`.
            pub const fn mlx5_syndrome(self) -> Option<u8> {
                match self { $(Self::$name => $synd,)* }
            }
        }
    };
}

wc_status! {
    /// The operation finished.
    Success = 0, "IBV_WC_SUCCESS", "success", None;
    /// Message above `max_msg_sz`, atomic buffer that is not 8 bytes; at a responder: the
    /// message does not fit the receive WQE.
    LocLenErr = 1, "IBV_WC_LOC_LEN_ERR", "local length error", Some(0x01);
    /// Malformed WQE, or opcode not allowed for this QP.
    LocQpOpErr = 2, "IBV_WC_LOC_QP_OP_ERR", "local QP operation error", Some(0x02);
    /// Reliable Datagram only.
    LocEecOpErr = 3, "IBV_WC_LOC_EEC_OP_ERR", "local EE context operation error", None;
    /// An SGE names no valid region, another PD, or a range or right that the region lacks.
    LocProtErr = 4, "IBV_WC_LOC_PROT_ERR", "local protection error", Some(0x04);
    /// The WQE was in the queue, or was posted, while the queue was in an error state.
    WrFlushErr = 5, "IBV_WC_WR_FLUSH_ERR", "Work Request Flushed Error", Some(0x05);
    /// A bind or local memory management WQE was refused.
    MwBindErr = 6, "IBV_WC_MW_BIND_ERR", "memory management operation error", Some(0x06);
    /// The response does not fit the oldest outstanding request.
    BadRespErr = 7, "IBV_WC_BAD_RESP_ERR", "bad response error", Some(0x10);
    /// Local buffer protection error while handling an inbound WRITE with immediate.
    LocAccessErr = 8, "IBV_WC_LOC_ACCESS_ERR", "local access error", Some(0x11);
    /// NAK Invalid Request.
    RemInvReqErr = 9, "IBV_WC_REM_INV_REQ_ERR", "remote invalid request error", Some(0x12);
    /// NAK Remote Access Error: R_Key, range, right or PD.
    RemAccessErr = 10, "IBV_WC_REM_ACCESS_ERR", "remote access error", Some(0x13);
    /// NAK Remote Operational Error: the responder failed for a reason of its own.
    RemOpErr = 11, "IBV_WC_REM_OP_ERR", "remote operation error", Some(0x14);
    /// No valid response before `retry_cnt` ran out.
    RetryExcErr = 12, "IBV_WC_RETRY_EXC_ERR", "transport retry counter exceeded", Some(0x15);
    /// One more RNR NAK than `rnr_retry` allows.
    RnrRetryExcErr = 13, "IBV_WC_RNR_RETRY_EXC_ERR", "RNR retry counter exceeded", Some(0x16);
    /// Reliable Datagram only.
    LocRddViolErr = 14, "IBV_WC_LOC_RDD_VIOL_ERR", "local RDD violation error", None;
    /// Reliable Datagram only.
    RemInvRdReqErr = 15, "IBV_WC_REM_INV_RD_REQ_ERR", "remote invalid RD request", None;
    /// A UC or UD message on an SRQ was abandoned in the middle.
    RemAbortErr = 16, "IBV_WC_REM_ABORT_ERR", "aborted error", Some(0x22);
    /// Reliable Datagram only.
    InvEecnErr = 17, "IBV_WC_INV_EECN_ERR", "invalid EE context number", None;
    /// Reliable Datagram only.
    InvEecStateErr = 18, "IBV_WC_INV_EEC_STATE_ERR", "invalid EE context state", None;
    /// Unrecoverable device error.
    FatalErr = 19, "IBV_WC_FATAL_ERR", "fatal error", None;
    /// The response timed out; not seen on RC.
    RespTimeoutErr = 20, "IBV_WC_RESP_TIMEOUT_ERR", "response timeout error", None;
    /// Anything that fits nowhere else.
    GeneralErr = 21, "IBV_WC_GENERAL_ERR", "general error", None;
    /// Tag matching: the list operation failed.
    TmErr = 22, "IBV_WC_TM_ERR", "TM error", None;
    /// Tag matching: software has to finish the rendezvous.
    TmRndvIncomplete = 23, "IBV_WC_TM_RNDV_INCOMPLETE", "TM software rendezvous", None;
}

impl WcStatus {
    /// The value in `enum ibv_wc_status`.
    pub const fn value(self) -> u8 {
        self as u8
    }

    /// The status that an mlx5 error syndrome stands for; unknown ones are `GeneralErr`.
    pub fn from_mlx5_syndrome(syndrome: u8) -> Self {
        let known = Self::ALL.iter().copied().find(|s| s.mlx5_syndrome() == Some(syndrome));
        known.unwrap_or(Self::GeneralErr)
    }

    /// Whether the operation succeeded.
    pub const fn is_success(self) -> bool {
        matches!(self, Self::Success)
    }
}

impl fmt::Display for WcStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl TryFrom<u32> for WcStatus {
    type Error = UnknownCode;
    fn try_from(v: u32) -> Result<Self, UnknownCode> {
        let known = usize::try_from(v).ok().and_then(|i| Self::ALL.get(i)).copied();
        known.ok_or(UnknownCode { space: "WC status", code: v })
    }
}

/// Code of a NAK (AETH syndrome `011nnnnn`). Codes 5 ..= 31 are reserved.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum NakCode {
    /// A gap: the PSN is beyond the expected one. Not fatal, the requester goes back.
    PsnSequenceError = 0,
    /// Operation disabled or unsupported, bad opcode order, bad length, too many READs or
    /// ATOMICs, misaligned ATOMIC, receive buffer too small.
    InvalidRequest = 1,
    /// R_Key, PD, range or right does not allow the access.
    RemoteAccessError = 2,
    /// The responder failed for a local reason: bad receive WQE, bad lkey.
    RemoteOperationalError = 3,
    /// Reliable Datagram only.
    InvalidRdRequest = 4,
}

impl NakCode {
    /// All, in the order of the codes.
    pub const ALL: [Self; 5] = [
        Self::PsnSequenceError,
        Self::InvalidRequest,
        Self::RemoteAccessError,
        Self::RemoteOperationalError,
        Self::InvalidRdRequest,
    ];

    /// The 5-bit code.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// What the requester reports on the WQE that the NAK hits; `None` for a sequence error,
    /// which it answers by going back (and `RetryExcErr` when `retry_cnt` runs out).
    pub const fn requester_status(self) -> Option<WcStatus> {
        match self {
            Self::PsnSequenceError => None,
            Self::InvalidRequest => Some(WcStatus::RemInvReqErr),
            Self::RemoteAccessError => Some(WcStatus::RemAccessErr),
            Self::RemoteOperationalError => Some(WcStatus::RemOpErr),
            Self::InvalidRdRequest => Some(WcStatus::RemInvRdReqErr),
        }
    }

    /// Whether both QPs go to ERR.
    pub const fn is_fatal(self) -> bool {
        !matches!(self, Self::PsnSequenceError)
    }
}

impl TryFrom<u8> for NakCode {
    type Error = UnknownCode;
    fn try_from(v: u8) -> Result<Self, UnknownCode> {
        let known = Self::ALL.get(v as usize).copied();
        known.ok_or(UnknownCode { space: "NAK code", code: v.into() })
    }
}

impl fmt::Display for NakCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PsnSequenceError => "PSN sequence error",
            Self::InvalidRequest => "invalid request",
            Self::RemoteAccessError => "remote access error",
            Self::RemoteOperationalError => "remote operational error",
            Self::InvalidRdRequest => "invalid RD request",
        })
    }
}

/// First byte of the AETH: reserved bit, two bits of type, five bits of value.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Syndrome {
    /// `000ccccc`: acknowledged.
    Ack {
        /// Free receive WQEs of the responder.
        credit: CreditCode,
    },
    /// `001ttttt`: no receive WQE, try again later.
    RnrNak {
        /// How long to wait at least.
        timer: RnrTimer,
    },
    /// `011nnnnn` with a defined code: refused.
    Nak {
        /// Why.
        code: NakCode,
    },
    /// Any other byte: type `010`, a NAK code above 4, or the reserved bit set.
    Reserved {
        /// The byte.
        byte: u8,
    },
}

impl Syndrome {
    const RNR: u8 = 0b001 << 5;
    const NAK: u8 = 0b011 << 5;

    /// The byte on the wire.
    pub const fn encode(self) -> u8 {
        match self {
            Self::Ack { credit } => credit.code(),
            Self::RnrNak { timer } => Self::RNR | timer.code(),
            Self::Nak { code } => Self::NAK | code.code(),
            Self::Reserved { byte } => byte,
        }
    }

    /// Reads the byte. Total: what has no meaning is `Reserved`.
    pub fn decode(byte: u8) -> Self {
        let value = byte & 0x1F;
        let known = match byte & 0xE0 {
            0 => CreditCode::new(value).map(|credit| Self::Ack { credit }),
            Self::RNR => RnrTimer::new(value).map(|timer| Self::RnrNak { timer }),
            Self::NAK => NakCode::try_from(value).ok().map(|code| Self::Nak { code }),
            _ => None,
        };
        known.unwrap_or(Self::Reserved { byte })
    }

    /// Whether this is a NAK of any kind, RNR and reserved codes included.
    pub const fn is_nak(self) -> bool {
        let kind = self.encode() & 0xE0;
        kind == Self::RNR || kind == Self::NAK
    }
}

impl fmt::Display for Syndrome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ack { credit } => write!(f, "ACK, credit {credit}"),
            Self::RnrNak { timer } => write!(f, "RNR NAK, timer {timer}"),
            Self::Nak { code } => write!(f, "NAK, {code}"),
            Self::Reserved { byte } => write!(f, "reserved syndrome {byte:#04x}"),
        }
    }
}

/// What an asynchronous event is about: which member of `ibv_async_event.element` is valid.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum AsyncObject {
    /// A completion queue.
    Cq,
    /// A queue pair.
    Qp,
    /// A shared receive queue.
    Srq,
    /// A work queue.
    Wq,
    /// A port.
    Port,
    /// The whole device.
    Device,
}

macro_rules! async_events {
    ($($(#[$doc:meta])* $name:ident = $v:literal, $ibv:literal, $obj:ident;)*) => {
        /// Kind of an asynchronous event (`enum ibv_event_type`).
        ///
        /// An object cannot be destroyed while one of its events is unacknowledged.
        #[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum AsyncEventKind { $($(#[$doc])* $name = $v,)* }

        impl AsyncEventKind {
            /// All, in the order of the values.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The object that the event is about.
            pub const fn object(self) -> AsyncObject {
                match self { $(Self::$name => AsyncObject::$obj,)* }
            }

            /// The name in `<infiniband/verbs.h>`, without `IBV_EVENT_`.
            pub const fn as_str_name(self) -> &'static str {
                match self { $(Self::$name => $ibv,)* }
            }
        }
    };
}

async_events! {
    /// Overrun or internal fault of a CQ; it is unusable and its QPs go to ERR.
    CqErr = 0, "CQ_ERR", Cq;
    /// An error that no completion can report; the QP is in ERR.
    QpFatal = 1, "QP_FATAL", Qp;
    /// The responder sent NAK Invalid Request and had no receive WQE to report it on (recalled).
    QpReqErr = 2, "QP_REQ_ERR", Qp;
    /// The responder sent NAK Remote Access Error and had no receive WQE to report it on
    /// (recalled).
    QpAccessErr = 3, "QP_ACCESS_ERR", Qp;
    /// The first packet arrived in RTR.
    CommEst = 4, "COMM_EST", Qp;
    /// SQD, and the last message that had begun is finished.
    SqDrained = 5, "SQ_DRAINED", Qp;
    /// The alternate path is in use.
    PathMig = 6, "PATH_MIG", Qp;
    /// Migration to the alternate path failed.
    PathMigErr = 7, "PATH_MIG_ERR", Qp;
    /// The device is dead with all its resources.
    DeviceFatal = 8, "DEVICE_FATAL", Device;
    /// The link became usable.
    PortActive = 9, "PORT_ACTIVE", Port;
    /// The link became unusable.
    PortErr = 10, "PORT_ERR", Port;
    /// The LID of the port changed.
    LidChange = 11, "LID_CHANGE", Port;
    /// The P_Key table of the port changed.
    PkeyChange = 12, "PKEY_CHANGE", Port;
    /// Another subnet manager took over.
    SmChange = 13, "SM_CHANGE", Port;
    /// The SRQ is unusable.
    SrqErr = 14, "SRQ_ERR", Srq;
    /// The number of posted receives fell below the armed limit; one-shot.
    SrqLimitReached = 15, "SRQ_LIMIT_REACHED", Srq;
    /// A QP in ERR will take no more WQEs from its SRQ, and its last CQE is written.
    QpLastWqeReached = 16, "QP_LAST_WQE_REACHED", Qp;
    /// The subnet manager asks clients to register again.
    ClientReregister = 17, "CLIENT_REREGISTER", Port;
    /// The GID table of the port changed.
    GidChange = 18, "GID_CHANGE", Port;
    /// A work queue failed.
    WqFatal = 19, "WQ_FATAL", Wq;
    /// The speed of a port changed.
    DeviceSpeedChange = 20, "DEVICE_SPEED_CHANGE", Device;
}

impl AsyncEventKind {
    /// The value in `enum ibv_event_type`.
    pub const fn value(self) -> u8 {
        self as u8
    }
}

impl TryFrom<u32> for AsyncEventKind {
    type Error = UnknownCode;
    fn try_from(v: u32) -> Result<Self, UnknownCode> {
        let known = usize::try_from(v).ok().and_then(|i| Self::ALL.get(i)).copied();
        known.ok_or(UnknownCode { space: "asynchronous event", code: v })
    }
}

impl fmt::Display for AsyncEventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str_name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;
    use std::vec::Vec;

    /// value; name; text; mlx5 syndrome; NAK code that makes a requester report it.
    const STATUS_ROWS: [&str; 24] = [
        "0;IBV_WC_SUCCESS;success;;",
        "1;IBV_WC_LOC_LEN_ERR;local length error;0x01;",
        "2;IBV_WC_LOC_QP_OP_ERR;local QP operation error;0x02;",
        "3;IBV_WC_LOC_EEC_OP_ERR;local EE context operation error;;",
        "4;IBV_WC_LOC_PROT_ERR;local protection error;0x04;",
        "5;IBV_WC_WR_FLUSH_ERR;Work Request Flushed Error;0x05;",
        "6;IBV_WC_MW_BIND_ERR;memory management operation error;0x06;",
        "7;IBV_WC_BAD_RESP_ERR;bad response error;0x10;",
        "8;IBV_WC_LOC_ACCESS_ERR;local access error;0x11;",
        "9;IBV_WC_REM_INV_REQ_ERR;remote invalid request error;0x12;1",
        "10;IBV_WC_REM_ACCESS_ERR;remote access error;0x13;2",
        "11;IBV_WC_REM_OP_ERR;remote operation error;0x14;3",
        "12;IBV_WC_RETRY_EXC_ERR;transport retry counter exceeded;0x15;",
        "13;IBV_WC_RNR_RETRY_EXC_ERR;RNR retry counter exceeded;0x16;",
        "14;IBV_WC_LOC_RDD_VIOL_ERR;local RDD violation error;;",
        "15;IBV_WC_REM_INV_RD_REQ_ERR;remote invalid RD request;;4",
        "16;IBV_WC_REM_ABORT_ERR;aborted error;0x22;",
        "17;IBV_WC_INV_EECN_ERR;invalid EE context number;;",
        "18;IBV_WC_INV_EEC_STATE_ERR;invalid EE context state;;",
        "19;IBV_WC_FATAL_ERR;fatal error;;",
        "20;IBV_WC_RESP_TIMEOUT_ERR;response timeout error;;",
        "21;IBV_WC_GENERAL_ERR;general error;any other;",
        "22;IBV_WC_TM_ERR;TM error;;",
        "23;IBV_WC_TM_RNDV_INCOMPLETE;TM software rendezvous;;",
    ];

    #[test]
    fn every_status_has_its_value_names_and_syndrome() {
        assert_eq!(WcStatus::ALL.len(), STATUS_ROWS.len());
        for row in STATUS_ROWS {
            let c: Vec<&str> = row.split(';').collect();
            let value: u32 = c[0].parse().unwrap();
            let s = WcStatus::try_from(value).unwrap();
            assert_eq!(u32::from(s.value()), value);
            assert_eq!((s.as_str_name(), s.to_string().as_str()), (c[1], c[2]));
            let syndrome = c[3].strip_prefix("0x").map(|h| u8::from_str_radix(h, 16).unwrap());
            assert_eq!(s.mlx5_syndrome(), syndrome, "{row}");
            if let Some(b) = syndrome {
                assert_eq!(WcStatus::from_mlx5_syndrome(b), s);
            }
            let nak = NakCode::ALL.into_iter().find(|n| n.requester_status() == Some(s));
            let expect = c[4].parse::<u8>().ok();
            assert_eq!(nak.map(NakCode::code), expect, "{row}");
            assert_eq!(s.is_success(), value == 0);
        }
        assert_eq!(WcStatus::try_from(24).unwrap_err().to_string(), "0x18 is no WC status");
        assert_eq!(WcStatus::from_mlx5_syndrome(0), WcStatus::GeneralErr);
        assert_eq!(WcStatus::from_mlx5_syndrome(0x23), WcStatus::GeneralErr);
    }

    #[test]
    fn nak_codes_end_at_four() {
        for (code, nak) in (0..).zip(NakCode::ALL) {
            assert_eq!(NakCode::try_from(code), Ok(nak));
            assert_eq!(nak.code(), code);
            assert_eq!(nak.is_fatal(), nak.requester_status().is_some());
        }
        for code in 5..=255 {
            assert!(NakCode::try_from(code).is_err());
        }
        assert!(!NakCode::PsnSequenceError.is_fatal());
    }

    /// All 256 bytes: what each is, and that nothing is lost on the way back.
    #[test]
    fn every_syndrome_byte() {
        for byte in 0..=255 {
            let s = Syndrome::decode(byte);
            assert_eq!(s.encode(), byte);
            let value = byte & 0x1F;
            match byte {
                0x00..=0x1F => {
                    assert_eq!(s, Syndrome::Ack { credit: CreditCode::new(value).unwrap() });
                }
                0x20..=0x3F => {
                    assert_eq!(s, Syndrome::RnrNak { timer: RnrTimer::new(value).unwrap() });
                }
                0x60..=0x64 => {
                    let code = NakCode::ALL[usize::from(value)];
                    assert_eq!(s, Syndrome::Nak { code });
                }
                _ => assert_eq!(s, Syndrome::Reserved { byte }),
            }
            assert_eq!(s.is_nak(), matches!(byte, 0x20..=0x3F | 0x60..=0x7F), "{byte:#x}");
        }
    }

    /// The syndromes of the golden frames: ACK 0x1F, RNR NAK 0x2C, sequence NAK 0x60.
    #[test]
    fn syndromes_print_what_they_mean() {
        assert_eq!(Syndrome::decode(0x1F).to_string(), "ACK, credit 31 (no limit)");
        assert_eq!(Syndrome::decode(0x2C).to_string(), "RNR NAK, timer 12 (640 us)");
        assert_eq!(Syndrome::decode(0x60).to_string(), "NAK, PSN sequence error");
        assert_eq!(Syndrome::decode(0x45).to_string(), "reserved syndrome 0x45");
    }

    #[test]
    fn every_event_has_its_value_and_object() {
        use AsyncObject::{Cq, Device, Port, Qp, Srq, Wq};
        let rows = [
            ("CQ_ERR", Cq),
            ("QP_FATAL", Qp),
            ("QP_REQ_ERR", Qp),
            ("QP_ACCESS_ERR", Qp),
            ("COMM_EST", Qp),
            ("SQ_DRAINED", Qp),
            ("PATH_MIG", Qp),
            ("PATH_MIG_ERR", Qp),
            ("DEVICE_FATAL", Device),
            ("PORT_ACTIVE", Port),
            ("PORT_ERR", Port),
            ("LID_CHANGE", Port),
            ("PKEY_CHANGE", Port),
            ("SM_CHANGE", Port),
            ("SRQ_ERR", Srq),
            ("SRQ_LIMIT_REACHED", Srq),
            ("QP_LAST_WQE_REACHED", Qp),
            ("CLIENT_REREGISTER", Port),
            ("GID_CHANGE", Port),
            ("WQ_FATAL", Wq),
            ("DEVICE_SPEED_CHANGE", Device),
        ];
        assert_eq!(AsyncEventKind::ALL.len(), rows.len());
        for (value, (name, object)) in (0..).zip(rows) {
            let e = AsyncEventKind::try_from(value).unwrap();
            assert_eq!(u32::from(e.value()), value);
            assert_eq!((e.to_string().as_str(), e.object()), (name, object));
        }
        assert!(AsyncEventKind::try_from(21).is_err());
    }
}
