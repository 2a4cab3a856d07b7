//! Owned objects of the library. Each holds what it was made from, so that they are destroyed in
//! the only order that the library allows: QP, SRQ, CQ, MR, channel, PD, context.
//!
//! The pointers inside are the library's; nobody else destroys them. All of these functions are
//! thread-safe in libibverbs, hence `Send` and `Sync`.

use core::ffi::c_int;
use core::{fmt, ptr};
use std::sync::Arc;

pub use super::errno::Errno;
use super::provider::Provider;
use super::sys::*;

macro_rules! owned {
    ($(#[$doc:meta])* $name:ident($ptr:ty) in $parent:ident: $parent_ty:ty, $destroy:ident) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name {
            ptr: *mut $ptr,
            $parent: Arc<$parent_ty>,
        }

        // SAFETY: libibverbs may be called from any thread with the same object.
        unsafe impl Send for $name {}
        // SAFETY: as above.
        unsafe impl Sync for $name {}

        impl $name {
            /// The library's pointer, valid as long as this object lives.
            pub fn as_ptr(&self) -> *mut $ptr {
                self.ptr
            }

            /// What it was made from.
            pub fn $parent(&self) -> &Arc<$parent_ty> {
                &self.$parent
            }
        }

        impl Drop for $name {
            fn drop(&mut self) {
                let provider = self.$parent.provider().clone();
                // SAFETY: made by this provider, destroyed nowhere else, and everything made from
                // it holds an `Arc` of it and is gone.
                let rc = unsafe { provider.$destroy(self.ptr) };
                debug_assert_eq!(rc, 0, concat!(stringify!($destroy), " failed"));
            }
        }
    };
}

/// A pointer, or the `errno` that the library left.
fn made<T>(ptr: *mut T) -> Result<*mut T, Errno> {
    if ptr.is_null() { Err(Errno(errno())) } else { Ok(ptr) }
}

/// 0, or an `errno`; some providers return it negative, some -1 with `errno` set.
pub(super) fn checked(rc: c_int) -> Result<(), Errno> {
    match rc {
        0 => Ok(()),
        -1 if errno() != 0 => Err(Errno(errno())),
        rc => Err(Errno(rc.abs())),
    }
}

/// An open device.
#[derive(Debug)]
pub struct Context {
    ptr: *mut ibv_context,
    provider: Arc<dyn Provider>,
}

// SAFETY: libibverbs may be called from any thread with the same context.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// Opens a device of the provider's list.
    ///
    /// # Errors
    /// The `errno`: `EACCES` or `EPERM` without permission on `/dev/infiniband/uverbs*`.
    ///
    /// # Safety
    /// `device` is an element of a list of this provider that was not freed yet.
    pub unsafe fn open(
        provider: Arc<dyn Provider>,
        device: *mut ibv_device,
    ) -> Result<Arc<Self>, Errno> {
        // SAFETY: the caller's promise.
        let ptr = made(unsafe { provider.open_device(device) })?;
        Ok(Arc::new(Self { ptr, provider }))
    }

    /// The library's pointer, valid as long as this object lives.
    pub fn as_ptr(&self) -> *mut ibv_context {
        self.ptr
    }

    /// Where its functions come from.
    pub fn provider(&self) -> &Arc<dyn Provider> {
        &self.provider
    }

    /// The descriptor of asynchronous events.
    pub fn async_fd(&self) -> c_int {
        // SAFETY: the context is open; the library never changes the field.
        unsafe { (*self.ptr).async_fd }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: opened by this provider, and everything made from it holds an `Arc` and is gone.
        let rc = unsafe { self.provider.close_device(self.ptr) };
        debug_assert_eq!(rc, 0, "close_device failed");
    }
}

