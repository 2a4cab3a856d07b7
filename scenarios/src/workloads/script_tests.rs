//! Scripts on the ideal back end.

use super::common::{Op, Place};
use super::overrides::Overrides;
use super::protect::{Aim, Buffer, Origin, PeerKey};
use super::responder::{Responder, ResponderConfig};
use super::script::*;
use super::{Failure, Shape};
use doorbell_core::ideal::{Ideal, Stalled, run};
use doorbell_core::transport::RungBy;
use doorbell_core::transport::*;
use doorbell_core::units::{Span, Time};
use doorbell_core::verbs::{AsyncEventKind, QpState, SendFlags};
use doorbell_core::verbs::{TransitionError, WcStatus};

fn post(count: u32) -> ScriptStep {
    let shape = Shape { op: Op::Send, size: 8, inline: false };
    ScriptStep::Post {
        qp: 0,
        count,
        shape,
        flags: SendFlags::SIGNALED,
        pd: 0,
        local: 0,
        place: Place::default(),
        aim: Aim::default(),
    }
}

const RING: ScriptStep = ScriptStep::Ring { qp: 0, how: Ring::Doorbell };

fn play(steps: Vec<ScriptStep>) -> (Script, Responder, Ideal, Result<(), Stalled>) {
    let mut a = Script::new(ScriptConfig { steps, ..ScriptConfig::to(1) });
    let mut b = Responder::new(ResponderConfig::to(0));
    let mut world = Ideal::new(2);
    let end = run(&mut world, &mut [&mut a, &mut b]);
    (a, b, world, end)
}

fn outcomes(s: &Script) -> Vec<Outcome> {
    let log = s.results().log.iter().map(|e| e.outcome);
    log.filter(|o| !matches!(o, Outcome::Completed(_))).collect()
}

#[test]
fn what_is_posted_after_the_last_ring_is_never_executed() {
    let wait = ScriptStep::Await { count: 13, deadline: None };
    let (a, b, world, end) = play(vec![post(1), RING, post(12), wait]);
    assert_eq!((b.results().received, world.unrung()), (1, 12));
    let stalled = end.unwrap_err();
    assert!(matches!(stalled, Stalled::NoProgress { unrung: 12, blocked: 0, .. }));
    assert_eq!(outcomes(&a).len(), 3);
}

#[test]
fn without_the_wait_the_script_ends_and_leaves_them() {
    let wait = ScriptStep::Await { count: 13, deadline: Some(Span::from_us(10)) };
    let (a, b, world, end) = play(vec![post(1), RING, post(12), wait]);
    end.unwrap();
    assert_eq!((b.results().received, world.unrung()), (1, 12));
    let rung = Rung { wqes: 1, by: RungBy::Doorbell };
    let expect = [
        Outcome::Staged(1, None),
        Outcome::Rang(Ok(rung)),
        Outcome::Staged(12, None),
        Outcome::TimedOut(1),
    ];
    assert_eq!(outcomes(&a), expect);
    assert_eq!(a.results().log.last().unwrap().at.since(Time::ZERO), Span::from_us(10));
}

#[test]
fn refusals_are_logged_and_the_script_goes_on() {
    let steps = vec![
        post(129),
        ScriptStep::Unstage { qp: 0 },
        RING,
        ScriptStep::Modify { qp: 0, to: QpState::Init, set: Overrides::default() },
        ScriptStep::Modify { qp: 0, to: QpState::Err, set: Overrides::default() },
        post(1),
        RING,
        ScriptStep::Await { count: 1, deadline: None },
        ScriptStep::PollEmpty,
    ];
    let (a, _, _, end) = play(steps);
    end.unwrap();
    let o = outcomes(&a);
    assert_eq!(o[0], Outcome::Staged(64, Some(StageError::StagedFull)));
    assert_eq!(o[1], Outcome::Unstaged(64));
    assert_eq!(o[2], Outcome::Rang(Ok(Rung { wqes: 0, by: RungBy::Nothing })));
    let Outcome::Modified(Err(ModifyError::Transition(e))) = o[3] else { panic!("{o:?}") };
    assert!(matches!(e, TransitionError::NoSuchTransition { .. }));
    assert_eq!(o[4], Outcome::Modified(Ok(0)));
    assert_eq!(o[7..], [Outcome::Polled(1), Outcome::Polled(0)]);
    let flushed = a.results().log.iter().any(|e| {
        matches!(
            e.outcome,
            Outcome::Completed(Completion::Error { status: WcStatus::WrFlushErr, .. })
        )
    });
    assert!(flushed);
}

