//! Every state against every call (§3).

use doorbell_core::transport::*;
use doorbell_core::verbs::*;

use super::backend::{HAS_PEER, IS_MODEL};
use super::pair::{Pair, SIGNALED, Side, Spec, attributes, errors, send};

/// Messages that come of one that was sent.
const ARRIVED: usize = HAS_PEER as usize;

const TYPES: [QpType; 3] = [QpType::Rc, QpType::Uc, QpType::Ud];

/// A pair whose rank 0 is in `state`, its peer in RTS; `None` where the type lacks the state.
fn qp_in(ty: QpType, state: QpState) -> Option<Pair> {
    let spec = Spec { ty, ..Spec::default() };
    if state == QpState::Sqe {
        return (ty != QpType::Rc).then(|| qp_sqe(spec));
    }
    let mut pair = Pair::reset(spec);
    pair.advance(1, 3);
    match state {
        QpState::Reset => {}
        QpState::Init => pair.advance(0, 1),
        QpState::Rtr => pair.advance(0, 2),
        _ => pair = Pair::connected(spec),
    }
    if matches!(state, QpState::Sqd | QpState::Err) {
        pair.go(0, state);
    }
    assert_eq!(pair.state(0), state);
    Some(pair)
}

/// A send with a key that nobody has takes UC and UD to SQE.
fn qp_sqe(spec: Spec) -> Pair {
    let mut pair = Pair::connected(spec);
    let sge = Sge { addr: 0x1000, len: 8, lkey: Lkey(0xDEAD_BEEF) };
    pair.post(0, SendOp::Send, 99, sge);
    assert_eq!(errors(&pair.sent(0)), [(99, WcStatus::LocProtErr)]);
    assert_eq!(pair.state(0), QpState::Sqe);
    pair
}

fn states() -> impl Iterator<Item = (QpType, QpState)> {
    TYPES.into_iter().flat_map(|ty| QpState::ALL.map(|s| (ty, s)))
}

/// Attributes with a value for every bit, as far as the device takes them.
fn full_attributes(spec: &Spec, me: &Side, peer: &Side, to: QpState) -> QpAttr {
    let [_, (rtr, _), (rts, _)] = attributes(spec, &me.endpoint, &peer.endpoint);
    QpAttr { state: to, sq_psn: rts.sq_psn, ..rtr }
}

/// Every mask that differs from the required one in one bit, and the required one with all
/// optional bits; sorted into legal and illegal by the table.
fn masks(ty: QpType, from: QpState, to: QpState) -> Vec<QpAttrMask> {
    let required = required(ty, from, to).unwrap_or(QpAttrMask::STATE);
    let bits = QpAttrMask::all().iter().map(|bit| required ^ bit);
    bits.chain([QpAttrMask::empty()]).collect()
}

#[test]
fn a_modify_is_refused_exactly_where_the_table_says() {
    for (ty, from) in states() {
        let Some(mut pair) = qp_in(ty, from) else { continue };
        let (spec, peer) = (pair.spec, pair.sides[1]);
        let checked = pair.on(0, move |t, me| {
            let mut checked = 0;
            for to in QpState::ALL {
                let attr = QpAttr { cur_state: from, ..full_attributes(&spec, &me, &peer, to) };
                for mask in masks(ty, from, to) {
                    // Without STATE a modify stays where it is.
                    let target = if mask.contains(QpAttrMask::STATE) { to } else { from };
                    let Err(e) = check_transition(ty, from, target, mask) else { continue };
                    let got = t.modify_qp(me.qp, &attr, mask);
                    assert_eq!(got, Err(ModifyError::Transition(e)), "{ty} {from}→{to} {mask}");
                    assert_eq!(t.qp_state(me.qp), Ok(from), "a refused modify changes nothing");
                    checked += 1;
                }
            }
            checked
        });
        assert!(checked > 100, "{ty} {from}: {checked} refusals");
    }
}