owned!(
    /// A protection domain.
    Pd(ibv_pd) in context: Context, dealloc_pd
);
owned!(
    /// A completion channel: a descriptor that becomes readable when an armed CQ has a completion.
    Channel(ibv_comp_channel) in context: Context, destroy_comp_channel
);
owned!(
    /// An address handle.
    Ah(ibv_ah) in pd: Pd, destroy_ah
);
owned!(
    /// A shared receive queue.
    Srq(ibv_srq) in pd: Pd, destroy_srq
);
owned!(
    /// A completion queue.
    Cq(ibv_cq) in channel: Channel, destroy_cq
);

impl Pd {
    /// `ibv_alloc_pd`.
    ///
    /// # Errors
    /// The `errno`.
    pub fn alloc(context: &Arc<Context>) -> Result<Arc<Self>, Errno> {
        // SAFETY: the context is open.
        let ptr = made(unsafe { context.provider.alloc_pd(context.ptr) })?;
        Ok(Arc::new(Self { ptr, context: context.clone() }))
    }

    fn provider(&self) -> &Arc<dyn Provider> {
        self.context.provider()
    }
}

impl Channel {
    /// `ibv_create_comp_channel`.
    ///
    /// # Errors
    /// The `errno`.
    pub fn create(context: &Arc<Context>) -> Result<Arc<Self>, Errno> {
        // SAFETY: the context is open.
        let ptr = made(unsafe { context.provider.create_comp_channel(context.ptr) })?;
        Ok(Arc::new(Self { ptr, context: context.clone() }))
    }

    fn provider(&self) -> &Arc<dyn Provider> {
        self.context.provider()
    }

    /// Its file descriptor.
    pub fn fd(&self) -> c_int {
        // SAFETY: the channel is alive; the library never changes the field.
        unsafe { (*self.ptr).fd }
    }
}

impl Cq {
    /// `ibv_create_cq` with `depth` entries; events go to `channel`.
    ///
    /// # Errors
    /// The `errno`.
    pub fn create(channel: &Arc<Channel>, depth: c_int) -> Result<Arc<Self>, Errno> {
        let context = channel.context();
        // SAFETY: context and channel are alive, and the channel belongs to the context.
        let ptr = made(unsafe {
            context.provider.create_cq(context.ptr, depth, ptr::null_mut(), channel.ptr)
        })?;
        Ok(Arc::new(Self { ptr, channel: channel.clone() }))
    }

    /// Entries granted, at least what was asked for.
    pub fn granted(&self) -> u32 {
        // SAFETY: the queue is alive; the field changes only with `ibv_resize_cq`.
        u32::try_from(unsafe { (*self.ptr).cqe }).unwrap_or(0)
    }
}

impl Srq {
    /// `ibv_create_srq`; the granted sizes are written back into `sizes`.
    ///
    /// # Errors
    /// The `errno`.
    pub fn create(pd: &Arc<Pd>, sizes: &mut ibv_srq_attr) -> Result<Arc<Self>, Errno> {
        let attr = ibv_srq_attr { srq_limit: 0, ..*sizes };
        let mut init = ibv_srq_init_attr { srq_context: ptr::null_mut(), attr };
        // SAFETY: the domain is alive, the attributes are complete.
        let ptr = made(unsafe { pd.provider().create_srq(pd.ptr, &raw mut init) })?;
        *sizes = init.attr;
        Ok(Arc::new(Self { ptr, pd: pd.clone() }))
    }

    /// Arms the limit event: `ibv_modify_srq` with `IBV_SRQ_LIMIT`.
    ///
    /// # Errors
    /// The `errno`.
    pub fn arm(&self, limit: u32) -> Result<(), Errno> {
        let mut attr = ibv_srq_attr { max_wr: 0, max_sge: 0, srq_limit: limit };
        let mask = ibv_srq_attr_mask::IBV_SRQ_LIMIT.0.cast_signed();
        // SAFETY: the queue is alive, the mask names the field that is set.
        checked(unsafe { self.pd.provider().modify_srq(self.ptr, &raw mut attr, mask) })
    }
}

