//! Queue pairs: creation, the state machine with its attribute masks, destruction.

use core::ffi::c_int;
use core::ptr;
use std::collections::VecDeque;

use doorbell_core::verbs::{QpAttrMask, QpState, QpType, check_transition};

use super::config::{FlushAt, LinkLayer};
use super::context::{QpObj, zeroed};
use super::null::NullQueue;
use super::objects::free;
use super::record::{Counts, Modify, Violation, copy_attr};
use super::world::{Frees, Key, Qp, RECORDS_MAX, Target, World};
use super::{Call, extended};
use crate::verbs::sys::*;

/// Bits that a QP number has.
const QPN_MASK: u32 = 0xFF_FFFF;

/// What both ways to create a QP have in common.
pub(super) struct QpRequest {
    pub pd: Key,
    pub send_cq: *mut ibv_cq,
    pub recv_cq: *mut ibv_cq,
    pub srq: *mut ibv_srq,
    pub cap: ibv_qp_cap,
    pub ty: u32,
    pub sig_all: bool,
    pub qp_context: *mut core::ffi::c_void,
    /// `send_ops_flags`, for extended posting.
    pub ops: Option<u64>,
}

impl World {
    /// The QP and the sizes granted.
    pub fn create_qp(&mut self, request: &QpRequest) -> Result<(*mut ibv_qp, ibv_qp_cap), c_int> {
        let call = "create_qp";
        let context = self.pds.get(&request.pd).map(|p| p.context);
        let context = context.ok_or_else(|| self.missing(call).abs())?;
        let srq = (!request.srq.is_null()).then(|| request.srq.addr());
        let (send_cq, recv_cq) = (request.send_cq.addr(), request.recv_cq.addr());
        let alive = self.cqs.get(&send_cq).is_some_and(|c| c.context == context)
            && self.cqs.get(&recv_cq).is_some_and(|c| c.context == context)
            && srq.is_none_or(|s| self.srqs.contains_key(&s));
        if !alive {
            return Err(self.missing(call).abs());
        }
        if let Some(errno) = self.ordered(Call::CreateQp) {
            return Err(errno);
        }
        let ty = QpType::try_from(request.ty).map_err(|_| libc::EINVAL)?;
        if !matches!(ty, QpType::Rc | QpType::Uc | QpType::Ud) {
            return Err(libc::EOPNOTSUPP);
        }
        let cap = self.granted(context, &request.cap, srq.is_some())?;
        let mut ex: ibv_qp_ex = zeroed();
        if let Some(ops) = request.ops {
            if ops & extended::ATOMICS != 0 && !self.has_atomics(context) {
                return Err(libc::EOPNOTSUPP);
            }
            extended::install(&mut ex, ty, ops, self.is_null)?;
        }
        let qpn = (0x40 + self.serial()) & QPN_MASK;
        ex.qp_base.context = self.context_ptr(context);
        ex.qp_base.qp_context = request.qp_context;
        ex.qp_base.pd = self.pds[&request.pd].ptr;
        ex.qp_base.send_cq = request.send_cq;
        ex.qp_base.recv_cq = request.recv_cq;
        ex.qp_base.srq = request.srq;
        ex.qp_base.handle = self.serial();
        ex.qp_base.qp_num = qpn;
        ex.qp_base.qp_type = request.ty;
        // SAFETY: the queue is in the table, so it is alive.
        let ring = unsafe { (*self.cqs[&send_cq].ptr).ring.shared() };
        let ptr =
            Box::into_raw(Box::new(QpObj { ex, null: NullQueue::new(ring, request.sig_all) }));
        let entry = Qp {
            ptr,
            pd: request.pd,
            send_cq,
            recv_cq,
            srq,
            qpn,
            ty,
            state: QpState::Reset,
            cap,
            sig_all: request.sig_all,
            extended: request.ops.is_some(),
            building: None,
            sq: VecDeque::new(),
            head: 0,
            tail: 0,
            rq: VecDeque::new(),
            rq_used: 0,
            attr: zeroed(),
            modifies: VecDeque::new(),
            sent: VecDeque::new(),
            received: VecDeque::new(),
            counts: Counts::default(),
            async_unacked: 0,
        };
        self.qps.insert(ptr.addr(), entry);
        Ok((ptr.cast(), cap))
    }

    fn has_atomics(&self, context: Key) -> bool {
        self.device_config(context).is_some_and(|d| d.atomics)
    }

