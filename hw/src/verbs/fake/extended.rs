//! Extended posts: `ibv_wr_start` .. `ibv_wr_complete`.

use core::ffi::{c_int, c_void};
use core::slice;

use doorbell_core::transport::Sge;
use doorbell_core::verbs::{Lkey, QpType, WrOpcode};

use super::context::shared_of;
use super::null;
use super::objects::refuse;
use super::qp::QpRequest;
use super::record::{Remote, SentWr, Violation, sges};
use super::world::{Building, Key, World};
use crate::verbs::sys::*;

/// `send_ops_flags` that a device without ATOMICs refuses.
pub(super) const ATOMICS: u64 = (ibv_qp_create_send_ops_flags::IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP.0
    | ibv_qp_create_send_ops_flags::IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD.0)
    as u64;

/// `create_qp_ex` of the context: only what it understands of the mask is accepted.
pub(super) unsafe extern "C" fn create_qp_ex(
    context: *mut ibv_context,
    attr: *mut ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    let pd_bit = ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_PD.0;
    let ops_bit = ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS.0;
    // SAFETY: the caller's attributes are complete for their mask.
    let request = unsafe {
        let mask = (*attr).comp_mask;
        if mask & !(pd_bit | ops_bit) != 0 {
            return refuse(libc::EOPNOTSUPP);
        }
        if mask & pd_bit == 0 {
            return refuse(libc::EINVAL);
        }
        QpRequest {
            pd: (*attr).pd.addr(),
            send_cq: (*attr).send_cq,
            recv_cq: (*attr).recv_cq,
            srq: (*attr).srq,
            cap: (*attr).cap,
            ty: (*attr).qp_type,
            sig_all: (*attr).sq_sig_all != 0,
            qp_context: (*attr).qp_context,
            ops: (mask & ops_bit != 0).then_some((*attr).send_ops_flags),
        }
    };
    // SAFETY: the caller's context is open.
    let made = unsafe { shared_of(context) }.lock().create_qp(&request);
    match made {
        Ok((qp, cap)) => {
            // SAFETY: the caller's attributes; granted sizes are told on success only.
            unsafe { (*attr).cap = cap };
            qp
        }
        Err(errno) => refuse(errno),
    }
}

/// Sets the functions of the operations that were asked for; the others stay absent, so that a
/// call of one is noticed.
pub(super) fn install(
    ex: &mut ibv_qp_ex,
    ty: QpType,
    ops: u64,
    is_null: bool,
) -> Result<(), c_int> {
    use ibv_qp_create_send_ops_flags as F;
    let mut left = ops;
    macro_rules! op {
        ($flag:ident, $op:ident, $field:ident) => {
            let bit = u64::from(F::$flag.0);
            if left & bit != 0 {
                if !WrOpcode::$op.allowed_on(ty) {
                    return Err(libc::EOPNOTSUPP);
                }
                left &= !bit;
                ex.$field = Some(if is_null { null::$field } else { $field });
            }
        };
    }
    op!(IBV_QP_EX_WITH_RDMA_WRITE, RdmaWrite, wr_rdma_write);
    op!(IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM, RdmaWriteWithImm, wr_rdma_write_imm);
    op!(IBV_QP_EX_WITH_SEND, Send, wr_send);
    op!(IBV_QP_EX_WITH_SEND_WITH_IMM, SendWithImm, wr_send_imm);
    op!(IBV_QP_EX_WITH_SEND_WITH_INV, SendWithInv, wr_send_inv);
    op!(IBV_QP_EX_WITH_RDMA_READ, RdmaRead, wr_rdma_read);
    op!(IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP, AtomicCmpAndSwp, wr_atomic_cmp_swp);
    op!(IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD, AtomicFetchAndAdd, wr_atomic_fetch_add);
    if left != 0 {
        return Err(libc::EOPNOTSUPP);
    }
    macro_rules! always {
        ($($field:ident)*) => {
            $(ex.$field = Some(if is_null { null::$field } else { $field });)*
        };
    }
    always! {
        wr_start wr_complete wr_abort wr_set_sge wr_set_sge_list
        wr_set_inline_data wr_set_inline_data_list
    }
    if ty == QpType::Ud {
        always!(wr_set_ud_addr);
    }
    Ok(())
}

