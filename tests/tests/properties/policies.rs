//! Policies on the simulator, over random loads, limits and fault plans: deadlines are kept, no
//! queue is exceeded, no buffer is used again before its completion, every message arrives once,
//! in order and whole. Plans shrink to the message and the fault that matter.

use doorbell::workloads::LinkConfig;
use doorbell_core::policy::*;
use doorbell_core::transport::QpSize;
use doorbell_core::units::Bytes;
use doorbell_sim::fault::FaultPlan;
use doorbell_sim::rc::{RetrySeven, TimeoutMode};
use doorbell_tests::traffic::{Arrival, Kind, Pusher, PusherConfig, Taker, TakerConfig};

use super::faults::fault_plans;
use super::*;

/// A load, the limits of both sides, and what the policies are told.
#[derive(Clone, Debug)]
struct Case {
    arrivals: Vec<Arrival>,
    size: QpSize,
    cq_depth: u32,
    buffers: u32,
    sender: SenderConfig,
    inline: InlineConfig,
    taker: TakerConfig,
}

fn arrivals() -> impl Strategy<Value = Vec<Arrival>> {
    // Bursts, and gaps up to some round trips; headers need 24 bytes.
    let gap = prop_oneof![3 => Just(0), 3 => 0..300u64, 1 => 0..8000u64];
    let one = (gap, 24..2000u32, prop::bool::weighted(0.1));
    prop::collection::vec(one, 1..60).prop_map(|list| {
        let mut at = Span::ZERO;
        let arrival = |(gap, bytes, urgent)| {
            at += Span::from_ns(gap);
            Arrival { at, bytes, urgent }
        };
        list.into_iter().map(arrival).collect()
    })
}

fn senders() -> impl Strategy<Value = SenderConfig> {
    let mode = prop_oneof![
        Just(BatchMode::Fixed),
        (0..32u32).prop_map(|share| BatchMode::Adaptive { share }),
    ];
    let batch = (mode, 0..40u32, 0..8000u64, 0..4000u64);
    (batch, 0..40u32, 0..40u32, any::<bool>()).prop_map(
        |((mode, wrs, bytes, delay), max_wrs, signal_every, signal_last)| SenderConfig {
            batch: BatchConfig {
                mode,
                max_wrs: wrs,
                max_bytes: Bytes(bytes),
                max_delay: Span::from_ns(delay),
                ..BatchConfig::default()
            },
            window: WindowConfig { max_wrs, signal_every },
            signal_last,
        },
    )
}

fn takers() -> impl Strategy<Value = TakerConfig> {
    let sizes = (1..24u32, 0..24u32, 0..24u32, 0..24u32);
    (any::<bool>(), sizes, 0..5000u64).prop_map(
        |(srq, (slots, batch, low_watermark, grant_every), hold)| TakerConfig {
            link: LinkConfig::to(0),
            srq,
            slots,
            batch,
            low_watermark,
            grant_every,
            hold: Span::from_ns(hold),
            credit_offset: 0,
        },
    )
}

fn cases() -> impl Strategy<Value = Case> {
    let limits = (1..40u32, 0..220u32, 1..50u32, 1..30u32);
    let inline = (0..300u32, 0..300u32);
    (arrivals(), limits, senders(), inline, takers()).prop_map(
        |(arrivals, (depth, max_inline, cq_depth, buffers), sender, (lone, batched), taker)| Case {
            arrivals,
            size: QpSize { max_send_wr: depth, max_recv_wr: 1, max_send_sge: 1, max_inline },
            cq_depth,
            buffers,
            sender,
            inline: InlineConfig { lone_bytes: lone, batched_bytes: batched },
            taker,
        },
    )
}

fn run_case(case: &Case, faults: &FaultPlan) -> World {
    let mut link = LinkConfig::to(1);
    link.size = case.size;
    let config = PusherConfig {
        link,
        cq_depth: case.cq_depth,
        sender: case.sender,
        inline: case.inline,
        kind: Kind::Send { credits: case.taker.slots },
        arrivals: case.arrivals.clone().into(),
        buffers: case.buffers,
    };
    let mut host = machine::quiet_host();
    host.rc.rules.retry_seven = RetrySeven::Infinite;
    host.rc.timeout_mode =
        TimeoutMode::Adaptive { first: Span::from_us(30), most: Span::from_ms(1) };
    let mut world = World::new(&machine::world_of(host, 2, 1)).unwrap();
    let taker = TakerConfig { credit_offset: Pusher::credit_offset(&config), ..case.taker };
    world.add_program(HostId(0), machine::core(0), Time::ZERO, Pusher::new(config));
    world.add_program(HostId(1), machine::core(0), Time::ZERO, Taker::new(taker));
    world.set_faults(faults).unwrap();
    assert_eq!(world.run(LIMIT), RunEnd::Done);
    world
}

fn check(case: &Case, world: &World) -> Result<(), TestCaseError> {
    let pusher = world.program::<Pusher>(0).unwrap();
    let taker = world.program::<Taker>(1).unwrap();
    prop_assert_eq!(&pusher.failure, &None);
    prop_assert_eq!(&taker.failure, &None, "after {} messages", taker.taken.len());
    let n = case.arrivals.len() as u64;
    prop_assert_eq!(&taker.taken, &(0..n).collect::<Vec<_>>(), "once and in order");
    let (seen, rings) = (&pusher.seen, pusher.seen.rings);
    prop_assert!(rings.rings <= rings.wqes && rings.wqes == n);
    prop_assert!(seen.most <= case.size.max_send_wr.min(case.cq_depth), "the queue is exceeded");
    // A core that is busy with its own step comes late by a step at most.
    prop_assert!(seen.late <= seen.longest_step, "{:?} late", seen.late);
    // What waits for company waits for max_delay at most, and for the step that notices.
    let most = case.sender.batch.max_delay + seen.longest_step;
    prop_assert!(seen.longest_held <= most, "{:?} held of {most:?}", seen.longest_held);
    prop_assert_eq!(world.left_over(), []);
    Ok(())
}

proptest! {
    #[test]
    fn policies_keep_their_promises(case in cases()) {
        let world = run_case(&case, &FaultPlan::default());
        check(&case, &world)?;
        // With credits nobody ever meets an empty receive queue.
        prop_assert_eq!(world.hosts()[1].nic(0).hw_counters().rnr_nak_sent, 0);
    }

    #[test]
    fn policies_keep_their_promises_under_faults(case in cases(), faults in fault_plans()) {
        check(&case, &run_case(&case, &faults))?;
    }
}

#[test]
fn the_cases_fill_queues_and_meet_faults() {
    // The properties above would hold for runs in which nothing happens.
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut full, mut batched, mut again, mut limits, mut dry) = (0, 0, 0, 0, 0);
    for _ in 0..80 {
        let case = cases().new_tree(&mut runner).unwrap().current();
        let faults = fault_plans().new_tree(&mut runner).unwrap().current();
        let world = run_case(&case, &faults);
        let seen = &world.program::<Pusher>(0).unwrap().seen;
        let taker = world.program::<Taker>(1).unwrap();
        full += u32::from(seen.most == case.size.max_send_wr.min(case.cq_depth));
        batched += u32::from(seen.rings.rings < seen.rings.wqes);
        again += u32::from(world.hosts()[0].nic(0).hw_counters().retransmitted_packets > 0);
        limits += taker.limits;
        dry += u32::from(taker.stats.low == 0);
    }
    let all = (full, batched, again, limits, dry);
    assert!(full > 10 && batched > 20 && again > 20 && limits > 10 && dry > 10, "{all:?}");
}
