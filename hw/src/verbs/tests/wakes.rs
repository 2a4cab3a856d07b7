//! What ends a sleep, and that no wake-up is lost. No test asserts on wall time: a wake-up that is
//! lost ends as [`RunError::Idle`], far later than anything else here takes.

use std::time::Duration;

use doorbell_core::units::Span;

use super::super::fake::{Delivery, Element};
use super::super::runner::{RunConfig, RunReport, WaitMode, run};
use super::runner::{Act, Steps, wait};
use super::*;

fn event() -> RunConfig {
    let (wait, idle) = (WaitMode::Event, Duration::from_secs(20));
    RunConfig { wait, idle, ..RunConfig::default() }
}

/// Nothing ends a sleep but what is waited for.
fn quiet() -> Bed {
    Bed::of(Spec { quiet: true, ..Spec::default() })
}

/// Waits on `on` until `ready`, and has somebody do `act` while it sleeps.
fn woken(
    bed: &mut Bed,
    on: WaitSet,
    ready: Act,
    polled: &[CqId],
    act: impl FnOnce() + Send + 'static,
) -> RunReport {
    let polled = polled.to_vec();
    let mut other = Some(std::thread::spawn(move || {
        // Not an ordering that the test relies on, only the likely one.
        (0..50).for_each(|_| std::thread::yield_now());
        act();
    }));
    let mut program = Steps(
        move |do_it: &mut dyn FnMut(Act) -> bool, _| {
            let done = do_it(ready);
            for cq in &polled {
                do_it(Act::Poll(*cq));
            }
            if done { Next::Done } else { wait(on) }
        },
        0,
    );
    let report = run(&mut bed.t, &mut program, &event()).unwrap_or_else(|e| panic!("{e}"));
    other.take().unwrap().join().unwrap();
    report
}

#[test]
#[cfg_attr(miri, ignore = "sleeps in ppoll(2)")]
fn a_completion_wakes() {
    let mut bed = quiet();
    bed.post(0..1);
    let (fake, qpn, cq) = (bed.fake.clone(), bed.qpn(), bed.cq);
    let act = move || assert_eq!(fake.complete(qpn, 1), 1);
    woken(&mut bed, WaitSet::cq(cq), Act::Poll(cq), &[], act);
}

#[test]
#[cfg_attr(miri, ignore = "sleeps in ppoll(2)")]
fn a_solicited_receive_wakes_and_so_does_an_error() {
    for error in [false, true] {
        let mut bed = quiet();
        bed.recv(1, 0, 8).unwrap();
        bed.post(0..1);
        let (fake, qpn, cqs) = (bed.fake.clone(), bed.qpn(), [bed.cq, bed.recv_cq]);
        let awaited = cqs[usize::from(!error)];
        let act = move || match error {
            false => assert_eq!(fake.receive(qpn, b"x", None, None), Delivery::Done),
            true => assert!(fake.fail(qpn, WcStatus::RetryExcErr, 0)),
        };
        woken(&mut bed, WaitSet::solicited(awaited), Act::Poll(awaited), &[], act);
    }
}

#[test]
#[cfg_attr(miri, ignore = "sleeps in ppoll(2)")]
fn an_asynchronous_event_wakes() {
    let mut bed = quiet();
    let (fake, qpn) = (bed.fake.clone(), bed.qpn());
    let act = move || fake.raise(AsyncEventKind::CommEst.value().into(), Element::Qp(qpn));
    woken(&mut bed, WaitSet::EVENTS, Act::Event, &[], act);
}

#[test]
#[cfg_attr(miri, ignore = "sleeps in ppoll(2)")]
fn news_of_a_peer_wakes() {
    let mut bed = Bed::new(Posting::Classic);
    let mut peer = bed.peers.remove(0);
    let act = move || {
        peer.publish(5, b"here");
        peer.finish(std::time::Instant::now());
    };
    woken(&mut bed, WaitSet::BOOTSTRAP, Act::Lookup(1, 5), &[], act);
}

#[test]
#[cfg_attr(miri, ignore = "sleeps in ppoll(2)")]
fn watched_memory_wakes() {
    let mut bed = Bed::new(Posting::Classic);
    let watch = bed.t.watch(bed.range(64, 8)).unwrap();
    let (fake, rkey, addr) = (bed.fake.clone(), bed.mr.rkey.0, bed.mr.addr + 64);
    let act = move || assert!(fake.remote_write_u64(rkey, addr, 1));
    let word = Act::Word(bed.range(64, 8));
    woken(&mut bed, WaitSet::watch(watch), word, &[], act);
}

