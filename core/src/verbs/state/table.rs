//! The transition table as constant data. Source: Linux `drivers/infiniband/core/verbs.c`,
//! `qp_state_table`, and `ibv_modify_qp(3)`.

use super::{QpAttrMask, QpState, QpType};

/// Attributes of one transition.
#[derive(Copy, Clone)]
pub(super) struct Masks {
    pub required: QpAttrMask,
    pub optional: QpAttrMask,
}

type M = QpAttrMask;

const fn set(parts: &[M]) -> M {
    let mut all = M::empty();
    let mut i = 0;
    while i < parts.len() {
        all = all.union(parts[i]);
        i += 1;
    }
    all
}

/// Required (`STATE` comes by itself) and optional attributes.
const fn masks_of(required: &[M], optional: &[M]) -> Option<Masks> {
    Some(Masks { required: M::STATE.union(set(required)), optional: set(optional) })
}

/// One transition for each type; `None` where the type does not have it.
struct Row {
    from: QpState,
    to: QpState,
    rc: Option<Masks>,
    uc: Option<Masks>,
    ud: Option<Masks>,
}

const CONN_PATH: &[M] = &[M::AV, M::PATH_MTU, M::DEST_QPN, M::RQ_PSN];
const CONN_RTR_OPT: &[M] = &[M::ALT_PATH, M::ACCESS_FLAGS, M::PKEY_INDEX];
const RC_RTS_OPT: &[M] = &[
    M::CUR_STATE,
    M::ACCESS_FLAGS,
    M::ALT_PATH,
    M::PATH_MIG_STATE,
    M::MIN_RNR_TIMER,
    M::RATE_LIMIT,
];
const UC_RTS_OPT: &[M] = &[M::CUR_STATE, M::ACCESS_FLAGS, M::ALT_PATH, M::PATH_MIG_STATE];
const UD_RTS_OPT: &[M] = &[M::CUR_STATE, M::QKEY];

const TABLE: &[Row] = &[
    Row {
        from: QpState::Reset,
        to: QpState::Init,
        rc: masks_of(&[M::PKEY_INDEX, M::PORT, M::ACCESS_FLAGS], &[]),
        uc: masks_of(&[M::PKEY_INDEX, M::PORT, M::ACCESS_FLAGS], &[]),
        ud: masks_of(&[M::PKEY_INDEX, M::PORT, M::QKEY], &[]),
    },
    Row {
        from: QpState::Init,
        to: QpState::Init,
        rc: masks_of(&[], &[M::PKEY_INDEX, M::PORT, M::ACCESS_FLAGS]),
        uc: masks_of(&[], &[M::PKEY_INDEX, M::PORT, M::ACCESS_FLAGS]),
        ud: masks_of(&[], &[M::PKEY_INDEX, M::PORT, M::QKEY]),
    },
    Row {
        from: QpState::Init,
        to: QpState::Rtr,
        rc: masks_of(&[set(CONN_PATH), M::MAX_DEST_RD_ATOMIC, M::MIN_RNR_TIMER], CONN_RTR_OPT),
        uc: masks_of(CONN_PATH, CONN_RTR_OPT),
        ud: masks_of(&[], &[M::PKEY_INDEX, M::QKEY]),
    },
    Row {
        from: QpState::Rtr,
        to: QpState::Rts,
        rc: masks_of(
            &[M::SQ_PSN, M::TIMEOUT, M::RETRY_CNT, M::RNR_RETRY, M::MAX_QP_RD_ATOMIC],
            &[M::CUR_STATE, M::ALT_PATH, M::ACCESS_FLAGS, M::MIN_RNR_TIMER, M::PATH_MIG_STATE],
        ),
        uc: masks_of(
            &[M::SQ_PSN],
            &[M::CUR_STATE, M::ALT_PATH, M::ACCESS_FLAGS, M::PATH_MIG_STATE],
        ),
        ud: masks_of(&[M::SQ_PSN], &[M::CUR_STATE, M::QKEY]),
    },
    Row {
        from: QpState::Rts,
        to: QpState::Rts,
        rc: masks_of(&[], RC_RTS_OPT),
        uc: masks_of(&[], UC_RTS_OPT),
        ud: masks_of(&[], UD_RTS_OPT),
    },
    Row {
        from: QpState::Rts,
        to: QpState::Sqd,
        rc: masks_of(&[], &[M::EN_SQD_ASYNC_NOTIFY]),
        uc: masks_of(&[], &[M::EN_SQD_ASYNC_NOTIFY]),
        ud: masks_of(&[], &[M::EN_SQD_ASYNC_NOTIFY]),
    },
    Row {
        from: QpState::Sqd,
        to: QpState::Rts,
        rc: masks_of(&[], RC_RTS_OPT),
        uc: masks_of(&[], UC_RTS_OPT),
        ud: masks_of(&[], UD_RTS_OPT),
    },
    Row {
        from: QpState::Sqd,
        to: QpState::Sqd,
        rc: masks_of(
            &[],
            &[
                M::PORT,
                M::AV,
                M::TIMEOUT,
                M::RETRY_CNT,
                M::RNR_RETRY,
                M::MAX_QP_RD_ATOMIC,
                M::MAX_DEST_RD_ATOMIC,
                M::ALT_PATH,
                M::ACCESS_FLAGS,
                M::PKEY_INDEX,
                M::MIN_RNR_TIMER,
                M::PATH_MIG_STATE,
            ],
        ),
        uc: masks_of(&[], &[M::AV, M::ALT_PATH, M::ACCESS_FLAGS, M::PKEY_INDEX, M::PATH_MIG_STATE]),
        ud: masks_of(&[], &[M::PKEY_INDEX, M::QKEY]),
    },
    Row {
        from: QpState::Sqe,
        to: QpState::Rts,
        rc: None,
        uc: masks_of(&[], &[M::CUR_STATE, M::ACCESS_FLAGS]),
        ud: masks_of(&[], &[M::CUR_STATE, M::QKEY]),
    },
];

/// What only a responder has: absent from XRC_SEND.
const RESPONDER: M = set(&[M::MAX_DEST_RD_ATOMIC, M::MIN_RNR_TIMER]);
/// What only a requester has: absent from XRC_RECV. The kernel keeps `TIMEOUT` and `SQ_PSN` for
/// both halves.
const REQUESTER: M = set(&[M::RETRY_CNT, M::RNR_RETRY, M::MAX_QP_RD_ATOMIC]);

/// Whether the table covers the type.
pub(super) const fn knows(ty: QpType) -> bool {
    !matches!(ty, QpType::RawPacket | QpType::Driver)
}

/// The attributes of a transition; `None` when there is none.
pub(super) fn masks(ty: QpType, from: QpState, to: QpState) -> Option<Masks> {
    if !knows(ty) {
        return None;
    }
    if to == QpState::Reset || (to == QpState::Err && from != QpState::Reset) {
        return masks_of(&[], &[]);
    }
    let row = TABLE.iter().find(|r| r.from == from && r.to == to)?;
    let without = |m: Masks, half: M| Masks {
        required: m.required.difference(half),
        optional: m.optional.difference(half),
    };
    match ty {
        QpType::Rc => row.rc,
        QpType::Uc => row.uc,
        QpType::Ud => row.ud,
        QpType::XrcSend => row.rc.map(|m| without(m, RESPONDER)),
        QpType::XrcRecv => row.rc.map(|m| without(m, REQUESTER)),
        QpType::RawPacket | QpType::Driver => None,
    }
}
