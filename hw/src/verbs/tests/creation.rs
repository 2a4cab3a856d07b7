//! Creation: what is granted, which limit refuses, what the device refuses.

use super::super::fake::{Call, Extended, Rounding};
use super::*;

/// The field, what was asked for and the limit of a refusal.
fn limit<T: std::fmt::Debug>(r: Result<T, CreateError>) -> (&'static str, u64, u64) {
    match r {
        Err(CreateError::Limit { field, got, max }) => (field, got, max),
        other => panic!("{other:?}"),
    }
}

#[test]
fn granted_sizes_are_read_back() {
    for posting in BOTH {
        for (rounding, want) in
            [(Rounding::Exact, (5, 6, 3, 60)), (Rounding::PowerOfTwo, (8, 8, 4, 64))]
        {
            let fake = FakeConfig { rounding, ..FakeConfig::default() };
            let size = QpSize { max_send_wr: 5, max_recv_wr: 6, max_send_sge: 3, max_inline: 60 };
            let mut bed = Bed::of(Spec { posting, fake, size, max_staged: 100, ..Spec::default() });
            let c = bed.t.qp_caps(bed.qp).unwrap();
            assert_eq!((c.max_send_wr, c.max_recv_wr, c.max_sge, c.max_inline), want);
            // All of it can be staged, and all of it used.
            assert_eq!(c.max_staged, want.0);
            let list = vec![bed.sge(0, 1); want.2 as usize];
            bed.t.stage(bed.qp, &request(SendOp::Send, 0, Data::Sge(&list))).unwrap();
            let bytes = vec![1; want.3 as usize];
            bed.t.stage(bed.qp, &request(SendOp::Send, 1, Data::Inline(&bytes))).unwrap();
            bed.stage(2..want.0.into());
            assert_eq!(bed.ring().map(|r| r.wqes), Ok(want.0));
            for i in 0..want.1 {
                bed.recv(i.into(), 0, 8).unwrap();
            }
            // What libibverbs cannot tell is absent.
            assert_eq!(
                (c.sq_blocks, c.bf_bytes, c.ring_choice, c.shareable),
                (None, 0, false, false)
            );
            assert!(c.ring_orders_stores && c.atomics && c.max_rd_atomic == 16);
        }
    }
}

#[test]
fn a_staging_area_has_room_for_one_at_least() {
    let mut bed = Bed::of(Spec { max_staged: 0, ..Spec::default() });
    bed.stage(0..1);
    assert_eq!(bed.t.stage(bed.qp, &send(1)), Err(StageError::StagedFull));
}

#[test]
fn limits_of_the_device_are_named_before_it_is_asked() {
    let fake = device(|d| {
        d.limits.max_qp_wr = 100;
        d.limits.max_sge = 4;
        d.limits.max_cqe = 1000;
        d.limits.max_srq_wr = 50;
    });
    let mut bed = Bed::of(Spec { fake, ..Spec::default() });
    type Set = fn(&mut QpSize, u32);
    let fields: [(&str, u32, Set); 4] = [
        ("max_send_wr", 100, |s, v| s.max_send_wr = v),
        ("max_recv_wr", 100, |s, v| s.max_recv_wr = v),
        ("max_send_sge", 4, |s, v| s.max_send_sge = v),
        ("max_inline_data", 1024, |s, v| s.max_inline = v),
    ];
    for (field, max, set) in fields {
        let mut init = bed.init();
        set(&mut init.size, max + 1);
        assert_eq!(limit(bed.t.create_qp(&init)), (field, u64::from(max) + 1, max.into()));
        set(&mut init.size, max);
        if field == "max_inline_data" {
            // No verb tells how much a device grants: it is the device that refuses.
            assert_eq!(bed.t.create_qp(&init), Err(CreateError::Os(libc::EINVAL)));
            set(&mut init.size, 512);
        }
        let qp = bed.t.create_qp(&init).unwrap_or_else(|e| panic!("{field}: {e}"));
        bed.t.destroy_qp(qp).unwrap();
    }
    let none = QpInit { size: QpSize { max_send_wr: 0, ..bed.init().size }, ..bed.init() };
    assert_eq!(limit(bed.t.create_qp(&none)), ("max_send_wr", 0, 100));
    assert_eq!(limit(bed.t.create_cq(0)), ("cqe", 0, 1000));
    assert_eq!(limit(bed.t.create_cq(1001)), ("cqe", 1001, 1000));
    assert_eq!(limit(bed.t.create_srq(bed.pd, 0)), ("max_wr", 0, 50));
    assert_eq!(limit(bed.t.create_srq(bed.pd, 51)), ("max_wr", 51, 50));
    bed.t.create_cq(1000).unwrap();
    bed.t.create_srq(bed.pd, 50).unwrap();
}