#[test]
#[cfg_attr(miri, ignore = "sleeps in ppoll(2)")]
fn one_of_several_sources_is_enough() {
    let mut bed = Bed::new(Posting::Classic);
    bed.recv(1, 0, 8).unwrap();
    let watch = bed.t.watch(bed.range(64, 8)).unwrap();
    let (fake, qpn, cqs) = (bed.fake.clone(), bed.qpn(), [bed.cq, bed.recv_cq]);
    let on = WaitSet::cq(cqs[0])
        .or(WaitSet::cq(cqs[1]))
        .or(WaitSet::watch(watch))
        .or(WaitSet::EVENTS)
        .or(WaitSet::BOOTSTRAP);
    let act = move || assert_eq!(fake.receive(qpn, b"x", None, None), Delivery::Done);
    woken(&mut bed, on, Act::Poll(cqs[1]), &cqs[..1], act);
}

/// A second thread completes each request at whatever moment it likes: before the poll, between
/// poll and arming, between arming and sleep, or in the sleep.
#[test]
#[cfg_attr(miri, ignore = "sleeps in ppoll(2)")]
fn no_wake_up_is_lost() {
    const ROUNDS: usize = 500;
    let mut bed = quiet();
    let (fake, qpn, cq, qp) = (bed.fake.clone(), bed.qpn(), bed.cq, bed.qp);
    let device = std::thread::spawn(move || {
        let mut done = 0;
        // Bounded: the program gives up after its idle time, and then nothing is outstanding.
        for look in 0..100_000_000_u64 {
            done += fake.complete(qpn, 1);
            if done == ROUNDS {
                break;
            }
            if look % 3 == 0 {
                std::thread::yield_now();
            }
        }
        done
    });
    let mut completed = 0;
    let mut posted = false;
    let mut program = Steps(
        |act: &mut dyn FnMut(Act) -> bool, _| {
            if act(Act::Poll(cq)) {
                completed += 1;
                posted = false;
            }
            if completed == ROUNDS {
                return Next::Done;
            }
            if !posted {
                assert!(act(Act::Post(qp)));
                posted = true;
            }
            wait(WaitSet::cq(cq))
        },
        0,
    );
    let report = run(&mut bed.t, &mut program, &event()).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(device.join().unwrap(), ROUNDS);
    assert!(report.steps as usize >= ROUNDS);
}

/// An event that the program does not wait for must not keep it from sleeping.
#[test]
#[cfg_attr(miri, ignore = "sleeps in ppoll(2)")]
fn an_event_that_nobody_waits_for_wakes_once() {
    let mut bed = Bed::new(Posting::Classic);
    bed.fake.raise(AsyncEventKind::CommEst.value().into(), Element::Qp(bed.qpn()));
    let until = bed.t.now() + Span::from_ms(20);
    let mut program = Steps(
        move |act: &mut dyn FnMut(Act) -> bool, _| match act(Act::Past(until)) {
            true => Next::Done,
            false => Next::Wait { on: WaitSet::EMPTY, until: Some(until) },
        },
        0,
    );
    // The bootstrap of the bed has no descriptor, which costs a glance every 50 us: at most 400.
    let report = run(&mut bed.t, &mut program, &event()).unwrap();
    assert!(report.sleeps <= 401, "{}", report.sleeps);
    assert_eq!(bed.events().len(), 1, "and it is still told");
}

#[test]
#[cfg_attr(miri, ignore = "sleeps in ppoll(2)")]
fn spinning_first_sees_what_comes_soon_without_a_sleep() {
    let mut bed = Bed::new(Posting::Classic);
    bed.post(0..1);
    bed.fake.complete(bed.qpn(), 1);
    let cq = bed.cq;
    let mut program = Steps(
        move |act: &mut dyn FnMut(Act) -> bool, n| {
            if act(Act::Poll(cq)) || n > 5 { Next::Done } else { wait(WaitSet::cq(cq)) }
        },
        0,
    );
    let config = RunConfig { wait: WaitMode::SpinThenEvent(Duration::from_secs(10)), ..event() };
    let report = run(&mut bed.t, &mut program, &config).unwrap();
    assert_eq!(report.sleeps, 0);
}