#[test]
fn a_legal_modify_arrives_with_required_and_with_all_optional_attributes() {
    for (ty, from) in states() {
        for to in QpState::ALL {
            let Some(needed) = required(ty, from, to) else { continue };
            let optional = optional(ty, from, to).expect("there is such a transition");
            for mask in [needed, needed | optional] {
                let Some(mut pair) = qp_in(ty, from) else { continue };
                let (spec, peer) = (pair.spec, pair.sides[1]);
                let state = pair.on(0, move |t, me| {
                    let attr = full_attributes(&spec, &me, &peer, to);
                    let attr = QpAttr { cur_state: from, ..attr };
                    match t.modify_qp(me.qp, &attr, mask) {
                        // A back end need not have what the trait has no attribute for.
                        Err(ModifyError::Unsupported(_)) if !IS_MODEL && mask != needed => {
                            return None;
                        }
                        done => assert_eq!(done, Ok(0), "{mask}"),
                    }
                    Some(t.qp_state(me.qp).unwrap())
                });
                let Some(state) = state else { continue };
                assert_eq!(state, to, "{ty} {from}→{to} {mask}");
                assert_eq!(pair.state(0), to, "and stays there");
            }
        }
    }
}

#[test]
fn a_wrong_belief_about_the_state_is_refused() {
    let mut pair = Pair::rc();
    let refused = pair.on(0, |t, me| {
        let attr = QpAttr { cur_state: QpState::Sqd, state: QpState::Rts, ..QpAttr::default() };
        t.modify_qp(me.qp, &attr, QpAttrMask::STATE | QpAttrMask::CUR_STATE)
    });
    assert_eq!(refused, Err(ModifyError::CurState { actual: QpState::Rts }));
}

/// Stages and rings one signalled SEND of 8 bytes.
fn post_send(pair: &mut Pair) -> Result<(), StageError> {
    let dest = pair.dest(0);
    pair.on(0, move |t, me| {
        let sge = [me.sge(0, 8)];
        t.stage(me.qp, &SendWr { dest, ..send(SendOp::Send, 7, Data::Sge(&sge)) })?;
        assert_eq!(t.ring(me.qp, Ring::Auto).map(|r| r.wqes), Ok(1));
        Ok(())
    })
}

#[test]
fn post_send_in_every_state() {
    for (ty, state) in states() {
        let Some(mut pair) = qp_in(ty, state) else { continue };
        if ty == QpType::Ud && pair.ah.is_none() {
            let (pd, to) = (pair.sides[0].pd, pair.sides[1].endpoint.address);
            let ah = pair.lab.call(0, move |t| t.create_ah(pd, to).unwrap());
            pair.ah = Some([ah, ah]);
        }
        pair.recv(1, 1, 0, 64);
        let posted = post_send(&mut pair);
        let at = format!("{ty} {state}");
        let sent = pair.sent(0);
        match can_post_send(state) {
            PostVerdict::Refused => {
                assert_eq!(posted, Err(StageError::BadState { state }), "{at}");
                assert_eq!(sent, [], "{at}");
            }
            PostVerdict::Processed => {
                assert_eq!(posted, Ok(()), "{at}");
                assert!(matches!(sent[..], [Completion::Send { wr_id: 7, .. }]), "{at}: {sent:?}");
                assert_eq!(pair.received(1).len(), ARRIVED, "{at}");
            }
            PostVerdict::Flushed => {
                assert_eq!(posted, Ok(()), "{at}");
                assert_eq!(errors(&sent), [(7, WcStatus::WrFlushErr)], "{at}");
                assert_eq!(pair.received(1), [], "{at}");
            }
            PostVerdict::Held => {
                assert_eq!((posted, &sent[..]), (Ok(()), &[][..]), "{at}");
                assert_eq!(pair.received(1), [], "{at}: nothing leaves");
                pair.go(0, QpState::Rts);
                assert_eq!(pair.sent(0).len(), 1, "{at}: released by RTS");
                assert_eq!(pair.received(1).len(), ARRIVED, "{at}");
            }
        }
    }
}

#[test]
fn post_recv_in_every_state() {
    for (ty, state) in states() {
        let Some(mut pair) = qp_in(ty, state) else { continue };
        let posted = pair.on(0, |t, me| {
            let wr = RecvWr { wr_id: 5, sge: me.sge(0, 128) };
            t.post_recv(RecvQueue::Qp(me.qp), &[wr])
        });
        let at = format!("{ty} {state}");
        match can_post_recv(state) {
            PostVerdict::Refused => {
                let cause = PostRecvCause::BadState(state);
                assert_eq!(posted, Err(PostRecvError { posted: 0, cause }), "{at}");
            }
            PostVerdict::Flushed => {
                assert_eq!(posted, Ok(()), "{at}");
                let got = pair.received(0);
                assert_eq!(errors(&got), [(5, WcStatus::WrFlushErr)], "{at}");
            }
            PostVerdict::Held | PostVerdict::Processed => {
                assert_eq!(posted, Ok(()), "{at}");
                assert_eq!(pair.received(0), [], "{at}: nothing has come");
                arrives(&mut pair, ty, state, &at);
            }
        }
    }
}