/// # Safety
/// The QP is alive.
unsafe fn with<R>(qp: *mut ibv_qp_ex, f: impl FnOnce(&mut World, Key) -> R) -> R {
    // SAFETY: the caller's promise.
    let shared = unsafe { shared_of((*qp).qp_base.context) };
    f(&mut shared.lock(), qp.addr())
}

/// # Safety
/// The QP is alive.
unsafe fn begin(
    qp: *mut ibv_qp_ex,
    call: &'static str,
    opcode: WrOpcode,
    fill: impl FnOnce(&mut SentWr),
) {
    // SAFETY: the caller's promise; the two fields are set by the program before the call.
    let mut wr = unsafe { SentWr::new((*qp).wr_id, opcode, (*qp).wr_flags) };
    fill(&mut wr);
    let add = |w: &mut World, key| {
        if let Some(building) = w.building(key, call) {
            building.wrs.push(wr);
        }
    };
    // SAFETY: the caller's promise.
    unsafe { with(qp, add) }
}

/// # Safety
/// The QP is alive.
unsafe fn set(qp: *mut ibv_qp_ex, call: &'static str, f: impl FnOnce(&mut SentWr)) {
    let change = |w: &mut World, key| {
        let Some(building) = w.building(key, call) else { return };
        match building.wrs.last_mut() {
            Some(wr) => f(wr),
            None => {
                let qpn = w.qps[&key].qpn;
                w.violation(Violation::NothingBegun { qpn, call });
            }
        }
    };
    // SAFETY: the caller's promise.
    unsafe { with(qp, change) }
}

macro_rules! begins {
    ($($name:ident($($arg:ident: $ty:ty),*) $op:ident |$wr:ident| $fill:expr;)*) => {$(
        unsafe extern "C" fn $name(qp: *mut ibv_qp_ex, $($arg: $ty),*) {
            // SAFETY: the caller's QP is alive.
            unsafe { begin(qp, stringify!($name), WrOpcode::$op, |$wr| $fill) }
        }
    )*};
}

begins! {
    wr_send() Send |_wr| ();
    wr_send_imm(imm: __be32) SendWithImm |wr| wr.imm = Some(u32::from_be(imm));
    wr_send_inv(key: u32) SendWithInv |wr| wr.invalidate = Some(key);
    wr_rdma_write(rkey: u32, addr: u64) RdmaWrite |wr| wr.remote = Some(Remote { addr, rkey });
    wr_rdma_read(rkey: u32, addr: u64) RdmaRead |wr| wr.remote = Some(Remote { addr, rkey });
    wr_rdma_write_imm(rkey: u32, addr: u64, imm: __be32) RdmaWriteWithImm |wr| {
        wr.remote = Some(Remote { addr, rkey });
        wr.imm = Some(u32::from_be(imm));
    };
    wr_atomic_cmp_swp(rkey: u32, addr: u64, compare: u64, swap: u64) AtomicCmpAndSwp |wr| {
        wr.remote = Some(Remote { addr, rkey });
        wr.atomic = Some((compare, swap));
    };
    wr_atomic_fetch_add(rkey: u32, addr: u64, add: u64) AtomicFetchAndAdd |wr| {
        wr.remote = Some(Remote { addr, rkey });
        wr.atomic = Some((add, 0));
    };
}

unsafe extern "C" fn wr_set_sge(qp: *mut ibv_qp_ex, lkey: u32, addr: u64, length: u32) {
    let sge = Sge { addr, len: length, lkey: Lkey(lkey) };
    // SAFETY: the caller's QP is alive.
    unsafe { set(qp, "wr_set_sge", |wr| wr.sges = vec![sge]) }
}

unsafe extern "C" fn wr_set_sge_list(qp: *mut ibv_qp_ex, n: usize, list: *const ibv_sge) {
    // SAFETY: the caller's list has `n` elements.
    let list = unsafe { sges(list, c_int::try_from(n).unwrap_or(c_int::MAX)) };
    // SAFETY: the caller's QP is alive.
    unsafe { set(qp, "wr_set_sge_list", |wr| wr.sges = list) }
}

unsafe extern "C" fn wr_set_inline_data(qp: *mut ibv_qp_ex, addr: *mut c_void, length: usize) {
    // SAFETY: the caller's bytes are readable and unchanged during the call.
    let bytes = unsafe { bytes_of(addr, length) };
    // SAFETY: the caller's QP is alive.
    unsafe { set(qp, "wr_set_inline_data", |wr| wr.inline = Some(bytes)) }
}

