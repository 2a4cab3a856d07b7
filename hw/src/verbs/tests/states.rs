//! The state machine: what never reaches the provider, and what the device knows better.

use super::super::fake::{Call, ErrnoSign};
use super::*;

/// What a mask may name and the trait has no field for.
const NO_FIELD: QpAttrMask = QpAttrMask::ALT_PATH
    .union(QpAttrMask::PATH_MIG_STATE)
    .union(QpAttrMask::CAP)
    .union(QpAttrMask::RATE_LIMIT)
    .union(QpAttrMask::EN_SQD_ASYNC_NOTIFY);

/// A bed in `state`; `None` where the type lacks it.
fn bed_in(ty: QpType, state: QpState) -> Option<Bed> {
    let mut bed = Bed::reset(Spec { ty, ..Spec::default() });
    let way: &[QpState] = match state {
        QpState::Reset => &[],
        QpState::Init => &[QpState::Init],
        QpState::Rtr => &[QpState::Init, QpState::Rtr],
        QpState::Rts | QpState::Sqe => &[QpState::Init, QpState::Rtr, QpState::Rts],
        QpState::Sqd => &[QpState::Init, QpState::Rtr, QpState::Rts, QpState::Sqd],
        QpState::Err => &[QpState::Init, QpState::Err],
    };
    for &to in way {
        bed.go(to).unwrap();
    }
    if state == QpState::Sqe {
        if ty == QpType::Rc {
            return None;
        }
        let ah = bed.t.create_ah(bed.pd, Address::default()).unwrap();
        let dest = (ty == QpType::Ud).then_some(UdDest { ah, qpn: Qpn::new(1), qkey: QKey(1) });
        bed.t.stage(bed.qp, &SendWr { dest, ..send(1) }).unwrap();
        bed.ring().unwrap();
        bed.fake.fail(bed.qpn(), WcStatus::LocProtErr, 0);
        bed.sent();
    }
    assert_eq!(bed.t.qp_state(bed.qp), Ok(state));
    Some(bed)
}

/// Masks that differ from the required one in one bit, with and without all optional bits.
fn masks(ty: QpType, from: QpState, to: QpState) -> Vec<QpAttrMask> {
    let required = required(ty, from, to).unwrap_or(QpAttrMask::STATE);
    let all = required | optional(ty, from, to).unwrap_or(QpAttrMask::empty());
    let bits = thinned(QpAttrMask::all().iter(), 9);
    bits.flat_map(|bit| [required ^ bit, all ^ bit]).chain([QpAttrMask::empty()]).collect()
}

#[test]
fn an_illegal_modify_never_reaches_the_provider() {
    for ty in [QpType::Rc, QpType::Uc, QpType::Ud] {
        for from in thinned(QpState::ALL.into_iter(), 3) {
            let Some(mut bed) = bed_in(ty, from) else { continue };
            let before = bed.fake.modifies(bed.qpn()).len();
            let mut checked = 0;
            for to in QpState::ALL {
                for mask in masks(ty, from, to) {
                    let target = if mask.contains(QpAttrMask::STATE) { to } else { from };
                    let Err(e) = check_transition(ty, from, target, mask) else { continue };
                    let attr = QpAttr { state: to, cur_state: from, ..attr() };
                    let got = bed.t.modify_qp(bed.qp, &attr, mask);
                    assert_eq!(got, Err(ModifyError::Transition(e)), "{ty} {from} {to} {mask}");
                    checked += 1;
                }
            }
            assert!(cfg!(miri) || checked > 20, "{ty} {from}: {checked}");
            assert_eq!(bed.fake.modifies(bed.qpn()).len(), before);
            assert_eq!(bed.t.qp_state(bed.qp), Ok(from));
        }
    }
}

#[test]
fn a_legal_modify_reaches_the_provider_with_just_that_mask() {
    for ty in [QpType::Rc, QpType::Uc, QpType::Ud] {
        for from in thinned(QpState::ALL.into_iter(), 4) {
            for to in QpState::ALL {
                let Some(needed) = required(ty, from, to) else { continue };
                let most = needed | optional(ty, from, to).expect("as above");
                for mask in [needed, most - NO_FIELD] {
                    let Some(mut bed) = bed_in(ty, from) else { continue };
                    let attr = QpAttr { state: to, cur_state: from, ..attr() };
                    let done = bed.t.modify_qp(bed.qp, &attr, mask);
                    assert_eq!(done, Ok(0), "{ty} {from} {to} {mask}");
                    let last = bed.fake.modifies(bed.qpn()).pop().unwrap();
                    assert_eq!((last.mask, last.errno), (mask, 0));
                    let states = (bed.t.qp_state(bed.qp), bed.fake.state(bed.qpn()));
                    assert_eq!(states, (Ok(to), to));
                }
            }
        }
    }
}