/// A message of the peer completes the receive, after the missing transitions.
fn arrives(pair: &mut Pair, ty: QpType, state: QpState, at: &str) {
    needs_peer!();
    if state == QpState::Init {
        let (spec, me, peer) = (pair.spec, pair.sides[0], pair.sides[1]);
        pair.lab.call(0, move |t| {
            let (attr, mask) = attributes(&spec, &me.endpoint, &peer.endpoint)[1];
            t.modify_qp(me.qp, &attr, mask).unwrap();
        });
        pair.lab.settle();
    }
    if ty == QpType::Ud && pair.ah.is_none() {
        let (pd, to) = (pair.sides[1].pd, pair.sides[0].endpoint.address);
        let ah = pair.lab.call(1, move |t| t.create_ah(pd, to).unwrap());
        pair.ah = Some([ah, ah]);
    }
    let sge = pair.sides[1].sge(0, 8);
    pair.post(1, SendOp::Send, 6, sge);
    let got = pair.received(0);
    assert!(matches!(got[..], [Completion::Recv { wr_id: 5, .. }]), "{at}: {got:?}");
}

#[test]
fn packets_to_a_qp_that_takes_none_have_no_effect() {
    needs_peer!();
    for state in [QpState::Reset, QpState::Init, QpState::Err] {
        let mut pair = qp_in(QpType::Uc, state).expect("UC has these states");
        let (to, from) = (pair.sides[0].remote(512), pair.sides[1].sge(0, 8));
        pair.write_local(1, 0, &[7; 8]);
        pair.post(1, SendOp::Write(to), 1, from);
        assert_eq!(pair.sent(1).len(), 1, "{state}: UC hears of nothing");
        assert_eq!(pair.read_local(0, 512, 8), [0; 8], "{state}");
    }
}

#[test]
fn from_sqe_back_to_rts() {
    for ty in [QpType::Uc, QpType::Ud] {
        let mut pair = qp_sqe(Spec { ty, ..Spec::default() });
        pair.recv(1, 3, 0, 64);
        pair.go(0, QpState::Rts);
        assert_eq!(post_send(&mut pair), Ok(()));
        assert!(matches!(pair.sent(0)[..], [Completion::Send { wr_id: 7, .. }]), "{ty}");
        assert_eq!(pair.received(1).len(), ARRIVED, "{ty}");
    }
}

#[test]
fn sq_drained_comes_once_and_only_if_it_is_asked_for() {
    if !IS_MODEL {
        println!("skipped: EN_SQD_ASYNC_NOTIFY is refused");
        return;
    }
    for ty in TYPES {
        for asked in [true, false] {
            let mut pair = Pair::connected(Spec { ty, ..Spec::default() });
            for round in 0..2 {
                pair.on(0, move |t, me| {
                    let attr = QpAttr { state: QpState::Sqd, ..QpAttr::default() };
                    let ask = QpAttrMask::EN_SQD_ASYNC_NOTIFY;
                    let more = if asked { ask } else { QpAttrMask::empty() };
                    assert_eq!(t.modify_qp(me.qp, &attr, QpAttrMask::STATE | more), Ok(0));
                });
                let kind = AsyncEventKind::SqDrained;
                let qp = Some(pair.sides[0].qp);
                let event = AsyncEvent { kind, qp, cq: None, srq: None };
                let told = pair.events(0);
                assert_eq!(told, vec![event; usize::from(asked)], "{ty}, round {round}");
                pair.go(0, QpState::Rts);
                assert_eq!(pair.events(0), [], "{ty}, round {round}");
            }
        }
    }
}

#[test]
fn a_modify_unstages_first() {
    let mut pair = Pair::rc();
    let (unstaged, free) = pair.on(0, |t, me| {
        for i in 0..3 {
            t.stage(me.qp, &send(SendOp::Send, i, Data::Inline(&[1]))).unwrap();
        }
        let attr = QpAttr { state: QpState::Sqd, ..QpAttr::default() };
        let unstaged = t.modify_qp(me.qp, &attr, QpAttrMask::STATE).unwrap();
        assert_eq!(t.ring(me.qp, Ring::Auto).unwrap().by, RungBy::Nothing);
        (unstaged, t.sq_free(me.qp))
    });
    assert_eq!((unstaged, free), (3, 16));
    assert_eq!(SIGNALED, SendFlags::SIGNALED);
}