impl Ah {
    /// `ibv_create_ah`.
    ///
    /// # Errors
    /// The `errno`.
    pub fn create(pd: &Arc<Pd>, attr: &mut ibv_ah_attr) -> Result<Self, Errno> {
        // SAFETY: the domain is alive, the attributes are complete.
        let ptr = made(unsafe { pd.provider().create_ah(pd.ptr, attr) })?;
        Ok(Self { ptr, pd: pd.clone() })
    }
}

/// How work requests reach the provider.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum Posting {
    /// `ibv_post_send` of a chain of `ibv_send_wr`. Every provider has it.
    #[default]
    Classic,
    /// `ibv_wr_start`, `ibv_wr_*`, `ibv_wr_complete`: the WQE is built at stage. Needs extended
    /// verbs of the provider.
    Extended,
}

/// What a QP is created from.
pub struct QpParts {
    /// Protection domain.
    pub pd: Arc<Pd>,
    /// Completion queue of sends.
    pub send_cq: Arc<Cq>,
    /// Completion queue of receives.
    pub recv_cq: Arc<Cq>,
    /// Shared receive queue.
    pub srq: Option<Arc<Srq>>,
    /// `ibv_qp_type`.
    pub ty: ibv_qp_type::Type,
    /// Sizes asked for; replaced by what was granted.
    pub cap: ibv_qp_cap,
    /// Whether every send is signalled.
    pub sq_sig_all: bool,
    /// Whether ATOMICs will be posted, on RC: a device that has none refuses them at once with
    /// extended verbs.
    pub atomics: bool,
    /// How work requests are posted.
    pub posting: Posting,
}

impl fmt::Debug for QpParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sizes = (self.cap.max_send_wr, self.cap.max_recv_wr);
        f.debug_struct("QpParts").field("sizes", &sizes).finish_non_exhaustive()
    }
}

/// A queue pair.
#[derive(Debug)]
pub struct Qp {
    ptr: *mut ibv_qp,
    /// The same object with the calls of extended verbs; null when they are not used.
    ex: *mut ibv_qp_ex,
    parts: QpParts,
}

// SAFETY: libibverbs may be called from any thread with the same QP.
unsafe impl Send for Qp {}
// SAFETY: as above.
unsafe impl Sync for Qp {}

impl Qp {
    /// `ibv_create_qp`, or `ibv_create_qp_ex` for extended posting. What was granted is in
    /// [`Qp::cap`].
    ///
    /// # Errors
    /// The `errno`; `EOPNOTSUPP` when the provider lacks extended verbs.
    pub fn create(mut parts: QpParts) -> Result<Self, Errno> {
        let srq = parts.srq.as_ref().map_or(ptr::null_mut(), |s| s.as_ptr());
        let (ptr, cap) = match parts.posting {
            Posting::Classic => {
                let mut attr = ibv_qp_init_attr {
                    qp_context: ptr::null_mut(),
                    send_cq: parts.send_cq.as_ptr(),
                    recv_cq: parts.recv_cq.as_ptr(),
                    srq,
                    cap: parts.cap,
                    qp_type: parts.ty,
                    sq_sig_all: parts.sq_sig_all.into(),
                };
                // SAFETY: all objects are alive and of one context, the attributes complete.
                let qp = unsafe { parts.pd.provider().create_qp(parts.pd.ptr, &raw mut attr) };
                (made(qp)?, attr.cap)
            }
            Posting::Extended => {
                // SAFETY: all-zero is a valid value of this plain C structure.
                let mut attr: ibv_qp_init_attr_ex = unsafe { core::mem::zeroed() };
                attr.send_cq = parts.send_cq.as_ptr();
                attr.recv_cq = parts.recv_cq.as_ptr();
                attr.srq = srq;
                attr.cap = parts.cap;
                attr.qp_type = parts.ty;
                attr.sq_sig_all = parts.sq_sig_all.into();
                attr.pd = parts.pd.ptr;
                attr.comp_mask = (ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_PD
                    | ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)
                    .0;
                attr.send_ops_flags = send_ops(parts.ty, parts.atomics);
                // SAFETY: as above; the mask names the fields that are set.
                let qp = unsafe { create_qp_ex(parts.pd.context.ptr, &raw mut attr) };
                (made(qp)?, attr.cap)
            }
        };
        parts.cap = cap;
        let ex = match parts.posting {
            Posting::Classic => ptr::null_mut(),
            // SAFETY: the QP was made with the operations of extended verbs.
            Posting::Extended => unsafe { parts.pd.provider().qp_to_qp_ex(ptr) },
        };
        Ok(Self { ptr, ex, parts })
    }

