//! Work requests of which most fields stay.

use crate::transport::{Data, Mr, SendOp, SendWr, Sge};
use crate::verbs::SendFlags;

/// A work request made once, of which each use sets the number, the place and the length.
///
/// ```
/// use doorbell_core::noop::NoOp;
/// use doorbell_core::policy::WrTemplate;
/// use doorbell_core::transport::*;
/// use doorbell_core::verbs::{Lkey, Rkey, SendFlags};
///
/// let mr = NoOp::mr(0x1000, 4096);
/// let to = SendOp::Write(Remote { addr: 0x8000, rkey: Rkey(9) });
/// let mut template = WrTemplate::new(to, &mr, SendFlags::empty());
/// let wr = template.wr(7, 64, 32, 128).unwrap();
/// assert_eq!(wr.op, SendOp::Write(Remote { addr: 0x8080, rkey: Rkey(9) }));
/// assert_eq!(wr.data, Data::Sge(&[Sge { addr: 0x1040, len: 32, lkey: Lkey(1) }]));
/// assert!(template.wr(8, 4096, 1, 0).is_none(), "outside the region");
/// ```
#[derive(Clone, Debug)]
pub struct WrTemplate {
    op: SendOp,
    remote: u64,
    addr: u64,
    len: u64,
    sge: [Sge; 1],
    flags: SendFlags,
}

impl WrTemplate {
    /// A template for `op` from or into `mr`. The remote address of `op` is where the peer's
    /// memory begins.
    pub fn new(op: SendOp, mr: &Mr, flags: SendFlags) -> Self {
        let remote = op.remote().unwrap_or_default().addr;
        let sge = [Sge { addr: mr.addr, len: 0, lkey: mr.lkey }];
        Self { op, remote, addr: mr.addr, len: mr.len, sge, flags }
    }

    /// `len` bytes at `offset` of the own region, towards `remote` bytes behind the start of the
    /// peer's. `None` when the bytes do not lie in the own region.
    #[inline]
    pub fn wr(&mut self, wr_id: u64, offset: u64, len: u32, remote: u64) -> Option<SendWr<'_>> {
        if offset.checked_add(u64::from(len))? > self.len {
            return None;
        }
        self.sge[0].addr = self.addr + offset;
        self.sge[0].len = len;
        self.aim(remote);
        let (op, flags) = (self.op, self.flags);
        Some(SendWr { wr_id, op, data: Data::Sge(&self.sge), flags, dest: None })
    }

    /// The same with bytes that are copied into the WQE.
    #[inline]
    pub fn inline<'a>(&mut self, wr_id: u64, bytes: &'a [u8], remote: u64) -> SendWr<'a> {
        self.aim(remote);
        let (op, flags) = (self.op, self.flags);
        SendWr { wr_id, op, data: Data::Inline(bytes), flags, dest: None }
    }

    #[inline]
    fn aim(&mut self, offset: u64) {
        if let Some(remote) = self.op.remote_mut() {
            remote.addr = self.remote.wrapping_add(offset);
        }
    }

    /// Sets the flags of the next uses.
    #[inline]
    pub const fn set_flags(&mut self, flags: SendFlags) {
        self.flags = flags;
    }

    /// Sets the immediate data of the next uses, where the operation has any.
    #[inline]
    pub const fn set_imm(&mut self, value: u32) {
        if let SendOp::SendImm(imm) | SendOp::WriteImm(_, imm) = &mut self.op {
            *imm = value;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::noop::NoOp;
    use crate::transport::Remote;
    use crate::verbs::Rkey;
    use proptest::prelude::*;

    fn mr(len: u64) -> Mr {
        NoOp::mr(0x1000, len)
    }

    #[test]
    fn only_what_is_said_changes() {
        let remote = Remote { addr: 0x8000, rkey: Rkey(9) };
        let mut t = WrTemplate::new(SendOp::WriteImm(remote, 1), &mr(64), SendFlags::SIGNALED);
        t.set_imm(5);
        t.set_flags(SendFlags::FENCE);
        let wr = t.wr(3, 32, 32, 8).unwrap();
        assert_eq!(wr.op, SendOp::WriteImm(Remote { addr: 0x8008, rkey: Rkey(9) }, 5));
        assert_eq!((wr.wr_id, wr.flags, wr.data.len()), (3, SendFlags::FENCE, 32));
        let add = SendOp::FetchAdd { remote, add: 2 };
        let mut t = WrTemplate::new(add, &mr(8), SendFlags::empty());
        t.set_imm(5);
        let at = Remote { addr: 0x8010, rkey: Rkey(9) };
        assert_eq!(t.wr(0, 0, 8, 16).unwrap().op, SendOp::FetchAdd { remote: at, add: 2 });
        let mut t = WrTemplate::new(SendOp::Send, &mr(8), SendFlags::empty());
        assert_eq!(t.inline(1, b"abc", 99).op, SendOp::Send);
    }

    #[test]
    fn both_sides_of_the_region() {
        let mut t = WrTemplate::new(SendOp::Send, &mr(64), SendFlags::empty());
        assert!(t.wr(0, 0, 64, 0).is_some() && t.wr(0, 64, 0, 0).is_some());
        assert!(t.wr(0, 0, 65, 0).is_none() && t.wr(0, u64::MAX, 1, 0).is_none());
    }

    proptest! {
        /// What a template gives is what one would write by hand, or lies outside of the region.
        #[test]
        fn a_template_is_the_work_request_written_by_hand(
            (len, offset) in (0..5000_u64, 0..6000_u64), bytes in 0..5000_u32, to: u32, wr_id: u64
        ) {
            let (region, remote) = (mr(len), Remote { addr: 0x8000, rkey: Rkey(9) });
            let mut t = WrTemplate::new(SendOp::Read(remote), &region, SendFlags::SOLICITED);
            let there = Remote { addr: 0x8000 + u64::from(to), ..remote };
            match (t.wr(wr_id, offset, bytes, to.into()), region.sge(offset, bytes)) {
                (Some(wr), Some(sge)) => {
                    let list = [sge];
                    let (op, data) = (SendOp::Read(there), Data::Sge(&list));
                    let flags = SendFlags::SOLICITED;
                    prop_assert_eq!(wr, SendWr { wr_id, op, data, flags, dest: None });
                }
                (None, None) => {}
                (wr, sge) => prop_assert!(false, "{:?} and {:?}", wr, sge),
            }
        }
    }
}