    fn granted(&self, context: Key, asked: &ibv_qp_cap, srq: bool) -> Result<ibv_qp_cap, c_int> {
        let l = self.limits(context);
        let fits = asked.max_send_wr <= l.max_qp_wr
            && asked.max_recv_wr <= l.max_qp_wr
            && asked.max_send_sge <= l.max_sge
            && asked.max_recv_sge <= l.max_sge
            && asked.max_inline_data <= l.max_inline;
        if !fits {
            return Err(libc::EINVAL);
        }
        if self.qps.len() >= l.max_qp as usize {
            return Err(libc::ENOMEM);
        }
        // With an SRQ the receive queue of the QP itself has no size.
        let (recv_wr, recv_sge) =
            if srq { (0, 0) } else { (asked.max_recv_wr, asked.max_recv_sge) };
        Ok(ibv_qp_cap {
            max_send_wr: self.rounded(asked.max_send_wr, l.max_qp_wr),
            max_recv_wr: self.rounded(recv_wr, l.max_qp_wr),
            max_send_sge: self.rounded(asked.max_send_sge, l.max_sge),
            max_recv_sge: self.rounded(recv_sge, l.max_sge),
            max_inline_data: self.rounded(asked.max_inline_data, l.max_inline),
        })
    }

    pub fn qp_to_qp_ex(&mut self, key: Key) -> *mut ibv_qp_ex {
        let Some(qp) = self.qps.get(&key) else {
            self.missing("qp_to_qp_ex");
            return ptr::null_mut();
        };
        if qp.extended { qp.ptr.cast() } else { ptr::null_mut() }
    }

    pub fn modify_qp(&mut self, key: Key, attr: &ibv_qp_attr, mask: c_int) -> c_int {
        let mask = QpAttrMask::from_bits_retain(mask.cast_unsigned());
        let ordered = self.ordered(Call::ModifyQp);
        let Some(qp) = self.qps.get_mut(&key) else { return self.missing("modify_qp") };
        if qp.building.is_some() {
            let (qpn, call) = (qp.qpn, "modify_qp");
            self.violation(Violation::Building { qpn, call });
        }
        let verdict = ordered.map_or_else(|| self.judge(key, attr, mask), Err);
        let errno = verdict.err().unwrap_or(0);
        let qp = self.qps.get_mut(&key).expect("looked up above");
        if qp.modifies.len() == RECORDS_MAX {
            qp.modifies.pop_front();
        }
        qp.modifies.push_back(Modify { attr: copy_attr(attr), mask, errno });
        let Ok(to) = verdict else { return self.signed(errno) };
        merge(&mut qp.attr, attr, mask);
        qp.set_state(to);
        match to {
            QpState::Reset => self.reset(key),
            QpState::Err if self.config.flush_at == FlushAt::Modify => self.flush(key),
            _ => {}
        }
        0
    }

    /// The state to go to, or the `errno` with which a driver refuses.
    fn judge(&self, key: Key, attr: &ibv_qp_attr, mask: QpAttrMask) -> Result<QpState, c_int> {
        let qp = &self.qps[&key];
        let has = |m| mask.contains(m);
        let to = if has(QpAttrMask::STATE) { attr.qp_state } else { qp.state.value().into() };
        let to = QpState::try_from(to).map_err(|_| libc::EINVAL)?;
        let believed = !has(QpAttrMask::CUR_STATE)
            || attr.cur_qp_state == ibv_qp_state::Type::from(qp.state.value());
        let legal = check_transition(qp.ty, qp.state, to, mask).is_ok();
        let limits = self.limits(self.pds[&qp.pd].context);
        let values = (!has(QpAttrMask::PORT) || attr.port_num == 1)
            && (!has(QpAttrMask::PKEY_INDEX) || attr.pkey_index == 0)
            && (!has(QpAttrMask::PATH_MTU) || (1..=5).contains(&attr.path_mtu))
            && (!has(QpAttrMask::TIMEOUT) || attr.timeout < 32)
            && (!has(QpAttrMask::RETRY_CNT) || attr.retry_cnt < 8)
            && (!has(QpAttrMask::RNR_RETRY) || attr.rnr_retry < 8)
            && (!has(QpAttrMask::MIN_RNR_TIMER) || attr.min_rnr_timer < 32)
            && (!has(QpAttrMask::DEST_QPN) || attr.dest_qp_num <= QPN_MASK)
            && (!has(QpAttrMask::MAX_QP_RD_ATOMIC)
                || u32::from(attr.max_rd_atomic) <= limits.max_qp_init_rd_atom)
            && (!has(QpAttrMask::MAX_DEST_RD_ATOMIC)
                || u32::from(attr.max_dest_rd_atomic) <= limits.max_qp_rd_atom)
            && (!has(QpAttrMask::AV)
                || self.path_is_valid(self.pds[&qp.pd].context, &attr.ah_attr));
        if believed && legal && values { Ok(to) } else { Err(libc::EINVAL) }
    }

    /// Ethernet needs a GRH, and a GRH an entry of the table.
    pub fn path_is_valid(&self, context: Key, path: &ibv_ah_attr) -> bool {
        let Some(device) = self.device_config(context) else { return false };
        let global = path.is_global != 0;
        let routed = device.port.link_layer == LinkLayer::Ethernet;
        let index = u32::from(path.grh.sgid_index);
        let known = device.port.gids.iter().any(|g| g.index == index);
        path.port_num == 1 && (global || !routed) && (!global || known)
    }

