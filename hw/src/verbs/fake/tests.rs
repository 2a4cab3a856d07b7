//! The fake through the owned objects and the inline functions, as the back end uses it.

use core::mem::{MaybeUninit, zeroed};
use core::ptr;
use std::sync::Arc;

use doorbell_core::verbs::{QpState, SendFlags, WcStatus, WrOpcode};

use super::*;
use crate::verbs::objects::{Ah, Channel, Context, Cq, Errno, Pd, Posting, Qp, QpParts, Srq};
use crate::verbs::sys::*;

mod events;
mod posts;
mod receives;

const RC: u32 = ibv_qp_type::IBV_QPT_RC;
const UD: u32 = ibv_qp_type::IBV_QPT_UD;
const SIGNALED: u32 = SendFlags::SIGNALED.bits();

fn open(fake: &Fake) -> Result<Arc<Context>, Errno> {
    let (list, n) = fake.get_device_list();
    assert!(n > 0);
    // SAFETY: the first device of a list that is freed afterwards.
    unsafe {
        let context = Context::open(fake.provider(), *list);
        fake.free_device_list(list);
        context
    }
}

/// A QP with its queues; dropped in the right order.
struct Bed {
    fake: Fake,
    qp: Qp,
}

impl Bed {
    fn new(config: FakeConfig, posting: Posting) -> Self {
        Self::on(Fake::new(config), posting, RC, false)
    }

    fn on(fake: Fake, posting: Posting, ty: u32, with_srq: bool) -> Self {
        Self::sized(fake, posting, ty, with_srq, 16)
    }

    fn sized(fake: Fake, posting: Posting, ty: u32, with_srq: bool, cqes: i32) -> Self {
        let context = open(&fake).unwrap();
        let pd = Pd::alloc(&context).unwrap();
        let channel = Channel::create(&context).unwrap();
        let cq = Cq::create(&channel, cqes).unwrap();
        let srq = with_srq.then(|| {
            let mut sizes = ibv_srq_attr { max_wr: 8, max_sge: 1, srq_limit: 0 };
            Srq::create(&pd, &mut sizes).unwrap()
        });
        let cap = ibv_qp_cap {
            max_send_wr: 5,
            max_recv_wr: 5,
            max_send_sge: 2,
            max_recv_sge: 2,
            max_inline_data: 60,
        };
        let (send_cq, recv_cq) = (cq.clone(), cq);
        let parts = QpParts {
            pd,
            send_cq,
            recv_cq,
            srq,
            ty,
            cap,
            sq_sig_all: false,
            atomics: true,
            posting,
        };
        Self { fake, qp: Qp::create(parts).unwrap() }
    }

    fn rts(self) -> Self {
        for to in [QpState::Init, QpState::Rtr, QpState::Rts] {
            self.modify(to).unwrap();
        }
        self
    }

    /// To the state, with exactly the attributes that it needs.
    fn modify(&self, to: QpState) -> Result<(), Errno> {
        let from = self.fake.state(self.qp.num());
        let mask = doorbell_core::verbs::required(doorbell_core::verbs::QpType::Rc, from, to);
        self.modify_with(to, mask.map_or(1, |m| m.bits()))
    }

    fn modify_with(&self, to: QpState, mask: u32) -> Result<(), Errno> {
        // SAFETY: all-zero is a valid value of this C structure.
        let mut attr: ibv_qp_attr = unsafe { zeroed() };
        attr.qp_state = to.value().into();
        attr.port_num = 1;
        attr.path_mtu = ibv_mtu::IBV_MTU_1024;
        attr.ah_attr.port_num = 1;
        attr.ah_attr.is_global = 1;
        attr.ah_attr.grh.sgid_index = 3;
        attr.dest_qp_num = 77;
        self.qp.modify(&mut attr, ibv_qp_attr_mask(mask))
    }

    fn num(&self) -> u32 {
        self.qp.num()
    }

    fn reg(&self, memory: *mut [u8]) -> Mr<'_> {
        let pd = &self.qp.parts().pd;
        // SAFETY: the memory outlives the region in every test.
        let mr = unsafe { self.fake.reg_mr(pd.as_ptr(), memory.cast(), memory.len(), 7) };
        assert!(!mr.is_null());
        Mr { fake: &self.fake, mr }
    }

    /// Polls everything: id, status, opcode, length.
    fn poll(&self) -> Vec<(u64, u32, u32, u32)> {
        let mut wcs = [const { MaybeUninit::<ibv_wc>::uninit() }; 32];
        let cq = self.qp.parts().send_cq.as_ptr();
        // SAFETY: the queue is alive, and there is room for 32.
        let n = unsafe { ibv_poll_cq(cq, 32, wcs.as_mut_ptr().cast()) };
        let n = usize::try_from(n).expect("the queue works");
        wcs[..n]
            .iter()
            .map(|wc| {
                // SAFETY: the first `n` were written.
                let wc = unsafe { wc.assume_init_ref() };
                assert_eq!(wc.qp_num, self.num());
                (wc.wr_id, wc.status, wc.opcode, wc.byte_len)
            })
            .collect()
    }
}

