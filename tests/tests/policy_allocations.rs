//! Policies allocate nothing after they were made: a counting allocator, in a binary of its own
//! with one test, so that nobody else allocates meanwhile.

use std::alloc::System;

use doorbell_core::noop::NoOp;
use doorbell_core::policy::lanes::*;
use doorbell_core::policy::*;
use doorbell_core::transport::*;
use doorbell_core::units::{BitRate, Bytes, Span, Time};
use doorbell_core::verbs::SendFlags;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const DEPTH: u32 = 64;

fn mr() -> Mr {
    NoOp::mr(0x1000, 1 << 20)
}

/// A lane of two queue pairs with a pace.
fn lanes(sender: SenderConfig, qps: &[(QpId, QpCaps)]) -> Lanes {
    let pace = PaceConfig::of(BitRate::gbps(1), Bytes(256));
    let (spread, peer_pace) = (Spread::LeastBytes, Some(pace));
    let lanes = [LaneConfig { qps: 2, spread, peer_pace, sender, ..LaneConfig::default() }];
    let set = LanesConfig { lanes: &lanes, peers: 1, cores: 1, labels: FlowLabels::Device };
    Lanes::new(&set, 0, qps, &mut CqBudget::new(2 * DEPTH), Time::ZERO).unwrap()
}

/// Pushes by the lane, and rings what is due. Gives 1 if its pace held the message back.
fn push(lanes: &mut Lanes, t: &mut NoOp, now: Time, wr: &SendWr<'_>) -> u32 {
    let paced = match lanes.push(t, now, To::default(), wr, Cue::Last) {
        Ok(_) | Err(LaneError::Full) => 0,
        Err(LaneError::Paced { .. }) => 1,
        Err(e) => panic!("{e}"),
    };
    lanes.tick(t, now).unwrap();
    paced
}

#[test]
fn nothing_is_allocated_after_the_policies_were_made() {
    let mut t = NoOp::new(4 * DEPTH);
    t.hold_completions();
    let qp = t.add_qp(NoOp::caps(DEPTH), None);
    let mut budget = CqBudget::new(2 * DEPTH);
    let batch = BatchConfig { mode: BatchMode::ADAPTIVE, ..BatchConfig::default() };
    let config = SenderConfig { batch, ..SenderConfig::default() };
    let mut sender = Sender::new(config, qp, &NoOp::caps(DEPTH), budget.take(DEPTH).unwrap());
    let mut buffers = SendBuffers::new(32, 64, DEPTH);
    let mut template = WrTemplate::new(SendOp::Send, &mr(), SendFlags::empty());
    let pool = RecvPoolConfig {
        queue: RecvQueue::Qp(qp),
        slots: DEPTH,
        slot_bytes: 64,
        batch: 8,
        low_watermark: 4,
    };
    let mut pool = RecvPool::new(pool, &mr(), budget.take(DEPTH).unwrap()).unwrap();
    let own = [(); 2].map(|()| (t.add_qp(NoOp::caps(DEPTH), None), NoOp::caps(DEPTH)));
    let mut lanes = lanes(config, &own);
    let (mut by_lane, mut paced) = (0, 0);
    let mut out = Completions::with_capacity(16);
    let (mut sent, mut received, mut full) = (0u32, 0, 0);
    let before = Region::new(ALLOCATOR);
    pool.fill(&mut t).unwrap();
    for n in 0..10_000 {
        let now = Time::ZERO + Span::from_ns(100 * n);
        if let Some(at) = buffers.take() {
            let wr = template.wr(n, at, 64, 0).unwrap();
            let cue = if n % 7 == 0 { Cue::Last } else { Cue::More };
            match sender.push(&mut t, now, &wr, cue) {
                Ok(_) => {}
                Err(PushError::Refused(StageError::SqFull)) => buffers.undo(),
                Err(e) => panic!("{e}"),
            }
        } else {
            full += 1;
            sender.flush(&mut t).unwrap();
        }
        let wr = template.wr(n, 0, 64, 0).unwrap();
        paced += push(&mut lanes, &mut t, now, &wr);
        own.iter().for_each(|(qp, _)| t.complete(*qp, 1));
        // Half as many as are pushed, so that the queue fills.
        t.complete(qp, (n % 2) as u32);
        t.deliver(qp, 64, None);
        out.clear();
        t.poll_cq(NoOp::CQ, &mut out).unwrap();
        for c in out.as_slice() {
            if let Completion::Recv { wr_id, .. } = *c {
                pool.completed(wr_id).unwrap();
                pool.release(&mut t, wr_id).unwrap();
                received += 1;
            }
            by_lane += lanes.completion(c, now).map_or(0, |told| told.retired);
            let told = sender.completion(c, now);
            buffers.retired(told);
            sent += told;
        }
        sender.tick(&mut t, now).unwrap();
    }
    let change = before.change();
    assert!(sent > 4_000 && received > 9_000 && full > 0, "{sent} {received} {full}");
    assert!(by_lane > 1_000 && paced > 1_000, "{by_lane} {paced}");
    assert_eq!((change.allocations, change.reallocations), (0, 0), "{change:?}");
}
