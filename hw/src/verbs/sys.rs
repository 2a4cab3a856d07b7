//! The C interface: what `rdma-sys` has, and what it lacks or has wrong.
//!
//! - Its test for the extended context compares `abi_compat` with the 32-bit maximum; the library
//!   stores the pointer-sized one, so extended verbs always look absent. [`extended`] is right.
//! - `ibv_event_type` is a Rust enum there, and a value of a newer library would be undefined
//!   behaviour at once. [`event_of`] reads the integer.
//! - The GID table with types (`_ibv_query_gid_table`) is missing.

pub use rdma_sys::*;

use core::ffi::{c_int, c_uint};
use core::mem::{MaybeUninit, offset_of, size_of};
use core::ptr;

/// What `ibv_context::abi_compat` holds when a `verbs_context` surrounds it
/// (`__VERBS_ABI_IS_EXTENDED` of `<infiniband/verbs.h>`).
pub const ABI_IS_EXTENDED: usize = usize::MAX;

unsafe extern "C" {
    /// libibverbs 32 and later; the public `ibv_query_gid_table` is an inline wrapper.
    pub fn _ibv_query_gid_table(
        context: *mut ibv_context,
        entries: *mut ibv_gid_entry,
        max_entries: usize,
        flags: u32,
        entry_size: usize,
    ) -> isize;
}

/// The extended context around `context`, if there is one.
///
/// # Safety
/// `context` points to an open context.
pub unsafe fn extended(context: *mut ibv_context) -> Option<*mut verbs_context> {
    // SAFETY: the caller's promise. The library allocates the `verbs_context` as one object and
    // hands out a pointer into it, so stepping back stays inside that allocation.
    unsafe {
        if (*context).abi_compat.addr() != ABI_IS_EXTENDED {
            return None;
        }
        Some(context.byte_sub(offset_of!(verbs_context, context)).cast())
    }
}

/// Whether the context is new enough to hold the field at `offset`: new ones are added in front.
///
/// # Safety
/// `vctx` came from [`extended`].
unsafe fn holds(vctx: *mut verbs_context, offset: usize) -> bool {
    // SAFETY: the caller's promise.
    unsafe { (*vctx).sz >= size_of::<verbs_context>() - offset }
}

/// `ibv_create_qp_ex` by the provider's own operation; null and `errno` on failure.
///
/// # Safety
/// As `ibv_create_qp_ex`: an open context, attributes that are complete for their mask.
pub unsafe fn create_qp_ex(
    context: *mut ibv_context,
    attr: *mut ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    // SAFETY: the caller's promise; the operation is read only where the context holds it.
    unsafe {
        let vctx = extended(context).filter(|&v| holds(v, offset_of!(verbs_context, create_qp_ex)));
        match vctx.and_then(|v| (*v).create_qp_ex) {
            Some(create) => create(context, attr),
            None => {
                set_errno(libc::EOPNOTSUPP);
                ptr::null_mut()
            }
        }
    }
}

/// `ibv_query_port` with the whole attribute; 0 or an `errno`.
///
/// # Safety
/// An open context.
pub unsafe fn query_port(context: *mut ibv_context, port: u8, attr: &mut ibv_port_attr) -> c_int {
    // SAFETY: the caller's promise; the operation is read only where the context holds it. The
    // compatible form fills a prefix of the structure.
    unsafe {
        let vctx = extended(context).filter(|&v| holds(v, offset_of!(verbs_context, query_port)));
        match vctx.and_then(|v| (*v).query_port) {
            Some(query) => query(context, port, attr, size_of::<ibv_port_attr>()),
            // The context's own compatible form, which the library sets too; the exported
            // function looks behind the context, where only the library's own have something.
            None => {
                *attr = core::mem::zeroed();
                let compat = ptr::from_mut(attr).cast();
                match (*context).ops._compat_query_port {
                    Some(query) => query(context, port, compat),
                    None => ibv_query_port(context, port, compat),
                }
            }
        }
    }
}

/// What an asynchronous event says, without ever making its type a Rust enum.
#[derive(Copy, Clone, Debug)]
pub struct RawEvent {
    /// `ibv_event_type` as an integer.
    pub kind: c_uint,
    /// The union of pointers and port number, as bits.
    pub element: usize,
}

/// Reads an event that a provider has filled in.
///
/// # Safety
/// `ibv_get_async_event` returned 0 for it.
pub unsafe fn event_of(event: &MaybeUninit<ibv_async_event>) -> RawEvent {
    let at = event.as_ptr();
    // SAFETY: both fields were written by the library; the type is read as the integer that it is
    // in C, and the union as its largest member.
    unsafe {
        RawEvent {
            kind: (&raw const (*at).event_type).cast::<c_uint>().read(),
            element: (&raw const (*at).element).cast::<usize>().read(),
        }
    }
}

/// The thread's `errno`.
pub fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// Sets the thread's `errno`, as a provider's function does before it returns null or -1.
pub fn set_errno(value: c_int) {
    // SAFETY: the location is the calling thread's own and always valid.
    unsafe { *libc::__errno_location() = value };
}

// The trait's scatter element goes to the provider as it is.
const _: () = {
    use doorbell_core::transport::Sge;
    assert!(size_of::<Sge>() == size_of::<ibv_sge>());
    assert!(align_of::<Sge>() >= align_of::<ibv_sge>());
    assert!(offset_of!(Sge, addr) == offset_of!(ibv_sge, addr));
    assert!(offset_of!(Sge, len) == offset_of!(ibv_sge, length));
    assert!(offset_of!(Sge, lkey) == offset_of!(ibv_sge, lkey));
};