/// A region that is given back before its PD.
struct Mr<'a> {
    fake: &'a Fake,
    mr: *mut ibv_mr,
}

impl Mr<'_> {
    fn sge(&self, offset: u64, length: u32) -> ibv_sge {
        // SAFETY: alive until dropped.
        let (addr, lkey) = unsafe { ((*self.mr).addr, (*self.mr).lkey) };
        ibv_sge { addr: addr.expose_provenance() as u64 + offset, length, lkey }
    }
}

impl Drop for Mr<'_> {
    fn drop(&mut self) {
        // SAFETY: made in `reg`, given back once.
        assert_eq!(unsafe { self.fake.dereg_mr(self.mr) }, 0);
    }
}

#[test]
fn a_device_without_rdma_an_empty_list_and_a_device_without_permission() {
    let fake = |f: fn(&mut FakeConfig)| {
        let mut config = FakeConfig::default();
        f(&mut config);
        Fake::new(config)
    };
    let none = fake(|c| c.list_errno = Some(libc::ENOSYS));
    assert!(none.get_device_list().0.is_null());
    assert_eq!(errno(), libc::ENOSYS);
    let empty = fake(|c| c.devices.clear());
    let (list, n) = empty.get_device_list();
    assert!(!list.is_null() && n == 0);
    // SAFETY: made above, freed once; the terminator is there even in an empty list.
    unsafe {
        assert!((*list).is_null());
        empty.free_device_list(list);
    }
    let closed = fake(|c| c.open_errno = Some(libc::EACCES));
    assert_eq!(open(&closed).unwrap_err(), Errno(libc::EACCES));
    [none, empty, closed].iter().for_each(Fake::assert_clean);
}

#[test]
fn device_port_and_gids_are_those_of_the_configuration() {
    let fake = Fake::new(FakeConfig::default());
    let context = open(&fake).unwrap();
    // SAFETY: an open context, and room for the answers; all-zero is a valid attribute.
    unsafe {
        let mut attr: ibv_device_attr = zeroed();
        assert_eq!(fake.query_device(context.as_ptr(), &raw mut attr), 0);
        assert_eq!((attr.max_sge, attr.phys_port_cnt), (30, 1));
        let mut port: ibv_port_attr = zeroed();
        assert_eq!(query_port(context.as_ptr(), 1, &mut port), 0);
        assert_eq!((port.state, port.active_mtu, port.link_layer), (4, 5, 2));
        assert_eq!(query_port(context.as_ptr(), 2, &mut port), libc::EINVAL);
        let mut gids = [const { MaybeUninit::<ibv_gid_entry>::uninit() }; 4];
        assert_eq!(fake.query_gid_table(context.as_ptr(), &mut gids[..3]), -22);
        assert_eq!(fake.query_gid_table(context.as_ptr(), &mut gids), 4);
        let last = gids[3].assume_init_ref();
        assert_eq!(
            (last.gid_index, last.gid_type, last.gid.raw[12..].to_vec()),
            (3, 2, vec![10, 0, 0, 1])
        );
    }
    drop(context);
    fake.assert_clean();
}

#[test]
fn extended_verbs_are_there_old_or_absent() {
    let creates = |extended| {
        let fake = Fake::new(FakeConfig { extended, ..FakeConfig::default() });
        let context = open(&fake).unwrap();
        // SAFETY: an open context; the attributes are refused before they are used.
        let errno = unsafe {
            let mut attr: ibv_qp_init_attr_ex = zeroed();
            assert!(create_qp_ex(context.as_ptr(), &raw mut attr).is_null());
            errno()
        };
        // SAFETY: an open context.
        (errno, unsafe { sys_extended(&context) })
    };
    // EINVAL: the operation ran and missed the PD.
    assert_eq!(creates(Extended::Full), (libc::EINVAL, true));
    assert_eq!(creates(Extended::NoQueryPort), (libc::EINVAL, true));
    assert_eq!(creates(Extended::NoCreateQp), (libc::EOPNOTSUPP, true));
    assert_eq!(creates(Extended::Absent), (libc::EOPNOTSUPP, false));
}

/// # Safety
/// An open context.
unsafe fn sys_extended(context: &Context) -> bool {
    // SAFETY: the caller's promise.
    unsafe { extended(context.as_ptr()).is_some() }
}

