//! Loss costs time and nothing else: random programs over a switch that drops.

use super::*;
use doorbell_core::verbs::QpType;
use doorbell_sim::fabric::{Buffering, FabricConfig, Forwarding, Link, Noise, SwitchConfig};
use doorbell_sim::rc::{Recovery, RetrySeven, SelectiveRepeat, TimeoutMode};

/// Two hosts at a switch whose output holds a packet and a bit: with noise, packets that come
/// close to each other are dropped.
fn lossy(recovery: Recovery, seed: u64) -> WorldConfig {
    let mut host = machine::quiet_host();
    host.rc.recovery = recovery;
    host.rc.rules.retry_seven = RetrySeven::Infinite;
    host.rc.timeout_mode =
        TimeoutMode::Adaptive { first: Span::from_us(30), most: Span::from_ms(1) };
    let mut config = machine::world_of(host, 2, seed);
    let p = machine::profile("generic-400g").port;
    let switch = SwitchConfig {
        forwarding: Forwarding::StoreAndForward,
        buffering: Buffering::TailDrop { port_bytes: 4300 },
        ..SwitchConfig::default()
    };
    config.fabric = FabricConfig::single_switch(2, Link::new(p.rate, p.propagation), switch);
    config.fabric.noise = Noise::OnePacket;
    config
}

fn recoveries() -> impl Strategy<Value = Recovery> {
    let selective = Recovery::SelectiveRepeat(SelectiveRepeat { hold: 256, cap: 64 });
    proptest::sample::select(vec![Recovery::GoBackN, selective])
}

/// Only RC promises anything about lost packets.
fn reliable_plans() -> impl Strategy<Value = Plan> {
    plans().prop_filter("not RC", |plan| plan.ty == QpType::Rc)
}

fn dropped(world: &World) -> u64 {
    world.fabric().balance().map_or(0, |b| b.dropped.total().packets)
}

proptest! {
    #[test]
    fn loss_changes_no_result(plan in reliable_plans(), recovery in recoveries()) {
        let plan = Arc::new(plan);
        let config = lossy(recovery, plan.seed);
        let world = simulate_on(&plan, &config, machine::core(0));
        same(&world, idealise(&plan))?;
        prop_assert_eq!(world.left_over(), []);
        let again = simulate_on(&plan, &config, machine::core(0));
        prop_assert_eq!(again.trace_hash(), world.trace_hash());
    }
}

#[test]
fn packets_are_lost_and_the_side_that_sees_it_counts() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut lost, mut seen) = (0, 0);
    for _ in 0..40 {
        let plan = Arc::new(reliable_plans().new_tree(&mut runner).unwrap().current());
        let config = lossy(Recovery::GoBackN, plan.seed);
        let world = simulate_on(&plan, &config, machine::core(0));
        let counters = [0, 1].map(|h: usize| world.hosts()[h].nic(0).hw_counters());
        let sum = |f: fn(&doorbell_sim::rc::HwCounters) -> u64| counters.iter().map(f).sum::<u64>();
        let rounds = sum(|c| c.packet_seq_err)
            + sum(|c| c.implied_nak_seq_err)
            + sum(|c| c.local_ack_timeout_err);
        assert_eq!(sum(|c| c.retransmitted_packets) > 0, rounds + sum(|c| c.rnr_nak_retry_err) > 0);
        assert!(sum(|c| c.packet_seq_err) <= sum(|c| c.sequence_naks_sent));
        assert_eq!(sum(|c| c.req_cqe_error) + sum(|c| c.req_transport_retries_exceeded), 0);
        lost += dropped(&world);
        seen += rounds;
    }
    // An ACK that is lost may be made up for by a later one, so rounds may be fewer.
    assert!(lost > 100 && seen > 20, "{lost} lost, {seen} rounds");
}
