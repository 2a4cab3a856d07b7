//! A pool on the back end that does nothing.

use std::string::ToString;
use std::vec;

use proptest::prelude::*;

use super::super::{CqBudget, CreditGate, CreditIssuer};
use super::*;
use crate::noop::NoOp;
use crate::transport::*;

fn share(entries: u32) -> CqShare {
    CqBudget::new(entries).take(entries).unwrap()
}

struct Rig {
    t: NoOp,
    qp: QpId,
    queue: RecvQueue,
    pool: RecvPool,
}

impl Rig {
    fn config(queue: RecvQueue, slots: u32, batch: u32, low_watermark: u32) -> RecvPoolConfig {
        RecvPoolConfig { queue, slots, slot_bytes: 100, batch, low_watermark }
    }

    fn new(slots: u32, batch: u32, low_watermark: u32, srq: bool) -> Self {
        let mut t = NoOp::new(slots);
        let srq = srq.then(|| t.add_srq(slots));
        let qp = t.add_qp(NoOp::caps(slots), srq);
        let queue = srq.map_or(RecvQueue::Qp(qp), RecvQueue::Srq);
        let config = Self::config(queue, slots, batch, low_watermark);
        let mr = NoOp::mr(0x1000, 100 * u64::from(slots));
        let pool = RecvPool::new(config, &mr, share(slots)).unwrap();
        Self { t, qp, queue, pool }
    }

    /// Receives a message; the number of the receive.
    fn receive(&mut self) -> Option<u64> {
        self.t.deliver(self.qp, 1, None).then(|| self.poll(1)[0])
    }

    fn poll(&mut self, most: usize) -> Vec<u64> {
        let mut out = Completions::with_capacity(most);
        self.t.poll_cq(NoOp::CQ, &mut out).expect("no overrun");
        let id = |c: &Completion| match *c {
            Completion::Recv { wr_id, .. } => wr_id,
            ref other => panic!("{other:?}"),
        };
        let ids: Vec<u64> = out.as_slice().iter().map(id).collect();
        for id in &ids {
            assert_eq!(self.pool.completed(*id), Some(id * 100));
        }
        ids
    }
}

#[test]
fn bad_configurations_name_the_remedy() {
    let of = |slots, bytes, entries| {
        let queue = RecvQueue::Qp(QpId::new(0, 0, 0));
        let (batch, low_watermark) = (1, 0);
        let config = RecvPoolConfig { queue, slots, slot_bytes: 100, batch, low_watermark };
        RecvPool::new(config, &NoOp::mr(0x1000, bytes), share(entries)).map(|_| ())
    };
    assert_eq!([of(4, 400, 4), of(0, 400, 4)], [Ok(()), Err(RecvPoolError::NoSlots)]);
    assert_eq!(of(4, 399, 4), Err(RecvPoolError::RegionTooShort { needed: 400, got: 399 }));
    let few = of(4, 400, 3).unwrap_err();
    assert_eq!(few, RecvPoolError::CqShareTooSmall { needed: 4, got: 3 });
    assert!(few.to_string().ends_with("take 4"), "{few}");
}

#[test]
fn slots_are_the_burst_the_lag_and_the_batch() {
    let slots = |ns| RecvPoolConfig::slots_for(8, 4, Span::from_ns(ns), Span::from_ns(100));
    assert_eq!([slots(0), slots(1), slots(100), slots(101)], [11, 12, 12, 13]);
    let most = RecvPoolConfig::slots_for(u32::MAX, 4, Span::from_ms(1), Span::from_ps(1));
    assert_eq!(most, u32::MAX);
}

#[test]
fn batches_are_posted_when_they_are_full_or_few_are_left() {
    let mut r = Rig::new(8, 3, 2, false);
    assert_eq!((r.pool.fill(&mut r.t), r.t.posted(r.queue)), (Ok(8), 8));
    let ids: Vec<u64> = (0..5).map(|_| r.receive().unwrap()).collect();
    assert_eq!((ids.as_slice(), r.pool.lent(), r.pool.posted()), (&[0, 1, 2, 3, 4][..], 5, 3));
    let mut give = |id| r.pool.release(&mut r.t, id);
    assert_eq!([give(1), give(0), give(3)], [Ok(0), Ok(0), Ok(3)]);
    assert_eq!((r.pool.posted(), r.pool.lent(), r.pool.stats().posts), (6, 2, 2));
    // Six more messages; one is left: what comes back is posted at once.
    for _ in 0..5 {
        r.receive().unwrap();
    }
    assert_eq!((r.pool.posted(), r.pool.stats().low), (1, 1));
    assert_eq!([r.pool.release(&mut r.t, 2), r.pool.release(&mut r.t, 4)], [Ok(1), Ok(0)]);
    assert_eq!((r.pool.posted(), r.pool.idle()), (2, 1));
    assert_eq!(r.pool.fill(&mut r.t), Ok(1));
    assert_eq!(r.pool.fill(&mut r.t), Ok(0));
}