#[test]
fn the_wrong_order_and_the_second_destroy_are_recorded() {
    let fake = Fake::new(FakeConfig::default());
    let context = open(&fake).unwrap();
    // SAFETY: the pointers are this provider's; the wrong calls are what is tested, and the fake
    // does not follow a pointer that it does not know.
    unsafe {
        let pd = fake.alloc_pd(context.as_ptr());
        let mut bytes = [0_u8; 8];
        let mr = fake.reg_mr(pd, bytes.as_mut_ptr().cast(), 8, 1);
        assert_eq!(fake.dealloc_pd(pd), libc::EBUSY);
        assert_eq!(fake.close_device(context.as_ptr()), libc::EBUSY);
        assert_eq!(fake.dereg_mr(mr), 0);
        assert_eq!(fake.dereg_mr(mr), libc::EINVAL);
        assert_eq!(fake.live(), Live { contexts: 1, pds: 1, ..Live::default() });
        assert_eq!(fake.dealloc_pd(pd), 0);
    }
    drop(context);
    assert_eq!(fake.live(), Live::default());
    let expected = [
        Violation::ChildrenAlive { call: "dealloc_pd", children: 1 },
        Violation::ChildrenAlive { call: "close_device", children: 1 },
        Violation::NotAlive { call: "dereg_mr" },
    ];
    assert_eq!(fake.violations(), expected);
}

#[test]
fn memlock_limits_the_sum_of_what_is_registered() {
    let bed = Bed::new(FakeConfig { memlock: Some(96), ..FakeConfig::default() }, Posting::Classic);
    let mut a = [0_u8; 64];
    let mut b = [0_u8; 33];
    let first = bed.reg(&raw mut a);
    let pd = bed.qp.parts().pd.as_ptr();
    let at = b.as_mut_ptr().cast();
    // SAFETY: the memory is alive.
    unsafe {
        assert!(bed.fake.reg_mr(pd, at, 33, 1).is_null());
        assert_eq!(errno(), libc::ENOMEM);
        let second = bed.fake.reg_mr(pd, at, 32, 1);
        assert_eq!(bed.fake.locked_bytes(), 96);
        assert_eq!(bed.fake.dereg_mr(second), 0);
        // REMOTE_WRITE without LOCAL_WRITE.
        assert!(bed.fake.reg_mr(pd, at, 32, 2).is_null());
        assert_eq!(errno(), libc::EINVAL);
    }
    drop(first);
    let fake = bed.fake.clone();
    drop(bed);
    fake.assert_clean();
}

#[test]
fn sizes_are_granted_exactly_or_rounded_up() {
    let granted = |rounding| {
        let bed = Bed::new(FakeConfig { rounding, ..FakeConfig::default() }, Posting::Classic);
        let cap = bed.qp.cap();
        (cap.max_send_wr, cap.max_inline_data, bed.qp.parts().send_cq.granted())
    };
    assert_eq!(granted(Rounding::Exact), (5, 60, 16));
    assert_eq!(granted(Rounding::PowerOfTwo), (8, 64, 16));
}

#[test]
fn a_modify_needs_the_exact_mask_and_an_entry_of_the_gid_table() {
    let config = FakeConfig { errno_sign: ErrnoSign::Negative, ..FakeConfig::default() };
    let bed = Bed::new(config, Posting::Classic);
    assert_eq!(bed.modify(QpState::Rtr), Err(Errno(libc::EINVAL)));
    assert_eq!(bed.modify_with(QpState::Init, 1), Err(Errno(libc::EINVAL)));
    assert_eq!(bed.modify(QpState::Init), Ok(()));
    assert_eq!(bed.qp.query_state(), Ok(1));
    let rtr = doorbell_core::verbs::required(
        doorbell_core::verbs::QpType::Rc,
        QpState::Init,
        QpState::Rtr,
    );
    let rtr = rtr.unwrap().bits();
    assert_eq!(bed.modify_with(QpState::Rtr, rtr | 1 << 9), Err(Errno(libc::EINVAL)));
    assert_eq!(bed.modify_with(QpState::Rtr, rtr), Ok(()));
    let errnos: Vec<i32> = bed.fake.modifies(bed.num()).iter().map(|m| m.errno).collect();
    assert_eq!(errnos, [22, 22, 0, 22, 0]);
    assert_eq!(bed.fake.attr(bed.num()).dest_qp_num, 77);
    assert_eq!(bed.fake.state(bed.num()), QpState::Rtr);
}

#[test]
fn ordered_failures_come_once_and_in_their_turn() {
    let fake = Fake::new(FakeConfig::default());
    let context = open(&fake).unwrap();
    fake.fail_call(Call::AllocPd, 1, libc::ENOMEM);
    let first = Pd::alloc(&context).unwrap();
    assert_eq!(Pd::alloc(&context).unwrap_err(), Errno(libc::ENOMEM));
    let third = Pd::alloc(&context).unwrap();
    drop((first, third, context));
    fake.assert_clean();
}