    /// Empties the queues, completions of the QP included.
    fn reset(&mut self, key: Key) {
        self.purge(key);
        let qp = self.qps.get_mut(&key).expect("the caller looked it up");
        qp.sq.clear();
        qp.rq.clear();
        (qp.head, qp.tail, qp.rq_used) = (0, 0, 0);
        qp.attr = zeroed();
    }

    /// Takes the completions of a QP out of its queues, as a provider does at RESET and destroy; or
    /// leaves them, as slots of nobody.
    fn purge(&mut self, key: Key) {
        let mut of_srq = Vec::new();
        if !self.config.purges {
            let left = self.cqs.values_mut().flat_map(|cq| &mut cq.entries);
            for entry in left.filter(|entry| entry.qp == key) {
                if let Frees::Srq(srq) = entry.frees {
                    of_srq.push(srq);
                }
                entry.frees = Frees::Nothing;
            }
        }
        let purges = self.config.purges;
        for cq in self.cqs.values_mut().filter(|_| purges) {
            cq.entries.retain(|entry| {
                if let (true, Frees::Srq(srq)) = (entry.qp == key, entry.frees) {
                    of_srq.push(srq);
                }
                entry.qp != key
            });
        }
        for srq in of_srq {
            self.srqs.get_mut(&srq).expect("outlives its QPs").used -= 1;
        }
    }

    pub fn query_qp(&mut self, key: Key) -> Result<(ibv_qp_attr, ibv_qp_init_attr), c_int> {
        if let Some(errno) = self.ordered(Call::QueryQp) {
            return Err(self.signed(errno));
        }
        let Some(qp) = self.qps.get_mut(&key) else { return Err(self.missing("query_qp")) };
        qp.set_state(qp.state);
        let mut attr = copy_attr(&qp.attr);
        attr.qp_state = qp.state.value().into();
        attr.cur_qp_state = attr.qp_state;
        attr.cap = qp.cap;
        // SAFETY: the QP is in the table, so it is alive.
        let base = unsafe { &raw mut (*qp.ptr).ex.qp_base };
        // SAFETY: as above; the fields are never written after creation.
        let init = unsafe {
            ibv_qp_init_attr {
                qp_context: (*base).qp_context,
                send_cq: (*base).send_cq,
                recv_cq: (*base).recv_cq,
                srq: (*base).srq,
                cap: qp.cap,
                qp_type: qp.ty.value().into(),
                sq_sig_all: qp.sig_all.into(),
            }
        };
        Ok((attr, init))
    }

    pub fn destroy_qp(&mut self, key: Key) -> c_int {
        let call = "destroy_qp";
        let Some(qp) = self.qps.get(&key) else { return self.missing(call) };
        let (unacked, building, qpn) = (qp.async_unacked, qp.building.is_some(), qp.qpn);
        if building {
            self.violation(Violation::Building { qpn, call });
        }
        if let Some(busy) = self.unacknowledged(call, unacked) {
            return busy;
        }
        self.purge(key);
        let qp = self.qps.remove(&key).expect("looked up above");
        let context = self.pds[&qp.pd].context;
        self.forget_events(context, Target::Qp(key));
        // SAFETY: it was in the table once.
        unsafe { free(qp.ptr) };
        0
    }
}

impl Qp {
    /// Sets the state, and the library's copy of it.
    fn set_state(&mut self, to: QpState) {
        self.state = to;
        // SAFETY: the QP is in the table, so it is alive; the field is the library's.
        unsafe { (*self.ptr).ex.qp_base.state = to.value().into() };
    }
}

/// Takes over the attributes of the mask.
fn merge(to: &mut ibv_qp_attr, from: &ibv_qp_attr, mask: QpAttrMask) {
    macro_rules! take {
        ($($bit:ident: $($field:ident),+;)*) => {$(
            if mask.contains(QpAttrMask::$bit) {
                $(to.$field = from.$field;)+
            }
        )*};
    }
    take! {
        EN_SQD_ASYNC_NOTIFY: en_sqd_async_notify;
        ACCESS_FLAGS: qp_access_flags;
        PKEY_INDEX: pkey_index;
        PORT: port_num;
        QKEY: qkey;
        AV: ah_attr;
        PATH_MTU: path_mtu;
        TIMEOUT: timeout;
        RETRY_CNT: retry_cnt;
        RNR_RETRY: rnr_retry;
        RQ_PSN: rq_psn;
        MAX_QP_RD_ATOMIC: max_rd_atomic;
        ALT_PATH: alt_ah_attr, alt_pkey_index, alt_port_num, alt_timeout;
        MIN_RNR_TIMER: min_rnr_timer;
        SQ_PSN: sq_psn;
        MAX_DEST_RD_ATOMIC: max_dest_rd_atomic;
        PATH_MIG_STATE: path_mig_state;
        DEST_QPN: dest_qp_num;
        RATE_LIMIT: rate_limit;
    }
}
