//! Handles that hand calls to another: a borrowed one, and in tests one that alters a call.
//!
//! Policies and programs are generic over the handle. With these two a caller that has only a
//! reference, itself generic perhaps, hands it on without a type of its own.

use super::*;

/// The handle that a call goes to: the one behind the reference, or the one in a field.
macro_rules! target {
    ($me:ident) => {
        **$me
    };
    ($me:ident $field:ident) => {
        *$me.$field
    };
}

/// Methods that hand the call to [`target!`].
macro_rules! forward {
    ([$($to:ident)?]) => {};
    ([$($to:ident)?] fn $name:ident(&mut $me:ident $(, $arg:ident: $ty:ty)*) $(-> $out:ty)?;
        $($rest:tt)*) => {
        #[inline]
        fn $name(&mut $me $(, $arg: $ty)*) $(-> $out)? {
            target!($me $($to)?).$name($($arg),*)
        }
        forward!([$($to)?] $($rest)*);
    };
    ([$($to:ident)?] fn $name:ident(&$me:ident $(, $arg:ident: $ty:ty)*) -> $out:ty;
        $($rest:tt)*) => {
        #[inline]
        fn $name(&$me $(, $arg: $ty)*) -> $out {
            target!($me $($to)?).$name($($arg),*)
        }
        forward!([$($to)?] $($rest)*);
    };
}

/// All of [`Transport`] but `stage`, which a test may want to alter.
macro_rules! forward_transport {
    ($($to:ident)?) => {
        forward! { [$($to)?]
        fn now(&self) -> Time;
        fn initiator(&self) -> Initiator;
        fn qp_caps(&self, qp: QpId) -> Result<QpCaps, BadHandle>;
        fn sq_free(&self, qp: QpId) -> u32;
        fn ring(&mut self, qp: QpId, how: Ring) -> Result<Rung, RingError>;
        fn unstage(&mut self, qp: QpId) -> u32;
        fn post_recv(&mut self, q: RecvQueue, wrs: &[RecvWr]) -> Result<(), PostRecvError>;
        fn poll_cq(&mut self, cq: CqId, out: &mut Completions) -> Result<(), PollError>;
        fn fence(&mut self, scope: FenceScope);
        fn compute(&mut self, work: Work);
        fn copy_in(&mut self, to: Range, from: &[u8]) -> Result<(), MemError>;
        fn copy_out(&mut self, from: Range, to: &mut [u8]) -> Result<(), MemError>;
        fn supply(&mut self, to: Range, from: &[u8]) -> Result<(), MemError>;
        fn inspect(&mut self, from: Range, to: &mut [u8]) -> Result<(), MemError>;
        fn touch(&mut self, memory: MemKind, bytes: u64);
        fn copy(&mut self, to: Range, from: Range) -> Result<(), MemError>;
        fn reduce(&mut self, op: Reduce, to: Range, from: Range) -> Result<(), MemError>;
        fn load_u64(&mut self, at: Range) -> Result<u64, MemError>;
        fn store_u64(&mut self, at: Range, value: u64) -> Result<(), MemError>;
        }
    };
}

/// All of [`Control`].
macro_rules! forward_control {
    ($($to:ident)?) => {
        forward! { [$($to)?]
        fn device_caps(&self) -> &DeviceCaps;
        fn port_counters(&self) -> Option<TransportCounters>;
        fn rank(&self) -> u32;
        fn size(&self) -> u32;
        fn publish(&mut self, key: u64, bytes: &[u8]);
        fn publish_to(&mut self, peer: u32, key: u64, bytes: &[u8]);
        fn lookup(
            &mut self, peer: u32, key: u64, out: &mut [u8]
        ) -> Result<Option<usize>, LookupError>;
        fn create_pd(&mut self) -> Result<PdId, CreateError>;
        fn alloc_mr(
            &mut self, pd: PdId, len: u64, kind: MemKind, access: AccessFlags, contents: Contents
        ) -> Result<Mr, MemError>;
        fn dereg_mr(&mut self, mr: MrId) -> Result<(), BadHandle>;
        fn create_cq(&mut self, depth: u32) -> Result<CqId, CreateError>;
        fn create_srq(&mut self, pd: PdId, depth: u32) -> Result<SrqId, CreateError>;
        fn create_qp(&mut self, init: &QpInit) -> Result<QpId, CreateError>;
        fn create_ah(&mut self, pd: PdId, to: Address) -> Result<AhId, CreateError>;
        fn modify_qp(
            &mut self, qp: QpId, attr: &QpAttr, mask: QpAttrMask
        ) -> Result<u32, ModifyError>;
        fn qp_state(&self, qp: QpId) -> Result<QpState, BadHandle>;
        fn endpoint(&self, qp: QpId) -> Result<Endpoint, BadHandle>;
        fn arm_srq(&mut self, srq: SrqId, limit: u32) -> Result<(), ModifyError>;
        fn next_event(&mut self) -> Option<AsyncEvent>;
        fn watch(&mut self, range: Range) -> Result<WatchId, MemError>;
        fn share_qp(&mut self, qp: QpId, key: u64) -> Result<(), Unsupported>;
        fn attach_qp(&mut self, owner: u32, key: u64) -> Result<QpId, AttachError>;
        fn share_mr(&mut self, mr: MrId, key: u64) -> Result<(), Unsupported>;
        fn attach_mr(&mut self, owner: u32, key: u64) -> Result<Mr, AttachError>;
        fn destroy_qp(&mut self, qp: QpId) -> Result<(), BadHandle>;
        fn destroy_cq(&mut self, cq: CqId) -> Result<(), DestroyError>;
        fn destroy_srq(&mut self, srq: SrqId) -> Result<(), DestroyError>;
        fn destroy_ah(&mut self, ah: AhId) -> Result<(), DestroyError>;
        fn dealloc_pd(&mut self, pd: PdId) -> Result<(), DestroyError>;
        }
    };
}

#[cfg(test)]
pub(crate) use {forward, forward_control, forward_transport, target};

impl<T: Transport + ?Sized> Transport for &mut T {
    forward_transport!();
    forward! { []
        fn stage(&mut self, qp: QpId, wr: &SendWr<'_>) -> Result<(), StageError>;
    }
}

impl<T: Control + ?Sized> Control for &mut T {
    forward_control!();
}
