//! From the vocabulary of core to that of libibverbs and back.
//!
//! The enums of core have the numeric values of `<infiniband/verbs.h>`, so most of this is proof
//! that they do.

use doorbell_core::transport::{Address, QpAttr};
use doorbell_core::verbs::{
    AccessFlags, AsyncEventKind, Mtu, QpAttrMask, QpState, QpType, SendFlags, WcOpcode, WcStatus,
    WrOpcode,
};

use super::sys::*;

/// Compares values of core with the constants of the binding.
macro_rules! same {
    ($($core:expr => $c:expr;)*) => {
        const _: () = { $(assert!($core as u64 == $c as u64);)* };
    };
}

same! {
    QpType::Rc => ibv_qp_type::IBV_QPT_RC;
    QpType::Uc => ibv_qp_type::IBV_QPT_UC;
    QpType::Ud => ibv_qp_type::IBV_QPT_UD;
    QpState::Reset => ibv_qp_state::IBV_QPS_RESET;
    QpState::Init => ibv_qp_state::IBV_QPS_INIT;
    QpState::Rtr => ibv_qp_state::IBV_QPS_RTR;
    QpState::Rts => ibv_qp_state::IBV_QPS_RTS;
    QpState::Sqd => ibv_qp_state::IBV_QPS_SQD;
    QpState::Sqe => ibv_qp_state::IBV_QPS_SQE;
    QpState::Err => ibv_qp_state::IBV_QPS_ERR;
    Mtu::B256 => ibv_mtu::IBV_MTU_256;
    Mtu::B4096 => ibv_mtu::IBV_MTU_4096;
    WrOpcode::RdmaWrite => ibv_wr_opcode::IBV_WR_RDMA_WRITE;
    WrOpcode::RdmaWriteWithImm => ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM;
    WrOpcode::Send => ibv_wr_opcode::IBV_WR_SEND;
    WrOpcode::SendWithImm => ibv_wr_opcode::IBV_WR_SEND_WITH_IMM;
    WrOpcode::RdmaRead => ibv_wr_opcode::IBV_WR_RDMA_READ;
    WrOpcode::AtomicCmpAndSwp => ibv_wr_opcode::IBV_WR_ATOMIC_CMP_AND_SWP;
    WrOpcode::AtomicFetchAndAdd => ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD;
    WrOpcode::SendWithInv => ibv_wr_opcode::IBV_WR_SEND_WITH_INV;
    WcOpcode::Send => ibv_wc_opcode::IBV_WC_SEND;
    WcOpcode::RdmaWrite => ibv_wc_opcode::IBV_WC_RDMA_WRITE;
    WcOpcode::RdmaRead => ibv_wc_opcode::IBV_WC_RDMA_READ;
    WcOpcode::CompSwap => ibv_wc_opcode::IBV_WC_COMP_SWAP;
    WcOpcode::FetchAdd => ibv_wc_opcode::IBV_WC_FETCH_ADD;
    WcOpcode::Recv => ibv_wc_opcode::IBV_WC_RECV;
    WcOpcode::RecvRdmaWithImm => ibv_wc_opcode::IBV_WC_RECV_RDMA_WITH_IMM;
    WcStatus::Success => ibv_wc_status::IBV_WC_SUCCESS;
    WcStatus::LocLenErr => ibv_wc_status::IBV_WC_LOC_LEN_ERR;
    WcStatus::WrFlushErr => ibv_wc_status::IBV_WC_WR_FLUSH_ERR;
    WcStatus::RetryExcErr => ibv_wc_status::IBV_WC_RETRY_EXC_ERR;
    WcStatus::RnrRetryExcErr => ibv_wc_status::IBV_WC_RNR_RETRY_EXC_ERR;
    WcStatus::GeneralErr => ibv_wc_status::IBV_WC_GENERAL_ERR;
    AccessFlags::LOCAL_WRITE.bits() => ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0;
    AccessFlags::REMOTE_WRITE.bits() => ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0;
    AccessFlags::REMOTE_READ.bits() => ibv_access_flags::IBV_ACCESS_REMOTE_READ.0;
    AccessFlags::REMOTE_ATOMIC.bits() => ibv_access_flags::IBV_ACCESS_REMOTE_ATOMIC.0;
    AccessFlags::RELAXED_ORDERING.bits() => ibv_access_flags::IBV_ACCESS_RELAXED_ORDERING.0;
    SendFlags::FENCE.bits() => ibv_send_flags::IBV_SEND_FENCE.0;
    SendFlags::SIGNALED.bits() => ibv_send_flags::IBV_SEND_SIGNALED.0;
    SendFlags::SOLICITED.bits() => ibv_send_flags::IBV_SEND_SOLICITED.0;
    SendFlags::INLINE.bits() => ibv_send_flags::IBV_SEND_INLINE.0;
    QpAttrMask::STATE.bits() => ibv_qp_attr_mask::IBV_QP_STATE.0;
    QpAttrMask::CUR_STATE.bits() => ibv_qp_attr_mask::IBV_QP_CUR_STATE.0;
    QpAttrMask::ACCESS_FLAGS.bits() => ibv_qp_attr_mask::IBV_QP_ACCESS_FLAGS.0;
    QpAttrMask::PKEY_INDEX.bits() => ibv_qp_attr_mask::IBV_QP_PKEY_INDEX.0;
    QpAttrMask::PORT.bits() => ibv_qp_attr_mask::IBV_QP_PORT.0;
    QpAttrMask::QKEY.bits() => ibv_qp_attr_mask::IBV_QP_QKEY.0;
    QpAttrMask::AV.bits() => ibv_qp_attr_mask::IBV_QP_AV.0;
    QpAttrMask::PATH_MTU.bits() => ibv_qp_attr_mask::IBV_QP_PATH_MTU.0;
    QpAttrMask::TIMEOUT.bits() => ibv_qp_attr_mask::IBV_QP_TIMEOUT.0;
    QpAttrMask::RETRY_CNT.bits() => ibv_qp_attr_mask::IBV_QP_RETRY_CNT.0;
    QpAttrMask::RNR_RETRY.bits() => ibv_qp_attr_mask::IBV_QP_RNR_RETRY.0;
    QpAttrMask::RQ_PSN.bits() => ibv_qp_attr_mask::IBV_QP_RQ_PSN.0;
    QpAttrMask::MAX_QP_RD_ATOMIC.bits() => ibv_qp_attr_mask::IBV_QP_MAX_QP_RD_ATOMIC.0;
    QpAttrMask::MIN_RNR_TIMER.bits() => ibv_qp_attr_mask::IBV_QP_MIN_RNR_TIMER.0;
    QpAttrMask::SQ_PSN.bits() => ibv_qp_attr_mask::IBV_QP_SQ_PSN.0;
    QpAttrMask::MAX_DEST_RD_ATOMIC.bits() => ibv_qp_attr_mask::IBV_QP_MAX_DEST_RD_ATOMIC.0;
    QpAttrMask::DEST_QPN.bits() => ibv_qp_attr_mask::IBV_QP_DEST_QPN.0;
    AsyncEventKind::CqErr => ibv_event_type::IBV_EVENT_CQ_ERR;
    AsyncEventKind::SrqLimitReached => ibv_event_type::IBV_EVENT_SRQ_LIMIT_REACHED;
    AsyncEventKind::QpLastWqeReached => ibv_event_type::IBV_EVENT_QP_LAST_WQE_REACHED;
}