#[test]
fn waits_and_computations_pass_time() {
    let time = Span::from_us(2);
    let steps = vec![
        ScriptStep::Wait { time },
        ScriptStep::Compute { time },
        ScriptStep::Fence { scope: FenceScope::System },
        ScriptStep::PostRecv { qp: 0, count: 200, bytes: 64 },
        ScriptStep::Poll { max: 4 },
    ];
    let (a, _, _, end) = play(steps);
    end.unwrap();
    let at: Vec<_> = a.results().log.iter().map(|e| e.at.as_ps() / 1_000_000).collect();
    assert_eq!(at, [2, 4, 4, 4, 4]);
    assert_eq!(outcomes(&a)[3], Outcome::PostedRecv(128, Some(PostRecvCause::Full)));
}

#[test]
fn the_peer_posts_receives_when_the_script_says_so() {
    let order = ScriptStep::PeerRecv { qp: 0, count: 3, bytes: 64, buffer: Buffer::Offered };
    let all = ScriptStep::AwaitAll { deadline: None };
    let steps = vec![post(4), RING, order, ScriptStep::PollEmpty, order, all];
    let mut a = Script::new(ScriptConfig { steps, ..ScriptConfig::to(1) });
    let mut peer = ResponderConfig::to(0);
    peer.links[0].receives = 0;
    let mut b = Responder::new(peer);
    run(&mut Ideal::new(2), &mut [&mut a, &mut b]).unwrap();
    let expect = [Outcome::PeerPosted(3, None), Outcome::Polled(3), Outcome::PeerPosted(3, None)];
    let o = outcomes(&a);
    assert_eq!((&o[2..5], o[5]), (&expect[..], Outcome::Polled(1)));
    assert_eq!(b.results().received, 4);
}

#[test]
fn waiting_for_all_never_ends_with_an_unsignalled_tail() {
    let tail = ScriptStep::Post {
        qp: 0,
        count: 1,
        shape: Shape::default(),
        flags: SendFlags::empty(),
        pd: 0,
        local: 0,
        place: Place::default(),
        aim: Aim::default(),
    };
    let all = ScriptStep::AwaitAll { deadline: Some(Span::from_us(1)) };
    let (a, ..) = play(vec![tail, RING, all, post(1), RING, all]);
    let o = outcomes(&a);
    assert_eq!((o[2], o[5]), (Outcome::TimedOut(0), Outcome::Polled(1)));
}

#[test]
fn a_buffer_of_another_protection_domain_is_refused_at_execution() {
    let foreign = ScriptStep::Post {
        qp: 0,
        count: 1,
        shape: Shape::default(),
        flags: SendFlags::SIGNALED,
        pd: 2,
        local: 0,
        place: Place::default(),
        aim: Aim::default(),
    };
    let (a, ..) = play(vec![foreign, RING, ScriptStep::AwaitAll { deadline: None }]);
    assert_eq!(outcomes(&a)[0], Outcome::Staged(1, None));
    let refused = a.results().log.iter().any(|e| {
        matches!(
            e.outcome,
            Outcome::Completed(Completion::Error { status: WcStatus::LocProtErr, .. })
        )
    });
    assert!(refused);
}

