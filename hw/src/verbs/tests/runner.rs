//! The runner: how a run ends, and what it says when it does not end well.

use std::time::Duration;

use doorbell_core::units::{Span, Time};

use super::super::fake::Call;
use super::super::runner::{RunConfig, RunError, RunReport, WaitMode, run};
use super::*;

/// A program made of what it does in its `n`th step.
pub(super) struct Steps<F>(pub F, pub u64);

impl<F: FnMut(&mut dyn FnMut(Act) -> bool, u64) -> Next> Program for Steps<F> {
    fn step<T: Control>(&mut self, t: &mut T) -> Next {
        self.1 += 1;
        let n = self.1;
        (self.0)(&mut |act| act.on(t), n)
    }
}

/// What a step may do. A closure cannot be generic over the transport.
#[derive(Copy, Clone)]
pub(super) enum Act {
    /// Polls to empty; whether there was something.
    Poll(CqId),
    /// Stages a SEND.
    Stage(QpId),
    /// Stages and rings.
    Post(QpId),
    /// Looks a key of a peer up; whether it is there.
    Lookup(u32, u64),
    /// Takes an event; whether there was one.
    Event,
    /// Whether a word is above zero.
    Word(Range),
    /// Whether the time has come.
    Past(Time),
}

impl Act {
    fn on<T: Control>(self, t: &mut T) -> bool {
        match self {
            Self::Poll(cq) => {
                let mut out = Completions::with_capacity(64);
                t.poll_cq(cq, &mut out).unwrap();
                !out.as_slice().is_empty()
            }
            Self::Stage(qp) => t.stage(qp, &send(1)).is_ok(),
            Self::Post(qp) => t.stage(qp, &send(1)).is_ok() && t.ring(qp, Ring::Auto).is_ok(),
            Self::Lookup(peer, key) => t.lookup(peer, key, &mut []).unwrap().is_some(),
            Self::Event => t.next_event().is_some(),
            Self::Word(range) => t.load_u64(range).unwrap() > 0,
            Self::Past(time) => t.now() >= time,
        }
    }
}

pub(super) fn wait(on: WaitSet) -> Next {
    Next::Wait { on, until: None }
}

/// Limits that a test reaches soon.
fn soon() -> RunConfig {
    RunConfig { idle: Duration::from_millis(3), ..RunConfig::default() }
}

#[test]
fn done_is_done_and_leftovers_are_reported() {
    let mut bed = Bed::new(Posting::Classic);
    let (qp, cq) = (bed.qp, bed.cq);
    let mut program = Steps(
        |act: &mut dyn FnMut(Act) -> bool, n| match n {
            1 => {
                act(Act::Post(qp));
                Next::Again
            }
            2 => {
                act(Act::Stage(qp));
                act(Act::Stage(qp));
                act(Act::Poll(cq));
                Next::Again
            }
            _ => Next::Done,
        },
        0,
    );
    let report = run(&mut bed.t, &mut program, &RunConfig::default()).unwrap();
    let (unrung, outstanding) = (vec![(qp, 2)], vec![(qp, 1)]);
    assert_eq!(report, RunReport { steps: 3, sleeps: 0, unrung, outstanding });
}

#[test]
fn a_queue_that_was_not_polled_in_the_step_cannot_be_waited_for() {
    for mode in [WaitMode::Poll, WaitMode::Event] {
        let mut bed = Bed::new(Posting::Classic);
        let (cq, other) = (bed.cq, bed.recv_cq);
        let on = WaitSet::cq(cq).or(WaitSet::cq(other));
        let mut program = Steps(
            move |act: &mut dyn FnMut(Act) -> bool, n| {
                act(Act::Poll(cq));
                // In the first step both are polled; what was polled then does not count later.
                if n == 1 {
                    act(Act::Poll(other));
                    return Next::Again;
                }
                wait(on)
            },
            0,
        );
        let config = RunConfig { wait: mode, ..RunConfig::default() };
        let error = run(&mut bed.t, &mut program, &config).unwrap_err();
        assert_eq!(error, RunError::Unpolled { cq: other });
        assert!(error.to_string().contains("has not polled it to empty"));
    }
}

#[test]
fn a_full_buffer_is_not_seen_empty() {
    let mut bed = Bed::new(Posting::Classic);
    bed.post(0..6);
    bed.fake.complete(bed.qpn(), 6);
    struct Greedy(CqId);
    impl Program for Greedy {
        fn step<T: Control>(&mut self, t: &mut T) -> Next {
            t.poll_cq(self.0, &mut Completions::with_capacity(6)).unwrap();
            wait(WaitSet::cq(self.0))
        }
    }
    let cq = bed.cq;
    let error = run(&mut bed.t, &mut Greedy(cq), &RunConfig::default());
    assert_eq!(error, Err(RunError::Unpolled { cq }));
}

#[test]
fn waiting_for_nothing_is_named_with_what_was_staged() {
    let mut bed = Bed::new(Posting::Classic);
    let qp = bed.qp;
    let mut program = Steps(
        move |act: &mut dyn FnMut(Act) -> bool, _| {
            act(Act::Stage(qp));
            wait(WaitSet::EMPTY)
        },
        0,
    );
    let error = run(&mut bed.t, &mut program, &RunConfig::default()).unwrap_err();
    assert_eq!(error, RunError::WaitsForNothing { unrung: vec![(qp, 1)] });
    assert!(error.to_string().contains("1 staged and not rung"), "{error}");
}