#[test]
fn numbers_of_objects_are_limited_and_named() {
    let fake = device(|d| {
        d.limits.max_qp = 2;
        d.limits.max_cq = 3;
        d.limits.max_mr = 2;
    });
    let mut bed = Bed::of(Spec { fake, ..Spec::default() });
    bed.t.create_qp(&bed.init()).unwrap();
    assert_eq!(limit(bed.t.create_qp(&bed.init())), ("max_qp", 3, 2));
    bed.t.create_cq(4).unwrap();
    let refused = bed.t.create_cq(4);
    assert_eq!(limit(refused), ("max_cq", 4, 3));
    let said = refused.unwrap_err().to_string();
    assert_eq!(said, "max_cq = 4, the device allows 1 to 3");
    let alloc = |bed: &mut Bed| bed.t.alloc_mr(bed.pd, 8, HOST, ALL_RIGHTS, Contents::Data);
    let mr = alloc(&mut bed).unwrap();
    assert_eq!(alloc(&mut bed), Err(MemError::NoMemory { max: 2 }));
    bed.t.dereg_mr(mr.id).unwrap();
    alloc(&mut bed).unwrap();
}

#[test]
fn what_the_device_refuses_is_told_and_leaves_nothing() {
    let mut bed = Bed::new(Posting::Classic);
    let before = bed.fake.live();
    let os = CreateError::Os(libc::EIO);
    for call in [Call::AllocPd, Call::CreateCq, Call::CreateSrq, Call::CreateQp, Call::CreateAh] {
        bed.fake.fail_call(call, 0, libc::EIO);
        let refused = match call {
            Call::AllocPd => bed.t.create_pd().map(drop),
            Call::CreateCq => bed.t.create_cq(4).map(drop),
            Call::CreateSrq => bed.t.create_srq(bed.pd, 4).map(drop),
            Call::CreateQp => bed.t.create_qp(&bed.init()).map(drop),
            _ => bed.t.create_ah(bed.pd, Address::default()).map(drop),
        };
        assert_eq!(refused, Err(os), "{call:?}");
    }
    assert_eq!(bed.fake.live(), before);
    let srq = bed.t.create_srq(bed.pd, 4).unwrap();
    bed.fake.fail_call(Call::ModifySrq, 0, libc::EIO);
    assert_eq!(bed.t.arm_srq(srq, 1), Err(ModifyError::Os(libc::EIO)));
}

#[test]
fn a_handle_needs_a_completion_channel() {
    let fake = Fake::new(FakeConfig::default());
    fake.fail_call(Call::CreateChannel, 0, libc::EMFILE);
    let device = Device::open(&fake.provider(), &OpenConfig::default()).unwrap();
    let bootstrap = Box::new(local::group(1).remove(0));
    let refused = HwTransport::new(device, HwConfig::default(), bootstrap);
    assert_eq!(refused.unwrap_err().0, libc::EMFILE);
    fake.assert_clean();
}

#[test]
fn extended_posting_needs_extended_verbs() {
    for (extended, works) in [
        (Extended::Full, true),
        (Extended::NoQueryPort, true),
        (Extended::NoCreateQp, false),
        (Extended::Absent, false),
    ] {
        let fake = Fake::new(FakeConfig { extended, ..FakeConfig::default() });
        let _clean = Clean(Some(fake.clone()));
        for posting in BOTH {
            let config = HwConfig { posting, ..HwConfig::default() };
            let mut t = open(&fake, config, local::group(1).remove(0));
            let (pd, cq) = (t.create_pd().unwrap(), t.create_cq(4).unwrap());
            let init = QpInit {
                ty: QpType::Rc,
                pd,
                send_cq: cq,
                recv_cq: cq,
                srq: None,
                size: Spec::default().size,
                sq_sig_all: false,
                queue_memory: HOST,
            };
            let made = t.create_qp(&init).map(drop);
            let refused = Err(CreateError::Os(libc::EOPNOTSUPP));
            let fine = works || posting == Posting::Classic;
            assert_eq!(made, if fine { Ok(()) } else { refused }, "{extended:?} {posting:?}");
        }
    }
}

#[test]
fn what_this_back_end_lacks_is_refused_with_a_reason() {
    let mut bed = Bed::new(Posting::Classic);
    let gpu = MemKind::Gpu { gpu: 0 };
    let init = QpInit { queue_memory: gpu, ..bed.init() };
    let refused = bed.t.create_qp(&init);
    assert!(matches!(refused, Err(CreateError::Unsupported(u)) if u.capability == "GPU memory"));
    let (pd, rights) = (bed.pd, AccessFlags::LOCAL_WRITE);
    let mr = bed.t.alloc_mr(pd, 64, gpu, rights, Contents::Data);
    assert!(matches!(mr, Err(MemError::Unsupported(u)) if u.capability == "GPU memory"));
    let mr = bed.t.alloc_mr(pd, 64, HOST, rights, Contents::Virtual);
    assert!(matches!(mr, Err(MemError::Unsupported(u)) if u.capability == "a virtual region"));
    assert!(bed.t.share_qp(bed.qp, 1).is_err() && bed.t.share_mr(bed.mr.id, 1).is_err());
    assert!(matches!(bed.t.attach_qp(1, 1), Err(AttachError::Unsupported(_))));
    assert!(matches!(bed.t.attach_mr(1, 1), Err(AttachError::Unsupported(_))));
}