#[test]
fn an_attribute_without_a_field_is_refused_before_the_provider_is_called() {
    let from = [QpState::Rts, QpState::Sqd];
    let mut refused = 0;
    for bit in NO_FIELD.iter() {
        for (from, to) in [(from[0], from[0]), (from[1], from[0]), (from[1], from[1])] {
            let may = optional(QpType::Rc, from, to).expect("a transition of the table");
            if !may.contains(bit) {
                continue;
            }
            let mut bed = bed_in(QpType::Rc, from).expect("RC has both");
            let before = bed.fake.modifies(bed.qpn()).len();
            let mask = required(QpType::Rc, from, to).expect("as above") | bit;
            let got = bed.t.modify_qp(bed.qp, &QpAttr { state: to, ..attr() }, mask);
            assert!(matches!(got, Err(ModifyError::Unsupported(_))), "{from} {to} {bit}: {got:?}");
            assert_eq!(bed.fake.modifies(bed.qpn()).len(), before);
            refused += 1;
        }
    }
    assert!(refused > 2, "{refused}");
}

#[test]
fn a_wrong_belief_is_refused_before_the_provider_is_called() {
    let mut bed = Bed::new(Posting::Classic);
    let attr = QpAttr { cur_state: QpState::Sqd, state: QpState::Rts, ..attr() };
    let mask = QpAttrMask::STATE | QpAttrMask::CUR_STATE;
    let actual = QpState::Rts;
    let refused = bed.t.modify_qp(bed.qp, &attr, mask);
    assert_eq!(refused, Err(ModifyError::CurState { actual }));
    assert_eq!(bed.fake.modifies(bed.qpn()).len(), 3);
}

#[test]
fn a_device_that_has_moved_on_is_believed() {
    for errno_sign in [ErrnoSign::Positive, ErrnoSign::Negative] {
        let fake = FakeConfig { errno_sign, ..FakeConfig::default() };
        let mut bed = Bed::of(Spec { fake, ..Spec::default() });
        bed.fake.break_qp(bed.qpn());
        let actual = QpState::Err;
        assert_eq!(bed.go(QpState::Sqd), Err(ModifyError::CurState { actual }));
        assert_eq!(bed.t.qp_state(bed.qp), Ok(QpState::Err));
        bed.go(QpState::Reset).unwrap();
        bed.connect();
    }
}

#[test]
fn an_errno_without_a_reason_is_told_and_the_state_stays() {
    let mut bed = Bed::reset(Spec::default());
    bed.fake.fail_call(Call::ModifyQp, 0, libc::EIO);
    assert_eq!(bed.go(QpState::Init), Err(ModifyError::Os(libc::EIO)));
    assert_eq!(bed.t.qp_state(bed.qp), Ok(QpState::Reset));
    bed.connect();
    bed.post(0..2);
    // Neither the modify nor the question after it is answered.
    bed.fake.fail_call(Call::ModifyQp, 0, libc::EIO);
    bed.fake.fail_call(Call::QueryQp, 0, libc::EIO);
    assert_eq!(bed.go(QpState::Reset), Err(ModifyError::Os(libc::EIO)));
    assert_eq!((bed.t.qp_state(bed.qp), bed.t.sq_free(bed.qp)), (Ok(QpState::Rts), 6));
    bed.fake.complete(bed.qpn(), 2);
    assert_eq!(bed.sent().len(), 2);
}

#[test]
fn values_above_the_devices_limits_are_refused_here_and_named() {
    let fake = device(|d| {
        d.limits.max_qp_init_rd_atom = 4;
        d.limits.max_qp_rd_atom = 2;
        d.port.active_mtu = Mtu::B2048;
    });
    let mut bed = Bed::reset(Spec { fake, ..Spec::default() });
    bed.go(QpState::Init).unwrap();
    let rtr = required(QpType::Rc, QpState::Init, QpState::Rtr).unwrap();
    let value = |field, got, max| Err(ModifyError::Value { field, got, max });
    let base = QpAttr { state: QpState::Rtr, ..attr() };
    let over = QpAttr { max_dest_rd_atomic: 3, ..base };
    assert_eq!(bed.t.modify_qp(bed.qp, &over, rtr), value("max_dest_rd_atomic", 3, 2));
    let over = QpAttr { path_mtu: Mtu::B4096, ..base };
    let codes = (Mtu::B4096.value().into(), Mtu::B2048.value().into());
    assert_eq!(bed.t.modify_qp(bed.qp, &over, rtr), value("path_mtu", codes.0, codes.1));
    let most = QpAttr { max_dest_rd_atomic: 2, path_mtu: Mtu::B2048, ..base };
    // What the mask does not name is not looked at.
    let most = QpAttr { max_rd_atomic: 200, ..most };
    assert_eq!(bed.t.modify_qp(bed.qp, &most, rtr), Ok(0));
    let rts = required(QpType::Rc, QpState::Rtr, QpState::Rts).unwrap();
    let over = QpAttr { state: QpState::Rts, max_rd_atomic: 5, ..attr() };
    assert_eq!(bed.t.modify_qp(bed.qp, &over, rts), value("max_rd_atomic", 5, 4));
    let most = QpAttr { max_rd_atomic: 4, ..over };
    assert_eq!(bed.t.modify_qp(bed.qp, &most, rts), Ok(0));
    assert_eq!(bed.fake.modifies(bed.qpn()).len(), 3);
}
