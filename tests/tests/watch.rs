//! The search for pause storms and deadlocks: it ends with what there is to search, and changes
//! nothing.

use std::sync::Arc;

use doorbell_core::transport::Ring;
use doorbell_core::units::{Span, Time};
use doorbell_core::verbs::{Mtu, Psn, QpType, SendFlags};
use doorbell_sim::fabric::{
    Buffering, ClassConfig, Classes, FabricConfig, Link, Noise, SharedConfig, SwitchConfig,
};
use doorbell_sim::wire::HostId;
use doorbell_sim::world::{RunEnd, World};
use doorbell_tests::machine;
use doorbell_tests::plan::{Kind, Op, Plan, Side};
use doorbell_tests::player::Player;

/// A few WRITEs over a switch that sends pauses.
fn world() -> World {
    let op = |i| Op {
        kind: Kind::Write,
        len: 3_000,
        elements: 1,
        inline: false,
        flags: SendFlags::SIGNALED,
        place: 0,
        ring: (i % 4 == 3).then_some(Ring::Doorbell),
    };
    let side = |ops| Side { ops, unrung: 0, poll: 8, psn: Psn::new(0) };
    let plan = Arc::new(Plan {
        ty: QpType::Rc,
        mtu: Mtu::B1024,
        depth: 64,
        max_inline: 220,
        rd_atomic: 16,
        numa: (0, 0),
        sides: [side((0..16).map(op).collect()), side(vec![])],
        seed: 1,
    });
    let mut config = machine::world_of(machine::quiet_host(), 2, 1);
    let profile = machine::profile("generic-400g");
    let link = Link::new(profile.port.rate, profile.port.propagation);
    let buffering = Buffering::Shared(SharedConfig::default());
    let switch = SwitchConfig { buffering, ..SwitchConfig::default() };
    config.fabric = FabricConfig::single_switch(2, link, switch);
    config.fabric.noise = Noise::Off;
    config.fabric.classes = Classes::one(ClassConfig { lossless: true, ..ClassConfig::default() });
    let mut world = World::new(&config).expect("a network that can be built");
    for rank in 0..2 {
        let program = Player::new(plan.clone(), rank);
        world.add_program(HostId(rank as u32), machine::core(0), Time::ZERO, program);
    }
    world
}

/// Ack timers that were cancelled are pending until their time, of many milliseconds here: they
/// are no reason to go on.
#[test]
fn the_search_ends_with_the_last_packet() {
    let mut world = world();
    assert!(world.fabric().pauses());
    assert_eq!(world.run(Time::ZERO + Span::from_ms(30_000)), RunEnd::Done);
    let took = world.now().since(Time::ZERO);
    let most = took.as_ps() / Span::from_us(100).as_ps() + 1;
    assert!((1..=most).contains(&world.searches()), "{} in {took:?}", world.searches());
}

#[test]
fn a_bound_of_events_ends_a_run_and_no_sooner() {
    let limit = Time::ZERO + Span::from_ms(30_000);
    let mut whole = world();
    assert_eq!(whole.run(limit), RunEnd::Done);
    let mut cut = world();
    cut.bound_events(100);
    assert_eq!(cut.run(limit), RunEnd::EventLimit(100));
    assert!(cut.events() <= 100);
    cut.bound_events(u64::MAX);
    assert_eq!(cut.run(limit), RunEnd::Done, "it goes on where it stood");
    assert_eq!(cut.trace_hash(), whole.trace_hash());
}
