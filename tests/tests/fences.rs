//! Who posts from a GPU orders the stores of its WQEs before each ring, also on the way out of an
//! error; and who does not is reported, in every seed.

use std::sync::Arc;

use doorbell::workloads::{
    Exchanger, ExchangerConfig, Failure, Produce, ProduceConfig, ProducePath, Responder,
    ResponderConfig, Share, Summand, SummandConfig, Workload,
};
use doorbell_core::policy::aggregate::{AggregateConfig, Group, Plan};
use doorbell_core::policy::alltoall::{AllToAllConfig, Exchange, Route, Schedule};
use doorbell_core::transport::{FenceScope, Initiator, MemKind, Reduce};
use doorbell_core::units::{Span, Time};
use doorbell_sim::host::InitiatorConfig;
use doorbell_sim::wire::HostId;
use doorbell_sim::world::{RunEnd, World};
use doorbell_tests::machine;

use super::groups::{Gone, attr, bound, epoch};

const SEEDS: std::ops::Range<u64> = 0..24;
const GPU: MemKind = MemKind::Gpu { gpu: 0 };
const DEADLINE: Span = Span::from_ms(3);

/// The first block of a host's GPU.
fn block() -> InitiatorConfig {
    InitiatorConfig { who: Initiator::GpuBlock { gpu: 0, block: 0 }, ..machine::core(0) }
}

/// Rings of all hosts whose WQE stores were not ordered before them.
fn unordered(world: &World) -> u64 {
    world.hosts().iter().flat_map(|h| h.qps()).map(|(_, q)| q.stats.unordered_rings).sum()
}

/// Members on GPU blocks, of whom one is gone soon after the epoch: how many have an error, and
/// how many rings were not in order.
fn survivors(seed: u64, hosts: u32, member: impl Fn() -> Workload) -> (usize, u64) {
    let config = machine::world_of(machine::quiet_host(), hosts, seed);
    let mut world = World::new(&config).expect("a world");
    for host in 0..hosts {
        world.add_program(HostId(host), block(), Time::ZERO, member());
    }
    let gone = [Gone::Program, Gone::Host][seed as usize % 2];
    let end = bound(DEADLINE * 8);
    let fault = gone.fault(2, Span::from_us(1 + seed), end.since(Time::ZERO));
    world.set_faults(&machine::perhaps([fault])).expect("a fault of this world");
    world.run(end);
    let failed = |rank: &u32| {
        let results = world.program::<Workload>(*rank).expect("a member").results();
        matches!(results.failure, Some(Failure::Aggregate(_)))
    };
    ((0..hosts).filter(|r| *r != 2).filter(failed).count(), unordered(&world))
}

#[test]
fn the_last_words_of_a_group_on_gpus_are_fenced_in_every_seed() {
    let plan = Plan::two_hop(&Group::by_place(&[0; 6], 3, 1), 1).expect("a plan");
    let plan = Arc::new(plan);
    let base = AggregateConfig::default();
    let aggregate = AggregateConfig {
        bytes: 64 << 10,
        op: Reduce::SumI64,
        chunk: 2 << 10,
        window: 2,
        chunk_deadline: Span::from_ms(1),
        round_deadline: DEADLINE,
        connect_deadline: DEADLINE,
        attr: attr(base.attr),
        memory: GPU,
        queue_memory: GPU,
        ..base
    };
    for seed in SEEDS {
        let (failed, unordered) = survivors(seed, 6, || {
            Workload::from(Summand::new(SummandConfig {
                aggregate,
                plan: plan.clone(),
                rounds: 4,
                epoch: Some(epoch()),
                interval: None,
                training: None,
                late: vec![],
                goes_on: false,
            }))
        });
        assert_eq!((failed, unordered), (5, 0), "seed {seed}");
    }
}

#[test]
fn the_last_words_of_an_exchange_on_gpus_are_fenced_in_every_seed() {
    let exchange = Exchange::by_counts(&[0, 0, 1, 1], &[20_000; 16], Route::TwoHop);
    let schedule = Arc::new(Schedule::new(&exchange.expect("an exchange"), 4096));
    let base = AllToAllConfig::default();
    let all_to_all = AllToAllConfig {
        hop_deadline: Span::from_ms(1),
        connect_deadline: DEADLINE,
        attr: attr(base.attr),
        memory: GPU,
        queue_memory: GPU,
        ..base
    };
    for seed in SEEDS {
        let (failed, unordered) = survivors(seed, 4, || {
            Workload::from(Exchanger::new(ExchangerConfig {
                all_to_all,
                schedule: schedule.clone(),
                combine: None,
                share: Share::default(),
                rounds: 40,
                epoch: Some(epoch()),
                interval: None,
            }))
        });
        assert_eq!((failed, unordered), (3, 0), "seed {seed}");
    }
}

/// A block that produces with that fence: its rings, and those that were not in order.
fn produce(seed: u64, fence: Option<FenceScope>) -> (u64, u64) {
    let mut config = ProduceConfig { rounds: 20, fence, ..ProduceConfig::direct(1) };
    if let ProducePath::Direct { local, link, .. } = &mut config.path {
        (local.memory, link.queue_memory) = (GPU, GPU);
    }
    let mut world = World::new(&machine::world_of(machine::quiet_host(), 2, seed)).expect("a pair");
    world.add_program(HostId(0), block(), Time::ZERO, Produce::new(config));
    let mut peer = ResponderConfig::to(0);
    peer.local.region_bytes = 1 << 16;
    world.add_program(HostId(1), machine::core(0), Time::ZERO, Responder::new(peer));
    assert_eq!(world.run(Time::ZERO + Span::from_ms(100)), RunEnd::Done);
    let results = world.program::<Produce>(0).expect("a producer").results();
    assert_eq!(results.failure, None);
    (results.rings, unordered(&world))
}

#[test]
fn programs_without_the_needed_fence_are_reported_in_every_seed() {
    for seed in SEEDS {
        assert_eq!(produce(seed, Some(FenceScope::System)), (20, 0), "seed {seed}");
        for too_little in [None, Some(FenceScope::Device)] {
            assert_eq!(produce(seed, too_little), (20, 20), "seed {seed}, {too_little:?}");
        }
    }
}