#[test]
#[cfg_attr(miri, ignore = "sleeps in ppoll(2)")]
fn silence_is_named_with_what_is_staged_and_outstanding() {
    for mode in [WaitMode::Poll, WaitMode::Event, WaitMode::SpinThenEvent(Duration::ZERO)] {
        let mut bed = Bed::new(Posting::Classic);
        let (qp, cq) = (bed.qp, bed.cq);
        let watch = bed.t.watch(bed.range(0, 8)).unwrap();
        let on =
            WaitSet::cq(cq).or(WaitSet::watch(watch)).or(WaitSet::EVENTS).or(WaitSet::BOOTSTRAP);
        let mut program = Steps(
            move |act: &mut dyn FnMut(Act) -> bool, n| {
                if n == 1 {
                    act(Act::Post(qp));
                    act(Act::Stage(qp));
                }
                act(Act::Poll(cq));
                wait(on)
            },
            0,
        );
        let error = run(&mut bed.t, &mut program, &RunConfig { wait: mode, ..soon() }).unwrap_err();
        let RunError::Idle { on: named, waited, unrung, outstanding } = &error else {
            panic!("{error}")
        };
        assert_eq!((*named, unrung.as_slice()), (on, &[(qp, 1)][..]));
        assert_eq!(outstanding.as_slice(), [(qp, 1)]);
        assert!(*waited >= Duration::from_millis(3));
        let said = error.to_string();
        for part in [
            "completion queue 0",
            "memory watch 0",
            "an asynchronous event",
            "a key of a peer",
            "1 staged and not rung",
            "1 rung and not completed",
            "is the doorbell rung?",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
        // The handle can be used afterwards.
        bed.fake.complete(bed.qpn(), 1);
        assert_eq!(bed.sent().len(), 1);
    }
}

#[test]
fn the_whole_run_has_a_limit() {
    let mut bed = Bed::new(Posting::Classic);
    let limit = Duration::from_millis(2);
    let mut busy = Steps(|_: &mut dyn FnMut(Act) -> bool, _| Next::Again, 0);
    let error = run(&mut bed.t, &mut busy, &RunConfig { limit, ..RunConfig::default() });
    assert!(matches!(error, Err(RunError::Limit { limit: l, .. }) if l == limit));
    // A deadline of its own that never comes does not save a program from it.
    let far = Time::ZERO + Span::from_ms(3_600_000);
    let mut patient = Steps(
        move |_: &mut dyn FnMut(Act) -> bool, _| Next::Wait {
            on: WaitSet::EMPTY,
            until: Some(far),
        },
        0,
    );
    let error = run(&mut bed.t, &mut patient, &RunConfig { limit, ..RunConfig::default() });
    assert!(matches!(error, Err(RunError::Limit { .. })), "{error:?}");
}

#[test]
fn a_peer_that_is_lost_ends_the_run_unless_it_is_outlived() {
    for outlive_peers in [false, true] {
        let mut bed = Bed::new(Posting::Classic);
        let mut peers = std::mem::take(&mut bed.peers);
        let mut program = Steps(
            move |_: &mut dyn FnMut(Act) -> bool, n| {
                if n == 40 {
                    peers.clear();
                }
                if n < 100 { Next::Again } else { Next::Done }
            },
            0,
        );
        let config = RunConfig { outlive_peers, ..RunConfig::default() };
        let end = run(&mut bed.t, &mut program, &config);
        if outlive_peers {
            assert_eq!(end.map(|r| r.steps), Ok(100));
        } else {
            let error = end.unwrap_err();
            assert_eq!(error, RunError::PeerLost { rank: 1 });
            assert!(error.to_string().contains("rank 1 was lost"));
        }
    }
}

#[test]
fn a_peer_that_is_done_is_not_lost() {
    let mut bed = Bed::new(Posting::Classic);
    let mut peers = std::mem::take(&mut bed.peers);
    let mut program = Steps(
        move |_: &mut dyn FnMut(Act) -> bool, n| {
            if let Some(mut peer) = peers.pop() {
                peer.finish(std::time::Instant::now());
            }
            if n < 40 { Next::Again } else { Next::Done }
        },
        0,
    );
    run(&mut bed.t, &mut program, &RunConfig::default()).unwrap();
}

#[test]
fn arming_that_fails_ends_the_run() {
    let mut bed = Bed::new(Posting::Classic);
    let cq = bed.cq;
    bed.fake.fail_call(Call::ReqNotify, 0, libc::EIO);
    let mut program = Steps(
        move |act: &mut dyn FnMut(Act) -> bool, _| {
            act(Act::Poll(cq));
            wait(WaitSet::cq(cq))
        },
        0,
    );
    let config = RunConfig { wait: WaitMode::Event, ..RunConfig::default() };
    let error = run(&mut bed.t, &mut program, &config).unwrap_err();
    assert!(matches!(error, RunError::Os(e) if e.0 == libc::EIO), "{error}");
}