#[test]
fn an_unknown_qp_is_a_mistake_in_the_file() {
    let (a, ..) = play(vec![ScriptStep::Ring { qp: 1, how: Ring::Auto }]);
    assert!(matches!(a.results().failure, Some(Failure::Config(_))));
}

const DRAIN: ScriptStep = ScriptStep::End(EndStep::Drain { qp: 0, deadline: None });
fn err() -> ScriptStep {
    ScriptStep::Modify { qp: 0, to: QpState::Err, set: Overrides::default() }
}

const DESTROY: ScriptStep = ScriptStep::End(EndStep::Destroy { qp: 0 });

/// A script whose own QPs take from an SRQ of 8.
fn play_shared(steps: Vec<ScriptStep>) -> (Script, Result<(), Stalled>) {
    let mut config = ScriptConfig { steps, ..ScriptConfig::to(1) };
    config.local.srq_depth = Some(8);
    let mut a = Script::new(config);
    let mut b = Responder::new(ResponderConfig::to(0));
    let end = run(&mut Ideal::new(2), &mut [&mut a, &mut b]);
    (a, end)
}

#[test]
fn a_drain_ends_with_its_marker() {
    let recv = ScriptStep::PostRecv { qp: 0, count: 3, bytes: 64 };
    let (a, _, _, end) = play(vec![recv, err(), post(2), RING, DRAIN, DESTROY, DESTROY]);
    end.unwrap();
    let log = outcomes(&a);
    // Two sends, the marker, and three receives of a queue of their own, each flushed.
    assert!(matches!(log[4..], [Outcome::Drained(3..=6), Outcome::Destroyed(true), _]), "{log:?}");
    assert_eq!(log[6], Outcome::Destroyed(false), "it is gone already");
    let marker = a.results().log.iter().rev().find_map(|e| match e.outcome {
        Outcome::Completed(Completion::Error { wr_id, queue: WorkQueue::Send, status, .. }) => {
            Some((wr_id, status))
        }
        _ => None,
    });
    assert_eq!(marker, Some((2, WcStatus::WrFlushErr)), "the last of the send queue");
}

#[test]
fn a_drain_of_a_full_send_queue_polls_until_there_is_room() {
    let mut config =
        ScriptConfig { steps: vec![post(1), RING, err(), DRAIN], ..ScriptConfig::to(1) };
    config.link.size.max_send_wr = 1;
    let mut a = Script::new(config);
    let mut b = Responder::new(ResponderConfig::to(0));
    let end = run(&mut Ideal::new(2), &mut [&mut a, &mut b]);
    end.unwrap();
    assert_eq!((a.results().failure, outcomes(&a)[3]), (None, Outcome::Drained(2)));
}

#[test]
fn a_drain_needs_a_queue_pair_in_err() {
    let (a, ..) = play(vec![DRAIN]);
    assert!(matches!(a.results().failure, Some(Failure::Config(text)) if text.contains("err")));
}

#[test]
fn an_event_is_waited_for_as_long_as_the_script_says() {
    let kind = AsyncEventKind::QpLastWqeReached;
    let await_event = |deadline| ScriptStep::End(EndStep::AwaitEvent { qp: 0, kind, deadline });
    let (a, end) = play_shared(vec![err(), await_event(None)]);
    end.unwrap();
    assert_eq!(outcomes(&a)[1], Outcome::Happened(kind));
    let again = vec![err(), await_event(None), await_event(Some(Span::from_us(5)))];
    let (a, end) = play_shared(again);
    end.unwrap();
    assert_eq!(outcomes(&a)[2], Outcome::TimedOut(0), "it comes once");
    assert_eq!(a.results().waits_at, None);
    let (a, end) = play_shared(vec![await_event(None)]);
    assert!(end.is_err(), "it waits for ever");
    assert_eq!(a.results().waits_at, Some(0));
}