/// What the address vectors of a port have in common.
#[derive(Copy, Clone, Debug)]
pub struct Path {
    /// Port, from 1.
    pub port: u8,
    /// Index of the own GID.
    pub sgid_index: u8,
    /// Whether every packet has a GRH: always on Ethernet.
    pub global: bool,
}

/// Hops that a packet may take: enough for every data centre, and perftest's and rping's value.
const HOP_LIMIT: u8 = 64;

impl Path {
    /// The address vector towards `to`.
    pub fn towards(self, to: &Address) -> ibv_ah_attr {
        ibv_ah_attr {
            grh: ibv_global_route {
                dgid: ibv_gid { raw: to.gid },
                flow_label: to.flow_label.value(),
                sgid_index: self.sgid_index,
                hop_limit: HOP_LIMIT,
                traffic_class: 0,
            },
            dlid: to.lid,
            sl: to.sl.code(),
            src_path_bits: 0,
            static_rate: 0,
            is_global: self.global.into(),
            port_num: self.port,
        }
    }

    /// Attributes of a modify. The provider reads only those that the mask names.
    pub fn attributes(self, a: &QpAttr) -> ibv_qp_attr {
        // SAFETY: all-zero is a valid value of this plain C structure.
        let mut out: ibv_qp_attr = unsafe { core::mem::zeroed() };
        out.qp_state = a.state.value().into();
        out.cur_qp_state = a.cur_state.value().into();
        out.path_mtu = a.path_mtu.value().into();
        out.qkey = a.qkey.0;
        out.rq_psn = a.rq_psn.value();
        out.sq_psn = a.sq_psn.value();
        out.dest_qp_num = a.dest_qpn.value();
        out.qp_access_flags = a.access.bits();
        out.ah_attr = self.towards(&a.path);
        out.pkey_index = a.pkey_index;
        out.port_num = a.port;
        out.max_rd_atomic = a.max_rd_atomic;
        out.max_dest_rd_atomic = a.max_dest_rd_atomic;
        out.min_rnr_timer = a.min_rnr_timer.code();
        out.timeout = a.timeout.code();
        out.retry_cnt = a.retry_cnt.code();
        out.rnr_retry = a.rnr_retry.code();
        out
    }
}

/// The mask for libibverbs.
pub fn mask(m: QpAttrMask) -> ibv_qp_attr_mask {
    ibv_qp_attr_mask(m.bits())
}

/// A status; one that a newer library invented counts as [`WcStatus::GeneralErr`].
pub fn status(s: ibv_wc_status::Type) -> WcStatus {
    WcStatus::try_from(s).unwrap_or(WcStatus::GeneralErr)
}