    /// The library's pointer, valid as long as this object lives.
    pub fn as_ptr(&self) -> *mut ibv_qp {
        self.ptr
    }

    /// The same for extended verbs; null for [`Posting::Classic`].
    pub fn as_ex_ptr(&self) -> *mut ibv_qp_ex {
        self.ex
    }

    /// What it was made from.
    pub fn parts(&self) -> &QpParts {
        &self.parts
    }

    /// Granted sizes.
    pub fn cap(&self) -> &ibv_qp_cap {
        &self.parts.cap
    }

    /// QP number.
    pub fn num(&self) -> u32 {
        // SAFETY: the QP is alive; the library never changes the field.
        unsafe { (*self.ptr).qp_num }
    }

    /// `ibv_modify_qp`.
    ///
    /// # Errors
    /// The `errno`.
    pub fn modify(&self, attr: &mut ibv_qp_attr, mask: ibv_qp_attr_mask) -> Result<(), Errno> {
        let mask = mask.0.cast_signed();
        // SAFETY: the QP is alive, the mask names fields that are set.
        checked(unsafe { self.parts.pd.provider().modify_qp(self.ptr, attr, mask) })
    }

    /// The state that the device has it in: `ibv_query_qp`.
    ///
    /// # Errors
    /// The `errno`.
    pub fn query_state(&self) -> Result<ibv_qp_state::Type, Errno> {
        // SAFETY: all-zero is a valid value of these plain C structures.
        let (mut attr, mut init): (ibv_qp_attr, ibv_qp_init_attr) =
            unsafe { (core::mem::zeroed(), core::mem::zeroed()) };
        let mask = ibv_qp_attr_mask::IBV_QP_STATE.0.cast_signed();
        let provider = self.parts.pd.provider();
        // SAFETY: the QP is alive, and there is room for both answers.
        checked(unsafe { provider.query_qp(self.ptr, &raw mut attr, mask, &raw mut init) })?;
        Ok(attr.qp_state)
    }
}

impl Drop for Qp {
    fn drop(&mut self) {
        let provider = self.parts.pd.provider().clone();
        // SAFETY: made by this provider and destroyed nowhere else; its parts are dropped later.
        let rc = unsafe { provider.destroy_qp(self.ptr) };
        debug_assert_eq!(rc, 0, "destroy_qp failed");
    }
}

/// What a QP of a type may post, as `send_ops_flags`.
fn send_ops(ty: ibv_qp_type::Type, atomics: bool) -> u64 {
    use ibv_qp_create_send_ops_flags as F;
    let send = F::IBV_QP_EX_WITH_SEND | F::IBV_QP_EX_WITH_SEND_WITH_IMM;
    let write = F::IBV_QP_EX_WITH_RDMA_WRITE
        | F::IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM
        | F::IBV_QP_EX_WITH_SEND_WITH_INV;
    let rc = F::IBV_QP_EX_WITH_RDMA_READ;
    let atomic = F::IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | F::IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
    let flags = match ty {
        ibv_qp_type::IBV_QPT_UD => send,
        ibv_qp_type::IBV_QPT_UC => send | write,
        _ if atomics => send | write | rc | atomic,
        _ => send | write | rc,
    };
    u64::from(flags.0)
}