#[test]
fn own_receives_go_to_the_shared_queue() {
    let recv = |count| ScriptStep::PostRecv { qp: 0, count, bytes: 64 };
    let (a, end) = play_shared(vec![recv(5), recv(4)]);
    end.unwrap();
    let full = Some(PostRecvCause::Full);
    assert_eq!(outcomes(&a), [Outcome::PostedRecv(5, None), Outcome::PostedRecv(3, full)]);
}

/// A WRITE of 8 bytes.
fn write(aim: Aim, at: u64) -> ScriptStep {
    ScriptStep::Post {
        qp: 0,
        count: 1,
        shape: Shape::default(),
        flags: SendFlags::SIGNALED,
        pd: 0,
        local: 0,
        place: Place { remote: at, ..Place::default() },
        aim,
    }
}

/// Statuses of a script and of its responder, which has regions that are not to be used.
fn statuses(steps: Vec<ScriptStep>) -> (String, String) {
    let mut a = Script::new(ScriptConfig { steps, ..ScriptConfig::to(1) });
    let mut peer = ResponderConfig { for_script: true, spare: true, ..ResponderConfig::to(0) };
    peer.links[0].receives = 0;
    let mut b = Responder::new(peer);
    run(&mut Ideal::new(2), &mut [&mut a, &mut b]).unwrap();
    assert_eq!((a.results().failure, b.results().failure), (None, None));
    (a.results().statuses.to_string(), b.results().statuses.to_string())
}

#[test]
fn memory_can_be_named_wrongly_at_both_ends() {
    let all = ScriptStep::AwaitAll { deadline: None };
    let key = |rkey| Aim { rkey, ..Aim::default() };
    let end = Aim { remote: Origin::End, ..Aim::default() };
    for (aim, at, status) in [
        (key(PeerKey::Offered), 0, "0"),
        (key(PeerKey::Wrong), 0, "10"),
        (key(PeerKey::Stale), 0, "10"),
        (key(PeerKey::Foreign), 0, "10"),
        (key(PeerKey::Number(0)), 0, "10"),
        (end, 0, "0"),
        (end, 1, "10"),
        (Aim { local: Origin::End, ..Aim::default() }, 0, "0"),
        (Aim { lkey_wrong: true, ..Aim::default() }, 0, "4"),
    ] {
        let (own, _) = statuses(vec![write(aim, at), RING, all]);
        assert_eq!(own, status, "{aim:?} {at}");
    }
}

#[test]
fn receives_and_regions_of_the_peer_can_be_bad() {
    let all = ScriptStep::AwaitAll { deadline: None };
    let recv = |buffer| ScriptStep::PeerRecv { qp: 0, count: 2, bytes: 64, buffer };
    for (buffer, own, peer) in [
        (Buffer::Offered, "0", "0"),
        (Buffer::ReadOnly, "11", "4, 5"),
        (Buffer::Foreign, "11", "4, 5"),
    ] {
        let seen = statuses(vec![recv(buffer), post(1), RING, all]);
        assert_eq!((seen.0.as_str(), seen.1.as_str()), (own, peer), "{buffer:?}");
    }
    let gone = ScriptStep::PeerDereg { after: None };
    let twice =
        vec![write(Aim::default(), 0), RING, all, gone, write(Aim::default(), 0), RING, all];
    assert_eq!(statuses(twice).0, "0, 10");
    let own = vec![ScriptStep::Dereg, write(Aim::default(), 0), RING, all];
    assert_eq!(statuses(own).0, "4");
    // Long after the script is done: nothing happens to it.
    let later = ScriptStep::PeerDereg { after: Some(Span::from_ms(1)) };
    assert_eq!(statuses(vec![later, write(Aim::default(), 0), RING, all]).0, "0");
    let while_it_waits = ScriptStep::Wait { time: Span::from_ms(2) };
    let steps = vec![later, while_it_waits, write(Aim::default(), 0), RING, all];
    assert_eq!(statuses(steps).0, "10");
}
