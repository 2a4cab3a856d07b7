//! Work requests as the provider sees them, classic and extended from one table.

use super::super::fake::{Remote as Seen, UdTarget};
use super::*;

const TO: Remote = Remote { addr: 0x1234_5678_9ABC_DEF0, rkey: Rkey(0xCAFE) };

/// Fills in what an operation adds.
type More = fn(&mut SentWr);

/// Every operation, and what the provider must see beside data and flags.
fn operations() -> Vec<(SendOp, More)> {
    vec![
        (SendOp::Send, |_| ()),
        (SendOp::SendImm(0x0102_0304), |wr| wr.imm = Some(0x0102_0304)),
        (SendOp::SendInv(Rkey(0xBEEF)), |wr| wr.invalidate = Some(0xBEEF)),
        (SendOp::Write(TO), |wr| wr.remote = Some(Seen { addr: TO.addr, rkey: TO.rkey.0 })),
        (SendOp::WriteImm(TO, 0x0102_0304), |wr| {
            wr.remote = Some(Seen { addr: TO.addr, rkey: TO.rkey.0 });
            wr.imm = Some(0x0102_0304);
        }),
        (SendOp::Read(TO), |wr| wr.remote = Some(Seen { addr: TO.addr, rkey: TO.rkey.0 })),
        (SendOp::CmpSwap { remote: TO, compare: u64::MAX, swap: 5 }, |wr| {
            wr.remote = Some(Seen { addr: TO.addr, rkey: TO.rkey.0 });
            wr.atomic = Some((u64::MAX, 5));
        }),
        (SendOp::FetchAdd { remote: TO, add: 1 << 63 }, |wr| {
            wr.remote = Some(Seen { addr: TO.addr, rkey: TO.rkey.0 });
            wr.atomic = Some((1 << 63, 0));
        }),
    ]
}

/// What the provider must see of a request at the first position.
fn expected(wr: &SendWr<'_>, more: More) -> SentWr {
    let mut seen = SentWr {
        wr_id: 0,
        opcode: wr.op.opcode(),
        flags: wr.flags,
        sges: vec![],
        inline: None,
        remote: None,
        imm: None,
        invalidate: None,
        atomic: None,
        ud: None,
    };
    match wr.data {
        Data::Sge(list) => seen.sges = list.to_vec(),
        Data::Inline(bytes) => seen.inline = Some(bytes.to_vec()),
    }
    more(&mut seen);
    seen
}

/// Apart from the flag that follows from the data.
fn without_inline(mut wr: SentWr) -> SentWr {
    wr.flags -= SendFlags::INLINE;
    wr
}

#[test]
fn every_operation_with_every_shape_of_data() {
    for posting in BOTH {
        let mut bed = Bed::new(posting);
        let sges = [bed.sge(0, 8), bed.sge(100, 0), bed.sge(4000, 96)];
        let mut want = vec![];
        for (op, more) in operations() {
            let mut shapes: Vec<Data<'_>> = (0..=3).map(|n| Data::Sge(&sges[..n])).collect();
            if op.opcode().may_be_inline() {
                shapes.extend([&b""[..], b"x", &[7; 64]].map(Data::Inline));
            }
            for data in shapes {
                let wr = request(op, 0, data);
                bed.t.stage(bed.qp, &wr).unwrap_or_else(|e| panic!("{op:?}: {e}"));
                assert_eq!(bed.ring().map(|r| r.wqes), Ok(1));
                want.push(SentWr { wr_id: want.len() as u64, ..expected(&wr, more) });
                bed.fake.complete(bed.qpn(), 1);
                assert_eq!(bed.sent().len(), 1);
            }
        }
        let seen = bed.seen();
        assert_eq!(seen.len(), want.len());
        for (seen, want) in seen.into_iter().zip(want) {
            // rxe wants the flag with extended verbs too, whose setter says it already.
            assert_eq!(
                seen.flags.contains(SendFlags::INLINE),
                want.inline.is_some(),
                "{posting:?}"
            );
            assert_eq!(without_inline(seen), want, "{posting:?}");
        }
    }
}

#[test]
fn flags_are_those_of_the_request_and_sig_all_adds_one() {
    for posting in BOTH {
        for sig_all in [false, true] {
            let mut bed = Bed::of(Spec { posting, sig_all, ..Spec::default() });
            let mut want = vec![];
            // INLINE follows from the data and not from what the caller says.
            let some = [SendFlags::SIGNALED, SendFlags::FENCE, SendFlags::SOLICITED];
            for (i, flags) in some.into_iter().chain([SendFlags::INLINE]).enumerate() {
                let list = [bed.sge(0, 8)];
                let wr = SendWr { flags, ..request(SendOp::Send, i as u64, Data::Sge(&list)) };
                bed.t.stage(bed.qp, &wr).unwrap();
                let forced = if sig_all { SendFlags::SIGNALED } else { SendFlags::empty() };
                want.push((flags - SendFlags::INLINE) | forced);
            }
            bed.ring().unwrap();
            let seen: Vec<_> = bed.seen().iter().map(|wr| wr.flags).collect();
            assert_eq!(seen, want, "{posting:?} {sig_all}");
            let signalled = if sig_all { 4 } else { 1 };
            bed.fake.complete(bed.qpn(), 4);
            assert_eq!(bed.sent().len(), signalled);
        }
    }
}