unsafe extern "C" fn wr_set_inline_data_list(
    qp: *mut ibv_qp_ex,
    n: usize,
    list: *const ibv_data_buf,
) {
    let mut bytes = Vec::new();
    for i in 0..n {
        // SAFETY: the caller's list has `n` elements, each of readable bytes.
        bytes.extend(unsafe { bytes_of((*list.add(i)).addr, (*list.add(i)).length) });
    }
    // SAFETY: the caller's QP is alive.
    unsafe { set(qp, "wr_set_inline_data_list", |wr| wr.inline = Some(bytes)) }
}

/// # Safety
/// `length` readable bytes that nobody changes during the call.
unsafe fn bytes_of(addr: *const c_void, length: usize) -> Vec<u8> {
    if length == 0 {
        return Vec::new();
    }
    // SAFETY: the caller's promise.
    unsafe { slice::from_raw_parts(addr.cast::<u8>(), length) }.to_vec()
}

unsafe extern "C" fn wr_set_ud_addr(qp: *mut ibv_qp_ex, ah: *mut ibv_ah, qpn: u32, qkey: u32) {
    // SAFETY: the caller's QP is alive.
    let target = unsafe { with(qp, |w, _| w.ud_target(ah, qpn, qkey)) };
    // SAFETY: as above.
    unsafe { set(qp, "wr_set_ud_addr", |wr| wr.ud = target.ok()) }
}

unsafe extern "C" fn wr_start(qp: *mut ibv_qp_ex) {
    // SAFETY: the caller's QP is alive.
    unsafe { with(qp, World::wr_start) }
}

unsafe extern "C" fn wr_complete(qp: *mut ibv_qp_ex) -> c_int {
    // SAFETY: the caller's QP is alive.
    unsafe { with(qp, World::wr_complete) }
}

unsafe extern "C" fn wr_abort(qp: *mut ibv_qp_ex) {
    // SAFETY: the caller's QP is alive.
    unsafe {
        with(qp, |w, key| {
            if w.building(key, "wr_abort").is_some() {
                w.qps.get_mut(&key).expect("it is building").building = None;
            }
        });
    }
}

impl World {
    /// What is being built; records a call that the lock of `wr_start` does not cover.
    fn building(&mut self, key: Key, call: &'static str) -> Option<&mut Building> {
        let Some(qp) = self.qps.get(&key) else {
            self.missing(call);
            return None;
        };
        let qpn = qp.qpn;
        match &qp.building {
            None => {
                self.violation(Violation::NotStarted { qpn, call });
                return None;
            }
            Some(b) if b.thread != std::thread::current().id() => {
                self.violation(Violation::OtherThread { qpn, call });
            }
            Some(_) => {}
        }
        self.qps.get_mut(&key)?.building.as_mut()
    }

    fn wr_start(&mut self, key: Key) {
        let Some(qp) = self.qps.get_mut(&key) else {
            self.missing("wr_start");
            return;
        };
        let thread = std::thread::current().id();
        let before = qp.building.replace(Building { thread, wrs: Vec::new() });
        if before.is_some() {
            let qpn = qp.qpn;
            self.violation(Violation::StartedTwice { qpn });
        }
    }

    /// All or nothing: with any error no work request is posted.
    fn wr_complete(&mut self, key: Key) -> c_int {
        if self.building(key, "wr_complete").is_none() {
            return self.signed(libc::EINVAL);
        }
        let ordered = self.script.complete.take();
        let qp = self.qps.get_mut(&key).expect("it is building");
        let wrs = qp.building.take().expect("it is building").wrs;
        qp.counts.send_calls += 1;
        let room = u64::from(qp.cap.max_send_wr) - (qp.head - qp.tail);
        let refused = wrs.iter().find_map(|wr| qp.check_send(wr).err());
        let full = (wrs.len() as u64 > room).then_some(libc::ENOMEM);
        if let Some(errno) = ordered.or(refused).or(full) {
            return self.signed(errno);
        }
        let taken = wrs.len();
        for wr in wrs {
            self.take_send(key, wr).expect("checked above, and there is room for all");
        }
        self.rung(key, taken);
        0
    }
}
