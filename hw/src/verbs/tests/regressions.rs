//! What an attack on the back end found, each with the right answer.

use std::time::Duration;

use doorbell_core::units::{Span, Time};

use super::super::fake::{Delivery, Element, GidConfig, GidType};
use super::super::open_error::OpenError;
use super::super::runner::{RunConfig, RunError, WaitMode, run};
use super::runner::{Act, Steps, wait};
use super::*;
use crate::gid::GidError;

/// A peer that only WRITEs makes no completion, and yet there is progress.
#[test]
#[cfg_attr(miri, ignore = "sleeps in ppoll(2)")]
fn memory_that_changes_is_progress() {
    for mode in [WaitMode::Poll, WaitMode::Event] {
        let mut bed = Bed::new(Posting::Classic);
        let watch = bed.t.watch(bed.range(64, 8)).unwrap();
        let (fake, rkey, addr) = (bed.fake.clone(), bed.mr.rkey.0, bed.mr.addr + 64);
        // Each pause is far below the idle limit, all of them together are far above it.
        let peer = std::thread::spawn(move || {
            for n in 1..=12 {
                std::thread::sleep(Duration::from_millis(100));
                assert!(fake.remote_write_u64(rkey, addr, n));
            }
            assert!(fake.remote_write_u64(rkey, addr + 8, 1));
        });
        let done = Act::Word(bed.range(72, 8));
        let step = |act: &mut dyn FnMut(Act) -> bool, _| match act(done) {
            true => Next::Done,
            false => wait(WaitSet::watch(watch)),
        };
        let config =
            RunConfig { wait: mode, idle: Duration::from_millis(900), ..RunConfig::default() };
        run(&mut bed.t, &mut Steps(step, 0), &config).unwrap_or_else(|e| panic!("{mode:?}: {e}"));
        peer.join().unwrap();
    }
}

/// Time in which the program works, or waits with a deadline of its own, is not idle.
#[test]
#[cfg_attr(miri, ignore = "waits on the wall clock")]
fn work_and_own_deadlines_do_not_count_as_silence() {
    for own_deadline in [false, true] {
        let mut bed = Bed::new(Posting::Classic);
        let (cq, at) = (bed.cq, bed.t.now() + Span::from_ms(120));
        let mut waits = 0;
        let step = |act: &mut dyn FnMut(Act) -> bool, _| {
            act(Act::Poll(cq));
            if !act(Act::Past(at)) {
                let until: Option<Time> = own_deadline.then_some(at);
                return match until {
                    Some(_) => Next::Wait { on: WaitSet::cq(cq), until },
                    None => Next::Again,
                };
            }
            waits += 1;
            if waits == 3 { Next::Done } else { wait(WaitSet::cq(cq)) }
        };
        let config = RunConfig { idle: Duration::from_millis(60), ..RunConfig::default() };
        run(&mut bed.t, &mut Steps(step, 0), &config).unwrap_or_else(|e| panic!("{e}"));
    }
}

/// An event of the life before says nothing about this one.
#[test]
fn an_old_event_does_not_end_a_new_life() {
    let mut bed = Bed::new(Posting::Classic);
    bed.fake.raise(AsyncEventKind::QpAccessErr.value().into(), Element::Qp(bed.qpn()));
    bed.go(QpState::Reset).unwrap();
    bed.connect();
    assert_eq!(bed.events().len(), 1);
    assert_eq!(bed.t.qp_state(bed.qp), Ok(QpState::Rts));
    bed.post(0..1);
}

/// Nor does a receive that failed then and is polled now.
#[test]
fn an_old_receive_in_error_does_not_end_a_new_life() {
    let fake = FakeConfig { purges: false, ..FakeConfig::default() };
    let mut bed = Bed::of(Spec { fake, ..Spec::default() });
    bed.recv(1, 0, 2).unwrap();
    let long = bed.fake.receive(bed.qpn(), &[0; 3], None, None);
    assert_eq!(long, Delivery::Failed(WcStatus::LocLenErr));
    bed.go(QpState::Reset).unwrap();
    bed.connect();
    let seen = bed.received();
    assert_eq!(errors(&seen, WorkQueue::Recv), [(1, WcStatus::LocLenErr)]);
    assert_eq!(bed.t.qp_state(bed.qp), Ok(QpState::Rts));
}

/// One byte of an address vector names the GID.
#[test]
fn a_gid_that_verbs_cannot_name_is_refused() {
    let at = |index| {
        device(|d| d.port.gids = vec![GidConfig::ipv4(index, GidType::RoceV2, [10, 0, 0, 1])])
    };
    let open = |index| {
        let fake = Fake::new(at(index));
        Device::open(&fake.provider(), &OpenConfig::default()).map(|d| d.gid().index)
    };
    assert_eq!(open(255).unwrap(), 255);
    let refused = open(256).unwrap_err();
    let named =
        matches!(&refused, OpenError::Gid { cause: GidError::IndexTooHigh { index: 256, .. }, .. });
    assert!(named, "{refused}");
}

/// The provider's lock belongs to the thread that has staged.
#[test]
fn a_burst_of_extended_verbs_ends_on_its_thread() {
    let mut bed = Bed::new(Posting::Extended);
    bed.stage(0..2);
    let (t, qp) = (&mut bed.t, bed.qp);
    let elsewhere = std::thread::scope(|s| s.spawn(|| t.ring(qp, Ring::Auto)).join());
    assert!(elsewhere.is_err(), "a panic, not undefined behaviour");
    assert_eq!(bed.ring().map(|r| r.wqes), Ok(2), "and nothing was lost");
}

#[test]
fn a_device_that_is_gone_is_named() {
    let mut bed = Bed::new(Posting::Classic);
    bed.fake.raise(AsyncEventKind::DeviceFatal.value().into(), Element::Port(1));
    let cq = bed.cq;
    let step = |act: &mut dyn FnMut(Act) -> bool, _| {
        act(Act::Poll(cq));
        wait(WaitSet::cq(cq))
    };
    let ended = run(&mut bed.t, &mut Steps(step, 0), &RunConfig::default());
    assert_eq!(ended, Err(RunError::DeviceLost { device: "fake0".into() }));
}