#[test]
fn what_is_not_lent_is_not_taken_back() {
    let mut r = Rig::new(2, 2, 0, false);
    let not = |wr_id| Err(ReleaseError::NotLent { wr_id });
    assert_eq!(r.pool.completed(0), None, "not posted yet");
    r.pool.fill(&mut r.t).unwrap();
    assert_eq!(r.pool.release(&mut r.t, 0), not(0), "posted");
    let id = r.receive().unwrap();
    assert_eq!(r.pool.completed(id), None, "twice");
    assert_eq!(r.pool.release(&mut r.t, id), Ok(0));
    assert_eq!(r.pool.release(&mut r.t, id), not(id), "twice");
    assert_eq!(r.pool.release(&mut r.t, 1 << 32), not(1 << 32), "none of this pool");
    assert_eq!(r.pool.completed(u64::MAX), None);
}

#[test]
fn a_limit_is_armed_when_enough_is_posted_and_again_after_its_event() {
    let mut r = Rig::new(6, 6, 3, true);
    assert_eq!(r.pool.limit_to_arm(), None, "the event would come at once");
    r.pool.fill(&mut r.t).unwrap();
    assert_eq!([r.pool.limit_to_arm(), r.pool.limit_to_arm()], [Some(3), None]);
    let ids: Vec<u64> = (0..4).map(|_| r.receive().unwrap()).collect();
    // The event comes while the program still has the buffers.
    assert_eq!((r.pool.limit_reached(&mut r.t), r.pool.limit_to_arm()), (Ok(0), None));
    assert_eq!(r.pool.release(&mut r.t, ids[0]), Ok(1), "below the watermark: at once");
    assert_eq!(r.pool.limit_to_arm(), Some(3));
    assert_eq!(Rig::new(6, 6, 0, true).pool.limit_to_arm(), None);
}

#[test]
fn receives_that_were_not_posted_stay() {
    let mut r = Rig::new(4, 1, 0, false);
    let e = PostRecvError { posted: 1, cause: PostRecvCause::Os(12) };
    r.t.fail_recv(Some((1, e.cause)));
    assert_eq!((r.pool.fill(&mut r.t), r.pool.posted(), r.pool.idle()), (Err(e), 1, 3));
    assert_eq!((r.receive(), r.pool.release(&mut r.t, 0)), (Some(0), Ok(4)));
    let mut r = Rig::new(4, 1, 0, false);
    r.t.fail_recv(Some((1, e.cause)));
    r.pool.fill(&mut r.t).unwrap_err();
    assert_eq!((r.pool.fill(&mut r.t), r.t.posted(r.queue)), (Ok(3), 4));
    let id = r.receive().unwrap();
    r.t.fail_recv(Some((0, PostRecvCause::Indeterminate)));
    assert!(matches!(r.pool.release(&mut r.t, id), Err(ReleaseError::Post(_))));
    assert_eq!((r.pool.posted(), r.pool.idle(), r.pool.lent()), (4, 0, 0), "maybe the device's");
}

proptest! {
    /// Senders that keep to credits never meet an empty queue, whatever the program's delays; no
    /// buffer is in two places; the queues hold what was posted.
    #[test]
    fn each_buffer_is_in_one_place_and_senders_with_credits_find_a_receive(
        (slots, batch, low) in (1..12u32, 0..14u32, 0..14u32),
        (srq, every) in (prop::bool::ANY, 0..8u32),
        ops in prop::collection::vec((0..6u8, 0..12usize), 0..150),
    ) {
        let mut r = Rig::new(slots, batch, low, srq);
        r.pool.fill(&mut r.t).unwrap();
        let mut gate = CreditGate::new(slots);
        let mut issuer = CreditIssuer::of_pool(&Rig::config(r.queue, slots, batch, low), every);
        let (mut unpolled, mut lent) = (0, vec![]);
        for (op, n) in ops {
            match op {
                0..=2 => if gate.spend() {
                    prop_assert!(r.t.deliver(r.qp, 1, None), "an empty queue despite credits");
                    unpolled += 1;
                },
                3 => {
                    let ids = r.poll(n + 1);
                    unpolled -= ids.len() as u32;
                    lent.extend(ids);
                }
                4 => if n < lent.len() {
                    let id = lent.swap_remove(n);
                    let posted = r.pool.release(&mut r.t, id).unwrap();
                    if let Some(total) = issuer.reposted(posted) {
                        gate.grant(total);
                    }
                },
                _ => if let Some(total) = issuer.reposted(r.pool.fill(&mut r.t).unwrap()) {
                    gate.grant(total);
                },
            }
            prop_assert_eq!(r.pool.lent(), lent.len() as u32);
            prop_assert_eq!(r.t.posted(r.queue) + unpolled, r.pool.posted());
            prop_assert!(r.pool.idle() < batch.clamp(1, slots));
            prop_assert!(gate.available() <= r.t.posted(r.queue));
            prop_assert!(!r.t.cq_lost());
        }
        // With all buffers given back nobody waits for a grant that never comes.
        lent.extend(r.poll(slots as usize));
        for id in lent {
            let posted = r.pool.release(&mut r.t, id).unwrap();
            if let Some(total) = issuer.reposted(posted) {
                gate.grant(total);
            }
        }
        prop_assert!(gate.available() > 0, "dry for ever");
    }
}
