//! Completion channels and asynchronous events.

use super::*;

/// The next asynchronous event, acknowledged if asked for.
pub(super) fn take(bed: &Bed, ack: bool) -> Option<RawEvent> {
    let mut event = MaybeUninit::zeroed();
    let context = bed.qp.parts().pd.context();
    set_nonblocking(context);
    // SAFETY: an open context, and an event that was filled in.
    unsafe {
        if bed.fake.get_async_event(context.as_ptr(), &mut event) != 0 {
            assert_eq!(errno(), libc::EAGAIN);
            return None;
        }
        let raw = event_of(&event);
        if ack {
            bed.fake.ack_async_event(&mut event);
        }
        Some(raw)
    }
}

fn set_nonblocking(context: &Context) {
    // SAFETY: an open context and its descriptor.
    let rc = unsafe { libc::fcntl((*context.as_ptr()).async_fd, libc::F_SETFL, libc::O_NONBLOCK) };
    assert_eq!(rc, 0);
}

/// A receive without elements, which a QP in ERR flushes at once.
fn post_empty_recv(bed: &Bed) {
    let (next, sg_list) = (ptr::null_mut(), ptr::null_mut());
    let mut wr = ibv_recv_wr { wr_id: 0, next, sg_list, num_sge: 0 };
    let mut bad = ptr::null_mut();
    // SAFETY: a chain of one without elements.
    assert_eq!(unsafe { ibv_post_recv(bed.qp.as_ptr(), &raw mut wr, &raw mut bad) }, 0);
}

#[test]
fn an_armed_queue_wakes_its_channel_once() {
    let bed = Bed::new(FakeConfig::default(), Posting::Classic).rts();
    let cq = bed.qp.parts().send_cq.clone();
    let channel = cq.channel().clone();
    // SAFETY: a descriptor of the library.
    unsafe { libc::fcntl(channel.fd(), libc::F_SETFL, libc::O_NONBLOCK) };
    let next = || {
        let (mut found, mut user) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the channel is alive, and there is room for both.
        let rc = unsafe { bed.fake.get_cq_event(channel.as_ptr(), &raw mut found, &raw mut user) };
        (rc == 0).then_some(found)
    };
    let n = bed.num();
    bed.fake.break_qp(n);
    let flush = || post_empty_recv(&bed);
    flush();
    assert_eq!(next(), None);
    // SAFETY: the queue is alive.
    assert_eq!(unsafe { ibv_req_notify_cq(cq.as_ptr(), 0) }, 0);
    // What was there before does not count.
    assert_eq!(next(), None);
    flush();
    flush();
    assert_eq!((next(), next()), (Some(cq.as_ptr()), None));
    // SAFETY: the queue is alive; one event was taken.
    unsafe {
        assert_eq!(bed.fake.destroy_cq(cq.as_ptr()), libc::EBUSY);
        bed.fake.ack_cq_events(cq.as_ptr(), 2);
    }
    let call = "ack_cq_events";
    let expected = [
        Violation::ChildrenAlive { call: "destroy_cq", children: 1 },
        Violation::AckedTooMany { call, acked: 2, taken: 1 },
    ];
    assert_eq!(bed.fake.violations(), expected);
}

#[test]
fn an_overrun_queue_fails_for_good_and_says_so() {
    let bed = Bed::sized(Fake::new(FakeConfig::default()), Posting::Classic, RC, false, 4);
    bed.modify(QpState::Init).unwrap();
    bed.modify(QpState::Err).unwrap();
    let post = || post_empty_recv(&bed);
    (0..4).for_each(|_| post());
    assert_eq!((bed.poll().len(), take(&bed, true).is_some()), (4, false));
    (0..5).for_each(|_| post());
    let cq = bed.qp.parts().send_cq.as_ptr();
    let mut wc = MaybeUninit::uninit();
    // SAFETY: the queue is alive, and there is room for one.
    assert_eq!(unsafe { ibv_poll_cq(cq, 1, wc.as_mut_ptr()) }, -1);
    let event = take(&bed, true).unwrap();
    assert_eq!((event.kind, event.element), (0, cq.addr()));
}

#[test]
fn events_are_raised_with_any_number_and_must_be_acknowledged() {
    let bed = Bed::new(FakeConfig::default(), Posting::Classic);
    let (fake, n) = (bed.fake.clone(), bed.num());
    fake.raise(9999, Element::Port(1));
    fake.raise(10, Element::Port(1));
    fake.raise(1, Element::Qp(n));
    let unknown = take(&bed, true).unwrap();
    assert_eq!((unknown.kind, unknown.element), (9999, 1));
    assert_eq!(take(&bed, true).unwrap().kind, 10);
    let fatal = take(&bed, false).unwrap();
    assert_eq!((fatal.kind, fatal.element), (1, bed.qp.as_ptr().addr()));
    // SAFETY: the QP is alive; that it is refused is what is tested.
    assert_eq!(unsafe { fake.destroy_qp(bed.qp.as_ptr()) }, libc::EBUSY);
    let mut event = MaybeUninit::<ibv_async_event>::zeroed();
    // SAFETY: the fields that the acknowledgement looks at.
    unsafe {
        let at = event.as_mut_ptr();
        (&raw mut (*at).event_type).cast::<u32>().write(1);
        (*at).element.qp = bed.qp.as_ptr();
        fake.ack_async_event(&mut event);
    }
    drop(bed);
    let call = "destroy_qp";
    assert_eq!(fake.violations(), [Violation::Unacknowledged { call, events: 1 }]);
    assert_eq!(fake.live(), Live::default());
}

#[test]
fn a_read_that_would_block_for_ever_is_a_violation() {
    let bed = Bed::new(FakeConfig::default(), Posting::Classic);
    let context = bed.qp.parts().pd.context();
    let mut event = MaybeUninit::zeroed();
    // SAFETY: an open context.
    assert_eq!(unsafe { bed.fake.get_async_event(context.as_ptr(), &mut event) }, -1);
    let call = "get_async_event";
    assert_eq!(bed.fake.violations(), [Violation::WouldBlock { call }]);
}