#[test]
fn datagrams_carry_their_destination() {
    for posting in BOTH {
        let mut bed = Bed::of(Spec { posting, ty: QpType::Ud, ..Spec::default() });
        let to = Address { lid: 3, gid: [9; 16], ..Address::default() };
        let ahs = [0, 1].map(|_| bed.t.create_ah(bed.pd, to).unwrap());
        let list = [bed.sge(0, 8)];
        for (i, ah) in (0..).zip(ahs) {
            let dest = Some(UdDest { ah, qpn: Qpn::new(0x10 + i), qkey: QKey(0x20 + i) });
            let op = if i == 0 { SendOp::Send } else { SendOp::SendImm(5) };
            let wr = SendWr { dest, ..request(op, i.into(), Data::Sge(&list)) };
            bed.t.stage(bed.qp, &wr).unwrap();
        }
        bed.ring().unwrap();
        let targets: Vec<UdTarget> = bed.seen().iter().map(|wr| wr.ud.unwrap()).collect();
        let numbers: Vec<_> = targets.iter().map(|ud| (ud.qpn, ud.qkey)).collect();
        assert_eq!(numbers, [(0x10, 0x20), (0x11, 0x21)], "{posting:?}");
        assert_ne!(targets[0].ah, targets[1].ah);
        let av = bed.fake.ah(targets[1].ah).unwrap();
        // SAFETY: every bit pattern is a valid value of each member of the union.
        assert_eq!((av.dlid, unsafe { av.grh.dgid.raw }), (3, [9; 16]));
        assert_eq!(bed.seen()[1].imm, Some(5));
    }
}

#[test]
fn what_the_service_or_the_device_lacks_never_reaches_the_provider() {
    for posting in BOTH {
        let refuses = |bed: &mut Bed, wr: SendWr<'_>, why: &str| match bed.t.stage(bed.qp, &wr) {
            Err(StageError::Unsupported(u)) => assert!(u.to_string().contains(why), "{u}"),
            other => panic!("{wr:?}: {other:?}"),
        };
        let mut bed = Bed::new(posting);
        let list = [bed.sge(0, 8)];
        refuses(&mut bed, request(SendOp::Read(TO), 1, Data::Inline(b"8")), "no inline form");
        let ah = bed.t.create_ah(bed.pd, Address::default()).unwrap();
        let dest = Some(UdDest { ah, qpn: Qpn::new(1), qkey: QKey(1) });
        refuses(&mut bed, SendWr { dest, ..send(1) }, "belongs to datagrams");
        let mut ud = Bed::of(Spec { posting, ty: QpType::Ud, ..Spec::default() });
        refuses(&mut ud, send(1), "belongs to datagrams");
        refuses(&mut ud, request(SendOp::Write(TO), 1, Data::Sge(&[])), "QP of this type");
        let fake = device(|d| d.atomics = false);
        let mut bare = Bed::of(Spec { posting, fake, ..Spec::default() });
        assert!(!bare.t.qp_caps(bare.qp).unwrap().atomics);
        let add = SendOp::FetchAdd { remote: TO, add: 1 };
        let swap = SendOp::CmpSwap { remote: TO, compare: 1, swap: 2 };
        for op in [add, swap] {
            refuses(&mut bare, request(op, 1, Data::Sge(&list)), "no ATOMICs");
        }
        for bed in [bed, ud, bare] {
            assert_eq!(bed.fake.counts(bed.qpn()).send_calls, 0);
            assert_eq!(bed.t.sq_free(bed.qp), 8);
        }
    }
}

#[test]
fn sizes_at_both_sides_of_what_was_granted() {
    for posting in BOTH {
        let mut bed = Bed::new(posting);
        let list = [bed.sge(0, 8); 4];
        let many = StageError::TooManySge { got: 4, max: 3 };
        assert_eq!(bed.t.stage(bed.qp, &request(SendOp::Send, 1, Data::Sge(&list))), Err(many));
        let long = StageError::InlineTooLong { got: 65, max: 64 };
        let wr = request(SendOp::Send, 1, Data::Inline(&[1; 65]));
        assert_eq!(bed.t.stage(bed.qp, &wr), Err(long));
        // The fake's port takes 2^31 bytes: two elements make one byte too many.
        let half = |len| Sge { addr: 0x1000, len, lkey: Lkey(1) };
        let over = [half(1 << 30), half((1 << 30) + 1)];
        let max = 1 << 31;
        let got = u64::from(max) + 1;
        let wr = request(SendOp::Write(TO), 1, Data::Sge(&over));
        assert_eq!(bed.t.stage(bed.qp, &wr), Err(StageError::TooLong { got, max }));
        let most = [half(1 << 30), half(1 << 30)];
        bed.t.stage(bed.qp, &request(SendOp::Write(TO), 1, Data::Sge(&most))).unwrap();
        let mut ud = Bed::of(Spec { posting, ty: QpType::Ud, ..Spec::default() });
        let ah = ud.t.create_ah(ud.pd, Address::default()).unwrap();
        let dest = Some(UdDest { ah, qpn: Qpn::new(1), qkey: QKey(1) });
        for (len, fits) in [(4096, true), (4097, false)] {
            let list = [half(len)];
            let wr = SendWr { dest, ..request(SendOp::Send, 1, Data::Sge(&list)) };
            let too_long = Err(StageError::TooLong { got: len.into(), max: 4096 });
            assert_eq!(ud.t.stage(ud.qp, &wr), if fits { Ok(()) } else { too_long });
        }
    }
}
