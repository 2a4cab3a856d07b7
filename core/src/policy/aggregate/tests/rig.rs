//! A handle that forges one message.

use crate::transport::*;
use crate::units::Time;
use crate::verbs::{AccessFlags, QpAttrMask, QpState};

/// What a forged message is.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Forgery {
    /// It says that it is the chunk of so many lanes before.
    Earlier(u32),
    /// It says that it is a chunk of so many lanes after.
    Later(u32),
    /// It is so many bytes short.
    Short(u32),
    /// It has an immediate that nobody knows.
    Unknown,
}

/// A handle whose work request of a number, counted from 0, is forged.
pub struct Rig<'a, T> {
    pub t: &'a mut T,
    pub forger: &'a mut Option<(u32, Forgery)>,
}

impl<T: Transport> Rig<'_, T> {
    fn forge(&mut self, qp: QpId, wr: &SendWr<'_>, how: Forgery) -> Result<(), StageError> {
        let with = |imm| match wr.op {
            SendOp::WriteImm(to, _) => SendOp::WriteImm(to, imm),
            _ => SendOp::SendImm(imm),
        };
        let imm = match wr.op {
            SendOp::WriteImm(_, imm) | SendOp::SendImm(imm) => imm,
            _ => return self.t.stage(qp, wr),
        };
        let mut short = [Sge::default()];
        let (op, data) = match how {
            Forgery::Earlier(by) => (with(imm.wrapping_sub(by) & 0x3FFF_FFFF), wr.data),
            Forgery::Later(by) => (with(imm + by), wr.data),
            Forgery::Unknown => (with(u32::MAX), wr.data),
            Forgery::Short(by) => {
                if let Data::Sge(&[sge]) = wr.data {
                    short = [Sge { len: sge.len - by.min(sge.len), ..sge }];
                }
                (wr.op, Data::Sge(&short))
            }
        };
        self.t.stage(qp, &SendWr { op, data, ..*wr })
    }
}

macro_rules! pass {
    ($(fn $name:ident(&mut self $(, $arg:ident: $ty:ty)*) $(-> $out:ty)?;)*) => {
        $(fn $name(&mut self $(, $arg: $ty)*) $(-> $out)? { self.t.$name($($arg),*) })*
    };
    (ref $(fn $name:ident(&self $(, $arg:ident: $ty:ty)*) -> $out:ty;)*) => {
        $(fn $name(&self $(, $arg: $ty)*) -> $out { self.t.$name($($arg),*) })*
    };
}

impl<T: Transport> Transport for Rig<'_, T> {
    fn stage(&mut self, qp: QpId, wr: &SendWr<'_>) -> Result<(), StageError> {
        match *self.forger {
            Some((0, how)) => {
                *self.forger = None;
                self.forge(qp, wr, how)
            }
            Some((left, how)) => {
                *self.forger = Some((left - 1, how));
                self.t.stage(qp, wr)
            }
            None => self.t.stage(qp, wr),
        }
    }

    pass! { ref
        fn now(&self) -> Time;
        fn initiator(&self) -> Initiator;
        fn qp_caps(&self, qp: QpId) -> Result<QpCaps, BadHandle>;
        fn sq_free(&self, qp: QpId) -> u32;
    }
    pass! {
        fn ring(&mut self, qp: QpId, how: Ring) -> Result<Rung, RingError>;
        fn unstage(&mut self, qp: QpId) -> u32;
        fn post_recv(&mut self, q: RecvQueue, wrs: &[RecvWr]) -> Result<(), PostRecvError>;
        fn poll_cq(&mut self, cq: CqId, out: &mut Completions) -> Result<(), PollError>;
        fn fence(&mut self, scope: FenceScope);
        fn compute(&mut self, work: Work);
        fn copy_in(&mut self, to: Range, from: &[u8]) -> Result<(), MemError>;
        fn copy_out(&mut self, from: Range, to: &mut [u8]) -> Result<(), MemError>;
        fn reduce(&mut self, op: Reduce, to: Range, from: Range) -> Result<(), MemError>;
        fn load_u64(&mut self, at: Range) -> Result<u64, MemError>;
        fn store_u64(&mut self, at: Range, value: u64) -> Result<(), MemError>;
    }
}

impl<T: Control> Control for Rig<'_, T> {
    pass! { ref
        fn device_caps(&self) -> &DeviceCaps;
        fn rank(&self) -> u32;
        fn size(&self) -> u32;
        fn qp_state(&self, qp: QpId) -> Result<QpState, BadHandle>;
        fn endpoint(&self, qp: QpId) -> Result<Endpoint, BadHandle>;
    }
    pass! {
        fn publish(&mut self, key: u64, bytes: &[u8]);
        fn lookup(&mut self, peer: u32, key: u64, out: &mut [u8])
            -> Result<Option<usize>, LookupError>;
        fn create_pd(&mut self) -> Result<PdId, CreateError>;
        fn alloc_mr(&mut self, pd: PdId, len: u64, kind: MemKind, access: AccessFlags,
            contents: Contents) -> Result<Mr, MemError>;
        fn dereg_mr(&mut self, mr: MrId) -> Result<(), BadHandle>;
        fn create_cq(&mut self, depth: u32) -> Result<CqId, CreateError>;
        fn create_srq(&mut self, pd: PdId, depth: u32) -> Result<SrqId, CreateError>;
        fn create_qp(&mut self, init: &QpInit) -> Result<QpId, CreateError>;
        fn create_ah(&mut self, pd: PdId, to: Address) -> Result<AhId, CreateError>;
        fn modify_qp(&mut self, qp: QpId, attr: &QpAttr, mask: QpAttrMask)
            -> Result<u32, ModifyError>;
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
}
